/* The attention kernels of tensorgrad_cuda.cu: values and gradients against the same in f64, which is composed of
   products and a softmax, and against the plain backend, at the edges of their tiles; on the simulator also how many
   kernels run and how much memory they take.  Built by `make sim MAIN=tests/cuda/test_flash.c OUT=prog` for the
   simulator; it runs on GPUs, too.  SMALL=1: fewer sizes. */
#include "tensorgrad.h"
#include "counting.h"
#include "../inside.h"

/* q [heads, group, queries, width], k [heads, 1, keys, width], v [heads, 1, keys, value_width] */
typedef struct { int64_t heads, group, queries, keys, width, value_width; } sizes;
enum { NO_MASK, CAUSAL, BOOL_MASK, FLOAT_MASK };

/* How q, k and v lie in memory.  PACKED: views of tensors [rows, heads, group, 3 * width]; ODD: not aligned, so that no
   16 bytes can be copied at once; TRANSPOSED: the elements of a row are apart.  GROWING: as PLAIN, but with scores that
   grow from key to key, or fall, by more in each query than in the one before. */
enum { PLAIN, PACKED, ODD, TRANSPOSED, GROWING };

/* The tensors that attention gets views of, on the CPU in f32, with numbers that the dtype has, and a gradient of y. */
typedef struct { tg_tensor *leaf[3], *mask, *g; } problem;
typedef struct { tg_tensor *y, *d[3]; } solution;

static tg_tensor *drawn(tg_shape shape, tg_dtype dtype)
{
    return tg_to_dtype(tg_to_dtype(tg_randn_on(shape, TG_F32, TG_CPU), dtype), TG_F32);
}

static tg_tensor *leaf_of(int64_t heads, int64_t group, int64_t rows, int64_t width, tg_dtype dtype, int layout)
{
    if (layout == PACKED) return drawn(TG_SHAPE(rows, heads, group, 3 * width), dtype);
    if (layout == ODD) return drawn(TG_SHAPE(heads, group, rows, width + 1), dtype);
    if (layout == TRANSPOSED) return drawn(TG_SHAPE(heads, group, width, rows), dtype);
    return drawn(TG_SHAPE(heads, group, rows, width), dtype);
}

/* The view [heads, group, rows, width]. */
static tg_tensor *view_of(tg_tensor *leaf, int64_t width, int layout)
{
    if (layout == PACKED) return tg_permute(tg_narrow(leaf, 3, width, width), TG_DIMS(1, 2, 0, 3));
    if (layout == ODD) return tg_narrow(leaf, 3, 1, width);
    return layout == TRANSPOSED ? tg_transpose(leaf, 2, 3) : leaf;
}

/* [queries, keys]: query 1 sees nothing, the others about two thirds of the keys. */
static tg_tensor *mask_of(int kind, sizes n, tg_dtype dtype)
{
    if (kind < BOOL_MASK) return NULL;
    tg_tensor *chance = tg_rand_on(TG_SHAPE(n.queries, n.keys), TG_F32, TG_CPU), *seen = tg_lt_scalar(chance, 0.66);
    if (n.queries > 1) tg_fill_(tg_select(seen, 0, 1), 0);
    if (kind == BOOL_MASK) return seen;
    return tg_masked_fill(tg_to_dtype(tg_to_dtype(chance, dtype), TG_F32), tg_logical_not(seen), -(double)INFINITY);
}

static problem problem_of(sizes n, tg_dtype dtype, int mask, int layout)
{
    problem p;
    p.leaf[0] = leaf_of(n.heads, n.group, n.queries, n.width, dtype, layout);
    p.leaf[1] = leaf_of(n.heads, 1, n.keys, n.width, dtype, layout);
    p.leaf[2] = leaf_of(n.heads, 1, n.keys, n.value_width, dtype, layout);
    if (layout == GROWING) {
        tg_copy_(tg_select(p.leaf[0], 3, 0), tg_arange_on(-5, (double)n.queries / 4 - 5, 0.25, TG_F32, TG_CPU));
        tg_copy_(tg_select(p.leaf[1], 3, 0), tg_arange_on(0, (double)n.keys / 16, 1.0 / 16, TG_F32, TG_CPU));
    }
    p.mask = mask_of(mask, n, dtype);
    p.g = drawn(TG_SHAPE(n.heads, n.group, n.queries, n.value_width), dtype);
    return p;
}

/* y and the gradients of the leaves, computed in a dtype on a device; the results are on the CPU in f64. */
static bool solve(solution *s, problem p, sizes n, tg_dtype dtype, int mask, int layout, tg_device device)
{
    tg_tensor *leaf[3], *in[3], *y, *g = tg_to_ex(p.g, device, dtype, 0);
    for (int i = 0; i < 3; ++i) {
        leaf[i] = tg_set_requires_grad(tg_detach(tg_to_ex(p.leaf[i], device, dtype, TG_COPY)), true);
        in[i] = view_of(leaf[i], i < 2 ? n.width : n.value_width, layout);
    }
    tg_tensor *m = p.mask ? tg_to_ex(p.mask, device, mask == BOOL_MASK ? TG_BOOL : dtype, 0) : NULL;
    y = tg_scaled_dot_product_attention(in[0], in[1], in[2], m, 0, mask == CAUSAL, mask == CAUSAL ? -0.2 : 0);
    if (!y || tg_gradients(&y, 1, &g, leaf, 3, s->d, 0) != TG_OK) return false;
    s->y = tg_to_dtype(tg_to(tg_detach(y), TG_CPU), TG_F64);
    for (int i = 0; i < 3; ++i) s->d[i] = tg_to_dtype(tg_to(s->d[i], TG_CPU), TG_F64);
    return true;
}

/* Whether all differ by at most `tolerance` of the largest number. */
static bool agree(const solution *a, const solution *b, double tolerance)
{
    for (int i = 0; i < 4; ++i) {
        tg_tensor *x = i < 3 ? a->d[i] : a->y, *y = i < 3 ? b->d[i] : b->y;
        const double most = tolerance * (0.5 + tg_item(tg_max(tg_abs(y))));
        if (!tg_allclose(x, y, 0, most)) {
            printf("    %s differs by %g, at most %g\n", i < 3 ? i < 2 ? i < 1 ? "dq" : "dk" : "dv" : "y",
                   tg_item(tg_max(tg_abs(tg_sub(x, y)))), most);
            return false;
        }
    }
    return true;
}

static void compare(sizes n, tg_dtype dtype, int mask, int layout)
{
    static const double tolerance[] = {1e-5, 1e-12, 2e-2, 3e-3};
    TG_SCOPE;
    solution fused, composed, cpu;
    const problem p = problem_of(n, dtype, mask, layout);
    const bool solved = solve(&fused, p, n, dtype, mask, layout, TG_CUDA(0)) &&
                        solve(&composed, p, n, TG_F64, mask, layout, TG_CUDA(0)) &&
                        solve(&cpu, p, n, dtype, mask, layout, TG_CPU);
    if (CHECK(solved && agree(&fused, &composed, tolerance[dtype]) && agree(&fused, &cpu, tolerance[dtype]))) return;
    printf("    %s, mask %d, layout %d, heads %d, group %d, queries %d, keys %d, widths %d and %d: %s\n",
           tg_dtype_name(dtype), mask, layout, (int)n.heads, (int)n.group, (int)n.queries, (int)n.keys, (int)n.width,
           (int)n.value_width, tg_ok() ? "differ" : tg_error_message());
}

/* Numbers of rows around the tiles, which have 64 or 128 queries and 16 to 64 keys; both widths of tiles, whole and
   partly filled. */
TEST(tiles)
{
    static const sizes all[] = {{1, 1, 64, 64, 64, 64},   {1, 1, 65, 33, 64, 64},    {1, 1, 129, 130, 64, 64},
                                {1, 1, 40, 150, 64, 64},  {1, 1, 150, 40, 64, 48},   {1, 1, 17, 80, 128, 128},
                                {1, 1, 70, 70, 72, 128},  {1, 1, 33, 31, 80, 5},     {1, 1, 1, 100, 16, 64},
                                {2, 3, 20, 18, 32, 32},   {1, 1, 130, 66, 128, 128}, {1, 1, 5, 1, 1, 1}};
    static const tg_dtype dtypes[] = {TG_BF16, TG_F16, TG_F32};
    const size_t step = getenv("SMALL") ? 3 : 1;
    tg_seed(3);
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
        for (size_t k = i % step; k < 6; k += step) compare(all[i], dtypes[k % 3], (int)(k / 3), PLAIN);
    }
}

TEST(masks_and_layouts)
{
    static const sizes all[] = {{2, 1, 37, 70, 64, 64}, {1, 2, 66, 20, 128, 128}, {1, 1, 19, 24, 24, 40}};
    static const tg_dtype dtypes[] = {TG_BF16, TG_F16, TG_F32};
    tg_seed(4);
    for (int i = 0; i < 3; ++i) {
        for (int k = 0; k < 3; ++k) {
            compare(all[i], dtypes[k], BOOL_MASK + (i + k) % 2, PLAIN);
            compare(all[i], dtypes[k], CAUSAL, PACKED + (i + k) % 3);
            if (!getenv("SMALL")) compare(all[i], dtypes[k], (i + k) % 4, PACKED + (i + k + 1) % 3);
        }
    }
}

/* How many rows of k and v the blocks read together, each of which owns `rows` of n queries and reads `columns` keys
   at a time: all n, or, if causal, as many tiles as its last query sees.  The numbers of rows of q and g that those
   read which own keys are the same, from the other end. */
static double rows_read(int n, int rows, int columns, bool causal)
{
    double all = 0;
    for (int first = 0; first < n; first += rows)
        all += causal && first + rows < n ? (first + rows + columns - 1) / columns * columns : n;
    return all;
}

/* One kernel forward, two backward; no tensor of scores, in f32 the size of those that are allowed here.  Each block
   reads its own rows once, and the tiles of the others' rows (see tgi_flash_sizes), and nothing else is read. */
TEST(what_attention_moves)
{
    enum { LENGTH = 512 };
    const int64_t scores = (int64_t)LENGTH * LENGTH * 4;
    static const tg_dtype dtypes[] = {TG_F32, TG_BF16, TG_F16};
    for (int k = 0; k < 12; ++k) {
        TG_SCOPE;
        const tg_dtype dtype = dtypes[k % 3];
        const int width = k / 3 % 2 ? 128 : 64, size = (int)tg_dtype_size(dtype), columns = 8192 / (width * size);
        const bool causal = k >= 6;
        const double one = (double)width * size, rows = LENGTH; /* the bytes of a row, and rows of one tensor */
        const double tiles = rows_read(LENGTH, 256 / size, columns, causal);
        tg_tensor *in[3], *d[3];
        if (getenv("SMALL") && width > 64 && dtype == TG_F16) continue;
        for (int i = 0; i < 3; ++i) {
            in[i] = tg_to_ex(drawn(TG_SHAPE(LENGTH, width), dtype), TG_CUDA(0), dtype, 0);
            tg_set_requires_grad(in[i], true);
        }
        tg_tensor *g = tg_detach(in[0]);
        tg_synchronize(TG_CUDA(0));
#ifdef CUDASIM
        if (width == 64) cudasim_limit_memory(0, cudasim_live(CUDASIM_DEVICE_BYTES) + (size_t)scores);
#endif
        start_counting(); /* q, y, lse; k and v */
        tg_tensor *y = tg_scaled_dot_product_attention(in[0], in[1], in[2], NULL, 0, causal, 0);
        CHECK(at_most(1, 1.02 * (2 * rows * one + 4 * rows + 2 * tiles * one)));
        start_counting();
        CHECK(tg_gradients(&y, 1, &g, in, 3, d, 0) == TG_OK);
        const double sums = 8; /* lse and sum(g y) of a query */
        CHECK(at_most(2, 1.02 * ((4 * one + 4 + sums) * rows + 2 * tiles * one + /* q, g, y, lse, dq, sums; k and v */
                                 4 * rows * one + tiles * (2 * one + sums))));   /* k, v, dk, dv; q, g and sums */
#ifdef CUDASIM
        cudasim_limit_memory(0, (size_t)1 << 30);
#endif
    }
    (void)scores;
}

/* From tile to tile a row's largest score grows by less than 8 (in base 2), which brings no sum to another one, by less
   twice, by more, or not at all. */
TEST(scores_that_grow)
{
    static const sizes n = {1, 1, 70, 200, 64, 64}, wide = {1, 1, 70, 200, 128, 128};
    tg_seed(9);
    for (int k = 0; k < 6; ++k) {
        compare(n, k % 3 ? k % 3 == 1 ? TG_BF16 : TG_F16 : TG_F32, k / 3 ? CAUSAL : NO_MASK, GROWING);
        compare(wide, k % 3 ? k % 3 == 1 ? TG_BF16 : TG_F16 : TG_F32, k / 3 ? FLOAT_MASK : BOOL_MASK, GROWING);
    }
}

/* The gradients of the parts of one tensor are parts of one: they are not copied. */
TEST(gradient_of_packed_q_k_v)
{
    TG_SCOPE;
    tg_tensor *packed = tg_cuda(drawn(TG_SHAPE(1, 70, 3, 2, 64), TG_F32)), *in[3], *d;
    tg_set_requires_grad(packed, true);
    tg_unbind(packed, 2, in, 3);
    for (int i = 0; i < 3; ++i) in[i] = tg_transpose(in[i], 1, 2);
    tg_tensor *y = tg_scaled_dot_product_attention(in[0], in[1], in[2], NULL, 0, true, 0), *g = tg_ones_like(y);
    tg_synchronize(TG_CUDA(0));
    const long start = kernels_so_far();
    CHECK(tg_gradients(&y, 1, &g, &packed, 1, &d, 0) == TG_OK);
    tg_synchronize(TG_CUDA(0));
    CHECK(!COUNTED || kernels_so_far() - start == 2);
    CHECK(tg_dim(d, 2) == 3 && tg_is_contiguous(d));
}

/* The gradients of some of q, k and v have the bits that they have among those of all.  Those of k and v need the sums
   that the kernel for q makes, where no gradient of q is wanted, too. */
TEST(gradients_of_some)
{
    static const tg_dtype dtypes[] = {TG_F32, TG_BF16, TG_F16};
    tg_seed(5);
    for (int k = 0; k < 6; ++k) {
        TG_SCOPE;
        const int width = k / 3 ? 128 : 40;
        tg_tensor *leaf[3], *g = tg_to_ex(drawn(TG_SHAPE(2, 70, width), dtypes[k % 3]), TG_CUDA(0), dtypes[k % 3], 0);
        tg_tensor *all[3] = {NULL, NULL, NULL};
        for (int i = 0; i < 3; ++i)
            leaf[i] = tg_to_ex(drawn(TG_SHAPE(2, i ? 50 : 70, width), dtypes[k % 3]), TG_CUDA(0), dtypes[k % 3], 0);
        for (int wanted = 7; wanted > 0; --wanted) {
            tg_tensor *in[3], *some[3], *d[3];
            int n = 0;
            for (int i = 0; i < 3; ++i) {
                in[i] = tg_set_requires_grad(tg_detach(leaf[i]), wanted >> i & 1);
                if (wanted >> i & 1) some[n++] = in[i];
            }
            tg_tensor *y = tg_scaled_dot_product_attention(in[0], in[1], in[2], NULL, 0, k % 2 == 1, 0);
            tg_synchronize(TG_CUDA(0));
            const long start = kernels_so_far();
            CHECK(tg_gradients(&y, 1, &g, some, n, d, 0) == TG_OK);
            tg_synchronize(TG_CUDA(0));
            CHECK(!COUNTED || kernels_so_far() - start == (wanted == 1 ? 1 : 2));
            for (int i = 0, at = 0; i < 3; ++i) {
                if (!(wanted >> i & 1)) continue;
                if (wanted == 7) all[i] = d[at];
                CHECK(tg_equal(d[at++], all[i]));
            }
        }
    }
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    if (harness_has_no_gpu()) return 0;
    inside_plain(true); /* what the CPU computes here is the oracle */
    RUN(tiles);
    RUN(masks_and_layouts);
    RUN(scores_that_grow);
    RUN(what_attention_moves);
    RUN(gradient_of_packed_q_k_v);
    RUN(gradients_of_some);
    tg_shutdown();
    return harness_end();
}
