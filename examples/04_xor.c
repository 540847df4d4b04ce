/* 04_xor.c: a line cannot separate XOR; a network with one hidden layer can.

   READ    main(): two models, the same training.
   CHANGE  HIDDEN: how few suffice, and for how many seeds?  Leave tg_nn_tanh out: why is it a line again?
   PRINTS  the loss of both.  The line ends at ln 2 = 0.6931, as guessing does, and has at least one point wrong; the
           loss of the network falls towards 0.  Then what it says of the square around the points, # for 1. */
#define TENSORGRAD_IMPLEMENTATION
#include "../tensorgrad.h"
#include <stdio.h>

enum { HIDDEN = 4, STEPS = 500, EVERY = 100, LOSSES = STEPS / EVERY + 1 };

/* x [4, 2], y [4, 1]; a point is in class 1 where the model's output is above 0. */
static void train(tg_module *model, tg_tensor *x, tg_tensor *y, double losses[LOSSES])
{
    tg_optim *opt = tg_adam(TG_PARAMS(model), 0.05);
    for (int step = 0; step <= STEPS; ++step) {
        TG_SCOPE;
        tg_tensor *loss = tg_binary_cross_entropy_with_logits(tg_forward(model, x), y, NULL, TG_MEAN, NULL);
        if (step % EVERY == 0) losses[step / EVERY] = tg_item(loss);
        tg_optim_zero_grad(opt);
        tg_backward(loss);
        tg_step(opt);
    }
    tg_optim_free(opt);
}

static int count_right(tg_module *model, tg_tensor *x, tg_tensor *y)
{
    TG_SCOPE;
    tg_tensor *right = tg_eq(tg_gt_scalar(tg_forward(model, x), 0), tg_gt_scalar(y, 0.5));
    return (int)tg_item(tg_sum(right));
}

static void map(tg_module *model)
{
    for (int row = 0; row <= 10; ++row) {
        for (int column = 0; column <= 32; ++column) {
            TG_SCOPE;
            const double point[2] = {column / 16.0 - 0.5, 1.5 - row / 5.0};
            putchar(tg_item(tg_forward(model, tg_from_f64(point, TG_SHAPE(1, 2)))) > 0 ? '#' : '.');
        }
        putchar('\n');
    }
}

int main(void)
{
    const double points[4][2] = {{0, 0}, {0, 1}, {1, 0}, {1, 1}}, classes[4] = {0, 1, 1, 0};
    double line_loss[LOSSES], net_loss[LOSSES];
    tg_set_default_dtype(TG_F64);
    tg_seed(1);
    tg_module *line = tg_nn_linear(2, 1, true), *hidden = tg_nn_linear(2, HIDDEN, true);
    tg_module *layers[3] = {hidden, tg_nn_tanh(), tg_nn_linear(HIDDEN, 1, true)}, *net = tg_nn_sequential(layers, 3);
    tg_tensor *x = tg_from_f64(&points[0][0], TG_SHAPE(4, 2)), *y = tg_from_f64(classes, TG_SHAPE(4, 1));
    train(net, x, y, net_loss);
    train(line, x, y, line_loss);
    printf("step  line    network\n");
    for (int i = 0; i < LOSSES; ++i) printf("%4d  %.4f  %.4f\n", i * EVERY, line_loss[i], net_loss[i]);
    printf("of the 4 points, the line has %s right, the network %d\n", count_right(line, x, y) < 4 ? "some" : "all",
           count_right(net, x, y));
    map(net);
    tg_module_free(line);
    tg_module_free(net);
    tg_release(x);
    tg_release(y);
    return tg_ok() && tg_shutdown() == TG_OK ? 0 : 1;
}
