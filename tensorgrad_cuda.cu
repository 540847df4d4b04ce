/* tensorgrad_cuda.cu: the CUDA backend of tensorgrad, for NVIDIA GPUs of compute capability 7.5 and newer.

       nvcc -arch=native -c tensorgrad_cuda.cu
       cc -DTG_ENABLE_CUDA main.c tensorgrad_cuda.o -lcudart -lcublas -lcublasLt -lm

   With NCCL, for tg_nccl_comm:

       nvcc -DTG_USE_NCCL -arch=native -c tensorgrad_cuda.cu
       cc -DTG_ENABLE_CUDA main.c tensorgrad_cuda.o -lnccl -lcudart -lcublas -lcublasLt -lm

   -arch=native compiles for the GPU of this machine.  On a machine without one, name the GPU that the program will run
   on: -arch=sm_80 for an A100, for example.  For an H100 it is -arch=sm_90a in any case: native leaves out the kernels
   of attention that only an H100 has.  For any other GPU the driver compiles all kernels when the program begins; for a
   newer one the program warns.  The host is Linux, or WSL 2 in Windows.

   Contents, by the tags of the rooms of tensorgrad.h whose entries stand here, in the order of TGI_BACKEND_ENTRIES:
       @@BACKEND        the runtime: streams, errors, device memory, copies, events, captured steps; the backend's row.
                        No kernel needs it: who wants to read these can skip to line 1690
       @@KERNELS        a first kernel; the numbers that were chosen, and why; what kernels share: loads and stores of
                        any dtype, packs, addresses, sums over a block
       @@ELEMENTWISE    sin and cos, the ops of the op table and their gradients
       @@WRITE          copy, fill; the sort of pairs, with sums over equal keys; accumulate, arange
       @@REDUCE         sum, prod, amax, amin, any, all
       @@SORT           rows, a block for each: argmax, cumsum, sort
       @@NORM           rows in registers, a team for each: softmax, layer_norm, rms_norm
       @@LOSS           cross_entropy, by teams, too
       @@INDEX          the check of indices, gather, scatter, the gradient of an embedding, nonzero
       @@POOL           max_pool and its backward kernel, window_sum; ctc_loss, grid_sample, and their gradients
       @@FFT            Fourier transforms: passes of one factor each, and a convolution for primes
       @@MATMUL         cuBLAS, a plain kernel for integers; linear and its gradients, by cuBLASLt
       @@ATTENTION      products by tensor cores; attention without a tensor of scores, forward and backward
       @@LAYERS         a step of an LSTM and its backward kernel
       @@CONV           im2col and col2im
       @@LINALG         factorizations of matrices, a warp for each
       @@SAMPLE         Philox, with the CPU's formulas; dropout
       @@OPTIM          many tensors in one launch: their norm, their product with a number; steps of the optimizers

   A function tgi_cuda_NAME does on a device what tgi_cpu_NAME in tensorgrad.h does on the CPU, with the same arguments;
   struct tgi_backend says what each of them must do.  Formulas and element types come from the same tables.
   Out of the order of the table: thread_end, below the memory that it returns; convolution, beside im2col.

   How threads map to elements: elementwise kernels give one pack of elements to each thread, row kernels one row to
   each block.  The size of the grid is limited, so each kernel is a loop (a grid-stride loop): a thread continues with
   the element that is one grid further, a block with the row that is one grid further.  Every kernel gives the same
   bits on every run: sums have a fixed order, and no float is added atomically.

   Words of CUDA.  A launch runs a grid of blocks; a block is up to 1024 threads, which share a memory and can wait for
   each other at a barrier; a warp is 32 of them, which execute the same instruction at a time.  A multiprocessor, of
   which an H100 has 132, runs several blocks at a time.  Memory is read and written in sectors of 32 bytes, and shared
   memory has 32 banks, of which each serves one word of 4 bytes at a time.

   Words of the kernels and their templates:
       real     the type that a kernel computes in: float, double or int64_t; tgi_computed<dtype> is the floating one,
                which is float for f32, bf16 and f16
       stored   the type of an element in memory: tgi_stored<dtype>, which is uint16_t for bf16 and f16
       accumulator   the type in which many numbers are combined: double where real is float
       word     1 to 16 bytes that are moved, and not looked at; or the type of a key and an index: 4 bytes or 8
       element  one number of a tensor
       operand  a tensor of a call; number 0 is the output
       dense    of rows: their elements lie side by side
       step     a function that a loop calls with the elements of a row that a thread has (tgi_team_walk)
       both     a number as a float and as a double (tgi_both); the kernel takes the one that is its real
       job      what the host tells a kernel: operands, sizes, how the work is divided
       item     what one turn of a kernel's loop does: an element, a pack, a row, a piece, a tile
       pack     neighbouring elements that one instruction loads or stores; width: their number, 1 where there are none
       lane     the number of a thread in its warp, 0 to 31; lanes: how many neighbouring threads work together
       team     the 8 to 512 threads that have a row in their registers; a block has one team or several
       held     the number of elements that each thread of a team has in registers: x[held]
       chunk    the elements of a row that a team holds at a time, held for each thread; a longer row has several
       place    where an element stands in its chunk
       piece    the elements of a long row or of a tensor that one block works on
       tile     a rectangle of a matrix, or a stretch of a row that is sorted, that a block works on at a time
       stage    shared memory for a tile; while one is read, the next tile is copied to another
       pair     a key and the index that it belongs to; segment: sorted pairs of which one thread adds one column up
       part     the result of one thread, or of one warp in shared memory, before it is combined with the others'
       partial  the results of pieces, segments or blocks, in device memory, which the last block or a launch combines
       scratch  device memory that a function allocates for its launches and releases behind them
       plan     who computes a product, as an algorithm that cuBLASLt has chosen, and what it was asked

   Each thread of the host has one stream per device for its work, and two for copies that run beside it.  The host
   waits only where it needs a value.  Licence: that of tensorgrad.h. */

#ifdef _WIN32
#error "tensorgrad_cuda.cu is compiled under Linux; in Windows use WSL 2"
#endif

#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#ifdef TG_USE_NCCL
#include <nccl.h>
#endif
#include <sched.h>    /* sched_yield */
#include <sys/file.h> /* flock */
#include <sys/stat.h> /* stat */
#include <time.h>     /* clock_gettime, nanosleep */

#define TGI_CUDA_COMPANION
#define TGI_INLINE __device__ static inline
#define TGI_CALLED TGI_INLINE
#define TGI_ON_BOTH __host__ __device__ static inline
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

#ifndef CUDASIM_CHECK_CALL /* defined by the simulator in tests/cudasim */
#define CUDASIM_CHECK_CALL(device) ((void)0)
#define CUDASIM_BLOCK_FREED(data, stream) ((void)0)
#define CUDASIM_BLOCK_GIVEN(data, stream) ((void)0)
#define CUDASIM_CHECK_ALIGNED(at, alignment) ((void)0)
#endif

enum { TGI_BLOCK = 256 }; /* threads in a block */
#ifndef TGI_MAX_BLOCKS
#define TGI_MAX_BLOCKS (1 << 20) /* blocks in a grid; tests of loops over more items set 2 */
#endif
enum { TGI_STAGING_BYTES = 1 << 20 };
enum { TGI_FLASH_PTX = 80 };      /* the kernels of attention need asynchronous copies, which begin with sm_80 */
#define TGI_FULL_MASK 0xffffffffu /* all lanes of a warp */

/* ======== @@BACKEND =============================================================================================== */

/* The first bad index that a kernel has found since the last report; it lies in device memory.  The next call that
   waits for the device reports it. */
typedef struct {
    unsigned long long min_position; /* the first bad index of the check that is running, or TGI_NO_POSITION */
    unsigned blocks;                 /* of that check, that have ended */
    int64_t value, position, size;   /* the index, its position among the indices, the size of the dim */
    const char *op;
    int message, axis, found;
} tgi_bad_index;
#define TGI_NO_POSITION 0xffffffffffffffffull

/* Counters of blocks for one kernel: 16 for its groups, and one for all of them. */
enum { TGI_GROUP_BLOCKS = 16, TGI_ARRIVALS = 16 + 1 };

/* Asynchronous copies need page-locked host memory: other host memory is copied through a staging buffer. */
typedef struct {
    char *data;       /* TGI_STAGING_BYTES, page-locked */
    cudaEvent_t done; /* the end of the last copy that used the buffer */
} tgi_staging;

/* What a thread owns on one device. */
typedef struct {
    bool ready;               /* the rest is initialised */
    bool index_checked;       /* an index check was launched since the last report */
    bool pass_through;        /* each block of memory is an allocation of the driver (TG_CUDA_PASS_THROUGH) */
    bool planned;             /* products are computed by plans that a file keeps (TG_CUDA_PLANS) */
    int index;                /* of the device */
    cudaStream_t stream;      /* all work */
    cudaStream_t copies[2];   /* copies that run beside the work: to the device, and from it */
    cudaEvent_t mark;         /* the work that the stream had been given when the copy stream last got a block */
    uint64_t marks;           /* how many times that was */
    unsigned peers;           /* bit i: the access to device i has been asked for */
    bool capturing;           /* into `graph`: work is captured, and not done */
    bool renumbering;         /* the optimizers' steps only give `graph` new numbers */
    struct tgi_device_graph *graph; /* NULL but for these two */
    cudaEvent_t event;        /* recorded in one stream for another one to wait for */
    cublasHandle_t blas;      /* NULL until the first matrix product */
    void *workspace;          /* of cuBLAS and cuBLASLt, likewise */
    size_t workspace_bytes;
    struct tgi_lt_plans *plans; /* of products; NULL until the first is made */
    tgi_bad_index *bad_index; /* on the device */
    tgi_bad_index *bad_copy;  /* its copy, page-locked */
    unsigned *arrived;        /* [TGI_ARRIVALS], on the device: see tgi_arrives_last */
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
    int current;         /* the device that tg_cuda_set_device chose */
    bool inside;         /* a function of the backend has asked for a device: the next two are valid */
    int active, callers; /* CUDA's current device: now, and the one that is current again when the call ends */
    unsigned contexts;   /* bit i: device i was seen to have a context */
    int watched;         /* 1 + the device of a step that is tried out, to be captured, or is captured; 0: none */
    uint64_t capturing;  /* the number of the capture that this thread has begun and not ended; 0: none */
    bool calling;        /* a function of the backend adds to it, and will return */
    bool trying;         /* a product is timed: what fails then is no error, but a fault of the device */
    cudaError_t fault;   /* the error after which no call of CUDA works any more in this process; cudaSuccess: none */
    tgi_cuda_device device[TGI_MAX_DEVICES];
    tgi_pinned *pinned;
} tgi_cuda_thread;

static TG_THREAD_LOCAL tgi_cuda_thread tgi_this_cuda;
static tgi_host tgi_host_api; /* functions of tensorgrad.h; set by tgi_cuda_backend */

/* The entries of the backend, so that each may call any other, and all stand in the order of their table. */
#define TGI_CUDA_DECLARATION(kinds, result, name, arguments) static result tgi_cuda_##name arguments;
TGI_BACKEND_ENTRIES(TGI_CUDA_DECLARATION)
#undef TGI_CUDA_DECLARATION

/* ---- one captures, others wait ----

   While a stream is captured, CUDA refuses in every thread to wait for the whole device and to allocate or free
   page-locked memory, and the capture is lost.  So one thread captures at a time, and such a call of another thread
   (TGI_ALONE) waits until it has ended.  The step that is captured may itself wait for that thread: then it makes no
   call.  After a tenth of a second without one, the thread that waits ends the capture, which is made again in a
   later run.  Every call that adds to a capture is counted here: none is running then, and none begins after it.

   The calls of two threads that do not capture do not wait for each other: `alone` counts them. */
static struct {
    char locked;
    bool active;         /* a thread captures */
    int alone, wanted;   /* calls in TGI_ALONE that run; threads that wait to capture */
    uint64_t number;     /* of the last capture */
    uint64_t calls;      /* changes when a call that adds to it begins or ends; odd while one runs */
    cudaStream_t stream; /* what it captures */
    int index;           /* of the device */
} tgi_capturing;

static void tgi_lock(char *lock)
{
    while (TGI_ATOMIC_SWAP(lock, 1)) sched_yield(); /* the thread that has it may have to wait */
}
static void tgi_unlock(char *lock) { TGI_ATOMIC_STORE(lock, 0); }

static double tgi_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Ends the capture of another thread, whose next call finds that out.  CUDA allows that, as it is a relaxed one. */
static void tgi_capturing_interrupt(void)
{
    int device = 0;
    cudaGraph_t graph = NULL;
    cudaGetDevice(&device);
    cudaSetDevice(tgi_capturing.index);
    if (cudaStreamEndCapture(tgi_capturing.stream, &graph) == cudaSuccess) cudaGraphDestroy(graph);
    cudaSetDevice(device);
    cudaGetLastError(); /* clears the runtime's own record of an error */
    tgi_capturing.active = false;
}

/* Whether the calling thread captures, and nobody has ended that. */
static bool tgi_capturing_is_mine(void)
{
    return tgi_capturing.active && tgi_capturing.number == tgi_this_cuda.capturing;
}

/* Returns with the lock, when the calling thread may capture, or be in TGI_ALONE. */
static void tgi_capturing_wait(bool to_capture)
{
    const struct timespec pause = {0, 20000}; /* a capture takes from microseconds to milliseconds */
    uint64_t calls = 0;
    double since = 0;
    for (;; nanosleep(&pause, NULL)) {
        tgi_lock(&tgi_capturing.locked);
        if (tgi_capturing_is_mine() ||
            (!tgi_capturing.active && (to_capture ? !tgi_capturing.alone : !tgi_capturing.wanted)))
            return;
        const uint64_t seen = tgi_capturing.active ? tgi_capturing.calls + 1 : 0;
        const double now = tgi_seconds();
        if (seen != calls) since = now;
        calls = seen;
        if (seen % 2 && now - since > 0.1) tgi_capturing_interrupt();
        tgi_unlock(&tgi_capturing.locked);
    }
}

static void tgi_alone_begin(void)
{
    tgi_capturing_wait(false);
    tgi_capturing.alone++;
    tgi_unlock(&tgi_capturing.locked);
}
template <class type> static type tgi_alone_end(type status)
{
    tgi_lock(&tgi_capturing.locked);
    tgi_capturing.alone--;
    tgi_unlock(&tgi_capturing.locked);
    return status;
}
#define TGI_ALONE(call) (tgi_alone_begin(), tgi_alone_end(call))

/* Around each call that adds to the calling thread's capture; false if another thread has ended that. */
static bool tgi_capturing_enter(void)
{
    tgi_lock(&tgi_capturing.locked);
    const bool mine = tgi_capturing_is_mine();
    if (mine && !tgi_this_cuda.calling) tgi_capturing.calls++;
    tgi_this_cuda.calling = mine;
    tgi_unlock(&tgi_capturing.locked);
    return mine;
}
static void tgi_capturing_leave(void)
{
    tgi_lock(&tgi_capturing.locked);
    tgi_capturing.calls++;
    tgi_this_cuda.calling = false;
    tgi_unlock(&tgi_capturing.locked);
}

static void tgi_capturing_begin(int index, cudaStream_t stream)
{
    tgi_lock(&tgi_capturing.locked);
    tgi_capturing.wanted++;
    tgi_unlock(&tgi_capturing.locked);
    tgi_capturing_wait(true);
    tgi_capturing.wanted--;
    tgi_capturing.active = true;
    tgi_capturing.calls += 1 + tgi_capturing.calls % 2;
    tgi_capturing.stream = stream;
    tgi_capturing.index = index;
    tgi_this_cuda.capturing = ++tgi_capturing.number;
    tgi_this_cuda.calling = true;
    tgi_unlock(&tgi_capturing.locked);
}
static void tgi_capturing_end(void)
{
    tgi_lock(&tgi_capturing.locked);
    if (tgi_capturing_is_mine()) tgi_capturing.active = false;
    tgi_this_cuda.capturing = 0;
    tgi_this_cuda.calling = false;
    tgi_unlock(&tgi_capturing.locked);
}

/* ---- errors ---- */

/* Each call of CUDA and cuBLAS stands in one of these.  They return false after recording an error that names the call,
   the file and the line.  After a fault of the device, which is the error of every later call, they record nothing. */
#define TGI_CUDA(call) tgi_cuda_ok(S, call, #call, __LINE__)
#define TGI_CUDA_ALONE(call) tgi_cuda_ok(S, TGI_ALONE(call), #call, __LINE__)
#define TGI_CUBLAS(call) tgi_cublas_ok(S, call, #call, __LINE__)
#define TGI_CUBLAS_ALONE(call) tgi_cublas_ok(S, TGI_ALONE(call), #call, __LINE__)

/* Whether the error ends all use of CUDA in this process: a kernel has failed while it ran. */
static bool tgi_is_fault(cudaError_t status)
{
    enum { NVLINK = 220, CONTAINED = 226, TENSOR_MEMORY = 721, MPS_CLIENT_ENDED = 810 }; /* not in every toolkit */
    switch ((int)status) {
    case NVLINK:
    case CONTAINED:
    case TENSOR_MEMORY:
    case MPS_CLIENT_ENDED:
    case cudaErrorUnknown:
    case cudaErrorECCUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure: return true;
    default: return false;
    }
}

static bool tgi_cuda_ok(tgi_thread *S, cudaError_t status, const char *call, int line)
{
    if (status == cudaSuccess) return true;
    cudaGetLastError(); /* clears the runtime's own record of the error */
    if (tgi_this_cuda.fault) return false;
    const tg_status code = status == cudaErrorMemoryAllocation ? TG_ERR_MEMORY : TG_ERR_CUDA;
    const bool fault = tgi_is_fault(status);
    if (tgi_this_cuda.trying && !fault) return false;
    enum { NO_KERNEL_IMAGE = 209 };
    const char *what_now = fault                            ? "; no GPU can be used any more in this process"
                           : (int)status == NO_KERNEL_IMAGE ? "; compile tensorgrad_cuda.cu for this GPU: -arch=native"
                                                            : "";
    if (fault) tgi_this_cuda.fault = status;
    return tgi_host_api.fail(S, code, "cuda", "CUDA error: %s\nin %s, tensorgrad_cuda.cu:%d%s",
                             cudaGetErrorString(status), call, line, what_now);
}

/* The error of a call after a fault; false, always.  It need not be said twice. */
static bool tgi_fail_after_fault(tgi_thread *S)
{
    return !tgi_host_api.fails_again(S) &&
           tgi_host_api.fail(S, TG_ERR_CUDA, "cuda", "no GPU can be used any more in this process, since an error: %s",
                             cudaGetErrorString(tgi_this_cuda.fault));
}

static bool tgi_cublas_ok(tgi_thread *S, cublasStatus_t status, const char *call, int line)
{
    if (status == CUBLAS_STATUS_SUCCESS) return true;
    cudaGetLastError();
    if (tgi_this_cuda.fault || tgi_this_cuda.trying) return false;
    return tgi_host_api.fail(S, TG_ERR_CUDA, "cuda", "cuBLAS error: %s\nin %s, tensorgrad_cuda.cu:%d",
                             cublasGetStatusString(status), call, line);
}

/* Launches a kernel on the device's stream, with this many blocks (TGI_MAX_BLOCKS at most) of `threads` threads, each
   with so many bytes of dynamic shared memory.  The arguments are converted to the kernel's parameter types. */
template <class... P, class... A>
static bool tgi_launch_shared(tgi_thread *S, const tgi_cuda_device *d, void (*kernel)(P...), int64_t blocks,
                              int threads, size_t bytes, const A &...args)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)tgi_at_most(blocks, TGI_MAX_BLOCKS));
    config.blockDim = dim3((unsigned)threads);
    config.dynamicSmemBytes = bytes;
    config.stream = d->stream;
    return TGI_CUDA(cudaLaunchKernelEx(&config, kernel, P(args)...));
}

template <class... P, class... A>
static bool tgi_launch(tgi_thread *S, const tgi_cuda_device *d, void (*kernel)(P...), int64_t blocks, int threads,
                       const A &...args)
{
    return tgi_launch_shared(S, d, kernel, blocks, threads, 0, args...);
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

static void tgi_lt_free_plans(tgi_thread *S, tgi_cuda_device *d);

/* Initialises all of d except cuBLAS.  After a failure tgi_device_end releases what there is. */
static bool tgi_device_begin(tgi_thread *S, tgi_cuda_device *d)
{
    const char *pass_through = getenv("TG_CUDA_PASS_THROUGH"), *plans = getenv("TG_CUDA_PLANS");
    d->pass_through = pass_through && *pass_through && strcmp(pass_through, "0") != 0;
    d->planned = plans && *plans;
    if (!TGI_CUDA(cudaStreamCreateWithFlags(&d->stream, cudaStreamNonBlocking)) ||
        !TGI_CUDA(cudaStreamCreateWithFlags(&d->copies[0], cudaStreamNonBlocking)) ||
        !TGI_CUDA(cudaStreamCreateWithFlags(&d->copies[1], cudaStreamNonBlocking)) ||
        !TGI_CUDA(cudaEventCreateWithFlags(&d->mark, cudaEventDisableTiming)) ||
        !TGI_CUDA(cudaEventCreateWithFlags(&d->event, cudaEventDisableTiming))) {
        return false;
    }
    for (int k = 0; k < 2; ++k) {
        if (!TGI_CUDA_ALONE(cudaHostAlloc((void **)&d->staging[k].data, TGI_STAGING_BYTES, cudaHostAllocDefault)) ||
            !TGI_CUDA(cudaEventCreateWithFlags(&d->staging[k].done, cudaEventDisableTiming))) {
            return false;
        }
    }
    return TGI_CUDA_ALONE(cudaHostAlloc((void **)&d->bad_copy, sizeof *d->bad_copy, cudaHostAllocDefault)) &&
           TGI_CUDA_ALONE(cudaMalloc((void **)&d->bad_index, sizeof *d->bad_index)) &&
           TGI_CUDA_ALONE(cudaMalloc((void **)&d->arrived, sizeof *d->arrived * TGI_ARRIVALS)) &&
           TGI_CUDA(cudaMemsetAsync(d->arrived, 0, sizeof *d->arrived * TGI_ARRIVALS, d->stream)) &&
           tgi_clear_bad_index(S, d);
}

static void tgi_device_end(tgi_thread *S, tgi_cuda_device *d)
{
    tgi_lt_free_plans(S, d);
    if (d->blas) TGI_CUBLAS_ALONE(cublasDestroy(d->blas));
    TGI_CUDA_ALONE(cudaFree(d->bad_index));
    TGI_CUDA_ALONE(cudaFree(d->arrived));
    TGI_CUDA_ALONE(cudaFreeHost(d->bad_copy));
    for (int k = 0; k < 2; ++k) {
        TGI_CUDA_ALONE(cudaFreeHost(d->staging[k].data));
        if (d->staging[k].done) TGI_CUDA(cudaEventDestroy(d->staging[k].done));
    }
    if (d->event) TGI_CUDA(cudaEventDestroy(d->event));
    if (d->mark) TGI_CUDA(cudaEventDestroy(d->mark));
    for (int k = 0; k < 2; ++k) {
        if (d->copies[k]) TGI_CUDA(cudaStreamDestroy(d->copies[k]));
    }
    if (d->stream) TGI_CUDA(cudaStreamDestroy(d->stream));
    memset(d, 0, sizeof *d);
}

/* Whether the device has a context.  The runtime has no function that tells, but can find that of the driver. */
static bool tgi_has_context(tgi_cuda_thread *t, int index)
{
    int active = 1;
#if CUDART_VERSION >= 12000
    typedef int (*query_fn)(int device, unsigned *flags, int *active); /* 0: success */
    const char *const name = "cuDevicePrimaryCtxGetState";
    void *query = NULL;
    unsigned flags;
    if (t->contexts >> index & 1) return true;
#if CUDART_VERSION >= 12050
    const cudaError_t status = cudaGetDriverEntryPointByVersion(name, &query, 7000, cudaEnableDefault);
#else
    const cudaError_t status = cudaGetDriverEntryPoint(name, &query, cudaEnableDefault);
#endif
    if (status != cudaSuccess) cudaGetLastError(); /* clears the runtime's own record of the error */
    else if (query && ((query_fn)query)(index, &flags, &active) != 0) active = 1;
#endif
    if (active) t->contexts |= 1u << index;
    return active != 0;
}

static const char tgi_interrupted[] = "the step is not captured, because another thread used the GPU meanwhile";

/* Makes the device current until the function of the backend that is running returns (tgi_leave).  The program may use
   CUDA itself: its own current device must be the same after a call of the library as before.  Not so one without a
   context, that is device 0 in a program that has not chosen any: since CUDA 12 cudaSetDevice makes a context, which
   takes hundreds of megabytes of a device that nobody uses. */
static bool tgi_enter(tgi_thread *S, int index)
{
    tgi_cuda_thread *t = &tgi_this_cuda;
    if (t->fault) return tgi_fail_after_fault(S);
    if (!t->inside) {
        if (!TGI_CUDA(cudaGetDevice(&t->callers))) return false;
        t->active = t->callers;
        t->inside = true;
        if (t->callers != index && !tgi_has_context(t, t->callers)) t->callers = index;
    }
    if (t->capturing && !tgi_capturing_enter())
        return !tgi_host_api.fails_again(S) && tgi_host_api.fail(S, TG_ERR_GRAPH, "capture_run", "%s", tgi_interrupted);
    if (t->active == index) return true;
    if (!TGI_CUDA(cudaSetDevice(index))) return false;
    t->active = index;
    return true;
}

static void tgi_leave(void)
{
    tgi_cuda_thread *t = &tgi_this_cuda;
    const bool changed = t->inside && t->active != t->callers;
    const bool restored = !changed || cudaSetDevice(t->callers) == cudaSuccess;
    if (!restored) cudaGetLastError();
    CUDASIM_CHECK_CALL(t->inside && restored ? t->callers : -1);
    t->inside = false;
    if (t->calling) tgi_capturing_leave();
}

static __global__ void tgi_store_element(void *to, uint64_t bits, int64_t size);

/* Warns once in a process if the kernels were compiled for an older generation of GPUs: then the driver has compiled
   them anew, from their PTX, and attention has no kernels where that cannot copy asynchronously. */
static void tgi_warn_of_old_kernels(tgi_thread *S, int index)
{
    static char warned;
    int major = 0, minor = 0;
    char text[512];
    cudaFuncAttributes found;
    if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, index) != cudaSuccess ||
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, index) != cudaSuccess ||
        cudaFuncGetAttributes(&found, tgi_store_element) != cudaSuccess) {
        cudaGetLastError(); /* what cannot be asked is no error: the first kernel will have it, too */
        return;
    }
    const int compiled = found.ptxVersion < found.binaryVersion ? found.ptxVersion : found.binaryVersion;
    if (compiled / 10 >= major || TGI_ATOMIC_SWAP(&warned, 1)) return;
    snprintf(text, sizeof text,
             "warning: tensorgrad_cuda.cu was compiled for GPUs of compute capability %d.%d, and cuda:%d has %d.%d: "
             "the driver compiles all kernels when the program begins%s\n"
             "  hint: compile it with -arch=sm_%d%d, or with -arch=native on a machine that has this GPU",
             compiled / 10, compiled % 10, index, major, minor,
             found.ptxVersion < TGI_FLASH_PTX ? ", and attention runs without its own, fast ones" : "", major, minor);
    tgi_host_api.warn(S, text);
}

/* Makes the device current and returns what the calling thread owns on it, initialised at the first call; NULL after
   recording an error. */
static tgi_cuda_device *tgi_device_for(tgi_thread *S, int index)
{
    tgi_cuda_device *d = &tgi_this_cuda.device[index];
    if (!tgi_enter(S, index)) return NULL;
    if (tgi_this_cuda.watched && tgi_this_cuda.watched != index + 1 && !tgi_host_api.obstacle(S, "uses another GPU"))
        return NULL;
    if (d->ready) return d;
    d->index = index;
    d->ready = tgi_device_begin(S, d);
    if (d->ready) {
        tgi_warn_of_old_kernels(S, index);
        return tgi_enter(S, index) ? d : NULL; /* the program's handler may have used other devices */
    }
    tgi_device_end(S, d);
    return NULL;
}

/* Asks for the first bad index, if an index check was launched since the last report; the work that follows in the
   stream, and is waited for, brings it to bad_copy. */
static bool tgi_ask_for_bad_index(tgi_thread *S, const tgi_cuda_device *d)
{
    return !d->index_checked ||
           TGI_CUDA(cudaMemcpyAsync(d->bad_copy, d->bad_index, sizeof *d->bad_copy, cudaMemcpyDeviceToHost, d->stream));
}

/* Records an error and returns false if a kernel has found a bad index since the last report.  tgi_ask_for_bad_index
   was called, and then the stream waited for. */
static bool tgi_report_bad_index(tgi_thread *S, tgi_cuda_device *d, const char *later)
{
    if (!d->index_checked) return true;
    d->index_checked = false;
    const tgi_bad_index bad = *d->bad_copy;
    if (!bad.found) return true;
    if (!tgi_clear_bad_index(S, d)) return false;
    return tgi_host_api.fail_later(
        S, TG_ERR_ARGUMENT, bad.op,
        tgi_text_of_bad_index((tgi_index_message)bad.message, bad.value, bad.position, bad.axis, bad.size, later).text);
}

/* Called before what cannot be captured.  False after recording an error, while a step is captured. */
static bool tgi_may_wait(tgi_thread *S)
{
    return !tgi_this_cuda.watched || tgi_host_api.obstacle(S, "waits for the GPU");
}
static bool tgi_may_copy(tgi_thread *S)
{
    return !tgi_this_cuda.watched ||
           tgi_host_api.obstacle(S, "copies from or to another device; copy into a tensor that stays, before the run");
}

/* Waits for the thread's stream, and reports a bad index that was found there. */
static bool tgi_stream_sync(tgi_thread *S, tgi_cuda_device *d)
{
    if (!tgi_may_wait(S)) return false;
    tgi_host_api.count_wait(S, TG_DEV_CUDA, d->index);
    return tgi_ask_for_bad_index(S, d) && TGI_CUDA(cudaStreamSynchronize(d->stream)) &&
           tgi_report_bad_index(S, d, " (detected later)");
}

/* Further work of `stream` starts after the work that d's stream has been given so far; the host does not wait. */
static bool tgi_stream_wait(tgi_thread *S, cudaStream_t stream, const tgi_cuda_device *d)
{
    return tgi_enter(S, d->index) && TGI_CUDA(cudaEventRecord(d->event, d->stream)) &&
           TGI_CUDA(cudaStreamWaitEvent(stream, d->event, 0));
}

/* Frees page-locked memory after the event, or at once if it is NULL. */
static void tgi_pinned_destroy(tgi_thread *S, void *data, cudaEvent_t event)
{
    if (event) TGI_CUDA(cudaEventSynchronize(event));
    if (event) TGI_CUDA(cudaEventDestroy(event));
    TGI_CUDA_ALONE(cudaFreeHost(data));
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
    if (tgi_this_cuda.fault) return tgi_fail_after_fault(S);
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
    if (!tgi_enter(S, index)) return false;
    tgi_this_cuda.current = tgi_this_cuda.callers = index; /* it stays CUDA's current device after the call */
    return true;
}

/* ---- device memory ----

   A block that is freed is kept and given out again: the driver takes microseconds for each allocation.  A stream does
   its work in order.  So a block that a thread frees may at once be given out again to the same thread: what its stream
   is asked to do with the block later runs after what it was asked before.  Blocks that other threads have freed are
   not touched, except to return them to the driver when there is no other memory left; then the device is idle.

   Sizes are rounded up to one of a few classes, so that a block that is kept fits many requests.  With the environment
   variable TG_CUDA_PASS_THROUGH=1 nothing is kept: each block is an allocation of the driver, so that a tool such as
   compute-sanitizer finds every access to a freed block, and beyond the end of one. */
struct tgi_device_graph; /* see captured steps */
typedef struct tgi_device_block {
    struct tgi_device_block *next;
    void *data;
    size_t bytes;
    int index, size_class;
    cudaStream_t stream; /* of the thread that has freed it; NULL: that thread has no stream here */
    struct tgi_device_graph *graph; /* the captured step that uses it: nothing else may, until that is freed; or NULL */
    uint64_t freed_at;   /* the `marks` of that stream then */
} tgi_device_block;

enum { TGI_BLOCK_STEP = 9, TGI_LAST_BLOCK_STEP = 48, TGI_CHAINS = 4096 };
enum { TGI_BLOCK_CLASSES = 8 * (TGI_LAST_BLOCK_STEP - TGI_BLOCK_STEP) + 16 };
static struct {
    char locked;
    int64_t kept_bytes[TGI_MAX_DEVICES];
    tgi_device_block *kept[TGI_MAX_DEVICES][TGI_BLOCK_CLASSES]; /* free ones by size, the last one freed first */
    tgi_device_block *used[TGI_CHAINS];                         /* the others, by their address */
} tgi_device_blocks; /* of all threads */

static void tgi_lock_blocks(void) { tgi_lock(&tgi_device_blocks.locked); }
static void tgi_unlock_blocks(void) { tgi_unlock(&tgi_device_blocks.locked); }

/* Rounds a size up: to a multiple of 512 bytes up to 8 KiB, then eight steps to the doubling, so that a block is at
   most an eighth longer than needed.  Returns the class, or -1 for more than any memory. */
static int tgi_block_class(size_t *bytes)
{
    int step = TGI_BLOCK_STEP; /* log2 of the difference between sizes */
    while (step < TGI_LAST_BLOCK_STEP && *bytes > (size_t)16 << step) ++step;
    const size_t steps = *bytes ? ((*bytes - 1) >> step) + 1 : 1;
    if (steps > 16) return -1;
    *bytes = steps << step;
    return 8 * (step - TGI_BLOCK_STEP) + (int)steps - 1;
}

static tgi_device_block **tgi_chain_of(const void *data)
{
    return &tgi_device_blocks.used[(uintptr_t)data / 512 % TGI_CHAINS];
}

static void tgi_use_block(tgi_device_block *block)
{
    tgi_lock_blocks();
    tgi_device_block **chain = tgi_chain_of(block->data);
    block->next = *chain;
    *chain = block;
    tgi_unlock_blocks();
}

/* Takes the block that begins at this address out of the used ones; NULL if there is none (TG_CUDA_PASS_THROUGH). */
static tgi_device_block *tgi_unuse_block(const void *data)
{
    tgi_lock_blocks();
    tgi_device_block **at = tgi_chain_of(data);
    while (*at && (*at)->data != data) at = &(*at)->next;
    tgi_device_block *block = *at;
    if (block) *at = block->next;
    tgi_unlock_blocks();
    return block;
}

/* Keeps a block that this thread has freed, until its stream needs one.  d: NULL if the thread has no stream. */
static void tgi_keep_block(const tgi_cuda_device *d, tgi_device_block *block)
{
    block->stream = d ? d->stream : NULL;
    if (d && d->capturing) block->graph = d->graph;
    if (d) CUDASIM_BLOCK_FREED(block->data, d->stream);
    block->freed_at = d ? d->marks : 0;
    tgi_lock_blocks();
    tgi_device_block **list = &tgi_device_blocks.kept[block->index][block->size_class];
    block->next = *list;
    *list = block;
    tgi_device_blocks.kept_bytes[block->index] += (int64_t)block->bytes;
    tgi_unlock_blocks();
}

/* Takes out a kept block of the class that d's stream has freed, and before d->marks was `before`; NULL if there is
   none.  A step that is captured gets only blocks of its own. */
static tgi_device_block *tgi_kept_block(const tgi_cuda_device *d, int size_class, uint64_t before)
{
    const tgi_device_graph *const graph = d->capturing ? d->graph : NULL;
    tgi_lock_blocks();
    tgi_device_block **at = &tgi_device_blocks.kept[d->index][size_class];
    while (*at && ((*at)->stream != d->stream || (*at)->graph != graph || (*at)->freed_at >= before))
        at = &(*at)->next;
    tgi_device_block *block = *at;
    if (block) {
        *at = block->next;
        tgi_device_blocks.kept_bytes[d->index] -= (int64_t)block->bytes;
    }
    tgi_unlock_blocks();
    return block;
}

/* Returns kept blocks to the driver, after all work of the device is done: all that no captured step uses, or those of
   one stream. */
static bool tgi_return_blocks(tgi_thread *S, int index, bool all, cudaStream_t stream)
{
    tgi_device_block *returned = NULL;
    tgi_lock_blocks();
    for (int k = 0; k < TGI_BLOCK_CLASSES; ++k) {
        for (tgi_device_block **at = &tgi_device_blocks.kept[index][k]; *at;) {
            tgi_device_block *block = *at;
            if (all ? block->graph != NULL : block->stream && block->stream != stream) {
                at = &block->next;
                continue;
            }
            *at = block->next;
            block->next = returned;
            returned = block;
            tgi_device_blocks.kept_bytes[index] -= (int64_t)block->bytes;
        }
    }
    tgi_unlock_blocks();
    bool ok = !tgi_this_cuda.fault && tgi_enter(S, index) && TGI_CUDA_ALONE(cudaDeviceSynchronize());
    while (returned) {
        tgi_device_block *block = returned;
        returned = block->next;
        ok = TGI_CUDA_ALONE(cudaFree(block->data)) && ok;
        tgi_host_api.give_back(S, block, sizeof *block);
    }
    return ok;
}

/* Asks the driver for memory and, if the device has none left, once more after all kept blocks are returned. */
static cudaError_t tgi_ask_driver(tgi_thread *S, const tgi_cuda_device *d, cudaStream_t stream, void **data,
                                  size_t bytes)
{
    for (bool again = false;; again = true) {
        const cudaError_t status =
            d->pass_through ? cudaMallocAsync(data, bytes, stream) : TGI_ALONE(cudaMalloc(data, bytes));
        if (status == cudaSuccess) return status;
        if (status != cudaErrorMemoryAllocation) {
            tgi_cuda_ok(S, status, d->pass_through ? "cudaMallocAsync" : "cudaMalloc", __LINE__);
            return status;
        }
        cudaGetLastError(); /* clears the runtime's own record of the error */
        if (again || d->graph || !tgi_return_blocks(S, d->index, true, NULL)) return status;
    }
}

/* A new block from the driver; NULL, without recording an error, if the device has no memory left. */
static tgi_device_block *tgi_new_block(tgi_thread *S, const tgi_cuda_device *d, size_t bytes, int size_class)
{
    tgi_device_block *block = (tgi_device_block *)tgi_host_api.take(S, sizeof *block);
    if (!block) return NULL;
    memset(block, 0, sizeof *block);
    block->index = d->index;
    block->bytes = bytes;
    block->size_class = size_class;
    block->graph = d->capturing ? d->graph : NULL;
    if (tgi_ask_driver(S, d, d->stream, &block->data, bytes) == cudaSuccess) return block;
    tgi_host_api.give_back(S, block, sizeof *block);
    return NULL;
}

/* A block for the stream that copies to the device, which overtakes the work: it must not wait for work that was asked
   for after the block was last used.  So it gets one that was freed before the last call of this function, and waits
   for the work up to that call. */
static tgi_device_block *tgi_block_for_copy(tgi_thread *S, tgi_cuda_device *d, int size_class)
{
    tgi_device_block *block = tgi_kept_block(d, size_class, d->marks);
    if ((block && !TGI_CUDA(cudaStreamWaitEvent(d->copies[0], d->mark, 0))) ||
        !TGI_CUDA(cudaEventRecord(d->mark, d->stream))) {
        if (block) tgi_keep_block(d, block);
        return NULL;
    }
    d->marks++;
    return block;
}

/* Returns NULL without recording an error if there is no memory left. */
static void *tgi_cuda_alloc(tgi_thread *S, int index, size_t bytes, bool for_copy_stream)
{
    tgi_cuda_device *d = tgi_device_for(S, index);
    void *data = NULL;
    if (!d) return NULL;
    if (d->pass_through) {
        const cudaStream_t stream = for_copy_stream ? d->copies[0] : d->stream;
        return tgi_ask_driver(S, d, stream, &data, bytes ? bytes : 1) == cudaSuccess ? data : NULL;
    }
    const int size_class = tgi_block_class(&bytes);
    if (size_class < 0) return NULL;
    tgi_device_block *block =
        for_copy_stream ? tgi_block_for_copy(S, d, size_class) : tgi_kept_block(d, size_class, UINT64_MAX);
    if (block && d->capturing == (d->graph != NULL)) /* else it is no part of the captured work */
        CUDASIM_BLOCK_GIVEN(block->data, for_copy_stream ? d->copies[0] : d->stream);
    if (!block) block = tgi_new_block(S, d, bytes, size_class);
    if (!block) return NULL;
    tgi_use_block(block);
    return block->data;
}

/* The work that the stream has been given may still use the block.  Does not make the device current: each call less is
   one less that can fail and so leak the memory. */
static void tgi_cuda_release(tgi_thread *S, int index, void *data, size_t bytes)
{
    tgi_cuda_device *d = &tgi_this_cuda.device[index];
    (void)bytes;
    if (!data) return;
    if (!d->ready) d = tgi_device_for(S, index);
    tgi_device_block *block = tgi_unuse_block(data);
    if (block) tgi_keep_block(d, block);
    else if (d) TGI_CUDA(cudaFreeAsync(data, d->stream));
}

static int64_t tgi_cuda_cached(tgi_thread *S, int index)
{
    (void)S;
    tgi_lock_blocks();
    const int64_t bytes = tgi_device_blocks.kept_bytes[index];
    tgi_unlock_blocks();
    return bytes;
}

static bool tgi_cuda_trim(tgi_thread *S, int index)
{
    return tgi_may_wait(S) && tgi_return_blocks(S, index, true, NULL);
}

/* Scratch memory for a kernel, [count] of `size` bytes; NULL after recording an error.  The caller releases it once it
   has launched the kernel. */
static void *tgi_scratch_alloc(tgi_thread *S, tgi_cuda_device *d, const char *op, int64_t count, size_t size)
{
    const size_t bytes = (size_t)count * size;
    void *data = (size_t)count > SIZE_MAX / size ? NULL : tgi_cuda_alloc(S, d->index, bytes, false);
    if (!data && !tgi_this_cuda.fault && !tgi_this_cuda.trying) {
        tgi_host_api.no_memory(S, op, TG_DEV_CUDA, d->index, (double)count * (double)size,
                               tgi_cuda_cached(S, d->index));
    }
    return data;
}

static bool tgi_copies_sync(tgi_thread *S, const tgi_cuda_device *d)
{
    return TGI_CUDA(cudaStreamSynchronize(d->copies[0])) && TGI_CUDA(cudaStreamSynchronize(d->copies[1]));
}

static void tgi_cuda_thread_end(tgi_thread *S)
{
    for (int index = 0; index < TGI_MAX_DEVICES; ++index) {
        tgi_cuda_device *d = &tgi_this_cuda.device[index];
        if (!d->ready) continue;
        if (!tgi_this_cuda.fault && tgi_enter(S, index)) tgi_stream_sync(S, d) && tgi_copies_sync(S, d);
        tgi_cuda_release(S, index, d->workspace, 0);
        tgi_return_blocks(S, index, false, d->stream);
        tgi_device_end(S, d);
    }
    while (tgi_this_cuda.pinned) {
        tgi_pinned *p = tgi_this_cuda.pinned;
        tgi_this_cuda.pinned = p->next;
        tgi_pinned_destroy(S, p->data, p->event);
        tgi_host_api.give_back(S, p, sizeof *p);
    }
    tgi_this_cuda.current = 0;
    tgi_this_cuda.contexts = 0;
    tgi_this_cuda.fault = cudaSuccess; /* if there was one, the next call of CUDA finds it again */
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
    if (!d || !tgi_may_copy(S)) return false;
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
    if (!d || !tgi_may_wait(S)) return false;
    for (size_t k = 0; k <= parts && parts > 0; ++k) { /* starts the copy of part k, then finishes part k - 1 */
        if (k < parts) {
            const tgi_staging *s = &d->staging[k % 2];
            const size_t offset = k * TGI_STAGING_BYTES, left = bytes - offset;
            const size_t size = left < TGI_STAGING_BYTES ? left : (size_t)TGI_STAGING_BYTES;
            if (!TGI_CUDA(
                    cudaMemcpyAsync(s->data, (const char *)src + offset, size, cudaMemcpyDeviceToHost, d->stream)) ||
                (k + 1 == parts && !tgi_ask_for_bad_index(S, d)) || !TGI_CUDA(cudaEventRecord(s->done, d->stream))) {
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
    return parts == 0 || tgi_report_bad_index(S, d, " (detected later)");
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

/* Lets d access the other device's memory, at the first copy between the two: else the driver copies by way of the
   host.  No error if they cannot. */
static bool tgi_enable_peer(tgi_thread *S, tgi_cuda_device *d, int other)
{
    int possible = 0;
    if (d->peers >> other & 1) return true;
    if (!tgi_enter(S, d->index) || !TGI_CUDA(cudaDeviceCanAccessPeer(&possible, d->index, other))) return false;
    const cudaError_t status = possible ? TGI_ALONE(cudaDeviceEnablePeerAccess(other, 0)) : cudaSuccess;
    if (status == cudaErrorPeerAccessAlreadyEnabled) cudaGetLastError(); /* by another thread, or by the program */
    else if (!tgi_cuda_ok(S, status, "cudaDeviceEnablePeerAccess", __LINE__)) return false;
    d->peers |= 1u << other;
    return true;
}

/* The copy runs on the source's stream, after the target's work so far (which may still use dst); the target's further
   work waits for it. */
static bool tgi_cuda_peer_copy(tgi_thread *S, int to, void *dst, int from, const void *src, size_t bytes)
{
    tgi_cuda_device *target = tgi_device_for(S, to), *source = target ? tgi_device_for(S, from) : NULL;
    if (!source || !tgi_may_copy(S) || !tgi_enable_peer(S, source, to) || !tgi_stream_wait(S, source->stream, target) ||
        !tgi_enter(S, from) ||
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
    return d && tgi_stream_sync(S, d) && tgi_copies_sync(S, d);
}

static bool tgi_cuda_device_sync(tgi_thread *S, int index)
{
    tgi_cuda_device *d = tgi_device_for(S, index);
    if (!d || !tgi_may_wait(S)) return false;
    tgi_host_api.count_wait(S, TG_DEV_CUDA, index);
    return TGI_CUDA_ALONE(cudaDeviceSynchronize());
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
    int index = 0; /* any device will do; one that is in use needs no new context */
    while (index < TGI_MAX_DEVICES && !tgi_this_cuda.device[index].ready) ++index;
    if (!tgi_device_for(S, index < TGI_MAX_DEVICES ? index : tgi_this_cuda.current)) return NULL;
    for (tgi_pinned **at = &tgi_this_cuda.pinned; *at; at = &(*at)->next) {
        tgi_pinned *p = *at;
        if (p->bytes != size) continue;
        if (p->event && cudaEventQuery(p->event) != cudaSuccess) {
            cudaGetLastError(); /* not ready is no error */
            continue;
        }
        if (p->event) TGI_CUDA(cudaEventDestroy(p->event));
        data = p->data;
        *at = p->next;
        tgi_host_api.give_back(S, p, sizeof *p);
        return data;
    }
    if (tgi_this_cuda.capturing && !tgi_host_api.obstacle(S, "allocates page-locked memory")) return NULL;
    const cudaError_t status = TGI_ALONE(cudaHostAlloc(&data, size, cudaHostAllocPortable));
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
    return d && tgi_may_copy(S) &&
           TGI_CUDA(cudaMemcpyAsync(dst, host, bytes, cudaMemcpyHostToDevice, d->copies[0]));
}

static bool tgi_cuda_start_download(tgi_thread *S, int index, void *host, const void *src, size_t bytes)
{
    const tgi_cuda_device *d = tgi_device_for(S, index);
    return d && tgi_may_copy(S) && tgi_stream_wait(S, d->copies[1], d) &&
           TGI_CUDA(cudaMemcpyAsync(host, src, bytes, cudaMemcpyDeviceToHost, d->copies[1]));
}

/* ---- events ---- */

static bool tgi_cuda_event_record(tgi_thread *S, int index, tgi_stream_of stream, void **event)
{
    const tgi_cuda_device *d = tgi_device_for(S, index);
    cudaEvent_t made;
    if (!d || !tgi_may_copy(S) ||
        !TGI_CUDA(cudaEventCreateWithFlags(&made, cudaEventDisableTiming))) {
        return false;
    }
    *event = made;
    const cudaStream_t recorded = stream == TGI_OF_WORK ? d->stream : d->copies[stream == TGI_OF_DOWNLOADS];
    if (TGI_CUDA(cudaEventRecord(made, recorded))) return true;
    cudaEventDestroy(made);
    return false;
}

static bool tgi_cuda_event_wait(tgi_thread *S, int index, void *event)
{
    const tgi_cuda_device *d = tgi_device_for(S, index);
    return d && tgi_may_copy(S) &&
           TGI_CUDA(cudaStreamWaitEvent(d->stream, (cudaEvent_t)event, 0));
}

static bool tgi_cuda_event_sync(tgi_thread *S, int index, void *event)
{
    tgi_cuda_device *d = tgi_device_for(S, index);
    return d && tgi_wait_event(S, d, (cudaEvent_t)event) && (!d->index_checked || tgi_stream_sync(S, d));
}

static void tgi_cuda_event_destroy(tgi_thread *S, void *event) { TGI_CUDA(cudaEventDestroy((cudaEvent_t)event)); }

/* ---- captured steps ----

   A step of training is captured as a graph of CUDA, and launched as a whole: the host then needs microseconds for it.
   What changes from step to step, the numbers of optimizers and the state of the random numbers, lies in device memory,
   which the host writes before each launch.  Blocks of memory that the step allocates or frees while it is captured
   are the graph's until it is freed. */

/* Numbers of an optimizer's step; a kernel with a thread for each word stores them. */
enum { TGI_GRAPH_WORDS = 24 };
typedef struct { uint32_t word[TGI_GRAPH_WORDS]; } tgi_graph_words;
typedef struct tgi_graph_slot {
    struct tgi_graph_slot *next; /* in the order in which the step uses them */
    void *at;                    /* on the device */
    tgi_graph_words words;       /* for the next launch */
} tgi_graph_slot;

typedef struct tgi_device_graph {
    cudaGraphExec_t exec;
    tg_rng rng;     /* when the capture began */
    tg_rng *begin;  /* on the device: when the launch began */
    bool index_checked;
    tgi_graph_slot *slot, **next; /* next: where the one that comes next is linked, or to be linked */
} tgi_device_graph;

static __global__ void tgi_store_words(uint32_t *to, tgi_graph_words words)
{
    to[threadIdx.x] = words.word[threadIdx.x];
}

static bool tgi_other_steps(tgi_thread *S)
{
    return tgi_host_api.fail(S, TG_ERR_GRAPH, "capture_run",
                             "the optimizers do not make the steps that were captured\n"
                             "do parameters still have the gradients that they had then?");
}

/* Device memory that holds these numbers when the graph is launched: new while the step is captured, then the same in
   the same order.  NULL after recording an error. */
static void *tgi_graph_number(tgi_thread *S, tgi_cuda_device *d, const void *numbers, size_t bytes)
{
    tgi_device_graph *g = d->graph;
    tgi_graph_slot *slot = *g->next;
    if (!slot && d->capturing) {
        slot = (tgi_graph_slot *)tgi_host_api.take(S, sizeof *slot);
        if (slot) memset(slot, 0, sizeof *slot);
        d->capturing = false; /* the work that is captured must not use this memory */
        if (slot) slot->at = tgi_scratch_alloc(S, d, "capture_run", 1, sizeof slot->words);
        d->capturing = true;
        if (slot && !slot->at) {
            tgi_host_api.give_back(S, slot, sizeof *slot);
            slot = NULL;
        }
        *g->next = slot;
    }
    if (!slot || bytes > sizeof slot->words) return tgi_other_steps(S), (void *)NULL;
    memcpy(&slot->words, numbers, bytes);
    g->next = &slot->next;
    return slot->at;
}

/* The random numbers of a kernel.  begin: NULL, or where the state lies with which a launch of a captured step begins:
   then rng.offset is counted from there. */
typedef struct {
    tg_rng rng;
    const tg_rng *begin;
} tgi_device_rng;

static tgi_device_rng tgi_rng_for(const tgi_cuda_device *d, tg_rng rng)
{
    tgi_device_rng state = {rng, NULL};
    if (d && d->capturing) {
        state.rng.offset -= d->graph->rng.offset;
        state.begin = d->graph->begin;
    }
    return state;
}

__device__ inline tg_rng tgi_rng_now(tgi_device_rng state)
{
    if (state.begin) {
        state.rng.seed = state.begin->seed;
        state.rng.offset += state.begin->offset;
    }
    return state.rng;
}

static const char *tgi_cuda_capture_watch(tgi_thread *S, int index)
{
    tgi_this_cuda.watched = 0;
    const tgi_cuda_device *d = index < 0 ? NULL : tgi_device_for(S, index);
    tgi_this_cuda.watched = index + 1;
    return d && d->pass_through ? "TG_CUDA_PASS_THROUGH is set" : NULL;
}

/* Begins the capture. */
static void *tgi_cuda_capture_begin(tgi_thread *S, int index, tg_rng rng)
{
    tgi_cuda_device *d = tgi_device_for(S, index);
    tgi_device_graph *g = d ? (tgi_device_graph *)tgi_host_api.take(S, sizeof *g) : NULL;
    if (!g) return NULL;
    memset(g, 0, sizeof *g);
    g->rng = rng;
    g->next = &g->slot;
    g->begin = (tg_rng *)tgi_scratch_alloc(S, d, "capture_run", 1, sizeof(tgi_graph_words));
    g->index_checked = d->index_checked;
    if (g->begin) tgi_capturing_begin(index, d->stream);
    if (!g->begin || !TGI_CUDA(cudaStreamBeginCapture(d->stream, cudaStreamCaptureModeRelaxed))) {
        tgi_capturing_end();
        tgi_cuda_capture_free(S, index, g);
        return NULL;
    }
    d->index_checked = false;
    d->capturing = true;
    d->graph = g;
    return g;
}

/* Whether CUDA has refused the capture because of a call that was made meanwhile. */
static bool tgi_is_interruption(cudaError_t status)
{
    return status >= cudaErrorStreamCaptureUnsupported && status <= cudaErrorStreamCaptureWrongThread;
}

/* Ends it.  TGI_FAILED after recording an error; TGI_COMPOSE, too, if another thread has ended it, or has made a call
   that CUDA does not allow meanwhile. */
static tgi_answer tgi_cuda_capture_end(tgi_thread *S, int index, void *graph)
{
    tgi_cuda_device *d = &tgi_this_cuda.device[index];
    tgi_device_graph *g = (tgi_device_graph *)graph;
    const bool checked = g->index_checked;
    cudaGraph_t captured = NULL;
    bool ok = tgi_enter(S, index);
    const bool interrupted = !tgi_capturing_enter();
    const cudaError_t status = interrupted ? cudaSuccess : cudaStreamEndCapture(d->stream, &captured);
    tgi_capturing_end();
    ok = tgi_cuda_ok(S, status, "cudaStreamEndCapture(d->stream, &captured)", __LINE__) && ok;
    ok = ok && TGI_CUDA(cudaGraphInstantiate(&g->exec, captured, 0));
    if (captured) ok = TGI_CUDA(cudaGraphDestroy(captured)) && ok;
    g->index_checked = d->index_checked;
    d->index_checked = checked;
    d->capturing = false;
    d->graph = NULL;
    if (interrupted || tgi_is_interruption(status)) return TGI_COMPOSE;
    return ok ? TGI_DONE : TGI_FAILED;
}

/* From now on, optim_step gives the graph new numbers instead of working; until capture_launch. */
static void tgi_cuda_capture_renumber(tgi_thread *S, int index, void *graph)
{
    tgi_cuda_device *d = &tgi_this_cuda.device[index];
    (void)S;
    d->graph = (tgi_device_graph *)graph;
    d->graph->next = &d->graph->slot;
    d->renumbering = true;
}

/* Does the captured work, if ok. */
static bool tgi_cuda_capture_launch(tgi_thread *S, int index, void *graph, bool ok, tg_rng rng)
{
    tgi_device_graph *g = (tgi_device_graph *)graph;
    tgi_cuda_device *d = &tgi_this_cuda.device[index];
    const bool complete = !d->renumbering || !*g->next;
    tgi_graph_words words = {};
    d->graph = NULL;
    d->renumbering = false;
    if (!ok || !tgi_device_for(S, index)) return false;
    if (!complete) return tgi_other_steps(S);
    memcpy(&words, &rng, sizeof rng);
    if (!tgi_launch(S, d, tgi_store_words, 1, (int)(sizeof rng / 4), (uint32_t *)(void *)g->begin, words)) return false;
    for (const tgi_graph_slot *slot = g->slot; slot; slot = slot->next) {
        if (!tgi_launch(S, d, tgi_store_words, 1, TGI_GRAPH_WORDS, (uint32_t *)slot->at, slot->words)) return false;
    }
    if (g->index_checked) d->index_checked = true;
    return TGI_CUDA(cudaGraphLaunch(g->exec, d->stream));
}

/* Makes what the graph keeps ordinary memory of this thread. */
static void tgi_graph_leave_blocks(const tgi_device_graph *g, tgi_device_block *list)
{
    for (; list; list = list->next) {
        if (list->graph == g) list->graph = NULL;
    }
}
static void tgi_graph_free_blocks(int index, const tgi_device_graph *g)
{
    tgi_lock_blocks();
    for (int k = 0; k < TGI_BLOCK_CLASSES; ++k) tgi_graph_leave_blocks(g, tgi_device_blocks.kept[index][k]);
    for (int k = 0; k < TGI_CHAINS; ++k) tgi_graph_leave_blocks(g, tgi_device_blocks.used[k]);
    tgi_unlock_blocks();
}

static void tgi_cuda_capture_free(tgi_thread *S, int index, void *graph)
{
    tgi_device_graph *g = (tgi_device_graph *)graph;
    if (g->exec) TGI_CUDA(cudaGraphExecDestroy(g->exec));
    while (g->slot) {
        tgi_graph_slot *slot = g->slot;
        g->slot = slot->next;
        tgi_cuda_release(S, index, slot->at, 0);
        tgi_host_api.give_back(S, slot, sizeof *slot);
    }
    tgi_cuda_release(S, index, g->begin, 0);
    tgi_graph_free_blocks(index, g);
    tgi_host_api.give_back(S, g, sizeof *g);
}

/* ---- what others call ---- */

/* What the table, or a tg_comm, holds for a function: it ends as the caller's device was current before. */
template <auto function> struct tgi_entry;
template <class R, class... A, R (*function)(A...)> struct tgi_entry<function> {
    static R call(A... arguments)
    {
        const struct leave {
            ~leave() { tgi_leave(); }
        } at_the_end;
        (void)at_the_end;
        return function(arguments...);
    }
};

/* ---- NCCL, an engine for tg_parallel: see tg_nccl_comm ---- */

#ifdef TG_USE_NCCL
#if NCCL_VERSION_CODE < NCCL_VERSION(2, 14, 0)
#error "TG_USE_NCCL needs NCCL 2.14 or newer"
#endif

/* The context of a tg_comm.  Collectives run in a stream of their own: each behind what the thread had queued for the
   device when it was asked for, and what the thread queues after wait runs behind them.  The communicator is one that
   does not block, so that no call waits for the other ranks for longer than `seconds`. */
typedef struct {
    tgi_thread *S;                /* to which it belongs */
    const tgi_cuda_thread *owner; /* likewise */
    int index;                    /* of the device */
    double seconds;
    ncclComm_t comm; /* NULL: it was aborted, or never made */
    cudaStream_t stream;
    cudaEvent_t done; /* the end of what the stream was given */
    char text[400];   /* what went wrong last */
} tgi_nccl;

/* Calls of CUDA and NCCL stand in this.  False after noting in n->text what went wrong. */
#define TGI_NCCL(call) tgi_nccl_ok(n, call, #call)

static bool tgi_nccl_ok(tgi_nccl *n, cudaError_t status, const char *call)
{
    if (status == cudaSuccess) return true;
    cudaGetLastError(); /* clears the runtime's own record of the error */
    snprintf(n->text, sizeof n->text, "CUDA error: %s\nin %s", cudaGetErrorString(status), call);
    return false;
}

/* Between two questions to one who waits since then: false once that has taken too long. */
static bool tgi_nccl_pause(tgi_nccl *n, double since)
{
    const struct timespec pause = {0, 50000};
    const double waited = tgi_seconds() - since;
    if (waited > n->seconds) {
        snprintf(n->text, sizeof n->text, "not all ranks have answered in %g seconds", n->seconds);
        return false;
    }
    if (waited < 0.001) sched_yield(); /* most waits are short */
    else nanosleep(&pause, NULL);
    return true;
}

/* A communicator that does not block may return from a call before it has done with it, and then no other may begin. */
static bool tgi_nccl_ok(tgi_nccl *n, ncclResult_t status, const char *call)
{
    const double since = tgi_seconds();
    while (status == ncclInProgress) {
        const ncclResult_t asked = ncclCommGetAsyncError(n->comm, &status);
        if (asked != ncclSuccess) status = asked;
        if (status == ncclInProgress && !tgi_nccl_pause(n, since)) return false;
    }
    if (status == ncclSuccess) return true;
    snprintf(n->text, sizeof n->text, "NCCL error: %s\nin %s", ncclGetErrorString(status), call);
    return false;
}

/* Whether the collectives that were asked for have not failed meanwhile. */
static bool tgi_nccl_is_well(tgi_nccl *n)
{
    ncclResult_t status = ncclSuccess;
    return TGI_NCCL(ncclCommGetAsyncError(n->comm, &status)) && tgi_nccl_ok(n, status, "a collective");
}

/* Before each call: makes the device current and returns what the thread owns on it; NULL after noting why not. */
static tgi_cuda_device *tgi_nccl_device(tgi_nccl *n)
{
    tgi_cuda_device *d = n->comm && n->owner == &tgi_this_cuda ? tgi_device_for(n->S, n->index) : NULL;
    if (d) return tgi_nccl_is_well(n) ? d : NULL;
    snprintf(n->text, sizeof n->text, n->owner != &tgi_this_cuda ? "the engine belongs to another thread"
                                      : n->comm                  ? "the GPU cannot be used"
                                                                 : "the communicator was aborted");
    return NULL;
}

/* Before a collective: it runs behind what the thread has queued. */
static bool tgi_nccl_begin(tgi_nccl *n, tg_device device)
{
    const tgi_cuda_device *d = tgi_nccl_device(n);
    if (d && device.index != n->index) {
        snprintf(n->text, sizeof n->text, "the data is on cuda:%d, and the engine is for cuda:%d", device.index,
                 n->index);
        return false;
    }
    return d && TGI_NCCL(cudaEventRecord(d->event, d->stream)) &&
           TGI_NCCL(cudaStreamWaitEvent(n->stream, d->event, 0));
}

static const char *tgi_nccl_all_reduce(void *context, void *data, int64_t count, tg_dtype dtype, tg_device device)
{
    static const struct {
        tg_dtype dtype;
        ncclDataType_t type;
    } types[] = {{TG_F32, ncclFloat32}, {TG_F64, ncclFloat64}, {TG_BF16, ncclBfloat16}, {TG_F16, ncclFloat16},
                 {TG_I64, ncclInt64}};
    tgi_nccl *n = (tgi_nccl *)context;
    for (size_t k = 0; k < sizeof types / sizeof *types; ++k) {
        if (types[k].dtype != dtype) continue;
        const bool ok = tgi_nccl_begin(n, device) && TGI_NCCL(ncclAllReduce(data, data, (size_t)count, types[k].type,
                                                                            ncclSum, n->comm, n->stream));
        return ok ? NULL : n->text;
    }
    return "all_reduce is for f32, f64, bf16, f16 and i64";
}

static const char *tgi_nccl_broadcast(void *context, void *data, int64_t bytes, int root, tg_device device)
{
    tgi_nccl *n = (tgi_nccl *)context;
    const bool ok = tgi_nccl_begin(n, device) &&
                    TGI_NCCL(ncclBroadcast(data, data, (size_t)bytes, ncclUint8, root, n->comm, n->stream));
    return ok ? NULL : n->text;
}

static const char *tgi_nccl_all_gather(void *context, const void *data, void *all, int64_t bytes, tg_device device)
{
    tgi_nccl *n = (tgi_nccl *)context;
    const bool ok = tgi_nccl_begin(n, device) &&
                    TGI_NCCL(ncclAllGather(data, all, (size_t)bytes, ncclUint8, n->comm, n->stream));
    return ok ? NULL : n->text;
}

/* The host waits for the event `done`: a collective that waits for a rank that has died never ends. */
static bool tgi_nccl_wait_on_host(tgi_nccl *n)
{
    const double since = tgi_seconds();
    cudaError_t status = cudaEventQuery(n->done);
    if (status == cudaErrorNotReady) tgi_host_api.count_wait(n->S, TG_DEV_CUDA, n->index);
    while (status == cudaErrorNotReady) {
        cudaGetLastError(); /* not ready is no error */
        if (!tgi_nccl_is_well(n) || !tgi_nccl_pause(n, since)) return false;
        status = cudaEventQuery(n->done);
    }
    return tgi_nccl_ok(n, status, "cudaEventQuery(n->done)");
}

/* Further work of the thread on the device runs behind the collectives. */
static bool tgi_nccl_order(tgi_nccl *n, const tgi_cuda_device *d)
{
    return TGI_NCCL(cudaEventRecord(n->done, n->stream)) && TGI_NCCL(cudaStreamWaitEvent(d->stream, n->done, 0));
}

static const char *tgi_nccl_wait(void *context)
{
    tgi_nccl *n = (tgi_nccl *)context;
    const tgi_cuda_device *d = tgi_nccl_device(n);
    return d && tgi_nccl_order(n, d) && (n->seconds == HUGE_VAL || tgi_nccl_wait_on_host(n)) ? NULL : n->text;
}

/* The collectives end, done or not, and what has their memory next runs after that. */
static void tgi_nccl_abort(void *context)
{
    tgi_nccl *n = (tgi_nccl *)context;
    const tgi_cuda_device *d = n->comm ? tgi_device_for(n->S, n->index) : NULL;
    if (n->comm) ncclCommAbort(n->comm);
    n->comm = NULL;
    if (d) tgi_nccl_order(n, d);
}

/* Frees all of n.  Where another rank does not end its communicator, this one is aborted. */
static void tgi_nccl_free(tgi_thread *S, tgi_nccl *n)
{
    const tgi_cuda_device *d = tgi_device_for(S, n->index);
    if (d && n->comm && tgi_nccl_order(n, d) && TGI_NCCL(ncclCommFinalize(n->comm))) {
        ncclCommDestroy(n->comm);
        n->comm = NULL;
    }
    tgi_nccl_abort(n);
    if (n->done) TGI_CUDA(cudaEventDestroy(n->done));
    if (n->stream) TGI_CUDA(cudaStreamDestroy(n->stream));
    tgi_host_api.give_back(S, n, sizeof *n);
}

static bool tgi_nccl_new_id(tgi_thread *S, tg_nccl_id *id)
{
    static_assert(sizeof *id == sizeof(ncclUniqueId), "tg_nccl_id is as long as NCCL's");
    const ncclResult_t status = ncclGetUniqueId((ncclUniqueId *)(void *)id);
    return status == ncclSuccess ||
           tgi_host_api.fail(S, TG_ERR_COMM, "nccl_new_id", "NCCL error: %s", ncclGetErrorString(status));
}

static bool tgi_nccl_open(tgi_thread *S, int index, const tg_nccl_id *id, double seconds, tg_comm *comm)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclUniqueId unique;
    const char *op = "nccl_comm";
    if (!tgi_device_for(S, index)) return false;
    tgi_nccl *n = (tgi_nccl *)tgi_host_api.take(S, sizeof *n);
    if (!n) return tgi_host_api.no_memory(S, op, TG_DEV_CPU, 0, (double)sizeof *n, 0);
    memset(n, 0, sizeof *n);
    memcpy(&unique, id, sizeof unique);
    n->S = S;
    n->owner = &tgi_this_cuda;
    n->index = index;
    n->seconds = seconds;
    config.blocking = 0;
    if (TGI_NCCL(cudaStreamCreateWithFlags(&n->stream, cudaStreamNonBlocking)) &&
        TGI_NCCL(cudaEventCreateWithFlags(&n->done, cudaEventDisableTiming)) &&
        TGI_NCCL(ncclCommInitRankConfig(&n->comm, comm->size, unique, comm->rank, &config))) {
        comm->context = n;
        comm->all_reduce = tgi_entry<tgi_nccl_all_reduce>::call;
        comm->broadcast = tgi_entry<tgi_nccl_broadcast>::call;
        comm->all_gather = tgi_entry<tgi_nccl_all_gather>::call;
        comm->wait = tgi_entry<tgi_nccl_wait>::call;
        comm->abort = tgi_entry<tgi_nccl_abort>::call;
        return true;
    }
    tgi_host_api.fail(S, TG_ERR_COMM, op, "rank %d of %d: %s", comm->rank, comm->size, n->text);
    tgi_nccl_abort(n); /* nobody is waited for again */
    tgi_nccl_free(S, n);
    return false;
}

static bool tgi_nccl_close(tgi_thread *S, tg_comm *comm)
{
    tgi_nccl *n = (tgi_nccl *)comm->context;
    if (comm->all_reduce != tgi_entry<tgi_nccl_all_reduce>::call || n->owner != &tgi_this_cuda) return false;
    tgi_nccl_free(S, n);
    return true;
}

#else

static bool tgi_no_nccl(tgi_thread *S, const char *op)
{
    return tgi_host_api.fail(S, TG_ERR_UNSUPPORTED, op, "tensorgrad_cuda.cu was compiled without NCCL\n"
                             "compile it with -DTG_USE_NCCL, and link with -lnccl");
}
static bool tgi_nccl_new_id(tgi_thread *S, tg_nccl_id *) { return tgi_no_nccl(S, "nccl_new_id"); }
static bool tgi_nccl_open(tgi_thread *S, int, const tg_nccl_id *, double, tg_comm *)
{
    return tgi_no_nccl(S, "nccl_comm");
}
static bool tgi_nccl_close(tgi_thread *, tg_comm *) { return false; }

#endif

static bool tgi_cuda_comm_id(tgi_thread *S, tg_nccl_id *id) { return tgi_nccl_new_id(S, id); }
static bool tgi_cuda_comm_open(tgi_thread *S, int index, const tg_nccl_id *id, double seconds, tg_comm *comm)
{
    return tgi_nccl_open(S, index, id, seconds, comm);
}
static bool tgi_cuda_comm_close(tgi_thread *S, tg_comm *comm) { return tgi_nccl_close(S, comm); }

/* ---- the row of this backend ---- */

#define TGI_CUDA_ENTRY(kinds, result, name, arguments) tgi_entry<tgi_cuda_##name>::call,
static const tgi_backend tgi_cuda = {"cuda", TG_DEV_CUDA, false, NULL, TGI_BACKEND_ENTRIES(TGI_CUDA_ENTRY)};

extern "C" const tgi_backend *tgi_cuda_backend(tgi_thread *S, const tgi_host *host, const tgi_version *version)
{
    static const tgi_version *compared; /* the last one that was the same */
    static char locked;
    if (TGI_ATOMIC_LOAD(&compared) == version) return &tgi_cuda;
    if (!tgi_is_this_version(version)) {
        host->fail(S, TG_ERR_CUDA, "cuda",
                   "tensorgrad_cuda.o (number %d) and tensorgrad.h (number %d) are not of one version\n"
                   "compile tensorgrad_cuda.cu again, beside the tensorgrad.h that the program includes",
                   tgi_this_version.abi, version->abi);
        return NULL;
    }
    tgi_lock(&locked);
    if (compared != version) tgi_host_api = *host;
    TGI_ATOMIC_STORE(&compared, version);
    tgi_unlock(&locked);
    return &tgi_cuda;
}

/* ======== @@KERNELS =============================================================================================== */

/* ---- a first kernel ----

   y [n] = exp(x [n]), in f32, as one would write it first:

       __global__ void exp_of(const float *x, float *y, int n)
       {
           const int first = blockIdx.x * blockDim.x + threadIdx.x; // the number of this thread in the grid
           const int threads = gridDim.x * blockDim.x;              // of the grid
           for (int i = first; i < n; i += threads) y[i] = expf(x[i]);
       }

   The host launches it with (n + 255) / 256 blocks of 256 threads, and each thread runs all of it.  Thread i has
   element i, so that the 32 threads of a warp read 128 bytes side by side, as memory wants it.  If the grid has fewer
   threads than there are elements, each goes on one grid further.

   The kernels of this file are this one for any op, dtype and layout, hence templates; and a thread takes a pack of 16
   bytes where it can, a warp then 512, with a quarter of the loads, stores and steps of the loop. */

/* ---- the numbers that were chosen ----

   An H100 stands for the GPU: 132 multiprocessors, each with room for 2048 threads, 65536 registers and 228 KB of
   shared memory, of which a block has 48 KB unless it asks for more.  Memory moves 3.35 TB/s and answers after some 0.6
   us: 3.35e12 * 0.6e-6 = 2 MB must be on their way at any time, which is 15 KB for each multiprocessor.

       TGI_BLOCK 256               8 blocks * 256 = 2048 threads fill a multiprocessor; each then has 65536 / 2048 = 32
                                   registers, and one that needs the most there are, 255, still fits: 256 * 255 < 65536
       TGI_MAX_BLOCKS 1 << 20      2^20 / (132 * 8) = 990 times what runs at once: more blocks would divide no better
       TGI_STAGING_BYTES 1 << 20   2^20 / (25 GB/s of the bus) = 40 us, beside the 5 to 10 us that a copy costs at least
       TGI_BLOCK_STEP 9            sizes of memory are multiples of 2^9 = 512 bytes, 4 lines of the cache
       TGI_CHAINS 4096             4096 * 8 = 32 KB; a training program has some thousand blocks: one to look at
       TGI_GRAPH_WORDS 24          24 * 4 = 96 bytes: an optimizer's numbers, as arguments of a kernel
       TGI_PACK_BYTES 16           the most that an instruction loads; one on the way for each thread: 2048 * 16 = 32 KB
       TGI_ROW_DIMS 3              3 and the row: 4 dims are left of nearly all loops once neighbouring dims are merged
       TGI_ROW_OPERANDS 4          an op has up to 3 inputs, and its output
       TGI_RUN 2 * TGI_BLOCK       512 pairs, 2 for a thread, in 512 * (8 + 8 + 4) = 10 KB; 9 * 10 / 2 = 45 steps
       TGI_DIGITS 256              a byte of the key: 32 / 8 = 4 passes, and a count for each thread of a block
       TGI_RADIX_EACH 8            2048 pairs of a tile / 256 digits = 8 that go to the same place: 8 * 4 = 32 bytes, a
                                   sector; 2048 * (8 + 8) = 32 KB of shared memory
       TGI_SEGMENT 64              16384 indices / 64 * (768 columns / 8) = 24576 threads in 96 blocks, and 64 steps
       TGI_FOLD_LOADS 4            4 blocks * 256 threads * 4 * 16 = 64 KB on their way, at half of the threads
       TGI_FOLD_ROUNDS 16          16 sums of 4 loads in f32 are wrong by (16 + 3) / 2^24 = 1.1e-6 at most; then one
                                   sum in f64, which some GPUs do 64 times slower, for 4 * 16 = 64 in f32
       TGI_FOLD_BLOCKS 528         4 * 132
       TGI_TEAM_MOST 512           512 * 16 held = 8192 elements; 65536 / 512 = 128 registers, of which x, weight and
                                   bias take 3 * 16 = 48
       TGI_NORM_BLOCKS 256         nearly 2 * 132: each loads weight and bias once, 16384 rows / (256 * 4 teams) =
                                   16 rows for each; and leaves sums, 256 * 2 * 768 * 4 = 1.6 MB
       TGI_GROUP_BLOCKS 16         256 = 16 * 16: the last of 16 blocks adds 16 sums, and the last group 16 again; one
                                   block alone would take 1.6 MB / (64 bytes * 1.7 GHz) = 15 us to read all of them
       TGI_FOURIER_LARGEST 31      a pass for a factor p takes p products for each number; the convolution for the next
                                   prime, three transforms of twice the size, some 3 * 2 * log2(2 * 37) = 37
       TGI_SAMPLE_CHANNELS 8       8 sums in registers share the search for a place; of 256 channels of 56 * 56 places
                                   256 / 8 * 3136 = 100352 threads are left
       TGI_LT_SETS 16              16 sets * 8 ways = 128 plans; a step of GPT-2 has 9 products with an epilogue
       TGI_LT_WAYS 8               so many keys may share a set
       TGI_LT_ASKED 8              answers that are timed: (5 + 1) * 4 runs of each, 192 for a product, of 1.5 ms 0.3 s
       TGI_LT_ROUNDS 5             odd, so that the median is one of them
       TGI_LT_REPEATS 4            products between two events: of small ones the host's first launch is a quarter
       TGI_LT_FORMAT 1             of the lines of the file: where the key changes, this does
       TGI_LT_TEXT 1536            33 numbers of up to 20 digits, their hash, and a name of 255 letters
       TGI_MULTI_TENSORS 160       160 * 24 = 3840 bytes, of the 4096 that the arguments of a kernel may have
       TGI_MULTI_PIECE 64 * TGI_BLOCK      16384 elements, 64 for a thread; 124 million / 16384 = 7600 blocks
       TGI_OPTIM_TENSORS 48        48 * 72 = 3456 bytes of arguments, and the numbers of the step
       TGI_OPTIM_PIECE 8 * TGI_BLOCK       2048 elements, one pack of 8 for each thread

   The numbers of attention stand beside its pictures. */

/* ---- f16 and bf16 ----

   The processor's instructions take the place of the functions of tensorgrad.h.  They give the same bits but for NaN,
   of which they make one, with all bits of the fraction set.  Of the numbers of a pack, two are rounded by one
   instruction; the function for bf16 takes six or seven for each. */

__device__ inline float tgi_cuda_f16_to_f32(uint16_t bits) { return __half2float(__ushort_as_half(bits)); }
__device__ inline uint16_t tgi_cuda_f32_to_f16(float x) { return __half_as_ushort(__float2half_rn(x)); }
__device__ inline uint16_t tgi_cuda_f32_to_bf16(float x) { return __bfloat16_as_ushort(__float2bfloat16_rn(x)); }

/* The table of element types uses these names. */
#define tgi_f16_to_f32 tgi_cuda_f16_to_f32
#define tgi_f32_to_f16 tgi_cuda_f32_to_f16
#define tgi_f32_to_bf16 tgi_cuda_f32_to_bf16

/* ---- one element of any dtype ----

   tgi_load_as<real>(dtype, at) is the element at an address as a float, a double or an int64_t, and tgi_store_as(dtype,
   at, x) stores one.  Each is a switch with a case for each row of the table of element types, TGI_ELEMENTS.  Where the
   dtype is a template argument, the compiler leaves only the one case. */
#define TGI_AS(name, ...) TGI_AS_##name,
enum { TGI_ELEMENTS(TGI_AS) };

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
#define TGI_SIZE(name, type, ...) \
    case TGI_AS_##name: return sizeof(type);
__host__ __device__ inline int64_t tgi_size_of(tg_dtype dtype)
{
    switch ((int)dtype) {
        TGI_ELEMENTS(TGI_SIZE)
    }
    return 1;
}

/* Whether an integer dtype has numbers below 0. */
#define TGI_SIGNED(name, type, ...) \
    case TGI_AS_##name: return (type)-1 < (type)1;
__host__ __device__ inline bool tgi_is_signed(tg_dtype dtype)
{
    switch ((int)dtype) {
        TGI_ELEMENTS(TGI_SIGNED)
    }
    return true;
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
        enum { size = (int)sizeof(stored) };       \
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

/* The type in which a kernel gets the numbers of an op: that in which it computes, but double for int64_t. */
template <class real> struct tgi_number {
    typedef real of;
};
template <> struct tgi_number<int64_t> {
    typedef double of;
};

/* Dynamic shared memory: T name[], as large as the launch says; it begins at a multiple of 16, or of so many bytes. */
#ifdef CUDASIM
#define TGI_DYNAMIC_SHARED_AT(bytes, T, name) CUDASIM_DYN_SHARED(T, name)
#else
#define TGI_DYNAMIC_SHARED_AT(bytes, T, name)                        \
    extern __shared__ __align__(bytes) unsigned char name##_bytes[]; \
    T *const name = (T *)name##_bytes
#endif
#define TGI_DYNAMIC_SHARED(T, name) TGI_DYNAMIC_SHARED_AT(16, T, name)

/* 2^x by one instruction; 0 if that is below the normal floats. */
__device__ inline float tgi_exp2(float x)
{
#ifdef CUDASIM
    return exp2f(x);
#else
    float y;
    asm("ex2.approx.ftz.f32 %0,%1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

/* ---- packs ---- */

/* A pack is `width` neighbouring elements that are loaded and stored by one instruction: 16 bytes at most, aligned to
   their size.  The host checks the alignment before it launches a kernel that uses packs (tgi_packs_of). */
enum { TGI_PACK_BYTES = 16 };
template <int dtype, int width> struct alignas(sizeof(typename tgi_stored<dtype>::type) * width) tgi_pack {
    typename tgi_stored<dtype>::type x[width];
};
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

/* ---- packs of rows ----

   A loop whose innermost dim, the row, has elements side by side in the output, and in each input elements side by side
   or one element for the whole row (its step is 0), as broadcasting makes them.  A thread takes a pack of `width`
   neighbours, the last one of a row what is left; packs are numbered over all rows.  For rows of 10, with width 4:

       threads 0 0 0 0 1 1 1 1 2 2
               3 3 3 3 4 4 4 4 5 5

   The width is the largest for which the packs of all operands are aligned. */

/* Division of a number below 2^31 by one that is not known at compile time, as a product and a shift; after Granlund
   and Montgomery, "Division by invariant integers using multiplication" (1994). */
typedef struct {
    uint32_t size, factor;
    int shift;
} tgi_divisor;

static tgi_divisor tgi_divisor_of(int64_t size)
{
    tgi_divisor d = {(uint32_t)size, 0, 0};
    while (((int64_t)1 << d.shift) < size) d.shift++;
    d.factor = (uint32_t)(((((uint64_t)1 << d.shift) - (uint64_t)size) << 32) / (uint64_t)size + 1);
    return d;
}

__device__ inline uint32_t tgi_divide(uint32_t x, tgi_divisor d) { return (__umulhi(x, d.factor) + x) >> d.shift; }

enum { TGI_ROW_DIMS = 3, TGI_ROW_OPERANDS = 4 };
typedef struct {
    uint32_t count;      /* of packs in all */
    int width;           /* a power of two */
    int64_t length;      /* of a row */
    tgi_divisor per_row; /* packs in a row */
    int ndim;            /* the other dims, the last one first */
    tgi_divisor dim[TGI_ROW_DIMS];
    char *data[TGI_ROW_OPERANDS];   /* operand 0 is the output */
    int64_t step[TGI_ROW_OPERANDS]; /* in bytes, along a row */
    int64_t stride[TGI_ROW_OPERANDS][TGI_ROW_DIMS];
} tgi_packs;

/* Whether the elements of each row lie side by side in the output, and in the inputs, too, or are one there. */
static bool tgi_has_dense_rows(const tgi_iter *iter)
{
    for (int k = 0; k < iter->nargs; ++k) {
        const int64_t step = iter->stride[k][iter->ndim - 1];
        if (step != tgi_bytes_of(iter->dtype[k]) && (k == 0 || step != 0)) return false;
    }
    return true;
}

/* most: elements in a pack; with 1, the rows may have any step.  False if there are too many dims, or too many packs to
   number them with 31 bits. */
static bool tgi_packs_init(tgi_packs *p, const tgi_iter *iter, int most)
{
    const int inner = iter->ndim - 1;
    int64_t rows = 1;
    if (inner > TGI_ROW_DIMS) return false;
    memset(p, 0, sizeof *p);
    p->width = most;
    p->length = iter->dim[inner];
    p->ndim = inner;
    for (int d = 0; d < inner; ++d) {
        rows *= iter->dim[inner - 1 - d];
        p->dim[d] = tgi_divisor_of(tgi_at_most(iter->dim[inner - 1 - d], INT32_MAX));
    }
    for (int k = 0; k < iter->nargs; ++k) {
        const int size = (int)tgi_bytes_of(iter->dtype[k]);
        p->data[k] = iter->data[k];
        p->step[k] = iter->stride[k][inner];
        uint64_t places = (uintptr_t)p->data[k];
        for (int d = 0; d < inner; ++d) {
            p->stride[k][d] = iter->stride[k][inner - 1 - d];
            places |= (uint64_t)p->stride[k][d];
        }
        while (p->step[k] && places % (uint64_t)(size * p->width)) p->width /= 2;
    }
    const int64_t per_row = (p->length + p->width - 1) / p->width;
    if (per_row > INT32_MAX || rows > INT32_MAX / per_row) return false;
    p->per_row = tgi_divisor_of(per_row);
    p->count = (uint32_t)(per_row * rows);
    return true;
}

/* The addresses of a pack's first elements; returns the number of its elements. */
template <int operands> __device__ inline int tgi_pack_at(const tgi_packs &p, uint32_t pack, char *(&at)[operands])
{
    uint32_t row = p.ndim > 0 ? tgi_divide(pack, p.per_row) : 0;
    const int64_t first = (int64_t)(pack - row * p.per_row.size) * p.width, left = p.length - first;
#pragma unroll
    for (int k = 0; k < operands; ++k) at[k] = p.data[k] + first * p.step[k];
#pragma unroll
    for (int d = 0; d < TGI_ROW_DIMS; ++d) {
        if (d >= p.ndim) break;
        const uint32_t above = tgi_divide(row, p.dim[d]), index = row - above * p.dim[d].size;
#pragma unroll
        for (int k = 0; k < operands; ++k) at[k] += index * p.stride[k][d];
        row = above;
    }
    return left < p.width ? (int)left : p.width;
}

/* The number of elements in a pack of operands with these sizes of an element. */
__host__ __device__ constexpr int tgi_pack_width(int a, int b, int c)
{
    return TGI_PACK_BYTES / (a > b ? (a > c ? a : c) : (b > c ? b : c));
}

/* The elements of a pack as words, just as they are in memory: nothing waits for the load before a value is needed. */
template <int dtype, int width> struct tgi_loaded {
    typedef typename tgi_stored<dtype>::type stored;
    enum { size = (int)sizeof(stored), words = size * width / 4 };
    uint32_t word[words > 0 ? words : 1];

    __device__ stored element(int k) const
    {
        const int at = k * size;
        uint64_t bits = word[at / 4] >> at % 4 * 8;
        stored x;
        if (size == 8) bits |= (uint64_t)word[at / 4 + (size == 8)] << 32;
        memcpy(&x, &bits, sizeof x); /* the device is little-endian */
        return x;
    }
    __device__ void set(int k, stored x)
    {
        const int at = k * size;
        uint64_t bits = 0;
        memcpy(&bits, &x, sizeof x);
        word[at / 4] |= (uint32_t)bits << at % 4 * 8;
        if (size == 8) word[at / 4 + (size == 8)] |= (uint32_t)(bits >> 32);
    }
    template <int part> __device__ void load(const void *at) /* the first elements, as many as `part` */
    {
        const tgi_pack<dtype, part> x = tgi_load_pack<tgi_pack<dtype, part>>(at);
        memcpy(word, &x, sizeof x);
    }
    __device__ void store(void *at) const
    {
        tgi_pack<dtype, width> x;
        memcpy(&x, word, sizeof x);
        tgi_store_pack(at, x);
    }
    template <class real> __device__ real value(int k) const
    {
        if constexpr (dtype == TG_BF16 && width > 1) /* one instruction */
            return (real)__uint_as_float(k % 2 ? word[k / 2] & 0xffff0000u : word[k / 2] << 16);
        const stored x = element(k);
        return tgi_load_as<real>((tg_dtype)dtype, &x);
    }
};

/* x as the elements of a pack in memory.  Two numbers are rounded to 16 bits by one instruction. */
template <int dtype, int width, class real>
__device__ inline tgi_loaded<dtype, width> tgi_rounded(const real *x)
{
    tgi_loaded<dtype, width> y = {};
    if constexpr (width > 1 && (dtype == TG_BF16 || dtype == TG_F16)) {
#pragma unroll
        for (int k = 0; k < width; k += 2) {
            if constexpr (dtype == TG_BF16) {
                const __nv_bfloat162 two = __floats2bfloat162_rn((float)x[k], (float)x[k + 1]);
                memcpy(&y.word[k / 2], &two, sizeof two);
            } else {
                const __half2 two = __floats2half2_rn((float)x[k], (float)x[k + 1]);
                memcpy(&y.word[k / 2], &two, sizeof two);
            }
        }
    } else {
#pragma unroll
        for (int k = 0; k < width; ++k) {
            typename tgi_stored<dtype>::type rounded;
            tgi_store_as((tg_dtype)dtype, &rounded, x[k]);
            y.set(k, rounded);
        }
    }
    return y;
}

/* The first `count` elements of a pack; step 0: one element, repeated. */
template <int dtype, int width>
__device__ inline tgi_loaded<dtype, width> tgi_load_part(const void *at, int64_t step, int count)
{
    typedef typename tgi_stored<dtype>::type stored;
    tgi_loaded<dtype, width> x = {};
    if (step == 0) {
        const stored one = *(const stored *)at;
#pragma unroll
        for (int k = 0; k < width; ++k) x.set(k, one);
    } else if (count == width) {
        x.template load<width>(at);
    } else if (2 * count == width) {
        x.template load<width / 2>(at);
    } else {
#pragma unroll
        for (int k = 0; k < width; ++k) {
            if (k >= count) break;
            x.set(k, ((const stored *)at)[k]);
        }
    }
    return x;
}

/* Stores the first `count` elements of a pack. */
template <int dtype, int width>
__device__ inline void tgi_store_part(void *at, const tgi_pack<dtype, width> &x, int count)
{
    typedef typename tgi_stored<dtype>::type stored;
    typedef tgi_pack<dtype, width / 2> half;
    if (count == width) {
        tgi_store_pack(at, x);
    } else if (2 * count == width) {
        half y;
#pragma unroll
        for (int k = 0; k < width / 2; ++k) y.x[k] = x.x[k];
        tgi_store_pack(at, y);
    } else {
#pragma unroll
        for (int k = 0; k < width; ++k) {
            if (k >= count) break;
            ((stored *)at)[k] = x.x[k];
        }
    }
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

/* Each kind of reduction as a type with its identity and the combination of two values, for float, double and int64_t:
   tgi_combine_sum::two(a, x) is a + x. */
#define TGI_COMBINE(name, identity_f64, combination_f64, identity_i64, combination_i64)            \
    struct tgi_combine_##name {                                                                    \
        __device__ static float identity(float) { return (float)(identity_f64); }                  \
        __device__ static double identity(double) { return (double)(identity_f64); }               \
        __device__ static int64_t identity(int64_t) { return (int64_t)(identity_i64); }            \
        __device__ static float two(float a, float x) { return (float)(combination_f64); }         \
        __device__ static double two(double a, double x) { return (double)(combination_f64); }     \
        __device__ static int64_t two(int64_t a, int64_t x) { return (int64_t)(combination_i64); } \
    };
TGI_REDUCTIONS(TGI_COMBINE)

/* Combines one value per thread of the block, in a fixed order: first the 32 lanes of each warp, then the warps'
   results.  All threads of the block call it, and all get the result. */
template <class combine, class real> __device__ inline real tgi_block_combine(real a)
{
    __shared__ real part[32]; /* one result per warp */
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, warps = (int)blockDim.x / 32;
    for (int offset = 16; offset > 0; offset /= 2) a = combine::two(a, __shfl_xor_sync(TGI_FULL_MASK, a, offset));
    __syncthreads(); /* other warps may still read part in the call before */
    if (lane == 0) part[warp] = a;
    __syncthreads();
    a = lane < warps ? part[lane] : combine::identity(real());
    for (int offset = 16; offset > 0; offset /= 2) a = combine::two(a, __shfl_xor_sync(TGI_FULL_MASK, a, offset));
    return a;
}

/* Whether this block is the last one of `count` that call this with the same counter, which is 0 before and after, so
   that a captured launch can run again.  What the others had written to memory by then is there for the last one.  All
   threads of the block call it, and all get the answer. */
__device__ inline bool tgi_arrives_last(unsigned *counter, unsigned count)
{
    __shared__ bool last;
    __threadfence(); /* what this thread has written is written before the block is counted */
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(counter, 1u) + 1 == count;
        if (last) atomicExch(counter, 0u);
    }
    __syncthreads();
    const bool answer = last;
    __threadfence(); /* what the others have written is not read before */
    __syncthreads(); /* before `last` is written again */
    return answer;
}

/* ---- bad indices: see the check of indices, @@INDEX ---- */

/* An index is bad outside [least, size), unless it is `spared`, where spares is true. */
typedef struct {
    int64_t least, size, spared;
    bool spares;
    const char *op; /* this and the next two: for the report */
    int message, axis;
} tgi_index_bounds;

/* Whether this index is bad. */
__device__ inline bool tgi_is_bad_index(const tgi_index_bounds &bounds, int64_t index)
{
    return (index < bounds.least || index >= bounds.size) && !(bounds.spares && index == bounds.spared);
}

/* The end of a check, for all threads of all blocks, after bad->min_position has become the smallest position of a bad
   index: one thread notes it, unless an earlier one has not been reported yet, and leaves min_position and blocks as
   they were before.  index_at(position) is the index. */
template <class formula>
__device__ inline void tgi_note_bad_index(const tgi_index_bounds &bounds, tgi_bad_index *bad, const formula &index_at)
{
    if (!tgi_arrives_last(&bad->blocks, gridDim.x) || threadIdx.x > 0) return; /* no other thread uses *bad any more */
    const unsigned long long first = atomicExch(&bad->min_position, TGI_NO_POSITION);
    if (first == TGI_NO_POSITION || bad->found) return;
    bad->value = index_at((int64_t)first);
    bad->position = (int64_t)first;
    bad->size = bounds.size;
    bad->op = bounds.op;
    bad->message = bounds.message;
    bad->axis = bounds.axis;
    bad->found = 1;
}

/* ---- scans ---- */

/* Inclusive scan over a warp, after Hillis and Steele (1986): a lane adds what the lane 1, 2, 4, .. before has. */
template <class combine, class real> __device__ inline real tgi_warp_scan(real x)
{
    const int lane = (int)threadIdx.x % 32;
    for (int offset = 1; offset < 32; offset *= 2) {
        const real before = __shfl_up_sync(TGI_FULL_MASK, x, offset);
        if (lane >= offset) x = combine::two(before, x);
    }
    return x;
}

/* Inclusive scan over the block: thread t gets x_0 + .. + x_t, of the threads' x, and *total is the sum of all.  The
   first warp scans the sums of the warps.  Products likewise.  All threads of the block call it. */
template <class combine, class real> __device__ inline real tgi_block_scan(real x, real *total)
{
    __shared__ real part[32]; /* of the warps */
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32, warps = (int)blockDim.x / 32;
    x = tgi_warp_scan<combine, real>(x);
    __syncthreads(); /* other threads may still read part in the call before */
    if (lane == 31) part[warp] = x;
    __syncthreads();
    if (warp == 0) {
        const real sum = tgi_warp_scan<combine, real>(lane < warps ? part[lane] : combine::identity(real()));
        part[lane] = sum;
    }
    __syncthreads();
    *total = part[warps - 1];
    return warp ? combine::two(part[warp - 1], x) : x;
}

/* ======== @@ELEMENTWISE =========================================================================================== */

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
#define TGI_FORMULA(name, type, result, number_of, inputs, expression)        \
    template <> struct tgi_formula<TGI_OP_##name, type> {                     \
        enum { exists = 1 };                                                  \
        typedef type real;                                                    \
        typedef result value;                                                 \
        typedef tgi_number<type>::of number;                                  \
        __device__ static value of(TGI_INPUTS_##inputs, number s_, number t_) \
        {                                                                     \
            const real s = number_of(s_), t = number_of(t_);                  \
            const real u = number_of(-t_);                                    \
            (void)s, (void)t, (void)u;                                        \
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
#define TGI_FORMULAS_RANGE TGI_FORMULAS_FLOATS
#define TGI_FORMULAS_VECTOR TGI_FORMULAS_FLOATS
#define TGI_FORMULAS_CALLS TGI_FORMULAS_FLOATS
#define TGI_FORMULAS_WHOLE(name, inputs, y, yi) TGI_FORMULA(name, int64_t, int64_t, tgi_f64_to_i64, inputs, yi)
#define TGI_FORMULAS_ANY(name, inputs, y, yi) \
    TGI_FORMULAS_FLOATS(name, inputs, y, yi)  \
    TGI_FORMULA(name, int64_t, int64_t, tgi_f64_to_i64, inputs, yi)
#define TGI_FORMULAS_POWER TGI_FORMULAS_ANY
#define TGI_FORMULAS_QUOTIENT TGI_FORMULAS_ANY
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

/* Each row of TGI_GRADIENTS in the same way: tgi_gradient<TGI_OP_exp, float>::of(g, x, ..) is the gradient of x, and
   the second input is y where the op saves that. */
template <int op, class real> struct tgi_gradient;
#define TGI_GRADIENT_FORMULA(name, kind, numbers, expression)           \
    template <class real_> struct tgi_gradient<TGI_OP_##name, real_> {  \
        typedef real_ real;                                             \
        typedef real_ value;                                            \
        typedef real_ number;                                           \
        __device__ static real of(real g, real x, real, real s, real t) \
        {                                                               \
            const real y = x;                                           \
            (void)s, (void)t, (void)y;                                  \
            return (expression);                                        \
        }                                                               \
    };
TGI_GRADIENTS(TGI_GRADIENT_FORMULA)

/* The formula y = x, for conversions. */
template <class real_> struct tgi_identity {
    typedef real_ real;
    typedef real_ value;
    typedef typename tgi_number<real_>::of number;
    __device__ static real of(real x, real, real, number, number) { return x; }
};

/* y[i] = formula(a[i], b[i], c[i]), one thread per pack.  The last input has the dtype `last`, those before it
   `from`; y may be one of them.  A pack has 16 bytes in the widest of the dtypes. */
template <class formula, int inputs, int from, int last, int to>
__global__ void tgi_map_packs(const __grid_constant__ tgi_packs p, typename formula::number s,
                              typename formula::number t)
{
    typedef typename formula::real real;
    constexpr int width = tgi_pack_width(tgi_stored<from>::size, tgi_stored<last>::size, tgi_stored<to>::size);
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < p.count; i += gridDim.x * blockDim.x) {
        char *at[inputs + 1];
        tgi_loaded<from, width> x[inputs]; /* the inputs before the last one */
        tgi_pack<to, width> y;
        const int count = tgi_pack_at(p, i, at);
#pragma unroll
        for (int k = 0; k + 1 < inputs; ++k) x[k] = tgi_load_part<from, width>(at[k + 1], p.step[k + 1], count);
        const tgi_loaded<last, width> z = tgi_load_part<last, width>(at[inputs], p.step[inputs], count);
#pragma unroll
        for (int k = 0; k < width; ++k) {
            const typename tgi_stored<last>::type of_last = z.element(k);
            real v[3] = {};
#pragma unroll
            for (int j = 0; j + 1 < inputs; ++j) {
                const typename tgi_stored<from>::type of_input = x[j].element(k);
                v[j] = tgi_load_as<real>((tg_dtype)from, &of_input);
            }
            v[inputs - 1] = tgi_load_as<real>((tg_dtype)last, &of_last);
            tgi_store_as((tg_dtype)to, &y.x[k], (real)formula::of(v[0], v[1], v[2], s, t));
        }
        tgi_store_part<to, width>(at[0], y, count);
    }
}

/* Sets *done and launches it if the operands have dense rows. */
template <class formula, int inputs, int from, int last, int to>
static bool tgi_launch_packs(tgi_thread *S, const tgi_cuda_device *d, const tgi_iter *iter, double s, double t,
                             bool *done)
{
    typedef typename formula::number number;
    constexpr int width = tgi_pack_width(tgi_stored<from>::size, tgi_stored<last>::size, tgi_stored<to>::size);
    tgi_packs packs;
    *done = tgi_packs_init(&packs, iter, width);
    return !*done || tgi_launch_each(S, d, tgi_map_packs<formula, inputs, from, last, to>, packs.count, packs,
                                     (number)s, (number)t);
}

/* The formula of op number `op`, chosen when the kernel runs. */
template <class real, int inputs>
__device__ inline real tgi_formula_of(int op, real a, real b, real c, typename tgi_number<real>::of s,
                                      typename tgi_number<real>::of t)
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
template <class real, int inputs>
__global__ void tgi_map_strided(tgi_iter iter, int op, typename tgi_number<real>::of s, typename tgi_number<real>::of t)
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

/* Functions that networks of 16 bits hardly use.  They have long kernels, and there are no dense ones for 16 bits: each
   of those takes the compiler a tenth of a second. */
#define TGI_OR_RARE(name, ...) || op == TGI_OP_##name
constexpr bool tgi_is_rare(int op)
{
    return op == TGI_OP_expm1 || op == TGI_OP_log2 || op == TGI_OP_log10 || op == TGI_OP_tan || op == TGI_OP_asin ||
           op == TGI_OP_acos || op == TGI_OP_atan || op == TGI_OP_sinh || op == TGI_OP_cosh || op == TGI_OP_atan2 ||
           op == TGI_OP_asinh || op == TGI_OP_acosh || op == TGI_OP_atanh || op == TGI_OP_exp2 || op == TGI_OP_erfc ||
           op == TGI_OP_erfinv || op == TGI_OP_fmod || op == TGI_OP_remainder || op == TGI_OP_floor_divide ||
           op == TGI_OP_hypot || op == TGI_OP_logaddexp ||
           op == TGI_OP_xlogy TGI_SPECIAL_UNARY_OPS(TGI_OR_RARE) TGI_SPECIAL_SCALAR_OPS(TGI_OR_RARE)
               TGI_SPECIAL_BINARY_OPS(TGI_OR_RARE) TGI_SPECIAL_BINARY_SCALAR_OPS(TGI_OR_RARE);
}

/* Chooses the kernel for dense rows by the inputs' dtype, f32 or one of 16 bits.  A test (its result is smaller than
   its inputs) gives bool; the last input of `where` and masked_fill is bool. */
template <class formula, int inputs, bool mask, bool rare>
static bool tgi_map_dense(tgi_thread *S, const tgi_cuda_device *d, const tgi_iter *iter, double s, double t, bool *done)
{
    constexpr bool test = sizeof(typename formula::value) < sizeof(typename formula::real);
#define TGI_MAP_FROM(dtype) \
    tgi_launch_packs<formula, inputs, dtype, mask ? TG_BOOL : dtype, test ? TG_BOOL : dtype>(S, d, iter, s, t, done)
    if (iter->dtype[1] == TG_F32) return TGI_MAP_FROM(TG_F32);
    if constexpr (rare) return true;
    else return iter->dtype[1] == TG_BF16 ? TGI_MAP_FROM(TG_BF16) : TGI_MAP_FROM(TG_F16);
}

/* Whether the operands of a loop have dense rows and the dtypes for which there are kernels with packs: the inputs have
   the dtype in which it computes, or 16 bits; the output has theirs, or bool in a test. */
static bool tgi_is_dense_map(const tgi_loop *loop, const tgi_iter *iter, bool test, bool mask)
{
    const tg_dtype from = iter->dtype[1], compute = loop->compute;
    if (from != compute && !(compute == TG_F32 && (from == TG_BF16 || from == TG_F16))) return false;
    for (int k = 0; k < iter->nargs; ++k) {
        const bool flag = k == 0 ? test : mask && k + 1 == iter->nargs;
        if (iter->dtype[k] != (flag ? TG_BOOL : from)) return false;
    }
    return tgi_has_dense_rows(iter);
}

/* map in one compute dtype: one kernel per op where the rows are dense and it computes in f32, else the kernel for any
   strides and dtypes.  Gradient checks in f64 and sums of indices are not worth 127 more kernels, which took a tenth of
   the compiler's time. */
template <int compute>
static bool tgi_map_as(tgi_thread *S, const tgi_cuda_device *d, const tgi_loop *loop, const tgi_iter *iter)
{
    typedef typename tgi_computed<compute>::type real;
    typedef typename tgi_number<real>::of number;
    constexpr bool packs = compute == TG_F32;
    bool exists = false, test = false, done = false;
    const bool mask = loop->kernel == TGI_OP_where || loop->kernel == TGI_OP_masked_fill;
#define TGI_ROW_EXISTS(name, kind, ...)                    \
    case TGI_OP_##name:                                    \
        exists = tgi_formula<TGI_OP_##name, real>::exists; \
        test = TGI_IS_##kind;                              \
        break;
#define TGI_IS_FLOATS false
#define TGI_IS_CHOICE false
#define TGI_IS_RANGE false
#define TGI_IS_VECTOR false
#define TGI_IS_CALLS false
#define TGI_IS_WHOLE false
#define TGI_IS_POWER false
#define TGI_IS_QUOTIENT false
#define TGI_IS_ANY false
#define TGI_IS_TEST true
    switch (loop->kernel) {
        TGI_OPS_OF_1(TGI_ROW_EXISTS) TGI_OPS_OF_2(TGI_ROW_EXISTS) TGI_OPS_OF_3(TGI_ROW_EXISTS)
    }
    if (!exists)
        return tgi_host_api.fail(S, TG_ERR_UNSUPPORTED, "map", "no kernel of op %d computes in %s", loop->kernel,
                                 tgi_dtypes[loop->compute].name);
    const double s = loop->scalar[0], t = loop->scalar[1];
#define TGI_MAP_DENSE(inputs, name)                                                                         \
    case TGI_OP_##name:                                                                                     \
        if constexpr (packs && tgi_formula<TGI_OP_##name, real>::exists) {                                  \
            constexpr bool has_mask = TGI_OP_##name == TGI_OP_where || TGI_OP_##name == TGI_OP_masked_fill; \
            typedef tgi_formula<TGI_OP_##name, real> formula;                                               \
            constexpr bool rare = tgi_is_rare(TGI_OP_##name);                                               \
            ok = tgi_map_dense<formula, inputs, has_mask, rare>(S, d, iter, s, t, &done);                   \
        }                                                                                                   \
        break;
#define TGI_MAP_DENSE_1(name, ...) TGI_MAP_DENSE(1, name)
#define TGI_MAP_DENSE_2(name, ...) TGI_MAP_DENSE(2, name)
#define TGI_MAP_DENSE_3(name, ...) TGI_MAP_DENSE(3, name)
    bool ok = true;
    if (packs && tgi_is_dense_map(loop, iter, test, mask)) {
        switch (loop->kernel) {
            TGI_OPS_OF_1(TGI_MAP_DENSE_1) TGI_OPS_OF_2(TGI_MAP_DENSE_2) TGI_OPS_OF_3(TGI_MAP_DENSE_3)
        }
    }
    if (done || !ok) return ok;
    void (*const strided[])(tgi_iter, int, number, number) = {tgi_map_strided<real, 1>, tgi_map_strided<real, 2>,
                                                              tgi_map_strided<real, 3>};
    return tgi_launch_each(S, d, strided[iter->nargs - 2], iter->numel, *iter, loop->kernel, (number)s, (number)t);
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

/* Chooses the kernel by the dtype of x. */
template <int op>
static bool tgi_map_gradient(tgi_thread *S, const tgi_cuda_device *d, const tgi_loop *loop, const tgi_iter *iter,
                             bool *done)
{
    typedef tgi_gradient<op, float> formula;
    const double s = loop->scalar[0], t = loop->scalar[1];
    switch ((int)iter->dtype[0]) {
    case TG_F32: return tgi_launch_packs<formula, 2, TG_F32, TG_F32, TG_F32>(S, d, iter, s, t, done);
    case TG_BF16: return tgi_launch_packs<formula, 2, TG_BF16, TG_BF16, TG_BF16>(S, d, iter, s, t, done);
    default: return tgi_launch_packs<formula, 2, TG_F16, TG_F16, TG_F16>(S, d, iter, s, t, done);
    }
}

/* One kernel where the rows are dense and the dtype is not f64; else the rule composes the gradient. */
static tgi_answer tgi_cuda_map_gradient(tgi_thread *S, const tgi_loop *loop)
{
    const tgi_cuda_device *d = tgi_device_for(S, loop->arg[0].index);
    bool ok = true, done = false;
    tgi_iter iter;
    tgi_iter_init(&iter, loop->ndim, loop->dim, loop->nargs, loop->arg, true);
    if (!d) return TGI_FAILED;
    if (iter.numel == 0) return TGI_DONE;
    if (loop->compute != TG_F32 || !tgi_is_dense_map(loop, &iter, false, false)) return TGI_COMPOSE;
#define TGI_MAP_GRADIENT(name, ...) \
    case TGI_OP_##name: ok = tgi_map_gradient<TGI_OP_##name>(S, d, loop, &iter, &done); break;
    switch (loop->kernel) {
        TGI_GRADIENTS(TGI_MAP_GRADIENT)
    }
    return !ok ? TGI_FAILED : done ? TGI_DONE : TGI_COMPOSE;
}

/* glu is composed. */
static tgi_answer tgi_cuda_gate(tgi_thread *, const tgi_loop *) { return TGI_COMPOSE; }

/* ======== @@WRITE ================================================================================================= */

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

/* The same for rows of words of 1 to 16 bytes, one thread per word.  A row in which the elements lie side by side on
   both sides is one of words as long as its places and its length allow. */
template <class word> __global__ void tgi_copy_words(const __grid_constant__ tgi_packs p)
{
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < p.count; i += gridDim.x * blockDim.x) {
        char *at[2];
        tgi_pack_at(p, i, at);
        *(word *)(void *)at[0] = *(const word *)(const void *)at[1];
    }
}

/* A transpose: y has its elements side by side along the columns, x along the rows.  It goes by square tiles in shared
   memory, so that the threads of a warp read and write neighbours:

       x [columns, rows]       tile       y [rows, columns]
       a d g                   a d g      a b c
       b e h         rows of x  b e h  columns of the tile
       c f i         into it    c f i      d e f  ..

   A row of the tile is one word of memory longer than the side: the elements of its columns are in different banks. */
typedef struct {
    const char *x;
    char *y;
    int64_t rows, columns, row_tiles, column_tiles, tiles; /* tiles: for all other dims, too */
    int64_t x_column, y_row;                               /* in bytes */
    int ndim;                                              /* the other dims */
    int64_t dim[TG_MAX_DIMS], x_stride[TG_MAX_DIMS], y_stride[TG_MAX_DIMS];
} tgi_transpose;

/* One block per tile. */
template <class word> __global__ void tgi_copy_tiles(const __grid_constant__ tgi_transpose t)
{
    constexpr int size = (int)sizeof(word), side = size < 4 ? 64 : 32, per_round = TGI_BLOCK / side;
    __shared__ word tile[side][side + (size < 4 ? 4 / size : 1)];
    const int lane = (int)threadIdx.x % side, first = (int)threadIdx.x / side;
    for (int64_t i = blockIdx.x; i < t.tiles; i += gridDim.x) {
        int64_t rest = i;
        const int64_t row = tgi_pop_index(&rest, t.row_tiles) * side,
                      column = tgi_pop_index(&rest, t.column_tiles) * side;
        const char *x = t.x + row * size + column * t.x_column;
        char *y = t.y + row * t.y_row + column * size;
        for (int d = t.ndim - 1; d >= 0; --d) {
            const int64_t index = tgi_pop_index(&rest, t.dim[d]);
            x += index * t.x_stride[d];
            y += index * t.y_stride[d];
        }
#pragma unroll 4
        for (int k = 0; k < side; k += per_round) {
            const int c = k + first;
            if (row + lane < t.rows && column + c < t.columns)
                tile[c][lane] = *(const word *)(const void *)(x + lane * size + c * t.x_column);
        }
        __syncthreads();
#pragma unroll 4
        for (int k = 0; k < side; k += per_round) {
            const int r = k + first;
            if (row + r < t.rows && column + lane < t.columns)
                *(word *)(void *)(y + r * t.y_row + lane * size) = tile[lane][r];
        }
        __syncthreads(); /* before the tile is written again */
    }
}

/* Sets *t if the loop is a transpose, with at least 8 rows and 8 columns. */
static bool tgi_is_transpose(const tgi_iter *iter, tgi_transpose *t)
{
    const int c = iter->ndim - 1;
    const int64_t size = tgi_bytes_of(iter->dtype[0]), side = size < 4 ? 64 : 32;
    int r = 0;
    while (r < c && iter->stride[1][r] != size) ++r;
    if (r == c || iter->stride[0][c] != size || iter->dim[r] < 8 || iter->dim[c] < 8) return false;
    memset(t, 0, sizeof *t);
    t->x = iter->data[1];
    t->y = iter->data[0];
    t->rows = iter->dim[r];
    t->columns = iter->dim[c];
    t->x_column = iter->stride[1][c];
    t->y_row = iter->stride[0][r];
    t->row_tiles = (t->rows + side - 1) / side;
    t->column_tiles = (t->columns + side - 1) / side;
    t->tiles = t->row_tiles * t->column_tiles;
    for (int d = 0; d < c; ++d) {
        if (d == r) continue;
        t->tiles *= t->dim[t->ndim] = iter->dim[d];
        t->x_stride[t->ndim] = iter->stride[1][d];
        t->y_stride[t->ndim++] = iter->stride[0][d];
    }
    return true;
}

static bool tgi_copy_same(tgi_thread *S, const tgi_cuda_device *d, const tgi_iter *iter)
{
    const int inner = iter->ndim - 1;
    int64_t word = tgi_bytes_of(iter->dtype[0]);
    tgi_iter words = *iter;
    tgi_packs packs;
    tgi_transpose t;
    if (tgi_is_transpose(iter, &t)) {
        void (*const tiles)(tgi_transpose) = word == 1   ? tgi_copy_tiles<uint8_t>
                                             : word == 2 ? tgi_copy_tiles<uint16_t>
                                             : word == 4 ? tgi_copy_tiles<uint32_t>
                                                         : tgi_copy_tiles<uint64_t>;
        return tgi_launch(S, d, tiles, t.tiles, TGI_BLOCK, t);
    }
    for (; word < TGI_PACK_BYTES && words.stride[0][inner] == word && words.stride[1][inner] == word; word *= 2) {
        bool fits = words.dim[inner] % 2 == 0;
        for (int k = 0; k < 2; ++k) {
            uint64_t places = (uintptr_t)words.data[k];
            for (int e = 0; e < inner; ++e) places |= (uint64_t)words.stride[k][e];
            fits = fits && places % (uint64_t)(2 * word) == 0;
        }
        if (!fits) break;
        words.dim[inner] /= 2;
        words.stride[0][inner] = words.stride[1][inner] = 2 * word;
    }
    if (tgi_packs_init(&packs, &words, 1)) {
        switch (word) {
        case 1: return tgi_launch_each(S, d, tgi_copy_words<uint8_t>, packs.count, packs);
        case 2: return tgi_launch_each(S, d, tgi_copy_words<uint16_t>, packs.count, packs);
        case 4: return tgi_launch_each(S, d, tgi_copy_words<uint32_t>, packs.count, packs);
        case 8: return tgi_launch_each(S, d, tgi_copy_words<uint64_t>, packs.count, packs);
        default: return tgi_launch_each(S, d, tgi_copy_words<tgi_pack<TG_I64, 2>>, packs.count, packs);
        }
    }
    switch (tgi_bytes_of(iter->dtype[0])) {
    case 1: return tgi_launch_each(S, d, tgi_copy_bits<uint8_t>, iter->numel, *iter);
    case 2: return tgi_launch_each(S, d, tgi_copy_bits<uint16_t>, iter->numel, *iter);
    case 4: return tgi_launch_each(S, d, tgi_copy_bits<uint32_t>, iter->numel, *iter);
    default: return tgi_launch_each(S, d, tgi_copy_bits<uint64_t>, iter->numel, *iter);
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

/* The dtypes that networks compute in. */
constexpr bool tgi_is_low_or_f32(int dtype) { return dtype == TG_F32 || dtype == TG_BF16 || dtype == TG_F16; }

/* Chooses the kernel by the dtype of y.  There is none where neither x nor y has a dtype that networks compute in. */
template <int from>
static bool tgi_convert_dense(tgi_thread *S, const tgi_cuda_device *d, const tgi_iter *iter, bool *done)
{
    typedef tgi_identity<typename tgi_computed<from>::type> identity;
#define TGI_CONVERT_TO(name, ...)                                                                             \
    case TGI_AS_##name:                                                                                       \
        if constexpr (from != TGI_AS_##name && (tgi_is_low_or_f32(from) || tgi_is_low_or_f32(TGI_AS_##name))) \
            return tgi_launch_packs<identity, 1, from, from, TGI_AS_##name>(S, d, iter, 0, 0, done);          \
        break;
    switch ((int)iter->dtype[0]) {
        TGI_ELEMENTS(TGI_CONVERT_TO)
    }
    return true;
}

/* Whether operand k is contiguous over the loop. */
static bool tgi_is_flat(const tgi_iter *iter, int k)
{
    int64_t stride = tgi_bytes_of(iter->dtype[k]);
    for (int d = iter->ndim - 1; d >= 0; stride *= iter->dim[d], --d) {
        if (iter->stride[k][d] != stride) return false;
    }
    return true;
}

static bool tgi_cuda_copy(tgi_thread *S, const tgi_loop *loop)
{
    const tgi_cuda_device *d = tgi_device_for(S, loop->arg[0].index);
    const tg_dtype to = loop->arg[0].dtype, from = loop->arg[1].dtype;
    tgi_iter iter;
    tgi_iter_init(&iter, loop->ndim, loop->dim, 2, loop->arg, true);
    if (!d) return false;
    if (iter.numel == 0) return true;
    if (to == from && tgi_is_flat(&iter, 0) && tgi_is_flat(&iter, 1)) {
        return TGI_CUDA(cudaMemcpyAsync(iter.data[0], iter.data[1], (size_t)(iter.numel * tgi_bytes_of(to)),
                                        cudaMemcpyDeviceToDevice, d->stream));
    }
    if (to == from) return tgi_copy_same(S, d, &iter);
    bool ok = true, done = false;
#define TGI_CONVERT_FROM(name, ...) \
    case TGI_AS_##name: ok = tgi_convert_dense<TGI_AS_##name>(S, d, &iter, &done); break;
    if (tgi_has_dense_rows(&iter)) {
        switch ((int)from) {
            TGI_ELEMENTS(TGI_CONVERT_FROM)
        }
    }
    if (done || !ok) return ok;
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

/* ---- pairs that are sorted, for accumulate, sort, scatter and the gradient of an embedding ---- */

/* Pairs of a key and an index, [rows, length]: each row is sorted by key, and pairs with equal keys keep their order.
   Keys and indices are numbers of 32 bits where both fit, and of 64 otherwise. */
typedef struct {
    void *key, *index; /* [rows, length], uint32_t, or uint64_t if wide */
    int64_t rows, length;
    bool wide;
} tgi_pairs;

__device__ inline uint64_t tgi_pair_key(const tgi_pairs &p, int64_t i)
{
    return p.wide ? ((const uint64_t *)p.key)[i] : ((const uint32_t *)p.key)[i];
}

__device__ inline int64_t tgi_pair_index(const tgi_pairs &p, int64_t i)
{
    return p.wide ? (int64_t)((const uint64_t *)p.index)[i] : (int64_t)((const uint32_t *)p.index)[i];
}

__device__ inline void tgi_set_pair(const tgi_pairs &p, int64_t i, uint64_t key, int64_t index)
{
    if (p.wide) {
        ((uint64_t *)p.key)[i] = key;
        ((uint64_t *)p.index)[i] = (uint64_t)index;
    } else {
        ((uint32_t *)p.key)[i] = (uint32_t)key;
        ((uint32_t *)p.index)[i] = (uint32_t)index;
    }
}

/* ---- short rows: a bitonic network in shared memory ---- */

enum { TGI_RUN = 2 * TGI_BLOCK };

/* Sorts rows of TGI_RUN pairs at most, in place.  One block per row; in each step of the network a thread compares two
   pairs and exchanges them if they are in the wrong order.  Equal keys are compared by their place in the row. */
template <class word> __global__ void tgi_sort_runs(tgi_pairs p)
{
    __shared__ word key[TGI_RUN], index[TGI_RUN];
    __shared__ int place[TGI_RUN];
    for (int64_t row = blockIdx.x; row < p.rows; row += gridDim.x) {
        word *const keys = (word *)p.key + row * p.length, *const indices = (word *)p.index + row * p.length;
        for (int i = (int)threadIdx.x; i < TGI_RUN; i += TGI_BLOCK) { /* padding sorts last */
            key[i] = i < p.length ? keys[i] : ~(word)0;
            index[i] = i < p.length ? indices[i] : 0;
            place[i] = i;
        }
        for (int size = 2; size <= TGI_RUN; size *= 2) {
            for (int distance = size / 2; distance > 0; distance /= 2) {
                const int t = (int)threadIdx.x, i = 2 * t - (t & (distance - 1)), j = i + distance;
                __syncthreads();
                const word a = key[i], b = key[j], a_index = index[i];
                const int a_place = place[i];
                if ((b < a || (b == a && place[j] < a_place)) == ((i & size) == 0)) {
                    key[i] = b, index[i] = index[j], place[i] = place[j];
                    key[j] = a, index[j] = a_index, place[j] = a_place;
                }
            }
        }
        __syncthreads();
        for (int i = (int)threadIdx.x; i < TGI_RUN && i < p.length; i += TGI_BLOCK) {
            keys[i] = key[i];
            indices[i] = index[i];
        }
        __syncthreads();
    }
}

/* ---- long rows: a radix sort ----

   The pairs are sorted by the lowest byte of the key, then, stably, by the next one, and so on: at the end they are in
   order.  A row is cut into tiles of TGI_RADIX_TILE pairs, one block each.  For each byte, which is a digit of the key:
   tgi_radix_count counts the pairs of each tile with each digit, tgi_radix_scan adds up the counts of the tiles before,
   and tgi_radix_move, which then knows where the pairs of a tile with a digit go, moves them there. */
enum { TGI_DIGITS = 256, TGI_RADIX_EACH = 8, TGI_RADIX_TILE = TGI_RADIX_EACH * TGI_BLOCK };

/* counts [rows, digits, tiles] */
template <class word> __global__ void tgi_radix_count(tgi_pairs p, int shift, word *counts)
{
    __shared__ unsigned count[TGI_DIGITS];
    const int t = (int)threadIdx.x;
    const int64_t tiles = (p.length + TGI_RADIX_TILE - 1) / TGI_RADIX_TILE;
    for (int64_t item = blockIdx.x; item < p.rows * tiles; item += gridDim.x) {
        const int64_t row = item / tiles, tile = item % tiles, start = tile * TGI_RADIX_TILE;
        const word *const key = (const word *)p.key + row * p.length + start;
        count[t] = 0;
        __syncthreads();
        for (int i = t; i < TGI_RADIX_TILE && i < p.length - start; i += TGI_BLOCK)
            atomicAdd(&count[key[i] >> shift & (TGI_DIGITS - 1)], 1u); /* whole numbers: the order does not matter */
        __syncthreads();
        counts[(row * TGI_DIGITS + t) * tiles + tile] = count[t];
    }
}

/* counts: those of a digit in all tiles before; totals [rows, digits]: in all tiles.  One block per row and digit. */
template <class word> __global__ void tgi_radix_scan(word *counts, word *totals, int64_t items, int64_t tiles)
{
    for (int64_t item = blockIdx.x; item < items; item += gridDim.x) {
        int64_t before = 0, total;
        for (int64_t start = 0; start < tiles; start += TGI_BLOCK) {
            word *const count = counts + item * tiles + start + threadIdx.x;
            const int64_t n = start + threadIdx.x < tiles ? (int64_t)*count : 0;
            const int64_t sum = tgi_block_scan<tgi_combine_sum>(n, &total);
            if (start + threadIdx.x < tiles) *count = (word)(before + sum - n);
            before += total;
        }
        if (threadIdx.x == 0) totals[item] = (word)before;
    }
}

/* The lanes of the warp whose digit is that of this lane. */
__device__ inline unsigned tgi_lanes_like(unsigned digit, bool valid)
{
    unsigned like = __ballot_sync(TGI_FULL_MASK, valid);
    for (int bit = 0; bit < 8; ++bit) {
        const bool set = (digit >> bit & 1) != 0;
        const unsigned lanes = __ballot_sync(TGI_FULL_MASK, set);
        like &= set ? lanes : ~lanes;
    }
    return like;
}

/* Moves the pairs of each tile to their places in `to`.  Warp w has pairs 256 w .. 256 w + 255 of the tile, 32 at a
   time, so that the pairs before one of them with the same digit are: those in the warps before, those that the warp
   has counted so far, and those in lower lanes.  The tile is put in order in shared memory first, so that neighbouring
   threads write to neighbouring places.  before: NULL if there is one tile. */
template <class word>
__global__ void tgi_radix_move(tgi_pairs to, tgi_pairs from, int shift, const word *before, const word *totals)
{
    __shared__ word key[TGI_RADIX_TILE], index[TGI_RADIX_TILE];
    __shared__ word begin[TGI_DIGITS];                /* of the digit, in the row */
    __shared__ int first[TGI_DIGITS];                 /* of the digit, in the tile */
    __shared__ int count[TGI_BLOCK / 32][TGI_DIGITS]; /* by warp; then: in the warps before */
    const int t = (int)threadIdx.x, lane = t % 32, warp = t / 32;
    const int64_t tiles = (from.length + TGI_RADIX_TILE - 1) / TGI_RADIX_TILE;
    for (int64_t item = blockIdx.x; item < from.rows * tiles; item += gridDim.x) {
        const int64_t row = item / tiles, tile = item % tiles, start = tile * TGI_RADIX_TILE;
        const word *const keys = (const word *)from.key + row * from.length + start;
        const word *const indices = (const word *)from.index + row * from.length + start;
        const int n = from.length - start < TGI_RADIX_TILE ? (int)(from.length - start) : (int)TGI_RADIX_TILE;
        word mine[TGI_RADIX_EACH];
        int rank[TGI_RADIX_EACH];
        for (int w = 0; w < TGI_BLOCK / 32; ++w) count[w][t] = 0;
        __syncthreads();
#pragma unroll
        for (int k = 0; k < TGI_RADIX_EACH; ++k) {
            const int i = warp * 32 * TGI_RADIX_EACH + k * 32 + lane;
            mine[k] = i < n ? keys[i] : 0;
            const unsigned digit = (unsigned)(mine[k] >> shift) & (TGI_DIGITS - 1);
            const unsigned like = tgi_lanes_like(digit, i < n), lower = like & ((1u << lane) - 1);
            rank[k] = count[warp][digit] + __popc(lower);
            __syncwarp();
            if (i < n && lower == 0) count[warp][digit] = rank[k] + __popc(like);
            __syncwarp();
        }
        __syncthreads();
        int sum = 0; /* of digit t */
        for (int w = 0; w < TGI_BLOCK / 32; ++w) {
            const int of_warp = count[w][t];
            count[w][t] = sum;
            sum += of_warp;
        }
        int64_t unused;
        const int64_t digit_total = (int64_t)totals[row * TGI_DIGITS + t];
        first[t] = (int)tgi_block_scan<tgi_combine_sum, int64_t>(sum, &unused) - sum;
        begin[t] = (word)(tgi_block_scan<tgi_combine_sum, int64_t>(digit_total, &unused) - digit_total +
                          (before ? (int64_t)before[(row * TGI_DIGITS + t) * tiles + tile] : 0));
        __syncthreads();
#pragma unroll
        for (int k = 0; k < TGI_RADIX_EACH; ++k) {
            const int i = warp * 32 * TGI_RADIX_EACH + k * 32 + lane;
            if (i >= n) continue;
            const unsigned digit = (unsigned)(mine[k] >> shift) & (TGI_DIGITS - 1);
            const int place = first[digit] + count[warp][digit] + rank[k];
            key[place] = mine[k];
            index[place] = indices[i];
        }
        __syncthreads();
        for (int i = t; i < n; i += TGI_BLOCK) {
            const unsigned digit = (unsigned)(key[i] >> shift) & (TGI_DIGITS - 1);
            const int64_t place = row * from.length + (int64_t)begin[digit] + i - first[digit];
            ((word *)to.key)[place] = key[i];
            ((word *)to.index)[place] = index[i];
        }
        __syncthreads(); /* before all of it is written again */
    }
}

/* ---- both ---- */

/* Memory for a sort: the pairs, which kernels fill, a copy of them, and the counts. */
typedef struct {
    tgi_pairs pairs, other;
    void *counts, *totals; /* NULL for short rows */
    int64_t tiles;
    int bytes; /* of a key that can differ from 0 */
} tgi_sort_job;

/* For keys of at most `most`.  The memory begins at pairs.key; the caller releases it. */
static bool tgi_sort_begin(tgi_thread *S, tgi_cuda_device *d, const char *op, tgi_sort_job *job, int64_t rows,
                           int64_t length, uint64_t most)
{
    const bool wide = most > UINT32_MAX || length > UINT32_MAX;
    const int64_t n = rows * length, word = wide ? 8 : 4;
    job->tiles = length > TGI_RUN ? (length + TGI_RADIX_TILE - 1) / TGI_RADIX_TILE : 0;
    job->bytes = 1;
    while (job->bytes < 8 && most >> (8 * job->bytes)) job->bytes++;
    const int64_t counts = rows * TGI_DIGITS * job->tiles, totals = job->tiles > 1 ? rows * TGI_DIGITS : 0;
    char *const memory = (char *)tgi_scratch_alloc(S, d, op, (job->tiles ? 4 : 2) * n + counts + totals, (size_t)word);
    if (!memory) return false;
    const tgi_pairs pairs = {memory, memory + n * word, rows, length, wide};
    const tgi_pairs other = {memory + 2 * n * word, memory + 3 * n * word, rows, length, wide};
    job->pairs = pairs;
    job->other = other;
    job->counts = memory + 4 * n * word;
    job->totals = memory + (4 * n + counts) * word;
    return true;
}

template <class word> static bool tgi_sort_words(tgi_thread *S, const tgi_cuda_device *d, tgi_sort_job *job)
{
    const int64_t rows = job->pairs.rows, items = rows * job->tiles;
    word *const counts = (word *)job->counts, *const totals = job->tiles > 1 ? (word *)job->totals : counts;
    if (!job->tiles) return tgi_launch(S, d, tgi_sort_runs<word>, rows, TGI_BLOCK, job->pairs);
    for (int byte = 0; byte < job->bytes; ++byte) {
        const tgi_pairs from = job->pairs;
        if (!tgi_launch(S, d, tgi_radix_count<word>, items, TGI_BLOCK, from, 8 * byte, counts) ||
            (job->tiles > 1 && !tgi_launch(S, d, tgi_radix_scan<word>, rows * TGI_DIGITS, TGI_BLOCK, counts, totals,
                                           rows * TGI_DIGITS, job->tiles)) ||
            !tgi_launch(S, d, tgi_radix_move<word>, items, TGI_BLOCK, job->other, from, 8 * byte,
                        job->tiles > 1 ? counts : (word *)NULL, totals)) {
            return false;
        }
        job->pairs = job->other;
        job->other = from;
    }
    return true;
}

/* Sorts job->pairs, which may then be in the other half of the memory. */
static bool tgi_sort_pairs(tgi_thread *S, const tgi_cuda_device *d, tgi_sort_job *job)
{
    return job->pairs.wide ? tgi_sort_words<uint64_t>(S, d, job) : tgi_sort_words<uint32_t>(S, d, job);
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

__host__ __device__ inline int tgi_key_bits(tg_dtype dtype)
{
    return dtype == TG_F16 ? 19 : 8 * (int)tgi_size_of(dtype);
}

/* The same in few bits, for dtypes of 4 bytes and less: those of tgi_key_bits. */
__device__ inline uint32_t tgi_small_key_of(tg_dtype dtype, const void *at)
{
    const uint32_t sign = (uint32_t)1 << 31;
    if (!tgi_is_floating(dtype)) {
        const int unused = 32 - tgi_key_bits(dtype);
        const uint32_t x = (uint32_t)tgi_load_as<int64_t>(dtype, at);
        return ((x ^ (tgi_is_signed(dtype) ? sign >> unused : 0)) << unused) >> unused;
    }
    const float x = tgi_load_as<float>(dtype, at) + 0.0f;
    const uint32_t bits = __float_as_uint(x), key = x != x ? UINT32_MAX : bits & sign ? ~bits : bits | sign;
    return dtype == TG_BF16 ? key >> 16 : dtype == TG_F16 ? key >> 13 : key; /* f32 has that many more digits */
}

/* ---- sums over equal keys, and products and extremes, which `combine` makes of two in place of a sum ----

   Sorted pairs [rows, length] say which element of `from` (the index) is added to which of `to` (the key), for each of
   `columns` columns.  The pairs of a row are cut into segments of TGI_SEGMENT.  One thread adds the elements with the
   same key in a segment, in order; neighbouring threads have neighbouring columns.  Where a key goes on in the next
   segment, the sums of the segments are kept, and a block adds them up in a second launch: no thread has a long way,
   however often a key comes, and the order is always the same.

       keys   2 2 3 3 | 3 3 3 3 | 3 5 5 6 |      segments of 4; key 3 is in three of them
              --- ~~~   ~~~~~~~   ~ --- -        --- added at once, ~~~ kept in `partial` and joined */
enum { TGI_SEGMENT = 64 };

/* Where the elements are.  One of three: operands 0 (to) and 1 (from) of iter, a loop over the rows or columns, with a
   step from element to element; the same by_element: iter leads to the element of from that the index says; or tables,
   of contiguous rows of packs. */
typedef struct {
    tgi_iter iter;
    bool by_element;
    int64_t to_step, from_step; /* in bytes */
} tgi_strided_places;

template <class real_, class combine = tgi_combine_sum> struct tgi_places_any {
    typedef real_ real;
    enum { width = 1, fresh = false }; /* fresh: what is added to is 0, and need not be read */
    tgi_strided_places at;
    __device__ char *to(int64_t key, int64_t item) const
    {
        char *place[1];
        tgi_element_addresses(at.iter, at.by_element ? 0 : item, place);
        return place[0] + key * at.to_step;
    }
    __device__ const char *from(int64_t index, int64_t item) const
    {
        char *place[2];
        tgi_element_addresses(at.iter, at.by_element ? index : item, place);
        return at.by_element ? place[1] : place[1] + index * at.from_step;
    }
    __device__ void load(const char *place, real (&x)[1]) const
    {
        x[0] = tgi_load_as<real>(at.iter.dtype[0], place);
    }
    __device__ void store(char *place, const real (&x)[1]) const { tgi_store_as(at.iter.dtype[0], place, x[0]); }
    __device__ static real none() { return combine::identity(real()); }
    __device__ static real two(real a, real x) { return combine::two(a, x); }
};

template <int dtype, int width_> struct tgi_places_table {
    typedef typename tgi_computed<dtype>::type real;
    typedef tgi_pack<dtype, width_> pack;
    enum { width = width_, fresh = true };
    char *table;      /* [keys, columns] packs, of zeros */
    const char *rows; /* [indices, columns] packs */
    int64_t columns;
    __device__ char *to(int64_t key, int64_t column) const
    {
        return table + (key * columns + column) * (int64_t)sizeof(pack);
    }
    __device__ const char *from(int64_t index, int64_t column) const
    {
        return rows + (index * columns + column) * (int64_t)sizeof(pack);
    }
    __device__ void load(const char *place, real (&x)[width]) const
    {
        const pack p = tgi_load_pack<pack>(place);
#pragma unroll
        for (int w = 0; w < width; ++w) x[w] = tgi_load_as<real>((tg_dtype)dtype, &p.x[w]);
    }
    __device__ void store(char *place, const real (&x)[width]) const
    {
        pack p;
#pragma unroll
        for (int w = 0; w < width; ++w) tgi_store_as((tg_dtype)dtype, &p.x[w], x[w]);
        tgi_store_pack(place, p);
    }
    __device__ static real none() { return 0; }
    __device__ static real two(real a, real x) { return a + x; }
};

/* The sums of segments: partial [rows, segments, 2, columns, width].  Of each segment: 0 the sum of the key it begins
   with, 1 that of the key it ends with if that is another one; only those that go on in other segments are written. */
template <class places>
__global__ void tgi_add_segments(places at, tgi_pairs p, int64_t columns, int64_t keys, typename places::real *partial)
{
    typedef typename places::real real;
    const int64_t segments = (p.length + TGI_SEGMENT - 1) / TGI_SEGMENT;
    for (int64_t e = tgi_grid_thread(); e < p.rows * p.length * columns; e += tgi_grid_size()) {
        int64_t row = e;
        const int64_t column = tgi_pop_index(&row, columns), i = tgi_pop_index(&row, p.length);
        const int64_t first = row * p.length, segment = i / TGI_SEGMENT;
        const int64_t item = p.rows > 1 ? row : column;
        const uint64_t key = tgi_pair_key(p, first + i);
        const bool begins = i == 0 || tgi_pair_key(p, first + i - 1) != key;
        if (key >= (uint64_t)keys || (!begins && i % TGI_SEGMENT != 0)) continue;
        const int64_t left = p.length - segment * TGI_SEGMENT;
        const int64_t end = left < TGI_SEGMENT ? p.length : (segment + 1) * TGI_SEGMENT;
        real sum[places::width], x[places::width];
        int64_t j = i;
#pragma unroll
        for (int w = 0; w < places::width; ++w) sum[w] = places::none();
        if (begins && !places::fresh) at.load(at.to((int64_t)key, item), sum);
        do {
            at.load(at.from(tgi_pair_index(p, first + j), item), x);
#pragma unroll
            for (int w = 0; w < places::width; ++w) sum[w] = places::two(sum[w], x[w]);
        } while (++j < end && tgi_pair_key(p, first + j) == key);
        const bool ends = j == p.length || tgi_pair_key(p, first + j) != key;
        if (begins && ends) {
            at.store(at.to((int64_t)key, item), sum);
            continue;
        }
        const int64_t slot = (row * segments + segment) * 2 + (i % TGI_SEGMENT != 0);
#pragma unroll
        for (int w = 0; w < places::width; ++w) partial[(slot * columns + column) * places::width + w] = sum[w];
    }
}

/* Joins the sums of a key that goes on in other segments.  One block for each segment in which one begins that does,
   and for each `lanes` columns: the threads of a column share the segments. */
template <class places>
__global__ void tgi_join_segments(places at, tgi_pairs p, int64_t columns, int64_t keys,
                                  const typename places::real *partial, int lanes)
{
    typedef typename places::real real;
    __shared__ real part[places::width][TGI_BLOCK];
    const int t = (int)threadIdx.x, y = t / lanes, threads = TGI_BLOCK / lanes;
    const int64_t segments = (p.length + TGI_SEGMENT - 1) / TGI_SEGMENT, tiles = (columns + lanes - 1) / lanes;
    for (int64_t item = blockIdx.x; item < p.rows * segments * tiles; item += gridDim.x) {
        const int64_t row = item / tiles / segments, segment = item / tiles % segments, start = row * p.length;
        const int64_t column = item % tiles * lanes + t % lanes, next = (segment + 1) * TGI_SEGMENT;
        if (next >= p.length) continue;
        const uint64_t key = tgi_pair_key(p, start + next);
        const int64_t first = next - TGI_SEGMENT;
        const bool whole = tgi_pair_key(p, start + first) == key; /* all of the segment has this key */
        if (key >= (uint64_t)keys || tgi_pair_key(p, start + next - 1) != key) continue;
        if (whole && first > 0 && tgi_pair_key(p, start + first - 1) == key) continue; /* it began before */
        int64_t low = segment + 2, high = segments; /* the first segment that begins with another key */
        while (low < high) {
            const int64_t half = low + (high - low) / 2;
            if (tgi_pair_key(p, start + half * TGI_SEGMENT) == key)
                low = half + 1;
            else
                high = half;
        }
        const real *const of_row = partial + row * segments * 2 * columns * places::width;
        real sum[places::width];
#pragma unroll
        for (int w = 0; w < places::width; ++w) sum[w] = places::none();
        for (int64_t s = segment + 1 + y; s < low && column < columns; s += threads) {
#pragma unroll
            for (int w = 0; w < places::width; ++w)
                sum[w] = places::two(sum[w], of_row[(2 * s * columns + column) * places::width + w]);
        }
#pragma unroll
        for (int w = 0; w < places::width; ++w) part[w][t] = sum[w];
        for (int half = threads / 2; half > 0; half /= 2) {
            __syncthreads();
            if (y >= half) continue;
#pragma unroll
            for (int w = 0; w < places::width; ++w) part[w][t] = places::two(part[w][t], part[w][t + half * lanes]);
        }
        if (y == 0 && column < columns) {
            const int64_t slot = 2 * segment + !whole;
#pragma unroll
            for (int w = 0; w < places::width; ++w)
                sum[w] = places::two(of_row[(slot * columns + column) * places::width + w], part[w][t]);
            at.store(at.to((int64_t)key, p.rows > 1 ? row : column), sum);
        }
        __syncthreads(); /* before part is written again */
    }
}

/* Adds by sorted pairs; keys from `keys` on are skipped. */
template <class places>
static bool tgi_add_sorted(tgi_thread *S, tgi_cuda_device *d, const char *op, const places &at, const tgi_pairs *p,
                           int64_t columns, int64_t keys)
{
    typedef typename places::real real;
    const int64_t segments = (p->length + TGI_SEGMENT - 1) / TGI_SEGMENT;
    const int64_t sums = segments > 1 ? p->rows * segments * 2 * columns * places::width : 1;
    int lanes = 1;
    while (lanes < 32 && lanes < columns) lanes *= 2;
    real *const partial = (real *)tgi_scratch_alloc(S, d, op, sums, sizeof(real));
    if (!partial) return false;
    const int64_t elements = p->rows * p->length * columns, tiles = (columns + lanes - 1) / lanes;
    const bool ok = tgi_launch_each(S, d, tgi_add_segments<places>, elements, at, *p, columns, keys, partial) &&
                    (segments == 1 || tgi_launch(S, d, tgi_join_segments<places>, p->rows * segments * tiles, TGI_BLOCK,
                                                 at, *p, columns, keys, partial, lanes));
    tgi_cuda_release(S, d->index, partial, 0);
    return ok;
}

/* The same for strided operands, in the type that their dtype is computed in. */
static bool tgi_add_sorted_strided(tgi_thread *S, tgi_cuda_device *d, const char *op, const tgi_strided_places *at,
                                   const tgi_pairs *p, int64_t columns, int64_t keys)
{
    const tgi_places_any<float> in_f32 = {*at};
    const tgi_places_any<double> in_f64 = {*at};
    const tgi_places_any<int64_t> in_i64 = {*at};
    switch (tgi_compute_dtype(at->iter.dtype[0])) {
    case TG_F32: return tgi_add_sorted(S, d, op, in_f32, p, columns, keys);
    case TG_F64: return tgi_add_sorted(S, d, op, in_f64, p, columns, keys);
    default: return tgi_add_sorted(S, d, op, in_i64, p, columns, keys);
    }
}

/* Another reduction of strided operands: of floats in double, of integers in int64_t. */
template <class combine>
static bool tgi_combine_sorted_strided(tgi_thread *S, tgi_cuda_device *d, const char *op, const tgi_strided_places *at,
                                       const tgi_pairs *p, int64_t columns, int64_t keys)
{
    const tgi_places_any<double, combine> floats = {*at};
    const tgi_places_any<int64_t, combine> integers = {*at};
    return tgi_is_floating(at->iter.dtype[0]) ? tgi_add_sorted(S, d, op, floats, p, columns, keys)
                                              : tgi_add_sorted(S, d, op, integers, p, columns, keys);
}

/* ---- accumulate: y[i] += x[i], where several i may be the same element of y ----

   The elements are sorted by their place in y, and added as equal keys. */

/* pairs [n] = (offset of y[i] in elements, i), one thread per element. */
static __global__ void tgi_load_offsets(tgi_iter iter, int64_t size, tgi_pairs pairs)
{
    for (int64_t i = tgi_grid_thread(); i < iter.numel; i += tgi_grid_size()) {
        char *at[1];
        tgi_element_addresses(iter, i, at);
        tgi_set_pair(pairs, i, (uint64_t)(at[0] - iter.data[0]) / (uint64_t)size, i);
    }
}

static bool tgi_cuda_accumulate(tgi_thread *S, const tgi_loop *loop)
{
    tgi_cuda_device *d = tgi_device_for(S, loop->arg[0].index);
    tgi_strided_places at;
    tgi_sort_job job;
    tgi_iter_init(&at.iter, loop->ndim, loop->dim, 2, loop->arg, false);
    if (!d) return false;
    if (at.iter.numel == 0) return true;
    if (tgi_no_overlap(&at.iter)) {
        const tgi_loop add = tgi_as_addition(loop);
        return tgi_cuda_map(S, &add);
    }
    int64_t reach = 0; /* the largest offset; strides are not negative */
    at.by_element = true;
    at.to_step = tgi_bytes_of(at.iter.dtype[0]);
    at.from_step = 0;
    for (int k = 0; k < at.iter.ndim; ++k) reach += (at.iter.dim[k] - 1) * at.iter.stride[0][k] / at.to_step;
    if (!tgi_sort_begin(S, d, "accumulate", &job, 1, at.iter.numel, (uint64_t)reach)) return false;
    void *const memory = job.pairs.key;
    const bool ok = tgi_launch_each(S, d, tgi_load_offsets, at.iter.numel, at.iter, at.to_step, job.pairs) &&
                    tgi_sort_pairs(S, d, &job) &&
                    tgi_add_sorted_strided(S, d, "accumulate", &at, &job.pairs, 1, reach + 1);
    tgi_cuda_release(S, d->index, memory, 0);
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

/* ======== @@REDUCE ================================================================================================ */

/* out[o] = the combination (sum, prod, ..) of in[o, r] over all r.  Two kernels, by which elements are neighbours in
   memory.  A thread reads a pack of neighbours at a time, 16 bytes where they are contiguous and aligned:

       tgi_fold           the reduced elements of one output: a block has one output, and thread t packs t, t + 256, ..
       tgi_fold_across    the same element of neighbouring outputs: a block is a tile of 8 rows of 32 threads

                                     outputs  0-3   4-7   ..  124-127
                          reduced element 0    t0    t1   ..  t31      A thread goes on with the element 8 further
                                          1    t32   t33  ..  t63      down.  At the end the 8 threads of a column
                                          ..                           are combined in shared memory.
                                          7    t224  t225 ..  t255

   Where there are few outputs, the reduced elements are cut into pieces, so that there are enough blocks for a whole
   GPU; a second launch combines the results of the pieces.  The sizes follow from the shapes alone, and so does the
   order of the combination.

   f32, bf16 and f16 are combined in f32, but only TGI_FOLD_ROUNDS times in a row: then the result is added to a double,
   so that the rounding error does not grow with the number of elements. */
enum { TGI_FOLD_LOADS = 4, TGI_FOLD_ROUNDS = 16, TGI_FOLD_BLOCKS = 528 }; /* 4 blocks for each part of an H100 */
typedef struct {
    tgi_iter kept;    /* over the outputs: operand 0 is out, operand 1 the first element of in for that output */
    tgi_iter reduced; /* over the reduced elements: operand 0 is in */
    bool across;
    int lanes;        /* of tgi_fold_across: threads in a row of the tile, a power of two */
    int64_t length;   /* what the threads of an output read one after the other: packs, or elements if across */
    int64_t piece;    /* how many of them are in a piece */
    int64_t pieces;   /* per output */
    void *partial;    /* double or int64_t [outputs, pieces], or [pieces, outputs] if across; NULL if pieces is 1 */
} tgi_reduce_job;

/* What the results of threads are combined in. */
template <class real> struct tgi_accumulator {
    typedef real type;
};
template <> struct tgi_accumulator<float> {
    typedef double type;
};

/* The dtype of kernels that look it up at each element. */
enum { TGI_ANY_DTYPE = -1 };

/* `width` neighbouring elements at an address, as numbers. */
template <int dtype, int width, class real>
__device__ inline void tgi_load_numbers(const tgi_iter &x, const void *at, real (&number)[width])
{
    if constexpr (dtype == TGI_ANY_DTYPE) {
        number[0] = tgi_load_as<real>(x.dtype[0], at);
    } else {
        const tgi_pack<dtype, width> pack = tgi_load_pack<tgi_pack<dtype, width>>(at);
#pragma unroll
        for (int w = 0; w < width; ++w) number[w] = tgi_load_as<real>((tg_dtype)dtype, &pack.x[w]);
    }
}

/* The address of reduced element e.  Kernels of one dtype have at most two reduced dims. */
template <int dtype> __device__ inline const char *tgi_reduced_at(const tgi_iter &x, const char *base, int64_t e)
{
    if constexpr (dtype == TGI_ANY_DTYPE) {
        char *at[1];
        tgi_element_addresses(x, e, at);
        return base + (at[0] - x.data[0]);
    } else {
        const int64_t inner = x.ndim > 1 ? tgi_pop_index(&e, x.dim[1]) * x.stride[0][1] : 0;
        return base + inner + e * x.stride[0][0];
    }
}

/* Combines packs first, first + step, .. < end with total [totals]: one for each element of a pack, or one for all.
   Pack i begins at reduced element i * elements.
   Several packs are loaded before the first is used, as memory answers late; but one where the dtype is not known,
   since there an address alone takes many instructions.  Where a sum in f32 is not finite, its elements are read again
   and added to the double one by one. */
template <class combine, class real, int dtype, int width, class accumulator, int totals>
__device__ inline void tgi_fold_run(const tgi_iter &x, const char *base, int64_t first, int64_t end, int64_t step,
                                    int elements, accumulator (&total)[totals])
{
    constexpr int loads = dtype == TGI_ANY_DTYPE ? 1 : (int)TGI_FOLD_LOADS;
    for (int64_t i = first; i < end;) {
        const int64_t begin = i;
        real part[width];
#pragma unroll
        for (int w = 0; w < width; ++w) part[w] = combine::identity(real());
#pragma unroll 1
        for (int round = 0; round < TGI_FOLD_ROUNDS && i < end; ++round, i += loads * step) {
            real number[loads][width];
#pragma unroll
            for (int k = 0; k < loads; ++k) {
#pragma unroll
                for (int w = 0; w < width; ++w) number[k][w] = combine::identity(real());
                const int64_t e = i + k * step;
                if (e < end)
                    tgi_load_numbers<dtype, width>(x, tgi_reduced_at<dtype>(x, base, e * elements), number[k]);
            }
#pragma unroll
            for (int w = 0; w < width; ++w) {
#pragma unroll
                for (int k = 1; k < loads; ++k) number[0][w] = combine::two(number[0][w], number[k][w]);
                part[w] = combine::two(part[w], number[0][w]);
            }
        }
        if constexpr (sizeof(accumulator) > sizeof(real)) {
            bool finite = true;
#pragma unroll
            for (int w = 0; w < width; ++w) finite = finite && part[w] - part[w] == 0;
            if (!finite) {
#pragma unroll 1
                for (int64_t e = begin; e < i && e < end; e += step) {
                    tgi_load_numbers<dtype, width>(x, tgi_reduced_at<dtype>(x, base, e * elements), part);
#pragma unroll
                    for (int w = 0; w < width; ++w)
                        total[w % totals] = combine::two(total[w % totals], (accumulator)part[w]);
                }
                continue;
            }
        }
#pragma unroll
        for (int w = 0; w < width; ++w) total[w % totals] = combine::two(total[w % totals], (accumulator)part[w]);
    }
}

/* Stores a result.  Kernels that know the dtype of their elements store that one, f32 or f64. */
template <int dtype, class accumulator>
__device__ inline void tgi_store_result(tg_dtype out, void *at, accumulator result)
{
    if constexpr (dtype == TGI_ANY_DTYPE) tgi_store_as(out, at, result);
    else if (out == TG_F32) tgi_store_as(TG_F32, at, result);
    else if (out == TG_F64) tgi_store_as(TG_F64, at, result);
    else tgi_store_as((tg_dtype)dtype, at, result);
}

/* One block per piece. */
template <class combine, class real, int dtype, int width>
__global__ void tgi_fold(tgi_reduce_job job)
{
    typedef typename tgi_accumulator<real>::type accumulator;
    for (int64_t item = blockIdx.x; item < job.kept.numel * job.pieces; item += gridDim.x) {
        const int64_t first = item % job.pieces * job.piece, left = job.length - first;
        const int64_t end = left < job.piece ? job.length : first + job.piece;
        char *at[2];
        accumulator total[1] = {combine::identity(accumulator())};
        tgi_element_addresses(job.kept, item / job.pieces, at);
        tgi_fold_run<combine, real, dtype, width>(job.reduced, at[1], first + threadIdx.x, end, blockDim.x, width,
                                                  total);
        const accumulator result = tgi_block_combine<combine>(total[0]);
        if (threadIdx.x != 0) continue;
        if (job.partial)
            ((accumulator *)job.partial)[item] = result;
        else
            tgi_store_result<dtype>(job.kept.dtype[0], at[0], result);
    }
}

/* One block per tile of a piece. */
template <class combine, class real, int dtype, int width>
__global__ void tgi_fold_across(tgi_reduce_job job)
{
    typedef typename tgi_accumulator<real>::type accumulator;
    __shared__ accumulator part[width][TGI_BLOCK + 4]; /* + 4: neighbouring outputs lie in different banks */
    const int t = (int)threadIdx.x, y = t / job.lanes, rows = TGI_BLOCK / job.lanes;
    const int64_t packs = job.kept.numel / width, tiles = (packs + job.lanes - 1) / job.lanes;
    for (int64_t item = blockIdx.x; item < tiles * job.pieces; item += gridDim.x) {
        const int64_t pack = item % tiles * job.lanes + t % job.lanes, first = item / tiles * job.piece;
        const int64_t end = job.length - first < job.piece ? job.length : first + job.piece;
        const bool inside = pack < packs;
        char *at[2];
        accumulator total[width];
        tgi_element_addresses(job.kept, inside ? pack * width : 0, at);
#pragma unroll
        for (int w = 0; w < width; ++w) total[w] = combine::identity(accumulator());
        if (inside)
            tgi_fold_run<combine, real, dtype, width>(job.reduced, at[1], first + y, end, rows, 1, total);
#pragma unroll
        for (int w = 0; w < width; ++w) part[w][t] = total[w];
        for (int half = rows / 2; half > 0; half /= 2) {
            __syncthreads();
            if (y >= half) continue;
#pragma unroll
            for (int w = 0; w < width; ++w) part[w][t] = combine::two(part[w][t], part[w][t + half * job.lanes]);
        }
        __syncthreads();
        const int64_t start = item % tiles * job.lanes * width; /* the first output of the tile */
        for (int e = t; e < job.lanes * width && start + e < job.kept.numel; e += TGI_BLOCK) {
            const accumulator result = part[e % width][e / width];
            tgi_element_addresses(job.kept, start + e, at);
            if (job.partial)
                ((accumulator *)job.partial)[item / tiles * job.kept.numel + start + e] = result;
            else
                tgi_store_result<dtype>(job.kept.dtype[0], at[0], result);
        }
        __syncthreads(); /* before part is written again */
    }
}

/* Chooses the sizes of a job whose packs have `width` elements.  may_cut: several pieces are allowed; they cost a
   second launch, as much time as a thread takes to read about 64 packs. */
static void tgi_reduce_cut(tgi_reduce_job *job, int width, bool may_cut)
{
    const int64_t outputs = job->kept.numel, packs = job->across ? outputs / width : job->reduced.numel / width;
    int64_t blocks = outputs; /* without pieces */
    int threads = TGI_BLOCK;  /* that share an output */
    job->length = job->across ? job->reduced.numel : packs;
    job->lanes = 1;
    if (job->across) {
        while (job->lanes < packs && job->lanes < (job->length <= 16 ? (int)TGI_BLOCK : 32)) job->lanes *= 2;
        blocks = (packs + job->lanes - 1) / job->lanes;
        threads = TGI_BLOCK / job->lanes;
    }
    job->pieces = 1;
    if (may_cut && job->length > 64 * threads) {
        job->pieces = tgi_at_most((TGI_FOLD_BLOCKS + blocks - 1) / blocks, job->length / (8 * threads));
    }
    job->piece = (job->length + job->pieces - 1) / job->pieces;
    if (job->piece > 0) job->pieces = (job->length + job->piece - 1) / job->piece;
}

/* Launches one of the two kernels; a block of one warp where an output has few packs. */
template <class combine, class real, int dtype, int width, int across_width>
static bool tgi_reduce_as(tgi_thread *S, const tgi_cuda_device *d, const tgi_reduce_job *job)
{
    if (!job->across) {
        return tgi_launch(S, d, tgi_fold<combine, real, dtype, width>, job->kept.numel * job->pieces,
                          job->piece <= TGI_BLOCK ? 32 : (int)TGI_BLOCK, *job);
    }
    const int64_t packs = job->kept.numel / across_width, tiles = (packs + job->lanes - 1) / job->lanes;
    return tgi_launch(S, d, tgi_fold_across<combine, real, dtype, across_width>, tiles * job->pieces, TGI_BLOCK, *job);
}

typedef bool (*tgi_reduce_fn)(tgi_thread *S, const tgi_cuda_device *d, const tgi_reduce_job *job);
#define TGI_REDUCE_ROW(name, ...)                                    \
    {tgi_reduce_as<tgi_combine_##name, double, TGI_ANY_DTYPE, 1, 1>, \
     tgi_reduce_as<tgi_combine_##name, int64_t, TGI_ANY_DTYPE, 1, 1>},
static const tgi_reduce_fn tgi_reduce_rows[][2] = {TGI_REDUCTIONS(TGI_REDUCE_ROW)}; /* in the order of tgi_reduction */

/* The kernels that know their dtype, for packs; sums have others for single elements.  The rows are f32, bf16, f16. */
#define TGI_REDUCE_PACKS(name)                               \
    {tgi_reduce_as<tgi_combine_##name, float, TG_F32, 4, 4>, \
     tgi_reduce_as<tgi_combine_##name, float, TG_BF16, 8, 4>, tgi_reduce_as<tgi_combine_##name, float, TG_F16, 8, 4>}
static const tgi_reduce_fn tgi_reduce_sums[3] = {tgi_reduce_as<tgi_combine_sum, float, TG_F32, 1, 1>,
                                                 tgi_reduce_as<tgi_combine_sum, float, TG_BF16, 1, 1>,
                                                 tgi_reduce_as<tgi_combine_sum, float, TG_F16, 1, 1>};
static const tgi_reduce_fn tgi_reduce_packed_sum[3] = TGI_REDUCE_PACKS(sum),
                           tgi_reduce_packed_amax[3] = TGI_REDUCE_PACKS(amax),
                           tgi_reduce_packed_amin[3] = TGI_REDUCE_PACKS(amin);

/* The kernel of a kind for elements of this dtype, in packs or not; NULL: only that for any dtype. */
static tgi_reduce_fn tgi_reduce_typed(tgi_reduction kind, tg_dtype dtype, bool packs)
{
    const int row = dtype == TG_F32 ? 0 : dtype == TG_BF16 ? 1 : dtype == TG_F16 ? 2 : -1;
    if (row < 0) return NULL;
    switch (kind) {
    case TGI_SUM: return packs ? tgi_reduce_packed_sum[row] : tgi_reduce_sums[row];
    case TGI_AMAX: return packs ? tgi_reduce_packed_amax[row] : NULL;
    case TGI_AMIN: return packs ? tgi_reduce_packed_amin[row] : NULL;
    default: return NULL;
    }
}

/* Whether the elements along the last dim of operand k lie in packs of `width`, aligned to their size, wherever the two
   iterators lead. */
static bool tgi_reduce_packs(const tgi_iter *along, int k, const tgi_iter *other, int other_k, int64_t width)
{
    const int inner = along->ndim - 1;
    const int64_t size = tgi_bytes_of(along->dtype[k]), bytes = width * size;
    bool ok = along->stride[k][inner] == size && along->dim[inner] % width == 0 && along->numel > 0 &&
              (uintptr_t)along->data[k] % (size_t)bytes == 0;
    for (int i = 0; i < inner; ++i) ok = ok && along->stride[k][i] % bytes == 0;
    for (int i = 0; i < other->ndim; ++i) ok = ok && (other->stride[other_k][i] % bytes == 0 || other->dim[i] == 1);
    return ok;
}

/* The second launch of a job with pieces: out[o] = the combination of partial[o] over all pieces. */
static bool tgi_reduce_pieces(tgi_thread *S, const tgi_cuda_device *d, const tgi_reduce_job *first,
                              tgi_reduce_fn any_dtype)
{
    tgi_reduce_job job = *first;
    const tg_dtype dtype = tgi_is_floating(first->reduced.dtype[0]) ? TG_F64 : TG_I64;
    const int64_t outputs = job.kept.numel;
    int64_t step = 8 * (job.across ? 1 : first->pieces);
    job.kept.data[1] = (char *)first->partial;
    for (int k = job.kept.ndim - 1; k >= 0; step *= job.kept.dim[k], --k) job.kept.stride[1][k] = step;
    job.reduced.ndim = 1;
    job.reduced.dim[0] = job.reduced.numel = first->pieces;
    job.reduced.stride[0][0] = 8 * (job.across ? outputs : 1);
    job.reduced.data[0] = (char *)first->partial;
    job.reduced.dtype[0] = dtype;
    job.partial = NULL;
    tgi_reduce_cut(&job, 1, false);
    return any_dtype(S, d, &job);
}

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
    job.across = (columns >= 4 && kept_step < reduced_step) || job.reduced.numel <= 16;
    const int pack = job.across || in.dtype == TG_F32 ? 4 : 8;
    const bool packs = job.reduced.ndim <= 2 && (job.across ? tgi_reduce_packs(&job.kept, 1, &job.reduced, 0, pack)
                                                            : tgi_reduce_packs(&job.reduced, 0, &job.kept, 1, pack));
    const tgi_reduce_fn any_dtype = tgi_reduce_rows[reduce->kind][tgi_is_floating(in.dtype) ? 0 : 1];
    const tg_dtype out = reduce->out.dtype;
    const bool known = job.reduced.ndim <= 2 && (out == in.dtype || out == TG_F32 || out == TG_F64);
    const tgi_reduce_fn typed = known ? tgi_reduce_typed(reduce->kind, in.dtype, packs) : NULL;
    tgi_reduce_cut(&job, typed && packs ? pack : 1, true);
    job.partial = NULL;
    if (job.pieces > 1) {
        job.partial = tgi_scratch_alloc(S, d, "sum", job.pieces * job.kept.numel, sizeof(double));
        if (!job.partial) return false;
    }
    const bool ok = (typed ? typed : any_dtype)(S, d, &job) &&
                    (!job.partial || tgi_reduce_pieces(S, d, &job, any_dtype));
    tgi_cuda_release(S, d->index, job.partial, 0);
    return ok;
}

/* ======== @@SORT ================================================================================================== */

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
    if (job.iter.ndim == 1) { /* usual; the loop over dims would test each of them */
#pragma unroll
        for (int k = 0; k < N; ++k) at[k] = job.iter.data[k] + row * job.iter.stride[k][0];
    } else {
        tgi_element_addresses(job.iter, row, at);
    }
#pragma unroll
    for (int k = 0; k < N; ++k) {
        arg[k].data = at[k];
        arg[k].step = job.step[k];
        arg[k].dtype = job.iter.dtype[k];
    }
}

/* Element i of a row: its address, its value as a float, a double or an int64_t, and a new
   value. */
__device__ inline char *tgi_row_at(const tgi_row &x, int64_t i) { return x.data + i * x.step; }
template <class real> __device__ inline real tgi_row_load(const tgi_row &x, int64_t i)
{
    return tgi_load_as<real>(x.dtype, tgi_row_at(x, i));
}
template <class real> __device__ inline void tgi_row_set(const tgi_row &x, int64_t i, real value)
{
    tgi_store_as(x.dtype, tgi_row_at(x, i), value);
}

/* Where there are few long rows, each is cut into this many pieces, so that there are enough blocks for a whole GPU. */
static int64_t tgi_pieces_of_rows(const tgi_row_job *job)
{
    const int64_t rows = job->iter.numel, least = 16 * TGI_BLOCK; /* elements of a piece */
    const int64_t pieces = rows ? tgi_at_most((TGI_FOLD_BLOCKS + rows - 1) / rows, job->length / least) : 1;
    return pieces > 1 ? pieces : 1;
}

/* Elements first .. end - 1 of a row of n are piece number `piece` of it. */
__device__ inline void tgi_piece_of_row(int64_t n, int64_t pieces, int64_t piece, int64_t *first, int64_t *end)
{
    const int64_t length = (n + pieces - 1) / pieces;
    *first = piece * length;
    *end = n - *first < length ? n : *first + length;
}

/* ---- argmax, argmin, max, min ---- */

__device__ inline bool tgi_before(const tgi_sort_pair &a, const tgi_sort_pair &b)
{
    return a.key < b.key || (a.key == b.key && a.index < b.index);
}

/* The first of all threads' pairs in the order of tgi_before, for thread 0.  All threads of the block call it. */
__device__ inline tgi_sort_pair tgi_block_first(const tgi_sort_pair &mine)
{
    __shared__ uint64_t keys[TGI_BLOCK];
    __shared__ int64_t indices[TGI_BLOCK];
    const int t = (int)threadIdx.x;
    __syncthreads(); /* other threads may still read keys and indices in the call before */
    keys[t] = mine.key, indices[t] = mine.index;
    for (int half = (int)blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half) {
            const tgi_sort_pair a = {keys[t], indices[t]}, b = {keys[t + half], indices[t + half]};
            if (tgi_before(b, a)) keys[t] = b.key, indices[t] = b.index;
        }
    }
    const tgi_sort_pair first = {keys[t], indices[t]};
    return first;
}

/* values, indices [rows, 1], x [rows, n]: value and index of the largest (or smallest) element of each row, the first
   one of several; the first NaN if there is one.  `in` is the number of the operand x: 2, or 1 where the values are not
   wanted. */
template <int in> __device__ inline void tgi_store_extreme(const tgi_row_job &job, int64_t row, int64_t index)
{
    tgi_row arg[in + 1];
    tgi_row_init(job, row, arg);
    const int64_t found = index == INT64_MAX ? 0 : index;
    tgi_row_set(arg[in - 1], 0, found);
    if (in == 2 && job.length > 0)
        tgi_copy_element(arg[0].data, tgi_row_at(arg[in], found), tgi_size_of(arg[in].dtype));
}

/* One block per piece of a row.  found [rows, pieces]: the best of each piece; NULL where there is one. */
template <int in>
__global__ void tgi_arg_reduce_rows(tgi_row_job job, bool smallest, int64_t pieces, tgi_sort_pair *found)
{
    for (int64_t item = blockIdx.x; item < job.iter.numel * pieces; item += gridDim.x) {
        tgi_row arg[in + 1];
        tgi_row_init(job, item / pieces, arg);
        const tgi_row x = arg[in];
        int64_t first, end;
        tgi_piece_of_row(job.length, pieces, item % pieces, &first, &end);
        tgi_sort_pair best = {UINT64_MAX, INT64_MAX}; /* the smallest key wins; for the largest, keys are inverted */
        for (int64_t i = first + threadIdx.x; i < end; i += blockDim.x) {
            tgi_sort_pair pair = {tgi_key_of(x.dtype, tgi_row_at(x, i)), i};
            const bool nan = tgi_is_floating(x.dtype) && pair.key == UINT64_MAX;
            if (nan)
                pair.key = 0;
            else if (!smallest)
                pair.key = ~pair.key;
            if (tgi_before(pair, best)) best = pair;
        }
        best = tgi_block_first(best);
        if (threadIdx.x != 0) continue;
        if (found)
            found[item] = best;
        else
            tgi_store_extreme<in>(job, item, best.index);
    }
}

/* The best of the pieces, one block per row. */
template <int in>
__global__ void tgi_arg_reduce_pieces(tgi_row_job job, int64_t pieces, const tgi_sort_pair *found)
{
    for (int64_t row = blockIdx.x; row < job.iter.numel; row += gridDim.x) {
        tgi_sort_pair best = {UINT64_MAX, INT64_MAX};
        for (int64_t i = threadIdx.x; i < pieces; i += blockDim.x) {
            const tgi_sort_pair pair = found[row * pieces + i];
            if (tgi_before(pair, best)) best = pair;
        }
        best = tgi_block_first(best);
        if (threadIdx.x == 0) tgi_store_extreme<in>(job, row, best.index);
    }
}

template <int in> static bool tgi_arg_reduce(tgi_thread *S, const tgi_rows *rows, bool smallest)
{
    tgi_cuda_device *d = tgi_device_for(S, rows->arg[in].index);
    const tgi_row_job job = tgi_row_job_of(rows);
    const int64_t pieces = tgi_pieces_of_rows(&job), items = job.iter.numel * pieces;
    tgi_sort_pair *found = NULL;
    if (!d) return false;
    if (items == 0) return true;
    if (pieces > 1) {
        found = (tgi_sort_pair *)tgi_scratch_alloc(S, d, "max", items, sizeof *found);
        if (!found) return false;
    }
    const int threads = job.length <= 64 ? 32 : (int)TGI_BLOCK;
    const bool ok =
        tgi_launch(S, d, tgi_arg_reduce_rows<in>, items, threads, job, smallest, pieces, found) &&
        (!found || tgi_launch(S, d, tgi_arg_reduce_pieces<in>, job.iter.numel, TGI_BLOCK, job, pieces, found));
    tgi_cuda_release(S, d->index, found, 0);
    return ok;
}

static bool tgi_cuda_arg_reduce(tgi_thread *S, tgi_reduction kind, const tgi_rows *rows)
{
    tgi_rows wanted = *rows;
    if (rows->arg[0].data) return tgi_arg_reduce<2>(S, rows, kind == TGI_AMIN);
    wanted.nargs = 2;
    for (int k = 0; k < 2; ++k) {
        wanted.arg[k] = rows->arg[k + 1];
        wanted.step[k] = rows->step[k + 1];
    }
    return tgi_arg_reduce<1>(S, &wanted, kind == TGI_AMIN);
}

/* ---- cumsum, cumprod ---- */

/* y, x [rows, n]: y[i] = x[0] + .. + x[i], or their product.  One block per piece of a row, which takes as many
   elements at a time as it has threads and adds the sum of those before.  Several pieces take three launches: the first
   stores only the sum of each piece; the second, over the sums as rows, makes of each the sum up to there; the third
   begins with it. */
template <class real, class combine>
__global__ void tgi_running_rows(tgi_row_job job, int64_t pieces, real *sums, bool only_sums)
{
    for (int64_t item = blockIdx.x; item < job.iter.numel * pieces; item += gridDim.x) {
        tgi_row arg[2];
        tgi_row_init(job, item / pieces, arg);
        const tgi_row y = arg[0], x = arg[1];
        int64_t first, end;
        tgi_piece_of_row(job.length, pieces, item % pieces, &first, &end);
        const real none = combine::identity(real());
        real before = !only_sums && item % pieces > 0 ? sums[item - 1] : none, total;
        for (int64_t start = first; start < end; start += blockDim.x) {
            const int64_t i = start + threadIdx.x;
            const real sum = tgi_block_scan<combine, real>(i < end ? tgi_row_load<real>(x, i) : none, &total);
            if (i < end && !only_sums) tgi_row_set(y, i, combine::two(before, sum));
            before = combine::two(before, total);
        }
        if (only_sums && threadIdx.x == 0) sums[item] = before;
    }
}

template <class real, class combine> static bool tgi_running(tgi_thread *S, const tgi_rows *rows, tg_dtype dtype)
{
    tgi_cuda_device *d = tgi_device_for(S, rows->arg[1].index);
    const tgi_row_job job = tgi_row_job_of(rows);
    const int64_t pieces = tgi_pieces_of_rows(&job), items = job.iter.numel * pieces;
    const int threads = job.length <= 64 ? 32 : (int)TGI_BLOCK;
    real *const none = NULL;
    if (!d) return false;
    if (items == 0) return true;
    if (pieces == 1) return tgi_launch(S, d, tgi_running_rows<real, combine>, items, threads, job, pieces, none, false);
    real *const sums = (real *)tgi_scratch_alloc(S, d, "cumsum", items, sizeof(real));
    if (!sums) return false;
    tgi_rows of_sums;
    memset(&of_sums, 0, sizeof of_sums);
    of_sums.ndim = 1;
    of_sums.dim[0] = job.iter.numel;
    of_sums.length = pieces;
    of_sums.nargs = 2;
    for (int k = 0; k < 2; ++k) {
        of_sums.arg[k].data = sums;
        of_sums.arg[k].dtype = dtype;
        of_sums.arg[k].stride[0] = pieces;
        of_sums.step[k] = 1;
    }
    const tgi_row_job sums_job = tgi_row_job_of(&of_sums);
    const int64_t one = 1;
    const bool ok =
        tgi_launch(S, d, tgi_running_rows<real, combine>, items, threads, job, pieces, sums, true) &&
        tgi_launch(S, d, tgi_running_rows<real, combine>, job.iter.numel, TGI_BLOCK, sums_job, one, none, false) &&
        tgi_launch(S, d, tgi_running_rows<real, combine>, items, threads, job, pieces, sums, false);
    tgi_cuda_release(S, d->index, sums, 0);
    return ok;
}

static bool tgi_cuda_cumsum(tgi_thread *S, const tgi_rows *rows)
{
    if (tgi_is_floating(rows->arg[1].dtype)) return tgi_running<double, tgi_combine_sum>(S, rows, TG_F64);
    return tgi_running<int64_t, tgi_combine_sum>(S, rows, TG_I64);
}

static bool tgi_cuda_cumprod(tgi_thread *S, const tgi_rows *rows)
{
    if (tgi_is_floating(rows->arg[1].dtype)) return tgi_running<double, tgi_combine_prod>(S, rows, TG_F64);
    return tgi_running<int64_t, tgi_combine_prod>(S, rows, TG_I64);
}

static tgi_answer tgi_cuda_cummax(tgi_thread *, const tgi_rows *) { return TGI_COMPOSE; }
static tgi_answer tgi_cuda_cummin(tgi_thread *, const tgi_rows *) { return TGI_COMPOSE; }
static tgi_answer tgi_cuda_kth(tgi_thread *, const tgi_rows *) { return TGI_COMPOSE; }

/* ---- sort: values, indices [rows, k], x [rows, n] ---- */

/* pairs [rows, n] = (key of x[i], i), one thread per element. */
static __global__ void tgi_load_keys(tgi_row_job job, bool descending, tgi_pairs pairs)
{
    for (int64_t e = tgi_grid_thread(); e < job.iter.numel * job.length; e += tgi_grid_size()) {
        const int64_t i = e % job.length;
        tgi_row arg[3];
        tgi_row_init(job, e / job.length, arg);
        const tgi_row x = arg[2];
        const int bits = tgi_key_bits(x.dtype);
        const char *const at = tgi_row_at(x, i);
        const uint64_t key = bits == 64 ? tgi_key_of(x.dtype, at) : tgi_small_key_of(x.dtype, at);
        tgi_set_pair(pairs, e, descending ? ~key & UINT64_MAX >> (64 - bits) : key, i);
    }
}

/* The first k of each row: indices[i] = the index in sorted pair i, values[i] = x at that index; one thread each. */
static __global__ void tgi_store_sorted(tgi_row_job job, int64_t k, tgi_pairs pairs)
{
    for (int64_t e = tgi_grid_thread(); e < job.iter.numel * k; e += tgi_grid_size()) {
        const int64_t i = e % k, row = e / k, from = tgi_pair_index(pairs, row * job.length + i);
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
    const uint64_t most = UINT64_MAX >> (64 - tgi_key_bits(rows->arg[2].dtype));
    tgi_sort_job sort;
    if (!d) return false;
    if (n == 0 || k == 0) return true;
    if (!tgi_sort_begin(S, d, "sort", &sort, job.iter.numel, job.length, most)) return false;
    void *const memory = sort.pairs.key;
    const bool ok = tgi_launch_each(S, d, tgi_load_keys, n, job, descending, sort.pairs) &&
                    tgi_sort_pairs(S, d, &sort) &&
                    tgi_launch_each(S, d, tgi_store_sorted, job.iter.numel * k, job, k, sort.pairs);
    tgi_cuda_release(S, d->index, memory, 0);
    return ok;
}

/* ---- searchsorted: places, values [rows, n], sorted, sorter [rows, size] ---- */

/* One thread per value: half of the rest of the row is left in each step.  real is what values are compared as. */
template <class real> __global__ void tgi_search_rows(tgi_row_job job, int64_t size, bool right, bool has_sorter)
{
    for (int64_t e = tgi_grid_thread(); e < job.iter.numel * job.length; e += tgi_grid_size()) {
        const int64_t i = e % job.length;
        tgi_row arg[4];
        tgi_row_init(job, e / job.length, arg);
        const tgi_row places = arg[0], sorted = arg[2], sorter = arg[3];
        const real x = tgi_row_load<real>(arg[1], i);
        int64_t start = 0, end = size;
        while (start < end) {
            const int64_t middle = start + (end - start) / 2;
            const int64_t from = has_sorter ? *(const int64_t *)(const void *)tgi_row_at(sorter, middle) : middle;
            bool behind = true; /* a bad index, of which the check speaks, is skipped */
            if ((uint64_t)from < (uint64_t)size) {
                const real y = tgi_row_load<real>(sorted, from);
                behind = right ? !(y > x) : !(y >= x);
            }
            if (behind) start = middle + 1;
            else end = middle;
        }
        tgi_row_set(places, i, start);
    }
}

static bool tgi_cuda_searchsorted(tgi_thread *S, bool right, const tgi_rows *rows)
{
    const tgi_cuda_device *d = tgi_device_for(S, rows->arg[0].index);
    const bool has_sorter = rows->arg[3].data != NULL;
    tgi_rows all = *rows;
    if (!d) return false;
    if (!has_sorter) all.arg[3] = all.arg[2]; /* an address that is not read */
    all.nargs = 4;
    const tgi_row_job job = tgi_row_job_of(&all);
    const int64_t n = job.iter.numel * job.length;
    if (n == 0) return true;
    if (tgi_is_floating(rows->arg[1].dtype))
        return tgi_launch_each(S, d, tgi_search_rows<double>, n, job, rows->size, right, has_sorter);
    return tgi_launch_each(S, d, tgi_search_rows<int64_t>, n, job, rows->size, right, has_sorter);
}

/* ======== @@NORM ================================================================================================== */

/* softmax and layer_norm keep a row in registers, so that they read it once; cross_entropy keeps it in shared memory,
   since its rows are long.  A row belongs to a team of 8 to 512 threads, as many as are needed to hold it.  Its
   elements are dealt to the threads in packs, so that each load and store is 16 bytes wide, and those of neighbouring
   threads are neighbours.  With packs of 4 and 32 threads:

       element  0 .. 3 | 4 .. 7 | .. | 124 .. 127 | 128 .. 131 | ..
       thread      0   |    1   | .. |     31     |      0     | ..
       x[]      0 .. 3 | 0 .. 3 | .. |   0 .. 3   |   4 .. 7   | ..

   Rows that do not consist of packs are dealt element by element: each kernel has a second instance with the width 1.
   A third one, whose width is that of packs plus TGI_ASTRIDE, takes rows without gaps that begin between packs, as
   those of 50257 elements do.  Element 0 is then given the place where it lies in its pack, here 3; of the first and of
   the last pack the elements that belong to the row are loaded and stored one by one.

       place    0 .. 3 | 4 .. 7 | .. | 124 .. 127 | ..
       element   ..  0 | 1 .. 4 | .. | 121 .. 124 | ..

   A row that is longer than what a team can hold is taken in chunks, and read again where it is needed again.  A block
   of 256 threads holds several teams if they are smaller; all of them go through the same barriers. */
enum { TGI_TEAM_MOST = 512 };
template <int dtype> constexpr int tgi_held = dtype == TG_F64 ? 8 : 16; /* elements of x[] */
template <int dtype> constexpr int tgi_width = (int)(TGI_PACK_BYTES / sizeof(typename tgi_stored<dtype>::type));
typedef struct {
    int threads, t; /* of the team; the number of this thread among them */
    bool active;    /* has a row: the last block may have more teams than rows */
    int64_t n;      /* the place behind the last element of the row; 0 if there is none */
    int first;      /* the place of element 0: 0, but for rows that begin between packs */
} tgi_team;

/* A kernel's rows, and how they are given to teams. */
typedef struct {
    tgi_row_job rows;
    int threads, log_threads; /* of a team, a power of two; its logarithm */
    bool packed;              /* rows consist of packs */
    unsigned between;         /* the operands whose rows begin between packs, bit k is operand k; 0: none do */
} tgi_team_job;

enum { TGI_ASTRIDE = 64 }; /* more than the 16 bytes of a pack have elements */
template <int width> constexpr int tgi_pack_of = width % TGI_ASTRIDE; /* elements */

/* The place in the team's chunk of this thread's x[e]. */
template <int width> __device__ inline int tgi_place(const tgi_team &team, int e)
{
    constexpr int pack = tgi_pack_of<width>;
    return (e / pack * team.threads + team.t) * pack + e % pack;
}

/* Whether x[e] of this thread is an element: its place is one of `left`, and not before `first`; packs of rows that
   consist of them are there as a whole. */
template <int width> __device__ inline bool tgi_exists(const tgi_team &team, int e, int left, int first)
{
    if (width > TGI_ASTRIDE) return tgi_place<width>(team, e) < left && tgi_place<width>(team, e) >= first;
    return tgi_place<width>(team, e / width * width) < left;
}

/* Calls step(e) for the elements x[e] of this thread, but not for those of a pack behind the end of the row: where few
   threads have their last pack, most warps have less to do. */
template <int width, int held, class step_>
__device__ inline void tgi_team_each(const tgi_team &team, int left, const step_ &step)
{
    constexpr int pack = tgi_pack_of<width>;
#pragma unroll
    for (int e = 0; e < held; e += pack) {
        if (pack > 1 && tgi_place<width>(team, e) >= left) continue;
#pragma unroll
        for (int k = e; k < e + pack; ++k) step(k);
    }
}

/* Whether all of the pack at this place are elements. */
template <int width> __device__ inline bool tgi_whole(int place, int left, int first)
{
    return width > TGI_ASTRIDE ? place + tgi_pack_of<width> <= left && place >= first : place < left;
}

/* A kernel's loop over the chunks of a row: for (int64_t i = 0; i < team.n; i += tgi_chunk<dtype>(team)); i is the
   first element of the chunk. */
template <int dtype> __device__ inline int tgi_chunk(const tgi_team &team) { return tgi_held<dtype> * team.threads; }

/* Whether the row is longer than what the team holds. */
template <int dtype> __device__ inline bool tgi_in_chunks(const tgi_team &team)
{
    return team.n > tgi_chunk<dtype>(team);
}

/* The elements of the row from number i on, as many as there are places in a chunk at most. */
template <int dtype> __device__ inline int tgi_left(const tgi_team &team, int64_t i)
{
    const int64_t left = team.n - i;
    return left < tgi_chunk<dtype>(team) ? (int)left : tgi_chunk<dtype>(team);
}

/* The place of element 0 in the chunk that begins at place i; 0 where it lies before that. */
__device__ inline int tgi_first(const tgi_team &team, int64_t i) { return i < team.first ? (int)(team.first - i) : 0; }

/* The address of place i of a row; elements of packs lie side by side. */
template <int dtype, int width> __device__ inline char *tgi_team_at(const tgi_row &row, int64_t i)
{
    return row.data + i * (width > 1 ? (int64_t)sizeof(typename tgi_stored<dtype>::type) : row.step);
}

/* The elements of the pack at this address: from `first` on, before `left`, counted from there; x holds fills. */
template <int dtype, int pack>
__device__ inline void tgi_load_edge(const char *at, int first, int left, tgi_loaded<dtype, pack> &x)
{
    typedef typename tgi_stored<dtype>::type stored;
    const stored fill = x.element(0);
    if (left <= 0) return;
    x = {};
#pragma unroll
    for (int k = 0; k < pack; ++k) x.set(k, k >= first && k < left ? ((const stored *)at)[k] : fill);
}
template <int dtype, int pack>
__device__ inline void tgi_store_edge(char *at, int first, int left, const tgi_loaded<dtype, pack> &x)
{
    typedef typename tgi_stored<dtype>::type stored;
#pragma unroll
    for (int k = 0; k < pack; ++k) {
        if (k >= first && k < left) ((stored *)at)[k] = x.element(k);
    }
}

/* raw = this thread's packs of the chunk, `fill` beyond the ends of the row.  All are loaded before the first is used,
   so that the loads are under way together. */
template <int dtype, int width, class real, int packs>
__device__ inline void tgi_team_load_raw(const tgi_team &team, int64_t i, const tgi_row &row, real fill,
                                         tgi_loaded<dtype, tgi_pack_of<width>> (&raw)[packs])
{
    constexpr int pack = tgi_pack_of<width>;
    const int left = tgi_left<dtype>(team, i), first = tgi_first(team, i);
    const real fills[TGI_PACK_BYTES] = {fill, fill, fill, fill, fill, fill, fill, fill};
    const auto filled = tgi_rounded<dtype, pack>(fills);
#pragma unroll
    for (int k = 0; k < packs; ++k) {
        const int place = tgi_place<width>(team, k * pack);
        raw[k] = filled;
        if (width > TGI_ASTRIDE && (place >= left || place + pack <= first)) continue; /* a NULL row has no addresses */
        char *const at = tgi_team_at<dtype, width>(row, i + place);
        if (tgi_whole<width>(place, left, first)) raw[k].template load<pack>(at);
        else if (width > TGI_ASTRIDE) tgi_load_edge(at, first - place, left - place, raw[k]);
    }
}

/* x = this thread's elements of the chunk, `fill` beyond the ends of the row. */
template <int dtype, int width, class real, int held>
__device__ inline void tgi_team_load(const tgi_team &team, int64_t i, const tgi_row &row, real fill, real (&x)[held])
{
    constexpr int pack = tgi_pack_of<width>;
    tgi_loaded<dtype, pack> raw[held / pack];
    tgi_team_load_raw<dtype, width>(team, i, row, fill, raw);
#pragma unroll
    for (int e = 0; e < held; ++e) x[e] = raw[e / pack].template value<real>(e % pack);
}

/* The places of a row that are whole packs: from `begin` on, before `end`.  All are, but for a pack at each end of a
   row that begins between packs. */
typedef struct {
    int64_t begin, end;
} tgi_whole_packs;
template <int width> __device__ inline tgi_whole_packs tgi_whole_packs_of(const tgi_team &team)
{
    constexpr int pack = tgi_pack_of<width>;
    if (width < TGI_ASTRIDE) return {0, team.n};
    return {team.first > 0 ? pack : 0, team.n / pack * pack};
}

/* What tgi_team_packs gives to a step at a time: so many packs, of so many elements. */
template <int packs_, int pack_> struct tgi_packs_shape {
    enum { packs = packs_, pack = pack_ };
};

/* Calls step(i, shape) for all of this thread's packs in a row of any length, of which pack k begins at place
   i + k * pack * team.threads.  First come tgi_held elements at a time, whose loads are under way together and need no
   tests; then, what is left, a pack at a time; then, one by one, the elements of packs that are not whole. */
template <int dtype, int width, class step_>
__device__ inline void tgi_team_packs(const tgi_team &team, const step_ &step)
{
    constexpr int pack = tgi_pack_of<width>, packs = tgi_held<dtype> / pack;
    const tgi_whole_packs whole = tgi_whole_packs_of<width>(team);
    const int64_t apart = (int64_t)pack * team.threads;
    int64_t i = whole.begin + (int64_t)pack * team.t;
    for (; i + (packs - 1) * apart < whole.end; i += packs * apart) step(i, tgi_packs_shape<packs, pack>());
    for (; i < whole.end; i += apart) step(i, tgi_packs_shape<1, pack>());
    if constexpr (width > TGI_ASTRIDE) {
        const int before = (int)whole.begin - team.first, edges = before + (int)(team.n - whole.end);
        for (int k = team.t; k < edges; k += team.threads)
            step(k < before ? team.first + k : whole.end + k - before, tgi_packs_shape<1, 1>());
    }
}

/* Whether it is this thread to which tgi_team_packs gives this place. */
template <int width> __device__ inline bool tgi_team_has(const tgi_team &team, int64_t place)
{
    const tgi_whole_packs whole = tgi_whole_packs_of<width>(team);
    int64_t number = (place - whole.begin) / tgi_pack_of<width>;
    if (place < whole.begin) number = place - team.first;
    else if (place >= whole.end) number = whole.begin - team.first + place - whole.end;
    return (number & (team.threads - 1)) == team.t;
}

/* tgi_team_packs for the row whose place 0 is here: calls step(i, raw, x) with the elements as they lie in memory, and
   in f32. */
template <int dtype, int width, class step_>
__device__ inline void tgi_team_walk(const tgi_team &team, const char *row, const step_ &step)
{
    typedef typename tgi_stored<dtype>::type stored;
    tgi_team_packs<dtype, width>(team, [&](int64_t i, auto shape) {
        constexpr int packs = decltype(shape)::packs, pack = decltype(shape)::pack;
        tgi_loaded<dtype, pack> raw[packs];
        float x[packs * pack];
#pragma unroll
        for (int k = 0; k < packs; ++k)
            raw[k].template load<pack>((const stored *)row + i + k * (int64_t)pack * team.threads);
#pragma unroll
        for (int e = 0; e < packs * pack; ++e) x[e] = raw[e / pack].template value<float>(e % pack);
        step(i, raw, x);
    });
}

/* The chunk of the row = value(e), which stands for x[e]. */
template <int dtype, int width, class formula>
__device__ inline void tgi_team_store_of(const tgi_team &team, int64_t i, const tgi_row &row, const formula &value)
{
    typedef typename tgi_computed<dtype>::type real;
    constexpr int pack = tgi_pack_of<width>;
    const int left = tgi_left<dtype>(team, i), first = tgi_first(team, i);
#pragma unroll
    for (int e = 0; e < tgi_held<dtype>; e += pack) {
        const int place = tgi_place<width>(team, e);
        char *const at = tgi_team_at<dtype, width>(row, i + place);
        real y[pack];
        if (place >= left) continue;
#pragma unroll
        for (int k = 0; k < pack; ++k) y[k] = value(e + k);
        const auto rounded = tgi_rounded<dtype, pack>(y);
        if (tgi_whole<width>(place, left, first)) rounded.store(at);
        else if (width > TGI_ASTRIDE) tgi_store_edge(at, first - place, left - place, rounded);
    }
}

/* The chunk of the row = x. */
template <int dtype, int width, class real, int held>
__device__ inline void tgi_team_store(const tgi_team &team, int64_t i, const tgi_row &row, const real (&x)[held])
{
    tgi_team_store_of<dtype, width>(team, i, row, [&](int e) { return x[e]; });
}

/* x = the chunk of the row `sum`, which becomes that of a + b; x is rounded as it is stored. */
template <int dtype, int width, class real, int held>
__device__ inline void tgi_team_add(const tgi_team &team, int64_t i, const tgi_row &a, const tgi_row &b,
                                    const tgi_row &sum, real (&x)[held])
{
    real y[held];
    tgi_team_load<dtype, width>(team, i, a, (real)0, x);
    tgi_team_load<dtype, width>(team, i, b, (real)0, y);
    const int left = tgi_left<dtype>(team, i);
#pragma unroll
    for (int e = 0; e < held; e += width) {
        const int place = tgi_place<width>(team, e);
        if (place >= left) continue;
#pragma unroll
        for (int k = e; k < e + width; ++k) x[k] += y[k];
        const auto rounded = tgi_rounded<dtype, width>(x + e);
        rounded.store(tgi_team_at<dtype, width>(sum, i + place));
#pragma unroll
        for (int k = 0; k < width; ++k) x[e + k] = rounded.template value<real>(k);
    }
}

/* The pack that begins `bytes` before the end of `low`, behind which `high` follows. */
template <int dtype, int width>
__device__ inline tgi_loaded<dtype, width> tgi_joined(const tgi_loaded<dtype, width> &low,
                                                      const tgi_loaded<dtype, width> &high, int bytes)
{
    const int skipped = TGI_PACK_BYTES - bytes;
    uint32_t word[8];
    tgi_loaded<dtype, width> joined;
#pragma unroll
    for (int k = 0; k < 4; ++k) word[k] = low.word[k], word[k + 4] = high.word[k];
#pragma unroll
    for (int words = 4; words > 0; words /= 2) {
#pragma unroll
        for (int k = 0; k + words < 8; ++k) word[k] = skipped & 4 * words ? word[k + words] : word[k];
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) joined.word[k] = skipped & 2 ? word[k] >> 16 | word[k + 1] << 16 : word[k];
    return joined;
}

/* x = the chunk of a vector that all rows share, such as a weight; fill where it is NULL.  The vector itself begins
   with a pack: where rows begin between packs, each of theirs is joined of two of the vector. */
template <int dtype, int width, class real, int held>
__device__ inline void tgi_team_vector(const tgi_team &team, int64_t i, const void *vector, real fill, real (&x)[held])
{
    constexpr int size = (int)sizeof(typename tgi_stored<dtype>::type), pack = tgi_pack_of<width>;
    const tgi_row row = {(char *)(uintptr_t)vector, size, (tg_dtype)dtype};
    tgi_team all = team;
    all.n = vector ? team.n - team.first : 0; /* where it is NULL, nothing is loaded */
    all.first = 0;
    if constexpr (width > TGI_ASTRIDE) {
        tgi_loaded<dtype, pack> low[held / pack], high[held / pack];
        tgi_team_load_raw<dtype, width>(all, i - pack, row, fill, low);
        tgi_team_load_raw<dtype, width>(all, i, row, fill, high);
#pragma unroll
        for (int k = 0; k < held / pack; ++k) high[k] = tgi_joined(low[k], high[k], team.first * size);
#pragma unroll
        for (int e = 0; e < held; ++e) x[e] = high[e / pack].template value<real>(e % pack);
    } else {
        tgi_team_load<dtype, width>(all, i, row, fill, x);
    }
}

/* A kernel's loop over its rows: for (int64_t base = tgi_first_base(job); base < rows; base += tgi_base_step(job)), the
   same for all teams of a block; row number base + k belongs to team k. */
__device__ inline int64_t tgi_base_step(const tgi_team_job &job)
{
    return (int64_t)gridDim.x * (blockDim.x >> job.log_threads);
}
__device__ inline int64_t tgi_first_base(const tgi_team_job &job)
{
    return (int64_t)blockIdx.x * (blockDim.x >> job.log_threads);
}
__device__ inline int64_t tgi_row_of(const tgi_team_job &job, int64_t base)
{
    return base + (threadIdx.x >> job.log_threads);
}

/* This thread's place in its team, which has this row, from place 0 on. */
__device__ inline tgi_team tgi_team_of(const tgi_team_job &job, int64_t row)
{
    const bool active = row < job.rows.iter.numel;
    return {job.threads, (int)threadIdx.x & (job.threads - 1), active, active ? job.rows.length : 0, 0};
}

/* The team's row, of packs of 16 bytes, begins between them: its element 0, which is here, gets its place. */
template <int width> __device__ inline void tgi_begin_between(tgi_team *team, const void *element)
{
    constexpr int size = TGI_PACK_BYTES / tgi_pack_of<width>;
    if (!team->active) return;
    team->first = (int)((uintptr_t)element % TGI_PACK_BYTES) / size;
    team->n += team->first;
}

/* tgi_team_of, and the job's first N operands of the team's row, each from place 0 on. */
template <int width, int N>
__device__ inline tgi_team tgi_team_begin(const tgi_team_job &job, int64_t row, tgi_row (&arg)[N])
{
    tgi_team team = tgi_team_of(job, row);
    tgi_row_init(job.rows, team.active ? row : 0, arg);
    if (width > TGI_ASTRIDE) {
        const int bytes = (int)((uintptr_t)arg[0].data % TGI_PACK_BYTES);
        tgi_begin_between<width>(&team, arg[0].data);
#pragma unroll
        for (int k = 0; k < N; ++k) arg[k].data -= job.between >> k & 1 ? bytes : 0;
    }
    return team;
}

/* Each x = its sum over the lanes whose numbers differ in this bit, or the larger one. */
template <bool largest, class real, int n> __device__ inline void tgi_combine_lanes(real (&x)[n], int bit)
{
#pragma unroll
    for (int k = 0; k < n; ++k) {
        const real y = __shfl_xor_sync(TGI_FULL_MASK, x[k], bit);
        x[k] = !largest ? x[k] + y : x[k] > y ? x[k] : y;
    }
}

/* Each x[k] = its sum over the threads of a team, or the largest one: first over the lanes of each warp, then over the
   team's warps.  All threads of the block call it, and all get the results of their team. */
template <bool largest, class real, int n> __device__ inline void tgi_team_combine(real (&x)[n], int threads)
{
    __shared__ real part[n][TGI_TEAM_MOST / 32]; /* the results of each warp */
    const int warps = threads / 32, lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    if (warps) { /* usual; a loop of known length takes a third of the instructions */
#pragma unroll
        for (int bit = 16; bit > 0; bit >>= 1) tgi_combine_lanes<largest>(x, bit);
    } else {
        for (int bit = threads >> 1; bit > 0; bit >>= 1) tgi_combine_lanes<largest>(x, bit);
    }
    if (warps <= 1) return;
    __syncthreads(); /* other warps may still read part in the call before */
#pragma unroll
    for (int k = 0; k < n && lane == 0; ++k) part[k][warp] = x[k];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < n; ++k) x[k] = part[k][(warp & ~(warps - 1)) + (lane & (warps - 1))]; /* of one warp each */
    for (int bit = warps >> 1; bit > 0; bit >>= 1) tgi_combine_lanes<largest>(x, bit);
}
template <bool largest, class real> __device__ inline real tgi_team_combine(real x, int threads)
{
    real one[1] = {x};
    tgi_team_combine<largest>(one, threads);
    return one[0];
}
template <class real> __device__ inline real tgi_team_sum(real x, int threads)
{
    return tgi_team_combine<false>(x, threads);
}

/* Whether all rows of the operands `whole` (bit k: operand k), consist of packs. */
static bool tgi_rows_packed(const tgi_row_job *job, unsigned whole, int64_t size)
{
    uintptr_t places = (uintptr_t)(job->length * size);
    for (int k = 0; k < job->iter.nargs; ++k) {
        if (!(whole >> k & 1)) continue;
        if (job->step[k] != size) return false;
        places |= (uintptr_t)job->iter.data[k];
        for (int d = 0; d < job->iter.ndim; ++d) {
            if (job->iter.dim[d] > 1) places |= (uintptr_t)job->iter.stride[k][d];
        }
    }
    return places % TGI_PACK_BYTES == 0;
}

/* Whether the rows of these operands have no gaps, and begin at the same place of a pack.  Short ones would consist of
   their first and last packs. */
static bool tgi_rows_between_packs(const tgi_row_job *job, unsigned whole, int64_t size)
{
    uintptr_t apart = 0;
    for (int k = 0; k < job->iter.nargs; ++k) {
        if (!(whole >> k & 1)) continue;
        if (job->step[k] != size) return false;
        apart |= (uintptr_t)job->iter.data[k] - (uintptr_t)job->iter.data[0];
        for (int d = 0; d < job->iter.ndim; ++d) {
            if (job->iter.dim[d] > 1) apart |= (uintptr_t)(job->iter.stride[k][d] - job->iter.stride[0][d]);
        }
    }
    return apart % TGI_PACK_BYTES == 0 && job->length * size >= 8 * TGI_PACK_BYTES;
}

/* `whole`: the operands whose rows are of full length; the others have one element for each row. */
static tgi_team_job tgi_team_job_of(const tgi_rows *rows, unsigned whole)
{
    const tg_dtype dtype = rows->arg[0].dtype;
    const int64_t size = tgi_bytes_of(dtype), held = dtype == TG_F64 ? tgi_held<TG_F64> : tgi_held<TG_F32>;
    tgi_team_job job;
    job.rows = tgi_row_job_of(rows);
    job.packed = dtype != TG_F64 && tgi_rows_packed(&job.rows, whole, size);
    job.between = dtype != TG_F64 && !job.packed && tgi_rows_between_packs(&job.rows, whole, size) ? whole : 0;
    const int64_t width = job.packed || job.between ? TGI_PACK_BYTES / size : 1;
    for (job.threads = 8; job.threads < TGI_TEAM_MOST; job.threads *= 2) { /* first all lanes of a warp take part */
        const int64_t places = rows->length + (job.between ? width - 1 : 0);
        if (places <= job.threads * (job.threads < 32 ? width : held)) break;
    }
    for (job.log_threads = 0; 1 << job.log_threads < job.threads;) ++job.log_threads;
    return job;
}

/* The threads of a block, which has one team or more. */
static int tgi_team_block(const tgi_team_job &job) { return job.threads < TGI_BLOCK ? (int)TGI_BLOCK : job.threads; }

/* The number of the job's width in TGI_FOR_WIDTHS. */
static int tgi_width_number(const tgi_team_job &job) { return job.packed ? 1 : job.between ? 2 : 0; }

/* Launches the kernel for the rows' dtype and width, kernel(job, args...), with at most so many blocks. */
template <class kernel, class... A>
static bool tgi_launch_teams(tgi_thread *S, const tgi_cuda_device *d, const kernel (&kernels)[4][3],
                             const tgi_team_job &job, int64_t most, const A &...args)
{
    const int threads = tgi_team_block(job), teams = threads / job.threads;
    const int64_t blocks = tgi_at_most((job.rows.iter.numel + teams - 1) / teams, most);
    if (blocks == 0) return true;
    const kernel chosen = kernels[job.rows.iter.dtype[0]][tgi_width_number(job)];
    return tgi_launch(S, d, chosen, blocks, threads, job, args...);
}

/* A kernel with two template arguments, for each floating-point dtype in the order of tg_dtype, and for each width. */
#define TGI_FOR_WIDTHS(kernel, dtype, pack) {kernel<dtype, 1>, kernel<dtype, pack>, kernel<dtype, pack + TGI_ASTRIDE>}
#define TGI_FOR_ROWS(kernel)                                                                    \
    {TGI_FOR_WIDTHS(kernel, TG_F32, 4), {kernel<TG_F64, 1>, NULL, NULL},                        \
     TGI_FOR_WIDTHS(kernel, TG_BF16, 8), TGI_FOR_WIDTHS(kernel, TG_F16, 8)}

/* ---- softmax ---- */

/* The largest x so far and the sum of exp(x - largest): in one pass, because the sum is scaled when a larger x comes.
   Milakov and Gimelshein (2018) */
template <class real> struct tgi_exp_sum {
    real largest, sum;
};

/* What is subtracted from x before exp; exp(-inf - 0) is 0 where all so far are -inf. */
template <class real> __device__ inline real tgi_exp_base(real largest) { return largest == -HUGE_VAL ? 0 : largest; }

/* e^x, x a difference of numbers of this dtype.  For those of 16 bits 2^(x log2(e)) is good enough: the product is off
   by x / 2^24, and e^x by as large a part of it, less than 2^-18 for any x > -64; they have 8 or 11 bits. */
template <int dtype, class real> __device__ inline real tgi_exp_for(real x)
{
    if constexpr (dtype == TG_BF16 || dtype == TG_F16) return tgi_exp2(x * 1.4426950408889634f);
    else return tgi_exp(x);
}

/* Adds x, in which -inf stands for no element. */
template <int dtype, class real, int held>
__device__ inline void tgi_exp_sum_add(tgi_exp_sum<real> *s, const real (&x)[held])
{
    real largest = s->largest, sum = 0;
#pragma unroll
    for (int e = 0; e < held; ++e) largest = fmax(largest, x[e]); /* not NaN */
    const real base = tgi_exp_base(largest);
#pragma unroll
    for (int e = 0; e < held; ++e) sum += tgi_exp_for<dtype>(x[e] - base);
    s->sum = s->sum * tgi_exp_for<dtype>(s->largest - base) + sum;
    s->largest = largest;
}

/* Of all threads of the team. */
template <class real> __device__ inline tgi_exp_sum<real> tgi_team_exp_sum(tgi_exp_sum<real> s, int threads)
{
    const real largest = tgi_team_combine<true>(s.largest, threads);
    const real sum = tgi_team_sum(s.sum * tgi_exp(s.largest - tgi_exp_base(largest)), threads);
    return {largest, sum};
}

/* y, x [rows, n]: y = exp(x - max) / sum(exp(x - max)); with as_log, y = x - max - log(sum(exp(x - max))).  A row of
   -inf alone gives NaN. */
template <int dtype, int width>
__global__ void __launch_bounds__(TGI_TEAM_MOST) tgi_softmax_rows(tgi_team_job job, bool as_log)
{
    typedef typename tgi_computed<dtype>::type real;
    for (int64_t base = tgi_first_base(job); base < job.rows.iter.numel; base += tgi_base_step(job)) {
        tgi_row arg[2];
        const tgi_team team = tgi_team_begin<width>(job, tgi_row_of(job, base), arg);
        real x[tgi_held<dtype>];
        tgi_exp_sum<real> s = {(real)-HUGE_VAL, 0};
        for (int64_t i = 0; i < team.n; i += tgi_chunk<dtype>(team)) {
            tgi_team_load<dtype, width>(team, i, arg[1], (real)-HUGE_VAL, x);
            tgi_exp_sum_add<dtype>(&s, x);
        }
        s = tgi_team_exp_sum(s, team.threads);
        const real scale = 1 / s.sum, log_sum = tgi_log(s.sum);
        for (int64_t i = 0; i < team.n; i += tgi_chunk<dtype>(team)) {
            if (tgi_in_chunks<dtype>(team)) tgi_team_load<dtype, width>(team, i, arg[1], (real)-HUGE_VAL, x);
#pragma unroll
            for (int e = 0; e < tgi_held<dtype>; ++e) {
                const real shifted = x[e] - s.largest;
                x[e] = as_log ? shifted - log_sum : tgi_exp_for<dtype>(shifted) * scale;
            }
            tgi_team_store<dtype, width>(team, i, arg[0], x);
        }
    }
}

static bool tgi_cuda_softmax(tgi_thread *S, bool log, const tgi_rows *rows)
{
    void (*const kernels[4][3])(tgi_team_job, bool) = TGI_FOR_ROWS(tgi_softmax_rows);
    const tgi_cuda_device *d = tgi_device_for(S, rows->arg[0].index);
    return d && tgi_launch_teams(S, d, kernels, tgi_team_job_of(rows, 3), TGI_MAX_BLOCKS, log);
}

/* dx, g, y [rows, n]: dx = y * (g - sum(g * y)); with as_log, dx = g - exp(y) * sum(g). */
template <int dtype, int width>
__global__ void __launch_bounds__(TGI_TEAM_MOST, width > TGI_ASTRIDE ? 1 : 0)
    tgi_softmax_backward_rows(tgi_team_job job, bool as_log)
{
    typedef typename tgi_computed<dtype>::type real;
    for (int64_t base = tgi_first_base(job); base < job.rows.iter.numel; base += tgi_base_step(job)) {
        tgi_row arg[3];
        const tgi_team team = tgi_team_begin<width>(job, tgi_row_of(job, base), arg);
        real g[tgi_held<dtype>], y[tgi_held<dtype>], sum = 0;
        for (int64_t i = 0; i < team.n; i += tgi_chunk<dtype>(team)) {
            tgi_team_load<dtype, width>(team, i, arg[1], (real)0, g);
            tgi_team_load<dtype, width>(team, i, arg[2], (real)0, y);
            real part = 0;
#pragma unroll
            for (int e = 0; e < tgi_held<dtype>; ++e) part += as_log ? g[e] : g[e] * y[e];
            sum += part;
        }
        sum = tgi_team_sum(sum, team.threads);
        for (int64_t i = 0; i < team.n; i += tgi_chunk<dtype>(team)) {
            if (tgi_in_chunks<dtype>(team)) {
                tgi_team_load<dtype, width>(team, i, arg[1], (real)0, g);
                tgi_team_load<dtype, width>(team, i, arg[2], (real)0, y);
            }
#pragma unroll
            for (int e = 0; e < tgi_held<dtype>; ++e)
                g[e] = as_log ? g[e] - tgi_exp_for<dtype>(y[e]) * sum : y[e] * (g[e] - sum);
            tgi_team_store<dtype, width>(team, i, arg[0], g);
        }
    }
}

static bool tgi_cuda_softmax_backward(tgi_thread *S, bool log, const tgi_rows *rows)
{
    void (*const kernels[4][3])(tgi_team_job, bool) = TGI_FOR_ROWS(tgi_softmax_backward_rows);
    const tgi_cuda_device *d = tgi_device_for(S, rows->arg[0].index);
    return d && tgi_launch_teams(S, d, kernels, tgi_team_job_of(rows, 7), TGI_MAX_BLOCKS, log);
}

/* ---- layer_norm, rms_norm ---- */

/* A number in both types, because conversions between them are slow on a GPU. */
typedef struct {
    float f32;
    double f64;
} tgi_both;
__device__ inline float tgi_one_of(const tgi_both &x, float) { return x.f32; }
__device__ inline double tgi_one_of(const tgi_both &x, double) { return x.f64; }

/* As one would write it first, in f32, a thread for each row:

       __global__ void layer_norm(const float *x, const float *weight, const float *bias, float *y, int rows, int n,
                                  float eps)
       {
           const int row = blockIdx.x * blockDim.x + threadIdx.x;
           if (row >= rows) return;
           float mean = 0, variance = 0;
           for (int i = 0; i < n; ++i) mean += x[row * n + i] / n;
           for (int i = 0; i < n; ++i) variance += (x[row * n + i] - mean) * (x[row * n + i] - mean) / n;
           for (int i = 0; i < n; ++i)
               y[row * n + i] = (x[row * n + i] - mean) / sqrtf(variance + eps) * weight[i] + bias[i];
       }

   That reads x three times, and neighbouring threads read numbers that are a row apart: each of the 4 bytes takes a
   sector of 32.  In the worst case, without a cache, 3 * 8 = 24 times the bytes are read.  And 16384 rows are only 64
   blocks of 256, for 132 multiprocessors.  The kernel below reads x once, in whole sectors, with many threads for each
   row.

   y, x [rows, n]; rstd [rows]; mean [rows] or NULL; weight, bias [n] or NULL:
       y = (x - mean) * rstd * weight + bias,  rstd = 1 / sqrt(mean((x - mean)^2) + eps)
   With rms, 0 stands for the mean.  mean and rstd are kept for backward.  The variance needs a second pass over x,
   which is in registers; so are weight and bias, for all rows of the team, which begin at the same place of a pack
   (tgi_rows_begin_alike).  adds: x + residual stands for x, and is
   stored to sum; both [rows, n]. */
template <int dtype, int width, bool adds>
__global__ void __launch_bounds__(TGI_TEAM_MOST)
    tgi_norm_rows(tgi_team_job job, const void *weight, const void *bias, void *mean_of_row, bool rms, tgi_both eps)
{
    typedef typename tgi_computed<dtype>::type real;
    constexpr int held = tgi_held<dtype>;
    const real n = (real)job.rows.length;
    tgi_row arg[adds ? 5 : 3]; /* y, rstd, x, residual, sum */
    const tgi_row &in = arg[adds ? 4 : 2];
    const tgi_team any = tgi_team_begin<width>(job, tgi_row_of(job, tgi_first_base(job)), arg);
    real x[held], w[held], b[held];
    tgi_team_vector<dtype, width>(any, 0, weight, (real)1, w);
    tgi_team_vector<dtype, width>(any, 0, bias, (real)0, b);
    for (int64_t base = tgi_first_base(job); base < job.rows.iter.numel; base += tgi_base_step(job)) {
        const int64_t row = tgi_row_of(job, base);
        const tgi_team team = tgi_team_begin<width>(job, row, arg);
        real sum = 0, squares = 0;
        for (int64_t i = 0; i < team.n; i += tgi_chunk<dtype>(team)) {
            real part = 0;
            if constexpr (adds)
                tgi_team_add<dtype, width>(team, i, arg[2], arg[3], in, x);
            else
                tgi_team_load<dtype, width>(team, i, in, (real)0, x);
            tgi_team_each<width, held>(team, tgi_left<dtype>(team, i), [&](int e) { part += x[e]; });
            sum += part;
        }
        const real mean = rms ? 0 : tgi_team_sum(sum, team.threads) / n;
        for (int64_t i = 0; i < team.n; i += tgi_chunk<dtype>(team)) {
            real part = 0;
            if (tgi_in_chunks<dtype>(team)) tgi_team_load<dtype, width>(team, i, in, (real)0, x);
            const int left = tgi_left<dtype>(team, i), first = tgi_first(team, i);
            tgi_team_each<width, held>(team, left, [&](int e) {
                const real centered = tgi_exists<width>(team, e, left, first) ? x[e] - mean : 0;
                part += centered * centered;
            });
            squares += part;
        }
        const real rstd = 1 / tgi_sqrt(tgi_team_sum(squares, team.threads) / n + tgi_one_of(eps, real()));
        for (int64_t i = 0; i < team.n; i += tgi_chunk<dtype>(team)) {
            if (tgi_in_chunks<dtype>(team)) {
                tgi_team_load<dtype, width>(team, i, in, (real)0, x);
                tgi_team_vector<dtype, width>(team, i, weight, (real)1, w);
                tgi_team_vector<dtype, width>(team, i, bias, (real)0, b);
            }
            tgi_team_store_of<dtype, width>(team, i, arg[0],
                                            [&](int e) { return (x[e] - mean) * rstd * w[e] + b[e]; });
        }
        if (team.t == 0 && team.active) {
            *(real *)arg[1].data = rstd;
            if (mean_of_row) ((real *)mean_of_row)[row] = mean;
        }
    }
}

template <int dtype, int width> constexpr auto tgi_plain_norm_rows = tgi_norm_rows<dtype, width, false>;

/* Whether the dense rows of each team begin at the same place of a pack, with so many blocks at most: it has one row
   alone, or one of 8, 16, .. rows, and 8 rows of any length consist of packs. */
static bool tgi_rows_begin_alike(const tgi_team_job &job, int64_t most)
{
    const int64_t teams = most * (tgi_team_block(job) / job.threads);
    return job.rows.iter.numel <= teams || teams % 8 == 0;
}

/* The most blocks: they are on the GPU at the same time, two on each multiprocessor, and load weight and bias once.  No
   more than there can be: each of them leaves sums for dweight and dbias. */
enum { TGI_NORM_BLOCKS = TGI_MAX_BLOCKS < 256 ? TGI_MAX_BLOCKS : 256 };
static_assert(TGI_NORM_BLOCKS <= TGI_GROUP_BLOCKS * (TGI_ARRIVALS - 1), "a counter for each group");
/* rows: y, rstd, x and, where there is a residual, residual and sum; these must consist of packs. */
static tgi_answer tgi_norm_launch(tgi_thread *S, const tgi_rows *rows, const void *weight, const void *bias,
                                  void *mean_of_row, bool rms, double eps)
{
    typedef void (*kernel)(tgi_team_job, const void *, const void *, void *, bool, tgi_both);
    const kernel plain[4][3] = TGI_FOR_ROWS(tgi_plain_norm_rows);
    const kernel adding[4][3] = {
        {NULL, tgi_norm_rows<TG_F32, 4, true>}, {}, {NULL, tgi_norm_rows<TG_BF16, 8, true>},
        {NULL, tgi_norm_rows<TG_F16, 8, true>}};
    const tgi_both both = {(float)eps, eps};
    const bool adds = rows->nargs > 3;
    const tgi_cuda_device *d = tgi_device_for(S, rows->arg[0].index);
    tgi_team_job job = tgi_team_job_of(rows, adds ? 29 : 5);
    if (((uintptr_t)weight | (uintptr_t)bias) % TGI_PACK_BYTES) job.packed = false, job.between = 0;
    if ((weight || bias) && !tgi_rows_begin_alike(job, TGI_NORM_BLOCKS)) job.between = 0;
    if (adds && !job.packed) return TGI_COMPOSE;
    const bool ok = d && tgi_launch_teams(S, d, adds ? adding : plain, job, TGI_NORM_BLOCKS, weight, bias, mean_of_row,
                                          rms, both);
    return ok ? TGI_DONE : TGI_FAILED;
}

static bool tgi_cuda_layer_norm(tgi_thread *S, bool rms, double eps, const tgi_rows *rows)
{
    return tgi_norm_launch(S, rows, NULL, NULL, NULL, rms, eps) == TGI_DONE;
}

/* Where the sums of a norm's gradient go: partial [blocks + groups, 2, held * threads], first for dweight, then for
   dbias, in which the column that element e of thread t has in rows that consist of packs stands at e * threads + t;
   dweight, dbias [n] or NULL; arrived: the device's counters.  A group is TGI_GROUP_BLOCKS blocks that follow each
   other. */
typedef struct {
    void *partial, *dweight, *dbias;
    unsigned *arrived;
} tgi_norm_sums;

/* Where the sum of the column that is x[e] of this thread stands in a part of partial; -1 if there is none. */
template <int width> __device__ inline int tgi_norm_sum_at(const tgi_team_job &job, const tgi_team &team, int e)
{
    constexpr int pack = tgi_pack_of<width>;
    const int column = tgi_place<width>(team, e) - team.first, number = column / pack;
    if (column < 0 || column >= job.rows.length) return -1;
    if (width < TGI_ASTRIDE) return e * team.threads + team.t;
    return ((number >> job.log_threads) * pack + column % pack) * team.threads + (number & (team.threads - 1));
}

/* partial = dweight and dbias of this block: its teams, one after the other, add theirs. */
template <int width, class real, int held>
__device__ inline void tgi_norm_block_sums(const tgi_team_job &job, const tgi_team &team, void *partial,
                                           real (&dweight)[held], real (&dbias)[held])
{
    __shared__ real sum[2][held * TGI_BLOCK / 2]; /* not used by a team that is a whole block */
    const int threads = job.threads, teams = (int)blockDim.x / threads;
    real *const to = (real *)partial + (int64_t)blockIdx.x * 2 * held * threads;
    for (int k = 0; k < teams; ++k) {
#pragma unroll
        for (int e = 0; e < held && (int)threadIdx.x / threads == k; ++e) {
            const int at = tgi_norm_sum_at<width>(job, team, e);
            if (at < 0) continue;
            if (k > 0) dweight[e] += sum[0][at], dbias[e] += sum[1][at];
            if (k + 1 < teams)
                sum[0][at] = dweight[e], sum[1][at] = dbias[e];
            else
                to[at] = dweight[e], to[held * threads + at] = dbias[e];
        }
        __syncthreads();
    }
}

/* The sum of this place in the parts [count, stride] that begin at `from`; its loads are under way together. */
template <class real> __device__ inline real tgi_sum_of_parts(const real *from, int count, int stride)
{
    real part[TGI_GROUP_BLOCKS], sum = 0;
#pragma unroll
    for (int k = 0; k < TGI_GROUP_BLOCKS; ++k) part[k] = k < count ? from[(int64_t)k * stride] : 0;
#pragma unroll
    for (int k = 0; k < TGI_GROUP_BLOCKS; ++k) sum += part[k];
    return sum;
}

/* dweight and dbias = the sums of partial over all blocks.  The last block of a group adds those of its group; the last
   group to have done so adds those of all groups.  Which ones these are makes no difference: each sum has one order. */
template <int dtype, int width>
__device__ inline void tgi_norm_columns(const tgi_team_job &job, const tgi_norm_sums &sums)
{
    typedef typename tgi_computed<dtype>::type real;
    const int places = tgi_held<dtype> * job.threads, blocks = (int)gridDim.x;
    const int groups = (blocks + TGI_GROUP_BLOCKS - 1) / TGI_GROUP_BLOCKS;
    const int group = (int)blockIdx.x / TGI_GROUP_BLOCKS, first = group * TGI_GROUP_BLOCKS;
    const int members = blocks - first < TGI_GROUP_BLOCKS ? blocks - first : (int)TGI_GROUP_BLOCKS;
    real *const partial = (real *)sums.partial, *const of_groups = partial + (int64_t)blocks * 2 * places;
    for (int level = 0; level < 2; ++level) {
        const real *const from = level ? of_groups : partial + (int64_t)first * 2 * places;
        if (!tgi_arrives_last(&sums.arrived[level ? TGI_ARRIVALS - 1 : group], level ? groups : members)) return;
        for (int k = (int)threadIdx.x; k < 2 * places; k += (int)blockDim.x) {
            const int at = k % places;
            const tgi_team team = {job.threads, at % job.threads, true, job.rows.length, 0};
            const int column = tgi_place<width>(team, at / job.threads);
            void *const to = k < places ? sums.dweight : sums.dbias;
            if (!to || column >= job.rows.length) continue;
            const real sum = tgi_sum_of_parts(from + k, level ? groups : members, 2 * places);
            if (level == 0)
                of_groups[(int64_t)group * 2 * places + k] = sum;
            else
                tgi_store_as((tg_dtype)dtype, (typename tgi_stored<dtype>::type *)to + column, sum);
        }
    }
}

/* dx, g, x [rows, n]; mean, rstd [rows]; weight [n] or NULL.  Where there is no mean, x is xn already.
   With xn = (x - mean) * rstd and h = g * weight:
       dx = rstd * (h - mean(h) - xn * mean(h * xn));  with rms, without mean(h)
   adds: plus g_sum [rows, n], the gradient that x itself has.
   sums: also dweight and dbias, the sums of g * xn and of g over all rows.  Each thread adds up those of its places in
   all of its rows, which are one chunk each; then tgi_norm_block_sums does so in its block, tgi_norm_columns in all. */
template <int dtype, int width, bool sums, bool adds>
__global__ void __launch_bounds__(TGI_TEAM_MOST)
    tgi_norm_backward_rows(tgi_team_job job, const void *weight, const void *mean_of_row, tgi_norm_sums all, bool rms)
{
    typedef typename tgi_computed<dtype>::type real;
    constexpr int held = tgi_held<dtype>;
    const real n = (real)job.rows.length;
    tgi_row arg[4]; /* dx, g, x, rstd; g_sum, operand 4, lies as dx does */
    const tgi_team any = tgi_team_begin<width>(job, tgi_row_of(job, tgi_first_base(job)), arg);
    real w[held], dweight[held] = {}, dbias[held] = {};
    tgi_team_vector<dtype, width>(any, 0, weight, (real)1, w);
    for (int64_t base = tgi_first_base(job); base < job.rows.iter.numel; base += tgi_base_step(job)) {
        const int64_t row = tgi_row_of(job, base);
        const tgi_team team = tgi_team_begin<width>(job, row, arg);
        const real rstd = team.active ? *(const real *)arg[3].data : 0, scale = mean_of_row ? rstd : 1;
        const real mean = mean_of_row && team.active ? ((const real *)mean_of_row)[row] : 0;
        const int64_t chunk = sums ? team.n : tgi_chunk<dtype>(team);
        real x[held], h[held], h_sum = 0, product_sum = 0;
        for (int64_t i = 0; i < team.n; i += chunk) {
            real part = 0, products = 0;
            tgi_team_load<dtype, width>(team, i, arg[2], (real)0, x);
            tgi_team_load<dtype, width>(team, i, arg[1], (real)0, h);
            if (!sums && tgi_in_chunks<dtype>(team)) tgi_team_vector<dtype, width>(team, i, weight, (real)1, w);
            tgi_team_each<width, held>(team, tgi_left<dtype>(team, i), [&](int e) {
                x[e] = (x[e] - mean) * scale;
                if (sums) dweight[e] += h[e] * x[e], dbias[e] += h[e];
                h[e] *= w[e];
                part += h[e], products += h[e] * x[e];
            });
            h_sum += part, product_sum += products;
        }
        real sum[2] = {product_sum, h_sum};
        tgi_team_combine<false>(sum, team.threads);
        const real product_mean = sum[0] / n, h_mean = rms ? 0 : sum[1] / n;
        for (int64_t i = 0; i < team.n; i += chunk) {
            if (!sums && tgi_in_chunks<dtype>(team)) {
                tgi_team_load<dtype, width>(team, i, arg[2], (real)0, x);
                tgi_team_load<dtype, width>(team, i, arg[1], (real)0, h);
                tgi_team_vector<dtype, width>(team, i, weight, (real)1, w);
#pragma unroll
                for (int e = 0; e < held; ++e) x[e] = (x[e] - mean) * scale, h[e] *= w[e];
            }
            const auto dx = [&](int e) { return rstd * (h[e] - h_mean - x[e] * product_mean); };
            if constexpr (adds) {
                const int64_t from_dx = job.rows.iter.data[4] - job.rows.iter.data[0];
                const tgi_row more = {arg[0].data + from_dx, arg[0].step, arg[0].dtype};
                tgi_loaded<dtype, width> pack; /* of g_sum, one at a time: registers are scarce */
                tgi_team_store_of<dtype, width>(team, i, arg[0], [&](int e) {
                    char *const at = tgi_team_at<dtype, width>(more, i + tgi_place<width>(team, e));
                    if (e % width == 0) pack.template load<width>(at);
                    return dx(e) + pack.template value<real>(e % width);
                });
            } else {
                tgi_team_store_of<dtype, width>(team, i, arg[0], dx);
            }
        }
    }
    if constexpr (sums) {
        tgi_norm_block_sums<width>(job, any, all.partial, dweight, dbias);
        tgi_norm_columns<dtype, width>(job, all);
    }
}

template <int dtype, int width> constexpr auto tgi_norm_dx_rows = tgi_norm_backward_rows<dtype, width, false, false>;

static bool tgi_cuda_layer_norm_backward(tgi_thread *S, bool rms, const tgi_rows *rows)
{
    void (*const kernels[4][3])(tgi_team_job, const void *, const void *, tgi_norm_sums, bool) =
        TGI_FOR_ROWS(tgi_norm_dx_rows);
    const tgi_cuda_device *d = tgi_device_for(S, rows->arg[0].index);
    void *const none = NULL;
    const tgi_norm_sums no_sums = {};
    return d && tgi_launch_teams(S, d, kernels, tgi_team_job_of(rows, 7), TGI_NORM_BLOCKS, none, none, no_sums, rms);
}

/* ---- the same with weight and bias ---- */

/* One more operand for rows that lie one after the other: `length` elements of each. */
static void tgi_add_operand(tgi_rows *rows, const void *data, tg_dtype dtype, int64_t length)
{
    tgi_operand *const arg = &rows->arg[rows->nargs];
    arg->data = (void *)(uintptr_t)data;
    arg->dtype = dtype;
    arg->index = rows->arg[0].index;
    arg->stride[0] = length;
    rows->step[rows->nargs++] = 1;
}

static tgi_rows tgi_dense_rows(int64_t n, int64_t length, int index)
{
    tgi_rows rows = {};
    rows.ndim = 1;
    rows.dim[0] = n;
    rows.length = length;
    rows.arg[0].index = index;
    return rows;
}

/* The second half of stats. */
static void *tgi_norm_rstd(const tgi_row_norm *norm)
{
    return (char *)norm->stats + norm->rows * tgi_bytes_of(tgi_compute_dtype(norm->dtype));
}

static tgi_answer tgi_cuda_norm(tgi_thread *S, const tgi_row_norm *norm)
{
    if (norm->dtype == TG_F64) return TGI_COMPOSE;
    tgi_rows rows = tgi_dense_rows(norm->rows, norm->n, norm->index);
    tgi_add_operand(&rows, norm->y, norm->dtype, norm->n);
    tgi_add_operand(&rows, tgi_norm_rstd(norm), TG_F32, 1);
    tgi_add_operand(&rows, norm->x, norm->dtype, norm->n);
    if (norm->residual) {
        tgi_add_operand(&rows, norm->residual, norm->dtype, norm->n);
        tgi_add_operand(&rows, norm->sum, norm->dtype, norm->n);
    }
    return tgi_norm_launch(S, &rows, norm->weight, norm->bias, norm->stats, norm->rms, norm->eps);
}

/* The kernel of one dtype.  The number of blocks, and so the order of all sums, depends on the shape alone; it is
   small, so that partial is, but enough for all of a GPU. */
template <int dtype, bool adds>
static bool tgi_norm_with_sums(tgi_thread *S, tgi_cuda_device *d, const tgi_row_norm *norm, const tgi_team_job &job)
{
    constexpr int width = tgi_width<dtype>;
    const int64_t places = tgi_held<dtype> * job.threads, teams = job.threads < TGI_BLOCK ? TGI_BLOCK / job.threads : 1;
    const int64_t blocks = tgi_at_most((norm->rows + teams - 1) / teams, TGI_NORM_BLOCKS);
    const int64_t groups = (blocks + TGI_GROUP_BLOCKS - 1) / TGI_GROUP_BLOCKS;
    void *const partial = tgi_scratch_alloc(S, d, "layer_norm", (blocks + groups) * 2 * places, sizeof(float));
    const tgi_norm_sums all = {partial, norm->dweight, norm->dbias, d->arrived};
    const int threads = (int)(teams * job.threads);
    auto kernel = tgi_norm_backward_rows<dtype, width, true, adds>;
    if constexpr (!adds) {
        if (job.between) kernel = tgi_norm_backward_rows<dtype, width + TGI_ASTRIDE, true, adds>;
    }
    const bool ok =
        partial && tgi_launch(S, d, kernel, blocks, threads, job, norm->weight, norm->stats, all, norm->rms);
    tgi_cuda_release(S, d->index, partial, 0);
    return ok;
}

template <bool adds>
static bool tgi_norm_backward_for(tgi_thread *S, tgi_cuda_device *d, const tgi_row_norm *norm, const tgi_team_job &job)
{
    return norm->dtype == TG_F32    ? tgi_norm_with_sums<TG_F32, adds>(S, d, norm, job)
           : norm->dtype == TG_BF16 ? tgi_norm_with_sums<TG_BF16, adds>(S, d, norm, job)
                                    : tgi_norm_with_sums<TG_F16, adds>(S, d, norm, job);
}

static tgi_answer tgi_cuda_norm_backward(tgi_thread *S, const tgi_row_norm *norm)
{
    tgi_cuda_device *d = tgi_device_for(S, norm->index);
    tgi_rows rows = tgi_dense_rows(norm->rows, norm->n, norm->index);
    tgi_add_operand(&rows, norm->dx, norm->dtype, norm->n);
    tgi_add_operand(&rows, norm->g, norm->dtype, norm->n);
    tgi_add_operand(&rows, norm->x, norm->dtype, norm->n);
    tgi_add_operand(&rows, tgi_norm_rstd(norm), TG_F32, 1);
    if (norm->g_sum) tgi_add_operand(&rows, norm->g_sum, norm->dtype, norm->n);
    tgi_team_job job = tgi_team_job_of(&rows, norm->g_sum ? 23 : 7);
    if (norm->g_sum || !tgi_rows_begin_alike(job, TGI_NORM_BLOCKS)) job.between = 0;
    const int64_t most = tgi_held<TG_F32> * TGI_TEAM_MOST - (job.between ? 7 : 0); /* elements before the first place */
    if (!(job.packed || job.between) || (uintptr_t)norm->weight % TGI_PACK_BYTES || norm->n > most) return TGI_COMPOSE;
    if (!d) return TGI_FAILED;
    const bool ok = norm->g_sum ? tgi_norm_backward_for<true>(S, d, norm, job)
                                : tgi_norm_backward_for<false>(S, d, norm, job);
    return ok ? TGI_DONE : TGI_FAILED;
}

/* These two are composed: of the op normalize, and of differences and their norm. */
static tgi_answer tgi_cuda_channel_norm(tgi_thread *, const tgi_channel_norm *) { return TGI_COMPOSE; }
static tgi_answer tgi_cuda_channel_norm_backward(tgi_thread *, const tgi_channel_norm *) { return TGI_COMPOSE; }
static tgi_answer tgi_cuda_cdist(tgi_thread *, const tgi_distances *) { return TGI_COMPOSE; }
static tgi_answer tgi_cuda_cdist_backward(tgi_thread *, const tgi_distances *) { return TGI_COMPOSE; }

/* ======== @@LOSS ================================================================================================== */

/* ---- cross_entropy of class indices ---- */

/* The target of a row as it is given; and -1 where it is ignored, or no class. */
__device__ inline int64_t tgi_class_given(const tgi_class_loss &p, int64_t row)
{
    return p.target_dtype == TG_I64 ? ((const int64_t *)p.targets)[row] : ((const int32_t *)p.targets)[row];
}
__device__ inline int64_t tgi_class_target(const tgi_class_loss &p, int64_t row)
{
    const int64_t t = tgi_class_given(p, row);
    return t != p.ignore_index && t >= 0 && t < p.classes ? t : -1;
}

template <int dtype> __device__ inline float tgi_class_weight(const tgi_class_loss &p, int64_t t)
{
    typedef typename tgi_stored<dtype>::type stored;
    return p.weight ? tgi_load_as<float>((tg_dtype)dtype, (const stored *)p.weight + t) : 1;
}

/* The sum of the weights of all classes, for all threads of the block; if there is no smoothing, nobody asks. */
template <int dtype>
__device__ inline float tgi_class_weights(const tgi_class_loss &p, const tgi_team_job &job, float smoothing)
{
    const int t = (int)threadIdx.x & (job.threads - 1);
    float sum = 0;
    if (smoothing == 0 || !p.weight) return (float)p.classes;
    for (int64_t i = t; i < p.classes; i += job.threads) sum += tgi_class_weight<dtype>(p, i);
    return tgi_team_sum(sum, job.threads);
}

/* Where place 0 of the logits of a row lies; the team gets the place of class 0. */
template <int dtype, int width>
__device__ inline const char *tgi_class_row(const tgi_class_loss &p, int64_t row, tgi_team *team)
{
    typedef typename tgi_stored<dtype>::type stored;
    const stored *const logits = (const stored *)p.logits + row * p.classes;
    if (width > TGI_ASTRIDE) tgi_begin_between<width>(team, logits);
    return (const char *)(logits - team->first);
}

/* The blocks that a multiprocessor has at a time: two for packs, so that a thread has 64 registers; the pieces of rows
   that begin between packs do not find place in these. */
template <int width> constexpr int tgi_class_blocks = width > 1 && width < TGI_ASTRIDE ? 2 : 1;

/* What the gradient of a row is made of, as of tgi_class_gradient. */
typedef struct {
    float largest, scale, u, one;
} tgi_class_slopes;

/* dlogits of a row from `from`, its logits or a copy of them, and the gradient g of its loss.  With target t:
       dlogits = exp(logits - largest) * scale - u * weight - (one where the class is t),
       one = g * (1 - smoothing) * weight[t],  u = g * uniform,  scale = (one + u * weights) / sum
   0 if t is negative.  The thread that has stored class t stores it once more.  Class 0 has the place team.first. */
template <int dtype, int width>
__device__ __forceinline__ void tgi_class_gradient(const tgi_class_loss &p, const tgi_team &team, int64_t row,
                                                   const char *from, int64_t t, const tgi_class_slopes &s)
{
    typedef typename tgi_stored<dtype>::type stored;
    const int64_t apart = (int64_t)tgi_pack_of<width> * team.threads;
    const stored *const logits = (const stored *)p.logits + row * p.classes - team.first;
    stored *const to = (stored *)p.dlogits + row * p.classes - team.first;
    if (t < 0) {
        tgi_team_packs<dtype, width>(team, [&](int64_t i, auto shape) {
            const tgi_loaded<dtype, decltype(shape)::pack> zeros = {};
#pragma unroll
            for (int k = 0; k < decltype(shape)::packs; ++k) zeros.store(to + i + k * apart);
        });
        return;
    }
    tgi_team_walk<dtype, width>(team, from, [&](int64_t i, const auto &raw, auto &x) {
        constexpr int n = (int)(sizeof x / sizeof *x), pack = (int)(n * sizeof *raw / sizeof raw);
#pragma unroll
        for (int e = 0; e < n; ++e) x[e] = tgi_exp_for<dtype>(x[e] - s.largest) * s.scale;
        if (s.u != 0) {
#pragma unroll
            for (int e = 0; e < n; ++e)
                x[e] -= s.u * tgi_class_weight<dtype>(p, i - team.first + e / pack * apart + e % pack);
        }
#pragma unroll
        for (int e = 0; e < n; e += pack) tgi_rounded<dtype, pack>(x + e).store(to + i + e / pack * apart);
    });
    const int64_t place = t + team.first;
    if (!tgi_team_has<width>(team, place)) return;
    const float x = tgi_load_as<float>((tg_dtype)dtype, logits + place);
    const float dx = tgi_exp_for<dtype>(x - s.largest) * s.scale - s.u * tgi_class_weight<dtype>(p, t) - s.one;
    tgi_store_as((tg_dtype)dtype, to + place, dx);
}

/* The slopes of a row with the target t >= 0 and the gradient g of its loss.  weights: see tgi_class_weights. */
template <int dtype>
__device__ inline tgi_class_slopes tgi_class_slopes_of(const tgi_class_loss &p, float g, int64_t t, float weights,
                                                       const tgi_exp_sum<float> &s, float smoothing, float uniform)
{
    const float one = g * (1 - smoothing) * tgi_class_weight<dtype>(p, t), u = g * uniform;
    return {s.largest, (one + u * weights) / s.sum, u, one};
}

/* What the gradient of each loss is to that of their mean. */
__device__ inline float tgi_class_share(const tgi_class_loss &p)
{
    return p.mean ? ((const float *)p.stats)[2 * p.rows] : 1;
}

/* loss, stats of logits [rows, classes], and dlogits unless it is NULL, see tgi_class_loss.  Logits are read once from
   memory, and then, for smoothing and for dlogits, from shared memory, where each thread keeps what it has read:
   `kept` bytes for each team; or, if that is 0, because a row is too long, from the cache.  uniform is smoothing /
   classes. */
template <int dtype, int width>
__global__ void __launch_bounds__(TGI_TEAM_MOST, tgi_class_blocks<width>)
    tgi_class_loss_rows(tgi_team_job job, tgi_class_loss p, float smoothing, float uniform, int kept)
{
    typedef typename tgi_stored<dtype>::type stored;
    TGI_DYNAMIC_SHARED(char, shared);
    char *const keep = shared + (int)(threadIdx.x >> job.log_threads) * kept;
    const float weights = tgi_class_weights<dtype>(p, job, smoothing);
    for (int64_t base = tgi_first_base(job); base < job.rows.iter.numel; base += tgi_base_step(job)) {
        const int64_t row = tgi_row_of(job, base);
        tgi_team team = tgi_team_of(job, row);
        const char *const logits = tgi_class_row<dtype, width>(p, row, &team);
        const int64_t t = team.active ? tgi_class_target(p, row) : -1;
        const int64_t apart = (int64_t)tgi_pack_of<width> * team.threads;
        const char *const again = kept ? keep : logits;
        tgi_team counted = team;
        tgi_exp_sum<float> s = {-HUGE_VALF, 0};
        float weighted = 0; /* the sum of weight * (logits - largest), for smoothing */
        if (t < 0) counted.n = counted.first = 0;
        tgi_team_walk<dtype, width>(counted, logits, [&](int64_t i, const auto &raw, const auto &x) {
            constexpr int packs = (int)(sizeof raw / sizeof *raw);
#pragma unroll
            for (int k = 0; k < packs && kept; ++k) raw[k].store(keep + (i + k * apart) * (int64_t)sizeof(stored));
            tgi_exp_sum_add<dtype>(&s, x);
        });
        s = tgi_team_exp_sum(s, team.threads);
        if (smoothing != 0) {
            tgi_team_walk<dtype, width>(counted, again, [&](int64_t i, const auto &raw, const auto &x) {
                constexpr int n = (int)(sizeof x / sizeof *x), pack = (int)(n * sizeof *raw / sizeof raw);
                float part = 0;
#pragma unroll
                for (int e = 0; e < n; ++e) {
                    const int64_t class_ = i - team.first + e / pack * apart + e % pack;
                    part += tgi_class_weight<dtype>(p, class_) * (x[e] - s.largest);
                }
                weighted += part;
            });
            weighted = tgi_team_sum(weighted, team.threads);
        }
        if (p.dlogits) {
            tgi_class_slopes slopes = {};
            if (t >= 0)
                slopes = tgi_class_slopes_of<dtype>(p, tgi_class_share(p), t, weights, s, smoothing, uniform);
            tgi_class_gradient<dtype, width>(p, team, row, again, t, slopes);
        }
        if (team.t > 0 || !team.active) continue;
        const float log_sum = logf(s.sum);
        float loss = 0;
        if (t >= 0) {
            const float x = tgi_load_as<float>((tg_dtype)dtype, (const stored *)(const void *)logits + team.first + t);
            loss = (1 - smoothing) * tgi_class_weight<dtype>(p, t) * (s.largest - x + log_sum);
            if (smoothing != 0) loss += uniform * (log_sum * weights - weighted);
        }
        ((float *)p.stats)[row] = s.largest;
        ((float *)p.stats)[p.rows + row] = s.sum;
        if (p.mean) ((float *)p.loss)[row] = loss;
        else tgi_store_as((tg_dtype)dtype, (stored *)p.loss + row, loss);
    }
}

/* stats[2 rows] = 1 / the sum of the weights of the targets and, unless losses [rows] is NULL, mean = the sum of these
   divided by it.  One block of TGI_TEAM_MOST threads, so that there is one order of the sums.  bad: NULL, or what the
   check of the targets writes to. */
template <int dtype>
__global__ void __launch_bounds__(TGI_TEAM_MOST)
    tgi_class_mean(tgi_class_loss p, const float *losses, tgi_index_bounds bounds, tgi_bad_index *bad)
{
    typedef typename tgi_stored<dtype>::type stored;
    float sum = 0, weights = 0;
    for (int64_t row = threadIdx.x; row < p.rows; row += TGI_TEAM_MOST) {
        const int64_t t = tgi_class_target(p, row);
        if (losses) sum += losses[row];
        if (t >= 0) weights += tgi_class_weight<dtype>(p, t);
        if (bad && t < 0 && tgi_is_bad_index(bounds, tgi_class_given(p, row)))
            atomicMin(&bad->min_position, (unsigned long long)row);
    }
    if (bad) tgi_note_bad_index(bounds, bad, [&](int64_t row) { return tgi_class_given(p, row); });
    sum = tgi_team_sum(sum, TGI_TEAM_MOST);
    weights = tgi_team_sum(weights, TGI_TEAM_MOST);
    if (threadIdx.x > 0) return;
    if (losses) tgi_store_as((tg_dtype)dtype, (stored *)p.loss, weights == 0 ? NAN : sum / weights);
    ((float *)p.stats)[2 * p.rows] = 1 / weights;
}

/* dlogits [rows, classes] from g [rows], or from g of the mean, in one pass.  Where forward has made
   dlogits for g = 1, nothing is done for such rows.  The share of a row in g is not rounded to the
   dtype: of a mean of 3 rows in bf16 that would be 0.2 % in each. */
template <int dtype, int width>
__global__ void __launch_bounds__(TGI_TEAM_MOST, tgi_class_blocks<width>)
    tgi_class_loss_backward_rows(tgi_team_job job, tgi_class_loss p, float smoothing, float uniform, int)
{
    typedef typename tgi_stored<dtype>::type stored;
    if (p.made && p.mean && tgi_load_as<float>((tg_dtype)dtype, p.g) == 1) return;
    const float weights = tgi_class_weights<dtype>(p, job, smoothing);
    for (int64_t base = tgi_first_base(job); base < job.rows.iter.numel; base += tgi_base_step(job)) {
        const int64_t row = tgi_row_of(job, base);
        tgi_team team = tgi_team_of(job, row);
        const char *const logits = tgi_class_row<dtype, width>(p, row, &team);
        if (!team.active) continue;
        const float g = tgi_load_as<float>((tg_dtype)dtype, (const stored *)p.g + (p.mean ? 0 : row));
        if (p.made && g == 1) continue;
        const int64_t t = tgi_class_target(p, row);
        const tgi_exp_sum<float> s = {((const float *)p.stats)[row], ((const float *)p.stats)[p.rows + row]};
        tgi_class_slopes slopes = {};
        if (t >= 0)
            slopes = tgi_class_slopes_of<dtype>(p, g * tgi_class_share(p), t, weights, s, smoothing, uniform);
        tgi_class_gradient<dtype, width>(p, team, row, logits, t, slopes);
    }
}

typedef void (*tgi_class_kernel)(tgi_team_job, tgi_class_loss, float, float, int);
/* keeps: a team asks for shared memory for its row. */
static tgi_answer tgi_class_run(tgi_thread *S, const tgi_cuda_device *d, const tgi_class_loss *loss,
                                const tgi_class_kernel (&kernels)[4][3], bool keeps)
{
    tgi_rows rows = tgi_dense_rows(loss->rows, loss->classes, loss->index);
    tgi_add_operand(&rows, loss->logits, loss->dtype, loss->classes);
    if (loss->dlogits) tgi_add_operand(&rows, loss->dlogits, loss->dtype, loss->classes);
    const tgi_team_job job = tgi_team_job_of(&rows, 3);
    const int threads = tgi_team_block(job), teams = threads / job.threads;
    const tgi_class_kernel kernel = kernels[loss->dtype][tgi_width_number(job)];
    const float smoothing = (float)loss->smoothing, uniform = (float)(loss->smoothing / (double)loss->classes);
    const int64_t packs = (loss->classes * tgi_bytes_of(loss->dtype) + TGI_PACK_BYTES - 1) / TGI_PACK_BYTES;
    int64_t kept = keeps ? (packs + (job.between != 0)) * TGI_PACK_BYTES : 0;
    int most = 0;
    if (kept) { /* two blocks on each multiprocessor, of which each takes 1 KB more than it asks for */
        if (!TGI_CUDA(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerMultiprocessor, d->index)))
            return TGI_FAILED;
        if (kept > (most / 2 - 1024) / teams) kept = 0;
    }
    const int bytes = (int)kept * teams; /* more than 48 KB must be asked for */
    if (bytes > 48 * 1024 &&
        !TGI_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes))) {
        return TGI_FAILED;
    }
    return tgi_launch_shared(S, d, kernel, (loss->rows + teams - 1) / teams, threads, (size_t)bytes, job, *loss,
                             smoothing, uniform, (int)kept)
               ? TGI_DONE
               : TGI_FAILED;
}

/* A kernel for each dtype but f64, which is composed. */
#define TGI_FOR_F32_ROWS(kernel)                                             \
    {TGI_FOR_WIDTHS(kernel, TG_F32, 4), {NULL, NULL, NULL},                  \
     TGI_FOR_WIDTHS(kernel, TG_BF16, 8), TGI_FOR_WIDTHS(kernel, TG_F16, 8)}

/* The check of the targets in a launch of its own, unless nobody asks for it. */
static bool tgi_class_check(tgi_thread *S, const tgi_class_loss *loss)
{
    tgi_operand targets = {};
    targets.data = (void *)(uintptr_t)loss->targets;
    targets.dtype = loss->target_dtype;
    targets.index = loss->index;
    targets.stride[0] = 1;
    return !loss->op || tgi_cuda_index_check(S, loss->op, targets, 1, &loss->rows, loss->classes, &loss->ignore_index,
                                             TGI_INDEX_TARGET, loss->axis, false);
}

static tgi_answer tgi_cuda_cross_entropy(tgi_thread *S, const tgi_class_loss *loss)
{
    typedef void (*mean)(tgi_class_loss, const float *, tgi_index_bounds, tgi_bad_index *);
    const tgi_class_kernel kernels[4][3] = TGI_FOR_F32_ROWS(tgi_class_loss_rows);
    const mean means[4] = {tgi_class_mean<TG_F32>, NULL, tgi_class_mean<TG_BF16>, tgi_class_mean<TG_F16>};
    const float *const none = NULL;
    const bool again = loss->dlogits || loss->smoothing != 0; /* reads logits once more */
    if (loss->dtype == TG_F64) return TGI_COMPOSE;
    tgi_cuda_device *d = tgi_device_for(S, loss->index);
    if (!d) return TGI_FAILED;
    if (!loss->mean) {
        const tgi_answer answer = tgi_class_run(S, d, loss, kernels, again);
        return answer == TGI_DONE && !tgi_class_check(S, loss) ? TGI_FAILED : answer;
    }
    const tgi_index_bounds bounds = {0,        loss->classes,         loss->ignore_index, true,
                                     loss->op, (int)TGI_INDEX_TARGET, loss->axis};
    tgi_bad_index *const unchecked = NULL, *const bad = loss->op ? d->bad_index : NULL;
    tgi_class_loss each = *loss;
    each.loss = tgi_scratch_alloc(S, d, "cross_entropy", loss->rows, sizeof(float));
    if (!each.loss) return TGI_FAILED;
    if (bad) d->index_checked = true;
    const mean kernel = means[loss->dtype];
    const bool ok =
        (!loss->dlogits || tgi_launch(S, d, kernel, 1, TGI_TEAM_MOST, *loss, none, bounds, unchecked)) &&
        tgi_class_run(S, d, &each, kernels, again) == TGI_DONE &&
        tgi_launch(S, d, kernel, 1, TGI_TEAM_MOST, *loss, (const float *)each.loss, bounds, bad);
    tgi_cuda_release(S, d->index, each.loss, 0);
    return ok ? TGI_DONE : TGI_FAILED;
}

static tgi_answer tgi_cuda_cross_entropy_backward(tgi_thread *S, const tgi_class_loss *loss)
{
    const tgi_class_kernel kernels[4][3] = TGI_FOR_F32_ROWS(tgi_class_loss_backward_rows);
    const tgi_cuda_device *d = tgi_device_for(S, loss->index);
    if (loss->dtype == TG_F64) return TGI_COMPOSE;
    return d ? tgi_class_run(S, d, loss, kernels, false) : TGI_FAILED;
}

/* ======== @@INDEX ================================================================================================= */

/* ---- the check of indices ----

   The host does not wait for the check.  A bad index is noted on the device and reported by the next call that waits;
   the kernels that use the indices skip bad ones.  The first of the bad indices is found in two steps: the smallest
   position, by one thread per index, then what the report will say, by one thread of the block that ends last.  Indices
   of rows of a table are checked by the kernel that copies the rows, targets by the one that makes the mean of their
   losses. */

/* One thread per index. */
static __global__ void tgi_find_bad_index(tgi_iter index, tgi_index_bounds bounds, tgi_bad_index *bad)
{
    const auto index_at = [&](int64_t i) {
        char *at[1];
        tgi_element_addresses(index, i, at);
        return tgi_load_as<int64_t>(index.dtype[0], at[0]);
    };
    for (int64_t i = tgi_grid_thread(); i < index.numel; i += tgi_grid_size()) {
        if (tgi_is_bad_index(bounds, index_at(i))) atomicMin(&bad->min_position, (unsigned long long)i);
    }
    tgi_note_bad_index(bounds, bad, index_at);
}

/* With now, waits and reports at once; a bad index of an earlier op is reported first. */
static bool tgi_cuda_index_check(tgi_thread *S, const char *op, tgi_operand index, int ndim, const int64_t *dim,
                                 int64_t size, const int64_t *spared, tgi_index_message message, int axis, bool now)
{
    tgi_cuda_device *d = tgi_device_for(S, index.index);
    const tgi_index_bounds bounds = {message == TGI_INDEX_FROM_END ? -size : 0, size, spared ? *spared : 0,
                                     spared != NULL, op, (int)message, axis};
    tgi_iter iter;
    tgi_iter_init(&iter, ndim, dim, 1, &index, false);
    if (!d || (now && !tgi_stream_sync(S, d))) return false;
    if (iter.numel == 0) return true;
    d->index_checked = true;
    return tgi_launch_each(S, d, tgi_find_bad_index, iter.numel, iter, bounds, d->bad_index) &&
           (!now || (tgi_ask_for_bad_index(S, d) && TGI_CUDA(cudaStreamSynchronize(d->stream)) &&
                     tgi_report_bad_index(S, d, "")));
}

/* ---- gather ---- */

/* What a gather needs besides its operands.  bad: NULL, or what the check writes to; then index is a vector. */
typedef struct {
    int64_t step;       /* of x along dim, in bytes: what an index is multiplied by */
    int64_t index_step; /* in bytes; 0: there is one index */
    tgi_index_bounds bounds;
    tgi_bad_index *bad;
} tgi_gather_job;

/* Whether the index at this address, which is operand 2 of an element, is in range. */
__device__ inline bool tgi_gather_index(const tgi_gather_job &job, const tgi_iter &iter, const char *at, int64_t *index)
{
    *index = iter.dtype[2] == TG_I32 ? *(const int32_t *)at : *(const int64_t *)at;
    if ((uint64_t)*index < (uint64_t)job.bounds.size) return true;
    const int64_t position = job.index_step ? (at - iter.data[2]) / job.index_step : 0;
    if (job.bad) atomicMin(&job.bad->min_position, (unsigned long long)position);
    return false;
}

__device__ inline void tgi_gather_end(const tgi_gather_job &job, const tgi_iter &iter)
{
    if (!job.bad) return;
    tgi_note_bad_index(job.bounds, job.bad, [&](int64_t position) {
        return tgi_load_as<int64_t>(iter.dtype[2], iter.data[2] + position * job.index_step);
    });
}

/* out, x, index: out[i] = x[i with index[i] in place of the position along dim], 0 for a bad index.  One thread per
   element of index.  iter is over the shape of index; its stride of x along dim is 0. */
static __global__ void tgi_gather_elements(tgi_iter iter, tgi_gather_job job)
{
    for (int64_t i = tgi_grid_thread(); i < iter.numel; i += tgi_grid_size()) {
        char *at[3];
        int64_t index;
        tgi_element_addresses(iter, i, at);
        if (tgi_gather_index(job, iter, at[2], &index))
            tgi_copy_element(at[0], at[1] + index * job.step, tgi_size_of(iter.dtype[0]));
        else
            tgi_store_as(iter.dtype[0], at[0], 0.0);
    }
    tgi_gather_end(job, iter);
}

/* The same for rows of packs of 16 bytes, one thread per pack; iter is over packs, and their index is the same for all
   elements of a pack. */
static __global__ void tgi_gather_packs(tgi_iter iter, tgi_gather_job job)
{
    typedef tgi_pack<TG_I64, 2> pack;
    for (int64_t i = tgi_grid_thread(); i < iter.numel; i += tgi_grid_size()) {
        char *at[3];
        int64_t index;
        tgi_element_addresses(iter, i, at);
        pack x = {{0, 0}};
        if (tgi_gather_index(job, iter, at[2], &index)) x = tgi_load_pack<pack>(at[1] + index * job.step);
        tgi_store_pack(at[0], x);
    }
    tgi_gather_end(job, iter);
}

/* Makes a gather's iter one over packs, if the rows of out and x consist of aligned ones. */
static bool tgi_gather_in_packs(tgi_iter *iter, int64_t step)
{
    const int inner = iter->ndim - 1;
    const int64_t size = tgi_bytes_of(iter->dtype[0]), width = TGI_PACK_BYTES / size;
    bool ok = iter->stride[2][inner] == 0 && iter->dim[inner] % width == 0 && step % TGI_PACK_BYTES == 0;
    for (int k = 0; k < 2; ++k) {
        ok = ok && iter->stride[k][inner] == size && (uintptr_t)iter->data[k] % TGI_PACK_BYTES == 0;
        for (int i = 0; i < inner; ++i) ok = ok && iter->stride[k][i] % TGI_PACK_BYTES == 0;
    }
    if (!ok) return false;
    iter->dim[inner] /= width;
    iter->numel /= width;
    iter->stride[0][inner] = iter->stride[1][inner] = TGI_PACK_BYTES;
    return true;
}

/* The most blocks of a gather that checks: each of them counts itself in the end.  8 fill a multiprocessor. */
enum { TGI_GATHER_BLOCKS = TGI_MAX_BLOCKS < 1056 ? TGI_MAX_BLOCKS : 1056 }; /* 8 * 132 */
static bool tgi_gather_launch(tgi_thread *S, const tgi_cuda_device *d, const tgi_rows *rows, tgi_gather_job job)
{
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
    job.step = rows->step[1] * tgi_bytes_of(rows->arg[1].dtype);
    job.index_step = rows->length > 1 ? rows->step[2] * tgi_bytes_of(rows->arg[2].dtype) : 0;
    if (iter.numel == 0) return true;
    const bool packs = tgi_gather_in_packs(&iter, job.step);
    const int64_t blocks = (iter.numel + TGI_BLOCK - 1) / TGI_BLOCK;
    return tgi_launch(S, d, packs ? tgi_gather_packs : tgi_gather_elements,
                      job.bad ? tgi_at_most(blocks, TGI_GATHER_BLOCKS) : blocks, TGI_BLOCK, iter, job);
}

static bool tgi_cuda_gather(tgi_thread *S, const tgi_rows *rows)
{
    const tgi_cuda_device *d = tgi_device_for(S, rows->arg[0].index);
    tgi_gather_job job = {};
    job.bounds.size = rows->size;
    return d && tgi_gather_launch(S, d, rows, job);
}

/* Of a table, whose rows have one index each. */
static tgi_answer tgi_cuda_gather_checked(tgi_thread *S, const char *op, const tgi_rows *rows,
                                          tgi_index_message message, int axis)
{
    for (int i = 0; i < rows->ndim; ++i) {
        if (rows->dim[i] > 1 && rows->arg[2].stride[i] != 0) return TGI_COMPOSE;
    }
    tgi_cuda_device *d = tgi_device_for(S, rows->arg[0].index);
    const tgi_index_bounds bounds = {0, rows->size, 0, false, op, (int)message, axis};
    if (!d) return TGI_FAILED;
    d->index_checked = true;
    return tgi_gather_launch(S, d, rows, {0, 0, bounds, d->bad_index}) ? TGI_DONE : TGI_FAILED;
}

/* ---- scatter: x[index[i]] = src[i] or += src[i] along dim ----

   x [rows, size], src, index [rows, n].  The pairs (index, i) of each row are sorted.  Elements of src that go to the
   same element of x are then neighbours, in the order of i: see "sums over equal keys".  Where index is the same for
   all rows, as in an embedding, one sorted row of pairs serves them all: the rows of x are then the columns. */

/* pairs [rows, n] = (index[i], i), or (size, i) for a bad index; one thread per element; rows is 1 where one row serves
   all. */
static __global__ void tgi_load_indices(tgi_row_job job, int64_t size, tgi_pairs pairs)
{
    for (int64_t e = tgi_grid_thread(); e < pairs.rows * job.length; e += tgi_grid_size()) {
        const int64_t i = e % job.length;
        tgi_row arg[3];
        tgi_row_init(job, e / job.length, arg);
        const int64_t index = tgi_row_load<int64_t>(arg[2], i);
        tgi_set_pair(pairs, e, (uint64_t)index < (uint64_t)size ? (uint64_t)index : (uint64_t)size, i);
    }
}

/* x[index] = src[i] of the last i with that index.  One thread per pair, of which only the last of each index
   writes. */
static __global__ void tgi_scatter_pairs(tgi_row_job job, int64_t size, tgi_pairs pairs)
{
    for (int64_t e = tgi_grid_thread(); e < job.iter.numel * job.length; e += tgi_grid_size()) {
        const int64_t row = e % job.iter.numel, i = e / job.iter.numel; /* neighbouring threads: other rows, same i */
        const int64_t at = (pairs.rows > 1 ? row : 0) * job.length + i;
        const uint64_t key = tgi_pair_key(pairs, at);
        if (key >= (uint64_t)size || (i + 1 < job.length && tgi_pair_key(pairs, at + 1) == key)) continue;
        tgi_row arg[2];
        tgi_row_init(job, row, arg);
        const tgi_row x = arg[0], src = arg[1];
        tgi_copy_element(tgi_row_at(x, (int64_t)key), tgi_row_at(src, tgi_pair_index(pairs, at)), tgi_size_of(x.dtype));
    }
}

/* x[index[i]] = src[i], where no element of x is named twice: nothing has to be sorted.  One thread per element. */
static __global__ void tgi_scatter_unique(tgi_row_job job, int64_t size)
{
    for (int64_t e = tgi_grid_thread(); e < job.iter.numel * job.length; e += tgi_grid_size()) {
        const int64_t i = e % job.length;
        tgi_row arg[3];
        tgi_row_init(job, e / job.length, arg);
        const tgi_row x = arg[0], src = arg[1];
        const int64_t index = tgi_row_load<int64_t>(arg[2], i);
        if ((uint64_t)index < (uint64_t)size)
            tgi_copy_element(tgi_row_at(x, index), tgi_row_at(src, i), tgi_size_of(x.dtype));
    }
}

static bool tgi_cuda_scatter(tgi_thread *S, tgi_scatter_kind kind, const tgi_rows *rows)
{
    tgi_cuda_device *d = tgi_device_for(S, rows->arg[0].index);
    const tgi_row_job job = tgi_row_job_of(rows);
    const int64_t n = job.iter.numel * job.length;
    const tgi_strided_places at = {job.iter, false, job.step[0], job.step[1]};
    const char *op = "scatter";
    int64_t rows_of_pairs = 1;
    tgi_sort_job sort;
    if (!d) return false;
    if (n == 0) return true;
    if (kind == TGI_SCATTER_UNIQUE) return tgi_launch_each(S, d, tgi_scatter_unique, n, job, rows->size);
    for (int k = 0; k < job.iter.ndim; ++k) {
        if (job.iter.stride[2][k] != 0) rows_of_pairs = job.iter.numel; /* index is not the same for all rows */
    }
    if (!tgi_sort_begin(S, d, op, &sort, rows_of_pairs, job.length, (uint64_t)rows->size)) return false;
    void *const memory = sort.pairs.key;
    bool ok = tgi_launch_each(S, d, tgi_load_indices, rows_of_pairs * job.length, job, rows->size, sort.pairs) &&
              tgi_sort_pairs(S, d, &sort);
    const int64_t columns = rows_of_pairs > 1 ? 1 : job.iter.numel;
    if (ok && kind == TGI_SCATTER_ADD) {
        ok = tgi_add_sorted_strided(S, d, op, &at, &sort.pairs, columns, rows->size);
    } else if (ok && kind == TGI_SCATTER_PROD) {
        ok = tgi_combine_sorted_strided<tgi_combine_prod>(S, d, op, &at, &sort.pairs, columns, rows->size);
    } else if (ok && kind == TGI_SCATTER_AMAX) {
        ok = tgi_combine_sorted_strided<tgi_combine_amax>(S, d, op, &at, &sort.pairs, columns, rows->size);
    } else if (ok && kind == TGI_SCATTER_AMIN) {
        ok = tgi_combine_sorted_strided<tgi_combine_amin>(S, d, op, &at, &sort.pairs, columns, rows->size);
    } else if (ok) {
        ok = tgi_launch_each(S, d, tgi_scatter_pairs, n, job, rows->size, sort.pairs);
    }
    tgi_cuda_release(S, d->index, memory, 0);
    return ok;
}

/* ---- the gradient of an embedding ---- */

/* Adds the rows of g to those of a table of zeros, by sorted pairs. */
template <int dtype>
static bool tgi_table_add(tgi_thread *S, tgi_cuda_device *d, const tgi_table_gradient *table, const tgi_pairs *pairs)
{
    typedef tgi_places_table<dtype, (int)(TGI_PACK_BYTES / sizeof(typename tgi_stored<dtype>::type))> places;
    const int64_t columns = table->width / places::width;
    const places at = {(char *)table->dweight, (const char *)table->g, columns};
    return tgi_add_sorted(S, d, "embedding", at, pairs, columns, table->count);
}

static tgi_answer tgi_cuda_embedding_backward(tgi_thread *S, const tgi_table_gradient *table)
{
    tgi_cuda_device *d = tgi_device_for(S, table->index);
    const int64_t bytes = table->width * tgi_bytes_of(table->dtype);
    tgi_sort_job sort;
    tgi_rows rows;
    if (!d) return TGI_FAILED;
    if (table->dtype == TG_F64 || bytes % TGI_PACK_BYTES || (uintptr_t)table->g % TGI_PACK_BYTES ||
        (uintptr_t)table->dweight % TGI_PACK_BYTES) {
        return TGI_COMPOSE;
    }
    if (!TGI_CUDA(cudaMemsetAsync(table->dweight, 0, (size_t)(table->count * bytes), d->stream))) return TGI_FAILED;
    if (table->n == 0) return TGI_DONE;
    memset(&rows, 0, sizeof rows); /* one row of n ids */
    rows.length = table->n;
    rows.nargs = 3;
    for (int k = 0; k < 3; ++k) {
        rows.arg[k].data = (void *)table->ids;
        rows.arg[k].dtype = table->id_dtype;
        rows.step[k] = 1;
    }
    if (!tgi_sort_begin(S, d, "embedding", &sort, 1, table->n, (uint64_t)table->count)) return TGI_FAILED;
    void *const memory = sort.pairs.key;
    bool ok = tgi_launch_each(S, d, tgi_load_indices, table->n, tgi_row_job_of(&rows), table->count, sort.pairs) &&
              tgi_sort_pairs(S, d, &sort);
    switch (table->dtype) {
    case TG_BF16: ok = ok && tgi_table_add<TG_BF16>(S, d, table, &sort.pairs); break;
    case TG_F16: ok = ok && tgi_table_add<TG_F16>(S, d, table, &sort.pairs); break;
    default: ok = ok && tgi_table_add<TG_F32>(S, d, table, &sort.pairs);
    }
    tgi_cuda_release(S, d->index, memory, 0);
    return ok ? TGI_DONE : TGI_FAILED;
}

/* embedding_bag is composed. */
static tgi_answer tgi_cuda_embedding_bag(tgi_thread *, const tgi_bags *) { return TGI_COMPOSE; }

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
        const int64_t sum = tgi_block_scan<tgi_combine_sum>(count, &total);
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

/* ======== @@POOL ================================================================================================== */

/* One thread per element of the result, which adds up in a fixed order.  Neighbouring threads have neighbouring
   columns, so that what windows share is read from memory once.  The elements of a piece of the result are counted in
   32 bits: it is some of the planes, or some rows of one, or some columns of one row. */
typedef struct {
    tgi_pool pool;
    uint32_t count;   /* of the piece's elements */
    int64_t before;   /* the elements of the result before the piece */
    int64_t first[3]; /* its first plane, row and column */
    tgi_divisor rows, columns;
} tgi_pool_job;

typedef struct {
    int64_t plane, row, column, number;
} tgi_pool_element;

/* A kernel's loop over its elements: for (uint32_t e = tgi_grid_thread(); e < job.count; e += tgi_grid_size()). */
__device__ inline tgi_pool_element tgi_pool_element_of(const tgi_pool_job &job, uint32_t e)
{
    const uint32_t line = tgi_divide(e, job.columns), plane = tgi_divide(line, job.rows);
    return {job.first[0] + plane, job.first[1] + (line - plane * job.rows.size),
            job.first[2] + (e - line * job.columns.size), job.before + e};
}

/* Launches the kernel for each piece of a result of rows times columns in each plane. */
static bool tgi_launch_pool(tgi_thread *S, const tgi_pool *pool, int64_t rows, int64_t columns,
                            void (*kernel)(tgi_pool_job))
{
    const tgi_cuda_device *d = tgi_device_for(S, pool->arg[0].index);
    const int64_t most = INT32_MAX, size[3] = {pool->planes, rows, columns};
    int64_t part[3], inner = 1; /* of a piece: planes, rows, columns */
    if (!d || size[0] == 0 || size[1] == 0 || size[2] == 0) return d != NULL;
    for (int k = 2; k >= 0; --k) {
        part[k] = tgi_at_most(size[k], most / tgi_at_most(inner, most));
        if (part[k] < 1) part[k] = 1;
        inner *= size[k];
    }
    tgi_pool_job job = {};
    job.pool = *pool;
    int64_t *const first = job.first;
    for (first[0] = 0; first[0] < size[0]; first[0] += part[0]) {
        for (first[1] = 0; first[1] < size[1]; first[1] += part[1]) {
            for (first[2] = 0; first[2] < size[2]; first[2] += part[2]) {
                int64_t n[3];
                for (int k = 0; k < 3; ++k) n[k] = tgi_at_most(part[k], size[k] - first[k]);
                job.rows = tgi_divisor_of(n[1]);
                job.columns = tgi_divisor_of(n[2]);
                job.count = (uint32_t)(n[0] * n[1] * n[2]);
                job.before = (first[0] * rows + first[1]) * columns + first[2];
                if (!tgi_launch_each(S, d, kernel, job.count, job)) return false;
            }
        }
    }
    return true;
}

/* A kernel with a template argument for the dtype, for each in the order of tg_dtype, and other arguments. */
#define TGI_FOR_FLOATS(kernel, ...) \
    {kernel<TG_F32, __VA_ARGS__>, kernel<TG_F64, __VA_ARGS__>, kernel<TG_BF16, __VA_ARGS__>, \
     kernel<TG_F16, __VA_ARGS__>}

/* Whether the windows of a row are pairs, one after the other, each aligned as a pack. */
static bool tgi_windows_are_pairs(const tgi_windows *w, const tgi_operand *x)
{
    return w->kind == TGI_SLIDING && w->kernel == 2 && w->stride == 2 && w->dilation == 1 && w->padding == 0 &&
           w->in % 2 == 0 && (uintptr_t)x->data % (size_t)(2 * tgi_bytes_of(x->dtype)) == 0;
}

/* y, index, x: see max_pool in tgi_backend.  width: of the packs in which a row of a window is read. */
template <int dtype, int width> __global__ void tgi_max_pool_windows(tgi_pool_job job)
{
    typedef typename tgi_stored<dtype>::type stored;
    typedef typename tgi_computed<dtype>::type real;
    const tgi_windows &h = job.pool.dim[0], &w = job.pool.dim[1];
    stored *const y = (stored *)job.pool.arg[0].data;
    int64_t *const index = (int64_t *)job.pool.arg[1].data;
    for (uint32_t e = (uint32_t)tgi_grid_thread(); e < job.count; e += (uint32_t)tgi_grid_size()) {
        const tgi_pool_element at = tgi_pool_element_of(job, e);
        const tgi_window columns = tgi_pool_window(&w, at.column), rows = tgi_pool_window(&h, at.row);
        const stored *const x = (const stored *)job.pool.arg[2].data + at.plane * h.in * w.in;
        int64_t found = rows.first * w.in + columns.first;
        real most = -(real)HUGE_VAL;
        for (int64_t i = rows.first; i < rows.end; i += h.dilation) {
            for (int64_t j = columns.first; j < columns.end; j += width > 1 ? width : w.dilation) {
                const auto pack = tgi_load_pack<tgi_pack<dtype, width>>(x + i * w.in + j);
#pragma unroll
                for (int k = 0; k < width; ++k) {
                    const real value = tgi_load_as<real>((tg_dtype)dtype, &pack.x[k]);
                    if (!(value > most || value != value)) continue;
                    most = value;
                    found = i * w.in + j + k;
                }
            }
        }
        tgi_store_as((tg_dtype)dtype, y + at.number, most);
        if (index) index[at.number] = found;
    }
}

static bool tgi_cuda_max_pool(tgi_thread *S, const tgi_pool *pool)
{
    void (*const kernels[2][4])(tgi_pool_job) = {TGI_FOR_FLOATS(tgi_max_pool_windows, 1),
                                                 TGI_FOR_FLOATS(tgi_max_pool_windows, 2)};
    const bool pairs = tgi_windows_are_pairs(&pool->dim[1], &pool->arg[2]);
    return tgi_launch_pool(S, pool, pool->dim[0].out, pool->dim[1].out, kernels[pairs][pool->arg[2].dtype]);
}

/* dx, g, index: dx = the sum of g over the windows that found this element. */
template <int dtype, int> __global__ void tgi_max_pool_found(tgi_pool_job job)
{
    typedef typename tgi_stored<dtype>::type stored;
    typedef typename tgi_computed<dtype>::type real;
    const tgi_windows &h = job.pool.dim[0], &w = job.pool.dim[1];
    stored *const dx = (stored *)job.pool.arg[0].data;
    for (uint32_t e = (uint32_t)tgi_grid_thread(); e < job.count; e += (uint32_t)tgi_grid_size()) {
        const tgi_pool_element at = tgi_pool_element_of(job, e);
        const tgi_span rows = tgi_pool_span(&h, at.row), columns = tgi_pool_span(&w, at.column);
        const stored *const g = (const stored *)job.pool.arg[1].data + at.plane * h.out * w.out;
        const int64_t *const index = (const int64_t *)job.pool.arg[2].data + at.plane * h.out * w.out;
        real sum = 0;
        for (int64_t i = rows.first; i < rows.end; ++i) {
            for (int64_t j = columns.first; j < columns.end; ++j) {
                if (index[i * w.out + j] != at.row * w.in + at.column) continue;
                sum += tgi_load_as<real>((tg_dtype)dtype, g + i * w.out + j);
            }
        }
        tgi_store_as((tg_dtype)dtype, dx + at.number, sum);
    }
}

static bool tgi_cuda_max_pool_backward(tgi_thread *S, const tgi_pool *pool)
{
    void (*const kernels[4])(tgi_pool_job) = TGI_FOR_FLOATS(tgi_max_pool_found, 0);
    return tgi_launch_pool(S, pool, pool->dim[0].in, pool->dim[1].in, kernels[pool->arg[1].dtype]);
}

/* tgi_span_of, and the weight of element k of the span; where no window interpolates, all inputs of a window have one
   weight, and neither needs arithmetic in double. */
template <bool interpolates>
__device__ inline tgi_span tgi_sum_span(const tgi_windows &w, bool transposed, int64_t i)
{
    if constexpr (interpolates) return tgi_span_of(&w, transposed, i);
    if (transposed) return tgi_pool_span(&w, i);
    const tgi_window window = tgi_pool_window(&w, i);
    return {window.first, window.end};
}
template <bool interpolates, class real>
__device__ inline real tgi_sum_weight(const tgi_windows &w, bool transposed, int64_t i, int64_t k)
{
    if constexpr (interpolates) return (real)tgi_span_weight(&w, transposed, i, k);
    return 1 / (real)tgi_pool_window(&w, transposed ? k : i).parts;
}

/* y, x: see window_sum in tgi_backend.  width: as above. */
template <int dtype, bool transposed, bool interpolates, int width> __global__ void tgi_window_sums(tgi_pool_job job)
{
    typedef typename tgi_stored<dtype>::type stored;
    typedef typename tgi_computed<dtype>::type real;
    const tgi_windows &h = job.pool.dim[0], &w = job.pool.dim[1];
    const int64_t x_rows = transposed ? h.out : h.in, x_columns = transposed ? w.out : w.in;
    stored *const y = (stored *)job.pool.arg[0].data;
    for (uint32_t e = (uint32_t)tgi_grid_thread(); e < job.count; e += (uint32_t)tgi_grid_size()) {
        const tgi_pool_element at = tgi_pool_element_of(job, e);
        const tgi_span rows = tgi_sum_span<interpolates>(h, transposed, at.row);
        const tgi_span columns = tgi_sum_span<interpolates>(w, transposed, at.column);
        const stored *const x = (const stored *)job.pool.arg[1].data + at.plane * x_rows * x_columns;
        constexpr bool equal = !transposed && !interpolates; /* weights */
        real sum = 0;
        for (int64_t i = rows.first; i < rows.end; ++i) {
            real of_row = 0;
            for (int64_t j = columns.first; j < columns.end; j += width) {
                const auto pack = tgi_load_pack<tgi_pack<dtype, width>>(x + i * x_columns + j);
#pragma unroll
                for (int k = 0; k < width; ++k) {
                    const real value = tgi_load_as<real>((tg_dtype)dtype, &pack.x[k]);
                    of_row += equal ? value
                                    : value * tgi_sum_weight<interpolates, real>(w, transposed, at.column, j + k);
                }
            }
            sum += equal ? of_row : of_row * tgi_sum_weight<interpolates, real>(h, transposed, at.row, i);
        }
        if (equal)
            sum *= tgi_sum_weight<false, real>(w, false, at.column, 0) *
                   tgi_sum_weight<false, real>(h, false, at.row, 0);
        tgi_store_as((tg_dtype)dtype, y + at.number, sum);
    }
}

static bool tgi_cuda_window_sum(tgi_thread *S, const tgi_pool *pool)
{
    const tgi_windows *const h = &pool->dim[0], *const w = &pool->dim[1];
    const bool interpolates = tgi_interpolates(h) || tgi_interpolates(w), transposed = pool->transposed;
    void (*const kernels[2][2][4])(tgi_pool_job) = {
        {TGI_FOR_FLOATS(tgi_window_sums, false, false, 1), TGI_FOR_FLOATS(tgi_window_sums, false, true, 1)},
        {TGI_FOR_FLOATS(tgi_window_sums, true, false, 1), TGI_FOR_FLOATS(tgi_window_sums, true, true, 1)}};
    void (*const of_pairs[4])(tgi_pool_job) = TGI_FOR_FLOATS(tgi_window_sums, false, false, 2);
    const tg_dtype dtype = pool->arg[1].dtype;
    const bool pairs = !transposed && !interpolates && tgi_windows_are_pairs(w, &pool->arg[1]);
    return tgi_launch_pool(S, pool, transposed ? h->in : h->out, transposed ? w->in : w->out,
                           pairs ? of_pairs[dtype] : kernels[transposed][interpolates][dtype]);
}

/* ---- ctc_loss: see tgi_ctc ----

   A block for each item.  A table [steps, n + 2] has the log of the probability to be in each of its n states after
   each step, at column s + 2; the first two columns are -infinity.  That of the item in reverse (turned) has its steps
   and its states turned.  The threads share the states of a step, and the steps come one after the other. */

template <class real> struct tgi_ctc_item {
    const tgi_ctc &c;
    int64_t item, steps, n;
    const real *lp; /* of the item: [classes] of each step, c.batch * c.classes apart */
    __device__ tgi_ctc_item(const tgi_ctc &c_, int64_t item_)
        : c(c_), item(item_), steps(c_.lengths[2 * item_]), n(c_.lengths[2 * item_ + 1]),
          lp((const real *)c_.log_probs + item_ * c_.classes)
    {
    }
    __device__ int64_t label(int64_t s) const { return c.labels[item * c.states + s]; }
    __device__ real seen(int64_t t, int64_t s) const { return lp[t * c.batch * c.classes + label(s)]; }
};

/* Fills the table, by all threads of the block, and returns the loss of the item. */
template <class real> __device__ real tgi_ctc_table(const tgi_ctc_item<real> &item, bool turned, real *table)
{
    const real never = -(real)HUGE_VAL, least = -80; /* exp of less is nothing beside 1 */
    const int64_t n = item.n, row = n + 2;
    for (int64_t t = 0; t < item.steps; ++t) {
        real *const to = table + t * row, *const from = to - row;
        for (int64_t s = (int64_t)threadIdx.x - 2; s < n; s += blockDim.x) {
            real y = never;
            if (s >= 0 && (t > 0 || s < 2)) {
                const int64_t at = turned ? n - 1 - s : s;
                y = 0;
                if (t > 0) {
                    const bool skips = s > 1 && s % 2 && item.label(at) != item.label(turned ? at + 2 : at - 2);
                    const real a = from[s + 2], b = from[s + 1], d = skips ? from[s] : never;
                    const real larger = a > b ? a : b, most = larger > d ? larger : d;
                    y = most + tgi_log(tgi_exp(a - most > least ? a - most : least) +
                                       tgi_exp(b - most > least ? b - most : least) +
                                       tgi_exp(d - most > least ? d - most : least));
                }
                y += item.seen(turned ? item.steps - 1 - t : t, at);
            }
            to[s + 2] = y;
        }
        __syncthreads();
    }
    if (item.steps == 0) return n == 1 ? 0 : -never;
    const real *const last = table + (item.steps - 1) * row + n; /* of the last two states, or one and -infinity */
    const real larger = last[0] > last[1] ? last[0] : last[1];
    if (larger == never) return -never;
    return -(real)log(exp((double)(last[0] - larger)) + exp((double)(last[1] - larger))) - larger;
}

/* y; tables [batch, steps, states + 2] */
template <class real> __global__ void tgi_ctc_losses(tgi_ctc c, real *tables)
{
    for (int64_t k = blockIdx.x; k < c.batch; k += gridDim.x) {
        const real loss = tgi_ctc_table(tgi_ctc_item<real>(c, k), false, tables + k * c.steps * (c.states + 2));
        if (threadIdx.x == 0) ((real *)c.y)[k] = loss;
    }
}

/* dx; tables [batch, 2, steps, states + 2].  The probability of a class goes to its element as it is, and then the
   first state with that label takes away the probability of all states that have it. */
template <class real> __global__ void tgi_ctc_gradients(tgi_ctc c, real *tables)
{
    const int64_t stride = c.batch * c.classes;
    for (int64_t k = blockIdx.x; k < c.batch; k += gridDim.x) {
        const tgi_ctc_item<real> item(c, k);
        const int64_t n = item.n, row = n + 2, size = c.steps * (c.states + 2);
        real *const alpha = tables + 2 * k * size, *const beta = alpha + size, *const dx = (real *)c.dx + k * c.classes;
        const real loss = tgi_ctc_table(item, false, alpha), g = ((const real *)c.g)[k];
        const int64_t steps = loss == (real)HUGE_VAL ? 0 : item.steps; /* that have a gradient */
        if (steps > 0) tgi_ctc_table(item, true, beta);
        for (int64_t e = threadIdx.x; e < c.steps * c.classes; e += blockDim.x) {
            const int64_t at = e / c.classes * stride + e % c.classes;
            dx[at] = e < steps * c.classes ? tgi_exp(item.lp[at]) * g : 0;
        }
        __syncthreads();
        for (int64_t e = threadIdx.x; e < steps * n; e += blockDim.x) {
            const int64_t t = e / n, s = e % n, label = item.label(s);
            int64_t first = 0;
            while (item.label(first) != label) ++first;
            if (first < s) continue;
            const real *const a = alpha + t * row + 2, *const b = beta + (steps - 1 - t) * row + 1 + n;
            real sum = 0;
            for (int64_t i = s; i < n; ++i) {
                if (item.label(i) != label) continue;
                const real path = a[i] + b[-i] - item.seen(t, i) + loss;
                sum += tgi_exp(path > -80 ? path : (real)-80); /* also where a label has probability 0 */
            }
            dx[t * stride + label] -= sum * g;
        }
    }
}

template <class real> static tgi_answer tgi_ctc_run(tgi_thread *S, const tgi_ctc *c, bool backward)
{
    tgi_cuda_device *d = tgi_device_for(S, c->index);
    const int64_t tables = c->batch * (backward ? 2 : 1) * c->steps * (c->states + 2);
    real *const memory = d ? (real *)tgi_scratch_alloc(S, d, "ctc_loss", tables, sizeof(real)) : NULL;
    if (!memory) return TGI_FAILED;
    const bool ok = tgi_launch(S, d, backward ? tgi_ctc_gradients<real> : tgi_ctc_losses<real>, c->batch, TGI_BLOCK, *c,
                               memory);
    tgi_cuda_release(S, d->index, memory, 0);
    return ok ? TGI_DONE : TGI_FAILED;
}

static tgi_answer tgi_cuda_ctc_loss(tgi_thread *S, const tgi_ctc *c)
{
    return c->dtype == TG_F64 ? tgi_ctc_run<double>(S, c, false) : tgi_ctc_run<float>(S, c, false);
}
static tgi_answer tgi_cuda_ctc_loss_backward(tgi_thread *S, const tgi_ctc *c)
{
    return c->dtype == TG_F64 ? tgi_ctc_run<double>(S, c, true) : tgi_ctc_run<float>(S, c, true);
}

/* ---- grid_sample: see tgi_sampling ----

   Places are found in double, as on the CPU.  The gradient of x is a sum over sorted pairs: of the elements, and of the
   taps that belong to them, so that its order is always the same. */

/* A place of the grid, and its taps, `each` along a dim and `count` in all.  find returns the index of tap k in its
   plane, -1 outside, and gives its weight, and the derivatives of the weight by the coordinate along each dim. */
struct tgi_sample_finder {
    tgi_sample_place place[3];
    int each, count;
    template <class real> __device__ tgi_sample_finder(const tgi_sampling &s, const real *grid)
    {
        each = count = tgi_sample_count(&s);
#pragma unroll
        for (int d = 0; d < 3; ++d) {
            place[d] = tgi_sample_place_of(&s, d, d >= 3 - s.dims ? (double)grid[2 - d] : 0);
            if (d > 3 - s.dims) count *= each;
        }
    }
    __device__ int64_t find(const tgi_sampling &s, int k, double *weight, double (&slope)[3]) const
    {
        int64_t at = 0, step = 1;
        bool outside = false;
        *weight = slope[0] = slope[1] = slope[2] = 1;
#pragma unroll
        for (int d = 2; d >= 0; --d) {
            if (d < 3 - s.dims) break;
            const tgi_sample_tap tap = tgi_sample_tap_of(&s, d, place[d], k % each);
            k /= each;
            outside = outside || tap.at < 0;
            at += tap.at * step;
            step *= s.size[d];
            *weight *= tap.weight;
#pragma unroll
            for (int i = 0; i < 3; ++i) slope[i] *= i == d ? tap.slope : tap.weight;
        }
        return outside ? -1 : at;
    }
};

/* y; one thread for a place and TGI_SAMPLE_CHANNELS channels; neighbouring threads have neighbouring places. */
enum { TGI_SAMPLE_CHANNELS = 8 };
template <class real> __global__ void tgi_sample_places(tgi_sampling s)
{
    const int64_t groups = (s.channels + TGI_SAMPLE_CHANNELS - 1) / TGI_SAMPLE_CHANNELS;
    const int64_t volume = s.size[0] * s.size[1] * s.size[2];
    for (int64_t e = tgi_grid_thread(); e < s.images * groups * s.places; e += tgi_grid_size()) {
        int64_t image = e;
        const int64_t place = tgi_pop_index(&image, s.places), group = tgi_pop_index(&image, groups);
        const int64_t first = image * s.channels + group * TGI_SAMPLE_CHANNELS;
        const int64_t left = s.channels - group * TGI_SAMPLE_CHANNELS;
        const int channels = left < TGI_SAMPLE_CHANNELS ? (int)left : (int)TGI_SAMPLE_CHANNELS;
        const real *const x = (const real *)s.x + first * volume;
        const tgi_sample_finder finder(s, (const real *)s.grid + (image * s.places + place) * s.dims);
        real sum[TGI_SAMPLE_CHANNELS] = {};
        for (int k = 0; k < finder.count; ++k) {
            double weight, slope[3];
            const int64_t at = finder.find(s, k, &weight, slope);
            if (at < 0) continue;
#pragma unroll
            for (int c = 0; c < TGI_SAMPLE_CHANNELS; ++c)
                if (c < channels) sum[c] += (real)weight * x[c * volume + at];
        }
#pragma unroll
        for (int c = 0; c < TGI_SAMPLE_CHANNELS; ++c)
            if (c < channels) ((real *)s.y)[(first + c) * s.places + place] = sum[c];
    }
}

static tgi_answer tgi_cuda_grid_sample(tgi_thread *S, const tgi_sampling *s)
{
    const tgi_cuda_device *d = tgi_device_for(S, s->index);
    const int64_t n = s->images * ((s->channels + TGI_SAMPLE_CHANNELS - 1) / TGI_SAMPLE_CHANNELS) * s->places;
    void (*const kernel)(tgi_sampling) = s->dtype == TG_F64 ? tgi_sample_places<double> : tgi_sample_places<float>;
    return d && tgi_launch_each(S, d, kernel, n, *s) ? TGI_DONE : TGI_FAILED;
}

/* dgrid; one thread per place.  found: the sum over the channels of g times the element. */
template <class real> __global__ void tgi_sample_grid(tgi_sampling s)
{
    const int64_t volume = s.size[0] * s.size[1] * s.size[2];
    for (int64_t e = tgi_grid_thread(); e < s.images * s.places; e += tgi_grid_size()) {
        const int64_t first = e / s.places * s.channels, place = e % s.places;
        const tgi_sample_finder finder(s, (const real *)s.grid + e * s.dims);
        real sum[3] = {};
        for (int k = 0; k < finder.count; ++k) {
            double weight, slope[3];
            const int64_t at = finder.find(s, k, &weight, slope);
            real found = 0;
            for (int64_t c = first; at >= 0 && c < first + s.channels; ++c)
                found += ((const real *)s.g)[c * s.places + place] * ((const real *)s.x)[c * volume + at];
#pragma unroll
            for (int d = 0; d < 3; ++d)
                if (at >= 0) sum[d] += found * (real)slope[d];
        }
#pragma unroll
        for (int d = 0; d < 3; ++d)
            if (d >= 3 - s.dims) ((real *)s.dgrid)[e * s.dims + 2 - d] = sum[d];
    }
}

/* pairs [images * places * taps] = (element of [images, volume], tap), or (images * volume, tap) of a tap outside;
   weight: that of the tap.  One thread per place. */
template <class real> __global__ void tgi_sample_pairs(tgi_sampling s, tgi_pairs pairs, real *weights)
{
    const int64_t volume = s.size[0] * s.size[1] * s.size[2];
    for (int64_t e = tgi_grid_thread(); e < s.images * s.places; e += tgi_grid_size()) {
        const tgi_sample_finder finder(s, (const real *)s.grid + e * s.dims);
        for (int k = 0; k < finder.count; ++k) {
            double weight, slope[3];
            const int64_t at = finder.find(s, k, &weight, slope), i = e * finder.count + k;
            weights[i] = (real)weight;
            tgi_set_pair(pairs, i, (uint64_t)(at < 0 ? s.images * volume : e / s.places * volume + at), i);
        }
    }
}

/* Places for tgi_add_sorted: the keys are elements of [images, volume], an index a tap of a place, a column a channel;
   dx is of zeros. */
template <class real_> struct tgi_places_taps {
    typedef real_ real;
    enum { width = 1, fresh = true };
    typedef struct { int64_t tap, channel; } source;
    real *dx;
    const real *g, *weight;
    int64_t channels, places, volume, taps;
    __device__ real *to(int64_t key, int64_t channel) const
    {
        return dx + (key / volume * channels + channel) * volume + key % volume;
    }
    __device__ source from(int64_t index, int64_t channel) const { return {index, channel}; }
    __device__ void load(const real *place, real (&x)[1]) const { x[0] = *place; }
    __device__ void load(source at, real (&x)[1]) const
    {
        const int64_t place = at.tap / taps;
        x[0] = weight[at.tap] * g[(place / places * channels + at.channel) * places + place % places];
    }
    __device__ void store(real *place, const real (&x)[1]) const { *place = x[0]; }
    __device__ static real none() { return 0; }
    __device__ static real two(real a, real x) { return a + x; }
};

/* dx; taps: of each place. */
template <class real> static bool tgi_sample_add(tgi_thread *S, tgi_cuda_device *d, const tgi_sampling *s, int64_t taps)
{
    const char *const op = "grid_sample";
    const int64_t places = s->images * s->places, volume = s->size[0] * s->size[1] * s->size[2];
    const int64_t keys = s->images * volume;
    tgi_sort_job sort;
    if (!TGI_CUDA(cudaMemsetAsync(s->dx, 0, sizeof(real) * (size_t)(keys * s->channels), d->stream))) return false;
    real *const weights = (real *)tgi_scratch_alloc(S, d, op, places * taps, sizeof(real));
    bool ok = weights && tgi_sort_begin(S, d, op, &sort, 1, places * taps, (uint64_t)keys);
    if (ok) {
        void *const memory = sort.pairs.key;
        ok = tgi_launch_each(S, d, tgi_sample_pairs<real>, places, *s, sort.pairs, weights) &&
             tgi_sort_pairs(S, d, &sort);
        const tgi_places_taps<real> at = {(real *)s->dx, (const real *)s->g, weights, s->channels,
                                          s->places, volume, taps};
        ok = ok && tgi_add_sorted(S, d, op, at, &sort.pairs, s->channels, keys);
        tgi_cuda_release(S, d->index, memory, 0);
    }
    if (weights) tgi_cuda_release(S, d->index, weights, 0);
    return ok;
}

static tgi_answer tgi_cuda_grid_sample_backward(tgi_thread *S, const tgi_sampling *s)
{
    tgi_cuda_device *d = tgi_device_for(S, s->index);
    const bool f64 = s->dtype == TG_F64;
    int64_t taps = 1;
    if (!d) return TGI_FAILED;
    for (int d = 0; d < s->dims; ++d) taps *= tgi_sample_count(s);
    if (s->dx && !(f64 ? tgi_sample_add<double>(S, d, s, taps) : tgi_sample_add<float>(S, d, s, taps)))
        return TGI_FAILED;
    void (*const kernel)(tgi_sampling) = f64 ? tgi_sample_grid<double> : tgi_sample_grid<float>;
    return !s->dgrid || tgi_launch_each(S, d, kernel, s->images * s->places, *s) ? TGI_DONE : TGI_FAILED;
}

/* ======== @@FFT =================================================================================================== */

/* All transforms here are forward, of whole pairs: x and y [rows, n].  The inverse is that of the conjugates,
   conjugated; a half is filled in, and real numbers are pairs. */
enum { TGI_FOURIER_LARGEST = 31 }; /* prime factor; a larger one makes it a convolution */

/* w [n]: the pairs exp(-2 pi i k / n); chirp: exp(-pi i k^2 / n). */
template <class real> __global__ void tgi_fourier_roots(real *w, int64_t n, bool chirp)
{
    for (int64_t k = tgi_grid_thread(); k < n; k += tgi_grid_size()) {
        double turn[2];
        if (chirp) tgi_turn((int64_t)((uint64_t)k * (uint64_t)k % (uint64_t)(2 * n)), 2 * n, turn);
        else tgi_turn(k, n, turn);
        w[2 * k] = (real)turn[0], w[2 * k + 1] = (real)-turn[1];
    }
}

/* w [m]: the conjugates of chirp [n], from 0 on and, backwards, from the end on; zeros between. */
template <class real> __global__ void tgi_fourier_wrap(const real *chirp, int64_t n, real *w, int64_t m)
{
    for (int64_t i = tgi_grid_thread(); i < m; i += tgi_grid_size()) {
        const int64_t k = i < n ? i : m - i;
        w[2 * i] = k < n ? chirp[2 * k] : (real)0, w[2 * i + 1] = k < n ? -chirp[2 * k + 1] : (real)0;
    }
}

/* A pass over rows: one factor r of n, see SIMD_FFT in tensorgrad.h; s: the product of the factors before. */
template <class real>
__global__ void tgi_fourier_pass(const real *x, real *y, int64_t rows, int64_t n, int64_t r, int64_t s, const real *w)
{
    const int64_t m = n / (r * s), each = n / r;
    for (int64_t e = tgi_grid_thread(); e < rows * each; e += tgi_grid_size()) {
        const int64_t row = e / each, q = e % each % s, p = e % each / s;
        const real *const from = x + 2 * (row * n + q + s * p);
        real *const to = y + 2 * (row * n + q + s * r * p);
        real re[TGI_FOURIER_LARGEST], im[TGI_FOURIER_LARGEST];
        for (int64_t j = 0; j < r; ++j) re[j] = from[2 * s * m * j], im[j] = from[2 * s * m * j + 1];
        for (int64_t k = 0; k < r; ++k) {
            real sum_re = 0, sum_im = 0;
            for (int64_t j = 0; j < r; ++j) {
                const real *const turn = w + 2 * (j * k % r * each);
                sum_re += re[j] * turn[0] - im[j] * turn[1];
                sum_im += im[j] * turn[0] + re[j] * turn[1];
            }
            const real *const turn = w + 2 * (s * p * k);
            to[2 * s * k] = sum_re * turn[0] - sum_im * turn[1];
            to[2 * s * k + 1] = sum_im * turn[0] + sum_re * turn[1];
        }
    }
}

/* to [rows, m] from the rows of f, times chirp unless that is NULL; zeros beyond n. */
template <class real> __global__ void tgi_fourier_load(tgi_fourier f, const real *chirp, real *to, int64_t m)
{
    const int64_t rows = f.outer * f.inner, length = tgi_fourier_from(&f);
    const real *const x = (const real *)f.x;
    for (int64_t e = tgi_grid_thread(); e < rows * m; e += tgi_grid_size()) {
        const int64_t row = e / m, j = e % m, k = j < length ? j : f.n - j;
        const int64_t at = (row / f.inner * length + k) * f.inner + row % f.inner;
        real re = 0, im = 0;
        if (j < f.n && f.kind == TGI_FOURIER_TO_HALF) {
            re = x[at];
        } else if (j < f.n) {
            const bool half = f.kind == TGI_FOURIER_FROM_HALF, inside = k > 0 && 2 * k != f.n;
            const real weight = half && inside ? (real)(f.middle / 2) : (real)1;
            re = x[2 * at] * weight;
            im = half && !inside ? (real)0 : x[2 * at + 1] * (k == j ? weight : -weight);
        }
        if (f.sign > 0) im = -im;
        to[2 * e] = j < f.n && chirp ? re * chirp[2 * j] - im * chirp[2 * j + 1] : re;
        to[2 * e + 1] = j < f.n && chirp ? im * chirp[2 * j] + re * chirp[2 * j + 1] : im;
    }
}

/* x [rows, m] = the conjugates of its products with w [m] */
template <class real> __global__ void tgi_fourier_product(real *x, const real *w, int64_t rows, int64_t m)
{
    for (int64_t e = tgi_grid_thread(); e < rows * m; e += tgi_grid_size()) {
        const real re = x[2 * e], im = x[2 * e + 1], *const by = w + 2 * (e % m);
        x[2 * e] = re * by[0] - im * by[1], x[2 * e + 1] = -(im * by[0] + re * by[1]);
    }
}

/* The rows of f from transforms x [rows, m]; chirp, unless NULL: from m times their convolutions, conjugated. */
template <class real> __global__ void tgi_fourier_store(tgi_fourier f, const real *chirp, const real *x, int64_t m)
{
    const int64_t length = tgi_fourier_to(&f), total = f.outer * length * f.inner;
    real *const y = (real *)f.y;
    for (int64_t e = tgi_grid_thread(); e < total; e += tgi_grid_size()) {
        const int64_t k = e / f.inner % length, row = e / f.inner / length * f.inner + e % f.inner;
        real re = x[2 * (row * m + k)], im = x[2 * (row * m + k) + 1];
        if (chirp) {
            const real a = re, b = -im, *const by = chirp + 2 * k;
            re = (a * by[0] - b * by[1]) / (real)m, im = (b * by[0] + a * by[1]) / (real)m;
        }
        const real weight = (real)(f.scale * (f.kind == TGI_FOURIER_TO_HALF ? tgi_fourier_weight(&f, k) : 1));
        if (f.kind == TGI_FOURIER_FROM_HALF) {
            y[e] = re * weight;
        } else {
            y[2 * e] = re * weight, y[2 * e + 1] = (f.sign > 0 ? -im : im) * weight;
        }
    }
}

/* *x [rows, n] transformed, with *y of the same size; they change places with each pass. */
template <class real>
static bool tgi_fourier_transform(tgi_thread *S, const tgi_cuda_device *d, real **x, real **y, int64_t rows, int64_t n,
                                  const real *roots)
{
    int64_t left = n, r = 4;
    for (int64_t s = 1; left > 1; s *= r, left /= r) {
        for (r = left % 4 == 0 ? 4 : 2; left % r; ++r) {}
        if (!tgi_launch_each(S, d, tgi_fourier_pass<real>, rows * (n / r), *x, *y, rows, n, r, s, roots)) return false;
        real *const next = *x;
        *x = *y, *y = next;
    }
    return true;
}

/* work: [rows, m] pairs twice, then [m] three times and [n] */
template <class real>
static bool tgi_fourier_run(tgi_thread *S, const tgi_cuda_device *d, const tgi_fourier *f, int64_t m, real *work)
{
    const int64_t rows = f->outer * f->inner, n = f->n;
    real *x = work, *y = x + 2 * rows * m, *const roots = y + 2 * rows * m;
    real *w = roots + 2 * m, *spare = w + 2 * m, *const chirp = m == n ? NULL : spare + 2 * m;
    bool ok = tgi_launch_each(S, d, tgi_fourier_roots<real>, m, roots, m, false);
    if (chirp) {
        ok = ok && tgi_launch_each(S, d, tgi_fourier_roots<real>, n, chirp, n, true) &&
             tgi_launch_each(S, d, tgi_fourier_wrap<real>, m, chirp, n, w, m) &&
             tgi_fourier_transform<real>(S, d, &w, &spare, 1, m, roots);
    }
    ok = ok && tgi_launch_each(S, d, tgi_fourier_load<real>, rows * m, *f, chirp, x, m) &&
         tgi_fourier_transform<real>(S, d, &x, &y, rows, m, roots);
    if (chirp) { /* the inverse: of the conjugates of the products */
        ok = ok && tgi_launch_each(S, d, tgi_fourier_product<real>, rows * m, x, w, rows, m) &&
             tgi_fourier_transform<real>(S, d, &x, &y, rows, m, roots);
    }
    return ok &&
           tgi_launch_each(S, d, tgi_fourier_store<real>, f->outer * tgi_fourier_to(f) * f->inner, *f, chirp, x, m);
}

static bool tgi_cuda_fft(tgi_thread *S, const tgi_fourier *f)
{
    tgi_cuda_device *d = tgi_device_for(S, f->index);
    int64_t m = f->n;
    for (int64_t r = 2; r <= TGI_FOURIER_LARGEST; ++r) {
        while (m % r == 0) m /= r;
    }
    if (m == 1) {
        m = f->n;
    } else {
        for (m = 1; m < 2 * f->n - 1;) m *= 2;
    }
    if (!d) return false;
    const int64_t pairs = 2 * f->outer * f->inner * m + 3 * m + f->n;
    const bool wide = f->dtype == TG_F64;
    void *const work = tgi_scratch_alloc(S, d, "fft", pairs, 2 * (wide ? sizeof(double) : sizeof(float)));
    if (!work) return false;
    const bool ok = wide ? tgi_fourier_run(S, d, f, m, (double *)work) : tgi_fourier_run(S, d, f, m, (float *)work);
    tgi_cuda_release(S, f->index, work, 0);
    return ok;
}

/* Products of complex numbers are composed. */
static tgi_answer tgi_cuda_complex_mul(tgi_thread *, bool, const tgi_rows *) { return TGI_COMPOSE; }

/* ======== @@MATMUL ================================================================================================ */

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
    d->workspace_bytes = (size_t)bytes;
    return d->workspace && TGI_CUBLAS_ALONE(cublasCreate(&d->blas)) &&
           TGI_CUBLAS(cublasSetStream(d->blas, d->stream)) &&
           TGI_CUBLAS(cublasSetWorkspace(d->blas, d->workspace, d->workspace_bytes)) &&
           TGI_CUBLAS(cublasSetMathMode(d->blas, (cublasMath_t)math)) &&
           TGI_CUBLAS(cublasSetAtomicsMode(d->blas, CUBLAS_ATOMICS_NOT_ALLOWED));
}

/* Creates the handle at the first call. */
static bool tgi_cublas_ready(tgi_thread *S, tgi_cuda_device *d)
{
    if (d->blas || tgi_cublas_create(S, d)) return true;
    if (d->blas) TGI_ALONE(cublasDestroy(d->blas));
    d->blas = NULL;
    return false;
}

static cudaDataType tgi_cublas_type(tg_dtype dtype)
{
    switch (dtype) {
    case TG_F64: return CUDA_R_64F;
    case TG_F32: return CUDA_R_32F;
    case TG_F16: return CUDA_R_16F;
    default: return CUDA_R_16BF;
    }
}

/* What a product computes in: f64, f32, or TF32 where the caller allows it. */
static cublasComputeType_t tgi_cublas_compute(const tgi_gemm *g)
{
    const bool rounded = g->out.dtype == TG_F32 && g->precision == TG_PRECISION_TF32;
    return g->out.dtype == TG_F64 ? CUBLAS_COMPUTE_64F : rounded ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
}

/* Multiplies all batches: cuBLAS loops over the innermost batch dim, in parts of 65535 matrices at most; a loop here
   goes over the other batch dims. */
static bool tgi_gemm_batches(tgi_thread *S, tgi_cuda_device *d, const tgi_gemm *g, const tgi_cublas_operand *a,
                             const tgi_cublas_operand *b)
{
    const tg_dtype dtype = g->out.dtype;
    const cudaDataType type = tgi_cublas_type(dtype);
    const cublasComputeType_t compute = tgi_cublas_compute(g);
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

/* The product of operands that cuBLAS can read as they are, by its own choice. */
static bool tgi_gemm_direct(tgi_thread *S, tgi_cuda_device *d, const tgi_gemm *g)
{
    tgi_cublas_operand a, b;
    return tgi_as_column_major(g->m, g->k, g->a_row, g->a_col, &a) &&
           tgi_as_column_major(g->k, g->n, g->b_row, g->b_col, &b) && tgi_gemm_batches(S, d, g, &a, &b);
}

static tgi_answer tgi_lt_plain(tgi_thread *S, const tgi_gemm *g);

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
    const bool ready = tgi_gemm_operand(S, d, &g, &g.a, g.m, g.k, g.a_row, g.a_col, &a) &&
                       tgi_gemm_operand(S, d, &g, &g.b, g.k, g.n, g.b_row, g.b_col, &b) && tgi_cublas_ready(S, d);
    if (a.memory) g.a_row = g.k, g.a_col = 1;
    if (b.memory) g.b_row = g.n, g.b_col = 1;
    const tgi_answer answer = !ready ? TGI_FAILED : d->planned ? tgi_lt_plain(S, &g) : TGI_COMPOSE;
    const bool ok = answer == TGI_DONE || (answer == TGI_COMPOSE && tgi_gemm_direct(S, d, &g));
    tgi_cuda_release(S, d->index, a.memory, 0);
    tgi_cuda_release(S, d->index, b.memory, 0);
    return ok;
}

/* ---- linear: products with an epilogue, by cuBLASLt ----

   The epilogue of a product is what a kernel does with its tiles before it stores them.  Forward, it adds the bias [n]
   to the rows of y [m, n].  Backward, while dweight = g^T x is computed, it stores the sums of the rows of g^T, which
   are the gradient of the bias.  A bias thus costs no kernel and no pass over y or g of its own.  Gelu, by tanh, is an
   epilogue, too, that can store its argument z for backward; and the product that gives the gradient of gelu's result
   multiplies it with the derivative at z.  relu is none of ours: the library documents max(x, 0), which may drop a NaN.

   An algorithm must be asked for, which takes longer than a small product; the answer, with the descriptors of the
   product, is a plan.  Plans are kept in a table of fixed size: a plan lies in one of the TGI_LT_WAYS places of the set
   that its key's hash names, and takes the place of the one there that was used the longest time ago.  Descriptors are
   plain memory, so nothing has to be released for a plan.

   Results are the same on every run: an algorithm is chosen once for each key, with a workspace of our own, and may
   only add up the parts of a sum in f32, in a step of its own (CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE), or not divide
   sums at all.  The other two schemes keep partial sums in the dtype of the result.  The choice is the first answer of
   cuBLASLt's heuristic, which depends on the key alone; with a file of plans it is made by time (see below), and then
   products without an epilogue have plans, too. */

enum { TGI_LT_SETS = 16, TGI_LT_WAYS = 8, TGI_LT_ASKED = 8 };

/* What an epilogue reads or writes: vector, a bias or its gradient; z [m, n], which lies as out.  NULL where it has
   none. */
typedef struct {
    cublasLtEpilogue_t kind;
    void *vector, *z;
} tgi_lt_epilogue;

/* All that an algorithm depends on.  `batch` products have operands that are a_step, b_step and out_step elements
   apart.  aligned: how a, b, out, the vector and z lie, in bytes.  Compared as bytes, so it has no gaps. */
typedef struct {
    int64_t type, compute, epilogue, adds;
    int64_t m, n, k, a_trans, b_trans, a_ld, b_ld;
    int64_t batch, a_step, b_step, out_step;
    int64_t aligned[5];
} tgi_lt_key;

/* Who computes a product: nobody here, so that other ops do; an algorithm of cuBLASLt; cuBLAS, by its own choice, where
   there is no epilogue; a product without the epilogue, and kernels in its place. */
enum { TGI_LT_BY_NOBODY, TGI_LT_BY_ALGORITHM, TGI_LT_BY_CUBLAS, TGI_LT_BY_KERNELS };
typedef struct {
    int64_t by;
    cublasLtMatmulAlgo_t algorithm; /* zeros where it is by none */
} tgi_lt_choice;

typedef struct {
    tgi_lt_key key; /* m is 0: the place is free */
    tgi_lt_choice choice;
    uint64_t used; /* the number of the product that used it last */
    cublasLtMatmulDescOpaque_t product;
    cublasLtMatrixLayoutOpaque_t a, b, out;
} tgi_lt_plan;

/* A choice that holds while the program runs; most are lines of the file. */
typedef struct {
    tgi_lt_key key;
    tgi_lt_choice choice;
} tgi_lt_line;

/* The file of plans, as far as it is read.  path: "", or its name. */
typedef struct {
    char path[1024], gpu[256];
    size_t version; /* of cuBLASLt */
    bool times;     /* what is not in the file is timed, and goes there */
    bool lost;      /* a line could not be written, and the program has not been warned */
    bool unended;   /* the last line has no end */
    long read;      /* bytes of the file that were read */
    tgi_lt_line *line;
    int lines, room;
} tgi_lt_file;

typedef struct tgi_lt_plans {
    uint64_t products;
    tgi_lt_plan plan[TGI_LT_SETS][TGI_LT_WAYS];
    tgi_lt_file file;
} tgi_lt_plans;

static void tgi_lt_free_plans(tgi_thread *S, tgi_cuda_device *d)
{
    if (d->plans && d->plans->file.line)
        tgi_host_api.give_back(S, d->plans->file.line, (size_t)d->plans->file.room * sizeof(tgi_lt_line));
    if (d->plans) tgi_host_api.give_back(S, d->plans, sizeof *d->plans);
    d->plans = NULL;
}

/* Host memory; NULL after recording an error. */
static void *tgi_lt_take(tgi_thread *S, size_t bytes)
{
    void *const memory = tgi_host_api.take(S, bytes);
    if (!memory && !tgi_this_cuda.trying) tgi_host_api.no_memory(S, "linear", TG_DEV_CPU, 0, (double)bytes, 0);
    return memory;
}

/* The largest power of two up to 256 that divides the address. */
static int tgi_alignment_of(const void *p)
{
    const uintptr_t address = (uintptr_t)p | 256;
    return (int)(address & (~address + 1));
}

/* FNV-1a */
static uint32_t tgi_lt_hash(const void *data, size_t bytes)
{
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < bytes; ++i) hash = (hash ^ ((const unsigned char *)data)[i]) * 16777619u;
    return hash;
}

/* How cuBLASLt reads x, which is [rows, cols] after op: the matrix in memory, in column-major order; of a batch the
   first one, and the others `step` elements apart. */
static bool tgi_lt_layout(tgi_thread *S, cublasLtMatrixLayoutOpaque_t *layout, const tgi_lt_key *key, int64_t rows,
                          int64_t cols, int64_t trans, int64_t ld, int64_t step)
{
    const uint64_t height = (uint64_t)(trans == CUBLAS_OP_N ? rows : cols);
    const uint64_t width = (uint64_t)(trans == CUBLAS_OP_N ? cols : rows);
    const int32_t batch = (int32_t)key->batch;
    return TGI_CUBLAS(cublasLtMatrixLayoutInit(layout, (cudaDataType)key->type, height, width, ld)) &&
           (batch == 1 || (TGI_CUBLAS(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT,
                                                                       &batch, sizeof batch)) &&
                           TGI_CUBLAS(cublasLtMatrixLayoutSetAttribute(
                               layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &step, sizeof step))));
}

/* Sets one attribute of a product. */
template <class type>
static bool tgi_lt_set(tgi_thread *S, tgi_lt_plan *plan, cublasLtMatmulDescAttributes_t attribute, const type &value)
{
    return TGI_CUBLAS(cublasLtMatmulDescSetAttribute(&plan->product, attribute, &value, sizeof value));
}

/* Says where the epilogue's operands are. */
static bool tgi_lt_point(tgi_thread *S, tgi_lt_plan *plan, const tgi_lt_epilogue *epilogue)
{
    return (!epilogue->vector || tgi_lt_set(S, plan, CUBLASLT_MATMUL_DESC_BIAS_POINTER, epilogue->vector)) &&
           (!epilogue->z || tgi_lt_set(S, plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, epilogue->z));
}

/* Describes out^T [n, m] = b^T [n, k] a^T [k, m] with the epilogue; see tgi_as_column_major. */
static bool tgi_lt_describe(tgi_thread *S, tgi_lt_plan *plan, const tgi_lt_key *key, const tgi_lt_epilogue *epilogue)
{
    return TGI_CUBLAS(cublasLtMatmulDescInit(&plan->product, (cublasComputeType_t)key->compute, CUDA_R_32F)) &&
           tgi_lt_set(S, plan, CUBLASLT_MATMUL_DESC_TRANSA, (int32_t)key->b_trans) &&
           tgi_lt_set(S, plan, CUBLASLT_MATMUL_DESC_TRANSB, (int32_t)key->a_trans) &&
           tgi_lt_set(S, plan, CUBLASLT_MATMUL_DESC_EPILOGUE, (uint32_t)key->epilogue) &&
           (!epilogue->z || tgi_lt_set(S, plan, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, key->n)) &&
           tgi_lt_point(S, plan, epilogue) &&
           tgi_lt_layout(S, &plan->b, key, key->n, key->k, key->b_trans, key->b_ld, key->b_step) &&
           tgi_lt_layout(S, &plan->a, key, key->k, key->m, key->a_trans, key->a_ld, key->a_step) &&
           tgi_lt_layout(S, &plan->out, key, key->n, key->m, CUBLAS_OP_N, key->n, key->out_step);
}

/* What the algorithm may use: the workspace, the reduction scheme above, and the alignments of the key. */
static bool tgi_lt_prefer(tgi_thread *S, const tgi_cuda_device *d, const tgi_lt_key *key,
                          cublasLtMatmulPreferenceOpaque_t *preference)
{
    const uint64_t workspace = d->workspace_bytes;
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const struct { cublasLtMatmulPreferenceAttributes_t attribute; uint32_t bytes; } aligned[] = {
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, (uint32_t)key->aligned[1]},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, (uint32_t)key->aligned[0]},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, (uint32_t)key->aligned[2]},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, (uint32_t)key->aligned[2]}};
    bool ok = TGI_CUBLAS(cublasLtMatmulPreferenceInit(preference)) &&
              TGI_CUBLAS(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                              &workspace, sizeof workspace)) &&
              TGI_CUBLAS(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                              &schemes, sizeof schemes));
    for (int i = 0; i < 4 && ok; ++i) {
        ok = TGI_CUBLAS(cublasLtMatmulPreferenceSetAttribute(preference, aligned[i].attribute, &aligned[i].bytes,
                                                             sizeof aligned[i].bytes));
    }
    return ok;
}

/* Adds up to `wanted` algorithms to choice [*count], in the order of the heuristic; none is no error.  False after
   recording one. */
static bool tgi_lt_ask(tgi_thread *S, tgi_cuda_device *d, tgi_lt_plan *plan, int wanted, tgi_lt_choice *choice,
                       int *count)
{
    cublasLtMatmulPreferenceOpaque_t preference;
    cublasLtMatmulHeuristicResult_t best[TGI_LT_ASKED] = {};
    int found = 0;
    if (!tgi_lt_prefer(S, d, &plan->key, &preference)) return false;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic((cublasLtHandle_t)d->blas, &plan->product, &plan->b, &plan->a, &plan->out,
                                       &plan->out, &preference, wanted, best, &found);
    /* whatever the library does not like about a product, other ops compute it; not without memory or a handle */
    const bool refused = status != CUBLAS_STATUS_SUCCESS && status != CUBLAS_STATUS_ALLOC_FAILED &&
                         status != CUBLAS_STATUS_NOT_INITIALIZED;
    if (refused) cudaGetLastError();
    else if (!tgi_cublas_ok(S, status, "cublasLtMatmulAlgoGetHeuristic", __LINE__)) return false;
    for (int i = 0; i < found && !refused; ++i) {
        if (best[i].state != CUBLAS_STATUS_SUCCESS || best[i].workspaceSize > d->workspace_bytes) continue;
        choice[*count].by = TGI_LT_BY_ALGORITHM;
        choice[(*count)++].algorithm = best[i].algo;
    }
    return true;
}

/* ---- epilogues apart: kernels that do the same behind a product ---- */

/* An elementwise op in f32 over rows [m, n] that lie as out; arg[0] is out. */
static tgi_loop tgi_lt_loop(const tgi_gemm *g, int op, int nargs)
{
    tgi_loop loop = {};
    loop.kernel = op;
    loop.compute = TG_F32;
    loop.ndim = 2;
    loop.dim[0] = g->m, loop.dim[1] = g->n;
    loop.nargs = nargs;
    for (int i = 0; i < nargs; ++i) {
        loop.arg[i].data = g->out.data;
        loop.arg[i].dtype = g->out.dtype;
        loop.arg[i].index = g->out.index;
        loop.arg[i].stride[0] = g->n, loop.arg[i].stride[1] = 1;
    }
    return loop;
}

/* out += bias */
static bool tgi_lt_add_bias(tgi_thread *S, const tgi_gemm *g, void *bias)
{
    tgi_loop loop = tgi_lt_loop(g, TGI_OP_add, 3);
    loop.arg[2].data = bias;
    loop.arg[2].stride[0] = 0;
    return tgi_cuda_map(S, &loop);
}

/* dbias [m] = the sums of the rows of a [m, k] */
static bool tgi_lt_sum_rows(tgi_thread *S, const tgi_gemm *g, void *dbias)
{
    tgi_reduce sums = {};
    sums.kind = TGI_SUM;
    sums.ndim = sums.rndim = 1;
    sums.dim[0] = g->m, sums.rdim[0] = g->k;
    sums.in.data = g->a.data, sums.out.data = dbias;
    sums.in.dtype = sums.out.dtype = g->out.dtype;
    sums.in.index = sums.out.index = g->out.index;
    sums.in.stride[0] = g->a_row, sums.rstride[0] = g->a_col, sums.out.stride[0] = 1;
    return tgi_cuda_reduce(S, &sums);
}

/* The product with its epilogue as kernels.  z is the result of linear, which again may be fused or not.  TGI_COMPOSE
   where there is no kernel for the gradient of gelu. */
static tgi_answer tgi_lt_apart(tgi_thread *S, const tgi_gemm *g, const tgi_lt_epilogue *epilogue)
{
    tgi_gemm first = *g;
    if (epilogue->kind == CUBLASLT_EPILOGUE_DGELU) {
        tgi_loop loop = tgi_lt_loop(g, TGI_OP_gelu, 3);
        loop.arg[2].data = epilogue->z;
        loop.scalar[0] = 1; /* by tanh */
        return tgi_cuda_gemm(S, g) ? tgi_cuda_map_gradient(S, &loop) : TGI_FAILED;
    }
    if (epilogue->kind == CUBLASLT_EPILOGUE_BGRADB)
        return tgi_cuda_gemm(S, g) && tgi_lt_sum_rows(S, g, epilogue->vector) ? TGI_DONE : TGI_FAILED;
    if (epilogue->kind == CUBLASLT_EPILOGUE_BIAS)
        return tgi_cuda_gemm(S, g) && tgi_lt_add_bias(S, g, epilogue->vector) ? TGI_DONE : TGI_FAILED;
    if (epilogue->z) first.out.data = epilogue->z;
    tgi_loop loop = tgi_lt_loop(g, TGI_OP_gelu, 2);
    loop.arg[1].data = first.out.data;
    loop.scalar[0] = 1;
    const tgi_answer made = epilogue->vector ? tgi_cuda_linear(S, &first, epilogue->vector) : TGI_COMPOSE;
    const bool ok = made == TGI_DONE || (made == TGI_COMPOSE && tgi_cuda_gemm(S, &first) &&
                                         (!epilogue->vector || tgi_lt_add_bias(S, &first, epilogue->vector)));
    return ok && tgi_cuda_map(S, &loop) ? TGI_DONE : TGI_FAILED;
}

/* out = a b, or out += a b, with the epilogue, as the plan says; TGI_COMPOSE where it is by others. */
static tgi_answer tgi_lt_run(tgi_thread *S, tgi_cuda_device *d, tgi_lt_plan *plan, const tgi_gemm *g,
                             const tgi_lt_epilogue *epilogue)
{
    const float one = 1, beta = g->adds ? 1 : 0;
    if (plan->choice.by == TGI_LT_BY_KERNELS) return tgi_lt_apart(S, g, epilogue);
    if (plan->choice.by != TGI_LT_BY_ALGORITHM) return TGI_COMPOSE;
    const bool ok = tgi_lt_point(S, plan, epilogue) &&
                    TGI_CUBLAS(cublasLtMatmul((cublasLtHandle_t)d->blas, &plan->product, &one, g->b.data, &plan->b,
                                              g->a.data, &plan->a, &beta, g->out.data, &plan->out, g->out.data,
                                              &plan->out, &plan->choice.algorithm, d->workspace, d->workspace_bytes,
                                              d->stream));
    return ok ? TGI_DONE : TGI_FAILED;
}

/* ---- the file of plans ----

   TG_CUDA_PLANS=FILE in the environment: who computes a product is chosen by time, once, and the choice is kept in the
   file, so that all later runs give the same bits as this one.  A line is the choice for one product on one kind of
   GPU and by one version of cuBLASLt: numbers, their hash, the name of the GPU.  Only a line that reads to the letter
   as it would be written is taken; others are skipped, with a warning.  TG_CUDA_PLANS=read:FILE only reads: what has no
   line is computed as without a file.

   Several threads and processes may have one file: who adds a line locks it, and first reads what others have added.
   So all of them use the line that is in the file, also where they have timed the same product at the same time.  A
   choice that cannot be written is not used. */

enum { TGI_LT_TEXT = 1536, TGI_LT_NUMBERS = sizeof(tgi_lt_line) / 8, TGI_LT_FORMAT = 1 };
static_assert(sizeof(tgi_lt_line) % 8 == 0, "a line of the file is numbers of 8 bytes");

/* text [TGI_LT_TEXT] := the line of the file, without its end */
static void tgi_lt_print(char *text, const tgi_lt_line *line, size_t version, const char *gpu)
{
    int64_t number[TGI_LT_NUMBERS];
    memcpy(number, line, sizeof number);
    int at = snprintf(text, TGI_LT_TEXT, "%d %zu", (int)TGI_LT_FORMAT, version);
    for (int i = 0; i < TGI_LT_NUMBERS; ++i)
        at += snprintf(text + at, (size_t)(TGI_LT_TEXT - at), " %lld", (long long)number[i]);
    const uint32_t hash = tgi_lt_hash(text, (size_t)at) ^ tgi_lt_hash(gpu, strlen(gpu));
    snprintf(text + at, (size_t)(TGI_LT_TEXT - at), " %08x %s", (unsigned)hash, gpu);
}

/* The line that the text says; false if it is damaged.  *ours: it is for this GPU and this cuBLASLt. */
static bool tgi_lt_parse(const tgi_lt_file *f, const char *text, tgi_lt_line *line, bool *ours)
{
    int64_t number[TGI_LT_NUMBERS];
    char again[TGI_LT_TEXT], gpu[sizeof f->gpu], *at;
    strtoll(text, &at, 10);
    const size_t version = (size_t)strtoull(at, &at, 10);
    for (int i = 0; i < TGI_LT_NUMBERS; ++i) number[i] = strtoll(at, &at, 10);
    strtoull(at, &at, 16);
    snprintf(gpu, sizeof gpu, "%s", *at == ' ' ? at + 1 : "");
    memcpy(line, number, sizeof number);
    tgi_lt_print(again, line, version, gpu);
    *ours = version == f->version && strcmp(gpu, f->gpu) == 0;
    return strcmp(again, text) == 0;
}

static tgi_lt_line *tgi_lt_line_of(const tgi_lt_file *f, const tgi_lt_key *key)
{
    for (int i = 0; i < f->lines; ++i) {
        if (memcmp(&f->line[i].key, key, sizeof *key) == 0) return &f->line[i];
    }
    return NULL;
}

/* Adds the line to those in memory.  False after recording an error. */
static bool tgi_lt_keep(tgi_thread *S, tgi_lt_file *f, const tgi_lt_line *line)
{
    if (f->lines == f->room) {
        const int room = f->room ? 2 * f->room : 32;
        tgi_lt_line *const wider = (tgi_lt_line *)tgi_lt_take(S, (size_t)room * sizeof *wider);
        if (!wider) return false;
        if (f->lines) memcpy(wider, f->line, (size_t)f->lines * sizeof *wider);
        if (f->line) tgi_host_api.give_back(S, f->line, (size_t)f->room * sizeof *wider);
        f->line = wider;
        f->room = room;
    }
    f->line[f->lines++] = *line;
    return true;
}

/* Reads what the file has got since it was last read, line by line; *damaged is the number of lines that are skipped.
   The first time the last of several lines for a product counts: it was added because the others were of no use.  Later
   the one that is in memory does, which products have been computed by. */
static bool tgi_lt_read(tgi_thread *S, tgi_lt_file *f, FILE *file, bool first, int *damaged)
{
    char text[TGI_LT_TEXT];
    size_t length = 0;
    fseek(file, f->read, SEEK_SET);
    *damaged = 0;
    for (int c; (c = getc(file)) != EOF;) {
        tgi_lt_line line;
        bool ours;
        f->unended = c != '\n';
        if (c != '\n') {
            if (length < sizeof text) text[length++] = c ? (char)c : '?';
            continue;
        }
        text[length < sizeof text ? length : sizeof text - 1] = 0;
        if (length == sizeof text || (length && !tgi_lt_parse(f, text, &line, &ours))) ++*damaged;
        else if (length && ours) {
            tgi_lt_line *const known = tgi_lt_line_of(f, &line.key);
            if (known && first) *known = line;
            if (!known && !tgi_lt_keep(S, f, &line)) return false;
        }
        length = 0;
        if (!first) f->read = ftell(file);
    }
    *damaged += length > 0;
    f->read = ftell(file);
    return true;
}

/* Opens and locks the file, which closing it unlocks; NULL if that cannot be. */
static FILE *tgi_lt_open(const tgi_lt_file *f)
{
    struct stat status;
    if (stat(f->path, &status) == 0 && !S_ISREG(status.st_mode)) return NULL; /* a pipe has no end */
    FILE *const file = fopen(f->path, f->times ? "a+" : "r");
    if (file) flock(fileno(file), f->times ? LOCK_EX : LOCK_SH);
    return file;
}

/* Finds out what this device is, and reads the file.  False after recording an error. */
static bool tgi_lt_load(tgi_thread *S, tgi_cuda_device *d, tgi_lt_file *f)
{
    const char *const value = getenv("TG_CUDA_PLANS");
    char text[sizeof f->path + 200];
    cudaDeviceProp about;
    FILE *file = NULL;
    int damaged = 0;
    if (!value || !*value) return true;
    if (!TGI_CUDA(cudaGetDeviceProperties(&about, d->index))) return false;
    const bool reads = strncmp(value, "read:", 5) == 0;
    const int length = snprintf(f->path, sizeof f->path, "%s", reads ? value + 5 : value);
    snprintf(f->gpu, sizeof f->gpu, "%s", about.name);
    f->version = cublasLtGetVersion();
    f->times = !reads;
    if (length < (int)sizeof f->path) file = tgi_lt_open(f);
    const bool ok = !file || tgi_lt_read(S, f, file, true, &damaged);
    if (file) fclose(file);
    if (!ok) return false;
    if (!file) {
        snprintf(text, sizeof text, "warning: TG_CUDA_PLANS: %s cannot be %s, so products are computed as without it",
                 f->path, reads ? "read" : "read and written");
        f->path[0] = 0;
    } else if (damaged) {
        snprintf(text, sizeof text, "warning: TG_CUDA_PLANS: %d line%s of %s not as %s written, and skipped", damaged,
                 damaged == 1 ? "" : "s", f->path, damaged == 1 ? "it was" : "they were");
    }
    if (!file || damaged) tgi_host_api.warn(S, text);
    return tgi_enter(S, d->index); /* the program's handler may have used other devices */
}

/* Adds the line to the file, unless somebody else has meanwhile added one for the product: that becomes *line.
   TGI_COMPOSE if the file cannot be written: then nothing is timed any more. */
static tgi_answer tgi_lt_append(tgi_thread *S, tgi_lt_file *f, tgi_lt_line *line)
{
    char text[TGI_LT_TEXT];
    int damaged;
    FILE *const file = tgi_lt_open(f);
    const bool read = !file || tgi_lt_read(S, f, file, false, &damaged);
    const tgi_lt_line *const known = tgi_lt_line_of(f, &line->key);
    bool ok = file && read;
    if (known) {
        *line = *known;
    } else if (ok) {
        tgi_lt_print(text, line, f->version, f->gpu);
        ok = fprintf(file, "%s%s\n", f->unended ? "\n" : "", text) > 0 && fflush(file) == 0;
    }
    if (file) ok = fclose(file) == 0 && ok;
    if (read && !ok) f->times = false, f->lost = true;
    return ok ? TGI_DONE : read ? TGI_COMPOSE : TGI_FAILED;
}

/* ---- plans by time ----

   Timed are the first algorithms of the heuristic, cuBLAS's own choice for products without an epilogue, and for others
   the product and kernels apart.  Each runs a few times between two events, in rounds that take turns, on the operands
   themselves, with scratch memory for what is written; the least median counts, of equal ones the first.  Nothing is
   timed while work is captured, since a stream that is captured does not run: then it is as without a file. */

enum { TGI_LT_ROUNDS = 5, TGI_LT_REPEATS = 4 };

/* Lets g and the epilogue write to scratch memory, aligned as what they write to.  NULL if there is none. */
static void *tgi_lt_scratch(tgi_thread *S, tgi_cuda_device *d, const tgi_lt_key *key, tgi_gemm *g,
                            tgi_lt_epilogue *epilogue)
{
    const int64_t size = tgi_bytes_of(g->out.dtype), all = ((key->batch - 1) * key->out_step + g->m * g->n) * size;
    const bool writes_z = epilogue->z && epilogue->kind != CUBLASLT_EPILOGUE_DGELU;
    const bool writes_vector = epilogue->kind == CUBLASLT_EPILOGUE_BGRADB;
    void **const to[3] = {&g->out.data, writes_z ? &epilogue->z : NULL, writes_vector ? &epilogue->vector : NULL};
    const int64_t bytes[3] = {all, writes_z ? all : 0, writes_vector ? g->m * size : 0};
    const int64_t aligned[3] = {key->aligned[2], key->aligned[4], key->aligned[3]};
    const size_t total = (size_t)(bytes[0] + bytes[1] + bytes[2]) + 3 * 512;
    char *const memory = (char *)tgi_cuda_alloc(S, d->index, total, false), *at = memory;
    for (int i = 0; i < 3 && memory; ++i) {
        if (to[i]) *to[i] = at + aligned[i] % 256;
        at += (bytes[i] + 511) / 256 * 256;
    }
    if (memory && g->adds) TGI_CUDA(cudaMemsetAsync(g->out.data, 0, (size_t)all, d->stream));
    return memory;
}

/* The milliseconds of plan->choice; negative if it cannot be run. */
static float tgi_lt_time(tgi_thread *S, tgi_cuda_device *d, tgi_lt_plan *plan, const tgi_gemm *g,
                         const tgi_lt_epilogue *epilogue, const cudaEvent_t *event)
{
    float milliseconds = -1;
    bool ok = TGI_CUDA(cudaEventRecord(event[0], d->stream));
    for (int i = 0; i < TGI_LT_REPEATS && ok; ++i) {
        ok = plan->choice.by == TGI_LT_BY_CUBLAS ? tgi_gemm_direct(S, d, g)
                                                 : tgi_lt_run(S, d, plan, g, epilogue) == TGI_DONE;
    }
    ok = ok && TGI_CUDA(cudaEventRecord(event[1], d->stream)) && TGI_CUDA(cudaEventSynchronize(event[1])) &&
         TGI_CUDA(cudaEventElapsedTime(&milliseconds, event[0], event[1]));
    return ok ? milliseconds : -1;
}

static float tgi_lt_median(float *x)
{
    for (int i = 1; i < TGI_LT_ROUNDS; ++i) {
        for (int k = i; k > 0 && x[k] < x[k - 1]; --k) {
            const float larger = x[k - 1];
            x[k - 1] = x[k], x[k] = larger;
        }
    }
    return x[TGI_LT_ROUNDS / 2];
}

/* *best := the fastest of choice [count]; false if they cannot be timed.  The first round counts for nothing: in it
   kernels are loaded, and the plans are made that the others need. */
static bool tgi_lt_fastest(tgi_thread *S, tgi_cuda_device *d, tgi_lt_plan *plan, const tgi_gemm *g,
                           const tgi_lt_epilogue *epilogue, tgi_lt_choice *choice, int count, tgi_lt_choice *best)
{
    const bool before = tgi_this_cuda.trying;
    tgi_gemm trial = *g;
    tgi_lt_epilogue written = *epilogue;
    cudaEvent_t event[2] = {NULL, NULL};
    float took[TGI_LT_ASKED + 1][TGI_LT_ROUNDS], least = -1;
    tgi_this_cuda.trying = true;
    void *const memory = tgi_lt_scratch(S, d, &plan->key, &trial, &written);
    const bool ok = memory && TGI_CUDA(cudaEventCreate(&event[0])) && TGI_CUDA(cudaEventCreate(&event[1]));
    for (int turn = 0; turn < (TGI_LT_ROUNDS + 1) * count && ok; ++turn) {
        const int round = turn / count - 1, i = turn % count;
        plan->choice = choice[i];
        const float time = choice[i].by ? tgi_lt_time(S, d, plan, &trial, &written, event) : -1;
        if (time < 0) choice[i].by = TGI_LT_BY_NOBODY;
        if (round >= 0) took[i][round] = time;
    }
    for (int i = 0; i < count && ok; ++i) {
        const float time = choice[i].by ? tgi_lt_median(took[i]) : -1;
        if (time < 0 || (least >= 0 && time >= least)) continue;
        least = time;
        *best = choice[i];
    }
    for (int k = 0; k < 2; ++k) {
        if (event[k]) TGI_CUDA(cudaEventDestroy(event[k]));
    }
    tgi_cuda_release(S, d->index, memory, 0);
    tgi_this_cuda.trying = before;
    return least >= 0;
}

/* Whether a line of the file can be used: it may be from another build of the library, for all that it says. */
static bool tgi_lt_accepts(tgi_cuda_device *d, tgi_lt_plan *plan, const tgi_lt_choice *choice)
{
    const bool plain = plan->key.epilogue == CUBLASLT_EPILOGUE_DEFAULT;
    cublasLtMatmulHeuristicResult_t about = {};
    if (choice->by == TGI_LT_BY_CUBLAS) return plain;
    if (choice->by == TGI_LT_BY_KERNELS) return !plain;
    if (choice->by != TGI_LT_BY_ALGORITHM) return false;
    const cublasStatus_t status =
        cublasLtMatmulAlgoCheck((cublasLtHandle_t)d->blas, &plan->product, &plan->b, &plan->a, &plan->out, &plan->out,
                                &choice->algorithm, &about);
    if (status != CUBLAS_STATUS_SUCCESS) cudaGetLastError();
    return status == CUBLAS_STATUS_SUCCESS && about.workspaceSize <= d->workspace_bytes;
}

/* Sets plan->choice: what has been chosen before, the fastest of choice [count], or the first.  False after recording
   an error. */
static bool tgi_lt_choose(tgi_thread *S, tgi_cuda_device *d, tgi_lt_plan *plan, const tgi_gemm *g,
                          const tgi_lt_epilogue *epilogue, tgi_lt_choice *choice, int count)
{
    tgi_lt_file *const f = &d->plans->file;
    const tgi_lt_choice first = choice[0];
    tgi_lt_line *known = tgi_lt_line_of(f, &plan->key), line = {plan->key, first};
    if (known && !tgi_lt_accepts(d, plan, &known->choice)) {
        *known = f->line[--f->lines];
        known = NULL;
    }
    if (known) return plan->choice = known->choice, true;
    const bool timed = f->times && !d->capturing &&
                       tgi_lt_fastest(S, d, plan, g, epilogue, choice, count, &line.choice);
    const tgi_answer kept = timed ? tgi_lt_append(S, f, &line) : TGI_COMPOSE;
    if (kept == TGI_FAILED) return false;
    if (kept == TGI_COMPOSE || !tgi_lt_accepts(d, plan, &line.choice)) line.choice = first;
    plan->choice = line.choice;
    if (f->lost && !tgi_this_cuda.trying) {
        f->lost = false;
        tgi_host_api.warn(S, "warning: the file of TG_CUDA_PLANS cannot be written: products that are not in it are "
                             "computed as without it");
        if (!tgi_enter(S, d->index)) return false;
    }
    return !f->times || tgi_lt_line_of(f, &line.key) || tgi_lt_keep(S, f, &line); /* what was not timed stays so */
}

/* Makes the plan, also if it is that others compute the product.  False after recording an error. */
static bool tgi_lt_make_plan(tgi_thread *S, tgi_cuda_device *d, tgi_lt_plan *plan, const tgi_lt_key *key,
                             const tgi_gemm *g, const tgi_lt_epilogue *epilogue)
{
    const tgi_lt_file *const f = &d->plans->file;
    const bool plain = key->epilogue == CUBLASLT_EPILOGUE_DEFAULT, times = f->path[0] && f->times;
    tgi_lt_choice choice[TGI_LT_ASKED + 1];
    int count = 0;
    memset(choice, 0, sizeof choice);
    memset(plan, 0, sizeof *plan);
    plan->key = *key;
    if (plain) choice[count++].by = TGI_LT_BY_CUBLAS;
    if (!tgi_lt_describe(S, plan, key, epilogue) ||
        !tgi_lt_ask(S, d, plan, times ? (int)TGI_LT_ASKED : 1, choice, &count)) {
        return false;
    }
    plan->choice = choice[0];
    if (times && !plain && count) choice[count++].by = TGI_LT_BY_KERNELS;
    return !f->path[0] || !count || tgi_lt_choose(S, d, plan, g, epilogue, choice, count);
}

/* The plan for the key, made at its first use.  NULL after recording an error. */
static tgi_lt_plan *tgi_lt_plan_for(tgi_thread *S, tgi_cuda_device *d, const tgi_lt_key *key, const tgi_gemm *g,
                                    const tgi_lt_epilogue *epilogue)
{
    if (!d->plans) {
        d->plans = (tgi_lt_plans *)tgi_lt_take(S, sizeof *d->plans);
        if (!d->plans) return NULL;
        memset(d->plans, 0, sizeof *d->plans);
        if (d->planned && !tgi_lt_load(S, d, &d->plans->file)) return tgi_lt_free_plans(S, d), (tgi_lt_plan *)NULL;
        d->planned = d->plans->file.path[0] != 0;
    }
    const uint32_t hash = tgi_lt_hash(key, sizeof *key);
    tgi_lt_plan *const set = d->plans->plan[(hash ^ hash >> 16) % TGI_LT_SETS], *oldest = set, made;
    for (int way = 0; way < TGI_LT_WAYS; ++way) {
        if (memcmp(&set[way].key, key, sizeof *key) == 0) return &set[way];
    }
    if (!tgi_lt_make_plan(S, d, &made, key, g, epilogue)) return NULL; /* which may have made others in this set */
    for (int way = 0; way < TGI_LT_WAYS; ++way) {
        if (set[way].used < oldest->used) oldest = &set[way];
    }
    *oldest = made;
    return oldest;
}

/* What the plan for the product depends on, and how a and b are read; false where products are left to cuBLAS: several
   with an epilogue, f64, operands that have to be copied, and, as in PyTorch, products with vectors.  The library wants
   rows of z that are a multiple of 8 elements. */
static bool tgi_lt_key_of(const tgi_gemm *g, const tgi_lt_epilogue *epilogue, tgi_lt_key *key)
{
    const tg_dtype dtype = g->out.dtype;
    const bool plain = epilogue->kind == CUBLASLT_EPILOGUE_DEFAULT;
    const tgi_operand arg[3] = {g->out, g->a, g->b};
    tgi_cublas_operand a = {CUBLAS_OP_N, 1, NULL}, b = a;
    tgi_iter batch;
    tgi_iter_init(&batch, g->ndim, g->dim, 3, arg, false);
    if (batch.ndim > 1 || batch.numel < 1 || batch.numel > (plain ? 65535 : 1) || (plain && g->m < 2)) return false;
    if ((dtype != TG_F32 && dtype != TG_F16 && dtype != TG_BF16) || g->a.dtype != dtype || g->b.dtype != dtype ||
        (epilogue->z && g->n % 8) || g->n < 2 || g->k < 2 || g->m > INT_MAX || g->n > INT_MAX || g->k > INT_MAX ||
        !tgi_as_column_major(g->m, g->k, g->a_row, g->a_col, &a) ||
        !tgi_as_column_major(g->k, g->n, g->b_row, g->b_col, &b)) {
        return false;
    }
    int64_t step[3] = {0, 0, 0};
    for (int i = 0; i < 3 && batch.numel > 1; ++i) step[i] = batch.stride[i][0] / tgi_bytes_of(dtype);
    if (batch.numel > 1 && step[0] < g->m * g->n) return false;
    const tgi_lt_key found = {tgi_cublas_type(dtype), tgi_cublas_compute(g), epilogue->kind, g->adds,
                              g->m, g->n, g->k, a.trans, b.trans, a.ld, b.ld,
                              batch.numel, step[1], step[2], step[0],
                              {tgi_alignment_of(g->a.data), tgi_alignment_of(g->b.data),
                               tgi_alignment_of(g->out.data), tgi_alignment_of(epilogue->vector),
                               tgi_alignment_of(epilogue->z)}};
    *key = found;
    return true;
}

static tgi_answer tgi_lt_product(tgi_thread *S, const tgi_gemm *g, const tgi_lt_epilogue epilogue)
{
    tgi_cuda_device *d = tgi_device_for(S, g->out.index);
    tgi_lt_key key;
    if (!d) return TGI_FAILED;
    if (!tgi_lt_key_of(g, &epilogue, &key)) return TGI_COMPOSE;
    tgi_lt_plan *const plan = tgi_cublas_ready(S, d) ? tgi_lt_plan_for(S, d, &key, g, &epilogue) : NULL;
    if (!plan) return TGI_FAILED;
    plan->used = ++d->plans->products;
    return tgi_lt_run(S, d, plan, g, &epilogue);
}

/* A product without an epilogue. */
static tgi_answer tgi_lt_plain(tgi_thread *S, const tgi_gemm *g)
{
    return tgi_lt_product(S, g, {CUBLASLT_EPILOGUE_DEFAULT, NULL, NULL});
}

static tgi_answer tgi_cuda_linear(tgi_thread *S, const tgi_gemm *gemm, const void *bias)
{
    return tgi_lt_product(S, gemm, {CUBLASLT_EPILOGUE_BIAS, (void *)bias, NULL});
}

static tgi_answer tgi_cuda_linear_gelu(tgi_thread *S, const tgi_gemm *gemm, const void *bias, void *z)
{
    const cublasLtEpilogue_t kind = bias ? z ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_BIAS
                                         : z ? CUBLASLT_EPILOGUE_GELU_AUX : CUBLASLT_EPILOGUE_GELU;
    return tgi_lt_product(S, gemm, {kind, (void *)bias, z});
}

static tgi_answer tgi_cuda_linear_gelu_backward(tgi_thread *S, const tgi_gemm *gemm, const void *z)
{
    return tgi_lt_product(S, gemm, {CUBLASLT_EPILOGUE_DGELU, NULL, (void *)z});
}

/* cuBLASLt's B is a, transposed: the sums of B's columns are those of a's rows. */
static tgi_answer tgi_cuda_weight_gradient(tgi_thread *S, const tgi_gemm *gemm, void *dbias)
{
    return tgi_lt_product(S, gemm, {CUBLASLT_EPILOGUE_BGRADB, dbias, NULL});
}

/* ======== @@ATTENTION ============================================================================================= */

/* ---- PTX ----

   Tensor cores multiply matrices whose elements are spread over the registers of a warp, its fragments.  Lane 4 g + t
   (g 0..7, t 0..3) holds, of c [16, 8] += a [16, 16] b [16, 8], two neighbours in each register of a and b:

       a    columns 2t, 2t+1    2t+8, 2t+9      b    column g           c    columns 2t    2t+1
       row g         a[0]          a[2]         rows 2t,   2t+1  b[0]   row g         c[0]  c[1]
       row g + 8     a[1]          a[3]         rows 2t+8, 2t+9  b[1]   row g + 8     c[2]  c[3]

   So two neighbouring tiles c, rounded to 16 bits, are the fragment a of the next product: no lane has to ask another
   one.  A fragment is loaded from shared memory as four matrices [8, 8]; lane 8 m + r gives the address of row r of
   matrix m, which has 16 bytes, and lane 4 g + t gets the elements [g, 2t] and [g, 2t + 1] of each matrix; transposed,
   it gets [2t, g] and [2t + 1, g].

   These functions need compute capability 8.0; code for older devices, which never calls them, has a trap in their
   place.  The simulator in tests/cudasim has functions of its own. */
#ifdef CUDASIM
#include <tensor_cores.h>
#else
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#define TGI_PTX(...) __trap()
#else
#define TGI_PTX(...) asm volatile(__VA_ARGS__)
#endif

/* c [16, 8] += a [16, 16] times b [16, 8]; a and b in bf16 or f16 */
template <bool bf16>
__device__ inline void tgi_mma_16816(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    if constexpr (bf16)
        TGI_PTX("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    else
        TGI_PTX("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
                : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline void tgi_load_matrices(uint32_t (&x)[4], const void *row)
{
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    TGI_PTX("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3},[%4];"
            : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
            : "r"(at));
}

__device__ inline void tgi_load_matrices_transposed(uint32_t (&x)[4], const void *row)
{
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(row);
    TGI_PTX("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];"
            : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3])
            : "r"(at));
}

/* Two numbers rounded to 16 bits, in one register. */
template <bool bf16> __device__ inline uint32_t tgi_two_halves(float low, float high)
{
    uint32_t two = 0;
    if constexpr (bf16)
        TGI_PTX("cvt.rn.bf16x2.f32 %0,%1,%2;" : "=r"(two) : "f"(high), "f"(low));
    else
        TGI_PTX("cvt.rn.f16x2.f32 %0,%1,%2;" : "=r"(two) : "f"(high), "f"(low));
    return two;
}

/* Begins to copy 16 bytes from global to shared memory, or to fill them with zeros.  A thread ends a group of such
   copies, and later waits until all of its groups but the last `left` are done; other threads see the bytes after the
   barrier that follows. */
__device__ inline void tgi_copy_async(void *to, const void *from, bool copies)
{
    const uint32_t at = (uint32_t)__cvta_generic_to_shared(to);
    const size_t source = __cvta_generic_to_global(from);
    TGI_PTX("cp.async.cg.shared.global [%0],[%1],16,%2;" : : "r"(at), "l"(source), "r"(copies ? 16 : 0) : "memory");
}
__device__ inline void tgi_copy_async_commit(void) { TGI_PTX("cp.async.commit_group;" : : : "memory"); }
template <int left> __device__ inline void tgi_copy_async_wait(void)
{
    TGI_PTX("cp.async.wait_group %0;" : : "n"(left) : "memory");
}
#endif

/* ---- the tiles of a block ----

   After Dao, "FlashAttention-2" (2023): the scores of all queries with all keys are never in memory.  A block of
   threads owns a tile of rows, 16 for each warp, and loops over tiles of columns, which it copies to shared memory, the
   next one while it computes with this one.  A warp's scores of its rows with the columns of a tile are in registers
   only.

                    owns         loops over    for each tile of columns
       forward      q            k, v          s = scale q k^T, p = exp(s - largest s so far), y += p v
       dq           q, g, y      k, v          p = exp(scale q k^T - lse), ds = p (g v^T - d), dq += ds k
       dk and dv    k, v         q, g          the same transposed: dk += ds^T q, dv += p^T g

   with d = sum(g y) for each query, which is sum(p dp): the kernel of dq computes it of its own queries and stores it
   for that of dk and dv, which runs next.  The scores are computed again in both backward kernels, so that each sum has
   one owner and a fixed order.

   Where is_causal hides all of a tile from all of a block, the tile is left out. */

#define TGI_LOG2_E 1.44269504f
/* Bytes of a tile of columns and of one copy; what the number of queries is rounded up to in tgi_flash_job.sums, a
   multiple of all tiles. */
enum { TGI_FLASH_TILE_BYTES = 8192, TGI_FLASH_COPY = 16, TGI_FLASH_SUMS = 128 };

/* Sizes by dtype and width D, 64 or 128: narrower rows are filled with zeros in shared memory.  A warp has 16 rows, or
   two parts of 16: then what it loads of the columns serves two products.  Forward, for 64 columns and D = 64, 32 rows
   take 128 products and load 8 times from q, 16 times from k and 16 from v.  16 rows take 64 and load 36 times, which
   keeps a multiprocessor busy for longer than the products do.  For more than this case the registers of a thread are
   not enough. */
template <int dtype, int D, int parts = 1> struct tgi_flash_sizes {
    typedef typename tgi_stored<dtype>::type element;
    enum {
        WARPS = 16 / (int)sizeof(element) / parts,
        THREADS = 32 * WARPS,
        ROWS = 16 * WARPS * parts,
        COLUMNS = TGI_FLASH_TILE_BYTES / (D * (int)sizeof(element)),
        EACH = TGI_FLASH_COPY / (int)sizeof(element), /* elements of one copy */
        COPIES = D / EACH,                            /* of a row */
        OWN_BYTES = ROWS * D * (int)sizeof(element),
        STAGES_BYTES = 4 * TGI_FLASH_TILE_BYTES, /* two stages of two tiles */
        SUMS_BYTES = 2 * COLUMNS * (int)sizeof(float2)
    };
};

/* One operand: element [i, j] of a head is at data[head + i * row + j * col].  packs: the elements of a row are
   neighbours, and every 16 bytes of them are aligned. */
typedef struct {
    void *data;
    bool packs;
    int64_t row, col, batch[TG_MAX_DIMS];
} tgi_flash_operand;

/* tgi_attention for kernels.  sums [heads, sums_row]: for each query lse in base 2 and d, in scratch memory.

   2^x stands for exp: products q k^T times `factor` are scores in base 2.  The product is rounded once with what is
   subtracted from the score in the exponent.  Where a mask is added, or where the largest product has not the largest
   score because scale is not above 0, the scores are computed first, and factor is 1. */
typedef struct {
    int ndim;
    bool is_causal, is_bool; /* is_bool: the mask's dtype, else that of q */
    bool scores_first;
    int dim[TG_MAX_DIMS], heads;
    int queries, keys, width, value_width, sums_row;
    float scale, factor;
    tgi_flash_operand y, lse, q, k, v, mask, g, dq, dk, dv;
    float2 *sums;
} tgi_flash_job;

/* An operand's matrix of one head. */
template <class T> struct tgi_flash_matrix {
    T *data;
    int64_t row, col;
    bool packs;
};

/* The matrices of one head; T: the elements of all but lse and the mask, whose strides are bytes. */
template <class T> struct tgi_flash_head {
    tgi_flash_matrix<T> y, q, k, v, g, dq, dk, dv;
    tgi_flash_matrix<float> lse;
    tgi_flash_matrix<const uint8_t> mask;

    template <class function> __device__ void each(const tgi_flash_job &job, const function &f)
    {
        f(y, job.y), f(q, job.q), f(k, job.k), f(v, job.v), f(g, job.g), f(dq, job.dq), f(dk, job.dk), f(dv, job.dv);
        f(lse, job.lse), f(mask, job.mask);
    }
};

/* The matrices of the head with this number.  What a kernel does not use of them costs it nothing. */
template <class T> __device__ inline tgi_flash_head<T> tgi_flash_head_of(const tgi_flash_job &job, int number)
{
    tgi_flash_head<T> head;
    head.each(job, [](auto &matrix, const tgi_flash_operand &x) {
        matrix = {(decltype(matrix.data))x.data, x.row, x.col, x.packs};
    });
#pragma unroll 1
    for (int d = job.ndim - 1; d >= 0; --d) {
        const int at = (int)((unsigned)number % (unsigned)job.dim[d]);
        number = (int)((unsigned)number / (unsigned)job.dim[d]);
        head.each(job, [&](auto &matrix, const tgi_flash_operand &x) { matrix.data += at * x.batch[d]; });
    }
    return head;
}

/* A tile in shared memory is [rows, D].  The copies of 16 bytes in a row change places by the last three bits of the
   row's number: so the eight rows of a matrix, at one column, lie in different banks.  Returns where copy number `copy`
   of the row is, in elements. */
template <int dtype, int D> __device__ inline int tgi_flash_place(int row, int copy)
{
    return row * D + (copy ^ (row & 7)) * tgi_flash_sizes<dtype, D>::EACH;
}

/* Up to `each` elements of a row, the first one at `at`, with zeros behind `count` of them. */
template <int dtype, int each, class T>
__device__ inline tgi_pack<dtype, each> tgi_flash_pack_at(const T *at, const tgi_flash_matrix<T> &x, int count)
{
    tgi_pack<dtype, each> p;
    if (x.packs) return tgi_load_pack<tgi_pack<dtype, each>>(at);
#pragma unroll
    for (int e = 0; e < each; ++e) p.x[e] = e < count ? at[e * x.col] : (T)0;
    return p;
}

/* The rows of x [limit, width], of which a block loads tiles one after the other.  A thread copies to the same places
   of each tile, so that from one tile to the next only its address in x moves. */
template <int dtype, int D, int parts = 1> struct tgi_flash_rows {
    typedef tgi_flash_sizes<dtype, D, parts> sizes;
    typedef typename sizes::element T;
    typedef tgi_pack<dtype, sizes::EACH> pack;
    enum { STEP = sizes::THREADS / sizes::COPIES }; /* rows that the block copies at once */
    tgi_flash_matrix<T> x;
    const T *from; /* what this thread copies next */
    int width;

    __device__ void begin(const tgi_flash_matrix<T> &matrix, int first, int columns)
    {
        const int r = (int)(threadIdx.x / sizes::COPIES), column = (int)(threadIdx.x % sizes::COPIES) * sizes::EACH;
        x = matrix;
        from = x.data + (first + r) * x.row + column * x.col;
        width = columns;
    }

    /* Begins to load the next tile, with zeros where x has no element; x has `left` rows from there on.  All threads
       call it.  Of rows that are wider than D, each part of D columns is a tile of its own. */
    template <int rows, int tiles = 1> __device__ void load(T *tile, int left)
    {
        const int r = (int)(threadIdx.x / sizes::COPIES), copy = (int)(threadIdx.x % sizes::COPIES);
        const int place = tgi_flash_place<dtype, D>(r, copy), count = width - copy * sizes::EACH;
        const int mine = count > 0 ? left - r : 0; /* rows from this thread's first one on */
        if (x.packs) {
#pragma unroll
            for (int i = 0; i < rows; i += STEP) {
                const int to = STEP % 8 ? tgi_flash_place<dtype, D>(r + i, copy) : place + i * D; /* the same, mostly */
#pragma unroll
                for (int n = 0; n < tiles; ++n)
                    tgi_copy_async(tile + n * rows * D + to, from + i * x.row + n * D,
                                   i < mine && (n == 0 || n * D < count));
            }
        } else {
#pragma unroll 1
            for (int i = 0; i < rows * tiles; i += STEP) {
                const int n = i / rows, more = i % rows;
                const bool inside = more < mine && n * D < count;
                const T *const at = from + more * x.row + n * D * x.col;
                const pack p = inside ? tgi_flash_pack_at<dtype, sizes::EACH>(at, x, count - n * D) : pack();
                tgi_store_pack(tile + n * rows * D + tgi_flash_place<dtype, D>(r + more, copy), p);
            }
        }
        from += rows * x.row;
    }

    /* Begins to load the next tiles of this matrix and of another one, whose tile lies behind this one's. */
    template <int rows, int tiles = 1> __device__ void load_both(tgi_flash_rows &other, T *tile, int left)
    {
        load<rows, tiles>(tile, left);
        other.template load<rows, tiles>(tile + rows * tiles * D, left);
    }
};

/* ---- the products of a warp ----

   Scores and sums are spread over the lanes as c in the picture above, for f32, too: lane 4 g + t has of tile n, which
   has eight columns, x[n][2 r + e], row g + 8 r and column 8 n + 2 t + e. */
template <int dtype, int D> struct tgi_flash_products {
    enum { BF16 = dtype == TG_BF16, COLUMNS = tgi_flash_sizes<dtype, D>::COLUMNS };
    typedef uint16_t T;

    /* Copies 2 k and 2 k + 1 of a row are in the place of copies 0 and 1, but for the bits of 16 k: two copies are 16
       elements.  So a lane computes its place in the first two columns of matrices, and not in each. */

    /* s [parts, 16, COLUMNS] = a [parts, 16, D] times b [COLUMNS, D] transposed */
    template <int parts> __device__ static void scores(float (&s)[parts][COLUMNS / 8][4], const T *a, const T *b)
    {
        const int lane = (int)(threadIdx.x % 32);
        const int of_a = tgi_flash_place<dtype, D>(lane % 16, lane / 16);
        const int of_b = tgi_flash_place<dtype, D>(lane / 16 * 8 + lane % 8, lane / 8 % 2);
#pragma unroll 4
        for (int k = 0; k < D / 16; ++k) {
            uint32_t x[parts][4], y[4];
#pragma unroll
            for (int m = 0; m < parts; ++m) tgi_load_matrices(x[m], a + (of_a ^ 16 * k) + 16 * m * D);
#pragma unroll
            for (int n = 0; n < COLUMNS / 16; ++n) {
                tgi_load_matrices(y, b + (of_b ^ 16 * k) + 16 * n * D);
#pragma unroll
                for (int m = 0; m < parts; ++m) {
                    tgi_mma_16816<BF16>(s[m][2 * n], x[m], y[0], y[1]);
                    tgi_mma_16816<BF16>(s[m][2 * n + 1], x[m], y[2], y[3]);
                }
            }
        }
    }

    /* sum [parts, 16, D] += p [parts, 16, COLUMNS], rounded, times b [COLUMNS, D] */
    template <int parts>
    __device__ static void add(float (&sum)[parts][D / 8][4], const float (&p)[parts][COLUMNS / 8][4], const T *b)
    {
        const int lane = (int)(threadIdx.x % 32), of_b = tgi_flash_place<dtype, D>(lane % 16, lane / 16);
#pragma unroll
        for (int k = 0; k < COLUMNS / 16; ++k) {
            uint32_t x[parts][4], y[4];
#pragma unroll
            for (int i = 0; i < 4 * parts; ++i) {
                const float(&two)[4] = p[i / 4][2 * k + i % 4 / 2];
                x[i / 4][i % 4] = tgi_two_halves<BF16>(two[i % 2 * 2], two[i % 2 * 2 + 1]);
            }
#pragma unroll
            for (int n = 0; n < D / 16; ++n) {
                tgi_load_matrices_transposed(y, b + (of_b ^ 16 * n) + 16 * k * D);
#pragma unroll
                for (int m = 0; m < parts; ++m) {
                    tgi_mma_16816<BF16>(sum[m][2 * n], x[m], y[0], y[1]);
                    tgi_mma_16816<BF16>(sum[m][2 * n + 1], x[m], y[2], y[3]);
                }
            }
        }
    }

    __device__ static void store_two(T *to, float x, float y) { *(uint32_t *)to = tgi_two_halves<BF16>(x, y); }
};

/* f32 without tensor cores. */
template <int D> struct tgi_flash_products<TG_F32, D> {
    enum { COLUMNS = tgi_flash_sizes<TG_F32, D>::COLUMNS };
    typedef tgi_pack<TG_F32, 4> pack;

    __device__ static pack load(const float *tile, int row, int copy)
    {
        return tgi_load_pack<pack>(tile + tgi_flash_place<TG_F32, D>(row, copy));
    }

    __device__ static void scores(float (&all)[1][COLUMNS / 8][4], const float *a, const float *b)
    {
        float(&s)[COLUMNS / 8][4] = all[0];
        const int group = (int)(threadIdx.x % 32) / 4, column = (int)(threadIdx.x % 4) * 2;
#pragma unroll 128 / D
        for (int k = 0; k < D / 4; ++k) {
            const pack x[2] = {load(a, group, k), load(a, group + 8, k)};
#pragma unroll
            for (int n = 0; n < COLUMNS / 8; ++n) {
                const pack y[2] = {load(b, 8 * n + column, k), load(b, 8 * n + column + 1, k)};
#pragma unroll
                for (int e = 0; e < 16; ++e) s[n][e / 4] += x[e / 8].x[e % 4] * y[e / 4 % 2].x[e % 4];
            }
        }
    }

    /* The lanes of a row hold a pair of columns each, which they show to the others. */
    __device__ static void add(float (&sums)[1][D / 8][4], float (&of)[1][COLUMNS / 8][4], const float *b)
    {
        float(&sum)[D / 8][4] = sums[0], (&p)[COLUMNS / 8][4] = of[0];
        const int lane = (int)(threadIdx.x % 32), column = lane % 4 * 2;
#pragma unroll 1
        for (int tile = 0; tile < COLUMNS; tile += 8) {
#pragma unroll 1
            for (int pair = 0; pair < 4; ++pair) {
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    const float upper = __shfl_sync(TGI_FULL_MASK, p[0][e], lane / 4 * 4 + pair);
                    const float lower = __shfl_sync(TGI_FULL_MASK, p[0][2 + e], lane / 4 * 4 + pair);
                    const float *const row = b + (tile + 2 * pair + e) * D;
#pragma unroll
                    for (int n = 0; n < D / 8; ++n) {
                        const int copy = (2 * n + column / 4) ^ (2 * pair + e);
                        const tgi_pack<TG_F32, 2> y = tgi_load_pack<tgi_pack<TG_F32, 2>>(row + 4 * copy + column % 4);
                        sum[n][0] += upper * y.x[0], sum[n][1] += upper * y.x[1];
                        sum[n][2] += lower * y.x[0], sum[n][3] += lower * y.x[1];
                    }
                }
            }
#pragma unroll
            for (int i = 4; i < COLUMNS / 2; ++i) p[i / 4 - 1][i % 4] = p[i / 4][i % 4]; /* registers have no index */
        }
    }

    __device__ static void store_two(float *to, float x, float y) { to[0] = x, to[1] = y; }
};

/* Stores x [16, D] * scale of this warp to rows [first, first + 16) of `to` [limit, width], by way of `tile` [16, D] in
   shared memory, which only this warp uses. */
template <int dtype, int D, class T>
__device__ inline void tgi_flash_store(const tgi_flash_matrix<T> &to, const float (&x)[D / 8][4],
                                       const float (&scale)[2], T *tile, int first, int limit, int width)
{
    typedef tgi_flash_sizes<dtype, D> sizes;
    typedef tgi_pack<dtype, sizes::EACH> pack;
    const int lane = (int)(threadIdx.x % 32);
    __syncwarp(); /* other lanes may still load from the tile */
#pragma unroll
    for (int i = 0; i < D / 4; ++i) {
        const int r = i % 2, n = i / 2, column = 8 * n + lane % 4 * 2;
        T *const at = tile + tgi_flash_place<dtype, D>(lane / 4 + 8 * r, column / sizes::EACH) + column % sizes::EACH;
        tgi_flash_products<dtype, D>::store_two(at, x[n][2 * r] * scale[r], x[n][2 * r + 1] * scale[r]);
    }
    __syncwarp();
#pragma unroll 1
    for (int i = lane; i < 16 * sizes::COPIES; i += 32) {
        const int r = i / sizes::COPIES, copy = i % sizes::COPIES, column = copy * sizes::EACH;
        if (first + r >= limit || column >= width) continue;
        const pack p = tgi_load_pack<pack>(tile + tgi_flash_place<dtype, D>(r, copy));
        T *const at = to.data + (first + r) * to.row + column * to.col;
        if (to.packs) {
            tgi_store_pack(at, p);
            continue;
        }
#pragma unroll
        for (int e = 0; e < sizes::EACH; ++e) {
            if (column + e < width) at[e * to.col] = p.x[e];
        }
    }
}

/* ---- what is hidden ---- */

/* Whether one of `rows` rows sees one of `columns` columns.  In `transposed` scores the rows are keys. */
template <bool transposed>
__device__ inline bool tgi_flash_sees(const tgi_flash_job &job, int row, int rows, int column, int columns)
{
    if (row >= (transposed ? job.keys : job.queries)) return false;
    return !job.is_causal || (transposed ? row < column + columns : column < row + rows);
}

/* What is hidden because of its place becomes -inf, of the scores whose first row and column these are.  Whether there
   may be such scores in this warp's tile. */
template <bool transposed, int columns>
__device__ inline bool tgi_flash_hide(float (&s)[columns / 8][4], const tgi_flash_job &job, int row, int column)
{
    const int lane = (int)(threadIdx.x % 32), r0 = row + lane / 4, c0 = column + lane % 4 * 2;
    const int rows = transposed ? job.keys : job.queries, others = transposed ? job.queries : job.keys;
    const bool inside = row + 16 <= rows && column + columns <= others;
    const bool causal_ends = transposed ? row + 15 <= column : column + columns <= row + 1;
    if (inside && (!job.is_causal || causal_ends)) return false;
#pragma unroll
    for (int r = 0; r < 2; ++r) { /* row r0 + 8 r sees columns [from, to) */
        const int at = r0 + 8 * r, from = transposed && job.is_causal ? at : 0;
        const int to = at >= rows ? 0 : !transposed && job.is_causal ? min(at + 1, others) : others;
#pragma unroll
        for (int i = 0; i < columns / 4; ++i) {
            const int c = c0 + i / 2 * 8 + i % 2;
            if (c < from || c >= to) s[i / 2][2 * r + i % 2] = -INFINITY;
        }
    }
    return true;
}

/* Products become scores in base 2, with the mask; what it hides becomes -inf.  The mask's strides are from row to row
   and from column to column of the scores.  What is hidden already stays so, and its place in the mask is not read: it
   may be outside of the matrix. */
template <int dtype, bool transposed, int columns>
__device__ inline void tgi_flash_mask(float (&s)[columns / 8][4], const tgi_flash_job &job,
                                      const tgi_flash_matrix<const uint8_t> &mask, int row, int column)
{
    const int lane = (int)(threadIdx.x % 32), r0 = row + lane / 4, c0 = column + lane % 4 * 2;
    const int64_t down = transposed ? mask.col : mask.row, across = transposed ? mask.row : mask.col;
    const uint8_t *at = mask.data + r0 * down + c0 * across;
#pragma unroll
    for (int n = 0; n < columns / 8; ++n, at += 8 * across) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const uint8_t *const m = at + (i / 2 ? 8 * down : 0) + (i % 2 ? across : 0);
            const bool reads = mask.data && s[n][i] != -INFINITY;
            float more = 0;
            if (reads && job.is_bool) more = *m ? 0 : -INFINITY;
            if (reads && !job.is_bool) more = tgi_load_as<float>((tg_dtype)dtype, m) * TGI_LOG2_E;
            s[n][i] = s[n][i] == -INFINITY ? s[n][i] : s[n][i] * (job.scale * TGI_LOG2_E) + more;
        }
    }
}

/* ---- forward ---- */

/* Replaces s of two rows, which times factor are scores, by p = 2^(score - largest).  largest is the largest score so
   far, or less by 8 at most: p, up to 2^8 then, and its sums have the same precision.  So sum and y of the tiles before
   have to be brought to another one seldom after the first tile.  Each lane sums its own columns only. */
template <int columns, int tiles>
__device__ inline void tgi_flash_softmax(float (&s)[columns][4], float (&y)[tiles][4], float (&largest)[2],
                                         float (&sum)[2], float factor)
{
    float before[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        float now = s[0][2 * r];
#pragma unroll
        for (int i = 1; i < 2 * columns; ++i) now = fmaxf(now, s[i / 2][2 * r + i % 2]);
        now = fmaxf(now, __shfl_xor_sync(TGI_FULL_MASK, now, 1)); /* the four lanes of a row */
        now = fmaxf(now, __shfl_xor_sync(TGI_FULL_MASK, now, 2));
        now = now * factor > largest[r] + 8 ? now * factor : largest[r];
        const float shift = now > -INFINITY ? now : 0;
        before[r] = tgi_exp2(largest[r] - shift);
        largest[r] = now;
        sum[r] *= before[r];
#pragma unroll
        for (int i = 0; i < 2 * columns; ++i) {
            float &x = s[i / 2][2 * r + i % 2];
            x = tgi_exp2(fmaf(x, factor, -shift));
            sum[r] += x;
        }
    }
    if (!__any_sync(TGI_FULL_MASK, before[0] != 1 || before[1] != 1)) return;
#pragma unroll
    for (int i = 0; i < 4 * tiles; ++i) y[i / 4][i % 4] *= before[i % 4 / 2];
}

/* What a block works on: in head number `head` it owns rows [first, first + rows), which are keys with keys_own, else
   queries, and loops over tiles [begin, end) of columns.  The blocks with the most tiles to loop over come first.  With
   is_causal these are the last queries, which see the most keys, and the first keys, which the most queries see. */
struct tgi_flash_block {
    int head, first, begin, end;
};
template <bool keys_own>
__device__ inline tgi_flash_block tgi_flash_block_of(const tgi_flash_job &job, int rows, int columns)
{
    const int length = keys_own ? job.keys : job.queries, others = keys_own ? job.queries : job.keys;
    const int tiles = (length + rows - 1) / rows, number = (int)blockIdx.x % tiles;
    const int first = (keys_own ? number : tiles - 1 - number) * rows;
    const int seen = !keys_own && job.is_causal && first + rows < others ? first + rows : others;
    const int begin = keys_own && job.is_causal ? first / columns : 0; /* the queries before see none of these keys */
    return {(int)blockIdx.x / tiles, first, begin, (seen + columns - 1) / columns};
}

/* Stores lse of a lane's two rows, from their largest scores and sums of p.  sum becomes what y is multiplied by. */
__device__ inline void tgi_flash_store_lse(const tgi_flash_job &job, const tgi_flash_matrix<float> &lse, int row,
                                           const float (&largest)[2], float (&sum)[2])
{
    const int lane = (int)(threadIdx.x % 32);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int query = row + lane / 4 + 8 * r;
        sum[r] += __shfl_xor_sync(TGI_FULL_MASK, sum[r], 1);
        sum[r] += __shfl_xor_sync(TGI_FULL_MASK, sum[r], 2);
        const bool blind = sum[r] == 0; /* the mask hides all keys */
        if (lane % 4 == 0 && query < job.queries)
            lse.data[query * lse.row] = blind ? INFINITY : (largest[r] + log2f(sum[r])) / TGI_LOG2_E;
        sum[r] = blind ? 0 : 1 / sum[r];
    }
}

/* y and lse: a block for each tile of queries of each head, those that see most keys first. */
template <int dtype, int D, int parts>
static __global__ void __launch_bounds__(tgi_flash_sizes<dtype, D, parts>::THREADS, 128 / D)
    tgi_flash_forward(const tgi_flash_job job)
{
    typedef tgi_flash_sizes<dtype, D, parts> sizes;
    typedef tgi_flash_products<dtype, D> products;
    typedef typename sizes::element T;
    enum { ROWS = sizes::ROWS, COLUMNS = sizes::COLUMNS, TILE = COLUMNS * D };
    TGI_DYNAMIC_SHARED(T, shared); /* q [ROWS, D], two stages of k and v [COLUMNS, D] */
    const int warp = (int)(threadIdx.x / 32);
    const tgi_flash_block block = tgi_flash_block_of<false>(job, ROWS, COLUMNS);
    const int first = block.first, row = first + 16 * parts * warp;
    const tgi_flash_head<T> head = tgi_flash_head_of<T>(job, block.head);
    tgi_flash_rows<dtype, D, parts> q, k, v;
    T *const own = shared + 16 * parts * warp * D, *const stages = shared + ROWS * D;
    float y[parts][D / 8][4] = {}, largest[parts][2], sum[parts][2] = {};
#pragma unroll
    for (int i = 0; i < 2 * parts; ++i) largest[i / 2][i % 2] = -INFINITY;

    const auto load = [&](int j) {
        T *const to = stages + (j & 1) * (2 * TILE);
        if (j < block.end) k.template load_both<COLUMNS>(v, to, job.keys - j * COLUMNS);
        tgi_copy_async_commit();
    };
    q.begin(head.q, first, job.width);
    k.begin(head.k, 0, job.width);
    v.begin(head.v, 0, job.value_width);
    q.template load<ROWS>(shared, job.queries - first);
    for (int j = -1; j < block.end; ++j) {
        const T *const tile = stages + (j & 1) * (2 * TILE);
        load(j + 1);
        if (j < 0) continue;      /* the first turn only loads */
        tgi_copy_async_wait<1>(); /* this tile has arrived, the next one need not have */
        __syncthreads();
        if (tgi_flash_sees<false>(job, row, 16 * parts, j * COLUMNS, COLUMNS)) {
            float s[parts][COLUMNS / 8][4] = {};
            products::scores(s, own, tile);
#pragma unroll
            for (int m = 0; m < parts; ++m) {
                tgi_flash_hide<false, COLUMNS>(s[m], job, row + 16 * m, j * COLUMNS);
                if (job.scores_first)
                    tgi_flash_mask<dtype, false, COLUMNS>(s[m], job, head.mask, row + 16 * m, j * COLUMNS);
                tgi_flash_softmax(s[m], y[m], largest[m], sum[m], job.factor);
            }
            products::add(y, s, tile + TILE);
        }
        __syncthreads();
    }

#pragma unroll
    for (int m = 0; m < parts; ++m) {
        tgi_flash_store_lse(job, head.lse, row + 16 * m, largest[m], sum[m]);
        tgi_flash_store<dtype, D>(head.y, y[m], sum[m], own + 16 * m * D, row + 16 * m,
                                  job.queries, job.value_width);
    }
}

/* ---- Hopper: products of four warps, and the forward kernel with them ----

   Compute capability 9.0 has products of its own, wgmma, and only with these do its tensor cores reach their full rate.
   Four neighbouring warps, a warpgroup, compute d [64, 64] += a [64, 16] b [16, 64] together.  Warp w of the four has
   rows 16 w to 16 w + 15 of d and of a in its registers, as c and a in the picture above; so here, too, the scores,
   rounded, are a of the next product.  b lies in shared memory, and no thread loads it: a descriptor says where it is,
   in units of 16 bytes.  Bits 0 to 13 are its address; 16 to 29 the distance of blocks of 64 columns, of which there is
   one here; 32 to 45 the distance of blocks of eight rows.  Bits 62 and 63 are 1 for rows of 128 bytes in which the
   parts of 16 bytes change places by the last three bits of the row's number, which the device finds in bits 7 to 9 of
   the address: it calls that a swizzle of 128 bytes.  tgi_flash_place does so with rows of 64 elements, if the tile
   begins at a multiple of 1024 bytes.  A tile of D = 128 is therefore two tiles [rows, 64], its left and right halves.
   For the scores of the backward kernels, which have no registers left, a is in shared memory, too.

   The products run beside the threads.  A fence before the first one makes the registers ready that it uses; products
   are committed as a group, and until the wait for that group no thread may touch these registers.  They read shared
   memory in another way than loads and stores do (the asynchronous proxy): a thread that has written to it needs a
   fence of its own for that, before the barrier after which the others may read.

   These instructions exist in code for sm_90a alone, which no later GPU runs.  In code for other GPUs the kernels are
   empty and take blocks of 32 threads at most, by which tgi_hopper_ready tells them apart. */
#if defined(CUDASIM) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define TGI_HOPPER 1
#else
#define TGI_HOPPER 0
#endif
enum { TGI_HOPPER_THREADS = 256, TGI_HOPPER_ROWS = 128, TGI_HOPPER_COLUMNS = 64, TGI_HOPPER_HALF = 64 };
#define TGI_HOPPER_BOUND (TGI_HOPPER ? TGI_HOPPER_THREADS : 32)
/* Bytes of shared memory: so many own rows [own, D], and two stages of two tiles [TGI_HOPPER_COLUMNS, D]. */
#define TGI_HOPPER_BYTES(own, D) (((own) + 4 * TGI_HOPPER_COLUMNS) * (D) * 2)

#if TGI_HOPPER && !defined(CUDASIM)
#define TGI_FOUR(constraint, x) constraint((x)[0]), constraint((x)[1]), constraint((x)[2]), constraint((x)[3])
#define TGI_SIXTEEN(constraint, x)                              \
    TGI_FOUR(constraint, (x)[0]), TGI_FOUR(constraint, (x)[1]), \
    TGI_FOUR(constraint, (x)[2]), TGI_FOUR(constraint, (x)[3])
#define TGI_WGMMA(type, of_d, adds, a_b, transposed, ...)                                                             \
    asm volatile(                                                                                                     \
        "{ .reg .pred adds; setp.ne.b32 adds, " adds ", 0; wgmma.mma_async.sync.aligned.m64n64k16.f32." type "." type \
        " {%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,"\
        "%29,%30,%31}," a_b ",adds,1,1," transposed "; }"                                                             \
        : TGI_SIXTEEN(of_d, d), TGI_SIXTEEN(of_d, d + 4)                                                              \
        : __VA_ARGS__)

/* The descriptor of a tile of rows of 64 elements; to that of another place in it one adds their distance in units of
   16 bytes.  All lanes have the same; told so by the shuffle, the compiler keeps it once for the warp. */
typedef uint64_t tgi_wgmma_tile;
__device__ inline tgi_wgmma_tile tgi_wgmma_tile_of(const uint16_t *tile)
{
    const uint64_t swizzle = 1, rows = 1024 / 16, columns = 1; /* of columns there is one block */
    const uint32_t at = ((uint32_t)__cvta_generic_to_shared(tile) & 0x3ffff) / 16;
    return swizzle << 62 | rows << 32 | columns << 16 | __shfl_sync(TGI_FULL_MASK, at, 0);
}

/* Step k of a product with the tile b [64, 64]: d [64, 64] += a [64, 16] times rows [16 k, 16 k + 16) of b or, with
   transposed, times the same columns of b transposed, 32 bytes further in each row.  Without `adds` d is not read. */
template <bool bf16, bool transposed, bool adds>
__device__ inline void tgi_wgmma(float (&d)[8][4], const uint32_t (&a)[4], tgi_wgmma_tile b, int k)
{
#define TGI_WGMMA_ROWS(type, of_d, adds)                                                          \
    TGI_WGMMA(type, of_d, adds, "{%32,%33,%34,%35},%36", "%37", TGI_FOUR("r", a),                 \
              "l"(b + (uint64_t)(transposed ? 2 * k : 128 * k)), "n"((int)!transposed))
    if constexpr (bf16 && adds) TGI_WGMMA_ROWS("bf16", "+f", "1");
    else if constexpr (bf16) TGI_WGMMA_ROWS("bf16", "=f", "0");
    else if constexpr (adds) TGI_WGMMA_ROWS("f16", "+f", "1");
    else TGI_WGMMA_ROWS("f16", "=f", "0");
#undef TGI_WGMMA_ROWS
}

/* d [64, 64] += the columns [16 k, 16 k + 16) of a [64, 64] times those of b transposed; a is a tile, too. */
template <bool bf16, bool adds>
__device__ inline void tgi_wgmma_tiles(float (&d)[8][4], tgi_wgmma_tile a, tgi_wgmma_tile b, int k)
{
    const uint64_t at = 2 * (uint64_t)k;
    if constexpr (bf16 && adds) TGI_WGMMA("bf16", "+f", "1", "%32,%33", "0,0", "l"(a + at), "l"(b + at));
    else if constexpr (bf16) TGI_WGMMA("bf16", "=f", "0", "%32,%33", "0,0", "l"(a + at), "l"(b + at));
    else if constexpr (adds) TGI_WGMMA("f16", "+f", "1", "%32,%33", "0,0", "l"(a + at), "l"(b + at));
    else TGI_WGMMA("f16", "=f", "0", "%32,%33", "0,0", "l"(a + at), "l"(b + at));
}

/* The compiler may not move what writes these registers below this place, nor what reads them above it. */
__device__ inline void tgi_wgmma_pin(float (&d)[8][4])
{
    asm volatile("" : TGI_SIXTEEN("+f", d), TGI_SIXTEEN("+f", d + 4) : : "memory");
}
__device__ inline void tgi_wgmma_pin(uint32_t (&a)[4]) { asm volatile("" : TGI_FOUR("+r", a) : : "memory"); }

__device__ inline void tgi_wgmma_fence(void) { asm volatile("wgmma.fence.sync.aligned;" : : : "memory"); }
__device__ inline void tgi_wgmma_commit(void) { asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory"); }
template <int left> __device__ inline void tgi_wgmma_wait(void) /* until all groups but the last `left` are done */
{
    asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(left) : "memory");
}
__device__ inline void tgi_wgmma_shared_fence(void) { asm volatile("fence.proxy.async.shared::cta;" : : : "memory"); }
#endif

#if TGI_HOPPER
/* The products of a warpgroup; tiles are D / 64 halves [rows, 64]. */
template <int dtype, int D> struct tgi_hopper_products {
    enum {
        BF16 = dtype == TG_BF16,
        HALVES = D / TGI_HOPPER_HALF,
        HALF_TILE = TGI_HOPPER_COLUMNS * TGI_HOPPER_HALF, /* elements: of columns, of rows that the block owns */
        OWN_HALF = TGI_HOPPER_ROWS * TGI_HOPPER_HALF,
        UNIT = 8 /* elements that a descriptor counts as one */
    };
    typedef uint16_t T;

    /* Columns 64 half to 64 half + 63 of a warp's sum [16, D]. */
    __device__ static float (&half_of(float (&sum)[D / 8][4], int half))[8][4]
    {
        return *(float(*)[8][4])sum[8 * half];
    }

    typedef tgi_flash_rows<dtype, TGI_HOPPER_HALF> rows_of; /* of which load<rows, HALVES> loads both halves */

    /* A warp's fragments of q [16, D], which stay in registers from the first tile of keys to the last. */
    __device__ static void load_rows(uint32_t (&q)[D / 16][4], const T *own)
    {
        const int lane = (int)(threadIdx.x % 32);
#pragma unroll
        for (int k = 0; k < D / 16; ++k) {
            const int copy = 2 * (k % 4) + lane / 16;
            tgi_load_matrices(q[k], own + k / 4 * OWN_HALF + tgi_flash_place<dtype, TGI_HOPPER_HALF>(lane % 16, copy));
        }
    }

    /* Begins s [64, 64] = q [64, D] times b [64, D] transposed; 64 columns at a time are enough for the full rate. */
    __device__ static void scores(float (&s)[8][4], const uint32_t (&q)[D / 16][4], tgi_wgmma_tile b)
    {
        tgi_wgmma_fence();
        tgi_wgmma<BF16, true, false>(s, q[0], b, 0);
#pragma unroll
        for (int k = 1; k < D / 16; ++k) tgi_wgmma<BF16, true, true>(s, q[k], b + k / 4 * (HALF_TILE / UNIT), k % 4);
        tgi_wgmma_commit();
    }

    /* Begins s [64, 64] = a [64, D], of which `own` is the left half, times b [64, D] transposed */
    __device__ static void scores_of_tiles(float (&s)[8][4], tgi_wgmma_tile own, tgi_wgmma_tile b)
    {
        tgi_wgmma_fence();
        tgi_wgmma_tiles<BF16, false>(s, own, b, 0);
#pragma unroll
        for (int k = 1; k < D / 16; ++k)
            tgi_wgmma_tiles<BF16, true>(s, own + k / 4 * (OWN_HALF / UNIT), b + k / 4 * (HALF_TILE / UNIT), k % 4);
        tgi_wgmma_commit();
    }

    /* Begins sum [64, D] += p [64, 64], rounded, times b [64, D]. */
    __device__ static void add(float (&sum)[D / 8][4], const float (&p)[8][4], tgi_wgmma_tile b)
    {
        uint32_t x[4][4];
#pragma unroll
        for (int i = 0; i < 16; ++i) {
            const float(&tile)[4] = p[i / 2];
            x[i / 4][i % 4] = tgi_two_halves<BF16>(tile[i % 2 * 2], tile[i % 2 * 2 + 1]);
        }
#pragma unroll
        for (int k = 0; k < 4; ++k) tgi_wgmma_pin(x[k]);
#pragma unroll
        for (int h = 0; h < HALVES; ++h) tgi_wgmma_pin(half_of(sum, h));
        tgi_wgmma_fence();
#pragma unroll
        for (int i = 0; i < 4 * HALVES; ++i) {
            const int k = i / HALVES, h = i % HALVES;
            tgi_wgmma<BF16, false, true>(half_of(sum, h), x[k], b + h * (HALF_TILE / UNIT), k);
        }
        tgi_wgmma_commit();
    }

    /* Waits for all products; the sum is ready then. */
    __device__ static void wait(float (&sum)[D / 8][4])
    {
        tgi_wgmma_wait<0>();
#pragma unroll
        for (int h = 0; h < HALVES; ++h) tgi_wgmma_pin(half_of(sum, h));
    }

    /* tgi_flash_store of both halves, by way of the warp's 16 rows of `tile` [TGI_HOPPER_ROWS, D]. */
    __device__ static void store(tgi_flash_matrix<T> to, float (&x)[D / 8][4], const float (&scale)[2], T *tile,
                                 int row, int limit, int width)
    {
        T *const own = tile + (int)(threadIdx.x / 32) * (16 * TGI_HOPPER_HALF);
#pragma unroll
        for (int h = 0; h < HALVES; ++h) {
            tgi_flash_store<dtype, TGI_HOPPER_HALF>(to, half_of(x, h), scale, own + h * OWN_HALF, row, limit,
                                                    width - h * TGI_HOPPER_HALF);
            to.data += TGI_HOPPER_HALF * to.col;
        }
    }
    __device__ static void store_gradient(const tgi_flash_matrix<T> &to, float (&sum)[D / 8][4], float scale, T *tile,
                                          int row, int limit, int width)
    {
        const float scales[2] = {scale, scale};
        if (to.data) store(to, sum, scales, tile, row, limit, width);
    }
};
#endif

/* tgi_flash_sees for the 64 rows of a warpgroup, one of which is `row`: its warps multiply together or not at all. */
template <bool transposed> __device__ inline bool tgi_hopper_sees(const tgi_flash_job &job, int row, int column)
{
    const int first = row / 64 * 64;
    if (first >= (transposed ? job.keys : job.queries)) return false;
    return !job.is_causal || (transposed ? first < column + TGI_HOPPER_COLUMNS : column < first + 64);
}

/* tgi_flash_forward by such products: a block has two warpgroups of 64 queries each. */
template <int dtype, int D>
static __global__ void __launch_bounds__(TGI_HOPPER_BOUND, 128 / D) tgi_hopper_forward(const tgi_flash_job job)
{
#if TGI_HOPPER
    typedef tgi_hopper_products<dtype, D> products;
    typedef uint16_t T;
    enum { ROWS = TGI_HOPPER_ROWS, COLUMNS = TGI_HOPPER_COLUMNS, HALVES = products::HALVES };
    enum { TILE = COLUMNS * D, UNITS = TILE / products::UNIT };
    TGI_DYNAMIC_SHARED_AT(1024, T, tiles); /* q [ROWS, D], two stages of k and v [COLUMNS, D] */
    const int warp = (int)(threadIdx.x / 32);
    const tgi_flash_block block = tgi_flash_block_of<false>(job, ROWS, COLUMNS);
    const int row = block.first + 16 * warp;
    const tgi_flash_head<T> head = tgi_flash_head_of<T>(job, block.head);
    typename products::rows_of of_q, k, v;
    T *const own = tiles + 16 * warp * TGI_HOPPER_HALF, *const stages = tiles + ROWS * D;
    float y[D / 8][4] = {}, largest[2] = {-INFINITY, -INFINITY}, sum[2] = {};
    uint32_t q[D / 16][4];

    const auto load = [&](int j) {
        T *const to = stages + (j & 1) * (2 * TILE);
        if (j < block.end) k.template load_both<COLUMNS, HALVES>(v, to, job.keys - j * COLUMNS);
        tgi_copy_async_commit();
    };
    of_q.begin(head.q, block.first, job.width);
    k.begin(head.k, 0, job.width);
    v.begin(head.v, 0, job.value_width);
    of_q.template load<ROWS, HALVES>(tiles, job.queries - block.first);
    tgi_copy_async_commit();
    load(0);
    tgi_copy_async_wait<1>(); /* q has arrived */
    __syncthreads();
    products::load_rows(q, own);
    const tgi_wgmma_tile first = tgi_wgmma_tile_of(stages);
    for (int j = 0; j < block.end; ++j) {
        const tgi_wgmma_tile tile = first + (j & 1) * (2 * UNITS);
        load(j + 1);
        tgi_copy_async_wait<1>();
        tgi_wgmma_shared_fence();
        __syncthreads();
        if (tgi_hopper_sees<false>(job, row, j * COLUMNS)) {
            float s[8][4];
            products::scores(s, q, tile);
            tgi_wgmma_wait<0>();
            tgi_wgmma_pin(s);
            tgi_flash_hide<false, COLUMNS>(s, job, row, j * COLUMNS);
            if (job.scores_first) tgi_flash_mask<dtype, false, COLUMNS>(s, job, head.mask, row, j * COLUMNS);
            tgi_flash_softmax(s, y, largest, sum, job.factor);
            products::add(y, s, tile + UNITS);
            products::wait(y);
        }
        __syncthreads();
    }
    tgi_flash_store_lse(job, head.lse, row, largest, sum);
    products::store(head.y, y, sum, tiles, row, job.queries, job.value_width);
#else
    (void)job;
#endif
}

/* ---- backward ---- */

/* own: lse in base 2 and d = sum(g y) of the lane's two queries, with zeros beyond the last query; they are stored to
   the sums of this head, too.  The block's rows of g, from query `first` on, are `tiles` tiles of width D in shared
   memory, or on their way there; those of y are loaded to a place that is free again after this.  A query's four lanes
   add every fourth copy of its row each.  All threads call it. */
template <int dtype, int D, int tiles, class T>
__device__ inline void tgi_flash_make_sums(float2 (&own)[2], const tgi_flash_job &job, const tgi_flash_head<T> &head,
                                           int first, const T *g, T *y, float2 *sums)
{
    typedef tgi_flash_sizes<dtype, D> sizes;
    typedef tgi_pack<dtype, sizes::EACH> pack;
    const int lane = (int)(threadIdx.x % 32);
    tgi_flash_rows<dtype, D> rows;
    rows.begin(head.y, first, job.value_width);
    rows.template load<sizes::ROWS, tiles>(y, job.queries - first), tgi_copy_async_commit(), tgi_copy_async_wait<0>();
    __syncthreads();
#pragma unroll
    for (int r = 0; r < 2; ++r) {
        const int row = (int)(threadIdx.x / 32) * 16 + lane / 4 + 8 * r, query = first + row;
        float d = 0;
#pragma unroll
        for (int i = 0; i < tiles * sizes::COPIES; i += 4) {
            const int at = i / sizes::COPIES * (sizes::ROWS * D) +
                           tgi_flash_place<dtype, D>(row, i % sizes::COPIES + lane % 4);
            const pack of_y = tgi_load_pack<pack>(y + at), of_g = tgi_load_pack<pack>(g + at);
#pragma unroll
            for (int e = 0; e < sizes::EACH; ++e)
                d += tgi_load_as<float>((tg_dtype)dtype, &of_y.x[e]) * tgi_load_as<float>((tg_dtype)dtype, &of_g.x[e]);
        }
        d += __shfl_xor_sync(TGI_FULL_MASK, d, 1);
        d += __shfl_xor_sync(TGI_FULL_MASK, d, 2);
        own[r] = make_float2(query < job.queries ? head.lse.data[query * head.lse.row] * TGI_LOG2_E : 0, d);
        if (lane % 4 == 0) sums[query] = own[r];
    }
    __syncthreads();
}

/* Begins to load the sums of the queries of tile j to its stage, two in each copy. */
template <int columns> __device__ inline void tgi_flash_load_sums(float2 *stages, const float2 *sums, int j)
{
    const int two = 2 * (int)threadIdx.x;
    if (two < columns) tgi_copy_async(stages + (j & 1) * columns + two, sums + j * columns + two, true);
}

/* The products s become p = 2^(score - lse), and dp = g v^T becomes ds = p (dp - d).  Where a score is hidden, p and ds
   are 0, even if g or v has NaN.  of_query(i): lse and d of the query of number i of this lane. */
template <bool hides, int columns, class query>
__device__ inline void tgi_flash_gradients_where(float (&s)[columns][4], float (&dp)[columns][4], float factor,
                                                 const query &of_query)
{
#pragma unroll
    for (int i = 0; i < 4 * columns; ++i) {
        float &p = s[i / 4][i % 4], &ds = dp[i / 4][i % 4];
        const float2 lse_d = of_query(i);
        const bool hidden = hides && p == -INFINITY;
        p = hidden ? 0 : tgi_exp2(fmaf(p, factor, -lse_d.x));
        ds = hidden ? 0 : p * (ds - lse_d.y);
    }
}
template <int columns, class query> /* hides: whether there may be hidden scores in this tile */
__device__ inline void tgi_flash_score_gradients(float (&s)[columns][4], float (&dp)[columns][4], float factor,
                                                 bool hides, const query &of_query)
{
    if (hides) tgi_flash_gradients_where<true>(s, dp, factor, of_query);
    else tgi_flash_gradients_where<false>(s, dp, factor, of_query);
}

/* tgi_flash_store of the gradient sum [16, D] times scale, if it is wanted. */
template <int dtype, int D, class T>
__device__ inline void tgi_flash_store_gradient(const tgi_flash_matrix<T> &to, const float (&sum)[D / 8][4],
                                                float scale, T *tile, int row, int limit, int width)
{
    const float scales[2] = {scale, scale};
    if (to.data) tgi_flash_store<dtype, D>(to, sum, scales, tile, row, limit, width);
}

/* dq, or with keys_own dk and dv, whose scores are transposed.  The rows that a block owns are x1 and x2, the columns
   c1 and c2: with s = x1 c1^T and dp = x2 c2^T it sums ds c1 and p c2.  The kernel of dq first makes job.sums, with y
   where tiles of columns will be; where dq is not wanted, it makes nothing else. */
template <int dtype, int D, bool keys_own>
static __global__ void __launch_bounds__(tgi_flash_sizes<dtype, D>::THREADS, 1)
    tgi_flash_backward(const tgi_flash_job job)
{
    typedef tgi_flash_sizes<dtype, D> sizes;
    typedef tgi_flash_products<dtype, D> products;
    typedef typename sizes::element T;
    enum { ROWS = sizes::ROWS, COLUMNS = sizes::COLUMNS, TILE = COLUMNS * D };
    TGI_DYNAMIC_SHARED(T, shared); /* x1 and x2 [ROWS, D], two stages of c1 and c2 [COLUMNS, D], of sums [COLUMNS] */
    const int length = keys_own ? job.keys : job.queries, others = keys_own ? job.queries : job.keys;
    const int lane = (int)(threadIdx.x % 32), warp = (int)(threadIdx.x / 32);
    tgi_flash_block block = tgi_flash_block_of<keys_own>(job, ROWS, COLUMNS);
    const int first = block.first, row = first + 16 * warp;
    const tgi_flash_head<T> head = tgi_flash_head_of<T>(job, block.head);
    tgi_flash_rows<dtype, D> x1, x2, c1, c2;
    float2 *const sums = job.sums + (int64_t)block.head * job.sums_row;
    T *const own1 = shared + 16 * warp * D, *const own2 = own1 + ROWS * D, *const stages = shared + 2 * ROWS * D;
    float2 *const sums_stages = (float2 *)(stages + 4 * TILE), own_sums[2] = {};
    float sum1[1][D / 8][4] = {}, sum2[1][keys_own ? D / 8 : 1][4] = {};
    if (!keys_own && !job.dq.data) block.end = 0;

    const auto load = [&](int j) {
        T *const to = stages + (j & 1) * (2 * TILE);
        if (j < block.end) c1.template load_both<COLUMNS>(c2, to, others - j * COLUMNS);
        if (keys_own && j < block.end) tgi_flash_load_sums<COLUMNS>(sums_stages, sums, j);
        tgi_copy_async_commit();
    };
    c1.begin(keys_own ? head.q : head.k, block.begin * COLUMNS, job.width);
    c2.begin(keys_own ? head.g : head.v, block.begin * COLUMNS, job.value_width);
    x1.begin(keys_own ? head.k : head.q, first, job.width);
    x2.begin(keys_own ? head.v : head.g, first, job.value_width);
    x1.template load_both<ROWS>(x2, shared, length - first), tgi_copy_async_commit();
    if constexpr (!keys_own)
        tgi_flash_make_sums<dtype, D, 1>(own_sums, job, head, first, shared + ROWS * D, stages, sums);
    load(block.begin);
    for (int j = block.begin; j < block.end; ++j) {
        const T *const tile = stages + (j & 1) * (2 * TILE);
        load(j + 1);
        tgi_copy_async_wait<1>();
        __syncthreads();
        if (tgi_flash_sees<keys_own>(job, row, 16, j * COLUMNS, COLUMNS)) {
            float s[1][COLUMNS / 8][4] = {}, dp[1][COLUMNS / 8][4] = {};
            products::scores(s, own1, tile);
            const bool hides = tgi_flash_hide<keys_own, COLUMNS>(s[0], job, row, j * COLUMNS);
            if (job.scores_first) tgi_flash_mask<dtype, keys_own, COLUMNS>(s[0], job, head.mask, row, j * COLUMNS);
            products::scores(dp, own2, tile + TILE);
            const auto of_query = [&](int i) {
                return keys_own ? sums_stages[(j & 1) * COLUMNS + i / 4 * 8 + lane % 4 * 2 + i % 2]
                                : own_sums[i % 4 / 2];
            };
            tgi_flash_score_gradients(s[0], dp[0], job.factor, hides || job.scores_first, of_query);
            if constexpr (keys_own) products::add(sum2, s, tile + TILE);
            products::add(sum1, dp, tile);
        }
        __syncthreads();
    }
    tgi_copy_async_wait<0>(); /* for x1 and x2, where no query sees these keys */
    __syncthreads();
    tgi_flash_store_gradient<dtype, D>(keys_own ? head.dk : head.dq, sum1[0], job.scale, own1, row, length, job.width);
    if constexpr (keys_own)
        tgi_flash_store_gradient<dtype, D>(head.dv, sum2[0], 1, own2, row, length, job.value_width);
}

#if TGI_HOPPER
/* The tile of columns from `column` on: s becomes p and dp ds.  lse and d of the queries are `of_columns` [64], if the
   rows are keys, or else those of the lane's two rows.  own and tile: x1 and c1, with x2 and c2 behind them. */
template <int dtype, int D, bool keys_own>
__device__ inline void tgi_hopper_gradients(float (&s)[8][4], float (&dp)[8][4], const tgi_flash_job &job,
                                            const tgi_flash_matrix<const uint8_t> &mask, tgi_wgmma_tile own,
                                            tgi_wgmma_tile tile, int row, int column, const float2 *of_columns,
                                            const float2 (&of_rows)[2])
{
    typedef tgi_hopper_products<dtype, D> products;
    const int lane = (int)(threadIdx.x % 32);
    products::scores_of_tiles(s, own, tile);
    products::scores_of_tiles(dp, own + TGI_HOPPER_ROWS * D / products::UNIT,
                              tile + TGI_HOPPER_COLUMNS * D / products::UNIT);
    tgi_wgmma_wait<1>(); /* for s, which gets its mask while dp is computed */
    tgi_wgmma_pin(s);
    const bool hides = tgi_flash_hide<keys_own, TGI_HOPPER_COLUMNS>(s, job, row, column);
    if (job.scores_first) tgi_flash_mask<dtype, keys_own, TGI_HOPPER_COLUMNS>(s, job, mask, row, column);
    tgi_wgmma_wait<0>();
    tgi_wgmma_pin(dp);
    tgi_flash_score_gradients(s, dp, job.factor, hides || job.scores_first, [&](int i) {
        return keys_own ? of_columns[i / 4 * 8 + lane % 4 * 2 + i % 2] : of_rows[i % 4 / 2];
    });
}
#endif

/* tgi_flash_backward by products of warpgroups. */
template <int dtype, int D, bool keys_own>
static __global__ void __launch_bounds__(TGI_HOPPER_BOUND) tgi_hopper_backward(const tgi_flash_job job)
{
#if TGI_HOPPER
    typedef tgi_hopper_products<dtype, D> products;
    typedef uint16_t T;
    enum { ROWS = TGI_HOPPER_ROWS, COLUMNS = TGI_HOPPER_COLUMNS, HALVES = products::HALVES };
    enum { TILE = COLUMNS * D, UNITS = TILE / products::UNIT };
    TGI_DYNAMIC_SHARED_AT(1024, T, tiles); /* x1, x2 [ROWS, D], two stages of c1, c2 [COLUMNS, D], of sums [COLUMNS] */
    const int length = keys_own ? job.keys : job.queries, others = keys_own ? job.queries : job.keys;
    tgi_flash_block block = tgi_flash_block_of<keys_own>(job, ROWS, COLUMNS);
    const int warp = (int)(threadIdx.x / 32), row = block.first + 16 * warp;
    const tgi_flash_head<T> head = tgi_flash_head_of<T>(job, block.head);
    typename products::rows_of x1, x2, c1, c2;
    float2 *const sums = job.sums + (int64_t)block.head * job.sums_row;
    T *const stages = tiles + 2 * ROWS * D;
    float2 *const sums_stages = (float2 *)(stages + 4 * TILE), own_sums[2] = {};
    float sum1[D / 8][4] = {}, sum2[keys_own ? D / 8 : 1][4] = {};
    if (!keys_own && !job.dq.data) block.end = 0;

    const auto load = [&](int j) {
        T *const to = stages + (j & 1) * (2 * TILE);
        if (j < block.end) c1.template load_both<COLUMNS, HALVES>(c2, to, others - j * COLUMNS);
        if (keys_own && j < block.end) tgi_flash_load_sums<COLUMNS>(sums_stages, sums, j);
        tgi_copy_async_commit();
    };
    x1.begin(keys_own ? head.k : head.q, block.first, job.width);
    x2.begin(keys_own ? head.v : head.g, block.first, job.value_width);
    x1.template load_both<ROWS, HALVES>(x2, tiles, length - block.first);
    c1.begin(keys_own ? head.q : head.k, block.begin * COLUMNS, job.width);
    c2.begin(keys_own ? head.g : head.v, block.begin * COLUMNS, job.value_width);
    load(block.begin);
    if constexpr (!keys_own) /* y goes to the other stage */
        tgi_flash_make_sums<dtype, TGI_HOPPER_HALF, HALVES>(own_sums, job, head, block.first, tiles + ROWS * D,
                                                            stages + 2 * TILE, sums);
    const tgi_wgmma_tile own = tgi_wgmma_tile_of(tiles + warp / 4 * (64 * TGI_HOPPER_HALF));
    const tgi_wgmma_tile first = tgi_wgmma_tile_of(stages);
    for (int j = block.begin; j < block.end; ++j) {
        const tgi_wgmma_tile tile = first + (j & 1) * (2 * UNITS);
        load(j + 1);
        tgi_copy_async_wait<1>();
        tgi_wgmma_shared_fence();
        __syncthreads();
        if (tgi_hopper_sees<keys_own>(job, row, j * COLUMNS)) {
            float s[8][4], dp[8][4];
            tgi_hopper_gradients<dtype, D, keys_own>(s, dp, job, head.mask, own, tile, row, j * COLUMNS,
                                                     sums_stages + (j & 1) * COLUMNS, own_sums);
            if constexpr (keys_own) products::add(sum2, s, tile + UNITS);
            products::add(sum1, dp, tile);
            if constexpr (keys_own) products::wait(sum2);
            products::wait(sum1);
        }
        __syncthreads();
    }
    tgi_copy_async_wait<0>(); /* for x1 and x2, where no query sees these keys */
    __syncthreads();
    products::store_gradient(keys_own ? head.dk : head.dq, sum1, job.scale, tiles, row, length, job.width);
    if constexpr (keys_own) products::store_gradient(head.dv, sum2, 1, tiles + ROWS * D, row, length, job.value_width);
#else
    (void)job;
#endif
}

/* ---- what the host does ---- */

static tgi_flash_operand tgi_flash_operand_of(const tgi_attention *a, const tgi_operand *x, int64_t width, int64_t unit)
{
    const int64_t each = TGI_FLASH_COPY / tgi_bytes_of(x->dtype);
    tgi_flash_operand y = {};
    if (!x->data) return y;
    y.data = x->data;
    y.row = x->stride[a->ndim] * unit;
    y.col = x->stride[a->ndim + 1] * unit;
    y.packs = (uintptr_t)x->data % TGI_FLASH_COPY == 0 && y.col == 1 && y.row % each == 0 && width % each == 0;
    for (int d = 0; d < a->ndim; ++d) {
        y.batch[d] = x->stride[d] * unit;
        y.packs = y.packs && y.batch[d] % each == 0;
    }
    return y;
}

static tgi_flash_job tgi_flash_job_of(const tgi_attention *a)
{
    tgi_flash_job job = {};
    job.ndim = a->ndim;
    job.is_causal = a->is_causal;
    job.is_bool = a->mask.dtype == TG_BOOL;
    job.heads = 1;
    for (int d = 0; d < a->ndim; ++d) job.dim[d] = (int)a->dim[d], job.heads *= (int)a->dim[d];
    job.queries = (int)a->queries, job.keys = (int)a->keys;
    job.width = (int)a->width, job.value_width = (int)a->value_width;
    job.scale = (float)a->scale;
    job.scores_first = a->mask.data || !(job.scale > 0);
    job.factor = job.scores_first ? 1 : job.scale * TGI_LOG2_E;
    job.g = tgi_flash_operand_of(a, &a->g, a->value_width, 1);
    job.dq = tgi_flash_operand_of(a, &a->dq, a->width, 1);
    job.dk = tgi_flash_operand_of(a, &a->dk, a->width, 1);
    job.dv = tgi_flash_operand_of(a, &a->dv, a->value_width, 1);
    job.y = tgi_flash_operand_of(a, &a->y, a->value_width, 1);
    job.lse = tgi_flash_operand_of(a, &a->lse, 1, 1);
    job.q = tgi_flash_operand_of(a, &a->q, a->width, 1);
    job.k = tgi_flash_operand_of(a, &a->k, a->width, 1);
    job.v = tgi_flash_operand_of(a, &a->v, a->value_width, 1);
    if (a->mask.data) job.mask = tgi_flash_operand_of(a, &a->mask, a->keys, tgi_bytes_of(a->mask.dtype));
    return job;
}

/* Whether the kernel can run with this much dynamic shared memory: TGI_COMPOSE where it was compiled for a device that
   is too old.  More than 48 KB must be asked for. */
static tgi_answer tgi_flash_ready(tgi_thread *S, void (*kernel)(const tgi_flash_job), int bytes)
{
    cudaFuncAttributes found;
    if (!TGI_CUDA(cudaFuncGetAttributes(&found, kernel))) return TGI_FAILED;
    if (found.ptxVersion < TGI_FLASH_PTX) return TGI_COMPOSE;
    const bool ready = bytes <= found.maxDynamicSharedSizeBytes ||
                       TGI_CUDA(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
    return ready ? TGI_DONE : TGI_FAILED;
}

/* Launches a kernel with a block for each tile of `rows` rows of `length`, in each head. */
static bool tgi_flash_launch(tgi_thread *S, const tgi_cuda_device *d, void (*kernel)(const tgi_flash_job), int length,
                             int rows, int threads, int bytes, const tgi_flash_job &job)
{
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3((unsigned)job.heads * (unsigned)((length + rows - 1) / rows));
    config.blockDim = dim3((unsigned)threads);
    config.dynamicSmemBytes = (size_t)bytes;
    config.stream = d->stream;
    return TGI_CUDA(cudaLaunchKernelEx(&config, kernel, job));
}

/* As tgi_flash_ready: TGI_COMPOSE also where the kernel is an empty one, in code that is not for sm_90a. */
static tgi_answer tgi_hopper_ready(tgi_thread *S, void (*kernel)(const tgi_flash_job), int bytes)
{
    cudaFuncAttributes found;
    if (!TGI_CUDA(cudaFuncGetAttributes(&found, kernel))) return TGI_FAILED;
    if (found.binaryVersion != 90 || found.maxThreadsPerBlock < TGI_HOPPER_THREADS) return TGI_COMPOSE;
    return tgi_flash_ready(S, kernel, bytes);
}

template <int dtype, int D> static tgi_answer tgi_hopper_forward_run(tgi_thread *S, const tgi_attention *a)
{
    const int bytes = TGI_HOPPER_BYTES(TGI_HOPPER_ROWS, D);
    const tgi_cuda_device *d = tgi_device_for(S, a->q.index);
    const tgi_answer answer = d ? tgi_hopper_ready(S, tgi_hopper_forward<dtype, D>, bytes) : TGI_FAILED;
    if (answer != TGI_DONE) return answer;
    return tgi_flash_launch(S, d, tgi_hopper_forward<dtype, D>, (int)a->queries, TGI_HOPPER_ROWS, TGI_HOPPER_THREADS,
                            bytes, tgi_flash_job_of(a))
               ? TGI_DONE
               : TGI_FAILED;
}

template <int dtype, int D> static tgi_answer tgi_flash_forward_run(tgi_thread *S, const tgi_attention *a)
{
    if constexpr (dtype != TG_F32) {
        const tgi_answer done = tgi_hopper_forward_run<dtype, D>(S, a);
        if (done != TGI_COMPOSE) return done;
    }
    constexpr int parts = dtype == TG_F32 || D > 64 ? 1 : 2;
    typedef tgi_flash_sizes<dtype, D, parts> sizes;
    const int bytes = sizes::OWN_BYTES + sizes::STAGES_BYTES;
    const tgi_cuda_device *d = tgi_device_for(S, a->q.index);
    const tgi_answer answer = d ? tgi_flash_ready(S, tgi_flash_forward<dtype, D, parts>, bytes) : TGI_FAILED;
    if (answer != TGI_DONE) return answer;
    return tgi_flash_launch(S, d, tgi_flash_forward<dtype, D, parts>, (int)a->queries, sizes::ROWS, sizes::THREADS,
                            bytes, tgi_flash_job_of(a))
               ? TGI_DONE
               : TGI_FAILED;
}

/* dq with the sums of all queries, then dk and dv. */
template <int dtype, int D> static tgi_answer tgi_flash_backward_run(tgi_thread *S, const tgi_attention *a)
{
    typedef tgi_flash_sizes<dtype, D> sizes;
    void (*of_queries)(const tgi_flash_job) = tgi_flash_backward<dtype, D, false>;
    void (*of_keys)(const tgi_flash_job) = tgi_flash_backward<dtype, D, true>;
    int bytes = 2 * sizes::OWN_BYTES + sizes::STAGES_BYTES + sizes::SUMS_BYTES;
    tgi_cuda_device *d = tgi_device_for(S, a->q.index);
    tgi_answer answer = d ? TGI_DONE : TGI_FAILED;
    if constexpr (dtype != TG_F32) {
        const int sums_bytes = 2 * TGI_HOPPER_COLUMNS * (int)sizeof(float2);
        const int hopper_bytes = TGI_HOPPER_BYTES(2 * TGI_HOPPER_ROWS, D) + sums_bytes;
        if (d) answer = tgi_hopper_ready(S, tgi_hopper_backward<dtype, D, true>, hopper_bytes);
        if (answer == TGI_DONE) {
            of_queries = tgi_hopper_backward<dtype, D, false>;
            of_keys = tgi_hopper_backward<dtype, D, true>;
            bytes = hopper_bytes; /* rows and threads of a block are the same in both */
        }
    }
    if (answer != TGI_FAILED) answer = tgi_flash_ready(S, of_queries, bytes);
    if (answer == TGI_DONE) answer = tgi_flash_ready(S, of_keys, bytes);
    if (answer != TGI_DONE) return answer;
    tgi_flash_job job = tgi_flash_job_of(a);
    job.sums_row = (job.queries + TGI_FLASH_SUMS - 1) / TGI_FLASH_SUMS * TGI_FLASH_SUMS;
    job.sums = (float2 *)tgi_scratch_alloc(S, d, "scaled_dot_product_attention",
                                           (int64_t)job.heads * job.sums_row, sizeof(float2));
    if (!job.sums) return TGI_FAILED;
    const int rows = sizes::ROWS, threads = sizes::THREADS;
    bool ok = tgi_flash_launch(S, d, of_queries, job.queries, rows, threads, bytes, job);
    if (ok && (a->dk.data || a->dv.data))
        ok = tgi_flash_launch(S, d, of_keys, job.keys, rows, threads, bytes, job);
    tgi_cuda_release(S, d->index, job.sums, 0);
    return ok ? TGI_DONE : TGI_FAILED;
}

/* Whether the kernels are for this call: a dtype and widths that they have, and numbers of rows and blocks that an int
   holds. */
static bool tgi_flash_takes(const tgi_attention *a)
{
    double blocks = (double)(a->queries + a->keys) / 64 + 2;
    for (int d = 0; d < a->ndim; ++d) blocks *= (double)a->dim[d];
    return a->q.dtype != TG_F64 && a->width <= 128 && a->value_width <= 128 && a->queries + a->keys < 1 << 30 &&
           blocks < INT_MAX;
}

/* forward or backward of D = 64, if both widths are at most that, else of D = 128. */
template <int dtype> static tgi_answer tgi_flash_run(tgi_thread *S, const tgi_attention *a, bool backward)
{
    const bool wide = a->width > 64 || a->value_width > 64;
    if (backward) return wide ? tgi_flash_backward_run<dtype, 128>(S, a) : tgi_flash_backward_run<dtype, 64>(S, a);
    return wide ? tgi_flash_forward_run<dtype, 128>(S, a) : tgi_flash_forward_run<dtype, 64>(S, a);
}

static tgi_answer tgi_flash_choose(tgi_thread *S, const tgi_attention *a, bool backward)
{
    if (!tgi_flash_takes(a)) return TGI_COMPOSE;
    return a->q.dtype == TG_F32    ? tgi_flash_run<TG_F32>(S, a, backward)
           : a->q.dtype == TG_BF16 ? tgi_flash_run<TG_BF16>(S, a, backward)
                                   : tgi_flash_run<TG_F16>(S, a, backward);
}

static tgi_answer tgi_cuda_attention(tgi_thread *S, const tgi_attention *a) { return tgi_flash_choose(S, a, false); }

static tgi_answer tgi_cuda_attention_backward(tgi_thread *S, const tgi_attention *a)
{
    return tgi_flash_choose(S, a, true);
}

/* ======== @@LAYERS ================================================================================================ */

/* One thread per pack of `width` neighbours of one row of c, next, h [rows, n].  In a row of from_x, from_h and act
   [rows, 4 n], the four gates i f g o of element k are k, n + k, 2 n + k and 3 n + k.  See tgi_lstm_cell. */
template <int width> __global__ void tgi_lstm_cell_packs(tgi_lstm_cell cell)
{
    typedef tgi_pack<TG_F32, width> pack;
    const int64_t packs = cell.n / width;
    for (int64_t i = tgi_grid_thread(); i < cell.rows * packs; i += tgi_grid_size()) {
        const int64_t at = i * width, first = at + i / packs * 3 * cell.n;
        pack gate[4], h[4], c = tgi_load_pack<pack>(cell.c + at), next, y;
#pragma unroll
        for (int part = 0; part < 4; ++part) {
            gate[part] = tgi_load_pack<pack>(cell.from_x + first + part * cell.n);
            h[part] = tgi_load_pack<pack>(cell.from_h + first + part * cell.n);
        }
#pragma unroll
        for (int e = 0; e < width; ++e) {
            typedef float real;
#pragma unroll
            for (int part = 0; part < 4; ++part) {
                const float x = gate[part].x[e] + h[part].x[e];
                gate[part].x[e] = part == 2 ? tgi_tanh(x) : tgi_sigmoid(x);
            }
            next.x[e] = gate[1].x[e] * c.x[e] + gate[0].x[e] * gate[2].x[e];
            y.x[e] = gate[3].x[e] * tgi_tanh(next.x[e]);
        }
#pragma unroll
        for (int part = 0; part < 4; ++part) tgi_store_pack(cell.act + first + part * cell.n, gate[part]);
        tgi_store_pack(cell.next + at, next);
        tgi_store_pack(cell.h + at, y);
    }
}

/* Backward, likewise: gh, gnext, dc [rows, n], dgates [rows, 4 n]. */
template <int width> __global__ void tgi_lstm_backward_packs(tgi_lstm_cell cell)
{
    typedef tgi_pack<TG_F32, width> pack;
    const int64_t packs = cell.n / width;
    for (int64_t i = tgi_grid_thread(); i < cell.rows * packs; i += tgi_grid_size()) {
        const int64_t at = i * width, first = at + i / packs * 3 * cell.n;
        pack gate[4], c = tgi_load_pack<pack>(cell.c + at), next = tgi_load_pack<pack>(cell.next + at);
        const pack gh = tgi_load_pack<pack>(cell.gh + at), gnext = tgi_load_pack<pack>(cell.gnext + at);
#pragma unroll
        for (int part = 0; part < 4; ++part) gate[part] = tgi_load_pack<pack>(cell.act + first + part * cell.n);
#pragma unroll
        for (int k = 0; k < width; ++k) {
            typedef float real;
            const float in = gate[0].x[k], f = gate[1].x[k], g = gate[2].x[k], o = gate[3].x[k];
            const float t = tgi_tanh(next.x[k]), dnext = gnext.x[k] + gh.x[k] * o * (1 - t * t);
            gate[0].x[k] = dnext * g * (in * (1 - in));
            gate[1].x[k] = dnext * c.x[k] * (f * (1 - f));
            gate[2].x[k] = dnext * in * (1 - g * g);
            gate[3].x[k] = gh.x[k] * t * (o * (1 - o));
            c.x[k] = dnext * f;
        }
#pragma unroll
        for (int part = 0; part < 4; ++part) tgi_store_pack(cell.dgates + first + part * cell.n, gate[part]);
        tgi_store_pack(cell.dc + at, c);
    }
}

/* `places` are the addresses of all operands, or'ed. */
static tgi_answer tgi_lstm_run(tgi_thread *S, const tgi_lstm_cell *cell, uintptr_t places, void (*one)(tgi_lstm_cell),
                               void (*four)(tgi_lstm_cell))
{
    const tgi_cuda_device *d = tgi_device_for(S, cell->index);
    const bool packed = cell->n % 4 == 0 && places % TGI_PACK_BYTES == 0;
    const int64_t threads = cell->rows * cell->n / (packed ? 4 : 1);
    return d && tgi_launch_each(S, d, packed ? four : one, threads, *cell) ? TGI_DONE : TGI_FAILED;
}

static tgi_answer tgi_cuda_lstm_cell(tgi_thread *S, const tgi_lstm_cell *cell)
{
    const uintptr_t in = (uintptr_t)cell->from_x | (uintptr_t)cell->from_h | (uintptr_t)cell->c;
    const uintptr_t out = (uintptr_t)cell->act | (uintptr_t)cell->next | (uintptr_t)cell->h;
    return tgi_lstm_run(S, cell, in | out, tgi_lstm_cell_packs<1>, tgi_lstm_cell_packs<4>);
}

static tgi_answer tgi_cuda_lstm_cell_backward(tgi_thread *S, const tgi_lstm_cell *cell)
{
    const uintptr_t in = (uintptr_t)cell->act | (uintptr_t)cell->next | (uintptr_t)cell->c | (uintptr_t)cell->gh |
                         (uintptr_t)cell->gnext;
    return tgi_lstm_run(S, cell, in | (uintptr_t)cell->dgates | (uintptr_t)cell->dc, tgi_lstm_backward_packs<1>,
                        tgi_lstm_backward_packs<4>);
}

/* ======== @@CONV ================================================================================================== */

/* There is no kernel for the whole of it: the caller composes it of im2col, a product and col2im. */
static tgi_answer tgi_cuda_convolution(tgi_thread *, const tgi_convolution *) { return TGI_COMPOSE; }

/* columns [channels, kernel.., images, windows..]: one thread per channel, image and window, for all taps.
   Neighbouring threads have neighbouring windows, and so do the elements that they write. */
template <class word> __global__ void tgi_im2col_windows(tgi_im2col m)
{
    const int64_t row = m.images * m.windows[0] * m.windows[1] * m.windows[2]; /* of columns, for one tap */
    const int64_t taps = m.kernel[0] * m.kernel[1] * m.kernel[2];
    for (int64_t i = tgi_grid_thread(); i < m.channels * row; i += tgi_grid_size()) {
        int64_t rest = i;
        const int64_t x2 = tgi_pop_index(&rest, m.windows[2]) * m.stride[2] - m.before[2];
        const int64_t x1 = tgi_pop_index(&rest, m.windows[1]) * m.stride[1] - m.before[1];
        const int64_t x0 = tgi_pop_index(&rest, m.windows[0]) * m.stride[0] - m.before[0];
        const int64_t n = tgi_pop_index(&rest, m.images), channel = rest;
        const word *const image =
            (const word *)m.image.data + n * m.image.stride[0] + channel * m.image.stride[1];
        word *to = (word *)m.columns.data + channel * taps * row + i - channel * row;
        for (int64_t k0 = 0, y0 = x0; k0 < m.kernel[0]; ++k0, y0 += m.dilation[0]) {
            for (int64_t k1 = 0, y1 = x1; k1 < m.kernel[1]; ++k1, y1 += m.dilation[1]) {
                const bool inside = y0 >= 0 && y0 < m.size[0] && y1 >= 0 && y1 < m.size[1];
                const word *const line = image + y0 * m.image.stride[2] + y1 * m.image.stride[3];
                for (int64_t k2 = 0, y2 = x2; k2 < m.kernel[2]; ++k2, y2 += m.dilation[2], to += row)
                    *to = inside && y2 >= 0 && y2 < m.size[2] ? line[y2 * m.image.stride[4]] : (word)0;
            }
        }
    }
}

static bool tgi_cuda_im2col(tgi_thread *S, const tgi_im2col *m)
{
    const tgi_cuda_device *d = tgi_device_for(S, m->image.index);
    const int64_t items = m->channels * m->images * m->windows[0] * m->windows[1] * m->windows[2];
    const int64_t size = tgi_bytes_of(m->image.dtype);
    return d && tgi_launch_each(S, d,
                                size == 1   ? tgi_im2col_windows<uint8_t>
                                : size == 2 ? tgi_im2col_windows<uint16_t>
                                : size == 4 ? tgi_im2col_windows<uint32_t>
                                            : tgi_im2col_windows<uint64_t>,
                                items, *m);
}

/* tgi_window_of, with a division in 32 bits where that does. */
__device__ inline int64_t tgi_tap_window(const tgi_im2col &m, int d, int64_t element, int64_t tap)
{
    int64_t window = element + m.before[d] - tap * m.dilation[d];
    if (window < 0 || (m.stride[d] > 1 && tgi_pop_index(&window, m.stride[d]) != 0)) return -1;
    return window < m.windows[d] ? window : -1;
}

/* image [images, channels, size..]: one thread per element, which sums what columns have for it, tap by tap. */
template <int dtype> __global__ void tgi_col2im_elements(tgi_im2col m)
{
    typedef typename tgi_stored<dtype>::type stored;
    typedef typename tgi_computed<dtype>::type real;
    const int64_t numel = m.size[0] * m.size[1] * m.size[2] * m.channels * m.images;
    for (int64_t i = tgi_grid_thread(); i < numel; i += tgi_grid_size()) {
        int64_t rest = i;
        const int64_t x2 = tgi_pop_index(&rest, m.size[2]), x1 = tgi_pop_index(&rest, m.size[1]);
        const int64_t x0 = tgi_pop_index(&rest, m.size[0]), channel = tgi_pop_index(&rest, m.channels), n = rest;
        real sum = 0;
        for (int64_t k0 = 0; k0 < m.kernel[0]; ++k0) {
            const int64_t w0 = tgi_tap_window(m, 0, x0, k0);
            for (int64_t k1 = 0; w0 >= 0 && k1 < m.kernel[1]; ++k1) {
                const int64_t w1 = tgi_tap_window(m, 1, x1, k1);
                for (int64_t k2 = 0; w1 >= 0 && k2 < m.kernel[2]; ++k2) {
                    const int64_t w2 = tgi_tap_window(m, 2, x2, k2);
                    if (w2 < 0) continue;
                    int64_t at = ((channel * m.kernel[0] + k0) * m.kernel[1] + k1) * m.kernel[2] + k2;
                    at = (((at * m.images + n) * m.windows[0] + w0) * m.windows[1] + w1) * m.windows[2] + w2;
                    const real x = tgi_load_as<real>((tg_dtype)dtype, (const stored *)m.columns.data + at);
                    sum = tgi_formula<TGI_OP_add, real>::of(sum, x, 0, 0, 0);
                }
            }
        }
        const int64_t to = n * m.image.stride[0] + channel * m.image.stride[1] + x0 * m.image.stride[2] +
                           x1 * m.image.stride[3] + x2 * m.image.stride[4];
        tgi_store_as((tg_dtype)dtype, (stored *)m.image.data + to, sum);
    }
}

static bool tgi_cuda_col2im(tgi_thread *S, const tgi_im2col *m)
{
    const tgi_cuda_device *d = tgi_device_for(S, m->image.index);
#define TGI_COL2IM(name, ...) tgi_col2im_elements<TGI_AS_##name == TGI_AS_b8 ? TGI_AS_u8 : TGI_AS_##name>,
    void (*const kernels[])(tgi_im2col) = {TGI_ELEMENTS(TGI_COL2IM)};
    const int64_t numel = m->images * m->channels * m->size[0] * m->size[1] * m->size[2];
    return d && tgi_launch_each(S, d, kernels[m->image.dtype], numel, *m);
}

/* ======== @@LINALG ================================================================================================ */

#ifndef TG_NO_LINALG
/* The functions of the room FACTOR, with one warp per matrix; room: memory for each warp of the grid, of `each`
   doubles. */
static __global__ void tgi_factor_matrices(tgi_factor f, double *room, int64_t each)
{
    const int64_t warp = tgi_grid_thread() / 32;
    for (int64_t i = warp; i < f.batches; i += tgi_grid_size() / 32) {
        const int64_t info = tgi_factor_one(&f, NULL, i, room + warp * each);
        if (threadIdx.x % 32 == 0) f.info[i] = (int32_t)info;
        __syncwarp(); /* before the memory is used again */
    }
}

#endif

static bool tgi_cuda_factor(tgi_thread *S, const tgi_factor *f)
{
#ifdef TG_NO_LINALG
    return tgi_host_api.fail(S, TG_ERR_UNSUPPORTED, "linalg",
                             "kind %d: tensorgrad_cuda.o was compiled with TG_NO_LINALG", f->kind);
#else
    enum { WARPS = 2048, MOST = 1 << 25 }; /* and as many doubles, unless one matrix needs more */
    tgi_cuda_device *const d = tgi_device_for(S, f->index);
    const int64_t each = (int64_t)tgi_factor_room(f);
    if (!d) return false;
    if (!each) {
        return tgi_host_api.no_memory(S, "linalg", TG_DEV_CUDA, d->index, (double)f->m * (double)f->n * sizeof(double),
                                      tgi_cuda_cached(S, d->index));
    }
    const int64_t fit = each < MOST ? MOST / each : 1, warps = tgi_at_most(f->batches, tgi_at_most(fit, WARPS));
    double *const room = (double *)tgi_scratch_alloc(S, d, "linalg", warps * each, sizeof(double));
    if (!room) return false;
    const bool ok = tgi_launch(S, d, tgi_factor_matrices, warps, 32, *f, room, each);
    tgi_cuda_release(S, d->index, room, 0);
    return ok;
#endif
}

/* ======== @@SAMPLE ================================================================================================ */

/* out [n], contiguous, of any kind and dtype.  One thread per counter of Philox, whose four words make `per`
   elements: the same words and formulas as on the CPU.  lo, hi: see tgi_random. */
static __global__ void tgi_random_elements(tgi_random kind, tgi_operand out, int64_t n, double lo, double hi,
                                           tgi_device_rng state)
{
    const tg_rng rng = tgi_rng_now(state);
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

/* The words of a pack of elements that take one each, element `first` of the call being the pack's first: as many
   counters as it needs. */
template <int width> __device__ inline void tgi_random_words_of(tg_rng rng, uint64_t first, uint32_t (&word)[width])
{
#pragma unroll
    for (int k = 0; k < width; k += 4) tgi_random_block(rng, (first + (uint64_t)k) / 4, *(uint32_t(*)[4])(word + k));
}

/* One element from a word, in f32, for the three kinds whose numbers are exact in f32 or made in it: the same bits
   as in tgi_random_elements.  most: the largest word of a 1. */
template <int kind, int dtype>
__device__ inline float tgi_random_element(uint32_t word, float a, float b, uint32_t most)
{
    if constexpr (kind == TGI_NORMAL) return tgi_random_normal_f32(word, a, b);
    if constexpr (kind == TGI_BERNOULLI) return word <= most ? 1.0f : 0.0f;
    const int bits = dtype == TG_BF16 ? 8 : dtype == TG_F16 ? 11 : 24; /* see tgi_random_fraction */
    return fmaf((float)(word >> (32 - bits)) * (1.0f / (float)(1 << bits)), b, a);
}

/* out [n] of such a kind in f32, bf16 or f16, one thread per pack of 16 bytes.  a, b: the mean and the deviation, or
   the least number and the range; a uniform number that is rounded up to `end` becomes a. */
template <int kind, int dtype>
__global__ void tgi_random_packs(void *out, int64_t n, float a, float b, float end, uint32_t most, tgi_device_rng state)
{
    const tg_rng rng = tgi_rng_now(state);
    constexpr int width = TGI_PACK_BYTES / tgi_stored<dtype>::size;
    for (int64_t i = tgi_grid_thread() * width; i < n; i += tgi_grid_size() * width) {
        tgi_pack<dtype, width> y;
        uint32_t word[width];
        tgi_random_words_of(rng, (uint64_t)i, word);
#pragma unroll
        for (int k = 0; k < width; ++k) {
            tgi_store_as((tg_dtype)dtype, &y.x[k], tgi_random_element<kind, dtype>(word[k], a, b, most));
            if (kind == TGI_UNIFORM && tgi_load_as<float>((tg_dtype)dtype, &y.x[k]) >= end)
                tgi_store_as((tg_dtype)dtype, &y.x[k], a);
        }
        tgi_store_part<dtype, width>((typename tgi_stored<dtype>::type *)out + i, y,
                                     (int)(n - i < width ? n - i : width));
    }
}

/* The largest word for which tgi_random_bernoulli is 1, p > 0. */
static uint32_t tgi_most_of(double p) { return p < 1 ? (uint32_t)(ceil(p * 4294967296.0) - 1) : UINT32_MAX; }

/* Whether a + b * fraction has the same bits by fmaf as in double and then rounded: a and b are floats, and no bit
   of the sum is lost in double; with 16 bits, which are rounded once more, no bit is lost in f32. */
static bool tgi_is_exact_range(tg_dtype dtype, double a, double b)
{
    int exponent;
    if ((double)(float)a != a || (double)(float)b != b || fabs(a) > 16 * fabs(b) || b < 1e-30) return false;
    if (dtype == TG_F32) return a == 0 || fabs(a) >= b / 1048576;
    return frexp(b, &exponent) == 0.5 && fmod(a, b / 2048) == 0;
}

template <int kind>
static bool tgi_random_launch(tgi_thread *S, const tgi_cuda_device *d, tgi_operand out, int64_t n, double a, double b,
                              double end, uint32_t most, tgi_device_rng rng)
{
    void (*const kernel)(void *, int64_t, float, float, float, uint32_t, tgi_device_rng) =
        out.dtype == TG_F32    ? tgi_random_packs<kind, TG_F32>
        : out.dtype == TG_BF16 ? tgi_random_packs<kind, TG_BF16>
                               : tgi_random_packs<kind, TG_F16>;
    const int64_t width = TGI_PACK_BYTES / tgi_bytes_of(out.dtype);
    return tgi_launch_each(S, d, kernel, (n + width - 1) / width, out.data, n, a, b, end, most, rng);
}

static bool tgi_cuda_random(tgi_thread *S, tgi_random kind, tgi_operand out, int64_t n, double lo, double hi,
                            tg_rng state)
{
    const tgi_cuda_device *d = tgi_device_for(S, out.index);
    const tgi_device_rng rng = tgi_rng_for(d, state);
    const bool packs = tgi_compute_dtype(out.dtype) == TG_F32 && (uintptr_t)out.data % TGI_PACK_BYTES == 0;
    if (!d || n <= 0) return d != NULL;
    if (packs && kind == TGI_NORMAL) return tgi_random_launch<TGI_NORMAL>(S, d, out, n, lo, hi, 0, 0, rng);
    if (packs && kind == TGI_BERNOULLI && lo > 0)
        return tgi_random_launch<TGI_BERNOULLI>(S, d, out, n, 0, 0, 0, tgi_most_of(lo), rng);
    if (packs && kind == TGI_UNIFORM && tgi_is_exact_range(out.dtype, lo, hi - lo) && (double)(float)hi == hi)
        return tgi_random_launch<TGI_UNIFORM>(S, d, out, n, lo, hi - lo, hi, 0, rng);
    return tgi_launch_each(S, d, tgi_random_elements, (n + 1) / 2, kind, out, n, lo, hi, rng); /* most make 2 each */
}

/* ---- distributions ---- */

static __global__ void tgi_draw_elements(tgi_draws d, tgi_device_rng state)
{
    const tg_rng rng = tgi_rng_now(state);
    char *const out = (char *)d.out.data;
    for (int64_t i = tgi_grid_thread(); i < d.n; i += tgi_grid_size())
        tgi_store_as(d.out.dtype, out + i * tgi_size_of(d.out.dtype), tgi_variate(&d, rng, i));
}

static bool tgi_cuda_draw(tgi_thread *S, const tgi_draws *draws, tg_rng rng)
{
    const tgi_cuda_device *d = tgi_device_for(S, draws->out.index);
    return d && (draws->n == 0 || tgi_launch_each(S, d, tgi_draw_elements, draws->n, *draws, tgi_rng_for(d, rng)));
}

/* ---- dropout ---- */

/* y, x [n]: y = x * scale where the word of the element is at most `most`, else x * 0; one thread per pack. */
template <int dtype>
__global__ void tgi_dropout_packs(void *y, const void *x, int64_t n, float scale, uint32_t most, tgi_device_rng state)
{
    const tg_rng rng = tgi_rng_now(state);
    constexpr int width = TGI_PACK_BYTES / tgi_stored<dtype>::size;
    typedef typename tgi_stored<dtype>::type stored;
    stored rounded;
    tgi_store_as((tg_dtype)dtype, &rounded, scale);
    const float factor = tgi_load_as<float>((tg_dtype)dtype, &rounded);
    for (int64_t i = tgi_grid_thread() * width; i < n; i += tgi_grid_size() * width) {
        const int count = (int)(n - i < width ? n - i : width);
        const tgi_loaded<dtype, width> in = tgi_load_part<dtype, width>((const stored *)x + i, sizeof(stored), count);
        tgi_pack<dtype, width> out;
        uint32_t word[width];
        tgi_random_words_of(rng, (uint64_t)i, word);
#pragma unroll
        for (int k = 0; k < width; ++k) {
            const stored element = in.element(k);
            const float value = tgi_load_as<float>((tg_dtype)dtype, &element);
            tgi_store_as((tg_dtype)dtype, &out.x[k], value * (word[k] <= most ? factor : 0.0f));
        }
        tgi_store_part<dtype, width>((stored *)y + i, out, count);
    }
}

static tgi_answer tgi_cuda_dropout(tgi_thread *S, tgi_operand y, tgi_operand x, int64_t n, double p, tg_rng rng)
{
    const tgi_cuda_device *d = tgi_device_for(S, y.index);
    void (*const kernel)(void *, const void *, int64_t, float, uint32_t, tgi_device_rng) =
        x.dtype == TG_F32    ? tgi_dropout_packs<TG_F32>
        : x.dtype == TG_BF16 ? tgi_dropout_packs<TG_BF16>
                             : tgi_dropout_packs<TG_F16>;
    const int64_t width = TGI_PACK_BYTES / tgi_bytes_of(x.dtype);
    const float scale = p < 1 ? 1 / (float)(1 - p) : 0;
    if (!d) return TGI_FAILED;
    if (n == 0) return TGI_DONE;
    if (x.dtype == TG_F64 || ((uintptr_t)x.data | (uintptr_t)y.data) % TGI_PACK_BYTES) return TGI_COMPOSE;
    const uint32_t most = p < 1 ? tgi_most_of(1 - p) : 0;
    const tgi_device_rng state = tgi_rng_for(d, rng);
    return tgi_launch_each(S, d, kernel, (n + width - 1) / width, y.data, x.data, n, scale, most, state) ? TGI_DONE
                                                                                                         : TGI_FAILED;
}

/* ======== @@OPTIM ================================================================================================= */

/* The number of the tensor that this piece is of, in a job over many tensors: the last one that begins at this piece or
   before it.  A binary search. */
template <class many> __device__ inline int tgi_tensor_of_piece(const many &job, int64_t piece)
{
    int t = 0, high = job.count - 1;
    while (t < high) {
        const int half = (t + high + 1) / 2;
        if (job.tensor[half].first_piece <= piece)
            t = half;
        else
            high = half - 1;
    }
    return t;
}

/* ---- many tensors at once ---- */

/* The sum of the squares of all elements of many tensors, their product with a number, with or without a look for
   infinities, and casts of many: as for the optimizers below, each tensor is cut into pieces, one for each block. */
enum { TGI_MULTI_TENSORS = 160, TGI_MULTI_PIECE = 64 * TGI_BLOCK };
typedef struct {
    char *data;
    int64_t n;
    int64_t first_piece; /* the number of its first piece */
} tgi_multi_tensor;
typedef struct {
    int64_t pieces;
    int count;
    tgi_multi_kind kind;
    tgi_multi_tensor tensor[TGI_MULTI_TENSORS]; /* of a cast: its result, then what it casts; of the same pieces */
} tgi_multi_job;

/* `width` elements: adds their squares to *sum, or multiplies them by factor.  *odd becomes NaN if one of them is NaN
   or infinite. */
template <int dtype, int width, class real>
__device__ inline void tgi_multi_pack(bool scales, char *at, real factor, real *sum, real *odd)
{
    typedef tgi_pack<dtype, width> pack;
    pack x = tgi_load_pack<pack>(at);
#pragma unroll
    for (int k = 0; k < width; ++k) {
        const real value = tgi_load_as<real>((tg_dtype)dtype, &x.x[k]);
        *sum += value * value;
        *odd += value * 0;
        tgi_store_as((tg_dtype)dtype, &x.x[k], value * factor);
    }
    if (scales) tgi_store_pack(at, x);
}

/* One block per piece: multiplies its elements by *number, or stores the sum of their squares in out [pieces].  To
   unscale is to multiply, and to store 0 in out [1], f32, if an element was not finite. */
template <int dtype>
__global__ void tgi_multi_pieces(const __grid_constant__ tgi_multi_job job, const void *number, void *out)
{
    typedef typename tgi_computed<dtype>::type real;
    constexpr int size = (int)sizeof(typename tgi_stored<dtype>::type), width = tgi_width<dtype>;
    const bool scales = job.kind != TGI_MULTI_SQUARES;
    const real factor = scales ? *(const real *)number : 0;
    for (int64_t piece = blockIdx.x; piece < job.pieces; piece += gridDim.x) {
        const int t = tgi_tensor_of_piece(job, piece);
        const int64_t start = (piece - job.tensor[t].first_piece) * TGI_MULTI_PIECE, left = job.tensor[t].n - start;
        const int n = left < TGI_MULTI_PIECE ? (int)left : (int)TGI_MULTI_PIECE;
        char *const at = job.tensor[t].data + start * size;
        const int packed = (uintptr_t)at % TGI_PACK_BYTES ? 0 : n / width * width;
        real sum = 0, odd = 0;
#pragma unroll 4
        for (int i = (int)threadIdx.x * width; i < packed; i += TGI_BLOCK * width)
            tgi_multi_pack<dtype, width>(scales, at + i * size, factor, &sum, &odd);
        for (int i = packed + (int)threadIdx.x; i < n; i += TGI_BLOCK)
            tgi_multi_pack<dtype, 1>(scales, at + i * size, factor, &sum, &odd);
        if (scales) {
            if (job.kind == TGI_MULTI_UNSCALE && odd != 0) atomicExch((unsigned *)out, 0u); /* whoever is first */
            continue;
        }
        sum = tgi_team_sum(sum, TGI_BLOCK);
        if (threadIdx.x == 0) ((real *)out)[piece] = sum;
    }
}

/* One block per piece: rounds f32 to elements of dtype `to`. */
template <int to> __global__ void tgi_multi_cast(const __grid_constant__ tgi_multi_job job)
{
    typedef typename tgi_stored<to>::type stored;
    constexpr int width = TGI_PACK_BYTES / sizeof(float);
    for (int64_t piece = blockIdx.x; piece < job.pieces; piece += gridDim.x) {
        const int t = tgi_tensor_of_piece(job, piece);
        const int64_t start = (piece - job.tensor[t].first_piece) * TGI_MULTI_PIECE, left = job.tensor[t].n - start;
        const int n = left < TGI_MULTI_PIECE ? (int)left : (int)TGI_MULTI_PIECE;
        const float *const x = (const float *)job.tensor[t].data + start; /* t is the last one of these pieces */
        stored *const y = (stored *)job.tensor[t - 1].data + start;
        const bool aligned = (uintptr_t)x % TGI_PACK_BYTES == 0 && (uintptr_t)y % sizeof(tgi_pack<to, width>) == 0;
        const int packed = aligned ? n / width * width : 0;
#pragma unroll 4
        for (int i = (int)threadIdx.x * width; i < packed; i += TGI_BLOCK * width) {
            const tgi_pack<TG_F32, width> from = tgi_load_pack<tgi_pack<TG_F32, width>>(x + i);
            tgi_pack<to, width> pack;
#pragma unroll
            for (int k = 0; k < width; ++k) tgi_store_as((tg_dtype)to, &pack.x[k], from.x[k]);
            tgi_store_pack(y + i, pack);
        }
        for (int i = packed + (int)threadIdx.x; i < n; i += TGI_BLOCK) tgi_store_as((tg_dtype)to, y + i, x[i]);
    }
}

/* *number = the sum of partial [pieces]; one block. */
template <class real> __global__ void tgi_multi_total(const void *partial, int64_t pieces, void *number)
{
    double sum = 0;
    for (int64_t i = threadIdx.x; i < pieces; i += TGI_BLOCK) sum += (double)((const real *)partial)[i];
    sum = tgi_team_sum(sum, TGI_BLOCK);
    if (threadIdx.x == 0) *(real *)number = (real)sum;
}

static int64_t tgi_multi_pieces_of(int64_t n) { return (n + TGI_MULTI_PIECE - 1) / TGI_MULTI_PIECE; }

/* All tensors of the list, as many in one launch as its arguments have room for.  out: see tgi_multi_pieces. */
static bool tgi_multi_run(tgi_thread *S, const tgi_cuda_device *d, const tgi_multi *m, char *out)
{
    void (*const kernels[])(tgi_multi_job, const void *, void *) = {
        tgi_multi_pieces<TG_F32>, tgi_multi_pieces<TG_F64>, tgi_multi_pieces<TG_BF16>, tgi_multi_pieces<TG_F16>};
    const int each = m->kind == TGI_MULTI_CAST ? 2 : 1; /* entries of the job for a tensor */
    for (int i = 0; i < m->count;) {
        tgi_multi_job job;
        job.pieces = 0;
        job.kind = m->kind;
        for (job.count = 0; job.count + each <= TGI_MULTI_TENSORS && i < m->count; ++i) {
            const tgi_flat *const flat = &m->list[i];
            const tgi_multi_tensor tensor = {(char *)flat->data, flat->n, job.pieces};
            job.tensor[job.count++] = tensor;
            if (m->kind == TGI_MULTI_CAST) {
                job.tensor[job.count] = tensor;
                job.tensor[job.count++].data = (char *)(uintptr_t)flat->from;
            }
            job.pieces += tgi_multi_pieces_of(tensor.n);
        }
        if (!(m->kind == TGI_MULTI_CAST
                  ? tgi_launch(S, d, m->dtype == TG_BF16 ? tgi_multi_cast<TG_BF16> : tgi_multi_cast<TG_F16>, job.pieces,
                               TGI_BLOCK, job)
                  : tgi_launch(S, d, kernels[m->dtype], job.pieces, TGI_BLOCK, job, m->number, out))) {
            return false;
        }
        if (m->kind == TGI_MULTI_SQUARES) out += job.pieces * tgi_bytes_of(tgi_compute_dtype(m->dtype));
    }
    return true;
}

static tgi_answer tgi_cuda_multi(tgi_thread *S, const tgi_multi *m)
{
    tgi_cuda_device *d = tgi_device_for(S, m->index);
    if (!d) return TGI_FAILED;
    if (m->kind != TGI_MULTI_SQUARES) return tgi_multi_run(S, d, m, (char *)m->finite) ? TGI_DONE : TGI_FAILED;
    int64_t pieces = 0;
    for (int i = 0; i < m->count; ++i) pieces += tgi_multi_pieces_of(m->list[i].n);
    char *const partial = (char *)tgi_scratch_alloc(S, d, "clip_grad_norm", pieces, sizeof(double));
    void (*const total)(const void *, int64_t, void *) =
        m->dtype == TG_F64 ? tgi_multi_total<double> : tgi_multi_total<float>;
    const bool ok = partial && tgi_multi_run(S, d, m, partial) &&
                    tgi_launch(S, d, total, 1, TGI_BLOCK, partial, pieces, m->number);
    tgi_cuda_release(S, d->index, partial, 0);
    return ok ? TGI_DONE : TGI_FAILED;
}

/* ---- a step of an optimizer ---- */

/* The numbers of a step in the type in which it is computed. */
template <class real_> struct tgi_optim_numbers {
    typedef real_ real;
#define TGI_OPTIM_MEMBER(name, value) real name;
    TGI_OPTIM_NUMBERS(TGI_OPTIM_MEMBER)
#undef TGI_OPTIM_MEMBER
};

/* Each row of TGI_OPTIMIZERS as a type that holds these numbers: update updates one element of the parameter p and of
   the state a, b, c by the gradient g. */
#define TGI_OPTIM_FORMULA(name, suffix, type, state_a, state_b, state_c, used, reads, defaults, formula)     \
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
    void *at[6]; /* p [n], g [n], then a, b, c [n], the state, and the master copy [n], each or NULL */
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

/* Updates `width` elements from i on: loads packs of p, g, the state and the master copy, updates element by element,
   and stores all but g.  p and g are of `dtype`; the others are of the type that is computed in.  With a master copy
   that is what is updated, and p is rounded from it. */
template <class formula, int dtype, int width>
__device__ inline void tgi_optim_pack(const tgi_optim_step *step, const formula &optim, void *const (&at)[6], int64_t i)
{
    typedef typename formula::real real;
    typedef typename tgi_stored<dtype>::type stored;
    constexpr int wide = dtype == TG_F64 ? TG_F64 : TG_F32;
    constexpr bool has_master = dtype == TG_BF16 || dtype == TG_F16;
    tgi_pack<dtype, width> p = tgi_load_pack<tgi_pack<dtype, width>>((const stored *)at[0] + i);
    const tgi_pack<dtype, width> g = tgi_load_pack<tgi_pack<dtype, width>>((const stored *)at[1] + i);
    tgi_pack<wide, width> x[4]; /* a, b, c, master */
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        if (at[k + 2]) x[k] = tgi_load_pack<tgi_pack<wide, width>>((const real *)at[k + 2] + i);
    }
#pragma unroll
    for (int e = 0; e < width; ++e) {
        real value[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) value[k] = at[k + 2] ? x[k].x[e] : real();
        real now = tgi_load_as<real>((tg_dtype)dtype, &p.x[e]);
        if (has_master) { /* what the program has written counts instead */
            stored rounded;
            tgi_store_as((tg_dtype)dtype, &rounded, value[3]);
            if (rounded == p.x[e]) now = value[3];
        }
        optim.update(step, now, tgi_load_as<real>((tg_dtype)dtype, &g.x[e]), value[0], value[1], value[2]);
        tgi_store_as((tg_dtype)dtype, &p.x[e], now);
        value[3] = now;
#pragma unroll
        for (int k = 0; k < 4; ++k) x[k].x[e] = value[k];
    }
    tgi_store_pack((stored *)at[0] + i, p);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        if (at[k + 2]) tgi_store_pack((real *)at[k + 2] + i, x[k]);
    }
}

/* One block per piece; each of its threads updates one pack at a time, then one element at a time. */
template <class formula, int dtype>
__global__ void tgi_optim_pieces(const __grid_constant__ tgi_optim_job job, formula optim, const formula *now)
{
    if (now) optim = *now; /* of a captured step */
    constexpr int width = (int)(TGI_PACK_BYTES / sizeof(typename formula::real));
    for (int64_t piece = blockIdx.x; piece < job.pieces; piece += gridDim.x) {
        const int t = tgi_tensor_of_piece(job, piece);
        const int64_t start = (piece - job.tensor[t].first_piece) * TGI_OPTIM_PIECE;
        const int64_t left = job.tensor[t].n - start, n = left < TGI_OPTIM_PIECE ? left : (int64_t)TGI_OPTIM_PIECE;
        const int64_t packed = job.tensor[t].aligned ? n / width * width : 0;
        void *at[6];
#pragma unroll
        for (int k = 0; k < 6; ++k) at[k] = job.tensor[t].at[k];
        for (int64_t i = (int64_t)threadIdx.x * width; i < packed; i += TGI_BLOCK * width)
            tgi_optim_pack<formula, dtype, width>(&job.step, optim, at, start + i);
        for (int64_t i = packed + threadIdx.x; i < n; i += TGI_BLOCK)
            tgi_optim_pack<formula, dtype, 1>(&job.step, optim, at, start + i);
    }
}

template <class formula, int dtype>
static bool tgi_optim_launch(tgi_thread *S, tgi_cuda_device *d, const tgi_optim_job *job)
{
    typedef typename formula::real real;
    const tgi_optim_step *step = &job->step;
    formula optim;
#define TGI_OPTIM_SET(name, value) optim.name = (real)(value);
    TGI_OPTIM_NUMBERS(TGI_OPTIM_SET)
#undef TGI_OPTIM_SET
    const formula *now = NULL;
    if (d->graph && !(now = (const formula *)tgi_graph_number(S, d, &optim, sizeof optim))) return false;
    return d->renumbering ||
           tgi_launch(S, d, tgi_optim_pieces<formula, dtype>, job->pieces, TGI_BLOCK, *job, optim, now);
}

/* For each optimizer, in the order of tgi_optimizer, its kernel for each floating-point dtype, in the order of
   tg_dtype. */
typedef bool (*tgi_optim_fn)(tgi_thread *S, tgi_cuda_device *d, const tgi_optim_job *job);
#define TGI_OPTIM_ROW(name, ...)                                                                         \
    {tgi_optim_launch<tgi_optim_##name##_f32, TG_F32>, tgi_optim_launch<tgi_optim_##name##_f64, TG_F64>, \
     tgi_optim_launch<tgi_optim_##name##_f32, TG_BF16>, tgi_optim_launch<tgi_optim_##name##_f32, TG_F16>},
static const tgi_optim_fn tgi_optim_rows[][4] = {TGI_OPTIMIZERS(TGI_OPTIM_ROW, f32, float)};

static bool tgi_optim_run(tgi_thread *S, tgi_cuda_device *d, const tgi_optim_job *job)
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
static bool tgi_optim_group(tgi_thread *S, tgi_cuda_device *d, const tgi_optim_step *steps, int n)
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
        void *const at[6] = {step->p, (void *)(uintptr_t)step->g, step->s[0], step->s[1], step->s[2], step->master};
        memcpy(t->at, at, sizeof at);
        t->n = step->n;
        t->first_piece = job.pieces;
        t->aligned = true;
        for (int k = 0; k < 6; ++k) t->aligned = t->aligned && (uintptr_t)at[k] % TGI_PACK_BYTES == 0;
        job.pieces += (step->n + TGI_OPTIM_PIECE - 1) / TGI_OPTIM_PIECE;
    }
    return tgi_optim_run(S, d, &job);
}

static bool tgi_cuda_optim_step(tgi_thread *S, const tgi_optim_step *steps, int n)
{
    tgi_cuda_device *d = n > 0 ? tgi_device_for(S, steps[0].index) : NULL;
    if (!d) return n == 0;
    for (int i = 0; i < n; ++i) {
        bool done = false; /* it ran in the group of an earlier step */
        for (int k = 0; k < i && !done; ++k) done = tgi_optim_same_settings(&steps[k], &steps[i]);
        if (!done && !tgi_optim_group(S, d, steps + i, n - i)) return false;
    }
    return true;
}
