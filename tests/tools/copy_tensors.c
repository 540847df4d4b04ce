/* copy_tensors FROM TO [FROM TO]...: loads each file FROM and saves what it holds as TO, in the formats that their names
 * end in: .safetensors, .npy or .npz; FROM may be an .index.json.  For each pair it prints "ok" or the error.  Of a FROM
 * that is a .csv it prints the elements, and TO is not written.  check_files.py uses it to compare the library's files with
 * those of NumPy and safetensors. */
#include "tensorgrad.h"
#include <string.h>

static bool ends_in(const char *path, const char *ending)
{
    const size_t n = strlen(path), m = strlen(ending);
    return n >= m && strcmp(path + n - m, ending) == 0;
}

static tg_dict *load(const char *path)
{
    tg_dict *d;
    if (ends_in(path, ".safetensors") || ends_in(path, ".index.json")) return tg_safetensors_load(path);
    if (ends_in(path, ".npz")) return tg_npz_load(path);
    d = tg_dict_new();
    if (tg_dict_set(d, "x", tg_npy_load(path)) == TG_OK) return d;
    tg_dict_free(d);
    return NULL;
}

static tg_status save(const char *path, tg_dict *d)
{
    if (ends_in(path, ".safetensors")) return tg_safetensors_save(path, d);
    if (ends_in(path, ".npz")) return tg_npz_save(path, d);
    return tg_npy_save(path, tg_dict_get(d, tg_dict_name(d, 0)));
}

/* "[[1, 2], [3, 4]]" in all digits, as Python writes it */
static void print_table(const char *path)
{
    tg_tensor *t = tg_csv_load(path);
    double x;
    for (int64_t i = 0; t && i < tg_dim(t, 0); ++i) {
        for (int64_t j = 0; j < tg_dim(t, 1); ++j) {
            tg_copy_out(tg_select(tg_select(t, 0, i), 0, j), &x, sizeof x);
            printf("%s%.17g", j ? ", " : i ? "], [" : "[[", x);
        }
    }
    if (t) puts("]]");
}

int main(int argc, char **argv)
{
    tg_set_error_handler(NULL, NULL);
    tg_set_default_dtype(TG_F64); /* of .csv */
    for (int i = 1; i + 1 < argc; i += 2) {
        const tg_mark mark = tg_scope_begin();
        const bool table = ends_in(argv[i], ".csv");
        tg_dict *d = table ? NULL : load(argv[i]);
        if (table) print_table(argv[i]);
        if (d) save(argv[i + 1], d);
        tg_dict_free(d);
        tg_scope_end(mark);
        const char *said = tg_ok() ? "ok" : tg_error_message();
        if (!table || !tg_ok()) printf("%.*s\n", (int)strcspn(said, "\n"), said);
        tg_clear_error();
    }
    return tg_stats().tensors != 0;
}
