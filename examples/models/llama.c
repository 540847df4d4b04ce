/* llama.c: Llama, Mistral, Qwen2 and models like them as Hugging Face has them on disk, with the weights where they are
   in the file.  config.json says which: grouped heads, biases, a sliding window, how positions are scaled.

       cc -O2 -fopenmp llama.c -o llama -lm
       ./llama FOLDER --tokens 40 --temperature 0.8 --top-p 0.95 "The library"

   READ    forward(), the model in thirty lines; then generate.h, the loop around it.
   CHANGE  rope_theta of config.json, and see how far the model still looks back. */
#define TENSORGRAD_IMPLEMENTATION
#include "generate.h"

typedef struct { tg_tensor *weight, *bias; } linear; /* bias may be NULL */

typedef struct {
    tg_tensor *norm_attention, *norm_mlp, *q_norm, *k_norm; /* the last two, of each head, are NULL but in Qwen3 */
    linear q, k, v, o, gate, up, down;
    int64_t window; /* positions that a query sees; 0: all */
} layer;

/* How angles grow with the position: those of Llama, a longer context by one factor, or by a larger base, which grows
   with the length (dynamic), or by a factor for the long waves alone (llama3). */
typedef enum { ROPE_DEFAULT, ROPE_LINEAR, ROPE_DYNAMIC, ROPE_LLAMA3 } rope_kind;

typedef struct {
    rope_kind kind;
    double theta, factor, low, high, context; /* context: positions that the model was trained for */
    int64_t width;
} rope;

typedef struct {
    tg_tensor *token, *norm, *head;
    layer layers[LAYERS];
    int64_t n_layers, heads, kv_heads;
    double eps;
    rope positions;
    weights w;
} llama;

/* ---- positions ---- */

/* angle[i] [width / 2]: how far pair i turns from a position to the next */
static void angles(const rope *r, int64_t length, double *angle)
{
    double theta = r->theta;
    const double pi = 3.14159265358979323846, n = (double)r->width;
    if (r->kind == ROPE_DYNAMIC && (double)length > r->context)
        theta *= pow(r->factor * (double)length / r->context - (r->factor - 1), n / (n - 2));
    for (int64_t i = 0; i < r->width / 2; ++i) {
        angle[i] = pow(theta, -2 * (double)i / n);
        if (r->kind == ROPE_LINEAR) angle[i] /= r->factor;
        if (r->kind != ROPE_LLAMA3) continue;
        const double wave = 2 * pi / angle[i]; /* longer than context / low: scaled; shorter than context / high: not */
        const double share = (r->context / wave - r->low) / (r->high - r->low);
        const double smooth = share < 0 ? 0 : share > 1 ? 1 : share;
        angle[i] = (1 - smooth) * angle[i] / r->factor + smooth * angle[i];
    }
}

/* cos and sin [N, 1, L, width / 2] of the positions [N, L], for all layers */
static bool turns(const rope *r, const turn *t, tg_dtype dtype, tg_tensor **c, tg_tensor **s)
{
    double angle[1024];
    if (r->width > 2048) return false;
    angles(r, t->longest, angle);
    tg_tensor *each = tg_from_on(angle, TG_SHAPE(r->width / 2), TG_F64, TG_CPU);
    tg_tensor *at = tg_mul(tg_unsqueeze(tg_unsqueeze(tg_to_dtype(t->positions, TG_F64), 1), -1), each);
    *c = tg_to_dtype(tg_cos(at), dtype);
    *s = tg_to_dtype(tg_sin(at), dtype);
    return *c && *s;
}

/* ---- the model ---- */

static tg_tensor *through(linear l, tg_tensor *x) { return tg_linear(x, l.weight, l.bias); }

static tg_tensor *attention(const llama *m, const layer *l, turn *t, int i, tg_tensor *x, tg_tensor *c, tg_tensor *s)
{
    tg_tensor *q = split_heads(through(l->q, x), m->heads), *k = split_heads(through(l->k, x), m->kv_heads);
    tg_tensor *v = split_heads(through(l->v, x), m->kv_heads);
    if (l->q_norm) q = tg_rms_norm(q, 1, l->q_norm, m->eps);
    if (l->k_norm) k = tg_rms_norm(k, 1, l->k_norm, m->eps);
    return through(l->o, join_heads(attend(t, i, tg_rope(q, c, s, false), tg_rope(k, c, s, false), v, l->window)));
}

static tg_tensor *forward(void *self, turn *t)
{
    const llama *m = (const llama *)self;
    tg_tensor *x = tg_embedding(m->token, t->ids), *c, *s;
    if (!turns(&m->positions, t, tg_dtype_of(m->token), &c, &s)) return NULL;
    for (int i = 0; i < m->n_layers && x; ++i) {
        const layer *l = &m->layers[i];
        x = tg_add(x, attention(m, l, t, i, tg_rms_norm(x, 1, l->norm_attention, m->eps), c, s));
        tg_tensor *h = tg_rms_norm(x, 1, l->norm_mlp, m->eps);
        x = tg_add(x, through(l->down, tg_mul(tg_silu(through(l->gate, h)), through(l->up, h))));
    }
    return tg_linear(tg_rms_norm(wanted(t, x), 1, m->norm, m->eps), m->head, NULL);
}

/* ---- from the files ---- */

static linear read_linear(llama *m, int64_t i, const char *name)
{
    char path[128];
    linear l;
    snprintf(path, sizeof path, "model.layers.%%d.%s.weight", name);
    l.weight = required(&m->w, path, i);
    l.bias = optional(&m->w, "model.layers.%d.%s.bias", (int)i, name);
    return l;
}

static void read_layer(llama *m, layer *l, int64_t i)
{
    l->norm_attention = required(&m->w, "model.layers.%d.input_layernorm.weight", i);
    l->norm_mlp = required(&m->w, "model.layers.%d.post_attention_layernorm.weight", i);
    l->q_norm = optional(&m->w, "model.layers.%d.self_attn.q_norm.weight", (int)i);
    l->k_norm = optional(&m->w, "model.layers.%d.self_attn.k_norm.weight", (int)i);
    l->q = read_linear(m, i, "self_attn.q_proj");
    l->k = read_linear(m, i, "self_attn.k_proj");
    l->v = read_linear(m, i, "self_attn.v_proj");
    l->o = read_linear(m, i, "self_attn.o_proj");
    l->gate = read_linear(m, i, "mlp.gate_proj");
    l->up = read_linear(m, i, "mlp.up_proj");
    l->down = read_linear(m, i, "mlp.down_proj");
}

/* The window of each layer.  Mistral has one for all; Qwen2 and Qwen3 ask for it by use_sliding_window, for the layers
   from max_window_layers on, or for those that layer_types names. */
static void read_windows(llama *m, const json *config)
{
    const bool is_qwen = strncmp(json_text(config, "model_type", ""), "qwen", 4) == 0;
    const bool used = !is_qwen || json_number(config, "use_sliding_window", 0) != 0;
    const int64_t window = used ? (int64_t)json_number(config, "sliding_window", 0) : 0;
    const json *type = json_first(json_get(config, "layer_types"));
    const double first = is_qwen ? json_number(config, "max_window_layers", 28) : 0;
    for (int64_t i = 0; i < m->n_layers; ++i, type = json_next(type)) {
        const bool slides = type ? strcmp(type->text ? type->text : "", "sliding_attention") == 0 : (double)i >= first;
        m->layers[i].window = slides ? window : 0;
    }
}

/* rope_scaling, or rope_parameters in newer files, where rope_theta is too. */
static bool read_rope(rope *r, const json *config)
{
    static const char *const names[] = {"default", "linear", "dynamic", "llama3"};
    const json *scaling = json_get(config, "rope_parameters");
    if (!scaling) scaling = json_get(config, "rope_scaling");
    const char *kind = json_text(scaling, "rope_type", json_text(scaling, "type", "default"));
    int found = 0;
    while (found < 4 && strcmp(names[found], kind) != 0) ++found;
    r->kind = (rope_kind)found;
    r->theta = json_number(scaling, "rope_theta", json_number(config, "rope_theta", 10000));
    r->factor = json_number(scaling, "factor", 1);
    r->low = json_number(scaling, "low_freq_factor", 1);
    r->high = json_number(scaling, "high_freq_factor", 4);
    r->context = json_number(config, "max_position_embeddings", 2048);
    if (r->kind == ROPE_LLAMA3) r->context = json_number(scaling, "original_max_position_embeddings", r->context);
    if (found == 4) fprintf(stderr, "positions that are scaled as \"%s\" are not known here\n", kind);
    return found < 4;
}

static bool read_sizes(llama *m, const json *config)
{
    static const char *const known[] = {"llama", "mistral", "qwen2", "qwen3"};
    const char *type = json_text(config, "model_type", "");
    bool ok = false;
    memset(m, 0, sizeof *m);
    for (int i = 0; i < 4; ++i) ok = ok || strcmp(known[i], type) == 0;
    m->n_layers = (int64_t)json_number(config, "num_hidden_layers", 0);
    m->heads = (int64_t)json_number(config, "num_attention_heads", 0);
    m->kv_heads = (int64_t)json_number(config, "num_key_value_heads", (double)m->heads);
    m->eps = json_number(config, "rms_norm_eps", 1e-6);
    ok = ok && json_is(config, "hidden_act", "silu") && m->n_layers > 0 && m->n_layers <= LAYERS && m->heads > 0 &&
         m->kv_heads > 0;
    if (!ok) fprintf(stderr, "config.json is not that of a Llama: model_type %s\n", type);
    if (!ok || !read_rope(&m->positions, config)) return false;
    const double width = json_number(config, "hidden_size", 0) / (double)m->heads;
    m->positions.width = (int64_t)json_number(config, "head_dim", width);
    read_windows(m, config);
    return true;
}

static bool read_model(llama *m, const options *o, const json *config)
{
    static const tg_rename computed = {"*.rotary_emb.inv_freq", NULL, false}; /* in old files */
    if (!read_sizes(m, config) || !open_weights(&m->w, o->folder)) return false;
    if (tg_dict_rename(m->w.file, &computed, 1) != TG_OK) return false;
    m->token = required(&m->w, "model.embed_tokens.weight", 0);
    m->norm = required(&m->w, "model.norm.weight", 0);
    for (int64_t i = 0; i < m->n_layers; ++i) read_layer(m, &m->layers[i], i);
    m->head = optional(&m->w, "lm_head.weight");
    if (!m->head && json_number(config, "tie_word_embeddings", 1) != 0) m->head = m->token;
    if (!m->head) m->head = required(&m->w, "lm_head.weight", 0);
    return all_taken(&m->w);
}

static llama network;

static bool read_network(model *m, const options *o, const json *config)
{
    llama *const l = &network;
    if (!read_model(l, o, config)) return false;
    const model described = {l, forward, l->n_layers, l->kv_heads, l->positions.width, 0, tg_dtype_of(l->token)};
    *m = described;
    return true;
}

int main(int argc, char **argv) { return run_model(argc, argv, &network.w, read_network); }
