/* The workloads of language models that are run, not trained: GPT-2 124M and a Llama of 173 million parameters, with
 * random weights.  The models and the loop around them are those of examples/models: gpt2.c and llama.c are included
 * here as they are.
 *
 *     generate-64x16-gpt2-bf16    16 tokens after a prompt of 64, the most likely one each time; a call is one token
 *     prefill-512-llama-f32       a prompt of 512 tokens with an empty cache, up to the logits behind it
 *     generate-5x4-gpt2-f32-tiny  the same with a very small model, which tests that it runs
 *
 * peers/transformers_peer.py has the same weights. */
#define TG_COMPILED /* the library is in library.o */
#include "../../examples/models/generate.h"

/* Of the names that both files define, each gets one of its own. */
#define layer OF_MODEL(layer)
#define attention OF_MODEL(attention)
#define forward OF_MODEL(forward)
#define read_layer OF_MODEL(read_layer)
#define read_model OF_MODEL(read_model)
#define read_network OF_MODEL(read_network)
#define network OF_MODEL(network)
#define main OF_MODEL(main)
#define OF_MODEL(name) gpt2_##name
#include "../../examples/models/gpt2.c"
#undef OF_MODEL
#define OF_MODEL(name) llama_##name
#include "../../examples/models/llama.c"
#undef OF_MODEL
#undef layer
#undef attention
#undef forward
#undef read_layer
#undef read_model
#undef read_network
#undef network
#undef main
#undef TENSORGRAD_IMPLEMENTATION

#include "workloads.h"
#include <unistd.h>

enum { PROMPT_IDS = 1000, FIRST_ID = 100 }; /* tokens of a prompt are below; the first of a text, or that many more */

typedef struct { int64_t layers, width, heads, kv_heads, hidden, vocabulary, context; } sizes;
static const sizes gpt2_sizes[] = {{12, 768, 12, 12, 3072, 50257, 1024}, {2, 32, 4, 4, 128, 1200, 64}};
static const sizes llama_sizes[] = {{12, 1024, 16, 8, 2816, 32000, 0}, {2, 32, 4, 2, 48, 1200, 0}}; /* [is tiny] */

static struct {
    model m;
    sizes sizes;
    weights w; /* owns all tensors here */
    turn *t;
    tg_tensor *kept[3]; /* ids, positions and last of the prompt's turn */
    batch b;
    options o;
    tg_dtype dtype;
    tg_dict *made;         /* the weights, until they are in a file */
    int weights;           /* made or read so far */
    uint32_t seed;         /* of the last matrix */
    double head, layers;   /* how many numbers are in the matrix of the logits, and in all that the layers have */
    int64_t begun, prompt; /* texts so far; tokens of the prompt */
} all;

/* ---- the weights, in the order of transformers' parameters ----------------------------------------------------- */

/* The next weight: made, for the file; or of the file, when it is there. */
static tg_tensor *weight(tg_shape shape, double value)
{
    char name[16];
    tg_tensor *t;
    snprintf(name, sizeof name, "%d", all.weights++);
    all.layers += (double)shape.dim[0] * (double)(shape.ndim > 1 ? shape.dim[1] : 1);
    if (all.w.file) return own(&all.w, tg_dict_get(all.w.file, name));
    TG_SCOPE;
    if (shape.ndim == 1) t = tg_full(shape, value);
    else t = fill(tg_empty(shape), ++all.seed, 0.05f);
    t = tg_to_dtype(t, all.dtype);
    tg_dict_set(all.made, name, t);
    return tg_keep(t);
}

static tg_tensor *matrix(int64_t rows, int64_t columns) { return weight(TG_SHAPE(rows, columns), 0); }
static tg_tensor *vector(int64_t n, double value) { return weight(TG_SHAPE(n), value); }

/* The table of tokens, which is the matrix of the logits, too. */
static tg_tensor *first_matrix(int64_t vocabulary, int64_t width)
{
    tg_tensor *t = matrix(vocabulary, width);
    all.head = all.layers;
    all.layers = 0;
    return t;
}

static void make_gpt2(void)
{
    gpt2 *const g = &gpt2_network;
    const sizes s = gpt2_sizes[option("tiny")];
    const int64_t width = s.width;
    memset(g, 0, sizeof *g);
    g->n_layers = s.layers;
    g->heads = s.heads;
    g->eps = 1e-5;
    g->tanh_gelu = true;
    g->token = g->head = first_matrix(s.vocabulary, width);
    g->position = matrix(s.context, width);
    all.layers = 0; /* a token reads one row of these */
    for (int i = 0; i < s.layers; ++i) {
        gpt2_layer *const l = &g->layers[i];
        l->norm1_weight = vector(width, 1), l->norm1_bias = vector(width, 0);
        l->qkv_weight = own(&all.w, tg_t(matrix(width, 3 * width))), l->qkv_bias = vector(3 * width, 0);
        l->out_weight = own(&all.w, tg_t(matrix(width, width))), l->out_bias = vector(width, 0);
        l->norm2_weight = vector(width, 1), l->norm2_bias = vector(width, 0);
        l->in_weight = own(&all.w, tg_t(matrix(width, s.hidden))), l->in_bias = vector(s.hidden, 0);
        l->back_weight = own(&all.w, tg_t(matrix(s.hidden, width))), l->back_bias = vector(width, 0);
    }
    g->norm_weight = vector(width, 1), g->norm_bias = vector(width, 0);
    const model described = {g, gpt2_forward, s.layers, s.heads, width / s.heads, s.context, all.dtype};
    all.m = described;
    all.sizes = s;
}

static void make_llama(void)
{
    llama *const l = &llama_network;
    const sizes s = llama_sizes[option("tiny")];
    const int64_t width = s.width, each = width / s.heads, kv = s.kv_heads * each;
    memset(l, 0, sizeof *l);
    l->n_layers = s.layers;
    l->heads = s.heads;
    l->kv_heads = s.kv_heads;
    l->eps = 1e-5;
    l->positions.theta = 10000;
    l->positions.width = each;
    l->token = l->head = first_matrix(s.vocabulary, width);
    for (int i = 0; i < s.layers; ++i) {
        llama_layer *const a = &l->layers[i];
        a->q.weight = matrix(width, width), a->k.weight = matrix(kv, width);
        a->v.weight = matrix(kv, width), a->o.weight = matrix(width, width);
        a->gate.weight = matrix(s.hidden, width), a->up.weight = matrix(s.hidden, width);
        a->down.weight = matrix(width, s.hidden);
        a->norm_attention = vector(width, 1), a->norm_mlp = vector(width, 1);
    }
    l->norm = vector(width, 1);
    const model described = {l, llama_forward, s.layers, s.kv_heads, each, 0, all.dtype};
    all.m = described;
    all.sizes = s;
}

/* ---- texts ------------------------------------------------------------------------------------------------------ */

/* One text behind the prompt, of which the cache holds keys and values; it begins with another token each time.
   Returns the last token. */
static double generate_text(void)
{
    const int64_t first = all.prompt, n = now.size[1];
    int64_t allocations = 0;
    TG_NO_GRAD;
    all.b.ids[first] = FIRST_ID + all.begun++ % PROMPT_IDS;
    for (int64_t made = 1; made <= n; ++made) {
        TG_SCOPE;
        next_turn(all.t, &all.b, 1, made - 1);
        draw(&all.b, &all.o, made, all.m.forward(all.m.self, all.t));
        if (made == 2) allocations = tg_stats().allocations;
    }
    now.allocations = tg_stats().allocations - allocations;
    return (double)all.b.ids[first + n];
}

/* The logits behind the prompt */
static tg_tensor *prefill(void)
{
    TG_NO_GRAD;
    all.t->offset = 0;
    all.t->longest = all.prompt;
    all.t->ids = all.kept[0], all.t->positions = all.kept[1], all.t->last = all.kept[2];
    return all.m.forward(all.m.self, all.t);
}

/* One prompt of numbers, and room behind it. */
static bool make_prompt(int64_t tokens)
{
    tg_tensor *ids = labels(TG_SHAPE(all.prompt), 1000, PROMPT_IDS);
    const int64_t *id = ids ? tg_data_i64(ids) : NULL;
    all.b.longest = all.b.length[0] = all.prompt;
    all.b.room = all.prompt + tokens + 1;
    all.b.ids = (int64_t *)calloc((size_t)all.b.room, sizeof *all.b.ids);
    for (int64_t i = 0; i < all.prompt && id && all.b.ids; ++i) all.b.ids[i] = id[i];
    tg_release(ids);
    all.o.rows = 1;
    all.o.top_p = all.o.penalty = 1;
    all.t = id && all.b.ids ? first_turn(&all.m, &all.b, 1) : NULL;
    if (!all.t) return false;
    all.kept[0] = own(&all.w, all.t->ids), all.kept[1] = own(&all.w, all.t->positions);
    all.kept[2] = own(&all.w, all.t->last);
    for (int i = 0; i < all.m.layers; ++i) own(&all.w, all.t->key[i]), own(&all.w, all.t->value[i]);
    return true;
}

/* The weights lie in a file that is mapped, as those of the examples do; it has no name once it is open. */
static bool map_weights(void (*make)(void))
{
    char path[256];
    const char *folder = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/tensorgrad-bench-%ld.safetensors", folder ? folder : "/tmp", (long)getpid());
    {
        TG_SCOPE;
        all.made = tg_dict_new();
        make();
        tg_safetensors_save(path, all.made);
        tg_dict_free(all.made);
    }
    tg_empty_cache(TG_CPU);
    all.w.file = tg_ok() ? tg_safetensors_open(path) : NULL;
    remove(path);
    all.weights = 0;
    all.layers = 0;
    if (all.w.file) make();
    return all.w.file && tg_ok();
}

/* A token reads each weight once.  The prompt multiplies each in the layers for each of its tokens, and has scores. */
static void setup(bool generates)
{
    TG_NO_GRAD;
    const double part = option("bf16") ? 0.5 : 1;
    all.dtype = option("bf16") ? TG_BF16 : TG_F32;
    all.prompt = now.size[0];
    if (!map_weights(option("gpt2") ? make_gpt2 : make_llama) || !make_prompt(now.size[1])) return;
    if (generates) {
        now.mode = TRAIN;
        now.train = generate_text;
        now.calls = (double)now.size[1];
        cost(0, now.calls * part * (all.head + all.layers));
        prefill();
    } else {
        const double n = (double)all.prompt, width = (double)all.sizes.width;
        const double scores = 2 * n * n * width * (double)all.sizes.layers; /* half of them are masked */
        cost(2 * (all.head + n * all.layers) + scores, part * (all.head + all.layers));
    }
}

static void setup_generate(void) { setup(true); }
static void setup_prefill(void) { setup(false); }

const kind generation_kinds[] = {{"generate", setup_generate, NULL, NULL, NULL},
                                 {"prefill", setup_prefill, prefill, NULL, NULL},
                                 {NULL, NULL, NULL, NULL, NULL}};

void end_generation(void)
{
    close_weights(&all.w);
    free(all.t);
    free(all.b.ids);
    memset(&all, 0, sizeof all);
}
