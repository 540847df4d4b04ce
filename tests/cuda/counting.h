/* How many kernels ran and what they moved, as the simulator counts it, for the tests of the CUDA backend.  On a GPU
   nothing is counted: COUNTED is 0, and so is each total. */
#ifndef COUNTING_H
#define COUNTING_H

#include "../harness.h"
#ifdef CUDASIM
#include "cudasim_test.h"
#define TOTAL(what) ((long)cudasim_total(what))
enum { COUNTED = 1 };
#else
enum { CUDASIM_KERNELS, CUDASIM_LIBRARY_CALLS, CUDASIM_BYTES, CUDASIM_ACCESSES };
#define TOTAL(what) ((void)(what), 0L)
enum { COUNTED = 0 };
#endif

static inline long kernels_so_far(void) { return TOTAL(CUDASIM_KERNELS); }

/* Kernels with calls of cuBLAS, and bytes, when start_counting was called last. */
static long launches_before, bytes_before;

static inline void start_counting(void)
{
    tg_synchronize(TG_CUDA(0));
    launches_before = kernels_so_far() + TOTAL(CUDASIM_LIBRARY_CALLS);
    bytes_before = TOTAL(CUDASIM_BYTES);
}

/* The launches since then, of work that is done. */
static inline long launched(void) { return kernels_so_far() + TOTAL(CUDASIM_LIBRARY_CALLS) - launches_before; }

/* Whether there have been so many launches since then at most, which moved so many bytes at most; prints what there was
   if not.  Bytes are known with TG_SIM_REPORT alone, else they are 0. */
static inline bool at_most(long launches, double bytes)
{
    tg_synchronize(TG_CUDA(0));
    const long ran = launched();
    const double moved = (double)(TOTAL(CUDASIM_BYTES) - bytes_before);
    if (ran <= launches && moved <= bytes) return true;
    printf("    %ld launches, %.4g bytes; at most %ld, %.4g\n", ran, moved, launches, bytes);
    return false;
}

#endif
