/* The sample table: one row and one block of samples per op, from which everything generic about ops is tested.
 *
 *     SAMPLES(cumsum)
 *     {
 *         sample(S(2, 3), dim(-2));                                      checked in every way that the includer knows
 *         edge(in("[1, 2, 3]"), gives("[1, 3, 6]"), grads("[3, 2, 1]")); values at a place of no, or a chosen, gradient
 *         expect(tg_cumsum(f64("[[1, 2]]"), 0), "[[1, 2]]");             any call
 *         refuse(tg_cumsum(ones(2, 3), 5), "Dimension out of range");    a call that must fail, and with these words
 *     }
 *
 * A sample is a list of: inputs in the order of the op's row (S a shape, or in a literal, differentiable; constant, ids
 * and mask not), from the range last given, and the numbers that the row's call uses.  gives and grads are the results,
 * the gradient being that of the sum of the output.  Numbers with many digits were recorded with PyTorch 2.15 in f64.
 * "2.62" in a comment is row 62 of section 2 of the PyTorch semantics that the library follows.
 *
 * The includer defines drive_sample and drive_edge; run_samples() runs the rows whose turn it is. */
#ifndef SAMPLES_H
#define SAMPLES_H

#include "helpers.h"

#define ones(...) tg_ones_on(TG_SHAPE(__VA_ARGS__), TG_F64, HERE)

#define expect(call, wanted) match(call, wanted, true, #call, __FILE__, __LINE__)
#define refuse(call, words) refused((tg_clear_error(), !(call)), words, #call, __LINE__)
static void refused(bool nothing, const char *words, const char *call, int line)
{
    char message[300];
    if (!nothing && tg_synchronize(HERE) != TG_OK) /* the device met an index that the CPU sees at once */
        nothing = strstr(tg_error_message(), "(detected later)") != NULL;
    snprintf(message, sizeof message, "%s gave something", call);
    harness_check(nothing, message, __FILE__, line);
    harness_fails(words, call, __FILE__, line);
}

/* ---- the sample that is being described ---- */

enum { MAX_INPUTS = 5 };
typedef struct {
    double num, num2;
    int dim, dim2, flag;
    int64_t count, count2;
    tg_shape dims, dims2;
    const char *text;
} numbers;

typedef struct {
    const char *name;
    tg_function call; /* user: const numbers * */
    void (*samples)(void);
    int flags;
} op_row;

static struct {
    const op_row *row;
    numbers p;
    int n, line, grads;
    bool has_dim; /* p.dim was given */
    tg_tensor *in[MAX_INPUTS];
    bool differentiable[MAX_INPUTS];
    const char *gives, *grad[MAX_INPUTS];
    double low, high;
    uint64_t random, next_seed;
    tg_mark scope;
    tg_stats_info before;
} at;

static void drive_sample(void);
static void drive_edge(void);

static void begin_sample(int line)
{
    memset(&at.p, 0, sizeof at.p);
    at.n = at.grads = 0;
    at.has_dim = false;
    at.line = line;
    at.gives = NULL;
    at.low = -2, at.high = 2;
    at.random = at.next_seed += 7919;
    at.before = tg_stats();
    at.scope = tg_scope_begin();
}

static void end_sample(void (*drive)(void))
{
    static char place[120];
    tg_stats_info after;
    snprintf(place, sizeof place, "%s, line %d", at.row->name, at.line);
    harness.sample = place;
    drive();
    harness.sample = place;
    CHECK(tg_synchronize(HERE) == TG_OK);
    tg_scope_end(at.scope);
    after = tg_stats();
    CHECK(after.tensors == at.before.tensors && after.nodes == at.before.nodes);
    CHECK(after.bytes == at.before.bytes && after.saved == at.before.saved);
    harness.sample = NULL;
}

#define sample(...) (begin_sample(__LINE__), __VA_ARGS__, end_sample(drive_sample))
#define edge(...) (begin_sample(__LINE__), __VA_ARGS__, end_sample(drive_edge))

static double next_random(void) /* in [0, 1) */
{
    at.random = at.random * 6364136223846793005u + 1442695040888963407u;
    return (double)(at.random >> 40) / (double)(1 << 24);
}

/* Numbers from the range, no two near each other or near the middle, in random order: away from kinks and ties. */
static tg_tensor *spread(tg_shape shape)
{
    static double value[MAX_LITERAL];
    int i, n = 1;
    for (i = 0; i < shape.ndim; ++i) n *= (int)shape.dim[i];
    if (n > MAX_LITERAL) abort();
    for (i = 0; i < n; ++i) {
        double step = (at.high - at.low) / n;
        value[i] = at.low + step * (i + (2 * i + 1 == n ? 0.6 : 0.2) + 0.3 * next_random());
    }
    for (i = n - 1; i > 0; --i) {
        int j = (int)(next_random() * (i + 1));
        double v = value[i];
        value[i] = value[j], value[j] = v;
    }
    return tg_from_on(value, shape, TG_F64, HERE);
}

static void add_input(tg_tensor *t, bool differentiable)
{
    if (at.n == MAX_INPUTS) abort();
    at.differentiable[at.n] = differentiable;
    at.in[at.n++] = t;
}

#define S(...) add_input(spread(TG_SHAPE(__VA_ARGS__)), true)
#define S0 add_input(spread(TG_SCALAR), true)
static void in(const char *text) { add_input(f64(text), true); }
static void constant(const char *text) { add_input(f64(text), false); }
static void ids(const char *text) { add_input(i64(text), false); }
static void no_ids(void) { add_input(tg_zeros_on(TG_SHAPE(0), TG_I64, HERE), false); }
static void mask(const char *text) { add_input(boolean(text), false); }
static void range(double low, double high) { at.low = low, at.high = high; }
static void num(double value) { at.p.num = value; }
static void num2(double value) { at.p.num2 = value; }
static void dim(int value) { at.p.dim = value, at.has_dim = true; }
static void dim2(int value) { at.p.dim2 = value; }
static void flag(int value) { at.p.flag = value; }
static void count(int64_t value) { at.p.count = value; }
static void count2(int64_t value) { at.p.count2 = value; }
static void text(const char *value) { at.p.text = value; }
#define dims(...) ((void)(at.p.dims = TG_DIMS(__VA_ARGS__)))
#define dims2(...) ((void)(at.p.dims2 = TG_DIMS(__VA_ARGS__)))
static void gives(const char *wanted) { at.gives = wanted; }
static void grads(const char *wanted) { at.grad[at.grads++] = wanted; }

/* ---- calls that are more than one call ---- */

/* Every piece times another number, joined again, so that an exchanged piece is noticed. */
static tg_tensor *joined(tg_tensor **pieces, int n, int dim_of_pieces)
{
    int i;
    if (n == 0) return NULL;
    for (i = 0; i < n; ++i) pieces[i] = tg_mul_scalar(pieces[i], i + 1);
    return tg_cat(pieces, n, dim_of_pieces);
}
static tg_tensor *split_call(tg_tensor *t, int64_t size, int d)
{
    tg_tensor *pieces[8];
    return joined(pieces, tg_split(t, size, d, pieces, 8), d);
}
static tg_tensor *chunk_call(tg_tensor *t, int64_t chunks, int d)
{
    tg_tensor *pieces[8];
    return joined(pieces, tg_chunk(t, chunks, d, pieces, 8), d);
}
static tg_tensor *unbind_call(tg_tensor *t, int d)
{
    tg_tensor *pieces[8];
    int n = tg_unbind(t, d, pieces, 8), i;
    if (n == 0) return NULL;
    for (i = 0; i < n; ++i) pieces[i] = tg_mul_scalar(pieces[i], i + 1);
    return tg_stack(pieces, n, d);
}

static tg_tensor *split_sizes_call(tg_tensor *t, tg_shape sizes, int d)
{
    tg_tensor *pieces[8];
    return joined(pieces, tg_split_sizes(t, sizes, d, pieces, 8), d);
}
static tg_tensor *tensor_split_call(tg_tensor *t, int64_t sections, int d)
{
    tg_tensor *pieces[8];
    return joined(pieces, tg_tensor_split(t, sections, d, pieces, 8), d);
}
static tg_tensor *tensor_split_at_call(tg_tensor *t, tg_shape places, int d)
{
    tg_tensor *pieces[8];
    return joined(pieces, tg_tensor_split_at(t, places, d, pieces, 8), d);
}
static tg_tensor *hsplit_call(tg_tensor *t, int64_t sections)
{
    tg_tensor *pieces[8];
    return joined(pieces, tg_hsplit(t, sections, pieces, 8), tg_ndim(t) > 1);
}
static tg_tensor *vsplit_call(tg_tensor *t, int64_t sections)
{
    tg_tensor *pieces[8];
    return joined(pieces, tg_vsplit(t, sections, pieces, 8), 0);
}
static tg_tensor *dsplit_call(tg_tensor *t, int64_t sections)
{
    tg_tensor *pieces[8];
    return joined(pieces, tg_dsplit(t, sections, pieces, 8), 2);
}
static tg_tensor *meshgrid_call(tg_tensor *const *in_, int n)
{
    tg_tensor *grid[MAX_INPUTS];
    return tg_meshgrid(in_, n, grid) == TG_OK ? tg_stack(grid, n, 0) : NULL;
}

static tg_tensor *meshgrid_xy_call(tg_tensor *const *in_, int n)
{
    tg_tensor *grid[MAX_INPUTS];
    return tg_meshgrid_xy(in_, n, grid) == TG_OK ? tg_stack(grid, n, 0) : NULL;
}

/* The n indices given, with a NULL before those whose bit of whole is set; returns how many there are, 0 when one that
   was given is missing. */
static int with_whole_dims(tg_tensor *const *given, int n, int64_t whole, tg_tensor **indices)
{
    int i, k = 0;
    for (i = 0; i < n; ++i) {
        if (!given[i]) return 0;
        if (whole >> i & 1) indices[k++] = NULL;
        indices[k++] = given[i];
    }
    return k;
}
static tg_tensor *index_call(tg_tensor *a, tg_tensor *const *given, int n, int64_t whole)
{
    tg_tensor *indices[TG_MAX_DIMS];
    n = with_whole_dims(given, n, whole, indices);
    return tg_index(a, n ? indices : NULL, n);
}
static tg_tensor *index_put_call(tg_tensor *a, tg_tensor *values, tg_tensor *const *given, int n, const numbers *p)
{
    tg_tensor *indices[TG_MAX_DIMS];
    n = with_whole_dims(given, n, p->count, indices);
    return tg_index_put(a, n ? indices : NULL, n, values, p->flag != 0);
}
static tg_tensor *index_put_in_place(tg_tensor *a, tg_tensor *values, tg_tensor *const *given, int n, const numbers *p)
{
    tg_tensor *indices[TG_MAX_DIMS];
    n = with_whole_dims(given, n, p->count, indices);
    return tg_index_put_(tg_clone(a), n ? indices : NULL, n, values, p->flag != 0);
}
/* a[i], a[:, i], a[i, j] or a[i, :, j] */
static tg_tensor *picked(tg_tensor *a, tg_tensor *i, tg_tensor *j, int64_t whole)
{
    tg_tensor *given[2] = {i, j};
    return index_call(a, given, j ? 2 : 1, whole);
}

/* Bags of rows of a: b has ids, c offsets; or, without them, d the weights of the samples. */
static tg_tensor *embedding_bag_call(tg_tensor *a, tg_tensor *b, tg_tensor *c, const numbers *p)
{
    const bool scaled = c && tg_is_floating_point(tg_dtype_of(c));
    return tg_embedding_bag(a, b, scaled ? NULL : c, p->text, scaled ? c : NULL, p->flag != 0, p->count);
}

/* With fewer heads of keys than of queries if dim2 is set; offset count, window count2. */
static tg_tensor *attention_ex_call(tg_tensor *q, tg_tensor *k, tg_tensor *v, tg_tensor *m, const numbers *p)
{
    return tg_scaled_dot_product_attention_ex(q, k, v, m, 0, p->flag != 0, p->num, p->dim2 != 0, p->count, p->count2);
}

/* Writes into a copy through a view; reads an older view of a copy after a write; both rebase histories. */
static tg_tensor *scatter_view_call(tg_tensor *a, tg_tensor *b)
{
    tg_tensor *copy = tg_clone(a);
    return tg_copy_(tg_select(copy, 0, 1), tg_mul(b, b)) ? copy : NULL;
}
static tg_tensor *as_strided_call(tg_tensor *a, double factor)
{
    tg_tensor *copy = tg_clone(a), *view = tg_transpose(copy, 0, 1);
    tg_mul_scalar_(copy, factor);
    return tg_mul(view, view);
}
/* The gradient of a sum of unfolded windows: overlapping parts are added. */
static tg_tensor *overlap_call(tg_tensor *a)
{
    tg_tensor *copy = tg_mul(a, a), *windows = tg_unfold(copy, 0, 2, 1);
    tg_mul_scalar_(copy, 3);
    return tg_mul(windows, windows);
}

/* stride dims, padding dims2 (or, with flag, the same size), dilation count, groups count2 */
typedef tg_tensor *(*convolution)(tg_tensor *, tg_tensor *, tg_tensor *, tg_shape, tg_shape, tg_shape, int64_t);
typedef tg_tensor *(*transposed_convolution)(tg_tensor *, tg_tensor *, tg_tensor *, tg_shape, tg_shape, tg_shape,
                                             int64_t, tg_shape);
static tg_tensor *conv_call(convolution f, tg_tensor *x, tg_tensor *w, tg_tensor *bias, const numbers *p)
{
    return f(x, w, bias, p->dims.ndim ? p->dims : TG_SHAPE(1),
             p->flag         ? TG_SAME
             : p->dims2.ndim ? p->dims2
                             : TG_VALID,
             TG_SHAPE(p->count ? p->count : 1), p->count2 ? p->count2 : 1);
}
/* The same, and output_padding dim. */
static tg_tensor *conv_transpose_call(transposed_convolution f, tg_tensor *x, tg_tensor *w, tg_tensor *bias,
                                      const numbers *p)
{
    return f(x, w, bias, p->dims.ndim ? p->dims : TG_SHAPE(1), p->dims2.ndim ? p->dims2 : TG_SHAPE(0), TG_SHAPE(p->dim),
             p->count2 ? p->count2 : 1, TG_SHAPE(p->count ? p->count : 1));
}
/* stride dim, padding dim2 */
static tg_tensor *conv_weight_call(tg_tensor *x, tg_tensor *g, const numbers *p)
{
    return inside_conv_weight(x, g, p->count2, p->dim, p->dim2, p->dims);
}

/* With the same noise in each call. */
static tg_tensor *gumbel_call(tg_tensor *a, const numbers *p)
{
    tg_seed(1);
    return tg_gumbel_softmax(a, p->num, p->flag != 0, p->dim);
}
/* A distance of rows, and one that is none. */
static tg_tensor *sum_of_differences(tg_tensor *const *in_, int n, void *user)
{
    (void)n, (void)user;
    return tg_sum_dim(tg_abs(tg_sub(in_[0], in_[1])), -1, false);
}
static tg_tensor *no_distance(tg_tensor *const *in_, int n, void *user)
{
    (void)in_, (void)n, (void)user;
    return NULL;
}
/* Of the logits a; input lengths dims, target lengths dims2, blank count, reduction flag. */
static tg_tensor *ctc_call(tg_tensor *a, tg_tensor *b, const numbers *p)
{
    const tg_shape n = TG_SHAPE(p->dims.ndim);
    return tg_ctc_loss(tg_log_softmax(a, -1), b, tg_from(p->dims.dim, n, TG_I64), tg_from(p->dims2.dim, n, TG_I64),
                       p->count, p->flag, p->num != 0);
}
static const char *const sample_paddings[] = {"zeros", "border", "reflection"};
/* Both states after a step of an LSTM, [N, 2 H] */
/* Both outputs: the norm of a + b, and under it the sum. */
static tg_tensor *add_norm_call(bool rms, tg_tensor *a, tg_tensor *b, tg_tensor *weight, tg_tensor *bias,
                                const numbers *p)
{
    tg_tensor *sum = NULL, *y;
    if (rms)
        y = tg_add_rms_norm(a, b, (int)p->count, weight, p->num, &sum);
    else
        y = tg_add_layer_norm(a, b, (int)p->count, weight, bias, p->num, &sum);
    return y ? tg_cat(TG_LIST(y, sum), 0) : NULL;
}
static tg_tensor *lstm_call(tg_tensor *from_x, tg_tensor *from_h, tg_tensor *c)
{
    tg_tensor *state[2] = {NULL, c};
    state[0] = inside_lstm_step(from_x, from_h, &state[1]);
    return state[0] ? tg_cat(state, 2, 1) : NULL;
}

static tg_tensor *square_then_sum(tg_tensor *const *in_, int n, void *user)
{
    (void)n, (void)user;
    return tg_sum_dim(tg_mul(in_[0], in_[0]), 0, false);
}
static tg_status double_forward(tg_ctx *ctx, tg_tensor *const *in_, tg_tensor **out)
{
    (void)ctx;
    out[0] = tg_mul_scalar(in_[0], 2);
    return out[0] ? TG_OK : tg_error_code();
}
static tg_status double_backward(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)
{
    (void)ctx;
    grad_in[0] = tg_mul_scalar(grad_out[0], 2);
    return grad_in[0] ? TG_OK : tg_error_code();
}
static tg_tensor *custom_call(tg_tensor *a)
{
    tg_tensor *y = NULL;
    return tg_custom("custom", double_forward, double_backward, NULL, &a, 1, &y, 1) == TG_OK ? y : NULL;
}

/* a / 4 with 1, 4, 9, .. added on the diagonal of its matrices */
static tg_tensor *spaced(tg_tensor *a)
{
    tg_tensor *steps;
    if (tg_ndim(a) < 2) return a;
    steps = tg_square(tg_arange_on(1, (double)tg_dim(a, -1) + 1, 1, tg_dtype_of(a), HERE));
    return tg_add(tg_mul_scalar(a, 0.25), tg_mul(tg_eye_on(tg_dim(a, -2), tg_dim(a, -1), tg_dtype_of(a), HERE), steps));
}
static tg_tensor *mirrored(tg_tensor *a) { return tg_add(a, tg_transpose(a, -2, -1)); }
static tg_tensor *positive(tg_tensor *a)
{
    a = spaced(a);
    return tg_matmul(a, tg_transpose(a, -2, -1));
}
static tg_tensor *triangle(tg_tensor *a, int upper) { return upper ? tg_triu(spaced(a), 0) : tg_tril(spaced(a), 0); }

static tg_tensor *slogdet_call(tg_tensor *a)
{
    tg_tensor *out[2] = {NULL, NULL};
    out[0] = tg_linalg_slogdet(a, &out[1]);
    return out[0] ? tg_stack(out, 2, -1) : NULL;
}
static tg_tensor *lu_solve_call(tg_tensor *a, tg_tensor *b, int way)
{
    tg_tensor *pivots = NULL, *lu = tg_linalg_lu_factor(a, &pivots);
    return tg_linalg_lu_solve(lu, pivots, b, (way & 1) == 0, (way & 2) != 0);
}
static tg_tensor *qr_call(tg_tensor *a, const char *mode)
{
    tg_tensor *out[2] = {NULL, NULL};
    out[0] = tg_linalg_qr(a, mode, &out[1]);
    if (!out[0] || (mode && !strcmp(mode, "r"))) return out[1];
    out[1] = tg_transpose(out[1], -2, -1);
    return tg_cat(out, 2, -2);
}
/* way 1: the vectors alone */
static tg_tensor *eigh_call(tg_tensor *a, const char *uplo, int way)
{
    tg_tensor *out[2] = {NULL, NULL};
    out[0] = tg_linalg_eigh(mirrored(a), uplo, &out[1]);
    if (!out[0]) return NULL;
    out[0] = tg_unsqueeze(out[0], -2);
    out[1] = tg_square(out[1]);
    return way ? out[1] : tg_cat(out, 2, -2);
}
/* Without the columns and rows that have no gradient.  way 1: full matrices; 2: u alone; 4: v alone */
static tg_tensor *svd_call(tg_tensor *a, int way)
{
    tg_tensor *out[3] = {NULL, NULL, NULL};
    out[0] = tg_linalg_svd(a, (way & 1) != 0, &out[1], &out[2]);
    if (!out[0]) return NULL;
    out[0] = tg_square(tg_narrow(out[0], -1, 0, tg_dim(out[1], -1)));
    out[2] = tg_square(tg_narrow(out[2], -2, 0, tg_dim(out[1], -1)));
    if (way & 6) return way & 2 ? out[0] : out[2];
    out[1] = tg_unsqueeze(out[1], -2);
    out[2] = tg_transpose(out[2], -2, -1);
    return tg_cat(out, 3, -2);
}

/* ---- the rows: name as in the library, the call of inputs a b c d e and numbers p, what is special; a TWIN row also has
   the call in place ---- */

enum {
    EXACT = 1,              /* element by element, or data moved: the same bits in every layout */
    TESTS = 2,              /* no gradient: the output is bool or integers */
    QUIET = 4,              /* NaN in need not be NaN out */
    TIES = 8,               /* equal elements are kinks: not checked numerically on expanded inputs */
    GUARDED = 16,           /* NaN inputs are refused */
    POINTWISE = 32 | EXACT, /* one kernel, element by element: 16-bit results are f32 results rounded once */
    SEVERAL = 64,           /* several ops: 16-bit results are rounded several times */
    NO_HALVES = 128,        /* an error in f16 and bf16 */
    WHOLE = 256,            /* of integers and bool alone */
    FINDS_MORE = 512        /* other ways, and last bits, where the gradient needs what is not asked for */
};

#define UNARY_ROWS(OP, TWIN)                                            \
    TWIN(neg, tg_neg(a), POINTWISE, tg_neg_(a))                         \
    TWIN(abs, tg_abs(a), POINTWISE, tg_abs_(a))                         \
    TWIN(sign, tg_sign(a), POINTWISE | QUIET, tg_sign_(a))              \
    TWIN(square, tg_square(a), POINTWISE, tg_square_(a))                \
    TWIN(exp, tg_exp(a), POINTWISE, tg_exp_(a))                         \
    TWIN(expm1, tg_expm1(a), POINTWISE, tg_expm1_(a))                   \
    TWIN(log, tg_log(a), POINTWISE, tg_log_(a))                         \
    TWIN(log2, tg_log2(a), POINTWISE, tg_log2_(a))                      \
    TWIN(log10, tg_log10(a), POINTWISE, tg_log10_(a))                   \
    TWIN(log1p, tg_log1p(a), POINTWISE, tg_log1p_(a))                   \
    TWIN(sqrt, tg_sqrt(a), POINTWISE, tg_sqrt_(a))                      \
    TWIN(rsqrt, tg_rsqrt(a), POINTWISE, tg_rsqrt_(a))                   \
    TWIN(reciprocal, tg_reciprocal(a), POINTWISE, tg_reciprocal_(a))    \
    TWIN(sin, tg_sin(a), POINTWISE, tg_sin_(a))                         \
    TWIN(cos, tg_cos(a), POINTWISE, tg_cos_(a))                         \
    TWIN(tan, tg_tan(a), POINTWISE, tg_tan_(a))                         \
    TWIN(asin, tg_asin(a), POINTWISE, tg_asin_(a))                      \
    TWIN(acos, tg_acos(a), POINTWISE, tg_acos_(a))                      \
    TWIN(atan, tg_atan(a), POINTWISE, tg_atan_(a))                      \
    TWIN(sinh, tg_sinh(a), POINTWISE, tg_sinh_(a))                      \
    TWIN(cosh, tg_cosh(a), POINTWISE, tg_cosh_(a))                      \
    TWIN(tanh, tg_tanh(a), POINTWISE, tg_tanh_(a))                      \
    TWIN(sigmoid, tg_sigmoid(a), POINTWISE, tg_sigmoid_(a))             \
    TWIN(erf, tg_erf(a), POINTWISE, tg_erf_(a))                         \
    TWIN(asinh, tg_asinh(a), POINTWISE, tg_asinh_(a)) \
    TWIN(exp2, tg_exp2(a), POINTWISE, tg_exp2_(a)) \
    TWIN(erfc, tg_erfc(a), POINTWISE, tg_erfc_(a)) \
    TWIN(atanh, tg_atanh(a), POINTWISE, tg_atanh_(a)) \
    TWIN(erfinv, tg_erfinv(a), POINTWISE, tg_erfinv_(a)) \
    TWIN(acosh, tg_acosh(a), POINTWISE, tg_acosh_(a)) \
    TWIN(lgamma, tg_lgamma(a), POINTWISE, tg_lgamma_(a)) \
    TWIN(digamma, tg_digamma(a), POINTWISE, tg_digamma_(a)) \
    TWIN(i0, tg_i0(a), POINTWISE, tg_i0_(a)) \
    OP(i0e, tg_i0e(a), POINTWISE) \
    OP(i1, tg_i1(a), POINTWISE) \
    OP(i1e, tg_i1e(a), POINTWISE) \
    OP(erfcx, tg_erfcx(a), POINTWISE) \
    OP(log_ndtr, tg_log_ndtr(a), POINTWISE) \
    OP(ndtri, tg_ndtri(a), POINTWISE) \
    OP(entr, tg_entr(a), POINTWISE) \
    TWIN(floor, tg_floor(a), POINTWISE, tg_floor_(a))                   \
    TWIN(ceil, tg_ceil(a), POINTWISE, tg_ceil_(a))                      \
    TWIN(round, tg_round(a), POINTWISE, tg_round_(a))                   \
    TWIN(trunc, tg_trunc(a), POINTWISE, tg_trunc_(a))                   \
    TWIN(relu, tg_relu(a), POINTWISE, tg_relu_(a))                      \
    TWIN(silu, tg_silu(a), POINTWISE, tg_silu_(a))                      \
    TWIN(logsigmoid, tg_logsigmoid(a), POINTWISE, tg_logsigmoid_(a))    \
    TWIN(mish, tg_mish(a), POINTWISE, tg_mish_(a))                      \
    TWIN(selu, tg_selu(a), POINTWISE, tg_selu_(a))                      \
    TWIN(softsign, tg_softsign(a), POINTWISE, tg_softsign_(a))          \
    TWIN(hardsigmoid, tg_hardsigmoid(a), POINTWISE, tg_hardsigmoid_(a)) \
    TWIN(hardswish, tg_hardswish(a), POINTWISE, tg_hardswish_(a))       \
    OP(isnan, tg_isnan(a), POINTWISE | TESTS)                           \
    OP(isinf, tg_isinf(a), POINTWISE | TESTS)                           \
    OP(isfinite, tg_isfinite(a), POINTWISE | TESTS)                     \
    OP(logical_not, tg_logical_not(a), POINTWISE | TESTS)

#define ELEMENTWISE_ROWS(OP, TWIN)                                                            \
    TWIN(add_scalar, tg_add_scalar(a, p->num), POINTWISE, tg_add_scalar_(a, p->num))          \
    TWIN(sub_scalar, tg_sub_scalar(a, p->num), POINTWISE, tg_sub_scalar_(a, p->num))          \
    OP(rsub_scalar, tg_rsub_scalar(a, p->num), POINTWISE)                                     \
    TWIN(mul_scalar, tg_mul_scalar(a, p->num), POINTWISE, tg_mul_scalar_(a, p->num))          \
    TWIN(div_scalar, tg_div_scalar(a, p->num), POINTWISE, tg_div_scalar_(a, p->num))          \
    TWIN(pow_scalar, tg_pow_scalar(a, p->num), POINTWISE, tg_pow_scalar_(a, p->num))          \
    TWIN(clamp, tg_clamp(a, p->num, p->num2), POINTWISE, tg_clamp_(a, p->num, p->num2))       \
    OP(clamp_min, tg_clamp_min(a, p->num), POINTWISE)                                         \
    OP(clamp_max, tg_clamp_max(a, p->num), POINTWISE)                                         \
    OP(leaky_relu, tg_leaky_relu(a, p->num), POINTWISE)                                       \
    OP(hardshrink, tg_hardshrink(a, p->num), POINTWISE)                                       \
    OP(softshrink, tg_softshrink(a, p->num), POINTWISE)                                       \
    OP(elu, tg_elu(a, p->num), POINTWISE)                                                     \
    OP(celu, tg_celu(a, p->num), POINTWISE)                                                   \
    OP(hardtanh, tg_hardtanh(a, p->num, p->num2), POINTWISE)                                  \
    OP(relu6, tg_relu6(a), POINTWISE)                                                         \
    OP(softplus, tg_softplus(a, p->num, p->num2), POINTWISE)                                  \
    OP(gelu, tg_gelu(a, p->flag != 0), POINTWISE)                                             \
    OP(eq_scalar, tg_eq_scalar(a, p->num), POINTWISE | TESTS)                                 \
    OP(ne_scalar, tg_ne_scalar(a, p->num), POINTWISE | TESTS)                                 \
    OP(lt_scalar, tg_lt_scalar(a, p->num), POINTWISE | TESTS)                                 \
    OP(le_scalar, tg_le_scalar(a, p->num), POINTWISE | TESTS)                                 \
    OP(gt_scalar, tg_gt_scalar(a, p->num), POINTWISE | TESTS)                                 \
    OP(ge_scalar, tg_ge_scalar(a, p->num), POINTWISE | TESTS)                                 \
    TWIN(add, tg_add(a, b), POINTWISE, tg_add_(a, b))                                         \
    TWIN(sub, tg_sub(a, b), POINTWISE, tg_sub_(a, b))                                         \
    TWIN(mul, tg_mul(a, b), POINTWISE, tg_mul_(a, b))                                         \
    TWIN(div, tg_div(a, b), POINTWISE, tg_div_(a, b))                                         \
    TWIN(pow, tg_pow(a, b), POINTWISE, tg_pow_(a, b))                                         \
    OP(maximum, tg_maximum(a, b), POINTWISE)                                                  \
    OP(minimum, tg_minimum(a, b), POINTWISE)                                                  \
    OP(fmax, tg_fmax(a, b), POINTWISE | QUIET)                                                \
    OP(fmin, tg_fmin(a, b), POINTWISE | QUIET)                                                \
    OP(atan2, tg_atan2(a, b), POINTWISE)                                                      \
    OP(fmod, tg_fmod(a, b), POINTWISE) \
    OP(remainder, tg_remainder(a, b), POINTWISE) \
    OP(floor_divide, tg_floor_divide(a, b), POINTWISE) \
    OP(hypot, tg_hypot(a, b), POINTWISE) \
    OP(logaddexp, tg_logaddexp(a, b), POINTWISE) \
    OP(xlogy, tg_xlogy(a, b), POINTWISE) \
    TWIN(polygamma, tg_polygamma((int)p->count, a), POINTWISE, tg_polygamma_((int)p->count, a)) \
    TWIN(bitwise_and, tg_bitwise_and(a, b), POINTWISE | TESTS | WHOLE, tg_bitwise_and_(a, b)) \
    TWIN(bitwise_or, tg_bitwise_or(a, b), POINTWISE | TESTS | WHOLE, tg_bitwise_or_(a, b)) \
    TWIN(bitwise_xor, tg_bitwise_xor(a, b), POINTWISE | TESTS | WHOLE, tg_bitwise_xor_(a, b)) \
    TWIN(bitwise_left_shift, tg_bitwise_left_shift(a, b), POINTWISE | TESTS | WHOLE, tg_bitwise_left_shift_(a, b)) \
    TWIN(bitwise_right_shift, tg_bitwise_right_shift(a, b), POINTWISE | TESTS | WHOLE, tg_bitwise_right_shift_(a, b)) \
    TWIN(bitwise_not, tg_bitwise_not(a), POINTWISE | TESTS | WHOLE, tg_bitwise_not_(a)) \
    OP(gcd, tg_gcd(a, b), POINTWISE | TESTS | WHOLE) \
    OP(lcm, tg_lcm(a, b), POINTWISE | TESTS | WHOLE) \
    OP(copysign, tg_copysign(a, b), POINTWISE | QUIET) \
    OP(heaviside, tg_heaviside(a, b), POINTWISE | QUIET) \
    OP(nextafter, tg_nextafter(a, b), EXACT) \
    OP(logaddexp2, tg_logaddexp2(a, b), POINTWISE) \
    OP(xlog1py, tg_xlog1py(a, b), POINTWISE) \
    OP(eq, tg_eq(a, b), POINTWISE | TESTS)                                                    \
    OP(ne, tg_ne(a, b), POINTWISE | TESTS)                                                    \
    OP(lt, tg_lt(a, b), POINTWISE | TESTS)                                                    \
    OP(le, tg_le(a, b), POINTWISE | TESTS)                                                    \
    OP(gt, tg_gt(a, b), POINTWISE | TESTS)                                                    \
    OP(ge, tg_ge(a, b), POINTWISE | TESTS)                                                    \
    OP(logical_and, tg_logical_and(a, b), POINTWISE | TESTS)                                  \
    OP(logical_or, tg_logical_or(a, b), POINTWISE | TESTS)                                    \
    OP(logical_xor, tg_logical_xor(a, b), POINTWISE | TESTS)                                  \
    OP(where, tg_where(c, a, b), POINTWISE)                                                   \
    TWIN(add_alpha, tg_add_alpha(a, b, p->num), POINTWISE, tg_add_alpha_(a, b, p->num))       \
    TWIN(addcmul, tg_addcmul(a, b, c, p->num), POINTWISE, tg_addcmul_(a, b, c, p->num))       \
    TWIN(addcdiv, tg_addcdiv(a, b, c, p->num), POINTWISE, tg_addcdiv_(a, b, c, p->num))       \
    TWIN(lerp, tg_lerp(a, b, c), POINTWISE, tg_lerp_(a, b, c))                                \
    TWIN(lerp_scalar, tg_lerp_scalar(a, b, p->num), POINTWISE, tg_lerp_scalar_(a, b, p->num)) \
    TWIN(masked_fill, tg_masked_fill(a, b, p->num), POINTWISE, tg_masked_fill_(a, b, p->num))

#define MOVING_ROWS(OP)                                                                           \
    OP(to, tg_to_ex(a, HERE, tg_dtype_of(a), TG_COPY), EXACT)                                     \
    OP(copy_, tg_copy_(tg_clone(a), b), EXACT | QUIET)                                            \
    OP(fill_, tg_fill_(tg_clone(a), p->num), EXACT | QUIET)                                       \
    OP(zero_, tg_zero_(tg_clone(a)), EXACT | QUIET)                                               \
    OP(clone, tg_clone(a), EXACT)                                                                 \
    OP(as_strided, as_strided_call(a, p->num), EXACT | SEVERAL)                                   \
    OP(strided_add, overlap_call(a), EXACT | SEVERAL)                                             \
    OP(scatter_view, scatter_view_call(a, b), EXACT | SEVERAL)                                    \
    OP(view, tg_view(tg_contiguous(a), p->dims), EXACT)                                           \
    OP(reshape, tg_reshape(a, p->dims), EXACT)                                                    \
    OP(flatten, tg_flatten(a, p->dim, p->dim2), EXACT)                                            \
    OP(squeeze, tg_squeeze(a, p->dim), EXACT)                                                     \
    OP(unsqueeze, tg_unsqueeze(a, p->dim), EXACT)                                                 \
    OP(transpose, tg_transpose(a, p->dim, p->dim2), EXACT)                                        \
    OP(t, tg_t(a), EXACT)                                                                         \
    OP(permute, tg_permute(a, p->dims), EXACT)                                                    \
    OP(movedim, tg_movedim(a, p->dim, p->dim2), EXACT)                                            \
    OP(expand, tg_expand(a, p->dims), EXACT)                                                      \
    OP(narrow, tg_narrow(a, p->dim, p->count, p->count2), EXACT)                                  \
    OP(select, tg_select(a, p->dim, p->count), EXACT | QUIET)                                     \
    OP(slice, tg_slice(a, p->dim, p->dims.dim[0], p->dims.dim[1], p->dims.dim[2]), EXACT | QUIET) \
    OP(diagonal, tg_diagonal(a, p->count, p->dim, p->dim2), EXACT | QUIET)                        \
    OP(unfold, tg_unfold(a, p->dim, p->count, p->count2), EXACT)                                  \
    OP(contiguous, tg_contiguous(a), EXACT)                                                       \
    OP(split, split_call(a, p->count, p->dim), EXACT)                                             \
    OP(chunk, chunk_call(a, p->count, p->dim), EXACT)                                             \
    OP(unbind, unbind_call(a, p->dim), EXACT)                                                     \
    OP(cat, tg_cat(in_, n, p->dim), EXACT)                                                        \
    OP(stack, tg_stack(in_, n, p->dim), EXACT)                                                    \
    OP(repeat, tg_repeat(a, p->dims), EXACT)                                                      \
    OP(roll, tg_roll(a, p->dims, p->dims2), EXACT)                                                \
    OP(repeat_interleave, tg_repeat_interleave(a, p->count, p->dim), EXACT)                       \
    OP(meshgrid, meshgrid_call(in_, n), EXACT)                                                    \
    OP(flip, tg_flip(a, p->dims), EXACT)                                                          \
    OP(tril, tg_tril(a, p->count), EXACT | QUIET)                                                 \
    OP(triu, tg_triu(a, p->count), EXACT | QUIET)                                                 \
    OP(pad, tg_pad(a, p->dims, p->num), EXACT | QUIET)                                            \
    OP(index_select, tg_index_select(a, p->dim, b), EXACT)                                        \
    OP(gather, tg_gather(a, p->dim, b), EXACT)                                                    \
    OP(take_along_dim, tg_take_along_dim(a, b, p->dim), EXACT)                                    \
    OP(embedding, tg_embedding(a, b), EXACT)                                                      \
    OP(scatter, tg_scatter(a, p->dim, b, c), EXACT)                                               \
    OP(scatter_, tg_scatter_(tg_clone(a), p->dim, b, c), EXACT)                                   \
    OP(index, index_call(a, in_ + 1, n - 1, p->count), EXACT)                                     \
    OP(index_put, index_put_call(a, b, in_ + 2, n - 2, p), SEVERAL)                               \
    OP(index_put_, index_put_in_place(a, b, in_ + 2, n - 2, p), SEVERAL)                          \
    OP(masked_select, tg_masked_select(a, b), EXACT)                                              \
    OP(one_hot, tg_one_hot(a, p->count), EXACT | TESTS)                                           \
    OP(nonzero, tg_nonzero(a), EXACT | TESTS)                                                     \
    OP(sort, tg_sort(a, p->dim, p->flag != 0, NULL), EXACT | TIES)                                \
    OP(topk, tg_topk(a, p->count, p->dim, p->flag != 0, NULL), EXACT | TIES)                      \
    OP(dropout, tg_dropout(a, p->num, p->flag != 0), EXACT | QUIET)                               \
    OP(multinomial, tg_multinomial(a, p->count, p->flag != 0), EXACT | TESTS | GUARDED)           \
    OP(checkpoint, tg_checkpoint(square_then_sum, in_, n, NULL), 0)                               \
    OP(custom, custom_call(a), EXACT)

#define REDUCTION_ROWS(OP)                                                      \
    OP(sum_to, tg_mul(a, tg_mul(b, b)), EXACT | SEVERAL)                        \
    OP(sum, tg_sum(a), 0)                                                       \
    OP(sum_dim, tg_sum_dim(a, p->dim, p->flag != 0), 0)                         \
    OP(sum_dims, tg_sum_dims(a, p->dims, p->flag != 0), 0)                      \
    OP(mean, tg_mean(a), 0)                                                     \
    OP(mean_dim, tg_mean_dim(a, p->dim, p->flag != 0), 0)                       \
    OP(mean_dims, tg_mean_dims(a, p->dims, p->flag != 0), 0)                    \
    OP(prod, tg_prod(a), 0)                                                     \
    OP(prod_dim, tg_prod_dim(a, p->dim, p->flag != 0), 0)                       \
    OP(prod_dims, tg_prod_dims(a, p->dims, p->flag != 0), 0)                    \
    OP(amax, tg_amax(a), TIES)                                                  \
    OP(amax_dim, tg_amax_dim(a, p->dim, p->flag != 0), TIES)                    \
    OP(amax_dims, tg_amax_dims(a, p->dims, p->flag != 0), TIES)                 \
    OP(amin, tg_amin(a), TIES)                                                  \
    OP(amin_dim, tg_amin_dim(a, p->dim, p->flag != 0), TIES)                    \
    OP(amin_dims, tg_amin_dims(a, p->dims, p->flag != 0), TIES)                 \
    OP(any, tg_any(a), TESTS)                                                   \
    OP(any_dim, tg_any_dim(a, p->dim, p->flag != 0), TESTS)                     \
    OP(any_dims, tg_any_dims(a, p->dims, p->flag != 0), TESTS)                  \
    OP(all, tg_all(a), TESTS)                                                   \
    OP(all_dim, tg_all_dim(a, p->dim, p->flag != 0), TESTS)                     \
    OP(all_dims, tg_all_dims(a, p->dims, p->flag != 0), TESTS)                  \
    OP(logsumexp, tg_logsumexp(a), 0)                                           \
    OP(logsumexp_dim, tg_logsumexp_dim(a, p->dim, p->flag != 0), 0)             \
    OP(logsumexp_dims, tg_logsumexp_dims(a, p->dims, p->flag != 0), 0)          \
    OP(var, tg_var(a), 0)                                                       \
    OP(var_dim, tg_var_dim(a, p->dim, (double)p->count, p->flag != 0), 0)               \
    OP(var_dims, tg_var_dims(a, p->dims, (double)p->count, p->flag != 0), 0)            \
    OP(std, tg_std(a), TIES)                                                    \
    OP(std_dim, tg_std_dim(a, p->dim, (double)p->count, p->flag != 0), TIES)            \
    OP(std_dims, tg_std_dims(a, p->dims, (double)p->count, p->flag != 0), TIES)         \
    OP(norm, tg_norm(a), 0)                                                     \
    OP(norm_dim, tg_norm_dim(a, p->num, p->dim, p->flag != 0), TIES | QUIET)    \
    OP(norm_dims, tg_norm_dims(a, p->num, p->dims, p->flag != 0), TIES | QUIET) \
    OP(max, tg_max(a), TIES)                                                    \
    OP(min, tg_min(a), TIES)                                                    \
    OP(max_dim, tg_max_dim(a, p->dim, p->flag != 0, NULL), TIES)                \
    OP(min_dim, tg_min_dim(a, p->dim, p->flag != 0, NULL), TIES)                \
    OP(argmax, tg_argmax(a, p->dim, p->flag != 0), TESTS)                       \
    OP(argmin, tg_argmin(a, p->dim, p->flag != 0), TESTS)                       \
    OP(cumsum, tg_cumsum(a, p->dim), 0)                                         \
    OP(trace, tg_trace(a), QUIET)                                               \
    OP(scatter_add_, tg_scatter_add_(tg_clone(a), p->dim, b, c), 0)             \
    OP(index_add_, tg_index_add_(tg_clone(a), p->dim, b, c), 0)                 \
    OP(bincount, tg_bincount(a, b, p->count), 0)                                \
    OP(scatter_add, tg_scatter_add(a, p->dim, b, c), 0)                         \
    OP(index_add, tg_index_add(a, p->dim, b, c), 0)                             \
    OP(softmax, tg_softmax(a, p->dim), 0)                                       \
    OP(log_softmax, tg_log_softmax(a, p->dim), 0)                               \
    OP(glu, tg_glu(a, p->dim), EXACT | SEVERAL)                                 \
    OP(prelu, tg_prelu(a, b), EXACT)

#define PRODUCT_ROWS(OP)                                                                             \
    OP(matmul, tg_matmul(a, b), 0)                                                                   \
    OP(mm, tg_mm(a, b), 0)                                                                           \
    OP(bmm, tg_bmm(a, b), 0)                                                                         \
    OP(mv, tg_mv(a, b), 0)                                                                           \
    OP(dot, tg_dot(a, b), 0)                                                                         \
    OP(outer, tg_outer(a, b), 0)                                                                     \
    OP(linear, tg_linear(a, b, c), 0)                                                                \
    OP(linear_gelu, tg_linear_gelu(a, b, c, p->flag != 0), 0)                                        \
    OP(addmm, tg_addmm(a, b, c, p->num, p->num2), 0)                                                 \
    OP(einsum, tg_einsum(p->text, in_, n), 0)                                                        \
    OP(normalize, tg_layer_norm(a, (int)p->count, NULL, NULL, p->num), 0)                            \
    OP(layer_norm, tg_layer_norm(a, (int)p->count, b, c, p->num), 0)                                 \
    OP(rms_norm, tg_rms_norm(a, (int)p->count, b, p->num), 0)                                        \
    OP(add_layer_norm, add_norm_call(false, a, b, c, d, p), SEVERAL)                                 \
    OP(add_rms_norm, add_norm_call(true, a, b, c, NULL, p), SEVERAL)                                 \
    OP(batch_norm, tg_batch_norm(a, NULL, NULL, b, c, true, 0.1, p->num), 0)                         \
    OP(batch_norm_by_running, tg_batch_norm(a, b, c, d, n > 4 ? in_[4] : NULL, false, 0, p->num), 0) \
    OP(instance_norm, tg_instance_norm(a, NULL, NULL, b, c, true, 0.1, p->num), 0)                   \
    OP(group_norm, tg_group_norm(a, p->count, b, c, p->num), 0)                                      \
    OP(channel_norm, tg_group_norm(a, p->count, b, c, p->num), 0)                                    \
    OP(lstm_cell, lstm_call(a, b, c), 0)                                                             \
    OP(unit_length, tg_normalize(a, p->num, p->dim, p->num2), 0)                                     \
    OP(cosine_similarity, tg_cosine_similarity(a, b, p->dim, p->num), 0)                             \
    OP(cdist, tg_cdist(a, b, p->num), 0)                                                             \
    OP(scaled_dot_product_attention, tg_scaled_dot_product_attention(a, b, c, d, 0, p->flag != 0, p->num), 0)

#define CONVOLUTION_ROWS(OP)                                                            \
    OP(conv, conv_call(tg_conv1d, a, b, c, p), 0)                                       \
    OP(conv1d, conv_call(tg_conv1d, a, b, c, p), 0)                                     \
    OP(conv2d, conv_call(tg_conv2d, a, b, c, p), 0)                                     \
    OP(conv3d, conv_call(tg_conv3d, a, b, c, p), 0)                                     \
    OP(conv_transpose, conv_transpose_call(tg_conv_transpose1d, a, b, c, p), SEVERAL)   \
    OP(conv_transpose1d, conv_transpose_call(tg_conv_transpose1d, a, b, c, p), SEVERAL) \
    OP(conv_transpose2d, conv_transpose_call(tg_conv_transpose2d, a, b, c, p), SEVERAL) \
    OP(conv_transpose3d, conv_transpose_call(tg_conv_transpose3d, a, b, c, p), SEVERAL) \
    OP(conv_weight, conv_weight_call(a, b, p), 0)

#define POOL_ROWS(OP)                                                                                       \
    OP(max_pool, tg_max_pool2d(a, p->dims, p->dims2, TG_SHAPE(p->count)), EXACT | TIES)                     \
    OP(max_pool1d, tg_max_pool1d(a, p->dims, p->dims2, TG_SHAPE(p->count)), EXACT | TIES)                   \
    OP(max_pool2d, tg_max_pool2d(a, p->dims, p->dims2, TG_SCALAR), EXACT | TIES)                            \
    OP(max_pool1d_ex,                                                                                       \
       tg_max_pool1d_ex(a, p->dims, p->dims2, TG_SHAPE(p->count), TG_SHAPE(p->count2), p->flag != 0, NULL), \
       EXACT | TIES)                                                                                        \
    OP(max_pool2d_ex,                                                                                       \
       tg_max_pool2d_ex(a, p->dims, p->dims2, TG_SHAPE(p->count), TG_SHAPE(p->count2), p->flag != 0, NULL), \
       EXACT | TIES)                                                                                        \
    OP(max_pool3d, tg_max_pool3d(a, p->dims, p->dims2, TG_SHAPE(p->count)), EXACT | TIES)                   \
    OP(max_pool3d_ex,                                                                                       \
       tg_max_pool3d_ex(a, p->dims, p->dims2, TG_SHAPE(p->count), TG_SHAPE(p->count2), p->flag != 0, NULL), \
       EXACT | TIES)                                                                                        \
    OP(max_unpool, tg_max_unpool2d(a, b, p->dims, p->dims2, TG_SHAPE(p->count), TG_SCALAR), EXACT)          \
    OP(max_unpool1d, tg_max_unpool1d(a, b, p->dims, p->dims2, TG_SHAPE(p->count), TG_SCALAR), EXACT)        \
    OP(max_unpool2d, tg_max_unpool2d(a, b, p->dims, p->dims2, TG_SHAPE(p->count), TG_SCALAR), EXACT)        \
    OP(max_unpool3d, tg_max_unpool3d(a, b, p->dims, p->dims2, TG_SHAPE(p->count), TG_SCALAR), EXACT)        \
    OP(adaptive_max_pool3d, tg_adaptive_max_pool3d(a, p->dims), EXACT | TIES)                               \
    OP(adaptive_max_pool3d_ex, tg_adaptive_max_pool3d_ex(a, p->dims, NULL), EXACT | TIES)                   \
    OP(adaptive_max_pool1d, tg_adaptive_max_pool1d(a, p->dims), EXACT | TIES)                               \
    OP(adaptive_max_pool2d, tg_adaptive_max_pool2d(a, p->dims), EXACT | TIES)                               \
    OP(adaptive_max_pool1d_ex, tg_adaptive_max_pool1d_ex(a, p->dims, NULL), EXACT | TIES)                   \
    OP(adaptive_max_pool2d_ex, tg_adaptive_max_pool2d_ex(a, p->dims, NULL), EXACT | TIES)                   \
    OP(window_sum, tg_avg_pool2d(a, p->dims, p->dims2, TG_SHAPE(p->count)), 0)                              \
    OP(avg_pool1d, tg_avg_pool1d(a, p->dims, p->dims2, TG_SHAPE(p->count)), 0)                              \
    OP(avg_pool2d, tg_avg_pool2d(a, p->dims, p->dims2, TG_SCALAR), 0)                                       \
    OP(avg_pool1d_ex, tg_avg_pool1d_ex(a, p->dims, p->dims2, TG_SHAPE(p->count), true, p->flag != 0), 0)    \
    OP(avg_pool2d_ex,                                                                                       \
       tg_avg_pool2d_ex(a, p->dims, p->dims2, TG_SHAPE(p->count), true, p->flag != 0, p->count2), SEVERAL)  \
    OP(avg_pool3d, tg_avg_pool3d(a, p->dims, p->dims2, TG_SHAPE(p->count)), SEVERAL)                        \
    OP(avg_pool3d_ex,                                                                                       \
       tg_avg_pool3d_ex(a, p->dims, p->dims2, TG_SHAPE(p->count), true, p->flag != 0, p->count2), SEVERAL)  \
    OP(lp_pool1d, tg_lp_pool1d(a, p->num, p->dims, p->dims2, p->flag != 0), SEVERAL)                        \
    OP(lp_pool2d, tg_lp_pool2d(a, p->num, p->dims, p->dims2, p->flag != 0), SEVERAL)                        \
    OP(lp_pool3d, tg_lp_pool3d(a, p->num, p->dims, p->dims2, p->flag != 0), SEVERAL)                        \
    OP(adaptive_avg_pool3d, tg_adaptive_avg_pool3d(a, p->dims), SEVERAL)                                    \
    OP(adaptive_avg_pool1d, tg_adaptive_avg_pool1d(a, p->dims), 0)                                          \
    OP(adaptive_avg_pool2d, tg_adaptive_avg_pool2d(a, p->dims), 0)                                          \
    OP(grid_sample, tg_grid_sample(a, b, p->text, sample_paddings[p->count], p->flag != 0), SEVERAL | QUIET)\
    OP(affine_grid, tg_affine_grid(a, p->dims, p->flag != 0), SEVERAL)                                      \
    OP(interpolate, tg_interpolate(a, p->dims, p->text), 0)

#define LOSS_ROWS(OP)                                                                                 \
    OP(mse_loss, tg_mse_loss(a, b, p->flag), 0)                                                       \
    OP(l1_loss, tg_l1_loss(a, b, p->flag), 0)                                                         \
    OP(smooth_l1_loss, tg_smooth_l1_loss(a, b, p->flag, p->num), 0)                                   \
    OP(huber_loss, tg_huber_loss(a, b, p->flag, p->num), 0)                                           \
    OP(cross_entropy, tg_cross_entropy(a, b), 0)                                                      \
    OP(cross_entropy_ex, tg_cross_entropy_ex(a, b, c, p->count, p->num, p->flag), 0)                  \
    OP(nll_loss, tg_nll_loss(a, b, c, p->count, p->flag), QUIET)                                      \
    OP(binary_cross_entropy, tg_binary_cross_entropy(a, b, c, p->flag), GUARDED)                      \
    OP(binary_cross_entropy_with_logits, tg_binary_cross_entropy_with_logits(a, b, c, p->flag, d), 0) \
    OP(kl_div, tg_kl_div(a, b, p->flag, p->count != 0), 0)

/* Linear algebra: of matrices that are far from singular, with eigenvalues and singular values that are far apart; of
   vectors, which have either sign, the squares. */
#define LINALG_ROWS(OP)                                                                                               \
    OP(linalg_inv, tg_linalg_inv(spaced(a)), NO_HALVES)                                                               \
    OP(linalg_solve, tg_linalg_solve(spaced(a), b, p->flag == 0), NO_HALVES)                                          \
    OP(linalg_solve_triangular,                                                                                       \
       tg_linalg_solve_triangular(spaced(a), b, (p->flag & 1) != 0, (p->flag & 2) == 0, (p->flag & 4) != 0),          \
       NO_HALVES | QUIET)                                                                                             \
    OP(triangular_solve, tg_triangular_solve(b, spaced(a), (p->flag & 1) != 0, (p->flag & 2) != 0, (p->flag & 4) != 0), \
       NO_HALVES | QUIET)                                                                                             \
    OP(linalg_det, tg_linalg_det(p->flag ? a : spaced(a)), NO_HALVES)                                                 \
    OP(linalg_slogdet, slogdet_call(spaced(a)), NO_HALVES)                                                            \
    OP(linalg_lu_factor, tg_linalg_lu_factor(spaced(a), NULL), NO_HALVES)                                             \
    OP(linalg_lu_solve, lu_solve_call(spaced(a), b, p->flag), NO_HALVES)                                              \
    OP(linalg_cholesky, tg_linalg_cholesky(positive(a), p->flag != 0), NO_HALVES | GUARDED)                           \
    OP(cholesky_solve, tg_cholesky_solve(b, triangle(a, p->flag), p->flag != 0), NO_HALVES)                           \
    OP(cholesky_inverse, tg_cholesky_inverse(triangle(a, p->flag), p->flag != 0), NO_HALVES)                          \
    OP(linalg_qr, qr_call(spaced(a), p->text), NO_HALVES)                                                             \
    OP(linalg_householder_product, tg_linalg_householder_product(a, b), NO_HALVES)                                    \
    OP(linalg_eigh, eigh_call(spaced(a), p->text, p->flag), NO_HALVES | GUARDED)                                      \
    OP(linalg_eigvalsh, tg_linalg_eigvalsh(mirrored(spaced(a)), p->text), NO_HALVES | GUARDED | FINDS_MORE)           \
    OP(linalg_svd, svd_call(spaced(a), p->flag), NO_HALVES | GUARDED)                                                 \
    OP(linalg_svdvals, tg_linalg_svdvals(spaced(a)), NO_HALVES | GUARDED)                                             \
    OP(linalg_pinv, tg_linalg_pinv(p->flag ? mirrored(spaced(a)) : spaced(a), -1, -1, p->flag != 0),                  \
       NO_HALVES | GUARDED)                                                                                           \
    OP(linalg_matrix_rank, tg_linalg_matrix_rank(a, -1, p->num, p->flag != 0), TESTS | GUARDED | NO_HALVES)           \
    OP(linalg_lstsq, tg_linalg_lstsq(spaced(a), b, -1, NULL, NULL), NO_HALVES | GUARDED)                              \
    OP(linalg_matrix_norm, tg_linalg_matrix_norm(spaced(a), p->text, p->dims.ndim ? p->dims : TG_DIMS(-2, -1), p->flag), \
       NO_HALVES | GUARDED)                                                                                           \
    OP(linalg_cond, tg_linalg_cond(spaced(a), p->text), NO_HALVES | GUARDED)                                          \
    OP(linalg_matrix_power, tg_linalg_matrix_power(spaced(a), p->count), NO_HALVES)                                   \
    OP(linalg_matrix_exp, tg_linalg_matrix_exp(tg_mul_scalar(a, p->num)), NO_HALVES)                                  \
    OP(linalg_multi_dot, tg_linalg_multi_dot(in_, n), SEVERAL)

/* Composites of the ops above. */
#define COMPOSED_ROWS(OP) \
    OP(div_rounded, tg_div_rounded(a, b, p->text), EXACT | SEVERAL) \
    OP(frac, tg_frac(a), POINTWISE) \
    OP(round_decimals, tg_round_decimals(a, (int)p->count), EXACT | SEVERAL) \
    OP(sinc, tg_sinc(a), EXACT | SEVERAL) \
    OP(logit, tg_logit(a, p->num), POINTWISE) \
    OP(nan_to_num, tg_nan_to_num(a, p->num, p->num2, -5), EXACT | SEVERAL | QUIET) \
    OP(tanhshrink, tg_tanhshrink(a), EXACT | SEVERAL) \
    OP(deg2rad, tg_deg2rad(a), SEVERAL) \
    OP(rad2deg, tg_rad2deg(a), SEVERAL) \
    OP(threshold, tg_threshold(a, p->num, p->num2), EXACT | SEVERAL) \
    OP(nansum, tg_nansum(a, p->dims, p->flag != 0), QUIET) \
    OP(nanmean, tg_nanmean(a, p->dims, p->flag != 0), QUIET) \
    OP(count_nonzero, tg_count_nonzero(a, p->dims), EXACT | TESTS) \
    OP(dist, tg_dist(a, b, p->num), TIES) \
    OP(pairwise_distance, tg_pairwise_distance(a, b, p->num, 1e-6, p->flag != 0), TIES) \
    OP(argsort, tg_argsort(a, p->dim, p->flag != 0), EXACT | TESTS) \
    OP(msort, tg_msort(a), EXACT | TIES) \
    OP(kthvalue, tg_kthvalue(a, p->count, p->dim, p->flag != 0, NULL), EXACT | TIES) \
    OP(median_dim, tg_median_dim(a, p->dim, p->flag != 0, NULL), EXACT | TIES) \
    OP(median, tg_median(a), EXACT | TIES) \
    OP(cumprod, tg_cumprod(a, p->dim), SEVERAL) \
    OP(logcumsumexp, tg_logcumsumexp(a, p->dim), SEVERAL) \
    OP(cummax, tg_cummax(a, p->dim, NULL), EXACT | TIES) \
    OP(cummin, tg_cummin(a, p->dim, NULL), EXACT | TIES) \
    OP(softmin, tg_softmin(a, p->dim), 0) \
    OP(local_response_norm, tg_local_response_norm(a, p->count, p->num, 0.75, 1.5), SEVERAL) \
    OP(gaussian_nll_loss, tg_gaussian_nll_loss(a, b, c, p->count != 0, 1e-6, p->flag), 0) \
    OP(poisson_nll_loss, tg_poisson_nll_loss(a, b, p->count == 0, p->count2 != 0, 1e-8, p->flag), 0) \
    OP(soft_margin_loss, tg_soft_margin_loss(a, b, p->flag), 0) \
    OP(margin_ranking_loss, tg_margin_ranking_loss(a, b, c, p->num, p->flag), 0) \
    OP(hinge_embedding_loss, tg_hinge_embedding_loss(a, b, p->num, p->flag), 0) \
    OP(cosine_embedding_loss, tg_cosine_embedding_loss(a, b, c, p->num, p->flag), 0) \
    OP(triplet_margin_loss, tg_triplet_margin_loss(a, b, c, p->num, 2, 1e-6, p->count != 0, p->flag), 0) \
    OP(multilabel_margin_loss, tg_multilabel_margin_loss(a, b, p->flag), 0) \
    OP(ctc_loss, ctc_call(a, b, p), SEVERAL) \
    OP(multi_margin_loss, tg_multi_margin_loss(a, b, (double)p->count, p->num, c, p->flag), 0) \
    OP(multilabel_soft_margin_loss, tg_multilabel_soft_margin_loss(a, b, c, p->flag), 0) \
    OP(triplet_margin_with_distance_loss, \
       tg_triplet_margin_with_distance_loss(a, b, c, p->count2 ? sum_of_differences : NULL, NULL, p->num, \
                                            p->count != 0, p->flag), 0) \
    OP(feature_dropout, tg_dropout2d(a, p->num, p->flag != 0), EXACT | QUIET) \
    OP(dropout1d, tg_dropout1d(a, p->num, p->flag != 0), EXACT | QUIET) \
    OP(dropout2d, tg_dropout2d(a, p->num, p->flag != 0), EXACT | QUIET) \
    OP(dropout3d, tg_dropout3d(a, p->num, p->flag != 0), EXACT | QUIET) \
    OP(alpha_dropout, tg_alpha_dropout(a, p->num, p->flag != 0), SEVERAL | QUIET) \
    OP(feature_alpha_dropout, tg_feature_alpha_dropout(a, p->num, p->flag != 0), SEVERAL | QUIET) \
    OP(rrelu, tg_rrelu(a, p->num, p->num2, p->flag != 0), SEVERAL | QUIET) \
    OP(gumbel_softmax, gumbel_call(a, p), SEVERAL | QUIET) \
    OP(ravel, tg_ravel(a), EXACT) \
    OP(unflatten, tg_unflatten(a, p->dim, p->dims), EXACT) \
    OP(atleast_1d, tg_atleast_1d(a), EXACT) \
    OP(atleast_2d, tg_atleast_2d(a), EXACT) \
    OP(atleast_3d, tg_atleast_3d(a), EXACT) \
    OP(squeeze_dims, tg_squeeze_dims(a, p->dims), EXACT) \
    OP(movedim_dims, tg_movedim_dims(a, p->dims, p->dims2), EXACT) \
    OP(split_sizes, split_sizes_call(a, p->dims, p->dim), EXACT) \
    OP(meshgrid_xy, meshgrid_xy_call(in_, n), EXACT) \
    OP(hstack, tg_hstack(in_, n), EXACT) \
    OP(vstack, tg_vstack(in_, n), EXACT) \
    OP(dstack, tg_dstack(in_, n), EXACT) \
    OP(tile, tg_tile(a, p->dims), EXACT) \
    OP(fliplr, tg_fliplr(a), EXACT) \
    OP(flipud, tg_flipud(a), EXACT) \
    OP(rot90, tg_rot90(a, p->count, p->dims), EXACT) \
    OP(diag, tg_diag(a, p->count), EXACT | QUIET) \
    OP(pixel_shuffle, tg_pixel_shuffle(a, p->count), EXACT) \
    OP(pixel_unshuffle, tg_pixel_unshuffle(a, p->count), EXACT) \
    OP(channel_shuffle, tg_channel_shuffle(a, p->count), EXACT) \
    OP(addmv, tg_addmv(a, b, c, p->num, p->num2), 0) \
    OP(baddbmm, tg_baddbmm(a, b, c, p->num, p->num2), 0) \
    OP(addbmm, tg_addbmm(a, b, c, p->num, p->num2), 0) \
    OP(inner, tg_inner(a, b), 0) \
    OP(tensordot, tg_tensordot(a, b, p->dims, p->dims2), 0) \
    OP(kron, tg_kron(a, b), EXACT) \
    OP(cross, tg_cross(a, b, p->dim), EXACT | SEVERAL) \
    OP(bilinear, tg_bilinear(a, b, c, d), 0) \
    OP(take, tg_take(a, b), EXACT) \
    OP(index_fill, tg_index_fill(a, p->dim, b, p->num), EXACT | QUIET) \
    OP(index_copy, tg_index_copy(a, p->dim, b, c), EXACT | SEVERAL) \
    OP(index_copy_, tg_index_copy_(tg_clone(a), p->dim, b, c), EXACT | SEVERAL) \
    OP(masked_scatter, tg_masked_scatter(a, b, c), EXACT | SEVERAL) \
    OP(embedding_bag, embedding_bag_call(a, b, c, p), QUIET) \
    OP(pad_mode, tg_pad_mode(a, p->dims, p->text), EXACT) \
    OP(im2col, tg_im2col(a, TG_SHAPE(2), p->dims, p->dims2, TG_SHAPE(p->count)), EXACT | QUIET) \
    OP(col2im, tg_col2im(a, TG_SHAPE(3, 4), TG_SHAPE(2), p->dims, p->dims2, TG_SHAPE(p->count)), 0) \
    OP(scaled_dot_product_attention_ex, attention_ex_call(a, b, c, d, p), QUIET) \
    OP(rope, tg_rope(a, b, c, p->flag != 0), SEVERAL) \
    OP(filter_logits, tg_exp(tg_filter_logits(a, p->count, p->num)), SEVERAL | QUIET | TIES) \
    OP(repetition_penalty, tg_repetition_penalty(a, b, p->num), EXACT | SEVERAL) \
    OP(sample_logits, tg_sample_logits(a, p->num2, p->count, p->num), EXACT | TESTS | GUARDED) \
    OP(interpolate_ex, tg_interpolate_ex(a, p->dims, p->num, p->text, p->flag != 0), SEVERAL) \
    OP(tensor_split, tensor_split_call(a, p->count, p->dim), EXACT) \
    OP(tensor_split_at, tensor_split_at_call(a, p->dims, p->dim), EXACT) \
    OP(hsplit, hsplit_call(a, p->count), EXACT) \
    OP(vsplit, vsplit_call(a, p->count), EXACT) \
    OP(dsplit, dsplit_call(a, p->count), EXACT) \
    OP(column_stack, tg_column_stack(in_, n), EXACT) \
    OP(block_diag, tg_block_diag(in_, n), EXACT | QUIET) \
    OP(cartesian_prod, tg_cartesian_prod(in_, n), EXACT) \
    OP(combinations, tg_combinations(a, p->count, p->flag != 0), EXACT) \
    OP(diag_embed, tg_diag_embed(a, p->count, (int)p->dims.dim[0], (int)p->dims.dim[1]), EXACT | QUIET) \
    OP(diagflat, tg_diagflat(a, p->count), EXACT | QUIET) \
    OP(diagonal_scatter, tg_diagonal_scatter(a, b, p->count, p->dim, p->dim2), EXACT) \
    OP(select_scatter, tg_select_scatter(a, b, p->dim, p->count), EXACT) \
    OP(slice_scatter, tg_slice_scatter(a, b, p->dim, p->dims.dim[0], p->dims.dim[1], p->dims.dim[2]), EXACT) \
    OP(vander, tg_vander(a, p->count, p->flag != 0), SEVERAL | QUIET) \
    OP(cov, tg_cov(a, p->count, p->flag ? b : NULL, p->flag ? c : b), 0) \
    OP(corrcoef, tg_corrcoef(a), TIES) \
    OP(pdist, tg_pdist(a, p->num), TIES) \
    OP(renorm, tg_renorm(a, p->num, p->dim, p->num2), TIES | SEVERAL) \
    OP(diff, tg_diff(a, p->count, p->dim, b, c), SEVERAL) \
    OP(trapezoid, tg_trapezoid(a, b, p->num, p->dim), SEVERAL) \
    OP(cumulative_trapezoid, tg_cumulative_trapezoid(a, b, p->num, p->dim), SEVERAL) \
    OP(put, tg_put(a, b, c, p->flag != 0), SEVERAL) \
    OP(nanmedian_dim, tg_nanmedian_dim(a, p->dim, p->flag != 0, NULL), EXACT | TIES | QUIET) \
    OP(nanmedian, tg_nanmedian(a), EXACT | TIES | QUIET) \
    OP(mode, tg_mode(a, p->dim, p->flag != 0, NULL), EXACT | TIES | QUIET) \
    OP(quantile, tg_quantile(a, b, p->dims, p->flag != 0, p->text), SEVERAL | TIES) \
    OP(nanquantile, tg_nanquantile(a, b, p->dims, p->flag != 0, p->text), SEVERAL | TIES | QUIET) \
    OP(searchsorted, tg_searchsorted(b, a, p->flag != 0, c), EXACT | TESTS) \
    OP(bucketize, tg_bucketize(a, b, p->flag != 0), EXACT | TESTS) \
    OP(isin, tg_isin(a, b), EXACT | TESTS) \
    OP(histc, tg_histc(a, p->count, p->num, p->num2), EXACT | TESTS) \
    OP(histogram, tg_histogram(a, b, c, p->flag != 0), TESTS) \
    OP(unique, tg_unique(a, NULL, NULL), EXACT | TESTS) \
    OP(unique_dim, tg_unique_dim(a, p->dim, NULL, NULL), EXACT | TESTS) \
    OP(unique_consecutive, tg_unique_consecutive(a, NULL, NULL), EXACT | TESTS) \
    OP(unique_consecutive_dim, tg_unique_consecutive_dim(a, p->dim, NULL, NULL), EXACT | TESTS) \
    OP(repeat_interleave_tensor, tg_repeat_interleave_tensor(a, b, p->dim), EXACT) \
    OP(scatter_reduce, tg_scatter_reduce(a, p->dim, b, c, p->text, p->flag != 0), SEVERAL | TIES) \
    OP(index_reduce, tg_index_reduce(a, p->dim, b, c, p->text, p->flag != 0), SEVERAL | TIES) \
    OP(isposinf, tg_isposinf(a), POINTWISE | TESTS) \
    OP(isneginf, tg_isneginf(a), POINTWISE | TESTS) \
    OP(isclose, tg_isclose(a, b, p->num, p->num2, p->flag != 0), EXACT | TESTS) \
    OP(positive, tg_positive(a), EXACT) \
    OP(signbit, tg_signbit(a), EXACT | TESTS) \
    OP(ndtr, tg_ndtr(a), EXACT | SEVERAL) \
    OP(mvlgamma, tg_mvlgamma(a, (int)p->count), EXACT | SEVERAL) \
    OP(ldexp, tg_ldexp(a, b), EXACT | SEVERAL) \
    OP(float_power, tg_to_dtype(tg_float_power(a, b), tg_dtype_of(a)), EXACT | SEVERAL) \
    OP(float_power_scalar, tg_to_dtype(tg_float_power_scalar(a, p->num), tg_dtype_of(a)), EXACT | SEVERAL) \
    OP(fft, tg_fft_fft(a, p->count, p->dim2, p->text), 0) \
    OP(fft_fft, tg_fft_fft(a, p->count, p->dim2, p->text), 0) \
    OP(fft_ifft, tg_fft_ifft(a, p->count, p->dim2, p->text), 0) \
    OP(fft_rfft, tg_fft_rfft(a, p->count, p->dim, p->text), 0) \
    OP(fft_irfft, tg_fft_irfft(a, p->count, p->dim2, p->text), QUIET) \
    OP(fft_hfft, tg_fft_hfft(a, p->count, p->dim2, p->text), QUIET) \
    OP(fft_ihfft, tg_fft_ihfft(a, p->count, p->dim, p->text), 0) \
    OP(fft_fft2, tg_fft_fft2(a, p->dims, p->dims2, p->text), 0) \
    OP(fft_ifft2, tg_fft_ifft2(a, p->dims, p->dims2, p->text), 0) \
    OP(fft_rfft2, tg_fft_rfft2(a, p->dims, p->dims2, p->text), 0) \
    OP(fft_irfft2, tg_fft_irfft2(a, p->dims, p->dims2, p->text), QUIET) \
    OP(fft_hfft2, tg_fft_hfft2(a, p->dims, p->dims2, p->text), QUIET) \
    OP(fft_ihfft2, tg_fft_ihfft2(a, p->dims, p->dims2, p->text), 0) \
    OP(fft_fftn, tg_fft_fftn(a, p->dims, p->dims2, p->text), 0) \
    OP(fft_ifftn, tg_fft_ifftn(a, p->dims, p->dims2, p->text), 0) \
    OP(fft_rfftn, tg_fft_rfftn(a, p->dims, p->dims2, p->text), 0) \
    OP(fft_irfftn, tg_fft_irfftn(a, p->dims, p->dims2, p->text), QUIET) \
    OP(fft_hfftn, tg_fft_hfftn(a, p->dims, p->dims2, p->text), QUIET) \
    OP(fft_ihfftn, tg_fft_ihfftn(a, p->dims, p->dims2, p->text), 0) \
    OP(fft_fftshift, tg_fft_fftshift(a, p->dims), EXACT) \
    OP(fft_ifftshift, tg_fft_ifftshift(a, p->dims), EXACT) \
    OP(stft, tg_stft(a, p->count, p->count2, b, p->flag != 0, p->text, p->dim2 != 0, p->dim2 == 0), QUIET) \
    OP(istft, tg_istft(a, p->count, p->count2, b, p->flag != 0, p->dim2 != 0, p->dim2 == 0, (int64_t)p->num), QUIET) \
    OP(complex, tg_complex(a, b), EXACT) \
    OP(polar, tg_polar(a, b), EXACT | SEVERAL) \
    OP(real, tg_real(a), EXACT | QUIET) \
    OP(imag, tg_imag(a), EXACT | QUIET) \
    OP(complex_mul, tg_complex_mul(a, b), EXACT | SEVERAL) \
    OP(complex_conj, tg_complex_conj(a), EXACT) \
    OP(complex_abs, tg_complex_abs(a), SEVERAL) \
    OP(complex_angle, tg_complex_angle(a), EXACT | SEVERAL) \
    /* rows */

#define ALL_ROWS(OP, TWIN) \
    UNARY_ROWS(OP, TWIN)   \
    ELEMENTWISE_ROWS(OP, TWIN) MOVING_ROWS(OP) REDUCTION_ROWS(OP) PRODUCT_ROWS(OP) CONVOLUTION_ROWS(OP) POOL_ROWS(OP) \
    LOSS_ROWS(OP) COMPOSED_ROWS(OP) LINALG_ROWS(OP)

#define DEFINE_CALL(name, expression, ...)                                                            \
    static tg_tensor *call_##name(tg_tensor *const *in_, int n, void *user)                           \
    {                                                                                                 \
        const numbers *p = (const numbers *)user;                                                     \
        tg_tensor *a = n > 0 ? in_[0] : NULL, *b = n > 1 ? in_[1] : NULL, *c = n > 2 ? in_[2] : NULL; \
        tg_tensor *d = n > 3 ? in_[3] : NULL;                                                         \
        (void)p, (void)a, (void)b, (void)c, (void)d;                                                  \
        return expression;                                                                            \
    }
ALL_ROWS(DEFINE_CALL, DEFINE_CALL)

#define SAMPLES(name) static void samples_##name(void)

/* ---- one input, element by element ---- */

/* The shapes that every op of one input must take, from this range. */
static void everywhere(double low, double high)
{
    sample(range(low, high), S(2, 3, 4));
    sample(range(low, high), S(17)); /* a vector register and a rest */
    sample(range(low, high), S0);
    sample(range(low, high), S(1, 1));
    sample(range(low, high), S(2, 0, 3));
}

#define LINE "[-1.5, -0.25, 0.5, 2]"
#define POSITIVE "[0.25, 1, 2.5, 10]"
#define UNIT "[-0.75, -0.25, 0.5, 0.9]"
#define EDGES "[0, -0., inf, -inf, nan]" /* 2.62, 2.65, 2.70, 2.75 and the ends of every function */

/* name; the range of the samples; inputs, outputs and gradients; outputs and gradients at EDGES.  The second table is
   of those that have more to say, below. */
#define UNARY_VALUES(OP)                                                                                              \
    OP(neg, -2, 2, LINE, "[1.5, 0.25, -0.5, -2]", "[-1, -1, -1, -1]", "[-0., 0, -inf, inf, nan]",                     \
       "[-1, -1, -1, -1, -1]")                                                                                        \
    OP(abs, -2, 2, LINE, "[1.5, 0.25, 0.5, 2]", "[-1, -1, 1, 1]", "[0, 0, inf, inf, nan]", "[0, 0, 1, -1, 0]")        \
    OP(sign, -2, 2, LINE, "[-1, -1, 1, 1]", "[0, 0, 0, 0]", "[0, 0, 1, -1, 0]", "[0, 0, 0, 0, 0]")                    \
    OP(square, -2, 2, LINE, "[2.25, 0.0625, 0.25, 4]", "[-3, -0.5, 1, 4]", "[0, 0, inf, inf, nan]",                   \
       "[0, 0, inf, -inf, nan]")                                                                                      \
    OP(exp, -2, 2, LINE, "[0.223130160148, 0.778800783071, 1.6487212707, 7.38905609893]",                             \
       "[0.223130160148, 0.778800783071, 1.6487212707, 7.38905609893]", "[1, 1, inf, 0, nan]", "[1, 1, inf, 0, nan]") \
    OP(expm1, -2, 2, LINE, "[-0.776869839852, -0.221199216929, 0.6487212707, 6.38905609893]",                         \
       "[0.223130160148, 0.778800783071, 1.6487212707, 7.38905609893]", "[0, -0., inf, -1, nan]",                     \
       "[1, 1, inf, 0, nan]")                                                                                         \
    OP(log2, 0.2, 3, POSITIVE, "[-2, 0, 1.32192809489, 3.32192809489]",                                               \
       "[5.77078016356, 1.44269504089, 0.577078016356, 0.144269504089]", "[-inf, -inf, inf, nan, nan]",               \
       "[inf, -inf, 0, 0, nan]")                                                                                      \
    OP(log10, 0.2, 3, POSITIVE, "[-0.602059991328, 0, 0.397940008672, 1]",                                            \
       "[1.73717792761, 0.434294481903, 0.173717792761, 0.0434294481903]", "[-inf, -inf, inf, nan, nan]",             \
       "[inf, -inf, 0, 0, nan]")                                                                                      \
    OP(rsqrt, 0.2, 3, POSITIVE, "[2, 1, 0.632455532034, 0.316227766017]",                                             \
       "[-4, -0.5, -0.126491106407, -0.0158113883008]", "[inf, -inf, 0, nan, nan]", "[-inf, inf, 0, nan, nan]")       \
    OP(reciprocal, 0.2, 3, POSITIVE, "[4, 1, 0.4, 0.1]", "[-16, -1, -0.16, -0.01]", "[inf, -inf, 0, -0., nan]",       \
       "[-inf, -inf, 0, 0, nan]")                                                                                     \
    OP(sin, -2, 2, LINE, "[-0.997494986604, -0.247403959255, 0.479425538604, 0.909297426826]",                        \
       "[0.0707372016677, 0.968912421711, 0.87758256189, -0.416146836547]", "[0, -0., nan, nan, nan]",                \
       "[1, 1, nan, nan, nan]")                                                                                       \
    OP(cos, -2, 2, LINE, "[0.0707372016677, 0.968912421711, 0.87758256189, -0.416146836547]",                         \
       "[0.997494986604, 0.247403959255, -0.479425538604, -0.909297426826]", "[1, 1, nan, nan, nan]",                 \
       "[0, 0, nan, nan, nan]")                                                                                       \
    OP(tan, -1, 1, LINE, "[-14.1014199472, -0.255341921221, 0.546302489844, -2.18503986326]",                         \
       "[199.850044526, 1.06519949673, 1.29844641041, 5.77439920404]", "[0, -0., nan, nan, nan]",                     \
       "[1, 1, nan, nan, nan]")                                                                                       \
    OP(asin, -0.9, 0.9, UNIT, "[-0.848062078981, -0.252680255142, 0.523598775598, 1.119769515]",                      \
       "[1.51185789204, 1.03279555899, 1.15470053838, 2.29415733871]", "[0, -0., nan, nan, nan]",                     \
       "[1, 1, nan, nan, nan]")                                                                                       \
    OP(atan, -2, 2, LINE, "[-0.982793723247, -0.244978663127, 0.463647609001, 1.10714871779]",                        \
       "[0.307692307692, 0.941176470588, 0.8, 0.2]", "[0, -0., 1.57079632679, -1.57079632679, nan]",                  \
       "[1, 1, 0, 0, nan]")                                                                                           \
    OP(sinh, -2, 2, LINE, "[-2.12927945509, -0.252612316808, 0.521095305494, 3.62686040785]",                         \
       "[2.35240961524, 1.03141309988, 1.12762596521, 3.76219569108]", "[0, -0., inf, -inf, nan]",                    \
       "[1, 1, inf, inf, nan]")                                                                                       \
    OP(cosh, -2, 2, LINE, "[2.35240961524, 1.03141309988, 1.12762596521, 3.76219569108]",                             \
       "[-2.12927945509, -0.252612316808, 0.521095305494, 3.62686040785]", "[1, 1, inf, inf, nan]",                   \
       "[0, 0, inf, -inf, nan]")                                                                                      \
    OP(tanh, -2, 2, LINE, "[-0.905148253645, -0.244918662404, 0.46211715726, 0.964027580076]",                        \
       "[0.180706638924, 0.940014848806, 0.786447732966, 0.0706508248532]", "[0, -0., 1, -1, nan]",                   \
       "[1, 1, 0, 0, nan]")                                                                                           \
    OP(erf, -2, 2, LINE, "[-0.966105146475, -0.276326390168, 0.520499877813, 0.995322265019]",                        \
       "[0.118930289224, 1.06001412938, 0.878782578935, 0.0206669853541]", "[0, -0., 1, -1, nan]",                    \
       "[1.1283791671, 1.1283791671, 0, 0, nan]")                                                                     \
    OP(asinh, -2, 2, LINE, "[-1.19476321729, -0.247466461547, 0.48121182506, 1.44363547518]", \
       "[0.554700196225, 0.970142500145, 0.894427191, 0.4472135955]", "[0, -0., inf, -inf, nan]", \
       "[1, 1, 0, 0, nan]") \
    OP(exp2, -2, 2, LINE, "[0.353553390593, 0.840896415254, 1.41421356237, 4]", \
       "[0.245064535867, 0.582864979376, 0.980258143469, 2.77258872224]", "[1, 1, inf, 0, nan]", \
       "[0.69314718056, 0.69314718056, inf, 0, nan]") \
    OP(erfc, -2, 2, LINE, "[1.96610514648, 1.27632639017, 0.479500122187, 0.00467773498105]", \
       "[-0.118930289224, -1.06001412938, -0.878782578935, -0.0206669853541]", "[1, 1, 0, 2, nan]", \
       "[-1.1283791671, -1.1283791671, 0, 0, nan]") \
    OP(atanh, -0.9, 0.9, UNIT, "[-0.972955074528, -0.255412811883, 0.549306144334, 1.47221948958]", \
       "[2.28571428571, 1.06666666667, 1.33333333333, 5.26315789474]", "[0, -0., nan, nan, nan]", \
       "[1, 1, 0, 0, nan]") \
    OP(erfinv, -0.9, 0.9, UNIT, "[-0.813419847598, -0.225312055012, 0.476936276204, 1.16308715368]", \
       "[1.71749976937, 0.932378234606, 1.11258481897, 3.42804281145]", "[0, -0., nan, nan, nan]", \
       "[0.886226925453, 0.886226925453, nan, nan, nan]") \
    OP(acosh, 1.2, 3, "[1.25, 2, 3.5, 10]", "[0.69314718056, 1.31695789692, 1.92484730024, 2.99322284613]", \
       "[1.33333333333, 0.57735026919, 0.298142397, 0.100503781526]", "[nan, nan, inf, nan, nan]", \
       "[nan, nan, 0, 0, nan]") \
    OP(lgamma, 0.3, 3, POSITIVE, "[1.2880225247, 0, 0.284682870473, 12.8018274801]", \
       "[-4.22745353338, -0.577215664902, 0.703156640645, 2.25175258907]", "[inf, inf, inf, inf, nan]", \
       "[-inf, inf, inf, nan, nan]") \
    OP(digamma, 0.3, 3, POSITIVE, "[-4.22745353338, -0.577215664902, 0.703156640645, 2.25175258907]", \
       "[17.1973291534, 1.64493406764, 0.49035775624, 0.105166335682]", "[-inf, inf, inf, nan, nan]", \
       "[inf, inf, 0, nan, nan]") \
    OP(i0, -2, 2, LINE, "[1.64672318977, 1.01568614122, 1.06348337074, 2.27958530234]", \
       "[-0.981666428578, -0.125979108945, 0.257894305391, 1.59063685464]", "[1, 1, nan, nan, nan]", \
       "[0, 0, nan, nan, nan]") \
    OP(i0e, 0.2, 2, LINE, "[0.367433609054, 0.79101716214, 0.645035270449, 0.308508322554]", \
       "[0.148394221633, 0.692904533442, -0.488614467264, -0.0932390333047]", "[1, 1, 0, 0, nan]", \
       "[0, 0, 0, 0, nan]") \
    OP(i1, -2, 2, LINE, "[-0.981666428578, -0.125979108945, 0.257894305391, 1.59063685464]", \
       "[0.992278904054, 0.511769705442, 0.54769475996, 1.48426687502]", "[0, 0, nan, nan, nan]", \
       "[0.5, 0.5, nan, nan, nan]") \
    OP(i1e, 0.2, 2, LINE, "[-0.219039387421, -0.0981126286974, 0.156420803185, 0.215269289249]", \
       "[0.00236796335262, 0.300454018653, 0.175772860895, -0.0143956113197]", "[0, 0, 0, -0., nan]", \
       "[0.5, 0.5, 0, 0, nan]") \
    OP(erfcx, -2, 2, LINE, "[18.6538862563, 1.3586423701, 0.615690344193, 0.255395676311]", \
       "[-57.0900379359, -1.80770035215, -0.512688822903, -0.106796461853]", "[1, 1, 0, inf, nan]", \
       "[-1.1283791671, -1.1283791671, nan, -inf, nan]") \
    OP(log_ndtr, -2, 2, LINE, "[-2.70594440082, -0.913061764811, -0.368946415289, -0.023012909329]", \
       "[1.93867716662, 0.963553979416, 0.509160433837, 0.055247862679]", "[-0.69314718056, -0.69314718056, -0., -inf, nan]", \
       "[0.797884560803, 0.797884560803, 0, inf, nan]") \
    OP(ndtri, 0.1, 0.9, "[0.1, 0.25, 0.5, 0.9]", "[-1.28155156554, -0.674489750196, 0, 1.28155156554]", \
       "[5.69805985612, 3.14686508056, 2.50662827463, 5.69805985612]", "[-inf, -inf, nan, nan, nan]", \
       "[inf, inf, nan, nan, nan]") \
    OP(entr, 0.2, 3, POSITIVE, "[0.34657359028, -0., -2.29072682969, -23.0258509299]", \
       "[0.38629436112, -1, -1.91629073187, -3.30258509299]", "[0, 0, -inf, -inf, nan]", \
       "[inf, inf, -inf, nan, nan]") \
    OP(floor, -2, 2, LINE, "[-2, -1, 0, 2]", "[0, 0, 0, 0]", "[0, -0., inf, -inf, nan]", "[0, 0, 0, 0, 0]")           \
    OP(ceil, -2, 2, LINE, "[-1, -0., 1, 2]", "[0, 0, 0, 0]", "[0, -0., inf, -inf, nan]", "[0, 0, 0, 0, 0]")           \
    OP(trunc, -2, 2, LINE, "[-1, -0., 0, 2]", "[0, 0, 0, 0]", "[0, -0., inf, -inf, nan]", "[0, 0, 0, 0, 0]")          \
    OP(relu, -2, 2, LINE, "[0, 0, 0.5, 2]", "[0, 0, 1, 1]", "[0, -0., inf, 0, nan]", "[0, 0, 1, 0, 1]")               \
    OP(silu, -2, 2, LINE, "[-0.27363828571, -0.109455874779, 0.311229665601, 1.76159415596]",                         \
       "[-0.0412941542991, 0.37628997843, 0.739961187303, 1.09078424878]", "[0, -0., inf, nan, nan]",                 \
       "[0.5, 0.5, nan, nan, nan]")

#define UNARY_VALUES_AND_MORE(OP)                                                                                    \
    OP(log, 0.2, 3, POSITIVE, "[-1.38629436112, 0, 0.916290731874, 2.30258509299]", "[4, 1, 0.4, 0.1]",              \
       "[-inf, -inf, inf, nan, nan]", "[inf, -inf, 0, 0, nan]")                                                      \
    OP(log1p, 0.2, 3, POSITIVE, "[0.223143551314, 0.69314718056, 1.2527629685, 2.3978952728]",                       \
       "[0.8, 0.5, 0.285714285714, 0.0909090909091]", "[0, -0., inf, nan, nan]", "[1, 1, 0, 0, nan]")                \
    OP(sqrt, 0.2, 3, POSITIVE, "[0.5, 1, 1.58113883008, 3.16227766017]", "[1, 0.5, 0.316227766017, 0.158113883008]", \
       "[0, -0., inf, nan, nan]", "[inf, -inf, 0, nan, nan]")                                                        \
    OP(acos, -0.9, 0.9, UNIT, "[2.41885840578, 1.82347658194, 1.0471975512, 0.451026811796]",                        \
       "[-1.51185789204, -1.03279555899, -1.15470053838, -2.29415733871]",                                           \
       "[1.57079632679, 1.57079632679, nan, nan, nan]", "[-1, -1, nan, nan, nan]")                                   \
    OP(sigmoid, -2, 2, LINE, "[0.182425523806, 0.437823499114, 0.622459331202, 0.880797077978]",                     \
       "[0.14914645207, 0.246134082738, 0.235003712202, 0.104993585404]", "[0.5, 0.5, 1, 0, nan]",                   \
       "[0.25, 0.25, 0, 0, nan]")                                                                                    \
    OP(round, -2, 2, LINE, "[-2, -0., 0, 2]", "[0, 0, 0, 0]", "[0, -0., inf, -inf, nan]", "[0, 0, 0, 0, 0]")         \
    OP(logsigmoid, -2, 2, LINE, "[-1.70141327798, -0.825939419879, -0.47407698418, -0.126928011043]",                \
       "[0.817574476194, 0.562176500886, 0.377540668798, 0.119202922022]",                                           \
       "[-0.69314718056, -0.69314718056, 0, -inf, nan]", "[0.5, 0.5, 0, 1, nan]")

#define DEFINE_UNARY_VALUES(name, low, high, x, y, g, edge_y, edge_g) \
    static void values_##name(void)                                   \
    {                                                                 \
        everywhere(low, high);                                        \
        edge(in(x), gives(y), grads(g));                              \
        edge(in(EDGES), gives(edge_y), grads(edge_g));                \
    }
#define DEFINE_UNARY_SAMPLES(name, low, high, x, y, g, edge_y, edge_g) \
    DEFINE_UNARY_VALUES(name, low, high, x, y, g, edge_y, edge_g)      \
    SAMPLES(name) { values_##name(); }
UNARY_VALUES(DEFINE_UNARY_SAMPLES)
UNARY_VALUES_AND_MORE(DEFINE_UNARY_VALUES)

SAMPLES(sqrt)
{
    values_sqrt();
    edge(in("[0, -1]"), gives("[0, nan]"), grads("[inf, nan]")); /* 2.70 */
}
SAMPLES(log)
{
    values_log();
    edge(in("[0, -1]"), gives("[-inf, nan]"), grads("[inf, -1]")); /* 2.70 */
}
SAMPLES(log1p)
{
    values_log1p();
    edge(in("[-1, 1e-10]"), gives("[-inf, 1e-10]"), grads("[inf, 1]")); /* 2.70 */
}
SAMPLES(acos)
{
    values_acos();
    edge(in("[-1, 1, 2]"), gives("[3.14159265359, 0, nan]"), grads("[-inf, -inf, nan]")); /* 2.70 */
}
SAMPLES(round)
{
    values_round();
    edge(in("[0.5, 1.5, 2.5, -0.5, 3.7]"), gives("[0, 2, 2, -0., 4]"),
         grads("[0, 0, 0, 0, 0]")); /* 2.75: half to even */
    expect(tg_round(i64("[-3, 9007199254740993]")), "[-3, 9007199254740993]"); /* integers stay as they are */
    expect(tg_floor(i64("[-3, 9007199254740993]")), "[-3, 9007199254740993]");
    expect(tg_ceil(i64("[-3, 9007199254740993]")), "[-3, 9007199254740993]");
    expect(tg_trunc(i64("[-3, 9007199254740993]")), "[-3, 9007199254740993]");
}
SAMPLES(sigmoid)
{
    values_sigmoid();
    edge(in("[1000, -1000]"), gives("[1, 0]"), grads("[0, 0]")); /* 2.79 */
}
SAMPLES(logsigmoid)
{
    values_logsigmoid();
    edge(in("[-1000, 1000]"), gives("[-1000, 0]"), grads("[1, 0]")); /* 2.79 */
}

SAMPLES(mish)
{
    everywhere(-2, 2);
    edge(in(LINE), gives("[-0.298099742167, -0.129926963679, 0.375245211305, 1.94395895953]"),
         grads("[-0.0640978158923, 0.439815601722, 0.886424375358, 1.06931793428]"));
    edge(in(EDGES), gives("[0, -0., inf, nan, nan]"), grads("[0.6, 0.6, nan, nan, nan]"));
    edge(in("[800, -800]"), gives("[800, -0.]"), grads("[1, 0]"));
}
SAMPLES(selu)
{
    everywhere(-2, 2);
    sample(range(690, 800), S(3)); /* where exp overflows */
    edge(in(LINE), gives("[-1.36581435337, -0.388890197478, 0.525350493678, 2.10140197471]"),
         grads("[0.39228498748, 1.36920914337, 1.05070098736, 1.05070098736]"));
    edge(in(EDGES), gives("[0, -0., inf, -1.75809934085, nan]"),
         grads("[1.75809934085, 1.75809934085, 1.05070098736, 0, nan]")); /* 2.63 */
}
SAMPLES(softsign)
{
    everywhere(-2, 2);
    edge(in(LINE), gives("[-0.6, -0.2, 0.333333333333, 0.666666666667]"),
         grads("[0.16, 0.64, 0.444444444444, 0.111111111111]"));
    edge(in(EDGES), gives("[0, -0., nan, nan, nan]"), grads("[1, 1, 0, 0, nan]")); /* PyTorch has NaN at infinity */
}
SAMPLES(hardsigmoid)
{
    everywhere(-2, 2);
    sample(range(-6, 6), S(4));
    edge(in("[-4, -3, -1.5, 0.5, 3, 7]"), gives("[0, 0, 0.25, 0.583333333333, 1, 1]"),
         grads("[0, 0, 0.166666666667, 0.166666666667, 0, 0]")); /* 2.63 */
    edge(in(EDGES), gives("[0.5, 0.5, 1, 0, nan]"), grads("[0.166666666667, 0.166666666667, 0, 0, 0]"));
}
SAMPLES(hardswish)
{
    everywhere(-2, 2);
    sample(range(-6, 6), S(4));
    edge(in("[-4, -3, -1, 1, 3, 7]"), gives("[-0., -0., -0.333333333333, 0.666666666667, 3, 7]"),
         grads("[0, 0, 0.166666666667, 0.833333333333, 1, 1]"));
    edge(in(EDGES), gives("[0, -0., inf, nan, nan]"), grads("[0.5, 0.5, 1, 0, nan]")); /* PyTorch has 1 at NaN */
}

SAMPLES(isnan)
{
    everywhere(-2, 2);
    edge(in(EDGES), gives("[0, 0, 0, 0, 1]"));
    expect(tg_isnan(i64("[0, 1]")), "[0, 0]");
}
SAMPLES(isinf)
{
    everywhere(-2, 2);
    edge(in(EDGES), gives("[0, 0, 1, 1, 0]"));
    expect(tg_isinf(i64("[0, 1]")), "[0, 0]");
}
SAMPLES(isfinite)
{
    everywhere(-2, 2);
    edge(in(EDGES), gives("[1, 1, 0, 0, 0]"));
    expect(tg_isfinite(i64("[0, 1]")), "[1, 1]");
}
SAMPLES(logical_not)
{
    everywhere(-2, 2);
    edge(in(EDGES), gives("[1, 1, 0, 0, 0]"));
    expect(tg_logical_not(i64("[0, 4611686018427387904]")), "[1, 0]");
    expect(tg_logical_not(boolean("[0, 1]")), "[1, 0]");
}

/* ---- with numbers ---- */

static void everywhere_by(double number, double number2, double low, double high)
{
    sample(range(low, high), S(2, 3, 4), num(number), num2(number2));
    sample(range(low, high), S(17), num(number), num2(number2));
    sample(range(low, high), S0, num(number), num2(number2));
    sample(range(low, high), S(0, 3), num(number), num2(number2));
}

SAMPLES(add_scalar)
{
    everywhere_by(0.3, 0, -2, 2);
    edge(in("[1, -2, nan]"), num(0.5), gives("[1.5, -1.5, nan]"), grads("[1, 1, 1]"));
}
SAMPLES(sub_scalar)
{
    everywhere_by(0.3, 0, -2, 2);
    edge(in("[1, -2, inf]"), num(0.5), gives("[0.5, -2.5, inf]"), grads("[1, 1, 1]"));
}
SAMPLES(rsub_scalar)
{
    everywhere_by(0.3, 0, -2, 2);
    edge(in("[1, -2, inf]"), num(0.5), gives("[-0.5, 2.5, -inf]"), grads("[-1, -1, -1]"));
}
SAMPLES(mul_scalar)
{
    everywhere_by(0.3, 0, -2, 2);
    edge(in("[1, -2, inf]"), num(-3), gives("[-3, 6, -inf]"), grads("[-3, -3, -3]"));
}
SAMPLES(div_scalar)
{
    everywhere_by(0.3, 0, -2, 2);
    edge(in("[1, -2, 0]"), num(4), gives("[0.25, -0.5, 0]"), grads("[0.25, 0.25, 0.25]"));
    edge(in("[1, -2, 0]"), num(0), gives("[inf, -inf, nan]"), grads("[inf, inf, inf]"));
}
SAMPLES(pow_scalar)
{
    everywhere_by(3, 0, -2, 2);
    everywhere_by(2, 0, -2, 2);
    sample(range(0.2, 3), S(2, 3), num(2.5));
    sample(range(0.2, 3), S(2, 3), num(-1.5));
    sample(S(2, 3), num(1));
    edge(in("[0.25, 1, 2, 4]"), num(2.5), gives("[0.03125, 1, 5.65685424949, 32]"),
         grads("[0.3125, 2.5, 7.07106781187, 20]"));
    edge(in("[-2, 0, 1.5]"), num(3), gives("[-8, 0, 3.375]"), grads("[12, 0, 6.75]"));
    edge(in("[-2, 0, 4]"), num(-1), gives("[-0.5, inf, 0.25]"), grads("[-0.25, -inf, -0.0625]"));
    edge(in("[0, 4, inf, -1, nan]"), num(0.5), gives("[0, 2, inf, nan, nan]"),
         grads("[inf, 0.25, 0, nan, nan]"));                                             /* 2.70 */
    edge(in("[0, -3, nan, inf]"), num(0), gives("[1, 1, 1, 1]"), grads("[0, 0, 0, 0]")); /* 2.72 */
    edge(in("[0, -3]"), num(1), gives("[0, -3]"), grads("[1, 1]"));                      /* 2.72 */
    edge(in("[-0., 4, -inf, inf, -1]"), num(0.5), gives("[-0., 2, nan, inf, nan]"), grads("[-inf, 0.25, nan, 0, nan]"));
    edge(in("[-0., 4, -inf, inf, -1]"), num(-0.5), gives("[-inf, 0.5, nan, 0, nan]"),
         grads("[-inf, -0.0625, 0, 0, nan]"));
    edge(in("[nan, nan, 0, inf]"), num(0), gives("[1, 1, 1, 1]"), grads("[0, 0, 0, 0]"));
    edge(in("[0, -3]"), num(2), gives("[0, 9]"), grads("[0, -6]"));                      /* 2.72 */
    expect(tg_pow_scalar(i64("[2, -3, 0]"), 3), "[8, -27, 0]");
    expect(tg_pow_scalar(i64("[4, 9]"), 0.5), "[2, 3]"); /* a number that is no integer makes floats of them */
    refuse(tg_pow_scalar(i64("[2]"), -1), "Integers to negative integer powers are not allowed."); /* 2.72 */
}
SAMPLES(clamp)
{
    everywhere_by(-0.7, 0.9, -2, 2);
    sample(S(2, 3), num(-INFINITY), num2(0.5));
    edge(in("[-2, -1, 0.5, 1, 2, nan, inf]"), num(-1), num2(1), gives("[-1, -1, 0.5, 1, 1, nan, 1]"),
         grads("[0, 0, 1, 0, 0, 0, 0]"));                                                /* 2.69 */
    edge(in("[-2, 0, 2]"), num(1), num2(-1), gives("[-1, -1, -1]"), grads("[0, 0, 0]")); /* 2.69 */
    edge(in("[0, 0.5, 1]"), num(0.5), num2(0.5), gives("[0.5, 0.5, 0.5]"), grads("[0, 0, 0]"));
    edge(in("[-0., 0, 2]"), num(0), num2(1), gives("[-0., 0, 1]"), grads("[0, 0, 0]"));
    edge(in("[-inf, -1, inf, nan]"), num(-INFINITY), num2(INFINITY), gives("[-inf, -1, inf, nan]"),
         grads("[1, 1, 1, 0]")); /* infinite bounds mean no bound; PyTorch, which has None for that, gives 0 for them */
    edge(in("[-1, 2, nan]"), num(NAN), num2(1), gives("[nan, nan, nan]"), grads("[0, 0, 0]"));
    edge(in("[-1, 2, nan]"), num(0), num2(NAN), gives("[nan, nan, nan]"), grads("[0, 0, 0]"));
    expect(tg_clamp_(f64("[-1, 2]"), NAN, INFINITY), "[nan, nan]");
    expect(tg_clamp(i64("[-9, 0, 9]"), -3, 4), "[-3, 0, 4]");
    expect(tg_clamp(i64("[-9, 0, 9]"), -INFINITY, 4), "[-9, 0, 4]");
    refuse(tg_clamp(i64("[-9, 0, 9]"), 0.5, INFINITY), "0.5 is no value of a tensor of i64");
    refuse(tg_clamp(i64("[-9, 0, 9]"), 0, NAN), "nan is no value of a tensor of i64");
}
SAMPLES(clamp_min)
{
    everywhere_by(0.3, 0, -2, 2);
    edge(in("[-inf, -2, 0.5, 2, inf, nan]"), num(0.5), gives("[0.5, 0.5, 0.5, 2, inf, nan]"),
         grads("[0, 0, 0, 1, 1, 0]"));
    edge(in("[-2, 0.5]"), num(NAN), gives("[nan, nan]"), grads("[0, 0]"));
    expect(tg_clamp_min(i64("[-9, 9007199254740993]"), 0), "[0, 9007199254740993]");
}
SAMPLES(clamp_max)
{
    everywhere_by(0.3, 0, -2, 2);
    edge(in("[-inf, -2, 0.5, 2, inf, nan]"), num(0.5), gives("[-inf, -2, 0.5, 0.5, 0.5, nan]"),
         grads("[1, 1, 0, 0, 0, 0]"));
    edge(in("[-2, 0.5]"), num(NAN), gives("[nan, nan]"), grads("[0, 0]"));
    expect(tg_clamp_max(i64("[-9, 9007199254740993]"), 5), "[-9, 5]");
}
SAMPLES(leaky_relu)
{
    everywhere_by(0.1, 0, -2, 2);
    edge(in("[-2, 0, 3, nan]"), num(0.1), gives("[-0.2, 0, 3, nan]"), grads("[0.1, 0.1, 1, 0.1]")); /* 2.63 */
    refuse(tg_leaky_relu(i64("[1, -2]"), 0.1), "\"leaky_relu\" not implemented for 'i64'");
}
SAMPLES(elu)
{
    everywhere_by(1.5, 0, -2, 2);
    edge(in("[-2, 0, 3, nan]"), num(1.5), gives("[-1.29699707515, 0, 3, nan]"),
         grads("[0.203002924855, 1.5, 1, nan]")); /* 2.63; PyTorch's scalar loop has 1 at NaN, its vectors NaN */
    sample(range(690, 800), S(3), num(1.5));      /* where exp overflows */
}
SAMPLES(celu)
{
    everywhere_by(1.5, 0, -2, 2);
    sample(range(690, 800), S(3), num(0.5));
    edge(in("[-1.5, -0.25, 0, 2, nan, -inf]"), num(1), gives("[-0.776869839852, -0.221199216929, 0, 2, nan, -1]"),
         grads("[0.223130160148, 0.778800783071, 1, 1, nan, 0]"));
    edge(in("[-1.5, 3]"), num(0.5), gives("[-0.475106465816, 3]"), grads("[0.0497870683679, 1]"));
}
SAMPLES(hardtanh)
{
    everywhere_by(-0.7, 0.9, -2, 2);
    edge(in("[-2, -1, 0.5, 1, 2, nan]"), num(-1), num2(1), gives("[-1, -1, 0.5, 1, 1, nan]"),
         grads("[0, 0, 1, 0, 0, 0]")); /* 2.63; PyTorch has 1 at NaN */
    refuse(tg_hardtanh(ones(2), 2, 1), "tg_hardtanh: min_val cannot be greater than max_val");
}
SAMPLES(relu6)
{
    everywhere(-2, 2);
    sample(range(-3, 9), S(4));
    edge(in("[-4, 0, 1, 6, 7, nan]"), gives("[0, 0, 1, 6, 6, nan]"), grads("[0, 0, 1, 0, 0, 0]")); /* 2.63 */
    expect(tg_relu6(i64("[-9, 3, 9]")), "[0, 3, 6]");
}
SAMPLES(softplus)
{
    everywhere_by(2, 3, -2, 2);
    edge(in("[-2, 0, 3, 25, -1000]"), num(1), num2(20), gives("[0.126928011043, 0.69314718056, 3.04858735157, 25, 0]"),
         grads("[0.119202922022, 0.5, 0.952574126822, 1, 0]")); /* 2.79 */
    edge(in("[-2, 0, 1.9, 2.1]"), num(2), num2(4), gives("[0.0090749639589, 0.34657359028, 1.91106210823, 2.1]"),
         grads("[0.0179862099621, 0.5, 0.978118729064, 1]"));
}
SAMPLES(gelu)
{
    everywhere(-2, 2);
    sample(S(2, 3, 4), flag(true));
    edge(in("[-1, 0, 1, 2.5, nan]"), gives("[-0.158655253931, 0, 0.841344746069, 2.48447583669, nan]"),
         grads("[-0.0833154705877, 0.5, 1.08331547059, 1.03761108591, nan]"));
    edge(in("[-1, 0, 1, 2.5, nan]"), flag(true), gives("[-0.158808009392, 0, 0.841191990608, 2.48491573391, nan]"),
         grads("[-0.0829640838458, 0.5, 1.08296408385, 1.03795157621, nan]"));
    {
        tg_tensor *x = tg_set_requires_grad(of(TG_F16, "[300, -300, 65504]"), true); /* their squares overflow */
        expect(gradient(tg_gelu(x, true), x, 0), "[1, 0, 1]");
    }
}

/* ---- two inputs ---- */

/* The shapes that an op of two inputs broadcasts: the same, a row, a column, both, 0-dim, one element, none. */
static void binary(double low, double high)
{
    sample(range(low, high), S(2, 3, 4), S(2, 3, 4));
    sample(range(low, high), S(3, 4), S(4));
    sample(range(low, high), S(3, 1), S(2, 3, 4));
    sample(range(low, high), S(3, 1), S(1, 4));
    sample(range(low, high), S(2, 3), S0);
    sample(range(low, high), S0, S(2, 3));
    sample(range(low, high), S0, S0);
    sample(range(low, high), S(1), S(17));
    sample(range(low, high), S(0, 3), S(1, 3));
    sample(range(low, high), S(2, 3, 1), S(0));
}

/* name; [1, 2, 3, nan] against 2 (nan against nan, where both are tensors); 2^53 against 2^53 + 1 */
#define COMPARISONS(OP)           \
    OP(eq, "[0, 1, 0, 0]", "[0]") \
    OP(ne, "[1, 0, 1, 1]", "[1]") \
    OP(lt, "[1, 0, 0, 0]", "[1]") \
    OP(le, "[1, 1, 0, 0]", "[1]") \
    OP(gt, "[0, 0, 1, 0]", "[0]") \
    OP(ge, "[0, 1, 1, 0]", "[0]")
#define DEFINE_COMPARISON_SAMPLES(name, wanted, of_large)                                    \
    SAMPLES(name)                                                                            \
    {                                                                                        \
        binary(-2, 2);                                                                       \
        edge(in("[1, 2, 3, nan]"), in("[2, 2, 2, nan]"), gives(wanted));                     \
        expect(tg_##name(i64("[9007199254740992]"), i64("[9007199254740993]")), of_large);   \
    }                                                                                        \
    SAMPLES(name##_scalar)                                                                   \
    {                                                                                        \
        everywhere_by(0.3, 0, -2, 2);                                                        \
        edge(in("[1, 2, 3, nan]"), num(2), gives(wanted));                                   \
        expect(tg_##name##_scalar(i64("[9007199254740992]"), 9007199254740994.0), of_large); \
    }
COMPARISONS(DEFINE_COMPARISON_SAMPLES)

SAMPLES(add)
{
    binary(-2, 2);
    edge(in("[1, 2, inf]"), in("[0.5, -3, -inf]"), gives("[1.5, -1, nan]"), grads("[1, 1, 1]"), grads("[1, 1, 1]"));
    edge(in("[[1], [2]]"), in("[10, 20, 30]"), gives("[[11, 21, 31], [12, 22, 32]]"), grads("[[3], [3]]"),
         grads("[2, 2, 2]")); /* 2.58 */
    refuse(tg_add(ones(2), ones(3)),
           "The size of tensor a (2) must match the size of tensor b (3) at non-singleton dimension 0");
    refuse(tg_add(ones(2), ones(3)), "shapes [2] and [3] do not broadcast");
    refuse(tg_add(ones(2, 3), ones(2, 4)),
           "The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1");
}
SAMPLES(sub)
{
    binary(-2, 2);
    edge(in("[1, 2]"), in("[0.5, -3]"), gives("[0.5, 5]"), grads("[1, 1]"), grads("[-1, -1]"));
    refuse(tg_sub(boolean("[1]"), boolean("[0]")),
           "Subtraction, the `-` operator, with two bool tensors is not supported");
}
SAMPLES(mul)
{
    binary(-2, 2);
    edge(in("[1, 2, inf]"), in("[0.5, -3, 0]"), gives("[0.5, -6, nan]"), grads("[0.5, -3, 0]"), grads("[1, 2, inf]"));
    refuse(tg_mul(NULL, ones(1)), "argument a is NULL");
    refuse(tg_mul(ones(1), NULL), "argument b is NULL");
}
SAMPLES(div)
{
    binary(0.5, 2);
    edge(in("[1, 0, -1]"), in("[0, 0, 4]"), gives("[inf, nan, -0.25]"), grads("[inf, inf, 0.25]"),
         grads("[-inf, nan, 0.0625]")); /* 2.73 */
    expect(tg_div(i64("[7, -7]"), i64("[2, 2]")), "[3.5, -3.5]");
    expect(tg_div(i64("[1]"), i64("[0]")), "[inf]");
}
SAMPLES(pow)
{
    binary(0.3, 2);
    edge(in("[2, 3, 0.5]"), in("[3, 0.5, -2]"), gives("[8, 1.73205080757, 4]"), grads("[12, 0.288675134595, -16]"),
         grads("[5.54517744448, 1.90285230179, -2.77258872224]"));
    edge(in("[nan, nan, 1, inf, -1, -inf]"), in("[0, 1, nan, 0, 0.5, 3]"), gives("[1, nan, 1, 1, nan, -inf]"),
         grads("[0, 1, nan, 0, nan, inf]"), grads("[nan, nan, 0, inf, nan, nan]"));
    edge(in("[0, 0, 0, -2, -2]"), in("[0, 1, 2, 2, 3]"), gives("[1, 0, 0, 4, -8]"), grads("[0, 1, 0, -4, 12]"),
         grads("[0, 0, 0, nan, nan]")); /* 2.72 */
    edge(in("[0, 0, -2]"), in("[0.5, -1, 0.5]"), gives("[0, inf, nan]"), grads("[inf, -inf, nan]"),
         grads("[0, -inf, nan]")); /* 2.72 */
    expect(tg_pow(i64("[3, -2, 2, 0]"), i64("[3, 3, 62, 0]")), "[27, -8, 4611686018427387904, 1]");
}
SAMPLES(maximum)
{
    binary(-2, 2);
    edge(in("[1, 2, 3, nan, 1]"), in("[1, 3, 2, 1, nan]"), gives("[1, 3, 3, nan, nan]"), grads("[0.5, 0, 1, 1, 1]"),
         grads("[0.5, 1, 0, 1, 1]")); /* 2.68 */
}
SAMPLES(minimum)
{
    binary(-2, 2);
    edge(in("[1, 2, 3, nan, 1]"), in("[1, 3, 2, 1, nan]"), gives("[1, 2, 2, nan, nan]"), grads("[0.5, 1, 0, 1, 1]"),
         grads("[0.5, 0, 1, 1, 1]")); /* 2.68 */
}
SAMPLES(atan2)
{
    binary(-2, 2);
    edge(in("[1, -1, 0, 2]"), in("[1, -1, -1, 0]"),
         gives("[0.785398163397, -2.35619449019, 3.14159265359, 1.57079632679]"), grads("[0.5, -0.5, -1, 0]"),
         grads("[-0.5, 0.5, 0, -0.5]"));
    edge(in("[0]"), in("[0]"), gives("[0]"), grads("[0]"), grads("[0]")); /* 2.70 */
    edge(in("[0, -0., 0, inf, nan]"), in("[-0., 0, -1, 1, 1]"),
         gives("[3.14159265359, -0., 3.14159265359, 1.57079632679, nan]"), grads("[0, 0, -1, 0, nan]"),
         grads("[0, 0, 0, nan, nan]"));
    {
        tg_tensor *a = leaf("[1e-320, 0, 1e200]"), *b = f64("[0, 1e-320, 1e200]");
        expect(gradient(tg_atan2(a, b), a, 0), "[0, 0, 0]");
        expect(gradient(tg_atan2(b, a), a, 0), "[0, 0, 0]");
    }
}

SAMPLES(fmod)
{
    sample(range(4.2, 4.8), S(2, 3), range(1.5, 2), S(2, 3));
    sample(range(-4.8, -4.2), S(3), range(1.5, 2), S(2, 3));
    edge(in("[5, -5, 5.5, -5.5, 7]"), in("[3, 3, -2, -2, inf]"), gives("[2, -2, 1.5, -1.5, 7]"),
         grads("[1, 1, 1, 1, 1]"), grads("[-1, 1, 2, -2, 0]"));
    expect(tg_fmod(f64("[1, nan, 3]"), f64("[0.1, 1, 0]")), "[0.0999999999999999, nan, nan]");
    expect(tg_fmod(i64("[7, -7, 7, 7]"), i64("[3, 3, -3, 0]")), "[1, -1, 1, 0]");
    refuse(tg_fmod(boolean("[1]"), boolean("[1]")), "not implemented for 'bool'");
}
SAMPLES(remainder)
{
    sample(range(4.2, 4.8), S(2, 3), range(1.5, 2), S(2, 3));
    sample(range(-4.8, -4.2), S(3), range(1.5, 2), S(2, 3));
    edge(in("[5, -5, 5.5, -5.5]"), in("[3, 3, -2, -2]"), gives("[2, 1, -0.5, -1.5]"), grads("[1, 1, 1, 1]"),
         grads("[-1, 2, 3, -2]"));
    expect(tg_remainder(i64("[7, -7, 7, 7]"), i64("[3, 3, -3, 0]")), "[1, 2, -2, 0]");
    refuse(tg_remainder(boolean("[1]"), boolean("[1]")), "not implemented for 'bool'");
}
SAMPLES(floor_divide)
{
    sample(range(4.2, 4.8), S(2, 3), range(1.5, 2), S(3));
    edge(in("[5, -5, 5.5, -5.5, 7]"), in("[3, 3, -2, -2, inf]"), gives("[1, -2, -3, 2, 0]"), grads("[0, 0, 0, 0, 0]"), grads("[0, 0, 0, 0, 0]"));
    expect(tg_floor_divide(f64("[1, -1, 0, nan, 0.5]"), f64("[0, 0, 0, 1, -1]")), "[inf, -inf, nan, nan, -1]");
    expect(tg_floor_divide(i64("[7, -7, 7, 7, -9]"), i64("[3, 3, -3, 0, -1]")), "[2, -3, -3, 0, 9]");
    refuse(tg_floor_divide(boolean("[1]"), boolean("[1]")), "not implemented for 'bool'");
}
SAMPLES(hypot)
{
    binary(0.3, 2);
    binary(-2, -0.3);
    edge(in("[3, -5, 1e+30, inf, nan]"), in("[4, 12, 1e+30, 1, 1]"), gives("[5, 13, 1.41421356237e+30, inf, nan]"),
         grads("[0.6, -0.384615384615, 0.707106781187, nan, nan]"),
         grads("[0.8, 0.923076923077, 0.707106781187, 0, nan]"));
    refuse(tg_hypot(i64("[1]"), i64("[1]")), "not implemented for 'i64'");
}
SAMPLES(logaddexp)
{
    binary(-2, 2);
    edge(in("[1, -2, 800, 1]"), in("[2, 1, 801, nan]"), gives("[2.31326168752, 1.04858735157, 801.313261688, nan]"),
         grads("[0.26894142137, 0.0474258731776, 0.26894142137, nan]"),
         grads("[0.73105857863, 0.952574126822, 0.73105857863, nan]"));
    expect(tg_logaddexp(f64("[inf, -inf, inf, 0]"), f64("[inf, -inf, -inf, -inf]")), "[inf, -inf, inf, 0]");
    refuse(tg_logaddexp(i64("[1]"), i64("[1]")), "not implemented for 'i64'");
}
SAMPLES(xlogy)
{
    sample(range(0.3, 2), S(2, 3), S(2, 3));
    sample(range(0.3, 2), S(3), S(2, 3));
    edge(in("[1, -2, 0, 0.5]"), in("[2, 0.5, 0, 3]"), gives("[0.69314718056, 1.38629436112, 0, 0.549306144334]"),
         grads("[0.69314718056, -0.69314718056, 0, 1.09861228867]"), grads("[0.5, -4, nan, 0.166666666667]"));
    expect(tg_xlogy(f64("[0, nan, 1]"), f64("[nan, 1, -1]")), "[nan, nan, nan]");
    expect(tg_xlogy(i64("[2]"), i64("[1]")), "[0]");
}
SAMPLES(polygamma)
{
    sample(range(0.3, 3), S(2, 3, 4), count(1));
    sample(range(-0.7, -0.3), S(5), count(1));
    sample(range(0.3, 3), S(17), count(3));
    sample(range(0.3, 3), S0, count(0));
    sample(range(1, 3), S(2, 0, 3), count(2));
    edge(in("[0.25, 1, 2.5, -0.25]"), count(1), gives("[17.1973291545, 1.64493406685, 0.4903577561, 18.5418796477]"),
         grads("[-129.327739938, -2.40411380632, -0.236204051642, 122.697366784]"));
    edge(in("[0.25, 1, 2.5, -0.25]"), count(2), gives("[-129.327739938, -2.40411380632, -0.236204051642, 122.697366784]"),
         grads("[1538.78214401, 6.49393940227, 0.223905848817, 1555.76331253]"));
    edge(in("[0, -0., inf, nan, -1]"), count(2), gives("[-inf, -inf, -0., nan, -inf]"), grads("[inf, inf, 0, nan, inf]"));
    edge(in("[0, inf, nan, -1, -2]"), count(1), gives("[inf, 0, nan, inf, inf]"), grads("[-inf, 0, nan, -inf, -inf]"));
    expect(tg_polygamma(1, i64("[1]")), "[1.64493406685]");
    refuse(tg_polygamma(-1, ones(2)), "polygamma(n, x) does not support negative n.");
    refuse(tg_polygamma_(1, i64("[1]")), "can't be cast");
}
SAMPLES(bitwise_and)
{
    sample(ids("[[12, -7, 5], [0, 1, -1]]"), ids("[[10, 3, -4], [7, 1, -1]]"));
    sample(ids("[12, -7]"), ids("[[10], [3]]"));
    sample(mask("[0, 0, 1, 1]"), mask("[0, 1, 0, 1]"));
    expect(tg_bitwise_and(i64("[12, -7, 5]"), i64("[10, 3, -4]")), "[8, 1, 4]");
    expect(tg_bitwise_and(boolean("[0, 0, 1, 1]"), boolean("[0, 1, 0, 1]")), "[0, 0, 0, 1]");
    expect(tg_bitwise_and(boolean("[0, 1]"), i64("[7, 7]")), "[0, 1]");
    expect(tg_bitwise_and(tg_to_dtype(i64("[255, 12]"), TG_U8), tg_to_dtype(i64("[130, 6]"), TG_U8)), "[130, 4]");
    expect(tg_bitwise_and_(i64("[12, 5]"), i64("[10]")), "[8, 0]");
    refuse(tg_bitwise_and(ones(2), ones(2)), "not implemented for 'f64'");
    refuse(tg_bitwise_and(i64("[1]"), ones(1)), "not implemented for 'f64'");
    refuse(tg_bitwise_and(i64("[1, 2, 3]"), i64("[1, 2]")), "must match the size");
    refuse(tg_bitwise_and_(boolean("[1]"), i64("[1]")), "can't be cast");
}
SAMPLES(bitwise_or)
{
    sample(ids("[[12, -7, 5], [0, 1, -1]]"), ids("[[10, 3, -4], [7, 1, -1]]"));
    expect(tg_bitwise_or(i64("[12, -7, 5]"), i64("[10, 3, -4]")), "[14, -5, -3]");
    expect(tg_bitwise_or(boolean("[0, 0, 1, 1]"), boolean("[0, 1, 0, 1]")), "[0, 1, 1, 1]");
    expect(tg_bitwise_or_(i64("[12, 5]"), i64("[10]")), "[14, 15]");
    refuse(tg_bitwise_or(ones(2), ones(2)), "not implemented for 'f64'");
}
SAMPLES(bitwise_xor)
{
    sample(ids("[[12, -7, 5], [0, 1, -1]]"), ids("[[10, 3, -4], [7, 1, -1]]"));
    expect(tg_bitwise_xor(i64("[12, -7, 5]"), i64("[10, 3, -4]")), "[6, -6, -7]");
    expect(tg_bitwise_xor(boolean("[0, 0, 1, 1]"), boolean("[0, 1, 0, 1]")), "[0, 1, 1, 0]");
    expect(tg_bitwise_xor_(i64("[12, 5]"), i64("[10]")), "[6, 15]");
    refuse(tg_bitwise_xor(ones(2), ones(2)), "not implemented for 'f64'");
}
SAMPLES(bitwise_not)
{
    sample(ids("[[12, -7, 5], [0, 1, -1]]"));
    sample(mask("[0, 1]"));
    expect(tg_bitwise_not(i64("[0, -1, 5]")), "[-1, 0, -6]");
    expect(tg_bitwise_not(boolean("[0, 1]")), "[1, 0]");
    expect(tg_bitwise_not(tg_to_dtype(i64("[0, 200]"), TG_U8)), "[255, 55]");
    expect(tg_bitwise_not_(tg_to_dtype(i64("[0, 7]"), TG_I32)), "[-1, -8]");
    refuse(tg_bitwise_not(ones(2)), "not implemented for 'f64'");
}
SAMPLES(bitwise_left_shift)
{
    sample(ids("[[12, -7, 5], [0, 1, -1]]"), ids("[[1, 3, 2], [7, 63, 0]]"));
    expect(tg_bitwise_left_shift(i64("[1, 1, 1, -3, 5]"), i64("[3, 64, -1, 2, 0]")), "[8, 0, 0, -12, 5]");
    expect(tg_bitwise_left_shift(tg_to_dtype(i64("[1, 1, 3]"), TG_I32), tg_to_dtype(i64("[31, 32, 30]"), TG_I32)),
           "[-2147483648, 0, -1073741824]");
    expect(tg_bitwise_left_shift(tg_to_dtype(i64("[3, 1]"), TG_U8), tg_to_dtype(i64("[7, 9]"), TG_U8)), "[128, 0]");
    expect(tg_bitwise_left_shift_(i64("[1, 2]"), i64("[4]")), "[16, 32]");
    refuse(tg_bitwise_left_shift(boolean("[1]"), boolean("[1]")), "not implemented for 'bool'");
    refuse(tg_bitwise_left_shift(ones(2), ones(2)), "not implemented for 'f64'");
}
SAMPLES(bitwise_right_shift)
{
    sample(ids("[[12, -7, 5], [0, 1, -1]]"), ids("[[1, 3, 2], [7, 63, 0]]"));
    expect(tg_bitwise_right_shift(i64("[-9, 9, -9, -9, 9]"), i64("[64, -1, 1, -1, 2]")), "[-1, 0, -5, -1, 2]");
    expect(tg_bitwise_right_shift(tg_to_dtype(i64("[200, 200]"), TG_U8), tg_to_dtype(i64("[3, 8]"), TG_U8)), "[25, 0]");
    expect(tg_bitwise_right_shift_(i64("[17, -17]"), i64("[4]")), "[1, -2]");
    refuse(tg_bitwise_right_shift(ones(2), ones(2)), "not implemented for 'f64'");
}
SAMPLES(gcd)
{
    sample(ids("[[12, -8, 5], [0, 1, -1]]"), ids("[[18, 12, 0], [7, 3, 0]]"));
    expect(tg_gcd(i64("[12, -8, 0, 0, 7]"), i64("[18, 12, 0, -5, 13]")), "[6, 4, 0, 5, 1]");
    refuse(tg_gcd(ones(2), ones(2)), "not implemented for 'f64'");
    refuse(tg_gcd(boolean("[1]"), boolean("[1]")), "not implemented for 'bool'");
}
SAMPLES(lcm)
{
    sample(ids("[[12, -8, 5], [0, 1, -1]]"), ids("[[18, 12, 0], [7, 3, 0]]"));
    expect(tg_lcm(i64("[12, -8, 0, 0, 7]"), i64("[18, 12, 0, -5, 13]")), "[36, 24, 0, 0, 91]");
    refuse(tg_lcm(ones(2), ones(2)), "not implemented for 'f64'");
}
SAMPLES(copysign)
{
    binary(0.3, 2);
    binary(-2, -0.3);
    edge(in("[1, -2, 0, -0., 3]"), in("[-1, 1, -0., 1, -0.]"), gives("[-1, 2, -0., 0, -3]"), grads("[-1, -1, 0, 0, -1]"),
         grads("[0, 0, 0, 0, 0]"));
    expect(tg_copysign(f64("[nan, inf]"), f64("[1, -1]")), "[nan, -inf]");
    expect(tg_copysign(i64("[1, 2]"), i64("[-2, 3]")), "[-1, 2]");
}
SAMPLES(heaviside)
{
    binary(0.3, 2);
    edge(in("[-1, 0, -0., 2, nan, inf]"), in("[5, 0.5, 7, 5, 5, 5]"), gives("[0, 0.5, 7, 1, 0, 1]"),
         grads("[0, 0, 0, 0, 0, 0]"), grads("[0, 0, 0, 0, 0, 0]"));
    expect(tg_heaviside(i64("[-2, 0, 2]"), i64("[3]")), "[0, 3, 1]");
    expect(tg_heaviside(boolean("[1, 0]"), boolean("[0, 1]")), "[1, 1]");
    refuse(tg_heaviside(ones(2), i64("[1]")), "heaviside is not yet implemented for tensors with different dtypes.");
}
SAMPLES(nextafter)
{
    sample(range(0.3, 2), S(2, 3), range(3, 4), S(2, 3));
    edge(in("[1, 1, 0, 1, 2]"), in("[2, 0, -1, nan, 2]"), gives("[1, 1, 0, nan, 2]"), grads("[1, 1, 1, 1, 0]"),
         grads("[0, 0, 0, 0, 0]"));
    expect(tg_mul_scalar(tg_nextafter(f64("[0, -0., inf]"), f64("[-1, 1, 0]")), 0.5), "[-0., 0, 8.9884656743115785e307]");
    expect(tg_sub_scalar(tg_nextafter(f64("[1, 1]"), f64("[2, 0]")), 1), "[2.220446049250313e-16, -1.1102230246251565e-16]");
    expect(tg_sub_scalar(tg_nextafter(tg_to_dtype(f64("[1, -1]"), TG_F32), tg_to_dtype(f64("[2, 0]"), TG_F32)), 1),
           "[1.1920928955078125e-07, -1.999999940395355]");
    expect(tg_nextafter(tg_to_dtype(f64("[1, 0, inf, -1, 1, -0.]"), TG_BF16), tg_to_dtype(f64("[2, 1, 0, 0, 1, -3]"), TG_BF16)),
           "[1.0078125, 9.183549615799121e-41, 3.3895313892515355e38, -0.99609375, 1, -9.183549615799121e-41]");
    expect(tg_nextafter(tg_to_dtype(f64("[1, 0, inf, -1, 1, nan]"), TG_F16), tg_to_dtype(f64("[2, 1, 0, 0, 1, 1]"), TG_F16)),
           "[1.0009765625, 5.960464477539063e-08, 65504, -0.99951171875, 1, nan]");
    refuse(tg_nextafter(i64("[1]"), i64("[2]")), "not implemented for 'i64'");
}
SAMPLES(logaddexp2)
{
    binary(-2, 2);
    edge(in("[1, -2, 1200, 1]"), in("[2, 1, 1201, nan]"), gives("[2.58496250072, 1.16992500144, 1201.58496250072, nan]"),
         grads("[0.333333333333, 0.111111111111, 0.333333333333, nan]"),
         grads("[0.666666666667, 0.888888888889, 0.666666666667, nan]"));
    expect(tg_logaddexp2(f64("[inf, -inf, inf, 0]"), f64("[inf, -inf, -inf, -inf]")), "[inf, -inf, inf, 0]");
    refuse(tg_logaddexp2(i64("[1]"), i64("[1]")), "not implemented for 'i64'");
}
SAMPLES(xlog1py)
{
    sample(range(0.3, 2), S(2, 3), S(2, 3));
    sample(range(0.3, 2), S(3), S(2, 3));
    edge(in("[1, -2, 0, 0.5]"), in("[1, -0.5, -1, 2]"), gives("[0.69314718056, 1.38629436112, 0, 0.549306144334]"),
         grads("[0.69314718056, -0.69314718056, 0, 1.09861228867]"), grads("[0.5, -4, nan, 0.166666666667]"));
    expect(tg_xlog1py(f64("[0, nan, 1, 1]"), f64("[nan, 1, -2, 1e-20]")), "[nan, nan, nan, 1e-20]");
    expect(tg_xlog1py(i64("[2]"), i64("[0]")), "[0]");
}
SAMPLES(positive)
{
    sample(S(2, 3));
    expect(tg_positive(i64("[-1, 2]")), "[-1, 2]");
    refuse(tg_positive(boolean("[1]")), "The `+` operator, on a bool tensor is not supported.");
}
SAMPLES(signbit)
{
    sample(S(2, 3));
    expect(tg_signbit(f64("[0, -0., inf, -inf, -2, 3]")), "[0, 1, 0, 1, 1, 0]");
    expect(tg_signbit(tg_to_dtype(f64("[-0., 1]"), TG_F16)), "[1, 0]");
    expect(tg_signbit(i64("[-1, 0, 1]")), "[1, 0, 0]");
    expect(tg_signbit(boolean("[1, 0]")), "[0, 0]");
}
SAMPLES(isposinf)
{
    sample(S(2, 3));
    expect(tg_isposinf(f64("[0, inf, -inf, nan]")), "[0, 1, 0, 0]");
    expect(tg_isposinf(i64("[1, 0]")), "[0, 0]");
}
SAMPLES(isneginf)
{
    sample(S(2, 3));
    expect(tg_isneginf(f64("[0, inf, -inf, nan]")), "[0, 0, 1, 0]");
    expect(tg_isneginf(i64("[1, 0]")), "[0, 0]");
}
SAMPLES(isclose)
{
    sample(S(2, 3), S(3), num(0.5), num2(0.1));
    expect(tg_isclose(f64("[1, 1, 1, 0]"), f64("[1.000001, 1.1, 1, 1e-9]"), 1e-5, 1e-8, false), "[1, 0, 1, 1]");
    expect(tg_isclose(f64("[inf, inf, 1, nan, -inf]"), f64("[inf, -inf, inf, nan, 1]"), 1e-5, 1e-8, false), "[1, 0, 0, 0, 0]");
    expect(tg_isclose(f64("[nan, nan, 1]"), f64("[nan, 1, nan]"), 1e-5, 1e-8, true), "[1, 0, 0]");
    expect(tg_isclose(f64("[1, 2]"), f64("[1, 2.0000001]"), 0, 0, false), "[1, 0]");
    expect(tg_isclose(i64("[1, 2, 100]"), i64("[1, 3, 101]"), 0.01, 0, false), "[1, 0, 1]");
    refuse(tg_isclose(ones(2), i64("[1]"), 0, 0, false), "f64 did not match i64");
    refuse(tg_isclose(ones(2), ones(2), -1, 0, false), "rtol must be greater than or equal to zero, but got -1");
    refuse(tg_isclose(ones(2), ones(2), 0, NAN, false), "atol must be greater than or equal to zero");
}
SAMPLES(ndtr)
{
    everywhere(-2, 2);
    edge(in("[-1.5, 0, 0.5, inf, -inf, nan]"), gives("[0.0668072012689, 0.5, 0.691462461274, 1, 0, nan]"),
         grads("[0.129517595666, 0.398942280401, 0.352065326764, 0, 0, nan]"));
    expect(tg_log(tg_ndtr(f64("[-10, -30]"))), "[-53.2312851506, -454.321243988]");
    expect(tg_ndtr(i64("[0, 1]")), "[0.5, 0.841344746069]");
}
SAMPLES(mvlgamma)
{
    sample(range(3.2, 6), S(2, 3, 4), count(3));
    sample(range(3.2, 6), S(17), count(1));
    sample(range(3.2, 6), S0, count(5));
    sample(range(3.2, 6), S(2, 0, 3), count(2));
    edge(in("[3, 2.5, 4]"), count(2), gives("[1.55019499396, 0.857047813398, 3.5650980145]"),
         grads("[1.62594097574, 1.12594097574, 2.35927430908]"));
    expect(tg_mvlgamma(i64("[3]"), 2), "[1.55019499396]");
    refuse(tg_mvlgamma(ones(2), 0), "p has to be greater than or equal to 1");
    refuse(tg_mvlgamma(ones(2), 4097), "at most 4096");
}
SAMPLES(ldexp)
{
    sample(S(2, 3), S(3));
    edge(in("[1.5, -3]"), in("[-2, 4]"), gives("[0.375, -48]"), grads("[0.25, 16]"), grads("[0.259930192708, -33.2710646667]"));
    expect(tg_ldexp(f64("[1.5, 1]"), i64("[-2, 10]")), "[0.375, 1024]");
}
SAMPLES(float_power)
{
    binary(0.3, 2);
    edge(in("[2, 4]"), in("[3, 0.5]"), gives("[8, 2]"), grads("[12, 0.25]"), grads("[5.54517744448, 2.77258872224]"));
    expect(tg_float_power(i64("[2]"), i64("[-2]")), "[0.25]");
    CHECK(tg_dtype_of(tg_float_power(tg_to_dtype(ones(1), TG_F16), i64("[1]"))) == TG_F64);
}
SAMPLES(float_power_scalar)
{
    sample(range(0.3, 2), S(2, 3), num(3));
    edge(in("[2, 4]"), num(-0.5), gives("[0.707106781187, 0.5]"), grads("[-0.176776695297, -0.0625]"));
    expect(tg_float_power_scalar(i64("[2]"), -2), "[0.25]");
}
SAMPLES(div_rounded)
{
    sample(range(4.2, 4.8), S(2, 3), range(1.5, 2), S(3), text("trunc"));
    sample(range(4.2, 4.8), S(2, 3), range(1.5, 2), S(3), text("floor"));
    expect(tg_div_rounded(f64("[5, -5, 1]"), f64("[3, 3, 0]"), "trunc"), "[1, -1, inf]");
    edge(in("[0, 1, -5, 5]"), in("[0, 0, 3, inf]"), text("trunc"), gives("[nan, inf, -1, 0]"), grads("[0, 0, 0, 0]"),
         grads("[0, 0, 0, 0]"));
    expect(tg_div_rounded(f64("[5, -5]"), f64("[3, 3]"), "floor"), "[1, -2]");
    expect(tg_div_rounded(i64("[7, -7, 7, 7]"), i64("[3, 3, -3, 0]"), "trunc"), "[2, -2, -2, 0]");
    refuse(tg_div_rounded(ones(2), ones(2), "up"), "but found 'up'");
}
SAMPLES(fmax)
{
    binary(-2, 2);
    edge(in("[1, 2, 3, nan, 1, nan]"), in("[1, 3, 2, 1, nan, nan]"), gives("[1, 3, 3, 1, 1, nan]"),
         grads("[0.5, 0, 1, 0, 1, 1]"), grads("[0.5, 1, 0, 1, 0, 1]"));
    expect(tg_fmax(i64("[1, -2]"), f64("[0, nan]")), "[1, -2]");
}
SAMPLES(fmin)
{
    binary(-2, 2);
    edge(in("[1, 2, 3, nan, 1, nan]"), in("[1, 3, 2, 1, nan, nan]"), gives("[1, 2, 2, 1, 1, nan]"),
         grads("[0.5, 1, 0, 0, 1, 1]"), grads("[0.5, 0, 1, 1, 0, 1]"));
}
SAMPLES(frac)
{
    sample(range(0.1, 0.9), S(2, 3));
    sample(range(0.1, 0.9), S0);
    sample(range(0.1, 0.9), S(0, 3));
    edge(in("[-1.5, 0, 2.25, nan]"), gives("[-0.5, 0, 0.25, nan]"), grads("[1, 1, 1, 1]"));
    refuse(tg_frac(i64("[1]")), "\"frac\" not implemented for 'i64'");
}
SAMPLES(round_decimals)
{
    sample(range(0.1, 0.9), S(2, 3), count(0));
    sample(range(0.1, 0.9), S(5), count(3));
    sample(range(0.1, 0.9), S(0, 3), count(-2));
    edge(in("[1234.5678, -0.5, nan]"), count(2), gives("[1234.57, -0.5, nan]"), grads("[0, 0, 0]"));
    edge(in("[1234.5678, 150]"), count(-2), gives("[1200, 200]"), grads("[0, 0]"));
    refuse(tg_round_decimals(i64("[1]"), 1), "Got: i64");
}
SAMPLES(sinc)
{
    everywhere(0.1, 2);
    edge(in("[-1.5, 0, 0.5, 1]"), gives("[-0.212206590789, 1, 0.636619772368, 3.89817183252e-17]"),
         grads("[-0.141471060526, 0, -1.27323954474, -1]"));
    expect(tg_sinc(i64("[0, 1]")), "[1, 0]");
}
SAMPLES(logit)
{
    sample(range(0.1, 0.9), S(2, 3), num(-1));
    sample(range(0.1, 0.9), S(17), num(0.2));
    sample(range(0.1, 0.9), S0, num(0));
    sample(range(0.1, 0.9), S(0, 3), num(-1));
    edge(in("[0.25, 0.5, 0.9]"), num(-1), gives("[-1.09861228867, 0, 2.19722457734]"),
         grads("[5.33333333333, 4, 11.1111111111]"));
    edge(in("[0.25, 0.5, 0.9, nan]"), num(0.3), gives("[-0.847297860387, 0, 0.847297860387, nan]"),
         grads("[0, 4, 0, nan]"));
    expect(tg_logit(f64("[0, 1, 2]"), -1), "[-inf, inf, nan]");
    refuse(tg_logit(i64("[1]"), -1), "\"logit\" not implemented for 'i64'");
}
SAMPLES(nan_to_num)
{
    sample(S(2, 3), num(1), num2(2));
    sample(S0, num(1), num2(2));
    sample(S(0, 2), num(1), num2(2));
    edge(in("[nan, inf, -inf, 3]"), num(1), num2(2), gives("[1, 2, -5, 3]"), grads("[0, 0, 0, 1]"));
    expect(tg_nan_to_num(f32("[nan, inf, -inf]"), 0, INFINITY, -INFINITY), "[0, 3.40282347e38, -3.40282347e38]");
    expect(tg_nan_to_num(i64("[1, 2]"), 0, 1, 1), "[1, 2]");
    expect(tg_nan_to_num(f64("[nan, inf, -inf, -0.5]"), 7, 5, -5), "[7, 5, -5, -0.5]");
    expect(tg_nan_to_num(f64("[nan, inf, -inf, 3]"), NAN, -INFINITY, 2), "[nan, -inf, 2, 3]");
    expect(tg_nan_to_num(f32("[nan, inf, -inf, 3]"), 0, 1, INFINITY), "[0, 1, inf, 3]");
    expect(tg_nan_to_num(f64("[nan, inf, -inf, 3]"), 0, 1, NAN), "[0, 1, nan, 3]");
}
SAMPLES(hardshrink)
{
    everywhere_by(0.7, 0, -2, 2);
    edge(in("[-1.5, -0.25, 0.5, 2, nan]"), num(0.5), gives("[-1.5, 0, 0, 2, nan]"), grads("[1, 0, 0, 1, 1]"));
    refuse(tg_hardshrink(i64("[1]"), 1), "\"hardshrink\" not implemented for 'i64'");
}
SAMPLES(softshrink)
{
    everywhere_by(0.7, 0, -2, 2);
    edge(in("[-1.5, 0.25, 0.5, 2]"), num(0.5), gives("[-1, 0, 0, 1.5]"), grads("[1, 0, 0, 1]"));
    edge(in("[-inf, -0.25, inf, nan]"), num(0), gives("[-inf, -0.25, inf, nan]"), grads("[1, 1, 1, 1]"));
    refuse(tg_softshrink(ones(2), -1), "lambda must be in range [0,");
}
SAMPLES(deg2rad)
{
    everywhere(-200, 200);
    edge(in("[-180, 0, 90, inf, nan]"), gives("[-3.141592653589793, 0, 1.5707963267948966, inf, nan]"),
         grads("[0.017453292519943295, 0.017453292519943295, 0.017453292519943295, 0.017453292519943295, "
               "0.017453292519943295]"));
    expect(tg_deg2rad(i64("[0, 180]")), "[0, 3.14159274101]");
}
SAMPLES(rad2deg)
{
    everywhere(-4, 4);
    edge(in("[-1, 0, 0.5, inf, nan]"), gives("[-57.29577951308232, 0, 28.64788975654116, inf, nan]"),
         grads("[57.29577951308232, 57.29577951308232, 57.29577951308232, 57.29577951308232, 57.29577951308232]"));
}
SAMPLES(tanhshrink)
{
    everywhere(-2, 2);
    edge(in("[-1.5, -0.25, 0.5, 2, nan]"),
         gives("[-0.594851746355, -0.00508133759629, 0.03788284274, 1.03597241992, nan]"),
         grads("[0.819293361076, 0.0599851511936, 0.213552267034, 0.929349175147, nan]"));
}
SAMPLES(threshold)
{
    everywhere_by(0.7, 3, -2, 2);
    edge(in("[-1.5, -0.25, 0.5, 2, nan]"), num(0.5), num2(9), gives("[9, 9, 9, 2, nan]"), grads("[0, 0, 0, 1, 1]"));
}
/* name; [0, 0, 2, -3] with [0, nan, 0, 1] */
#define LOGIC(OP)                   \
    OP(logical_and, "[0, 0, 0, 1]") \
    OP(logical_or, "[0, 1, 1, 1]")  \
    OP(logical_xor, "[0, 1, 1, 0]")
#define DEFINE_LOGIC_SAMPLES(name, wanted)                                                           \
    SAMPLES(name)                                                                                    \
    {                                                                                                \
        binary(-2, 2);                                                                               \
        edge(in("[0, 0, 2, -3]"), in("[0, nan, 0, 1]"), gives(wanted));                              \
        expect(tg_##name(boolean("[0, 0, 1, 1]"), i64("[0, 256, 0, 4611686018427387904]")), wanted); \
    }
LOGIC(DEFINE_LOGIC_SAMPLES)

/* ---- choices ---- */

SAMPLES(where)
{
    sample(S(2, 3), S(2, 3), mask("[[1, 0, 1], [0, 0, 1]]"));
    sample(S(2, 3), S(3), mask("[[1], [0]]"));
    sample(S(3), S0, mask("[1, 0, 1]"));
    sample(S0, S(2, 3), mask("1"));
    sample(S(0, 2), S(2), mask("[1, 0]"));
    edge(in("[1, 2, nan]"), in("[3, nan, 5]"), mask("[1, 1, 0]"), gives("[1, 2, 5]"), grads("[1, 1, 0]"),
         grads("[0, 0, 1]"));
    {
        tg_tensor *x = leaf("[-1, 0, 4]"), *y = tg_where(tg_gt_scalar(x, 0), tg_sqrt(x), tg_zeros_like(x));
        expect(y, "[0, 0, 2]");
        expect(gradient(y, x, 0), "[nan, nan, 0.25]"); /* 2.74 */
        expect(gradient(tg_where(boolean("[1, 0, 1]"), x, x), x, 0), "[1, 1, 1]");
    }
    expect(tg_where(boolean("[1, 0]"), i64("[9007199254740993, 1]"), i64("0")), "[9007199254740993, 0]");
    refuse(tg_where(ones(2), ones(2), ones(2)), "bool");
}
SAMPLES(add_alpha)
{
    sample(S(2, 3), S(2, 3), num(-2.5));
    sample(S(2, 3), S(3), num(0.5));
    sample(S(0), S(1), num(2));
    edge(in("[1, 2, -3]"), in("[0.5, -1, 4]"), num(-2.5), gives("[-0.25, 4.5, -13]"), grads("[1, 1, 1]"),
         grads("[-2.5, -2.5, -2.5]"));
    expect(tg_add_alpha(i64("[1, 2]"), i64("[3, 4]"), 2), "[7, 10]");
    expect(tg_add_alpha(boolean("[1, 0]"), boolean("[1, 1]"), -1), "[1, 1]");
    refuse(tg_add_alpha(i64("[1]"), i64("[2]"), 2.5), "2.5");
    refuse(tg_add_alpha_(ones(2), ones(1, 2), 2), "output with shape [2] doesn't match the broadcast shape [1, 2]");
}
SAMPLES(addcmul)
{
    sample(S(2, 3), S(2, 3), S(2, 3), num(1));
    sample(S(2, 3), S(3), S(2, 1), num(-0.5));
    sample(S(1), S(0), S(1), num(2));
    edge(in("[1, 2, -3]"), in("[0.5, -1, 4]"), in("[2, 3, -1]"), num(1.5), gives("[2.5, -2.5, -9]"),
         grads("[1, 1, 1]"), grads("[3, 4.5, -1.5]"), grads("[0.75, -1.5, 6]"));
    expect(tg_addcmul(i64("[1, 2]"), i64("[3, 4]"), i64("[2, 2]"), 2), "[13, 18]");
    refuse(tg_addcmul(i64("[1]"), i64("[2]"), i64("[2]"), 2.5), "2.5");
    refuse(tg_addcmul(boolean("[1]"), boolean("[0]"), boolean("[1]"), 1), "\"addcmul\" not implemented for 'bool'");
    refuse(tg_addcmul(ones(2), ones(3), ones(3), 1), "must match the size of tensor b");
}
SAMPLES(addcdiv)
{
    sample(S(2, 3), S(2, 3), range(0.5, 2), S(2, 3), num(1));
    sample(S(2, 3), S(3), range(0.5, 2), S(2, 1), num(-0.5));
    sample(S(1), S(0), S(1), num(2));
    edge(in("[1, 2, -3]"), in("[0.5, -1, 4]"), in("[2, 3, -1]"), num(1.5), gives("[1.375, 1.5, -9]"),
         grads("[1, 1, 1]"), grads("[0.75, 0.5, -1.5]"), grads("[-0.1875, 0.166666666667, -6]"));
    edge(in("[1]"), in("[0]"), in("[0]"), num(1), gives("[nan]"), grads("[1]"), grads("[inf]"), grads("[nan]"));
    refuse(tg_addcdiv(i64("[1]"), i64("[2]"), i64("[2]"), 1), "\"addcdiv\" not implemented for 'i64'");
}
SAMPLES(lerp)
{
    sample(S(2, 3), S(2, 3), S(2, 3));
    sample(S(2, 3), S(3), S(2, 1));
    sample(S(0), S(0), S(1));
    edge(in("[1, 2, 3]"), in("[5, -2, 3]"), in("[0.25, 0.75, 1]"), gives("[2, -1, 3]"), grads("[0.75, 0.25, 0]"),
         grads("[0.25, 0.75, 1]"), grads("[4, -4, 0]"));
    refuse(tg_lerp(i64("[1]"), i64("[2]"), i64("[0]")), "\"lerp\" not implemented for 'i64'");
    refuse(tg_lerp_(i64("[1]"), i64("[2]"), i64("[0]")), "\"lerp_\" not implemented for 'i64'");
    refuse(tg_lerp(boolean("[1]"), boolean("[0]"), boolean("[1]")), "\"lerp\" not implemented for 'bool'");
}
SAMPLES(lerp_scalar)
{
    sample(S(2, 3), S(2, 3), num(0.3));
    sample(S(2, 3), S(3), num(0.8));
    edge(in("[1, 2, 3]"), in("[5, -2, 3]"), num(0.25), gives("[2, 1, 3]"), grads("[0.75, 0.75, 0.75]"),
         grads("[0.25, 0.25, 0.25]"));
    expect(tg_lerp_scalar(i64("[1, 2]"), f64("[5, -2]"), 0.25), "[2, 1]");
    refuse(tg_lerp_scalar(i64("[1]"), i64("[2]"), 0.5), "\"lerp_scalar\" not implemented for 'i64'");
    refuse(tg_lerp_scalar(boolean("[1]"), boolean("[0]"), 1), "\"lerp_scalar\" not implemented for 'bool'");
}
SAMPLES(masked_fill)
{
    sample(S(2, 3), mask("[[1, 0, 1], [0, 0, 1]]"), num(1.5));
    sample(S(2, 3), mask("[1, 0, 0]"), num(-3));
    edge(in("[1, 2]"), mask("[1, 0]"), num(-INFINITY), gives("[-inf, 2]"), grads("[0, 1]"));
    sample(S0, mask("0"), num(1));
    sample(S(0, 2), mask("[1, 0]"), num(1));
    edge(in("[1, nan, 3]"), mask("[1, 1, 0]"), num(7), gives("[7, 7, 3]"), grads("[0, 0, 1]")); /* 2.74 */
    expect(tg_masked_fill(i64("[9007199254740993, 1]"), boolean("[0, 1]"), 4), "[9007199254740993, 4]");
    refuse(tg_masked_fill(ones(2), ones(2), 1), "bool");
}

/* ---- views and copies ---- */

SAMPLES(to)
{
    sample(S(2, 3));
    sample(S0);
    sample(S(0, 2));
    expect(tg_to_dtype(f64("[65519, 65520, 1e-8, -65536]"), TG_F16), "[65504, inf, 0, -inf]");               /* 1.22 */
    expect(tg_to_dtype(f64("[1.00390625, 1.01171875, nan]"), TG_BF16), "[1, 1.015625, nan]");                /* 1.22 */
    expect(tg_to_dtype(f64("[3.7, -3.7]"), TG_I32), "[3, -3]");                                              /* 1.23 */
    expect(tg_to_dtype(f64("[1e20, -1e20, nan, inf]"), TG_I32), "[2147483647, -2147483648, 0, 2147483647]"); /* 1.24 */
    expect(tg_to_dtype(f64("[256, 300, -1, 255.9]"), TG_U8), "[255, 255, 0, 255]");                          /* 1.24 */
    expect(tg_to_dtype(f64("[128, -200, nan, -3.7]"), TG_I8), "[127, -128, 0, -3]");                         /* 1.24 */
    expect(tg_to_dtype(f32("[1e9, -inf, nan, 3.7]"), TG_I16), "[32767, -32768, 0, 3]");                      /* 1.24 */
    expect(tg_to_dtype(f64("[1e30, -inf]"), TG_I64), "[9223372036854775807, -9223372036854775808]");         /* 1.24 */
    expect(tg_to_dtype(f64("[nan, -0., 2, 0]"), TG_BOOL), "[1, 0, 1, 0]");                                   /* 1.25 */
    expect(tg_to_dtype(boolean("[1, 0]"), TG_F32), "[1, 0]");                                                /* 1.26 */
    expect(tg_to_dtype(i64("[4294967297, -1, 300]"), TG_I32), "[1, -1, 300]");
    expect(tg_to_dtype(i64("[-1, 300]"), TG_U8), "[255, 44]");
    expect(tg_to_dtype(i64("[-129, 300]"), TG_I8), "[127, 44]");
    expect(tg_to_dtype(i64("[-32769, 65537]"), TG_I16), "[32767, 1]");
    expect(tg_to_dtype(of(TG_I8, "[-1, -128]"), TG_U8), "[255, 128]");
}
SAMPLES(copy_)
{
    sample(S(2, 3), S(2, 3));
    sample(S(2, 3), S(3));
    sample(S(2, 3), S0);
    sample(S(0, 3), S(3));
    edge(in("[1, 2]"), in("[5]"), gives("[5, 5]"), grads("[0, 0]"), grads("[2]"));
    expect(tg_copy_(tg_zeros_on(TG_SHAPE(3), TG_I32, HERE), f64("[1.9, -1.9, nan]")), "[1, -1, 0]");
    refuse(tg_copy_(ones(2), ones(3)), "must match");
    {
        tg_tensor *t = f64("[1, 2]");
        CHECK(tg_copy_(t, t) == t && tg_copy_(t, tg_narrow(t, 0, 0, 2)) == t);
        expect(t, "[1, 2]");
    }
    refuse(tg_copy_(ones(1), ones(3)), "output with shape [1] doesn't match the broadcast shape [3]");
}
/* Writing a number into a tensor of integers fails if they cannot represent it; a bool takes every number. */
static void numbers_of_integers(void)
{
    static const struct {
        tg_dtype dtype;
        double least, most, others[5];
    } rows[] = {{TG_U8, 0, 255, {-1, 256, 0.5, NAN, INFINITY}},
                {TG_I8, -128, 127, {-129, 128, 0.5, NAN, INFINITY}},
                {TG_I16, -32768, 32767, {-32769, 32768, 0.5, NAN, INFINITY}},
                {TG_I32, -2147483648.0, 2147483647, {-2147483649.0, 2147483648.0, 0.5, NAN, 1e300}},
                {TG_I64, -9223372036854775808.0, 9223372036854774784.0, {1e300, 9223372036854775808.0, 0.5, NAN, -1e300}}};
    tg_tensor *yes = boolean("[1, 0]");
    int i, k;
    for (i = 0; i < 5; ++i) {
        tg_tensor *t = tg_zeros_on(TG_SHAPE(2), rows[i].dtype, HERE);
        char words[80];
        CHECK(tg_get(tg_full_like(t, rows[i].least), TG_INDEX(0)) == rows[i].least);
        CHECK(tg_get(tg_fill_(tg_clone(t), rows[i].most), TG_INDEX(1)) == rows[i].most);
        CHECK(tg_get(tg_masked_fill(t, yes, rows[i].most), TG_INDEX(0)) == rows[i].most);
        for (k = 0; k < 5; ++k) {
            const double value = rows[i].others[k];
            snprintf(words, sizeof words, "%g is no value of a tensor of %s", value, tg_dtype_name(rows[i].dtype));
            if (strchr(words, ',')) *strchr(words, ',') = '.'; /* in some locales */
            refuse(tg_fill_(t, value), words);
            refuse(tg_full_on(TG_SHAPE(2), value, rows[i].dtype, HERE), words);
            refuse(tg_full_like(t, value), words);
            refuse(tg_masked_fill(t, yes, value), words);
            refuse(tg_masked_fill_(t, yes, value), words);
            refuse(tg_set(t, TG_INDEX(1), value) == TG_OK, words);
            expect(t, "[0, 0]");
        }
    }
    expect(tg_full_on(TG_SHAPE(2), 0.5, TG_BOOL, HERE), "[1, 1]");
    expect(tg_fill_(boolean("[0, 1]"), NAN), "[1, 1]");
    expect(tg_masked_fill(boolean("[0, 0]"), yes, 0.5), "[1, 0]");
    expect(tg_masked_fill_(boolean("[0, 0]"), yes, 300), "[1, 0]");
    expect(tg_masked_fill(boolean("[1, 1]"), yes, 0), "[0, 1]");
    expect(tg_add_scalar(of(TG_U8, "[0]"), 300), "[44]"); /* arithmetic wraps around */
}
SAMPLES(fill_)
{
    sample(S(2, 3), num(2));
    sample(S0, num(2));
    sample(S(0, 3), num(2));
    edge(in("[1, 2]"), num(5), gives("[5, 5]"), grads("[0, 0]"));
    expect(tg_fill_(tg_zeros_on(TG_SHAPE(2), TG_I64, HERE), 9007199254740992.0),
           "[9007199254740992, 9007199254740992]");
    numbers_of_integers();
    {
        tg_tensor *t = tg_mul_scalar(leaf("[[1, 2], [3, 4]]"), 2);
        CHECK(tg_set(t, TG_INDEX(1, -1), 9) == TG_OK);
        expect(t, "[[2, 4], [6, 9]]");
        CHECK(tg_set(t, TG_INDEX(2, 0), 9) != TG_OK);
        harness_fails("index 2 is out of bounds for dimension 0 with size 2", "tg_set", __FILE__, __LINE__);
    }
}
SAMPLES(zero_)
{
    sample(S(2, 3));
    edge(in("[1, nan]"), gives("[0, 0]"), grads("[0, 0]"));
}
SAMPLES(clone)
{
    sample(S(2, 3));
    sample(S0);
    sample(S(2, 0));
    edge(in("[1, -0., nan]"), gives("[1, -0., nan]"), grads("[1, 1, 1]"));
}
SAMPLES(as_strided)
{
    sample(S(2, 3), num(3));
    sample(S(3, 2, 2), num(-2));
    edge(in("[[1, 2], [3, 4]]"), num(3), gives("[[9, 81], [36, 144]]"), grads("[[18, 36], [54, 72]]")); /* 2.50 */
}
SAMPLES(strided_add)
{
    sample(S(4));
    sample(S(3, 2));
    edge(in("[1, 2, 3]"), gives("[[9, 144], [144, 729]]"), grads("[36, 576, 972]"));
}
SAMPLES(scatter_view)
{
    sample(S(2, 3), S(3));
    sample(S(3, 2), S0);
    edge(in("[[1, 2], [3, 4]]"), in("[5, 6]"), gives("[[1, 2], [25, 36]]"), grads("[[1, 1], [0, 0]]"),
         grads("[10, 12]")); /* 2.49 */
}
SAMPLES(view)
{
    sample(S(2, 3), dims(3, 2));
    sample(S(2, 3, 4), dims(-1, 4));
    sample(S(1), dims(1, 1, 1));
    sample(S(0, 3), dims(3, 0, 2));
    expect(tg_view(f64("[1, 2, 3, 4]"), TG_SHAPE(2, -1)), "[[1, 2], [3, 4]]");
    expect(tg_view(f64("[7]"), TG_SCALAR), "7");
    refuse(tg_view(ones(2, 3), TG_SHAPE(4)), "shape '[4]' is invalid for input of size 6");
    refuse(tg_view(tg_t(ones(2, 3)), TG_SHAPE(6)),
           "view size is not compatible with input tensor's size and stride (at least one "
           "dimension spans across two contiguous subspaces).\n  hint: use tg_reshape");
    refuse(tg_view(ones(2, 3), TG_SHAPE(-1, -1)), "only one dimension can be inferred");
    refuse(tg_view(ones(0, 3), TG_SHAPE(-1, 0)), "cannot reshape tensor of 0 elements into shape [-1, 0]");
    refuse(tg_view(ones(2, 3), TG_SHAPE(-2, 3)), "invalid shape dimension -2");
}
SAMPLES(reshape)
{
    sample(S(2, 3), dims(3, 2));
    sample(S(2, 3, 4), dims(6, 4));
    sample(S(2, 3, 4), dims(2, -1));
    sample(S0, dims(1, 1));
    sample(S(0, 3), dims(0));
    expect(tg_reshape(tg_t(f64("[[1, 2], [3, 4]]")), TG_SHAPE(4)), "[1, 3, 2, 4]");
    refuse(tg_reshape(ones(2, 3), TG_SHAPE(4)), "shape '[4]' is invalid for input of size 6");
}
SAMPLES(flatten)
{
    sample(S(2, 3, 4), dim(0), dim2(-1));
    sample(S(2, 3, 4), dim(1), dim2(2));
    sample(S(2, 0, 4), dim(0), dim2(1));
    sample(S0, dim(0), dim2(-1));
    expect(tg_flatten(f64("[[[1], [2]], [[3], [4]]]"), 1, 2), "[[1, 2], [3, 4]]");
    expect(tg_flatten(f64("3"), 0, -1), "[3]");
    refuse(tg_flatten(ones(2, 3), 1, 0), "start_dim cannot come after end_dim");
}
SAMPLES(squeeze)
{
    sample(S(2, 1, 3), dim(1));
    sample(S(2, 1, 3), dim(0));
    sample(S(1), dim(-1));
    sample(S0, dim(0));
    expect(tg_squeeze(f64("[[1], [2]]"), 1), "[1, 2]");
    expect(tg_squeeze(f64("[[1], [2]]"), 0), "[[1], [2]]");
    refuse(tg_squeeze(ones(2, 3), 5), "Dimension out of range (expected to be in range of [-2, 1], but got 5)");
}
SAMPLES(unsqueeze)
{
    sample(S(2, 3), dim(1));
    sample(S(2, 3), dim(-1));
    sample(S0, dim(0));
    sample(S(0), dim(0));
    expect(tg_unsqueeze(f64("[1, 2]"), -1), "[[1], [2]]");
    refuse(tg_unsqueeze(ones(2, 3), 4), "Dimension out of range (expected to be in range of [-3, 2], but got 4)");
    refuse(tg_unsqueeze(ones(1, 1, 1, 1, 1, 1, 1, 1), 0), "at most 8 dims");
}
SAMPLES(transpose)
{
    sample(S(2, 3, 4), dim(0), dim2(-1));
    sample(S(2, 3), dim(1), dim2(1));
    sample(S(0, 3), dim(0), dim2(1));
    expect(tg_transpose(f64("[[1, 2], [3, 4]]"), 0, 1), "[[1, 3], [2, 4]]");
    refuse(tg_transpose(ones(2, 3), 0, 2), "Dimension out of range (expected to be in range of [-2, 1], but got 2)");
}
SAMPLES(t)
{
    sample(S(2, 3));
    sample(S(3));
    sample(S0);
    expect(tg_t(f64("[[1, 2, 3]]")), "[[1], [2], [3]]");
    refuse(tg_t(ones(2, 2, 2)), "t() expects a tensor with <= 2 dimensions, but self is 3D");
}
SAMPLES(permute)
{
    sample(S(2, 3, 4), dims(2, 0, 1));
    sample(S(2, 3), dims(-1, 0));
    sample(S(0, 3), dims(1, 0));
    expect(tg_permute(f64("[[[1, 2]], [[3, 4]]]"), TG_DIMS(2, 0, 1)), "[[[1], [3]], [[2], [4]]]");
    refuse(tg_permute(ones(2, 3), TG_DIMS(0)), "does not match the length of the desired ordering of dimensions");
    refuse(tg_permute(ones(2, 3), TG_DIMS(0, 0)), "dim 0 appears multiple times in the list of dims");
}
SAMPLES(movedim)
{
    sample(S(2, 3, 4), dim(0), dim2(2));
    sample(S(2, 3, 4), dim(-1), dim2(0));
    expect(tg_movedim(f64("[[[1, 2]], [[3, 4]]]"), 0, -1), "[[[1, 3], [2, 4]]]");
    refuse(tg_movedim(ones(2, 3), 0, 3), "Dimension out of range (expected to be in range of [-2, 1], but got 3)");
}
SAMPLES(expand)
{
    sample(S(3, 1), dims(3, 4));
    sample(S(3, 1), dims(2, -1, 4));
    sample(S0, dims(2, 2));
    sample(S(1, 2), dims(0, 2));
    edge(in("[[1], [2]]"), dims(2, 3), gives("[[1, 1, 1], [2, 2, 2]]"), grads("[[3], [3]]"));
    refuse(tg_expand(ones(2, 3), TG_SHAPE(2, 4)),
           "The expanded size of the tensor (4) must match the existing size (3) at "
           "non-singleton dimension 1.");
    refuse(tg_expand(ones(2, 3), TG_SHAPE(3)),
           "must be greater or equal to the number of dimensions in the tensor (2)");
    refuse(tg_expand(ones(2, 3), TG_SHAPE(-1, 2, 3)), "isn't allowed in a leading, non-existing dimension 0");
}
SAMPLES(narrow)
{
    sample(S(3, 4), dim(1), count(1), count2(2));
    sample(S(3, 4), dim(0), count(-2), count2(2));
    sample(S(3, 4), dim(0), count(3), count2(0));
    expect(tg_narrow(f64("[1, 2, 3, 4]"), 0, 1, 2), "[2, 3]");
    refuse(tg_narrow(ones(2, 3), 1, 2, 2), "start (2) + length (2) exceeds dimension size (3).");
    refuse(tg_narrow(ones(2, 3), 1, 0, -1), "narrow(): length must be non-negative.");
    refuse(tg_narrow(ones(2, 3), 1, 4, 0), "start out of range (expected to be in range of [-3, 3], but got 4)");
    refuse(tg_narrow(f64("1"), 0, 0, 1), "narrow() cannot be applied to a 0-dim tensor.");
    refuse(tg_narrow(ones(3), 0, 1, INT64_MAX), "exceeds dimension size (3)");
}
SAMPLES(select)
{
    sample(S(3, 4), dim(1), count(-1));
    sample(S(3, 4, 2), dim(0), count(1));
    sample(S(3), dim(0), count(2));
    edge(in("[[1, 2], [3, 4]]"), dim(1), count(-1), gives("[2, 4]"), grads("[[0, 1], [0, 1]]"));
    refuse(tg_select(ones(2, 3), 1, 3), "index 3 out of range for tensor of size [2, 3] at dimension 1");
    refuse(tg_select(ones(2, 3), 1, -4), "index -4 out of range for tensor of size [2, 3] at dimension 1");
    refuse(tg_select(f64("1"), 0, 0), "select() cannot be applied to a 0-dim tensor.");
}
SAMPLES(slice)
{
    sample(S(5, 2), dim(0), dims(1, 5, 2));
    sample(S(2, 5), dim(1), dims(-3, -1, 1));
    sample(S(2, 5), dim(-1), dims(0, 99, 3));
    sample(S(3), dim(0), dims(2, 1, 1));
    edge(in("[1, 2, 3, 4, 5]"), dim(0), dims(1, 5, 2), gives("[2, 4]"), grads("[0, 1, 0, 1, 0]"));
    expect(tg_slice(f64("[1, 2, 3, 4, 5]"), 0, -99, 99, 4), "[1, 5]");
    expect(tg_slice(f64("[1, 2, 3]"), 0, INT64_MIN, INT64_MAX, INT64_MAX), "[1]");
    refuse(tg_slice(ones(2), 0, 0, 1, 0), "step must be positive");
    refuse(tg_slice(f64("1"), 0, 0, 1, 1), "cannot be applied to a 0-dim tensor.");
}
SAMPLES(diagonal)
{
    sample(S(3, 4), count(0), dim(0), dim2(1));
    sample(S(3, 4), count(1), dim(0), dim2(1));
    sample(S(3, 2, 3), count(-1), dim(0), dim2(-1));
    sample(S(2, 2), count(9), dim(0), dim2(1));
    edge(in("[[1, 2], [3, 4]]"), count(0), dim(0), dim2(1), gives("[1, 4]"), grads("[[1, 0], [0, 1]]"));
    expect(tg_diagonal(f64("[[1, 2], [3, 4]]"), -1, 0, 1), "[3]");
    refuse(tg_diagonal(ones(2, 3), 0, 1, 1), "diagonal dimensions cannot be identical 1, 1");
}
SAMPLES(unfold)
{
    sample(S(5, 2), dim(0), count(2), count2(1));
    sample(S(2, 5), dim(1), count(3), count2(2));
    sample(S(4), dim(0), count(4), count2(7));
    edge(in("[1, 2, 3, 4]"), dim(0), count(2), count2(1), gives("[[1, 2], [2, 3], [3, 4]]"), grads("[1, 2, 2, 1]"));
    refuse(tg_unfold(ones(2, 3), 1, 4, 1), "maximum size for tensor at dimension 1 is 3 but size is 4");
    refuse(tg_unfold(ones(2, 3), 1, 2, 0), "step is 0 but must be > 0");
    sample(S0, dim(0), count(1), count2(1)); /* 0-dim counts as [1] */
    refuse(tg_unfold(ones(1, 1, 1, 1, 1, 1, 1, 1), 0, 1, 1), "at most 8 dims");
    refuse(tg_unfold(ones(2), 0, -1, 1), "size is -1 but must be >= 0");
}
SAMPLES(contiguous)
{
    sample(S(2, 3));
    sample(S0);
    expect(tg_contiguous(tg_t(f64("[[1, 2], [3, 4]]"))), "[[1, 3], [2, 4]]");
}
SAMPLES(split)
{
    tg_tensor *pieces[8];
    sample(S(5, 2), count(2), dim(0));
    sample(S(2, 3), count(1), dim(-1));
    sample(S(2, 3), count(7), dim(0));
    edge(in("[1, 2, 3]"), count(2), dim(0), gives("[1, 2, 6]"), grads("[1, 1, 2]"));
    CHECK(tg_split(ones(5), 2, 0, pieces, 8) == 3 && tg_dim(pieces[2], 0) == 1);
    refuse(tg_split(ones(2, 3), -1, 0, pieces, 8), "split expects split_size be non-negative, but got split_size=-1");
    refuse(tg_split(ones(2, 3), 0, 0, pieces, 8),
           "split_size can only be 0 if dimension size is 0, but got dimension size of 2");
    refuse(tg_split(ones(5), 1, 0, pieces, 4), "");
}
SAMPLES(chunk)
{
    tg_tensor *pieces[8];
    sample(S(5, 2), count(3), dim(0));
    sample(S(2, 4), count(2), dim(1));
    edge(in("[1, 2, 3, 4, 5]"), count(4), dim(0), gives("[1, 2, 6, 8, 15]"), grads("[1, 1, 2, 2, 3]"));
    CHECK(tg_chunk(ones(5), 4, 0, pieces, 8) == 3 && tg_dim(pieces[0], 0) == 2 && tg_dim(pieces[2], 0) == 1);
    refuse(tg_chunk(ones(2, 3), 0, 0, pieces, 8), "chunk expects `chunks` to be greater than 0, got: 0");
}
SAMPLES(unbind)
{
    tg_tensor *pieces[8];
    sample(S(3, 2), dim(0));
    sample(S(2, 3), dim(-1));
    edge(in("[[1, 2], [3, 4]]"), dim(1), gives("[[1, 4], [3, 8]]"), grads("[[1, 2], [1, 2]]"));
    CHECK(tg_unbind(ones(3, 2), 0, pieces, 8) == 3 && tg_ndim(pieces[0]) == 1);
    refuse(tg_unbind(f64("1"), 0, pieces, 8), "Dimension specified as 0 but tensor has no dimensions");
}
SAMPLES(cat)
{
    tg_tensor *pair[2];
    sample(S(2, 3), S(1, 3), dim(0));
    sample(S(2, 1), S(2, 2), S(2, 3), dim(-1));
    sample(S(2, 3), S(2, 3), dim(1));
    sample(S(0, 3), S(2, 3), dim(0));
    sample(S(2), dim(0));
    edge(in("[1, 2]"), in("[3]"), dim(0), gives("[1, 2, 3]"), grads("[1, 1]"), grads("[1]"));
    pair[0] = pair[1] = leaf("[1, 2]");
    expect(gradient(tg_mul(tg_cat(pair, 2, 0), f64("[1, 2, 3, 4]")), pair[0], 0), "[4, 6]");
    pair[0] = ones(0), pair[1] = ones(1, 2);
    expect(tg_cat(pair, 2, 0), "[[1, 1]]"); /* an empty vector is skipped */
    pair[0] = i64("[9007199254740993]"), pair[1] = f32("[1]");
    CHECK(tg_dtype_of(tg_cat(pair, 2, 0)) == TG_F32);
    pair[0] = ones(2, 3), pair[1] = ones(3, 3);
    refuse(tg_cat(pair, 2, 1),
           "Sizes of tensors must match except in dimension 1. Expected size 2 but got size 3 for tensor number "
           "1 in the list.");
    refuse(tg_cat(pair, 2, 2), "Dimension out of range (expected to be in range of [-2, 1], but got 2)");
    refuse(tg_cat(pair, 0, 0), "expected a non-empty list of Tensors");
    pair[1] = ones(3);
    refuse(tg_cat(pair, 2, 0), "Tensors must have same number of dimensions: got 2 and 1");
    pair[0] = f64("1");
    refuse(tg_cat(pair, 2, 0), "zero-dimensional tensor (at position 0) cannot be concatenated");
}
SAMPLES(stack)
{
    tg_tensor *pair[2];
    sample(S(2, 3), S(2, 3), dim(0));
    sample(S(2, 3), S(2, 3), S(2, 3), dim(-1));
    sample(S0, S0, dim(0));
    edge(in("[1, 2]"), in("[3, 4]"), dim(1), gives("[[1, 3], [2, 4]]"), grads("[1, 1]"), grads("[1, 1]"));
    pair[0] = ones(2), pair[1] = ones(3);
    refuse(tg_stack(pair, 2, 0),
           "stack expects each tensor to be equal size, but got [2] at entry 0 and [3] at entry 1");
    refuse(tg_stack(pair, 0, 0), "stack expects a non-empty TensorList");
}
SAMPLES(repeat)
{
    sample(S(2, 3), dims(2, 2));
    sample(S(3), dims(2, 1, 2));
    sample(S0, dims(3));
    sample(S(2), dims(0));
    edge(in("[1, 2]"), dims(2, 2), gives("[[1, 2, 1, 2], [1, 2, 1, 2]]"), grads("[4, 4]"));
    /* of as many dims as there can be: not all of them by one copy */
    expect(tg_flatten(tg_repeat(tg_reshape(f64("[1, 2]"), TG_SHAPE(2, 1)), TG_SHAPE(1, 1, 1, 1, 1, 1, 2, 2)), 0, -1),
           "[1, 1, 2, 2, 1, 1, 2, 2]");
    expect(tg_sum_dims(tg_repeat(f64("[[1, 2], [3, 4]]"), TG_SHAPE(3, 1, 2, 1, 2, 2)), TG_SHAPE(0, 1, 2, 3), false),
           "[[6, 12, 6, 12], [18, 24, 18, 24], [6, 12, 6, 12], [18, 24, 18, 24]]");
    refuse(tg_repeat(ones(2, 3), TG_SHAPE(2)),
           "Number of dimensions of repeat dims can not be smaller than number of dimensions of "
           "tensor");
    refuse(tg_repeat(ones(2, 3), TG_SHAPE(2, -1)), "negative");
}
SAMPLES(roll)
{
    sample(S(2, 3), dims(1), dims2(1));
    sample(S(4, 3), dims(-1, 5), dims2(0, -1));
    sample(S(0, 3), dims(2), dims2(0));
    edge(in("[[1, 2, 3]]"), dims(1), dims2(1), gives("[[3, 1, 2]]"), grads("[[1, 1, 1]]"));
    refuse(tg_roll(ones(2, 3), TG_DIMS(1, 2), TG_DIMS(0)), "shifts and dimensions must align. shifts: 2, dims:1");
    refuse(tg_roll(f64("1"), TG_DIMS(0), TG_DIMS(0)), "Dimension specified as 0 but tensor has no dimensions");
    refuse(tg_roll(ones(2), TG_DIMS(0), TG_DIMS(2)),
           "Dimension out of range (expected to be in range of [-1, 0], but got 2)");
}
SAMPLES(repeat_interleave)
{
    sample(S(2, 3), count(2), dim(1));
    sample(S(2, 3, 2), count(3), dim(-3));
    sample(S0, count(2), dim(0));
    sample(S(2, 0), count(2), dim(0));
    sample(S(2, 3), count(1), dim(0));
    edge(in("[[1, 2], [3, 4]]"), count(2), dim(0), gives("[[1, 2], [1, 2], [3, 4], [3, 4]]"),
         grads("[[2, 2], [2, 2]]"));
    expect(tg_repeat_interleave(i64("[1, 2]"), 3, 0), "[1, 1, 1, 2, 2, 2]");
    expect(tg_repeat_interleave(i64("[1, 2]"), 0, 0), "[]");
    refuse(tg_repeat_interleave(ones(2), -1, 0), "Repeats must be non-negative");
    refuse(tg_repeat_interleave(ones(2), 2, 1), "Dimension out of range");
    refuse(tg_repeat_interleave(tg_zeros(TG_SHAPE(0, 3)), INT64_MAX / 2, 1), "are too many");
}
SAMPLES(meshgrid)
{
    tg_tensor *in_[9], *grid[9];
    int i;
    sample(S(2), S(3));
    sample(S(2), S0, S(3), S(1));
    sample(S(0), S(2));
    for (i = 0; i < 9; ++i) in_[i] = grid[i] = ones(2);
    in_[0] = f64("[1, 2]"), in_[1] = i64("[3, 4, 5]");
    CHECK(tg_meshgrid(in_, 2, grid) == TG_OK && grid[2] != NULL);
    HAS(grid[0], "[[1, 1, 1], [2, 2, 2]]");
    HAS(grid[1], "[[3, 4, 5], [3, 4, 5]]");
    CHECK(tg_data(grid[0]) == tg_data(in_[0]) && tg_dtype_of(grid[1]) == TG_I64);
    in_[1] = ones(2, 2);
    refuse(tg_meshgrid(in_, 3, grid) == TG_OK, "Expected 0D or 1D tensor in the tensor list but got: tensors[1]");
    CHECK(grid[0] == NULL && grid[2] == NULL && grid[3] != NULL);
    refuse(tg_meshgrid(in_, 9, grid) == TG_OK, "a grid has 1 to 8 dims, not 9");
    refuse(tg_meshgrid(in_, 0, grid) == TG_OK, "a grid has 1 to 8 dims, not 0");
    refuse(tg_meshgrid(NULL, 5, grid) == TG_OK, "argument tensors is NULL");
    CHECK(grid[4] == NULL);
    refuse(tg_meshgrid(in_, 1, NULL) == TG_OK, "argument out is NULL");
}
SAMPLES(flip)
{
    sample(S(2, 3), dims(0));
    sample(S(2, 3, 4), dims(-1, 0));
    sample(S(0, 3), dims(1));
    edge(in("[[1, 2], [3, 4]]"), dims(0), gives("[[3, 4], [1, 2]]"), grads("[[1, 1], [1, 1]]"));
    refuse(tg_flip(ones(2, 3), TG_DIMS(0, 0)), "dim 0 appears multiple times in the list of dims");
    refuse(tg_flip(ones(2, 3), TG_DIMS(2)), "Dimension out of range (expected to be in range of [-2, 1], but got 2)");
}
SAMPLES(tril)
{
    sample(S(3, 4), count(0));
    sample(S(2, 3, 3), count(1));
    sample(S(0, 3), count(0));
    edge(in("[[1, nan], [3, 4]]"), count(0), gives("[[1, 0], [3, 4]]"), grads("[[1, 0], [1, 1]]"));
    expect(tg_tril(f64("[[1, 2], [3, 4]]"), -1), "[[0, 0], [3, 0]]");
    refuse(tg_tril(ones(3), 0), "at least 2 dimensions");
    expect(tg_tril_indices(2, 3, 0), "[[0, 1, 1], [0, 0, 1]]");
    expect(tg_triu_indices(2, 3, 1), "[[0, 0, 1], [1, 2, 2]]");
    refuse(tg_tril_indices(-1, 3, 0), "must be non-negative");
    refuse(tg_triu_indices(1, -3, 0), "must be non-negative");
}
SAMPLES(triu)
{
    sample(S(3, 4), count(0));
    sample(S(2, 3, 3), count(-1));
    edge(in("[[1, 2], [nan, 4]]"), count(0), gives("[[1, 2], [0, 4]]"), grads("[[1, 1], [0, 1]]"));
    expect(tg_triu(f64("[[1, 2], [3, 4]]"), 1), "[[0, 2], [0, 0]]");
    refuse(tg_triu(ones(3), 0), "at least 2 dimensions");
}
SAMPLES(pad)
{
    sample(S(2, 3), dims(1, 2), num(0.5));
    sample(S(2, 3), dims(0, 1, 2, 0), num(0));
    sample(S(3, 4), dims(-1, 2), num(1));
    sample(S(0, 2), dims(1, 1), num(1));
    edge(in("[[1, 2], [3, 4]]"), dims(1, 0, 0, 1), num(9), gives("[[9, 1, 2], [9, 3, 4], [9, 9, 9]]"),
         grads("[[1, 1], [1, 1]]"));
    expect(tg_pad(f64("[1, 2, 3, 4]"), TG_DIMS(-1, -2), 0), "[2]");
    refuse(tg_pad(ones(2, 3), TG_DIMS(1), 0), "Padding length must be divisible by 2");
    refuse(tg_pad(ones(2, 3), TG_DIMS(1, 1, 1, 1, 1, 1), 0),
           "Padding length should be less than or equal to two times the input "
           "dimension");
    refuse(tg_pad(ones(3), TG_DIMS(-2, -2), 0), "negative output size");
    refuse(tg_pad(ones(2), TG_DIMS(-3, 2), 0), "narrow(): length must be non-negative.");
    refuse(tg_pad(ones(2), TG_DIMS(3, -3), 0), "narrow(): length must be non-negative.");
    expect(tg_pad(f64("[1, 2]"), TG_DIMS(-2, 2), 0), "[0, 0]");
    expect(tg_pad(f64("[1, 2]"), TG_DIMS(2, -2), 7), "[7, 7]");
    refuse(tg_pad(of(TG_U8, "[1]"), TG_DIMS(1, 1), 300), "300 is no value of a tensor of u8");
    refuse(tg_pad(i64("[1]"), TG_DIMS(1, 1), 0.5), "0.5 is no value of a tensor of i64");
    expect(tg_pad(boolean("[0]"), TG_DIMS(1, 0), 0.5), "[1, 0]");
}

/* ---- indexing ---- */

SAMPLES(index_select)
{
    sample(S(3, 4), ids("[2, 0, 2, 2]"), dim(0));
    sample(S(3, 4), ids("[1]"), dim(-1));
    sample(S(3, 4), no_ids(), dim(0));
    edge(in("[1, 2, 3]"), ids("[2, 0, 2]"), dim(0), gives("[3, 1, 3]"), grads("[1, 0, 2]"));
    expect(tg_index_select(i64("[1, 9007199254740993]"), 0, of(TG_I32, "[1]")), "[9007199254740993]");
    refuse(tg_index_select(ones(3), 0, i64("[0, 3]")),
           "index 3 at position 1 is outside [0, 3)"); /* on a device the words before it end in "(detected later)" */
    refuse(tg_index_select(ones(3), 0, i64("[-1]")), "index -1 at position 0 is outside [0, 3)");
    refuse(tg_index_select(ones(2, 3), 0, i64("[[0]]")), "Index is supposed to be a vector");
    refuse(tg_index_select(ones(2, 3), 0, ones(1)), "Expected dtype int32/int64 for index");
}
SAMPLES(gather)
{
    sample(S(3, 2), ids("[[0, 1], [2, 0]]"), dim(0));
    sample(S(2, 3), ids("[[0, 0, 2, 1], [1, 1, 1, 1]]"), dim(1));
    sample(S(4), ids("[3, 3, 0]"), dim(0));
    edge(in("[1, 2, 3]"), ids("[2, 0, 2]"), dim(0), gives("[3, 1, 3]"), grads("[1, 0, 2]"));
    refuse(tg_gather(ones(3), 0, i64("[0, 3]")), "index 3 is out of bounds for dimension 0 with size 3");
    refuse(tg_gather(ones(3), 0, i64("[-1]")), "index -1 is out of bounds for dimension 0 with size 3");
    refuse(tg_gather(ones(2, 3), 0, i64("[0]")),
           "Index tensor must have the same number of dimensions as input tensor");
    refuse(tg_gather(ones(2, 3), 1, i64("[[0], [0], [0]]")), "xpected index [3, 1] to be no larger than");
    refuse(tg_gather(ones(2), 0, ones(2)), "index");
    sample(S0, ids("[0, 0]"), dim(0)); /* 0-dim counts as [1] */
    sample(S(1), ids("0"), dim(0));
}
SAMPLES(take_along_dim)
{
    sample(S(3, 2), ids("[[0, 1], [2, 0]]"), dim(0));
    sample(S(3, 2), ids("[[0], [1], [1]]"), dim(1));
    sample(S(3, 1), ids("[[0, 1], [2, 0]]"), dim(0));
    edge(in("[[1, 2], [3, 4]]"), ids("[[1]]"), dim(1), gives("[[2], [4]]"), grads("[[0, 1], [0, 1]]"));
    refuse(tg_take_along_dim(ones(2, 3), i64("[0]"), 1),
           "input and indices should have the same number of dimensions, but got 2 "
           "dimensions for input, and 1 dimensions for indices");
}
SAMPLES(embedding)
{
    sample(S(4, 3), ids("[[0, 3], [3, 3]]"));
    sample(S(4, 3), ids("2"));
    sample(S(4, 3), no_ids());
    edge(in("[[1, 2], [3, 4], [5, 6]]"), ids("[2, 0, 2]"), gives("[[5, 6], [1, 2], [5, 6]]"),
         grads("[[1, 1], [0, 0], [2, 2]]"));
    refuse(tg_embedding(ones(3, 2), i64("[3]")), "index out of range in self");
    refuse(tg_embedding(ones(3, 2), tg_t(i64("[[0, 1], [2, 1], [7, 1]]"))), "index 7 at position 2 is outside [0, 3)");
    refuse(tg_embedding(ones(3, 2), i64("[-1]")), "index out of range in self");
    refuse(tg_embedding(ones(3), i64("[0]")), "'weight' must be 2-D");
    refuse(tg_embedding(ones(3, 2), ones(1)), "");
    refuse(tg_embedding(ones(3, 2), tg_zeros_on(TG_SHAPE(1, 1, 1, 1, 1, 1, 1, 1), TG_I64, HERE)), "too many dims");
}
SAMPLES(one_hot)
{
    sample(ids("[1, 0, 2]"), count(4));
    edge(ids("[[1], [0]]"), count(3), gives("[[[0, 1, 0]], [[1, 0, 0]]]"));
    edge(ids("[0, 2]"), count(-1), gives("[[1, 0, 0], [0, 0, 1]]")); /* the op must know how many elements there are */
    CHECK(tg_dtype_of(tg_one_hot(i64("[0]"), 2)) == TG_I64);
    refuse(tg_one_hot(i64("[0, 3]"), 2), "Class values must be smaller than num_classes.");
    refuse(tg_one_hot(i64("[-1]"), 2), "Class values must be non-negative.");
    refuse(tg_one_hot(ones(2), 2), "one_hot is only applicable to index tensor of type LongTensor, but got f64");
    refuse(tg_one_hot(tg_zeros_on(TG_SHAPE(0), TG_I64, HERE), -1),
           "Can not infer total number of classes from empty tensor.");
    CHECK(same_shape(tg_shape_of(tg_one_hot(tg_zeros_on(TG_SHAPE(0), TG_I64, HERE), 3)), TG_SHAPE(0, 3)));
}
SAMPLES(nonzero)
{
    sample(S(2, 3));
    edge(in("[[0, 2], [nan, 0]]"), gives("[[0, 1], [1, 0]]"));
    CHECK(same_shape(tg_shape_of(tg_nonzero(f64("[[0, -0.]]"))), TG_SHAPE(0, 2)));
    CHECK(same_shape(tg_shape_of(tg_nonzero(f64("5"))), TG_SHAPE(1, 0)));
    CHECK(tg_dtype_of(tg_nonzero(ones(2))) == TG_I64);
}
SAMPLES(index)
{
    tg_tensor *x = tg_reshape(tg_arange_on(0, 24, 1, TG_F64, HERE), TG_SHAPE(2, 3, 4)), *some = i64("[0, 1]");
    tg_tensor *three = i64("[0, 1, 2]"), *deep = boolean("[[1, 0, 0], [0, 1, 1]]"), *at_[4] = {some, three, NULL, NULL};
    sample(S(3, 4), ids("[2, 0, -1, 2]"));
    sample(S(2, 3, 4), ids("[[0, 1], [1, 0]]"), ids("[1, -1]"), count(2)); /* [2, 2, 3]: no neighbours, so in front */
    sample(S(2, 3, 4), ids("[[0], [2]]"), ids("[1, 3, -4]"), count(1));    /* [2, 2, 3]: in their place */
    sample(S(2, 3, 2), mask("[[1, 0, 1], [0, 1, 1]]"));
    sample(S(2, 3, 2), mask("[0, 1]"), ids("[1, 0, 1]"), count(2));
    sample(S(3), ids("2"));
    sample(S(3, 2), no_ids());
    edge(in("[1, 2, 3]"), ids("[2, 0, -1]"), gives("[3, 1, 3]"), grads("[1, 0, 2]"));
    expect(picked(x, i64("[[0, 1], [1, 0]]"), i64("[1, 2]"), 2),
           "[[[1, 5, 9], [14, 18, 22]], [[13, 17, 21], [2, 6, 10]]]");
    expect(picked(x, boolean("[1, 0]"), three, 2), "[[0, 4, 8], [1, 5, 9], [2, 6, 10]]");
    expect(picked(x, deep, NULL, 0), "[[0, 1, 2, 3], [16, 17, 18, 19], [20, 21, 22, 23]]");
    expect(picked(x, of(TG_U8, "[1, 0]"), of(TG_I32, "[-1]"), 2), "[[3, 7, 11]]");
    expect(tg_index(i64("[1, 9007199254740993]"), &some, 1), "[1, 9007199254740993]");
    refuse(tg_index(x, at_, 2), "shape mismatch: indexing tensors could not be broadcast together with shapes [2], [3]");
    refuse(tg_index(x, at_, 4), "too many indices for tensor of dimension 3 (got 4)");
    refuse(tg_index(x, at_ + 2, 2), "at least one index must be provided");
    refuse(picked(x, i64("[-3]"), NULL, 0), "index -3 is out of bounds for dimension 0 with size 2");
    refuse(picked(x, three, NULL, 0), "index 2 is out of bounds for dimension 0 with size 2");
    refuse(picked(x, ones(2), NULL, 0),
           "tensors used as indices must be long, int, byte or bool tensors, but indices[0] is f64");
    refuse(picked(x, boolean("[1, 0, 1]"), NULL, 0),
           "The shape of the mask [3] at index 0 does not match the shape of the indexed tensor [2, 3, 4] at index 0");
    refuse(picked(x, deep, NULL, 1), "The shape of the mask [2, 3] at index 0 does not match");
    refuse(picked(x, boolean("1"), NULL, 0), "indices[0] is a mask without dims");
    refuse(picked(x, tg_zeros_on(TG_SHAPE(1, 1, 1, 1, 1, 1, 1), TG_I64, TG_CPU), NULL, 0),
           "the result would have 9 dims");
}
SAMPLES(index_put)
{
    tg_tensor *twice = i64("[1, 1]");
    sample(S(3, 4), S(2, 4), ids("[2, 0]"));
    sample(S(3, 4), S(4), ids("[2, 0, -1]"), flag(true));
    sample(S(2, 3, 2), S(2, 3), ids("[0, 1]"), ids("[1, 0]"), count(2));
    sample(S(2, 3, 2), S0, mask("[[1, 0, 1], [0, 1, 1]]"));
    sample(S(2, 3, 2), S(4, 1), mask("[[1, 0, 1], [0, 1, 1]]"), flag(true));
    edge(in("[1, 2, 3]"), in("[7, 8]"), ids("[2, -1]"), flag(true), gives("[1, 2, 18]"), grads("[1, 1, 1]"),
         grads("[1, 1]"));
    expect(tg_index_put(f64("[1, 2]"), &twice, 1, f64("[7, 8]"), false), "[1, 8]"); /* the last writer stays */
    expect(tg_index_put(i64("[1, 2]"), &twice, 1, i64("[9007199254740990, 1]"), true), "[1, 9007199254740993]");
    refuse(tg_index_put(ones(3), &twice, 1, f32("[1]"), false),
           "Index put requires the source and destination dtypes match, got f64 for the destination and f32 for the "
           "source.");
    refuse(tg_index_put(ones(3), &twice, 1, ones(3), false),
           "shape mismatch: value tensor of shape [3] cannot be broadcast to indexing result of shape [2]");
    refuse(tg_index_put(ones(3), &twice, 1, ones(1, 2), false), "value tensor of shape [1, 2] cannot be broadcast");
}
SAMPLES(index_put_)
{
    tg_tensor *twice = i64("[1, 1]"), *zero = i64("[0]"), *own, *at_;
    sample(S(2, 3, 2), S(4, 1), mask("[[1, 0, 1], [0, 1, 1]]"), flag(true));
    sample(S(3, 2), S(1), ids("[-1]"), count(1));
    sample(S(2, 3, 2), S(2, 3), ids("[0, 1]"), ids("[1, 0]"), count(2)); /* no view has these dims as one */
    sample(S(4, 2), S(2, 2), ids("[3, 0]"));
    edge(in("[1, 2, 3]"), in("[7, 8]"), ids("[2, 0]"), gives("[8, 2, 7]"), grads("[0, 1, 0]"), grads("[1, 1]"));
    refuse(tg_index_put_(leaf("[1, 2]"), &twice, 1, ones(1), false),
           "tg_index_put_: a leaf Variable that requires grad is being used in an in-place operation.");
    refuse(tg_index_put_(tg_expand(ones(1), TG_SHAPE(3)), &twice, 1, ones(1), false), "tg_clone(t)");
    own = f64("[1, 2, 3]"), at_ = i64("[1, 2]"); /* written with its own elements, as they were before */
    expect(tg_index_put_(own, &at_, 1, tg_narrow(own, 0, 0, 2), false), "[1, 1, 2]");
    own = tg_reshape(f64("[1, 2, 3, 4]"), TG_SHAPE(2, 2)); /* through a view */
    expect(tg_index_put_(tg_t(own), &zero, 1, f64("[8, 9]"), false), "[[8, 9], [2, 4]]");
    expect(own, "[[8, 2], [9, 4]]");
    refuse(tg_index_put_(ones(1), &twice, 1, ones(1), false), "index 1 is out of bounds for dimension 0 with size 1");
}
SAMPLES(masked_select)
{
    sample(S(2, 3), mask("[[1, 0, 1], [0, 1, 1]]"));
    sample(S(2, 3), mask("[1, 0, 1]"));
    sample(S(2), mask("[[1], [0], [1]]"));
    sample(S0, mask("1"));
    sample(S(3), mask("[0, 0, 0]"));
    edge(in("[1, 2]"), mask("[[1], [0], [1]]"), gives("[1, 2, 1, 2]"), grads("[2, 2]"));
    refuse(tg_masked_select(ones(2), of(TG_U8, "[1, 0]")), "masked_select: expected BoolTensor for mask");
    refuse(tg_masked_select(ones(2), boolean("[1, 0, 1]")),
           "The size of tensor a (2) must match the size of tensor b (3) at non-singleton dimension 0");
}
SAMPLES(scatter)
{
    sample(S(3, 2), ids("[[0, 1], [2, 0]]"), S(2, 2), dim(0));
    sample(S(2, 3), ids("[[2], [0]]"), S(2, 3), dim(1));
    sample(S(4), ids("[3, 1]"), S(2), dim(0));
    edge(in("[1, 2, 3]"), ids("[2, 0]"), in("[7, 8]"), dim(0), gives("[8, 2, 7]"), grads("[0, 1, 0]"), grads("[1, 1]"));
    expect(tg_scatter(f64("[1, 2]"), 0, i64("[1, 1]"), f64("[7, 8]")), "[1, 8]"); /* the last writer stays */
    sample(S(3, 2), ids("[[1, 1], [1, 0], [1, 1]]"), S(4, 3), dim(0)); /* and has the gradient */
    edge(in("[1, 2]"), ids("[1, 1]"), in("[7, 8]"), dim(0), gives("[1, 8]"), grads("[1, 0]"), grads("[0, 1]"));
    expect(tg_scatter(i64("[1, 2]"), 0, i64("[1]"), i64("[9007199254740993]")), "[1, 9007199254740993]");
    refuse(tg_scatter(ones(3), 0, i64("[0, 3]"), ones(2)), "index 3 is out of bounds for dimension 0 with size 3");
    refuse(tg_scatter(ones(2, 3), 0, i64("[0]"), ones(1)),
           "Index tensor must have the same number of dimensions as self tensor");
    refuse(tg_scatter(ones(3), 0, i64("[0, 1]"), ones(1)),
           "Expected index [2] to be no larger than self [3] apart from dimension 0 "
           "and to be no larger size than src [1]");
    sample(S(2, 1, 2, 1, 3), ids("[[[[[2]]]]]"), S(1, 1, 2, 1, 2), dim(4)); /* src is larger than index, in many dims */
    refuse(tg_scatter(ones(3), 0, i64("[0]"), f32("[1]")), "scatter(): Expected self.dtype to be equal to src.dtype");
}
SAMPLES(scatter_)
{
    tg_tensor *t = f64("[[1, 2], [3, 4]]");
    sample(S(3, 2), ids("[[0, 2], [1, 0]]"), S(2, 2), dim(0));
    CHECK(tg_scatter_(t, 1, i64("[[1], [0]]"), f64("[[5], [6]]")) == t);
    HAS(t, "[[1, 5], [6, 4]]");
    refuse(tg_scatter_(t, 1, i64("[[2]]"), f64("[[5]]")), "index 2 is out of bounds for dimension 1 with size 2");
    refuse(tg_scatter_(leaf("[1, 2]"), 0, i64("[1]"), f64("[5]")), "a leaf Variable that requires grad");
}
SAMPLES(scatter_add_)
{
    tg_tensor *t = f64("[1, 2, 3]");
    sample(S(3, 2), ids("[[0, 2], [0, 0]]"), S(2, 2), dim(0));
    CHECK(tg_scatter_add_(t, 0, i64("[1, 1, 0]"), f64("[5, 6, 7]")) == t);
    HAS(t, "[8, 13, 3]");
    tg_tensor *n = i64("[2, 0, 1]"); /* index, source and target at once: as it was before the write */
    CHECK(tg_scatter_add_(n, 0, n, n) == n);
    expect(n, "[2, 1, 3]");
    refuse(tg_scatter_add_(t, 0, i64("[0]"), i64("[1]")), "tg_scatter_add_: ");
}
SAMPLES(index_add_)
{
    tg_tensor *t = f64("[[1, 2], [3, 4]]");
    sample(S(3, 2), ids("[2, 0, 2]"), S(3, 2), dim(0));
    sample(S(3, 4), ids("[3, 3]"), S(3, 2), dim(-1));
    CHECK(tg_index_add_(t, 0, i64("[1, 1]"), f64("[[5, 6], [7, 8]]")) == t);
    HAS(t, "[[1, 2], [15, 18]]");
    refuse(tg_index_add_(leaf("[1, 2]"), 0, i64("[1]"), f64("[5]")), "tg_index_add_: a leaf Variable");
}
SAMPLES(bincount)
{
    tg_tensor *weights = leaf("[0.5, 2, 1]");
    edge(ids("[1, 3, 1]"), in("[0.5, 2, 1]"), count(6), gives("[0, 1.5, 0, 2, 0, 0]"), grads("[1, 1, 1]"));
    expect(tg_bincount(i64("[1, 3, 1]"), NULL, 0), "[0, 2, 0, 1]");
    expect(tg_bincount(of(TG_U8, "[1, 3, 1]"), NULL, 6), "[0, 2, 0, 1, 0, 0]");
    expect(tg_bincount(i64("[1, 3, 1]"), weights, 0), "[0, 1.5, 0, 2]");
    expect(tg_bincount(i64("[1, 3, 1]"), i64("[5, 2, 1]"), 0), "[0, 6, 0, 2]");
    expect(tg_bincount(tg_zeros_on(TG_SHAPE(0), TG_I64, HERE), NULL, 2), "[0, 0]");
    CHECK(tg_dtype_of(tg_bincount(i64("[1]"), NULL, 0)) == TG_I64);
    CHECK(tg_dtype_of(tg_bincount(i64("[1]"), i64("[1]"), 0)) == TG_F64);
    refuse(tg_bincount(i64("[1, -2]"), NULL, 0), "only supports 1-d non-negative integral inputs");
    refuse(tg_bincount(i64("[[1]]"), NULL, 0), "only supports 1-d non-negative integral inputs");
    refuse(tg_bincount(f64("[1]"), NULL, 0), "ids is f64 [1]");
    refuse(tg_bincount(i64("[1, 2]"), f64("[1]"), 0), "weights should be 1-d and have the same length as input");
    refuse(tg_bincount(i64("[1]"), NULL, -1), "minlength should be >= 0");
}
SAMPLES(trace)
{
    sample(S(3, 3));
    sample(S(2, 4));
    sample(S(0, 2));
    expect(tg_trace(i64("[[1, 2, 3], [4, 5, 6]]")), "6");
    refuse(tg_trace(ones(2, 2, 2)), "trace: expected a matrix, but got tensor with dim 3");
}
SAMPLES(scatter_add)
{
    sample(S(3, 2), ids("[[0, 1], [0, 1]]"), S(2, 2), dim(0));
    sample(S(2, 3), ids("[[2, 2], [0, 2]]"), S(2, 3), dim(-1));
    sample(S(4), ids("[3, 3, 1]"), S(3), dim(0));
    edge(in("[1, 2, 3]"), ids("[2, 2]"), in("[7, 8]"), dim(0), gives("[1, 2, 18]"), grads("[1, 1, 1]"),
         grads("[1, 1]"));
    expect(tg_scatter_add(i64("[1, 2]"), 0, i64("[1, 1]"), i64("[9007199254740990, 1]")), "[1, 9007199254740993]");
    refuse(tg_scatter_add(ones(3), 0, i64("[0, 3]"), ones(2)), "index 3 is out of bounds for dimension 0 with size 3");
    sample(S(2, 1, 2, 1, 3), ids("[[[[[2, 2]]]]]"), S(1, 1, 2, 1, 2), dim(4));
}
SAMPLES(index_add)
{
    sample(S(3, 2), ids("[2, 0, 2]"), S(3, 2), dim(0));
    sample(S(2, 3), ids("[1]"), S(2, 1), dim(1));
    edge(in("[1, 2, 3]"), ids("[2, 2]"), in("[7, 8]"), dim(0), gives("[1, 2, 18]"), grads("[1, 1, 1]"),
         grads("[1, 1]"));
    refuse(tg_index_add(ones(3), 0, i64("[0, 3]"), ones(2)), "index 3 is out of bounds for dimension 0 with size 3");
    refuse(tg_index_add(ones(3), 0, i64("[0]"), ones(2)),
           "Number of indices (1) should be equal to source.size(dim): (2), for dim: 0");
    refuse(tg_index_add(ones(2, 3), 0, i64("[0]"), ones(1, 2)),
           "source tensor shape must match self tensor shape, excluding the "
           "specified dimension");
}
SAMPLES(sort)
{
    tg_tensor *at_ = NULL;
    sample(S(2, 5), dim(1));
    sample(S(3, 2), dim(0), flag(true));
    sample(S0, dim(0));
    sample(S(0, 3), dim(0));
    edge(in("[2, 3, 1]"), dim(0), flag(true), gives("[3, 2, 1]"), grads("[1, 1, 1]"));
    expect(tg_sort(f64("[1, nan, 3, 2]"), 0, false, &at_), "[1, 2, 3, nan]"); /* 2.67 */
    expect(at_, "[0, 3, 2, 1]");
    expect(tg_sort(f64("[1, nan, 3, 2]"), 0, true, &at_), "[nan, 3, 2, 1]"); /* 2.67 */
    expect(at_, "[1, 2, 3, 0]");
    expect(tg_sort(f64("[2, 1, 2, 1]"), 0, false, &at_), "[1, 1, 2, 2]");
    expect(at_, "[1, 3, 0, 2]");
    expect(tg_sort(f64("[2, 1, 2, 1]"), 0, true, &at_), "[2, 2, 1, 1]");
    expect(at_, "[0, 2, 1, 3]");
    expect(tg_sort(i64("[9007199254740993, 9007199254740992]"), 0, false, NULL),
           "[9007199254740992, 9007199254740993]");
    refuse(tg_sort(ones(2, 3), 2, false, NULL),
           "Dimension out of range (expected to be in range of [-2, 1], but got 2)");
}
SAMPLES(topk)
{
    tg_tensor *at_ = NULL;
    sample(S(2, 5), dim(1), count(2), flag(true));
    sample(S(4, 2), dim(0), count(3), flag(false));
    sample(S(3), dim(0), count(0), flag(true));
    edge(in("[2, 3, 1]"), dim(0), count(2), flag(true), gives("[3, 2]"), grads("[1, 1, 0]"));
    expect(tg_topk(f64("[1, nan, 3, 2]"), 2, 0, true, &at_), "[nan, 3]"); /* 2.67 */
    expect(at_, "[1, 2]");
    expect(tg_topk(f64("[1, nan, 3, 2]"), 2, 0, false, &at_), "[1, 2]");
    expect(at_, "[0, 3]");
    refuse(tg_topk(ones(2, 3), 4, 1, true, NULL), "selected index k out of range");
    refuse(tg_topk(ones(2, 3), -1, 1, true, NULL), "selected index k out of range");
}

/* ---- reductions ---- */

static void reductions(double low, double high)
{
    sample(range(low, high), S(2, 3, 4)), sample(range(low, high), S(5)), sample(range(low, high), S0);
}
static void reductions_of_dim(double low, double high, double number, int64_t correction)
{
    sample(range(low, high), S(2, 3, 4), dim(1), num(number), count(correction));
    sample(range(low, high), S(2, 3, 4), dim(-1), flag(true), num(number), count(correction));
    sample(range(low, high), S(5, 2), dim(0), num(number), count(correction));
    sample(range(low, high), S(0, 3), dim(1), num(number), count(correction));
}
static void reductions_of_dims(double low, double high, double number, int64_t correction)
{
    sample(range(low, high), S(2, 3, 4), dims(0, 2), num(number), count(correction));
    sample(range(low, high), S(2, 3, 4), dims(-1, 1), flag(true), num(number), count(correction));
    sample(range(low, high), S(2, 3), dims(1, 0), num(number), count(correction));
}

SAMPLES(sum_to)
{
    binary(-2, 2);
    edge(in("[[2], [1]]"), in("[1, 2, 3]"), gives("[[2, 8, 18], [1, 4, 9]]"), grads("[[14], [14]]"),
         grads("[6, 12, 18]"));                                                /* 2.58 */
    edge(in("2"), in("[1, 2]"), gives("[2, 8]"), grads("5"), grads("[4, 8]")); /* 2.59 */
}
SAMPLES(sum)
{
    reductions(-2, 2);
    sample(S(0));
    edge(in("[[1, 2], [3, nan]]"), gives("nan"), grads("[[1, 1], [1, 1]]"));
    edge(in("[[1, 2], [3, 4]]"), gives("10"), grads("[[1, 1], [1, 1]]"));
    expect(tg_sum(ones(0)), "0"); /* 2.80 */
    expect(tg_sum(i64("[9007199254740993, 4611686018427387904]")), "4620693217682128897");
    expect(tg_sum(boolean("[1, 1, 0, 1]")), "3");
    CHECK(tg_dtype_of(tg_sum(of(TG_I32, "[1]"))) == TG_I64 && tg_dtype_of(tg_sum(boolean("[1]"))) == TG_I64);
}
SAMPLES(sum_dim)
{
    reductions_of_dim(-2, 2, 0, 0);
    edge(in("[[1, 2], [3, 4]]"), dim(0), gives("[4, 6]"), grads("[[1, 1], [1, 1]]"));
    expect(tg_sum_dim(f64("[[1, 2], [3, 4]]"), 1, true), "[[3], [7]]");
    expect(tg_sum_dim(ones(0, 2), 0, false), "[0, 0]");
    refuse(tg_sum_dim(ones(2, 3), 2, false), "Dimension out of range (expected to be in range of [-2, 1], but got 2)");
    refuse(tg_sum_dim(f64("1"), 1, false), "Dimension out of range (expected to be in range of [-1, 0], but got 1)");
}
SAMPLES(sum_dims)
{
    reductions_of_dims(-2, 2, 0, 0);
    edge(in("[[1, 2], [3, 4]]"), dims(0, 1), gives("10"), grads("[[1, 1], [1, 1]]"));
    expect(tg_sum_dims(f64("[[1, 2], [3, 4]]"), TG_SCALAR, true), "[[10]]"); /* an empty list: all */
    refuse(tg_sum_dims(ones(2, 3), TG_DIMS(0, 0), false), "dim 0 appears multiple times in the list of dims");
    refuse(tg_sum_dims(ones(2, 3), TG_DIMS(0, -2), false), "dim 0 appears multiple times in the list of dims");
}
SAMPLES(mean)
{
    reductions(-2, 2);
    edge(in("[[1, 2], [3, 6]]"), gives("3"), grads("[[0.25, 0.25], [0.25, 0.25]]"));
    expect(tg_mean(ones(0)), "nan"); /* 2.80 */
    refuse(tg_mean(i64("[1, 2]")),
           "could not infer output dtype. Input dtype must be either a floating point or complex dtype"); /* 2.81 */
}
SAMPLES(mean_dim)
{
    reductions_of_dim(-2, 2, 0, 0);
    edge(in("[[1, 2], [3, 6]]"), dim(0), gives("[2, 4]"), grads("[[0.5, 0.5], [0.5, 0.5]]"));
    expect(tg_mean_dim(ones(0, 2), 0, false), "[nan, nan]");
}
SAMPLES(mean_dims)
{
    reductions_of_dims(-2, 2, 0, 0);
    edge(in("[[1, 2], [3, 6]]"), dims(1), flag(true), gives("[[1.5], [4.5]]"), grads("[[0.5, 0.5], [0.5, 0.5]]"));
}
SAMPLES(prod)
{
    reductions(0.5, 1.5);
    edge(in("[2, 3, 4]"), gives("24"), grads("[12, 8, 6]"));
    edge(in("[0, 2, 3]"), gives("0"), grads("[6, 0, 0]")); /* 2.76 */
    edge(in("[0, 0, 3]"), gives("0"), grads("[0, 0, 0]")); /* 2.76 */
    edge(in("[inf, 1, 2]"), gives("inf"), grads("[2, inf, inf]"));
    { /* the gradient of the gradient where elements are 0: the products of the others */
        tg_tensor *x = leaf("[[2, 0, 3], [0, 0, 3]]"), *y = tg_sum(tg_prod_dim(x, 1, false)), *g;
        CHECK(tg_gradients(&y, 1, NULL, &x, 1, &g, TG_CREATE_GRAPH) == TG_OK);
        expect(tg_detach(g), "[[0, 6, 0], [0, 0, 0]]");
        expect(gradient(tg_mul(g, f64("[[1, 10, 100], [1, 10, 100]]")), x, 0), "[[30, 203, 20], [30, 3, 0]]");
    }
    expect(tg_prod(ones(0)), "1");                         /* 2.80 */
    expect(tg_prod(i64("[3, 3002399751580331]")), "9007199254740993");
}
SAMPLES(prod_dim)
{
    reductions_of_dim(0.5, 1.5, 0, 0);
    edge(in("[[2, 3], [0, 5]]"), dim(1), gives("[6, 0]"), grads("[[3, 2], [5, 0]]"));
    expect(tg_prod_dim(ones(0, 2), 0, false), "[1, 1]");
    expect(tg_prod_dim(i64("[[2, 3, 0, 1, -4], [94906267, 3, 5, 1, 2]]"), 0, false), "[189812534, 9, 0, 1, -8]");
}
SAMPLES(prod_dims)
{
    reductions_of_dims(0.5, 1.5, 0, 0);
    edge(in("[[2, 3], [1, 5]]"), dims(0, 1), gives("30"), grads("[[15, 10], [30, 6]]"));
}

SAMPLES(amax)
{
    reductions(-2, 2);
    edge(in("[1, 3, 3]"), gives("3"), grads("[0, 0.5, 0.5]")); /* 2.66 */
    edge(in("[1, nan, 3]"), gives("nan"), grads("[nan, nan, nan]"));
    expect(tg_amax(i64("[1, 9007199254740993]")), "9007199254740993");
    refuse(tg_amax(ones(0)),
           "amax(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the "
           "'dim' argument."); /* 2.80 */
}
SAMPLES(amax_dim)
{
    reductions_of_dim(-2, 2, 0, 0);
    edge(in("[[1, 3, 3], [7, 5, 6]]"), dim(1), gives("[3, 7]"), grads("[[0, 0.5, 0.5], [1, 0, 0]]"));
    expect(tg_amax_dim(i64("[[1, 9007199254740993, 3, -4, 5], [9, 0, 9, -3, 5]]"), 0, false),
           "[9, 9007199254740993, 9, -3, 5]");
    refuse(tg_amax_dim(ones(0, 3), 0, false), "amax(): Expected reduction dim 0 to have non-zero size."); /* 2.80 */
}
SAMPLES(amax_dims)
{
    reductions_of_dims(-2, 2, 0, 0);
    edge(in("[[1, 3], [3, 2]]"), dims(0, 1), gives("3"), grads("[[0, 0.5], [0.5, 0]]"));
}
SAMPLES(amin)
{
    reductions(-2, 2);
    edge(in("[1, 1, 3]"), gives("1"), grads("[0.5, 0.5, 0]")); /* 2.66 */
    edge(in("[nan, nan, 3]"), gives("nan"), grads("[nan, nan, nan]"));
    refuse(tg_amin(ones(0)), "amin(): Expected reduction dim to be specified for input.numel() == 0.");
}
SAMPLES(amin_dim)
{
    reductions_of_dim(-2, 2, 0, 0);
    edge(in("[[1, 3, 1], [7, 5, 6]]"), dim(1), gives("[1, 5]"), grads("[[0.5, 0, 0.5], [0, 1, 0]]"));
    expect(tg_amin_dim(i64("[[1, -9007199254740993, 3, -4, 5], [9, 0, 9, -3, 5]]"), 0, false),
           "[1, -9007199254740993, 3, -4, 5]");
    refuse(tg_amin_dim(ones(0, 3), 0, false), "amin(): Expected reduction dim 0 to have non-zero size.");
}
SAMPLES(amin_dims)
{
    reductions_of_dims(-2, 2, 0, 0);
    edge(in("[[1, 3], [3, 1]]"), dims(0, 1), gives("1"), grads("[[0.5, 0], [0, 0.5]]"));
}
SAMPLES(max)
{
    reductions(-2, 2);
    edge(in("[1, 3, 3]"), gives("3"), grads("[0, 0.5, 0.5]")); /* 2.66 */
    edge(in("[nan, nan]"), gives("nan"), grads("[0.5, 0.5]")); /* 2.66 */
    edge(in("[1, nan, 3]"), gives("nan"), grads("[0, 1, 0]"));
    refuse(tg_max(ones(0)),
           "max(): Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the "
           "'dim' argument."); /* 2.80 */
}
SAMPLES(min)
{
    reductions(-2, 2);
    edge(in("[1, 3, 1]"), gives("1"), grads("[0.5, 0, 0.5]")); /* 2.66 */
    edge(in("[nan, nan]"), gives("nan"), grads("[0.5, 0.5]")); /* 2.66 */
    edge(in("[1, nan, 3]"), gives("nan"), grads("[0, 1, 0]"));
    refuse(tg_min(ones(0)), "min(): Expected reduction dim to be specified for input.numel() == 0.");
}
SAMPLES(max_dim)
{
    tg_tensor *at_ = NULL;
    reductions_of_dim(-2, 2, 0, 0);
    edge(in("[[1, 3, 3], [nan, 5, nan]]"), dim(1), gives("[3, nan]"), grads("[[0, 1, 0], [1, 0, 0]]")); /* 2.66, 2.67 */
    expect(tg_max_dim(f64("[[1, 3, 3], [nan, 5, nan]]"), 1, true, &at_), "[[3], [nan]]");
    expect(at_, "[[1], [0]]");
    CHECK(tg_dtype_of(at_) == TG_I64);
    refuse(tg_max_dim(ones(0, 3), 0, false, NULL), "max(): Expected reduction dim 0 to have non-zero size."); /* 2.80 */
}
SAMPLES(min_dim)
{
    tg_tensor *at_ = NULL;
    reductions_of_dim(-2, 2, 0, 0);
    edge(in("[[1, 1, 3], [2, 5, nan]]"), dim(1), gives("[1, nan]"), grads("[[1, 0, 0], [0, 0, 1]]")); /* 2.66, 2.67 */
    expect(tg_min_dim(f64("[[1, 1, 3]]"), 1, false, &at_), "[1]");
    expect(at_, "[0]");
    refuse(tg_min_dim(ones(0, 3), 0, false, NULL), "min(): Expected reduction dim 0 to have non-zero size.");
}
SAMPLES(argmax)
{
    reductions_of_dim(-2, 2, 0, 0);
    edge(in("[[1, 3, 3], [nan, 5, nan]]"), dim(1), gives("[1, 0]")); /* 2.67 */
    CHECK(tg_dtype_of(tg_argmax(ones(2), 0, false)) == TG_I64);
    refuse(tg_argmax(ones(0, 3), 0, false), "argmax(): Expected reduction dim 0 to have non-zero size.");
}
SAMPLES(argmin)
{
    reductions_of_dim(-2, 2, 0, 0);
    edge(in("[[1, 1, 3], [3, 5, nan]]"), dim(1), gives("[0, 2]")); /* 2.67 */
    refuse(tg_argmin(ones(0, 3), 0, false), "argmin(): Expected reduction dim 0 to have non-zero size.");
}
SAMPLES(any)
{
    reductions(-2, 2);
    edge(in("[0, nan, 0]"), gives("1"));
    expect(tg_any(ones(0)), "0"); /* 2.80 */
    expect(tg_any(i64("[0, 4294967296]")), "1");
}
SAMPLES(any_dim)
{
    reductions_of_dim(-2, 2, 0, 0);
    edge(in("[[0, 1], [0, 0]]"), dim(1), gives("[1, 0]"));
    CHECK(tg_dtype_of(tg_any_dim(ones(2), 0, false)) == TG_BOOL);
}
SAMPLES(any_dims)
{
    reductions_of_dims(-2, 2, 0, 0);
    edge(in("[[0, 1], [0, 0]]"), dims(0), flag(true), gives("[[0, 1]]"));
}
SAMPLES(all)
{
    reductions(-2, 2);
    edge(in("[1, nan, 2]"), gives("1"));
    edge(in("[1, 0, 2]"), gives("0"));
    expect(tg_all(ones(0)), "1"); /* 2.80 */
}
SAMPLES(all_dim)
{
    reductions_of_dim(-2, 2, 0, 0);
    edge(in("[[0, 1], [2, 3]]"), dim(1), gives("[0, 1]"));
    CHECK(tg_dtype_of(tg_all_dim(ones(2), 0, false)) == TG_BOOL);
}
SAMPLES(all_dims)
{
    reductions_of_dims(-2, 2, 0, 0);
    edge(in("[[0, 1], [2, 3]]"), dims(0), flag(true), gives("[[0, 1]]"));
}
SAMPLES(logsumexp)
{
    reductions(-2, 2);
    edge(in("[1, 2, 3]"), gives("3.40760596444"), grads("[0.0900305731704, 0.244728471055, 0.665240955775]"));
    edge(in("[1000, 1000]"), gives("1000.69314718"), grads("[0.5, 0.5]"));
    edge(in("[-inf, -inf]"), gives("-inf"), grads("[nan, nan]"));                                 /* 2.78 */
    edge(in("[inf, 1]"), gives("inf"), grads("[nan, 0]"));                                        /* 2.78 */
    edge(in("[-inf, 1, 2]"), gives("2.31326168752"), grads("[0, 0.26894142137, 0.73105857863]")); /* 2.78 */
    expect(tg_logsumexp(ones(0)), "-inf");                                                        /* 2.80 */
    expect(tg_logsumexp(i64("[0, 0]")), "0.693147");
}
SAMPLES(logsumexp_dim)
{
    reductions_of_dim(-2, 2, 0, 0);
    edge(in("[[1000, 1000], [0, 0]]"), dim(1), gives("[1000.69314718, 0.69314718056]"),
         grads("[[0.5, 0.5], [0.5, 0.5]]"));
}
SAMPLES(logsumexp_dims)
{
    reductions_of_dims(-2, 2, 0, 0);
    edge(in("[[0, 0], [0, 0]]"), dims(0, 1), gives("1.38629436112"), grads("[[0.25, 0.25], [0.25, 0.25]]"));
    refuse(tg_logsumexp_dims(ones(2), TG_DIMS(0, 0), false), "dim 0 appears multiple times in the list of dims");
}
SAMPLES(var)
{
    sample(S(2, 3, 4));
    sample(S(5));
    edge(in("[1, 2, 4]"), gives("2.33333333333"), grads("[-1.33333333333, -0.333333333333, 1.66666666667]"));
    edge(in("[2]"), gives("nan"), grads("[nan]"));                    /* 2.77 */
    expect(tg_var(ones(0)), "nan");                                   /* 2.80 */
    expect(tg_var(f64("[1000000001, 1000000002, 1000000003]")), "1"); /* in two passes */
    refuse(tg_var(i64("[1, 2]")), "Input dtype must be either a floating point or complex dtype");
}
SAMPLES(var_dim)
{
    reductions_of_dim(-2, 2, 0, 1);
    sample(S(2, 3), dim(1), count(0));
    edge(in("[2]"), dim(0), count(0), gives("0"), grads("[0]")); /* 2.77 */
    expect(tg_mul_scalar(tg_var_dim(f64("[1, 2, 4]"), 0, INT64_MIN, false), 1e19), "5.059610138265687");
    expect(tg_var_dim(f64("[1, 2, 4]"), 0, 1e18, false), "inf");
    edge(in("[[1, 2, 4]]"), dim(1), count(5), gives("[inf]"), grads("[[1.33333333333, 0.33333333333, -1.66666666667]]"));
    edge(in("[[inf, 1, 2]]"), dim(1), count(1), gives("[nan]"), grads("[[nan, -inf, -inf]]"));
    edge(in("[[1, 2, 4]]"), dim(1), count(0), gives("[1.55555555556]"),
         grads("[[-0.888888888889, -0.222222222222, 1.11111111111]]"));
}
SAMPLES(var_dims)
{
    reductions_of_dims(-2, 2, 0, 1);
    edge(in("[[1, 2], [4, 5]]"), dims(0), count(1), gives("[4.5, 4.5]"), grads("[[-3, -3], [3, 3]]"));
    expect(tg_var_dims(f64("[1, 2, 4]"), TG_SCALAR, 0.5, false), "1.86666666666667");
}
/* The gradient of the gradient of the deviation of two rows, one of them constant; of equal distances it is 0. */
static tg_tensor *constant_std_slope(void)
{
    tg_tensor *x = leaf("[[2, 2, 2], [1, 2, 3]]"), *y = tg_sum(tg_std_dim(x, 1, 1, false)), *g = NULL;
    return tg_gradients(&y, 1, NULL, &x, 1, &g, TG_CREATE_GRAPH) == TG_OK ? gradient(g, x, 0) : NULL;
}
SAMPLES(std)
{
    sample(S(2, 3, 4));
    sample(S(5));
    edge(in("[1, 2, 4]"), gives("1.52752523165"), grads("[-0.436435780472, -0.109108945118, 0.54554472559]"));
    edge(in("[2, 2, 2]"), gives("0"), grads("[0, 0, 0]")); /* 2.77 */
    edge(in("[2]"), gives("nan"), grads("[nan]"));         /* 2.77 */
    expect(constant_std_slope(), "[[0, 0, 0], [0, 0, 0]]");
    refuse(tg_std(i64("[1, 2]")), "Input dtype must be either a floating point or complex dtype");
}
SAMPLES(std_dim)
{
    reductions_of_dim(-2, 2, 0, 1);
    sample(S(2, 3), dim(1), count(0));
    edge(in("[[1, 2, 4], [2, 2, 2]]"), dim(1), count(1), gives("[1.52752523165, 0]"),
         grads("[[-0.436435780472, -0.109108945118, 0.54554472559], [0, 0, 0]]"));
    edge(in("[2]"), dim(0), count(0), gives("0"), grads("[0]")); /* 2.77 */
    edge(in("[1, 2, 4]"), dim(0), count(INT64_MAX), gives("inf"), grads("[0, 0, 0]"));
    edge(in("[1, 2, 4]"), dim(0), count(INT64_MIN), gives("7.11309365766e-10"),
         grads("[-2.03231247362e-10, -5.08078118404e-11, 2.54053905920e-10]"));
}
SAMPLES(std_dims)
{
    reductions_of_dims(-2, 2, 0, 1);
    edge(in("[[1, 2], [4, 2]]"), dims(0), count(1), gives("[2.12132034356, 0]"),
         grads("[[-0.707106781187, 0], [0.707106781187, 0]]"));
}
SAMPLES(norm)
{
    reductions(0.5, 2);
    edge(in("[3, -4, 0]"), gives("5"), grads("[0.6, -0.8, 0]"));
    edge(in("[0, 0]"), gives("0"), grads("[0, 0]")); /* 2.71 */
    expect(tg_norm(ones(0)), "0");                   /* 2.80 */
    expect(tg_norm(f64("[3e200, 4e200]")), "5e200"); /* in PyTorch the squares overflow */
    refuse(tg_norm_dim(ones(0, 3), INFINITY, 0, false), "cannot compute the inf norm on an empty tensor");
    refuse(tg_norm_dim(ones(0, 3), -1, 0, false), "cannot compute the -1 norm on an empty tensor");
    expect(tg_norm_dim(ones(0, 3), 2, 0, false), "[0, 0, 0]");
    refuse(tg_norm(i64("[1, 2]")), "Input dtype must be either a floating point or complex dtype");
}
SAMPLES(norm_dim)
{
    reductions_of_dim(-2, 2, 2, 0);
    reductions_of_dim(-2, 2, 1, 0);
    reductions_of_dim(-2, 2, 3, 0);
    sample(S(2, 3), dim(1), num(INFINITY));
    sample(S(2, 3), dim(1), num(-INFINITY));
    sample(S(2, 3), dim(1), num(0.5));
    sample(S(2, 3), dim(1), num(0));
    edge(in("[3, -4, 1]"), num(2), gives("5.09901951359"), grads("[0.588348405415, -0.784464540553, 0.196116135138]"));
    edge(in("[3, -4, 1]"), num(1), gives("8"), grads("[1, -1, 1]"));
    edge(in("[3, -4, 1]"), num(3), gives("4.51435743547"), grads("[0.441621923036, -0.785105640952, 0.0490691025595]"));
    edge(in("[3, -4, 1]"), num(INFINITY), gives("4"), grads("[0, -1, 0]"));
    edge(in("[3, -4, 1]"), num(-INFINITY), gives("1"), grads("[0, 0, 1]"));
    edge(in("[3, nan, 1]"), num(INFINITY), gives("nan"), grads("[0, 0, 0]"));
    edge(in("[3, nan, 1]"), num(-INFINITY), gives("nan"), grads("[0, 0, 0]"));
    edge(in("[3, nan, 1]"), num(1), gives("nan"), grads("[1, 0, 1]"));
    edge(in("[3, nan, 1]"), num(2), gives("nan"), grads("[nan, nan, nan]"));
    edge(in("[inf, 1, -inf]"), num(2), gives("inf"), grads("[nan, 0, nan]"));
    edge(in("[3, -4, 1]"), num(0.5), gives("22.3923048454"), grads("[2.73205080757, -2.36602540378, 4.73205080757]"));
    edge(in("[3, -4, 0]"), num(0), gives("2"), grads("[0, 0, 0]"));
    /* 2.71 */
    edge(in("[0, 0]"), num(2), gives("0"), grads("[0, 0]"));
    edge(in("[0, 0]"), num(1), gives("0"), grads("[0, 0]"));
    edge(in("[0, 0]"), num(3), gives("0"), grads("[0, 0]"));
    edge(in("[0, 0]"), num(1.5), gives("0"), grads("[0, 0]"));
    edge(in("[0, 0]"), num(INFINITY), gives("0"), grads("[0, 0]"));
    edge(in("[0, 0]"), num(0.5), gives("0"), grads("[0, 0]"));
    edge(in("[0, 0]"), num(0), gives("0"), grads("[0, 0]"));
    edge(in("[0, 3, -3]"), num(INFINITY), gives("3"), grads("[0, 0.5, -0.5]"));
    edge(in("[0, 3, -3]"), num(0.5), gives("12"), grads("[0, 2, -2]"));
    edge(in("[0, 3, -3]"), num(1), gives("6"), grads("[0, 1, -1]"));
    edge(in("[0, 3, -3]"), num(1.5), gives("4.7622031559"), grads("[0, 0.793700525984, -0.793700525984]"));
}
SAMPLES(norm_dims)
{
    reductions_of_dims(-2, 2, 2, 0);
    reductions_of_dims(-2, 2, 3, 0);
    edge(in("[[3, 0], [0, 4]]"), dims(0, 1), num(2), flag(true), gives("[[5]]"), grads("[[0.6, 0], [0, 0.8]]"));
}
SAMPLES(cumsum)
{
    sample(S(4), dim(0));
    sample(S(2, 3, 4), dim(-2));
    sample(S(0, 3), dim(1));
    sample(S0, dim(0));
    edge(in("[[1, 2, 3], [4, 5, 6]]"), dim(1), gives("[[1, 3, 6], [4, 9, 15]]"), grads("[[3, 2, 1], [3, 2, 1]]"));
    expect(tg_cumsum(i64("[9007199254740992, 1, 4611686018427387904]"), 0),
           "[9007199254740992, 9007199254740993, 4620693217682128897]");
    CHECK(tg_dtype_of(tg_cumsum(boolean("[1]"), 0)) == TG_I64);
    refuse(tg_cumsum(ones(2, 3), 5), "Dimension out of range (expected to be in range of [-2, 1], but got 5)");
}
SAMPLES(softmax)
{
    sample(S(2, 3, 4), dim(1));
    sample(S(3, 5), dim(-1));
    sample(S0, dim(0));
    sample(S(0, 3), dim(1));
    edge(in("[1, 2, 4]"), dim(0), gives("[0.0420100661341, 0.114195199385, 0.843794734481]"), grads("[0, 0, 0]"));
    edge(in("[-inf, 1, 2]"), dim(0), gives("[0, 0.26894142137, 0.73105857863]"), grads("[0, 0, 0]")); /* 2.78 */
    edge(in("[-inf, -inf]"), dim(0), gives("[nan, nan]"), grads("[nan, nan]"));                       /* 2.78 */
    edge(in("[inf, 1]"), dim(0), gives("[nan, nan]"), grads("[nan, nan]"));
    edge(in("[1000, 999]"), dim(0), gives("[0.73105857863, 0.26894142137]"), grads("[0, 0]"));
    {
        tg_tensor *x = leaf("[1, 2, 4]");
        expect(gradient(tg_mul(tg_softmax(x, 0), f64("[1, 2, 4]")), x, 0),
               "[-0.111140965676, -0.187917268009, 0.299058233685]");
    }
    refuse(tg_softmax(ones(2), 1), "Dimension out of range (expected to be in range of [-1, 0], but got 1)");
}
SAMPLES(log_softmax)
{
    sample(S(2, 3, 4), dim(1));
    sample(S(3, 5), dim(-1));
    sample(S0, dim(0));
    sample(S(0, 3), dim(1));
    edge(in("[1, 2, 4]"), dim(0), gives("[-3.16984601956, -2.16984601956, -0.169846019556]"),
         grads("[0.873969801598, 0.657414401845, -1.53138420344]"));
    edge(in("[-inf, 1, 2]"), dim(0), gives("[-inf, -1.31326168752, -0.313261687518]"),
         grads("[1, 0.19317573589, -1.19317573589]"));                          /* 2.78 */
    edge(in("[-inf, -inf]"), dim(0), gives("[nan, nan]"), grads("[nan, nan]")); /* 2.78 */
    edge(in("[1000, 0]"), dim(0), gives("[0, -1000]"), grads("[-1, 1]"));
}

/* ---- products ---- */

SAMPLES(matmul)
{
    sample(S(2, 3), S(3, 4));
    sample(S(3), S(3));
    sample(S(2, 3), S(3));
    sample(S(3), S(3, 2));
    sample(S(2, 2, 3), S(2, 3, 2));
    sample(S(3, 1, 2, 2), S(2, 2, 3));
    sample(S(2, 2, 3), S(3));
    sample(S(3), S(2, 3, 2));
    sample(S(2, 3), S(2, 3, 2));
    sample(S(2, 0), S(0, 3));
    sample(S(0, 2), S(2, 3));
    sample(S(5, 17), S(17, 6));
    edge(in("[[1, 2], [3, 4]]"), in("[[5, 6], [7, 8]]"), gives("[[19, 22], [43, 50]]"), grads("[[11, 15], [11, 15]]"),
         grads("[[4, 4], [6, 6]]"));
    {
        tg_tensor *x = leaf("[[1, 2], [3, 4]]");
        expect(gradient(tg_matmul(x, tg_t(x)), x, 0), "[[8, 12], [8, 12]]");
        expect(gradient(tg_matmul(x, x), x, 0), "[[7, 11], [9, 13]]");
    }
    expect(tg_matmul(ones(2, 0), ones(0, 2)), "[[0, 0], [0, 0]]"); /* 2.80: K = 0 */
    expect(tg_matmul(i64("[[9007199254740993]]"), i64("[[3]]")), "[[27021597764222979]]");
    refuse(tg_matmul(ones(2, 3), ones(2, 3)), "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)");
    refuse(tg_matmul(ones(2, 3), ones(4, 3)), "a is [2, 3] and b is [4, 3]: tg_t(b) would fit, or tg_linear(a, b, NULL)");
    refuse(tg_matmul(ones(5, 2, 3), ones(5, 4, 3)), "tg_transpose(b, -2, -1) would fit");
    refuse(tg_matmul(ones(5, 3, 2), ones(5, 3, 4)), "tg_transpose(a, -2, -1) would fit");
    refuse(tg_matmul(ones(2, 3), ones(4, 5)), "the last size of a must be the last but one of b");
    refuse(tg_matmul(ones(3, 2), ones(3, 4)), "tg_t(a) would fit");
    refuse(tg_matmul(ones(2, 3, 5), ones(4, 6)), "a is [2, 3, 5] and b is [4, 6]: the last size of a must be the last");
    refuse(tg_matmul(ones(3), ones(2, 3)), "mat1 and mat2 shapes cannot be multiplied (1x3 and 2x3)");
    refuse(tg_matmul(f64("1"), ones(2)), "both arguments to matmul need to be at least 1D, but they are 0D and 1D");
    refuse(tg_matmul(ones(2, 2, 3), ones(3, 3, 2)),
           "The size of tensor a (2) must match the size of tensor b (3) at non-singleton "
           "dimension 0");
    refuse(tg_matmul(ones(2, 2), tg_zeros_on(TG_SHAPE(2, 2), TG_F32, HERE)), "same dtype");
    refuse(tg_matmul(ones(2), ones(3)), "");
    refuse(tg_matmul(ones(2, 2, 3), ones(2, 2)), "shapes cannot be multiplied (4x3 and 2x2)");
    refuse(tg_matmul(boolean("[[1]]"), boolean("[[1]]")), "bool tensors cannot be multiplied");
    refuse(tg_matmul(ones(2), tg_zeros_on(TG_SHAPE(2), TG_F32, HERE)),
           "expected m1 and m2 to have the same dtype, but got: f64 != f32\n"
           "  hint: a [2] is f64 and b [2] is f32: tg_to_dtype(b, TG_F64)");
}
SAMPLES(mm)
{
    sample(S(2, 3), S(3, 4));
    edge(in("[[1, 2]]"), in("[[3], [4]]"), gives("[[11]]"), grads("[[3, 4]]"), grads("[[1], [2]]"));
    refuse(tg_mm(ones(2, 3), ones(2, 3)), "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)");
    refuse(tg_mm(ones(2), ones(2, 3)), "");
    refuse(tg_mm(ones(2, 2, 2), ones(2, 2)), "");
}
SAMPLES(bmm)
{
    sample(S(2, 2, 3), S(2, 3, 2));
    sample(S(0, 2, 3), S(0, 3, 2));
    edge(in("[[[1, 2]]]"), in("[[[3], [4]]]"), gives("[[[11]]]"), grads("[[[3, 4]]]"), grads("[[[1], [2]]]"));
    refuse(tg_bmm(ones(2, 2, 3), ones(3, 3, 2)),
           "Expected size for first two dimensions of batch2 tensor to be: [2, 3] but got: [3, 3].\n"
           "  hint: a is [2, 2, 3] and b is [3, 3, 2]: tg_matmul broadcasts the dims before the last two");
    refuse(tg_bmm(ones(2, 2, 3), ones(2, 4, 3)), "a is [2, 2, 3] and b is [2, 4, 3]: tg_transpose(b, -2, -1) would fit");
    refuse(tg_bmm(ones(2, 3), ones(3, 2)), "3D tensor");
}
SAMPLES(mv)
{
    sample(S(2, 3), S(3));
    edge(in("[[1, 2], [3, 4]]"), in("[5, 6]"), gives("[17, 39]"), grads("[[5, 6], [5, 6]]"), grads("[4, 6]"));
    refuse(tg_mv(ones(2, 3), ones(2)), "(2x3 and 2x1)");
    refuse(tg_mv(ones(3), ones(3)), "");
}
SAMPLES(dot)
{
    sample(S(5), S(5));
    sample(S(0), S(0));
    edge(in("[1, 2]"), in("[3, 4]"), gives("11"), grads("[3, 4]"), grads("[1, 2]"));
    refuse(tg_dot(ones(2), ones(3)),
           "expected tensor [2] and src [3] to have the same number of elements, but got 2 and 3 elements "
           "respectively");
    refuse(tg_dot(ones(2, 2), ones(2)), "but got 2D and 1D");
}
SAMPLES(outer)
{
    sample(S(3), S(2));
    edge(in("[1, 2]"), in("[3, 4]"), gives("[[3, 4], [6, 8]]"), grads("[7, 7]"), grads("[3, 3]"));
    refuse(tg_outer(ones(2, 2), ones(2)), "outer: Expected 1-D argument");
}
SAMPLES(linear)
{
    sample(S(2, 3), S(4, 3), S(4));
    sample(S(2, 3), S(4, 3));
    sample(S(3), S(2, 3), S(2));
    sample(S(2, 2, 3), S(2, 3), S(2));
    sample(S(0, 3), S(2, 3), S(2));
    sample(S(1, 2), S(2, 2), S(2));
    sample(S(3, 1, 2), S(3, 2), S(3));
    sample(S(2, 3), S(4, 3), S(1, 4)); /* a bias that broadcasts */
    edge(in("[[1, 2]]"), in("[[3, 4], [5, 6]]"), in("[10, 20]"), gives("[[21, 37]]"), grads("[[8, 10]]"),
         grads("[[1, 2], [1, 2]]"), grads("[1, 1]"));
    refuse(tg_linear(ones(2, 3), ones(2, 2), NULL), "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x2)");
    refuse(tg_linear(ones(2, 3, 4), ones(5, 12), NULL), "x is [2, 3, 4] and weight [5, 12] is [out, in]: the last size of "
                                                        "x must be 12: tg_flatten(x, 1, -1)");
    refuse(tg_linear(ones(3, 2), ones(5, 3), NULL), "the last size of x must be 3: tg_t(x) would fit");
    refuse(tg_linear(ones(6, 3, 2), ones(5, 3), NULL), "the last size of x must be 3: tg_transpose(x, -2, -1) would fit");
    refuse(tg_linear(ones(4, 2), ones(2, 5), NULL), "the last size of x must be 5: tg_t(weight) would fit");
    refuse(tg_linear(ones(4, 1, 2, 3), ones(5, 6), NULL), "the last size of x must be 6: tg_flatten(x, 1, -1)");
    refuse(tg_linear(ones(2, 3), ones(4, 3), ones(3)), "");
    refuse(tg_linear(ones(2, 3), tg_zeros_on(TG_SHAPE(4, 3), TG_F32, HERE), NULL),
           "tg_linear: expected m1 and m2 to have the same dtype, but got: f64 != f32\n"
           "  hint: x [2, 3] is f64 and weight [4, 3] is f32: tg_to_dtype(x, TG_F32)");
    refuse(tg_linear(ones(2, 3), tg_zeros_on(TG_SHAPE(4, 3), TG_I32, HERE), NULL), ": tg_to_dtype(weight, TG_F64)");
    sample(S(2, 3), S(3)); /* a weight without an out dim */
    refuse(tg_linear(f64("1"), ones(2, 3), NULL), "are needed, but their shapes are [] and [2, 3]");
}
SAMPLES(linear_gelu)
{
    sample(S(2, 3), S(8, 3), S(8), flag(true));
    sample(S(2, 3), S(8, 3), flag(true));
    sample(S(2, 3), S(4, 3), S(4));
    sample(S(3), S(2, 3), S(2), flag(true));
    sample(S(2, 2, 3), S(16, 3), S(16), flag(true));
    sample(S(0, 3), S(8, 3), S(8), flag(true));
    sample(S(2, 3), S(0, 3), S(0), flag(true));
    sample(S(2, 3), S(8, 3), S(1, 8), flag(true)); /* a bias that broadcasts */
    sample(S(2, 3), S(3), flag(true));             /* a weight without an out dim */
    edge(in("[[1, 2], [-1, 0.5]]"), in("[[0.5, -1], [1, 0.25], [-0.25, 0.75]]"), in("[1, -2, 0.5]"), flag(true),
         gives("[[-0.154285990175, -0.154285990175, 1.67979538234], [0, -0.00535726804552, 0.978224789812]]"),
         grads("[[-0.0789541006488, 0.734225163691], [-0.043073926926, 0.326796043767]]"),
         grads("[[-0.367369903535, 0.515260192931], [0.148761092469, 0.257194694929], [0.00382525769667, "
               "2.77707982462]]"),
         grads("[0.632630096465, 0.116499100462, 2.21936870508]"));
    edge(in("[[1, 2], [-1, 0.5]]"), in("[[0.5, -1], [1, 0.25], [-0.25, 0.75]]"), in("[1, -2, 0.5]"),
         gives("[[-0.154268769363, -0.154268769363, 1.67989647549], [0, -0.00580789528359, 0.978418668221]]"),
         grads("[[-0.0789742247549, 0.733815956804], [-0.0433911357436, 0.32695641742]]"),
         grads("[[-0.367495124656, 0.515009750688], [0.148879333747, 0.256822521486], [0.00285944172172, "
               "2.77588565685]]"),
         grads("[0.632504875344, 0.116130416941, 2.21899286044]"));
    refuse(tg_linear_gelu(ones(2, 3), ones(2, 2), NULL, true),
           "tg_linear_gelu: mat1 and mat2 shapes cannot be multiplied (2x3 and 2x2)");
    refuse(tg_linear_gelu(ones(2, 3), tg_zeros_on(TG_SHAPE(4, 3), TG_F32, HERE), NULL, true),
           "expected m1 and m2 to have the same dtype, but got: f64 != f32");
    refuse(tg_linear_gelu(f64("1"), ones(2, 3), NULL, true), "are needed, but their shapes are [] and [2, 3]");
}
SAMPLES(addmm)
{
    sample(S(2, 4), S(2, 3), S(3, 4), num(0.5), num2(2));
    sample(S(4), S(2, 3), S(3, 4), num(1), num2(1));
    edge(in("[[1]]"), in("[[1, 2]]"), in("[[3], [4]]"), num(2), num2(3), gives("[[35]]"), grads("[[2]]"),
         grads("[[9, 12]]"), grads("[[3], [6]]"));
    expect(tg_addmm(f64("[[nan]]"), f64("[[1]]"), f64("[[2]]"), 0, 1), "[[2]]"); /* beta 0 ignores c */
    refuse(tg_addmm(ones(2, 5), ones(2, 3), ones(3, 4), 1, 1), "");
    refuse(tg_addmm(ones(2, 4), ones(2, 3), ones(2, 4), 1, 1),
           "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x4)");
}
SAMPLES(einsum)
{
    tg_tensor *two[2];
    sample(S(2, 2, 3), S(2, 3, 2), text("bij,bjk->bik"));
    sample(S(2, 3), S(4, 3), text("ik,jk"));
    sample(S(2, 3), text("ij->ji"));
    sample(S(2, 3), text("ij->"));
    sample(S(3, 3), text("ii->i"));
    sample(S(3, 3), text("ii"));
    sample(S(2), S(3), S(4), text("i,j,k->kij"));
    sample(S(2, 3), S(3, 2), text("ij,ji->"));
    sample(S(2, 3), S(2, 3), text("ij,ij->i"));
    edge(in("[[1, 2], [3, 4]]"), in("[5, 6]"), text("ij,j->i"), gives("[17, 39]"), grads("[[5, 6], [5, 6]]"),
         grads("[4, 6]"));
    two[0] = two[1] = ones(2, 3);
    refuse(tg_einsum("ij,jk->ik", two, 1), "fewer operands were provided than specified in the equation");
    refuse(tg_einsum("ij,jk->ik", two, 2),
           "subscript j has size 2 for operand 1 which does not broadcast with previously seen size 3");
    refuse(tg_einsum("ij->ik", two, 1), "output subscript k does not appear in the equation for any input operand");
    refuse(tg_einsum("ij->ii", two, 1), "output subscript i appears more than once in the output");
    refuse(tg_einsum("i1->i", two, 1), "invalid subscript given at index 1 in the equation string");
    refuse(tg_einsum("ijk->i", two, 1),
           "the number of subscripts in the equation (3) does not match the number of dimensions (2) for "
           "operand 0");
    refuse(tg_einsum("ii->i", two, 1),
           "subscript i is repeated for operand 0 but the sizes don't match, 3 != 2");
    sample(S(2, 2, 3), S(2, 3, 2), text("...ij,...jk->...ik"));
    sample(S(2, 3), S(3), text("...i,i"));
    sample(S(2, 3), text("i...->..."));
    edge(in("[[1, 2], [3, 4]]"), text("...j->..."), gives("[3, 7]"), grads("[[1, 1], [1, 1]]"));
    refuse(tg_einsum(NULL, two, 1), "argument equation is NULL");
    refuse(tg_einsum("i", two, 0), "must provide at least one operand");
    sample(S(2, 1), S(2, 3), text("ij,ij->i")); /* a size of 1 broadcasts */
    sample(S(2, 3), text(" i j -> j i "));
    refuse(tg_einsum("ij,ij", two, 1), "fewer operands were provided than specified in the equation");
    refuse(tg_einsum("ij", two, 2), "more operands were provided than specified in the equation");
    two[0] = ones(1, 1, 1, 1, 1), two[1] = ones(1, 1, 1, 1);
    refuse(tg_einsum("abcde,fghi->abcdefghi", two, 2), "more than 8 dims");
    refuse(tg_einsum("abcde,fghi", two, 2), "more than 8 dims");
    refuse(tg_einsum("...,fghi->...fghi", two, 2), "the output has more than 8 dims");
    refuse(tg_einsum("fghi,...->fghi...", (two[0] = ones(1, 1, 1, 1), two[1] = ones(1, 1, 1, 1, 1), two), 2),
           "the output has more than 8 dims");
    refuse(tg_einsum("fghi,...", two, 2), "the output has more than 8 dims");
    two[0] = ones(1, 5), two[1] = ones(2, 3);
    refuse(tg_einsum("ii->i", two, 1),
           "einsum(): subscript i is repeated for operand 0 but the sizes don't match, 5 != 1");
    refuse(tg_einsum("ij,kk", two, 2),
           "einsum(): subscript k is repeated for operand 1 but the sizes don't match, 3 != 2");
    refuse(tg_einsum("...->......", two, 1), "einsum(): found '.' for output but an ellipsis (...) was already found");
    refuse(tg_einsum("i...->.i", two, 1), "einsum(): found '.' for output that is not part of any ellipsis (...)");
    refuse(tg_einsum("...i...->i", two, 1), "einsum(): found '.' for operand 0 for which an ellipsis was already found");
    refuse(tg_einsum("ij,i..->i", two, 2), "einsum(): found '.' for operand 1 that is not part of any ellipsis");
    two[0] = ones(0), two[1] = ones(5);
    refuse(tg_einsum("i,i", two, 2),
           "subscript i has size 5 for operand 1 which does not broadcast with previously seen size 0");
    two[0] = tg_expand(ones(1, 1, 1), TG_SHAPE(1 << 25, 1, 1)); /* each is small enough, but not all sizes together */
    two[1] = tg_expand(ones(1, 1, 1), TG_SHAPE(1, 1 << 25, 1 << 25));
    refuse(tg_einsum("klm,klm->", two, 2), "the number of elements of shape [33554432, 33554432, 33554432] overflows");
}

/* ---- normalisation, attention, dropout ---- */

SAMPLES(normalize)
{
    sample(S(2, 5), count(1), num(1e-5));
    sample(S(2, 3, 2), count(2), num(1e-2));
    sample(S(0, 3), count(1), num(1e-5));
    edge(in("[[1, 2, 4], [3, 3, 3]]"), count(1), num(1e-5),
         gives("[[-1.06904153145, -0.267260382863, 1.33630191431], [0, 0, 0]]"), grads("[[0, 0, 0], [0, 0, 0]]"));
    refuse(tg_layer_norm(ones(2, 3), 3, NULL, NULL, 1e-5), "");
    refuse(tg_layer_norm(ones(2, 3), 0, NULL, NULL, 1e-5), "");
}
SAMPLES(layer_norm)
{
    sample(S(2, 5), S(5), S(5), count(1), num(1e-5));
    sample(S(2, 3, 2), S(3, 2), S(3, 2), count(2), num(1e-2));
    sample(S(2, 5), S(5), count(1), num(1e-5));
    edge(in("[[1, 2, 4], [-1, 0, 3]]"), in("[1, 2, 3]"), in("[0.5, 0, -1]"), count(1), num(1e-5),
         gives("[[-0.56904153145, -0.534520765725, 3.00890574294], [-0.480578978536, -0.78446318283, 3.11843170985]]"),
         grads("[[-0.114544582033, 0.171809141639, -0.0572645596053], [-0.135774040551, 0.181029338628, "
               "-0.045255298077]]"),
         grads("[-2.04962050999, -0.659491974277, 2.70911248426]"), grads("[2, 2, 2]"));
    refuse(tg_layer_norm(ones(2, 3), 1, ones(2), NULL, 1e-5), "weight");
}
SAMPLES(rms_norm)
{
    sample(S(2, 5), S(5), count(1), num(1e-5));
    sample(S(2, 3, 2), count(2), num(1e-2));
    edge(in("[[1, 2, 4], [-1, 0, 3]]"), in("[1, 2, 3]"), count(1), num(1e-6),
         gives("[[0.377964446012, 1.51185778405, 4.53557335214], [-0.547722475347, 0, 4.92950227812]]"),
         grads("[[0.0719932715219, 0.143986543044, -0.089991359924], [0.985900324171, 1.09544495069, 0.328633879568]]"),
         grads("[-0.169758029335, 0.755928892024, 3.15502521009]"));
    refuse(tg_rms_norm(ones(2, 3), 1, ones(2), 1e-5), "");
}
SAMPLES(add_layer_norm)
{
    tg_tensor *sum = NULL;
    sample(S(2, 5), S(2, 5), S(5), S(5), count(1), num(1e-5));
    sample(S(2, 3, 2), S(2, 3, 2), S(3, 2), S(3, 2), count(2), num(1e-2));
    sample(S(70, 3), S(70, 3), S(3), count(1), num(1e-5));
    sample(S(3, 2), S(3, 2), count(1), num(1e-2));
    sample(S(0, 3), S(0, 3), S(3), S(3), count(1), num(1e-5));
    edge(in("[[1, 2, 3], [-3, 1, 2]]"), in("[[0, 0, 1], [2, -1, 1]]"), in("[1, 2, 3]"), in("[0.5, 0, -1]"), count(1),
         num(1e-5),
         gives("[[-0.56904153145, -0.534520765725, 3.00890574294], [-0.480578978536, -0.78446318283, 3.11843170985], "
               "[1, 2, 4], [-1, 0, 3]]"),
         grads("[[0.885455417967, 1.17180914164, 0.942735439395], [0.864225959449, 1.18102933864, 0.954744701923]]"),
         grads("[[0.885455417967, 1.17180914164, 0.942735439395], [0.864225959449, 1.18102933864, 0.954744701923]]"),
         grads("[-2.04962050999, -0.659491974277, 2.70911248426]"), grads("[2, 2, 2]"));
    expect(tg_add_layer_norm(f64("[[1, 2, 3]]"), f64("[[0, 0, 1]]"), 1, NULL, NULL, 1e-5, NULL),
           "[[-1.06904153145, -0.267260382863, 1.33630191431]]");
    refuse(tg_add_layer_norm(ones(2, 3), ones(3), 1, NULL, NULL, 1e-5, &sum),
           "x [2, 3] and residual [3] must be of the same shape");
    refuse(tg_add_layer_norm(ones(2, 3), ones(2, 3), 1, ones(2), NULL, 1e-5, &sum), "weight");
    CHECK(sum == NULL);
}
SAMPLES(add_rms_norm)
{
    sample(S(2, 5), S(2, 5), S(5), count(1), num(1e-5));
    sample(S(2, 3, 2), S(2, 3, 2), count(2), num(1e-2));
    edge(in("[[1, 2, 3], [-3, 1, 2]]"), in("[[0, 0, 1], [2, -1, 1]]"), in("[1, 2, 3]"), count(1), num(1e-6),
         gives("[[0.377964446012, 1.51185778405, 4.53557335214], [-0.547722475347, 0, 4.92950227812], [1, 2, 4], "
               "[-1, 0, 3]]"),
         grads("[[1.07199327152, 1.14398654304, 0.910008640076], [1.98590032417, 2.09544495069, 1.32863387957]]"),
         grads("[[1.07199327152, 1.14398654304, 0.910008640076], [1.98590032417, 2.09544495069, 1.32863387957]]"),
         grads("[-0.169758029335, 0.755928892024, 3.15502521009]"));
    refuse(tg_add_rms_norm(ones(2, 3), ones(2, 3), 0, NULL, 1e-5, NULL), "");
}
/* The running statistics [1, -1] and [2, 0.5] after x. */
static tg_tensor *running_after(tg_tensor *x, bool batch, double momentum)
{
    tg_tensor *mean = f64("[1, -1]"), *var = f64("[2, 0.5]"), *y;
    if (batch)
        y = tg_batch_norm(x, mean, var, NULL, NULL, true, momentum, 1e-5);
    else
        y = tg_instance_norm(x, mean, var, NULL, NULL, true, momentum, 1e-5);
    return y ? tg_stack(TG_LIST(mean, var), 0) : NULL;
}
/* What a weight changes in the statistics, where rows are long enough for one kernel: nothing. */
static tg_tensor *running_with_weights(bool batch)
{
    tg_tensor *x = tg_sin(tg_reshape(tg_arange_on(0, 40, 1, TG_F64, HERE), TG_SHAPE(2, 2, 10)));
    tg_tensor *mean = f64("[1, -1]"), *var = f64("[2, 0.5]"), *w = f64("[3, 4]"), *y;
    if (batch) y = tg_batch_norm(x, mean, var, w, w, true, 0.3, 1e-5);
    else y = tg_instance_norm(x, mean, var, w, w, true, 0.3, 1e-5);
    return y ? tg_sub(tg_stack(TG_LIST(mean, var), 0), running_after(x, batch, 0.3)) : NULL;
}
#define CHANNELS "[[[1, 2, 4], [-1, 0, 3]], [[0.5, -2, 1], [2, 2, -1]]]"
SAMPLES(batch_norm)
{
    tg_tensor *x = f64(CHANNELS), *w = f64("[1.5, -2]"), *b = f64("[0.5, 1]"), *required = leaf("[1, 2]");
    sample(S(4, 3), S(3), S(3), num(1e-5));
    sample(S(2, 3, 2), S(3), S(3), num(1e-2));
    sample(S(3, 2, 2, 2), S(2), num(1e-5));
    sample(S(1, 2, 3), num(1e-3));
    sample(S(2, 2, 3, 3), S(2), S(2), num(1e-5));
    sample(S(3, 34), S(34), S(34), num(1e-2));
    expect(running_with_weights(true), "[[0, 0], [0, 0]]");
    expect(running_with_weights(false), "[[0, 0], [0, 0]]");
    expect(tg_batch_norm(f64("[[1, 2], [4, -1], [0, 3]]"), NULL, NULL, w, b, true, 0.1, 1e-5),
           "[[-0.0883473871219, 0.215536817171], [2.55921585493, 3.7456211399], [-0.970868467805, -0.961157957073]]");
    expect(tg_square(tg_batch_norm(x, NULL, NULL, w, b, true, 0.1, 1e-5)),
           "[[[0.185018823084, 1.60904256056, 8.6739966031], [11.1021614893, 4.24358243315, 3.08349706648]], "
           "[[0.000120275293155, 4.34676074581, 0.185018823084], [0.23425022173, 0.23425022173, 11.1021614893]]]");
    expect(running_after(x, true, 0.1), "[[1.00833333333, -0.816666666667], [2.18416666667, 0.746666666667]]");
    expect(running_after(x, true, 0.75), "[[1.0625, 0.375], [3.38125, 2.35]]");
    expect(running_after(x, true, 0), "[[1, -1], [2, 0.5]]");
    expect(running_after(x, true, 1), "[[1.08333333333, 0.833333333333], [3.84166666667, 2.96666666667]]");
    expect(running_after(tg_zeros_on(TG_SHAPE(0, 2), TG_F64, HERE), true, 1), "[[1, -1], [2, 0.5]]");
    expect(tg_round(tg_mul_scalar(running_after(tg_to_dtype(x, TG_BF16), true, 0.5), 1e4)),
           "[[10417, -833], [29208, 17333]]"); /* the statistics of a half are computed in f32 */
    w = f64("[1, 1]"), b = f64("[1, 1]");
    CHECK(tg_batch_norm(leaf("[[1, 2], [3, 5]]"), w, b, NULL, NULL, true, 0.1, 1e-5) && tg_version_of(w) == 1);
    CHECK(!tg_requires_grad(w) && !tg_requires_grad(b));
    refuse(tg_batch_norm(ones(1, 3), NULL, NULL, NULL, NULL, true, 0.1, 1e-5),
           "Expected more than 1 value per channel when training, got input size [1, 3]");
    refuse(tg_batch_norm(ones(1, 3, 1), NULL, NULL, NULL, NULL, true, 0.1, 1e-5), "got input size [1, 3, 1]");
    refuse(tg_batch_norm(ones(3), NULL, NULL, NULL, NULL, true, 0.1, 1e-5), "Expected at least 2 dimensions");
    refuse(tg_batch_norm(ones(2, 3), w, b, NULL, NULL, true, 0.1, 1e-5),
           "running_mean should contain 3 elements not 2");
    refuse(tg_batch_norm(ones(2, 2), w, ones(3), NULL, NULL, true, 0.1, 1e-5),
           "running_var should contain 2 elements not 3");
    refuse(tg_batch_norm(ones(2, 3), NULL, NULL, ones(2), NULL, true, 0.1, 1e-5),
           "weight should contain 3 elements not 2");
    refuse(tg_batch_norm(ones(2, 3), NULL, NULL, NULL, ones(1, 3), true, 0.1, 1e-5),
           "bias [1, 3] must be [3] for x [2, 3]");
    refuse(tg_batch_norm(ones(2, 2), w, NULL, NULL, NULL, true, 0.1, 1e-5), "must either both be None or neither");
    refuse(tg_batch_norm(ones(2, 2), required, b, NULL, NULL, true, 0.1, 1e-5), "argument 'running_mean'");
    refuse(tg_batch_norm(ones(2, 2), w, required, NULL, NULL, false, 0.1, 1e-5), "argument 'running_var'");
    refuse(tg_batch_norm(ones(2, 2), w, b, NULL, NULL, true, 0.1, 0),
           "eps must be positive during training, but got 0");
    refuse(tg_batch_norm(ones(2, 2), w, b, NULL, NULL, false, 0.1, -1), "eps must be non-negative, but got -1");
    refuse(tg_batch_norm(i64("[[1], [2]]"), NULL, NULL, NULL, NULL, true, 0.1, 1e-5), "Got: i64");
    CHECK(tg_version_of(w) == 1 && tg_version_of(b) == 1); /* what was refused has written nothing */
}
SAMPLES(batch_norm_by_running)
{
    sample(S(4, 3), constant("[1, 0, -2]"), constant("[2, 1, 0.5]"), S(3), S(3), num(1e-5));
    sample(S(1, 2, 1), constant("[1, 0]"), constant("[2, 1]"), S(2), num(0));
    sample(S(2, 2, 2, 2), constant("[1, 0]"), constant("[2, 1]"), num(1e-2));
    sample(S(2, 2, 9), constant("[1, 0]"), constant("[2, 1]"), S(2), S(2), num(1e-2));
    edge(in(CHANNELS), constant("[1, -1]"), constant("[2, 0.5]"), in("[1.5, -2]"), in("[0.5, 1]"), num(1e-5),
         gives("[[[0.5, 1.56065752014, 3.68197256042], [1, -1.82839884089, -10.3135953636]], "
               "[[-0.0303287600697, -2.68197256042, 0.5], [-7.4851965227, -7.4851965227, 1]]]"),
         grads("[[[1.06065752014, 1.06065752014, 1.06065752014], [-2.8283988409, -2.8283988409, -2.8283988409]], "
               "[[1.06065752014, 1.06065752014, 1.06065752014], [-2.8283988409, -2.8283988409, -2.8283988409]]]"),
         grads("[0.353552506713, 15.5561936249]"), grads("[6, 6]"));
    refuse(tg_batch_norm(ones(2, 3), NULL, NULL, NULL, NULL, false, 0.1, 1e-5),
           "running_mean must be defined in evaluation mode");
    refuse(tg_batch_norm(ones(2, 3), ones(3), NULL, NULL, NULL, false, 0.1, 1e-5),
           "running_var must be defined in evaluation mode");
}
SAMPLES(instance_norm)
{
    tg_tensor *x = f64(CHANNELS), *w = f64("[1.5, -2]"), *b = f64("[0.5, 1]");
    sample(S(2, 3, 3), S(3), S(3), num(1e-5));
    sample(S(2, 2, 2, 3), S(2), num(1e-2));
    sample(S(2, 3, 9), S(3), S(3), num(1e-5));
    expect(tg_square(tg_instance_norm(x, NULL, NULL, w, b, true, 0.1, 1e-5)),
           "[[[1.21784974375, 0.0098226782638, 6.27228418541], [8.76845644673, 3.18430885087, 3.04719316407]], "
           "[[1.59264033957, 2.54560752371, 3.36171294339], [0.171569946345, 0.171569946345, 14.6568001076]]]");
    expect(running_after(x, false, 0.1), "[[1.00833333333, -0.816666666667], [2.04583333333, 0.816666666667]]");
    expect(running_after(x, false, 0.75), "[[1.0625, 0.375], [2.34375, 2.875]]");
    expect(running_after(tg_zeros_on(TG_SHAPE(2, 2, 0), TG_F64, HERE), false, 1), "[[1, -1], [2, 0.5]]");
    CHECK(tg_equal(tg_instance_norm(x, b, tg_square(w), w, b, false, 0.1, 1e-5),
                   tg_batch_norm(x, b, tg_square(w), w, b, false, 0.1, 1e-5)));
    refuse(tg_instance_norm(ones(2, 3), NULL, NULL, NULL, NULL, true, 0.1, 1e-5),
           "Expected more than 1 spatial element when training, got input size [2, 3]");
    refuse(tg_instance_norm(x, NULL, NULL, NULL, NULL, false, 0.1, 1e-5), "must be defined in evaluation mode");
    refuse(tg_instance_norm(x, NULL, NULL, ones(3), NULL, true, 0.1, 1e-5), "weight should contain 2 elements not 3");
}
SAMPLES(group_norm)
{
    tg_tensor *x = f64(CHANNELS), *w = f64("[1.5, -2]"), *b = f64("[0.5, 1]");
    sample(S(2, 4), S(4), S(4), count(2), num(1e-5));
    sample(S(2, 4, 3), S(4), count(1), num(1e-2));
    sample(S(2, 2, 2, 2), count(2), num(1e-5));
    expect(tg_square(tg_group_norm(x, 1, w, b, 1e-5)),
           "[[[0.00370220164334, 0.882010761626, 7.26718344083], [15.4267895837, 7.59893794609, 0.572469466226]], "
           "[[0.341345961649, 3.77601792583, 1.18752763289], [1.28660878228, 1.28660878228, 8.46592296006]]]");
    CHECK(tg_numel(tg_group_norm(ones(0, 2, 3), 1, w, b, 1e-5)) == 0 && tg_ok());
    refuse(tg_group_norm(ones(2, 2, 0), 1, w, b, 1e-5), "Expected HxW to be greater than 0, got 0");
    refuse(tg_group_norm(ones(2, 0, 3), 1, NULL, NULL, 1e-5), "Expected number of channels to be greater than 0, got 0");
    refuse(tg_group_norm(ones(1, 4, 1), 4, NULL, NULL, 1e-5),
           "Expected more than 1 value per channel when training, got input size [1, 4, 1]");
    refuse(tg_group_norm(ones(2, 3), 2, NULL, NULL, 1e-5),
           "divisible by num_groups, but got input of shape [2, 3] and num_groups=2");
    refuse(tg_group_norm(ones(2, 3), 0, NULL, NULL, 1e-5), "Expected num groups to be greater than 0, got 0");
    refuse(tg_group_norm(ones(3), 1, NULL, NULL, 1e-5),
           "Expected at least 2 dimensions for input tensor but received 1");
    refuse(
        tg_group_norm(ones(2, 4), 2, ones(3), NULL, 1e-5),
        "Expected weight to be a vector of size equal to the number of channels in input, but got weight of shape [3] "
        "and input of shape [2, 4]");
    refuse(tg_group_norm(ones(2, 4), 2, NULL, ones(3), 1e-5), "got bias of shape [3]");
}
SAMPLES(channel_norm)
{
    sample(S(2, 4, 9), S(4), S(4), count(2), num(1e-5));
    sample(S(2, 2, 3, 5), S(2), S(2), count(1), num(1e-2));
    sample(S(1, 2, 40), S(2), S(2), count(2), num(1e-5));
}
SAMPLES(unit_length)
{
    sample(S(2, 3), num(2), dim(1), num2(1e-12));
    sample(S(2, 3), num(1), dim(0), num2(1e-12));
    sample(S(4), num(3), dim(-1), num2(1e-12));
    edge(in("[[3, 4], [0, 0], [-1, 1]]"), num(2), dim(1), num2(1e-12),
         gives("[[0.6, 0.8], [0, 0], [-0.7071067811865, 0.7071067811865]]"),
         grads("[[0.032, -0.024], [1e12, 1e12], [0.7071067811865, 0.7071067811865]]")); /* 2.71 */
    expect(tg_normalize(f64("[[3, 4], [0, 0], [-1, 1]]"), 1, 0, 1e-12), "[[0.75, 0.8], [0, 0], [-0.25, 0.2]]");
    refuse(tg_normalize(i64("[1, 2]"), 2, 0, 1e-12), "tg_normalize: ");
    refuse(tg_normalize(ones(2), 2, 1, 1e-12), "Dimension out of range");
}
SAMPLES(cosine_similarity)
{
    sample(S(2, 3), S(2, 3), dim(1), num(1e-8));
    sample(S(3), S(2, 3), dim(-1), num(1e-8));
    sample(S(2, 3), S(2, 1), dim(0), num(1e-8));
    expect(tg_cosine_similarity(f64("[[3, 4], [1, 2], [-1, 1], [0, 0]]"), f64("[[1, 2], [2, 4], [1, 1], [1, 1]]"), 1,
                                1e-8),
           "[0.983869910099907, 1, 0, 0]");
    refuse(tg_cosine_similarity(i64("[1]"), ones(1), 0, 1e-8), "Got: i64");
    refuse(tg_cosine_similarity(ones(2), ones(3), 0, 1e-8), "must match the size of tensor b");
}
SAMPLES(cdist)
{
    sample(S(2, 3), S(4, 3), num(2));
    sample(S(2, 1, 3), S(2, 3), num(1.5));
    sample(S(0, 3), S(2, 3), num(2));
    sample(S(2, 1, 3), S(2, 3), num(2));
    sample(S(7, 2), S(33, 2), num(2)); /* several tiles */
    sample(S(7, 2), S(33, 2), num(1));
    sample(S(1, 66), S(2, 66), num(2)); /* sums of several blocks */
    edge(in("[[3, 4], [1, 2]]"), in("[[1, 2], [2, 4], [1, 1]]"), num(2),
         gives("[[2.8284271247462, 1, 3.6055512754640], [0, 2.2360679774998, 1]]"),
         grads("[[2.2618069774118, 1.5391570755254], [-0.447213595499958, 0.10557280900008]]"),
         grads("[[-0.70710678118655, -0.70710678118655], [-0.55278640450004, 0.89442719099992], "
               "[-0.55470019622523, -1.83205029433784]]")); /* 2.71: 0 from points that coincide */
    expect(tg_cdist(f64("[[3, 4], [1, 2]]"), f64("[[1, 2], [2, 4], [1, 1]]"), 1), "[[4, 1, 5], [0, 3, 1]]");
    expect(tg_mul_scalar(tg_cdist(f64("[[3e200, 4e200], [0, 0]]"), f64("[[0, 0]]"), 2), 1e-200), "[[5], [0]]");
    expect(tg_mul_scalar(tg_cdist(f64("[[3e-200, 4e-200], [0, 0]]"), f64("[[0, 0]]"), 2), 1e200), "[[5], [0]]");
    refuse(tg_cdist(ones(2, 3), ones(2, 4), 2), "a and b must have the same number of columns. a: 3 b: 4");
    refuse(tg_cdist(ones(3), ones(2, 3), 2), "cdist only supports at least 2D tensors, a got: 1D");
    refuse(tg_cdist(ones(2, 3), ones(3), 2), "cdist only supports at least 2D tensors, b got: 1D");
    refuse(tg_cdist(ones(2, 3), ones(2, 3), -1), "cdist only supports non-negative p values");
    refuse(tg_cdist(i64("[[1]]"), i64("[[1]]"), 2), "tg_cdist: ");
}
SAMPLES(glu)
{
    sample(S(2, 4), dim(1));
    sample(S(4, 3), dim(-2));
    sample(S(0, 2), dim(1));
    sample(S(3, 0), dim(1));
    sample(S(2, 40, 3), dim(1));
    sample(S(2, 3, 34), dim(2)); /* whole vectors and a rest */
    edge(in("[[-1, 0, 2, 0.5], [3, -2, -0.5, 1]]"), dim(1),
         gives("[[-0.880797077978, 0], [1.132622006394, -1.462117157260]]"),
         grads("[[0.880797077978, 0.622459331202, -0.104993585404, 0], "
               "[0.377540668798, 0.731058578630, 0.705011136605, -0.393223866483]]"));
    refuse(tg_glu(ones(2, 3), 1), "Halving dimension must be even, but dimension 1 is size 3");
    refuse(tg_glu(f64("1"), 0), "Halving dimension must be even, but dimension 0 is size 1");
    refuse(tg_glu(ones(2, 2), 2), "Dimension out of range");
    refuse(tg_glu(i64("[1, 2]"), 0), "Got: i64");
}
SAMPLES(prelu)
{
    sample(S(2, 3), S(3));
    sample(S(2, 3, 2), S(3));
    sample(S(5), S(1));
    sample(S0, S0);
    sample(S(0, 2), S(2));
    edge(in("[[-1, 0, 2], [3, -2, -0.5]]"), in("[0.5, 0.25, -1]"), gives("[[-0.5, 0, 2], [3, -0.5, 0.5]]"),
         grads("[[0.5, 0.25, 1], [1, 0.25, -1]]"), grads("[-1, -2, -0.5]"));
    refuse(tg_prelu(ones(2, 3), ones(2)), "Found parameter numbers = 2 and channel size = 3.");
    refuse(tg_prelu(ones(3), ones(3)), "Found parameter numbers = 3 and channel size = 1.");
    refuse(tg_prelu(ones(2, 3), ones(1, 3)), "to be a scalar or 1D tensor, but got: ndim = 2");
}
/* ---- convolutions: x, weight, bias; stride dims, padding dims2 or flag (the same size), dilation count, groups
   count2, output_padding dim ---- */

SAMPLES(conv)
{
    sample(S(1, 1, 4), S(1, 1, 3));
    edge(in("[[[1, 2, 3, 4]]]"), in("[[[1, -1, 2]]]"), gives("[[[5, 7]]]"), grads("[[[1, 0, 1, 2]]]"),
         grads("[[[3, 5, 7]]]"));
}
SAMPLES(conv1d)
{
    sample(S(2, 3, 5), S(2, 3, 3), S(2), dims(2), dims2(1));
    sample(S(3, 7), S(4, 3, 2), count(3));                       /* one image */
    sample(S(1, 4, 5), S(2, 2, 4), dims2(3), count2(2));         /* windows of padding alone */
    sample(S(2, 2, 4), S(4, 1, 2), S(4), flag(true), count2(2)); /* depthwise, two maps for each channel */
    sample(S(0, 2, 4), S(3, 2, 2), S(3));
    sample(S(2, 0, 4), S(3, 0, 2), S(3));
    sample(S(2, 1, 3), S(1, 1, 1), dims(2));
    edge(in("[[[1, 2, 3, 4]]]"), in("[[[1, -1, 2]]]"), in("[10]"), gives("[[[15, 17]]]"), grads("[[[1, 0, 1, 2]]]"),
         grads("[[[3, 5, 7]]]"), grads("[2]"));
    edge(in("[[1, 2, 3, 4, 5]]"), in("[[[1, 2]]]"), flag(true), gives("[[5, 8, 11, 14, 5]]"),
         grads("[[1, 3, 3, 3, 3]]"), grads("[[[15, 14]]]"));
    edge(in("[[1, 2, 3, 4, 5]]"), in("[[[1, -2, 3]]]"), dims(2), dims2(1), gives("[[4, 8, -6]]"),
         grads("[[-2, 4, -2, 4, -2]]"), grads("[[[6, 9, 6]]]"));
    expect(tg_conv1d(i64("[[9007199254740993, 1]]"), i64("[[[3, 1]]]"), NULL, TG_SHAPE(1), TG_VALID, TG_SHAPE(1), 1),
           "[[27021597764222980]]");
    refuse(tg_conv1d(ones(5), ones(4, 3, 3), NULL, TG_SHAPE(1), TG_VALID, TG_SHAPE(1), 1),
           "Expected 2D (unbatched) or 3D (batched) input to conv1d, but got input of size: [5]");
    refuse(tg_conv1d(ones(1, 3, 5), ones(4, 3, 7), NULL, TG_SHAPE(1), TG_VALID, TG_SHAPE(1), 1),
           "Calculated padded input size per channel: (5). Kernel size: (7). Kernel size can't be greater than actual "
           "input size");
    refuse(tg_conv1d(ones(1, 3, 5), ones(4, 3, 3), NULL, TG_SHAPE(INT64_MAX), TG_VALID, TG_SHAPE(1), 1), "2147483647");
    refuse(tg_conv1d(tg_expand(ones(1), TG_SHAPE(1, 1, (int64_t)1 << 40)), tg_expand(ones(1), TG_SHAPE(1, 1, 1 << 30)),
                     NULL, TG_SHAPE(1), TG_SAME, TG_SHAPE(INT32_MAX), 1),
           "the size of the result overflows");
    refuse(tg_conv1d(ones(1, 3, 5), ones(4, 3, 0), NULL, TG_SHAPE(1), TG_VALID, TG_SHAPE(1), 1), "[4, 3, 0]");
}
SAMPLES(conv2d)
{
    tg_tensor *x = ones(1, 3, 5, 5), *w = ones(4, 3, 3, 3);
    tg_shape one = TG_SHAPE(1), three = TG_SHAPE(1, 2, 3);
    sample(S(2, 2, 4, 3), S(3, 2, 2, 3), S(3), dims(2, 1), dims2(1, 2));
    sample(S(2, 3, 4), S(4, 1, 2, 2), flag(true), count2(2)); /* one image */
    edge(in("[[[[1, 2, 3], [4, 5, 6], [7, 8, 9]]]]"), in("[[[[1, 2], [3, 4]]]]"), in("[0.5]"), dims(2), dims2(1),
         gives("[[[[4.5, 18.5], [36.5, 77.5]]]]"), grads("[[[[4, 3, 4], [2, 1, 2], [4, 3, 4]]]]"),
         grads("[[[[5, 10], [10, 20]]]]"), grads("[4]"));
    edge(in("[[[1, 2], [3, 4]], [[5, 6], [7, 8]]]"), in("[[[[1, 2], [3, 4]]], [[[-1, 0], [0, 1]]]]"), flag(true),
         count2(2), gives("[[[30, 14], [11, 4]], [[3, -6], [-7, -8]]]"),
         grads("[[[1, 3], [4, 10]], [[-1, -1], [-1, 0]]]"), grads("[[[[10, 6], [7, 4]]], [[[26, 14], [15, 8]]]]"));
    refuse(tg_conv2d(x, ones(4, 2, 3, 3), NULL, one, TG_VALID, one, 1),
           "Given groups=1, weight of size [4, 2, 3, 3], expected input[1, 3, 5, 5] to have 2 channels, but got 3 "
           "channels instead");
    refuse(tg_conv2d(x, w, ones(3), one, TG_VALID, one, 1),
           "Given weight of size [4, 3, 3, 3], expected bias to be 1-dimensional with 4 elements, but got bias of size "
           "[3] instead");
    refuse(tg_conv2d(x, w, ones(4, 1), one, TG_VALID, one, 1), "but got bias of size [4, 1] instead");
    refuse(tg_conv2d(x, ones(4, 3, 7, 7), NULL, one, TG_VALID, TG_SHAPE(2), 1),
           "Calculated padded input size per channel: (5 x 5). Kernel size: (13 x 13). Kernel size can't be greater "
           "than actual input size");
    refuse(tg_conv2d(x, w, NULL, TG_SHAPE(0), TG_VALID, one, 1), "non-positive stride is not supported");
    refuse(tg_conv2d(x, w, NULL, one, TG_VALID, TG_SHAPE(0), 1), "dilation should be greater than zero, but got [0]");
    refuse(tg_conv2d(x, w, NULL, one, TG_SHAPE(-1), one, 1), "negative padding is not supported");
    refuse(tg_conv2d(x, w, NULL, three, TG_VALID, one, 1),
           "expected stride to be a single integer value or a list of 2 values to match the convolution dimensions, "
           "but got stride=[1, 2, 3]");
    refuse(tg_conv2d(x, w, NULL, one, three, one, 1), "but got padding=[1, 2, 3]");
    refuse(tg_conv2d(x, w, NULL, one, TG_VALID, three, 1), "but got dilation=[1, 2, 3]");
    refuse(tg_conv2d(x, w, NULL, one, tg_make_shape(9, NULL), one, 1), "at most 8 dims");
    refuse(tg_conv2d(x, w, NULL, TG_SHAPE(2), TG_SAME, one, 1),
           "padding='same' is not supported for strided convolutions");
    refuse(tg_conv2d(x, w, NULL, one, TG_VALID, one, 0), "non-positive groups is not supported");
    refuse(tg_conv2d(ones(1, 4, 5, 5), ones(3, 2, 3, 3), NULL, one, TG_VALID, one, 2),
           "Given groups=2, expected weight to be divisible by 2 at dimension 0, but got weight of size [3, 2, 3, 3] "
           "instead");
    refuse(tg_conv2d(x, ones(0, 3, 3, 3), NULL, one, TG_VALID, one, 1),
           "expected weight to be at least 1 at dimension 0");
    refuse(tg_conv2d(x, ones(4, 3, 3), NULL, one, TG_VALID, one, 1), "Expected a 4D weight");
    refuse(tg_conv2d(ones(5, 5), w, NULL, one, TG_VALID, one, 1),
           "Expected 3D (unbatched) or 4D (batched) input to conv2d, but got input of size: [5, 5]");
    refuse(tg_conv2d(ones(2, 3, 0, 5), w, NULL, one, TG_SHAPE(2), one, 1),
           "Only zero batch or zero channel inputs are supported, but got input shape: [2, 3, 0, 5]");
    refuse(tg_conv2d(x, tg_to_dtype(w, TG_F32), NULL, one, TG_VALID, one, 1),
           "Input type (f64) and weight type (f32) should be the same\n"
           "  hint: x [1, 3, 5, 5] is f64 and weight [4, 3, 3, 3] is f32: tg_to_dtype(x, TG_F32)");
    refuse(tg_conv2d(x, w, tg_to_dtype(ones(4), TG_F32), one, TG_VALID, one, 1),
           "Input type (f64) and bias type (f32) should be the same");
    refuse(tg_conv2d(tg_to_dtype(x, TG_BOOL), tg_to_dtype(w, TG_BOOL), NULL, one, TG_VALID, one, 1), "'bool'");
}
SAMPLES(conv3d)
{
    sample(S(1, 2, 2, 3, 3), S(2, 1, 2, 2, 2), S(2), dims2(1, 0, 1), dims(2, 1, 2), count2(2));
    edge(in("[[[[1, 2], [3, 4]], [[5, 6], [7, 8]]]]"), in("[[[[[1, 2]], [[0, -1]]]]]"), in("[1]"),
         gives("[[[[0], [4]]]]"), grads("[[[[1, 2], [1, 2]], [[0, -1], [0, -1]]]]"),
         grads("[[[[[4, 6]], [[12, 14]]]]]"), grads("[2]"));
    refuse(tg_conv3d(ones(1, 1, 2, 2, 2), ones(1, 1, 1, 1, 3), NULL, TG_SHAPE(1), TG_VALID, TG_SHAPE(1), 1),
           "(2 x 2 x 2). Kernel size: (1 x 1 x 3)");
}
SAMPLES(conv_transpose)
{
    sample(S(1, 1, 3), S(1, 1, 2));
    edge(in("[[[1, 2, 3]]]"), in("[[[1, 10, 100]]]"), gives("[[[1, 12, 123, 230, 300]]]"), grads("[[[111, 111, 111]]]"),
         grads("[[[6, 6, 6]]]"));
}
SAMPLES(conv_transpose1d)
{
    sample(S(2, 2, 3), S(2, 3, 2), S(3), dims(2), dims2(1), dim(1));
    sample(S(4, 3), S(4, 1, 3), count(2), count2(2), dim(1)); /* one image */
    sample(S(0, 2, 3), S(2, 2, 2), S(2));
    sample(S(1, 1, 3), S(1, 1, 1), dims(2)); /* elements that nothing is added to */
    edge(in("[[[1, 2, 3]]]"), in("[[[1, 10, 100]]]"), in("[0.5]"), dims(2), dims2(1), dim(1),
         gives("[[[10.5, 102.5, 20.5, 203.5, 30.5, 300.5]]]"), grads("[[[110, 111, 111]]]"), grads("[[[5, 6, 6]]]"),
         grads("[6]"));
    expect(tg_conv_transpose1d(i64("[[9007199254740993]]"), i64("[[[3, 1]]]"), NULL, TG_SHAPE(1), TG_SHAPE(0),
                               TG_SHAPE(0), 1, TG_SHAPE(1)),
           "[[27021597764222979, 9007199254740993]]");
}
SAMPLES(conv_transpose2d)
{
    tg_tensor *x = ones(1, 4, 5, 5), *w = ones(4, 2, 3, 3);
    tg_shape zero = TG_SHAPE(0), one = TG_SHAPE(1), two = TG_SHAPE(2);
    sample(S(2, 2, 2, 3), S(2, 1, 3, 2), S(2), dims(2, 1), dims2(1, 0), count2(2));
    edge(in("[[[1, 2], [3, 4]]]"), in("[[[[1, 2], [3, 4]]]]"), dims(2),
         gives("[[[1, 2, 2, 4], [3, 4, 6, 8], [3, 6, 4, 8], [9, 12, 12, 16]]]"), grads("[[[10, 10], [10, 10]]]"),
         grads("[[[[10, 10], [10, 10]]]]"));
    refuse(tg_conv_transpose2d(ones(1, 3, 5, 5), w, NULL, one, zero, zero, 1, one),
           "Given transposed=1, weight of size [4, 2, 3, 3], expected input[1, 3, 5, 5] to have 4 channels, but got 3 "
           "channels instead");
    refuse(tg_conv_transpose2d(x, w, ones(3), one, zero, zero, 1, one),
           "Given transposed=1, weight of size [4, 2, 3, 3], expected bias to be 1-dimensional with 2 elements");
    refuse(tg_conv_transpose2d(x, w, NULL, two, zero, two, 1, one),
           "output padding must be smaller than either stride or dilation");
    refuse(tg_conv_transpose2d(x, w, NULL, one, zero, TG_SHAPE(-1), 1, one),
           "negative output_padding is not supported");
    refuse(tg_conv_transpose2d(x, w, NULL, one, TG_SHAPE(9), zero, 1, one),
           "Given input size per channel: (5 x 5). Calculated output size per channel: (-11 x -11). Output size is too "
           "small");
    refuse(tg_conv_transpose2d(x, w, NULL, one, zero, zero, 3, one), "divisible by 3 at dimension 0");
    refuse(tg_conv_transpose2d(x, w, NULL, one, TG_SAME, zero, 1, one),
           "padding='same' is not supported for transposed convolutions");
    refuse(tg_conv_transpose2d(x, w, NULL, one, zero, TG_SHAPE(1, 1, 1), 1, one), "but got output_padding=[1, 1, 1]");
    refuse(tg_conv_transpose2d(ones(5, 5), w, NULL, one, zero, zero, 1, one), "input to conv_transpose2d");
}
SAMPLES(conv_transpose3d)
{
    sample(S(1, 2, 1, 2, 2), S(2, 1, 2, 2, 1), S(1), dims(1, 2, 1), dims2(0, 1, 0));
    edge(in("[[[[1, 2]]]]"), in("[[[[[1, 10]]]]]"), gives("[[[[1, 12, 20]]]]"), grads("[[[[11, 11]]]]"),
         grads("[[[[[3, 3]]]]]"));
    refuse(tg_conv_transpose3d(ones(1, 1, 1, 1, 1), ones(1, 1, 1, 1, 1), NULL, TG_SHAPE(1), TG_SHAPE(1), TG_SHAPE(0), 1,
                               TG_SHAPE(1)),
           "(-1 x -1 x -1)");
}
SAMPLES(conv_weight)
{
    sample(S(2, 2, 4), S(2, 3, 3), dims(3, 2, 2), dim(1), count2(1));
    sample(S(1, 2, 5), S(1, 4, 3), dims(4, 1, 3), dim(2), dim2(1), count2(2));
    sample(S(0, 2, 4), S(0, 3, 3), dims(3, 2, 2), dim(1), count2(1));
    edge(in("[[[1, 2, 3]]]"), in("[[[1, 10]]]"), dims(1, 1, 2), dim(1), count2(1), gives("[[[21, 32]]]"),
         grads("[[[1, 11, 10]]]"), grads("[[[3, 5]]]"));
}
SAMPLES(lstm_cell)
{
    sample(S(2, 12), S(2, 12), S(2, 3));
    sample(S(1, 4), S(1, 4), S(1, 1));
    sample(S(5, 76), S(5, 76), S(5, 19));
    sample(S(0, 8), S(0, 8), S(0, 2));
    edge(in("[[0, 0, 0, 0]]"), in("[[0, 0, 0, 0]]"), in("[[2]]"), gives("[[0.380797077978, 1]]"),
         grads("[[0, 0.604993585404, 0.604993585404, 0.190398538989]]"),
         grads("[[0, 0.604993585404, 0.604993585404, 0.190398538989]]"), grads("[[0.604993585404]]"));
}
SAMPLES(scaled_dot_product_attention)
{
    tg_tensor *q = tg_reshape(tg_div_scalar(f64("[0, 1, 2, 3, 4, 5]"), 6), TG_SHAPE(1, 3, 2));
    tg_tensor *k = tg_reshape(tg_div_scalar(f64("[6, 5, 4, 3, 2, 1]"), 5), TG_SHAPE(1, 3, 2));
    tg_tensor *v = f64("[[[0, 1], [2, 3], [4, 5]]]");
    sample(S(2, 3, 2), S(2, 4, 2), S(2, 4, 3));
    sample(S(3, 2), S(3, 2), S(3, 2), flag(true));
    sample(S(2, 1, 3, 2), S(3, 2), S(3, 2), num(0.3));
    sample(S(3, 2), S(3, 2), S(3, 2), mask("[[1, 0, 1], [1, 1, 0], [0, 0, 1]]"));
    sample(S(2, 3, 2), S(2, 3, 2), S(2, 3, 2), S(3, 3));
    sample(S(2, 9, 2), S(2, 4, 2), S(2, 4, 3)); /* so many queries that they are worth a kernel of their own */
    sample(S(9, 2), S(9, 2), S(9, 2), flag(true));
    sample(S(2, 1, 8, 2), S(3, 2), S(3, 2), num(-0.3));
    sample(S(2, 8, 2), S(3, 2), S(3, 2),
           mask("[[1, 0, 1], [1, 1, 0], [0, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0], [1, 0, 0], [1, 0, 1]]"));
    sample(S(2, 8, 2), S(2, 3, 2), S(2, 3, 2), S(8, 3));
    edge(in("[[[1, 0], [0, 1]]]"), in("[[[1, 0], [0, 1]]]"), in("[[[1, 2], [3, 4]]]"), flag(true),
         gives("[[[1, 2], [2.33952309865, 3.33952309865]]]"), grads("[[[0, 0], [-0.62559438618, 0.62559438618]]]"),
         grads("[[[0, -0.62559438618], [0, 0.62559438618]]]"),
         grads("[[[1.33023845067, 1.33023845067], [0.669761549327, 0.669761549327]]]"));
    expect(tg_scaled_dot_product_attention(q, k, v, NULL, 0, false, 0),
           "[[[1.93716933193, 2.93716933193], [1.6886056302, 2.6886056302], [1.45064906878, 2.45064906878]]]");
    expect(tg_scaled_dot_product_attention(q, k, v, NULL, 0, true, 0),
           "[[[0, 1], [0.882691462681, 1.88269146268], [1.45064906878, 2.45064906878]]]");
    expect(tg_scaled_dot_product_attention(q, k, v, NULL, 0, false, 0.5),
           "[[[1.95556378403, 2.95556378403], [1.77880043097, 2.77880043097], [1.60588532459, 2.60588532459]]]");
    expect(tg_scaled_dot_product_attention(q, k, v, boolean("[[1, 0, 1], [1, 1, 0], [0, 0, 0]]"), 0, false, 0),
           "[[[1.90578887153, 2.90578887153], [0.882691462681, 1.88269146268], [0, 0]]]");
    expect(
        tg_scaled_dot_product_attention(q, k, v, f64("[[0, -inf, 0], [0, 0, -inf], [-inf, -inf, -inf]]"), 0, false, 0),
        "[[[1.90578887153, 2.90578887153], [0.882691462681, 1.88269146268], [0, 0]]]");
    expect(tg_scaled_dot_product_attention(q, k, v, boolean("0"), 0, false, 0), "[[[0, 0], [0, 0], [0, 0]]]");
    sample(S(2, 3, 2), S(2, 3, 2), S(2, 3, 2), mask("[[1, 0, 1], [0, 0, 0], [0, 0, 1]]"));
    refuse(tg_scaled_dot_product_attention(ones(2, 3), ones(2, 4), ones(2, 4), NULL, 0, false, 0),
           "tg_scaled_dot_product_attention: q [2, 3], k [2, 4] and v [2, 4] do not fit");
    refuse(tg_scaled_dot_product_attention(ones(2, 3), ones(2, 3), ones(3, 4), NULL, 0, false, 0),
           "q [2, 3], k [2, 3] and v [3, 4] do not fit");
    refuse(tg_scaled_dot_product_attention(ones(2, 5, 3), ones(2, 5, 3), ones(3, 5, 3), NULL, 0, false, 0),
           "q [2, 5, 3], k [2, 5, 3] and v [3, 5, 3] do not fit");
    refuse(tg_scaled_dot_product_attention(ones(2, 3), ones(2, 3), ones(2, 3), ones(2, 2), 0, true, 0),
           "Explicit attn_mask should not be set when is_causal is true");
    refuse(tg_scaled_dot_product_attention(ones(3), ones(2, 3), ones(2, 3), NULL, 0, false, 0), "");
    expect(tg_scaled_dot_product_attention(q, k, v, NULL, 1, false, 0), "[[[0, 0], [0, 0], [0, 0]]]");
    tg_seed(3), q = tg_scaled_dot_product_attention(k, k, v, NULL, 0.5, false, 0);
    CHECK(!tg_equal(q, tg_scaled_dot_product_attention(k, k, v, NULL, 0, false, 0)));
    tg_seed(3);
    CHECK(tg_equal(q, tg_scaled_dot_product_attention(k, k, v, NULL, 0.5, false, 0)));
    refuse(tg_scaled_dot_product_attention(k, k, v, NULL, 1.5, false, 0),
           "dropout probability has to be between 0 and 1");
}
/* How often each of four categories comes when n are drawn from each of many rows of p; from one row if many is 1. */
static tg_tensor *frequencies(tg_tensor *p, int64_t many, int64_t n, bool replacement)
{
    tg_tensor *rows = many > 1 ? tg_expand(p, TG_SHAPE(many, 4)) : p;
    return tg_mean_dims(tg_to_dtype(tg_one_hot(tg_multinomial(rows, n, replacement), 4), TG_F64), TG_DIMS(0, 1), false);
}
SAMPLES(multinomial)
{
    tg_tensor *p = f64("[1, 0, 2, 5]"), *drawn, *again;
    sample(range(0.1, 2), S(6), count(3));
    sample(range(0.1, 2), S(2, 5), count(7), flag(true));
    sample(range(0.1, 2), S(3, 4), count(1));
    expect(tg_multinomial(f64("[[0, 3, 0], [0, 0, 0.1]]"), 1, false), "[[1], [2]]");
    expect(tg_multinomial(f64("[[0, 3, 0], [0, 0, 0.1]]"), 4, true), "[[1, 1, 1, 1], [2, 2, 2, 2]]");
    expect(tg_sort(tg_multinomial(f64("[1, 2, 3]"), 3, false), 0, false, NULL), "[0, 1, 2]");
    expect(tg_select(tg_multinomial(f64("[0, 0, 2]"), 2, false), 0, 0), "2"); /* the one of weight 0 is the last */
    CHECK(tg_dim(tg_multinomial(ones(0, 3), 2, false), 0) == 0 && tg_dim(tg_multinomial(ones(0, 3), 2, true), 1) == 2);
    tg_seed(4);
    drawn = tg_multinomial(p, 1000, true);
    tg_seed(4);
    again = tg_multinomial(tg_mul_scalar(p, 4), 1000, true); /* weights count by their ratios */
    CHECK(tg_equal(drawn, again) && !tg_equal(drawn, tg_multinomial(p, 1000, true)));
    CHECK(tg_allclose(frequencies(p, 1000, 20, true), f64("[0.125, 0, 0.25, 0.625]"), 0, 0.02));
    CHECK(tg_allclose(frequencies(p, 20000, 1, true), f64("[0.125, 0, 0.25, 0.625]"), 0, 0.02));
    /* the first of two by weight, the second by the weights that are left: 1/8 + 2/8 * 1/6 + 5/8 * 1/3, and so on */
    CHECK(
        tg_allclose(tg_mul_scalar(frequencies(p, 20000, 2, false), 2), f64("[0.375, 0, 0.702381, 0.922619]"), 0, 0.02));
    refuse(tg_multinomial(ones(2, 2, 2), 1, true), "prob_dist must be 1 or 2 dim");
    refuse(tg_multinomial(i64("[1, 2]"), 1, true), "only supports floating-point dtypes for input, got: i64");
    refuse(tg_multinomial(ones(2), 0, true), "cannot sample n_sample <= 0 samples");
    refuse(tg_multinomial(ones(2), 3, false),
           "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
    refuse(tg_multinomial(tg_expand(ones(1), TG_SHAPE((1 << 24) + 1)), 1, false), "cannot exceed 2^24");
    refuse(tg_multinomial(ones(2, 0), 1, true), "invalid multinomial distribution (sum of probabilities <= 0)");
    refuse(tg_multinomial(ones(0, 0), 1, true), "invalid multinomial distribution (sum of probabilities <= 0)");
    refuse(tg_multinomial(f64("[1, -1]"), 1, true), "contains either `inf`, `nan` or element < 0");
    refuse(tg_multinomial(f64("[1, inf]"), 1, true), "contains either `inf`, `nan` or element < 0");
    refuse(tg_multinomial(f64("[1, nan]"), 1, true), "contains either `inf`, `nan` or element < 0");
    refuse(tg_multinomial(f64("[[1, 1], [0, 0]]"), 2, true), "(sum of probabilities <= 0)");
}
SAMPLES(dropout)
{
    tg_tensor *x = leaf("[1, 2, 3, 4, 5, 6, 7, 8]"), *y, *g;
    sample(S(2, 3), num(0.5), flag(false));
    sample(S(2, 3), num(0), flag(true));
    sample(S(2, 3), num(0.5), flag(true));
    sample(S(5, 7), num(0.3), flag(true));
    edge(in("[1, 2, 3]"), num(1), flag(true), gives("[0, 0, 0]"), grads("[0, 0, 0]"));
    CHECK(tg_dropout(x, 0.5, false) == x && tg_dropout(x, 0, true) == x);
    tg_seed(5);
    y = tg_dropout(x, 0.5, true);
    g = gradient(y, x, 0);
    CHECK(tg_equal(y, tg_mul(x, g)) && tg_equal(tg_mul(g, tg_sub_scalar(g, 2)), tg_zeros_like(g))); /* each 0 or 2 */
    tg_seed(5);
    CHECK(tg_equal(y, tg_dropout(x, 0.5, true)));
    y = tg_dropout(tg_ones(TG_SHAPE(10000)), 0.25, true);
    CHECK_NEAR(tg_item(tg_mean(y)), 1, 0.02);
    CHECK_NEAR(tg_item(tg_amax(y)), 4.0 / 3, 1e-6);
    refuse(tg_dropout(ones(2), 1.5, true), "dropout probability has to be between 0 and 1, but got 1.5");
    refuse(tg_dropout(ones(2), -0.5, true), "dropout probability has to be between 0 and 1, but got -0.5");
}
SAMPLES(checkpoint)
{
    sample(S(2, 3));
    sample(S(4));
    edge(in("[1, 2]"), gives("5"), grads("[2, 4]"));
}
SAMPLES(custom)
{
    sample(S(2, 3));
    edge(in("[1, 2]"), gives("[2, 4]"), grads("[2, 2]"));
}

/* ---- pools ---- */

#define PLANE "[[[1, 5, 2, 0], [4, 3, 5, 1], [0, 2, 7, 6]]]"
#define LINE_OF_5 "[[1, 4, 2, 8, 3]]"

/* What all pools refuse, by the name of a function with the arguments (x, kernel, stride, padding). */
typedef tg_tensor *(*pool_function)(tg_tensor *, tg_shape, tg_shape, tg_shape);
static void pool_refusals(pool_function pool, int pooled)
{
    tg_tensor *x = pooled == 1 ? ones(3, 5) : ones(3, 1, 5);
    const tg_shape one = TG_SHAPE(1), three = pooled == 1 ? TG_SHAPE(3) : TG_SHAPE(1, 3);
    refuse(pool(x, TG_SHAPE(1, 1, 1), one, one), "kernel_size must");
    refuse(pool(x, TG_SCALAR, one, one), "but got 0 numbers");
    refuse(pool(x, one, TG_SHAPE(1, 1, 1), one), "stride must");
    refuse(pool(x, one, one, TG_SHAPE(1, 1, 1)), "padding must");
    refuse(pool(x, TG_SHAPE(0), one, one), "kernel size should be greater than zero, but got kH: ");
    refuse(pool(x, TG_SHAPE((int64_t)1 << 40), one, one), "kernel_size: 1099511627776 is out of range");
    refuse(pool(x, one, TG_SHAPE(0), one), "stride should be greater than zero, but got dH: ");
    refuse(pool(x, three, one, TG_SHAPE(-1)), "pad must be non-negative, but got pad: -1");
    refuse(pool(pooled == 1 ? ones(3, 5) : ones(3, 5, 5), TG_SHAPE(3), one, TG_SHAPE(2)),
           "pad should be at most half of effective kernel size, but got pad=2, kernel_size=3 and dilation=1");
    refuse(pool(pooled == 1 ? ones(3, 2) : ones(3, 1, 2), three, one, TG_SCALAR),
           "Given input size: (3x1x2). Calculated output size: (3x1x0). Output size is too small");
    refuse(pool(ones(5), one, one, TG_SCALAR), "tensor with optional 0 dim batch size for input, but got:[5]");
    refuse(pool(ones(1, 1, 1, 1, 5), one, one, TG_SCALAR), "batch size for input, but got:[1, 1, 1, 1, 5]");
    refuse(pool(pooled == 1 ? ones(2, 0, 5) : ones(2, 0, 5, 5), one, one, TG_SCALAR), "but got:[2, 0, 5");
    refuse(pool(pooled == 1 ? ones(2, 3, 0) : ones(2, 3, 5, 0), one, one, TG_SCALAR), "but got:[2, 3, ");
    refuse(pool(i64(pooled == 1 ? "[[[1]]]" : "[[[[1]]]]"), one, one, TG_SCALAR), "Got: i64");
    refuse(pool(ones(1), one, one, TG_SCALAR), pooled == 1 ? "2D or 3D (batch mode)" : "3D or 4D (batch mode)");
}

SAMPLES(max_pool)
{
    sample(S(2, 3, 5, 7), dims(2, 3), dims2(1, 2), count(1));
    sample(S(2, 6, 5), dims(3), dims2(2), count(1));
    sample(S(1, 4, 4), dims(1), dims2(3), count(0)); /* elements that no window has */
    sample(S(1, 37, 2), dims(3, 2), dims2(2, 1), count(1)); /* backward takes 16 rows at a time */
    sample(S(0, 2, 4, 4), dims(2), count(1));
    edge(in(PLANE), dims(2), dims2(1), gives("[[[5, 5, 5], [4, 7, 7]]]"),
         grads("[[[0, 2, 0, 0], [1, 0, 1, 0], [0, 0, 2, 0]]]"));
    edge(in(PLANE), dims(3), dims2(2), count(1), gives("[[[5, 5], [4, 7]]]"),
         grads("[[[0, 2, 0, 0], [1, 0, 0, 0], [0, 0, 1, 0]]]"));
    edge(in("[[[-inf, -inf], [-inf, -inf]]]"), dims(2), gives("[[[-inf]]]"), grads("[[[1, 0], [0, 0]]]"));
    edge(in("[[[1, nan], [nan, 3]]]"), dims(2), gives("[[[nan]]]"), grads("[[[0, 0], [1, 0]]]"));
    pool_refusals(tg_max_pool2d, 2);
}
/* The largest are the same with indices, which backward needs, and without; with a NaN at place `nan`, too. */
static void largest_without_indices(int64_t nan)
{
    const tg_dtype dtypes[] = {TG_F32, TG_F64, TG_F16, TG_BF16};
    for (int i = 0; i < 8; ++i) {
        tg_tensor *place = tg_reshape(tg_arange_on(0, 185, 1, TG_F64, HERE), TG_SHAPE(1, 5, 37)), *y[2];
        tg_tensor *x = tg_sin(tg_mul_scalar(place, 1.7));
        x = tg_to_dtype(tg_masked_fill(x, tg_eq_scalar(place, (double)nan), (double)NAN), dtypes[i / 2]);
        for (int k = 0; k < 2; ++k) {
            x = tg_set_requires_grad(tg_clone(x), k == 1);
            y[k] = i % 2 ? tg_adaptive_max_pool2d(x, TG_SHAPE(2, 1 + i / 4)) /* a window of 37 has two runs of 16 */
                         : tg_max_pool2d(x, TG_SHAPE(1, 3), TG_SHAPE(1, 2), TG_SHAPE(0, 1));
            y[k] = y[k] ? tg_masked_fill(tg_detach(y[k]), tg_isnan(tg_detach(y[k])), 9) : NULL;
            x = tg_detach(x);
        }
        CHECK(y[0] && y[1] && tg_equal(y[0], y[1]));
        CHECK(tg_item(tg_amax(y[0])) == (nan < 185 ? 9 : tg_item(tg_amax(x))));
    }
}
SAMPLES(max_pool1d)
{
    const int64_t places[] = {0, 20, 36, 37 * 2 + 5, 184, 185}; /* the last one is none */
    for (int i = 0; i < 6; ++i) largest_without_indices(places[i]);
    sample(S(2, 3, 7), dims(3), dims2(2), count(1));
    sample(S(3, 7), dims(2), dims2(1), count(1));
    edge(in(LINE_OF_5), dims(3), dims2(2), count(1), gives("[[4, 8, 8]]"), grads("[[0, 1, 0, 2, 0]]"));
    pool_refusals(tg_max_pool1d, 1);
}
SAMPLES(max_pool2d)
{
    sample(S(1, 2, 5, 4), dims(2));
    edge(in(PLANE), dims(3, 2), gives("[[[5, 7]]]"), grads("[[[0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 1, 0]]]"));
}
SAMPLES(max_pool1d_ex)
{
    tg_tensor *index = NULL, *x = f64(LINE_OF_5);
    sample(S(2, 3, 7), dims(2), dims2(2), count(1), count2(2));
    edge(in(LINE_OF_5), dims(2), dims2(2), count2(2), flag(true), gives("[[2, 3]]"), grads("[[0, 0, 1, 0, 1]]"));
    expect((tg_max_pool1d_ex(x, TG_SHAPE(2), TG_SHAPE(2), TG_SCALAR, TG_SHAPE(2), true, &index), index), "[[2, 4]]");
    CHECK(tg_dtype_of(index) == TG_I64 && !tg_requires_grad(index));
    refuse(tg_max_pool1d_ex(x, TG_SHAPE(2), TG_SCALAR, TG_SCALAR, TG_SHAPE(1, 1), false, &index), "dilation must be");
    CHECK(index == NULL);
}
SAMPLES(max_pool2d_ex)
{
    tg_tensor *index = NULL, *x = f64(PLANE);
    const tg_shape one = TG_SHAPE(1), two = TG_SHAPE(2), three = TG_SHAPE(3);
    sample(S(2, 6, 7), dims(2, 3), dims2(2, 1), count(1), count2(2), flag(true));
    sample(S(2, 4, 4), dims(2), dims2(3), count2(1), flag(true));
    sample(S(2, 9, 8), dims(3), dims2(1), count(1), count2(3));
    edge(in(PLANE), dims(2, 3), dims2(1, 2), count2(1), flag(true), gives("[[[5, 5], [7, 7]]]"),
         grads("[[[0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 2, 0]]]"));
    edge(in(PLANE), dims(2), dims2(1), count(1), count2(2), gives("[[[3, 5, 3, 5], [5, 7, 6, 7], [3, 5, 3, 5]]]"),
         grads("[[[0, 1, 0, 0], [0, 4, 4, 0], [0, 0, 2, 1]]]"));
    expect((tg_max_pool2d_ex(x, two, one, one, two, false, &index), index),
           "[[[5, 6, 5, 6], [1, 10, 11, 10], [5, 6, 5, 6]]]");
    refuse(tg_max_pool2d_ex(x, two, one, one, TG_SHAPE(0), false, NULL),
           "dilation should be greater than zero, but got dilationH: 0 dilationW: 0");
    refuse(tg_max_pool2d_ex(x, three, one, two, two, false, NULL),
           "pad should be at most half of kernel size, but got pad=2, kernel_size=3 and dilation=2");
    refuse(tg_max_pool2d_ex(x, three, one, TG_SCALAR, three, false, NULL),
           "Given input size: (1x3x4). Calculated output size: (1x0x0). Output size is too small");
    refuse(tg_max_pool2d_ex(ones(1, 2, 6), two, one, one, three, false, NULL),
           "a window has padding alone: dilation=3 of size 2");
}
#define VOLUME "[[[[1, 5, 2], [4, 3, 6]], [[0, 2, 7], [9, 8, -1]], [[3, -2, 4], [5, -3, -4]]]]"
SAMPLES(max_pool3d)
{
    sample(S(2, 2, 3, 4, 3), dims(2), dims2(1));
    sample(S(1, 4, 5, 3), dims(3, 2, 1), dims2(2, 1, 2));
    sample(S(1, 3, 3, 2), dims(1, 2, 2), dims2(1)); /* each layer alone */
    sample(S(1, 2, 2, 3), dims(2, 1, 1), dims2(1), count(0));
    sample(S(0, 2, 3, 3, 3), dims(2));
    edge(in(VOLUME), dims(2), dims2(1), gives("[[[[9, 8]], [[9, 8]]]]"),
         grads("[[[[0, 0, 0], [0, 0, 0]], [[0, 0, 0], [2, 2, 0]], [[0, 0, 0], [0, 0, 0]]]]"));
    edge(in("[[[[1, nan]], [[nan, 3]]]]"), dims(2, 1, 2), gives("[[[[nan]]]]"), grads("[[[[0, 0]], [[1, 0]]]]"));
    edge(in("[[[[2, 7]], [[7, 7]]]]"), dims(2, 1, 2), gives("[[[[7]]]]"), grads("[[[[0, 1]], [[0, 0]]]]"));
    refuse(tg_max_pool3d(ones(2, 3, 3), TG_SHAPE(2), TG_SCALAR, TG_SCALAR), "Expected 4D or 5D (batch mode) tensor");
    refuse(tg_max_pool3d(ones(2, 3, 3, 3), TG_SHAPE(1, 2), TG_SCALAR, TG_SCALAR), "or a tuple of three ints");
    refuse(tg_max_pool3d(ones(2, 3, 3, 3), TG_SHAPE(0, 1, 1), TG_SCALAR, TG_SCALAR), "but got kT: 0 kH: 1 kW: 1");
    refuse(tg_max_pool3d(ones(2, 3, 2, 3), TG_SHAPE(3), TG_SCALAR, TG_SCALAR),
           "Given input size: (2x3x2x3). Calculated output size: (2x1x0x1). Output size is too small");
}
SAMPLES(max_pool3d_ex)
{
    tg_tensor *index = NULL, *x = f64(VOLUME);
    sample(S(2, 4, 5, 3), dims(2), dims2(2, 1, 1), count(1), count2(2), flag(true));
    sample(S(1, 1, 3, 4, 5), dims(3, 2, 2), dims2(2), count(1), count2(1), flag(false));
    edge(in(VOLUME), dims(2), dims2(2, 1, 2), count(1), count2(1),
         gives("[[[[1, 5], [4, 6], [4, 6]], [[3, 7], [9, 8], [9, 8]]]]"),
         grads("[[[[1, 1, 0], [2, 0, 2]], [[0, 0, 1], [2, 2, 0]], [[1, 0, 0], [0, 0, 0]]]]"));
    expect((tg_max_pool3d_ex(x, TG_SHAPE(2), TG_SHAPE(2, 1, 2), TG_SHAPE(1), TG_SCALAR, false, &index), index),
           "[[[[0, 1], [3, 5], [3, 5]], [[12, 8], [9, 10], [9, 10]]]]");
    expect((tg_max_pool3d_ex(x, TG_SHAPE(1, 2, 1), TG_SHAPE(1), TG_SCALAR, TG_SCALAR, false, &index), index),
           "[[[[3, 1, 5]], [[9, 10, 8]], [[15, 13, 14]]]]");
    refuse(tg_max_pool3d_ex(x, TG_SHAPE(2), TG_SHAPE(2), TG_SHAPE(2), TG_SCALAR, false, &index), "at most half of");
    CHECK(index == NULL);
}
SAMPLES(max_unpool)
{
    sample(S(2, 2, 2), ids("[[[0, 3], [9, 11]], [[1, 2], [5, 6]]]"), dims(2), dims2(2), count(0));
    sample(S(1, 1, 1, 2), ids("[[[[0, 1]]]]"), dims(3, 1), dims2(1, 1), count(0));
    edge(in("[[[5, 7], [8, 9]]]"), ids("[[[0, 0], [7, 3]]]"), dims(2), /* one place twice: one of the two stays */
         gives("[[[7, 0, 0, 9], [0, 0, 0, 8], [0, 0, 0, 0], [0, 0, 0, 0]]]"), grads("[[[1, 1], [1, 1]]]"));
}
SAMPLES(max_unpool1d)
{
    const tg_shape two = TG_SHAPE(2);
    sample(S(2, 3), ids("[[0, 3, 4], [1, 2, 5]]"), dims(2));
    sample(S(1, 2, 2), ids("[[[1, 2], [0, 3]]]"), dims(3), dims2(1));
    edge(in("[[5, 7]]"), ids("[[1, 3]]"), dims(2), gives("[[0, 5, 0, 7]]"), grads("[[1, 1]]"));
    expect(tg_max_unpool1d(f64("[[5, 7]]"), i64("[[1, 3]]"), two, two, TG_SCALAR, TG_SHAPE(5)), "[[0, 5, 0, 7, 0]]");
    expect(tg_max_unpool1d(f64("[[5, 7]]"), i64("[[1, 3]]"), two, two, TG_SCALAR, TG_SHAPE(9, 1, 5)),
           "[[0, 5, 0, 7, 0]]");
    refuse(tg_max_unpool1d(ones(1, 2), i64("[[1, 3]]"), two, two, TG_SCALAR, TG_SHAPE(6)), "invalid output_size 6");
    refuse(tg_max_unpool1d(ones(1, 2), i64("[[1, 3]]"), two, two, TG_SCALAR, TG_SHAPE(5, 5)), "a length of '2'");
    refuse(tg_max_unpool1d(ones(1, 2), i64("[[1, 4]]"), two, two, TG_SCALAR, TG_SCALAR), "out of bounds");
    refuse(tg_max_unpool1d(ones(1, 2), i64("[1, 3]"), two, two, TG_SCALAR, TG_SCALAR), "Expected shape of indices");
    refuse(tg_max_unpool1d(ones(1, 2), tg_to_dtype(i64("[[1, 3]]"), TG_I32), two, two, TG_SCALAR, TG_SCALAR), "which are i64");
    refuse(tg_max_unpool1d(ones(2), i64("[1, 3]"), two, two, TG_SCALAR, TG_SCALAR), "of 2 or 3 dims");
    refuse(tg_max_unpool1d(ones(1, 2), i64("[[1, 3]]"), TG_SCALAR, two, TG_SCALAR, TG_SCALAR), "kernel_size must");
}
SAMPLES(max_unpool2d)
{
    sample(S(2, 2, 2), ids("[[[0, 3], [9, 11]], [[1, 2], [5, 6]]]"), dims(2, 2), dims2(2, 2));
    expect(tg_max_unpool2d(f64("[[[5]]]"), i64("[[[3]]]"), TG_SHAPE(2), TG_SHAPE(2), TG_SCALAR, TG_SHAPE(3, 2)),
           "[[[0, 0], [0, 5], [0, 0]]]");
}
SAMPLES(max_unpool3d)
{
    tg_tensor *index = NULL, *x = f64(VOLUME);
    const tg_shape kernel = TG_SHAPE(1, 2, 3);
    sample(S(1, 2, 1, 1), ids("[[[[2]], [[5]]]]"), dims(1, 2, 2));
    expect((x = tg_max_pool3d_ex(x, kernel, TG_SCALAR, TG_SCALAR, TG_SCALAR, false, &index),
            tg_max_unpool3d(x, index, kernel, TG_SCALAR, TG_SCALAR, TG_SCALAR)),
           "[[[[0, 0, 0], [0, 0, 6]], [[0, 0, 0], [9, 0, 0]], [[0, 0, 0], [5, 0, 0]]]]");
}
SAMPLES(adaptive_max_pool3d)
{
    sample(S(2, 3, 5, 4), dims(2, 3, 1));
    sample(S(1, 2, 2, 3, 2), dims(2));
    sample(S(1, 2, 2, 2), dims(2, 0, 1));
    edge(in(VOLUME), dims(2, 1, 2), gives("[[[[9, 8]], [[9, 8]]]]"),
         grads("[[[[0, 0, 0], [0, 0, 0]], [[0, 0, 0], [2, 2, 0]], [[0, 0, 0], [0, 0, 0]]]]"));
    refuse(tg_adaptive_max_pool3d(ones(2, 3, 3), TG_SHAPE(1)), "Expected 4D or 5D tensor, but got: [2, 3, 3]");
}
SAMPLES(adaptive_max_pool3d_ex)
{
    tg_tensor *index = NULL;
    sample(S(1, 2, 3, 2), dims(1, 2, 2));
    expect((tg_adaptive_max_pool3d_ex(f64(VOLUME), TG_SHAPE(2, 1, 2), &index), index), "[[[[9, 10]], [[9, 10]]]]");
    expect((tg_adaptive_max_pool3d_ex(f64(VOLUME), TG_SHAPE(3, 1, 1), &index), index), "[[[[5]], [[9]], [[15]]]]");
}
SAMPLES(adaptive_max_pool1d)
{
    sample(S(2, 3, 7), dims(3));
    sample(S(3, 4), dims(6));
    sample(S(2, 37), dims(2)); /* long windows */
    edge(in(LINE_OF_5), dims(3), gives("[[4, 8, 8]]"), grads("[[0, 1, 0, 2, 0]]"));
    refuse(tg_adaptive_max_pool1d(ones(2, 0, 3), TG_SHAPE(1)),
           "Expected input to have non-zero size for non-batch dimensions, but input has sizes [2, 0, 3] with "
           "dimension 1 being empty");
    refuse(tg_adaptive_max_pool1d(ones(3), TG_SHAPE(1)), "Expected 2D or 3D tensor, but got: [3]");
}
SAMPLES(adaptive_max_pool2d)
{
    sample(S(2, 5, 7), dims(3, 2));
    sample(S(0, 2, 3, 3), dims(2));
    sample(S(2, 3, 3), dims(0, 2));
    edge(in("[[[1, 2], [3, 4]]]"), dims(2, 0), gives("[[[], []]]"), grads("[[[0, 0], [0, 0]]]"));
    edge(in(PLANE), dims(2, 3), gives("[[[5, 5, 5], [4, 7, 7]]]"),
         grads("[[[0, 2, 0, 0], [1, 0, 1, 0], [0, 0, 2, 0]]]"));
}
SAMPLES(adaptive_max_pool1d_ex)
{
    tg_tensor *index = NULL;
    sample(S(2, 5), dims(2));
    expect((tg_adaptive_max_pool1d_ex(f64(LINE_OF_5), TG_SHAPE(3), &index), index), "[[1, 3, 3]]");
}
SAMPLES(adaptive_max_pool2d_ex)
{
    tg_tensor *index = NULL;
    sample(S(2, 3, 5), dims(2));
    expect((tg_adaptive_max_pool2d_ex(f64(PLANE), TG_SHAPE(2, 3), &index), index), "[[[1, 1, 6], [4, 10, 10]]]");
    refuse(tg_adaptive_max_pool2d_ex(ones(2, 2), TG_SHAPE(1), &index), "Expected 3D or 4D tensor, but got: [2, 2]");
    CHECK(index == NULL);
}
SAMPLES(window_sum)
{
    sample(S(2, 3, 5, 7), dims(2, 3), dims2(1, 2), count(1));
    sample(S(2, 6, 5), dims(3), dims2(2), count(1));
    sample(S(1, 4, 4), dims(1), dims2(3), count(0));
    sample(S(0, 2, 4, 4), dims(2), count(1));
    edge(in(PLANE), dims(2), dims2(1), gives("[[[3.25, 3.75, 2], [2.25, 4.25, 4.75]]]"),
         grads("[[[0.25, 0.5, 0.5, 0.25], [0.5, 1, 1, 0.5], [0.25, 0.5, 0.5, 0.25]]]"));
    edge(in(PLANE), dims(3), dims2(2), count(1), gives("[[[1.44444444444, 1.77777777778], [1, 2.66666666667]]]"),
         grads("[[[0.111111111111, 0.222222222222, 0.111111111111, 0.111111111111], [0.222222222222, 0.444444444444, "
               "0.222222222222, 0.222222222222], [0.111111111111, 0.222222222222, 0.111111111111, 0.111111111111]]]"));
    pool_refusals(tg_avg_pool2d, 2);
}
SAMPLES(avg_pool1d)
{
    sample(S(2, 3, 7), dims(3), dims2(2), count(1));
    edge(in(LINE_OF_5), dims(3), dims2(2), count(1), gives("[[1.66666666667, 4.66666666667, 3.66666666667]]"),
         grads("[[0.333333333333, 0.666666666667, 0.333333333333, 0.666666666667, 0.333333333333]]"));
    pool_refusals(tg_avg_pool1d, 1);
}
SAMPLES(avg_pool2d)
{
    sample(S(1, 2, 5, 4), dims(2));
    edge(in(PLANE), dims(3, 2), gives("[[[2.5, 3.5]]]"),
         grads("[[[0.166666666667, 0.166666666667, 0.166666666667, 0.166666666667], [0.166666666667, 0.166666666667, "
               "0.166666666667, 0.166666666667], [0.166666666667, 0.166666666667, 0.166666666667, 0.166666666667]]]"));
}
SAMPLES(avg_pool1d_ex)
{
    sample(S(2, 3, 6), dims(2), dims2(2), count(1), flag(true));
    edge(in("[[1, 4, 2, 8]]"), dims(2), dims2(2), count(1), gives("[[1, 3, 8]]"), grads("[[1, 0.5, 0.5, 1]]"));
}
SAMPLES(avg_pool2d_ex)
{
    sample(S(2, 3, 4), dims(3), dims2(2), count(1), flag(true));
    sample(S(2, 3, 4), dims(3, 2), dims2(2), count(1), flag(false));
    edge(in("[[[1, 5, 2, 0], [4, 3, 5, 1]]]"), dims(3), dims2(2), count(1), flag(true),
         gives("[[[1.44444444444, 1.77777777778, 0.166666666667], [1.16666666667, 1.5, 0.25]]]"),
         grads("[[[0.111111111111, 0.222222222222, 0.111111111111, 0.277777777778], [0.277777777778, 0.555555555556, "
               "0.277777777778, 0.694444444444]]]"));
    expect(tg_avg_pool2d_ex(f64(PLANE), TG_SHAPE(3, 2), TG_SHAPE(2), TG_SHAPE(1, 0), true, false, 0),
           "[[[3.25, 2], [2.25, 4.75]]]");
    edge(in("[[[1, 5, 2], [4, 3, 6]]]"), dims(2), dims2(1), count2(3), gives("[[[4.33333333333, 5.33333333333]]]"),
         grads("[[[0.333333333333, 0.666666666667, 0.333333333333], [0.333333333333, 0.666666666667, "
               "0.333333333333]]]"));
    sample(S(2, 4, 4), dims(3, 2), dims2(2), count(1), flag(true), count2(-2)); /* negative, as in PyTorch */
}
SAMPLES(avg_pool3d)
{
    sample(S(2, 2, 3, 4, 3), dims(2), dims2(1), count(1));
    sample(S(1, 4, 5, 3), dims(3, 2, 1), dims2(2, 1, 2));
    sample(S(1, 3, 3, 2), dims(1, 2, 2), dims2(1));
    sample(S(0, 2, 3, 3, 3), dims(2));
    edge(in(VOLUME), dims(2), dims2(1), gives("[[[[4, 4]], [[2.75, 1.375]]]]"),
         grads("[[[[0.125, 0.25, 0.125], [0.125, 0.25, 0.125]], [[0.25, 0.5, 0.25], [0.25, 0.5, 0.25]], [[0.125, 0.25, "
               "0.125], [0.125, 0.25, 0.125]]]]"));
    refuse(tg_avg_pool3d(ones(2, 3, 3), TG_SHAPE(2), TG_SCALAR, TG_SCALAR), "Expected 4D or 5D (batch mode) tensor");
    refuse(tg_avg_pool3d(ones(2, 3, 3, 3), TG_SHAPE(2), TG_SHAPE(1, 1), TG_SCALAR), "stride must");
}
SAMPLES(avg_pool3d_ex)
{
    sample(S(2, 3, 4, 3), dims(3), dims2(2), count(1), flag(true));
    sample(S(1, 3, 4, 3), dims(3, 2, 2), dims2(2), count(1), flag(false));
    edge(in(VOLUME), dims(2), dims2(2), count(1), flag(false), gives("[[[[1, 3.5], [4, 4.5]], [[1.5, 2.75], [7, 0]]]]"),
         grads("[[[[1, 0.5, 0.5], [1, 0.5, 0.5]], [[0.5, 0.25, 0.25], [0.5, 0.25, 0.25]], [[0.5, 0.25, 0.25], [0.5, "
               "0.25, 0.25]]]]"));
    edge(in(VOLUME), dims(2, 2, 3), dims2(1), count2(5), gives("[[[[9.2]], [[5.6]]]]"),
         grads("[[[[0.2, 0.2, 0.2], [0.2, 0.2, 0.2]], [[0.4, 0.4, 0.4], [0.4, 0.4, 0.4]], [[0.2, 0.2, 0.2], [0.2, "
               "0.2, 0.2]]]]"));
}
SAMPLES(lp_pool1d)
{
    sample(range(0.2, 2), S(2, 5), num(2), dims(2), dims2(2));
    sample(range(0.2, 2), S(1, 2, 5), num(1.5), dims(3), dims2(1), flag(true));
    edge(in(LINE_OF_5), num(2), dims(2), dims2(2), flag(true), gives("[[4.12310562562, 8.24621125124, 4.24264068712]]"),
         grads("[[0.242535625036, 0.970142500145, 0.242535625036, 0.970142500145, 1.41421356237]]"));
    edge(in("[[-1, -2]]"), num(3), dims(2), gives("[[nan]]"), grads("[[nan, nan]]"));
    refuse(tg_lp_pool1d(ones(2, 5), 2, TG_SCALAR, TG_SCALAR, false), "kernel_size must");
}
SAMPLES(lp_pool2d)
{
    sample(range(0.2, 2), S(2, 3, 4), num(2), dims(2), dims2(1));
    edge(in("[[[1, 5, 2], [4, 3, 6]]]"), num(2), dims(2), dims2(1), gives("[[[7.14142842854, 8.60232526704]]]"),
         grads("[[[0.140028008403, 1.28137823573, 0.232495277488], [0.560112033611, 0.76882694144, 0.697485832463]]]"));
    refuse(tg_lp_pool2d(ones(2, 3, 3), 2, TG_SHAPE(5), TG_SCALAR, false), "Output size is too small");
}
SAMPLES(lp_pool3d)
{
    sample(range(0.2, 2), S(1, 2, 3, 3), num(2), dims(2), dims2(1));
    edge(in(VOLUME), num(2), dims(2), dims2(1), gives("[[[[14.1421356237, 13.8564064606]], [[14, 12.7671453348]]]]"),
         grads("[[[[0.0707106781187, 0.714397308837, 0.144337567297], [0.282842712475, 0.428638385302, "
               "0.433012701892]], [[0, 0.585268156389, 1.05346380053], [1.27925324593, 2.34107262556, "
               "-0.150494828647]], [[0.214285714286, -0.299509232855, 0.313304179995], [0.357142857143, "
               "-0.449263849282, -0.313304179995]]]]"));
}
SAMPLES(adaptive_avg_pool3d)
{
    sample(S(2, 3, 5, 4), dims(2, 3, 1));
    sample(S(1, 2, 2, 3, 2), dims(1));
    sample(S(1, 2, 2, 2), dims(2, 0, 1));
    edge(in(VOLUME), dims(2, 1, 2), gives("[[[[4, 4]], [[2.75, 1.375]]]]"),
         grads("[[[[0.125, 0.25, 0.125], [0.125, 0.25, 0.125]], [[0.25, 0.5, 0.25], [0.25, 0.5, 0.25]], [[0.125, 0.25, "
               "0.125], [0.125, 0.25, 0.125]]]]"));
}
SAMPLES(adaptive_avg_pool1d)
{
    sample(S(2, 3, 7), dims(3));
    sample(S(3, 4), dims(6));
    sample(S(2, 0, 4), dims(2));
    edge(in(LINE_OF_5), dims(3), gives("[[2.5, 4.66666666667, 5.5]]"),
         grads("[[0.5, 0.833333333333, 0.333333333333, 0.833333333333, 0.5]]"));
    edge(in(LINE_OF_5), dims(1), gives("[[3.6]]"), grads("[[0.2, 0.2, 0.2, 0.2, 0.2]]"));
}
SAMPLES(adaptive_avg_pool2d)
{
    sample(S(2, 5, 7), dims(3, 2));
    sample(S(2, 3, 4), dims(1));
    sample(S(2, 3, 3), dims(0, 2));
    edge(in("[[[1, 2], [3, 4]]]"), dims(2, 0), gives("[[[], []]]"), grads("[[[0, 0], [0, 0]]]"));
    edge(in(PLANE), dims(4, 1), gives("[[[2], [2.625], [3.5], [3.75]]]"),
         grads("[[[0.375, 0.375, 0.375, 0.375], [0.25, 0.25, 0.25, 0.25], [0.375, 0.375, 0.375, 0.375]]]"));
    expect(tg_adaptive_avg_pool2d(f64(PLANE), TG_SHAPE(1)), "[[[3]]]");
    refuse(tg_adaptive_avg_pool2d(ones(2, 3, 3), TG_SHAPE(1, 1, 1)), "output_size must either be a single int, or a");
    refuse(tg_adaptive_avg_pool2d(ones(2, 3, 3), TG_SHAPE(-1)),
           "adaptive_avg_pool2d: elements of output_size must be greater than or equal to 0 but received {-1, -1}");
    refuse(tg_adaptive_avg_pool2d(ones(2, 3, 3, 0), TG_SHAPE(1)),
           "has sizes [2, 3, 3, 0] with dimension 3 being empty");
    refuse(tg_adaptive_avg_pool2d(ones(3), TG_SHAPE(1)), "_pool2d(): Expected 3D or 4D tensor, but got: [3]");
    refuse(tg_adaptive_avg_pool2d(i64("[[[1]]]"), TG_SHAPE(1)), "Got: i64");
}
#define PICTURE "[[[[1, 5, 2], [4, 3, 6]]]]"
#define PLACES "[[[[0.5, -0.25], [-1.5, 0.3], [0.1, 2.5]]]]"
SAMPLES(grid_sample)
{
    static const char *const modes[] = {"bilinear", "nearest", "bicubic"};
    /* with places inside and outside, far from edges of pixels; on a device each mode once, with one padding */
    for (int i = 0; i < 9; i += HERE.type == TG_DEV_CPU ? 1 : 4) {
        sample(S(2, 1, 3, 2), range(-1.3, 1.3), S(2, 1, 2, 2), text(modes[i / 3]), count(i % 3), flag(i % 2));
        sample(S(1, 1, 2, 2, 3), range(-1.2, 1.2), S(1, 1, 1, 2, 3), text(modes[i / 3]), count(i % 3), flag(i % 2));
    }
    sample(S(2, 1, 1, 4), range(-1, 1), S(2, 1, 3, 2), text("bilinear"), count(2), flag(1)); /* a column of one element */
    sample(S(0, 2, 3, 3), S(0, 2, 2, 2), text("bilinear"));
    sample(S(1, 2, 3, 3), S(1, 0, 2, 2), text("bilinear"));
    edge(in(PICTURE), in(PLACES), text("bilinear"), gives("[[[[3.375, 0, 0]]]]"),
         grads("[[[[0, 0.1875, 0.5625], [0, 0.0625, 0.1875]]]]"), grads("[[[[-2.25, 2.5], [0, 0], [0, 0]]]]"));
    edge(in(PICTURE), in(PLACES), text("bilinear"), count(1), flag(1), gives("[[[[3.875, 2.95, 3.3]]]]"),
         grads("[[[[0.35, 0.3125, 0.3125], [0.65, 1.0875, 0.2875]]]]"), grads("[[[[-0.75, 0.5], [0, 1.5], [3, 0]]]]"));
    edge(in(PICTURE), in(PLACES), text("bilinear"), count(2), gives("[[[[3.375, 3.4, 4.55]]]]"),
         grads("[[[[0.15, 1.0875, 0.7125], [0.6, 0.2625, 0.1875]]]]"), grads("[[[[-2.25, 2.5], [0, 1.75], [-4.5, 0]]]]"));
    edge(in(PICTURE), in(PLACES), text("nearest"), gives("[[[[2, 0, 0]]]]"), grads("[[[[0, 0, 1], [0, 0, 0]]]]"),
         grads("[[[[0, 0], [0, 0], [0, 0]]]]"));
    edge(in(PICTURE), in(PLACES), text("bicubic"), count(2), gives("[[[[3.37875366211, 3.37646875, 4.9420625]]]]"),
         grads("[[[[0.0276525878906, 1.2020793457, 0.719705566406], [0.629347412109, 0.274951904297, "
               "0.146263183594]]]]"),
         grads("[[[[-3.54583740234, 2.54187011719], [0.8690625, 1.6396875], [-2.131875, 1.2302109375]]]]"));
    /* an infinite element that has no part in it, and places that are none */
    expect(tg_grid_sample(f64("[[[[1, inf], [nan, 3]]]]"), f64("[[[[-1, -1], [nan, 0], [inf, 0], [9, 9]]]]"), "nearest",
                          "zeros", true), "[[[[1, 0, 0, 0]]]]");
    refuse(tg_grid_sample(ones(1, 1, 2), ones(1, 1, 1), "nearest", "zeros", true), "expected 4D or 5D input and grid");
    refuse(tg_grid_sample(ones(1, 1, 2, 2), ones(2, 1, 1, 2), "nearest", "zeros", true), "have same batch size");
    refuse(tg_grid_sample(ones(1, 1, 2, 2), ones(1, 1, 1, 3), "nearest", "zeros", true), "size 2 in last dimension");
    refuse(tg_grid_sample(ones(1, 1, 0, 2), ones(1, 1, 1, 2), "nearest", "zeros", true), "non-empty spatial dimensions");
    refuse(tg_grid_sample(ones(1, 1, 2, 2), ones(1, 1, 1, 2), "linear", "zeros", true), "but got: 'linear'");
    refuse(tg_grid_sample(ones(1, 1, 2, 2), ones(1, 1, 1, 2), "nearest", "edge", true), "but got: 'edge'");
    refuse(tg_grid_sample(ones(1, 1, 2, 2), ones(1, 1, 1, 2), NULL, "zeros", true), "argument mode is NULL");
    refuse(tg_grid_sample(ones(1, 1, 2, 2), ones(1, 1, 1, 2), "nearest", NULL, true), "argument padding_mode is NULL");
    refuse(tg_grid_sample(ones(1, 1, 2, 2), tg_ones_on(TG_SHAPE(1, 1, 1, 2), TG_F32, HERE), "nearest", "zeros", true),
           "input and grid of one dtype");
    refuse(tg_grid_sample(i64("[[[[1]]]]"), ones(1, 1, 1, 2), "nearest", "zeros", true), "Got: i64");
}
SAMPLES(affine_grid)
{
    sample(S(2, 2, 3), dims(2, 1, 3, 4), flag(0));
    sample(S(1, 3, 4), dims(1, 5, 2, 1, 3), flag(1));
    edge(in("[[[1, 0.5, 0.25], [-0.5, 2, 1]]]"), dims(1, 1, 2, 2),
         gives("[[[[-0.5, 0.25], [0.5, -0.25]], [[0, 2.25], [1, 1.75]]]]"), grads("[[[0, 0, 4], [0, 0, 4]]]"));
    edge(in("[[[1, 0.5, 0.25, 1], [-0.5, 2, 1, 0], [0, 0, 1, 2]]]"), dims(1, 1, 2, 1, 2), flag(1),
         gives("[[[[[-0.25, -0.5, 1], [1.75, -1.5, 1]]], [[[0.25, 1.5, 3], [2.25, 0.5, 3]]]]]"),
         grads("[[[0, 0, 0, 4], [0, 0, 0, 4], [0, 0, 0, 4]]]"));
    refuse(tg_affine_grid(ones(1, 2, 3), TG_SHAPE(2, 1, 2, 2), false), "Expected a batch of 2D affine matrices");
    refuse(tg_affine_grid(ones(1, 2, 3), TG_SHAPE(1, 1, 2, 2, 2), false), "of shape Nx3x4 for size NxCxDxHxW");
    refuse(tg_affine_grid(ones(1, 2, 3), TG_SHAPE(1, 1, 2, 0), false), "non-zero, positive output size");
    refuse(tg_affine_grid(i64("[[[1, 0, 0], [0, 1, 0]]]"), TG_SHAPE(1, 1, 2, 2), false), "Got: i64");
}
SAMPLES(interpolate)
{
    tg_tensor *x = ones(2, 3, 5, 5);
    sample(S(2, 1, 3, 4), dims(5, 2), text("bilinear"));
    sample(S(1, 2, 4, 3), dims(2, 7), text("bilinear"));
    sample(S(2, 2, 3, 4), dims(6, 3), text("nearest"));
    sample(S(2, 2, 5), dims(3), text("nearest"));
    sample(S(2, 2, 5), dims(8), text("linear"));
    sample(S(2, 1, 5), dims(2), text("linear"));
    sample(S(0, 2, 3, 3), dims(4), text("bilinear"));
    sample(S(1, 1, 3, 2, 3), dims(2, 3, 2), text("trilinear"));
    sample(S(1, 1, 2, 2, 3), dims(4, 2, 2), text("nearest"));
    edge(in("[" VOLUME "]"), dims(2, 3, 2), text("trilinear"),
         gives("[[[[[1.625, 3.5], [3.3125, 3.875], [5, 4.25]], [[1.4375, 3.3125], [2.9375, 0.40625], [4.4375, -2.5]]]]]"),
         grads("[[[[[0.84375, 0.5625, 0.84375], [0.84375, 0.5625, 0.84375]], [[0.5625, 0.375, 0.5625], [0.5625, 0.375, "
               "0.5625]], [[0.84375, 0.5625, 0.84375], [0.84375, 0.5625, 0.84375]]]]]"));
    edge(in("[" VOLUME "]"), dims(2, 3, 2), text("nearest"),
         gives("[[[[[1, 5], [1, 5], [4, 3]], [[0, 2], [0, 2], [9, 8]]]]]"),
         grads("[[[[[2, 2, 0], [1, 1, 0]], [[2, 2, 0], [1, 1, 0]], [[0, 0, 0], [0, 0, 0]]]]]"));
    edge(in("[" PLANE "]"), dims(2, 6), text("nearest"), gives("[[[[1, 1, 5, 2, 2, 0], [4, 4, 3, 5, 5, 1]]]]"),
         grads("[[[[2, 1, 2, 1], [2, 1, 2, 1], [0, 0, 0, 0]]]]"));
    edge(in("[" LINE_OF_5 "]"), dims(7), text("nearest"), gives("[[[1, 1, 4, 2, 2, 8, 3]]]"),
         grads("[[[2, 1, 2, 1, 1]]]"));
    edge(in("[" LINE_OF_5 "]"), dims(10), text("nearest"), gives("[[[1, 1, 4, 4, 2, 2, 8, 8, 3, 3]]]"),
         grads("[[[2, 2, 2, 2, 2]]]"));
    for (int d = 0; d < 2; ++d) { /* PyTorch's position of output 41 is 0 in f32, and 1 in f64 */
        tg_tensor *two = of(d ? TG_F64 : TG_F32, "[[[0, 1]]]");
        expect(tg_sum(tg_interpolate(two, TG_SHAPE(82), "nearest")), d ? "41" : "40");
    }
    edge(in("[" LINE_OF_5 "]"), dims(8), text("linear"),
         gives("[[[1, 2.3125, 3.875, 2.625, 3.875, 7.625, 5.1875, 3]]]"),
         grads("[[[1.5625, 1.6875, 1.5, 1.6875, 1.5625]]]"));
    edge(in("[" LINE_OF_5 "]"), dims(3), text("linear"), gives("[[[2, 2, 4.66666666667]]]"),
         grads("[[[0.666666666667, 0.333333333333, 1, 0.333333333333, 0.666666666667]]]"));
    edge(in("[" PLANE "]"), dims(2, 5), text("bilinear"),
         gives("[[[[1.75, 3.675, 3.625, 2, 0.25], [1, 1.875, 4.375, 5.975, 4.75]]]]"),
         grads("[[[[0.975, 0.9, 0.9, 0.975], [0.65, 0.6, 0.6, 0.65], [0.975, 0.9, 0.9, 0.975]]]]"));
    CHECK(tg_equal(tg_interpolate(x, TG_SHAPE(5), "bilinear"), x));
    refuse(tg_interpolate(x, TG_SHAPE(2), NULL), "argument mode is NULL");
    refuse(tg_interpolate(x, TG_SHAPE(2), "foo"), "input Tensors supported (got 4D) for the modes: nearest |");
    refuse(tg_interpolate(ones(3, 5), TG_SHAPE(2), "nearest"), "supported (got 2D) for the modes");
    refuse(tg_interpolate(ones(2, 3, 5), TG_SHAPE(2), "bilinear"), "Got 3D input, but bilinear mode needs 4D input");
    refuse(tg_interpolate(x, TG_SHAPE(2), "linear"), "Got 4D input, but linear mode needs 3D input");
    refuse(tg_interpolate(x, TG_SHAPE(2, 2, 2), "nearest"),
           "Input and output must have the same number of spatial dimensions, but got input with spatial dimensions of "
           "[5, 5] and output size of [2, 2, 2].");
    refuse(tg_interpolate(x, TG_SCALAR, "nearest"), "output size of [].");
    refuse(tg_interpolate(x, TG_SHAPE(0, 3), "nearest"),
           "Input and output sizes should be greater than 0, but got input (H: 5, W: 5) output (H: 0, W: 3)");
    refuse(tg_interpolate(ones(2, 3, 0), TG_SHAPE(2), "nearest"), "but got input (W: 0) and output (W: 2)");
    refuse(tg_interpolate(ones(2, 0, 3), TG_SHAPE(2), "linear"),
           "Non-empty 3D data tensor expected but got a tensor with sizes [2, 0, 3]");
    refuse(tg_interpolate(i64("[[[1]]]"), TG_SHAPE(2), "nearest"), "Got: i64");
}

/* ---- losses ---- */

/* Every reduction, of two inputs of one shape. */
static void losses(double low, double high, double number)
{
    int reduction;
    for (reduction = TG_NONE; reduction <= TG_SUM; ++reduction) {
        sample(range(low, high), S(2, 3), S(2, 3), flag(reduction), num(number));
    }
}

/* d/dx of the sum of d/dx of loss(x, 0) */
typedef tg_tensor *(*loss_function)(tg_tensor *, tg_tensor *, int);
static tg_tensor *slope_of_slope(loss_function loss, const char *at_)
{
    tg_tensor *x = leaf(at_), *y = tg_sum(loss(x, tg_zeros_like(x), TG_NONE)), *g = NULL;
    return tg_gradients(&y, 1, NULL, &x, 1, &g, TG_CREATE_GRAPH) == TG_OK ? gradient(g, x, 0) : NULL;
}
static tg_tensor *smooth_half(tg_tensor *a, tg_tensor *b, int reduction)
{
    return tg_smooth_l1_loss(a, b, reduction, 0.5);
}
static tg_tensor *huber_half(tg_tensor *a, tg_tensor *b, int reduction) { return tg_huber_loss(a, b, reduction, 0.5); }

/* In f16, where the square of 40000 is infinite. */
static tg_tensor *half_slope(loss_function loss, const char *at_)
{
    tg_tensor *x = tg_set_requires_grad(of(TG_F16, at_), true);
    return gradient(loss(x, tg_zeros_like(x), TG_NONE), x, 0);
}

SAMPLES(mse_loss)
{
    losses(-2, 2, 0);
    edge(in("[1, 2, 4]"), in("[0, 2, -1]"), flag(TG_MEAN), gives("8.66666666667"),
         grads("[0.666666666667, 0, 3.33333333333]"), grads("[-0.666666666667, 0, -3.33333333333]"));
    edge(in("[1, 2, 4]"), in("[0, 2, -1]"), flag(TG_NONE), gives("[1, 0, 25]"), grads("[2, 0, 10]"),
         grads("[-2, 0, -10]"));
    edge(in("[1, 2, 4]"), in("[0, 2, -1]"), flag(TG_SUM), gives("26"), grads("[2, 0, 10]"), grads("[-2, 0, -10]"));
    refuse(tg_mse_loss(ones(2), ones(3), TG_MEAN),
           "The size of tensor a (2) must match the size of tensor b (3) at non-singleton "
           "dimension 0");
    refuse(tg_mse_loss(ones(2), ones(2), 9), "is not a valid value for reduction");
    edge(in("[inf, -inf, nan, inf]"), in("[0, 0, 0, inf]"), flag(TG_NONE), gives("[inf, inf, nan, nan]"),
         grads("[inf, -inf, nan, nan]"), grads("[-inf, inf, nan, nan]"));
    {
        tg_tensor *x = leaf("[1.5e308, 3e38]"); /* twice the difference is more than the largest number */
        expect(gradient(tg_mse_loss(x, f64("[0, 0]"), TG_MEAN), x, 0), "[1.5e308, 3e38]");
        expect(gradient(tg_mse_loss(f64("[0, 0]"), x, TG_MEAN), x, 0), "[1.5e308, 3e38]");
    }
    expect(slope_of_slope(tg_mse_loss, "[1, 1.5e308, -inf]"), "[2, 2, 2]");
    refuse(tg_mse_loss(i64("[1]"), i64("[2]"), TG_NONE), "\"mse_loss\" not implemented for 'i64'");
}
SAMPLES(l1_loss)
{
    losses(-2, 2, 0);
    edge(in("[1, 2, 4]"), in("[0, 2, -1]"), flag(TG_MEAN), gives("2"), grads("[0.333333333333, 0, 0.333333333333]"),
         grads("[-0.333333333333, 0, -0.333333333333]")); /* 2.85: 0 where equal */
}
SAMPLES(smooth_l1_loss)
{
    losses(-2, 2, 0.5);
    edge(in("[1, 2, 4, 0.25]"), in("[0.5, 2, -1, 0]"), flag(TG_NONE), num(0.5), gives("[0.25, 0, 4.75, 0.0625]"),
         grads("[1, 0, 1, 0.5]"), grads("[-1, 0, -1, -0.5]"));
    edge(in("[1, -1, 0, 2]"), in("[0, 0, 0, 0]"), flag(TG_NONE), num(1), gives("[0.5, 0.5, 0, 1.5]"),
         grads("[1, -1, 0, 1]"), grads("[-1, 1, 0, -1]")); /* 2.85 */
    edge(in("[1, -1, 0, 2]"), in("[0, 0, 0, 0]"), flag(TG_NONE), num(0), gives("[1, 1, 0, 2]"), grads("[1, -1, 0, 1]"),
         grads("[-1, 1, 0, -1]")); /* 2.85 */
    edge(in("[inf, -inf, nan, inf, 1e30]"), in("[0, 0, 0, inf, 0]"), flag(TG_NONE), num(0.5),
         gives("[inf, inf, nan, nan, 1e30]"), grads("[1, -1, nan, nan, 1]"), grads("[-1, 1, nan, nan, -1]"));
    expect(half_slope(smooth_half, "[40000, -40000, inf]"), "[1, -1, 1]");
    expect(slope_of_slope(smooth_half, "[0, 0.25, -0.25, 0.5, -0.5, 1, -inf, nan]"), "[2, 2, 2, 0, 0, 0, 0, 0]");
    refuse(tg_smooth_l1_loss(i64("[1]"), i64("[2]"), TG_NONE, 1), "\"smooth_l1_loss\" not implemented for 'i64'");
    refuse(tg_smooth_l1_loss(ones(2), ones(2), TG_MEAN, NAN),
           "smooth_l1_loss does not support negative values for beta.");
    refuse(tg_smooth_l1_loss(ones(2), ones(2), TG_MEAN, -1),
           "smooth_l1_loss does not support negative values for beta.");
}
SAMPLES(huber_loss)
{
    losses(-2, 2, 0.5);
    edge(in("[1, 2, 4, 0.25]"), in("[0.5, 2, -1, 0]"), flag(TG_MEAN), num(0.5), gives("0.6328125"),
         grads("[0.125, 0, 0.125, 0.0625]"), grads("[-0.125, 0, -0.125, -0.0625]"));
    edge(in("[2, -3, 0]"), in("[0, 0, 0]"), flag(TG_NONE), num(2), gives("[2, 4, 0]"), grads("[2, -2, 0]"),
         grads("[-2, 2, 0]")); /* 2.85 */
    edge(in("[inf, -inf, nan, inf, 1e30, -1e30]"), in("[0, 0, 0, inf, 0, 0]"), flag(TG_NONE), num(0.5),
         gives("[inf, inf, nan, nan, 5e29, 5e29]"), grads("[0.5, -0.5, nan, nan, 0.5, -0.5]"),
         grads("[-0.5, 0.5, nan, nan, -0.5, 0.5]"));
    expect(half_slope(huber_half, "[40000, -40000, inf]"), "[0.5, -0.5, 0.5]");
    expect(slope_of_slope(huber_half, "[0, 0.25, -0.25, 0.5, -0.5, 1, -inf, nan]"), "[1, 1, 1, 0, 0, 0, 0, 0]");
    refuse(tg_huber_loss(i64("[1]"), i64("[2]"), TG_NONE, 1), "\"huber_loss\" not implemented for 'i64'");
    refuse(tg_huber_loss(ones(2), ones(2), TG_MEAN, 0), "huber_loss does not support non-positive values for delta.");
}

#define LOGITS "[[1, 2, 0.5], [0, -1, 3]]"
#define CLASS_WEIGHTS "[1, 2, 0.5]"

SAMPLES(cross_entropy)
{
    sample(S(4, 3), ids("[1, 2, 0, 1]"));
    sample(S(2, 3, 2), ids("[[1, 2], [0, 1]]"));
    sample(S(3), ids("1"));
    edge(in(LOGITS), ids("[1, 2]"), gives("0.265126343933"),
         grads("[[0.115611948811, -0.185734140394, 0.070122191583], [0.023306311289, 0.00857391277276, "
               "-0.0318802240617]]"));
    edge(in(LOGITS), ids("[-100, -100]"), gives("nan"), grads("[[0, 0, 0], [0, 0, 0]]")); /* 2.82 */
    edge(in("[1, 2, 0.5]"), ids("1"), gives("0.464368784108"),
         grads("[0.231223897622, -0.371468280788, 0.140244383166]"));
    expect(tg_cross_entropy(ones(0, 3), tg_zeros_on(TG_SHAPE(0), TG_I64, HERE)), "nan");  /* 2.82 */
    refuse(tg_cross_entropy(f64(LOGITS), i64("[3, 0]")), "Target 3 is out of bounds.");   /* 2.84 */
    refuse(tg_cross_entropy(f64(LOGITS), i64("[0, 3]")), "hint: the target at position 1 must be in [0, 3)");
    refuse(tg_cross_entropy(f64(LOGITS), i64("[-1, 0]")), "Target -1 is out of bounds."); /* 2.84 */
    refuse(tg_cross_entropy(f64(LOGITS), i64("[1, 0, 1]")),
           "Expected input batch_size (2) to match target batch_size (3)."); /* 2.84 */
    refuse(tg_cross_entropy(f64(LOGITS), i64("[[1, 0], [1, 0]]")), "needs targets of 1 dims, but got shape [2, 2]");
    refuse(tg_cross_entropy(ones(2, 3, 4), tg_zeros_on(TG_SHAPE(2, 5), TG_I64, HERE)),
           "size mismatch (got input: [2, 3, 4], target: [2, 5])");
    refuse(tg_cross_entropy(f64(LOGITS), ones(2, 2)), "probabilities of shape [2, 2] for logits of shape [2, 3]");
    refuse(tg_cross_entropy(f64(LOGITS), ones(2)),
           "probabilities of shape [2] for logits of shape [2, 3]\n"
           "  hint: class indices must be i64: tg_to_dtype(targets, TG_I64)");
    refuse(tg_cross_entropy(f64(LOGITS), tg_to_dtype(ones(2), TG_I32)),
           "expected target dtype to be Long or Byte, but got i32\n"
           "  hint: class indices must be i64: tg_to_dtype(targets, TG_I64)");
    refuse(tg_cross_entropy(f64("1"), i64("1")), "at least one dim");
    refuse(tg_cross_entropy(i64("[1, 2]"), i64("1")), "");
}
SAMPLES(cross_entropy_ex)
{
    int reduction;
    for (reduction = TG_NONE; reduction <= TG_SUM; ++reduction) {
        sample(S(4, 3), ids("[1, 2, 0, 1]"), constant(CLASS_WEIGHTS), count(-100), num(0), flag(reduction));
        sample(S(4, 3), ids("[1, -100, 0, 1]"), count(-100), num(0.1), flag(reduction));
        sample(S(2, 3, 2), ids("[[1, 2], [0, 1]]"), constant(CLASS_WEIGHTS), count(1), num(0.1), flag(reduction));
        sample(S(2, 3), range(0.1, 0.9), S(2, 3), count(-100), num(0), flag(reduction));
        sample(S(2, 3), range(0.1, 0.9), S(2, 3), constant(CLASS_WEIGHTS), count(-100), num(0.1), flag(reduction));
    }
    edge(in(LOGITS), ids("[1, 2]"), constant(CLASS_WEIGHTS), count(-100), flag(TG_MEAN), gives("0.384671808038"),
         grads("[[0.184979118098, -0.297174624631, 0.112195506533], [0.00932252451559, 0.0034295651091, "
               "-0.0127520896247]]")); /* 2.83 */
    edge(in(LOGITS), ids("[1, 2]"), constant(CLASS_WEIGHTS), count(-100), flag(TG_SUM), gives("0.961679520095"),
         grads("[[0.462447795244, -0.742936561576, 0.280488766332], [0.023306311289, 0.00857391277276, "
               "-0.0318802240617]]"));
    edge(in(LOGITS), ids("[1, 2]"), constant(CLASS_WEIGHTS), count(-100), flag(TG_NONE),
         gives("[0.928737568216, 0.0329419518787]"),
         grads("[[0.462447795244, -0.742936561576, 0.280488766332], [0.023306311289, 0.00857391277276, "
               "-0.0318802240617]]"));
    edge(in(LOGITS), ids("[1, 2]"), constant("[1, 1, 1]"), count(-100), num(0.1), flag(TG_MEAN),
         gives("0.423459677266"),
         grads("[[0.0989452821444, -0.152400807061, 0.0534555249164], [0.00663964462232, -0.00809275389391, "
               "0.00145310927159]]"));
    edge(in(LOGITS), ids("[1, -100]"), constant(CLASS_WEIGHTS), count(-100), num(0.1), flag(TG_MEAN),
         gives("0.474186751437"), grads("[[0.204922901888, -0.330990435755, 0.126067533868], [0, 0, 0]]")); /* 2.83 */
    edge(in(LOGITS), ids("[1, -100]"), constant(CLASS_WEIGHTS), count(-100), num(0.1), flag(TG_NONE),
         gives("[0.948373502874, 0]"), grads("[[0.409845803776, -0.661980871511, 0.252135067735], [0, 0, 0]]"));
    edge(in(LOGITS), ids("[7, 7]"), constant(CLASS_WEIGHTS), count(7), flag(TG_SUM), gives("0"),
         grads("[[0, 0, 0], [0, 0, 0]]")); /* 2.82 */
    edge(in(LOGITS), ids("[7, 7]"), constant(CLASS_WEIGHTS), count(7), flag(TG_NONE), gives("[0, 0]"),
         grads("[[0, 0, 0], [0, 0, 0]]")); /* 2.82 */
    edge(in(LOGITS), ids("[1, 2]"), constant("[0, 0, 0]"), count(-100), flag(TG_MEAN), gives("nan"),
         grads("[[nan, nan, nan], [nan, nan, nan]]")); /* 2.82 */
    edge(in(LOGITS), ids("[1, 2]"), constant("[3, 0, 0]"), count(-100), num(0.1), flag(TG_MEAN), gives("nan"),
         grads("[[nan, nan, nan], [nan, nan, nan]]"));
    edge(in("[[[1, 2], [0, 1]]]"), ids("[[1, 1]]"), constant("[3, 0]"), count(-100), num(0.1), flag(TG_MEAN),
         gives("nan"), grads("[[[nan, nan], [nan, nan]]]"));
    edge(in(LOGITS), constant("[[0.2, 0.5, 0.3], [0, 1, 0]]"), constant("[1, 1, 1]"), count(-100), flag(TG_MEAN),
         gives("2.59012634393"),
         grads("[[0.0156119488111, 0.0642658596059, -0.079877808417], [0.023306311289, -0.491426087227, "
               "0.468119775938]]")); /* 2.84 */
    edge(in(LOGITS), in("[[0.2, 0.5, 0.3], [0, 1, 0]]"), constant(CLASS_WEIGHTS), count(-100), num(0.1), flag(TG_MEAN),
         gives("4.37608095652"),
         grads("[[0.0472899118334, -0.0648359636248, 0.0175460517914], [0.0280037633039, -0.916900000519, "
               "0.888896237215]]"),
         grads("[[0.658965952849, 0.417931905697, 0.441982976424], [1.37964775669, 3.65929551338, 0.0148238783454]]"));
    edge(in("[[[1, 2], [0.5, 0], [0, -1]]]"), ids("[[1, 0]]"), constant("[1, 1, 1]"), count(-100), flag(TG_NONE),
         gives("[[1.18026967064, 0.169846019556]]"),
         grads("[[[0.506480391056, -0.156205265519], [-0.692804114282, 0.114195199385], [0.186323723226, "
               "0.0420100661341]]]"));
    expect(tg_cross_entropy_ex(f64(LOGITS), f64("[[0.2, 0.5, 0.3], [0, 1, 0]]"), NULL, -100, 0, TG_NONE),
           "[1.11436878411, 4.06588390376]");
    expect(tg_cross_entropy_ex(f64(LOGITS), f64("[[0.2, 0.5, 0.3], [0, 1, 0]]"), f64(CLASS_WEIGHTS), -100, 0.1, TG_SUM),
           "8.75216191304");
    expect(tg_cross_entropy(f64("[1, 2, 0.5]"), f64("[0.2, 0.5, 0.3]")), "1.11436878411");
    refuse(
        tg_cross_entropy_ex(f64(LOGITS), i64("[1, 2]"), ones(2), -100, 0, TG_MEAN),
        "weight tensor should be defined either for all 3 classes or no classes but got weight tensor of shape: [2]");
    refuse(tg_cross_entropy_ex(f64(LOGITS), i64("[1, 2]"), NULL, -100, 1.5, TG_MEAN),
           "label_smoothing must be between 0.0 and 1.0. Got: 1.5");
    refuse(tg_cross_entropy_ex(f64(LOGITS), i64("[1, 2]"), NULL, -100, 0, 9), "is not a valid value for reduction");
}
SAMPLES(nll_loss)
{
    int reduction;
    for (reduction = TG_NONE; reduction <= TG_SUM; ++reduction) {
        sample(S(4, 3), ids("[1, 2, 0, 1]"), constant(CLASS_WEIGHTS), count(-100), flag(reduction));
        sample(S(2, 3, 2), ids("[[1, 2], [-100, 1]]"), count(-100), flag(reduction));
    }
    edge(in(LOGITS), ids("[1, 2]"), constant(CLASS_WEIGHTS), count(-100), flag(TG_NONE), gives("[-4, -1.5]"),
         grads("[[0, -2, 0], [0, 0, -0.5]]"));
    edge(in(LOGITS), ids("[1, 2]"), constant(CLASS_WEIGHTS), count(-100), flag(TG_MEAN), gives("-2.2"),
         grads("[[0, -0.8, 0], [0, 0, -0.2]]"));
    edge(in(LOGITS), ids("[1, 2]"), constant(CLASS_WEIGHTS), count(-100), flag(TG_SUM), gives("-5.5"),
         grads("[[0, -2, 0], [0, 0, -0.5]]"));
    edge(in(LOGITS), ids("[-100, -100]"), constant(CLASS_WEIGHTS), count(-100), flag(TG_MEAN), gives("nan"),
         grads("[[0, 0, 0], [0, 0, 0]]"));
    refuse(tg_nll_loss(f64(LOGITS), i64("[3, 0]"), NULL, -100, TG_MEAN), "Target 3 is out of bounds.");
    refuse(tg_nll_loss(i64("[[1, 2]]"), i64("[0]"), NULL, -100, TG_MEAN), "");
    refuse(tg_nll_loss(f64(LOGITS), ones(2), NULL, -100, TG_MEAN), "");
}
SAMPLES(binary_cross_entropy)
{
    losses(0.1, 0.9, 0);
    sample(range(0.1, 0.9), S(2, 3), S(2, 3), constant(CLASS_WEIGHTS), flag(TG_MEAN));
    edge(in("[0.2, 0.9, 0.5]"), constant("[0, 1, 0.25]"), constant("[1, 1, 1]"), flag(TG_MEAN), gives("0.340550415844"),
         grads("[0.416666666667, -0.37037037037, 0.333333333333]"));
    edge(in("[0.2, 0.9, 0.5]"), in("[0, 1, 0.25]"), constant("[1, 2, 3]"), flag(TG_SUM), gives("2.51330612431"),
         grads("[1.25, -2.22222222222, 3]"), grads("[1.38629436112, -4.39444915467, 0]"));
    expect(tg_binary_cross_entropy(f64("[0, 1, 0, 1]"), f64("[1, 0, 0, 1]"), NULL, TG_NONE),
           "[100, 100, 0, 0]"); /* 2.79 */
    edge(in("[0, 1, 0.5, 1e-30]"), in("[0, 1, 0.5, 0]"), flag(TG_NONE), gives("[0, 0, 0.69314718056, 1e-30]"),
         grads("[0, 0, 0, 1e-18]"), grads("[inf, -inf, 0, 69.0775527898]"));
    CHECK(tg_item(tg_binary_cross_entropy(f64("[1e-30]"), f64("[0]"), NULL, TG_SUM)) > 0.999e-30);
    refuse(tg_binary_cross_entropy(f64("[1.5]"), f64("[1]"), NULL, TG_MEAN),
           "all elements of input should be between 0 and 1");
    refuse(tg_binary_cross_entropy(ones(2), ones(3), NULL, TG_MEAN), "");
}
SAMPLES(binary_cross_entropy_with_logits)
{
    losses(0.1, 0.9, 0);
    sample(S(2, 3), range(0.1, 0.9), S(2, 3), constant(CLASS_WEIGHTS), constant("[2, 0.5, 1]"), flag(TG_MEAN));
    edge(in("[-2, 0.5, 3]"), in("[0, 1, 0.25]"), constant("[1, 1, 1]"), flag(TG_MEAN), gives("0.966530782266"),
         grads("[0.0397343073407, -0.125846889599, 0.234191375607]"), grads("[0.666666666667, -0.166666666667, -1]"));
    edge(in("[-2, 0.5, 3]"), in("[0, 1, 0.25]"), constant("[1, 2, 3]"), constant("[2, 0.5, 1]"), flag(TG_NONE),
         gives("[0.126928011043, 0.47407698418, 6.89576205472]"),
         grads("[0.119202922022, -0.377540668798, 2.10772238047]"), grads("[4.12692801104, -1.47407698418, -9]"));
    edge(in("[1000, 1000, -1000]"), in("[1, 0, 1]"), constant("[1, 1, 1]"), flag(TG_NONE), gives("[0, 1000, 1000]"),
         grads("[0, 1, -1]"), grads("[-1000, -1000, 1000]")); /* 2.79 */
    edge(in("[inf, inf, -inf, nan]"), in("[1, 0, 0, 1]"), flag(TG_NONE), gives("[nan, inf, nan, nan]"),
         grads("[0, 1, 0, nan]"), grads("[-inf, -inf, inf, nan]"));
    {
        tg_tensor *x = tg_set_requires_grad(f32("[-20, 20, -90]"), true), *t = f32("[0, 1, 0]");
        tg_tensor *y = tg_binary_cross_entropy_with_logits(x, t, NULL, TG_NONE, NULL);
        expect(tg_mul_scalar(y, 1e9), "[2.06115362, 2.06115362, 0]"); /* in f32 1 - sigmoid(20) is 0 */
        expect(tg_mul_scalar(gradient(y, x, 0), 1e9), "[2.06115362, 0, 0]");
    }
    refuse(tg_binary_cross_entropy_with_logits(ones(2), ones(3), NULL, TG_MEAN, NULL),
           "must be the same as input size");
}
SAMPLES(kl_div)
{
    losses(0.1, 0.9, 0);
    sample(S(2, 3), S(2, 3), flag(TG_BATCHMEAN), count(1));
    sample(S(2, 3), range(0.1, 1), S(2, 3), flag(TG_BATCHMEAN));
    edge(in("[[-1, -0.5], [-2, -0.25]]"), constant("[[0.25, 0.75], [0, 1]]"), flag(TG_NONE),
         gives("[[-0.09657359028, 0.159238445661], [0, 0.25]]"), grads("[[-0.25, -0.75], [0, -1]]")); /* 2.85 */
    edge(in("[[-1, -0.5], [-2, -0.25]]"), constant("[[0.25, 0.75], [0, 1]]"), flag(TG_MEAN), gives("0.0781662138453"),
         grads("[[-0.0625, -0.1875], [0, -0.25]]")); /* 2.85 */
    edge(in("[[-1, -0.5], [-2, -0.25]]"), constant("[[0.25, 0.75], [0, 1]]"), flag(TG_BATCHMEAN),
         gives("0.156332427691"), grads("[[-0.125, -0.375], [0, -0.5]]")); /* 2.85 */
    edge(in("[[-1, -0.5], [-2, -0.25]]"), in("[[-0.5, -1], [-3, -0.125]]"), flag(TG_SUM), count(1),
         gives("0.179850653726"), grads("[[-0.606530659713, -0.367879441171], [-0.0497870683679, -0.882496902585]]"),
         grads("[[0.909795989569, 0.183939720586], [0, 0.992809015408]]"));
}

SAMPLES(nansum)
{
    sample(S(2, 3), dims(1));
    sample(S(2, 3, 4), dims(0, -1), flag(1));
    sample(S0);
    sample(S(2, 0), dims(1));
    edge(in("[[1, nan, 2], [nan, nan, nan]]"), dims(1), gives("[3, 0]"), grads("[[1, 0, 1], [0, 0, 0]]"));
    expect(tg_nansum(i64("[1, 2]"), TG_SCALAR, false), "3");
    refuse(tg_nansum(ones(2, 3), TG_DIMS(5), false), "Dimension out of range");
}
SAMPLES(nanmean)
{
    sample(S(2, 3), dims(1));
    sample(S(2, 3, 4), dims(0, -1), flag(1));
    sample(S0);
    edge(in("[[1, nan, 2], [4, 5, 6]]"), dims(1), gives("[1.5, 5]"),
         grads("[[0.5, 0, 0.5], [0.333333333333, 0.333333333333, 0.333333333333]]"));
    expect(tg_nanmean(f64("[nan, nan]"), TG_SCALAR, false), "nan");
    refuse(tg_nanmean(i64("[1]"), TG_SCALAR, false), "Got: i64");
}
SAMPLES(count_nonzero)
{
    sample(S(2, 3), dims(1));
    sample(S(2, 3, 4), dims(0, -1));
    sample(S0);
    sample(S(2, 0), dims(1));
    expect(tg_count_nonzero(f64("[[0, -0., 2], [nan, 1, 0]]"), TG_DIMS(1)), "[1, 2]");
    expect(tg_count_nonzero(boolean("[1, 0, 1]"), TG_SCALAR), "2");
    refuse(tg_count_nonzero(ones(2, 3), TG_DIMS(5)), "Dimension out of range");
}
SAMPLES(dist)
{
    sample(S(2, 3), S(2, 3), num(2));
    sample(S(3), S(2, 3), num(3));
    sample(S0, S0, num(1));
    edge(in("[1, 2]"), in("[4, 6]"), num(2), gives("5"), grads("[-0.6, -0.8]"), grads("[0.6, 0.8]"));
    refuse(tg_dist(ones(2), ones(3), 2), "must match the size");
}
SAMPLES(pairwise_distance)
{
    sample(S(2, 3), S(2, 3), num(2));
    sample(S(2, 3), S(3), num(3), flag(1));
    sample(S(4), S(4), num(2));
    edge(in("[[1, 2], [0, 3]]"), in("[[4, 6], [1, 3]]"), num(2), gives("[4.9999986, 0.999999]"),
         grads("[[-0.599999968, -0.800000024], [-1, 1.000001e-06]]"),
         grads("[[0.599999968, 0.800000024], [1, -1.000001e-06]]"));
    refuse(tg_pairwise_distance(ones(2), ones(3), 2, 0, false), "must match the size");
}
SAMPLES(argsort)
{
    sample(S(4), dim(0));
    sample(S(2, 3), dim(-2), flag(1));
    sample(S0, dim(0));
    sample(S(0, 3), dim(1));
    expect(tg_argsort(f64("[3, nan, 1, 3]"), 0, true), "[1, 0, 3, 2]");
    refuse(tg_argsort(ones(2, 3), 5, false), "Dimension out of range");
}
SAMPLES(msort)
{
    sample(S(4));
    sample(S(3, 2));
    sample(S(0, 3));
    edge(in("[[3, 1], [2, 5]]"), gives("[[2, 1], [3, 5]]"), grads("[[1, 1], [1, 1]]"));
}
SAMPLES(kthvalue)
{
    sample(S(4), dim(0), count(2));
    sample(S(2, 3), dim(-1), count(3), flag(1));
    sample(S0, dim(0), count(1));
    edge(in("[[3, 1, 2], [-1, 5, 9]]"), dim(1), count(2), gives("[2, 5]"), grads("[[0, 0, 1], [0, 1, 0]]"));
    {
        tg_tensor *index = NULL;
        expect(tg_kthvalue(f64("[5, 3, 9]"), 3, 0, true, &index), "[9]");
        expect(index, "[2]");
    }
    refuse(tg_kthvalue(ones(2, 3), 4, 1, false, NULL), "selected index k out of range");
}
SAMPLES(median_dim)
{
    sample(S(4), dim(0));
    sample(S(2, 3), dim(-1), flag(1));
    sample(S0, dim(0));
    edge(in("[[3, 1, 2, 0], [-1, nan, 9, 4]]"), dim(1), gives("[1, nan]"), grads("[[0, 1, 0, 0], [0, 1, 0, 0]]"));
    {
        tg_tensor *index = NULL;
        expect(tg_median_dim(i64("[[5, 3, 9], [1, 7, 0]]"), 1, false, &index), "[5, 1]");
        expect(index, "[0, 0]");
    }
    refuse(tg_median_dim(ones(2, 0), 1, false, NULL), "to have non-zero size");
}
SAMPLES(median)
{
    sample(S(4));
    sample(S(2, 3));
    sample(S0);
    edge(in("[[3, 1, 2], [-1, 5, 9]]"), gives("2"), grads("[[0, 0, 1], [0, 0, 0]]"));
    edge(in("[1, 1, 0, 3, 1]"), gives("1"), grads("[0.333333333333, 0.333333333333, 0, 0, 0.333333333333]"));
    edge(in("[1, nan, nan, 3]"), gives("nan"), grads("[0, 0.5, 0.5, 0]"));
    expect(tg_median(ones(0)), "nan");
}
SAMPLES(cumprod)
{
    sample(S(4), dim(0));
    sample(S(2, 3, 4), dim(-2));
    sample(S(0, 3), dim(1));
    sample(S0, dim(0));
    sample(S(9), dim(0));
    edge(in("[[1, 2, 3], [0.5, 0, 4]]"), dim(1), gives("[[1, 2, 6], [0.5, 0, 0]]"),
         grads("[[9, 4, 2], [1, 2.5, 0]]"));
    expect(tg_cumprod(i64("[2, 3, -4]"), 0), "[2, 6, -24]");
    refuse(tg_cumprod(ones(2, 3), 5), "Dimension out of range");
}
SAMPLES(logcumsumexp)
{
    sample(S(4), dim(0));
    sample(S(2, 3, 4), dim(-2));
    sample(S(0, 3), dim(1));
    sample(S0, dim(0));
    sample(S(9), dim(0));
    edge(in("[[1, 2, 3], [800, 801, -5]]"), dim(1),
         gives("[[1, 2.31326168752, 3.40760596444], [800, 801.313261688, 801.313261688]]"),
         grads("[[1.35897199454, 0.975787049685, 0.665240955775], [1.53788284274, 1.46211715726, 0]]"));
    refuse(tg_logcumsumexp(i64("[1]"), 0), "Got: i64");
    refuse(tg_logcumsumexp(ones(2, 3), 5), "Dimension out of range");
}
SAMPLES(cummax)
{
    sample(S(4), dim(0));
    sample(S(2, 3, 4), dim(-2));
    sample(S(0, 3), dim(1));
    sample(S0, dim(0));
    sample(S(9), dim(0));
    edge(in("[[1, 3, 2, 3], [5, nan, 4, 7]]"), dim(1), gives("[[1, 3, 3, 3], [5, nan, nan, nan]]"),
         grads("[[1, 2, 0, 1], [1, 3, 0, 0]]"));
    {
        tg_tensor *index = NULL;
        expect(tg_cummax(i64("[2, 3, 3, 1, 1]"), 0, &index), "[2, 3, 3, 3, 3]");
        expect(index, "[0, 1, 2, 2, 2]");
    }
    refuse(tg_cummax(ones(2, 3), 5, NULL), "Dimension out of range");
}
SAMPLES(cummin)
{
    sample(S(4), dim(0));
    sample(S(2, 3, 4), dim(-2));
    sample(S(0, 3), dim(1));
    sample(S0, dim(0));
    sample(S(9), dim(0));
    edge(in("[[1, 3, 2, 3], [5, nan, 4, 7]]"), dim(1), gives("[[1, 1, 1, 1], [5, nan, nan, nan]]"),
         grads("[[4, 0, 0, 0], [1, 3, 0, 0]]"));
    {
        tg_tensor *index = NULL;
        expect(tg_cummin(i64("[2, 3, 3, 1, 1]"), 0, &index), "[2, 2, 2, 1, 1]");
        expect(index, "[0, 0, 0, 3, 4]");
    }
    refuse(tg_cummin(ones(2, 3), 5, NULL), "Dimension out of range");
}
SAMPLES(softmin)
{
    sample(S(4), dim(0));
    sample(S(2, 3), dim(-2));
    sample(S0, dim(0));
    edge(constant("[[1, 2, 3], [0.5, 0, 4]]"), dim(1),
         gives("[[0.665240955775, 0.244728471055, 0.0900305731704], [0.37328494408, 0.615442827337, "
               "0.0112722285822]]"));
    refuse(tg_softmin(ones(2, 3), 5), "Dimension out of range");
}
SAMPLES(local_response_norm)
{
    sample(S(2, 3, 4), count(2), num(0.5));
    sample(S(1, 4, 2, 2), count(3), num(0.5));
    sample(S(2, 3, 0), count(2), num(1));
    edge(in("[[[1, -2], [3, 0.5]]]"), count(2), num(0.5),
         gives("[[[0.657236181083, -1.00594674375], [1.06066017178, 0.246872149701]]]"),
         grads("[[[0.416962965461, 0.273444612076], [0.0552427172802, 0.47568048357]]]"));
    refuse(tg_local_response_norm(ones(2, 3), 2, 1, 1, 1), "Expected 3D or higher");
}
SAMPLES(gaussian_nll_loss)
{
    sample(S(2, 3), S(2, 3), range(0.3, 2), S(2, 3), flag(TG_MEAN));
    sample(S(2, 3), S(3), range(0.3, 2), S(2), flag(TG_SUM), count(1));
    sample(S(2, 3), S(2, 3), range(0.3, 2), S(2, 1), flag(TG_NONE));
    sample(S(0, 3), S(0, 3), S(0, 3), flag(TG_SUM));
    edge(in("[1, 2, 3]"), in("[2, 2, 0]"), in("[0.5, 1e-9, 2]"), flag(TG_NONE),
         gives("[0.65342640972, -6.90775527898, 2.59657359028]"), grads("[-2, 0, 1.5]"), grads("[2, 0, -1.5]"),
         grads("[-1, 500000, -0.875]"));
    refuse(tg_gaussian_nll_loss(ones(2, 3), ones(2, 3), ones(3, 3), false, 1e-6, TG_MEAN), "var is of incorrect size");
}
SAMPLES(poisson_nll_loss)
{
    sample(S(2, 3), range(1.2, 3), S(2, 3), flag(TG_MEAN));
    sample(S(2, 3), range(1.2, 3), S(3), flag(TG_SUM), count2(1));
    sample(range(0.3, 2), S(2, 3), range(1.2, 3), S(2, 3), flag(TG_NONE), count(1), count2(1));
    edge(in("[1, 2, 0.5]"), constant("[2, 0, 3]"), flag(TG_NONE), count2(1),
         gives("[1.37008831306, 7.38905609893, 1.91280281424]"),
         grads("[0.718281828459, 7.38905609893, -1.3512787293]"));
    refuse(tg_poisson_nll_loss(ones(2, 3), ones(2), true, false, 1e-8, TG_MEAN), "must match the size");
}
SAMPLES(soft_margin_loss)
{
    sample(S(2, 3), S(2, 3), flag(TG_MEAN));
    sample(S(2, 3), S(3), flag(TG_SUM));
    sample(S(0), S(0), flag(TG_NONE));
    edge(in("[1, -2, 30]"), constant("[1, 1, -1]"), flag(TG_NONE), gives("[0.313261687518, 2.12692801104, 30]"),
         grads("[-0.26894142137, -0.880797077978, 1]"));
    refuse(tg_soft_margin_loss(ones(2), ones(3), TG_MEAN), "must match the size");
}
SAMPLES(margin_ranking_loss)
{
    sample(S(2, 3), S(2, 3), constant("[[1, -1, 1], [-1, 1, -1]]"), num(0.5), flag(TG_MEAN));
    sample(S(4), S(4), constant("[-1]"), num(5), flag(TG_SUM));
    edge(in("[1, -2, 3]"), in("[2, 2, 0]"), constant("[1, -1, -1]"), num(0.5), flag(TG_NONE), gives("[1.5, 0, 3.5]"),
         grads("[-1, 0, 1]"), grads("[1, 0, -1]"));
    edge(in("[1, 2]"), in("[1, 2]"), constant("[1, -1]"), num(0), flag(TG_NONE), gives("[0, 0]"), grads("[0, 0]"), grads("[0, 0]"));
    refuse(tg_margin_ranking_loss(ones(2), ones(2, 2), ones(2), 0, TG_MEAN), "All input tensors should have same dimension");
}
SAMPLES(hinge_embedding_loss)
{
    sample(S(2, 3), constant("[[1, -1, 1], [-1, 1, -1]]"), num(0.5), flag(TG_MEAN));
    sample(S(4), constant("[-1]"), num(5), flag(TG_SUM));
    edge(in("[1, -2, 3]"), constant("[1, -1, -1]"), num(0.5), flag(TG_NONE), gives("[1, 2.5, 0]"),
         grads("[1, -1, 0]"));
    edge(in("[1, 1]"), constant("[-1, 1]"), num(1), flag(TG_NONE), gives("[0, 1]"), grads("[0, 1]"));
    refuse(tg_hinge_embedding_loss(ones(2), ones(3), 1, TG_MEAN), "must match the size");
}
SAMPLES(cosine_embedding_loss)
{
    sample(S(2, 3), S(2, 3), constant("[1, -1]"), num(-0.9), flag(TG_MEAN));
    sample(S(4), S(4), constant("-1"), num(-0.9), flag(TG_SUM));
    edge(in("[[1, -2], [3, 1]]"), in("[[2, 2], [1, 1]]"), constant("[1, -1]"), num(0.1), flag(TG_NONE),
         gives("[1.31622776602, 0.794427191]"),
         grads("[[-0.37947331922, -0.18973665961], [-0.04472135955, 0.13416407865]]"),
         grads("[[-0.237170824513, 0.237170824513], [0.22360679775, -0.22360679775]]"));
    edge(in("[[1, 0]]"), in("[[0, 1]]"), constant("[-1]"), num(0), flag(TG_NONE), gives("[0]"), grads("[[0, 0]]"), grads("[[0, 0]]"));
    refuse(tg_cosine_embedding_loss(ones(2), ones(2), ones(2), 0, TG_MEAN), "1D target tensor expects 2D input tensors");
}
SAMPLES(triplet_margin_loss)
{
    sample(S(2, 3), S(2, 3), S(2, 3), num(5), flag(TG_MEAN));
    sample(S(2, 3), S(2, 3), S(2, 3), num(5), flag(TG_SUM), count(1));
    edge(in("[[1, -2], [3, 1]]"), in("[[2, 2], [1, 1]]"), in("[[0, 2], [4, 1]]"), num(5), flag(TG_NONE),
         gives("[4.99999951493, 6.000002]"), grads("[[-0.485071364207, -1.1413446388e-07], [2, -5.0000125e-07]]"),
         grads("[[0.242535453835, 0.970142542946], [-1, -4.9999975e-07]]"),
         grads("[[0.242535910372, -0.970142428811], [-1, 1.000001e-06]]"));
    refuse(tg_triplet_margin_loss(ones(2), ones(2), ones(2, 2), 1, 2, 0, false, TG_MEAN), "expected to have the same number");
}
#define SPOKEN \
    "[[[1, 2, 0.5], [0, 1, 1]], [[-1, 0.5, 1], [2, 0, 0.5]], [[0.2, 0.1, 0], [1, -1, 3]], [[1, 1, 2], [0.5, 0, 0]]]"
SAMPLES(ctc_loss)
{
    tg_tensor *lp = tg_log_softmax(f64(SPOKEN), -1), *t = i64("[[1, 2], [2, 2]]"), *four = i64("[4, 4]");
    tg_tensor *one = tg_select(lp, 1, 0), *shorter = i64("[2, 1]");
    sample(S(5, 2, 4), ids("[[1, 2], [3, 3]]"), dims(5, 4), dims2(2, 2), flag(TG_MEAN));
    sample(S(4, 3, 3), ids("[[1, 2, 2], [1, 0, 0], [2, 1, 1]]"), dims(4, 2, 3), dims2(3, 0, 1), flag(TG_SUM));
    sample(S(3, 1, 3), ids("[0, 1]"), dims(3), dims2(2), flag(TG_NONE), count(2)); /* one after the other */
    sample(S(4, 3), ids("[1, 2]"), dims(4), dims2(2), flag(TG_NONE));              /* without N */
    edge(in(SPOKEN), ids("[[1, 2], [2, 2]]"), dims(4, 4), dims2(2, 2), flag(TG_NONE), count(0),
         gives("[1.10731176708, 1.56702208568]"),
         grads("[[[0.064922633761, -0.205167016927, 0.140244383166], [0.151430520479, 0.422318798252, "
               "-0.573749318731]], [[0.00102006631824, -0.231456212532, 0.230436146213], [-0.249255426512, "
               "0.0996236480623, 0.149631778449]], [[0.0592908335503, 0.148416795489, -0.207707629039], "
               "[0.0547904375347, 0.0158762399765, -0.0706666775112]], [[-0.00974072017924, 0.211941557617, "
               "-0.202200837438], [-0.131680417981, 0.274068619061, -0.142388201081]]]"));
    edge(in(SPOKEN), ids("[[1, 2], [2, 2]]"), dims(4, 3), dims2(2, 1), flag(TG_NONE), count(0),
         gives("[1.10731176708, 1.47411140109]"),
         grads("[[[0.064922633761, -0.205167016927, 0.140244383166], [-0.387245292954, 0.422318798252, "
               "-0.0350735052977]], [[0.00102006631824, -0.231456212532, 0.230436146213], [0.143923654126, "
               "0.0996236480623, -0.243547302189]], [[0.0592908335503, 0.148416795489, -0.207707629039], "
               "[-0.0905677937578, 0.0158762399765, 0.0746915537813]], [[-0.00974072017924, 0.211941557617, "
               "-0.202200837438], [0, 0, 0]]]"));
    edge(in(SPOKEN), ids("[[1, 2], [2, 2]]"), dims(4, 3), dims2(2, 1), flag(TG_MEAN), count(0),
         gives("1.01388364231"),
         grads("[[[0.0162306584403, -0.0512917542318, 0.0350610957915], [-0.193622646477, 0.211159399126, "
               "-0.0175367526489]], [[0.00025501657956, -0.0578640531329, 0.0576090365533], [0.0719618270632, "
               "0.0498118240312, -0.121773651094]], [[0.0148227083876, 0.0371041988721, -0.0519269072597], "
               "[-0.0452838968789, 0.00793811998823, 0.0373457768907]], [[-0.00243518004481, 0.0529853894043, "
               "-0.0505502093595], [0, 0, 0]]]"));
    edge(in(SPOKEN), ids("[[1, 2], [2, 2]]"), dims(3, 3), dims2(1, 0), flag(TG_SUM), count(0),
         gives("5.76680887729"),
         grads("[[[-0.0357503786339, -0.104494004532, 0.140244383166], [-0.844637596503, 0.422318798252, "
               "0.422318798252]], [[-0.0247517479595, -0.549345245008, 0.574096992968], [-0.263875275687, "
               "0.0996236480623, 0.164251627625]], [[-0.180893214277, -0.119716391078, 0.300609605356], "
               "[-0.882689572174, 0.0158762399765, 0.866813332197]], [[0, 0, 0], [0, 0, 0]]]"));
    edge(in(SPOKEN), ids("[[1, 0], [0, 0]]"), dims(4, 4), dims2(2, 1), flag(TG_NONE), count(2),
         gives("[1.31298961892, 1.73513327254]"),
         grads("[[[0.231223897622, -0.273521765826, 0.0422978682043], [-0.0882708050007, 0.422318798252, "
               "-0.334047993251]], [[-0.00626808370219, -0.0731847700126, 0.0794528537148], [-0.0419690403608, "
               "0.0996236480623, -0.0576546077016]], [[-0.361398456175, 0.241084662671, 0.120313793504], "
               "[-0.121501279412, 0.0158762399765, 0.105625039436]], [[-0.223997135506, 0.211941557617, "
               "0.0120555778891], [0.149169517022, 0.274068619061, -0.423238136083]]]"));
    /* a target that needs more steps than there are */
    expect(tg_ctc_loss(lp, t, i64("[3, 2]"), i64("[2, 2]"), 0, TG_NONE, false), "[1.06237715647, inf]");
    expect(tg_ctc_loss(lp, t, i64("[3, 2]"), i64("[2, 2]"), 0, TG_NONE, true), "[1.06237715647, 0]");
    expect(tg_ctc_loss(lp, t, i64("[0, 0]"), i64("[0, 1]"), 0, TG_NONE, false), "[0, inf]");
    expect(tg_ctc_loss(lp, i64("[1, 2, 2]"), i64("[4, 3]"), tg_to_dtype(shorter, TG_I32), 0, TG_NONE, false),
           "[1.10731176708, 1.47411140109]");
    expect(tg_ctc_loss(one, i64("[1, 2]"), i64("4"), i64("2"), 0, TG_NONE, false), "1.10731176708");
    {
        tg_tensor *x = leaf(SPOKEN), *y = tg_ctc_loss(tg_log_softmax(x, -1), t, i64("[3, 2]"), i64("[2, 2]"), 0, TG_NONE,
                                                      false);
        tg_tensor *g = gradient(tg_masked_fill(y, tg_isinf(y), 0), x, 0);
        CHECK(g && tg_item(tg_all(tg_isfinite(g))) == 1); /* an infinite loss has the gradient 0 */
    }
    refuse(tg_ctc_loss(lp, t, i64("[4]"), shorter, 0, TG_MEAN, false), "input_lengths must be of size batch_size, 2");
    refuse(tg_ctc_loss(lp, t, four, i64("[1]"), 0, TG_MEAN, false), "target_lengths must be of size batch_size");
    refuse(tg_ctc_loss(lp, t, i64("[4, 5]"), shorter, 0, TG_MEAN, false), "at most 4, but got value 5");
    refuse(tg_ctc_loss(lp, t, four, i64("[2, -1]"), 0, TG_MEAN, false), "not below 0, but got -1");
    refuse(tg_ctc_loss(lp, t, four, i64("[2, 3]"), 0, TG_MEAN, false), "more targets than there are in targets [2, 2]");
    refuse(tg_ctc_loss(lp, i64("[1, 2]"), four, shorter, 0, TG_MEAN, false), "more targets than there are");
    refuse(tg_ctc_loss(lp, t, four, shorter, 3, TG_MEAN, false), "blank must be in label range, but is 3");
    refuse(tg_ctc_loss(lp, i64("[[1, 3], [1, 1]]"), four, shorter, 0, TG_MEAN, false), "target 3 is outside [0, 3)");
    refuse(tg_ctc_loss(lp, t, ones(2), shorter, 0, TG_MEAN, false), "input_lengths must be integral");
    refuse(tg_ctc_loss(lp, ones(2, 2), four, shorter, 0, TG_MEAN, false), "targets must be integral");
    refuse(tg_ctc_loss(ones(3), t, four, shorter, 0, TG_MEAN, false), "log_probs must be [T, N, C]");
    refuse(tg_ctc_loss(t, t, four, shorter, 0, TG_MEAN, false), "floating point");
    refuse(tg_ctc_loss(lp, t, four, shorter, 0, 7, false), "7 is not a valid value for reduction");
    refuse(tg_ctc_loss(lp, NULL, four, shorter, 0, TG_MEAN, false), "argument targets is NULL");
}
SAMPLES(multi_margin_loss)
{
    tg_tensor *t = tg_zeros_on(TG_SHAPE(2), TG_I64, HERE);
    sample(range(-0.4, 0.4), S(2, 3), ids("[2, 0]"), S(3), count(1), num(1), flag(TG_MEAN));
    sample(range(-0.4, 0.4), S(2, 3), ids("[1, 1]"), count(2), num(1), flag(TG_SUM));
    sample(range(-0.4, 0.4), S(3), ids("2"), count(1), num(2), flag(TG_NONE));
    sample(range(-0.4, 0.4), S(4), ids("[2]"), count(1), num(2), flag(TG_NONE));
    edge(in("[[0.5, 2, -1], [1, 1, 3]]"), ids("[1, 0]"), count(1), num(1), flag(TG_NONE), gives("[0, 1.33333333333]"),
         grads("[[0, 0, 0], [-0.666666666667, 0.333333333333, 0.333333333333]]"));
    expect(tg_multi_margin_loss(f64("[[0.5, 2, -1], [1, 1, 3]]"), i64("[1, 0]"), 2, 0.5, f64("[1, 2, 3]"), TG_NONE),
           "[0, 2.16666666667]");
    refuse(tg_multi_margin_loss(ones(2, 3), i64("[0, 3]"), 1, 1, NULL, TG_MEAN), "out of bounds");
    refuse(tg_multi_margin_loss(ones(2, 0), t, 1, 1, NULL, TG_MEAN), "Expected non-empty vector or matrix");
    refuse(tg_multi_margin_loss(ones(2, 3), t, 3, 1, NULL, TG_MEAN), "only p == 1 and p == 2 supported");
    refuse(tg_multi_margin_loss(ones(3, 3), t, 1, 1, NULL, TG_MEAN), "Expected target size [3], but got [2]");
    refuse(tg_multi_margin_loss(ones(2, 3), ones(2), 1, 1, NULL, TG_MEAN), "expected scalar type Long");
    refuse(tg_multi_margin_loss(ones(2, 3), t, 1, 1, ones(2), TG_MEAN), "weight must be one-dimensional");
    refuse(tg_multi_margin_loss(ones(2, 3), t, 1, 1, NULL, 9), "9 is not a valid value for reduction");
}
SAMPLES(multilabel_soft_margin_loss)
{
    sample(S(2, 3), S(2, 3), S(3), flag(TG_MEAN));
    sample(S(4), S(4), flag(TG_NONE));
    edge(in("[[0.5, 2, -1], [1, 1, 3]]"), constant("[[1, 0, 1], [0, 1, 0]]"), constant("[1, 2, 0.5]"), flag(TG_NONE),
         gives("[1.79485461668, 1.15469291278]"), grads("[[-0.125846889599, 0.587198051985, -0.121843096438], "
         "[0.243686192877, -0.179294280913, 0.15876235447]]"));
    refuse(tg_multilabel_soft_margin_loss(ones(2, 3), ones(4), NULL, TG_MEAN), "must match the size");
}
SAMPLES(triplet_margin_with_distance_loss)
{
    sample(S(2, 3), S(2, 3), S(2, 3), num(5), flag(TG_MEAN));
    sample(S(2, 3), S(2, 3), S(2, 3), num(9), flag(TG_SUM), count(1), count2(1));
    edge(in("[[0.5, 2, -1], [1, 1, 3]]"), in("[[0.35, 1.1, -0.4], [0.6, 0.6, 1.6]]"),
         in("[[0.2, 1.7, -1.3], [0.7, 0.7, 2.7]]"), num(1), flag(TG_NONE), count(1), count2(1), gives("[1.75, 2.3]"),
         grads("[[0, 0, -2], [0, 0, 0]]"), grads("[[-1, -1, 1], [-1, -1, -1]]"), grads("[[1, 1, 1], [1, 1, 1]]"));
    refuse(tg_triplet_margin_with_distance_loss(ones(2), ones(2), ones(2, 2), NULL, NULL, 1, false, TG_MEAN),
           "expected to have the same number");
    refuse(tg_triplet_margin_with_distance_loss(ones(2), ones(2), ones(2), NULL, NULL, 0, false, TG_MEAN),
           "margin must be greater than 0");
    refuse(tg_triplet_margin_with_distance_loss(ones(2), ones(2), ones(2), no_distance, NULL, 1, false, TG_MEAN),
           "the distance returned NULL");
}
/* Channels are kept or dropped as wholes, with the mean and the other number of p = 1/2. */
static void whole_channels(tg_tensor *y, double kept, double dropped)
{
    tg_tensor *first = y ? tg_narrow(tg_flatten(y, 2, -1), 2, 0, 1) : NULL;
    CHECK(first && tg_equal(tg_flatten(y, 2, -1), tg_clone(tg_expand(first, TG_SHAPE(8, 16, 6)))));
    CHECK_NEAR(tg_item(tg_amax(y)), kept, 1e-6);
    CHECK_NEAR(tg_item(tg_amin(y)), dropped, 1e-6);
}
SAMPLES(feature_dropout)
{
    sample(S(2, 3, 2, 2), num(0.5), flag(true));
    sample(S(2, 3), num(0.5), flag(true));
    edge(in("[[1, 2]]"), num(1), flag(true), gives("[[0, 0]]"), grads("[[0, 0]]"));
    whole_channels(tg_dropout2d(tg_ones_on(TG_SHAPE(8, 16, 2, 3), TG_F32, HERE), 0.5, true), 2, 0);
    refuse(tg_dropout2d(ones(2), 0.5, true), "at least 2 dimensions");
    refuse(tg_dropout2d(ones(2, 2), 1.5, true), "between 0 and 1, but got 1.5");
    refuse(tg_dropout2d(i64("[[1]]"), 0.5, true), "Got: i64");
}
SAMPLES(dropout1d)
{
    tg_tensor *x = ones(4, 3);
    sample(S(3, 4), num(0.5), flag(true));
    sample(S(2, 3, 4), num(0.5), flag(true));
    CHECK(tg_dropout1d(x, 0.5, false) == x && tg_dropout1d(x, 0, true) == x);
    whole_channels(tg_dropout1d(tg_ones_on(TG_SHAPE(8, 16, 6), TG_F32, HERE), 0.5, true), 2, 0);
}
SAMPLES(dropout2d)
{
    sample(S(3, 2, 2), num(0.5), flag(true)); /* without N */
    sample(S(3, 2, 2), num(0.5), flag(false));
}
SAMPLES(dropout3d)
{
    sample(S(1, 3, 2, 1, 2), num(0.5), flag(true));
    sample(S(3, 2, 1, 2), num(0.5), flag(true));
    whole_channels(tg_dropout3d(tg_ones_on(TG_SHAPE(8, 16, 1, 2, 3), TG_F32, HERE), 0.5, true), 2, 0);
}
SAMPLES(alpha_dropout)
{
    tg_tensor *x = tg_randn_on(TG_SHAPE(20000), TG_F64, HERE), *y = tg_alpha_dropout(x, 0.3, true);
    sample(S(5, 3), num(0.5), flag(true));
    sample(S(2, 3), num(0.5), flag(false));
    edge(in("[1, 2]"), num(1), flag(true), gives("[0, 0]"), grads("[0, 0]"));
    CHECK_NEAR(tg_item(tg_mean(y)), 0, 0.03);
    CHECK_NEAR(tg_item(tg_var(y)), 1, 0.05);
    CHECK(tg_alpha_dropout(x, 0, true) == x);
    refuse(tg_alpha_dropout(ones(2), -1, true), "between 0 and 1, but got -1");
}
SAMPLES(feature_alpha_dropout)
{
    /* for p 1/2 and a = 1 / sqrt(low^2 / 4 + 1 / 2), low = 1.7580993: a + low a / 2, and -low a / 2 */
    sample(S(2, 3, 2), num(0.5), flag(true));
    whole_channels(tg_feature_alpha_dropout(tg_ones_on(TG_SHAPE(8, 16, 2, 3), TG_F64, HERE), 0.5, true),
                   1.66559882518,
                   -0.77919393052);
    refuse(tg_feature_alpha_dropout(ones(2), 0.5, true), "at least 2 dimensions");
}
SAMPLES(rrelu)
{
    tg_tensor *x = tg_full_on(TG_SHAPE(4000), -1, TG_F64, HERE), *y = tg_rrelu(x, 0.1, 0.3, true);
    sample(S(2, 3), num(0.1), num2(0.3), flag(false));
    sample(S(5, 3), num(0.1), num2(0.3), flag(true));
    edge(in("[[0.5, 2, -1], [1, 1, 3]]"), num(0.1), num2(0.3), flag(false), gives("[[0.5, 2, -0.2], [1, 1, 3]]"),
         grads("[[1, 1, 0.2], [1, 1, 1]]"));
    CHECK_NEAR(tg_item(tg_mean(y)), -0.2, 0.01);
    CHECK(tg_item(tg_amax(y)) <= -0.1 && tg_item(tg_amin(y)) > -0.3);
    refuse(tg_rrelu(x, 0.3, 0.1, true), "Lower bound should be less than or equal to the upper bound");
    refuse(tg_rrelu(i64("[1]"), 0.1, 0.3, true), "Got: i64");
}
SAMPLES(gumbel_softmax)
{
    tg_tensor *logits = tg_log(tg_expand(f64("[0.1, 0.2, 0.7]"), TG_SHAPE(4000, 3)));
    tg_tensor *y = tg_gumbel_softmax(logits, 0.5, true, -1);
    sample(S(3, 4), num(1), dim(1));
    sample(S(3, 4), num(0.5), dim(0));
    expect(tg_sum_dim(tg_narrow(y, 0, 0, 4), 1, false), "[1, 1, 1, 1]"); /* hard: one 1 in each row */
    CHECK_NEAR(tg_get(tg_mean_dim(y, 0, false), TG_INDEX(2)), 0.7, 0.03); /* drawn as often as its probability */
    CHECK_NEAR(tg_get(tg_mean_dim(y, 0, false), TG_INDEX(0)), 0.1, 0.03);
    {
        tg_tensor *x = leaf("[1, 2, 3]"), *soft, *hard;
        tg_seed(3), soft = gradient(tg_mul(tg_gumbel_softmax(x, 1, false, 0), f64("[1, 2, 4]")), x, 0);
        tg_seed(3), hard = gradient(tg_mul(tg_gumbel_softmax(x, 1, true, 0), f64("[1, 2, 4]")), x, 0);
        CHECK(tg_equal(soft, hard)); /* that of the soft one */
    }
    refuse(tg_gumbel_softmax(ones(2), 1, false, 1), "Dimension out of range");
    refuse(tg_gumbel_softmax(i64("[1]"), 1, false, 0), "Got: i64");
}
SAMPLES(multilabel_margin_loss)
{
    sample(range(-0.4, 0.4), S(2, 3), ids("[[2, 0, -1], [1, -1, 0]]"), flag(TG_MEAN));
    sample(range(-0.4, 0.4), S(3), ids("[0, 1, -1]"), flag(TG_SUM));
    edge(in("[[0.1, 0.2, 0.4, 0.8], [1, 3, -1, 0]]"), ids("[[3, 0, -1, 1], [-1, 0, 0, 0]]"), flag(TG_NONE),
         gives("[0.85, 0]"), grads("[[-0.5, 0.5, 0.5, -0.5], [0, 0, 0, 0]]"));
    edge(in("[[1, 0, 0.5]]"), ids("[[0, -1, -1]]"), flag(TG_NONE), gives("[0.166666666667]"),
         grads("[[-0.333333333333, 0, 0.333333333333]]"));
    refuse(tg_multilabel_margin_loss(ones(2, 3), tg_zeros_on(TG_SHAPE(2), TG_I64, HERE), TG_MEAN), "inconsistent target size");
    refuse(tg_multilabel_margin_loss(ones(3), i64("[3, 0, -1]"), TG_MEAN), "out of bounds");
}
SAMPLES(ravel)
{
    sample(S(2, 3));
    sample(S0);
    sample(S(2, 0));
    expect(tg_ravel(f64("[[1, 2], [3, 4]]")), "[1, 2, 3, 4]");
}
SAMPLES(unflatten)
{
    sample(S(6), dim(0), dims(2, 3));
    sample(S(2, 6), dim(-1), dims(-1, 2));
    sample(S(2, 0), dim(1), dims(2, 0));
    expect(tg_unflatten(f64("[1, 2, 3, 4]"), 0, TG_SHAPE(2, -1)), "[[1, 2], [3, 4]]");
    refuse(tg_unflatten(ones(4), 0, TG_SHAPE(3, -1)), "don't multiply up to the size of dim 0");
    refuse(tg_unflatten(ones(4), 0, TG_SCALAR), "sizes must be non-empty");
    refuse(tg_unflatten(ones(4), 1, TG_SHAPE(4)), "Dimension out of range");
}
SAMPLES(atleast_1d)
{
    sample(S(2));
    sample(S0);
    sample(S(2, 0));
    expect(tg_atleast_1d(f64("5")), "[5]");
}
SAMPLES(atleast_2d)
{
    sample(S(2));
    sample(S0);
    sample(S(2, 0));
    expect(tg_atleast_2d(f64("[5, 6]")), "[[5, 6]]");
}
SAMPLES(atleast_3d)
{
    sample(S(2));
    sample(S0);
    sample(S(2, 3));
    sample(S(2, 0, 1));
    expect(tg_atleast_3d(f64("[5, 6]")), "[[[5], [6]]]");
}
SAMPLES(squeeze_dims)
{
    sample(S(2, 1, 1), dims(1, -1));
    sample(S(1, 2, 1));
    sample(S0);
    sample(S(1, 0), dims(0));
    expect(tg_squeeze_dims(f64("[[[5, 6]]]"), TG_SCALAR), "[5, 6]");
    refuse(tg_squeeze_dims(ones(1, 2), TG_DIMS(0, 0)), "multiple times");
}
SAMPLES(movedim_dims)
{
    sample(S(2, 3, 4), dims(0, 1), dims2(-1, 0));
    sample(S(2, 3), dims(1), dims2(0));
    sample(S(0, 3), dims(1), dims2(0));
    expect(tg_movedim_dims(f64("[[5, 6]]"), TG_DIMS(0, 1), TG_DIMS(1, 0)), "[[5], [6]]");
    refuse(tg_movedim_dims(ones(1, 2), TG_DIMS(0, 1), TG_DIMS(0)), "should contain the same number");
}
SAMPLES(split_sizes)
{
    sample(S(5), dims(1, 4), dim(0));
    sample(S(2, 5), dims(2, 0, 3), dim(-1));
    refuse(split_sizes_call(ones(4), TG_SHAPE(1, 2), 0), "sum exactly to 4");
    refuse(split_sizes_call(ones(4), TG_SHAPE(5, -1), 0), "sum exactly to 4");
}
SAMPLES(meshgrid_xy)
{
    sample(S(2), S(3));
    sample(S(2), S(3), S(2));
    sample(S0, S(3));
    expect(meshgrid_xy_call(TG_LIST(f64("[1, 2]"), f64("[3, 4, 5]"))),
           "[[[1, 2], [1, 2], [1, 2]], [[3, 3], [4, 4], [5, 5]]]");
    refuse(meshgrid_xy_call(TG_LIST(ones(2), ones(2, 2))), "Expected 0D or 1D tensor");
}
SAMPLES(hstack)
{
    sample(S(2), S(2));
    sample(S(2, 3), S(2, 3), S(2, 3));
    sample(S0, S0);
    expect(tg_hstack(TG_LIST(f64("[1, 2]"), f64("[3, 4]"))), "[1, 2, 3, 4]");
    refuse(tg_hstack(TG_LIST(ones(2, 3), ones(2, 3, 1, 2))), "Tensors must have same number of dimensions");
    refuse(tg_hstack(NULL, 0), "non-empty TensorList");
}
SAMPLES(vstack)
{
    sample(S(2), S(2));
    sample(S(2, 3), S(2, 3), S(2, 3));
    sample(S0, S0);
    expect(tg_vstack(TG_LIST(f64("[1, 2]"), f64("[3, 4]"))), "[[1, 2], [3, 4]]");
    refuse(tg_vstack(TG_LIST(ones(2, 3), ones(2, 3, 1, 2))), "Tensors must have same number of dimensions");
    refuse(tg_vstack(NULL, 0), "non-empty TensorList");
}
SAMPLES(dstack)
{
    sample(S(2), S(2));
    sample(S(2, 3), S(2, 3), S(2, 3));
    sample(S0, S0);
    expect(tg_dstack(TG_LIST(f64("[1, 2]"), f64("[3, 4]"))), "[[[1, 3], [2, 4]]]");
    refuse(tg_dstack(TG_LIST(ones(2, 3), ones(2, 3, 1, 2))), "Tensors must have same number of dimensions");
    refuse(tg_dstack(NULL, 0), "non-empty TensorList");
}
SAMPLES(tile)
{
    sample(S(2, 3), dims(2));
    sample(S(2), dims(2, 3));
    sample(S0, dims(2));
    sample(S(2, 3));
    sample(S(2, 0), dims(2, 2));
    edge(in("[[1, 2], [3, 4]]"), dims(2), gives("[[1, 2, 1, 2], [3, 4, 3, 4]]"), grads("[[2, 2], [2, 2]]"));
    refuse(tg_tile(ones(2), TG_SHAPE(-1)), "");
}
SAMPLES(fliplr)
{
    sample(S(2, 3));
    sample(S(2, 3, 4));
    sample(S(2, 0));
    edge(in("[[1, 2], [3, 4]]"), gives("[[2, 1], [4, 3]]"), grads("[[1, 1], [1, 1]]"));
    refuse(tg_fliplr(ones(2)), "Input must be >= 2-d.");
}
SAMPLES(flipud)
{
    sample(S(2, 3));
    sample(S(2));
    sample(S(0, 2));
    edge(in("[[1, 2], [3, 4]]"), gives("[[3, 4], [1, 2]]"), grads("[[1, 1], [1, 1]]"));
    refuse(tg_flipud(f64("1")), "Input must be >= 1-d.");
}
SAMPLES(rot90)
{
    sample(S(2, 3), count(1), dims(0, 1));
    sample(S(2, 3, 4), count(2), dims(0, -1));
    sample(S(2, 3), count(-1), dims(1, 0));
    sample(S(2, 0), count(4), dims(0, 1));
    edge(in("[[1, 2, 3], [4, 5, 6]]"), count(1), dims(0, 1), gives("[[3, 6], [2, 5], [1, 4]]"),
         grads("[[1, 1, 1], [1, 1, 1]]"));
    edge(in("[[1, 2, 3], [4, 5, 6]]"), count(3), dims(0, 1), gives("[[4, 1], [5, 2], [6, 3]]"),
         grads("[[1, 1, 1], [1, 1, 1]]"));
    refuse(tg_rot90(ones(2, 2), 1, TG_DIMS(0)), "expected total rotation dims == 2");
    refuse(tg_rot90(ones(2), 1, TG_DIMS(0, 1)), "expected total dims >= 2");
    refuse(tg_rot90(ones(2, 2), 1, TG_DIMS(1, -1)), "rotation dims to be different");
    refuse(tg_rot90(ones(2, 2), 0, TG_DIMS(0, 5)), "Dimension out of range");
}
SAMPLES(diag)
{
    sample(S(3), count(0));
    sample(S(3), count(1));
    sample(S(2), count(-2));
    sample(S(2, 3), count(1));
    sample(S(0), count(1));
    edge(in("[1, 2]"), count(1), gives("[[0, 1, 0], [0, 0, 2], [0, 0, 0]]"), grads("[1, 1]"));
    edge(in("[1, 2]"), count(-1), gives("[[0, 0, 0], [1, 0, 0], [0, 2, 0]]"), grads("[1, 1]"));
    edge(in("[[1, 2], [3, 4]]"), count(1), gives("[2]"), grads("[[0, 1], [0, 0]]"));
    refuse(tg_diag(ones(2, 2, 2), 0), "Supports 1D or 2D tensors");
}
SAMPLES(pixel_shuffle)
{
    sample(S(1, 8, 2, 3), count(2));
    sample(S(4, 1, 2), count(2));
    sample(S(0, 4, 1, 1), count(2));
    edge(in("[[[1, 2]], [[3, 4]], [[5, 6]], [[7, 8]]]"), count(2), gives("[[[1, 3, 2, 4], [5, 7, 6, 8]]]"),
         grads("[[[1, 1]], [[1, 1]], [[1, 1]], [[1, 1]]]"));
    refuse(tg_pixel_shuffle(ones(3, 2, 2), 2), "divisible by the square of upscale_factor");
}
SAMPLES(pixel_unshuffle)
{
    sample(S(1, 2, 4, 6), count(2));
    sample(S(1, 2, 4), count(2));
    sample(S(0, 1, 2, 2), count(2));
    edge(in("[[[1, 2, 3, 4], [5, 6, 7, 8]]]"), count(2), gives("[[[1, 3]], [[2, 4]], [[5, 7]], [[6, 8]]]"),
         grads("[[[1, 1, 1, 1], [1, 1, 1, 1]]]"));
    refuse(tg_pixel_unshuffle(ones(3, 3, 2), 2), "divisible by downscale_factor");
}
SAMPLES(channel_shuffle)
{
    sample(S(1, 4, 2), count(2));
    sample(S(2, 6, 1, 2), count(3));
    sample(S(0, 4, 1), count(2));
    expect(tg_channel_shuffle(f64("[[[1], [2], [3], [4]]]"), 2), "[[[1], [3], [2], [4]]]");
    refuse(tg_channel_shuffle(ones(1, 3, 2), 2), "must be divisible by groups");
}
SAMPLES(addmv)
{
    sample(S(2), S(2, 3), S(3), num(1), num2(1));
    sample(S0, S(2, 3), S(3), num(0.5), num2(2));
    edge(in("[1, 2]"), in("[[1, 2], [3, 4]]"), in("[5, 6]"), num(0.5), num2(2), gives("[34.5, 79]"),
         grads("[0.5, 0.5]"), grads("[[10, 12], [10, 12]]"), grads("[8, 12]"));
    expect(tg_addmv(f64("[nan]"), ones(1, 1), ones(1), 0, 1), "[1]");
    refuse(tg_addmv(ones(2), ones(2, 3), ones(2), 1, 1), "cannot be multiplied");
}
SAMPLES(baddbmm)
{
    sample(S(2, 2, 2), S(2, 2, 3), S(2, 3, 2), num(1), num2(1));
    sample(S(2), S(2, 2, 3), S(2, 3, 2), num(0.5), num2(2));
    edge(in("[[[1, 2]]]"), in("[[[1, 2]]]"), in("[[[5, 6], [7, 8]]]"), num(0.5), num2(2), gives("[[[38.5, 45]]]"),
         grads("[[[0.5, 0.5]]]"), grads("[[[22, 30]]]"), grads("[[[2, 2], [4, 4]]]"));
    refuse(tg_baddbmm(ones(2), ones(2, 3), ones(2, 3), 1, 1), "3D");
}
SAMPLES(addbmm)
{
    sample(S(2, 2), S(2, 2, 3), S(2, 3, 2), num(1), num2(1));
    sample(S(2), S(2, 2, 3), S(2, 3, 2), num(0.5), num2(2));
    edge(in("[[1, 2]]"), in("[[[1, 2]]]"), in("[[[5, 6], [7, 8]]]"), num(0.5), num2(2), gives("[[38.5, 45]]"),
         grads("[[0.5, 0.5]]"), grads("[[[22, 30]]]"), grads("[[[2, 2], [4, 4]]]"));
    refuse(tg_addbmm(ones(2), ones(2, 3), ones(2, 3), 1, 1), "3D");
}
SAMPLES(inner)
{
    sample(S(3), S(3));
    sample(S(2, 3), S(4, 2, 3));
    sample(S0, S(2, 3));
    sample(S(0, 3), S(2, 3));
    edge(in("[[1, 2], [3, 4]]"), in("[5, 6]"), gives("[17, 39]"), grads("[[5, 6], [5, 6]]"), grads("[4, 6]"));
    refuse(tg_inner(ones(2, 3), ones(2)), "contracted dimensions need to match");
}
SAMPLES(tensordot)
{
    sample(S(2, 3), S(3, 4), dims(1), dims2(0));
    sample(S(2, 3, 4), S(4, 2), dims(0, 2), dims2(1, 0));
    sample(S(0, 3), S(3), dims(1), dims2(0));
    edge(in("[[1, 2], [3, 4]]"), in("[[5, 6], [7, 8]]"), dims(0, 1), dims2(1, 0), gives("69"),
         grads("[[5, 7], [6, 8]]"), grads("[[1, 3], [2, 4]]"));
    expect(tg_tensordot(f64("[1, 2]"), f64("[3, 4]"), TG_SCALAR, TG_SCALAR), "[[3, 4], [6, 8]]");
    refuse(tg_tensordot(ones(2, 3), ones(2), TG_DIMS(1), TG_DIMS(0)), "contracted dimensions need to match");
}
SAMPLES(kron)
{
    sample(S(2, 3), S(2, 2));
    sample(S(3), S(2, 2));
    sample(S0, S(2));
    sample(S(0, 2), S(2, 2));
    edge(in("[[1, 2]]"), in("[[5, 6], [7, 8]]"), gives("[[5, 6, 10, 12], [7, 8, 14, 16]]"), grads("[[26, 26]]"),
         grads("[[3, 3], [3, 3]]"));
    refuse(tg_kron(ones(1, 1, 1, 1, 1), ones(1)), "at most 4 dims");
}
SAMPLES(cross)
{
    sample(S(2, 3), S(2, 3), dim(1));
    sample(S(3, 2), S(3, 1), dim(0));
    edge(in("[1, 2, 3]"), in("[4, 5, 7]"), dim(0), gives("[-1, 5, -3]"), grads("[-2, 3, -1]"), grads("[1, -2, 1]"));
    refuse(tg_cross(ones(2), ones(2), 0), "must have length 3");
}
SAMPLES(bilinear)
{
    sample(S(2, 3), S(2, 2), S(4, 3, 2), S(4));
    sample(S(3), S(2), S(4, 3, 2));
    edge(in("[[1, 2]]"), in("[[3, 4]]"), in("[[[1, 0], [2, -1]]]"), gives("[[7]]"), grads("[[3, 2]]"),
         grads("[[5, -2]]"), grads("[[[3, 4], [6, 8]]]"));
    refuse(tg_bilinear(ones(2, 3), ones(2, 3), ones(3, 3), NULL), "do not fit weight");
}
SAMPLES(take)
{
    sample(S(2, 3), ids("[[0, 5], [2, -1]]"));
    sample(S(4), ids("[1]"));
    sample(S0, ids("0"));
    sample(S(2, 3), ids("[0, 0]"));
    edge(in("[[1, 2], [3, 4]]"), ids("[3, 3, 0]"), gives("[4, 4, 1]"), grads("[[1, 0], [0, 2]]"));
    refuse(tg_take(ones(2), i64("[2]")), "out of bounds");
}
SAMPLES(index_fill)
{
    sample(S(3, 2), ids("[0, 2]"), dim(0), num(5));
    sample(S(2, 3), ids("1"), dim(-1), num(5));
    sample(S0, ids("0"), dim(0), num(5));
    edge(in("[[1, 2], [3, 4]]"), ids("[1, 1]"), dim(1), num(9), gives("[[1, 9], [3, 9]]"), grads("[[1, 0], [1, 0]]"));
    refuse(tg_index_fill(ones(2), 0, i64("[2]"), 1), "out of");
    refuse(tg_index_fill(ones(2), 0, i64("[[1]]"), 1), "Index should have dimension 1 or 0");
}
SAMPLES(index_copy)
{
    sample(S(3, 2), ids("[2, 0]"), S(2, 2), dim(0));
    sample(S(2, 3), ids("[1]"), S(2, 1), dim(-1));
    edge(in("[[1, 2], [3, 4]]"), ids("[1]"), in("[[8], [9]]"), dim(1), gives("[[1, 8], [3, 9]]"),
         grads("[[1, 0], [1, 0]]"), grads("[[1], [1]]"));
    refuse(tg_index_copy(ones(2), 0, i64("[0]"), ones(2)), "must have same slice shapes");
}
SAMPLES(index_copy_)
{
    tg_tensor *t = tg_zeros_on(TG_SHAPE(2, 3, 2), TG_F64, HERE), *one = f64("0");
    sample(S(3, 2), ids("[2, 0]"), S(2, 2), dim(0));
    sample(S(2, 3), ids("1"), S(2, 1), dim(-1));
    CHECK(tg_index_copy_(t, 1, i64("[2, 0]"), tg_reshape(f64("[1, 2, 3, 4, 5, 6, 7, 8]"), TG_SHAPE(2, 2, 2))) == t);
    expect(t, "[[[3, 4], [0, 0], [1, 2]], [[7, 8], [0, 0], [5, 6]]]");
    CHECK(tg_index_copy_(one, 0, i64("0"), f64("5")) == one && tg_item(one) == 5);
    refuse(tg_index_copy_(t, 1, i64("[2, 0]"), ones(2, 2, 3)), "tg_index_copy_: index_copy_(): Source/destination");
    refuse(tg_index_copy_(t, 1, i64("[3]"), ones(2, 1, 2)), "out of");
    refuse(tg_index_copy_(leaf("[1, 2]"), 0, i64("[1]"), f64("[5]")), "a leaf Variable");
    expect(t, "[[[3, 4], [0, 0], [1, 2]], [[7, 8], [0, 0], [5, 6]]]");
}
SAMPLES(scaled_dot_product_attention_ex)
{
    tg_tensor *q = tg_reshape(tg_div_scalar(tg_arange_on(0, 16, 1, TG_F64, HERE), 8), TG_SHAPE(4, 2, 2));
    tg_tensor *k = tg_reshape(tg_div_scalar(tg_arange_on(12, 0, -1, TG_F64, HERE), 6), TG_SHAPE(2, 3, 2)), *last;
    tg_tensor *v = tg_reshape(tg_arange_on(0, 12, 1, TG_F64, HERE), TG_SHAPE(2, 3, 2)), *y, *pad;
    sample(S(4, 3, 2), S(2, 5, 2), S(2, 5, 3), dim2(1)); /* each of two heads of keys serves two */
    sample(S(2, 4, 3, 2), S(2, 1, 5, 2), S(2, 1, 5, 3), flag(true), dim2(1), count(2));
    sample(S(4, 1, 2), S(2, 5, 2), S(2, 5, 3), flag(true), dim2(1), count(3)); /* one query, which sees four keys */
    sample(S(2, 1, 2), S(2, 5, 2), S(2, 5, 3), flag(true), count(9), count2(3));
    sample(S(4, 2), S(7, 2), S(7, 3), flag(true), count(2), count2(2), num(0.4)); /* keys 1 to 5, two for each query */
    sample(S(9, 2), S(12, 2), S(12, 3), flag(true), count(3)); /* so many queries that they are worth a kernel */
    sample(S(4, 2, 2), S(2, 3, 2), S(2, 3, 2), mask("[[[1, 0, 1]], [[1, 1, 0]], [[1, 1, 1]], [[0, 1, 1]]]"), dim2(1));
    sample(S(4, 1, 2), S(2, 3, 2), S(2, 3, 2), mask("[[[1, 0, 1]], [[1, 1, 0]], [[1, 1, 1]], [[0, 1, 1]]]"), dim2(1));
    sample(S(4, 2, 2), S(2, 3, 2), S(2, 3, 2), mask("[[[1, 0, 1]]]"), dim2(1), flag(true), count(1));
    sample(S(2, 2), S(3, 2), S(3, 2), S(2, 3), flag(true), count(1));
    expect(tg_scaled_dot_product_attention_ex(q, k, v, NULL, 0, false, 0, true, 0, 0),
           "[[[1.96072197227249, 2.96072197227249], [1.80428855141214, 2.80428855141214]], [[1.65052767813895, "
           "2.65052767813895], [1.50141402226174, 2.50141402226174]], [[7.35866292980723, 8.35866292980723], "
           "[7.22365686226503, 8.22365686226503]], [[7.0974075248837, 8.0974075248837], [6.98055280271008, "
           "7.98055280271008]]]");
    y = tg_scaled_dot_product_attention_ex(q, k, v, NULL, 0, true, 0, true, 1, 0);
    expect(y, "[[[0.985269674271622, 1.98526967427162], [1.80428855141214, 2.80428855141214]], [[0.868188905596369, "
              "1.86818890559637], [1.50141402226174, 2.50141402226174]], [[6.7546737419031, 7.7546737419031], "
              "[7.22365686226503, 8.22365686226503]], [[6.64750948145584, 7.64750948145584], [6.98055280271008, "
              "7.98055280271008]]]");
    last = tg_scaled_dot_product_attention_ex(tg_narrow(q, 1, 1, 1), k, v, NULL, 0, true, 0, true, 2, 0);
    CHECK(is_nearly(last, tg_narrow(y, 1, 1, 1), 1e-14, 1e-14)); /* the last position alone, with the cache of all */
    q = tg_div_scalar(f64("[[1, 2], [3, 4], [5, 6]]"), 4);
    expect(tg_scaled_dot_product_attention_ex(q, q, tg_select(v, 0, 0), NULL, 0, true, 0, false, 0, 2),
           "[[0, 1], [1.29985404041329, 2.29985404041329], [3.45114417772868, 4.45114417772868]]");
    expect(tg_scaled_dot_product_attention_ex(q, q, q, NULL, 0, true, 0, false, 99, 5), "[[0, 0], [0, 0], [0, 0]]");
    pad = boolean("[[[[1, 1, 0]]], [[[0, 1, 1]]]]"); /* keys of two sequences, of which one is not there */
    y = tg_scaled_dot_product_attention_ex(tg_expand(q, TG_SHAPE(2, 4, 3, 2)), tg_expand(q, TG_SHAPE(2, 2, 3, 2)),
                                           tg_expand(q, TG_SHAPE(2, 2, 3, 2)), pad, 0, true, 0, true, 0, 0);
    last = tg_scaled_dot_product_attention(tg_narrow(q, 0, 2, 1), tg_narrow(q, 0, 0, 2), tg_narrow(q, 0, 0, 2), NULL, 0,
                                           false, 0);
    CHECK(is_nearly(tg_select(tg_select(y, 0, 0), 1, 2), tg_expand(last, TG_SHAPE(4, 2)), 1e-14, 1e-14));
    expect(tg_select(tg_select(tg_select(y, 0, 1), 0, 3), 0, 0), "[0, 0]"); /* sees padding alone */
    expect(tg_select(tg_select(tg_select(y, 0, 1), 0, 3), 0, 1), "[0.75, 1]");
    refuse(tg_scaled_dot_product_attention_ex(ones(3, 2, 2), ones(2, 2, 2), ones(2, 2, 2), NULL, 0, false, 0, true, 0,
                                              0),
           "Number of heads in key and value must divide the number of heads in query");
    refuse(tg_scaled_dot_product_attention_ex(ones(2, 2), ones(2, 2), ones(2, 2), NULL, 0, false, 0, true, 0, 0),
           "enable_gqa needs q [.., heads, L, E]");
    refuse(tg_scaled_dot_product_attention_ex(ones(4, 1, 2), ones(2, 2, 2), ones(2, 2, 2), boolean("[[1, 0], [1, 1]]"),
                                              0, false, 0, true, 0, 0), "and mask [2, 2]");
    refuse(tg_scaled_dot_product_attention_ex(q, q, q, NULL, 0, true, 0, false, -1, 0), "have to be from 0 to 2^40");
    refuse(tg_scaled_dot_product_attention_ex(q, q, q, NULL, 0, false, 0, false, 0, 1), "and need is_causal");
    refuse(tg_scaled_dot_product_attention_ex(q, q, q, i64("[[1, 0, 1]]"), 0, true, 0, false, 0, 0),
           "Expected attn_mask dtype to be bool or float");
    refuse(tg_scaled_dot_product_attention_ex(q, q, ones(2, 2), NULL, 0, true, 0, false, 0, 0), "do not fit");
}
SAMPLES(rope)
{
    sample(S(2, 3, 4), S(3, 2), S(3, 2));
    sample(S(2, 3, 4), S(3, 2), S(3, 2), flag(true));
    sample(S(2, 2, 7), S(2, 1, 2), S(2, 1, 2)); /* three elements stay */
    sample(S(2, 7), S(2), S(2), flag(true));
    edge(in("[[1, 2, 3, 4], [5, 6, 7, 8]]"), in("[[0.877582561890373, 0.54030230586814], [-0.416146836547142, "
         "-0.989992496600445]]"), in("[[0.479425538604203, 0.841470984807897], [0.909297426825682, "
         "0.141120008059867]]"), gives("[[-0.560694053922237, -2.2852793274953, 3.11217322427532, 3.84415119308835], "
         "[-8.44581617051548, -7.06891504408161, 1.63345927829841, -7.07321992444436]]"),
         grads("[[1.35700810049458, 1.38177329067604, 0.39815702328617, -0.301168678939757], [0.49315059027854, "
               "-0.848872488540578, -1.32544426337282, -1.13111250466031]]"));
    edge(in("[[1, 2, 3, 4, 5]]"), in("[0, 1]"), in("[1, 0]"), flag(1), gives("[[-2, 1, 3, 4, 5]]"));
    edge(in("[[1, 2, 3, 4, 5]]"), in("[0, 1]"), in("[1, 0]"), gives("[[-3, 2, 1, 4, 5]]"));
    refuse(tg_rope(ones(2, 3), ones(2, 2), ones(2, 2), false), "x [2, 3], cos [2, 2] and sin [2, 2] do not fit");
    refuse(tg_rope(ones(2, 4), ones(3, 2), ones(3, 2), false), "do not fit");
    refuse(tg_rope(ones(2, 4), ones(2, 2), ones(2, 1), false), "do not fit");
    refuse(tg_rope(ones(4), ones(2, 2), ones(2, 2), false), "do not fit");
    refuse(tg_rope(tg_ones_on(TG_SCALAR, TG_F64, HERE), ones(2), ones(2), false), "do not fit");
    refuse(tg_rope(i64("[1, 2]"), ones(1), ones(1), false), "");
}
SAMPLES(filter_logits)
{
    tg_tensor *x = f64("[[1, 3, 2, 0.5], [-1, 0, 4, 3.5]]");
    sample(S(3, 7), count(4), num(1));
    sample(S(3, 7), num(0.8));
    sample(S(2, 2, 5), count(3), num(0.9));
    sample(S(5), num(1));
    edge(in("[-1, 0, -2, -0.5]"), count(2), num(1), gives("[0, 1, 0, 0.606530659713]"),
         grads("[0, 1, 0, 0.606530659713]"));
    expect(tg_filter_logits(x, 2, 1), "[[-inf, 3, 2, -inf], [-inf, -inf, 4, 3.5]]");
    expect(tg_filter_logits(x, 0, 0.5), "[[-inf, 3, -inf, -inf], [-inf, -inf, 4, -inf]]");
    expect(tg_filter_logits(x, 0, 0.9), "[[1, 3, 2, -inf], [-inf, -inf, 4, 3.5]]");
    expect(tg_filter_logits(x, 0, 0.95), "[[1, 3, 2, 0.5], [-inf, -inf, 4, 3.5]]");
    expect(tg_filter_logits(x, 9, 0), "[[-inf, 3, -inf, -inf], [-inf, -inf, 4, -inf]]");
    expect(tg_filter_logits(f64("[1, 1, 1, 1]"), 0, 0.5), "[1, 1, -inf, -inf]"); /* a sum that is reached exactly */
    CHECK(tg_filter_logits(x, 0, 1) == x && tg_filter_logits(x, 4, 1) == x);
    refuse(tg_filter_logits(x, -1, 1), "top_k >= 0 and top_p from 0 to 1 are needed, not -1 and 1");
    refuse(tg_filter_logits(x, 0, 1.5), "not 0 and 1.5");
    refuse(tg_filter_logits(x, 0, NAN), "top_p from 0 to 1");
    refuse(tg_filter_logits(ones(2, 0), 0, 1), "logits [.., C] with C > 0 are needed, not [2, 0]");
    refuse(tg_filter_logits(i64("[1, 2]"), 0, 1), "");
}
SAMPLES(repetition_penalty)
{
    tg_tensor *x = f64("[[1, 3, 2, 0.5], [-1, 0, 4, 3.5]]");
    sample(S(2, 4), ids("[[0, 1, 0], [0, 3, 3]]"), num(1.5));
    sample(S(4), ids("[2]"), num(0.5));
    expect(tg_repetition_penalty(x, i64("[[0, 1, 0], [0, 3, 3]]"), 2), "[[0.5, 1.5, 2, 0.5], [-2, 0, 4, 1.75]]");
    expect(tg_repetition_penalty(x, tg_zeros_on(TG_SHAPE(2, 0), TG_I64, HERE), 2), "[[1, 3, 2, 0.5], [-1, 0, 4, 3.5]]");
    refuse(tg_repetition_penalty(x, i64("[[0], [4]]"), 2), "out of");
    refuse(tg_repetition_penalty(x, i64("[[0], [1]]"), 0), "penalty has to be a number > 0, but got 0");
    refuse(tg_repetition_penalty(x, i64("[[0], [1]]"), INFINITY), "penalty has to be a number > 0");
}
/* How often each category of a row of logits is drawn. */
static tg_tensor *shares_of(const char *logits, double temperature, int64_t top_k, double top_p)
{
    tg_tensor *rows = tg_expand(f64(logits), TG_SHAPE(20000, 4));
    return tg_mean_dim(tg_to_dtype(tg_one_hot(tg_sample_logits(rows, temperature, top_k, top_p), 4), TG_F64), 0, false);
}
SAMPLES(sample_logits)
{
    tg_tensor *x = f64("[[1, 3, 2, 0.5], [-1, 0, 4, 3.5]]");
    sample(S(3, 7), num(1), num2(0));
    expect(tg_sample_logits(x, 0, 0, 1), "[1, 2]");
    expect(tg_sample_logits(x, 1, 1, 1), "[1, 2]");
    expect(tg_sample_logits(x, 1e-300, 0, 1), "[1, 2]");
    expect(tg_sample_logits(f64("[1, 3, 2, 0.5]"), 5, 0, 0), "1");
    tg_seed(5); /* three standard deviations are 0.0106 at most */
    CHECK(is_nearly(shares_of("[1, 3, 2, 0.5]", 1, 0, 1), f64("[0.085369, 0.630796, 0.232057, 0.051779]"), 0, 0.012));
    CHECK(is_nearly(shares_of("[1, 3, 2, 0.5]", 2, 0, 1), f64("[0.162713, 0.442299, 0.268268, 0.126720]"), 0, 0.012));
    CHECK(is_nearly(shares_of("[1, 3, 2, 0.5]", 1, 2, 1), f64("[0, 0.731059, 0.268941, 0]"), 0, 0.012));
    CHECK(is_nearly(shares_of("[1, 3, 2, 0.5]", 1, 0, 0.9), f64("[0.090031, 0.665241, 0.244728, 0]"), 0, 0.012));
    refuse(tg_sample_logits(x, -1, 0, 1), "temperature has to be >= 0, but got -1");
    refuse(tg_sample_logits(x, NAN, 0, 1), "temperature has to be >= 0");
    refuse(tg_sample_logits(x, 1, 0, 2), "top_p from 0 to 1");
    refuse(tg_sample_logits(f64("1"), 1, 0, 1), "logits [.., C] are needed, not []");
    refuse(tg_sample_logits(ones(2, 0), 1, 0, 1), "");
}
SAMPLES(masked_scatter)
{
    sample(S(2, 3), mask("[[1, 0, 1], [0, 1, 0]]"), S(4));
    sample(S(3), mask("[[1, 0, 1], [0, 1, 0]]"), S(2, 2));
    edge(in("[1, 2, 3]"), mask("[1, 0, 1]"), in("[8, 9, 7]"), gives("[8, 2, 9]"), grads("[0, 1, 0]"),
         grads("[1, 1, 0]"));
    refuse(tg_masked_scatter(ones(2), ones(2), ones(2)), "only supports boolean masks");
    refuse(tg_masked_scatter(ones(2), boolean("[1, 1]"), ones(1)), "out of bounds");
    expect(tg_masked_scatter(ones(2), boolean("[0, 0]"), ones(0)), "[1, 1]");
}
SAMPLES(scatter_reduce)
{
    sample(S(3, 2), ids("[[0, 1], [0, 0], [2, 1], [0, 2]]"), S(4, 2), dim(0), text("prod"), flag(1));
    sample(S(3, 2), ids("[[0, 1], [0, 0]]"), S(4, 3), dim(0), text("prod"));
    sample(S(2, 3), ids("[[0, 0, 2, 0], [1, 1, 1, 1]]"), S(2, 4), dim(-1), text("amax"), flag(1));
    sample(S(2, 3), ids("[[0, 0, 2, 0], [1, 1, 1, 1]]"), S(2, 4), dim(1), text("amin"));
    sample(S(4), ids("[0, 2, 0]"), S(3), dim(0), text("mean"), flag(1));
    sample(S(4), ids("[0, 2, 0]"), S(3), dim(0), text("mean"));
    sample(S(4), ids("[0, 2, 0]"), S(3), dim(0), text("sum"));
    edge(in("[2, 3, 4]"), ids("[0, 0, 2]"), in("[5, 0, 4]"), dim(0), text("prod"), flag(1), gives("[0, 3, 16]"),
         grads("[0, 1, 4]"), grads("[0, 10, 4]"));
    edge(in("[2, 3, 4]"), ids("[0, 0, 2]"), in("[1, 2, 4]"), dim(0), text("amax"), flag(1), gives("[2, 3, 4]"),
         grads("[0.5, 1, 0.5]"), grads("[0, 0.5, 0.5]"));
    edge(in("[9, 3, 9]"), ids("[0, 0, 2]"), in("[1, 1, nan]"), dim(0), text("amax"), gives("[1, 3, nan]"),
         grads("[0, 1, 0]"), grads("[0.5, 0.5, 0]"));
    edge(in("[9, 3, 9]"), ids("[0, 0, 2]"), in("[1, 1, 4]"), dim(0), text("amin"), gives("[1, 3, 4]"), grads("[0, 1, 0]"),
         grads("[0.5, 0.5, 1]"));
    expect(tg_scatter_reduce(i64("[7, 3]"), 0, i64("[0, 0]"), i64("[2, 4]"), "mean", true), "[4, 3]");
    expect(tg_scatter_reduce(i64("[7, 3]"), 0, i64("[0, 0]"), i64("[2, 4]"), "prod", false), "[8, 3]");
    expect(tg_scatter_reduce(i64("[7, 3]"), 0, i64("[0, 1]"), i64("[9, 2]"), "amax", true), "[9, 3]");
    refuse(tg_scatter_reduce(ones(2), 0, i64("[0]"), ones(1), "max", true), "reduce argument must be either sum, prod");
    refuse(tg_scatter_reduce(ones(2), 0, i64("[0]"), ones(1), NULL, true), "reduce argument must be either sum, prod");
    refuse(tg_scatter_reduce(ones(2), 0, i64("[2]"), ones(1), "amax", true), "out of bounds");
    refuse(tg_scatter_reduce(ones(2), 0, i64("[0, 1]"), ones(1), "prod", true), "no larger size than src");
}
SAMPLES(index_reduce)
{
    sample(S(3, 2), ids("[0, 2, 0]"), S(3, 2), dim(0), text("prod"), flag(1));
    sample(S(2, 3), ids("[0, 2, 0]"), S(2, 3), dim(-1), text("amax"));
    sample(S(3, 2), ids("[1, 1]"), S(2, 2), dim(0), text("mean"));
    sample(S(2, 17), ids("[0, 1, 0]"), S(3, 17), dim(0), text("prod"), flag(1)); /* slices as wide as a vector */
    sample(S(2, 17), ids("[0, 1, 0]"), S(3, 17), dim(0), text("amin"), flag(1));
    edge(in("[[1, 2], [3, 4]]"), ids("[1, 1]"), in("[[5, 1], [0, 9]]"), dim(0), text("amin"), flag(1),
         gives("[[1, 2], [0, 1]]"), grads("[[1, 1], [0, 0]]"), grads("[[0, 1], [1, 0]]"));
    expect(tg_index_reduce(f64("3"), 0, i64("[0]"), f64("2"), "prod", true), "6");
    refuse(tg_index_reduce(ones(2, 2), 0, i64("[0, 1]"), ones(3, 2), "prod", true), "Index is supposed to be a vector");
    refuse(tg_index_reduce(ones(2, 2), 0, i64("[0, 2]"), ones(2, 2), "prod", true), "out of bounds");
}
SAMPLES(tensor_split)
{
    tg_tensor *out[4] = {NULL, NULL, NULL, NULL};
    sample(S(7, 2), dim(0), count(3));
    sample(S(2, 4), dim(-1), count(2));
    sample(S(2, 0), dim(1), count(2));
    CHECK(tg_tensor_split(ones(7), 3, 0, out, 4) == 3 && tg_dim(out[0], 0) == 3 && tg_dim(out[1], 0) == 2 && !out[3]);
    CHECK(tg_tensor_split(ones(2), 4, 0, out, 4) == 4 && tg_dim(out[3], 0) == 0);
    refuse(tensor_split_call(ones(4), 0, 0), "number of sections must be larger than 0, got 0");
    refuse(tensor_split_call(ones(20), 9, 0), "9 pieces, but out has room for 8");
}
SAMPLES(tensor_split_at)
{
    tg_tensor *out[4] = {NULL, NULL, NULL, NULL};
    sample(S(5, 2), dims(1, 3));
    sample(S(2, 4), dim(1), dims(-3, 4));
    CHECK(tg_tensor_split_at(f64("[1, 2, 3, 4]"), TG_DIMS(1, -1), 0, out, 4) == 3);
    expect(out[0], "[1]");
    expect(out[1], "[2, 3]");
    expect(out[2], "[4]");
    refuse(tensor_split_at_call(ones(4), TG_DIMS(3, 1), 0), "the indices have to rise");
    refuse(tensor_split_at_call(ones(4), TG_DIMS(1), 1), "Dimension out of range");
}
SAMPLES(hsplit)
{
    sample(S(2, 4), count(2));
    sample(S(6), count(3));
    refuse(hsplit_call(ones(2, 5), 2), "along dimension 1, but the size of the dimension 5 is not divisible");
    refuse(hsplit_call(tg_scalar(1), 2), "requires a tensor with at least 1 dimension");
}
SAMPLES(vsplit)
{
    sample(S(4, 3), count(2));
    refuse(vsplit_call(ones(5, 2), 2), "along dimension 0, but the size of the dimension 5 is not divisible");
    refuse(vsplit_call(ones(4), 2), "requires a tensor with at least 2 dimension");
}
SAMPLES(dsplit)
{
    sample(S(2, 2, 4), count(2));
    refuse(dsplit_call(ones(2, 2, 5), 2), "along dimension 2, but the size of the dimension 5 is not divisible");
    refuse(dsplit_call(ones(4, 2), 2), "requires a tensor with at least 3 dimension");
}
SAMPLES(column_stack)
{
    sample(S(2), S(2, 3), S(2));
    sample(S(3), S(3));
    edge(in("[1, 2]"), in("[3, 4]"), gives("[[1, 3], [2, 4]]"), grads("[1, 1]"), grads("[1, 1]"));
    expect(tg_column_stack(TG_LIST(tg_scalar(1), tg_scalar(2))), "[[1, 2]]");
    refuse(tg_column_stack(TG_LIST(ones(2), ones(3))), "Sizes of tensors must match");
}
SAMPLES(block_diag)
{
    sample(S(2, 3), S(1, 2), S(2));
    sample(S0, S(2, 1));
    edge(in("[[1, 2]]"), in("[3]"), in("[[4], [5]]"),
         gives("[[1, 2, 0, 0], [0, 0, 3, 0], [0, 0, 0, 4], [0, 0, 0, 5]]"), grads("[[1, 1]]"), grads("[1]"),
         grads("[[1], [1]]"));
    refuse(tg_block_diag(TG_LIST(ones(2), ones(2, 2, 2))), "Input 1 has 3 dimensions");
    refuse(tg_block_diag(NULL, 0), "non-empty");
}
SAMPLES(cartesian_prod)
{
    tg_tensor *many[TG_MAX_DIMS + 1];
    int i;
    sample(S(2), S(3));
    sample(S(2), S(1), S(3));
    sample(S(4));
    edge(in("[1, 2]"), in("[3, 4]"), gives("[[1, 3], [1, 4], [2, 3], [2, 4]]"), grads("[2, 2]"), grads("[2, 2]"));
    refuse(tg_cartesian_prod(TG_LIST(ones(2, 2))), "Expected 0D or 1D tensor");
    for (i = 0; i <= TG_MAX_DIMS; ++i) many[i] = ones(1);
    refuse(tg_cartesian_prod(many, TG_MAX_DIMS + 1), "a grid has 1 to 8 dims, not 9");
    refuse(tg_cartesian_prod(NULL, 2), "tensors is NULL");
}
SAMPLES(combinations)
{
    sample(S(4), count(2));
    sample(S(3), count(2), flag(1));
    sample(S(3), count(1));
    edge(in("[1, 2, 3]"), count(2), gives("[[1, 2], [1, 3], [2, 3]]"), grads("[2, 2, 2]"));
    edge(in("[1, 2]"), count(3), flag(1), gives("[[1, 1, 1], [1, 1, 2], [1, 2, 2], [2, 2, 2]]"), grads("[6, 6]"));
    CHECK(tg_numel(tg_combinations(ones(2), 3, false)) == 0 && tg_numel(tg_combinations(ones(2), 0, false)) == 0);
    CHECK(tg_numel(tg_combinations(ones(0), 2, true)) == 0);
    refuse(tg_combinations(ones(2, 2), 2, false), "Expect a 1D vector");
    refuse(tg_combinations(ones(2), -1, false), "a non-negative number");
    refuse(tg_combinations(ones(200), 100, false), "out of memory");
}
SAMPLES(diag_embed)
{
    sample(S(3), count(0), dims(-2, -1));
    sample(S(2, 3), count(1), dims(0, 2));
    sample(S(2, 3), count(-2), dims(-1, 0));
    sample(S(2, 0), count(1), dims(-2, -1));
    edge(in("[[1, 2], [3, 4]]"), count(1), dims(-2, -1),
         gives("[[[0, 1, 0], [0, 0, 2], [0, 0, 0]], [[0, 3, 0], [0, 0, 4], [0, 0, 0]]]"), grads("[[1, 1], [1, 1]]"));
    expect(tg_diag_embed(f64("[1, inf]"), -1, 0, 1), "[[0, 0, 0], [1, 0, 0], [0, inf, 0]]");
    refuse(tg_diag_embed(ones(2), 0, 1, -1), "diagonal dimensions cannot be identical 1, 1");
    refuse(tg_diag_embed(ones(2), 0, 2, 0), "expected to be in range of [-2, 1], but got 2");
    refuse(tg_diag_embed(tg_scalar(1), 0, 0, 1), "a tensor of 1 to");
    refuse(tg_diag_embed(ones(2), INT64_MIN, 0, 1), "a tensor of 1 to");
}
SAMPLES(diagflat)
{
    sample(S(2, 2), count(0));
    sample(S(2), count(-1));
    sample(S0, count(1));
    edge(in("[[1], [2]]"), count(0), gives("[[1, 0], [0, 2]]"), grads("[[1], [1]]"));
}
SAMPLES(diagonal_scatter)
{
    sample(S(3, 3), S(3), count(0), dim(0), dim2(1));
    sample(S(2, 3, 4), S(2, 3), count(1), dim(1), dim2(2));
    edge(in("[[1, 2], [3, 4]]"), in("[8]"), count(-1), dim(0), dim2(1), gives("[[1, 2], [8, 4]]"),
         grads("[[1, 1], [0, 1]]"), grads("[1]"));
    refuse(tg_diagonal_scatter(ones(2, 2), ones(1), 0, 0, 1), "src size = [1], slice size = [2]");
}
SAMPLES(select_scatter)
{
    sample(S(2, 3), S(2), dim(1), count(2));
    sample(S(2, 3), S(3), dim(0), count(-1));
    edge(in("[[1, 2], [3, 4]]"), in("[8, 9]"), dim(1), count(0), gives("[[8, 2], [9, 4]]"), grads("[[0, 1], [0, 1]]"),
         grads("[1, 1]"));
    refuse(tg_select_scatter(ones(2, 2), ones(3), 0, 0), "src size = [3], slice size = [2]");
    refuse(tg_select_scatter(ones(2, 2), ones(2), 0, 2), "out of range");
}
SAMPLES(slice_scatter)
{
    sample(S(5, 2), S(2, 2), dim(0), dims(1, 5, 2));
    sample(S(2, 3), S(2, 3), dim(1), dims(0, INT64_MAX, 1));
    edge(in("[1, 2, 3, 4]"), in("[8, 9]"), dim(0), dims(0, -1, 2), gives("[8, 2, 9, 4]"), grads("[0, 1, 0, 1]"),
         grads("[1, 1]"));
    refuse(tg_slice_scatter(ones(3), ones(3), 0, 0, 2, 1), "src size = [3], slice size = [2]");
}
SAMPLES(vander)
{
    sample(S(3), count(4));
    sample(S(2), count(3), flag(1));
    sample(S(2), count(1));
    edge(in("[2, 3]"), count(3), gives("[[4, 2, 1], [9, 3, 1]]"), grads("[5, 7]"));
    expect(tg_vander(i64("[2, 3]"), 3, true), "[[1, 2, 4], [1, 3, 9]]");
    CHECK(tg_dim(tg_vander(ones(2), 0, true), 1) == 0);
    refuse(tg_vander(ones(2, 2), 2, true), "x must be a one-dimensional tensor");
    {
        expect(tg_to_dtype(tg_logspace(-1, 2, 4, 2), TG_F64), "[0.5, 1, 2, 4]");
        refuse(tg_logspace(0, 1, -1, 10), "number of steps must be non-negative");
    }
}
SAMPLES(cov)
{
    sample(S(3, 4), count(1));
    sample(S(5), count(0));
    sample(S(2, 4), ids("[1, 2, 1, 3]"), constant("[0.5, 1, 2, 0.25]"), count(1), flag(1));
    sample(S(2, 3), range(0.5, 2), S(3), count(1));
    edge(in("[[1, 2, 3], [1, 4, 4]]"), count(1), gives("[[1, 1.5], [1.5, 3]]"), grads("[[-3, 1, 2], [-3, 1, 2]]"));
    expect(tg_cov(i64("[1, 2, 3]"), 1, NULL, NULL), "1");
    refuse(tg_cov(ones(2, 2, 2), 1, NULL, NULL), "expected input to have two or fewer dimensions");
    refuse(tg_cov(ones(2, 2), 1, i64("[1, -1]"), NULL), "fweights cannot be negative");
    refuse(tg_cov(ones(2, 2), 1, NULL, f64("[0, 0]")), "weights sum to zero");
    refuse(tg_cov(ones(2, 2), 1, ones(2), NULL), "expected fweights to have integral dtype");
    refuse(tg_cov(ones(2, 2), 1, NULL, ones(3)), "have the same numel");
    refuse(tg_cov(ones(2, 2), 1, NULL, ones(1, 2)), "to have one or fewer dimensions");
    refuse(tg_cov(boolean("[1, 0]"), 1, NULL, NULL), "bool dtype is not supported");
}
SAMPLES(corrcoef)
{
    sample(S(3, 5));
    edge(in("[[1, 2, 3], [6, 4, 2]]"), gives("[[1, -1], [-1, 1]]"));
    expect(tg_corrcoef(f64("[1, 2, 4]")), "1");
}
SAMPLES(pdist)
{
    sample(S(4, 3), num(2));
    sample(S(3, 2), num(1));
    sample(S(3, 2), num(INFINITY));
    sample(S(2, 0), num(2));
    edge(in("[[0, 0], [3, 4], [0, 0]]"), num(2), gives("[5, 0, 5]"), grads("[[-0.6, -0.8], [1.2, 1.6], [-0.6, -0.8]]"));
    CHECK(tg_numel(tg_pdist(ones(1, 2), 2)) == 0);
    refuse(tg_pdist(ones(3), 2), "only supports 2D tensors, got: 1D");
    refuse(tg_pdist(ones(3, 2), -1), "non-negative p values");
}
SAMPLES(renorm)
{
    sample(S(3, 4), num(2), dim(0), num2(1));
    sample(S(2, 3, 2), num(1), dim(1), num2(3));
    sample(S(2, 3), num(INFINITY), dim(-1), num2(0.5));
    edge(in("[[3, 4], [0, 0]]"), num(2), dim(0), num2(10), gives("[[3, 4], [0, 0]]"), grads("[[1, 1], [1, 1]]"));
    refuse(tg_renorm(ones(3), 2, 0, 1), "needs at least 2 dimensions, got 1");
    refuse(tg_renorm(ones(3, 2), 0, 0, 1), "non-positive-norm not supported");
    refuse(tg_renorm(ones(3, 2), 2, 0, -1), "expected maxnorm to be >= 0");
}
SAMPLES(diff)
{
    sample(S(5), count(1), dim(0));
    sample(S(2, 4), count(2), dim(-1));
    sample(S(2, 3), S(1, 3), S(2, 3), count(1), dim(0));
    sample(S(2), count(4), dim(0));
    sample(S(2, 3), count(0), dim(1));
    edge(in("[1, 4, 9]"), in("[0]"), count(1), dim(0), gives("[1, 3, 5]"), grads("[0, 0, 1]"), grads("[-1]"));
    expect(tg_diff(boolean("[1, 1, 0]"), 1, 0, NULL, NULL), "[0, 1]");
    refuse(tg_diff(ones(3), -1, 0, NULL, NULL), "order must be non-negative but got -1");
    refuse(tg_diff(tg_scalar(1), 1, 0, NULL, NULL), "at least one-dimensional");
}
SAMPLES(trapezoid)
{
    sample(S(2, 4), dim(-1), num(0.5));
    sample(S(3, 4), S(3), dim(0));
    sample(S(2, 3), S(2, 3), dim(1));
    sample(S(2, 3, 4), S(3, 4), dim(1));
    sample(S(2, 0), dim(1), num(1));
    edge(in("[1, 3, 2]"), in("[0, 1, 3]"), dim(0), gives("7"), grads("[0.5, 1.5, 1]"), grads("[-2, -0.5, 2.5]"));
    expect(tg_trapezoid(i64("[1, 2, 4]"), NULL, 1, 0), "4.5");
    refuse(tg_trapezoid(ones(3), ones(2), 1, 0), "one `x` value for each sample point");
    refuse(tg_trapezoid(tg_scalar(1), NULL, 1, 0), "takes numbers of one or more dims");
    refuse(tg_trapezoid(boolean("[1, 0]"), NULL, 1, 0), "takes numbers of one or more dims");
}
SAMPLES(cumulative_trapezoid)
{
    sample(S(2, 4), dim(-1), num(0.5));
    sample(S(3, 4), S(3), dim(0));
    edge(in("[1, 3, 2]"), in("[0, 1, 3]"), dim(0), gives("[2, 7]"), grads("[1, 2, 1]"), grads("[-4, 1.5, 2.5]"));
}
SAMPLES(put)
{
    sample(S(2, 3), ids("[0, -1]"), S(2), flag(0));
    sample(S(2, 3), ids("[[1, 1], [4, 0]]"), S(4), flag(1));
    edge(in("[[1, 2], [3, 4]]"), ids("[3, 0]"), in("[8, 9]"), gives("[[9, 2], [3, 8]]"), grads("[[0, 1], [1, 0]]"),
         grads("[1, 1]"));
    refuse(tg_put(ones(3), i64("[0, 1]"), ones(3), false), "to have the same number of elements");
    refuse(tg_put(ones(3), i64("[3]"), ones(1), false), "out of bounds");
}
SAMPLES(nanmedian_dim)
{
    sample(S(5), dim(0));
    sample(S(2, 4), dim(-1), flag(1));
    edge(in("[[3, nan, 2, 0], [nan, nan, nan, nan]]"), dim(1), gives("[2, nan]"),
         grads("[[0, 0, 1, 0], [1, 0, 0, 0]]"));
    refuse(tg_nanmedian_dim(ones(2, 0), 1, false, NULL), "to have non-zero size");
}
SAMPLES(nanmedian)
{
    sample(S(2, 3));
    sample(S0);
    edge(in("[[5, nan], [1, 2]]"), gives("2"), grads("[[0, 0], [0, 1]]"));
    edge(in("[1, nan, 1, 3]"), gives("1"), grads("[0.5, 0, 0.5, 0]"));
    expect(tg_nanmedian(i64("[3, 1, 2]")), "2");
}
SAMPLES(mode)
{
    sample(S(4), dim(0));
    sample(S(2, 3), dim(0), flag(1));
    sample(S0, dim(0));
    edge(in("[[2, 1, 2, 1], [5, 3, 3, 4]]"), dim(1), gives("[1, 3]"), grads("[[0, 0, 0, 1], [0, 0, 1, 0]]"));
    {
        tg_tensor *index = NULL;
        expect(tg_mode(i64("[[5, 3, 5], [7, 7, 0]]"), -1, true, &index), "[[5], [7]]");
        expect(index, "[[2], [1]]");
        expect(tg_mode(f64("[nan, nan, 2]"), 0, false, &index), "2");
    }
    refuse(tg_mode(ones(2, 0), 1, false, NULL), "to have non-zero size");
}
SAMPLES(quantile)
{
    sample(S(7), constant("0.3"), text("linear"));
    sample(S(2, 5), constant("[0.1, 0.9]"), dims(1), text("midpoint"));
    sample(S(3, 4), constant("[0.2, 0.55]"), dims(0), flag(1), text("lower"));
    sample(S(2, 3), constant("0.7"), flag(1), text("higher"));
    sample(S(6), constant("[0.35]"), dims(0), text("nearest"));
    edge(in("[1, 5, 3, nan]"), in("0.5"), text("linear"), gives("nan"));
    edge(in("[4, 1, 3, 2]"), in("[0.25, 1]"), text("linear"), gives("[1.75, 4]"), grads("[1, 0.25, 0, 0.75]"),
         grads("[3, 0]"));
    refuse(tg_quantile(ones(3), f64("1.5"), TG_SCALAR, false, "linear"), HERE.type == TG_CPU.type ? "in the range [0, 1]" : "out of");
    refuse(tg_quantile(ones(3), f64("0.5"), TG_SCALAR, false, "cubic"), "interpolation must be one of");
    refuse(tg_quantile(ones(3), f64("0.5"), TG_SCALAR, false, NULL), "interpolation is NULL");
    refuse(tg_quantile(ones(0), f64("0.5"), TG_SCALAR, false, "linear"), "must be non-empty");
    refuse(tg_quantile(ones(3), ones(1, 1), TG_SCALAR, false, "linear"), "q must be a scalar or 1D tensor");
    refuse(tg_quantile(ones(3), f64("0.5"), TG_DIMS(1), false, "linear"), "Dimension out of range");
}
SAMPLES(nanquantile)
{
    sample(S(2, 5), constant("[0.1, 0.9]"), dims(1), text("linear"));
    edge(in("[[1, nan, 3], [nan, nan, nan]]"), constant("0.5"), dims(1), text("linear"), gives("[2, nan]"));
}
SAMPLES(searchsorted)
{
    sample(S(2, 3), S(4)); /* what is not sorted has places, too, and the same ones in every layout */
    sample(S(2, 3), S(2, 5), flag(1));
    sample(S(4), S(3), ids("[1, 2, 0]"));
    sample(S0, S(2));
    sample(S(2, 0), S(2));
    edge(constant("[1, 2, 3, nan, 0]"), constant("[1, 3]"), gives("[0, 1, 1, 2, 0]"));
    edge(constant("[1, 2, 3, nan, 0]"), constant("[1, 3]"), flag(1), gives("[1, 1, 2, 2, 0]"));
    expect(tg_searchsorted(i64("[[1, 3], [5, 5]]"), i64("[[3, 4, 0], [5, 6, 4]]"), false, NULL), "[[1, 2, 0], [0, 2, 0]]");
    expect(tg_searchsorted(ones(0), ones(2), true, NULL), "[0, 0]");
    expect(tg_searchsorted(f64("[1, 2, 3]"), tg_transpose(f64("[[0, 2, 4]]"), 0, 1), false, NULL), "[[0], [1], [3]]");
    refuse(tg_searchsorted(ones(2, 3), ones(3, 2), false, NULL), "the first N-1 dimensions");
    refuse(tg_searchsorted(tg_reshape(ones(1), TG_SCALAR), ones(2), false, NULL), "should have positive dimension");
    refuse(tg_searchsorted(i64("[1]"), ones(2), false, NULL), "should have same dtype");
    refuse(tg_searchsorted(ones(3), ones(2), false, i64("[0, 1]")), "boundary and sorter must have the same size");
    refuse(tg_searchsorted(ones(2), ones(2), false, tg_to_dtype(i64("[0, 1]"), TG_I32)), "must be a tensor of long");
    refuse(tg_searchsorted(ones(2), ones(2), false, i64("[0, 2]")), "out of");
}
SAMPLES(bucketize)
{
    sample(S(2, 3), S(4));
    edge(constant("[1, 2]"), constant("[1, 2]"), flag(1), gives("[1, 2]"));
    refuse(tg_bucketize(ones(2), ones(1, 2), false), "boundaries tensor must be 1 dimension, but got dim(2)");
}
SAMPLES(isin)
{
    sample(S(2, 3), constant("[0.5, 1]"));
    sample(S0, constant("0.5"));
    edge(constant("[1, inf, nan, 3]"), constant("[[3, nan], [7, 1]]"), gives("[1, 0, 0, 1]"));
    edge(constant("[inf, 2]"), constant("[nan, inf]"), gives("[1, 0]"));
    expect(tg_isin(i64("[1, 2]"), f64("[2, 2.5]")), "[0, 1]");
    expect(tg_isin(i64("[1, 2]"), ones(0)), "[0, 0]");
}
SAMPLES(histc)
{
    sample(S(2, 4), count(3), num(-1), num2(1));
    sample(S(0), count(3), num(-1), num2(1));
    edge(constant("[0, 1, 2, 2, 3, nan, -1]"), count(3), num(0), num2(3), gives("[1, 1, 3]"));
    edge(constant("[1, 2, 5]"), count(2), gives("[2, 1]"));
    expect(tg_histc(f64("[1, 1]"), 2, 0, 0), "[0, 2]");
    refuse(tg_histc(ones(2), 0, 0, 1), "bins must be > 0");
    refuse(tg_histc(ones(2), INT64_MAX, 0, 1), "bins must be > 0");
    refuse(tg_histc(ones(2), 2, 1, 0), "max must be larger than min");
}
SAMPLES(histogram)
{
    sample(S(2, 4), in("[-1, 0, 0.5, 1]"));
    sample(S(5), range(1, 2), in("[1, 1.25, 2]"), S(5), flag(1));
    edge(constant("[0, 1, 2, 4, 4, nan, -1]"), constant("[0, 2, 4]"), gives("[2, 3]"));
    edge(constant("[0, 1, 2, 4]"), constant("[0, 2, 4]"), constant("[1, 1, 4, 2]"), flag(1), gives("[0.125, 0.375]"));
    refuse(tg_histogram(ones(2), ones(1), NULL, false), "edges must be of one dim and two or more");
    refuse(tg_histogram(ones(2), f64("[0, 1]"), ones(3), false), "weight has the shape");
}
SAMPLES(unique)
{
    tg_tensor *inverse = NULL, *counts = NULL;
    sample(S(2, 3));
    sample(S0);
    sample(S(0));
    edge(constant("[[3, 1, 3], [2, nan, 1]]"), gives("[1, 2, 3, nan]"));
    expect(tg_unique(i64("[[3, 1, 3], [2, 2, 1]]"), &inverse, &counts), "[1, 2, 3]");
    expect(inverse, "[[2, 0, 2], [1, 1, 0]]");
    expect(counts, "[2, 2, 2]");
    expect(tg_unique(boolean("[1, 0, 1]"), &inverse, &counts), "[0, 1]");
    expect(counts, "[1, 2]");
}
SAMPLES(unique_dim)
{
    tg_tensor *inverse = NULL, *counts = NULL;
    sample(S(2, 3), dim(0));
    sample(S(3, 2, 2), dim(-1));
    edge(constant("[[2, 1], [0, 5], [2, 1], [2, 0], [0, 5]]"), dim(0), gives("[[0, 5], [2, 0], [2, 1]]"));
    expect(tg_unique_dim(i64("[[2, 0, 2], [1, 5, 1], [7, 1, 7]]"), 1, &inverse, &counts), "[[0, 2], [5, 1], [1, 7]]");
    expect(inverse, "[1, 0, 1]");
    expect(counts, "[1, 2]");
    CHECK(tg_dim(tg_unique_dim(ones(0, 2), 0, &inverse, &counts), 0) == 0 && tg_numel(inverse) == 0);
    refuse(tg_unique_dim(ones(0, 2), 1, NULL, NULL), "There are 0 sized dimensions");
    refuse(tg_unique_dim(ones(2), 1, NULL, NULL), "Dimension out of range");
}
SAMPLES(unique_consecutive)
{
    tg_tensor *inverse = NULL, *counts = NULL;
    sample(S(2, 3));
    edge(constant("[[1, 1, 2], [2, 1, nan]]"), gives("[1, 2, 1, nan]"));
    expect(tg_unique_consecutive(i64("[3, 3, 1, 3]"), &inverse, &counts), "[3, 1, 3]");
    expect(tg_unique_consecutive(f32("[1, 1, nan, nan, 0, -0, 2, 2]"), NULL, NULL), "[1, nan, nan, 0, 2]");
    expect(tg_unique_consecutive(tg_slice(i64("[3, 1, 3, 1, 4]"), 0, 0, 5, 2), NULL, NULL), "[3, 4]");
    expect(tg_unique_consecutive(tg_to_dtype(i64("[[1, 0], [0, 0]]"), TG_BOOL), NULL, NULL), "[1, 0]");
    expect(tg_unique_consecutive(tg_to_dtype(i64("[7]"), TG_I32), NULL, NULL), "[7]");
    expect(inverse, "[0, 0, 1, 2]");
    expect(counts, "[2, 1, 1]");
}
SAMPLES(unique_consecutive_dim)
{
    tg_tensor *inverse = NULL, *counts = NULL;
    sample(S(2, 3), dim(0));
    edge(constant("[[1, 2], [1, 2], [1, 3]]"), dim(0), gives("[[1, 2], [1, 3]]"));
    expect(tg_unique_consecutive_dim(i64("[[1, 1, 2], [0, 0, 0]]"), 1, &inverse, &counts), "[[1, 2], [0, 0]]");
    expect(inverse, "[0, 0, 1]");
    expect(counts, "[2, 1]");
}
SAMPLES(repeat_interleave_tensor)
{
    sample(S(3), ids("[1, 0, 2]"), dim(0));
    sample(S(2, 3), ids("[2]"), dim(1));
    sample(S(2, 3), ids("[2, 3]"), dim(0));
    edge(in("[4, 5]"), ids("[3, 1]"), dim(0), gives("[4, 4, 4, 5]"), grads("[3, 1]"));
    CHECK(tg_numel(tg_repeat_interleave_tensor(ones(2), i64("[0, 0]"), 0)) == 0);
    CHECK(tg_numel(tg_repeat_interleave_tensor(ones(0, 2), i64("3"), 0)) == 0);
    refuse(tg_repeat_interleave_tensor(ones(2), i64("[1, -1]"), 0), "repeats can not be negative");
    refuse(tg_repeat_interleave_tensor(ones(2), i64("[1, 1, 1]"), 0), "must have the same size as input along dim");
    refuse(tg_repeat_interleave_tensor(ones(2), ones(2), 0), "Expected dtype int32/int64");
}
SAMPLES(embedding_bag)
{
    sample(S(4, 3), ids("[[0, 2], [3, 1]]"), text("sum"), count(-1));
    sample(S(4, 3), ids("[[0, 2], [3, 1]]"), S(2, 2), text("sum"), count(2));
    sample(S(4, 3), ids("[[0, 2], [3, 1]]"), text("mean"), count(-1));
    sample(S(4, 3), ids("[[0, 2], [3, 1]]"), text("max"), count(3));
    sample(S(4, 34), ids("[[0, 2, 1], [3, 1, 1]]"), text("sum"), count(-1));
    sample(S(4, 34), ids("[[0, 2, 1], [1, 1, 1], [1, 3, 0]]"), text("mean"), count(1));
    edge(in("[[1, 2], [3, 4], [5, 7]]"), ids("[0, 1, 2, 0]"), ids("[0, 3, 3]"), text("mean"), count(1),
         gives("[[3, 4.5], [0, 0], [1, 2]]"), grads("[[1.5, 1.5], [0, 0], [0.5, 0.5]]"));
    edge(in("[[1, 2], [3, 4], [5, 7]]"), ids("[0, 1, 2, 0]"), ids("[0, 3, 4]"), text("max"), count(-1),
         gives("[[5, 7], [1, 2], [0, 0]]"), grads("[[1, 1], [0, 0], [1, 1]]"));
    edge(in("[[1, 2], [3, 4], [5, 7]]"), ids("[0, 1, 2, 0]"), ids("[0, 3, 4]"), text("sum"), count(-1), flag(1),
         gives("[[9, 13], [1, 2]]"), grads("[[2, 2], [1, 1], [1, 1]]"));
    refuse(tg_embedding_bag(ones(2, 3), i64("[[1]]"), NULL, "min", NULL, false, -1), "mode has to be one of");
    refuse(tg_embedding_bag(ones(2, 3), i64("[1]"), NULL, "sum", NULL, false, -1), "offsets is NULL");
    refuse(tg_embedding_bag(ones(2, 3), i64("[[[1]]]"), NULL, "sum", NULL, false, -1), "input has to be 2D");
    refuse(tg_embedding_bag(ones(2, 3), i64("[[5]]"), NULL, "sum", NULL, false, -1), "out of range");
    refuse(tg_embedding_bag(ones(2, 30), i64("[[-1]]"), NULL, "mean", NULL, false, -1), "out of range");
}
SAMPLES(pad_mode)
{
    sample(S(2, 4), dims(2, 1), text("reflect"));
    sample(S(2, 3, 4), dims(1, 2, 2, 1), text("replicate"));
    sample(S(1, 3), dims(3, 2), text("circular"));
    sample(S(2, 5), dims(-1, 2), text("replicate"));
    sample(S(2, 3), text("reflect"));
    edge(in("[[1, 2, 3]]"), dims(2, 1), text("reflect"), gives("[[3, 2, 1, 2, 3, 2]]"), grads("[[1, 3, 2]]"));
    edge(in("[[1, 2, 3]]"), dims(2, 1), text("replicate"), gives("[[1, 1, 1, 2, 3, 3]]"), grads("[[3, 1, 2]]"));
    edge(in("[[1, 2, 3]]"), dims(2, 1), text("circular"), gives("[[2, 3, 1, 2, 3, 1]]"), grads("[[2, 2, 2]]"));
    refuse(tg_pad_mode(ones(3), TG_SHAPE(3, 0), "reflect"), "Padding size should be less");
    refuse(tg_pad_mode(ones(3), TG_SHAPE(1, INT64_MAX), "replicate"), "Padding size should be less");
    refuse(tg_pad_mode(ones(3), TG_SHAPE(1), "reflect"), "divisible by 2");
    refuse(tg_pad_mode(ones(3), TG_SHAPE(1, 1), "mirror"), "Unrecognised padding mode mirror");
}
SAMPLES(im2col)
{
    sample(S(1, 2, 4, 5), dims(1), dims2(0), count(1));
    sample(S(2, 4, 5), dims(2, 1), dims2(1, 0), count(2));
    sample(S(0, 2, 3, 3), dims(1), dims2(0), count(1));
    edge(in("[[[[1, 2], [3, 4]]]]"), dims(1), dims2(1), count(1),
         gives("[[[0, 0, 0, 0, 1, 2, 0, 3, 4], [0, 0, 0, 1, 2, 0, 3, 4, 0], [0, 1, 2, 0, 3, 4, 0, 0, 0], [1, 2, 0, "
               "3, 4, 0, 0, 0, 0]]]"), grads("[[[[4, 4], [4, 4]]]]"));
    refuse(tg_im2col(ones(1, 1, 2, 2), TG_SHAPE(3), TG_SHAPE(1), TG_SHAPE(0), TG_SHAPE(1)), "with room for a window");
    refuse(tg_im2col(ones(1, 1, 2, 2), TG_SHAPE(0), TG_SHAPE(1), TG_SHAPE(0), TG_SHAPE(1)), "kernel should be");
}
SAMPLES(col2im)
{
    sample(S(1, 8, 6), dims(1), dims2(0), count(1));
    sample(S(4, 20), dims(1), dims2(1), count(1));
    sample(S(1, 4, 2), dims(1), dims2(0), count(2));
    edge(in("[[[1, 2, 3, 4, 5, 6], [1, 0, 1, 0, 1, 0], [2, 2, 2, 2, 2, 2], [3, 4, 5, 6, 7, 8]]]"),
         dims(1), dims2(0), count(1), gives("[[[[1, 3, 3, 1], [6, 10, 13, 5], [2, 8, 9, 8]]]]"),
         grads("[[[1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1], [1, 1, 1, 1, 1, 1]]]"));
    refuse(tg_col2im(ones(1, 3, 6), TG_SHAPE(3, 4), TG_SHAPE(2), TG_SHAPE(1), TG_SHAPE(0), TG_SHAPE(1)), "to be divisible by");
}
SAMPLES(interpolate_ex)
{
    sample(S(1, 2, 5), dims(3), text("nearest"));
    sample(S(1, 2, 5), num(1.7), text("linear"));
    sample(S(1, 2, 3, 4), dims(5, 2), text("bicubic"), flag(1));
    sample(S(1, 1, 2, 3, 2), dims(3), text("trilinear"));
    sample(S(1, 1, 5, 4), dims(2, 3), text("area"));
    edge(in("[[[1, 2, 4]]]"), dims(5), text("linear"), flag(1), gives("[[[1, 1.5, 2, 3, 4]]]"),
         grads("[[[1.5, 2, 1.5]]]"));
    edge(in("[[[1, 2, 4]]]"), num(1.7), text("nearest-exact"), gives("[[[1, 1, 2, 4, 4]]]"), grads("[[[2, 1, 2]]]"));
    edge(in("[[[[1, 2], [4, 8]]]]"), dims(3), text("bicubic"),
         gives("[[[[0.675383391204, 1.109375, 1.5433666088], [2.28298611111, 3.75, 5.21701388889], [3.89058883102, "
               "6.390625, 8.89066116898]]]]"), grads("[[[[2.25, 2.25], [2.25, 2.25]]]]"));
    edge(in("[[[1, 2, 4]]]"), dims(2), text("area"), gives("[[[1.5, 3]]]"), grads("[[[0.5, 1, 0.5]]]"));
    refuse(tg_interpolate_ex(ones(1, 1, 4), TG_SHAPE(2), 0, "cubic", false), "(got cubic)");
    refuse(tg_interpolate_ex(ones(1, 1, 4), TG_SCALAR, 0.1, "nearest", false), "sizes should be greater than 0");
    refuse(tg_interpolate_ex(i64("[[[1]]]"), TG_SHAPE(2), 0, "nearest", false), "Got: i64");
}
/* ---- Fourier transforms: x complex in pairs, count n, text norm; in several dims dims s, dims2 dims ---- */

SAMPLES(fft) { sample(S(12, 2), count(-1), dim2(0)); }
SAMPLES(fft_fft)
{
    sample(S(2, 12, 2), count(-1), dim2(-1));
    sample(S(9, 3, 2), count(-1), dim2(0), text("ortho"));
    sample(S(2, 7, 2), count(10), dim2(-1), text("forward"));
    sample(S(2, 7, 2), count(4), dim2(-1));
    sample(S(1, 2), count(-1), dim2(0));
    sample(S(0, 4, 2), count(-1), dim2(1));
    edge(in("[[1, 2], [0, -1], [3, 0.5]]"), count(-1), dim2(0), gives("[[4, 1.5], [-1.79903810568, 4.84807621135], [0.799038105677, -0.348076211353]]"), grads("[[3, 3], [0, 0], [0, 0]]"));
    expect(tg_fft_fft(i64("[[1, 0], [2, 0]]"), -1, 0, NULL), "[[3, 0], [-1, 0]]");
    refuse(tg_fft_fft(ones(2, 3), -1, 0, NULL), "x must be complex, pairs [.., 2], but it is [2, 3]");
    refuse(tg_fft_fft(ones(4, 2), 0, 0, NULL), "Invalid number of data points (0) specified");
    refuse(tg_fft_fft(ones(4, 2), -1, 1, NULL), "Dimension out of range");
    refuse(tg_fft_fft(ones(4, 2), -1, 0, "no"), "Invalid normalization mode: \"no\"");
    refuse(tg_fft_irfft(ones(1, 2), -1, 0, NULL), "Invalid number of data points (0) specified");
    refuse(tg_fft_rfft(ones(1, 1, 1, 1, 1, 1, 1, 1), -1, 0, NULL), "would have more than 8 dims");
    refuse(tg_fft_fftn(ones(4, 2), TG_DIMS(2, 2), TG_SCALAR, NULL), "input tensor only has 1 dimensions");
    refuse(tg_fft_fftn(ones(4, 4, 2), TG_DIMS(2, 2), TG_DIMS(0), NULL), "must have the same length");
    refuse(tg_fft_fftn(ones(4, 4, 2), TG_SCALAR, TG_DIMS(0, -2), NULL), "FFT dims must be unique");
    refuse(tg_fft_fftn(ones(2), TG_SCALAR, TG_SCALAR, NULL), "but tensor has no dimensions");
}
SAMPLES(fft_ifft)
{
    sample(S(2, 12, 2), count(-1), dim2(-1));
    sample(S(9, 3, 2), count(-1), dim2(0), text("ortho"));
    sample(S(2, 7, 2), count(10), dim2(-1), text("forward"));
    sample(S(2, 7, 2), count(4), dim2(-1));
    sample(S(1, 2), count(-1), dim2(0));
    sample(S(0, 4, 2), count(-1), dim2(1));
    edge(in("[[1, 2], [0, -1], [3, 0.5]]"), count(-1), dim2(0), text("ortho"),
         gives("[[2.30940107676, 0.866025403784], [0.461324865405, -0.200961894323], [-1.03867513459, 2.79903810568]]"),
         grads("[[1.73205080757, 1.73205080757], [0, 0], [0, 0]]"));
}
SAMPLES(fft_rfft)
{
    sample(S(2, 12), count(-1), dim(-1));
    sample(S(9, 3), count(-1), dim(0), text("ortho"));
    sample(S(2, 7), count(10), dim(-1), text("forward"));
    sample(S(2, 7), count(4), dim(-1));
    sample(S(1), count(-1), dim(0));
    sample(S(0, 4), count(-1), dim(1));
    edge(in("[1, 2, -1, 4, 0.5]"), count(-1), dim(0),
         gives("[[6.5, 0], [-0.654508497187, 1.51234148702], [-0.0954915028125, -5.63696045991]]"),
         grads("[3, -1.03884176859, 0.863271264003, 0.136728735997, 2.03884176859]"));
}
SAMPLES(fft_irfft)
{
    sample(S(2, 5, 2), count(-1), dim2(-1));
    sample(S(5, 3, 2), count(9), dim2(0), text("ortho"));
    sample(S(2, 5, 2), count(6), dim2(-1), text("forward"));
    sample(S(2, 3, 2), count(12), dim2(-1));
    sample(S(1, 2), count(1), dim2(0));
    sample(S(0, 4, 2), count(-1), dim2(1));
    edge(in("[[1, 2], [0, -1], [3, 0.5]]"), count(-1), dim2(0), gives("[1, 0, 1, -1]"), grads("[[1, 0], [0, 0], [0, 0]]"));
    edge(in("[[1, 2], [0, -1], [3, 0.5]]"), count(5), dim2(0), text("forward"), gives("[7, -2.53977418595, 4.98072898713, 0.72747494537, -5.16842974655]"),
         grads("[[5, 0], [0, 0], [0, 0]]"));
}
SAMPLES(fft_hfft)
{
    sample(S(2, 5, 2), count(-1), dim2(-1));
    sample(S(5, 3, 2), count(9), dim2(0), text("ortho"));
    sample(S(2, 5, 2), count(6), dim2(-1), text("forward"));
    sample(S(2, 3, 2), count(12), dim2(-1));
    sample(S(1, 2), count(1), dim2(0));
    sample(S(0, 4, 2), count(-1), dim2(1));
    edge(in("[[1, 2], [0, -1], [3, 0.5]]"), count(-1), dim2(0), gives("[4, -4, 4, 0]"), grads("[[4, 0], [0, 0], [0, 0]]"));
}
SAMPLES(fft_ihfft)
{
    sample(S(2, 12), count(-1), dim(-1));
    sample(S(9, 3), count(-1), dim(0), text("ortho"));
    sample(S(2, 7), count(10), dim(-1), text("forward"));
    sample(S(2, 7), count(4), dim(-1));
    sample(S(1), count(-1), dim(0));
    sample(S(0, 4), count(-1), dim(1));
    edge(in("[1, 2, -1, 4, 0.5]"), count(-1), dim(0),
         gives("[[1.3, 0], [-0.130901699437, -0.302468297404], [-0.0190983005625, 1.12739209198]]"),
         grads("[0.6, 0.407768353718, 0.0273457471995, 0.172654252801, -0.207768353718]"));
}
SAMPLES(fft_fft2)
{
    sample(S(2, 4, 3, 2));
    sample(S(4, 3, 2), dims(3, 4), dims2(1, 0), text("ortho"));
    sample(S(3, 2, 2), dims(2, -1));
}
SAMPLES(fft_ifft2)
{
    sample(S(2, 4, 3, 2));
    sample(S(4, 3, 2), dims(3, 4), dims2(1, 0), text("ortho"));
    sample(S(3, 2, 2), dims(2, -1));
}
SAMPLES(fft_rfft2)
{
    sample(S(2, 4, 3));
    sample(S(4, 3), dims(3, 4), dims2(1, 0), text("ortho"));
    sample(S(3, 2), dims(2, -1));
    edge(in("[[1, 2, 3], [0, -1, 4]]"), gives("[[[9, 0], [-3, 5.19615242271]], [[3, 0], [0, -3.46410161514]]]"),
         grads("[[4, -0.732050807569, 2.73205080757], [0, 0, 0]]"));
}
SAMPLES(fft_irfft2)
{
    sample(S(2, 4, 3, 2));
    sample(S(3, 3, 2), dims(4, 5), dims2(1, 0), text("ortho"));
    sample(S(3, 2, 2), dims(2, -1));
}
SAMPLES(fft_hfft2)
{
    sample(S(2, 4, 3, 2));
    sample(S(3, 3, 2), dims(4, 5), dims2(1, 0), text("ortho"));
    sample(S(3, 2, 2), dims(2, -1));
    edge(in("[[[1, 2], [0, -1]], [[3, 0.5], [1, 1]]]"), gives("[[5, 3], [-3, -1]]"), grads("[[[4, 0], [0, 0]], [[0, 0], [0, 0]]]"));
}
SAMPLES(fft_ihfft2)
{
    sample(S(2, 4, 3));
    sample(S(4, 3), dims(3, 4), dims2(1, 0), text("ortho"));
    sample(S(3, 2), dims(2, -1));
}
SAMPLES(fft_fftn)
{
    sample(S(2, 3, 2, 2));
    sample(S(2, 3, 4, 2), dims(2, 3));
    sample(S(4, 2, 3, 2), dims2(0, -1), text("forward"));
    edge(in("[[[1, 2], [0, -1]], [[3, 0.5], [1, 1]]]"), gives("[[[5, 2.5], [3, 2.5]], [[-3, -0.5], [-1, 3.5]]]"), grads("[[[4, 4], [0, 0]], [[0, 0], [0, 0]]]"));
}
SAMPLES(fft_ifftn)
{
    sample(S(2, 3, 2, 2));
    sample(S(2, 3, 4, 2), dims(2, 3));
    sample(S(4, 2, 3, 2), dims2(0, -1), text("forward"));
}
SAMPLES(fft_rfftn)
{
    sample(S(2, 3, 2));
    sample(S(2, 3, 4), dims(2, 3));
    sample(S(4, 2, 3), dims2(0, -1), text("forward"));
}
SAMPLES(fft_irfftn)
{
    sample(S(2, 3, 2, 2));
    sample(S(2, 3, 3, 2), dims(2, 5));
    sample(S(4, 2, 3, 2), dims2(0, -1), text("forward"));
    edge(in("[[[1, 2], [0, -1]], [[3, 0.5], [1, 1]]]"), gives("[[1.25, 0.75], [-0.75, -0.25]]"), grads("[[[1, 0], [0, 0]], [[0, 0], [0, 0]]]"));
}
SAMPLES(fft_hfftn)
{
    sample(S(2, 3, 2, 2));
    sample(S(2, 3, 3, 2), dims(2, 5));
    sample(S(4, 2, 3, 2), dims2(0, -1), text("forward"));
}
SAMPLES(fft_ihfftn)
{
    sample(S(2, 3, 2));
    sample(S(2, 3, 4), dims(2, 3));
    sample(S(4, 2, 3), dims2(0, -1), text("forward"));
    edge(in("[[1, 2, 3], [0, -1, 4]]"), gives("[[[1.5, 0], [-0.5, -0.866025403784]], [[0.5, 0], [0, 0.57735026919]]]"),
         grads("[[0.666666666667, 0.455341801261, -0.122008467928], [0, 0, 0]]"));
}
SAMPLES(fft_fftshift)
{
    sample(S(3, 4));
    sample(S(2, 5, 2), dims(1));
    sample(S0);
    edge(in("[1, 2, -1, 4, 0.5]"), gives("[4, 0.5, 1, 2, -1]"), grads("[1, 1, 1, 1, 1]"));
    refuse(tg_fft_fftshift(ones(2, 3), TG_DIMS(2)), "Dimension out of range");
}
SAMPLES(fft_ifftshift)
{
    sample(S(3, 4));
    sample(S(2, 5, 2), dims(1));
    edge(in("[1, 2, -1, 4, 0.5]"), gives("[-1, 4, 0.5, 1, 2]"), grads("[1, 1, 1, 1, 1]"));
}
SAMPLES(stft)
{
    sample(S(2, 13), constant("[0.25, 1, 0.5, 0.125]"), count(4), count2(2), flag(1), text("reflect"));
    sample(S(9), constant("[1, 0.5]"), count(5), count2(0), flag(0), dim2(1));
    sample(S(9), count(4), count2(3), flag(1), text("constant"));
    edge(in("[1, 2, 3, 4, 5, 6]"), constant("[0, 0.5, 1, 0.5]"), count(4), count2(2), flag(1), text("reflect"),
         gives("[[[3, 0], [6, 0], [10, 0], [10, 0]], [[-1, 0], [-3, 1], [-5, 1], [-5, -1]], "
               "[[-1, 0], [0, 0], [0, 0], [0, 0]]]"), grads("[1, -0.5, 1, 0.5, 2, 0]"));
    edge(in("[1, 2, 3, 4, 5, 6]"), count(4), count2(3), dim2(1), gives("[[[5, 0]], [[-1, 1]], [[-1, 0]], [[-1, -1]]]"),
         grads("[2, 0, 0, 0, 0, 0]"));
    refuse(tg_stft(ones(1, 1, 8), 4, 1, NULL, false, NULL, false, true), "expected a 1D or 2D tensor");
    refuse(tg_stft(ones(3), 4, 1, NULL, false, NULL, false, true), "expected 0 < n_fft");
    refuse(tg_stft(ones(9), 0, 1, NULL, false, NULL, false, true), "n_fft > 0");
    refuse(tg_stft(ones(9), 4, 1, ones(5), false, NULL, false, true), "1D window tensor");
}
SAMPLES(istft)
{
    sample(S(2, 3, 4, 2), constant("[0.25, 1, 0.5, 0.125]"), count(4), count2(2), flag(1), num(-1));
    sample(S(5, 3, 2), constant("[1, 0.5]"), count(5), count2(1), flag(1), dim2(1), num(2));
    sample(S(3, 2, 2), count(4), count2(3), flag(0), num(9));
    edge(in("[[[3, 0], [6, 0], [10, 0], [10, 0]], [[-1, 0], [-3, 1], [-5, 1], [-5, -1]], "
            "[[-1, 0], [0, 0], [0, 0], [0, 0]]]"), constant("[0, 0.5, 1, 0.5]"), count(4), count2(2), flag(1), num(6),
         gives("[1, 2, 3, 4, 5, 6]"),
         grads("[[[0.5, 0], [0.75, 0], [0.75, 0], [0.25, 0]], [[-0.5, 0.5], [-0.5, 0], [-0.5, 0], [0, -0.5]], "
               "[[0, 0], [-0.25, 0], [-0.25, 0], [-0.25, 0]]]"));
    refuse(tg_istft(ones(3, 2, 2), 4, 2, f64("[0, 1, 1, 1]"), false, false, true, -1), "window overlap add min");
    refuse(tg_istft(ones(4, 2, 2), 4, 2, NULL, false, false, true, -1), "expected pairs [.., 3, windows, 2]");
}
SAMPLES(complex)
{
    sample(S(2, 3), S(2, 3));
    sample(S(4));
    sample(S0, S0);
    edge(in("[1, 2]"), in("[3, 4]"), gives("[[1, 3], [2, 4]]"), grads("[1, 1]"), grads("[1, 1]"));
    refuse(tg_complex(ones(2), ones(3)), "re and im must have one shape");
}
SAMPLES(polar)
{
    sample(S(2, 3), S(2, 3));
    edge(in("[2, 1]"), in("[0, 1]"), gives("[[2, 0], [0.540302305868, 0.841470984808]]"),
         grads("[1, 1.38177329068]"), grads("[2, -0.30116867894]"));
}
SAMPLES(real)
{
    sample(S(3, 2));
    edge(in("[[1, 2], [3, 4]]"), gives("[1, 3]"), grads("[[1, 0], [1, 0]]"));
    refuse(tg_real(ones(2, 3)), "z must be complex, pairs [.., 2], but it is [2, 3]");
}
SAMPLES(imag)
{
    sample(S(3, 2));
    edge(in("[[1, 2], [3, 4]]"), gives("[2, 4]"), grads("[[0, 1], [0, 1]]"));
    refuse(tg_imag(ones(3)), "z must be complex");
}
SAMPLES(complex_mul)
{
    sample(S(3, 1, 2), S(4, 2));
    sample(S(0, 2), S(2));
    sample(S(5, 3, 2), S(3, 2));       /* short rows */
    sample(S(2, 35, 2), S(35, 2));     /* rows of whole vectors and a rest */
    sample(S(150, 2), S(2));           /* one number for all, and more than a tile */
    edge(in("[1, 2]"), in("[3, -4]"), gives("[11, 2]"), grads("[-1, 7]"), grads("[3, -1]"));
    expect(tg_complex_mul(i64("[[1, 2], [0, 1]]"), i64("[3, -4]")), "[[11, 2], [4, 3]]");
    expect(tg_complex_mul(f64("[1, 2]"), tg_to_dtype(f64("[3, -4]"), TG_F32)), "[11, 2]");
    refuse(tg_complex_mul(ones(2, 3), ones(2, 2)), "a must be complex");
    refuse(tg_complex_mul(ones(2, 2), ones(3)), "b must be complex");
    refuse(tg_complex_mul(ones(2, 2), ones(3, 2)), "must match the size of tensor b (3) at non-singleton dimension 0");
}
SAMPLES(complex_conj)
{
    sample(S(3, 2));
    edge(in("[1, 2]"), gives("[1, -2]"), grads("[1, -1]"));
    refuse(tg_complex_conj(ones(2, 3)), "z must be complex");
}
SAMPLES(complex_abs)
{
    sample(S(3, 2));
    edge(in("[[1, 2], [0, -1], [0, 0]]"), gives("[2.2360679775, 1, 0]"), grads("[[0.4472135955, 0.894427191], [0, -1], [0, 0]]"));
}
SAMPLES(complex_angle)
{
    sample(S(3, 2));
    edge(in("[[1, 2], [0, -1], [3, 0.5]]"), gives("[1.10714871779, -1.57079632679, 0.165148677415]"),
         grads("[[-0.4, 0.2], [1, 0], [-0.0540540540541, 0.324324324324]]"));
}

/* ---- the table ---- */

/* ---- linear algebra ---- */

SAMPLES(linalg_inv)
{
    sample(S(3, 3));
    sample(S(2, 2, 2));
    sample(S(1, 1));
    sample(S(2, 0, 0));
    sample(S(0, 3, 3));
    sample(S(19, 19));
    expect(tg_linalg_inv(f64("[[4, 7], [2, 6]]")), "[[0.6, -0.7], [-0.2, 0.4]]");
    expect(tg_linalg_inv(f64("[[0, 2], [4, 0]]")), "[[0, 0.25], [0.5, 0]]"); /* rows exchanged */
    refuse(tg_linalg_inv(f64("[[1, 2], [2, 4]]")),
           "The diagonal element 2 is zero, the inversion could not be completed because the input matrix is "
           "singular.");
    refuse(tg_linalg_inv(f64("[[[1, 0], [0, 1]], [[0, 0], [0, 0]]]")),
           "(Batch element 1): The diagonal element 1 is zero");
    refuse(tg_linalg_inv(ones(2, 3)), "A must be batches of square matrices, but they are 2 by 3 matrices");
    refuse(tg_linalg_inv(ones(3)), "The input tensor A must have at least 2 dimensions.");
    refuse(tg_linalg_inv(i64("[[1]]")), "Expected a floating point or complex tensor as input. Got i64");
    refuse(tg_linalg_inv(tg_to_dtype(ones(2, 2), TG_F16)), "Low precision dtypes not supported. Got f16");
}
SAMPLES(linalg_solve)
{
    sample(S(3, 3), S(3, 2));
    sample(S(3, 3), S(3));
    sample(S(2, 3, 3), S(2, 3));
    sample(S(3, 3), S(2, 1, 3, 2));
    sample(S(2, 1, 3, 3), S(4, 3, 1));
    sample(S(3, 3), S(2, 3), flag(true));
    sample(S(0, 0), S(0, 2));
    sample(S(2, 2), S(2, 0));
    expect(tg_linalg_solve(f64("[[2, 0], [1, 4]]"), f64("[2, 9]"), true), "[1, 2]");
    refuse(tg_linalg_solve(f64("[[1, 2], [2, 4]]"), ones(2), true),
           "The solver failed because the input matrix is singular.");
    refuse(tg_linalg_solve(ones(2, 2), ones(3, 2), true),
           "Incompatible shapes of A and B for the equation AX = B (2x2 and 3x2)");
    refuse(tg_linalg_solve(ones(2, 2), ones(2, 3), false), "Incompatible shapes of A and B for the equation XA = B");
    refuse(tg_linalg_solve(ones(2, 3), ones(2), true), "A must be batches of square matrices");
    refuse(tg_linalg_solve(ones(2, 2), tg_ones_on(TG_SHAPE(2, 2), TG_F32, HERE), true),
           "Expected A and B to have the same dtype, but found A of type f64 and B of type f32");
    refuse(tg_linalg_solve(ones(2, 2, 2), ones(3, 2, 2), true), "must match the size of tensor b");
}
SAMPLES(linalg_solve_triangular)
{
    int way;
    for (way = 0; way < 8; ++way) sample(S(3, 3), S(3, 3), flag(way));
    sample(S(2, 3, 3), S(3, 2));
    sample(S(3, 3), S(2, 3, 1), flag(1));
    sample(S(0, 0), S(0, 2));
    expect(tg_linalg_solve_triangular(f64("[[2, 9], [1, 4]]"), f64("[[2], [9]]"), false, true, false), "[[1], [2]]");
    expect(tg_linalg_solve_triangular(f64("[[2, 9], [1, 4]]"), f64("[[2], [9]]"), false, true, true), "[[2], [7]]");
    expect(tg_linalg_solve_triangular(f64("[[0]]"), f64("[[1]]"), true, true, false), "[[inf]]");
    refuse(tg_linalg_solve_triangular(ones(2, 3), ones(2, 2), true, true, false),
           "A must be batches of square matrices");
    refuse(tg_linalg_solve_triangular(ones(2, 2), ones(3, 2), true, true, false), "Incompatible shapes of A and B");
    refuse(tg_linalg_solve_triangular(ones(2, 2), ones(2), true, true, false), "B must have at least 2 dimensions");
}
SAMPLES(triangular_solve)
{
    int way;
    for (way = 0; way < 8; ++way) sample(S(3, 3), S(3, 2), flag(way));
    expect(tg_triangular_solve(f64("[[2], [9]]"), f64("[[2, 1], [9, 4]]"), true, true, false), "[[1], [2]]");
    refuse(tg_triangular_solve(ones(3, 2), ones(2, 2), true, false, false), "Incompatible shapes of A and B");
    refuse(tg_triangular_solve(ones(3, 2), ones(2), true, false, false), "A must have at least 2 dimensions");
}
SAMPLES(linalg_det)
{
    sample(S(3, 3));
    sample(S(2, 2, 2));
    sample(S(1, 1));
    sample(S(0, 0));
    sample(S(0, 2, 2));
    sample(S(2, 2), flag(true));
    edge(in("[[1, 2], [2, 4]]"), flag(true), gives("0"), grads("[[4, -2], [-2, 1]]")); /* singular */
    edge(in("[[[0, 1], [1, 0]], [[0, 0], [0, 5]]]"), flag(true), gives("[-1, 0]"),
         grads("[[[0, -1], [-1, 0]], [[5, 0], [0, 0]]]"));
    edge(in("[[0, 0, 0], [0, 0, 0], [0, 0, 0]]"), flag(true), gives("0"), grads("[[0, 0, 0], [0, 0, 0], [0, 0, 0]]"));
    refuse(tg_linalg_det(ones(2, 3)), "A must be batches of square matrices");
}
SAMPLES(linalg_slogdet)
{
    tg_tensor *size = NULL;
    sample(S(3, 3));
    sample(S(2, 2, 2));
    sample(S(0, 0));
    expect(tg_linalg_slogdet(f64("[[[0, 1], [1, 0]], [[2, 0], [0, 1]], [[1, 1], [1, 1]]]"), &size), "[-1, 1, 0]");
    expect(size, "[0, 0.69314718055995, -inf]");
    refuse(tg_linalg_slogdet(ones(2, 3), NULL), "A must be batches of square matrices");
}
SAMPLES(linalg_lu_factor)
{
    tg_tensor *pivots = NULL;
    sample(S(3, 3));
    sample(S(2, 2, 4));
    sample(S(4, 2));
    sample(S(0, 0));
    sample(S(3, 0));
    expect(tg_linalg_lu_factor(f64("[[1, 2], [4, 2]]"), &pivots), "[[4, 2], [0.25, 1.5]]");
    expect(tg_to_dtype(pivots, TG_I64), "[2, 2]");
    refuse(tg_linalg_lu_factor(ones(3), NULL), "The input tensor A must have at least 2 dimensions.");
}
SAMPLES(linalg_lu_solve)
{
    int way;
    for (way = 0; way < 4; ++way) sample(S(3, 3), S(3, 3), flag(way));
    sample(S(2, 3, 3), S(2, 3, 1), flag(2));
    expect(lu_solve_call(f64("[[0, 2], [4, 0]]"), f64("[[2], [4]]"), 0), "[[1], [1]]");
    expect(lu_solve_call(f64("[[0, 2, 0], [0, 0, 4], [8, 0, 0]]"), f64("[[16], [2], [4]]"), 2), "[[1], [1], [2]]");
    refuse(tg_linalg_lu_solve(ones(2, 2), ones(2), ones(2, 2), true, false),
           "pivots should be a Tensor of scalar type i32");
    refuse(lu_solve_call(ones(2, 2), ones(3, 2), 0), "Incompatible shapes of A and B");
}
SAMPLES(linalg_cholesky)
{
    sample(S(3, 3));
    sample(S(2, 2, 2), flag(true));
    sample(S(0, 0));
    sample(S(18, 18));
    expect(tg_linalg_cholesky(f64("[[4, 99], [2, 10]]"), false), "[[2, 0], [1, 3]]");
    expect(tg_linalg_cholesky(f64("[[4, 2], [99, 10]]"), true), "[[2, 1], [0, 3]]");
    refuse(tg_linalg_cholesky(f64("[[1, 2], [2, 1]]"), false),
           "The factorization could not be completed because the input is not positive-definite (the leading minor of "
           "order 2 is not positive-definite).");
    refuse(tg_linalg_cholesky(f64("[[[1]], [[-1]]]"), true),
           "(Batch element 1): The factorization could not be completed");
    refuse(tg_linalg_cholesky(f64("[[nan]]"), true), "the leading minor of order 1");
    refuse(tg_linalg_cholesky(ones(2), true), "The input tensor A must have at least 2 dimensions.");
    refuse(tg_linalg_cholesky(ones(2, 3), false), "A must be batches of square matrices");
}
SAMPLES(cholesky_solve)
{
    sample(S(3, 3), S(3, 2));
    sample(S(2, 3, 3), S(3, 1), flag(true));
    sample(S(0, 0), S(0, 2));
    expect(tg_cholesky_solve(f64("[[4], [8]]"), f64("[[2, 0], [0, 1]]"), false), "[[1], [8]]");
    refuse(tg_cholesky_solve(ones(3, 2), ones(2, 2), false), "Incompatible shapes of A and B");
    refuse(tg_cholesky_solve(ones(3, 2), ones(2), false), "The input tensor L must have at least 2 dimensions.");
}
SAMPLES(cholesky_inverse)
{
    sample(S(3, 3));
    sample(S(2, 2, 2), flag(true));
    expect(tg_cholesky_inverse(f64("[[2, 0], [0, 1]]"), false), "[[0.25, 0], [0, 1]]");
    refuse(tg_cholesky_inverse(ones(2, 3), false), "L must be batches of square matrices");
}
SAMPLES(linalg_qr)
{
    tg_tensor *r = NULL;
    sample(S(3, 3));
    sample(S(4, 2), text("reduced"));
    sample(S(2, 2, 4));
    sample(S(2, 3), text("complete"));
    sample(S(3, 2), text("r"));
    sample(S(3, 0));
    expect(tg_linalg_qr(f64("[[3, 0], [4, 5]]"), NULL, &r), "[[-0.6, -0.8], [-0.8, 0.6]]"); /* LAPACK's signs */
    expect(r, "[[-5, -4], [0, 3]]");
    expect(tg_linalg_qr(ones(3, 0), "complete", &r), "[[1, 0, 0], [0, 1, 0], [0, 0, 1]]");
    expect(tg_linalg_qr(f64("[[-3], [0]]"), NULL, &r), "[[1], [0]]");
    expect(r, "[[-3]]");
    refuse(tg_linalg_qr(ones(2, 2), "full", NULL), "qr received unrecognized mode 'full'");
    refuse(tg_linalg_qr(ones(2), NULL, NULL), "The input tensor A must have at least 2 dimensions.");
    refuse(tg_backward(tg_sum(tg_linalg_qr(tg_set_requires_grad(ones(3, 2), true), "complete", NULL))) == TG_OK,
           "The QR decomposition is not differentiable when mode='complete' and nrows > ncols.");
}
SAMPLES(linalg_householder_product)
{
    sample(S(3, 3), S(2));
    sample(S(2, 4, 2), S(2, 2));
    expect(tg_linalg_householder_product(f64("[[9], [2]]"), f64("[0.4]")), "[[0.6], [-0.8]]");
    expect(tg_linalg_householder_product(ones(2, 2), tg_zeros_on(TG_SHAPE(0), TG_F64, HERE)), "[[1, 0], [0, 1]]");
    refuse(tg_linalg_householder_product(ones(2, 3), ones(2)),
           "input.shape[-2] must be greater than or equal to input.shape[-1]");
    refuse(tg_linalg_householder_product(ones(3, 2), ones(3)), "tau.shape[-1]");
}
SAMPLES(linalg_eigh)
{
    tg_tensor *v = NULL;
    sample(S(3, 3));
    sample(S(2, 2, 2), text("U"), flag(1));
    sample(S(1, 1));
    sample(S(0, 0));
    sample(S(2, 0, 3, 3));
    expect(tg_linalg_eigh(f64("[[2, 99], [0, -1]]"), "L", &v), "[-1, 2]");
    expect(tg_abs(v), "[[0, 1], [1, 0]]");
    expect(tg_linalg_eigh(f64("[[0, 1], [99, 0]]"), "u", NULL), "[-1, 1]");
    refuse(tg_linalg_eigh(ones(2, 2), "X", NULL), "Expected UPLO argument to be 'L' or 'U', but got X");
    refuse(tg_linalg_eigh(f64("[[1, 0], [nan, 1]]"), "L", &v),
           "The algorithm failed to converge because the input matrix contained non-finite values.");
    refuse(tg_linalg_eigh(f64("[[[1]], [[inf]]]"), "L", NULL), "(Batch element 1): The algorithm failed to converge");
    refuse(tg_linalg_eigh(ones(2, 3), "L", NULL), "A must be batches of square matrices");
}
SAMPLES(linalg_eigvalsh)
{
    sample(S(3, 3));
    sample(S(2, 2, 2), text("U"));
    edge(in("[[1, 0], [0, 1]]"), gives("[2.5, 8.5]"), grads("[[0.5, 0], [0, 0.5]]"));
    expect(tg_linalg_eigvalsh(f64("[[1, 0], [0, 1]]"), NULL), "[1, 1]");
    refuse(tg_linalg_eigvalsh(ones(2, 2), ""), "Expected UPLO argument");
}
SAMPLES(linalg_svd)
{
    tg_tensor *s = NULL, *vh = NULL;
    int way;
    for (way = 0; way < 5; ++way) sample(S(3, 3), flag(way));
    sample(S(4, 2), flag(1));
    sample(S(2, 2, 4), flag(1));
    sample(S(2, 4), flag(4));
    sample(S(4, 2), flag(2));
    sample(S(3, 0));
    sample(S(0, 2, 3));
    expect(tg_abs(tg_linalg_svd(f64("[[0, 3], [0, 0], [4, 0]]"), true, &s, &vh)), "[[0, 1, 0], [0, 0, 1], [1, 0, 0]]");
    expect(s, "[4, 3]");
    expect(tg_abs(vh), "[[1, 0], [0, 1]]");
    CHECK(tg_numel(tg_linalg_svd(tg_zeros_on(TG_SHAPE(0, 2), TG_F64, HERE), true, &s, &vh)) == 0);
    expect(vh, "[[1, 0], [0, 1]]");
    refuse(tg_linalg_svd(f64("[[1, nan]]"), true, NULL, NULL),
           "The algorithm failed to converge because the input matrix contained non-finite values.");
    refuse(tg_linalg_svd(ones(2), true, NULL, NULL), "The input tensor A must have at least 2 dimensions.");
}
SAMPLES(linalg_svdvals)
{
    sample(S(3, 3));
    sample(S(2, 2, 4));
    sample(S(4, 2));
    expect(tg_linalg_svdvals(f64("[[0, 0], [0, 0]]")), "[0, 0]");
    refuse(tg_linalg_svdvals(f64("[[inf]]")), "contained non-finite values");
}
SAMPLES(linalg_pinv)
{
    sample(S(3, 3));
    sample(S(2, 2, 4));
    sample(S(4, 2));
    sample(S(3, 3), flag(true));
    sample(S(0, 2));
    expect(tg_linalg_pinv(f64("[[1, 0], [0, 0]]"), -1, -1, false), "[[1, 0], [0, 0]]");
    expect(tg_linalg_pinv(f64("[[4, 0], [0, 1]]"), -1, 0.5, true), "[[0.25, 0], [0, 0]]");
    expect(tg_linalg_pinv(f64("[[4, 0], [0, 1]]"), 2, -1, false), "[[0.25, 0], [0, 0]]");
    refuse(tg_linalg_pinv(ones(2, 3), -1, -1, true), "A must be batches of square matrices");
}
SAMPLES(linalg_matrix_rank)
{
    sample(S(2, 3), num(-1));
    expect(tg_linalg_matrix_rank(f64("[[[1, 2], [2, 4]], [[0, 0], [0, 0]], [[1, 0], [0, 1]]]"), -1, -1, false),
           "[1, 0, 2]");
    expect(tg_linalg_matrix_rank(f64("[[4, 0], [0, -1]]"), -1, -1, true), "2");
    expect(tg_linalg_matrix_rank(f64("[[4, 0], [0, -1]]"), -1, 0.5, false), "1");
    expect(tg_linalg_matrix_rank(tg_zeros_on(TG_SHAPE(2, 0), TG_F64, HERE), -1, -1, false), "0");
    refuse(tg_linalg_matrix_rank(ones(2, 3), -1, -1, true), "A must be batches of square matrices");
}
SAMPLES(linalg_lstsq)
{
    tg_tensor *residuals = NULL, *rank = NULL;
    sample(S(4, 2), S(4, 3));
    sample(S(2, 4), S(2, 1));
    sample(S(2, 3, 2), S(2, 3));
    sample(S(3, 3), S(3));
    expect(tg_linalg_lstsq(f64("[[1, 0], [1, 1], [1, 2]]"), f64("[[1], [3], [2]]"), -1, &residuals, &rank),
           "[[1.5], [0.5]]");
    expect(residuals, "[1.5]");
    expect(rank, "2");
    expect(tg_linalg_lstsq(f64("[[1, 1], [1, 1]]"), f64("[[2], [4]]"), -1, &residuals, &rank), "[[1.5], [1.5]]");
    expect(residuals, "[]");
    expect(rank, "1");
    refuse(tg_linalg_lstsq(ones(3, 2), ones(2, 2), -1, NULL, NULL), "Incompatible shapes of A and B");
}
SAMPLES(linalg_matrix_norm)
{
    static const char *const known[] = {"fro", "nuc", "inf", "-inf", "1", "-1", "2", "-2"};
    int k;
    for (k = 0; k < 8; ++k) sample(S(3, 3), text(known[k]));
    sample(S(2, 3, 4), text("nuc"), dims(2, 1), flag(true));
    sample(S(2, 3, 4), text("1"), dims(0, 1), flag(true));
    expect(tg_linalg_matrix_norm(f64("[[1, -2], [3, 4]]"), "1", TG_DIMS(0, 1), false), "6");
    expect(tg_linalg_matrix_norm(f64("[[1, -2], [3, 4]]"), "-1", TG_DIMS(0, 1), true), "[[4]]");
    expect(tg_linalg_matrix_norm(f64("[[1, -2], [3, 4]]"), "inf", TG_DIMS(0, 1), false), "7");
    expect(tg_linalg_matrix_norm(f64("[[1, -2], [3, 4]]"), "inf", TG_DIMS(1, 0), false), "6");
    expect(tg_linalg_matrix_norm(f64("[[3, 0], [0, -4]]"), "nuc", TG_DIMS(0, 1), false), "7");
    refuse(tg_linalg_matrix_norm(ones(2, 2), "3", TG_DIMS(0, 1), false), "Order 3 not supported.");
    refuse(tg_linalg_matrix_norm(ones(2, 2), "1", TG_DIMS(0), false), "dim must be a 2-tuple. Got 1 dims");
    refuse(tg_linalg_matrix_norm(ones(2, 2), "1", TG_DIMS(0, 0), false), "tg_linalg_matrix_norm: ");
}
SAMPLES(linalg_cond)
{
    sample(S(3, 3));
    sample(S(2, 4), text("-2"));
    sample(S(2, 3, 3), text("fro"));
    sample(S(3, 3), text("1"));
    expect(tg_linalg_cond(f64("[[4, 0], [0, 2]]"), NULL), "2");
    expect(tg_linalg_cond(f64("[[1, 2], [2, 4]]"), "1"), "inf");
    refuse(tg_linalg_cond(ones(2, 3), "1"), "A must be batches of square matrices");
    refuse(tg_linalg_cond(ones(2, 2), "x"), "Order x not supported.");
}
SAMPLES(linalg_matrix_power)
{
    sample(S(3, 3), count(1));
    sample(S(2, 2, 2), count(5));
    sample(S(2, 2), count(-2));
    edge(in("[[1, 1], [0, 1]]"), count(0), gives("[[1, 0], [0, 1]]"), grads("[[0, 0], [0, 0]]"));
    expect(tg_linalg_matrix_power(f64("[[1, 1], [0, 1]]"), 10), "[[1, 10], [0, 1]]");
    expect(tg_linalg_matrix_power(f64("[[2, 0], [0, 4]]"), -1), "[[0.5, 0], [0, 0.25]]");
    refuse(tg_linalg_matrix_power(f64("[[0]]"), -1), "The diagonal element 1 is zero");
    refuse(tg_linalg_matrix_power(ones(2, 3), 2), "A must be batches of square matrices");
}
SAMPLES(linalg_matrix_exp)
{
    sample(S(3, 3), num(1));
    sample(S(2, 2, 2), num(0.01));
    sample(S(2, 2), num(3));
    sample(S(0, 0), num(1));
    expect(tg_linalg_matrix_exp(f64("[[[0, 1], [0, 0]], [[1, 0], [0, -20]]]")),
           "[[[1, 1], [0, 1]], [[2.7182818284590, 0], [0, 2.0611536224386e-9]]]");
    expect(tg_linalg_matrix_exp(f64("[[0, 31.41592653589793], [-31.41592653589793, 0]]")), /* five turns */
           "[[1, 0], [0, 1]]");
    refuse(tg_linalg_matrix_exp(ones(2, 3)), "A must be batches of square matrices");
}
SAMPLES(linalg_multi_dot)
{
    tg_tensor *list[3];
    sample(S(2, 3), S(3, 4), S(4, 1));
    sample(S(3), S(3, 4), S(4, 2));
    sample(S(3), S(3, 2), S(2));
    sample(S(3), S(3));
    list[0] = ones(2, 3), list[1] = ones(3, 1), list[2] = ones(1);
    expect(tg_linalg_multi_dot(list, 3), "[3, 3]");
    refuse(tg_linalg_multi_dot(list, 1), "expected at least 2 tensors but got 1");
    refuse(tg_linalg_multi_dot(list + 1, 1), "expected at least 2 tensors but got 1");
    refuse(tg_linalg_multi_dot(list, 0), "expected at least 2 tensors but got 0");
    list[1] = ones(3);
    refuse(tg_linalg_multi_dot(list, 3), "tensor 1 must be 2D but got 1D");
}

static const op_row op_rows[] = {
#define TABLE_ROW(name, expression, flags) {#name, call_##name, samples_##name, flags},
#define TABLE_TWIN_ROW(name, expression, flags, in_place) TABLE_ROW(name, expression, flags)
    ALL_ROWS(TABLE_ROW, TABLE_TWIN_ROW)};
enum { OP_ROWS = (int)(sizeof op_rows / sizeof op_rows[0]) };

/* The samples are on HERE, while the default device is the CPU: tensors that an op makes must be where its inputs
 * are. */
static inline void run_samples(void)
{
    int i;
    tg_set_default_device(TG_CPU);
    for (i = 0; i < OP_ROWS; ++i) {
        int checks = harness.passed + harness.failed;
        if (!harness_takes_turn(op_rows[i].name)) continue;
        harness.test = op_rows[i].name;
        at.row = &op_rows[i];
        at.next_seed = 0;
        {
            tg_mark mark = tg_scope_begin();
            op_rows[i].samples();
            CHECK(tg_ok());
            tg_scope_end(mark);
        }
        CHECK(harness.passed + harness.failed > checks + 1);
    }
    tg_set_default_device(HERE);
}

#endif
