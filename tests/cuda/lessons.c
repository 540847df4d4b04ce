/* The kernels that comments of tensorgrad_cuda.cu show first, as ../ci/lessons.py takes them from there, compute what the
 * library's do.  lesson_NAME copies its arguments to the device, launches the kernel, and copies the result back. */
#include "tensorgrad.h"
#include "../harness.h"
#include "../helpers.h"

#ifdef __cplusplus
extern "C" {
#endif
void lesson_exp_of(const float *x, float *y, int n);
void lesson_layer_norm(const float *x, const float *weight, const float *bias, float *y, int rows, int n, float eps);
#ifdef __cplusplus
}
#endif

enum { ROWS = 300, N = 37 }; /* more than a block, and no multiple of a warp */

static bool near_all(const float *y, tg_tensor *wanted)
{
    const float *w = tg_data_f32(tg_cpu(wanted));
    for (int i = 0; w && i < ROWS * N; ++i) {
        if (fabs((double)y[i] - (double)w[i]) <= 1e-5 * (1 + fabs((double)w[i]))) continue;
        printf("    element %d is %.9g, not %.9g\n", i, (double)y[i], (double)w[i]);
        return false;
    }
    return w != NULL;
}

TEST(first_kernel)
{
    static float y[ROWS * N];
    tg_tensor *x = tg_randn(TG_SHAPE(ROWS, N));
    lesson_exp_of(tg_data_f32(x), y, ROWS * N);
    CHECK(near_all(y, tg_exp(tg_to(x, TG_CUDA(0)))));
}

TEST(first_layer_norm)
{
    static float y[ROWS * N];
    tg_tensor *x = tg_randn(TG_SHAPE(ROWS, N)), *weight = tg_randn(TG_SHAPE(N)), *bias = tg_randn(TG_SHAPE(N));
    lesson_layer_norm(tg_data_f32(x), tg_data_f32(weight), tg_data_f32(bias), y, ROWS, N, 1e-5f);
    CHECK(near_all(y, tg_layer_norm(tg_to(x, TG_CUDA(0)), 1, tg_to(weight, TG_CUDA(0)), tg_to(bias, TG_CUDA(0)), 1e-5)));
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    RUN(first_kernel);
    RUN(first_layer_norm);
    return harness_end();
}
