/* tensorgrad_cuda.cu: the CUDA backend of tensorgrad, for NVIDIA GPUs of compute capability 7.5 and newer.

       nvcc -c tensorgrad_cuda.cu
       cc -DTG_ENABLE_CUDA main.c tensorgrad_cuda.o -lcudart -lcublas -lm

   Contents:
       The runtime              streams, errors, device memory, copies, events
       What kernels share       loads and stores of any dtype, addresses, sums over a block
       Elementwise              sin and cos, the ops of the op table, copy, fill
       Sorting                  a stable merge sort; accumulate and arange
       Reductions               sum, prod, amax, amin, any, all
       Rows                     argmax, cumsum, sort, softmax, layer_norm and their backward kernels
       Indexing                 the check of indices, gather, scatter, nonzero
       Pools                    max_pool and its backward kernel, window_sum
       Matrix products          cuBLAS, and a plain kernel for integers
       Convolution              im2col and col2im
       Random numbers           Philox, with the CPU's formulas
       Optimizers               steps over many parameters in one launch
       (at the end)             the table of all these functions, struct tgi_backend in tensorgrad.h

   A function tgi_cuda_NAME does on a device what tgi_cpu_NAME in tensorgrad.h does on the CPU, with the same arguments;
   they stand in the same order, so that the two files can be read side by side.  struct tgi_backend says what each of
   them must do.  Formulas and element types come from the same tables.

   How threads map to elements: elementwise kernels give one element to each thread, row kernels one row to each block.
   The size of the grid is limited, so each kernel is a loop (a grid-stride loop): a thread continues with the element
   that is one grid further, a block with the row that is one grid further.  Every kernel gives the same bits on every
   run: sums have a fixed order, and no float is added atomically.

   Each thread of the host has one stream per device for its work, and a second one for copies that run beside it.  The
   host waits only where it needs a value.  Licence: that of tensorgrad.h. */

#include <cublas_v2.h>
#include <cuda_runtime.h>

#define TGI_CUDA_COMPANION
#define TGI_INLINE __device__ static inline
#define TGI_MUL_ADD(a, b, c) __dadd_rn(__dmul_rn(a, b), c)
#define TGI_MUL_ADD_F32(a, b, c) __fadd_rn(__fmul_rn(a, b), c)
#include "tensorgrad.h"

/* The functions that nvcc generates to launch kernels contain static variables with guards, which need the C++ library.
   The three functions below replace its guards, so that a C compiler can link the object file.  They do not lock: two
   threads may initialise the same variable at the same time, but both store the same value, the handle of a kernel.
   Exceptions would need the C++ library, too.  nvcc passes the pragma on to the host compiler and warns that it does
   not know it. */
#ifdef __NVCC__
#pragma nv_diagnostic push
#pragma nv_diag_suppress 1675
#pragma GCC optimize("no-exceptions")
#pragma nv_diagnostic pop
extern "C" int __cxa_guard_acquire(long long *guard) __asm__("tgi_guard_acquire");
extern "C" void __cxa_guard_release(long long *guard) __asm__("tgi_guard_release");
extern "C" void __cxa_guard_abort(long long *guard) __asm__("tgi_guard_abort");
extern "C" int __cxa_guard_acquire(long long *guard) { return !__atomic_load_n((char *)guard, __ATOMIC_ACQUIRE); }
extern "C" void __cxa_guard_release(long long *guard) { __atomic_store_n((char *)guard, (char)1, __ATOMIC_RELEASE); }
extern "C" void __cxa_guard_abort(long long *guard) { (void)guard; }
#endif

enum { TGI_BLOCK = 256, TGI_MAX_BLOCKS = 1 << 20 }; /* threads in a block, blocks in a grid */
enum { TGI_STAGING_BYTES = 1 << 20 };
#define TGI_FULL_MASK 0xffffffffu /* all lanes of a warp */

/* ======== The runtime: streams, memory, errors ==================================================================== */

/* The first bad index that a kernel has found since the last report; it lies in device memory.  The next call that
   waits for the device reports it. */
typedef struct {
    unsigned long long min_position; /* the first bad index of the check that is running, or TGI_NO_POSITION */
    int64_t value, position, size;   /* the index, its position among the indices, the size of the dim */
    const char *op;
    int message, axis, found;
} tgi_bad_index;
#define TGI_NO_POSITION 0xffffffffffffffffull

/* Asynchronous copies need page-locked host memory: other host memory is copied through a staging buffer. */
typedef struct {
    char *data;       /* TGI_STAGING_BYTES, page-locked */
    cudaEvent_t done; /* the end of the last copy that used the buffer */
} tgi_staging;

/* What a thread owns on one device. */
typedef struct {
    bool ready;               /* the rest is initialised */
    bool index_checked;       /* an index check was launched since the last report */
    int index;                /* of the device */
    cudaStream_t stream;      /* all work */
    cudaStream_t copies;      /* the copy stream: copies that run beside the work */
    cudaEvent_t event;        /* recorded in one stream for another one to wait for */
    cublasHandle_t blas;      /* NULL until the first matrix product */
    void *workspace;          /* of cuBLAS, likewise */
    tgi_bad_index *bad_index; /* on the device */
    tgi_bad_index *bad_copy;  /* its copy, page-locked */
    tgi_staging staging[2];   /* one is filled while the other is copied */
    int last_staging;         /* the one that the last upload used */
} tgi_cuda_device;

/* A page-locked block that is kept for reuse: it is free, or will be once the event has happened. */
typedef struct tgi_pinned {
    struct tgi_pinned *next;
    void *data;
    size_t bytes;
    cudaEvent_t event; /* or NULL */
} tgi_pinned;

typedef struct {
    int current; /* the device that tg_cuda_set_device chose */
    tgi_cuda_device device[TGI_MAX_DEVICES];
    tgi_pinned *pinned;
} tgi_cuda_thread;

static TG_THREAD_LOCAL tgi_cuda_thread tgi_this_cuda;
static tgi_host tgi_host_api; /* functions of tensorgrad.h; set by tgi_cuda_backend, to the same value at each call */

/* Each call of CUDA and cuBLAS stands in one of these.  They return false after recording an error that names the call,
   the file and the line. */
#define TGI_CUDA(call) tgi_cuda_ok(S, call, #call, __LINE__)
#define TGI_CUBLAS(call) tgi_cublas_ok(S, call, #call, __LINE__)

static bool tgi_cuda_ok(tgi_thread *S, cudaError_t status, const char *call, int line)
{
    if (status == cudaSuccess) return true;
    cudaGetLastError(); /* clears the runtime's own record of the error */
    const tg_status code = status == cudaErrorMemoryAllocation ? TG_ERR_MEMORY : TG_ERR_CUDA;
    return tgi_host_api.fail(S, code, "cuda", "CUDA error: %s\nin %s, tensorgrad_cuda.cu:%d",
                             cudaGetErrorString(status), call, line);
}

static bool tgi_cublas_ok(tgi_thread *S, cublasStatus_t status, const char *call, int line)
{
    if (status == CUBLAS_STATUS_SUCCESS) return true;
    return tgi_host_api.fail(S, TG_ERR_CUDA, "cuda", "cuBLAS error: %s\nin %s, tensorgrad_cuda.cu:%d",
                             cublasGetStatusString(status), call, line);
}

/* Launches a kernel on the device's stream, with this many blocks (TGI_MAX_BLOCKS at most) of `threads` threads.  The
   arguments are converted to the kernel's parameter types. */
template <class... P, class... A>
static bool tgi_launch(tgi_thread *S, const tgi_cuda_device *d, void (*kernel)(P...), int64_t blocks, int threads,
                       const A &...args)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)tgi_at_most(blocks, TGI_MAX_BLOCKS));
    config.blockDim = dim3((unsigned)threads);
    config.stream = d->stream;
    return TGI_CUDA(cudaLaunchKernelEx(&config, kernel, P(args)...));
}

/* Launches a kernel with one thread per item, in blocks of TGI_BLOCK. */
template <class... P, class... A>
static bool tgi_launch_each(tgi_thread *S, const tgi_cuda_device *d, void (*kernel)(P...), int64_t items,
                            const A &...args)
{
    return tgi_launch(S, d, kernel, (items + TGI_BLOCK - 1) / TGI_BLOCK, TGI_BLOCK, args...);
}

/* A kernel's loop over its items: for (int64_t i = tgi_grid_thread(); i < n; i += tgi_grid_size()). */
__device__ inline int64_t tgi_grid_thread(void) { return (int64_t)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ inline int64_t tgi_grid_size(void) { return (int64_t)gridDim.x * blockDim.x; }

/* Sets the record on the device to "no bad index".  The stream must be idle, because bad_copy is overwritten; it is
   idle again at the end. */
static bool tgi_clear_bad_index(tgi_thread *S, const tgi_cuda_device *d)
{
    memset(d->bad_copy, 0, sizeof *d->bad_copy);
    d->bad_copy->min_position = TGI_NO_POSITION;
    return TGI_CUDA(
               cudaMemcpyAsync(d->bad_index, d->bad_copy, sizeof *d->bad_index, cudaMemcpyHostToDevice, d->stream)) &&
           TGI_CUDA(cudaStreamSynchronize(d->stream));
}

/* Initialises all of d except cuBLAS.  After a failure tgi_device_end releases what there is. */
static bool tgi_device_begin(tgi_thread *S, tgi_cuda_device *d)
{
    cudaMemPool_t pool;
    unsigned long long keep = ~0ull; /* bytes of freed memory that the pool keeps for reuse: all */
    if (!TGI_CUDA(cudaDeviceGetDefaultMemPool(&pool, d->index)) ||
        !TGI_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep)) ||
        !TGI_CUDA(cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking)) ||
        !TGI_CUDA(cudaStreamCreateWithFlags(&d->copies, cudaStreamNonBlocking)) ||
        !TGI_CUDA(cudaEventCreateWithFlags(&d->event, cudaEventDisableTiming))) {
        return false;
    }
    for (int k = 0; k < 2; ++k) {
        if (!TGI_CUDA(cudaHostAlloc((void **)&d->staging[k].data, TGI_STAGING_BYTES, cudaHostAllocDefault)) ||
            !TGI_CUDA(cudaEventCreateWithFlags(&d->staging[k].done, cudaEventDisableTiming))) {
            return false;
        }
    }
    return TGI_CUDA(cudaHostAlloc((void **)&d->bad_copy, sizeof *d->bad_copy, cudaHostAllocDefault)) &&
           TGI_CUDA(cudaMalloc((void **)&d->bad_index, sizeof *d->bad_index)) && tgi_clear_bad_index(S, d);
}

static void tgi_device_end(tgi_thread *S, tgi_cuda_device *d)
{
    if (d->blas) TGI_CUBLAS(cublasDestroy(d->blas));
    TGI_CUDA(cudaFree(d->workspace));
    TGI_CUDA(cudaFree(d->bad_index));
    TGI_CUDA(cudaFreeHost(d->bad_copy));
    for (int k = 0; k < 2; ++k) {
        TGI_CUDA(cudaFreeHost(d->staging[k].data));
        if (d->staging[k].done) TGI_CUDA(cudaEventDestroy(d->staging[k].done));
    }
    if (d->event) TGI_CUDA(cudaEventDestroy(d->event));
    if (d->copies) TGI_CUDA(cudaStreamDestroy(d->copies));
    if (d->stream) TGI_CUDA(cudaStreamDestroy(d->stream));
    memset(d, 0, sizeof *d);
}

/* Makes the device current and returns what the calling thread owns on it, initialised at the first call; NULL after
   recording an error. */
static tgi_cuda_device *tgi_device_for(tgi_thread *S, int index)
{
    tgi_cuda_device *d = &tgi_this_cuda.device[index];
    if (!TGI_CUDA(cudaSetDevice(index))) return NULL;
    if (d->ready) return d;
    d->index = index;
    d->ready = tgi_device_begin(S, d);
    if (d->ready) return d;
    tgi_device_end(S, d);
    return NULL;
}

/* Records an error and returns false if a kernel has found a bad index since the last report.  The stream is idle. */
static bool tgi_report_bad_index(tgi_thread *S, tgi_cuda_device *d, const char *later)
{
    d->index_checked = false;
    if (!TGI_CUDA(cudaMemcpyAsync(d->bad_copy, d->bad_index, sizeof *d->bad_copy, cudaMemcpyDeviceToHost, d->stream)) ||
        !TGI_CUDA(cudaStreamSynchronize(d->stream))) {
        return false;
    }
    const tgi_bad_index bad = *d->bad_copy;
    if (!bad.found) return true;
    if (!tgi_clear_bad_index(S, d)) return false;
    return tgi_host_api.fail_later(
        S, TG_ERR_ARGUMENT, bad.op,
        tgi_text_of_bad_index((tgi_index_message)bad.message, bad.value, bad.position, bad.axis, bad.size, later).text);
}

/* Waits for the thread's stream, and reports a bad index that was found there. */
static bool tgi_stream_sync(tgi_thread *S, tgi_cuda_device *d)
{
    tgi_host_api.count_wait(S, TG_DEV_CUDA, d->index);
    return TGI_CUDA(cudaStreamSynchronize(d->stream)) &&
           (!d->index_checked || tgi_report_bad_index(S, d, " (detected later)"));
}

/* Further work of `stream` starts after the work that d's stream has been given so far; the host does not wait. */
static bool tgi_stream_wait(tgi_thread *S, cudaStream_t stream, const tgi_cuda_device *d)
{
    return TGI_CUDA(cudaSetDevice(d->index)) && TGI_CUDA(cudaEventRecord(d->event, d->stream)) &&
           TGI_CUDA(cudaStreamWaitEvent(stream, d->event, 0));
}

/* Frees page-locked memory after the event, or at once if it is NULL. */
static void tgi_pinned_destroy(tgi_thread *S, void *data, cudaEvent_t event)
{
    if (event) TGI_CUDA(cudaEventSynchronize(event));
    if (event) TGI_CUDA(cudaEventDestroy(event));
    TGI_CUDA(cudaFreeHost(data));
}

/* ---- devices ---- */

static int tgi_cuda_device_count(void)
{
    int count = 0;
    if (cudaGetDeviceCount(&count) == cudaSuccess) return count < TGI_MAX_DEVICES ? count : (int)TGI_MAX_DEVICES;
    cudaGetLastError(); /* without a driver or a device there are 0 devices, which is no error */
    return 0;
}

static bool tgi_cuda_resolve(tgi_thread *S, const char *op, int *index)
{
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess) cudaGetLastError();
    if (status == cudaErrorInsufficientDriver) {
        return tgi_host_api.fail(S, TG_ERR_DEVICE, op,
                                 "device %s cannot be used: Found no NVIDIA driver on your system.\n"
                                 "CUDA needs an NVIDIA GPU and its driver; the CPU works without",
                                 tg_device_str(TG_CUDA(*index)));
    }
    if (status == cudaErrorNoDevice || (status == cudaSuccess && count == 0))
        return tgi_host_api.fail(S, TG_ERR_DEVICE, op, "device %s cannot be used: No CUDA GPUs are available",
                                 tg_device_str(TG_CUDA(*index)));
    if (!tgi_cuda_ok(S, status, "cudaGetDeviceCount", __LINE__)) return false;
    if (*index == -1) *index = tgi_this_cuda.current;
    if (*index >= 0 && *index < count && *index < TGI_MAX_DEVICES) return true;
    return tgi_host_api.fail(S, TG_ERR_DEVICE, op,
                             "CUDA error: invalid device ordinal\n"
                             "GPU device may be out of range, do you have enough GPUs? cuda:%d of %d",
                             *index, count);
}

static bool tgi_cuda_set_current(tgi_thread *S, int index)
{
    if (!TGI_CUDA(cudaSetDevice(index))) return false;
    tgi_this_cuda.current = index;
    return true;
}

static void tgi_cuda_thread_end(tgi_thread *S)
{
    for (int index = 0; index < TGI_MAX_DEVICES; ++index) {
        tgi_cuda_device *d = &tgi_this_cuda.device[index];
        if (!d->ready || !TGI_CUDA(cudaSetDevice(index))) continue;
        tgi_stream_sync(S, d);
        TGI_CUDA(cudaStreamSynchronize(d->copies));
        tgi_device_end(S, d);
    }
    while (tgi_this_cuda.pinned) {
        tgi_pinned *p = tgi_this_cuda.pinned;
        tgi_this_cuda.pinned = p->next;
        tgi_pinned_destroy(S, p->data, p->event);
        tgi_host_api.give_back(S, p, sizeof *p);
    }
    tgi_this_cuda.current = 0;
}

/* ---- device memory ---- */

/* All device memory is allocated and freed here, in the order of the stream: the work after the call may use it, and
   the work before may still use what is freed.  With TG_CUDA_PASS_THROUGH each block is a cudaMalloc of its own, so
   that a memory checker finds every access outside of it. */
static cudaError_t tgi_device_malloc(cudaStream_t stream, void **data, size_t bytes)
{
#ifdef TG_CUDA_PASS_THROUGH
    (void)stream;
    return cudaMalloc(data, bytes ? bytes : 1);
#else
    return cudaMallocAsync(data, bytes ? bytes : 1, stream);
#endif
}

static cudaError_t tgi_device_free(tgi_cuda_device *d, void *data)
{
#ifdef TG_CUDA_PASS_THROUGH
    const cudaError_t status = cudaStreamSynchronize(d->stream);
    return status == cudaSuccess ? cudaFree(data) : status;
#else
    return cudaFreeAsync(data, d->stream);
#endif
}

/* Makes the pool give what it keeps for reuse back to the driver, when the work on the stream is done. */
static bool tgi_cuda_trim(tgi_thread *S, int index)
{
    const tgi_cuda_device *d = tgi_device_for(S, index);
    cudaMemPool_t pool;
    return d && TGI_CUDA(cudaStreamSynchronize(d->stream)) && TGI_CUDA(cudaDeviceGetDefaultMemPool(&pool, index)) &&
           TGI_CUDA(cudaMemPoolTrimTo(pool, 0));
}

/* Returns NULL without recording an error if the device has no memory left, even after the pool has released what it
   kept for reuse. */
static void *tgi_cuda_alloc(tgi_thread *S, int index, size_t bytes, bool for_copy_stream)
{
    tgi_cuda_device *d = tgi_device_for(S, index);
    void *data = NULL;
    if (!d) return NULL;
    const cudaStream_t stream = for_copy_stream ? d->copies : d->stream;
    cudaError_t status = tgi_device_malloc(stream, &data, bytes);
    if (status == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        if (!tgi_cuda_trim(S, index)) return NULL;
        status = tgi_device_malloc(stream, &data, bytes);
        if (status == cudaErrorMemoryAllocation) {
            cudaGetLastError();
            return NULL;
        }
    }
    return tgi_cuda_ok(S, status, "cudaMallocAsync", __LINE__) ? data : NULL;
}

/* Does not make the device current: each call less is one less that can fail and so leak the memory. */
static void tgi_cuda_release(tgi_thread *S, int index, void *data, size_t bytes)
{
    tgi_cuda_device *d = &tgi_this_cuda.device[index];
    (void)bytes;
    if (data && (d->ready || tgi_device_for(S, index)))
        tgi_cuda_ok(S, tgi_device_free(d, data), "cudaFreeAsync", __LINE__);
}

static int64_t tgi_cuda_cached(tgi_thread *S, int index)
{
    cudaMemPool_t pool;
    unsigned long long reserved = 0, used = 0;
    const bool known = tgi_device_for(S, index) && TGI_CUDA(cudaDeviceGetDefaultMemPool(&pool, index)) &&
                       TGI_CUDA(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &reserved)) &&
                       TGI_CUDA(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrUsedMemCurrent, &used));
    return known ? (int64_t)(reserved - used) : 0;
}

/* ---- copies ---- */

/* Waits for an event; tg_op_waits counts it only if the event has not happened yet. */
static bool tgi_wait_event(tgi_thread *S, const tgi_cuda_device *d, cudaEvent_t event)
{
    const cudaError_t status = cudaEventQuery(event);
    if (status != cudaErrorNotReady) return tgi_cuda_ok(S, status, "cudaEventQuery", __LINE__);
    cudaGetLastError(); /* not ready is no error */
    tgi_host_api.count_wait(S, TG_DEV_CUDA, d->index);
    return TGI_CUDA(cudaEventSynchronize(event));
}

/* Copies through the two staging buffers in turn: one is filled while the other is on its way to the device.  The host
   memory may be used again when this returns. */
static bool tgi_cuda_upload(tgi_thread *S, int index, void *dst, const void *host, size_t bytes)
{
    tgi_cuda_device *d = tgi_device_for(S, index);
    if (!d) return false;
    for (size_t done = 0, part; done < bytes; done += part) {
        d->last_staging = 1 - d->last_staging;
        const tgi_staging *s = &d->staging[d->last_staging];
        part = bytes - done < TGI_STAGING_BYTES ? bytes - done : (size_t)TGI_STAGING_BYTES;
        if (!tgi_wait_event(S, d, s->done)) return false;
        memcpy(s->data, (const char *)host + done, part);
        if (!TGI_CUDA(cudaMemcpyAsync((char *)dst + done, s->data, part, cudaMemcpyHostToDevice, d->stream)) ||
            !TGI_CUDA(cudaEventRecord(s->done, d->stream))) {
            return false;
        }
    }
    return true;
}

/* The same the other way.  Waits for the device, and so reports a bad index. */
static bool tgi_cuda_download(tgi_thread *S, int index, void *host, const void *src, size_t bytes)
{
    tgi_cuda_device *d = tgi_device_for(S, index);
    const size_t parts = (bytes + TGI_STAGING_BYTES - 1) / TGI_STAGING_BYTES;
    if (!d) return false;
    for (size_t k = 0; k <= parts && parts > 0; ++k) { /* starts the copy of part k, then finishes part k - 1 */
        if (k < parts) {
            const tgi_staging *s = &d->staging[k % 2];
            const size_t offset = k * TGI_STAGING_BYTES, left = bytes - offset;
            const size_t size = left < TGI_STAGING_BYTES ? left : (size_t)TGI_STAGING_BYTES;
            if (!TGI_CUDA(
                    cudaMemcpyAsync(s->data, (const char *)src + offset, size, cudaMemcpyDeviceToHost, d->stream)) ||
                !TGI_CUDA(cudaEventRecord(s->done, d->stream))) {
                return false;
            }
        }
        if (k > 0) {
            const tgi_staging *s = &d->staging[(k - 1) % 2];
            const size_t offset = (k - 1) * TGI_STAGING_BYTES;
            if (!tgi_wait_event(S, d, s->done)) return false;
            memcpy((char *)host + offset, s->data, k < parts ? (size_t)TGI_STAGING_BYTES : bytes - offset);
        }
    }
    return !d->index_checked || tgi_report_bad_index(S, d, " (detected later)");
}

/* Stores one element, whose bits come as an argument of the kernel: no copy is needed.  One thread. */
static __global__ void tgi_store_element(void *to, uint64_t bits, int64_t size)
{
    if (size == 8)
        *(uint64_t *)to = bits;
    else if (size == 4)
        *(uint32_t *)to = (uint32_t)bits;
    else if (size == 2)
        *(uint16_t *)to = (uint16_t)bits;
    else
        *(uint8_t *)to = (uint8_t)bits;
}

static bool tgi_cuda_put_element(tgi_thread *S, int index, void *dst, const void *host, size_t bytes)
{
    const tgi_cuda_device *d = tgi_device_for(S, index);
    uint64_t bits = 0;
    memcpy(&bits, host, bytes); /* the host is little-endian, as all hosts of GPUs are */
    return d && tgi_launch(S, d, tgi_store_element, 1, 1, dst, bits, (int64_t)bytes);
}

/* The copy runs on the source's stream, after the target's work so far (which may still use dst); the target's further
   work waits for it. */
static bool tgi_cuda_peer_copy(tgi_thread *S, int to, void *dst, int from, const void *src, size_t bytes)
{
    const tgi_cuda_device *target = tgi_device_for(S, to), *source = target ? tgi_device_for(S, from) : NULL;
    if (!source || !tgi_stream_wait(S, source->stream, target) || !TGI_CUDA(cudaSetDevice(from)) ||
        !TGI_CUDA(cudaMemcpyPeerAsync(dst, to, src, from, bytes, source->stream))) {
        return false;
    }
    if (tgi_stream_wait(S, target->stream, source)) return true;
    TGI_CUDA(cudaStreamSynchronize(source->stream)); /* dst will be freed on the target's stream, which does not wait */
    return false;
}

/* ---- waiting ---- */

static bool tgi_cuda_synchronize(tgi_thread *S, int index)
{
    tgi_cuda_device *d = tgi_device_for(S, index);
    return d && tgi_stream_sync(S, d) && TGI_CUDA(cudaStreamSynchronize(d->copies));
}

static bool tgi_cuda_device_sync(tgi_thread *S, int index)
{
    tgi_cuda_device *d = tgi_device_for(S, index);
    if (!d) return false;
    tgi_host_api.count_wait(S, TG_DEV_CUDA, index);
    return TGI_CUDA(cudaDeviceSynchronize());
}

/* ---- page-locked memory and the copy stream ---- */

/* Locking pages is slow, so blocks are kept for reuse; their sizes are powers of two, so that many fit. */
static size_t tgi_pinned_size(size_t bytes)
{
    size_t size = 4096;
    while (size < bytes && size <= SIZE_MAX / 2) size *= 2;
    return size;
}

/* Returns a kept block of this size whose event has happened, or a new one. */
static void *tgi_cuda_alloc_pinned(tgi_thread *S, size_t bytes)
{
    const size_t size = tgi_pinned_size(bytes);
    void *data = NULL;
    if (!tgi_device_for(S, tgi_this_cuda.current)) return NULL;
    for (tgi_pinned **at = &tgi_this_cuda.pinned; *at; at = &(*at)->next) {
        tgi_pinned *p = *at;
        if (p->bytes != size || (p->event && cudaEventQuery(p->event) != cudaSuccess)) continue;
        if (p->event) TGI_CUDA(cudaEventDestroy(p->event));
        data = p->data;
        *at = p->next;
        tgi_host_api.give_back(S, p, sizeof *p);
        return data;
    }
    const cudaError_t status = cudaHostAlloc(&data, size, cudaHostAllocPortable);
    if (status == cudaErrorMemoryAllocation) return cudaGetLastError(), (void *)NULL;
    return tgi_cuda_ok(S, status, "cudaHostAlloc", __LINE__) ? data : NULL;
}

static void tgi_cuda_free_pinned(tgi_thread *S, void *data, size_t bytes, void *event)
{
    tgi_pinned *p = (tgi_pinned *)tgi_host_api.take(S, sizeof *p);
    if (!p) {
        tgi_pinned_destroy(S, data, (cudaEvent_t)event);
        return;
    }
    p->data = data;
    p->bytes = tgi_pinned_size(bytes);
    p->event = (cudaEvent_t)event;
    p->next = tgi_this_cuda.pinned;
    tgi_this_cuda.pinned = p;
}

static bool tgi_cuda_start_upload(tgi_thread *S, int index, void *dst, const void *host, size_t bytes)
{
    const tgi_cuda_device *d = tgi_device_for(S, index);
    return d && TGI_CUDA(cudaMemcpyAsync(dst, host, bytes, cudaMemcpyHostToDevice, d->copies));
}

static bool tgi_cuda_start_download(tgi_thread *S, int index, void *host, const void *src, size_t bytes)
{
    const tgi_cuda_device *d = tgi_device_for(S, index);
    return d && tgi_stream_wait(S, d->copies, d) &&
           TGI_CUDA(cudaMemcpyAsync(host, src, bytes, cudaMemcpyDeviceToHost, d->copies));
}

/* ---- events ---- */

static bool tgi_cuda_event_record(tgi_thread *S, int index, bool of_copy_stream, void **event)
{
    const tgi_cuda_device *d = tgi_device_for(S, index);
    cudaEvent_t made;
    if (!d || !TGI_CUDA(cudaEventCreateWithFlags(&made, cudaEventDisableTiming))) return false;
    *event = made;
    if (TGI_CUDA(cudaEventRecord(made, of_copy_stream ? d->copies : d->stream))) return true;
    cudaEventDestroy(made);
    return false;
}

static bool tgi_cuda_event_wait(tgi_thread *S, int index, void *event)
{
    const tgi_cuda_device *d = tgi_device_for(S, index);
    return d && TGI_CUDA(cudaStreamWaitEvent(d->stream, (cudaEvent_t)event, 0));
}

static bool tgi_cuda_event_sync(tgi_thread *S, int index, void *event)
{
    tgi_cuda_device *d = tgi_device_for(S, index);
    return d && tgi_wait_event(S, d, (cudaEvent_t)event) && (!d->index_checked || tgi_stream_sync(S, d));
}

static void tgi_cuda_event_destroy(tgi_thread *S, void *event) { TGI_CUDA(cudaEventDestroy((cudaEvent_t)event)); }

/* Scratch memory for a kernel, [count] of `size` bytes; NULL after recording an error.  The caller releases it once it
   has launched the kernel. */
static void *tgi_scratch_alloc(tgi_thread *S, tgi_cuda_device *d, const char *op, int64_t count, size_t size)
{
    const size_t bytes = (size_t)count * size;
    void *data = (size_t)count > SIZE_MAX / size ? NULL : tgi_cuda_alloc(S, d->index, bytes, false);
    if (!data) {
        tgi_host_api.no_memory(S, op, TG_DEV_CUDA, d->index, (double)count * (double)size,
                               tgi_cuda_cached(S, d->index));
    }
    return data;
}

/* ======== What kernels share ====================================================================================== */

/* ---- one element of any dtype ----

   tgi_load_as<real>(dtype, at) is the element at an address as a float, a double or an int64_t, and tgi_store_as(dtype,
   at, x) stores one.  Each is a switch with a case for each row of the table of element types, TGI_ELEMENTS.  Where the
   dtype is a template argument, the compiler leaves only the one case. */
enum {
    TGI_AS_f32 = TG_F32,
    TGI_AS_f64 = TG_F64,
    TGI_AS_bf16 = TG_BF16,
    TGI_AS_f16 = TG_F16,
    TGI_AS_i32 = TG_I32,
    TGI_AS_i64 = TG_I64,
    TGI_AS_u8 = TG_U8,
    TGI_AS_b8 = TG_BOOL
};

#define TGI_LOAD_REAL(name, type, value, ...) \
    case TGI_AS_##name: {                     \
        const type x = *(const type *)at;     \
        return (real)(value);                 \
    }
#define TGI_LOAD_I64(name, type, value, whole, ...) \
    case TGI_AS_##name: {                           \
        const type x = *(const type *)at;           \
        return (int64_t)(whole);                    \
    }
template <class real> __device__ inline real tgi_load_as(tg_dtype dtype, const void *at)
{
    switch ((int)dtype) {
        TGI_ELEMENTS(TGI_LOAD_REAL)
    }
    return 0;
}
template <> __device__ inline int64_t tgi_load_as<int64_t>(tg_dtype dtype, const void *at)
{
    switch ((int)dtype) {
        TGI_ELEMENTS(TGI_LOAD_I64)
    }
    return 0;
}

#define TGI_STORE_F32(name, type, value, whole, from_f32, from_f64, from_i64) \
    case TGI_AS_##name:                                                       \
        *(type *)at = (type)(from_f32);                                       \
        break;
#define TGI_STORE_F64(name, type, value, whole, from_f32, from_f64, from_i64) \
    case TGI_AS_##name:                                                       \
        *(type *)at = (type)(from_f64);                                       \
        break;
#define TGI_STORE_I64(name, type, value, whole, from_f32, from_f64, from_i64) \
    case TGI_AS_##name: *(type *)at = (type)(from_i64); break;
__device__ inline void tgi_store_as(tg_dtype dtype, void *at, float x)
{
    switch ((int)dtype) {
        TGI_ELEMENTS(TGI_STORE_F32)
    }
}
__device__ inline void tgi_store_as(tg_dtype dtype, void *at, double x)
{
    switch ((int)dtype) {
        TGI_ELEMENTS(TGI_STORE_F64)
    }
}
__device__ inline void tgi_store_as(tg_dtype dtype, void *at, int64_t x)
{
    switch ((int)dtype) {
        TGI_ELEMENTS(TGI_STORE_I64)
    }
}

__host__ __device__ inline bool tgi_is_floating(tg_dtype dtype) { return (int)dtype <= (int)TG_F16; }

/* tgi_bytes_of, for kernels. */
__device__ inline int64_t tgi_size_of(tg_dtype dtype)
{
    switch (dtype) {
    case TG_F64:
    case TG_I64: return 8;
    case TG_F32:
    case TG_I32: return 4;
    case TG_BF16:
    case TG_F16: return 2;
    default: return 1;
    }
}

__device__ inline bool tgi_is_true(tg_dtype dtype, const void *at)
{
    return tgi_is_floating(dtype) ? tgi_load_as<double>(dtype, at) != 0 : tgi_load_as<int64_t>(dtype, at) != 0;
}

/* Copies one element of `size` bytes without changing its bits. */
__device__ inline void tgi_copy_element(void *to, const void *from, int64_t size)
{
    switch ((int)size) {
    case 1: *(uint8_t *)to = *(const uint8_t *)from; break;
    case 2: *(uint16_t *)to = *(const uint16_t *)from; break;
    case 4: *(uint32_t *)to = *(const uint32_t *)from; break;
    default: *(uint64_t *)to = *(const uint64_t *)from; break;
    }
}

/* tgi_stored<dtype>::type is how an element is stored, tgi_computed<dtype>::type what kernels compute with it in. */
template <int dtype> struct tgi_stored;
#define TGI_STORED(name, stored, ...)              \
    template <> struct tgi_stored<TGI_AS_##name> { \
        typedef stored type;                       \
    };
TGI_ELEMENTS(TGI_STORED)
template <int dtype> struct tgi_computed {
    typedef int64_t type;
};
template <> struct tgi_computed<TG_F32> {
    typedef float type;
};
template <> struct tgi_computed<TG_BF16> : tgi_computed<TG_F32> {
};
template <> struct tgi_computed<TG_F16> : tgi_computed<TG_F32> {
};
template <> struct tgi_computed<TG_F64> {
    typedef double type;
};

/* ---- packs ---- */

/* A pack is `width` neighbouring elements that are loaded and stored by one instruction: 16 bytes at most, aligned to
   their size.  The host checks the alignment before it launches a kernel that uses packs (tgi_packs_of). */
enum { TGI_PACK_BYTES = 16 };
template <int dtype, int width> struct alignas(sizeof(typename tgi_stored<dtype>::type) * width) tgi_pack {
    typename tgi_stored<dtype>::type x[width];
};
#ifndef CUDASIM_CHECK_ALIGNED /* defined by the simulator in tests/cudasim */
#define CUDASIM_CHECK_ALIGNED(at, alignment) ((void)0)
#endif

template <class pack> __device__ inline pack tgi_load_pack(const void *at)
{
    CUDASIM_CHECK_ALIGNED(at, alignof(pack));
    return *(const pack *)at;
}

template <class pack> __device__ inline void tgi_store_pack(void *at, const pack &x)
{
    CUDASIM_CHECK_ALIGNED(at, alignof(pack));
    *(pack *)at = x;
}

/* The number of whole packs of `width` elements in each of the first operands; 0 if one of them is not aligned. */
static int64_t tgi_packs_of(const tgi_iter *iter, int operands, int64_t width)
{
    for (int k = 0; k < operands; ++k) {
        if ((uintptr_t)iter->data[k] % TGI_PACK_BYTES) return 0;
    }
    return iter->numel / width;
}

/* ---- addresses ---- */

/* The index of element number *element in the last dim, of this size; *element becomes its number in the other dims. */
__device__ inline int64_t tgi_pop_index(int64_t *element, int64_t size)
{
    if ((uint64_t)(*element | size) >> 32 == 0) { /* usual; 64-bit division is much slower */
        const uint32_t quotient = (uint32_t)*element / (uint32_t)size;
        const int64_t index = (uint32_t)*element - quotient * (uint32_t)size;
        *element = quotient;
        return index;
    }
    const int64_t index = *element % size;
    *element /= size;
    return index;
}

/* The addresses of element number `element` in the iterator's first N operands: divides the number into one index per
   dim, the last dim first.  The loop over dims has a constant length and is unrolled, because arrays that are indexed
   by a variable would be copied from the kernel's parameters to local memory. */
template <int N> __device__ inline void tgi_element_addresses(const tgi_iter &iter, int64_t element, char *(&at)[N])
{
#pragma unroll
    for (int k = 0; k < N; ++k) at[k] = iter.data[k];
#pragma unroll
    for (int d = TG_MAX_DIMS - 1; d >= 0; --d) {
        if (d >= iter.ndim) continue;
        const int64_t index = d > 0 ? tgi_pop_index(&element, iter.dim[d]) : element;
#pragma unroll
        for (int k = 0; k < N; ++k) at[k] += index * iter.stride[k][d];
    }
}

/* ---- over the threads of a block ---- */

/* Each kind of reduction as a type with its identity and the combination of two values, for double and for int64_t:
   tgi_combine_sum::two(a, x) is a + x. */
#define TGI_COMBINE(name, identity_f64, combination_f64, identity_i64, combination_i64)            \
    struct tgi_combine_##name {                                                                    \
        __device__ static double identity(double) { return (double)(identity_f64); }               \
        __device__ static int64_t identity(int64_t) { return (int64_t)(identity_i64); }            \
        __device__ static double two(double a, double x) { return (double)(combination_f64); }     \
        __device__ static int64_t two(int64_t a, int64_t x) { return (int64_t)(combination_i64); } \
    };
TGI_REDUCTIONS(TGI_COMBINE)

/* Combines one value per thread of the block, in a fixed order: first the 32 lanes of each warp, then the warps'
   results.  All threads of the block call it, and all get the result. */
template <class combine, class T> __device__ inline T tgi_block_combine(T a)
{
    __shared__ T part[32]; /* one result per warp */
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, warps = (int)blockDim.x / 32;
    for (int offset = 16; offset > 0; offset /= 2) a = combine::two(a, __shfl_xor_sync(TGI_FULL_MASK, a, offset));
    __syncthreads(); /* other warps may still read part in the call before */
    if (lane == 0) part[warp] = a;
    __syncthreads();
    a = lane < warps ? part[lane] : combine::identity(T());
    for (int offset = 16; offset > 0; offset /= 2) a = combine::two(a, __shfl_xor_sync(TGI_FULL_MASK, a, offset));
    return a;
}

__device__ inline double tgi_block_sum(double x) { return tgi_block_combine<tgi_combine_sum>(x); }

/* Inclusive scan over the block, after Hillis and Steele (1986): thread t gets x_0 + .. + x_t, of the threads' x, and
   *total is the sum of all.  All threads of the block call it. */
template <class T> __device__ inline T tgi_block_scan(T x, T *total)
{
    __shared__ T part[2][TGI_BLOCK]; /* each step reads one and writes the other */
    const int t = (int)threadIdx.x, threads = (int)blockDim.x;
    int now = 0;
    __syncthreads(); /* other threads may still read part in the call before */
    part[0][t] = x;
    for (int offset = 1; offset < threads; offset *= 2, now = 1 - now) {
        __syncthreads();
        part[1 - now][t] = t < offset ? part[now][t] : tgi_combine_sum::two(part[now][t - offset], part[now][t]);
    }
    __syncthreads();
    *total = part[now][threads - 1];
    return part[now][t];
}

/* ======== Elementwise ============================================================================================= */

/* ---- sin, cos, tan ----

   CUDA's functions use local memory to reduce large arguments.  These use registers only.  Their error is at most 1
   ulp, that of tan 2 ulp, for every float and double. */

/* The bits of 2 / pi: 64 before the binary point (all zero), then those after it. */
static __constant__ const uint64_t tgi_two_over_pi[20] = {
    0x0000000000000000, 0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561,
    0xb7246e3a424dd2e0, 0x06492eea09d1921c, 0xfe1deb1cb129a73e, 0xe88235f52ebb4484, 0xe99c7026b45f7e41,
    0x3991d639835339f4, 0x9c845f8bbdf9283b, 0x1ff897ffde05980f, 0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7,
    0x4f463f669e5fea2d, 0x7527bac7ebe5f17b, 0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab};

/* 64 of these bits, beginning with bit `from`. */
__device__ inline uint64_t tgi_two_over_pi_bits(int from)
{
    const uint64_t first = tgi_two_over_pi[from / 64], next = tgi_two_over_pi[from / 64 + 1];
    return first << (from % 64) | next >> 1 >> (63 - from % 64);
}

/* An angle as quarters * pi / 2 + hi + lo, up to a multiple of 2 pi; |hi| is at most pi / 4, and lo holds the bits
   of the angle that do not fit in hi. */
template <class real> struct tgi_angle {
    real hi, lo;
    int quarters;
};

/* Argument reduction after Payne and Hanek (1983).  x is m * 2^e with an integer m, and x * 2 / pi is the angle in
   quarters of a turn.  The bits of 2 / pi that would only add multiples of 2 pi, and those too small to matter, are
   left out of the product with m: 192 bits remain. */
template <class real> __device__ inline tgi_angle<real> tgi_angle_of(real x)
{
    const bool single = sizeof(real) == sizeof(float);
    const int digits = single ? 24 : 53, bias = single ? 127 : 1023;
    const uint64_t bits = single ? __float_as_uint((float)x) : (uint64_t)__double_as_longlong((double)x);
    const uint64_t one = (uint64_t)1 << (digits - 1), m = (bits & (one - 1)) | one;
    const int exponent = (int)(bits >> (digits - 1)) & (2 * bias + 1);
    tgi_angle<real> y = {exponent > 2 * bias ? x - x : x, 0 * x, 0}; /* infinity gives NaN; -0 stays -0 */
    if (exponent < bias - 1 || exponent > 2 * bias) return y;        /* |x| < 1/2 needs no reduction */
    const int from = exponent - bias - digits + 63;
    const uint64_t middle = tgi_two_over_pi_bits(from + 64), carried = __umul64hi(m, tgi_two_over_pi_bits(from + 128));
    uint64_t low = m * middle + carried; /* high and low: 2 bits of quarters, then 62 + 64 bits after the point */
    uint64_t high = m * tgi_two_over_pi_bits(from) + __umul64hi(m, middle) + (low < carried);
    y.quarters = (int)((high + ((uint64_t)1 << 61)) >> 62); /* rounded to nearest */
    high -= (uint64_t)y.quarters << 62;
    const bool negative = high >> 63 != 0; /* the nearest quarter is above the angle */
    if (negative) high = ~high, low = ~low;
    const int zeros = __clzll((long long)(high | 1)), rest = 64 - digits;
    const uint64_t radians = __umul64hi(high << zeros | low >> 1 >> (63 - zeros), 0xc90fdaa22168c235); /* pi / 2 */
    const real power = single ? (real)tgi_float_of_bits((uint32_t)(66 - zeros) << 23) /* 2^(-61 - zeros) */
                              : (real)__longlong_as_double((long long)(962 - zeros) << 52);
    const real unit = negative != (x < 0) ? -power : power;
    y.hi = (real)(radians >> rest << rest) * unit;
    y.lo = (real)(radians & (((uint64_t)1 << rest) - 1)) * unit;
    if (x < 0) y.quarters = -y.quarters;
    return y;
}

/* The polynomial 1 / n! - x / (n + 2)! + x^2 / (n + 4)! - .., up to the term with 1 / last! */
__device__ constexpr double tgi_factorial(int n) { return n < 2 ? 1 : n * tgi_factorial(n - 1); }
template <int n, int last, class real> __device__ inline real tgi_series(real x)
{
    constexpr double first = 1 / tgi_factorial(n);
    if constexpr (n < last)
        return (real)first - x * tgi_series<n + 2, last>(x);
    else
        return (real)first;
}

/* The sine of hi + lo + quarters * pi / 2, by Taylor's series of the sine (even quarters) or the cosine (odd). */
template <class real> __device__ inline real tgi_sin_of(const tgi_angle<real> &x, int quarters)
{
    constexpr int last = sizeof(real) == sizeof(float) ? 9 : 17;
    const real square = x.hi * x.hi, half = square / 2, rest = 1 - half;
    real y;
    if (quarters & 1)
        y = rest + ((1 - rest - half) + (square * square * tgi_series<4, last + 1>(square) - x.hi * x.lo));
    else
        y = x.hi - (x.hi * square * tgi_series<3, last>(square) - x.lo * rest);
    return quarters & 2 ? -y : y;
}

template <class real> __device__ inline real tgi_cuda_sin(real x)
{
    const tgi_angle<real> angle = tgi_angle_of(x);
    return tgi_sin_of(angle, angle.quarters);
}

template <class real> __device__ inline real tgi_cuda_cos(real x)
{
    const tgi_angle<real> angle = tgi_angle_of(x);
    return tgi_sin_of(angle, angle.quarters + 1);
}

template <class real> __device__ inline real tgi_cuda_tan(real x)
{
    const tgi_angle<real> angle = tgi_angle_of(x);
    return tgi_sin_of(angle, angle.quarters) / tgi_sin_of(angle, angle.quarters + 1);
}

/* The formulas of the op table use these names. */
#undef tgi_sin
#undef tgi_cos
#undef tgi_tan
#define tgi_sin tgi_cuda_sin
#define tgi_cos tgi_cuda_cos
#define tgi_tan tgi_cuda_tan

/* ---- map: the ops of the op table ---- */

/* Each row of the op table as a type: tgi_formula<TGI_OP_exp, float>::of(x, ..) is y.  `exists` is 0 where the op has
   no formula for the type.  An op has one to three inputs, x or a, b or a, b, c, and two numbers, s and t.

   TGI_FORMULA defines the type of one row for one dtype.  TGI_FORMULAS_FLOATS, _ANY and _TEST define those of a row of
   this kind: for float and double, also for int64_t, and with a bool as the result. */
template <int op, class real> struct tgi_formula {
    enum { exists = 0 };
};
#define TGI_FORMULA(name, type, result, number, inputs, expression)           \
    template <> struct tgi_formula<TGI_OP_##name, type> {                     \
        enum { exists = 1 };                                                  \
        typedef type real;                                                    \
        typedef result value;                                                 \
        __device__ static value of(TGI_INPUTS_##inputs, double s_, double t_) \
        {                                                                     \
            const real s = number(s_), t = number(t_);                        \
            (void)s, (void)t;                                                 \
            TGI_USED_##inputs;                                                \
            return (value)(expression);                                       \
        }                                                                     \
    };
#define TGI_INPUTS_X real x, real, real
#define TGI_INPUTS_AB real a, real b, real
#define TGI_INPUTS_ABC real a, real b, real c
#define TGI_USED_X (void)x
#define TGI_USED_AB (void)a, (void)b
#define TGI_USED_ABC (void)a, (void)b, (void)c
#define TGI_FORMULAS_FLOATS(name, inputs, y, yi)       \
    TGI_FORMULA(name, float, float, (real), inputs, y) \
    TGI_FORMULA(name, double, double, (real), inputs, y)
#define TGI_FORMULAS_CHOICE TGI_FORMULAS_FLOATS
#define TGI_FORMULAS_ANY(name, inputs, y, yi) \
    TGI_FORMULAS_FLOATS(name, inputs, y, yi)  \
    TGI_FORMULA(name, int64_t, int64_t, tgi_f64_to_i64, inputs, yi)
#define TGI_FORMULAS_TEST(name, inputs, y, yi)            \
    TGI_FORMULA(name, float, uint8_t, (real), inputs, y)  \
    TGI_FORMULA(name, double, uint8_t, (real), inputs, y) \
    TGI_FORMULA(name, int64_t, uint8_t, tgi_f64_to_i64, inputs, yi)
#define TGI_FORMULAS_X(name, kind, y, yi, ...) TGI_FORMULAS_##kind(name, X, y, yi)
#define TGI_FORMULAS_AB(name, kind, y, yi, ...) TGI_FORMULAS_##kind(name, AB, y, yi)
#define TGI_FORMULAS_ABC(name, kind, y, yi, ...) TGI_FORMULAS_##kind(name, ABC, y, yi)
TGI_UNARY_OPS(TGI_FORMULAS_X)
TGI_SCALAR_OPS(TGI_FORMULAS_X)
TGI_BINARY_OPS(TGI_FORMULAS_AB)
TGI_TERNARY_OPS(TGI_FORMULAS_ABC)
TGI_BINARY_SCALAR_OPS(TGI_FORMULAS_AB)

/* The rows of the op table by the number of their inputs. */
#define TGI_OPS_OF_1(OP) TGI_UNARY_OPS(OP) TGI_SCALAR_OPS(OP)
#define TGI_OPS_OF_2(OP) TGI_BINARY_OPS(OP) TGI_BINARY_SCALAR_OPS(OP)
#define TGI_OPS_OF_3(OP) TGI_TERNARY_OPS(OP)

/* y[i] = formula(a[i], b[i], c[i]) for `width` elements from i on.  a, b, c, y [n], all contiguous; the inputs have one
   dtype, `from`; y may be one of them. */
template <class formula, int inputs, int from, int to, int width>
__device__ inline void tgi_map_pack(int64_t i, void *y, const void *a, const void *b, const void *c, double s, double t)
{
    typedef typename tgi_computed<from>::type real;
    typedef typename tgi_stored<from>::type stored;
    typedef tgi_pack<from, width> pack;
    tgi_pack<to, width> py;
    const pack pa = tgi_load_pack<pack>((const stored *)a + i);
    const pack pb = inputs > 1 ? tgi_load_pack<pack>((const stored *)b + i) : pa;
    const pack pc = inputs > 2 ? tgi_load_pack<pack>((const stored *)c + i) : pa;
#pragma unroll
    for (int k = 0; k < width; ++k) {
        const real x[3] = {tgi_load_as<real>((tg_dtype)from, &pa.x[k]), tgi_load_as<real>((tg_dtype)from, &pb.x[k]),
                           tgi_load_as<real>((tg_dtype)from, &pc.x[k])};
        tgi_store_as((tg_dtype)to, &py.x[k], (real)formula::of(x[0], x[1], x[2], s, t));
    }
    tgi_store_pack((typename tgi_stored<to>::type *)y + i, py);
}

/* The same for all n elements: one thread per pack, then one thread per element that is left. */
template <class formula, int inputs, int from, int to, int width>
__global__ void tgi_map_flat(int64_t n, int64_t packs, void *y, const void *a, const void *b, const void *c, double s,
                             double t)
{
    const int64_t done = packs * width;
    for (int64_t i = tgi_grid_thread(); i < packs; i += tgi_grid_size())
        tgi_map_pack<formula, inputs, from, to, width>(i * width, y, a, b, c, s, t);
    for (int64_t i = done + tgi_grid_thread(); i < n; i += tgi_grid_size())
        tgi_map_pack<formula, inputs, from, to, 1>(i, y, a, b, c, s, t);
}

/* A pack has 16 bytes in the wider dtype of input and output.  Inputs that the op does not have are the first one. */
template <class formula, int inputs, int from, int to>
static bool tgi_launch_flat(tgi_thread *S, const tgi_cuda_device *d, const tgi_iter *iter, double s, double t)
{
    constexpr size_t x = sizeof(typename tgi_stored<from>::type), y = sizeof(typename tgi_stored<to>::type);
    constexpr int width = (int)(TGI_PACK_BYTES / (x > y ? x : y));
    const int64_t n = iter->numel, packs = tgi_packs_of(iter, 1 + inputs, width);
    return tgi_launch_each(S, d, tgi_map_flat<formula, inputs, from, to, width>, packs ? packs : n, n, packs,
                           iter->data[0], iter->data[1], iter->data[inputs > 1 ? 2 : 1], iter->data[inputs > 2 ? 3 : 1],
                           s, t);
}

/* The formula of op number `op`, chosen when the kernel runs. */
template <class real, int inputs>
__device__ inline real tgi_formula_of(int op, real a, real b, real c, double s, double t)
{
#define TGI_FORMULA_CASE(name, ...)                                           \
    case TGI_OP_##name:                                                       \
        if constexpr (tgi_formula<TGI_OP_##name, real>::exists)               \
            return (real)tgi_formula<TGI_OP_##name, real>::of(a, b, c, s, t); \
        break;
    if constexpr (inputs == 1) {
        switch (op) {
            TGI_OPS_OF_1(TGI_FORMULA_CASE)
        }
    } else if constexpr (inputs == 2) {
        switch (op) {
            TGI_OPS_OF_2(TGI_FORMULA_CASE)
        }
    } else {
        switch (op) {
            TGI_OPS_OF_3(TGI_FORMULA_CASE)
        }
    }
    return 0;
}

/* y[i] = formula(a[i], b[i], c[i]), one thread per element.  Operands of any strides and dtypes: iter's 0 is y, then
   come the inputs.  One kernel serves all ops with as many inputs. */
template <class real, int inputs> __global__ void tgi_map_strided(tgi_iter iter, int op, double s, double t)
{
    for (int64_t i = tgi_grid_thread(); i < iter.numel; i += tgi_grid_size()) {
        char *at[inputs + 1];
        tgi_element_addresses(iter, i, at);
        const real a = tgi_load_as<real>(iter.dtype[1], at[1]);
        const real b = inputs > 1 ? tgi_load_as<real>(iter.dtype[2], at[inputs > 1 ? 2 : 1]) : real();
        const real c = inputs > 2 ? tgi_load_as<real>(iter.dtype[3], at[inputs > 2 ? 3 : 1]) : real();
        tgi_store_as(iter.dtype[0], at[0], tgi_formula_of<real, inputs>(op, a, b, c, s, t));
    }
}

/* Chooses the kernel for contiguous operands by the inputs' dtype: `compute`, or with f32 one of 16 bits.  A test (its
   result is smaller than its inputs) gives bool. */
template <class formula, int compute, int inputs>
static bool tgi_map_dense(tgi_thread *S, const tgi_cuda_device *d, const tgi_iter *iter, double s, double t)
{
    constexpr bool test = sizeof(typename formula::value) < sizeof(typename formula::real);
    constexpr int to = test ? TG_BOOL : compute, to_bf16 = test ? TG_BOOL : TG_BF16, to_f16 = test ? TG_BOOL : TG_F16;
    if constexpr (compute == TG_F32) {
        if (iter->dtype[1] == TG_BF16) return tgi_launch_flat<formula, inputs, TG_BF16, to_bf16>(S, d, iter, s, t);
        if (iter->dtype[1] == TG_F16) return tgi_launch_flat<formula, inputs, TG_F16, to_f16>(S, d, iter, s, t);
    }
    return tgi_launch_flat<formula, inputs, compute, to>(S, d, iter, s, t);
}

/* map in one compute dtype: one kernel per op where all operands are contiguous and the inputs have one dtype, else the
   kernel for any strides and dtypes. */
template <int compute>
static bool tgi_map_as(tgi_thread *S, const tgi_cuda_device *d, const tgi_loop *loop, const tgi_iter *iter)
{
    typedef typename tgi_computed<compute>::type real;
    bool flat = true, exists = false, test = false;
#define TGI_ROW_EXISTS(name, kind, ...)                    \
    case TGI_OP_##name:                                    \
        exists = tgi_formula<TGI_OP_##name, real>::exists; \
        test = TGI_IS_##kind;                              \
        break;
#define TGI_IS_FLOATS false
#define TGI_IS_CHOICE false
#define TGI_IS_ANY false
#define TGI_IS_TEST true
    switch (loop->kernel) {
        TGI_OPS_OF_1(TGI_ROW_EXISTS) TGI_OPS_OF_2(TGI_ROW_EXISTS) TGI_OPS_OF_3(TGI_ROW_EXISTS)
    }
    if (!exists)
        return tgi_host_api.fail(S, TG_ERR_UNSUPPORTED, "map", "no kernel of op %d computes in %s", loop->kernel,
                                 tgi_dtypes[loop->compute].name);
    const tg_dtype from = iter->dtype[1];
    for (int k = 0; k < iter->nargs; ++k)
        flat = flat && iter->dtype[k] == (k || !test ? from : TG_BOOL) && tgi_is_flat(iter, k);
    flat = flat && (from == compute || (compute == TG_F32 && (from == TG_BF16 || from == TG_F16)));
    const double s = loop->scalar[0], t = loop->scalar[1];
#define TGI_MAP_DENSE(inputs, name)                                                                    \
    case TGI_OP_##name:                                                                                \
        if constexpr (tgi_formula<TGI_OP_##name, real>::exists)                                        \
            return tgi_map_dense<tgi_formula<TGI_OP_##name, real>, compute, inputs>(S, d, iter, s, t); \
        break;
#define TGI_MAP_DENSE_1(name, ...) TGI_MAP_DENSE(1, name)
#define TGI_MAP_DENSE_2(name, ...) TGI_MAP_DENSE(2, name)
#define TGI_MAP_DENSE_3(name, ...) TGI_MAP_DENSE(3, name)
    if (flat) {
        switch (loop->kernel) {
            TGI_OPS_OF_1(TGI_MAP_DENSE_1) TGI_OPS_OF_2(TGI_MAP_DENSE_2) TGI_OPS_OF_3(TGI_MAP_DENSE_3)
        }
    }
    if (iter->nargs == 2)
        return tgi_launch_each(S, d, tgi_map_strided<real, 1>, iter->numel, *iter, loop->kernel, s, t);
    if (iter->nargs == 3)
        return tgi_launch_each(S, d, tgi_map_strided<real, 2>, iter->numel, *iter, loop->kernel, s, t);
    return tgi_launch_each(S, d, tgi_map_strided<real, 3>, iter->numel, *iter, loop->kernel, s, t);
}

static bool tgi_cuda_map(tgi_thread *S, const tgi_loop *loop)
{
    const tgi_cuda_device *d = tgi_device_for(S, loop->arg[0].index);
    tgi_iter iter;
    tgi_iter_init(&iter, loop->ndim, loop->dim, loop->nargs, loop->arg, true);
    if (!d) return false;
    if (iter.numel == 0) return true;
    if (loop->compute == TG_F32) return tgi_map_as<TG_F32>(S, d, loop, &iter);
    if (loop->compute == TG_F64) return tgi_map_as<TG_F64>(S, d, loop, &iter);
    return tgi_map_as<TG_I64>(S, d, loop, &iter);
}

/* ---- copy, fill ---- */

/* y = x of the same dtype, one thread per element of 1, 2, 4 or 8 bytes; any strides. */
template <class word> __global__ void tgi_copy_bits(tgi_iter iter)
{
    for (int64_t i = tgi_grid_thread(); i < iter.numel; i += tgi_grid_size()) {
        char *at[2];
        tgi_element_addresses(iter, i, at);
        *(word *)(void *)at[0] = *(const word *)(const void *)at[1];
    }
}

/* y = x converted to y's dtype, one thread per element; any strides.  `real` is x's compute dtype, which holds all
   values of x. */
template <class real> __global__ void tgi_copy_converted(tgi_iter iter)
{
    for (int64_t i = tgi_grid_thread(); i < iter.numel; i += tgi_grid_size()) {
        char *at[2];
        tgi_element_addresses(iter, i, at);
        tgi_store_as(iter.dtype[0], at[0], tgi_load_as<real>(iter.dtype[1], at[1]));
    }
}

/* The formula y = x, with which tgi_map_flat converts contiguous operands. */
template <class real_> struct tgi_identity {
    typedef real_ real;
    __device__ static real of(real x, real, real, double, double) { return x; }
};

/* Chooses the kernel by the dtype of y. */
template <int from> static bool tgi_convert_flat(tgi_thread *S, const tgi_cuda_device *d, const tgi_iter *iter)
{
    typedef tgi_identity<typename tgi_computed<from>::type> identity;
#define TGI_CONVERT_TO(name, ...) \
    case TGI_AS_##name: return tgi_launch_flat<identity, 1, from, TGI_AS_##name>(S, d, iter, 0, 0);
    switch ((int)iter->dtype[0]) {
        TGI_ELEMENTS(TGI_CONVERT_TO)
    }
    return false;
}

static bool tgi_cuda_copy(tgi_thread *S, const tgi_loop *loop)
{
    const tgi_cuda_device *d = tgi_device_for(S, loop->arg[0].index);
    const tg_dtype to = loop->arg[0].dtype, from = loop->arg[1].dtype;
    tgi_iter iter;
    tgi_iter_init(&iter, loop->ndim, loop->dim, 2, loop->arg, true);
    if (!d) return false;
    if (iter.numel == 0) return true;
    const bool flat = tgi_is_flat(&iter, 0) && tgi_is_flat(&iter, 1);
    if (to == from && flat) {
        return TGI_CUDA(cudaMemcpyAsync(iter.data[0], iter.data[1], (size_t)(iter.numel * tgi_bytes_of(to)),
                                        cudaMemcpyDeviceToDevice, d->stream));
    }
    if (to == from) {
        switch (tgi_bytes_of(to)) {
        case 1: return tgi_launch_each(S, d, tgi_copy_bits<uint8_t>, iter.numel, iter);
        case 2: return tgi_launch_each(S, d, tgi_copy_bits<uint16_t>, iter.numel, iter);
        case 4: return tgi_launch_each(S, d, tgi_copy_bits<uint32_t>, iter.numel, iter);
        default: return tgi_launch_each(S, d, tgi_copy_bits<uint64_t>, iter.numel, iter);
        }
    }
#define TGI_CONVERT_FROM(name, ...) \
    case TGI_AS_##name: return tgi_convert_flat<TGI_AS_##name>(S, d, &iter);
    if (flat) {
        switch ((int)from) {
            TGI_ELEMENTS(TGI_CONVERT_FROM)
        }
    }
    void (*const convert[])(tgi_iter) = {tgi_copy_converted<float>, tgi_copy_converted<double>,
                                         tgi_copy_converted<int64_t>};
    return tgi_launch_each(S, d, convert[tgi_compute_index(tgi_compute_dtype(from))], iter.numel, iter);
}

/* y[i] = value, one thread per element; any strides. */
static __global__ void tgi_fill_elements(tgi_iter iter, double value)
{
    for (int64_t i = tgi_grid_thread(); i < iter.numel; i += tgi_grid_size()) {
        char *at[1];
        tgi_element_addresses(iter, i, at);
        tgi_store_as(iter.dtype[0], at[0], value);
    }
}

/* The same for contiguous y [n]: one thread per pack of 16 bytes, then one thread per element that is left. */
static __global__ void tgi_fill_flat(tg_dtype dtype, char *y, int64_t n, int64_t packs, double value)
{
    const int64_t size = tgi_size_of(dtype), done = packs * TGI_PACK_BYTES / size;
    tgi_pack<TG_I64, 2> pack;
    uint64_t word = 0;
    tgi_store_as(dtype, &word, value);
    for (int64_t bits = 8 * size; bits < 64; bits *= 2) word |= word << bits;
    pack.x[0] = pack.x[1] = (int64_t)word;
    for (int64_t i = tgi_grid_thread(); i < packs; i += tgi_grid_size()) tgi_store_pack(y + i * TGI_PACK_BYTES, pack);
    for (int64_t i = done + tgi_grid_thread(); i < n; i += tgi_grid_size()) tgi_copy_element(y + i * size, &word, size);
}

static bool tgi_cuda_fill(tgi_thread *S, const tgi_loop *loop)
{
    const tgi_cuda_device *d = tgi_device_for(S, loop->arg[0].index);
    const double value = loop->scalar[0];
    tgi_iter iter;
    tgi_iter_init(&iter, loop->ndim, loop->dim, 1, loop->arg, true);
    if (!d) return false;
    if (iter.numel == 0) return true;
    if (!tgi_is_flat(&iter, 0)) return tgi_launch_each(S, d, tgi_fill_elements, iter.numel, iter, value);
    const int64_t n = iter.numel, packs = tgi_packs_of(&iter, 1, TGI_PACK_BYTES / tgi_bytes_of(iter.dtype[0]));
    return tgi_launch_each(S, d, tgi_fill_flat, packs ? packs : n, iter.dtype[0], iter.data[0], n, packs, value);
}

/* ======== Sorting ================================================================================================= */

/* pairs [rows, length] of (key, index): each row is sorted by key, and pairs with equal keys by index, so that the sort
   is stable.  Runs of TGI_RUN pairs are sorted in shared memory by a bitonic network, then merged two at a time. */
enum { TGI_RUN = 2 * TGI_BLOCK };

__device__ inline bool tgi_before(const tgi_sort_pair &a, const tgi_sort_pair &b)
{
    return a.key < b.key || (a.key == b.key && a.index < b.index);
}

/* Sorts the runs of pairs [rows, length] in place.  One block per run; in each step of the network a thread compares
   two pairs and exchanges them if they are in the wrong order. */
static __global__ void tgi_sort_runs(tgi_sort_pair *pairs, int64_t rows, int64_t length)
{
    __shared__ uint64_t key[TGI_RUN];
    __shared__ int64_t index[TGI_RUN];
    const int64_t runs = (length + TGI_RUN - 1) / TGI_RUN;
    for (int64_t run = blockIdx.x; run < rows * runs; run += gridDim.x) {
        const int64_t start = run % runs * TGI_RUN, left = length - start;
        tgi_sort_pair *const p = pairs + run / runs * length + start;
        for (int i = (int)threadIdx.x; i < TGI_RUN; i += TGI_BLOCK) { /* padding sorts last */
            key[i] = i < left ? p[i].key : UINT64_MAX;
            index[i] = i < left ? p[i].index : INT64_MAX;
        }
        for (int size = 2; size <= TGI_RUN; size *= 2) {
            for (int distance = size / 2; distance > 0; distance /= 2) {
                const int t = (int)threadIdx.x, i = 2 * t - (t & (distance - 1)), j = i + distance;
                __syncthreads();
                const tgi_sort_pair a = {key[i], index[i]}, b = {key[j], index[j]};
                if (tgi_before(b, a) == ((i & size) == 0)) {
                    key[i] = b.key, index[i] = b.index;
                    key[j] = a.key, index[j] = a.index;
                }
            }
        }
        __syncthreads();
        for (int i = (int)threadIdx.x; i < TGI_RUN && i < left; i += TGI_BLOCK) {
            p[i].key = key[i];
            p[i].index = index[i];
        }
        __syncthreads();
    }
}

/* Merges neighbouring runs of `run` pairs: from, to [rows, length].  One thread per pair: its place in the merged run
   is its place in its own run plus the number of pairs before it in the other run, which a binary search finds. */
static __global__ void tgi_merge_runs(tgi_sort_pair *to, const tgi_sort_pair *from, int64_t rows, int64_t length,
                                      int64_t run)
{
    for (int64_t e = tgi_grid_thread(); e < rows * length; e += tgi_grid_size()) {
        const int64_t i = e % length, start = i - i % (2 * run);
        const int64_t middle = length - start < run ? length : start + run;
        const int64_t end = length - start < 2 * run ? length : start + 2 * run;
        const tgi_sort_pair *const row = from + (e - i);
        const tgi_sort_pair mine = row[i];
        const int64_t other = i < middle ? middle : start; /* the first pair of the other run */
        int64_t low = other, high = i < middle ? end : middle;
        while (low < high) {
            const int64_t half = low + (high - low) / 2;
            if (tgi_before(row[half], mine))
                low = half + 1;
            else
                high = half;
        }
        to[e - i + start + (i < middle ? i - start : i - middle) + (low - other)] = mine;
    }
}

/* Sorts pairs [rows, length] with the help of `other`, as large.  Returns the one of the two that holds the result;
   NULL after recording an error. */
static tgi_sort_pair *tgi_sort_pairs(tgi_thread *S, const tgi_cuda_device *d, tgi_sort_pair *pairs,
                                     tgi_sort_pair *other, int64_t rows, int64_t length)
{
    if (!tgi_launch(S, d, tgi_sort_runs, rows * ((length + TGI_RUN - 1) / TGI_RUN), TGI_BLOCK, pairs, rows, length))
        return NULL;
    for (int64_t run = TGI_RUN; run < length; run *= 2) {
        if (!tgi_launch_each(S, d, tgi_merge_runs, rows * length, other, pairs, rows, length, run)) return NULL;
        tgi_sort_pair *const sorted = other;
        other = pairs;
        pairs = sorted;
    }
    return pairs;
}

/* An element as an unsigned integer with the same order (see tgi_load_keys in tensorgrad.h); NaN is the largest. */
__device__ inline uint64_t tgi_key_of(tg_dtype dtype, const void *at)
{
    const uint64_t sign = (uint64_t)1 << 63;
    if (!tgi_is_floating(dtype)) return (uint64_t)tgi_load_as<int64_t>(dtype, at) ^ sign;
    const double x = tgi_load_as<double>(dtype, at) + 0.0; /* -0 + 0 is 0 */
    const uint64_t bits = (uint64_t)__double_as_longlong(x);
    return x != x ? UINT64_MAX : bits & sign ? ~bits : bits | sign;
}

/* ---- accumulate: y[i] += x[i], where several i may be the same element of y ----

   The elements are sorted by their place in y; then one thread adds all elements that have the same place, in the order
   of i.  No atomic addition is needed, and the result is the same on every run. */

/* pairs [n] = (offset of y[i] in bytes, i), one thread per element. */
static __global__ void tgi_load_offsets(tgi_iter iter, tgi_sort_pair *pairs)
{
    for (int64_t i = tgi_grid_thread(); i < iter.numel; i += tgi_grid_size()) {
        char *at[1];
        tgi_element_addresses(iter, i, at);
        pairs[i].key = (uint64_t)(at[0] - iter.data[0]);
        pairs[i].index = i;
    }
}

/* pairs [n], sorted.  One thread per pair; only the first pair of each offset adds. */
template <class real> __global__ void tgi_add_sorted(tgi_iter iter, const tgi_sort_pair *pairs)
{
    for (int64_t i = tgi_grid_thread(); i < iter.numel; i += tgi_grid_size()) {
        const uint64_t key = pairs[i].key;
        if (i > 0 && pairs[i - 1].key == key) continue;
        char *const y = iter.data[0] + (int64_t)key;
        real sum = tgi_load_as<real>(iter.dtype[0], y);
        for (int64_t j = i; j < iter.numel && pairs[j].key == key; ++j) {
            char *at[2];
            tgi_element_addresses(iter, pairs[j].index, at);
            sum = tgi_formula<TGI_OP_add, real>::of(sum, tgi_load_as<real>(iter.dtype[1], at[1]), 0, 0, 0);
        }
        tgi_store_as(iter.dtype[0], y, sum);
    }
}

static bool tgi_cuda_accumulate(tgi_thread *S, const tgi_loop *loop)
{
    tgi_cuda_device *d = tgi_device_for(S, loop->arg[0].index);
    tgi_iter iter;
    tgi_iter_init(&iter, loop->ndim, loop->dim, 2, loop->arg, false);
    if (!d) return false;
    if (iter.numel == 0) return true;
    if (tgi_no_overlap(&iter)) {
        const tgi_loop add = tgi_as_addition(loop);
        return tgi_cuda_map(S, &add);
    }
    tgi_sort_pair *const pairs = (tgi_sort_pair *)tgi_scratch_alloc(S, d, "accumulate", 2 * iter.numel, sizeof *pairs);
    if (!pairs) return false;
    const tgi_sort_pair *sorted = NULL;
    if (tgi_launch_each(S, d, tgi_load_offsets, iter.numel, iter, pairs))
        sorted = tgi_sort_pairs(S, d, pairs, pairs + iter.numel, 1, iter.numel);
    void (*const add[])(tgi_iter, const tgi_sort_pair *) = {tgi_add_sorted<float>, tgi_add_sorted<double>,
                                                            tgi_add_sorted<int64_t>};
    const int compute = tgi_compute_index(tgi_compute_dtype(iter.dtype[0]));
    const bool ok = sorted && tgi_launch_each(S, d, add[compute], iter.numel, iter, sorted);
    tgi_cuda_release(S, d->index, pairs, 0);
    return ok;
}

/* ---- arange ---- */

/* out[i] = start + i * step, one thread per element; integers wrap.  out [n], its elements `bytes` apart. */
static __global__ void tgi_arange_elements(tgi_operand out, int64_t n, int64_t bytes, double start, double step)
{
    for (int64_t i = tgi_grid_thread(); i < n; i += tgi_grid_size()) {
        char *const at = (char *)out.data + i * bytes;
        if (tgi_is_floating(out.dtype))
            tgi_store_as(out.dtype, at, TGI_MUL_ADD((double)i, step, start));
        else
            tgi_store_as(out.dtype, at, tgi_wrap_add(tgi_f64_to_i64(start), tgi_wrap_mul(i, tgi_f64_to_i64(step))));
    }
}

static bool tgi_cuda_arange(tgi_thread *S, tgi_operand out, int64_t n, double start, double step)
{
    const tgi_cuda_device *d = tgi_device_for(S, out.index);
    const int64_t bytes = out.stride[0] * tgi_bytes_of(out.dtype);
    return d && (n <= 0 || tgi_launch_each(S, d, tgi_arange_elements, n, out, n, bytes, start, step));
}

/* ======== Reductions ============================================================================================== */

/* out[o] = the combination (sum, prod, ..) of in[o, r] over all r.  The reduced elements r of each output are cut into
   pieces of a fixed size, so that the order of the combination depends on the shapes alone.  A piece is combined by one
   block (tgi_fold), or, where neighbouring outputs are neighbours in memory, by one thread (tgi_fold_across): then
   neighbouring threads read neighbouring elements.  Several pieces are combined by a second kernel
   (tgi_fold_pieces). */
enum { TGI_FOLD_PIECE = 16384, TGI_ACROSS_PIECE = 512 };
typedef struct {
    tgi_iter kept;    /* over the outputs: operand 0 is out, operand 1 the first element of in for that output */
    tgi_iter reduced; /* over the reduced elements: operand 0 is in */
    int64_t piece;    /* elements in a piece */
    int64_t pieces;   /* per output */
    void *partial;    /* [pieces, outputs] double or int64_t; NULL where there is one piece, which goes to out */
} tgi_reduce_job;

/* Combines elements first, first + step, .. of a piece; `item` is the number of the piece in [pieces, outputs].  *out
   is the address of its output. */
template <class combine, class T>
__device__ inline T tgi_fold_piece(const tgi_reduce_job &job, int64_t item, int64_t first, int64_t step, char **out)
{
    const int64_t outputs = job.kept.numel, output = item % outputs, from = item / outputs * job.piece;
    const int64_t to = job.reduced.numel - from < job.piece ? job.reduced.numel : from + job.piece;
    char *at[2], *x[1];
    T a = combine::identity(T());
    tgi_element_addresses(job.kept, output, at);
    *out = at[0];
    for (int64_t i = from + first; i < to; i += step) {
        tgi_element_addresses(job.reduced, i, x);
        a = combine::two(a, tgi_load_as<T>(job.reduced.dtype[0], x[0] + (at[1] - job.kept.data[1])));
    }
    return a;
}

/* Stores the result of a piece: to partial, or to the output if it is the only piece. */
template <class T> __device__ inline void tgi_fold_store(const tgi_reduce_job &job, int64_t item, char *out, T a)
{
    if (job.partial)
        ((T *)job.partial)[item] = a;
    else
        tgi_store_as(job.kept.dtype[0], out, a);
}

/* One block per piece. */
template <class combine, class T> __global__ void tgi_fold(tgi_reduce_job job)
{
    for (int64_t item = blockIdx.x; item < job.kept.numel * job.pieces; item += gridDim.x) {
        char *out;
        T a = tgi_fold_piece<combine, T>(job, item, threadIdx.x, blockDim.x, &out);
        a = tgi_block_combine<combine>(a);
        if (threadIdx.x == 0) tgi_fold_store(job, item, out, a);
    }
}

/* One thread per piece. */
template <class combine, class T> __global__ void tgi_fold_across(tgi_reduce_job job)
{
    for (int64_t item = tgi_grid_thread(); item < job.kept.numel * job.pieces; item += tgi_grid_size()) {
        char *out;
        const T a = tgi_fold_piece<combine, T>(job, item, 0, 1, &out);
        tgi_fold_store(job, item, out, a);
    }
}

/* out[o] = the combination of partial[p, o] over all pieces p, one block per output. */
template <class combine, class T> __global__ void tgi_fold_pieces(tgi_reduce_job job)
{
    for (int64_t output = blockIdx.x; output < job.kept.numel; output += gridDim.x) {
        char *at[1];
        T a = combine::identity(T());
        tgi_element_addresses(job.kept, output, at);
        for (int64_t p = threadIdx.x; p < job.pieces; p += blockDim.x)
            a = combine::two(a, ((const T *)job.partial)[p * job.kept.numel + output]);
        a = tgi_block_combine<combine>(a);
        if (threadIdx.x == 0) tgi_store_as(job.kept.dtype[0], at[0], a);
    }
}

template <class combine, class T>
static bool tgi_reduce_as(tgi_thread *S, const tgi_cuda_device *d, const tgi_reduce_job *job, bool across)
{
    const int64_t items = job->kept.numel * job->pieces;
    const bool ok = across ? tgi_launch_each(S, d, tgi_fold_across<combine, T>, items, *job)
                           : tgi_launch(S, d, tgi_fold<combine, T>, items, TGI_BLOCK, *job);
    if (!ok || !job->partial) return ok;
    return tgi_launch(S, d, tgi_fold_pieces<combine, T>, job->kept.numel, job->pieces < 64 ? 32 : (int)TGI_BLOCK, *job);
}

/* Floats accumulate in double, integers and bool in int64_t. */
typedef bool (*tgi_reduce_fn)(tgi_thread *S, const tgi_cuda_device *d, const tgi_reduce_job *job, bool across);
#define TGI_REDUCE_ROW(name, ...) \
    {tgi_reduce_as<tgi_combine_##name, double>, tgi_reduce_as<tgi_combine_##name, int64_t>},
static const tgi_reduce_fn tgi_reduce_rows[][2] = {TGI_REDUCTIONS(TGI_REDUCE_ROW)}; /* in the order of tgi_reduction */

static bool tgi_cuda_reduce(tgi_thread *S, const tgi_reduce *reduce)
{
    tgi_cuda_device *d = tgi_device_for(S, reduce->in.index);
    const tgi_operand arg[2] = {reduce->out, reduce->in};
    tgi_operand in = reduce->in;
    tgi_reduce_job job;
    memcpy(in.stride, reduce->rstride, sizeof in.stride);
    tgi_iter_init(&job.kept, reduce->ndim, reduce->dim, 2, arg, true);
    tgi_iter_init(&job.reduced, reduce->rndim, reduce->rdim, 1, &in, true);
    if (!d) return false;
    if (job.kept.numel == 0) return true;
    const int64_t columns = job.kept.dim[job.kept.ndim - 1];
    const int64_t kept_step = llabs(job.kept.stride[1][job.kept.ndim - 1]);
    const int64_t reduced_step = llabs(job.reduced.stride[0][job.reduced.ndim - 1]);
    const bool across = (columns >= 4 && kept_step < reduced_step) || job.reduced.numel <= 16;
    job.piece = across ? (int64_t)TGI_ACROSS_PIECE : (int64_t)TGI_FOLD_PIECE;
    job.pieces = (job.reduced.numel + job.piece - 1) / job.piece;
    if (job.pieces == 0) job.pieces = 1;
    job.partial = NULL;
    if (job.pieces > 1) {
        job.partial = tgi_scratch_alloc(S, d, "sum", job.pieces * job.kept.numel, sizeof(double));
        if (!job.partial) return false;
    }
    const bool ok = tgi_reduce_rows[reduce->kind][tgi_is_floating(in.dtype) ? 0 : 1](S, d, &job, across);
    tgi_cuda_release(S, d->index, job.partial, 0);
    return ok;
}

/* ======== Rows ==================================================================================================== */

/* Kernels along one dim, with one block per row: thread t takes elements t, t + threads, .. of the row.  They compute
   in double whatever the dtype, as on the CPU, and the results are rounded once.  Below, [rows, n] stands for the shape
   of an operand, n along the dim; elements of a row may lie any step apart. */
typedef struct {
    tgi_iter iter;              /* over the rows, that is over all dims but one */
    int64_t length;             /* n */
    int64_t step[TGI_MAX_ARGS]; /* from an element of a row to the next, in bytes */
} tgi_row_job;

static tgi_row_job tgi_row_job_of(const tgi_rows *rows)
{
    tgi_row_job job;
    tgi_iter_init(&job.iter, rows->ndim, rows->dim, rows->nargs, rows->arg, true);
    job.length = rows->length;
    for (int k = 0; k < TGI_MAX_ARGS; ++k)
        job.step[k] = k < rows->nargs ? rows->step[k] * tgi_bytes_of(rows->arg[k].dtype) : 0;
    return job;
}

/* Launches kernel(job, args...) with one block per row; a block of one warp where the rows are short. */
template <class... P, class... A>
static bool tgi_each_row(tgi_thread *S, void (*kernel)(tgi_row_job, P...), const tgi_rows *rows, const A &...args)
{
    const tgi_cuda_device *d = tgi_device_for(S, rows->arg[rows->nargs - 1].index);
    const tgi_row_job job = tgi_row_job_of(rows);
    if (!d) return false;
    return job.iter.numel == 0 ||
           tgi_launch(S, d, kernel, job.iter.numel, rows->length <= 64 ? 32 : (int)TGI_BLOCK, job, args...);
}

/* One operand of one row: its first element, the distance of its elements in bytes, their dtype. */
typedef struct {
    char *data;
    int64_t step;
    tg_dtype dtype;
} tgi_row;

/* The job's first N operands of row number `row`. */
template <int N> __device__ inline void tgi_row_init(const tgi_row_job &job, int64_t row, tgi_row (&arg)[N])
{
    char *at[N];
    tgi_element_addresses(job.iter, row, at);
#pragma unroll
    for (int k = 0; k < N; ++k) {
        arg[k].data = at[k];
        arg[k].step = job.step[k];
        arg[k].dtype = job.iter.dtype[k];
    }
}

/* Element i of a row: its address, its value as a float, a double or an int64_t (tgi_row_get: a double), and a new
   value. */
__device__ inline char *tgi_row_at(const tgi_row &x, int64_t i) { return x.data + i * x.step; }
template <class T> __device__ inline T tgi_row_load(const tgi_row &x, int64_t i)
{
    return tgi_load_as<T>(x.dtype, tgi_row_at(x, i));
}
__device__ inline double tgi_row_get(const tgi_row &x, int64_t i) { return tgi_row_load<double>(x, i); }
template <class T> __device__ inline void tgi_row_set(const tgi_row &x, int64_t i, T value)
{
    tgi_store_as(x.dtype, tgi_row_at(x, i), value);
}

/* ---- argmax, argmin, max, min ---- */

/* values, indices [rows, 1], x [rows, n]: value and index of the largest (or smallest) element of each row, the first
   one of several; the first NaN if there is one.  `in` is the number of the operand x: 2, or 1 where the values are not
   wanted.  One block per row; each thread finds the best of its elements, then a tree in shared memory the best of
   all. */
template <int in> __global__ void tgi_arg_reduce_rows(tgi_row_job job, bool smallest)
{
    __shared__ uint64_t keys[TGI_BLOCK];
    __shared__ int64_t indices[TGI_BLOCK];
    const int t = (int)threadIdx.x;
    for (int64_t row = blockIdx.x; row < job.iter.numel; row += gridDim.x) {
        tgi_row arg[in + 1];
        tgi_row_init(job, row, arg);
        const tgi_row x = arg[in];
        tgi_sort_pair best = {UINT64_MAX, INT64_MAX}; /* the smallest key wins; for the largest, keys are inverted */
        for (int64_t i = t; i < job.length; i += blockDim.x) {
            tgi_sort_pair pair = {tgi_key_of(x.dtype, tgi_row_at(x, i)), i};
            const bool nan = tgi_is_floating(x.dtype) && pair.key == UINT64_MAX;
            if (nan)
                pair.key = 0;
            else if (!smallest)
                pair.key = ~pair.key;
            if (tgi_before(pair, best)) best = pair;
        }
        keys[t] = best.key, indices[t] = best.index;
        for (int half = (int)blockDim.x / 2; half > 0; half /= 2) {
            __syncthreads();
            if (t < half) {
                const tgi_sort_pair a = {keys[t], indices[t]}, b = {keys[t + half], indices[t + half]};
                if (tgi_before(b, a)) keys[t] = b.key, indices[t] = b.index;
            }
        }
        if (t == 0) {
            const int64_t found = indices[0] == INT64_MAX ? 0 : indices[0];
            tgi_row_set(arg[in - 1], 0, found);
            if (in == 2 && job.length > 0) tgi_copy_element(arg[0].data, tgi_row_at(x, found), tgi_size_of(x.dtype));
        }
        __syncthreads(); /* before keys and indices are written again */
    }
}

static bool tgi_cuda_arg_reduce(tgi_thread *S, tgi_reduction kind, const tgi_rows *rows)
{
    tgi_rows wanted = *rows;
    if (rows->arg[0].data) return tgi_each_row(S, tgi_arg_reduce_rows<2>, rows, kind == TGI_AMIN);
    wanted.nargs = 2;
    for (int k = 0; k < 2; ++k) {
        wanted.arg[k] = rows->arg[k + 1];
        wanted.step[k] = rows->step[k + 1];
    }
    return tgi_each_row(S, tgi_arg_reduce_rows<1>, &wanted, kind == TGI_AMIN);
}

/* ---- cumsum ---- */

/* y, x [rows, n]: y[i] = x[0] + .. + x[i].  One block per row, which takes as many elements at a time as it has threads
   and adds the sum of those before. */
template <class T> __global__ void tgi_cumsum_rows(tgi_row_job job)
{
    for (int64_t row = blockIdx.x; row < job.iter.numel; row += gridDim.x) {
        tgi_row arg[2];
        tgi_row_init(job, row, arg);
        const tgi_row y = arg[0], x = arg[1];
        T before = 0, total;
        for (int64_t start = 0; start < job.length; start += blockDim.x) {
            const int64_t i = start + threadIdx.x;
            const T sum = tgi_block_scan<T>(i < job.length ? tgi_row_load<T>(x, i) : (T)0, &total);
            if (i < job.length) tgi_row_set(y, i, tgi_combine_sum::two(before, sum));
            before = tgi_combine_sum::two(before, total);
        }
    }
}

static bool tgi_cuda_cumsum(tgi_thread *S, const tgi_rows *rows)
{
    if (tgi_is_floating(rows->arg[1].dtype)) return tgi_each_row(S, tgi_cumsum_rows<double>, rows);
    return tgi_each_row(S, tgi_cumsum_rows<int64_t>, rows);
}

/* ---- sort: values, indices [rows, k], x [rows, n] ---- */

/* pairs [rows, n] = (key of x[i], i), one thread per element. */
static __global__ void tgi_load_keys(tgi_row_job job, bool descending, tgi_sort_pair *pairs)
{
    for (int64_t e = tgi_grid_thread(); e < job.iter.numel * job.length; e += tgi_grid_size()) {
        const int64_t i = e % job.length;
        tgi_row arg[3];
        tgi_row_init(job, e / job.length, arg);
        const tgi_row x = arg[2];
        const uint64_t key = tgi_key_of(x.dtype, tgi_row_at(x, i));
        pairs[e].key = descending ? ~key : key;
        pairs[e].index = i;
    }
}

/* The first k of each row: indices[i] = the index in sorted pair i, values[i] = x at that index; one thread each. */
static __global__ void tgi_store_sorted(tgi_row_job job, int64_t k, const tgi_sort_pair *pairs)
{
    for (int64_t e = tgi_grid_thread(); e < job.iter.numel * k; e += tgi_grid_size()) {
        const int64_t i = e % k, row = e / k, from = pairs[row * job.length + i].index;
        tgi_row arg[3];
        tgi_row_init(job, row, arg);
        const tgi_row values = arg[0], indices = arg[1], x = arg[2];
        tgi_copy_element(tgi_row_at(values, i), tgi_row_at(x, from), tgi_size_of(x.dtype));
        tgi_row_set(indices, i, from);
    }
}

static bool tgi_cuda_sort(tgi_thread *S, bool descending, const tgi_rows *rows)
{
    tgi_cuda_device *d = tgi_device_for(S, rows->arg[2].index);
    const tgi_row_job job = tgi_row_job_of(rows);
    const int64_t n = job.iter.numel * job.length, k = rows->size;
    if (!d) return false;
    if (n == 0 || k == 0) return true;
    tgi_sort_pair *const pairs = (tgi_sort_pair *)tgi_scratch_alloc(S, d, "sort", 2 * n, sizeof *pairs), *sorted = NULL;
    if (!pairs) return false;
    if (tgi_launch_each(S, d, tgi_load_keys, n, job, descending, pairs))
        sorted = tgi_sort_pairs(S, d, pairs, pairs + n, job.iter.numel, job.length);
    const bool ok = sorted && tgi_launch_each(S, d, tgi_store_sorted, job.iter.numel * k, job, k, sorted);
    tgi_cuda_release(S, d->index, pairs, 0);
    return ok;
}

/* ---- softmax ---- */

/* y, x [rows, n]: y = exp(x - max) / sum(exp(x - max)); with as_log, y = x - max - log(sum(exp(x - max))).  A row of
   -inf alone gives NaN.  One block per row, which reads it three times.  `single`: expf where the dtype is not f64. */
static __global__ void tgi_softmax_rows(tgi_row_job job, bool as_log)
{
    const bool single = job.iter.dtype[1] != TG_F64;
    for (int64_t row = blockIdx.x; row < job.iter.numel; row += gridDim.x) {
        tgi_row arg[2];
        tgi_row_init(job, row, arg);
        const tgi_row y = arg[0], x = arg[1];
        double max = -HUGE_VAL, sum = 0;
        for (int64_t i = threadIdx.x; i < job.length; i += blockDim.x) {
            const double value = tgi_row_get(x, i);
            max = value > max ? value : max;
        }
        max = tgi_block_combine<tgi_combine_amax>(max);
        for (int64_t i = threadIdx.x; i < job.length; i += blockDim.x) {
            const double shifted = tgi_row_get(x, i) - max;
            sum += single ? (double)expf((float)shifted) : exp(shifted);
        }
        sum = tgi_block_sum(sum);
        const double scale = 1 / sum, log_sum = log(sum);
        for (int64_t i = threadIdx.x; i < job.length; i += blockDim.x) {
            const double shifted = tgi_row_get(x, i) - max;
            tgi_row_set(y, i,
                        as_log ? shifted - log_sum : (single ? (double)expf((float)shifted) : exp(shifted)) * scale);
        }
    }
}

static bool tgi_cuda_softmax(tgi_thread *S, bool log, const tgi_rows *rows)
{
    return tgi_each_row(S, tgi_softmax_rows, rows, log);
}

/* dx, g, y [rows, n]: dx = y * (g - sum(g * y)); with as_log, dx = g - exp(y) * sum(g).  One block per row. */
static __global__ void tgi_softmax_backward_rows(tgi_row_job job, bool as_log)
{
    for (int64_t row = blockIdx.x; row < job.iter.numel; row += gridDim.x) {
        tgi_row arg[3];
        tgi_row_init(job, row, arg);
        const tgi_row dx = arg[0], g = arg[1], y = arg[2];
        double sum = 0;
        for (int64_t i = threadIdx.x; i < job.length; i += blockDim.x)
            sum += as_log ? tgi_row_get(g, i) : tgi_row_get(g, i) * tgi_row_get(y, i);
        sum = tgi_block_sum(sum);
        for (int64_t i = threadIdx.x; i < job.length; i += blockDim.x) {
            const double g_i = tgi_row_get(g, i), y_i = tgi_row_get(y, i);
            tgi_row_set(dx, i, as_log ? g_i - exp(y_i) * sum : y_i * (g_i - sum));
        }
    }
}

static bool tgi_cuda_softmax_backward(tgi_thread *S, bool log, const tgi_rows *rows)
{
    return tgi_each_row(S, tgi_softmax_backward_rows, rows, log);
}

/* ---- layer_norm, rms_norm ---- */

/* y, x [rows, n]; rstd [rows], kept for backward: y = (x - mean) * rstd, rstd = 1 / sqrt(mean((x - mean)^2) + eps).
   With rms, the mean of x is not subtracted.  Weight and bias are applied by other kernels.  One block per row. */
static __global__ void tgi_layer_norm_rows(tgi_row_job job, bool rms, double eps)
{
    const double n = (double)job.length;
    for (int64_t row = blockIdx.x; row < job.iter.numel; row += gridDim.x) {
        tgi_row arg[3];
        tgi_row_init(job, row, arg);
        const tgi_row y = arg[0], x = arg[2];
        double sum = 0, squares = 0;
        for (int64_t i = threadIdx.x; i < job.length; i += blockDim.x) sum += tgi_row_get(x, i);
        sum = tgi_block_sum(sum);
        const double mean = rms ? 0 : sum / n;
        for (int64_t i = threadIdx.x; i < job.length; i += blockDim.x) {
            const double centered = tgi_row_get(x, i) - mean;
            squares += centered * centered;
        }
        const double rstd = 1 / sqrt(tgi_block_sum(squares) / n + eps);
        for (int64_t i = threadIdx.x; i < job.length; i += blockDim.x)
            tgi_row_set(y, i, (tgi_row_get(x, i) - mean) * rstd);
        if (threadIdx.x == 0) tgi_row_set(arg[1], 0, rstd);
    }
}

static bool tgi_cuda_layer_norm(tgi_thread *S, bool rms, double eps, const tgi_rows *rows)
{
    return tgi_each_row(S, tgi_layer_norm_rows, rows, rms, eps);
}

/* dx, g, y [rows, n]; rstd [rows]: dx = rstd * (g - mean(g) - y * mean(g * y)); with rms, without mean(g).  One block
   per row. */
static __global__ void tgi_layer_norm_backward_rows(tgi_row_job job, bool rms)
{
    const double n = (double)job.length;
    for (int64_t row = blockIdx.x; row < job.iter.numel; row += gridDim.x) {
        tgi_row arg[4];
        tgi_row_init(job, row, arg);
        const tgi_row dx = arg[0], g = arg[1], y = arg[2];
        double sum = 0, products = 0;
        for (int64_t i = threadIdx.x; i < job.length; i += blockDim.x) {
            sum += tgi_row_get(g, i);
            products += tgi_row_get(g, i) * tgi_row_get(y, i);
        }
        sum = tgi_block_sum(sum);
        products = tgi_block_sum(products);
        const double mean_g = rms ? 0 : sum / n, mean_gy = products / n, rstd = tgi_row_get(arg[3], 0);
        for (int64_t i = threadIdx.x; i < job.length; i += blockDim.x)
            tgi_row_set(dx, i, rstd * (tgi_row_get(g, i) - mean_g - tgi_row_get(y, i) * mean_gy));
    }
}

static bool tgi_cuda_layer_norm_backward(tgi_thread *S, bool rms, const tgi_rows *rows)
{
    return tgi_each_row(S, tgi_layer_norm_backward_rows, rows, rms);
}

/* ======== Indexing ================================================================================================ */

/* ---- the check of indices ----

   The host does not wait for the check.  A bad index is noted on the device and reported by the next call that waits;
   the kernels that use the indices skip bad ones.  The first of the bad indices is found in two steps: the smallest
   position, by one thread per index, then what the report will say, by one thread alone. */

/* bad->min_position = the smallest i with index[i] outside [least, size), one thread per index. */
static __global__ void tgi_find_bad_index(tgi_iter index, int64_t least, int64_t size, tgi_bad_index *bad)
{
    for (int64_t i = tgi_grid_thread(); i < index.numel; i += tgi_grid_size()) {
        char *at[1];
        tgi_element_addresses(index, i, at);
        const int64_t value = tgi_load_as<int64_t>(index.dtype[0], at[0]);
        if (value < least || value >= size) atomicMin(&bad->min_position, (unsigned long long)i);
    }
}

/* Notes the index that tgi_find_bad_index found, unless an earlier one has not been reported yet.  One thread. */
static __global__ void tgi_note_bad_index(tgi_iter index, int64_t size, const char *op, int message, int axis,
                                          tgi_bad_index *bad)
{
    if (bad->min_position == TGI_NO_POSITION) return;
    if (!bad->found) {
        char *at[1];
        tgi_element_addresses(index, (int64_t)bad->min_position, at);
        bad->value = tgi_load_as<int64_t>(index.dtype[0], at[0]);
        bad->position = (int64_t)bad->min_position;
        bad->size = size;
        bad->op = op;
        bad->message = message;
        bad->axis = axis;
        bad->found = 1;
    }
    bad->min_position = TGI_NO_POSITION;
}

/* With now, waits and reports at once; a bad index of an earlier op is reported first. */
static bool tgi_cuda_index_check(tgi_thread *S, const char *op, tgi_operand index, int ndim, const int64_t *dim,
                                 int64_t size, tgi_index_message message, int axis, bool now)
{
    tgi_cuda_device *d = tgi_device_for(S, index.index);
    const int64_t least = message == TGI_INDEX_FROM_END ? -size : 0;
    tgi_iter iter;
    tgi_iter_init(&iter, ndim, dim, 1, &index, false);
    if (!d || (now && !tgi_stream_sync(S, d))) return false;
    if (iter.numel == 0) return true;
    d->index_checked = true;
    return tgi_launch_each(S, d, tgi_find_bad_index, iter.numel, iter, least, size, d->bad_index) &&
           tgi_launch(S, d, tgi_note_bad_index, 1, 1, iter, size, op, (int)message, axis, d->bad_index) &&
           (!now || (TGI_CUDA(cudaStreamSynchronize(d->stream)) && tgi_report_bad_index(S, d, "")));
}

/* ---- gather ---- */

/* out, x, index: out[i] = x[i with index[i] in place of the position along dim], 0 for a bad index.  One thread per
   element of index.  iter is over the shape of index; its stride of x along dim is 0, and the index is multiplied by
   `step`, in bytes.  size: of x along dim. */
static __global__ void tgi_gather_elements(tgi_iter iter, int64_t step, int64_t size)
{
    for (int64_t i = tgi_grid_thread(); i < iter.numel; i += tgi_grid_size()) {
        char *at[3];
        tgi_element_addresses(iter, i, at);
        const int64_t index = tgi_load_as<int64_t>(iter.dtype[2], at[2]);
        if ((uint64_t)index < (uint64_t)size)
            tgi_copy_element(at[0], at[1] + index * step, tgi_size_of(iter.dtype[0]));
        else
            tgi_store_as(iter.dtype[0], at[0], 0.0);
    }
}

static bool tgi_cuda_gather(tgi_thread *S, const tgi_rows *rows)
{
    const tgi_cuda_device *d = tgi_device_for(S, rows->arg[0].index);
    int64_t dim[TG_MAX_DIMS];
    tgi_operand arg[3];
    tgi_iter iter;
    dim[0] = rows->length;
    memcpy(dim + 1, rows->dim, sizeof(int64_t) * (size_t)rows->ndim);
    for (int k = 0; k < 3; ++k) {
        arg[k] = rows->arg[k];
        arg[k].stride[0] = k == 1 ? 0 : rows->step[k];
        memcpy(arg[k].stride + 1, rows->arg[k].stride, sizeof(int64_t) * (size_t)rows->ndim);
    }
    tgi_iter_init(&iter, rows->ndim + 1, dim, 3, arg, true);
    const int64_t step = rows->step[1] * tgi_bytes_of(rows->arg[1].dtype);
    return d && (iter.numel == 0 || tgi_launch_each(S, d, tgi_gather_elements, iter.numel, iter, step, rows->size));
}

/* ---- scatter: x[index[i]] = src[i] or += src[i] along dim ----

   x [rows, size], src, index [rows, n].  The pairs (index, i) of each row are sorted.  Elements of src that go to the
   same element of x are then neighbours, in the order of i, and one thread deals with all of them: the result is the
   same on every run.  Where index is the same for all rows, as in an embedding, one sorted row of pairs serves them
   all. */

/* pairs [rows, n] = (index[i], i), one thread per element; rows is 1 where one row serves all. */
static __global__ void tgi_load_indices(tgi_row_job job, int64_t rows, tgi_sort_pair *pairs)
{
    for (int64_t e = tgi_grid_thread(); e < rows * job.length; e += tgi_grid_size()) {
        const int64_t i = e % job.length;
        tgi_row arg[3];
        tgi_row_init(job, e / job.length, arg);
        pairs[e].key = (uint64_t)tgi_row_load<int64_t>(arg[2], i);
        pairs[e].index = i;
    }
}

/* x[index] += the sum of src[i] over all i with that index, in the order of i.  pairs [rows, n], sorted; one thread per
   pair, of which only the first of each index adds. */
template <class real>
__global__ void tgi_scatter_add_pairs(tgi_row_job job, int64_t size, int64_t rows, const tgi_sort_pair *pairs)
{
    for (int64_t e = tgi_grid_thread(); e < job.iter.numel * job.length; e += tgi_grid_size()) {
        const int64_t row = e % job.iter.numel, i = e / job.iter.numel; /* neighbouring threads: other rows, same i */
        const tgi_sort_pair *const p = pairs + (rows > 1 ? row : 0) * job.length;
        const uint64_t key = p[i].key;
        if (key >= (uint64_t)size || (i > 0 && p[i - 1].key == key)) continue;
        tgi_row arg[2];
        tgi_row_init(job, row, arg);
        const tgi_row x = arg[0], src = arg[1];
        real sum = tgi_row_load<real>(x, (int64_t)key);
        for (int64_t j = i; j < job.length && p[j].key == key; ++j)
            sum = tgi_formula<TGI_OP_add, real>::of(sum, tgi_row_load<real>(src, p[j].index), 0, 0, 0);
        tgi_row_set(x, (int64_t)key, sum);
    }
}

/* x[index] = src[i] of the last i with that index.  One thread per pair, of which only the last of each index
   writes. */
static __global__ void tgi_scatter_pairs(tgi_row_job job, int64_t size, int64_t rows, const tgi_sort_pair *pairs)
{
    for (int64_t e = tgi_grid_thread(); e < job.iter.numel * job.length; e += tgi_grid_size()) {
        const int64_t row = e % job.iter.numel, i = e / job.iter.numel;
        const tgi_sort_pair *const p = pairs + (rows > 1 ? row : 0) * job.length;
        const uint64_t key = p[i].key;
        if (key >= (uint64_t)size || (i + 1 < job.length && p[i + 1].key == key)) continue;
        tgi_row arg[2];
        tgi_row_init(job, row, arg);
        const tgi_row x = arg[0], src = arg[1];
        tgi_copy_element(tgi_row_at(x, (int64_t)key), tgi_row_at(src, p[i].index), tgi_size_of(x.dtype));
    }
}

static bool tgi_cuda_scatter(tgi_thread *S, bool add, const tgi_rows *rows)
{
    tgi_cuda_device *d = tgi_device_for(S, rows->arg[0].index);
    const tgi_row_job job = tgi_row_job_of(rows);
    const int64_t n = job.iter.numel * job.length;
    int64_t rows_of_pairs = 1;
    if (!d) return false;
    if (n == 0) return true;
    for (int k = 0; k < job.iter.ndim; ++k) {
        if (job.iter.stride[2][k] != 0) rows_of_pairs = job.iter.numel; /* index is not the same for all rows */
    }
    const int64_t count = rows_of_pairs * job.length;
    tgi_sort_pair *const pairs = (tgi_sort_pair *)tgi_scratch_alloc(S, d, "scatter", 2 * count, sizeof *pairs);
    const tgi_sort_pair *sorted = NULL;
    if (!pairs) return false;
    if (tgi_launch_each(S, d, tgi_load_indices, count, job, rows_of_pairs, pairs))
        sorted = tgi_sort_pairs(S, d, pairs, pairs + count, rows_of_pairs, job.length);
    void (*const add_kernels[])(tgi_row_job, int64_t, int64_t, const tgi_sort_pair *) = {
        tgi_scatter_add_pairs<float>, tgi_scatter_add_pairs<double>, tgi_scatter_add_pairs<int64_t>};
    const int compute = tgi_compute_index(tgi_compute_dtype(rows->arg[0].dtype));
    const bool ok = sorted && tgi_launch_each(S, d, add ? add_kernels[compute] : tgi_scatter_pairs, n, job, rows->size,
                                              rows_of_pairs, sorted);
    tgi_cuda_release(S, d->index, pairs, 0);
    return ok;
}

/* ---- nonzero: the indices of the elements of x [n] that are not zero ----

   x is cut into pieces of TGI_BLOCK elements.  First the nonzero elements of each piece are counted; then one block
   sums the counts; then each block knows where the indices of its piece begin. */

/* Whether element i exists and is not zero. */
__device__ inline bool tgi_is_nonzero(const tgi_iter &iter, int64_t i)
{
    char *at[1];
    if (i >= iter.numel) return false;
    tgi_element_addresses(iter, i, at);
    return tgi_is_true(iter.dtype[0], at[0]);
}

/* counts[piece] = the number of nonzero elements.  One block per piece, one thread per element. */
static __global__ void tgi_count_nonzero(tgi_iter iter, int64_t *counts)
{
    for (int64_t piece = blockIdx.x; piece * TGI_BLOCK < iter.numel; piece += gridDim.x) {
        const int count = __syncthreads_count(tgi_is_nonzero(iter, piece * TGI_BLOCK + threadIdx.x));
        if (threadIdx.x == 0) counts[piece] = count;
    }
}

/* counts [n + 1]: each of the first n becomes the sum of those before it, and counts[n] the sum of all.  One block. */
static __global__ void tgi_sum_counts(int64_t *counts, int64_t n)
{
    int64_t before = 0, total;
    for (int64_t start = 0; start < n; start += TGI_BLOCK) {
        const int64_t i = start + threadIdx.x, count = i < n ? counts[i] : 0;
        const int64_t sum = tgi_block_scan(count, &total);
        if (i < n) counts[i] = before + sum - count;
        before += total;
    }
    if (threadIdx.x == 0) counts[n] = before;
}

typedef struct {
    int ndim;
    int64_t dim[TG_MAX_DIMS];
} tgi_dims;

/* out [count, ndim]: the index of each nonzero element, in order; before [pieces]: the nonzero elements before each
   piece.  One block per piece, one thread per element.  An element's row of out is the number of nonzero elements
   before it: in the pieces, the warps and the lanes before. */
static __global__ void tgi_store_nonzero(tgi_iter iter, tgi_dims dims, const int64_t *before, int64_t *out)
{
    __shared__ int found_by_warp[TGI_BLOCK / 32];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    for (int64_t piece = blockIdx.x; piece * TGI_BLOCK < iter.numel; piece += gridDim.x) {
        int64_t element = piece * TGI_BLOCK + threadIdx.x, row = before[piece];
        const bool found = tgi_is_nonzero(iter, element);
        const unsigned lanes = __ballot_sync(TGI_FULL_MASK, found);
        if (lane == 0) found_by_warp[warp] = __popc(lanes);
        __syncthreads();
        for (int w = 0; w < warp; ++w) row += found_by_warp[w];
        row += __popc(lanes & ((1u << lane) - 1));
#pragma unroll
        for (int k = TG_MAX_DIMS - 1; k >= 0; --k) {
            if (!found || k >= dims.ndim) continue;
            out[row * dims.ndim + k] = element % dims.dim[k];
            element /= dims.dim[k];
        }
        __syncthreads(); /* before found_by_warp is written again */
    }
}

static bool tgi_cuda_nonzero(tgi_thread *S, const tgi_loop *in, int64_t *count, int64_t *out)
{
    tgi_cuda_device *d = tgi_device_for(S, in->arg[0].index);
    tgi_iter iter;
    tgi_dims dims;
    tgi_iter_init(&iter, in->ndim, in->dim, 1, in->arg, false);
    const int64_t pieces = (iter.numel + TGI_BLOCK - 1) / TGI_BLOCK;
    if (!d) return false;
    *count = 0;
    if (iter.numel == 0) return true;
    int64_t *const counts = (int64_t *)tgi_scratch_alloc(S, d, "nonzero", pieces + 1, sizeof *counts);
    if (!counts) return false;
    dims.ndim = in->ndim;
    memcpy(dims.dim, in->dim, sizeof(int64_t) * (size_t)in->ndim);
    const bool ok = tgi_launch(S, d, tgi_count_nonzero, pieces, TGI_BLOCK, iter, counts) &&
                    tgi_launch(S, d, tgi_sum_counts, 1, TGI_BLOCK, counts, pieces) &&
                    (!out || tgi_launch(S, d, tgi_store_nonzero, pieces, TGI_BLOCK, iter, dims, counts, out)) &&
                    tgi_cuda_download(S, d->index, count, counts + pieces, sizeof *count);
    tgi_cuda_release(S, d->index, counts, 0);
    return ok;
}

/* ======== Pools =================================================================================================== */

/* One thread per element of the result, which adds up in a fixed order. */

/* y, index, x: see max_pool in tgi_backend. */
static __global__ void tgi_max_pool_windows(tgi_pool pool)
{
    const tgi_windows &h = pool.dim[0], &w = pool.dim[1];
    const tg_dtype dtype = pool.arg[2].dtype;
    const int64_t size = tgi_size_of(dtype), n = pool.planes * h.out * w.out;
    for (int64_t e = tgi_grid_thread(); e < n; e += tgi_grid_size()) {
        int64_t plane = e;
        const tgi_window columns = tgi_window_at(&w, tgi_pop_index(&plane, w.out));
        const tgi_window rows = tgi_window_at(&h, tgi_pop_index(&plane, h.out));
        const char *x = (const char *)pool.arg[2].data + plane * h.in * w.in * size;
        int64_t found = rows.first * w.in + columns.first;
        double most = -HUGE_VAL;
        for (int64_t i = rows.first; i < rows.end; i += h.dilation) {
            for (int64_t j = columns.first; j < columns.end; j += w.dilation) {
                const double value = tgi_load_as<double>(dtype, x + (i * w.in + j) * size);
                if (!(value > most || value != value)) continue;
                most = value;
                found = i * w.in + j;
            }
        }
        tgi_copy_element((char *)pool.arg[0].data + e * size, x + found * size, size);
        if (pool.arg[1].data) ((int64_t *)pool.arg[1].data)[e] = found;
    }
}

static bool tgi_cuda_max_pool(tgi_thread *S, const tgi_pool *pool)
{
    const tgi_cuda_device *d = tgi_device_for(S, pool->arg[2].index);
    const int64_t n = pool->planes * pool->dim[0].out * pool->dim[1].out;
    return d && (n == 0 || tgi_launch_each(S, d, tgi_max_pool_windows, n, *pool));
}

/* dx, g, index: dx = the sum of g over the windows that found this element. */
static __global__ void tgi_max_pool_found(tgi_pool pool)
{
    const tgi_windows &h = pool.dim[0], &w = pool.dim[1];
    const tg_dtype dtype = pool.arg[1].dtype;
    const int64_t size = tgi_size_of(dtype), n = pool.planes * h.in * w.in;
    for (int64_t e = tgi_grid_thread(); e < n; e += tgi_grid_size()) {
        int64_t plane = e;
        const int64_t column = tgi_pop_index(&plane, w.in), row = tgi_pop_index(&plane, h.in);
        const tgi_span rows = tgi_span_of(&h, true, row), columns = tgi_span_of(&w, true, column);
        const char *g = (const char *)pool.arg[1].data + plane * h.out * w.out * size;
        const int64_t *index = (const int64_t *)pool.arg[2].data + plane * h.out * w.out;
        double sum = 0;
        for (int64_t i = rows.first; i < rows.end; ++i) {
            for (int64_t j = columns.first; j < columns.end; ++j) {
                if (index[i * w.out + j] != row * w.in + column) continue;
                sum += tgi_load_as<double>(dtype, g + (i * w.out + j) * size);
            }
        }
        tgi_store_as(dtype, (char *)pool.arg[0].data + e * size, sum);
    }
}

static bool tgi_cuda_max_pool_backward(tgi_thread *S, const tgi_pool *pool)
{
    const tgi_cuda_device *d = tgi_device_for(S, pool->arg[1].index);
    const int64_t n = pool->planes * pool->dim[0].in * pool->dim[1].in;
    return d && (n == 0 || tgi_launch_each(S, d, tgi_max_pool_found, n, *pool));
}

/* y, x: see window_sum in tgi_backend. */
template <bool transposed> __global__ void tgi_window_sums(tgi_pool pool)
{
    const tgi_windows &h = pool.dim[0], &w = pool.dim[1];
    const tg_dtype dtype = pool.arg[1].dtype;
    const int64_t size = tgi_size_of(dtype);
    const int64_t y_rows = transposed ? h.in : h.out, y_columns = transposed ? w.in : w.out;
    const int64_t x_rows = transposed ? h.out : h.in, x_columns = transposed ? w.out : w.in;
    for (int64_t e = tgi_grid_thread(); e < pool.planes * y_rows * y_columns; e += tgi_grid_size()) {
        int64_t plane = e;
        const int64_t column = tgi_pop_index(&plane, y_columns), row = tgi_pop_index(&plane, y_rows);
        const tgi_span rows = tgi_span_of(&h, transposed, row), columns = tgi_span_of(&w, transposed, column);
        const char *x = (const char *)pool.arg[1].data + plane * x_rows * x_columns * size;
        double sum = 0;
        for (int64_t i = rows.first; i < rows.end; ++i) {
            double of_row = 0;
            for (int64_t j = columns.first; j < columns.end; ++j) {
                const double value = tgi_load_as<double>(dtype, x + (i * x_columns + j) * size);
                of_row += value * tgi_span_weight(&w, transposed, column, j);
            }
            sum += of_row * tgi_span_weight(&h, transposed, row, i);
        }
        tgi_store_as(dtype, (char *)pool.arg[0].data + e * size, sum);
    }
}

static bool tgi_cuda_window_sum(tgi_thread *S, const tgi_pool *pool)
{
    const tgi_cuda_device *d = tgi_device_for(S, pool->arg[1].index);
    const tgi_windows *const h = &pool->dim[0], *const w = &pool->dim[1];
    const int64_t n = pool->planes * (pool->transposed ? h->in * w->in : h->out * w->out);
    return d && (n == 0 ||
                 tgi_launch_each(S, d, pool->transposed ? tgi_window_sums<true> : tgi_window_sums<false>, n, *pool));
}

/* ======== Matrix products ========================================================================================= */

/* out [batch.., m, n] = a [batch.., m, k] times b [batch.., k, n] in integers, which wrap.  One thread per element of
   out.  a_row: bytes from a row of a to the next, and so on; out is contiguous in its last two dims. */
static __global__ void tgi_gemm_plain(tgi_iter batch, int64_t m, int64_t n, int64_t k, int64_t a_row, int64_t a_col,
                                      int64_t b_row, int64_t b_col)
{
    for (int64_t e = tgi_grid_thread(); e < batch.numel * m * n; e += tgi_grid_size()) {
        const int64_t j = e % n, i = e / n % m;
        char *at[3];
        int64_t sum = 0;
        tgi_element_addresses(batch, e / (m * n), at);
        for (int64_t l = 0; l < k; ++l) {
            const int64_t x = tgi_load_as<int64_t>(batch.dtype[1], at[1] + i * a_row + l * a_col);
            const int64_t y = tgi_load_as<int64_t>(batch.dtype[2], at[2] + l * b_row + j * b_col);
            sum = tgi_wrap_add(sum, tgi_wrap_mul(x, y));
        }
        tgi_store_as(batch.dtype[0], at[0] + (i * n + j) * tgi_size_of(batch.dtype[0]), sum);
    }
}

/* How cuBLAS reads a matrix: transposed or not, and its leading dimension, the distance of columns in column-major
   order. */
typedef struct {
    cublasOperation_t trans;
    int ld;
    void *memory; /* the scratch memory of a copy, or NULL */
} tgi_cublas_operand;

/* cuBLAS reads matrices in column-major order, so that it sees the transpose of a row-major matrix.  Therefore this
   file asks it for out^T = b^T a^T.  Sets how cuBLAS reads x [rows, cols], whose rows are `row` and columns `col`
   elements apart; false if neither rows nor columns are contiguous: x must be copied. */
static bool tgi_as_column_major(int64_t rows, int64_t cols, int64_t row, int64_t col, tgi_cublas_operand *read)
{
    if (cols == 1) col = 1; /* the distance of columns does not matter where there is one */
    if (rows == 1) row = cols;
    if (col == 1 && row >= cols && row <= INT_MAX) {
        read->trans = CUBLAS_OP_N;
        read->ld = (int)row;
        return true;
    }
    if (cols == 1 && rows > 1) return false;
    if (row == 1 && col >= rows && col <= INT_MAX) {
        read->trans = CUBLAS_OP_T;
        read->ld = (int)col;
        return true;
    }
    return false;
}

/* Replaces x [g->dim.., rows, cols] by a contiguous copy in out's dtype, in scratch memory.  A dim over which x is
   broadcast (its stride is 0) is copied once. */
static bool tgi_gemm_copy(tgi_thread *S, tgi_cuda_device *d, const tgi_gemm *g, tgi_operand *x, int64_t rows,
                          int64_t cols, int64_t row, int64_t col, void **memory)
{
    const tg_dtype dtype = g->out.dtype;
    const int ndim = g->ndim;
    tgi_loop loop = {};
    int64_t numel = rows * cols;
    loop.ndim = ndim + 2;
    loop.nargs = 2;
    loop.arg[1] = *x;
    loop.arg[1].stride[ndim] = row, loop.arg[1].stride[ndim + 1] = col;
    loop.arg[0] = *x;
    loop.arg[0].dtype = dtype;
    loop.arg[0].stride[ndim] = cols, loop.arg[0].stride[ndim + 1] = 1;
    for (int k = ndim - 1; k >= 0; --k) {
        const bool broadcast = x->stride[k] == 0;
        loop.dim[k] = broadcast ? 1 : g->dim[k];
        loop.arg[0].stride[k] = broadcast ? 0 : numel;
        numel *= loop.dim[k];
    }
    loop.dim[ndim] = rows, loop.dim[ndim + 1] = cols;
    *memory = tgi_scratch_alloc(S, d, "matmul", numel, (size_t)tgi_bytes_of(dtype));
    loop.arg[0].data = *memory;
    if (!*memory || !tgi_cuda_copy(S, &loop)) return false;
    *x = loop.arg[0];
    return true;
}

/* Makes x [g->dim.., rows, cols] readable for cuBLAS: it must have out's dtype and contiguous rows or columns, and is
   copied if it has not.  The caller releases read->memory. */
static bool tgi_gemm_operand(tgi_thread *S, tgi_cuda_device *d, const tgi_gemm *g, tgi_operand *x, int64_t rows,
                             int64_t cols, int64_t row, int64_t col, tgi_cublas_operand *read)
{
    if (x->dtype == g->out.dtype && tgi_as_column_major(rows, cols, row, col, read)) return true;
    return tgi_gemm_copy(S, d, g, x, rows, cols, row, col, &read->memory) &&
           tgi_as_column_major(rows, cols, cols, 1, read);
}

/* Creates the handle.  f32 is computed in f32 unless a call asks for TF32, and sums of 16-bit products are kept in f32.
   Results must be the same on every run.  Therefore atomics are off, and the handle has a workspace of its own, of the
   size that NVIDIA recommends: with the shared one, the algorithm that cuBLAS chooses depends on what other streams do.
   cublasSetStream resets the workspace, so it comes first. */
static bool tgi_cublas_create(tgi_thread *S, tgi_cuda_device *d)
{
    const int math = CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
    int major = 0;
    if (!TGI_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, d->index))) return false;
    const int64_t bytes = major >= 9 ? 32 << 20 : 4 << 20;
    if (!d->workspace) d->workspace = tgi_scratch_alloc(S, d, "matmul", bytes, 1);
    return d->workspace && TGI_CUBLAS(cublasCreate(&d->blas)) && TGI_CUBLAS(cublasSetStream(d->blas, d->stream)) &&
           TGI_CUBLAS(cublasSetWorkspace(d->blas, d->workspace, (size_t)bytes)) &&
           TGI_CUBLAS(cublasSetMathMode(d->blas, (cublasMath_t)math)) &&
           TGI_CUBLAS(cublasSetAtomicsMode(d->blas, CUBLAS_ATOMICS_NOT_ALLOWED));
}

/* Creates the handle at the first call. */
static bool tgi_cublas_ready(tgi_thread *S, tgi_cuda_device *d)
{
    if (d->blas || tgi_cublas_create(S, d)) return true;
    if (d->blas) cublasDestroy(d->blas);
    d->blas = NULL;
    return false;
}

/* Multiplies all batches: cuBLAS loops over the innermost batch dim, in parts of 65535 matrices at most; a loop here
   goes over the other batch dims. */
static bool tgi_gemm_batches(tgi_thread *S, tgi_cuda_device *d, const tgi_gemm *g, const tgi_cublas_operand *a,
                             const tgi_cublas_operand *b)
{
    const tg_dtype dtype = g->out.dtype;
    const cudaDataType type = dtype == TG_F64   ? CUDA_R_64F
                              : dtype == TG_F32 ? CUDA_R_32F
                              : dtype == TG_F16 ? CUDA_R_16F
                                                : CUDA_R_16BF;
    const bool rounded = dtype == TG_F32 && g->precision == TG_PRECISION_TF32;
    const cublasComputeType_t compute = dtype == TG_F64 ? CUBLAS_COMPUTE_64F
                                        : rounded       ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                        : CUBLAS_COMPUTE_32F;
    const double one_f64 = 1, zero_f64 = 0;
    const float one_f32 = 1, zero_f32 = 0;
    const void *one = dtype == TG_F64 ? (const void *)&one_f64 : (const void *)&one_f32;
    const void *zero = dtype == TG_F64 ? (const void *)&zero_f64 : (const void *)&zero_f32;
    const void *beta = g->adds ? one : zero;
    const tgi_operand arg[3] = {g->out, g->a, g->b};
    const int64_t size = tgi_bytes_of(dtype);
    tgi_iter batch;
    tgi_iter_init(&batch, g->ndim, g->dim, 3, arg, false);
    const int inner = batch.ndim - 1;
    for (int64_t first = 0; first < batch.numel; first += batch.dim[inner]) {
        char *at[3] = {batch.data[0], batch.data[1], batch.data[2]};
        int64_t rest = first / batch.dim[inner];
        for (int k = inner - 1; k >= 0; rest /= batch.dim[k], --k) {
            for (int l = 0; l < 3; ++l) at[l] += rest % batch.dim[k] * batch.stride[l][k];
        }
        for (int64_t done = 0, part; done < batch.dim[inner]; done += part) {
            part = tgi_at_most(batch.dim[inner] - done, 65535);
            if (!TGI_CUBLAS(cublasGemmStridedBatchedEx(
                    d->blas, b->trans, a->trans, (int)g->n, (int)g->m, (int)g->k, one, at[2], type, b->ld,
                    batch.stride[2][inner] / size, at[1], type, a->ld, batch.stride[1][inner] / size, beta, at[0], type,
                    (int)g->n, batch.stride[0][inner] / size, (int)part, compute, CUBLAS_GEMM_DEFAULT))) {
                return false;
            }
            for (int l = 0; l < 3; ++l) at[l] += part * batch.stride[l][inner];
        }
    }
    return true;
}

static bool tgi_cuda_gemm(tgi_thread *S, const tgi_gemm *gemm)
{
    tgi_cuda_device *d = tgi_device_for(S, gemm->out.index);
    tgi_gemm g = *gemm;
    const tg_dtype dtype = g.out.dtype;
    const tgi_operand arg[3] = {g.out, g.a, g.b};
    tgi_cublas_operand a = {CUBLAS_OP_N, 1, NULL}, b = {CUBLAS_OP_N, 1, NULL};
    tgi_iter batch;
    tgi_iter_init(&batch, g.ndim, g.dim, 3, arg, false);
    if (!d) return false;
    if (batch.numel == 0 || g.m == 0 || g.n == 0) return true;
    if (!tgi_is_floating(dtype)) {
        const int64_t a_size = tgi_bytes_of(g.a.dtype), b_size = tgi_bytes_of(g.b.dtype);
        return tgi_launch_each(S, d, tgi_gemm_plain, batch.numel * g.m * g.n, batch, g.m, g.n, g.k, g.a_row * a_size,
                               g.a_col * a_size, g.b_row * b_size, g.b_col * b_size);
    }
    if (g.k == 0 && g.adds) return true;
    if (g.k == 0) { /* empty sums are 0 */
        tgi_loop zeros = {};
        zeros.ndim = g.ndim + 2;
        memcpy(zeros.dim, g.dim, sizeof(int64_t) * (size_t)g.ndim);
        zeros.dim[g.ndim] = g.m, zeros.dim[g.ndim + 1] = g.n;
        zeros.nargs = 1;
        zeros.arg[0] = g.out;
        zeros.arg[0].stride[g.ndim] = g.n, zeros.arg[0].stride[g.ndim + 1] = 1;
        return tgi_cuda_fill(S, &zeros);
    }
    if (g.m > INT_MAX || g.n > INT_MAX || g.k > INT_MAX)
        return tgi_host_api.fail(S, TG_ERR_UNSUPPORTED, "matmul",
                                 "cuBLAS takes sizes below 2^31, not [%lld, %lld, %lld]", (long long)g.m,
                                 (long long)g.n, (long long)g.k);
    const bool ok = tgi_gemm_operand(S, d, &g, &g.a, g.m, g.k, g.a_row, g.a_col, &a) &&
                    tgi_gemm_operand(S, d, &g, &g.b, g.k, g.n, g.b_row, g.b_col, &b) && tgi_cublas_ready(S, d) &&
                    tgi_gemm_batches(S, d, &g, &a, &b);
    tgi_cuda_release(S, d->index, a.memory, 0);
    tgi_cuda_release(S, d->index, b.memory, 0);
    return ok;
}

/* ======== Convolution ============================================================================================= */

/* columns [channels, kernel.., images, windows..]: one thread per channel, image and window, for all taps.
   Neighbouring threads have neighbouring windows, and so do the elements that they write. */
static __global__ void tgi_im2col_windows(tgi_im2col m)
{
    const int64_t size = tgi_size_of(m.image.dtype);
    const int64_t row = m.images * m.windows[0] * m.windows[1] * m.windows[2]; /* of columns, for one tap */
    const int64_t taps = m.kernel[0] * m.kernel[1] * m.kernel[2];
    for (int64_t i = tgi_grid_thread(); i < m.channels * row; i += tgi_grid_size()) {
        int64_t rest = i;
        const int64_t x2 = tgi_pop_index(&rest, m.windows[2]) * m.stride[2] - m.before[2];
        const int64_t x1 = tgi_pop_index(&rest, m.windows[1]) * m.stride[1] - m.before[1];
        const int64_t x0 = tgi_pop_index(&rest, m.windows[0]) * m.stride[0] - m.before[0];
        const int64_t n = tgi_pop_index(&rest, m.images), channel = rest;
        const int64_t image = n * m.image.stride[0] + channel * m.image.stride[1];
        int64_t to = channel * taps * row + i - channel * row;
        for (int64_t k0 = 0, y0 = x0; k0 < m.kernel[0]; ++k0, y0 += m.dilation[0]) {
            for (int64_t k1 = 0, y1 = x1; k1 < m.kernel[1]; ++k1, y1 += m.dilation[1]) {
                const bool outside = y0 < 0 || y0 >= m.size[0] || y1 < 0 || y1 >= m.size[1];
                const int64_t line = image + y0 * m.image.stride[2] + y1 * m.image.stride[3];
                for (int64_t k2 = 0, y2 = x2; k2 < m.kernel[2]; ++k2, y2 += m.dilation[2], to += row) {
                    char *const y = (char *)m.columns.data + to * size;
                    if (outside || y2 < 0 || y2 >= m.size[2])
                        tgi_store_as(m.columns.dtype, y, 0.0);
                    else
                        tgi_copy_element(y, (const char *)m.image.data + (line + y2 * m.image.stride[4]) * size, size);
                }
            }
        }
    }
}

static bool tgi_cuda_im2col(tgi_thread *S, const tgi_im2col *m)
{
    const tgi_cuda_device *d = tgi_device_for(S, m->image.index);
    const int64_t windows = m->windows[0] * m->windows[1] * m->windows[2];
    return d && tgi_launch_each(S, d, tgi_im2col_windows, m->channels * m->images * windows, *m);
}

/* image [images, channels, size..]: one thread per element, which sums what columns have for it, tap by tap. */
template <class real> __global__ void tgi_col2im_elements(tgi_im2col m)
{
    const int64_t size = tgi_size_of(m.image.dtype), numel = m.size[0] * m.size[1] * m.size[2] * m.channels * m.images;
    for (int64_t i = tgi_grid_thread(); i < numel; i += tgi_grid_size()) {
        int64_t rest = i;
        const int64_t x2 = tgi_pop_index(&rest, m.size[2]), x1 = tgi_pop_index(&rest, m.size[1]);
        const int64_t x0 = tgi_pop_index(&rest, m.size[0]), channel = tgi_pop_index(&rest, m.channels), n = rest;
        real sum = 0;
        for (int64_t k0 = 0; k0 < m.kernel[0]; ++k0) {
            const int64_t w0 = tgi_window_of(&m, 0, x0, k0);
            for (int64_t k1 = 0; w0 >= 0 && k1 < m.kernel[1]; ++k1) {
                const int64_t w1 = tgi_window_of(&m, 1, x1, k1);
                for (int64_t k2 = 0; w1 >= 0 && k2 < m.kernel[2]; ++k2) {
                    const int64_t w2 = tgi_window_of(&m, 2, x2, k2);
                    if (w2 < 0) continue;
                    int64_t at = ((channel * m.kernel[0] + k0) * m.kernel[1] + k1) * m.kernel[2] + k2;
                    at = (((at * m.images + n) * m.windows[0] + w0) * m.windows[1] + w1) * m.windows[2] + w2;
                    const real x = tgi_load_as<real>(m.columns.dtype, (const char *)m.columns.data + at * size);
                    sum = tgi_formula<TGI_OP_add, real>::of(sum, x, 0, 0, 0);
                }
            }
        }
        const int64_t to = n * m.image.stride[0] + channel * m.image.stride[1] + x0 * m.image.stride[2] +
                           x1 * m.image.stride[3] + x2 * m.image.stride[4];
        tgi_store_as(m.image.dtype, (char *)m.image.data + to * size, sum);
    }
}

static bool tgi_cuda_col2im(tgi_thread *S, const tgi_im2col *m)
{
    const tgi_cuda_device *d = tgi_device_for(S, m->image.index);
    void (*const kernels[])(tgi_im2col) = {tgi_col2im_elements<float>, tgi_col2im_elements<double>,
                                           tgi_col2im_elements<int64_t>};
    const int64_t numel = m->images * m->channels * m->size[0] * m->size[1] * m->size[2];
    return d && tgi_launch_each(S, d, kernels[tgi_compute_index(tgi_compute_dtype(m->image.dtype))], numel, *m);
}

/* ======== Random numbers ========================================================================================== */

/* out [n], contiguous.  One thread per counter of Philox, whose four words make `per` elements: the same words and
   formulas as on the CPU.  lo, hi: see tgi_random. */
static __global__ void tgi_random_elements(tgi_random kind, tgi_operand out, int64_t n, double lo, double hi,
                                           tg_rng rng)
{
    const int per = tgi_random_per_counter(kind, out.dtype), words = 4 / per;
    const int64_t least = tgi_f64_to_i64(lo), size = tgi_size_of(out.dtype);
    const uint64_t range = (uint64_t)tgi_f64_to_i64(hi) - (uint64_t)least;
    const int64_t counters = (int64_t)tgi_random_counters(kind, out.dtype, n);
    for (int64_t block = tgi_grid_thread(); block < counters; block += tgi_grid_size()) {
        uint32_t word[4];
        tgi_random_block(rng, (uint64_t)block, word);
#pragma unroll
        for (int k = 0; k < 4; k += 1) {
            if (k % words) continue; /* an element takes 1 or 2 words */
            const int64_t i = block * per + k / words;
            const uint32_t w[2] = {word[k], word[k < 3 ? k + 1 : 3]};
            char *const at = (char *)out.data + i * size;
            if (i >= n) continue;
            switch (kind) {
            case TGI_UNIFORM:
                tgi_store_as(out.dtype, at, TGI_MUL_ADD(hi - lo, tgi_random_fraction(out.dtype, w), lo));
                if (tgi_load_as<double>(out.dtype, at) >= hi) tgi_store_as(out.dtype, at, lo); /* rounded up to hi */
                break;
            case TGI_NORMAL: tgi_store_as(out.dtype, at, tgi_random_normal(out.dtype, w, lo, hi)); break;
            case TGI_BERNOULLI: tgi_store_as(out.dtype, at, tgi_random_bernoulli(w, lo)); break;
            case TGI_NORMAL_BETWEEN:
                tgi_store_as(out.dtype, at, tgi_random_normal_between(out.dtype, w, lo, hi));
                break;
            case TGI_RANDINT:
                tgi_store_as(out.dtype, at,
                             tgi_wrap_add(least, (int64_t)tgi_random_below(range, tgi_random_two_words(w))));
                break;
            }
        }
    }
}

static bool tgi_cuda_random(tgi_thread *S, tgi_random kind, tgi_operand out, int64_t n, double lo, double hi,
                            tg_rng rng)
{
    const tgi_cuda_device *d = tgi_device_for(S, out.index);
    return d && (n <= 0 || tgi_launch_each(S, d, tgi_random_elements, n, kind, out, n, lo, hi, rng));
}

/* ======== Optimizers ============================================================================================== */

/* The numbers of a step in the type in which it is computed, under the names that the formulas of TGI_OPTIMIZERS
   use. */
template <class real_> struct tgi_optim_numbers {
    typedef real_ real;
    real lr, decay, eps, momentum, one_minus_dampening, alpha, beta2, one_minus_beta1, one_minus_beta2, rate,
        sqrt_bias_correction2;
};

/* Each row of TGI_OPTIMIZERS as a type that holds these numbers: update updates one element of the parameter p and of
   the state a, b, c by the gradient g. */
#define TGI_OPTIM_FORMULA(name, suffix, type, formula)                                                       \
    struct tgi_optim_##name##_##suffix : tgi_optim_numbers<type> {                                           \
        __device__ void update(const tgi_optim_step *step, real &p, real g, real &a, real &b, real &c) const \
        {                                                                                                    \
            (void)step, (void)a, (void)b, (void)c;                                                           \
            formula                                                                                          \
        }                                                                                                    \
    };
TGI_OPTIMIZERS(TGI_OPTIM_FORMULA, f32, float)
TGI_OPTIMIZERS(TGI_OPTIM_FORMULA, f64, double)

/* One launch updates many parameters, because most are too small to fill a GPU.  Each parameter is cut into pieces of
   TGI_OPTIM_PIECE elements, and the pieces of all parameters are numbered; a block updates one piece. */
enum { TGI_OPTIM_TENSORS = 48, TGI_OPTIM_PIECE = 8 * TGI_BLOCK };
typedef struct {
    void *at[5]; /* p [n], g [n], then the state a, b, c [n] or NULL */
    int64_t n;
    int64_t first_piece; /* the number of its first piece */
    bool aligned;        /* all of at[] are, for packs */
} tgi_optim_tensor;
typedef struct {
    tgi_optim_step step; /* the settings, which are equal for all */
    int count;
    int64_t pieces;
    tgi_optim_tensor tensor[TGI_OPTIM_TENSORS];
} tgi_optim_job;

/* Updates `width` elements from i on: loads packs of p, g and the state, updates element by element, and stores all but
   g. */
template <class formula, int dtype, int width>
__device__ inline void tgi_optim_pack(const tgi_optim_step *step, const formula &optim, void *const (&at)[5], int64_t i)
{
    typedef typename formula::real real;
    typedef typename tgi_stored<dtype>::type stored;
    tgi_pack<dtype, width> x[5];
#pragma unroll
    for (int k = 0; k < 5; ++k) {
        if (at[k]) x[k] = tgi_load_pack<tgi_pack<dtype, width>>((const stored *)at[k] + i);
    }
#pragma unroll
    for (int e = 0; e < width; ++e) {
        real value[5];
#pragma unroll
        for (int k = 0; k < 5; ++k) value[k] = at[k] ? tgi_load_as<real>((tg_dtype)dtype, &x[k].x[e]) : real();
        optim.update(step, value[0], value[1], value[2], value[3], value[4]);
#pragma unroll
        for (int k = 0; k < 5; ++k) tgi_store_as((tg_dtype)dtype, &x[k].x[e], value[k]);
    }
#pragma unroll
    for (int k = 0; k < 5; ++k) {
        if (at[k] && k != 1) tgi_store_pack((stored *)at[k] + i, x[k]);
    }
}

/* One block per piece; each of its threads updates one pack at a time, then one element at a time. */
template <class formula, int dtype>
__global__ void tgi_optim_pieces(const __grid_constant__ tgi_optim_job job, formula optim)
{
    constexpr int width = (int)(TGI_PACK_BYTES / sizeof(typename tgi_stored<dtype>::type));
    for (int64_t piece = blockIdx.x; piece < job.pieces; piece += gridDim.x) {
        int t = 0, high = job.count - 1; /* binary search for the tensor of this piece */
        while (t < high) {
            const int half = (t + high + 1) / 2;
            if (job.tensor[half].first_piece <= piece)
                t = half;
            else
                high = half - 1;
        }
        const int64_t start = (piece - job.tensor[t].first_piece) * TGI_OPTIM_PIECE;
        const int64_t left = job.tensor[t].n - start, n = left < TGI_OPTIM_PIECE ? left : (int64_t)TGI_OPTIM_PIECE;
        const int64_t packed = job.tensor[t].aligned ? n / width * width : 0;
        void *at[5];
#pragma unroll
        for (int k = 0; k < 5; ++k) at[k] = job.tensor[t].at[k];
        for (int64_t i = (int64_t)threadIdx.x * width; i < packed; i += TGI_BLOCK * width)
            tgi_optim_pack<formula, dtype, width>(&job.step, optim, at, start + i);
        for (int64_t i = packed + threadIdx.x; i < n; i += TGI_BLOCK)
            tgi_optim_pack<formula, dtype, 1>(&job.step, optim, at, start + i);
    }
}

template <class formula, int dtype>
static bool tgi_optim_launch(tgi_thread *S, const tgi_cuda_device *d, const tgi_optim_job *job)
{
    typedef typename formula::real real;
    const tgi_optim_step *step = &job->step;
    formula optim;
    optim.lr = (real)step->lr;
    optim.decay = (real)step->weight_decay;
    optim.eps = (real)step->eps;
    optim.momentum = (real)step->momentum;
    optim.one_minus_dampening = (real)(1 - step->dampening);
    optim.alpha = (real)step->alpha;
    optim.beta2 = (real)step->beta2;
    optim.one_minus_beta1 = (real)(1 - step->beta1);
    optim.one_minus_beta2 = (real)(1 - step->beta2);
    optim.rate = (real)(step->lr / step->bias1);
    optim.sqrt_bias_correction2 = (real)sqrt(step->bias2);
    return tgi_launch(S, d, tgi_optim_pieces<formula, dtype>, job->pieces, TGI_BLOCK, *job, optim);
}

/* For each optimizer, in the order of tgi_optimizer, its kernel for each floating-point dtype, in the order of
   tg_dtype. */
typedef bool (*tgi_optim_fn)(tgi_thread *S, const tgi_cuda_device *d, const tgi_optim_job *job);
#define TGI_OPTIM_ROW(name, ...)                                                                         \
    {tgi_optim_launch<tgi_optim_##name##_f32, TG_F32>, tgi_optim_launch<tgi_optim_##name##_f64, TG_F64>, \
     tgi_optim_launch<tgi_optim_##name##_f32, TG_BF16>, tgi_optim_launch<tgi_optim_##name##_f32, TG_F16>},
static const tgi_optim_fn tgi_optim_rows[][4] = {TGI_OPTIMIZERS(TGI_OPTIM_ROW, f32, float)};

static bool tgi_optim_run(tgi_thread *S, const tgi_cuda_device *d, const tgi_optim_job *job)
{
    return job->pieces == 0 || tgi_optim_rows[job->step.kind][job->step.dtype](S, d, job);
}

/* Whether the parameter or the gradient of this step overlaps a parameter of the job, or its parameter a gradient of
   the job: they must not be updated by one launch.  So it is with a parameter that is listed twice, or a view of
   one. */
static bool tgi_optim_overlaps(const tgi_optim_job *job, const tgi_optim_step *step)
{
    const char *const p_and_g[2] = {(const char *)step->p, (const char *)step->g};
    const int64_t size = tgi_bytes_of(step->dtype);
    for (const tgi_optim_tensor *t = job->tensor; t < job->tensor + job->count; ++t) {
        for (int k = 0; k < 3; ++k) { /* p and p, p and g, g and p */
            const char *const x = p_and_g[k / 2], *const y = (const char *)t->at[k % 2];
            if (x < y + t->n * size && y < x + step->n * size) return true;
        }
    }
    return false;
}

/* Whether two steps have the same settings: all members before `index`. */
static bool tgi_optim_same_settings(const tgi_optim_step *a, const tgi_optim_step *b)
{
    return memcmp(a, b, offsetof(tgi_optim_step, index)) == 0;
}

/* Runs the first step and all steps that have the same settings, with as few launches as possible. */
static bool tgi_optim_group(tgi_thread *S, const tgi_cuda_device *d, const tgi_optim_step *steps, int n)
{
    tgi_optim_job job;
    memcpy(&job.step, steps, sizeof *steps);
    job.count = 0;
    job.pieces = 0;
    for (const tgi_optim_step *step = steps; step < steps + n; ++step) {
        if (!tgi_optim_same_settings(steps, step)) continue;
        if (job.count == TGI_OPTIM_TENSORS || tgi_optim_overlaps(&job, step)) {
            if (!tgi_optim_run(S, d, &job)) return false;
            job.count = 0;
            job.pieces = 0;
        }
        tgi_optim_tensor *const t = &job.tensor[job.count++];
        void *const at[5] = {step->p, (void *)(uintptr_t)step->g, step->s[0], step->s[1], step->s[2]};
        memcpy(t->at, at, sizeof at);
        t->n = step->n;
        t->first_piece = job.pieces;
        t->aligned = true;
        for (int k = 0; k < 5; ++k) t->aligned = t->aligned && (uintptr_t)at[k] % TGI_PACK_BYTES == 0;
        job.pieces += (step->n + TGI_OPTIM_PIECE - 1) / TGI_OPTIM_PIECE;
    }
    return tgi_optim_run(S, d, &job);
}

static bool tgi_cuda_optim_step(tgi_thread *S, const tgi_optim_step *steps, int n)
{
    const tgi_cuda_device *d = n > 0 ? tgi_device_for(S, steps[0].index) : NULL;
    if (!d) return n == 0;
    for (int i = 0; i < n; ++i) {
        bool done = false; /* it ran in the group of an earlier step */
        for (int k = 0; k < i && !done; ++k) done = tgi_optim_same_settings(&steps[k], &steps[i]);
        if (!done && !tgi_optim_group(S, d, steps + i, n - i)) return false;
    }
    return true;
}

/* ======== The row ================================================================================================= */

/* The optional entries that have no kernels here: all answer that the caller must compose. */
#define TGI_CUDA_COMPOSES(name, arguments) \
    static tgi_answer tgi_cuda_##name arguments { return TGI_COMPOSE; }
TGI_CUDA_COMPOSES(map_gradient, (tgi_thread *, const tgi_loop *))
TGI_CUDA_COMPOSES(linear, (tgi_thread *, const tgi_gemm *, const void *))
TGI_CUDA_COMPOSES(attention, (tgi_thread *, const tgi_attention *))
TGI_CUDA_COMPOSES(attention_backward, (tgi_thread *, const tgi_attention *))
TGI_CUDA_COMPOSES(norm, (tgi_thread *, const tgi_row_norm *))
TGI_CUDA_COMPOSES(norm_backward, (tgi_thread *, const tgi_row_norm *))
TGI_CUDA_COMPOSES(cross_entropy, (tgi_thread *, const tgi_class_loss *))
TGI_CUDA_COMPOSES(cross_entropy_backward, (tgi_thread *, const tgi_class_loss *))
TGI_CUDA_COMPOSES(lstm_cell, (tgi_thread *, const tgi_lstm_cell *))
TGI_CUDA_COMPOSES(lstm_cell_backward, (tgi_thread *, const tgi_lstm_cell *))
TGI_CUDA_COMPOSES(convolution, (tgi_thread *, const tgi_convolution *))
TGI_CUDA_COMPOSES(dropout, (tgi_thread *, tgi_operand, tgi_operand, int64_t, double, tg_rng))

#define TGI_CUDA_ENTRY(kinds, result, name, arguments) tgi_cuda_##name,
static const tgi_backend tgi_cuda = {"cuda", TG_DEV_CUDA, false, TGI_BACKEND_ENTRIES(TGI_CUDA_ENTRY)};

extern "C" const tgi_backend *tgi_cuda_backend(tgi_thread *S, const tgi_host *host, const tgi_cuda_version *version)
{
    static const tgi_cuda_version mine = TGI_CUDA_VERSION_INIT;
    bool same = version->abi == mine.abi;
    for (int k = 0; same && k < TGI_CUDA_SIZES; ++k) same = version->size[k] == mine.size[k];
    for (int k = 0; same && k < TGI_BACKEND_COUNT; ++k) same = strcmp(version->entry[k], mine.entry[k]) == 0;
    if (!same) {
        host->fail(S, TG_ERR_CUDA, "cuda",
                   "tensorgrad_cuda.o (number %d) and tensorgrad.h (number %d) are not of one version\n"
                   "compile tensorgrad_cuda.cu again, beside the tensorgrad.h that the program includes",
                   mine.abi, version->abi);
        return NULL;
    }
    tgi_host_api = *host;
    return &tgi_cuda;
}
