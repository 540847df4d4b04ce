/* modules.h: GPT-2 and Llama as modules, whose paths are the names in Hugging Face's files.

   gpt2.c and llama.c use the weights where they are in the file, and a cache, to make texts.  A model that is trained
   needs weights of its own, and layers that can be wrapped and replaced by their paths. */
#ifndef MODULES_H
#define MODULES_H
#include "weights.h"

/* ---- the blocks: x [N, L, width] -> the same ---- */

typedef struct {
    tg_module *norm1, *norm2, *qkv, *attention_out, *in, *out; /* GPT-2 */
    tg_module *q, *k, *v, *gate;                               /* Llama, in place of qkv */
    int64_t heads, kv_heads;
    double theta;
} block;

static inline tg_tensor *gpt2_block(tg_module *m, tg_tensor *x)
{
    const block *b = (const block *)tg_module_self(m);
    tg_tensor *part[3];
    tg_split(tg_forward(b->qkv, tg_forward(b->norm1, x)), tg_dim(x, 2), 2, part, 3);
    for (int k = 0; k < 3; ++k) part[k] = split_heads(part[k], b->heads);
    tg_tensor *seen = tg_scaled_dot_product_attention(part[0], part[1], part[2], NULL, 0, true, 0);
    x = tg_add(x, tg_forward(b->attention_out, join_heads(seen)));
    return tg_add(x, tg_forward(b->out, tg_gelu(tg_forward(b->in, tg_forward(b->norm2, x)), true)));
}

/* x [N, heads, L, width], each pair turned by its position times theta^(-2 i / width) */
static inline tg_tensor *turned(tg_tensor *x, double theta)
{
    const double width = (double)tg_dim(x, 3);
    tg_tensor *i = tg_arange_on(0, width / 2, 1, TG_F64, TG_CPU);
    tg_tensor *position = tg_arange_on(0, (double)tg_dim(x, 2), 1, TG_F64, TG_CPU);
    tg_tensor *angle = tg_outer(position, tg_exp(tg_mul_scalar(i, -2 * log(theta) / width)));
    return tg_rope(x, tg_to_like(tg_cos(angle), x), tg_to_like(tg_sin(angle), x), false);
}

static inline tg_tensor *llama_block(tg_module *m, tg_tensor *x)
{
    const block *b = (const block *)tg_module_self(m);
    tg_tensor *h = tg_forward(b->norm1, x);
    tg_tensor *q = turned(split_heads(tg_forward(b->q, h), b->heads), b->theta);
    tg_tensor *k = turned(split_heads(tg_forward(b->k, h), b->kv_heads), b->theta);
    tg_tensor *v = split_heads(tg_forward(b->v, h), b->kv_heads);
    tg_tensor *seen = tg_scaled_dot_product_attention_ex(q, k, v, NULL, 0, true, 0, true, 0, 0);
    x = tg_add(x, tg_forward(b->attention_out, join_heads(seen)));
    h = tg_forward(b->norm2, x);
    return tg_add(x, tg_forward(b->out, tg_mul(tg_silu(tg_forward(b->gate, h)), tg_forward(b->in, h))));
}

/* ---- the models, with the names of their files ---- */

typedef struct {
    tg_module *token, *position, *layers, *norm, *head; /* position: of GPT-2; head NULL: the token weights */
} language_model;

static inline tg_tensor *model_forward(tg_module *m, tg_tensor *ids) /* [N, L] -> logits [N, L, vocab] */
{
    const language_model *g = (const language_model *)tg_module_self(m);
    tg_tensor *x = tg_forward(g->token, ids);
    if (g->position) x = tg_add(x, tg_forward(g->position, tg_arange_on(0, (double)tg_dim(ids, 1), 1, TG_I64, TG_CPU)));
    for (int i = 0; i < tg_module_child_count(g->layers) && x; ++i) x = tg_forward(tg_module_child_at(g->layers, i), x);
    x = tg_forward(g->norm, x);
    return g->head ? tg_forward(g->head, x) : tg_linear(x, tg_module_get(g->token, "weight"), NULL);
}

static inline tg_module *gpt2_layer(const json *config, int64_t width)
{
    const double eps = json_number(config, "layer_norm_epsilon", 1e-5);
    const int64_t inner = (int64_t)json_number(config, "n_inner", 0);
    const int64_t hidden = inner > 0 ? inner : 4 * width;
    tg_module *m = tg_nn_module("Block", gpt2_block, sizeof(block));
    block *b = (block *)tg_module_self(m);
    b->heads = (int64_t)json_number(config, "n_head", 1);
    b->norm1 = tg_module_child(m, "ln_1", tg_nn_layer_norm(TG_SHAPE(width), eps, true));
    b->qkv = tg_module_add(m, "attn.c_attn", tg_nn_linear(width, 3 * width, true));
    b->attention_out = tg_module_add(m, "attn.c_proj", tg_nn_linear(width, width, true));
    b->norm2 = tg_module_child(m, "ln_2", tg_nn_layer_norm(TG_SHAPE(width), eps, true));
    b->in = tg_module_add(m, "mlp.c_fc", tg_nn_linear(width, hidden, true));
    b->out = tg_module_add(m, "mlp.c_proj", tg_nn_linear(hidden, width, true));
    return m;
}

static inline tg_module *llama_layer(const json *config, int64_t width)
{
    const double eps = json_number(config, "rms_norm_eps", 1e-6);
    const int64_t hidden = (int64_t)json_number(config, "intermediate_size", 0);
    const bool biased = json_number(config, "attention_bias", 0) != 0;
    const bool mlp_biased = json_number(config, "mlp_bias", 0) != 0;
    const json *rope = json_get(config, "rope_parameters");
    tg_module *m = tg_nn_module("Block", llama_block, sizeof(block));
    block *b = (block *)tg_module_self(m);
    b->heads = (int64_t)json_number(config, "num_attention_heads", 1);
    b->kv_heads = (int64_t)json_number(config, "num_key_value_heads", (double)b->heads);
    b->theta = json_number(rope, "rope_theta", json_number(config, "rope_theta", 10000));
    const int64_t each = (int64_t)json_number(config, "head_dim", (double)(width / b->heads));
    b->q = tg_module_add(m, "self_attn.q_proj", tg_nn_linear(width, b->heads * each, biased));
    b->k = tg_module_add(m, "self_attn.k_proj", tg_nn_linear(width, b->kv_heads * each, biased));
    b->v = tg_module_add(m, "self_attn.v_proj", tg_nn_linear(width, b->kv_heads * each, biased));
    b->attention_out = tg_module_add(m, "self_attn.o_proj", tg_nn_linear(b->heads * each, width, biased));
    b->gate = tg_module_add(m, "mlp.gate_proj", tg_nn_linear(width, hidden, mlp_biased));
    b->in = tg_module_add(m, "mlp.up_proj", tg_nn_linear(width, hidden, mlp_biased));
    b->out = tg_module_add(m, "mlp.down_proj", tg_nn_linear(hidden, width, mlp_biased));
    b->norm1 = tg_module_child(m, "input_layernorm", tg_nn_rms_norm(TG_SHAPE(width), eps, true));
    b->norm2 = tg_module_child(m, "post_attention_layernorm", tg_nn_rms_norm(TG_SHAPE(width), eps, true));
    return m;
}

/* The weights of GPT-2's files are those of linear layers, transposed; its head is the weights of the tokens. */
static const tg_rename gpt2_names[] = {
    {"*.attn.bias", NULL, false},                        {"*.attn.masked_bias", NULL, false},
    {"transformer.*.c_*.weight", "*.c_*.weight", true},  {"transformer.*", "*", false},
    {"*.c_*.weight", "*.c_*.weight", true},              {"lm_head.weight", NULL, false}};
static const tg_rename gpt2_names_back = {"*.c_*.weight", "*.c_*.weight", true};

/* The layers and what is around them; token: its weights, which say the sizes. */
static inline tg_module *new_model(const json *config, bool is_gpt2, tg_tensor *token, bool has_head)
{
    const int64_t vocab = tg_dim(token, 0), width = tg_dim(token, 1);
    const int64_t layers = (int64_t)json_number(config, is_gpt2 ? "n_layer" : "num_hidden_layers", 0);
    const int64_t context = (int64_t)json_number(config, "n_positions", 1024);
    const double eps = json_number(config, is_gpt2 ? "layer_norm_epsilon" : "rms_norm_eps", is_gpt2 ? 1e-5 : 1e-6);
    tg_module *m = tg_nn_module(is_gpt2 ? "GPT2" : "Llama", model_forward, sizeof(language_model));
    language_model *g = (language_model *)tg_module_self(m);
    g->token = tg_module_add(m, is_gpt2 ? "wte" : "model.embed_tokens", tg_nn_embedding(vocab, width));
    if (is_gpt2) g->position = tg_module_child(m, "wpe", tg_nn_embedding(context, width));
    g->layers = tg_module_add(m, is_gpt2 ? "h" : "model.layers", tg_nn_list(NULL, 0));
    for (int64_t i = 0; i < layers && i < LAYERS; ++i) {
        char name[8];
        snprintf(name, sizeof name, "%d", (int)i);
        tg_module_child(g->layers, name, is_gpt2 ? gpt2_layer(config, width) : llama_layer(config, width));
    }
    g->norm = is_gpt2 ? tg_nn_layer_norm(TG_SHAPE(width), eps, true) : tg_nn_rms_norm(TG_SHAPE(width), eps, true);
    g->norm = tg_module_add(m, is_gpt2 ? "ln_f" : "model.norm", g->norm);
    if (has_head) g->head = tg_module_child(m, "lm_head", tg_nn_linear(width, vocab, false));
    return m;
}

/* The model that config.json describes, with the weights of the folder; NULL after an error. */
static inline tg_module *read_model(const char *folder, const json *config, bool *is_gpt2)
{
    weights w;
    const json *rope = json_get(config, "rope_parameters"), *old = json_get(config, "rope_scaling");
    const char *kind = json_text(rope, "rope_type", old && old->kind == JSON_OBJECT ? "scaled" : "default");
    *is_gpt2 = json_is(config, "model_type", "gpt2");
    if (!*is_gpt2 && (!json_is(config, "model_type", "llama") || strcmp(kind, "default") != 0)) {
        fprintf(stderr, "config.json is not that of a GPT-2, or of a Llama whose positions are not scaled\n");
        return NULL;
    }
    if (!open_weights(&w, folder)) return NULL;
    if (*is_gpt2) tg_dict_rename(w.file, gpt2_names, 6);
    tg_tensor *token = tg_dict_get(w.file, *is_gpt2 ? "wte.weight" : "model.embed_tokens.weight");
    tg_module *m = NULL;
    if (token && tg_ndim(token) == 2) {
        tg_set_default_dtype(tg_dtype_of(token));
        TG_SKIP_INIT; /* the file has all values */
        m = new_model(config, *is_gpt2, token, tg_dict_get(w.file, "lm_head.weight") != NULL);
    } else {
        fprintf(stderr, "missing: the weights of the tokens\n");
    }
    if (m && (!tg_ok() || tg_module_load_state(m, w.file, true) != TG_OK)) {
        tg_module_free(m);
        m = NULL;
    }
    close_weights(&w);
    return m;
}
#endif
