/* Every kernel of tensorgrad_cuda.cu, on few elements: the rows of the op table, and of the gradients, in each dtype
   that has a kernel of its own, and all others.  Against the plain backend of the CPU; `make ptx-kernels` counts what ran.
   Built by `make sim MAIN=tests/cuda/test_kernels.c OUT=prog` for the simulator; it runs on GPUs, too. */
#define _POSIX_C_SOURCE 200809L /* setenv */
#include "tensorgrad.h"
#include "counting.h"
#include "../helpers.h"

/* ---- the op table ---- */

enum { FEW = 13 }; /* packs of 4 or of 8 elements, and a rest */

/* In the domain of most functions, between -1 and 1, then beyond it. */
static tg_tensor *numbers_of(int input, tg_dtype dtype)
{
    static const double value[3][FEW] = {{0.25, -0.5, 0.75, 0.125, 0, 1, -1, 1.5, -2.5, 3.25, 0.875, -0.0625, 2},
                                         {0.5, 0.75, -0.25, 1.5, 2, 0.625, 3, -1, 0.375, -2, 0.875, 1.25, 2},
                                         {0.75, 0.25, 2, -0.5, 1, 0.5, -1.5, 0.125, 3, 1.75, -3, 0.875, 1}};
    return tg_to_dtype(tg_from_f64(value[input], TG_SHAPE(FEW)), dtype);
}

static tg_tensor *mask_of(void) { return tg_gt_scalar(numbers_of(1, TG_F32), 0.7); }

/* Whether the elements are equal up to what the dtype rounds, NaN where NaN is. */
static bool agrees(tg_tensor *y, tg_tensor *wanted)
{
    const bool narrow = y && (tg_dtype_of(y) == TG_BF16 || tg_dtype_of(y) == TG_F16);
    const double tolerance = narrow ? 0.02 : 2e-5;
    tg_tensor *here = tg_to_dtype(copy_here(y), TG_F64), *there = tg_to_dtype(copy_here(wanted), TG_F64);
    const double *a = tg_data_f64(here), *b = tg_data_f64(there);
    if (!a || !b || tg_dtype_of(y) != tg_dtype_of(wanted) || tg_numel(here) != tg_numel(there)) return false;
    for (int64_t i = 0; i < tg_numel(here); ++i) {
        if (a[i] == b[i] || (isnan(a[i]) && isnan(b[i]))) continue;
        if (fabs(a[i] - b[i]) <= tolerance * (1 + fabs(b[i]))) continue;
        printf("    element %d is %.9g, not %.9g\n", (int)i, a[i], b[i]);
        return false;
    }
    return true;
}

/* The op and, if a kernel computes it, its gradient, on one device. */
static tg_tensor *row_on(int op, tg_dtype dtype, tg_device device, int inputs, int kind, double s, tg_tensor **grad)
{
    tg_tensor *x[3], *y, *g;
    for (int k = 0; k < inputs; ++k)
        x[k] = tg_to(kind & INSIDE_MASK && k + 1 == inputs ? mask_of() : numbers_of(k, dtype), device);
    if (kind & INSIDE_GRADIENT) tg_set_requires_grad(x[0], true);
    y = inside_map(op, x, s, 2);
    *grad = NULL;
    if (!y || !(kind & INSIDE_GRADIENT)) return y;
    g = tg_to(numbers_of(2, dtype), device);
    if (tg_gradients(&y, 1, &g, x, 1, grad, 0) != TG_OK) return NULL;
    return y;
}

static void rows_in(tg_dtype dtype)
{
    const char *name, *formula;
    bool has_rule;
    int rows = 0, kind;
    for (int op = 0; (name = inside_op(op, &has_rule, &formula)) != NULL; ++op) {
        const int inputs = inside_inputs(op, &kind);
        if (!inputs || kind & INSIDE_WHOLE) continue;
        {
            TG_SCOPE;
            tg_tensor *grad, *wanted_grad, *y = row_on(op, dtype, TG_CUDA(0), inputs, kind, 1, &grad);
            tg_tensor *wanted = row_on(op, dtype, TG_CPU, inputs, kind, 1, &wanted_grad);
            harness.sample = name;
            CHECK(y && agrees(y, wanted));
            CHECK(!(kind & INSIDE_GRADIENT) || (grad && agrees(grad, wanted_grad)));
            harness.sample = NULL;
        }
        ++rows;
    }
    CHECK(rows > 100);
}

TEST(rows_in_f32) { rows_in(TG_F32); }
TEST(rows_in_bf16) { rows_in(TG_BF16); }
TEST(rows_in_f16) { rows_in(TG_F16); }

/* ---- the other kernels ---- */

enum { OUTPUTS = 40 };
enum {
    DTYPES = TG_BOOL + 1,
    LOW = 1 << TG_BF16 | 1 << TG_F16,
    NARROW = 1 << TG_F32 | LOW,
    FLOATING = NARROW | 1 << TG_F64,
    WIDE = 1 << TG_F32 | 1 << TG_F64,
    EVERY = (1 << (TG_BOOL + 1)) - 1
};
/* What a piece of work gives on a device, and how many of these. */
typedef struct {
    tg_device where;
    tg_dtype dtype;
    tg_tensor *out[OUTPUTS];
    int count;
} job;
typedef void (*work)(job *j);

static void give(job *j, tg_tensor *y)
{
    if (j->count == OUTPUTS) abort();
    j->out[j->count++] = y;
}

/* Numbers from 0 to 4, in an order without a pattern. */
static tg_tensor *some_of(job *j, tg_dtype dtype, tg_shape shape)
{
    static double value[70000];
    int64_t n = 1;
    for (int i = 0; i < shape.ndim; ++i) n *= shape.dim[i];
    if (n > 70000) abort();
    for (int64_t i = 0; i < n; ++i) value[i] = (double)(i * 37 % 41) / 10;
    return tg_to(tg_to_dtype(tg_from_f64(value, shape), dtype), j->where);
}
#define some(...) some_of(j, j->dtype, TG_SHAPE(__VA_ARGS__))
#define leaf_some(...) tg_set_requires_grad(some(__VA_ARGS__), j->dtype < TG_I32)

/* Whole numbers below `end`. */
static tg_tensor *indices(job *j, int64_t end, tg_shape shape)
{
    return tg_remainder(some_of(j, TG_I64, shape), tg_full_on(TG_SCALAR, (double)end, TG_I64, j->where));
}

/* y and the gradients of n tensors, from a gradient of y that is not constant. */
static void give_all(job *j, tg_tensor *y, tg_tensor *const *x, int n)
{
    tg_tensor *g = y ? tg_flip(some_of(j, tg_dtype_of(y), tg_shape_of(y)), TG_DIMS(-1)) : NULL, *dx[4] = {NULL};
    give(j, y);
    if (!y || tg_gradients(&y, 1, &g, x, n, dx, 0) != TG_OK) give(j, NULL);
    for (int i = 0; i < n && dx[i]; ++i) give(j, dx[i]);
}

/* Runs the work on a GPU and on the CPU, for each of these dtypes (bits). */
static void both(const char *name, work run, int dtypes)
{
    for (int dtype = 0; dtype < DTYPES; ++dtype) {
        job here, there;
        if (!(dtypes >> dtype & 1)) continue;
        TG_SCOPE;
        memset(&here, 0, sizeof here);
        here.dtype = (tg_dtype)dtype;
        there = here;
        here.where = TG_CUDA(0), there.where = TG_CPU;
        tg_seed(5);
        run(&here);
        tg_seed(5);
        run(&there);
        harness.sample = name;
        CHECK(here.count > 0 && here.count == there.count);
        for (int i = 0; i < here.count && i < there.count; ++i)
            if (!CHECK(agrees(here.out[i], there.out[i]))) printf("    %s in dtype %d, output %d\n", name, dtype, i);
        harness.sample = NULL;
    }
}
#define BOTH(run, dtypes) both(#run, run, dtypes)

static void conversions(job *j)
{
    tg_tensor *x = some(24), *y = some(3, 8);
    for (int to = 0; to < DTYPES; ++to) give(j, tg_to_dtype(x, (tg_dtype)to));
    give(j, tg_copy_(some_of(j, j->dtype == TG_F64 ? TG_F32 : TG_F64, TG_SHAPE(8, 3)), tg_t(y)));
}

static void copies(job *j)
{
    tg_tensor *x = some(6, 40), *small = some(5, 6), *both_ends[2];
    both_ends[0] = both_ends[1] = x;
    give(j, tg_contiguous(tg_t(x)));                             /* in tiles, or element by element */
    give(j, tg_contiguous(tg_t(some(16, 40))));
    give(j, tg_contiguous(tg_slice(small, 1, 0, 6, 2)));
    for (int64_t n = 1; n <= 32; n *= 2) give(j, tg_contiguous(tg_narrow(x, 1, 0, n))); /* words of each length */
    give(j, tg_cat(both_ends, 2, 1));
    give(j, tg_contiguous(tg_permute(some(2, 3, 2, 3, 2), TG_DIMS(4, 2, 0, 3, 1)))); /* more dims than tgi_packs has */
    give(j, tg_fill_(some(5), 1));
    tg_fill_(tg_slice(small, 1, 0, 6, 2), 1);
    give(j, small);
}

static void single_elements(job *j)
{
    tg_tensor *x = some(4);
    tg_set(x, TG_SHAPE(2), 1);
    give(j, x);
    give(j, tg_arange_on(0, 7, 1, j->dtype, j->where));
}

/* A row in f64, in i64 and where the elements do not lie side by side: the op is chosen when the kernel runs. */
static void strided_maps(job *j)
{
    tg_tensor *x = tg_slice(some(4, 6), 1, 0, 6, 2), *y = tg_add_scalar(tg_t(some(3, 4)), 1);
    give(j, tg_square(x));
    give(j, tg_mul(x, y));
    give(j, tg_where(tg_gt_scalar(x, 1), x, y));
    give(j, tg_addcmul(x, x, y, 2));
}

static void reductions(job *j)
{
    tg_tensor *x = some(3, 64), *odd = some(5, 70), *tall = some(64, 8);
    tg_tensor *in[3];
    in[0] = x, in[1] = odd, in[2] = tall;
    for (int k = 0; k < 3; ++k) {
        for (int dim = 0; dim < 2; ++dim) {
            tg_tensor *of_ones = tg_add_scalar(tg_mul_scalar(in[k], 0), 1);
            give(j, tg_sum_dim(in[k], dim, false));
            give(j, tg_amax_dim(in[k], dim, false));
            give(j, tg_amin_dim(in[k], dim, false));
            give(j, tg_prod_dim(of_ones, dim, false));
        }
    }
    give(j, tg_prod_dim(tg_to_dtype(tg_add_scalar(x, 1), TG_F64), 1, false));
    give(j, tg_any_dim(x, 1, false));
    give(j, tg_all_dim(x, 1, false));
    give(j, tg_any_dim(x, 0, false));
    give(j, tg_all_dim(x, 0, false));
    give(j, tg_prod_dim(tg_to_dtype(tg_add_scalar(some(20, 3), 1), TG_F64), 0, false));
}

static void rows_of(job *j)
{
    tg_tensor *x = leaf_some(4, 24), *weight = leaf_some(24), *bias = leaf_some(24), *in[3];
    in[0] = x, in[1] = weight, in[2] = bias;
    give_all(j, tg_softmax(x, 1), &x, 1);
    give_all(j, tg_layer_norm(x, 1, weight, bias, 1e-5), in, 3);
    give_all(j, tg_rms_norm(x, 1, weight, 1e-5), in, 2);
    x = leaf_some(4, 13);
    give_all(j, tg_softmax(x, 1), &x, 1);
    give_all(j, tg_layer_norm(x, 1, NULL, NULL, 1e-5), &x, 1);
}

static void losses(job *j)
{
    tg_tensor *targets = indices(j, 24, TG_SHAPE(4)), *x = leaf_some(4, 24);
    give_all(j, tg_cross_entropy(x, targets), &x, 1);
    x = leaf_some(4, 13);
    give_all(j, tg_cross_entropy_ex(x, indices(j, 13, TG_SHAPE(4)), NULL, -100, 0.1, TG_NONE), &x, 1);
}

/* Long enough to be taken by packs, between which they begin. */
static void odd_rows(job *j)
{
    enum { ODD = 301 };
    tg_tensor *x = leaf_some(4, ODD), *weight = leaf_some(ODD), *bias = leaf_some(ODD), *in[3];
    in[0] = x, in[1] = weight, in[2] = bias;
    give_all(j, tg_softmax(x, 1), &x, 1);
    give_all(j, tg_layer_norm(x, 1, weight, bias, 1e-5), in, 3);
    give_all(j, tg_layer_norm(x, 1, NULL, NULL, 1e-5), &x, 1);
    give_all(j, tg_cross_entropy_ex(x, indices(j, ODD, TG_SHAPE(4)), NULL, -100, 0.1, TG_NONE), &x, 1);
}

static void orders(job *j)
{
    tg_tensor *index, *x = some(2, 40), *lengths = some(1500);
    give(j, tg_sort(x, 1, false, &index));
    give(j, index);
    give(j, tg_sort(lengths, 0, true, &index)); /* by digits */
    give(j, index);
    give(j, tg_argmax(x, 1, false));
    give(j, tg_argmin(tg_reshape(x, TG_SHAPE(80)), 0, false));
    give(j, tg_max_dim(x, 1, false, &index));
    give(j, index);
    give(j, tg_cumsum(x, 1));
    give(j, tg_cumprod(some(3, 9), 1));
    give(j, tg_searchsorted(tg_sort(some(20), 0, false, &index), some(6), false, NULL));
}

/* What is indexed, and what has an index more than once. */
static void indexing(job *j)
{
    tg_tensor *table = leaf_some(6, 24), *odd = leaf_some(6, 5), *few = indices(j, 6, TG_SHAPE(7));
    tg_tensor *t = leaf_some(6, 7), *in[2], *index = indices(j, 6, TG_SHAPE(6, 7)), *y;
    in[0] = t, in[1] = leaf_some(6, 7);
    if (j->dtype < TG_I32) { /* of 150 indices more than one segment has the same */
        give_all(j, tg_embedding(table, indices(j, 2, TG_SHAPE(150))), &table, 1);
        give_all(j, tg_index_select(odd, 0, few), &odd, 1);
        give_all(j, tg_gather(t, 1, index), &t, 1);
        y = tg_unfold(t, 1, 3, 1);
        give_all(j, tg_mul_scalar(y, 2), &t, 1);
        give_all(j, tg_max_dim(t, 1, false, NULL), &t, 1);
    }
    give(j, tg_scatter_add(in[0], 1, index, in[1]));
    give(j, tg_index_add(some(6, 3), 0, indices(j, 2, TG_SHAPE(150)), some(150, 3)));
    give(j, tg_scatter(in[0], 1, index, in[1]));
    give(j, tg_scatter_reduce(in[0], 1, index, in[1], "prod", true));
    give(j, tg_scatter_reduce(in[0], 1, index, in[1], "amax", true));
    give(j, tg_scatter_reduce(in[0], 1, index, in[1], "amin", true));
    {
        tg_tensor *often = indices(j, 2, TG_SHAPE(150)), *more = some(150, 3);
        tg_tensor *signs = tg_sub_scalar(tg_mul_scalar(tg_to_dtype(tg_gt_scalar(more, 2), j->dtype), 2), 1);
        give(j, tg_index_reduce(tg_add_scalar(some(6, 3), 1), 0, often, signs, "prod", true)); /* exact */
        give(j, tg_index_reduce(some(6, 3), 0, often, more, "amax", true));
        give(j, tg_index_reduce(some(6, 3), 0, often, more, "amin", true));
    }
    give(j, tg_nonzero(in[0]));
    give(j, tg_scatter(in[0], 0, tg_to(tg_reshape(tg_randperm(6), TG_SHAPE(6, 1)), j->where), in[1]));
}

static void long_rows(job *j)
{
    tg_tensor *index, *x = some(9000);
    give(j, tg_max_dim(x, 0, false, &index));
    give(j, index);
    give(j, tg_argmin(x, 0, false));
    give(j, tg_sum(x));
    give(j, tg_sort(some(2100), 0, false, &index));
    give(j, index);
}

static void sums_of_many_rows(job *j)
{
    tg_tensor *x = leaf_some(9, 24), *residual = leaf_some(9, 24), *weight = leaf_some(24), *bias = leaf_some(24);
    tg_tensor *in[4], *sum, *y, *out[2], *g[2], *dx[4];
    in[0] = x, in[1] = residual, in[2] = weight, in[3] = bias;
    y = out[0] = tg_add_layer_norm(x, residual, 1, weight, bias, 1e-5, &sum);
    out[1] = sum;
    give(j, y), give(j, sum);
    g[0] = some(9, 24), g[1] = some(9, 24);
    if (tg_gradients(out, 2, g, in, 4, dx, 0) != TG_OK) give(j, NULL);
    else
        for (int k = 0; k < 4; ++k) give(j, dx[k]);
    x = leaf_some(9, 24);
    give_all(j, tg_layer_norm(x, 1, NULL, NULL, 1e-5), &x, 1);
}

static void pools(job *j)
{
    tg_tensor *x = leaf_some(1, 2, 6, 8);
    give_all(j, tg_max_pool2d(x, TG_SHAPE(2, 2), TG_SHAPE(2, 2), TG_SHAPE(0, 0)), &x, 1);
    give_all(j, tg_max_pool2d(x, TG_SHAPE(3, 3), TG_SHAPE(1, 1), TG_SHAPE(1, 1)), &x, 1);
    give_all(j, tg_avg_pool2d(x, TG_SHAPE(2, 2), TG_SHAPE(2, 2), TG_SHAPE(0, 0)), &x, 1);
    give_all(j, tg_avg_pool2d(x, TG_SHAPE(3, 3), TG_SHAPE(1, 1), TG_SHAPE(1, 1)), &x, 1);
    give_all(j, tg_interpolate(x, TG_SHAPE(9, 11), "bilinear"), &x, 1);
}

/* Places on both sides of the edges; more taps than one segment of sorted pairs has. */
static void places(job *j)
{
    static const char *const modes[] = {"nearest", "bilinear", "bicubic"};
    static const char *const paddings[] = {"zeros", "border", "reflection"};
    for (int k = 0; k < 3; ++k) {
        tg_tensor *in[2];
        in[0] = leaf_some(2, 3, 4, 5);
        in[1] = tg_set_requires_grad(tg_sub_scalar(tg_mul_scalar(some(2, 6, 9, 2), 0.7), 1.3), true);
        give_all(j, tg_grid_sample(in[0], in[1], modes[k], paddings[k], k != 1), in, 2);
    }
}

/* Targets that are repeated, that are none, and that cannot be reached in the steps of the item. */
static void sequences(job *j)
{
    static const int64_t steps[] = {9, 7, 0, 3, 4}, sizes[] = {3, 2, 0, 0, 3};
    static const int64_t labels[] = {1, 1, 2, 3, 5, 0, 1, 2, 3, 4, 1, 2, 4, 4, 4};
    tg_tensor *x = leaf_some(9, 5, 6), *targets = tg_to(tg_from_i64(labels, TG_SHAPE(5, 3)), j->where);
    tg_tensor *of_steps = tg_from_i64(steps, TG_SHAPE(5)), *of_sizes = tg_from_i64(sizes, TG_SHAPE(5));
    give_all(j, tg_ctc_loss(tg_log_softmax(x, -1), targets, of_steps, of_sizes, 0, TG_NONE, false), &x, 1);
}

/* im2col moves words of each size; col2im adds in each dtype. */
static void columns(job *j)
{
    tg_tensor *x = some(1, 2, 5, 6), *y;
    const tg_shape two = TG_DIMS(2, 2), one = TG_DIMS(1, 1), none = TG_DIMS(0, 0);
    y = tg_im2col(x, two, one, none, one);
    give(j, y);
    give(j, tg_col2im(y, TG_DIMS(5, 6), two, one, none, one));
    give(j, tg_conv2d(x, some(3, 2, 2, 2), NULL, one, none, one, 1));
}

static void transforms(job *j)
{
    static const int64_t sizes[] = {12, 37};
    for (int k = 0; k < 2; ++k) {
        tg_tensor *x = some(2, sizes[k]), *y = tg_fft_rfft(x, -1, 1, NULL);
        give(j, y);
        give(j, tg_fft_irfft(y, sizes[k], 1, NULL));
    }
}

static void factors(job *j)
{
    tg_tensor *x = tg_add(some(2, 4, 4), tg_mul_scalar(tg_to_like(tg_eye(4), some(1)), 9));
    give(j, tg_linalg_inv(x));
    give(j, tg_linalg_det(x));
}

static void integer_products(job *j) { give(j, tg_matmul(some(3, 5), some(5, 4))); }

static void cells(job *j)
{
    for (int64_t n = 3; n <= 8; n += 5) {
        tg_tensor *x = leaf_some(2, 4 * n), *h = leaf_some(2, 4 * n), *c = leaf_some(2, n), *in[3], *y;
        in[0] = x, in[1] = h, in[2] = c;
        y = inside_lstm_step(x, h, &c);
        give_all(j, y, in, 2);
        give(j, c);
    }
}

static void attention(job *j)
{
    for (int64_t width = 16; width <= 80; width += 64) {
        tg_tensor *in[3], *g, *y, *dx[3];
        for (int k = 0; k < 3; ++k)
            in[k] = tg_set_requires_grad(tg_mul_scalar(some(1, 5 + 2 * (k > 0), width), 0.1), true);
        y = tg_scaled_dot_product_attention(in[0], in[1], in[2], NULL, 0, false, 0);
        g = some(1, 5, width);
        give(j, y);
        if (tg_gradients(&y, 1, &g, in, 3, dx, 0) != TG_OK) give(j, NULL);
        else
            for (int k = 0; k < 3; ++k) give(j, dx[k]);
    }
}

/* Random numbers are those of the CPU. */
static void random_numbers(job *j)
{
    give(j, tg_rand_on(TG_SHAPE(35), j->dtype, j->where));
    give(j, tg_randn_on(TG_SHAPE(35), j->dtype, j->where));
    give(j, tg_bernoulli_on(TG_SHAPE(35), 0.3, j->dtype, j->where));
    give(j, tg_randint_on(0, 9, TG_SHAPE(35), TG_I64, j->where));
    give(j, tg_dropout(some(35), 0.4, true));
    give(j, tg_exponential_(some(35), 2));
}

static void steps(job *j)
{
    tg_optim *(*const optims[])(tg_tensor *const *, int, double) = {tg_sgd,     tg_adam,    tg_adamw,
                                                                    tg_rmsprop, tg_adagrad, tg_adadelta};
    tg_tensor *x[2], *y;
    for (int k = 0; k < 6; ++k) {
        tg_optim *o;
        x[0] = leaf_some(11), x[1] = leaf_some(3, 3);
        o = optims[k](x, 2, 0.1);
        y = tg_add(tg_sum(tg_square(x[0])), tg_sum(tg_square(x[1])));
        CHECK(tg_backward(y) == TG_OK && tg_clip_grad_norm(x, 2, 0.5) && tg_step(o) == TG_OK);
        give(j, tg_detach(x[0])), give(j, tg_detach(x[1]));
        tg_optim_free(o);
    }
}

/* The parameters of a module are cast, all at once from the second step on. */
static void low_parameters(job *j)
{
    tg_module *m = tg_nn_linear(16, 4, true);
    tg_tensor *x = some_of(j, TG_F32, TG_SHAPE(3, 16));
    tg_optim *o;
    CHECK(tg_module_to(m, j->where));
    o = tg_sgd(tg_module_params(m), tg_module_count(m), 0.1);
    for (int k = 0; k < 2; ++k) {
        tg_tensor *y;
        {
            TG_AUTOCAST(j->dtype);
            y = tg_forward(m, x);
        }
        give(j, tg_detach(y));
        CHECK(tg_backward(tg_sum(y)) == TG_OK && tg_step(o) == TG_OK);
    }
    tg_optim_free(o);
    tg_module_free(m);
}

/* A captured step, whose random numbers are new in each run. */
static bool draws(void *user)
{
    tg_tensor *x = (tg_tensor *)user;
    return tg_copy_(x, tg_dropout(tg_add_scalar(tg_mul_scalar(x, 0), 1), 0.5, true)) != NULL;
}

static void captured(job *j)
{
    tg_tensor *x = some(35);
    tg_capture *capture = tg_capture_new(j->where, draws, x);
    for (int k = 0; k < 4; ++k) CHECK(tg_capture_run(capture) == TG_OK);
    CHECK(j->where.type == TG_DEV_CPU || !tg_capture_obstacle(capture));
    give(j, x);
    tg_capture_free(capture);
}

TEST(writes)
{
    BOTH(conversions, EVERY);
    BOTH(copies, EVERY);
    BOTH(single_elements, EVERY & ~(1 << TG_BOOL));
    BOTH(strided_maps, FLOATING | 1 << TG_I64);
    BOTH(indexing, FLOATING | 1 << TG_I64);
    BOTH(columns, EVERY & ~(1 << TG_BOOL));
}

TEST(rows_and_columns)
{
    BOTH(reductions, FLOATING | 1 << TG_I64);
    BOTH(rows_of, FLOATING);
    BOTH(losses, FLOATING);
    BOTH(odd_rows, FLOATING);
    BOTH(orders, FLOATING | 1 << TG_I64);
    BOTH(long_rows, FLOATING);
    BOTH(sums_of_many_rows, FLOATING);
    BOTH(pools, FLOATING);
    BOTH(places, WIDE);
    BOTH(sequences, WIDE);
    BOTH(transforms, WIDE);
    BOTH(factors, WIDE);
    BOTH(integer_products, 1 << TG_I64);
    BOTH(cells, FLOATING);
}

/* Also for itself, on a device of compute capability 9.0, which has other kernels. */
TEST(fused_attention) { BOTH(attention, NARROW); }

TEST(randomness_and_steps)
{
    BOTH(random_numbers, FLOATING);
    BOTH(steps, FLOATING);
    BOTH(low_parameters, LOW);
}

TEST(captured_steps)
{
    tg_shutdown(); /* so that the device begins anew: nothing is captured where each block of memory comes from CUDA */
    setenv("TG_CUDA_PASS_THROUGH", "0", 1);
    BOTH(captured, 1 << TG_F32);
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    if (harness_has_no_gpu()) return 0;
    inside_plain(true); /* what the CPU computes here is the oracle */
    RUN(rows_in_f32);
    RUN(rows_in_bf16);
    RUN(rows_in_f16);
    RUN(writes);
    RUN(rows_and_columns);
    RUN(fused_attention);
    RUN(randomness_and_steps);
    RUN(captured_steps); /* the last one */
    tg_shutdown();
    return harness_end();
}
