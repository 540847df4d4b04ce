/* cudasim, the CUDA simulator: runs tensorgrad_cuda.cu on a machine without a GPU, and finds mistakes in it.  This
   header is what a test may call, in C and C++.  A program that may also run on a GPU includes it only where CUDASIM is
   defined.

   What it does.  The headers cuda_runtime.h, cublas_v2.h, cublasLt.h, cuda_fp16.h and cuda_bf16.h of this folder replace
   NVIDIA's, so that a C++ compiler compiles the .cu file: a kernel is an ordinary function.  cudasim.cpp implements the
   CUDA runtime: it calls the function once for each thread, block by block, and implements streams, events, graphs,
   device memory and page-locked memory.  cublas.cpp implements the matrix products of cuBLAS and cuBLASLt.  Nothing runs
   in parallel; the order of threads, blocks and streams can be chosen, and a correct program gives the same bits in
   each.  nccl.h and nccl.cpp are NCCL between threads of one process, each with a device of its own.

   What it checks, always: memory is used on its own device, between allocation and free, and within its bounds; the
   host does not touch device memory, nor page-locked memory while a copy uses it; what two streams do to one allocation
   is ordered by an event or a wait; all threads of a block reach the same __syncthreads, all lanes of a mask the same
   warp function; handles are valid.  With SIM=asan: mistakes that AddressSanitizer finds.  With SIM=check, each load
   and store of a kernel as well: races between threads, memory that was never written, bounds to the byte.  An error is
   printed with its place in the source and ends the program with exit code 99.

   How to run it:
     make sim MAIN=tests/test_ops.c OUT=ops [SIM=plain|asan|fma|check|ptx]
     TG_SIM_DEVICES=2 TG_TEST_DEVICE=cuda:0 ./ops
     make sim-selftest         tests the simulator: correct programs run, and each of a list of mistakes is found
     make sim-conform          compares the headers with NVIDIA's, where they are installed
     make sim-counts           what a training step asks of a GPU: launches, allocations, waits, megabytes

   A .cu file that the simulator can run keeps these rules: kernels are launched with cudaLaunchKernelEx, never with
   <<<>>>; dynamic shared memory is declared by one macro, which is CUDASIM_DYN_SHARED(T, name) here; all threads of a
   block reach each __syncthreads; blocks communicate through atomics only and never wait for each other; PTX stands in
   #ifdef __CUDA_ARCH__, with C++ that does the same in #else.

   Environment variables, the first four with their defaults:
     TG_SIM_DEVICES=2          the number of devices; 0: a machine without a GPU
     TG_SIM_ORDER=fwd          order of threads and blocks: fwd, rev, rand:seed, or greedy:seed (one warp runs as far as
                               it can)
     TG_SIM_BLOCKS=1           so many blocks run at a time and take turns at each __syncthreads (needs a build by
                               clang++: SIM=fma, SIM=check)
     TG_SIM_STREAMS=lazy       when the work in streams runs.  lazy: when something waits for it; others: likewise, but
                               all other streams run first; eager: at once
     TG_SIM_ARCH=80            the compute capability that kernels were compiled for
     TG_SIM_CAPABILITY=86      that of the devices; 90: attention runs by the kernels for sm_90a
     TG_SIM_MEMORY=bytes       memory of each device (1 GiB)
     TG_SIM_FAIL_ALLOC=n       the n-th allocation of device memory fails, counted from 0
     TG_SIM_PEER=0             devices cannot access each other's memory
     TG_SIM_STRICT=1           also errors: pageable memory in cudaMemcpyAsync; cuBLAS with atomics or without a
                               workspace of its own; a kernel that uses another device's memory, even with peer access
     TG_SIM_STREAM_CHECK=0     does not check that streams are ordered (for a memory pool that divides one allocation)
     TG_SIM_REUSE=1            freed memory is handed out again at once, as on a GPU: by cudaMallocAsync, what the
                               stream freed last of the same size; by tensorgrad_cuda.cu, the blocks that it keeps
                               (TG_CUDA_PASS_THROUGH is 0 then, if it is not set).  Words of 0xffdd fill it when it is
                               freed, of 0xffaa when it is handed out, in the order of the stream and in each replay of
                               a graph: NaN in every float type.  So a kernel that reads memory that was freed, or not
                               written yet, gives a wrong number; with SIM=check it is an error
     TG_CUDA_PASS_THROUGH=1    set by the simulator unless it is set already.  With 0, tensorgrad_cuda.cu keeps freed
                               blocks and uses them again, as it does on a GPU: then no use of a freed block is found
     TG_SIM_PTX=1              with SIM=ptx: launches go to the interpreter of PTX in tests/ptx, which runs what nvcc
                               compiled; or the name of the file of PTX.  TG_SIM_PTX_SEED=n: the order of warps and
                               blocks; TG_SIM_PTX_LOG=file: the names of the kernels that it ran are added there;
                               TG_SIM_PTX_COUNTS=file: a line for each, its launches and the instructions of its warps,
                               as ptxas makes them with TG_SIM_PTX_MACHINE=file (tests/bench/machine.py)
     TG_SIM_KEEP_GOING=1       counts errors and exits with 99 at the end, instead of at the first error
     TG_SIM_LEAKS=1            what is still allocated at the end is an error
     TG_SIM_REPORT=file        with SIM=check: writes a line for each kernel: its launches; the bytes of global memory
                               that it reads and writes, where the lanes of a warp that ask for the same bytes in one
                               instruction count once; the sectors of 32 bytes that this moves, divided by the least
                               that hold as many bytes; the conflicts between banks of shared memory; the longest loop
                               of a thread.  What CUDASIM_CHECK_ALIGNED announces counts as one access.  Products, by
                               their sizes, copies and fills have lines of their own */
#ifndef CUDASIM_TEST_H
#define CUDASIM_TEST_H

#include <stddef.h>

#define CUDASIM_EXIT_CODE 99

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    CUDASIM_DEVICE_ALLOCATIONS,
    CUDASIM_DEVICE_BYTES,
    CUDASIM_PINNED_BUFFERS,
    CUDASIM_STREAMS,
    CUDASIM_EVENTS,
    CUDASIM_GRAPHS,
    CUDASIM_CUBLAS_HANDLES,
    CUDASIM_PENDING_OPERATIONS,
    CUDASIM_CONTEXTS, /* devices that have one, which on a GPU takes hundreds of megabytes; as from CUDA 12 on */
    CUDASIM_COMMUNICATORS /* of NCCL */
} cudasim_count;

size_t cudasim_live(cudasim_count what);

/* Totals since the program began, on all devices, of the work that has run. */
typedef enum {
    CUDASIM_KERNELS,
    CUDASIM_LIBRARY_CALLS,      /* products by cuBLAS and cuBLASLt */
    CUDASIM_COPIES,             /* and fills, by the runtime */
    CUDASIM_DRIVER_ALLOCATIONS, /* of device memory */
    CUDASIM_WAITS,              /* of the host for the device */
    CUDASIM_BYTES,   /* read and written in device memory by copies and, with TG_SIM_REPORT, by kernels */
    CUDASIM_ACCESSES /* with TG_SIM_REPORT: loads and stores of device memory by warps */
} cudasim_total_of;
long long cudasim_total(cudasim_total_of what);
/* With TG_SIM_REPORT or TG_SIM_PTX_COUNTS: kernels that run from now on are in the report, or are not. */
void cudasim_report(int on);

/* The number of errors since the last call.  Without cudasim_keep_going the first error ends the program. */
int cudasim_take_errors(void);
const char *cudasim_last_error(void);
void cudasim_keep_going(int on);

void cudasim_limit_memory(int device, size_t bytes);
/* The n-th allocation of device memory from now on fails; 0 is the next one, -1 none. */
void cudasim_fail_allocation(long n);
/* Calls may() at each allocation of device memory, which fails if it returns 0.  NULL: no longer. */
void cudasim_ask_allocation(int (*may)(void));
/* The n-th call of the function `name` from now on returns `error` (a function of cuBLAS: a status of its own). */
void cudasim_fail_call(const char *name, long n, int error);
/* The n-th call of that function of the runtime returns success and does nothing, as if a program had forgotten it. */
void cudasim_skip_call(const char *name, long n);
/* As after a fault of the device: every call returns this error from now on, until the error is 0. */
void cudasim_fault(int error);
/* The same from the n-th kernel on that runs from now on, 0 is the next: it and all work after it do nothing.  The error
   comes from the call that waits for the kernel, and from every later one. */
void cudasim_fault_in_kernel(long n, int error);
/* Calls of that function before the one that fails; negative once it has failed. */
long cudasim_failure_left(void);
/* From now on events measure a pretended clock, that only these take time of, in milliseconds; NULL: the real clock,
   where the times of the simulator mean nothing.  Work of two streams takes the same time, where nothing orders it.  A
   product by algorithm number i of those that cuBLASLt answers takes milliseconds[CUDASIM_TIME_OF_ALGORITHM + i], and
   with an epilogue milliseconds[CUDASIM_TIME_OF_EPILOGUE] more. */
enum {
    CUDASIM_TIME_OF_KERNEL,
    CUDASIM_TIME_OF_COPY,
    CUDASIM_TIME_OF_CUBLAS, /* a product by cuBLAS */
    CUDASIM_TIME_OF_EPILOGUE,
    CUDASIM_TIME_OF_ALGORITHM,
    CUDASIM_ALGORITHMS = 4,
    CUDASIM_TIMES = CUDASIM_TIME_OF_ALGORITHM + CUDASIM_ALGORITHMS
};
void cudasim_pretend_times(const double *milliseconds);
/* The pretended time since then, at which the last of what the host has waited for had ended. */
double cudasim_pretended_time(void);
/* The number of the algorithm of the last product that ran, -1: of cuBLAS. */
int cudasim_last_algorithm(void);
/* The collectives of NCCL that were asked for, of all ranks in this process: [at], in the order of the calls. */
typedef struct {
    const char *call; /* "ncclAllReduce" */
    int rank, type, root, device, stream; /* type: ncclDataType_t; root: -1 where there is none; stream: its number */
    size_t count;
} cudasim_collective;
size_t cudasim_collectives(void);
cudasim_collective cudasim_collective_at(size_t at);
/* From now on communicators are in this state (ncclResult_t), as after a failure on the way; 0: in their own. */
void cudasim_fail_collectives(int error);
/* Sets TG_SIM_ORDER and TG_SIM_STREAMS; NULL leaves one unchanged.  Returns 0 for a value that does not exist. */
int cudasim_schedule(const char *order, const char *streams);

#ifdef __cplusplus
}
#endif
#endif
