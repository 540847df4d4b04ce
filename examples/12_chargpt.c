/* 12_chargpt.c: a small GPT learns to write, one byte at a time, on one CPU core in about a minute (`make demo`), or on
   a GPU (`make demo DEVICE=cuda`).

   READ    "the model" (a page of modules), then train(): one step of training is the ten lines after TG_SCOPE.
   CHANGE  LAYERS, WIDTH, CONTEXT, BATCH; --text FILE for another text; leave out the position embedding, or the causal
           mask (the `true` in attention), and see what the validation loss says.
   PRINTS  the losses while it learns (validation: of 128 windows), three samples, the loss of the model loaded back
           from its file, and a last line that compares the model with counting bytes and pairs of bytes, in nats per
           byte of all the text that it was not trained on:
           validation 1.9123 bigram 2.4567 unigram 3.3100 nats/char
   WRITES  out/loss.svg, log.csv, sample.txt and model.safetensors, and at every point of the curve
           checkpoint.safetensors, from which --resume 1 (`make demo RESUME=1`) goes on to the same bits, whenever the
           run was stopped.  --sample TEXT (`make demo SAMPLE="text"`) only continues a text with the saved model.
           The same seed gives the same numbers, on any number of threads; a GPU begins with the same weights, sees the
           same batches, and rounds differently. */
#if !defined(_WIN32) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L /* isatty, mkdir, chdir */
#endif
#define TENSORGRAD_IMPLEMENTATION
#include "../tensorgrad.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>
#ifdef _WIN32
#define mkdir(path, mode) mkdir(path)
#endif

enum { LAYERS = 2, WIDTH = 64, HEADS = 4, CONTEXT = 32, BATCH = 16, STEPS = 2500, WARMUP = 100, CURVE = 50 };

static int fail(const char *what, const char *why) { return fprintf(stderr, "chargpt: %s: %s\n", what, why), 1; }
/* ---- the text: bytes become numbers 0 .. vocab-1, the last tenth is kept for validation -------------------------- */

typedef struct {
    int64_t *ids, n, n_train, byte_of[256]; /* validation is ids[n_train .. n) */
    int vocab;
} corpus;

static int read_corpus(corpus *c, const char *path)
{
    int64_t id_of[256];
    FILE *f = fopen(path, "rb");
    if (!f) return fail(path, strerror(errno));
    const long size = fseek(f, 0, SEEK_END) ? -1 : ftell(f);
    unsigned char *bytes = (unsigned char *)malloc(size > 0 ? (size_t)size : 1);
    c->ids = (int64_t *)calloc(size > 0 ? (size_t)size : 1, sizeof *c->ids);
    rewind(f);
    if (size < 0 || !bytes || !c->ids || fread(bytes, 1, (size_t)size, f) != (size_t)size)
        return fclose(f), free(bytes), free(c->ids), fail(path, "cannot be read, or is too large for this memory");
    fclose(f);
    c->n = size;
    c->n_train = c->n / 10 * 9;
    for (int byte = c->vocab = 0; byte < 256; ++byte)
        if (memchr(bytes, byte, (size_t)size)) id_of[byte] = c->vocab, c->byte_of[c->vocab++] = byte;
    for (int64_t i = 0; i < c->n; ++i) c->ids[i] = id_of[bytes[i]];
    free(bytes);
    return c->n - c->n_train > CONTEXT ? 0 : (free(c->ids), fail(path, "too short: 400 bytes are the least"));
}

/* What counting achieves: p(byte) and p(byte | the byte before) from the training part with `smooth` added to every
   count, measured in nats on exactly the validation bytes that the model is asked for. */
static int count_entropies(const corpus *c, double *unigram, double *bigram)
{
    const int64_t *id = c->ids + c->n_train, V = c->vocab, asked = (c->n - c->n_train - 1) / CONTEXT * CONTEXT;
    const double smooth = 0.1, total = (double)(c->n_train - 1);
    double *one = (double *)calloc((size_t)(V + V * V), sizeof *one), *two = one ? one + V : NULL;
    if (!one) return fail("counting", "out of memory");
    for (const int64_t *p = c->ids; p < id - 1; ++p) one[p[0]] += 1, two[p[0] * V + p[1]] += 1;
    *unigram = *bigram = 0;
    for (int64_t i = 1; i <= asked; ++i) {
        *unigram -= log((one[id[i]] + smooth) / (total + smooth * c->vocab)) / (double)asked;
        *bigram -= log((two[id[i - 1] * V + id[i]] + smooth) / (one[id[i - 1]] + smooth * c->vocab)) / (double)asked;
    }
    free(one);
    return 0;
}

/* ---- the model: modules, which own their parameters, move, save and load them ------------------------------------ */

typedef struct { tg_module *norm_attention, *query_key_value, *attention_out, *norm_mlp, *mlp_in, *mlp_out; } block;

/* x [N, T, WIDTH]: each position asks (query) the positions up to its own (keys) and takes a mean of their values. */
static tg_tensor *attention(const block *b, tg_tensor *x)
{
    const int64_t N = tg_dim(x, 0), T = tg_dim(x, 1);
    tg_tensor *qkv = tg_view(tg_forward(b->query_key_value, x), TG_SHAPE(N, T, 3, HEADS, WIDTH / HEADS));
    qkv = tg_permute(qkv, TG_DIMS(2, 0, 3, 1, 4)); /* [3, N, HEADS, T, WIDTH / HEADS] */
    tg_tensor *q = tg_select(qkv, 0, 0), *k = tg_select(qkv, 0, 1), *v = tg_select(qkv, 0, 2);
    tg_tensor *y = tg_transpose(tg_scaled_dot_product_attention(q, k, v, NULL, 0, true, 0), 1, 2);
    return tg_forward(b->attention_out, tg_reshape(y, TG_SHAPE(N, T, WIDTH)));
}

/* x [N, T, WIDTH] -> the same */
static void block_forward(tg_module *m, tg_tensor *const *in, int n, tg_tensor **out, int n_out)
{
    const block *b = (const block *)tg_module_self(m);
    tg_tensor *x = tg_add(in[0], attention(b, tg_forward(b->norm_attention, in[0])));
    tg_tensor *hidden = tg_relu(tg_forward(b->mlp_in, tg_forward(b->norm_mlp, x)));
    out[0] = tg_add(x, tg_forward(b->mlp_out, hidden));
    (void)n, (void)n_out;
}

static tg_module *linear(int64_t in, int64_t out, double std)
{
    tg_module *m = tg_nn_linear(in, out, false);
    tg_normal_(tg_module_get(m, "weight"), 0, std);
    return m;
}

static tg_module *make_block(void)
{
    const double std = 1 / sqrt((double)WIDTH), residual = std / sqrt(2 * (double)LAYERS); /* 2 L sums */
    tg_module *m = tg_module_new("Block", block_forward, sizeof(block));
    block *b = (block *)tg_module_self(m);
    if (!b) return NULL;
    b->norm_attention = tg_module_child(m, "norm_attention", tg_nn_rms_norm(TG_SHAPE(WIDTH), 1e-5, true));
    b->query_key_value = tg_module_child(m, "query_key_value", linear(WIDTH, 3 * WIDTH, std));
    b->attention_out = tg_module_child(m, "attention_out", linear(WIDTH, WIDTH, residual));
    b->norm_mlp = tg_module_child(m, "norm_mlp", tg_nn_rms_norm(TG_SHAPE(WIDTH), 1e-5, true));
    b->mlp_in = tg_module_child(m, "mlp_in", linear(WIDTH, 4 * WIDTH, std));
    b->mlp_out = tg_module_child(m, "mlp_out", linear(4 * WIDTH, WIDTH, residual / 2));
    return m;
}

typedef struct { tg_module *token, *blocks, *norm, *head; tg_tensor *position; } gpt;

/* ids [N, T] -> logits of the byte after each [N, T, vocab] */
static void gpt_forward(tg_module *m, tg_tensor *const *in, int n, tg_tensor **out, int n_out)
{
    const gpt *g = (const gpt *)tg_module_self(m);
    tg_tensor *x = tg_add(tg_forward(g->token, in[0]), tg_narrow(g->position, 0, 0, tg_dim(in[0], 1)));
    out[0] = tg_forward(g->head, tg_forward(g->norm, tg_forward(g->blocks, x)));
    (void)n, (void)n_out;
}

/* bytes [vocab]: the byte that each id stands for; a buffer, so that it is saved with the weights.  The weights are
   drawn on the CPU, then moved: the same numbers on every device. */
static tg_module *make_model(const int64_t *bytes, int vocab, tg_device device)
{
    tg_module *blocks[LAYERS], *m = tg_module_new("GPT", gpt_forward, sizeof(gpt));
    gpt *g = (gpt *)tg_module_self(m);
    if (!g) return NULL;
    TG_SCOPE;
    g->token = tg_module_child(m, "token", tg_nn_embedding(vocab, WIDTH));
    tg_normal_(tg_module_get(m, "token.weight"), 0, 0.1);
    g->position = tg_module_param(m, "position", tg_mul_scalar(tg_randn(TG_SHAPE(CONTEXT, WIDTH)), 0.1));
    for (int i = 0; i < LAYERS; ++i) blocks[i] = make_block();
    g->blocks = tg_module_child(m, "blocks", tg_nn_sequential(blocks, LAYERS));
    g->norm = tg_module_child(m, "norm", tg_nn_rms_norm(TG_SHAPE(WIDTH), 1e-5, true));
    g->head = tg_module_child(m, "head", linear(WIDTH, vocab, 0.3 / sqrt((double)WIDTH))); /* guesses all alike */
    tg_module_buffer(m, "bytes", tg_from_i64(bytes, TG_SHAPE(vocab)));
    return tg_module_to(m, device);
}

/* A batch on the model's device.  From page-locked memory a move returns at once: the GPU fetches the bytes while the
   CPU goes on to ask for the work that needs them. */
static tg_tensor *batch(tg_module *m, const int64_t *ids, tg_shape shape)
{
    const tg_device device = tg_device_of(tg_module_get(m, "position"));
    tg_tensor *here = tg_from_i64(ids, shape);
    if (device.type == TG_DEV_CUDA) here = tg_pin_memory(here);
    return tg_to_ex(here, device, TG_SAME_DTYPE, TG_NON_BLOCKING);
}

/* Mean loss of n windows of CONTEXT bytes; window i begins at start[i] and predicts the byte after each of its own. */
static tg_tensor *loss_at(tg_module *m, const corpus *c, const int64_t *start, int n)
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
static double validate(tg_module *m, const corpus *c, int64_t most)
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
static void sample(tg_module *m, const int64_t *bytes, const int64_t *prompt, int64_t n, int length, FILE *file)
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
static int only_sample(const char *text, tg_device device)
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
        for (const char *c = text + skip; *c; ++c)
            for (int id = 0; id < vocab; ++id)
                if (bytes[id] == (unsigned char)*c) prompt[n++] = id;
        if (n == 0) prompt[n++] = 0;
        fputs(text, stdout);
        sample(m, bytes, prompt, n, 300, NULL);
        putchar('\n');
    }
    tg_module_free(m), tg_dict_free(saved);
    if (tg_ok() && !vocab) return fail("model.safetensors", "not a model of this program");
    return tg_ok() ? 0 : fail("model.safetensors", tg_error_message());
}

/* ---- the picture ------------------------------------------------------------------------------------------------- */

typedef struct { double step, training, validation; } point;

static void draw(FILE *f, const point *p, int n, double bigram, double unigram) /* y = (loss - bottom) * sy, down */
{
    double low = bigram, high = unigram;
    for (int i = 0; i < n; ++i) low = fmin(low, fmin(p[i].training, p[i].validation)), high = fmax(high, p[i].training);
    const double bottom = floor(2 * low) / 2, sx = 640 / p[n - 1].step, sy = -360 / (ceil(2 * high) / 2 - bottom);
    fprintf(f, "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 740 460' font-family='sans-serif' font-size='12'>"
               "\n<rect width='740' height='460' fill='white'/>\n<text x='390' y='26' text-anchor='middle'>"
               "loss, nats per byte</text>\n<text x='390' y='445' text-anchor='middle'>step</text>\n"
               "<g transform='translate(70 400)'>\n<path d='M0 0 h640 v-360 h-640 z' fill='none' stroke='black'/>\n");
    for (int i = 0; i <= 10; ++i)
        fprintf(f, "<path d='M%d 0 v5' stroke='black'/><text x='%d' y='18' text-anchor='middle'>%g</text>\n", 64 * i,
                64 * i, p[n - 1].step * i / 10);
    for (double y = 0; y < 20 && y * sy > -361; y += 0.5)
        fprintf(f, "<path d='M0 %.1f h-5' stroke='black'/><text x='-8' y='%.1f' text-anchor='end'>%.1f</text>\n",
                y * sy, y * sy + 4, bottom + y);
    for (int k = 0; k < 2; ++k) { /* what counting achieves, dashed, and the two curves */
        const char *colour = k ? "#d04010" : "#2060c0";
        const double level = ((k ? unigram : bigram) - bottom) * sy;
        fprintf(f, "<path d='M0 %.1f h640' stroke='gray' stroke-dasharray='6 4'/><text x='630' y='%.1f' "
                   "text-anchor='end'>%s</text>\n", level, level - 4, k ? "unigram" : "bigram");
        fprintf(f, "<text x='%d' y='45' fill='%s'>%s</text>\n", 80 * k, colour, k ? "validation" : "training");
        fprintf(f, "<polyline fill='none' stroke='%s' stroke-width='2' points='", colour);
        for (int i = 0; i < n; ++i)
            fprintf(f, "%.1f,%.1f ", p[i].step * sx, ((k ? p[i].validation : p[i].training) - bottom) * sy);
        fprintf(f, "'/>\n");
    }
    fprintf(f, "</g>\n</svg>\n");
}

/* A second try for systems that rename to no file that there is. */
static int complete(const char *part, const char *name)
{
    return rename(part, name) && (remove(name) || rename(part, name));
}

/* ---- training ---------------------------------------------------------------------------------------------------- */

/* The points of an earlier run up to a step, from its log; how many there are. */
static int read_log(const char *path, point *curve, int64_t last)
{
    int n = 0;
    FILE *f = fopen(path, "rb");
    point p;
    if (!f) return 0;
    for (int c = 0; c != EOF && c != '\n';) c = getc(f); /* the titles */
    while (n < CURVE && fscanf(f, "%lf,%lf,%lf", &p.step, &p.training, &p.validation) == 3 && p.step <= (double)last)
        curve[n++] = p;
    fclose(f);
    return n;
}

static void write_point(FILE *log, const point *p)
{
    fprintf(log, "%.0f,%.9g,%.9g\n", p->step, p->training, p->validation);
    fflush(log); /* before the checkpoint: a run that goes on from there finds it */
}

/* Trains from step `done`; returns the number of points of the curve. */
static int train(tg_module *m, tg_optim *opt, const corpus *c, int done, int steps, FILE *log, point *curve, int points)
{
    const bool terminal = isatty(1) != 0;
    const int every = (steps + CURVE - 1) / CURVE;
    struct timeval begun, here;
    double sum = 0;
    int last = done;
    gettimeofday(&begun, NULL);
    fprintf(log, "step,training,validation\n");
    for (int i = 0; i < points; ++i) write_point(log, &curve[i]);
    for (int step = done + 1; step <= steps && tg_ok(); ++step) {
        TG_SCOPE; /* one step: its temporaries and its tape end at the brace */
        tg_tensor *start = tg_randint(0, c->n_train - CONTEXT, TG_SHAPE(BATCH));
        tg_tensor *loss = loss_at(m, c, tg_data_i64(start), BATCH);
        opt->lr = tg_lr_cosine(step - 1, WARMUP, steps, 4e-3, 1e-4);
        tg_optim_zero_grad(opt);
        tg_backward(loss);
        tg_clip_grad_norm(tg_module_params(m), tg_module_count(m), 1.0);
        tg_step(opt);
        sum += tg_item(loss);
        if (step % every && step != steps) continue;
        const point now = {(double)step, sum / (step - last), validate(m, c, 128)};
        if (!tg_ok()) break;
        gettimeofday(&here, NULL);
        const double elapsed = (double)(here.tv_sec - begun.tv_sec) + 1e-6 * (double)(here.tv_usec - begun.tv_usec);
        sum = 0, last = step, curve[points++] = now;
        write_point(log, &now);
        tg_checkpoint_save("checkpoint.safetensors", m, opt, step);
        printf("%sstep %4d/%d  training %.4f  validation %.4f  %5.0f tokens/s  elapsed %.0f s  ETA %.0f s%s",
               terminal ? "\r" : "", step, steps, now.training, now.validation,
               (step - done) * (BATCH * CONTEXT) / elapsed, elapsed, elapsed / (step - done) * (steps - step),
               !terminal || step == steps ? "\n" : "   "); /* a terminal gets one line, written over and over */
        fflush(stdout);
    }
    return points;
}

/* The loss of a new model that has loaded the file, on all of the validation part. */
static double validate_saved(const char *path, const corpus *c, tg_device device)
{
    tg_module *m = make_model(c->byte_of, c->vocab, device);
    const double loss = m && tg_module_load(m, path) == TG_OK ? validate(m, c, 0) : NAN;
    tg_module_free(m);
    return loss;
}

typedef struct {
    const char *text, *dir, *device, *sample;
    long steps, seed, threads, resume;
} options;

static int read_options(options *o, int argc, char **argv)
{
    const options defaults = {"tensorgrad.h", "out", "cpu", NULL, STEPS, 1, 1, 0}; /* threads wait on a busy machine */
    *o = defaults;
    for (int i = 1; i < argc; i += 2) {
        const struct { const char *name, **text; long *number; } known[] = {
            {"--text", &o->text, NULL},     {"--out", &o->dir, NULL},         {"--device", &o->device, NULL},
            {"--sample", &o->sample, NULL}, {"--steps", NULL, &o->steps},     {"--seed", NULL, &o->seed},
            {"--threads", NULL, &o->threads}, {"--resume", NULL, &o->resume}};
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        size_t k = 0, count = sizeof known / sizeof known[0];
        char rest;
        while (k < count && strcmp(argv[i], known[k].name)) ++k;
        if (k < count && known[k].text && *value) *known[k].text = value;
        else if (k == count || known[k].text || sscanf(value, "%9ld%c", known[k].number, &rest) != 1 ||
                 *known[k].number < (known[k].number == &o->steps || known[k].number == &o->threads))
            return fail(argv[i], "usage: chargpt [--text FILE] [--steps N] [--seed N] [--threads N] [--out DIR] "
                                 "[--device cpu|cuda|cuda:1] [--resume 1] [--sample TEXT]");
    }
    return 0;
}

int main(int argc, char **argv)
{
    options o;
    corpus c;
    tg_device device;
    point curve[CURVE];
    double unigram = 0, bigram = 0;
    int64_t done = 0;
    if (read_options(&o, argc, argv)) return 1;
    tg_set_error_handler(NULL, NULL); /* the first error is kept; it is looked for, and printed, below */
    tg_seed((uint64_t)o.seed);
    tg_set_num_threads((int)o.threads);
    if (tg_device_parse(o.device, &device) != TG_OK) return fail(o.device, tg_error_message());
    if (o.sample) return chdir(o.dir) ? fail(o.dir, strerror(errno)) : only_sample(o.sample, device);
    if (read_corpus(&c, o.text) || count_entropies(&c, &unigram, &bigram)) return 1;
    tg_module *m = make_model(c.byte_of, c.vocab, device);
    if (!m) return fail(o.device, tg_error_message());
    if ((mkdir(o.dir, 0777) && errno != EEXIST) || chdir(o.dir)) return fail(o.dir, strerror(errno));
    tg_optim *opt = tg_adamw(tg_module_params(m), tg_module_count(m), 4e-3);
    if (!opt) return fail("tensorgrad", tg_error_message());
    opt->beta2 = 0.99, opt->weight_decay = 0.1;
    if (o.resume && tg_checkpoint_load("checkpoint.safetensors", m, opt, &done) != TG_OK)
        return fail("nothing to go on from", tg_error_message());
    int points = read_log("log.csv.part", curve, done);
    if (points == 0) points = read_log("log.csv", curve, done); /* the run was complete */
    FILE *log = fopen("log.csv.part", "wb"), *picture = fopen("loss.svg.part", "wb");
    FILE *samples = fopen("sample.txt.part", "wb");
    if (!log || !picture || !samples) return fail(o.dir, strerror(errno));
    printf("%s: %.0f bytes, %d different; a transformer of %d layers and %.0f parameters on %s; %ld steps of %d x %d "
           "bytes\n", o.text, (double)c.n, c.vocab, (int)LAYERS, (double)tg_module_numel(m),
           tg_device_str(tg_device_of(tg_module_get(m, "position"))), o.steps, (int)BATCH, (int)CONTEXT);
    if (done) printf("going on from step %.0f\n", (double)done);
    points = train(m, opt, &c, (int)done, (int)o.steps, log, curve, points);
    for (int i = 1; i <= 3 && tg_ok(); ++i) {
        printf("---- sample %d ----\n", i), fprintf(samples, "---- sample %d ----\n", i);
        sample(m, c.byte_of, c.ids + c.n_train, 1, 300, samples);
        putchar('\n'), putc('\n', samples);
    }
    const double validation = validate(m, &c, 0);
    tg_module_save(m, "model.safetensors");
    const double loaded = validate_saved("model.safetensors", &c, device);
    if (!tg_ok()) return fail("tensorgrad", tg_error_message());
    draw(picture, curve, points, bigram, unigram);
    if (fclose(log) | fclose(picture) | fclose(samples) | complete("log.csv.part", "log.csv") |
        complete("loss.svg.part", "loss.svg") | complete("sample.txt.part", "sample.txt"))
        return fail(o.dir, "a file could not be written");
    printf("model.safetensors, loaded into a new model: validation %.4f\n", loaded);
    if (loaded != validation) return fail("model.safetensors", "the loaded model is not the one that was saved");
    printf("validation %.4f bigram %.4f unigram %.4f nats/char\n", validation, bigram, unigram);
    tg_optim_free(opt), tg_module_free(m);
    free(c.ids);
    if (fflush(stdout) || ferror(stdout)) return fail("what was printed", "could not be written");
    return tg_shutdown() == TG_OK ? 0 : fail("tensorgrad", tg_error_message());
}
