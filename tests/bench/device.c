/* What a GPU does with the library: the cost of a launch, GB/s of its memory and of moves, GFLOP/s of matmul.  Each figure
 * is the median of several runs after one that does not count.
 *
 *     device           on the current GPU
 *     device tiny      in sizes for the simulator, where the times mean nothing
 *     device names     which figures there are, without a GPU */
#if !defined(_WIN32) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L /* clock_gettime */
#endif
#define TENSORGRAD_IMPLEMENTATION
#include "tensorgrad.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { RUNS = 7, REPEATS = 10 };

static int64_t count = (int64_t)64 << 20, side = 4096, launches = 10000;
static tg_device gpu;
static tg_tensor *one, *a, *b, *pageable, *pinned, *square, *square_bf16;

/* Each asks the device for work and returns how much, in what its unit counts. */

static double launch(void)
{
    for (int64_t i = 0; i < launches; ++i) {
        TG_SCOPE;
        tg_add(one, one);
    }
    return (double)launches;
}

static double bytes(int tensors) { return (double)tensors * (double)count * sizeof(float); }
static double add(void) { return tg_add(a, b), bytes(3); }
static double copy(void) { return tg_clone(a), bytes(2); }
static double sum(void) { return tg_sum(a), bytes(1); }
static double there(void) { return tg_to(pageable, gpu), bytes(1); }
static double there_pinned(void) { return tg_to_ex(pinned, gpu, TG_F32, TG_NON_BLOCKING), bytes(1); }
static double back(void) { return tg_cpu(a), bytes(1); }
static double back_pinned(void) { return tg_to_ex(a, TG_CPU, TG_F32, TG_NON_BLOCKING), bytes(1); }

static double flops(void) { return 2.0 * (double)side * (double)side * (double)side; }
static double matmul(void) { return tg_matmul(square, square), flops(); }
static double matmul_tf32(void)
{
    tg_set_matmul_precision(TG_PRECISION_TF32);
    tg_matmul(square, square);
    tg_set_matmul_precision(TG_PRECISION_F32);
    return flops();
}
static double matmul_bf16(void) { return tg_matmul(square_bf16, square_bf16), flops(); }

static const struct { const char *name, *unit; double (*work)(void); } figures[] = {
    {"an op of one element, queued", "ns", launch},
    {"add, 64 Mi f32", "GB/s", add},
    {"copy, 64 Mi f32", "GB/s", copy},
    {"sum, 64 Mi f32", "GB/s", sum},
    {"matmul 4096, f32", "GFLOP/s", matmul},
    {"matmul 4096, f32 as TF32", "GFLOP/s", matmul_tf32},
    {"matmul 4096, bf16", "GFLOP/s", matmul_bf16},
    {"CPU to GPU, 256 MiB, pageable", "GB/s", there},
    {"CPU to GPU, 256 MiB, pinned", "GB/s", there_pinned},
    {"GPU to CPU, 256 MiB, pageable", "GB/s", back},
    {"GPU to CPU, 256 MiB, pinned", "GB/s", back_pinned},
};
enum { FIGURES = sizeof figures / sizeof *figures };

static double now(void)
{
    struct timespec time;
    tg_synchronize(gpu);
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int ascending(const void *x, const void *y)
{
    const double d = *(const double *)x - *(const double *)y;
    return (d > 0) - (d < 0);
}

/* Median seconds for one unit of work. */
static double measure(double (*work)(void))
{
    double seconds[RUNS + 1];
    for (int run = 0; run <= RUNS; ++run) {
        double done = 0;
        const double begun = now();
        for (int i = 0; i < REPEATS; ++i) {
            TG_SCOPE;
            done += work();
        }
        seconds[run] = (now() - begun) / done;
    }
    qsort(seconds + 1, RUNS, sizeof *seconds, ascending); /* the first run found cold caches */
    return seconds[1 + RUNS / 2];
}

static void make_tensors(void)
{
    TG_SCOPE;
    one = tg_retain(tg_ones_on(TG_SHAPE(1), TG_F32, gpu));
    a = tg_retain(tg_rand_on(TG_SHAPE(count), TG_F32, gpu));
    b = tg_retain(tg_rand_on(TG_SHAPE(count), TG_F32, gpu));
    pageable = tg_retain(tg_cpu(a));
    pinned = tg_retain(tg_pin_memory(pageable));
    square = tg_retain(tg_randn_on(TG_SHAPE(side, side), TG_F32, gpu));
    square_bf16 = tg_retain(tg_to_dtype(square, TG_BF16));
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "";
    if (!strcmp(mode, "tiny")) count = 5000, side = 48, launches = 20;
    gpu = TG_CUDA(tg_cuda_current_device());
    if (strcmp(mode, "names")) make_tensors();
    for (int i = 0; i < FIGURES && tg_ok(); ++i) {
        const double seconds = strcmp(mode, "names") ? measure(figures[i].work) : 0;
        printf("%-32s ", figures[i].name);
        if (seconds == 0) printf("not run\n");
        else printf("%.1f %s\n", strcmp(figures[i].unit, "ns") ? 1e-9 / seconds : 1e9 * seconds, figures[i].unit);
    }
    tg_release(one), tg_release(a), tg_release(b), tg_release(pageable), tg_release(pinned), tg_release(square);
    tg_release(square_bf16);
    return !tg_ok() || tg_shutdown() != TG_OK;
}
