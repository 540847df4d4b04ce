/* What a device does while the host goes on: non-blocking moves, page-locked memory, GPU to GPU, tensors shared between
 * threads, checks that wait.  Nothing may be read too early, written too early or freed too early: the simulator
 * (TG_SIM_STREAMS=lazy, others) ends the program that does.  Without a device nothing here can be asked. */
#if !defined(__cplusplus) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L /* barriers */
#endif
#include "tensorgrad.h"
#include "harness.h"
#include <pthread.h>
#ifdef CUDASIM
#include "cudasim_test.h"
#endif

#define N 5000
#define SUM_TO_N ((N - 1) * (double)N / 2)

static tg_device first, last; /* the same where there is one */

static int64_t waits(void) { return tg_stats_on(first).waits + tg_stats_on(last).waits; }
static tg_tensor *numbers(void) { return tg_arange(0, N, 1); }
static double sum(tg_tensor *t) { return tg_item(tg_sum(t)); }

TEST(a_page_locked_copy)
{
    tg_tensor *t = numbers(), *p = tg_pin_memory(t);
    CHECK(tg_is_pinned(p) && !tg_is_pinned(t) && tg_pin_memory(p) == p && tg_is_pinned(tg_narrow(p, 0, 3, 9)));
    CHECK(tg_equal(p, t) && tg_data(p) != tg_data(t) && !tg_is_pinned(tg_clone(p)));
    CHECK(tg_stride(tg_pin_memory(tg_t(tg_ones(TG_SHAPE(3, 4)))), 0) == 1);
    CHECK(tg_numel(tg_pin_memory(tg_ones(TG_SHAPE(0)))) == 0);
    CHECK_FAILS(tg_pin_memory(tg_to(t, first)), "cannot pin");
    CHECK(!tg_is_pinned(tg_to(t, first)));
}

TEST(up_without_waiting)
{
    tg_tensor *p = tg_pin_memory(numbers()), *x = NULL, *y;
    int64_t before = waits();
    int i;
    for (i = 0; i < 5; ++i) {
        TG_SCOPE;
        x = tg_to_ex(p, first, TG_F32, TG_NON_BLOCKING);
        y = tg_add(tg_mul_scalar(x, 2), x);
        CHECK(waits() == before);
        CHECK_NEAR(sum(y), 3 * SUM_TO_N, 1e-6);
        before = waits();
    }
    { TG_SCOPE; (void)tg_to_ex(tg_pin_memory(p), first, TG_F32, TG_NON_BLOCKING); } /* freed before it was used */
    { TG_SCOPE; x = tg_keep(tg_to_ex(tg_pin_memory(numbers()), last, TG_F32, TG_NON_BLOCKING)); }
    CHECK_NEAR(sum(x), SUM_TO_N, 1e-6); /* the source has been freed */
    x = tg_to_ex(p, first, TG_F32, TG_NON_BLOCKING), y = tg_to_ex(p, last, TG_F32, TG_NON_BLOCKING);
    tg_fill_(p, 9); /* this waits for both */
    CHECK_NEAR(sum(x), SUM_TO_N, 1e-6);
    CHECK_NEAR(sum(y), SUM_TO_N, 1e-6);
    CHECK_NEAR(sum(p), 9.0 * N, 0);
    x = tg_to_ex(tg_pin_memory(tg_t(tg_ones(TG_SHAPE(100, 7)))), first, TG_F32, TG_NON_BLOCKING);
    CHECK(tg_stride(x, 0) == 1 && tg_stride(x, 1) == 7);
    CHECK_NEAR(sum(tg_to_ex(p, first, TG_F64, TG_NON_BLOCKING)), 9.0 * N, 0); /* converted: an ordinary move */
}

TEST(down_without_waiting)
{
    tg_tensor *x = tg_arange_on(0, N, 1, TG_F32, first), *y = tg_mul_scalar(x, 2), *h;
    int64_t before = waits();
    int i;
    h = tg_to_ex(y, TG_CPU, TG_F32, TG_NON_BLOCKING);
    tg_fill_(y, 0); /* waits for the copy, on the device */
    CHECK(tg_is_pinned(h) && waits() == before);
    CHECK_NEAR(sum(h), 2 * SUM_TO_N, 1e-6);
    { TG_SCOPE; h = tg_keep(tg_to_ex(tg_mul_scalar(x, 3), TG_CPU, TG_F64, TG_NON_BLOCKING)); }
    CHECK_NEAR(tg_data_f64(h)[10], 30, 0);
    for (i = 0; i < 3; ++i) { /* one after the other, into memory that may still be in use */
        TG_SCOPE;
        (void)tg_to_ex(x, TG_CPU, TG_F32, TG_NON_BLOCKING);
    }
    h = tg_to_ex(tg_t(tg_view(x, TG_SHAPE(50, 100))), TG_CPU, TG_F32, TG_NON_BLOCKING);
    CHECK(tg_stride(h, 0) == 1 && tg_get(h, TG_INDEX(1, 2)) == 201);
    h = tg_to_ex(tg_to_ex(h, last, TG_F32, TG_NON_BLOCKING), TG_CPU, TG_F32, TG_NON_BLOCKING);
    CHECK_NEAR(sum(h), SUM_TO_N, 1e-6);
    h = tg_to_ex(tg_zeros_on(TG_SHAPE(5), TG_I64, first), TG_CPU, TG_I64, TG_NON_BLOCKING);
    CHECK(tg_numel(tg_one_hot(h, 3)) == 15); /* which reads them before any op does */
}

/* Composites that hand their arguments to a backend themselves wait for them, too. */
TEST(numbers_that_arrive)
{
    tg_tensor *there = tg_arange_on(0, N, 1, TG_F64, first), *index = NULL, *y, *wanted;
    y = tg_cummax(tg_to_ex(there, TG_CPU, TG_F64, TG_NON_BLOCKING), 0, &index);
    CHECK_NEAR(sum(y), SUM_TO_N, 1e-6);
    CHECK_NEAR(sum(index), SUM_TO_N, 0);
    tg_seed(1);
    wanted = tg_poisson(tg_cpu(there));
    tg_seed(1);
    CHECK(tg_equal(tg_poisson(tg_to_ex(there, TG_CPU, TG_F64, TG_NON_BLOCKING)), wanted));
}

TEST(from_device_to_device)
{
    tg_tensor *x = tg_set_requires_grad(tg_arange_on(0, N, 1, TG_F32, first), true), *y;
    int64_t before = waits(), sent = tg_stats_on(last).received;
    y = tg_add_scalar(tg_to(tg_mul_scalar(x, 2), last), 1);
    y = tg_to(tg_t(tg_view(y, TG_SHAPE(50, 100))), first);
    CHECK(waits() == before);
    if (!tg_device_equal(first, last)) CHECK(tg_stats_on(last).received == sent + 4 * N);
    CHECK_NEAR(sum(y), 2 * SUM_TO_N + N, 1e-6);
    CHECK(tg_backward(tg_sum(y)) == TG_OK && tg_device_equal(tg_device_of(tg_grad(x)), first));
    CHECK_NEAR(sum(tg_grad(x)), 2.0 * N, 0);
}

#ifdef CUDASIM
enum { BATCHES = 8, KERNEL = 1, COPY = 3 };

static void begin_clock(void)
{
    double times[CUDASIM_TIMES] = {0};
    times[CUDASIM_TIME_OF_KERNEL] = KERNEL, times[CUDASIM_TIME_OF_COPY] = COPY;
    tg_synchronize(first), tg_synchronize(last);
    cudasim_pretend_times(times);
}

static double end_clock(void)
{
    tg_synchronize(first), tg_synchronize(last);
    const double passed = cudasim_pretended_time();
    cudasim_pretend_times(NULL);
    return passed;
}

/* Three kernels, for as long as a copy takes. */
static tg_tensor *stage(tg_tensor *x) { return tg_neg(tg_abs(tg_neg(x))); }

/* The time for batches that are moved to a GPU and worked on there: each moved when its turn comes, or, not waiting,
   before the work on the one before it begins. */
static double time_of_batches(bool ahead)
{
    TG_SCOPE;
    tg_tensor *batch = tg_pin_memory(numbers());
    const int how = ahead ? TG_NON_BLOCKING : 0;
    begin_clock();
    tg_tensor *x = tg_to_ex(batch, first, TG_F32, how);
    for (int i = 1; i <= BATCHES; ++i) {
        tg_tensor *next = ahead && i < BATCHES ? tg_to_ex(batch, first, TG_F32, how) : NULL;
        CHECK(stage(x) != NULL);
        x = next ? next : i < BATCHES ? tg_to_ex(batch, first, TG_F32, how) : NULL;
    }
    return end_clock();
}

/* The time for batches that pass two stages: on one GPU, or on two with a copy between them, which is a part of the
   first one's work. */
static double time_of_stages(tg_device second)
{
    TG_SCOPE;
    tg_tensor *x = tg_arange_on(0, N, 1, TG_F32, first);
    begin_clock();
    for (int i = 0; i < BATCHES; ++i) CHECK(stage(tg_to(stage(x), second)) != NULL);
    return end_clock();
}

TEST(copies_and_work_at_the_same_time)
{
    const double each = time_of_batches(false), ahead = time_of_batches(true);
    const double one = time_of_stages(first), two = time_of_stages(last);
    printf("pretended clock: %d batches %g ms, copied ahead %g; two stages on one GPU %g, on two %g\n", BATCHES, each,
           ahead, one, two);
    CHECK(each == BATCHES * (COPY + 3 * KERNEL) && ahead == COPY + BATCHES * 3 * KERNEL);
    CHECK(one == BATCHES * 2 * 3 * KERNEL);
    if (!tg_device_equal(first, last)) CHECK(two == BATCHES * (3 * KERNEL + COPY) + 3 * KERNEL); /* of 72 in a row */
}
#endif

/* Copies of ordinary memory go in parts through page-locked memory. */
TEST(copies_of_every_size)
{
    static const int64_t size[] = {0, 1, 2, 262144, 262145, 524288, 700001};
    int64_t received = tg_stats_on(first).received, bytes = tg_stats_on(first).bytes;
    size_t i;
    for (i = 0; i < sizeof size / sizeof size[0]; ++i) {
        TG_SCOPE;
        tg_tensor *t = tg_arange(0, (double)size[i], 1), *there = tg_to(t, first);
        CHECK(tg_equal(tg_cpu(there), t));
        CHECK(tg_stats_on(first).received == received + 4 * size[i] && tg_stats_on(first).bytes == bytes + 4 * size[i]);
        CHECK(tg_stats_on(first).peak_bytes >= bytes + 4 * size[i]);
        received += 4 * size[i];
    }
    CHECK(tg_stats_on(first).cached_bytes >= 0 && tg_stats_on(TG_CPU).received > 0);
    CHECK_FAILS(tg_stats_on(TG_CUDA(15)), "ordinal");
    CHECK(tg_empty_cache(first) == TG_OK);
    CHECK_FAILS(tg_empty_cache(TG_CUDA(15)), "ordinal");
}

TEST(checks_that_wait)
{
    int64_t seven = 7;
    tg_tensor *x = tg_ones_on(TG_SHAPE(3, 2), TG_F32, first), *i = tg_from_on(&seven, TG_SHAPE(1), TG_I64, first);
    CHECK(tg_index_select(x, 0, i) != NULL);
    CHECK_FAILS(tg_synchronize(first), "index_select: index out of range in self (detected later)");
    CHECK(tg_synchronize(first) == TG_OK && tg_op_waits("item") && !tg_op_waits("add"));
    tg_set_sync_checks(true);
    CHECK(tg_index_select(x, 0, i) == NULL && !strstr(tg_error_message(), "later"));
    CHECK_FAILS(tg_index_select(x, 0, i), "index out of range in self");
    { int64_t before = waits(); (void)tg_add_scalar(x, 1); CHECK(waits() > before); }
    tg_set_sync_checks(false);
}

TEST(lists_move_as_one)
{
    tg_tensor *list[3];
    list[0] = tg_ones(TG_SHAPE(2)), list[1] = tg_ones(TG_SHAPE(3)), list[2] = NULL;
    CHECK_FAILS(tg_to_all(list, 3, last), "to_all: argument list[2] is NULL");
    CHECK(!tg_is_cuda(list[0]));
    CHECK(tg_to_all(list, 2, last) == TG_OK && tg_is_cuda(list[1]) && tg_to_all(list, 0, last) == TG_OK);
    CHECK_NEAR(sum(list[0]), 2, 0);
    CHECK_FAILS(tg_to_all(NULL, 1, last), "NULL");
}

/* Two threads take turns in updating the weights; a lock orders the calls, and the library orders the work of the
 * device. */
enum { STEPS = 4 };
static tg_tensor *weights;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

static void *train(void *ok)
{
    tg_mark mark = tg_scope_begin();
    int step;
    for (step = 0; step < STEPS; ++step) {
        tg_tensor *y, *g;
        pthread_mutex_lock(&turn);
        y = tg_sum(tg_mul(weights, weights));
        *(bool *)ok = tg_gradients(&y, 1, NULL, &weights, 1, &g, 0) == TG_OK && *(bool *)ok;
        { TG_NO_GRAD; tg_sub_(weights, tg_mul_scalar(g, 0.1)); }
        pthread_mutex_unlock(&turn);
    }
    tg_scope_end(mark);
    tg_thread_end();
    return NULL;
}

TEST(weights_of_two_threads)
{
    pthread_t thread[2];
    bool ok[2] = {true, true};
    double wanted = N;
    int k;
    weights = tg_share(tg_param(tg_ones_on(TG_SHAPE(N), TG_F32, first)));
    for (k = 0; k < 2; ++k) pthread_create(&thread[k], NULL, train, &ok[k]);
    for (k = 0; k < 2; ++k) pthread_join(thread[k], NULL);
    for (k = 0; k < 2 * STEPS; ++k) wanted *= 0.8; /* w - 0.1 * 2 w */
    CHECK(ok[0] && ok[1]);
    CHECK_NEAR(sum(weights), wanted, 1e-5);
    tg_release(weights);
}

/* A thread that asks for a sum and neither waits for it nor ends before its caller has written what is summed. */
static pthread_barrier_t asked, written;
static void *sum_of_weights(void *result)
{
    tg_mark mark = tg_scope_begin();
    *(tg_tensor **)result = tg_share(tg_sum(weights));
    pthread_barrier_wait(&asked);
    pthread_barrier_wait(&written);
    tg_scope_end(mark);
    tg_thread_end();
    return NULL;
}

TEST(a_write_after_the_reads_of_another_thread)
{
    pthread_t thread;
    tg_tensor *result = NULL;
    weights = tg_share(tg_ones_on(TG_SHAPE(N), TG_F32, first));
    pthread_barrier_init(&asked, NULL, 2), pthread_barrier_init(&written, NULL, 2);
    pthread_create(&thread, NULL, sum_of_weights, &result);
    pthread_barrier_wait(&asked);
    CHECK(tg_fill_(weights, 7) == weights);
    CHECK_NEAR(tg_item(result), N, 0);
    pthread_barrier_wait(&written);
    pthread_join(thread, NULL);
    pthread_barrier_destroy(&asked), pthread_barrier_destroy(&written);
    tg_release(weights), tg_release(result);
}

/* ---- gradients that are still on their way to the host ---- */

static tg_tensor *of_softmax(tg_tensor *x) { return tg_softmax(x, -1); }
static tg_tensor *of_log_softmax(tg_tensor *x) { return tg_log_softmax(x, -1); }
static tg_tensor *of_layer_norm(tg_tensor *x) { return tg_layer_norm(x, 1, NULL, NULL, 1e-5); }
static tg_tensor *of_rms_norm(tg_tensor *x) { return tg_rms_norm(x, 1, tg_ones(TG_SHAPE(50)), 1e-5); }
static tg_tensor *of_gelu(tg_tensor *x) { return tg_gelu(x, false); }
static tg_tensor *of_linear(tg_tensor *x) { return tg_linear(x, tg_ones(TG_SHAPE(50, 50)), NULL); }
static tg_tensor *of_linear_gelu(tg_tensor *x) { return tg_gelu(tg_linear(x, tg_ones(TG_SHAPE(50, 50)), NULL), false); }
static tg_tensor *of_attention(tg_tensor *x) { return tg_scaled_dot_product_attention(x, x, x, NULL, 0, true, 0); }
static tg_tensor *of_embedding(tg_tensor *x) { return tg_embedding(x, tg_to_dtype(tg_arange(0, 50, 1), TG_I64)); }
static tg_tensor *of_max(tg_tensor *x) { return tg_amax_dim(x, 1, true); }

static tg_tensor *a_move_to_the_host(tg_tensor *g, void *there)
{
    (void)g;
    return tg_to_ex((tg_tensor *)there, TG_CPU, TG_F32, TG_NON_BLOCKING);
}

TEST(gradients_that_arrive)
{
    static tg_tensor *(*const op[])(tg_tensor *) = {of_softmax, of_log_softmax, of_layer_norm, of_rms_norm,  of_gelu,
                                                    of_linear,  of_linear_gelu, of_attention,  of_embedding, of_max};
    tg_tensor *numbers = tg_div_scalar(tg_arange(0, 2500, 1), 1250);
    for (size_t k = 0; k < sizeof op / sizeof *op; ++k) {
        TG_SCOPE;
        tg_tensor *x = tg_set_requires_grad(tg_view(tg_clone(numbers), TG_SHAPE(50, 50)), true), *y = op[k](x);
        tg_tensor *want, *g;
        g = tg_mul(y, y);
        CHECK(tg_backward_ex(&y, 1, &g, 0) == TG_OK);
        want = tg_clone(tg_grad(x));
        tg_zero_grad(&x, 1);
        y = op[k](x);
        g = tg_to(tg_detach(tg_mul(y, y)), first);
        tg_hook(y, a_move_to_the_host, g);
        g = tg_zeros_like(y);
        CHECK(tg_backward_ex(&y, 1, &g, 0) == TG_OK);
        CHECK(tg_equal(tg_grad(x), want));
    }
}

/* What the host itself looks at may still be on its way from the device: integers that are compared, indices. */
TEST(integers_that_arrive)
{
    tg_tensor *wanted = tg_to_dtype(tg_arange(0, 300, 1), TG_I64), *there = tg_to(wanted, first), *list[1];
    tg_tensor *table = tg_arange(0, 300, 1), *taken;
    CHECK(tg_equal(tg_to_ex(there, TG_CPU, TG_I64, TG_NON_BLOCKING), wanted));
    taken = tg_take_along_dim(table, tg_to_ex(there, TG_CPU, TG_I64, TG_NON_BLOCKING), 0);
    CHECK(taken && tg_equal(taken, table));
    list[0] = tg_to_ex(there, TG_CPU, TG_I64, TG_NON_BLOCKING);
    taken = tg_index(table, list, 1);
    CHECK(taken && tg_equal(taken, table));
    taken = tg_one_hot(tg_to_ex(there, TG_CPU, TG_I64, TG_NON_BLOCKING), 300);
    CHECK(taken && tg_item(tg_sum(tg_diagonal(taken, 0, 0, 1))) == 300);
    taken = tg_bincount(tg_to_ex(there, TG_CPU, TG_I64, TG_NON_BLOCKING), NULL, 0);
    CHECK(taken && tg_item(tg_sum(taken)) == 300);
}

/* Calls that are no ops, but wait: tg_op_waits knows them. */
TEST(calls_that_wait)
{
    static const char path[] = "test_streams.tmp";
    static const char *const name[] = {"npy_save", "npz_save", "safetensors_save", "module_save", "checkpoint_save",
                                       "tape_print", "tape_dot", "backward", "gradients", "forward"};
    tg_module *net = tg_nn_batch_norm(2, 1e-5, -1);
    FILE *nowhere = fopen(path, "wb");
    size_t k;
    CHECK(nowhere && tg_module_to(net, first) != NULL);
    for (k = 0; nowhere && k < sizeof name / sizeof *name; ++k) {
        TG_SCOPE;
        tg_tensor *x = tg_set_requires_grad(tg_ones_on(TG_SHAPE(2, 2, 3, 3), TG_F32, TG_CPU), true);
        tg_tensor *y = tg_to(x, first), *loss = tg_sum(y), *dx;
        tg_dict *dict = tg_dict_new();
        int64_t before = waits();
        bool pends; /* where work is done when it is queued, nothing waits */
        tg_dict_set(dict, "y", y);
        (void)tg_item(loss);
        pends = waits() > before;
        before = waits();
        if (k == 0) CHECK(tg_npy_save(path, y) == TG_OK);
        if (k == 1) CHECK(tg_npz_save(path, dict) == TG_OK);
        if (k == 2) CHECK(tg_safetensors_save(path, dict) == TG_OK);
        if (k == 3) CHECK(tg_module_save(net, path) == TG_OK);
        if (k == 4) CHECK(tg_checkpoint_save(path, net, NULL, 1) == TG_OK);
        if (k == 5) CHECK(tg_tape_print(nowhere, loss) == TG_OK);
        if (k == 6) CHECK(tg_tape_dot(nowhere, loss) == TG_OK);
        if (k == 7) CHECK(tg_backward(loss) == TG_OK);
        if (k == 8) CHECK(tg_gradients(&loss, 1, NULL, &x, 1, &dx, 0) == TG_OK);
        if (k == 9) CHECK(tg_forward(net, y) != NULL);
        if (waits() <= before && pends) printf("    %s did not wait\n", name[k]);
        CHECK((waits() > before || !pends) && tg_op_waits(name[k]));
        tg_dict_free(dict);
    }
    if (nowhere) fclose(nowhere);
    tg_module_free(net);
    remove(path);
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    if (!tg_cuda_is_available()) {
        CHECK(!tg_is_pinned(tg_ones(TG_SHAPE(1))) && tg_op_waits("get"));
        CHECK_FAILS(tg_pin_memory(tg_ones(TG_SHAPE(1))), "CUDA");
        CHECK_FAILS(tg_to_all(NULL, 1, TG_CPU), "NULL");
        printf("skipped: the other tests want a device\n");
        return harness_end();
    }
    first = TG_CUDA(0), last = TG_CUDA(tg_cuda_device_count() - 1);
    RUN(a_page_locked_copy);
    RUN(up_without_waiting);
    RUN(down_without_waiting);
    RUN(numbers_that_arrive);
    RUN(from_device_to_device);
#ifdef CUDASIM
    RUN(copies_and_work_at_the_same_time);
#endif
    RUN(copies_of_every_size);
    RUN(checks_that_wait);
    RUN(lists_move_as_one);
    RUN(weights_of_two_threads);
    RUN(a_write_after_the_reads_of_another_thread);
    RUN(gradients_that_arrive);
    RUN(integers_that_arrive);
    RUN(calls_that_wait);
    tg_shutdown();
    return harness_end();
}
