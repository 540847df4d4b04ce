/* The roofs: see roof.h.  The instructions are chosen while the program runs, so that a plain `cc -O2` builds this. */
#if !defined(_WIN32) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#endif
#include "roof.h"
#include <stddef.h>
#include <string.h>
#include <time.h>
#if defined(__GNUC__) && defined(__x86_64__)
#include <immintrin.h>
#define X86 1
#elif defined(__GNUC__) && defined(__aarch64__)
#include <arm_neon.h>
#define NEON 1
#endif

/* Rounds of one call on one thread: less than a millisecond. */
enum { ROUNDS = 50000, SUMS = 12 };

/* Twelve sums that do not depend on one another are more than latency times units of any processor so far. */
#define TWELVE(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)
#define DECLARE(i) sum##i = SET((float)i),
#define ADVANCE(i) sum##i = FMA(sum##i, x, y);
#define COLLECT(i) x = ADD(x, sum##i);
#define KERNEL(ATTRIBUTE, NAME, VECTOR, STORE)                                                                         \
    ATTRIBUTE static float NAME(void)                                                                                  \
    {                                                                                                                  \
        VECTOR TWELVE(DECLARE) x = SET(0.999f), y = SET(0.001f);                                                       \
        float out[16];                                                                                                 \
        for (int i = 0; i < ROUNDS; ++i) {                                                                             \
            TWELVE(ADVANCE)                                                                                            \
        }                                                                                                              \
        TWELVE(COLLECT)                                                                                                \
        STORE(out, x);                                                                                                 \
        return out[0];                                                                                                 \
    }

#ifdef X86
#define SET _mm512_set1_ps
#define FMA _mm512_fmadd_ps
#define ADD _mm512_add_ps
KERNEL(__attribute__((target("avx512f"))), fma_avx512, __m512, _mm512_storeu_ps)
#undef SET
#undef FMA
#undef ADD
#define SET _mm256_set1_ps
#define FMA _mm256_fmadd_ps
#define ADD _mm256_add_ps
KERNEL(__attribute__((target("avx2,fma"))), fma_avx2, __m256, _mm256_storeu_ps)
#undef SET
#undef FMA
#undef ADD
#define SET _mm_set1_ps
#define FMA(a, b, c) _mm_add_ps(_mm_mul_ps(a, b), c)
#define ADD _mm_add_ps
KERNEL(, fma_plain, __m128, _mm_storeu_ps)
#define PLAIN_NAME "SSE"
#define PLAIN_LANES 4
#elif defined(NEON)
#define SET vdupq_n_f32
#define FMA(a, b, c) vfmaq_f32(c, a, b)
#define ADD vaddq_f32
KERNEL(, fma_plain, float32x4_t, vst1q_f32)
#define PLAIN_NAME "NEON"
#define PLAIN_LANES 4
#else
#define SET(value) (value)
#define FMA(a, b, c) ((a) * (b) + (c))
#define ADD(a, b) ((a) + (b))
#define STORE_ONE(out, value) ((out)[0] = (value))
KERNEL(, fma_plain, float, STORE_ONE)
#define PLAIN_NAME "portable"
#define PLAIN_LANES 1
#endif

static const struct { const char *name; int lanes; float (*run)(void); } kernels[] = {
    {PLAIN_NAME, PLAIN_LANES, fma_plain},
#ifdef X86
    {"AVX2", 8, fma_avx2},
    {"AVX-512", 16, fma_avx512},
#endif
};
enum { KERNELS = sizeof kernels / sizeof *kernels };

static bool runs_here(int kernel)
{
#ifdef X86
    if (kernel == 1) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (kernel == 2) return __builtin_cpu_supports("avx512f");
#endif
    return kernel == 0;
}

static volatile float sink;

double seconds_now(void)
{
#ifdef _WIN32
    return (double)clock() / (double)CLOCKS_PER_SEC;
#else
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
#endif
}

/* The fastest kernel: wide instructions lower the clock of some processors. */
static int best_kernel(void)
{
    static int best = -1;
    double most = 0;
    if (best >= 0) return best;
    for (int kernel = best = 0; kernel < KERNELS; ++kernel) {
        double least = 1;
        for (int i = 0; i < 20 && runs_here(kernel); ++i) {
            const double begun = seconds_now();
            sink = kernels[kernel].run();
            const double spent = seconds_now() - begun;
            if (spent < least) least = spent;
        }
        if (!runs_here(kernel) || kernels[kernel].lanes / least <= most) continue;
        most = kernels[kernel].lanes / least;
        best = kernel;
    }
    return best;
}

const char *roof_instructions(void) { return kernels[best_kernel()].name; }

double roof_fma(int threads)
{
    const int kernel = best_kernel();
#ifdef _OPENMP
#pragma omp parallel num_threads(threads)
#else
    threads = 1;
#endif
    sink = kernels[kernel].run();
    return 2.0 * ROUNDS * SUMS * kernels[kernel].lanes * threads;
}

#ifdef X86
/* 128 bytes at a time; returns how many floats that were.  memcpy may choose instructions that begin slowly. */
#define COPY_KERNEL(NAME, STORE)                                                                                       \
    __attribute__((target("avx"))) static int64_t NAME(float *dst, const float *src, int64_t n)                        \
    {                                                                                                                  \
        int64_t i = 0;                                                                                                 \
        for (; i + 32 <= n; i += 32) {                                                                                 \
            STORE(dst + i, _mm256_loadu_ps(src + i));                                                                  \
            STORE(dst + i + 8, _mm256_loadu_ps(src + i + 8));                                                          \
            STORE(dst + i + 16, _mm256_loadu_ps(src + i + 16));                                                        \
            STORE(dst + i + 24, _mm256_loadu_ps(src + i + 24));                                                        \
        }                                                                                                              \
        _mm_sfence();                                                                                                  \
        return i;                                                                                                      \
    }
COPY_KERNEL(copy_plain, _mm256_store_ps)
COPY_KERNEL(copy_stream, _mm256_stream_ps)
#endif

static void copy_part(float *dst, const float *src, int64_t n, bool stream)
{
    int64_t done = 0;
#ifdef X86
    if (__builtin_cpu_supports("avx")) {
        for (; done < n && ((uintptr_t)(dst + done) & 31); ++done) dst[done] = src[done];
        done += (stream ? copy_stream : copy_plain)(dst + done, src + done, n - done);
    }
#endif
    (void)stream;
    memcpy(dst + done, src + done, (size_t)(n - done) * sizeof *dst);
}

void roof_copy(float *dst, const float *src, int64_t n, int times, bool stream, int threads)
{
#ifdef _OPENMP
#pragma omp parallel for num_threads(threads)
#else
    threads = 1;
#endif
    for (int i = 0; i < threads; ++i) {
        const int64_t from = n * i / threads, to = n * (i + 1) / threads;
        for (int k = 0; k < times; ++k) copy_part(dst + from, src + from, to - from, stream);
    }
}
