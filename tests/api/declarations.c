/* declarations tensorgrad.h api_calls.h: reads the public declarations of the header and writes a table of them, with a
 * function for each that draws its arguments, calls it and hands the result to a check:
 *
 *     TG_API tg_tensor *tg_add_scalar(tg_tensor *x, double s);       what is read
 *
 *     static void call_tg_add_scalar(void)                           what is written
 *     {
 *         tg_tensor *x = draw_tensor("x");
 *         double s = draw_double("s");
 *         call_starts();
 *         check_tensor(tg_add_scalar(x, s));
 *     }
 *     {"tg_add_scalar", call_tg_add_scalar, "tensor", 2, {{"tensor", "x"}, {"double", "s"}}},
 *
 * A program defines the draw_ and check_ functions and includes the file that was written: fuzz_api.c draws random
 * arguments, test_api.c good ones and a wrong one.  What a parameter is drawn as follows from its type and
 * name by the tables below; a type that is not there stops the build, so that every function is called. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The first row whose type is equal and whose name is NULL or equal says how a parameter is drawn.  kind NULL: there is
   no drawing it by itself; the function's call is then NULL, and the program calls it by hand. */
static const struct { const char *type, *name, *kind; } parameter_kinds[] = {
    {"tg_tensor *", NULL, "tensor"},
    {"const tg_tensor *", NULL, "tensor"},
    {"tg_tensor *const *", NULL, "tensors"},    /* as many as the count that follows */
    {"tg_tensor **", "sum", "out_tensor"},
    {"tg_tensor **", "indices", "out_tensor"},  /* one tensor that the call makes beside its result, or NULL */
    {"tg_tensor **", "inverse", "out_tensor"},
    {"tg_tensor **", "counts", "out_tensor"},
    {"tg_tensor **", "logabsdet", "out_tensor"},
    {"tg_tensor **", "R", "out_tensor"},
    {"tg_tensor **", "eigenvectors", "out_tensor"},
    {"tg_tensor **", "S", "out_tensor"},
    {"tg_tensor **", "Vh", "out_tensor"},
    {"tg_tensor **", "residuals", "out_tensor"},
    {"tg_tensor **", "rank", "out_tensor"},
    {"tg_tensor **", "pivots", "out_tensor"},
    {"tg_tensor **", "out", "out_tensors"},     /* as many as the count says */
    {"tg_tensor **", "results", "out_tensors"},
    {"tg_tensor **", NULL, NULL},
    {"int", "n", "count"},
    {"int", "m", "count"},
    {"int", "max", "count"},
    {"int", "n_in", "count"},
    {"int", "n_out", "count"},
    {"int", NULL, "int"},
    {"int64_t", NULL, "int64"},
    {"uint64_t", NULL, "uint64"},
    {"size_t", NULL, "size"},
    {"double", NULL, "double"},
    {"bool", NULL, "bool"},
    {"const char *", NULL, "string"},
    {"tg_shape", NULL, "shape"},
    {"tg_dtype", NULL, "dtype"},
    {"tg_device", NULL, "device"},
    {"tg_precision", NULL, "precision"},
    {"tg_conv_options", NULL, "conv_options"},
    {"tg_batch_norm_options", NULL, "batch_norm_options"},
    {"tg_instance_norm_options", NULL, "instance_norm_options"},
    {"tg_norm_options", NULL, "norm_options"},
    {"tg_rnn_options", NULL, "rnn_options"},
    {"tg_attention_options", NULL, "attention_options"},
    {"tg_rng", NULL, "rng"},
    {"tg_status", NULL, "status"},
    {"tg_mark", NULL, "mark"},
    {"tg_optim *", NULL, "optim"},
    {"tg_grad_scaler *", NULL, "scaler"},
    {"tg_dict *", "inner", NULL},
    {"tg_dict *", NULL, "dict"},
    {"const tg_dict *", NULL, "dict"},
    {"tg_dict **", NULL, NULL},
    {"tg_loader *", NULL, "loader"},
    {"const tg_loader *", NULL, "loader"},
    {"tg_module *", "child", NULL},
    {"tg_module *", "base", NULL},
    {"tg_module *", "layer", NULL},
    {"tg_module *", "norm", NULL},
    {"tg_module *", NULL, "module"},
    {"tg_module *const *", NULL, NULL},
    {"const char *const *", NULL, NULL},
    {"tg_forward_fn", NULL, "module_forward"},
    {"tg_forward_one_fn", NULL, "forward_one"},
    {"tg_module_hook_fn", NULL, "module_hook"},
    {"tg_param_test", NULL, NULL},
    {"tg_ctx *", NULL, "ctx"},
    {"FILE *", NULL, "file"},
    {"void *", "user", "user"},
    {"tg_function", NULL, "function"},
    {"tg_closure", NULL, "closure"},
    {"tg_hook_fn", NULL, "hook"},
    {"tg_post_hook_fn", NULL, "post_hook"},
    {"tg_custom_forward", NULL, "forward"},
    {"tg_custom_backward", NULL, "backward"},
    {"tg_error_handler", NULL, "handler"},
    {"void *", NULL, NULL},
    {"const void *", NULL, NULL},
    {"const float *", NULL, NULL},
    {"const double *", NULL, NULL},
    {"const int64_t *", NULL, NULL},
    {"int64_t *", NULL, NULL},
    {"void (*)(void *user)", NULL, NULL},
    {"const tg_allocator *", NULL, NULL},
    {"const tg_gradcheck_options *", NULL, NULL},
    {"const tg_csv_options *", NULL, NULL},
    {"const tg_rename *", NULL, NULL},
    {"tg_plateau *", NULL, NULL},
    {"const tg_checkpoint_part *", NULL, NULL},
    {"tg_capture *", NULL, NULL},
    {"const tg_capture *", NULL, NULL},
    {"bool (*)(void *user)", NULL, NULL},
    {"tg_parallel *", NULL, NULL},
    {"const tg_comm *", NULL, NULL},
    {"tg_comm *", NULL, NULL},
    {"tg_nccl_id *", NULL, NULL},
    {"const tg_nccl_id *", NULL, NULL},
    {"const tg_parallel_options *", NULL, NULL},
    {"tg_device *", NULL, NULL},
    {"tg_step_info *", NULL, NULL},
    {"tg_step_input_info *", NULL, NULL},
    {"tg_backward_run *", NULL, NULL},
    {"tgi_scope_guard *", NULL, NULL},
    {"struct DLManagedTensorVersioned *", NULL, NULL},
    {"struct DLManagedTensor *", NULL, NULL},
};

/* The check for a result of this type. */
static const struct { const char *type, *kind; } result_kinds[] = {
    {"void", "void"},
    {"tg_tensor *", "tensor"},
    {"tg_status", "status"},
    {"bool", "bool"},
    {"int", "int64"},
    {"int64_t", "int64"},
    {"size_t", "size"},
    {"double", "double"},
    {"const char *", "string"},
    {"void *", "pointer"},
    {"float *", "pointer"},
    {"double *", "pointer"},
    {"int64_t *", "pointer"},
    {"tg_optim *", "optim"},
    {"tg_dict *", "dict"},
    {"tg_optim_group *", "group"},
    {"tg_loader *", "loader"},
    {"tg_capture *", "capture"},
    {"tg_parallel *", "parallel"},
    {"tg_module *", "module"},
    {"tg_tensor *const *", "pointer"},
    {"tg_backward_run *", "run"},
    {"tg_dtype", "dtype"},
    {"tg_shape", "shape"},
    {"tg_device", "device"},
    {"tg_mark", "mark"},
    {"tg_precision", "value"},
    {"tg_rng", "value"},
    {"tg_stats_info", "value"},
    {"tg_device_stats", "value"},
    {"tgi_scope_guard", "value"},
    {"struct DLManagedTensorVersioned *", "dlpack"},
    {"struct DLManagedTensor *", "dlpack_unversioned"},
};

#define ROWS(table) (sizeof(table) / sizeof(table)[0])
enum { MOST_PARAMETERS = 12, MOST_FUNCTIONS = 1400, MOST_TEXT = 200 };
typedef struct { char text[MOST_TEXT], name[MOST_TEXT]; const char *kind; } parameter;
typedef struct {
    char name[MOST_TEXT];
    const char *result;
    int n;
    int by_hand; /* has a parameter that is not drawn by itself */
    parameter parameters[MOST_PARAMETERS];
} declaration;

static void stop(const char *problem, const char *text)
{
    fprintf(stderr, "declarations: %s: %s\n", problem, text);
    exit(1);
}

/* The file up to the end of its public part. */
static char *read_public_part(const char *path)
{
    FILE *file = fopen(path, "rb");
    size_t size = 0, room = 1 << 22;
    char *text = (char *)malloc(room), *end;
    if (!file || !text) stop("cannot be read", path);
    size = fread(text, 1, room - 1, file);
    fclose(file);
    text[size] = 0;
    end = strstr(text, "#endif /* TENSORGRAD_H */");
    if (!end) stop("no line '#endif /* TENSORGRAD_H */'", path);
    *end = 0;
    return text;
}

/* Blanks comments, and preprocessor lines with the lines that they are continued on. */
static void blank_what_is_no_code(char *p)
{
    int line_starts = 1;
    while (*p) {
        const char *end = p;
        if (p[0] == '/' && p[1] == '*') {
            end = strstr(p, "*/") + 2;
        } else if (p[0] == '/' && p[1] == '/') {
            end = p + strcspn(p, "\n");
        } else if (*p == '#' && line_starts) {
            while (*end && !(*end == '\n' && end[-1] != '\\')) ++end;
        }
        line_starts = *p == '\n' || (line_starts && isspace((unsigned char)*p));
        if (end == p) ++p;
        while (p < end) *p++ = ' ';
    }
}

/* Copies [from, to) with every run of white space as one space, and none at the ends. */
static void copy_text(char *out, const char *from, const char *to)
{
    char *p = out;
    while (from < to && isspace((unsigned char)*from)) ++from;
    while (from < to && isspace((unsigned char)to[-1])) --to;
    if (to - from >= MOST_TEXT) stop("a longer text than MOST_TEXT", out);
    for (; from < to; ++from) {
        if (!isspace((unsigned char)*from)) *p++ = *from;
        else if (p[-1] != ' ') *p++ = ' ';
    }
    *p = 0;
}

static int is_name_letter(char c) { return isalnum((unsigned char)c) || c == '_'; }

/* The end of the last name in [from, to), which starts at *start: of "tg_tensor *x" that is x. */
static const char *last_name(const char *from, const char *to, const char **start)
{
    while (to > from && !is_name_letter(to[-1])) --to;
    *start = to;
    while (*start > from && is_name_letter((*start)[-1])) --*start;
    return to;
}

/* "void (*deleter)(void *user)": its name stands in the first brackets; that of any other parameter, at its end. */
static void read_parameter(declaration *d, const char *from, const char *to)
{
    parameter *p = &d->parameters[d->n++];
    const char *text = p->text, *start, *end;
    char type[MOST_TEXT];
    size_t row;
    if (d->n == MOST_PARAMETERS) stop("more parameters than MOST_PARAMETERS", d->name);
    copy_text(p->text, from, to);
    end = last_name(text, strchr(text, ')') ? strchr(text, ')') : text + strlen(text), &start);
    copy_text(p->name, start, end);
    copy_text(type, text, start);
    snprintf(type + strlen(type), sizeof type - strlen(type), "%s", end);
    for (row = 0; row < ROWS(parameter_kinds); ++row) {
        if (strcmp(parameter_kinds[row].type, type) != 0) continue;
        if (parameter_kinds[row].name && strcmp(parameter_kinds[row].name, p->name) != 0) continue;
        p->kind = parameter_kinds[row].kind;
        if (!p->kind) d->by_hand = 1;
        return;
    }
    fprintf(stderr, "declarations: %s: parameter '%s': its type is not in parameter_kinds\n", d->name, p->text);
    exit(1);
}

/* "tg_tensor *tg_add(tg_tensor *a, tg_tensor *b)" */
static void read_declaration(declaration *d, const char *from, const char *to)
{
    const char *bracket = (const char *)memchr(from, '(', (size_t)(to - from)), *start, *end, *p;
    char result[MOST_TEXT];
    int depth = 0;
    size_t row;
    if (!bracket) stop("TG_API, and not a function", from);
    end = last_name(from, bracket, &start);
    copy_text(d->name, start, end);
    copy_text(result, from, start);
    for (row = 0; row < ROWS(result_kinds); ++row) {
        if (strcmp(result_kinds[row].type, result) == 0) d->result = result_kinds[row].kind;
    }
    if (!d->result) {
        fprintf(stderr, "declarations: %s: its result '%s' is not in result_kinds\n", d->name, result);
        exit(1);
    }
    while (to[-1] != ')') --to;
    for (p = from = bracket + 1; p < to; ++p) {
        if ((*p == ',' && depth == 0) || p == to - 1) {
            if (p - from != 4 || strncmp(from, "void", 4) != 0) read_parameter(d, from, p);
            from = p + 1;
        }
        depth += (*p == '(') - (*p == ')');
    }
}

static void write_call(FILE *out, const declaration *d)
{
    int i;
    fprintf(out, "\nstatic void call_%s(void)\n{\n", d->name);
    for (i = 0; i < d->n; ++i) {
        const parameter *p = &d->parameters[i];
        fprintf(out, "    %s = draw_%s(\"%s\");\n", p->text, p->kind, p->name);
    }
    fprintf(out, "    call_starts();\n    ");
    if (strcmp(d->result, "value") == 0) fprintf(out, "(void)");
    else if (strcmp(d->result, "void") != 0) fprintf(out, "check_%s(", d->result);
    fprintf(out, "%s(", d->name);
    for (i = 0; i < d->n; ++i) fprintf(out, "%s%s", i ? ", " : "", d->parameters[i].name);
    if (strcmp(d->result, "void") == 0 || strcmp(d->result, "value") == 0) fprintf(out, ");\n    check_void();\n}\n");
    else fprintf(out, "));\n}\n");
}

static void write_row(FILE *out, const declaration *d)
{
    int i;
    fprintf(out, "    {\"%s\", %s%s, \"%s\", %d, {", d->name, d->by_hand ? "NULL" : "call_", d->by_hand ? "" : d->name,
            d->result, d->n);
    for (i = 0; i < d->n; ++i) {
        const parameter *p = &d->parameters[i];
        fprintf(out, "%s{\"%s\", \"%s\"}", i ? ", " : "", p->kind ? p->kind : "by hand", p->name);
    }
    fprintf(out, "%s}},\n", d->n ? "" : "{NULL, NULL}");
}

int main(int argc, char **argv)
{
    static declaration all[MOST_FUNCTIONS];
    int n = 0, i;
    char *text, *p;
    FILE *out;
    if (argc != 3) stop("usage", "declarations tensorgrad.h api_calls.h");
    text = read_public_part(argv[1]);
    blank_what_is_no_code(text);
    for (p = text; (p = strstr(p, "TG_API")) != NULL; ++n) {
        char *end = strchr(p, ';');
        if (!end) stop("TG_API without an end", argv[1]);
        if (n == MOST_FUNCTIONS) stop("more functions than MOST_FUNCTIONS", argv[1]);
        read_declaration(&all[n], p + strlen("TG_API"), end);
        p = end;
    }
    if (n == 0) stop("no declarations", argv[1]);
    out = fopen(argv[2], "w");
    if (!out) stop("cannot be written", argv[2]);
    fprintf(out, "/* Written by tests/api/declarations.c from tensorgrad.h: see there. */\n");
    fprintf(out, "typedef struct {\n    const char *name;\n    void (*call)(void);\n");
    fprintf(out, "    const char *result;\n    int n;\n");
    fprintf(out, "    struct { const char *kind, *name; } parameter[%d];\n} api_function;\n", MOST_PARAMETERS);
    for (i = 0; i < n; ++i) {
        if (!all[i].by_hand) write_call(out, &all[i]);
    }
    fprintf(out, "\nstatic const api_function api_functions[] = {\n");
    for (i = 0; i < n; ++i) write_row(out, &all[i]);
    fprintf(out, "};\nenum { API_FUNCTIONS = %d };\n", n);
    if (fclose(out) != 0) stop("cannot be written", argv[2]);
    free(text);
    return 0;
}
