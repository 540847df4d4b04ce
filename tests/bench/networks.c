/* The workloads that train a network, written as a user would write them.  The table of kinds stands at the end. */
#include "workloads.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_BATCHES = 8, MOST_LAYERS = 12 };

typedef struct { tg_module *norm_attention, *norm_mlp, *query_key_value, *attention_out, *mlp_in, *mlp_out; } block;

static struct {
    tg_module *net, *layer[MOST_LAYERS]; /* net owns the layers */
    block blocks[MOST_LAYERS];
    tg_optim *optim;
    tg_tensor *x[MOST_BATCHES], *target[MOST_BATCHES];
    int batches, step; /* batches in turn */
} network;

/* ---- training -------------------------------------------------------------------------------------------------- */

static tg_module *child(tg_module *m)
{
    char name[16];
    snprintf(name, sizeof name, "%d", tg_module_child_count(network.net));
    return tg_module_child(network.net, name, m);
}

void first_weights(tg_module *net)
{
    tg_tensor *const *params = tg_module_params(net);
    const int n = tg_module_count(net);
    for (int i = 0; i < n; ++i) {
        const int64_t rows = tg_dim(params[i], 0);
        const char *path = tg_module_path(net, i), *name = strrchr(path, '.');
        TG_NO_GRAD;
        if (tg_ndim(params[i]) > 1) fill(params[i], (uint32_t)i + 1, 1 / sqrtf((float)(tg_numel(params[i]) / rows)));
        else tg_fill_(params[i], strcmp(name ? name + 1 : path, "weight") ? 0 : 1);
    }
}

static double train(void)
{
    TG_SCOPE;
    tg_optim_zero_grad(network.optim);
    tg_tensor *loss = now.kind->forward();
    tg_backward(loss);
    tg_step(network.optim);
    ++network.step;
    return tg_item(loss);
}

/* flops: of a step without the optimizer. */
static void begin_training(double flops)
{
    tg_tensor *const *params = tg_module_params(network.net);
    const int n = tg_module_count(network.net);
    const bool adamw = option("adamw");
    first_weights(network.net);
    now.mode = TRAIN;
    now.train = train;
    network.optim = adamw ? tg_adamw(params, n, 3e-4) : tg_sgd(params, n, 0.01);
    /* weights and moments are read and written, gradients read */
    cost(flops, (adamw ? 7 : 3) * (double)tg_module_numel(network.net));
}

/* Batches of x [sizes] with one label, or numbers where classes is 0, for each of their rows. */
static void make_batches(tg_shape x, tg_shape target, int64_t classes)
{
    network.batches = MOST_BATCHES;
    for (int i = 0; i < network.batches; ++i) {
        network.x[i] = numbers(x, 1000 + (uint32_t)i);
        network.target[i] = classes ? labels(target, 2000 + (uint32_t)i, classes) : numbers(target, 2000 + (uint32_t)i);
    }
}
static tg_tensor *batch(void) { return network.x[network.step % network.batches]; }
static tg_tensor *target(void) { return network.target[network.step % network.batches]; }

/* sizes B, inputs, widths ..., outputs.  "tanh": regression with tanh between the layers, else classes with relu */
static void setup_mlp(void)
{
    const int layers = now.sizes - 2;
    const int64_t *width = now.size + 1, B = now.size[0];
    double products = 0;
    network.net = tg_module_new("MLP", NULL, 0);
    for (int i = 0; i < layers; ++i) {
        network.layer[i] = child(tg_nn_linear(width[i], width[i + 1], true));
        products += (double)(width[i] * width[i + 1]) * (i ? 3 : 2);
    }
    if (option("tanh")) make_batches(TG_SHAPE(B, width[0]), TG_SHAPE(B, width[layers]), 0);
    else make_batches(TG_SHAPE(B, width[0]), TG_SHAPE(B), width[layers]);
    begin_training(2 * (double)B * products);
}
static tg_tensor *forward_mlp(void)
{
    const int layers = now.sizes - 2;
    const bool regression = option("tanh");
    tg_tensor *x = batch();
    for (int i = 0; i < layers; ++i) {
        x = tg_forward(network.layer[i], x);
        if (i < layers - 1) x = regression ? tg_tanh(x) : tg_relu(x);
    }
    return regression ? tg_mse_loss(x, target(), TG_MEAN) : tg_cross_entropy(x, target());
}

/* sizes B, side of the images, channels of the two convolutions, width of the linear layer, classes */
static void setup_conv_net(void)
{
    const int64_t B = now.size[0], side = now.size[1], C1 = now.size[2], C2 = now.size[3], width = now.size[4];
    const int64_t classes = now.size[5], flat = C2 * (side / 4) * (side / 4), pixels = side * side;
    const int64_t products = 2 * pixels * C1 * 9 + 3 * (pixels / 4 * C2 * C1 * 9 + flat * width + width * classes);
    network.net = tg_module_new("ConvNet", NULL, 0);
    network.layer[0] = child(tg_nn_conv2d(1, C1, TG_SHAPE(3), TG_SHAPE(1), TG_SHAPE(1), TG_SHAPE(1), 1, true));
    network.layer[1] = child(tg_nn_conv2d(C1, C2, TG_SHAPE(3), TG_SHAPE(1), TG_SHAPE(1), TG_SHAPE(1), 1, true));
    network.layer[2] = child(tg_nn_linear(flat, width, true));
    network.layer[3] = child(tg_nn_linear(width, classes, true));
    make_batches(TG_SHAPE(B, 1, side, side), TG_SHAPE(B), classes);
    begin_training(2 * (double)B * (double)products);
}
static tg_tensor *forward_conv_net(void)
{
    tg_tensor *x = batch();
    for (int i = 0; i < 2; ++i) {
        x = tg_relu(tg_forward(network.layer[i], x));
        x = tg_max_pool2d(x, TG_SHAPE(2), TG_SHAPE(2), TG_SHAPE(0));
    }
    x = tg_relu(tg_forward(network.layer[2], tg_flatten(x, 1, -1)));
    return tg_cross_entropy(tg_forward(network.layer[3], x), target());
}

/* sizes B, T, inputs, hidden, classes: the class of a sequence */
static void setup_recurrent(tg_module *cells, int64_t gates)
{
    const int64_t B = now.size[0], T = now.size[1], in = now.size[2], hidden = now.size[3], classes = now.size[4];
    network.net = tg_module_new("Recurrent", NULL, 0);
    network.layer[0] = child(cells);
    network.layer[1] = child(tg_nn_linear(hidden, classes, true));
    make_batches(TG_SHAPE(B, T, in), TG_SHAPE(B), classes);
    begin_training(2 * (double)(B * T) * (double)(gates * hidden * (2 * in + 3 * hidden)));
}
static void setup_lstm(void) { setup_recurrent(tg_nn_lstm_ex(now.size[2], now.size[3], 1, true, true, 0, false), 4); }
static void setup_gru(void) { setup_recurrent(tg_nn_gru_ex(now.size[2], now.size[3], 1, true, true, 0, false), 3); }
static tg_tensor *forward_recurrent(void)
{
    tg_tensor *last = tg_select(tg_forward(network.layer[0], batch()), 1, -1);
    return tg_cross_entropy(tg_forward(network.layer[1], last), target());
}

/* sizes B, T, layers, width, heads, vocabulary.  "tied": the matrix of the logits is that of the embedding */
static void setup_gpt(void)
{
    const int64_t B = now.size[0], T = now.size[1], layers = now.size[2], C = now.size[3], V = now.size[5];
    network.net = tg_module_new("GPT", NULL, 0);
    network.layer[0] = child(tg_nn_embedding(V, C));
    network.layer[1] = child(tg_nn_embedding(T, C));
    for (int64_t i = 0; i < layers && i < MOST_LAYERS; ++i) {
        block *b = &network.blocks[i];
        b->norm_attention = child(tg_nn_layer_norm(TG_SHAPE(C), 1e-5, true));
        b->norm_mlp = child(tg_nn_layer_norm(TG_SHAPE(C), 1e-5, true));
        b->query_key_value = child(tg_nn_linear(C, 3 * C, true));
        b->attention_out = child(tg_nn_linear(C, C, true));
        b->mlp_in = child(tg_nn_linear(C, 4 * C, true));
        b->mlp_out = child(tg_nn_linear(4 * C, C, true));
    }
    network.layer[2] = child(tg_nn_layer_norm(TG_SHAPE(C), 1e-5, true));
    if (!option("tied")) network.layer[3] = child(tg_nn_linear(C, V, false));
    network.batches = 4;
    for (int i = 0; i < network.batches; ++i) {
        network.x[i] = labels(TG_SHAPE(B, T), 1000 + (uint32_t)i, V);
        network.target[i] = labels(TG_SHAPE(B, T), 2000 + (uint32_t)i, V);
    }
    begin_training((double)(B * T) * (6.0 * (double)(12 * layers * C * C + V * C) + 6.0 * (double)(layers * T * C)));
}
static tg_tensor *attention(const block *b, tg_tensor *x)
{
    const int64_t B = now.size[0], T = now.size[1], C = now.size[3], heads = now.size[4];
    tg_tensor *qkv = tg_view(tg_forward(b->query_key_value, x), TG_SHAPE(B, T, 3, heads, C / heads));
    tg_tensor *y, *part[3];
    tg_unbind(qkv, 2, part, 3);
    for (int i = 0; i < 3; ++i) part[i] = tg_transpose(part[i], 1, 2); /* [B, heads, T, C / heads] */
    y = tg_scaled_dot_product_attention(part[0], part[1], part[2], NULL, 0, true, 0);
    return tg_forward(b->attention_out, tg_reshape(tg_transpose(y, 1, 2), TG_SHAPE(B, T, C)));
}
static tg_tensor *transform(const block *b, tg_tensor *x)
{
    TG_SCOPE;
    x = tg_add(x, attention(b, tg_forward(b->norm_attention, x)));
    tg_tensor *y = tg_gelu(tg_forward(b->mlp_in, tg_forward(b->norm_mlp, x)), false);
    return tg_keep(tg_add(x, tg_forward(b->mlp_out, y)));
}
static tg_tensor *forward_gpt(void)
{
    const int64_t B = now.size[0], T = now.size[1], V = now.size[5];
    tg_tensor *x, *positions = tg_arange_on(0, (double)T, 1, TG_I64, TG_CPU);
    x = tg_add(tg_forward(network.layer[0], batch()), tg_forward(network.layer[1], positions));
    for (int64_t i = 0; i < now.size[2]; ++i) x = transform(&network.blocks[i], x);
    x = tg_forward(network.layer[2], x);
    if (option("tied")) x = tg_linear(x, tg_module_get(network.layer[0], "weight"), NULL);
    else x = tg_forward(network.layer[3], x);
    return tg_cross_entropy(tg_view(x, TG_SHAPE(B * T, V)), tg_view(target(), TG_SHAPE(B * T)));
}

void end_network(void)
{
    tg_optim_free(network.optim);
    tg_module_free(network.net);
    tg_release_all(network.x, network.batches);
    tg_release_all(network.target, network.batches);
    memset(&network, 0, sizeof network);
}

/* ---- the table ------------------------------------------------------------------------------------------------- */

const kind network_kinds[] = {
    {"mlp", setup_mlp, forward_mlp, NULL, NULL},
    {"conv_net", setup_conv_net, forward_conv_net, NULL, NULL},
    {"lstm", setup_lstm, forward_recurrent, NULL, NULL},
    {"gru", setup_gru, forward_recurrent, NULL, NULL},
    {"gpt", setup_gpt, forward_gpt, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
