/* Every call of the CUDA runtime and of cuBLAS fails, one at a time: the simulator lets the n-th call of each function
 * give an error while one step of training on two devices runs, for n = 0, 1, ... until none is left.  The step must
 * end with an error that names the call and its line, or must not have needed it; nothing may crash, and the same step
 * then succeeds, with the same bits as before.  Built with `make sim`; TG_SIM_DEVICES=2. */
#define _POSIX_C_SOURCE 200809L /* setenv */
#include "tensorgrad.h"
#include "../cudasim/cudasim_test.h"
#include "../helpers.h"

/* Functions, their error codes (cuBLAS has its own), and whether memory is not freed when they fail. */
enum { OUT_OF_MEMORY = 2, ILLEGAL_ADDRESS = 700 };
static const struct { const char *call; int error; bool frees; } faults[] = {
    {"cudaGetDeviceCount", 999, false},
    {"cudaGetDevice", 999, false},
    {"cudaSetDevice", 999, false},
    {"cudaGetDriverEntryPointByVersion", 999, false},
    {"cudaStreamCreateWithFlags", 999, false},
    {"cudaEventCreateWithFlags", OUT_OF_MEMORY, false},
    {"cudaMalloc", OUT_OF_MEMORY, false},
    {"cudaMalloc", 999, false},
    {"cudaFree", ILLEGAL_ADDRESS, true},
    {"cudaHostAlloc", 999, false},
    {"cudaHostAlloc", OUT_OF_MEMORY, false},
    {"cudaMemcpyAsync", ILLEGAL_ADDRESS, false},
    {"cudaDeviceCanAccessPeer", 999, false},
    {"cudaDeviceEnablePeerAccess", 999, false},
    {"cudaMemcpyPeerAsync", ILLEGAL_ADDRESS, false},
    {"cudaLaunchKernelEx", 999, false},
    {"cudaEventRecord", ILLEGAL_ADDRESS, false},
    {"cudaEventQuery", ILLEGAL_ADDRESS, false},
    {"cudaEventSynchronize", 999, false},
    {"cudaEventDestroy", 999, true},
    {"cudaStreamWaitEvent", 999, false},
    {"cudaStreamSynchronize", 999, false},
    {"cudaStreamSynchronize", ILLEGAL_ADDRESS, false},
    {"cudaDeviceSynchronize", ILLEGAL_ADDRESS, false},
    {"cudaDeviceGetAttribute", 999, false},
    {"cublasCreate", 0, false},
    {"cublasSetStream", 0, false},
    {"cublasSetWorkspace", 0, false},
    {"cublasSetMathMode", 0, false},
    {"cublasSetAtomicsMode", 0, false},
    {"cublasGemmStridedBatchedEx", 0, false},
};

/* The loss of a step that uses everything the runtime part of the backend has; NaN after an error. */
static double step(void)
{
    static const float numbers[24] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    static const int64_t rows[3] = {2, 0, 2};
    tg_device first = TG_CUDA(0), last = TG_CUDA(tg_cuda_device_count() - 1);
    tg_tensor *w = tg_param(tg_ones_on(TG_SHAPE(4, 2), TG_F32, first));
    tg_tensor *data, *x, *ids, *h, *mask, *loss, *shared;
    tg_loader *loader = NULL;
    tg_optim *opt = w ? tg_adamw(&w, 1, 0.1) : NULL;
    double value = NAN;
    if (opt) {
        TG_SCOPE;
        data = tg_from_f32(numbers, TG_SHAPE(6, 4));
        loader = data ? tg_loader_new(&data, 1, 3, 0, first) : NULL;
        if (!loader || !tg_loader_next(loader, &x)) x = NULL; /* and begins to fetch the other batch */
        ids = tg_from_on(rows, TG_SHAPE(3), TG_I64, first);
        h = tg_tanh(tg_to(tg_matmul(tg_index_select(x, 0, ids), w), last));
        ids = tg_from_i64(rows, TG_SHAPE(3)); /* on the CPU, and so is the number */
        h = tg_mul(tg_index(h, &ids, 1), tg_scalar(0.5));
        h = tg_mul_(h, tg_tanh(h)); /* the op keeps a copy of the old values */
        h = tg_add_(tg_narrow(h, 0, 0, 2), tg_narrow(h, 0, 1, 2)) ? h : NULL; /* reads a copy of what it writes */
        mask = tg_gt_scalar(h, 0.4999);
        h = tg_index_put_(h, &mask, 1, tg_scalar(0.25), true);
        shared = tg_share(tg_ones_on(TG_SHAPE(3, 2), TG_F32, last));
        if (shared) tg_mul_scalar_(shared, 2);
        tg_stats_on(first);
        loss = tg_cpu(tg_sum(tg_mul(h, shared ? shared : h)));
        h = tg_to_ex(tg_detach(h), TG_CPU, TG_F32, TG_NON_BLOCKING);
        if (loss && tg_backward(loss) == TG_OK && tg_step(opt) == TG_OK && tg_to_(w, last) && tg_to_(w, first) &&
            tg_empty_cache(first) == TG_OK)
            value = tg_item(loss) + tg_item(tg_sum(w)) + tg_item(tg_sum(h));
        if (shared) tg_release(shared);
    }
    tg_loader_free(loader);
    if (opt) tg_optim_free(opt);
    if (w) tg_release(w);
    tg_shutdown();
    return tg_ok() ? value : (double)NAN;
}

/* Whether the error names the call and its line, or is the library's own error for memory. */
static bool says(const char *call)
{
    const char *text = tg_error_message();
    return strstr(text, "out of memory") || (strstr(text, call) && strstr(text, "tensorgrad_cuda.cu:"));
}

/* An allocation that fails once succeeds after the pool has been emptied; one that is too large for the device is an
 * ordinary error, and the thread can go on. */
static void memory_of_a_device(void)
{
    TG_SCOPE;
    const tg_device gpu = TG_CUDA(0);
    tg_tensor *t = tg_ones_on(TG_SHAPE(100), TG_F32, gpu);
    cudasim_fail_allocation(0);
    CHECK(tg_ones_on(TG_SHAPE(100), TG_F32, gpu) != NULL && tg_ok());
    cudasim_limit_memory(0, 1 << 20);
    CHECK_FAILS(tg_ones_on(TG_SHAPE(1 << 20), TG_F32, gpu),
                "tg_ones_on: cuda:0 is out of memory: tried to allocate 4.00 MiB, 800 bytes in use, "
                "0 bytes kept for reuse");
    CHECK(tg_error_code() == TG_OK && tg_item(tg_sum(t)) == 100);
    CHECK(tg_to(tg_ones(TG_SHAPE(1 << 20)), gpu) == NULL && tg_error_code() == TG_ERR_MEMORY);
    tg_clear_error();
    cudasim_limit_memory(0, (size_t)1 << 30);
    CHECK(tg_ones_on(TG_SHAPE(1 << 20), TG_F32, gpu) != NULL && tg_ok());
}

/* A write of a shared tensor is recorded for other threads; where there is no memory for the record, the write is
 * waited for instead. */
static void memory_of_the_host(void)
{
    const tg_allocator allocator = {alloc_some, free_some, NULL};
    const tg_device gpu = TG_CUDA(0);
    tg_tensor *t, *shared = NULL;
    int n, writes = 0, refused = 0;
    fails_once = true;
    allocations_left = INT64_MAX;
    CHECK(tg_set_allocator(&allocator) == TG_OK);
    tg_set_cache_limit(0);
    t = tg_ones_on(TG_SCALAR, TG_F32, gpu);
    for (n = 0; !shared && n < 50; ++n) {
        allocations_left = n;
        shared = tg_share(t);
        allocations_left = INT64_MAX;
        CHECK((shared != NULL) == tg_ok() && (shared || tg_error_code() == TG_ERR_MEMORY));
        refused += !shared;
        tg_clear_error();
    }
    CHECK(shared == t && refused > 0);
    for (n = 0; n < 20; ++n) {
        allocations_left = n;
        writes += tg_add_scalar_(t, 1) != NULL;
        allocations_left = INT64_MAX;
        CHECK(tg_ok() || tg_error_code() == TG_ERR_MEMORY);
        tg_clear_error();
    }
    CHECK(writes > 0 && tg_item(t) == 1 + writes);
    tg_release(t);
    tg_set_cache_limit(SIZE_MAX);
}

int main(int argc, char **argv)
{
    size_t k;
    double right;
    int total = 0;
    setenv("TG_CUDA_PASS_THROUGH", "0", 1); /* blocks are kept, as on a GPU */
    harness_begin(argc, argv);
    harness.test = "faults";
    memory_of_the_host();
    memory_of_a_device();
    right = step();
    CHECK(!isnan(right) && cudasim_live(CUDASIM_DEVICE_ALLOCATIONS) == 0);
    for (k = 0; k < sizeof faults / sizeof faults[0]; ++k) {
        int n;
        bool fired = true;
        harness.sample = faults[k].call;
        for (n = 0; fired; ++n) {
            size_t before = cudasim_live(CUDASIM_DEVICE_ALLOCATIONS);
            double value;
            cudasim_fail_call(faults[k].call, n, faults[k].error);
            value = step();
            fired = cudasim_failure_left() < 0;
            cudasim_fail_call("", -1, 0);
            if (!fired) {
                CHECK(value == right);
                break;
            }
            CHECK(tg_ok() ? value == right : says(faults[k].call)); /* the step may have succeeded without this call */
            tg_clear_error();
            CHECK(step() == right);
            CHECK(faults[k].frees || cudasim_live(CUDASIM_DEVICE_ALLOCATIONS) == before);
        }
        CHECK(n > 0); /* the step calls it at all */
        total += n;
    }
    printf("%d calls of %d functions failed\n", total, (int)k);
    return harness_end();
}
