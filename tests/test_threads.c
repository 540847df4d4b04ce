/* Four threads train shared weights, each with a tape of its own, with the same bits as one thread, and run one module; a
 * tensor or a module that is not shared can only be used by its thread.  Build with -pthread; must be clean under -fsanitize=thread. */
#if !defined(__cplusplus) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#include "tensorgrad.h"
#include "semantics.h"
#include "helpers.h"
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
        *told = refused && strstr(tg_error_message(), "argument m, 'Linear', belongs to another thread\n") &&
                strstr(tg_error_message(), "make a module in each thread; tg_module_share lets all run one");
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

/* ---- modules that are shared ---- */

enum { FORWARDS = 200, TOKENS = 5, BATCH = 2, SIDE = 6, WORDS = 11, WIDTH = 8, ANSWERS = 3 };

/* A network with two inputs, ids [BATCH, TOKENS] and pictures [BATCH, 1, SIDE, SIDE] -> [BATCH, ANSWERS]. */
typedef struct { tg_module *embed, *attention, *picture, *head; } reader;

static void reader_forward(tg_module *m, tg_tensor *const *in, int n, tg_tensor **out, int n_out)
{
    const reader *r = (const reader *)tg_module_self(m);
    tg_tensor *words = tg_forward(r->embed, in[0]), *qkv[3], *read;
    (void)n, (void)n_out;
    qkv[0] = qkv[1] = qkv[2] = words;
    if (tg_forward_n(r->attention, qkv, 3, &read, 1) != TG_OK) return;
    out[0] = tg_forward(r->head, tg_add(tg_mean_dim(read, 1, false), tg_forward(r->picture, in[1])));
}

/* A hook that writes nothing but what it makes. */
static void doubles_outputs(tg_module *m, tg_tensor **in, int n, tg_tensor **out, int n_out, void *user)
{
    (void)m, (void)in, (void)n, (void)n_out, (void)user;
    out[0] = tg_mul_scalar(out[0], 2);
}

/* In evaluation mode, after batches that moved the statistics of its batch norm. */
static tg_module *reader_new(void)
{
    const tg_shape one = TG_SHAPE(1), three = TG_SHAPE(3);
    tg_module *m, *picture[5], *head[3];
    reader *r;
    tg_seed(7);
    m = tg_module_new("Reader", reader_forward, sizeof(reader));
    r = (reader *)tg_module_self(m);
    picture[0] = tg_nn_conv2d(1, 4, three, one, one, one, 1, true);
    picture[1] = tg_nn_batch_norm(4, 1e-5, 0.1);
    picture[2] = tg_nn_relu();
    picture[3] = tg_nn_flatten(1, -1);
    picture[4] = tg_nn_linear(4 * SIDE * SIDE, WIDTH, true);
    head[0] = tg_nn_layer_norm(TG_SHAPE(WIDTH), 1e-5, true);
    head[1] = tg_nn_dropout(0.5);
    head[2] = tg_nn_linear(WIDTH, ANSWERS, true);
    r->embed = tg_module_child(m, "embed", tg_nn_embedding(WORDS, WIDTH));
    r->attention = tg_module_child(m, "attention", tg_nn_multihead_attention(WIDTH, 2, true));
    r->picture = tg_module_child(m, "picture", tg_nn_sequential(picture, 5));
    r->head = tg_module_child(m, "head", tg_nn_sequential(head, 3));
    {
        TG_SCOPE;
        tg_forward(r->picture, tg_randn(TG_SHAPE(4, 1, SIDE, SIDE)));
        tg_forward(r->picture, tg_add_scalar(tg_randn(TG_SHAPE(4, 1, SIDE, SIDE)), 1));
    }
    CHECK(tg_module_hook(r->head, doubles_outputs, NULL) > 0);
    return tg_module_train(m, false);
}

typedef struct {
    float plain[BATCH * ANSWERS], mixed[BATCH * ANSWERS], gradient[ANSWERS];
} reader_answers;

/* What m answers to the inputs of this thread: without a tape, in bf16, and the gradient of a bias on a tape. */
static bool reader_asked(tg_module *m, int thread, reader_answers *a)
{
    TG_SCOPE;
    tg_tensor *in[2], *y, *bias, *g;
    bool ok;
    tg_seed((uint64_t)(100 + thread));
    in[0] = tg_randint(0, WORDS, TG_SHAPE(BATCH, TOKENS));
    in[1] = tg_randn(TG_SHAPE(BATCH, 1, SIDE, SIDE));
    {
        TG_NO_GRAD;
        ok = tg_forward_n(m, in, 2, &y, 1) == TG_OK && tg_copy_out(y, a->plain, sizeof a->plain) == TG_OK;
    }
    {
        TG_AUTOCAST(TG_BF16);
        ok = ok && tg_forward_n(m, in, 2, &y, 1) == TG_OK;
    }
    ok = ok && tg_copy_out(tg_to_dtype(tg_detach(y), TG_F32), a->mixed, sizeof a->mixed) == TG_OK;
    ok = ok && tg_forward_n(m, in, 2, &y, 1) == TG_OK && (y = tg_sum(tg_mul(y, y))) != NULL;
    bias = tg_module_get(m, "head.2.bias");
    ok = ok && tg_gradients(&y, 1, NULL, &bias, 1, &g, 0) == TG_OK;
    return ok && tg_copy_out(g, a->gradient, sizeof a->gradient) == TG_OK;
}

/* Questions that count nothing: no atomic access puts those of several threads in an order, which would hide a race. */
static bool reader_questions(tg_module *m)
{
    const int last = tg_module_count(m) - 1;
    tg_device device;
    bool ok = tg_module_numel(m) > 1000 && tg_module_device(m, &device) == TG_OK && device.type == TG_CPU.type;
    ok = ok && strcmp(tg_module_path(m, last), "head.2.bias") == 0;
    ok = ok && tg_module_params(m)[last] == tg_module_get(m, "head.2.bias");
    ok = ok && strcmp(tg_module_path(tg_module_get_child(m, "head"), 0), "0.weight") == 0;
    return ok && !tg_module_is_training(m) && tg_module_train(m, false) == m && tg_module_share(m) == m && tg_ok();
}

/* A dict, and a forward that fails, whose message has the path of the module. */
static bool reader_state_and_error(tg_module *m)
{
    TG_SCOPE;
    tg_tensor *in[2], *y;
    tg_dict *state = tg_module_state(m);
    bool ok = state && tg_dict_get(state, "picture.1.running_var");
    tg_dict_free(state);
    in[0] = tg_zeros_on(TG_SHAPE(BATCH, TOKENS), TG_I64, TG_CPU);
    in[1] = tg_ones(TG_SHAPE(BATCH, 1, SIDE + 1, SIDE));
    ok = ok && tg_forward_n(m, in, 2, &y, 1) != TG_OK && strstr(tg_error_message(), "in Reader.picture.4");
    tg_clear_error();
    return ok;
}

static tg_module *shared_reader;
static reader_answers wanted[THREADS];

static void *reads(void *argument)
{
    worker_state *w = (worker_state *)argument;
    int i;
    w->ok = true;
    pthread_barrier_wait(&barrier);
    for (i = 0; i < 20; ++i) w->ok = reader_questions(shared_reader) && w->ok;
    for (i = 0; i < FORWARDS && w->ok; ++i) {
        reader_answers got;
        w->ok = reader_asked(shared_reader, w->thread, &got);
        w->ok = w->ok && memcmp(&got, &wanted[w->thread], sizeof got) == 0;
        if (i % 20 == 0) w->ok = w->ok && reader_state_and_error(shared_reader);
    }
    w->ok = w->ok && tg_ok() && tg_thread_end() == TG_OK;
    return NULL;
}

TEST(four_threads_run_one_module)
{
    worker_state w[THREADS];
    int i;
    shared_reader = reader_new();
    for (i = 0; i < THREADS; ++i) CHECK(reader_asked(shared_reader, i, &wanted[i]));
    CHECK(memcmp(&wanted[0], &wanted[1], sizeof wanted[0]) != 0 && wanted[0].gradient[0] != 0);
    CHECK(tg_module_share(shared_reader) == shared_reader && tg_module_share(shared_reader) == shared_reader);
    pthread_barrier_init(&barrier, NULL, THREADS);
    CHECK(run_threads(reads, w, THREADS));
    pthread_barrier_destroy(&barrier);
    CHECK(reader_asked(shared_reader, 0, &wanted[1]) && memcmp(&wanted[0], &wanted[1], sizeof wanted[0]) == 0);
    CHECK(reader_questions(shared_reader) && reader_state_and_error(shared_reader));
    tg_module_free(shared_reader);
    CHECK(tg_stats().modules == 0);
}

#define IS_SHARED "is shared by tg_module_share, and other threads may be using it"

/* Everything that would change a shared module; what holds in every thread. */
static void refuses_changes(tg_module *m)
{
    tg_module *other = tg_nn_linear(4, 3, true), *list[3];
    tg_dict *state = tg_module_state(other);
    tg_tensor *t = tg_ones(TG_SHAPE(2));
    CHECK_FAILS(tg_module_train(m, true), "argument m, 'Linear', " IS_SHARED);
    CHECK_FAILS(tg_module_to(m, TG_CPU), IS_SHARED);
    CHECK_FAILS(tg_module_to_dtype(m, TG_F64), IS_SHARED);
    CHECK_FAILS(tg_module_zero_grad(m), IS_SHARED);
    CHECK_FAILS(tg_module_requires_grad_(m, false), IS_SHARED);
    CHECK_FAILS(tg_module_set_extra(m, "any"), IS_SHARED);
    CHECK_FAILS(tg_module_param(m, "p", t), IS_SHARED);
    CHECK_FAILS(tg_module_buffer(m, "b", t), IS_SHARED);
    CHECK_FAILS(tg_module_child(m, "c", tg_nn_relu()), IS_SHARED);
    CHECK_FAILS(tg_module_child(other, "c", m), "argument child, 'Linear', " IS_SHARED);
    CHECK_FAILS(tg_module_hook(m, doubles_outputs, NULL), IS_SHARED);
    CHECK_FAILS(tg_module_pre_hook(m, doubles_outputs, NULL), IS_SHARED);
    CHECK_FAILS(tg_module_unhook(m, 1), IS_SHARED);
    CHECK_FAILS(tg_module_load_state(m, state, true), IS_SHARED);
    CHECK_FAILS(tg_module_load_state_ex(m, state, true, NULL, NULL), IS_SHARED);
    CHECK_FAILS(tg_module_copy_(m, other), "argument dst, 'Linear', " IS_SHARED);
    list[0] = tg_nn_relu(), list[1] = m, list[2] = tg_nn_relu();
    CHECK_FAILS(tg_nn_sequential(list, 3), "argument child, 'Linear', " IS_SHARED); /* frees the two others */
    list[0] = NULL;
    CHECK_FAILS(tg_nn_list(list, 2), "argument modules[0] is NULL");
    CHECK(tg_module_copy_(other, m) == TG_OK && tg_module_count(m) == 2);
    tg_dict_free(state);
    tg_module_free(other);
}

static void *changes_a_shared_module(void *argument)
{
    worker_state *w = (worker_state *)argument;
    tg_set_error_handler(NULL, NULL);
    {
        TG_SCOPE;
        refuses_changes(shared_module);
        CHECK_FAILS(tg_module_retain(shared_module), "argument m, 'Linear', is shared by another thread, which alone");
        CHECK_FAILS(tg_module_free(shared_module), "let it call tg_module_free");
        CHECK(tg_forward(shared_module, tg_ones(TG_SHAPE(2, 4))) != NULL);
    }
    w->ok = tg_thread_end() == TG_OK;
    return NULL;
}

TEST(a_shared_module_stays_as_it_is)
{
    TG_SCOPE;
    worker_state w[1];
    FILE *file = tmpfile(), *file_of_weights;
    const char *path = beside("shared.safetensors");
    char bytes[4000];
    size_t size = 0;
    shared_module = tg_module_train(tg_nn_linear(4, 3, true), false);
    CHECK(file && tg_module_share(shared_module) == shared_module);
    CHECK(tg_module_retain(shared_module) == shared_module); /* its owner may */
    tg_module_free(shared_module);
    refuses_changes(shared_module);
    CHECK(run_threads(changes_a_shared_module, w, 1));
    CHECK(tg_module_child_count(shared_module) == 0 && tg_module_count(shared_module) == 2);
    CHECK(file && tg_module_print(file, shared_module) == TG_OK);
    CHECK(tg_module_save(shared_module, path) == TG_OK);
    CHECK_FAILS(tg_module_load(shared_module, path), IS_SHARED);
    CHECK(tg_checkpoint_save(path, shared_module, NULL, 3) == TG_OK);
    CHECK_FAILS(tg_checkpoint_load(path, shared_module, NULL, NULL), IS_SHARED);
    CHECK(tg_module_save(shared_module, path) == TG_OK);
    file_of_weights = fopen(path, "rb");
    if (file_of_weights) size = fread(bytes, 1, sizeof bytes, file_of_weights), fclose(file_of_weights);
    CHECK_FAILS(tg_module_load_from(shared_module, bytes, size), IS_SHARED);
    remove(path);
    if (file) fclose(file);
    tg_module_free(shared_module);
}

/* ---- a shared module is freed by its owner, when no forward of it runs ---- */

static void waits_twice(tg_module *m, tg_tensor *const *in, int n, tg_tensor **out, int n_out)
{
    (void)m, (void)n, (void)n_out;
    pthread_barrier_wait(&barrier);
    out[0] = tg_mul(in[0], in[0]);
    pthread_barrier_wait(&barrier);
}

static void *runs_the_child(void *argument)
{
    worker_state *w = (worker_state *)argument;
    {
        TG_SCOPE;
        w->ok = tg_forward(tg_module_get_child(shared_module, "waits"), tg_ones(TG_SHAPE(2))) && tg_ok();
    }
    w->ok = w->ok && tg_thread_end() == TG_OK;
    return NULL;
}

static void frees_and_shares_itself(tg_module *m, tg_tensor *const *in, int n, tg_tensor **out, int n_out)
{
    (void)n, (void)n_out;
    if (tg_module_share(m)) tg_module_free(m);
    out[0] = in[0];
}

TEST(a_shared_module_is_freed_last)
{
    TG_SCOPE;
    pthread_t thread;
    worker_state w;
    tg_module *itself = tg_module_train(tg_module_new("Itself", frees_and_shares_itself, 0), false);
    memset(&w, 0, sizeof w);
    shared_module = tg_module_new("Holder", NULL, 0);
    tg_module_child(shared_module, "waits", tg_module_new("Waits", waits_twice, 0));
    CHECK(tg_module_share(tg_module_train(shared_module, false)) == shared_module);
    pthread_barrier_init(&barrier, NULL, 2);
    CHECK(pthread_create(&thread, NULL, runs_the_child, &w) == 0);
    pthread_barrier_wait(&barrier);
    CHECK_FAILS(tg_module_free(shared_module), "a forward of this 'Holder' runs in another thread, or around this call");
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&barrier);
    CHECK(w.ok);
    CHECK_FAILS(tg_module_free(tg_module_child_at(shared_module, 0)), "belongs to a module that it is a child of");
    tg_module_free(shared_module);
    CHECK_FAILS(tg_forward(itself, tg_ones(TG_SHAPE(2))), "a forward of 'Itself' is running");
    tg_clear_error();
    CHECK(tg_module_share(itself) == itself);
    CHECK_FAILS(tg_forward(itself, tg_ones(TG_SHAPE(2))), "a forward of this 'Itself' runs");
    tg_module_free(itself);
    CHECK(tg_stats().modules == 0);
}

/* ---- what can be shared ---- */

static void *shares_what_is_not_its_own(void *argument)
{
    worker_state *w = (worker_state *)argument;
    tg_set_error_handler(NULL, NULL);
    w->ok = !tg_module_share(shared_module) && strstr(tg_error_message(), "argument m, 'Any', belongs to another thread") &&
            strstr(tg_error_message(), "tg_module_share lets all run one");
    tg_clear_error();
    w->ok = tg_thread_end() == TG_OK && w->ok;
    return NULL;
}

TEST(what_modules_can_be_shared)
{
    TG_SCOPE;
    worker_state w[1];
    tg_module *m = tg_module_new("Any", NULL, 0), *child, *outside = tg_module_new("Outside", NULL, 0), *none;
    int i;
    shared_module = m;
    CHECK_FAILS(tg_module_share(NULL), "argument m is NULL");
    CHECK(run_threads(shares_what_is_not_its_own, w, 1));
    child = tg_module_child(m, "a", tg_module_retain(tg_nn_batch_norm(3, 1e-5, 0.1)));
    CHECK(tg_module_child(m, "again", child) == child); /* twice in one tree */
    CHECK_FAILS(tg_module_share(m), "'Any' is in training mode, in which a forward may write buffers");
    tg_module_train(m, false), tg_module_train(child, true);
    CHECK_FAILS(tg_module_share(m), "child 'a' of 'Any' is in training mode");
    tg_module_train(m, false);
    CHECK_FAILS(tg_module_share(child), "'BatchNorm', or a child of it, is also the child of a module outside");
    CHECK(tg_module_child(outside, "b", tg_module_retain(child)) == child);
    CHECK_FAILS(tg_module_share(m), "'Any', or a child of it, is also the child of a module outside");
    tg_module_free(outside);
    none = tg_module_child(m, "none", tg_module_train(tg_nn_relu(), false)); /* it has no parameters */
    CHECK(tg_module_buffer(none, "view", tg_narrow(tg_ones(TG_SHAPE(4)), 0, 0, 2)) != NULL);
    CHECK_FAILS(tg_module_share(m), "'none.view' of 'Any' is a view");
    tg_module_free(m);
    m = tg_module_train(tg_nn_relu(), false); /* nor has this one */
    CHECK(tg_module_share(m) == m && tg_module_count(m) == 0 && !tg_module_params(m));
    CHECK_FAILS(tg_module_path(m, 0), "there is no parameter 0");
    CHECK(tg_equal(tg_forward(m, tg_ones(TG_SHAPE(2))), tg_ones(TG_SHAPE(2))));
    tg_module_free(m);
    m = tg_module_train(tg_module_new("Deep", NULL, 0), false); /* too deep: an error, and none is shared */
    for (child = m, i = 0; i < 32; ++i)
        child = tg_module_child(child, "0", tg_module_train(tg_module_new("Deep", NULL, 0), false));
    CHECK_FAILS(tg_module_share(m), "nested deeper than 32");
    CHECK(tg_module_set_extra(m, "it can still change") == TG_OK);
    tg_module_free(m);
}

/* A child of a shared module is shared, and outlives it if its owner has retained it. */
TEST(a_child_of_a_shared_module)
{
    TG_SCOPE;
    worker_state w[1];
    tg_module *m = tg_module_new("Any", NULL, 0), *child = tg_module_child(m, "a", tg_nn_linear(4, 3, true));
    tg_tensor *weight = tg_module_get(m, "a.weight");
    CHECK(tg_backward(tg_sum(tg_forward(child, tg_ones(TG_SHAPE(2, 4))))) == TG_OK); /* with a .grad */
    CHECK(tg_module_share(tg_module_train(m, false)) == m && tg_module_share(child) == child);
    CHECK_FAILS(tg_module_hook(child, doubles_outputs, NULL), "argument m, 'Linear', " IS_SHARED);
    CHECK(tg_module_retain(child) == child);
    tg_module_free(m);
    CHECK(tg_module_params(child)[0] == weight && tg_get(tg_grad(weight), TG_INDEX(0, 0)) == 2);
    shared_module = child;
    CHECK(run_threads(changes_a_shared_module, w, 1));
    tg_module_free(child);
    CHECK(tg_stats().modules == 0);
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
    RUN(four_threads_run_one_module);
    RUN(a_shared_module_stays_as_it_is);
    RUN(a_shared_module_is_freed_last);
    RUN(what_modules_can_be_shared);
    RUN(a_child_of_a_shared_module);
    check_rows("test_threads");
    CHECK(tg_shutdown() == TG_OK);
    return harness_end();
}
