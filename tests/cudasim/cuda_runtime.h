/* Replaces <cuda_runtime.h>: with this folder first on the include path, a .cu file is plain C++17 whose kernels run on
   the CPU.  cudasim_test.h describes the simulator and the rules for a .cu file.  This header declares the part of the
   runtime that the project uses, after NVIDIA's documentation; conform.cpp compares it with NVIDIA's headers. */
#ifndef CUDASIM_CUDA_RUNTIME_H
#define CUDASIM_CUDA_RUNTIME_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <type_traits>
#include <utility>

#define CUDASIM 1
#define CUDART_VERSION 13000

/* ---- the language ---- */

#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __restrict __restrict__

/* One block runs at a time, so a static variable serves as its shared memory.  It is put into a section of its own,
   which is filled with NaN before each block and watched by the check mode.  g++ ignores the attribute for statics of
   templates, so that only clang does this. */
#if defined(__clang__)
#define __shared__ static __attribute__((section("cudasim_shared")))
#else
#define __shared__ static
#endif

/* Dynamic shared memory cannot be declared in the same way for nvcc and for C++: "extern static" is an error. */
#define CUDASIM_DYN_SHARED(T, name) T *name = static_cast<T *>(::cudasim::dynamic_shared())

/* For functions of the simulator that kernels call: the check mode does not watch their loads and stores. */
#define CUDASIM_UNCHECKED __attribute__((no_sanitize("thread")))

/* The caller's file and line, as default arguments. */
#define CUDASIM_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

struct uint3 {
    unsigned x, y, z;
};
struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned vx = 1, unsigned vy = 1, unsigned vz = 1) : x(vx), y(vy), z(vz) {}
    constexpr dim3(uint3 v) : x(v.x), y(v.y), z(v.z) {}
};

/* Variables, not macros, because config.gridDim is a member. */
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
constexpr int warpSize = 32;

#define CUDASIM_VECTORS(T, name, a2, a4)                       \
    struct name##2 { T x, y; }                                 \
    __attribute__((aligned(a2)));                              \
    struct name##4 { T x, y, z, w; }                           \
    __attribute__((aligned(a4)));                              \
    inline name##2 make_##name##2(T x, T y) { return {x, y}; } \
    inline name##4 make_##name##4(T x, T y, T z, T w) { return {x, y, z, w}; }
CUDASIM_VECTORS(unsigned, uint, 8, 16)
CUDASIM_VECTORS(signed char, char, 2, 4)
CUDASIM_VECTORS(unsigned char, uchar, 2, 4)
CUDASIM_VECTORS(short, short, 4, 8)
CUDASIM_VECTORS(unsigned short, ushort, 4, 8)
CUDASIM_VECTORS(int, int, 8, 16)
CUDASIM_VECTORS(float, float, 8, 16)
struct double2 {
    double x, y;
} __attribute__((aligned(16)));
struct longlong2 {
    long long x, y;
} __attribute__((aligned(16)));
struct ulonglong2 {
    unsigned long long x, y;
} __attribute__((aligned(16)));
inline double2 make_double2(double x, double y) { return {x, y}; }
inline longlong2 make_longlong2(long long x, long long y) { return {x, y}; }
inline ulonglong2 make_ulonglong2(unsigned long long x, unsigned long long y) { return {x, y}; }

/* ---- the host API ---- */

enum cudaError {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInitializationError = 3,
    cudaErrorCudartUnloading = 4,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInvalidMemcpyDirection = 21,
    cudaErrorInsufficientDriver = 35,
    cudaErrorInvalidDeviceFunction = 98,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorNoKernelImageForDevice = 209,
    cudaErrorECCUncorrectable = 214,
    cudaErrorPeerAccessUnsupported = 217,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorLaunchTimeout = 702,
    cudaErrorPeerAccessAlreadyEnabled = 704,
    cudaErrorPeerAccessNotEnabled = 705,
    cudaErrorAssert = 710,
    cudaErrorHostMemoryAlreadyRegistered = 712,
    cudaErrorHostMemoryNotRegistered = 713,
    cudaErrorHardwareStackError = 714,
    cudaErrorIllegalInstruction = 715,
    cudaErrorMisalignedAddress = 716,
    cudaErrorInvalidAddressSpace = 717,
    cudaErrorInvalidPc = 718,
    cudaErrorLaunchFailure = 719,
    cudaErrorNotSupported = 801,
    cudaErrorStreamCaptureUnsupported = 900,
    cudaErrorStreamCaptureInvalidated = 901,
    cudaErrorStreamCaptureUnmatched = 903,
    cudaErrorStreamCaptureWrongThread = 908,
    cudaErrorUnknown = 999
};
typedef enum cudaError cudaError_t;

enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
    cudaMemcpyDefault
};
enum cudaMemoryType { cudaMemoryTypeUnregistered, cudaMemoryTypeHost, cudaMemoryTypeDevice, cudaMemoryTypeManaged };
enum cudaStreamCaptureMode {
    cudaStreamCaptureModeGlobal,
    cudaStreamCaptureModeThreadLocal,
    cudaStreamCaptureModeRelaxed
};
enum cudaStreamCaptureStatus {
    cudaStreamCaptureStatusNone,
    cudaStreamCaptureStatusActive,
    cudaStreamCaptureStatusInvalidated
};
enum cudaFuncAttribute {
    cudaFuncAttributeMaxDynamicSharedMemorySize = 8,
    cudaFuncAttributePreferredSharedMemoryCarveout = 9
};
enum cudaDeviceAttr {
    cudaDevAttrMaxThreadsPerBlock = 1,
    cudaDevAttrMaxGridDimX = 5,
    cudaDevAttrMaxGridDimY = 6,
    cudaDevAttrMaxGridDimZ = 7,
    cudaDevAttrMaxSharedMemoryPerBlock = 8,
    cudaDevAttrWarpSize = 10,
    cudaDevAttrMultiProcessorCount = 16,
    cudaDevAttrL2CacheSize = 38,
    cudaDevAttrMaxThreadsPerMultiProcessor = 39,
    cudaDevAttrUnifiedAddressing = 41,
    cudaDevAttrComputeCapabilityMajor = 75,
    cudaDevAttrComputeCapabilityMinor = 76,
    cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
    cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
    cudaDevAttrMemoryPoolsSupported = 115
};
enum cudaMemPoolAttr {
    cudaMemPoolReuseFollowEventDependencies = 1,
    cudaMemPoolReuseAllowOpportunistic = 2,
    cudaMemPoolReuseAllowInternalDependencies = 3,
    cudaMemPoolAttrReleaseThreshold = 4,
    cudaMemPoolAttrReservedMemCurrent = 5,
    cudaMemPoolAttrReservedMemHigh = 6,
    cudaMemPoolAttrUsedMemCurrent = 7,
    cudaMemPoolAttrUsedMemHigh = 8
};
#define cudaStreamDefault 0x00
#define cudaStreamNonBlocking 0x01
#define cudaEventDefault 0x00
#define cudaEventBlockingSync 0x01
#define cudaEventDisableTiming 0x02
#define cudaHostAllocDefault 0x00
#define cudaHostAllocPortable 0x01
#define cudaHostAllocMapped 0x02
#define cudaHostRegisterDefault 0x00
#define cudaHostRegisterPortable 0x01
#define cudaStreamLegacy (reinterpret_cast<cudaStream_t>(0x1))
#define CUDART_CB

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef struct CUgraph_st *cudaGraph_t;
typedef struct CUgraphExec_st *cudaGraphExec_t;
typedef struct CUmemPoolHandle_st *cudaMemPool_t;
typedef void (*cudaHostFn_t)(void *user);

struct cudaLaunchAttribute {
    int id;
};
struct cudaLaunchConfig_t {
    dim3 gridDim, blockDim;
    size_t dynamicSmemBytes;
    cudaStream_t stream;
    cudaLaunchAttribute *attrs;
    unsigned numAttrs;
};
struct cudaPointerAttributes {
    cudaMemoryType type;
    int device;
    void *devicePointer, *hostPointer;
};
struct cudaFuncAttributes {
    size_t sharedSizeBytes, constSizeBytes, localSizeBytes;
    int maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion, cacheModeCA, maxDynamicSharedSizeBytes;
};
struct cudaDeviceProp {
    char name[256];
    size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin, sharedMemPerMultiprocessor;
    int major, minor, multiProcessorCount, maxThreadsPerBlock, maxThreadsPerMultiProcessor, warpSize, l2CacheSize;
    int maxThreadsDim[3], maxGridSize[3];
    int regsPerBlock, memoryBusWidth, asyncEngineCount, concurrentKernels, unifiedAddressing, canMapHostMemory,
        integrated;
};

extern "C" {
const char *cudaGetErrorString(cudaError_t error);
const char *cudaGetErrorName(cudaError_t error);
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);
cudaError_t cudaRuntimeGetVersion(int *version);
cudaError_t cudaDriverGetVersion(int *version);

cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int *device);
enum cudaDriverEntryPointQueryResult { cudaDriverEntryPointSuccess };
enum { cudaEnableDefault = 0 };
cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned version,
                                             unsigned long long flags,
                                             cudaDriverEntryPointQueryResult *found = nullptr);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int device);
cudaError_t cudaDeviceGetAttribute(int *value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaDeviceReset(void);
cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer);
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags);
cudaError_t cudaDeviceDisablePeerAccess(int peer);

cudaError_t cudaMalloc(void **pointer, size_t bytes);
cudaError_t cudaMallocAsync(void **pointer, size_t bytes, cudaStream_t stream);
cudaError_t cudaMallocFromPoolAsync(void **pointer, size_t bytes, cudaMemPool_t pool, cudaStream_t stream);
cudaError_t cudaMallocHost(void **pointer, size_t bytes);
cudaError_t cudaHostAlloc(void **pointer, size_t bytes, unsigned flags);
cudaError_t cudaFree(void *pointer);
cudaError_t cudaFreeAsync(void *pointer, cudaStream_t stream);
cudaError_t cudaFreeHost(void *pointer);
cudaError_t cudaHostRegister(void *pointer, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void *pointer);
cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes);
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes *attributes, const void *pointer);
cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t *pool, int device);
cudaError_t cudaDeviceGetMemPool(cudaMemPool_t *pool, int device);
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void *value);
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void *value);
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes_to_keep);

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream = nullptr);
cudaError_t cudaMemcpyPeer(void *to, int to_device, const void *from, int from_device, size_t bytes);
cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device, size_t bytes,
                                cudaStream_t stream = nullptr);
cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                              size_t height, cudaMemcpyKind kind, cudaStream_t stream = nullptr);
cudaError_t cudaMemset(void *to, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream = nullptr);

cudaError_t cudaStreamCreate(cudaStream_t *stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags = 0);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *user);
cudaError_t cudaEventCreate(cudaEvent_t *event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t start, cudaEvent_t end);

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph);
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *status);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags = 0);
cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec);
}

/* ---- what kernels call ---- */

namespace cudasim
{
enum class Collective { syncwarp, shfl, shfl_xor, shfl_down, shfl_up, ballot, any, all, mma, ldmatrix };

void *dynamic_shared();
void syncthreads(const char *file, int line);
int syncthreads_sum(int value, const char *file, int line); /* __syncthreads_count and its kin */
unsigned lane();
/* Waits until all lanes of the mask have called it; returns the values of the 32 lanes, of which those in the mask are
   valid. */
const uint64_t *warp_collective(unsigned mask, uint64_t value, Collective what, const char *file, int line);
void atomic_access(const void *p, size_t bytes, void *caller);
void fence();
void check_aligned(const void *p, size_t alignment, const char *file, int line);
void check_call(int device);
void check_block(const void *p, cudaStream_t stream, bool given);

/* The arguments of a launch as a GPU gets them, for the interpreter of PTX in tests/ptx: one behind another, aligned. */
struct Arguments {
    size_t count, at[16], bytes[16];
    alignas(16) char data[4096];
};
template <class T> CUDASIM_UNCHECKED inline void add_argument(Arguments *to, const T &value)
{
    const size_t i = to->count++, end = i ? to->at[i - 1] + to->bytes[i - 1] : 0;
    to->at[i] = (end + alignof(T) - 1) / alignof(T) * alignof(T);
    to->bytes[i] = sizeof value;
    for (size_t k = 0; k < sizeof value; ++k) to->data[to->at[i] + k] = reinterpret_cast<const char *>(&value)[k];
}

/* run(data) runs one thread of a kernel; data holds a copy of the arguments, and destroy(data) frees it. */
struct Body {
    void (*run)(void *data);
    void (*destroy)(void *data);
    void *data;
    const void *kernel;
    Arguments *arguments; /* NULL, or allocated by calloc */
};
Arguments *new_arguments(); /* NULL: nobody asks for them */
cudaError_t set_dynamic_limit(const void *kernel, cudaFuncAttribute attribute, int value);
cudaError_t attributes_of(cudaFuncAttributes *attributes, const void *kernel);
} // namespace cudasim

extern "C" {
/* Here `arguments` points to a pointer to one Body, which the launch takes over. */
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t *config, const void *kernel, void **arguments);
cudaError_t cudaFuncGetName(const char **name, const void *kernel); /* mangled */
}

namespace cudasim
{
template <class F> CUDASIM_UNCHECKED void run_body(void *data) { (*static_cast<F *>(data))(); }
template <class F> CUDASIM_UNCHECKED void destroy_body(void *data) { delete static_cast<F *>(data); }

template <class T> CUDASIM_UNCHECKED inline uint64_t to_bits(T value)
{
    static_assert(sizeof(T) <= 8 && std::is_trivially_copyable<T>::value, "a shuffle moves at most 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    return bits;
}
/* The value of lane `source`.  That of a lane outside of the mask is undefined on a GPU; here all its bits are 1 (NaN,
   -1). */
template <class T>
CUDASIM_UNCHECKED inline T shuffle(unsigned mask, T value, int source, bool inside, Collective what, const char *file,
                                   int line)
{
    const uint64_t *all = warp_collective(mask, to_bits(value), what, file, line);
    if (!inside) return value;
    uint64_t bits = mask >> (source & 31) & 1 ? all[source & 31] : ~uint64_t(0);
    T result;
    memcpy(static_cast<void *>(&result), &bits, sizeof result);
    return result;
}
inline int segment(int width) { return static_cast<int>(lane()) & ~(width - 1); }
} // namespace cudasim

#define CUDASIM_CHECK_ALIGNED(p, alignment) ::cudasim::check_aligned(p, alignment, __FILE__, __LINE__)
/* At the end of a call: its caller's device (-1: not known) must be the current one, and no error left. */
#define CUDASIM_CHECK_CALL(device) ::cudasim::check_call(device)
/* For a program that keeps the allocation that begins at p, to use it again: it is free for the work that the stream is
   given from now on, and in use again.  See TG_SIM_REUSE. */
#define CUDASIM_BLOCK_FREED(p, stream) ::cudasim::check_block(p, stream, false)
#define CUDASIM_BLOCK_GIVEN(p, stream) ::cudasim::check_block(p, stream, true)

template <class... Parameters, class... Arguments>
CUDASIM_UNCHECKED inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t *config, void (*kernel)(Parameters...),
                                                        Arguments &&...arguments)
{
    /* the arguments are converted to the types of the parameters, as in NVIDIA's template */
    return [&](Parameters... parameters) CUDASIM_UNCHECKED {
        static_assert((std::is_trivially_copyable<Parameters>::value && ... && true),
                      "kernel parameters are copied as bytes");
        auto body = [kernel, parameters...]() CUDASIM_UNCHECKED { kernel(parameters...); };
        using F = decltype(body);
        ::cudasim::Arguments *packed = ::cudasim::new_arguments();
        static_assert(sizeof...(parameters) <= 16, "Arguments has room for 16");
        if (packed) (::cudasim::add_argument(packed, parameters), ...);
        ::cudasim::Body made = {&::cudasim::run_body<F>, &::cudasim::destroy_body<F>, new F(body),
                                reinterpret_cast<const void *>(kernel), packed};
        void *all[] = {&made};
        return cudaLaunchKernelExC(config, made.kernel, all);
    }(std::forward<Arguments>(arguments)...);
}
template <class K> inline cudaError_t cudaFuncSetAttribute(K *kernel, cudaFuncAttribute attribute, int value)
{
    return ::cudasim::set_dynamic_limit(reinterpret_cast<const void *>(kernel), attribute, value);
}
template <class K> inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes *attributes, K *kernel)
{
    return ::cudasim::attributes_of(attributes, reinterpret_cast<const void *>(kernel));
}
template <class K>
inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, K, int block_size, size_t)
{
    *blocks = block_size > 0 && block_size <= 1024 ? 2048 / block_size : 0;
    return *blocks ? cudaSuccess : cudaErrorInvalidValue;
}
template <class T> inline cudaError_t cudaMalloc(T **p, size_t n)
{
    return cudaMalloc(reinterpret_cast<void **>(p), n);
}
template <class T> inline cudaError_t cudaMallocAsync(T **p, size_t n, cudaStream_t s)
{
    return cudaMallocAsync(reinterpret_cast<void **>(p), n, s);
}
template <class T> inline cudaError_t cudaMallocHost(T **p, size_t n, unsigned flags = 0)
{
    return cudaHostAlloc(reinterpret_cast<void **>(p), n, flags);
}
template <class T> inline cudaError_t cudaHostAlloc(T **p, size_t n, unsigned flags)
{
    return cudaHostAlloc(reinterpret_cast<void **>(p), n, flags);
}

inline void __syncthreads(CUDASIM_SITE) { ::cudasim::syncthreads(file, line); }
inline int __syncthreads_count(int p, CUDASIM_SITE) { return ::cudasim::syncthreads_sum(p != 0, file, line); }
inline int __syncthreads_or(int p, CUDASIM_SITE) { return ::cudasim::syncthreads_sum(p != 0, file, line) != 0; }
inline int __syncthreads_and(int p, CUDASIM_SITE) { return ::cudasim::syncthreads_sum(p == 0, file, line) == 0; }
inline void __syncwarp(unsigned mask = 0xffffffffu, CUDASIM_SITE)
{
    ::cudasim::warp_collective(mask, 0, ::cudasim::Collective::syncwarp, file, line);
}
template <class T>
CUDASIM_UNCHECKED inline T __shfl_sync(unsigned mask, T value, int source, int width = 32, CUDASIM_SITE)
{
    int from = ::cudasim::segment(width) + (source & (width - 1));
    return ::cudasim::shuffle(mask, value, from, true, ::cudasim::Collective::shfl, file, line);
}
template <class T>
CUDASIM_UNCHECKED inline T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, CUDASIM_SITE)
{
    int from = static_cast<int>(::cudasim::lane()) ^ bits;
    bool inside = from < ::cudasim::segment(width) + width;
    return ::cudasim::shuffle(mask, value, from, inside, ::cudasim::Collective::shfl_xor, file, line);
}
template <class T>
CUDASIM_UNCHECKED inline T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, CUDASIM_SITE)
{
    int from = static_cast<int>(::cudasim::lane() + delta);
    bool inside = from < ::cudasim::segment(width) + width;
    return ::cudasim::shuffle(mask, value, from, inside, ::cudasim::Collective::shfl_down, file, line);
}
template <class T>
CUDASIM_UNCHECKED inline T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, CUDASIM_SITE)
{
    int from = static_cast<int>(::cudasim::lane()) - static_cast<int>(delta);
    bool inside = from >= ::cudasim::segment(width);
    return ::cudasim::shuffle(mask, value, from, inside, ::cudasim::Collective::shfl_up, file, line);
}
CUDASIM_UNCHECKED inline unsigned __ballot_sync(unsigned mask, int predicate, CUDASIM_SITE)
{
    const uint64_t *all = ::cudasim::warp_collective(mask, predicate != 0, ::cudasim::Collective::ballot, file, line);
    unsigned result = 0;
    for (int i = 0; i < 32; ++i)
        if (mask >> i & 1) result |= static_cast<unsigned>(all[i]) << i;
    return result;
}
inline int __any_sync(unsigned mask, int predicate, CUDASIM_SITE)
{
    return __ballot_sync(mask, predicate, file, line) != 0;
}
inline int __all_sync(unsigned mask, int predicate, CUDASIM_SITE)
{
    return __ballot_sync(mask, predicate, file, line) == mask;
}
inline unsigned __activemask() { return 1u << ::cudasim::lane(); } /* only the caller is certain to be active */
inline void __threadfence() { ::cudasim::fence(); }
inline void __threadfence_block() {}

/* The simulator switches threads at barriers and collectives only, so that a plain read-modify-write is atomic. */
#define CUDASIM_ATOMIC(name, T, result)                                      \
    CUDASIM_UNCHECKED inline T name(T *p, T value)                           \
    {                                                                        \
        ::cudasim::atomic_access(p, sizeof *p, __builtin_return_address(0)); \
        T old = *p;                                                          \
        *p = result;                                                         \
        return old;                                                          \
    }
#define CUDASIM_ATOMICS(T)                                                   \
    CUDASIM_ATOMIC(atomicAdd, T, old + value)                                \
    CUDASIM_ATOMIC(atomicExch, T, value)                                     \
    CUDASIM_ATOMIC(atomicMin, T, value < old ? value : old)                  \
    CUDASIM_ATOMIC(atomicMax, T, value > old ? value : old)                  \
    CUDASIM_ATOMIC(atomicAnd, T, old &value)                                 \
    CUDASIM_ATOMIC(atomicOr, T, old | value)                                 \
    CUDASIM_ATOMIC(atomicXor, T, old ^ value)                                \
    CUDASIM_UNCHECKED inline T atomicCAS(T *p, T expected, T value)          \
    {                                                                        \
        ::cudasim::atomic_access(p, sizeof *p, __builtin_return_address(0)); \
        T old = *p;                                                          \
        if (old == expected) *p = value;                                     \
        return old;                                                          \
    }
CUDASIM_ATOMICS(int)
CUDASIM_ATOMICS(unsigned)
CUDASIM_ATOMICS(unsigned long long)
CUDASIM_ATOMIC(atomicAdd, float, old + value)
CUDASIM_ATOMIC(atomicAdd, double, old + value)
CUDASIM_ATOMIC(atomicExch, float, value)
CUDASIM_ATOMIC(atomicSub, int, old - value)
CUDASIM_ATOMIC(atomicSub, unsigned, old - value)

/* min and max as in CUDA: if one of two floats is NaN, they return the other. */
#define CUDASIM_MINMAX(T)                               \
    constexpr T min(T a, T b) { return b < a ? b : a; } \
    constexpr T max(T a, T b) { return a < b ? b : a; }
CUDASIM_MINMAX(int)
CUDASIM_MINMAX(unsigned)
CUDASIM_MINMAX(long)
CUDASIM_MINMAX(unsigned long)
CUDASIM_MINMAX(long long)
CUDASIM_MINMAX(unsigned long long)
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }
inline double min(double a, double b) { return fmin(a, b); }
inline double max(double a, double b) { return fmax(a, b); }

template <class T> inline T __ldg(const T *p) { return *p; }
template <class T> inline T __ldcs(const T *p) { return *p; }
template <class T> inline void __stcs(T *p, T value) { *p = value; }

namespace cudasim
{
template <class To, class From> inline To bit_cast(From from)
{
    static_assert(sizeof(To) == sizeof(From), "");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
} // namespace cudasim
inline int __float_as_int(float x) { return ::cudasim::bit_cast<int>(x); }
inline unsigned __float_as_uint(float x) { return ::cudasim::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return ::cudasim::bit_cast<float>(x); }
inline float __uint_as_float(unsigned x) { return ::cudasim::bit_cast<float>(x); }
inline long long __double_as_longlong(double x) { return ::cudasim::bit_cast<long long>(x); }
inline double __longlong_as_double(long long x) { return ::cudasim::bit_cast<double>(x); }

inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>(uint64_t(a) * b >> 32); }
inline int __mulhi(int a, int b) { return static_cast<int>(int64_t(a) * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b)
{
    __extension__ typedef unsigned __int128 wide;
    return static_cast<unsigned long long>(static_cast<wide>(a) * b >> 64);
}
inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x ? __builtin_clz(static_cast<unsigned>(x)) : 32; }
inline int __clzll(long long x) { return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned shift)
{
    return shift & 31 ? hi << (shift & 31) | lo >> (32 - (shift & 31)) : hi;
}

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float __expf(float x) { return expf(x); }
inline float __logf(float x) { return logf(x); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }
inline float sinpif(float x) { return sinf(3.14159265358979323846f * x); }
inline float cospif(float x) { return cosf(3.14159265358979323846f * x); }
inline double sinpi(double x) { return sin(3.14159265358979323846 * x); }
inline double cospi(double x) { return cos(3.14159265358979323846 * x); }
/* Each is rounded, and never contracted with another operation: the simulator is compiled with -ffp-contract=off, or, with
   SIM=fma, the product passes through a register that the compiler knows nothing of. */
template <class real> inline real cudasim_alone(real x)
{
#ifdef __FMA__
    __asm__("" : "+x"(x));
#endif
    return x;
}
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return cudasim_alone(x * y); }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline double __dadd_rn(double x, double y) { return x + y; }
inline double __dsub_rn(double x, double y) { return x - y; }
inline double __dmul_rn(double x, double y) { return cudasim_alone(x * y); }
inline double __ddiv_rn(double x, double y) { return x / y; }
inline double __dsqrt_rn(double x) { return sqrt(x); }
inline double __fma_rn(double x, double y, double z) { return fma(x, y, z); }
/* Conversions to integers saturate, and NaN gives 0 (to 64 bits: the smallest value); in C++ both are undefined. */
inline long long __double2ll_rz(double x)
{
    if (!(x >= -9223372036854775808.0)) return INT64_MIN;
    return x >= 9223372036854775808.0 ? INT64_MAX : static_cast<long long>(x);
}
inline long long __float2ll_rz(float x) { return __double2ll_rz(x); }
inline int __double2int_rz(double x)
{
    if (x != x) return 0;
    return x <= -2147483648.0 ? INT32_MIN : x >= 2147483647.0 ? INT32_MAX : static_cast<int>(x);
}
inline int __float2int_rz(float x) { return __double2int_rz(x); }
inline int __float2int_rn(float x) { return __double2int_rz(rint(static_cast<double>(x))); }
inline int __float2int_rd(float x) { return __double2int_rz(floor(static_cast<double>(x))); }
inline unsigned __float2uint_rz(float x)
{
    return !(x > 0) ? 0u : x >= 4294967296.0f ? UINT32_MAX : static_cast<unsigned>(x);
}
inline unsigned __double2uint_rz(double x)
{
    return !(x > 0) ? 0u : x >= 4294967295.0 ? UINT32_MAX : static_cast<unsigned>(x);
}
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
inline float __ll2float_rn(long long x) { return static_cast<float>(x); }
inline float __ull2float_rn(unsigned long long x) { return static_cast<float>(x); }
inline double __ll2double_rn(long long x) { return static_cast<double>(x); }
inline float __double2float_rn(double x) { return static_cast<float>(x); }

#endif
