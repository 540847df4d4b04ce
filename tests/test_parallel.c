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
    tg_status code; /* the error of the thread, and its text */
    char message[600];
};
static rank ranks[RANKS];

static void *run_rank(void *user)
{
    rank *r = (rank *)user;
    tg_seed((uint64_t)(100 + r->l.rank)); /* each has other random numbers, and so another model at first */
    r->body(r);
    r->code = tg_error_code();
    snprintf(r->message, sizeof r->message, "%s", tg_error_message());
    tg_clear_error();
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

static void store(rank *r, double x)
{
    if (r->numbers < NUMBERS) r->number[r->numbers++] = x;
}

static void store_tensor(rank *r, tg_tensor *t)
{
    float value[NUMBERS];
    int64_t i;
    if (tg_copy_out(tg_to_dtype(tg_detach(t), TG_F32), value, sizeof *value * (size_t)tg_numel(t)) != TG_OK) return;
    for (i = 0; i < tg_numel(t); ++i) store(r, value[i]);
}

static bool all_ok(int size)
{
    int i;
    bool ok = true;
    for (i = 0; i < size; ++i) {
        if (ranks[i].code) printf("    rank %d: %s\n", i, ranks[i].message);
        ok = ok && ranks[i].code == TG_OK;
    }
    return ok;
}

/* ---- training ---- */

enum { ROWS = 8, INPUTS = 3, HIDDEN = 5, STEPS = 6, PARAMETERS = HIDDEN * INPUTS + HIDDEN + 2 * HIDDEN + 2 };

static tg_module *small_net(void)
{
    tg_module *m = tg_nn_sequential(NULL, 0);
    tg_module_child(m, "0", tg_nn_linear(INPUTS, HIDDEN, true));
    tg_module_child(m, "1", tg_nn_tanh());
    tg_module_child(m, "2", tg_nn_linear(HIDDEN, 2, true));
    return m;
}

/* The model that rank 0 begins with. */
static void first_values(tg_module *m)
{
    const tg_rng before = tg_rng_state();
    int i;
    tg_seed(7);
    for (i = 0; i < tg_module_count(m); ++i) tg_uniform_(tg_module_params(m)[i], -0.5, 0.5);
    tg_rng_set_state(before);
}

/* The loss of rows [first, first + n) of batch number `step`. */
static tg_tensor *loss_of(tg_module *m, int step, int first, int n)
{
    const tg_rng before = tg_rng_state();
    tg_tensor *x, *y;
    tg_seed((uint64_t)(1000 + step));
    x = tg_rand(TG_SHAPE(ROWS, INPUTS));
    y = tg_sum_dim(tg_mul(x, x), 1, true);
    tg_rng_set_state(before);
    x = tg_narrow(x, 0, first, n);
    y = tg_expand(tg_narrow(y, 0, first, n), TG_SHAPE(n, 2));
    return tg_mse_loss(tg_forward(m, x), y, TG_MEAN);
}

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
            tg_tensor *a = loss_of(m, step, first, half), *b = loss_of(m, step, first + half, n - half);
            if (!tg_parallel_set_sync(p, false)) break; /* it was on */
            tg_backward(tg_mul_scalar(a, 0.5));
            if (tg_parallel_set_sync(p, true)) break; /* it was off */
            tg_backward(tg_mul_scalar(b, 0.5));
            store(r, 0.5 * (tg_item(a) + tg_item(b)));
        } else {
            tg_tensor *loss = loss_of(m, step, first, n);
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
            CHECK(ranks[0].l.broadcast == PARAMETERS * (int64_t)sizeof(float));
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
        const tg_status status = tg_backward(loss_of(m, 0, 0, ROWS));
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
        CHECK(strstr(ranks[k].message, k == RANKS - 1 ? "tg_backward: all_reduce failed on rank 3 of 4: the cable was cut"
                                                      : "wait failed on rank") != NULL);
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

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    RUN(one_two_and_four_ranks);
    RUN(ranks_have_the_same_model);
    RUN(a_failure_ends_all_ranks);
    RUN(arguments);
    return harness_end();
}
