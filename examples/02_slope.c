/* 02_slope.c: the slope of a function, from two nearby values and from the tape.

   READ    numeric() and analytic(), the same question asked twice; then the table: why one of the answers gets worse
           when the step gets very small.
   CHANGE  the function and the point; the range of h.
   PRINTS  the slope at 3 of 3x^2 - 4x + 5, which is 14; then, for x^3 at 1.3, the relative error of
           (f(x + h) - f(x - h)) / 2h.  It falls as h^2 (the curve bends) until what rounding does to f, divided by 2h,
           takes over and it rises as 1/h: a U.  In f64 the best is about 1e-11, in f32 about 1e-5: gradients are
           checked in f64.  Last, every slope of a small network both ways, and a kink, where two answers are right. */
#define TENSORGRAD_IMPLEMENTATION
#include "../tensorgrad.h"
#include <math.h>
#include <stdio.h>

typedef tg_tensor *(*function)(tg_tensor *x);

static tg_tensor *parabola(tg_tensor *x) /* 3x^2 - 4x + 5 */
{
    return tg_add_scalar(tg_sub(tg_mul_scalar(tg_mul(x, x), 3), tg_mul_scalar(x, 4)), 5);
}

static tg_tensor *cube(tg_tensor *x) { return tg_mul(tg_mul(x, x), x); }

/* A network of fixed weights: x [4] -> tanh of 3 sums -> the mean of their squares. */
static tg_tensor *network(tg_tensor *x)
{
    tg_tensor *weights = tg_reshape(tg_linspace(-1, 1, 12), TG_SHAPE(3, 4));
    tg_tensor *hidden = tg_tanh(tg_linear(x, weights, NULL));
    return tg_mean(tg_mul(hidden, hidden));
}

/* The slope along element i of x: the difference of two values, over the distance. */
static double numeric(function f, tg_tensor *x, int64_t i, double h)
{
    TG_SCOPE;
    TG_NO_GRAD;
    tg_tensor *right = tg_clone(x), *left = tg_clone(x);
    tg_set(right, TG_INDEX(i), tg_get(x, TG_INDEX(i)) + h);
    tg_set(left, TG_INDEX(i), tg_get(x, TG_INDEX(i)) - h);
    return (tg_item(f(right)) - tg_item(f(left))) / (2 * h);
}

/* The same from the tape: one backward gives the slopes along every element. */
static tg_tensor *analytic(function f, tg_tensor *x)
{
    tg_set_grad(x, NULL);
    tg_backward(f(x));
    return tg_grad(x);
}

static tg_tensor *variable(double value, tg_dtype dtype)
{
    return tg_set_requires_grad(tg_full_on(TG_SHAPE(1), value, dtype, TG_CPU), true);
}

static double relative_error(function f, double at, double h, tg_dtype dtype)
{
    TG_SCOPE;
    tg_tensor *x = variable(at, dtype);
    const double exact = tg_item(analytic(f, x));
    return fabs(numeric(f, x, 0, h) - exact) / fabs(exact);
}

int main(void)
{
    TG_SCOPE;
    tg_set_default_dtype(TG_F64);
    tg_tensor *x = variable(3, TG_F64);
    printf("3x^2 - 4x + 5 at 3: numeric %.6f, analytic %.6f\n\n", numeric(parabola, x, 0, 1e-3),
           tg_item(analytic(parabola, x)));

    printf("relative error of the numeric slope of x^3 at 1.3\n   h      f64      f32\n");
    double h = 0.1;
    for (int k = 1; k <= 12; ++k, h /= 10)
        printf("1e-%02d  %7.0e  %7.0e\n", k, relative_error(cube, 1.3, h, TG_F64),
               relative_error(cube, 1.3, h, TG_F32));

    tg_tensor *four = tg_set_requires_grad(tg_linspace(-0.5, 1, 4), true), *slopes = analytic(network, four);
    double worst = 0;
    printf("\nnetwork, h = 1e-5   numeric   analytic\n");
    for (int i = 0; i < 4; ++i) {
        const double a = tg_get(slopes, TG_INDEX(i)), n = numeric(network, four, i, 1e-5);
        worst = fmax(worst, fabs(a - n) / fmax(fabs(a), 1e-8));
        printf("  d / dx[%d]       %9.6f  %9.6f\n", i, n, a);
    }
    printf("the worst relative difference is %s\n", worst < 1e-7 ? "below 1e-7: good" : "above 1e-7: one is wrong");

    tg_tensor *zero = variable(0, TG_F64);
    printf("\nrelu at 0: numeric %g, analytic %g\n", numeric(tg_relu, zero, 0, 1e-3), tg_item(analytic(tg_relu, zero)));
    return tg_ok() ? 0 : 1;
}
