/* Gradients by value: their shapes, at kinks and edges of ops and losses, at the limits of dtypes, through
 * broadcasting, reductions and views.  Sections 2.6 to 2.8 of the semantics list; each op in all its forms is in
 * test_ops.c. */
#include "tensorgrad.h"
#include "semantics.h"
#include "helpers.h"
#include "inside.h"

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
static tg_tensor *hardtanh_one(tg_tensor *x) { return tg_hardtanh(x, -1, 1); }
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

/* The gradient of sum(w * dy/dx) for w = 1, 2, .. at the numbers of a text. */
static tg_tensor *slope_of_slope(tg_tensor *(*fn)(tg_tensor *), const char *at)
{
    tg_tensor *x = leaf(at), *y = tg_sum(fn(x)), *g = NULL;
    if (tg_gradients(&y, 1, NULL, &x, 1, &g, TG_CREATE_GRAPH) != TG_OK) return NULL;
    tg_tensor *w = tg_reshape(tg_arange_on(1, (double)tg_numel(x) + 1, 1, TG_F64, HERE), tg_shape_of(x));
    return gradient(tg_sum(tg_mul(g, w)), x, 0);
}
static tg_tensor *rows_norm(tg_tensor *x) { return tg_norm_dim(x, 2, 1, false); }
static tg_tensor *rows_norm_3_halves(tg_tensor *x) { return tg_norm_dim(x, 1.5, 1, false); }
static tg_tensor *rows_length_1(tg_tensor *x) { return tg_normalize(x, 2, 1, 1e-12); }
static tg_tensor *rows_std(tg_tensor *x) { return tg_std_dim(x, 1, 1, false); }
static tg_tensor *distances_2(tg_tensor *x) { return tg_cdist(x, x, 2); }
static tg_tensor *distances_3_halves(tg_tensor *x) { return tg_cdist(x, x, 1.5); }
static tg_tensor *distances_inf(tg_tensor *x) { return tg_cdist(x, x, (double)INFINITY); }
static tg_tensor *elu_2(tg_tensor *x) { return tg_elu(x, 2); }
static tg_tensor *celu_2(tg_tensor *x) { return tg_celu(x, 2); }

static tg_tensor *rest_by(tg_tensor *x) { return tg_fmod(tg_full_on(TG_SCALAR, 3, TG_F64, HERE), x); }
static tg_tensor *product_row(tg_tensor *x) { return tg_prod_dim(x, -1, false); }

/* PyTorch's numbers, and at 0 of sinc and fmod 0, where it has NaN; tests/tools/points.sh compares all ops with PyTorch. */
TEST(second_derivatives_of_special_functions)
{
    HAS(slope_of_slope(tg_lgamma, "[1, -0.5, 2]"), "[1.644934066848, 17.86960440109, 1.934802200545]");
    HAS(slope_of_slope(tg_digamma, "[1, -0.5, 2]"), "[-2.404113806319, -1.657593288469, -1.212341418957]");
    HAS(slope_of_slope(tg_log_ndtr, "[0, -20, 100]"), "[-0.636619772368, -1.99507347676982, 0]");
    HAS(slope_of_slope(tg_erfcx, "[0, -1]"), "[2, 64.6212776375]");
    HAS(slope_of_slope(tg_i0e, "[0, -0.5, 20]"), "[0.5, 1.328774656318, 0.00051860488173]");
    HAS(slope_of_slope(tg_i1, "[0, -0., -0.5]"), "[0, 0, -0.582246021106258]");
    HAS(slope_of_slope(tg_i1e, "[0, -0.5, 20, inf]"), "[0, 0.780499674417, 0.000452874995787, 0]");
    HAS(slope_of_slope(tg_sinc, "[0, 1, -0.5, 0.00000001]"), "[0, 4, -3.57068138471681, -13.1594725347858]");
    HAS(slope_of_slope(rest_by, "[0, 2]"), "[0, 0]");
    SLOPE(product_row, "[[inf, 1, 2], [nan, 1, 2], [0, 1, 3]]", "[inf, nan, 0]", "[[2, inf, inf], [2, nan, nan], [3, 0, 0]]");
    HAS(slope_of_slope(product_row, "[[0, 1, 3], [2, 0, 0]]"), "[[9, 3, 1], [0, 12, 10]]");
}

/* PyTorch's numbers, and 0 where it has NaN: in rows of zeros, and for p < 2 at elements that are 0. */
TEST(second_derivatives_at_kinks)
{
    HAS(slope_of_slope(distances_2, "[[0, 0], [3, 4]]"), "[[-0.128, 0.096], [0.128, -0.096]]");
    HAS(slope_of_slope(distances_2, "[[0, 0], [1, 1], [3, 1]]"),
        "[[0.505964425627, -1.51789327688], [0, -2], [-0.505964425627, 3.51789327688]]");
    HAS(slope_of_slope(distances_3_halves, "[[0, 0], [1, 1], [3, 1]]"),
        "[[0.405850952347, -1.21755285704], [0, 0], [-0.405850952347, 1.21755285704]]");
    SLOPE(distances_inf, "[[0, 0], [1, 1], [3, 1]]", "[[0, 1, 3], [1, 0, 2], [3, 2, 0]]",
          "[[-4, -2], [0, 2], [4, 0]]"); /* of equal distances each gets the whole */
    HAS(slope_of_slope(rows_norm, "[[0, 0], [3, 0], [1, -1]]"),
        "[[0, 0], [0, 1.33333333333333333], [3.8890872965260113, 3.8890872965260113]]");
    HAS(slope_of_slope(rows_norm_3_halves, "[[0, 0], [3, 0], [1, -1]]"),
        "[[0, 0], [0, 0], [2.182676446456274, 2.182676446456274]]");
    HAS(slope_of_slope(rows_length_1, "[[0, 0], [3, 0]]"), "[[0, 0], [-0.444444444444, -0.777777777778]]");
    HAS(slope_of_slope(rows_std, "[[1, 1], [3, 0]]"), "[[0, 0], [0, 0]]");
    HAS(slope_of_slope(elu_2, "[-1, 0, 1]"), "[0.735758882343, 0, 0]");
    HAS(slope_of_slope(celu_2, "[-1, 0, 1]"), "[0.303265329856, 0, 0]");
    HAS(slope_of_slope(tg_selu, "[-1, 0, 1]"), "[0.646768603035, 0, 0]");
}

/* The largest difference alone has a gradient, which is the one of its distance. */
TEST(gradients_of_largest_differences)
{
    tg_tensor *x = leaf("[[1, 2], [5, 1]]"), *y = tg_cdist(x, f64("[[0, 0]]"), (double)INFINITY), *g = f64("[[10], [100]]");
    CHECK(tg_backward_ex(&y, 1, &g, 0) == TG_OK);
    HAS(tg_grad(x), "[[0, 10], [100, 0]]");
}

static tg_tensor *powers(tg_tensor *x, double p) { return tg_norm_dim(x, p, 0, false); }
static tg_tensor *deviation(tg_tensor *x, double p) { (void)p; return tg_std(x); }

/* numbers whose sum is 0, as a device does not look at the sum of a mean: the count times their deviation overflows */
static tg_tensor *deviation_of_many(tg_tensor *x, double p)
{
    tg_tensor *many = tg_repeat(x, TG_SHAPE(128));
    (void)p;
    return tg_std(tg_cat(TG_LIST(many, tg_neg(many)), 0));
}

static tg_tensor *average(tg_tensor *x, double p) { (void)p; return tg_mean(x); }

/* y and dy/dx of functions that are proportional to x, at numbers near the limits of a dtype as at numbers near 1. */
TEST(numbers_near_the_limits)
{
    static const struct { tg_tensor *(*fn)(tg_tensor *, double); double p; } rows[] = {
        {powers, 2}, {powers, 1}, {powers, 0.5}, {powers, 1.5}, {powers, 3}, {powers, 30}, {powers, -2},
        {powers, INFINITY}, {deviation, 0}, {deviation_of_many, 0}, {average, 0}};
    static const struct { tg_dtype dtype; int power; double tolerance; } places[] = {
        {TG_F32, 119, 1e-5}, {TG_F32, -118, 1e-5}, {TG_F64, 1014, 1e-12}, {TG_F64, -1010, 1e-12}, {TG_F64, 600, 1e-12},
        {TG_BF16, 119, 2e-2}, {TG_BF16, -118, 2e-2}, {TG_F16, 7, 2e-3}, {TG_F16, -10, 2e-3}};
    for (int i = 0; i < (int)(sizeof rows / sizeof *rows); ++i) {
        for (int k = 0; k < (int)(sizeof places / sizeof *places); ++k) {
            TG_SCOPE;
            tg_tensor *at = of(places[k].dtype, "[8, -5, 6, 7, 5, 4, 3, 0.5]"), *y[2], *g[2];
            for (int far = 0; far < 2; ++far) {
                tg_tensor *x = tg_mul_scalar(at, far ? ldexp(1, places[k].power) : 1);
                tg_set_requires_grad(x, true);
                y[far] = rows[i].fn(x, rows[i].p);
                g[far] = tg_to_dtype(gradient(y[far], x, 0), TG_F64);
                y[far] = tg_to_dtype(tg_detach(y[far]), TG_F64);
            }
            const double error = tg_item(tg_amax(tg_abs(tg_sub(g[0], g[1]))));
            CHECK_NEAR(ldexp(tg_item(y[1]), -places[k].power) / tg_item(y[0]), 1, places[k].tolerance);
            CHECK_NEAR(error / tg_item(tg_amax(tg_abs(g[0]))), 0, places[k].tolerance);
        }
    }
    if (HERE.type == TG_DEV_CPU) { /* a device does not look at the sum of a mean */
        HAS(tg_mul_scalar(tg_mean(f64("[1.5e308, 1.5e308, 1.2e308]")), 1e-308), "1.4");
        HAS(tg_mul_scalar(tg_mean_dim(of(TG_F32, "[[3e38, 1], [3e38, 2]]"), 0, false), 1e-38), "[3, 1.5e-38]");
        HAS(tg_mul_scalar(tg_mean(of(TG_BF16, "[2e38, 2e38]")), 1e-38), "2");
    }
    HAS(tg_mul_scalar(tg_var(f64("[3e150, 5e150, 1e150]")), 1e-300), "4");
    HAS(tg_mul_scalar(tg_std(f64("[1.5e308, -1.5e308, -1.5e308]")), 1e-308), "1.73205080757");
    HAS(tg_std(f64("[1e300, 1e300, 1e300]")), "0");
    tg_tensor *close = of(TG_F32, "[1e-13, 1.00000016e-13, 1.00000032e-13]"); /* squares of differences vanish */
    CHECK_NEAR(tg_item(tg_std(close)) * 1e20, 1.70532227013, 1e-6);
    HAS(tg_norm(f64("[inf, 1e300]")), "inf");
    HAS(tg_norm(f64("[nan, 1e300]")), "nan");
}

TEST(gradients_at_kinks)
{
    ROW(2.62) {
        SLOPE(tg_relu, "[0, -0, nan, 1, -1]", "[0, 0, nan, 1, 0]", "[0, 0, 1, 1, 0]");
        CHECK(signbit(tg_item(tg_relu(scalar(-0.0)))) != 0);
    }
    ROW(2.63) {
        SLOPE(leaky_tenth, "[0, -1, 1]", "[0, -0.1, 1]", "[0.1, 0.1, 1]");
        SLOPE(elu_one, "[0, -1, 1]", "[0, -0.6321205588285577, 1]", "[1, 0.36787944117144233, 1]");
        SLOPE(tg_selu, "[0, 1]", "[0, 1.0507009873554805]", "[1.7580993408473766, 1.0507009873554805]");
        SLOPE(tg_relu6, "[0, 6, 3]", "[0, 6, 3]", "[0, 0, 1]");
        SLOPE(hardtanh_one, "[-1, 1, 0.5]", "[-1, 1, 0.5]", "[0, 0, 1]");
        SLOPE(tg_hardsigmoid, "[-3, 3, 0]", "[0, 1, 0.5]", "[0, 0, 0.16666666666666666]");
    }
    ROW(2.64) SLOPE(tg_hardswish, "[-3, 3, 0, -4, 4]", "[0, 3, 0, 0, 4]", "[0, 1, 0.5, 0, 1]");
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

/* Large logits that are equal, or differ by little: log(sum(exp(logits))) would round to them. */
/* The gradient in one kernel is the one of the rule in ops, which is what can be derived again. */
TEST(cross_entropy_weighted_and_smoothed)
{
    tg_tensor *x = leaf("[[1, -2, 0.5], [0, 3, 1]]"), *targets = of(TG_I64, "[2, 0]"), *weight = f64("[0.5, 2, 3]");
    tg_tensor *y = tg_cross_entropy_ex(x, targets, weight, -100, 0.3, TG_SUM), *once, *again;
    CHECK(tg_gradients(&y, 1, NULL, &x, 1, &once, TG_RETAIN_GRAPH) == TG_OK);
    CHECK(tg_gradients(&y, 1, NULL, &x, 1, &again, TG_CREATE_GRAPH) == TG_OK);
    CHECK(tg_allclose(once, again, 1e-12, 1e-12));
}

/* A loss of rows of which one is ignored, with more classes than are composed on the CPU. */
typedef struct {
    tg_tensor *targets, *weight;
    double smoothing, near; /* near: the tolerance */
    int reduction;
    bool composed; /* there are no kernels of its own for this dtype */
} class_case;

static tg_tensor *class_loss(const class_case *c, tg_tensor *x)
{
    return tg_cross_entropy_ex(x, c->targets, c->weight, -100, c->smoothing, c->reduction);
}

/* Where forward has made the gradient for a gradient of the loss of 1: others, and graphs that are run through again. */
static void class_gradients(const class_case *c, tg_tensor *x, tg_tensor *want)
{
    TG_SCOPE;
    tg_tensor *y = class_loss(c, x), *first, *kept, *twice = tg_mul_scalar(want, 2);
    CHECK(is_nearly(gradient(class_loss(c, x), x, 0), want, c->near, c->near / 10));
    CHECK(is_nearly(gradient(tg_mul_scalar(class_loss(c, x), 2), x, 0), twice, c->near, c->near / 10));
    first = gradient(y, x, TG_RETAIN_GRAPH), kept = tg_clone(first);
    CHECK(is_nearly(first, want, c->near, c->near / 10));
    CHECK(is_nearly(gradient(tg_mul_scalar(y, 2), x, TG_RETAIN_GRAPH), twice, c->near, c->near / 10));
    CHECK(is_nearly(gradient(y, x, TG_CREATE_GRAPH), want, c->near, c->near / 10));
    CHECK(is_exactly(gradient(y, x, 0), first) && is_exactly(first, kept));
    if (c->reduction != TG_NONE) return;
    tg_tensor *g = tg_to_dtype(of(TG_F64, "[1, 2, 1, 1, 0]"), tg_dtype_of(x)), *rows = NULL;
    y = class_loss(c, x);
    CHECK(tg_gradients(&y, 1, &g, &x, 1, &rows, 0) == TG_OK);
    CHECK(is_nearly(rows, tg_mul(want, tg_unsqueeze(g, 1)), c->near, c->near / 10));
}

/* Logits that are read elsewhere, too, that have hooks or a .grad of their own, that are written. */
static void class_logits(const class_case *c, tg_tensor *x, tg_tensor *want)
{
    TG_SCOPE;
    double factor = 2;
    tg_tensor *z = tg_mul_scalar(x, 1), *y = class_loss(c, z);
    tg_hook(z, hook_times, &factor);
    tg_retain_grad(z);
    CHECK(backward_sum(tg_add(tg_sum(y), tg_sum(z))) == TG_OK); /* the loss comes first in backward, or last */
    tg_tensor *sum = tg_mul_scalar(tg_add_scalar(want, 1), 2);
    CHECK(is_nearly(tg_grad(z), sum, c->near, c->near) && is_nearly(tg_grad(x), sum, c->near, c->near));
    CHECK(backward_sum(class_loss(c, x)) == TG_OK); /* one that x has already, and a new one */
    CHECK(is_nearly(tg_grad(x), tg_add(sum, want), c->near, c->near));
    tg_set_grad(x, NULL);
    CHECK(backward_sum(class_loss(c, x)) == TG_OK && backward_sum(class_loss(c, x)) == TG_OK);
    CHECK(is_nearly(tg_grad(x), tg_mul_scalar(want, 2), c->near, c->near / 10) && !tg_requires_grad(tg_grad(x)));
    tg_set_grad(x, NULL);
    if (c->composed || harness_skips_plain("a write to logits")) return;
    z = tg_mul_scalar(x, 1), y = tg_sum(class_loss(c, z));
    tg_add_scalar_(z, 1);
    CHECK_FAILS(tg_backward(y), "modified by an inplace operation");
}

/* A backward that fails after the rule has run, and the next one with another gradient of the loss. */
static void class_after_failure(const class_case *c, tg_tensor *x, tg_tensor *want)
{
    TG_SCOPE;
    tg_tensor *lost = tg_clone(tg_detach(x)), *y, *g = NULL, *two;
    if (c->composed || harness_skips_plain("the rule after a failure")) return;
    tg_set(lost, TG_INDEX(0, 3), NAN);
    tg_set_requires_grad(lost, true);
    y = class_loss(c, lost), two = tg_full_like(y, 2);
    tg_set_anomaly(true);
    CHECK_FAILS(tg_gradients(&y, 1, &two, &lost, 1, &g, 0), "returned nan values");
    tg_set_anomaly(false);
    CHECK((g = gradient(y, lost, 0)) != NULL);
    CHECK(is_nearly(tg_narrow(g, 0, 1, 3), tg_narrow(want, 0, 1, 3), c->near, c->near / 10));
}

TEST(cross_entropy_gradients_of_forward)
{
    static const tg_dtype dtypes[] = {TG_F32, TG_BF16, TG_F16, TG_F64};
    static const double near[] = {1e-5, 2e-2, 4e-3, 1e-10};
    for (int k = 0; k < 4 * 2 * 2 * 3; ++k) {
        TG_SCOPE;
        const int dtype = k % 4;
        tg_seed(5);
        tg_tensor *x = tg_to_dtype(tg_randn_on(TG_SHAPE(5, 136), TG_F32, HERE), dtypes[dtype]);
        tg_tensor *weight = tg_to_dtype(tg_add_scalar(tg_rand_on(TG_SHAPE(136), TG_F32, HERE), 0.5), dtypes[dtype]);
        class_case c = {of(TG_I64, "[3, 0, -100, 135, 3]"), NULL, 0, near[dtype], k / 16, false};
        c.composed = dtypes[dtype] == TG_F64 && (tg_is_cuda(x) || !HARNESS_VECTORS);
        if (k / 4 % 2) c.weight = weight;
        if (k / 8 % 2) c.smoothing = 0.2;
        tg_set_requires_grad(x, true);
        tg_tensor *want = tg_detach(gradient(class_loss(&c, x), x, TG_CREATE_GRAPH));
        class_gradients(&c, x, want);
        class_logits(&c, x, want);
        class_after_failure(&c, x, want);
    }
}

/* Where no target is ignored nothing is masked; targets in a column of a matrix are masked, as on a device. */
TEST(nll_loss_with_none_ignored)
{
    tg_tensor *pairs = of(TG_I64, "[[2, -100], [0, -100], [1, -100], [2, -100]]"), *x = leaf(
        "[[1, -2, 0.5], [0, 3, 1], [-1, 2, 0.25], [4, 0, 1]]");
    tg_tensor *column = tg_select(pairs, 1, 0), *targets = tg_clone(column), *weight = f64("[0.5, 2, 3]");
    for (int k = 0; k < 2 * 3; ++k) {
        TG_SCOPE;
        tg_tensor *w = k / 3 ? weight : NULL, *all = tg_nll_loss(x, targets, w, -100, k % 3);
        tg_tensor *masked = tg_nll_loss(x, column, w, -100, k % 3);
        CHECK(tg_numel(all) == (k % 3 == TG_NONE ? 4 : 1));
        CHECK(is_nearly(all, masked, 1e-12, 1e-12));
        CHECK(is_nearly(gradient(all, x, 0), gradient(masked, x, 0), 1e-12, 1e-12));
        CHECK(is_nearly(tg_cross_entropy_ex(x, targets, w, -100, 0.1, k % 3),
                        tg_cross_entropy_ex(x, column, w, -100, 0.1, k % 3), 1e-12, 1e-12));
    }
    CHECK_FAILS(tg_nll_loss(x, of(TG_I64, "[0, 1, 2, 3]"), NULL, -100, TG_MEAN), "Target 3 is out of bounds.");
    CHECK_NEAR(tg_item(tg_nll_loss(x, targets, NULL, 2, TG_MEAN)), -1, 1e-12); /* of 0 and 2 */
}

TEST(cross_entropy_of_large_logits)
{
    static const tg_dtype dtypes[] = {TG_F32, TG_F64, TG_BF16, TG_F16};
    tg_tensor *targets = tg_zeros_on(TG_SHAPE(2), TG_I64, HERE);
    for (int i = 0; i < 4; ++i) {
        const double large = dtypes[i] == TG_F64 ? 1e300 : dtypes[i] == TG_F16 ? 6e4 : 1e30;
        tg_tensor *x = tg_param(tg_full_on(TG_SHAPE(2, 4), large, dtypes[i], HERE));
        for (int smooth = 0; smooth < 2; ++smooth) {
            tg_tensor *y = tg_cross_entropy_ex(x, targets, NULL, -100, smooth * 0.1, TG_MEAN), *g = NULL;
            CHECK(tg_gradients(&y, 1, NULL, &x, 1, &g, 0) == TG_OK);
            tg_tensor *want = f64(smooth ? "[-0.3375, 0.1125, 0.1125, 0.1125]" : "[-0.375, 0.125, 0.125, 0.125]");
            CHECK(tg_allclose(g, want, 1e-2, 0));
            CHECK_NEAR(tg_item(y), 1.3862943611198906, 5e-3);
        }
        tg_release(x);
    }
    tg_tensor *x = leaf_of(TG_F32, "[[20001, 20000, 20000.5]]"), *y, *g = NULL;
    y = tg_cross_entropy_ex(x, tg_zeros_on(TG_SHAPE(1), TG_I64, HERE), NULL, -100, 0.1, TG_SUM);
    CHECK(tg_gradients(&y, 1, NULL, &x, 1, &g, 0) == TG_OK);
    CHECK_NEAR(tg_item(y), 0.680270 + 0.05, 1e-5);
    CHECK(tg_allclose(g, f64("[[-0.426854, 0.152990, 0.273863]]"), 1e-4, 0));
}

TEST(losses_at_edges)
{
    double third = 1.0 / 3;
    tg_tensor *ignored = of(TG_I64, "[-100, -100]"), *targets = of(TG_I64, "[0, 2]"), *y;
    logits = leaf("[[0, 0, 0], [0, 0, 0]]");
    ROW(2.82) {
        CHECK(loss_is(tg_cross_entropy(logits, ignored), "nan", "[[0, 0, 0], [0, 0, 0]]"));
        CHECK(loss_is(tg_cross_entropy_ex(logits, ignored, NULL, -100, 0, TG_SUM), "0", "[[0, 0, 0], [0, 0, 0]]"));
        CHECK(
            loss_is(tg_cross_entropy_ex(logits, ignored, NULL, -100, 0, TG_NONE), "[0, 0]", "[[0, 0, 0], [0, 0, 0]]"));
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
        CHECK(warnings == 1 && strstr(warned, "tg_mse_loss: Using a target size ([1]) that is different to the input size "
                                              "([3]). This will likely lead to incorrect results"));
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

/* ---- the whole range of each dtype ---- */

static double norm_p;
static tg_tensor *norm_of(tg_tensor *x) { return tg_norm_dim(x, norm_p, 0, false); }
static tg_tensor *mean_of(tg_tensor *x) { return tg_mean(x); }
static tg_tensor *std_of(tg_tensor *x) { return tg_std(x); }
static tg_tensor *distance_of(tg_tensor *x)
{
    return tg_cdist(tg_unsqueeze(x, 0), tg_zeros_on(TG_SHAPE(1, 2), tg_dtype_of(x), HERE), norm_p);
}

/* f((3, 4) scale) is value * scale, and its gradient does not depend on the scale: as for scale 1. */
static void scaled(tg_tensor *(*f)(tg_tensor *), tg_dtype dtype, double scale)
{
    tg_tensor *x[2], *y[2], *g[2];
    for (int i = 0; i < 2; ++i) {
        x[i] = tg_mul_scalar(f64("[3, 4]"), i ? scale : 1);
        x[i] = tg_set_requires_grad(tg_detach(tg_to_dtype(x[i], dtype)), true);
        y[i] = f(x[i]);
        CHECK(backward_sum(y[i]) == TG_OK);
        g[i] = tg_to_dtype(tg_grad(x[i]), TG_F64);
    }
    const double tolerance = dtype == TG_F64 ? 1e-12 : dtype == TG_F32 ? 1e-5 : 2e-2;
    CHECK_NEAR(tg_item(y[1]) / scale, tg_item(y[0]), 5 * tolerance);
    CHECK(tg_allclose(g[1], g[0], tolerance, tolerance));
}

TEST(powers_neither_overflow_nor_vanish)
{
    static const double scales[] = {1e37, 1e30, 1e-30, 1e200, 1e-200, 1e307}, powers[] = {2, 3, 1.5, 1, 0.5, INFINITY};
    for (int k = 0; k < 6; ++k) {
        const bool in_f32 = k < 3;
        for (int d = 0; d < 3; ++d) {
            const tg_dtype dtype = d == 0 ? TG_F64 : d == 1 ? TG_F32 : TG_BF16;
            if (dtype != TG_F64 && !in_f32) continue;
            scaled(std_of, dtype, scales[k]);
            if (dtype != TG_F64 || HERE.type == TG_DEV_CPU) /* a device has no wider sum for f64 */
                scaled(mean_of, dtype, scales[k] > 1 ? 4 * scales[k] : scales[k]);
            for (int i = 0; i < 6; ++i) {
                norm_p = powers[i];
                scaled(norm_of, dtype, scales[k] > 1 && norm_p < 1 ? scales[k] / 1e4 : scales[k]);
                if (norm_p > 1) scaled(distance_of, dtype, scales[k]);
            }
        }
    }
    norm_p = 2;
    scaled(norm_of, TG_F16, 1e4), scaled(norm_of, TG_F16, 1e-6), scaled(std_of, TG_F16, 1e4), scaled(mean_of, TG_F16, 1e4);
    CHECK(isinf(tg_item(tg_norm(f64("[1, inf]")))) && isnan(tg_item(tg_norm(f64("[1, nan]")))));
    CHECK(isnan(tg_item(tg_mean(f64("[inf, -inf]")))) && isinf(tg_item(tg_mean(f64("[1, inf]")))));
    CHECK(isnan(tg_item(tg_std(f64("[1, inf]")))) && tg_item(tg_std(f64("[7, 7]"))) == 0);
}

/* What is computed from sizes and steps is exact in f64, and rounded once. */
TEST(positions_are_rounded_once)
{
    static const struct { int64_t in, out; } sizes[] = {{100000, 99999}, {99999, 100000}, {3, 100000}, {1237, 30000}, {5, 3}};
    static const tg_dtype dtypes[] = {TG_F32, TG_F64, TG_BF16, TG_F16};
    for (int d = 0; d < 4; ++d) {
        tg_tensor *wide = tg_arange_on(1000, 5000, 3, TG_F64, HERE), *spaced, *want;
        CHECK(tg_equal(tg_arange_on(1000, 5000, 3, dtypes[d], HERE), tg_to_dtype(wide, dtypes[d])));
        CHECK(tg_get(wide, TG_INDEX(353)) == 2059);
        tg_set_default_dtype(dtypes[d]);
        spaced = tg_linspace(-3, 1000, 1004); /* steps of 1 */
        tg_set_default_dtype(TG_F32);
        want = tg_to(tg_arange_on(-3, 1001, 1, TG_F64, TG_CPU), tg_device_of(spaced));
        CHECK(tg_equal(spaced, tg_to_dtype(want, dtypes[d])));
    }
    for (int k = 0; k < 5; ++k) { /* of a ramp, linear interpolation is the position */
        const double in = (double)sizes[k].in, out = (double)sizes[k].out;
        tg_tensor *ramp = tg_reshape(tg_arange_on(0, in, 1, TG_F64, HERE), TG_SHAPE(1, 1, sizes[k].in));
        tg_tensor *at = tg_mul_scalar(tg_add_scalar(tg_arange_on(0, out, 1, TG_F64, HERE), 0.5), in / out);
        at = tg_reshape(tg_clamp(tg_sub_scalar(at, 0.5), 0, in - 1), TG_SHAPE(1, 1, sizes[k].out));
        CHECK(tg_allclose(tg_interpolate(ramp, TG_SHAPE(sizes[k].out), "linear"), at, 0, 1e-10));
        ramp = tg_to_dtype(ramp, TG_F32); /* an element is a number of 24 bits there, a mixture of two is rounded */
        CHECK(tg_allclose(tg_interpolate(ramp, TG_SHAPE(sizes[k].out), "linear"), at, 3e-7, 1e-6));
    }
}

TEST(mean_of_large_numbers)
{
    static const tg_dtype dtypes[] = {TG_F32, TG_BF16, TG_F16};
    for (int i = 0; i < 3; ++i) {
        const double large = dtypes[i] == TG_F16 ? 65504 : dtypes[i] == TG_BF16 ? ldexp(1, 127) : 3e38;
        tg_tensor *x = tg_full_on(TG_SHAPE(70, 304), large, dtypes[i], HERE), *negative = tg_narrow(x, 0, 0, 35);
        CHECK_NEAR(tg_item(tg_mean(x)) / large, 1, 1e-6);
        CHECK_NEAR(tg_item(tg_min(tg_mean_dim(x, 0, false))) / large, 1, 1e-6);
        CHECK_NEAR(tg_item(tg_max(tg_mean_dim(x, 1, false))) / large, 1, 1e-6);
        CHECK_NEAR(tg_item(tg_max(tg_mean_dim(tg_narrow(x, 1, 1, 301), 1, false))) / large, 1, 1e-6);
        tg_neg_(negative);
        CHECK_NEAR(tg_item(tg_mean(x)) / large, 0, 1e-6);
        CHECK(isinf(tg_item(tg_mean(tg_fill_(tg_narrow(x, 1, 3, 1), INFINITY)))));
    }
}

static tg_tensor *layer_norm_of(tg_tensor *x) { return tg_layer_norm(x, 1, NULL, NULL, 0); }
static tg_tensor *rms_norm_of(tg_tensor *x) { return tg_rms_norm(x, 1, tg_ones_like(tg_detach(x)), 0); }
static tg_tensor *group_norm_of(tg_tensor *x) { return tg_group_norm(tg_view(x, TG_SHAPE(1, 4)), 1, NULL, NULL, 0); }
static tg_tensor *weighted_norm_of(tg_tensor *x)
{
    return tg_layer_norm(x, 1, tg_ones_like(tg_detach(x)), tg_zeros_like(tg_detach(x)), 0);
}

/* Norms do not depend on the scale of x, and their gradient is divided by it. */
TEST(norms_of_large_and_small_rows)
{
    static const double scales[] = {8e37, 1e30, 1e19, 1e-22, 1e-32, 1e200, 1e-200, 4e307};
    tg_tensor *(*const norms[])(tg_tensor *) = {layer_norm_of, rms_norm_of, group_norm_of, weighted_norm_of};
    if (HERE.type != TG_DEV_CPU) {
        printf("skipped on a GPU, where squares of f32 overflow\n");
        return;
    }
    const bool plain =
        harness_skips_plain("norms_of_large_and_small_rows whose squares overflow in f64") || !HARNESS_VECTORS;
    for (int k = 0; k < 8 * 3 * 4; ++k) {
        const double scale = scales[k / 12];
        const tg_dtype dtype = k / 4 % 3 == 0 ? TG_F64 : k / 4 % 3 == 1 ? TG_F32 : TG_BF16;
        tg_tensor *x[2], *y[2], *g[2], *v = tg_to_dtype(f64("[1, 2, -1, 0.5]"), dtype);
        if (k / 12 > 4 && (dtype != TG_F64 || plain)) continue;
        for (int i = 0; i < 2; ++i) {
            x[i] = tg_mul_scalar(f64("[3, 4, -1, 2]"), i ? scale : 1);
            x[i] = tg_set_requires_grad(tg_detach(tg_to_dtype(x[i], dtype)), true);
            y[i] = norms[k % 4](x[i]);
            CHECK(backward_sum(tg_mul(y[i], v)) == TG_OK);
            g[i] = tg_mul_scalar(tg_to_dtype(tg_grad(x[i]), TG_F64), i ? scale : 1);
        }
        CHECK(tg_allclose(y[1], y[0], dtype == TG_BF16 ? 2e-2 : 1e-5, dtype == TG_BF16 ? 2e-2 : 1e-6));
        CHECK(tg_allclose(g[1], g[0], dtype == TG_BF16 ? 5e-2 : 1e-4, dtype == TG_BF16 ? 2e-2 : 1e-4));
    }
}

/* The gradient of sum(y) for x of this dtype; times `by`, so that it can be compared. */
static void slope_near_the_ends(tg_tensor *y, tg_tensor *x, double by, const char *slope)
{
    tg_tensor *root = tg_sum(y), *g = NULL;
    CHECK(tg_gradients(&root, 1, NULL, &x, 1, &g, 0) == TG_OK);
    CHECK(tg_allclose(tg_mul_scalar(tg_to_dtype(g, TG_F64), by), f64(slope), 1e-3, 0));
}

/* Gradients that are representable where a step on the way is not. */
TEST(gradients_near_the_ends_of_the_range)
{
    tg_tensor *x = leaf_of(TG_F32, "[1e30, 2e30]"), *g = NULL, *h = NULL;
    slope_near_the_ends(tg_prod(x), x, 1e-30, "[2, 1]");
    x = leaf_of(TG_F32, "[1e-30, 2e-30, 1]");
    slope_near_the_ends(tg_prod(x), x, 1e30, "[2, 1, 0]");
    x = leaf_of(TG_F16, "[200, 200, 4]");
    slope_near_the_ends(tg_prod(x), x, 1, "[800, 800, 40000]");
    x = leaf_of(TG_F16, "[40000, 5]"); /* the gradient of its sigmoid overflows in f16 */
    slope_near_the_ends(tg_mul_scalar(tg_glu(x, 0), 2), x, 1, "[1.98661, 531.845]");
    x = leaf_of(TG_F32, "[1e25, -2]");
    tg_tensor *root = tg_sum(tg_softsign(x));
    CHECK(tg_gradients(&root, 1, NULL, &x, 1, &g, TG_CREATE_GRAPH) == TG_OK && (root = tg_sum(g)) != NULL);
    CHECK(tg_gradients(&root, 1, NULL, &x, 1, &h, 0) == TG_OK);
    CHECK(tg_allclose(h, f64("[0, 0.0740740740]"), 1e-6, 0));
    tg_set_default_dtype(TG_F64);
    HAS(tg_mul_scalar(tg_linspace(-1.6e308, 1.6e308, 5), 1e-308), "[-1.6, -0.8, 0, 0.8, 1.6]");
    tg_set_default_dtype(TG_F32);
}

/* The gradient of sum(f(x) * [1, 2, ..]), and its gradient in turn, weighted in the same way. */
static void second(tg_tensor *y, tg_tensor *x, const char *first, const char *then)
{
    tg_tensor *w = tg_reshape(tg_arange_on(1, (double)tg_numel(y) + 1, 1, TG_F64, HERE), tg_shape_of(y)), *g = NULL, *h = NULL;
    tg_tensor *v = tg_reshape(tg_arange_on(1, (double)tg_numel(x) + 1, 1, TG_F64, HERE), tg_shape_of(x));
    tg_tensor *root = tg_sum(tg_mul(y, w));
    CHECK(tg_gradients(&root, 1, NULL, &x, 1, &g, TG_CREATE_GRAPH) == TG_OK);
    CHECK(tg_allclose(g, f64(first), 1e-4, 1e-4));
    root = tg_sum(tg_mul(g, v));
    CHECK(tg_gradients(&root, 1, NULL, &x, 1, &h, TG_MATERIALIZE_GRADS) == TG_OK);
    CHECK(tg_allclose(h, f64(then), 1e-4, 1e-4));
}

/* The gradient of sum(f(x) * v), differentiated by v: no NaN comes from a branch that is not taken. */
static void slope_by_v(tg_tensor *y, tg_tensor *x, const char *slope)
{
    tg_tensor *v = tg_param(tg_ones_like(y)), *root = tg_sum(tg_mul(y, v)), *g = NULL, *h = NULL;
    CHECK(tg_gradients(&root, 1, NULL, &x, 1, &g, TG_CREATE_GRAPH) == TG_OK);
    root = tg_sum(g);
    CHECK(tg_gradients(&root, 1, NULL, &v, 1, &h, TG_MATERIALIZE_GRADS) == TG_OK);
    CHECK(tg_allclose(h, f64(slope), 1e-12, 0));
    tg_release(v);
}

/* Equal rows, zero rows and kinks: PyTorch's numbers where it has some, finite where it has NaN (norm and normalize). */
TEST(second_derivatives_at_special_points)
{
    tg_tensor *x = leaf("[[0, 0], [3, 4]]"), *e = leaf("[0, -1, 1]");
    second(tg_cdist(x, x, 2), x, "[[-3, -4], [3, 4]]", "[[-0.32, 0.24], [0.32, -0.24]]");
    second(tg_cdist(x, x, 3), x, "[[-2.22426, -3.95423], [2.22426, 3.95423]]", "[[-0.52144, 0.39108], [0.52144, -0.39108]]");
    second(tg_cdist(x, x, 1.5), x, "[[-3.66478, -4.23173], [3.66478, 4.23173]]",
           "[[-0.18514, 0.13886], [0.18514, -0.13886]]");
    second(tg_cdist(x, x, 0.5), x, "[[-10.7735, -9.33013], [10.7735, 9.33013]]",
           "[[0.48113, -0.36084], [-0.48113, 0.36084]]");
    second(tg_cdist(x, f64("[[0, 0], [1, 1]]"), 2), x, "[[-1.41421, -1.41421], [4.0188, 5.7282]]",
           "[[-0.70711, 0.70711], [0.25602, -0.17068]]");
    second(tg_norm_dim(x, 2, -1, false), x, "[[0, 0], [1.2, 1.6]]", "[[0, 0], [0, 0]]");
    second(tg_norm_dim(x, 3, -1, false), x, "[[0, 0], [0.8897, 1.58169]]", "[[0, 0], [0, 0]]");
    second(tg_elu(e, 2), e, "[2, 1.47152, 3]", "[0, 2.94304, 0]");
    second(tg_celu(e, 2), e, "[1, 1.21306, 3]", "[0, 1.21306, 0]");
    second(tg_selu(e), e, "[1.7581, 1.29354, 3.1521]", "[0, 2.58707, 0]");
    tg_tensor *t = leaf("[3, 2, 4, -1]"), *p = leaf("[[0, 2], [1, 2]]"), *i = leaf("[[inf, 2], [1, 2]]");
    second(tg_softplus(t, 1, 3), t, "[0.952574, 1.761594, 3, 1.075766]", "[0, 0.419974, 0, 3.145791]");
    second(tg_norm_dim(p, -1, -1, false), p, "[[0, 0], [0.888889, 0.222222]]", "[[0, 0], [-0.592593, 0.296296]]");
    second(tg_norm_dim(p, -2, -1, false), p, "[[0, 0], [1.431084, 0.178885]]", "[[0, 0], [-0.85865, 0.429325]]");
    second(tg_norm_dim(i, -1, -1, false), i, "[[0, 1], [0.888889, 0.222222]]", "[[0, 0], [-0.592593, 0.296296]]");
    tg_tensor *equal = leaf("[[[2, 2, 2], [1, 2, 4]]]"), *wide = leaf("[inf, -inf, 3, -3, 1]"), *zero = leaf("[0, 0, 0]");
    second(tg_instance_norm(equal, NULL, NULL, NULL, NULL, true, 0.1, 0), equal,
           "[[[0, 0, 0], [-0.114541, 0.171811, -0.05727]]]", "[[[0, 0, 0], [0.163629, -0.216809, 0.05318]]]");
    tg_tensor *empty = tg_instance_norm(tg_zeros(TG_SHAPE(2, 3, 0)), NULL, NULL, NULL, NULL, true, 0.1, 0);
    CHECK(empty && tg_numel(empty) == 0);
    slope_by_v(tg_hardswish(wide), wide, "[1, 0, 1, 0, 0.8333333333333333]");
    slope_by_v(tg_pow(f64("[0, 0, 2]"), zero), zero, "[0, 0, 0.6931471805599453]");
    tg_tensor *weight = leaf("[0.25, 0.5]");
    slope_by_v(tg_prelu(f64("[[inf, -2]]"), weight), weight, "[[0, -2]]");
    second(tg_pow(zero, f64("[2, 3, 1]")), zero, "[0, 0, 3]", "[2, 0, 0]");
    /* far from 0 the second derivative is small, not 0 */
    for (int f = 0; f < 2; ++f) {
        tg_tensor *x1 = tg_param(tg_to_dtype(f64(f ? "[-6, 6]" : "[20, -20]"), TG_F32)), *g = NULL, *h = NULL;
        tg_tensor *root = tg_sum(f ? tg_gelu(x1, true) : tg_logsigmoid(x1));
        CHECK(tg_gradients(&root, 1, NULL, &x1, 1, &g, TG_CREATE_GRAPH) == TG_OK && (root = tg_sum(g)) != NULL);
        CHECK(tg_gradients(&root, 1, NULL, &x1, 1, &h, 0) == TG_OK);
        tg_tensor *want = f64(f ? "[-6.824247, -6.824247]" : "[-2.061154, -2.061154]"); /* times 1e-9 */
        CHECK(tg_allclose(tg_mul_scalar(h, 1e9), want, 1e-5, 0));
        tg_release(x1);
    }
    /* weights of all targets are 0: NaN in PyTorch, also with label smoothing; in one kernel, and composed */
    for (int smooth = 0; smooth < 2; ++smooth) {
        for (int d = 0; d < 2; ++d) {
            tg_tensor *zeros = tg_zeros_on(TG_SHAPE(1), TG_I64, HERE), *w = tg_to_dtype(f64("[0, 1]"), d ? TG_F32 : TG_F64);
            tg_tensor *even = tg_zeros(d ? TG_SHAPE(1, 2) : TG_SHAPE(1, 2, 1));
            if (!d) zeros = tg_unsqueeze(zeros, 1), even = tg_to_dtype(even, TG_F64);
            CHECK(isnan(tg_item(tg_cross_entropy_ex(even, zeros, w, -100, smooth ? 0.1 : 0, TG_MEAN))));
        }
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
    tg_tensor *x = leaf("[[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]"),
              *v = tg_narrow(tg_t(tg_slice(x, 1, 0, 4, 2)), 1, 1, 2);
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

/* The gradient of an activation may take the place of the one it is computed from, but not of one that others hold: a
   hook, tg_retain_grad, a caller, the other input of an op. */
static tg_tensor *hold(tg_tensor *g, void *user)
{
    *(tg_tensor **)user = tg_retain(g);
    return NULL;
}

TEST(gradients_in_place)
{
    for (int holds = 0; holds < 5; ++holds) {
        tg_tensor *x = leaf("[-1, 2, 3]"), *y = tg_mul_scalar(x, 2), *z = tg_relu(y), *held = NULL, *dx = NULL;
        tg_tensor *g = f64("[5, 6, 7]"), *sum = tg_add(z, x), *root = holds == 4 ? sum : tg_mul_scalar(z, 1);
        if (holds == 1) tg_hook(z, hold, &held);
        if (holds == 2) tg_retain_grad(z);
        if (holds == 3) root = z;
        CHECK(tg_backward_ex(&root, 1, &g, TG_RETAIN_GRAPH) == TG_OK);
        HAS(tg_grad(x), holds == 4 ? "[5, 18, 21]" : "[0, 12, 14]");
        HAS(g, "[5, 6, 7]");
        if (holds == 1) HAS(held, "[5, 6, 7]");
        if (holds == 1) tg_release(held);
        if (holds == 2) HAS(tg_grad(z), "[5, 6, 7]");
        if (holds == 2) CHECK(tg_gradients(&root, 1, &g, &z, 1, &dx, 0) == TG_OK && tg_equal(dx, g));
    }
}

/* A part of a tensor adds its gradient at its place to what the tensor has received, or to zeros: from rows, columns, a
   diagonal and windows that share elements, where the tensor is used as a whole, too, and where others hold its
   gradient. */
TEST(gradients_of_parts)
{
    static const tg_dtype dtypes[] = {TG_F32, TG_F64, TG_BF16, TG_F16};
    for (int k = 0; k < 20; ++k) {
        tg_tensor *x = leaf_of(dtypes[k % 4], "[[1, 2, 3], [4, 5, 6], [7, 8, 9]]"), *y = tg_mul_scalar(x, 2);
        tg_tensor *held = NULL, *dx = NULL, *all = tg_mul_scalar(tg_sum(y), k / 4 == 3 ? 64 : 0);
        tg_tensor *rows = tg_sum(tg_narrow(y, 0, 0, 2)), *columns = tg_sum(tg_slice(y, 1, 0, 3, 2));
        tg_tensor *row = tg_sum(tg_select(y, 0, 1)), *diagonal = tg_sum(tg_diagonal(y, 0, 0, 1));
        tg_tensor *windows = tg_sum(tg_unfold(y, 0, 2, 1)), *loss = tg_add(rows, tg_mul_scalar(columns, 2));
        loss = tg_add(tg_add(loss, tg_mul_scalar(row, 4)), tg_add(tg_mul_scalar(diagonal, 8), all));
        loss = tg_add(loss, tg_mul_scalar(windows, 16));
        if (k / 4 == 1) tg_retain_grad(y);
        if (k / 4 == 2) tg_hook(y, hold, &held);
        if (k / 4 == 4) CHECK(tg_gradients(&loss, 1, NULL, &x, 1, &dx, TG_CREATE_GRAPH) == TG_OK);
        else CHECK(tg_backward(loss) == TG_OK);
        HAS(k / 4 == 4 ? dx : tg_grad(x), k / 4 == 3 ? "[[182, 162, 166], [206, 218, 206], [164, 160, 180]]"
                                                     : "[[54, 34, 38], [78, 90, 78], [36, 32, 52]]");
        if (k / 4 == 1) HAS(tg_grad(y), "[[27, 17, 19], [39, 45, 39], [18, 16, 26]]");
        if (k / 4 == 2) HAS(held, "[[27, 17, 19], [39, 45, 39], [18, 16, 26]]");
        if (k / 4 == 2) tg_release(held);
    }
}

/* Of writes to one element the last one alone has its gradient: as the host finds them, and as each write gives its
   number.  Indices lie in memory in any way, are fewer than src, or move rows. */
TEST(gradients_of_writes)
{
    for (int k = 0; k < 24; ++k) {
        TG_SCOPE;
        const int dim = k % 3;
        tg_shape some = k / 12 ? TG_SHAPE(5, 7, 3) : TG_SHAPE(4, 6, 2);
        tg_tensor *t = tg_set_requires_grad(tg_randn_on(TG_SHAPE(5, 7, 3), TG_F64, HERE), true), *index, *y, *d[2][2];
        tg_tensor *src = tg_set_requires_grad(tg_randn_on(TG_SHAPE(5, 7, 3), TG_F64, HERE), true), *in[2] = {t, src};
        for (int i = 0; i < 3 && k / 3 % 2; ++i) some.dim[i] = i == dim ? some.dim[i] : 1;
        index = tg_to(tg_randint(0, 3, some), HERE);
        if (k / 6 % 2) index = tg_transpose(tg_contiguous(tg_transpose(tg_to_dtype(index, TG_I32), 0, 2)), 0, 2);
        for (int i = 0; i < 3; ++i) some.dim[i] = some.dim[i] == 1 ? 3 : some.dim[i];
        index = tg_expand(index, some);
        for (int composed = 0; composed < 2; ++composed) {
            inside_compose(composed != 0);
            y = tg_sum(tg_mul(tg_scatter(t, dim, index, src), tg_detach(tg_exp(t))));
            CHECK(tg_gradients(&y, 1, NULL, in, 2, d[composed], 0) == TG_OK);
            inside_compose(false);
        }
        for (int i = 0; i < 2; ++i) CHECK(tg_equal(d[0][i], d[1][i]));
        y = tg_sum(tg_mul(tg_scatter(t, dim, index, tg_full_like(src, 2)), tg_detach(tg_exp(t)))); /* what is left */
        CHECK(tg_gradients(&y, 1, NULL, &t, 1, d[1], 0) == TG_OK && tg_equal(d[1][0], d[0][0]));
        CHECK_NEAR(tg_item(tg_add(tg_sum(d[0][0]), tg_sum(d[0][1]))), tg_item(tg_sum(tg_exp(t))), 1e-9);
    }
}

/* Sums of elements of 16 bits are rounded once on the host: of 64 ones added to 256 each would be lost by itself. */
TEST(sums_at_an_index_are_rounded_once)
{
    static const tg_dtype dtypes[] = {TG_BF16, TG_F16};
    for (int k = 0; k < 2 && HERE.type == TG_DEV_CPU; ++k) {
        TG_SCOPE;
        const double large = k ? 2048 : 256;
        tg_tensor *t = tg_full_on(TG_SHAPE(2, 8), large, dtypes[k], HERE), *src = tg_ones_on(TG_SHAPE(2, 64), dtypes[k], HERE);
        tg_tensor *index = tg_zeros_on(TG_SHAPE(2, 64), TG_I64, HERE), *y = tg_scatter_add(t, 1, index, src);
        CHECK(tg_get(y, TG_INDEX(1, 0)) == large + 64 && tg_get(y, TG_INDEX(1, 1)) == large);
        y = tg_scatter_add(tg_t(t), 0, tg_t(index), tg_t(src));
        CHECK(tg_get(y, TG_INDEX(0, 1)) == large + 64);
        tg_scatter_add_(t, 1, index, src);
        CHECK(tg_get(t, TG_INDEX(0, 0)) == large + 64);
        y = tg_scatter_reduce(t, 1, index, src, "amin", true);
        CHECK(tg_get(y, TG_INDEX(1, 0)) == 1 && tg_get(y, TG_INDEX(1, 1)) == large);
        y = tg_index_add(t, 1, tg_select(index, 0, 0), tg_mul_scalar(src, 4));
        CHECK(tg_get(y, TG_INDEX(0, 0)) == large + 320);
    }
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    harness_take_device();
    RUN(shapes_of_gradients);
    RUN(second_derivatives_at_kinks);
    RUN(second_derivatives_of_special_functions);
    RUN(gradients_of_largest_differences);
    RUN(numbers_near_the_limits);
    RUN(gradients_at_kinks);
    RUN(cross_entropy_weighted_and_smoothed);
    RUN(cross_entropy_gradients_of_forward);
    RUN(nll_loss_with_none_ignored);
    RUN(cross_entropy_of_large_logits);
    RUN(losses_at_edges);
    RUN(powers_neither_overflow_nor_vanish);
    RUN(positions_are_rounded_once);
    RUN(mean_of_large_numbers);
    RUN(norms_of_large_and_small_rows);
    RUN(gradients_near_the_ends_of_the_range);
    RUN(second_derivatives_at_special_points);
    RUN(accumulation_and_items);
    RUN(broadcast_on_either_side);
    RUN(broadcast_batched_matmul);
    RUN(mean_and_sum_over_each_axis);
    RUN(view_of_a_view);
    RUN(transpose_then_matmul);
    RUN(gradients_in_place);
    RUN(gradients_of_parts);
    RUN(gradients_of_writes);
    RUN(sums_at_an_index_are_rounded_once);
    check_rows("test_gradients");
    CHECK(tg_shutdown() == TG_OK);
    return harness_end();
}
