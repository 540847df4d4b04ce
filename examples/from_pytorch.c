/* from_pytorch.c: a network that PyTorch has trained, in a program without Python; from_pytorch FOLDER takes its files.

   READ    main(): build the network of the same layers, load its weights by name, and compare with a test vector, an
           input and the output that PyTorch computed for it.  examples/python/to_c.py writes both into FOLDER.
   CHANGE  a size in make_net(), and read the error; model and input in to_c.py, then make_net().
   PRINTS  the network and its output, and by how much the output differs from PyTorch's.  Without FOLDER it takes the
           weights by a formula, and the output that PyTorch has computed with these from a table below. */
#define TENSORGRAD_IMPLEMENTATION
#include "../tensorgrad.h"
#include <math.h>
#include <stdio.h>

enum { BATCH = 2, SIDE = 8, CHANNELS = 4, CLASSES = 3 };

/* As example() of to_c.py has it: torch.nn.Sequential(Conv2d, BatchNorm2d, ReLU, MaxPool2d, Flatten, Linear) */
static tg_module *make_net(void)
{
    return tg_nn_sequential(TG_MODULES(
        TG_CONV2D(1, CHANNELS, 3, padding = 1),
        TG_BATCH_NORM(CHANNELS),
        tg_nn_relu(),
        tg_nn_max_pool2d(TG_SHAPE(2), TG_SHAPE(2), TG_SHAPE(0)),
        tg_nn_flatten(1, -1),
        tg_nn_linear(CHANNELS * (SIDE / 2) * (SIDE / 2), CLASSES, true)));
}

/* Element k of each parameter becomes sin(k + 1), as in example() of to_c.py; batch norm keeps mean 0, variance 1. */
static void weights_by_formula(tg_module *net)
{
    for (int i = 0; i < tg_module_count(net); ++i) {
        tg_tensor *parameter = tg_module_params(net)[i];
        float *element = tg_data_f32(parameter);
        for (int64_t k = 0; k < tg_numel(parameter); ++k) element[k] = (float)sin((double)k + 1);
        tg_touch_(parameter);
    }
}

/* The input of example(), and what PyTorch printed for it */
static void vector_of_table(tg_tensor **x, tg_tensor **wanted)
{
    static const float printed[BATCH][CLASSES] = {{5.846234F, 0.964802F, -4.820144F},
                                                  {4.046038F, 6.507452F, 1.323908F}};
    float pixels[BATCH * SIDE * SIDE];
    for (int k = 0; k < BATCH * SIDE * SIDE; ++k) pixels[k] = (float)cos((double)k);
    *x = tg_from_f32(pixels, TG_SHAPE(BATCH, 1, SIDE, SIDE));
    *wanted = tg_from_f32(printed[0], TG_SHAPE(BATCH, CLASSES));
}

/* Loads both files of the folder: the weights into net, where each tensor must fit; *vector holds x and wanted. */
static void load(const char *folder, tg_module *net, tg_dict **vector, tg_tensor **x, tg_tensor **wanted)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/weights.safetensors", folder);
    if (tg_module_load(net, path) != TG_OK) return;
    snprintf(path, sizeof path, "%s/vector.safetensors", folder);
    *vector = tg_safetensors_load(path);
    if (!*vector) return;
    *x = tg_dict_get(*vector, "x");
    *wanted = tg_dict_get(*vector, "y");
}

int main(int argc, char **argv)
{
    TG_SCOPE;
    tg_dict *vector = NULL;
    tg_tensor *x = NULL, *wanted = NULL;
    tg_module *net = make_net();
    if (argc > 1) {
        load(argv[1], net, &vector, &x, &wanted);
    } else {
        weights_by_formula(net);
        vector_of_table(&x, &wanted);
    }
    tg_module_train(net, false); /* batch norm by its running statistics, as model.eval() of PyTorch */
    double apart = HUGE_VAL;
    if (tg_ok()) {
        TG_NO_GRAD;
        tg_tensor *y = tg_forward(net, x);
        tg_module_print(stdout, net);
        tg_print(y);
        apart = tg_item(tg_max(tg_abs(tg_sub(y, wanted))));
    }
    printf("differs from PyTorch by at most 1e-5: %s\n", apart <= 1e-5 ? "yes" : "no");
    tg_dict_free(vector);
    tg_module_free(net);
    return tg_ok() && apart <= 1e-5 ? 0 : 1;
}
