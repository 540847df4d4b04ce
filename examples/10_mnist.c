/* 10_mnist.c: a convolutional network learns to read digits of 28 x 28 pixels.

   READ    make_network(), then train(): a loader gives the batches, and a step is what follows TG_SCOPE.
   CHANGE  the layers, EPOCHS, BATCH; how crooked the digits are that draw() in digits.h makes.  10_mnist FOLDER reads
           MNIST's test images instead: t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte in that folder, as does
           TG_DATA=FOLDER 10_mnist.
   PRINTS  after each epoch the loss, and the part that it reads right of 2000 digits that it does not learn from; then
           some of these, and what it takes them for.  Uses a GPU if there is one. */
#define TENSORGRAD_IMPLEMENTATION
#include "../tensorgrad.h"
#include "digits.h"
#include <stdio.h>
#include <stdlib.h>

enum { LEARN = 8000, BATCH = 32, EPOCHS = 3, SHOWN = 4 };

static tg_tensor *read_bytes(const char *folder, const char *name)
{
    char path[1000];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return tg_idx_load(path);
}

/* [N, in, H, W] -> [N, out, H / 2, W / 2] */
static tg_module *make_block(int in, int out)
{
    return tg_nn_sequential(TG_MODULES(TG_CONV2D(in, out, 3, padding = 1), tg_nn_relu(),
                                       tg_nn_max_pool2d(TG_SHAPE(2), TG_SHAPE(2), TG_SHAPE(0))));
}

static tg_module *make_network(void)
{
    tg_module *layers[4]; /* one after the other: each draws its weights */
    layers[0] = make_block(1, 8);
    layers[1] = make_block(8, 16);
    layers[2] = tg_nn_flatten(1, -1);
    layers[3] = tg_nn_linear(16 * SIDE / 4 * SIDE / 4, 10, true);
    return tg_nn_sequential(layers, 4);
}

/* The part of the held-out digits that the network reads right. */
static double accuracy(tg_module *net, tg_loader *loader)
{
    TG_NO_GRAD;
    double right = 0;
    for (;;) {
        TG_SCOPE;
        tg_tensor *batch[2];
        if (!tg_loader_next(loader, batch)) break;
        right += tg_item(tg_sum(tg_eq(tg_argmax(tg_forward(net, batch[0]), 1, false), batch[1])));
    }
    return right / (IMAGES - LEARN);
}

static void train(tg_module *net, tg_loader *learn, tg_loader *held_out)
{
    tg_optim *opt = tg_adamw(TG_PARAMS(net), 0); /* the rate is set below */
    for (int epoch = 1; epoch <= EPOCHS && tg_ok(); ++epoch) {
        double sum = 0;
        opt->lr = 5e-3 / epoch;
        for (;;) {
            TG_SCOPE; /* the batch belongs to the step, too */
            tg_tensor *batch[2];
            if (!tg_loader_next(learn, batch)) break;
            tg_tensor *loss = tg_cross_entropy(tg_forward(net, batch[0]), batch[1]);
            tg_optim_zero_grad(opt);
            tg_backward(loss);
            tg_step(opt);
            sum += tg_item(loss);
        }
        printf("epoch %d  loss %.4f  held out: %.4f right\n", epoch, sum / (double)tg_loader_batches(learn),
               accuracy(net, held_out));
    }
    tg_optim_free(opt);
}

static void show(tg_module *net, tg_tensor *images, tg_device device)
{
    TG_SCOPE;
    tg_tensor *guess = tg_argmax(tg_forward(net, tg_to(images, device)), 1, false);
    for (int y = 0; y < SIDE && guess; y += 2) { /* every other line: characters are higher than wide */
        for (int i = 0; i < SHOWN * SIDE; ++i)
            putchar(" .:+#"[(int)(4 * tg_get(images, TG_INDEX(i / SIDE, 0, y, i % SIDE)))]);
        printf("\n");
    }
    for (int i = 0; i < SHOWN && guess; ++i) printf("%*.0f", SIDE, tg_get(guess, TG_INDEX(i)));
    printf("\n");
}

int main(int argc, char **argv)
{
    TG_SCOPE;
    const tg_device device = tg_cuda_is_available() ? TG_CUDA(-1) : TG_CPU;
    tg_tensor *data[2], *learn[2], *held_out[2];
    tg_seed(6);
    const char *folder = argc > 1 ? argv[1] : getenv("TG_DATA");
    if (folder && *folder) {
        data[0] = read_bytes(folder, "t10k-images-idx3-ubyte");
        data[1] = tg_to_dtype(read_bytes(folder, "t10k-labels-idx1-ubyte"), TG_I64);
    } else {
        data[1] = tg_randint(0, 10, TG_SHAPE(IMAGES));
        data[0] = draw_digits(data[1]);
    }
    data[0] = tg_div_scalar(tg_to_dtype(tg_reshape(data[0], TG_SHAPE(IMAGES, 1, SIDE, SIDE)), TG_F32), 255);
    for (int i = 0; i < 2; ++i) {
        learn[i] = tg_narrow(data[i], 0, 0, LEARN);
        held_out[i] = tg_narrow(data[i], 0, LEARN, IMAGES - LEARN);
    }
    tg_module *net = tg_module_to(make_network(), device);
    tg_loader *learning = tg_loader_new(learn, 2, BATCH, TG_SHUFFLE, device);
    tg_loader *testing = tg_loader_new(held_out, 2, 250, 0, device);
    train(net, learning, testing);
    show(net, tg_narrow(data[0], 0, LEARN, SHOWN), device);
    tg_loader_free(learning);
    tg_loader_free(testing);
    tg_module_free(net);
    return tg_ok() ? 0 : 1;
}
