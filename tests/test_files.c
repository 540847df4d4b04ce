/* Files of tensors: what is written can be read, byte by byte as the formats want it, and no file that is damaged or
 * made to do harm is taken.  tools/check_files.py compares with NumPy and safetensors. */
#if !defined(__cplusplus) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#define _XOPEN_SOURCE 700 /* SIGXFSZ */
#endif
#include "tensorgrad.h"
#include "helpers.h"
#include <dirent.h>
#include <locale.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static const tg_dtype all_dtypes[] = {TG_F32, TG_F64, TG_BF16, TG_F16, TG_I32, TG_I64, TG_U8, TG_I8, TG_I16, TG_BOOL};
enum { DTYPES = 10 };

/* ---- files as bytes ---- */

static void write_file(const char *path, const void *data, size_t size)
{
    FILE *file = fopen(path, "wb");
    CHECK(file && fwrite(data, 1, size, file) == size);
    if (file) fclose(file);
}

static void write_text(const char *path, const char *text) { write_file(path, text, strlen(text)); }

/* Whether the file has these bytes. */
static bool file_is(const char *path, const void *data, size_t size)
{
    static char found[4096];
    FILE *file = fopen(path, "rb");
    const size_t n = file ? fread(found, 1, sizeof found, file) : 0;
    if (file) fclose(file);
    return file && n == size && memcmp(found, data, size) == 0;
}

static bool exists(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file) fclose(file);
    return file != NULL;
}

/* The warnings and errors that the handler was told last. */
static char told[2000];
static void tell(tg_status code, const char *text, void *user)
{
    (void)code, (void)user;
    snprintf(told, sizeof told, "%s", text);
}

/* The bytes of a literal, without the zero byte at its end. */
#define BYTES(literal) (literal), sizeof(literal) - 1

/* {"a": [[1, 2], [3, 4]] f4, "b.c": 7 i8, "e": [] of [0, 3] f2}, {"k": "v"}, as the Python package saves it */
static const char saved_by_safetensors[] =
    "\310\000\000\000\000\000\000\000{\"__metadata__\":{\"k\":\"v\"},\"b.c\":{\"dtype\":\"I64\",\"shape\":[],\"data_of"
    "fsets\":[0,8]},\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[8,24]},\"e\":{\"dtype\":\"F16\",\"shape"
    "\":[0,3],\"data_offsets\":[24,24]}}       \007\000\000\000\000\000\000\000\000\000\200\?\000\000\000@\000\000@@"
    "\000\000\200@";

/* [[1, 2, 3], [4, 5, 6]] f4, as numpy.save writes it */
static const char saved_by_numpy[] =
    "\223NUMPY\001\000v\000{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }                                "
    "                          \012\000\000\200\?\000\000\000@\000\000@@\000\000\200@\000\000\240@\000\000\300@";

/* x = [1, 2] f4, yz = [True], as numpy.savez writes them */
static const char stored[] =
    "PK\003\004-\000\000\000\000\000\000\000!\000\232\312\253\347\377\377\377\377\377\377\377\377\005\000\024\000x.npy"
    "\001\000\020\000\210\000\000\000\000\000\000\000\210\000\000\000\000\000\000\000\223NUMPY\001\000v\000{'descr': '"
    "<f4', 'fortran_order': False, 'shape': (2,), }                                                            \012"
    "\000\000\200\?\000\000\000@PK\003\004-\000\000\000\000\000\000\000!\000\2724.s\377\377\377\377\377\377\377\377"
    "\006\000\024\000yz.npy\001\000\020\000\201\000\000\000\000\000\000\000\201\000\000\000\000\000\000\000\223NUMPY"
    "\001\000v\000{'descr': '|b1', 'fortran_order': False, 'shape': (1,), }                                           "
    "                 \012\001PK\001\002-\003-\000\000\000\000\000\000\000!\000\232\312\253\347\210\000\000\000\210"
    "\000\000\000\005\000\000\000\000\000\000\000\000\000\000\000\200\001\000\000\000\000x.npyPK\001\002-\003-\000\000"
    "\000\000\000\000\000!\000\2724.s\201\000\000\000\201\000\000\000\006\000\000\000\000\000\000\000\000\000\000\000"
    "\200\001\277\000\000\000yz.npyPK\005\006\000\000\000\000\002\000\002\000g\000\000\000x\001\000\000\000\000";

/* f, d and s, of one deflated block each: fixed codes, codes of its own, stored; without ZIP64 */
static const char deflated[] =
    "PK\003\004\024\000\000\000\010\000\000\000!\000\373\?+NR\000\000\000\254\001\000\000\005\000\000\000f.npy\233\354"
    "\027\352\033\020\311\310P\306P\255\236\222Z\234\\\244n\245\240^Sj\250\256\243\240\236\226_TR\224\230\027\237_\224"
    "\222\012\022wK\314)N\005\212\027g$\026\244\002\371\032\306\006\006:\232:\012\265\012d\003.\006F&f\026V\266\021K"
    "\221\242\032\000PK\003\004\024\000\000\000\010\000\000\000!\000@g\271\261\376\000\000\000t\002\000\000\005\000"
    "\000\000d.npy\235Q;N\304P\014\364\270\344\024\351\002R\212\245\240\341\000t \032\012*\024\261A\024\210E\311B\003"
    "\234\202\013\343\231y\217\003\260)\354g{>\366\376\334\334]\337\336#>\342s\334/\333\343:^\016\343\327\373\3718\015"
    "\343\323a=\256\363\353\303a\335/\254_\315/\333R\365\355y~[\352}z\261\333Mg\323\360=\374\373w\022\011DF\205D\0042"
    "\371`\254W\245U\315d\317\037\252\020PW}\245U%\010PF\020C\261\302\014\242,\\\021\021\213\206g\340\224\346\210M\325"
    "\\u&6\353\310\240]Abz%\315iZ\202MY\226\320\025\211\254\214\0032\022}\237\354.\323\373\372\022\366%J\005\253\007"
    "\271\004\004\254)+\322\242H\366\025RW\240\244\221\326\346\224\310}h\300Fd\305\336\330n\274\251Ao\242\3659\213v"
    "\274l\212\021\255\227>+d\345\357\354v\357\241\376\257\265E\220\277PK\003\004\024\000\000\000\010\000\000\000!\000"
    "\232\312\253\347\215\000\000\000\210\000\000\000\005\000\000\000s.npy\001\210\000w\377\223NUMPY\001\000v\000{'des"
    "cr': '<f4', 'fortran_order': False, 'shape': (2,), }                                                            "
    "\012\000\000\200\?\000\000\000@PK\001\002\024\000\024\000\000\000\010\000\000\000!\000\373\?+NR\000\000\000\254"
    "\001\000\000\005\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000\000f.npyPK\001\002\024\000\024"
    "\000\000\000\010\000\000\000!\000@g\271\261\376\000\000\000t\002\000\000\005\000\000\000\000\000\000\000\000\000"
    "\000\000\000\000u\000\000\000d.npyPK\001\002\024\000\024\000\000\000\010\000\000\000!\000\232\312\253\347\215\000"
    "\000\000\210\000\000\000\005\000\000\000\000\000\000\000\000\000\000\000\000\000\226\001\000\000s.npyPK\005\006"
    "\000\000\000\000\003\000\003\000\231\000\000\000F\002\000\000\000\000";

/* ---- what is written can be read ---- */

/* The same dtype, shape and elements, wherever the tensors are. */
static bool same(tg_tensor *a, tg_tensor *b)
{
    return a && b && tg_dtype_of(a) == tg_dtype_of(b) && same_shape(tg_shape_of(a), tg_shape_of(b)) &&
           tg_equal(tg_cpu(a), tg_cpu(b));
}

/* [2, 3], [3, 2] not contiguous, [], [0, 4] of each dtype, half of them in an inner dictionary. */
static tg_dict *many(void)
{
    tg_dict *d = tg_dict_new(), *inner = tg_dict_new();
    for (int k = 0; k < DTYPES; ++k) {
        const tg_dtype dtype = all_dtypes[k];
        tg_tensor *t = of(dtype, dtype == TG_BOOL ? "[[1, 0, 1], [0, 0, 1]]" : "[[1, 2, 3], [4, 5, 6]]");
        char name[40];
        snprintf(name, sizeof name, "%s.weight", tg_dtype_name(dtype));
        CHECK(tg_dict_set(d, name, t) == TG_OK);
        snprintf(name, sizeof name, "%s.t", tg_dtype_name(dtype));
        CHECK(tg_dict_set(d, name, tg_t(t)) == TG_OK);
        CHECK(tg_dict_set(inner, tg_dtype_name(dtype), tg_select(tg_select(t, 0, 0), 0, 2)) == TG_OK);
        snprintf(name, sizeof name, "empty %s", tg_dtype_name(dtype));
        CHECK(tg_dict_set(inner, name, tg_empty_on(TG_SHAPE(0, 4), dtype, HERE)) == TG_OK);
    }
    CHECK(tg_dict_set_dict(d, "inner", inner) == TG_OK);
    return d;
}

/* Every tensor of `many` is in d, under its path. */
static void check_many(tg_dict *d, tg_dict *wanted)
{
    tg_dict *inner = tg_dict_get_dict(wanted, "inner");
    CHECK(d && tg_dict_count(d) == 4 * DTYPES);
    for (int i = 0; d && i < tg_dict_count(wanted) - 1; ++i) {
        const char *name = tg_dict_name(wanted, i);
        CHECK(same(tg_dict_get(d, name), tg_dict_get(wanted, name)));
    }
    for (int i = 0; d && i < tg_dict_count(inner); ++i) {
        char path[80];
        snprintf(path, sizeof path, "inner.%s", tg_dict_name(inner, i));
        CHECK(same(tg_dict_get(d, path), tg_dict_get(wanted, path)));
    }
}

TEST(safetensors_round_trip)
{
    tg_dict *d = many(), *back;
    const char *path = beside("many.safetensors");
    CHECK(tg_dict_set_metadata(d, "format", "pt") == TG_OK);
    CHECK(tg_dict_set_metadata(d, "\n\"\\", "\x01\xc3\xa9") == TG_OK);
    CHECK(tg_safetensors_save(path, d) == TG_OK);
    back = tg_safetensors_load(path);
    check_many(back, d);
    CHECK(strcmp(tg_dict_metadata(back, "\n\"\\"), "\x01\xc3\xa9") == 0);
    CHECK(strcmp(tg_dict_metadata(back, "format"), "pt") == 0 && tg_dict_metadata_key(back, 2) == NULL);
    tg_dict_free(d);
    tg_dict_free(back);
    remove(path);
}

TEST(safetensors_in_the_same_bytes)
{
    const char *path = beside("bytes.safetensors");
    tg_dict *d = tg_dict_new();
    CHECK(tg_dict_set(d, "e", of(TG_F16, "[]")) == TG_OK && tg_dict_set(d, "a", f32("[[1, 2], [3, 4]]")) == TG_OK);
    CHECK(tg_dict_set(d, "e", tg_empty_on(TG_SHAPE(0, 3), TG_F16, HERE)) == TG_OK);
    CHECK(tg_dict_set(d, "b.c", i64("7")) == TG_OK && tg_dict_set_metadata(d, "k", "v") == TG_OK);
    CHECK(tg_safetensors_save(path, d) == TG_OK && file_is(path, BYTES(saved_by_safetensors)));
    tg_dict_free(d);
    d = tg_dict_new();
    CHECK(tg_safetensors_save(path, d) == TG_OK && file_is(path, BYTES("\10\0\0\0\0\0\0\0{}      ")));
    tg_dict_free(d);
    d = tg_safetensors_load(path);
    CHECK(d && tg_dict_count(d) == 0);
    tg_dict_free(d);
    remove(path);
}

TEST(npy_round_trip)
{
    tg_dict *d = many();
    const char *path = beside("x.npy");
    for (int i = 0; i < tg_dict_count(d) - 1; ++i) {
        tg_tensor *t = tg_dict_get(d, tg_dict_name(d, i)), *back;
        if (tg_dtype_of(t) == TG_BF16) {
            CHECK_FAILS(tg_npy_save(path, t), "a .npy file cannot hold bf16");
            CHECK_FAILS(tg_npy_load(path), "the file cannot be opened"); /* nothing was left there */
            continue;
        }
        CHECK(tg_npy_save(path, t) == TG_OK);
        back = tg_npy_load(path);
        CHECK(same(back, t) && tg_is_contiguous(back) && tg_device_equal(tg_device_of(back), TG_CPU));
        remove(path);
    }
    CHECK(tg_npy_save(path, f32("[[1, 2, 3], [4, 5, 6]]")) == TG_OK && file_is(path, BYTES(saved_by_numpy)));
    remove(path);
    tg_dict_free(d);
}

/* Headers in other forms, which NumPy or others write. */
TEST(npy_headers)
{
    static const struct { const char *start, *header, *data, *wanted; size_t size; tg_dtype dtype; } files[] = {
        {"\1", "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", "\0\0\200\77\0\0\0\100", "[1, 2]", 8, TG_F32},
        {"\2", "{\"shape\":(2, 1), \"descr\":\"<i4\", \"fortran_order\":False,}\n", "\1\0\0\0\2\0\0\0", "[[1], [2]]", 8,
         TG_I32},
        {"\3", "{'descr': '>i8', 'fortran_order': True, 'shape': (), }", "\0\0\0\0\0\0\1\2", "258", 8, TG_I64},
        {"\1", "{'descr': '<u1', 'fortran_order': True, 'shape': (2, 3), }", "\1\2\3\4\5\6", "[[1, 3, 5], [2, 4, 6]]",
         6, TG_U8},
        {"\1", "{'descr': '>f2', 'fortran_order': False, 'shape': (1,), }", "\74\0", "[1]", 2, TG_F16},
        {"\1", "{'descr': '|b1', 'fortran_order': False, 'shape': (1, 1), }", "\1", "[[1]]", 1, TG_BOOL},
        /* what Rust's candle, Fortran's stdlib, Python 2 and old versions of NumPy write */
        {"\1", "{'descr': '|u1', 'fortran_order': False, 'shape': (2,1,), }", "\1\2", "[[1], [2]]", 2, TG_U8},
        {"\1", "{'descr':'u1','fortran_order':False,'shape':( 2 , 1 , )}", "\1\2", "[[1], [2]]", 2, TG_U8},
        {"\1", "{'descr': u'>f4', u'fortran_order': False, 'shape': (1L, 1L)}", "\77\200\0\0", "[[1]]", 4, TG_F32},
        {"\1", "{'descr': '?', 'fortran_order': False, 'shape': (2L,)}", "\1\0", "[1, 0]", 2, TG_BOOL},
        {"\1", "{'descr': 'uint8', 'fortran_order': False, 'shape': ()}", "\7", "7", 1, TG_U8},
        {"\1", "{'descr': '<V2', 'fortran_order': False, 'shape': (1,)}", "\200\77", "[1]", 2, TG_BF16},
        /* two arrays, of which numpy.load reads the first */
        {"\1", "{'descr': '|u1', 'fortran_order': False, 'shape': (1,)}", "\7\x93NUMPY\1", "[7]", 8, TG_U8},
        /* integers that are widened, in both orders of bytes */
        {"\1", "{'descr': '|i1', 'fortran_order': False, 'shape': (4,)}", "\0\177\200\377", "[0, 127, -128, -1]", 4,
         TG_I8},
        {"\1", "{'descr': '<i2', 'fortran_order': True, 'shape': (1, 2)}", "\0\200\377\177", "[[-32768, 32767]]", 4,
         TG_I16},
        {"\1", "{'descr': '>i2', 'fortran_order': False, 'shape': (2,)}", "\377\376\1\0", "[-2, 256]", 4, TG_I16},
        {"\1", "{'descr': '<u2', 'fortran_order': False, 'shape': (2,)}", "\377\377\1\0", "[65535, 1]", 4, TG_I32},
        {"\1", "{'descr': '>u4', 'fortran_order': False, 'shape': (1,)}", "\377\377\377\376", "[4294967294]", 4, TG_I64},
        {"\1", "{'descr': '<u8', 'fortran_order': False, 'shape': (1,)}", "\1\0\0\0\1\0\0\0", "[4294967297]", 8,
         TG_I64},
    };
    const char *path = beside("header.npy");
    for (size_t i = 0; i < sizeof files / sizeof files[0]; ++i) {
        char bytes[400];
        const size_t n = strlen(files[i].header), width = files[i].start[0] == 1 ? 2 : 4;
        memcpy(bytes, "\x93NUMPY", 6);
        bytes[6] = files[i].start[0], bytes[7] = 0;
        memset(bytes + 8, 0, width);
        bytes[8] = (char)n;
        memcpy(bytes + 8 + width, files[i].header, n);
        memcpy(bytes + 8 + width + n, files[i].data, files[i].size);
        write_file(path, bytes, 8 + width + n + files[i].size);
        tg_tensor *t = tg_npy_load(path);
        HAS(t, files[i].wanted);
        CHECK(t && tg_dtype_of(t) == files[i].dtype);
    }
    remove(path);
}

TEST(npz_round_trip)
{
    tg_dict *d = many(), *back, *inner = tg_dict_get_dict(d, "inner");
    const char *path = beside("many.npz");
    CHECK_FAILS(tg_npz_save(path, d), "a .npy file cannot hold bf16");
    for (int i = 0; i < 2; ++i) {
        tg_dict *part = i ? inner : d;
        for (int k = tg_dict_count(part) - 1; k >= 0; --k) {
            const char *name = tg_dict_name(part, k);
            if (strstr(name, "bf16")) CHECK(tg_dict_set(part, name, f32("[[1, 2, 3], [4, 5, 6]]")) == TG_OK);
        }
    }
    CHECK(tg_npz_save(path, d) == TG_OK);
    back = tg_npz_load(path);
    check_many(back, d);
    tg_dict_free(d);
    tg_dict_free(back);
    d = tg_dict_new();
    CHECK(tg_dict_set(d, "d\xc3\xa9j\xc3\xa0", f32("[1]")) == TG_OK && tg_npz_save(path, d) == TG_OK);
    back = tg_npz_load(path);
    HAS(tg_dict_get(back, "d\xc3\xa9j\xc3\xa0"), "[1]");
    tg_dict_free(back);
    tg_dict_remove(d, "d\xc3\xa9j\xc3\xa0");
    CHECK(tg_npz_save(path, d) == TG_OK);
    back = tg_npz_load(path);
    CHECK(back && tg_dict_count(back) == 0);
    tg_dict_free(d);
    tg_dict_free(back);
    remove(path);
}

TEST(npz_of_others)
{
    const char *path = beside("others.npz");
    tg_dict *d;
    char value[600], *to = value;
    write_file(path, BYTES(stored));
    d = tg_npz_load(path);
    HAS(tg_dict_get(d, "x"), "[1, 2]");
    HAS(tg_dict_get(d, "yz"), "[1]");
    CHECK(tg_dict_count(d) == 2 && strcmp(tg_dict_name(d, 0), "x") == 0);
    tg_dict_free(d);
    write_file(path, BYTES(deflated));
    d = tg_npz_load(path);
    HAS(tg_dict_get(d, "s"), "[1, 2]");
    CHECK(d && tg_copy_out(tg_dict_get(d, "f"), value, 300) == TG_OK);
    for (int i = 0; d && i < 300; ++i) harness_check(to[i] == (i & 255) % 7, "fixed codes", __FILE__, __LINE__);
    CHECK(d && tg_copy_out(tg_dict_get(d, "d"), value, 500) == TG_OK);
    for (uint32_t i = 0; d && i < 500; ++i)
        harness_check((uint32_t)to[i] == (i * i * i * 2654435761u >> 24) % 3, "codes of its own", __FILE__, __LINE__);
    tg_dict_free(d);
    remove(path);
}

/* Deflated but for the first: a folder; sub/a.npy, f4 [1, 2]; names.npy, <U2; readme.txt; an empty file; i.npy, i2
   [1, -1]; bz.npy, packed by bzip2; b, u1 [7], without .npy behind its name.  numpy.load reads sub/a, i and b as arrays. */
static const char members[] =
    "PK\003\004\024\000\000\000\000\000\000\000!\000\000\000\000\000\000\000\000\000\000\000\000\000\004\000\000\000s"
    "ub/PK\003\004\024\000\000\000\000\000\000\000!\000Es\362\233L\000\000\000L\000\000\000\011\000\000\000sub/a.npy"
    "\223NUMPY\001\000:\000{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\012\000\000\200\?\000\000\000@PK"
    "\003\004\024\000\000\000\010\000\000\000!\0003\014_\275H\000\000\000L\000\000\000\011\000\000\000names.npy\233"
    "\354\027\352\033\020\311\310`\305P\255\236\222Z\234\\\244n\245\240n\023j\244\256\243\240\236\226_TR\224\230\027"
    "\237_\224\222\012\022wK\314)N\005\212\027g$\026\244\002\371\032\206:\232:\012\265\\\211\014\014\014I@\014\000PK"
    "\003\004\024\000\000\000\010\000\000\000!\000\325\200d\230\013\000\000\0006\000\000\000\012\000\000\000readme.tx"
    "t\313H\315\311\311W\310 \221\004\000PK\003\004\024\000\000\000\000\000\000\000!\000\000\000\000\000\000\000\000"
    "\000\000\000\000\000\005\000\000\000emptyPK\003\004\024\000\000\000\010\000\000\000!\000\310\226\343\335F\000"
    "\000\000H\000\000\000\005\000\000\000i.npy\233\354\027\352\033\020\311\310`\305P\255\236\222Z\234\\\244n\245\240"
    "n\223i\244\256\243\240\236\226_TR\224\230\027\237_\224\222\012\022wK\314)N\005\212\027g$\026\244\002\371\032F:"
    "\232:\012\265\\\214\014\377\377\003\000PK\003\004.\000\000\000\014\000\000\000!\000\207Ro\362o\000\000\000E\000"
    "\000\000\006\000\000\000bz.npyBZh91AY&SY\216$\261\001\000\000\"_\240`\020@\344 \020\001\003B \257E\336\016\010"
    "\000 \000Ta\223M4\304\304\310\365\0310\320D\320@\3654\365\006\232\007\244z\200\332o\366\340{\004\222b\244\001"
    "\013\341\205jgS,\227\332KZO$V\222\272\200\346\240%\011@\021\310\202\205\\\012\027\300\273\222)\302\204\204q%\210"
    "\010PK\003\004\024\000\000\000\000\000\000\000!\000\262\367\014\033E\000\000\000E\000\000\000\001\000\000\000b"
    "\223NUMPY\001\000:\000{'descr': '|u1', 'fortran_order': False, 'shape': (1,), }\012\007PK\001\002\024\003\024"
    "\000\000\000\000\000\000\000!\000\000\000\000\000\000\000\000\000\000\000\000\000\004\000\000\000\000\000\000"
    "\000\000\000\000\000\200\001\000\000\000\000sub/PK\001\002\024\003\024\000\000\000\000\000\000\000!\000Es\362"
    "\233L\000\000\000L\000\000\000\011\000\000\000\000\000\000\000\000\000\000\000\200\001\"\000\000\000sub/a.npyPK"
    "\001\002\024\003\024\000\000\000\010\000\000\000!\0003\014_\275H\000\000\000L\000\000\000\011\000\000\000\000"
    "\000\000\000\000\000\000\000\200\001\225\000\000\000names.npyPK\001\002\024\003\024\000\000\000\010\000\000\000!"
    "\000\325\200d\230\013\000\000\0006\000\000\000\012\000\000\000\000\000\000\000\000\000\000\000\200\001\004\001"
    "\000\000readme.txtPK\001\002\024\003\024\000\000\000\000\000\000\000!\000\000\000\000\000\000\000\000\000\000"
    "\000\000\000\005\000\000\000\000\000\000\000\000\000\000\000\200\0017\001\000\000emptyPK\001\002\024\003\024\000"
    "\000\000\010\000\000\000!\000\310\226\343\335F\000\000\000H\000\000\000\005\000\000\000\000\000\000\000\000\000"
    "\000\000\200\001Z\001\000\000i.npyPK\001\002.\003.\000\000\000\014\000\000\000!\000\207Ro\362o\000\000\000E\000"
    "\000\000\006\000\000\000\000\000\000\000\000\000\000\000\200\001\303\001\000\000bz.npyPK\001\002\024\003\024\000"
    "\000\000\000\000\000\000!\000\262\367\014\033E\000\000\000E\000\000\000\001\000\000\000\000\000\000\000\000\000"
    "\000\000\200\001V\002\000\000bPK\005\006\000\000\000\000\010\000\010\000\241\001\000\000\272\002\000\000\000\000";

/* A member that cannot be read does not hide the others. */
TEST(npz_leaves_out)
{
    const char *path = beside("members.npz");
    write_file(path, BYTES(members));
    tg_set_error_handler(tell, NULL);
    tg_dict *d = tg_npz_load(path);
    tg_set_error_handler(NULL, NULL);
    HAS(tg_dict_get(d, "sub/a"), "[1, 2]");
    HAS(tg_dict_get(d, "i"), "[1, -1]");
    HAS(tg_dict_get(d, "b"), "[7]");
    CHECK(tg_ok() && d && tg_dict_count(d) == 3 && strstr(told, "members.npz': left out, since they cannot be read: 'nam"));
    CHECK(strstr(told, "'names' (dtype <U2 (text) is none of") && strstr(told, "'readme.txt' (this is no .npy file)"));
    CHECK(strstr(told, "'empty' (this is no .npy") && strstr(told, "'bz' (compression method 12 is not supported)"));
    tg_dict_free(d);
    d = tg_npz_list(path);
    CHECK(d && !tg_dict_count(d) && strcmp(tg_dict_metadata(d, "sub/a"), "f32 [2]") == 0);
    CHECK(d && strstr(tg_dict_metadata(d, "names"), "cannot be read: dtype <U2 (text)") && !tg_dict_metadata(d, "sub/"));
    tg_dict_free(d);
    remove(path);
}

/* What is saved may require grad, be a view, or be on a device; the file is read without any of that. */
TEST(saving_leaves_no_trace)
{
    const char *path = beside("leaf.npy");
    tg_tensor *x = leaf("[[1, 2], [3, 4]]"), *back;
    CHECK(tg_npy_save(path, tg_select(x, 1, 1)) == TG_OK && tg_npy_save(path, tg_exp(x)) == TG_OK);
    CHECK(tg_npy_save(path, x) == TG_OK);
    back = tg_npy_load(path);
    CHECK(!tg_requires_grad(back) && tg_is_leaf(back) && tg_requires_grad(x));
    HAS(back, "[[1, 2], [3, 4]]");
    remove(path);
}

/* ---- a file is the old one or the new one ---- */

TEST(a_save_that_fails_leaves_the_old_file)
{
    const char *path = beside("old.npz"), *temporary = beside("old.npz.tmp");
    tg_dict *d = tg_dict_new();
    write_text(path, "old");
    CHECK(tg_dict_set(d, "x", f32("[1, 2]")) == TG_OK && tg_dict_set(d, "y", of(TG_BF16, "[1]")) == TG_OK);
    CHECK_FAILS(tg_npz_save(path, d), "bf16");
    CHECK(file_is(path, BYTES("old")) && !exists(temporary));
    CHECK_FAILS(tg_safetensors_save(beside("no/folder"), d), "the file cannot be written: No such file or directory");
    CHECK(tg_dict_set(d, "__metadata__", f32("[1]")) == TG_OK);
    CHECK_FAILS(tg_safetensors_save(path, d), "a tensor cannot have the name '__metadata__'");
    CHECK(tg_dict_remove(d, "__metadata__") == TG_OK && tg_dict_set(d, "\xff", f32("[1]")) == TG_OK);
    CHECK_FAILS(tg_safetensors_save(path, d), "is not UTF-8");
    CHECK(tg_dict_remove(d, "y") == TG_OK);
    CHECK_FAILS(tg_npz_save(path, d), "is not UTF-8");
    CHECK(file_is(path, BYTES("old")) && !exists(temporary));
    CHECK(tg_dict_remove(d, "\xff") == TG_OK && tg_npz_save(path, d) == TG_OK && !file_is(path, BYTES("old")));
    CHECK(!exists(temporary));
    tg_dict_free(d);
    remove(path);
}

/* With no file larger than 100 bytes, which is what a full disk is to the library: the old file is there, alone. */
static void full_disk_for(tg_status (*save)(const char *, tg_dict *), const char *path, const char *temporary, tg_tensor *t,
                          const char *name)
{
    tg_dict *d = tg_dict_new();
    struct rlimit none, all;
    CHECK(getrlimit(RLIMIT_FSIZE, &all) == 0);
    CHECK(tg_dict_set(d, name, t) == TG_OK);
    none = all;
    none.rlim_cur = 100;
    CHECK(setrlimit(RLIMIT_FSIZE, &none) == 0);
    const tg_status status = save(path, d);
    CHECK(setrlimit(RLIMIT_FSIZE, &all) == 0);
    CHECK(status == TG_ERR_IO && strstr(tg_error_message(), "the file cannot be written: File too large"));
    tg_clear_error();
    CHECK(file_is(path, BYTES("old")) && !exists(temporary));
    tg_dict_free(d);
}

static tg_status save_x(const char *path, tg_dict *d) { return tg_npy_save(path, tg_dict_get(d, "x")); }

TEST(a_full_disk)
{
    static char long_name[20000]; /* is not only buffered */
    memset(long_name, 'n', sizeof long_name - 1);
    const char *path = beside("full"), *other = beside("full name"), *temporary = beside("full.tmp");
    void (*before)(int) = signal(SIGXFSZ, SIG_IGN);
    tg_tensor *small = f32("[1]"), *large = tg_zeros_on(TG_SHAPE(1000, 100), TG_F32, HERE);
    write_text(path, "old");
    for (int i = 0; i < 2; ++i) { /* replaced, and copied to a file of two names */
        full_disk_for(save_x, path, temporary, small, "x");
        full_disk_for(save_x, path, temporary, large, "x");
        full_disk_for(tg_npz_save, path, temporary, small, "x");
        full_disk_for(tg_npz_save, path, temporary, small, long_name);
        full_disk_for(tg_safetensors_save, path, temporary, large, "x");
        full_disk_for(tg_safetensors_save, path, temporary, small, long_name);
        if (!i) CHECK(link(path, other) == 0);
    }
    signal(SIGXFSZ, before);
    remove(path);
    remove(other);
}

/* Links, modes and other files are as they were. */
TEST(saving_over_a_file)
{
    const char *path = beside("file.npy"), *soft = beside("link.npy"), *hard = beside("name.npy");
    const char *users = beside("file.npy.tmp"), *name = strrchr(path, '/');
    tg_tensor *x = f32("[[1, 2, 3], [4, 5, 6]]");
    struct stat info;
    remove(path);
    const mode_t mask = umask(027);
    CHECK(tg_npy_save(path, x) == TG_OK && stat(path, &info) == 0 && (info.st_mode & 07777) == 0640);
    umask(mask);
    write_text(users, "user's");
    CHECK(chmod(path, 0604) == 0 && symlink(name ? name + 1 : path, soft) == 0); /* relative to its folder */
    CHECK(tg_npy_save(soft, f32("[1]")) == TG_OK && lstat(soft, &info) == 0 && S_ISLNK(info.st_mode));
    CHECK(stat(path, &info) == 0 && (info.st_mode & 07777) == 0604 && file_is(users, BYTES("user's")));
    HAS(tg_npy_load(path), "[1]");
    CHECK(link(path, hard) == 0 && tg_npy_save(path, x) == TG_OK && file_is(hard, BYTES(saved_by_numpy)));
    CHECK(tg_npy_save(hard, f32("[1]")) == TG_OK && tg_npy_save(soft, f32("[2]")) == TG_OK); /* fewer bytes */
    HAS(tg_npy_load(hard), "[2]");
    remove(hard);
    remove(path);
    CHECK(tg_npy_save(soft, x) == TG_OK && file_is(path, BYTES(saved_by_numpy))); /* a link to what is not there */
    CHECK(file_is(users, BYTES("user's")));
    if (geteuid() != 0) {
        CHECK(chmod(path, 0444) == 0);
        CHECK_FAILS(tg_npy_save(path, f32("[3]")), "the file cannot be written: Permission denied");
        CHECK(file_is(path, BYTES(saved_by_numpy)));
    } else {
        puts("skipped: a file that is read-only, since root may write it");
    }
    remove(soft);
    remove(path);
    remove(users);
}

enum { BY_NPY, BY_NPZ, BY_SAFETENSORS, BY_MODULE, BY_CHECKPOINT, SAVES };

/* Saves by one of the functions that write files; back: loads in place of that. */
static tg_status save_by(int function, const char *path, bool back)
{
    tg_module *m = tg_nn_linear(3, 2, true);
    tg_dict *d = tg_dict_new(), *loaded = NULL;
    tg_status status = tg_dict_set(d, "x", tg_zeros(TG_SHAPE(3, 2)));
    switch (function) {
    case BY_NPY: status = back ? (tg_npy_load(path) ? TG_OK : tg_error_code()) : tg_npy_save(path, tg_dict_get(d, "x")); break;
    case BY_NPZ: status = back ? ((loaded = tg_npz_load(path)) ? TG_OK : tg_error_code()) : tg_npz_save(path, d); break;
    case BY_MODULE: status = back ? tg_module_load(m, path) : tg_module_save(m, path); break;
    case BY_CHECKPOINT: status = back ? tg_checkpoint_load(path, m, NULL, NULL) : tg_checkpoint_save(path, m, NULL, 7); break;
    default:
        if (!back) status = tg_safetensors_save(path, d);
        else if (!(loaded = tg_safetensors_load(path))) status = tg_error_code();
    }
    tg_dict_free(loaded);
    tg_dict_free(d);
    tg_module_free(m);
    return status;
}

/* How many files a folder has. */
static int files_in(const char *folder)
{
    DIR *d = opendir(folder);
    int n = 0;
    for (struct dirent *e; d && (e = readdir(d));) n += *e->d_name != '.' || strlen(e->d_name) > 2;
    if (d) closedir(d);
    return n;
}

static bool link_is(const char *path, const char *wanted)
{
    char text[100] = "";
    return readlink(path, text, sizeof text - 1) > 0 && strcmp(text, wanted) == 0;
}

/* Each function that writes files, through a link to a link into another folder: the links, the mode, the other name of
   the file and the user's files are as they were, and there is no other file, be the file written or not. */
TEST(every_save_keeps_what_is_there)
{
    char folder[600], in[620], file[640], users[640], hard[640], first[640], second[640];
    void (*before)(int) = signal(SIGXFSZ, SIG_IGN);
    struct rlimit none, all;
    struct stat info;
    snprintf(folder, sizeof folder, "%.500s", beside("saves"));
    snprintf(in, sizeof in, "%s/in", folder), snprintf(file, sizeof file, "%s/model", in);
    snprintf(users, sizeof users, "%s/model.tmp", in), snprintf(hard, sizeof hard, "%s/other name", in);
    snprintf(first, sizeof first, "%s/first", folder), snprintf(second, sizeof second, "%s/second", folder);
    CHECK(mkdir(folder, 0755) == 0 && mkdir(in, 0755) == 0);
    CHECK(getrlimit(RLIMIT_FSIZE, &all) == 0);
    CHECK(symlink("in/model", first) == 0 && symlink("first", second) == 0);
    none = all, none.rlim_cur = 20;
    for (int function = BY_NPY; function < SAVES; ++function) {
        write_text(users, "user's");
        for (int i = 0; i < 3; ++i) { /* a file, with a second name, and none */
            if (i < 2) {
                write_text(file, "old");
                CHECK(chmod(file, 0626) == 0 && (i == 0 || link(file, hard) == 0) && setrlimit(RLIMIT_FSIZE, &none) == 0);
                const tg_status full = save_by(function, second, false);
                CHECK(setrlimit(RLIMIT_FSIZE, &all) == 0 && full == TG_ERR_IO && strstr(tg_error_message(), "File too large"));
                tg_clear_error();
                CHECK(file_is(file, BYTES("old")) && files_in(in) == 2 + i);
            }
            CHECK(save_by(function, second, false) == TG_OK && save_by(function, file, true) == TG_OK);
            CHECK(stat(file, &info) == 0 && (i == 2 || (info.st_mode & 07777) == 0626));
            CHECK(i != 1 || (info.st_nlink == 2 && save_by(function, hard, true) == TG_OK));
            CHECK(link_is(first, "in/model") && link_is(second, "first") && file_is(users, BYTES("user's")));
            CHECK(files_in(in) == 2 + (i == 1) && files_in(folder) == 3);
            remove(hard), remove(file);
        }
        remove(users);
        CHECK(save_by(function, second, false) == TG_OK && files_in(in) == 1);
        remove(file);
        if (geteuid() != 0) {
            CHECK(chmod(in, 0555) == 0 && save_by(function, second, false) == TG_ERR_IO && files_in(in) == 0);
            CHECK(chmod(in, 0755) == 0);
            tg_clear_error();
        } else if (!function) {
            puts("skipped: a folder that is read-only, since root may write it");
        }
    }
    signal(SIGXFSZ, before);
    remove(first), remove(second);
    CHECK(rmdir(in) == 0 && rmdir(folder) == 0);
}

TEST(names_as_long_as_they_may_be)
{
    char name[1300], folder[1000], temporary[1100];
    snprintf(folder, sizeof folder, "%.900s", harness.program);
    *(strrchr(folder, '/') ? strrchr(folder, '/') + 1 : folder) = 0;
    memset(name, 0, sizeof name);
    memset(name, 'n', strlen(folder) + 255);
    memcpy(name, folder, strlen(folder));
    memcpy(name + strlen(folder) + 240, "\xc3\xa9", 2);
    CHECK(tg_npy_save(name, f32("[1]")) == TG_OK);
    HAS(tg_npy_load(name), "[1]");
    remove(name);
    snprintf(temporary, sizeof temporary, "%stensors.tmp", folder);
    CHECK(!exists(temporary));
}

TEST(what_is_no_file)
{
    CHECK_FAILS(tg_npy_load(beside("missing")), "missing': the file cannot be opened: No such file or directory");
    CHECK_FAILS(tg_npy_load("."), "'.': this is a folder, not a file");
    CHECK_FAILS(tg_npz_load("/dev/null"), "this is not a regular file");
    CHECK_FAILS(tg_npy_save("/dev/null", f32("[1]")), "this is not a regular file"); /* which would be replaced */
    CHECK_FAILS(tg_npy_load(""), "the file cannot be opened");
    CHECK_FAILS(tg_npy_load(NULL), "argument path is NULL");
    CHECK_FAILS(tg_npz_load(NULL), "argument path is NULL");
    CHECK_FAILS(tg_idx_load(NULL), "argument path is NULL");
    CHECK_FAILS(tg_csv_load(NULL), "argument path is NULL");
    CHECK_FAILS(tg_safetensors_load(NULL), "argument path is NULL");
    CHECK_FAILS(tg_npy_save(NULL, f32("[1]")), "argument path is NULL");
    CHECK_FAILS(tg_npy_save("x", NULL), "argument t is NULL");
    CHECK_FAILS(tg_npz_save("x", NULL), "argument dict is NULL");
    CHECK_FAILS(tg_safetensors_save("x", NULL), "argument dict is NULL");
    CHECK(!exists("x"));
}

/* ---- hostile files ---- */

typedef enum { SAFETENSORS, LIST, OPEN, MODULE, CHECKPOINT, NPY, NPZ, NPZ_LIST, IDX, CSV } format;

/* Loads the file; whether anything came back. */
static bool load(format f, const char *path)
{
    tg_dict *d;
    tg_module *m;
    bool ok;
    switch (f) {
    case MODULE:
    case CHECKPOINT:
        m = tg_nn_linear(2, 1, true);
        ok = (f == MODULE ? tg_module_load(m, path) : tg_checkpoint_load(path, m, NULL, NULL)) == TG_OK;
        tg_module_free(m);
        return ok;
    case LIST: d = tg_safetensors_list(path); break;
    case OPEN: d = tg_safetensors_open(path); break;
    case NPZ: d = tg_npz_load(path); break;
    case NPZ_LIST: d = tg_npz_list(path); break;
    case NPY: return tg_npy_load(path) != NULL;
    case IDX: return tg_idx_load(path) != NULL;
    case CSV: return tg_csv_load(path) != NULL;
    default: d = tg_safetensors_load(path);
    }
    tg_dict_free(d);
    return d != NULL;
}

/* load of the bytes in memory.  They end with their block, so that a sanitizer sees a read behind them, and begin `off`
   bytes behind a multiple of 16. */
static bool parse(format f, const void *whole, size_t size, size_t off)
{
    char *block = (char *)malloc(size + off + 1), *bytes = block + off;
    tg_mark mark = tg_scope_begin();
    tg_module *m;
    tg_dict *d = NULL;
    bool ok = false;
    memcpy(bytes, whole, size);
    if (size + off > 0) block = (char *)realloc(block, size + off), bytes = block + off;
    switch (f) {
    case MODULE:
    case CHECKPOINT:
        m = tg_nn_linear(2, 1, true);
        ok = (f == MODULE ? tg_module_load_from(m, bytes, size) : tg_checkpoint_load_from(bytes, size, m, NULL, NULL)) == TG_OK;
        tg_module_free(m);
        break;
    case LIST: d = tg_safetensors_list_from(bytes, size); break;
    case NPZ: d = tg_npz_parse(bytes, size); break;
    case NPZ_LIST: d = tg_npz_list_from(bytes, size); break;
    case CSV: ok = tg_csv_parse(bytes, size, NULL) != NULL; break;
    case NPY: ok = tg_npy_parse(bytes, size) != NULL; break;
    case IDX: ok = tg_idx_parse(bytes, size) != NULL; break;
    default: d = tg_safetensors_parse(bytes, size);
    }
    ok = ok || d;
    tg_dict_free(d);
    tg_scope_end(mark);
    free(block);
    return ok;
}

/* What the last error says behind the name of what was read. */
static const char *said_behind(const char *name)
{
    const char *at = strstr(tg_error_message(), name);
    return at ? at + strlen(name) : "";
}

/* Whether bytes in memory get what the file has got, which was loaded or is refused by the error that is pending: the
   text behind the name `file`. */
static bool parses_alike(format f, const void *bytes, size_t size, size_t off, const char *file, bool loaded)
{
    char text[2000];
    const tg_status code = tg_error_code();
    snprintf(text, sizeof text, "%s", loaded ? "" : said_behind(file));
    tg_clear_error();
    return parse(f, bytes, size, off) == loaded && tg_error_code() == code &&
           (loaded || strcmp(said_behind("bytes in memory'"), text) == 0);
}

/* One check: the bytes are refused with this text, the name of the file, and nothing left alive; and in memory, too. */
static void refused(format f, const void *bytes, size_t size, const char *wanted)
{
    const char *path = beside("hostile");
    const tg_stats_info before = tg_stats();
    char why[700];
    write_file(path, bytes, size);
    tg_clear_error();
    const bool loaded = load(f, path);
    const tg_status code = tg_error_code();
    const bool holds = !loaded && (code == TG_ERR_FORMAT || code == TG_ERR_UNSUPPORTED) &&
                       strstr(tg_error_message(), wanted) && strstr(tg_error_message(), "hostile'");
    snprintf(why, sizeof why, "wanted \"%s\", not %s: %s", wanted, loaded ? "success" : "this", tg_error_message());
    const bool alike = parses_alike(f, bytes, size, 0, "hostile'", loaded);
    tg_clear_error();
    harness_check(holds && !alive_changed(&before), why, __FILE__, __LINE__);
    harness_check(alike && !alive_changed(&before), "bytes in memory are refused as the file is", __FILE__, __LINE__);
    remove(path);
}

#define ONE "{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}"
#define PART(dtype, shape, begin, end) \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"
#define AT(shape, begin, end) PART("U8", shape, begin, end)
#define DEEP "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[["
#define LARGE "9223372036854775807"

/* Headers with so many bytes of data behind them. */
static const struct { const char *header; size_t data; const char *error; } headers[] = {
    {"", 0, "'{' should stand at its byte 0"},
    {"[]", 0, "'{' should stand at its byte 0"},
    {"{", 0, "'\"' should stand at its byte 1"},
    {"{\"x\":" ONE, 1, "',' should stand"},
    {"{\"x\":" ONE "}}", 1, "nothing but spaces should stand"},
    {"{\"x\":" ONE ",}", 1, "'\"' should stand"},
    {"{,\"x\":" ONE "}", 1, "'\"' should stand"},
    {"{\"x\":" ONE "\"y\":" ONE "}", 1, "',' should stand"},
    {"{\"x\" " ONE "}", 1, "':' should stand"},
    {"{x:" ONE "}", 1, "'\"' should stand"},
    {"{\"x\":[\"U8\",[1],[0,1]]}", 1, "'{' should stand"},
    {"{\"x\":null}", 0, "'{' should stand"},
    {"{\"x\":{}}", 0, "tensor 'x' lacks the field 'dtype'"},
    {"{\"x\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "tensor 'x' lacks the field 'data_offsets'"},
    {"{\"x\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "the field 'dtype' twice"},
    {"{\"x\":{\"dtype\":\"U8\",\"shape\":[1],\"offsets\":[0,1]}}", 1, "tensor 'x' lacks the field 'data_offsets'"},
    {"{\"x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"more\":x}}", 1, "a value of JSON should stand"},
    {"{\"x\":{\"more\":{\"a\" 1},\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "':' should stand"},
    {"{\"x\":{\"more\":" DEEP DEEP DEEP DEEP, 0, "no deeper value of JSON should stand at its byte 139"},
    {"{\"x\":{\"more\":1.}}", 0, "a value of JSON should stand"},
    {"{\"x\":{\"more\":01}}", 0, "',' should stand"},
    {"{\"x\":{\"more\":-}}", 0, "a value of JSON should stand"},
    {"{\"x\":{\"more\":1e+}}", 0, "a value of JSON should stand"},
    {"{\"x\":{\"more\":+1}}", 0, "a value of JSON should stand"},
    {"{\"x\":{\"x\":{\"x\":{\"x\":{}}}}}", 0, "tensor 'x' lacks the field 'dtype'"},
    {"{\"x\":{\"dtype\":\"U9\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "dtype U9 is none of"},
    {"{\"x\":{\"dtype\":\"F8_E4M3\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "dtype F8_E4M3 is none of"},
    {"{\"x\":{\"dtype\":\"f32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "dtype f32 is none of"},
    {"{\"x\":{\"dtype\":8,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "'\"' should stand"},
    {"{\"x\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "a bool is stored as 7, not as 0 or 1"},
    {"{\"x\":" AT("1", "0", "1") "}", 1, "'[' should stand"},
    {"{\"x\":" AT("[-1]", "0", "1") "}", 1, "a whole number should stand"},
    {"{\"x\":" AT("[1.0]", "0", "1") "}", 1, "a whole number should stand"},
    {"{\"x\":" AT("[1e0]", "0", "1") "}", 1, "a whole number should stand"},
    {"{\"x\":" AT("[01]", "0", "1") "}", 1, "a whole number should stand"},
    {"{\"x\":" AT("[]", "00", "1") "}", 1, "a whole number should stand"},
    {"{\"x\":" AT("[1,]", "0", "1") "}", 1, "a whole number should stand"},
    {"{\"x\":" AT("[1 1]", "0", "1") "}", 1, "',' should stand"},
    {"{\"x\":" AT("[9223372036854775808]", "0", "1") "}", 1, "a number below 2^63 should stand"},
    {"{\"x\":" AT("[1]", "0", "18446744073709551617") "}", 1, "a number below 2^63 should stand"},
    {"{\"x\":" AT("[1,1,1,1,1,1,1,1,1]", "0", "1") "}", 1, "a tensor has 9 dims, more than 8"},
    {"{\"x\":" AT("[" LARGE "]", "0", LARGE) "}", 1, "is negative or too large"},
    {"{\"x\":" AT("[4294967296,4294967296]", "0", "0") "}", 0, "is negative or too large"},
    {"{\"x\":" AT("[0," LARGE "," LARGE "]", "0", "0") "}", 0, "is negative or too large"},
    {"{\"x\":" AT("[1000000000000]", "0", "1000000000000") "}", 1, "the tensors have 1000000000000 bytes, but 1"},
    {"{\"x\":" AT("[2]", "0", "1") "}", 1, "tensor 'x' lies at [0, 1), but U8 [2] has 2 bytes"},
    {"{\"x\":" AT("[1]", "1", "0") "}", 1, "tensor 'x' lies at [1, 0), but U8 [1] has 1 bytes"},
    {"{\"x\":" AT("[1]", "1", "2") "}", 2, "after a gap that begins at byte 0"},
    {"{\"x\":" ONE ",\"y\":" AT("[1]", "2", "3") "}", 3, "after a gap that begins at byte 1"},
    {"{\"x\":" ONE ",\"y\":" ONE "}", 1, "within the one before, which ends at byte 1"},
    {"{\"x\":" AT("[2]", "0", "2") ",\"y\":" AT("[2]", "1", "3") "}", 3, "within the one before, which ends at byte 2"},
    {"{\"x\":" ONE "}", 2, "the tensors have 1 bytes, but 2 follow the header"},
    {"{\"x\":" ONE "}", 0, "the tensors have 1 bytes, but 0 follow the header"},
    {"{}", 1, "the tensors have 0 bytes, but 1 follow the header"},
    {"{\"x\":" ONE ",\"x\":" ONE "}", 1, "two tensors have the name 'x'"},
    {"{\"x\":" ONE ",\"\\u0078\":" AT("[1]", "1", "2") "}", 2, "two tensors have the name 'x'"},
    {"{\"a\\u0000b\":" ONE "}", 1, "no tensor that can be read: 'a\\u0000b' (its name has a zero character"},
    {"{\"x\":" ONE ",\"y\":" PART("F8_E4M3", "[2]", "1", "2") "}", 2, "'y' lies at [1, 2), but F8_E4M3 [2] has 2 bytes"},
    {"{\"x\":" ONE ",\"y\":" PART("F6_E2M3", "[2]", "1", "3") "}", 3, "12 bits of F6_E2M3 are no whole bytes"},
    {"{\"x\":" ONE ",\"y\":" AT("[1,1,1,1,1,1,1,2,3]", "1", "3") "}", 3, "'y' lies at [1, 3), but U8 [1, 1, 1, 1, 1, 1, 1, 6]"},
    {"{\"x\":" ONE ",\"y\":" AT("[1,1,1,1,1,1,1," LARGE "," LARGE "]", "1", "2") "}", 2, "is negative or too large"},
    {"{\"\\ud800\":" ONE "}", 1, "the escape of a character should stand"},
    {"{\"\\udc00\\ud800\":" ONE "}", 1, "the escape of a character should stand"},
    {"{\"\\ud800\\u0041\":" ONE "}", 1, "the escape of a character should stand"},
    {"{\"\\u12g4\":" ONE "}", 1, "an escape of JSON should stand"},
    {"{\"\\x41\":" ONE "}", 1, "an escape of JSON should stand"},
    {"{\"\\u00", 0, "an escape of JSON should stand"},
    {"{\"\\", 0, "an escape of JSON should stand"},
    {"{\"a\tb\":" ONE "}", 1, "no control character should stand"},
    {"{\"\xff\":" ONE "}", 1, "a text is not UTF-8"},
    {"{\"\xc0\xaf\":" ONE "}", 1, "a text is not UTF-8"},
    {"{\"\xed\xa0\x80\":" ONE "}", 1, "a text is not UTF-8"},
    {"{\"\xf4\x90\x80\x80\":" ONE "}", 1, "a text is not UTF-8"},
    {"{\"\xe2\x82\":" ONE "}", 1, "a text is not UTF-8"},
    {"{\"__metadata__\":{\"a\":null}}", 0, "'\"' should stand"},
    {"{\"__metadata__\":nul}", 0, "'{' should stand"},
    {"{\"__metadata__\":{\"a\":1}}", 0, "'\"' should stand"},
    {"{\"__metadata__\":{\"a\":{\"b\":\"c\"}}}", 0, "'\"' should stand"},
    {"{\"__metadata__\":{\"a\":\"1\" \"b\":\"2\"}}", 0, "',' should stand"},
    {"{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, "has the key 'a' twice"},
    {"{\"__metadata__\":{\"a\":\"1\"},\"__metadata__\":{}}", 0, "__metadata__ twice"},
};

TEST(hostile_safetensors)
{
    char bytes[1000];
    for (size_t i = 0; i < sizeof headers / sizeof headers[0]; ++i) {
        const size_t n = strlen(headers[i].header);
        memset(bytes, 7, sizeof bytes);
        memset(bytes, 0, 8);
        bytes[0] = (char)n;
        memcpy(bytes + 8, headers[i].header, n);
        refused(SAFETENSORS, bytes, 8 + n + headers[i].data, headers[i].error);
    }
    refused(SAFETENSORS, BYTES(""), "this is no safetensors file: it is empty");
    refused(SAFETENSORS, BYTES("\2\0\0\0\0\0\0"), "the file ends too early");
    refused(SAFETENSORS, BYTES("\3\0\0\0\0\0\0\0{}"), "the file ends too early: 3 bytes should follow byte 8, not 2");
    refused(SAFETENSORS, BYTES("\xff\xff\xff\xff\xff\xff\xff\xff{}"), "a header of 18446744073709551615 bytes");
    refused(SAFETENSORS, BYTES("\1\xe1\xf5\5\0\0\0\0{}"), "this is no safetensors file: it has a header of 100000001 bytes");
    refused(SAFETENSORS, BYTES("\0\xe1\xf5\5\0\0\0\0{}"), "the file ends too early: 100000000 bytes");
    refused(SAFETENSORS, BYTES("\3\0\0\0\0\0\0\0{\0}"), "'\"' should stand at its byte 1");
    refused(SAFETENSORS, BYTES(stored), "this is no safetensors file: it is a ZIP archive");
}

/* What the package reads, too: white space around, unknown fields, no texts, an empty name. */
TEST(safetensors_of_others)
{
    static const char *const read[] = {
        " \n{\"x\":" ONE "}",
        "{\"x\":" ONE "}\n\t",
        "{\"__metadata__\":null,\"x\":" ONE "}",
        "{\"__metadata__\":{},\"x\":" ONE "}",
        "{\"x\":{\"more\":[{\"a\":null,\"b\":\"]\"},-1.5e3,[],{}],\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
        "{\"x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"a\":true,\"a\":false}}",
        "{\"\":" ONE "}",
    };
    const char *path = beside("others.safetensors");
    for (size_t i = 0; i < sizeof read / sizeof read[0]; ++i) {
        char bytes[300] = {(char)strlen(read[i])};
        strcat(strcpy(bytes + 8, read[i]), "\7");
        write_file(path, bytes, 9 + strlen(read[i]));
        tg_dict *d = tg_safetensors_load(path);
        HAS(tg_dict_get(d, strstr(read[i], "\"\":") ? "" : "x"), "[7]");
        tg_dict_free(d);
    }
    remove(path);
}

/* A tensor that cannot be read does not hide the others. */
TEST(safetensors_leaves_out)
{
    static const char header[] =
        "{\"__metadata__\":{\"x\":\"v\",\"z\":\"a\\u0000b\"},\"f8\":" PART("F8_E4M3", "[2]", "0", "2") ",\"x\":" PART("U8", "[1]", "2", "3") ",\"u\":" PART(
            "U64", "[1]", "3", "11") ",\"nine\":" PART("U8", "[1,1,1,1,1,1,1,1,1]", "11", "12") ",\"y\":" PART(
            "I16", "[1]", "12", "14") ",\"o\\u0000\":" PART("U8", "[0]", "14", "14") "}";
    const char *path = beside("left_out.safetensors");
    char bytes[800] = {0};
    bytes[0] = (char)(strlen(header) & 255), bytes[1] = (char)(strlen(header) >> 8);
    memset(strcpy(bytes + 8, header) + strlen(header), 255, 14);
    write_file(path, bytes, 8 + strlen(header) + 14);
    tg_set_error_handler(tell, NULL);
    tg_dict *d = tg_safetensors_load(path);
    tg_set_error_handler(NULL, NULL);
    HAS(tg_dict_get(d, "x"), "[255]");
    HAS(tg_dict_get(d, "y"), "[-1]");
    CHECK(tg_ok() && d && tg_dict_count(d) == 2 && strstr(told, "left out, since they cannot be read: 'f8' (dtype F8_E4M3"));
    CHECK(strstr(told, "'u' (element 0 is 18446744073709551615") && strstr(told, "'nine' (a tensor has 9 dims"));
    CHECK(strstr(told, "'o\\u0000' (its name has a zero character"));
    CHECK(d && strcmp(tg_dict_metadata(d, "x"), "v") == 0 && !tg_dict_metadata(d, "z"));
    tg_dict_free(d);
    d = tg_safetensors_list(path);
    CHECK(d && !tg_dict_count(d) && strcmp(tg_dict_metadata(d, "y"), "i16 [1]") == 0);
    CHECK(d && strcmp(tg_dict_metadata(d, "x"), "u8 [1]") == 0); /* and not the file's own text of that key */
    CHECK(d && strstr(tg_dict_metadata(d, "f8"), "cannot be read: dtype F8_E4M3 is none of"));
    tg_dict_free(d);
    remove(path);
}

/* The integers that the library lacks become the next larger ones. */
TEST(safetensors_with_other_integers)
{
    static const struct { const char *dtype, *data, *wanted; int size; tg_dtype got; } files[] = {
        {"I8", "\1\377", "[1, -1]", 2, TG_I8},
        {"I16", "\1\0\0\200", "[1, -32768]", 4, TG_I16},
        {"U16", "\1\0\0\200", "[1, 32768]", 4, TG_I32},
        {"U32", "\1\0\0\0\0\0\0\200", "[1, 2147483648]", 8, TG_I64},
        {"U64", "\1\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0", "[1, 4294967296]", 16, TG_I64},
    };
    const char *path = beside("integers.safetensors");
    for (size_t i = 0; i < sizeof files / sizeof files[0]; ++i) {
        char bytes[200] = {0};
        const int n = sprintf(bytes + 8, "{\"x\":{\"dtype\":\"%s\",\"shape\":[2],\"data_offsets\":[0,%d]}}", files[i].dtype,
                              files[i].size);
        bytes[0] = (char)n;
        memcpy(bytes + 8 + n, files[i].data, (size_t)files[i].size);
        write_file(path, bytes, (size_t)(8 + n + files[i].size));
        tg_dict *d = tg_safetensors_load(path);
        HAS(tg_dict_get(d, "x"), files[i].wanted);
        CHECK(d && tg_dtype_of(tg_dict_get(d, "x")) == files[i].got);
        tg_dict_free(d);
    }
    remove(path);
}

/* A header with many tensors: names are compared and places are checked in less than quadratic time. */
TEST(many_tensors_in_one_header)
{
    enum { MANY = 20000 };
    char *bytes = (char *)malloc(8 + 100 * MANY), *to = bytes + 8;
    const char *path = beside("many.safetensors");
    uint64_t size;
    tg_dict *d;
    for (int i = 0; i < MANY; ++i) {
        to += sprintf(to, "%c\"%d\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}", i ? ',' : '{', i);
    }
    *to++ = '}';
    size = (uint64_t)(to - bytes - 8);
    for (int i = 0; i < 8; ++i) bytes[i] = (char)(size >> 8 * i);
    write_file(path, bytes, (size_t)(to - bytes));
    d = tg_safetensors_load(path);
    CHECK(d && tg_dict_count(d) == MANY && strcmp(tg_dict_name(d, MANY - 1), "19999") == 0);
    tg_dict_free(d);
    memcpy(strstr(to - 80, "\"19999\""), "\"10000\"", 7);
    refused(SAFETENSORS, bytes, (size_t)(to - bytes), "two tensors have the name '10000'");
    remove(path);
    free(bytes);
}

TEST(many_texts)
{
    enum { MANY = 40000 };
    char *bytes = (char *)malloc(30 * MANY), *to = bytes + 8;
    const char *path = beside("texts.safetensors");
    to += sprintf(to, "{\"__metadata__\":{");
    for (int i = 0; i < MANY; ++i) to += sprintf(to, "%s\"%d\":\"\"", i ? "," : "", i);
    to += sprintf(to, "}}");
    for (int i = 0; i < 8; ++i) bytes[i] = (char)((int64_t)(to - bytes - 8) >> 8 * i);
    write_file(path, bytes, (size_t)(to - bytes));
    tg_dict *d = tg_safetensors_load(path);
    CHECK(d && strcmp(tg_dict_metadata_key(d, MANY - 1), "39999") == 0 && !tg_dict_metadata_key(d, MANY));
    tg_dict_free(d);
    memcpy(strstr(to - 30, "\"39999\""), "\"10000\"", 7);
    refused(SAFETENSORS, bytes, (size_t)(to - bytes), "__metadata__ has the key '10000' twice");
    remove(path);
    free(bytes);
}

#define NPY_HEADER "'fortran_order': False, 'shape': (2,)}"
static const struct { const char *header; size_t data; const char *error; } npy_headers[] = {
    {"", 0, "'{' should stand at its byte 0"},
    {"{}", 0, "''' should stand"},
    {"{'descr': '<f4', " NPY_HEADER, 7, "the file ends too early: 8 bytes should follow"},
    {"{'descr': '<f4', " NPY_HEADER, 9, "1 bytes follow what should be the end"},
    {"{'descr': '<f4', " NPY_HEADER " x", 8, "nothing but spaces should stand"},
    {"{'descr': '<f4' " NPY_HEADER, 8, "',' should stand"},
    {"{'descr': '<f4', 'descr': '<f4', 'shape': (2,)}", 8, "the field 'descr' twice"},
    {"{'descr': '<f4', 'order': 'C', " NPY_HEADER, 8, "the field 'order', which means nothing"},
    {"{'descr': '<f4', 'shape': (2,)}", 8, "',' should stand"},
    {"{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}", 8, "True or False should stand"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': 2}", 8, "'(' should stand"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2)}", 8, "a comma should stand"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", 8, "a whole number should stand"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2l,)}", 8, "',' should stand"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,,)}", 8, "a whole number should stand"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (,)}", 4, "a whole number should stand"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,", 8, "a whole number should stand"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,1)}", 4, "a tensor has 9 dims, more than 8"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (" LARGE ",)}", 8, "is negative or too large"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (0, " LARGE ", 3)}", 0, "is negative or too large"},
    {"{'descr': '<f4', 'fortran_order': False, 'shape': (100000000000,)}", 8, "400000000000 bytes should follow"},
    {"{'descr': '', " NPY_HEADER, 8, "dtype  (not known) is none of"},
    {"{'descr': '<', " NPY_HEADER, 8, "dtype < (not known) is none of"},
    {"{'descr': '<c8', " NPY_HEADER, 16, "dtype <c8 (complex numbers) is none of f8, f4, f2, i8, i4, i2, i1, u8, u4"},
    {"{'descr': '<U5', " NPY_HEADER, 40, "dtype <U5 (text) is none of"},
    {"{'descr': '|S5', " NPY_HEADER, 10, "dtype |S5 (bytes of text) is none of"},
    {"{'descr': '|O', " NPY_HEADER, 8, "dtype |O (Python objects) is none of"},
    {"{'descr': '<f16', " NPY_HEADER, 32, "dtype <f16 (long floats) is none of"},
    {"{'descr': '<M8[s]', " NPY_HEADER, 16, "dtype <M8[s] (dates) is none of"},
    {"{'descr': '<V4', " NPY_HEADER, 8, "dtype <V4 (bytes, or records) is none of"},
    {"{'descr': [('a', '<f4')], " NPY_HEADER, 8, "dtype [('a', '<f4')] (records) is that of no tensor"},
    {"{'descr': '|b1', " NPY_HEADER, 2, "a bool is stored as 7, not as 0 or 1"},
    {"{'descr': '<f4, " NPY_HEADER, 8, "dtype <f4,  (long floats) is none of"},
    {"{'descr': '<f\\'4', " NPY_HEADER, 8, "a quote should stand"},
    {"{'descr': '<f4", 8, "a quote should stand"},
};

TEST(hostile_npy)
{
    char bytes[400];
    for (size_t i = 0; i < sizeof npy_headers / sizeof npy_headers[0]; ++i) {
        const size_t n = strlen(npy_headers[i].header);
        memset(bytes, 7, sizeof bytes);
        memcpy(bytes, "\x93NUMPY\1\0", 8);
        bytes[8] = (char)n, bytes[9] = 0;
        memcpy(bytes + 10, npy_headers[i].header, n);
        refused(NPY, bytes, 10 + n + npy_headers[i].data, npy_headers[i].error);
    }
    memcpy(bytes + 10, "{'descr': '<u8', 'fortran_order': False, 'shape': (), }", 55);
    memcpy(bytes + 8, "\67\0", 2);
    memcpy(bytes + 65, "\0\0\0\0\0\0\0\200", 8);
    refused(NPY, bytes, 73, "element 0 is 9223372036854775808, too large a u64 for i64");
    refused(NPY, BYTES("\x93NUMPX\1\0\0\0"), "this is no .npy file");
    refused(NPY, BYTES("\x93NUMPY\0\0\0\0"), "version 0.0 of the .npy format is not known");
    refused(NPY, BYTES("\x93NUMPY\4\0\0\0"), "version 4.0 of the .npy format is not known");
    refused(NPY, BYTES("\x93NUMPY\1\1\0\0"), "version 1.1 of the .npy format is not known");
    refused(NPY, BYTES("\x93NUMPY\2\0\xff\xff\xff\xff{}"), "4294967295 bytes should follow byte 12, not 2");
    refused(NPY, BYTES(stored), "this is no .npy file: it is a ZIP archive");
}

/* Bytes of an archive that are replaced: `at` counts from its end if it is negative. */
typedef struct { int at; const char *bytes; int count; const char *error; } patch;

static void patched(const char *archive, size_t size, const patch *p, size_t n)
{
    char bytes[1000];
    for (size_t i = 0; i < n; ++i) {
        memcpy(bytes, archive, size);
        memcpy(bytes + (p[i].at < 0 ? (int)size + p[i].at : p[i].at), p[i].bytes, (size_t)p[i].count);
        refused(NPZ, bytes, size, p[i].error);
    }
}

/* `stored`: x.npy at 0 (header 30 + 5 + 20, then 136 bytes), yz.npy at 191; the directory at 376: 51 and 52 bytes; the
   end. */
TEST(hostile_npz)
{
    static const patch stored_patches[] = {
        {-22, "QK", 2, "its end record is missing"},
        {-22 + 20, "\1", 1, "its end record is missing"},
        {-22 + 10, "\1\0", 2, "its directory has more entries than it says"},
        {-22 + 10, "\3\0", 2, "its directory is not where it should be"},
        {-22 + 10, "\xff\xff", 2, "its directory is not where it should be"},
        {-22 + 12, "\x68", 1, "its directory is not where it should be"},
        {-22 + 16, "\x79", 1, "its directory is not where it should be"},
        {-22 + 16, "\xff\xff\xff\xff", 4, "its directory is not where it should be"},
        {376, "PK\1\3", 4, "its directory is damaged"},
        {376 + 10, "\10", 1, "the compressed bytes are damaged"},
        {376 + 16, "\0\0\0\0", 4, "entry 'x': the bytes are damaged: their CRC-32 is another"},
        {376 + 20, "\x89", 1, "an entry cannot have the size that it claims"},
        {376 + 24, "\x87", 1, "an entry cannot have the size that it claims"},
        {376 + 20, "\x87\0\0\0\x87", 5, "the file ends too early"},
        {376 + 20, "\x89\0\0\0\x89", 5, "two entries overlap"},
        {376 + 20, "\xff\xff\xff\x7f\xff\xff\xff\x7f", 8, "an entry reaches beyond the directory"},
        {376 + 20, "\xff\xff\xff\xff\xff\xff\xff\xff", 8, "an entry reaches beyond the directory"},
        {376 + 28, "\xff\xff", 2, "its directory is damaged"},
        {376 + 28, "\4", 1, "entry 'x.np': this is no .npz archive, or a damaged one: the header"},
        {376 + 30, "\1", 1, "its directory is damaged"},
        {376 + 32, "\1", 1, "its directory is damaged"},
        {376 + 42, "\1", 1, "entry 'x': this is no .npz archive, or a damaged one: the header of an entry is not where it should be"},
        {376 + 42, "\xbf", 1, "the header of an entry is not where it should be"},
        {376 + 42, "\xff\xff\xff\xff", 4, "it refers to what is outside of it"},
        {376 + 46, "\0", 1, "the name of an entry has a zero byte"},
        {0, "PK\5\6", 4, "the header of an entry is not where it should be"},
        {26, "\6", 1, "the header of an entry is not where it should be"},
        {28, "\x15", 1, "two entries overlap"},
        {28, "\xff\xff", 2, "an entry reaches beyond the directory"},
        {55, "\0", 1, "entry 'x': the bytes are damaged: their CRC-32 is another"},
        {191 - 8, "\1", 1, "their CRC-32 is another"},
        {376 - 1, "\2", 1, "entry 'yz': a bool is stored as 2, not as 0 or 1"},
        {376 - 1, "\0", 1, "entry 'yz': the bytes are damaged: their CRC-32 is another"},
    };
    /* one that cannot be read is an error if there is no other: x alone, before and behind its own end */
    static const patch alone[] = {
        {8, "\1", 1, "has no tensor that can be read: 'x' (it is encrypted)"},
        {10, "\14", 1, "'x' (compression method 12 is not supported)"},
        {46, "\xff", 1, "(its name is not UTF-8)"},
    };
    for (size_t i = 0; i < sizeof alone / sizeof alone[0]; ++i) {
        char bytes[400];
        memcpy(bytes, stored, 191);
        memcpy(bytes + 191, stored + 376, 51);
        memcpy(bytes + 191 + 51, "PK\5\6\0\0\0\0\1\0\1\0\63\0\0\0\277\0\0\0\0\0", 22);
        memcpy(bytes + 191 + alone[i].at, alone[i].bytes, 1);
        refused(NPZ, bytes, 191 + 51 + 22, alone[i].error);
    }
    patched(BYTES(stored), stored_patches, sizeof stored_patches / sizeof stored_patches[0]);
    refused(NPZ, BYTES(saved_by_numpy), "this is no .npz archive: it is a .npy file of NumPy");
    refused(NPZ, BYTES(""), "this is no .npz archive: it is empty");
    refused(NPZ, BYTES("PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"), "its end record is missing");
    refused(NPZ, BYTES("xPK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"), "its directory is not where it should be");
}

/* Every beginning of a file is refused.  A file with a bit changed is refused, or is another good file; nothing else
   happens, and nothing stays alive. */
static void damaged(format f, const char *whole, size_t size)
{
    static const char bits[] = {1, 16, -128};
    static char bytes[1000];
    const char *path = beside("damaged");
    const tg_stats_info before = tg_stats();
    size_t bad = 0, refusals = 0;
    for (size_t n = 0; n < size; ++n) {
        tg_mark mark = tg_scope_begin();
        write_file(path, whole, n);
        tg_clear_error();
        bad += load(f, path) || tg_error_code() != TG_ERR_FORMAT || !strstr(tg_error_message(), "damaged'");
        bad += !parses_alike(f, whole, n, n % 2, "damaged'", false);
        tg_scope_end(mark);
    }
    CHECK(bad == 0);
    for (size_t i = 0; i < 3 * size; ++i) {
        tg_mark mark = tg_scope_begin();
        memcpy(bytes, whole, size);
        bytes[i / 3] = (char)(bytes[i / 3] ^ bits[i % 3]);
        write_file(path, bytes, size);
        tg_clear_error();
        const bool loaded = load(f, path);
        refusals += !loaded;
        bad += loaded != tg_ok() || (!loaded && !strstr(tg_error_message(), "damaged'")) ||
               (!loaded && tg_error_code() != TG_ERR_FORMAT && tg_error_code() != TG_ERR_UNSUPPORTED);
        bad += !parses_alike(f, bytes, size, i % 2, "damaged'", loaded);
        tg_scope_end(mark);
    }
    tg_clear_error();
    CHECK(bad == 0 && refusals > size && !alive_changed(&before));
    remove(path);
}

/* An archive of ours: x.npy at 0 (header 30 + 5 + 20, then 136 bytes), the directory at 191 (51 bytes and the sizes and
   the place, 28), the ZIP64 record at 270, its locator at 326, the end at 346. */
TEST(hostile_zip64)
{
    static const patch patches[] = {
        {326, "QK", 2, "its directory is not where it should be"},
        {326 + 8, "\1", 1, "its ZIP64 records do not fit together"},
        {270, "QK", 2, "its ZIP64 records do not fit together"},
        {270 + 32, "\2", 1, "its directory is not where it should be"},
        {270 + 40, "\120", 1, "its directory is not where it should be"},
        {270 + 55, "\377", 1, "its directory is not where it should be"},
        {191 + 51, "\2", 1, "it refers to what is outside of it"}, /* another kind of field: no place */
        {191 + 53, "\27", 1, "its directory is damaged"},
        {191 + 53, "\35", 1, "its directory is damaged"},
        {191 + 55, "\211", 1, "an entry cannot have the size that it claims"},
        {191 + 62, "\377", 1, "an entry cannot have the size that it claims"},
        {191 + 55, "\377\377\377\377\377\377\377\377\377\377\377\377\377\377\377\377", 16, "reaches beyond"},
        {191 + 78, "\200", 1, "it refers to what is outside of it"},
    };
    char bytes[1000];
    const char *path = beside("zip64.npz");
    tg_dict *d = tg_dict_new();
    FILE *file;
    CHECK(tg_dict_set(d, "x", f32("[1, 2]")) == TG_OK && tg_npz_save(path, d) == TG_OK);
    file = fopen(path, "rb");
    CHECK(file && fread(bytes, 1, sizeof bytes, file) == 368);
    if (file) fclose(file);
    patched(bytes, 368, patches, sizeof patches / sizeof patches[0]);
    damaged(NPZ, bytes, 368);
    tg_dict_free(d);
    remove(path);
}

/* "aaaaaaaaaa.npy" and, in the place of "bbbbbb.npy", "aaaaaaaaaa": two entries, but one name of a tensor. */
TEST(entries_that_differ_in_their_ending)
{
    char bytes[1000];
    const char *path = beside("ending.npz");
    tg_dict *d = tg_dict_new();
    size_t size = 0, i, found = 0;
    FILE *file;
    CHECK(tg_dict_set(d, "aaaaaaaaaa", f32("[1, 2]")) == TG_OK && tg_dict_set(d, "bbbbbb", f32("3")) == TG_OK);
    CHECK(tg_npz_save(path, d) == TG_OK);
    file = fopen(path, "rb");
    if (file) size = fread(bytes, 1, sizeof bytes, file), fclose(file);
    for (i = 0; i + 10 <= size; ++i)
        if (!memcmp(bytes + i, "bbbbbb.npy", 10)) memcpy(bytes + i, "aaaaaaaaaa", 10), ++found;
    CHECK(found == 2); /* in its header and in the directory */
    refused(NPZ, bytes, size, "two tensors have this name");
    refused(NPZ_LIST, bytes, size, "two tensors have this name");
    tg_dict_free(d);
    remove(path);
}

/* `deflated`: f.npy at 0 (header 30 + 5, then 82 bytes), d.npy at 117 (254 bytes), s.npy at 406 (141 bytes); the
   directory at 582: 3 times 51 bytes; the end. */
TEST(hostile_deflated_npz)
{
    static const patch patches[] = {
        {582 + 51 + 46, "f", 1, "two tensors have the name 'f'"},
        {582 + 24, "\0\0\0\1", 4, "an entry cannot have the size that it claims"}, /* a bomb: 16 MiB of 82 bytes */
        {582 + 24, "\255", 1, "the compressed bytes are damaged"},                 /* one byte more than there are */
        {582 + 24, "\253", 1, "the compressed bytes are damaged"},                 /* one less */
        {582 + 20, "\121", 1, "the compressed bytes are damaged"},
        {582 + 20, "\123", 1, "two entries overlap"},
        {582 + 102 + 42, "\0\0", 2, "two entries overlap"},
        {582 + 102 + 42, "\165\0", 2, "two entries overlap"},
        {582 + 10, "\0", 1, "an entry cannot have the size that it claims"},
        {35, "\7", 1, "the compressed bytes are damaged"},                           /* the fourth kind of block */
        {406 + 35 + 1, "\0", 1, "the compressed bytes are damaged"},                 /* the size of a stored block */
        {406 + 35 + 3, "\0", 1, "the compressed bytes are damaged"},                 /* and its complement */
        {117 + 35 + 1, "\377\377\377", 3, "the compressed bytes are damaged"},       /* lengths of codes */
        {117 + 35 + 1, "\0\0\0\0\0\0\0\0", 8, "the compressed bytes are damaged"},
    };
    patched(BYTES(deflated), patches, sizeof patches / sizeof patches[0]);
}

static const char idx_file[] = "\0\0\14\2\0\0\0\2\0\0\0\3\0\0\0\1\0\0\0\2\377\377\377\375\0\0\0\4\0\0\0\5\0\0\1\6";

TEST(truncated_and_changed_files)
{
    damaged(SAFETENSORS, BYTES(saved_by_safetensors));
    damaged(OPEN, BYTES(saved_by_safetensors));
    damaged(LIST, BYTES(saved_by_safetensors));
    damaged(NPY, BYTES(saved_by_numpy));
    damaged(NPZ, BYTES(stored));
    damaged(NPZ, BYTES(deflated));
    damaged(NPZ_LIST, BYTES(deflated));
    /* as other writers write them */
    static const char header[] =
        " {\n\t\"\\ud83d\\ude00\\n\" : { \"data_offsets\" : [ 0 , 4 ] , \"more\" : [ { \"a\" : -1.5e3 } , [ ] , \"\\u0000\" ] ,"
        " \"shape\" : [ 2 ] , \"dtype\" : \"I16\" } , \"__metadata__\" : null , \"\" :" PART("U8", "[]", "4", "5") " } ";
    char bytes[400] = {(char)(sizeof header - 1)};
    strcpy(bytes + 8, header);
    damaged(SAFETENSORS, strcat(bytes + 8, "12345") - 8, 8 + sizeof header - 1 + 5);
    damaged(NPY, BYTES("\x93NUMPY\1\0\x3e\0{'shape': (3L, ), 'fortran_order': True , \"descr\": u'>i2',}  \n123456"));
}

/* ---- files in memory ---- */

static unsigned char *read_file(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    unsigned char *bytes = (unsigned char *)malloc(20000);
    *size = file ? fread(bytes, 1, 20000, file) : 0;
    if (file) fclose(file);
    return bytes;
}

/* Whether the file has this text. */
static bool file_has(const char *path, const char *text)
{
    size_t size;
    char *bytes = (char *)read_file(path, &size);
    bool found = false;
    for (size_t i = 0; i + strlen(text) <= size && !found; ++i) found = memcmp(bytes + i, text, strlen(text)) == 0;
    free(bytes);
    return found;
}

/* Integers are written as u16, u32 and u64 where this is asked for, and come back as i32 and i64. */
TEST(unsigned_integers_are_written)
{
    static const struct { const char *dtype, *most, *beyond, *descr; tg_dtype back; } rows[] = {
        {"u16", "[0, 65535, 1]", "[0, 65536, 1]", "'<u2'", TG_I32},
        {"u32", "[0, 4294967295, 1]", "[0, 4294967296, 1]", "'<u4'", TG_I64},
        {"u64", "[0, 9223372036854775807, 1]", "[0, -1, 1]", "'<u8'", TG_I64},
    };
    const char *npy = beside("unsigned.npy"), *npz = beside("unsigned.npz"), *path = beside("unsigned.safetensors");
    for (int i = 0; i < 3; ++i) {
        tg_tensor *t = i64(rows[i].most);
        tg_dict *d = tg_dict_new(), *inner = tg_dict_new(), *back;
        char dtypes[60];
        CHECK(tg_npy_save_ex(npy, t, rows[i].dtype) == TG_OK && file_has(npy, rows[i].descr));
        CHECK(tg_dtype_of(tg_npy_load(npy)) == rows[i].back && tg_equal(tg_to(tg_npy_load(npy), HERE), t));
        CHECK(tg_dict_set(d, "f", f32("[1, 2]")) == TG_OK && tg_dict_set(inner, "a=b", tg_flip(t, TG_DIMS(0))) == TG_OK);
        CHECK(tg_dict_set(d, "z", of(TG_I16, "[5]")) == TG_OK && tg_dict_set_dict(d, "inner", inner) == TG_OK);
        snprintf(dtypes, sizeof dtypes, "inner.a=b=%s,z=u16", rows[i].dtype);
        CHECK(tg_safetensors_save_ex(path, d, dtypes) == TG_OK && file_has(path, "\"dtype\":\"U16\",\"shape\":[1]"));
        back = tg_safetensors_load(path);
        CHECK(tg_dtype_of(tg_dict_get(back, "inner.a=b")) == rows[i].back && tg_dtype_of(tg_dict_get(back, "f")) == TG_F32);
        CHECK(tg_equal(tg_to(tg_dict_get(back, "inner.a=b"), HERE), tg_flip(t, TG_DIMS(0))));
        HAS(tg_dict_get(back, "z"), "[5]");
        tg_dict_free(back);
        CHECK(tg_npz_save_ex(npz, d, dtypes) == TG_OK && file_has(npz, rows[i].descr));
        back = tg_npz_load(npz);
        CHECK(back && tg_equal(tg_to(tg_dict_get(back, "inner.a=b"), HERE), tg_flip(t, TG_DIMS(0))));
        tg_dict_free(back);
        CHECK_FAILS(tg_npy_save_ex(npy, i64(rows[i].beyond), rows[i].dtype), "element 1 is ");
        CHECK_FAILS(tg_safetensors_save_ex(path, d, "f=u16"), "only integers can be written as u16, not f32");
        CHECK_FAILS(tg_safetensors_save_ex(path, d, "a=b=u16"), "there is no tensor for 'a=b=u16' of the dtypes");
        CHECK_FAILS(tg_npz_save_ex(path, d, "z=i16"), "'i16' is none of u16, u32, u64");
        CHECK_FAILS(tg_npz_save_ex(path, d, "z"), "there is no tensor for 'z'");
        tg_dict_free(d);
    }
    CHECK_FAILS(tg_npy_save_ex(npy, boolean("[1]"), "u16"), "only integers can be written as u16, not bool");
    CHECK_FAILS(tg_npy_save_ex(npy, NULL, "u16"), "argument t is NULL");
    CHECK(tg_npy_save_ex(npy, tg_zeros_on(TG_SHAPE(0), TG_I64, HERE), "u64") == TG_OK && tg_numel(tg_npy_load(npy)) == 0);
    CHECK(tg_npy_save_ex(npy, of(TG_I8, "[-1]"), NULL) == TG_OK && tg_dtype_of(tg_npy_load(npy)) == TG_I8);
    remove(npy), remove(npz), remove(path);
}

static bool is_within(tg_tensor *t, const unsigned char *bytes, size_t size)
{
    const uintptr_t at = (uintptr_t)tg_data(t), from = (uintptr_t)bytes;
    return at >= from && at < from + size;
}

static bool is_little_endian(void) { const int one = 1; return *(const char *)&one == 1; }

/* Every tensor has the values of the file's, is read-only, and uses the bytes where they are aligned for it. */
TEST(safetensors_in_memory)
{
    size_t size;
    const char *path = beside("memory.safetensors");
    tg_dict *d = many(), *back;
    CHECK(tg_safetensors_save(path, d) == TG_OK);
    unsigned char *bytes = read_file(path, &size), *apart = (unsigned char *)malloc(size + 1);
    memcpy(apart + 1, bytes, size);
    for (int off = 0; off < 2; ++off) {
        const unsigned char *here = off ? apart + 1 : bytes;
        const int64_t before = tg_stats().bytes;
        back = tg_safetensors_parse(here, size);
        const bool copied = tg_stats().bytes > before;
        check_many(back, d);
        CHECK(copied == (off || !is_little_endian()));
        for (int i = 0; i < tg_dict_count(back); ++i) {
            tg_tensor *t = tg_dict_get(back, tg_dict_name(back, i));
            if (tg_numel(t) > 0) {
                const bool fits = is_little_endian() ? !off || tg_dtype_size(tg_dtype_of(t)) == 1 :
                                                       tg_dtype_size(tg_dtype_of(t)) == 1;
                CHECK(is_within(t, here, size) == fits);
            }
            CHECK_FAILS(tg_zero_(t), "is read-only\n  hint: write to a copy of its own: tg_clone(t)");
        }
        tg_dict_free(back);
    }
    CHECK(tg_safetensors_save(path, d) == TG_OK && file_is(path, bytes, size)); /* nothing has written there */
    CHECK_FAILS(tg_safetensors_parse(NULL, 8), "tg_safetensors_parse: argument data is NULL");
    CHECK_FAILS(tg_safetensors_parse(bytes, 0), "tg_safetensors_parse: 'bytes in memory': this is no safetensors file: it is empty");
    tg_dict_free(d);
    free(bytes), free(apart);
    remove(path);
}

/* Whether a file of this name is mapped, where the system tells it; else `otherwise`. */
static bool is_mapped(const char *name, bool otherwise)
{
    char line[2000];
    bool found = false;
    FILE *file = fopen("/proc/self/maps", "r");
    if (!file) return otherwise;
    while (fgets(line, sizeof line, file)) found = found || strstr(line, name);
    fclose(file);
    return found;
}

/* The tensors use the pages of the file, also when its name means another one, up to the end of the last of them. */
TEST(safetensors_mapped)
{
    const char *path = beside("mapped.safetensors");
    tg_dict *d = many(), *back, *other = tg_dict_new();
    CHECK(tg_safetensors_save(path, d) == TG_OK);
    const int64_t before = tg_stats().bytes;
    const bool in_place = is_little_endian(); /* elements of several bytes are used where they lie in the file */
    back = tg_safetensors_open(path);
    CHECK(!in_place || tg_stats().bytes == before);
    check_many(back, d);
    CHECK(is_mapped("mapped.safetensors", true));
    tg_tensor *t = tg_retain(tg_dict_get(back, "f32.weight"));
    CHECK_FAILS(tg_zero_(t), "is read-only\n  hint: write to a copy of its own: tg_clone(t)");
    tg_dict_free(back);
    CHECK(is_mapped("mapped.safetensors", in_place) == in_place && same(t, tg_dict_get(d, "f32.weight")));
    CHECK(tg_dict_set(other, "x", f32("[1]")) == TG_OK && tg_safetensors_save(path, other) == TG_OK);
    remove(path);
    CHECK(same(t, tg_dict_get(d, "f32.weight")));
    tg_release(t);
    CHECK(!is_mapped("mapped.safetensors", false));
    tg_dict_free(d), tg_dict_free(other);
    CHECK_FAILS(tg_safetensors_open(path), "tg_safetensors_open: '");
    CHECK_FAILS(tg_safetensors_open(NULL), "argument path is NULL");
    write_file(path, BYTES(saved_by_safetensors)); /* one that nothing uses is not mapped for long */
    tg_dict_free(tg_safetensors_open(path));
    CHECK(!is_mapped("mapped.safetensors", false));
    remove(path);
}

TEST(npy_in_memory)
{
    size_t size;
    const char *path = beside("memory.npy");
    tg_tensor *t = tg_reshape(tg_arange(0, 6, 1), TG_SHAPE(2, 3)), *back;
    CHECK(tg_npy_save(path, t) == TG_OK);
    unsigned char *bytes = read_file(path, &size);
    back = tg_npy_parse(bytes, size);
    CHECK(tg_equal(tg_to(back, HERE), t) && is_within(back, bytes, size) == is_little_endian());
    CHECK_FAILS(tg_fill_(tg_select(back, 0, 1), 7), "is read-only");
    HAS(tg_npy_parse(bytes, size), "[[0, 1, 2], [3, 4, 5]]");
    CHECK_FAILS(tg_npy_parse(bytes, size - 1), "tg_npy_parse: 'bytes in memory': the file ends too early");
    CHECK_FAILS(tg_npy_parse(NULL, 0), "argument data is NULL");
    free(bytes);
    /* the first of several arrays; columns first in memory; elements with the most significant byte first */
    HAS(tg_npy_parse(BYTES("\x93NUMPY\1\0\x38\0{'descr': '|u1', 'fortran_order': False, 'shape': (2,)}\n\1\2\x93NUMPY\1\0")),
        "[1, 2]");
    HAS(tg_npy_parse(BYTES("\x93NUMPY\1\0\x39\0{'descr': '|u1', 'fortran_order': True, 'shape': (2, 2)}\n\1\2\3\4")),
        "[[1, 3], [2, 4]]");
    HAS(tg_npy_parse(BYTES("\x93NUMPY\1\0\x39\0{'descr': '>i4', 'fortran_order': False, 'shape': (1,) }\n\0\0\1\2")), "[258]");
    CHECK_FAILS(tg_npy_parse(BYTES("\x93NUMPY\1\0\x39\0{'descr': '|b1', 'fortran_order': False, 'shape': (1,) }\n\2")),
                "a bool is stored as 2, not as 0 or 1");
    remove(path);
}

TEST(npz_and_idx_in_memory)
{
    size_t size;
    const char *path = beside("memory.npz");
    tg_dict *d = tg_dict_new(), *back;
    tg_tensor *t = f32("[[1, 2, 3], [4, 5, 6]]");
    CHECK(tg_dict_set(d, "a", t) == TG_OK && tg_dict_set(d, "b.c", of(TG_I64, "[7]")) == TG_OK);
    CHECK(tg_npz_save(path, d) == TG_OK);
    unsigned char *bytes = read_file(path, &size);
    back = tg_npz_parse(bytes, size);
    CHECK(tg_dict_count(back) == 2 && same(tg_dict_get(back, "a"), t));
    CHECK(same(tg_dict_get(back, "b.c"), tg_dict_get(d, "b.c")));
    CHECK_FAILS(tg_zero_(tg_dict_get(back, tg_dict_name(back, 0))), "is read-only");
    tg_dict_free(back);
    tg_dict_free(d);
    free(bytes);
    back = tg_npz_parse(BYTES(deflated)); /* the tensors outlive what was inflated */
    write_file(path, BYTES(deflated));
    d = tg_npz_load(path);
    CHECK(tg_dict_count(back) > 0 && tg_dict_count(back) == tg_dict_count(d));
    for (int i = 0; i < tg_dict_count(d); ++i) {
        t = tg_dict_get(back, tg_dict_name(d, i));
        CHECK(t && same(t, tg_dict_get(d, tg_dict_name(d, i))));
        CHECK(!is_within(t, (const unsigned char *)deflated, sizeof deflated));
        CHECK_FAILS(tg_zero_(t), "is read-only");
    }
    tg_dict_free(back), tg_dict_free(d);
    CHECK_FAILS(tg_npz_parse(NULL, 0), "tg_npz_parse: argument data is NULL");
    HAS(tg_idx_parse(BYTES(idx_file)), "[[1, 2, -3], [4, 5, 262]]");
    t = tg_idx_parse(BYTES("\0\0\10\1\0\0\0\2\7\10"));
    HAS(t, "[7, 8]");
    CHECK_FAILS(tg_zero_(t), "is read-only");
    CHECK_FAILS(tg_idx_parse(NULL, 0), "tg_idx_parse: argument data is NULL");
    remove(path);
}

/* Whether two lists have the same names and texts. */
static bool same_list(tg_dict *a, tg_dict *b)
{
    int n = 0;
    for (const char *key; (key = tg_dict_metadata_key(a, n)) != NULL; ++n) {
        const char *other = tg_dict_metadata_key(b, n);
        if (!other || strcmp(key, other) || strcmp(tg_dict_metadata(a, key), tg_dict_metadata(b, key))) return false;
    }
    return n > 0 && !tg_dict_metadata_key(b, n);
}

TEST(lists_in_memory)
{
    const char *path = beside("listed");
    for (int npz = 0; npz < 2; ++npz) {
        tg_dict *d = many(), *file, *memory;
        size_t size;
        for (int k = 0; npz && k < DTYPES; ++k) { /* NumPy has no bf16 */
            char name[40];
            static const char *const forms[] = {"%s.weight", "%s.t", "inner.%s", "inner.empty %s"};
            for (int i = 0; i < 4 && all_dtypes[k] == TG_BF16; ++i) {
                snprintf(name, sizeof name, forms[i], tg_dtype_name(TG_BF16));
                CHECK(tg_dict_remove(d, name) == TG_OK);
            }
        }
        CHECK((npz ? tg_npz_save : tg_safetensors_save)(path, d) == TG_OK);
        unsigned char *bytes = read_file(path, &size);
        file = (npz ? tg_npz_list : tg_safetensors_list)(path);
        memory = (npz ? tg_npz_list_from : tg_safetensors_list_from)(bytes, size);
        free(bytes); /* the texts are copies */
        CHECK(file && memory && tg_dict_count(memory) == 0 && same_list(file, memory));
        CHECK(strcmp(tg_dict_metadata(memory, "inner.empty f32"), "f32 [0, 4]") == 0);
        tg_dict_free(file), tg_dict_free(memory), tg_dict_free(d);
    }
    CHECK_FAILS(tg_safetensors_list_from(NULL, 0), "tg_safetensors_list_from: argument data is NULL");
    CHECK_FAILS(tg_npz_list_from(NULL, 0), "tg_npz_list_from: argument data is NULL");
    CHECK_FAILS(tg_npz_list_from("", 0), "tg_npz_list_from: 'bytes in memory': this is no .npz archive: it is empty");
    remove(path);
}

/* ---- shards ---- */

static const char *folder; /* with files of these tests */

/* The path of a file in the folder, until the fourth call from now. */
static const char *in_folder(const char *name)
{
    static char path[4][1200];
    static int turn;
    char *p = path[turn = (turn + 1) % 4];
    snprintf(p, sizeof path[0], "%s/%s", folder, name);
    return p;
}

static void write_safetensors(const char *path, const char *header, const char *data)
{
    char bytes[1000] = "";
    const size_t n = strlen(header);
    for (int i = 0; i < 2; ++i) bytes[i] = (char)(n >> 8 * i & 255);
    memcpy(bytes + 8, header, n);
    memcpy(bytes + 8 + n, data, strlen(data));
    write_file(path, bytes, 8 + n + strlen(data));
}

/* a: x, y and a text; b: z; sub/c: w */
#define THREE_SHARDS "{\"metadata\": {\"total_size\": 4.0}, \"weight_map\": {\n  \"w\": \"sub/c\",\n  \"x\": \"a\",\n  \"y\": \"a\",\n  \"z\": \"b\"\n}}\n"
static void write_shards(void)
{
    static char path[1000];
    snprintf(path, sizeof path, "%s", beside("shards"));
    folder = path;
    mkdir(path, 0777);
    mkdir(in_folder("sub"), 0777);
    write_safetensors(in_folder("a"), "{\"__metadata__\":{\"k\":\"v\"},\"y\":" ONE ",\"x\":" AT("[1]", "1", "2") "}", "12");
    write_safetensors(in_folder("b"), "{\"z\":" ONE ",\"__metadata__\":{\"k\":\"other\",\"l\":\"w\"}}", "3");
    write_safetensors(in_folder("sub/c"), "{\"w\":" ONE "}", "4");
    write_text(in_folder("index"), THREE_SHARDS);
}

static void remove_shards(void)
{
    static const char *const names[] = {"a", "b", "sub/c", "index", "sub", ""};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) remove(in_folder(names[i]));
}

static tg_dict *(*const readers[])(const char *) = {tg_safetensors_load, tg_safetensors_open, tg_safetensors_list};

/* The tensors of all shards, shard by shard, and their texts, of each the first. */
TEST(shards_of_an_index)
{
    static const char *const names[] = {"y", "x", "z", "w"};
    write_shards();
    for (int k = 0; k < 2; ++k) {
        tg_dict *d = readers[k](in_folder("index"));
        CHECK(d && tg_dict_count(d) == 4);
        for (int i = 0; d && i < 4; ++i) {
            CHECK(strcmp(tg_dict_name(d, i), names[i]) == 0);
            CHECK(tg_item(tg_dict_get(d, names[i])) == '1' + i);
            if (k == 1) CHECK_FAILS(tg_zero_(tg_dict_get(d, names[i])), "is read-only");
        }
        CHECK(strcmp(tg_dict_metadata(d, "k"), "v") == 0 && strcmp(tg_dict_metadata(d, "l"), "w") == 0);
        CHECK(!tg_dict_metadata_key(d, 2)); /* total_size is none of the tensors */
        tg_dict_free(d);
    }
    tg_dict *list = tg_safetensors_list(in_folder("index"));
    for (int i = 0; i < 4; ++i) CHECK(strcmp(tg_dict_metadata_key(list, i), names[i]) == 0);
    CHECK(strcmp(tg_dict_metadata(list, "w"), "u8 [1]") == 0 && !tg_dict_metadata_key(list, 4));
    tg_dict_free(list);
    /* of one shard, which has a tensor that is not named; no file that the index does not name is read */
    write_text(in_folder("index"), " {\"weight_map\":{\"\\u0078\":\".\\/a\"},\"more\":[null,{\"weight_map\":1}]} ");
    write_text(in_folder("b"), "damaged");
    for (int k = 0; k < 3; ++k) {
        tg_dict *d = readers[k](in_folder("index"));
        CHECK(d && (k == 2 ? tg_dict_metadata(d, "y") && !tg_dict_metadata_key(d, 2) : tg_dict_count(d) == 2 && tg_dict_get(d, "y")));
        tg_dict_free(d);
    }
    write_text(in_folder("index"), "{\"weight_map\":{}}");
    tg_dict *none = tg_safetensors_load(in_folder("index"));
    CHECK(none && tg_dict_count(none) == 0);
    tg_dict_free(none);
    remove_shards();
}

/* A path of the current folder, and a symbolic link to a shard, as in Hugging Face's cache. */
TEST(shards_of_other_places)
{
    char here[1000], there[1200];
    write_shards();
    CHECK(getcwd(here, sizeof here) != NULL);
    snprintf(there, sizeof there, "%s", in_folder(""));
    CHECK(chdir(there) == 0 && rename("a", "sub/blob") == 0 && symlink("sub/blob", "a") == 0);
    tg_dict *d = tg_safetensors_open("index");
    CHECK(d && tg_dict_count(d) == 4);
    tg_dict_free(d);
    CHECK(rename("sub/blob", "a") == 0 && chdir(here) == 0);
    remove_shards();
}

/* What is left out of a shard is told of the index, as of one file. */
TEST(shards_leave_out)
{
    write_shards();
    write_safetensors(in_folder("b"), "{\"z\":" PART("F8_E4M3", "[1]", "0", "1") "}", "3");
    tg_set_error_handler(tell, NULL);
    told[0] = 0;
    tg_dict *d = tg_safetensors_load(in_folder("index"));
    CHECK(d && tg_dict_count(d) == 3 && strstr(told, "index': left out, since they cannot be read: 'z' (dtype F8_E4M3 is none"));
    tg_set_error_handler(NULL, NULL);
    tg_dict_free(d);
    write_text(in_folder("index"), "{\"weight_map\":{\"z\":\"b\"}}");
    CHECK_FAILS(tg_safetensors_load(in_folder("index")), "index' has no tensor that can be read: 'z' (dtype F8_E4M3");
    remove_shards();
}

/* An index of which each part is refused, by each function that takes its path, and nothing stays alive. */
TEST(hostile_shards)
{
    static const struct { const char *index, *error; } rows[] = {
        {"{\"weight_map\":{\"x\":\"a\",\"gone\":\"a\"}}", "index', entry 'gone': 'a' should have it, and does not"},
        {"{\"weight_map\":{\"x\":\"a\",\"q\":\"d\"}}", "index', entry 'q': 'd', which should have it, cannot be opened: No such file"},
        {"{\"weight_map\":{\"x\":\"a\",\"z\":\"a\",\"w\":\"b\"}}", "b', entry 'z': this tensor should be in 'a', says the index"},
        {"{\"weight_map\":{\"x\":\"a\",\"q\":\"sub/../b\"}}", "tensor 'q' should be in 'sub/../b', which is no path inside of the folder"},
        {"{\"weight_map\":{\"q\":\"../a\"}}", "'../a', which is no path inside of the folder"},
        {"{\"weight_map\":{\"q\":\"..\"}}", "'..', which is no path inside of the folder"},
        {"{\"weight_map\":{\"q\":\"sub/..\"}}", "'sub/..', which is no path inside of the folder"},
        {"{\"weight_map\":{\"q\":\"\\u002e\\u002e/a\"}}", "'../a', which is no path inside of the folder"},
        {"{\"weight_map\":{\"q\":\"..\\\\a\"}}", "'..\\a', which is no path inside of the folder"},
        {"{\"weight_map\":{\"q\":\"/etc/passwd\"}}", "'/etc/passwd', which is no path inside of the folder"},
        {"{\"weight_map\":{\"q\":\"C:/a\"}}", "'C:/a', which is no path inside of the folder"},
        {"{\"weight_map\":{\"q\":\"a\\u0000\"}}", "which is no path inside of the folder"},
        {"{\"weight_map\":{\"q\":\"\"}}", "'', which is no path inside of the folder"},
        {"{\"weight_map\":{\"q\":\"sub\"}}", "sub': this is a folder, not a file"},
        {"{\"weight_map\":{\"q\":\".\"}}", ".': this is a folder, not a file"},
        {"{\"weight_map\":{\"q\":\"index\"}}", "index': this is no safetensors file: it is JSON text"},
        {"{\"weight_map\":{\"x\":\"a\",\"y\":\"./a\"}}", "./a', entry 'x': this tensor should be in 'a', says the index"},
        {"{\"weight_map\":{\"w\":\"sub/c\",\"v\":\"sub//c\"}}", "sub//c', entry 'w': this tensor should be in 'sub/c', says the index"},
        {"{\"weight_map\":{\"z\":\"b\",\"q\":\"twin\"}}", "twin', entry 'unnamed': two tensors have this name"},
        {"{\"weight_map\":{\"x\":\"a\",\"\\u0078\":\"a\"}}", "the index has the tensor 'x' twice"},
        {"{\"weight_map\":{\"x\":\"a\"},\"weight_map\":{\"x\":\"a\"}}", "the index has weight_map twice"},
        {"{\"metadata\":{\"weight_map\":{}}}", "the index has no weight_map"},
        {"{\"weight_map\":[\"a\"]}", "the index is damaged: '{' should stand at its byte 14"},
        {"{\"weight_map\":{\"x\":1}}", "the index is damaged: '\"' should stand at its byte 19"},
        {"{\"weight_map\":{\"x\":[\"a\"]}}", "the index is damaged: '\"' should stand at its byte 19"},
        {"{\"weight_map\":{\"x\" \"a\"}}", "the index is damaged: ':' should stand"},
        {"{\"weight_map\":{\"x\":\"a\",}}", "the index is damaged: '\"' should stand"},
        {"{\"weight_map\":{\"x\":\"a\" \"y\":\"a\"}}", "the index is damaged: ',' should stand"},
        {"{\"weight_map\":{\"x\":\"a\"}", "the index is damaged: ',' should stand"},
        {"{\"weight_map\":{\"x\":\"a\"}}}", "the index is damaged: nothing but spaces should stand"},
        {"{\"weight_map\":{\"\xff\":\"a\"}}", "a text is not UTF-8"},
        {"{\"weight_map\" {}}", "the index is damaged: ':' should stand"},
        {"{\"m\":nil,\"weight_map\":{}}", "the index is damaged: a value of JSON should stand"},
        {"{\"m\":{},\"weight_ma\":{\"x\":\"a\"}}", "this is no safetensors file: it is JSON text, which begins '{\"m\""},
        {"\xEF\xBB\xBF{\"weight_map\":{\"x\":\"a\"}}", "it is JSON text, which begins"},
    };
    write_shards();
    write_safetensors(in_folder("twin"), "{\"q\":" ONE ",\"unnamed\":" AT("[1]", "1", "2") "}", "56");
    const tg_stats_info before = tg_stats();
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
        write_text(in_folder("index"), rows[i].index);
        if (strstr(rows[i].error, "unnamed"))
            write_safetensors(in_folder("b"), "{\"z\":" ONE ",\"unnamed\":" AT("[1]", "1", "2") "}", "34");
        harness.row = rows[i].index;
        for (int k = 0; k < 3; ++k) {
            tg_mark mark = tg_scope_begin();
            CHECK_FAILS(readers[k](in_folder("index")), rows[i].error);
            tg_scope_end(mark);
        }
        CHECK_FAILS(load(MODULE, in_folder("index")), rows[i].error);
        CHECK_FAILS(load(CHECKPOINT, in_folder("index")), rows[i].error);
    }
    harness.row = NULL;
    CHECK(!alive_changed(&before));
    write_text(in_folder("index"), "{\"weight_map\":{}}");
    CHECK(truncate(in_folder("index"), 100000001) == 0);
    CHECK_FAILS(tg_safetensors_load(in_folder("index")), "index': this is JSON text of 100000001 bytes: an index has 100000000 at most");
    remove(in_folder("twin"));
    remove_shards();
}

/* In memory there is no folder, and other formats have no index: it is called by name. */
TEST(an_index_where_it_is_not_read)
{
    static const char hint[] = "it is JSON text, which begins '{\"weight_map\":{\"x\":\"a\"}}'\n"
                               "  hint: it names the files that have the tensors: tg_safetensors_load(path) reads them";
    static const char index[] = "{\"weight_map\":{\"x\":\"a\"}}";
    for (int f = SAFETENSORS; f <= CSV; ++f) {
        if (f >= NPY) refused((format)f, BYTES(index), hint);
        if (f == OPEN) continue; /* of which there is no function */
        CHECK_FAILS(parse((format)f, BYTES(index), 0), "'bytes in memory': this is no ");
        CHECK_FAILS(parse((format)f, BYTES(index), 0), hint);
    }
}

/* Every beginning of an index is refused; with a bit changed it is, or gives tensors, and nothing stays alive. */
TEST(truncated_and_changed_indices)
{
    static const char bits[] = {1, 16, -128};
    char bytes[400];
    const size_t size = strlen(THREE_SHARDS);
    size_t bad = 0, refusals = 0;
    write_shards();
    const tg_stats_info before = tg_stats();
    for (size_t n = 0; n + 1 < size; ++n) { /* the last one is the end of a line */
        write_file(in_folder("index"), THREE_SHARDS, n);
        tg_clear_error();
        bad += load((n & 1) ? OPEN : SAFETENSORS, in_folder("index")) || tg_error_code() != TG_ERR_FORMAT ||
               !strstr(tg_error_message(), "index'");
    }
    CHECK(bad == 0);
    for (size_t i = 0; i < 3 * size; ++i) {
        tg_mark mark = tg_scope_begin();
        memcpy(bytes, THREE_SHARDS, size);
        bytes[i / 3] = (char)(bytes[i / 3] ^ bits[i % 3]);
        write_file(in_folder("index"), bytes, size);
        tg_clear_error();
        const bool loaded = load(i & 1 ? OPEN : SAFETENSORS, in_folder("index"));
        const tg_status code = tg_error_code();
        refusals += !loaded;
        bad += loaded != tg_ok() || (!loaded && (code != TG_ERR_FORMAT && code != TG_ERR_IO));
        bad += !loaded && !strstr(tg_error_message(), in_folder("")) ;
        tg_scope_end(mark);
    }
    tg_clear_error();
    CHECK(bad == 0 && refusals > size && !alive_changed(&before));
    remove_shards();
}

/* tg_module_load over shards: strict over the tensors of all of them. */
TEST(a_module_in_shards)
{
    tg_module *m = tg_nn_linear(2, 1, true);
    tg_tensor *weight = tg_module_get(m, "weight"), *bias = tg_module_get(m, "bias");
    write_shards();
    write_safetensors(in_folder("a"), "{\"weight\":" PART("BF16", "[1,2]", "0", "4") "}", "\x80\x3f\x40\x40");
    write_safetensors(in_folder("b"), "{\"bias\":" PART("F16", "[1]", "0", "2") "}", "\x01\x3c");
    write_text(in_folder("index"), "{\"weight_map\":{\"weight\":\"a\",\"bias\":\"b\"}}");
    CHECK(tg_module_load(m, in_folder("index")) == TG_OK);
    HAS(tg_detach(weight), "[[1, 3]]");
    HAS(tg_detach(bias), "[1.0009765625]");
    write_text(in_folder("index"), "{\"weight_map\":{\"weight\":\"a\"}}");
    CHECK_FAILS(tg_module_load(m, in_folder("index")), "tg_module_load: these tensors do not fit 'Linear'; missing: bias");
    write_text(in_folder("index"), "{\"weight_map\":{\"weight\":\"a\",\"bias\":\"b\",\"w\":\"sub/c\"}}");
    CHECK_FAILS(tg_module_load(m, in_folder("index")), "tg_module_load: these tensors do not fit 'Linear'; unexpected: w");
    HAS(tg_detach(weight), "[[1, 3]]");
    tg_module_free(m);
    remove_shards();
}

/* The pages of the process that are in memory, in bytes; 0: the system does not tell. */
static int64_t resident(void)
{
    long long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%*d %lld", &pages) != 1) pages = 0;
    if (file) fclose(file);
    return (int64_t)pages * sysconf(_SC_PAGESIZE);
}

/* Two shards that are mapped, each once, cost no memory until their elements are read, and then no memory of ours.  On a
   big-endian processor the elements are copied, since their bytes are reversed, and no mapping stays. */
TEST(shards_are_mapped_and_not_copied)
{
    const int64_t n = 2 * 1024 * 1024; /* 8 MiB each */
    tg_dict *d[2] = {tg_dict_new(), tg_dict_new()};
    for (int i = 0; i < 2; ++i) {
        TG_SCOPE;
        CHECK(tg_dict_set(d[i], i ? "second" : "first", tg_full_on(TG_SHAPE(n), i + 1, TG_F32, TG_CPU)) == TG_OK);
    }
    write_shards();
    CHECK(tg_safetensors_save(in_folder("a"), d[0]) == TG_OK && tg_safetensors_save(in_folder("b"), d[1]) == TG_OK);
    tg_dict_free(d[0]), tg_dict_free(d[1]);
    write_text(in_folder("index"), "{\"weight_map\":{\"first\":\"a\",\"second\":\"b\"}}");
    const int64_t before = resident(), bytes = tg_stats().bytes;
    const bool in_place = is_little_endian();
    tg_dict *mapped = tg_safetensors_open(in_folder("index"));
    const int64_t opened = resident();
    CHECK(mapped && tg_dict_count(mapped) == 2);
    CHECK(is_mapped(".shards/a", in_place) == in_place && is_mapped(".shards/b", in_place) == in_place);
    if (in_place) CHECK(tg_stats().bytes == bytes);
    const float *first = (const float *)tg_data(tg_dict_get(mapped, "first"));
    const float *second = (const float *)tg_data(tg_dict_get(mapped, "second"));
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += (double)first[i] + (double)second[i];
    const int64_t read = resident();
    CHECK(sum == 3.0 * (double)n);
    if (before && in_place) {
        printf("16 MiB in two shards: %.1f MiB are in memory when they are open, %.1f when they were read\n",
               (double)(opened - before) / 1048576, (double)(read - before) / 1048576);
        CHECK(opened - before < n && read - before >= 4 * n);
    }
    tg_dict_free(mapped);
    CHECK(!is_mapped(".shards/a", false) && !is_mapped(".shards/b", false));
    remove_shards();
}

/* ---- IDX and CSV ---- */

TEST(idx)
{
    const char *path = beside("x.idx");
    write_file(path, BYTES(idx_file));
    HAS(tg_idx_load(path), "[[1, 2, -3], [4, 5, 262]]");
    CHECK(tg_dtype_of(tg_idx_load(path)) == TG_I32);
    write_file(path, BYTES("\0\0\10\1\0\0\0\3\1\2\377"));
    HAS(tg_idx_load(path), "[1, 2, 255]");
    write_file(path, BYTES("\0\0\15\1\0\0\0\1\77\200\0\0"));
    HAS(tg_idx_load(path), "[1]");
    write_file(path, BYTES("\0\0\16\1\0\0\0\1\277\360\0\0\0\0\0\0"));
    HAS(tg_idx_load(path), "[-1]");
    write_file(path, BYTES("\0\0\11\1\0\0\0\2\1\200"));
    HAS(tg_idx_load(path), "[1, -128]");
    CHECK(tg_dtype_of(tg_idx_load(path)) == TG_I8);
    write_file(path, BYTES("\0\0\13\1\0\0\0\2\1\0\377\376"));
    HAS(tg_idx_load(path), "[256, -2]");
    CHECK(tg_dtype_of(tg_idx_load(path)) == TG_I16);
    remove(path);
    refused(IDX, BYTES("\0\0\10\1\0\0\0\3\1\2"), "the file ends too early: 3 bytes should follow byte 8, not 2");
    refused(IDX, BYTES("\0\0\10\1\0\0\0\3\1\2\3\4"), "1 bytes follow what should be the end");
    refused(IDX, BYTES("\0\0\10\2\0\0\0\3"), "the file ends too early");
    refused(IDX, BYTES("\0\0\10"), "the file ends too early");
    refused(IDX, BYTES("\0\1\10\1\0\0\0\0"), "this is no IDX file");
    refused(IDX, BYTES("\0\0\12\1\0\0\0\0"), "this is no IDX file");
    refused(IDX, BYTES("\0\0\17\1\0\0\0\0"), "this is no IDX file");
    refused(IDX, BYTES("\0\0\10\11"), "IDX type 0x08 with 9 dims: there may be 8");
    refused(IDX, BYTES("\0\0\10\4\377\377\377\377\377\377\377\377\377\377\377\377\377\377\377\377"), "too large");
    refused(IDX, BYTES("\0\0\10\1\377\377\377\377\1"), "4294967295 bytes should follow");
    refused(IDX, BYTES("\37\213\10\0\0\0\0\0"), "this is no IDX file: it is packed by gzip");
}

/* The table in a text, with the classes. */
static tg_tensor *table(const char *text, const char *classes)
{
    const char *path = beside("table.csv");
    write_text(path, text);
    tg_tensor *t = classes ? tg_csv_load_ex(path, classes) : tg_csv_load(path);
    remove(path);
    return t;
}

/* The table in a text, with options. */
static tg_tensor *table_by(const char *text, tg_csv_options options)
{
    const char *path = beside("table.csv");
    write_text(path, text);
    tg_tensor *t = tg_csv_load_options(path, &options);
    remove(path);
    return t;
}

/* The forms that tables have, found without options: blanks, comments, decimal commas, missing cells, separators that end
   lines, names that are numbers. */
TEST(forms_of_csv)
{
    static const struct { const char *text, *values; } forms[] = {
        {"1.0e+00 2.0e+00\n3.0e+00 4.0e+00\n", "[[1, 2], [3, 4]]"},
        {"  1\t 2 \n 3   4  ", "[[1, 2], [3, 4]]"},
        {"width height\n1 2\n", "[[1, 2]]"},
        {"the width\n1\n2\n", "[[1], [2]]"},
        {"the title\n1,2\n", "[[1, 2]]"},
        {"# a\n  # b,c\n1,2 # d\n#e\n3,4\n", "[[1, 2], [3, 4]]"},
        {"item #,x\n1,2\n", "[[1, 2]]"},
        {"x;y\n1,5;2\n", "[[1.5, 2]]"},
        {"-0,123;2\n", "[[-0.123, 2]]"},
        {"1,5\t1234,567\n,5\t2\n", "[[1.5, 1234.567], [0.5, 2]]"},
        {"1,,3\n4,5,6\n", "[[1, nan, 3], [4, 5, 6]]"},
        {"1,NA,null\nN/A,nan,None\n", "[[1, nan, nan], [nan, nan, nan]]"},
        {",,\n1,2,3\n,,\n", "[[nan, nan, nan], [1, 2, 3], [nan, nan, nan]]"},
        {"1\t\t3\n\t\t\n", "[[1, nan, 3], [nan, nan, nan]]"},
        {"1,2,\n3,4,\n", "[[1, 2], [3, 4]]"},
        {"a,b,\n1,2,\n", "[[1, 2]]"},
        {"a,b,c\n1,2,\n", "[[1, 2, nan]]"},
        {"1;\n2;\n", "[[1], [2]]"},
        {"1,2,\n3,4,5\n", "[[1, 2, nan], [3, 4, 5]]"},
        {"id,2019,2020\n1,2,3\n", "[[1, 2, 3]]"},
        {"\"a\",\"\"\n1,2\n", "[[1, 2]]"},
        {"1,2\r3,4\r", "[[1, 2], [3, 4]]"},
        {"1,2,3\n4,5,6", "[[1, 2, 3], [4, 5, 6]]"},
        {"1,2\t\n3,4 \t\n", "[[1, 2], [3, 4]]"},
        {"1.5,\t2\n3,\t4\n", "[[1.5, 2], [3, 4]]"},
        {"1\t\n2\t\n3\t4\n", "[[1, nan], [2, nan], [3, 4]]"},
        {"1,2,,\n3,4,,\n", "[[1, 2], [3, 4]]"},
        {"a,b,,\n1,2,,\n3,,,\n", "[[1, 2], [3, nan]]"},
        {"a,b,c,,\n1,2,,,\n", "[[1, 2, nan]]"},
        {"1,2,,\n3,4,5,\n", "[[1, 2, nan], [3, 4, 5]]"},
        {"x,y,z\n1,#N/A,3\n#N/A,2,#NA\n", "[[1, nan, 3], [nan, 2, nan]]"},
        {"1 #N/A\n#N/A 2 # #N/A\n", "[[1, nan], [nan, 2]]"},
        {"1.#IND,2\n-1.#QNAN,4\n", "[[nan, 2], [nan, 4]]"},
        {"x;y\n1,5;2,5;\n", "[[1.5, 2.5]]"},
        {"the x\n1,5\n", "[[1, 5]]"},
        {"x\n1,-5\n", "[[1, -5]]"},
        {"x\n1.5,2\n", "[[1.5, 2]]"},
    };
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; ++i) {
        harness.row = forms[i].text;
        HAS(table(forms[i].text, NULL), forms[i].values);
    }
    harness.row = NULL;
}

TEST(options_of_csv)
{
    tg_csv_options o = {NULL, NULL, 0, 0, 0, 0, 0};
    HAS(table_by("a,b\n1,2\n", o), "[[1, 2]]");
    o.skip_header = 2;
    HAS(table_by("1,2\ntitle\na,b\n1,2\n", o), "[[1, 2]]");
    o.skip_header = 0, o.header = 1;
    HAS(table_by("2019,7\n1,2\n", o), "[[1, 2]]");
    HAS(table_by(",0,1\n0,5,6\n", o), "[[0, 5, 6]]");
    HAS(table_by("12,2m\n1,2\n", o), "[[1, 2]]");
    o.header = 0, o.decimal = ',';
    HAS(table_by("1,5\n2,25\n", o), "[[1.5], [2.25]]"); /* no comma stands between cells then */
    HAS(table_by("1,5 2,5\n", o), "[[1.5, 2.5]]");
    HAS(table_by("x\n1,5;\n", o), "[[1.5]]");
    o.decimal = 0, o.delimiter = ',';
    HAS(table_by("x\n1,5\n", o), "[[1, 5]]");
    o.delimiter = 0, o.header = -1;
    HAS(table_by(",0,1\n0,5,6\n", o), "[[nan, 0, 1], [0, 5, 6]]");
    CHECK_FAILS(table_by("a,b\n1,2\n", o), "line 1, column 1: 'a' is not a number");
    o.header = 0, o.decimal = ',', o.delimiter = ' ';
    HAS(table_by("1,234 5\n\"1,5\"\t 2", o), "[[1.234, 5], [1.5, 2]]");
    o.delimiter = 0;
    HAS(table_by("1,234;5\n", o), "[[1.234, 5]]");
    o.decimal = '.', o.delimiter = '|', o.comments = '%', o.missing_values = "?,-999", o.classes = "no,yes";
    HAS(table_by("1|?%c\n%x\n-999|yes\n", o), "[[1, nan], [nan, 1]]");
    o.decimal = '|';
    CHECK_FAILS(table_by("1\n", o), "decimal is '.' or ',', and not the delimiter");
    o.decimal = 0, o.comments = '|';
    CHECK_FAILS(table_by("1\n", o), "delimiter must not be a quote, a line end or the mark of comments");
    o.comments = 0, o.skip_header = -1;
    CHECK_FAILS(table_by("1\n", o), "skip_header is -1, a number of lines");
    CHECK_FAILS(tg_csv_load_options(NULL, NULL), "argument path is NULL");
}

static char csv_warning[400];

static void note_csv_warning(tg_status code, const char *text, void *user)
{
    (void)user;
    if (code == TG_OK) snprintf(csv_warning, sizeof csv_warning, "%s", text);
}

/* A number that the dtype does not hold is an error, an integer that it rounds a warning; a fraction is always rounded. */
TEST(numbers_that_the_dtype_has_not)
{
    static const struct { tg_dtype dtype; const char *text, *warning; } rows[] = {
        {TG_F32, "16777216,0.1,123456789.5\n-16777218,1e30,2\n", ""},
        {TG_F32, "1,2\n16777217,1700000001\n", "f32 has no 16777217 (line 2), which is rounded, as are 1 more"},
        {TG_F32, "9007199254740993\n", "f32 has no 9007199254740993 (line 1)"},
        {TG_F64, "1700000001,9007199254740992\n", ""},
        {TG_F64, "-9007199254740993\n", "f64 has no -9007199254740993"},
        {TG_F64, "100000000000000000000\n", "f64 has no 100000000000000000000"},
        {TG_BF16, "256,258\n", ""},
        {TG_BF16, "257\n", "bf16 has no 257"},
        {TG_F16, "2049\n", "f16 has no 2049"},
    };
    tg_set_error_handler(note_csv_warning, NULL);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
        csv_warning[0] = 0;
        harness.row = rows[i].text;
        tg_set_default_dtype(rows[i].dtype);
        CHECK(table(rows[i].text, NULL) && strstr(csv_warning, rows[i].warning) && (*csv_warning != 0) == (*rows[i].warning != 0));
    }
    harness.row = NULL;
    tg_set_error_handler(NULL, NULL);
    CHECK_FAILS(table("1\n65520\n", NULL), "line 2, column 1: '65520' is too large for f16");
    HAS(table("65519\n", NULL), "[[65504]]");
    tg_set_default_dtype(TG_F32);
    CHECK_FAILS(table("1,3.5e38\n", NULL), "line 1, column 2: '3.5e38' is too large for f32");
    HAS(table("-inf,3.4028235e38\n", NULL), "[[-inf, 3.4028234663852886e38]]");
    tg_set_default_dtype(TG_F64);
    CHECK_FAILS(table("1e400\n", NULL), "'1e400' is too large for f64");
    HAS(table("1e308,1e-400\n", NULL), "[[1e308, 0]]");
    tg_set_default_dtype(TG_F32);
}

TEST(csv)
{
    HAS(table("1,2,3\n4,5,6\n", NULL), "[[1, 2, 3], [4, 5, 6]]");
    HAS(table("1,2\r\n3,4", NULL), "[[1, 2], [3, 4]]");
    HAS(table("1\n\n  \n-2.5e1\n", NULL), "[[1], [-25]]");
    HAS(table("\n a , b\n 1 , +.5 \n", NULL), "[[1, 0.5]]");
    HAS(table("a;b\n1;2\n", NULL), "[[1, 2]]");
    HAS(table("1\t 2\t3\n", NULL), "[[1, 2, 3]]");
    HAS(table("\"1\",\" 2 \"\n\"3\",4\n", NULL), "[[1, 2], [3, 4]]");
    HAS(table("\"x;y\",\"a\nb \"\"c\"\"\"\n1,2\n", NULL), "[[1, 2]]");
    HAS(table("\xEF\xBB\xBFx\n1\n", NULL), "[[1]]");
    HAS(table("nan,-inf,Infinity,NaN\n", NULL), "[[nan, -inf, inf, nan]]");
    HAS(table("5.1,setosa\n4.9,virginica\n", "setosa,versicolor,virginica"), "[[5.1, 0], [4.9, 2]]");
    HAS(table("a,b\n", "a,b"), "[[0, 1]]");
    HAS(table("\"a\",7\n", "a"), "[[0, 7]]");
    CHECK(tg_dtype_of(table("1", NULL)) == TG_F32 && tg_set_default_dtype(TG_F64) == TG_OK);
    HAS(table("0.1", NULL), "[[0.1]]");
    CHECK(tg_dtype_of(table("1", NULL)) == TG_F64 && tg_set_default_dtype(TG_F32) == TG_OK);
}

/* In a locale with a comma between the digits, if there is one. */
TEST(csv_in_another_locale)
{
    tg_tensor *expected = f64("[[1.5, 2.25]]"), *t;
    if (comma_locale()) CHECK((t = table("1.5,2.25\n", NULL)) && tg_equal(tg_cpu(tg_to_dtype(t, TG_F64)), tg_cpu(expected)));
    setlocale(LC_ALL, "C");
}

TEST(hostile_csv)
{
    static const struct { const char *text, *error; } texts[] = {
        {"", "this is no table in CSV: it is empty"},
        {"a,b\n", "there is no row of numbers"},
        {"a,b\nc,d\n", "line 2, column 1: 'c' is not a number"},
        {"1,2\n3\n", "line 2 has 1 cells, the lines before it have 2"},
        {"1,2\n3,4,5\n", "line 2 has 3 cells, the lines before it have 2"},
        {"1,2\n\n3,x\n", "line 3, column 2: 'x' is not a number"},
        {"1,2,\n3,4\n", "line 2 has 2 cells, the lines before it have 3"},
        {"1,abc\n2,3\n", "line 1, column 2: 'abc' is not a number"},
        {"abc,1\n2,3\n", "line 1, column 1: 'abc' is not a number"},
        {"1.2.3,4.5.6\n7,8\n", "line 1, column 1: '1.2.3' is not a number"},
        {",0,1\n0,5,6\n", "line 1 can be names of columns or numbers"},
        {"\"1\"2,3\n", "line 1, column 1: '12' is not a number"},
        {"1,2#3\n", "'2#3' is not a number"},
        {"1;2,500\n", "decimal = ','"},
        {"title\na,b\n1,2\n", "line 2, column 1: 'a' is not a number"},
        {"1 000;2\n", "'1 000' is not a number"},
        {"1,0x10\n", "line 1, column 2: '0x10' is not a number"},
        {"1,1e\n", "'1e' is not a number"},
        {"1,1 2\n", "'1 2' is not a number"},
        {"1,infinite\n", "'infinite' is not a number"},
        {"1,\"2\n3,4\n", "line 1, column 2: '2?3,4?' is not a number"},
        {"1.5;2,5\n", "line 1, column 2: '2,5' is not a number"},
        {"1,\x1b[31m\n", "'?[31m' is not a number"},
        {"?,?\n1,2\n", "line 1, column 1: '?' is not a number"},
        {"1,#DIV/0!\n2,3\n", "'#DIV/0!' is not a number"},
        {"#REF!,1\n2,3\n", "line 1, column 1: '#REF!' is not a number"},
        {"1|2\n3|4\n", "hint: if this is more than one cell: delimiter of tg_csv_options"},
        {"x\n1,5\n2,5\n", "the commas from line 2 on can stand between cells or before fractions"},
        {"x,y\n1,5,-2,5\n", "the commas from line 2 on can stand between cells or before fractions"},
        {"1,2;\n3,4;\n", "the commas from line 1 on can stand between cells or before fractions"},
    };
    char longest[1000];
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; ++i) {
        refused(CSV, texts[i].text, strlen(texts[i].text), texts[i].error);
    }
    memset(longest, '1', sizeof longest);
    longest[1] = '\n';
    refused(CSV, longest, sizeof longest, "is not a number");
    refused(CSV, "1,2\0003,4", 7, "this is no text: it has zero bytes");
    CHECK_FAILS(table("1,setosa\n2,other\n", "setosa,versicolor"), "line 2, column 2: 'other' is not a number");
    CHECK_FAILS(table("1,set\n", "setosa"), "'set' is not a number");
    HAS(table("1,\n2,3\n", ",a"), "[[1, nan], [2, 3]]"); /* an empty cell is no class */
}

/* Of tables, their beginnings and what differs in a bit, the bytes give what the file gives: numbers, or an error. */
TEST(csv_in_memory)
{
    static const char *const texts[] = {"1,2,3\n4,5,6\n", "a;b\r\n-1,5;\"2\"\r\n", "# c\n1 2\n3 NA # d\n", "\xEF\xBB\xBFx\t y\n.5\t1e3\n"};
    static const char bits[] = {1, 16, -128};
    const char *path = beside("bytes.csv");
    size_t bad = 0, loads = 0;
    for (size_t k = 0; k < sizeof texts / sizeof texts[0]; ++k) {
        const size_t size = strlen(texts[k]);
        for (size_t i = 0; i < 4 * size + 1; ++i) { /* beginnings, and at last the whole text; then the bits */
            tg_mark mark = tg_scope_begin();
            const size_t n = i <= size ? i : size;
            char *bytes = (char *)malloc(n + 1), said[1000] = "";
            memcpy(bytes, texts[k], n);
            if (i > size) bytes[(i - size - 1) / 3] = (char)(bytes[(i - size - 1) / 3] ^ bits[(i - size - 1) % 3]);
            write_file(path, bytes, n);
            if (n) bytes = (char *)realloc(bytes, n); /* a sanitizer sees what reads on */
            tg_clear_error();
            tg_tensor *file = tg_csv_load(path);
            const tg_status code = tg_error_code();
            snprintf(said, sizeof said, "%s", said_behind("bytes.csv'"));
            tg_clear_error();
            tg_tensor *memory = tg_csv_parse(bytes, n, NULL);
            free(bytes);
            loads += file != NULL;
            bad += !file != !memory || tg_error_code() != code || strcmp(said, said_behind("bytes in memory'"));
            bad += !file && code != TG_ERR_FORMAT;
            if (file && memory) {
                bad += !same_shape(tg_shape_of(file), tg_shape_of(memory)) ||
                       memcmp(tg_data(file), tg_data(memory), (size_t)tg_numel(file) * sizeof(float)) != 0;
            }
            tg_clear_error();
            tg_scope_end(mark);
        }
    }
    CHECK(bad == 0 && loads > 30);
    tg_csv_options options;
    memset(&options, 0, sizeof options);
    options.delimiter = '|';
    tg_tensor *t = tg_csv_parse(BYTES("1|2\n3|4"), &options);
    HAS(t, "[[1, 2], [3, 4]]");
    CHECK(tg_zero_(t) != NULL); /* a copy */
    CHECK_FAILS(tg_csv_parse(NULL, 4, NULL), "tg_csv_parse: argument data is NULL");
    options.skip_header = -1;
    CHECK_FAILS(tg_csv_parse("1", 1, &options), "skip_header is -1");
    tg_set_error_handler(note_csv_warning, NULL);
    csv_warning[0] = 0;
    CHECK(tg_csv_parse(BYTES("16777217"), NULL) != NULL);
    tg_set_error_handler(NULL, NULL);
    CHECK(strstr(csv_warning, "tg_csv_parse: 'bytes in memory': f32 has no 16777217 (line 1)"));
    remove(path);
}

/* Files of other kinds are called by name, by each reader. */
TEST(other_files)
{
    static const struct { const char *bytes; size_t size; const char *what; } files[] = {
        {BYTES("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 5\n"), "a Git LFS pointer"},
        {BYTES("\n<!DOCTYPE html><html>Not found</html>"), "HTML or XML"},
        {BYTES("PK\3\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x10\0\0\0archive/data.pkl\0\0"), "torch.save"},
        {BYTES("\x80\2\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19."), "a pickle of an older torch.save"},
        {BYTES("\x80\4\x95\x10\0\0\0\0\0\0\0}"), "a Python pickle"},
        {BYTES("GGUF\3\0\0\0\0\0\0\0\0"), "a GGUF file"},
        {BYTES("\x89HDF\r\n\x1a\n\0\0"), "an HDF5 file"},
        {BYTES("\x89PNG\r\n\x1a\n\0\0"), "a PNG image"},
        {BYTES("\x1f\x8b\10\0\0\0\0\0\0\3"), "packed by gzip"},
        {BYTES("\10\7\x12\7pytorch\x1a"), "an ONNX model"},
        {BYTES("\xff\xfe" "1\0,\0" "2\0"), "text in UTF-16"},
        {BYTES("\xEF\xBB\xBFversion https://hawser.github.com/spec/v1\r\noid 1\r\n"), "a Git LFS pointer"},
        {BYTES("/annex/objects/SHA256E-s1234--abcdef.safetensors\n"), "a git-annex pointer"},
        {BYTES("<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code></Error>"), "HTML or XML"},
        {BYTES("(dp0\nVw\np1\nF1\ns."), "a Python pickle"},
        {BYTES("}q\0X\1\0\0\0wq\1K\1s."), "a Python pickle"},
        {BYTES("7z\xbc\xaf\x27\x1c\0\4\0\0"), "packed by 7-Zip"},
        {BYTES("\x1c\0\0\0TFL3\0\0\0"), "a model of TensorFlow Lite"},
        {BYTES("SQLite format 3\0\x10\0\1\1"), "an SQLite database"},
        {BYTES("\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"), "nothing but zero bytes at its beginning"},
        {BYTES(""), "it is empty"},
    };
    char tar[512] = "model/w.npy";
    for (int f = SAFETENSORS; f <= CSV; ++f) {
        for (size_t i = 0; i < sizeof files / sizeof files[0]; ++i)
            refused((format)f, files[i].bytes, files[i].size, files[i].what);
        memcpy(tar + 257, "ustar", 5);
        refused((format)f, tar, sizeof tar, "packed by tar");
        CHECK(!load((format)f, ".") && tg_error_code() == TG_ERR_IO && strstr(tg_error_message(), "'.': this is a folder"));
        tg_clear_error();
        if (f == CSV) continue;
        refused((format)f, BYTES("{\n\t\"error\": \"Repository not found\"}"), "JSON text, which begins '{  \"error\": \"Repos");
        refused((format)f, BYTES("\nEntry not found\n"), "it is text, which begins 'Entry not found");
        if (f != NPZ && f != NPZ_LIST) refused((format)f, BYTES(stored), "perhaps an .npz archive");
    }
    char accents[3000] = "";
    for (int i = 0; i < 1000; ++i) strcat(accents, i % 7 ? "\xc3\xa9" : "e");
    refused(MODULE, accents, strlen(accents), "it is text, which begins 'e\xc3\xa9");
    refused(MODULE, saved_by_safetensors, sizeof saved_by_safetensors - 9, "the file ends too early: the tensors have 24 bytes");
    refused(CHECKPOINT, BYTES(saved_by_safetensors), "hostile': this file is no checkpoint: it has no 'rng'");
    refused(CSV, BYTES(saved_by_safetensors), "it is a safetensors file");
    refused(NPY, BYTES("1,2\n"), "this is no .npy file: it is text");
}

/* ---- out of memory ---- */

static bool save_fails_whole(tg_status status, const char *path)
{
    if (status == TG_OK) return true;
    harness_check(file_is(path, BYTES("old")), "the old file is there", __FILE__, __LINE__);
    return false;
}

static bool dictionary_scenario(tg_status (*save)(const char *, tg_dict *), tg_dict *(*load_back)(const char *))
{
    const char *path = beside("memory");
    tg_dict *d = tg_dict_new(), *inner = tg_dict_new(), *back = NULL;
    tg_tensor *t = tg_t(tg_ones(TG_SHAPE(3, 40)));
    bool ok = t && tg_dict_set(inner, "y", t) == TG_OK;
    ok = tg_dict_set_dict(d, "inner", inner) == TG_OK && ok && tg_dict_set(d, "x", t) == TG_OK &&
         tg_dict_set_metadata(d, "k", "v") == TG_OK;
    write_text(path, "old");
    ok = ok && save_fails_whole(save(path, d), path) && (back = load_back(path)) != NULL;
    tg_dict_free(back);
    tg_dict_free(d);
    remove(path);
    return ok;
}

static bool safetensors_scenario(void) { return dictionary_scenario(tg_safetensors_save, tg_safetensors_load); }
static bool mapped_scenario(void) { return dictionary_scenario(tg_safetensors_save, tg_safetensors_open); }
static bool npz_scenario(void) { return dictionary_scenario(tg_npz_save, tg_npz_load); }

static bool tensor_scenario(void)
{
    const char *path = beside("memory");
    tg_tensor *t = tg_t(tg_ones(TG_SHAPE(3, 40)));
    tg_dict *d = NULL;
    write_text(path, "old");
    bool ok = t && save_fails_whole(tg_npy_save(path, t), path) && tg_npy_load(path) != NULL;
    write_file(path, BYTES(deflated));
    ok = ok && (d = tg_npz_load(path)) != NULL;
    tg_dict_free(d);
    write_file(path, BYTES(idx_file));
    ok = ok && tg_idx_load(path) != NULL;
    write_text(path, "1,2\n3,a\n");
    ok = ok && tg_csv_load_ex(path, "a") != NULL;
    remove(path);
    return ok;
}

/* The files are written by the first run. */
static bool shards_scenario(void)
{
    bool ok = true;
    if (!folder) write_shards();
    for (int k = 0; k < 3 && ok; ++k) {
        tg_dict *d = readers[k](in_folder("index"));
        ok = d != NULL;
        tg_dict_free(d);
    }
    return ok;
}

static bool bytes_scenario(void)
{
    tg_dict *d = tg_safetensors_list_from(BYTES(saved_by_safetensors)), *e = d ? tg_npz_list_from(BYTES(deflated)) : NULL;
    tg_dict_free(d), tg_dict_free(e);
    return e && tg_csv_parse(BYTES("1,2\n3,4\n"), NULL) != NULL;
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    harness_take_device();
    if (!harness.only) {
        out_of_memory(shards_scenario);
        remove_shards();
        out_of_memory(bytes_scenario);
        out_of_memory(safetensors_scenario);
        out_of_memory(mapped_scenario);
        out_of_memory(npz_scenario);
        out_of_memory(tensor_scenario);
    }
    RUN(safetensors_round_trip);
    RUN(safetensors_in_the_same_bytes);
    RUN(npy_round_trip);
    RUN(npy_headers);
    RUN(npz_round_trip);
    RUN(npz_of_others);
    RUN(npz_leaves_out);
    RUN(saving_leaves_no_trace);
    RUN(a_save_that_fails_leaves_the_old_file);
    RUN(a_full_disk);
    RUN(saving_over_a_file);
    RUN(every_save_keeps_what_is_there);
    RUN(names_as_long_as_they_may_be);
    RUN(what_is_no_file);
    RUN(hostile_safetensors);
    RUN(safetensors_of_others);
    RUN(safetensors_leaves_out);
    RUN(safetensors_with_other_integers);
    RUN(unsigned_integers_are_written);
    RUN(many_tensors_in_one_header);
    RUN(many_texts);
    RUN(hostile_npy);
    RUN(hostile_npz);
    RUN(hostile_zip64);
    RUN(entries_that_differ_in_their_ending);
    RUN(hostile_deflated_npz);
    RUN(truncated_and_changed_files);
    RUN(safetensors_in_memory);
    RUN(safetensors_mapped);
    RUN(npy_in_memory);
    RUN(npz_and_idx_in_memory);
    RUN(lists_in_memory);
    RUN(shards_of_an_index);
    RUN(shards_of_other_places);
    RUN(shards_leave_out);
    RUN(hostile_shards);
    RUN(an_index_where_it_is_not_read);
    RUN(truncated_and_changed_indices);
    RUN(a_module_in_shards);
    RUN(shards_are_mapped_and_not_copied);
    RUN(idx);
    RUN(csv);
    RUN(forms_of_csv);
    RUN(options_of_csv);
    RUN(numbers_that_the_dtype_has_not);
    RUN(csv_in_another_locale);
    RUN(hostile_csv);
    RUN(csv_in_memory);
    RUN(other_files);
    CHECK(tg_shutdown() == TG_OK);
    return harness_end();
}
