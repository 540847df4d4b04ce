/* What one training step asks of a GPU, counted on the simulator (`make sim-counts`): the third step of each model,
 * when nothing is new any more.
 *
 *     NAME launches N allocations N waits N megabytes N
 *
 * launches: kernels, products by cuBLAS, copies and fills.  allocations: of device memory, from the driver.  waits: of
 * the host for the device.  megabytes: what all but the products read and write in device memory; without
 * TG_SIM_REPORT, which needs the build SIM=check, only copies and fills.  A figure above its limit is a failure; limits
 * come down with the figures.
 *
 * With the argument "predict": the same for GPT-2 124M, 16 sequences of 1024 tokens, from six smaller steps. */
#include "tensorgrad.h"
#include "../cudasim/cudasim_test.h"
#include <stdio.h>
#include <string.h>

enum { MOST_LAYERS = 4 };

typedef struct { long long launches, allocations, waits, bytes; } counts;

typedef struct { tg_module *norm_attention, *norm_mlp, *query_key_value, *attention_out, *mlp_in, *mlp_out; } block;
typedef struct { int64_t batch, length, layers, width, heads, vocabulary; } gpt_sizes;
typedef struct {
    gpt_sizes size;
    tg_module *net, *tokens, *positions, *norm, *logits;
    block block[MOST_LAYERS];
    tg_tensor *position; /* i64 [length] */
} gpt;

static counts so_far(void)
{
    counts c;
    c.waits = cudasim_total(CUDASIM_WAITS); /* before the wait that this makes */
    tg_synchronize(TG_CUDA(0));
    c.launches = cudasim_total(CUDASIM_KERNELS) + cudasim_total(CUDASIM_LIBRARY_CALLS) + cudasim_total(CUDASIM_COPIES);
    c.allocations = cudasim_total(CUDASIM_DRIVER_ALLOCATIONS);
    c.bytes = cudasim_total(CUDASIM_BYTES);
    return c;
}

/* Numbers i, i + 1, ... modulo n, on the CPU. */
static tg_tensor *counted(tg_shape shape, int64_t first, int64_t n)
{
    tg_tensor *t = tg_empty_on(shape, TG_I64, TG_CPU);
    for (int64_t i = 0; i < tg_numel(t); ++i) tg_data_i64(t)[i] = (first + i * 7) % n;
    return t;
}

static tg_tensor *here(tg_tensor *t) { return tg_to(t, TG_CUDA(0)); }

/* ---- an MLP ---- */

static tg_module *make_mlp(void)
{
    tg_module *layers[] = {tg_nn_linear(784, 512, true), tg_nn_relu(), tg_nn_linear(512, 512, true), tg_nn_relu(),
                           tg_nn_linear(512, 10, true)};
    return tg_nn_sequential(layers, 5);
}

static tg_tensor *mlp_loss(void *net, int step)
{
    tg_tensor *x = here(tg_full_on(TG_SHAPE(64, 784), 0.01 * step, TG_F32, TG_CPU));
    return tg_cross_entropy(tg_forward((tg_module *)net, x), here(counted(TG_SHAPE(64), step, 10)));
}

/* ---- a GPT ---- */

static tg_module *child(gpt *g, tg_module *m)
{
    char name[16];
    snprintf(name, sizeof name, "%d", tg_module_child_count(g->net));
    return tg_module_child(g->net, name, m);
}

static void make_gpt(gpt *g, tg_dtype dtype)
{
    const int64_t C = g->size.width;
    g->net = tg_module_new("GPT", NULL, 0);
    g->tokens = child(g, tg_nn_embedding(g->size.vocabulary, C));
    g->positions = child(g, tg_nn_embedding(g->size.length, C));
    for (int64_t i = 0; i < g->size.layers; ++i) {
        block *b = &g->block[i];
        b->norm_attention = child(g, tg_nn_layer_norm(TG_SHAPE(C), 1e-5, true));
        b->norm_mlp = child(g, tg_nn_layer_norm(TG_SHAPE(C), 1e-5, true));
        b->query_key_value = child(g, tg_nn_linear(C, 3 * C, true));
        b->attention_out = child(g, tg_nn_linear(C, C, true));
        b->mlp_in = child(g, tg_nn_linear(C, 4 * C, true));
        b->mlp_out = child(g, tg_nn_linear(4 * C, C, true));
    }
    g->norm = child(g, tg_nn_layer_norm(TG_SHAPE(C), 1e-5, true));
    g->logits = child(g, tg_nn_linear(C, g->size.vocabulary, false));
    tg_module_to_dtype(g->net, dtype);
    g->position = tg_retain(here(counted(TG_SHAPE(g->size.length), 0, g->size.length)));
}

static tg_tensor *attention(const gpt *g, const block *b, tg_tensor *x)
{
    const int64_t B = g->size.batch, T = g->size.length, C = g->size.width;
    tg_tensor *part[3]; /* queries, keys, values [B, heads, T, C / heads] */
    tg_tensor *qkv = tg_view(tg_forward(b->query_key_value, x), TG_SHAPE(B, T, 3, g->size.heads, C / g->size.heads));
    tg_unbind(qkv, 2, part, 3);
    for (int i = 0; i < 3; ++i) part[i] = tg_transpose(part[i], 1, 2);
    tg_tensor *y = tg_scaled_dot_product_attention(part[0], part[1], part[2], NULL, 0, true, 0);
    return tg_forward(b->attention_out, tg_reshape(tg_transpose(y, 1, 2), TG_SHAPE(B, T, C)));
}

/* *x + y, which *x becomes, normalised. */
static tg_tensor *add_and_norm(tg_module *norm, tg_tensor *y, tg_tensor **x)
{
    return tg_add_layer_norm(*x, y, 1, tg_module_get(norm, "weight"), tg_module_get(norm, "bias"), 1e-5, x);
}

static tg_tensor *gpt_loss(void *model, int step)
{
    const gpt *g = (const gpt *)model;
    const int64_t n = g->size.batch * g->size.length;
    tg_tensor *ids = here(counted(TG_SHAPE(g->size.batch, g->size.length), step, g->size.vocabulary));
    tg_tensor *targets = here(counted(TG_SHAPE(n), step + 1, g->size.vocabulary));
    tg_tensor *x = tg_add(tg_forward(g->tokens, ids), tg_forward(g->positions, g->position));
    tg_tensor *y = tg_forward(g->block[0].norm_attention, x); /* x: the residual stream; y: its norm */
    for (int64_t i = 0; i < g->size.layers; ++i) {
        const block *b = &g->block[i];
        y = add_and_norm(b->norm_mlp, attention(g, b, y), &x);
        y = tg_linear_gelu(y, tg_module_get(b->mlp_in, "weight"), tg_module_get(b->mlp_in, "bias"), true);
        y = tg_forward(b->mlp_out, y);
        y = add_and_norm(i + 1 < g->size.layers ? g->block[i + 1].norm_attention : g->norm, y, &x);
    }
    y = tg_forward(g->logits, y);
    return tg_cross_entropy(tg_view(y, TG_SHAPE(n, g->size.vocabulary)), targets);
}

/* ---- counting ---- */

/* The counts of the third step.  Frees net. */
static counts third_step(tg_module *net, tg_tensor *(*loss_of)(void *model, int step), void *model, double max_norm)
{
    const int n = tg_module_count(net);
    tg_optim *optim = tg_adamw(tg_module_params(net), n, 1e-3);
    counts before = {0, 0, 0, 0}, after = before;
    for (int step = 1; step <= 3; ++step) {
        TG_SCOPE;
        before = so_far();
        before.waits = cudasim_total(CUDASIM_WAITS);
        cudasim_report(step == 3);
        tg_optim_zero_grad(optim);
        tg_tensor *loss = loss_of(model, step);
        tg_backward(loss);
        if (max_norm > 0) tg_clip_grad_norm(tg_module_params(net), n, max_norm);
        tg_step(optim);
        tg_item(loss);
        after = so_far();
    }
    tg_optim_free(optim);
    tg_module_free(net);
    after.launches -= before.launches;
    after.allocations -= before.allocations;
    after.waits -= before.waits;
    after.bytes -= before.bytes;
    return after;
}

static counts count_gpt(gpt_sizes size, tg_dtype dtype)
{
    gpt g;
    g.size = size;
    make_gpt(&g, dtype);
    const counts c = third_step(g.net, gpt_loss, &g, 1);
    tg_release(g.position);
    return c;
}

static int failures;

static void report(const char *name, counts c, counts limit)
{
    const double megabytes = (double)c.bytes / 1e6;
    printf("%s launches %lld allocations %lld waits %lld megabytes %.1f\n", name, c.launches, c.allocations, c.waits,
           megabytes);
    if (c.launches > limit.launches || c.allocations > limit.allocations || c.waits > limit.waits ||
        c.bytes > limit.bytes) {
        printf("FAILED: at most launches %lld allocations %lld waits %lld megabytes %.1f\n", limit.launches,
               limit.allocations, limit.waits, (double)limit.bytes / 1e6);
        ++failures;
    }
}

/* The same for 12 layers: each adds what the second did. */
static counts of_12(counts one, counts two)
{
    two.launches += 10 * (two.launches - one.launches);
    two.allocations += 10 * (two.allocations - one.allocations);
    two.waits += 10 * (two.waits - one.waits);
    two.bytes += 10 * (two.bytes - one.bytes);
    return two;
}

/* ---- a step that is too large for the simulator ---- */

/* The bytes of a step, which are so many for the parameters and so many for each token. */
typedef struct { double fixed, per_token; } cost;

static cost cost_of(int64_t layers, int64_t vocabulary)
{
    const gpt_sizes one = {1, 64, layers, 768, 12, vocabulary}, two = {2, 64, layers, 768, 12, vocabulary};
    const double bytes = (double)count_gpt(one, TG_BF16).bytes;
    cost c;
    c.per_token = ((double)count_gpt(two, TG_BF16).bytes - bytes) / 64;
    c.fixed = bytes - 64 * c.per_token;
    return c;
}

/* What attention reads in one head of one long sequence beyond a row of k and of v for each query, as in sequences of
   64.  A block owns 128 queries and reads the keys that its last one sees, rows of 64 numbers of 16 bits, forward and
   for dq; for dk and dv it owns keys and reads q, g and 8 bytes of sums (see test_flash.c). */
static double read_again(int64_t length)
{
    double rows = 0;
    for (int64_t first = 0; first < length; first += 128) rows += (double)(first + 128 < length ? first + 128 : length);
    return (rows - (double)length) * (3 * 2 * 64 * 2 + 8);
}

/* Both parts grow by the same with each layer, and with each word of the vocabulary. */
static void predict(int64_t layers, int64_t vocabulary, int64_t sequences, int64_t length)
{
    const int64_t tokens = sequences * length, heads = 12;
    const cost base = cost_of(1, 256), layer = cost_of(2, 256), words = cost_of(1, 512);
    const double more_layers = (double)(layers - 1), more_words = (double)(vocabulary - 256) / 256;
    const double fixed =
        base.fixed + more_layers * (layer.fixed - base.fixed) + more_words * (words.fixed - base.fixed);
    const double per_token = base.per_token + more_layers * (layer.per_token - base.per_token) +
                             more_words * (words.per_token - base.per_token);
    const double again = read_again(length) * (double)(layers * sequences * heads);
    printf("%d layers, %d words, %d tokens: %.1f gigabytes, %.1f of them for the parameters, %.1f that attention reads "
           "again\n",
           (int)layers, (int)vocabulary, (int)tokens, (fixed + per_token * (double)tokens + again) / 1e9, fixed / 1e9,
           again / 1e9);
}

int main(int argc, char **argv)
{
    const counts limits[] = {{23, 0, 1, 20400000}, {132, 0, 1, 47100000}, {308, 0, 1, 3142400000}};
    const gpt_sizes small = {2, 64, 4, 128, 4, 65}, one_layer = {1, 64, 1, 768, 12, 256};
    const gpt_sizes two_layers = {1, 64, 2, 768, 12, 256};
    tg_set_default_device(TG_CUDA(0));
    cudasim_report(0);
    if (argc > 1 && !strcmp(argv[1], "predict")) {
        predict(12, 50304, 16, 1024);
        return !tg_ok();
    }
    tg_module *mlp = make_mlp();
    report("mlp_784_512_512_10", third_step(mlp, mlp_loss, mlp, 0), limits[0]);
    report("gpt_4x128", count_gpt(small, TG_F32), limits[1]);
    report("gpt2_12x768", of_12(count_gpt(one_layer, TG_BF16), count_gpt(two_layers, TG_BF16)), limits[2]);
    failures += !tg_ok();
    if (!tg_ok()) printf("FAILED: %s\n", tg_error_message());
    printf("%d passed, %d failed\n", 3 - failures, failures);
    return failures != 0;
}
