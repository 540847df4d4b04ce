/* tg_gradcheck and tg_gradgradcheck: what passes, the mistakes of a backward that they find and name, the report, and
 * what they refuse. */
#include "tensorgrad.h"
#include "semantics.h"
#include "helpers.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* ---- functions to be checked, right and wrong ---- */

static tg_tensor *random_f64(tg_shape shape) { return tg_set_requires_grad(tg_randn_on(shape, TG_F64, HERE), true); }

static tg_tensor *cube(tg_tensor *const *in, int n, void *user)
{
    (void)n, (void)user;
    return tg_sum(tg_mul(in[0], tg_mul(in[0], in[0])));
}

static tg_tensor *layer(tg_tensor *const *in, int n, void *user)
{
    (void)n, (void)user;
    return tg_tanh(tg_add(tg_matmul(in[0], in[1]), in[2]));
}

static tg_tensor *dropped(tg_tensor *const *in, int n, void *user)
{
    (void)n, (void)user;
    return tg_dropout(tg_mul(in[0], in[0]), 0.5, true);
}

static tg_tensor *rectified(tg_tensor *const *in, int n, void *user)
{
    (void)n, (void)user;
    return tg_relu(in[0]);
}

static tg_tensor *rooted(tg_tensor *const *in, int n, void *user)
{
    (void)n, (void)user;
    return tg_sqrt(in[0]);
}

static tg_tensor *detached(tg_tensor *const *in, int n, void *user)
{
    (void)n, (void)user;
    return tg_exp(tg_detach(in[0]));
}

static tg_tensor *constant(tg_tensor *const *in, int n, void *user)
{
    (void)n, (void)user;
    return tg_ones_like(in[0]);
}

static tg_tensor *itself(tg_tensor *const *in, int n, void *user)
{
    (void)n, (void)user;
    return in[0];
}

static tg_tensor *compared(tg_tensor *const *in, int n, void *user)
{
    (void)n, (void)user;
    return tg_gt_scalar(in[0], 0);
}

static tg_tensor *nothing(tg_tensor *const *in, int n, void *user)
{
    (void)in, (void)n, (void)user;
    return NULL;
}

static tg_tensor *unended(tg_tensor *const *in, int n, void *user)
{
    (void)n, (void)user;
    (void)tg_scope_begin();
    return tg_exp(in[0]);
}

static tg_tensor *growing(tg_tensor *const *in, int n, void *user)
{
    int *calls = (int *)user;
    (void)n;
    return tg_reshape(tg_expand(tg_sum(in[0]), TG_SHAPE(++*calls)), TG_SHAPE(-1));
}

static tg_tensor *noisy(tg_tensor *const *in, int n, void *user)
{
    (void)n;
    return tg_mul_scalar(tg_sum(in[0]), (double)++*(int *)user);
}

/* y = x w with a backward that is wrong in the way that `user` names. */
enum { RIGHT, SIGN, TWICE, HALF, MISSING, NEVER, TRANSPOSED, OFFSET, UNSTEADY, ONCE, NO_G, FAILING };
typedef struct {
    int bug, calls;
} planted;

static tg_status product_forward(tg_ctx *c, tg_tensor *const *in, tg_tensor **out)
{
    tg_save(c, in[0]), tg_save(c, in[1]);
    out[0] = tg_matmul(in[0], in[1]);
    return tg_ok() ? TG_OK : tg_error_code();
}

static tg_status product_backward(tg_ctx *c, tg_tensor *const *g, tg_tensor **gin)
{
    planted *p = (planted *)tg_ctx_user(c);
    tg_tensor *x = tg_saved(c, 0), *w = tg_saved(c, 1), *gw = tg_matmul(tg_t(x), g[0]);
    gin[0] = tg_matmul(g[0], tg_t(w));
    switch (p->bug) {
    case SIGN: gw = tg_neg(gw); break;
    case TWICE: gw = tg_mul_scalar(gw, 2); break;
    case HALF: gw = tg_mul_scalar(gw, 0.5); break;
    case MISSING: gw = tg_matmul(tg_t(tg_narrow(x, 0, 0, 1)), tg_narrow(g[0], 0, 0, 1)); break;
    case NEVER: gw = NULL; break;
    case TRANSPOSED: gw = tg_reshape(tg_contiguous(tg_t(gw)), tg_shape_of(gw)); break;
    case OFFSET: gw = tg_add_scalar(gw, 1); break;
    case UNSTEADY: gw = tg_mul_scalar(gw, p->calls++ % 2 ? 1 : 1.0000001); break;
    case ONCE: gw = tg_matmul(tg_t(x), tg_detach(g[0])); break;
    case NO_G: gw = tg_contiguous(tg_expand(tg_sum_dim(tg_t(x), 1, true), tg_shape_of(w))); break;
    case FAILING: gw = tg_matmul(x, g[0]); break;
    default: break;
    }
    gin[1] = gw;
    return tg_ok() ? TG_OK : tg_error_code();
}

static tg_tensor *product(tg_tensor *const *in, int n, void *user)
{
    tg_tensor *y = NULL;
    tg_custom("product", product_forward, product_backward, user, in, n, &y, 1);
    return y;
}

/* y = x + b, with b broadcast to x, and a gradient of b that is wrong in the way that `shift` names. */
enum { SUMMED, UNSUMMED, AVERAGED, AVERAGED_ONCE, ONE_ROW, HALVED, EIGHTFOLD, FAILED };
static int shift;

static tg_status shift_forward(tg_ctx *c, tg_tensor *const *in, tg_tensor **out)
{
    tg_save(c, in[1]);
    out[0] = tg_add(in[0], in[1]);
    return TG_OK;
}

/* g [2 dims], summed to a shape that can be broadcast to its own */
static tg_tensor *summed_to(tg_tensor *g, tg_shape shape)
{
    if (shape.ndim < 2 || shape.dim[0] == 1) g = tg_sum_dim(g, 0, true);
    if (shape.dim[shape.ndim - 1] == 1) g = tg_sum_dim(g, 1, true);
    return tg_reshape(g, shape);
}

static tg_status shift_backward(tg_ctx *c, tg_tensor *const *g, tg_tensor **gin)
{
    const tg_shape shape = tg_shape_of(tg_saved(c, 0));
    tg_tensor *sum = summed_to(g[0], shape);
    const double repeated = (double)tg_numel(g[0]) / (double)tg_numel(sum);
    gin[0] = g[0];
    switch (shift) {
    case UNSUMMED: gin[1] = g[0]; break;
    case AVERAGED: gin[1] = tg_div_scalar(sum, repeated); break;
    case AVERAGED_ONCE: gin[1] = tg_div_scalar(sum, (double)tg_dim(g[0], 0)); break;
    case ONE_ROW: gin[1] = tg_reshape(tg_select(g[0], 0, 1), shape); break;
    case HALVED: gin[1] = tg_div_scalar(sum, 2); break;
    case EIGHTFOLD: gin[1] = tg_mul_scalar(sum, 8); break;
    case FAILED: gin[1] = tg_matmul(g[0], g[0]); break; /* and it goes on */
    default: gin[1] = sum;
    }
    return TG_OK;
}

/* user: not NULL if the result is to be a scalar */
static tg_tensor *shifted(tg_tensor *const *in, int n, void *user)
{
    tg_tensor *y = NULL;
    tg_custom("shift", shift_forward, shift_backward, NULL, in, n, &y, 1);
    return y && user ? tg_sum(tg_mul(y, y)) : y;
}

/* ---- gradcheck ---- */

TEST(gradcheck_passes)
{
    tg_tensor *in[3], *big;
    tg_seed(3);
    in[0] = random_f64(TG_SHAPE(3, 4)), in[1] = random_f64(TG_SHAPE(4, 2)), in[2] = random_f64(TG_SHAPE(2));
    ROW(2.90)
    {
        CHECK(tg_gradcheck(cube, in, 1, NULL));
        CHECK(tg_gradcheck(layer, in, 3, NULL));
        CHECK(tg_gradcheck(itself, in, 1, NULL) && tg_gradcheck(constant, in, 1, NULL));
        CHECK(tg_gradcheck(dropped, in, 1, NULL));
    }
    ROW(2.91)
    {
        CHECK(tg_gradgradcheck(cube, in, 1, NULL));
        CHECK(tg_gradgradcheck(layer, in, 3, NULL));
        CHECK(tg_gradgradcheck(dropped, in, 1, NULL) && tg_gradgradcheck(itself, in, 1, NULL));
    }
    /* an input that does not require grad is passed on, and not checked */
    in[1] = tg_set_requires_grad(tg_detach(in[1]), false);
    CHECK(tg_gradcheck(layer, in, 3, NULL) && tg_gradgradcheck(layer, in, 3, NULL));
    in[1] = tg_transpose(random_f64(TG_SHAPE(2, 4)), 0, 1); /* a view, not contiguous and not a leaf */
    CHECK(tg_gradcheck(layer, in, 3, NULL) && tg_gradgradcheck(layer, in, 3, NULL));
    big = random_f64(TG_SHAPE(5, 6));
    in[0] = tg_slice(tg_narrow(big, 0, 1, 3), 1, 0, 6, 2); /* an offset, and gaps */
    in[1] = random_f64(TG_SHAPE(3, 2));
    CHECK(tg_gradcheck(layer, in, 3, NULL) && tg_gradgradcheck(layer, in, 3, NULL));
    in[0] = random_f64(TG_SHAPE(0, 3));
    CHECK(tg_gradcheck(layer, in, 3, NULL) && tg_gradgradcheck(layer, in, 3, NULL));
    in[0] = tg_set_requires_grad(tg_full_on(TG_SHAPE(2), 1e6, TG_F64, HERE), true); /* h grows with x */
    CHECK(tg_gradcheck(cube, in, 1, NULL));
}

TEST(gradcheck_leaves_all_as_it_was)
{
    tg_tensor *x = random_f64(TG_SHAPE(2, 3)), *y, *loss;
    double before[6], after[6];
    tg_rng rng;
    int64_t version;
    tg_backward(tg_sum(x));
    y = tg_mul(x, x); /* a graph that has saved x */
    loss = tg_sum(y);
    tg_copy_out(x, before, sizeof before);
    rng = tg_rng_state();
    version = tg_version_of(x);
    CHECK(tg_gradcheck(dropped, &x, 1, NULL) && tg_gradgradcheck(dropped, &x, 1, NULL));
    tg_copy_out(x, after, sizeof after);
    CHECK(memcmp(before, after, sizeof before) == 0 && tg_version_of(x) == version);
    CHECK(rng.seed == tg_rng_state().seed && rng.offset == tg_rng_state().offset);
    CHECK_NEAR(tg_get(tg_grad(x), TG_INDEX(1, 1)), 1, 0);
    CHECK(tg_backward(loss) == TG_OK);
    {
        TG_NO_GRAD;
        CHECK(tg_gradcheck(cube, &x, 1, NULL) && !tg_is_grad_enabled());
    }
    CHECK(tg_is_grad_enabled());
}

TEST(gradcheck_finds_planted_bugs)
{
    static const struct {
        int bug;
        const char *error, *hint;
    } bugs[] = {
        {SIGN, "Jacobian mismatch for output 0 with respect to input 1", "wrong sign"},
        {TWICE, "Jacobian mismatch for output 0 with respect to input 1", "analytic is 2 times numeric"},
        {HALF, "Jacobian mismatch for output 0 with respect to input 1", "1/2 of the numeric: a factor 2 was lost"},
        {MISSING, "Jacobian mismatch for output 0 with respect to input 1", "a term is missing or wrong"},
        {NEVER, "Jacobian mismatch for output 0 with respect to input 1", "gradient never written"},
        {TRANSPOSED, "Jacobian mismatch for output 0 with respect to input 1", "transposed"},
        {OFFSET, "backward not multiplied by grad_output", "g as a factor"},
        {NO_G, "backward not multiplied by grad_output", "g as a factor"},
        {FAILING, "tg_matmul: ", "a is [2, 3] and b is [2, 3]"},
        {UNSTEADY, "Backward is not reentrant", "must not write"},
    };
    tg_tensor *in[2];
    planted p = {RIGHT, 0};
    int i;
    tg_seed(5);
    in[0] = random_f64(TG_SHAPE(2, 3)), in[1] = random_f64(TG_SHAPE(3, 3));
    CHECK(tg_gradcheck(product, in, 2, &p) && tg_gradgradcheck(product, in, 2, &p));
    for (i = 0; i < COUNT(bugs); ++i) {
        tg_gradcheck_options options;
        FILE *report = tmpfile();
        memset(&options, 0, sizeof options);
        options.report = report;
        options.name = "product";
        harness.sample = bugs[i].hint;
        p.bug = bugs[i].bug;
        CHECK(!tg_gradcheck_ex(product, in, 2, &p, &options));
        CHECK(strstr(tg_error_message(), bugs[i].error) && strstr(tg_error_message(), bugs[i].hint));
        CHECK(tg_error_code() == (p.bug == FAILING ? TG_ERR_SHAPE : TG_ERR_GRAPH));
        tg_clear_error();
        text_of(report);
        CHECK(strncmp(printed, "gradcheck product  f64", 22) == 0 && strstr(printed, "FAIL  hint: "));
        if (p.bug < OFFSET) CHECK(strstr(printed, bugs[i].hint));
    }
    harness.sample = NULL;
    p.bug = ONCE; /* the gradient is right, but has no history */
    CHECK(tg_gradcheck(product, in, 2, &p));
    CHECK_FAILS(tg_gradgradcheck(product, in, 2, &p), "gradgradcheck: Jacobian mismatch");
}

/* A lost factor and a sum that is missing or only a part are told apart, by the sizes that are broadcast. */
TEST(gradcheck_tells_a_factor_from_a_sum)
{
    int scalar = 1;
    tg_tensor *in[2];
    const struct {
        int shift;
        tg_shape x, b;
        const char *hint;
    } rows[] = {
        {AVERAGED, TG_SHAPE(4, 3), TG_SHAPE(3), "1/4 of the numeric: averaged over the broadcast dims [0], not summed"},
        {AVERAGED, TG_SHAPE(4, 3), TG_SHAPE(4, 1), "1/3 of the numeric: averaged over the broadcast dims [1], not sum"},
        {AVERAGED, TG_SHAPE(4, 3), TG_SHAPE(1), "1/12 of the numeric: averaged over the broadcast dims [0, 1], not"},
        {AVERAGED, TG_SHAPE(2, 3), TG_SHAPE(3), "dims [0], not summed; or a factor 2 was lost (as of x*x)"},
        {AVERAGED_ONCE, TG_SHAPE(5, 3), TG_SHAPE(1, 1), "1/5 of the numeric: averaged over the broadcast dims [0], "},
        {ONE_ROW, TG_SHAPE(4, 3), TG_SHAPE(3), "only a part is summed of the broadcast dims [0]"},
        {HALVED, TG_SHAPE(4, 3), TG_SHAPE(3), "1/2 of the numeric: a factor 2 was lost (as of x*x)"},
        {HALVED, TG_SHAPE(2, 3), TG_SHAPE(2, 3), "1/2 of the numeric: a factor 2 was lost (as of x*x)"},
        {AVERAGED_ONCE, TG_SHAPE(3, 4), TG_SHAPE(3, 4), "1/3 of the numeric: divided by that size once too often, or"},
        {EIGHTFOLD, TG_SHAPE(8, 3), TG_SHAPE(3), "constant ratio: analytic is 8 times numeric: not divided by that si"},
    };
    tg_seed(9);
    for (int i = 0; i < COUNT(rows); ++i) {
        in[0] = random_f64(rows[i].x), in[1] = random_f64(rows[i].b);
        harness.sample = rows[i].hint;
        shift = SUMMED;
        CHECK(tg_gradcheck(shifted, in, 2, NULL) && tg_gradcheck(shifted, in, 2, &scalar));
        shift = rows[i].shift;
        CHECK_FAILS(tg_gradcheck(shifted, in, 2, NULL), rows[i].hint);
        /* of a sum of all, which has no dims, the other input tells what is broadcast; one row is any wrong number */
        CHECK_FAILS(tg_gradcheck(shifted, in, 2, &scalar),
                    shift == ONE_ROW ? "a term is missing or wrong, or not summed over the broadcast dims [0]"
                                     : rows[i].hint);
    }
    harness.sample = NULL;
    in[0] = random_f64(TG_SHAPE(5, 3)), in[1] = random_f64(TG_SHAPE(3));
    CHECK(!tg_gradcheck(shifted, in, 2, NULL) && !strstr(tg_error_message(), "not divided"));
    CHECK_FAILS((tg_clear_error(), tg_gradcheck(shifted, in, 2, NULL)), "constant ratio: analytic is 8 times numeric");
    shift = UNSUMMED;
    CHECK_FAILS(tg_gradcheck(shifted, in, 2, &scalar), "returned a gradient of shape [5, 3] at index 1, for an inp");
    CHECK(tg_backward(shifted(in, 2, &scalar)) == TG_OK && tg_numel(tg_grad(in[1])) == 3); /* backward sums it */
}

/* One of 200 graphs of 2 to 9 ops drawn by the seed *user, over in[0] [2, 3], in[1] [3] and in[2] [3, 2]. */
static tg_tensor *drawn(tg_tensor *const *in, int n, void *user)
{
    uint64_t state = *(uint64_t *)user * 0x9E3779B97F4A7C15u + 1;
    tg_tensor *y[12], *t;
    int made = 0, ops = 2 + (int)(state >> 61);
    (void)n;
    y[made++] = in[0];
    y[made++] = tg_expand(in[1], TG_SHAPE(2, 3));
    while (made < ops + 2) {
        tg_tensor *a, *b;
        state = state * 6364136223846793005u + 1442695040888963407u;
        a = y[(state >> 40) % (uint64_t)made], b = y[(state >> 50) % (uint64_t)made];
        switch ((state >> 33) % 12) {
        case 0: t = tg_add(a, b); break;
        case 1: t = tg_mul(tg_tanh(a), b); break;
        case 2: t = tg_sub(a, tg_select(b, 0, 1)); break;
        case 3: t = tg_matmul(tg_tanh(a), tg_matmul(in[2], tg_sin(b))); break;
        case 4: t = tg_softmax(a, -1); break;
        case 5: t = tg_div(a, tg_add_scalar(tg_square(b), 1)); break;
        case 6: t = tg_flip(tg_cumsum(a, 1), TG_DIMS(0)); break;
        case 7: t = tg_log1p(tg_mul(a, a)); break;
        case 8: t = tg_add(tg_sum_dim(a, 1, true), b); break;
        case 9: t = tg_t(tg_reshape(tg_contiguous(tg_t(a)), TG_SHAPE(3, 2))); break;
        case 10: t = tg_mul_(tg_add_scalar(a, 0.5), tg_sigmoid(b)); break;
        default: t = tg_sqrt(tg_add_scalar(tg_mul(a, a), 0.1)); break;
        }
        y[made++] = t;
    }
    return (state >> 60) & 1 ? tg_mean(y[made - 1]) : y[made - 1];
}

TEST(gradcheck_has_no_false_alarms)
{
    tg_gradcheck_options strict;
    uint64_t seed;
    memset(&strict, 0, sizeof strict);
    strict.eps = 1e-5, strict.rtol = 1e-7, strict.atol = 1e-8;
    for (seed = 1; seed <= 200; ++seed) {
        TG_SCOPE;
        tg_tensor *in[3];
        tg_seed(seed);
        in[0] = random_f64(TG_SHAPE(2, 3)), in[1] = random_f64(TG_SHAPE(3)), in[2] = random_f64(TG_SHAPE(3, 2));
        if (!CHECK(tg_gradcheck_ex(drawn, in, 3, &seed, &strict))) printf("    seed %d\n", (int)seed);
        if (seed % 10 == 0) CHECK(tg_gradgradcheck(drawn, in, 3, &seed));
    }
}

TEST(gradcheck_report)
{
    const double a[4] = {1, 2, 3, 4}, b[4] = {0.5, -1, 2, 0.25};
    tg_gradcheck_options options;
    tg_tensor *in[2];
    planted p = {RIGHT, 0};
    int calls = 0;
    FILE *report = tmpfile();
    in[0] = tg_set_requires_grad(tg_from_f64(a, TG_SHAPE(2, 2)), true);
    in[1] = tg_set_requires_grad(tg_from_f64(b, TG_SHAPE(2, 2)), true);
    tg_set_name(in[1], "weight");
    memset(&options, 0, sizeof options);
    options.report = report;
    options.name = "product";
    CHECK(tg_gradcheck_ex(product, in, 2, &p, &options));
    text_of(report);
    CHECK(strstr(printed, "gradcheck product  f64  h=1e-06  centred\n"
                       "  param    n    worst idx  out idx  analytic      numeric       abs       rel      verdict\n"
                       "  input 0  4    ["));
    CHECK(strstr(printed, "\n  weight   4    [") && !strstr(printed, "FAIL"));
    p.bug = NEVER;
    options.report = report = tmpfile();
    options.quiet = true;
    options.eps = 0.5; /* exact for a product, so that what is printed is the same everywhere */
    CHECK(!tg_gradcheck_ex(product, in, 2, &p, &options) && tg_ok());
    CHECK(prints(report, "gradcheck product  f64  h=5e-01  centred\n"
                         "  param    n    worst idx  out idx  analytic      numeric       abs       rel      verdict\n"
                         "  input 0  4    [0,0]      [0,0]    0.5000000     0.5000000     0.0e+00   0.0e+00  ok\n"
                         "  weight   4    [1,0]      [1,0]    0.0000000     4.0000000     4.0e+00   1.0e+00  FAIL  "
                         "hint: gradient never written\n"));
    /* without g as a factor; an input that does not require grad; a rule that fails, and one that leaves the sum */
    p.bug = NO_G;
    tg_set_requires_grad(in[0], false);
    options.report = report = tmpfile();
    CHECK(!tg_gradcheck_ex(product, in, 2, &p, &options) && tg_ok());
    CHECK(prints(report, "gradcheck product  f64  h=5e-01  centred\n"
                         "  param    n    worst idx  out idx  analytic      numeric       abs       rel      verdict\n"
                         "  input 0  4    -          -        -             -             -         -        "
                         "does not require grad\n"
                         "  weight   4    [1,1]      [0,0]    6.0000000     0.0000000     6.0e+00   1.0e+00  FAIL  "
                         "hint: backward not multiplied by grad_output\n"));
    p.bug = FAILING;
    in[0] = tg_ones_on(TG_SHAPE(3, 2), TG_F64, HERE);
    options.report = report = tmpfile();
    CHECK_FAILS(tg_gradcheck_ex(product, in, 2, &p, &options), "tg_matmul: ");
    CHECK(strstr(text_of(report), "  weight   4    -          -        -             -             -         -        "
                                  "FAIL  hint: tg_matmul: "));
    CHECK(strstr(printed, "  input 0  6    -          -        -             -             -         -        does"));
    shift = FAILED;
    options.report = report = tmpfile();
    in[0] = random_f64(TG_SHAPE(4, 3)), in[1] = random_f64(TG_SHAPE(3));
    CHECK_FAILS(tg_gradcheck_ex(shifted, in, 2, NULL, &options), "tg_matmul: ");
    CHECK(strstr(text_of(report), "  ok\n") &&
          strstr(printed, "FAIL  hint: never written, since an op of backward has failed: see the error\n"));
    shift = UNSUMMED;
    options.report = report = tmpfile();
    CHECK_FAILS(tg_gradcheck_ex(shifted, in, 2, NULL, &options), "at index 1");
    CHECK(strstr(text_of(report), "  input 1  3    -          -        -             -             -         -        "
                                  "FAIL  hint: tg_") && strstr(printed, "a gradient of shape [4, 3] at index 1"));
    /* with an error that is older than the check, the message is that of the older one */
    options.report = report = tmpfile();
    (void)tg_sum(NULL);
    CHECK(!tg_gradcheck_ex(shifted, in, 2, NULL, &options));
    CHECK(strstr(text_of(report), "FAIL  hint: the check failed\n") && strstr(tg_error_message(), "tg_sum"));
    tg_clear_error();
    in[0] = random_f64(TG_SHAPE(0, 2)), in[1] = random_f64(TG_SHAPE(2, 2));
    tg_set_name(in[1], "weight");
    p.bug = RIGHT;
    options.report = report = tmpfile();
    CHECK(tg_gradcheck_ex(product, in, 2, &p, &options));
    CHECK(strstr(text_of(report),
                 "  input 0  0    -          -        -             -             -         -        ok\n"));
    options.report = report = tmpfile();
    in[0] = random_f64(TG_SHAPE(2)); /* a function that fails in its second call */
    CHECK_FAILS(tg_gradcheck_ex(growing, in, 1, &calls, &options), "returned shape");
    CHECK(strstr(text_of(report), "  input 0  2    -          -             -             -         -        "
                                  "FAIL  hint: tg_gradcheck_ex: the function returned shape [1], and then [2]\n"));
    options.report = report = tmpfile();
    options.eps = 0;
    CHECK(
        tg_gradcheck_ex(cube, in + 1, 1, NULL, &options)); /* a scalar function has no column for the output's index */
    CHECK(
        strstr(text_of(report), "  param   n    worst idx  analytic      numeric       abs       rel      verdict\n"));
}

TEST(gradcheck_refuses)
{
    tg_tensor *x = random_f64(TG_SHAPE(3)), *plain = tg_ones(TG_SHAPE(3)), *single, *zero;
    tg_gradcheck_options options;
    int calls = 0;
    CHECK_FAILS(tg_gradcheck(cube, &plain, 1, NULL), "gradcheck expects at least one input tensor to require gradient, "
                                                     "but none of the them have requires_grad=True.");
    CHECK_FAILS(tg_gradgradcheck(cube, &plain, 1, NULL), "gradgradcheck: gradcheck expects at least one input tensor");
    zero = tg_expand(x, TG_SHAPE(2, 3));
    CHECK_FAILS(tg_gradcheck(cube, &zero, 1, NULL), "The 0th input has a dimension with stride 0.");
    CHECK_FAILS(tg_gradcheck(compared, &x, 1, NULL), "only floating point has gradients");
    CHECK_FAILS(tg_gradgradcheck(compared, &x, 1, NULL), "only floating point has gradients");
    CHECK_FAILS(tg_gradcheck(detached, &x, 1, NULL), "Numerical gradient for function expected to be zero");
    CHECK_FAILS(tg_gradgradcheck(detached, &x, 1, NULL), "does not require grad");
    CHECK_FAILS(tg_gradcheck(nothing, &x, 1, NULL), "returned NULL");
    CHECK_FAILS(tg_gradcheck(unended, &x, 1, NULL), "left a scope open");
    CHECK_FAILS(tg_gradcheck(growing, &x, 1, &calls), "returned shape");
    /* another function in each call */
    CHECK_FAILS(tg_gradcheck(noisy, &x, 1, &calls), "Jacobian mismatch");
    CHECK_FAILS(tg_gradcheck(NULL, &x, 1, NULL), "argument fn is NULL");
    CHECK_FAILS(tg_gradcheck(cube, NULL, 1, NULL), "argument inputs is NULL");
    memset(&options, 0, sizeof options);
    options.eps = -1;
    CHECK_FAILS(tg_gradcheck_ex(cube, &x, 1, NULL, &options), "must be positive");
    tg_set(tg_detach(x), TG_INDEX(1), 0);
    CHECK_FAILS(tg_gradcheck(rectified, &x, 1, NULL), "kink suspected");
    tg_set(tg_detach(x), TG_INDEX(1), -1);
    CHECK_FAILS(tg_gradcheck(rooted, &x, 1, NULL), "not finite here");
    single = leaf_of(TG_F32, "[0.3, 0.7, 1.9]");
    warnings = 0, warned[0] = 0;
    tg_set_error_handler(keep_warning, NULL);
    CHECK_FAILS(tg_gradcheck(cube, &single, 1, NULL), "float32 noise");
    CHECK(warnings == 1 && strstr(warned, "not a double precision") != NULL);
    options.eps = 1e-2, options.rtol = 1e-2;
    CHECK(tg_gradcheck_ex(cube, &single, 1, NULL, &options) && warnings == 2);
    tg_set_error_handler(NULL, NULL);
}

/* y = a x, and a gradient of 1: a ratio that is no size of anything here.  user: a */
static tg_status scaled_forward(tg_ctx *c, tg_tensor *const *in, tg_tensor **out)
{
    out[0] = tg_mul_scalar(in[0], *(const double *)tg_ctx_user(c));
    return tg_ok() ? TG_OK : tg_error_code();
}

static tg_status scaled_backward(tg_ctx *c, tg_tensor *const *g, tg_tensor **gin)
{
    (void)c;
    gin[0] = g[0];
    return TG_OK;
}

static tg_tensor *scaled(tg_tensor *const *in, int n, void *user)
{
    tg_tensor *y = NULL;
    tg_custom("scaled", scaled_forward, scaled_backward, user, in, n, &y, 1);
    return y;
}

TEST(gradcheck_names_a_ratio_that_is_no_size)
{
    tg_tensor *x = random_f64(TG_SHAPE(2, 3));
    double factors[] = {7, 0.4, 1};
    CHECK_FAILS(tg_gradcheck(scaled, &x, 1, &factors[0]), "1/7 of the numeric: a factor 7 was lost");
    CHECK_FAILS(tg_gradcheck(scaled, &x, 1, &factors[1]), "constant ratio: analytic is 2.5 times numeric");
    CHECK(tg_gradcheck(scaled, &x, 1, &factors[2]));
}

static bool scenario_check(void)
{
    tg_tensor *in[2];
    planted p = {TWICE, 0};
    in[0] = random_f64(TG_SHAPE(2, 3)), in[1] = random_f64(TG_SHAPE(3, 2));
    if (!in[0] || !in[1]) return false;
    if (!tg_set_requires_grad(in[1], false)) return false; /* whose gradient is wrong */
    if (tg_gradcheck(product, in, 2, &p)) return true;
    return tg_ok() && tg_set_requires_grad(in[1], true) && !tg_gradcheck(product, in, 2, &p);
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    harness_take_device();
    out_of_memory(scenario_check);
    RUN(gradcheck_passes);
    RUN(gradcheck_leaves_all_as_it_was);
    RUN(gradcheck_finds_planted_bugs);
    RUN(gradcheck_tells_a_factor_from_a_sum);
    RUN(gradcheck_has_no_false_alarms);
    RUN(gradcheck_report);
    RUN(gradcheck_refuses);
    RUN(gradcheck_names_a_ratio_that_is_no_size);
    check_rows("test_gradcheck");
    CHECK(tg_shutdown() == TG_OK);
    return harness_end();
}
