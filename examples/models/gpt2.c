/* gpt2.c: GPT-2 as Hugging Face has it on disk, with the weights where they are in the file.

       cc -O2 -fopenmp gpt2.c -o gpt2 -lm
       ./gpt2 FOLDER --tokens 40 --temperature 0.8 --top-p 0.95 "The library"

   READ    forward(), the model in thirty lines; then generate.h, the loop around it.
   CHANGE  print the most likely tokens of each position; leave out wpe, and see that order is lost. */
#define TENSORGRAD_IMPLEMENTATION
#include "generate.h"

typedef struct {
    tg_tensor *norm1_weight, *norm1_bias, *norm2_weight, *norm2_bias;
    tg_tensor *qkv_weight, *qkv_bias, *out_weight, *out_bias, *in_weight, *in_bias, *back_weight, *back_bias;
} layer;

typedef struct {
    tg_tensor *token, *position, *norm_weight, *norm_bias, *head;
    layer layers[LAYERS];
    int64_t n_layers, heads;
    double eps;
    bool tanh_gelu;
    weights w;
} gpt2;

static tg_tensor *attention(const gpt2 *g, const layer *l, turn *t, int i, tg_tensor *x)
{
    tg_tensor *part[3];
    tg_split(tg_linear(x, l->qkv_weight, l->qkv_bias), tg_dim(x, 2), 2, part, 3);
    for (int k = 0; k < 3; ++k) part[k] = split_heads(part[k], g->heads);
    return tg_linear(join_heads(attend(t, i, part[0], part[1], part[2], 0)), l->out_weight, l->out_bias);
}

static tg_tensor *forward(void *self, turn *t)
{
    const gpt2 *g = (const gpt2 *)self;
    tg_tensor *x = tg_add(tg_embedding(g->token, t->ids), tg_embedding(g->position, t->positions));
    for (int i = 0; i < g->n_layers && x; ++i) {
        const layer *l = &g->layers[i];
        x = tg_add(x, attention(g, l, t, i, tg_layer_norm(x, 1, l->norm1_weight, l->norm1_bias, g->eps)));
        tg_tensor *h = tg_layer_norm(x, 1, l->norm2_weight, l->norm2_bias, g->eps);
        h = tg_linear_gelu(h, l->in_weight, l->in_bias, g->tanh_gelu);
        x = tg_add(x, tg_linear(h, l->back_weight, l->back_bias));
    }
    return tg_linear(tg_layer_norm(wanted(t, x), 1, g->norm_weight, g->norm_bias, g->eps), g->head, NULL);
}

/* GPT-2 has its weights as [in, out]; a view of them is what tg_linear takes. */
static tg_tensor *transposed(gpt2 *g, const char *format, int64_t i)
{
    tg_tensor *t = required(&g->w, format, i);
    return t ? own(&g->w, tg_t(t)) : NULL;
}

static void read_layer(gpt2 *g, layer *l, int64_t i)
{
    weights *w = &g->w;
    l->norm1_weight = required(w, "h.%d.ln_1.weight", i);
    l->norm1_bias = required(w, "h.%d.ln_1.bias", i);
    l->norm2_weight = required(w, "h.%d.ln_2.weight", i);
    l->norm2_bias = required(w, "h.%d.ln_2.bias", i);
    l->qkv_weight = transposed(g, "h.%d.attn.c_attn.weight", i);
    l->qkv_bias = required(w, "h.%d.attn.c_attn.bias", i);
    l->out_weight = transposed(g, "h.%d.attn.c_proj.weight", i);
    l->out_bias = required(w, "h.%d.attn.c_proj.bias", i);
    l->in_weight = transposed(g, "h.%d.mlp.c_fc.weight", i);
    l->in_bias = required(w, "h.%d.mlp.c_fc.bias", i);
    l->back_weight = transposed(g, "h.%d.mlp.c_proj.weight", i);
    l->back_bias = required(w, "h.%d.mlp.c_proj.bias", i);
}

/* Some files have "transformer." before each name, and the causal mask, which is no weight. */
static bool read_model(gpt2 *g, const options *o, const json *config)
{
    static const tg_rename names[] = {{"*.attn.bias", NULL, false}, {"*.attn.masked_bias", NULL, false},
                                      {"transformer.*", "*", false}};
    const char *activation = json_text(config, "activation_function", "gelu_new");
    memset(g, 0, sizeof *g);
    g->n_layers = (int64_t)json_number(config, "n_layer", 0);
    g->heads = (int64_t)json_number(config, "n_head", 0);
    g->eps = json_number(config, "layer_norm_epsilon", 1e-5);
    g->tanh_gelu = strcmp(activation, "gelu") != 0;
    if (!json_is(config, "model_type", "gpt2") || g->n_layers < 1 || g->n_layers > LAYERS || g->heads < 1 ||
        (g->tanh_gelu && strcmp(activation, "gelu_new") != 0 && strcmp(activation, "gelu_pytorch_tanh") != 0) ||
        json_number(config, "scale_attn_by_inverse_layer_idx", 0) != 0) {
        fprintf(stderr, "config.json is not that of a GPT-2\n");
        return false;
    }
    if (!open_weights(&g->w, o->folder) || tg_dict_rename(g->w.file, names, 3) != TG_OK) return false;
    g->token = required(&g->w, "wte.weight", 0);
    g->position = required(&g->w, "wpe.weight", 0);
    for (int64_t i = 0; i < g->n_layers; ++i) read_layer(g, &g->layers[i], i);
    g->norm_weight = required(&g->w, "ln_f.weight", 0);
    g->norm_bias = required(&g->w, "ln_f.bias", 0);
    g->head = optional(&g->w, "lm_head.weight");
    if (!g->head) g->head = g->token; /* they are tied */
    return all_taken(&g->w);
}

static gpt2 network;

static bool read_network(model *m, const options *o, const json *config)
{
    gpt2 *const g = &network;
    if (!read_model(g, o, config)) return false;
    const model described = {g, forward, g->n_layers, g->heads, tg_dim(g->token, 1) / g->heads,
                             tg_dim(g->position, 0), tg_dtype_of(g->token)};
    *m = described;
    return true;
}

int main(int argc, char **argv) { return run_model(argc, argv, &network.w, read_network); }
