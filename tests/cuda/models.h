/* The networks whose steps are counted on the simulator (counts.c) and timed on a GPU (../bench/device.c): a program
 * includes tensorgrad.h first.  All tensors are on the current CUDA device. */
#ifndef TESTS_CUDA_MODELS_H
#define TESTS_CUDA_MODELS_H
#include <stdio.h>

enum { MOST_LAYERS = 12 };

typedef struct { tg_module *norm_attention, *norm_mlp, *query_key_value, *attention_out, *mlp_in, *mlp_out; } gpt_block;
typedef struct { int64_t batch, length, layers, width, heads, vocabulary; } gpt_sizes;
typedef struct {
    gpt_sizes size;
    tg_module *net, *tokens, *positions, *norm;
    gpt_block block[MOST_LAYERS];
    tg_tensor *position; /* i64 [length] */
} gpt;

/* Numbers first, first + 7, first + 14, ... modulo n, i64. */
static tg_tensor *counted(tg_shape shape, int64_t first, int64_t n)
{
    tg_tensor *t = tg_empty_on(shape, TG_I64, TG_CPU);
    for (int64_t i = 0; i < tg_numel(t); ++i) tg_data_i64(t)[i] = (first + i * 7) % n;
    return tg_to(t, TG_CUDA(-1));
}

/* ---- an MLP of 784, 512, 512 and 10 units ---- */

static inline tg_module *make_mlp(void)
{
    tg_module *layers[] = {tg_nn_linear(784, 512, true), tg_nn_relu(), tg_nn_linear(512, 512, true), tg_nn_relu(),
                           tg_nn_linear(512, 10, true)};
    return tg_nn_sequential(layers, 5);
}

/* ---- a GPT, whose logits are products with the table of its tokens, as those of GPT-2 are ---- */

static tg_module *child(gpt *g, tg_module *m)
{
    char name[16];
    snprintf(name, sizeof name, "%d", tg_module_child_count(g->net));
    return tg_module_child(g->net, name, m);
}

/* g->size says how large it becomes; free g->net and release g->position in the end. */
static void make_gpt(gpt *g, tg_dtype dtype)
{
    const int64_t C = g->size.width;
    g->net = tg_module_new("GPT", NULL, 0);
    g->tokens = child(g, tg_nn_embedding(g->size.vocabulary, C));
    g->positions = child(g, tg_nn_embedding(g->size.length, C));
    for (int64_t i = 0; i < g->size.layers; ++i) {
        gpt_block *b = &g->block[i];
        b->norm_attention = child(g, tg_nn_layer_norm(TG_SHAPE(C), 1e-5, true));
        b->norm_mlp = child(g, tg_nn_layer_norm(TG_SHAPE(C), 1e-5, true));
        b->query_key_value = child(g, tg_nn_linear(C, 3 * C, true));
        b->attention_out = child(g, tg_nn_linear(C, C, true));
        b->mlp_in = child(g, tg_nn_linear(C, 4 * C, true));
        b->mlp_out = child(g, tg_nn_linear(4 * C, C, true));
    }
    g->norm = child(g, tg_nn_layer_norm(TG_SHAPE(C), 1e-5, true));
    tg_normal_(tg_module_get(g->tokens, "weight"), 0, 0.02); /* as GPT-2's, or its logits are large */
    tg_module_to_dtype(g->net, dtype);
    g->position = tg_retain(counted(TG_SHAPE(g->size.length), 0, g->size.length));
}

static tg_tensor *attention(const gpt *g, const gpt_block *b, tg_tensor *x)
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

/* The mean loss of ids [batch, length], whose next ones are targets [batch * length]. */
static tg_tensor *gpt_loss(const gpt *g, tg_tensor *ids, tg_tensor *targets)
{
    tg_tensor *x = tg_add(tg_forward(g->tokens, ids), tg_forward(g->positions, g->position));
    tg_tensor *y = tg_forward(g->block[0].norm_attention, x); /* x: the residual stream; y: its norm */
    for (int64_t i = 0; i < g->size.layers; ++i) {
        const gpt_block *b = &g->block[i];
        y = add_and_norm(b->norm_mlp, attention(g, b, y), &x);
        y = tg_linear_gelu(y, tg_module_get(b->mlp_in, "weight"), tg_module_get(b->mlp_in, "bias"), true);
        y = tg_forward(b->mlp_out, y);
        y = add_and_norm(i + 1 < g->size.layers ? g->block[i + 1].norm_attention : g->norm, y, &x);
    }
    y = tg_linear(y, tg_module_get(g->tokens, "weight"), NULL);
    return tg_cross_entropy(tg_view(y, TG_SHAPE(g->size.batch * g->size.length, g->size.vocabulary)), targets);
}
#endif
