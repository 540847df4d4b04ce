/* 04_chargpt.c: a small GPT learns to write, one byte at a time, on one CPU core in about a minute (`make demo`), or on
   a GPU (`make demo DEVICE=cuda`).

   READ    "the model" (a page), then train(): one step of training is the ten lines after TG_SCOPE.
   CHANGE  LAYERS, WIDTH, CONTEXT, BATCH; --text FILE for another text; leave out the position embedding, or the causal
           mask (the `true` in attention), and see what the validation loss says.
   PRINTS  the losses while it learns (validation: of 128 windows), three samples, and a last line that compares the
           model with counting bytes and pairs of bytes, in nats per byte of all the text that it was not trained on:
           validation 1.9123 bigram 2.4567 unigram 3.3100 nats/char
   WRITES  out/loss.svg, log.csv and sample.txt (named .part until they are complete).  The same seed gives the same
           numbers, on any number of threads; a GPU begins with the same weights, sees the same batches, and rounds
           differently. */
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
    int64_t *ids, n, n_train; /* validation is ids[n_train .. n) */
    int vocab, byte_of[256];
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

/* ---- the model --------------------------------------------------------------------------------------------------- */

typedef struct { tg_tensor *norm_attention, *query_key_value, *attention_out, *norm_mlp, *mlp_in, *mlp_out; } block;

typedef struct {
    tg_tensor *token, *position, *norm, *head;
    block blocks[LAYERS];
    tg_tensor *params[4 + 6 * LAYERS]; /* all of the above in a row, for the optimizer */
    int n_params;
    tg_device device; /* where they live, and everything computed from them */
} model;

/* Drawn on the CPU, then moved: the same numbers on every device. */
static tg_tensor *param(model *m, tg_tensor *values, double scale)
{
    return m->params[m->n_params++] = tg_param(tg_to(tg_mul_scalar(values, scale), m->device));
}

static void make_model(model *m, int vocab, tg_device device)
{
    const double std = 1 / sqrt((double)WIDTH), residual = std / sqrt(2 * (double)LAYERS); /* 2 L sums */
    TG_SCOPE;
    m->n_params = 0;
    m->device = device;
    m->token = param(m, tg_randn(TG_SHAPE(vocab, WIDTH)), 0.1);
    m->position = param(m, tg_randn(TG_SHAPE(CONTEXT, WIDTH)), 0.1);
    for (block *b = m->blocks; b < m->blocks + LAYERS; ++b) {
        b->norm_attention = param(m, tg_ones(TG_SHAPE(WIDTH)), 1);
        b->query_key_value = param(m, tg_randn(TG_SHAPE(3 * WIDTH, WIDTH)), std);
        b->attention_out = param(m, tg_randn(TG_SHAPE(WIDTH, WIDTH)), residual);
        b->norm_mlp = param(m, tg_ones(TG_SHAPE(WIDTH)), 1);
        b->mlp_in = param(m, tg_randn(TG_SHAPE(4 * WIDTH, WIDTH)), std);
        b->mlp_out = param(m, tg_randn(TG_SHAPE(WIDTH, 4 * WIDTH)), residual / 2);
    }
    m->norm = param(m, tg_ones(TG_SHAPE(WIDTH)), 1);
    m->head = param(m, tg_randn(TG_SHAPE(vocab, WIDTH)), 0.3 * std); /* small: the first guess is nearly uniform */
}

/* x [N, T, WIDTH]: each position asks (query) the positions up to its own (keys) and takes a mean of their values. */
static tg_tensor *attention(const block *b, tg_tensor *x)
{
    const int64_t N = tg_dim(x, 0), T = tg_dim(x, 1);
    tg_tensor *qkv = tg_view(tg_linear(x, b->query_key_value, NULL), TG_SHAPE(N, T, 3, HEADS, WIDTH / HEADS));
    qkv = tg_permute(qkv, TG_DIMS(2, 0, 3, 1, 4)); /* [3, N, HEADS, T, WIDTH / HEADS] */
    tg_tensor *q = tg_select(qkv, 0, 0), *k = tg_select(qkv, 0, 1), *v = tg_select(qkv, 0, 2);
    tg_tensor *y = tg_transpose(tg_scaled_dot_product_attention(q, k, v, NULL, 0, true, 0), 1, 2);
    return tg_linear(tg_reshape(y, TG_SHAPE(N, T, WIDTH)), b->attention_out, NULL);
}

/* ids [N, T] -> logits of the byte after each [N, T, vocab] */
static tg_tensor *predict(const model *m, tg_tensor *ids)
{
    tg_tensor *x = tg_add(tg_embedding(m->token, ids), tg_narrow(m->position, 0, 0, tg_dim(ids, 1)));
    for (const block *b = m->blocks; b < m->blocks + LAYERS; ++b) {
        x = tg_add(x, attention(b, tg_layer_norm(x, 1, b->norm_attention, NULL, 1e-5)));
        tg_tensor *hidden = tg_relu(tg_linear(tg_layer_norm(x, 1, b->norm_mlp, NULL, 1e-5), b->mlp_in, NULL));
        x = tg_add(x, tg_linear(hidden, b->mlp_out, NULL));
    }
    return tg_linear(tg_layer_norm(x, 1, m->norm, NULL, 1e-5), m->head, NULL);
}

/* A batch on the model's device.  From page-locked memory a move returns at once: the GPU fetches the bytes while the CPU
   goes on to ask for the work that needs them. */
static tg_tensor *batch(const model *m, const int64_t *ids, tg_shape shape)
{
    tg_tensor *here = tg_from_i64(ids, shape);
    if (m->device.type == TG_DEV_CUDA) here = tg_pin_memory(here);
    return tg_to_ex(here, m->device, TG_I64, TG_NON_BLOCKING);
}

/* Mean loss of n windows of CONTEXT bytes; window i begins at start[i] and predicts the byte after each of its own. */
static tg_tensor *loss_at(const model *m, const corpus *c, const int64_t *start, int n)
{
    int64_t x[BATCH * CONTEXT], y[BATCH * CONTEXT];
    for (int i = 0; start && i < n * CONTEXT; ++i) {
        x[i] = c->ids[start[i / CONTEXT] + i % CONTEXT];
        y[i] = c->ids[start[i / CONTEXT] + i % CONTEXT + 1];
    }
    tg_tensor *logits = predict(m, batch(m, start ? x : NULL, TG_SHAPE(n, CONTEXT)));
    return tg_cross_entropy(tg_view(logits, TG_SHAPE(n * CONTEXT, c->vocab)), batch(m, y, TG_SHAPE(n * CONTEXT)));
}

/* Mean loss of the validation part: of about `most` windows spread over it, or of all when most is 0. */
static double validate(const model *m, const corpus *c, int64_t most)
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

/* Writes `length` bytes, each drawn from softmax(logits / 0.8) of the last CONTEXT bytes. */
static void sample(const model *m, const corpus *c, int length, FILE *file)
{
    int64_t window[CONTEXT], n = 0, next = c->ids[c->n_train];
    for (int i = 0; i < length && tg_ok(); ++i) {
        TG_SCOPE;
        TG_NO_GRAD;
        if (n == CONTEXT) memmove(window, window + 1, (size_t)--n * sizeof *window);
        window[n++] = next;
        tg_tensor *logits = tg_select(predict(m, batch(m, window, TG_SHAPE(1, n))), 1, -1); /* of the last byte */
        tg_tensor *p = tg_cpu(tg_softmax(tg_mul_scalar(logits, 1 / 0.8), 1)); /* one move, not one a byte */
        double left = tg_item(tg_rand(TG_SHAPE(1)));
        for (next = 0; next < c->vocab - 1 && (left -= tg_get(p, TG_INDEX(0, next))) > 0;) ++next;
        const int byte = c->byte_of[next];
        putc(byte, file);
        putchar((byte < 32 && byte != '\n' && byte != '\t') || byte == 127 ? '?' : byte); /* no terminal commands */
    }
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

static int train(model *m, const corpus *c, int steps, FILE *log, point *curve) /* the number of points of the curve */
{
    const bool terminal = isatty(1) != 0;
    const int every = (steps + CURVE - 1) / CURVE;
    struct timeval begun, here;
    tg_optim *opt = tg_adamw(m->params, m->n_params, 4e-3);
    double sum = 0;
    int points = 0, last = 0;
    if (!opt) return 0;
    gettimeofday(&begun, NULL);
    opt->beta2 = 0.99, opt->weight_decay = 0.1;
    fprintf(log, "step,training,validation\n");
    for (int step = 1; step <= steps && tg_ok(); ++step) {
        TG_SCOPE; /* one step: its temporaries and its tape end at the brace */
        tg_tensor *start = tg_randint(0, c->n_train - CONTEXT, TG_SHAPE(BATCH));
        tg_tensor *loss = loss_at(m, c, tg_data_i64(start), BATCH);
        opt->lr = tg_lr_cosine(step - 1, WARMUP, steps, 4e-3, 1e-4);
        tg_optim_zero_grad(opt);
        tg_backward(loss);
        tg_clip_grad_norm(m->params, m->n_params, 1.0);
        tg_step(opt);
        sum += tg_item(loss);
        if (step % every && step != steps) continue;
        const point now = {(double)step, sum / (step - last), validate(m, c, 128)};
        if (!tg_ok()) break;
        gettimeofday(&here, NULL);
        const double elapsed = (double)(here.tv_sec - begun.tv_sec) + 1e-6 * (double)(here.tv_usec - begun.tv_usec);
        sum = 0, last = step, curve[points++] = now;
        fprintf(log, "%d,%.9g,%.9g\n", step, now.training, now.validation);
        printf("%sstep %4d/%d  training %.4f  validation %.4f  %5.0f tokens/s  elapsed %.0f s  ETA %.0f s%s",
               terminal ? "\r" : "", step, steps, now.training, now.validation,
               step * (BATCH * CONTEXT) / elapsed, elapsed, elapsed / step * (steps - step),
               !terminal || step == steps ? "\n" : "   "); /* a terminal gets one line, written over and over */
        fflush(stdout);
    }
    tg_optim_free(opt);
    return points;
}

int main(int argc, char **argv)
{
    const char *text = "tensorgrad.h", *dir = "out", *device_name = "cpu";
    long steps = STEPS, seed = 1, threads = 1; /* on a busy machine threads wait for one another */
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        long *number = !strcmp(argv[i], "--steps") ? &steps : !strcmp(argv[i], "--seed") ? &seed : &threads;
        char rest;
        if (!strcmp(argv[i], "--text") && *value) text = value;
        else if (!strcmp(argv[i], "--out") && *value) dir = value;
        else if (!strcmp(argv[i], "--device") && *value) device_name = value;
        else if ((number == &threads && strcmp(argv[i], "--threads")) || sscanf(value, "%9ld%c", number, &rest) != 1 ||
                 *number < (number != &seed))
            return fail(argv[i], "usage: chargpt [--text FILE] [--steps N] [--seed N] [--threads N] [--out DIR] "
                                 "[--device cpu|cuda|cuda:1]");
    }
    corpus c;
    model m;
    tg_device device;
    point curve[CURVE];
    double unigram = 0, bigram = 0, size = 0;
    if (read_corpus(&c, text) || count_entropies(&c, &unigram, &bigram)) return 1;
    tg_set_error_handler(NULL, NULL); /* the first error is kept; it is looked for, and printed, below */
    tg_seed((uint64_t)seed);
    tg_set_num_threads((int)threads);
    if (tg_device_parse(device_name, &device) == TG_OK) make_model(&m, c.vocab, device);
    if (!tg_ok()) return fail(device_name, tg_error_message());
    if ((mkdir(dir, 0777) && errno != EEXIST) || chdir(dir)) return fail(dir, strerror(errno));
    FILE *log = fopen("log.csv.part", "wb"), *picture = fopen("loss.svg.part", "wb");
    FILE *samples = fopen("sample.txt.part", "wb");
    if (!log || !picture || !samples) return fail(dir, strerror(errno));
    for (int i = 0; i < m.n_params; ++i) size += (double)tg_numel(m.params[i]);
    printf("%s: %.0f bytes, %d different; a transformer of %d layers and %.0f parameters on %s; %ld steps of %d x %d "
           "bytes\n", text, (double)c.n, c.vocab, (int)LAYERS, size, tg_device_str(tg_device_of(m.token)), steps,
           (int)BATCH, (int)CONTEXT);
    const int points = train(&m, &c, (int)steps, log, curve);
    for (int i = 1; i <= 3 && tg_ok(); ++i) {
        printf("---- sample %d ----\n", i), fprintf(samples, "---- sample %d ----\n", i);
        sample(&m, &c, 300, samples);
        putchar('\n'), putc('\n', samples);
    }
    const double validation = validate(&m, &c, 0);
    if (!tg_ok()) return fail("tensorgrad", tg_error_message());
    draw(picture, curve, points, bigram, unigram);
    if (fclose(log) | fclose(picture) | fclose(samples) | complete("log.csv.part", "log.csv") |
        complete("loss.svg.part", "loss.svg") | complete("sample.txt.part", "sample.txt"))
        return fail(dir, "a file could not be written");
    printf("validation %.4f bigram %.4f unigram %.4f nats/char\n", validation, bigram, unigram);
    for (int i = 0; i < m.n_params; ++i) tg_release(m.params[i]);
    free(c.ids);
    if (fflush(stdout) || ferror(stdout)) return fail("what was printed", "could not be written");
    return tg_shutdown() == TG_OK ? 0 : fail("tensorgrad", tg_error_message());
}
