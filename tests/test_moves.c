/* Moves, copies and conversions within a device and between devices: section 1 of the semantics list, and what is widely
 * believed about moves and wrong.  ON(2, 1.36) marks what row 1.36 requires and how many devices its checks need; with
 * fewer they are skipped, and the end of the output says how many were.  It runs without CUDA, and with
 * tensorgrad_cuda.cu on GPUs or on the simulated devices of tests/cudasim (TG_SIM_DEVICES=0, 1, 2). */
#if !defined(__cplusplus) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#include "tensorgrad.h"
#include "semantics.h"
#include "helpers.h"
#include <pthread.h>

#ifdef TG_ENABLE_CUDA
static const bool with_cuda = true;
#else
static const bool with_cuda = false;
#endif

/* cuda:0, and cuda:1 where there are two devices, else cuda:0 again. */
static tg_device first, second;
static int devices, waiting;

static bool there_are(int n)
{
    waiting += devices < n;
    return devices >= n;
}
#define ON(n, number) ROW(number) if (there_are(n))
/* A wrong claim of a tutorial (file:line): the block shows what is true. */
#define BELIEF(place) ROW_NAMED(place)

static bool is_on(tg_tensor *t, tg_device device) { return t && tg_device_equal(tg_device_of(t), device); }
static tg_tensor *there(const char *text) { return tg_to(of(TG_F32, text), first); }
static tg_tensor *leaf_there(const char *text) { return tg_set_requires_grad(there(text), true); }
static tg_tensor *ids_there(const char *text) { return tg_to(of(TG_I64, text), first); }
static bool strides(tg_tensor *t, tg_shape wanted)
{
    int i;
    bool same = t && tg_ndim(t) == wanted.ndim;
    for (i = 0; same && i < wanted.ndim; ++i) same = tg_stride(t, i) == wanted.dim[i];
    return same;
}

/* Runs checks that need one device with the CPU as HERE and, where there is one, with cuda:0. */
static void on_each_device(void (*checks)(void))
{
    checks();
    if (!devices) return;
    HERE = first;
    CHECK(tg_set_default_device(HERE) == TG_OK);
    checks();
    HERE = TG_CPU;
    CHECK(tg_set_default_device(HERE) == TG_OK);
}

/* How often this thread has waited for a device. */
static int64_t waits(void)
{
    return tg_stats_on(first).waits + (devices > 1 ? tg_stats_on(second).waits : 0);
}

/* ---- 1.1: nothing to do ---- */

static void no_change_within_a_device(void)
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
        y = tg_t(f64("[[1, 2], [3, 4]]")); /* the layout does not matter */
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

TEST(moves_that_change_nothing)
{
    on_each_device(no_change_within_a_device);
    ON(1, 1.1) {
        tg_tensor *x = there("[1, 2]");
        CHECK(tg_to(x, first) == x && tg_to_dtype(x, TG_F32) == x && tg_to_like(x, there("[7]")) == x);
        CHECK(tg_to_ex(x, first, TG_F32, TG_NON_BLOCKING) == x);
    }
    ON(1, 1.2) {
        tg_tensor *x = there("[1, 2]");
        CHECK(tg_cuda(x) == x && tg_cpu(x) != x && tg_cpu(tg_cpu(x)) != x);
    }
    ON(2, 1.3) {
        tg_tensor *x = there("[1, 2]"), *y = tg_to(x, second);
        CHECK(tg_to(x, TG_CUDA(-1)) == x && y != x && is_on(tg_to(y, TG_CUDA(-1)), first));
        CHECK(tg_cuda_set_device(1) == TG_OK);
        CHECK(tg_to(y, TG_CUDA(-1)) == y && is_on(tg_cuda(x), second));
        CHECK(tg_cuda_set_device(0) == TG_OK);
    }
    ON(1, 1.4) {
        tg_tensor *x = there("[[1, 2], [3, 4]]"), *y = tg_t(x);
        CHECK(tg_to_ex(x, first, TG_F64, 0) != x && tg_to_ex(x, TG_CPU, TG_F32, 0) != x);
        CHECK(tg_to_ex(x, first, TG_F32, TG_COPY) != x && tg_to(y, first) == y);
    }
    ON(1, 1.5) {
        tg_tensor *x = leaf_there("[1, 2]"), *y = tg_to_ex(x, first, TG_F32, TG_COPY);
        CHECK(y != x && tg_data(y) != tg_data(x) && tg_equal(x, y) && !tg_is_leaf(y) && is_on(y, first));
    }
    ON(1, 1.6) {
        tg_tensor *x = there("[1, 2]"), *same = tg_to(x, first), *copy = tg_to_ex(x, first, TG_F32, TG_COPY);
        tg_add_scalar_(copy, 5);
        HAS(x, "[1, 2]");
        tg_add_scalar_(same, 5);
        HAS(x, "[6, 7]");
        CHECK(tg_version_of(x) == 1);
    }
    ON(1, 1.8) {
        tg_tensor *x = leaf_there("[1, 2]"), *y = tg_cuda(x);
        CHECK(tg_is_leaf(y) && backward_sum(y) == TG_OK && is_on(tg_grad(x), first));
    }
    ON(1, 1.10) {
        tg_tensor *p = tg_pin_memory(f64("[1, 2]"));
        CHECK(tg_is_pinned(p) && tg_pin_memory(p) == p);
    }
    BELIEF("002:133") /* ".to() creates copies" */
    {
        tg_tensor *x = f64("[1]");
        CHECK(tg_to(x, TG_CPU) == x);
    }
}

/* ---- 1.2: copies ---- */

/* A copy on the device, on another, on the CPU, and on each from each: all have the strides wanted and the elements. */
static void layout(tg_tensor *x, tg_shape wanted)
{
    tg_tensor *y = tg_to_ex(x, first, TG_F32, TG_COPY), *z = tg_to_ex(y, second, TG_F32, TG_COPY);
    tg_tensor *back = tg_to_ex(z, TG_CPU, TG_F32, TG_COPY), *down = tg_to_ex(x, TG_CPU, TG_F32, TG_COPY);
    CHECK(strides(y, wanted) && strides(z, wanted) && strides(back, wanted) && strides(down, wanted));
    CHECK(tg_equal(back, down) && tg_equal(tg_cpu(y), down) && tg_equal(tg_cpu(tg_clone(x)), down));
}

static void layouts_from(tg_device device)
{
    tg_tensor *m = tg_to(of(TG_F32, "[[0, 1, 2], [3, 4, 5]]"), device),
              *cube = tg_to(tg_zeros(TG_SHAPE(2, 3, 4)), device);
    tg_tensor *image = tg_to(tg_zeros(TG_SHAPE(2, 4, 5, 3)), device), *wide;
    ON(1, 1.13) layout(tg_t(m), TG_SHAPE(1, 3));
    ON(1, 1.14) {
        layout(tg_slice(m, 1, 0, 3, 2), TG_SHAPE(2, 1));
        layout(tg_slice(tg_permute(cube, TG_DIMS(2, 0, 1)), 2, 0, 3, 2), TG_SHAPE(1, 8, 4));
    }
    ON(1, 1.15) {
        wide = tg_expand(tg_narrow(m, 1, 1, 1), TG_SHAPE(2, 4));
        layout(wide, TG_SHAPE(4, 1));
        CHECK(strides(tg_clone(wide), TG_SHAPE(4, 1)));
    }
    ON(1, 1.16) layout(tg_permute(image, TG_DIMS(0, 3, 1, 2)), TG_SHAPE(60, 1, 15, 3));
    ON(1, 1.17) CHECK(strides(tg_contiguous(tg_to(tg_t(m), second)), TG_SHAPE(2, 1)));
    ON(1, 1.18) {
        tg_tensor *seven = tg_to(tg_reshape(tg_arange(0, 768, 1), TG_SHAPE(2, 3, 2, 4, 2, 4, 2)), device);
        layout(tg_permute(seven, TG_DIMS(4, 1, 6, 0, 2, 5, 3)), TG_SHAPE(8, 128, 1, 384, 64, 2, 16));
    }
    ON(1, 1.19) {
        layout(tg_narrow(m, 0, 1, 0), TG_SHAPE(3, 1));
        layout(tg_select(tg_select(m, 0, 1), 0, 2), TG_SCALAR);
    }
}

static void copies_within_a_device(void)
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
    ROW(1.20) { /* a NaN with a payload, -0 and a denormal are copied bit for bit */
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

TEST(moves_that_copy)
{
    on_each_device(copies_within_a_device);
    ON(1, 1.12) {
        tg_tensor *x = of(TG_F32, "[[1, 2], [3, 4]]"), *row = tg_select(x, 0, 1), *y;
        tg_add_scalar_(x, 0);
        y = tg_to(row, first);
        CHECK(tg_version_of(y) == 0);
        tg_fill_(y, 9);
        HAS(x, "[[1, 2], [3, 4]]");
        y = tg_cpu(tg_select(tg_to(x, first), 0, 1));
        CHECK(tg_numel(y) == 2 && tg_is_leaf(y));
        HAS(y, "[3, 4]");
    }
    if (devices) layouts_from(TG_CPU);
    layouts_from(devices ? first : TG_CPU);
    ON(1, 1.20) {
        uint32_t bits[4] = {0x7fc12345u, 0x80000000u, 1u, 0xffa00001u}, back[4];
        uint16_t half[3] = {0x7e01u, 0x8000u, 0xfc00u}, half_back[3];
        tg_tensor *x = tg_from(bits, TG_SHAPE(4), TG_F32);
        CHECK(tg_copy_out(tg_to(tg_to(x, first), second), back, sizeof back) == TG_OK);
        CHECK(memcmp(bits, back, sizeof bits) == 0);
        x = tg_cpu(tg_slice(tg_to(x, first), 0, 0, 4, 3));
        CHECK(tg_copy_out(x, back, 8) == TG_OK && back[0] == bits[0] && back[1] == bits[3]);
        x = tg_to(tg_from(half, TG_SHAPE(3), TG_BF16), first);
        CHECK(tg_copy_out(tg_clone(x), half_back, sizeof half) == TG_OK && memcmp(half, half_back, sizeof half) == 0);
    }
    ON(1, 1.21) {
        tg_tensor *x = of(TG_F32, "[1, 2]"), *y = tg_to(x, first), *z;
        tg_fill_(x, 7);
        HAS(y, "[1, 2]");
        z = tg_cpu(y);
        tg_fill_(y, 8);
        HAS(z, "[1, 2]");
    }
    ON(1, 1.115) {
        tg_tensor *x = tg_to_dtype(there("[1, 2]"), TG_F16);
        CHECK(is_on(tg_zeros_like(x), first) && is_on(tg_randn_like(x), first) &&
              tg_dtype_of(tg_ones_like(x)) == TG_F16);
    }
    ON(1, 1.116) {
        tg_tensor *y = tg_to_like(f64("[1, 2]"), leaf_there("[1]"));
        CHECK(is_on(y, first) && tg_dtype_of(y) == TG_F32 && !tg_requires_grad(y));
    }
    BELIEF("004:82") /* "the tensor object then points to GPU memory": the new one does */
    if (devices) {
        tg_tensor *x = f64("[1, 2]"), *y = tg_cuda(x);
        CHECK(!tg_is_cuda(x) && tg_is_cuda(y));
        HAS(x, "[1, 2]");
    }
}

/* ---- 1.3: dtypes ---- */

/* Every pair of dtypes: what the device makes of awkward numbers is what the CPU makes, bit for bit. */
static void conversions(const char *text)
{
    static const tg_dtype all[] = {TG_F32, TG_F64, TG_BF16, TG_F16, TG_I32, TG_I64, TG_U8, TG_I8, TG_I16, TG_BOOL};
    int i, k;
    for (i = 0; i < 10; ++i) {
        for (k = 0; k < 10; ++k) {
            TG_SCOPE;
            tg_tensor *x = of(all[i], text), *here = tg_to_dtype(x, all[k]), *y = tg_to_dtype(tg_to(x, first), all[k]);
            char a[16 * 8], b[16 * 8];
            size_t bytes = (size_t)tg_numel(x) * tg_dtype_size(all[k]);
            CHECK(is_on(y, first) && tg_dtype_of(y) == all[k]);
            CHECK(tg_copy_out(here, a, bytes) == TG_OK && tg_copy_out(y, b, bytes) == TG_OK && !memcmp(a, b, bytes));
            y = tg_to_ex(x, first, all[k], 0); /* converted before the move or after it */
            CHECK(tg_copy_out(y, b, bytes) == TG_OK && !memcmp(a, b, bytes));
            y = tg_to_ex(tg_to(x, second), TG_CPU, all[k], 0);
            CHECK(tg_copy_out(y, b, bytes) == TG_OK && !memcmp(a, b, bytes));
        }
    }
}

static void conversions_within_a_device(void)
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
        HAS(of(TG_I8, "[128, 300, -129, nan, -128.9]"), "[127, 127, -128, 0, -128]");
        HAS(of(TG_I16, "[32768, 1e9, -inf, nan, -32768.5]"), "[32767, 32767, -32768, 0, -32768]");
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

TEST(dtype_conversion)
{
    on_each_device(conversions_within_a_device);
    ON(1, 1.22) conversions("[65519, 65520, 1e-8, 1.00390625, 1.01171875, 16777217, 0.1, -0.0]");
    ON(1, 1.23) conversions("[3.7, -3.7, 0.5, -0.5, 2.5, -2.5]");
    ON(1, 1.24) {
        conversions("[1e20, -1e20, inf, -inf, 256, 300, -1, 2147483648, -2147483649]");
        HAS(tg_to_dtype(there("[1e20, -1e20, nan, inf]"), TG_I32), "[2147483647, -2147483648, 0, 2147483647]");
        HAS(tg_to_dtype(there("[256, -1, nan, 255]"), TG_U8), "[255, 0, 0, 255]");
    }
    ON(1, 1.25) HAS(tg_to_dtype(there("[nan, -0.0, 2, 0, 0.25]"), TG_BOOL), "[1, 0, 1, 0, 1]");
    ON(1, 1.26) conversions("[0, 1, -1, 127, 128, -128, -129, 255, 256, 32767, 32768, -32768, -32769, 65535, 65536]");
    ON(1, 1.27) { /* wherever the conversion happens, and without waiting: the same numbers */
        tg_tensor *x = f64("[1.00390625, 65520, -3.7, 1e-8]"), *want = tg_to_dtype(x, TG_BF16), *p = tg_pin_memory(x);
        CHECK(tg_equal(tg_cpu(tg_to_ex(x, first, TG_BF16, 0)), want));
        CHECK(tg_equal(tg_cpu(tg_to_ex(p, first, TG_BF16, TG_NON_BLOCKING)), want));
        CHECK(tg_equal(tg_to_ex(tg_to(x, first), TG_CPU, TG_BF16, TG_NON_BLOCKING), want));
        CHECK(tg_equal(tg_cpu(tg_to_ex(tg_to(x, first), second, TG_BF16, 0)), want));
        CHECK(tg_equal(tg_to_ex(tg_t(tg_to(f64("[[1, 2], [3, 4]]"), first)), TG_CPU, TG_F16, 0),
                       of(TG_F16, "[[1, 3], [2, 4]]")));
    }
    ON(2, 1.30) {
        tg_tensor *y = tg_to_dtype(tg_to(f64("[1]"), second), TG_I32);
        CHECK(is_on(y, second) && is_on(tg_to_ex(y, second, TG_F32, 0), second));
    }
}

/* ---- 1.4: gradients ---- */

static tg_tensor *hook_dtype(tg_tensor *g, void *user)
{
    *(tg_dtype *)user = tg_dtype_of(g);
    return NULL;
}

static void gradients_within_a_device(void)
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

TEST(gradients_through_moves) { on_each_device(gradients_within_a_device); }

typedef struct { tg_device device; tg_dtype dtype; } seen_at;
static tg_tensor *see(tg_tensor *g, void *user)
{
    ((seen_at *)user)->device = tg_device_of(g);
    ((seen_at *)user)->dtype = tg_dtype_of(g);
    return NULL;
}

/* Over every device, with work on each. */
static tg_tensor *round_trip(tg_tensor *const *in, int n, void *user)
{
    tg_tensor *y = tg_exp(tg_to(in[0], first));
    (void)n, (void)user;
    return tg_mul(tg_cpu(tg_tanh(tg_to(tg_mul(y, scalar(0.5)), second))), in[0]);
}

TEST(gradients_across_devices)
{
    ON(1, 1.31) {
        tg_tensor *y = tg_cuda(leaf("[1, 2]"));
        CHECK(!tg_is_leaf(y) && tg_requires_grad(y));
    }
    ON(1, 1.32) {
        tg_tensor *x = leaf_of(TG_F64, "[1, 2]"), *y = tg_to_ex(x, first, TG_F32, 0);
        CHECK(backward_sum(tg_mul(y, y)) == TG_OK && is_on(tg_grad(x), TG_CPU) && tg_dtype_of(tg_grad(x)) == TG_F64);
        HAS(tg_grad(x), "[2, 4]");
        CHECK(tg_grad(y) == NULL);
    }
    ON(1, 1.33) {
        tg_tensor *x = leaf_of(TG_F32, "[1, 2]"), *y = tg_retain_grad(tg_to_ex(x, first, TG_F64, 0));
        CHECK(backward_sum(y) == TG_OK && is_on(tg_grad(y), first) && is_on(tg_grad(x), TG_CPU));
        CHECK(tg_dtype_of(tg_grad(y)) == TG_F64 && tg_dtype_of(tg_grad(x)) == TG_F32);
    }
    ON(1, 1.34) {
        tg_tensor *x = leaf_there("[1, 2]"), *y = tg_to_ex(x, first, TG_F32, TG_COPY);
        CHECK(backward_with(y, there("[3, 4]"), 0) == TG_OK && is_on(tg_grad(x), first));
        HAS(tg_grad(x), "[3, 4]");
    }
    ON(2, 1.35) { /* cpu -> cuda:0 -> cuda:1 -> cpu, and through the narrowest dtype */
        tg_tensor *x = leaf("[1, 2]"), *y = tg_to_ex(x, first, TG_F32, 0), *z;
        z = tg_to(tg_mul_scalar(tg_to(tg_mul_scalar(y, 2), second), 3), TG_CPU);
        CHECK(backward_sum(z) == TG_OK && tg_dtype_of(tg_grad(x)) == TG_F64 && is_on(tg_grad(x), TG_CPU));
        HAS(tg_grad(x), "[6, 6]");
        x = leaf_of(TG_F32, "[1, 2]"), y = tg_cpu(tg_to_ex(tg_to_ex(x, first, TG_F16, 0), second, TG_F32, 0));
        CHECK(backward_with(y, of(TG_F32, "[1e-9, 1]"), 0) == TG_OK);
        HAS(tg_grad(x), "[0, 1]");
    }
    ON(2, 1.36) {
        tg_tensor *x = leaf_of(TG_F32, "[1, 2]"), *y = tg_to(tg_to(x, first), second);
        CHECK(backward_sum(tg_add(tg_to(x, second), y)) == TG_OK);
        HAS(tg_grad(x), "[2, 2]");
    }
    ON(1, 1.37) {
        tg_tensor *x = leaf("[3]"), *y = tg_cuda(x), *g = gradient(tg_mul(y, tg_mul(y, y)), x, TG_CREATE_GRAPH);
        CHECK(tg_requires_grad(g) && is_on(g, TG_CPU));
        HAS(g, "[27]");
        HAS(gradient(g, x, 0), "[18]");
    }
    ON(2, 1.37) {
        tg_tensor *x = leaf("[0.3, -1.2, 2]");
        CHECK(tg_gradcheck(round_trip, &x, 1, NULL) && tg_gradgradcheck(round_trip, &x, 1, NULL));
    }
    ON(1, 1.38) {
        TG_NO_GRAD;
        tg_tensor *x = leaf_there("[1]"), *y = tg_cpu(x);
        CHECK(!tg_requires_grad(y) && tg_is_leaf(y) && tg_to(x, first) == x && tg_requires_grad(x));
    }
    ON(1, 1.43) {
        tg_tensor *x = leaf_of(TG_F32, "[1, 2]"), *y = tg_to_ex(x, first, TG_F64, 0);
        seen_at at_x, at_y;
        tg_hook(x, see, &at_x), tg_hook(y, see, &at_y);
        CHECK(backward_sum(y) == TG_OK && tg_device_equal(at_x.device, TG_CPU) && at_x.dtype == TG_F32);
        CHECK(tg_device_equal(at_y.device, first) && at_y.dtype == TG_F64);
    }
    ON(1, 1.44) {
        tg_tensor *x = leaf("[1, 2]"), *y = tg_cuda(x);
        CHECK(tg_mul_scalar_(y, 3) == y && tg_version_of(y) == 1 && tg_version_of(x) == 0 && backward_sum(y) == TG_OK);
        HAS(tg_grad(x), "[3, 3]");
    }
    ON(1, 1.45) {
        tg_tensor *x = leaf("[1, 2, 3, 4]"), *m = tg_set_requires_grad(tg_zeros(TG_SHAPE(2, 3)), true);
        CHECK(backward_sum(tg_cuda(tg_narrow(x, 0, 1, 2))) == TG_OK);
        HAS(tg_grad(x), "[0, 1, 1, 0]");
        CHECK(backward_sum(tg_cuda(tg_t(m))) == TG_OK && strides(tg_grad(m), TG_SHAPE(3, 1)));
    }
    ON(1, 1.46) {
        tg_tensor *x = leaf("[1, 2]"), *y = tg_sum(tg_cpu(tg_cuda(x)));
        CHECK(tg_backward(y) == TG_OK && tg_backward(y) == TG_OK);
        HAS(tg_grad(x), "[2, 2]");
    }
    ON(1, 1.49) {
        tg_tensor *x = leaf_there("[1, 2]"), *y = tg_mul_scalar(x, 2);
        CHECK(backward_with(y, tg_to(f64("[1, 1]"), first), 0) == TG_OK && tg_dtype_of(tg_grad(x)) == TG_F32);
        HAS(tg_grad(x), "[2, 2]");
    }
    ON(1, 1.50) {
        tg_tensor *x = leaf("[1, 2]"), *y = tg_sum(tg_cuda(x)), *g;
        CHECK(tg_backward(y) == TG_OK);
        g = tg_grad(x);
        CHECK(tg_backward(y) == TG_OK && tg_grad(x) == g && is_on(g, TG_CPU));
        HAS(g, "[2, 2]");
    }
    ON(2, 1.52) { /* one tape over three devices: as if on one */
        tg_tensor *x = leaf("[0.3, -1.2, 2]"), *a = tg_exp(tg_to(x, first)),
                  *b = tg_mul(tg_to(x, second), tg_to(a, second));
        tg_tensor *y = tg_add(tg_tanh(tg_cpu(b)), tg_mul(tg_cpu(a), x)), *g = gradient(y, x, 0), *e, *f;
        e = tg_exp(x), f = tg_add(tg_tanh(tg_mul(x, e)), tg_mul(e, x));
        CHECK(tg_allclose(y, f, 1e-12, 1e-12) && tg_allclose(g, gradient(f, x, 0), 1e-12, 1e-12));
    }
    BELIEF("000:43") /* "only the original tensor can collect the gradients" */
    if (devices) {
        tg_tensor *x = leaf("[1, 2]"), *w = tg_set_requires_grad(tg_to(f64("[3, 4]"), first), true), *y = tg_cuda(x);
        CHECK(backward_sum(tg_mul(y, w)) == TG_OK);
        HAS(tg_grad(w), "[1, 2]");
        HAS(gradient(tg_mul(y, w), y, 0), "[3, 4]");
    }
}

TEST(a_moved_leaf_is_no_leaf)
{
    ON(1, 1.40) {
        tg_tensor *x = tg_set_requires_grad(tg_ones_on(TG_SHAPE(3), TG_F32, first), true);
        tg_tensor *y = tg_to(tg_set_requires_grad(tg_ones(TG_SHAPE(3)), true), first);
        CHECK(tg_is_leaf(x) && !tg_is_leaf(y));
        CHECK(backward_sum(tg_mul(x, y)) == TG_OK && tg_grad(x) != NULL);
        warnings = 0;
        tg_set_error_handler(keep_warning, NULL);
        CHECK(tg_grad(y) == NULL && warnings == 1);
        tg_set_error_handler(NULL, NULL);
        CHECK(strstr(warned, "not a leaf Tensor is being accessed") && strstr(warned, "tg_to") &&
              strstr(warned, "tg_set_requires_grad(tg_to(tg_detach(x), device), true)"));
    }
    ON(1, 1.41) {
        tg_tensor *x = leaf("[1, 2]"), *a = tg_set_requires_grad(tg_cuda(tg_detach(x)), true);
        tg_tensor *b = tg_set_requires_grad(tg_detach(tg_cuda(x)), true);
        CHECK(tg_is_leaf(a) && tg_is_leaf(b) && backward_sum(tg_mul(a, b)) == TG_OK && tg_grad(x) == NULL);
        HAS(tg_grad(a), "[1, 2]");
    }
    ON(1, 1.42) CHECK(tg_is_leaf(tg_set_requires_grad(there("[1]"), true)));
    ON(1, 1.120) CHECK_FAILS(tg_set_requires_grad(ids_there("[1]"), true), "only Tensors of floating point dtype");
    ON(1, 1.121) {
        CHECK_FAILS(tg_set_requires_grad(tg_cuda(leaf("[1]")), false),
                    "you can only change requires_grad flags of leaf variables.");
    }
}

/* ---- 1.5: copy_ ---- */

static void copy_into_the_same_device(void)
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

TEST(copy_into)
{
    on_each_device(copy_into_the_same_device);
    ON(1, 1.53) {
        tg_tensor *dst = there("[[0, 0, 0], [0, 0, 0]]"), *here = f64("[[0, 0, 0], [0, 0, 0]]");
        CHECK(tg_copy_(dst, f64("[1, 2, 3]")) == dst && is_on(dst, first));
        HAS(dst, "[[1, 2, 3], [1, 2, 3]]");
        CHECK(tg_copy_(tg_t(here), tg_t(dst)) != NULL);
        HAS(here, "[[1, 2, 3], [1, 2, 3]]");
        CHECK_FAILS(tg_copy_(there("[0, 0, 0]"), f64("[0, 0, 0, 0]")),
                    "The size of tensor a (3) must match the size of tensor b");
    }
    ON(1, 1.54) {
        tg_tensor *x = there("[1, 2, 3]");
        CHECK(tg_copy_(x, tg_narrow(x, 0, 0, 3)) == x && tg_version_of(x) == 0);
        CHECK(tg_copy_(tg_narrow(x, 0, 1, 2), tg_narrow(x, 0, 0, 2)) != NULL);
        HAS(x, "[1, 1, 2]");
    }
    ON(1, 1.55) {
        tg_tensor *x = leaf_there("[1, 2]");
        CHECK_FAILS(tg_copy_(x, f64("[3, 4]")),
                    "a leaf Variable that requires grad is being used in an in-place operation.");
        { TG_NO_GRAD; CHECK(tg_copy_(x, f64("[3, 4]")) == x); }
        CHECK(tg_is_leaf(x) && is_on(x, first));
        HAS(x, "[3, 4]");
    }
    ON(1, 1.56) {
        tg_tensor *src = leaf_of(TG_F64, "[2]"), *dst = there("[0, 0, 0]");
        CHECK(tg_copy_(dst, src) == dst && !tg_is_leaf(dst) && backward_sum(dst) == TG_OK);
        CHECK(is_on(tg_grad(src), TG_CPU) && tg_dtype_of(tg_grad(src)) == TG_F64);
        HAS(tg_grad(src), "[3]");
    }
    ON(1, 1.57) {
        tg_tensor *x = leaf_there("[1, 2, 3]"), *y = tg_mul_scalar(x, 2);
        tg_copy_(tg_narrow(y, 0, 1, 1), f64("[5]"));
        CHECK(backward_sum(y) == TG_OK);
        HAS(tg_grad(x), "[2, 0, 2]");
    }
    ON(1, 1.58) {
        CHECK_FAILS(tg_copy_(tg_expand(there("[1]"), TG_SHAPE(3)), f64("[1, 2, 3]")), "tg_clone(t)");
    }
    ON(2, 1.59) { /* of what takes two tensors, only copy_ and scalars cross */
        tg_tensor *a = there("[1, 2]"), *b = tg_to(f64("[3, 4]"), second);
        CHECK(tg_copy_(a, b) == a && is_on(a, first));
        HAS(a, "[3, 4]");
        CHECK_FAILS(tg_add_(a, b), "found at least two devices, cuda:0 and cuda:1!");
        CHECK_FAILS(tg_matmul(a, b), "got b is on cuda:1, different from other tensors on cuda:0");
    }
}

/* ---- 1.6: operands on different devices ---- */

typedef tg_tensor *(*binary)(tg_tensor *, tg_tensor *);
static const struct { const char *name; binary call; } elementwise[] = {
    {"add", tg_add},         {"sub", tg_sub},         {"mul", tg_mul},     {"div", tg_div},
    {"pow", tg_pow},         {"maximum", tg_maximum}, {"atan2", tg_atan2}, {"minimum", tg_minimum},
    {"eq", tg_eq},           {"ne", tg_ne},           {"lt", tg_lt},       {"le", tg_le},
    {"gt", tg_gt},           {"ge", tg_ge},           {"logical_and", tg_logical_and},
    {"logical_or", tg_logical_or}, {"logical_xor", tg_logical_xor},
};
static const struct { const char *name; binary call; } in_place[] = {
    {"add_", tg_add_}, {"sub_", tg_sub_}, {"mul_", tg_mul_}, {"div_", tg_div_}, {"pow_", tg_pow_}};

TEST(scalars_of_the_cpu)
{
    size_t i;
    ON(1, 1.60) {
        for (i = 0; i < sizeof elementwise / sizeof elementwise[0]; ++i) {
            tg_tensor *x = of(TG_F32, "[1, 2, 3]"), *two = scalar(2), *y = elementwise[i].call(tg_to(x, first), two);
            harness.sample = elementwise[i].name;
            CHECK(is_on(y, first) && tg_dtype_of(y) == tg_dtype_of(elementwise[i].call(x, two)));
            CHECK(tg_allclose(tg_cpu(y), elementwise[i].call(x, two), 1e-6, 0));
            y = elementwise[i].call(two, tg_to(x, first));
            CHECK(is_on(y, first) && tg_allclose(tg_cpu(y), elementwise[i].call(two, x), 1e-6, 0));
        }
        harness.sample = NULL;
        CHECK(tg_dtype_of(tg_mul(ids_there("[1, 2]"), scalar(0.5))) == TG_F64);
        HAS(tg_lerp(there("[1, 2]"), there("[3, 4]"), tg_to_dtype(scalar(0.5), TG_F32)), "[2, 3]");
        HAS(tg_lerp_scalar(tg_to_dtype(scalar(1), TG_F32), there("[3, 4]"), 0.5), "[2, 2.5]");
        HAS(tg_masked_fill(there("[1, 2]"), tg_to_dtype(scalar(1), TG_BOOL), 9), "[9, 9]");
        CHECK_FAILS(tg_masked_fill(there("[1, 2]"), of(TG_BOOL, "[1, 0]"), 9), "x is on cuda:0, mask is on cpu");
    }
    ON(1, 1.48) { /* the gradient of a 0-dim tensor is moved to its device, and so is one that is given on another */
        tg_tensor *s = scalar_leaf(3), *x = leaf_there("[1, 2]"), *g, *root;
        CHECK(backward_sum(tg_mul(x, s)) == TG_OK && is_on(tg_grad(s), TG_CPU) && tg_dtype_of(tg_grad(s)) == TG_F64);
        HAS(tg_grad(s), "3");
        HAS(tg_grad(x), "[3, 3]");
        g = gradient(tg_mul(tg_mul(x, s), s), s, TG_CREATE_GRAPH);
        CHECK(is_on(g, TG_CPU));
        HAS(gradient(g, s, 0), "6");
        root = tg_sum(tg_mul_scalar(s, 5));
        tg_set_grad(s, NULL);
        CHECK(backward_with(root, tg_cuda(scalar(2)), 0) == TG_OK && is_on(tg_grad(s), TG_CPU));
        HAS(tg_grad(s), "10");
    }
    ON(1, 1.63) {
        for (i = 0; i < sizeof in_place / sizeof in_place[0]; ++i) {
            tg_tensor *x = there("[1, 2]"), *here = of(TG_F32, "[1, 2]");
            harness.sample = in_place[i].name;
            CHECK(in_place[i].call(x, scalar(2)) == x && is_on(x, first));
            CHECK(in_place[i].call(here, scalar(2)) && tg_allclose(tg_cpu(x), here, 1e-6, 0));
            CHECK_FAILS(in_place[i].call(scalar(1), tg_cuda(scalar(1))), "found at least two devices, cuda:0 and cpu!");
        }
        harness.sample = NULL;
        CHECK_FAILS(tg_masked_fill_(scalar(1), tg_to(of(TG_BOOL, "[1]"), first), 2), "x is on cpu");
    }
    ON(1, 1.66) {
        tg_tensor *yes = tg_gt_scalar(there("[1, -1]"), 0), *s = scalar_leaf(7), *y = tg_where(yes, s, there("[1, 2]"));
        CHECK(is_on(y, first) && tg_dtype_of(y) == TG_F32);
        HAS(y, "[7, 2]");
        CHECK(backward_sum(y) == TG_OK && is_on(tg_grad(s), TG_CPU));
        HAS(tg_grad(s), "1");
        HAS(tg_where(yes, there("[1, 2]"), scalar(7)), "[1, 7]");
        HAS(tg_where(yes, scalar(5), scalar(7)), "[5, 7]");
        HAS(tg_where(tg_to_dtype(scalar(1), TG_BOOL), there("[1, 2]"), there("[3, 4]")), "[1, 2]");
        CHECK_FAILS(tg_where(tg_cpu(yes), there("[1, 2]"), there("[3, 4]")), "cond is on cpu");
        CHECK_FAILS(tg_where(yes, f64("[1]"), there("[3, 4]")), "a is on cpu");
    }
}

TEST(mixed_devices)
{
    tg_tensor *a, *b;
    ON(1, 1.61) {
        a = there("[1, 2]"), b = f64("[1]");
        tg_set_name(b, "bias");
        CHECK_FAILS(tg_add(a, b),
                    "tg_add: Expected all tensors to be on the same device, but found at least two devices, "
                    "cuda:0 and cpu! (a is on cuda:0, b 'bias' is on cpu)");
        CHECK_FAILS(tg_add(b, a), "found at least two devices, cuda:0 and cpu! (b is on cuda:0, a 'bias' is on cpu)");
        CHECK_FAILS(tg_add(b, a), "  hint: move a: tg_to(a, TG_CUDA(0))");
        (void)tg_add(a, b);
        CHECK(tg_error_code() == TG_ERR_DEVICE);
        tg_clear_error();
    }
    /* the hint moves the other operand, and not what is written in place, a weight, or what is on a GPU already */
    if (devices) {
        tg_tensor *here = of(TG_F32, "[[1, 2], [3, 4]]"), *w = leaf_there("[[1, 2], [3, 4]]"),
                  *late = leaf("[[1, 2], [3, 4]]");
        CHECK_FAILS(tg_add_(f64("[1, 2]"), there("[1, 2]")), "  hint: move b: tg_to(b, TG_CPU)");
        CHECK_FAILS(tg_mul_(there("[1, 2]"), f64("[1, 2]")), "  hint: move b: tg_to(b, TG_CUDA(0))");
        CHECK_FAILS(tg_linear(there("[[1, 2], [3, 4]]"), here, NULL), "  hint: move x: tg_to(x, TG_CPU)");
        CHECK_FAILS(tg_matmul(here, w), "  hint: move a: tg_to(a, TG_CUDA(0))");
        CHECK_FAILS(tg_matmul(w, here), "  hint: move b: tg_to(b, TG_CUDA(0))");
        CHECK_FAILS(tg_matmul(there("[[1, 2], [3, 4]]"), late), "  hint: move a: tg_to(a, TG_CPU)");
        tg_set_name(late, "fc.weight"); /* so does a view, with the name of what it is a view of */
        CHECK_FAILS(tg_matmul(there("[[1, 2], [3, 4]]"), tg_t(late)), "but got b 'fc.weight' is on cpu, different from "
                    "other tensors on cuda:0\n  hint: move a: tg_to(a, TG_CPU)");
        CHECK_FAILS(tg_layer_norm(here, 1, there("[1, 2]"), NULL, 1e-5), "  hint: move x: tg_to(x, TG_CUDA(0))");
        CHECK_FAILS(tg_embedding(w, of(TG_I64, "[1]")), "  hint: move ids: tg_to(ids, TG_CUDA(0))");
        if (devices > 1) CHECK_FAILS(tg_linear(tg_to(here, second), w, NULL), "  hint: move x: tg_to(x, TG_CUDA(0))");
    }
    ON(1, 1.62) CHECK_FAILS(tg_add(f64("[1, 2]"), tg_cuda(scalar(1))), "found at least two devices, cuda:0 and cpu!");
    ON(1, 1.64) {
        CHECK_FAILS(tg_lerp(there("[1, 2]"), scalar(1), scalar(1)), "found at least two devices, cuda:0 and cpu!");
    }
    ON(1, 1.65) {
        tg_tensor *m = there("[[1, 2], [3, 4]]"), *c = of(TG_F32, "[[1, 2], [3, 4]]"), *v = of(TG_F32, "[1, 2]"),
                  *both[2];
        CHECK_FAILS(tg_mm(m, c), "tg_mm: Expected all tensors to be on the same device, but got b is on cpu, different "
                                 "from other tensors on cuda:0\n  hint: move b: tg_to(b, TG_CUDA(0))");
        CHECK_FAILS(tg_matmul(c, m),
                    "but got b is on cuda:0, different from other tensors on cpu\n  hint: move a: tg_to");
        CHECK_FAILS(tg_linear(m, c, NULL),
                    "tg_linear: Expected all tensors to be on the same device, but got weight is");
        CHECK_FAILS(tg_linear(m, m, v), "got bias is on cpu");
        CHECK_FAILS(tg_linear(m, tg_select(m, 0, 0), scalar(1)), "got bias is on cpu");
        CHECK_FAILS(tg_addmm(scalar(1), m, m, 1, 1), "got c is on cpu, different from other tensors on cuda:0\n  hint: move c");
        CHECK_FAILS(tg_layer_norm(m, 1, v, NULL, 1e-5), "got weight is on cpu");
        CHECK_FAILS(tg_rms_norm(m, 1, v, 1e-5), "got weight is on cpu");
        CHECK_FAILS(tg_scaled_dot_product_attention(m, c, m, NULL, 0, false, 0), "got k is on cpu");
        CHECK_FAILS(tg_mse_loss(m, scalar(1), TG_MEAN), "tg_mse_loss: Expected all tensors to be on the same device");
        CHECK_FAILS(tg_binary_cross_entropy_with_logits(m, c, NULL, TG_MEAN, NULL), "got target is on cpu");
        CHECK_FAILS(tg_binary_cross_entropy(tg_sigmoid(m), c, NULL, TG_MEAN), "got target is on cpu");
        CHECK_FAILS(tg_kl_div(m, c, TG_MEAN, false), "got target is on cpu");
        both[0] = m, both[1] = c;
        CHECK_FAILS(tg_einsum("ij,jk->ik", both, 2), "got tensors[1] is on cpu");
        CHECK_FAILS(tg_equal(m, c), "got b is on cpu");
        CHECK_FAILS(tg_allclose(m, c, 0, 0), "got b is on cpu");
    }
    ON(1, 1.67) {
        tg_tensor *in[2], *turned[2];
        in[0] = turned[1] = there("[1, 2]"), in[1] = turned[0] = of(TG_F32, "[3, 4]");
        CHECK_FAILS(tg_cat(in, 2, 0), "got tensors[1] is on cpu, different from other tensors on cuda:0\n  hint: move "
                                      "tensors[1]: tg_to(tensors[1], TG_CUDA(0))");
        CHECK_FAILS(tg_cat(turned, 2, 0), "got tensors[1] is on cuda:0, different from other tensors on cpu\n  hint: "
                                          "move tensors[0]: tg_to(tensors[0], TG_CUDA(0))");
        CHECK_FAILS(tg_stack(in, 2, 0), "tg_stack: Expected all tensors to be on the same device");
        CHECK_FAILS(tg_stack(turned, 2, 0), "tg_stack: Expected all tensors to be on the same device");
    }
    ON(1, 1.73) {
        CHECK_FAILS(tg_eq(there("[1, 2]"), f64("[1, 2]")),
                    "tg_eq: Expected all tensors to be on the same device, but found at");
        HAS(tg_eq(there("[1, 2]"), scalar(2)), "[0, 1]");
    }
    ON(2, 1.74) {
        tg_tensor *x = tg_to(f64("[1, 2]"), second), *ids = tg_to(of(TG_I64, "[1]"), second), *parts[2];
        CHECK(is_on(tg_exp(x), second) && is_on(tg_sum(x), second) && is_on(tg_mul(x, scalar(2)), second));
        CHECK(is_on(tg_index_select(x, 0, ids), second) && is_on(tg_nonzero(x), second));
        CHECK(is_on(tg_one_hot(ids, 3), second) && tg_split(x, 1, 0, parts, 2) == 2 && is_on(parts[1], second));
        CHECK(is_on(tg_dropout(x, 0.5, true), second) && is_on(tg_cross_entropy(tg_unsqueeze(x, 0), ids), second));
    }
    BELIEF("002:40") /* "CPU input and CUDA weights: the output is typically on the CPU" */
    if (devices) {
        tg_tensor *w = leaf_there("[[1, 2], [3, 4]]");
        CHECK_FAILS(tg_linear(of(TG_F32, "[1, 2]"), w, NULL), "hint: move x: tg_to(x, TG_CUDA(0))");
        CHECK(tg_linear(there("[1, 2]"), w, NULL) != NULL);
    }
    BELIEF("002:8") /* "mixed devices give warnings or wrong results" */
    if (devices) {
        warnings = 0;
        tg_set_error_handler(keep_warning, NULL);
        CHECK(tg_mul(there("[1, 2]"), f64("[1, 2]")) == NULL && tg_error_code() == TG_ERR_DEVICE && warnings == 0);
        tg_set_error_handler(NULL, NULL);
        tg_clear_error();
    }
    BELIEF("004:116") /* "the wrong index of a device fails silently" */
    if (devices) CHECK_FAILS(tg_to(f64("[1]"), TG_CUDA(devices)), "invalid device ordinal");
}

TEST(indices)
{
    ON(1, 1.68) {
        tg_tensor *x = leaf_there("[[1, 2, 3], [4, 5, 6]]"), *here = f64("[[1, 2, 3], [4, 5, 6]]"), *y, *i[2];
        int64_t before;
        i[0] = of(TG_I64, "[1, -2]"), i[1] = ids_there("[2, 0]");
        y = tg_index(x, i, 2);
        CHECK(is_on(y, first) && backward_sum(y) == TG_OK && is_on(tg_grad(x), first));
        HAS(y, "[6, 1]");
        HAS(tg_grad(x), "[[1, 0, 0], [0, 0, 1]]");
        HAS(tg_index(x, i, 1), "[[4, 5, 6], [1, 2, 3]]");
        i[1] = of(TG_BOOL, "[[1, 0, 1], [0, 1, 0]]");
        HAS(tg_index(x, i + 1, 1), "[1, 3, 5]");
        i[1] = tg_cuda(i[1]);
        HAS(tg_index(x, i + 1, 1), "[1, 3, 5]");
        CHECK_FAILS(tg_index(here, i + 1, 1),
                    "indices should be either on cpu or on the same device as the indexed tensor "
                    "(cpu)\n  hint: indices[0] is on cuda:0: tg_cpu(indices[0])");
        i[0] = of(TG_I64, "[5]");
        CHECK_FAILS(tg_index(x, i, 1), "index 5 is out of bounds for dimension 0 with size 2");
        i[0] = ids_there("[-3]");
        (void)tg_index(x, i, 1);
        CHECK_FAILS(tg_synchronize(first), "index -3 is out of bounds for dimension 0 with size 2 (detected later)");
        CHECK_FAILS(tg_masked_select(x, tg_cpu(i[1])), "got mask is on cpu");
        i[0] = ids_there("[1, 0]"), before = waits();
        CHECK(tg_index(x, i, 1) != NULL && waits() == before); /* only a mask of bools is read by the host */
        CHECK(tg_index(x, i + 1, 1) != NULL && tg_op_waits("index") && !tg_op_waits("gather"));
    }
    ON(1, 1.69) {
        tg_tensor *m = there("[[1, 2], [3, 4]]"), *ids = of(TG_I64, "[1, 0]"), *c = of(TG_F32, "[1, 2]");
        CHECK_FAILS(tg_gather(tg_select(m, 0, 0), 0, ids),
                    "tg_gather: Expected all tensors to be on the same device, but "
                    "got index is on cpu");
        CHECK_FAILS(tg_index_select(m, 0, ids),
                    "tg_index_select: Expected all tensors to be on the same device, but got "
                    "index is on cpu");
        CHECK_FAILS(tg_take_along_dim(m, ids, 0), "got index is on cpu");
        CHECK_FAILS(tg_embedding(m, ids),
                    "tg_embedding: Expected all tensors to be on the same device, but got ids is on");
        CHECK_FAILS(tg_cross_entropy(m, ids), "got targets is on cpu");
        CHECK_FAILS(tg_nll_loss(m, ids_there("[1, 0]"), c, -100, TG_MEAN), "got weight is on cpu");
        CHECK_FAILS(tg_scatter(tg_select(m, 0, 0), 0, ids, there("[1, 2]")), "got index is on cpu");
        CHECK_FAILS(tg_index_add(m, 0, ids, m), "got index is on cpu");
        CHECK_FAILS(tg_index_select(m, 0, tg_select(ids, 0, 0)), "got index is on cpu"); /* nor for 0-dim ones */
    }
    ON(1, 1.70) {
        tg_tensor *x = there("[1, 2, 3]"), *i = of(TG_I64, "[2, 0]"), *s = tg_to_dtype(scalar_leaf(9), TG_F32), *y;
        CHECK(tg_copy_(tg_narrow(x, 0, 0, 2), f64("[7, 8]")) != NULL); /* x[0:2] = v is a copy */
        HAS(x, "[7, 8, 3]");
        y = tg_index_put(x, &i, 1, s, false);
        CHECK(is_on(y, first) && tg_requires_grad(y));
        HAS(y, "[9, 8, 9]");
        CHECK_FAILS(tg_index_put_(x, &i, 1, of(TG_F32, "[7, 8]"), false),
                    "tg_index_put_: Expected all tensors to be on the same device, but got values is on cpu");
        CHECK(tg_index_put_(x, &i, 1, there("[4, 5]"), true) == x);
        HAS(x, "[12, 8, 7]");
    }
}

/* y = 2 x, whose rule gives its gradient on the CPU, wherever x is */
static tg_status astray_forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    (void)ctx;
    return (out[0] = tg_mul_scalar(in[0], 2)) != NULL ? TG_OK : tg_error_code();
}
static tg_status astray_backward(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)
{
    (void)ctx;
    return (grad_in[0] = tg_cpu(tg_mul_scalar(grad_out[0], 2))) != NULL ? TG_OK : tg_error_code();
}
static tg_tensor *astray(tg_tensor *x)
{
    tg_tensor *y = NULL;
    return tg_custom("astray", astray_forward, astray_backward, NULL, &x, 1, &y, 1) == TG_OK ? y : NULL;
}

TEST(gradients_of_the_wrong_device)
{
    ON(1, 1.71) {
        tg_tensor *x = leaf("[1, 2]"), *y = tg_mul_scalar(x, 2);
        CHECK_FAILS(backward_with(y, there("[1, 1]"), TG_RETAIN_GRAPH),
                    "invalid gradient at index 0 - expected device cpu but got cuda:0");
        CHECK(tg_grad(x) == NULL && backward_with(y, f64("[1, 1]"), 0) == TG_OK);
        x = leaf_there("[1, 2]"); /* a gradient that a node gives; one without dims is moved */
        CHECK_FAILS(backward_sum(astray(x)),
                    "Function astrayBackward returned an invalid gradient at index 0 - expected "
                    "device cuda:0 but got cpu");
        x = tg_set_requires_grad(tg_cuda(scalar(3)), true);
        CHECK(tg_backward(astray(x)) == TG_OK && is_on(tg_grad(x), first) && tg_item(tg_grad(x)) == 2);
    }
    ON(2, 1.72) {
        tg_tensor *x = leaf_of(TG_F32, "[1, 2]"), *z = leaf_there("[1, 2]");
        CHECK_FAILS(
            tg_set_grad(x, there("[1, 1]")),
            "attempting to assign a gradient with device type 'cuda' to a tensor with device type 'cpu'. Please "
            "ensure that the gradient and the tensor are on the same device");
        CHECK_FAILS(tg_set_grad(z, tg_to(of(TG_F32, "[1, 1]"), second)),
                    "located on device with index '1' to a tensor located on device with index '0'");
        CHECK(tg_grad(x) == NULL && tg_set_grad(z, there("[3, 4]")) == TG_OK);
        HAS(tg_grad(z), "[3, 4]");
    }
}

TEST(values_seen_by_the_host)
{
    ON(1, 1.75) {
        tg_tensor *x = leaf_there("[1, 2]");
        double value = 0;
        CHECK_NEAR(tg_item(tg_sum(x)), 3, 0);
        CHECK(tg_item_i64(tg_sum(ids_there("[1, 2]"))) == 3 && tg_get(x, TG_INDEX(1)) == 2);
        CHECK(tg_copy_out(tg_to_dtype(tg_select(x, 0, 1), TG_F64), &value, sizeof value) == TG_OK && value == 2);
        CHECK_FAILS(tg_data_f32(x), "cuda:0");
        CHECK_FAILS(tg_data_f32(x), "tg_cpu");
        CHECK(tg_set(tg_detach(x), TG_INDEX(0), 5) == TG_OK);
        HAS(x, "[5, 2]");
    }
    ON(1, 1.119) {
        FILE *file = tmpfile();
        char text[200] = "";
        CHECK(file && tg_fprint(file, tg_cuda(leaf_of(TG_F32, "[1, 2]"))) == TG_OK);
        if (file) rewind(file), text[fread(text, 1, sizeof text - 1, file)] = 0, fclose(file);
        CHECK(strstr(text, "device='cuda:0'") && strstr(text, "grad_fn=<ToBackward0>"));
    }
}

/* ---- 1.7: devices ---- */

/* Whether the call failed because there is no GPU. */
static bool no_gpu(const tg_tensor *result)
{
    bool said = !result && (strstr(tg_error_message(), "No CUDA GPUs are available") ||
                            strstr(tg_error_message(), "Found no NVIDIA driver on your system"));
    tg_clear_error();
    return said;
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
        if (!with_cuda) {
            tg_tensor *x = f64("[1, 2]");
            CHECK_FAILS(tg_cuda(x), "not compiled with CUDA enabled");
            CHECK_FAILS(tg_to(x, TG_CUDA(0)), "not compiled with CUDA enabled");
            CHECK_FAILS(tg_zeros_on(TG_SHAPE(2), TG_F32, TG_CUDA(0)), "not compiled with CUDA enabled");
            CHECK_FAILS(tg_set_default_device(TG_CUDA(0)), "CUDA");
            CHECK_FAILS(tg_synchronize(TG_CUDA(0)), "CUDA");
            CHECK_FAILS(tg_cuda_set_device(0), "CUDA");
            HAS(tg_add_scalar(x, 1), "[2, 3]"); /* the CPU can still be used */
        }
    d.type = 9, d.index = 0;
    CHECK_FAILS(tg_to(f64("[1]"), d), "unknown device type 9");
    CHECK_FAILS(tg_device_parse(NULL, &e), "NULL");
    CHECK_FAILS(tg_device_parse("cpu", NULL), "NULL");
    ROW(1.81) {
        d.type = TG_DEV_CUDA, d.index = -2;
        CHECK_FAILS(tg_to(f64("[1]"), d), "Device index must not be negative");
        CHECK_FAILS(tg_zeros_on(TG_SHAPE(1), TG_F32, d), "Device index must not be negative");
    }
    ROW(1.87) {
        if (with_cuda && devices == 0) CHECK(no_gpu(tg_cuda(f64("[1]"))) && no_gpu(tg_pin_memory(f64("[1]"))));
        if (devices) {
            CHECK_FAILS(tg_to(f64("[1]"), TG_CUDA(devices)),
                        "CUDA error: invalid device ordinal\n  hint: GPU device may be "
                        "out of range, do you have enough GPUs?");
            CHECK_FAILS(tg_cuda_set_device(99), "invalid device ordinal");
        }
    }
    ON(1, 1.83) {
        CHECK(tg_device_of(there("[1]")).index == 0 &&
              strcmp(tg_device_str(tg_device_of(there("[1]"))), "cuda:0") == 0);
    }
    ON(2, 1.84) { /* "cuda" is the current device, at the call */
        tg_device cuda = TG_CPU;
        CHECK(tg_device_parse("cuda", &cuda) == TG_OK && is_on(tg_to(f64("[1]"), cuda), first));
        CHECK(tg_cuda_set_device(1) == TG_OK && is_on(tg_to(f64("[1]"), cuda), second));
        CHECK(tg_cuda_set_device(0) == TG_OK);
    }
    ON(2, 1.89) {
        tg_tensor *x = there("[1, 2]");
        CHECK(tg_cuda_set_device(1) == TG_OK && tg_cuda_current_device() == 1);
        CHECK(is_on(tg_cuda(f64("[1]")), second) && is_on(tg_zeros_on(TG_SHAPE(1), TG_F32, TG_CUDA(-1)), second));
        CHECK(is_on(tg_exp(x), first) && is_on(tg_mul(x, x), first)); /* ops follow their inputs */
        CHECK(tg_set_default_device(TG_CUDA(-1)) == TG_OK && is_on(tg_ones(TG_SHAPE(1)), second));
        CHECK(tg_set_default_device(TG_CPU) == TG_OK && tg_cuda_set_device(0) == TG_OK);
    }
    BELIEF("001:64") /* "to("cuda") is the first GPU, if there is one": the current one, or an error */
    if (devices == 0) CHECK_FAILS(tg_cuda(f64("[1]")), "CUDA");
    BELIEF("001:71") /* the same of .cuda() */
    if (devices > 1) {
        CHECK(tg_cuda_set_device(1) == TG_OK && is_on(tg_cuda(f64("[1]")), second) && tg_cuda_set_device(0) == TG_OK);
    }
    BELIEF("004:53") /* ".cuda() is GPU 0" */
    if (devices > 1) {
        CHECK(tg_cuda_set_device(1) == TG_OK && !is_on(tg_cuda(f64("[1]")), first) && tg_cuda_set_device(0) == TG_OK);
    }
}

/* ---- 1.8: page-locked memory, non-blocking moves, order ---- */

enum { MANY = 5000 };
static tg_tensor *many(double from) { return tg_add_scalar(tg_arange(0, MANY, 1), from); }

static tg_tensor *pinned_square(tg_tensor *const *in, int n, void *user)
{
    (void)n, (void)user;
    return tg_square(tg_pin_memory(in[0]));
}

TEST(pinned_memory)
{
    ROW(1.91) {
        if (!devices) CHECK_FAILS(tg_pin_memory(f64("[1, 2]")), "CUDA");
        if (devices) {
            tg_tensor *m = of(TG_F32, "[[0, 1, 2], [3, 4, 5]]"), *p = tg_pin_memory(tg_t(m));
            CHECK(tg_is_pinned(p) && strides(p, TG_SHAPE(1, 3)) && tg_equal(p, tg_t(m)) && tg_data(p) != tg_data(m));
            CHECK_FAILS(tg_pin_memory(there("[1]")), "only dense CPU tensors can be pinned");
        }
    }
    ON(1, 1.90) {
        tg_tensor *x = many(0), *p = tg_pin_memory(x);
        CHECK(!tg_is_pinned(x) && tg_is_pinned(p) && !tg_is_pinned(tg_to(p, first)));
        CHECK(tg_is_pinned(tg_narrow(p, 0, 7, 9)) && !tg_is_pinned(tg_clone(p)));
    }
    ON(1, 1.47) {
        tg_tensor *x = leaf("[1, 2, 3]"), *y = tg_pin_memory(x);
        CHECK(!tg_is_leaf(y) && tg_requires_grad(y) && backward_sum(tg_mul(y, y)) == TG_OK &&
              !tg_is_pinned(tg_grad(x)));
        HAS(tg_grad(x), "[2, 4, 6]");
        CHECK(tg_gradcheck(pinned_square, &x, 1, NULL) && tg_gradgradcheck(pinned_square, &x, 1, NULL));
    }
    ON(1, 1.97) { /* freed memory is not used again while a copy still reads it */
        tg_tensor *there_[8];
        int i;
        for (i = 0; i < 8; ++i) {
            TG_SCOPE;
            there_[i] = tg_keep(tg_to_ex(tg_pin_memory(many(i)), first, TG_F32, TG_NON_BLOCKING));
        }
        for (i = 0; i < 8; ++i) CHECK(tg_equal(tg_cpu(there_[i]), many(i)));
    }
}

TEST(moves_and_waiting)
{
    ON(1, 1.93) {
        tg_tensor *x = many(0), *y = tg_to(x, first), *z;
        int64_t before = waits();
        tg_fill_(x, 7); /* the copy has been made when tg_to returns */
        z = tg_cpu(y);
        CHECK(waits() <= before + 1 && !tg_is_pinned(z) && tg_equal(z, many(0)));
    }
    ON(1, 1.94) {
        tg_tensor *p = tg_pin_memory(many(0)), *y;
        int64_t before = waits();
        y = tg_mul_scalar(tg_to_ex(p, first, TG_F32, TG_NON_BLOCKING), 2);
        CHECK(waits() == before && tg_equal(tg_cpu(y), tg_mul_scalar(many(0), 2)));
        y = tg_to_ex(many(3), first, TG_F32, TG_NON_BLOCKING); /* right from ordinary memory, too */
        CHECK(tg_equal(tg_cpu(y), many(3)));
    }
    ON(1, 1.95) { /* here reading it early waits, where PyTorch gives garbage */
        tg_tensor *x = tg_to(many(0), first), *h;
        int64_t before = waits();
        h = tg_to_ex(tg_mul_scalar(x, 2), TG_CPU, TG_F32, TG_NON_BLOCKING);
        CHECK(tg_is_pinned(h) && waits() == before);
        CHECK_NEAR(tg_get(h, TG_INDEX(9)), 18, 0);
        h = tg_to_ex(tg_mul_scalar(x, 3), TG_CPU, TG_F32, TG_NON_BLOCKING);
        CHECK(tg_equal(h, tg_mul_scalar(many(0), 3)));
    }
    ON(1, 1.96) { /* an op that writes the source waits for the copy */
        tg_tensor *p = tg_pin_memory(many(0)), *y = tg_to_ex(p, first, TG_F32, TG_NON_BLOCKING);
        tg_fill_(p, 9);
        CHECK(tg_equal(tg_cpu(y), many(0)));
    }
    ON(1, 1.98) {
        tg_tensor *x = of(TG_F32, "[1.5, 2]"), *y = tg_pin_memory(x);
        HAS(tg_cpu(tg_to_ex(x, first, TG_F64, TG_NON_BLOCKING)), "[1.5, 2]");
        CHECK(tg_to_ex(y, TG_CPU, TG_F32, TG_NON_BLOCKING) == y);
        HAS(tg_to_ex(y, TG_CPU, TG_F64, TG_NON_BLOCKING), "[1.5, 2]");
    }
    ON(1, 1.103) {
        tg_tensor *x = there("[[1, 2], [3, 4]]"), *bad = ids_there("[0, 1, 7]");
        CHECK(tg_index_select(x, 0, bad) != NULL && tg_ok());
        CHECK_FAILS(tg_synchronize(first), "tg_index_select: index out of range in self (detected later): "
                                             "index 7 at position 2 is outside [0, 2)");
        tg_set_sync_checks(true);
        CHECK_FAILS(tg_index_select(x, 0, bad), "tg_index_select: index out of range in self");
        CHECK(tg_index_select(x, 0, bad) == NULL && !strstr(tg_error_message(), "later"));
        tg_clear_error();
        tg_set_sync_checks(false);
        CHECK(tg_synchronize(first) == TG_OK);
    }
    BELIEF("004:120") /* "non_blocking overlaps": from page-locked memory alone, and then nothing is read too early */
    if (devices) {
        tg_tensor *p = tg_pin_memory(many(0));
        int64_t before = waits();
        (void)tg_to_ex(p, first, TG_F32, TG_NON_BLOCKING);
        CHECK(waits() == before);
    }
}

TEST(from_device_to_device)
{
    ON(2, 1.99) { /* after what made the source, before what uses the copy, and the host does not wait */
        tg_tensor *x = tg_to(many(0), first), *y;
        int64_t before = waits();
        tg_mul_scalar_(x, 2);
        y = tg_to(x, second);
        tg_fill_(x, -1);
        y = tg_add_scalar(y, 1);
        CHECK(waits() == before && is_on(y, second));
        CHECK(tg_equal(tg_cpu(y), tg_add_scalar(tg_mul_scalar(many(0), 2), 1)));
        y = tg_to(tg_to(tg_to(tg_exp(tg_to(of(TG_F32, "[0, 1]"), second)), first), second), first);
        CHECK(tg_allclose(tg_cpu(y), tg_exp(of(TG_F32, "[0, 1]")), 1e-6, 0));
    }
    ON(2, 1.100) {
        tg_tensor *m = tg_to(tg_view(many(0), TG_SHAPE(50, 100)), first), *y = tg_to_ex(tg_t(m), second, TG_F64, 0);
        CHECK(strides(y, TG_SHAPE(1, 100)) && tg_get(y, TG_INDEX(3, 7)) == 703 && tg_dtype_of(y) == TG_F64);
        y = tg_to(tg_slice(m, 1, 0, 100, 3), second);
        CHECK(tg_get(y, TG_INDEX(7, 2)) == 706 && tg_is_contiguous(y));
        y = tg_to(tg_expand(tg_narrow(m, 0, 1, 1), TG_SHAPE(4, 100)), second);
        CHECK(tg_get(y, TG_INDEX(3, 5)) == 105 && tg_is_contiguous(y));
    }
    ON(1, 1.101) {
        tg_tensor *x = there("[1, 2]");
        CHECK(tg_copy_(x, tg_view(x, TG_SHAPE(2))) == x && tg_version_of(x) == 0);
    }
    ON(2, 1.102) { /* gradients of every device are there when backward returns */
        tg_tensor *w = tg_set_requires_grad(tg_to(many(0), first), true), *v;
        v = tg_set_requires_grad(tg_to(many(1), second), true);
        CHECK(backward_sum(tg_mul(tg_to(tg_mul(w, w), second), v)) == TG_OK);
        CHECK(is_on(tg_grad(w), first) && is_on(tg_grad(v), second));
        CHECK(tg_allclose(tg_cpu(tg_grad(w)), tg_mul_scalar(tg_mul(many(0), many(1)), 2), 1e-6, 0));
        { TG_NO_GRAD; tg_sub_(v, tg_grad(v)); }
        CHECK(tg_allclose(tg_cpu(v), tg_sub(many(1), tg_mul(many(0), many(0))), 1e-6, 0));
    }
}

/* ---- moves in place ---- */

/* Somewhere else than HERE: another device if there is one, else nowhere; and another dtype. */
static tg_device elsewhere(void) { return devices ? (tg_device_equal(HERE, first) ? TG_CPU : first) : TG_CPU; }

static void leaf_stays_itself(void)
{
    tg_tensor *x = leaf("[[1, 2], [3, 4]]"), *g, *other;
    double seen = 0;
    CHECK(tg_set_name(x, "x") == TG_OK && tg_hook(x, hook_see, &seen) && backward_sum(tg_mul(x, x)) == TG_OK);
    g = tg_grad(x);
    CHECK(tg_set_name(g, "g") == TG_OK);
    CHECK(tg_to_(x, elsewhere()) == x && is_on(x, elsewhere()) && tg_to_dtype_(x, TG_F32) == x);
    CHECK(tg_dtype_of(x) == TG_F32 && is_on(x, elsewhere()) && tg_is_leaf(x) && tg_requires_grad(x));
    CHECK(tg_grad(x) == g && tg_dtype_of(g) == TG_F32 && is_on(g, elsewhere()) && !strcmp(tg_name(g), "g"));
    CHECK(!strcmp(tg_name(x), "x"));
    HAS(x, "[[1, 2], [3, 4]]");
    HAS(g, "[[2, 4], [6, 8]]");
    CHECK(backward_sum(tg_mul(x, x)) == TG_OK && tg_grad(x) == g && seen == 20); /* adds to it; the hook is there */
    HAS(g, "[[4, 8], [12, 16]]");
    CHECK(tg_to_(x, HERE) == x && tg_to_dtype_(x, TG_F64) == x && is_on(x, HERE));
    other = tg_t(f64("[[1, 2], [3, 4]]")); /* the layout stays, as that of tg_to */
    CHECK(tg_to_dtype_(other, TG_F32) == other && strides(other, TG_SHAPE(1, 2)));
    HAS(other, "[[1, 3], [2, 4]]");
    other = i64("[1, 2]"); /* without requires_grad any tensor is a leaf, and any dtype will do */
    CHECK(tg_to_dtype_(other, TG_F32) == other && tg_to_dtype_(other, TG_BOOL) == other);
    HAS(other, "[1, 1]");
}

/* What shared the memory before keeps the old elements, and shares no longer. */
static void views_keep_the_old_bytes(void)
{
    tg_tensor *x = f64("[1, 2, 3]"), *v = tg_narrow(x, 0, 1, 2), *d = tg_detach(x), *w, *y;
    void *data = tg_data(v);
    int64_t alive;
    CHECK(tg_to_dtype_(x, TG_F32) == x && tg_dtype_of(v) == TG_F64 && tg_data(v) == data && is_on(v, HERE));
    tg_fill_(x, 7);
    HAS(v, "[2, 3]");
    HAS(d, "[1, 2, 3]");
    tg_fill_(v, 5); /* v and d still share */
    HAS(d, "[1, 5, 5]");
    HAS(x, "[7, 7, 7]");
    y = tg_mul(tg_set_requires_grad(v, true), v); /* no view any more, so it may become a leaf of its own */
    CHECK(tg_is_leaf(v) && backward_sum(y) == TG_OK);
    HAS(tg_grad(v), "[10, 10]");
    x = f64("[1, 2, 3]"), v = tg_narrow(x, 0, 0, 2), w = tg_narrow(x, 0, 1, 2); /* the view itself moves */
    CHECK(tg_to_dtype_(v, TG_F32) == v);
    tg_fill_(x, 9);
    HAS(v, "[1, 2]");
    HAS(w, "[9, 9]");
    x = f64("[[1, 2, 3], [4, 5, 6]]"), v = tg_narrow(x, 1, 1, 2); /* with gaps, which it leaves behind */
    CHECK(tg_to_dtype_(v, TG_F32) == v && tg_is_contiguous(v));
    HAS(v, "[[2, 3], [5, 6]]");
    x = f64("[1, 2]"), v = tg_view(x, TG_SHAPE(2)); /* a recorded write to one is none to the other */
    CHECK(tg_to_dtype_(x, TG_F32) == x && tg_mul_(v, leaf("[3, 3]")) == v && tg_requires_grad(v));
    CHECK(!tg_requires_grad(x) && backward_sum(v) == TG_OK);
    x = leaf("[1, 2]"); /* what a view must not do, a tensor of its own may */
    { TG_NO_GRAD; v = tg_narrow(x, 0, 0, 1), w = tg_narrow(x, 0, 1, 1); }
    CHECK_FAILS(tg_mul_(v, tg_narrow(x, 0, 0, 1)), "A view was created in no_grad mode");
    CHECK(tg_to_dtype_(v, TG_F32) == v && tg_to_dtype_(x, TG_F32) == x && tg_mul_(v, tg_narrow(x, 0, 0, 1)) == v);
    CHECK(tg_mul_(w, tg_narrow(tg_to_dtype(x, TG_F64), 0, 0, 1)) == w);
    {
        TG_SCOPE; /* what only the view kept alive ends */
        v = tg_keep(tg_narrow(f64("[1, 2]"), 0, 0, 1));
        CHECK(tg_to_dtype_(v, TG_F32) == v);
        alive = tg_stats().tensors;
    }
    CHECK(tg_stats().tensors == alive - 1);
    x = leaf("[1, 2, 3]"), v = tg_narrow(x, 0, 0, 2); /* a view with a history keeps it */
    CHECK(tg_to_dtype_(x, TG_F32) == x && !tg_is_leaf(v) && tg_requires_grad(v));
    CHECK_FAILS(backward_sum(v), "moved");
    CHECK(tg_grad(x) == NULL);
}

TEST(moves_in_place)
{
    on_each_device(leaf_stays_itself);
    on_each_device(views_keep_the_old_bytes);
}

/* Nothing has happened to x, which is f64 on HERE and has the gradient g. */
static bool unmoved(tg_tensor *x, tg_tensor *g)
{
    return tg_dtype_of(x) == TG_F64 && is_on(x, HERE) && tg_grad(x) == g && (!g || tg_dtype_of(g) == TG_F64);
}

static tg_tensor *move_in_hook(tg_tensor *g, void *user)
{
    (void)g;
    return tg_to_dtype_((tg_tensor *)user, TG_F32), (tg_tensor *)NULL;
}

static tg_tensor *move_gradient(tg_tensor *g, void *user)
{
    (void)user;
    return tg_to_dtype_(g, TG_F32), (tg_tensor *)NULL;
}

/* Its own tensors may be moved by a hook. */
static tg_tensor *move_other(tg_tensor *g, void *user)
{
    tg_tensor *own = tg_mul(g, g);
    return tg_to_dtype_((tg_tensor *)user, TG_F16) && tg_to_dtype_(own, TG_F32) ? tg_to_dtype_(own, TG_F64) : NULL;
}

static tg_tensor *function_that_moves(tg_tensor *const *in, int n, void *user)
{
    (void)n, (void)user;
    return tg_to_dtype_(in[0], TG_F32), tg_mul(in[0], in[0]);
}

static tg_tensor *closure_that_moves(void *user)
{
    return tg_to_dtype_((tg_tensor *)user, TG_F32), tg_scalar(1);
}

static void handler_that_moves(tg_status code, const char *message, void *user)
{
    (void)code, (void)message;
    tg_to_dtype_((tg_tensor *)user, TG_F32);
}

/* What the library uses while a function of the user's runs stays where it is. */
static void moves_in_callbacks(void)
{
    tg_tensor *x = leaf("[1, 2]"), *y = tg_mul(x, x), *g = f64("[1, 1]"), *other = f64("[3]"), *p = tg_param(leaf("[1]"));
    tg_optim *opt[2];
    tg_backward_run *run;
    tg_step_info info;
    CHECK(tg_hook(y, move_gradient, NULL));
    CHECK_FAILS(backward_with(y, g, 0), "tg_to_dtype_: a backward is running, and tensor [2] may be needed where it is");
    CHECK(unmoved(x, NULL) && unmoved(g, NULL));
    y = tg_mul(x, x);
    CHECK(tg_hook(y, move_other, other) && backward_with(y, g, 0) == TG_OK && tg_dtype_of(other) == TG_F16);
    HAS(tg_grad(x), "[2, 4]");
    y = tg_mul(x, x);
    run = tg_backward_begin(&y, 1, &g, 0);
    CHECK_FAILS(tg_to_dtype_(g, TG_F32), "a backward is running");
    CHECK(tg_backward_step(run, &info) && unmoved(info.grad, NULL) && unmoved(x, tg_grad(x)));
    CHECK_FAILS(tg_to_dtype_(info.grad, TG_F32), "a backward is running");
    CHECK(tg_to_dtype_(other, TG_F64) == other && tg_backward_end(run) == TG_OK && tg_to_dtype_(g, TG_F32) == g);
    CHECK_FAILS(tg_gradcheck(function_that_moves, &x, 1, NULL), "the function is running, and tensor [2]");
    opt[0] = tg_sgd(&p, 1, 1), opt[1] = tg_lbfgs(&p, 1, 1);
    CHECK_FAILS(tg_step_closure(opt[0], closure_that_moves, p), "the closure is running, and tensor [1]");
    CHECK_FAILS(tg_step_closure(opt[1], closure_that_moves, p), "the closure is running, and tensor [1]");
    CHECK(unmoved(x, tg_grad(x)) && unmoved(p, NULL));
    tg_set_error_handler(handler_that_moves, other);
    CHECK(tg_add(x, f64("[1, 2, 3]")) == NULL && tg_error_count() == 2 && unmoved(other, NULL));
    tg_set_error_handler(NULL, NULL);
    tg_clear_error();
    tg_optim_free(opt[0]), tg_optim_free(opt[1]), tg_release(p);
}

static void refused_moves(void)
{
    tg_tensor *x = leaf("[1, 2]"), *z = leaf("[3, 4]"), *y = tg_exp(x), *g, *list[3];
    CHECK(backward_sum(tg_mul(x, x)) == TG_OK);
    g = tg_grad(x);
    CHECK_FAILS(tg_to_(y, HERE), "only a leaf can be moved in place, but tensor [2] was computed by exp from others that "
                                 "require grad\n  hint: move it by tg_to, which is differentiable");
    CHECK_FAILS(tg_to_(x, TG_CUDA(9)), "cuda:9");
    CHECK_FAILS(tg_to_dtype_(x, TG_I64), "only Tensors of floating point dtype can require gradients");
    CHECK_FAILS(tg_to_dtype_(x, (tg_dtype)-2), "unknown dtype -2");
    CHECK_FAILS(tg_to_dtype_(g, TG_F32), "is the gradient of another tensor");
    CHECK_FAILS(tg_to_(NULL, HERE), "argument leaf is NULL");
    CHECK_FAILS(tg_to_all_(NULL, 1, HERE), "argument leaves is NULL");
    CHECK(unmoved(x, g));
    list[0] = x, list[1] = z, list[2] = y; /* all or none */
    CHECK_FAILS(tg_to_all_ex_(list, 3, HERE, TG_F32, 0), "only a leaf");
    CHECK(unmoved(x, g) && unmoved(z, NULL));
    y = tg_mul(x, z);
    CHECK(tg_hook(y, move_in_hook, x));
    CHECK_FAILS(backward_sum(y), "tg_to_dtype_: a backward is running, and tensor [2] may be needed where it is");
    CHECK(unmoved(x, g));
    CHECK(backward_flags(tg_mul(x, tg_mul(x, z)), TG_CREATE_GRAPH) == TG_OK);
    CHECK_FAILS(tg_to_dtype_(x, TG_F32), "the gradient of tensor [2] has a graph of its own");
    CHECK(unmoved(x, tg_grad(x)) && tg_set_grad(x, NULL) == TG_OK);
    tg_set_grad(z, NULL);
    CHECK(tg_share(z) == z);
    CHECK_FAILS(tg_to_dtype_(z, TG_F32), "was given to other threads by tg_share");
    CHECK(unmoved(z, NULL));
    tg_release(z);
}

static tg_tensor *times_user(tg_tensor *const *in, int n, void *user)
{
    (void)n;
    return tg_mul(in[0], (tg_tensor *)user);
}

static void move_after_accumulation(tg_tensor *leaf, void *user)
{
    (void)user;
    tg_to_dtype_(leaf, TG_F32);
}

/* Row 1.51: a graph from before a move ends at what was moved, whatever the move changed.  Nothing gets a gradient. */
static void graph_from_before_a_move(void)
{
    tg_tensor *x = leaf("[1, 2]"), *z = leaf("[3, 4]"), *c = f64("[5, 6]"), *y = tg_mul(tg_mul(x, z), c), *w = tg_mul(x, z);
    CHECK(tg_to_dtype_(x, TG_F32) == x);
    CHECK_FAILS(backward_sum(y), "tg_backward: a tensor that the graph depends on was moved in place after it was used "
                                 "by mul");
    CHECK(tg_grad(x) == NULL && tg_grad(z) == NULL);
    CHECK_FAILS(gradient(w, z, 0), "was moved in place");
    CHECK(tg_to_dtype_(x, TG_F64) == x); /* there and back: still another one than the graph has seen */
    y = tg_mul(x, z);
    CHECK(tg_to_dtype_(x, TG_F32) == x && tg_to_dtype_(x, TG_F64) == x);
    CHECK_FAILS(backward_sum(y), "was moved in place");
    y = tg_checkpoint(times_user, &z, 1, x); /* a weight that the function finds by itself */
    CHECK(y && tg_to_dtype_(x, TG_F32) == x && tg_to_dtype_(x, TG_F64) == x);
    CHECK_FAILS(backward_sum(y), "used by checkpoint");
    y = tg_mul(z, c); /* a constant that the graph has saved */
    CHECK(tg_to_dtype_(c, TG_F32) == c && tg_to_dtype_(c, TG_F64) == c);
    tg_fill_(c, 1);
    CHECK_FAILS(backward_sum(y), "was moved in place");
    y = tg_add(z, c); /* but not one that it has not saved */
    CHECK(tg_to_dtype_(c, TG_F32) == c && backward_sum(y) == TG_OK);
    HAS(tg_grad(z), "[1, 1]");
    CHECK(tg_hook_post_accumulate(z, move_after_accumulation, NULL)); /* by then backward does not need it */
    CHECK(backward_sum(tg_mul(z, z)) == TG_OK && tg_dtype_of(z) == TG_F32 && tg_dtype_of(tg_grad(z)) == TG_F32);
    HAS(tg_grad(z), "[7, 9]");
}

/* One gradient of two tensors, gradients of gradients, and tensors that are in a list twice. */
static void gradients_move_along(void)
{
    tg_tensor *x = leaf("[1, 2]"), *z = leaf("[3, 4]"), *g = f64("[5, 6]"), *h = f64("[7, 8]"), *list[4];
    CHECK(tg_set_grad(x, g) == TG_OK && tg_set_grad(z, g) == TG_OK && tg_set_grad(g, h) == TG_OK);
    CHECK(tg_set_requires_grad(g, true) && tg_to_dtype_(x, TG_F32) == x && tg_requires_grad(tg_grad(x)));
    CHECK(tg_to_dtype_(x, TG_F32) == x && tg_dtype_of(tg_grad(x)) == TG_F32 && unmoved(z, g) && unmoved(g, h));
    HAS(tg_grad(x), "[5, 6]");
    CHECK(tg_to_dtype_(z, TG_F32) == z && tg_grad(z) == g && tg_dtype_of(g) == TG_F32 && tg_dtype_of(h) == TG_F32);
    CHECK(tg_grad(g) == h && tg_set_grad(x, g) == TG_OK);
    list[0] = list[2] = x, list[1] = list[3] = z;
    CHECK(tg_to_all_ex_(list, 4, elsewhere(), TG_F64, 0) == TG_OK && is_on(x, elsewhere()) && is_on(z, elsewhere()));
    HAS(tg_grad(x), "[5, 6]");
    HAS(tg_grad(z), "[5, 6]");
    CHECK(is_on(tg_grad(x), elsewhere()) && tg_dtype_of(tg_grad(z)) == TG_F64 && tg_dtype_of(g) == TG_F32);
    CHECK(tg_to_all_(list, 4, HERE) == TG_OK && is_on(x, HERE) && is_on(tg_grad(z), HERE));
    h = f64("[[1, 2], [3, 4]]"); /* a gradient that is a view leaves its base */
    CHECK(tg_set_grad(z, tg_select(h, 0, 1)) == TG_OK && tg_to_dtype_(z, TG_F32) == z && tg_dtype_of(h) == TG_F64);
    tg_fill_(h, 0);
    HAS(tg_grad(z), "[3, 4]");
}

TEST(moves_in_place_and_the_graph)
{
    on_each_device(refused_moves);
    on_each_device(moves_in_callbacks);
    ROW(1.51) on_each_device(graph_from_before_a_move);
    on_each_device(gradients_move_along);
}

static void moved_lists(void)
{
    tg_tensor *a = f64("[1.5, 2]"), *b = i64("[3]"), *list[2], *kept[2];
    int64_t before = tg_stats().bytes;
    void *data;
    list[0] = a, list[1] = b;
    CHECK(tg_to_ex(a, HERE, TG_SAME_DTYPE, 0) == a && tg_dtype_of(tg_to_ex(b, elsewhere(), TG_SAME_DTYPE, 0)) == TG_I64);
    CHECK(tg_to_all_ex(list, 2, elsewhere(), TG_SAME_DTYPE, TG_COPY) == TG_OK && list[0] != a && list[1] != b);
    CHECK(is_on(list[0], elsewhere()) && tg_dtype_of(list[0]) == TG_F64 && tg_dtype_of(list[1]) == TG_I64);
    CHECK(tg_to_all_ex(list, 2, HERE, TG_F32, TG_NON_BLOCKING) == TG_OK && tg_dtype_of(list[1]) == TG_F32);
    HAS(list[0], "[1.5, 2]");
    memcpy(kept, list, sizeof kept);
    CHECK_FAILS(tg_to_all_ex(list, 2, HERE, (tg_dtype)-2, 0), "unknown dtype -2");
    CHECK_FAILS(tg_to_all_ex_(list, 0, HERE, (tg_dtype)-2, 0), "unknown dtype -2");
    CHECK(memcmp(kept, list, sizeof kept) == 0);
    list[0] = a, list[1] = b;
    before = tg_stats().bytes;
    CHECK(tg_to_all_ex_(list, 2, elsewhere(), TG_SAME_DTYPE, TG_NON_BLOCKING) == TG_OK && is_on(a, elsewhere()));
    CHECK(tg_to_all_ex_(list, 2, HERE, TG_SAME_DTYPE, 0) == TG_OK && tg_stats().bytes == before);
    data = tg_data(a);
    CHECK(tg_to_all_ex_(list, 2, HERE, TG_SAME_DTYPE, 0) == TG_OK && tg_data(a) == data);
    CHECK(tg_to_all_ex_(list, 2, HERE, TG_SAME_DTYPE, TG_COPY) == TG_OK && tg_data(a) != data);
    CHECK(tg_stats().bytes == before);
    HAS(a, "[1.5, 2]");
    HAS(b, "[3]");
}

TEST(lists_of_moves)
{
    on_each_device(moved_lists);
    if (devices) { /* the old bytes are given back, unless something else reads them */
        tg_tensor *x = tg_param(of(TG_F32, "[1, 2]")), *v;
        int64_t cpu = tg_stats_on(TG_CPU).bytes, gpu = tg_stats_on(first).bytes;
        CHECK(tg_to_(x, first) == x);
        CHECK(tg_stats_on(TG_CPU).bytes == cpu - 8 && tg_stats_on(first).bytes == gpu + 8);
        { TG_NO_GRAD; v = tg_narrow(x, 0, 0, 1); }
        CHECK(tg_to_(x, TG_CPU) == x && tg_stats_on(first).bytes == gpu + 8 && is_on(v, first));
        tg_drop(v);
        CHECK(tg_stats_on(first).bytes == gpu);
        tg_release(x);
    }
}

/* ---- modules ---- */

/* y = block.fc(x) * scale + shift, where shift is no member of the module */
typedef struct {
    tg_tensor *scale, *shift;
    tg_module *fc;
} net_self;

static void net_forward(tg_module *m, tg_tensor *const *in, int n, tg_tensor **out, int n_out)
{
    net_self *self = (net_self *)tg_module_self(m);
    (void)n, (void)n_out;
    out[0] = tg_mul(tg_forward(self->fc, in[0]), self->scale);
    if (self->shift) out[0] = tg_add(out[0], self->shift);
}

/* Parameters block.fc.weight and block.fc.bias, two levels down, and a buffer; 9 numbers in f32. */
static tg_module *net_new(void)
{
    tg_module *m = tg_module_new("Net", net_forward, sizeof(net_self)), *block = tg_module_new("Block", NULL, 0);
    net_self *self = (net_self *)tg_module_self(m);
    self->scale = tg_module_buffer(m, "scale", tg_ones(TG_SHAPE(2)));
    self->fc = tg_module_child(tg_module_child(m, "block", block), "fc", tg_nn_linear(2, 2, true));
    tg_module_buffer(block, "mean", tg_zeros(TG_SHAPE(1)));
    return m;
}

static tg_tensor *batch_on(tg_device device) { return tg_to(of(TG_F32, "[[1, 2]]"), device); }

/* "The .to of a parent does not reach its children": all of the tree moves, in one call. */
static void children_move_along(void)
{
    tg_module *m = net_new();
    tg_tensor *w = tg_module_get(m, "block.fc.weight"), *mean = tg_module_get(m, "block.mean");
    CHECK(tg_module_to(m, elsewhere()) == m && is_on(w, elsewhere()) && is_on(mean, elsewhere()));
    CHECK(is_on(tg_module_get(m, "block.fc.bias"), elsewhere()) && is_on(tg_module_get(m, "scale"), elsewhere()));
    CHECK(tg_module_to_dtype(m, TG_F64) == m && tg_dtype_of(w) == TG_F64 && tg_dtype_of(mean) == TG_F64);
    tg_module_free(m);
}

/* "A layer moves without its weights, which follow when they are used": the call moves them, and waits for nothing. */
static void weights_move_at_once(void)
{
    tg_module *m = net_new();
    tg_tensor *w = tg_module_get(m, "block.fc.weight");
    const int64_t here = tg_stats_on(HERE).bytes, there_before = tg_stats_on(elsewhere()).bytes;
    CHECK(tg_module_to(m, elsewhere()) == m && is_on(w, elsewhere()));
    if (devices) { /* 9 numbers are there, and no longer here */
        CHECK(tg_stats_on(HERE).bytes == here - 9 * 4 && tg_stats_on(elsewhere()).bytes == there_before + 9 * 4);
    }
    CHECK(tg_module_get(m, "block.fc.weight") == w && tg_is_leaf(w) && tg_requires_grad(w));
    CHECK(backward_sum(tg_forward(m, batch_on(elsewhere()))) == TG_OK && is_on(tg_grad(w), elsewhere()));
    tg_module_free(m);
}

/* "To move whole models is too dear, so that parts move by choice": each number moves once, and what is there already
   does not move; a part is moved by moving the child. */
static void whole_moves_are_cheap(void)
{
    tg_module *m = net_new(), *fc = tg_module_get_child(m, "block.fc");
    tg_module_param(m, "tied", tg_module_get(m, "block.fc.weight"));
    const int64_t before = tg_stats_on(elsewhere()).received;
    CHECK(tg_module_to(fc, elsewhere()) == fc && is_on(tg_module_get(m, "tied"), elsewhere()));
    CHECK(is_on(tg_module_get(m, "scale"), HERE));
    CHECK(tg_module_to(m, elsewhere()) == m && is_on(tg_module_get(m, "scale"), elsewhere()));
    CHECK(tg_module_to(m, elsewhere()) == m);
    CHECK(tg_stats_on(elsewhere()).received == before + (devices ? 9 * 4 : 0));
    tg_module_free(m);
}

/* "A layer made in the forward inherits the device of the input": it is made on the default device. */
static void late_layers_stay(void)
{
    tg_module *m = net_new();
    net_self *self = (net_self *)tg_module_self(m);
    CHECK(tg_module_to(m, elsewhere()) == m);
    self->fc = tg_module_child(m, "late", tg_nn_linear(2, 2, true));
    CHECK(is_on(tg_module_get(m, "late.weight"), HERE));
    if (devices) CHECK_FAILS(tg_forward(m, batch_on(elsewhere())), "'late.weight' of Net");
    CHECK(tg_module_to(m, elsewhere()) == m && tg_forward(m, batch_on(elsewhere())) != NULL);
    tg_module_free(m);
}

/* "All tensors that are members of a class object must be moved by hand": only what was not registered. */
static void members_move_plain_tensors_do_not(void)
{
    tg_module *m = net_new();
    net_self *self = (net_self *)tg_module_self(m);
    self->shift = of(TG_F32, "[1, 1]");
    CHECK(tg_module_to(m, elsewhere()) == m && is_on(self->scale, elsewhere()) && is_on(self->shift, HERE));
    if (devices) CHECK_FAILS(tg_forward(m, batch_on(elsewhere())), "tg_module_buffer");
    CHECK(tg_module_buffer(m, "shift", self->shift) == self->shift && tg_module_to(m, elsewhere()) == m);
    CHECK(is_on(self->shift, elsewhere()) && tg_forward(m, batch_on(elsewhere())) != NULL);
    tg_module_free(m);
}

TEST(modules_move_whole)
{
    BELIEF("002:10") on_each_device(children_move_along);
    BELIEF("003:8") on_each_device(weights_move_at_once);
    BELIEF("003:10") on_each_device(whole_moves_are_cheap);
    BELIEF("003:44") on_each_device(late_layers_stay);
    BELIEF("003:111") on_each_device(members_move_plain_tensors_do_not);
}

/* ---- 1.12: optimizers; threads ---- */

enum { OPTIMIZERS = 10, NEVER = -2, BEFORE_OPTIMIZER = -1, STEPS = 7 };
static tg_optim *optimizer(int kind, tg_tensor **p)
{
    tg_optim *o = kind < 3   ? tg_sgd(p, 1, 0.1)
                  : kind < 5 ? tg_adam(p, 1, 0.1)
                  : kind < 6 ? tg_adamw(p, 1, 0.1)
                  : kind < 8 ? tg_rmsprop(p, 1, 0.1)
                  : kind < 9 ? tg_adagrad(p, 1, 0.1)
                             : tg_adadelta(p, 1, 1);
    o->momentum = kind == 1 || kind == 2 || kind == 7 ? 0.9 : 0;
    o->nesterov = kind == 2;
    o->amsgrad = kind == 4;
    o->centered = kind == 7;
    o->initial_accumulator_value = 0.5;
    return o;
}

/* A parameter on `from`, after some steps; it moves to `to` in step `when`, or as the constants say. */
static tg_tensor *trained_and_moved(int kind, int when, tg_device from, tg_device to, tg_dtype dtype)
{
    tg_tensor *p = tg_param(tg_to(f64("[[1, -2, 0.5], [3, 4, -1]]"), from));
    tg_tensor *const leaf = p;
    tg_optim *opt;
    int step;
    if (when == BEFORE_OPTIMIZER) CHECK(tg_to_all_ex_(&p, 1, to, dtype, 0) == TG_OK);
    opt = optimizer(kind, &p);
    for (step = 0; step < STEPS; ++step) {
        TG_SCOPE;
        if (step == when) CHECK(tg_to_all_ex_(&p, 1, to, dtype, 0) == TG_OK);
        if (step != 3) tg_optim_zero_grad(opt); /* in step 3 gradients add up over the move */
        CHECK(backward_sum(tg_mul(tg_cos(p), p)) == TG_OK && tg_step(opt) == TG_OK && p == leaf);
    }
    tg_tensor *y = tg_clone(tg_cpu(tg_detach(p)));
    tg_optim_free(opt), tg_release(p);
    return y;
}

TEST(optimizers_follow)
{
    for (int kind = 0; kind < OPTIMIZERS; ++kind) {
        tg_tensor *never = trained_and_moved(kind, NEVER, TG_CPU, TG_CPU, TG_F64), *y;
        ROW(1.122) { /* made before the move */
            y = trained_and_moved(kind, BEFORE_OPTIMIZER, TG_CPU, TG_CPU, TG_F32);
            CHECK(tg_equal(y, trained_and_moved(kind, 0, TG_CPU, TG_CPU, TG_F32)) && tg_dtype_of(y) == TG_F32);
        }
        ROW(1.123) { /* with state, which PyTorch leaves behind */
            y = trained_and_moved(kind, 3, TG_CPU, TG_CPU, TG_F32);
            CHECK(tg_dtype_of(y) == TG_F32 && tg_allclose(tg_to_dtype(y, TG_F64), never, 1e-4, 1e-5));
        }
        ON(1, 1.122) {
            y = trained_and_moved(kind, BEFORE_OPTIMIZER, TG_CPU, first, TG_F64);
            CHECK(tg_equal(y, trained_and_moved(kind, 0, TG_CPU, first, TG_F64)));
        }
        ON(1, 1.123) {
            CHECK(tg_allclose(trained_and_moved(kind, 3, TG_CPU, first, TG_F64), never, 1e-12, 1e-12));
            CHECK(tg_allclose(trained_and_moved(kind, 3, first, TG_CPU, TG_F64), never, 1e-12, 1e-12));
        }
        ON(2, 1.123) { /* from device to device not a bit changes */
            y = trained_and_moved(kind, NEVER, first, first, TG_F64);
            CHECK(tg_equal(y, trained_and_moved(kind, 3, first, second, TG_F64)));
        }
    }
}

/* Three steps of AdamW with clipped gradients over w on a and v on b; returns both, joined. */
static tg_tensor *trained(tg_device a, tg_device b)
{
    tg_tensor *p[2], *in[2], *y;
    tg_optim *opt;
    int step;
    p[0] = tg_param(tg_to(f64("[1, -2, 3]"), a)), p[1] = tg_param(tg_to(f64("[0.5, 4]"), b));
    opt = tg_adamw(p, 2, 0.1);
    for (step = 0; step < 3; ++step) {
        TG_SCOPE;
        tg_tensor *norm;
        tg_optim_zero_grad(opt);
        y = tg_mul(tg_to(tg_sum(tg_mul(p[0], p[0])), b), tg_sum(tg_exp(p[1])));
        CHECK(tg_backward(y) == TG_OK && (norm = tg_clip_grad_norm(p, 2, 1)) != NULL && is_on(norm, a));
        CHECK(tg_step(opt) == TG_OK);
    }
    in[0] = tg_cpu(tg_detach(p[0])), in[1] = tg_cpu(tg_detach(p[1]));
    y = tg_cat(in, 2, 0);
    tg_optim_free(opt), tg_release(p[0]), tg_release(p[1]);
    return y;
}

TEST(training_over_devices)
{
    ON(2, 1.125) {
        tg_tensor *p[2], *norm;
        p[0] = leaf_there("[1, 2]"), p[1] = tg_set_requires_grad(tg_to(of(TG_F32, "[3]"), second), true);
        CHECK(tg_set_grad(p[0], there("[3, 0]")) == TG_OK &&
              tg_set_grad(p[1], tg_to(of(TG_F32, "[4]"), second)) == TG_OK);
        norm = tg_clip_grad_norm(p, 2, 1);
        CHECK(is_on(norm, first) && is_on(tg_grad(p[0]), first) && is_on(tg_grad(p[1]), second));
        CHECK_NEAR(tg_item(norm), 5, 1e-6);
        HAS(tg_grad(p[0]), "[0.6, 0]");
        HAS(tg_grad(p[1]), "[0.8]");
        CHECK(tg_clip_grad_value(p, 2, 0.5) == TG_OK);
        HAS(tg_grad(p[1]), "[0.5]");
        CHECK(tg_allclose(trained(first, second), trained(TG_CPU, TG_CPU), 1e-9, 1e-9));
        CHECK(tg_allclose(trained(TG_CPU, second), trained(TG_CPU, TG_CPU), 1e-9, 1e-9));
    }
}

/* A thread's part of a batch: its gradient of shared weights, as numbers. */
typedef struct { tg_tensor *weights; double x[2], gradient[2]; bool ok, refused; tg_tensor *foreign; } part;

static void *work(void *user)
{
    part *mine = (part *)user;
    tg_mark mark = tg_scope_begin();
    tg_tensor *x = tg_to(tg_from_f64(mine->x, TG_SHAPE(2)), tg_device_of(mine->weights)), *y, *g = NULL;
    int i;
    mine->ok = true;
    for (i = 0; i < 20; ++i) {
        y = tg_sum(tg_mul(tg_mul(mine->weights, mine->weights), x));
        mine->ok = mine->ok && tg_gradients(&y, 1, NULL, &mine->weights, 1, &g, 0) == TG_OK;
    }
    mine->ok = mine->ok && tg_copy_out(g, mine->gradient, sizeof mine->gradient) == TG_OK && tg_ok();
    mine->refused = tg_exp(mine->foreign) == NULL && strstr(tg_error_message(), "tg_share") != NULL;
    tg_clear_error();
    tg_scope_end(mark);
    tg_thread_end();
    return NULL;
}

TEST(threads_on_one_device)
{
    if (there_are(1)) {
        tg_tensor *w = tg_param(tg_to(f64("[2, 3]"), first)), *mine = tg_to(f64("[1]"), first);
        part parts[2];
        pthread_t thread[2];
        int i;
        CHECK(tg_share(w) == w);
        for (i = 0; i < 2; ++i) {
            parts[i].weights = w, parts[i].foreign = mine;
            parts[i].x[0] = i + 1, parts[i].x[1] = i + 10;
            CHECK(pthread_create(&thread[i], NULL, work, &parts[i]) == 0);
        }
        for (i = 0; i < 2; ++i) {
            pthread_join(thread[i], NULL);
            CHECK(parts[i].ok && parts[i].refused);
            CHECK_NEAR(parts[i].gradient[0], 4 * (i + 1), 0);
            CHECK_NEAR(parts[i].gradient[1], 6 * (i + 10), 0);
        }
        HAS(tg_exp(tg_sub(mine, mine)), "[1]");
        tg_release(w);
    }
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    devices = tg_cuda_device_count();
    first = TG_CUDA(0), second = TG_CUDA(devices > 1 ? 1 : 0);
    RUN(moves_that_change_nothing);
    RUN(moves_that_copy);
    RUN(dtype_conversion);
    RUN(gradients_through_moves);
    RUN(gradients_across_devices);
    RUN(a_moved_leaf_is_no_leaf);
    RUN(copy_into);
    RUN(scalars_of_the_cpu);
    RUN(mixed_devices);
    RUN(indices);
    RUN(gradients_of_the_wrong_device);
    RUN(values_seen_by_the_host);
    RUN(devices_as_values);
    RUN(pinned_memory);
    RUN(moves_and_waiting);
    RUN(from_device_to_device);
    RUN(moves_in_place);
    RUN(moves_in_place_and_the_graph);
    RUN(lists_of_moves);
    RUN(modules_move_whole);
    RUN(optimizers_follow);
    RUN(training_over_devices);
    RUN(threads_on_one_device);
    check_rows("test_moves");
    tg_shutdown();
    printf("%d devices; %d rows need more\n", devices, waiting);
    return harness_end();
}
