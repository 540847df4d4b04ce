/* Matrix products, linear, convolutions, max_pool and transposed copies of sizes that cross the blocks of the CPU's
 * kernels, against the plain backend.  All numbers are small integers, whose sums a float holds exactly: a result is
 * right to the last bit or wrong.  Convolutions are compared with the ops that stand in for them, too. */
#include "tensorgrad.h"
#include "helpers.h"

/* Integers from -3 to 3. */
static tg_tensor *integers(tg_shape shape, tg_dtype dtype)
{
    return tg_to_dtype(tg_floor(tg_add_scalar(tg_mul_scalar(tg_rand_on(shape, TG_F32, HERE), 7), -3)), dtype);
}

/* t [rows, cols], or the transposed view of a tensor [cols, rows] */
static tg_tensor *matrix(int64_t rows, int64_t cols, bool transposed, tg_dtype dtype)
{
    return transposed ? tg_t(integers(TG_SHAPE(cols, rows), dtype)) : integers(TG_SHAPE(rows, cols), dtype);
}

static float *values_of(tg_tensor *t)
{
    const size_t bytes = (size_t)tg_numel(t) * sizeof(float);
    float *values = (float *)malloc(bytes + 1);
    if (!values || tg_copy_out(tg_to_dtype(tg_detach(t), TG_F32), values, bytes) != TG_OK) abort();
    return values;
}

/* a times b, by the plain backend. */
static tg_tensor *plain_product(tg_tensor *a, tg_tensor *b)
{
    oracle_begin();
    tg_tensor *y = tg_matmul(copy_here(a), copy_here(b));
    oracle_end();
    return y;
}

/* Whether the plain backend would take long for such a product. */
static bool is_long(bool plain, int64_t m, int64_t n, int64_t k) { return plain && m * n * k > 1 << 20; }

TEST(products)
{
    const bool plain = harness_skips_plain("products of more than 2^20 terms");
    static const int64_t size[][3] = {{1, 1, 1},      {5, 3, 2},       {6, 16, 1024},   {7, 17, 1025}, {97, 33, 2049},
                                      {1, 1025, 3},   {1025, 1, 5},    {4099, 1, 3},    {1, 4099, 70}, {1537, 31, 9},
                                      {193, 1030, 4}, {13, 1040, 1601}, {1600, 12, 1030}, {64, 100, 0},
                                      {100, 100, 100}, {32, 301, 140}, {16, 515, 390},  {31, 100, 800},
                                      {48, 1027, 9},  {90, 70, 500},  {65, 130, 1024}, {128, 97, 1024},
                                      {160, 48, 512}, {161, 40, 512}, {143, 33, 7},  {70, 7, 20},   {27, 20, 33},
                                      {14, 8, 3},     {130, 40, 64},  {40, 1056, 300}, {81, 1040, 140},
                                      {1030, 1, 16},  {515, 1, 21},    {1, 519, 63},    {77, 1, 64},   {131, 1, 65}};
    for (size_t i = 0; i < sizeof size / sizeof *size; ++i) {
        TG_SCOPE;
        if (is_long(plain, size[i][0], size[i][1], size[i][2])) continue;
        tg_tensor *a = integers(TG_SHAPE(size[i][0], size[i][2]), TG_F64);
        tg_tensor *b = integers(TG_SHAPE(size[i][2], size[i][1]), TG_F64), *wanted = plain_product(a, b);
        for (int how = 0; how < 8; ++how) {
            tg_tensor *x = tg_to_dtype(a, how < 4 ? TG_F32 : TG_F64), *y = tg_to_dtype(b, how < 4 ? TG_F32 : TG_F64);
            if (how & 1) x = tg_t(tg_contiguous(tg_t(x)));
            if (how & 2) y = tg_t(tg_contiguous(tg_t(y)));
            CHECK(is_exactly(tg_matmul(x, y), wanted));
        }
    }
    for (int type = 0; type < 2; ++type) { /* steps that are neither 1 nor those of a whole row */
        TG_SCOPE;
        tg_tensor *a = tg_slice(integers(TG_SHAPE(90, 300), type ? TG_F64 : TG_F32), 1, 0, 300, 3);
        tg_tensor *b = tg_slice(integers(TG_SHAPE(100, 400), type ? TG_F64 : TG_F32), 1, 0, 400, 5);
        CHECK(is_exactly(tg_matmul(a, b), plain_product(a, b)));
    }
}

/* Few rows times a weight, and a weight times few columns: each of 1 to 17, where the last are too many; in each dtype
   and layout, batched, from places that are and are not those of a vector.  Behind the elements of a view of the weight
   are NaNs, which no sum may contain.  A product of halves and its bias are rounded once; on the plain backend, and on
   a device by the layout, twice. */
TEST(few_rows)
{
    static const tg_dtype dtypes[] = {TG_F32, TG_BF16, TG_F16, TG_F64};
    static const int64_t size[][3] = {{1, 70, 530}, {3, 1, 64},   {2, 9, 300},  {1, 1030, 19},
                                      {2, 300, 35}, {1, 64, 128}, {1, 23, 4143}, {1, 1030, 16}, {2, 301, 21}};
    const bool plain = strcmp(tg_cpu_capability(), "plain") == 0;
    for (int64_t i = 0; i < 4 * 17 * 9; ++i) {
        const int64_t *const s = size[i % 9], batch = s[0], n = s[1], k = s[2], rows = 1 + i / 9 % 17;
        const tg_dtype dtype = dtypes[i / 9 / 17];
        TG_SCOPE;
        tg_tensor *x = integers(TG_SHAPE(batch, rows, k), dtype), *w = integers(TG_SHAPE(batch, k, n), dtype);
        tg_tensor *bias = integers(TG_SHAPE(n), dtype), *wanted = plain_product(x, w);
        tg_tensor *bias_apart = tg_slice(tg_repeat_interleave(bias, 2, 0), 0, 0, 2 * n, 2);
        oracle_begin();
        tg_tensor *twice = tg_add(tg_select(wanted, 0, 0), copy_here(bias));
        tg_tensor *product = tg_matmul(tg_to_dtype(copy_here(x), TG_F64), tg_to_dtype(copy_here(w), TG_F64));
        tg_tensor *once = tg_to_dtype(tg_add(tg_select(product, 0, 0), tg_to_dtype(copy_here(bias), TG_F64)), dtype);
        oracle_end();
        for (int how = 0; how < 6; ++how) {
            const bool turned = how % 2, apart = how / 2 == 1, strided = how / 2 == 2;
            const int64_t ahead = how % 3, height = k + ahead + 5, width = n + ahead + 5;
            tg_tensor *all = tg_full_on(turned ? TG_SHAPE(batch, width, height) : TG_SHAPE(batch, height, width),
                                        (double)NAN, dtype, HERE);
            tg_tensor *part = turned ? tg_transpose(all, 1, 2) : all, *in = x;
            part = tg_narrow(tg_narrow(part, 1, ahead, k), 2, ahead, n);
            tg_copy_(part, w);
            if (!apart) part = turned ? tg_transpose(tg_contiguous(tg_transpose(w, 1, 2)), 1, 2) : w;
            if (strided) in = tg_slice(tg_repeat_interleave(x, 2, 2), 2, 0, 2 * k, 2);
            CHECK(is_exactly(tg_matmul(in, part), wanted));
            tg_tensor *columns = tg_matmul(tg_transpose(part, 1, 2), tg_transpose(in, 1, 2));
            CHECK(is_exactly(columns, tg_transpose(wanted, 1, 2)));
            if (batch == 1) {
                tg_tensor *y = tg_linear(tg_select(in, 0, 0), tg_t(tg_select(part, 0, 0)), apart ? bias_apart : bias);
                const bool exact = is_exactly(y, plain ? twice : once);
                CHECK(exact || (HERE.type != TG_DEV_CPU && is_exactly(y, twice)));
            }
        }
    }
}

/* More rows times a weight that is read once, since it is large: 48 rows, and one more; a part of a weight, too.  The
   last k is one of whole tiles of bf16, which are read where they lie. */
TEST(rows_and_large_weights)
{
    static const tg_dtype dtypes[] = {TG_F32, TG_F16, TG_F64, TG_BF16, TG_BF16};
    static const int64_t rows[] = {17, 31, 48, 49};
    if (harness_skips_plain("rows_and_large_weights")) return;
    for (int i = 0; i < 20; ++i) {
        TG_SCOPE;
        const int64_t n = dtypes[i / 4] == TG_F64 ? 530 : 1070, k = i < 16 ? 523 : 544;
        tg_tensor *x = integers(TG_SHAPE(rows[i % 4], k), dtypes[i / 4]);
        tg_tensor *all = integers(TG_SHAPE(k, n + 3), dtypes[i / 4]);
        tg_tensor *part = tg_narrow(all, 1, 2, n), *w = tg_contiguous(part);
        tg_tensor *wanted = tg_to_dtype(plain_product(tg_to_dtype(x, TG_F64), tg_to_dtype(w, TG_F64)), dtypes[i / 4]);
        CHECK(is_exactly(tg_matmul(x, w), wanted) && is_exactly(tg_matmul(x, part), wanted));
        CHECK(is_exactly(tg_matmul(x, tg_t(tg_contiguous(tg_t(w)))), wanted));
        CHECK(is_exactly(tg_matmul(tg_t(w), tg_t(x)), tg_t(wanted)));
    }
}

/* t, of which every other number in memory is one of another tensor. */
static tg_tensor *with_gaps(tg_tensor *t)
{
    return tg_select(tg_stack(TG_LIST(t, tg_ones_like(t)), 2), 2, 0);
}

/* Distances of the rows of one tensor, of which those below the diagonal are copies, and of two equal ones. */
TEST(distances_of_one_tensor)
{
    static const int64_t rows[] = {1, 6, 31, 33, 64, 100, 230};
    for (int i = 0; i < 7 * 4; ++i) {
        TG_SCOPE;
        const int p = i / 2 % 2 + 1;
        tg_tensor *x = tg_to_dtype(tg_randn_on(TG_SHAPE(2, rows[i / 4], 9), TG_F32, HERE), i % 2 ? TG_F64 : TG_F32);
        CHECK(is_exactly(tg_cdist(x, x, p), tg_cdist(x, tg_clone(x), p)));
    }
}

/* Of integers, whose products and sums wrap around. */
TEST(integer_products)
{
    static const tg_dtype dtypes[] = {TG_I64, TG_I32, TG_U8, TG_I8, TG_I16};
    static const int64_t size[][3] = {{1, 1, 1}, {1, 40, 9}, {40, 1, 9}, {15, 17, 0}, {29, 35, 387}, {130, 20, 11},
                                      {1, 1, 700}, {1, 1030, 6}, {1030, 3, 7}, {4, 4, 33},
                                      {33, 40, 4}, {520, 33, 3}};
    const int64_t rows = sizeof size / sizeof *size;
    for (int64_t i = 0; i < 5 * 4 * rows; ++i) {
        TG_SCOPE;
        const int64_t *const s = size[i % rows], m = s[0], n = s[1], k = s[2], how = i / rows % 4;
        const bool turned[2] = {how % 2 != 0, how / 2 != 0};
        const tg_shape shape[2] = {turned[0] ? TG_SHAPE(k, m) : TG_SHAPE(m, k),
                                   turned[1] ? TG_SHAPE(n, k) : TG_SHAPE(k, n)};
        const tg_dtype dtype = dtypes[i / rows / 4];
        tg_tensor *in[2];
        for (int side = 0; side < 2; ++side) {
            tg_tensor *t = tg_randint_on(-(1LL << 53), 1LL << 53, shape[side], TG_I64, HERE);
            t = tg_mul(t, t); /* has all 64 bits */
            in[side] = tg_to_dtype(turned[side] ? tg_t(t) : t, dtype);
        }
        tg_tensor *wanted = plain_product(in[0], in[1]);
        CHECK(is_exactly(tg_matmul(in[0], in[1]), wanted));
        CHECK(is_exactly(tg_matmul(with_gaps(in[0]), in[1]), wanted));
        CHECK(is_exactly(tg_matmul(in[0], with_gaps(in[1])), wanted));
        CHECK(is_exactly(tg_matmul(with_gaps(in[0]), with_gaps(in[1])), wanted));
        tg_tensor *batch = tg_matmul(tg_stack(TG_LIST(tg_zeros_like(in[0]), in[0]), 0), in[1]); /* [2, m, n] */
        CHECK(is_exactly(tg_contiguous(tg_select(batch, 0, 1)), wanted));
        batch = tg_matmul(tg_stack(TG_LIST(tg_zeros_like(in[0]), in[0]), 0), tg_stack(TG_LIST(in[1], in[1]), 0));
        CHECK(is_exactly(tg_contiguous(tg_select(batch, 0, 1)), wanted));
    }
}

/* Integers, of which the products in f32 are exact, and other numbers, of which the error may be one of bf16; in all
   layouts, from places that are and are not those of a float. */
static void check_bf16_products(bool plain)
{
    static const int64_t size[][3] = {{1, 1, 1},    {15, 33, 2},    {14, 32, 2048}, {40, 65, 2049}, {3, 40, 4097},
                                      {97, 31, 66}, {130, 1030, 5}, {28, 64, 0},   {1, 77, 300},  {77, 1, 301}};
    for (size_t i = 0; i < 4 * sizeof size / sizeof *size; ++i) {
        TG_SCOPE;
        const int64_t m = size[i / 4][0], n = size[i / 4][1], k = size[i / 4][2];
        if (is_long(plain, m, n, k)) continue;
        tg_tensor *a = matrix(m, k + 3, i & 1, TG_BF16), *b = matrix(k + 3, n, (i & 2) != 0, TG_BF16);
        for (int64_t from = 0; from < 3; ++from) {
            tg_tensor *x = tg_narrow(a, 1, from, k), *y = tg_narrow(b, 0, from, k), *wide[2];
            wide[0] = tg_to_dtype(x, TG_F32), wide[1] = tg_to_dtype(y, TG_F32);
            CHECK(tg_equal(tg_matmul(x, y), tg_to_dtype(tg_matmul(wide[0], wide[1]), TG_BF16)));
        }
        a = tg_sin(tg_mul_scalar(a, 0.7)), b = tg_exp(b);
        tg_tensor *product = tg_matmul(a, b), *x = tg_to_dtype(a, TG_F64), *y = tg_to_dtype(b, TG_F64);
        tg_tensor *error = tg_abs(tg_sub(tg_to_dtype(product, TG_F64), tg_matmul(x, y)));
        tg_tensor *bound = tg_add(tg_mul_scalar(tg_abs(tg_matmul(x, y)), 1.0 / 256), /* half a unit in the last place */
                                  tg_mul_scalar(tg_matmul(tg_abs(x), tg_abs(y)), 1e-5));
        CHECK(tg_item(tg_all(tg_le(error, bound))) == 1);
    }
}

/* By each way that the processor has. */
TEST(bf16_products)
{
    static const char *const name[] = {"in f32", "by the instruction for pairs (AVX512_BF16)", "by tiles (AMX)"};
    const bool on_cpu = tg_device_equal(HERE, TG_CPU);
    const bool plain = harness_skips_plain("bf16_products by instructions for bf16");
    for (int way = 0; way < (plain ? 1 : (int)INSIDE_BF16_WAYS); ++way) {
        TG_SCOPE;
        const bool flushes = inside_bf16_way(way);
        if (way > 0 && !flushes) {
            printf("skipped: bf16_products %s (not on this processor and system, or not under TG_SIMD)\n", name[way]);
            continue;
        }
        check_bf16_products(plain);
        tg_tensor *x = of(TG_BF16, "[[2, 2, 2, 2, nan], [2, -inf, 2, 2, 2], [-inf, inf, 2, 2, 2], [2, 2, 2, 2, 2]]");
        tg_tensor *ones = tg_ones_like(tg_t(x));
        HAS(tg_select(tg_matmul(x, ones), 1, 3), "[nan, -inf, nan, 10]");
        tg_tensor *tiny = tg_full_like(x, ldexp(1, -130)), *large = tg_full_like(ones, ldexp(1, 120));
        if (on_cpu) CHECK(tg_item(tg_max(tg_matmul(tiny, large))) == 5 * ldexp(1, -10)); /* few rows: in f32 */
        tiny = tg_repeat(tiny, TG_SHAPE(10, 8)), large = tg_repeat(large, TG_SHAPE(8, 10));
        if (on_cpu) CHECK(tg_item(tg_max(tg_matmul(tiny, large))) == (flushes ? 0 : 40 * ldexp(1, -10)));
    }
    inside_bf16_way(-1);
}

/* in: x [m, k], w [n, k], a bias [n], the gradient of the output [m, n]; result: y = x w^T + bias and the gradients of
   the first three, in bf16.  Computed in bf16, or all in f32 and then rounded. */
static void linear_and_gradients(tg_tensor *const *in, bool in_f32, tg_tensor **result)
{
    tg_tensor *leaf[3];
    for (int i = 0; i < 3; ++i)
        leaf[i] = tg_set_requires_grad(in_f32 ? tg_to_dtype(in[i], TG_F32) : tg_detach(in[i]), true);
    tg_tensor *y = tg_linear(leaf[0], leaf[1], leaf[2]);
    CHECK(backward_with(y, in_f32 ? tg_to_dtype(in[3], TG_F32) : in[3], 0) == TG_OK);
    result[0] = tg_to_dtype(tg_detach(y), TG_BF16);
    for (int i = 0; i < 3; ++i) result[1 + i] = tg_to_dtype(tg_grad(leaf[i]), TG_BF16);
}

/* Products of bf16 of whole tiles and of parts of them, of operands that are read where they lie and that are not, in
   one slice of k and in several, with a bias, and the gradients; and in batches.  They are exact in f32 and rounded
   once, on one thread as on two. */
TEST(bf16_tiles)
{
    static const int64_t size[][3] = {{32, 32, 32},   {64, 96, 96},  {96, 65, 160},  {33, 31, 33},   {70, 130, 1100},
                                      {64, 64, 2080}, {200, 40, 96}, {40, 1100, 64}, {1600, 34, 32}, {20, 96, 96}};
    if (!tg_device_equal(HERE, TG_CPU) || harness_skips_plain("bf16_tiles")) return;
    for (size_t i = 0; i < 8 * sizeof size / sizeof *size; ++i) {
        TG_SCOPE;
        const int64_t m = size[i / 8][0], n = size[i / 8][1], k = size[i / 8][2];
        tg_tensor *const in[4] = {matrix(m, k, i & 1, TG_BF16), matrix(n, k, (i & 2) != 0, TG_BF16),
                                  integers(TG_SHAPE(n), TG_BF16), matrix(m, n, (i & 4) != 0, TG_BF16)};
        tg_tensor *result[4], *wanted[4];
        linear_and_gradients(in, true, wanted);
        for (int threads = 1; threads <= 2; ++threads) {
            tg_set_num_threads(threads);
            linear_and_gradients(in, false, result);
            for (int j = 0; j < 4; ++j) CHECK(is_exactly(result[j], wanted[j]));
        }
        tg_set_num_threads(0);
        if (m * n * k > 1 << 20) continue;
        tg_tensor *x = integers(TG_SHAPE(3, m, k), TG_BF16), *w = integers(TG_SHAPE(3, k, n), TG_BF16);
        tg_tensor *wide = tg_matmul(tg_to_dtype(x, TG_F32), tg_to_dtype(w, TG_F32));
        CHECK(is_exactly(tg_matmul(x, w), tg_to_dtype(wide, TG_BF16)));
        CHECK(is_exactly(tg_matmul(tg_transpose(w, 1, 2), tg_transpose(x, 1, 2)),
                         tg_to_dtype(tg_transpose(wide, 1, 2), TG_BF16)));
    }
}

/* Convolutions of bf16 and f16 to few maps, and their gradients, are those of f32, rounded once: depthwise ones, in
   three groups and in one, of images that lie by rows and that do not.  So are those to many where the processor has no
   tiles of bf16. */
TEST(convolutions_of_halves)
{
    if (!tg_device_equal(HERE, TG_CPU) || harness_skips_plain("convolutions_of_halves")) return;
    for (int i = 0; i < 52; ++i) {
        TG_SCOPE;
        if (i == 48) inside_bf16_way(INSIDE_BF16_IN_F32);
        const tg_dtype half = i & 1 ? TG_BF16 : TG_F16, dtypes[2] = {half, TG_F32};
        const int64_t maps = i >= 48 ? 96 : i & 2 ? 24 : 12, stride = i & 4 ? 2 : 1;
        const int64_t groups = i < 16 ? 12 : i < 32 ? 3 : 1;
        tg_tensor *const x = tg_mul_scalar(integers(TG_SHAPE(2, 12, 11, 13), half), 0.37);
        tg_tensor *const w = tg_mul_scalar(integers(TG_SHAPE(maps, 12 / groups, 3, 3), half), 0.61);
        tg_tensor *const in[3] = {i & 8 ? tg_contiguous(tg_transpose(x, 1, 3)) : x, w, integers(TG_SHAPE(maps), half)};
        tg_tensor *const g = integers(TG_SHAPE(2, maps, stride == 1 ? 11 : 6, stride == 1 ? 13 : 7), half);
        tg_tensor *result[2][4];
        for (int wide = 0; wide < 2; ++wide) {
            tg_tensor *leaf[3];
            for (int k = 0; k < 3; ++k)
                leaf[k] = tg_set_requires_grad(tg_mul_scalar(tg_to_dtype(in[k], dtypes[wide]), 1), true);
            tg_tensor *y = tg_conv2d(i & 8 ? tg_transpose(leaf[0], 1, 3) : leaf[0], leaf[1], leaf[2],
                                     TG_SHAPE(stride, stride), TG_SHAPE(1, 1), TG_SHAPE(1, 1), groups);
            CHECK(backward_with(y, tg_to_dtype(g, dtypes[wide]), 0) == TG_OK);
            result[wide][3] = tg_to_dtype(tg_detach(y), half);
            for (int k = 0; k < 3; ++k) result[wide][k] = tg_to_dtype(tg_grad(leaf[k]), half);
        }
        for (int k = 0; k < 4; ++k) CHECK(is_exactly(result[0][k], result[1][k]));
    }
    inside_bf16_way(-1);
}

/* x as a whole, every second row of it, and with its outer dims exchanged: rows that are one product, or several. */
TEST(linears)
{
    static const int64_t size[][4] = {{3, 5, 7, 4}, {2, 40, 400, 33}, {1, 1, 20, 600}, {1, 300, 1, 1}, {5, 1, 17, 16},
                                      {4, 8, 130, 200}, {1, 16, 400, 77}};
    for (size_t i = 0; i < sizeof size / sizeof *size; ++i) {
        for (int how = 0; how < 6; ++how) {
            TG_SCOPE;
            const int64_t *const s = size[i];
            tg_tensor *x = integers(TG_SHAPE(s[0], 2 * s[1], s[2]), TG_F32), *w = integers(TG_SHAPE(s[3], s[2]), TG_F32);
            tg_tensor *bias = how & 1 ? integers(TG_SHAPE(s[3]), TG_F32) : NULL;
            if (how / 2 == 1) x = tg_slice(x, 1, 0, 2 * s[1], 2);
            if (how / 2 == 2) x = tg_transpose(x, 0, 1);
            oracle_begin();
            tg_tensor *wanted = tg_linear(copy_here(x), copy_here(w), copy_here(bias));
            oracle_end();
            CHECK(is_exactly(tg_linear(x, w, bias), wanted));
        }
    }
}

static tg_tensor *hooked[8]; /* what the hook of a weight was called with */
static int hooks;
static tg_tensor *keep_grad(tg_tensor *g, void *user)
{
    (void)user;
    if (hooks < 8) hooked[hooks] = tg_retain(g);
    ++hooks;
    return NULL;
}

/* A weight that several products share gets the sum of their gradients, a product that is added in place: of a leaf,
   and of a tensor with a history and a hook; the same with a graph, which adds nothing in place. */
TEST(shared_weights)
{
    enum { USES = 4, ROWS = 7, IN = 1100, OUT = 33 };
    for (int how = 0; how < 24; ++how) {
        TG_SCOPE;
        const tg_dtype dtype = how % 3 == 0 ? TG_F32 : how % 3 == 1 ? TG_F64 : TG_BF16;
        const bool leaf = how / 3 % 2, turned = how / 6 % 2, graph = how / 12 % 2;
        tg_tensor *start = integers(turned ? TG_SHAPE(IN, OUT) : TG_SHAPE(OUT, IN), dtype), *loss = NULL, *sum = NULL;
        tg_set_requires_grad(start, true);
        tg_tensor *w = leaf ? start : tg_mul_scalar(start, 1), *result = NULL;
        hooks = 0;
        CHECK(tg_hook(w, keep_grad, NULL) > 0);
        for (int t = 0; t < USES; ++t) {
            tg_tensor *x = integers(TG_SHAPE(ROWS, IN), dtype), *g = integers(TG_SHAPE(ROWS, OUT), dtype);
            tg_tensor *y = turned ? tg_matmul(x, w) : tg_linear(x, w, NULL);
            tg_tensor *part = tg_sum(tg_mul(y, g)), *dw = turned ? tg_matmul(tg_t(x), g) : tg_matmul(tg_t(g), x);
            loss = loss ? tg_add(loss, part) : part;
            sum = sum ? tg_add(sum, dw) : dw;
        }
        CHECK(tg_gradients(&loss, 1, NULL, &start, 1, &result, graph ? TG_CREATE_GRAPH : TG_RETAIN_GRAPH) == TG_OK);
        CHECK(result && tg_equal(tg_detach(result), sum));
        CHECK(hooks == 1 && tg_equal(tg_detach(hooked[0]), sum));
        CHECK(tg_backward(loss) == TG_OK && tg_equal(tg_grad(start), sum));
        for (int i = 0; i < hooks && i < 8; ++i) tg_release(hooked[i]);
    }
}

/* result [5] = the convolution, its gradients with respect to in [3], which are x, w and bias, for a gradient of
   integers, and the transposed convolution of its values */
enum { CONVOLVED = 5 };
static bool convolve(tg_tensor *const *in, const int *p, tg_tensor **result)
{
    const tg_shape stride = TG_SHAPE(p[0]), padding = TG_SHAPE(p[1]), dilation = TG_SHAPE(p[2]);
    tg_tensor *x = in[0], *w = in[1], *bias = in[2];
    const int dims = tg_ndim(x) - 2;
    tg_tensor *y = dims == 1   ? tg_conv1d(x, w, bias, stride, padding, dilation, p[3])
                   : dims == 2 ? tg_conv2d(x, w, bias, stride, padding, dilation, p[3])
                               : tg_conv3d(x, w, bias, stride, padding, dilation, p[3]);
    tg_seed(7);
    tg_tensor *g = y ? integers(tg_shape_of(y), tg_dtype_of(x)) : NULL;
    result[0] = y;
    if (!g || tg_gradients(&y, 1, &g, in, 3, result + 1, 0) != TG_OK) return false;
    const tg_shape more = TG_SHAPE(0);
    bias = integers(TG_SHAPE(tg_dim(x, 1)), tg_dtype_of(x));
    result[4] = dims == 1   ? tg_conv_transpose1d(g, w, bias, stride, padding, more, p[3], dilation)
                : dims == 2 ? tg_conv_transpose2d(g, w, bias, stride, padding, more, p[3], dilation)
                            : tg_conv_transpose3d(g, w, bias, stride, padding, more, p[3], dilation);
    return result[4] != NULL;
}

TEST(convolutions)
{
    static const struct { int ndim, x[5], w[5], p[4]; } row[] = {/* p: stride, padding, dilation, groups */
        {4, {3, 5, 20, 20}, {7, 5, 3, 3}, {1, 1, 1, 1}},      {4, {2, 50, 13, 40}, {20, 50, 3, 3}, {1, 1, 1, 1}},
        {4, {2, 6, 30, 31}, {4, 6, 5, 4}, {2, 3, 1, 1}},      {4, {2, 8, 20, 30}, {12, 2, 3, 3}, {1, 2, 2, 4}},
        {4, {1, 4, 12, 12}, {5, 4, 1, 1}, {1, 0, 1, 1}},      {4, {2, 4, 12, 13}, {3, 4, 2, 3}, {1, 7, 1, 1}},
        {4, {2, 4, 20, 2}, {3, 4, 3, 1}, {1, 6, 1, 1}},       {4, {1, 70, 12, 12}, {9, 70, 3, 3}, {1, 1, 1, 1}},
        {3, {4, 5, 700}, {6, 5, 9}, {1, 4, 1, 1}},            {3, {2, 4, 999}, {8, 2, 7}, {3, 2, 4, 2}},
        {5, {2, 4, 6, 7, 8}, {5, 4, 3, 2, 3}, {1, 1, 1, 1}},  {5, {1, 4, 9, 10, 11}, {4, 4, 3, 3, 3}, {2, 2, 2, 1}},
        {4, {2, 16, 15, 17}, {48, 16, 3, 3}, {1, 1, 1, 1}},   {4, {2, 10, 14, 14}, {34, 5, 3, 3}, {1, 1, 1, 2}},
        {4, {1, 4, 300, 300}, {1, 4, 2, 2}, {1, 150, 299, 1}},
        {4, {3, 6, 20, 21}, {6, 1, 3, 3}, {1, 1, 1, 6}},      {4, {2, 5, 19, 24}, {10, 1, 5, 4}, {2, 2, 1, 5}},
        {4, {2, 8, 13, 40}, {4, 4, 3, 3}, {3, 1, 2, 2}},      {3, {2, 6, 77}, {6, 1, 9}, {4, 3, 1, 6}},
        {5, {2, 3, 6, 7, 9}, {3, 1, 3, 2, 3}, {2, 1, 1, 3}},  {4, {1, 4, 3, 4}, {4, 1, 3, 3}, {1, 0, 1, 4}},
        {4, {2, 3, 15, 17}, {3, 1, 2, 2}, {3, 0, 1, 3}},      {4, {1, 40, 7, 8}, {140, 20, 3, 3}, {2, 1, 1, 2}},
        {4, {2, 128, 4, 5}, {256, 128, 3, 3}, {1, 1, 1, 1}},  {5, {2, 2, 6, 20, 21}, {3, 2, 3, 3, 3}, {1, 1, 1, 1}},
        {5, {1, 4, 4, 40, 50}, {4, 2, 2, 3, 2}, {2, 2, 1, 2}},
        /* tiles of four windows: strips of 2 to 16 tiles and parts of one of 120; odd sizes, many channels, cropped */
        {4, {18, 20, 4, 4}, {130, 20, 3, 3}, {1, 1, 1, 1}},   {4, {5, 17, 8, 8}, {70, 17, 3, 3}, {1, 1, 1, 1}},
        {4, {2, 80, 15, 16}, {70, 40, 3, 3}, {1, 1, 1, 2}},   {4, {1, 16, 9, 241}, {16, 16, 3, 3}, {1, 0, 1, 1}},
        {4, {1, 270, 17, 19}, {24, 270, 3, 3}, {1, 3, 1, 1}}, {4, {2, 33, 33, 31}, {16, 33, 3, 3}, {1, 2, 1, 1}}};
    if (harness_skips_plain("convolutions: the fused ones against those composed")) return;
    for (size_t i = 0; i < sizeof row / sizeof *row; ++i) {
        for (int strided = 0; strided < 2; ++strided) {
            TG_SCOPE;
            int64_t x_dim[5], w_dim[5];
            tg_tensor *fused[CONVOLVED], *composed[CONVOLVED], *plain[CONVOLVED];
            for (int d = 0; d < row[i].ndim; ++d) x_dim[d] = row[i].x[d], w_dim[d] = row[i].w[d];
            tg_tensor *x = integers(tg_make_shape(row[i].ndim, x_dim), TG_F32);
            if (strided) x = tg_transpose(tg_contiguous(tg_transpose(x, 1, -1)), 1, -1);
            tg_tensor *w = integers(tg_make_shape(row[i].ndim, w_dim), TG_F32);
            tg_tensor *bias = integers(TG_SHAPE(w_dim[0], 2), TG_F32), *in[3] = {x, w, tg_select(bias, 1, strided)};
            tg_tensor *wide[3];
            if (!strided) in[2] = tg_contiguous(in[2]);
            for (int k = 0; k < 3; ++k) tg_set_requires_grad(in[k], true);
            CHECK(convolve(in, row[i].p, fused));
            inside_compose(true);
            CHECK(convolve(in, row[i].p, composed));
            inside_compose(false);
            for (int k = 0; k < CONVOLVED; ++k) CHECK(tg_equal(tg_detach(fused[k]), tg_detach(composed[k])));
            for (int k = 0; k < 3; ++k) wide[k] = tg_set_requires_grad(tg_to_dtype(tg_detach(in[k]), TG_F64), true);
            CHECK(convolve(wide, row[i].p, composed)); /* f64 is composed on the CPU */
            for (int k = 0; k < CONVOLVED; ++k)
                CHECK(tg_equal(tg_to_dtype(tg_detach(fused[k]), TG_F64), tg_detach(composed[k])));
            if (strided) continue; /* has cost the oracle once already */
            oracle_begin();
            for (int k = 0; k < 3; ++k) in[k] = tg_set_requires_grad(copy_here(in[k]), true);
            CHECK(convolve(in, row[i].p, plain));
            oracle_end();
            for (int k = 0; k < CONVOLVED; ++k) CHECK(is_exactly(fused[k], plain[k]));
        }
    }
}

/* Of a convolution by tiles of windows, an infinity or a NaN makes the results that a loop over the windows makes of it,
   and no others: those beside it keep their bits.  So do numbers that overflow on the way.  Of a number that is large,
   but not so large, results have its rounding error, times 7. */
TEST(convolutions_beyond)
{
    enum { N = 2, C = 34, O = 40, SIDE = 16, PLACE = 5 * SIDE + 7 };
    const float number[] = {(float)INFINITY, -(float)INFINITY, (float)NAN, 3e38f, 1e30f};
    if (harness_skips_plain("convolutions_beyond")) return;
    for (int i = 0; i < 5; ++i) {
        for (int which = 0; which < 2; ++which) { /* an element of x or of w is this number */
            TG_SCOPE;
            const tg_shape shape[2] = {TG_SHAPE(N, C, SIDE, SIDE), TG_SHAPE(O, C, 3, 3)};
            tg_tensor *in[2], *y[2], *g[2][2];
            for (int k = 0; k < 2; ++k) in[k] = tg_add_scalar(integers(shape[k], TG_F32), 4); /* 1 to 7 */
            tg_tensor *element = tg_narrow(tg_flatten(in[which], 0, -1), 0, which ? 4 : PLACE, 1);
            tg_fill_(element, number[i]);
            for (int k = 0; k < 2; ++k) tg_set_requires_grad(in[k], true);
            tg_tensor *slope = tg_add_scalar(integers(TG_SHAPE(N, O, SIDE, SIDE), TG_F32), 4);
            for (int slow = 0; slow < 2; ++slow) {
                inside_compose(slow);
                y[slow] = tg_conv2d(in[0], in[1], NULL, TG_SHAPE(1), TG_SHAPE(1), TG_SHAPE(1), 1);
                CHECK(tg_gradients(&y[slow], 1, &slope, in, 2, g[slow], 0) == TG_OK);
                inside_compose(false);
            }
            for (int k = 0; k < 3; ++k) {
                tg_tensor *fast = k < 2 ? g[0][k] : tg_detach(y[0]), *exact = k < 2 ? g[1][k] : tg_detach(y[1]);
                tg_tensor *where = tg_isnan(exact);
                CHECK(is_exactly(tg_isnan(fast), where));
                fast = tg_masked_fill(fast, where, 0), exact = tg_masked_fill(exact, where, 0);
                CHECK(i < 4 ? is_exactly(fast, exact) : tg_allclose(fast, exact, 0, 7e-6 * number[i]));
            }
        }
    }
}

/* result [3] = the values of the pool, its indices, and its gradient for a gradient of integers; returns how many
   values there are */
static int64_t pool(tg_tensor *x, const int *p, float **result)
{
    tg_tensor *index = NULL, *g = NULL;
    const tg_shape kernel = TG_SHAPE(p[0], p[1]), stride = TG_SHAPE(p[2], p[3]), padding = TG_SHAPE(p[4], p[5]);
    tg_tensor *y = tg_max_pool2d_ex(x, kernel, stride, padding, TG_SHAPE(p[6], p[7]), p[8] != 0, &index);
    tg_seed(7);
    tg_tensor *gradient = y ? integers(tg_shape_of(y), tg_dtype_of(x)) : NULL;
    CHECK(y && tg_gradients(&y, 1, &gradient, &x, 1, &g, 0) == TG_OK);
    tg_tensor *const value[3] = {y, index, g};
    for (int k = 0; k < 3; ++k) result[k] = g ? values_of(value[k]) : NULL;
    return y ? tg_numel(y) : 0;
}

/* f32, of which the CPU takes four windows at a time, with NaN, -inf and many equal elements, against the oracle. */
TEST(max_pools)
{
    static const int row[][11] = {/* plane; kernel, stride, padding and dilation in both dims; ceil_mode */
        {28, 28, 2, 2, 2, 2, 0, 0, 1, 1, 0}, {7, 14, 2, 2, 2, 2, 0, 0, 1, 1, 0}, {19, 9, 3, 3, 2, 2, 1, 1, 1, 1, 1},
        {9, 11, 3, 3, 1, 1, 1, 1, 1, 1, 0},  {8, 8, 3, 5, 1, 2, 0, 2, 2, 1, 0}, {17, 30, 2, 5, 3, 3, 1, 2, 3, 2, 1},
        {40, 5, 2, 2, 1, 1, 1, 1, 1, 1, 0},  {3, 4, 1, 1, 1, 1, 0, 0, 1, 1, 0}, {6, 21, 3, 4, 4, 5, 0, 0, 1, 1, 1}};
    for (size_t i = 0; i < sizeof row / sizeof *row; ++i) {
        TG_SCOPE;
        float *found[3], *expected[3];
        tg_tensor *x = integers(TG_SHAPE(2, 3, row[i][0], row[i][1]), TG_F32);
        x = tg_masked_fill(x, tg_lt_scalar(x, -1), -HUGE_VAL);
        x = tg_masked_fill(x, tg_lt_scalar(tg_rand_like(x), 0.03), (double)NAN);
        const int64_t outputs = pool(tg_set_requires_grad(x, true), row[i] + 2, found);
        oracle_begin();
        CHECK(pool(tg_set_requires_grad(copy_here(x), true), row[i] + 2, expected) == outputs);
        oracle_end();
        for (int k = 0; k < 3; ++k) {
            const size_t n = (size_t)(k < 2 ? outputs : tg_numel(x));
            CHECK(found[k] && expected[k] && memcmp(found[k], expected[k], n * sizeof(float)) == 0);
            free(found[k]), free(expected[k]);
        }
    }
}

/* y [batch, cols, rows], without gaps, of x [batch, rows, cols], whose columns are `step` numbers apart */
TEST(transposed_copies)
{
    static const int64_t size[][4] = {{1, 64, 64, 1}, {2, 67, 130, 1}, {1, 3, 200, 1}, {3, 200, 2, 1}, {1, 129, 63, 2}};
    static const tg_dtype dtypes[] = {TG_F32, TG_F64, TG_BF16, TG_I64, TG_U8, TG_I32, TG_I8, TG_I16};
    for (int k = 0; k < 5; ++k) {
        const int64_t batch = size[k][0], rows = size[k][1], cols = size[k][2], step = size[k][3];
        for (int d = 0; d < 8; ++d) {
            TG_SCOPE;
            tg_tensor *x = tg_abs(integers(TG_SHAPE(batch, rows, cols * step), dtypes[d])), *y;
            x = tg_slice(x, 2, 0, cols * step, step);
            y = tg_contiguous(tg_transpose(x, 1, 2));
            oracle_begin();
            tg_tensor *wanted = tg_contiguous(tg_transpose(copy_here(x), 1, 2));
            oracle_end();
            CHECK(tg_is_contiguous(y) && is_exactly(y, wanted));
        }
    }
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    harness_take_device();
    tg_seed(3);
    RUN(products);
    RUN(distances_of_one_tensor);
    RUN(integer_products);
    RUN(bf16_products);
    RUN(bf16_tiles);
    RUN(convolutions_of_halves);
    RUN(linears);
    RUN(few_rows);
    RUN(rows_and_large_weights);
    RUN(shared_weights);
    RUN(convolutions);
    RUN(convolutions_beyond);
    RUN(max_pools);
    RUN(transposed_copies);
    CHECK(tg_shutdown() == TG_OK);
    return harness_end();
}
