/* A network that learns XOR, and uses what is compiled of files, modules, optimizers and tools: sizes.sh leaves each of them
 * out.  What is left out the program does by hand, if it can. */
#define TENSORGRAD_IMPLEMENTATION
#include "tensorgrad.h"

static tg_tensor *w1, *b1, *w2, *b2;

static void begin(void)
{
    static const float first[] = {1, -1, -1, 1, 0.5F, 0.5F, -0.5F, 0.25F}, second[] = {1, 1, -0.5F, 0.5F};
    w1 = tg_param(tg_from(first, TG_SHAPE(4, 2), TG_F32));
    b1 = tg_param(tg_zeros(TG_SHAPE(4)));
    w2 = tg_param(tg_from(second, TG_SHAPE(1, 4), TG_F32));
    b2 = tg_param(tg_zeros(TG_SHAPE(1)));
}

static void end(void)
{
    tg_release(w1);
    tg_release(b1);
    tg_release(w2);
    tg_release(b2);
}

static tg_tensor *forward(tg_tensor *x) { return tg_linear(tg_tanh(tg_linear(x, w1, b1)), w2, b2); }

static tg_tensor *squares(tg_tensor *const *in, int n, void *user)
{
    (void)n, (void)user;
    return tg_sum(tg_square(forward(in[0])));
}

/* A step of gradient descent. */
#ifndef TG_NO_OPTIM
static tg_optim *optimizer;
static void learn(tg_tensor *loss)
{
    if (!optimizer) optimizer = tg_sgd(TG_LIST(w1, b1, w2, b2), 0.5);
    tg_optim_zero_grad(optimizer);
    tg_backward(loss);
    tg_step(optimizer);
}
#else
static void learn(tg_tensor *loss)
{
    tg_tensor *w[] = {w1, b1, w2, b2};
    tg_backward(loss);
    TG_NO_GRAD;
    for (int i = 0; i < 4; ++i) {
        tg_sub_(w[i], tg_mul_scalar(tg_grad(w[i]), 0.5));
        tg_zero_(tg_grad(w[i]));
    }
}
#endif

/* Whether the layers of a module compute what the functions do. */
static bool module_agrees(tg_tensor *x)
{
#ifndef TG_NO_MODULES
    tg_module *layers[3], *net;
    layers[0] = tg_nn_linear(2, 4, true), layers[1] = tg_nn_tanh(), layers[2] = tg_nn_linear(4, 1, true);
    net = tg_nn_sequential(layers, 3);
    {
        TG_NO_GRAD;
        tg_copy_(tg_module_get(net, "0.weight"), w1);
        tg_copy_(tg_module_get(net, "0.bias"), b1);
        tg_copy_(tg_module_get(net, "2.weight"), w2);
        tg_copy_(tg_module_get(net, "2.bias"), b2);
    }
    const bool same = tg_equal(tg_forward(net, x), forward(x));
    tg_module_free(net);
    return same;
#else
    return x != NULL;
#endif
}

/* Whether a file gives back what was written. */
static bool file_agrees(tg_tensor *t, const char *path)
{
#ifndef TG_NO_FILES
    return tg_npy_save(path, t) == TG_OK && tg_equal(tg_npy_load(path), t);
#else
    return t && path;
#endif
}

/* Whether a matrix and its inverse give the identity. */
static bool inverse_agrees(tg_tensor *t)
{
#ifndef TG_NO_LINALG
    tg_tensor *square = tg_add(tg_matmul(tg_t(t), t), tg_eye(2));
    return tg_allclose(tg_matmul(tg_linalg_inv(square), square), tg_eye(2), 0, 1e-4);
#else
    return t != NULL;
#endif
}

static bool gradients_agree(void)
{
#ifndef TG_NO_TOOLS
    static const double number[] = {0.3, -0.2};
    tg_tensor *x = tg_set_requires_grad(tg_from(number, TG_SHAPE(1, 2), TG_F64), true);
    tg_tensor *w[4];
    bool ok;
    w[0] = w1, w[1] = b1, w[2] = w2, w[3] = b2;
    w1 = tg_to_dtype(w1, TG_F64), b1 = tg_to_dtype(b1, TG_F64), w2 = tg_to_dtype(w2, TG_F64), b2 = tg_to_dtype(b2, TG_F64);
    ok = tg_gradcheck(squares, &x, 1, NULL);
    w1 = w[0], b1 = w[1], w2 = w[2], b2 = w[3];
    return ok;
#else
    return squares != NULL;
#endif
}

int main(int argc, char **argv)
{
    static const float inputs[] = {0, 0, 0, 1, 1, 0, 1, 1}, targets[] = {0, 1, 1, 0};
    double loss = 1;
    bool ok;
    begin();
    for (int step = 0; step < 400; ++step) {
        TG_SCOPE;
        tg_tensor *x = tg_from(inputs, TG_SHAPE(4, 2), TG_F32), *y = tg_from(targets, TG_SHAPE(4, 1), TG_F32);
        tg_tensor *error = tg_mse_loss(forward(x), y, TG_MEAN);
        learn(error);
        loss = tg_item(error);
    }
    {
        TG_SCOPE;
        tg_tensor *x = tg_from(inputs, TG_SHAPE(4, 2), TG_F32);
        ok = module_agrees(x) && file_agrees(w1, argc > 1 ? argv[1] : "rooms.npy") && gradients_agree() &&
             inverse_agrees(w1);
    }
#ifndef TG_NO_OPTIM
    tg_optim_free(optimizer);
#endif
    end();
    printf("%s\n%s\n", tg_build_info(), ok && loss < 0.01 ? "learned" : "failed");
    return tg_shutdown() != TG_OK || !tg_ok() || !(loss < 0.01) || !ok;
}
