/* Kernels of tensorgrad_cuda.cu that go along dims or by indices, against the plain backend: reductions, argmax,
   cumsum, sort, scatter, gather.  The sizes are such that every way through the kernels is taken: blocks of one warp and of many,
   pieces, packs and none.  The line `bits` must be the same in every schedule of the simulator.  Built by
   `make sim MAIN=tests/cuda/test_along.c OUT=prog`; it runs on GPUs, too. */
#include "tensorgrad.h"
#include "counting.h"
#include "../inside.h"

static uint64_t bits = HARNESS_HASH;
static const tg_dtype dtypes[] = {TG_F32, TG_BF16, TG_F16, TG_F64, TG_I32, TG_I64, TG_U8, TG_I8, TG_I16, TG_BOOL};
enum { DTYPES = sizeof dtypes / sizeof *dtypes, FLOATS = 4 };

/* Numbers on the CPU: some are equal, and one in a hundred is NaN if nan. */
static tg_tensor *numbers(tg_shape shape, tg_dtype dtype, bool nan)
{
    tg_tensor *x = tg_randn_on(shape, TG_F64, TG_CPU);
    if (dtype >= TG_I32 || nan) x = tg_floor(tg_mul_scalar(x, 20));
    if (dtype == TG_U8) x = tg_abs(x);
    if (nan) x = tg_masked_fill(x, tg_lt_scalar(tg_rand_on(shape, TG_F64, TG_CPU), 0.01), NAN);
    return tg_to_dtype(x, dtype);
}

/* Whether y on the device is z on the CPU, to the bit or within a relative error of some elements' rounding. */
static bool same(tg_tensor *y, tg_tensor *z, double tolerance)
{
    tg_tensor *here = tg_cpu(y);
    if (!here || !z) return false;
    bits = harness_mix_tensor(bits, here);
    if (tolerance == 0) return tg_dtype_of(here) == tg_dtype_of(z) && tg_equal(here, z);
    return tg_allclose(tg_to_dtype(here, TG_F64), tg_to_dtype(z, TG_F64), tolerance, tolerance);
}

static tg_tensor *no_nan(tg_tensor *x) { return tg_masked_fill(x, tg_isnan(x), 0); }

/* ---- reductions ---- */

typedef struct {
    tg_shape shape, dims;
    bool transposed;
} reduction;

static tg_tensor *reduced(int kind, tg_tensor *x, tg_shape dims)
{
    switch (kind) {
    case 0: return tg_sum_dims(x, dims, false);
    case 1: return tg_amax_dims(x, dims, false);
    case 2: return tg_amin_dims(x, dims, false);
    case 3: return tg_prod_dims(x, dims, false);
    case 4: return tg_any_dims(x, dims, false);
    default: return tg_all_dims(x, dims, false);
    }
}

static tg_tensor *layout(tg_tensor *x, bool transposed, int64_t start)
{
    if (start) x = tg_narrow(x, tg_ndim(x) - 1, start, tg_dim(x, -1) - start);
    return transposed ? tg_transpose(x, 0, -1) : x;
}

static double tolerance_of_sums(tg_dtype dtype)
{
    return dtype == TG_F64 ? 1e-12 : dtype == TG_F32 ? 2e-6 : dtype == TG_F16 ? 2e-3 : 1e-2;
}

static void reduce_both(const reduction *r, tg_dtype dtype, int64_t start)
{
    TG_SCOPE;
    tg_tensor *whole = numbers(r->shape, dtype, false), *x = layout(whole, r->transposed, start);
    tg_tensor *there = layout(tg_cuda(whole), r->transposed, start);
    for (int kind = 0; kind < 6; ++kind) {
        const bool rounds = dtype < TG_I32 && (kind == 0 || kind == 3);
        if (tg_numel(x) == 0 && (kind == 1 || kind == 2)) continue; /* refused */
        tg_tensor *z = kind == 0 && rounds ? reduced(kind, tg_to_dtype(x, TG_F64), r->dims) : reduced(kind, x, r->dims);
        if (!CHECK(same(reduced(kind, there, r->dims), z, rounds ? tolerance_of_sums(dtype) : 0)))
            printf("    kind %d, %s, %d dims from %d\n", kind, tg_dtype_name(dtype), tg_ndim(x), (int)start);
    }
}

TEST(reductions)
{
    const reduction all[] = {
        {TG_SHAPE(70000), TG_DIMS(0), false},         {TG_SHAPE(3, 5000), TG_DIMS(1), false},
        {TG_SHAPE(7, 1023), TG_DIMS(1), false},       {TG_SHAPE(300, 64), TG_DIMS(1), false},
        {TG_SHAPE(2000, 12), TG_DIMS(0), false},      {TG_SHAPE(700, 133), TG_DIMS(0), false},
        {TG_SHAPE(600, 264), TG_DIMS(0), false},      {TG_SHAPE(4, 6, 8, 16), TG_DIMS(0, 2, 3), false},
        {TG_SHAPE(3, 4, 5, 4, 3), TG_DIMS(0, 2, 4), false}, {TG_SHAPE(1000, 3), TG_DIMS(1), false},
        {TG_SHAPE(4, 90, 12), TG_DIMS(1), false},     {TG_SHAPE(0, 5), TG_DIMS(0), false},
        {TG_SHAPE(90, 40), TG_DIMS(1), true},         {TG_SHAPE(40, 90, 8), TG_DIMS(0, 1), true},
    };
    tg_seed(1);
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
        for (int k = 0; k < DTYPES; ++k) {
            for (int64_t start = 0; start < 2; ++start) reduce_both(&all[i], dtypes[k], start);
        }
    }
}

/* Sums of many like numbers in f32, where each addition to one sum in f32 would round. */
TEST(long_sums_are_accurate)
{
    TG_SCOPE;
    tg_tensor *x = tg_full_on(TG_SHAPE(1 << 19), 0.1, TG_F32, TG_CUDA(0));
    tg_tensor *column = tg_sum_dim(tg_reshape(x, TG_SHAPE(1 << 17, 4)), 0, false);
    bits = harness_mix_tensor(bits, tg_cpu(column));
    CHECK_NEAR(tg_item(tg_sum(x)), (1 << 19) * (double)0.1f, 0.01);
    CHECK_NEAR(tg_get(column, TG_INDEX(3)), (1 << 17) * (double)0.1f, 0.003);
    x = tg_full_on(TG_SHAPE(5000), 60000, TG_F16, TG_CUDA(0));
    CHECK(tg_item(tg_sum(x)) == HUGE_VAL); /* as f16 */
    CHECK(tg_item(tg_mean(x)) > 59000);
}

/* NaN is the largest and the smallest of its row. */
TEST(extremes_with_nan)
{
    for (int k = 0; k < FLOATS; ++k) {
        TG_SCOPE;
        tg_tensor *x = numbers(TG_SHAPE(40, 1030), dtypes[k], true), *y = tg_cuda(x);
        CHECK(same(tg_isnan(tg_amax_dim(y, 1, false)), tg_isnan(tg_amax_dim(x, 1, false)), 0));
        CHECK(same(tg_isnan(tg_amin_dim(y, 0, false)), tg_isnan(tg_amin_dim(x, 0, false)), 0));
        CHECK(isnan(tg_item(tg_amax(y))));
    }
}

/* ---- cumsum, argmax: rows of one piece and of several ---- */

TEST(scans_and_extremes)
{
    const tg_shape shapes[] = {TG_SHAPE(70, 5), TG_SHAPE(3, 700), TG_SHAPE(2, 20000), TG_SHAPE(9001)};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i) {
        for (int k = 0; k < DTYPES; ++k) {
            const double tolerance = dtypes[k] >= TG_I32 ? 0 : tolerance_of_sums(dtypes[k]);
            TG_SCOPE;
            tg_tensor *x = numbers(shapes[i], dtypes[k], false), *y = tg_cuda(x), *at, *index;
            tg_tensor *z = tg_cumsum(tolerance > 0 ? tg_to_dtype(x, TG_F64) : x, -1);
            if (!CHECK(same(tg_cumsum(y, -1), z, tolerance)))
                printf("    cumsum of %s, shape %d\n", tg_dtype_name(dtypes[k]), (int)i);
            CHECK(same(tg_argmin(y, -1, false), tg_argmin(x, -1, false), 0));
            z = tg_max_dim(x, -1, true, &index);
            CHECK(same(tg_max_dim(y, -1, true, &at), z, 0) && same(at, index, 0));
            if (dtypes[k] >= TG_I32) continue;
            x = numbers(shapes[i], dtypes[k], true);
            CHECK(same(tg_argmax(tg_cuda(x), -1, false), tg_argmax(x, -1, false), 0));
        }
    }
}

/* ---- sort, scatter, gather, embedding ---- */

/* Rows of one block, of one tile and of many; many equal numbers, and NaN. */
TEST(sorts)
{
    const tg_shape shapes[] = {TG_SHAPE(40, 7), TG_SHAPE(5, 512), TG_SHAPE(3, 513), TG_SHAPE(2, 9000), TG_SHAPE(30000)};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; ++i) {
        for (int k = 0; k < DTYPES; ++k) {
            TG_SCOPE;
            inside_plain(i < 3); /* its sort compares each element with each */
            tg_tensor *x = numbers(shapes[i], dtypes[k], dtypes[k] < TG_I32), *index, *at;
            tg_tensor *y = tg_sort(tg_cuda(x), -1, k % 2, &at), *z = tg_sort(x, -1, k % 2, &index);
            if (!CHECK(same(at, index, 0))) printf("    %s, shape %d\n", tg_dtype_name(dtypes[k]), (int)i);
            CHECK(same(tg_isnan(y), tg_isnan(z), 0) && same(no_nan(y), no_nan(z), 0));
            if (i) continue;
            y = tg_topk(tg_cuda(tg_t(x)), 3, 0, true, &at);
            z = tg_topk(tg_t(x), 3, 0, true, &index);
            CHECK(same(at, index, 0) && tg_dim(y, 0) == tg_dim(z, 0));
        }
    }
    inside_plain(true);
    TG_SCOPE; /* zeros of both signs are equal; infinities */
    tg_tensor *x = tg_div_scalar(tg_sub_scalar(tg_arange_on(0, 600, 1, TG_F32, TG_CPU), 300), 0), *index, *at;
    x = tg_where(tg_gt_scalar(tg_rand_on(TG_SHAPE(600), TG_F32, TG_CPU), 0.5), x, tg_mul_scalar(tg_sign(x), 0));
    CHECK(tg_sort(x, 0, false, &index) && tg_sort(tg_cuda(x), 0, false, &at) && same(at, index, 0));
}

/* Places in one row for all values, and in a row for each; many equal numbers, and indices that sort. */
TEST(searches)
{
    const tg_shape shapes[] = {TG_SHAPE(40, 7), TG_SHAPE(3, 600)};
    inside_plain(true);
    for (int i = 0; i < 2; ++i) {
        for (int k = 0; k < DTYPES; ++k) {
            TG_SCOPE;
            tg_tensor *t = numbers(shapes[i], dtypes[k], false), *x = numbers(shapes[i], dtypes[k], false), *order, *y;
            tg_tensor *sorted = tg_sort(t, -1, false, &order), *row = tg_contiguous(tg_select(sorted, 0, 1));
            for (int right = 0; right < 2; ++right) {
                y = tg_searchsorted(tg_cuda(sorted), tg_cuda(x), right != 0, NULL);
                CHECK(same(y, tg_searchsorted(sorted, x, right != 0, NULL), 0));
                y = tg_searchsorted(tg_cuda(t), tg_cuda(x), right != 0, tg_cuda(order));
                CHECK(same(y, tg_searchsorted(sorted, x, right != 0, NULL), 0));
                y = tg_bucketize(tg_t(tg_cuda(x)), tg_cuda(row), right != 0);
                CHECK(same(y, tg_bucketize(tg_t(x), row, right != 0), 0));
            }
        }
    }
}

/* index: how often numbers come: like numbers in most of them, or spread; some segments have one number only. */
static tg_tensor *ids(int64_t n, int64_t size, bool spread)
{
    tg_tensor *all = tg_randint_on(0, size, TG_SHAPE(n), TG_I64, TG_CPU);
    tg_tensor *often = tg_lt_scalar(tg_rand_on(TG_SHAPE(n), TG_F32, TG_CPU), 0.9);
    return spread ? all : tg_masked_fill(all, often, (double)(size / 2));
}

static void add_both(tg_dtype dtype, int64_t n, int64_t size, int64_t columns, bool spread)
{
    const double tolerance = dtype >= TG_I32 ? 0 : dtype == TG_F64 ? 1e-11 : dtype == TG_F32 ? 1e-4 : 0.1;
    TG_SCOPE;
    tg_tensor *index = ids(n, size, spread), *src = numbers(TG_SHAPE(n, columns), dtype, false), *y, *z;
    tg_tensor *x = numbers(TG_SHAPE(size, columns), dtype, false), *where = tg_cuda(index);
    tg_tensor *wide = tg_expand(tg_unsqueeze(index, 1), TG_SHAPE(n, columns));
    const tg_dtype exact = tolerance > 0 ? TG_F64 : dtype;
    if (dtype == TG_BF16 || dtype == TG_F16) src = tg_mul_scalar(src, 1.0 / 64), x = tg_mul_scalar(x, 1.0 / 64);
    z = tg_index_add(tg_to_dtype(x, exact), 0, index, tg_to_dtype(src, exact));
    y = tg_index_add(tg_cuda(x), 0, where, tg_cuda(src));
    if (!CHECK(same(y, z, tolerance))) printf("    index_add of %s\n", tg_dtype_name(dtype));
    y = tg_contiguous(tg_t(tg_cuda(wide))); /* each row has indices of its own */
    y = tg_scatter_add(tg_t(tg_cuda(x)), 1, y, tg_t(tg_cuda(src)));
    if (!CHECK(same(y, tg_t(z), tolerance))) printf("    scatter_add of %s\n", tg_dtype_name(dtype));
    y = tg_scatter(tg_cuda(x), 0, tg_cuda(wide), tg_cuda(src));
    CHECK(same(y, tg_scatter(x, 0, wide, src), 0));
    const char *const reductions[] = {"prod", "amax", "amin"};
    for (int k = 0; k < 3; ++k) { /* indices that are the same for all rows, and others; a product of few is finite */
        const int64_t few = k ? n : n / 20;
        z = tg_narrow(wide, 0, 0, few);
        y = tg_scatter_reduce(tg_cuda(x), 0, tg_cuda(z), tg_cuda(src), reductions[k], k != 1);
        z = tg_scatter_reduce(x, 0, z, src, reductions[k], k != 1);
        if (!CHECK(same(y, z, tolerance))) printf("    %s of %s\n", reductions[k], tg_dtype_name(dtype));
        y = tg_contiguous(tg_t(tg_cuda(tg_narrow(wide, 0, 0, few))));
        y = tg_scatter_reduce(tg_t(tg_cuda(x)), 1, y, tg_t(tg_cuda(src)), reductions[k], k != 1);
        CHECK(same(y, tg_t(z), tolerance));
    }
    CHECK(same(tg_index_select(tg_cuda(x), 0, where), tg_index_select(x, 0, index), 0));
}

TEST(sums_at_indices)
{
    for (int k = 0; k < DTYPES; ++k) {
        for (int spread = 0; spread < 2; ++spread) {
            add_both(dtypes[k], 700, 300, 1, spread);
            add_both(dtypes[k], 130, 90, 24, spread);
            if (k < 3) add_both(dtypes[k], 5000, 70000, 2, spread);
        }
    }
}

static tg_tensor *table_gradient(tg_tensor *weight, tg_tensor *index, tg_tensor *g)
{
    tg_tensor *leaf = tg_set_requires_grad(tg_detach(weight), true), *y = tg_embedding(leaf, index), *d = NULL;
    return tg_gradients(&y, 1, &g, &leaf, 1, &d, 0) == TG_OK ? d : NULL;
}

/* The gradient of a table against sums in f64: kernels for packs, and the composed way for 5 columns. */
TEST(embeddings)
{
    const int64_t columns[] = {8, 64, 200, 5};
    for (int k = 0; k < FLOATS; ++k) {
        for (int i = 0; i < 8; ++i) {
            TG_SCOPE;
            const int64_t width = columns[i % 4], n = i < 4 ? 70 : 1000;
            const double tolerance = dtypes[k] == TG_F64 ? 1e-11 : dtypes[k] == TG_F32 ? 1e-4 : 0.2;
            tg_tensor *index = ids(n, 400, i % 2), *w = numbers(TG_SHAPE(400, width), dtypes[k], false);
            tg_tensor *g = tg_mul_scalar(numbers(TG_SHAPE(n, width), dtypes[k], false), 0.125), *y;
            tg_tensor *z = tg_zeros_on(TG_SHAPE(400, width), TG_F64, TG_CPU);
            z = tg_index_add(z, 0, index, tg_to_dtype(g, TG_F64));
            if (i % 3 == 0) index = tg_to_dtype(index, TG_I32);
            y = table_gradient(tg_cuda(w), tg_cuda(index), tg_cuda(g));
            if (!CHECK(same(y, z, tolerance))) printf("    %s, %d columns\n", tg_dtype_name(dtypes[k]), (int)width);
            /* the CPU adds 900 rows to one, each rounded to the dtype */
            CHECK(same(table_gradient(w, index, g), tg_to_dtype(z, dtypes[k]), 5 * tolerance));
            CHECK(same(tg_embedding(tg_cuda(w), tg_cuda(index)), tg_embedding(w, index), 0));
        }
    }
}

/* The kernel that copies rows of a table also checks the indices, and its gradient needs no check.  The first of several
   bad indices is reported, after which nothing is left of it; the rows of bad ones are zeros. */
TEST(indices_of_rows)
{
    static const int64_t widths[] = {8, 3, 1}, counts[] = {1, 70, 5000};
    for (int i = 0; i < 9; ++i) {
        TG_SCOPE;
        const int64_t width = widths[i % 3], n = counts[i / 3], first = n / 2;
        tg_tensor *w = tg_set_requires_grad(tg_ones_on(TG_SHAPE(9, width), TG_F32, TG_CUDA(0)), true), *y, *d, *g;
        tg_tensor *index = tg_zeros_on(TG_SHAPE(n), TG_I64, TG_CPU), *bad;
        char words[96];
        for (int64_t k = 0; k < n; ++k) tg_data_i64(index)[k] = k % 9;
        bad = tg_clone(index);
        tg_data_i64(bad)[first] = -4, tg_data_i64(bad)[n - 1] = 9;
        snprintf(words, sizeof words, "index %d at position %d is outside [0, 9)", n > 2 ? -4 : 9, (int)first);
        index = tg_cuda(i % 2 ? tg_to_dtype(index, TG_I32) : index);
        bad = tg_cuda(i % 2 ? tg_to_dtype(bad, TG_I32) : bad);
        start_counting();
        y = tg_embedding(w, bad);
        CHECK_FAILS(tg_synchronize(TG_CUDA(0)), words);
        if (!CHECK(launched() <= 1)) printf("    %d rows of %d\n", (int)n, (int)width);
        d = tg_cpu(tg_detach(y));
        CHECK(tg_ok() && tg_get(d, TG_INDEX(first, width - 1)) == 0 && tg_get(d, TG_INDEX(n - 1, 0)) == 0);
        CHECK(n < 3 || tg_get(d, TG_INDEX(0, width - 1)) == 1);
        y = tg_embedding(w, index);
        g = tg_ones_like(y);
        CHECK(tg_gradients(&y, 1, &g, &w, 1, &d, 0) == TG_OK && tg_synchronize(TG_CUDA(0)) == TG_OK);
    }
}

/* What the gradient of a table moves, of N ids that are all different: the table is filled with zeros, then a row is
   written for each row of g.  The sort moves less than a tenth of that: for each of the two bytes of an id below COUNT
   it reads the keys, then reads and writes keys and places, 4 bytes each. */
TEST(what_embeddings_move)
{
    enum { N = 2048, COUNT = 4096, WIDTH = 256 };
    for (int k = 0; k < FLOATS; ++k) {
        TG_SCOPE;
        const double size = (double)tg_dtype_size(dtypes[k]), row = WIDTH * size;
        tg_tensor *index = tg_cuda(tg_mul_scalar(tg_arange_on(0, N, 1, TG_I64, TG_CPU), 2)), *d;
        tg_tensor *w = tg_set_requires_grad(tg_zeros_on(TG_SHAPE(COUNT, WIDTH), dtypes[k], TG_CUDA(0)), true), *y;
        tg_tensor *g = tg_ones_on(TG_SHAPE(N, WIDTH), dtypes[k], TG_CUDA(0));
        if (dtypes[k] == TG_F64) continue; /* composed */
        y = tg_embedding(w, index);
        start_counting();
        CHECK(tg_gradients(&y, 1, &g, &w, 1, &d, 0) == TG_OK);
        CHECK(at_most(8, 1.1 * (COUNT + 2 * N) * row));
    }
}

/* Sums at indices sort pairs, of 8 bytes below 2^32, from one place to another, 16 bytes a pair, and need little more.
   The indices of a sort are all different: its gradient sorts nothing. */
TEST(scratch)
{
    TG_SCOPE;
    enum { N = 100000 };
    tg_tensor *index = tg_cuda(tg_randint_on(0, N, TG_SHAPE(N), TG_I64, TG_CPU)), *y, *d;
    tg_tensor *x = tg_ones_on(TG_SHAPE(N), TG_F32, TG_CUDA(0)), *src = tg_randn_on(TG_SHAPE(N), TG_F32, TG_CUDA(0));
    tg_synchronize(TG_CUDA(0));
#ifdef CUDASIM
    cudasim_limit_memory(0, cudasim_live(CUDASIM_DEVICE_BYTES) + (4 + 18) * (size_t)N); /* 4: the result */
#endif
    CHECK(tg_scatter_add(x, 0, index, src) != NULL && tg_synchronize(TG_CUDA(0)) == TG_OK);
#ifdef CUDASIM
    cudasim_limit_memory(0, (size_t)1 << 30);
#endif
    y = tg_sort(tg_set_requires_grad(src, true), 0, false, NULL);
    start_counting();
    CHECK(tg_gradients(&y, 1, &x, &src, 1, &d, 0) == TG_OK);
    CHECK(at_most(3, 1.02 * (4 + 8 + 16) * N)); /* zeros; a check of the indices; g, indices and the result */
    CHECK(tg_equal(d, x));
}

/* Views that hold an element several times: their gradients are added up, many of them to one element. */
TEST(sums_over_views)
{
    for (int k = 0; k < FLOATS; ++k) {
        TG_SCOPE;
        tg_tensor *g = numbers(TG_SHAPE(101, 100), TG_F64, false), *x[2], *y, *d[2] = {NULL, NULL};
        for (int side = 0; side < 2; ++side) {
            x[side] = tg_zeros_on(TG_SHAPE(200), side ? dtypes[k] : TG_F64, side ? TG_CUDA(0) : TG_CPU);
            x[side] = tg_set_requires_grad(x[side], true);
            y = tg_unfold(x[side], 0, 100, 1);
            tg_tensor *of_y = tg_to_ex(tg_mul_scalar(g, 0.125), tg_device_of(y), tg_dtype_of(y), 0);
            CHECK(tg_gradients(&y, 1, &of_y, &x[side], 1, &d[side], 0) == TG_OK);
        }
        CHECK(same(d[1], d[0], dtypes[k] == TG_F64 ? 1e-11 : dtypes[k] == TG_F32 ? 1e-4 : 0.2));
    }
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    if (harness_has_no_gpu()) return 0;
    inside_plain(true); /* what the CPU computes here is the oracle */
    RUN(reductions);
    RUN(long_sums_are_accurate);
    RUN(extremes_with_nan);
    RUN(scans_and_extremes);
    RUN(sorts);
    RUN(searches);
    RUN(sums_at_indices);
    RUN(embeddings);
    RUN(indices_of_rows);
    RUN(what_embeddings_move);
    RUN(scratch);
    RUN(sums_over_views);
    printf("bits %016llx\n", (unsigned long long)bits);
    tg_shutdown();
    return harness_end();
}
