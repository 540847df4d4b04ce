/* pipeline.c: a network in two halves on two devices, as one does when it is too large for one.

   READ    pipeline_forward(): the move between the halves is one more op, so gradients come back through it.  A batch
           goes through in pieces: while the second device works on one, the first is already at the next.
   CHANGE  PIECES, the widths; take tg_to out of pipeline_forward and read the error (with two devices).
   PRINTS  the network with the device of every tensor, then loss and accuracy while it learns to tell the three arms of
           a spiral apart.  Without GPUs both halves are on the CPU, and the numbers are the same.  Two pretend ones:
           make sim MAIN=examples/pipeline.c OUT=pipeline; TG_SIM_DEVICES=2 ./pipeline */
#define TENSORGRAD_IMPLEMENTATION
#include "../tensorgrad.h"
#include <stdio.h>

enum { ARMS = 3, POINTS = 120, WIDTH = 32, BATCH = 60, PIECES = 4, EPOCHS = 30 };

/* ---- the network: a module with two halves ----------------------------------------------------------------------- */

typedef struct {
    tg_module *front, *back;
    int pieces; /* of a batch */
} pipeline;

/* Calls to a GPU return at once.  So the first device gets the work on all pieces, and begins a piece while the second
   one, which waits for the moves alone, is at the piece before. */
static tg_tensor *pipeline_forward(tg_module *m, tg_tensor *x)
{
    const pipeline *self = TG_MODULE_SELF(const pipeline, m);
    tg_tensor *piece[PIECES];
    tg_device there;
    const int pieces = tg_chunk(x, self->pieces, 0, piece, PIECES);
    tg_module_device(self->back, &there);
    for (int i = 0; i < pieces; ++i) {
        tg_tensor *hidden = tg_forward(self->front, piece[i]);
        piece[i] = tg_forward(self->back, tg_to(hidden, there));
    }
    return tg_cat(piece, pieces, 0);
}

static tg_module *linear_relu(int in, int out)
{
    return tg_nn_sequential(TG_MODULES(tg_nn_linear(in, out, true), tg_nn_relu()));
}

/* Made on the CPU, then moved: the same weights on any devices.  A half moves in place, so what holds its tensors (the
   optimizer, self) still does. */
static tg_module *make_pipeline(tg_device first, tg_device second)
{
    tg_module *m = tg_nn_module("Pipeline", pipeline_forward, sizeof(pipeline));
    pipeline *self = TG_MODULE_SELF(pipeline, m);
    tg_module *front[2], *back[2];
    if (!self) return NULL;
    front[0] = linear_relu(2, WIDTH);
    front[1] = linear_relu(WIDTH, WIDTH);
    back[0] = linear_relu(WIDTH, WIDTH);
    back[1] = tg_nn_linear(WIDTH, ARMS, true);
    TG_CHILD(m, self, front, tg_nn_sequential(front, 2));
    TG_CHILD(m, self, back, tg_nn_sequential(back, 2));
    self->pieces = PIECES;
    tg_module_to(self->front, first);
    tg_module_to(self->back, second);
    return m;
}

/* ---- the data: points of a spiral with noise, and which arm they are on ------------------------------------------ */

static void make_spiral(tg_tensor **points, tg_tensor **arms)
{
    TG_SCOPE;
    tg_tensor *arm = tg_reshape(tg_arange(0, ARMS, 1), TG_SHAPE(ARMS, 1)), *radius = tg_linspace(0.05, 1, POINTS);
    tg_tensor *noise = tg_mul_scalar(tg_randn(TG_SHAPE(ARMS, POINTS)), 0.15);
    tg_tensor *turn = tg_add(tg_mul_scalar(arm, 6.28318530717958648 / (int)ARMS), tg_mul_scalar(radius, 6));
    tg_tensor *angle = tg_add(turn, noise);
    tg_tensor *x = tg_mul(tg_cos(angle), radius), *y = tg_mul(tg_sin(angle), radius);
    *points = tg_keep(tg_reshape(tg_stack(TG_LIST(x, y), 2), TG_SHAPE(ARMS * POINTS, 2)));
    tg_tensor *each = tg_expand(tg_to_dtype(arm, TG_I64), TG_SHAPE(ARMS, POINTS));
    *arms = tg_keep(tg_contiguous(tg_reshape(each, TG_SHAPE(ARMS * POINTS))));
}

static double accuracy(tg_module *net, tg_tensor *points, tg_tensor *arms, tg_device first)
{
    TG_SCOPE;
    TG_NO_GRAD;
    tg_tensor *guess = tg_cpu(tg_argmax(tg_forward(net, tg_to(points, first)), 1, false));
    return tg_item(tg_mean(tg_to_dtype(tg_eq(guess, arms), TG_F64)));
}

/* ---- a batch in pieces has the gradients of the whole batch ------------------------------------------------------ */

static bool same_gradients(tg_module *net, tg_tensor *points, tg_tensor *arms, tg_device first)
{
    TG_SCOPE;
    pipeline *self = TG_MODULE_SELF(pipeline, net);
    tg_tensor *grads[2] = {NULL, NULL};
    for (int whole = 0; whole < 2; ++whole) {
        self->pieces = whole ? 1 : PIECES;
        tg_tensor *logits = tg_forward(net, tg_to(points, first));
        tg_tensor *loss = tg_cross_entropy(logits, tg_to(arms, tg_device_of(logits)));
        tg_tensor *const weight = tg_module_get(net, "front.0.0.weight");
        tg_gradients(&loss, 1, NULL, &weight, 1, &grads[whole], 0);
    }
    self->pieces = PIECES;
    return tg_allclose(grads[0], grads[1], 1e-9, 1e-12);
}

int main(void)
{
    TG_SCOPE;
    const int gpus = tg_cuda_device_count();
    const tg_device first = gpus > 1 ? TG_CUDA(0) : TG_CPU, second = gpus > 1 ? TG_CUDA(1) : TG_CPU;
    tg_tensor *data[2], *batch[2];
    tg_set_default_dtype(TG_F64);
    tg_seed(8);
    make_spiral(&data[0], &data[1]);
    tg_module *net = make_pipeline(first, second);
    tg_module_print(stdout, net);
    tg_optim *opt = tg_adamw(TG_PARAMS(net), 0.005);
    tg_loader *loader = tg_loader_new(data, 2, BATCH, TG_SHUFFLE, first);
    printf("a batch in %d pieces has the gradients of the whole: %s\n", (int)PIECES,
           same_gradients(net, data[0], data[1], first) ? "yes" : "no");
    for (int epoch = 1; epoch <= EPOCHS && tg_ok(); ++epoch) {
        double sum = 0;
        for (;;) {
            TG_SCOPE;
            if (!tg_loader_next(loader, batch)) break;
            tg_tensor *loss = tg_cross_entropy(tg_forward(net, batch[0]), tg_to(batch[1], second));
            tg_optim_zero_grad(opt);
            tg_backward(loss);
            tg_step(opt); /* one optimizer, whose parameters are on two devices */
            sum += tg_item(loss);
        }
        if (epoch % 5 == 0) {
            printf("epoch %2d  loss %.4f  accuracy %.3f\n", epoch, sum / (double)tg_loader_batches(loader),
                   accuracy(net, data[0], data[1], first));
        }
    }
    tg_loader_free(loader);
    tg_optim_free(opt);
    tg_module_free(net);
    return tg_ok() ? 0 : 1;
}
