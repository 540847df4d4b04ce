/* gpt.h: the model of 12_chargpt.c, a small GPT: modules, which own their parameters, move, save and load them. */
#ifndef GPT_H
#define GPT_H
#include "../tensorgrad.h"
#include "text.h"

enum { LAYERS = 2, WIDTH = 64, HEADS = 4, BATCH = 16 };

typedef struct { tg_module *norm_attention, *query_key_value, *attention_out, *norm_mlp, *mlp_in, *mlp_out; } block;

/* x [N, T, WIDTH]: each position asks (query) the positions up to its own (keys) and takes a mean of their values. */
static inline tg_tensor *attention(const block *b, tg_tensor *x)
{
    const int64_t N = tg_dim(x, 0), T = tg_dim(x, 1);
    tg_tensor *qkv = tg_view(tg_forward(b->query_key_value, x), TG_SHAPE(N, T, 3, HEADS, WIDTH / HEADS));
    qkv = tg_permute(qkv, TG_DIMS(2, 0, 3, 1, 4)); /* [3, N, HEADS, T, WIDTH / HEADS] */
    tg_tensor *q = tg_select(qkv, 0, 0), *k = tg_select(qkv, 0, 1), *v = tg_select(qkv, 0, 2);
    tg_tensor *y = tg_transpose(tg_scaled_dot_product_attention(q, k, v, NULL, 0, true, 0), 1, 2);
    return tg_forward(b->attention_out, tg_reshape(y, TG_SHAPE(N, T, WIDTH)));
}

/* x [N, T, WIDTH] -> the same */
static inline tg_tensor *block_forward(tg_module *m, tg_tensor *x)
{
    const block *b = TG_MODULE_SELF(const block, m);
    x = tg_add(x, attention(b, tg_forward(b->norm_attention, x)));
    tg_tensor *hidden = tg_relu(tg_forward(b->mlp_in, tg_forward(b->norm_mlp, x)));
    return tg_add(x, tg_forward(b->mlp_out, hidden));
}

static inline tg_module *linear(int64_t in, int64_t out, double std)
{
    tg_module *m = tg_nn_linear(in, out, false);
    tg_normal_(tg_module_get(m, "weight"), 0, std);
    return m;
}

static inline tg_module *make_block(void)
{
    const double std = 1 / sqrt((double)WIDTH), residual = std / sqrt(2 * (double)LAYERS); /* 2 L sums */
    tg_module *m = tg_nn_module("Block", block_forward, sizeof(block));
    block *b = TG_MODULE_SELF(block, m);
    if (!b) return NULL;
    TG_CHILD(m, b, norm_attention, tg_nn_rms_norm(TG_SHAPE(WIDTH), 1e-5, true));
    TG_CHILD(m, b, query_key_value, linear(WIDTH, 3 * WIDTH, std));
    TG_CHILD(m, b, attention_out, linear(WIDTH, WIDTH, residual));
    TG_CHILD(m, b, norm_mlp, tg_nn_rms_norm(TG_SHAPE(WIDTH), 1e-5, true));
    TG_CHILD(m, b, mlp_in, linear(WIDTH, 4 * WIDTH, std));
    TG_CHILD(m, b, mlp_out, linear(4 * WIDTH, WIDTH, residual / 2));
    return m;
}

typedef struct { tg_module *token, *blocks, *norm, *head; tg_tensor *position; } gpt;

/* ids [N, T] -> logits of the byte after each [N, T, vocab] */
static inline tg_tensor *gpt_forward(tg_module *m, tg_tensor *ids)
{
    const gpt *g = TG_MODULE_SELF(const gpt, m);
    tg_tensor *x = tg_add(tg_forward(g->token, ids), tg_narrow(g->position, 0, 0, tg_dim(ids, 1)));
    return tg_forward(g->head, tg_forward(g->norm, tg_forward(g->blocks, x)));
}

/* bytes [vocab]: the byte that each id stands for; a buffer, so that it is saved with the weights.  The weights are
   drawn on the CPU, then moved: the same numbers on every device. */
static inline tg_module *make_model(const int64_t *bytes, int vocab, tg_device device)
{
    tg_module *blocks[LAYERS], *m = tg_nn_module("GPT", gpt_forward, sizeof(gpt));
    gpt *g = TG_MODULE_SELF(gpt, m);
    if (!g) return NULL;
    TG_SCOPE;
    TG_CHILD(m, g, token, tg_nn_embedding(vocab, WIDTH));
    tg_normal_(tg_module_get(m, "token.weight"), 0, 0.1);
    TG_PARAM(m, g, position, tg_mul_scalar(tg_randn(TG_SHAPE(CONTEXT, WIDTH)), 0.1));
    for (int i = 0; i < LAYERS; ++i) blocks[i] = make_block();
    TG_CHILD(m, g, blocks, tg_nn_sequential(blocks, LAYERS));
    TG_CHILD(m, g, norm, tg_nn_rms_norm(TG_SHAPE(WIDTH), 1e-5, true));
    TG_CHILD(m, g, head, linear(WIDTH, vocab, 0.3 / sqrt((double)WIDTH))); /* guesses all alike */
    tg_module_buffer(m, "bytes", tg_from_i64(bytes, TG_SHAPE(vocab)));
    return tg_module_to(m, device);
}

/* ---- what it is asked for ---------------------------------------------------------------------------------------- */

/* A batch on the model's device.  From page-locked memory a move returns at once: the GPU fetches the bytes while the
   CPU goes on to ask for the work that needs them. */
static inline tg_tensor *batch(tg_module *m, const int64_t *ids, tg_shape shape)
{
    const tg_device device = tg_device_of(tg_module_get(m, "position"));
    tg_tensor *here = tg_from_i64(ids, shape);
    if (device.type == TG_DEV_CUDA) here = tg_pin_memory(here);
    return tg_to_ex(here, device, TG_SAME_DTYPE, TG_NON_BLOCKING);
}

/* Mean loss of n windows of CONTEXT bytes; window i begins at start[i] and predicts the byte after each of its own. */
static inline tg_tensor *loss_at(tg_module *m, const corpus *c, const int64_t *start, int n)
{
    int64_t x[BATCH * CONTEXT], y[BATCH * CONTEXT];
    for (int i = 0; start && i < n * CONTEXT; ++i) {
        x[i] = c->ids[start[i / CONTEXT] + i % CONTEXT];
        y[i] = c->ids[start[i / CONTEXT] + i % CONTEXT + 1];
    }
    tg_tensor *logits = tg_forward(m, batch(m, start ? x : NULL, TG_SHAPE(n, CONTEXT)));
    return tg_cross_entropy(tg_view(logits, TG_SHAPE(n * CONTEXT, c->vocab)), batch(m, y, TG_SHAPE(n * CONTEXT)));
}

/* Mean loss of the validation part: of about `most` windows spread over it, or of all when most is 0. */
static inline double validate(tg_module *m, const corpus *c, int64_t most)
{
    const int64_t windows = (c->n - c->n_train - 1) / CONTEXT, stride = most && windows > most ? windows / most : 1;
    double sum = 0, seen = 0;
    for (int64_t w = 0; w < windows && tg_ok();) {
        TG_SCOPE;
        TG_NO_GRAD;
        int64_t start[BATCH];
        int n = 0;
        for (; n < BATCH && w < windows; w += stride) start[n++] = c->n_train + w * CONTEXT;
        sum += n * tg_item(loss_at(m, c, start, n));
        seen += n;
    }
    return sum / seen;
}

/* Writes `length` bytes, each drawn from softmax(logits / 0.8) of the last CONTEXT bytes; the first follow the ids
   prompt [n], of which n is at least 1.  bytes: what ids stand for. */
static inline void sample(tg_module *m, const int64_t *bytes, const int64_t *prompt, int64_t n, int length, FILE *file)
{
    int64_t window[CONTEXT];
    const int64_t vocab = tg_numel(tg_module_get(m, "bytes")), skip = n > CONTEXT ? n - CONTEXT : 0;
    memcpy(window, prompt + skip, (size_t)(n -= skip) * sizeof *window);
    for (int i = 0; i < length && tg_ok(); ++i) {
        TG_SCOPE;
        TG_NO_GRAD;
        int64_t next = 0;
        tg_tensor *logits = tg_select(tg_forward(m, batch(m, window, TG_SHAPE(1, n))), 1, -1); /* of the last byte */
        tg_tensor *p = tg_cpu(tg_softmax(tg_mul_scalar(logits, 1 / 0.8), 1)); /* one move, not one a byte */
        double left = tg_item(tg_rand(TG_SHAPE(1)));
        while (next < vocab - 1 && (left -= tg_get(p, TG_INDEX(0, next))) > 0) ++next;
        if (n == CONTEXT) memmove(window, window + 1, (size_t)--n * sizeof *window);
        window[n++] = next;
        const int byte = (int)bytes[next];
        if (file) putc(byte, file);
        putchar((byte < 32 && byte != '\n' && byte != '\t') || byte == 127 ? '?' : byte); /* no terminal commands */
    }
}

/* --sample: continues a text with the model of the folder.  It needs no corpus: the file has the bytes, too. */
static inline int only_sample(const char *text, tg_device device)
{
    TG_SCOPE;
    int64_t bytes[256], prompt[CONTEXT], n = 0;
    tg_dict *saved = tg_safetensors_load("model.safetensors");
    tg_tensor *table = saved ? tg_dict_get(saved, "bytes") : NULL;
    const int vocab = table && tg_dtype_of(table) == TG_I64 && tg_numel(table) <= 256 ? (int)tg_numel(table) : 0;
    tg_module *m = NULL;
    const size_t length = strlen(text), skip = length > CONTEXT ? length - CONTEXT : 0; /* what the model can see */
    if (vocab > 0 && tg_copy_out(table, bytes, (size_t)vocab * sizeof *bytes) == TG_OK)
        m = make_model(bytes, vocab, device);
    if (m && tg_module_load_state(m, saved, true) == TG_OK) {
        for (const char *c = text + skip; *c; ++c) {
            for (int id = 0; id < vocab; ++id) {
                if (bytes[id] == (unsigned char)*c) prompt[n++] = id;
            }
        }
        if (n == 0) prompt[n++] = 0;
        fputs(text, stdout);
        sample(m, bytes, prompt, n, 300, NULL);
        putchar('\n');
    }
    tg_module_free(m);
    tg_dict_free(saved);
    if (tg_ok() && !vocab) return fail("model.safetensors", "not a model of this program");
    return tg_ok() ? 0 : fail("model.safetensors", tg_error_message());
}
#endif
