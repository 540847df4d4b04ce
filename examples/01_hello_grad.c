/* 01_hello_grad.c: write a formula, ask for its derivatives.

   READ    micrograd(): a value that is used many times collects the gradient of every use.
   CHANGE  the numbers, or call tg_backward twice on the same root and read the error; pass TG_RETAIN_GRAPH to
           tg_backward_ex the first time and see the gradients add up.
   PRINTS  four known results: CS231n's circuit (-12; -4 -4 3), micrograd's README (24.7041; 138.8338 645.5773),
           d2l's y = 2 x.x (gradient 4x), its vector and detach variants, and its function with a loop and a branch. */
#define TENSORGRAD_IMPLEMENTATION
#include "../tensorgrad.h"
#include <stdio.h>

static tg_tensor *variable(double value) { return tg_set_requires_grad(tg_scalar(value), true); }

/* f = (x + y) z, the first circuit of CS231n */
static void circuit(void)
{
    TG_SCOPE;
    tg_tensor *x = variable(-2), *y = variable(5), *z = variable(-4);
    tg_tensor *f = tg_mul(tg_add(x, y), z);
    tg_backward(f);
    printf("f = (x + y) z      %g\n", tg_item(f));
    printf("  df/dx %g  df/dy %g  df/dz %g\n", tg_item(tg_grad(x)), tg_item(tg_grad(y)), tg_item(tg_grad(z)));
}

/* The expression of micrograd's README, line by line. */
static void micrograd(void)
{
    TG_SCOPE;
    tg_tensor *a = variable(-4), *b = variable(2);
    tg_tensor *c = tg_add(a, b);                                              /* c = a + b                      */
    tg_tensor *d = tg_add(tg_mul(a, b), tg_pow_scalar(b, 3));                 /* d = a * b + b**3               */
    c = tg_add(c, tg_add_scalar(c, 1));                                       /* c += c + 1                     */
    c = tg_add(c, tg_add(tg_add_scalar(c, 1), tg_neg(a)));                    /* c += 1 + c + (-a)              */
    d = tg_add(d, tg_add(tg_mul_scalar(d, 2), tg_relu(tg_add(b, a))));        /* d += d * 2 + (b + a).relu()    */
    d = tg_add(d, tg_add(tg_mul_scalar(d, 3), tg_relu(tg_sub(b, a))));        /* d += 3 * d + (b - a).relu()    */
    tg_tensor *e = tg_sub(c, d);                                              /* e = c - d                      */
    tg_tensor *f = tg_pow_scalar(e, 2);                                       /* f = e**2                       */
    tg_tensor *g = tg_add(tg_div_scalar(f, 2), tg_div(tg_scalar(10), f));     /* g = f / 2.0; g += 10.0 / f     */
    tg_backward(g);
    printf("micrograd's g      %.4f\n", tg_item(g));
    printf("  dg/da %.4f  dg/db %.4f\n", tg_item(tg_grad(a)), tg_item(tg_grad(b)));
}

static void show(const char *what, tg_tensor *t)
{
    printf("  %-17s", what);
    for (int64_t i = 0; i < tg_numel(t); ++i) printf("%g%s", tg_get(t, TG_INDEX(i)), i + 1 < tg_numel(t) ? " " : "\n");
}

/* d2l.ai, "Automatic Differentiation": a scalar of a vector, a vector of a vector, a part that counts as a constant. */
static void vectors(void)
{
    TG_SCOPE;
    tg_tensor *x = tg_set_requires_grad(tg_arange(0, 4, 1), true);
    tg_tensor *y = tg_mul_scalar(tg_sum(tg_mul(x, x)), 2);
    tg_backward(y);
    printf("y = 2 x.x          %g\n", tg_item(y));
    show("x", x);
    show("dy/dx = 4x", tg_grad(x));

    tg_tensor *squares = tg_mul(x, x), *ones = tg_ones(TG_SHAPE(4));
    tg_set_grad(x, NULL); /* gradients add up; this begins again */
    tg_backward_ex(TG_LIST(squares), &ones, 0);
    show("d(x*x)/dx = 2x", tg_grad(x));

    tg_tensor *u = tg_detach(tg_mul(x, x)); /* x*x as a number, whose origin is forgotten */
    tg_set_grad(x, NULL);
    tg_backward(tg_sum(tg_mul(u, x)));
    show("d(ux)/dx = u", tg_grad(x));
}

/* d2l's function of a loop and a branch: the tape records what ran.  Piecewise linear, so its slope is d / a. */
static tg_tensor *loop_and_branch(tg_tensor *a)
{
    tg_tensor *b = tg_mul_scalar(a, 2);
    while (tg_item(tg_norm(b)) < 1000) b = tg_mul_scalar(b, 2);
    return tg_item(tg_sum(b)) > 0 ? b : tg_mul_scalar(b, 100);
}

static void control_flow(void)
{
    const double inputs[] = {0.5, 3.25, -1.5};
    for (int i = 0; i < 3; ++i) {
        TG_SCOPE;
        tg_tensor *a = variable(inputs[i]), *d = loop_and_branch(a);
        tg_backward(d);
        printf("loop, branch %5g  d %g  slope %g  d / a %g\n", inputs[i], tg_item(d), tg_item(tg_grad(a)),
               tg_item(d) / inputs[i]);
    }
}

int main(void)
{
    tg_set_default_dtype(TG_F64);
    circuit();
    micrograd();
    vectors();
    control_flow();
    return tg_ok() && tg_shutdown() == TG_OK ? 0 : 1; /* an error has printed itself: the default handler does */
}
