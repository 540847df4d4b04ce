/* The engine of tg_nccl_comm.  On the simulator ranks are threads, each with a device of its own, and NCCL is
 * simulated, too: two ranks train as one process does, what NCCL is asked for and in which order of streams, ranks that
 * fail or do not come.  On a GPU, built with NCCL, one rank alone; without NCCL what is said then.  Built with
 * `make sim`; TG_SIM_DEVICES=2. */
#if !defined(__cplusplus) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#include "tensorgrad.h"
#include "../harness.h"
#include <time.h>

#ifdef TG_USE_NCCL

#ifdef CUDASIM
#include "../cudasim/cudasim_test.h"
#include <pthread.h>
#endif

/* An engine of one rank, on the device of the tests. */
static bool alone(tg_comm *comm, double seconds)
{
    tg_nccl_id id;
    return tg_nccl_new_id(&id) == TG_OK && tg_nccl_comm(comm, &id, 0, 1, HERE, seconds) == TG_OK;
}

TEST(one_rank)
{
    tg_comm comm;
    int k;
    for (k = 0; k < 2; ++k) {
        tg_tensor *x = tg_arange(0, 3, 1), *all = tg_zeros(TG_SHAPE(3));
        const char *failure;
        if (!CHECK(alone(&comm, k ? (double)INFINITY : 0) && comm.rank == 0 && comm.size == 1)) return;
        CHECK(!comm.all_reduce(comm.context, tg_data(x), 3, TG_F32, HERE));
        CHECK(!comm.broadcast(comm.context, tg_data(x), 12, 0, HERE));
        CHECK(!comm.all_gather(comm.context, tg_data(x), tg_data(all), 12, HERE));
        CHECK(!comm.all_reduce(comm.context, tg_data(x), 0, TG_F32, HERE));
        CHECK(!comm.wait(comm.context));
        CHECK_NEAR(tg_get(x, TG_SHAPE(2)), 2, 0);
        CHECK_NEAR(tg_get(all, TG_SHAPE(1)), 1, 0);
        failure = comm.all_reduce(comm.context, tg_data(x), 3, TG_I32, HERE);
        CHECK(failure && strstr(failure, "all_reduce is for f32, f64, bf16, f16 and i64"));
        failure = comm.all_reduce(comm.context, tg_data(x), 3, TG_F32, TG_CUDA(9));
        CHECK(failure && strstr(failure, "the data is on cuda:9"));
        comm.abort(comm.context);
        comm.abort(comm.context);
        failure = comm.all_reduce(comm.context, tg_data(x), 3, TG_F32, HERE);
        CHECK(failure && strstr(failure, "the communicator was aborted"));
        failure = comm.wait(comm.context);
        CHECK(failure && strstr(failure, "the communicator was aborted"));
        tg_nccl_comm_free(&comm);
        CHECK(!comm.context && !comm.all_reduce);
        tg_nccl_comm_free(&comm);
    }
}

TEST(arguments)
{
    static tg_nccl_id empty; /* zeros */
    tg_nccl_id id;
    tg_comm comm, other;
    tg_module *m = tg_nn_linear(1, 1, false);
    tg_parallel *p;
    CHECK(tg_nccl_new_id(&id) == TG_OK && memcmp(&id, &empty, sizeof id) != 0);
    CHECK_FAILS(tg_nccl_new_id(NULL), "tg_nccl_new_id: argument id is NULL");
    CHECK_FAILS(tg_nccl_comm(NULL, &id, 0, 1, HERE, 0), "tg_nccl_comm: argument comm is NULL");
    CHECK_FAILS(tg_nccl_comm(&comm, NULL, 0, 1, HERE, 0), "tg_nccl_comm: argument id is NULL");
    CHECK_FAILS(tg_nccl_comm(&comm, &empty, 0, 1, HERE, 0), "the id is empty");
    CHECK_FAILS(tg_nccl_comm(&comm, &id, 2, 2, HERE, 0), "rank 2 of 2 ranks cannot be");
    CHECK_FAILS(tg_nccl_comm(&comm, &id, 0, 1, HERE, -1), "seconds is -1");
    CHECK_FAILS(tg_nccl_comm(&comm, &id, 0, 1, HERE, NAN), "seconds is");
    CHECK_FAILS(tg_nccl_comm(&comm, &id, 0, 1, TG_CPU, 0), "NCCL has no ranks on cpu");
    CHECK_FAILS(tg_nccl_comm(&comm, &id, 0, 1, TG_CUDA(99), 0), "invalid device ordinal");
    CHECK(!comm.context && !comm.wait && comm.size == 0);
    tg_nccl_comm_free(&comm);
    tg_nccl_comm_free(NULL);
    CHECK(tg_ok());

    CHECK(alone(&comm, 0));
    other = comm;
    other.all_reduce = NULL;
    CHECK_FAILS(tg_nccl_comm_free(&other), "was not made by tg_nccl_comm");
    p = tg_parallel_new(m, &comm, NULL);
    CHECK_FAILS(tg_nccl_comm_free(&comm), "a tg_parallel has this engine");
    tg_parallel_free(p);
    tg_nccl_comm_free(&comm);
    CHECK(!comm.context);
    tg_module_free(m);
}

#ifdef CUDASIM

/* of the CUDA runtime and of NCCL, whose headers are for C++ */
#ifdef __cplusplus
extern "C"
#endif
int cudaDeviceSynchronize(void);
enum { INTERNAL_ERROR = 3, REMOTE_ERROR = 6, UINT8 = 1, FLOAT32 = 7 };

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- ranks ---- */

enum { RANKS = 2, NUMBERS = 400 };
typedef struct rank rank;
struct rank {
    int me, size, variant;
    double seconds;
    tg_comm comm;
    tg_device device;
    void (*body)(rank *r);
    double number[NUMBERS];
    int numbers;
    tg_status code;
    char message[600];
};
static rank ranks[RANKS];

#include "../ranks.h"

static tg_nccl_id id_of_all;

/* One rank waits until another has come to this point. */
static pthread_mutex_t turn_lock = PTHREAD_MUTEX_INITIALIZER;
static int turn;
static void set_turn(int to)
{
    pthread_mutex_lock(&turn_lock);
    turn = to;
    pthread_mutex_unlock(&turn_lock);
}
static void wait_for_turn(int of)
{
    const struct timespec pause = {0, 1000000};
    for (;;) {
        pthread_mutex_lock(&turn_lock);
        const bool mine = turn >= of;
        pthread_mutex_unlock(&turn_lock);
        if (mine) return;
        nanosleep(&pause, NULL);
    }
}

static void *run_rank(void *user)
{
    rank *r = (rank *)user;
    tg_seed((uint64_t)(100 + r->me));
    tg_set_default_device(r->device);
    if (tg_nccl_comm(&r->comm, &id_of_all, r->me, r->size, r->device, r->seconds) == TG_OK) r->body(r);
    store_error(r);
    tg_nccl_comm_free(&r->comm);
    tg_thread_end();
    return NULL;
}

/* Runs body on `size` ranks, of which only the first `there` are there. */
static void run_ranks(int size, int there, int variant, double seconds, void (*body)(rank *r))
{
    pthread_t thread[RANKS];
    const size_t events = cudasim_live(CUDASIM_EVENTS), streams = cudasim_live(CUDASIM_STREAMS);
    int i;
    memset(ranks, 0, sizeof ranks);
    turn = 0;
    CHECK(tg_nccl_new_id(&id_of_all) == TG_OK);
    for (i = 0; i < there; ++i) {
        rank *r = &ranks[i];
        r->me = i;
        r->size = size;
        r->variant = variant;
        r->seconds = seconds;
        r->device = TG_CUDA(i);
        r->body = body;
        pthread_create(&thread[i], NULL, run_rank, r);
    }
    for (i = 0; i < there; ++i) pthread_join(thread[i], NULL);
    CHECK(cudasim_live(CUDASIM_COMMUNICATORS) == 0);
    CHECK(cudasim_live(CUDASIM_EVENTS) == events && cudasim_live(CUDASIM_STREAMS) == streams);
}

/* ---- training ---- */

enum { STEPS = 5 };
enum { SMALL_BUCKETS = 1, NO_PARALLEL = 2 };
static void train(rank *r)
{
    tg_module *m = small_net();
    tg_parallel_options o = {0, false};
    tg_parallel *p = NULL;
    tg_optim *opt;
    const int n = ROWS / r->size;
    int step, i;
    if (r->me == 0) first_values(m);
    if (r->variant & SMALL_BUCKETS) o.bucket_bytes = 1;
    if (!(r->variant & NO_PARALLEL)) p = tg_parallel_new(m, &r->comm, &o);
    opt = tg_adam(tg_module_params(m), tg_module_count(m), 0.05);
    for (step = 0; step < STEPS; ++step) {
        TG_SCOPE;
        tg_tensor *loss = loss_of(m, r->device, step, r->me * n, n);
        tg_optim_zero_grad(opt);
        tg_backward(loss);
        tg_step(opt);
        store(r, tg_item(loss));
    }
    for (i = 0; i < tg_module_count(m); ++i) store_tensor(r, tg_module_params(m)[i]);
    tg_optim_free(opt);
    tg_parallel_free(p);
    tg_module_free(m);
}

TEST(two_ranks_train_as_one_process)
{
    static rank one;
    int variant, i;
    memset(&one, 0, sizeof one);
    one.size = 1;
    one.variant = NO_PARALLEL;
    one.device = HERE;
    train(&one);
    CHECK(tg_ok() && one.numbers == STEPS + PARAMETERS);
    for (variant = 0; variant < 4; ++variant) { /* from 2 on the host does not wait */
        run_ranks(RANKS, RANKS, variant & SMALL_BUCKETS, variant < 2 ? 0 : (double)INFINITY, train);
        CHECK(all_ok(RANKS) && ranks[0].numbers == one.numbers && ranks[1].numbers == one.numbers);
        for (i = 0; i < STEPS; ++i) CHECK_NEAR((ranks[0].number[i] + ranks[1].number[i]) / 2, one.number[i], 1e-5);
        for (i = STEPS; i < one.numbers; ++i) CHECK_NEAR(ranks[0].number[i], one.number[i], 1e-4);
        CHECK(memcmp(ranks[0].number + STEPS, ranks[1].number + STEPS, sizeof(double) * PARAMETERS) == 0);
    }
}

/* Both ranks ask for the same, each in one stream of its own device. */
TEST(what_nccl_is_asked_for)
{
    size_t at = cudasim_collectives(), n = 0, k, of[RANKS] = {0, 0};
    cudasim_collective list[RANKS][100];
    int64_t reduced = 0, broadcast = 0;
    run_ranks(RANKS, RANKS, SMALL_BUCKETS, 0, train);
    CHECK(all_ok(RANKS));
    for (; at < cudasim_collectives(); ++at) {
        const cudasim_collective c = cudasim_collective_at(at);
        if (of[c.rank] < 100) list[c.rank][of[c.rank]++] = c;
    }
    n = of[0];
    CHECK(n > STEPS && of[1] == n);
    for (k = 0; k < n && of[1] == n; ++k) {
        const cudasim_collective a = list[0][k], b = list[1][k];
        CHECK(strcmp(a.call, b.call) == 0 && a.count == b.count && a.type == b.type && a.root == b.root);
        CHECK(a.device == 0 && b.device == 1 && a.stream == list[0][0].stream && b.stream == list[1][0].stream);
        if (strcmp(a.call, "ncclAllReduce") == 0) {
            CHECK(a.type == FLOAT32 && a.root == -1);
            reduced += (int64_t)a.count;
        } else if (strcmp(a.call, "ncclBroadcast") == 0) {
            CHECK(a.type == UINT8 && a.root == 0);
            broadcast += (int64_t)a.count;
        } else {
            CHECK(strcmp(a.call, "ncclAllGather") == 0 && a.type == UINT8);
        }
    }
    CHECK(reduced == STEPS * PARAMETERS && broadcast >= PARAMETERS * (int64_t)sizeof(float));
    CHECK(strcmp(list[0][0].call, "ncclAllGather") == 0 && strcmp(list[0][n - 1].call, "ncclAllReduce") == 0);
}

/* ---- values and streams ---- */

static void sum_of_each_dtype(rank *r)
{
    static const tg_dtype dtypes[] = {TG_F32, TG_F64, TG_BF16, TG_F16, TG_I64};
    int k;
    for (k = 0; k < 5; ++k) {
        tg_tensor *x = tg_to_dtype(tg_full(TG_SHAPE(3), r->me ? 2.5 : 1.25), dtypes[k]), *all = NULL;
        const char *failure = r->comm.all_reduce(r->comm.context, tg_data(x), 3, dtypes[k], r->device);
        if (!failure) failure = r->comm.wait(r->comm.context);
        store(r, failure ? -1 : tg_get(x, TG_SHAPE(2)));
        x = tg_full(TG_SHAPE(2), r->me + 1);
        all = tg_zeros(TG_SHAPE(2, 2));
        failure = r->comm.broadcast(r->comm.context, tg_data(x), 4, 1, r->device); /* the first of the two */
        if (!failure) failure = r->comm.all_gather(r->comm.context, tg_data(x), tg_data(all), 8, r->device);
        if (!failure) failure = r->comm.wait(r->comm.context);
        all = tg_cpu(all); /* [[a, b], [c, d]] */
        store(r, failure ? -1 : tg_get(all, TG_SHAPE(0, 0)) + 10 * tg_get(all, TG_SHAPE(0, 1)) +
                                    100 * tg_get(all, TG_SHAPE(1, 0)) + 1000 * tg_get(all, TG_SHAPE(1, 1)));
    }
}

TEST(sums_in_each_dtype)
{
    int i, k;
    run_ranks(RANKS, RANKS, 0, 0, sum_of_each_dtype);
    CHECK(all_ok(RANKS));
    for (i = 0; i < RANKS; ++i) {
        for (k = 0; k < 5; ++k) {
            CHECK_NEAR(ranks[i].number[2 * k], k < 4 ? 3.75 : 3, 0);
            CHECK_NEAR(ranks[i].number[2 * k + 1], 2 + 10 * 1 + 100 * 2 + 1000 * 2, 0);
        }
    }
}

/* Rank 1 comes only when rank 0 has done other work, and read its result. */
static void work_beside(rank *r)
{
    tg_tensor *x = tg_full(TG_SHAPE(1000), r->me + 1), *y;
    if (r->me == 1) wait_for_turn(1);
    if (r->comm.all_reduce(r->comm.context, tg_data(x), 1000, TG_F32, r->device)) return;
    if (r->me == 0) {
        y = tg_sum(tg_mul_scalar(tg_ones(TG_SHAPE(10)), 3));
        store(r, tg_item(y));
        if (r->variant == 0) set_turn(1);
    }
    if (r->comm.wait(r->comm.context)) return;
    if (r->me == 0) set_turn(1);
    y = tg_sum(x);
    store(r, tg_item(y));
}

TEST(collectives_run_beside_the_work)
{
    int k;
    for (k = 0; k < 2; ++k) { /* the second time not even wait waits for the other rank */
        run_ranks(RANKS, RANKS, k, k ? (double)INFINITY : 0, work_beside);
        CHECK(all_ok(RANKS));
        CHECK_NEAR(ranks[0].number[0], 30, 0);
        CHECK_NEAR(ranks[0].number[1], 3000, 0);
        CHECK_NEAR(ranks[1].number[0], 3000, 0);
    }
}

/* The simulator reports each of the two waits between streams, if it is left out. */
TEST(a_wait_that_is_left_out)
{
    int skipped;
    for (skipped = -1; skipped < 2; ++skipped) {
        tg_comm comm;
        tg_tensor *x;
        int errors;
        CHECK(alone(&comm, (double)INFINITY));
        cudasim_keep_going(1);
        x = tg_to(tg_ones_on(TG_SHAPE(100), TG_F32, TG_CPU), HERE);
        if (skipped == 0) cudasim_skip_call("cudaStreamWaitEvent", 0);
        CHECK(!comm.all_reduce(comm.context, tg_data(x), 100, TG_F32, HERE));
        if (skipped == 1) cudasim_skip_call("cudaStreamWaitEvent", 0);
        CHECK(!comm.wait(comm.context));
        CHECK(tg_item(tg_sum(tg_cpu(x))) == 100 && cudaDeviceSynchronize() == 0);
        tg_nccl_comm_free(&comm);
        errors = cudasim_take_errors();
        cudasim_keep_going(0);
        CHECK(skipped < 0 ? errors == 0 : errors > 0);
        CHECK(!errors || strstr(cudasim_last_error(), "nothing orders"));
        CHECK(!errors || strstr(cudasim_last_error(), "ncclAllReduce"));
    }
}

/* ---- failures ---- */

TEST(calls_that_fail)
{
    static const char *const when_made[] = {"ncclCommInitRankConfig", "ncclCommGetAsyncError",
                                            "cudaStreamCreateWithFlags", "cudaEventCreateWithFlags"};
    static const struct {
        const char *call;
        int of; /* 0: all_reduce, 1: broadcast, 2: all_gather, 3: wait */
    } rows[] = {{"ncclAllReduce", 0},   {"ncclBroadcast", 1},         {"ncclAllGather", 2},
                {"cudaEventRecord", 0}, {"cudaStreamWaitEvent", 0},   {"ncclCommGetAsyncError", 0},
                {"cudaEventRecord", 3}, {"cudaStreamWaitEvent", 3},   {"ncclCommGetAsyncError", 3},
                {"cudaEventQuery", 3}};
    const size_t events = cudasim_live(CUDASIM_EVENTS), streams = cudasim_live(CUDASIM_STREAMS);
    tg_nccl_id id;
    tg_comm comm;
    tg_tensor *x = tg_ones(TG_SHAPE(4)), *all = tg_ones(TG_SHAPE(4));
    size_t k;
    cudasim_fail_call("ncclGetUniqueId", 0, INTERNAL_ERROR);
    CHECK_FAILS(tg_nccl_new_id(&id), "tg_nccl_new_id: NCCL error: internal error");
    for (k = 0; k < 4; ++k) {
        cudasim_fail_call(when_made[k], 0, INTERNAL_ERROR);
        CHECK(!alone(&comm, 0) && tg_error_code() == TG_ERR_COMM && cudasim_failure_left() < 0 && !comm.context);
        CHECK(strstr(tg_error_message(), "tg_nccl_comm: rank 0 of 1: ") != NULL);
        CHECK(strstr(tg_error_message(), when_made[k]) || strcmp(when_made[k], "ncclCommGetAsyncError") == 0);
        tg_clear_error();
        CHECK(cudasim_live(CUDASIM_COMMUNICATORS) == 0 && cudasim_live(CUDASIM_EVENTS) == events);
        CHECK(cudasim_live(CUDASIM_STREAMS) == streams);
    }
    for (k = 0; k < sizeof rows / sizeof *rows; ++k) {
        const char *failure;
        CHECK(alone(&comm, 0));
        cudasim_fail_call(rows[k].call, 0, INTERNAL_ERROR);
        failure = rows[k].of == 0   ? comm.all_reduce(comm.context, tg_data(x), 4, TG_F32, HERE)
                  : rows[k].of == 1 ? comm.broadcast(comm.context, tg_data(x), 4, 0, HERE)
                  : rows[k].of == 2 ? comm.all_gather(comm.context, tg_data(x), tg_data(all), 4, HERE)
                                    : comm.wait(comm.context);
        CHECK(failure && strstr(failure, rows[k].call) && cudasim_failure_left() < 0 && tg_ok());
        comm.abort(comm.context);
        tg_nccl_comm_free(&comm);
        CHECK(cudasim_live(CUDASIM_COMMUNICATORS) == 0 && cudasim_live(CUDASIM_EVENTS) == events);
    }
    CHECK(alone(&comm, 0));
    cudasim_fail_call("ncclCommFinalize", 0, INTERNAL_ERROR);
    tg_nccl_comm_free(&comm); /* by ncclCommAbort */
    CHECK(tg_ok() && cudasim_live(CUDASIM_COMMUNICATORS) == 0);
}

/* What NCCL finds while the GPU works: wait tells, and each later call. */
TEST(a_failure_on_the_way)
{
    tg_comm comm;
    tg_tensor *x = tg_ones(TG_SHAPE(4));
    const char *failure;
    CHECK(alone(&comm, 0));
    CHECK(!comm.all_reduce(comm.context, tg_data(x), 4, TG_F32, HERE));
    cudasim_fail_collectives(REMOTE_ERROR);
    failure = comm.wait(comm.context);
    CHECK(failure && strstr(failure, "NCCL error: remote process exited"));
    failure = comm.all_reduce(comm.context, tg_data(x), 4, TG_F32, HERE);
    CHECK(failure && strstr(failure, "NCCL error: remote process exited"));
    tg_nccl_comm_free(&comm);
    cudasim_fail_collectives(0);
    CHECK(tg_ok() && cudasim_live(CUDASIM_COMMUNICATORS) == 0);
}

/* Rank 1 fails in its backward; rank 0 waits for it in vain. */
static void fail_in_backward(rank *r)
{
    tg_module *m = small_net();
    tg_parallel *p = tg_parallel_new(m, &r->comm, NULL);
    tg_tensor *const *params = tg_module_params(m);
    tg_backward(loss_of(m, r->device, 0, 0, 4)); /* succeeds */
    store_tensor(r, tg_grad(params[0]));
    if (r->me == 1) {
        cudasim_fail_call("ncclAllReduce", 0, INTERNAL_ERROR);
    } else {
        wait_for_turn(1);
    }
    store(r, tg_backward(loss_of(m, r->device, 1, 0, 4)));
    set_turn(1);
    snprintf(r->message, sizeof r->message, "%s", tg_error_message());
    store(r, tg_error_code());
    tg_clear_error();
    store_tensor(r, tg_grad(params[0]));
    store(r, tg_backward(loss_of(m, r->device, 1, 0, 4)));
    tg_clear_error();
    store(r, tg_item(tg_sum(tg_ones(TG_SHAPE(7))))); /* the GPU still works */
    tg_parallel_free(p);
    tg_module_free(m);
}

TEST(a_rank_that_fails)
{
    const int n = HIDDEN * INPUTS;
    const double begun = seconds_now();
    int i;
    run_ranks(RANKS, RANKS, 0, 4, fail_in_backward);
    CHECK(seconds_now() - begun < 60);
    for (i = 0; i < RANKS; ++i) {
        const double *x = ranks[i].number;
        CHECK(ranks[i].numbers == 2 * n + 4 && x[n] == (int)TG_ERR_COMM && x[n + 1] == (int)TG_ERR_COMM);
        CHECK(memcmp(x, x + n + 2, sizeof *x * (size_t)n) == 0); /* .grad is as before */
        CHECK(x[2 * n + 2] == (int)TG_ERR_COMM && x[2 * n + 3] == 7);
    }
}

static void say_message(rank *r)
{
    tg_tensor *x = tg_ones(TG_SHAPE(4));
    const char *failure;
    if (r->me == 1) {
        wait_for_turn(1);
        return;
    }
    failure = r->comm.all_reduce(r->comm.context, tg_data(x), 4, TG_F32, r->device);
    store(r, !failure);
    failure = r->comm.wait(r->comm.context);
    store(r, failure && strstr(failure, "not all ranks have answered in 4 seconds"));
    r->comm.abort(r->comm.context);
    set_turn(1);
    store(r, tg_item(tg_sum(tg_ones(TG_SHAPE(7))))); /* what the thread asks for does not wait for rank 1 */
}

static void nothing(rank *r) { (void)r; }

TEST(a_rank_that_does_not_come)
{
    double begun = seconds_now();
    run_ranks(RANKS, RANKS, 0, 4, say_message);
    CHECK(ranks[0].numbers == 3 && ranks[0].number[0] == 1 && ranks[0].number[1] == 1 && ranks[0].number[2] == 7);
    CHECK(all_ok(RANKS) && seconds_now() - begun < 60);
    begun = seconds_now();
    run_ranks(RANKS, 1, 0, 0.3, nothing);
    CHECK(ranks[0].code == TG_ERR_COMM && seconds_now() - begun < 30);
    CHECK(strstr(ranks[0].message, "tg_nccl_comm: rank 0 of 2: not all ranks have answered in 0.3 seconds") != NULL);
}

/* An engine of the thread that made it. */
static void *use_of_another(void *user)
{
    tg_comm *comm = (tg_comm *)user, copy = *comm;
    tg_tensor *x = tg_ones_on(TG_SHAPE(4), TG_F32, TG_CUDA(0));
    const char *failure = comm->all_reduce(comm->context, tg_data(x), 4, TG_F32, TG_CUDA(0));
    const bool told = failure && strstr(failure, "belongs to another thread");
    tg_set_error_handler(NULL, NULL);
    tg_nccl_comm_free(&copy);
    const bool refused = strstr(tg_error_message(), "was not made by tg_nccl_comm in this thread") != NULL;
    tg_clear_error();
    tg_thread_end();
    return told && refused && copy.context ? user : NULL;
}

TEST(another_thread)
{
    tg_comm comm;
    pthread_t thread;
    void *result = NULL;
    CHECK(alone(&comm, 0));
    pthread_create(&thread, NULL, use_of_another, &comm);
    pthread_join(thread, &result);
    CHECK(result == &comm);
    tg_nccl_comm_free(&comm);
    CHECK(!comm.context && tg_ok());
}
#endif

#else

TEST(without_nccl)
{
    tg_nccl_id id;
    tg_comm comm;
    memset(&id, 1, sizeof id);
    CHECK_FAILS(tg_nccl_comm(&comm, &id, 0, 1, HERE, 0), "tensorgrad_cuda.cu was compiled without NCCL\n  hint: "
                                                         "compile it with -DTG_USE_NCCL, and link with -lnccl");
    CHECK(!comm.context && comm.size == 0);
    CHECK_FAILS(tg_nccl_new_id(&id), "tg_nccl_new_id: tensorgrad_cuda.cu was compiled without NCCL");
    comm.context = &id;
    CHECK_FAILS(tg_nccl_comm_free(&comm), "was not made by tg_nccl_comm");
}

#endif

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    tg_set_error_handler(NULL, NULL);
    harness.device = TG_CUDA(0);
#ifdef TG_USE_NCCL
    RUN(one_rank);
    RUN(arguments);
#ifdef CUDASIM
    RUN(two_ranks_train_as_one_process);
    RUN(what_nccl_is_asked_for);
    RUN(sums_in_each_dtype);
    RUN(collectives_run_beside_the_work);
    RUN(a_wait_that_is_left_out);
    RUN(calls_that_fail);
    RUN(a_failure_on_the_way);
    RUN(a_rank_that_fails);
    RUN(a_rank_that_does_not_come);
    RUN(another_thread);
#endif
#else
    RUN(without_nccl);
#endif
    tg_shutdown();
    return harness_end();
}
