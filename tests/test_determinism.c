/* Results are the same to the bit: run after run, on any number of threads, and for a row whether it is computed
 * alone or with others.  Every kernel that splits its work is here, at a size where it does.  Without OpenMP there
 * is one thread, and the program says that it skips the second test.  On a device (TG_TEST_DEVICE) the
 * printed hash must be the one of every other order in which its threads can run: whoever runs several orders
 * compares the hashes. */
#if !defined(__cplusplus) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L /* fork */
#endif
#include "tensorgrad.h"
#include "harness.h"
#if defined(_OPENMP) && (defined(__unix__) || defined(__APPLE__))
#include <sys/wait.h>
#endif

enum { ROWS = 600, COLS = 700, OPS = 41 };

/* Both gradients of a convolution of x to so many maps, one after the other. */
static tg_tensor *convolution_gradients(tg_tensor *x, int64_t maps)
{
    tg_tensor *in[2], *grad[2], *y, *w = tg_randn(TG_SHAPE(maps, tg_dim(x, 1), 3, 3));
    in[0] = tg_set_requires_grad(x, true), in[1] = tg_set_requires_grad(w, true);
    y = tg_square(tg_conv2d(x, in[1], NULL, TG_SHAPE(1), TG_SAME, TG_SHAPE(1), 1));
    y = tg_sum(y);
    if (tg_gradients(&y, 1, NULL, in, 2, grad, 0) != TG_OK) return NULL;
    for (int i = 0; i < 2; ++i) grad[i] = tg_flatten(grad[i], 0, -1);
    return tg_cat(grad, 2, 0);
}

/* The gradients of 8,000 places on the one image x [1, 10, 60, COLS], one after the other. */
static tg_tensor *sample_gradients(tg_tensor *x)
{
    tg_tensor *in[2], *grad[2], *y;
    in[0] = tg_set_requires_grad(x, true);
    in[1] = tg_set_requires_grad(tg_mul_scalar(tg_randn(TG_SHAPE(1, 80, 100, 2)), 0.5), true);
    y = tg_sum(tg_square(tg_grid_sample(x, in[1], "bilinear", "reflection", false)));
    if (tg_gradients(&y, 1, NULL, in, 2, grad, 0) != TG_OK) return NULL;
    for (int i = 0; i < 2; ++i) grad[i] = tg_flatten(grad[i], 0, -1);
    return tg_cat(grad, 2, 0);
}

/* Result number k of a fixed list, from fixed random numbers. */
static tg_tensor *result(int k)
{
    tg_tensor *a, *b, *ids, *x, *y, *g = NULL;
    tg_seed(5);
    a = tg_randn(TG_SHAPE(ROWS, COLS)), b = tg_randn(TG_SHAPE(COLS, ROWS)), ids = tg_randint(0, ROWS, TG_SHAPE(4000));
    switch (k) {
    case 0: return tg_matmul(a, b);
    case 1: return tg_matmul(tg_t(b), tg_t(a));
    case 2: return tg_matmul(tg_reshape(a, TG_SHAPE(30, 20, COLS)), tg_reshape(a, TG_SHAPE(30, COLS, 20)));
    case 3: return tg_sum(a);
    case 4: return tg_sum_dim(a, 0, false);
    case 5: return tg_sum_dim(tg_t(a), 0, false);
    case 6: return tg_mean(tg_to_dtype(a, TG_BF16));
    case 7: return tg_softmax(a, 1);
    case 8: return tg_log_softmax(a, 0);
    case 9: return tg_layer_norm(a, 1, NULL, NULL, 1e-5);
    case 10: return tg_cumsum(a, 1);
    case 11: return tg_mul(tg_exp(a), tg_t(b));
    case 12: return tg_to_dtype(tg_t(a), TG_F16);
    case 13: return tg_index_select(a, 0, ids);
    case 14: return tg_index_add(tg_zeros(TG_SHAPE(ROWS, 40)), 0, ids, tg_randn(TG_SHAPE(4000, 40)));
    case 15: return tg_sort(a, 1, true, NULL);
    case 16: return tg_argmax(a, 1, false);
    case 17: return tg_var_dim(a, 0, 1, false);
    case 18: return tg_prod_dim(a, 1, false);
    case 19: return tg_randint(0, 1000, TG_SHAPE(ROWS, COLS));
    case 20: return tg_matmul(a, tg_select(b, 1, 0));
    case 21: return tg_interpolate(tg_reshape(a, TG_SHAPE(1, 10, 60, COLS)), TG_SHAPE(90, 300), "bilinear");
    case 22: /* their gradients */
    case 23:
        x = tg_set_requires_grad(tg_reshape(a, TG_SHAPE(10, 60, COLS)), true);
        y = (k == 22 ? tg_max_pool2d : tg_avg_pool2d)(x, TG_SHAPE(5), TG_SHAPE(2), TG_SHAPE(1));
        y = tg_sum(tg_square(y));
        return tg_gradients(&y, 1, NULL, &x, 1, &g, 0) == TG_OK ? g : NULL;
    case 24: return convolution_gradients(tg_reshape(a, TG_SHAPE(60, 10, 28, 25)), 4);
    case 25: /* a batch norm in training, and its gradient */
        x = tg_set_requires_grad(tg_reshape(a, TG_SHAPE(60, 10, COLS)), true);
        y = tg_batch_norm(x, NULL, NULL, tg_ones(TG_SHAPE(10)), NULL, true, 0.1, 1e-5);
        y = tg_sum(tg_square(tg_square(y)));
        return tg_gradients(&y, 1, NULL, &x, 1, &g, 0) == TG_OK ? g : NULL;
    case 26: return tg_multinomial(tg_exp(a), 40, true);
    case 27: /* the gradient of attention */
        x = tg_set_requires_grad(tg_reshape(tg_narrow(a, 0, 0, 100), TG_SHAPE(7, COLS / 7, 100)), true);
        y = tg_square(tg_scaled_dot_product_attention(x, x, x, NULL, 0, true, 0));
        y = tg_sum(y);
        return tg_gradients(&y, 1, NULL, &x, 1, &g, 0) == TG_OK ? g : NULL;
    case 28: return tg_matmul(tg_to_dtype(a, TG_BF16), tg_to_dtype(b, TG_BF16));
    case 29: return tg_matmul(tg_narrow(a, 0, 0, 40), tg_narrow(b, 1, 0, 70)); /* few tiles, much to add up */
    case 30: return tg_matmul(tg_narrow(a, 0, 0, 7), b); /* few rows */
    case 31: return tg_matmul(tg_to_dtype(tg_narrow(a, 0, 0, 7), TG_BF16), tg_t(tg_to_dtype(tg_t(b), TG_BF16)));
    case 32: return sample_gradients(tg_reshape(a, TG_SHAPE(1, 10, 60, COLS)));
    case 33:
        x = tg_reshape(a, TG_SHAPE(1, 10, 60, COLS));
        return tg_grid_sample(x, tg_randn(TG_SHAPE(1, 80, 100, 2)), "bicubic", "zeros", true);
    case 34: /* complex numbers, and their gradient */
        x = tg_set_requires_grad(tg_view(a, TG_SHAPE(ROWS, COLS / 2, 2)), true);
        y = tg_complex_mul(x, tg_view(tg_narrow(a, 0, 3, 1), TG_SHAPE(COLS / 2, 2)));
        y = tg_sum(tg_square(tg_complex_mul(y, x)));
        return tg_gradients(&y, 1, NULL, &x, 1, &g, 0) == TG_OK ? g : NULL;
    case 35: /* a gate, and its gradient */
        x = tg_set_requires_grad(a, true);
        y = tg_sum(tg_square(tg_glu(x, 0)));
        return tg_gradients(&y, 1, NULL, &x, 1, &g, 0) == TG_OK ? g : NULL;
    case 36: return convolution_gradients(tg_reshape(a, TG_SHAPE(7, 60, 25, 40)), 33); /* by tiles of windows */
    case 37: return tg_mean_dim(tg_view(a, TG_SHAPE(2, ROWS * COLS / 2)), 0, false);
    case 38: /* few long rows */
        x = tg_view(a, TG_SHAPE(10, ROWS * COLS / 10));
        return tg_pairwise_distance(x, tg_flip(x, TG_DIMS(0)), 2, 1e-6, false);
    case 39: return tg_pad_mode(tg_reshape(a, TG_SHAPE(60, 10, 28, 25)), TG_DIMS(2, 1, 3, 2), "reflect");
    default: /* a gradient through most of them */
        x = tg_set_requires_grad(a, true);
        y = tg_gelu(tg_layer_norm(tg_matmul(tg_softmax(x, 1), b), 1, NULL, NULL, 1e-5), true);
        y = tg_cross_entropy(y, tg_randint(0, ROWS, TG_SHAPE(ROWS)));
        return tg_gradients(&y, 1, NULL, &x, 1, &g, 0) == TG_OK ? g : NULL;
    }
}

TEST(runs_repeat_to_the_bit)
{
    uint64_t hash = HARNESS_HASH;
    tg_set_num_threads(1);
    for (int k = 0; k < OPS; ++k) {
        TG_SCOPE;
        tg_tensor *once = result(k), *again = result(k);
        CHECK(once != NULL);
        hash = harness_mix_tensor(hash, once);
        if (!CHECK(again && tg_equal(once, again))) printf("    result %d\n", k);
    }
    tg_set_num_threads(0);
    printf("bits %016llx\n", (unsigned long long)hash);
}

#ifdef _OPENMP
TEST(threads_do_not_change_a_bit)
{
    static const int threads[] = {2, 3, 4, 8};
    for (int k = 0; k < OPS; ++k) {
        TG_SCOPE;
        tg_set_num_threads(1);
        tg_tensor *alone = result(k);
        for (size_t i = 0; i < sizeof threads / sizeof *threads; ++i) {
            tg_set_num_threads(threads[i]);
            tg_tensor *again = result(k);
            if (!CHECK(alone && again && tg_equal(alone, again)))
                printf("    result %d with %d threads\n", k, threads[i]);
        }
    }
    tg_set_num_threads(0);
}

#if defined(__unix__) || defined(__APPLE__)
/* Ends the process: with 0 if it computes what the parent did.  If it hangs, SIGALRM ends it. */
static void be_a_child(tg_tensor *expected)
{
    alarm(30);
    bool same = tg_equal(result(0), expected);
    tg_shutdown();
    tg_set_num_threads(4);
    {
        TG_SCOPE;
        same = same && result(0) && result(24);
    }
    harness_leave_child(same ? 0 : 1);
}

/* After an op on several threads, of which the child has one; in the child of the child, too. */
TEST(a_child_of_fork_computes_the_same)
{
    int status = -1;
    tg_set_num_threads(4);
    tg_tensor *expected = result(0);
    const pid_t child = fork();
    if (child == 0) {
        const pid_t grandchild = fork();
        if (grandchild == 0) be_a_child(expected);
        if (waitpid(grandchild, &status, 0) != grandchild || status != 0) _exit(2);
        be_a_child(expected);
    }
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(tg_equal(result(0), expected));
    tg_set_num_threads(0);
}
#endif
#endif

/* Means that several threads divide, against sums that are divided: the last of them are of sums that only their halves
   show to be finite. */
TEST(means_on_threads)
{
    enum { N = 70001 };
    static const tg_dtype dtypes[] = {TG_F32, TG_F64, TG_BF16};
    tg_set_num_threads(3);
    for (int i = 0; i < 3; ++i) {
        tg_tensor *x = tg_to_dtype(tg_randn_on(TG_SHAPE(3, N), TG_F32, TG_CPU), dtypes[i]);
        const tg_dtype wide = dtypes[i] == TG_BF16 ? TG_F32 : dtypes[i];
        tg_tensor *sum = tg_sum_dim(tg_to_dtype(x, wide), 0, false);
        CHECK(tg_equal(tg_mean_dim(x, 0, false), tg_to_dtype(tg_div_scalar(sum, 3), dtypes[i])));
        const double most = dtypes[i] == TG_F64 ? 1.5e308 : ldexp(1, 127);
        tg_fill_(tg_narrow(x, 1, N - 2, 2), most);
        tg_tensor *last = tg_to_dtype(tg_narrow(tg_mean_dim(x, 0, false), 0, N - 2, 2), TG_F64);
        CHECK(fabs(tg_get(last, TG_INDEX(0)) / most - 1) < 1e-2 && fabs(tg_get(last, TG_INDEX(1)) / most - 1) < 1e-2);
        tg_set(x, TG_INDEX(1, N - 1), (double)NAN);
        CHECK(isnan(tg_get(tg_mean_dim(x, 0, false), TG_INDEX(N - 1))));
    }
    tg_set_num_threads(0);
}

/* An index outside is found in whichever part it is, also in one with gaps, and named by its place. */
TEST(indices_are_checked_on_threads)
{
    enum { N = 303 };
    tg_tensor *x = tg_randn_on(TG_SHAPE(N, N), TG_F32, TG_CPU);
    tg_set_num_threads(3);
    for (int wide = 0; wide < 2; ++wide) {
        for (int gaps = 0; gaps < 2; ++gaps) {
            tg_tensor *index = tg_zeros_on(TG_SHAPE(N, gaps ? 2 * N : N), wide ? TG_I64 : TG_I32, TG_CPU);
            if (gaps) index = tg_slice(index, 1, 0, 2 * N, 2);
            CHECK(tg_equal(tg_gather(x, 1, index), tg_expand(tg_narrow(x, 1, 0, 1), TG_SHAPE(N, N))));
            for (int k = 0; k < 3; ++k) {
                const int64_t at[3] = {0, N / 2, N - 1};
                tg_set(index, TG_INDEX(at[k], at[k]), k == 1 ? -1 : N);
                CHECK_FAILS(tg_gather(x, 1, index), k == 1 ? "index -1 is out of bounds for dimension 1"
                                                           : "index 303 is out of bounds for dimension 1");
                tg_set(index, TG_INDEX(at[k], at[k]), 5);
            }
        }
    }
    tg_set_num_threads(0);
}

static tg_tensor *softmax_gradient(tg_tensor *x, tg_tensor *g)
{
    tg_tensor *leaf = tg_set_requires_grad(tg_detach(x), true), *y = tg_softmax(leaf, 1), *dx = NULL;
    return tg_gradients(&y, 1, &g, &leaf, 1, &dx, 0) == TG_OK ? dx : NULL;
}

/* Results so large that they are written past the caches, or that memory is asked for ahead of the kernel, against the
   same numbers in parts that are not; on three threads, so that parts begin anywhere. */
TEST(large_results)
{
    enum { PARTS = 3, WIDTH = 1003 };
    const int64_t n = (((int64_t)8 << 20) + 41) / PARTS;
    tg_tensor *a = tg_arange_on(0, (double)(PARTS * n), 1, TG_F32, TG_CPU), *b = tg_rsub_scalar(a, 7);
    tg_tensor *bias = tg_arange_on(0, (double)n, 1, TG_F32, TG_CPU);
    tg_set_num_threads(3);
    tg_tensor *sum = tg_add(a, b), *rows = tg_mul(tg_view(a, TG_SHAPE(PARTS, n)), bias);
    tg_tensor *most = tg_maximum(a, b), *same = tg_add_(tg_clone(a), b);
    tg_tensor *angle = tg_atan2(a, b), *root = tg_log1p(a), *wide = tg_log1p(tg_to_dtype(a, TG_F64));
    tg_tensor *matrix = tg_view(tg_sin(tg_narrow(a, 0, 0, n / WIDTH * WIDTH * PARTS)), TG_SHAPE(-1, WIDTH));
    tg_tensor *slopes = tg_square(matrix), *dx = softmax_gradient(matrix, slopes);
    tg_set_num_threads(0);
    for (int i = 0; i < PARTS; ++i) {
        const int64_t height = n / WIDTH;
        tg_tensor *part = tg_narrow(matrix, 0, i * height, height), *g = tg_narrow(slopes, 0, i * height, height);
        CHECK(tg_equal(tg_narrow(dx, 0, i * height, height), softmax_gradient(part, g)));
        tg_tensor *x = tg_narrow(a, 0, i * n, n), *y = tg_narrow(b, 0, i * n, n);
        CHECK(tg_equal(tg_narrow(sum, 0, i * n, n), tg_add(x, y)));
        CHECK(tg_equal(tg_narrow(most, 0, i * n, n), tg_maximum(x, y)));
        CHECK(tg_equal(tg_narrow(same, 0, i * n, n), tg_add(x, y)));
        CHECK(tg_equal(tg_select(rows, 0, i), tg_mul(x, bias)));
        CHECK(tg_equal(tg_narrow(angle, 0, i * n, n), tg_atan2(x, y)));
        CHECK(tg_equal(tg_narrow(root, 0, i * n, n), tg_log1p(x)));
        CHECK(tg_equal(tg_narrow(wide, 0, i * n, n), tg_log1p(tg_to_dtype(x, TG_F64))));
    }
}

/* Many rows that are contiguous each: a part of a wider tensor, beside a bias and a row for each of its matrices,
   against contiguous operands; also on three threads, whose parts begin within a matrix. */
TEST(many_rows)
{
    enum { MATRICES = 5, HEIGHT = 83, WIDTH = 301 };
    const tg_shape shape = TG_SHAPE(MATRICES, HEIGHT, WIDTH);
    tg_seed(9);
    tg_tensor *x = tg_narrow(tg_randn(TG_SHAPE(MATRICES, HEIGHT, WIDTH + 19)), 2, 7, WIDTH);
    tg_tensor *bias = tg_randn(TG_SHAPE(WIDTH)), *rows = tg_randn(TG_SHAPE(MATRICES, 1, WIDTH));
    tg_tensor *dense = tg_contiguous(x), *all_bias = tg_contiguous(tg_expand(bias, shape));
    tg_tensor *all_rows = tg_contiguous(tg_expand(rows, shape));
    for (int threads = 1; threads < 4; threads += 2) {
        tg_set_num_threads(threads);
        tg_tensor *in_place = tg_narrow(tg_zeros(TG_SHAPE(MATRICES, HEIGHT, WIDTH + 1)), 2, 1, WIDTH);
        CHECK(tg_equal(tg_add(x, bias), tg_add(dense, all_bias)));
        CHECK(tg_equal(tg_mul(rows, x), tg_mul(all_rows, dense)));
        CHECK(tg_equal(tg_where(tg_gt_scalar(x, 0), bias, x), tg_where(tg_gt_scalar(dense, 0), all_bias, dense)));
        CHECK(tg_equal(tg_sub_(tg_copy_(in_place, x), rows), tg_sub(dense, all_rows)));
        CHECK(tg_equal(tg_sub(tg_transpose(x, 0, 1), bias), tg_transpose(tg_sub(dense, all_bias), 0, 1)));
    }
    tg_set_num_threads(0);
}

/* Row by row result number k of a [rows, COLS], or NULL after the last. */
static tg_tensor *of_rows(int k, tg_tensor *a)
{
    switch (k) {
    case 0: return tg_softmax(a, 1);
    case 1: return tg_log_softmax(a, 1);
    case 2: return tg_layer_norm(a, 1, NULL, NULL, 1e-5);
    case 3: return tg_cumsum(a, 1);
    case 4: return tg_sort(a, 1, true, NULL);
    case 5: return tg_sum_dim(a, 1, false);
    case 6: return tg_prod_dim(a, 1, false);
    case 7: return tg_gelu(tg_mul(tg_exp(a), a), false);
    case 8: { /* rows of 350 complex numbers: whole vectors and a rest */
        tg_tensor *z = tg_view(tg_contiguous(a), TG_SHAPE(tg_dim(a, 0), COLS / 2, 2));
        return tg_complex_mul(z, tg_flip(z, TG_DIMS(-2)));
    }
    case 9: { /* the same numbers times those of one row, in f64 */
        tg_tensor *z = tg_to_dtype(tg_view(tg_contiguous(a), TG_SHAPE(tg_dim(a, 0), COLS / 14, 7, 2)), TG_F64);
        return tg_complex_mul(z, tg_view(tg_arange_on(0, 14, 1, TG_F64, tg_device_of(z)), TG_SHAPE(7, 2)));
    }
    case 10: return tg_glu(a, 1);
    default: return NULL;
    }
}

/* How work is split must not show: 600 rows at once, and in three pieces of which one is a single row. */
TEST(rows_do_not_depend_on_their_number)
{
    static const int64_t start[] = {0, 1, 418, ROWS};
    tg_seed(5);
    tg_tensor *a = tg_randn(TG_SHAPE(ROWS, COLS)), *whole;
    for (int k = 0; (whole = of_rows(k, a)) != NULL; ++k) {
        TG_SCOPE;
        for (int i = 0; i < 3; ++i) {
            const int64_t n = start[i + 1] - start[i];
            tg_tensor *piece = of_rows(k, tg_narrow(a, 0, start[i], n));
            if (!CHECK(piece && tg_equal(piece, tg_narrow(whole, 0, start[i], n)))) printf("    result %d\n", k);
        }
    }
}

/* Function number k of x, or NULL after the last. */
static tg_tensor *of_numbers(int k, tg_tensor *x)
{
    switch (k) {
    case 0: return tg_gelu(x, false);
    case 1: return tg_gelu(x, true);
    case 2: return tg_exp(x);
    case 3: return tg_tanh(x);
    case 4: return tg_erf(x);
    case 5: return tg_sigmoid(x);
    case 6: return tg_silu(x);
    default: return NULL;
    }
}

/* 83 numbers at once, some of them far from 0, infinite or NaN, and one by one. */
TEST(numbers_do_not_depend_on_their_neighbours)
{
    const float special[] = {-HUGE_VALF, HUGE_VALF, -20, 3.9375f, -3.9374998f, 0};
    float x[83];
    tg_seed(6);
    CHECK(tg_copy_out(tg_mul_scalar(tg_randn_on(TG_SHAPE(83), TG_F32, TG_CPU), 2), x, sizeof x) == TG_OK);
    for (int i = 0; i < 7; ++i) x[9 * i + 5] = i < 6 ? special[i] : NAN;
    tg_tensor *const all = tg_from(x, TG_SHAPE(83), TG_F32), *whole;
    for (int k = 0; (whole = of_numbers(k, all)) != NULL; ++k) {
        for (int i = 0; i < 83; ++i) {
            TG_SCOPE;
            const double one = tg_item(of_numbers(k, tg_narrow(all, 0, i, 1))), same = tg_get(whole, TG_INDEX(i));
            if (!CHECK(one == same || (isnan(one) && isnan(same)))) printf("    function %d of %g\n", k, (double)x[i]);
        }
    }
}

/* ---- denormals ---- */

/* Result number k of a tensor that is 1e-40 everywhere, or NULL after the last. */
static tg_tensor *of_denormals(int k, tg_tensor *x)
{
    switch (k) {
    case 0: return tg_add(x, x);
    case 1: return tg_mul_scalar(x, 0.5);
    case 2: return tg_exp(tg_add_scalar(x, -100)); /* 3.8e-44 */
    case 3: return tg_sub(tg_add_scalar(x, 2e-38), tg_full_like(x, 2e-38)); /* its operands are no denormals */
    case 4: return tg_log(x);
    case 5: return tg_relu(x);
    case 6: return tg_maximum(x, tg_neg(x));
    case 7: return tg_gt_scalar(x, 0);
    case 8: return tg_sqrt(x);
    case 9: return tg_tanh(x);
    default: return NULL;
    }
}

/* Whether result k of 1, 100 and 300,000 elements, contiguous and not, on one and two threads, is the same number
 * everywhere; it is stored in *number. */
static bool denormals_agree(int k, bool flush, double *number)
{
    const int several = strcmp(tg_cpu_capability(), "plain") == 0 ? 2 : 3; /* where none is split, not the most */
    static const int64_t sizes[] = {1, 100, 300000};
    bool same = true;
    for (int layout = 0; layout < 2; ++layout) {
        for (int i = 0; i < several; ++i) {
            TG_SCOPE;
            const float tiny = 1e-40f;
            tg_tensor *x = tg_expand(tg_from_f32(&tiny, TG_SHAPE(1)), TG_SHAPE(sizes[i])), *y;
            x = tg_expand(tg_unsqueeze(x, 1), TG_SHAPE(sizes[i], 3)); /* copies keep denormals */
            x = layout ? tg_select(tg_clone(tg_contiguous(x)), 1, 1) : tg_contiguous(tg_select(x, 1, 1));
            for (int threads = 1; threads < 3; ++threads) {
                tg_set_num_threads(threads);
                tg_set_flush_denormal(flush);
                y = of_denormals(k, x);
                tg_set_flush_denormal(false); /* a comparison would take them as 0, too */
                if (!i && !layout && threads == 1) *number = tg_item(y);
                same = same && y && tg_equal(y, tg_full_like(y, *number));
            }
        }
    }
    tg_set_num_threads(0);
    return same;
}

TEST(denormals_are_kept_or_flushed)
{
    static const double kept[] = {2e-40, 5e-41, 3.8e-44, 1e-40, -92.1034, 1e-40, 1e-40, 1, 1e-20, 1e-40};
    double number = 0;
    for (int k = 0; k < 10; ++k) {
        if (!CHECK(denormals_agree(k, false, &number)) || !CHECK(fabs(number / kept[k] - 1) < 0.02))
            printf("    result %d: %g\n", k, number);
    }
    if (!tg_set_flush_denormal(false)) {
        printf("skipped: this processor has no mode for denormals\n");
        return;
    }
    for (int k = 0; k < 10; ++k) {
        if (!CHECK(denormals_agree(k, true, &number)) || (k < 4 && !CHECK(number == 0)))
            printf("    flushed result %d: %g\n", k, number);
    }
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    harness_take_device();
    printf("%s\n", tg_build_info());
    const bool one_thread = harness_skips_plain("runs_repeat_to_the_bit, threads_do_not_change_a_bit, large_results, "
                                                "rows_do_not_depend_on_their_number, a_child_of_fork_computes_the_same, "
                                                "for no work is split");
    if (!one_thread) RUN(runs_repeat_to_the_bit);
#ifdef _OPENMP
    if (tg_device_equal(HERE, TG_CPU) && !one_thread) RUN(threads_do_not_change_a_bit);
#else
    if (tg_device_equal(HERE, TG_CPU)) printf("skipped: threads_do_not_change_a_bit: compiled without OpenMP\n");
#endif
    if (!one_thread) RUN(rows_do_not_depend_on_their_number);
    RUN(numbers_do_not_depend_on_their_neighbours);
    RUN(many_rows);
    if (tg_device_equal(HERE, TG_CPU) && !one_thread) RUN(large_results);
    if (tg_device_equal(HERE, TG_CPU)) RUN(means_on_threads);
    if (tg_device_equal(HERE, TG_CPU)) RUN(indices_are_checked_on_threads);
#if defined(_OPENMP) && (defined(__unix__) || defined(__APPLE__))
    if (tg_device_equal(HERE, TG_CPU) && !one_thread) RUN(a_child_of_fork_computes_the_same); /* a child has no GPU */
#else
    printf("skipped: a_child_of_fork_computes_the_same: compiled without OpenMP, or no fork() here\n");
#endif
    if (tg_device_equal(HERE, TG_CPU)) RUN(denormals_are_kept_or_flushed);
    CHECK(tg_shutdown() == TG_OK);
    return harness_end();
}
