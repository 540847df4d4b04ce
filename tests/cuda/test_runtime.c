/* The runtime part of the CUDA backend on the simulator: blocks of device memory that are kept and used again, the
 * caller's current device, copies beside the work, waits, and what happens after a fault of the device.  Built with
 * `make sim`; TG_SIM_DEVICES=2. */
#define _POSIX_C_SOURCE 200809L /* setenv */
#include "tensorgrad.h"
#include "../cudasim/cudasim_test.h"
#include "../harness.h"
#include <pthread.h>

/* of the CUDA runtime, whose header is for C++ */
extern int cudaGetDevice(int *device), cudaSetDevice(int device), cudaMemGetInfo(size_t *free_bytes, size_t *bytes);

enum { NO_KERNEL_IMAGE = 209, ILLEGAL_ADDRESS = 700 };
static tg_device first, last;

static long long allocations(void) { return cudasim_total(CUDASIM_DRIVER_ALLOCATIONS); }

static int current(void)
{
    int device = -1;
    cudaGetDevice(&device);
    return device;
}

/* Kernels, products, copies and fills. */
static long long work_so_far(void)
{
    tg_synchronize(first);
    return cudasim_total(CUDASIM_KERNELS) + cudasim_total(CUDASIM_LIBRARY_CALLS) + cudasim_total(CUDASIM_COPIES);
}

static double some_work(int64_t n)
{
    TG_SCOPE;
    tg_tensor *x = tg_arange_on(0, (double)n, 1, TG_F32, first);
    return tg_item(tg_sum(tg_mul(tg_add_scalar(x, 1), x)));
}

TEST(blocks_are_used_again)
{
    double right;
    long long before;
    CHECK(tg_empty_cache(first) == TG_OK && tg_stats_on(first).cached_bytes == 0);
    right = some_work(1000);
    CHECK(tg_stats_on(first).cached_bytes >= 3 * 4000);
    before = allocations();
    for (int i = 0; i < 5; ++i) CHECK_NEAR(some_work(1000), right, 0);
    for (int i = 0; i < 5; ++i) some_work(990 + i); /* of the same class of sizes */
    CHECK(allocations() == before);
    CHECK(tg_empty_cache(first) == TG_OK && tg_stats_on(first).cached_bytes == 0);
    CHECK_NEAR(some_work(1000), right, 0);
    CHECK(allocations() > before);
}

/* A program that uses one device alone makes a context on no other one.  Runs first: contexts stay. */
TEST(one_device_alone)
{
    TG_SCOPE;
    tg_tensor *data = tg_arange(0, 64, 1), *batch, *w = tg_param(tg_ones_on(TG_SHAPE(8), TG_F32, last));
    tg_loader *loader = tg_loader_new(&data, 1, 8, 0, last); /* its batches come from page-locked memory */
    tg_optim *optim = tg_adamw(&w, 1, 0.1);
    while (tg_loader_next(loader, &batch)) {
        TG_SCOPE;
        CHECK(tg_optim_zero_grad(optim) == TG_OK);
        CHECK(tg_backward(tg_sum(tg_mul(batch, w))) == TG_OK && tg_step(optim) == TG_OK);
        (void)tg_to_ex(tg_detach(w), TG_CPU, TG_SAME_DTYPE, TG_NON_BLOCKING);
    }
    CHECK(tg_pin_memory(tg_ones(TG_SHAPE(100))) != NULL && tg_synchronize(last) == TG_OK);
    CHECK(tg_ok() && cudasim_live(CUDASIM_CONTEXTS) == 1 && current() == last.index);
    tg_loader_free(loader);
    tg_optim_free(optim);
    tg_release(w);
    cudaSetDevice(0); /* the program uses the other device, which makes the second context */
    CHECK(cudasim_live(CUDASIM_CONTEXTS) == 2);
    (void)tg_ones_on(TG_SHAPE(8), TG_F32, last);
    CHECK(current() == 0);
}

/* With TG_SIM_REUSE the simulator fills what is handed out again, so that nothing can rely on what a block held. */
TEST(blocks_hold_no_numbers)
{
    uint32_t words[1000];
    some_work(1000);
    {
        TG_SCOPE;
        long long before = allocations();
        CHECK(tg_copy_out(tg_empty_on(TG_SHAPE(1000), TG_F32, first), words, sizeof words) == TG_OK);
        CHECK(allocations() == before);
        for (int i = 0; i < 1000; ++i) CHECK(words[i] == 0xffaaffaau);
    }
}

/* What is kept in one size is given back where another size needs the memory. */
TEST(kept_blocks_make_room)
{
    cudasim_limit_memory(0, 8 << 20);
    CHECK(tg_empty_cache(first) == TG_OK);
    for (int64_t n = 1 << 18; n <= 1 << 20; n *= 2) {
        TG_SCOPE;
        CHECK(tg_ones_on(TG_SHAPE(n), TG_F32, first) != NULL && tg_ok());
    }
    CHECK_FAILS(tg_ones_on(TG_SHAPE(1 << 22), TG_F32, first), "out of memory");
    cudasim_limit_memory(0, (size_t)1 << 30);
}

/* Another thread does not get what this one has freed, but where memory is short, it can have it. */
static void *in_a_thread(void *made)
{
    const long long before = allocations();
    some_work(1000);
    *(long long *)made = allocations() - before;
    tg_thread_end();
    return NULL;
}

static long long made_by_a_thread(void)
{
    pthread_t thread;
    long long made = -1;
    pthread_create(&thread, NULL, in_a_thread, &made);
    pthread_join(thread, NULL);
    return made;
}

TEST(threads_keep_their_own_blocks)
{
    size_t kept, left, all;
    some_work(1000);
    kept = (size_t)tg_stats_on(first).cached_bytes;
    CHECK(made_by_a_thread() > 3);
    CHECK((size_t)tg_stats_on(first).cached_bytes == kept); /* the thread has given back its own */
    cudaMemGetInfo(&left, &all);
    cudasim_limit_memory(0, all - left + 4096); /* not enough for the thread beside what is kept */
    CHECK(made_by_a_thread() > 3 && (size_t)tg_stats_on(first).cached_bytes == 0);
    cudasim_limit_memory(0, (size_t)1 << 30);
}

/* Batches that are fetched ahead get the blocks of the batches before the last one. */
TEST(blocks_of_copies)
{
    TG_SCOPE;
    tg_tensor *data = tg_arange(0, 4096, 1), *batch;
    tg_loader *loader = tg_loader_new(&data, 1, 256, 0, first);
    long long before = 0;
    double sum = 0;
    for (int step = 0; step < 16; ++step) {
        TG_SCOPE;
        CHECK(tg_loader_next(loader, &batch));
        sum += tg_item(tg_sum(tg_mul_scalar(batch, 2)));
        if (step == 4) before = allocations();
    }
    CHECK(before > 0 && allocations() == before);
    CHECK_NEAR(sum, 4096.0 * 4095, 0);
    tg_loader_free(loader);
}

/* Copies that run until the sum of what is copied to the device is known; one from it may have begun before. */
static long long copies_for_a_sum(tg_tensor *host, tg_tensor *x)
{
    TG_SCOPE;
    tg_synchronize(first);
    const long long before = cudasim_total(CUDASIM_COPIES);
    tg_tensor *down = x ? tg_to_ex(x, TG_CPU, TG_F32, TG_NON_BLOCKING) : NULL;
    CHECK(tg_item(tg_sum(tg_to_ex(host, first, TG_F32, TG_NON_BLOCKING))) == 499500);
    const long long ran = cudasim_total(CUDASIM_COPIES) - before;
    CHECK(!down || tg_item(tg_sum(down)) == 1000);
    return ran;
}

/* A copy to the device does not wait for one from it: with TG_SIM_STREAMS=lazy, which runs only what is waited for, the
   latter does not run. */
TEST(copies_both_ways)
{
    TG_SCOPE;
    const char *const streams = getenv("TG_SIM_STREAMS");
    const bool lazy = !streams || !strcmp(streams, "lazy");
    tg_tensor *host = tg_pin_memory(tg_arange(0, 1000, 1)), *x = tg_ones_on(TG_SHAPE(1000), TG_F32, first);
    const long long alone = copies_for_a_sum(host, NULL);
    CHECK(copies_for_a_sum(host, x) == alone + !lazy);
}

TEST(the_device_of_the_caller)
{
    TG_SCOPE;
    tg_tensor *x = tg_ones_on(TG_SHAPE(10), TG_F32, last), *y;
    CHECK(current() == 0);
    y = tg_to(tg_add(x, x), first);
    CHECK(current() == 0 && tg_item(tg_sum(y)) == 20);
    cudaSetDevice(last.index); /* the program uses CUDA itself */
    y = tg_to(tg_mul(y, y), last);
    CHECK(current() == last.index && tg_item(tg_sum(y)) == 40);
    CHECK(tg_cuda_set_device(0) == TG_OK && current() == 0);
    CHECK(tg_cuda_set_device(last.index) == TG_OK && current() == last.index && tg_cuda_current_device() == last.index);
    CHECK(tg_cuda_set_device(0) == TG_OK);
}

/* One wait brings the value and the report of a bad index.  With TG_SIM_STREAMS=eager the device has done its work
   before the host asks: there is nothing to wait for. */
TEST(one_wait)
{
    TG_SCOPE;
    const char *const streams = getenv("TG_SIM_STREAMS");
    const int waits = streams && !strcmp(streams, "eager") ? 0 : 1;
    const int64_t rows[] = {1, 7};
    long long before;
    tg_tensor *x = tg_ones_on(TG_SHAPE(3), TG_F32, first), *i = tg_from_on(rows, TG_SHAPE(2), TG_I64, first);
    tg_tensor *y = tg_sum(tg_index_select(x, 0, tg_narrow(i, 0, 0, 1)));
    before = cudasim_total(CUDASIM_WAITS);
    CHECK(tg_item(y) == 1);
    CHECK(cudasim_total(CUDASIM_WAITS) == before + waits);
    y = tg_sum(tg_index_select(x, 0, i));
    CHECK_FAILS(tg_item(y), "index out of range");
    CHECK(tg_item(tg_sum(x)) == 3 && tg_ok());
}

/* Gradients are zeroed by being removed, however many there are: no launch and no copy, and the next backward stores
   its gradients without adding them to zeros. */
TEST(zeroing_gradients_launches_nothing)
{
    enum { PARAMS = 200, WAYS = 3 };
    tg_tensor *p[PARAMS];
    long long work[WAYS];
    for (int i = 0; i < PARAMS; ++i) p[i] = tg_param(tg_ones_on(TG_SHAPE(100), TG_F32, first));
    tg_optim *optim = tg_sgd(p, PARAMS, 0.1);
    tg_module *m = tg_module_new("many", NULL, 0);
    for (int i = 0; i < PARAMS; ++i) {
        char name[16];
        snprintf(name, sizeof name, "p%d", i);
        tg_module_param(m, name, p[i]);
    }
    for (int way = 0; way < WAYS; ++way) {
        TG_SCOPE;
        tg_tensor *sum = tg_sum(p[0]);
        for (int i = 1; i < PARAMS; ++i) sum = tg_add(sum, tg_sum(p[i]));
        work[way] = work_so_far();
        CHECK(tg_backward(sum) == TG_OK && tg_grad(p[PARAMS - 1]) != NULL);
        work[way] = work_so_far() - work[way];
        const long long before = work_so_far();
        if (way == 0) CHECK(tg_zero_grad(p, PARAMS) == TG_OK);
        if (way == 1) CHECK(tg_optim_zero_grad(optim) == TG_OK);
        if (way == 2) CHECK(tg_module_zero_grad(m) == TG_OK);
        CHECK(work_so_far() == before);
        for (int i = 0; i < PARAMS; ++i) CHECK(tg_grad(p[i]) == NULL);
    }
    CHECK(work[0] > 0 && work[1] == work[0] && work[2] == work[0]);
    tg_optim_free(optim);
    for (int i = 0; i < PARAMS; ++i) tg_release(p[i]);
    tg_module_free(m);
}

static int errors;
static void count_errors(tg_status code, const char *message, void *user)
{
    (void)code, (void)message, (void)user;
    ++errors;
}

TEST(after_a_fault)
{
    tg_mark mark = tg_scope_begin();
    tg_tensor *x = tg_ones_on(TG_SHAPE(10), TG_F32, first), *sum = tg_sum(x), *cpu;
    CHECK(tg_item(sum) == 10);
    tg_set_error_handler(count_errors, NULL);
    cudasim_fault(ILLEGAL_ADDRESS);
    CHECK(tg_add(x, x) == NULL && errors == 1);
    CHECK(strstr(tg_error_message(), "illegal memory access") && strstr(tg_error_message(), "no GPU can be used"));
    CHECK(tg_mul(x, x) == NULL && tg_synchronize(first) != TG_OK && isnan(tg_item(sum)) && errors == 1);
    tg_clear_error();
    CHECK(tg_mul(x, x) == NULL && errors == 2 && strstr(tg_error_message(), "since an error: an illegal memory"));
    tg_clear_error();
    tg_scope_end(mark); /* frees in silence */
    CHECK(errors == 2 && tg_ok());
    mark = tg_scope_begin();
    cpu = tg_ones(TG_SHAPE(10));
    CHECK(tg_item(tg_sum(tg_add(cpu, cpu))) == 20 && tg_ok()); /* the CPU works on */
    tg_scope_end(mark);
    cudasim_fault(0); /* only so that nothing is left */
    tg_shutdown();
    CHECK(errors == 2 && tg_ok());
    tg_set_error_handler(NULL, NULL);
    CHECK_NEAR(some_work(1000), 333332500.0 + 500, 500);
}

/* Each error that ends the use of GPUs is told once, and what follows from it is no other error; others end nothing. */
TEST(every_fault_is_told_once)
{
    static const int faults[] = {214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 810, 999};
    static const int others[] = {1, 2, 98, 209, 400, 801};
    char code[20];
    for (size_t k = 0; k < sizeof faults / sizeof faults[0]; ++k) {
        tg_mark mark = tg_scope_begin();
        tg_tensor *x = tg_ones_on(TG_SHAPE(10), TG_F32, first);
        snprintf(code, sizeof code, "%d", faults[k]);
        harness.sample = code;
        tg_synchronize(first);
        tg_clear_error();
        errors = 0;
        tg_set_error_handler(count_errors, NULL);
        cudasim_fault(faults[k]);
        CHECK(tg_add(x, x) == NULL && errors == 1 && strstr(tg_error_message(), "no GPU can be used any more"));
        CHECK(tg_mul(x, x) == NULL && tg_synchronize(first) != TG_OK && isnan(tg_item(tg_sum(x))) && errors == 1);
        tg_clear_error();
        CHECK(tg_ones_on(TG_SHAPE(2), TG_F32, last) == NULL && errors == 2);
        CHECK(strstr(tg_error_message(), "since an error") != NULL);
        tg_clear_error();
        tg_scope_end(mark);
        cudasim_fault(0); /* only so that nothing is left */
        tg_shutdown();
        CHECK(errors == 2 && tg_ok());
        tg_set_error_handler(NULL, NULL);
    }
    for (size_t k = 0; k < sizeof others / sizeof others[0]; ++k) {
        TG_SCOPE;
        tg_tensor *x = tg_ones_on(TG_SHAPE(10), TG_F32, first);
        snprintf(code, sizeof code, "%d", others[k]);
        harness.sample = code;
        cudasim_fail_call("cudaLaunchKernelEx", 0, others[k]);
        CHECK_FAILS(tg_add(x, x), "cudaLaunchKernelEx");
        CHECK_NEAR(tg_item(tg_sum(tg_add(x, x))), 20, 0);
    }
    harness.sample = NULL;
}

/* A kernel that faults while it runs: the error comes from the first call that waits, and from then on from all. */
TEST(a_fault_of_a_kernel)
{
    tg_mark mark = tg_scope_begin();
    tg_tensor *x = tg_ones_on(TG_SHAPE(10), TG_F32, first), *sum, *y;
    const char *streams = getenv("TG_SIM_STREAMS");
    CHECK(tg_item(tg_sum(x)) == 10);
    cudasim_schedule(NULL, "lazy"); /* kernels run when something waits for them */
    tg_clear_error();
    errors = 0;
    tg_set_error_handler(count_errors, NULL);
    cudasim_fault_in_kernel(1, ILLEGAL_ADDRESS);
    y = tg_add(x, x);
    sum = tg_sum(tg_mul(y, y)); /* the second kernel from here faults, but the host does not know it yet */
    CHECK(sum != NULL && errors == 0);
    CHECK(isnan(tg_item(sum)) && errors == 1 && strstr(tg_error_message(), "illegal memory access"));
    CHECK(strstr(tg_error_message(), "no GPU can be used") != NULL);
    tg_clear_error();
    CHECK(tg_add(x, x) == NULL && isnan(tg_item(sum)) && tg_synchronize(first) != TG_OK && errors == 2);
    CHECK(tg_ones_on(TG_SHAPE(2), TG_F32, last) == NULL && errors == 2);
    tg_clear_error();
    tg_scope_end(mark);
    CHECK(errors == 2 && tg_ok());
    cudasim_fault(0); /* only so that nothing is left */
    cudasim_schedule(NULL, streams);
    tg_shutdown();
    tg_set_error_handler(NULL, NULL);
    CHECK_NEAR(some_work(1000), 333332500.0 + 500, 500);
}

/* Kernels that were compiled for older GPUs: one warning, at the first use of a device in the process. */
static int warnings;
static char warning[600];
static void note_warning(tg_status code, const char *message, void *user)
{
    (void)user;
    if (code != TG_OK) return;
    ++warnings;
    snprintf(warning, sizeof warning, "%s", message);
}

static double attention_on(tg_device device)
{
    TG_SCOPE;
    tg_tensor *q = tg_to(tg_reshape(tg_div_scalar(tg_arange(0, 64, 1), 64), TG_SHAPE(1, 8, 8)), device);
    return tg_item(tg_sum(tg_scaled_dot_product_attention(q, q, q, NULL, 0, true, 0)));
}

TEST(old_kernels_are_told_once)
{
    static const char *const parts[] = {"compute capability 7.5", "has 8.6", "-arch=sm_86", "attention runs without"};
    CHECK(warnings == 1);
    for (size_t k = 0; k < sizeof parts / sizeof parts[0]; ++k) CHECK(strstr(warning, parts[k]) != NULL);
    CHECK_NEAR(attention_on(first), attention_on(TG_CPU), 1e-5);
    CHECK_NEAR(attention_on(last), attention_on(TG_CPU), 1e-5);
    CHECK(warnings == 1);
    cudasim_fail_call("cudaLaunchKernelEx", 0, NO_KERNEL_IMAGE); /* kernels for newer GPUs */
    CHECK_FAILS(tg_ones_on(TG_SHAPE(2), TG_F32, first), "compile tensorgrad_cuda.cu for this GPU");
}

int main(int argc, char **argv)
{
    setenv("TG_SIM_ARCH", "75", 1);         /* as nvcc -arch=native compiles where there is no GPU */
    setenv("TG_CUDA_PASS_THROUGH", "0", 1); /* blocks are kept, as on a GPU, */
    setenv("TG_SIM_REUSE", "1", 1);         /* and hold nothing when they are used again */
    harness_begin(argc, argv);
    tg_set_error_handler(note_warning, NULL);
    first = TG_CUDA(0);
    last = TG_CUDA(tg_cuda_device_count() - 1);
    RUN(one_device_alone);
    RUN(blocks_are_used_again);
    RUN(blocks_hold_no_numbers);
    RUN(kept_blocks_make_room);
    RUN(threads_keep_their_own_blocks);
    RUN(blocks_of_copies);
    RUN(copies_both_ways);
    RUN(the_device_of_the_caller);
    RUN(one_wait);
    RUN(zeroing_gradients_launches_nothing);
    RUN(old_kernels_are_told_once);
    RUN(after_a_fault);
    RUN(every_fault_is_told_once);
    RUN(a_fault_of_a_kernel);
    tg_shutdown();
    return harness_end();
}
