/* bert.c: BERT as Hugging Face has it on disk, with the weights where they are in the file: words for [MASK], vectors
   of sentences, classes of texts or of their words.

       cc -O2 -fopenmp bert.c -o bert -lm
       ./bert FOLDER "The capital of France is [MASK]."
       ./bert FOLDER --vectors "A cat sleeps." "A kitten naps." "Prices fell today."
       ./bert FOLDER --classify "Ada lives in London."

   READ    encode(), the model in twenty lines; then fill(), vectors() and classify(), what it is used for.
   CHANGE  vectors() to take the first token for the text; leave out the mask, and see that they depend on the batch. */
#define TENSORGRAD_IMPLEMENTATION
#include "weights.h"
#include "wordpiece.h"

enum { QUERY, KEY, VALUE, OUTPUT, NORM1, UP, DOWN, NORM2, PARTS, ROWS = 256 }; /* the parts of a layer; texts */

typedef enum { FILL, VECTORS, CLASSIFY } use;

typedef struct {
    tg_tensor *token, *position, *kind; /* kind: of the first text, or the second; here all are a first one */
    affine norm, layers[LAYERS][PARTS], pooler, transform, transform_norm, decoder, classifier;
    int64_t n_layers, heads;
    double eps;
    bool relu, tanh_gelu, of_tokens; /* of_tokens: it classifies these, not whole texts */
    weights w;
} bert;

typedef struct {
    const char *folder, *save, *text[ROWS];
    int rows, top_k;
    use what;
} options;

/* Texts of different lengths, padded at their ends to the longest, L. */
typedef struct {
    int64_t *id, length[ROWS], longest; /* id [N, L] */
    tg_tensor *ids, *seen;              /* i64 [N, L]; bool [N, L], true where a text is */
    bool alike;                         /* all lengths are equal */
} batch;

/* ---- the model ---- */

static tg_tensor *linear(affine a, tg_tensor *x) { return tg_linear(x, a.weight, a.bias); }

static tg_tensor *norm(const bert *b, affine a, tg_tensor *x) { return tg_layer_norm(x, 1, a.weight, a.bias, b->eps); }

static tg_tensor *activated(const bert *b, affine a, tg_tensor *x)
{
    return b->relu ? tg_relu(linear(a, x)) : tg_linear_gelu(x, a.weight, a.bias, b->tanh_gelu);
}

/* The padding is a mask [N, 1, 1, L], which attention reads as it is for all heads and all queries. */
static tg_tensor *encode(const bert *b, const batch *t)
{
    const int64_t N = tg_dim(t->ids, 0), L = t->longest;
    tg_tensor *const mask = t->alike ? NULL : tg_reshape(t->seen, TG_SHAPE(N, 1, 1, L));
    tg_tensor *where = tg_add(tg_narrow(b->position, 0, 0, L), tg_select(b->kind, 0, 0));
    tg_tensor *x = norm(b, b->norm, tg_add(tg_embedding(b->token, t->ids), where)), *part[3];
    for (int i = 0; i < b->n_layers && x; ++i) {
        const affine *const l = b->layers[i];
        for (int k = 0; k < 3; ++k) part[k] = split_heads(linear(l[QUERY + k], x), b->heads);
        tg_tensor *h = join_heads(tg_scaled_dot_product_attention(part[0], part[1], part[2], mask, 0, false, 0));
        x = norm(b, l[NORM1], tg_add(linear(l[OUTPUT], h), x));
        x = norm(b, l[NORM2], tg_add(linear(l[DOWN], activated(b, l[UP], x)), x));
    }
    return x;
}

/* x [.., width] -> logits of all words [.., vocab] */
static tg_tensor *words(const bert *b, tg_tensor *x)
{
    return linear(b->decoder, norm(b, b->transform_norm, activated(b, b->transform, x)));
}

/* ---- from the files ---- */

static void read_layers(bert *b)
{
    static const char *const names[PARTS] = {"attention.self.query", "attention.self.key", "attention.self.value",
                                             "attention.output.dense", "attention.output.LayerNorm",
                                             "intermediate.dense", "output.dense", "output.LayerNorm"};
    char path[96];
    for (int64_t i = 0; i < b->n_layers * PARTS; ++i) {
        snprintf(path, sizeof path, "encoder.layer.%d.%s", (int)(i / PARTS), names[i % PARTS]);
        b->layers[i / PARTS][i % PARTS] = read_affine(&b->w, true, path);
    }
}

static bool read_sizes(bert *b, const json *config)
{
    const char *activation = json_text(config, "hidden_act", "gelu");
    const char *positions = json_text(config, "position_embedding_type", "absolute");
    const json *made_for = json_first(json_get(config, "architectures"));
    memset(b, 0, sizeof *b);
    b->of_tokens = made_for && made_for->text && strcmp(made_for->text, "BertForTokenClassification") == 0;
    b->n_layers = (int64_t)json_number(config, "num_hidden_layers", 0);
    b->heads = (int64_t)json_number(config, "num_attention_heads", 0);
    b->eps = json_number(config, "layer_norm_eps", 1e-12);
    b->relu = strcmp(activation, "relu") == 0;
    b->tanh_gelu = strcmp(activation, "gelu_new") == 0 || strcmp(activation, "gelu_pytorch_tanh") == 0;
    if (json_is(config, "model_type", "bert") && b->n_layers > 0 && b->n_layers <= LAYERS && b->heads > 0 &&
        (b->relu || b->tanh_gelu || strcmp(activation, "gelu") == 0) && strcmp(positions, "absolute") == 0 &&
        json_number(config, "is_decoder", 0) == 0) {
        return true;
    }
    fprintf(stderr, "config.json is not that of a BERT\n");
    return false;
}

/* Some files have "bert." before the names of the encoder; old ones have other names for norms, and positions, which
   are no weights.  seq_relationship is of pretraining alone. */
static bool read_model(bert *b, const options *o, const json *config)
{
    static const tg_rename prefix = {"bert.*", "*", false}, names[] = {
        {"*.gamma", "*.weight", false}, {"*.beta", "*.bias", false}, {"embeddings.position_ids", NULL, false},
        {"cls.seq_relationship.*", NULL, false}};
    const bool fills = o->what == FILL, classifies = o->what == CLASSIFY;
    if (!read_sizes(b, config) || !open_weights(&b->w, o->folder)) return false;
    if (tg_dict_rename(b->w.file, &prefix, 1) != TG_OK || tg_dict_rename(b->w.file, names, 4) != TG_OK) return false;
    b->token = required(&b->w, "embeddings.word_embeddings.weight", 0);
    b->position = required(&b->w, "embeddings.position_embeddings.weight", 0);
    b->kind = required(&b->w, "embeddings.token_type_embeddings.weight", 0);
    b->norm = read_affine(&b->w, true, "embeddings.LayerNorm");
    read_layers(b);
    b->pooler = read_affine(&b->w, classifies && !b->of_tokens, "pooler.dense");
    b->classifier = read_affine(&b->w, classifies, "classifier");
    b->transform = read_affine(&b->w, fills, "cls.predictions.transform.dense");
    b->transform_norm = read_affine(&b->w, fills, "cls.predictions.transform.LayerNorm");
    b->decoder = read_affine(&b->w, false, "cls.predictions.decoder"); /* most files have neither: they are tied */
    tg_tensor *const bias = optional(&b->w, "cls.predictions.bias");
    if (!b->decoder.bias) b->decoder.bias = bias;
    if (!b->decoder.weight && json_number(config, "tie_word_embeddings", 1) != 0) b->decoder.weight = b->token;
    if (!b->decoder.bias && fills) required(&b->w, "cls.predictions.bias", 0);
    if (!b->decoder.weight && fills) required(&b->w, "cls.predictions.decoder.weight", 0);
    return all_taken(&b->w);
}

static bool read_texts(batch *t, const options *o, const wordpiece *w, int64_t most)
{
    memset(t, 0, sizeof *t);
    t->id = wordpiece_batch(w, o->text, o->rows, t->length, &t->longest);
    if (t->longest > most)
        fprintf(stderr, "%lld tokens are more than the model's %lld\n", (long long)t->longest, (long long)most);
    if (!t->id || t->longest > most) return false;
    t->ids = tg_from_i64(t->id, TG_SHAPE(o->rows, t->longest));
    tg_tensor *const at = tg_arange_on(0, (double)t->longest, 1, TG_I64, TG_CPU);
    t->seen = tg_lt(at, tg_from_i64(t->length, TG_SHAPE(o->rows, 1)));
    t->alike = t->seen && tg_item(tg_all(t->seen)) != 0;
    return t->seen != NULL;
}

/* ---- what it is used for; each returns what --save writes ---- */

static tg_tensor *probabilities(tg_tensor *logits) { return tg_softmax(tg_to_dtype(logits, TG_F64), -1); }

static tg_tensor *fill(const bert *b, const batch *t, const options *o, const wordpiece *w, tg_tensor *x)
{
    const int64_t mask = bpe_find(w->tokens, "[MASK]", 6), L = t->longest;
    for (int64_t i = 0; i < o->rows * L && tg_ok(); ++i) {
        if (i % L == 0) puts(o->text[i / L]);
        if (i % L >= t->length[i / L] || t->id[i] != mask) continue;
        tg_tensor *at = tg_select(tg_select(x, 0, i / L), 0, i % L), *index;
        tg_tensor *best = tg_topk(probabilities(words(b, at)), o->top_k, 0, true, &index);
        for (int64_t n = 0; n < o->top_k && best; ++n)
            printf("  %s %.4f", wordpiece_text(w, tg_data_i64(index)[n]), tg_data_f64(best)[n]);
        puts("");
    }
    return o->save ? words(b, x) : x;
}

/* x [N, L, width]: the mean over the tokens of each text, brought to the length 1, [N, width] */
static tg_tensor *vectors(const batch *t, const options *o, tg_tensor *x)
{
    const tg_dtype dtype = tg_dtype_of(x) == TG_F64 ? TG_F64 : TG_F32;
    tg_tensor *sum = tg_bmm(tg_unsqueeze(tg_to_dtype(t->seen, dtype), 1), tg_to_dtype(x, dtype)); /* [N, 1, width] */
    tg_tensor *y = tg_normalize(tg_squeeze(sum, 1), 2, 1, 1e-12), *cosines = tg_to_dtype(tg_matmul(y, tg_t(y)), TG_F64);
    for (int i = 0; i < o->rows && cosines; ++i) {
        for (int k = 0; k < o->rows; ++k) printf("%7.4f ", tg_data_f64(cosines)[i * o->rows + k]);
        printf(" %s\n", o->text[i]);
    }
    return y;
}

/* Prints the likeliest class of each text, or of each token; logits [N, classes] or [N, L, classes] */
static tg_tensor *classify(const bert *b, const batch *t, const options *o, const wordpiece *w, tg_tensor *x,
                           const json *config)
{
    if (!b->of_tokens) x = tg_tanh(linear(b->pooler, tg_narrow(x, 1, 0, 1)));
    tg_tensor *const y = linear(b->classifier, x), *index, *best = tg_max_dim(probabilities(y), 2, false, &index);
    for (int64_t i = 0, L = tg_dim(x, 1); i < o->rows * L && best; ++i) {
        char name[32]; /* the default, and behind its first six letters the number */
        const int number = (int)tg_data_i64(index)[i];
        if (i % L >= t->length[i / L]) continue;
        snprintf(name, sizeof name, "LABEL_%d", number);
        printf("%s %.4f  ", json_text(json_get(config, "id2label"), name + 6, name), tg_data_f64(best)[i]);
        puts(b->of_tokens ? wordpiece_text(w, t->id[i]) : o->text[i]);
    }
    return b->of_tokens ? y : tg_squeeze(y, 1);
}

static bool run(bert *b, const options *o, const json *config, const wordpiece *w)
{
    TG_SCOPE;
    TG_NO_GRAD;
    batch t;
    if (!read_model(b, o, config)) return false;
    tg_tensor *x = read_texts(&t, o, w, tg_dim(b->position, 0)) ? encode(b, &t) : NULL;
    if (x && o->what == FILL) x = fill(b, &t, o, w, x);
    if (x && o->what == VECTORS) x = vectors(&t, o, x);
    if (x && o->what == CLASSIFY) x = classify(b, &t, o, w, x, config);
    free(t.id);
    if (x && o->save) save_one(o->save, o->what == VECTORS ? "vectors" : "logits", x);
    return x && tg_ok();
}

static bool read_options(options *o, int argc, char **argv)
{
    memset(o, 0, sizeof *o);
    o->top_k = 5;
    for (int i = 1; i < argc; ++i) {
        const char *name = argv[i], *value = strncmp(name, "--", 2) == 0 && i + 1 < argc ? argv[i + 1] : NULL;
        if (!strcmp(name, "--vectors")) o->what = VECTORS;
        else if (!strcmp(name, "--classify")) o->what = CLASSIFY;
        else if (value && !strcmp(name, "--top-k")) o->top_k = atoi(argv[++i]);
        else if (value && !strcmp(name, "--threads")) tg_set_num_threads(atoi(argv[++i]));
        else if (value && !strcmp(name, "--save")) o->save = argv[++i];
        else if (!strncmp(name, "--", 2) || o->rows == ROWS) return false;
        else if (!o->folder) o->folder = name;
        else o->text[o->rows++] = name;
    }
    return o->rows > 0 && o->top_k > 0;
}

int main(int argc, char **argv)
{
    static bert network;
    options o;
    if (!read_options(&o, argc, argv)) {
        fprintf(stderr, "%s FOLDER [--vectors | --classify] [--top-k 5] [--threads 0] [--save FILE] TEXT..\n", argv[0]);
        return 2;
    }
    json_document config = read_config(o.folder);
    wordpiece *w = config.node ? wordpiece_load(o.folder) : NULL;
    const bool ok = w && run(&network, &o, config.node, w);
    close_weights(&network.w);
    wordpiece_free(w);
    json_free(&config);
    tg_shutdown();
    return ok && tg_ok() ? 0 : 1;
}
