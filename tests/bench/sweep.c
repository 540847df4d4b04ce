/* The sweep on our side: every op of the op table over a grid of shapes, dtypes and layouts.  cells.h is the grid, and
 * the calls are those of samples.h.
 *
 *     sweep list [coarse]     the cells, one a line
 *     sweep missing [OP]      ops of the op table and rows of samples.h without a cell, one a line; fails if there is
 *                             any.  With OP, as if that had none
 *     sweep tiny              every cell of the coarse grid once: does it run?
 *     sweep alone [TEXT]      our times of the coarse grid, without another library
 *     sweep worker THREADS    answers lines of stdin, one line each; sweep.py asks this and PyTorch
 *
 * A cell is a line that says all about a measurement:
 *
 *     softmax f32 512x512:t dim=0 backward
 *
 * the op; the dtype; the inputs, between commas; numbers, by the names that samples.h gives them; and backward, if the
 * call is recorded and the gradients of its inputs are computed, too.  positive: the inputs are in [0.1, 0.9) in place
 * of [-1, 1).  An input is a shape, 0d without dims, and perhaps
 *
 *     :t  transposed: the last two dims are exchanged in memory    :m      a mask, bool
 *     :s  sliced: the first half of wider rows                     :i100   indices below 100, i64
 *     :g  with gaps: every other element of wider rows             :c      a constant, without a gradient
 *     :e  expanded along dim 0                                     :a      the same numbers as the first input
 *     :o  in order along the last dim
 *
 * The lines of a worker:
 *
 *     version      one line
 *     list WHAT    the cells, an empty line last; WHAT is full or coarse
 *     cell CELL    makes the inputs and computes once.  Answers what the results are, for a comparison: the number of
 *                  elements, their sum, the sum of element i times i % 7, and the sum of absolute values
 *     time MS      seconds per call of that cell: the least of several samples, which take that long together
 */
#include "tensorgrad.h"
#include "../samples.h"
#include "bits.h"
#include "cells.h"
#include "roof.h"
#include <stdbool.h>

/* Only the calls of samples.h are used, not its samples. */
static void drive_sample(void) {}
static void drive_edge(void) {}

enum { LINE_SIZE = 256 };

/* The cell that is set up, one at a time. */
static struct {
    char text[LINE_SIZE];
    tg_function call;
    numbers p;
    tg_dtype dtype;
    bool positive, backward;
    int inputs, leaves;
    tg_tensor *input[MAX_INPUTS], *leaf[MAX_INPUTS], *gradient; /* input and gradient belong to the cell */
    tg_module *module;                                          /* of nn_bilinear */
    int64_t calls;                                              /* in a sample of time; 0: not known yet */
} cell;

/* ---- calls that samples.h has not, or of which it makes more than one call ---- */

static tg_dtype dtype_of(const char *name)
{
    for (int i = TG_F32; i <= TG_BOOL; ++i)
        if (!strcmp(name, tg_dtype_name((tg_dtype)i))) return (tg_dtype)i;
    return TG_SAME_DTYPE;
}

static tg_tensor *lstm_step(tg_tensor *from_x, tg_tensor *from_h, tg_tensor *c)
{
    return inside_lstm_step(from_x, from_h, &c);
}

/* x [N, a] and y [N, b] with weight [o, a, b] and bias [o], which are those of a layer. */
static tg_tensor *bilinear(tg_tensor *x, tg_tensor *y, tg_tensor *weight, tg_tensor *bias)
{
    tg_tensor *in_[2] = {x, y}, *z = NULL;
    if (!cell.module) {
        tg_set_default_dtype(cell.dtype);
        cell.module = tg_nn_bilinear(tg_dim(weight, 1), tg_dim(weight, 2), tg_dim(weight, 0), true);
        tg_set_default_dtype(TG_F32);
        for (int i = 0; i < 2 && cell.module; ++i)
            tg_copy_(tg_set_requires_grad(tg_module_params(cell.module)[i], false), i ? bias : weight);
    }
    return tg_forward_n(cell.module, in_, 2, &z, 1) == TG_OK ? z : NULL;
}

static tg_tensor *piece[64], *output_2; /* results that nobody reads */
static tg_grad_scaler scaler = TG_GRAD_SCALER;

/* PyTorch computes the indices of max_dim, min_dim, sort and topk in any case. */
#define OWN_CALLS(OP)                                                                                        \
    OP(to, tg_to_ex(a, TG_CPU, p->text ? dtype_of(p->text) : TG_SAME_DTYPE, TG_COPY))                        \
    OP(split, tg_split(a, p->count, p->dim, piece, 64) ? piece[0] : NULL)                                    \
    OP(chunk, tg_chunk(a, p->count, p->dim, piece, 64) ? piece[0] : NULL)                                    \
    OP(unbind, tg_unbind(a, p->dim, piece, 64) ? piece[0] : NULL)                                            \
    OP(max_dim, tg_max_dim(a, p->dim, false, &output_2))                                                     \
    OP(min_dim, tg_min_dim(a, p->dim, false, &output_2))                                                     \
    OP(sort, tg_sort(a, p->dim, p->flag != 0, &output_2))                                                    \
    OP(topk, tg_topk(a, p->count, p->dim, p->flag != 0, &output_2))                                          \
    OP(add_layer_norm, tg_add_layer_norm(a, b, (int)p->count, c, d, p->num, &output_2))                      \
    OP(add_rms_norm, tg_add_rms_norm(a, b, (int)p->count, c, p->num, &output_2))                             \
    OP(lstm_cell, lstm_step(a, b, c))                                                                        \
    OP(equal, tg_equal(a, b) ? a : NULL)                                                                     \
    OP(allclose, tg_allclose(a, b, 1e-5, 1e-8) ? a : NULL)                                                   \
    OP(grad_scaler_scale, tg_grad_scaler_scale(&scaler, a))                                                  \
    OP(nn_bilinear, bilinear(a, b, c, d))
#define DEFINE_OWN_CALL(name, expression) DEFINE_CALL(own_##name, expression, 0)
OWN_CALLS(DEFINE_OWN_CALL)

#define OWN_CALL_ROW(name, expression) {#name, call_own_##name},
static const struct { const char *name; tg_function call; } own_calls[] = {OWN_CALLS(OWN_CALL_ROW)};

static tg_function call_of(const char *op)
{
    for (size_t i = 0; i < sizeof own_calls / sizeof *own_calls; ++i)
        if (!strcmp(own_calls[i].name, op)) return own_calls[i].call;
    for (int i = 0; i < OP_ROWS; ++i)
        if (!strcmp(op_rows[i].name, op)) return op_rows[i].call;
    return NULL;
}

/* ---- the inputs of a cell ---- */

/* Numbers for a dtype: floats as they are, integers a hundred times as large, u8 of absolute values, bool where they
   are positive; below classes, if that is not 0. */
static tg_tensor *numbers_of(tg_shape shape, tg_dtype dtype, uint32_t seed, int64_t classes)
{
    tg_tensor *t = tg_empty_on(shape, TG_F32, TG_CPU);
    float *data = tg_data_f32(t);
    const int64_t n = data ? tg_numel(t) : 0;
    for (int64_t i = 0; i < n; ++i) {
        const uint32_t bits = random_bits((uint32_t)i, seed);
        float x = (float)bits * 0x1p-23f - 1;
        if (classes) x = (float)(bits % classes);
        else if (dtype == TG_BOOL) x = x > 0 ? 1 : 0;
        else if (cell.positive) x = 0.1f + 0.4f * (x + 1);
        if (!classes && dtype != TG_BOOL && !tg_is_floating_point(dtype)) x *= 100;
        data[i] = dtype == TG_U8 && x < 0 ? -x : x;
    }
    return tg_to_dtype(tg_touch_(t), dtype);
}

/* A tensor of a shape in a layout: one of the letters above, or 0. */
static tg_tensor *arranged(tg_shape shape, char layout, tg_dtype dtype, uint32_t seed, int64_t classes)
{
    tg_shape base = shape;
    const int last = shape.ndim - 1;
    tg_tensor *t;
    if (layout == 't') base.dim[last] = shape.dim[last - 1], base.dim[last - 1] = shape.dim[last];
    if (layout == 's' || layout == 'g') base.dim[last] *= 2;
    if (layout == 'e') base.dim[0] = 1;
    t = numbers_of(base, dtype, seed, classes);
    if (layout == 't') return tg_transpose(t, last - 1, last);
    if (layout == 's') return tg_narrow(t, -1, 0, shape.dim[last]);
    if (layout == 'g') return tg_slice(t, -1, 0, INT64_MAX, 2);
    if (layout == 'o') return tg_sort(t, -1, false, NULL);
    return layout == 'e' ? tg_expand(t, shape) : t;
}

/* Numbers with a sign between them.  Returns where they end. */
static char *read_sizes(char *text, char between, tg_shape *shape)
{
    shape->ndim = 0;
    if (!strncmp(text, "0d", 2)) return text + 2;
    while (shape->ndim < TG_MAX_DIMS) {
        shape->dim[shape->ndim++] = strtoll(text, &text, 10);
        if (*text != between) break;
        ++text;
    }
    return text;
}

/* One input, from text like "512x512:t". */
static bool read_input(char *text)
{
    tg_shape shape;
    tg_dtype dtype = cell.dtype;
    char layout = 0;
    bool constant = false;
    int64_t classes = 0;
    uint32_t seed = (uint32_t)cell.inputs + 1;
    tg_tensor *t;
    for (text = read_sizes(text, 'x', &shape); *text == ':'; ) {
        const char kind = text[1];
        text += 2;
        if (kind == 'i') dtype = TG_I64, classes = strtoll(text, &text, 10);
        else if (kind == 'm') dtype = TG_BOOL;
        else if (kind == 'c') constant = true;
        else if (kind == 'a') seed = 1;
        else layout = kind;
    }
    if (*text || cell.inputs == MAX_INPUTS) return false;
    t = tg_detach(arranged(shape, layout, dtype, seed, classes));
    if (cell.backward && !constant && tg_is_floating_point(dtype))
        cell.leaf[cell.leaves++] = tg_set_requires_grad(t, true);
    return (cell.input[cell.inputs++] = tg_retain(t)) != NULL;
}

/* A word after the inputs, like "dim=0". */
static bool read_word(char *word)
{
    char *value = strchr(word, '=');
    numbers *p = &cell.p;
    if (!strcmp(word, "backward")) return cell.backward = true;
    if (!strcmp(word, "positive")) return cell.positive = true;
    if (!value) return false;
    *value++ = 0;
    if (!strcmp(word, "num")) p->num = strtod(value, NULL);
    else if (!strcmp(word, "num2")) p->num2 = strtod(value, NULL);
    else if (!strcmp(word, "dim")) p->dim = atoi(value);
    else if (!strcmp(word, "dim2")) p->dim2 = atoi(value);
    else if (!strcmp(word, "flag")) p->flag = atoi(value);
    else if (!strcmp(word, "count")) p->count = strtoll(value, NULL, 10);
    else if (!strcmp(word, "count2")) p->count2 = strtoll(value, NULL, 10);
    else if (!strcmp(word, "dims")) read_sizes(value, ',', &p->dims);
    else if (!strcmp(word, "dims2")) read_sizes(value, ',', &p->dims2);
    else if (!strcmp(word, "text")) p->text = value;
    else return false;
    return true;
}

/* ---- computing ---- */

/* The work that is measured, once.  results: the output, or the gradients of the leaves; returns how many. */
static int turn(tg_tensor **results)
{
    tg_tensor *y = cell.call(cell.input, cell.inputs, &cell.p);
    results[0] = y;
    if (!cell.backward) return y != NULL;
    return tg_gradients(&y, 1, &cell.gradient, cell.leaf, cell.leaves, results, 0) == TG_OK ? cell.leaves : 0;
}

static bool counts_processor; /* on one thread: the time that the process had a processor, whatever else runs */

static double time_now(void)
{
    return counts_processor ? (double)clock() / (double)CLOCKS_PER_SEC : seconds_now();
}

static double seconds_of(int64_t calls)
{
    const double begun = time_now();
    for (int64_t i = 0; i < calls; ++i) {
        TG_SCOPE;
        tg_tensor *results[MAX_INPUTS];
        turn(results);
    }
    return (time_now() - begun) / (double)calls;
}

/* Enough calls for a sample that the clock does not disturb: a quarter of the time. */
static void choose_calls(double seconds)
{
    double once_;
    seconds_of(1);
    once_ = seconds_of(1);
    cell.calls = once_ > 0 ? (int64_t)(seconds / 4 / once_) : 1000;
    if (cell.calls < 1) cell.calls = 1;
}

/* The least seconds per call of several samples. */
static double measure(double seconds)
{
    const double begun = time_now();
    double least;
    if (!cell.calls) choose_calls(seconds);
    least = seconds_of(cell.calls);
    while (time_now() - begun < seconds) {
        const double now = seconds_of(cell.calls);
        if (now < least) least = now;
    }
    return least;
}

static void end_cell(void)
{
    tg_release_all(cell.input, cell.inputs);
    tg_release(cell.gradient);
    if (cell.module) tg_module_free(cell.module);
    tg_empty_cache(TG_CPU);
    memset(&cell, 0, sizeof cell);
}

/* Makes the inputs of a cell.  False: it is none, or an error. */
static bool begin_cell(const char *text)
{
    TG_SCOPE;
    char *op, *dtype, *inputs, *word, *next;
    end_cell();
    if (strlen(text) >= sizeof cell.text) return false;
    strcpy(cell.text, text);
    op = strtok(cell.text, " "), dtype = strtok(NULL, " "), inputs = strtok(NULL, " ");
    if (!inputs) return false;
    while ((word = strtok(NULL, " ")) != NULL)
        if (!read_word(word)) return false;
    cell.call = call_of(op), cell.dtype = dtype_of(dtype);
    if (!cell.call || cell.dtype == TG_SAME_DTYPE) return false;
    for (; inputs; inputs = next) {
        next = strchr(inputs, ',');
        if (next) *next++ = 0;
        if (!read_input(inputs)) return false;
    }
    if (cell.backward) {
        tg_tensor *y = cell.call(cell.input, cell.inputs, &cell.p);
        cell.gradient = tg_retain(y ? numbers_of(tg_shape_of(y), tg_dtype_of(y), 99, 0) : NULL);
    }
    return tg_ok();
}

/* Four numbers about the results: see the head. */
static bool about_results(double *about)
{
    TG_SCOPE;
    tg_tensor *results[MAX_INPUTS];
    const int n = turn(results);
    memset(about, 0, 4 * sizeof *about);
    for (int k = 0; k < n && tg_ok(); ++k) {
        tg_tensor *t = tg_contiguous(tg_to_dtype(tg_detach(results[k]), TG_F64));
        const double *data = tg_data_f64(t);
        const int64_t size = data ? tg_numel(t) : 0;
        for (int64_t i = 0; i < size; ++i) {
            about[0] += 1, about[1] += data[i];
            about[2] += data[i] * (double)(i % 7), about[3] += fabs(data[i]);
        }
    }
    return n > 0 && tg_ok();
}

/* ---- the list of cells ---- */

/* Whether a list of words, with blanks between them, has a word. */
static bool has_word(const char *list, const char *word)
{
    const size_t n = strlen(word);
    for (const char *found = list; (found = strstr(found, word)) != NULL; found += n)
        if ((found == list || found[-1] == ' ') && (found[n] == ' ' || found[n] == 0)) return true;
    return false;
}

/* The next word of a list, or the next form of a list of forms; false after the last. */
static bool next_of(const char **list, char between, char *word)
{
    size_t n;
    while (**list == ' ' || **list == ';') ++*list;
    n = between == ' ' ? strcspn(*list, " ") : strcspn(*list, ";");
    memcpy(word, *list, n);
    word[n] = 0;
    *list += n;
    return n > 0;
}

/* The form with numbers in place of its letters. */
static void fill_in(const char *form, const point *at_, char *text)
{
    const int64_t N = at_->N, C = at_->C;
    const struct { char letter; int64_t size; } letters[] = {
        {'N', N}, {'C', C}, {'D', 2 * C}, {'M', N / 8}, {'K', (C + 3) / 4}};
    for (; *form; ++form) {
        int k = 0;
        while (k < 5 && letters[k].letter != *form) ++k;
        if (k < 5) text += sprintf(text, "%lld", (long long)letters[k].size);
        else *text++ = *form;
    }
    *text = 0;
}

/* The options that every cell of the op has are appended, but those that text already has.  Returns the dtypes that the
   op does not take. */
static const char *add_extras(const char *op, char *text)
{
    for (size_t i = 0; i < sizeof extras / sizeof *extras; ++i) {
        const char *list = extras[i].options;
        char word[LINE_SIZE], key[LINE_SIZE + 2];
        if (strcmp(extras[i].op, op) != 0) continue;
        while (next_of(&list, ' ', word)) {
            snprintf(key, sizeof key, " %.*s", (int)strcspn(word, "=") + 1, word);
            if (!strstr(text, key)) sprintf(text + strlen(text), " %s", word);
        }
        return extras[i].refused;
    }
    return "";
}

/* Whether the op has a gradient. */
static bool has_gradient(const char *op)
{
    for (int i = 0; i < OP_ROWS; ++i)
        if (!strcmp(op_rows[i].name, op)) return !(op_rows[i].flags & TESTS);
    return strcmp(op, "equal") != 0 && strcmp(op, "allclose") != 0;
}

/* Whether one of the inputs of a form has a gradient. */
static bool has_leaf(const char *form)
{
    for (;;) {
        const size_t n = strcspn(form, ", ");
        bool leaf_ = true;
        for (size_t i = 0; i < n; ++i)
            if (form[i] == ':' && strchr("imc", form[i + 1])) leaf_ = false;
        if (leaf_ || form[n] != ',') return leaf_;
        form += n + 1;
    }
}

typedef struct {
    bool coarse;
    void (*use)(const char *cell);
} listing;

/* The cells of an op, in one form, at a point; dtypes: those at points that have others than f32. */
static void list_point(const listing *to, const char *dtypes, const char *op, const char *form, const point *at_)
{
    char inputs[LINE_SIZE], text[2 * LINE_SIZE], dtype[LINE_SIZE];
    const char *refused;
    const bool differentiable = has_gradient(op) && has_leaf(form);
    fill_in(form, at_, inputs);
    refused = add_extras(op, inputs);
    for (bool first = true; next_of(&dtypes, ' ', dtype); first = false) {
        const bool floats = tg_is_floating_point(dtype_of(dtype)), f32 = !strcmp(dtype, "f32");
        if ((!first && !(at_->marks & DTYPES)) || has_word(refused, dtype)) continue;
        snprintf(text, sizeof text, "%s %s %s", op, dtype, inputs);
        to->use(text);
        if (!(at_->marks & BACKWARD) || !floats || !differentiable || (to->coarse && !f32)) continue;
        strcat(text, " backward");
        to->use(text);
    }
}

static void list_family(const listing *to, const family *f)
{
    const char *ops = f->ops;
    char op[LINE_SIZE], form[LINE_SIZE], first[LINE_SIZE];
    const char *dtypes = f->dtypes;
    (void)next_of(&dtypes, ' ', first);
    while (next_of(&ops, ' ', op)) {
        const char *forms = f->forms;
        for (dtypes = f->dtypes; next_of(&forms, ';', form); dtypes = to->coarse ? first : f->dtypes)
            for (const point *at_ = f->grid; at_->N; ++at_)
                if (!to->coarse || (at_->marks & COARSE)) list_point(to, dtypes, op, form, at_);
    }
}

static void list_cells(bool coarse, void (*use)(const char *))
{
    const listing to = {coarse, use};
    for (size_t i = 0; i < sizeof families / sizeof *families; ++i) list_family(&to, &families[i]);
}

static void print_cell(const char *text) { puts(text); }

/* ---- completeness ---- */

/* 1 if the op has no cell, which is printed. */
static int lacks(const char *op, const char *without)
{
    if (!without || strcmp(op, without) != 0)
        for (size_t i = 0; i < sizeof families / sizeof *families; ++i)
            if (has_word(families[i].ops, op)) return 0;
    return puts(op), 1;
}

static int missing(const char *without)
{
    const char *op, *formula;
    bool has_rule;
    int count = 0;
    for (int i = 0; (op = inside_op(i, &has_rule, &formula)) != NULL; ++i) count += lacks(op, without);
    for (int i = 0; i < OP_ROWS; ++i) count += lacks(op_rows[i].name, without);
    return count;
}

/* ---- what the program does ---- */

static int failures, runs;

static void run_once(const char *text)
{
    double about[4];
    ++runs;
    if (begin_cell(text) && about_results(about)) return;
    printf("failed: %s: %s\n", text, tg_ok() ? "not a cell" : tg_error_message());
    tg_clear_error();
    ++failures;
}

static const char *wanted;

static void print_time(const char *text)
{
    if (wanted && !strstr(text, wanted)) return;
    if (begin_cell(text)) printf("%-60s %.4g us\n", text, 1e6 * measure(0.0005));
    tg_clear_error();
}

static void answer(char *line)
{
    char *word = strtok(line, " \n"), *rest = strtok(NULL, "\n");
    double about[4];
    if (word && !strcmp(word, "version")) {
        puts(tg_build_info());
    } else if (word && rest && !strcmp(word, "list")) {
        list_cells(!strcmp(rest, "coarse"), print_cell);
        putchar('\n');
    } else if (word && rest && !strcmp(word, "cell")) {
        if (begin_cell(rest) && about_results(about))
            printf("%.17g %.17g %.17g %.17g\n", about[0], about[1], about[2], about[3]);
        else printf("error: %s\n", tg_ok() ? "not a cell" : tg_error_message());
    } else if (word && rest && !strcmp(word, "time") && cell.call) {
        printf("%.9g\n", measure(1e-3 * strtod(rest, NULL)));
    } else {
        puts("error: not a line of this worker");
    }
    tg_clear_error();
}

static void work(int threads)
{
    char line[LINE_SIZE];
    tg_set_num_threads(threads);
    counts_processor = threads == 1;
    while (fgets(line, sizeof line, stdin)) {
        answer(line);
        fflush(stdout);
    }
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "", *more = argc > 2 ? argv[2] : NULL;
    int wrong = 0;
    tg_set_flush_denormal(true); /* as the peer does */
    if (!strcmp(what, "list")) list_cells(more && !strcmp(more, "coarse"), print_cell);
    else if (!strcmp(what, "missing")) wrong = missing(more);
    else if (!strcmp(what, "alone")) wanted = more, list_cells(true, print_time);
    else if (!strcmp(what, "worker")) work(more ? atoi(more) : 1);
    else if (!strcmp(what, "tiny")) {
        list_cells(true, run_once);
        printf("%d cells, %d failed\n", runs, failures);
        wrong = failures;
    } else wrong = puts("usage: sweep list [coarse] | missing [OP] | tiny | alone [TEXT] | worker THREADS");
    end_cell();
    return tg_shutdown() != TG_OK || wrong != 0;
}
