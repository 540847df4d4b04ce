/* 13_beyond_nn.c: gradients without a neural network: a valley, curvature, and the length of a pendulum.

   READ    curvature(): a gradient that is recorded (TG_CREATE_GRAPH) has a gradient of its own.  swing(): the solution
           of a differential equation is a computation as any other, so its parameters have gradients.
   CHANGE  the start of the valley; the first guess of the length: from 0.3 m the first step is too long, and comes to a
           length below 0 (how would you keep it positive?); let friction slow the pendulum, and look for it as well.
   PRINTS  Rosenbrock's valley, whose lowest point is (1, 1): how far 10,000 steps of gradient descent come, and that
           Newton's method is there up to 1e-6 after six; a product with the second derivatives, beside a difference of
           gradients; and the length of a pendulum, found from 40 measured angles: 1.3 m. */
#define TENSORGRAD_IMPLEMENTATION
#include "../tensorgrad.h"
#include <stdio.h>

enum { DESCENT = 10000, NEWTON = 7, SIZE = 5, ANGLES = 40, STEPS_PER_ANGLE = 5, FITTED = 20 };

/* ---- a valley ---------------------------------------------------------------------------------------------------- */

/* The sum over i of 100 (x[i+1] - x[i]^2)^2 + (1 - x[i])^2, for x of any length. */
static tg_tensor *rosenbrock(tg_tensor *x)
{
    const int64_t n = tg_numel(x);
    tg_tensor *a = tg_narrow(x, 0, 0, n - 1), *b = tg_narrow(x, 0, 1, n - 1);
    tg_tensor *steep = tg_mul_scalar(tg_square(tg_sub(b, tg_square(a))), 100);
    return tg_sum(tg_add(steep, tg_square(tg_rsub_scalar(a, 1))));
}

/* Receives the gradient at x, and returns the second derivatives of rosenbrock at x times v: d(gradient . v) / dx. */
static tg_tensor *curvature(tg_tensor *x, tg_tensor *v, tg_tensor **gradient)
{
    tg_tensor *y = rosenbrock(x), *product;
    tg_gradients(TG_LIST(y), NULL, TG_LIST(x), gradient, TG_CREATE_GRAPH);
    tg_tensor *along = tg_sum(tg_mul(*gradient, v));
    tg_gradients(TG_LIST(along), NULL, TG_LIST(x), &product, 0);
    return product;
}

static void valley(void)
{
    TG_SCOPE;
    const double start[2] = {-1.2, 1};
    tg_tensor *x = tg_set_requires_grad(tg_from_f64(start, TG_SHAPE(2)), true), *g;
    tg_optim *opt = tg_sgd(TG_LIST(x), 0.001);
    for (int step = 0; step < DESCENT; ++step) {
        TG_SCOPE;
        tg_optim_zero_grad(opt);
        tg_backward(rosenbrock(x));
        tg_step(opt);
    }
    tg_optim_free(opt);
    printf("%d steps of descent  x %.6f  y %.6f\n", DESCENT, tg_get(x, TG_INDEX(0)), tg_get(x, TG_INDEX(1)));

    x = tg_set_requires_grad(tg_from_f64(start, TG_SHAPE(2)), true);
    for (int step = 1; step <= NEWTON; ++step) {
        TG_SCOPE;
        const double e0[2] = {1, 0}, e1[2] = {0, 1};
        tg_tensor *column0 = curvature(x, tg_from_f64(e0, TG_SHAPE(2)), &g);
        tg_tensor *column1 = curvature(x, tg_from_f64(e1, TG_SHAPE(2)), &g);
        const double a = tg_get(column0, TG_INDEX(0)), b = tg_get(column1, TG_INDEX(0));
        const double d = tg_get(column1, TG_INDEX(1));
        const double g0 = tg_get(g, TG_INDEX(0)), g1 = tg_get(g, TG_INDEX(1)), det = a * d - b * b;
        const double move[2] = {-(d * g0 - b * g1) / det, -(a * g1 - b * g0) / det}; /* by Cramer's rule */
        TG_NO_GRAD;
        tg_add_(x, tg_from_f64(move, TG_SHAPE(2)));
        printf("Newton's step %d       x %.6f  y %.6f\n", step, tg_get(x, TG_INDEX(0)), tg_get(x, TG_INDEX(1)));
    }
}

/* ---- curvature --------------------------------------------------------------------------------------------------- */

static tg_tensor *gradient_at(tg_tensor *at)
{
    tg_tensor *x = tg_set_requires_grad(tg_detach(at), true), *y = rosenbrock(x), *g;
    tg_gradients(TG_LIST(y), NULL, TG_LIST(x), &g, 0);
    return g;
}

static void curvature_and_difference(void)
{
    TG_SCOPE;
    const double h = 1e-5;
    tg_tensor *x = tg_set_requires_grad(tg_rand(TG_SHAPE(SIZE)), true), *v = tg_randn(TG_SHAPE(SIZE)), *g;
    tg_tensor *product = curvature(x, v, &g);
    tg_tensor *step = tg_mul_scalar(v, h), *at = tg_detach(x);
    tg_tensor *difference = tg_sub(gradient_at(tg_add(at, step)), gradient_at(tg_sub(at, step)));
    difference = tg_div_scalar(difference, 2 * h);
    printf("second derivatives times v:\n   tape       difference\n");
    for (int i = 0; i < SIZE; ++i) {
        printf("  %9.4f   %9.4f\n", tg_get(product, TG_INDEX(i)), tg_get(difference, TG_INDEX(i)));
    }
    const double off = tg_item(tg_amax(tg_abs(tg_sub(product, difference)))) / tg_item(tg_amax(tg_abs(product)));
    printf("  they %s up to 1e-6 of the largest\n", off < 1e-6 ? "agree" : "do not agree");
}

/* ---- a pendulum -------------------------------------------------------------------------------------------------- */

/* The angles of a pendulum of this length (m) at ANGLES times, 0.05 s apart: angle'' = -9.81 / length sin(angle), in
   steps of time in which first the speed changes, and then the angle. */
static tg_tensor *swing(tg_tensor *length)
{
    const double dt = 0.05 / (double)STEPS_PER_ANGLE;
    tg_tensor *angle = tg_scalar(1), *speed = tg_scalar(0), *seen[ANGLES];
    tg_tensor *pull = tg_mul_scalar(tg_reciprocal(length), -9.81 * dt);
    for (int i = 0; i < ANGLES; ++i) {
        for (int k = 0; k < STEPS_PER_ANGLE; ++k) {
            speed = tg_add(speed, tg_mul(pull, tg_sin(angle)));
            angle = tg_add(angle, tg_mul_scalar(speed, dt));
        }
        seen[i] = angle;
    }
    return tg_stack(seen, ANGLES, 0);
}

static void pendulum(void)
{
    TG_SCOPE;
    tg_tensor *length = tg_set_requires_grad(tg_scalar(0.7), true);
    tg_tensor *measured = tg_add(swing(tg_scalar(1.3)), tg_mul_scalar(tg_randn(TG_SHAPE(ANGLES)), 0.01));
    printf("a pendulum of 1.3 m, measured up to 0.01 rad\n");
    for (int step = 0; step <= FITTED; ++step) {
        TG_SCOPE;
        tg_tensor *loss = tg_mse_loss(swing(length), measured, TG_MEAN);
        if (step % 4 == 0) printf("  step %2d  length %.4f  loss %.6f\n", step, tg_item(length), tg_item(loss));
        tg_backward(loss);
        TG_NO_GRAD; /* descent by hand: one number needs no optimizer */
        tg_sub_(length, tg_mul_scalar(tg_grad(length), 0.2));
        tg_set_grad(length, NULL);
    }
}

int main(void)
{
    tg_set_default_dtype(TG_F64);
    tg_seed(1);
    valley();
    curvature_and_difference();
    pendulum();
    return tg_ok() && tg_shutdown() == TG_OK ? 0 : 1;
}
