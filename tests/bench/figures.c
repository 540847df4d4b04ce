/* What an op costs beside its arithmetic: nanoseconds per op and per node, and calls of the allocator per training step.
 * Each time is the best of several, in processor time of one thread. */
#define TENSORGRAD_IMPLEMENTATION
#include "tensorgrad.h"
#include <stdio.h>
#include <time.h>

enum { TIMES = 7, OPS = 20000, NODES = 1000, STEPS = 50 };

static double now(void)
{
    return (double)clock() / (double)CLOCKS_PER_SEC;
}

/* An op of one element that is recorded, with its scope. */
static double seconds_per_add(bool grad)
{
    tg_tensor *a = tg_param(tg_ones(TG_SHAPE(1))), *b = tg_param(tg_ones(TG_SHAPE(1)));
    double best = 1, begun;
    int k, i, j;
    if (!grad) tg_set_requires_grad(a, false), tg_set_requires_grad(b, false);
    for (k = 0; k < TIMES; ++k) {
        begun = now();
        for (i = 0; i < OPS / 100; ++i) {
            TG_SCOPE;
            for (j = 0; j < 100; ++j) (void)tg_add(a, b);
        }
        begun = (now() - begun) / OPS;
        if (begun < best) best = begun;
    }
    tg_release(a), tg_release(b);
    return best;
}

/* Backward through a chain of ops of one element. */
static double seconds_per_node(void)
{
    tg_tensor *x = tg_param(tg_ones(TG_SHAPE(1))), *y;
    double best = 1, spent, begun;
    int k, i, j;
    for (k = 0; k < TIMES; ++k) {
        spent = 0;
        for (j = 0; j < OPS / NODES; ++j) {
            TG_SCOPE;
            for (y = x, i = 0; i < NODES; ++i) y = tg_mul_scalar(y, 1);
            begun = now();
            tg_backward(tg_sum(y));
            spent += now() - begun;
        }
        if (spent / OPS < best) best = spent / OPS;
    }
    tg_release(x);
    return best;
}

static double multiplications_per_second(int n)
{
    tg_tensor *a = tg_retain(tg_randn(TG_SHAPE(n, n)));
    double best = 1, begun;
    int k;
    for (k = 0; k < TIMES; ++k) {
        TG_SCOPE;
        begun = now();
        (void)tg_matmul(a, a);
        begun = now() - begun;
        if (begun < best) best = begun;
    }
    tg_release(a);
    return 2.0 * n * n * n / best;
}

/* A training step of a small network: seconds, and calls of the allocator in all steps after the second. */
static double seconds_per_step(int64_t *allocations)
{
    tg_tensor *w1 = tg_param(tg_randn(TG_SHAPE(64, 32))), *b1 = tg_param(tg_zeros(TG_SHAPE(64)));
    tg_tensor *w2 = tg_param(tg_randn(TG_SHAPE(10, 64))), *b2 = tg_param(tg_zeros(TG_SHAPE(10)));
    tg_tensor *x = tg_retain(tg_randn(TG_SHAPE(16, 32))), *target = tg_retain(tg_randint(0, 10, TG_SHAPE(16)));
    tg_tensor *params[4];
    tg_optim *opt;
    double begun = now();
    int step;
    params[0] = w1, params[1] = b1, params[2] = w2, params[3] = b2;
    opt = tg_adamw(params, 4, 1e-3);
    *allocations = 0;
    for (step = 0; step < STEPS; ++step) {
        TG_SCOPE;
        tg_tensor *h = tg_relu(tg_linear(x, w1, b1)), *loss = tg_cross_entropy(tg_linear(h, w2, b2), target);
        if (step == 2) *allocations = tg_stats().allocations, begun = now();
        tg_optim_zero_grad(opt);
        tg_backward(loss);
        tg_clip_grad_norm(params, 4, 1);
        tg_step(opt);
    }
    begun = (now() - begun) / (STEPS - 2);
    *allocations = tg_stats().allocations - *allocations;
    tg_optim_free(opt);
    tg_release(w1), tg_release(b1), tg_release(w2), tg_release(b2), tg_release(x), tg_release(target);
    return begun;
}

int main(void)
{
    int64_t allocations;
    double step;
    tg_set_num_threads(1);
    printf("add of one element         %8.1f ns\n", 1e9 * seconds_per_add(false));
    printf("the same, recorded         %8.1f ns\n", 1e9 * seconds_per_add(true));
    printf("backward, per node         %8.1f ns\n", 1e9 * seconds_per_node());
    printf("matmul 512 x 512 x 512     %8.1f GFLOP/s, one thread\n", 1e-9 * multiplications_per_second(512));
    step = seconds_per_step(&allocations);
    printf("step of a small network    %8.1f us\n", 1e6 * step);
    printf("mallocs per step           %8lld after the second step\n", (long long)allocations);
    return tg_shutdown() != TG_OK || !tg_ok();
}
