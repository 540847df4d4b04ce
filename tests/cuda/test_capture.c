/* Steps of training that are captured and replayed: N runs of a capture give the bits of N calls of the step, with
 * inputs, learning rate and random numbers that change.  Built with `make sim`. */
#define _POSIX_C_SOURCE 200809L /* setenv */
#include "tensorgrad.h"
#include "../cudasim/cudasim_test.h"
#include "../harness.h"
#include <pthread.h>

enum { BATCH = 6, INPUTS = 10, HIDDEN = 16, CLASSES = 4, STEPS = 7 };
enum { ZEROES_FIRST, ZEROES_LAST, ACCUMULATES };       /* what a step does with the gradients of the one before */
enum { NO_SCALER, SCALER, SCALER_AND_CLIP };          /* SCALER: the scaler unscales in its step */
enum { BEFORE_BACKWARD, AFTER_BACKWARD, AFTER_STEP }; /* where it reads its loss */
typedef struct {
    tg_module *net;
    tg_optim *optim;
    tg_tensor *x, *target, *loss; /* f32 [BATCH, INPUTS], i64 [BATCH], f32 [] */
    int calls, gradients, reads, reads_from; /* the call from which on the loss is read; 0: never */
    int scales, infinite;                    /* see setting */
    tg_grad_scaler scaler;
    float losses[STEPS], weights[INPUTS * HIDDEN];
} model;

/* What a step cannot do that is captured. */
static void read_loss(const model *m, tg_tensor *loss, int where)
{
    if (m->reads_from && m->calls >= m->reads_from && m->reads == where) tg_item(loss);
}

static bool step(void *user)
{
    model *m = (model *)user;
    tg_tensor *loss;
    m->calls++;
    if (m->gradients == ZEROES_FIRST) tg_optim_zero_grad(m->optim);
    loss = tg_cross_entropy(tg_forward(m->net, m->x), m->target);
    read_loss(m, loss, BEFORE_BACKWARD);
    if (tg_backward(m->scales ? tg_grad_scaler_scale(&m->scaler, loss) : loss) != TG_OK) return false;
    if (m->scales == SCALER_AND_CLIP && tg_grad_scaler_unscale_(&m->scaler, m->optim) != TG_OK) return false;
    if (m->scales != SCALER && !tg_clip_grad_norm(tg_module_params(m->net), tg_module_count(m->net), 0.5)) return false;
    read_loss(m, loss, AFTER_BACKWARD);
    if ((m->scales ? tg_grad_scaler_step(&m->scaler, m->optim) : tg_step(m->optim)) != TG_OK) return false;
    if (m->scales && tg_grad_scaler_update(&m->scaler) != TG_OK) return false;
    read_loss(m, loss, AFTER_STEP);
    if (m->gradients == ZEROES_LAST) tg_optim_zero_grad(m->optim);
    return tg_copy_(m->loss, tg_detach(loss)) != NULL;
}

static void model_begin(model *m, tg_device device, bool adamw)
{
    tg_module *layers[4];
    const tg_grad_scaler scaler = TG_GRAD_SCALER;
    memset(m, 0, sizeof *m);
    m->infinite = -1;
    m->scaler = scaler;
    m->scaler.scale = 1024, m->scaler.growth_interval = 2;
    tg_seed(3);
    layers[0] = tg_nn_linear(INPUTS, HIDDEN, true);
    layers[1] = tg_nn_gelu(false);
    layers[2] = tg_nn_dropout(0.25);
    layers[3] = tg_nn_linear(HIDDEN, CLASSES, true);
    m->net = tg_nn_sequential(layers, 4);
    tg_module_to(m->net, device);
    m->optim = adamw ? tg_adamw(tg_module_params(m->net), tg_module_count(m->net), 0.1)
                     : tg_sgd(tg_module_params(m->net), tg_module_count(m->net), 0.1);
    if (!adamw) m->optim->momentum = 0.9;
    m->x = tg_retain(tg_zeros_on(TG_SHAPE(BATCH, INPUTS), TG_F32, device));
    m->target = tg_retain(tg_zeros_on(TG_SHAPE(BATCH), TG_I64, device));
    m->loss = tg_retain(tg_zeros_on(TG_SCALAR, TG_F32, device));
}

/* STEPS steps, by a capture or by calls. */
static void train(model *m, tg_capture *capture)
{
    for (int i = 0; i < STEPS; ++i) {
        TG_SCOPE;
        tg_tensor *ids = tg_empty_on(TG_SHAPE(BATCH), TG_I64, TG_CPU);
        for (int k = 0; k < BATCH; ++k) tg_data_i64(ids)[k] = (i + k) % CLASSES;
        tg_tensor *x = tg_reshape(tg_arange(0, BATCH * INPUTS, 1), TG_SHAPE(BATCH, INPUTS));
        tg_copy_(m->x, tg_mul_scalar(x, i == m->infinite ? INFINITY : 0.01 * (i + 1)));
        tg_copy_(m->target, ids);
        m->optim->lr = 0.1 / (i + 1);
        if (capture) {
            CHECK(tg_capture_run(capture) == TG_OK);
        } else {
            TG_SCOPE;
            CHECK(step(m));
        }
        m->losses[i] = (float)tg_item(m->loss);
        {
            TG_NO_GRAD;
            tg_forward(m->net, m->x); /* other work, whose memory is not the capture's */
        }
    }
    { TG_SCOPE; CHECK(tg_copy_out(tg_module_params(m->net)[0], m->weights, sizeof m->weights) == TG_OK); }
}

static void model_end(model *m)
{
    tg_optim_free(m->optim);
    tg_module_free(m->net);
    tg_release(m->x), tg_release(m->target), tg_release(m->loss);
}

/* The settings of a model, and how many times its step is called when a capture runs it STEPS times. */
typedef struct {
    tg_device device;
    bool adamw;
    int gradients, reads_from, reads, calls;
    int scales, infinite; /* the step, from 0, whose inputs are infinite; only with a scaler */
} setting;

/* The function of CUDA that fails when the capture calls it the n-th time, from 0, or NULL. */
static const char *failure_of;
static int failure_at;
enum { OUT_OF_MEMORY = 2, CAPTURE_UNSUPPORTED = 900, PARTS_WITH_A_SCALER = 3 };

static void compare(setting how)
{
    model m[2]; /* by calls, by a capture */
    tg_capture *capture = NULL;
    tg_rng rng = tg_rng_state();
    for (int k = 0; k < 2; ++k) {
        model_begin(&m[k], how.device, how.adamw);
        m[k].gradients = how.gradients;
        m[k].reads_from = how.reads_from;
        m[k].reads = how.reads;
        m[k].scales = how.scales;
        m[k].infinite = how.scales ? how.infinite : -1;
        if (k == 1) capture = tg_capture_new(how.device, step, &m[k]);
        if (k == 1 && failure_of) cudasim_fail_call(failure_of, failure_at, OUT_OF_MEMORY);
        train(&m[k], capture);
        if (k == 0) rng = tg_rng_state();
        if (k == 0) model_end(&m[k]);
    }
    if (failure_of) CHECK((cudasim_failure_left() < 0) == (how.calls != 3));
    cudasim_fail_call("", -1, 0);
    CHECK((tg_capture_obstacle(capture) == NULL) == (how.calls == 3));
    CHECK(m[0].calls == STEPS && m[1].calls == how.calls);
    CHECK(memcmp(m[0].losses, m[1].losses, sizeof m[0].losses) == 0);
    CHECK(memcmp(m[0].weights, m[1].weights, sizeof m[0].weights) == 0);
    CHECK(m[0].scaler.scale == m[1].scaler.scale && m[0].scaler.growth_tracker == m[1].scaler.growth_tracker);
    CHECK(m[0].scaler.found_inf == m[1].scaler.found_inf);
    CHECK(m[0].scaler.scale == 8192 || how.scales == NO_SCALER || how.infinite >= 0); /* three times twice 1024 */
    CHECK(tg_rng_state().offset == rng.offset && rng.offset > 0 && m[0].losses[0] != m[0].losses[STEPS - 1]);
    CHECK(tg_ok());
    tg_capture_free(capture);
    model_end(&m[1]);
}

TEST(replays_are_steps)
{
    const setting settings[] = {{TG_CUDA(0), true, ZEROES_FIRST, 0, 0, 3, NO_SCALER, 0},
                                {TG_CUDA(0), false, ZEROES_FIRST, 0, 0, 3, NO_SCALER, 0},
                                {TG_CUDA(0), true, ZEROES_LAST, 0, 0, 3, NO_SCALER, 0},
                                {TG_CUDA(0), true, ACCUMULATES, 0, 0, 3, NO_SCALER, 0}};
    for (int k = 0; k < 4; ++k) compare(settings[k]);
}

/* The casts of the weights that other work has made are those of one step. */
TEST(steps_in_mixed_precision)
{
    const setting mixed = {TG_CUDA(0), true, ZEROES_FIRST, 0, 0, 3, NO_SCALER, 0};
    TG_AUTOCAST(TG_BF16);
    compare(mixed);
}

TEST(steps_that_cannot_be_captured)
{
    const setting on_cpu = {TG_CPU, true, ZEROES_FIRST, 0, 0, STEPS, NO_SCALER, 0};
    const setting reading = {TG_CUDA(0), true, ZEROES_FIRST, 1, BEFORE_BACKWARD, STEPS, NO_SCALER, 0};
    compare(on_cpu);
    compare(reading);
}

/* A step that waits for the first time when it is captured is undone, wherever that is, and called once more. */
TEST(captures_that_fail)
{
    static const int gradients[] = {ZEROES_FIRST, ZEROES_LAST, ACCUMULATES};
    for (int k = 0; k < 9; ++k) {
        const setting how = {TG_CUDA(0), k % 2 == 0, gradients[k % 3], 3, k / 3, STEPS + 1, NO_SCALER, 0};
        compare(how);
    }
}

/* A scaler decides in each run whether the step is made: also in the one that is captured, and in replays. */
TEST(steps_with_a_scaler)
{
    for (int infinite = -1; infinite < STEPS - 1; ++infinite) {
        const int scales = infinite % 2 ? SCALER : SCALER_AND_CLIP;
        const setting how = {TG_CUDA(0), infinite % 2 == 0, (infinite + 1) % 3, 0, 0, 3, scales, infinite};
        compare(how);
    }
}

TEST(steps_with_a_scaler_in_f16)
{
    const setting mixed = {TG_CUDA(0), true, ZEROES_FIRST, 0, 0, 3, SCALER_AND_CLIP, 4};
    TG_AUTOCAST(TG_F16);
    compare(mixed);
}

/* A capture that fails leaves the scaler, too, as it was. */
TEST(captures_with_a_scaler_that_fail)
{
    for (int k = 0; k < 6; ++k) {
        const int gradients = k % 2 ? ZEROES_LAST : ZEROES_FIRST;
        const setting how = {TG_CUDA(0), true, gradients, 3, k / 2, STEPS + 1, SCALER_AND_CLIP, 2};
        compare(how);
    }
}

/* What was done to a scaler between two runs, so that the captured step does not fit it any more. */
TEST(scalers_that_do_not_fit_the_capture)
{
    model m;
    model_begin(&m, TG_CUDA(0), false);
    m.scales = SCALER;
    tg_capture *capture = tg_capture_new(TG_CUDA(0), step, &m);
    train(&m, capture);
    m.scaler.enabled = false;
    CHECK_FAILS(tg_capture_run(capture), "the scaler was enabled when the step was captured");
    m.scaler.enabled = true;
    CHECK(tg_capture_run(capture) == TG_OK);
    { TG_SCOPE; CHECK(tg_backward(tg_grad_scaler_scale(&m.scaler, tg_sum(tg_forward(m.net, m.x)))) == TG_OK); }
    CHECK(tg_grad_scaler_step(&m.scaler, m.optim) == TG_OK);
    CHECK_FAILS(tg_capture_run(capture), "step() has already been called since the last update()");
    CHECK(tg_grad_scaler_update(&m.scaler) == TG_OK);
    CHECK(tg_capture_run(capture) == TG_OK);
    tg_capture_free(capture);
    model_end(&m);
}

/* CUDA fails to begin or to finish the capture of a part of a step; with a scaler the first part ends, and the second
   begins, in the middle of the step.  The step is then undone and called, and so are those after it. */
TEST(parts_that_cannot_be_captured)
{
    static const char *const call[] = {"cudaStreamBeginCapture", "cudaGraphInstantiate"};
    for (int k = 0; k < 2; ++k) {
        for (int at = 0; at <= PARTS_WITH_A_SCALER; ++at) {
            setting how = {TG_CUDA(0), true, at % 2 ? ZEROES_LAST : ZEROES_FIRST, 0, 0, 3, SCALER_AND_CLIP, 2};
            if (at < PARTS_WITH_A_SCALER) how.calls = k == 0 && at == 0 ? STEPS : STEPS + 1; /* one is undone */
            failure_of = call[k], failure_at = at;
            compare(how);
        }
        failure_of = NULL;
    }
}

/* ---- what cannot be captured is named ---- */

enum { READS, MOVES, MOVES_BESIDE, UPLOADS, WAITS, TRIMS, PINS, COUNTS, NESTS, ELSEWHERE, SCALES_F64, TWO_SCALERS,
       SCALES_TWICE, UNSCALES, SEEDS, STEPS_OFTEN, BEGINS, RAISES };
typedef struct {
    int what, calls;
    tg_tensor *kept, *w; /* f32 [2] */
    tg_optim *optim;     /* of w */
    tg_capture *inner;   /* of an empty step */
    tg_grad_scaler scaler[2];
} refused_step;

static bool empty_step(void *user)
{
    (void)user;
    return true;
}

/* Uses of a scaler that cannot be captured. */
static void forbidden_scaling(refused_step *r, tg_tensor *x)
{
    tg_tensor *loss = tg_sum(tg_mul(r->w, x));
    if (r->what == SCALES_F64) loss = tg_to_dtype(loss, TG_F64);
    tg_optim_zero_grad(r->optim);
    tg_backward(tg_grad_scaler_scale(&r->scaler[0], loss));
    if (r->what == TWO_SCALERS) tg_grad_scaler_scale(&r->scaler[1], loss);
    if (r->what == UNSCALES) tg_grad_scaler_unscale_(&r->scaler[0], r->optim);
    else tg_grad_scaler_step(&r->scaler[0], r->optim);
    if (r->what == SCALES_TWICE) {
        tg_grad_scaler_update(&r->scaler[0]);
        tg_backward(tg_grad_scaler_scale(&r->scaler[0], tg_sum(tg_mul(r->w, x))));
        tg_grad_scaler_step(&r->scaler[0], r->optim);
    }
    if (r->what == UNSCALES) r->scaler[0].steps = 1; /* as if a step had been made elsewhere */
    tg_grad_scaler_update(&r->scaler[0]);
}

/* Adds 1 to `kept`, beside what cannot be captured; the last two begin with that at the third call. */
static bool forbidden(void *user)
{
    refused_step *r = (refused_step *)user;
    static const float numbers[2] = {1, 2};
    const tg_device gpu = TG_CUDA(0);
    tg_tensor *x = tg_mul_scalar(r->kept, 2);
    const bool late = ++r->calls >= 3;
    int i;
    switch (r->what) {
    case READS: tg_item(tg_sum(x)); break;
    case MOVES: (void)tg_to(x, TG_CPU); break;
    case MOVES_BESIDE: (void)tg_to_ex(x, TG_CPU, TG_SAME_DTYPE, TG_NON_BLOCKING); break;
    case UPLOADS: (void)tg_from_on(numbers, TG_SHAPE(2), TG_F32, gpu); break;
    case WAITS: tg_synchronize(gpu); break;
    case TRIMS: tg_empty_cache(gpu); break;
    case PINS: (void)tg_pin_memory(tg_ones(TG_SHAPE(4096 << r->calls))); break;
    case COUNTS: (void)tg_nonzero(x); break;
    case NESTS: tg_capture_run(r->inner); break;
    case ELSEWHERE: (void)tg_ones_on(TG_SHAPE(2), TG_F32, TG_CUDA(1)); break;
    case SCALES_F64:
    case TWO_SCALERS:
    case SCALES_TWICE:
    case UNSCALES: forbidden_scaling(r, x); break;
    case SEEDS: tg_seed((uint64_t)r->calls); break;
    case STEPS_OFTEN:
        for (i = 0; i < 9; ++i) tg_step(r->optim);
        break;
    case BEGINS:
        if (late) tg_backward(tg_sum(tg_mul(r->w, x)));
        tg_step(r->optim);
        break;
    default:
        if (late && !tg_add(x, tg_ones_on(TG_SHAPE(3), TG_F32, gpu))) return false;
    }
    return tg_add_scalar_(r->kept, 1) != NULL;
}

/* Runs it five times by a capture, and returns why it is not captured.  calls: how many times that must call the step. */
static tg_capture *run_forbidden(refused_step *r, int what, int calls)
{
    tg_capture *capture = tg_capture_new(TG_CUDA(0), forbidden, r);
    const tg_grad_scaler scaler = TG_GRAD_SCALER;
    memset(r, 0, sizeof *r);
    r->what = what;
    r->scaler[0] = r->scaler[1] = scaler;
    r->kept = tg_retain(tg_zeros_on(TG_SHAPE(2), TG_F32, TG_CUDA(0)));
    r->w = tg_param(tg_ones_on(TG_SHAPE(2), TG_F32, TG_CUDA(0)));
    r->optim = tg_adamw(&r->w, 1, 0.1);
    r->inner = tg_capture_new(TG_CUDA(0), empty_step, NULL);
    for (int i = 0; i < 5; ++i) {
        if (what == RAISES && i >= 2)
            CHECK_FAILS(tg_capture_run(capture), "The size of tensor a (2) must match");
        else
            CHECK(tg_capture_run(capture) == TG_OK && tg_ok());
    }
    CHECK(r->calls == calls);
    CHECK_NEAR(tg_item(tg_sum(r->kept)), what == RAISES ? 4 : 10, 0);
    return capture;
}

static void refused_end(refused_step *r, tg_capture *capture)
{
    tg_capture_free(capture);
    tg_capture_free(r->inner);
    tg_optim_free(r->optim);
    tg_release(r->w), tg_release(r->kept);
}

TEST(refusals_name_the_op_and_the_reason)
{
    static const char *const copies =
        " copies from or to another device; copy into a tensor that stays, before the run";
    static const struct { int what, calls; const char *op, *why; } refusals[] = {
        {READS, 5, "tg_item", " waits for the GPU"},
        {MOVES, 5, "tg_to", " waits for the GPU"},
        {MOVES_BESIDE, 5, "tg_to_ex", NULL},
        {UPLOADS, 5, "tg_from_on", NULL},
        {WAITS, 5, "tg_synchronize", " waits for the GPU"},
        {TRIMS, 5, "tg_empty_cache", " waits for the GPU"},
        {PINS, 6, "tg_pin_memory", " allocates page-locked memory"},
        {COUNTS, 5, "tg_nonzero", " waits for the GPU"},
        {NESTS, 5, "tg_capture_run", " is called by the step itself"},
        {ELSEWHERE, 5, "tg_ones_on", " uses another GPU"},
        {SCALES_F64, 6, "tg_grad_scaler_scale", " has a loss that is not in f32"},
        {TWO_SCALERS, 5, "tg_grad_scaler_scale", " takes another scaler than a call before it"},
        {SCALES_TWICE, 6, "tg_grad_scaler_step", " is called twice"},
        {UNSCALES, 6, "tg_grad_scaler_unscale_", " is called, but not tg_grad_scaler_step"},
        {SEEDS, 6, "tg_seed", " is called"},
        {STEPS_OFTEN, 6, "tg_step", " is called more than 8 times"},
        {BEGINS, 6, "tg_step", " makes the state of a parameter that has a gradient for the first time"},
    };
    for (size_t k = 0; k < sizeof refusals / sizeof refusals[0]; ++k) {
        refused_step r;
        char wanted[200];
        tg_capture *capture = run_forbidden(&r, refusals[k].what, refusals[k].calls);
        harness.sample = refusals[k].op;
        snprintf(wanted, sizeof wanted, "%s%s", refusals[k].op, refusals[k].why ? refusals[k].why : copies);
        if (!CHECK(tg_capture_obstacle(capture) && strcmp(tg_capture_obstacle(capture), wanted) == 0))
            printf("    obstacle: %s\n", tg_capture_obstacle(capture) ? tg_capture_obstacle(capture) : "none");
        refused_end(&r, capture);
    }
    harness.sample = NULL;
}

TEST(refusals_without_an_op)
{
    refused_step r;
    tg_capture *capture = tg_capture_new(TG_CPU, empty_step, NULL);
    CHECK(strcmp(tg_capture_obstacle(capture), "it runs on the CPU") == 0);
    tg_capture_free(capture);
    capture = run_forbidden(&r, RAISES, 6);
    CHECK(strstr(tg_capture_obstacle(capture), "tg_add: The size of tensor a (2) must match") != NULL);
    refused_end(&r, capture);
}

/* ---- other threads that use the GPU while a step is captured ---- */

extern int cudaDeviceSynchronize(void); /* of the CUDA runtime, whose header is for C++ */

typedef struct {
    tg_tensor *x, *shared; /* f32 [2] each */
    int calls, joins; /* joins: the call from which on the step waits for another thread, or 0 */
    void *(*other)(void *);
    bool failed; /* it had an error */
} busy_step;

static bool add_one(void *x) { return tg_add_scalar_((tg_tensor *)x, 1) != NULL; }

/* What CUDA allows in no thread while another one captures, and a capture. */
static void *use_the_gpu(void *user)
{
    busy_step *b = (busy_step *)user;
    {
        TG_SCOPE; /* allocates memory of both kinds, and waits for the whole device */
        tg_tensor *x = tg_pin_memory(tg_ones(TG_SHAPE(1000)));
        (void)tg_matmul(tg_ones_on(TG_SHAPE(3, 3), TG_F32, TG_CUDA(0)), tg_ones_on(TG_SHAPE(3, 3), TG_F32, TG_CUDA(0)));
        if (!x || !tg_add_scalar_(b->shared, 1) || tg_empty_cache(TG_CUDA(0)) != TG_OK) b->failed = true;
        x = tg_zeros_on(TG_SCALAR, TG_F32, TG_CUDA(0));
        tg_capture *capture = tg_capture_new(TG_CUDA(0), add_one, x);
        for (int i = 0; i < 4; ++i) tg_capture_run(capture);
        if (!capture || tg_capture_obstacle(capture) || tg_item(x) != 4) b->failed = true;
        tg_capture_free(capture);
    }
    if (!tg_ok()) b->failed = true;
    if (tg_thread_end() != TG_OK || !tg_ok()) b->failed = true;
    return NULL;
}

/* The program uses CUDA itself: that fails, and ends the capture. */
static void *wait_for_the_gpu(void *user)
{
    busy_step *b = (busy_step *)user;
    if (cudaDeviceSynchronize() != CAPTURE_UNSUPPORTED) b->failed = true;
    return NULL;
}

static bool busy(void *user)
{
    busy_step *b = (busy_step *)user;
    pthread_t other;
    tg_mul_scalar_(b->x, 2);
    if (++b->calls >= b->joins && b->joins > 0) {
        if (pthread_create(&other, NULL, b->other, b) != 0) return false;
        pthread_join(other, NULL);
        if (b->joins == 3) b->joins = 0;
    }
    return tg_add_scalar_(b->x, 1) != NULL;
}

/* Runs the step by a capture, and checks that each run has done it once.  Returns why it is not captured, or NULL. */
static const char *run_busy(busy_step *b, int runs)
{
    static char why[240];
    double wanted = 0;
    tg_capture *capture = tg_capture_new(TG_CUDA(0), busy, b);
    b->calls = 0;
    tg_zero_(b->x);
    for (int i = 0; i < runs; ++i, wanted = wanted * 2 + 1) CHECK(tg_capture_run(capture) == TG_OK && tg_ok());
    CHECK(!b->failed);
    CHECK_NEAR(tg_get(b->x, TG_INDEX(1)), wanted, 0);
    snprintf(why, sizeof why, "%s", tg_capture_obstacle(capture) ? tg_capture_obstacle(capture) : "");
    tg_capture_free(capture);
    return why[0] ? why : NULL;
}

static bool over; /* atomic */
static void *use_it_until_the_end(void *user)
{
    while (!__atomic_load_n(&over, __ATOMIC_ACQUIRE)) use_the_gpu(user);
    return NULL;
}

TEST(other_threads_use_the_gpu_while_a_step_is_captured)
{
    busy_step b = {NULL, NULL, 0, 3, use_the_gpu, false}, others[2];
    pthread_t other[2];
    const char *why;
    int calls = 0;
    b.x = tg_retain(tg_zeros_on(TG_SHAPE(2), TG_F32, TG_CUDA(0)));
    b.shared = tg_share(tg_zeros_on(TG_SHAPE(2), TG_F32, TG_CUDA(0)));
    CHECK(run_busy(&b, 6) == NULL && b.calls == 5); /* the third run captures in vain, the fourth is the capture */
    b.joins = 3;
    b.other = wait_for_the_gpu;
    CHECK(run_busy(&b, 6) == NULL && b.calls == 5);
    b.other = use_the_gpu;
    b.joins = 2; /* always: it is not tried for ever */
    CHECK((why = run_busy(&b, 12)) != NULL && strstr(why, "because another thread used the GPU meanwhile"));
    CHECK(b.calls == 12 + 8);
    b.joins = 0;
    for (int k = 0; k < 2; ++k) {
        others[k] = b;
        others[k].shared = tg_share(tg_zeros_on(TG_SHAPE(2), TG_F32, TG_CUDA(0)));
        CHECK(pthread_create(&other[k], NULL, use_it_until_the_end, &others[k]) == 0);
    }
    for (int i = 0; i < 50; ++i, calls += b.calls) CHECK(run_busy(&b, 5) == NULL);
    CHECK(calls <= 160); /* 150, and two more for each capture in vain, on a machine that stops this thread */
    __atomic_store_n(&over, true, __ATOMIC_RELEASE);
    for (int k = 0; k < 2; ++k) {
        pthread_join(other[k], NULL);
        CHECK(!others[k].failed);
        tg_release(others[k].shared);
    }
    tg_release(b.x), tg_release(b.shared);
}

/* The setting counts from the first use of a device on; not a TEST, since tg_shutdown ends its scope. */
static void refused_by_pass_through(void)
{
    tg_capture *capture;
    tg_shutdown();
    setenv("TG_CUDA_PASS_THROUGH", "1", 1);
    capture = tg_capture_new(TG_CUDA(0), empty_step, NULL);
    CHECK(tg_capture_run(capture) == TG_OK && strcmp(tg_capture_obstacle(capture), "TG_CUDA_PASS_THROUGH is set") == 0);
    tg_capture_free(capture);
}

/* A replay is one launch for the host, and allocates nothing. */
TEST(what_a_replay_asks_for)
{
    model m;
    tg_capture *capture;
    long long before;
    model_begin(&m, TG_CUDA(0), true);
    capture = tg_capture_new(TG_CUDA(0), step, &m);
    for (int i = 0; i < 3; ++i) CHECK(tg_capture_run(capture) == TG_OK);
    before = cudasim_total(CUDASIM_DRIVER_ALLOCATIONS) + cudasim_total(CUDASIM_WAITS);
    for (int i = 0; i < 3; ++i) CHECK(tg_capture_run(capture) == TG_OK);
    CHECK(cudasim_total(CUDASIM_DRIVER_ALLOCATIONS) + cudasim_total(CUDASIM_WAITS) == before);
    tg_optim_zero_grad(m.optim);
    CHECK_FAILS(tg_capture_run(capture), "is not the one that the captured step left");
    tg_capture_free(capture);
    model_end(&m);
}

int main(int argc, char **argv)
{
    setenv("TG_CUDA_PASS_THROUGH", "0", 1); /* else nothing is captured */
    setenv("TG_SIM_REUSE", "1", 1);         /* each replay fills the blocks that it uses again */
    harness_begin(argc, argv);
    RUN(replays_are_steps);
    RUN(steps_in_mixed_precision);
    RUN(steps_that_cannot_be_captured);
    RUN(captures_that_fail);
    RUN(steps_with_a_scaler);
    RUN(steps_with_a_scaler_in_f16);
    RUN(captures_with_a_scaler_that_fail);
    RUN(scalers_that_do_not_fit_the_capture);
    RUN(parts_that_cannot_be_captured);
    RUN(refusals_name_the_op_and_the_reason);
    RUN(refusals_without_an_op);
    RUN(what_a_replay_asks_for);
    RUN(other_threads_use_the_gpu_while_a_step_is_captured);
    refused_by_pass_through();
    tg_shutdown();
    return harness_end();
}
