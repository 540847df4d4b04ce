/* The engine: moves and dtypes on the CPU (section 1 of the semantics list), gradients (section 2), lifetimes, scopes,
 * views and writes in place, hooks, runs, custom functions and checkpoints.  ROW(2.14) marks what a row of the list
 * asks for; at the end tests/semantics.txt, which has a line for every row, is held against the rows that ran.
 *     test_engine [part of a test's name] [path of semantics.txt] */
#if !defined(__cplusplus) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#define TENSORGRAD_IMPLEMENTATION
#include "tensorgrad.h"
#include "semantics.h"
#include "helpers.h"
#include <time.h>

/* ---- helpers ---- */

/* Values and gradients of fn at the numbers of a text. */
static bool slope(tg_tensor *(*fn)(tg_tensor *), const char *at, const char *values, const char *gradients)
{
    TG_SCOPE;
    tg_tensor *x = leaf(at), *y = fn(x);
    bool ok = has(y, values);
    return backward_sum(y) == TG_OK && has(tg_grad(x), gradients) && ok;
}
#define SLOPE(fn, at, values, gradients) CHECK(slope(fn, at, values, gradients))

static bool slope2(tg_tensor *(*fn)(tg_tensor *, tg_tensor *), const char *a_at, const char *b_at, const char *values,
                   const char *a_gradients, const char *b_gradients)
{
    TG_SCOPE;
    tg_tensor *a = leaf(a_at), *b = leaf(b_at), *y = fn(a, b);
    bool ok = has(y, values);
    return backward_sum(y) == TG_OK && has(tg_grad(a), a_gradients) && has(tg_grad(b), b_gradients) && ok;
}
#define SLOPE2(fn, a, b, values, a_gradients, b_gradients) CHECK(slope2(fn, a, b, values, a_gradients, b_gradients))

/* A log of letters that hooks write. */
static char journal[64];
static void note(char c)
{
    size_t n = strlen(journal);
    if (n + 1 < sizeof journal) journal[n] = c, journal[n + 1] = 0;
}

static tg_tensor *hook_note(tg_tensor *g, void *user)
{
    (void)g;
    note(*(const char *)user);
    return NULL;
}
static tg_tensor *hook_dtype(tg_tensor *g, void *user)
{
    *(tg_dtype *)user = tg_dtype_of(g);
    return NULL;
}

/* ---- section 1: moves and dtypes, as far as one device goes ---- */

TEST(moves_that_change_nothing)
{
    tg_tensor *x = leaf("[1, 2]"), *y;
    tg_device zero;
    ROW(1.1) {
        CHECK(tg_to(x, HERE) == x && tg_to_dtype(x, TG_F64) == x && tg_to_like(x, f64("[7]")) == x);
        CHECK(tg_to_ex(x, HERE, TG_F64, TG_NON_BLOCKING) == x);
    }
    ROW(1.2) CHECK((tg_is_cuda(x) ? tg_cuda(x) : tg_cpu(x)) == x && tg_to_dtype(x, tg_dtype_of(x)) == x);
    ROW(1.4) { /* dtype, device and TG_COPY decide, each alone */
        CHECK(tg_to_ex(x, HERE, TG_F64, 0) == x);
        CHECK(tg_to_ex(x, HERE, TG_F32, 0) != x);
        CHECK(tg_to_ex(x, HERE, TG_F64, TG_COPY) != x);
        y = tg_t(f64("[[1, 2], [3, 4]]")); /* its layout does not */
        CHECK(tg_to_ex(y, HERE, TG_F64, 0) == y);
    }
    ROW(1.5) {
        y = tg_to_ex(x, HERE, TG_F64, TG_COPY);
        CHECK(y != x && tg_data(y) != tg_data(x) && tg_equal(x, y) && !tg_is_leaf(y) && tg_requires_grad(y));
    }
    ROW(1.6) {
        tg_tensor *a = f64("[1, 2]"), *same = tg_to(a, HERE), *copy = tg_to_ex(a, HERE, TG_F64, TG_COPY);
        tg_add_scalar_(copy, 5);
        HAS(a, "[1, 2]");
        CHECK(tg_version_of(a) == 0);
        tg_add_scalar_(same, 5);
        HAS(a, "[6, 7]");
        CHECK(tg_version_of(a) == 1);
    }
    ROW(1.8) {
        y = tg_to(x, HERE);
        CHECK(tg_is_leaf(y) && tg_requires_grad(y));
        CHECK(backward_sum(y) == TG_OK);
        HAS(tg_grad(x), "[1, 1]");
    }
    ROW(1.9) {
        tg_tensor *there = tg_cpu(x);
        CHECK(tg_device_parse("cpu:0", &zero) == TG_OK && tg_device_equal(zero, TG_CPU) && tg_to(there, zero) == there);
    }
}

TEST(moves_that_copy)
{
    ROW(1.12) {
        tg_tensor *a = f64("[[1, 2], [3, 4]]"), *view = tg_select(a, 0, 1), *y = tg_to_dtype(view, TG_F32);
        tg_add_scalar_(a, 0);
        y = tg_to_dtype(view, TG_F32);
        CHECK(tg_version_of(y) == 0 && tg_data(y) != tg_data(view));
        tg_fill_(a, 9);
        HAS(y, "[3, 4]");
    }
    ROW(1.13) {
        tg_tensor *y = tg_to_dtype(tg_t(tg_zeros(TG_SHAPE(6, 1))), TG_F64);
        CHECK(tg_dim(y, 0) == 1 && tg_stride(y, 1) == 1);
        y = tg_to_dtype(tg_t(f64("[[0, 1, 2], [3, 4, 5]]")), TG_F32);
        CHECK(tg_stride(y, 0) == 1 && tg_stride(y, 1) == 3);
        HAS(y, "[[0, 3], [1, 4], [2, 5]]");
    }
    ROW(1.14) {
        tg_tensor *gaps = tg_slice(tg_zeros(TG_SHAPE(2, 6)), 1, 0, 6, 2), *y = tg_to_dtype(gaps, TG_F64);
        CHECK(tg_stride(y, 0) == 3 && tg_stride(y, 1) == 1);
        y = tg_slice(tg_permute(tg_zeros(TG_SHAPE(2, 3, 4)), TG_DIMS(2, 0, 1)), 2, 0, 3, 2); /* PyTorch: (1, 8, 4) */
        y = tg_to_dtype(y, TG_F64);
        CHECK(tg_stride(y, 0) == 1 && tg_stride(y, 1) == 8 && tg_stride(y, 2) == 4);
    }
    ROW(1.15) {
        tg_tensor *wide = tg_expand(tg_ones(TG_SHAPE(3, 1)), TG_SHAPE(3, 4)), *y = tg_to_dtype(wide, TG_F64);
        CHECK(tg_stride(y, 0) == 4 && tg_stride(y, 1) == 1);
        y = tg_to_ex(wide, HERE, TG_F32, TG_COPY);
        CHECK(tg_stride(y, 0) == 4 && tg_stride(y, 1) == 1);
        y = tg_clone(wide);
        CHECK(tg_stride(y, 0) == 4 && tg_stride(y, 1) == 1);
    }
    ROW(1.16) {
        tg_tensor *image = tg_permute(tg_zeros(TG_SHAPE(2, 4, 5, 3)), TG_DIMS(0, 3, 1, 2)),
                  *y = tg_to_dtype(image, TG_F64);
        CHECK(tg_stride(y, 0) == 60 && tg_stride(y, 1) == 1 && tg_stride(y, 2) == 15 && tg_stride(y, 3) == 3);
    }
    ROW(1.17) {
        tg_tensor *y = tg_contiguous(tg_t(f64("[[0, 1, 2], [3, 4, 5]]")));
        CHECK(tg_is_contiguous(y) && tg_stride(y, 0) == 2);
        HAS(y, "[[0, 3], [1, 4], [2, 5]]");
    }
    ROW(1.18) {
        int dims[7] = {0, 1, 2, 3, 4, 5, 6}, i, k, times;
        uint32_t random = 12345;
        for (times = 0; times < 10; ++times) {
            tg_tensor *x, *y;
            bool same = true;
            for (i = 6; i > 0; --i) {
                int swap = dims[i];
                random = random * 1664525u + 1013904223u;
                k = (int)((random >> 8) % (uint32_t)(i + 1));
                dims[i] = dims[k], dims[k] = swap;
            }
            x = tg_permute(tg_reshape(tg_arange(0, 768, 1), TG_SHAPE(2, 3, 2, 4, 2, 4, 2)),
                           TG_DIMS(dims[0], dims[1], dims[2], dims[3], dims[4], dims[5], dims[6]));
            y = tg_to_dtype(x, TG_F64);
            for (i = 0; i < 7; ++i) same = same && tg_stride(x, i) == tg_stride(y, i);
            CHECK(same && tg_equal(x, y));
        }
    }
    ROW(1.19) {
        tg_tensor *empty = tg_to_dtype(tg_zeros(TG_SHAPE(0, 3)), TG_F64), *y = tg_to_dtype(scalar(2), TG_F32);
        CHECK(tg_numel(empty) == 0 && tg_dim(empty, 1) == 3 && tg_dtype_of(empty) == TG_F64);
        CHECK(tg_ndim(y) == 0 && tg_dtype_of(y) == TG_F32);
    }
    ROW(1.20) { /* a NaN with a payload, -0, a denormal: bit for bit */
        uint32_t bits[4] = {0x7fc12345u, 0x80000000u, 1u, 0xffa00001u}, back[4];
        tg_tensor *y = tg_to_ex(tg_from(bits, TG_SHAPE(4), TG_F32), HERE, TG_F32, TG_COPY);
        CHECK(tg_copy_out(y, back, sizeof back) == TG_OK && memcmp(bits, back, sizeof bits) == 0);
        y = tg_clone(tg_slice(tg_from(bits, TG_SHAPE(4), TG_F32), 0, 0, 4, 3));
        CHECK(tg_copy_out(y, back, 8) == TG_OK && back[0] == bits[0] && back[1] == bits[3]);
    }
    ROW(1.21) {
        tg_tensor *a = f64("[1, 2]"), *y = tg_to_dtype(a, TG_F32);
        tg_fill_(a, 7);
        HAS(y, "[1, 2]");
    }
    ROW(1.98) HAS(tg_to_ex(f64("[1.5, 2]"), HERE, TG_F32, TG_NON_BLOCKING), "[1.5, 2]");
    ROW(1.115) {
        tg_tensor *x = leaf("[1, 2]"), *z = tg_zeros_like(x);
        CHECK(tg_dtype_of(z) == TG_F64 && !tg_requires_grad(z) && tg_dtype_of(tg_randn_like(x)) == TG_F64);
        CHECK(tg_dtype_of(tg_ones_like(of(TG_I64, "[1, 2]"))) == TG_I64);
    }
    ROW(1.116) {
        tg_tensor *x = f64("[1, 2]"), *other = leaf_of(TG_F32, "[1]"), *y = tg_to_like(x, other);
        CHECK(tg_dtype_of(y) == TG_F32 && !tg_requires_grad(y));
    }
}

TEST(dtype_conversion)
{
    ROW(1.22) {
        HAS(tg_to_dtype(of(TG_F16, "[65519, 65520, 1e-8]"), TG_F64), "[65504, inf, 0]");
        HAS(tg_to_dtype(of(TG_BF16, "[1.00390625, 1.01171875, nan]"), TG_F64), "[1, 1.015625, nan]");
        CHECK_NEAR(tg_item(of(TG_F32, "[0.1]")), (double)0.1f, 0);
        CHECK_NEAR(tg_item(tg_to_dtype(f64("[16777217]"), TG_F32)), 16777216, 0); /* half to even */
        CHECK_NEAR(tg_item(tg_to_dtype(f64("[16777219]"), TG_F32)), 16777220, 0);
    }
    ROW(1.23) HAS(of(TG_I32, "[3.7, -3.7, 0.5, -0.5]"), "[3, -3, 0, 0]");
    ROW(1.24) { /* saturates, NaN to 0: a rule of our own, where C has undefined behaviour */
        int64_t back[3];
        HAS(of(TG_I32, "[1e20, -1e20, nan, inf, -inf]"), "[2147483647, -2147483648, 0, 2147483647, -2147483648]");
        HAS(of(TG_U8, "[256, 300, -1, nan, 255]"), "[255, 255, 0, 0, 255]");
        CHECK(tg_copy_out(of(TG_I64, "[1e300, -1e300, nan]"), back, sizeof back) == TG_OK);
        CHECK(back[0] == INT64_MAX && back[1] == INT64_MIN && back[2] == 0);
        HAS(tg_to_dtype(of(TG_BF16, "[1e30, -1e30]"), TG_I32), "[2147483647, -2147483648]");
    }
    ROW(1.25) HAS(of(TG_BOOL, "[nan, -0.0, 2, 0, 0.25]"), "[1, 0, 1, 0, 1]");
    ROW(1.26) {
        int64_t big[2] = {9007199254740993, -9007199254740993};
        HAS(tg_to_dtype(of(TG_BOOL, "[3, 0]"), TG_F32), "[1, 0]");
        HAS(tg_to_dtype(of(TG_BOOL, "[3, 0]"), TG_I64), "[1, 0]");
        CHECK_NEAR(tg_get(tg_to_dtype(tg_from_i64(big, TG_SHAPE(2)), TG_F64), TG_INDEX(0)), 9007199254740992.0, 0);
    }
    ROW(1.28) {
        tg_tensor *y = tg_to_dtype(leaf("[1, 2]"), TG_I64);
        CHECK(!tg_requires_grad(y) && tg_is_leaf(y));
    }
}

TEST(gradients_through_moves)
{
    ROW(1.31) {
        tg_tensor *y = tg_to_dtype(leaf_of(TG_F32, "[1, 2]"), TG_F64);
        CHECK(!tg_is_leaf(y) && tg_requires_grad(y));
    }
    ROW(1.32) {
        tg_tensor *x = leaf_of(TG_F32, "[1, 2]"), *y = tg_to_dtype(x, TG_F64);
        warnings = 0;
        tg_set_error_handler(keep_warning, NULL);
        CHECK(backward_sum(tg_mul(y, y)) == TG_OK && tg_dtype_of(tg_grad(x)) == TG_F32);
        CHECK(tg_grad(y) == NULL && warnings == 1 && strstr(warned, "not a leaf Tensor is being accessed"));
        tg_set_error_handler(NULL, NULL);
        HAS(tg_grad(x), "[2, 4]");
    }
    ROW(1.33) {
        tg_tensor *x = leaf_of(TG_F32, "[1, 2]"), *y = tg_retain_grad(tg_to_dtype(x, TG_F64));
        CHECK(backward_sum(y) == TG_OK);
        CHECK(tg_dtype_of(tg_grad(y)) == TG_F64 && tg_dtype_of(tg_grad(x)) == TG_F32);
    }
    ROW(1.34) { /* the backward of a move is a move, or nothing where nothing changes */
        tg_tensor *x = leaf("[1, 2]"), *g = f64("[3, 4]"), *y = tg_to_ex(x, HERE, TG_F64, TG_COPY);
        CHECK(backward_with(y, g, 0) == TG_OK);
        HAS(tg_grad(x), "[3, 4]");
    }
    ROW(1.35) {
        tg_tensor *x = leaf_of(TG_F32, "[1, 2]"), *narrow = tg_to_dtype(tg_to_dtype(x, TG_F64), TG_F16);
        tg_tensor *y = tg_to_dtype(narrow, TG_F32);
        CHECK(backward_with(y, of(TG_F32, "[1e-9, 1]"), 0) == TG_OK && tg_dtype_of(tg_grad(x)) == TG_F32);
        HAS(tg_grad(x), "[0, 1]");
    }
    ROW(1.36) {
        tg_tensor *x = leaf_of(TG_F32, "[1, 2]");
        CHECK(backward_sum(tg_add(tg_to_dtype(x, TG_F64), tg_to_dtype(x, TG_F64))) == TG_OK);
        HAS(tg_grad(x), "[2, 2]");
    }
    ROW(1.37) {
        tg_tensor *x = leaf_of(TG_F32, "[3]"), *y = tg_to_dtype(x, TG_F64), *g;
        g = gradient(tg_mul(y, tg_mul(y, y)), x, TG_CREATE_GRAPH);
        CHECK(tg_requires_grad(g) && tg_dtype_of(g) == TG_F32);
        HAS(gradient(g, x, 0), "[18]");
    }
    ROW(1.38) {
        TG_NO_GRAD;
        tg_tensor *x = leaf_of(TG_F32, "[1]"), *y = tg_to_dtype(x, TG_F64);
        CHECK(!tg_requires_grad(y) && tg_is_leaf(y) && tg_to(x, HERE) == x && tg_requires_grad(x));
    }
    ROW(1.40) {
        tg_tensor *x = tg_set_requires_grad(tg_ones_on(TG_SHAPE(3), TG_F64, HERE), true);
        tg_tensor *moved = tg_to_dtype(tg_set_requires_grad(tg_ones(TG_SHAPE(3)), true), TG_F64);
        CHECK(tg_is_leaf(x) && !tg_is_leaf(moved));
    }
    ROW(1.41) {
        tg_tensor *x = leaf_of(TG_F32, "[1, 2]"), *a, *b;
        a = tg_set_requires_grad(tg_to_dtype(tg_detach(x), TG_F64), true);
        b = tg_set_requires_grad(tg_detach(tg_to_dtype(x, TG_F64)), true);
        CHECK(tg_is_leaf(a) && tg_is_leaf(b) && backward_sum(tg_mul(a, b)) == TG_OK && tg_grad(x) == NULL);
        HAS(tg_grad(a), "[1, 2]");
    }
    ROW(1.42) CHECK(tg_is_leaf(tg_set_requires_grad(tg_to_dtype(of(TG_F32, "[1]"), TG_F64), true)));
    ROW(1.43) {
        tg_tensor *x = leaf_of(TG_F32, "[1, 2]"), *y = tg_to_dtype(x, TG_F64);
        tg_dtype seen[2] = {TG_BOOL, TG_BOOL};
        tg_hook(x, hook_dtype, &seen[0]);
        tg_hook(y, hook_dtype, &seen[1]);
        CHECK(backward_sum(y) == TG_OK && seen[0] == TG_F32 && seen[1] == TG_F64);
    }
    ROW(1.44) {
        tg_tensor *x = leaf_of(TG_F32, "[1, 2]"), *y = tg_to_dtype(x, TG_F64);
        CHECK(tg_mul_scalar_(y, 3) == y && tg_version_of(y) == 1 && tg_version_of(x) == 0);
        CHECK(backward_sum(y) == TG_OK);
        HAS(tg_grad(x), "[3, 3]");
    }
    ROW(1.45) {
        tg_tensor *x = leaf_of(TG_F32, "[1, 2, 3, 4]"), *m = tg_set_requires_grad(tg_zeros(TG_SHAPE(2, 3)), true);
        CHECK(backward_sum(tg_to_dtype(tg_narrow(x, 0, 1, 2), TG_F64)) == TG_OK);
        HAS(tg_grad(x), "[0, 1, 1, 0]");
        CHECK(backward_sum(tg_to_dtype(tg_t(m), TG_F64)) == TG_OK && tg_stride(tg_grad(m), 0) == 3);
        CHECK(tg_stride(tg_grad(m), 1) == 1);
    }
    ROW(1.46) {
        tg_tensor *x = leaf_of(TG_F32, "[1, 2]"), *y = tg_sum(tg_to_dtype(x, TG_F64));
        CHECK(tg_backward(y) == TG_OK && tg_backward(y) == TG_OK);
        HAS(tg_grad(x), "[2, 2]");
    }
    ROW(1.49) {
        tg_tensor *x = leaf_of(TG_F32, "[1, 2]"), *y = tg_mul_scalar(x, 2);
        CHECK(backward_with(y, f64("[1, 1]"), TG_RETAIN_GRAPH) == TG_OK && tg_dtype_of(tg_grad(x)) == TG_F32);
        CHECK(backward_with(y, of(TG_I64, "[1, 2]"), 0) == TG_OK);
        HAS(tg_grad(x), "[4, 6]");
    }
    ROW(1.50) {
        tg_tensor *x = leaf("[1, 2]"), *y = tg_sum(x), *g;
        CHECK(tg_backward(y) == TG_OK);
        g = tg_grad(x);
        CHECK(tg_backward(y) == TG_OK && tg_grad(x) == g);
        HAS(g, "[2, 2]");
    }
}

TEST(copy_into)
{
    ROW(1.53) {
        tg_tensor *dst = of(TG_F32, "[[0, 0, 0], [0, 0, 0]]");
        CHECK(tg_copy_(dst, f64("[1, 2, 3]")) == dst);
        HAS(dst, "[[1, 2, 3], [1, 2, 3]]");
        CHECK(tg_copy_(dst, scalar(7)) == dst);
        HAS(dst, "[[7, 7, 7], [7, 7, 7]]");
        CHECK_FAILS(tg_copy_(f64("[0, 0, 0]"), f64("[0, 0, 0, 0]")),
                    "The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 0");
        CHECK_FAILS(tg_copy_(f64("[1]"), f64("[[1, 2], [3, 4]]")), "");
    }
    ROW(1.54) {
        tg_tensor *x = f64("[1, 2, 3]");
        CHECK(tg_copy_(x, x) == x && tg_copy_(x, tg_narrow(x, 0, 0, 3)) == x);
        HAS(x, "[1, 2, 3]");
        CHECK(tg_copy_(tg_narrow(x, 0, 1, 2), tg_narrow(x, 0, 0, 2)) != NULL); /* overlapping: as if read first */
        HAS(x, "[1, 1, 2]");
    }
    ROW(1.55) {
        tg_tensor *x = leaf("[1, 2]");
        CHECK_FAILS(tg_copy_(x, f64("[3, 4]")),
                    "a leaf Variable that requires grad is being used in an in-place operation.");
        HAS(x, "[1, 2]");
        {
            TG_NO_GRAD;
            CHECK(tg_copy_(x, f64("[3, 4]")) == x);
        }
        CHECK(tg_version_of(x) == 1 && tg_is_leaf(x) && tg_requires_grad(x));
        HAS(x, "[3, 4]");
    }
    ROW(1.56) {
        tg_tensor *src = leaf_of(TG_F32, "[2]"), *dst = f64("[0, 0, 0]"), *integers = of(TG_I64, "[0, 0]");
        CHECK(tg_copy_(dst, src) == dst && tg_requires_grad(dst) && !tg_is_leaf(dst));
        CHECK(backward_sum(dst) == TG_OK && tg_dtype_of(tg_grad(src)) == TG_F32);
        HAS(tg_grad(src), "[3]");
        CHECK(tg_copy_(integers, src) == integers && !tg_requires_grad(integers));
    }
    ROW(1.57) {
        tg_tensor *x = leaf("[1, 2, 3]"), *y = tg_mul_scalar(x, 2);
        tg_copy_(y, f64("[7, 8, 9]"));
        CHECK(backward_sum(y) == TG_OK);
        HAS(tg_grad(x), "[0, 0, 0]");
        y = tg_mul_scalar(x, 1);
        tg_copy_(tg_narrow(y, 0, 1, 1), f64("[5]"));
        CHECK(backward_sum(y) == TG_OK);
        HAS(tg_grad(x), "[1, 0, 1]");
    }
    ROW(1.58) {
        tg_tensor *wide = tg_expand(f64("[1]"), TG_SHAPE(3));
        CHECK_FAILS(tg_copy_(wide, f64("[1, 2, 3]")),
                    "unsupported operation: more than one element of the written-to tensor "
                    "refers to a single memory location.\n  hint: write to a copy of its own: tg_clone(t)");
        HAS(wide, "[1, 1, 1]");
    }
}

TEST(devices_as_values)
{
    static const char *const bad[] = {"cuda:00", "cuda:01", "cuda:-1", "cuda:",   "cuda:1x", "cuda 0",
                                      "cuda:0 ", ":0",      "1",       "cuda:2.", "cuda:2?", "cuda: 2"};
    tg_device d = TG_CPU, e = TG_CPU;
    size_t i;
    ROW(1.76) {
        CHECK(tg_device_parse("cpu", &d) == TG_OK && tg_device_equal(d, TG_CPU));
        CHECK(tg_device_parse("cuda", &d) == TG_OK && tg_device_equal(d, TG_CUDA(-1)));
        CHECK(tg_device_parse("cuda:0", &d) == TG_OK && tg_device_equal(d, TG_CUDA(0)));
        CHECK(tg_device_parse("cuda:90", &d) == TG_OK && d.type == TG_DEV_CUDA && d.index == 90);
        CHECK(tg_device_parse("cuda:10", &d) == TG_OK && strcmp(tg_device_str(d), "cuda:10") == 0);
        CHECK(strcmp(tg_device_str(TG_CUDA(-1)), "cuda") == 0 && strcmp(tg_device_str(TG_CPU), "cpu") == 0);
    }
    ROW(1.77) {
        for (i = 0; i < sizeof bad / sizeof bad[0]; ++i) {
            char text[80];
            snprintf(text, sizeof text, "Invalid device string: '%s'", bad[i]);
            d = TG_CUDA(5);
            CHECK_FAILS(tg_device_parse(bad[i], &d), text);
            CHECK(d.index == 5); /* a failing call changes nothing */
        }
        CHECK_FAILS(tg_device_parse("cuda0", &d), "Invalid device string: 'cuda0'");
    }
    ROW(1.78) CHECK_FAILS(tg_device_parse("", &d), "Device string must not be empty");
    ROW(1.79) {
        CHECK_FAILS(tg_device_parse("gpu", &d), "Expected one of cpu, cuda device type at start of device string: gpu");
        CHECK_FAILS(tg_device_parse("CUDA", &d), "device type at start of device string: CUDA");
        CHECK_FAILS(tg_device_parse("cudaa:1", &d), "device type at start of device string: cudaa");
    }
    ROW(1.80) {
        CHECK_FAILS(tg_device_parse("cuda:999999999999", &d),
                    "Could not parse device index '999999999999' in device string 'cuda:999999999999'");
        CHECK_FAILS(tg_device_parse("cuda:128", &d), "Could not parse device index '128'");
    }
    ROW(1.82) {
        CHECK(!tg_device_equal(TG_CUDA(-1), TG_CUDA(0)) && !tg_device_equal(TG_CUDA(0), TG_CUDA(1)));
        CHECK(!tg_device_equal(TG_CPU, TG_CUDA(0)) && tg_device_equal(TG_CPU, TG_CPU));
    }
    ROW(1.83) CHECK(tg_device_equal(tg_device_of(f64("[1]")), HERE));
    ROW(1.88) CHECK(tg_cuda_is_available() == (tg_cuda_device_count() > 0) && tg_ok());
    ROW(1.86)
        if (!tg_cuda_is_available()) {
            tg_tensor *x = f64("[1, 2]");
            CHECK_FAILS(tg_cuda(x), "not compiled with CUDA enabled");
            CHECK_FAILS(tg_to(x, TG_CUDA(0)), "not compiled with CUDA enabled");
            CHECK_FAILS(tg_zeros_on(TG_SHAPE(2), TG_F32, TG_CUDA(0)), "not compiled with CUDA enabled");
            CHECK_FAILS(tg_set_default_device(TG_CUDA(0)), "CUDA");
            CHECK_FAILS(tg_synchronize(TG_CUDA(0)), "CUDA");
            CHECK_FAILS(tg_cuda_set_device(0), "CUDA");
            HAS(tg_add_scalar(x, 1), "[2, 3]"); /* the CPU goes on */
        }
    d.type = 9, d.index = 0;
    CHECK_FAILS(tg_to(f64("[1]"), d), "unknown device type 9");
    CHECK_FAILS(tg_device_parse(NULL, &e), "NULL");
    CHECK_FAILS(tg_device_parse("cpu", NULL), "NULL");
}

TEST(gradient_assignment_and_legality)
{
    ROW(1.72) {
        tg_tensor *x = leaf("[1, 2, 3]"), *g = f64("[4, 5, 6]");
        CHECK_FAILS(tg_set_grad(x, of(TG_F32, "[1, 2, 3]")),
                    "attempting to assign a gradient with dtype 'f32' to a tensor with "
                    "dtype 'f64'. Please ensure that the gradient and the tensor");
        CHECK_FAILS(tg_set_grad(x, f64("[1, 2, 3, 4]")), "of size '[4]' to a tensor of size '[3]'. Please ensure");
        CHECK_FAILS(tg_set_grad(x, x), "can't assign Variable as its own grad");
        CHECK(tg_grad(x) == NULL);
        CHECK(tg_set_grad(x, g) == TG_OK && tg_grad(x) == g);
        CHECK(backward_sum(tg_mul_scalar(x, 2)) == TG_OK);
        HAS(tg_grad(x), "[6, 7, 8]");
        CHECK(tg_set_grad(x, NULL) == TG_OK && tg_grad(x) == NULL);
    }
    ROW(1.120) {
        CHECK_FAILS(tg_set_requires_grad(of(TG_I64, "[1]"), true),
                    "only Tensors of floating point dtype can require gradients");
        CHECK_FAILS(tg_set_requires_grad(of(TG_BOOL, "[1]"), true), "only Tensors of floating point dtype");
        CHECK_FAILS(tg_param(of(TG_I32, "[1]")), "only Tensors of floating point dtype");
        CHECK(tg_set_requires_grad(of(TG_I64, "[1]"), false) != NULL && tg_ok());
    }
    ROW(1.121) {
        tg_tensor *x = leaf("[1]"), *y = tg_mul_scalar(x, 2);
        CHECK_FAILS(tg_set_requires_grad(y, false), "you can only change requires_grad flags of leaf variables.");
        CHECK(tg_set_requires_grad(y, true) == y && !tg_is_leaf(y) && tg_set_requires_grad(x, false) == x);
        CHECK(!tg_requires_grad(x) && tg_requires_grad(y));
    }
}

/* ---- section 2.1: the graph ---- */

TEST(graph_basics)
{
    ROW(2.1) {
        tg_tensor *x = leaf("[1, 2]"), *c = f64("[1, 2]");
        CHECK(tg_requires_grad(tg_add(x, c)) && tg_requires_grad(tg_add(c, x)) && !tg_requires_grad(tg_add(c, c)));
        CHECK(!tg_requires_grad(tg_eq(x, c)) && !tg_requires_grad(tg_argmax(x, 0, false)));
        {
            TG_NO_GRAD;
            CHECK(!tg_requires_grad(tg_add(x, c)));
        }
    }
    ROW(2.2) {
        tg_tensor *x = leaf("[1, 2]"), *c = f64("[1, 2]");
        CHECK(tg_is_leaf(x) && tg_is_leaf(c) && tg_is_leaf(tg_mul(c, c)) && !tg_is_leaf(tg_mul(c, x)));
    }
    ROW(2.3) {
        tg_tensor *x = scalar_leaf(3);
        CHECK(tg_backward(x) == TG_OK);
        HAS(tg_grad(x), "1");
    }
    ROW(2.4) {
        tg_tensor *x = tg_set_requires_grad(tg_ones(TG_SHAPE(1, 1)), true);
        CHECK(tg_backward(scalar_leaf(1)) == TG_OK && tg_backward(leaf("[1]")) == TG_OK && tg_backward(x) == TG_OK);
        CHECK(tg_ndim(tg_grad(x)) == 2);
        CHECK_FAILS(tg_backward(tg_mul_scalar(leaf("[1, 2]"), 2)),
                    "grad can be implicitly created only for scalar outputs");
    }
    ROW(2.5) {
        tg_tensor *roots[2];
        CHECK_FAILS(tg_backward(scalar(1)), "element 0 of tensors does not require grad and does not have a grad_fn");
        roots[0] = scalar_leaf(1), roots[1] = scalar(1);
        CHECK_FAILS(tg_backward_ex(roots, 2, NULL, 0), "element 1 of tensors does not require grad");
        CHECK(tg_grad(roots[0]) == NULL);
    }
    ROW(2.6) {
        tg_tensor *y = tg_mul_scalar(leaf("[1, 2, 3]"), 2);
        CHECK_FAILS(backward_with(y, f64("[1, 2, 3, 4]"), 0), "Mismatch in shape: grad_output[0] has a shape of ");
        CHECK_FAILS(backward_with(y, f64("[1, 2, 3, 4]"), 0), "[4] and output[0] has a shape of ");
    }
    ROW(2.7) {
        tg_tensor *x = leaf("[1, 2]"), *y = tg_retain_grad(tg_mul_scalar(x, 3)), *sum = tg_sum(y);
        CHECK(tg_backward(sum) == TG_OK && tg_backward(sum) == TG_OK);
        HAS(tg_grad(x), "[6, 6]");
        HAS(tg_grad(y), "[2, 2]");
    }
    ROW(2.8) {
        tg_tensor *x = leaf("[1, 2]"), *a = leaf("[1, 2]"), *b = leaf("[1, 2]"), *g = f64("[5, 6]");
        CHECK(backward_with(tg_add(a, b), g, 0) == TG_OK);
        CHECK(tg_data(tg_grad(a)) != tg_data(tg_grad(b)) && tg_data(tg_grad(a)) != tg_data(g));
        CHECK(backward_with(x, g, 0) == TG_OK && tg_grad(x) != g && tg_data(tg_grad(x)) != tg_data(g));
        tg_fill_(g, 0);
        tg_fill_(tg_grad(a), 0);
        HAS(tg_grad(x), "[5, 6]");
        HAS(tg_grad(b), "[5, 6]");
    }
    ROW(2.9) {
        tg_tensor *x = leaf("[1, 2]"), *first;
        CHECK(backward_sum(tg_mul(x, x)) == TG_OK);
        first = tg_grad(x);
        CHECK(backward_sum(tg_mul(x, x)) == TG_OK && tg_grad(x) == first);
        HAS(first, "[4, 8]");
        tg_retain(first);
        CHECK(backward_flags(tg_mul(x, x), TG_CREATE_GRAPH) == TG_OK && tg_grad(x) != first);
        HAS(first, "[4, 8]");
        HAS(tg_grad(x), "[6, 12]");
        tg_release(first);
    }
    ROW(2.10) {
        tg_tensor *dense = tg_set_requires_grad(tg_t(f64("[[0, 1, 2], [3, 4, 5]]")), true);
        tg_tensor *gaps = tg_set_requires_grad(tg_slice(f64("[[0, 1, 2, 3], [4, 5, 6, 7]]"), 1, 0, 4, 2), true), *x = leaf("[1, 2]");
        CHECK(backward_sum(tg_mul_scalar(dense, 2)) == TG_OK && backward_sum(tg_mul_scalar(gaps, 2)) == TG_OK);
        CHECK(tg_stride(tg_grad(dense), 0) == 1 && tg_stride(tg_grad(dense), 1) == 3);
        CHECK(tg_stride(tg_grad(gaps), 0) == 2 && tg_stride(tg_grad(gaps), 1) == 1);
        CHECK(backward_sum(x) == TG_OK && tg_stride(tg_grad(x), 0) == 1); /* sum's gradient is an expanded 1 */
        tg_set(tg_grad(x), TG_INDEX(0), 9);
        HAS(tg_grad(x), "[9, 1]");
    }
    ROW(2.11) {
        tg_tensor *x = leaf("[2, 3]"), *y = tg_mul(tg_mul(x, x), x);
        int calls = 0;
        double sum = 0;
        tg_hook(x, hook_count, &calls);
        tg_hook(x, hook_see, &sum);
        CHECK(backward_sum(y) == TG_OK && calls == 1);
        CHECK_NEAR(sum, 12 + 27, 1e-12);
        HAS(tg_grad(x), "[12, 27]");
    }
    ROW(2.12) {
        tg_tensor *x = leaf("[1, 1]"), *y = tg_mul_scalar(x, 2), *a = tg_mul_scalar(y, 3), *b = tg_mul(y, y);
        tg_tensor *sum = tg_sum(tg_add(tg_mul(a, b), y));
        int calls = 0, steps = 0;
        tg_step_info info;
        tg_backward_run *run;
        int64_t last = INT64_MAX;
        bool falling = true;
        tg_hook(y, hook_count, &calls);
        run = tg_backward_begin(&sum, 1, NULL, 0);
        while (tg_backward_step(run, &info)) {
            falling = falling && info.node < last;
            last = info.node;
            ++steps;
        }
        CHECK(tg_backward_end(run) == TG_OK && calls == 1 && steps == 6 && falling);
        HAS(tg_grad(x), "[74, 74]"); /* 6x * 4x^2 + 2x */
    }
    ROW(2.13) {
        tg_tensor *x = leaf("[1, 2]"), *y = tg_sum(tg_exp(x));
        CHECK(tg_backward(y) == TG_OK);
        CHECK_FAILS(tg_backward(y),
                    "Trying to backward through the graph a second time (or directly access saved tensors after "
                    "they have already been freed). Saved intermediate values of the graph are freed by tg_backward "
                    "and tg_gradients. (at node ");
        CHECK_FAILS(tg_backward(y), "\n  hint: pass TG_RETAIN_GRAPH to the first backward");
        CHECK_NEAR(tg_get(tg_grad(x), TG_INDEX(0)), exp(1.0), 1e-12);
    }
    ROW(2.14) {
        tg_tensor *x = leaf("[[1, 2], [3, 4]]"), *y = tg_sum(tg_view(tg_add(tg_t(x), x), TG_SHAPE(4))), *trunk, *one, *two;
        CHECK(tg_backward(y) == TG_OK && tg_backward(y) == TG_OK);
        HAS(tg_grad(x), "[[4, 4], [4, 4]]");
        trunk = tg_exp(x), one = tg_sum(trunk), two = tg_sum(tg_mul_scalar(trunk, 2));
        CHECK(tg_backward(one) == TG_OK);
        CHECK_FAILS(tg_backward(two), "second time"); /* the shared part was freed */
        CHECK(tg_backward(tg_sum(tg_mul_scalar(x, 2))) == TG_OK);
    }
    ROW(2.15) {
        tg_tensor *x = leaf("[1, 2]"), *y = tg_sum(tg_mul(x, x)), *z = tg_sum(tg_mul(x, x));
        CHECK(tg_backward_ex(&y, 1, NULL, TG_RETAIN_GRAPH) == TG_OK &&
              tg_backward_ex(&y, 1, NULL, TG_RETAIN_GRAPH) == TG_OK);
        HAS(tg_grad(x), "[4, 8]");
        CHECK(tg_backward(y) == TG_OK);
        CHECK_FAILS(tg_backward(y), "second time");
        CHECK(tg_backward_ex(&z, 1, NULL, TG_CREATE_GRAPH) == TG_OK && tg_backward(z) == TG_OK);
        HAS(tg_grad(x), "[10, 20]");
        tg_set_grad(x, NULL);
    }
    ROW(2.16) { /* a million nodes in a small stack: test_deep */
        tg_tensor *x = tg_set_requires_grad(tg_cpu(f64("[1]")), true), *y = x;
        int i;
        for (i = 0; i < 200000; ++i) y = tg_add_scalar(y, 1);
        CHECK(backward_sum(y) == TG_OK);
        HAS(tg_grad(x), "[1]");
        HAS(y, "[200001]");
    }
    ROW(2.17) {
        tg_tensor *x = leaf("[1, 2]"), *roots[2];
        roots[0] = roots[1] = tg_sum(tg_mul_scalar(x, 3));
        CHECK(tg_backward_ex(roots, 2, NULL, 0) == TG_OK);
        HAS(tg_grad(x), "[6, 6]");
        roots[1] = tg_sum(tg_mul(x, x));
        CHECK(tg_backward_ex(roots, 2, NULL, 0) == TG_OK);
        HAS(tg_grad(x), "[11, 13]");
    }
    ROW(2.18) {
        tg_tensor *x = leaf("[1, 2]"), *y = tg_mul(x, x);
        {
            TG_NO_GRAD;
            CHECK(backward_sum(x) != TG_OK); /* a new op under no_grad has no graph */
            tg_clear_error();
            CHECK(backward_with(y, f64("[1, 1]"), TG_RETAIN_GRAPH) == TG_OK);
        }
        HAS(tg_grad(x), "[2, 4]");
    }
    ROW(2.19) { /* tg_backward has no inputs argument: tg_gradients with tg_set_grad is its form here */
        tg_tensor *a = leaf("[1, 2]"), *b = leaf("[3, 4]"), *product = tg_mul(a, b), *y = tg_sum(product), *g = NULL;
        CHECK(tg_gradients(&y, 1, NULL, &a, 1, &g, TG_RETAIN_GRAPH) == TG_OK && tg_set_grad(a, g) == TG_OK);
        HAS(tg_grad(a), "[3, 4]");
        CHECK(tg_grad(b) == NULL);
        CHECK(tg_gradients(&y, 1, NULL, &product, 1, &g, 0) == TG_OK);
        HAS(g, "[1, 1]");
        CHECK_FAILS(tg_gradients(&y, 1, NULL, &a, 0, &g, 0), "grad requires non-empty inputs.");
    }
    ROW(2.20) {
        tg_tensor *x = leaf("[1, 2]"), *i = NULL;
        CHECK(!tg_requires_grad(tg_to_dtype(x, TG_I32)) && tg_requires_grad(tg_max_dim(x, 0, false, &i)));
        CHECK(!tg_requires_grad(i) && tg_is_leaf(i) && tg_dtype_of(i) == TG_I64);
    }
    ROW(2.21) {
        tg_tensor *x = leaf("[1, 2]"), *other = leaf("[1, 2]"), *unused = tg_mul(other, x);
        CHECK(unused != NULL && backward_sum(tg_mul_scalar(x, 2)) == TG_OK && tg_grad(other) == NULL);
        HAS(tg_grad(x), "[2, 2]");
    }
}

static int grad_modes[2]; /* hooks called with grad mode off and on */
static tg_tensor *hook_grad_mode(tg_tensor *g, void *user)
{
    (void)g, (void)user;
    grad_modes[tg_is_grad_enabled()]++;
    return NULL;
}

TEST(grad_mode_inside_backward)
{
    ROW(2.18) {
        tg_tensor *x = leaf("[1, 2]"), *y = tg_mul(x, x);
        grad_modes[0] = grad_modes[1] = 0;
        tg_hook(y, hook_grad_mode, NULL);
        tg_hook(x, hook_grad_mode, NULL);
        CHECK(backward_flags(y, TG_RETAIN_GRAPH) == TG_OK && grad_modes[0] == 2 && grad_modes[1] == 0);
        CHECK(backward_flags(y, TG_CREATE_GRAPH) == TG_OK && grad_modes[0] == 2 && grad_modes[1] == 2);
        CHECK(tg_is_grad_enabled());
        {
            TG_NO_GRAD;
            CHECK(backward_with(y, f64("[1, 1]"), 0) == TG_OK && !tg_is_grad_enabled());
        }
        tg_set_grad(x, NULL);
    }
}

/* ---- section 2.2: tg_gradients ---- */

TEST(gradients_of_chosen_inputs)
{
    ROW(2.22) {
        tg_tensor *x = leaf("[1, 2]"), *y = tg_mul(x, x), *z = tg_sum(tg_exp(y)), *in[2], *g[2] = {NULL, NULL};
        in[0] = x, in[1] = y;
        CHECK(tg_gradients(&z, 1, NULL, in, 2, g, 0) == TG_OK && tg_grad(x) == NULL && tg_is_leaf(g[0]));
        CHECK_NEAR(tg_get(g[1], TG_INDEX(0)), exp(1.0), 1e-12);
        CHECK_NEAR(tg_get(g[0], TG_INDEX(1)), 4 * exp(4.0), 1e-12);
    }
    ROW(2.23) {
        tg_tensor *x = leaf("[1, 2]"), *u = leaf("[[7], [8]]"), *y = tg_sum(x), *in[2], *g[2] = {NULL, NULL};
        in[0] = x, in[1] = u;
        CHECK_FAILS(
            tg_gradients(&y, 1, NULL, in, 2, g, 0),
            "One of the differentiated Tensors appears to not have been used in the graph. (input 1)\n"
            "  hint: pass TG_ALLOW_UNUSED");
        CHECK(g[0] == NULL && g[1] == NULL);
        CHECK(tg_gradients(&y, 1, NULL, in, 2, g, TG_ALLOW_UNUSED) == TG_OK && g[1] == NULL);
        HAS(g[0], "[1, 1]");
        CHECK(tg_gradients(&y, 1, NULL, in, 2, g, TG_MATERIALIZE_GRADS) == TG_OK);
        HAS(g[1], "[[0], [0]]");
        CHECK(tg_ndim(g[1]) == 2);
    }
    ROW(2.24) {
        tg_tensor *x = leaf("[1, 2]"), *c = f64("[1, 2]"), *y = tg_sum(tg_mul(x, c)), *g = NULL;
        CHECK_FAILS(tg_gradients(&y, 1, NULL, &c, 1, &g, 0), "One of the differentiated Tensors does not require grad");
    }
    ROW(2.25) {
        tg_tensor *y = tg_sum(leaf("[1]")), *g = NULL;
        CHECK_FAILS(tg_gradients(&y, 1, NULL, NULL, 0, &g, 0), "grad requires non-empty inputs.");
    }
    ROW(2.26) {
        tg_tensor *x = leaf("[2, 3]"), *y = tg_mul(x, x), *z = tg_sum(tg_mul(y, y)), *in[2], *g[2] = {NULL, NULL};
        int calls = 0, on_y = 0;
        in[0] = in[1] = x;
        CHECK(tg_gradients(&z, 1, NULL, in, 2, g, TG_RETAIN_GRAPH) == TG_OK);
        HAS(g[0], "[32, 108]");
        HAS(g[1], "[32, 108]");
        tg_fill_(g[0], 0);
        HAS(g[1], "[32, 108]");
        tg_hook(x, hook_count, &calls);
        tg_hook(y, hook_count, &on_y);
        CHECK(tg_gradients(&z, 1, NULL, &y, 1, g, TG_RETAIN_GRAPH) == TG_OK && calls == 0 && on_y == 1);
        HAS(g[0], "[8, 18]");
        /* nodes before the intermediate were not run: nothing of theirs was freed */
        CHECK(tg_gradients(&z, 1, NULL, &y, 1, g, 0) == TG_OK && backward_sum(y) == TG_OK);
    }
    ROW(2.26) { /* a leaf that is not asked for: its hooks rest, though a node that runs has an edge to it */
        tg_tensor *a = leaf("[2]"), *b = leaf("[3]"), *y = tg_sum(tg_mul(a, b));
        int calls = 0;
        tg_hook(b, hook_count, &calls);
        HAS(gradient(y, a, 0), "[3]");
        CHECK(calls == 0);
    }
    ROW(2.27) {
        tg_tensor *x = leaf("[3]"), *g = gradient(tg_mul(x, tg_mul(x, x)), x, TG_CREATE_GRAPH);
        CHECK(tg_requires_grad(g) && !tg_is_leaf(g));
        HAS(g, "[27]");
        g = gradient(g, x, TG_CREATE_GRAPH);
        HAS(g, "[18]");
        HAS(gradient(g, x, 0), "[6]");
    }
    ROW(2.28) {
        tg_stats_info before = tg_stats();
        {
            TG_SCOPE;
            tg_tensor *x = leaf("[3]"), *y = tg_mul(x, tg_mul(x, x));
            CHECK(backward_flags(y, TG_CREATE_GRAPH) == TG_OK && tg_requires_grad(tg_grad(x)));
            HAS(gradient(tg_grad(x), x, 0), "[18]");
        }
        CHECK(!alive_changed(&before)); /* PyTorch warns of a reference cycle here; there is none */
    }
    ROW(2.29) {
        tg_tensor *x = leaf("[3, 1, 2]"), *parts[3], *i = NULL, *values;
        CHECK(tg_unbind(x, 0, parts, 3) == 3 && tg_backward(tg_mul_scalar(parts[1], 5)) == TG_OK);
        HAS(tg_grad(x), "[0, 5, 0]");
        values = tg_sort(x, 0, false, &i);
        CHECK(tg_backward(tg_select(values, 0, 2)) == TG_OK);
        HAS(tg_grad(x), "[1, 5, 0]");
    }
}

TEST(gradients_of_several_outputs)
{
    tg_tensor *x = leaf("[1, 2]"), *out[2], *grads[2], *g = NULL;
    out[0] = tg_mul(x, x), out[1] = tg_mul_scalar(x, 3);
    grads[0] = f64("[1, 10]"), grads[1] = f64("[2, 0]");
    CHECK(tg_gradients(out, 2, grads, &x, 1, &g, TG_RETAIN_GRAPH) == TG_OK);
    HAS(g, "[8, 40]");
    grads[1] = NULL;
    CHECK_FAILS(tg_gradients(out, 2, grads, &x, 1, &g, TG_RETAIN_GRAPH),
                "grad can be implicitly created only for scalar");
    out[1] = tg_sum(out[1]);
    CHECK(tg_gradients(out, 2, grads, &x, 1, &g, TG_RETAIN_GRAPH) == TG_OK);
    HAS(g, "[5, 43]");
    out[1] = out[0]; /* an output that is an input, too */
    CHECK(tg_gradients(out, 2, grads, out, 1, &g, TG_RETAIN_GRAPH) != TG_OK);
    tg_clear_error();
    grads[1] = f64("[1, 1]");
    CHECK(tg_gradients(out, 2, grads, out, 1, &g, TG_RETAIN_GRAPH) == TG_OK);
    HAS(g, "[2, 11]");
    CHECK(tg_gradients(&x, 1, grads, &x, 1, &g, 0) == TG_OK);
    HAS(g, "[1, 10]");
    CHECK(g != grads[0] && tg_data(g) != tg_data(grads[0]));
    grads[0] = tg_param(f64("[3, 4]")); /* in no scope's list: it must not be given to one */
    CHECK(tg_gradients(&x, 1, grads, &x, 1, &g, 0) == TG_OK && g != grads[0]);
    HAS(g, "[3, 4]");
    tg_release(grads[0]);
    CHECK_FAILS(tg_gradients(NULL, 1, NULL, &x, 1, &g, 0), "NULL");
    CHECK_FAILS(tg_gradients(out, 1, NULL, &x, 1, NULL, 0), "NULL");
}

/* ---- section 2.3: hooks and retained gradients ---- */

static void post_note(tg_tensor *t, void *user)
{
    note(*(const char *)user);
    if (tg_grad(t) == NULL) note('!');
}
static void post_see(tg_tensor *t, void *user) { *(double *)user = tg_item(tg_sum(tg_grad(t))); }
static tg_tensor *hook_wrong_size(tg_tensor *g, void *user)
{
    (void)g, (void)user;
    return f64("[1, 2, 3, 4, 5]");
}
static tg_tensor *hook_wrong_type(tg_tensor *g, void *user)
{
    (void)user;
    return tg_to_dtype(g, TG_F32);
}
static tg_tensor *hook_fails(tg_tensor *g, void *user)
{
    (void)user;
    return tg_add(g, tg_ones(TG_SHAPE(7, 7)));
}
static tg_tensor *hook_writes(tg_tensor *g, void *user)
{
    (void)user;
    tg_mul_scalar_(g, 100);
    return NULL;
}
typedef struct {
    tg_tensor *t;
    int id, calls;
} own_hook;
static tg_tensor *hook_removes_itself(tg_tensor *g, void *user)
{
    own_hook *own = (own_hook *)user;
    (void)g;
    own->calls++;
    tg_unhook(own->t, own->id);
    return NULL;
}

TEST(hooks_and_retained_gradients)
{
    double two = 2, three = 3, ten = 10;
    ROW(2.30) {
        tg_tensor *x = leaf("[1, 2]"), *y = tg_mul_scalar(x, 3);
        CHECK(tg_retain_grad(y) == y && tg_retain_grad(y) == y && tg_retain_grad(x) == x);
        CHECK(backward_sum(tg_mul_scalar(y, 2)) == TG_OK);
        HAS(tg_grad(y), "[2, 2]");
        HAS(tg_grad(x), "[6, 6]");
        CHECK_FAILS(tg_retain_grad(f64("[1]")), "can't retain_grad on Tensor that has requires_grad=False");
        y = tg_mul_scalar(x, 3);
        CHECK(backward_sum(y) == TG_OK && tg_retain_grad(y) == y && tg_grad(y) == NULL); /* too late for the past */
    }
    ROW(2.31) {
        tg_tensor *x = leaf("[1, 2]"), *y = leaf("[1]");
        double seen = 0;
        tg_hook(x, hook_times, &three);
        tg_hook(x, hook_see, &seen);
        CHECK(backward_sum(x) == TG_OK);
        HAS(tg_grad(x), "[3, 3]");
        tg_hook(y, hook_times, &two);
        tg_hook(y, hook_times, &ten);
        CHECK(backward_sum(y) == TG_OK);
        HAS(tg_grad(y), "[20]");
    }
    ROW(2.31) { /* each sees what the one before returned */
        tg_tensor *x = leaf("[1]");
        double before = 0, after = 0;
        tg_hook(x, hook_see, &before);
        tg_hook(x, hook_times, &ten);
        tg_hook(x, hook_see, &after);
        CHECK(backward_sum(x) == TG_OK);
        CHECK_NEAR(before, 1, 0);
        CHECK_NEAR(after, 10, 0);
    }
    ROW(2.32) { /* a retained gradient has seen all hooks, registered before or after */
        tg_tensor *x = leaf("[1]"), *y = tg_mul_scalar(x, 3);
        tg_hook(y, hook_times, &two);
        tg_retain_grad(y);
        tg_hook(y, hook_times, &two);
        CHECK(backward_sum(y) == TG_OK);
        HAS(tg_grad(y), "[4]");
        HAS(tg_grad(x), "[12]");
    }
    ROW(2.33) {
        tg_tensor *x = leaf("[1]");
        char a = 'a', p = 'p', q = 'q';
        double sum = 0;
        journal[0] = 0;
        tg_hook_post_accumulate(x, post_note, &p);
        tg_hook(x, hook_note, &a);
        tg_hook(x, hook_times, &three);
        tg_hook_post_accumulate(x, post_see, &sum);
        tg_hook_post_accumulate(x, post_note, &q);
        CHECK(backward_sum(x) == TG_OK && strcmp(journal, "apq") == 0);
        CHECK_NEAR(sum, 3, 0);
        CHECK(backward_sum(x) == TG_OK);
        CHECK_NEAR(sum, 6, 0);
    }
    ROW(2.34) {
        tg_tensor *y = tg_mul_scalar(leaf("[1]"), 2);
        CHECK_FAILS(tg_hook_post_accumulate(y, post_see, &two),
                    "post accumulate grad hooks cannot be registered on non-leaf");
        CHECK(tg_hook_post_accumulate(f64("[1]"), post_see, &two) == 0);
        tg_clear_error();
    }
    ROW(2.35) {
        tg_tensor *x = leaf("[1]"), *y = tg_mul_scalar(x, 2);
        int calls = 0, first = tg_hook(y, hook_count, &calls), second = tg_hook(y, hook_times, &ten);
        CHECK(first != 0 && second != 0 && first != second && tg_unhook(y, second) == TG_OK);
        CHECK(backward_sum(y) == TG_OK && calls == 1);
        HAS(tg_grad(x), "[2]");
        CHECK(tg_unhook(y, first) == TG_OK && backward_sum(y) == TG_OK && calls == 1);
        CHECK_FAILS(tg_unhook(y, first), "has no hook");
        CHECK_FAILS(tg_hook(f64("[1]"), hook_count, &calls),
                    "cannot register a hook on a tensor that doesn't require gradient");
        CHECK_FAILS(tg_hook(x, NULL, NULL), "NULL");
    }
    ROW(2.36) {
        tg_tensor *x = leaf("[1, 2]"), *y = tg_mul_scalar(x, 2);
        int hook = tg_hook(y, hook_wrong_size, NULL);
        CHECK_FAILS(backward_sum(y), "has changed the size of value");
        tg_unhook(y, hook);
        hook = tg_hook(y, hook_wrong_type, NULL);
        CHECK_FAILS(backward_sum(y), "has changed the type of value");
        tg_unhook(y, hook);
        hook = tg_hook(y, hook_fails, NULL);
        CHECK_FAILS(backward_sum(y), "do not broadcast");
        tg_unhook(y, hook);
        CHECK(tg_grad(x) == NULL && backward_sum(y) == TG_OK);
    }
    ROW(2.37) { /* PyTorch forbids it and says nothing of what follows; here other runs do not see it */
        tg_tensor *x = leaf("[1, 2]"), *y = tg_mul_scalar(x, 2), *g = f64("[1, 1]"), *z = tg_mul_scalar(x, 2);
        tg_hook(y, hook_writes, NULL);
        CHECK(backward_with(y, tg_clone(g), 0) == TG_OK);
        tg_set_grad(x, NULL);
        CHECK(backward_with(z, g, 0) == TG_OK);
        HAS(tg_grad(x), "[2, 2]");
    }
    ROW(2.38) { /* the old hook sees the gradient of what the tensor was */
        tg_tensor *x = leaf("[1, 2]"), *y = tg_mul_scalar(x, 2);
        double old = 0, now = 0;
        tg_hook(y, hook_see, &old);
        tg_mul_scalar_(y, 3);
        tg_hook(y, hook_see, &now);
        CHECK(backward_sum(y) == TG_OK);
        CHECK_NEAR(old, 6, 0);
        CHECK_NEAR(now, 2, 0);
        HAS(tg_grad(x), "[6, 6]");
    }
}

TEST(retained_gradient_moves_with_a_write)
{
    tg_tensor *x = leaf("[1, 2, 3]"), *y = tg_retain_grad(tg_mul_scalar(x, 2)), *v;
    tg_mul_scalar_(y, 3);
    CHECK(backward_sum(y) == TG_OK);
    HAS(tg_grad(y), "[1, 1, 1]");
    HAS(tg_grad(x), "[6, 6, 6]");
    y = tg_retain_grad(tg_mul_scalar(x, 1)), v = tg_retain_grad(tg_narrow(y, 0, 0, 2));
    tg_mul_scalar_(v, 10);
    CHECK(tg_backward(tg_add(tg_sum(y), tg_sum(v))) == TG_OK);
    HAS(tg_grad(y), "[2, 2, 1]"); /* v is a part of it */
    HAS(tg_grad(v), "[1, 1]");
    HAS(tg_grad(x), "[26, 26, 7]");
}

TEST(hook_that_removes_itself)
{
    tg_tensor *x = leaf("[1]"), *y = tg_mul_scalar(x, 2);
    int calls = 0, k;
    own_hook on_x = {NULL, 0, 0}, on_y = {NULL, 0, 0};
    on_x.t = x, on_x.id = tg_hook(x, hook_removes_itself, &on_x);
    on_y.t = y, on_y.id = tg_hook(y, hook_removes_itself, &on_y);
    tg_hook(y, hook_count, &calls);
    tg_set_cache_limit(0); /* so that a memory checker sees what a freed entry is used for */
    for (k = 0; k < 2; ++k) CHECK(backward_sum(y) == TG_OK && on_x.calls == 1 && on_y.calls == 1 && calls == k + 1);
    tg_set_cache_limit(HARNESS_MEMORY_CHECKER ? 0 : SIZE_MAX);
}

TEST(hook_removed_after_a_write)
{
    tg_tensor *x = leaf("[1]"), *y = tg_mul_scalar(x, 2);
    double two = 2;
    int hook = tg_hook(y, hook_times, &two);
    tg_add_scalar_(y, 1);
    CHECK(tg_unhook(y, hook) == TG_OK && backward_sum(y) == TG_OK);
    HAS(tg_grad(x), "[2]");
}

/* What hooks do to modes ends with them.  (Scopes that they leave open, or try to end: tests/test_callbacks.c.) */
static tg_tensor *hook_changes_modes(tg_tensor *g, void *user)
{
    tg_mark mark = tg_scope_begin();
    tg_tensor *twice = tg_keep(tg_mul_scalar(g, 2));
    (void)user;
    tg_scope_end(mark);
    tg_set_grad_enabled(true);
    return twice;
}

TEST(hooks_and_modes)
{
    tg_tensor *x = leaf("[1, 2]"), *y = tg_mul_scalar(x, 3);
    tg_hook(y, hook_changes_modes, NULL);
    tg_hook(x, hook_changes_modes, NULL);
    y = tg_sum(y);
    tg_set_grad_enabled(false);
    CHECK(tg_backward(y) == TG_OK && !tg_is_grad_enabled());
    tg_set_grad_enabled(true);
    HAS(tg_grad(x), "[12, 12]");
}

/* Backward inside backward: a hook differentiates something else, and the very graph that is running. */
static tg_tensor *inner_loss, *inner_leaf;
static tg_tensor *hook_runs_backward(tg_tensor *g, void *user)
{
    (void)user;
    if (tg_backward_ex(&inner_loss, 1, NULL, TG_RETAIN_GRAPH) != TG_OK) return NULL;
    return tg_mul(g, tg_full_like(g, tg_item(tg_grad(inner_leaf))));
}

static tg_tensor *hook_runs_backward_once(tg_tensor *g, void *user)
{
    tg_tensor *loss = inner_loss, *result;
    if (!loss) return NULL;
    inner_loss = NULL;
    result = tg_backward_ex(&loss, 1, NULL, TG_RETAIN_GRAPH) == TG_OK ? tg_mul(g, tg_grad(inner_leaf)) : NULL;
    (void)user;
    return result;
}

TEST(backward_inside_hooks)
{
    tg_tensor *x = leaf("[1, 2]"), *y = tg_mul(x, x), *loss;
    inner_leaf = scalar_leaf(3);
    inner_loss = tg_mul(inner_leaf, inner_leaf);
    tg_hook(y, hook_runs_backward, NULL);
    CHECK(backward_sum(y) == TG_OK);
    HAS(tg_grad(x), "[12, 24]");
    x = scalar_leaf(2), y = tg_mul(x, x), loss = tg_mul(y, y); /* x^4: the hook runs the running graph once more */
    inner_leaf = x, inner_loss = loss;
    tg_hook(y, hook_runs_backward_once, NULL);
    CHECK(tg_backward_ex(&loss, 1, NULL, TG_RETAIN_GRAPH) == TG_OK);
    HAS(tg_grad(x), "1056"); /* 32 from inside, then 32 * 32 */
}

/* ---- section 2.4: modes ---- */

TEST(modes)
{
    ROW(2.39) {
        tg_tensor *x = leaf("[1, 2]"), *inside, *again;
        {
            TG_NO_GRAD;
            tg_tensor *y = tg_mul(x, x);
            CHECK(!tg_is_grad_enabled() && !tg_requires_grad(y) && tg_is_leaf(y));
            {
                TG_ENABLE_GRAD;
                CHECK(tg_is_grad_enabled() && tg_requires_grad(tg_mul(x, x)));
            }
            CHECK(!tg_is_grad_enabled());
            inside = tg_set_requires_grad(tg_ones(TG_SHAPE(2)), true);
        }
        CHECK(tg_is_grad_enabled() && tg_requires_grad(inside) && tg_is_leaf(inside));
        CHECK(tg_set_grad_enabled(false) == true);
        again = tg_mul(x, x);
        CHECK(tg_set_grad_enabled(true) == false && !tg_requires_grad(again));
        {
            tg_mark mark = tg_scope_begin();
            tg_set_grad_enabled(false);
            tg_scope_end(mark);
            CHECK(tg_is_grad_enabled()); /* a scope's end restores the mode */
        }
    }
    ROW(2.40) {
        tg_tensor *x = leaf("[1, 2]");
        TG_NO_GRAD;
        CHECK(tg_sub_(x, f64("[0.5, 0.5]")) == x && tg_version_of(x) == 1 && tg_is_leaf(x) && tg_requires_grad(x));
        HAS(x, "[0.5, 1.5]");
    }
    ROW(2.42) {
        tg_tensor *x = leaf("[1, 2]"), *y = tg_exp(x), *d = tg_detach(y);
        CHECK(!tg_requires_grad(d) && tg_is_leaf(d) && tg_data(d) == tg_data(y));
        tg_add_scalar_(d, 1);
        CHECK(tg_version_of(y) == 1 && tg_version_of(d) == 1);
        CHECK_FAILS(backward_sum(y), "modified by an inplace operation");
    }
    ROW(2.39) { /* no_grad builds no node */
        tg_tensor *x = leaf("[1, 2]");
        int64_t nodes = tg_stats().nodes;
        TG_NO_GRAD;
        CHECK(tg_sum(tg_exp(tg_mul(x, x))) != NULL && tg_stats().nodes == nodes);
    }
}

/* ---- section 2.5: writes in place, versions, views ---- */

static tg_tensor *view_of(tg_tensor *t) { return tg_view(t, TG_SHAPE(-1)); }
static tg_tensor *to_f32(tg_tensor *t) { return tg_to_dtype(t, TG_F32); }
static tg_tensor *twice(tg_tensor *t)
{
    tg_tensor *pair[2];
    pair[0] = pair[1] = t;
    return tg_cat(pair, 2, 0);
}
static tg_tensor *expanded(tg_tensor *t) { return tg_expand(t, TG_SHAPE(3, 2)); }
static tg_tensor *with_itself(tg_tensor *t) { return tg_mul(t, tg_add_scalar(t, 1)); }
static tg_tensor *by_itself(tg_tensor *t) { return tg_div(t, tg_add_scalar(t, 1)); }
static tg_tensor *with_constant(tg_tensor *t) { return tg_mul(t, f64("[2, 3]")); }
static tg_tensor *softmax(tg_tensor *t) { return tg_softmax(t, 0); }
static tg_tensor *log_softmax(tg_tensor *t) { return tg_log_softmax(t, 0); }
static tg_tensor *std_of(tg_tensor *t) { return tg_std_dim(t, 0, 1, true); }
static tg_tensor *norm_of(tg_tensor *t) { return tg_norm_dim(t, 2, 0, true); }
static tg_tensor *two_to(tg_tensor *t) { return tg_pow(scalar(2), t); }
static tg_tensor *outer_product(tg_tensor *t)
{
    return tg_matmul(tg_view(t, TG_SHAPE(2, 1)), tg_view(t, TG_SHAPE(1, 2)));
}

typedef tg_tensor *(*function1)(tg_tensor *);

/* Whether backward through fn refuses after its input, or its output, was written. */
static bool notices(function1 fn, bool output)
{
    TG_SCOPE;
    tg_tensor *x = tg_mul_scalar(leaf("[0.5, 0.75]"), 1), *y = fn(x), *sum = tg_sum(output ? tg_mul_scalar(y, 1) : y);
    bool refused;
    tg_add_scalar_(output ? y : x, 1);
    refused = tg_backward(sum) != TG_OK && strstr(tg_error_message(), "modified by an inplace operation");
    tg_clear_error();
    return refused;
}

TEST(writes_in_place)
{
    ROW(2.44) {
        tg_tensor *x = leaf("[1, 2, 3]"), *v = tg_narrow(x, 0, 0, 2);
        CHECK_FAILS(tg_add_scalar_(x, 1), "a leaf Variable that requires grad is being used in an in-place operation.");
        CHECK_FAILS(tg_add_scalar_(v, 1),
                    "a view of a leaf Variable that requires grad is being used in an in-place operation.");
        CHECK_FAILS(tg_fill_(x, 1), "a leaf Variable");
        CHECK_FAILS(tg_zero_(v), "a view of a leaf Variable");
        CHECK_FAILS(tg_set(x, TG_INDEX(0), 9), "a leaf Variable");
        HAS(x, "[1, 2, 3]");
        CHECK(tg_version_of(x) == 0);
    }
    ROW(2.45) {
        tg_tensor *x = leaf("[1, 2]"), *y = tg_mul_scalar(x, 2);
        CHECK(tg_add_scalar_(y, 1) == y && tg_version_of(y) == 1 && backward_sum(y) == TG_OK);
        HAS(tg_grad(x), "[2, 2]");
        HAS(y, "[3, 5]");
        y = tg_mul_scalar(x, 2);
        tg_mul_(y, tg_detach(x)); /* 2x * c */
        tg_exp_(y);
        CHECK(backward_sum(y) == TG_OK);
        CHECK_NEAR(tg_get(tg_grad(x), TG_INDEX(1)), 2 + 4 * exp(8.0), 1e-12);
    }
    ROW(2.46) {
        tg_tensor *x = leaf("[1, 2]"), *q = tg_exp(x), *r = tg_mul(q, q);
        tg_add_scalar_(q, 1);
        CHECK(backward_sum(r) != TG_OK && tg_error_code() == TG_ERR_GRAPH);
        CHECK(strstr(tg_error_message(),
                     "one of the variables needed for gradient computation has been modified by an inplace "
                     "operation: [") != NULL);
        CHECK(strstr(tg_error_message(), "[2]], which is output 0 of ") != NULL);
        CHECK(strstr(tg_error_message(), "is at version 1; expected version 0 instead.") != NULL);
        CHECK(strstr(tg_error_message(), "backward of mul") != NULL); /* who needs it, and who wrote it */
        CHECK(strstr(tg_error_message(), "written by add_scalar") != NULL);
        tg_clear_error();
        CHECK(tg_grad(x) == NULL);
        q = tg_exp(x);
        tg_add_scalar_(q, 1);
        CHECK_FAILS(backward_sum(q), "which is output 0 of ExpBackward0, is at version 1; expected version 0 instead.");
        q = tg_exp(x), r = tg_mul(q, q);
        CHECK(tg_touch_(q) == q);
        CHECK_FAILS(backward_sum(r), "touch_");
    }
    ROW(2.47) {
        tg_tensor *t = f64("[1, 2, 3]"), *v = tg_narrow(t, 0, 1, 2), *d = tg_detach(v), *p = leaf("[1]"), *c;
        tg_optim *opt = tg_sgd(&p, 1, 0.5);
        tg_add_scalar_(t, 1);
        CHECK(tg_version_of(t) == 1 && tg_version_of(v) == 1 && tg_version_of(d) == 1);
        tg_set(t, TG_INDEX(0), 5);
        tg_copy_(v, d);
        tg_zero_(d);
        tg_fill_(t, 2);
        tg_touch_(v);
        CHECK(tg_version_of(t) >= 5 && tg_version_of(t) == tg_version_of(d));
        {
            TG_NO_GRAD;
            int64_t before = tg_version_of(t);
            tg_mul_(t, t);
            CHECK(tg_version_of(t) == before + 1);
        }
        c = tg_clone(t);
        CHECK(tg_version_of(c) == 0);
        tg_backward(tg_sum(tg_mul(p, p)));
        tg_step(opt);
        CHECK(tg_version_of(p) == 1);
        tg_optim_free(opt);
    }
    ROW(2.48) {
        static const function1 save_output[] = {tg_exp,        tg_sigmoid, tg_tanh,     tg_sqrt, tg_relu, tg_rsqrt,
                                                tg_reciprocal, softmax,    log_softmax, std_of,  norm_of, two_to};
        static const function1 save_input[] = {with_itself, by_itself, outer_product, tg_sin, tg_cos, tg_log, tg_abs};
        static const function1 save_nothing[] = {tg_neg, tg_sum, tg_mean, view_of, to_f32, twice, expanded, tg_clone};
        size_t i;
        for (i = 0; i < sizeof save_output / sizeof save_output[0]; ++i) {
            char text[8];
            harness.sample = text;
            snprintf(text, sizeof text, "%d", (int)i);
            CHECK(notices(save_output[i], true));
        }
        for (i = 0; i < sizeof save_input / sizeof save_input[0]; ++i) {
            char text[8];
            harness.sample = text;
            snprintf(text, sizeof text, "%d", (int)i);
            CHECK(notices(save_input[i], false));
        }
        for (i = 0; i < sizeof save_nothing / sizeof save_nothing[0]; ++i) {
            char text[8];
            harness.sample = text;
            snprintf(text, sizeof text, "%d", (int)i);
            CHECK(!notices(save_nothing[i], false));
            if (save_nothing[i] != expanded) CHECK(!notices(save_nothing[i], true));
        }
        harness.sample = NULL;
        CHECK(!notices(with_constant, false)); /* mul by a constant needs the constant, not its input */
        {
            tg_tensor *x = leaf("[1, 3, 2]"), *index = NULL, *y = tg_max_dim(x, 0, false, &index);
            tg_add_scalar_(index, 1);
            CHECK_FAILS(tg_backward(y), "modified by an inplace operation");
        }
    }
    ROW(2.55) {
        tg_tensor *i = of(TG_I64, "[1, 2]"), *one = f64("[1]"), *half = of(TG_F32, "[1, 2]");
        CHECK_FAILS(tg_add_(i, f64("[0.5, 0.5]")), "can't be cast to the desired output type");
        HAS(i, "[1, 2]");
        CHECK_FAILS(tg_add_(one, f64("[1, 2, 3]")), "doesn't match the broadcast shape");
        HAS(one, "[1]");
        CHECK(tg_add_(half, f64("[1, 1]")) == half && tg_dtype_of(half) == TG_F32);
        HAS(half, "[2, 3]");
    }
}

TEST(views_and_writes)
{
    int64_t nodes;
    ROW(2.49) {
        tg_tensor *x = leaf("[1, 2, 3, 4]"), *y = tg_mul_scalar(x, 1), *v = tg_narrow(y, 0, 1, 2);
        CHECK(tg_mul_scalar_(v, 10) == v && !tg_is_leaf(y));
        nodes = tg_stats().nodes;
        CHECK(tg_neg(v) != NULL && tg_stats().nodes == nodes + 1); /* v is up to date: only the new op's node */
        HAS(y, "[1, 20, 30, 4]");
        CHECK(backward_sum(y) == TG_OK);
        HAS(tg_grad(x), "[1, 10, 10, 1]");
    }
    ROW(2.50) {
        tg_tensor *x = leaf("[1, 2, 3, 4]"), *y = tg_mul_scalar(x, 1), *v = tg_narrow(y, 0, 1, 2);
        tg_mul_scalar_(y, 10);
        HAS(v, "[20, 30]");
        CHECK(backward_sum(v) == TG_OK);
        HAS(tg_grad(x), "[0, 10, 10, 0]");
    }
    ROW(2.51) {
        tg_tensor *x = leaf("[1, 2]"), *y = tg_mul_scalar(x, 2), *base = f64("[0, 0, 0]"), *w = leaf("[5]");
        CHECK(tg_set(y, TG_INDEX(0), 5) == TG_OK && backward_sum(y) == TG_OK);
        HAS(y, "[5, 4]");
        HAS(tg_grad(x), "[0, 2]");
        y = tg_mul_scalar(x, 2);
        tg_fill_(tg_select(y, 0, 1), 7);
        CHECK(backward_sum(y) == TG_OK);
        HAS(tg_grad(x), "[2, 2]");
        CHECK(tg_copy_(tg_narrow(base, 0, 1, 1), w) != NULL && tg_requires_grad(base) && !tg_is_leaf(base));
        CHECK(backward_sum(tg_mul_scalar(base, 3)) == TG_OK);
        HAS(tg_grad(w), "[3]");
        HAS(base, "[0, 5, 0]");
    }
    ROW(2.52) {
        tg_tensor *x = leaf("[1, 2, 3, 4]"), *y = tg_mul_scalar(x, 1), *parts[4], *data = f64("[1, 2, 3, 4]");
        const char *text =
            "is a view and is being modified inplace. This view is the output of a function that returns multiple "
            "views. Such functions do not allow the output views to be modified inplace. You should replace the "
            "inplace operation by an out-of-place one.";
        CHECK(tg_split(y, 2, 0, parts, 4) == 2);
        CHECK_FAILS(tg_add_scalar_(parts[0], 1), text);
        CHECK(tg_chunk(y, 2, 0, parts, 4) == 2);
        CHECK_FAILS(tg_add_scalar_(parts[1], 1), text);
        CHECK(tg_unbind(y, 0, parts, 4) == 4);
        CHECK_FAILS(tg_add_scalar_(parts[3], 1), text);
        HAS(y, "[1, 2, 3, 4]");
        CHECK(tg_unbind(data, 0, parts, 4) == 4 &&
              tg_add_scalar_(parts[3], 1) == parts[3]); /* no graph: no objection */
        HAS(data, "[1, 2, 3, 5]");
    }
    ROW(2.53) {
        tg_tensor *x = leaf("[1, 2]"), *y = tg_mul_scalar(x, 1), *v, *data = f64("[1, 2]"), *w, *of_leaf;
        {
            TG_NO_GRAD;
            v = tg_narrow(y, 0, 0, 1);
            w = tg_narrow(data, 0, 0, 1);
        }
        CHECK_FAILS(tg_mul_scalar_(v, 2),
                    "A view was created in no_grad mode and is being modified inplace with grad mode "
                    "enabled. Given that this use case is ambiguous");
        CHECK_FAILS(tg_mul_(v, tg_narrow(y, 0, 1, 1)), "A view was created in no_grad mode");
        HAS(y, "[1, 2]");
        {
            TG_NO_GRAD;
            of_leaf = tg_narrow(x, 0, 0, 1);
        }
        CHECK(tg_mul_scalar_(of_leaf, 2) == NULL && tg_error_code() == TG_ERR_GRAPH); /* its base is a leaf */
        tg_clear_error();
        HAS(x, "[1, 2]");
        CHECK(tg_mul_scalar_(w, 2) == w); /* without gradients there is nothing ambiguous */
        {
            TG_NO_GRAD;
            CHECK(tg_mul_scalar_(v, 2) == v);
        }
        HAS(y, "[2, 2]");
    }
    ROW(2.54) {
        tg_tensor *t = tg_expand(f64("[[1], [2]]"), TG_SHAPE(2, 3)), *windows = tg_unfold(f64("[1, 2, 3, 4]"), 0, 3, 1);
        CHECK_FAILS(tg_add_scalar_(t, 1),
                    "more than one element of the written-to tensor refers to a single memory location");
        CHECK_FAILS(tg_zero_(windows),
                    "more than one element of the written-to tensor refers to a single memory location");
        CHECK(tg_add_scalar_(tg_unfold(f64("[1, 2, 3, 4]"), 0, 2, 2), 1) != NULL);
    }
}

/* Views taken before, between and after writes, the base and views written, all of it used: the sum of everything. */
TEST(base_and_views_written_in_turn)
{
    tg_tensor *x = leaf("[[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12], [13, 14, 15, 16]]"), *y = tg_mul_scalar(x, 1),
              *early = tg_add_scalar(y, 0);
    tg_tensor *old = tg_select(y, 1, 2), *v = tg_select(y, 0, 1), *w;
    int i;
    tg_mul_scalar_(v, 3);
    w = tg_narrow(tg_t(y), 0, 1, 2);
    tg_add_scalar_(w, 1);
    CHECK(tg_backward(tg_add(tg_add(tg_sum(tg_mul(y, y)), tg_sum(v)),
                             tg_add(tg_sum(early), tg_sum(tg_mul(old, old))))) == TG_OK);
    for (i = 0; i < 16; ++i) {
        int row = i / 4, column = i % 4;
        double d = row == 1 ? 3 : 1, value = (i + 1) * d + (column == 1 || column == 2 ? 1 : 0);
        double wanted = 2 * value * d + (row == 1 ? d : 0) + 1 + (column == 2 ? 2 * value * d : 0);
        CHECK_NEAR(tg_get(y, TG_INDEX(row, column)), value, 1e-12);
        CHECK_NEAR(tg_get(tg_grad(x), TG_INDEX(row, column)), wanted, 1e-12);
    }
}

TEST(view_of_a_constant_written_with_a_gradient)
{
    tg_tensor *w = leaf("[3, 3]"), *base = f64("[2, 2, 2, 2]"), *v = tg_narrow(base, 0, 0, 2),
              *other = tg_narrow(base, 0, 1, 2);
    tg_mul_(v, w);
    CHECK(tg_requires_grad(base) && tg_requires_grad(other) && !tg_is_leaf(other));
    CHECK(backward_sum(other) == TG_OK);
    HAS(tg_grad(w), "[0, 2]");
}

TEST(views_that_outlive_their_base)
{
    tg_tensor *x = leaf("[2, 2, 2, 2]"), *v, *other;
    {
        TG_SCOPE;
        tg_tensor *y = tg_mul_scalar(x, 5);
        v = tg_keep(tg_narrow(y, 0, 0, 2));
        other = tg_keep(tg_narrow(y, 0, 1, 2));
    }
    tg_mul_scalar_(v, 7);
    CHECK(backward_sum(other) == TG_OK);
    HAS(tg_grad(x), "[0, 35, 5, 0]");
}

TEST(write_of_a_tensor_into_itself)
{
    tg_tensor *x = leaf("[2, 3]"), *y = tg_mul_scalar(x, 1), *q, *r;
    tg_mul_(y, y);
    HAS(y, "[4, 9]");
    CHECK_FAILS(backward_sum(y), "modified by an inplace operation"); /* as PyTorch: the second factor was needed */
    q = tg_exp(x), r = tg_mul(q, q);
    tg_mul_(q, r); /* q's history saves r, whose node saved q: no cycle, or the test's end finds it alive */
    CHECK_FAILS(backward_sum(q), "modified by an inplace operation");
    y = tg_mul_scalar(x, 1);
    tg_add_(y, y);
    CHECK(backward_sum(y) == TG_OK);
    HAS(tg_grad(x), "[2, 2]");
    y = tg_clone(x);
    tg_add_(tg_narrow(y, 0, 0, 1), tg_narrow(y, 0, 1, 1));
    CHECK(backward_sum(tg_mul(y, f64("[10, 1]"))) == TG_OK);
    HAS(tg_grad(x), "[12, 13]");
}

/* y = x * x; y *= b;  sum(y * y) */
static tg_tensor *write_whole(tg_tensor *const *in, int n, void *user)
{
    tg_tensor *y = tg_mul(in[0], in[0]);
    (void)n, (void)user;
    tg_mul_(y, in[1]);
    tg_exp_(tg_mul_scalar_(y, 0.1));
    return tg_sum(tg_mul(y, y));
}

/* y = x * x; y[1:3] *= b; then sin in place on y transposed's row; old views are used after */
static tg_tensor *write_views(tg_tensor *const *in, int n, void *user)
{
    tg_tensor *y = tg_view(tg_mul(in[0], in[0]), TG_SHAPE(2, 2)), *old = tg_select(y, 1, 0);
    (void)n, (void)user;
    tg_mul_(tg_select(y, 0, 1), tg_narrow(in[1], 0, 0, 2));
    tg_sin_(tg_select(tg_t(y), 0, 1));
    tg_add_(y, tg_view(in[1], TG_SHAPE(2, 2)));
    return tg_add(tg_sum(tg_mul(y, y)), tg_sum(tg_exp(old)));
}

static tg_tensor *write_copy(tg_tensor *const *in, int n, void *user)
{
    tg_tensor *base = tg_zeros_on(TG_SHAPE(3, 2), TG_F64, HERE), *row = tg_select(base, 0, 1);
    (void)n, (void)user;
    tg_copy_(row, tg_mul(tg_narrow(in[0], 0, 0, 2), tg_narrow(in[1], 0, 2, 2)));
    tg_copy_(tg_select(base, 0, 2), tg_exp(tg_narrow(in[0], 0, 1, 1)));
    tg_masked_fill_(base, tg_gt_scalar(base, 100), 0);
    return tg_sum(tg_mul(base, tg_sin(base)));
}

TEST(double_backward_through_writes)
{
    static const tg_function functions[] = {write_whole, write_views, write_copy};
    tg_tensor *in[2];
    size_t i;
    in[0] = leaf("[0.5, -0.7, 1.1, 0.3]"), in[1] = leaf("[1.5, 0.9, -1.2, 0.4]");
    ROW(2.45)
        ROW(2.49) {
            for (i = 0; i < sizeof functions / sizeof functions[0]; ++i) {
                char text[8];
                harness.sample = text;
                snprintf(text, sizeof text, "%d", (int)i);
                CHECK(tg_gradcheck(functions[i], in, 2, NULL) && tg_gradgradcheck(functions[i], in, 2, NULL));
            }
            harness.sample = NULL;
        }
}

/* ---- section 2.6: shapes of gradients ---- */

static tg_status wide_forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    (void)ctx;
    return (out[0] = tg_mul_scalar(in[0], 2)) ? TG_OK : tg_error_code();
}
static tg_status wide_backward(tg_ctx *ctx, tg_tensor *const *g, tg_tensor **grad_in) /* user: the shape to return */
{
    (void)g;
    return (grad_in[0] = tg_ones_on(*(tg_shape *)tg_ctx_user(ctx), TG_F64, HERE)) ? TG_OK : tg_error_code();
}

TEST(shapes_of_gradients)
{
    ROW(2.58) {
        tg_tensor *a = tg_set_requires_grad(tg_view(f64("[1, 2]"), TG_SHAPE(2, 1)), true), *b = leaf("[1, 1, 1]");
        CHECK(backward_sum(tg_mul(a, b)) == TG_OK && tg_ndim(tg_grad(a)) == 2 && tg_dim(tg_grad(a), 1) == 1);
        HAS(tg_grad(a), "[[3], [3]]");
        HAS(tg_grad(b), "[3, 3, 3]");
    }
    ROW(2.59) {
        tg_tensor *s = scalar_leaf(2), *t = leaf_of(TG_F32, "[1, 2, 3]"), *y = tg_mul(s, t);
        CHECK(tg_dtype_of(y) == TG_F32 && backward_sum(y) == TG_OK);
        CHECK(tg_ndim(tg_grad(s)) == 0 && tg_dtype_of(tg_grad(s)) == TG_F64 && tg_dtype_of(tg_grad(t)) == TG_F32);
        HAS(tg_grad(s), "6");
        HAS(tg_grad(t), "[2, 2, 2]");
    }
    ROW(2.60) {
        tg_tensor *x = leaf("[1, 2]"), *y = NULL;
        tg_shape shape = TG_SHAPE(3, 2);
        CHECK(tg_custom("wide", wide_forward, wide_backward, &shape, &x, 1, &y, 1) == TG_OK &&
              backward_sum(y) == TG_OK);
        HAS(tg_grad(x), "[3, 3]");
        shape = TG_SHAPE(3);
        CHECK(tg_custom("wide", wide_forward, wide_backward, &shape, &x, 1, &y, 1) == TG_OK);
        CHECK_FAILS(backward_sum(y),
                    "returned an invalid gradient at index 0 - got [3] but expected shape compatible with [2]");
        HAS(tg_grad(x), "[3, 3]");
    }
    ROW(2.61) {
        tg_tensor *a = leaf_of(TG_F16, "[1, 2]"), *b = leaf_of(TG_F32, "[3, 4]"), *y = tg_mul(a, b);
        CHECK(tg_dtype_of(y) == TG_F32 && backward_sum(y) == TG_OK);
        CHECK(tg_dtype_of(tg_grad(a)) == TG_F16 && tg_dtype_of(tg_grad(b)) == TG_F32);
        HAS(tg_grad(a), "[3, 4]");
        HAS(tg_grad(b), "[1, 2]");
    }
}

/* ---- section 2.7: values and gradients at kinks and edges ---- */

static tg_tensor *leaky_tenth(tg_tensor *x) { return tg_leaky_relu(x, 0.1); }
static tg_tensor *elu_one(tg_tensor *x) { return tg_elu(x, 1); }
static tg_tensor *softplus_one(tg_tensor *x) { return tg_softplus(x, 1, 20); }
static tg_tensor *clamp_one(tg_tensor *x) { return tg_clamp(x, -1, 1); }
static tg_tensor *clamp_crossed(tg_tensor *x) { return tg_clamp(x, 1, -1); }
static tg_tensor *power_half(tg_tensor *x) { return tg_pow_scalar(x, 0.5); }
static tg_tensor *power_0(tg_tensor *x) { return tg_pow_scalar(x, 0); }
static tg_tensor *power_1(tg_tensor *x) { return tg_pow_scalar(x, 1); }
static tg_tensor *power_2(tg_tensor *x) { return tg_pow_scalar(x, 2); }
static tg_tensor *power_minus_1(tg_tensor *x) { return tg_pow_scalar(x, -1); }
static tg_tensor *norm_half(tg_tensor *x) { return tg_norm_dim(x, 0.5, 0, false); }
static tg_tensor *norm_1(tg_tensor *x) { return tg_norm_dim(x, 1, 0, false); }
static tg_tensor *norm_3_halves(tg_tensor *x) { return tg_norm_dim(x, 1.5, 0, false); }
static tg_tensor *norm_3(tg_tensor *x) { return tg_norm_dim(x, 3, 0, false); }
static tg_tensor *norm_inf(tg_tensor *x) { return tg_norm_dim(x, (double)INFINITY, 0, false); }
static tg_tensor *norm_0(tg_tensor *x) { return tg_norm_dim(x, 0, 0, false); }
static tg_tensor *variance_0(tg_tensor *x) { return tg_var_dim(x, 0, 0, false); }
static tg_tensor *max_first(tg_tensor *x) { return tg_max_dim(x, 0, false, NULL); }
static tg_tensor *min_first(tg_tensor *x) { return tg_min_dim(x, 0, false, NULL); }
static tg_tensor *guarded_sqrt(tg_tensor *x) { return tg_where(tg_gt_scalar(x, 0), tg_sqrt(x), tg_zeros_like(x)); }
static tg_tensor *filled(tg_tensor *x) { return tg_masked_fill(x, tg_gt_scalar(x, 1), 9); }
static tg_tensor *softmax_1(tg_tensor *x) { return tg_select(tg_softmax(x, 0), 0, 1); }
static tg_tensor *log_softmax_1(tg_tensor *x) { return tg_select(tg_log_softmax(x, 0), 0, 1); }

TEST(gradients_at_kinks)
{
    ROW(2.62) {
        SLOPE(tg_relu, "[0, -0, nan, 1, -1]", "[0, 0, nan, 1, 0]", "[0, 0, 1, 1, 0]");
        CHECK(signbit(tg_item(tg_relu(scalar(-0.0)))) != 0);
    }
    ROW(2.63) { /* the other activations come with the wider set of ops */
        SLOPE(leaky_tenth, "[0, -1, 1]", "[0, -0.1, 1]", "[0.1, 0.1, 1]");
        SLOPE(elu_one, "[0, -1, 1]", "[0, -0.6321205588285577, 1]", "[1, 0.36787944117144233, 1]");
    }
    ROW(2.65) {
        SLOPE(tg_abs, "[0, -2, 2, nan]", "[0, 2, 2, nan]", "[0, -1, 1, 0]");
        SLOPE(tg_sign, "[0, -2, 2, nan]", "[0, -1, 1, 0]", "[0, 0, 0, 0]");
    }
    ROW(2.66) {
        SLOPE(tg_max, "[1, 3, 3]", "3", "[0, 0.5, 0.5]");
        SLOPE(tg_min, "[1, 1, 3]", "1", "[0.5, 0.5, 0]");
        SLOPE(tg_amax, "[3, 3, 3, 1]", "3", "[0.33333333333333331, 0.33333333333333331, 0.33333333333333331, 0]");
        SLOPE(tg_amin, "[1, 1, 3]", "1", "[0.5, 0.5, 0]");
        SLOPE(tg_max, "[nan, nan]", "nan", "[0.5, 0.5]");
        SLOPE(tg_max, "[nan, 1]", "nan", "[1, 0]");
        SLOPE(max_first, "[1, 3, 3]", "3", "[0, 1, 0]");
        SLOPE(min_first, "[1, 1, 3]", "1", "[1, 0, 0]");
    }
    ROW(2.67) {
        tg_tensor *index = NULL, *x = f64("[2, 5, nan, 5, nan, 1]"), *t = f64("[2, 5, 1, 5]");
        CHECK(tg_item_i64(tg_argmax(x, 0, false)) == 2 && tg_item_i64(tg_argmin(x, 0, false)) == 2);
        CHECK(tg_item_i64(tg_argmax(t, 0, false)) == 1 && tg_max_dim(t, 0, false, &index) && tg_item_i64(index) == 1);
        HAS(tg_topk(x, 3, 0, true, &index), "[nan, nan, 5]");
        HAS(index, "[2, 4, 1]");
        HAS(tg_sort(x, 0, false, &index), "[1, 2, 5, 5, nan, nan]");
        HAS(index, "[5, 0, 1, 3, 2, 4]");
    }
    ROW(2.68) {
        SLOPE2(tg_maximum, "[1, 2, nan, 1]", "[1, 1, 1, nan]", "[1, 2, nan, nan]", "[0.5, 1, 1, 1]", "[0.5, 0, 1, 1]");
        SLOPE2(tg_minimum, "[1, 2, nan, 1]", "[1, 1, 1, nan]", "[1, 1, nan, nan]", "[0.5, 0, 1, 1]", "[0.5, 1, 1, 1]");
    }
    ROW(2.69) {
        SLOPE(clamp_one, "[-2, -1, 0, 1, 2, nan]", "[-1, -1, 0, 1, 1, nan]", "[0, 0, 1, 0, 0, 0]");
        SLOPE(clamp_crossed, "[-2, 0, 2]", "[-1, -1, -1]", "[0, 0, 0]");
    }
    ROW(2.70) {
        SLOPE(tg_sqrt, "[0, -1, 4]", "[0, nan, 2]", "[inf, nan, 0.25]");
        SLOPE(tg_rsqrt, "[0, 4]", "[inf, 0.5]", "[-inf, -0.0625]");
        SLOPE(power_half, "[0, 4]", "[0, 2]", "[inf, 0.25]");
        SLOPE(tg_reciprocal, "[0, 2]", "[inf, 0.5]", "[-inf, -0.25]");
        SLOPE(tg_log, "[0, -1, 2]", "[-inf, nan, 0.69314718055994529]", "[inf, -1, 0.5]");
        SLOPE(tg_log1p, "[-1, 0]", "[-inf, 0]", "[inf, 1]");
        SLOPE(tg_acos, "[1, 0]", "[0, 1.5707963267948966]", "[-inf, -1]");
        SLOPE2(tg_atan2, "[0, 1]", "[0, 1]", "[0, 0.78539816339744828]", "[0, 0.5]", "[0, -0.5]");
    }
    ROW(2.71) {
        SLOPE(norm_half, "[0, 1]", "1", "[0, 1]");
        SLOPE(norm_1, "[0, 0]", "0", "[0, 0]");
        SLOPE(norm_3_halves, "[0, 0]", "0", "[0, 0]");
        SLOPE(tg_norm, "[0, 0]", "0", "[0, 0]");
        SLOPE(tg_norm, "[3, 4]", "5", "[0.6, 0.8]");
        SLOPE(norm_3, "[0, 0]", "0", "[0, 0]");
        SLOPE(norm_inf, "[0, 0]", "0", "[0, 0]");
        SLOPE(norm_inf, "[3, -3, 1]", "3", "[0.5, -0.5, 0]");
        HAS(norm_0(leaf("[0, 2, 3]")), "2");
    }
    ROW(2.72) {
        SLOPE(power_0, "[0, 3, nan]", "[1, 1, 1]", "[0, 0, 0]");
        SLOPE(power_1, "[0, -2]", "[0, -2]", "[1, 1]");
        SLOPE(power_2, "[0, -2]", "[0, 4]", "[0, -4]");
        SLOPE(power_minus_1, "[0, 2]", "[inf, 0.5]", "[-inf, -0.25]");
        SLOPE2(tg_pow, "[0, 0, 0, 0, -2, 2]", "[0, 1, 2, -1, 2, 0]", "[1, 0, 0, inf, 4, 1]", "[0, 1, 0, -inf, -4, 0]",
               "[0, 0, 0, -inf, nan, 0.69314718055994529]");
        CHECK_FAILS(tg_pow_scalar(of(TG_I64, "[2]"), -1), "Integers to negative integer powers are not allowed.");
    }
    ROW(2.73) SLOPE2(tg_div, "[1, 0, 1]", "[0, 0, 2]", "[inf, nan, 0.5]", "[inf, inf, 0.5]", "[-inf, nan, -0.25]");
    ROW(2.74) {
        SLOPE(guarded_sqrt, "[-1, 0, 4]", "[0, 0, 2]", "[nan, nan, 0.25]");
        SLOPE(filled, "[0, 1, 2]", "[0, 1, 9]", "[1, 1, 0]");
    }
    ROW(2.75) {
        SLOPE(tg_floor, "[-0.5, 1.5]", "[-1, 1]", "[0, 0]");
        SLOPE(tg_ceil, "[-0.5, 1.5]", "[0, 2]", "[0, 0]");
        SLOPE(tg_trunc, "[-1.5, 1.5]", "[-1, 1]", "[0, 0]");
        SLOPE(tg_round, "[0.5, 1.5, 2.5, -0.5]", "[0, 2, 2, 0]", "[0, 0, 0, 0]");
        CHECK(signbit(tg_item(tg_round(scalar(-0.5)))) != 0);
    }
    ROW(2.76) {
        SLOPE(tg_prod, "[0, 2, 3]", "0", "[6, 0, 0]");
        SLOPE(tg_prod, "[0, 0, 3]", "0", "[0, 0, 0]");
        SLOPE(tg_prod, "[2, 3, 4]", "24", "[12, 8, 6]");
    }
    ROW(2.77) {
        SLOPE(tg_std, "[2, 2, 2]", "0", "[0, 0, 0]");
        SLOPE(tg_var, "[5]", "nan", "[nan]");
        SLOPE(tg_std, "[5]", "nan", "[nan]");
        SLOPE(variance_0, "[5]", "0", "[0]");
    }
    ROW(2.78) {
        SLOPE(tg_logsumexp, "[-inf, -inf]", "-inf", "[nan, nan]");
        SLOPE(tg_logsumexp, "[inf, 1]", "inf", "[nan, 0]");
        SLOPE(tg_logsumexp, "[-inf, 1]", "1", "[0, 1]");
        HAS(tg_softmax(f64("[-inf, -inf]"), 0), "[nan, nan]");
        SLOPE(softmax_1, "[-inf, 1, 2]", "0.26894142136999516", "[0, 0.19661193324148185, -0.19661193324148185]");
        SLOPE(log_softmax_1, "[-inf, 1, 2]", "-1.3132616875182228", "[0, 0.731058578630005, -0.731058578630005]");
    }
    ROW(2.79) {
        SLOPE(tg_sigmoid, "[1000, -1000, 0]", "[1, 0, 0.5]", "[0, 0, 0.25]");
        SLOPE(tg_logsigmoid, "[-1000, 1000, 0]", "[-1000, 0, -0.69314718055994529]", "[1, 0, 0.5]");
        SLOPE(softplus_one, "[25, 0, -1000]", "[25, 0.69314718055994529, 0]", "[1, 0.5, 0]");
        HAS(tg_binary_cross_entropy_with_logits(f64("[1000, 1000, -1000]"), f64("[1, 0, 1]"), NULL, TG_NONE, NULL),
            "[0, 1000, 1000]");
        HAS(tg_binary_cross_entropy(f64("[0]"), f64("[1]"), NULL, TG_NONE), "[100]");
    }
    ROW(2.80) {
        tg_tensor *none = f64("[]"), *columns = tg_zeros_on(TG_SHAPE(0, 3), TG_F64, HERE);
        HAS(tg_sum(none), "0");
        HAS(tg_prod(none), "1");
        HAS(tg_mean(none), "nan");
        HAS(tg_var(none), "nan");
        HAS(tg_norm(none), "0");
        HAS(tg_logsumexp(none), "-inf");
        HAS(tg_any(none), "0");
        HAS(tg_all(none), "1");
        CHECK_FAILS(tg_max(none),
                    "Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with "
                    "the 'dim' argument.");
        CHECK_FAILS(tg_amax(none), "Expected reduction dim to be specified for input.numel() == 0.");
        CHECK_FAILS(tg_argmax(columns, 0, false), "Expected reduction dim 0 to have non-zero size.");
        CHECK_FAILS(tg_max_dim(columns, 0, false, NULL), "Expected reduction dim 0 to have non-zero size.");
        CHECK(tg_numel(tg_max_dim(columns, 1, false, NULL)) == 0);
        HAS(tg_matmul(tg_zeros_on(TG_SHAPE(2, 0), TG_F64, HERE), columns), "[[0, 0, 0], [0, 0, 0]]");
        CHECK(backward_sum(tg_mul(leaf("[]"), leaf("[]"))) == TG_OK);
    }
    ROW(2.81) {
        CHECK_FAILS(tg_mean(of(TG_I64, "[1, 2]")),
                    "could not infer output dtype. Input dtype must be either a floating point or complex dtype.");
    }
}

/* ---- section 2.8: losses ---- */

static tg_tensor *logits; /* of the losses below, a leaf [2, 3] */
static bool loss_is(tg_tensor *loss, const char *value, const char *gradient_of_logits)
{
    bool ok = has(loss, value) && backward_sum(loss) == TG_OK && has(tg_grad(logits), gradient_of_logits);
    tg_set_grad(logits, NULL);
    return ok;
}

TEST(losses_at_edges)
{
    double third = 1.0 / 3;
    tg_tensor *ignored = of(TG_I64, "[-100, -100]"), *targets = of(TG_I64, "[0, 2]"), *y;
    logits = leaf("[[0, 0, 0], [0, 0, 0]]");
    ROW(2.82) {
        CHECK(loss_is(tg_cross_entropy(logits, ignored), "nan", "[[0, 0, 0], [0, 0, 0]]"));
        CHECK(loss_is(tg_cross_entropy_ex(logits, ignored, NULL, -100, 0, TG_SUM), "0", "[[0, 0, 0], [0, 0, 0]]"));
        CHECK(loss_is(tg_cross_entropy_ex(logits, ignored, NULL, -100, 0, TG_NONE), "[0, 0]", "[[0, 0, 0], [0, 0, 0]]"));
        CHECK(isnan(tg_item(tg_cross_entropy_ex(logits, targets, f64("[0, 0, 0]"), -100, 0, TG_MEAN))));
        CHECK(isnan(tg_item(tg_cross_entropy(tg_zeros(TG_SHAPE(0, 3)), of(TG_I64, "[]")))));
    }
    ROW(2.83) {
        y = tg_cross_entropy_ex(logits, of(TG_I64, "[0, -100]"), f64("[2, 1, 1]"), -100, 0, TG_MEAN);
        CHECK_NEAR(tg_item(y), log(3.0), 1e-12); /* 2 log 3 / 2 */
        y = tg_cross_entropy_ex(leaf("[[0, 1, 0], [0, 0, 0]]"), targets, f64("[2, 1, 3]"), -100, 0.3, TG_SUM);
        {
            double l = log(2 + exp(1.0)), first = 0.7 * 2 * l + 0.1 * (2 * l + (l - 1) + 3 * l),
                   second = 0.7 * 3 * log(3.0) + 0.1 * 6 * log(3.0);
            CHECK_NEAR(tg_item(y), first + second, 1e-12);
        }
        y = tg_cross_entropy_ex(logits, of(TG_I64, "[1, -100]"), NULL, -100, 0.3, TG_SUM);
        CHECK_NEAR(tg_item(y), log(3.0), 1e-12); /* the smoothing term of an ignored row does not count */
    }
    ROW(2.84) {
        y = tg_cross_entropy(logits, f64("[[1, 0, 0], [0, 0, 2]]"));
        CHECK_NEAR(tg_item(y), 3 * log(3.0) / 2, 1e-12); /* divided by N, not by the mass */
        CHECK_FAILS(tg_cross_entropy(logits, of(TG_I64, "[3, 0]")), "Target 3 is out of bounds.");
        CHECK_FAILS(tg_cross_entropy(logits, of(TG_I64, "[0, -1]")), "Target -1 is out of bounds.");
        CHECK_FAILS(tg_cross_entropy(logits, of(TG_I64, "[0, 1, 2]")),
                    "Expected input batch_size (2) to match target batch_size (3).");
        CHECK_NEAR(tg_item(tg_cross_entropy_ex(logits, of(TG_I64, "[7, 1]"), NULL, 7, 0, TG_MEAN)), log(3.0), 1e-12);
        tg_backward(tg_cross_entropy(logits, targets));
        CHECK_NEAR(tg_get(tg_grad(logits), TG_INDEX(0, 0)), (third - 1) / 2, 1e-12);
        CHECK_NEAR(tg_get(tg_grad(logits), TG_INDEX(0, 1)), third / 2, 1e-12);
    }
    ROW(2.85) {
        tg_tensor *x = leaf("[1, 2, 4]"), *zero = f64("[1, 1, 1]");
        warnings = 0, warned[0] = 0;
        tg_set_error_handler(keep_warning, NULL);
        HAS(tg_mse_loss(x, f64("[1]"), TG_SUM), "10");
        CHECK(warnings == 1 && strstr(warned, "Using a target size"));
        CHECK(tg_mse_loss(x, f64("[1]"), TG_SUM) != NULL && warnings == 1); /* once for each loss */
        CHECK(tg_l1_loss(x, f64("[1]"), TG_SUM) && tg_l1_loss(x, f64("[1]"), TG_SUM) && warnings == 2);
        tg_set_error_handler(NULL, NULL);
        CHECK(backward_sum(tg_l1_loss(x, zero, TG_NONE)) == TG_OK);
        HAS(tg_grad(x), "[0, 1, 1]");
        tg_set_grad(x, NULL);
        CHECK(backward_sum(tg_smooth_l1_loss(x, zero, TG_NONE, 1)) == TG_OK);
        HAS(tg_grad(x), "[0, 1, 1]");
        tg_set_grad(x, NULL);
        CHECK(backward_sum(tg_smooth_l1_loss(x, zero, TG_NONE, 0)) == TG_OK);
        HAS(tg_grad(x), "[0, 1, 1]");
        tg_set_grad(x, NULL);
        CHECK(backward_sum(tg_huber_loss(x, zero, TG_NONE, 2)) == TG_OK);
        HAS(tg_grad(x), "[0, 1, 2]");
        HAS(tg_kl_div(f64("[-1, -2]"), f64("[0, 1]"), TG_NONE, false), "[0, 2]");
        HAS(tg_kl_div(f64("[[-1, -2], [-1, -2]]"), f64("[[0, 1], [0, 1]]"), TG_BATCHMEAN, false), "2");
        HAS(tg_kl_div(f64("[[-1, -2], [-1, -2]]"), f64("[[0, 1], [0, 1]]"), TG_MEAN, false), "1");
    }
}

/* ---- section 2.9: custom functions and checks ---- */

/* y = exp(x), by saving what `user` says: an input, an output, a tensor that is neither, or two of them; z = x + 1 when
   there is a second output. */
enum {
    SAVE_INPUT = 1,
    SAVE_OUTPUT = 2,
    SAVE_OTHER = 4,
    USE_MEMORY = 8,
    TWO_OUTPUTS = 16,
    MARK_SECOND = 32,
    FAIL_FORWARD = 64,
    FAIL_BACKWARD = 128,
    RAISE_FORWARD = 256,
    NO_GRADIENT = 512,
    FORGET_OUTPUT = 1024,
    RETURN_INPUT = 2048,
    FAIL_LATE = 4096
};

typedef struct {
    int what;
    double *memory;
} exp_user;

static tg_status exp_forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    exp_user *user = (exp_user *)tg_ctx_user(ctx);
    int what = user->what;
    if (what & FAIL_FORWARD) return TG_ERR_UNSUPPORTED;
    if (what & RAISE_FORWARD) return tg_add(in[0], tg_ones(TG_SHAPE(9, 9))) ? TG_OK : tg_error_code();
    if (!(what & FORGET_OUTPUT)) out[0] = what & RETURN_INPUT ? in[0] : tg_exp(in[0]);
    if (what & TWO_OUTPUTS) out[1] = tg_add_scalar(in[0], 1);
    if (what & SAVE_INPUT && tg_save(ctx, in[0]) != TG_OK) return tg_error_code();
    if (what & SAVE_OUTPUT && tg_save(ctx, out[0]) != TG_OK) return tg_error_code();
    if (what & SAVE_OTHER && tg_save(ctx, tg_mul_scalar(in[0], 2)) != TG_OK) return tg_error_code();
    if (what & MARK_SECOND && tg_mark_non_differentiable(ctx, out[1]) != TG_OK) return tg_error_code();
    if (what & USE_MEMORY) {
        user->memory = (double *)tg_ctx_alloc(ctx, 64 * sizeof(double));
        if (!user->memory) return tg_error_code();
        user->memory[63] = 1;
    }
    return what & FAIL_LATE ? TG_ERR_ARGUMENT : tg_ok() ? TG_OK : tg_error_code();
}

static tg_status exp_backward(tg_ctx *ctx, tg_tensor *const *g, tg_tensor **grad_in)
{
    exp_user *user = (exp_user *)tg_ctx_user(ctx);
    int what = user->what;
    tg_tensor *y;
    if (what & FAIL_BACKWARD) return TG_ERR_UNSUPPORTED;
    if (what & NO_GRADIENT) return TG_OK;
    y = what & SAVE_INPUT    ? tg_exp(tg_saved(ctx, 0))
        : what & SAVE_OUTPUT ? tg_saved(ctx, 0)
                             : tg_exp(tg_mul_scalar(tg_saved(ctx, 0), 0.5));
    if (what & USE_MEMORY) y = tg_mul_scalar(y, user->memory[63]);
    grad_in[0] = tg_mul(g[0], y);
    if (what & TWO_OUTPUTS && !(what & MARK_SECOND)) grad_in[0] = tg_add(grad_in[0], g[1]);
    return grad_in[0] ? TG_OK : tg_error_code();
}

static tg_tensor *custom_exp(tg_tensor *x, exp_user *user)
{
    tg_tensor *out[2] = {NULL, NULL};
    tg_custom("my_exp", exp_forward, exp_backward, user, &x, 1, out, user->what & TWO_OUTPUTS ? 2 : 1);
    return out[0];
}

static tg_tensor *custom_exp_sum(tg_tensor *const *in, int n, void *user)
{
    tg_tensor *out[2] = {NULL, NULL}, *y;
    int two = ((exp_user *)user)->what & TWO_OUTPUTS ? 1 : 0;
    (void)n;
    tg_custom("my_exp", exp_forward, exp_backward, user, in, 1, out, 1 + two);
    y = tg_mul(out[0], out[0]);
    return tg_sum(two ? tg_add(y, tg_mul(out[1], out[1])) : y);
}

static tg_status wrong_forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    tg_save(ctx, in[0]);
    return (out[0] = tg_mul(in[0], in[0])) ? TG_OK : tg_error_code();
}
/* user: 0: a sign too many; 1: does not use g; 2: right once, but not made of ops, so not again */
static tg_status wrong_backward(tg_ctx *ctx, tg_tensor *const *g, tg_tensor **grad_in)
{
    tg_tensor *x = tg_saved(ctx, 0);
    switch (*(int *)tg_ctx_user(ctx)) {
    case 0: grad_in[0] = tg_mul(g[0], tg_mul_scalar(x, -2)); break;
    case 1: grad_in[0] = tg_mul_scalar(x, 2); break;
    default: grad_in[0] = tg_mul(tg_detach(g[0]), tg_mul_scalar(tg_detach(x), 2)); break;
    }
    return grad_in[0] ? TG_OK : tg_error_code();
}
static tg_tensor *square_wrong(tg_tensor *const *in, int n, void *user)
{
    tg_tensor *y = NULL;
    (void)n;
    tg_custom("square", wrong_forward, wrong_backward, user, in, 1, &y, 1);
    return tg_sum(y);
}

static tg_tensor *smooth(tg_tensor *const *in, int n, void *user)
{
    (void)n, (void)user;
    return tg_mul(tg_exp(in[0]), tg_sin(in[1]));
}
static tg_tensor *noisy(tg_tensor *const *in, int n, void *user)
{
    (void)n;
    return tg_mul_scalar(tg_sum(in[0]), (double)++*(int *)user);
}

TEST(custom_functions)
{
    ROW(2.86) {
        tg_tensor *x = leaf("[0.5, 1]"), *y;
        exp_user user = {SAVE_INPUT | NO_GRADIENT, NULL};
        y = custom_exp(x, &user);
        CHECK(backward_sum(y) == TG_OK && tg_grad(x) == NULL); /* no gradient given: none arrives */
        CHECK_FAILS(tg_custom("half", exp_forward, NULL, &user, &x, 1, &y, 1), "argument backward is NULL");
        CHECK_FAILS(tg_custom("half", NULL, exp_backward, &user, &x, 1, &y, 1), "argument forward is NULL");
        CHECK_FAILS(tg_custom(NULL, exp_forward, exp_backward, &user, &x, 1, &y, 1), "argument name is NULL");
        CHECK_FAILS(tg_custom("half", exp_forward, exp_backward, &user, NULL, 1, &y, 1), "argument in is NULL");
        CHECK_FAILS(tg_custom("half", exp_forward, exp_backward, &user, &x, 1, NULL, 1), "argument out is NULL");
    }
    ROW(2.87) { /* versions, marks, zeros for unused outputs */
        tg_tensor *x = tg_mul_scalar(leaf("[0.5, 1]"), 1), *out[2] = {NULL, NULL};
        exp_user user = {SAVE_INPUT, NULL};
        tg_tensor *y = custom_exp(x, &user);
        tg_add_scalar_(x, 1);
        CHECK_FAILS(backward_sum(y), "modified by an inplace operation");
        user.what = SAVE_INPUT | TWO_OUTPUTS | MARK_SECOND;
        x = leaf("[0.5, 1]");
        CHECK(tg_custom("two", exp_forward, exp_backward, &user, &x, 1, out, 2) == TG_OK);
        CHECK(tg_requires_grad(out[0]) && !tg_requires_grad(out[1]) && tg_is_leaf(out[1]));
        CHECK(backward_sum(out[0]) == TG_OK);
        CHECK_NEAR(tg_get(tg_grad(x), TG_INDEX(1)), exp(1.0), 1e-12);
        user.what = SAVE_INPUT | TWO_OUTPUTS;
        x = leaf("[0.5, 1]");
        CHECK(tg_custom("two", exp_forward, exp_backward, &user, &x, 1, out, 2) == TG_OK);
        CHECK(backward_sum(out[1]) == TG_OK); /* g[0] is zeros then */
        HAS(tg_grad(x), "[1, 1]");
    }
    { /* every way to save gives the right gradient, and the right gradient of it */
        static const int ways[] = {SAVE_INPUT,
                                   SAVE_OUTPUT,
                                   SAVE_OTHER,
                                   SAVE_INPUT | SAVE_OTHER,
                                   SAVE_INPUT | USE_MEMORY,
                                   SAVE_INPUT | TWO_OUTPUTS,
                                   SAVE_OUTPUT | TWO_OUTPUTS};
        size_t i;
        for (i = 0; i < sizeof ways / sizeof ways[0]; ++i) {
            tg_tensor *x = leaf("[0.5, -1]");
            exp_user user = {0, NULL};
            user.what = ways[i];
            CHECK(tg_gradcheck(custom_exp_sum, &x, 1, &user));
            /* what is neither input nor output has no history: saved by itself it ends the second derivative */
            if (ways[i] != SAVE_OTHER) CHECK(tg_gradgradcheck(custom_exp_sum, &x, 1, &user));
        }
    }
    { /* an output that is an input becomes a tensor of its own */
        tg_tensor *x = leaf("[0.5, 1]"), *y;
        exp_user user = {SAVE_INPUT | RETURN_INPUT, NULL};
        y = custom_exp(x, &user);
        CHECK(y != x && !tg_is_leaf(y) && tg_is_leaf(x) && backward_sum(y) == TG_OK);
        CHECK_NEAR(tg_get(tg_grad(x), TG_INDEX(1)), exp(1.0), 1e-12);
    }
    { /* failures: nothing is left, the error says who */
        tg_tensor *x = leaf("[0.5, 1]"), *y = x;
        exp_user user = {FAIL_FORWARD, NULL};
        tg_stats_info before = tg_stats();
        CHECK_FAILS(tg_custom("my_exp", exp_forward, exp_backward, &user, &x, 1, &y, 1), "forward of my_exp failed");
        CHECK(y == NULL);
        user.what = RAISE_FORWARD;
        CHECK_FAILS(tg_custom("my_exp", exp_forward, exp_backward, &user, &x, 1, &y, 1), "do not broadcast");
        user.what = FORGET_OUTPUT | SAVE_INPUT;
        CHECK_FAILS(tg_custom("my_exp", exp_forward, exp_backward, &user, &x, 1, &y, 1), "did not fill in output 0");
        user.what = SAVE_INPUT | SAVE_OTHER | USE_MEMORY | FAIL_LATE;
        CHECK_FAILS(tg_custom("my_exp", exp_forward, exp_backward, &user, &x, 1, &y, 1), "forward of my_exp failed");
        CHECK(!alive_changed(&before));
        user.what = SAVE_INPUT | FAIL_BACKWARD;
        CHECK_FAILS(backward_sum(custom_exp(x, &user)), "backward of my_exp failed");
        CHECK(tg_grad(x) == NULL);
    }
}

typedef struct {
    int saved, alloc;
} ctx_probe;
static tg_status probe_forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    ctx_probe *probe = (ctx_probe *)tg_ctx_user(ctx);
    int i;
    for (i = 0; i < 100; ++i)
        tg_save(ctx, i % 2 ? in[0] : tg_full_like(in[0], i)); /* more than fits in any first guess */
    for (i = 0; i < 50; ++i) memset(tg_ctx_alloc(ctx, (size_t)(1 + i * 7)), i, (size_t)(1 + i * 7));
    probe->alloc = tg_ctx_alloc(ctx, SIZE_MAX - 8) == NULL && tg_error_code() == TG_ERR_MEMORY;
    tg_clear_error();
    CHECK_FAILS(tg_mark_non_differentiable(ctx, in[0]), "only an output");
    CHECK_FAILS(tg_save(ctx, NULL), "NULL");
    CHECK(!tg_is_grad_enabled());
    out[0] = tg_mul_scalar(in[0], 1);
    return TG_OK;
}
static tg_status probe_backward(tg_ctx *ctx, tg_tensor *const *g, tg_tensor **grad_in)
{
    ctx_probe *probe = (ctx_probe *)tg_ctx_user(ctx);
    CHECK_FAILS(tg_saved(ctx, 100), "100 tensors were saved");
    CHECK_FAILS(tg_saved(ctx, -1), "there is no number -1");
    CHECK_FAILS(tg_save(ctx, g[0]), "only forward saves tensors");
    probe->saved = (int)tg_item(tg_sum(tg_saved(ctx, 98)));
    grad_in[0] = tg_mul_scalar(g[0], 1);
    return TG_OK;
}
static int users_freed;
static void free_user(void *user)
{
    (void)user;
    ++users_freed;
}

TEST(custom_context)
{
    tg_tensor *x = leaf("[1, 2]"), *y = NULL, *c = f64("[1, 2]");
    ctx_probe probe;
    memset(&probe, 0, sizeof probe);
    users_freed = 0;
    {
        TG_SCOPE;
        CHECK(tg_custom_ex("probe", probe_forward, probe_backward, &probe, free_user, &x, 1, &y, 1) == TG_OK);
        CHECK(users_freed == 0 && probe.alloc && backward_sum(y) == TG_OK && probe.saved == 196);
        CHECK_FAILS(backward_sum(y), "second time");
        CHECK(users_freed == 0);
    }
    CHECK(users_freed == 1); /* with the node */
    CHECK(tg_custom_ex("probe", probe_forward, probe_backward, &probe, free_user, &c, 1, &y, 1) == TG_OK);
    CHECK(users_freed == 2 && !tg_requires_grad(y)); /* there is no node: at once */
    {
        exp_user user = {FAIL_FORWARD, NULL};
        CHECK_FAILS(tg_custom_ex("bad", exp_forward, exp_backward, &user, free_user, &x, 1, &y, 1), "failed");
        CHECK(users_freed == 2); /* a call that fails changes nothing: user is still the caller's */
    }
    CHECK_FAILS(tg_save(NULL, x), "NULL");
    CHECK_FAILS(tg_ctx_alloc(NULL, 1), "NULL");
}

/* An output that is a view, saved, and one given twice. */
static tg_status flat_forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    out[0] = out[1] = tg_view(tg_exp(in[0]), TG_SHAPE(-1));
    return out[0] ? tg_save(ctx, out[0]) : tg_error_code();
}
static tg_status flat_backward(tg_ctx *ctx, tg_tensor *const *g, tg_tensor **grad_in)
{
    grad_in[0] = tg_view(tg_mul(tg_add(g[0], g[1]), tg_saved(ctx, 0)), *(tg_shape *)tg_ctx_user(ctx));
    return grad_in[0] ? TG_OK : tg_error_code();
}
static tg_tensor *flat_exp(tg_tensor *const *in, int n, void *user)
{
    tg_tensor *out[2] = {NULL, NULL};
    (void)n;
    tg_custom("flat", flat_forward, flat_backward, user, in, 1, out, 2);
    CHECK(out[0] != out[1]);
    return tg_add(tg_mul(out[0], out[0]), tg_mul_scalar(out[1], 3));
}

TEST(custom_outputs_that_are_views)
{
    tg_tensor *x = leaf("[[0.1, -0.2], [0.3, 0.4]]");
    tg_shape shape = TG_SHAPE(2, 2);
    CHECK(tg_gradcheck(flat_exp, &x, 1, &shape) && tg_gradgradcheck(flat_exp, &x, 1, &shape));
}

/* More saved tensors than any one machine word has bits, their handles gone, differentiated twice. */
enum { MANY = 70 };
static tg_status many_forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    int i;
    for (i = 0; i < MANY; ++i) tg_save(ctx, in[i]);
    out[0] = tg_mul(in[0], in[MANY - 1]);
    return tg_ok() ? TG_OK : tg_error_code();
}
static tg_status many_backward(tg_ctx *ctx, tg_tensor *const *g, tg_tensor **grad_in)
{
    grad_in[0] = tg_mul(g[0], tg_saved(ctx, MANY - 1));
    grad_in[MANY - 1] = tg_mul(g[0], tg_saved(ctx, 0));
    return tg_ok() ? TG_OK : tg_error_code();
}
static tg_tensor *product_of_ends(tg_tensor *const *in, int n, void *user)
{
    (void)user;
    return tg_mul(in[0], in[n - 1]);
}

TEST(many_inputs)
{
    tg_tensor *x = leaf("[3]"), *y = NULL, *g;
    {
        TG_SCOPE;
        tg_tensor *in[MANY];
        int i;
        for (i = 0; i < MANY; ++i) in[i] = tg_mul_scalar(x, i + 1.0);
        CHECK(tg_custom("many", many_forward, many_backward, NULL, in, MANY, &y, 1) == TG_OK);
        tg_keep(y);
    }
    g = gradient(y, x, TG_CREATE_GRAPH); /* 70 x^2 */
    HAS(g, "[420]");
    HAS(gradient(g, x, 0), "[140]");
    {
        TG_SCOPE;
        tg_tensor *in[MANY];
        int i;
        for (i = 0; i < MANY; ++i) in[i] = tg_mul_scalar(x, i + 1.0);
        y = tg_keep(tg_checkpoint(product_of_ends, in, MANY, NULL));
    }
    CHECK(backward_sum(y) == TG_OK);
    HAS(tg_grad(x), "[420]");
}

TEST(gradient_checks)
{
    tg_tensor *in[2], *c = f64("[1, 2]");
    int what, calls = 0;
    in[0] = leaf("[0.5, -1]"), in[1] = leaf("[1, 0.25]");
    ROW(2.90) {
        tg_gradcheck_options options;
        FILE *report = tmpfile();
        char text[4096] = "";
        memset(&options, 0, sizeof options);
        CHECK(tg_gradcheck(smooth, in, 2, NULL) && tg_grad(in[0]) == NULL && tg_version_of(in[0]) == 0);
        for (what = 0; what < 2; ++what) {
            CHECK(!tg_gradcheck(square_wrong, in, 1, &what) && !tg_ok());
            tg_clear_error();
        }
        what = 0;
        options.quiet = true, options.report = report, options.name = "square";
        CHECK(!tg_gradcheck_ex(square_wrong, in, 1, &what, &options) && tg_ok());
        if (report) {
            rewind(report);
            text[fread(text, 1, sizeof text - 1, report)] = 0;
            CHECK(strstr(text, "square") != NULL);
            fclose(report);
        }
        CHECK(!tg_gradcheck(noisy, in, 1, &calls)); /* not the same twice */
        tg_clear_error();
        CHECK_FAILS(tg_gradcheck(smooth, &c, 1, NULL), "require");
        {
            tg_tensor *wide = tg_set_requires_grad(tg_expand(f64("[1]"), TG_SHAPE(2)), true);
            CHECK(!tg_gradcheck(square_wrong, &wide, 1, &what));
            tg_clear_error();
        }
    }
    ROW(2.91) {
        what = 2;
        CHECK(tg_gradgradcheck(smooth, in, 2, NULL));
        CHECK(tg_gradcheck(square_wrong, in, 1, &what));
        CHECK(!tg_gradgradcheck(square_wrong, in, 1, &what));
        tg_clear_error();
    }
}

TEST(anomaly_mode)
{
    ROW(2.89) {
        tg_tensor *x = leaf("[-1, 1]"), *y;
        tg_set_anomaly(true);
        y = tg_sqrt(x);
        tg_set_name(y, "root");
        CHECK(backward_sum(y) != TG_OK);
        CHECK(strstr(tg_error_message(), "Function 'SqrtBackward0' returned nan values in its 0th output.") != NULL);
        CHECK(strstr(tg_error_message(), "sqrt") != NULL);
        tg_clear_error();
        CHECK(tg_grad(x) == NULL && backward_sum(tg_sqrt(tg_abs(x))) == TG_OK);
        tg_set_anomaly(false);
        tg_set_grad(x, NULL);
        CHECK(backward_sum(tg_sqrt(x)) == TG_OK);
        HAS(tg_grad(x), "[nan, 0.5]");
    }
}

TEST(accumulation_and_items)
{
    ROW(2.92) {
        tg_tensor *p = leaf_of(TG_BF16, "[0]");
        int i;
        for (i = 0; i < 300; ++i) {
            TG_SCOPE;
            tg_backward(tg_sum(tg_mul_scalar(p, 1)));
        }
        CHECK(tg_dtype_of(tg_grad(p)) == TG_BF16);
        HAS(tg_grad(p), "[256]"); /* 256 + 1 is not a bf16 */
        CHECK(isinf(tg_item(tg_sum(tg_ones_on(TG_SHAPE(70000), TG_F16, HERE)))));
        CHECK_NEAR(tg_item(tg_sum(tg_full_on(TG_SHAPE(5000), 0.1, TG_BF16, HERE))), 500, 0);
    }
    ROW(2.93) {
        CHECK_FAILS(tg_item(f64("[1, 2]")), "a Tensor with 2 elements cannot be converted to Scalar");
        CHECK_FAILS(tg_item_i64(f64("[]")), "a Tensor with 0 elements cannot be converted to Scalar");
        CHECK(isnan(tg_item(NULL)));
        tg_clear_error();
        CHECK_NEAR(tg_item(leaf("[7]")), 7, 0);
        CHECK_FAILS(tg_get(f64("[1, 2]"), TG_INDEX(2)), "index 2 is out of bounds for dimension 0 with size 2");
        CHECK_FAILS(tg_get(f64("[1, 2]"), TG_INDEX(0, 0)), "index");
        CHECK_NEAR(tg_get(f64("[1, 2]"), TG_INDEX(-1)), 2, 0);
    }
}

/* ---- lifetimes: what is alive, and for how long ---- */

typedef tg_tensor *(*program1)(tg_tensor *x);
static tg_tensor *saves_input(tg_tensor *x) { return tg_mul(tg_sin(x), x); }
static tg_tensor *saves_output(tg_tensor *x) { return tg_exp(tg_tanh(x)); }
static tg_tensor *saves_both(tg_tensor *x) { return tg_layer_norm(x, 1, NULL, NULL, 1e-5); }
static tg_tensor *works_in_place(tg_tensor *x)
{
    tg_tensor *y = tg_mul_scalar(x, 2);
    tg_sin_(y);
    tg_mul_(tg_narrow(y, 0, 0, 1), tg_narrow(x, 0, 0, 1));
    return tg_add_scalar_(y, 1);
}
static tg_tensor *has_outputs(tg_tensor *x)
{
    tg_tensor *parts[2], *index = NULL;
    tg_split(x, 1, 0, parts, 2);
    return tg_add(tg_sort(x, 0, true, &index), parts[1]);
}
static tg_tensor *is_custom(tg_tensor *x)
{
    static exp_user user = {SAVE_INPUT | SAVE_OUTPUT | SAVE_OTHER | USE_MEMORY | TWO_OUTPUTS, NULL};
    return custom_exp(x, &user);
}
static tg_tensor *exp_of_first(tg_tensor *const *in, int n, void *user)
{
    (void)n, (void)user;
    return tg_exp(tg_mul(in[0], in[0]));
}
static tg_tensor *is_checkpointed(tg_tensor *x) { return tg_checkpoint(exp_of_first, &x, 1, NULL); }
static tg_tensor *is_hooked(tg_tensor *x)
{
    static int calls;
    tg_tensor *y = tg_retain_grad(tg_mul(x, x));
    tg_hook(y, hook_count, &calls);
    return tg_exp(y);
}
static tg_tensor *is_named(tg_tensor *x)
{
    tg_tensor *y = tg_exp(x);
    tg_set_name(y, "a name that is longer than any small buffer that one might think of keeping it in");
    tg_set_name(y, "another");
    return tg_mul(y, y);
}

TEST(nothing_is_left_at_the_end_of_a_scope)
{
    static const program1 programs[] = {saves_input, saves_output,    saves_both, works_in_place, has_outputs,
                                        is_custom,   is_checkpointed, is_hooked,  is_named};
    tg_stats_info before = tg_stats();
    size_t i;
    int way;
    for (i = 0; i < sizeof programs / sizeof programs[0]; ++i) {
        for (way = 0; way < 6; ++way) {
            char text[16];
            harness.sample = text;
            snprintf(text, sizeof text, "%d/%d", (int)i, way);
            {
                TG_SCOPE;
                tg_tensor *x = leaf("[0.5, 1]"), *y = programs[i](x), *g;
                if (way == 1) CHECK(backward_sum(y) == TG_OK);
                if (way == 2) CHECK(backward_flags(y, TG_RETAIN_GRAPH) == TG_OK && backward_sum(y) == TG_OK);
                if (way == 3) CHECK(backward_flags(y, TG_CREATE_GRAPH) == TG_OK);
                if (way == 4) g = gradient(y, x, TG_CREATE_GRAPH), CHECK(g != NULL);
                if (way == 5) {
                    tg_tensor *sum = tg_sum(y);
                    tg_backward_run *run = tg_backward_begin(&sum, 1, NULL, 0);
                    CHECK(tg_backward_step(run, NULL) && tg_backward_end(run) == TG_OK); /* abandoned */
                }
                CHECK(y != NULL && tg_ok());
            }
            CHECK(!alive_changed(&before));
        }
    }
    harness.sample = NULL;
}

TEST(what_backward_gives_back)
{
    tg_tensor *x = leaf("[0.5, 1]"), *loss;
    tg_stats_info before = tg_stats(), now;
    {
        TG_SCOPE;
        loss = tg_keep(tg_sum(saves_output(tg_mul(x, saves_input(x)))));
    }
    CHECK(tg_stats().saved > before.saved);
    CHECK(tg_backward(loss) == TG_OK);
    now = tg_stats();
    CHECK(now.saved == before.saved);         /* a loss kept after backward holds nothing saved */
    CHECK(now.nodes > before.nodes);          /* the edges stay, */
    CHECK(now.tensors == before.tensors + 2); /* and the loss and one gradient */
    tg_drop(loss);
    CHECK(tg_stats().nodes == before.nodes);
}

TEST(activations_nobody_saved_die_early)
{
    tg_tensor *x = tg_set_requires_grad(tg_ones(TG_SHAPE(1000)), true), *y;
    int64_t bytes = tg_stats().bytes;
    {
        TG_SCOPE;
        y = tg_keep(tg_add_scalar(tg_neg(tg_add_scalar(tg_mul_scalar(x, 2), 1)), 3)); /* nothing of these is saved */
    }
    CHECK(tg_stats().bytes == bytes + 4000 && tg_stats().nodes == 4);
    CHECK(backward_sum(y) == TG_OK);
    CHECK_NEAR(tg_get(tg_grad(x), TG_INDEX(999)), -2, 0);
    {
        TG_SCOPE;
        tg_tensor *a = tg_exp(x), *b = tg_mul_scalar(a, 2);
        bytes = tg_stats().bytes;
        tg_drop(b); /* nobody needs it */
        CHECK(tg_stats().bytes == bytes - 4000);
        b = tg_mul(a, a);
        bytes = tg_stats().bytes;
        tg_drop(a); /* its handle goes, its bytes are saved */
        CHECK(tg_stats().bytes == bytes && backward_sum(b) == TG_OK);
    }
}

static tg_tensor *block(tg_tensor *x, tg_tensor *a, tg_tensor *b)
{
    TG_SCOPE;
    return tg_keep(tg_add(x, tg_matmul(tg_gelu(tg_matmul(tg_layer_norm(x, 1, NULL, NULL, 1e-5), a), true), b)));
}

/* Bytes that a model of this many blocks needs at most, beyond weights and input. */
static int64_t peak_of_blocks(int blocks)
{
    TG_SCOPE;
    tg_tensor *a = tg_randn(TG_SHAPE(32, 128)), *b = tg_mul_scalar(tg_randn(TG_SHAPE(128, 32)), 0.01),
              *x = tg_randn(TG_SHAPE(64, 32));
    int64_t bytes;
    TG_NO_GRAD;
    tg_set_requires_grad(a, true), tg_set_requires_grad(b, true);
    bytes = tg_stats().bytes;
    tg_reset_peak();
    while (blocks-- > 0) {
        TG_SCOPE;
        x = tg_keep(block(x, a, b));
    }
    CHECK(x != NULL);
    return tg_stats().peak_bytes - bytes;
}

/* The same, each block's result taking the place of its input. */
static int64_t peak_of_chain(int blocks)
{
    TG_SCOPE;
    tg_tensor *a = tg_randn(TG_SHAPE(32, 128)), *b = tg_mul_scalar(tg_randn(TG_SHAPE(128, 32)), 0.01),
              *x = tg_randn(TG_SHAPE(64, 32));
    int64_t bytes = tg_stats().bytes;
    TG_NO_GRAD;
    tg_reset_peak();
    while (blocks-- > 0) {
        tg_tensor *y = block(x, a, b);
        tg_drop(x);
        x = y;
    }
    return tg_stats().peak_bytes - bytes;
}

TEST(peak_without_gradients)
{
    double few = (double)peak_of_chain(2), many = (double)peak_of_chain(24);
    CHECK(few > 0 && many <= 1.2 * few);
    few = (double)peak_of_blocks(2),
    many = (double)peak_of_blocks(24); /* 22 results of 8 KB more are kept to the end */
    CHECK(many - few <= 22 * 64 * 32 * 4);
}

TEST(memory_of_the_graph)
{
    ROW(2.95) {
        tg_stats_info before = tg_stats();
        tg_tensor *x = leaf("[1, 2]"), *y;
        tg_mark mark = tg_scope_begin();
        int i;
        y = x;
        for (i = 0; i < 1000; ++i) y = tg_exp(tg_mul_scalar(y, 0.001));
        y = tg_keep(y);
        tg_scope_end(mark);
        CHECK(tg_stats().nodes == before.nodes + 2000);
        tg_drop(y); /* without any backward */
        CHECK(tg_stats().nodes == before.nodes && tg_stats().saved == before.saved);
        CHECK(tg_stats().tensors == before.tensors + 1);
        for (i = 0; i < 3; ++i) {
            TG_SCOPE;
            tg_backward(tg_sum(tg_mul(x, x)));
        }
        CHECK(tg_stats().tensors == before.tensors + 2 &&
              tg_stats().nodes == before.nodes); /* x and x.grad: no cycle */
    }
}

TEST(no_allocation_after_the_second_step)
{
    tg_tensor *w = tg_set_requires_grad(tg_randn(TG_SHAPE(8, 8)), true), *x = tg_randn(TG_SHAPE(4, 8));
    int64_t allocations = 0;
    int i;
    for (i = 0; i < 10; ++i) {
        TG_SCOPE;
        if (i == 2) allocations = tg_stats().allocations;
        tg_set_grad(w, NULL);
        tg_backward(tg_mean(tg_gelu(tg_matmul(tg_layer_norm(tg_matmul(x, w), 1, NULL, NULL, 1e-5), w), false)));
    }
    if (!HARNESS_MEMORY_CHECKER) CHECK(tg_stats().allocations == allocations);
}

/* ---- scopes ---- */

static tg_tensor *returns_from_scope(tg_tensor *x)
{
    TG_SCOPE;
    tg_tensor *y = tg_mul(x, x);
    if (tg_numel(x) > 1) return tg_keep(tg_sum(y));
    return tg_keep(y);
}

static int leaves_by_goto(tg_tensor *x)
{
    int times = 0;
again : {
    TG_SCOPE;
    if (tg_exp(x) == NULL) return -1;
    if (++times < 5) goto again;
}
    return times;
}

TEST(scopes_keep_and_drop)
{
    tg_stats_info before = tg_stats();
    tg_tensor *x = leaf("[1, 2]"), *kept, *outer;
    int i, k;
    {
        TG_SCOPE;
        {
            TG_SCOPE;
            outer = tg_mul(x, x);
            {
                TG_SCOPE;
                CHECK(tg_keep(outer) == outer); /* not the innermost scope's: stays where it is */
                kept = tg_keep(tg_sum(outer));
                TG_NO_GRAD; /* a mode is no scope */
                CHECK(tg_keep(kept) == kept && tg_keep(x) == x);
            }
            CHECK(tg_stats().tensors == before.tensors + 3);
            CHECK(tg_keep(kept) == kept);
        }
        HAS(kept, "5");
        CHECK(backward_sum(kept) == TG_OK);
    }
    tg_set_grad(x, NULL);
    CHECK(tg_stats().tensors == before.tensors + 1 && tg_stats().nodes == before.nodes);

    HAS(returns_from_scope(x), "5");
    CHECK(leaves_by_goto(x) == 5);
    for (i = 0; i < 10; ++i) {
        TG_SCOPE;
        if (i == 3) continue;
        if (tg_mul(x, x) && i == 7) break;
    }
    for (i = 0; i < 3; ++i) {
        switch (i) {
        case 0: {
            TG_SCOPE;
            CHECK(tg_exp(x) != NULL);
            break;
        }
        default: break;
        }
    }
    {
        TG_SCOPE;
        TG_SCOPE;
        TG_NO_GRAD;
        TG_SCOPE;
        CHECK(tg_exp(x) != NULL);
    }                                                                        /* several on one line */
    CHECK(tg_is_grad_enabled() && tg_stats().tensors == before.tensors + 2); /* x and the sum kept above */

    kept = tg_mul(x, x);
    tg_drop(kept);
    CHECK(tg_stats().tensors == before.tensors + 2);
    CHECK(tg_keep(NULL) == NULL && !tg_ok());
    tg_clear_error();
    tg_drop(NULL), tg_release(NULL);
    CHECK(tg_ok());
    { /* thousands, nested */
        tg_mark first = tg_scope_begin(), mark;
        tg_tensor *t = tg_mul(x, x);
        for (k = 0; k < 5000; ++k) {
            mark = tg_scope_begin();
            t = tg_add(t, x);
        }
        (void)mark;
        CHECK(tg_stats().tensors == before.tensors + 2 + 5001);
        tg_scope_end(first); /* closes all that was left open */
        CHECK(tg_stats().tensors == before.tensors + 2);
    }
}

TEST(scopes_left_open_and_stale_marks)
{
    tg_stats_info before = tg_stats();
    tg_tensor *x = leaf("[1, 2]"), *late;
    tg_mark outer = tg_scope_begin(), inner = tg_scope_begin();
    CHECK(tg_exp(x) != NULL);
    tg_set_grad_enabled(false);
    tg_scope_end(outer);
    CHECK(tg_is_grad_enabled() && tg_stats().tensors == before.tensors + 1);
    CHECK_FAILS(tg_scope_end(inner), "this scope is not open");
    CHECK_FAILS(tg_scope_end(outer), "this scope is not open");
    late = tg_exp(x);
    {
        tg_mark never;
        never.serial = UINT64_MAX - 3;
        CHECK_FAILS(tg_scope_end(never), "this scope is not open");
    }
    HAS(tg_mul_scalar(late, 0), "[0, 0]");
    {
        TG_SCOPE;
        tg_mark open = tg_scope_begin();
        (void)open;
        late = tg_exp(x);
    }
    CHECK(tg_stats().nodes == before.nodes + 2); /* late's first value and the product above */
}

TEST(retain_and_release)
{
    tg_stats_info before = tg_stats();
    tg_tensor *t, *p;
    {
        TG_SCOPE;
        t = tg_retain(tg_retain(f64("[1, 2]")));
    }
    CHECK(tg_stats().tensors == before.tensors + 1);
    tg_release(t);
    HAS(t, "[1, 2]");
    {
        TG_SCOPE;
        CHECK(tg_mul(t, t) != NULL);
    }
    tg_release(t);
    p = tg_param(f64("[3]"));
    CHECK(tg_is_leaf(p) && tg_requires_grad(p));
    tg_retain(p);
    tg_release(p);
    {
        TG_SCOPE;
        CHECK(tg_keep(p) == p && backward_sum(tg_mul(p, p)) == TG_OK); /* tg_keep leaves it: it is in no scope */
    }
    HAS(tg_grad(p), "[6]");
    CHECK_FAILS(tg_param(tg_mul_scalar(p, 2)), "tg_detach");
    tg_release(p);
    t = f64("[1]");
    CHECK_FAILS(tg_release(t), "released more often than retained");
    HAS(t, "[1]");
    tg_drop(t);
    p = tg_retain(tg_param(f64("[1]")));
    tg_release(p);
    tg_drop(p); /* leaves it: it is in no scope */
    HAS(p, "[1]");
    tg_release(p);
}

TEST(gradient_of_a_parameter_outlives_scopes)
{
    tg_stats_info before = tg_stats();
    tg_tensor *p = tg_param(f64("[2]")), *g;
    int i;
    for (i = 0; i < 3; ++i) {
        TG_SCOPE;
        CHECK(backward_sum(tg_mul(p, p)) == TG_OK);
    }
    HAS(tg_grad(p), "[12]");
    g = tg_retain(tg_grad(p));
    tg_release(p);
    HAS(g, "[12]"); /* a handle of its own */
    tg_release(g);
    CHECK(tg_stats().tensors == before.tensors + 0);
}

static void tensors_in_no_scope(void) /* not a TEST: those run in a scope */
{
    static tg_tensor *list[10001];
    int i;
    harness.test = "tensors_in_no_scope";
    warnings = 0, warned[0] = 0;
    tg_set_error_handler(keep_warning, NULL);
    for (i = 0; i < 9999; ++i) list[i] = tg_scalar(i);
    CHECK(warnings == 0 && tg_stats().unscoped == 9999);
    for (; i < 10001; ++i) list[i] = tg_scalar(i);
    CHECK(warnings == 1 && strstr(warned, "TG_SCOPE") && tg_ok());
    {
        TG_SCOPE;
        CHECK(tg_scalar(1) != NULL && tg_stats().unscoped == 10001);
    }
    tg_set_error_handler(NULL, NULL);
    tg_release(tg_param(list[0])); /* as a parameter it belongs to its caller */
    for (i = 1; i < 10001; ++i) tg_release(list[i]);
    CHECK(tg_stats().unscoped == 0 && tg_stats().tensors == 0 && tg_ok());
}

/* ---- the run, a step at a time ---- */

TEST(backward_step_by_step)
{
    tg_tensor *x = leaf("[1, 2]"), *e = tg_exp(x), *y = tg_mul(e, x), *sum;
    tg_backward_run *run;
    tg_step_info info;
    const char *ops[3] = {"sum", "mul", "exp"};
    int k;
    tg_set_name(y, "product");
    sum = tg_sum(y);
    memset(&info, 0, sizeof info);
    run = tg_backward_begin(&sum, 1, NULL, 0);
    for (k = 0; k < 3; ++k) {
        CHECK(tg_backward_step(run, &info) && strcmp(info.op, ops[k]) == 0 && info.formula != NULL && info.formula[0]);
        CHECK(tg_grad(x) == NULL); /* nothing is committed before the end */
        if (k == 1) {
            CHECK(info.inputs == 2 && strcmp(info.name, "product") == 0);
            HAS(info.grad, "[1, 1]");
        }
        if (k == 2) HAS(info.grad, "[1, 2]");
    }
    CHECK(!tg_backward_step(run, &info) && tg_backward_end(run) == TG_OK);
    CHECK_NEAR(tg_get(tg_grad(x), TG_INDEX(1)), 3 * exp(2.0), 1e-12);
    tg_set_grad(x, NULL);

    sum = tg_sum(tg_mul(tg_exp(x), x));
    run = tg_backward_begin(&sum, 1, NULL, TG_RETAIN_GRAPH);
    CHECK(tg_backward_step(run, NULL) && tg_backward_end(run) == TG_OK && tg_grad(x) == NULL); /* abandoned */
    CHECK(tg_backward(sum) == TG_OK);
    CHECK_NEAR(tg_get(tg_grad(x), TG_INDEX(1)), 3 * exp(2.0), 1e-12);
    CHECK(tg_backward_begin(&y, 1, NULL, 0) == NULL && !tg_ok());
    tg_clear_error();
    CHECK(tg_backward_step(NULL, &info) == false);
    CHECK_FAILS(tg_backward_end(NULL), "NULL");
}

TEST(live_runs_interleaved)
{
    tg_tensor *x = leaf("[0.5, 0.5]"), *y = tg_exp(x), *z = tg_mul(y, y), *l = tg_sum(z), *k = tg_sum(tg_mul(z, x));
    double v = exp(0.5), in_a = 2 * v * v, in_b = v * v + 0.5 * 2 * v * v;
    tg_backward_run *a = tg_backward_begin(&l, 1, NULL, TG_RETAIN_GRAPH),
                    *b = tg_backward_begin(&k, 1, NULL, TG_RETAIN_GRAPH);
    bool more_a = true, more_b = true;
    CHECK(tg_backward_step(a, NULL) && tg_backward_step(b, NULL) && tg_backward_step(b, NULL)); /* z waits in both */
    CHECK(tg_backward_ex(&l, 1, NULL, TG_RETAIN_GRAPH) == TG_OK); /* and a third, from end to end */
    CHECK_NEAR(tg_get(tg_grad(x), TG_INDEX(0)), in_a, 1e-12);
    while (more_a || more_b) {
        if (more_b) more_b = tg_backward_step(b, NULL);
        if (more_a) more_a = tg_backward_step(a, NULL);
    }
    CHECK(tg_backward_end(a) == TG_OK);
    CHECK_NEAR(tg_get(tg_grad(x), TG_INDEX(0)), 2 * in_a, 1e-12);
    CHECK(tg_backward_end(b) == TG_OK);
    CHECK_NEAR(tg_get(tg_grad(x), TG_INDEX(1)), 2 * in_a + in_b, 1e-12);
}

TEST(a_backward_that_fails_changes_no_gradient)
{
    tg_tensor *a = leaf("[1, 2]"), *b = leaf("[3, 4]"), *q = tg_mul_scalar(a, 2), *y;
    CHECK(backward_sum(tg_mul(a, b)) == TG_OK);
    y = tg_add(tg_mul(b, b), tg_exp(q));
    q = tg_exp(q);
    y = tg_add(y, tg_mul(q, q));
    tg_add_scalar_(q, 1);
    CHECK_FAILS(backward_sum(y), "modified by an inplace operation");
    HAS(tg_grad(a), "[3, 4]");
    HAS(tg_grad(b), "[1, 2]");
}

/* ---- checkpoints ---- */

typedef struct {
    tg_tensor *w, *u;
    bool nested;
} closure;

static tg_tensor *dropped_layer(tg_tensor *const *in, int n, void *user)
{
    closure *c = (closure *)user;
    (void)n;
    return tg_dropout(tg_tanh(tg_matmul(in[0], c->w)), 0.5, true);
}

static tg_tensor *two_layers(tg_tensor *const *in, int n, void *user)
{
    closure *c = (closure *)user, second;
    tg_tensor *h = c->nested ? tg_checkpoint(dropped_layer, in, n, user) : dropped_layer(in, n, user);
    second = *c, second.w = c->u;
    return tg_dropout(tg_tanh(tg_matmul(h, second.w)), 0.25, true);
}

TEST(checkpoint_equals_plain)
{
    tg_tensor *x = leaf("[[0.1, 0.2, 0.3], [-0.4, 0.5, 0.6]]"), *w = leaf("[[1, 2, 3], [4, -5, 6], [0.7, 0.8, -0.9]]"),
              *u = leaf("[[1, 0, 2], [3, 1, 4], [1, 5, -2]]");
    tg_tensor *y[3], *g[3][3], *in[3];
    closure c;
    int way, i;
    in[0] = x, in[1] = w, in[2] = u;
    c.w = w, c.u = u;
    for (way = 0; way < 3; ++way) { /* plain, a checkpoint, one within another */
        tg_rng after;
        tg_tensor *sum;
        c.nested = way == 2;
        tg_seed(11);
        y[way] = way ? tg_checkpoint(two_layers, &x, 1, &c) : two_layers(&x, 1, &c);
        after = tg_rng_state();
        sum = tg_sum(tg_mul(y[way], y[way]));
        CHECK(tg_gradients(&sum, 1, NULL, in, 3, g[way], TG_RETAIN_GRAPH) == TG_OK); /* closure weights, too */
        CHECK(tg_rng_state().offset == after.offset && tg_rng_state().seed == after.seed);
        CHECK(tg_backward(sum) == TG_OK);
        for (i = 0; i < 3; ++i) {
            CHECK(tg_equal(g[way][i], g[0][i]) && tg_equal(tg_grad(in[i]), g[0][i])); /* bit for bit */
            tg_set_grad(in[i], NULL);
        }
        CHECK(tg_equal(y[way], y[0]));
    }
    CHECK(tg_item(tg_sum(tg_abs(g[0][1]))) > 0);
}

TEST(checkpoint_lifetimes)
{
    tg_tensor *x = leaf("[[0.1, 0.2, 0.3], [-0.4, 0.5, 0.6]]"), *w = leaf("[[1, 2, 3], [4, -5, 6], [0.7, 0.8, -0.9]]"), *y, *sum, *g = NULL;
    closure c;
    int64_t nodes = tg_stats().nodes;
    c.w = w, c.u = w, c.nested = false;
    y = tg_checkpoint(dropped_layer, &x, 1, &c);
    CHECK(tg_stats().nodes == nodes + 1); /* the inside is not kept */
    sum = tg_sum(y);
    CHECK(tg_gradients(&sum, 1, NULL, &w, 1, &g, 0) == TG_OK && tg_grad(w) == NULL && tg_grad(x) == NULL);
    CHECK(g != NULL && tg_dim(g, 0) == 3);
    {
        TG_NO_GRAD;
        CHECK(!tg_requires_grad(tg_checkpoint(dropped_layer, &x, 1, &c)));
    }
    { /* an intermediate that died, and one that the closure alone knows */
        tg_tensor *h;
        {
            TG_SCOPE;
            h = tg_mul_scalar(x, 2);
            c.w = tg_keep(tg_mul_scalar(w, 3));
            y = tg_keep(tg_checkpoint(dropped_layer, &h, 1, &c));
        }
        CHECK(backward_sum(y) == TG_OK && tg_grad(x) != NULL && tg_grad(w) != NULL);
    }
    CHECK_FAILS(tg_checkpoint(NULL, &x, 1, NULL), "NULL");
}

static tg_tensor *fails_second_time(tg_tensor *const *in, int n, void *user)
{
    (void)n;
    if (++*(int *)user == 2) return tg_add(in[0], tg_ones(TG_SHAPE(9, 9)));
    return tg_exp(in[0]);
}
static tg_tensor *other_shape(tg_tensor *const *in, int n, void *user)
{
    (void)n;
    return ++*(int *)user == 2 ? tg_sum(in[0]) : tg_exp(in[0]);
}

static tg_tensor *first_input(tg_tensor *const *in, int n, void *user)
{
    (void)n, (void)user;
    return in[0];
}
static tg_tensor *what_user_is(tg_tensor *const *in, int n, void *user)
{
    (void)in, (void)n;
    return (tg_tensor *)user;
}
static tg_tensor *records_inside(tg_tensor *const *in, int n, void *user)
{
    TG_ENABLE_GRAD;
    (void)n, (void)user;
    return tg_exp(tg_mul(in[0], in[0]));
}

TEST(checkpoint_of_odd_functions)
{
    tg_tensor *x = leaf("[1, 2]"), *w = leaf("[3, 4]"), *y = tg_checkpoint(first_input, &x, 1, NULL);
    CHECK(y != x && backward_sum(tg_mul_scalar(y, 2)) == TG_OK);
    HAS(tg_grad(x), "[2, 2]");
    y = tg_checkpoint(what_user_is, &x, 1, f64("[7, 8]"));
    CHECK(!tg_requires_grad(y));
    HAS(y, "[7, 8]");
    y = tg_checkpoint(records_inside, &w, 1, NULL); /* a mode of its own does not lose the gradient */
    CHECK(backward_sum(y) == TG_OK);
    CHECK_NEAR(tg_get(tg_grad(w), TG_INDEX(0)), 6 * exp(9.0), 1e-12);
}

TEST(checkpoint_that_fails)
{
    tg_tensor *x = leaf("[1, 2]"), *y;
    int calls = 0;
    tg_rng state;
    y = tg_checkpoint(fails_second_time, &x, 1, &calls);
    state = tg_rng_state();
    CHECK_FAILS(backward_sum(y), "do not broadcast");
    CHECK(tg_grad(x) == NULL && tg_is_grad_enabled() && tg_rng_state().offset == state.offset);
    CHECK(backward_sum(tg_checkpoint(fails_second_time, &x, 1, &calls)) == TG_OK);
    calls = 0;
    CHECK_FAILS(backward_sum(tg_checkpoint(other_shape, &x, 1, &calls)), "run again");
    calls = 1;
    CHECK(tg_checkpoint(fails_second_time, &x, 1, &calls) == NULL && !tg_ok());
    tg_clear_error();
}

/* ---- the shape of graphs ---- */

TEST(sixty_doublings)
{
    tg_tensor *x = scalar_leaf(1), *y = x;
    int i;
    for (i = 0; i < 60; ++i) y = tg_add(y, y);
    CHECK(tg_backward(y) == TG_OK);
    CHECK_NEAR(tg_item(tg_grad(x)), 1152921504606846976.0, 0);
}

/* Seconds for backward of n losses over one trunk that stays alive, each freed after. */
static double seconds_of_losses(int n)
{
    TG_SCOPE;
    tg_tensor *x = leaf("[1]"), *trunk = x;
    clock_t start;
    int i;
    for (i = 0; i < 10; ++i) trunk = tg_mul_scalar(trunk, 1);
    {
        tg_tensor *total = tg_mul_scalar(trunk, 0);
        start = clock();
        for (i = 0; i < n; ++i) total = tg_add(total, tg_mul_scalar(trunk, 1));
        CHECK(backward_sum(total) == TG_OK);
    }
    CHECK_NEAR(tg_item(tg_grad(x)), n, 0);
    for (i = 0; i < n; ++i) {
        TG_SCOPE;
        tg_backward_ex(&trunk, 1, NULL, TG_RETAIN_GRAPH);
    }
    return (double)(clock() - start) / CLOCKS_PER_SEC;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

TEST(twenty_thousand_losses_over_one_trunk)
{
    double single[5], twofold[5];
    int i;
    tg_set_default_device(TG_CPU); /* what is timed is the tape */
    for (i = 0; i < 5; ++i) {
        single[i] = seconds_of_losses(20000);
        twofold[i] = seconds_of_losses(40000);
    }
    qsort(single, 5, sizeof(double), by_size);
    qsort(twofold, 5, sizeof(double), by_size);
    printf("20000 losses over one trunk: %.0f ms; 40000: %.0f ms, %.2f times as long\n", 1e3 * single[2],
           1e3 * twofold[2], twofold[2] / single[2]);
    CHECK(twofold[2] < 3 * single[2]); /* linear is 2; a graph walked per loss would be 4 */
}

TEST(unrelated_graphs_cost_nothing)
{
    tg_tensor *x = leaf("[1]"), *far = leaf("[1]"), *other = far;
    int i, calls = 0;
    for (i = 0; i < 100; ++i) other = tg_mul_scalar(other, 1);
    tg_hook(other, hook_count, &calls);
    CHECK(backward_sum(tg_mul(x, x)) == TG_OK && calls == 0 && tg_grad(far) == NULL);
    CHECK(backward_sum(other) == TG_OK && calls == 1);
}

/* ---- properties that hold for any graph ---- */

static tg_tensor *mixture(tg_tensor *const *in, int n, void *user)
{
    tg_tensor *y = tg_matmul(tg_tanh(in[0]), tg_exp(in[1]));
    (void)n, (void)user;
    return tg_sum(tg_mul(tg_softmax(y, 1), tg_mul(y, tg_t(y))));
}

TEST(incoming_gradient_of_any_layout)
{
    tg_tensor *x = leaf("[[1, 2, 3], [4, 5, 6]]"), *y = tg_mul(tg_exp(tg_mul_scalar(x, 0.1)), x), *wanted, *layouts[4];
    int k;
    layouts[0] = f64("[[1, 2, 1], [2, 1, 2]]");
    layouts[1] = tg_t(f64("[[1, 2], [2, 1], [1, 2]]"));
    layouts[2] = tg_slice(f64("[[1, 0, 2, 0, 1, 0], [2, 0, 1, 0, 2, 0]]"), 1, 0, 6, 2);
    layouts[3] = tg_narrow(f64("[[9, 9, 9], [1, 2, 1], [2, 1, 2]]"), 0, 1, 2);
    CHECK(backward_with(y, layouts[0], TG_RETAIN_GRAPH) == TG_OK);
    wanted = tg_clone(tg_grad(x));
    for (k = 1; k < 4; ++k) {
        tg_set_grad(x, NULL);
        CHECK(backward_with(y, layouts[k], TG_RETAIN_GRAPH) == TG_OK && tg_equal(tg_grad(x), wanted));
        CHECK(tg_version_of(layouts[k]) == 0 && tg_equal(layouts[k], layouts[0])); /* it is not written */
    }
    tg_set_grad(x, NULL);
    CHECK(backward_with(y, tg_expand(f64("[2]"), TG_SHAPE(2, 3)), TG_RETAIN_GRAPH) == TG_OK);
    wanted = tg_clone(tg_grad(x));
    tg_set_grad(x, NULL);
    CHECK(backward_with(y, f64("[[2, 2, 2], [2, 2, 2]]"), 0) == TG_OK && tg_equal(tg_grad(x), wanted));
}

TEST(backward_repeats_to_the_bit)
{
    tg_tensor *in[2], *y, *first[2], *g[2];
    int times;
    tg_seed(8);
    in[0] = tg_set_requires_grad(tg_randn(TG_SHAPE(4, 6)), true);
    in[1] = tg_set_requires_grad(tg_randn(TG_SHAPE(6, 4)), true);
    for (times = 0; times < 3; ++times) {
        y = mixture(in, 2, NULL);
        CHECK(tg_gradients(&y, 1, NULL, in, 2, times ? g : first, TG_RETAIN_GRAPH) == TG_OK);
        if (times) CHECK(tg_equal(g[0], first[0]) && tg_equal(g[1], first[1]));
        CHECK(tg_backward(y) == TG_OK && tg_equal(tg_grad(in[0]), first[0]) && tg_equal(tg_grad(in[1]), first[1]));
        tg_set_grad(in[0], NULL), tg_set_grad(in[1], NULL);
    }
}

TEST(hessian_is_symmetric)
{
    tg_tensor *x = leaf("[[0.3, -0.5], [0.7, 0.2]]"), *in[2], *y, *g;
    double h[4][4];
    int i, k;
    in[0] = x, in[1] = tg_t(x);
    y = mixture(in, 2, NULL);
    g = tg_view(gradient(y, x, TG_CREATE_GRAPH), TG_SHAPE(4));
    for (i = 0; i < 4; ++i) {
        tg_tensor *row = gradient(tg_select(g, 0, i), x, TG_RETAIN_GRAPH);
        for (k = 0; k < 4; ++k) h[i][k] = tg_get(row, TG_INDEX(k / 2, k % 2));
    }
    for (i = 0; i < 4; ++i) {
        for (k = 0; k < i; ++k) CHECK_NEAR(h[i][k], h[k][i], 1e-12);
        CHECK(h[i][i] != 0);
    }
}

TEST(order_of_building_does_not_matter)
{
    tg_tensor *x = leaf("[0.5, 2]"), *a = tg_exp(x), *b = tg_sin(x), *one = gradient(tg_add(a, b), x, 0), *other;
    b = tg_sin(x), a = tg_exp(x);
    other = gradient(tg_add(b, a), x, 0);
    CHECK(tg_equal(one, other));
    CHECK(tg_equal(gradient(tg_add(tg_detach(a), tg_sin(x)), x, 0), tg_cos(tg_detach(x)))); /* detach: nothing */
}

/* ---- what has broken others: each of these was wrong in at least one library of this kind ---- */

TEST(x_plus_x)
{
    tg_tensor *x = leaf("[3]");
    CHECK(backward_sum(tg_add(x, x)) == TG_OK);
    HAS(tg_grad(x), "[2]");
    CHECK(backward_sum(tg_sub(x, x)) == TG_OK);
    HAS(tg_grad(x), "[2]");
    CHECK(backward_sum(tg_div(x, x)) == TG_OK);
    HAS(tg_grad(x), "[2]");
    CHECK(backward_sum(tg_mul(x, x)) == TG_OK);
    HAS(tg_grad(x), "[8]");
    x = leaf("[[1, 2], [3, 4]]");
    CHECK(backward_sum(tg_matmul(x, tg_t(x))) == TG_OK);
    HAS(tg_grad(x), "[[8, 12], [8, 12]]");
}

TEST(shared_nonleaf_diamond)
{
    tg_tensor *x = leaf("[2]"), *a = leaf("[3]"), *b = leaf("[5]"), *y = tg_mul(x, x);
    CHECK(backward_sum(tg_mul(tg_mul(y, a), tg_mul(y, b))) == TG_OK); /* 15 x^4 */
    HAS(tg_grad(x), "[480]");
    HAS(tg_grad(a), "[80]");
    HAS(tg_grad(b), "[48]");
}

TEST(same_relu_input_twice)
{
    tg_tensor *x = leaf("[-1, 2]"), *y = tg_mul_scalar(x, 1);
    CHECK(backward_sum(tg_add(tg_relu(y), tg_relu(y))) == TG_OK);
    HAS(tg_grad(x), "[0, 2]");
    CHECK(backward_sum(tg_mul(tg_relu(y), y)) == TG_OK);
    HAS(tg_grad(x), "[0, 6]");
}

TEST(consumer_not_on_the_loss_path)
{
    tg_tensor *x = leaf("[2]"), *y = tg_mul(x, x), *aside = tg_exp(y), *loss = tg_mul_scalar(y, 3);
    CHECK(backward_sum(loss) == TG_OK);
    HAS(tg_grad(x), "[12]");
    CHECK(backward_sum(aside) != TG_OK); /* y's product was freed */
    tg_clear_error();
}

TEST(backward_twice_with_and_without_zero_grad)
{
    tg_tensor *x = leaf("[2]"), *y = tg_sum(tg_mul(tg_mul(x, x), x));
    int i;
    for (i = 1; i <= 3; ++i) {
        CHECK(tg_backward_ex(&y, 1, NULL, TG_RETAIN_GRAPH) == TG_OK);
        CHECK_NEAR(tg_item(tg_grad(x)), 12.0 * i, 1e-12);
    }
    for (i = 1; i <= 3; ++i) {
        tg_set_grad(x, NULL);
        CHECK(tg_backward_ex(&y, 1, NULL, TG_RETAIN_GRAPH) == TG_OK);
        CHECK_NEAR(tg_item(tg_grad(x)), 12, 1e-12);
    }
}

TEST(chain_of_100k_nodes)
{
    tg_tensor *x, *y;
    int i;
    tg_set_default_device(TG_CPU); /* what is long is the tape */
    x = y = leaf("[1]");
    for (i = 0; i < 100000; ++i) y = tg_mul_scalar(y, i % 2 ? 2 : 0.5);
    CHECK(backward_sum(y) == TG_OK);
    HAS(tg_grad(x), "[1]");
}

TEST(broadcast_on_either_side)
{
    tg_tensor *small = leaf("[2, 4]"), *wide = leaf("[[1, 2], [4, 8]]"),
              *column = tg_set_requires_grad(tg_view(f64("[1, 2]"), TG_SHAPE(2, 1)), true);
    CHECK(backward_sum(tg_add(small, wide)) == TG_OK && backward_sum(tg_add(wide, small)) == TG_OK);
    HAS(tg_grad(small), "[4, 4]");
    HAS(tg_grad(wide), "[[2, 2], [2, 2]]");
    CHECK(backward_sum(tg_sub(small, wide)) == TG_OK && backward_sum(tg_sub(wide, small)) == TG_OK);
    HAS(tg_grad(small), "[4, 4]");
    HAS(tg_grad(wide), "[[2, 2], [2, 2]]");
    CHECK(backward_sum(tg_mul(small, wide)) == TG_OK && backward_sum(tg_mul(wide, small)) == TG_OK);
    HAS(tg_grad(small), "[14, 24]");
    HAS(tg_grad(wide), "[[6, 10], [6, 10]]");
    tg_set_grad(small, NULL), tg_set_grad(wide, NULL);
    CHECK(backward_sum(tg_div(wide, small)) == TG_OK);
    HAS(tg_grad(small), "[-1.25, -0.625]");
    HAS(tg_grad(wide), "[[0.5, 0.25], [0.5, 0.25]]");
    tg_set_grad(small, NULL), tg_set_grad(wide, NULL);
    CHECK(backward_sum(tg_div(small, wide)) == TG_OK);
    HAS(tg_grad(small), "[1.25, 0.625]");
    HAS(tg_grad(wide), "[[-2, -1], [-0.125, -0.0625]]");
    tg_set_grad(small, NULL);
    CHECK(backward_sum(tg_mul(column, small)) == TG_OK);
    HAS(tg_grad(column), "[[6], [6]]");
    HAS(tg_grad(small), "[3, 3]");
}

static tg_tensor *matmul_of(tg_tensor *const *in, int n, void *user)
{
    (void)n, (void)user;
    return tg_matmul(in[0], in[1]);
}

TEST(broadcast_batched_matmul)
{
    tg_tensor *in[2];
    tg_seed(3);
    in[0] = tg_set_requires_grad(tg_randn_on(TG_SHAPE(3, 1, 2, 4), TG_F64, HERE), true);
    in[1] = tg_set_requires_grad(tg_randn_on(TG_SHAPE(2, 4, 3), TG_F64, HERE), true);
    CHECK(tg_gradcheck(matmul_of, in, 2, NULL) && tg_gradgradcheck(matmul_of, in, 2, NULL));
    in[1] = tg_set_requires_grad(tg_randn_on(TG_SHAPE(4), TG_F64, HERE), true);
    CHECK(tg_gradcheck(matmul_of, in, 2, NULL));
    in[0] = in[1], in[1] = tg_set_requires_grad(tg_randn_on(TG_SHAPE(5, 4, 2), TG_F64, HERE), true);
    CHECK(tg_gradcheck(matmul_of, in, 2, NULL));
}

TEST(mean_and_sum_over_each_axis)
{
    tg_tensor *x = leaf("[[1, 2, 3], [4, 5, 6]]"),
              *empty = tg_set_requires_grad(tg_zeros_on(TG_SHAPE(2, 0), TG_F64, HERE), true);
    HAS(tg_sum_dim(x, 0, false), "[5, 7, 9]");
    HAS(tg_mean_dim(x, 1, true), "[[2], [5]]");
    CHECK(tg_dim(tg_mean_dim(x, 1, true), 1) == 1 && tg_ndim(tg_mean_dim(x, -1, false)) == 1);
    CHECK(backward_sum(tg_mul(tg_sum_dim(x, 0, false), f64("[1, 2, 3]"))) == TG_OK);
    HAS(tg_grad(x), "[[1, 2, 3], [1, 2, 3]]");
    CHECK(backward_sum(tg_mul(tg_mean_dim(x, 1, false), f64("[3, 6]"))) == TG_OK);
    HAS(tg_grad(x), "[[2, 3, 4], [3, 4, 5]]");
    CHECK(backward_sum(tg_mul(tg_sum_dims(x, TG_DIMS(0, 1), true), f64("[2]"))) == TG_OK);
    HAS(tg_grad(x), "[[4, 5, 6], [5, 6, 7]]");
    HAS(tg_sum_dim(empty, 1, false), "[0, 0]");
    HAS(tg_mean_dim(empty, 1, false), "[nan, nan]");
    CHECK(tg_numel(tg_sum_dim(empty, 0, false)) == 0 && backward_sum(tg_sum_dim(empty, 1, false)) == TG_OK);
    CHECK(tg_numel(tg_grad(empty)) == 0 && tg_dim(tg_grad(empty), 0) == 2);
}

TEST(view_of_a_view)
{
    tg_tensor *x = leaf("[[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]"), *v = tg_narrow(tg_t(tg_slice(x, 1, 0, 4, 2)), 1, 1, 2);
    HAS(v, "[[5, 9], [7, 11]]");
    CHECK(backward_sum(tg_mul(v, f64("[[1, 2], [3, 4]]"))) == TG_OK);
    HAS(tg_grad(x), "[[0, 0, 0, 0], [1, 0, 3, 0], [2, 0, 4, 0]]");
    v = tg_select(tg_view(tg_unsqueeze(x, 0), TG_SHAPE(2, 6)), 0, 1);
    CHECK(backward_sum(tg_squeeze(tg_unsqueeze(v, 1), 1)) == TG_OK);
    HAS(tg_grad(x), "[[0, 0, 0, 0], [1, 0, 4, 1], [3, 1, 5, 1]]");
}

TEST(transpose_then_matmul)
{
    tg_tensor *a = leaf("[[1, 2], [3, 4]]"), *b = leaf("[[5, 6], [7, 8]]");
    CHECK(backward_sum(tg_mul(tg_matmul(tg_t(a), tg_t(b)), f64("[[1, 2], [3, 4]]"))) == TG_OK);
    HAS(tg_grad(a), "[[19, 43], [22, 50]]");
    HAS(tg_grad(b), "[[7, 15], [10, 22]]");
}

TEST(in_place_after_save)
{
    tg_tensor *x = leaf("[1, 2]"), *y = tg_mul_scalar(x, 2), *z = tg_mul(y, y), *w = tg_add(y, y);
    tg_mul_scalar_(y, 5);
    CHECK_FAILS(backward_sum(z), "modified by an inplace operation");
    CHECK(backward_sum(w) == TG_OK); /* a sum saves nothing */
    HAS(tg_grad(x), "[4, 4]");
}

TEST(shape_error_then_three_more_ops)
{
    tg_tensor *x = leaf("[1, 2]"), *bad = tg_mul(x, f64("[1, 2, 3]"));
    CHECK(bad == NULL && !tg_ok() && tg_error_count() == 1);
    bad = tg_sum(tg_exp(tg_matmul(bad, x)));
    CHECK(bad == NULL && tg_error_count() == 1); /* the first error is the one that is kept */
    CHECK(strstr(tg_error_message(), "tg_mul") != NULL && tg_backward(bad) != TG_OK);
    CHECK(strstr(tg_error_message(), "tg_mul") != NULL);
    tg_clear_error();
    CHECK(backward_sum(tg_mul(x, x)) == TG_OK);
    HAS(tg_grad(x), "[2, 4]");
}

/* ---- the end of the library, and its second beginning ---- */

static void shutdown_and_reuse(void) /* not a TEST: it ends the scope that a test runs in */
{
    tg_tensor *t;
    tg_stats_info now;
    harness.test = "shutdown_and_reuse";
    tg_set_grad_enabled(false);
    tg_seed(1);
    t = tg_rand(TG_SHAPE(3));
    CHECK(t != NULL);
    tg_scope_begin(); /* left open */
    CHECK(tg_exp(t) != NULL);
    CHECK(tg_shutdown() == TG_OK);
    now = tg_stats();
    CHECK(now.tensors == 0 && now.nodes == 0 && now.bytes == 0 && now.saved == 0 && now.cached_bytes == 0 &&
          now.unscoped == 0);
    CHECK(tg_is_grad_enabled());
    {
        TG_SCOPE;
        tg_tensor *x = leaf("[1, 2]");
        CHECK(backward_sum(tg_mul(x, x)) == TG_OK);
        HAS(tg_grad(x), "[2, 4]");
    }
    t = tg_param(f64("[1, 2]"));
    CHECK(tg_shutdown() == TG_OK && tg_shutdown() == TG_OK && tg_thread_end() == TG_OK);
    CHECK(tg_stats().tensors == 1 && tg_stats().unscoped == 0);
    {
        TG_SCOPE;
        CHECK(backward_sum(tg_mul(t, t)) == TG_OK); /* what is retained stays its owner's */
        HAS(tg_grad(t), "[2, 4]");
    }
    tg_release(t);
    CHECK(tg_stats().tensors == 0 && tg_stats().bytes == 0 && tg_shutdown() == TG_OK);
    CHECK(tg_ok());
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    harness_take_device();
    RUN(moves_that_change_nothing);
    RUN(moves_that_copy);
    RUN(dtype_conversion);
    RUN(gradients_through_moves);
    RUN(copy_into);
    RUN(devices_as_values);
    RUN(gradient_assignment_and_legality);
    RUN(graph_basics);
    RUN(grad_mode_inside_backward);
    RUN(gradients_of_chosen_inputs);
    RUN(gradients_of_several_outputs);
    RUN(hooks_and_retained_gradients);
    RUN(retained_gradient_moves_with_a_write);
    RUN(hook_that_removes_itself);
    RUN(hook_removed_after_a_write);
    RUN(hooks_and_modes);
    RUN(backward_inside_hooks);
    RUN(modes);
    RUN(writes_in_place);
    RUN(views_and_writes);
    RUN(base_and_views_written_in_turn);
    RUN(view_of_a_constant_written_with_a_gradient);
    RUN(views_that_outlive_their_base);
    RUN(write_of_a_tensor_into_itself);
    RUN(double_backward_through_writes);
    RUN(shapes_of_gradients);
    RUN(gradients_at_kinks);
    RUN(losses_at_edges);
    RUN(custom_functions);
    RUN(custom_context);
    RUN(custom_outputs_that_are_views);
    RUN(many_inputs);
    RUN(gradient_checks);
    RUN(anomaly_mode);
    RUN(accumulation_and_items);
    RUN(nothing_is_left_at_the_end_of_a_scope);
    RUN(what_backward_gives_back);
    RUN(activations_nobody_saved_die_early);
    RUN(peak_without_gradients);
    RUN(memory_of_the_graph);
    RUN(no_allocation_after_the_second_step);
    RUN(scopes_keep_and_drop);
    RUN(scopes_left_open_and_stale_marks);
    RUN(retain_and_release);
    RUN(gradient_of_a_parameter_outlives_scopes);
    RUN(backward_step_by_step);
    RUN(live_runs_interleaved);
    RUN(a_backward_that_fails_changes_no_gradient);
    RUN(checkpoint_equals_plain);
    RUN(checkpoint_lifetimes);
    RUN(checkpoint_of_odd_functions);
    RUN(checkpoint_that_fails);
    RUN(sixty_doublings);
    RUN(twenty_thousand_losses_over_one_trunk);
    RUN(unrelated_graphs_cost_nothing);
    RUN(incoming_gradient_of_any_layout);
    RUN(backward_repeats_to_the_bit);
    RUN(hessian_is_symmetric);
    RUN(order_of_building_does_not_matter);
    RUN(x_plus_x);
    RUN(shared_nonleaf_diamond);
    RUN(same_relu_input_twice);
    RUN(consumer_not_on_the_loss_path);
    RUN(backward_twice_with_and_without_zero_grad);
    RUN(chain_of_100k_nodes);
    RUN(broadcast_on_either_side);
    RUN(broadcast_batched_matmul);
    RUN(mean_and_sum_over_each_axis);
    RUN(view_of_a_view);
    RUN(transpose_then_matmul);
    RUN(in_place_after_save);
    RUN(shape_error_then_three_more_ops);
    if (!harness.only || !harness.only[0]) {
        tensors_in_no_scope();
        shutdown_and_reuse();
        check_rows(argc > 2 ? argv[2] : "tests/semantics.txt", "test_engine");
    }
    return harness_end();
}
