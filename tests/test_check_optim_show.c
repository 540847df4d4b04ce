/* What stands on top of the engine: gradcheck and its report, optimizers against PyTorch's trajectories, and prints,
 * to the letter. */
#define TENSORGRAD_IMPLEMENTATION
#include "harness.h"
#include <time.h>
#include <stdlib.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

/* What was written to a file, as text. */
static char text[65536];
static const char *text_of(FILE *file)
{
    size_t n;
    rewind(file);
    n = fread(text, 1, sizeof text - 1, file);
    text[n] = 0;
    fclose(file);
    return text;
}

/* The file's text, and on a difference both. */
static bool prints(FILE *file, const char *wanted)
{
    bool same = strcmp(text_of(file), wanted) == 0;
    if (!same) printf("---- wanted ----\n%s---- printed ----\n%s----\n", wanted, text);
    return same;
}

static bool prints_tensor(tg_tensor *t, const char *wanted)
{
    FILE *file = tmpfile();
    return CHECK(tg_fprint(file, t) == TG_OK) && prints(file, wanted);
}

/* The first n of four numbers, f32. */
static tg_tensor *floats(int n, double a, double b, double c, double d)
{
    double all[4];
    all[0] = a, all[1] = b, all[2] = c, all[3] = d;
    return tg_to_dtype(tg_from_f64(all, TG_SHAPE(n)), TG_F32);
}

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

/* y = x w with a backward that is wrong in the way that `user` names. */
enum { RIGHT, SIGN, TWICE, MISSING, NEVER, TRANSPOSED, OFFSET, UNSTEADY, ONCE, BUGS };
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
    case MISSING: gw = tg_matmul(tg_t(tg_narrow(x, 0, 0, 1)), tg_narrow(g[0], 0, 0, 1)); break;
    case NEVER: gw = NULL; break;
    case TRANSPOSED: gw = tg_reshape(tg_contiguous(tg_t(gw)), tg_shape_of(gw)); break;
    case OFFSET: gw = tg_add_scalar(gw, 1); break;
    case UNSTEADY: gw = tg_mul_scalar(gw, p->calls++ % 2 ? 1 : 1.0000001); break;
    case ONCE: gw = tg_matmul(tg_t(x), tg_detach(g[0])); break;
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

/* y = x + b, whose gradient of b [1, 3] is averaged over the rows of x where it should be summed. */
static tg_status shift_forward(tg_ctx *c, tg_tensor *const *in, tg_tensor **out)
{
    (void)c;
    out[0] = tg_add(in[0], in[1]);
    return tg_ok() ? TG_OK : tg_error_code();
}

static tg_status shift_backward(tg_ctx *c, tg_tensor *const *g, tg_tensor **gin)
{
    (void)c;
    gin[0] = g[0];
    gin[1] = tg_mean_dim(g[0], 0, true);
    return tg_ok() ? TG_OK : tg_error_code();
}

static tg_tensor *shifted(tg_tensor *const *in, int n, void *user)
{
    tg_tensor *y = NULL;
    (void)user;
    tg_custom("shift", shift_forward, shift_backward, NULL, in, n, &y, 1);
    return y ? tg_sum(tg_mul(y, y)) : NULL;
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
    in[1] = tg_set_requires_grad(tg_detach(in[1]), false); /* not checked, but taken */
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
        {MISSING, "Jacobian mismatch for output 0 with respect to input 1", "a term is missing or wrong"},
        {NEVER, "Jacobian mismatch for output 0 with respect to input 1", "gradient never written"},
        {TRANSPOSED, "Jacobian mismatch for output 0 with respect to input 1", "transposed"},
        {OFFSET, "backward not multiplied by grad_output", "g as a factor"},
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
        CHECK(tg_error_code() == TG_ERR_GRAPH);
        tg_clear_error();
        text_of(report);
        if (p.bug != OFFSET && p.bug != UNSTEADY) CHECK(strstr(text, "FAIL  hint: ") && strstr(text, bugs[i].hint));
    }
    harness.sample = NULL;
    p.bug = ONCE; /* right, but its own gradient is lost */
    CHECK(tg_gradcheck(product, in, 2, &p));
    CHECK_FAILS(tg_gradgradcheck(product, in, 2, &p), "gradgradcheck: Jacobian mismatch");
    in[0] = random_f64(TG_SHAPE(4, 3)), in[1] = random_f64(TG_SHAPE(1, 3));
    CHECK_FAILS(tg_gradcheck(shifted, in, 2, NULL), "1/4 of the numeric: not reduced over broadcast axes");
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
    FILE *report = tmpfile();
    in[0] = tg_set_requires_grad(tg_from_f64(a, TG_SHAPE(2, 2)), true);
    in[1] = tg_set_requires_grad(tg_from_f64(b, TG_SHAPE(2, 2)), true);
    tg_set_name(in[1], "weight");
    memset(&options, 0, sizeof options);
    options.report = report;
    options.name = "product";
    CHECK(tg_gradcheck_ex(product, in, 2, &p, &options));
    text_of(report);
    CHECK(strstr(text, "gradcheck product  f64  h=1e-06  centred\n"
                       "  param    n    worst idx  out idx  analytic      numeric       abs       rel      verdict\n"
                       "  input 0  4    ["));
    CHECK(strstr(text, "\n  weight   4    [") && !strstr(text, "FAIL"));
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
    in[0] = random_f64(TG_SHAPE(0, 2));
    p.bug = RIGHT;
    options.report = report = tmpfile();
    CHECK(tg_gradcheck_ex(product, in, 2, &p, &options));
    CHECK(strstr(text_of(report),
                 "  input 0  0    -          -        -             -             -         -        ok\n"));
    options.report = report = tmpfile();
    options.eps = 0;
    CHECK(
        tg_gradcheck_ex(cube, in + 1, 1, NULL, &options)); /* a scalar function has no column for the output's index */
    CHECK(
        strstr(text_of(report), "  param   n    worst idx  analytic      numeric       abs       rel      verdict\n"));
}

static int warnings;
static void count_warnings(tg_status code, const char *message, void *user)
{
    (void)user;
    warnings += code == TG_OK && strstr(message, "not a double precision") != NULL;
}

TEST(gradcheck_refuses)
{
    tg_tensor *x = random_f64(TG_SHAPE(3)), *plain = tg_ones(TG_SHAPE(3)), *f32, *zero;
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
    CHECK_FAILS(tg_gradcheck(NULL, &x, 1, NULL), "argument fn is NULL");
    CHECK_FAILS(tg_gradcheck(cube, NULL, 1, NULL), "argument inputs is NULL");
    memset(&options, 0, sizeof options);
    options.eps = -1;
    CHECK_FAILS(tg_gradcheck_ex(cube, &x, 1, NULL, &options), "must be positive");
    tg_set(tg_detach(x), TG_INDEX(1), 0);
    CHECK_FAILS(tg_gradcheck(rectified, &x, 1, NULL), "kink suspected");
    tg_set(tg_detach(x), TG_INDEX(1), -1);
    CHECK_FAILS(tg_gradcheck(rooted, &x, 1, NULL), "not finite here");
    f32 = tg_set_requires_grad(floats(3, 0.3, 0.7, 1.9, 0), true);
    tg_set_error_handler(count_warnings, NULL);
    CHECK_FAILS(tg_gradcheck(cube, &f32, 1, NULL), "float32 noise");
    CHECK(warnings == 1);
    options.eps = 1e-2, options.rtol = 1e-2;
    CHECK(tg_gradcheck_ex(cube, &f32, 1, NULL, &options) && warnings == 2);
    tg_set_error_handler(NULL, NULL);
}

/* ---- optimizers ---- */

static tg_tensor *param_f64(const double *values, tg_shape shape) { return tg_param(tg_from_f64(values, shape)); }

/* p = [1, 2], loss = sum p^2, lr 0.1, three steps */
TEST(optim_golden)
{
    static const struct {
        char kind;
        double momentum, dampening, weight_decay, p[2];
        bool nesterov;
    } golden[] = {
        {'s', 0, 0, 0, {.512, 1.024}, false},
        {'s', .9, 0, 0, {.062, .124}, false},
        {'s', .9, .5, 0, {.252, .504}, false},
        {'s', .9, 0, 0, {-.108352, -.216704}, true},
        {'s', 0, 0, .1, {.493039, .986078}, false},
        {'a', 0, 0, 0, {.7015862729460302, 1.700623392046465}, false},
        {'a', 0, 0, .1, {.7015862728718214, 1.7006233920100058}, false},
        {'w', 0, 0, .01, {.6989111831582322, 1.6949445143849768}, false},
        {'r', 0, 0, 0, {2.54431267743102e-12, .3096873875871078}, false},
        {'g', 0, 0, 0, {.7804561813568098, 1.775821515013063}, false},
    };
    const double start[2] = {1, 2};
    int i, step;
    for (i = 0; i < COUNT(golden); ++i) {
        const char kind = golden[i].kind;
        tg_tensor *p = param_f64(start, TG_SHAPE(2));
        tg_optim *o = kind == 's'   ? tg_sgd(&p, 1, .1)
                      : kind == 'a' ? tg_adam(&p, 1, .1)
                      : kind == 'w' ? tg_adamw(&p, 1, .1)
                      : kind == 'r' ? tg_rmsprop(&p, 1, .1)
                                    : tg_adagrad(&p, 1, .1);
        CHECK(o->weight_decay == (kind == 'w' ? .01 : 0));
        o->momentum = golden[i].momentum, o->dampening = golden[i].dampening;
        o->nesterov = golden[i].nesterov, o->weight_decay = golden[i].weight_decay;
        for (step = 0; step < 3; ++step) {
            TG_SCOPE;
            tg_optim_zero_grad(o);
            tg_backward(tg_sum(tg_mul(p, p)));
            CHECK(tg_step(o) == TG_OK);
        }
        CHECK(fabs(tg_get(p, TG_INDEX(0)) - golden[i].p[0]) < 1e-12 &&
              fabs(tg_get(p, TG_INDEX(1)) - golden[i].p[1]) < 1e-12);
        tg_optim_free(o);
        tg_release(p);
    }
}

/* Six steps from [1, 2, -0.5] with the gradient cos(3 p + step), by PyTorch 2.15 in f64. */
static const struct {
    const char *kind;
    double momentum, dampening, weight_decay, beta1, beta2, eps, alpha, lr_decay,
        accumulator; /* negative: the default */
    bool nesterov, amsgrad, centered;
    double p[3];
} trajectories[] = {
    {"sgd",
     0,
     0,
     0,
     -1,
     -1,
     -1,
     -1,
     0,
     0,
     false,
     false,
     false,
     {0.8775582987324891, 1.9415400959158429, -0.6400292892072107}},
    {"sgd",
     0.9,
     0,
     0,
     -1,
     -1,
     -1,
     -1,
     0,
     0,
     false,
     false,
     false,
     {1.1137841461290963, 0.8962762046992981, -1.6010953145718476}},
    {"sgd",
     0.9,
     0.5,
     0,
     -1,
     -1,
     -1,
     -1,
     0,
     0,
     false,
     false,
     false,
     {1.3324644579913412, 1.3860076692040828, -0.8863478738993479}},
    {"sgd",
     0.9,
     0,
     0.1,
     -1,
     -1,
     -1,
     -1,
     0,
     0,
     true,
     false,
     false,
     {0.2779529131466271, -0.3686932017734948, -1.9475321863603847}},
    {"adam",
     0,
     0,
     0,
     -1,
     -1,
     -1,
     -1,
     0,
     0,
     false,
     false,
     false,
     {1.1585749849625586, 1.6364997095771678, -0.992141294349223}},
    {"adam",
     0,
     0,
     0.1,
     0.8,
     0.95,
     1e-3,
     -1,
     0,
     0,
     false,
     false,
     false,
     {1.0475868324752733, 1.62246242756256, -0.9599665559068167}},
    {"adam",
     0,
     0,
     0,
     -1,
     0.5,
     -1,
     -1,
     0,
     0,
     false,
     true,
     false,
     {1.1577973402618673, 1.653432076983067, -0.9171737416015997}},
    {"adamw",
     0,
     0,
     -1,
     -1,
     -1,
     -1,
     -1,
     0,
     0,
     false,
     false,
     false,
     {1.1514040680577848, 1.6226128294840645, -0.98686816163848}},
    {"adamw",
     0,
     0,
     0.3,
     -1,
     0.5,
     -1,
     -1,
     0,
     0,
     false,
     true,
     false,
     {0.9655998485820783, 1.2609614692466076, -0.7730448447231297}},
    {"rmsprop",
     0,
     0,
     0,
     -1,
     -1,
     -1,
     -1,
     0,
     0,
     false,
     false,
     false,
     {-0.20616020392055462, -0.20251910237790005, -2.3392802996340323}},
    {"rmsprop",
     0,
     0,
     0.1,
     -1,
     -1,
     -1,
     0.9,
     0,
     0,
     false,
     false,
     true,
     {0.36720648059878125, 0.7312169643855186, -1.6274737242392168}},
    {"rmsprop",
     0.9,
     0,
     0,
     -1,
     -1,
     1e-3,
     -1,
     0,
     0,
     false,
     false,
     true,
     {3.738734599694869, -0.6830323692410502, -2.9225339740182004}},
    {"adagrad",
     0,
     0,
     0,
     -1,
     -1,
     -1,
     -1,
     0,
     0,
     false,
     false,
     false,
     {0.9883335867018618, 1.9140718930008773, -0.7936272983955647}},
    {"adagrad",
     0,
     0,
     0.1,
     -1,
     -1,
     -1,
     -1,
     0.1,
     0.5,
     false,
     false,
     false,
     {0.9855021269151077, 1.8876230903931703, -0.5822504383501833}},
};

static void set_number(double *field, double value)
{
    if (value >= 0) *field = value;
}

static tg_optim *optimizer_of(int i, tg_tensor *const *p, int n)
{
    const char *kind = trajectories[i].kind;
    tg_optim *o = strcmp(kind, "sgd") == 0       ? tg_sgd(p, n, 0.1)
                  : strcmp(kind, "adam") == 0    ? tg_adam(p, n, 0.1)
                  : strcmp(kind, "adamw") == 0   ? tg_adamw(p, n, 0.1)
                  : strcmp(kind, "rmsprop") == 0 ? tg_rmsprop(p, n, 0.1)
                                                 : tg_adagrad(p, n, 0.1);
    set_number(&o->momentum, trajectories[i].momentum);
    set_number(&o->dampening, trajectories[i].dampening);
    set_number(&o->weight_decay, trajectories[i].weight_decay);
    set_number(&o->beta1, trajectories[i].beta1);
    set_number(&o->beta2, trajectories[i].beta2);
    set_number(&o->eps, trajectories[i].eps);
    set_number(&o->alpha, trajectories[i].alpha);
    set_number(&o->lr_decay, trajectories[i].lr_decay);
    set_number(&o->initial_accumulator_value, trajectories[i].accumulator);
    o->nesterov = trajectories[i].nesterov, o->amsgrad = trajectories[i].amsgrad,
    o->centered = trajectories[i].centered;
    return o;
}

/* A step with the gradient cos(3 p + k). */
static void step_once(tg_optim *o, tg_tensor *p, int k)
{
    TG_SCOPE;
    CHECK(tg_set_grad(p, tg_cos(tg_add_scalar(tg_mul_scalar(tg_detach(p), 3), k))) == TG_OK);
    CHECK(tg_step(o) == TG_OK);
}

TEST(optim_trajectories)
{
    const double start[3] = {1, 2, -0.5}, strided[6] = {1, 9, 2, 9, -0.5, 9};
    int i, j, k;
    for (i = 0; i < COUNT(trajectories); ++i) {
        TG_SCOPE;
        tg_tensor *p[2], *wide = tg_from_f64(strided, TG_SHAPE(3, 2));
        tg_optim *o, *o2;
        p[0] = param_f64(start, TG_SHAPE(3));
        p[1] = tg_param(tg_select(wide, 1, 0)); /* not contiguous */
        o = optimizer_of(i, p, 1), o2 = optimizer_of(i, p + 1, 1);
        harness.sample = trajectories[i].kind;
        for (k = 0; k < 6; ++k) step_once(o, p[0], k), step_once(o2, p[1], k);
        for (j = 0; j < 3; ++j) {
            CHECK(fabs(tg_get(p[0], TG_INDEX(j)) - trajectories[i].p[j]) < 1e-12);
            CHECK(tg_get(p[1], TG_INDEX(j)) == tg_get(p[0], TG_INDEX(j)) && tg_get(wide, TG_INDEX(j, 1)) == 9);
        }
        tg_optim_free(o), tg_optim_free(o2);
        tg_release(p[0]), tg_release(p[1]);
    }
}

TEST(optim_narrow_dtypes)
{
    static const tg_dtype dtypes[] = {TG_F32, TG_BF16, TG_F16};
    static const double tolerance[] = {1e-5, 0.05, 0.01};
    const double start[3] = {1, 2, -0.5};
    int i, d, j, k;
    for (i = 0; i < COUNT(trajectories); ++i) {
        if (strcmp(trajectories[i].kind, "rmsprop") == 0) continue; /* divides by what f16 rounds away */
        for (d = 0; d < COUNT(dtypes); ++d) {
            TG_SCOPE;
            tg_tensor *p = tg_param(tg_to_dtype(tg_from_f64(start, TG_SHAPE(3)), dtypes[d]));
            tg_optim *o = optimizer_of(i, &p, 1);
            harness.sample = trajectories[i].kind;
            if (dtypes[d] == TG_F16) o->eps = 1e-4;
            for (k = 0; k < 6; ++k) step_once(o, p, k);
            for (j = 0; j < 3; ++j) CHECK_NEAR(tg_get(p, TG_INDEX(j)), trajectories[i].p[j], tolerance[d]);
            tg_optim_free(o);
            tg_release(p);
        }
    }
}

TEST(optim_manners)
{
    const double start[2] = {1, 2};
    tg_tensor *p[2], *w, *twice[2], *saved;
    tg_optim *o;
    tg_stats_info before;
    p[0] = param_f64(start, TG_SHAPE(2)), p[1] = param_f64(start, TG_SHAPE(2));
    o = tg_adam(p, 2, 0.1);
    before = tg_stats();
    CHECK(tg_step(o) == TG_OK && tg_stats().tensors == before.tensors); /* no gradient: skipped, and no state */
    tg_backward(tg_sum(p[0]));
    saved = tg_mul(p[0], p[0]);
    CHECK(tg_step(o) == TG_OK && tg_stats().bytes > before.bytes);
    CHECK(tg_get(p[0], TG_INDEX(0)) < 1 && tg_get(p[1], TG_INDEX(0)) == 1);
    ROW(2.47) { CHECK(tg_version_of(p[0]) == 1 && tg_version_of(p[1]) == 0); }
    CHECK_FAILS(tg_backward(tg_sum(saved)), "was last written by step");
    CHECK(tg_optim_zero_grad(o) == TG_OK && tg_grad(p[0]) == NULL);
    tg_backward(tg_sum(p[0])), tg_backward(tg_sum(p[1]));
    o->lr = -0.1;
    CHECK_FAILS(tg_step(o), "Invalid learning rate: -0.1");
    o->lr = 0.1, o->beta1 = 1;
    CHECK_FAILS(tg_step(o), "Invalid beta parameter at index 0: 1");
    CHECK(tg_version_of(p[1]) == 0);
    o->beta1 = 0.9, o->amsgrad = true; /* switched on later: its state begins then */
    CHECK(tg_step(o) == TG_OK);
    tg_release(p[1]); /* the optimizer keeps it */
    CHECK(tg_step(o) == TG_OK);
    tg_optim_free(o);
    tg_optim_free(NULL);

    CHECK_FAILS(tg_sgd(NULL, 0, 0.1), "optimizer got an empty parameter list");
    CHECK_FAILS(tg_sgd(p, 1, -0.1), "tg_sgd: Invalid learning rate: -0.1");
    CHECK_FAILS(tg_adamw(p, 1, NAN), "Invalid learning rate");
    w = tg_mul_scalar(p[0], 2);
    CHECK_FAILS(tg_sgd(&w, 1, 0.1), "can't optimize a non-leaf Tensor");
    w = NULL;
    CHECK_FAILS(tg_sgd(&w, 1, 0.1), "NULL");
    CHECK_FAILS(tg_step(NULL), "argument opt is NULL");
    CHECK_FAILS(tg_optim_zero_grad(NULL), "argument opt is NULL");
    o = tg_sgd(p, 1, 0.1);
    o->nesterov = true;
    CHECK_FAILS(tg_step(o), "Nesterov momentum requires a momentum and zero dampening");
    o->momentum = -1;
    CHECK_FAILS(tg_step(o), "Invalid momentum value: -1");
    o->momentum = 0, o->weight_decay = -1;
    CHECK_FAILS(tg_step(o), "Invalid weight_decay value: -1");
    tg_optim_free(o);
    o = tg_adam(p, 1, 0.1);
    o->beta2 = -1;
    CHECK_FAILS(tg_step(o), "Invalid beta parameter at index 1: -1");
    o->beta2 = 0.9, o->eps = -1;
    CHECK_FAILS(tg_step(o), "Invalid epsilon value: -1");
    tg_optim_free(o);
    o = tg_rmsprop(p, 1, 0.1);
    o->alpha = -1;
    CHECK_FAILS(tg_step(o), "Invalid alpha value: -1");
    tg_optim_free(o);
    o = tg_adagrad(p, 1, 0.1);
    o->lr_decay = -1;
    CHECK_FAILS(tg_step(o), "Invalid lr_decay value: -1");
    o->lr_decay = 0, o->initial_accumulator_value = -1;
    CHECK_FAILS(tg_step(o), "Invalid initial_accumulator_value value: -1");
    tg_optim_free(o);
    w = tg_set_requires_grad(tg_expand(tg_zeros(TG_SHAPE(1)), TG_SHAPE(3)), true);
    tg_set_grad(w, tg_ones(TG_SHAPE(3)));
    o = tg_sgd(&w, 1, 0.1);
    CHECK_FAILS(tg_step(o), "refers to a single memory");
    tg_optim_free(o);
    twice[0] = twice[1] = p[0]; /* a warning only: moved twice */
    o = tg_sgd(twice, 2, 0.25);
    tg_set(tg_detach(p[0]), TG_INDEX(0), 1);
    tg_set_grad(p[0], tg_ones_like(p[0]));
    CHECK(tg_step(o) == TG_OK && tg_get(p[0], TG_INDEX(0)) == 0.5);
    tg_optim_free(o);
    tg_release(p[0]);
}

static int duplicate_warnings;
static void count_duplicates(tg_status code, const char *message, void *user)
{
    (void)user;
    duplicate_warnings += code == TG_OK && strstr(message, "duplicate parameters");
}

/* One tensor twice among many is found, and an optimizer of many takes no longer than the making of the tensors. */
TEST(optim_of_many)
{
    enum { MANY = 60000 };
    tg_tensor **p = (tg_tensor **)malloc(sizeof *p * MANY), *last;
    clock_t begun = clock(), made, taken;
    tg_optim *o;
    int i;
    for (i = 0; p && i < MANY; ++i) p[i] = tg_param(tg_zeros(TG_SHAPE(1)));
    made = clock() - begun, begun = clock();
    tg_set_error_handler(count_duplicates, NULL);
    o = tg_adam(p, MANY, 0.1);
    taken = clock() - begun;
    CHECK(o != NULL && duplicate_warnings == 0);
    if (!CHECK(taken < 5 * made)) printf("    %ld clocks, the tensors %ld\n", (long)taken, (long)made);
    tg_optim_free(o);
    last = p[MANY - 1], p[MANY - 1] = p[17];
    o = tg_adam(p, MANY, 0.1);
    CHECK(o != NULL && duplicate_warnings == 1);
    tg_optim_free(o);
    p[MANY - 1] = last;
    for (i = 1; i <= 9; ++i) { /* small tables */
        o = tg_sgd(p, i, 0.1);
        CHECK(duplicate_warnings == i);
        tg_optim_free(o);
        last = p[i], p[i] = p[i / 2];
        o = tg_sgd(p, i + 1, 0.1);
        CHECK(duplicate_warnings == i + 1);
        tg_optim_free(o);
        p[i] = last;
    }
    tg_set_error_handler(NULL, NULL);
    for (i = 0; i < MANY; ++i) tg_release(p[i]);
    free(p);
}

TEST(clipping)
{
    const double g0[2] = {3, 0}, g1[2] = {0, 4};
    tg_tensor *p[3], *norm;
    int i;
    for (i = 0; i < 3; ++i) p[i] = tg_set_requires_grad(tg_zeros_on(TG_SHAPE(2), TG_F64, HERE), true);
    CHECK_NEAR(tg_item(tg_clip_grad_norm(p, 3, 1)), 0, 0);
    tg_set_grad(p[0], tg_from_f64(g0, TG_SHAPE(2))), tg_set_grad(p[1], tg_from_f64(g1, TG_SHAPE(2)));
    norm = tg_clip_grad_norm(p, 3, 10); /* large enough: multiplied by 1 */
    CHECK(tg_ndim(norm) == 0 && tg_item(norm) == 5 && tg_get(tg_grad(p[1]), TG_INDEX(1)) == 4 &&
          !tg_requires_grad(norm));
    CHECK_NEAR(tg_item(tg_clip_grad_norm(p, 3, 1)), 5, 0);
    CHECK_NEAR(tg_get(tg_grad(p[0]), TG_INDEX(0)), 3 * (1 / (5 + 1e-6)), 1e-15);
    CHECK_NEAR(tg_get(tg_grad(p[1]), TG_INDEX(1)), 4 * (1 / (5 + 1e-6)), 1e-15);
    CHECK_NEAR(tg_item(tg_clip_grad_norm_ex(p, 3, 100, (double)INFINITY, true)), 4 * (1 / (5 + 1e-6)), 1e-15);
    CHECK_NEAR(tg_item(tg_clip_grad_norm_ex(p, 3, 100, 1, true)), 7 * (1 / (5 + 1e-6)), 1e-15);
    CHECK(tg_clip_grad_value(p, 3, 0.5) == TG_OK && tg_get(tg_grad(p[1]), TG_INDEX(1)) == 0.5);
    CHECK_FAILS(tg_clip_grad_value(p, 3, -1), "must not be negative");
    tg_set(tg_grad(p[0]), TG_INDEX(1), NAN);
    CHECK_FAILS(tg_clip_grad_norm_ex(p, 3, 1, 2, true),
                "The total norm of order 2 for gradients from `parameters` is non-finite");
    CHECK(tg_get(tg_grad(p[1]), TG_INDEX(1)) == 0.5);
    CHECK(isnan(tg_item(tg_clip_grad_norm(p, 3, 1))) && isnan(tg_get(tg_grad(p[1]), TG_INDEX(1)))); /* it spreads */
    CHECK_FAILS(tg_clip_grad_norm(NULL, 2, 1), "argument params is NULL");
}

TEST(schedules)
{
    CHECK_NEAR(tg_lr_cosine(0, 4, 100, 1, 0.1), 0.2, 1e-15);
    CHECK_NEAR(tg_lr_cosine(3, 4, 100, 1, 0.1), 0.8, 1e-15);
    CHECK_NEAR(tg_lr_cosine(4, 4, 100, 1, 0.1), 1, 1e-15);
    CHECK_NEAR(tg_lr_cosine(52, 4, 100, 1, 0.1), 0.55, 1e-15);
    CHECK_NEAR(tg_lr_cosine(100, 4, 100, 1, 0.1), 0.1, 1e-15);
    CHECK_NEAR(tg_lr_cosine(1000, 4, 100, 1, 0.1), 0.1, 1e-15);
    CHECK_NEAR(tg_lr_cosine(0, 0, 0, 1, 0.1), 0.1, 1e-15);
    CHECK_NEAR(tg_lr_linear(0, 0, 10, 1, 0), 1, 1e-15);
    CHECK_NEAR(tg_lr_linear(5, 0, 10, 1, 0), 0.5, 1e-15);
    CHECK_NEAR(tg_lr_linear(10, 0, 10, 1, 0.25), 0.25, 1e-15);
    CHECK_NEAR(tg_lr_step(29, 10, 1, 0.5), 0.25, 1e-15);
    CHECK_NEAR(tg_lr_step(30, 10, 1, 0.5), 0.125, 1e-15);
    CHECK_NEAR(tg_lr_exponential(3, 2, 0.5), 0.25, 1e-15);
}

/* ---- prints: what PyTorch 2.15 prints, but for the names of dtypes ---- */

/* 0, 1, 2, ... in a shape. */
static tg_tensor *counted(tg_dtype dtype, tg_shape shape)
{
    double n = 1;
    int i;
    for (i = 0; i < shape.ndim; ++i) n *= (double)shape.dim[i];
    return tg_reshape(tg_arange_on(0, n, 1, dtype, HERE), shape);
}

TEST(print_numbers)
{
    CHECK(prints_tensor(tg_reshape(floats(4, 1, 2, 3, 4), TG_SHAPE(2, 2)), "tensor([[1., 2.],\n        [3., 4.]])\n"));
    CHECK(prints_tensor(tg_reshape(floats(4, 1, 2.5, 3, 4), TG_SHAPE(2, 2)),
                        "tensor([[1.0000, 2.5000],\n        [3.0000, 4.0000]])\n"));
    CHECK(prints_tensor(tg_scalar(3.5), "tensor(3.5000)\n"));
    CHECK(prints_tensor(floats(3, -1.25, 2, 1000, 0), "tensor([  -1.2500,    2.0000, 1000.0000])\n"));
    CHECK(prints_tensor(floats(3, 1e-5, 1, -2000, 0), "tensor([ 1.0000e-05,  1.0000e+00, -2.0000e+03])\n"));
    CHECK(prints_tensor(floats(2, 1e9, 1, 0, 0), "tensor([1.0000e+09, 1.0000e+00])\n"));
    CHECK(prints_tensor(floats(4, 1, (double)INFINITY, -(double)INFINITY, (double)NAN),
                        "tensor([1., inf, -inf, nan])\n"));
    CHECK(prints_tensor(floats(4, 0.5, (double)INFINITY, -(double)INFINITY, (double)NAN),
                        "tensor([0.5000,    inf,   -inf,    nan])\n"));
    CHECK(prints_tensor(tg_zeros(TG_SHAPE(3)), "tensor([0., 0., 0.])\n"));
    CHECK(prints_tensor(floats(2, (double)NAN, -(double)INFINITY, 0, 0), "tensor([nan, -inf])\n"));
    CHECK(prints_tensor(floats(2, -0.0, 0, 0, 0), "tensor([-0., 0.])\n"));
}

TEST(print_dtypes)
{
    const int64_t whole[4] = {1, -20, 300, 4}, big[1] = {9007199254740993};
    CHECK(prints_tensor(tg_from_i64(whole, TG_SHAPE(2, 2)), "tensor([[  1, -20],\n        [300,   4]])\n"));
    CHECK(prints_tensor(tg_from_i64(big, TG_SHAPE(1)), "tensor([9007199254740993])\n"));
    CHECK(prints_tensor(counted(TG_I32, TG_SHAPE(2)), "tensor([0, 1], dtype=i32)\n"));
    CHECK(prints_tensor(tg_full_on(TG_SHAPE(1), 255, TG_U8, HERE), "tensor([255], dtype=u8)\n"));
    CHECK(prints_tensor(tg_gt_scalar(floats(2, 1, -1, 0, 0), 0), "tensor([ True, False])\n"));
    CHECK(prints_tensor(tg_gt_scalar(tg_scalar(1), 0), "tensor(True)\n"));
    CHECK(prints_tensor(tg_full_on(TG_SHAPE(1), 1.5, TG_F64, HERE), "tensor([1.5000], dtype=f64)\n"));
    CHECK(prints_tensor(tg_to_dtype(floats(2, 1.5, 2, 0, 0), TG_BF16), "tensor([1.5000, 2.0000], dtype=bf16)\n"));
    CHECK(prints_tensor(tg_zeros(TG_SHAPE(0, 5)), "tensor([], size=(0, 5))\n"));
    CHECK(prints_tensor(tg_zeros(TG_SHAPE(0)), "tensor([])\n"));
    CHECK(prints_tensor(tg_zeros_on(TG_SHAPE(0), TG_I64, HERE), "tensor([], dtype=i64)\n"));
    CHECK(prints_tensor(tg_zeros_on(TG_SHAPE(2, 0, 3), TG_F64, HERE), "tensor([], size=(2, 0, 3), dtype=f64)\n"));
    tg_set_default_dtype(TG_F64);
    CHECK(prints_tensor(tg_scalar(1.5), "tensor(1.5000)\n"));
    tg_set_default_dtype(TG_F32);
    CHECK(prints_tensor(tg_full_on(TG_SCALAR, 1.5, TG_F64, HERE), "tensor(1.5000, dtype=f64)\n"));
}

TEST(print_shapes)
{
    tg_tensor *line = tg_div_scalar(counted(TG_F32, TG_SHAPE(30)), 4);
    CHECK(prints_tensor(counted(TG_F32, TG_SHAPE(2, 2, 2)), "tensor([[[0., 1.],\n"
                                                            "         [2., 3.]],\n"
                                                            "\n"
                                                            "        [[4., 5.],\n"
                                                            "         [6., 7.]]])\n"));
    CHECK(prints_tensor(tg_transpose(counted(TG_F32, TG_SHAPE(2, 2, 2)), 0, 2), "tensor([[[0., 4.],\n"
                                                                                "         [2., 6.]],\n"
                                                                                "\n"
                                                                                "        [[1., 5.],\n"
                                                                                "         [3., 7.]]])\n"));
    CHECK(prints_tensor(counted(TG_F32, TG_SHAPE(2, 1, 2, 1)), "tensor([[[[0.],\n"
                                                               "          [1.]]],\n"
                                                               "\n"
                                                               "\n"
                                                               "        [[[2.],\n"
                                                               "          [3.]]]])\n"));
    CHECK(prints_tensor(tg_to_dtype(line, TG_F64),
                        "tensor([0.0000, 0.2500, 0.5000, 0.7500, 1.0000, 1.2500, 1.5000, 1.7500, 2.0000,\n"
                        "        2.2500, 2.5000, 2.7500, 3.0000, 3.2500, 3.5000, 3.7500, 4.0000, 4.2500,\n"
                        "        4.5000, 4.7500, 5.0000, 5.2500, 5.5000, 5.7500, 6.0000, 6.2500, 6.5000,\n"
                        "        6.7500, 7.0000, 7.2500], dtype=f64)\n"));
    CHECK(prints_tensor(counted(TG_F32, TG_SHAPE(1001)), "tensor([   0.,    1.,    2.,  ...,  998.,  999., 1000.])\n"));
    CHECK(prints_tensor(counted(TG_I64, TG_SHAPE(7, 200)), "tensor([[   0,    1,    2,  ...,  197,  198,  199],\n"
                                                           "        [ 200,  201,  202,  ...,  397,  398,  399],\n"
                                                           "        [ 400,  401,  402,  ...,  597,  598,  599],\n"
                                                           "        ...,\n"
                                                           "        [ 800,  801,  802,  ...,  997,  998,  999],\n"
                                                           "        [1000, 1001, 1002,  ..., 1197, 1198, 1199],\n"
                                                           "        [1200, 1201, 1202,  ..., 1397, 1398, 1399]])\n"));
    CHECK(prints_tensor(counted(TG_F32, TG_SHAPE(3, 400)),
                        "tensor([[0.0000e+00, 1.0000e+00, 2.0000e+00,  ..., 3.9700e+02, 3.9800e+02,\n"
                        "         3.9900e+02],\n"
                        "        [4.0000e+02, 4.0100e+02, 4.0200e+02,  ..., 7.9700e+02, 7.9800e+02,\n"
                        "         7.9900e+02],\n"
                        "        [8.0000e+02, 8.0100e+02, 8.0200e+02,  ..., 1.1970e+03, 1.1980e+03,\n"
                        "         1.1990e+03]])\n"));
    CHECK(prints_tensor(tg_sub_scalar(counted(TG_I64, TG_SHAPE(8, 1, 200)), 10),
                        "tensor([[[ -10,   -9,   -8,  ...,  187,  188,  189]],\n"
                        "\n"
                        "        [[ 190,  191,  192,  ...,  387,  388,  389]],\n"
                        "\n"
                        "        [[ 390,  391,  392,  ...,  587,  588,  589]],\n"
                        "\n"
                        "        ...,\n"
                        "\n"
                        "        [[ 990,  991,  992,  ..., 1187, 1188, 1189]],\n"
                        "\n"
                        "        [[1190, 1191, 1192,  ..., 1387, 1388, 1389]],\n"
                        "\n"
                        "        [[1390, 1391, 1392,  ..., 1587, 1588, 1589]]])\n"));
}

static tg_status copy_forward(tg_ctx *c, tg_tensor *const *in, tg_tensor **out)
{
    (void)c;
    out[0] = tg_clone(in[0]);
    return out[0] ? TG_OK : tg_error_code();
}

static tg_status copy_backward(tg_ctx *c, tg_tensor *const *g, tg_tensor **gin)
{
    (void)c;
    gin[0] = g[0];
    return TG_OK;
}

TEST(print_history)
{
    tg_tensor *x = tg_set_requires_grad(tg_ones(TG_SHAPE(2)), true), *y = NULL, *many;
    FILE *file = tmpfile();
    ROW(1.119)
    {
        CHECK(prints_tensor(x, "tensor([1., 1.], requires_grad=True)\n"));
        CHECK(prints_tensor(tg_exp(x), "tensor([2.7183, 2.7183], grad_fn=<ExpBackward0>)\n"));
        CHECK(prints_tensor(tg_detach(x), "tensor([1., 1.])\n"));
    }
    CHECK(tg_custom("Copy", copy_forward, copy_backward, NULL, &x, 1, &y, 1) == TG_OK);
    CHECK(prints_tensor(y, "tensor([1., 1.], grad_fn=<CopyBackward>)\n"));
    many = tg_set_requires_grad(tg_div_scalar(counted(TG_F32, TG_SHAPE(12)), 8), true);
    CHECK(prints_tensor(tg_exp(many),
                        "tensor([1.0000, 1.1331, 1.2840, 1.4550, 1.6487, 1.8682, 2.1170, 2.3989, 2.7183,\n"
                        "        3.0802, 3.4903, 3.9551], grad_fn=<ExpBackward0>)\n"));
    many = tg_set_requires_grad(tg_to_dtype(tg_detach(many), TG_F64), true);
    CHECK(prints_tensor(tg_exp(tg_cat(&many, 1, 0)),
                        "tensor([1.0000, 1.1331, 1.2840, 1.4550, 1.6487, 1.8682, 2.1170, 2.3989, 2.7183,\n"
                        "        3.0802, 3.4903, 3.9551], dtype=f64, grad_fn=<ExpBackward0>)\n"));
    CHECK(prints_tensor(tg_gt_scalar(tg_exp(many), 2),
                        "tensor([False, False, False, False, False, False,  True,  True,  True,  True,\n"
                        "         True,  True])\n"));
    many = tg_narrow(many, 0, 0, 7);
    CHECK(prints_tensor(tg_logsigmoid(many), "tensor([-0.6931, -0.6326, -0.5759, -0.5231, -0.4741, -0.4287, -0.3869],\n"
                                             "       dtype=f64, grad_fn=<LogsigmoidBackward0>)\n"));
    CHECK_FAILS(tg_fprint(file, NULL), "argument t is NULL");
    CHECK_FAILS(tg_fprint(NULL, x), "argument file is NULL");
    CHECK_FAILS(tg_print(NULL), "argument t is NULL");
    fclose(file);
    file = fopen("/dev/full", "w");
    if (file) {
        setvbuf(file, NULL, _IONBF, 0);
        CHECK_FAILS(tg_fprint(file, x), "could not be written");
        CHECK_FAILS(tg_tape_print(file, x), "could not be written");
        CHECK_FAILS(tg_tape_dot(file, x), "could not be written");
        fclose(file);
    }
}

/* ---- the tape: on the CPU, which is in the text ---- */

static tg_tensor *named_leaf(const char *name, double value)
{
    tg_tensor *t = tg_set_requires_grad(tg_full_on(TG_SCALAR, value, TG_F64, TG_CPU), true);
    tg_set_name(t, name);
    return t;
}

/* L = (a*b + c) * f, of the lecture. */
TEST(tape_print)
{
    tg_tensor *a = named_leaf("a", 2), *b = named_leaf("b", -3), *c = named_leaf("c", 10), *f = named_leaf("f", -2);
    tg_tensor *e = tg_mul(a, b), *d = tg_add(e, c), *L = tg_mul(d, f), *m, *loss, *all[40];
    FILE *file = tmpfile();
    int i;
    tg_set_name(e, "e"), tg_set_name(d, "d"), tg_set_name(L, "L");
    tg_retain_grad(e), tg_retain_grad(d), tg_retain_grad(L);
    tg_backward_ex(&L, 1, NULL, TG_RETAIN_GRAPH);
    CHECK(tg_tape_print(file, L) == TG_OK);
    CHECK(prints(file, "tape: 4 leaves, 3 ops, 32 bytes saved for backward\n"
                       "  id  op     name  shape  dtype dev   in        data      grad   saved\n"
                       "   0  leaf   a     []     f64   cpu   -       2.0000    6.0000   -\n"
                       "   1  leaf   b     []     f64   cpu   -      -3.0000   -4.0000   -\n"
                       "   2  leaf   c     []     f64   cpu   -      10.0000   -2.0000   -\n"
                       "   3  leaf   f     []     f64   cpu   -      -2.0000    4.0000   -\n"
                       "   4  mul    e     []     f64   cpu   0 1    -6.0000   -2.0000   a b\n"
                       "   5  add    d     []     f64   cpu   4 2     4.0000   -2.0000   -\n"
                       "   6  mul    L     []     f64   cpu   5 3    -8.0000    1.0000   d f\n"));
    tg_set_default_device(TG_CPU);
    m = tg_set_requires_grad(tg_ones(TG_SHAPE(2, 3)), true);
    for (i = 0; i < 40; ++i) all[i] = m;
    file = tmpfile();
    CHECK(tg_tape_print(file, tg_cat(all, 40, 0)) == TG_OK); /* a long list is cut */
    CHECK(strstr(text_of(file), "0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 .."));
    loss = tg_sum(tg_exp(tg_mul(m, tg_full(TG_SHAPE(3), 2))));
    file = tmpfile();
    CHECK(tg_tape_print(file, loss) == TG_OK);
    CHECK(prints(file, "tape: 1 leaf, 3 ops, 36 bytes saved for backward\n"
                       "  id  op     name  shape   dtype dev   in        data      grad   saved\n"
                       "   0  leaf   -     [2, 3]  f32   cpu   -          ...         -   -\n"
                       "   1  mul    -     [2, 3]  f32   cpu   0 .        ...         -   .\n"
                       "   2  exp    -     [2, 3]  f32   cpu   1          ...         -   2\n"
                       "   3  sum    -     []      f32   cpu   2      44.3343         -   -\n"));
    tg_backward(loss);
    file = tmpfile();
    CHECK(tg_tape_print(file, loss) == TG_OK);
    CHECK(strstr(text_of(file), "   2  exp    -     [2, 3]  f32   cpu   1          ...         -   freed\n"));
    file = tmpfile();
    CHECK(tg_tape_print(file, a) == TG_OK); /* a leaf is its own tape */
    CHECK(prints(file, "tape: 1 leaf, 0 ops, 0 bytes saved for backward\n"
                       "  id  op     name  shape  dtype dev   in        data      grad   saved\n"
                       "   0  leaf   a     []     f64   cpu   -       2.0000    6.0000   -\n"));
    file = tmpfile();
    CHECK(tg_tape_print(file, tg_to(a, HERE)) == TG_OK);
    CHECK(strstr(text_of(file), tg_device_str(HERE)) && strstr(text, "2.0000    6.0000   -"));
}

/* A long chain beside a small graph: nothing recurses, and only what root reaches is shown. */
TEST(tape_deep)
{
    tg_tensor *x = named_leaf("x", 1), *y = x, *z;
    FILE *file = tmpfile();
    int i;
    for (i = 0; i < 200000; ++i) y = tg_neg(y);
    z = tg_exp(x);
    CHECK(tg_tape_print(file, z) == TG_OK);
    CHECK(strncmp(text_of(file), "tape: 1 leaf, 1 op, 8 bytes", 27) == 0);
    file = tmpfile();
    CHECK(tg_tape_print(file, y) == TG_OK);
    CHECK(strncmp(text_of(file), "tape: 1 leaf, 200000 ops, 0 bytes", 33) == 0);
    file = tmpfile();
    CHECK(tg_tape_dot(file, y) == TG_OK);
    CHECK(strstr(text_of(file), "... 199801 nodes hidden") && strstr(text, "hidden -> n"));
}

TEST(tape_dot)
{
    tg_tensor *a = named_leaf("a|b", 2), *y = tg_exp(tg_reshape(tg_to_dtype(tg_mul(a, a), TG_F32), TG_SHAPE(1)));
    FILE *file = tmpfile();
    CHECK(tg_tape_dot(file, y) == TG_OK);
    CHECK(prints(file, "digraph tape {\n"
                       "    rankdir=LR;\n"
                       "    node [shape=record, style=filled, fillcolor=white];\n"
                       "    n0 [fillcolor=lightblue, label=\"{ leaf a\\|b | [] f64 cpu | data 2.0000 | grad - }\"];\n"
                       "    n1 [fillcolor=white, label=\"{ mul | [] f64 cpu | data 4.0000 | grad - }\"];\n"
                       "    n2 [fillcolor=orange, label=\"{ to | [] f32 cpu | data 4.0000 | grad - }\"];\n"
                       "    n3 [fillcolor=palegreen, label=\"{ reshape | [1] f32 cpu | data 4.0000 | grad - }\"];\n"
                       "    n4 [fillcolor=white, label=\"{ exp | [1] f32 cpu | data 54.5981 | grad - }\"];\n"
                       "    n0 -> n1;\n"
                       "    n0 -> n1;\n"
                       "    n1 -> n2;\n"
                       "    n2 -> n3;\n"
                       "    n3 -> n4;\n"
                       "}\n"));
    file = tmpfile();
    CHECK_FAILS(tg_tape_dot(file, NULL), "argument root is NULL");
    CHECK_FAILS(tg_tape_print(NULL, y), "argument file is NULL");
    fclose(file);
}

/* ---- memory that cannot be had: an error, nothing lost, and the next try succeeds ---- */

static int64_t allowed; /* allocations until one fails: that one, or all from then on */
static bool fails_once;
static void *alloc_some(size_t bytes, void *user)
{
    const int64_t left = allowed--;
    (void)user;
    return left > 0 || (left < 0 && fails_once) ? malloc(bytes) : NULL;
}
static void free_some(void *p, size_t bytes, void *user)
{
    (void)bytes, (void)user;
    free(p);
}

static bool scenario_check(void)
{
    tg_tensor *in[2];
    planted p = {TWICE, 0};
    in[0] = random_f64(TG_SHAPE(2, 3)), in[1] = random_f64(TG_SHAPE(3, 2));
    if (!in[0] || !in[1]) return false;
    return tg_gradcheck(product, in, 1, &p) || (tg_ok() && !tg_gradcheck(product, in, 2, &p));
}

static bool scenario_step(void)
{
    tg_tensor *p = tg_set_requires_grad(tg_ones(TG_SHAPE(3, 2)), true), *wide = NULL;
    tg_optim *o = p ? tg_adam(&p, 1, 0.1) : NULL;
    bool ok = false;
    if (o) {
        o->amsgrad = true;
        wide = tg_ones(TG_SHAPE(2, 3));
        if (wide && tg_set_grad(p, tg_t(wide)) == TG_OK) ok = tg_clip_grad_norm(&p, 1, 1) && tg_step(o) == TG_OK;
        CHECK(ok || tg_get(p, TG_INDEX(0, 0)) == 1); /* a failed step has not moved the parameter */
    }
    tg_optim_free(o);
    return ok;
}

static bool scenario_show(void)
{
    tg_tensor *x = tg_set_requires_grad(tg_ones(TG_SHAPE(3)), true), *y = x ? tg_sum(tg_exp(x)) : NULL;
    FILE *file = tmpfile();
    bool ok = y && tg_print(NULL) != TG_OK;
    tg_clear_error();
    ok = ok && tg_fprint(file, y) == TG_OK && tg_tape_print(file, y) == TG_OK && tg_tape_dot(file, y) == TG_OK;
    fclose(file);
    return ok;
}

/* Before any test: the allocator changes while nothing is alive. */
static void out_of_memory(void)
{
    static bool (*const scenarios[])(void) = {scenario_check, scenario_step, scenario_show};
    const tg_allocator some = {alloc_some, free_some, NULL};
    int i, n;
    harness.test = "out_of_memory";
    for (i = 0; i < 2 * COUNT(scenarios); ++i) {
        bool done = false;
        fails_once = i % 2 == 1;
        allowed = 1000000;
        CHECK(tg_set_allocator(&some) == TG_OK);
        tg_set_cache_limit(0);
        for (n = 0; n < 2000 && !done; ++n) {
            tg_mark mark;
            tg_stats_info after;
            mark = tg_scope_begin();
            allowed = n;
            done = scenarios[i / 2]() && allowed >= 0;
            allowed = 1000000;
            tg_clear_error();
            tg_scope_end(mark);
            after = tg_stats();
            CHECK(after.tensors == 0 && after.nodes == 0 && after.bytes == 0 && after.saved == 0);
        }
        CHECK(done);
        tg_clear_error();
        tg_shutdown();
        tg_set_default_device(HERE);
    }
    CHECK(tg_set_allocator(NULL) == TG_OK);
}

/* ---- what only an unusual call reaches ---- */

/* y = 7 x, and a gradient of 1: a ratio that is no size of anything here. */
static tg_status sevenfold_forward(tg_ctx *c, tg_tensor *const *in, tg_tensor **out)
{
    (void)c;
    out[0] = tg_mul_scalar(in[0], 7);
    return tg_ok() ? TG_OK : tg_error_code();
}

static tg_status sevenfold_backward(tg_ctx *c, tg_tensor *const *g, tg_tensor **gin)
{
    (void)c;
    gin[0] = g[0];
    return TG_OK;
}

static tg_tensor *sevenfold(tg_tensor *const *in, int n, void *user)
{
    tg_tensor *y = NULL;
    (void)user;
    tg_custom("sevenfold", sevenfold_forward, sevenfold_backward, NULL, in, n, &y, 1);
    return y;
}

TEST(gradcheck_names_a_ratio_that_is_no_size)
{
    tg_tensor *x = random_f64(TG_SHAPE(2, 3));
    CHECK_FAILS(tg_gradcheck(sevenfold, &x, 1, NULL), "constant ratio: analytic is 0.1429 times numeric");
}

/* Two steps of PyTorch 2.15 in f32 on the sum of squares. */
TEST(rmsprop_in_f32)
{
    const float start[3] = {1, 2, 3};
    const double wanted[3] = {-3.0027536e-10, 0.5509867072, 1.443369627};
    tg_tensor *p = tg_set_requires_grad(tg_from_on(start, TG_SHAPE(3), TG_F32, HERE), true);
    tg_optim *o = tg_rmsprop(&p, 1, 0.1);
    int i;
    for (i = 0; i < 2; ++i) {
        tg_optim_zero_grad(o);
        CHECK(tg_backward(tg_sum(tg_mul(p, p))) == TG_OK && tg_step(o) == TG_OK);
    }
    for (i = 0; i < 3; ++i) CHECK_NEAR(tg_get(p, TG_INDEX(i)), wanted[i], 1e-6);
    tg_optim_free(o);
}

TEST(integers_are_not_optimized)
{
    tg_tensor *p = tg_zeros_on(TG_SHAPE(2), TG_I64, HERE);
    tg_optim *o = tg_sgd(&p, 1, 0.1);
    CHECK(o && tg_step(o) == TG_OK); /* without a gradient it is passed over */
    CHECK(tg_set_grad(p, tg_ones_on(TG_SHAPE(2), TG_I64, HERE)) == TG_OK);
    CHECK_FAILS(tg_step(o), "parameter 0 is i64: only floating point can be optimized");
    CHECK(tg_set_name(p, "counts") == TG_OK);
    CHECK_FAILS(tg_step(o), "parameter 0 counts is i64: only floating point can be optimized");
    CHECK(tg_get(p, TG_INDEX(0)) == 0);
    tg_optim_free(o);
}

/* PyTorch refuses it, too: several elements in one place cannot be scaled one by one. */
TEST(clipping_refuses_an_expanded_gradient)
{
    tg_tensor *p[2], *one = tg_ones_on(TG_SHAPE(1), TG_F64, HERE);
    int i;
    for (i = 0; i < 2; ++i) p[i] = tg_set_requires_grad(tg_zeros_on(TG_SHAPE(3), TG_F64, HERE), true);
    CHECK(tg_set_grad(p[0], tg_ones_on(TG_SHAPE(3), TG_F64, HERE)) == TG_OK);
    CHECK(tg_set_grad(p[1], tg_expand(one, TG_SHAPE(3))) == TG_OK);
    CHECK_FAILS(tg_clip_grad_norm(p, 2, 0.5), "the gradient of parameter 1 has several elements in one place");
    CHECK_FAILS(tg_clip_grad_value(p, 2, 0.5), "the gradient of parameter 1 has several elements in one place");
    CHECK(tg_get(tg_grad(p[0]), TG_INDEX(0)) == 1 && tg_item(one) == 1);
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    harness_take_device();
    out_of_memory();
    RUN(gradcheck_passes);
    RUN(gradcheck_leaves_all_as_it_was);
    RUN(gradcheck_finds_planted_bugs);
    RUN(gradcheck_has_no_false_alarms);
    RUN(gradcheck_report);
    RUN(gradcheck_refuses);
    RUN(optim_golden);
    RUN(optim_trajectories);
    RUN(optim_narrow_dtypes);
    RUN(optim_manners);
    RUN(optim_of_many);
    RUN(clipping);
    RUN(schedules);
    RUN(print_numbers);
    RUN(print_dtypes);
    RUN(print_shapes);
    RUN(print_history);
    RUN(tape_print);
    RUN(tape_deep);
    RUN(tape_dot);
    RUN(gradcheck_names_a_ratio_that_is_no_size);
    RUN(rmsprop_in_f32);
    RUN(integers_are_not_optimized);
    RUN(clipping_refuses_an_expanded_gradient);
    CHECK(tg_shutdown() == TG_OK);
    return harness_end();
}
