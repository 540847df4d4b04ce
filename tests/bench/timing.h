/* Times each launch of a GPU: kernels, products by cuBLAS and cuBLASLt, copies and fills.  The linker exchanges the
   functions of CUDA for those of timing.cpp, by the argument @tests/bench/timing.options, so that the library needs no
   change. */
#ifndef TIMING_H
#define TIMING_H

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* From now on each launch is timed, by an event behind it in its stream; of one thread and one stream.  The GPU begins
   when timing_end is called, or after a twentieth of a second, so that it does not wait for the host between two
   kernels. */
void timing_begin(void);
/* Waits for the GPU and prints a line for each kernel, "LAUNCHES MILLISECONDS NAME | DETAILS", where the time runs from
   the end of the launch before to the end of this one.  Returns false if an event failed. */
int timing_end(FILE *file);

#ifdef __cplusplus
}
#endif
#endif
