/* What a test can ask of the simulator; C and C++.  A program that may also run on real hardware includes this only
   with CUDASIM.

   A .cu file that the simulator can run keeps to these rules: kernels are launched with cudaLaunchKernelEx, never
   <<<>>>; dynamic shared memory is declared by one macro that is CUDASIM_DYN_SHARED(T, name) here; every thread of a
   block reaches every __syncthreads; shuffles name their mask; blocks talk to each other through atomics alone and
   never wait; PTX stands only in #ifdef __CUDA_ARCH__ with an equal #else.

   Environment:
     TG_SIM_DEVICES=n          pretend devices (2); 0 is a machine without one
     TG_SIM_ORDER=...          order of threads and blocks: fwd, rev, rand:seed, greedy:seed (one warp runs ahead)
     TG_SIM_STREAMS=...        lazy: only what is waited for has run; others: all that need not wait runs first; eager
     TG_SIM_MEMORY=bytes       memory of each device (1 GiB)
     TG_SIM_FAIL_ALLOC=n       the n-th allocation of device memory fails, from 0
     TG_SIM_PEER=0             devices cannot reach each other
     TG_SIM_STRICT=1           errors, too: pageable memory in cudaMemcpyAsync; cuBLAS with atomics or a shared workspace
     TG_SIM_STREAM_CHECK=0     no report of uses in two streams that nothing orders (for a pool that cuts one up)
     TG_SIM_KEEP_GOING=1       count errors and exit with 99 at the end; otherwise the first one ends the program
     TG_SIM_LEAKS=1            what is still allocated at the end is an error */
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
    CUDASIM_PENDING_OPERATIONS
} cudasim_count;

size_t cudasim_live(cudasim_count what);
long cudasim_launches(void); /* kernels that ran */

/* Errors reported so far, set to 0 by asking; only with keep_going does a program live to ask. */
int cudasim_take_errors(void);
const char *cudasim_last_error(void);
void cudasim_keep_going(int on);

void cudasim_limit_memory(int device, size_t bytes);
void cudasim_fail_allocation(long n);                        /* the n-th from now, 0 the next; -1 none */
void cudasim_ask_allocation(int (*may)(void));               /* asked at each one, NULL: no more; 0 lets it fail */
void cudasim_fail_call(const char *name, long n, int error); /* the n-th call of this function from now gives error */
long cudasim_failure_left(void);                             /* calls until it does; below 0 when it has */
int cudasim_schedule(const char *order,
                     const char *streams); /* as the environment; NULL: unchanged; 0 if not understood */

#ifdef __cplusplus
}
#endif
#endif
