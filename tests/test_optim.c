/* Optimizers against trajectories of PyTorch, their options and errors, clipping of gradients, and schedules of the
 * learning rate. */
#define TENSORGRAD_IMPLEMENTATION
#include "tensorgrad.h"
#include "helpers.h"
#include <time.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

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
enum { NESTEROV = 1, AMSGRAD = 2, CENTERED = 4 };
static const struct {
    const char *kind;
    double momentum, dampening, weight_decay, beta1, beta2, eps, alpha, lr_decay, accumulator; /* -1: the default */
    int options;
    double p[3];
} trajectories[] = {
    /* clang-format off */
    {"sgd", 0, 0, 0, -1, -1, -1, -1, 0, 0, 0, {.8775582987324891, 1.9415400959158429, -.6400292892072107}},
    {"sgd", 0.9, 0, 0, -1, -1, -1, -1, 0, 0, 0, {1.1137841461290963, .8962762046992981, -1.6010953145718476}},
    {"sgd", 0.9, 0.5, 0, -1, -1, -1, -1, 0, 0, 0, {1.3324644579913412, 1.3860076692040828, -.8863478738993479}},
    {"sgd", 0.9, 0, 0.1, -1, -1, -1, -1, 0, 0, NESTEROV, {.2779529131466271, -.3686932017734948, -1.9475321863603847}},
    {"adam", 0, 0, 0, -1, -1, -1, -1, 0, 0, 0, {1.1585749849625586, 1.6364997095771678, -.992141294349223}},
    {"adam", 0, 0, 0.1, 0.8, 0.95, 1e-3, -1, 0, 0, 0, {1.0475868324752733, 1.62246242756256, -.9599665559068167}},
    {"adam", 0, 0, 0, -1, 0.5, -1, -1, 0, 0, AMSGRAD, {1.1577973402618673, 1.653432076983067, -.9171737416015997}},
    {"adamw", 0, 0, -1, -1, -1, -1, -1, 0, 0, 0, {1.1514040680577848, 1.6226128294840645, -.98686816163848}},
    {"adamw", 0, 0, 0.3, -1, 0.5, -1, -1, 0, 0, AMSGRAD, {.9655998485820783, 1.2609614692466076, -.7730448447231297}},
    {"rmsprop", 0, 0, 0, -1, -1, -1, -1, 0, 0, 0, {-.20616020392055462, -.20251910237790005, -2.3392802996340323}},
    {"rmsprop", 0, 0, 0.1, -1, -1, -1, 0.9, 0, 0, CENTERED, {.36720648059878125, .7312169643855186, -1.6274737242392168}},
    {"rmsprop", 0.9, 0, 0, -1, -1, 1e-3, -1, 0, 0, CENTERED, {3.738734599694869, -.6830323692410502, -2.9225339740182004}},
    {"adagrad", 0, 0, 0, -1, -1, -1, -1, 0, 0, 0, {.9883335867018618, 1.9140718930008773, -.7936272983955647}},
    {"adagrad", 0, 0, 0.1, -1, -1, -1, -1, 0.1, 0.5, 0, {.9855021269151077, 1.8876230903931703, -.5822504383501833}},
    /* clang-format on */
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
    o->nesterov = (trajectories[i].options & NESTEROV) != 0;
    o->amsgrad = (trajectories[i].options & AMSGRAD) != 0;
    o->centered = (trajectories[i].options & CENTERED) != 0;
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
        if (strcmp(trajectories[i].kind, "rmsprop") == 0) continue; /* divides by a number that f16 rounds to 0 */
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

TEST(optim_options_and_errors)
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
    o->beta1 = 0.9, o->amsgrad = true; /* an option that is switched on later: its state begins with the next step */
    CHECK(tg_step(o) == TG_OK);
    tg_release(p[1]); /* the optimizer holds a reference */
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
    twice[0] = twice[1] = p[0]; /* only a warning: the parameter is updated twice */
    o = tg_sgd(twice, 2, 0.25);
    tg_set(tg_detach(p[0]), TG_INDEX(0), 1);
    tg_set_grad(p[0], tg_ones_like(p[0]));
    CHECK(tg_step(o) == TG_OK && tg_get(p[0], TG_INDEX(0)) == 0.5);
    tg_optim_free(o);
    tg_release(p[0]);
}

/* A tensor that is listed twice among many is found, and making the optimizer takes no longer than making the
 * tensors. */
TEST(optim_of_many)
{
    enum { MANY = 60000 };
    tg_tensor **p = (tg_tensor **)malloc(sizeof *p * MANY), *last;
    clock_t begun = clock(), made, taken;
    tg_optim *o;
    int i;
    for (i = 0; p && i < MANY; ++i) p[i] = tg_param(tg_zeros(TG_SHAPE(1)));
    made = clock() - begun, begun = clock();
    warnings = 0, warned[0] = 0;
    tg_set_error_handler(keep_warning, NULL);
    o = tg_adam(p, MANY, 0.1);
    taken = clock() - begun;
    CHECK(o != NULL && warnings == 0);
    if (!CHECK(taken < 5 * made)) printf("    %ld clocks, the tensors %ld\n", (long)taken, (long)made);
    tg_optim_free(o);
    last = p[MANY - 1], p[MANY - 1] = p[17];
    o = tg_adam(p, MANY, 0.1);
    CHECK(o != NULL && warnings == 1 && strstr(warned, "duplicate parameters") != NULL);
    tg_optim_free(o);
    p[MANY - 1] = last;
    for (i = 1; i <= 9; ++i) { /* small tables */
        o = tg_sgd(p, i, 0.1);
        CHECK(warnings == i);
        tg_optim_free(o);
        last = p[i], p[i] = p[i / 2];
        o = tg_sgd(p, i + 1, 0.1);
        CHECK(warnings == i + 1);
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
    CHECK(o && tg_step(o) == TG_OK); /* a parameter without a gradient is skipped */
    CHECK(tg_set_grad(p, tg_ones_on(TG_SHAPE(2), TG_I64, HERE)) == TG_OK);
    CHECK_FAILS(tg_step(o), "parameter 0 is i64: only floating point can be optimized");
    CHECK(tg_set_name(p, "counts") == TG_OK);
    CHECK_FAILS(tg_step(o), "parameter 0 counts is i64: only floating point can be optimized");
    CHECK(tg_get(p, TG_INDEX(0)) == 0);
    tg_optim_free(o);
}

/* As in PyTorch: several elements that share one place in memory cannot be scaled one by one. */
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

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    harness_take_device();
    out_of_memory(scenario_step);
    RUN(optim_golden);
    RUN(optim_trajectories);
    RUN(optim_narrow_dtypes);
    RUN(optim_options_and_errors);
    RUN(optim_of_many);
    RUN(clipping);
    RUN(schedules);
    RUN(rmsprop_in_f32);
    RUN(integers_are_not_optimized);
    RUN(clipping_refuses_an_expanded_gradient);
    CHECK(tg_shutdown() == TG_OK);
    return harness_end();
}
