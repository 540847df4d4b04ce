/* Steps of training that are recorded and replayed: N runs of a graph give the bits of N calls of the step, with inputs,
 * learning rate and random numbers that change.  Built with `make sim`. */
#define _POSIX_C_SOURCE 200809L /* setenv */
#include "tensorgrad.h"
#include "../cudasim/cudasim_test.h"
#include "../harness.h"

enum { BATCH = 6, INPUTS = 10, HIDDEN = 16, CLASSES = 4, STEPS = 7 };
typedef struct {
    tg_module *net;
    tg_optim *optim;
    tg_tensor *x, *target, *loss; /* f32 [BATCH, INPUTS], i64 [BATCH], f32 [] */
    bool accumulates;
    int calls, reads_from; /* the call from which on the loss is read; 0: never */
    float losses[STEPS], weights[INPUTS * HIDDEN];
} model;

static bool step(void *user)
{
    model *m = (model *)user;
    tg_tensor *loss;
    m->calls++;
    if (!m->accumulates) tg_optim_zero_grad(m->optim);
    loss = tg_cross_entropy(tg_forward(m->net, m->x), m->target);
    if (tg_backward(loss) != TG_OK) return false;
    if (!tg_clip_grad_norm(tg_module_params(m->net), tg_module_count(m->net), 0.5)) return false;
    if (m->reads_from && m->calls >= m->reads_from) tg_item(loss);
    return tg_step(m->optim) == TG_OK && tg_copy_(m->loss, tg_detach(loss)) != NULL;
}

static void model_begin(model *m, tg_device device, bool adamw)
{
    tg_module *layers[4];
    memset(m, 0, sizeof *m);
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

/* STEPS steps, by a graph or by calls. */
static void train(model *m, tg_graph *graph)
{
    for (int i = 0; i < STEPS; ++i) {
        TG_SCOPE;
        tg_tensor *ids = tg_empty_on(TG_SHAPE(BATCH), TG_I64, TG_CPU);
        for (int k = 0; k < BATCH; ++k) tg_data_i64(ids)[k] = (i + k) % CLASSES;
        tg_tensor *x = tg_reshape(tg_arange(0, BATCH * INPUTS, 1), TG_SHAPE(BATCH, INPUTS));
        tg_copy_(m->x, tg_mul_scalar(x, 0.01 * (i + 1)));
        tg_copy_(m->target, ids);
        m->optim->lr = 0.1 / (i + 1);
        if (graph) {
            CHECK(tg_graph_run(graph) == TG_OK);
        } else {
            TG_SCOPE;
            CHECK(step(m));
        }
        m->losses[i] = (float)tg_item(m->loss);
        {
            TG_NO_GRAD;
            tg_forward(m->net, m->x); /* other work, whose memory is not the graph's */
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

static void compare(tg_device device, bool adamw, bool accumulates, int reads_from, bool replayed)
{
    model eager, recorded;
    tg_graph *graph;
    tg_rng rng;
    model_begin(&eager, device, adamw);
    eager.accumulates = accumulates, eager.reads_from = reads_from;
    train(&eager, NULL);
    rng = tg_rng_state();
    model_end(&eager);
    model_begin(&recorded, device, adamw);
    recorded.accumulates = accumulates, recorded.reads_from = reads_from;
    graph = tg_graph_new(device, step, &recorded);
    train(&recorded, graph);
    CHECK((tg_graph_obstacle(graph) == NULL) == replayed);
    CHECK(recorded.calls == (replayed ? 3 : STEPS));
    CHECK(memcmp(eager.losses, recorded.losses, sizeof eager.losses) == 0);
    CHECK(memcmp(eager.weights, recorded.weights, sizeof eager.weights) == 0);
    CHECK(tg_rng_state().offset == rng.offset && rng.offset > 0 && eager.losses[0] != eager.losses[STEPS - 1]);
    tg_graph_free(graph);
    model_end(&recorded);
}

TEST(replays_are_steps)
{
    compare(TG_CUDA(0), true, false, 0, true);
    compare(TG_CUDA(0), false, false, 0, true);
    compare(TG_CUDA(0), true, true, 0, true);
}

/* The casts of the weights that other work has made are those of one step. */
TEST(steps_in_mixed_precision)
{
    TG_AUTOCAST(TG_BF16);
    compare(TG_CUDA(0), true, false, 0, true);
}

TEST(steps_that_cannot_be_recorded)
{
    compare(TG_CPU, true, false, 0, false);
    compare(TG_CUDA(0), true, false, 1, false);
}

/* A replay is one launch for the host, and allocates nothing. */
TEST(what_a_replay_asks_for)
{
    model m;
    tg_graph *graph;
    long long before;
    model_begin(&m, TG_CUDA(0), true);
    graph = tg_graph_new(TG_CUDA(0), step, &m);
    for (int i = 0; i < 3; ++i) CHECK(tg_graph_run(graph) == TG_OK);
    before = cudasim_total(CUDASIM_DRIVER_ALLOCATIONS) + cudasim_total(CUDASIM_WAITS);
    for (int i = 0; i < 3; ++i) CHECK(tg_graph_run(graph) == TG_OK);
    CHECK(cudasim_total(CUDASIM_DRIVER_ALLOCATIONS) + cudasim_total(CUDASIM_WAITS) == before);
    tg_optim_zero_grad(m.optim);
    CHECK_FAILS(tg_graph_run(graph), "do not make the steps that were recorded");
    tg_graph_free(graph);
    model_end(&m);
}

/* A step that waits only when it is recorded: an error, which undoes what was counted; then it is called. */
TEST(a_step_that_changes)
{
    model m;
    tg_graph *graph;
    tg_rng rng;
    model_begin(&m, TG_CUDA(0), true);
    m.reads_from = 3;
    graph = tg_graph_new(TG_CUDA(0), step, &m);
    for (int i = 0; i < 2; ++i) CHECK(tg_graph_run(graph) == TG_OK);
    rng = tg_rng_state();
    CHECK_FAILS(tg_graph_run(graph), "cannot be recorded: it waits for the GPU, as tg_item does");
    CHECK(tg_graph_obstacle(graph) != NULL && tg_rng_state().offset == rng.offset);
    CHECK(tg_graph_run(graph) == TG_OK && m.calls == 4 && tg_ok());
    tg_graph_free(graph);
    model_end(&m);
}

int main(int argc, char **argv)
{
    setenv("TG_CUDA_PASS_THROUGH", "0", 1); /* else nothing is recorded */
    harness_begin(argc, argv);
    RUN(replays_are_steps);
    RUN(steps_in_mixed_precision);
    RUN(steps_that_cannot_be_recorded);
    RUN(what_a_replay_asks_for);
    RUN(a_step_that_changes);
    tg_shutdown();
    return harness_end();
}
