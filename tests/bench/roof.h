/* What the processor can do at most: multiply-adds per second, and bytes copied per second.  Every figure of the
 * benchmark is compared with these two, measured in the same run. */
#ifndef ROOF_H
#define ROOF_H

#include <stdbool.h>
#include <stdint.h>

/* Does independent multiply-adds of f32 in registers on some threads, with the widest instructions that run fastest
   here, and returns how many floating point operations that were (a multiply-add is two). */
double roof_fma(int threads);
/* The instructions that roof_fma uses: "AVX2", for example. */
const char *roof_instructions(void);
/* Copies n floats some times, on some threads; stream: with stores that do not go through the caches, where there are
   such. */
void roof_copy(float *dst, const float *src, int64_t n, int times, bool stream, int threads);

/* Seconds of a clock that only goes forward. */
double seconds_now(void);

#endif
