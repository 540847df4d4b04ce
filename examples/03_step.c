/* 03_step.c: backward through one neuron, one node at a time.

   READ    main(): each turn of the loop runs the rule of one node and prints what its inputs got.
   CHANGE  the numbers; use w1 for both products, and see its gradient grow in two steps; the op tanh into another one.
   PRINTS  a line for each step; the tape after two of them: what has not been reached has no gradient yet; the tape at
           the end: o = 0.7071, with gradients -1.5 of x1, 1 of w1, 0.5 of x2 and 0 of w2.  Then another expression,
           L = (a*b + c)*f, whose leaves take a small step along their gradients: L rises from -8 to -7.286496.
   WRITES  step.svg, the tape as a picture, and step.html, a page that plays the steps in a browser, into the folder out or
           the one that it is called with: 03_step FOLDER. */
#if !defined(_WIN32) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L /* mkdir */
#endif
#define TENSORGRAD_IMPLEMENTATION
#include "../tensorgrad.h"
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>
#ifdef _WIN32
#define mkdir(path, mode) mkdir(path)
#endif

static tg_tensor *named(const char *name, tg_tensor *t)
{
    tg_set_name(t, name);
    return t;
}

static tg_tensor *leaf(const char *name, double value)
{
    return named(name, tg_set_requires_grad(tg_scalar(value), true));
}

/* The neuron of micrograd's lecture: o = tanh(x1*w1 + x2*w2 + b). */
static tg_tensor *neuron(void)
{
    tg_tensor *x1 = leaf("x1", 2), *x2 = leaf("x2", 0); /* the inputs */
    tg_tensor *w1 = leaf("w1", -3), *w2 = leaf("w2", 1), *b = leaf("b", 6.8813735870195432);
    tg_tensor *x1w1 = named("x1*w1", tg_mul(x1, w1)), *x2w2 = named("x2*w2", tg_mul(x2, w2));
    tg_tensor *n = named("n", tg_add(named("sum", tg_add(x1w1, x2w2)), b));
    return named("o", tg_tanh(n));
}

/* Draws the tape of o into a file of the folder; whether it worked. */
static bool draw(const char *folder, const char *name, tg_status (*how)(FILE *, tg_tensor *), tg_tensor *o)
{
    char path[1000];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    if (!f) return false;
    const bool drawn = how(f, o) == TG_OK;
    return fclose(f) == 0 && drawn;
}

/* L = (a*b + c)*f, then each leaf moves by 0.01 of its gradient: L rises, as the gradient points uphill. */
static void uphill(void)
{
    TG_SCOPE;
    const char *names[4] = {"a", "b", "c", "f"};
    const double values[4] = {2, -3, 10, -2};
    tg_tensor *v[4];
    for (int i = 0; i < 4; ++i) v[i] = leaf(names[i], values[i]);
    tg_tensor *L = tg_mul(tg_add(tg_mul(v[0], v[1]), v[2]), v[3]);
    tg_backward(L);
    TG_NO_GRAD;
    for (int i = 0; i < 4; ++i) tg_add_(v[i], tg_mul_scalar(tg_grad(v[i]), 0.01));
    tg_tensor *higher = tg_mul(tg_add(tg_mul(v[0], v[1]), v[2]), v[3]);
    printf("L = (a*b + c)*f   %g, and after a step along the gradient %.6f\n", tg_item(L), tg_item(higher));
}

int main(int argc, char **argv)
{
    TG_SCOPE;
    const char *folder = argc > 1 ? argv[1] : "out";
    tg_set_default_dtype(TG_F64);
    tg_tensor *o = neuron();
    tg_backward_run *run = tg_backward_begin(TG_LIST(o), NULL, TG_RETAIN_GRAPH | TG_RETAIN_GRADS);
    for (int step = 1; tg_backward_step(run, NULL); ++step) {
        printf("step %d ", step);
        tg_step_print(stdout, run);
        if (step == 2) tg_tape_print(stdout, o);
    }
    tg_backward_end(run); /* the leaves have their .grad from here on */
    tg_tape_print(stdout, o);
    uphill();
    if ((mkdir(folder, 0777) != 0 && errno != EEXIST) || !draw(folder, "step.svg", tg_tape_svg, o) ||
        !draw(folder, "step.html", tg_tape_html, o)) {
        perror("step.svg, step.html");
        return 1;
    }
    printf("step.svg and step.html are written\n");
    return tg_ok() ? 0 : 1;
}
