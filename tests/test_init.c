/* Filling tensors in place: moments and bounds of the distributions, fans and gains, orthogonal matrices, the same
 * numbers for every layout and device, writes that are not recorded, errors. */
#include "tensorgrad.h"
#include "helpers.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* ---- what is filled, with every function ---- */

enum { FUNCTIONS = 13 };
static const char *const function_name[FUNCTIONS] = {
    "constant",          "uniform",       "normal",         "bernoulli",       "random",         "trunc_normal",
    "trunc_above",       "xavier_normal", "xavier_uniform", "kaiming_uniform", "kaiming_normal", "orthogonal",
    "orthogonal_of_gain"};

static tg_tensor *fill(int function, tg_tensor *t)
{
    switch (function) {
    case 0: return tg_constant_(t, 3);
    case 1: return tg_uniform_(t, -2, 1);
    case 2: return tg_normal_(t, 1, 2);
    case 3: return tg_bernoulli_(t, 0.3);
    case 4: return tg_random_(t, 2, 5);
    case 5: return tg_trunc_normal_(t, 0.5, 2, -1, 1.5);
    case 6: return tg_trunc_normal_(t, 0.5, 2, 7, INFINITY);
    case 7: return tg_xavier_normal_(t, 2);
    case 8: return tg_xavier_uniform_(t, 0.5);
    case 9: return tg_kaiming_uniform_(t, 0.1, "fan_in", "leaky_relu");
    case 10: return tg_kaiming_normal_(t, 0, "fan_out", "relu");
    case 11: return tg_orthogonal_(t, 1);
    default: return tg_orthogonal_(t, 3);
    }
}

/* ---- distributions ---- */

static double mean_of(tg_tensor *t) { return tg_item(tg_mean(tg_to_dtype(t, TG_F64))); }
static double std_of(tg_tensor *t) { return tg_item(tg_std(tg_to_dtype(t, TG_F64))); }
static double least_of(tg_tensor *t) { return tg_item(tg_min(t)); }
static double most_of(tg_tensor *t) { return tg_item(tg_max(t)); }

static tg_tensor *matrix(int64_t rows, int64_t columns, tg_dtype dtype)
{
    return tg_full_on(TG_SHAPE(rows, columns), 77, dtype, HERE);
}

TEST(moments)
{
    static const tg_dtype dtypes[] = {TG_F32, TG_F64, TG_F16, TG_BF16};
    for (int i = 0; i < COUNT(dtypes); ++i) {
        tg_tensor *t = matrix(200, 500, dtypes[i]); /* the standard error of a mean is std / 316 */
        const double rounding = dtypes[i] == TG_BF16 ? 2e-2 : 0;
        tg_seed(5);
        CHECK(tg_uniform_(t, -2, 4) == t && tg_dtype_of(t) == dtypes[i]);
        CHECK(fabs(mean_of(t) - 1) < 2e-2 + rounding && fabs(std_of(t) - sqrt(3)) < 2e-2);
        CHECK(least_of(t) >= -2 && least_of(t) < -1.95 && most_of(t) < 4 && most_of(t) > 3.95);
        tg_normal_(t, 3, 0.5);
        CHECK(fabs(mean_of(t) - 3) < 1e-2 && fabs(std_of(t) - 0.5) < 1e-2);
        tg_bernoulli_(t, 0.25);
        CHECK(fabs(mean_of(t) - 0.25) < 1e-2 && tg_item(tg_sum(tg_mul(t, tg_rsub_scalar(t, 1)))) == 0);
        tg_random_(t, -3, 2);
        CHECK(fabs(mean_of(t) + 1) < 2e-2 && least_of(t) == -3 && most_of(t) == 1);
        tg_trunc_normal_(t, 0, 1, -2, 2); /* PyTorch's defaults; the moments by the formula of the distribution */
        CHECK(fabs(mean_of(t)) < 1e-2 && fabs(std_of(t) - 0.8796) < 1e-2);
        CHECK(least_of(t) >= -2 && least_of(t) < -1.95 && most_of(t) <= 2 && most_of(t) > 1.95);
        tg_trunc_normal_(t, 1, 2, 1, 100);
        CHECK(fabs(mean_of(t) - 2.5958) < 2e-2 + rounding && least_of(t) >= 1);
        tg_constant_(t, 7);
        CHECK(least_of(t) == 7 && most_of(t) == 7);
    }
}

/* Intervals far from the mean, whose probability is tiny: numbers stay inside, and are distributed as the tail is. */
TEST(trunc_normal_tails)
{
    tg_tensor *t = matrix(100, 100, TG_F64), *above;
    tg_trunc_normal_(t, 0, 1, 10, INFINITY);
    CHECK(least_of(t) >= 10 && fabs(mean_of(t) - 10.0980932) < 5e-3); /* exp(-50) / (sqrt(2 pi) Q(10)) */
    tg_seed(8), tg_trunc_normal_(t, 0, 1, 5, 6);
    above = tg_clone(t);
    tg_seed(8), tg_trunc_normal_(t, 0, 1, -6, -5);
    CHECK(tg_equal(t, tg_neg(above)) && least_of(t) >= -6 && most_of(t) <= -5 && std_of(t) > 0.1);
    tg_trunc_normal_(t, 0, 1, 50, 51); /* less probable than the smallest f64 */
    CHECK(least_of(t) == 50 && most_of(t) == 50);
    tg_trunc_normal_(t, 0, 1, 2, 2);
    CHECK(least_of(t) == 2 && most_of(t) == 2);
    tg_seed(3), tg_trunc_normal_(t, 0, 1, -INFINITY, INFINITY);
    above = tg_clone(t);
    tg_seed(3), tg_normal_(t, 0, 1);
    CHECK(tg_equal(t, above));
}

/* In f32 the quantiles of tg_normal_ are computed in floats; those of tg_trunc_normal_, from the same words, in doubles.
   */
TEST(normal_f32)
{
    tg_tensor *t = matrix(1000, 1000, TG_F32), *exact = tg_empty_like(t);
    tg_seed(3), tg_trunc_normal_(exact, 0, 1, -INFINITY, INFINITY);
    tg_seed(3), tg_normal_(t, 0, 1);
    CHECK(tg_allclose(t, exact, 4e-7, 0) && most_of(tg_abs(t)) > 4.5);
    tg_seed(3), tg_normal_(exact, 2, 0.25);
    CHECK(tg_allclose(exact, tg_add_scalar(tg_mul_scalar(t, 0.25), 2), 0, 0));
}

/* ---- fans and gains ---- */

TEST(gains)
{
    CHECK(tg_calculate_gain("linear", 0) == 1 && tg_calculate_gain("conv2d", 0) == 1);
    CHECK(tg_calculate_gain("sigmoid", 0) == 1 && tg_calculate_gain("tanh", 0) == 5.0 / 3);
    CHECK(tg_calculate_gain("relu", 0) == sqrt(2) && tg_calculate_gain("selu", 0) == 0.75);
    CHECK_NEAR(tg_calculate_gain("leaky_relu", 0.01), 1.4141428569978354, 1e-15);
    CHECK(isnan(tg_calculate_gain("softmax", 0)));
    CHECK_FAILS(tg_calculate_gain("softmax", 0), "tg_calculate_gain: Unsupported nonlinearity softmax");
    CHECK_FAILS(tg_calculate_gain(NULL, 0), "nonlinearity is NULL");
}

/* Weight [40, 30, 5, 2]: fan_in 300, fan_out 400.  The largest of 12000 uniform numbers is within 1e-3 of the bound. */
TEST(fans)
{
    tg_tensor *w = tg_zeros_on(TG_SHAPE(40, 30, 5, 2), TG_F64, HERE), *linear = matrix(300, 100, TG_F64);
    double bound;
    tg_xavier_uniform_(w, 2);
    bound = 2 * sqrt(6.0 / 700);
    CHECK(most_of(w) < bound && most_of(w) > 0.999 * bound && least_of(w) < -0.999 * bound);
    tg_kaiming_uniform_(w, 0, "fan_in", "relu");
    bound = sqrt(6.0 / 300);
    CHECK(most_of(w) < bound && most_of(w) > 0.999 * bound && least_of(w) < -0.999 * bound);
    tg_kaiming_uniform_(w, sqrt(5), "fan_out", "leaky_relu");
    bound = sqrt(1.0 / 400);
    CHECK(most_of(w) < bound && most_of(w) > 0.999 * bound);
    tg_xavier_normal_(w, 3);
    CHECK_NEAR(std_of(w), 3 * sqrt(2.0 / 700), 2e-2);
    tg_kaiming_normal_(w, 0.5, "fan_in", "leaky_relu");
    CHECK(fabs(std_of(w) / sqrt(2 / 1.25 / 300) - 1) < 3e-2);
    tg_kaiming_normal_(w, 0, "fan_out", "tanh");
    CHECK(fabs(std_of(w) / (5.0 / 3 / 20) - 1) < 3e-2);
    tg_kaiming_normal_(linear, 0, "fan_in", "linear");
    CHECK(fabs(std_of(linear) * 10 - 1) < 3e-2);
}

/* ---- orthogonal ---- */

/* Whether the rows of m have length `gain` and are orthogonal. */
static bool rows_are_orthogonal(tg_tensor *m, double gain)
{
    tg_tensor *identity = tg_to_dtype(tg_to(tg_eye(tg_dim(m, 0)), HERE), TG_F64);
    return tg_allclose(tg_matmul(m, tg_t(m)), tg_mul_scalar(identity, gain * gain), 0, 1e-12);
}

TEST(orthogonal)
{
    tg_tensor *wide = matrix(3, 8, TG_F64), *tall = matrix(9, 4, TG_F64), *square = matrix(60, 60, TG_F64);
    tg_tensor *kernel = tg_zeros_on(TG_SHAPE(6, 2, 2, 2), TG_F64, HERE), *one = matrix(1, 1, TG_F64);
    CHECK(tg_orthogonal_(wide, 1) == wide && rows_are_orthogonal(wide, 1));
    CHECK(tg_orthogonal_(tall, 0.5) == tall && rows_are_orthogonal(tg_t(tall), 0.5));
    CHECK(tg_orthogonal_(square, 2) == square && rows_are_orthogonal(square, 2));
    CHECK(tg_orthogonal_(kernel, 1) == kernel && rows_are_orthogonal(tg_view(kernel, TG_SHAPE(6, 8)), 1));
    CHECK(tg_orthogonal_(one, 1) == one && fabs(fabs(tg_item(one)) - 1) < 1e-15);
    CHECK(mean_of(tg_gt_scalar(square, 0)) > 0.4 && mean_of(tg_gt_scalar(square, 0)) < 0.6); /* no sign is preferred */
}

/* ---- layouts, devices, dtypes ---- */

TEST(layouts)
{
    for (int i = 0; i < FUNCTIONS; ++i) {
        tg_tensor *t = matrix(6, 4, TG_F32), *base = matrix(9, 14, TG_F32), *view, *columns = matrix(4, 6, TG_F32);
        tg_rng after;
        harness.sample = function_name[i];
        tg_seed(2);
        CHECK(fill(i, t) == t);
        after = tg_rng_state();
        view = tg_slice(tg_narrow(base, 0, 2, 6), 1, 1, 13, 3);
        tg_seed(2);
        CHECK(fill(i, view) == view && tg_equal(view, t) && tg_rng_state().offset == after.offset);
        CHECK(tg_get(base, TG_INDEX(1, 1)) == 77 && tg_get(base, TG_INDEX(2, 2)) == 77);
        tg_seed(2);
        CHECK(fill(i, tg_t(columns)) != NULL && tg_equal(tg_t(columns), t));
        CHECK(tg_rng_state().offset > 0 || i == 0);
        CHECK_FAILS(fill(i, tg_expand(tg_ones(TG_SHAPE(2, 1)), TG_SHAPE(2, 3))), "single memory location");
    }
    harness.sample = NULL;
}

/* The same bits on HERE, if that is a GPU, as on the CPU. */
TEST(devices)
{
    static const tg_dtype dtypes[] = {TG_F32, TG_F64, TG_F16, TG_BF16};
    for (int i = 0; i < FUNCTIONS * COUNT(dtypes); ++i) {
        const tg_dtype dtype = dtypes[i / FUNCTIONS];
        tg_tensor *here = matrix(37, 53, dtype), *there = tg_zeros_on(TG_SHAPE(37, 53), dtype, TG_CPU);
        tg_rng after;
        harness.sample = function_name[i % FUNCTIONS];
        tg_seed(4), fill(i % FUNCTIONS, here);
        after = tg_rng_state();
        tg_seed(4), fill(i % FUNCTIONS, there);
        CHECK(tg_equal(tg_cpu(here), there) && tg_rng_state().offset == after.offset);
    }
    harness.sample = NULL;
}

TEST(no_elements)
{
    for (int i = 0; i < FUNCTIONS; ++i) {
        tg_tensor *t = tg_zeros(TG_SHAPE(0, 3)), *u = tg_zeros(TG_SHAPE(3, 0));
        CHECK(fill(i, t) == t && fill(i, u) == u);
    }
}

TEST(integers)
{
    tg_tensor *t = tg_zeros_on(TG_SHAPE(1000), TG_I64, HERE), *bits = tg_zeros_on(TG_SHAPE(1000), TG_BOOL, HERE);
    tg_random_(t, 10, 13);
    CHECK(tg_item_i64(tg_min(t)) == 10 && tg_item_i64(tg_max(t)) == 12);
    tg_bernoulli_(bits, 0.5);
    CHECK(tg_item_i64(tg_sum(bits)) > 400 && tg_item_i64(tg_sum(bits)) < 600);
    HAS(tg_constant_(i64("[1, 2]"), 5), "[5, 5]");
    CHECK_FAILS(tg_uniform_(t, 0, 1), "tg_uniform_: a floating point dtype is needed, not i64");
    CHECK_FAILS(tg_normal_(t, 0, 1), "floating point");
    CHECK_FAILS(tg_constant_(t, 0.5), "tg_constant_: 0.5 is no value of a tensor of i64");
    CHECK_FAILS(tg_orthogonal_(tg_zeros_on(TG_SHAPE(2, 2), TG_I64, HERE), 1), "floating point");
}

/* ---- a write that is not recorded ---- */

TEST(leaves)
{
    for (int i = 0; i < FUNCTIONS; ++i) {
        tg_tensor *w = leaf("[[1, 2], [3, 4]]"), *product, *history;
        harness.sample = function_name[i];
        CHECK(fill(i, w) == w && tg_version_of(w) == 1 && tg_is_leaf(w) && tg_requires_grad(w));
        CHECK(tg_is_grad_enabled());
        product = tg_sum(tg_mul(w, w));
        fill(i, w);
        CHECK_FAILS(tg_backward(product), "modified by an inplace operation");
        history = tg_mul_scalar(w, 2);
        CHECK(fill(i, history) == history && !tg_is_leaf(history)); /* what the tape knows of it stays */
        CHECK(backward_sum(history) == TG_OK);
        HAS(tg_grad(w), "[[2, 2], [2, 2]]");
    }
    harness.sample = NULL;
}

/* ---- errors ---- */

TEST(errors)
{
    tg_tensor *t = tg_zeros(TG_SHAPE(2, 3)), *vector = tg_zeros(TG_SHAPE(3));
    const tg_rng before = tg_rng_state();
    CHECK_FAILS(tg_uniform_(t, 2, 1), "uniform_ expects to return a [from, to) range, but found from=2 > to=1");
    CHECK_FAILS(tg_uniform_(t, -INFINITY, 1), "uniform_ expects");
    CHECK_FAILS(tg_uniform_(t, 0, NAN), "uniform_ expects");
    CHECK_FAILS(tg_normal_(t, 0, -1), "normal expects std >= 0.0, but found std -1");
    CHECK_FAILS(tg_bernoulli_(t, 1.5), "tg_bernoulli_: bernoulli_ expects p to be in [0, 1], but got p=1.5");
    CHECK_FAILS(tg_random_(t, 3, 3), "tg_random_: random_ expects 'from' to be less than 'to'");
    CHECK_FAILS(tg_trunc_normal_(t, 0, 0, -2, 2), "std > 0 and a <= b are needed, but got std=0");
    CHECK_FAILS(tg_trunc_normal_(t, 0, 1, 2, -2), "a=2, b=-2");
    CHECK_FAILS(tg_xavier_uniform_(vector, 1), "Fan in and fan out can not be computed for tensor with fewer than 2 "
                                               "dimensions, but got shape [3]");
    CHECK_FAILS(tg_xavier_normal_(vector, 1), "fewer than 2 dimensions");
    CHECK_FAILS(tg_kaiming_uniform_(vector, 0, "fan_in", "relu"), "tg_kaiming_uniform_: Fan in and fan out");
    CHECK_FAILS(tg_kaiming_normal_(vector, 0, "fan_in", "relu"), "tg_kaiming_normal_: Fan in and fan out");
    CHECK_FAILS(tg_orthogonal_(vector, 1), "Only tensors with 2 or more dimensions are supported");
    CHECK_FAILS(tg_kaiming_normal_(t, 0, "fan", "relu"),
                "Mode fan not supported, please use one of ['fan_in', 'fan_out']");
    CHECK_FAILS(tg_kaiming_normal_(t, 0, NULL, "relu"), "mode is NULL");
    CHECK_FAILS(tg_kaiming_uniform_(t, 0, "fan_in", "elu"), "tg_kaiming_uniform_: Unsupported nonlinearity elu");
    CHECK_FAILS(tg_xavier_uniform_(t, -1), "uniform_ expects");
    CHECK(tg_rng_state().offset == before.offset && tg_item(tg_sum(t)) == 0);
}

/* The scenario: every function, on a matrix and on its transpose; a failure leaves the numbers as they were. */
static bool fill_everything(void)
{
    tg_tensor *t = matrix(3, 4, TG_F32), *turned = tg_t(t);
    if (!turned) return false;
    for (int i = 0; i < 2 * FUNCTIONS; ++i) {
        const tg_rng before = tg_rng_state();
        if (fill(i / 2, i % 2 ? turned : t)) continue;
        CHECK(tg_rng_state().offset == before.offset && tg_is_grad_enabled());
        return false;
    }
    return true;
}

/* ---- without random numbers ---- */

static bool rng_is(tg_rng rng) { return tg_rng_state().seed == rng.seed && tg_rng_state().offset == rng.offset; }

/* What draws numbers leaves t as it is, counts nothing, and says of wrong arguments what it always says. */
TEST(skipped)
{
    const tg_rng rng = tg_rng_state();
    tg_tensor *t = tg_full(TG_SHAPE(4, 6), 7);
    {
        TG_SKIP_INIT;
        for (int f = 0; f < FUNCTIONS; ++f) {
            const bool writes = f == 0 || f == 3 || f == 4; /* constant, bernoulli, random */
            const int version = (int)tg_version_of(t);
            if (writes) continue;
            CHECK(fill(f, t) == t && tg_item(tg_min(t)) == 7 && tg_item(tg_max(t)) == 7);
            CHECK((int)tg_version_of(t) == version);
        }
        CHECK(rng_is(rng));
        CHECK(tg_constant_(t, 3) == t && tg_item(tg_min(t)) == 3);
        CHECK(tg_random_(t, 2, 5) == t && !rng_is(rng));
        CHECK_FAILS(tg_uniform_(t, 1, 0), "uniform_ expects to return a [from, to) range");
        CHECK_FAILS(tg_normal_(t, 0, -1), "normal expects std >= 0.0");
        CHECK_FAILS(tg_trunc_normal_(t, 0, 1, 2, 1), "std > 0 and a <= b are needed");
        CHECK_FAILS(tg_xavier_uniform_(tg_select(t, 0, 0), 1), "fewer than 2 dimensions");
        CHECK_FAILS(tg_orthogonal_(tg_select(t, 0, 0), 1), "2 or more dimensions");
        CHECK_FAILS(tg_normal_(NULL, 0, 1), "is NULL");
    }
    CHECK(tg_normal_(t, 100, 1) == t && tg_item(tg_min(t)) > 50); /* the block has ended */
}

/* The mode ends with the block, with a scope, and with a function of the user's. */
static tg_tensor *leaves_the_mode(tg_tensor *const *in, int n, void *user)
{
    (void)n, (void)user;
    tg_set_skip_init(true);
    return tg_sum(tg_square(in[0]));
}

static bool skips(void)
{
    TG_SCOPE;
    return tg_item(tg_max(tg_uniform_(tg_zeros(TG_SHAPE(3)), 1, 2))) == 0;
}

TEST(skipped_until)
{
    tg_tensor *x = tg_set_requires_grad(tg_ones_on(TG_SHAPE(2), TG_F64, HERE), true);
    CHECK(!skips() && !tg_set_skip_init(true) && skips() && tg_set_skip_init(false) && !skips());
    {
        TG_SKIP_INIT;
        CHECK(skips());
        {
            TG_SCOPE;
            CHECK(tg_set_skip_init(false) && !skips());
        }
        CHECK(skips());
        for (int i = 0; i < 2; ++i) {
            TG_SKIP_INIT;
            if (i) continue;
            CHECK(skips());
        }
        CHECK(skips());
    }
    CHECK(!skips());
    tg_mark m = tg_scope_begin();
    CHECK(!tg_set_skip_init(true) && skips());
    tg_scope_end(m);
    CHECK(!skips());
    CHECK(tg_gradcheck(leaves_the_mode, &x, 1, NULL) && !skips());
}

/* Large modules draw nothing; how long they take is printed. */
TEST(skipped_draws_nothing)
{
    double seconds[2];
    for (int k = 0; k < 2; ++k) {
        const clock_t begin = clock();
        const tg_rng rng = tg_rng_state();
        tg_set_skip_init(k == 1);
        tg_module *m = tg_nn_embedding(30000, 256), *head = tg_nn_linear(256, 30000, false);
        seconds[k] = (double)(clock() - begin) / CLOCKS_PER_SEC;
        CHECK(m && head && rng_is(rng) == (k == 1));
        tg_module_free(m), tg_module_free(head);
    }
    tg_set_skip_init(false);
    printf("15 million numbers: drawn in %.4f s, skipped in %.4f s\n", seconds[0], seconds[1]);
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    harness_take_device();
    out_of_memory(fill_everything);
    RUN(moments);
    RUN(trunc_normal_tails);
    RUN(normal_f32);
    RUN(gains);
    RUN(fans);
    RUN(orthogonal);
    RUN(layouts);
    RUN(devices);
    RUN(no_elements);
    RUN(integers);
    RUN(leaves);
    RUN(errors);
    RUN(skipped);
    RUN(skipped_until);
    RUN(skipped_draws_nothing);
    CHECK(tg_shutdown() == TG_OK);
    return harness_end();
}
