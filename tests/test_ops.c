/* Every op of the library, from the table in samples.h: values, gradients and gradients of gradients against
 * differences, memory layouts, aliased operands, incoming gradients of any layout, dtypes, NaN, in-place twins, leaks.
 * The test of completeness at the end fails when an op of the op table, or a public function, has no samples; it reads
 * tensorgrad.h, so run this from the top of the repository.
 *
 *     test_ops [text]               only the rows and tests whose name contains the text
 *     SMALL=1 test_ops              fewer layouts, for sanitizers and simulators
 *     TG_TEST_DEVICE=... test_ops   on a device; as on the CPU, values and gradients must be those of the plain backend
 *     TG_TEST_MEMORY=1 test_ops     instead: every allocation of memory on a device of the simulator fails once
 *     TG_TEST_HASHES=file test_ops  writes a line with a hash of the bits of all results for each sample and test */
#include "tensorgrad.h"
#include "harness.h"
#include "samples.h"
#include "semantics.h"
#include <ctype.h>
#include <limits.h>
#ifdef CUDASIM
#include "cudasim_test.h"
#endif

static bool small;
static FILE *hashes; /* NULL: not used */
static uint64_t hash = HARNESS_HASH;
static bool seen[400];          /* ops whose rule a backward has run */
static int shown[400];          /* flags of an op's row that a sample has shown: a sum of INSIDE_... */
static bool waited[OP_ROWS];    /* rows whose call has waited for the device */

/* ---- layouts ---- */

enum { CONTIGUOUS, TRANSPOSED, SLICED, OFFSET, LAYOUTS };
static const char *const layout_names[] = {"contiguous", "transposed", "sliced", "offset"};

/* Elements that no op may read: NaN, or 1 in tensors of integers. */
static tg_tensor *filler(tg_tensor *x)
{
    return tg_is_floating_point(tg_dtype_of(x)) ? tg_full_like(x, NAN) : tg_ones_like(x);
}

/* x with the same elements and the same gradient, in another layout. */
static tg_tensor *arrange(tg_tensor *x, int layout)
{
    tg_tensor *pair[3];
    if (layout == TRANSPOSED) {
        tg_shape back = tg_shape_of(x);
        int i;
        for (i = 0; i < back.ndim; ++i) back.dim[i] = back.ndim - 1 - i;
        return tg_permute(tg_contiguous(tg_permute(x, back)), back);
    }
    if (layout == SLICED) { /* every other element */
        pair[0] = x, pair[1] = filler(x);
        return tg_select(tg_stack(pair, 2, -1), -1, 0);
    }
    if (layout == OFFSET) {
        pair[0] = pair[2] = filler(tg_ones_on(TG_SHAPE(3), tg_dtype_of(x), HERE)), pair[1] = tg_flatten(x, 0, -1);
        return tg_view(tg_narrow(tg_cat(pair, 3, 0), 0, 3, tg_numel(x)), tg_shape_of(x));
    }
    return x;
}

/* The op on inputs arranged in a layout, or expanded from their first slice along dim 0 (and made contiguous, for
   comparing). */
typedef struct {
    tg_function call;
    numbers *p;
    int layout;
    bool expanded[MAX_INPUTS], contiguous;
    tg_shape shape[MAX_INPUTS];
} arranged;

static tg_tensor *arranged_call(tg_tensor *const *in_, int n, void *user)
{
    const arranged *how = (const arranged *)user;
    tg_tensor *x[MAX_INPUTS];
    int i;
    for (i = 0; i < n; ++i) {
        x[i] = in_[i];
        if (how->expanded[i]) {
            x[i] = tg_expand(x[i], how->shape[i]);
            if (how->contiguous) x[i] = tg_contiguous(x[i]);
        }
        x[i] = arrange(x[i], how->layout);
    }
    return how->call(x, n, how->p);
}

/* Two inputs that are one and the same. */
static tg_tensor *aliased_call(tg_tensor *const *in_, int n, void *user)
{
    const arranged *how = (const arranged *)user;
    tg_tensor *x[MAX_INPUTS];
    int i;
    x[0] = x[1] = in_[0];
    for (i = 2; i <= n; ++i) x[i] = in_[i - 1];
    return how->call(x, n + 1, how->p);
}

/* ---- running and comparing ---- */

enum { MOST = 8192 }; /* elements of a tensor to compare */

typedef struct {
    tg_tensor *y, *grad[MAX_INPUTS];
} outcome;

/* A gradient for y: numbers without a pattern, in y's dtype. */
static tg_tensor *cotangent(tg_tensor *y)
{
    static double value[MOST];
    int64_t i, n = tg_numel(y);
    uint64_t state = 88172645463325252u;
    if (n > MOST) abort();
    for (i = 0; i < n; ++i) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        value[i] = (double)(state >> 40) / (double)(1 << 23) - 1;
    }
    return tg_to_like(tg_from_f64(value, tg_shape_of(y)), y);
}

/* Backward of y from g by steps, noting whose rules ran.  On the CPU each step is printed, too; on a device that would
   wait for the numbers, and hide what else waits. */
static FILE *lines; /* of tg_step_print */
static bool step_back(tg_tensor *y, tg_tensor *g, int flags)
{
    tg_backward_run *run = tg_backward_begin(&y, 1, &g, flags);
    tg_step_info info;
    const char *name, *formula;
    bool has_rule;
    int i;
    if (!run) return false;
    if (!lines) lines = tmpfile();
    while (tg_backward_step(run, &info)) {
        rewind(lines);
        if (HERE.type == TG_DEV_CPU && tg_step_print(lines, run) != TG_OK) return tg_backward_end(run), false;
        for (i = 0; (name = inside_op(i, &has_rule, &formula)) != NULL; ++i) {
            if (strcmp(name, info.op) == 0) seen[i] = true;
        }
    }
    return tg_backward_end(run) == TG_OK;
}

static void hash_outcome(outcome result, int n)
{
    int i;
    if (!hashes) return;
    hash = harness_mix_tensor(hash, result.y);
    for (i = 0; i < n; ++i) hash = harness_mix_tensor(hash, result.grad[i]);
}

static void write_hash(const char *name, int line)
{
    if (hashes) fprintf(hashes, "%s %d %016llx\n", name, line, (unsigned long long)hash);
    hash = HARNESS_HASH;
}

static int64_t waits_for_device(void) { return tg_stats_on(HERE).waits; }

static bool fail(const char *what, const char *detail)
{
    char message[400];
    snprintf(message, sizeof message, "%s: %s", what, detail);
    return harness_check(false, message, __FILE__, at.line);
}

/* Runs call on leaves with the elements of `in_` and goes back from g (made up when NULL). */
static outcome run(tg_function call, tg_tensor *const *in_, int n, void *user, tg_tensor *g)
{
    outcome result;
    tg_tensor *leaves[MAX_INPUTS];
    int64_t waits;
    int i;
    memset(&result, 0, sizeof result);
    for (i = 0; i < n; ++i) {
        leaves[i] = tg_detach(in_[i]);
        if (at.differentiable[i]) tg_set_requires_grad(leaves[i], true);
    }
    tg_seed(1);
    waits = waits_for_device();
    result.y = call(leaves, n, user);
    if (result.y && at.row && call == at.row->call && waits_for_device() > waits) waited[at.row - op_rows] = true;
    if (!result.y || !tg_requires_grad(result.y)) return hash_outcome(result, n), result;
    if (!g) g = cotangent(result.y);
    waits = waits_for_device();
    if (!step_back(result.y, g, 0)) return result;
    if (waits_for_device() > waits) fail("backward", "it waits for the device");
    for (i = 0; i < n; ++i) result.grad[i] = tg_grad(leaves[i]);
    hash_outcome(result, n);
    return result;
}

static int64_t read_elements(tg_tensor *t, double *value)
{
    int64_t n = tg_numel(t);
    if (n > MOST) abort();
    tg_copy_out(tg_to_dtype(tg_detach(t), TG_F64), value, (size_t)n * sizeof value[0]);
    return n;
}

/* One check: the same shape and elements; to the last bit (but for the signs of NaN and 0) if the tolerance is 0, else
   within it relative to the largest. */
static bool agree(const char *what, tg_tensor *a, tg_tensor *b, double tolerance)
{
    static double x[MOST], y[MOST];
    char detail[200];
    double largest = 0;
    int64_t i, n;
    if (!a && !b) return true;
    if (!a || !b) return fail(what, a ? "the other has none" : "there is none");
    if (!same_shape(tg_shape_of(a), tg_shape_of(b))) return fail(what, "different shapes");
    n = read_elements(a, x);
    read_elements(b, y);
    for (i = 0; i < n; ++i) {
        if (fabs(y[i]) > largest && fabs(y[i]) < HUGE_VAL) largest = fabs(y[i]);
    }
    for (i = 0; i < n; ++i) {
        if (x[i] == y[i] || (isnan(x[i]) && isnan(y[i]))) continue;
        if (tolerance > 0 && fabs(x[i] - y[i]) <= tolerance * (1 + largest)) continue;
        snprintf(detail, sizeof detail, "element %d is %.17g, not %.17g", (int)i, x[i], y[i]);
        return fail(what, detail);
    }
    return harness_check(tg_ok(), what, __FILE__, at.line);
}

static void agree_outputs(const char *what, outcome a, outcome b, double tolerance)
{
    char text_[160];
    snprintf(text_, sizeof text_, "%s: output", what);
    agree(text_, a.y, b.y, tolerance);
}

static void agree_gradients(const char *what, outcome a, outcome b, int n, double tolerance)
{
    char text_[160];
    int i;
    for (i = 0; i < n; ++i) {
        snprintf(text_, sizeof text_, "%s: gradient of input %d", what, i);
        agree(text_, a.grad[i], b.grad[i], tolerance);
    }
}

static void agree_all(const char *what, outcome a, outcome b, int n, double tolerance)
{
    agree_outputs(what, a, b, tolerance);
    agree_gradients(what, a, b, n, tolerance);
}

/* ---- the oracle ---- */

/* How far the results of one op in f64, f32, f16 and bf16 may be from others. */
static const tg_dtype float_dtypes[] = {TG_F64, TG_F32, TG_F16, TG_BF16};
static const double float_tolerance[] = {1e-12, 1e-5, 7e-3, 5e-2};

/* The outcome of the row's call by the plain backend. */
static outcome by_plain(tg_tensor *const *in_)
{
    tg_tensor *copy[MAX_INPUTS];
    outcome result;
    int i;
    oracle_begin();
    for (i = 0; i < at.n; ++i) copy[i] = copy_here(in_[i]);
    result = run(at.row->call, copy, at.n, &at.p, NULL);
    oracle_end();
    return result;
}

/* Whether a result is where it should be, and of the dtype that the oracle gives. */
static void check_kind(tg_tensor *t, tg_tensor *wanted)
{
    if (!t || !wanted) return;
    harness_check(tg_dtype_of(t) == tg_dtype_of(wanted), "another dtype than the oracle's", __FILE__, at.line);
    harness_check(tg_device_equal(tg_device_of(t), HERE), "it is somewhere else", __FILE__, at.line);
}

/* ---- the checks that a sample goes through ---- */

static double bits_or_nearly(void) { return at.row->flags & EXACT ? 0 : 1e-12; }

/* The gradient of an input that was broadcast is a sum, in an order that follows the layout of what is summed. */
static double bits_unless_summed(outcome plain)
{
    int i;
    for (i = 0; i < at.n; ++i) {
        if (plain.grad[i] && !same_shape(tg_shape_of(plain.grad[i]), tg_shape_of(plain.y))) return 1e-12;
    }
    return bits_or_nearly();
}

static arranged as_given(void)
{
    arranged how;
    int i;
    memset(&how, 0, sizeof how);
    how.call = at.row->call;
    how.p = &at.p;
    for (i = 0; i < at.n; ++i) how.shape[i] = tg_shape_of(at.in[i]);
    return how;
}

static void check_against_differences(tg_tensor *const *in_, arranged *how, const char *layout)
{
    tg_gradcheck_options options;
    tg_tensor *leaves[MAX_INPUTS];
    tg_mark mark = tg_scope_begin();
    char name[160];
    int i;
    memset(&options, 0, sizeof options);
    options.eps = 1e-5, options.atol = 1e-7, options.rtol = 1e-6;
    options.name = at.row->name;
    for (i = 0; i < at.n; ++i) {
        leaves[i] = tg_contiguous(tg_detach(in_[i]));
        if (at.differentiable[i]) tg_set_requires_grad(leaves[i] = tg_clone(leaves[i]), true);
    }
    snprintf(name, sizeof name, "gradcheck, %s", layout);
    harness_check(tg_gradcheck_ex(arranged_call, leaves, at.n, how, &options), name, __FILE__, at.line);
    snprintf(name, sizeof name, "gradgradcheck, %s", layout);
    options.atol = 1e-6, options.rtol = 1e-5;
    harness_check(tg_gradgradcheck_ex(arranged_call, leaves, at.n, how, &options), name, __FILE__, at.line);
    tg_scope_end(mark);
}

/* The layouts against the contiguous run, and each against differences. */
static void check_layouts(outcome plain, bool differences)
{
    int layout;
    for (layout = CONTIGUOUS; layout < LAYOUTS; ++layout) {
        arranged how = as_given();
        how.layout = layout;
        if (layout != CONTIGUOUS) {
            agree_all(layout_names[layout], run(arranged_call, at.in, at.n, &how, NULL), plain, at.n, bits_or_nearly());
        }
        if (differences && (!small || layout == CONTIGUOUS))
            check_against_differences(at.in, &how, layout_names[layout]);
    }
}

static void check_expanded(bool differences)
{
    arranged how = as_given();
    tg_tensor *slices[MAX_INPUTS];
    outcome made_contiguous;
    bool any = false;
    int i;
    for (i = 0; i < at.n; ++i) {
        slices[i] = at.in[i];
        how.expanded[i] = at.differentiable[i] && tg_ndim(at.in[i]) > 0 && tg_dim(at.in[i], 0) > 1;
        if (how.expanded[i]) slices[i] = tg_contiguous(tg_narrow(at.in[i], 0, 0, 1)), any = true;
    }
    if (!any) return;
    how.contiguous = true;
    made_contiguous = run(arranged_call, slices, at.n, &how, NULL);
    how.contiguous = false;
    agree_all("expanded", run(arranged_call, slices, at.n, &how, NULL), made_contiguous, at.n, bits_or_nearly());
    if (differences && !(at.row->flags & TIES)) check_against_differences(slices, &how, "expanded");
}

/* op(a, a) against op(a, b) where b has the elements of a. */
static void check_aliased(void)
{
    arranged how = as_given();
    outcome apart, together;
    tg_tensor *in_[MAX_INPUTS];
    int i;
    if (at.n < 2 || !at.differentiable[1] || !same_shape(tg_shape_of(at.in[0]), tg_shape_of(at.in[1]))) return;
    for (i = 0; i < at.n; ++i) in_[i] = i == 1 ? at.in[0] : at.in[i];
    apart = run(at.row->call, in_, at.n, &at.p, NULL);
    for (i = 1; i + 1 < at.n; ++i) in_[i] = at.in[i + 1];
    {
        bool saved[MAX_INPUTS];
        memcpy(saved, at.differentiable, sizeof saved);
        for (i = 1; i + 1 < at.n; ++i) at.differentiable[i] = saved[i + 1];
        together = run(aliased_call, in_, at.n - 1, &how, NULL);
        memcpy(at.differentiable, saved, sizeof saved);
    }
    agree("aliased: output", together.y, apart.y, 0);
    if (apart.grad[0]) agree("aliased: gradient", together.grad[0], tg_add(apart.grad[0], apart.grad[1]), 1e-12);
}

/* Incoming gradients that are transposed, sliced or expanded: the same result, and g as it was. */
static void check_incoming(outcome plain)
{
    tg_tensor *g, *before, *one;
    outcome by_expanded, by_full;
    int layout, i;
    if (!plain.y || !tg_requires_grad(plain.y)) return;
    g = cotangent(plain.y);
    for (layout = TRANSPOSED; layout < LAYOUTS; ++layout) {
        tg_tensor *arranged_g = arrange(g, layout);
        outcome result = run(at.row->call, at.in, at.n, &at.p, arranged_g);
        char what[80];
        snprintf(what, sizeof what, "incoming gradient %s", layout_names[layout]);
        agree_all(what, result, plain, at.n, bits_unless_summed(plain));
        agree("backward wrote into the gradient that came in", arranged_g, g, 0);
        for (i = 0; i < at.n; ++i) {
            if (result.grad[i]) tg_fill_(result.grad[i], 99);
        }
        agree("a gradient shares memory with the one that came in", arranged_g, g, 0);
    }
    one = tg_full_on(TG_SCALAR, 0.7, tg_dtype_of(plain.y), HERE);
    before = tg_clone(one);
    by_expanded = run(at.row->call, at.in, at.n, &at.p, tg_expand(one, tg_shape_of(plain.y)));
    by_full = run(at.row->call, at.in, at.n, &at.p, tg_full_like(plain.y, 0.7));
    agree_all("incoming gradient expanded", by_expanded, by_full, at.n, bits_or_nearly());
    agree("backward wrote into the expanded gradient that came in", one, before, 0);
}

/* f32 against f64 of the same numbers, f16 and bf16 against f32 of the same numbers. */
static void check_dtypes(void)
{
    static const tg_dtype narrow[] = {TG_F32, TG_F16, TG_BF16}, wide[] = {TG_F64, TG_F32, TG_F32};
    static const double output_tolerance[] = {1e-5, 1e-3, 8e-3}; /* f16, bf16: rounded once */
    static const double gradient_tolerance[] = {1e-5, 7e-3, 5e-2};
    static const char *const names[] = {"f32", "f16", "bf16"};
    int k, i;
    for (k = 0; k < (at.row->flags & NO_HALVES ? 1 : 3); ++k) {
        tg_tensor *low[MAX_INPUTS], *high[MAX_INPUTS];
        outcome a, b;
        for (i = 0; i < at.n; ++i) {
            bool floats = tg_is_floating_point(tg_dtype_of(at.in[i]));
            low[i] = floats ? tg_to_dtype(at.in[i], narrow[k]) : at.in[i];
            high[i] = floats ? tg_to_dtype(low[i], wide[k]) : at.in[i];
        }
        a = run(at.row->call, low, at.n, &at.p, NULL);
        b = run(at.row->call, high, at.n, &at.p, a.y ? tg_to_dtype(cotangent(a.y), wide[k]) : NULL);
        if (a.y && b.y && tg_dtype_of(b.y) == wide[k]) {
            if (tg_dtype_of(a.y) != narrow[k]) fail(names[k], "the output has another dtype");
            for (i = 0; i < at.n; ++i) {
                if (a.grad[i] && tg_dtype_of(a.grad[i]) != narrow[k]) fail(names[k], "a gradient has another dtype");
            }
            if (k > 0 && (at.row->flags & POINTWISE) == POINTWISE) agree(names[k], a.y, tg_to_dtype(b.y, narrow[k]), 0);
        }
        agree_outputs(names[k], a, b, output_tolerance[k] * (at.row->flags & SEVERAL ? 4 : 1));
        agree_gradients(names[k], a, b, at.n, gradient_tolerance[k]);
    }
}

/* In each dtype and layout against the plain backend, and, where the backend has an optional entry, against the ops
   that take its place where there is none.  Data that is moved is the same to the last bit. */
static void check_backends(void)
{
    const bool moved = (at.row->flags & (POINTWISE | SEVERAL)) == EXACT;
    int k, layout, i;
    for (k = 0; k < 4; ++k) {
        tg_tensor *in_[MAX_INPUTS];
        outcome plain;
        if (at.row->flags & NO_HALVES && float_dtypes[k] != TG_F32 && float_dtypes[k] != TG_F64) continue;
        for (i = 0; i < at.n; ++i)
            in_[i] = tg_is_floating_point(tg_dtype_of(at.in[i])) ? tg_to_dtype(at.in[i], float_dtypes[k]) : at.in[i];
        plain = by_plain(in_);
        for (layout = CONTIGUOUS; layout < (small ? TRANSPOSED : LAYOUTS); ++layout) {
            arranged how = as_given();
            outcome fused, composed;
            char what[80];
            how.layout = layout;
            fused = run(arranged_call, in_, at.n, &how, NULL);
            snprintf(what, sizeof what, "by plain loops, %s, %s", tg_dtype_name(float_dtypes[k]), layout_names[layout]);
            check_kind(fused.y, plain.y);
            agree_outputs(what, fused, plain, moved ? 0 : float_tolerance[k]);
            for (i = 0; i < at.n; ++i) check_kind(fused.grad[i], plain.grad[i]);
            agree_gradients(what, fused, plain, at.n, float_tolerance[k]);
            inside_compose(true);
            composed = run(arranged_call, in_, at.n, &how, NULL);
            inside_compose(false);
            snprintf(what, sizeof what, "composed, %s, %s", tg_dtype_name(float_dtypes[k]), layout_names[layout]);
            agree_all(what, fused, composed, at.n, float_tolerance[k]);
        }
    }
}

/* NaN in is NaN out (or at least no error), forward and back. */
static void check_nan(outcome plain)
{
    tg_tensor *in_[MAX_INPUTS];
    outcome result;
    int i;
    if (at.row->flags & GUARDED || !plain.y || tg_numel(plain.y) == 0) return;
    for (i = 0; i < at.n; ++i) in_[i] = at.differentiable[i] ? tg_full_like(at.in[i], NAN) : at.in[i];
    result = run(at.row->call, in_, at.n, &at.p, NULL);
    if (!harness_check(result.y != NULL && tg_ok(), "NaN inputs", __FILE__, at.line)) return;
    if (at.row->flags & (QUIET | TESTS)) return;
    harness_check(isnan(tg_item(tg_sum(tg_detach(result.y)))) || tg_numel(result.y) == 0 || tg_numel(in_[0]) == 0 ||
                      (at.row->call == call_pow_scalar && at.p.num == 0),
                  "NaN inputs give no NaN", __FILE__, at.line);
}

/* A tensor that is NULL: an error that says so, unless the input is optional; and nothing new while an error is
   pending. */
static void check_null(void)
{
    static const struct {
        const char *name;
        int from; /* inputs from here on are optional */
    } optional[] = {{"linear", 2},
                    {"linear_gelu", 2},
                    {"layer_norm", 1},
                    {"rms_norm", 1},
                    {"add_layer_norm", 2},
                    {"add_rms_norm", 2},
                    {"batch_norm", 1},
                    {"batch_norm_by_running", 3},
                    {"instance_norm", 1},
                    {"group_norm", 1},
                    {"channel_norm", 1},
                    {"bincount", 1},
                    {"bilinear", 3},
                    {"embedding_bag", 2},
                    {"cov", 1},
                    {"diff", 1},
                    {"trapezoid", 1},
                    {"cumulative_trapezoid", 1},
                    {"searchsorted", 2},
                    {"histogram", 2},
                    {"conv1d", 2},
                    {"conv2d", 2},
                    {"conv3d", 2},
                    {"conv_transpose1d", 2},
                    {"conv_transpose2d", 2},
                    {"conv_transpose3d", 2},
                    {"scaled_dot_product_attention", 3},
                    {"scaled_dot_product_attention_ex", 3},
                    {"cross_entropy_ex", 2},
                    {"nll_loss", 2},
                    {"multi_margin_loss", 2},
                    {"multilabel_soft_margin_loss", 2},
                    {"complex", 1},
                    {"stft", 1},
                    {"istft", 1},
                    {"binary_cross_entropy", 2},
                    {"binary_cross_entropy_with_logits", 2}};
    int required = at.n, i;
    for (i = 0; i < (int)(sizeof optional / sizeof optional[0]); ++i) {
        if (strcmp(optional[i].name, at.row->name) == 0 && optional[i].from < required) required = optional[i].from;
    }
    for (i = 0; i < at.n; ++i) {
        tg_tensor *in_[MAX_INPUTS], *y;
        memcpy(in_, at.in, sizeof in_);
        in_[i] = NULL;
        y = at.row->call(in_, at.n, &at.p);
        if (i >= required) {
            harness_check(y != NULL && tg_ok(), "an optional input that is NULL", __FILE__, at.line);
            continue;
        }
        harness_check(y == NULL, "an input that is NULL gives something", __FILE__, at.line);
        harness_fails("is NULL", at.row->name, __FILE__, at.line);
        (void)tg_view(ones(2), TG_SHAPE(3));
        y = at.row->call(in_, at.n, &at.p);
        harness_check(y == NULL && tg_error_count() == 1, "a pending error passes through", __FILE__, at.line);
        harness_fails("invalid for input", at.row->name, __FILE__, at.line);
    }
}

/* ---- in-place twins ---- */

/* A twin writes into a copy of the first input that has a history, or into a half of one, and returns what it wrote. */
static bool twins_write_halves;

static tg_tensor *twin_target(tg_tensor *x, tg_tensor **base)
{
    tg_tensor *pair[2];
    pair[0] = pair[1] = x;
    *base = twins_write_halves ? tg_stack(pair, 2, 0) : tg_clone(x);
    return twins_write_halves ? tg_select(*base, 0, 1) : *base;
}

static tg_tensor *twin_result(tg_tensor *target, tg_tensor *written, tg_tensor *base, int64_t version)
{
    if (written != target || tg_version_of(base) != version + 1) return NULL;
    return twins_write_halves ? tg_select(base, 0, 1) : written;
}

#define NO_TWIN(...)
#define DEFINE_TWIN(name, call, flags, expression)                                    \
    static tg_tensor *twin_##name(tg_tensor *const *in_, int n, void *user)           \
    {                                                                                 \
        const numbers *p = (const numbers *)user;                                     \
        tg_tensor *base, *a = twin_target(in_[0], &base), *b = n > 1 ? in_[1] : NULL; \
        tg_tensor *c = n > 2 ? in_[2] : NULL;                                         \
        int64_t version = tg_version_of(a);                                           \
        (void)p, (void)b, (void)c;                                                    \
        return twin_result(a, expression, base, version);                             \
    }
UNARY_ROWS(NO_TWIN, DEFINE_TWIN)
ELEMENTWISE_ROWS(NO_TWIN, DEFINE_TWIN)
static const struct {
    const char *name;
    tg_function call;
} twins[] = {
#define TWIN_ROW(name, ...) {#name, twin_##name},
    UNARY_ROWS(NO_TWIN, TWIN_ROW) ELEMENTWISE_ROWS(NO_TWIN, TWIN_ROW)};
enum { TWIN_ROWS = (int)(sizeof twins / sizeof twins[0]) };

static void check_twin(outcome plain)
{
    int i;
    for (i = 0; i < TWIN_ROWS; ++i) {
        outcome result;
        if (strcmp(twins[i].name, at.row->name) != 0) continue;
        if (!plain.y || !same_shape(tg_shape_of(plain.y), tg_shape_of(at.in[0]))) return;
        twins_write_halves = false;
        result = run(twins[i].call, at.in, at.n, &at.p, NULL);
        agree_all("in place", result, plain, at.n, 0);
        twins_write_halves = true;
        result = run(twins[i].call, at.in, at.n, &at.p, NULL);
        agree_all("in place through a view", result, plain, at.n, bits_or_nearly());
    }
}

/* ---- drivers ---- */

/* Goes through the graph twice: the same gradients again (added: twice as much), and nothing recorded under no_grad. */
static void check_again(outcome plain)
{
    tg_tensor *leaves[MAX_INPUTS], *y, *g;
    int64_t nodes;
    int i;
    for (i = 0; i < at.n; ++i) {
        leaves[i] = tg_detach(at.in[i]);
        if (at.differentiable[i]) tg_set_requires_grad(leaves[i], true);
    }
    {
        TG_NO_GRAD;
        nodes = tg_stats().nodes;
        tg_seed(1);
        y = at.row->call(leaves, at.n, &at.p);
        harness_check(y && tg_requires_grad(y) == (y == leaves[0]), "requires grad under no_grad", __FILE__, at.line);
        harness_check(tg_stats().nodes == nodes, "nodes were made under no_grad", __FILE__, at.line);
        agree("under no_grad", y, plain.y, at.row->flags & FINDS_MORE ? 1e-12 : 0);
    }
    if (!tg_requires_grad(plain.y)) return;
    tg_seed(1);
    y = at.row->call(leaves, at.n, &at.p);
    g = cotangent(y);
    harness_check(step_back(y, g, TG_RETAIN_GRAPH) && step_back(y, g, 0), "a second backward", __FILE__, at.line);
    for (i = 0; i < at.n; ++i) {
        tg_tensor *twice = plain.grad[i] ? tg_mul_scalar(plain.grad[i], 2) : NULL;
        agree("the gradient of two backwards", tg_grad(leaves[i]), twice, 0);
    }
}

/* Differentiates the gradient, so that the rules of rules run and are noted; the recorded gradient, which is made of
   public ops, must be that of the kernels. */
static void check_second_order(outcome plain)
{
    tg_tensor *leaves[MAX_INPUTS], *y, *total = NULL;
    int i;
    for (i = 0; i < at.n; ++i) {
        leaves[i] = tg_detach(at.in[i]);
        if (at.differentiable[i]) tg_set_requires_grad(leaves[i], true);
    }
    tg_seed(1);
    y = at.row->call(leaves, at.n, &at.p);
    if (!y || !tg_requires_grad(y)) return;
    for (i = 0; i < at.n; ++i) {
        tg_tensor *g = cotangent(y), *result = NULL;
        if (!at.differentiable[i]) continue;
        tg_set_requires_grad(g, true);
        if (tg_gradients(&y, 1, &g, &leaves[i], 1, &result, TG_CREATE_GRAPH | TG_ALLOW_UNUSED) != TG_OK || !result)
            continue;
        agree("the recorded gradient", result, plain.grad[i], 1e-12);
        result = tg_sum(tg_mul(result, result));
        total = total ? tg_add(total, result) : result;
    }
    if (total && tg_requires_grad(total))
        harness_check(step_back(total, NULL, 0), "backward of backward", __FILE__, at.line);
}

static void check_wanted(outcome plain)
{
    char what[400];
    int i, k = 0;
    if (at.gives) {
        snprintf(what, sizeof what, "output at line %d", at.line);
        match(plain.y, at.gives, true, what, __FILE__, at.line);
    }
    for (i = 0; i < at.n && k < at.grads; ++i) {
        if (!at.differentiable[i]) continue;
        snprintf(what, sizeof what, "gradient %d at line %d", k, at.line);
        match(plain.grad[i], at.grad[k++], true, what, __FILE__, at.line);
    }
    harness_check(k == at.grads, "as many gradients as are wanted", __FILE__, at.line);
}

/* ---- what the row of an op says of every call: a new op is checked by its samples ---- */

/* The op whose row the call of a sample begins with, by the names: "sum_dim" is op sum, "conv2d" conv; -1: not known. */
static int op_of_sample(const char *name)
{
    static const char *const endings[] = {"", "_dim", "_dims", "_ex", "1d", "2d", "3d"};
    const char *op, *formula;
    bool has_rule;
    size_t longest = 0; /* max_dim is an op, besides max */
    int i, k, found = -1;
    for (i = 0; (op = inside_op(i, &has_rule, &formula)) != NULL; ++i) {
        if (strncmp(op, name, strlen(op)) != 0 || strlen(op) <= longest) continue;
        for (k = 0; k < (int)(sizeof endings / sizeof *endings); ++k) {
            if (strcmp(name + strlen(op), endings[k]) == 0) longest = strlen(op), found = i;
        }
    }
    return found;
}

/* The dim of a sample, or a list of dims, counts from the end if it is negative, and is refused out of range; whether
   the row of an op (-1: none) says that it has one, or the function looks after its dim itself. */
static void check_dims_of_row(int op)
{
    const bool longer = strcmp(at.row->name, "unsqueeze") == 0 || strcmp(at.row->name, "stack") == 0; /* by a new dim */
    int i, n = 1;
    const bool list = op >= 0 && (inside_op_flags(op) & INSIDE_DIMS) != 0;
    numbers p = at.p;
    char message[120];
    int outside;
    for (i = 0; i < at.n; ++i) n = tg_ndim(at.in[i]) + longer > n ? tg_ndim(at.in[i]) + longer : n; /* they broadcast */
    for (outside = 0; outside < 2; ++outside) {
        const int dim = outside ? -n - 1 : n;
        tg_tensor *y;
        p.dim = dim, p.dims = list ? TG_DIMS(dim) : at.p.dims;
        y = at.row->call(at.in, at.n, &p);
        if (list && y && !at.has_dim) return; /* the function takes no dims: the others of its op do */
        snprintf(message, sizeof message, "Dimension out of range (expected to be in range of [%d, %d], but got %d)", -n,
                 n - 1, dim);
        refused(y == NULL, message, "a dim out of range", at.line);
    }
    p = at.p;
    p.dim += p.dim < 0 ? n : -n;
    if (at.has_dim)
        agree("dim counted from the other end", at.row->call(at.in, at.n, &p), at.row->call(at.in, at.n, &at.p), 0);
    if (op >= 0) shown[op] |= list ? INSIDE_DIMS : INSIDE_DIM;
}

/* The dtype of the output under TG_AUTOCAST(TG_BF16), of inputs that have another one. */
static void check_autocast_of_row(int op)
{
    const int flags = inside_op_flags(op) & (INSIDE_LOW | INSIDE_F32 | INSIDE_WIDEST);
    const tg_dtype first = flags & INSIDE_F32 ? TG_BF16 : TG_F32, others = flags & INSIDE_LOW ? TG_F32 : TG_BF16;
    tg_tensor *in_[MAX_INPUTS], *y;
    int i;
    for (i = 0; i < at.n; ++i) {
        const bool floats = tg_is_floating_point(tg_dtype_of(at.in[i]));
        in_[i] = floats ? tg_to_dtype(at.in[i], i ? others : first) : at.in[i];
    }
    {
        TG_AUTOCAST(TG_BF16);
        y = at.row->call(in_, at.n, &at.p);
    }
    if (!harness_check(y != NULL && tg_ok(), "the call under TG_AUTOCAST", __FILE__, at.line)) return;
    if (tg_dtype_of(y) != (flags & INSIDE_LOW ? TG_BF16 : TG_F32)) fail("autocast", "the output has another dtype");
    shown[op] |= flags;
}

static void check_row(void)
{
    const int op = op_of_sample(at.row->name), flags = op < 0 ? 0 : inside_op_flags(op);
    tg_tensor *in_[MAX_INPUTS], *y;
    if (strncmp(at.row->name, "conv", 4) == 0) at.has_dim = false; /* another number, in samples of convolutions */
    if (at.has_dim || (flags & (INSIDE_DIM | INSIDE_DIMS))) check_dims_of_row(op);
    if (flags & (INSIDE_LOW | INSIDE_F32 | INSIDE_WIDEST)) check_autocast_of_row(op);
    if (!(flags & INSIDE_FLOAT_INPUT)) return;
    memcpy(in_, at.in, sizeof in_);
    in_[0] = tg_to_dtype(at.in[0], TG_I64);
    y = at.row->call(in_, at.n, &at.p);
    if (y && y == in_[0]) return; /* no op was called, as in a dropout of nothing */
    refused(y == NULL,
            "could not infer output dtype. Input dtype must be either a floating point or complex dtype. Got: i64",
            "integers", at.line);
    shown[op] |= INSIDE_FLOAT_INPUT;
}

static void check_sample(void)
{
    outcome plain = run(at.row->call, at.in, at.n, &at.p, NULL);
    bool differentiable = plain.y && tg_requires_grad(plain.y);
    if (!harness_check(plain.y != NULL && tg_ok(), "the call", __FILE__, at.line)) return;
    harness_check(differentiable == !(at.row->flags & TESTS), "whether the output requires grad", __FILE__, at.line);
    check_layouts(plain, differentiable);
    check_expanded(differentiable);
    check_aliased();
    check_incoming(plain);
    check_dtypes();
    check_backends();
    check_nan(plain);
    check_null();
    check_row();
    check_twin(plain);
    check_again(plain);
    check_second_order(plain);
}

/* Values at chosen inputs: f64 in every layout, f32, and f32 repeated so that vector code sees them, too. */
static void check_edge(void)
{
    tg_tensor *single[MAX_INPUTS] = {NULL};
    arranged how = as_given();
    tg_tensor *y = at.row->call(at.in, at.n, &at.p), *g = y ? tg_ones_like(y) : NULL;
    bool same = true;
    int i;
    if (!harness_check(y != NULL && tg_ok(), "the call", __FILE__, at.line)) return;
    if (tg_is_floating_point(tg_dtype_of(y)))
        check_wanted(run(at.row->call, at.in, at.n, &at.p, g));
    else
        check_wanted(run(at.row->call, at.in, at.n, &at.p, NULL));
    for (how.layout = TRANSPOSED; how.layout < LAYOUTS; ++how.layout) {
        check_wanted(run(arranged_call, at.in, at.n, &how, tg_is_floating_point(tg_dtype_of(y)) ? g : NULL));
    }
    for (i = 0; i < at.n; ++i) {
        bool floats = tg_is_floating_point(tg_dtype_of(at.in[i]));
        single[i] = floats ? tg_to_dtype(at.in[i], TG_F32) : at.in[i];
        same = same && floats && same_shape(how.shape[i], tg_shape_of(y));
    }
    if (!tg_is_floating_point(tg_dtype_of(y))) {
        check_wanted(run(at.row->call, single, at.n, &at.p, NULL));
        return;
    }
    check_wanted(run(at.row->call, single, at.n, &at.p, tg_to_dtype(g, TG_F32)));
    if (same && (at.row->flags & POINTWISE) == POINTWISE && tg_ndim(y) == 1) {
        tg_shape times = TG_SHAPE(9, 1);
        outcome rows;
        for (i = 0; i < at.n; ++i) single[i] = tg_repeat(single[i], times);
        rows = run(at.row->call, single, at.n, &at.p, tg_repeat(tg_to_dtype(g, TG_F32), times));
        if (!harness_check(rows.y != NULL, "repeated", __FILE__, at.line)) return;
        rows.y = tg_select(rows.y, 0, 4);
        for (i = 0; i < at.n; ++i) rows.grad[i] = rows.grad[i] ? tg_select(rows.grad[i], 0, 4) : NULL;
        check_wanted(rows);
    }
}

static void (*check)(void) = check_sample; /* the checks of a sample */

static void drive_sample(void)
{
    check();
    write_hash(at.row->name, at.line);
}

static void drive_edge(void)
{
    check_edge();
    write_hash(at.row->name, at.line);
}

/* ---- memory of the device that cannot be had ---- */

#ifdef CUDASIM
static long refusal = -1; /* allocations until the one that fails */
static bool refused_once;
static int64_t refusals;

/* An allocation that fails is tried once more after the pool has been emptied. */
static int memory_is_left(void)
{
    if (refusal == 0 && refused_once) {
        refusal = -1;
        return 0;
    }
    if (refusal == 0) return !(refused_once = true);
    if (refusal > 0) --refusal;
    return 1;
}

/* Forward and backward, with the n-th allocation of device memory failing: there is an error, nothing stays alive, and
 * in the end, when each has failed once, the results have the same bits as without failures.  Behind the first 32 fewer
 * and fewer take their turn: some composites have hundreds, and each failure is a call of its own. */
static void check_memory(void)
{
    outcome plain = run(at.row->call, at.in, at.n, &at.p, NULL), again;
    tg_tensor *g = plain.y && tg_requires_grad(plain.y) ? cotangent(plain.y) : NULL;
    tg_stats_info before, after;
    long n = 0;
    if (!harness_check(plain.y != NULL && tg_ok(), "the call", __FILE__, at.line)) return;
    do {
        tg_mark mark = tg_scope_begin();
        before = tg_stats();
        refusal = n, refused_once = false;
        n += 1 + n / 32;
        again = run(at.row->call, at.in, at.n, &at.p, g);
        refusal = -1;
        if (refused_once) {
            harness_check(tg_error_code() == TG_ERR_MEMORY, "out of memory is said", __FILE__, at.line);
            tg_clear_error();
            ++refusals;
        } else {
            agree_all("after failures", again, plain, at.n, 0);
        }
        tg_scope_end(mark);
        after = tg_stats();
        CHECK(after.tensors == before.tensors && after.nodes == before.nodes);
        CHECK(after.bytes == before.bytes && after.saved == before.saved);
    } while (refused_once && n < 10000);
    harness_check(!refused_once, "the call succeeds in the end", __FILE__, at.line);
}

static void run_memory(void)
{
    check = check_memory;
    cudasim_ask_allocation(memory_is_left);
    run_samples();
    printf("%lld refusals of device memory\n", (long long)refusals);
    CHECK(refusals > 0);
}
#endif

/* ---- dtypes ---- */

enum { DTYPES = 10 };
static const tg_dtype all_dtypes[DTYPES] = {TG_F32, TG_F64, TG_BF16, TG_F16, TG_I32, TG_I64,
                                             TG_U8, TG_I8, TG_I16, TG_BOOL};

/* The result dtypes of two operands: rows and columns are f32 f64 bf16 f16 i32 i64 u8 i8 i16 bool.
 * torch.promote_types; a 0-dim column.  ci/python.py asks PyTorch again. */
static const char *const promoted[DTYPES] = {
    "f32 f64 f32 f32 f32 f32 f32 f32 f32 f32",
    "f64 f64 f64 f64 f64 f64 f64 f64 f64 f64",
    "f32 f64 bf16 f32 bf16 bf16 bf16 bf16 bf16 bf16",
    "f32 f64 f32 f16 f16 f16 f16 f16 f16 f16",
    "f32 f64 bf16 f16 i32 i64 i32 i32 i32 i32",
    "f32 f64 bf16 f16 i64 i64 i64 i64 i64 i64",
    "f32 f64 bf16 f16 i32 i64 u8 i16 i16 u8",
    "f32 f64 bf16 f16 i32 i64 i16 i8 i16 i8",
    "f32 f64 bf16 f16 i32 i64 i16 i16 i16 i16",
    "f32 f64 bf16 f16 i32 i64 u8 i8 i16 bool"};
static const char *const with_0dim[DTYPES] = {
    "f32 f32 f32 f32 f32 f32 f32 f32 f32 f32",
    "f64 f64 f64 f64 f64 f64 f64 f64 f64 f64",
    "bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16",
    "f16 f16 f16 f16 f16 f16 f16 f16 f16 f16",
    "f32 f64 bf16 f16 i32 i32 i32 i32 i32 i32",
    "f32 f64 bf16 f16 i64 i64 i64 i64 i64 i64",
    "f32 f64 bf16 f16 u8 u8 u8 u8 u8 u8",
    "f32 f64 bf16 f16 i8 i8 i8 i8 i8 i8",
    "f32 f64 bf16 f16 i16 i16 i16 i16 i16 i16",
    "f32 f64 bf16 f16 i32 i64 u8 i8 i16 bool"};

static bool is_word(const char *list, int k, const char *word)
{
    size_t n = strlen(word);
    while (k-- > 0) list = strchr(list, ' ') + 1;
    return strncmp(list, word, n) == 0 && (list[n] == ' ' || list[n] == 0);
}

TEST(promotion)
{
    static const char *const floats = "f32 f64 bf16 f16 f32 f32 f32 f32 f32 f32";
    int i, k;
    for (i = 0; i < DTYPES; ++i) {
        for (k = 0; k < DTYPES; ++k) {
            tg_dtype a = all_dtypes[i], b = all_dtypes[k];
            const char *both = tg_dtype_name(tg_promote_types(a, b));
            tg_tensor *x = of(a, "[1, 1]"), *y = of(b, "[1, 0]"), *number = of(b, "1"), *pair[2];
            CHECK(is_word(promoted[i], k, both));
            CHECK(is_word(promoted[i], k, tg_dtype_name(tg_dtype_of(tg_mul(x, y)))));
            CHECK(is_word(promoted[i], k, tg_dtype_name(tg_dtype_of(tg_maximum(x, y)))));
            CHECK(is_word(promoted[i], k, tg_dtype_name(tg_dtype_of(tg_where(boolean("[1, 0]"), x, y)))));
            CHECK(is_word(promoted[i], k, tg_dtype_name(tg_dtype_of(tg_mul(of(a, "1"), number))))); /* both 0-dim */
            CHECK(is_word(with_0dim[i], k, tg_dtype_name(tg_dtype_of(tg_mul(x, number)))));
            CHECK(is_word(with_0dim[i], k, tg_dtype_name(tg_dtype_of(tg_mul(number, x)))));
            CHECK(tg_dtype_of(tg_lt(x, y)) == TG_BOOL && tg_dtype_of(tg_logical_or(x, number)) == TG_BOOL);
            pair[0] = x, pair[1] = y;
            CHECK(is_word(promoted[i], k, tg_dtype_name(tg_dtype_of(tg_cat(pair, 2, 0)))));
            expect(tg_mul(x, y), "[1, 0]");
            expect(tg_mul(x, number), "[1, 1]");
        }
        CHECK(is_word(floats, i, tg_dtype_name(tg_dtype_of(tg_exp(of(all_dtypes[i], "[1]"))))));
        CHECK(
            is_word(floats, i, tg_dtype_name(tg_dtype_of(tg_div(of(all_dtypes[i], "[1]"), of(all_dtypes[i], "[1]"))))));
        CHECK(is_word(floats, i, tg_dtype_name(tg_dtype_of(tg_div_scalar(of(all_dtypes[i], "[1]"), 2)))));
        CHECK(tg_ok());
    }
}

/* Gradients come in the dtype of their input. */
TEST(mixed_dtype_gradients)
{
    tg_tensor *h = tg_set_requires_grad(of(TG_F16, "[2, 3]"), true),
              *x = tg_set_requires_grad(f32("[5, 7]"), true);
    tg_tensor *number = tg_set_requires_grad(f64("3"), true), *y = tg_mul(h, x), *mixed[2], *g[2];
    ROW(2.61)
    {
        CHECK(tg_dtype_of(y) == TG_F32);
        mixed[0] = h, mixed[1] = x, y = tg_sum(y);
        CHECK(tg_gradients(&y, 1, NULL, mixed, 2, g, 0) == TG_OK);
        CHECK(tg_dtype_of(g[0]) == TG_F16 && tg_dtype_of(g[1]) == TG_F32);
        expect(g[0], "[5, 7]");
        expect(g[1], "[2, 3]");
    }
    ROW(2.59)
    {
        y = tg_mul(number, x);
        CHECK(tg_dtype_of(y) == TG_F32);
        g[0] = gradient(y, number, 0);
        CHECK(tg_dtype_of(g[0]) == TG_F64);
        expect(g[0], "12");
    }
}

/* An op of integers on a and b, the number s, and the mask. */
enum { OPS_OF_INTEGERS = 31 };
static tg_tensor *of_integers(int op, tg_tensor *a, tg_tensor *b, double s, tg_tensor *mask)
{
    switch (op) {
    case 0: return tg_add(a, b);
    case 1: return tg_sub(a, b);
    case 2: return tg_mul(a, b);
    case 3: return tg_maximum(a, b);
    case 4: return tg_minimum(a, b);
    case 5: return tg_eq(a, b);
    case 6: return tg_ne(a, b);
    case 7: return tg_lt(a, b);
    case 8: return tg_le(a, b);
    case 9: return tg_gt(a, b);
    case 10: return tg_ge(a, b);
    case 11: return tg_logical_and(a, b);
    case 12: return tg_logical_or(a, b);
    case 13: return tg_logical_xor(a, b);
    case 14: return tg_logical_not(b);
    case 15: return tg_where(mask, a, b);
    case 16: return tg_add_alpha(a, b, s);
    case 17: return tg_addcmul(a, b, a, s);
    case 18: return tg_masked_fill(a, mask, s);
    case 19: return tg_neg(b);
    case 20: return tg_abs(b);
    case 21: return tg_sign(b);
    case 22: return tg_relu(b);
    case 23: return tg_square(b);
    case 24: return tg_add_scalar(b, s);
    case 25: return tg_rsub_scalar(b, s);
    case 26: return tg_mul_scalar(b, s);
    case 27: return tg_clamp(b, s, s + 20);
    case 28: return tg_clamp_min(b, s);
    case 29: return tg_clamp_max(b, s);
    default: return tg_lt_scalar(b, s);
    }
}

/* Ops on integers of 8, 16 and 32 bits have kernels of their own: every pair of u8, of i8 and of bool, and some of i16
 * and i32, side by side and with gaps, give what i64 gives, cut to the dtype.  Where a number is out of range, or bool is
 * refused, there is nothing to compare.  A device, which has no vectors to be wrong in, takes every fifth number. */
TEST(narrow_integers)
{
    static const double scalars[] = {0, 1, 2, 100, 255, 256, 1000, -1, -100, -129, 32767, -32768, 65537};
    static const tg_dtype dtypes[] = {TG_U8, TG_I8, TG_I16, TG_I32, TG_BOOL};
    for (int d = 0; d < 5; ++d) {
        TG_SCOPE;
        const tg_dtype dtype = dtypes[d];
        const bool is_bool = dtype == TG_BOOL;
        const int64_t side = HERE.type == TG_DEV_CPU ? 256 : 52;
        const tg_shape square = TG_SHAPE(side, side);
        tg_tensor *count = tg_to(tg_arange_on(0, 256, side == 256 ? 1 : 5, TG_I64, TG_CPU), HERE);
        if (dtype == TG_I16) count = tg_add_scalar(tg_mul_scalar(count, 257), -32768); /* both ends */
        if (dtype == TG_I32) count = tg_add_scalar(tg_mul_scalar(count, 16843009), -2147483648.0);
        tg_tensor *row = tg_to_dtype(tg_to_dtype(count, dtype), TG_I64);
        if (is_bool) row = tg_mul(row, tg_to_dtype(tg_lt_scalar(tg_rand_on(TG_SHAPE(side), TG_F32, HERE), 0.5), TG_I64));
        tg_tensor *b = tg_contiguous(tg_expand(row, square)), *a = tg_contiguous(tg_transpose(b, 0, 1));
        tg_tensor *mask = tg_lt_scalar(tg_rand_on(square, TG_F32, HERE), 0.5);
        tg_tensor *a8 = tg_to_dtype(a, dtype), *b8 = tg_to_dtype(b, dtype), *across = tg_transpose(b8, 0, 1);
        tg_tensor *gaps = tg_slice(tg_zeros_on(TG_SHAPE(side, 2 * side), dtype, HERE), 1, 0, 2 * side, 2);
        tg_copy_(gaps, b8);
        for (int op = 0; op < OPS_OF_INTEGERS; ++op) {
            int compared = 0;
            for (int n = 0; n < 13; ++n) {
                TG_SCOPE;
                for (int layout = 0; layout < 2; ++layout) {
                    tg_tensor *y = layout ? of_integers(op, across, gaps, scalars[n], mask)
                                          : of_integers(op, a8, b8, scalars[n], mask);
                    if (!y) tg_clear_error();
                    if (!y) continue;
                    const double s = is_bool && op == 16 ? scalars[n] != 0 : scalars[n]; /* of add_alpha, a bool */
                    tg_tensor *wanted = tg_to_dtype(of_integers(op, a, b, s, mask), tg_dtype_of(y));
                    if (!CHECK(tg_equal(y, wanted)))
                        printf("op %d of integers, %s, number %g\n", op, tg_dtype_name(dtype), scalars[n]);
                    compared++;
                }
            }
            CHECK(compared >= 2 || (is_bool && (op == 1 || op == 17 || op == 19)));
        }
    }
}

/* Integers never pass through a float, and wrap around. */
TEST(integers)
{
    tg_tensor *big = i64("[9007199254740993, 4611686018427387904, -9007199254740993]");
    tg_tensor *i32 = of(TG_I32, "[2147483647, -2147483648]"), *u8 = of(TG_U8, "[255, 0, 200]");
    tg_tensor *last = i64("[9223372036854775807, -9223372036854775808]");
    expect(tg_add(big, i64("1")), "[9007199254740994, 4611686018427387905, -9007199254740992]");
    expect(tg_add_scalar(big, 1), "[9007199254740994, 4611686018427387905, -9007199254740992]");
    expect(tg_sub_scalar(big, 1), "[9007199254740992, 4611686018427387903, -9007199254740994]");
    expect(tg_rsub_scalar(big, 0), "[-9007199254740993, -4611686018427387904, 9007199254740993]");
    expect(tg_mul_scalar(big, 1), "[9007199254740993, 4611686018427387904, -9007199254740993]");
    expect(tg_neg(big), "[-9007199254740993, -4611686018427387904, 9007199254740993]");
    expect(tg_abs(big), "[9007199254740993, 4611686018427387904, 9007199254740993]");
    expect(tg_sign(big), "[1, 1, -1]");
    expect(tg_square(i64("[3037000499, -3]")), "[9223372030926249001, 9]");
    expect(tg_relu(big), "[9007199254740993, 4611686018427387904, 0]");
    expect(tg_maximum(big, i64("9007199254740992")), "[9007199254740993, 4611686018427387904, 9007199254740992]");
    expect(tg_minimum(big, i64("9007199254740992")), "[9007199254740992, 9007199254740992, -9007199254740993]");
    expect(tg_clamp(big, -9007199254740992.0, 9007199254740992.0),
           "[9007199254740992, 9007199254740992, -9007199254740992]");
    expect(tg_floor(big), "[9007199254740993, 4611686018427387904, -9007199254740993]");
    expect(tg_round(big), "[9007199254740993, 4611686018427387904, -9007199254740993]");
    expect(tg_where(boolean("[1, 0, 1]"), big, i64("0")), "[9007199254740993, 0, -9007199254740993]");
    expect(tg_clone(tg_flip(big, TG_DIMS(0))), "[-9007199254740993, 4611686018427387904, 9007199254740993]");
    expect(tg_amax(big), "4611686018427387904");
    expect(tg_amin(big), "-9007199254740993");
    expect(tg_argmax(big, 0, false), "1");
    expect(tg_max_dim(big, 0, true, NULL), "[4611686018427387904]");
    expect(tg_pad(big, TG_DIMS(-1, 1), 7), "[4611686018427387904, -9007199254740993, 7]");
    expect(tg_tril(tg_unsqueeze(big, 0), 1), "[[9007199254740993, 4611686018427387904, 0]]");
    if (HERE.type == TG_DEV_CPU) { /* f32 could not tell the last columns from each other */
        tg_tensor *wide = tg_expand(tg_ones_on(TG_SHAPE(1, 1), TG_BOOL, HERE), TG_SHAPE(1, (1 << 24) + 2));
        CHECK(tg_item_i64(tg_sum(tg_tril(wide, 1 << 24))) == (1 << 24) + 1);
    }
    expect(tg_repeat(big, TG_DIMS(1)), "[9007199254740993, 4611686018427387904, -9007199254740993]");
    expect(tg_roll(big, TG_DIMS(1), TG_DIMS(0)), "[-9007199254740993, 9007199254740993, 4611686018427387904]");
    expect(tg_dot(big, i64("[1, 1, 0]")), "4620693217682128897");
    expect(tg_gather(big, 0, i64("[2]")), "[-9007199254740993]");
    expect(tg_topk(big, 1, 0, true, NULL), "[4611686018427387904]");
    /* wraparound */
    expect(tg_add_scalar(last, 1), "[-9223372036854775808, -9223372036854775807]");
    expect(tg_neg(last), "[-9223372036854775807, -9223372036854775808]");
    expect(tg_mul_scalar(last, 2), "[-2, 0]");
    expect(tg_add_scalar(i32, 1), "[-2147483648, -2147483647]");
    expect(tg_mul_scalar(i32, 2), "[-2, 0]");
    expect(tg_neg(i32), "[-2147483647, -2147483648]");
    expect(tg_abs(i32), "[2147483647, -2147483648]");
    expect(tg_add_scalar(u8, 1), "[0, 1, 201]");
    expect(tg_sub_scalar(u8, 1), "[254, 255, 199]");
    expect(tg_mul_scalar(u8, 2), "[254, 0, 144]");
    expect(tg_neg(u8), "[1, 0, 56]");
    expect(tg_square(u8), "[1, 0, 64]");
    expect(tg_pow_scalar(u8, 2), "[1, 0, 64]");
    expect(tg_sum(i32), "-1");
    expect(tg_cumsum(u8, 0), "[255, 255, 455]");
    expect(tg_prod(tg_slice(u8, 0, 0, 3, 2)), "51000");
    CHECK(tg_dtype_of(tg_cumsum(u8, 0)) == TG_I64 && tg_dtype_of(tg_amax(u8)) == TG_U8 &&
          tg_dtype_of(tg_abs(i32)) == TG_I32);
    /* in place */
    expect(tg_add_(tg_clone(big), i64("1")), "[9007199254740994, 4611686018427387905, -9007199254740992]");
    expect(tg_mul_scalar_(tg_clone(i32), 2), "[-2, 0]");
    /* a number that is not an integer */
    refuse(tg_add_scalar(big, 0.5), "tg_to_dtype");
    refuse(tg_mul_scalar(i32, 1.5), "tg_to_dtype");
    refuse(tg_add_scalar(big, 9223372036854775808.0), "tg_to_dtype");
    refuse(tg_add_scalar(big, NAN), "tg_to_dtype");
    refuse(tg_sub_scalar_(u8, 0.1), "");
    expect(tg_div_scalar(i64("[1, 2]"), 4), "[0.25, 0.5]");
    /* functions whose values are not integers */
    expect(tg_sqrt(i64("[4, 9]")), "[2, 3]");
    expect(tg_exp(of(TG_I32, "[0, 1]")), "[1, 2.71828]");
    expect(tg_sigmoid(boolean("[0, 1]")), "[0.5, 0.731059]");
    expect(tg_reciprocal(of(TG_U8, "[4]")), "[0.25]");
    expect(tg_atan2(i64("[1]"), i64("[1]")), "[0.785398]");
    /* bool */
    expect(tg_add(boolean("[1, 0, 1]"), boolean("[1, 1, 0]")), "[1, 1, 1]");
    expect(tg_mul(boolean("[1, 0, 1]"), boolean("[1, 1, 0]")), "[1, 0, 0]");
    CHECK(tg_dtype_of(tg_add(boolean("[1]"), boolean("[1]"))) == TG_BOOL);
    CHECK(tg_dtype_of(tg_add_scalar(boolean("[1]"), 1)) == TG_I64 && tg_dtype_of(tg_square(boolean("[1]"))) == TG_I64);
    refuse(tg_neg(boolean("[1]")), "Negation, the `-` operator, on a bool tensor is not supported.");
}

TEST(halves)
{
    ROW(2.92)
    {
        CHECK(isinf(tg_item(tg_sum(tg_ones_on(TG_SHAPE(70000), TG_F16, HERE)))));
        CHECK(tg_item(tg_sum(tg_full_on(TG_SHAPE(5000), 0.1, TG_BF16, HERE))) == 500);
        CHECK(tg_item(tg_mean(tg_ones_on(TG_SHAPE(70000), TG_F16, HERE))) == 1);
    }
    expect(
        tg_matmul(tg_full_on(TG_SHAPE(1, 4096), 1, TG_BF16, HERE), tg_full_on(TG_SHAPE(4096, 1), 1, TG_BF16, HERE)),
        "[[4096]]");
    CHECK(tg_item(tg_norm(tg_full_on(TG_SHAPE(4), 30000, TG_F16, HERE))) == 60000); /* squares in f32 */
    CHECK(tg_item(tg_prod(of(TG_F16, "[256, 256, 0.0625]"))) == 4096);
}

/* ---- in place ---- */

TEST(in_place_errors)
{
    tg_tensor *x = leaf("[1, 2]"), *integers = i64("[1, 2]");
    ROW(2.55)
    {
        refuse(tg_div_scalar_(integers, 2), "can't be cast to the desired output type");
        refuse(tg_exp_(integers), "can't be cast to the desired output type");
        refuse(tg_add_(integers, f32("[1, 2]")), "can't be cast to the desired output type");
        refuse(tg_add_(ones(3), ones(2, 3)), "output with shape [3] doesn't match the broadcast shape [2, 3]");
        refuse(tg_mul_(ones(1), ones(3)), "output with shape [1] doesn't match the broadcast shape [3]");
    }
    ROW(2.54)
    {
        refuse(tg_add_scalar_(tg_expand(ones(3, 1), TG_SHAPE(3, 2)), 1),
               "more than one element of the written-to tensor refers to a "
               "single memory location");
    }
    ROW(2.44)
    {
        refuse(tg_add_scalar_(x, 1), "a leaf Variable that requires grad is being used in an in-place operation.");
        refuse(tg_zero_(tg_narrow(x, 0, 0, 1)),
               "a view of a leaf Variable that requires grad is being used in an in-place operation.");
        refuse(tg_copy_(x, ones(2)), "a leaf Variable that requires grad is being used in an in-place operation.");
    }
    expect(x, "[1, 2]");
    expect(integers, "[1, 2]");
    CHECK(tg_version_of(x) == 0 && tg_version_of(integers) == 0);
    /* operands that overlap the target */
    {
        tg_tensor *t = f64("[1, 2, 3, 4]");
        expect(tg_add_(tg_narrow(t, 0, 1, 3), tg_narrow(t, 0, 0, 3)), "[3, 5, 7]");
        expect(t, "[1, 3, 5, 7]");
        expect(tg_add_(tg_narrow(t, 0, 1, 2), tg_narrow(t, 0, 0, 2)), "[4, 8]"); /* that share one element */
        expect(tg_add_(tg_narrow(t, 0, 0, 2), tg_narrow(t, 0, 1, 2)), "[5, 12]");
        t = f64("[1, 3, 5, 7]");
        expect(tg_mul_(t, t), "[1, 9, 25, 49]");
        t = f64("[[1, 2], [3, 4]]");
        expect(tg_add_(t, tg_t(t)), "[[2, 5], [5, 8]]");
        expect(tg_copy_(tg_narrow(tg_flatten(t, 0, -1), 0, 1, 3), tg_narrow(tg_flatten(t, 0, -1), 0, 0, 3)),
               "[2, 5, 5]");
        expect(tg_sub_(t, tg_select(t, 0, 0)), "[[0, 0], [3, 3]]");
    }
    expect(tg_add_(f32("[1]"), f64("[2]")), "[3]"); /* floats of any size go together */
}

/* Whether writing the input, or the output, after the call makes backward refuse: what each rule saves (row 2.48). */
TEST(what_is_saved)
{
    static const struct {
        const char *name;
        bool input, output;
    } saves[] = {
        {"exp", false, true},         {"sigmoid", false, true}, {"tanh", false, true},    {"sqrt", false, true},
        {"relu", false, true},        {"sin", true, false},     {"log", true, false},     {"abs", true, false},
        {"square", true, false},      {"silu", true, false},    {"neg", false, false},    {"add_scalar", false, false},
        {"mul_scalar", false, false}, {"clone", false, false},  {"sum", false, false},    {"mean", false, false},
        {"t", false, false},          {"to", false, false},     {"softmax", false, true}, {"log_softmax", false, true},
        {"cumsum", false, false},     {"prod", true, false},    {"amax", true, true},     {"norm", true, true}};
    numbers p;
    int i, k;
    memset(&p, 0, sizeof p);
    p.num = 2;
    for (i = 0; i < (int)(sizeof saves / sizeof saves[0]); ++i) {
        harness.sample = saves[i].name;
        for (k = 0; k < OP_ROWS && strcmp(op_rows[k].name, saves[i].name) != 0; ++k) {}
        if (!CHECK(k < OP_ROWS)) continue;
        {
            tg_tensor *x = tg_set_requires_grad(f64("[[1, 2], [3, 4]]"), true), *input = tg_clone(x), *y;
            y = op_rows[k].call(&input, 1, &p);
            tg_zero_(input);
            if (saves[i].input)
                CHECK_FAILS(tg_backward(tg_sum(y)), "modified by an inplace operation");
            else if (strcmp(saves[i].name, "t") != 0)
                CHECK(tg_backward(tg_sum(y)) == TG_OK);
            input = tg_clone(x);
            y = op_rows[k].call(&input, 1, &p);
            tg_zero_(tg_detach(y)); /* shares the version, leaves the graph alone */
            if (saves[i].output)
                CHECK_FAILS(tg_backward(tg_sum(y)), "modified by an inplace operation");
            else
                CHECK(tg_backward(tg_sum(y)) == TG_OK);
        }
        harness.sample = NULL;
    }
}

/* ---- broadcasting ---- */

/* Every pattern of dims of size 1 and of missing dims, of both operands, against the expanded operands made
   contiguous. */
TEST(broadcast_patterns)
{
    static const int64_t full[4] = {2, 3, 2, 2};
    int a_ones, b_ones, b_ndim, d;
    memset(&at, 0, sizeof at);
    at.differentiable[0] = at.differentiable[1] = true;
    for (a_ones = 0; a_ones < 16; ++a_ones) {
        for (b_ones = 0; b_ones < 16; ++b_ones) {
            for (b_ndim = 0; b_ndim <= 4; ++b_ndim) {
                tg_mark mark = tg_scope_begin();
                int64_t a_dim[4], b_dim[4];
                tg_tensor *pair[2], *wide[2], *y;
                outcome narrow, expanded;
                for (d = 0; d < 4; ++d) {
                    a_dim[d] = a_ones >> d & 1 ? 1 : full[d];
                    b_dim[d] = b_ones >> d & 1 ? 1 : full[d];
                }
                tg_seed(11);
                pair[0] = tg_randn_on(tg_make_shape(4, a_dim), TG_F64, HERE);
                pair[1] = tg_randn_on(tg_make_shape(b_ndim, b_dim + 4 - b_ndim), TG_F64, HERE);
                y = tg_mul(pair[0], pair[1]);
                narrow = run(call_mul, pair, 2, &at.p, NULL);
                wide[0] = tg_contiguous(tg_expand(pair[0], tg_shape_of(y)));
                wide[1] = tg_contiguous(tg_expand(pair[1], tg_shape_of(y)));
                expanded = run(call_mul, wide, 2, &at.p, NULL);
                agree("broadcast: output", narrow.y, expanded.y, 0);
                for (d = 0; d < 2; ++d) { /* the sum of the parts, by repeated sums over one dim */
                    tg_tensor *g = expanded.grad[d];
                    int k;
                    while (tg_ndim(g) > tg_ndim(pair[d])) g = tg_sum_dim(g, 0, false);
                    for (k = 0; k < tg_ndim(g); ++k) {
                        if (tg_dim(pair[d], k) == 1) g = tg_sum_dim(g, k, true);
                    }
                    agree("broadcast: gradient", narrow.grad[d], g, 1e-12);
                }
                tg_scope_end(mark);
            }
        }
        if (small) a_ones += 4;
    }
}

/* ---- views ---- */

static tg_tensor *first(int n, tg_tensor **pieces) { return n > 0 ? pieces[0] : NULL; }

TEST(views_share_storage)
{
    tg_tensor *pieces[8];
    int i, k;
    for (i = 0; i < 18; ++i) {
        tg_tensor *t = f64("[[[1, 2], [3, 4]]]"), *v = NULL; /* [1, 2, 2] */
        switch (i) {
        case 0: v = tg_view(t, TG_SHAPE(4)); break;
        case 1: v = tg_reshape(t, TG_SHAPE(2, 2)); break;
        case 2: v = tg_flatten(t, 0, -1); break;
        case 3: v = tg_squeeze(t, 0); break;
        case 4: v = tg_unsqueeze(t, 0); break;
        case 5: v = tg_transpose(t, 1, 2); break;
        case 6: v = tg_t(tg_select(t, 0, 0)); break;
        case 7: v = tg_permute(t, TG_DIMS(2, 1, 0)); break;
        case 8: v = tg_movedim(t, 0, 2); break;
        case 9: v = tg_narrow(t, 1, 0, 1); break;
        case 10: v = tg_select(t, 1, 0); break;
        case 11: v = tg_slice(t, 2, 0, 2, 2); break;
        case 12: v = tg_diagonal(t, 0, 1, 2); break;
        case 13: v = tg_unfold(t, 1, 1, 1); break;
        case 14: v = first(tg_split(t, 1, 1, pieces, 8), pieces); break;
        case 15: v = first(tg_chunk(t, 2, 1, pieces, 8), pieces); break;
        case 16: v = first(tg_unbind(t, 1, pieces, 8), pieces); break;
        case 17: v = tg_detach(t); break;
        default: break;
        }
        if (!CHECK(v != NULL && tg_data(v) == tg_data(t))) continue;
        tg_fill_(v, 9);
        CHECK(tg_get(t, TG_INDEX(0, 0, 0)) == 9);
        CHECK(tg_version_of(v) == 1 && tg_version_of(t) == 1); /* 2.47 */
    }
    {
        tg_tensor *t = ones(2, 3), *e = tg_expand(ones(1), TG_SHAPE(5));
        CHECK(tg_contiguous(t) == t && tg_contiguous(tg_t(t)) != t && tg_stride(e, 0) == 0);
        CHECK(tg_data(tg_clone(t)) != tg_data(t) && tg_data(tg_reshape(tg_t(t), TG_SHAPE(6))) != tg_data(t));
        CHECK(tg_is_contiguous(tg_reshape(tg_t(t), TG_SHAPE(6))));
    }
    for (k = 0; k < 2; ++k) { /* 2.52 */
        tg_tensor *y = tg_mul_scalar(leaf("[1, 2]"), 2);
        CHECK((k ? tg_split(y, 1, 0, pieces, 8) : tg_unbind(y, 0, pieces, 8)) == 2);
        refuse(tg_mul_scalar_(pieces[0], 2),
               "is a view and is being modified inplace. This view is the output of a function that returns "
               "multiple views.");
    }
}

/* ---- the layout of results: as PyTorch's ---- */

static bool has_strides(tg_tensor *t, tg_shape wanted)
{
    bool same = t && tg_ndim(t) == wanted.ndim;
    int i;
    for (i = 0; same && i < wanted.ndim; ++i) same = tg_stride(t, i) == wanted.dim[i];
    return same;
}

TEST(layouts_of_results)
{
    tg_tensor *x = ones(2, 2), *a = tg_permute(ones(2, 3, 4), TG_SHAPE(2, 0, 1)), *column = ones(2, 1);
    tg_tensor *e = tg_expand(tg_t(ones(3, 1)), TG_SHAPE(4, 3)), *wide = tg_t(ones(4, 3));
    CHECK(has_strides(tg_neg(tg_t(x)), TG_SHAPE(1, 2)) && has_strides(tg_isnan(tg_t(x)), TG_SHAPE(1, 2)));
    CHECK(has_strides(tg_add(tg_t(x), x), TG_SHAPE(1, 2)) && has_strides(tg_add(x, tg_t(x)), TG_SHAPE(2, 1)));
    CHECK(has_strides(tg_mul(tg_t(x), column), TG_SHAPE(1, 2)) && has_strides(tg_mul(column, tg_t(x)), TG_SHAPE(1, 2)));
    CHECK(has_strides(tg_where(tg_gt_scalar(x, 0), tg_t(x), x), TG_SHAPE(1, 2)));
    CHECK(has_strides(tg_mul(ones(3, 1), ones(4)), TG_SHAPE(4, 1)) && has_strides(tg_exp(e), TG_SHAPE(3, 1)));
    CHECK(has_strides(tg_exp(a), TG_SHAPE(1, 12, 4)) && has_strides(tg_mul(a, ones(4, 1, 1)), TG_SHAPE(1, 12, 4)));
    CHECK(has_strides(tg_exp(tg_slice(a, 0, 0, 4, 2)), TG_SHAPE(1, 6, 2)));
    CHECK(has_strides(tg_exp(tg_slice(wide, 1, 0, 4, 2)), TG_SHAPE(1, 3)));
    CHECK(has_strides(tg_exp(tg_expand(a, TG_SHAPE(5, 4, 2, 3))), TG_SHAPE(24, 1, 12, 4)));
    tg_set_requires_grad(wide, true); /* the gradient of a transposed leaf is made where its incoming one lies */
    CHECK(tg_backward(tg_sum(tg_sigmoid(wide))) == TG_OK && has_strides(tg_grad(wide), TG_SHAPE(1, 3)));
}

/* ---- dims ---- */

#define DIM_CALLS(OP)                                                                                                  \
    OP(tg_sum_dim(x, d, false))                                                                                        \
    OP(tg_mean_dim(x, d, false)) OP(tg_prod_dim(x, d, false)) OP(tg_amax_dim(x, d, false))                             \
        OP(tg_amin_dim(x, d, false)) OP(tg_any_dim(x, d, false)) OP(tg_all_dim(x, d, false))                           \
            OP(tg_logsumexp_dim(x, d, false)) OP(tg_var_dim(x, d, 1, false)) OP(tg_std_dim(x, d, 1, false))            \
                OP(tg_norm_dim(x, 2, d, false)) OP(tg_max_dim(x, d, false, NULL)) OP(tg_min_dim(x, d, false, NULL))    \
                    OP(tg_argmax(x, d, false)) OP(tg_argmin(x, d, false)) OP(tg_cumsum(x, d)) OP(                      \
                        tg_sort(x, d, false, NULL)) OP(tg_topk(x, 1, d, true, NULL)) OP(tg_softmax(x, d))              \
                        OP(tg_log_softmax(x, d)) OP(tg_squeeze(x, d)) OP(tg_flatten(x, d, -1)) OP(tg_flatten(x, 0, d)) \
                            OP(tg_transpose(x, d, 0)) OP(tg_transpose(x, 0, d)) OP(tg_movedim(x, d, 0))                \
                                OP(tg_movedim(x, 0, d)) OP(tg_permute(x, TG_DIMS(0, d))) OP(tg_narrow(x, d, 0, 1))     \
                                    OP(tg_select(x, d, 0)) OP(tg_slice(x, d, 0, 1, 1)) OP(tg_diagonal(x, 0, d, 0))     \
                                        OP(tg_diagonal(x, 0, 0, d)) OP(tg_unfold(x, d, 1, 1))                          \
                                            OP(tg_split(x, 1, d, pieces, 8)) OP(tg_chunk(x, 2, d, pieces, 8))          \
                                                OP(tg_unbind(x, d, pieces, 8)) OP(tg_cat(&x, 1, d))                    \
                                                    OP(tg_flip(x, TG_DIMS(d))) OP(tg_roll(x, TG_DIMS(1), TG_DIMS(d)))  \
                                                        OP(tg_sum_dims(x, TG_DIMS(d), false))                          \
                                                            OP(tg_index_select(x, d, i64("[0]")))                      \
                                                                OP(tg_gather(x, d, i64("[[0]]")))                      \
                                                                    OP(tg_take_along_dim(x, i64("[[0]]"), d))          \
                                                                        OP(tg_scatter(x, d, i64("[[0]]"), x))          \
                                                                            OP(tg_scatter_add(x, d, i64("[[0]]"), x))  \
                                                                                OP(tg_index_add(x, d, i64("[0]"), x))

/* Every dim argument: refused beyond either end, as the last one on from there. */
TEST(dims_out_of_range)
{
    tg_tensor *x = ones(2, 3), *pieces[8];
    int64_t far = (int64_t)1 << 32;
    int k;
    for (k = 0; k < 4; ++k) {
        int d = k == 0 ? 2 : k == 1 ? -3 : k == 2 ? INT_MAX : INT_MIN;
        char words[120];
        snprintf(words, sizeof words, "Dimension out of range (expected to be in range of [-2, 1], but got %d)", d);
#define REFUSE_DIM(call) refuse(call, words);
        DIM_CALLS(REFUSE_DIM)
    }
    refuse(tg_unsqueeze(x, -4), "Dimension out of range (expected to be in range of [-3, 2], but got -4)");
    refuse(tg_stack(&x, 1, 3), "Dimension out of range (expected to be in range of [-3, 2], but got 3)");
    refuse(tg_sum_dims(x, TG_DIMS(far), false), "Dimension out of range"); /* does not fit an int */
    refuse(tg_flip(x, TG_DIMS(-far)), "Dimension out of range");
    refuse(tg_permute(x, TG_DIMS(0, far + 1)), "Dimension out of range");
    x = tg_scalar(1);
    refuse(tg_split(x, 1, 0, pieces, 8), "split expects at least a 1-dimensional tensor");
    refuse(tg_chunk(x, 1, 0, pieces, 8), "chunk expects at least a 1-dimensional tensor");
    refuse(tg_softmax(x, 1), "Dimension out of range (expected to be in range of [-1, 0], but got 1)");
    expect(tg_softmax(x, -1), "1");
    expect(tg_amax_dim(x, 0, true), "1");
    expect(tg_max_dim(x, 0, false, &pieces[0]), "1");
    expect(pieces[0], "0");
    expect(tg_index_select(x, 0, i64("[0]")), "1");
    expect(tg_index_select(ones(1), 0, i64("0")), "[1]");
    refuse(tg_index_select(x, 0, i64("[0, 0]")), "Index to scalar can have only 1 value, got 2 value(s)");
    expect(tg_mean_dim(x, -1, false), "1");
    expect(tg_norm_dim(x, INFINITY, 0, false), "1");
}

/* ---- random numbers, comparing ---- */

/* The same bits on every device. */
static tg_tensor *random_numbers(int kind, tg_device device)
{
    tg_seed(4);
    switch (kind) {
    case 0: return tg_rand_on(TG_SHAPE(1001), TG_F32, device);
    case 1: return tg_rand_on(TG_SHAPE(1001), TG_F64, device);
    case 2: return tg_randn_on(TG_SHAPE(1001), TG_F32, device);
    case 3: return tg_randn_on(TG_SHAPE(1001), TG_F64, device);
    case 4: return tg_randint_on(-5, 50, TG_SHAPE(999), TG_I64, device);
    default: return tg_dropout(tg_ones_on(TG_SHAPE(999), TG_F32, device), 0.3, true);
    }
}

TEST(random)
{
    tg_tensor *a, *b, *p;
    tg_rng state;
    int i;
    tg_seed(42);
    a = tg_rand_on(TG_SHAPE(20000), TG_F64, HERE);
    CHECK(tg_item(tg_amin(a)) >= 0 && tg_item(tg_amax(a)) < 1);
    CHECK_NEAR(tg_item(tg_mean(a)), 0.5, 0.01);
    CHECK_NEAR(tg_item(tg_var(a)), 1.0 / 12, 0.01);
    a = tg_randn_on(TG_SHAPE(20000), TG_F64, HERE);
    CHECK_NEAR(tg_item(tg_mean(a)), 0, 0.03);
    CHECK_NEAR(tg_item(tg_var(a)), 1, 0.03);
    CHECK_NEAR(tg_item(tg_mean(tg_pow_scalar(a, 4))), 3, 0.1);
    a = tg_randint(-3, 4, TG_SHAPE(7000));
    CHECK(tg_dtype_of(a) == TG_I64 && tg_item_i64(tg_amin(a)) == -3 && tg_item_i64(tg_amax(a)) == 3);
    for (i = -3; i < 4; ++i) { CHECK_NEAR(tg_item(tg_mean(tg_to_dtype(tg_eq_scalar(a, i), TG_F64))), 1.0 / 7, 0.02); }
    a = tg_randint(((int64_t)1 << 53) - 3, (int64_t)1 << 53, TG_SHAPE(50));
    CHECK(tg_item_i64(tg_amin(a)) == ((int64_t)1 << 53) - 3 && tg_item_i64(tg_amax(a)) == ((int64_t)1 << 53) - 1);
    refuse(tg_randint((int64_t)1 << 62, ((int64_t)1 << 62) + 3, TG_SHAPE(2)), "bounds must lie within 2^53");
    p = tg_randperm(50);
    CHECK(tg_equal(tg_sort(p, 0, false, NULL), tg_arange_on(0, 50, 1, TG_I64, HERE)));
    CHECK(!tg_equal(p, tg_arange_on(0, 50, 1, TG_I64, HERE)) && tg_numel(tg_randperm(0)) == 0);
    a = tg_bernoulli_on(TG_SHAPE(10000), 0.3, TG_F32, HERE);
    CHECK_NEAR(tg_item(tg_mean(a)), 0.3, 0.02);
    CHECK(tg_equal(tg_mul(a, a), a));
    for (i = 0; i < 6; ++i) CHECK(tg_equal(tg_cpu(random_numbers(i, HERE)), random_numbers(i, TG_CPU)));
    /* the seed, and the state, say everything */
    tg_seed(7), a = tg_randn(TG_SHAPE(9));
    state = tg_rng_state();
    b = tg_rand(TG_SHAPE(5));
    tg_rng_set_state(state);
    CHECK(tg_equal(b, tg_rand(TG_SHAPE(5))));
    tg_seed(7);
    CHECK(tg_equal(a, tg_randn(TG_SHAPE(9))) && !tg_equal(a, tg_randn(TG_SHAPE(9))));
    tg_seed(8);
    CHECK(!tg_equal(a, tg_randn(TG_SHAPE(9))));
    /* a call takes counters by elements, not by shape */
    tg_seed(7);
    CHECK(tg_equal(tg_reshape(tg_randn(TG_SHAPE(3, 3)), TG_SHAPE(9)), a));
    CHECK(tg_dtype_of(tg_rand_like(f64("[1]"))) == TG_F64 &&
          same_shape(tg_shape_of(tg_randn_like(ones(2, 3))), TG_SHAPE(2, 3)));
    CHECK(tg_dtype_of(tg_randint_on(0, 9, TG_SHAPE(2), TG_U8, HERE)) == TG_U8 &&
          tg_numel(tg_rand(TG_SHAPE(0, 2))) == 0);
    CHECK(tg_dtype_of(tg_rand(TG_SHAPE(1))) == TG_F32 && !tg_requires_grad(a));
    refuse(tg_randint(3, 3, TG_SHAPE(2)), "from");
    refuse(tg_randperm(-1), "");
    refuse(tg_bernoulli_on(TG_SHAPE(2), 1.5, TG_F32, HERE), "");
    refuse(tg_rand_on(TG_SHAPE(2), TG_I64, HERE), "");
}

TEST(comparing)
{
    CHECK(tg_equal(f64("[1, 2]"), f32("[1, 2]")) && !tg_equal(f64("[1, 2]"), f64("[1, 3]")));
    CHECK(!tg_equal(f64("[1, nan]"), f64("[1, nan]")) && !tg_equal(f64("[1]"), f64("[[1]]")) &&
          !tg_equal(f64("[1]"), f64("1")));
    CHECK(tg_equal(ones(0, 3), ones(0, 3)) && !tg_equal(ones(0, 3), ones(0, 2)) && tg_equal(f64("[0]"), f64("[-0.]")));
    CHECK(!tg_equal(i64("[9007199254740993]"), i64("[9007199254740992]")));
    CHECK(tg_equal(tg_t(f64("[[1, 2], [3, 4]]")), f64("[[1, 3], [2, 4]]")));
    CHECK(tg_equal(tg_t(i64("[[1, 2], [3, 4]]")), i64("[[1, 3], [2, 4]]")) && !tg_equal(i64("[1, 2]"), i64("[1, 3]")));
    CHECK(tg_equal(i64("[1, 2]"), of(TG_U8, "[1, 2]")) && !tg_equal(boolean("[1, 0]"), boolean("[1, 1]")));
    CHECK(tg_allclose(f64("[100, 0]"), f64("[101, 0.001]"), 0.01, 0.001) &&
          !tg_allclose(f64("[100]"), f64("[101.1]"), 0.01, 0));
    CHECK(!tg_allclose(f64("[nan]"), f64("[nan]"), 1, 1) && tg_allclose(f64("[inf, -inf]"), f64("[inf, -inf]"), 0, 0));
    CHECK(!tg_allclose(f64("[1]"), f64("[inf]"), 1, 1) && !tg_allclose(f64("[inf, 1]"), f64("[inf, 2]"), 0, 0.5));
    CHECK(tg_allclose(f64("[inf, 1]"), f64("[inf, 2]"), 0, 1));
    CHECK(!tg_allclose(f64("[inf]"), f64("[-inf]"), 1, 1) && !tg_allclose(f64("[inf]"), f64("[1]"), 1e300, 1e300));
    CHECK(tg_ok());
    CHECK_FAILS(tg_equal(NULL, ones(1)), "NULL");
    CHECK_FAILS(tg_allclose(ones(1), NULL, 0, 0), "NULL");
}

/* ---- sizes beyond one block, register or thread ---- */

static double element(const tg_tensor *t, const double *data, int64_t i, int64_t k)
{
    return data[i * tg_stride(t, 0) + k * tg_stride(t, 1)];
}

/* Seven images, whose columns are made four at a time, against one after the other. */
TEST(convolutions_in_parts)
{
    enum { IMAGES = 7 };
    tg_tensor *x, *w, *in_[2], *whole[2], *grad[2], *y, *one[IMAGES], *one_x[IMAGES], *sum = NULL;
    int i;
    tg_seed(3);
    in_[0] = x = tg_set_requires_grad(tg_randn_on(TG_SHAPE(IMAGES, 2, 40, 40), TG_F64, HERE), true);
    in_[1] = w = tg_set_requires_grad(tg_randn_on(TG_SHAPE(3, 2, 3, 3), TG_F64, HERE), true);
    y = tg_conv2d(x, w, NULL, TG_SHAPE(1), TG_SAME, TG_SHAPE(1), 1);
    CHECK(tg_gradients(&y, 1, &y, in_, 2, whole, 0) == TG_OK);
    for (i = 0; i < IMAGES; ++i) {
        in_[0] = tg_set_requires_grad(tg_detach(tg_select(x, 0, i)), true);
        one[i] = tg_conv2d(in_[0], w, NULL, TG_SHAPE(1), TG_SAME, TG_SHAPE(1), 1);
        CHECK(tg_gradients(&one[i], 1, &one[i], in_, 2, grad, 0) == TG_OK);
        one_x[i] = grad[0], sum = sum ? tg_add(sum, grad[1]) : grad[1];
    }
    CHECK(tg_allclose(y, tg_stack(one, IMAGES, 0), 1e-12, 1e-12));
    CHECK(tg_allclose(whole[0], tg_stack(one_x, IMAGES, 0), 1e-12, 1e-12));
    CHECK(tg_allclose(whole[1], sum, 1e-12, 1e-9));
    y = tg_to_dtype(x, TG_BF16), w = tg_to_dtype(w, TG_BF16); /* the parts of the weight's gradient are summed in f32 */
    y = tg_conv2d(y, w, NULL, TG_SHAPE(1), TG_SAME, TG_SHAPE(1), 1);
    in_[0] = x, in_[1] = w;
    CHECK(tg_gradients(&y, 1, &y, in_, 2, grad, 0) == TG_OK);
    CHECK(tg_allclose(tg_to_dtype(grad[1], TG_F64), sum, 0, 0.02 * tg_item(tg_amax(tg_abs(sum)))));
}

/* The gradient of x where steps of windows are longer than 1: each element is seen by taps of its own. */
TEST(strided_convolutions)
{
    static const int64_t channels[2] = {2, 20}; /* phases share a panel of the weight, or each has its own */
    for (int i = 0; i < 2 * 2 * 3 * 4 * 2; ++i) {
        const int64_t stride = 2 + i / 2 % 2, padding = i / 4 % 3, kernel = 1 + i / 12 % 4, dilation = 1 + i / 48;
        tg_tensor *in[2][2], *y[2], *x[2];
        TG_SCOPE;
        tg_seed(3);
        in[0][0] = tg_set_requires_grad(tg_randn_on(TG_SHAPE(2, channels[i % 2], 23, 20), TG_F64, HERE), true);
        in[0][1] = tg_randn_on(TG_SHAPE(5, channels[i % 2], kernel, kernel), TG_F64, HERE);
        in[1][0] = tg_set_requires_grad(tg_to_dtype(tg_detach(in[0][0]), TG_F32), true);
        in[1][1] = tg_to_dtype(in[0][1], TG_F32);
        for (int k = 0; k < 2; ++k) {
            y[k] = tg_conv2d(in[k][0], in[k][1], NULL, TG_SHAPE(stride), TG_SHAPE(padding), TG_SHAPE(dilation), 1);
            CHECK(tg_gradients(&y[k], 1, &y[k], in[k], 1, &x[k], 0) == TG_OK);
        }
        CHECK(tg_allclose(tg_to_dtype(x[1], TG_F64), x[0], 1e-4, 1e-6 * tg_item(tg_amax(tg_abs(x[0])))));
    }
}

TEST(large_products)
{
    static const int sizes[][3] = {{1, 300, 1},     {7, 65, 9},   {33, 129, 70},
                                   {130, 257, 100}, {3, 1000, 5}, {200, 3, 200}};
    int s, form;
    for (s = 0; s < (small ? 3 : 6); ++s) {
        int64_t rows = sizes[s][0], inner = sizes[s][1], columns = sizes[s][2], i, j, k;
        for (form = 0; form < 4; ++form) {
            tg_tensor *a, *b, *y, *narrow;
            double *out, worst = 0, worst_f32 = 0;
            tg_mark mark = tg_scope_begin();
            tg_seed(3);
            a = form & 1 ? tg_t(tg_randn_on(TG_SHAPE(inner, rows), TG_F64, HERE))
                         : tg_randn_on(TG_SHAPE(rows, inner), TG_F64, HERE);
            b = form & 2 ? tg_t(tg_randn_on(TG_SHAPE(columns, inner), TG_F64, HERE))
                         : tg_randn_on(TG_SHAPE(inner, columns), TG_F64, HERE);
            y = tg_matmul(a, b);
            narrow = tg_to_dtype(tg_matmul(tg_to_dtype(a, TG_F32), tg_to_dtype(b, TG_F32)), TG_F64);
            a = tg_cpu(a), b = tg_cpu(b), y = tg_cpu(y), narrow = tg_cpu(narrow);
            out = tg_data_f64(y);
            for (i = 0; out && i < rows; ++i) {
                for (j = 0; j < columns; ++j) {
                    double sum = 0, difference;
                    for (k = 0; k < inner; ++k) {
                        sum += element(a, (double *)tg_data(a), i, k) * element(b, (double *)tg_data(b), k, j);
                    }
                    difference = fabs(out[i * columns + j] - sum);
                    if (!(difference <= worst)) worst = difference;
                    difference = fabs(tg_data_f64(narrow)[i * columns + j] - sum);
                    if (!(difference <= worst_f32)) worst_f32 = difference;
                }
            }
            CHECK(out != NULL && worst <= 1e-12 * (double)inner);
            CHECK(worst_f32 <= 1e-6 * (double)inner);
            tg_scope_end(mark);
        }
    }
}

/* Reductions of many elements, of rows and of columns, against sums in long double. */
TEST(large_reductions)
{
    static const int64_t shapes[][2] = {{1, 100003}, {100003, 1}, {257, 391}, {3, 33001}};
    int s, d;
    for (s = 0; s < 4; ++s) {
        int64_t rows = shapes[s][0], columns = shapes[s][1];
        tg_tensor *x = (tg_seed(9), tg_randn_on(TG_SHAPE(rows, columns), TG_F64, HERE));
        tg_tensor *copy = tg_cpu(x);
        const double *data = tg_data_f64(copy);
        for (d = 0; d < 2 && data; ++d) {
            int64_t groups = d ? rows : columns, n = d ? columns : rows, i, k;
            tg_tensor *sum = tg_sum_dim(x, d, false), *largest = tg_amax_dim(x, d, false), *at_ = NULL,
                      *running = tg_cumsum(x, d);
            tg_tensor *var = tg_var_dim(x, d, 0, false), *soft = tg_logsumexp_dim(x, d, false), *narrow;
            bool good = true;
            narrow = tg_sum_dim(tg_to_dtype(x, TG_F32), d, false);
            tg_max_dim(x, d, false, &at_);
            for (i = 0; i < groups; i += 1 + groups / 50) {
                long double total = 0, squares = 0, exps = 0, mean;
                double most = -INFINITY;
                int64_t where_ = -1;
                for (k = 0; k < n; ++k) {
                    double v = d ? data[i * columns + k] : data[k * columns + i];
                    total += v;
                    exps += (long double)exp(v);
                    if (v > most) most = v, where_ = k;
                }
                mean = total / n;
                for (k = 0; k < n; ++k) {
                    double v = d ? data[i * columns + k] : data[k * columns + i];
                    squares += ((long double)v - mean) * ((long double)v - mean);
                }
                good = good && fabs(tg_get(sum, TG_INDEX(i)) - (double)total) <= 1e-9;
                good = good && fabs(tg_get(narrow, TG_INDEX(i)) - (double)total) <= 1e-3 + 1e-5 * fabs((double)total);
                good = good && tg_get(largest, TG_INDEX(i)) == most && tg_get(at_, TG_INDEX(i)) == (double)where_;
                good = good && fabs(tg_get(var, TG_INDEX(i)) - (double)(squares / n)) <= 1e-10;
                good = good && fabs(tg_get(soft, TG_INDEX(i)) - (double)logl(exps)) <= 1e-10;
                good = good && fabs((d ? tg_get(running, TG_INDEX(i, n - 1)) : tg_get(running, TG_INDEX(n - 1, i))) -
                                    (double)total) <= 1e-8;
            }
            CHECK(good);
        }
        if (small) break;
    }
    CHECK_NEAR(tg_item(tg_sum(tg_full_on(TG_SHAPE(10000000 / (small ? 100 : 10)), 0.1, TG_F32, HERE))),
               small ? 1e4 : 1e5, 1e-6);
}

/* Larger rows and tables, against other ops with the same result. */
TEST(large_rows)
{
    tg_tensor *x = (tg_seed(4), tg_randn_on(TG_SHAPE(7, 1300), TG_F64, HERE)), *at_ = NULL, *mean, *y, *q, *k, *v;
    tg_tensor *table = tg_randn_on(TG_SHAPE(50, 33), TG_F64, HERE), *ids_ = tg_randint(0, 50, TG_SHAPE(400));
    tg_tensor *hot = tg_to_dtype(tg_one_hot(ids_, 50), TG_F64), *rows = tg_randn_on(TG_SHAPE(400, 33), TG_F64, HERE);
    y = tg_exp(tg_sub(x, tg_logsumexp_dim(x, 1, true)));
    CHECK(tg_allclose(tg_softmax(x, 1), y, 1e-12, 1e-15));
    CHECK(tg_allclose(tg_log_softmax(x, 1), tg_sub(x, tg_logsumexp_dim(x, 1, true)), 1e-12, 1e-12));
    CHECK(tg_allclose(tg_softmax(tg_t(x), 0), tg_t(y), 1e-12, 1e-15));
    CHECK(tg_allclose(tg_to_dtype(tg_softmax(tg_to_dtype(x, TG_F32), 1), TG_F64), y, 1e-5, 1e-9));
    mean = tg_mean_dim(x, 1, true);
    y = tg_div(tg_sub(x, mean), tg_sqrt(tg_add_scalar(tg_var_dim(x, 1, 0, true), 1e-5)));
    CHECK(tg_allclose(tg_layer_norm(x, 1, NULL, NULL, 1e-5), y, 1e-12, 1e-12));
    CHECK(tg_allclose(tg_to_dtype(tg_layer_norm(tg_to_dtype(x, TG_F32), 1, NULL, NULL, 1e-5), TG_F64), y, 1e-5, 1e-5));
    y = tg_div(x, tg_sqrt(tg_add_scalar(tg_mean_dim(tg_square(x), 1, true), 1e-5)));
    CHECK(tg_allclose(tg_rms_norm(x, 1, NULL, 1e-5), y, 1e-12, 1e-12));
    y = tg_sort(x, 1, false, &at_);
    CHECK(tg_item(tg_all(tg_le(tg_narrow(y, 1, 0, 1299), tg_narrow(y, 1, 1, 1299)))) == 1);
    CHECK(tg_equal(tg_gather(x, 1, at_), y) && tg_item_i64(tg_sum(at_)) == 7 * 1300 * 1299 / 2);
    CHECK(tg_equal(tg_topk(x, 100, 1, true, NULL), tg_narrow(tg_sort(x, 1, true, NULL), 1, 0, 100)));
    for (int largest = 0; largest < 2; ++largest) { /* few of many: by a heap */
        tg_tensor *at_few = NULL, *few = tg_topk(x, 40, 1, largest != 0, &at_few);
        y = tg_sort(x, 1, largest != 0, &at_);
        CHECK(tg_equal(few, tg_narrow(y, 1, 0, 40)) && tg_equal(at_few, tg_narrow(at_, 1, 0, 40)));
    }
    CHECK(tg_equal(tg_flip(tg_cumsum(tg_flip(tg_ones_like(x), TG_DIMS(1)), 1), TG_DIMS(1)),
                   tg_expand(tg_arange_on(1300, 0, -1, TG_F64, HERE), TG_SHAPE(7, 1300))));
    CHECK(tg_allclose(tg_embedding(table, ids_), tg_matmul(hot, table), 1e-12, 1e-12));
    CHECK(tg_equal(tg_index_select(table, 0, ids_), tg_embedding(table, ids_)));
    CHECK(tg_allclose(tg_index_add(table, 0, ids_, rows), tg_add(table, tg_matmul(tg_t(hot), rows)), 1e-11, 1e-11));
    y = tg_expand(tg_unsqueeze(ids_, 1), TG_SHAPE(400, 33));
    CHECK(tg_allclose(tg_scatter_add(table, 0, y, rows), tg_index_add(table, 0, ids_, rows), 1e-12, 1e-12));
    q = tg_randn_on(TG_SHAPE(2, 3, 40, 16), TG_F64, HERE), k = tg_randn_like(q), v = tg_randn_like(q);
    y = tg_add(tg_div_scalar(tg_matmul(q, tg_transpose(k, -1, -2)), 4),
               tg_triu(tg_full_on(TG_SHAPE(40, 40), -1e300, TG_F64, HERE), 1));
    CHECK(tg_allclose(tg_scaled_dot_product_attention(q, k, v, NULL, 0, true, 0), tg_matmul(tg_softmax(y, -1), v),
                      1e-11, 1e-12));
}

/* Conversions of neighbours, which go by vectors, have the bits of those of every other element; NaN stays one. */
TEST(conversions_by_vectors)
{
    enum { N = 40003 };
    static float x[N];
    static const tg_dtype dtypes[] = {TG_F16, TG_BF16, TG_F64, TG_F32};
    tg_tensor *t, *apart, *close, *y;
    int i, a, b;
    for (i = 0; i < N; ++i) {
        const uint32_t bits = (uint32_t)i * 107374u; /* of all sizes */
        memcpy(&x[i], &bits, sizeof bits);
    }
    t = tg_to(tg_from_f32(x, TG_SHAPE(N)), HERE);
    for (a = 0; a < 4; ++a) {
        close = tg_to_dtype(t, dtypes[a]);
        apart = tg_select(tg_contiguous(tg_expand(tg_unsqueeze(close, 1), TG_SHAPE(N, 2))), 1, 0);
        for (b = 0; b < 4; ++b) {
            y = tg_to_dtype(close, dtypes[b]);
            CHECK(tg_equal(tg_isnan(y), tg_isnan(close)));
            CHECK(tg_equal(tg_where(tg_isnan(y), tg_zeros_like(y), y),
                           tg_where(tg_isnan(y), tg_zeros_like(y), tg_to_dtype(apart, dtypes[b]))));
        }
    }
}

/* Sizes below, at and above those of the blocks that transposes, selections, sums and products of integers go by, for
   elements of every size: against plain loops, or against the op of which they are a part. */
TEST(blocks)
{
    static const int64_t sizes[] = {1, 7, 16, 31, 33, 64, 65, 100, 300};
    static const tg_dtype dtypes[] = {TG_U8, TG_F16, TG_F32, TG_I64};
    static char in[300 * 300 * 8], out[300 * 300 * 8];
    int a, b, d, largest;
    for (a = 0; a < 9; a += small ? 3 : 1) {
        for (b = 0; b < 9; b += small ? 3 : 1) {
            for (d = 0; d < 4; ++d) {
                const int64_t rows = sizes[a], columns = sizes[b];
                const size_t size = tg_dtype_size(dtypes[d]);
                tg_mark mark = tg_scope_begin();
                tg_tensor *x = (tg_seed(7), tg_randint(0, 50, TG_SHAPE(rows, columns)));
                tg_tensor *index, *i32, *picked, *y, *at_;
                bool good = true;
                int64_t i, j, k;
                x = tg_to(tg_to_dtype(x, dtypes[d]), HERE);
                tg_copy_out(x, in, size * (size_t)(rows * columns));
                tg_copy_out(tg_contiguous(tg_t(x)), out, size * (size_t)(rows * columns));
                for (i = 0; i < rows; ++i) {
                    for (j = 0; j < columns; ++j) {
                        good = good && memcmp(in + (size_t)(i * columns + j) * size,
                                              out + (size_t)(j * rows + i) * size, size) == 0;
                    }
                }
                CHECK(good);
                index = tg_to(tg_randint(0, columns, TG_SHAPE(columns)), HERE);
                i32 = tg_to_dtype(index, TG_I32);
                picked = tg_contiguous(tg_t(tg_index_select(tg_contiguous(tg_t(x)), 0, index)));
                CHECK(tg_equal(tg_index_select(x, 1, index), picked));
                CHECK(tg_equal(tg_index_select(x, 1, i32), picked));
                for (largest = 0; largest < 2; ++largest) {
                    tg_tensor *values = tg_sort(x, 1, largest, &at_);
                    for (k = 0; k <= columns; k += 1 + columns / 9) {
                        tg_tensor *which = NULL;
                        y = tg_topk(x, k, 1, largest, &which);
                        CHECK(tg_equal(y, tg_narrow(values, 1, 0, k)) && tg_equal(which, tg_narrow(at_, 1, 0, k)));
                    }
                }
                tg_scope_end(mark);
            }
        }
    }
    for (a = 0; a < 9; a += small ? 4 : 1) { /* sums that a double holds */
        const int64_t n = sizes[a];
        tg_tensor *x = tg_to(tg_randint(-50, 50, TG_SHAPE(n, n + 3)), HERE), *y = tg_to_dtype(x, TG_F64);
        tg_tensor *wide = tg_to_dtype(tg_to(tg_randint(-50, 50, TG_SHAPE(n + 3, 5)), HERE), TG_I32);
        CHECK(tg_equal(tg_to_dtype(tg_matmul(x, tg_t(x)), TG_F64), tg_matmul(y, tg_t(y))));
        CHECK(tg_equal(tg_to_dtype(tg_matmul(tg_t(x), x), TG_F64), tg_matmul(tg_t(y), y)));
        CHECK(tg_equal(tg_to_dtype(tg_matmul(tg_to_dtype(x, TG_I32), wide), TG_F64),
                       tg_matmul(y, tg_to_dtype(wide, TG_F64))));
        y = tg_to_dtype(y, TG_F32); /* and a float */
        CHECK(tg_equal(tg_to_dtype(tg_sum(x), TG_F32), tg_sum(y)));
        CHECK(tg_equal(tg_to_dtype(tg_sum_dim(x, 0, false), TG_F32), tg_sum_dim(y, 0, false)));
        CHECK(tg_equal(tg_to_dtype(tg_sum_dim(x, 1, false), TG_F32), tg_sum_dim(y, 1, false)));
        CHECK(tg_equal(tg_sum_dim(tg_t(y), 0, false), tg_sum_dim(y, 1, false)));
    }
}

/* An operand of shape [batch, rows, columns], or one that broadcasts to it. */
enum { LIES_CONTIGUOUS, LIES_ACROSS, LIES_OUTER, LIES_APART, LIES_IN_WIDE_ROWS, LIES_COLUMN, LIES_ROW, LIES_REPEATED };
static tg_tensor *lying(int how, tg_dtype dtype, int64_t batch, int64_t rows, int64_t columns)
{
    const int64_t step = how == LIES_APART ? 2 : 1, gap = how == LIES_IN_WIDE_ROWS ? 3 : 0;
    tg_shape shape = TG_SHAPE(batch, rows, columns * step + gap);
    tg_tensor *t;
    if (how == LIES_ACROSS) shape = TG_SHAPE(batch, columns, rows);
    if (how == LIES_OUTER) shape = TG_SHAPE(rows, columns, batch);
    if (how == LIES_COLUMN || how == LIES_REPEATED) shape.dim[2] = 1;
    if (how == LIES_ROW) shape = TG_SHAPE(columns);
    t = tg_to(tg_to_dtype(tg_randint(0, dtype == TG_BOOL ? 2 : 9, shape), dtype), HERE);
    if (how == LIES_ACROSS) t = tg_transpose(t, 1, 2);
    if (how == LIES_OUTER) t = tg_permute(t, TG_SHAPE(2, 0, 1));
    if (how == LIES_REPEATED) t = tg_expand(t, TG_SHAPE(batch, rows, columns));
    if (step > 1 || gap) t = tg_slice(t, 2, gap ? 1 : 0, columns * step + (gap ? 1 : 0), step);
    return t;
}

/* Loops over operands that lie in memory in any two ways, by their blocks: elements one by one, as the plain backend
   computes them.  The sizes are those at which blocks, tiles and vectors end, and one more or less. */
TEST(blocks_of_loops)
{
    static const int64_t sizes[][3] = {{1, 5, 3}, {1, 70, 130}, {3, 33, 4}, {2, 300, 1}, {1, 3, 1100}, {2, 17, 65},
                                       {1, 65, 31}, {5, 2, 7}, {1, 1, 2100}, {2, 0, 5}, {1, 16, 64}, {40, 3, 33}};
    static const tg_dtype dtypes[] = {TG_F32, TG_F64, TG_BF16, TG_U8, TG_I64, TG_I32};
    unsigned size, k;
    int a, b;
    for (size = 0; size < sizeof sizes / sizeof *sizes; ++size) {
        for (a = LIES_CONTIGUOUS; a <= LIES_REPEATED; ++a) {
            for (b = LIES_CONTIGUOUS; b <= LIES_REPEATED; ++b) {
                for (k = 0; k < 6; ++k) {
                    const int64_t *n = sizes[size];
                    tg_mark mark = tg_scope_begin();
                    tg_tensor *x = (tg_seed(7), lying(a, dtypes[k], n[0], n[1], n[2]));
                    tg_tensor *z = lying(b, dtypes[k], n[0], n[1], n[2]);
                    tg_tensor *sum, *test, *copy, *wanted_sum, *wanted_test, *wanted_copy, *plain_x, *plain_z;
                    tg_tensor *flipped, *wanted_flipped;
                    if (small && (size + (unsigned)a + (unsigned)b + k) % 3) {
                        tg_scope_end(mark);
                        continue;
                    }
                    sum = tg_add(x, z);
                    test = tg_lt(x, z);
                    copy = tg_contiguous(tg_expand(x, TG_SHAPE(n[0], n[1], n[2])));
                    copy = tg_copy_(tg_transpose(tg_zeros_like(tg_contiguous(tg_transpose(copy, 1, 2))), 1, 2), x);
                    if (b != LIES_COLUMN && b != LIES_ROW && b != LIES_REPEATED) tg_add_(z, x); /* where z lies */
                    flipped = tg_flip(x, TG_DIMS(-1));
                    oracle_begin();
                    tg_seed(7);
                    plain_x = lying(a, dtypes[k], n[0], n[1], n[2]);
                    plain_z = lying(b, dtypes[k], n[0], n[1], n[2]);
                    wanted_sum = tg_add(plain_x, plain_z);
                    wanted_test = tg_lt(plain_x, plain_z);
                    wanted_copy = tg_contiguous(tg_expand(plain_x, TG_SHAPE(n[0], n[1], n[2])));
                    if (b != LIES_COLUMN && b != LIES_ROW && b != LIES_REPEATED) tg_add_(plain_z, plain_x);
                    wanted_flipped = tg_flip(plain_x, TG_DIMS(-1));
                    oracle_end();
                    CHECK(is_exactly(flipped, wanted_flipped));
                    CHECK(is_exactly(sum, wanted_sum) && is_exactly(test, wanted_test));
                    CHECK(is_exactly(copy, wanted_copy) && is_exactly(z, plain_z));
                    tg_scope_end(mark);
                }
            }
        }
    }
}

/* Ops beside an operand that has one element for each row, which kernels for rows take as a number: to the last bit what
   they give beside copies of that element, signs of 0 and NaN included. */
TEST(an_element_for_each_row)
{
    static tg_tensor *(*const ops[])(tg_tensor *, tg_tensor *) = {
        tg_add, tg_sub, tg_mul, tg_div, tg_maximum, tg_minimum, tg_eq, tg_ne, tg_lt, tg_le, tg_gt, tg_ge, tg_pow,
        tg_atan2};
    static const int64_t columns[] = {3, 4, 8, 17, 31, 63, 64, 65, 200, 2500};
    for (unsigned i = 0; i < 2 * 10 * sizeof ops / sizeof *ops; ++i) {
        TG_SCOPE;
        const tg_dtype dtype = i % 2 ? TG_F64 : TG_F32;
        const tg_shape shape = TG_SHAPE(3, 9, columns[i / 2 % 10]);
        tg_tensor *(*const op)(tg_tensor *, tg_tensor *) = ops[i / 20];
        tg_tensor *x = tg_to_dtype(tg_randint_on(-2, 3, shape, TG_I64, HERE), dtype); /* with 0 and -0 */
        x = tg_mul(x, tg_sub_scalar(tg_to_dtype(tg_randint_on(0, 2, shape, TG_I64, HERE), dtype), 0.5));
        tg_tensor *e = of(dtype, "[0, -0, nan, inf, -inf, 1, -1, 0.5, -3]");
        e = tg_expand(tg_reshape(e, TG_SHAPE(1, 9, 1)), TG_SHAPE(3, 9, 1));
        tg_tensor *copies = tg_contiguous(tg_expand(e, shape));
        for (int first = 0; first < 2; ++first) {
            tg_tensor *y = first ? op(e, x) : op(x, e), *wanted = first ? op(copies, x) : op(x, copies);
            tg_tensor *nan = tg_isnan(wanted);
            CHECK(tg_equal(tg_isnan(y), nan));
            y = tg_masked_fill(y, nan, 1), wanted = tg_masked_fill(wanted, nan, 1);
            CHECK(tg_equal(y, wanted) && tg_equal(tg_signbit(y), tg_signbit(wanted)));
        }
    }
}

/* Indices in memory in any way: dense, across, with gaps, the same in each row or column; of i64 and i32, many of them
   equal.  gather, scatter and sums, by loops for each size of an element, as the plain backend computes them. */
TEST(blocks_of_indices)
{
    static const int64_t sizes[][3] = {{9, 70, 4}, {33, 9, 1}, {10, 40, 3}, {9, 3, 65}, {1, 1, 1300}, {2, 300, 16}};
    static const int ways[] = {LIES_CONTIGUOUS, LIES_ACROSS, LIES_APART, LIES_IN_WIDE_ROWS};
    const bool in_order = HERE.type == TG_DEV_CPU; /* else sums that are rounded depend on their order */
    const unsigned each = !in_order ? 151 : small ? 3 : 1; /* of so many cases one is computed */
    unsigned size, way, k, count = 0;
    int how, dim;
    for (size = 0; size < sizeof sizes / sizeof *sizes; ++size) {
        for (dim = 0; dim < 3; ++dim) {
            for (how = LIES_CONTIGUOUS; how <= LIES_REPEATED && sizes[size][dim] >= 9; ++how) {
                for (way = 0; way < 4; ++way) {
                    for (k = TG_F32; k <= TG_BOOL; ++k) {
                        const int64_t *n = sizes[size];
                        const bool exact = in_order || !(k == TG_BF16 || k == TG_F16);
                        tg_shape shape = TG_SHAPE(n[0], n[1], n[2]);
                        tg_tensor *result[2][5];
                        tg_mark mark = tg_scope_begin();
                        int turn;
                        shape.dim[dim] += way == 0; /* an index may be longer than what it indexes */
                        for (turn = 0; turn < 2 && count % each == 0; ++turn) {
                            tg_tensor *x, *src, *at_, *zeros, **y = result[turn];
                            if (turn) oracle_begin();
                            tg_seed(7);
                            x = lying(ways[way], (tg_dtype)k, n[0], n[1], n[2]);
                            at_ = lying(how, k % 2 ? TG_I64 : TG_I32, shape.dim[0], shape.dim[1], shape.dim[2]);
                            at_ = tg_expand(at_, shape);
                            src = lying(ways[(way + (unsigned)how) % 4], (tg_dtype)k, shape.dim[0], shape.dim[1],
                                        shape.dim[2]);
                            if (tg_is_floating_point((tg_dtype)k) && in_order) tg_add_(src, tg_rand_like(src));
                            zeros = tg_expand(tg_zeros_on(TG_SHAPE(1, 1, 1), TG_I64, HERE), shape);
                            y[0] = tg_gather(x, dim, at_);
                            y[1] = tg_scatter(x, dim, at_, src);
                            y[2] = exact ? tg_scatter_add_(tg_clone(x), dim, at_, src) : NULL;
                            while (tg_ndim(at_) > 1) at_ = tg_select(at_, tg_ndim(at_) > dim + 1 ? -1 : 0, 0);
                            y[3] = tg_index_select(x, dim, at_);
                            y[4] = exact ? tg_scatter_add_(x, dim, zeros, src) : NULL; /* where x lies */
                            if (turn) oracle_end();
                        }
                        for (turn = 0; turn < 5 && count % each == 0; ++turn) {
                            if (exact || (turn != 2 && turn != 4)) CHECK(is_exactly(result[0][turn], result[1][turn]));
                        }
                        tg_scope_end(mark);
                        ++count;
                    }
                }
            }
        }
    }
}

/* NaN comes last in order, and equal numbers keep theirs, also among the first of many. */
TEST(first_of_many)
{
    const float x[] = {3, NAN, -INFINITY, 0.0f, -0.0f, 3, NAN, 1, INFINITY, 3, -2, 1, 3, 3, 3, 3};
    static const int64_t most[] = {1, 6}, least[] = {2, 10};
    int64_t index[2];
    tg_tensor *at_ = NULL, *t = tg_to(tg_from_f32(x, TG_SHAPE(16)), HERE);
    CHECK(isnan(tg_get(tg_topk(t, 2, 0, true, &at_), TG_INDEX(1))));
    CHECK(tg_copy_out(at_, index, sizeof index) == TG_OK && memcmp(index, most, sizeof index) == 0);
    CHECK(tg_get(tg_topk(t, 2, 0, false, &at_), TG_INDEX(1)) == -2);
    CHECK(tg_copy_out(at_, index, sizeof index) == TG_OK && memcmp(index, least, sizeof index) == 0);
    t = tg_topk(tg_narrow(t, 0, 7, 9), 1, 0, false, &at_);
    CHECK(tg_get(t, TG_INDEX(0)) == -2 && tg_item_i64(at_) == 3);
    t = tg_set_requires_grad(tg_randn_on(TG_SHAPE(3, 100), TG_F64, HERE), true);
    CHECK(tg_backward(tg_sum(tg_topk(t, 5, 1, true, &at_))) == TG_OK);
    CHECK(tg_equal(tg_sum_dim(tg_grad(t), 1, false), tg_full_on(TG_SHAPE(3), 5, TG_F64, HERE)));
    CHECK(tg_item(tg_sum(tg_gather(tg_grad(t), 1, at_))) == 15);
}

/* The same rows, as an expanded dim makes them, are sorted as others are; bool, too, and what topk keeps: few, up to a
   half, and more. */
TEST(sorts_of_repeated_rows)
{
    static const tg_dtype dtypes[] = {TG_F32, TG_BOOL, TG_F64, TG_I64, TG_U8, TG_BF16};
    for (int k = 0; k < 6; ++k) {
        for (int64_t n = 3; n < 500; n = n * 4 - 1) {
            TG_SCOPE;
            tg_tensor *x = tg_to_dtype(tg_to(tg_randint(0, k == 1 ? 2 : 40, TG_SHAPE(2, 1, n, 1)), HERE), dtypes[k]);
            tg_tensor *repeated = tg_expand(x, TG_SHAPE(2, 3, n, 4)), *whole = tg_contiguous(repeated);
            for (int descending = 0; descending < 2; ++descending) {
                tg_tensor *at_ = NULL, *at_whole = NULL, *y = tg_sort(repeated, 2, descending, &at_);
                CHECK(tg_equal(y, tg_sort(whole, 2, descending, &at_whole)) && tg_equal(at_, at_whole));
                CHECK(tg_equal(tg_gather(whole, 2, at_), y));
                for (int64_t kept = 1; kept < n; kept += 1 + n / 7) {
                    tg_tensor *which = NULL, *most = tg_topk(repeated, kept, 2, descending, &which);
                    CHECK(tg_equal(most, tg_narrow(y, 2, 0, kept)) && tg_equal(which, tg_narrow(at_, 2, 0, kept)));
                }
            }
        }
    }
}

/* Planes are padded in two dims at once; one dim after the other gives the same, and the same gradients. */
TEST(padded_planes)
{
    static const char *const modes[] = {"reflect", "replicate", "circular"};
    static const int64_t pads[][4] = {{2, 2, 2, 2}, {0, 3, 1, 0}, {-1, 2, 4, -2}, {-2, -1, 0, 0}, {4, 4, 4, 4}};
    for (int mode = 0; mode < 3; ++mode) {
        for (int k = 0; k < 5; ++k) {
            TG_SCOPE;
            const int64_t *p = pads[k];
            tg_tensor *x = tg_set_requires_grad(tg_randn_on(TG_SHAPE(3, 4, 6, 5), TG_F64, HERE), true), *dx[2], *y[2];
            y[0] = tg_pad_mode(x, TG_SHAPE(p[0], p[1], p[2], p[3]), modes[mode]);
            y[1] = tg_transpose(tg_pad_mode(x, TG_SHAPE(p[0], p[1]), modes[mode]), 2, 3);
            y[1] = tg_transpose(tg_pad_mode(y[1], TG_SHAPE(p[2], p[3]), modes[mode]), 2, 3);
            CHECK(tg_equal(y[0], y[1]));
            for (int i = 0; i < 2; ++i) {
                tg_tensor *loss = tg_sum(tg_mul(y[i], tg_reshape(tg_arange_on(0, (double)tg_numel(y[i]), 1, TG_F64, HERE),
                                                                 tg_shape_of(y[i]))));
                CHECK(tg_gradients(&loss, 1, NULL, &x, 1, &dx[i], 0) == TG_OK);
            }
            CHECK(tg_allclose(dx[0], dx[1], 1e-14, 1e-10));
        }
    }
}

static bool takes_three(const char *name)
{
    static const char *const names[] = {"where", "lerp", "addcmul", "addcdiv"};
    int i;
    for (i = 0; i < (int)(sizeof names / sizeof *names); ++i) {
        if (strcmp(name, names[i]) == 0) return true;
    }
    return false;
}

/* The pads of a long dim are taken apart from what they surround. */
TEST(long_pads)
{
    static const char *const modes[3] = {"reflect", "replicate", "circular"};
    int k;
    for (k = 0; k < 3; ++k) {
        TG_SCOPE;
        tg_tensor *x = tg_randn_on(TG_SHAPE(2, 70), TG_F64, HERE), *parts[3], *wanted, *y, *pair[2];
        pair[0] = tg_set_requires_grad(x, true);
        pair[1] = tg_set_requires_grad(tg_clone(tg_detach(x)), true);
        x = pair[1];
        parts[0] = k == 0 ? tg_flip(tg_narrow(x, 1, 1, 3), TG_DIMS(1))
                          : k == 1 ? tg_expand(tg_narrow(x, 1, 0, 1), TG_SHAPE(2, 3)) : tg_narrow(x, 1, 67, 3);
        parts[1] = x;
        parts[2] = k == 0 ? tg_flip(tg_narrow(x, 1, 67, 2), TG_DIMS(1))
                          : k == 1 ? tg_expand(tg_narrow(x, 1, 69, 1), TG_SHAPE(2, 2)) : tg_narrow(x, 1, 0, 2);
        wanted = tg_cat(parts, 3, 1);
        y = tg_pad_mode(pair[0], TG_SHAPE(3, 2), modes[k]);
        CHECK(tg_equal(y, wanted));
        CHECK(tg_equal(tg_pad_mode(x, TG_SHAPE(0, 2), modes[k]), tg_narrow(wanted, 1, 3, 72)));
        CHECK(tg_equal(tg_pad_mode(x, TG_SHAPE(3, 0), modes[k]), tg_narrow(wanted, 1, 0, 73)));
        CHECK(tg_equal(tg_pad_mode(x, TG_SHAPE(0, 0), modes[k]), x));
        CHECK(tg_backward(tg_sum(tg_mul(y, tg_detach(y)))) == TG_OK);
        CHECK(tg_backward(tg_sum(tg_mul(wanted, tg_detach(y)))) == TG_OK);
        CHECK(tg_allclose(tg_grad(pair[0]), tg_grad(pair[1]), 1e-12, 0));
    }
}

/* Every op that works element by element gives the same bits on long rows, on columns and on every other element. */
TEST(long_inputs)
{
    tg_tensor *inputs[3];
    numbers p;
    int i, k, n;
    memset(&p, 0, sizeof p);
    p.num2 = 3;
    for (i = 0; i < OP_ROWS; ++i) {
        if ((op_rows[i].flags & POINTWISE) != POINTWISE) continue;
        for (k = 0; k < 2; ++k) {
            tg_dtype dtype = k ? TG_F64 : TG_F32;
            tg_mark mark = tg_scope_begin();
            arranged how;
            tg_tensor *plain;
            harness.sample = op_rows[i].name;
            p.num = strcmp(op_rows[i].name, "logit") == 0 ? 0.25 : 2; /* its bounds are 1/4 and 3/4 */
            tg_seed((uint64_t)i);
            for (n = 0; n < 3; ++n) inputs[n] = tg_rand_on(TG_SHAPE(41, 53), dtype, HERE);
            for (n = 0; n < 3 && (op_rows[i].flags & WHOLE); ++n)
                inputs[n] = tg_randint_on(0, k ? 60 : 9, TG_SHAPE(41, 53), k ? TG_I32 : TG_U8, HERE);
            n = takes_three(op_rows[i].name) ? 3 : 2;
            if (strcmp(op_rows[i].name, "acosh") == 0) inputs[0] = tg_add_scalar(inputs[0], 1);
            if (strcmp(op_rows[i].name, "where") == 0) inputs[2] = tg_gt_scalar(inputs[2], 0.5);
            if (strcmp(op_rows[i].name, "masked_fill") == 0) inputs[1] = tg_gt_scalar(inputs[1], 0.5);
            memset(&how, 0, sizeof how);
            how.call = op_rows[i].call;
            how.p = &p;
            plain = how.call(inputs, n, &p);
            for (how.layout = TRANSPOSED; plain && how.layout < LAYOUTS; ++how.layout) {
                tg_tensor *other = arranged_call(inputs, n, &how);
                CHECK(other != NULL && tg_equal(plain, other));
            }
            CHECK(plain != NULL);
            tg_scope_end(mark);
        }
        harness.sample = NULL;
    }
}

/* ---- accuracy ---- */

static double logistic(double x) { return 1 / (1 + exp(-x)); }
static double swish(double x) { return x / (1 + exp(-x)); }
static double inverse_root(double x) { return 1 / sqrt(x); }

/* f32 functions against the C library's in f64, over the bit patterns of all floats in steps: how far off in units of
   the last place of the result (of the smallest normal number, below it).  glibc's own tanhf is 2.2 off. */
/* The optional entries on rows longer, and on more rows, than their kernels take at once, against what they replace. */
static tg_tensor *normed(tg_tensor *const *in_, int n, void *user)
{
    (void)n, (void)user;
    return tg_layer_norm(in_[0], 1, in_[1], in_[2], 1e-5);
}
static tg_tensor *rms_normed(tg_tensor *const *in_, int n, void *user)
{
    (void)n, (void)user;
    return tg_rms_norm(in_[0], 1, in_[1], 1e-5);
}
static numbers last_dim(void)
{
    numbers p;
    memset(&p, 0, sizeof p);
    p.num = 1e-5;
    p.count = 1;
    return p;
}
static tg_tensor *add_normed(tg_tensor *const *in_, int n, void *user)
{
    const numbers p = last_dim();
    (void)n, (void)user;
    return add_norm_call(false, in_[0], in_[1], in_[2], in_[3], &p);
}
static tg_tensor *add_rms_normed(tg_tensor *const *in_, int n, void *user)
{
    const numbers p = last_dim();
    (void)n, (void)user;
    return add_norm_call(true, in_[0], in_[1], in_[2], NULL, &p);
}
static tg_tensor *smoothed_loss(tg_tensor *const *in_, int n, void *user) /* user: the targets */
{
    return tg_cross_entropy_ex(in_[0], (tg_tensor *)user, n > 1 ? in_[1] : NULL, 7, n > 1 ? 0.1 : 0, TG_NONE);
}

static tg_tensor *mean_loss(tg_tensor *const *in_, int n, void *user)
{
    return tg_cross_entropy_ex(in_[0], (tg_tensor *)user, n > 1 ? in_[1] : NULL, 7, n > 1 ? 0.1 : 0, TG_MEAN);
}

static tg_tensor *lstm_stepped(tg_tensor *const *in_, int n, void *user)
{
    (void)n, (void)user;
    return lstm_call(in_[0], in_[1], in_[2]);
}
/* All gradients of the same, with a graph, so that they have gradients in turn. */
static tg_tensor *lstm_gradients(tg_tensor *const *in_, int n, void *user)
{
    tg_tensor *loss = tg_sum(tg_square(lstm_stepped(in_, n, user))), *d[3] = {NULL, NULL, NULL};
    if (tg_gradients(&loss, 1, NULL, in_, 3, d, TG_CREATE_GRAPH) != TG_OK) return NULL;
    return tg_cat(d, 3, 1);
}

static void composed_too(const char *what, tg_function call, tg_tensor *const *in_, int n, int leaves, void *user)
{
    int k, i;
    for (k = 0; k < 4; ++k) {
        TG_SCOPE;
        tg_tensor *cast[MAX_INPUTS];
        outcome fused, composed;
        for (i = 0; i < n; ++i) cast[i] = tg_to_dtype(in_[i], float_dtypes[k]), at.differentiable[i] = i < leaves;
        fused = run(call, cast, n, user, NULL);
        inside_compose(true);
        composed = run(call, cast, n, user, NULL);
        inside_compose(false);
        agree_all(what, fused, composed, n, float_tolerance[k]);
    }
}

/* Dropout that makes its mask again, and that which stores it, have the same bits. */
TEST(composed_dropout)
{
    static const tg_dtype dtypes[] = {TG_F64, TG_F32, TG_F16, TG_BF16};
    int k;
    for (k = 0; k < 4; ++k) {
        TG_SCOPE;
        tg_tensor *x = tg_randn_on(TG_SHAPE(3, 611), dtypes[k], HERE), *one, *stored;
        tg_rng after;
        tg_seed(5);
        one = tg_dropout(x, 0.3, true);
        after = tg_rng_state();
        tg_seed(5);
        inside_compose(true);
        stored = tg_dropout(x, 0.3, true);
        inside_compose(false);
        CHECK(tg_equal(one, stored) && after.offset == tg_rng_state().offset);
    }
}

TEST(composed_rows)
{
    static const int64_t rows[] = {70, 5, 1}, sizes[] = {40, 611, 2000};
    int i;
    for (i = 0; i < 3; ++i) {
        TG_SCOPE;
        const int64_t n = sizes[i], hidden = n / 16 + 1;
        tg_tensor *in_[3], *terms[4], *targets;
        tg_seed(3);
        in_[0] = tg_randn_on(TG_SHAPE(rows[i], n), TG_F64, HERE);
        in_[1] = tg_rand_on(TG_SHAPE(n), TG_F64, HERE), in_[2] = tg_randn_on(TG_SHAPE(n), TG_F64, HERE);
        targets = tg_randint_on(0, n, TG_SHAPE(rows[i]), TG_I64, HERE);
        composed_too("layer_norm", normed, in_, 3, 3, NULL);
        composed_too("rms_norm", rms_normed, in_, 2, 2, NULL);
        terms[0] = in_[0], terms[1] = tg_randn_on(tg_shape_of(in_[0]), TG_F64, HERE);
        terms[2] = in_[1], terms[3] = in_[2];
        composed_too("add_layer_norm", add_normed, terms, 4, 4, NULL);
        composed_too("add_rms_norm", add_rms_normed, terms, 3, 3, NULL);
        composed_too("cross_entropy", smoothed_loss, in_, 1, 1, targets);
        composed_too("smoothed cross_entropy", smoothed_loss, in_, 2, 1, targets);
        composed_too("mean cross_entropy", mean_loss, in_, 1, 1, targets);
        composed_too("smoothed mean cross_entropy", mean_loss, in_, 2, 1, targets);
        in_[0] = tg_randn_on(TG_SHAPE(rows[i], 4 * hidden), TG_F64, HERE);
        in_[1] = tg_randn_on(TG_SHAPE(rows[i], 4 * hidden), TG_F64, HERE);
        in_[2] = tg_randn_on(TG_SHAPE(rows[i], hidden), TG_F64, HERE);
        composed_too("lstm_cell", lstm_stepped, in_, 3, 3, NULL);
        composed_too("gradients of lstm_cell", lstm_gradients, in_, 3, 3, NULL);
    }
}

TEST(accuracy)
{
    const struct {
        const char *name;
        tg_tensor *(*fn)(tg_tensor *);
        double (*exact)(double);
        double ulps, low, high;
    } functions[] = {{"exp", tg_exp, exp, 2, -INFINITY, INFINITY},
                     {"log", tg_log, log, 2, 0, INFINITY},
                     {"tanh", tg_tanh, tanh, 2.5, -INFINITY, INFINITY},
                     {"erf", tg_erf, erf, 2, -INFINITY, INFINITY},
                     {"expm1", tg_expm1, expm1, 2, -INFINITY, INFINITY},
                     {"log1p", tg_log1p, log1p, 2, -1, INFINITY},
                     {"log2", tg_log2, log2, 2, 0, INFINITY},
                     {"log10", tg_log10, log10, 2.5, 0, INFINITY},
                     {"sqrt", tg_sqrt, sqrt, 0.51, 0, INFINITY},
                     {"rsqrt", tg_rsqrt, inverse_root, 2, 0, INFINITY},
                     {"sin", tg_sin, sin, 2, -1e5, 1e5},
                     {"cos", tg_cos, cos, 2, -1e5, 1e5},
                     {"tan", tg_tan, tan, 4, -1e5, 1e5},
                     {"atan", tg_atan, atan, 2, -INFINITY, INFINITY},
                     {"asin", tg_asin, asin, 2, -1, 1},
                     {"acos", tg_acos, acos, 2, -1, 1},
                     {"sinh", tg_sinh, sinh, 4, -INFINITY, INFINITY},
                     {"cosh", tg_cosh, cosh, 4, -INFINITY, INFINITY},
                     {"sigmoid", tg_sigmoid, logistic, 3, -80, 80},
                     {"silu", tg_silu, swish, 3, -80, 80}};
    enum { PER_CALL = 4096 };
    static float input[PER_CALL], output[PER_CALL];
    uint32_t stride = small ? 1000003 : 10007;
    int f, i, n;
    for (f = 0; f < (int)(sizeof functions / sizeof functions[0]); ++f) {
        double worst = 0, worst_at = 0;
        uint64_t bits = 0;
        char message[160];
        while (bits >> 32 == 0) {
            tg_mark mark = tg_scope_begin();
            for (n = 0; n < PER_CALL && bits >> 32 == 0; bits += stride) {
                uint32_t pattern = (uint32_t)bits;
                memcpy(&input[n], &pattern, sizeof pattern);
                if ((double)input[n] > functions[f].low && (double)input[n] < functions[f].high) ++n;
            }
            if (n) tg_copy_out(functions[f].fn(tg_from_f32(input, TG_SHAPE(n))), output, (size_t)n * sizeof output[0]);
            for (i = 0; i < n; ++i) {
                double exact = functions[f].exact((double)input[i]), error;
                if (fabs(exact) > 3.4028235677973366e38) { /* beyond half a place above the largest float */
                    error = isinf(output[i]) && (output[i] < 0) == (exact < 0) ? 0 : 1e9;
                } else {
                    int exponent;
                    frexp(fmax(fabs(exact), 1.17549435e-38), &exponent);
                    error = fabs((double)output[i] - exact) / ldexp(1, exponent - 24);
                }
                if (!(error <= worst)) worst = error, worst_at = (double)input[i];
            }
            tg_scope_end(mark);
        }
        snprintf(message, sizeof message, "%s is %.3g units off at %.9g", functions[f].name, worst, worst_at);
        harness_check(worst <= functions[f].ulps, message, __FILE__, __LINE__);
    }
}

/* Along a dim of size 0 there is nothing to do, however large the others are: walking 2^42 rows would take an hour. */
TEST(rows_of_nothing)
{
    const tg_shape shape = TG_SHAPE(0, (int64_t)1 << 40, 4);
    tg_tensor *x = tg_set_requires_grad(tg_zeros_on(shape, TG_F32, HERE), true), *at_, *y[5];
    int i;
    y[0] = tg_cumsum(x, 0);
    y[1] = tg_softmax(x, 0);
    y[2] = tg_log_softmax(x, 0);
    y[3] = tg_sort(x, 0, true, &at_);
    y[4] = tg_topk(x, 0, 0, true, NULL);
    CHECK(same_shape(tg_shape_of(at_), shape));
    for (i = 0; i < 5; ++i) {
        CHECK(y[i] && same_shape(tg_shape_of(y[i]), shape) && tg_backward(tg_sum(y[i])) == TG_OK);
        CHECK(same_shape(tg_shape_of(tg_grad(x)), shape));
    }
}

/* ---- completeness ---- */

/* Public functions of @@OPS that have a test of their own instead of a row; the last ones in test_init.c and test_fft.c. */
static const char *const tested_elsewhere[] = {
    "tril_indices", "triu_indices", "set", "equal", "allclose", "rand", "randn", "randint", "randperm", "rand_on", "randn_on", "randint_on",
    "rand_like", "randn_like", "bernoulli_on", "set_matmul_precision", "matmul_precision",
    "constant_", "uniform_", "normal_", "bernoulli_", "random_", "trunc_normal_", "xavier_uniform_",
    "xavier_normal_", "kaiming_uniform_", "kaiming_normal_", "orthogonal_", "calculate_gain",
    "grad_scaler_scale", "logspace", "fft_fftfreq", "fft_rfftfreq", "hann_window", "hamming_window", "blackman_window",
    "bartlett_window", "kaiser_window"};

static bool has_samples(const char *name)
{
    char without[80];
    int i;
    for (i = 0; i < OP_ROWS; ++i) {
        if (strcmp(op_rows[i].name, name) == 0) return true;
    }
    for (i = 0; i < (int)(sizeof tested_elsewhere / sizeof tested_elsewhere[0]); ++i) {
        if (strcmp(tested_elsewhere[i], name) == 0) return true;
    }
    snprintf(without, sizeof without, "%s", name);
    if (strlen(without) && without[strlen(without) - 1] == '_') {
        without[strlen(without) - 1] = 0;
        for (i = 0; i < TWIN_ROWS; ++i) {
            if (strcmp(twins[i].name, without) == 0) return true;
        }
    }
    return false;
}

/* Whether the op is recorded only where the backend has an entry for all of it. */
static bool is_optional(const char *name)
{
    static const char *const names[] = {"layer_norm", "rms_norm", "add_layer_norm", "add_rms_norm", "lstm_cell",
                                        "cross_entropy", "scaled_dot_product_attention", "dropout",
                                        "channel_norm", "embedding_bag"};
    for (int i = 0; i < (int)(sizeof names / sizeof *names); ++i) {
        if (strcmp(names[i], name) == 0) return true;
    }
    return false;
}

/* Whether the backend under test has no entry for the op, so that it is composed of others and never recorded. */
static bool is_composed_here(const char *name)
{
    if (!tg_is_cuda(ones(1, 1))) return strcmp(name, "linear_gelu") == 0;
    return strcmp(name, "channel_norm") == 0 || strcmp(name, "embedding_bag") == 0;
}

TEST(every_row_of_the_op_table_has_samples)
{
    const char *name, *formula;
    bool has_rule, composed = harness_skips_plain("the rules of fused ops");
    int i;
    for (i = 0; (name = inside_op(i, &has_rule, &formula)) != NULL; ++i) {
        char message[160];
        if (!CHECK(i < (int)(sizeof seen / sizeof *seen))) break;
        snprintf(message, sizeof message, "op %s has no samples", name);
        harness_check(has_samples(name), message, __FILE__, __LINE__);
        if (!has_rule) continue;
        snprintf(message, sizeof message, "no backward has run the rule of %s", name);
        if (composed && is_optional(name)) continue;
        if (!is_composed_here(name)) harness_check(seen[i], message, __FILE__, __LINE__);
        snprintf(message, sizeof message, "op %s has a rule, but no formula", name);
        harness_check(formula && *formula, message, __FILE__, __LINE__);
    }
}

TEST(every_flag_of_a_row_is_shown_by_a_sample)
{
    const char *name, *formula;
    bool has_rule;
    int i;
    for (i = 0; (name = inside_op(i, &has_rule, &formula)) != NULL; ++i) {
        int flags = inside_op_flags(i);
        char message[160];
        /* reductions over all dims, which no caller names */
        if (strcmp(name, "max") == 0 || strcmp(name, "min") == 0) flags &= ~INSIDE_DIMS;
        snprintf(message, sizeof message, "no sample shows flags %d of op %s", flags & ~shown[i], name);
        harness_check((flags & ~shown[i]) == 0, message, __FILE__, __LINE__);
    }
}

static bool waits(tg_tensor *(*move)(tg_tensor *), tg_tensor *t)
{
    int64_t before = waits_for_device();
    return move(t) != NULL && waits_for_device() > before;
}

/* A call waits for the device if and only if tg_op_waits says so.  Moves wait only when they leave the device. */
TEST(ops_that_wait)
{
    tg_tensor *x = ones(2, 3);
    int i;
    if (!tg_is_cuda(x)) return;
    for (i = 0; i < OP_ROWS; ++i) {
        const char *name = op_rows[i].name;
        char message[160];
        if (strcmp(name, "to") == 0 || strcmp(name, "copy_") == 0) continue;
        snprintf(message, sizeof message, "%s waits: %d, but tg_op_waits says %d", name, waited[i], tg_op_waits(name));
        harness_check(waited[i] == tg_op_waits(name), message, __FILE__, __LINE__);
    }
    CHECK(waits(tg_cpu, x) && tg_op_waits("to") && tg_op_waits("copy_") && !waits(tg_cuda, x) && !waits(tg_clone, x));
}

/* Reads the declarations of @@OPS. */
TEST(every_public_op_has_samples)
{
    FILE *header = fopen("tensorgrad.h", "r");
    char line[600], message[160];
    bool inside = false;
    int found = 0;
    if (!CHECK(header != NULL)) return; /* run it from the top of the repository */
    while (fgets(line, sizeof line, header)) {
        char *end = strchr(line, '('), *name = end;
        if (strstr(line, "/* ======== @@")) inside = strstr(line, "@@OPS") != NULL, found += inside;
        if (found && !inside) break; /* the second @@OPS is the implementation */
        if (!inside || !end || strncmp(line, "TG_API", 6) != 0) continue;
        while (isalnum((unsigned char)name[-1]) || name[-1] == '_') --name;
        *end = 0;
        found++;
        snprintf(message, sizeof message, "%s has no samples", name);
        harness_check(has_samples(name + 3), message, __FILE__, __LINE__);
    }
    CHECK(found > 200);
    fclose(header);
}

static void run_tests(void)
{
    run_samples();
    RUN(promotion);
    RUN(mixed_dtype_gradients);
    RUN(narrow_integers);
    RUN(integers);
    RUN(halves);
    RUN(in_place_errors);
    RUN(what_is_saved);
    RUN(broadcast_patterns);
    RUN(views_share_storage);
    RUN(layouts_of_results);
    RUN(dims_out_of_range);
    RUN(random);
    RUN(comparing);
    RUN(convolutions_in_parts);
    RUN(strided_convolutions);
    RUN(large_products);
    RUN(large_reductions);
    RUN(large_rows);
    RUN(conversions_by_vectors);
    RUN(blocks);
    RUN(blocks_of_loops);
    RUN(an_element_for_each_row);
    RUN(blocks_of_indices);
    RUN(first_of_many);
    RUN(sorts_of_repeated_rows);
    RUN(padded_planes);
    RUN(long_inputs);
    RUN(long_pads);
    RUN(composed_rows);
    RUN(composed_dropout);
    RUN(accuracy);
    RUN(rows_of_nothing);
    if (!harness.only && harness.parts == 1) { /* these need all rows to have run */
        RUN(every_flag_of_a_row_is_shown_by_a_sample);
        RUN(every_row_of_the_op_table_has_samples);
        RUN(ops_that_wait);
    }
    RUN(every_public_op_has_samples);
    check_rows("test_ops");
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    harness_take_device();
    small = getenv("SMALL") != NULL;
    if (small) tg_set_cache_limit(0); /* so that a memory checker sees every use after free */
    if (getenv("TG_TEST_HASHES")) CHECK((hashes = fopen(getenv("TG_TEST_HASHES"), "w")) != NULL);
#ifdef CUDASIM
    if (getenv("TG_TEST_MEMORY"))
        run_memory();
    else
#endif
        run_tests();
    if (hashes) CHECK(fclose(hashes) == 0);
    CHECK(tg_shutdown() == TG_OK);
    return harness_end();
}
