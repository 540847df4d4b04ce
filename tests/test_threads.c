/* Four threads train shared weights, each with a tape of its own, with the same bits as one thread; a tensor that is
 * not shared can only be used by its thread.  Build with -pthread; must be clean under -fsanitize=thread. */
#if !defined(__cplusplus) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#include "tensorgrad.h"
#include "semantics.h"
#include <pthread.h>

enum { THREADS = 4, STEPS = 25, ROWS = 8, INPUTS = 6, HIDDEN = 16, CLASSES = 3, WEIGHTS = 4 };

/* ---- a small network, its gradients from the rows of one thread ---- */

typedef struct {
    tg_tensor *weight[WEIGHTS]; /* two layers: weight, bias, weight, bias */
    tg_tensor *x, *targets;     /* of all threads */
} network;

static const int sizes[WEIGHTS] = {HIDDEN * INPUTS, HIDDEN, CLASSES *HIDDEN, CLASSES};
enum { PARAMETERS = HIDDEN * INPUTS + HIDDEN + CLASSES * HIDDEN + CLASSES };

static void network_make(network *net)
{
    tg_seed(5);
    net->weight[0] = tg_param(tg_mul_scalar(tg_randn(TG_SHAPE(HIDDEN, INPUTS)), 0.5));
    net->weight[1] = tg_param(tg_zeros(TG_SHAPE(HIDDEN)));
    net->weight[2] = tg_param(tg_mul_scalar(tg_randn(TG_SHAPE(CLASSES, HIDDEN)), 0.5));
    net->weight[3] = tg_param(tg_zeros(TG_SHAPE(CLASSES)));
    net->x = tg_randn(TG_SHAPE(THREADS * ROWS, INPUTS));
    net->targets = tg_randint(0, CLASSES, TG_SHAPE(THREADS * ROWS));
}

static void network_release(network *net)
{
    int i;
    for (i = 0; i < WEIGHTS; ++i) tg_release(net->weight[i]);
}

static tg_tensor *hidden_layer(tg_tensor *const *in, int n, void *user)
{
    network *net = (network *)user;
    (void)n;
    return tg_gelu(tg_layer_norm(tg_linear(in[0], net->weight[0], net->weight[1]), 1, NULL, NULL, 1e-5), true);
}

/* The gradients of the loss over the rows of one thread, one after another in `out`; false on error. */
static bool shard_gradients(network *net, int thread, int step, float *out)
{
    TG_SCOPE;
    tg_tensor *x = tg_narrow(net->x, 0, thread * ROWS, ROWS), *t = tg_narrow(net->targets, 0, thread * ROWS, ROWS);
    tg_tensor *hidden, *logits, *loss, *g[WEIGHTS];
    int i;
    tg_seed((uint64_t)(1000 * step + thread));
    hidden = step % 2 ? tg_checkpoint(hidden_layer, &x, 1, net) : hidden_layer(&x, 1, net);
    hidden = tg_dropout(hidden, 0.25, true);
    logits = tg_add(tg_matmul(hidden, tg_t(net->weight[2])), net->weight[3]); /* a view of a shared weight */
    loss = tg_cross_entropy(logits, t);
    if (tg_gradients(&loss, 1, NULL, net->weight, WEIGHTS, g, 0) != TG_OK) return false;
    for (i = 0; i < WEIGHTS; ++i) {
        if (tg_copy_out(g[i], out, sizeof(float) * (size_t)sizes[i]) != TG_OK) return false;
        out += sizes[i];
    }
    return true;
}

/* weight -= 0.1 * the gradients of all threads, added in the order of the threads. */
static void network_update(network *net, float (*gradients)[PARAMETERS])
{
    TG_SCOPE;
    TG_NO_GRAD;
    int i, k, at = 0;
    for (i = 0; i < WEIGHTS; ++i) {
        for (k = 0; k < THREADS; ++k) {
            tg_tensor *g = tg_from_f32(gradients[k] + at, tg_shape_of(net->weight[i]));
            tg_sub_(net->weight[i], tg_mul_scalar(g, 0.1));
        }
        at += sizes[i];
    }
}

/* ---- all threads train together: gradients, barrier, one updates, barrier ---- */

static network *shared_net;
static float shared_gradients[THREADS][PARAMETERS];
static pthread_barrier_t barrier;
typedef struct {
    int thread;
    bool ok;
    tg_stats_info end;
} worker_state;

static void *train_worker(void *argument)
{
    worker_state *w = (worker_state *)argument;
    int step;
    w->ok = true;
    for (step = 0; step < STEPS; ++step) {
        w->ok = shard_gradients(shared_net, w->thread, step, shared_gradients[w->thread]) && w->ok;
        pthread_barrier_wait(&barrier);
        if (w->thread == 0) network_update(shared_net, shared_gradients);
        pthread_barrier_wait(&barrier);
    }
    w->ok = w->ok && tg_ok() && tg_thread_end() == TG_OK;
    return NULL;
}

static bool run_threads(void *(*work)(void *), worker_state *w, int n)
{
    pthread_t thread[THREADS];
    bool ok = true;
    int i;
    for (i = 0; i < n; ++i) {
        w[i].thread = i, w[i].ok = false;
        ok = pthread_create(&thread[i], NULL, work, &w[i]) == 0 && ok;
    }
    for (i = 0; i < n; ++i) pthread_join(thread[i], NULL);
    for (i = 0; i < n; ++i) ok = ok && w[i].ok;
    return ok;
}

TEST(four_threads_train)
{
    ROW(2.94) {
        static float gradients[THREADS][PARAMETERS];
        worker_state w[THREADS];
        network serial, together;
        int step, i;
        network_make(&serial);
        network_make(&together);
        for (step = 0; step < STEPS; ++step) {
            for (i = 0; i < THREADS; ++i) CHECK(shard_gradients(&serial, i, step, gradients[i]));
            network_update(&serial, gradients);
        }
        for (i = 0; i < WEIGHTS; ++i) CHECK(tg_share(together.weight[i]) == together.weight[i]);
        CHECK(tg_share(together.x) == together.x && tg_share(together.targets) == together.targets);
        CHECK(tg_share(together.x) == together.x); /* twice is once */
        shared_net = &together;
        pthread_barrier_init(&barrier, NULL, THREADS);
        CHECK(run_threads(train_worker, w, THREADS));
        pthread_barrier_destroy(&barrier);
        for (i = 0; i < WEIGHTS; ++i) {
            CHECK(tg_equal(serial.weight[i], together.weight[i]) && tg_grad(together.weight[i]) == NULL);
            CHECK(tg_item(tg_sum(tg_isfinite(together.weight[i]))) == (double)sizes[i]);
        }
        network_release(&serial);
        network_release(&together);
        tg_release(together.x), tg_release(together.targets); /* tg_share has removed them from their scope */
    }
}

/* ---- each thread alone: the same program gives the same numbers ---- */

static double alone(void)
{
    TG_SCOPE;
    tg_tensor *w, *loss = NULL;
    tg_optim *opt;
    double last;
    int step;
    tg_seed(9);
    w = tg_param(tg_randn(TG_SHAPE(8, 8)));
    opt = tg_adam(&w, 1, 0.01);
    for (step = 0; step < 30; ++step) {
        TG_SCOPE;
        loss = tg_mean(tg_square(tg_tanh(tg_matmul(tg_randn(TG_SHAPE(4, 8)), w))));
        tg_optim_zero_grad(opt);
        tg_backward(loss);
        tg_step(opt);
    }
    last = tg_item(tg_sum(w));
    tg_optim_free(opt);
    tg_release(w);
    return last;
}

static double alone_result[THREADS];
static void *alone_worker(void *argument)
{
    worker_state *w = (worker_state *)argument;
    tg_set_grad_enabled(true);
    alone_result[w->thread] = alone();
    if (w->thread % 2) tg_set_grad_enabled(false); /* each thread has modes and errors of its own */
    (void)tg_add(tg_ones(TG_SHAPE(2)), tg_ones(TG_SHAPE(3)));
    w->ok = !tg_ok() && tg_error_count() == 1 && tg_is_grad_enabled() == (w->thread % 2 == 0);
    w->end = tg_stats();
    w->ok = tg_thread_end() == TG_OK && w->ok;
    return NULL;
}

TEST(threads_alone)
{
    worker_state w[THREADS];
    double here = alone();
    int i;
    CHECK(run_threads(alone_worker, w, THREADS));
    for (i = 0; i < THREADS; ++i) CHECK_NEAR(alone_result[i], here, 0);
    CHECK(tg_ok() && tg_is_grad_enabled());
}

/* ---- what belongs to another thread ---- */

static tg_tensor *theirs, *theirs_grad;
static int64_t wrong_uses, uses;

static void refused(bool failed)
{
    bool told =
        !tg_ok() && strstr(tg_error_message(), "belongs to another thread") && strstr(tg_error_message(), "tg_share");
    uses++;
    if (!failed || !told) {
        wrong_uses++;
        printf("use %d was not refused: %s\n", (int)uses, tg_error_message());
    }
    tg_clear_error();
}

static tg_tensor *first_of(tg_tensor *const *in, int n, void *user)
{
    (void)n, (void)user;
    return tg_exp(in[0]);
}
static tg_status exp_forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    (void)ctx;
    return (out[0] = tg_exp(in[0])) ? TG_OK : tg_error_code();
}
static tg_status no_backward(tg_ctx *ctx, tg_tensor *const *g, tg_tensor **grad_in)
{
    (void)ctx, (void)g, (void)grad_in;
    return TG_OK;
}
static tg_tensor *no_hook(tg_tensor *g, void *user)
{
    (void)g, (void)user;
    return NULL;
}

static void *intruder(void *argument)
{
    worker_state *w = (worker_state *)argument;
    tg_mark mark = tg_scope_begin();
    tg_tensor *mine = tg_set_requires_grad(tg_ones(TG_SHAPE(2)), true), *y = tg_sum(tg_mul(mine, mine)), *g = NULL,
              *list[2];
    list[0] = mine, list[1] = theirs;
    refused(tg_exp(theirs) == NULL);
    refused(tg_mul(mine, theirs) == NULL);
    refused(tg_cat(list, 2, 0) == NULL);
    refused(tg_add_scalar_(theirs, 1) == NULL);
    refused(tg_copy_(theirs, tg_ones(TG_SHAPE(2))) == NULL);
    refused(tg_t(theirs) == NULL);
    refused(tg_detach(theirs) == NULL);
    refused(tg_to_dtype(theirs, TG_F64) == NULL);
    refused(tg_zeros_like(theirs) == NULL);
    refused(tg_set_requires_grad(theirs, false) == NULL);
    refused(tg_param(theirs) == NULL);
    refused(tg_share(theirs) == NULL);
    refused(tg_backward(theirs) != TG_OK);
    refused(tg_backward_ex(&mine, 1, &theirs, 0) != TG_OK);
    refused(tg_gradients(&y, 1, NULL, &theirs, 1, &g, 0) != TG_OK);
    refused(tg_set_grad(theirs, mine) != TG_OK);
    refused(tg_set_grad(mine, theirs_grad) != TG_OK);
    refused(tg_hook(theirs, no_hook, NULL) == 0);
    refused(tg_retain(theirs) == NULL);
    refused((tg_release(theirs), true));
    refused((tg_drop(theirs), true));
    refused(tg_checkpoint(first_of, &theirs, 1, NULL) == NULL);
    refused(tg_custom("exp", exp_forward, no_backward, NULL, &theirs, 1, &g, 1) != TG_OK);
    tg_shutdown(); /* the other thread still has state */
    w->ok = !tg_ok() && strstr(tg_error_message(), "other threads hold state") != NULL;
    tg_clear_error();
    tg_set_allocator(NULL);
    w->ok = w->ok && !tg_ok();
    tg_clear_error();
    w->ok = w->ok && tg_backward(y) == TG_OK;
    tg_scope_end(mark);
    w->ok = tg_thread_end() == TG_OK && w->ok;
    return NULL;
}

TEST(unshared_tensors_stay_with_their_thread)
{
    worker_state w[1];
    theirs = tg_set_requires_grad(tg_ones(TG_SHAPE(2)), true);
    theirs_grad = tg_ones(TG_SHAPE(2));
    wrong_uses = uses = 0;
    CHECK(run_threads(intruder, w, 1));
    CHECK(uses == 23 && wrong_uses == 0);
    CHECK(tg_grad(theirs) == NULL && tg_requires_grad(theirs) && tg_version_of(theirs) == 0);
}

TEST(what_can_be_shared)
{
    tg_tensor *x = tg_set_requires_grad(tg_ones(TG_SHAPE(2, 2)), true), *y = tg_exp(x), *c = tg_ones(TG_SHAPE(2, 2));
    tg_stats_info before = tg_stats();
    CHECK_FAILS(tg_share(y), "only leaves and constants can be shared");
    CHECK_FAILS(tg_share(tg_t(c)), "only leaves and constants can be shared");
    CHECK_FAILS(tg_share(NULL), "NULL");
    {
        TG_SCOPE;
        c = tg_share(tg_ones(TG_SHAPE(2, 2))); /* removed from its scope, so that another thread may release it last */
    }
    CHECK_NEAR(tg_get(c, TG_INDEX(1, 1)), 1, 0);
    tg_release(c);
    CHECK(tg_stats().tensors == before.tensors + 1); /* the view that was not shared */
}

/* ---- a shared tensor that another thread releases last, while this one's graph still holds it ---- */

static tg_tensor *passed_on;
static void *releaser(void *argument)
{
    worker_state *w = (worker_state *)argument;
    {
        TG_SCOPE;
        tg_tensor *y = tg_sum(tg_mul(passed_on, passed_on)), *g = NULL;
        w->ok = tg_gradients(&y, 1, NULL, &passed_on, 1, &g, 0) == TG_OK && tg_item(tg_sum(g)) == 8;
    }
    tg_release(passed_on);
    w->ok = w->ok && tg_ok() && tg_thread_end() == TG_OK;
    return NULL;
}

TEST(released_last_by_another_thread)
{
    worker_state w[1];
    tg_stats_info before = tg_stats();
    passed_on = tg_share(tg_param(tg_ones(TG_SHAPE(4))));
    CHECK(run_threads(releaser, w, 1));
    CHECK(tg_stats().tensors == before.tensors && tg_stats().bytes == before.bytes); /* totals of the process */
}

/* A thread that only frees what another one makes keeps no more of it than 64 MiB. */
enum { MADE = 20, MADE_BYTES = 16 << 20 };
static tg_tensor *made[MADE];
static void *frees_what_others_make(void *argument)
{
    worker_state *w = (worker_state *)argument;
    for (int i = 0; i < MADE; ++i) tg_release(made[i]);
    w->end = tg_stats();
    w->ok = tg_ok() && tg_thread_end() == TG_OK;
    return NULL;
}

TEST(a_thread_keeps_little_of_what_others_made)
{
    worker_state w[1];
    for (int i = 0; i < MADE; ++i) made[i] = tg_share(tg_param(tg_empty_on(TG_SHAPE(MADE_BYTES / 4), TG_F32, TG_CPU)));
    CHECK(run_threads(frees_what_others_make, w, 1));
    CHECK(w[0].end.cached_bytes >= MADE_BYTES && w[0].end.cached_bytes <= 64 << 20);
}

/* Many threads take and drop views, graphs and retains of one tensor. */
static void *crowd(void *argument)
{
    worker_state *w = (worker_state *)argument;
    int i;
    w->ok = true;
    for (i = 0; i < 2000; ++i) {
        TG_SCOPE;
        tg_tensor *v = tg_t(passed_on), *y = tg_sum(tg_mul(tg_matmul(v, passed_on), tg_detach(passed_on))), *g = NULL;
        tg_retain(passed_on);
        w->ok = w->ok && tg_gradients(&y, 1, NULL, &passed_on, 1, &g, i % 3 ? 0 : TG_CREATE_GRAPH) == TG_OK;
        tg_release(passed_on);
    }
    w->ok = w->ok && tg_ok() && tg_thread_end() == TG_OK;
    return NULL;
}

TEST(counts_of_a_shared_tensor)
{
    worker_state w[THREADS];
    tg_stats_info before = tg_stats();
    passed_on = tg_share(tg_param(tg_ones(TG_SHAPE(3, 3))));
    CHECK(run_threads(crowd, w, THREADS));
    tg_release(passed_on);
    CHECK(tg_stats().tensors == before.tensors && tg_stats().bytes == before.bytes && tg_stats().nodes == before.nodes);
    CHECK(tg_ok());
}

/* ---- backward on a shared leaf that has a .grad of another thread: they add up; the callers take turns ---- */

static void *adds_a_gradient(void *argument)
{
    worker_state *w = (worker_state *)argument;
    {
        TG_SCOPE;
        w->ok = tg_backward(tg_sum(tg_mul(passed_on, passed_on))) == TG_OK && tg_ok();
        w->ok = w->ok && tg_item(tg_mean(tg_grad(passed_on))) > 0;
    }
    w->ok = w->ok && tg_thread_end() == TG_OK;
    return NULL;
}

TEST(gradients_of_several_threads_add_up)
{
    worker_state w[1];
    int turn;
    passed_on = tg_share(tg_param(tg_full(TG_SHAPE(4), 2)));
    CHECK(tg_backward(tg_sum(passed_on)) == TG_OK && tg_get(tg_grad(passed_on), TG_INDEX(0)) == 1);
    for (turn = 0; turn < 3; ++turn) CHECK(run_threads(adds_a_gradient, w, 1));
    CHECK(tg_get(tg_grad(passed_on), TG_INDEX(3)) == 13);
    CHECK(tg_set_grad(passed_on, tg_zeros(TG_SHAPE(4))) == TG_OK); /* given by this thread */
    CHECK(run_threads(adds_a_gradient, w, 1) && tg_get(tg_grad(passed_on), TG_INDEX(3)) == 4);
    tg_release(passed_on);
    passed_on = tg_param(tg_full(TG_SHAPE(4), 2)); /* a .grad from before it was shared */
    CHECK(tg_backward(tg_sum(passed_on)) == TG_OK && tg_share(passed_on) == passed_on);
    CHECK(run_threads(adds_a_gradient, w, 1) && tg_get(tg_grad(passed_on), TG_INDEX(3)) == 5);
    tg_release(passed_on);
}

/* A gradient that cannot be shared is an error, and not lost silently. */
static void *meets_an_unshared_gradient(void *argument)
{
    worker_state *w = (worker_state *)argument;
    {
        TG_SCOPE;
        w->ok = tg_backward(tg_sum(passed_on)) == TG_ERR_ARGUMENT;
        w->ok = w->ok && strstr(tg_error_message(), "argument grad belongs to another thread");
        tg_clear_error();
    }
    w->ok = w->ok && tg_thread_end() == TG_OK;
    return NULL;
}

TEST(a_gradient_that_cannot_be_shared)
{
    worker_state w[1];
    tg_tensor *base = tg_ones(TG_SHAPE(8));
    passed_on = tg_share(tg_param(tg_ones(TG_SHAPE(4))));
    CHECK(tg_set_grad(passed_on, tg_narrow(base, 0, 0, 4)) == TG_OK);
    CHECK(run_threads(meets_an_unshared_gradient, w, 1));
    CHECK(tg_get(tg_grad(passed_on), TG_INDEX(0)) == 1);
    tg_release(passed_on);
}

/* A .grad that belongs to a scope of this thread: another thread cannot take it out of that scope, though a scope of its
 * own may have the same serial. */
static uint64_t scope_of_gradient;

static void *keeps_drops_and_releases_a_gradient(void *argument)
{
    worker_state *w = (worker_state *)argument;
    tg_tensor *g = tg_grad(passed_on);
    tg_mark mark = tg_scope_begin();
    for (; mark.serial < scope_of_gradient; mark = tg_scope_begin()) tg_scope_end(mark);
    w->ok = mark.serial == scope_of_gradient && tg_keep(g) == g;
    tg_drop(g);
    w->ok = w->ok && tg_ok();
    tg_release(g);
    w->ok = w->ok && strstr(tg_error_message(), "released more often than retained");
    tg_clear_error();
    tg_scope_end(mark);
    w->ok = w->ok && tg_thread_end() == TG_OK;
    return NULL;
}

TEST(a_gradient_in_a_scope_of_its_thread)
{
    worker_state w[1];
    tg_mark mark = tg_scope_begin();
    tg_tensor *g = tg_ones(TG_SHAPE(4));
    scope_of_gradient = mark.serial;
    passed_on = tg_share(tg_param(tg_ones(TG_SHAPE(4))));
    CHECK(tg_set_grad(passed_on, g) == TG_OK);
    CHECK(run_threads(keeps_drops_and_releases_a_gradient, w, 1));
    CHECK(tg_set_grad(passed_on, NULL) == TG_OK && tg_get(g, TG_INDEX(0)) == 1);
    tg_scope_end(mark);
    g = tg_ones(TG_SHAPE(4)); /* the same in no scope */
    scope_of_gradient = 1;
    CHECK(tg_set_grad(passed_on, g) == TG_OK);
    CHECK(run_threads(keeps_drops_and_releases_a_gradient, w, 1));
    CHECK(tg_set_grad(passed_on, NULL) == TG_OK && tg_get(g, TG_INDEX(0)) == 1);
    tg_release(passed_on);
}

/* ---- error handlers that change while threads raise errors: handler and user are one pair ---- */

static int pair[2] = {1, 2};
static bool mixed_pair;
static void first_handler(tg_status code, const char *text, void *user)
{
    (void)code, (void)text;
    if (user != (void *)&pair[0]) mixed_pair = true;
}
static void second_handler(tg_status code, const char *text, void *user)
{
    (void)code, (void)text;
    if (user != (void *)&pair[1]) mixed_pair = true;
}
static void *raises_and_sets(void *argument)
{
    worker_state *w = (worker_state *)argument;
    int i;
    for (i = 0; i < 2000; ++i) {
        TG_SCOPE;
        tg_set_error_handler(i % 2 ? first_handler : second_handler, &pair[i % 2 ? 0 : 1]);
        (void)tg_zeros(TG_SHAPE(-1));
        tg_clear_error();
    }
    w->ok = tg_thread_end() == TG_OK;
    return NULL;
}

TEST(handlers_change_beside_errors)
{
    worker_state w[THREADS];
    CHECK(run_threads(raises_and_sets, w, THREADS));
    CHECK(!mixed_pair);
    tg_set_error_handler(NULL, NULL);
}

/* A module is used by the thread that made it: in others each call is an error, and none of them a race. */
static tg_module *shared_module;
static void *use_module(void *user)
{
    bool *told = (bool *)user;
    tg_set_error_handler(NULL, NULL);
    for (int i = 0; i < 100; ++i) {
        TG_SCOPE;
        tg_clear_error();
        const bool refused = !tg_forward(shared_module, tg_ones(TG_SHAPE(2, 4))) && !tg_module_train(shared_module, false) &&
                             !tg_module_retain(shared_module) &&
                             tg_module_count(shared_module) == 0 && !tg_module_get(shared_module, "weight");
        *told = refused && strstr(tg_error_message(), "argument m, 'Linear', belongs to another thread");
    }
    tg_clear_error();
    tg_thread_end();
    return NULL;
}

TEST(a_module_of_another_thread)
{
    pthread_t thread[3];
    bool told[3] = {false, false, false};
    shared_module = tg_nn_linear(4, 3, true);
    for (int i = 0; i < tg_module_count(shared_module); ++i) tg_share(tg_module_params(shared_module)[i]);
    for (int i = 0; i < 3; ++i) CHECK(pthread_create(&thread[i], NULL, use_module, &told[i]) == 0);
    for (int i = 0; i < 100; ++i) {
        TG_SCOPE;
        CHECK(tg_forward(shared_module, tg_ones(TG_SHAPE(2, 4))) != NULL);
    }
    for (int i = 0; i < 3; ++i) pthread_join(thread[i], NULL);
    CHECK(told[0] && told[1] && told[2]);
    tg_module_free(shared_module);
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    RUN(four_threads_train);
    RUN(threads_alone);
    RUN(unshared_tensors_stay_with_their_thread);
    RUN(what_can_be_shared);
    RUN(released_last_by_another_thread);
    RUN(counts_of_a_shared_tensor);
    RUN(a_thread_keeps_little_of_what_others_made);
    RUN(gradients_of_several_threads_add_up);
    RUN(a_gradient_that_cannot_be_shared);
    RUN(a_gradient_in_a_scope_of_its_thread);
    RUN(handlers_change_beside_errors);
    RUN(a_module_of_another_thread);
    check_rows("test_threads");
    CHECK(tg_shutdown() == TG_OK);
    return harness_end();
}
