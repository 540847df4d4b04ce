#!/usr/bin/env python3
"""add_format.py FOLDER: adds a file format to a copy of the library in FOLDER, in as many places as the head of @@FILES says, and
tests it; ends in "N passed, N failed".

The format is PGM, grey pictures: "P5", width, height and 255 as text, then the bytes.  The test writes one and compares its
bytes, reads it and one made by hand, and refuses files that are cut off, too long or of another kind."""
import sys

from checks import summary
from copies import HEADER, add, build, copy, test

TEST = "tests/test_files.c"

PGM = [
    (HEADER, "/* IDX, the format of MNIST:", """\
/* PGM, grey pictures: t is u8 [height, width].  tg_pgm_save: errors: another dtype or number of dims. */
TG_API tg_tensor *tg_pgm_load(const char *path);
TG_API tg_status tg_pgm_save(const char *path, tg_tensor *t);

"""),
    (HEADER, "/* ======== @@NPZ ===================================================================================================\n\n", """\
/* ---- PGM: "P5", width, height and 255 as text, a blank after each; the bytes, row by row ---- */

/* A word of the header, with the blank after it, which is at most 9 characters. */
static bool tgi_read_pgm_word(tgi_file *f, char word[10])
{
    for (int n = 0; n < 10; ++n) {
        if (!tgi_read(f, &word[n], 1)) return false;
        if (word[n] != ' ' && word[n] != '\\n') continue;
        word[n] = 0;
        return true;
    }
    return tgi_file_fail(f, TG_ERR_FORMAT, "this is no PGM file");
}

static tg_tensor *tgi_read_pgm(tgi_file *f)
{
    char word[4][10];
    int64_t dims[2];
    for (int k = 0; k < 4; ++k) {
        if (!tgi_read_pgm_word(f, word[k])) return NULL;
    }
    dims[0] = atoi(word[2]), dims[1] = atoi(word[1]);
    if (strcmp(word[0], "P5") != 0 || dims[0] <= 0 || dims[1] <= 0 || strcmp(word[3], "255") != 0)
        return tgi_no_tensor(tgi_file_fail(f, TG_ERR_FORMAT, "this is no PGM file"));
    tg_tensor *t = tgi_read_tensor(f, 2, dims, TG_U8, false);
    return t && tgi_read_all(f) ? t : tgi_or_release(f->S, t, false);
}

static bool tgi_write_pgm(tgi_file *f, tg_tensor *t)
{
    char header[60];
    snprintf(header, sizeof header, "P5\\n%lld %lld\\n255\\n", (long long)t->dim[1], (long long)t->dim[0]);
    return tgi_write_text(f, header) && tgi_write_elements(f, t, t->dtype);
}

tg_tensor *tg_pgm_load(const char *path) { return tgi_load_tensor("pgm_load", path, tgi_read_pgm); }

tg_status tg_pgm_save(const char *path, tg_tensor *t)
{
    tgi_thread *S = tgi_self();
    tgi_file f;
    bool ok = tgi_argument(S, "pgm_save", "t", t);
    if (ok && (t->ndim != 2 || t->dtype != TG_U8))
        ok = tgi_fail(S, TG_ERR_ARGUMENT, "pgm_save", "a picture is u8 [height, width]");
    ok = ok && tgi_file_create(&f, "pgm_save", path) && tgi_file_complete(&f, tgi_write_pgm(&f, t));
    return ok ? TG_OK : tgi_failed(S);
}

"""),
    (TEST, "TEST(idx)\n{", """\
TEST(pgm)
{
    const char *path = beside("x.pgm");
    tg_tensor *t = tg_to_dtype(tg_reshape(tg_arange(10, 16, 1), TG_SHAPE(2, 3)), TG_U8);
    CHECK(tg_pgm_save(path, t) == TG_OK && file_is(path, BYTES("P5\\n3 2\\n255\\n\\12\\13\\14\\15\\16\\17")));
    CHECK(tg_equal(tg_pgm_load(path), t));
    CHECK(tg_pgm_save(path, tg_transpose(t, 0, 1)) == TG_OK && tg_equal(tg_pgm_load(path), tg_transpose(t, 0, 1)));
    CHECK_FAILS(tg_pgm_save(path, tg_ones(TG_SHAPE(2, 2))), "a picture is u8 [height, width]");
    write_file(path, BYTES("P5 1 2 255 \\1\\377"));
    HAS(tg_pgm_load(path), "[[1], [255]]");
    write_file(path, BYTES("P5 1 2 255 \\1"));
    CHECK_FAILS(tg_pgm_load(path), "the file ends too early");
    write_file(path, BYTES("P5 1 2 255 \\1\\2\\3"));
    CHECK_FAILS(tg_pgm_load(path), "1 bytes follow what should be the end");
    write_file(path, BYTES("P6 1 2 255 \\1\\2"));
    CHECK_FAILS(tg_pgm_load(path), "this is no PGM file");
    remove(path);
}

"""),
    (TEST, "    RUN(idx);", "    RUN(pgm);\n"),
]


def main():
    folder = copy(sys.argv[1])
    if not add(folder, "a format", PGM, 4):
        return summary()
    test(folder, build(folder, "test_files"), 10, "pgm")
    return summary()


if __name__ == "__main__":
    sys.exit(main())
