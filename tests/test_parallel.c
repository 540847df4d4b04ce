/* Data-parallel training by ranks that are threads, over an engine made here: losses and parameters as of one process,
 * the bytes that are sent, and what happens when ranks differ or the engine fails.  Build with -pthread. */
#if !defined(__cplusplus) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#include "tensorgrad.h"
#include "semantics.h"
#include "helpers.h"
#include <pthread.h>

/* ---- an engine: all_reduce and broadcast only note what is asked for, and wait does it ---- */

enum { RANKS = 4, PENDING = 64 };
typedef struct {
    void *data;       /* of the caller: overwritten by the call, and filled by wait */
    void *copy;       /* what it had */
    int64_t bytes;
    int root;         /* of a broadcast; -1: all_reduce */
    tg_dtype dtype;
} pending;

typedef struct {
    pthread_mutex_t lock;
    pthread_cond_t turn;
    int size, arrived, round;
    bool aborted;
    const void *post[RANKS];
} engine;

typedef struct {
    engine *e;
    int rank;
    pending list[PENDING];
    int count;
    int64_t reduced, broadcast, gathered, waits, aborts, reductions; /* bytes, and calls */
    int64_t steps, first, ahead; /* calls of progress: all, before the first all_reduce, and since the last one */
    int64_t fail_at;             /* the all_reduce that fails, from 1; 0: none */
} line;

/* All ranks come here before one leaves; false once one has aborted. */
static bool meet(engine *e)
{
    pthread_mutex_lock(&e->lock);
    const int round = e->round;
    if (++e->arrived == e->size) e->arrived = 0, e->round++, pthread_cond_broadcast(&e->turn);
    while (round == e->round && !e->aborted) pthread_cond_wait(&e->turn, &e->lock);
    const bool ok = round != e->round; /* those who were all here have met, even if one has left and aborted since */
    pthread_mutex_unlock(&e->lock);
    return ok;
}

static const char *begin(line *l, void *data, int64_t bytes, int root, tg_dtype dtype)
{
    pending *p = &l->list[l->count];
    if (l->count == PENDING) return "too many calls before a wait";
    l->count++;
    p->data = data;
    p->copy = malloc((size_t)bytes + 1);
    p->bytes = bytes;
    p->root = root;
    p->dtype = dtype;
    if (!p->copy) return "no memory";
    memcpy(p->copy, data, (size_t)bytes);
    memset(data, 0xff, (size_t)bytes); /* NaN: nobody may read it before the wait */
    return NULL;
}

static const char *all_reduce(void *context, void *data, int64_t count, tg_dtype dtype, tg_device device)
{
    line *l = (line *)context;
    const int64_t bytes = count * (int64_t)tg_dtype_size(dtype);
    (void)device;
    l->reduced += bytes;
    if (++l->reductions == 1) l->first = l->steps;
    if (l->reductions == l->fail_at) return "the cable was cut";
    return begin(l, data, bytes, -1, dtype);
}

static const char *broadcast(void *context, void *data, int64_t bytes, int root, tg_device device)
{
    line *l = (line *)context;
    (void)device;
    l->broadcast += bytes;
    return begin(l, data, bytes, root, TG_U8);
}

/* y [bytes] += x, in the order of the ranks */
static void add(void *y, const void *x, int64_t bytes, tg_dtype dtype)
{
    const int64_t n = bytes / (int64_t)tg_dtype_size(dtype);
    TG_SCOPE;
    tg_tensor *a = tg_from_on(y, TG_SHAPE(n), dtype, TG_CPU), *b = tg_from_on(x, TG_SHAPE(n), dtype, TG_CPU);
    tg_copy_out(tg_add(a, b), y, (size_t)bytes);
}

static const char *finish(line *l, pending *p)
{
    engine *e = l->e;
    int r;
    e->post[l->rank] = p->copy;
    if (!meet(e)) return "a rank has given up";
    memcpy(p->data, e->post[p->root < 0 ? 0 : p->root], (size_t)p->bytes);
    for (r = 1; p->root < 0 && r < e->size; ++r) add(p->data, e->post[r], p->bytes, p->dtype);
    return meet(e) ? NULL : "a rank has given up";
}

static const char *wait_for_all(void *context)
{
    line *l = (line *)context;
    const char *failure = NULL;
    int i;
    l->waits++;
    for (i = 0; i < l->count; ++i) {
        if (!failure) failure = finish(l, &l->list[i]);
        free(l->list[i].copy);
    }
    l->count = 0;
    return failure;
}

static const char *all_gather(void *context, const void *data, void *all, int64_t bytes, tg_device device)
{
    line *l = (line *)context;
    int r;
    (void)device;
    l->gathered += bytes;
    l->e->post[l->rank] = data;
    if (!meet(l->e)) return "a rank has given up";
    for (r = 0; r < l->e->size; ++r) memcpy((char *)all + r * bytes, l->e->post[r], (size_t)bytes);
    return meet(l->e) ? NULL : "a rank has given up";
}

static const char *progress(void *context)
{
    line *l = (line *)context;
    l->steps++;
    return NULL;
}

static void give_up(void *context)
{
    line *l = (line *)context;
    int i;
    l->aborts++;
    for (i = 0; i < l->count; ++i) free(l->list[i].copy);
    l->count = 0;
    pthread_mutex_lock(&l->e->lock);
    l->e->aborted = true;
    pthread_cond_broadcast(&l->e->turn);
    pthread_mutex_unlock(&l->e->lock);
}

/* ---- ranks: what each does, and what it hands to the test ---- */

enum { NUMBERS = 400 };
typedef struct rank rank;
struct rank {
    line l;
    tg_comm comm;
    int size, variant;
    void (*body)(rank *r);
    double number[NUMBERS]; /* what the body stores */
    int numbers;
    int64_t state;  /* bytes of the state of its optimizer */
    tg_status code; /* the error of the thread, and its text */
    char message[600];
};
static rank ranks[RANKS];

#include "ranks.h"

static void *run_rank(void *user)
{
    rank *r = (rank *)user;
    tg_seed((uint64_t)(100 + r->l.rank)); /* each has other random numbers, and so another model at first */
    r->body(r);
    store_error(r);
    tg_thread_end();
    return NULL;
}

/* Runs body on `size` ranks; variant is for it.  The results stand in ranks. */
static void run_ranks(int size, int variant, void (*body)(rank *r), int64_t fail_at)
{
    static engine e;
    pthread_t thread[RANKS];
    int i;
    memset(&e, 0, sizeof e);
    memset(ranks, 0, sizeof ranks);
    pthread_mutex_init(&e.lock, NULL);
    pthread_cond_init(&e.turn, NULL);
    e.size = size;
    for (i = 0; i < size; ++i) {
        rank *r = &ranks[i];
        const tg_comm comm = {&r->l, i, size, all_reduce, broadcast, all_gather, wait_for_all, progress, give_up};
        r->comm = comm;
        r->l.e = &e;
        r->l.rank = i;
        r->l.fail_at = i == size - 1 ? fail_at : 0;
        r->size = size;
        r->variant = variant;
        r->body = body;
        pthread_create(&thread[i], NULL, run_rank, r);
    }
    for (i = 0; i < size; ++i) pthread_join(thread[i], NULL);
    pthread_mutex_destroy(&e.lock);
    pthread_cond_destroy(&e.turn);
}

/* Whether the ranks have stored the same bits. */
static bool all_same(int size)
{
    int i;
    for (i = 1; i < size; ++i) {
        if (ranks[i].numbers != ranks[0].numbers) return false;
        if (memcmp(ranks[i].number, ranks[0].number, sizeof(double) * (size_t)ranks[0].numbers) != 0) return false;
    }
    return ranks[0].numbers > 0;
}

/* ---- training ---- */

enum { STEPS = 6 };
enum { PLAIN, TWO_BACKWARDS, SMALL_BUCKETS, NO_PARALLEL };
static void train(rank *r)
{
    tg_module *m = small_net();
    tg_parallel_options o = {0, false};
    tg_parallel *p = NULL;
    tg_optim *opt;
    const int n = ROWS / r->size, half = n / 2;
    int step, i;
    if (r->l.rank == 0) first_values(m);
    if (r->variant == SMALL_BUCKETS) o.bucket_bytes = 1;
    if (r->variant != NO_PARALLEL) p = tg_parallel_new(m, &r->comm, &o);
    opt = tg_adam(tg_module_params(m), tg_module_count(m), 0.05);
    for (step = 0; step < STEPS; ++step) {
        TG_SCOPE;
        const int first = r->l.rank * n;
        tg_optim_zero_grad(opt);
        if (r->variant == TWO_BACKWARDS) {
            tg_tensor *a = loss_of(m, HERE, step, first, half), *b = loss_of(m, HERE, step, first + half, n - half);
            if (!tg_parallel_set_sync(p, false)) break; /* it was on */
            tg_backward(tg_mul_scalar(a, 0.5));
            if (tg_parallel_set_sync(p, true)) break; /* it was off */
            tg_backward(tg_mul_scalar(b, 0.5));
            store(r, 0.5 * (tg_item(a) + tg_item(b)));
        } else {
            tg_tensor *loss = loss_of(m, HERE, step, first, n);
            tg_backward(loss);
            store(r, tg_item(loss));
        }
        tg_step(opt);
    }
    for (i = 0; i < tg_module_count(m); ++i) store_tensor(r, tg_module_params(m)[i]);
    tg_optim_free(opt);
    tg_parallel_free(p);
    tg_module_free(m);
}

/* Each loss of the ranks' mean, and the parameters of each, against those of one process. */
static void compare(const rank *one, int size)
{
    int i, k;
    for (i = 0; i < STEPS; ++i) {
        double mean = 0;
        for (k = 0; k < size; ++k) mean += ranks[k].number[i] / size;
        CHECK_NEAR(mean, one->number[i], 1e-5);
    }
    for (k = 0; k < size; ++k) {
        CHECK(ranks[k].numbers == STEPS + PARAMETERS);
        for (i = STEPS; i < STEPS + PARAMETERS; ++i) CHECK_NEAR(ranks[k].number[i], one->number[i], 1e-4);
        CHECK(memcmp(ranks[k].number + STEPS, ranks[0].number + STEPS, sizeof(double) * PARAMETERS) == 0);
    }
}

TEST(one_two_and_four_ranks)
{
    static const int variants[] = {PLAIN, TWO_BACKWARDS, SMALL_BUCKETS};
    rank one;
    int v, size;
    run_ranks(1, NO_PARALLEL, train, 0);
    CHECK(all_ok(1));
    one = ranks[0];
    for (v = 0; v < 3; ++v) {
        run_ranks(1, variants[v], train, 0);
        CHECK(all_ok(1) && ranks[0].l.reduced + ranks[0].l.broadcast + ranks[0].l.gathered == 0);
        if (variants[v] != TWO_BACKWARDS)
            CHECK(memcmp(ranks[0].number, one.number, sizeof(double) * (STEPS + PARAMETERS)) == 0);
        for (size = 2; size <= RANKS; size *= 2) {
            run_ranks(size, variants[v], train, 0);
            CHECK(all_ok(size));
            compare(&one, size);
            /* each gradient once in a step, also in the one of two backwards; parameters once at the start */
            CHECK(ranks[0].l.reduced == STEPS * PARAMETERS * (int64_t)sizeof(float));
            CHECK(ranks[0].l.broadcast == PARAMETERS * (int64_t)sizeof(float) + 4 * (int64_t)sizeof(int64_t));
            CHECK(ranks[0].l.gathered == 2 * (int64_t)sizeof(int64_t));
            CHECK(ranks[0].l.reductions == STEPS * (variants[v] == SMALL_BUCKETS ? 4 : 1));
            CHECK(ranks[size - 1].l.aborts == 0);
        }
    }
}

/* ---- ranks that differ, and engines that fail ---- */

enum { MORE_PARAMETERS = 1, OTHER_NAME, OTHER_SHAPE, OTHER_DTYPE };
static void make_differently(rank *r)
{
    const bool last = r->l.rank == r->size - 1;
    tg_module *m = tg_module_new("Net", NULL, 0);
    const int64_t width = last && r->variant == OTHER_SHAPE ? 3 : 2;
    const tg_dtype dtype = last && r->variant == OTHER_DTYPE ? TG_F64 : TG_F32;
    tg_parallel *p;
    tg_module_param(m, "weight", tg_zeros_on(TG_SHAPE(2, width), dtype, TG_CPU));
    tg_module_param(m, last && r->variant == OTHER_NAME ? "shift" : "bias", tg_zeros(TG_SHAPE(2)));
    if (last && r->variant == MORE_PARAMETERS) tg_module_param(m, "more", tg_zeros(TG_SHAPE(2)));
    p = tg_parallel_new(m, &r->comm, NULL);
    store(r, p != NULL);
    tg_parallel_free(p);
    tg_module_free(m);
}

TEST(ranks_have_the_same_model)
{
    static const char *const wanted[] = {
        NULL, "rank 3 has 3 parameters and buffers, rank 0 has 2",
        "parameter or buffer 1 of rank 3 has another name, shape or dtype than that of rank 0: on this rank, %d, it is "
        "'%s' f32 [2]",
        "parameter or buffer 0 of rank 3 has another name, shape or dtype than that of rank 0",
        "parameter or buffer 0 of rank 3 has another name, shape or dtype than that of rank 0"};
    int v, k;
    for (v = 1; v <= OTHER_DTYPE; ++v) {
        run_ranks(RANKS, v, make_differently, 0);
        for (k = 0; k < RANKS; ++k) {
            char text[300];
            snprintf(text, sizeof text, "%s", wanted[v]);
            if (v == OTHER_NAME) snprintf(text, sizeof text, wanted[v], k, k == RANKS - 1 ? "shift" : "bias");
            CHECK(ranks[k].code == TG_ERR_COMM && strstr(ranks[k].message, text) != NULL);
            CHECK(ranks[k].number[0] == 0 && ranks[k].l.aborts == 0 && ranks[k].l.broadcast == 0);
        }
    }
}

/* The last rank's third all_reduce fails: all ranks get an error, and gradients stay as they were. */
static void train_until_failure(rank *r)
{
    tg_module *m = small_net();
    tg_parallel *p = tg_parallel_new(m, &r->comm, NULL);
    int step;
    for (step = 0; step < 4; ++step) {
        TG_SCOPE;
        tg_tensor *g;
        const tg_status status = tg_backward(loss_of(m, HERE, 0, 0, ROWS));
        store(r, status);
        g = tg_grad(tg_module_params(m)[0]);
        store(r, g ? tg_item(tg_sum(g)) : 0);
    }
    tg_parallel_free(p);
    tg_module_free(m);
}

TEST(a_failure_ends_all_ranks)
{
    int k;
    run_ranks(RANKS, 0, train_until_failure, 3);
    for (k = 0; k < RANKS; ++k) {
        const double *x = ranks[k].number;
        CHECK(x[0] == 0 && x[2] == 0 && x[4] == (int)TG_ERR_COMM && x[6] == (int)TG_ERR_COMM);
        CHECK(x[3] == 2 * x[1] && x[5] == x[3] && x[7] == x[3]); /* the sum of the two that were sent */
        CHECK(ranks[k].code == TG_ERR_COMM && ranks[k].l.aborts == 1);
        const char *cut = "tg_backward: all_reduce failed on rank 3 of 4: the cable was cut";
        CHECK(strstr(ranks[k].message, k == RANKS - 1 ? cut : "wait failed on rank") != NULL);
    }
}

TEST(arguments)
{
    const tg_comm none = {NULL, 0, 1, NULL, NULL, NULL, NULL, NULL, NULL};
    tg_comm comm = {NULL, 0, 1, all_reduce, broadcast, all_gather, NULL, NULL, NULL};
    tg_parallel_options o = {-1, false};
    tg_module *m = small_net(), *empty = tg_module_new("Empty", NULL, 0);
    CHECK_FAILS(tg_parallel_new(m, &none, NULL), "comm has no function all_reduce");
    CHECK_FAILS(tg_parallel_new(m, NULL, NULL), "comm is NULL");
    CHECK_FAILS(tg_parallel_new(NULL, &comm, NULL), "argument m");
    CHECK_FAILS(tg_parallel_new(empty, &comm, NULL), "the module has no parameter that requires grad");
    CHECK_FAILS(tg_parallel_new(m, &comm, &o), "bucket_bytes is -1");
    comm.rank = 1;
    CHECK_FAILS(tg_parallel_new(m, &comm, NULL), "rank 1 of 1 ranks cannot be");
    CHECK_FAILS(tg_parallel_set_sync(NULL, true), "parallel");
    CHECK_FAILS(tg_parallel_broadcast(NULL), "parallel");
    comm.rank = 0;
    tg_parallel *p = tg_parallel_new(m, &comm, NULL);
    CHECK(p && tg_parallel_broadcast(p) == TG_OK && tg_parallel_set_sync(p, false) && !tg_parallel_set_sync(p, true));
    tg_module_free(m);
    tg_parallel_free(p); /* with which the module ends */
    tg_parallel_free(NULL);
    if (!HARNESS_MEMORY_CHECKER) CHECK_FAILS(tg_parallel_free(p), "is a tg_parallel that has ended");
    tg_module_free(empty);
}

/* ---- while backward goes on ---- */

/* A chain of layers whose parameters are registered in another order than that in which they are used. */
enum { CHAIN = 6, WIDTH = 3 };
static tg_module *chain(void)
{
    tg_module *m = tg_module_new("Chain", NULL, 0);
    int i;
    for (i = 0; i < CHAIN; ++i) {
        char name[20];
        snprintf(name, sizeof name, "w%d", i);
        tg_module_param(m, name, tg_rand(TG_SHAPE(WIDTH + i, WIDTH)));
    }
    return m;
}

/* Layer k multiplies by its [WIDTH + k, WIDTH] and sums to WIDTH again. */
static tg_tensor *layer_of(tg_tensor *const *in, int n, void *user)
{
    tg_tensor *w = *(tg_tensor *const *)user;
    const int64_t rows = tg_shape_of(w).dim[0];
    tg_tensor *y = tg_linear(in[0], w, NULL);
    (void)n;
    return tg_tanh(tg_add(tg_narrow(y, 1, 0, WIDTH), tg_narrow(y, 1, rows - WIDTH, WIDTH)));
}

enum { TIED = 1, CHECKPOINTS = 2, BY_STEPS = 4, WITH_HOOK = 8, UNSENT = 16 };
static const int order_of_use[CHAIN] = {3, 0, 5, 1, 4, 2};
static tg_tensor *double_it(tg_tensor *grad, void *user)
{
    (void)user;
    return tg_mul_scalar(grad, 2);
}

static void run_chain(rank *r)
{
    tg_module *m = chain();
    tg_parallel_options o = {1, false};
    tg_parallel *p = tg_parallel_new(m, &r->comm, &o);
    tg_tensor *const *w = tg_module_params(m);
    int step, i;
    if (r->variant & UNSENT) tg_parallel_set_sync(p, false);
    if (r->variant & WITH_HOOK) tg_hook(w[order_of_use[CHAIN - 1]], double_it, NULL);
    for (step = 0; step < 2; ++step) {
        TG_SCOPE;
        tg_tensor *x = tg_full(TG_SHAPE(2, WIDTH), r->l.rank + 1), *loss;
        r->l.first = r->l.steps = 0;
        if (r->variant & TIED) x = layer_of(&x, 1, (void *)(uintptr_t)&w[order_of_use[CHAIN - 1]]);
        for (i = 0; i < CHAIN; ++i) {
            void *user = (void *)(uintptr_t)&w[order_of_use[i]];
            x = r->variant & CHECKPOINTS ? tg_checkpoint(layer_of, &x, 1, user) : layer_of(&x, 1, user);
        }
        loss = tg_sum(x);
        if (r->variant & BY_STEPS) {
            tg_backward_run *run = tg_backward_begin(&loss, 1, NULL, 0);
            while (tg_backward_step(run, NULL)) {}
            tg_backward_end(run);
        } else {
            tg_backward(loss);
        }
        store(r, (double)r->l.steps);
    }
    for (i = 0; i < CHAIN; ++i) store_tensor(r, tg_grad(w[i]));
    tg_parallel_free(p);
    tg_module_free(m);
}

TEST(buckets_are_sent_while_backward_goes_on)
{
    static const int variants[] = {0, CHECKPOINTS, BY_STEPS, WITH_HOOK, WITH_HOOK | BY_STEPS, TIED, TIED | CHECKPOINTS};
    int v, k, i;
    for (v = 0; v < 7; ++v) {
        double wanted[NUMBERS] = {0};
        run_ranks(2, UNSENT | (variants[v] & TIED), run_chain, 0); /* the mean of what each has */
        CHECK(all_ok(2) && ranks[0].l.reduced == 0);
        const int n = ranks[0].numbers;
        for (i = 0; i < n; ++i) wanted[i] = (ranks[0].number[i] + ranks[1].number[i]) / 2;
        run_ranks(2, variants[v], run_chain, 0);
        CHECK(all_ok(2) && ranks[0].numbers == n);
        CHECK(memcmp(ranks[0].number + 2, ranks[1].number + 2, sizeof(double) * (size_t)(n - 2)) == 0);
        for (i = 2; i < n; ++i) {
            /* the hook's parameter is the last one used: the first that is complete */
            const bool hooked = (variants[v] & WITH_HOOK) && i >= 2 + 9 + 12 && i < 2 + 9 + 12 + 15;
            CHECK_NEAR(ranks[0].number[i], (hooked ? 2 : 1) * wanted[i], 1e-5);
        }
        /* after the first bucket was sent nodes ran, unless it waits for a hook or the run is by steps */
        for (k = 0; k < 2; ++k) CHECK((ranks[0].number[k] > 6) == !(variants[v] & (BY_STEPS | WITH_HOOK)));
        CHECK(ranks[0].l.reductions == 2 * CHAIN && ranks[0].l.waits == 1 + CHAIN + 1 + 2);
    }
}

/* ---- parameters without a gradient ---- */

enum { FIND = 1, ONE_RANK = 2, NO_RANK = 4 };
static void run_unused(rank *r)
{
    tg_module *m = tg_module_new("Net", NULL, 0);
    tg_parallel_options o = {0, (r->variant & FIND) != 0};
    tg_parallel *p;
    tg_tensor *a = tg_module_param(m, "a", tg_ones(TG_SHAPE(2))), *b = tg_module_param(m, "b", tg_ones(TG_SHAPE(3)));
    tg_tensor *loss;
    p = tg_parallel_new(m, &r->comm, &o);
    loss = tg_mul_scalar(tg_sum(a), r->l.rank + 1);
    if (!(r->variant & NO_RANK) && (r->l.rank == 0 || !(r->variant & ONE_RANK))) loss = tg_add(loss, tg_sum(b));
    store(r, (int)tg_backward(loss));
    store(r, tg_grad(a) ? tg_item(tg_sum(tg_grad(a))) : -1);
    store(r, tg_grad(b) ? tg_item(tg_sum(tg_grad(b))) : -1);
    tg_parallel_free(p);
    tg_module_free(m);
}

TEST(unused_parameters)
{
    int k;
    run_ranks(2, 0, run_unused, 0);
    CHECK(all_ok(2) && all_same(2) && ranks[0].number[1] == 3 && ranks[0].number[2] == 3);
    CHECK(ranks[0].l.reduced == 5 * (int64_t)sizeof(float));
    run_ranks(2, FIND, run_unused, 0); /* for which one number is sent for each */
    CHECK(all_ok(2) && all_same(2) && ranks[0].number[1] == 3 && ranks[0].number[2] == 3);
    CHECK(ranks[0].l.reduced == (5 + 2) * (int64_t)sizeof(float));
    run_ranks(2, FIND | ONE_RANK, run_unused, 0); /* zeros from the other one */
    CHECK(all_ok(2) && all_same(2) && ranks[0].number[1] == 3 && ranks[0].number[2] == 1.5);
    run_ranks(2, FIND | NO_RANK, run_unused, 0);
    CHECK(all_ok(2) && all_same(2) && ranks[0].number[1] == 3 && ranks[0].number[2] == -1);
    run_ranks(2, ONE_RANK, run_unused, 0);
    for (k = 0; k < 2; ++k) CHECK(ranks[k].number[0] != 0 && ranks[k].number[1] == -1 && ranks[k].number[2] == -1);
    CHECK(ranks[1].code == TG_ERR_GRAPH && strstr(ranks[1].message, "parameter 'b' got no gradient") != NULL);
    CHECK(ranks[0].code == TG_ERR_COMM && strstr(ranks[0].message, "a rank has given up") != NULL);
}

/* ---- what else a backward can be ---- */

static tg_status zero_rule(tg_ctx *ctx, tg_tensor *const *g, tg_tensor **grad_in)
{
    (void)ctx, (void)g;
    grad_in[0] = NULL;
    return TG_OK;
}

static tg_status failing_rule(tg_ctx *ctx, tg_tensor *const *g, tg_tensor **grad_in)
{
    (void)ctx, (void)g, (void)grad_in;
    return TG_ERR_UNSUPPORTED;
}

static tg_status identity(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    (void)ctx;
    out[0] = in[0];
    return TG_OK;
}

static void nested_backward(tg_tensor *leaf, void *user)
{
    TG_ENABLE_GRAD;
    (void)user;
    tg_backward(tg_sum(leaf));
}

static tg_tensor *nested_in_hook(tg_tensor *grad, void *user)
{
    TG_ENABLE_GRAD;
    tg_backward(tg_sum(tg_mul_scalar(*(tg_tensor **)user, 3)));
    return grad;
}

static tg_tensor *free_in_hook(tg_tensor *grad, void *user)
{
    tg_parallel_free((tg_parallel *)user);
    return grad;
}

enum {
    MIXED_DTYPES,
    NO_GRADIENT,
    FAILS_HERE,
    CREATES_GRAPH,
    NESTED,
    NESTED_HOOK,
    TWICE,
    GRADIENTS,
    TWO_OF_THEM,
    FREED_BY_HOOK,
    CASES
};
static void run_case(rank *r)
{
    tg_module *m = tg_module_new("Net", NULL, 0), *other = tg_module_new("Other", NULL, 0);
    tg_tensor *a = tg_module_param(m, "a", tg_ones(TG_SHAPE(2)));
    const tg_dtype dtype = r->variant == MIXED_DTYPES ? TG_BF16 : TG_F32;
    tg_tensor *b = tg_module_param(m, "b", tg_ones_on(TG_SHAPE(3), dtype, TG_CPU)), *y, *loss, *g = NULL;
    tg_tensor *c = tg_module_param(other, "c", tg_ones(TG_SHAPE(2)));
    tg_parallel *p = tg_parallel_new(m, &r->comm, NULL), *q = NULL;
    if (r->variant == TWO_OF_THEM) q = tg_parallel_new(other, &r->comm, NULL);
    y = b;
    if (r->variant == NO_GRADIENT) tg_custom("no_gradient", identity, zero_rule, NULL, &b, 1, &y, 1);
    if (r->variant == FAILS_HERE && r->l.rank == 1) tg_custom("fails", identity, failing_rule, NULL, &b, 1, &y, 1);
    if (r->variant == NESTED) tg_hook_post_accumulate(a, nested_backward, NULL);
    if (r->variant == NESTED_HOOK) tg_hook(y = tg_mul_scalar(b, 1), nested_in_hook, &b);
    if (r->variant == FREED_BY_HOOK) tg_hook(y = tg_mul_scalar(b, 1), free_in_hook, p);
    loss = tg_mul_scalar(tg_add(tg_sum(a), tg_to_dtype(tg_sum(y), TG_F32)), r->l.rank + 1);
    if (r->variant == TWO_OF_THEM) loss = tg_add(loss, tg_sum(c));
    if (r->variant == CREATES_GRAPH) store(r, (int)tg_backward_ex(&loss, 1, NULL, TG_CREATE_GRAPH));
    else if (r->variant == GRADIENTS) store(r, (int)tg_gradients(&loss, 1, NULL, &a, 1, &g, 0));
    else store(r, (int)tg_backward_ex(&loss, 1, NULL, TG_RETAIN_GRAPH));
    if (r->variant == TWICE) tg_backward(loss);
    if (r->variant == GRADIENTS) tg_set_grad(a, g);
    store(r, tg_grad(a) ? tg_item(tg_sum(tg_grad(a))) : -1);
    store(r, tg_grad(b) ? tg_item(tg_to_dtype(tg_sum(tg_grad(b)), TG_F32)) : -1);
    store(r, tg_grad(c) ? tg_item(tg_sum(tg_grad(c))) : -1);
    if (r->variant == TWO_OF_THEM) {
        tg_optim *opt = tg_sgd(&a, 1, 0.1);
        tg_parallel_shard(p, opt);
        store(r, tg_parallel_shard(q, opt) == TG_ERR_ARGUMENT);
        tg_clear_error();
        tg_optim_free(opt);
    }
    tg_parallel_free(p);
    tg_parallel_free(q);
    tg_module_free(m);
    tg_module_free(other);
}

TEST(what_a_backward_can_be)
{
    static const struct { double a, b; const char *error; int reductions; } wanted[CASES] = {
        {3, 4.5, NULL, 2}, {3, 0, NULL, 1}, {-1, -1, "fails", 0}, {-1, -1, "cannot be recorded", 0},
        {3, 4.5, "got no gradient", 1}, {-1, -1, "a backward inside of another", 0}, {6, 9, NULL, 2}, {0, -1, NULL, 0},
        {3, 4.5, NULL, 2}, {-1, -1, "the engine of this tg_parallel is at work", 0}};
    int v, k;
    for (v = 0; v < CASES; ++v) {
        run_ranks(2, v, run_case, 0);
        for (k = 0; k < 2; ++k) {
            const rank *r = &ranks[k];
            CHECK(v == GRADIENTS ? r->number[1] == 2 * (k + 1) : r->number[1] == wanted[v].a);
            CHECK(r->number[2] == wanted[v].b);
            CHECK((r->code == TG_OK) == (wanted[v].error == NULL));
            if (v == TWO_OF_THEM) CHECK(r->number[3] == 2 && r->number[4] == 1);
        }
        if (wanted[v].error) CHECK(strstr(ranks[1].message, wanted[v].error) != NULL);
        if (v == FAILS_HERE) CHECK(ranks[0].code == TG_ERR_COMM && ranks[1].l.aborts == 1);
        if (v == FAILS_HERE || v == NESTED_HOOK || v == FREED_BY_HOOK) continue; /* one may be quicker */
        CHECK(ranks[0].l.reductions == wanted[v].reductions);
    }
}

/* ---- sums and batch norms over all ranks ---- */

static void run_sums(rank *r)
{
    tg_module *m = small_net();
    tg_parallel *p = tg_parallel_new(m, &r->comm, NULL);
    const float numbers[] = {(float)r->l.rank, 10};
    const int64_t whole[] = {1000000007 * (int64_t)r->l.rank, 1};
    tg_tensor *x = tg_set_requires_grad(tg_from_f32(numbers, TG_SHAPE(2)), true), *y, *g, *n;
    y = tg_parallel_sum(p, x);
    store(r, y == x);
    store_tensor(r, y);
    g = tg_sum(tg_mul_scalar(tg_square(y), r->l.rank + 1)); /* d/dx: the sum over ranks of 2 (rank + 1) y */
    tg_gradients(&g, 1, NULL, &x, 1, &n, 0);
    store_tensor(r, n);
    n = tg_parallel_sum(p, tg_from_i64(whole, TG_SHAPE(2)));
    store(r, n ? tg_get(n, TG_INDEX(0)) : -1);
    store(r, (int)tg_error_code());
    store(r, tg_parallel_sum(p, tg_ones_on(TG_SHAPE(2), TG_BOOL, TG_CPU)) == NULL && tg_error_code() == TG_ERR_DTYPE);
    tg_clear_error();
    tg_parallel_free(p);
    if (r->size > 1) {
        store(r, tg_backward(tg_sum(y)) == TG_ERR_GRAPH && strstr(tg_error_message(), "was freed before") != NULL);
        tg_clear_error();
    }
    tg_module_free(m);
}

TEST(sums)
{
    int k;
    run_ranks(1, 0, run_sums, 0);
    CHECK(ranks[0].number[0] == 1 && ranks[0].number[2] == 10);
    run_ranks(RANKS, 0, run_sums, 0);
    CHECK(all_ok(RANKS) && all_same(RANKS));
    for (k = 0; k < RANKS; ++k) {
        const double wanted[] = {0, 6, 40, 2 * 10 * 6, 2 * 10 * 40, 6000000042.0, 0, 1, 1};
        CHECK(ranks[k].numbers == 9 && memcmp(ranks[k].number, wanted, sizeof wanted) == 0);
    }
}

/* Rows [first, first + n) of the batch; the loss of all ranks together is that of one process with the whole batch. */
enum { IMAGES = 7, SYNC = 1, AS_ONE = 2, HALF = 4, NO_STATISTICS = 8 };
static void run_norm(rank *r)
{
    static const int sizes[] = {3, 1, 2, 1}; /* of ranks, of all IMAGES */
    const bool one = (r->variant & AS_ONE) != 0;
    tg_module *m = tg_nn_sequential(NULL, 0), *norm;
    tg_parallel *p;
    tg_tensor *all, *x, *y, *loss, *w;
    int first = 0, i, step;
    tg_seed(3);
    norm = tg_nn_batch_norm_ex(2, 1e-5, 0.1, true, !(r->variant & NO_STATISTICS));
    tg_module_child(m, "conv", tg_nn_conv2d(1, 2, TG_SHAPE(3), TG_SHAPE(1), TG_SHAPE(1), TG_SHAPE(1), 1, true));
    tg_module_child(m, "norm", norm);
    tg_uniform_(tg_module_get(m, "norm.weight"), 0.5, 1.5);
    all = tg_randn(TG_SHAPE(IMAGES, 1, 4, 4));
    w = tg_randn(TG_SHAPE(IMAGES, 2, 4, 4));
    for (i = 0; i < r->l.rank; ++i) first += sizes[i];
    p = tg_parallel_new(m, &r->comm, NULL);
    if (r->variant & SYNC) tg_parallel_sync_batch_norm(p);
    for (step = 0; step < 2; ++step) {
        TG_SCOPE;
        const int n = one ? IMAGES : sizes[r->l.rank];
        x = tg_set_requires_grad(tg_clone(tg_narrow(all, 0, first, n)), true);
        y = tg_forward(m, x);
        if (r->variant & HALF) y = tg_to_dtype(y, TG_F32);
        loss = tg_mul_scalar(tg_sum(tg_mul(tg_tanh(y), tg_narrow(w, 0, first, n))), r->size);
        tg_module_zero_grad(m);
        tg_backward(loss);
        if (step == 0) continue;
        for (i = 0; i < tg_module_count(m); ++i) store_tensor(r, tg_grad(tg_module_params(m)[i]));
        if (!(r->variant & NO_STATISTICS)) {
            store_tensor(r, tg_module_get(m, "norm.running_mean"));
            store_tensor(r, tg_module_get(m, "norm.running_var"));
            store(r, (double)tg_item_i64(tg_module_get(m, "norm.num_batches_tracked")));
        }
        store_tensor(r, tg_mul_scalar(tg_grad(x), 1.0 / r->size)); /* the rows of this rank */
    }
    tg_module_train(m, false);
    if (!(r->variant & NO_STATISTICS)) store_tensor(r, tg_forward(m, tg_narrow(all, 0, 0, 1)));
    tg_parallel_free(p);
    tg_module_train(m, true); /* without a tg_parallel it is an ordinary one again */
    store_tensor(r, tg_sum(tg_square(tg_forward(m, tg_narrow(all, 0, 0, 2)))));
    tg_module_free(m);
}

TEST(batch_norms_of_all_ranks)
{
    static const int variants[] = {0, NO_STATISTICS};
    const int pixels = 16;
    rank one;
    int v, k, i;
    for (v = 0; v < 2; ++v) {
        const int common = 2 * 9 + 2 + 2 + 2 + (variants[v] ? 0 : 5), after = (variants[v] ? 0 : 2 * pixels) + 1;
        int first = 0;
        run_ranks(1, variants[v] | SYNC | AS_ONE, run_norm, 0);
        CHECK(all_ok(1) && ranks[0].numbers == common + IMAGES * pixels + after);
        one = ranks[0];
        run_ranks(RANKS, variants[v] | SYNC, run_norm, 0);
        CHECK(all_ok(RANKS));
        for (k = 0; k < RANKS; ++k) {
            const rank *r = &ranks[k];
            const int rows = r->numbers - common - after;
            for (i = 0; i < common; ++i) CHECK_NEAR(r->number[i], one.number[i], 2e-5);
            for (i = 0; i < rows; ++i) CHECK_NEAR(r->number[common + i], one.number[common + first + i], 2e-5);
            for (i = 0; i < after; ++i)
                CHECK_NEAR(r->number[common + rows + i], one.number[common + IMAGES * pixels + i], 2e-5);
            CHECK(memcmp(r->number, ranks[0].number, sizeof(double) * (size_t)common) == 0);
            first += rows;
        }
        CHECK(first == IMAGES * pixels);
        run_ranks(RANKS, variants[v], run_norm, 0); /* each by its own batch: that is not the same */
        CHECK(all_ok(RANKS) && fabs(ranks[0].number[0] - one.number[0]) > 1e-3);
    }
}

/* ---- optimizers whose state is shared out ---- */

enum { SHARD = 1, SAVE = 2, LOAD = 4, WIDE_BUCKETS = 8, HALVES = 16, SCALED = 32 };
static char checkpoint[1000]; /* its path */

/* Bytes of the tensors of this thread. */
static int64_t bytes_now(void)
{
    tg_reset_peak();
    return tg_stats().peak_bytes;
}

static void run_sharded(rank *r)
{
    tg_module *m = small_net();
    tg_parallel_options o = {r->variant & WIDE_BUCKETS ? 0 : 1, false};
    tg_grad_scaler scaler = TG_GRAD_SCALER;
    tg_parallel *p;
    tg_optim *opt;
    int64_t step = 0, bytes;
    int i;
    tg_seed(7);
    for (i = 0; i < tg_module_count(m); ++i) tg_uniform_(tg_module_params(m)[i], -0.5, 0.5);
    if (r->variant & HALVES) tg_module_to_dtype(m, TG_BF16);
    p = tg_parallel_new(m, &r->comm, &o);
    opt = tg_adamw(tg_module_params(m), tg_module_count(m), 0.05);
    if (r->variant & SHARD) store(r, (int)tg_parallel_shard(p, opt) + (int)tg_parallel_shard(p, opt));
    else store(r, 0);
    if (r->variant & LOAD) store(r, (int)tg_checkpoint_load(checkpoint, m, opt, &step));
    r->l.broadcast = 0;
    bytes = bytes_now();
    for (; step < ((r->variant & SAVE) ? 3 : 6); ++step) {
        TG_SCOPE;
        const int n = ROWS / r->size;
        tg_tensor *x, *loss;
        tg_optim_zero_grad(opt);
        tg_seed((uint64_t)step);
        x = tg_rand(TG_SHAPE(ROWS, INPUTS));
        if (r->variant & HALVES) x = tg_to_dtype(x, TG_BF16);
        loss = tg_mean(tg_square(tg_to_dtype(tg_forward(m, tg_narrow(x, 0, r->l.rank * n, n)), TG_F32)));
        if (r->variant & SCALED) { /* in step 2 the last rank's gradients are infinite: no rank does that step */
            if (step == 2 && r->l.rank == r->size - 1) loss = tg_mul_scalar(loss, 1e38);
            tg_backward(tg_grad_scaler_scale(&scaler, loss));
            tg_grad_scaler_step(&scaler, opt);
            if (scaler.found_inf != (step == 2)) store(r, (double)step);
            tg_grad_scaler_update(&scaler);
            continue;
        }
        tg_backward(loss);
        tg_clip_grad_norm(tg_module_params(m), tg_module_count(m), 0.5);
        tg_step(opt);
    }
    if (r->variant & SAVE) {
        if (r->size > 1) { /* not before all ranks have gathered */
            store(r, tg_checkpoint_save(checkpoint, m, opt, step) == TG_ERR_ARGUMENT);
            tg_clear_error();
        }
        tg_parallel_gather(p, opt);
        if (r->l.rank == 0) tg_checkpoint_save(checkpoint, m, opt, step);
        else store(r, 0);
    }
    tg_optim_zero_grad(opt);
    r->state = bytes_now() - bytes;
    for (i = 0; i < tg_module_count(m); ++i) store_tensor(r, tg_module_params(m)[i]);
    if (r->variant & WIDE_BUCKETS) {
        tg_parallel_free(p); /* before the optimizer */
        store(r, tg_step(opt) == TG_ERR_ARGUMENT);
        tg_clear_error();
        tg_optim_free(opt);
    } else {
        tg_optim_free(opt);
        tg_parallel_free(p);
    }
    tg_module_free(m);
}

TEST(state_that_is_shared_out)
{
    static const int halves[] = {0, HALVES, SCALED};
    rank one;
    int64_t state;
    int v, k, size, i;
    snprintf(checkpoint, sizeof checkpoint, "%s", beside("parallel.ckpt"));
    for (v = 0; v < 3; ++v) {
        const bool half = halves[v] == HALVES; /* with master copies */
        const int64_t item = half ? 2 : 4, states = PARAMETERS * 4 * (half ? 3 : 2), sent = halves[v] == SCALED ? 5 : 6;
        for (size = 2; size <= RANKS; size *= 2) {
            run_ranks(size, halves[v], run_sharded, 0);
            CHECK(all_ok(size));
            one = ranks[0];
            CHECK(one.state == states);
            run_ranks(size, halves[v] | SHARD, run_sharded, 0);
            CHECK(all_ok(size));
            for (k = 0, state = 0; k < size; ++k) state += ranks[k].state;
            CHECK(state == states && ranks[0].state < states);
            for (k = 0; k < size; ++k) { /* the bits of a state on every rank */
                CHECK(ranks[k].numbers == one.numbers);
                CHECK(memcmp(ranks[k].number, one.number, sizeof(double) * (size_t)one.numbers) == 0);
            }
            /* gradients once and parameters once in a step; besides, the order of the buckets at the first */
            CHECK(ranks[0].l.reduced == 6 * PARAMETERS * item);
            CHECK(ranks[0].l.broadcast == sent * PARAMETERS * item + 4 * (int64_t)sizeof(int64_t));
            run_ranks(size, halves[v] | SHARD | WIDE_BUCKETS, run_sharded, 0);
            CHECK(all_ok(size) && all_same(size) && ranks[0].number[one.numbers] == 1);
            CHECK(memcmp(ranks[0].number, one.number, sizeof(double) * (size_t)one.numbers) == 0);
        }
    }
    /* three steps on four ranks, three more on two, and on one: nearly six on one */
    run_ranks(1, 0, run_sharded, 0);
    one = ranks[0];
    run_ranks(RANKS, SHARD | SAVE, run_sharded, 0);
    CHECK(all_ok(RANKS));
    for (size = 2; size >= 1; --size) {
        run_ranks(size, SHARD | LOAD, run_sharded, 0);
        CHECK(all_ok(size) && ranks[0].number[0] == 0 && ranks[0].number[1] == 0);
        for (i = 1; i < one.numbers; ++i) CHECK_NEAR(ranks[0].number[i + 1], one.number[i], 1e-4);
    }
    remove(checkpoint);
}

/* ---- loaders ---- */

TEST(loaders_of_ranks)
{
    static const int flags[] = {0, TG_SHUFFLE, TG_DROP_LAST, TG_SHUFFLE | TG_DROP_LAST};
    int f, size, rank_of, rows, i;
    for (f = 0; f < 4; ++f) {
        for (size = 1; size <= 4; ++size) {
            for (rows = 3; rows <= 13; rows += 5) {
                int seen[13] = {0}, order[13], whole = 0, share = -1;
                const bool drop = (flags[f] & TG_DROP_LAST) != 0;
                tg_tensor *data = tg_arange(0, rows, 1), *batch;
                tg_loader *l;
                int first[40] = {0};
                tg_seed(5);
                l = tg_loader_new(&data, 1, 1, flags[f], TG_CPU); /* all rows, in the order of the first epoch */
                while (tg_loader_next(l, &batch)) order[whole++] = (int)tg_item(batch);
                tg_loader_free(l);
                for (rank_of = 0; rank_of < size; ++rank_of) {
                    int n = 0, batches = 0;
                    tg_seed(5);
                    l = tg_loader_new(&data, 1, 2, flags[f], TG_CPU);
                    CHECK(tg_loader_shard(l, rank_of, size) == TG_OK);
                    while (tg_loader_next(l, &batch)) {
                        ++batches;
                        for (i = 0; i < (int)tg_numel(batch); ++i, ++n) {
                            const int row = (int)tg_get(batch, TG_INDEX(i));
                            CHECK(row == order[(rank_of + n * size) % rows]);
                            seen[row]++;
                        }
                    }
                    CHECK(batches == tg_loader_batches(l) && (share < 0 || n == share));
                    share = n;
                    tg_loader_next(l, &batch);
                    first[rank_of] = batch ? (int)tg_get(batch, TG_INDEX(0)) : -1;
                    tg_loader_seek(l, batches); /* the second epoch again, with the same first row */
                    if (batches > 0) CHECK(tg_loader_next(l, &batch) && tg_get(batch, TG_INDEX(0)) == first[rank_of]);
                    tg_loader_free(l);
                }
                if (!drop) CHECK(share == (rows + size - 1) / size);
                else CHECK(share == rows / size / 2 * 2);
                for (i = 0; i < rows; ++i) CHECK(drop ? seen[i] <= 1 : seen[i] >= 1);
            }
        }
    }
    {
        tg_tensor *data = tg_arange(0, 4, 1);
        tg_loader *l = tg_loader_new(&data, 1, 2, 0, TG_CPU);
        CHECK_FAILS(tg_loader_shard(l, 2, 2), "rank 2 of 2 ranks cannot be");
        CHECK_FAILS(tg_loader_shard(l, 0, 0), "rank 0 of 0 ranks cannot be");
        CHECK_FAILS(tg_loader_shard(NULL, 0, 1), "loader");
        tg_loader_free(l);
    }
}

TEST(arguments_of_shares)
{
    tg_comm comm = {NULL, 0, 1, all_reduce, broadcast, all_gather, NULL, NULL, NULL};
    tg_module *m = small_net();
    tg_parallel *p = tg_parallel_new(m, &comm, NULL);
    tg_optim *opt = tg_sgd(tg_module_params(m), tg_module_count(m), 0.1);
    tg_optim *lbfgs = tg_lbfgs(tg_module_params(m), tg_module_count(m), 1);
    CHECK(tg_parallel_shard(p, opt) == TG_OK && tg_parallel_gather(p, opt) == TG_OK);
    CHECK_FAILS(tg_parallel_shard(p, lbfgs), "the state of lbfgs is one for all parameters");
    CHECK_FAILS(tg_parallel_shard(NULL, opt), "parallel");
    CHECK_FAILS(tg_parallel_shard(p, NULL), "opt");
    CHECK_FAILS(tg_parallel_gather(p, NULL), "opt");
    CHECK_FAILS(tg_parallel_sync_batch_norm(NULL), "parallel");
    CHECK(tg_parallel_sync_batch_norm(p) == TG_OK);
    CHECK_FAILS(tg_parallel_sum(p, NULL), "argument t is NULL");
    CHECK_FAILS(tg_parallel_sum(NULL, tg_ones(TG_SHAPE(2))), "parallel");
    tg_optim_free(lbfgs);
    tg_optim_free(opt);
    tg_parallel_free(p);
    tg_module_free(m);
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    RUN(one_two_and_four_ranks);
    RUN(ranks_have_the_same_model);
    RUN(a_failure_ends_all_ranks);
    RUN(arguments);
    RUN(buckets_are_sent_while_backward_goes_on);
    RUN(unused_parameters);
    RUN(what_a_backward_can_be);
    RUN(sums);
    RUN(batch_norms_of_all_ranks);
    RUN(state_that_is_shared_out);
    RUN(loaders_of_ranks);
    RUN(arguments_of_shares);
    return harness_end();
}
