/* 05_moons.c: a small network learns to tell two interleaved half circles apart (after micrograd's demo).

   READ    score() is the network, the loop in main() is training: forward, zero_grad, backward, step.
   CHANGE  the widths in sizes[], the noise, POINTS; leave out the relu and see that a line does not part the moons.
           05_moons NAME learns another set, of simple, diagonal, split, xor, circle and spiral: which is the hardest?
   PRINTS  loss and accuracy while it learns, then a map: o and x are the two moons, capitals the points that are on
           the wrong side, . and + the side that the network gives to empty places.  Always the same numbers: the data
           are drawn with the library's own random numbers. */
#define TENSORGRAD_IMPLEMENTATION
#include "../tensorgrad.h"
#include "sets.h"

enum { POINTS = 200, STEPS = 200, LAYERS = 3, MAP_WIDTH = 72, MAP_HEIGHT = 28 };

typedef struct {
    tg_tensor *weight[LAYERS], *bias[LAYERS]; /* the parameters by name, */
    tg_tensor *params[2 * LAYERS];            /* and all of them in a list, for the optimizer */
} network;

static void make_network(network *net)
{
    const int sizes[LAYERS + 1] = {2, 16, 16, 1};
    TG_SCOPE;
    for (int i = 0; i < LAYERS; ++i) {
        const double std = sqrt(2.0 / sizes[i]); /* relu halves the variance: Kaiming He's choice keeps it */
        net->weight[i] = tg_param(tg_mul_scalar(tg_randn(TG_SHAPE(sizes[i + 1], sizes[i])), std));
        net->bias[i] = tg_param(tg_zeros(TG_SHAPE(sizes[i + 1])));
        net->params[2 * i] = net->weight[i];
        net->params[2 * i + 1] = net->bias[i];
    }
}

/* x [N, 2] -> [N]: above 0 is the upper moon, below 0 the lower one. */
static tg_tensor *score(const network *net, tg_tensor *x)
{
    for (int i = 0; i < LAYERS; ++i) {
        x = tg_linear(x, net->weight[i], net->bias[i]);
        if (i + 1 < LAYERS) x = tg_relu(x);
    }
    return tg_squeeze(x, 1);
}

/* Half of the points on the upper half circle around (0, 0), label 1; half on the lower one around (1, 0.5), -1. */
static void make_moons(tg_tensor **points, tg_tensor **labels)
{
    TG_SCOPE;
    tg_tensor *angle = tg_mul_scalar(tg_rand(TG_SHAPE(POINTS / 2)), 3.14159265358979324);
    tg_tensor *c = tg_cos(angle), *s = tg_sin(angle), *one = tg_ones(TG_SHAPE(POINTS / 2)), *minus_one = tg_neg(one);
    tg_tensor *x = tg_cat(TG_LIST(c, tg_rsub_scalar(c, 1)), 0), *y = tg_cat(TG_LIST(s, tg_rsub_scalar(s, 0.5)), 0);
    tg_tensor *noise = tg_mul_scalar(tg_randn(TG_SHAPE(POINTS, 2)), 0.1);
    *labels = tg_keep(tg_cat(TG_LIST(one, minus_one), 0)); /* kept: handed to the caller's scope */
    *points = tg_keep(tg_add(tg_stack(TG_LIST(x, y), 1), noise));
}

/* Max-margin: nothing to pay where label * score >= 1; plus a little for the size of every weight. */
static tg_tensor *loss_of(const network *net, tg_tensor *scores, tg_tensor *labels)
{
    tg_tensor *loss = tg_mean(tg_relu(tg_rsub_scalar(tg_mul(labels, scores), 1)));
    for (int i = 0; i < LAYERS; ++i)
        loss = tg_add(loss, tg_mul_scalar(tg_sum(tg_mul(net->weight[i], net->weight[i])), 1e-4));
    return loss;
}

/* The part of the points whose score has the sign of the label. */
static double accuracy(tg_tensor *scores, tg_tensor *labels)
{
    TG_SCOPE;
    TG_NO_GRAD;
    double right = 0;
    tg_tensor *agree = tg_mul(scores, labels);
    for (int i = 0; i < POINTS; ++i) right += tg_get(agree, TG_INDEX(i)) > 0;
    return right / (int)POINTS;
}

static void print_map(const network *net, tg_tensor *points, tg_tensor *labels)
{
    const double left = -1.6, top = 1.6, dx = 4.2 / (int)MAP_WIDTH, dy = 2.7 / (int)MAP_HEIGHT;
    char map[MAP_HEIGHT][MAP_WIDTH + 1];
    TG_SCOPE;
    TG_NO_GRAD;
    tg_tensor *cells = tg_zeros(TG_SHAPE(MAP_HEIGHT, MAP_WIDTH, 2)), *side, *of_points = score(net, points);
    double *xy = tg_data_f64(cells);
    for (int i = 0; xy && i < MAP_HEIGHT * MAP_WIDTH; ++i) {
        xy[2 * i] = left + (i % MAP_WIDTH + 0.5) * dx;
        xy[2 * i + 1] = top - (i / MAP_WIDTH + 0.5) * dy;
    }
    side = score(net, tg_reshape(cells, TG_SHAPE(MAP_HEIGHT * MAP_WIDTH, 2)));
    for (int i = 0; i < MAP_HEIGHT * MAP_WIDTH; ++i)
        map[i / MAP_WIDTH][i % MAP_WIDTH] = tg_get(side, TG_INDEX(i)) > 0 ? '.' : '+';
    for (int i = 0; i < POINTS; ++i) {
        const int column = (int)((tg_get(points, TG_INDEX(i, 0)) - left) / dx);
        const int row = (int)((top - tg_get(points, TG_INDEX(i, 1))) / dy);
        const bool upper = tg_get(labels, TG_INDEX(i)) > 0, right = upper == (tg_get(of_points, TG_INDEX(i)) > 0);
        if (column >= 0 && column < MAP_WIDTH && row >= 0 && row < MAP_HEIGHT)
            map[row][column] = right ? (upper ? 'o' : 'x') : (upper ? 'O' : 'X');
    }
    for (int row = 0; row < MAP_HEIGHT; ++row) printf("%.*s\n", MAP_WIDTH, map[row]);
}

int main(int argc, char **argv)
{
    TG_SCOPE;
    network net;
    tg_tensor *points, *labels;
    tg_set_default_dtype(TG_F64);
    tg_seed(1337);
    if (argc < 2) make_moons(&points, &labels);
    else if (!make_set(argv[1], POINTS, &points, &labels)) return 1;
    make_network(&net);
    tg_optim *opt = tg_sgd(net.params, 2 * LAYERS, 0.5);
    for (int step = 0; step <= STEPS && tg_ok(); ++step) {
        TG_SCOPE;
        tg_tensor *scores = score(&net, points), *loss = loss_of(&net, scores, labels);
        if (step % 20 == 0)
            printf("step %3d  loss %.4f  accuracy %.3f\n", step, tg_item(loss), accuracy(scores, labels));
        if (step == STEPS) break; /* the last line is of the weights that are kept */
        opt->lr = 0.5 * (1 - 0.9 * step / (int)STEPS);
        tg_optim_zero_grad(opt);
        tg_backward(loss);
        tg_step(opt);
    }
    print_map(&net, points, labels);
    tg_optim_free(opt);
    for (int i = 0; i < 2 * LAYERS; ++i) tg_release(net.params[i]);
    return tg_ok() ? 0 : 1;
}
