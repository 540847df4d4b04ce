/* generate.h: what gpt2.c and llama.c share: options, a cache of keys and values, and the loop that draws one token
   after the other for a batch of prompts.

   Prompts of different lengths are padded at their ends to that of the longest, T.  The cache has slots for tokens: T
   for the prompts, of which a short one does not use the last, then one for each new token.  A position counts from 0
   in each row without gaps: new token i of a prompt of n tokens is at position n + i, in slot T + i. */
#ifndef GENERATE_H
#define GENERATE_H
#if !defined(_WIN32) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L /* gettimeofday */
#endif
#include "weights.h"
#include "bpe.h"
#include <sys/time.h>

enum { ROWS = 64 };

typedef struct {
    const char *folder, *logits, *prompt[ROWS];
    int rows;
    bool are_ids, shows_speed;
    int64_t tokens, top_k, seed;
    double temperature, top_p, penalty;
} options;

/* What a model is asked: tokens ids [N, L] at positions [N, L], both i64; offset slots of the cache are filled. */
typedef struct {
    tg_tensor *ids, *positions;
    tg_tensor *last;           /* i64 [N]: of which of the L positions logits are wanted; NULL: of all */
    tg_tensor *slot_positions; /* i64 [N, slots]: of each slot, a large number where nothing is; NULL: rows are alike */
    int64_t offset, slots, longest; /* longest: the largest position + 1 */
    tg_tensor *key[LAYERS], *value[LAYERS]; /* [N, heads, slots, width], written in place */
} turn;

typedef struct {
    void *self;
    tg_tensor *(*forward)(void *self, turn *t); /* logits [N, vocab], or [N, L, vocab] if t->last is NULL */
    int64_t layers, kv_heads, width, context;   /* context: the largest number of positions; 0: any */
    tg_dtype dtype;
} model;

/* ---- options ---- */

static inline int usage(const char *program)
{
    fprintf(stderr,
            "%s FOLDER [options] [PROMPT..]: continues each prompt.  FOLDER has config.json, model.safetensors or\n"
            "  model.safetensors.index.json, and tokenizer.json or vocab.json and merges.txt, as from Hugging Face\n"
            "  --tokens 64         how many tokens are made\n"
            "  --temperature 0     0: always the most likely token; 1: by the probabilities of the model\n"
            "  --top-k 0           draw from the k most likely\n"
            "  --top-p 1           draw from the fewest that have this probability together\n"
            "  --penalty 1         tokens that were there are less likely\n"
            "  --seed 0            the same seed draws the same tokens\n"
            "  --threads 0         how many threads compute; 0: as many as there are processors\n"
            "  --ids               prompts are numbers of tokens, as \"1 2 3\", and so is what is printed\n"
            "  --speed             prints tokens per second\n"
            "  --logits FILE       saves logits [N, T, vocab] of the prompts as safetensors\n", program);
    return 2;
}

static inline bool read_options(options *o, int argc, char **argv)
{
    memset(o, 0, sizeof *o);
    o->tokens = 64;
    o->top_p = o->penalty = 1;
    for (int i = 1; i < argc; ++i) {
        const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        const bool takes_none = !strcmp(name, "--ids") || !strcmp(name, "--speed");
        if (strncmp(name, "--", 2) != 0) {
            if (!o->folder) o->folder = name;
            else if (o->rows < ROWS) o->prompt[o->rows++] = name;
            continue;
        }
        if (!takes_none && !value) return false;
        if (!strcmp(name, "--tokens")) o->tokens = atoll(value);
        else if (!strcmp(name, "--temperature")) o->temperature = atof(value);
        else if (!strcmp(name, "--top-k")) o->top_k = atoll(value);
        else if (!strcmp(name, "--top-p")) o->top_p = atof(value);
        else if (!strcmp(name, "--penalty")) o->penalty = atof(value);
        else if (!strcmp(name, "--seed")) o->seed = atoll(value);
        else if (!strcmp(name, "--threads")) tg_set_num_threads(atoi(value));
        else if (!strcmp(name, "--logits")) o->logits = value;
        else if (!strcmp(name, "--ids")) o->are_ids = true;
        else if (!strcmp(name, "--speed")) o->shows_speed = true;
        else return false;
        i += !takes_none;
    }
    return o->folder && o->rows > 0 && o->tokens >= 0;
}

/* ---- the parts of a forward that have to do with the cache ---- */

/* q [N, heads, L, width] sees k and v [N, kv_heads, L, width], which are new, and what is in the cache of the layer. */
static inline tg_tensor *attend(turn *t, int layer, tg_tensor *q, tg_tensor *k, tg_tensor *v, int64_t window)
{
    const int64_t L = tg_dim(q, 2), N = tg_dim(q, 0), slots = t->offset + L;
    tg_tensor *keys = tg_narrow(t->key[layer], 2, 0, slots), *values = tg_narrow(t->value[layer], 2, 0, slots);
    tg_copy_(tg_narrow(keys, 2, t->offset, L), k);
    tg_copy_(tg_narrow(values, 2, t->offset, L), v);
    if (!t->slot_positions || L > 1) /* the positions are the slots */
        return tg_scaled_dot_product_attention_ex(q, keys, values, NULL, 0, true, 0, true, t->offset, window);
    tg_tensor *seen = tg_le(t->slot_positions, t->positions), *far = NULL;
    if (window > 0) far = tg_gt(t->slot_positions, tg_sub_scalar(t->positions, (double)window));
    if (far) seen = tg_logical_and(seen, far);
    seen = tg_reshape(tg_narrow(seen, 1, 0, slots), TG_SHAPE(N, 1, 1, slots));
    return tg_scaled_dot_product_attention_ex(q, keys, values, seen, 0, false, 0, true, 0, 0);
}

/* x [N, L, width]: the position of each row whose logits are wanted, [N, width] */
static inline tg_tensor *wanted(const turn *t, tg_tensor *x)
{
    if (!t->last || !x) return x;
    if (tg_dim(x, 1) == 1) return tg_select(x, 1, 0);
    tg_tensor *rows = tg_arange_on(0, (double)tg_dim(x, 0), 1, TG_I64, TG_CPU);
    return tg_index(x, TG_LIST(rows, t->last));
}

/* ---- the loop ---- */

/* A batch of prompts: ids [rows, room], of which the first length[i] are those of row i, then its first one again. */
typedef struct {
    int64_t *ids, room, longest, length[ROWS];
    int64_t stop[16];
    int stops;
    bool done[ROWS];
} batch;

static inline bool read_prompts(batch *b, const options *o, const bpe *tokenizer)
{
    bpe_ids row[ROWS];
    memset(row, 0, sizeof row);
    bool ok = true;
    for (int i = 0; i < o->rows; ++i) {
        if (!o->are_ids) row[i] = bpe_encode(tokenizer, o->prompt[i], strlen(o->prompt[i]), true);
        char *end = NULL;
        for (const char *p = o->prompt[i]; o->are_ids; p = end) {
            const int64_t id = strtoll(p, &end, 10);
            if (end == p) break;
            bpe_push(&row[i], id);
        }
        b->length[i] = row[i].n;
        ok = ok && row[i].n > 0;
        if (row[i].n > b->longest) b->longest = row[i].n;
    }
    b->room = b->longest + o->tokens;
    b->ids = (int64_t *)malloc((size_t)(o->rows * b->room + 1) * sizeof *b->ids);
    for (int i = 0; i < o->rows && ok && b->ids; ++i) {
        for (int64_t k = 0; k < b->room; ++k) b->ids[i * b->room + k] = row[i].id[k < row[i].n ? k : 0];
    }
    for (int i = 0; i < o->rows; ++i) free(row[i].id);
    if (!ok) fprintf(stderr, "a prompt has no tokens\n");
    return ok && b->ids;
}

/* The numbers that end a text: eos_token_id of generation_config.json or config.json, a number or a list. */
static inline void read_stops(batch *b, const options *o, const json *config)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/generation_config.json", o->folder);
    json_document other = json_read(path);
    const json *eos = json_get(other.node, "eos_token_id");
    if (!eos) eos = json_get(config, "eos_token_id");
    if (eos && eos->kind == JSON_NUMBER) b->stop[b->stops++] = (int64_t)eos->number;
    const json *id = eos && eos->kind == JSON_ARRAY ? json_first(eos) : NULL;
    for (; id && b->stops < 16; id = json_next(id)) b->stop[b->stops++] = (int64_t)id->number;
    json_free(&other);
}

/* The prompts' turn, with an empty cache of `slots` slots. */
static inline turn *first_turn(const model *m, const batch *b, int rows)
{
    const tg_shape all = TG_SHAPE(rows, b->room), shape = TG_SHAPE(rows, m->kv_heads, b->room, m->width);
    turn *t = (turn *)calloc(1, sizeof *t);
    int64_t position[ROWS];
    bool alike = true;
    if (!t) return NULL;
    for (int i = 0; i < rows; ++i) {
        alike = alike && b->length[i] == b->longest;
        position[i] = b->length[i] - 1;
    }
    t->longest = b->longest;
    t->slots = b->room;
    tg_tensor *slots = tg_arange_on(0, (double)b->room, 1, TG_I64, TG_CPU);
    t->ids = tg_narrow(tg_from_i64(b->ids, all), 1, 0, b->longest);
    t->positions = tg_expand(tg_narrow(slots, 0, 0, b->longest), TG_SHAPE(rows, b->longest));
    t->last = tg_from_i64(position, TG_SHAPE(rows));
    if (!alike) {
        tg_tensor *own_positions = tg_clone(tg_expand(slots, all));
        for (int i = 0; i < rows; ++i) {
            tg_tensor *row = tg_select(own_positions, 0, i);
            tg_fill_(tg_narrow(row, 0, b->length[i], b->room - b->length[i]), (double)(1 << 30));
        }
        t->slot_positions = own_positions;
    }
    for (int64_t i = 0; i < m->layers; ++i) {
        t->key[i] = tg_zeros_on(shape, m->dtype, TG_CPU);
        t->value[i] = tg_zeros_on(shape, m->dtype, TG_CPU);
    }
    return t;
}

/* Draws the next token of each row and appends it to the batch; false if all rows are at their ends. */
static inline bool draw(batch *b, const options *o, int64_t made, tg_tensor *logits)
{
    bool more = false;
    if (o->penalty != 1) /* what is behind the last token is the first one again */
        logits = tg_repetition_penalty(logits, tg_from_i64(b->ids, TG_SHAPE(o->rows, b->room)), o->penalty);
    tg_tensor *next = tg_sample_logits(logits, o->temperature, o->top_k, o->top_p);
    const int64_t *id = next ? tg_data_i64(next) : NULL;
    for (int i = 0; i < o->rows && id; ++i) {
        b->ids[i * b->room + b->longest + made] = id[i];
        for (int k = 0; k < b->stops && !b->done[i]; ++k) b->done[i] = id[i] == b->stop[k];
        more = more || !b->done[i];
    }
    return more;
}

/* The turn of the tokens that were drawn last. */
static inline void next_turn(turn *t, const batch *b, int rows, int64_t made)
{
    int64_t id[ROWS], position[ROWS];
    t->offset = b->longest + made;
    t->longest = t->offset + 1;
    for (int i = 0; i < rows; ++i) {
        id[i] = b->ids[i * b->room + t->offset];
        position[i] = b->length[i] + made;
    }
    t->ids = tg_from_i64(id, TG_SHAPE(rows, 1));
    t->positions = tg_from_i64(position, TG_SHAPE(rows, 1));
    if (t->slot_positions) tg_copy_(tg_narrow(t->slot_positions, 1, t->offset, 1), t->positions);
}

static inline void print_row(const batch *b, const options *o, const bpe *tokenizer, int row, int64_t begin,
                             int64_t end)
{
    static bool first = true;
    for (int64_t i = begin; i < end; ++i) {
        const int64_t id = b->ids[row * b->room + i];
        if (o->are_ids) printf("%lld ", (long long)id);
        else if (bpe_write(tokenizer, id, first && o->rows == 1 && !*o->prompt[0], stdout)) first = false;
    }
}

static inline double seconds_now(void)
{
    struct timeval now;
    gettimeofday(&now, NULL);
    return (double)now.tv_sec + 1e-6 * (double)now.tv_usec;
}

/* One prompt is printed as it grows, several when all have ended. */
static inline bool run_turns(const model *m, const options *o, batch *b, turn *t, const bpe *tokenizer)
{
    int64_t made = 0;
    double begun = 0;
    for (bool more = o->tokens > 0; more && made < o->tokens && tg_ok(); ++made) {
        TG_SCOPE; /* of one token */
        if (made > 0) next_turn(t, b, o->rows, made - 1);
        more = draw(b, o, made, m->forward(m->self, t));
        if (made == 0) begun = seconds_now();
        if (o->rows == 1 && tg_ok()) print_row(b, o, tokenizer, 0, b->longest + made, b->longest + made + 1);
        fflush(stdout);
    }
    for (int i = 0; i < o->rows && o->rows > 1 && tg_ok(); ++i) {
        int64_t end = made;
        for (int64_t k = made - 1; k >= 0; --k) {
            for (int s = 0; s < b->stops; ++s) end = b->ids[i * b->room + b->longest + k] == b->stop[s] ? k + 1 : end;
        }
        if (!o->are_ids) printf("[%d] %s", i, o->prompt[i]);
        print_row(b, o, tokenizer, i, b->longest, b->longest + end);
        puts("");
    }
    if (o->rows == 1) puts("");
    const double seconds = seconds_now() - begun;
    if (o->shows_speed && made > 1) fprintf(stderr, "%.2f tokens/s\n", (double)(o->rows * (made - 1)) / seconds);
    return tg_ok();
}

/* Texts by a model that was read. */
static inline bool generate(const model *m, const options *o, const json *config)
{
    TG_SCOPE;
    TG_NO_GRAD;
    batch b;
    bpe *tokenizer = o->are_ids ? NULL : bpe_load(o->folder);
    memset(&b, 0, sizeof b);
    turn *t = NULL;
    bool ok = (o->are_ids || tokenizer) && read_prompts(&b, o, tokenizer);
    if (ok && m->context > 0 && b.room > m->context) {
        fprintf(stderr, "%lld positions are more than the model's %lld\n", (long long)b.room, (long long)m->context);
        ok = false;
    }
    if (ok) {
        read_stops(&b, o, config);
        tg_seed((uint64_t)o->seed);
        t = first_turn(m, &b, o->rows);
        ok = t && tg_ok();
    }
    if (ok && o->rows == 1 && !o->are_ids) fputs(o->prompt[0], stdout);
    if (ok && o->logits) {
        tg_tensor *last = t->last;
        t->last = NULL;
        ok = save_one(o->logits, "logits", m->forward(m->self, t));
        t->last = last;
    }
    ok = ok && run_turns(m, o, &b, t, tokenizer);
    free(t);
    free(b.ids);
    bpe_free(tokenizer);
    return ok;
}

/* The main of a model with the weights w: `read` reads them as config.json says, and fills in *m. */
static inline int run_model(int argc, char **argv, weights *w,
                            bool (*read)(model *m, const options *o, const json *config))
{
    model m;
    options o;
    if (!read_options(&o, argc, argv)) return usage(argv[0]);
    json_document config = read_config(o.folder);
    bool ok = config.node != NULL;
    {
        TG_SCOPE;
        ok = ok && read(&m, &o, config.node) && generate(&m, &o, config.node);
        close_weights(w);
    }
    json_free(&config);
    tg_shutdown();
    return ok && tg_ok() ? 0 : 1;
}
#endif
