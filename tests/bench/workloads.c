/* What is measured on the CPU: a table of workloads, and the programs around it.
 *
 *     workloads worker THREADS    answers lines of stdin, one line each; tests/bench/bench.py asks this and other libraries
 *     workloads quick             the rows that need a minute, each with its part of what the processor could do
 *     workloads tiny              the same rows, each for less than a millisecond, if it can: do they run?
 *
 * A workload has a name of three parts, KIND-SIZES-OPTIONS, as "sgemm-64x512x784-NT" or "softmax-24576x256-backward"; any
 * sizes can be asked for.  The lines of a worker:
 *
 *     rows                 the names of the benchmark's rows, one a line, then an empty line
 *     time NAME MS         seconds per call, measured for about that many milliseconds; the first time also sets up and warms up
 *     cost NAME            floating point operations and bytes of memory of a call, at least
 *     losses NAME STEPS    the losses of the first steps of training
 *     memory NAME          bytes of memory that three steps take at most beyond what the idle process had
 *     drop                 frees the workload that is set up
 *     version              one line
 */
#if !defined(_WIN32) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#include "tensorgrad.h"
#include "roof.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SIZES = 8, MOST_INPUTS = 3, MOST_BATCHES = 8, MOST_LAYERS = 12, REPEATED = 1000 };

/* What a call does with the tensor of the forward function: nothing; runs backward through a graph that is kept; computes
   both; or trains, where the tensor is a loss. */
typedef enum { FORWARD, BACKWARD, BOTH, TRAIN } mode;

typedef struct { tg_module *norm_attention, *norm_mlp, *query_key_value, *attention_out, *mlp_in, *mlp_out; } block;

typedef struct kind {
    const char *name;
    void (*setup)(void);
    tg_tensor *(*forward)(void);
    tg_tensor *(*unary)(tg_tensor *x);
    tg_tensor *(*binary)(tg_tensor *a, tg_tensor *b);
} kind;

/* The workload that is set up, one at a time. */
static struct {
    char name[128], options[64];
    const kind *kind;
    int64_t size[MOST_SIZES];
    int sizes, threads;
    mode mode;
    bool grad; /* the inputs require grad */
    double flops, bytes, calls; /* of one turn of the loop; a turn that repeats a small op counts as several calls */
    double seconds;             /* per turn, as far as known */
    tg_tensor *input[MOST_INPUTS], *index, *output, *gradient;
    int inputs;
    tg_module *net, *layer[MOST_LAYERS];
    block blocks[MOST_LAYERS];
    tg_optim *optim;
    tg_tensor *x[MOST_BATCHES], *target[MOST_BATCHES];
    int batches, step;
    float *buffer; /* of the copy */
} now;

/* ---- numbers that every worker makes alike -------------------------------------------------------------------------- */

/* 24 random bits, the same for an index and a seed in every language. */
static uint32_t random_bits(uint32_t i, uint32_t seed)
{
    uint32_t x = i * 2654435761u + seed * 2246822519u;
    for (int round = 0; round < 2; ++round) {
        x ^= x >> 16;
        x *= 0x45d9f3bu;
    }
    return (x ^ (x >> 16)) >> 8;
}

/* Fills a tensor with numbers in [-scale, scale). */
static tg_tensor *fill(tg_tensor *t, uint32_t seed, float scale)
{
    float *data = tg_data_f32(t);
    const int64_t n = data ? tg_numel(t) : 0;
    for (int64_t i = 0; i < n; ++i) data[i] = ((float)random_bits((uint32_t)i, seed) * 0x1p-23f - 1) * scale;
    return tg_touch_(t);
}

static tg_tensor *numbers(tg_shape shape, uint32_t seed) { return tg_retain(fill(tg_empty(shape), seed, 1)); }

static tg_tensor *labels(tg_shape shape, uint32_t seed, int64_t classes)
{
    tg_tensor *t = tg_retain(tg_empty_on(shape, TG_I64, TG_CPU));
    int64_t *data = tg_data_i64(t);
    const int64_t n = data ? tg_numel(t) : 0;
    for (int64_t i = 0; i < n; ++i) data[i] = random_bits((uint32_t)i, seed) % classes;
    return tg_touch_(t);
}

static bool option(const char *text) { return strstr(now.options, text) != NULL; }

/* An input of the op at hand; it requires grad where the call needs that. */
static tg_tensor *input(tg_shape shape)
{
    tg_tensor *t = numbers(shape, (uint32_t)now.inputs + 1);
    if (option("denormal")) fill(t, (uint32_t)now.inputs + 1, 1e-40f);
    if (now.grad) tg_set_requires_grad(t, true);
    return now.input[now.inputs++] = t;
}

/* What a call costs at least, forward.  Backward does twice the work, and reads the gradient, too. */
static void cost(double flops, double floats)
{
    static const double works[] = {1, 2, 3, 1}, moves[] = {1, 1.5, 2.5, 1};
    now.flops = flops * works[now.mode];
    now.bytes = 4 * floats * moves[now.mode];
}

/* ---- the roofs --------------------------------------------------------------------------------------------------- */

static void setup_peak(void) { now.flops = 0; }
static tg_tensor *forward_peak(void) { return now.flops = roof_fma(now.threads), NULL; }

static void setup_copy(void)
{
    const int64_t n = now.size[0];
    now.buffer = (float *)malloc(2 * (size_t)n * sizeof *now.buffer);
    for (int64_t i = 0; now.buffer && i < 2 * n; ++i) now.buffer[i] = 1;
    cost(0, 2 * (double)n);
}
static tg_tensor *forward_copy(void)
{
    roof_copy(now.buffer, now.buffer + now.size[0], now.size[0], option("stream"), now.threads);
    return NULL;
}

/* ---- products of matrices ------------------------------------------------------------------------------------------ */

/* sizes M, N, K; options say which of the two is transposed: NN, NT, TN, TT */
static void setup_product(tg_dtype dtype)
{
    const int64_t M = now.size[0], N = now.size[1], K = now.size[2];
    const bool a = now.options[0] == 'T', b = now.options[0] && now.options[1] == 'T';
    const tg_shape shapes[2] = {a ? TG_SHAPE(K, M) : TG_SHAPE(M, K), b ? TG_SHAPE(N, K) : TG_SHAPE(K, N)};
    for (int i = 0; i < 2; ++i) {
        TG_SCOPE;
        tg_tensor *t = numbers(shapes[i], (uint32_t)i + 1);
        if (dtype == TG_I64) tg_mul_scalar_(t, 100);
        now.input[i] = tg_retain(tg_to_dtype(t, dtype));
        tg_release(t);
    }
    now.inputs = 2;
    cost(2.0 * (double)M * (double)N * (double)K, (double)(M * N + M * K + N * K));
}
static void setup_sgemm(void) { setup_product(TG_F32); }
static void setup_matmul_i64(void)
{
    setup_product(TG_I64);
    now.flops = 0;
}
static void setup_matmul_bf16(void) { setup_product(TG_BF16); }
static tg_tensor *forward_product(void)
{
    tg_tensor *a = now.input[0], *b = now.input[1];
    if (now.options[0] == 'T') a = tg_t(a);
    if (now.options[0] && now.options[1] == 'T') b = tg_t(b);
    return tg_matmul(a, b);
}

/* sizes N, C, H, W: a 3x3 convolution from C to C channels */
static void setup_conv2d(void)
{
    const int64_t N = now.size[0], C = now.size[1], H = now.size[2], W = now.size[3];
    input(TG_SHAPE(N, C, H, W));
    input(TG_SHAPE(C, C, 3, 3));
    cost(2.0 * (double)(N * C * H * W) * (double)C * 9, (double)(2 * N * C * H * W + C * C * 9));
}
static tg_tensor *forward_conv2d(void)
{
    return tg_conv2d(now.input[0], now.input[1], NULL, TG_SHAPE(1), TG_SHAPE(1), TG_SHAPE(1), 1);
}

/* ---- elementwise, rows and columns, copies ------------------------------------------------------------------------- */

static void setup_unary(void)
{
    input(TG_SHAPE(now.size[0]));
    cost(0, 2 * (double)now.size[0]);
}
static tg_tensor *forward_unary(void) { return now.kind->unary(now.input[0]); }
static tg_tensor *gelu_erf(tg_tensor *x) { return tg_gelu(x, false); }
static tg_tensor *gelu_tanh(tg_tensor *x) { return tg_gelu(x, true); }
static tg_tensor *to_f16(tg_tensor *x) { return tg_to_dtype(x, TG_F16); }

static void setup_binary(void)
{
    input(TG_SHAPE(now.size[0]));
    input(TG_SHAPE(now.size[0]));
    cost(0, 3 * (double)now.size[0]);
}
static tg_tensor *forward_binary(void) { return now.kind->binary(now.input[0], now.input[1]); }

static void setup_sum(void)
{
    input(TG_SHAPE(now.size[0]));
    cost(0, (double)now.size[0]);
}

/* sizes rows, columns */
static void setup_matrix(void)
{
    input(TG_SHAPE(now.size[0], now.size[1]));
    cost(0, 2 * (double)(now.size[0] * now.size[1]));
}
static tg_tensor *softmax(tg_tensor *x) { return tg_softmax(x, -1); }
static tg_tensor *log_softmax(tg_tensor *x) { return tg_log_softmax(x, -1); }
static tg_tensor *transposed_copy(tg_tensor *x) { return tg_contiguous(tg_t(x)); }

static void setup_sums(void)
{
    input(TG_SHAPE(now.size[0], now.size[1]));
    cost(0, (double)(now.size[0] * now.size[1]));
}
static tg_tensor *sum_dim0(tg_tensor *x) { return tg_sum_dim(x, 0, false); }
static tg_tensor *sum_dim1(tg_tensor *x) { return tg_sum_dim(x, 1, false); }

static void setup_layer_norm(void)
{
    setup_matrix();
    input(TG_SHAPE(now.size[1]));
    input(TG_SHAPE(now.size[1]));
}
static tg_tensor *forward_layer_norm(void) { return tg_layer_norm(now.input[0], 1, now.input[1], now.input[2], 1e-5); }

static void setup_bias_add(void)
{
    setup_matrix();
    input(TG_SHAPE(now.size[1]));
}

static void setup_cat(void)
{
    setup_matrix();
    input(TG_SHAPE(now.size[0], now.size[1]));
    cost(0, 4 * (double)(now.size[0] * now.size[1]));
}
static tg_tensor *forward_cat(void) { return tg_cat(now.input, 2, 1); }

/* sizes rows of the table, its columns, ids */
static void setup_embedding(void)
{
    input(TG_SHAPE(now.size[0], now.size[1]));
    now.index = labels(TG_SHAPE(now.size[2]), 9, now.size[0]);
    cost(0, 2 * (double)(now.size[2] * now.size[1]));
    if (now.mode != FORWARD) now.bytes += 4 * (double)(now.size[0] * now.size[1]); /* the gradient of the whole table */
}
static tg_tensor *forward_embedding(void) { return tg_embedding(now.input[0], now.index); }

static void setup_randn(void) { cost(0, (double)now.size[0]); }
static tg_tensor *forward_randn(void) { return tg_randn(TG_SHAPE(now.size[0])); }

static void setup_index_select(void)
{
    setup_matrix();
    now.index = labels(TG_SHAPE(now.size[1]), 9, now.size[1]);
}
static tg_tensor *forward_index_select(void) { return tg_index_select(now.input[0], 1, now.index); }

/* sizes rows, columns, k */
static void setup_topk(void)
{
    input(TG_SHAPE(now.size[0], now.size[1]));
    cost(0, (double)(now.size[0] * now.size[1]));
}
static tg_tensor *forward_topk(void)
{
    tg_tensor *indices;
    return tg_topk(now.input[0], now.size[2], 1, true, &indices);
}

/* sizes rows, classes */
static void setup_cross_entropy(void)
{
    const double floats = (double)(now.size[0] * now.size[1]);
    input(TG_SHAPE(now.size[0], now.size[1]));
    now.index = labels(TG_SHAPE(now.size[0]), 9, now.size[1]);
    cost(0, floats);
    now.bytes = 4 * floats * (now.mode == FORWARD ? 1 : now.mode == BACKWARD ? 2 : 3);
}
static tg_tensor *forward_cross_entropy(void) { return tg_cross_entropy(now.input[0], now.index); }

/* ---- what an op costs beside its arithmetic ------------------------------------------------------------------------- */

static void setup_op(void)
{
    now.grad = option("grad");
    input(TG_SHAPE(now.size[0]));
    input(TG_SHAPE(now.size[0]));
    now.calls = REPEATED;
}
static tg_tensor *forward_op(void)
{
    for (int i = 0; i < REPEATED / 100; ++i) {
        TG_SCOPE;
        for (int k = 0; k < 100; ++k) tg_add(now.input[0], now.input[1]);
    }
    return NULL;
}

static tg_tensor *forward_chain(void)
{
    tg_tensor *y = now.input[0];
    for (int i = 0; i < REPEATED; ++i) y = tg_mul(y, now.input[1]);
    return y;
}
static void setup_chain(void)
{
    now.grad = now.grad || option("grad");
    input(TG_SHAPE(now.size[0]));
    now.grad = false;
    input(TG_SHAPE(now.size[0]));
    tg_fill_(now.input[1], 1);
    now.calls = REPEATED;
}

/* A network of scalars, 2-16-16-1 with relu, whose every sum and product is a tensor of one element: what micrograd does.
   sizes: points.  The calls of a turn are the nodes of the graph. */
enum { SCALAR_LAYERS = 3 };
static const int scalar_width[SCALAR_LAYERS + 1] = {2, 16, 16, 1};
static tg_tensor *scalar_weight[SCALAR_LAYERS * 16 * 17];
static int scalar_weights;

static void setup_scalar_graph(void)
{
    double nodes = 0;
    scalar_weights = 0;
    for (int layer = 0; layer < SCALAR_LAYERS; ++layer) {
        const int in = scalar_width[layer], out = scalar_width[layer + 1];
        for (int i = 0; i < (in + 1) * out; ++i) {
            tg_tensor *w = tg_param(fill(tg_empty(TG_SCALAR), (uint32_t)scalar_weights + 1, 1));
            scalar_weight[scalar_weights++] = w;
        }
        nodes += (2.0 * in + (layer < SCALAR_LAYERS - 1)) * out;
    }
    for (int i = 0; i < 3; ++i) now.input[i] = numbers(TG_SHAPE(now.size[0]), 100 + (uint32_t)i);
    now.inputs = 3;
    now.calls = (nodes + 4) * (double)now.size[0];
}
static tg_tensor *scalar_output(tg_tensor *const *point)
{
    tg_tensor *x[16], *y[16];
    int w = 0;
    memcpy(x, point, 2 * sizeof *x);
    for (int layer = 0; layer < SCALAR_LAYERS; ++layer) {
        for (int o = 0; o < scalar_width[layer + 1]; ++o) {
            y[o] = scalar_weight[w++];
            for (int i = 0; i < scalar_width[layer]; ++i) y[o] = tg_add(y[o], tg_mul(x[i], scalar_weight[w++]));
            if (layer < SCALAR_LAYERS - 1) y[o] = tg_relu(y[o]);
        }
        memcpy(x, y, sizeof x);
    }
    return x[0];
}
static tg_tensor *forward_scalar_graph(void)
{
    tg_tensor *loss = tg_scalar(0);
    for (int64_t i = 0; i < now.size[0]; ++i) {
        tg_tensor *point[2], *score;
        for (int k = 0; k < 2; ++k) point[k] = tg_scalar((double)tg_data_f32(now.input[k])[i]);
        score = tg_mul_scalar(scalar_output(point), tg_data_f32(now.input[2])[i] < 0 ? 1 : -1);
        loss = tg_add(loss, tg_relu(tg_add_scalar(score, 1)));
    }
    tg_zero_grad(scalar_weight, scalar_weights);
    tg_backward(loss);
    return NULL;
}

/* ---- networks: modules, trained ---------------------------------------------------------------------------------------- */

static tg_module *child(tg_module *m)
{
    char name[16];
    snprintf(name, sizeof name, "%d", tg_module_child_count(now.net));
    return tg_module_child(now.net, name, m);
}

/* The same numbers as in the other libraries: matrices and more dims are uniform within 1 / sqrt(inputs), weights of norms
   are 1 and biases 0.  flops: of a step without the optimizer. */
static void begin_training(double flops)
{
    tg_tensor *const *params = tg_module_params(now.net);
    const int n = tg_module_count(now.net);
    const bool adamw = option("adamw");
    for (int i = 0; i < n; ++i) {
        const int64_t rows = tg_dim(params[i], 0);
        const char *path = tg_module_path(now.net, i), *name = strrchr(path, '.');
        TG_NO_GRAD;
        if (tg_ndim(params[i]) > 1) fill(params[i], (uint32_t)i + 1, 1 / sqrtf((float)(tg_numel(params[i]) / rows)));
        else tg_fill_(params[i], strcmp(name ? name + 1 : path, "weight") ? 0 : 1);
    }
    now.mode = TRAIN;
    now.optim = adamw ? tg_adamw(params, n, 3e-4) : tg_sgd(params, n, 0.01);
    cost(flops, (adamw ? 7 : 3) * (double)tg_module_numel(now.net)); /* read and written: weight, moments; gradient read */
}

static double train(void)
{
    TG_SCOPE;
    tg_tensor *loss = now.kind->forward();
    tg_optim_zero_grad(now.optim);
    tg_backward(loss);
    tg_step(now.optim);
    ++now.step;
    return tg_item(loss);
}

/* Batches of x [sizes] with one label, or numbers where classes is 0, for each of their rows. */
static void make_batches(tg_shape x, tg_shape target, int64_t classes)
{
    now.batches = MOST_BATCHES;
    for (int i = 0; i < now.batches; ++i) {
        now.x[i] = numbers(x, 1000 + (uint32_t)i);
        now.target[i] = classes ? labels(target, 2000 + (uint32_t)i, classes) : numbers(target, 2000 + (uint32_t)i);
    }
}
static tg_tensor *batch(void) { return now.x[now.step % now.batches]; }
static tg_tensor *target(void) { return now.target[now.step % now.batches]; }

/* sizes B, inputs, widths ..., outputs.  "tanh": regression with tanh between the layers, else classes with relu */
static void setup_mlp(void)
{
    const int layers = now.sizes - 2;
    const int64_t *width = now.size + 1, B = now.size[0];
    double products = 0;
    now.net = tg_module_new("MLP", NULL, 0);
    for (int i = 0; i < layers; ++i) {
        now.layer[i] = child(tg_nn_linear(width[i], width[i + 1], true));
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
        x = tg_forward(now.layer[i], x);
        if (i < layers - 1) x = regression ? tg_tanh(x) : tg_relu(x);
    }
    return regression ? tg_mse_loss(x, target(), TG_MEAN) : tg_cross_entropy(x, target());
}

/* sizes B, side of the images, channels of the two convolutions, width of the linear layer, classes */
static void setup_conv_net(void)
{
    const int64_t B = now.size[0], side = now.size[1], C1 = now.size[2], C2 = now.size[3], width = now.size[4];
    const int64_t classes = now.size[5], flat = C2 * (side / 4) * (side / 4), pixels = side * side;
    now.net = tg_module_new("ConvNet", NULL, 0);
    now.layer[0] = child(tg_nn_conv2d(1, C1, TG_SHAPE(3), TG_SHAPE(1), TG_SHAPE(1), TG_SHAPE(1), 1, true));
    now.layer[1] = child(tg_nn_conv2d(C1, C2, TG_SHAPE(3), TG_SHAPE(1), TG_SHAPE(1), TG_SHAPE(1), 1, true));
    now.layer[2] = child(tg_nn_linear(flat, width, true));
    now.layer[3] = child(tg_nn_linear(width, classes, true));
    make_batches(TG_SHAPE(B, 1, side, side), TG_SHAPE(B), classes);
    begin_training(2 * (double)B * (double)(2 * pixels * C1 * 9 + 3 * (pixels / 4 * C2 * C1 * 9 + flat * width + width * classes)));
}
static tg_tensor *forward_conv_net(void)
{
    tg_tensor *x = batch();
    for (int i = 0; i < 2; ++i) x = tg_max_pool2d(tg_relu(tg_forward(now.layer[i], x)), TG_SHAPE(2), TG_SHAPE(2), TG_SHAPE(0));
    x = tg_relu(tg_forward(now.layer[2], tg_flatten(x, 1, -1)));
    return tg_cross_entropy(tg_forward(now.layer[3], x), target());
}

/* sizes B, T, inputs, hidden, classes: the class of a sequence */
static void setup_recurrent(tg_module *cells, int64_t gates)
{
    const int64_t B = now.size[0], T = now.size[1], in = now.size[2], hidden = now.size[3], classes = now.size[4];
    now.net = tg_module_new("Recurrent", NULL, 0);
    now.layer[0] = child(cells);
    now.layer[1] = child(tg_nn_linear(hidden, classes, true));
    make_batches(TG_SHAPE(B, T, in), TG_SHAPE(B), classes);
    begin_training(2 * (double)(B * T) * (double)(gates * hidden * (2 * in + 3 * hidden)));
}
static void setup_lstm(void) { setup_recurrent(tg_nn_lstm_ex(now.size[2], now.size[3], 1, true, true, 0, false), 4); }
static void setup_gru(void) { setup_recurrent(tg_nn_gru_ex(now.size[2], now.size[3], 1, true, true, 0, false), 3); }
static tg_tensor *forward_recurrent(void)
{
    tg_tensor *last = tg_select(tg_forward(now.layer[0], batch()), 1, -1);
    return tg_cross_entropy(tg_forward(now.layer[1], last), target());
}

/* sizes B, T, layers, width, heads, vocabulary.  "tied": the matrix of the logits is that of the embedding */
static void setup_gpt(void)
{
    const int64_t B = now.size[0], T = now.size[1], layers = now.size[2], C = now.size[3], V = now.size[5];
    now.net = tg_module_new("GPT", NULL, 0);
    now.layer[0] = child(tg_nn_embedding(V, C));
    now.layer[1] = child(tg_nn_embedding(T, C));
    for (int64_t i = 0; i < layers && i < MOST_LAYERS; ++i) {
        block *b = &now.blocks[i];
        b->norm_attention = child(tg_nn_layer_norm(TG_SHAPE(C), 1e-5, true));
        b->norm_mlp = child(tg_nn_layer_norm(TG_SHAPE(C), 1e-5, true));
        b->query_key_value = child(tg_nn_linear(C, 3 * C, true));
        b->attention_out = child(tg_nn_linear(C, C, true));
        b->mlp_in = child(tg_nn_linear(C, 4 * C, true));
        b->mlp_out = child(tg_nn_linear(4 * C, C, true));
    }
    now.layer[2] = child(tg_nn_layer_norm(TG_SHAPE(C), 1e-5, true));
    if (!option("tied")) now.layer[3] = child(tg_nn_linear(C, V, false));
    now.batches = 4;
    for (int i = 0; i < now.batches; ++i) {
        now.x[i] = labels(TG_SHAPE(B, T), 1000 + (uint32_t)i, V);
        now.target[i] = labels(TG_SHAPE(B, T), 2000 + (uint32_t)i, V);
    }
    begin_training((double)(B * T) * (6.0 * (double)(12 * layers * C * C + V * C) + 6.0 * (double)(layers * T * C)));
}
static tg_tensor *attention(const block *b, tg_tensor *x)
{
    const int64_t B = now.size[0], T = now.size[1], C = now.size[3], heads = now.size[4];
    tg_tensor *qkv = tg_view(tg_forward(b->query_key_value, x), TG_SHAPE(B, T, 3, heads, C / heads));
    tg_tensor *y, *part[3];
    for (int i = 0; i < 3; ++i) part[i] = tg_transpose(tg_select(qkv, 2, i), 1, 2); /* [B, heads, T, C / heads] */
    y = tg_scaled_dot_product_attention(part[0], part[1], part[2], NULL, 0, true, 0);
    return tg_forward(b->attention_out, tg_reshape(tg_transpose(y, 1, 2), TG_SHAPE(B, T, C)));
}
static tg_tensor *forward_gpt(void)
{
    const int64_t B = now.size[0], T = now.size[1], V = now.size[5];
    tg_tensor *x, *positions = tg_arange_on(0, (double)T, 1, TG_I64, TG_CPU);
    x = tg_add(tg_forward(now.layer[0], batch()), tg_forward(now.layer[1], positions));
    for (int64_t i = 0; i < now.size[2]; ++i) {
        const block *b = &now.blocks[i];
        x = tg_add(x, attention(b, tg_forward(b->norm_attention, x)));
        x = tg_add(x, tg_forward(b->mlp_out, tg_gelu(tg_forward(b->mlp_in, tg_forward(b->norm_mlp, x)), false)));
    }
    x = tg_forward(now.layer[2], x);
    x = option("tied") ? tg_linear(x, tg_module_get(now.layer[0], "weight"), NULL) : tg_forward(now.layer[3], x);
    return tg_cross_entropy(tg_view(x, TG_SHAPE(B * T, V)), tg_view(target(), TG_SHAPE(B * T)));
}

/* ---- the tables ------------------------------------------------------------------------------------------------------ */

static const kind kinds[] = {
    {"fma_peak", setup_peak, forward_peak, NULL, NULL},
    {"copy", setup_copy, forward_copy, NULL, NULL},
    {"sgemm", setup_sgemm, forward_product, NULL, NULL},
    {"matmul_i64", setup_matmul_i64, forward_product, NULL, NULL},
    {"matmul_bf16", setup_matmul_bf16, forward_product, NULL, NULL},
    {"conv2d", setup_conv2d, forward_conv2d, NULL, NULL},
    {"exp", setup_unary, forward_unary, tg_exp, NULL},
    {"tanh", setup_unary, forward_unary, tg_tanh, NULL},
    {"gelu", setup_unary, forward_unary, gelu_erf, NULL},
    {"gelu_tanh", setup_unary, forward_unary, gelu_tanh, NULL},
    {"sigmoid", setup_unary, forward_unary, tg_sigmoid, NULL},
    {"silu", setup_unary, forward_unary, tg_silu, NULL},
    {"relu", setup_unary, forward_unary, tg_relu, NULL},
    {"f32_to_f16", setup_unary, forward_unary, to_f16, NULL},
    {"add", setup_binary, forward_binary, NULL, tg_add},
    {"mul", setup_binary, forward_binary, NULL, tg_mul},
    {"add_in_place", setup_binary, forward_binary, NULL, tg_add_},
    {"relu_in_place", setup_unary, forward_unary, tg_relu_, NULL},
    {"sum", setup_sum, forward_unary, tg_sum, NULL},
    {"sum_dim0", setup_sums, forward_unary, sum_dim0, NULL},
    {"sum_dim1", setup_sums, forward_unary, sum_dim1, NULL},
    {"softmax", setup_matrix, forward_unary, softmax, NULL},
    {"log_softmax", setup_matrix, forward_unary, log_softmax, NULL},
    {"layer_norm", setup_layer_norm, forward_layer_norm, NULL, NULL},
    {"bias_add", setup_bias_add, forward_binary, NULL, tg_add},
    {"transposed_copy", setup_matrix, forward_unary, transposed_copy, NULL},
    {"cat", setup_cat, forward_cat, NULL, NULL},
    {"embedding", setup_embedding, forward_embedding, NULL, NULL},
    {"randn", setup_randn, forward_randn, NULL, NULL},
    {"index_select", setup_index_select, forward_index_select, NULL, NULL},
    {"topk", setup_topk, forward_topk, NULL, NULL},
    {"cross_entropy", setup_cross_entropy, forward_cross_entropy, NULL, NULL},
    {"op", setup_op, forward_op, NULL, NULL},
    {"chain", setup_chain, forward_chain, NULL, NULL},
    {"scalar_graph", setup_scalar_graph, forward_scalar_graph, NULL, NULL},
    {"mlp", setup_mlp, forward_mlp, NULL, NULL},
    {"conv_net", setup_conv_net, forward_conv_net, NULL, NULL},
    {"lstm", setup_lstm, forward_recurrent, NULL, NULL},
    {"gru", setup_gru, forward_recurrent, NULL, NULL},
    {"gpt", setup_gpt, forward_gpt, NULL, NULL},
};

/* The rows of the benchmark; quick: those of `make bench-quick`, too. */
static const struct { const char *name; bool quick; } rows[] = {
    {"sgemm-64x64x64-NN", true},
    {"sgemm-128x128x128-NN", false},
    {"sgemm-256x256x256-NN", true},
    {"sgemm-512x512x512-NN", false},
    {"sgemm-1024x1024x1024-NN", true},
    {"sgemm-2048x2048x2048-NN", false},
    {"sgemm-64x512x784-NT", true},
    {"sgemm-784x512x64-TN", true},
    {"sgemm-64x512x512-NN", false},
    {"sgemm-64x512x512-NT", false},
    {"sgemm-4096x1152x384-NT", false},
    {"sgemm-4096x1536x384-NT", false},
    {"sgemm-4096x384x1536-NT", false},
    {"sgemm-384x1536x4096-TN", false},
    {"sgemm-256x50304x768-NT", false},
    {"sgemm-1x4096x4096-NN", true},
    {"conv2d-16x64x32x32", false},
    {"sgemm-2000x64x2000-NN", false},
    {"sgemm-100x100x100-NN", false},
    {"sgemm-333x777x555-NT", false},
    {"mlp-64x784x512x512x10-sgd", true},
    {"mlp-128x784x512x512x10-sgd", false},
    {"mlp-64x784x512x512x10-adamw", false},
    {"mlp-128x784x512x512x10-adamw", false},
    {"mlp-32x2x16x16x1-sgd-tanh", true},
    {"gpt-32x64x4x128x4x65-adamw", false},
    {"gpt-16x256x6x384x6x65-adamw", false},
    {"gpt-4x64x12x768x12x50257-adamw-tied", false},
    {"conv_net-64x28x16x32x128x10-sgd", false},
    {"lstm-32x64x64x128x10-sgd", false},
    {"gru-32x64x64x128x10-sgd", false},
    {"op-1", true},
    {"op-1-grad", true},
    {"chain-1-grad", false},
    {"chain-1-backward", true},
    {"scalar_graph-100", false},
    {"exp-1048576", true},
    {"tanh-1048576", true},
    {"gelu-1048576", true},
    {"gelu_tanh-1048576", false},
    {"sigmoid-1048576", false},
    {"silu-1048576", false},
    {"add-1048576", true},
    {"mul-1048576", false},
    {"relu-1048576", true},
    {"sum-1048576", true},
    {"add_in_place-1048576", false},
    {"relu_in_place-1048576", false},
    {"mul-1048576-denormal", false},
    {"exp-1024", false},
    {"tanh-1024", false},
    {"gelu-1024", false},
    {"sigmoid-1024", false},
    {"add-1024", true},
    {"mul-1024", false},
    {"relu-1024", false},
    {"exp-16384", false},
    {"tanh-16384", false},
    {"gelu-16384", false},
    {"sigmoid-16384", false},
    {"add-16384", false},
    {"mul-16384", false},
    {"relu-16384", false},
    {"exp-16777216", false},
    {"tanh-16777216", false},
    {"gelu-16777216", false},
    {"sigmoid-16777216", false},
    {"add-16777216", true},
    {"add_in_place-16777216", true},
    {"mul-16777216", false},
    {"relu-16777216", false},
    {"softmax-24576x256", true},
    {"softmax-24576x256-backward", false},
    {"log_softmax-24576x256", false},
    {"log_softmax-24576x256-backward", false},
    {"layer_norm-4096x384", true},
    {"layer_norm-4096x384-backward", true},
    {"sum_dim0-4096x4096", true},
    {"sum_dim1-4096x4096", false},
    {"cross_entropy-4096x50304", false},
    {"cross_entropy-4096x50304-both", false},
    {"bias_add-4096x384", false},
    {"transposed_copy-2048x2048", false},
    {"cat-2048x2048", false},
    {"embedding-8192x384x4096", false},
    {"embedding-8192x384x4096-backward", false},
    {"randn-1048576", false},
    {"index_select-1024x1024", false},
    {"topk-1024x4096x10", false},
    {"f32_to_f16-1048576", false},
    {"matmul_i64-256x256x256-NN", false},
    {"matmul_bf16-512x512x512-NN", false},
};
enum { KINDS = sizeof kinds / sizeof *kinds, ROWS = sizeof rows / sizeof *rows };

/* ---- setting up, and measuring ---------------------------------------------------------------------------------------- */

static void end_workload(void)
{
    const int threads = now.threads;
    tg_optim_free(now.optim);
    if (now.net) tg_module_free(now.net);
    tg_release_all(now.input, now.inputs);
    tg_release_all(now.x, now.batches);
    tg_release_all(now.target, now.batches);
    tg_release_all(scalar_weight, scalar_weights);
    if (now.index) tg_release(now.index);
    if (now.output) tg_release(now.output);
    if (now.gradient) tg_release(now.gradient);
    free(now.buffer);
    tg_empty_cache(TG_CPU);
    scalar_weights = 0;
    memset(&now, 0, sizeof now);
    now.threads = threads;
}

/* Makes the tensors of a workload, unless it is the one that is there.  False: there is none of that name. */
static bool begin_workload(const char *name)
{
    char text[sizeof now.name];
    char *sizes, *options, *number;
    if (!strcmp(name, now.name)) return true;
    end_workload();
    if (strlen(name) >= sizeof text) return false;
    strcpy(text, name);
    sizes = strchr(text, '-');
    if (sizes) *sizes++ = '\0';
    options = sizes ? strchr(sizes, '-') : NULL;
    if (options) *options++ = '\0';
    if (options && strlen(options) < sizeof now.options) strcpy(now.options, options);
    for (int i = 0; i < KINDS; ++i)
        if (!strcmp(kinds[i].name, text)) now.kind = &kinds[i];
    for (number = sizes; number && *number && now.sizes < MOST_SIZES; ++now.sizes) {
        now.size[now.sizes] = strtoll(number, &number, 10);
        if (now.size[now.sizes] < 1 || (*number && *number++ != 'x')) return false;
    }
    if (!now.kind || !now.sizes) return false;
    now.mode = option("backward") ? BACKWARD : option("both") ? BOTH : FORWARD;
    now.grad = now.mode != FORWARD;
    now.calls = 1;
    TG_SCOPE;
    now.kind->setup();
    if (now.mode == BACKWARD || now.mode == BOTH) {
        tg_tensor *y = now.kind->forward();
        if (now.mode == BACKWARD) now.output = tg_retain(y);
        now.gradient = numbers(tg_shape_of(y), 99);
    }
    strcpy(now.name, name);
    return tg_ok();
}

/* The work that is measured, once. */
static void turn(void)
{
    TG_SCOPE;
    tg_tensor *y, *results[MOST_INPUTS], *leaves[MOST_INPUTS];
    int n = 0;
    if (now.mode == TRAIN) {
        train();
        return;
    }
    y = now.mode == BACKWARD ? now.output : now.kind->forward();
    if (now.mode == FORWARD) return;
    for (int i = 0; i < now.inputs; ++i)
        if (tg_requires_grad(now.input[i])) leaves[n++] = now.input[i];
    tg_gradients(&y, 1, &now.gradient, leaves, n, results, now.mode == BACKWARD ? TG_RETAIN_GRAPH : 0);
}

static double seconds_of(int64_t turns)
{
    const double begun = seconds_now();
    for (int64_t i = 0; i < turns; ++i) turn();
    return (seconds_now() - begun) / (double)turns;
}

static double smaller(double a, double b) { return a < b ? a : b; }
static double larger(double a, double b) { return a > b ? a : b; }

/* Until three samples in a row agree within 5 %, after ten turns; not for longer than 1.5 s. */
static void warm_up(double sample)
{
    double last[3] = {0, 0, 0}, least;
    int64_t turns = 1, done = 0;
    const double begun = seconds_now();
    for (int i = 0;; ++i) {
        const double seconds = seconds_of(turns);
        last[i % 3] = seconds;
        least = smaller(last[0], smaller(last[1], last[2]));
        done += turns;
        now.seconds = i < 3 ? seconds : least;
        if (seconds_now() - begun > smaller(1.5, 75 * sample)) break;
        if (done >= 10 && i >= 3 && larger(last[0], larger(last[1], last[2])) < 1.05 * least) break;
        turns = (int64_t)(sample / 4 / seconds) + 1;
    }
}

/* Seconds per call, over about `sample` seconds. */
static double measure(double sample)
{
    double seconds;
    int64_t turns;
    if (now.seconds == 0) warm_up(sample);
    turns = (int64_t)(sample / now.seconds);
    seconds = seconds_of(turns > 1 ? turns : 1);
    now.seconds = smaller(now.seconds, seconds);
    return seconds / now.calls;
}

/* ---- the worker ---------------------------------------------------------------------------------------------------------- */

/* A line "NAME:  1234 kB" of the kernel's account of this process, in bytes; 0 where there is none. */
static double memory_status(const char *name)
{
    char line[256];
    double kilobytes = 0;
    FILE *file = fopen("/proc/self/status", "r");
    while (file && fgets(line, sizeof line, file))
        if (!strncmp(line, name, strlen(name))) kilobytes = strtod(line + strlen(name) + 1, NULL);
    if (file) fclose(file);
    return 1024 * kilobytes;
}

static void answer(char *line, double idle_bytes)
{
    const char *word = strtok(line, " \n"), *name = strtok(NULL, " \n"), *number = strtok(NULL, " \n");
    const double value = number ? strtod(number, NULL) : 0;
    if (word && !strcmp(word, "losses")) end_workload(); /* from the first step on */
    if (word && !strcmp(word, "version")) {
        puts(tg_build_info());
    } else if (word && !strcmp(word, "rows")) {
        for (int i = 0; i < ROWS; ++i) puts(rows[i].name);
        putchar('\n');
    } else if (word && !strcmp(word, "drop")) {
        end_workload();
        puts("ok");
    } else if (!word || !name) {
        puts("error: not a line of this worker");
    } else if (!begin_workload(name)) {
        printf("error: %s\n", tg_ok() ? "no such workload" : tg_error_message());
    } else if (!strcmp(word, "cost")) {
        if (now.kind->setup == setup_peak) turn(); /* knows how much it did */
        printf("%.9g %.9g\n", now.flops / now.calls, now.bytes / now.calls);
    } else if (!strcmp(word, "time")) {
        const double seconds = measure(1e-3 * value);
        if (tg_ok()) printf("%.9g\n", seconds);
        else printf("error: %s\n", tg_error_message());
    } else if (!strcmp(word, "losses") && now.mode == TRAIN) {
        for (int i = 0; i < (int)value; ++i) printf("%.9g ", train());
        putchar('\n');
        end_workload();
    } else if (!strcmp(word, "memory")) {
        for (int i = 0; i < 3; ++i) turn();
        printf("%.0f\n", memory_status("VmHWM") - idle_bytes);
    } else {
        puts("error: not a line of this worker");
    }
    tg_clear_error();
}

static void work(void)
{
    char line[256];
    const double idle_bytes = memory_status("VmRSS");
    while (fgets(line, sizeof line, stdin)) {
        answer(line, idle_bytes);
        fflush(stdout);
    }
}

/* ---- the quick figures ------------------------------------------------------------------------------------------------- */

enum { COPIES = 4 };
static const int64_t copied[COPIES] = {1024, 16384, 1048576, 16777216};

/* Seconds that the processor needs at least for this work: its arithmetic, and its bytes at the speed of a copy of about as
   many. */
static double floor_seconds(double flops, double bytes, double peak, const double *copy)
{
    int nearest = 0;
    for (int i = 1; i < COPIES; ++i)
        if (fabs(log(bytes / (8 * (double)copied[i]))) < fabs(log(bytes / (8 * (double)copied[nearest])))) nearest = i;
    return flops / peak + (bytes > 0 ? bytes / copy[nearest] : 0);
}

static void print_quick(const char *name, double peak, const double *copy, double sample)
{
    const int samples = sample < 0.001 ? 1 : 5;
    double least = 1e9, floor, seconds;
    if (!begin_workload(name)) return;
    for (int i = 0; i < samples; ++i) {
        seconds = measure(sample);
        least = smaller(least, seconds);
    }
    floor = floor_seconds(now.flops / now.calls, now.bytes / now.calls, peak, copy);
    printf("%-32s %d thread%s %12.1f ", name, now.threads, now.threads > 1 ? "s" : " ", least * (least < 1e-5 ? 1e9 : 1e6));
    printf(least < 1e-5 ? "ns" : "us");
    if (now.flops > 0) printf(" %8.1f GFLOP/s", 1e-9 * now.flops / now.calls / least);
    else if (now.bytes > 0) printf(" %8.1f GB/s   ", 1e-9 * now.bytes / now.calls / least);
    if (floor > 0) printf(" %5.0f %% of the roof", 100 * floor / least);
    putchar('\n');
}

static void quick(double sample)
{
    static double peak, copy[COPIES]; /* with two threads at least what one has reached */
    char name[64];
    if (begin_workload("fma_peak-1")) {
        for (int i = 0; i < 5; ++i) {
            const double seconds = measure(sample);
            peak = larger(peak, now.flops / seconds);
        }
    }
    printf("%-32s %d thread%s %12.1f GFLOP/s, %s\n", "multiply-adds", now.threads, now.threads > 1 ? "s" : " ", 1e-9 * peak,
           roof_instructions());
    for (int i = 0; i < COPIES; ++i) {
        for (int stream = 0; stream < 2; ++stream) {
            snprintf(name, sizeof name, "copy-%lld%s", (long long)copied[i], stream ? "-stream" : "");
            for (int k = 0; k < 3 && begin_workload(name); ++k) copy[i] = larger(copy[i], now.bytes / measure(sample));
        }
        printf("copy of %-24lld %d thread%s %12.1f GB/s\n", 4 * (long long)copied[i], now.threads, now.threads > 1 ? "s" : " ",
               1e-9 * copy[i]);
    }
    for (int i = 0; i < ROWS && tg_ok(); ++i)
        if (rows[i].quick) print_quick(rows[i].name, peak, copy, sample);
}

static void use_threads(int threads)
{
    now.threads = threads;
    tg_set_num_threads(threads);
}

int main(int argc, char **argv)
{
    const char *program = argc > 1 ? argv[1] : "quick";
    if (!strcmp(program, "worker")) {
        use_threads(argc > 2 ? atoi(argv[2]) : 1);
        work();
    } else {
        printf("%s; the best of five samples\n", tg_build_info());
        for (int threads = 1; threads <= 2; ++threads) {
            use_threads(threads);
            quick(strcmp(program, "tiny") ? 0.02 : 0.0001);
#ifndef _OPENMP
            break;
#endif
        }
    }
    end_workload();
    return tg_shutdown() != TG_OK || !tg_ok();
}
