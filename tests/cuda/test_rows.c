/* Kernels of tensorgrad_cuda.cu that keep rows in registers, against the plain backend in f64: softmax, layer_norm,
 * rms_norm and cross_entropy, forward and backward, for rows of all lengths that the kernels tell apart; how many kernels run, and
 * how many bytes they move; and a step of an LSTM.  Built by `make sim MAIN=tests/cuda/test_rows.c OUT=prog` for the
 * simulator; it runs on GPUs, too. */
#include "tensorgrad.h"
#include "counting.h"
#include "../inside.h"

static const tg_dtype dtypes[] = {TG_F32, TG_F64, TG_BF16, TG_F16};
static const double tolerances[] = {3e-6, 1e-12, 1.2e-2, 1.5e-3}; /* of the largest element */
enum { DTYPES = 4, INPUTS = 4 };
static bool small; /* SMALL in the environment: fewer shapes */

/* x [rows, n], weight and bias [n], residual [rows, n]; targets [rows], some of which are ignored (-100). */
typedef struct {
    tg_tensor *in[INPUTS], *targets;
} arguments;

typedef tg_tensor *(*function)(const arguments *a);
static tg_tensor *softmax(const arguments *a) { return tg_softmax(a->in[0], 1); }
static tg_tensor *log_softmax(const arguments *a) { return tg_log_softmax(a->in[0], 1); }
static tg_tensor *softmax_across(const arguments *a) { return tg_softmax(a->in[0], 0); }
static tg_tensor *normalized(const arguments *a) { return tg_layer_norm(a->in[0], 1, NULL, NULL, 1e-5); }
static tg_tensor *layer_norm(const arguments *a) { return tg_layer_norm(a->in[0], 1, a->in[1], a->in[2], 1e-5); }
static tg_tensor *without_bias(const arguments *a) { return tg_layer_norm(a->in[0], 1, a->in[1], NULL, 1e-5); }
static tg_tensor *rms_norm(const arguments *a) { return tg_rms_norm(a->in[0], 1, a->in[1], 1e-5); }
/* The norm and the sum, side by side. */
static tg_tensor *add_layer_norm(const arguments *a)
{
    tg_tensor *sum = NULL, *y = tg_add_layer_norm(a->in[0], a->in[3], 1, a->in[1], a->in[2], 1e-5, &sum);
    return y ? tg_cat(TG_LIST(y, sum), 1) : NULL;
}
static tg_tensor *add_rms_norm(const arguments *a)
{
    tg_tensor *sum = NULL, *y = tg_add_rms_norm(a->in[0], a->in[3], 1, a->in[1], 1e-5, &sum);
    return y ? tg_cat(TG_LIST(y, sum), 1) : NULL;
}
/* The sum is of no use to the loss. */
static tg_tensor *last_norm(const arguments *a)
{
    return tg_add_layer_norm(a->in[0], a->in[3], 1, a->in[1], a->in[2], 1e-5, NULL);
}
static tg_tensor *cross_entropy(const arguments *a)
{
    return tg_cross_entropy_ex(a->in[0], a->targets, NULL, -100, 0, TG_NONE);
}
static tg_tensor *smoothed(const arguments *a)
{
    return tg_cross_entropy_ex(a->in[0], a->targets, NULL, -100, 0.1, TG_NONE);
}
static tg_tensor *weighted(const arguments *a)
{
    return tg_cross_entropy_ex(a->in[0], a->targets, tg_detach(a->in[1]), -100, 0.1, TG_NONE);
}
static tg_tensor *mean_loss(const arguments *a)
{
    return tg_cross_entropy_ex(a->in[0], a->targets, NULL, -100, 0, TG_MEAN);
}
static tg_tensor *weighted_mean(const arguments *a)
{
    return tg_cross_entropy_ex(a->in[0], a->targets, tg_detach(a->in[1]), -100, 0.1, TG_MEAN);
}

static const struct {
    const char *name;
    function call;
    unsigned inputs; /* that get gradients: bit i is input i */
} functions[] = {
    {"softmax", softmax, 1},
    {"log_softmax", log_softmax, 1},
    {"softmax_across", softmax_across, 1},
    {"normalized", normalized, 1},
    {"layer_norm", layer_norm, 7},
    {"without_bias", without_bias, 3},
    {"rms_norm", rms_norm, 3},
    {"add_layer_norm", add_layer_norm, 15},
    {"add_rms_norm", add_rms_norm, 11},
    {"last_norm", last_norm, 15},
    {"cross_entropy", cross_entropy, 1},
    {"smoothed", smoothed, 1},
    {"weighted", weighted, 1},
    {"mean_loss", mean_loss, 1},
    {"weighted_mean", weighted_mean, 1}};
enum { FUNCTIONS = sizeof functions / sizeof *functions, NORMS = 3, LOSSES = 10 };

/* Whether t is `wanted` up to the tolerance, a part of its largest finite element or of `least`. */
static bool agree(tg_tensor *t, tg_tensor *wanted, double tolerance, double least)
{
    tg_tensor *here = tg_to_dtype(tg_cpu(t), TG_F64), *dense = tg_contiguous(wanted);
    const double *const x = tg_data_f64(here), *const y = tg_data_f64(dense);
    double largest = least, off = 0;
    int64_t i;
    for (i = 0; x && y && i < tg_numel(t); ++i) {
        if (fabs(y[i]) > largest && !isinf(y[i])) largest = fabs(y[i]);
        if (x[i] != y[i] && !(fabs(x[i] - y[i]) <= off)) off = fabs(x[i] - y[i]);
    }
    if (x && y && off <= tolerance * largest) return true;
    printf("    %s is off by %g of %g\n", harness.sample, off, largest);
    return false;
}

/* A tensor on the device with the elements of `values`, which begins `start` elements after a place that is aligned. */
static tg_tensor *placed(tg_tensor *values, tg_dtype dtype, int64_t start)
{
    const int64_t n = tg_numel(values);
    tg_tensor *room = tg_empty_on(TG_SHAPE(n + start), dtype, TG_CUDA(0));
    tg_tensor *t = tg_view(tg_narrow(room, 0, start, n), tg_shape_of(values));
    tg_copy_(t, values);
    return t;
}

/* ones: the gradient of the result is 1, as that of a loss nearly always is, and not random. */
static void compare(int k, int f, const arguments *given, int64_t start, bool ones)
{
    TG_SCOPE;
    const double tolerance = tolerances[k], least = 1 / sqrt((double)tg_dim(given->in[0], 1));
    arguments here = *given, there = *given;
    tg_tensor *y[2], *g;
    int i;
    there.targets = tg_cuda(given->targets);
    for (i = 0; i < INPUTS; ++i) {
        there.in[i] = placed(given->in[i], dtypes[k], i % 3 == 0 ? start : 0);
        here.in[i] = tg_to_dtype(tg_cpu(there.in[i]), TG_F64); /* rounded */
        if (functions[f].inputs >> i & 1) tg_set_requires_grad(here.in[i], true), tg_set_requires_grad(there.in[i], true);
    }
    harness.sample = functions[f].name;
    y[0] = functions[f].call(&here);
    y[1] = functions[f].call(&there);
    if (!CHECK(y[0] && y[1]) || !CHECK(agree(y[1], tg_detach(y[0]), tolerance, least))) return;
    g = ones ? tg_ones_like(tg_detach(y[0])) : tg_randn_on(tg_shape_of(y[0]), TG_F64, TG_CPU);
    g = tg_to_dtype(g, dtypes[k]);
    tg_backward_ex(&y[0], 1, (tg_tensor *[]){tg_to_dtype(g, TG_F64)}, 0);
    tg_backward_ex(&y[1], 1, (tg_tensor *[]){tg_cuda(g)}, 0);
    for (i = 0; i < INPUTS; ++i) {
        tg_tensor *d[2];
        if (!(functions[f].inputs >> i & 1)) continue;
        d[0] = tg_grad(here.in[i]), d[1] = tg_grad(there.in[i]);
        if (!CHECK(d[0] && d[1] && agree(d[1], d[0], tolerance, least)))
            printf("    gradient %d, %s, %d rows of %d, from %d\n", i, tg_dtype_name(dtypes[k]),
                   (int)tg_dim(here.in[0], 0), (int)tg_dim(here.in[0], 1), (int)start);
    }
}

static void rows_of(int64_t rows, int64_t n, int64_t start)
{
    TG_SCOPE;
    arguments a;
    int64_t i;
    int k, f;
    tg_seed(11);
    a.in[0] = tg_mul_scalar(tg_randn_on(TG_SHAPE(rows, n), TG_F64, TG_CPU), 3);
    a.in[1] = tg_add_scalar(tg_rand_on(TG_SHAPE(n), TG_F64, TG_CPU), 0.5);
    a.in[2] = tg_randn_on(TG_SHAPE(n), TG_F64, TG_CPU);
    a.in[3] = tg_randn_on(TG_SHAPE(rows, n), TG_F64, TG_CPU);
    a.targets = tg_randint_on(0, n, TG_SHAPE(rows), TG_I64, TG_CPU);
    tg_data_i64(a.targets)[0] = n - 1; /* the first and the last class, too */
    if (rows > 1) tg_data_i64(a.targets)[1] = 0;
    for (i = 2; i < rows; i += 3) tg_data_i64(a.targets)[i] = -100;
    if (n > 4) tg_set(a.in[0], TG_INDEX(rows - 1, n / 2), -HUGE_VAL); /* as a mask does */
    for (k = 0; k < DTYPES; ++k) {
        for (f = 0; f < FUNCTIONS; ++f) {
            if (n > 4 && f >= NORMS && f < LOSSES) continue; /* no norm of infinity */
            compare(k, f, &a, start, false);
            if (f >= LOSSES) compare(k, f, &a, start, true);
        }
    }
    tg_set(a.in[0], TG_INDEX(rows - 1, n / 2), 2);
    for (k = 0; k < DTYPES; ++k) {
        for (f = NORMS; f < LOSSES; ++f) compare(k, f, &a, start, false);
    }
    harness.sample = NULL;
}

static void rows_of_losses(int64_t rows, int64_t n)
{
    TG_SCOPE;
    arguments a;
    int k, f;
    for (f = 0; f < INPUTS; ++f) a.in[f] = tg_randn_on(TG_SHAPE(f ? 1 : rows, n), TG_F64, TG_CPU);
    a.in[1] = tg_add_scalar(tg_rand_on(TG_SHAPE(n), TG_F64, TG_CPU), 0.5);
    a.targets = tg_randint_on(0, n, TG_SHAPE(rows), TG_I64, TG_CPU);
    for (k = 0; k < DTYPES; ++k) {
        for (f = LOSSES; f < FUNCTIONS; ++f) compare(k, f, &a, 0, true);
    }
    harness.sample = NULL;
}

/* A few threads, a warp, and teams of several warps; of whole packs or not. */
TEST(rows_in_registers)
{
    static const int64_t sizes[][2] = {{1, 1},   {5, 3},   {9, 64},   {3, 67},  {40, 128},
                                       {6, 511}, {7, 768}, {3, 2048}, {2, 4090}};
    int i;
    for (i = 0; i < (int)(sizeof sizes / sizeof *sizes); ++i) {
        rows_of(sizes[i][0], sizes[i][1], 0);
        if (!small) rows_of(sizes[i][0], sizes[i][1], 1);
    }
}

TEST(rows_in_chunks)
{
    rows_of(2, 8192, 0);
    rows_of(3, 8193, 0);
    if (!small) rows_of(2, 20001, 3);
}

/* Rows of logits of which the simulated multiprocessor has room for two in its shared memory, in 16 bits alone: more than
   a block has without asking; and longer ones. */
TEST(rows_of_many_classes)
{
    rows_of_losses(2, 24800);
    rows_of_losses(2, 24797);
    if (!small) rows_of_losses(2, 40000), rows_of_losses(2, 39999);
}

/* More rows than there are teams. */
TEST(many_rows) { rows_of(2500, 24, 0); }

/* The gradients of weight and bias are sums over all blocks, which have the same bits in whatever order these run, and
   when a launch runs again: of few blocks, of some groups of blocks, of as many as there can be, whose teams have
   several rows; rows consist of packs, or begin between them. */
TEST(sums_of_blocks)
{
#ifdef CUDASIM
    static const char *const orders[] = {"fwd", "rev", "greedy:1", "rand:3", "fwd"};
    static const int64_t rows[] = {3, 100, 700, 2500};
    int i, k;
    for (i = 0; i < 4; ++i) {
        TG_SCOPE;
        const int64_t n = i % 2 ? 259 : 256;
        tg_tensor *in[4], *y, *g, *first[3] = {NULL, NULL, NULL}, *cpu[4], *wanted, *of_cpu[3];
        tg_seed(5);
        g = tg_randn_on(TG_SHAPE(rows[i], n), TG_F32, TG_CUDA(0));
        in[0] = tg_randn_on(TG_SHAPE(rows[i], n), TG_F32, TG_CUDA(0));
        for (k = 1; k < 3; ++k) in[k] = tg_randn_on(TG_SHAPE(n), TG_F32, TG_CUDA(0));
        for (k = 0; k < 3; ++k) tg_set_requires_grad(in[k], true);
        for (k = 0; k < 3; ++k) cpu[k] = tg_set_requires_grad(tg_cpu(tg_detach(in[k])), true);
        wanted = tg_layer_norm(cpu[0], 1, cpu[1], cpu[2], 1e-5), cpu[3] = tg_cpu(g);
        CHECK(tg_gradients(&wanted, 1, &cpu[3], cpu, 3, of_cpu, 0) == TG_OK);
        for (k = 0; k < 5; ++k) {
            tg_tensor *d[3];
            int j;
            tg_synchronize(TG_CUDA(0));
            CHECK(cudasim_schedule(orders[k], NULL));
            y = tg_layer_norm(in[0], 1, in[1], in[2], 1e-5);
            CHECK(tg_gradients(&y, 1, &g, in, 3, d, 0) == TG_OK);
            CHECK(k > 0 || tg_allclose(tg_cpu(y), wanted, 1e-5, 1e-5));
            for (j = 0; j < 3; ++j) {
                d[j] = tg_cpu(d[j]);
                if (k == 0) first[j] = d[j];
                CHECK(k > 0 || tg_allclose(d[j], of_cpu[j], 1e-4, 1e-4));
                CHECK(!memcmp(tg_data_f32(d[j]), tg_data_f32(first[j]), (size_t)tg_numel(d[j]) * sizeof(float)));
            }
        }
    }
    cudasim_schedule(getenv("TG_SIM_ORDER") ? getenv("TG_SIM_ORDER") : "fwd", NULL);
#endif
}

/* Masked rows: of -inf alone, the softmax is NaN; where the elements of a thread's first chunk are -inf, it is not. */
TEST(masked_rows)
{
    TG_SCOPE;
    tg_tensor *x = tg_full_on(TG_SHAPE(2, 20000), -HUGE_VAL, TG_F32, TG_CPU), *y, *lost;
    tg_set(x, TG_INDEX(0, 19999), 5), tg_set(x, TG_INDEX(0, 100), 5);
    y = tg_cpu(tg_softmax(tg_cuda(x), 1));
    CHECK(tg_get(y, TG_INDEX(0, 100)) == 0.5 && tg_get(y, TG_INDEX(0, 19999)) == 0.5 && tg_get(y, TG_INDEX(0, 7)) == 0);
    CHECK(isnan(tg_get(y, TG_INDEX(1, 0))) && isnan(tg_get(y, TG_INDEX(1, 19999))));
    tg_set(x, TG_INDEX(0, 3), NAN);
    lost = tg_cpu(tg_log_softmax(tg_cuda(x), 1));
    CHECK(isnan(tg_get(lost, TG_INDEX(0, 0))) && isnan(tg_get(lost, TG_INDEX(0, 3))));
}

/* The kernel that makes the mean of losses checks their targets, too; other reductions take a launch.  The first of
   several bad targets is reported, after which nothing is left of it; one that is ignored is not bad. */
TEST(bad_targets)
{
    static const int64_t counts[] = {1, 70, 1500};
    for (int i = 0; i < 6; ++i) {
        TG_SCOPE;
        const int reduction = i < 3 ? TG_MEAN : TG_SUM;
        const int64_t n = counts[i % 3], first = n / 2;
        tg_tensor *logits = tg_zeros_on(TG_SHAPE(n, 9), TG_F32, TG_CUDA(0)), *bad, *y;
        tg_tensor *targets = tg_zeros_on(TG_SHAPE(n), TG_I64, TG_CPU);
        char words[96];
        for (int64_t k = 0; k < n; ++k) tg_data_i64(targets)[k] = k % 4 ? k % 9 : -100;
        bad = tg_clone(targets);
        tg_data_i64(bad)[first] = -4, tg_data_i64(bad)[n - 1] = 9;
        snprintf(words, sizeof words, "Target %d is out of bounds.", n > 1 ? -4 : 9);
        bad = tg_cuda(bad), targets = tg_cuda(targets);
        start_counting();
        y = tg_cross_entropy_ex(logits, bad, NULL, -100, 0, reduction);
        CHECK_FAILS(tg_synchronize(TG_CUDA(0)), words);
        CHECK(y && (reduction != TG_MEAN || launched() <= 2));
        y = tg_cross_entropy_ex(logits, targets, NULL, -100, 0, reduction);
        CHECK(y && tg_synchronize(TG_CUDA(0)) == TG_OK);
    }
}

/* ---- how many kernels run, and what they move; bytes are known with TG_SIM_REPORT alone ---- */

TEST(what_is_moved)
{
    int k;
    for (k = 0; k < DTYPES; ++k) {
        TG_SCOPE;
        enum { ROWS = 2048, N = 512, CLASSES = 2000, TEAMS = 2048, BLOCKS = 256 };
        const tg_dtype dtype = dtypes[k];
        const double size = (double)tg_dtype_size(dtype), x_bytes = ROWS * N * size, vector_bytes = N * size;
        const double logits_bytes = 64 * CLASSES * size;
        tg_tensor *in[3], *y, *g, *dx, *logits, *targets, *loss, *residual, *both[2], *of_both[2];
        int i;
        if (dtype == TG_F64) continue;
        in[0] = tg_full_on(TG_SHAPE(ROWS, N), 1, dtype, TG_CUDA(0));
        for (i = 1; i < 3; ++i) in[i] = tg_full_on(TG_SHAPE(N), 1, dtype, TG_CUDA(0));
        for (i = 0; i < 3; ++i) tg_set_requires_grad(in[i], true);
        g = tg_full_on(TG_SHAPE(ROWS, N), 1, dtype, TG_CUDA(0));
        harness.sample = "layer_norm"; /* each team loads weight and bias once */
        start_counting();
        y = tg_layer_norm(in[0], 1, in[1], in[2], 1e-5);
        CHECK(at_most(1, 1.03 * (2 * x_bytes + 2 * TEAMS * vector_bytes)));
        harness.sample = "layer_norm_backward"; /* each block stores sums for weight and bias, which one reads again */
        start_counting();
        tg_backward_ex(&y, 1, &g, 0);
        CHECK(at_most(1, 1.03 * (3 * x_bytes + TEAMS * vector_bytes + 4 * BLOCKS * N * 4.0)));
        harness.sample = "add_layer_norm"; /* reads x and residual, stores their sum and the norm */
        residual = tg_set_requires_grad(tg_full_on(TG_SHAPE(ROWS, N), 1, dtype, TG_CUDA(0)), true);
        start_counting();
        both[0] = tg_add_layer_norm(in[0], residual, 1, in[1], in[2], 1e-5, &both[1]);
        CHECK(at_most(1, 1.03 * (4 * x_bytes + 2 * TEAMS * vector_bytes)));
        harness.sample = "add_layer_norm_backward"; /* one gradient for x and residual; leaves of their own copy it */
        of_both[0] = of_both[1] = g;
        start_counting();
        CHECK(tg_gradients(both, 2, of_both, &residual, 1, &y, 0) == TG_OK);
        CHECK(at_most(1, 1.03 * (4 * x_bytes + TEAMS * vector_bytes + 4 * BLOCKS * N * 4.0)));
        logits = tg_set_requires_grad(tg_full_on(TG_SHAPE(64, CLASSES), 1, dtype, TG_CUDA(0)), true);
        targets = tg_zeros_on(TG_SHAPE(64), TG_I64, TG_CUDA(0));
        harness.sample = "softmax";
        start_counting();
        y = tg_softmax(logits, 1);
        CHECK(at_most(1, 1.03 * 2 * logits_bytes));
        harness.sample = "softmax_backward"; /* reads y and its gradient */
        of_both[0] = tg_detach(logits);
        start_counting();
        CHECK(tg_gradients(&y, 1, of_both, &logits, 1, &dx, 0) == TG_OK);
        CHECK(at_most(1, 1.03 * 3 * logits_bytes));
        harness.sample = "cross_entropy"; /* the losses; and their mean, with the check of the targets */
        start_counting();
        loss = tg_cross_entropy(tg_detach(logits), targets);
        CHECK(at_most(2, 1.1 * logits_bytes));
        harness.sample = "recorded cross_entropy"; /* the divisor of the mean, and the gradient for 1 */
        start_counting();
        loss = tg_cross_entropy(logits, targets);
        CHECK(at_most(3, 1.1 * 2 * logits_bytes));
        harness.sample = "cross_entropy_backward"; /* the gradient of the loss, 1, is made, and looked at */
        start_counting();
        CHECK(tg_gradients(&loss, 1, NULL, &logits, 1, &dx, 0) == TG_OK);
        CHECK(at_most(2, 0.1 * logits_bytes));
        harness.sample = "cross_entropy_backward of another gradient";
        loss = tg_cross_entropy(logits, targets);
        y = tg_full_on(TG_SCALAR, 0.5, dtype, TG_CUDA(0));
        start_counting();
        CHECK(tg_gradients(&loss, 1, &y, &logits, 1, &dx, 0) == TG_OK);
        CHECK(at_most(1, 1.05 * 2 * logits_bytes));
    }
    harness.sample = NULL;
}

/* A norm alone: the gradient of rows that are too long for registers is composed. */
static tg_tensor *constant_norm(const arguments *a)
{
    return tg_layer_norm(tg_detach(a->in[0]), 1, tg_detach(a->in[1]), tg_detach(a->in[2]), 1e-5);
}

/* Loads and stores of warps for `call`, forward alone, recorded, and backward of a gradient that is not 1, of 4 rows of
   n; 0 without TG_SIM_REPORT. */
static double accesses_of(function call, int64_t n, tg_dtype dtype)
{
    TG_SCOPE;
    arguments a;
    tg_tensor *y, *g, *d[3];
    for (int i = 0; i < 3; ++i) {
        const tg_shape shape = i ? TG_SHAPE(n) : TG_SHAPE(4, n);
        a.in[i] = tg_set_requires_grad(tg_full_on(shape, 1, dtype, TG_CUDA(0)), true);
    }
    a.targets = tg_zeros_on(TG_SHAPE(4), TG_I64, TG_CUDA(0));
    tg_synchronize(TG_CUDA(0));
    const long before = TOTAL(CUDASIM_ACCESSES);
    {
        TG_NO_GRAD;
        call(&a);
    }
    y = call(&a);
    tg_synchronize(TG_CUDA(0));
    const long forward = TOTAL(CUDASIM_ACCESSES) - before;
    if (!tg_requires_grad(y)) return (double)forward;
    g = tg_full_like(y, 0.5);
    tg_synchronize(TG_CUDA(0));
    const long between = TOTAL(CUDASIM_ACCESSES);
    CHECK(tg_gradients(&y, 1, &g, a.in, 3, d, TG_ALLOW_UNUSED) == TG_OK);
    tg_synchronize(TG_CUDA(0));
    return (double)(forward + TOTAL(CUDASIM_ACCESSES) - between);
}

/* Rows of GPT-2's 50257 words, or of as many as the gradient of a norm has in registers, take not much more than those
   that consist of packs. */
TEST(rows_between_packs)
{
    static const struct {
        const char *name;
        function call;
        int64_t odd, even;
    } rows[] = {{"softmax", softmax, 50257, 50304},
                {"log_softmax", log_softmax, 50257, 50304},
                {"normalized", normalized, 50257, 50304},
                {"layer_norm of constants", constant_norm, 50257, 50304},
                {"layer_norm", layer_norm, 6001, 6008},
                {"rms_norm", rms_norm, 6001, 6008},
                {"cross_entropy", cross_entropy, 50257, 50304},
                {"smoothed", smoothed, 50257, 50304},
                {"mean_loss", mean_loss, 50257, 50304}};
    int k, f;
    for (k = 0; k < DTYPES; ++k) {
        for (f = 0; f < (int)(sizeof rows / sizeof *rows); ++f) {
            if (dtypes[k] == TG_F64) continue;
            const double odd = accesses_of(rows[f].call, rows[f].odd, dtypes[k]);
            const double even = accesses_of(rows[f].call, rows[f].even, dtypes[k]);
            harness.sample = rows[f].name;
            if (!CHECK(odd <= 1.5 * even)) printf("    %g loads and stores, and %g for packs\n", odd, even);
        }
    }
    harness.sample = NULL;
}

/* ---- a step of an LSTM ---- */

static tg_tensor *lstm(tg_module *m, tg_tensor *x, tg_tensor *h, tg_tensor *c)
{
    tg_tensor *in[3], *out[2] = {NULL, NULL};
    in[0] = x, in[1] = h, in[2] = c;
    if (tg_forward_n(m, in, 3, out, 2) != TG_OK) return NULL;
    return tg_cat(out, 2, 1);
}

TEST(lstm_cell)
{
    static const int64_t widths[] = {8, 5, 132};
    int i, k;
    for (i = 0; i < 3; ++i) {
        TG_SCOPE;
        const int64_t n = widths[i];
        tg_module *m[2];
        tg_tensor *in[2][3], *y[2];
        for (k = 0; k < 2; ++k) {
            const tg_device device = k ? TG_CUDA(0) : TG_CPU;
            int j;
            tg_seed(2);
            m[k] = tg_nn_lstm_cell(3, n, true);
            for (j = 0; j < 3; ++j) in[k][j] = tg_randn_on(TG_SHAPE(7, j ? n : 3), TG_F32, TG_CPU);
            for (j = 0; j < 3; ++j) in[k][j] = tg_set_requires_grad(tg_to(in[k][j], device), true);
            CHECK(tg_module_to(m[k], device));
            y[k] = lstm(m[k], in[k][0], in[k][1], in[k][2]);
            tg_backward(tg_sum(tg_square(y[k])));
        }
        CHECK(y[0] && y[1] && tg_allclose(tg_cpu(y[1]), y[0], 1e-5, 1e-6));
        for (k = 0; k < 3; ++k)
            CHECK(tg_grad(in[1][k]) && tg_allclose(tg_cpu(tg_grad(in[1][k])), tg_grad(in[0][k]), 1e-5, 1e-5));
        for (k = 0; k < 2; ++k) tg_module_free(m[k]);
    }
}

/* The sum of the biases, two products, and one kernel: it reads what x and what h give to the four gates, and c, and
   writes the gates, the next c and h.  Backward one kernel makes the gradients of the gates and of c. */
TEST(what_lstm_cells_move)
{
    TG_SCOPE;
    enum { ROWS = 64, N = 128 };
    const double bytes = ROWS * N * 4.0;
    tg_module *m = tg_nn_lstm_cell(16, N, true);
    tg_tensor *in[3], *out[2], *g[2], *dc;
    CHECK(tg_module_to(m, TG_CUDA(0)));
    for (int i = 0; i < 3; ++i) in[i] = tg_zeros_on(TG_SHAPE(ROWS, i ? N : 16), TG_F32, TG_CUDA(0));
    for (int i = 0; i < 2; ++i) g[i] = tg_ones_on(TG_SHAPE(ROWS, N), TG_F32, TG_CUDA(0));
    tg_set_requires_grad(in[2], true);
    start_counting();
    CHECK(tg_forward_n(m, in, 3, out, 2) == TG_OK);
    CHECK(at_most(4, 1.03 * (4 + 4 + 1 + 4 + 1 + 1) * bytes));
    start_counting();
    CHECK(tg_gradients(out, 2, g, &in[2], 1, &dc, 0) == TG_OK);
    CHECK(at_most(1, 1.03 * (4 + 1 + 1 + 1 + 1 + 4 + 1) * bytes));
    tg_module_free(m);
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    small = getenv("SMALL") != NULL;
    if (harness_has_no_gpu()) return 0;
    inside_plain(true); /* what the CPU computes here is the oracle */
    RUN(rows_in_registers);
    RUN(rows_in_chunks);
    RUN(rows_of_many_classes);
    RUN(many_rows);
    RUN(sums_of_blocks);
    RUN(masked_rows);
    RUN(bad_targets);
    RUN(what_is_moved);
    RUN(rows_between_packs);
    RUN(lstm_cell);
    RUN(what_lstm_cells_move);
    tg_shutdown();
    return harness_end();
}
