/* Optimizers against trajectories of PyTorch, their options and errors, clipping of gradients, and schedules of the
 * learning rate. */
#include "tensorgrad.h"
#include "helpers.h"
#include "inside.h"
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
    /* -1: the default; alpha is adadelta's rho */
    double momentum, dampening, weight_decay, beta1, beta2, eps, alpha, lr_decay, accumulator;
    int options;
    double p[3];
} trajectories[] = {
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
    {"adadelta", 0, 0, 0, -1, -1, -1, -1, 0, 0, 0, {.999877889907345, 2.0001069175757764, -.5003580218451578}},
    {"adadelta", 0, 0, 0.1, -1, -1, 1e-3, 0.5, 0, 0, 0, {.9924666338532849, 1.9971849142908202, -.5009218776331803}},
};

/* The optimizers, with the options under which their state goes through files. */
static const struct {
    const char *name;
    tg_optim *(*make)(tg_tensor *const *params, int n, double lr);
    double momentum, dampening;
    bool centered, closure, strong_wolfe;
} optimizers[] = {
    {"sgd", tg_sgd, 0, 0, false, false, false},
    {"sgd", tg_sgd, 0.9, 0.25, false, false, false},
    {"adam", tg_adam, 0, 0, false, false, false},
    {"adamw", tg_adamw, 0, 0, false, false, false},
    {"rmsprop", tg_rmsprop, 0.9, 0, true, false, false},
    {"adagrad", tg_adagrad, 0, 0, false, false, false},
    {"adadelta", tg_adadelta, 0, 0, false, false, false},
    {"lbfgs", tg_lbfgs, 0, 0, false, true, false},
    {"lbfgs", tg_lbfgs, 0, 0, false, true, true},
};
enum { KINDS = COUNT(optimizers) };

static int kind_of(const char *name)
{
    int kind = 0;
    while (strcmp(name, optimizers[kind].name) != 0) ++kind;
    return kind;
}

static void set_number(double *field, double value)
{
    if (value >= 0) *field = value;
}

static tg_optim *optimizer_of(int i, tg_tensor *const *p, int n)
{
    const char *kind = trajectories[i].kind;
    tg_optim *o = optimizers[kind_of(kind)].make(p, n, 0.1);
    set_number(&o->momentum, trajectories[i].momentum);
    set_number(&o->dampening, trajectories[i].dampening);
    set_number(&o->weight_decay, trajectories[i].weight_decay);
    set_number(&o->beta1, trajectories[i].beta1);
    set_number(&o->beta2, trajectories[i].beta2);
    set_number(&o->eps, trajectories[i].eps);
    set_number(strcmp(kind, "adadelta") == 0 ? &o->rho : &o->alpha, trajectories[i].alpha);
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
    CHECK(tg_grad(p[0]) != NULL && tg_optim_zero_grad(o) == TG_OK && tg_grad(p[0]) == NULL);
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
    o = tg_adadelta(p, 1, 1);
    CHECK(o->rho == 0.9 && o->eps == 1e-6);
    o->rho = 1.5;
    CHECK_FAILS(tg_step(o), "Invalid rho value: 1.5");
    o->rho = -1;
    CHECK_FAILS(tg_step(o), "Invalid rho value: -1");
    tg_optim_free(o);
    twice[0] = twice[1] = p[0]; /* only a warning: the parameter is updated twice */
    o = tg_sgd(twice, 2, 0.25);
    tg_set(tg_detach(p[0]), TG_INDEX(0), 1);
    tg_set_grad(p[0], tg_ones_like(p[0]));
    CHECK(tg_step(o) == TG_OK && tg_get(p[0], TG_INDEX(0)) == 0.5);
    tg_optim_free(o);
    tg_release(p[0]);
}

/* ---- parameter groups ---- */

/* Thirty steps with the gradient cos(3 p + step) and the learning rate 0.1 / (1 + step), by PyTorch 2.15 in f64: one
 * parameter as the optimizer has it, one with half the rate and no weight decay, one with a fifth of the rate and a
 * weight decay of 0.3. */
static const struct {
    const char *kind;
    double p[3][3];
} grouped[] = {
    {"adamw",
     {{1.144123563869857, 1.7931968117730095, -0.7120061472597766},
      {1.079268277949334, 1.9059987666183997, -0.6034691384559372},
      {1.0089645902448, 1.916379559841526, -0.5278555958638089}}},
    {"sgd",
     {{0.9912921306955637, 1.365445052606625, -0.6288135186703492},
      {1.098618872110989, 1.8575212957648775, -0.6074801867687805},
      {0.9415882996829262, 1.752625827232698, -0.4887495247281507}}},
    {"adagrad",
     {{1.0928367333090407, 1.8770883960232096, -0.6662620393397888},
      {1.0497031066431048, 1.941378760243007, -0.5804745051513087},
      {1.0146260716754474, 1.9699833263691275, -0.4890862417385033}}},
    {"adadelta",
     {{1.0002007765175664, 1.9994868838898903, -0.5005341812661642},
      {1.0001535015181078, 1.9998325326077964, -0.5002973695326373},
      {0.999994554096167, 1.9998490904187671, -0.4999568017044459}}},
    {"adam",
     {{1.1094763960115137, 1.7531150901664454, -0.6931306038431814},
      {1.0792680455193817, 1.9059989369825205, -0.6034689998692914},
      {1.012912600683885, 1.9372791846227035, -0.4891974772902865}}},
};

static tg_optim *grouped_optimizer(const char *kind, tg_tensor *const *p)
{
    tg_optim *o = strcmp(kind, "adamw") == 0     ? tg_adamw(p, 1, 0.1)
                  : strcmp(kind, "sgd") == 0     ? tg_sgd(p, 1, 0.1)
                  : strcmp(kind, "adagrad") == 0 ? tg_adagrad(p, 1, 0.1)
                  : strcmp(kind, "adam") == 0    ? tg_adam(p, 1, 0.1)
                                                 : tg_adadelta(p, 1, 0.1);
    o->amsgrad = strcmp(kind, "adam") == 0;
    if (strcmp(kind, "sgd") == 0) o->momentum = 0.9;
    if (strcmp(kind, "adagrad") == 0) o->lr_decay = 0.1;
    else if (strcmp(kind, "adamw") != 0) o->weight_decay = 0.1;
    return o;
}

TEST(groups_follow_pytorch)
{
    const double start[3] = {1, 2, -0.5};
    int i, j, k;
    for (i = 0; i < COUNT(grouped); ++i) {
        tg_tensor *p[3];
        tg_optim *o;
        tg_optim_group *half, *none, *fifth;
        for (k = 0; k < 3; ++k) p[k] = param_f64(start, TG_SHAPE(3));
        o = grouped_optimizer(grouped[i].kind, p);
        harness.sample = grouped[i].kind;
        half = tg_optim_add_group(o, p + 1, 1), none = tg_optim_add_group(o, NULL, 0);
        fifth = tg_optim_add_group(o, p + 2, 1);
        CHECK(half && none && fifth && o->group == half && half->next == none && none->next == fifth && !fifth->next);
        CHECK(o->count == 3 && half->count == 1 && none->count == 0);
        CHECK(half->lr_scale == 1 && half->weight_decay == o->weight_decay);
        half->lr_scale = 0.5, half->weight_decay = 0;
        fifth->lr_scale = 0.2, fifth->weight_decay = 0.3;
        for (k = 0; k < 30; ++k) {
            TG_SCOPE;
            o->lr = 0.1 / (1 + k);
            for (j = 0; j < 3; ++j)
                tg_set_grad(p[j], tg_cos(tg_add_scalar(tg_mul_scalar(tg_detach(p[j]), 3), k)));
            CHECK(tg_step(o) == TG_OK);
        }
        for (k = 0; k < 3; ++k)
            for (j = 0; j < 3; ++j) CHECK_NEAR(tg_get(p[k], TG_INDEX(j)), grouped[i].p[k][j], 1e-12);
        tg_optim_free(o);
        for (k = 0; k < 3; ++k) tg_release(p[k]);
    }
}

TEST(group_errors)
{
    tg_tensor *p[3], *product;
    tg_optim *o;
    tg_optim_group *group;
    int i;
    for (i = 0; i < 3; ++i) p[i] = tg_set_requires_grad(tg_ones_on(TG_SHAPE(2), TG_F64, HERE), true);
    product = tg_mul(p[0], p[1]);
    tg_set_name(p[0], "weight");
    o = tg_sgd(p, 2, 0.5);
    CHECK_FAILS(tg_optim_add_group(NULL, p, 1), "tg_optim_add_group: argument opt is NULL");
    CHECK_FAILS(tg_optim_add_group(o, NULL, 1), "argument params is NULL");
    CHECK_FAILS(tg_optim_add_group(o, p, -1), "a group of -1 parameters");
    CHECK_FAILS(tg_optim_add_group(o, &product, 1), "can't optimize a non-leaf Tensor");
    CHECK_FAILS(tg_optim_add_group(o, p, 1), "appear in more than one parameter group: parameter 0 'weight' is");
    CHECK(o->count == 2 && !o->group); /* an error adds nothing */
    product = p[0], p[0] = p[2];
    CHECK_FAILS(tg_optim_add_group(o, p, 2), "some parameters appear in more than one parameter group: parameter 1 is");
    p[0] = product;
    warnings = 0, warned[0] = 0;
    tg_set_error_handler(keep_warning, NULL);
    p[1] = p[2];
    group = tg_optim_add_group(o, p + 1, 2); /* listed twice in one group: a warning, as ever */
    CHECK(group && o->count == 4 && warnings == 1 && strstr(warned, "duplicate parameters"));
    tg_set_error_handler(NULL, NULL);
    tg_set_grad(p[2], tg_ones_like(p[2]));
    group->lr_scale = -1;
    CHECK_FAILS(tg_step(o), "Invalid learning rate of a group: lr_scale -1");
    group->lr_scale = 0.25, group->weight_decay = -2;
    CHECK_FAILS(tg_step(o), "Invalid weight_decay value of a group: -2");
    group->weight_decay = 0;
    CHECK(tg_step(o) == TG_OK && tg_get(p[2], TG_INDEX(0)) == 0.75 && tg_get(p[0], TG_INDEX(0)) == 1);
    CHECK(tg_optim_zero_grad(o) == TG_OK && !tg_grad(p[2]));
    tg_optim_free(o);
}

/* A parameter [2] of ones, and backward of a loss whose gradient is 2 p. */
static tg_tensor *parameter_of_ones(void) { return tg_set_requires_grad(tg_ones_on(TG_SHAPE(2), TG_F64, HERE), true); }
static bool adds_gradient(tg_tensor *p) { return tg_backward(tg_sum(tg_mul(p, p))) == TG_OK; }
static bool steps_after_backward(tg_optim *o, tg_tensor *p) { return adds_gradient(p) && tg_step(o) == TG_OK; }
static tg_tensor *forgetful_closure(void *user)
{
    tg_tensor *p = *(tg_tensor **)user, *loss = tg_sum(tg_mul(p, p));
    return tg_backward(loss) == TG_OK ? loss : NULL;
}

/* A .grad that a step has used, to which backward has added since, is told when the next step uses it: once. */
TEST(forgotten_zero_grad)
{
    tg_tensor *p[2];
    tg_optim *o, *other;
    p[0] = parameter_of_ones(), p[1] = parameter_of_ones();
    o = tg_sgd(p, 2, 0.01);
    other = tg_adamw(p, 1, 0.01);
    warnings = 0, warned[0] = 0;
    tg_set_error_handler(keep_warning, NULL);
    CHECK(steps_after_backward(o, p[1]) && warnings == 0);
    CHECK(adds_gradient(p[1]) && warnings == 0); /* whether it is used again is not known yet */
    CHECK(tg_clip_grad_norm(p + 1, 1, 0.5) && tg_step(o) == TG_OK && warnings == 1);
    CHECK(strstr(warned, "warning: tg_step: the gradients still contain those that the step before has used") &&
          strstr(warned, "\n  hint: call tg_optim_zero_grad(opt) before each tg_backward, or after each tg_step"));
    CHECK(steps_after_backward(o, p[1]) && steps_after_backward(o, p[0]) && warnings == 1);
    tg_zero_grad(p, 2);
    CHECK(steps_after_backward(other, p[0]) && warnings == 1);
    CHECK(steps_after_backward(other, p[0]) && warnings == 2); /* each optimizer tells it */
    tg_set_error_handler(NULL, NULL);
    tg_optim_free(o), tg_optim_free(other);
}

/* The same where the sum is a new tensor, in closures, and with a scaler. */
TEST(forgotten_zero_grad_in_other_ways)
{
    tg_tensor *p = parameter_of_ones(), *loss;
    tg_optim *o = tg_sgd(&p, 1, 0.01), *closed = tg_sgd(&p, 1, 0.01), *l = tg_lbfgs(&p, 1, 0.1);
    tg_grad_scaler scaler = TG_GRAD_SCALER;
    scaler.scale = 4;
    warnings = 0, warned[0] = 0;
    tg_set_error_handler(keep_warning, NULL);
    loss = tg_sum(tg_mul(p, p));
    CHECK(tg_backward_ex(&loss, 1, NULL, TG_CREATE_GRAPH) == TG_OK && tg_step(o) == TG_OK);
    loss = tg_sum(tg_mul(p, p));
    CHECK(tg_backward_ex(&loss, 1, NULL, TG_CREATE_GRAPH) == TG_OK && warnings == 0);
    CHECK(tg_step(o) == TG_OK && warnings == 1);
    tg_set_grad(p, NULL);
    CHECK(tg_step_closure(closed, forgetful_closure, &p) && warnings == 1);
    CHECK(tg_step_closure(closed, forgetful_closure, &p) && warnings == 2);
    tg_set_grad(p, NULL);
    CHECK(tg_step_closure(l, forgetful_closure, &p) && warnings == 3);
    CHECK(tg_step_closure(l, forgetful_closure, &p) && warnings == 3);
    tg_optim_free(o);
    o = tg_sgd(&p, 1, 0.01);
    tg_set_grad(p, NULL);
    for (int i = 0; i < 3; ++i) {
        CHECK(tg_backward(tg_grad_scaler_scale(&scaler, tg_sum(tg_mul(p, p)))) == TG_OK);
        CHECK(tg_grad_scaler_step(&scaler, o) == TG_OK && tg_grad_scaler_update(&scaler) == TG_OK);
        CHECK(warnings == 3 + (i > 0));
    }
    tg_set_error_handler(NULL, NULL);
    tg_optim_free(o), tg_optim_free(closed), tg_optim_free(l);
}

/* Way number `way` to begin a gradient anew; false if there are no more. */
static bool zero_gradient(tg_optim *o, tg_tensor *p, int way)
{
    const double zeros[2] = {0, 0};
    tg_tensor *g = tg_grad(p);
    const bool host = tg_device_of(p).type == TG_DEV_CPU;
    TG_NO_GRAD;
    switch (way) {
    case 0: return tg_optim_zero_grad(o) == TG_OK;
    case 1: return tg_zero_grad(&p, 1) == TG_OK;
    case 2: return tg_set_grad(p, NULL) == TG_OK;
    case 3: return tg_set_grad(p, tg_zeros_like(p)) == TG_OK;
    case 4: return tg_zero_(g) != NULL;
    case 5: return tg_fill_(g, 0) != NULL;
    case 6: return tg_mul_scalar_(g, 0.9) != NULL; /* some of it, on purpose */
    case 7: return tg_copy_(g, tg_zeros_like(g)) != NULL;
    case 8: return tg_zero_(tg_narrow(g, 0, 0, 2)) != NULL;
    case 9:
        if (host) memcpy(tg_data(g), zeros, sizeof zeros);
        else tg_zero_(g);
        return tg_touch_(g) != NULL;
    case 10: /* nothing tells the library */
        if (host) memcpy(tg_data(g), zeros, sizeof zeros);
        else tg_zero_(g);
        return true;
    default: return false;
    }
}

TEST(gradients_that_are_zeroed)
{
    tg_tensor *p = parameter_of_ones(), *unused = parameter_of_ones();
    tg_set_requires_grad(unused, false);
    warnings = 0, warned[0] = 0;
    tg_set_error_handler(keep_warning, NULL);
    for (int way = 0, more = 1; more; ++way) {
        tg_optim *o = tg_adam(TG_LIST(p, unused), 0.01);
        for (int i = 0; i < 20 && more; ++i) { /* before backward; then after the step */
            if (i > 0 && i <= 10) more = zero_gradient(o, p, way);
            if (!more) break;
            CHECK(steps_after_backward(o, p) && warnings == 0);
            if (i >= 10) more = zero_gradient(o, p, way);
        }
        CHECK(adds_gradient(p)); /* of another loss; zeroed by hand then */
        if (more) CHECK(zero_gradient(o, p, way) && steps_after_backward(o, p) && warnings == 0);
        tg_set_grad(p, NULL);
        tg_optim_free(o);
        CHECK(more || way == 11);
    }
    tg_set_error_handler(NULL, NULL);
}

/* Sums between two steps, steps of two optimizers, and a gradient that another loss has added to are no mistakes. */
TEST(gradients_that_are_summed_on_purpose)
{
    tg_tensor *p = parameter_of_ones(), *q = parameter_of_ones();
    tg_optim *o = tg_adam(&p, 1, 0.01), *both = tg_sgd(TG_LIST(p, q), 0.01), *of_q = tg_sgd(&q, 1, 0.01);
    warnings = 0, warned[0] = 0;
    tg_set_error_handler(keep_warning, NULL);
    for (int i = 0; i < 12; ++i) {
        tg_optim_zero_grad(both);
        for (int k = 0; k < 4; ++k) CHECK(adds_gradient(p) && adds_gradient(q));
        CHECK(tg_step(o) == TG_OK && tg_step(both) == TG_OK && tg_step(o) == TG_OK);
    }
    tg_optim_zero_grad(both);
    for (int i = 0; i < 3; ++i) { /* two networks by turns: the loss of one reaches the other */
        tg_optim_zero_grad(o);
        CHECK(steps_after_backward(o, p));
        tg_optim_zero_grad(of_q);
        CHECK(tg_backward(tg_sum(tg_mul(p, q))) == TG_OK && tg_step(of_q) == TG_OK);
    }
    CHECK(warnings == 0);
    tg_set_error_handler(NULL, NULL);
    tg_optim_free(o), tg_optim_free(both), tg_optim_free(of_q);
}

/* After ten steps the parameters that no gradient has reached are told, by groups. */
TEST(parameters_that_no_gradient_reaches)
{
    tg_tensor *p[8];
    tg_optim *o;
    tg_optim_group *group;
    for (int i = 0; i < 8; ++i) p[i] = parameter_of_ones();
    tg_set_name(p[0], "w1"), tg_set_name(p[6], "head");
    warnings = 0, warned[0] = 0;
    tg_set_error_handler(keep_warning, NULL);
    o = tg_sgd(p, 2, 0.001);
    for (int i = 0; i < 30; ++i) {
        tg_optim_zero_grad(o);
        CHECK(tg_backward(tg_sum(tg_mul(tg_detach(tg_mul(p[0], p[0])), p[1]))) == TG_OK && tg_step(o) == TG_OK);
        CHECK(warnings == (i >= 9));
    }
    CHECK(strstr(warned, "warning: tg_step: in 10 steps no gradient came to 1 of 2 parameters: 0 'w1'\n  hint: ") &&
          strstr(warned, "tg_detach") && strstr(warned, "tg_set_requires_grad(t, false)"));
    tg_optim_free(o);
    o = tg_sgd(p, 2, 0.001);
    group = tg_optim_add_group(o, p + 2, 6);
    tg_set_requires_grad(p[7], false); /* frozen: meant */
    for (int i = 0; i < 20; ++i) {
        tg_optim_zero_grad(o);
        CHECK(adds_gradient(p[i == 3]) && tg_step(o) == TG_OK);
    }
    CHECK(group && warnings == 2 && strstr(warned, "no gradient came to 5 of 6 parameters: 2, 3, 4, 5, ... (group 1)\n"));
    tg_optim_free(o);
    o = tg_sgd(p, 1, 0.001); /* each has had one: no warning */
    group = tg_optim_add_group(o, p + 6, 1);
    for (int i = 0; i < 20; ++i) {
        tg_optim_zero_grad(o);
        CHECK(adds_gradient(p[i == 9 ? 6 : 0]) && tg_step(o) == TG_OK);
    }
    CHECK(warnings == 2);
    tg_optim_free(o);
    tg_set_error_handler(NULL, NULL);
}

/* The first step that finds no gradient warns, and only the first; a frozen parameter among others is no reason to. */
TEST(step_without_gradients)
{
    tg_tensor *p[2];
    tg_optim *o;
    p[0] = tg_set_requires_grad(tg_ones_on(TG_SHAPE(2), TG_F64, HERE), true);
    p[1] = tg_ones_on(TG_SHAPE(2), TG_F64, HERE);
    o = tg_adam(p, 2, 0.5);
    warnings = 0, warned[0] = 0;
    tg_set_error_handler(keep_warning, NULL);
    CHECK(tg_backward(tg_sum(p[0])) == TG_OK && tg_step(o) == TG_OK && warnings == 0);
    CHECK(tg_optim_zero_grad(o) == TG_OK && tg_step(o) == TG_OK && warnings == 1);
    CHECK(strstr(warned, "tg_step: no parameter of the optimizer has a gradient") != NULL);
    CHECK(tg_step(o) == TG_OK && warnings == 1);
    tg_set_error_handler(NULL, NULL);
    tg_optim_free(o);
}

/* ---- steps with a closure ---- */

/* LBFGS of PyTorch 2.15 in f64: `steps` steps from [-1.2, 1, 0.5, -0.3, 0.8, 1.1] on one of the losses of loss_of.  0:
 * the default. */
static const struct {
    const char *loss;
    int steps;
    bool strong_wolfe;
    double lr;
    int max_iter, max_eval, history_size;
    double tolerance_grad, tolerance_change;
    int calls;        /* of the closure, in all steps */
    double last_loss; /* of the last step */
    double tolerance; /* some losses make much of rounding: after 30 calls of Rosenbrock's function PyTorch's own
                         results differ by 1e-7 if the start differs in its last bits */
    double p[6];
} lbfgs_rows[] = {
    {"quad", 3, false, 1, 0, 0, 0, 0, 0, 12, 1.3719514811113704, 1e-12,
     {0.870021099330018, 0.8664896807243018, 0.9101502285829542,
      0.9305122926554206, 0.9427954402315433, 0.9764282905172592}},
    {"quad", 3, false, 0.5, 5, 0, 2, 0, 0, 15, 1.3721247201410594, 1e-12,
     {0.8698361671122583, 0.8665396551062908, 0.9101263073317224,
      0.930499100583628, 0.9427689095310412, 0.9765756537448916}},
    {"quad", 2, true, 0, 0, 0, 0, 0, 0, 11, 1.3719514811113704, 1e-12,
     {0.870021099330018, 0.8664896807243018, 0.9101502285829542,
      0.9305122926554206, 0.9427954402315433, 0.9764282905172592}},
    {"rosen", 3, true, 0, 4, 0, 0, 0, 0, 16, 5.622322180761419, 1e-12,
     {-0.4049944808398802, 0.18011039078063407, 0.031306753445363905,
      0.019002655168441712, 0.010128879983014222, 0.00033662231796877795}},
    {"rosen", 2, true, 0, 20, 0, 0, 0, 0, 51, 4.885575267457423, 1e-5,
     {0.963627846590166, 0.9351244038998755, 0.8762771813174811,
      0.771469852254038, 0.589326421808736, 0.3328041631627483}},
    {"rosen", 10, true, 0, 3, 0, 3, 0, 0, 33, 4.721320713822498, 1e-5,
     {0.4298788688486633, 0.14863216303789742, 0.008688064988900651,
      0.014290508682496338, 0.017193311213270113, 0.007488798685781123}},
    {"rosen", 5, true, 0, 10, 3, 0, 0, 0, 16, 5.622322180761419, 1e-12,
     {-0.4639979989317861, 0.2290962173856748, 0.06300008007588594,
      0.014477371783403418, 0.009403809955446249, -0.0004914749642038439}},
    {"rosen", 20, false, 0.001, 2, 0, 0, 0, 0, 40, 127.56130356998877, 1e-12,
     {-1.1598550442741085, 0.9653578292082025, 0.49462298762931556,
      -0.21364346840260245, 0.7024892334931896, 0.9365577224326047}},
    {"wave", 2, true, 0.7, 0, 0, 0, 0, 0, 14, -5.102310080768255, 1e-12,
     {-1.5673763071483642, 1.4988576392724313, 1.5024910095334443,
      -1.6394701340488804, 1.5061759390663367, 1.422205766145948}},
    {"wave", 3, false, 0.1, 8, 0, 0, 0, 0, 24, -5.043380458222048, 1e-12,
     {-1.5889032249264727, 1.5261569245588966, 1.4736179018725353,
      -1.5851890543403684, 1.5098495916618702, 1.4443485784797656}},
    {"wave", 10, true, 3, 2, 9, 0, 0, 0, 21, -5.102310080620393, 1e-12,
     {-1.5673705390369181, 1.4988399574318756, 1.5024923536327985,
      -1.6394800116795971, 1.506166450281185, 1.4222051895334855}},
    {"logs", 2, true, 2, 0, 0, 0, 0, 0, 19, 2.812997127399973e-12, 1e-12,
     {0.49999834784265407, 0.49999991053275267, 0.5,
      0.49999990276697365, 0.5000000742536188, 0.5000000181631945}},
    {"logs", 3, true, 30, 3, 25, 0, 0, 0, 26, 0.011821636117546122, 1e-12,
     {0.4997993125090154, 0.5003637464729124, 0.5,
      0.499690222197621, 0.49970463029152634, 0.5004377588729212}},
    {"logs", 4, false, 0, 3, 0, 0, 0, 0, 12, 2.7921878525628028, 1e-12,
     {-2.0456912256143847, 2.0285182050163266, 0.5,
      -7.825853108910036, 4.5966523926105145, 1.0552276220026806}},
    {"logs", 2, true, 0.001, 0, 40, 0, 0, 0, 80, 0.09874218911081459, 1e-12,
     {0.45762483299299245, 0.47825970467554413, 0.5,
      0.525882437120929, 0.5042772447544673, 0.4913939254764776}},
    {"quad", 2, true, 0, 0, 0, 0, 0.5, 0, 8, 1.3719907179291702, 1e-12,
     {0.8690196412983184, 0.8661827224621006, 0.9073661569939245,
      0.9318563832009729, 0.9415077443199679, 0.9761346237251473}},
    {"quad", 2, false, 0, 0, 0, 0, 0, 0.1, 7, 1.3991886056163192, 1e-12,
     {0.9547715870833338, 0.8540043431947743, 0.9004525302696448,
      0.9100708984253569, 0.932389338270193, 0.922827685273122}},
    {"quad", 2, true, 0, 0, 1, 0, 0, 0, 4, 7.315011030892172, 1e-12,
     {-0.23274617234922568, 1.0080887748589435, 0.9214918886501731,
      1.0389154795338311, 0.9377621222204576, 0.9914321747218457}},
    {"cliff", 2, true, 3, 6, 60, 0, 0, 0, 39, -12.67205580555255, 1e-9,
     {-1.0237533088385629, 2.006535002783045, 0.9784218918312062,
      -0.10178271545599354, 2.0065105681632427, 2.006393454118324}},
    {"logs", 1, true, 300, 6, 0, 0, 0, 0, 8, 4.555770394633763, 1e-12,
     {-0.680077490756233, 0.20686330942813613, 0.5,
      0.7693977850407153, -0.4307293474390992, -0.255360167432932}},
};
static const double lbfgs_start[6] = {-1.2, 1, 0.5, -0.3, 0.8, 1.1};

/* The function to minimize, of p [6]. */
static tg_tensor *loss_of(const char *name, tg_tensor *p)
{
    const double ones[6] = {1, 2, 3, 4, 5, 6};
    tg_tensor *count = tg_to(tg_from_f64(ones, TG_SHAPE(6)), tg_device_of(p));
    tg_tensor *before = tg_narrow(p, 0, 0, 5), *after = tg_narrow(p, 0, 1, 5), *pairs = tg_sum(tg_mul(after, before));
    if (strcmp(name, "rosen") == 0) { /* Rosenbrock's */
        return tg_add(tg_sum(tg_square(tg_rsub_scalar(before, 1))),
                      tg_mul_scalar(tg_sum(tg_square(tg_sub(after, tg_square(before)))), 100));
    }
    if (strcmp(name, "quad") == 0) {
        return tg_add(tg_sum(tg_mul(count, tg_square(tg_sub_scalar(p, 1)))), tg_mul_scalar(pairs, 0.3));
    }
    if (strcmp(name, "wave") == 0) {
        return tg_add(tg_sum(tg_add(tg_cos(tg_mul_scalar(p, 2)), tg_mul_scalar(tg_square(p), 0.1))),
                      tg_mul_scalar(pairs, 0.2));
    }
    if (strcmp(name, "cliff") == 0) { /* steeper and steeper down, then a wall: the search comes near both ends */
        return tg_sum(tg_sub(tg_mul_scalar(tg_pow_scalar(tg_relu(tg_sub_scalar(p, 2)), 3), 1e5),
                             tg_add(tg_mul_scalar(tg_exp(tg_mul_scalar(p, 3)), 0.01), tg_mul_scalar(p, 0.1))));
    }
    return tg_sum(tg_log1p(tg_mul(count, tg_square(tg_sub_scalar(p, 0.5)))));
}

/* What the closures of these tests are given. */
typedef struct {
    tg_optim *opt;
    tg_tensor *p[3]; /* joined, they are the p of loss_of */
    int n;
    const char *loss;
    int calls, fails_at; /* the number of the call that fails, from 1; 0: none */
} problem;

static tg_tensor *solve(void *user)
{
    problem *m = (problem *)user;
    tg_tensor *flat[3], *loss;
    int i;
    CHECK(tg_is_grad_enabled());
    if (++m->calls == m->fails_at) return NULL;
    tg_optim_zero_grad(m->opt);
    for (i = 0; i < m->n; ++i) flat[i] = tg_to_dtype(tg_reshape(m->p[i], TG_SHAPE(-1)), TG_F64);
    loss = loss_of(m->loss, tg_cat(flat, m->n, 0));
    return tg_backward(loss) == TG_OK ? loss : NULL;
}

static void set_lbfgs(tg_optim *o, int i)
{
    o->strong_wolfe = lbfgs_rows[i].strong_wolfe;
    if (lbfgs_rows[i].lr > 0) o->lr = lbfgs_rows[i].lr;
    if (lbfgs_rows[i].max_iter > 0) o->max_iter = lbfgs_rows[i].max_iter;
    if (lbfgs_rows[i].max_eval > 0) o->max_eval = lbfgs_rows[i].max_eval;
    if (lbfgs_rows[i].history_size > 0) o->history_size = lbfgs_rows[i].history_size;
    if (lbfgs_rows[i].tolerance_grad > 0) o->tolerance_grad = lbfgs_rows[i].tolerance_grad;
    if (lbfgs_rows[i].tolerance_change > 0) o->tolerance_change = lbfgs_rows[i].tolerance_change;
}

/* The six numbers as three parameters: [2], a transposed [1, 3] and a 0-dim one. */
static void split_start(problem *m)
{
    tg_tensor *start = tg_from_f64(lbfgs_start, TG_SHAPE(6));
    start = tg_to(start, HERE);
    m->p[0] = tg_set_requires_grad(tg_clone(tg_narrow(start, 0, 0, 2)), true);
    m->p[1] = tg_set_requires_grad(tg_t(tg_clone(tg_reshape(tg_narrow(start, 0, 2, 3), TG_SHAPE(3, 1)))), true);
    m->p[2] = tg_set_requires_grad(tg_clone(tg_select(start, 0, 5)), true);
    m->n = 3;
}

TEST(lbfgs_follows_pytorch)
{
    int i, j, k, pieces;
    for (i = 0; i < COUNT(lbfgs_rows); ++i) {
        for (pieces = 0; pieces < 2; ++pieces) {
            TG_SCOPE;
            problem m = {NULL, {NULL, NULL, NULL}, 1, lbfgs_rows[i].loss, 0, 0};
            double last = 0, at[6];
            tg_tensor *flat[3];
            if (pieces) split_start(&m);
            else m.p[0] = tg_set_requires_grad(tg_from_on(lbfgs_start, TG_SHAPE(6), TG_F64, HERE), true);
            m.opt = tg_lbfgs(m.p, m.n, 1);
            harness.sample = lbfgs_rows[i].loss;
            set_lbfgs(m.opt, i);
            for (k = 0; k < lbfgs_rows[i].steps; ++k) {
                TG_SCOPE;
                last = tg_item(tg_step_closure(m.opt, solve, &m));
            }
            for (j = 0; j < m.n; ++j) flat[j] = tg_reshape(tg_detach(m.p[j]), TG_SHAPE(-1));
            CHECK(tg_copy_out(tg_cat(flat, m.n, 0), at, sizeof at) == TG_OK);
            CHECK(m.calls == lbfgs_rows[i].calls);
            CHECK_NEAR(last, lbfgs_rows[i].last_loss, lbfgs_rows[i].tolerance);
            for (k = 0; k < 6; ++k) {
                if (CHECK_NEAR(at[k], lbfgs_rows[i].p[k], lbfgs_rows[i].tolerance)) continue;
                printf("    row %d, element %d\n", i, k);
            }
            tg_optim_free(m.opt);
        }
    }
}


/* A closure that fails at any of its calls leaves parameters and history as they were: the steps after it are those of
 * a run without the failure. */
TEST(lbfgs_undoes_what_failed)
{
    double wanted[6], at[6];
    int fails_at, k, wolfe;
    for (wolfe = 0; wolfe < 2; ++wolfe) {
        for (fails_at = 0; fails_at <= 9; ++fails_at) {
            TG_SCOPE;
            problem m = {NULL, {NULL, NULL, NULL}, 1, "quad", 0, 0};
            m.p[0] = tg_set_requires_grad(tg_from_on(lbfgs_start, TG_SHAPE(6), TG_F64, HERE), true);
            m.opt = tg_lbfgs(m.p, 1, 0.5);
            m.opt->max_iter = 5, m.opt->history_size = 3, m.opt->strong_wolfe = wolfe != 0;
            CHECK(tg_step_closure(m.opt, solve, &m) != NULL);
            if (fails_at > 0) {
                tg_tensor *before = tg_clone(tg_detach(m.p[0]));
                m.calls = 0, m.fails_at = fails_at;
                tg_clear_error();
                tg_step_closure(m.opt, solve, &m);
                if (m.calls == fails_at) {
                    CHECK(strstr(tg_error_message(), "tg_step_closure: the closure returned NULL") != NULL);
                    CHECK(tg_equal(m.p[0], before));
                } else {
                    CHECK(tg_ok() && m.calls < fails_at); /* it was done before: start anew */
                    tg_optim_free(m.opt);
                    continue;
                }
                tg_clear_error();
            }
            m.fails_at = 0;
            for (k = 0; k < 2; ++k) CHECK(tg_step_closure(m.opt, solve, &m) != NULL);
            CHECK(tg_copy_out(tg_detach(m.p[0]), at, sizeof at) == TG_OK);
            if (fails_at == 0) memcpy(wanted, at, sizeof at);
            CHECK(memcmp(wanted, at, sizeof at) == 0);
            tg_optim_free(m.opt);
        }
    }
}

/* A parameter without a gradient, and one that is frozen, count as zeros: the others move as if alone. */
TEST(lbfgs_without_gradients)
{
    problem m = {NULL, {NULL, NULL, NULL}, 1, "quad", 0, 0};
    tg_optim *o;
    int k;
    m.p[0] = tg_set_requires_grad(tg_from_on(lbfgs_start, TG_SHAPE(6), TG_F64, HERE), true);
    m.p[1] = tg_set_requires_grad(tg_ones_on(TG_SHAPE(2, 2), TG_F64, HERE), true);
    m.p[2] = tg_ones_on(TG_SCALAR, TG_F64, HERE);
    o = m.opt = tg_lbfgs(m.p, 3, 1); /* row 0 */
    for (k = 0; k < 3; ++k) CHECK(tg_step_closure(o, solve, &m) != NULL);
    CHECK(m.calls == lbfgs_rows[0].calls && tg_item(tg_sum(m.p[1])) == 4 && tg_item(m.p[2]) == 1);
    for (k = 0; k < 6; ++k) CHECK_NEAR(tg_get(m.p[0], TG_INDEX(k)), lbfgs_rows[0].p[k], 1e-12);
    tg_optim_free(o);
    o = m.opt = tg_lbfgs(m.p + 2, 1, 1); /* nothing to do */
    CHECK(tg_step_closure(o, solve, &m) != NULL && m.calls == lbfgs_rows[0].calls + 1);
    tg_optim_free(o);
    m.p[1] = tg_set_requires_grad(tg_zeros_on(TG_SHAPE(0, 2), TG_F64, HERE), true);
    o = m.opt = tg_lbfgs(m.p + 1, 1, 1); /* no element */
    CHECK(tg_step_closure(o, solve, &m) != NULL && m.calls == lbfgs_rows[0].calls + 2);
    tg_optim_free(o);
}

/* Parameters of narrow dtypes, and parameters that change theirs between two steps: the history follows. */
TEST(lbfgs_dtypes)
{
    static const tg_dtype dtypes[] = {TG_F32, TG_BF16, TG_F16};
    static const double tolerance[] = {1e-4, 0.05, 0.01};
    int i, k, late;
    for (i = 0; i < COUNT(dtypes); ++i) {
        for (late = 0; late < 2; ++late) {
            TG_SCOPE;
            problem m = {NULL, {NULL, NULL, NULL}, 1, "quad", 0, 0};
            tg_tensor *start = tg_from_on(lbfgs_start, TG_SHAPE(6), TG_F64, HERE);
            m.p[0] = tg_set_requires_grad(late ? start : tg_to_dtype(start, dtypes[i]), true);
            m.opt = tg_lbfgs(m.p, 1, 1);
            m.opt->max_iter = 5, m.opt->strong_wolfe = true;
            for (k = 0; k < 3; ++k) {
                if (k == 1 && late) {
                    CHECK(tg_optim_zero_grad(m.opt) == TG_OK && tg_to_dtype_(m.p[0], dtypes[i]) == m.p[0]);
                }
                CHECK(tg_step_closure(m.opt, solve, &m) != NULL);
            }
            for (k = 0; k < 6; ++k) {
                CHECK(fabs(tg_get(m.p[0], TG_INDEX(k)) - lbfgs_rows[0].p[k]) < tolerance[i]);
            }
            tg_optim_free(m.opt);
        }
    }
}

/* The other optimizers call the closure once, and then step. */
TEST(closures_of_other_optimizers)
{
    problem m = {NULL, {NULL, NULL, NULL}, 1, "quad", 0, 0};
    tg_tensor *q = tg_set_requires_grad(tg_from_on(lbfgs_start, TG_SHAPE(6), TG_F64, HERE), true), *loss;
    tg_optim *o = tg_adam(&q, 1, 0.1);
    m.p[0] = tg_set_requires_grad(tg_from_on(lbfgs_start, TG_SHAPE(6), TG_F64, HERE), true);
    m.opt = tg_adam(m.p, 1, 0.1);
    {
        TG_NO_GRAD; /* not in the closure */
        loss = tg_step_closure(m.opt, solve, &m);
    }
    CHECK(loss && m.calls == 1 && tg_backward(loss_of("quad", q)) == TG_OK && tg_step(o) == TG_OK);
    CHECK(tg_item(loss) == tg_item(loss_of("quad", f64("[-1.2, 1, 0.5, -0.3, 0.8, 1.1]"))) && tg_equal(q, m.p[0]));
    m.fails_at = 2;
    CHECK_FAILS(tg_step_closure(m.opt, solve, &m), "tg_step_closure: the closure returned NULL");
    CHECK(tg_equal(q, m.p[0]));
    tg_optim_free(o), tg_optim_free(m.opt);
}

/* ---- closures that misbehave ---- */

static tg_tensor *kept_loss;
static tg_tensor *frees_the_optimizer(void *user)
{
    problem *m = (problem *)user;
    tg_tensor *loss = solve(user);
    tg_optim_free(m->opt);
    return loss;
}
static tg_tensor *leaves_a_scope_open(void *user)
{
    tg_scope_begin();
    return solve(user);
}
static tg_tensor *returns_two_numbers(void *user) { return (void)solve(user), tg_ones(TG_SHAPE(2)); }
static tg_tensor *releases_its_last_loss(void *user)
{
    tg_release(kept_loss);
    return kept_loss = tg_param(tg_detach(solve(user)));
}
static tg_tensor *has_no_gradient(void *user) { return (void)user, scalar(3); }
static tg_tensor *steps_by_itself(void *user)
{
    problem *m = (problem *)user;
    if (m->calls == 0) tg_step_closure(m->opt, solve, m);
    return solve(user);
}
TEST(closures_that_misbehave)
{
    problem m = {NULL, {NULL, NULL, NULL}, 1, "quad", 0, 0};
    tg_tensor *loss;
    tg_optim_group *group;
    int kind;
    for (kind = 0; kind < 2; ++kind) {
        m.p[0] = tg_set_requires_grad(tg_from_on(lbfgs_start, TG_SHAPE(6), TG_F64, HERE), true);
        m.opt = kind ? tg_lbfgs(m.p, 1, 1) : tg_sgd(m.p, 1, 0.01);
        CHECK_FAILS(tg_step_closure(NULL, solve, &m), "tg_step_closure: argument opt is NULL");
        CHECK_FAILS(tg_step_closure(m.opt, NULL, &m), "tg_step_closure: argument closure is NULL");
        CHECK_FAILS(tg_step_closure(m.opt, leaves_a_scope_open, &m), "the closure left a scope open");
        if (kind) CHECK_FAILS(tg_step_closure(m.opt, returns_two_numbers, &m), "2 elements");
        CHECK(tg_get(m.p[0], TG_INDEX(0)) == -1.2);
        m.calls = 0;
        CHECK(tg_step_closure(m.opt, steps_by_itself, &m) != NULL);
        CHECK(tg_fill_(tg_detach(m.p[0]), 2) != NULL); /* so that lbfgs calls more than once */
        loss = tg_step_closure(m.opt, releases_its_last_loss, &m);
        CHECK(loss && fabs(tg_item(loss) - 27) < 1e-9);
        tg_release(kept_loss), kept_loss = NULL;
        warnings = 0;
        tg_set_error_handler(keep_warning, NULL);
        tg_optim_zero_grad(m.opt);
        CHECK(tg_item(tg_step_closure(m.opt, has_no_gradient, &m)) == 3 && warnings == 1);
        CHECK(tg_step_closure(m.opt, has_no_gradient, &m) != NULL && warnings == 1);
        tg_set_error_handler(NULL, NULL);
        if (kind) CHECK_FAILS(tg_step(m.opt), "tg_step: lbfgs needs a closure");
        group = NULL;
        if (kind) CHECK_FAILS(group = tg_optim_add_group(m.opt, NULL, 0), "LBFGS doesn't support per-parameter");
        if (kind) {
            m.opt->history_size = 0;
            CHECK_FAILS(tg_step_closure(m.opt, solve, &m), "Invalid max_iter 20, max_eval 0 or history_size 0");
            m.opt->history_size = 1;
        }
        CHECK(!group);
        CHECK_FAILS(tg_step_closure(m.opt, frees_the_optimizer, &m), "the closure freed the optimizer");
    }
}

/* ---- the state of an optimizer in files: what @@SAVE builds on ---- */

/* In place of a file: tensors by name, on the CPU. */
enum { STORED = 200 };
static struct {
    int count;
    char name[STORED][80];
    tg_tensor *t[STORED];
} store;

static void store_clear(void)
{
    while (store.count > 0) tg_release(store.t[--store.count]);
}

static bool store_put(void *user, const char *name, tg_tensor *t)
{
    (void)user;
    if (store.count == STORED || (t = tg_to_ex(t, TG_CPU, tg_dtype_of(t), TG_COPY)) == NULL) return false;
    snprintf(store.name[store.count], sizeof store.name[0], "%s", name);
    store.t[store.count++] = tg_retain(t);
    return true;
}

static int store_find(const char *name)
{
    int i = 0;
    while (i < store.count && strcmp(store.name[i], name) != 0) ++i;
    return i < store.count ? i : -1;
}

static tg_tensor *store_get(void *user, const char *name)
{
    const int i = store_find(name);
    (void)user;
    return i < 0 ? NULL : store.t[i];
}

/* Replaces what is stored under a name, or removes it. */
static void store_set(const char *name, tg_tensor *t)
{
    const int i = store_find(name);
    if (!CHECK(i >= 0)) return;
    tg_release(store.t[i]);
    if (t) store.t[i] = tg_retain(t);
    else store.t[i] = store.t[--store.count], memmove(store.name[i], store.name[store.count], sizeof store.name[0]);
}

static bool save(tg_optim *o)
{
    store_clear();
    return inside_optim_save(o, store_put);
}

static bool load(tg_optim *o)
{
    return inside_optim_load(o, store_get);
}

/* Optimizers of three parameters in two groups; of lbfgs, in one. */
static tg_optim *any_optimizer(int kind, tg_tensor *const *p, double lr)
{
    return optimizers[kind].make(p, optimizers[kind].closure ? 3 : 2, lr);
}

static tg_optim_group *any_group(int kind, tg_optim *o, tg_tensor *const *p)
{
    return optimizers[kind].closure ? NULL : tg_optim_add_group(o, p + 2, 1);
}

static void any_options(int kind, tg_optim *o)
{
    o->momentum = optimizers[kind].momentum, o->dampening = optimizers[kind].dampening;
    o->centered = optimizers[kind].centered;
    o->weight_decay = 0.01, o->lr_decay = 0.1, o->initial_accumulator_value = 0.5;
    o->max_iter = 2, o->history_size = 3, o->strong_wolfe = optimizers[kind].strong_wolfe;
    if (o->group) o->group->lr_scale = 0.3, o->group->weight_decay = 0.2;
}

/* The last parameter gets its first gradient in step 4. */
static void any_steps(int kind, tg_optim *o, problem *m, int from, int to)
{
    int i, k;
    for (k = from; k < to; ++k) {
        TG_SCOPE;
        tg_optim_zero_grad(o);
        for (i = 0; i < (k < 4 ? 2 : 3); ++i) {
            tg_set_grad(m->p[i], tg_cos(tg_add_scalar(tg_mul_scalar(tg_detach(m->p[i]), 3), k)));
        }
        if (optimizers[kind].closure) CHECK(tg_step_closure(o, solve, m) != NULL);
        else CHECK(tg_step(o) == TG_OK);
        o->amsgrad = k >= 3; /* its state begins later than the others */
    }
}

/* Seven steps are the same, bit for bit, in one run and when an optimizer made anew goes on after `stop` of them. */
TEST(resumed_bit_for_bit)
{
    int kind, stop, i;
    for (kind = 0; kind < KINDS; ++kind) {
        for (stop = 0; stop < 7; stop += stop == 0 ? 2 : 3) {
            TG_SCOPE;
            problem m = {NULL, {NULL, NULL, NULL}, 3, "quad", 0, 0}, again = m;
            tg_optim_group *group;
            tg_optim *o;
            split_start(&m);
            o = m.opt = any_optimizer(kind, m.p, 0.1);
            any_group(kind, o, m.p), any_options(kind, o);
            any_steps(kind, o, &m, 0, stop);
            CHECK(save(o));
            for (i = 0; i < 3; ++i) again.p[i] = tg_set_requires_grad(tg_clone(tg_detach(m.p[i])), true);
            any_steps(kind, o, &m, stop, 7);
            again.opt = any_optimizer(kind, again.p, 3); /* other hyperparameters, and a step of its own */
            group = any_group(kind, again.opt, again.p);
            {
                tg_tensor *before[3];
                for (i = 0; i < 3; ++i) before[i] = tg_clone(tg_detach(again.p[i]));
                any_steps(kind, again.opt, &again, 4, 5);
                for (i = 0; i < 3; ++i) tg_copy_(tg_detach(again.p[i]), before[i]);
            }
            CHECK(load(again.opt) && again.opt->lr == 0.1 && again.opt->group == group);
            CHECK(!group || (group->lr_scale == 0.3 && group->weight_decay == 0.2));
            any_steps(kind, again.opt, &again, stop, 7);
            for (i = 0; i < 3; ++i) {
                if (!CHECK(tg_equal(m.p[i], again.p[i]))) printf("    kind %d, stop %d, parameter %d\n", kind, stop, i);
            }
            tg_optim_free(o), tg_optim_free(again.opt);
        }
    }
    store_clear();
}

/* What does not fit is an error, and changes nothing. */
TEST(state_that_does_not_fit)
{
    problem m = {NULL, {NULL, NULL, NULL}, 3, "quad", 0, 0};
    tg_optim *o, *sgd, *single;
    tg_tensor *was;
    split_start(&m);
    o = m.opt = tg_adamw(m.p, 2, 0.1);
    tg_optim_add_group(o, m.p + 2, 1);
    sgd = tg_sgd(m.p, 3, 0.1), single = tg_adamw(m.p, 3, 0.1);
    any_steps(kind_of("adamw"), o, &m, 0, 5);
    CHECK_FAILS(load(o), "the optimizer is adamw, but there is the state of none");
    CHECK(save(o));
    CHECK(store_get(NULL, "adamw.lr") && store_get(NULL, "adamw.groups.0.lr_scale"));
    CHECK(tg_item(store_get(NULL, "adamw.state.1.step")) == 5 && tg_item(store_get(NULL, "adamw.state.2.step")) == 1);
    CHECK(store_get(NULL, "adamw.state.2.exp_avg_sq") && store_get(NULL, "adamw.state.2.max_exp_avg_sq"));
    CHECK_FAILS(load(sgd), "the optimizer is sgd, but there is the state of adamw");
    CHECK_FAILS(load(single), "loaded state dict has a different number of parameter groups: 'adamw.groups' is 1");
    tg_optim_add_group(single, NULL, 0);
    CHECK_FAILS(load(single), "that doesn't match the size of optimizer's group: 'adamw.groups.0.count' is 1");
    tg_optim_free(single);
    single = tg_adamw(m.p, 1, 0.1);
    tg_optim_add_group(single, m.p + 2, 1);
    CHECK_FAILS(load(single), "match the size of optimizer's group: 'adamw.params' is 3, the optimizer has 2");
    tg_optim_free(single), tg_optim_free(sgd);

    o->lr = 0.7;
    was = tg_retain(store_get(NULL, "adamw.state.1.exp_avg"));
    store_set("adamw.state.1.exp_avg", tg_ones(TG_SHAPE(3)));
    CHECK_FAILS(load(o), "'adamw.state.1.exp_avg' is f32 of shape [3], but floats of shape [1, 3] are needed");
    store_set("adamw.state.1.exp_avg", tg_zeros_on(TG_SHAPE(1, 3), TG_I64, TG_CPU));
    CHECK_FAILS(load(o), "'adamw.state.1.exp_avg' is i64 of shape [1, 3]");
    store_set("adamw.state.1.exp_avg", was), tg_release(was);
    store_set("adamw.amsgrad", tg_scalar(2));
    CHECK_FAILS(load(o), "'adamw.amsgrad' cannot be 2");
    store_set("adamw.amsgrad", tg_scalar(fabs(NAN))); /* the sign of NAN depends on the compiler */
    CHECK_FAILS(load(o), "'adamw.amsgrad' cannot be nan");
    store_set("adamw.amsgrad", tg_scalar(0));
    store_set("adamw.state.2.step", tg_scalar(-1));
    CHECK_FAILS(load(o), "'adamw.state.2.step' cannot be -1");
    store_set("adamw.state.2.step", tg_scalar(1e30));
    CHECK_FAILS(load(o), "'adamw.state.2.step' cannot be 1e+30");
    store_set("adamw.state.2.step", tg_ones(TG_SHAPE(2)));
    CHECK_FAILS(load(o), "'adamw.state.2.step' should be a number, but has shape [2]");
    store_set("adamw.state.2.step", tg_scalar(1));
    store_set("adamw.beta1", tg_scalar(1.5));
    CHECK_FAILS(load(o), "Invalid beta parameter at index 0: 1.5");
    store_set("adamw.beta1", NULL);
    CHECK_FAILS(load(o), "there is no 'adamw.beta1'");
    CHECK(save(o));
    store_set("adamw.state.0.exp_avg_sq", NULL);
    CHECK_FAILS(load(o), "there is no 'adamw.state.0.exp_avg_sq'");
    CHECK(o->lr == 0.7 && inside_optim_steps(o, 0) == 5);
    tg_optim_free(o);
    store_clear();
}

TEST(lbfgs_history_that_does_not_fit)
{
    problem m = {NULL, {NULL, NULL, NULL}, 3, "quad", 0, 0};
    tg_optim *o;
    split_start(&m);
    o = m.opt = tg_lbfgs(m.p, 3, 0.1);
    CHECK(save(o) && load(o) && !store_get(NULL, "lbfgs.n_iter")); /* before its first step */
    any_steps(kind_of("lbfgs"), o, &m, 0, 1);
    CHECK(save(o) && store_get(NULL, "lbfgs.state.2.old_dirs"));
    o->history_size = 1;
    CHECK(save(o) && load(o)); /* what there is, is saved; the next step keeps the newest pair */
    any_steps(kind_of("lbfgs"), o, &m, 1, 2);
    CHECK(save(o) && store_get(NULL, "lbfgs.state.0.ro") && !store_get(NULL, "lbfgs.state.1.ro"));
    store_set("lbfgs.pairs", tg_scalar(2e9));
    CHECK_FAILS(load(o), "the history is not complete: 'lbfgs.pairs' is 2000000000, the optimizer has 1");
    store_set("lbfgs.pairs", tg_scalar(1));
    store_set("lbfgs.state.0.old_stps", tg_ones(TG_SHAPE(5)));
    CHECK_FAILS(load(o), "'lbfgs.state.0.old_stps' is f32 of shape [5], but floats of shape [6] are needed");
    CHECK(save(o));
    store_set("lbfgs.state.0.old_dirs", NULL);
    CHECK_FAILS(load(o), "there is no 'lbfgs.state.0.old_dirs'");
    CHECK(save(o));
    store_set("lbfgs.d", NULL);
    CHECK_FAILS(load(o), "there is no 'lbfgs.d'");
    tg_optim_free(o);
    store_clear();
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

/* MultiStepLR, PolynomialLR, CosineAnnealingWarmRestarts, SequentialLR and ChainedScheduler of PyTorch 2.15. */
TEST(more_schedules)
{
    static const double steps[7] = {1, 1, 0.01, 0.01, 0.01, 0.001, 0.001}, falls[6] = {1, 0.5625, 0.25, 0.0625, 0, 0};
    static const double restarts[11] = {1, 0.775, 0.325, 1, 0.9397114317029974, 0.775, 0.55, 0.325, 0.16028856829700258,
                                        1, 0.9846666218300807};
    static const double even[6] = {1, 0.8681980515339464, 0.55, 0.23180194846605365, 1, 0.8681980515339464};
    static const double sequence[5] = {0.5, 0.75, 1, 0.9, 0.81}, product[4] = {1, 0.9, 0.081, 0.0729};
    for (int i = 0; i < 7; ++i) CHECK_NEAR(tg_lr_multi_step(i, TG_DIMS(2, 5, 2), 1, 0.1), steps[i], 1e-15);
    for (int i = 0; i < 6; ++i) CHECK_NEAR(tg_lr_polynomial(i, 4, 1, 2), falls[i], 1e-15);
    for (int i = 0; i < 11; ++i) CHECK_NEAR(tg_lr_cosine_restarts(i, 3, 2, 1, 0.1), restarts[i], 1e-15);
    for (int i = 0; i < 6; ++i) CHECK_NEAR(tg_lr_cosine_restarts(i, 4, 1, 1, 0.1), even[i], 1e-15);
    for (int i = 0; i < 5; ++i) {
        const double lr = i < 2 ? 0.5 + 0.25 * i : tg_lr_exponential(i - 2, 1, 0.9);
        CHECK_NEAR(lr, sequence[i], 1e-15);
    }
    for (int i = 0; i < 4; ++i)
        CHECK_NEAR(tg_lr_multi_step(i, TG_DIMS(2), 1, 0.1) * tg_lr_exponential(i, 1, 0.9), product[i], 1e-15);
    CHECK_NEAR(tg_lr_multi_step(100, TG_SCALAR, 3, 0.1), 3, 0); /* no milestone */
    tg_shape many = TG_SCALAR;
    many.ndim = TG_MAX_DIMS + 1;
    CHECK_FAILS(tg_lr_multi_step(1, many, 1, 0.1), "argument milestones: a tensor has at most 8 dims, not 9");
    CHECK_NEAR(tg_lr_polynomial(-5, 4, 1, 2), 1, 0);
    CHECK_NEAR(tg_lr_polynomial(0, 0, 1, 2), 0, 0);
    CHECK_NEAR(tg_lr_cosine_restarts(-1, 0, 0, 1, 0.1), 1, 0);
    CHECK_NEAR(tg_lr_cosine_restarts(INT64_MAX, 1, 2, 1, 0), 1, 1); /* ends, without an overflow */
    CHECK_NEAR(tg_lr_cosine_restarts(INT64_MAX, INT64_MAX, INT64_MAX, 1, 0.25), 1, 0);
}

/* OneCycleLR of PyTorch 2.15: its learning rates and, with the numbers exchanged, its momentum. */
TEST(one_cycle)
{
    static const double rates[20] = {
        0.04, 0.1316718427000253, 0.3716718427000253, 0.6683281572999747, 0.9083281572999747, 1,
        0.9874640062350873, 0.9504846320134737, 0.89091617757105, 0.8117456539497631, 0.7169430017913008,
        0.6112620219362893, 0.500002, 0.38874197806371075, 0.28306099820869923, 0.18825834605023697,
        0.10908782242895004, 0.049519367986526286, 0.012539993764912554, 4e-06};
    static const double uneven[7] = {0.05, 0.20547117626563682, 0.45702882373436315, 0.47526697475862917,
                                     0.3058246032555895, 0.09453342198578131, 0.0005};
    static const double momenta[7] = {0.95, 0.9154508497187474, 0.8595491502812526, 0.854951556604879,
                                      0.8888739533021842, 0.9311744900929366, 0.95};
    int k;
    for (k = 0; k < 20; ++k) CHECK_NEAR(tg_lr_one_cycle(k, 20, 0.3, 1.0 / 25, 1, 1 / 25e4), rates[k], 1e-15);
    for (k = 0; k < 7; ++k) CHECK_NEAR(tg_lr_one_cycle(k, 7, 0.5, 0.05, 0.5, 0.0005), uneven[k], 1e-15);
    for (k = 0; k < 7; ++k) CHECK_NEAR(tg_lr_one_cycle(k, 7, 0.5, 0.95, 0.85, 0.95), momenta[k], 1e-15);
    CHECK_NEAR(tg_lr_one_cycle(0, 10, 0, 1.0 / 25, 1, 4e-6), 0.9755283560345442, 1e-15); /* falls from the start */
    CHECK_NEAR(tg_lr_one_cycle(9, 10, 1, 0.04, 1, 4e-6), 1, 1e-15);                      /* rises to the end */
    CHECK_NEAR(tg_lr_one_cycle(-3, 20, 0.3, 0.04, 1, 4e-6), 0.04, 1e-15);
    CHECK_NEAR(tg_lr_one_cycle(500, 20, 0.3, 0.04, 1, 4e-6), 4e-6, 1e-15);
    CHECK(tg_lr_one_cycle(0, 0, 0.3, 0.04, 1, 4e-6) == 1); /* nothing to rise or fall in */
}

/* ReduceLROnPlateau of PyTorch 2.15. */
TEST(plateau)
{
    static const struct {
        tg_plateau settings;
        int n;
        double metric[10], lr[10];
    } cases[] = {
        {{0.1, 1, 1e-4, 0, 0, 1e-8, false, false, false, 0, 0, 0}, 10, {1, 1, 1, 1, .5, .5, .5, .5, .5, .5},
         {1, 1, .1, .1, .1, .1, .01, .01, .001, .001}},
        {{0.5, 0, 1e-4, 2, 0, 1e-8, false, false, false, 0, 0, 0}, 10, {1, 1, 1, 1, 1, 1, 1, 1, 1, 1},
         {1, .5, .5, .5, .25, .25, .25, .125, .125, .125}},
        {{0.5, 0, 1e-4, 0, 0, 1e-8, false, false, false, 0, 0, 0}, 8, {1, .99995, .9999, .9998, .9, NAN, NAN, NAN},
         {1, .5, .25, .25, .25, .125, .0625, .03125}},
        {{0.5, 0, 0.1, 0, 0, 1e-8, true, false, false, 0, 0, 0}, 6, {1, 1.1, 1.15, 1.4, 1.4, 1.4},
         {1, .5, .5, .5, .25, .125}},
        {{0.5, 0, 0.1, 0, 0, 1e-8, true, true, false, 0, 0, 0}, 6, {1, 1.05, 1.2, 1.25, 1.31, 1.3},
         {1, .5, .5, .25, .25, .125}},
        {{0.5, 0, 0.1, 0, 0.2, 1e-8, false, true, false, 0, 0, 0}, 5, {1, .95, .85, .8, .7}, {1, .5, .5, .25, .25}},
        {{0.1, 0, 1e-4, 0, 0, 0.05, false, false, false, 0, 0, 0}, 5, {1, 1, 1, 1, 1}, {1, .1, .01, .01, .01}},
        {{0.5, 0, 1e-4, 0, 0, 1e-8, false, false, false, 0, 0, 0}, 4, {-1, -1.00005, -1.001, -1}, {1, 1, 1, .5}},
        {{0.5, 0, 1e-4, 0, 0, 1e-8, false, false, false, 0, 0, 0}, 3, {NAN, 2, 2}, {.5, .5, .25}},
    };
    const tg_plateau defaults = TG_PLATEAU;
    int i, k;
    CHECK(defaults.factor == 0.1 && defaults.patience == 10 && defaults.threshold == 1e-4 && defaults.eps == 1e-8);
    CHECK(!defaults.maximize && !defaults.absolute && defaults.cooldown == 0 && defaults.min_lr == 0);
    for (i = 0; i < COUNT(cases); ++i) {
        tg_plateau p = cases[i].settings;
        double lr = 1;
        for (k = 0; k < cases[i].n; ++k) {
            lr = tg_lr_plateau(&p, lr, cases[i].metric[k]);
            if (!CHECK_NEAR(lr, cases[i].lr[k], 1e-15)) printf("    case %d, metric %d\n", i, k);
        }
    }
    CHECK_FAILS(tg_lr_plateau(NULL, 1, 1), "tg_lr_plateau: argument plateau is NULL");
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
    CHECK_FAILS(tg_step(o), "parameter 0 'counts' is i64: only floating point can be optimized");
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
    tg_tensor *p = tg_set_requires_grad(tg_ones(TG_SHAPE(3, 2)), true), *wide = NULL, *other = tg_ones(TG_SHAPE(2));
    tg_optim *o = p && other ? tg_adam(&p, 1, 0.1) : NULL;
    tg_optim_group *group = o ? tg_optim_add_group(o, &other, 1) : NULL;
    bool ok = false;
    if (o) CHECK(o->count == (group ? 2 : 1) && o->group == group);
    if (group) {
        o->amsgrad = true;
        wide = tg_ones(TG_SHAPE(2, 3));
        if (wide && tg_set_grad(p, tg_t(wide)) == TG_OK) ok = tg_clip_grad_norm(&p, 1, 1) && tg_step(o) == TG_OK;
        CHECK(ok || tg_get(p, TG_INDEX(0, 0)) == 1); /* a failed step has not moved the parameter */
    }
    tg_optim_free(o);
    return ok;
}

/* A failed step of lbfgs has put the parameters back, in one piece and in several. */
static bool scenario_lbfgs(void)
{
    problem m = {NULL, {NULL, NULL, NULL}, 1, "quad", 0, 0};
    double at[6];
    bool ok = false;
    split_start(&m);
    if (m.p[0] && m.p[1] && m.p[2] && (m.opt = tg_lbfgs(m.p, 3, 0.5)) != NULL) {
        m.opt->max_iter = 3, m.opt->history_size = 1, m.opt->strong_wolfe = true;
        ok = tg_step_closure(m.opt, solve, &m) != NULL;
        CHECK(tg_copy_out(m.p[0], at, 16) == TG_OK && tg_copy_out(m.p[1], at + 2, 24) == TG_OK);
        CHECK(tg_copy_out(m.p[2], at + 5, 8) == TG_OK);
        CHECK((memcmp(at, lbfgs_start, sizeof at) == 0) == !ok);
    }
    tg_optim_free(m.opt);
    return ok;
}

/* State that is saved and loaded: all or none. */
static bool scenario_state(void)
{
    problem m = {NULL, {NULL, NULL, NULL}, 3, "quad", 0, 0};
    tg_tensor *g[3];
    tg_optim *o, *next;
    int i;
    bool ok = false;
    split_start(&m);
    o = tg_adam(m.p, 2, 0.1), next = tg_adam(m.p, 2, 3);
    for (i = 0; i < 3; ++i) g[i] = tg_ones_like(m.p[i]);
    if (o && next && tg_optim_add_group(o, m.p + 2, 1) && tg_optim_add_group(next, m.p + 2, 1)) {
        for (i = 0; i < 3 && g[i]; ++i) ok = tg_set_grad(m.p[i], g[i]) == TG_OK;
        ok = ok && i == 3 && tg_step(o) == TG_OK && save(o) && load(next);
        CHECK(next->lr == (ok ? 0.1 : 3) && inside_optim_steps(next, 2) == (ok ? 1 : 0));
    }
    tg_optim_free(o), tg_optim_free(next);
    store_clear();
    return ok;
}

static bool scenario_lbfgs_state(void)
{
    problem m = {NULL, {NULL, NULL, NULL}, 3, "quad", 0, 0};
    tg_optim *next;
    bool ok = false;
    split_start(&m);
    m.opt = tg_lbfgs(m.p, 3, 0.1), next = tg_lbfgs(m.p, 3, 3);
    if (m.opt && next) {
        m.opt->max_iter = 2, m.opt->tolerance_change = 0;
        ok = tg_step_closure(m.opt, solve, &m) != NULL && save(m.opt) && load(next);
        CHECK(next->lr == (ok ? 0.1 : 3) && (next->lbfgs != NULL) == ok);
    }
    tg_optim_free(m.opt), tg_optim_free(next);
    store_clear();
    return ok;
}

/* ---- rows of a large table ---- */

enum { WIDTH = 8, IDS = 6 };

/* A step for the rows at ids alone, of loss = sum(rows^3). */
static void step_of_rows(tg_optim *opt, tg_tensor *table, tg_tensor *ids)
{
    TG_SCOPE;
    tg_tensor *rows = tg_set_requires_grad(tg_embedding(table, ids), true);
    CHECK(tg_backward(tg_sum(tg_mul(tg_square(rows), rows))) == TG_OK);
    CHECK(tg_step_rows(opt, table, ids, tg_grad(rows)) == TG_OK);
}

/* Without a state it is the step of tg_sgd, also of ids that are there twice, and its memory does not grow with the table. */
TEST(steps_of_rows)
{
    const int64_t id[IDS] = {3, 0, 3, 9, 1, 3}, counts[2] = {10, 100000};
    int64_t bytes[2];
    tg_tensor *ids = tg_from_on(id, TG_SHAPE(2, 3), TG_I64, HERE);
    for (int k = 0; k < 2; ++k) {
        TG_SCOPE;
        tg_tensor *start = tg_randn_on(TG_SHAPE(counts[k], WIDTH), TG_F64, HERE), *table = tg_clone(start), *y;
        tg_tensor *dense = tg_set_requires_grad(tg_clone(start), true);
        tg_optim *opt = tg_sgd(&dense, 1, 0.1), *lazy = tg_sgd(&table, 1, 0);
        step_of_rows(lazy, table, ids);
        CHECK(tg_equal(table, start));
        tg_reset_peak();
        const int64_t before = tg_stats().bytes;
        lazy->lr = 0.1;
        for (int step = 0; step < 3; ++step) step_of_rows(lazy, table, ids);
        bytes[k] = tg_stats().peak_bytes - before;
        for (int step = 0; step < 3; ++step) {
            tg_optim_zero_grad(opt);
            y = tg_embedding(dense, ids);
            CHECK(tg_backward(tg_sum(tg_mul(tg_square(y), y))) == TG_OK && tg_step(opt) == TG_OK);
        }
        CHECK(tg_allclose(table, tg_detach(dense), 1e-12, 1e-12) && !tg_equal(table, start));
        CHECK(tg_equal(tg_select(table, 0, 2), tg_select(start, 0, 2)));
        tg_optim_free(opt), tg_optim_free(lazy);
    }
    CHECK(bytes[0] == bytes[1]);
}

/* Embedding(5, 2, sparse=True) in f64 by PyTorch 2.15: loss = sum(rows^3), three steps with lr 0.1 of torch.optim.SGD, Adagrad
 * and SparseAdam with eps 1e-300. */
TEST(rows_follow_pytorch)
{
    static const double start[10] = {1, 2, -0.5, 0.25, 3, -1, 0.5, -2, 1.5, 0.75}, golden[3][10] = {
        {0.3695146, 0.3862015999999999, -0.575, 0.23125, 3.0, -1.0, 0.31325, -10.208000000000002, 0.825, 0.58125},
        {0.763403745060241, 1.7549839707485169, -0.5999999999866666, 0.15000000005333333, 3.0, -1.0, 0.36952242729730195,
         -2.1482758982254455, 1.4000000000014814, 0.650000000005926},
        {0.7018483277050841, 1.7020641214021417, -0.5744136823566982, 0.1755863176433018, 3.0, -1.0, 0.31349522303889493,
         -2.1946113834651526, 1.4361186400601484, 0.6861186400601484}};
    static const int64_t id[3][3] = {{3, 0, 3}, {1, 3, 0}, {0, 0, 4}};
    for (int k = 0; k < 3; ++k) {
        TG_SCOPE;
        tg_tensor *table = tg_from_on(start, TG_SHAPE(5, 2), TG_F64, HERE);
        tg_optim *opt = k == 0 ? tg_sgd(&table, 1, 0.1) : k == 1 ? tg_adagrad(&table, 1, 0.1) : tg_adam(&table, 1, 0.1);
        if (k == 2) opt->eps = 1e-300;
        for (int step = 0; step < 3; ++step) step_of_rows(opt, table, tg_from_on(id[step], TG_SHAPE(3), TG_I64, HERE));
        CHECK(tg_allclose(table, tg_from_on(golden[k], TG_SHAPE(5, 2), TG_F64, HERE), 1e-12, 1e-12));
        tg_optim_free(opt);
    }
}

/* Each optimizer without a bias correction steps rows as it steps parameters of which each is one row: the same bits, in each
 * dtype, also of a table whose rows do not lie one behind another, and a table of several dims. */
TEST(rows_are_stepped_as_parameters)
{
    enum { ROWS = 4 };
    static tg_optim *(*const kinds[])(tg_tensor *const *, int, double) = {tg_sgd, tg_rmsprop, tg_adagrad, tg_adadelta};
    static const tg_dtype dtypes[] = {TG_F32, TG_F64, TG_BF16, TG_F16};
    static const int32_t id[3][2] = {{1, 3}, {3, 0}, {0, 1}};
    for (int k = 0; k < 2 * COUNT(kinds) * COUNT(dtypes); ++k) {
        TG_SCOPE;
        const tg_dtype dtype = dtypes[k / 2 % COUNT(dtypes)];
        tg_tensor *table = tg_to_dtype(tg_randn_on(TG_SHAPE(5, 3, ROWS), TG_F32, HERE), dtype), *row[ROWS];
        table = k % 2 ? tg_movedim(table, 2, 0) : tg_contiguous(tg_movedim(table, 2, 0));
        for (int i = 0; i < ROWS; ++i) row[i] = tg_clone(tg_select(table, 0, i));
        tg_optim *lazy = kinds[k / 2 / COUNT(dtypes)](&table, 1, 0.1), *opt = kinds[k / 2 / COUNT(dtypes)](row, ROWS, 0.1);
        if (k / 2 / COUNT(dtypes) < 2) lazy->momentum = opt->momentum = 0.5; /* of sgd and rmsprop */
        for (int step = 0; step < 3; ++step) {
            tg_tensor *grad = tg_to_dtype(tg_randn_on(TG_SHAPE(2, 5, 3), TG_F32, HERE), dtype);
            CHECK(tg_step_rows(lazy, table, tg_from_on(id[step], TG_SHAPE(2), TG_I32, HERE), grad) == TG_OK);
            CHECK(tg_optim_zero_grad(opt) == TG_OK);
            for (int i = 0; i < 2; ++i) CHECK(tg_set_grad(row[id[step][i]], tg_select(grad, 0, i)) == TG_OK);
            CHECK(tg_step(opt) == TG_OK);
        }
        CHECK(tg_equal(table, tg_stack(row, ROWS, 0)));
        tg_optim_free(opt), tg_optim_free(lazy);
    }
}

TEST(rows_that_cannot_be_stepped)
{
    const int64_t id[4] = {1, 2, -1, 5};
    tg_tensor *table = tg_ones_on(TG_SHAPE(5, 2), TG_F32, HERE), *other = tg_ones_on(TG_SHAPE(5, 2), TG_F32, HERE);
    tg_tensor *all = tg_from_on(id, TG_SHAPE(4), TG_I64, HERE), *ids = tg_narrow(all, 0, 0, 2);
    tg_tensor *grad = tg_ones_on(TG_SHAPE(2, 2), TG_F32, HERE), *number = tg_ones_on(TG_SCALAR, TG_F32, HERE);
    tg_optim *opt = tg_adam(&table, 1, 0.1), *lbfgs = tg_lbfgs(&table, 1, 1), *scalar = tg_adam(&number, 1, 0.1);
    CHECK_FAILS(tg_step_rows(NULL, table, ids, grad), "opt");
    CHECK_FAILS(tg_step_rows(opt, NULL, ids, grad), "table");
    CHECK_FAILS(tg_step_rows(opt, table, NULL, grad), "ids");
    CHECK_FAILS(tg_step_rows(opt, table, ids, NULL), "grad");
    CHECK_FAILS(tg_step_rows(opt, other, ids, grad), "table is no parameter of opt");
    CHECK_FAILS(tg_step_rows(lbfgs, table, ids, grad), "lbfgs");
    CHECK_FAILS(tg_step_rows(opt, table, grad, grad), "int32/int64");
    CHECK_FAILS(tg_step_rows(opt, table, ids, tg_ones_on(TG_SHAPE(2, 3), TG_F32, HERE)), "[2, 3]");
    CHECK_FAILS(tg_step_rows(opt, table, ids, tg_ones_on(TG_SHAPE(2), TG_F32, HERE)), "[2]");
    CHECK_FAILS(tg_step_rows(scalar, number, ids, tg_ones_on(TG_SHAPE(2), TG_F32, HERE)), "a table []");
    CHECK_FAILS(tg_step_rows(opt, table, ids, tg_ones_on(TG_SHAPE(2, 2), TG_F64, HERE)), "f64");
    CHECK_FAILS(tg_step_rows(opt, table, tg_narrow(all, 0, 1, 2), grad), "index -1 is outside [0, 5)");
    CHECK_FAILS(tg_step_rows(opt, table, tg_flip(tg_narrow(all, 0, 2, 2), TG_DIMS(0)), grad), "index -1 is outside");
    CHECK_FAILS(tg_step_rows(opt, table, tg_select(all, 0, 3), tg_select(grad, 0, 0)), "index 5 is outside [0, 5)");
    CHECK(tg_equal(table, other));
    CHECK(tg_step_rows(opt, table, tg_narrow(ids, 0, 0, 0), tg_narrow(grad, 0, 0, 0)) == TG_OK && tg_equal(table, other));
    CHECK(tg_step_rows(opt, table, tg_select(ids, 0, 0), tg_select(grad, 0, 0)) == TG_OK); /* one id, 0-dim */
    CHECK(tg_get(table, TG_INDEX(1, 1)) < 1 && tg_get(table, TG_INDEX(2, 1)) == 1);
    CHECK(tg_step_rows(opt, table, ids, tg_full_like(grad, NAN)) == TG_OK && isnan(tg_get(table, TG_INDEX(2, 0))));
    CHECK(tg_get(table, TG_INDEX(0, 0)) == 1);
    tg_optim_free(opt), tg_optim_free(lbfgs), tg_optim_free(scalar);
}

/* A failed step of rows has changed neither the table nor the states. */
static bool scenario_rows(void)
{
    const int64_t id[3] = {2, 0, 2};
    tg_tensor *table = tg_ones(TG_SHAPE(3, 2)), *ids = tg_from(id, TG_SHAPE(3), TG_I64), *grad = tg_ones(TG_SHAPE(3, 2));
    tg_optim *o = table && ids && grad ? tg_adam(&table, 1, 0.1) : NULL;
    const bool ok = o && tg_step_rows(o, table, ids, grad) == TG_OK;
    CHECK(ok || !o || tg_get(table, TG_INDEX(0, 0)) == 1);
    CHECK(!o || tg_get(table, TG_INDEX(1, 0)) == 1);
    tg_optim_free(o);
    return ok;
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    harness_take_device();
    out_of_memory(scenario_step);
    out_of_memory(scenario_lbfgs);
    out_of_memory(scenario_rows);
    out_of_memory(scenario_state);
    out_of_memory(scenario_lbfgs_state);
    RUN(optim_golden);
    RUN(optim_trajectories);
    RUN(optim_narrow_dtypes);
    RUN(optim_options_and_errors);
    RUN(groups_follow_pytorch);
    RUN(group_errors);
    RUN(step_without_gradients);
    RUN(forgotten_zero_grad);
    RUN(forgotten_zero_grad_in_other_ways);
    RUN(gradients_that_are_zeroed);
    RUN(gradients_that_are_summed_on_purpose);
    RUN(parameters_that_no_gradient_reaches);
    RUN(lbfgs_follows_pytorch);
    RUN(lbfgs_undoes_what_failed);
    RUN(lbfgs_without_gradients);
    RUN(lbfgs_dtypes);
    RUN(closures_of_other_optimizers);
    RUN(closures_that_misbehave);
    RUN(resumed_bit_for_bit);
    RUN(state_that_does_not_fit);
    RUN(lbfgs_history_that_does_not_fit);
    RUN(optim_of_many);
    RUN(clipping);
    RUN(schedules);
    RUN(more_schedules);
    RUN(one_cycle);
    RUN(plateau);
    RUN(rmsprop_in_f32);
    RUN(integers_are_not_optimized);
    RUN(clipping_refuses_an_expanded_gradient);
    RUN(steps_of_rows);
    RUN(rows_follow_pytorch);
    RUN(rows_are_stepped_as_parameters);
    RUN(rows_that_cannot_be_stepped);
    CHECK(tg_shutdown() == TG_OK);
    return harness_end();
}
