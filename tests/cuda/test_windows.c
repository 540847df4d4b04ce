/* Kernels of tensorgrad_cuda.cu for windows that move over images, against the plain backend in f64: convolutions,
   pools, interpolation and grid_sample, forward and backward, in each dtype and layout; how many kernels run, and what
   they move.  Built by `make sim MAIN=tests/cuda/test_windows.c OUT=prog` for the simulator; it runs on GPUs, too. */
#include "tensorgrad.h"
#include "counting.h"
#include "../inside.h"

static const tg_dtype dtypes[] = {TG_F32, TG_F64, TG_BF16, TG_F16};
static const double tolerances[] = {4e-6, 1e-12, 2e-2, 3e-3}; /* of the largest element */
enum { DTYPES = 4, INPUTS = 3, PLAIN = 0, CHANNELS_LAST, SLICED, LAYOUTS };

static bool small; /* SMALL in the environment: fewer layouts */

typedef struct {
    const char *name;
    tg_shape x, weight; /* weight: of the convolutions */
    int64_t stride, padding, dilation, groups;
} window_case;

typedef tg_tensor *(*function)(const window_case *c, tg_tensor *const *in);

#define ONE(n) TG_SHAPE((n), (n))
static tg_tensor *conv(const window_case *c, tg_tensor *const *in)
{
    return tg_conv2d(in[0], in[1], in[2], ONE(c->stride), ONE(c->padding), ONE(c->dilation), c->groups);
}
static tg_tensor *conv_transpose(const window_case *c, tg_tensor *const *in)
{
    return tg_conv_transpose2d(in[0], in[1], NULL, ONE(c->stride), ONE(c->padding), TG_SHAPE(0), c->groups,
                               ONE(c->dilation));
}
static tg_tensor *max_pool(const window_case *c, tg_tensor *const *in)
{
    const tg_shape kernel = TG_SHAPE(tg_dim(in[1], 2), tg_dim(in[1], 3));
    return tg_max_pool2d_ex(in[0], kernel, ONE(c->stride), ONE(c->padding), ONE(c->dilation), false, NULL);
}
static tg_tensor *avg_pool(const window_case *c, tg_tensor *const *in)
{
    const tg_shape kernel = TG_SHAPE(tg_dim(in[1], 2), tg_dim(in[1], 3));
    return tg_avg_pool2d_ex(in[0], kernel, ONE(c->stride), ONE(c->padding), false, c->groups == 1, 0);
}
static tg_tensor *adaptive(const window_case *c, tg_tensor *const *in)
{
    return tg_add(tg_sum(tg_adaptive_max_pool2d(in[0], TG_SHAPE(3, 5))),
                  tg_adaptive_avg_pool2d(in[0], TG_SHAPE(c->stride + 1, 1)));
}
static tg_tensor *resized(const window_case *c, tg_tensor *const *in)
{
    const tg_shape size = TG_SHAPE(5 * c->stride, 17);
    tg_tensor *nearest = tg_interpolate(in[0], size, "nearest"), *linear = tg_interpolate(in[0], size, "bilinear");
    return tg_cat(TG_LIST(nearest, linear), 1);
}

/* The weight is the grid; the mode, the padding and the corners stand where others have their options. */
static tg_tensor *sampled(const window_case *c, tg_tensor *const *in)
{
    static const char *const modes[] = {"nearest", "bilinear", "bicubic"};
    static const char *const paddings[] = {"zeros", "border", "reflection"};
    return tg_grid_sample(in[0], in[1], modes[c->stride], paddings[c->padding], c->dilation != 0);
}

/* Sizes around the width of packs and of blocks; windows that overlap, leave gaps, and reach over the edges. */
static const window_case convolutions[] = {
    {"conv 3x3", {4, {2, 3, 9, 13}}, {4, {5, 3, 3, 3}}, 1, 1, 1, 1},
    {"conv 3x3 stride 2", {4, {2, 3, 9, 14}}, {4, {5, 3, 3, 3}}, 2, 1, 1, 1},
    {"conv 3x2 dilated", {4, {3, 2, 12, 16}}, {4, {4, 2, 3, 2}}, 1, 2, 2, 1},
    {"conv 1x1", {4, {3, 6, 8, 9}}, {4, {5, 6, 1, 1}}, 1, 0, 1, 1},
    {"conv 1x1 of few windows", {4, {3, 6, 3, 4}}, {4, {5, 6, 1, 1}}, 1, 0, 1, 1},
    {"conv 1x1 stride 2", {4, {2, 6, 17, 18}}, {4, {5, 6, 1, 1}}, 2, 0, 1, 1},
    {"conv groups", {4, {2, 6, 9, 10}}, {4, {4, 3, 3, 3}}, 1, 1, 1, 2},
    {"conv depthwise", {4, {2, 5, 10, 11}}, {4, {5, 1, 3, 3}}, 1, 1, 1, 5},
    {"conv depthwise stride 2", {4, {2, 4, 11, 12}}, {4, {4, 1, 3, 5}}, 2, 2, 1, 4},
    {"conv depthwise twice, dilated", {4, {2, 3, 11, 12}}, {4, {6, 1, 3, 3}}, 1, 1, 2, 3},
};
static const window_case pools[] = {
    {"pool 2x2", {4, {2, 3, 8, 12}}, {4, {1, 1, 2, 2}}, 2, 0, 1, 1},
    {"pool 2x2 of odd rows", {4, {2, 3, 9, 13}}, {4, {1, 1, 2, 2}}, 2, 0, 1, 1},
    {"pool 3x3", {4, {2, 3, 9, 300}}, {4, {1, 1, 3, 3}}, 1, 1, 1, 1},
    {"pool 3x3 stride 2", {4, {2, 3, 9, 14}}, {4, {1, 1, 3, 3}}, 2, 1, 1, 2},
    {"pool 3x2 dilated", {4, {2, 3, 12, 16}}, {4, {1, 1, 3, 2}}, 1, 1, 2, 1},
    {"pool 2x2 with gaps", {4, {2, 3, 12, 16}}, {4, {1, 1, 2, 2}}, 3, 0, 1, 1},
};
/* Images and volumes; more channels than a thread takes; a row of one element; many places that take one element. */
static const window_case grids[] = {
    {"nearest", {4, {2, 3, 5, 6}}, {4, {2, 4, 7, 2}}, 0, 1, 0, 1},
    {"bilinear", {4, {2, 11, 5, 6}}, {4, {2, 9, 13, 2}}, 1, 0, 0, 1},
    {"bilinear with corners", {4, {1, 3, 1, 6}}, {4, {1, 9, 130, 2}}, 1, 2, 1, 1},
    {"bilinear at the border", {4, {3, 2, 4, 5}}, {4, {3, 9, 7, 2}}, 1, 1, 0, 1},
    {"bicubic", {4, {2, 9, 5, 6}}, {4, {2, 5, 7, 2}}, 2, 2, 0, 1},
    {"bicubic of zeros", {4, {2, 2, 3, 3}}, {4, {2, 5, 7, 2}}, 2, 0, 1, 1},
    {"nearest in 3 dims", {5, {2, 2, 3, 4, 5}}, {5, {2, 2, 3, 4, 3}}, 0, 2, 1, 1},
    {"bilinear in 3 dims", {5, {2, 9, 3, 4, 5}}, {5, {2, 2, 3, 4, 3}}, 1, 0, 0, 1},
    {"bilinear in 3 dims, reflected", {5, {2, 3, 3, 4, 5}}, {5, {2, 3, 5, 4, 3}}, 1, 2, 0, 1},
    {"bicubic in 3 dims", {5, {1, 2, 3, 4, 5}}, {5, {1, 2, 3, 2, 3}}, 2, 1, 0, 1},
};

static bool agree(const char *what, tg_tensor *t, tg_tensor *wanted, double tolerance)
{
    tg_tensor *here = tg_contiguous(tg_to_dtype(tg_cpu(t), TG_F64)), *dense = tg_contiguous(tg_detach(wanted));
    const double *const x = tg_data_f64(here), *const y = tg_data_f64(dense);
    double largest = 1, off = 0;
    int64_t i;
    for (i = 0; x && y && i < tg_numel(t); ++i) {
        if (fabs(y[i]) > largest) largest = fabs(y[i]);
        if (!(fabs(x[i] - y[i]) <= off)) off = fabs(x[i] - y[i]);
    }
    if (x && y && tg_numel(t) == tg_numel(wanted) && off <= tolerance * largest) return true;
    printf("    %s, %s: off by %g of %g\n", harness.sample, what, off, largest);
    return false;
}

/* values [N, C, H, W] on the device, laid out so. */
static tg_tensor *placed(tg_tensor *values, tg_dtype dtype, int layout)
{
    tg_tensor *t = tg_cuda(tg_to_dtype(values, dtype));
    if (layout == CHANNELS_LAST && tg_ndim(t) == 4)
        return tg_permute(tg_contiguous(tg_permute(t, TG_SHAPE(0, 2, 3, 1))), TG_SHAPE(0, 3, 1, 2));
    if (layout == SLICED && tg_ndim(t) == 4) return tg_narrow(tg_cat(TG_LIST(t, t), 3), 3, 1, tg_dim(t, 3));
    return t;
}

static void compare(const window_case *c, function call, int inputs, int k, int layout)
{
    TG_SCOPE;
    tg_tensor *in[INPUTS], *there[INPUTS], *here[INPUTS], *y[2], *g;
    int i;
    tg_seed(5);
    harness.sample = c->name;
    in[0] = tg_randn_on(c->x, TG_F64, TG_CPU);
    in[1] = tg_randn_on(c->weight, TG_F64, TG_CPU);
    in[2] = tg_randn_on(TG_SHAPE(c->weight.dim[0]), TG_F64, TG_CPU);
    if (call == conv_transpose) in[0] = tg_randn_on(TG_SHAPE(2, c->weight.dim[0], 7, 10), TG_F64, TG_CPU);
    for (i = 0; i < INPUTS; ++i) {
        there[i] = placed(in[i], dtypes[k], layout);
        here[i] = tg_to_dtype(tg_cpu(there[i]), TG_F64); /* rounded */
        if (i < inputs) tg_set_requires_grad(there[i], true), tg_set_requires_grad(here[i], true);
    }
    y[0] = call(c, here), y[1] = call(c, there);
    if (!CHECK(y[0] && y[1]) || !CHECK(agree("forward", y[1], y[0], tolerances[k]))) return;
    g = placed(tg_randn_on(tg_shape_of(y[0]), TG_F64, TG_CPU), dtypes[k], layout);
    tg_backward_ex(&y[0], 1, (tg_tensor *[]){tg_to_dtype(tg_cpu(g), TG_F64)}, 0);
    tg_backward_ex(&y[1], 1, &g, 0);
    for (i = 0; i < inputs; ++i) {
        static const char *const names[] = {"gradient of x", "gradient of weight", "gradient of bias"};
        tg_tensor *d[2];
        d[0] = tg_grad(here[i]), d[1] = tg_grad(there[i]);
        if (!CHECK(d[0] && d[1] && agree(names[i], d[1], d[0], 2 * tolerances[k])))
            printf("    %s, layout %d\n", tg_dtype_name(dtypes[k]), layout);
    }
    harness.sample = NULL;
}

TEST(convolutions)
{
    int i, k, layout;
    for (i = 0; i < (int)(sizeof convolutions / sizeof *convolutions); ++i) {
        for (k = 0; k < DTYPES; ++k) {
            for (layout = 0; layout < (small ? 1 + (k == 0) * i % LAYOUTS : LAYOUTS); ++layout) {
                compare(&convolutions[i], conv, 3, k, layout);
                if (layout == PLAIN) compare(&convolutions[i], conv_transpose, 2, k, layout);
            }
        }
    }
}

TEST(pools)
{
    int i, k;
    for (i = 0; i < (int)(sizeof pools / sizeof *pools); ++i) {
        for (k = 0; k < DTYPES; ++k) {
            compare(&pools[i], max_pool, 1, k, i % LAYOUTS);
            compare(&pools[i], avg_pool, 1, k, i % LAYOUTS);
        }
    }
    for (k = 0; k < DTYPES; ++k) {
        compare(&pools[3], adaptive, 1, k, PLAIN);
        compare(&pools[1], resized, 1, k, PLAIN);
    }
}

TEST(samples_at_places)
{
    int i, k;
    for (i = 0; i < (int)(sizeof grids / sizeof *grids); ++i)
        for (k = 0; k < DTYPES; ++k) compare(&grids[i], sampled, 2, k, i % LAYOUTS);
}

/* ---- how many kernels run, and what they move; bytes are known with TG_SIM_REPORT alone ---- */

TEST(what_is_moved)
{
    int k;
    for (k = 0; k < DTYPES; ++k) {
        TG_SCOPE;
        const tg_dtype dtype = dtypes[k];
        const double size = (double)tg_dtype_size(dtype), x_bytes = 8.0 * 16 * 32 * 32 * size;
        tg_tensor *x = tg_set_requires_grad(tg_full_on(TG_SHAPE(8, 16, 32, 32), 1, dtype, TG_CUDA(0)), true), *y, *g;
        tg_tensor *one = tg_full_on(TG_SHAPE(16, 16, 1, 1), 1, dtype, TG_CUDA(0));
        tg_tensor *three = tg_full_on(TG_SHAPE(16, 16, 3, 3), 1, dtype, TG_CUDA(0)), *dx;
        g = tg_full_on(TG_SHAPE(8, 16, 16, 16), 1, dtype, TG_CUDA(0));
        start_counting();
        y = tg_max_pool2d(x, TG_SHAPE(2), TG_SHAPE(2), TG_SCALAR);
        harness.sample = "max_pool";
        CHECK(at_most(1, 1.02 * (1.25 * x_bytes + 8 * x_bytes / size / 4)));
        start_counting();
        tg_gradients(&y, 1, &g, &x, 1, &dx, 0);
        harness.sample = "max_pool backward"; /* a window's index and gradient are read for each line that it sees */
        CHECK(at_most(1, 1.02 * (x_bytes + 2 * (8 * x_bytes / size / 4 + x_bytes / 4))));
        start_counting();
        y = tg_avg_pool2d(x, TG_SHAPE(2), TG_SHAPE(2), TG_SCALAR);
        harness.sample = "avg_pool";
        CHECK(at_most(1, 1.02 * 1.25 * x_bytes));
        start_counting();
        tg_gradients(&y, 1, &g, &x, 1, &dx, 0);
        harness.sample = "avg_pool backward"; /* likewise */
        CHECK(at_most(1, 1.02 * 1.5 * x_bytes));
        start_counting();
        y = tg_conv2d(x, one, NULL, TG_SHAPE(1), TG_SHAPE(0), TG_SHAPE(1), 1); /* nothing is copied */
        harness.sample = "conv 1x1";
        CHECK(at_most(1, 0));
        start_counting();
        tg_gradients(&y, 1, &x, &x, 1, &dx, 0);
        harness.sample = "conv 1x1, gradient of x";
        CHECK(at_most(1, 0));
        start_counting();
        y = tg_conv2d(x, three, NULL, TG_SHAPE(1), TG_SHAPE(1), TG_SHAPE(1), 1);
        harness.sample = "conv 3x3";
        CHECK(at_most(2, 2 * 9 * x_bytes)); /* each tap reads an element, from a cache, and writes it */
        start_counting();
        tg_gradients(&y, 1, &x, &x, 1, &dx, 0);
        harness.sample = "conv 3x3, gradient of x";
        CHECK(at_most(3, 9 * x_bytes + 3 * x_bytes));
        if (dtype != TG_F32 && dtype != TG_F64) continue;
        const double y_bytes = x_bytes / 4, grid_bytes = 8.0 * 16 * 16 * 2 * size;
        tg_tensor *grid = tg_set_requires_grad(tg_full_on(TG_SHAPE(8, 16, 16, 2), 0.3, dtype, TG_CUDA(0)), true);
        start_counting();
        y = tg_grid_sample(tg_detach(x), grid, "bilinear", "zeros", false);
        harness.sample = "grid_sample"; /* each of y reads its place and four elements */
        CHECK(at_most(1, 1.02 * (5 * y_bytes + grid_bytes)));
        start_counting();
        tg_gradients(&y, 1, &g, &grid, 1, &dx, 0);
        harness.sample = "grid_sample, gradient of the grid"; /* reads these and g */
        CHECK(at_most(1, 1.02 * (5 * y_bytes + 2 * grid_bytes)));
    }
    harness.sample = NULL;
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    small = getenv("SMALL") != NULL;
    if (harness_has_no_gpu()) return 0;
    inside_plain(true); /* what the CPU computes here is the oracle */
    RUN(convolutions);
    RUN(pools);
    RUN(samples_at_places);
    RUN(what_is_moved);
    tg_shutdown();
    return harness_end();
}
