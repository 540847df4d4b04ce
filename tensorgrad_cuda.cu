/* tensorgrad_cuda.cu: the CUDA row of tensorgrad's backend table, for NVIDIA GPUs of compute capability 7.5 and newer.

       nvcc -c tensorgrad_cuda.cu
       cc -DTG_ENABLE_CUDA main.c tensorgrad_cuda.o -lcudart -lcublas -lm

   The entries stand in the order of the table and have the names of the CPU's row in tensorgrad.h, tgi_cuda_ for
   tgi_cpu_, so that the two can be read side by side; formulas and element types come from the same tables.  Every
   kernel gives the same bits on every run: sums have a fixed order, and no float is added atomically.

   Work goes to one stream per device and thread, and copies that overtake it to another; only what has to see a value
   waits.  Licence: that of tensorgrad.h. */

#include <cublas_v2.h>
#include <cuda_runtime.h>

#define TGI_CUDA_COMPANION
#define TGI_INLINE __device__ static inline
#define TGI_MUL_ADD(a, b, c) __dadd_rn(__dmul_rn(a, b), c)
#include "tensorgrad.h"

/* nvcc's launch stubs have guarded local statics, whose guards would need the C++ library.  These stand in their place,
   so that a C compiler links the object: two threads may both do what is guarded, the look-up of one kernel, to one
   end.  Nor are there exceptions; nvcc hands that pragma on to the host compiler, with a warning. */
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

enum { TGI_BLOCK = 256, TGI_MOST_BLOCKS = 1 << 20, TGI_STAGING = 1 << 20 };
#define TGI_ALL_LANES 0xffffffffu

/* ======== The runtime: streams, memory, errors ==================================================================== */

/* The first bad index since the last report, on the device: what the next call that waits will say. */
typedef struct {
    unsigned long long first; /* of the check that is running: the place of its first bad index, or TGI_NO_PLACE */
    int64_t at, place, size;
    const char *op;
    int message, axis, found;
} tgi_bad_index;
#define TGI_NO_PLACE 0xffffffffffffffffull

/* Page-locked memory by way of which other host memory is copied. */
typedef struct {
    char *data;       /* TGI_STAGING bytes */
    cudaEvent_t done; /* the end of the copy that uses it */
} tgi_staging;

/* What a thread holds on one device. */
typedef struct {
    bool ready, checked; /* checked: an index check was asked since the last report */
    int index, turn;
    cudaStream_t stream, copies; /* all work; copies that overtake it */
    cudaEvent_t order;           /* for making one stream wait for another */
    cublasHandle_t blas;         /* NULL until the first matrix product */
    void *workspace;             /* cuBLAS's, likewise */
    tgi_bad_index *bad, *seen;   /* on the device; its copy, page-locked */
    tgi_staging staging[2];      /* by turns */
} tgi_cuda_device;

/* Page-locked memory that is free, or will be at the event. */
typedef struct tgi_pinned {
    struct tgi_pinned *next;
    void *data;
    size_t bytes;
    cudaEvent_t event; /* or NULL */
} tgi_pinned;

typedef struct {
    int current;
    tgi_cuda_device device[TGI_MAX_DEVICES];
    tgi_pinned *pinned;
} tgi_cuda_thread;

static TG_THREAD_LOCAL tgi_cuda_thread tgi_this_cuda;
static tgi_host tgi_host_api; /* the same at every call: written before use by whoever comes first */

/* Every status goes through one of these: false after recording an error with the call, file and line. */
#define TGI_CUDA(call) tgi_cuda_ok(S, call, #call, __LINE__)
#define TGI_CUBLAS(call) tgi_cublas_ok(S, call, #call, __LINE__)

static bool tgi_cuda_ok(tgi_thread *S, cudaError_t status, const char *call, int line)
{
    if (status == cudaSuccess) return true;
    cudaGetLastError(); /* it has been seen */
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

/* A kernel of so many blocks and threads on the device's stream; the arguments become the kernel's parameter types. */
template <class... P, class... A>
static bool tgi_launch(tgi_thread *S, const tgi_cuda_device *d, void (*kernel)(P...), int64_t blocks, int threads,
                       const A &...args)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)tgi_at_most(blocks, TGI_MOST_BLOCKS));
    config.blockDim = dim3((unsigned)threads);
    config.stream = d->stream;
    return TGI_CUDA(cudaLaunchKernelEx(&config, kernel, P(args)...));
}

/* The same with one thread per item; kernels walk on by the whole grid when there are more. */
template <class... P, class... A>
static bool tgi_launch_each(tgi_thread *S, const tgi_cuda_device *d, void (*kernel)(P...), int64_t items,
                            const A &...args)
{
    return tgi_launch(S, d, kernel, (items + TGI_BLOCK - 1) / TGI_BLOCK, TGI_BLOCK, args...);
}

#define TGI_EACH(i, n)                                                                                                 \
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, grid_ = (int64_t)gridDim.x * blockDim.x; i < (n); \
         i += grid_)

/* Begins with no bad index; the stream is idle before and after, for the page-locked copy is used again. */
static bool tgi_clear_bad_index(tgi_thread *S, const tgi_cuda_device *d)
{
    memset(d->seen, 0, sizeof *d->seen);
    d->seen->first = TGI_NO_PLACE;
    return TGI_CUDA(cudaMemcpyAsync(d->bad, d->seen, sizeof *d->bad, cudaMemcpyHostToDevice, d->stream)) &&
           TGI_CUDA(cudaStreamSynchronize(d->stream));
}

static bool tgi_device_begin(tgi_thread *S, tgi_cuda_device *d)
{
    cudaMemPool_t pool;
    unsigned long long keep = ~0ull; /* freed memory stays in the pool */
    if (!TGI_CUDA(cudaDeviceGetDefaultMemPool(&pool, d->index)) ||
        !TGI_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &keep)) ||
        !TGI_CUDA(cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking)) ||
        !TGI_CUDA(cudaStreamCreateWithFlags(&d->copies, cudaStreamNonBlocking)) ||
        !TGI_CUDA(cudaEventCreateWithFlags(&d->order, cudaEventDisableTiming))) {
        return false;
    }
    for (int k = 0; k < 2; ++k) {
        if (!TGI_CUDA(cudaHostAlloc((void **)&d->staging[k].data, TGI_STAGING, cudaHostAllocDefault)) ||
            !TGI_CUDA(cudaEventCreateWithFlags(&d->staging[k].done, cudaEventDisableTiming))) {
            return false;
        }
    }
    return TGI_CUDA(cudaHostAlloc((void **)&d->seen, sizeof *d->seen, cudaHostAllocDefault)) &&
           TGI_CUDA(cudaMalloc((void **)&d->bad, sizeof *d->bad)) && tgi_clear_bad_index(S, d);
}

/* Gives back what there is of it. */
static void tgi_device_end(tgi_thread *S, tgi_cuda_device *d)
{
    if (d->blas) TGI_CUBLAS(cublasDestroy(d->blas));
    TGI_CUDA(cudaFree(d->workspace));
    TGI_CUDA(cudaFree(d->bad));
    TGI_CUDA(cudaFreeHost(d->seen));
    for (int k = 0; k < 2; ++k) {
        TGI_CUDA(cudaFreeHost(d->staging[k].data));
        if (d->staging[k].done) TGI_CUDA(cudaEventDestroy(d->staging[k].done));
    }
    if (d->order) TGI_CUDA(cudaEventDestroy(d->order));
    if (d->copies) TGI_CUDA(cudaStreamDestroy(d->copies));
    if (d->stream) TGI_CUDA(cudaStreamDestroy(d->stream));
    memset(d, 0, sizeof *d);
}

/* The calling thread's part of a device, made current; NULL after recording an error. */
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

/* An error for a bad index that a kernel has met since the last report; the stream is idle. */
static bool tgi_report_bad_index(tgi_thread *S, tgi_cuda_device *d, const char *later)
{
    d->checked = false;
    if (!TGI_CUDA(cudaMemcpyAsync(d->seen, d->bad, sizeof *d->bad, cudaMemcpyDeviceToHost, d->stream)) ||
        !TGI_CUDA(cudaStreamSynchronize(d->stream))) {
        return false;
    }
    const tgi_bad_index bad = *d->seen;
    if (!bad.found) return true;
    if (!tgi_clear_bad_index(S, d)) return false;
    return tgi_host_api.fail_later(
        S, TG_ERR_ARGUMENT, bad.op,
        tgi_text_of_bad_index((tgi_index_message)bad.message, bad.at, bad.place, bad.axis, bad.size, later).text);
}

/* Waits for the stream, and reports what was found there. */
static bool tgi_wait(tgi_thread *S, tgi_cuda_device *d)
{
    tgi_host_api.count_wait(S, TG_DEV_CUDA, d->index);
    return TGI_CUDA(cudaStreamSynchronize(d->stream)) &&
           (!d->checked || tgi_report_bad_index(S, d, " (detected later)"));
}

/* What is asked of a stream from now on comes after what the other one has been asked so far. */
static bool tgi_order(tgi_thread *S, cudaStream_t later, const tgi_cuda_device *earlier, cudaStream_t stream)
{
    return TGI_CUDA(cudaSetDevice(earlier->index)) && TGI_CUDA(cudaEventRecord(earlier->order, stream)) &&
           TGI_CUDA(cudaStreamWaitEvent(later, earlier->order, 0));
}

static void tgi_free_pinned(tgi_thread *S, void *data, cudaEvent_t event)
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
    cudaGetLastError(); /* no driver or no device is no error here */
    return 0;
}

static bool tgi_cuda_resolve(tgi_thread *S, const char *op, int *index)
{
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess) cudaGetLastError();
    if (status == cudaErrorInsufficientDriver) {
        return tgi_host_api.fail(S, TG_ERR_DEVICE, op,
                                 "Found no NVIDIA driver on your system.\n"
                                 "CUDA needs an NVIDIA GPU and its driver; the CPU works without");
    }
    if (status == cudaErrorNoDevice || (status == cudaSuccess && count == 0))
        return tgi_host_api.fail(S, TG_ERR_DEVICE, op, "No CUDA GPUs are available");
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
        tgi_wait(S, d);
        TGI_CUDA(cudaStreamSynchronize(d->copies));
        tgi_device_end(S, d);
    }
    while (tgi_this_cuda.pinned) {
        tgi_pinned *p = tgi_this_cuda.pinned;
        tgi_this_cuda.pinned = p->next;
        tgi_free_pinned(S, p->data, p->event);
        tgi_host_api.give_back(S, p, sizeof *p);
    }
    tgi_this_cuda.current = 0;
}

/* ---- device memory ---- */

/* All device memory comes from here, in the stream's order.  TG_CUDA_PASS_THROUGH: one cudaMalloc each, so that a
   memory checker sees every overrun. */
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

/* NULL without an error record when there is none, also after the pool has given back what it kept. */
static void *tgi_cuda_alloc(tgi_thread *S, int index, size_t bytes, bool for_copy_stream)
{
    tgi_cuda_device *d = tgi_device_for(S, index);
    void *data = NULL;
    cudaMemPool_t pool;
    if (!d) return NULL;
    const cudaStream_t stream = for_copy_stream ? d->copies : d->stream;
    cudaError_t status = tgi_device_malloc(stream, &data, bytes);
    if (status == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        if (!TGI_CUDA(cudaStreamSynchronize(d->stream)) || !TGI_CUDA(cudaDeviceGetDefaultMemPool(&pool, index)) ||
            !TGI_CUDA(cudaMemPoolTrimTo(pool, 0))) {
            return NULL;
        }
        status = tgi_device_malloc(stream, &data, bytes);
        if (status == cudaErrorMemoryAllocation) {
            cudaGetLastError();
            return NULL;
        }
    }
    return tgi_cuda_ok(S, status, "cudaMallocAsync", __LINE__) ? data : NULL;
}

/* Needs no current device, so that as little as possible can keep memory from going back. */
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

/* Until an event: a wait only if it has not come yet. */
static bool tgi_until(tgi_thread *S, const tgi_cuda_device *d, cudaEvent_t event)
{
    const cudaError_t status = cudaEventQuery(event);
    if (status != cudaErrorNotReady) return tgi_cuda_ok(S, status, "cudaEventQuery", __LINE__);
    cudaGetLastError(); /* not ready is no error */
    tgi_host_api.count_wait(S, TG_DEV_CUDA, d->index);
    return TGI_CUDA(cudaEventSynchronize(event));
}

/* Asynchronous copies must be from and to page-locked memory: others go by way of the staging memory, one half of which
   is filled while the other is on its way. */
static bool tgi_cuda_upload(tgi_thread *S, int index, void *dst, const void *host, size_t bytes)
{
    tgi_cuda_device *d = tgi_device_for(S, index);
    if (!d) return false;
    for (size_t done = 0, part; done < bytes; done += part) {
        const tgi_staging *s = &d->staging[d->turn = 1 - d->turn];
        part = bytes - done < TGI_STAGING ? bytes - done : (size_t)TGI_STAGING;
        if (!tgi_until(S, d, s->done)) return false;
        memcpy(s->data, (const char *)host + done, part);
        if (!TGI_CUDA(cudaMemcpyAsync((char *)dst + done, s->data, part, cudaMemcpyHostToDevice, d->stream)) ||
            !TGI_CUDA(cudaEventRecord(s->done, d->stream))) {
            return false;
        }
    }
    return true;
}

static bool tgi_cuda_download(tgi_thread *S, int index, void *host, const void *src, size_t bytes)
{
    tgi_cuda_device *d = tgi_device_for(S, index);
    const size_t parts = (bytes + TGI_STAGING - 1) / TGI_STAGING;
    if (!d) return false;
    for (size_t k = 0; k <= parts && parts > 0; ++k) { /* part k sets out, part k - 1 is taken */
        const size_t size = k + 1 < parts ? (size_t)TGI_STAGING : bytes - k * TGI_STAGING;
        if (k < parts && (!TGI_CUDA(cudaMemcpyAsync(d->staging[k % 2].data, (const char *)src + k * TGI_STAGING, size,
                                                    cudaMemcpyDeviceToHost, d->stream)) ||
                          !TGI_CUDA(cudaEventRecord(d->staging[k % 2].done, d->stream)))) {
            return false;
        }
        if (k == 0) continue;
        if (!tgi_until(S, d, d->staging[(k - 1) % 2].done)) return false;
        memcpy((char *)host + (k - 1) * TGI_STAGING, d->staging[(k - 1) % 2].data,
               k < parts ? (size_t)TGI_STAGING : bytes - (k - 1) * TGI_STAGING);
    }
    return !d->checked || tgi_report_bad_index(S, d, " (detected later)");
}

/* One element travels with the launch. */
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
    memcpy(&bits, host, bytes); /* hosts of GPUs are little-endian */
    return d && tgi_launch(S, d, tgi_store_element, 1, 1, dst, bits, (int64_t)bytes);
}

/* On the source's stream, once the target's has what it is written to; the target goes on when it is done. */
static bool tgi_cuda_peer_copy(tgi_thread *S, int to, void *dst, int from, const void *src, size_t bytes)
{
    const tgi_cuda_device *target = tgi_device_for(S, to), *source = target ? tgi_device_for(S, from) : NULL;
    if (!source || !tgi_order(S, source->stream, target, target->stream) || !TGI_CUDA(cudaSetDevice(from)) ||
        !TGI_CUDA(cudaMemcpyPeerAsync(dst, to, src, from, bytes, source->stream))) {
        return false;
    }
    if (tgi_order(S, target->stream, source, source->stream)) return true;
    TGI_CUDA(cudaStreamSynchronize(source->stream)); /* dst will be given back on the target's stream */
    return false;
}

/* ---- waiting ---- */

static bool tgi_cuda_synchronize(tgi_thread *S, int index)
{
    tgi_cuda_device *d = tgi_device_for(S, index);
    return d && tgi_wait(S, d) && TGI_CUDA(cudaStreamSynchronize(d->copies));
}

static bool tgi_cuda_device_sync(tgi_thread *S, int index)
{
    tgi_cuda_device *d = tgi_device_for(S, index);
    if (!d) return false;
    tgi_host_api.count_wait(S, TG_DEV_CUDA, index);
    return TGI_CUDA(cudaDeviceSynchronize());
}

/* ---- page-locked memory, and copies that overtake ---- */

/* Locking pages is slow: blocks of sizes of a power of two are kept. */
static size_t tgi_pinned_size(size_t bytes)
{
    size_t size = 4096;
    while (size < bytes && size <= SIZE_MAX / 2) size *= 2;
    return size;
}

/* A block that is free by now, or a new one. */
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
        tgi_free_pinned(S, data, (cudaEvent_t)event);
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
    return d && tgi_order(S, d->copies, d, d->stream) &&
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
    return d && tgi_until(S, d, (cudaEvent_t)event) && (!d->checked || tgi_wait(S, d));
}

static void tgi_cuda_event_destroy(tgi_thread *S, void *event) { TGI_CUDA(cudaEventDestroy((cudaEvent_t)event)); }

/* Memory that a kernel needs meanwhile; NULL after recording an error. */
static void *tgi_scratch(tgi_thread *S, tgi_cuda_device *d, const char *op, int64_t count, size_t size)
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

/* An element of any dtype as a float, a double or an int64_t, and back, by the table of element types. */
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

#define TGI_TAKE_VALUE(name, type, value, ...) \
    case TGI_AS_##name: {                      \
        const type x = *(const type *)at;      \
        return (real)(value);                  \
    }
#define TGI_TAKE_WHOLE(name, type, value, whole, ...) \
    case TGI_AS_##name: {                             \
        const type x = *(const type *)at;             \
        return (int64_t)(whole);                      \
    }
template <class real> __device__ inline real tgi_load_as(tg_dtype dtype, const void *at)
{
    switch ((int)dtype) {
        TGI_ELEMENTS(TGI_TAKE_VALUE)
    }
    return 0;
}
template <> __device__ inline int64_t tgi_load_as<int64_t>(tg_dtype dtype, const void *at)
{
    switch ((int)dtype) {
        TGI_ELEMENTS(TGI_TAKE_WHOLE)
    }
    return 0;
}

#define TGI_PUT_F32(name, type, value, whole, from_f32, from_f64, from_i64) \
    case TGI_AS_##name:                                                     \
        *(type *)at = (type)(from_f32);                                     \
        break;
#define TGI_PUT_F64(name, type, value, whole, from_f32, from_f64, from_i64) \
    case TGI_AS_##name:                                                     \
        *(type *)at = (type)(from_f64);                                     \
        break;
#define TGI_PUT_I64(name, type, value, whole, from_f32, from_f64, from_i64) \
    case TGI_AS_##name: *(type *)at = (type)(from_i64); break;
__device__ inline void tgi_store_as(tg_dtype dtype, void *at, float x)
{
    switch ((int)dtype) {
        TGI_ELEMENTS(TGI_PUT_F32)
    }
}
__device__ inline void tgi_store_as(tg_dtype dtype, void *at, double x)
{
    switch ((int)dtype) {
        TGI_ELEMENTS(TGI_PUT_F64)
    }
}
__device__ inline void tgi_store_as(tg_dtype dtype, void *at, int64_t x)
{
    switch ((int)dtype) {
        TGI_ELEMENTS(TGI_PUT_I64)
    }
}

__device__ inline bool tgi_floating(tg_dtype dtype) { return (int)dtype <= (int)TG_F16; }
static bool tgi_is_floating(tg_dtype dtype) { return tgi_dtypes[dtype].floating; }

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
    return tgi_floating(dtype) ? tgi_load_as<double>(dtype, at) != 0 : tgi_load_as<int64_t>(dtype, at) != 0;
}

/* The bits of one element, unchanged. */
__device__ inline void tgi_copy_element(void *to, const void *from, int64_t size)
{
    switch ((int)size) {
    case 1: *(uint8_t *)to = *(const uint8_t *)from; break;
    case 2: *(uint16_t *)to = *(const uint16_t *)from; break;
    case 4: *(uint32_t *)to = *(const uint32_t *)from; break;
    default: *(uint64_t *)to = *(const uint64_t *)from; break;
    }
}

/* How a dtype is stored, and what it is computed in. */
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

/* Elements that are loaded and stored together, in at most 16 bytes; the host sees to it that they are aligned. */
enum { TGI_PACK = 16 };
template <int dtype, int width> struct alignas(sizeof(typename tgi_stored<dtype>::type) * width) tgi_pack {
    typename tgi_stored<dtype>::type x[width];
};
#ifndef CUDASIM_CHECK_ALIGNED /* the simulator's */
#define CUDASIM_CHECK_ALIGNED(at, alignment) ((void)0)
#endif

template <class pack> __device__ inline pack tgi_load(const void *at)
{
    CUDASIM_CHECK_ALIGNED(at, alignof(pack));
    return *(const pack *)at;
}

template <class pack> __device__ inline void tgi_store(void *at, const pack &x)
{
    CUDASIM_CHECK_ALIGNED(at, alignof(pack));
    *(pack *)at = x;
}

/* How many packs of `width` elements can be taken of the first operands; none if one of them is not aligned. */
static int64_t tgi_packs_of(const tgi_iter *iter, int operands, int64_t width)
{
    for (int k = 0; k < operands; ++k) {
        if ((uintptr_t)iter->data[k] % TGI_PACK) return 0;
    }
    return iter->numel / width;
}

/* The addresses of element `element` in the iterator's first N operands.  The loop has a constant length, or the
   iterator would be copied to each thread's own memory to be indexed. */
template <int N> __device__ inline void tgi_element_addresses(const tgi_iter &iter, int64_t element, char *(&at)[N])
{
#pragma unroll
    for (int k = 0; k < N; ++k) at[k] = iter.data[k];
#pragma unroll
    for (int d = TG_MAX_DIMS - 1; d >= 0; --d) {
        if (d >= iter.ndim) continue;
        int64_t index = element;
        if (d > 0 && (uint64_t)(element | iter.dim[d]) >> 32 == 0) { /* most often; far cheaper than 64 bits */
            const uint32_t rest = (uint32_t)element / (uint32_t)iter.dim[d];
            index = (uint32_t)element - rest * (uint32_t)iter.dim[d];
            element = rest;
        } else if (d > 0) {
            index = element % iter.dim[d];
            element /= iter.dim[d];
        }
#pragma unroll
        for (int k = 0; k < N; ++k) at[k] += index * iter.stride[k][d];
    }
}

/* The kinds of reduction as types: identity and combination, for double and for int64_t. */
#define TGI_COMBINE(name, identity_f64, combination_f64, identity_i64, combination_i64)            \
    struct tgi_combine_##name {                                                                    \
        __device__ static double identity(double) { return (double)(identity_f64); }               \
        __device__ static int64_t identity(int64_t) { return (int64_t)(identity_i64); }            \
        __device__ static double two(double a, double x) { return (double)(combination_f64); }     \
        __device__ static int64_t two(int64_t a, int64_t x) { return (int64_t)(combination_i64); } \
    };
TGI_REDUCTIONS(TGI_COMBINE)

/* One number per thread of a block, combined in a fixed tree; every thread of the block calls it and
   gets the result. */
template <class combine, class T> __device__ inline T tgi_block_combine(T a)
{
    __shared__ T part[32];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, warps = (int)blockDim.x / 32;
    for (int apart = 16; apart > 0; apart /= 2) a = combine::two(a, __shfl_xor_sync(TGI_ALL_LANES, a, apart));
    __syncthreads(); /* part may still be read from the call before */
    if (lane == 0) part[warp] = a;
    __syncthreads();
    a = lane < warps ? part[lane] : combine::identity(T());
    for (int apart = 16; apart > 0; apart /= 2) a = combine::two(a, __shfl_xor_sync(TGI_ALL_LANES, a, apart));
    return a;
}

__device__ inline double tgi_block_sum(double x) { return tgi_block_combine<tgi_combine_sum>(x); }

/* ======== Elementwise ============================================================================================= */

/* ---- sin, cos, tan ----

   CUDA's own keep what they know of a large number in local memory; these stay in registers, and are within 1 ulp, tan
   within 2, for every float and double. */

/* 2 / pi in bits: the first word stands before the point. */
static __constant__ const uint64_t tgi_two_over_pi[20] = {
    0x0000000000000000, 0xa2f9836e4e441529, 0xfc2757d1f534ddc0, 0xdb6295993c439041, 0xfe5163abdebbc561,
    0xb7246e3a424dd2e0, 0x06492eea09d1921c, 0xfe1deb1cb129a73e, 0xe88235f52ebb4484, 0xe99c7026b45f7e41,
    0x3991d639835339f4, 0x9c845f8bbdf9283b, 0x1ff897ffde05980f, 0xef2f118b5a0a6d1f, 0x6d367ecf27cb09b7,
    0x4f463f669e5fea2d, 0x7527bac7ebe5f17b, 0x3d0739f78a5292ea, 0x6bfb5fb11f8d5d08, 0x56033046fc7b6bab};

/* 64 of these bits, from bit `from` on. */
__device__ inline uint64_t tgi_two_over_pi_bits(int from)
{
    const uint64_t first = tgi_two_over_pi[from / 64], next = tgi_two_over_pi[from / 64 + 1];
    return first << (from % 64) | next >> 1 >> (63 - from % 64);
}

/* x = quarters * pi / 2 + hi + lo, but for whole turns; |hi| is at most pi / 4. */
template <class real> struct tgi_angle {
    real hi, lo;
    int quarters;
};

/* Payne and Hanek (1983): x is m * 2^e, and of 2 / pi only those bits are multiplied by m that do not make whole turns
   and are not lost behind the point. */
template <class real> __device__ inline tgi_angle<real> tgi_angle_of(real x)
{
    const bool single = sizeof(real) == sizeof(float);
    const int digits = single ? 24 : 53, bias = single ? 127 : 1023;
    const uint64_t bits = single ? __float_as_uint((float)x) : (uint64_t)__double_as_longlong((double)x);
    const uint64_t one = (uint64_t)1 << (digits - 1), m = (bits & (one - 1)) | one;
    const int exponent = (int)(bits >> (digits - 1)) & (2 * bias + 1);
    tgi_angle<real> y = {exponent > 2 * bias ? x - x : x, 0 * x, 0}; /* infinity gives NaN; 0 keeps its sign */
    if (exponent < bias - 1 || exponent > 2 * bias) return y;        /* below 1/2 nothing is taken away */
    const int from = exponent - bias - digits + 63;
    const uint64_t middle = tgi_two_over_pi_bits(from + 64), carried = __umul64hi(m, tgi_two_over_pi_bits(from + 128));
    uint64_t low = m * middle + carried; /* 2 bits of quarters, then 62 + 64 behind the point */
    uint64_t high = m * tgi_two_over_pi_bits(from) + __umul64hi(m, middle) + (low < carried);
    y.quarters = (int)((high + ((uint64_t)1 << 61)) >> 62); /* the nearest */
    high -= (uint64_t)y.quarters << 62;
    const bool below = high >> 63 != 0;
    if (below) high = ~high, low = ~low;
    const int zeros = __clzll((long long)(high | 1)), rest = 64 - digits;
    const uint64_t radians = __umul64hi(high << zeros | low >> 1 >> (63 - zeros), 0xc90fdaa22168c235); /* pi / 2 */
    const real power = single ? (real)tgi_float_of_bits((uint32_t)(66 - zeros) << 23) /* 2^(-61 - zeros) */
                              : (real)__longlong_as_double((long long)(962 - zeros) << 52);
    const real unit = below != (x < 0) ? -power : power;
    y.hi = (real)(radians >> rest << rest) * unit;
    y.lo = (real)(radians & (((uint64_t)1 << rest) - 1)) * unit;
    if (x < 0) y.quarters = -y.quarters;
    return y;
}

/* 1 / n! - x / (n + 2)! + x^2 / (n + 4)! - .. x^.. / last! */
__device__ constexpr double tgi_factorial(int n) { return n < 2 ? 1 : n * tgi_factorial(n - 1); }
template <int n, int last, class real> __device__ inline real tgi_series(real x)
{
    constexpr double first = 1 / tgi_factorial(n);
    if constexpr (n < last)
        return (real)first - x * tgi_series<n + 2, last>(x);
    else
        return (real)first;
}

/* The sine of hi + lo + quarters * pi / 2: Taylor's series of the sine or the cosine. */
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

/* The words of the op table. */
#undef tgi_sin
#undef tgi_cos
#undef tgi_tan
#define tgi_sin tgi_cuda_sin
#define tgi_cos tgi_cuda_cos
#define tgi_tan tgi_cuda_tan

/* The rows of the op table as types: tgi_formula<TGI_OP_exp, float>::of(x, ..) is y. */
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

/* Rows by the number of their inputs. */
#define TGI_OPS_OF_1(OP) TGI_UNARY_OPS(OP) TGI_SCALAR_OPS(OP)
#define TGI_OPS_OF_2(OP) TGI_BINARY_OPS(OP) TGI_BINARY_SCALAR_OPS(OP)
#define TGI_OPS_OF_3(OP) TGI_TERNARY_OPS(OP)

/* y[n] = formula(a[n], b[n], c[n]): all side by side, inputs of one dtype; y may be an input.  First `packs` packs, of
   16 bytes in the wider dtype, and the rest by elements. */
template <class formula, int inputs, int from, int to, int width>
__device__ inline void tgi_map_pack(int64_t i, void *y, const void *a, const void *b, const void *c, double s, double t)
{
    typedef typename tgi_computed<from>::type real;
    typedef typename tgi_stored<from>::type stored;
    typedef tgi_pack<from, width> pack;
    tgi_pack<to, width> py;
    const pack pa = tgi_load<pack>((const stored *)a + i);
    const pack pb = inputs > 1 ? tgi_load<pack>((const stored *)b + i) : pa;
    const pack pc = inputs > 2 ? tgi_load<pack>((const stored *)c + i) : pa;
#pragma unroll
    for (int k = 0; k < width; ++k) {
        const real x[3] = {tgi_load_as<real>((tg_dtype)from, &pa.x[k]), tgi_load_as<real>((tg_dtype)from, &pb.x[k]),
                           tgi_load_as<real>((tg_dtype)from, &pc.x[k])};
        tgi_store_as((tg_dtype)to, &py.x[k], (real)formula::of(x[0], x[1], x[2], s, t));
    }
    tgi_store((typename tgi_stored<to>::type *)y + i, py);
}

template <class formula, int inputs, int from, int to, int width>
__global__ void tgi_map_flat(int64_t n, int64_t packs, void *y, const void *a, const void *b, const void *c, double s,
                             double t)
{
    const int64_t done = packs * width;
    TGI_EACH(i, packs) tgi_map_pack<formula, inputs, from, to, width>(i * width, y, a, b, c, s, t);
    TGI_EACH(i, n - done) tgi_map_pack<formula, inputs, from, to, 1>(done + i, y, a, b, c, s, t);
}

template <class formula, int inputs, int from, int to>
static bool tgi_launch_flat(tgi_thread *S, const tgi_cuda_device *d, const tgi_iter *iter, double s, double t)
{
    constexpr size_t x = sizeof(typename tgi_stored<from>::type), y = sizeof(typename tgi_stored<to>::type);
    constexpr int width = (int)(TGI_PACK / (x > y ? x : y));
    const int64_t n = iter->numel, packs = tgi_packs_of(iter, 1 + inputs, width);
    return tgi_launch_each(S, d, tgi_map_flat<formula, inputs, from, to, width>, packs ? packs : n, n, packs,
                           iter->data[0], iter->data[1], iter->data[inputs > 1 ? 2 : 1], iter->data[inputs > 2 ? 3 : 1],
                           s, t);
}

/* The same over strided operands of any dtype: one kernel for all ops with as many inputs. */
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

template <class real, int inputs> __global__ void tgi_map_strided(tgi_iter iter, int op, double s, double t)
{
    TGI_EACH(i, iter.numel)
    {
        char *at[inputs + 1];
        tgi_element_addresses(iter, i, at);
        const real a = tgi_load_as<real>(iter.dtype[1], at[1]);
        const real b = inputs > 1 ? tgi_load_as<real>(iter.dtype[2], at[inputs > 1 ? 2 : 1]) : real();
        const real c = inputs > 2 ? tgi_load_as<real>(iter.dtype[3], at[inputs > 2 ? 3 : 1]) : real();
        tgi_store_as(iter.dtype[0], at[0], tgi_formula_of<real, inputs>(op, a, b, c, s, t));
    }
}

/* The same with the inputs' dtype known only now: `compute`, or one of 16 bits. */
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

/* y = x: bits unchanged, by elements of 1, 2, 4 or 8 bytes. */
template <class word> __global__ void tgi_copy_bits(tgi_iter iter)
{
    TGI_EACH(i, iter.numel)
    {
        char *at[2];
        tgi_element_addresses(iter, i, at);
        *(word *)(void *)at[0] = *(const word *)(const void *)at[1];
    }
}

/* y = x in another dtype, by way of x's compute dtype, which holds all its values. */
template <class real> __global__ void tgi_copy_converted(tgi_iter iter)
{
    TGI_EACH(i, iter.numel)
    {
        char *at[2];
        tgi_element_addresses(iter, i, at);
        tgi_store_as(iter.dtype[0], at[0], tgi_load_as<real>(iter.dtype[1], at[1]));
    }
}

/* The same side by side. */
template <class real_> struct tgi_identity {
    typedef real_ real;
    __device__ static real of(real x, real, real, double, double) { return x; }
};

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
    switch (tgi_compute_dtype(from)) {
    case TG_F32: return tgi_launch_each(S, d, tgi_copy_converted<float>, iter.numel, iter);
    case TG_F64: return tgi_launch_each(S, d, tgi_copy_converted<double>, iter.numel, iter);
    default: return tgi_launch_each(S, d, tgi_copy_converted<int64_t>, iter.numel, iter);
    }
}

static __global__ void tgi_fill_elements(tgi_iter iter, double value)
{
    TGI_EACH(i, iter.numel)
    {
        char *at[1];
        tgi_element_addresses(iter, i, at);
        tgi_store_as(iter.dtype[0], at[0], value);
    }
}

/* The same side by side: `packs` packs, and the rest by elements. */
static __global__ void tgi_fill_flat(tg_dtype dtype, char *y, int64_t n, int64_t packs, double value)
{
    const int64_t size = tgi_size_of(dtype), done = packs * TGI_PACK / size;
    tgi_pack<TG_I64, 2> pack;
    uint64_t word = 0;
    tgi_store_as(dtype, &word, value);
    for (int64_t bits = 8 * size; bits < 64; bits *= 2) word |= word << bits;
    pack.x[0] = pack.x[1] = (int64_t)word;
    TGI_EACH(i, packs) tgi_store(y + i * TGI_PACK, pack);
    TGI_EACH(i, n - done) tgi_copy_element(y + (done + i) * size, &word, size);
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
    const int64_t n = iter.numel, packs = tgi_packs_of(&iter, 1, TGI_PACK / tgi_bytes_of(iter.dtype[0]));
    return tgi_launch_each(S, d, tgi_fill_flat, packs ? packs : n, iter.dtype[0], iter.data[0], n, packs, value);
}

/* ======== Sorting ================================================================================================= */

/* rows of `length` (key, index) pairs each, sorted by key and then by index, so that the order is stable: runs of
   TGI_RUN by a bitonic network in shared memory, then merged by twos, each element finding its place by itself. */
enum { TGI_RUN = 2 * TGI_BLOCK };

__device__ inline bool tgi_before(const tgi_sort_pair &a, const tgi_sort_pair &b)
{
    return a.key < b.key || (a.key == b.key && a.index < b.index);
}

static __global__ void tgi_sort_runs(tgi_sort_pair *pairs, int64_t rows, int64_t length)
{
    __shared__ uint64_t key[TGI_RUN];
    __shared__ int64_t index[TGI_RUN];
    const int64_t runs = (length + TGI_RUN - 1) / TGI_RUN;
    for (int64_t run = blockIdx.x; run < rows * runs; run += gridDim.x) {
        const int64_t start = run % runs * TGI_RUN, left = length - start;
        tgi_sort_pair *const p = pairs + run / runs * length + start;
        for (int i = (int)threadIdx.x; i < TGI_RUN; i += TGI_BLOCK) { /* what is beyond the end sorts last */
            key[i] = i < left ? p[i].key : UINT64_MAX;
            index[i] = i < left ? p[i].index : INT64_MAX;
        }
        for (int size = 2; size <= TGI_RUN; size *= 2) {
            for (int apart = size / 2; apart > 0; apart /= 2) {
                const int t = (int)threadIdx.x, i = 2 * t - (t & (apart - 1)), j = i + apart;
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

static __global__ void tgi_merge_runs(tgi_sort_pair *to, const tgi_sort_pair *from, int64_t rows, int64_t length,
                                      int64_t run)
{
    TGI_EACH(e, rows * length)
    {
        const int64_t i = e % length, start = i - i % (2 * run);
        const int64_t middle = length - start < run ? length : start + run;
        const int64_t end = length - start < 2 * run ? length : start + 2 * run;
        const tgi_sort_pair *const row = from + (e - i);
        const tgi_sort_pair mine = row[i];
        const int64_t other = i < middle ? middle : start; /* where the other run begins */
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

/* Returns which of the two holds the result; NULL after recording an error. */
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

/* An element as an unsigned key in the same order (see the CPU's tgi_load_keys): every NaN is the largest. */
__device__ inline uint64_t tgi_key_of(tg_dtype dtype, const void *at)
{
    const uint64_t sign = (uint64_t)1 << 63;
    if (!tgi_floating(dtype)) return (uint64_t)tgi_load_as<int64_t>(dtype, at) ^ sign;
    const double x = tgi_load_as<double>(dtype, at) + 0.0; /* -0 + 0 is 0 */
    const uint64_t bits = (uint64_t)__double_as_longlong(x);
    return x != x ? UINT64_MAX : bits & sign ? ~bits : bits | sign;
}

/* ---- accumulate ---- */

/* Destinations of all elements of an iterator as keys: equal ones meet in one element. */
static __global__ void tgi_load_places(tgi_iter iter, tgi_sort_pair *pairs)
{
    TGI_EACH(i, iter.numel)
    {
        char *at[1];
        tgi_element_addresses(iter, i, at);
        pairs[i].key = (uint64_t)(at[0] - iter.data[0]);
        pairs[i].index = i;
    }
}

/* The first pair of each key adds all that go to its element, in index order. */
template <class real> __global__ void tgi_add_places(tgi_iter iter, const tgi_sort_pair *pairs)
{
    TGI_EACH(i, iter.numel)
    {
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
    bool ok;
    tgi_iter_init(&iter, loop->ndim, loop->dim, 2, loop->arg, false);
    if (!d) return false;
    if (iter.numel == 0) return true;
    if (tgi_no_overlap(&iter)) {
        const tgi_loop add = tgi_as_addition(loop);
        return tgi_cuda_map(S, &add);
    }
    tgi_sort_pair *const pairs = (tgi_sort_pair *)tgi_scratch(S, d, "accumulate", 2 * iter.numel, sizeof *pairs);
    if (!pairs) return false;
    ok = tgi_launch_each(S, d, tgi_load_places, iter.numel, iter, pairs);
    const tgi_sort_pair *const sorted = ok ? tgi_sort_pairs(S, d, pairs, pairs + iter.numel, 1, iter.numel) : NULL;
    const tg_dtype compute = tgi_compute_dtype(iter.dtype[0]);
    ok = sorted && (compute == TG_F32   ? tgi_launch_each(S, d, tgi_add_places<float>, iter.numel, iter, sorted)
                    : compute == TG_F64 ? tgi_launch_each(S, d, tgi_add_places<double>, iter.numel, iter, sorted)
                                        : tgi_launch_each(S, d, tgi_add_places<int64_t>, iter.numel, iter, sorted));
    tgi_cuda_release(S, d->index, pairs, 0);
    return ok;
}

/* ---- arange ---- */

static __global__ void tgi_arange_elements(tgi_operand out, int64_t n, int64_t bytes, double start, double step)
{
    TGI_EACH(i, n)
    {
        char *const at = (char *)out.data + i * bytes;
        if (tgi_floating(out.dtype))
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

/* The reduced elements of an output are cut into pieces of a fixed size, so that the order depends on shapes alone.  A
   piece is one block's work (fold), or one thread's where neighbouring threads then read neighbouring elements
   (across); with several pieces a second launch combines them. */
enum { TGI_FOLD_PIECE = 16384, TGI_ACROSS_PIECE = 512 };
typedef struct {
    tgi_iter kept, reduced; /* out and in; in */
    int64_t piece, pieces;  /* reduced elements in a piece; pieces per output */
    void *partial;          /* [pieces][outputs] of double or int64_t, or NULL when there is one piece */
} tgi_reduce_job;

template <class combine, class T> __global__ void tgi_fold(tgi_reduce_job job)
{
    const int64_t outputs = job.kept.numel;
    for (int64_t item = blockIdx.x; item < outputs * job.pieces; item += gridDim.x) {
        const int64_t output = item % outputs, from = item / outputs * job.piece;
        const int64_t to = job.reduced.numel - from < job.piece ? job.reduced.numel : from + job.piece;
        char *at[2], *x[1];
        T sum = combine::identity(T());
        tgi_element_addresses(job.kept, output, at);
        for (int64_t i = from + threadIdx.x; i < to; i += blockDim.x) {
            tgi_element_addresses(job.reduced, i, x);
            sum = combine::two(sum, tgi_load_as<T>(job.reduced.dtype[0], x[0] + (at[1] - job.kept.data[1])));
        }
        sum = tgi_block_combine<combine>(sum);
        if (threadIdx.x == 0 && job.partial) ((T *)job.partial)[item] = sum;
        if (threadIdx.x == 0 && !job.partial) tgi_store_as(job.kept.dtype[0], at[0], sum);
    }
}

template <class combine, class T> __global__ void tgi_fold_across(tgi_reduce_job job)
{
    const int64_t outputs = job.kept.numel;
    TGI_EACH(item, outputs * job.pieces)
    {
        const int64_t output = item % outputs, from = item / outputs * job.piece;
        const int64_t to = job.reduced.numel - from < job.piece ? job.reduced.numel : from + job.piece;
        char *at[2], *x[1];
        T sum = combine::identity(T());
        tgi_element_addresses(job.kept, output, at);
        for (int64_t i = from; i < to; ++i) {
            tgi_element_addresses(job.reduced, i, x);
            sum = combine::two(sum, tgi_load_as<T>(job.reduced.dtype[0], x[0] + (at[1] - job.kept.data[1])));
        }
        if (job.partial)
            ((T *)job.partial)[item] = sum;
        else
            tgi_store_as(job.kept.dtype[0], at[0], sum);
    }
}

/* One block per output. */
template <class combine, class T> __global__ void tgi_fold_pieces(tgi_reduce_job job)
{
    for (int64_t output = blockIdx.x; output < job.kept.numel; output += gridDim.x) {
        char *at[1];
        T sum = combine::identity(T());
        tgi_element_addresses(job.kept, output, at);
        for (int64_t p = threadIdx.x; p < job.pieces; p += blockDim.x)
            sum = combine::two(sum, ((const T *)job.partial)[p * job.kept.numel + output]);
        sum = tgi_block_combine<combine>(sum);
        if (threadIdx.x == 0) tgi_store_as(job.kept.dtype[0], at[0], sum);
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

static bool tgi_cuda_reduce(tgi_thread *S, const tgi_reduce *reduce)
{
    tgi_cuda_device *d = tgi_device_for(S, reduce->in.index);
    const tgi_operand arg[2] = {reduce->out, reduce->in};
    tgi_operand in = reduce->in;
    tgi_reduce_job job;
    bool ok = false;
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
        job.partial = tgi_scratch(S, d, "sum", job.pieces * job.kept.numel, sizeof(double));
        if (!job.partial) return false;
    }
    const bool floating = tgi_is_floating(in.dtype);
#define TGI_REDUCE_CASE(name, ...)                                                      \
    if (kind-- == 0) {                                                                  \
        ok = floating ? tgi_reduce_as<tgi_combine_##name, double>(S, d, &job, across)   \
                      : tgi_reduce_as<tgi_combine_##name, int64_t>(S, d, &job, across); \
    }
    int kind = (int)reduce->kind; /* the rows are in the order of tgi_reduction */
    TGI_REDUCTIONS(TGI_REDUCE_CASE)
    tgi_cuda_release(S, d->index, job.partial, 0);
    return ok;
}

/* ======== Rows ==================================================================================================== */

/* Kernels along one dim: a block per row, in double whatever the dtype, as on the CPU. */
typedef struct {
    tgi_iter iter;                      /* the other dims */
    int64_t length, step[TGI_MAX_ARGS]; /* steps in bytes */
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

/* kernel(job, args...) with a block per row. */
template <class... P, class... A>
static bool tgi_each_row(tgi_thread *S, void (*kernel)(tgi_row_job, P...), const tgi_rows *rows, const A &...args)
{
    const tgi_cuda_device *d = tgi_device_for(S, rows->arg[rows->nargs - 1].index);
    const tgi_row_job job = tgi_row_job_of(rows);
    if (!d) return false;
    return job.iter.numel == 0 ||
           tgi_launch(S, d, kernel, job.iter.numel, rows->length <= 64 ? 32 : (int)TGI_BLOCK, job, args...);
}

#define TGI_EACH_ROW(row, job) for (int64_t row = blockIdx.x; row < (job).iter.numel; row += gridDim.x)
#define TGI_EACH_COLUMN(i, job) for (int64_t i = threadIdx.x; i < (job).length; i += blockDim.x)
/* Element i of the row's operand k. */
#define TGI_X(k, i) tgi_load_as<double>(job.iter.dtype[k], at[k] + (i)*job.step[k])
#define TGI_SET(k, i, x) tgi_store_as(job.iter.dtype[k], at[k] + (i)*job.step[k], x)

/* Value and index of the first of the largest (or smallest) elements; the first NaN if there is one.  Operands: values
   if they are wanted, indices, in (so `in` is 2 or 1). */
template <int in> __global__ void tgi_arg_reduce_rows(tgi_row_job job, bool smallest)
{
    __shared__ uint64_t keys[TGI_BLOCK];
    __shared__ int64_t indices[TGI_BLOCK];
    const tg_dtype dtype = job.iter.dtype[in];
    const int t = (int)threadIdx.x;
    TGI_EACH_ROW(row, job)
    {
        char *at[in + 1];
        tgi_sort_pair best = {UINT64_MAX, INT64_MAX}; /* the smallest key wins: the others are turned round */
        tgi_element_addresses(job.iter, row, at);
        TGI_EACH_COLUMN(i, job)
        {
            tgi_sort_pair x = {tgi_key_of(dtype, at[in] + i * job.step[in]), i};
            const bool nan = tgi_floating(dtype) && x.key == UINT64_MAX;
            if (nan)
                x.key = 0;
            else if (!smallest)
                x.key = ~x.key;
            if (tgi_before(x, best)) best = x;
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
            tgi_store_as(job.iter.dtype[in - 1], at[in - 1], found);
            if (in == 2 && job.length > 0) tgi_copy_element(at[0], at[in] + found * job.step[in], tgi_size_of(dtype));
        }
        __syncthreads();
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

/* y[i] = x[0] + .. + x[i]: a block's width at a time, each by a scan in shared memory (Hillis and Steele, 1986), with
   the sum so far carried on. */
template <class T> __global__ void tgi_cumsum_rows(tgi_row_job job)
{
    __shared__ T part[2][TGI_BLOCK];
    const int t = (int)threadIdx.x, width = (int)blockDim.x;
    TGI_EACH_ROW(row, job)
    {
        char *at[2];
        T before = 0;
        tgi_element_addresses(job.iter, row, at);
        for (int64_t start = 0; start < job.length; start += width) {
            const int64_t i = start + t;
            int now = 0;
            part[0][t] = i < job.length ? tgi_load_as<T>(job.iter.dtype[1], at[1] + i * job.step[1]) : (T)0;
            for (int apart = 1; apart < width; apart *= 2, now = 1 - now) {
                __syncthreads();
                part[1 - now][t] = t < apart ? part[now][t] : tgi_combine_sum::two(part[now][t - apart], part[now][t]);
            }
            __syncthreads();
            if (i < job.length)
                tgi_store_as(job.iter.dtype[0], at[0] + i * job.step[0], tgi_combine_sum::two(before, part[now][t]));
            before = tgi_combine_sum::two(before, part[now][width - 1]);
            __syncthreads();
        }
    }
}

static bool tgi_cuda_cumsum(tgi_thread *S, const tgi_rows *rows)
{
    if (tgi_is_floating(rows->arg[1].dtype)) return tgi_each_row(S, tgi_cumsum_rows<double>, rows);
    return tgi_each_row(S, tgi_cumsum_rows<int64_t>, rows);
}

/* sort: values, indices, in */
static __global__ void tgi_load_keys(tgi_row_job job, bool descending, tgi_sort_pair *pairs)
{
    TGI_EACH(e, job.iter.numel * job.length)
    {
        const int64_t i = e % job.length;
        char *at[3];
        tgi_element_addresses(job.iter, e / job.length, at);
        const uint64_t key = tgi_key_of(job.iter.dtype[2], at[2] + i * job.step[2]);
        pairs[e].key = descending ? ~key : key;
        pairs[e].index = i;
    }
}

static __global__ void tgi_store_sorted(tgi_row_job job, const tgi_sort_pair *pairs)
{
    TGI_EACH(e, job.iter.numel * job.length)
    {
        const int64_t i = e % job.length, from = pairs[e].index;
        char *at[3];
        tgi_element_addresses(job.iter, e / job.length, at);
        tgi_copy_element(at[0] + i * job.step[0], at[2] + from * job.step[2], tgi_size_of(job.iter.dtype[2]));
        tgi_store_as(job.iter.dtype[1], at[1] + i * job.step[1], from);
    }
}

static bool tgi_cuda_sort(tgi_thread *S, bool descending, const tgi_rows *rows)
{
    tgi_cuda_device *d = tgi_device_for(S, rows->arg[2].index);
    const tgi_row_job job = tgi_row_job_of(rows);
    const int64_t n = job.iter.numel * job.length;
    if (!d) return false;
    if (n == 0) return true;
    tgi_sort_pair *const pairs = (tgi_sort_pair *)tgi_scratch(S, d, "sort", 2 * n, sizeof *pairs), *sorted = NULL;
    if (!pairs) return false;
    if (tgi_launch_each(S, d, tgi_load_keys, n, job, descending, pairs))
        sorted = tgi_sort_pairs(S, d, pairs, pairs + n, job.iter.numel, job.length);
    const bool ok = sorted && tgi_launch_each(S, d, tgi_store_sorted, n, job, sorted);
    tgi_cuda_release(S, d->index, pairs, 0);
    return ok;
}

/* softmax: exp(x - max) / sum of them; its log: x - max - log of that sum.  A row of -inf alone gives NaN.  out, in */
static __global__ void tgi_softmax_rows(tgi_row_job job, bool as_log)
{
    const bool single = job.iter.dtype[1] != TG_F64;
    TGI_EACH_ROW(row, job)
    {
        char *at[2];
        double most = -HUGE_VAL, sum = 0;
        tgi_element_addresses(job.iter, row, at);
        TGI_EACH_COLUMN(i, job)
        {
            const double x = TGI_X(1, i);
            most = x > most ? x : most;
        }
        most = tgi_block_combine<tgi_combine_amax>(most);
        TGI_EACH_COLUMN(i, job)
        {
            const double x = TGI_X(1, i) - most;
            sum += single ? (double)expf((float)x) : exp(x);
        }
        sum = tgi_block_sum(sum);
        const double scale = 1 / sum, shift = log(sum);
        TGI_EACH_COLUMN(i, job)
        {
            const double x = TGI_X(1, i) - most;
            TGI_SET(0, i, as_log ? x - shift : (single ? (double)expf((float)x) : exp(x)) * scale);
        }
    }
}

static bool tgi_cuda_softmax(tgi_thread *S, bool log, const tgi_rows *rows)
{
    return tgi_each_row(S, tgi_softmax_rows, rows, log);
}

/* dx = y * (g - sum(g * y)); of the log: dx = g - exp(y) * sum(g).  dx, g, y */
static __global__ void tgi_softmax_backward_rows(tgi_row_job job, bool as_log)
{
    TGI_EACH_ROW(row, job)
    {
        char *at[3];
        double sum = 0;
        tgi_element_addresses(job.iter, row, at);
        TGI_EACH_COLUMN(i, job) sum += as_log ? TGI_X(1, i) : TGI_X(1, i) * TGI_X(2, i);
        sum = tgi_block_sum(sum);
        TGI_EACH_COLUMN(i, job)
        {
            const double g = TGI_X(1, i), y = TGI_X(2, i);
            TGI_SET(0, i, as_log ? g - exp(y) * sum : y * (g - sum));
        }
    }
}

static bool tgi_cuda_softmax_backward(tgi_thread *S, bool log, const tgi_rows *rows)
{
    return tgi_each_row(S, tgi_softmax_backward_rows, rows, log);
}

/* y = (x - mean) * rstd, rstd = 1 / sqrt(mean of (x - mean)^2 + eps); rms: the mean stays.  y, rstd, x */
static __global__ void tgi_layer_norm_rows(tgi_row_job job, bool rms, double eps)
{
    const double n = (double)job.length;
    TGI_EACH_ROW(row, job)
    {
        char *at[3];
        double sum = 0, squares = 0;
        tgi_element_addresses(job.iter, row, at);
        TGI_EACH_COLUMN(i, job) sum += TGI_X(2, i);
        sum = tgi_block_sum(sum);
        const double mean = rms ? 0 : sum / n;
        TGI_EACH_COLUMN(i, job) squares += (TGI_X(2, i) - mean) * (TGI_X(2, i) - mean);
        const double rstd = 1 / sqrt(tgi_block_sum(squares) / n + eps);
        TGI_EACH_COLUMN(i, job) TGI_SET(0, i, (TGI_X(2, i) - mean) * rstd);
        if (threadIdx.x == 0) tgi_store_as(job.iter.dtype[1], at[1], rstd);
    }
}

static bool tgi_cuda_layer_norm(tgi_thread *S, bool rms, double eps, const tgi_rows *rows)
{
    return tgi_each_row(S, tgi_layer_norm_rows, rows, rms, eps);
}

/* dx = rstd * (g - mean(g) - y * mean(g * y)); rms: without mean(g).  dx, g, y, rstd */
static __global__ void tgi_layer_norm_backward_rows(tgi_row_job job, bool rms)
{
    const double n = (double)job.length;
    TGI_EACH_ROW(row, job)
    {
        char *at[4];
        double sum = 0, products = 0;
        tgi_element_addresses(job.iter, row, at);
        TGI_EACH_COLUMN(i, job)
        {
            sum += TGI_X(1, i);
            products += TGI_X(1, i) * TGI_X(2, i);
        }
        sum = tgi_block_sum(sum);
        products = tgi_block_sum(products);
        const double mean_g = rms ? 0 : sum / n, mean_gy = products / n,
                     rstd = tgi_load_as<double>(job.iter.dtype[3], at[3]);
        TGI_EACH_COLUMN(i, job) TGI_SET(0, i, rstd * (TGI_X(1, i) - mean_g - TGI_X(2, i) * mean_gy));
    }
}

static bool tgi_cuda_layer_norm_backward(tgi_thread *S, bool rms, const tgi_rows *rows)
{
    return tgi_each_row(S, tgi_layer_norm_backward_rows, rows, rms);
}

/* ======== Indexing ================================================================================================ */

/* The place of the first index outside [0, size); then, by one thread, what a report will say. */
static __global__ void tgi_find_bad_index(tgi_iter index, int64_t least, int64_t size, tgi_bad_index *bad)
{
    TGI_EACH(i, index.numel)
    {
        char *at[1];
        tgi_element_addresses(index, i, at);
        const int64_t value = tgi_load_as<int64_t>(index.dtype[0], at[0]);
        if (value < least || value >= size) atomicMin(&bad->first, (unsigned long long)i);
    }
}

static __global__ void tgi_note_bad_index(tgi_iter index, int64_t size, const char *op, int message, int axis,
                                          tgi_bad_index *bad)
{
    if (bad->first == TGI_NO_PLACE) return;
    if (!bad->found) { /* the first since the last report stays */
        char *at[1];
        tgi_element_addresses(index, (int64_t)bad->first, at);
        bad->at = tgi_load_as<int64_t>(index.dtype[0], at[0]);
        bad->place = (int64_t)bad->first;
        bad->size = size;
        bad->op = op;
        bad->message = message;
        bad->axis = axis;
        bad->found = 1;
    }
    bad->first = TGI_NO_PLACE;
}

/* Says yes at once; a bad index is reported by the next call that waits, and kernels skip it. */
static bool tgi_cuda_index_check(tgi_thread *S, const char *op, tgi_operand index, int ndim, const int64_t *dim,
                                 int64_t size, tgi_index_message message, int axis, bool now)
{
    tgi_cuda_device *d = tgi_device_for(S, index.index);
    const int64_t least = message == TGI_INDEX_FROM_END ? -size : 0;
    tgi_iter iter;
    tgi_iter_init(&iter, ndim, dim, 1, &index, false);
    if (!d || (now && !tgi_wait(S, d))) return false; /* what was found before is not this op's */
    if (iter.numel == 0) return true;
    d->checked = true;
    return tgi_launch_each(S, d, tgi_find_bad_index, iter.numel, iter, least, size, d->bad) &&
           tgi_launch(S, d, tgi_note_bad_index, 1, 1, iter, size, op, (int)message, axis, d->bad) &&
           (!now || (TGI_CUDA(cudaStreamSynchronize(d->stream)) && tgi_report_bad_index(S, d, "")));
}

/* out[i] = x[i with index[i] at the row's dim]: a loop over all of index, in which x stands still along that dim and
   the index moves it.  out, x, index */
static __global__ void tgi_gather_elements(tgi_iter iter, int64_t step, int64_t size)
{
    TGI_EACH(i, iter.numel)
    {
        char *at[3];
        tgi_element_addresses(iter, i, at);
        const int64_t index = tgi_load_as<int64_t>(iter.dtype[2], at[2]);
        if ((uint64_t)index < (uint64_t)size)
            tgi_copy_element(at[0], at[1] + index * step, tgi_size_of(iter.dtype[0]));
        else
            tgi_store_as(iter.dtype[0], at[0], 0.0); /* it has been noted */
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

/* scatter: x, src, index.  The (index, place in the row) pairs are sorted; elements of x that several places go to then
   have them side by side, in row order.  One row of pairs serves all rows where index is broadcast over them, as it is
   for an embedding. */
static __global__ void tgi_load_indices(tgi_row_job job, int64_t rows, tgi_sort_pair *pairs)
{
    TGI_EACH(e, rows * job.length)
    {
        const int64_t i = e % job.length;
        char *at[3];
        tgi_element_addresses(job.iter, e / job.length, at);
        pairs[e].key = (uint64_t)tgi_load_as<int64_t>(job.iter.dtype[2], at[2] + i * job.step[2]);
        pairs[e].index = i;
    }
}

/* Adding: the first pair of an index adds all of them, in row order. */
template <class real>
__global__ void tgi_scatter_add_pairs(tgi_row_job job, int64_t size, int64_t rows, const tgi_sort_pair *pairs)
{
    TGI_EACH(e, job.iter.numel * job.length)
    {
        const int64_t row = e % job.iter.numel, i = e / job.iter.numel; /* neighbours: the same place, other rows */
        const tgi_sort_pair *const p = pairs + (rows > 1 ? row : 0) * job.length;
        const uint64_t key = p[i].key;
        if (key >= (uint64_t)size || (i > 0 && p[i - 1].key == key)) continue;
        char *at[2];
        tgi_element_addresses(job.iter, row, at);
        char *const x = at[0] + (int64_t)key * job.step[0];
        real sum = tgi_load_as<real>(job.iter.dtype[0], x);
        for (int64_t j = i; j < job.length && p[j].key == key; ++j) {
            const real term = tgi_load_as<real>(job.iter.dtype[1], at[1] + p[j].index * job.step[1]);
            sum = tgi_formula<TGI_OP_add, real>::of(sum, term, 0, 0, 0);
        }
        tgi_store_as(job.iter.dtype[0], x, sum);
    }
}

/* Writing: the last pair of an index is the one that stays. */
static __global__ void tgi_scatter_pairs(tgi_row_job job, int64_t size, int64_t rows, const tgi_sort_pair *pairs)
{
    TGI_EACH(e, job.iter.numel * job.length)
    {
        const int64_t row = e % job.iter.numel, i = e / job.iter.numel;
        const tgi_sort_pair *const p = pairs + (rows > 1 ? row : 0) * job.length;
        const uint64_t key = p[i].key;
        if (key >= (uint64_t)size || (i + 1 < job.length && p[i + 1].key == key)) continue;
        char *at[2];
        tgi_element_addresses(job.iter, row, at);
        tgi_copy_element(at[0] + (int64_t)key * job.step[0], at[1] + p[i].index * job.step[1],
                         tgi_size_of(job.iter.dtype[0]));
    }
}

static bool tgi_cuda_scatter(tgi_thread *S, bool add, const tgi_rows *rows)
{
    tgi_cuda_device *d = tgi_device_for(S, rows->arg[0].index);
    const tgi_row_job job = tgi_row_job_of(rows);
    const int64_t n = job.iter.numel * job.length;
    int64_t sorts = 1;
    if (!d) return false;
    if (n == 0) return true;
    for (int k = 0; k < job.iter.ndim; ++k) {
        if (job.iter.stride[2][k] != 0) sorts = job.iter.numel;
    }
    const int64_t count = sorts * job.length;
    tgi_sort_pair *const pairs = (tgi_sort_pair *)tgi_scratch(S, d, "scatter", 2 * count, sizeof *pairs);
    const tgi_sort_pair *p = NULL;
    if (!pairs) return false;
    if (tgi_launch_each(S, d, tgi_load_indices, count, job, sorts, pairs))
        p = tgi_sort_pairs(S, d, pairs, pairs + count, sorts, job.length);
    const tg_dtype compute = tgi_compute_dtype(rows->arg[0].dtype);
    const bool ok =
        p &&
        (!add                ? tgi_launch_each(S, d, tgi_scatter_pairs, n, job, rows->size, sorts, p)
         : compute == TG_F32 ? tgi_launch_each(S, d, tgi_scatter_add_pairs<float>, n, job, rows->size, sorts, p)
         : compute == TG_F64 ? tgi_launch_each(S, d, tgi_scatter_add_pairs<double>, n, job, rows->size, sorts, p)
                             : tgi_launch_each(S, d, tgi_scatter_add_pairs<int64_t>, n, job, rows->size, sorts, p));
    tgi_cuda_release(S, d->index, pairs, 0);
    return ok;
}

/* nonzero: elements in pieces of a block's width.  How many each has; by one block, how many come before each; and then
   where each of them goes. */
static __global__ void tgi_count_nonzero(tgi_iter iter, int64_t *counts)
{
    for (int64_t piece = blockIdx.x; piece * TGI_BLOCK < iter.numel; piece += gridDim.x) {
        const int64_t i = piece * TGI_BLOCK + threadIdx.x;
        char *at[1];
        bool found = false;
        if (i < iter.numel) {
            tgi_element_addresses(iter, i, at);
            found = tgi_is_true(iter.dtype[0], at[0]);
        }
        const int count = __syncthreads_count(found);
        if (threadIdx.x == 0) counts[piece] = count;
    }
}

/* counts [n] become the sums of those before; their total goes behind them. */
static __global__ void tgi_sum_counts(int64_t *counts, int64_t n)
{
    __shared__ int64_t part[2][TGI_BLOCK];
    const int t = (int)threadIdx.x;
    int64_t before = 0;
    for (int64_t start = 0; start < n; start += TGI_BLOCK) {
        const int64_t mine = start + t < n ? counts[start + t] : 0;
        int now = 0;
        part[0][t] = mine;
        for (int apart = 1; apart < TGI_BLOCK; apart *= 2, now = 1 - now) {
            __syncthreads();
            part[1 - now][t] = part[now][t] + (t < apart ? 0 : part[now][t - apart]);
        }
        __syncthreads();
        if (start + t < n) counts[start + t] = before + part[now][t] - mine;
        before += part[now][TGI_BLOCK - 1];
        __syncthreads();
    }
    if (t == 0) counts[n] = before;
}

typedef struct {
    int ndim;
    int64_t dim[TG_MAX_DIMS];
} tgi_dims;

/* out [count, ndim] */
static __global__ void tgi_store_nonzero(tgi_iter iter, tgi_dims dims, const int64_t *before, int64_t *out)
{
    __shared__ int found_by_warp[TGI_BLOCK / 32];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    for (int64_t piece = blockIdx.x; piece * TGI_BLOCK < iter.numel; piece += gridDim.x) {
        int64_t element = piece * TGI_BLOCK + threadIdx.x, place = before[piece];
        char *at[1];
        bool found = false;
        if (element < iter.numel) {
            tgi_element_addresses(iter, element, at);
            found = tgi_is_true(iter.dtype[0], at[0]);
        }
        const unsigned lanes = __ballot_sync(TGI_ALL_LANES, found);
        if (lane == 0) found_by_warp[warp] = __popc(lanes);
        __syncthreads();
        for (int w = 0; w < warp; ++w) place += found_by_warp[w];
        place += __popc(lanes & ((1u << lane) - 1));
#pragma unroll
        for (int k = TG_MAX_DIMS - 1; k >= 0; --k) {
            if (!found || k >= dims.ndim) continue;
            out[place * dims.ndim + k] = element % dims.dim[k];
            element /= dims.dim[k];
        }
        __syncthreads();
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
    int64_t *const counts = (int64_t *)tgi_scratch(S, d, "nonzero", pieces + 1, sizeof *counts);
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

/* ======== Matrix products ========================================================================================= */

/* out [m, n] = a [m, k] times b [k, n] in integers, wrapping; one thread per element of each batch. */
static __global__ void tgi_gemm_plain(tgi_iter batch, int64_t m, int64_t n, int64_t k, int64_t a_row, int64_t a_col,
                                      int64_t b_row, int64_t b_col)
{
    TGI_EACH(e, batch.numel * m * n)
    {
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

/* A matrix as cuBLAS reads it: row-major memory is its transpose in column-major, which is what a swapped product wants
   (out^T = b^T a^T).  False: neither rows nor columns lie side by side. */
static bool tgi_as_column_major(int64_t rows, int64_t cols, int64_t row, int64_t col, cublasOperation_t *operation,
                                int *leading)
{
    if (cols == 1) col = 1; /* a step that is never taken */
    if (rows == 1) row = cols;
    if (col == 1 && row >= cols && row <= INT_MAX) {
        *operation = CUBLAS_OP_N;
        *leading = (int)row;
        return true;
    }
    if (cols == 1 && rows > 1) return false;
    if (row == 1 && col >= rows && col <= INT_MAX) {
        *operation = CUBLAS_OP_T;
        *leading = (int)col;
        return true;
    }
    return false;
}

/* x [dim.., rows, cols] copied so that it is contiguous and of this dtype; its memory is *memory. */
static bool tgi_gemm_copy(tgi_thread *S, tgi_cuda_device *d, tgi_operand *x, tg_dtype dtype, int ndim,
                          const int64_t *dim, int64_t rows, int64_t cols, int64_t *row, int64_t *col, void **memory)
{
    tgi_loop loop = {};
    int64_t numel = rows * cols;
    loop.ndim = ndim + 2;
    loop.nargs = 2;
    loop.arg[1] = *x;
    loop.arg[1].stride[ndim] = *row, loop.arg[1].stride[ndim + 1] = *col;
    loop.arg[0] = *x;
    loop.arg[0].dtype = dtype;
    loop.arg[0].stride[ndim] = cols, loop.arg[0].stride[ndim + 1] = 1;
    for (int k = ndim - 1; k >= 0; --k) {
        const bool broadcast = x->stride[k] == 0; /* once for all of them */
        loop.dim[k] = broadcast ? 1 : dim[k];
        loop.arg[0].stride[k] = broadcast ? 0 : numel;
        numel *= loop.dim[k];
    }
    loop.dim[ndim] = rows, loop.dim[ndim + 1] = cols;
    *memory = tgi_scratch(S, d, "matmul", numel, (size_t)tgi_bytes_of(dtype));
    loop.arg[0].data = *memory;
    if (!*memory || !tgi_cuda_copy(S, &loop)) return false;
    *x = loop.arg[0];
    *row = cols, *col = 1;
    return true;
}

/* The handle: f32 is f32 unless a call asks for TF32, 16-bit sums are kept in f32.  The same bits at every run, too: no
   atomics, and a workspace of its own, since what cuBLAS chooses depends on what it finds in the one that all share
   (of the size that NVIDIA recommends; setting the stream forgets it). */
static bool tgi_cublas_begin(tgi_thread *S, tgi_cuda_device *d)
{
    const int math = CUBLAS_DEFAULT_MATH | CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
    int major = 0;
    if (!TGI_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, d->index))) return false;
    const int64_t bytes = major >= 9 ? 32 << 20 : 4 << 20;
    if (!d->workspace) d->workspace = tgi_scratch(S, d, "matmul", bytes, 1);
    return d->workspace && TGI_CUBLAS(cublasCreate(&d->blas)) && TGI_CUBLAS(cublasSetStream(d->blas, d->stream)) &&
           TGI_CUBLAS(cublasSetWorkspace(d->blas, d->workspace, (size_t)bytes)) &&
           TGI_CUBLAS(cublasSetMathMode(d->blas, (cublasMath_t)math)) &&
           TGI_CUBLAS(cublasSetAtomicsMode(d->blas, CUBLAS_ATOMICS_NOT_ALLOWED));
}

static bool tgi_cublas(tgi_thread *S, tgi_cuda_device *d)
{
    if (d->blas || tgi_cublas_begin(S, d)) return true;
    if (d->blas) cublasDestroy(d->blas);
    d->blas = NULL;
    return false;
}

/* Every batch: the innermost batch dim in one call, the others by a loop here. */
static bool tgi_gemm_batches(tgi_thread *S, tgi_cuda_device *d, const tgi_gemm *g, cublasOperation_t a_operation,
                             int a_leading, cublasOperation_t b_operation, int b_leading)
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
                    d->blas, b_operation, a_operation, (int)g->n, (int)g->m, (int)g->k, one, at[2], type, b_leading,
                    batch.stride[2][inner] / size, at[1], type, a_leading, batch.stride[1][inner] / size, zero, at[0],
                    type, (int)g->n, batch.stride[0][inner] / size, (int)part, compute, CUBLAS_GEMM_DEFAULT))) {
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
    cublasOperation_t a_operation = CUBLAS_OP_N, b_operation = CUBLAS_OP_N;
    int a_leading = 1, b_leading = 1;
    void *memory[2] = {NULL, NULL};
    tgi_iter batch;
    bool ok = true;
    tgi_iter_init(&batch, g.ndim, g.dim, 3, arg, false);
    if (!d) return false;
    if (batch.numel == 0 || g.m == 0 || g.n == 0) return true;
    if (!tgi_is_floating(dtype)) {
        const int64_t a_size = tgi_bytes_of(g.a.dtype), b_size = tgi_bytes_of(g.b.dtype);
        return tgi_launch_each(S, d, tgi_gemm_plain, batch.numel * g.m * g.n, batch, g.m, g.n, g.k, g.a_row * a_size,
                               g.a_col * a_size, g.b_row * b_size, g.b_col * b_size);
    }
    if (g.k == 0) { /* sums of nothing */
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
    if (g.a.dtype != dtype || !tgi_as_column_major(g.m, g.k, g.a_row, g.a_col, &a_operation, &a_leading)) {
        ok = tgi_gemm_copy(S, d, &g.a, dtype, g.ndim, g.dim, g.m, g.k, &g.a_row, &g.a_col, &memory[0]) &&
             tgi_as_column_major(g.m, g.k, g.a_row, g.a_col, &a_operation, &a_leading);
    }
    if (ok && (g.b.dtype != dtype || !tgi_as_column_major(g.k, g.n, g.b_row, g.b_col, &b_operation, &b_leading))) {
        ok = tgi_gemm_copy(S, d, &g.b, dtype, g.ndim, g.dim, g.k, g.n, &g.b_row, &g.b_col, &memory[1]) &&
             tgi_as_column_major(g.k, g.n, g.b_row, g.b_col, &b_operation, &b_leading);
    }
    ok = ok && tgi_cublas(S, d) && tgi_gemm_batches(S, d, &g, a_operation, a_leading, b_operation, b_leading);
    for (int k = 0; k < 2; ++k) tgi_cuda_release(S, d->index, memory[k], 0);
    return ok;
}

/* ======== Random numbers ========================================================================================== */

/* One counter per thread, and the elements it makes: the CPU's words and the CPU's formulas. */
static __global__ void tgi_random_elements(tgi_random kind, tgi_operand out, int64_t n, double lo, double hi,
                                           tg_rng rng)
{
    const int per = tgi_random_per_counter(kind, out.dtype), words = 4 / per;
    const int64_t least = tgi_f64_to_i64(lo), size = tgi_size_of(out.dtype);
    const uint64_t range = (uint64_t)tgi_f64_to_i64(hi) - (uint64_t)least;
    TGI_EACH(block, (int64_t)tgi_random_counters(kind, out.dtype, n))
    {
        uint32_t word[4];
        tgi_random_block(rng, (uint64_t)block, word);
#pragma unroll
        for (int k = 0; k < 4; k += 1) {
            if (k % words) continue; /* words is 1 or 2 */
            const int64_t i = block * per + k / words;
            const uint32_t w[2] = {word[k], word[k < 3 ? k + 1 : 3]};
            char *const at = (char *)out.data + i * size;
            if (i >= n) continue;
            switch (kind) {
            case TGI_UNIFORM:
                tgi_store_as(out.dtype, at, TGI_MUL_ADD(hi - lo, tgi_random_fraction(out.dtype, w), lo));
                if (tgi_load_as<double>(out.dtype, at) >= hi) tgi_store_as(out.dtype, at, lo); /* rounded up to it */
                break;
            case TGI_NORMAL: tgi_store_as(out.dtype, at, TGI_MUL_ADD(hi, tgi_random_normal(out.dtype, w), lo)); break;
            case TGI_BERNOULLI: tgi_store_as(out.dtype, at, tgi_random_bernoulli(w, lo)); break;
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

/* The formulas of tgi_optimizer as types; p, g and the state a, b, c are one element's. */
template <class real> struct tgi_update {
    real lr, decay, eps, momentum, one_minus_dampening, alpha, beta2, one_minus_beta1, one_minus_beta2, rate,
        sqrt_bias_correction2;
};

#define TGI_UPDATE(name, suffix, type, update)                                                                     \
    struct tgi_update_##name##_##suffix {                                                                          \
        typedef type real;                                                                                         \
        __device__ static void of(const tgi_optim_step *step, const tgi_update<type> &u, real &p, real g, real &a, \
                                  real &b, real &c)                                                                \
        {                                                                                                          \
            const real lr = u.lr, decay = u.decay, eps = u.eps, momentum = u.momentum,                             \
                       one_minus_dampening = u.one_minus_dampening;                                                \
            const real alpha = u.alpha, beta2 = u.beta2, one_minus_beta1 = u.one_minus_beta1,                      \
                       one_minus_beta2 = u.one_minus_beta2, rate = u.rate;                                         \
            const real sqrt_bias_correction2 = u.sqrt_bias_correction2;                                            \
            (void)lr, (void)eps, (void)momentum, (void)one_minus_dampening, (void)alpha, (void)beta2,              \
                (void)one_minus_beta1;                                                                             \
            (void)one_minus_beta2, (void)rate, (void)sqrt_bias_correction2, (void)a, (void)b, (void)c, (void)step; \
            update                                                                                                 \
        }                                                                                                          \
    };
TGI_OPTIMIZERS(TGI_UPDATE, f32, float)
TGI_OPTIMIZERS(TGI_UPDATE, f64, double)

/* Many tensors in one launch: each is cut into pieces, a block's work each, and `first` is the number of its first. */
enum { TGI_OPTIM_TENSORS = 48, TGI_OPTIM_PIECE = 8 * TGI_BLOCK };
typedef struct {
    void *at[5]; /* p, g, and the state, NULL where there is none */
    int64_t n, first;
    bool aligned;
} tgi_optim_tensor;
typedef struct {
    tgi_optim_step step; /* what they have in common */
    int count;
    int64_t pieces;
    tgi_optim_tensor tensor[TGI_OPTIM_TENSORS];
} tgi_optim_job;

/* `width` elements from i on. */
template <class formula, int dtype, int width>
__device__ inline void tgi_optim_pack(const tgi_optim_step *step, const tgi_update<typename formula::real> &u,
                                      void *const (&at)[5], int64_t i)
{
    typedef typename formula::real real;
    typedef typename tgi_stored<dtype>::type stored;
    tgi_pack<dtype, width> x[5];
#pragma unroll
    for (int k = 0; k < 5; ++k) {
        if (at[k]) x[k] = tgi_load<tgi_pack<dtype, width>>((const stored *)at[k] + i);
    }
#pragma unroll
    for (int e = 0; e < width; ++e) {
        real value[5];
#pragma unroll
        for (int k = 0; k < 5; ++k) value[k] = at[k] ? tgi_load_as<real>((tg_dtype)dtype, &x[k].x[e]) : real();
        formula::of(step, u, value[0], value[1], value[2], value[3], value[4]);
#pragma unroll
        for (int k = 0; k < 5; ++k) tgi_store_as((tg_dtype)dtype, &x[k].x[e], value[k]);
    }
#pragma unroll
    for (int k = 0; k < 5; ++k) {
        if (at[k] && k != 1) tgi_store((stored *)at[k] + i, x[k]);
    }
}

template <class formula, int dtype>
__global__ void tgi_optim_pieces(const __grid_constant__ tgi_optim_job job, tgi_update<typename formula::real> u)
{
    constexpr int width = (int)(TGI_PACK / sizeof(typename tgi_stored<dtype>::type));
    for (int64_t piece = blockIdx.x; piece < job.pieces; piece += gridDim.x) {
        int t = 0, high = job.count - 1; /* the last tensor whose first piece is not behind this one */
        while (t < high) {
            const int half = (t + high + 1) / 2;
            if (job.tensor[half].first <= piece)
                t = half;
            else
                high = half - 1;
        }
        const int64_t start = (piece - job.tensor[t].first) * TGI_OPTIM_PIECE;
        const int64_t left = job.tensor[t].n - start, n = left < TGI_OPTIM_PIECE ? left : (int64_t)TGI_OPTIM_PIECE;
        const int64_t packed = job.tensor[t].aligned ? n / width * width : 0;
        void *at[5];
#pragma unroll
        for (int k = 0; k < 5; ++k) at[k] = job.tensor[t].at[k];
        for (int64_t i = (int64_t)threadIdx.x * width; i < packed; i += TGI_BLOCK * width)
            tgi_optim_pack<formula, dtype, width>(&job.step, u, at, start + i);
        for (int64_t i = packed + threadIdx.x; i < n; i += TGI_BLOCK)
            tgi_optim_pack<formula, dtype, 1>(&job.step, u, at, start + i);
    }
}

template <class real> static tgi_update<real> tgi_update_of(const tgi_optim_step *step)
{
    tgi_update<real> u;
    u.lr = (real)step->lr;
    u.decay = (real)step->weight_decay;
    u.eps = (real)step->eps;
    u.momentum = (real)step->momentum;
    u.one_minus_dampening = (real)(1 - step->dampening);
    u.alpha = (real)step->alpha;
    u.beta2 = (real)step->beta2;
    u.one_minus_beta1 = (real)(1 - step->beta1);
    u.one_minus_beta2 = (real)(1 - step->beta2);
    u.rate = (real)(step->lr / step->bias1);
    u.sqrt_bias_correction2 = (real)sqrt(step->bias2);
    return u;
}

template <class formula, int dtype>
static bool tgi_optim_launch(tgi_thread *S, const tgi_cuda_device *d, const tgi_optim_job *job)
{
    return tgi_launch(S, d, tgi_optim_pieces<formula, dtype>, job->pieces, TGI_BLOCK, *job,
                      tgi_update_of<typename formula::real>(&job->step));
}

static bool tgi_optim_run(tgi_thread *S, const tgi_cuda_device *d, const tgi_optim_job *job)
{
    const tg_dtype dtype = job->step.dtype;
    int kind = (int)job->step.kind; /* the rows are in the order of tgi_optimizer */
    if (job->pieces == 0) return true;
#define TGI_OPTIM_CASE_F32(name, suffix, type, update)                                            \
    if (kind-- == 0)                                                                              \
        return dtype == TG_F32    ? tgi_optim_launch<tgi_update_##name##_f32, TG_F32>(S, d, job)  \
               : dtype == TG_BF16 ? tgi_optim_launch<tgi_update_##name##_f32, TG_BF16>(S, d, job) \
                                  : tgi_optim_launch<tgi_update_##name##_f32, TG_F16>(S, d, job);
#define TGI_OPTIM_CASE_F64(name, suffix, type, update) \
    if (kind-- == 0) return tgi_optim_launch<tgi_update_##name##_f64, TG_F64>(S, d, job);
    if (dtype == TG_F64) {
        TGI_OPTIMIZERS(TGI_OPTIM_CASE_F64, f64, double)
    } else {
        TGI_OPTIMIZERS(TGI_OPTIM_CASE_F32, f32, float)
    }
    return tgi_host_api.fail(S, TG_ERR_UNSUPPORTED, "step", "no kernel of optimizer %d", (int)job->step.kind);
}

/* Whether one of the job's steps writes what this one reads or writes, or the other way round: a parameter that is
   listed twice, or a view of one. */
static bool tgi_optim_meets(const tgi_optim_job *job, const tgi_optim_step *step)
{
    const char *const mine[2] = {(const char *)step->p, (const char *)step->g};
    const int64_t size = tgi_bytes_of(step->dtype);
    for (const tgi_optim_tensor *t = job->tensor; t < job->tensor + job->count; ++t) {
        for (int k = 0; k < 3; ++k) { /* p and p, p and g, g and p */
            const char *const x = mine[k / 2], *const y = (const char *)t->at[k % 2];
            if (x < y + t->n * size && y < x + step->n * size) return true;
        }
    }
    return false;
}

static bool tgi_optim_same(const tgi_optim_step *a, const tgi_optim_step *b)
{
    return memcmp(a, b, offsetof(tgi_optim_step, index)) == 0;
}

/* All steps that differ from the first in memory alone: as many in a launch as there is room for. */
static bool tgi_optim_group(tgi_thread *S, const tgi_cuda_device *d, const tgi_optim_step *steps, int n)
{
    tgi_optim_job job;
    memcpy(&job.step, steps, sizeof *steps);
    job.count = 0;
    job.pieces = 0;
    for (const tgi_optim_step *step = steps; step < steps + n; ++step) {
        if (!tgi_optim_same(steps, step)) continue;
        if (job.count == TGI_OPTIM_TENSORS || tgi_optim_meets(&job, step)) {
            if (!tgi_optim_run(S, d, &job)) return false;
            job.count = 0;
            job.pieces = 0;
        }
        tgi_optim_tensor *const t = &job.tensor[job.count++];
        void *const at[5] = {step->p, (void *)(uintptr_t)step->g, step->s[0], step->s[1], step->s[2]};
        memcpy(t->at, at, sizeof at);
        t->n = step->n;
        t->first = job.pieces;
        t->aligned = true;
        for (int k = 0; k < 5; ++k) t->aligned = t->aligned && (uintptr_t)at[k] % TGI_PACK == 0;
        job.pieces += (step->n + TGI_OPTIM_PIECE - 1) / TGI_OPTIM_PIECE;
    }
    return tgi_optim_run(S, d, &job);
}

static bool tgi_cuda_optim_step(tgi_thread *S, const tgi_optim_step *steps, int n)
{
    const tgi_cuda_device *d = n > 0 ? tgi_device_for(S, steps[0].index) : NULL;
    if (!d) return n == 0;
    for (int i = 0; i < n; ++i) {
        bool done = false; /* with one of those before */
        for (int k = 0; k < i && !done; ++k) done = tgi_optim_same(&steps[k], &steps[i]);
        if (!done && !tgi_optim_group(S, d, steps + i, n - i)) return false;
    }
    return true;
}

/* ======== The row ================================================================================================= */

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
