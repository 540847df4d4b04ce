/* Every op of the library, from the table in samples.h: values, gradients and gradients of gradients against differences,
 * memory layouts, aliased operands, incoming gradients of any layout, dtypes, NaN, in-place twins, leaks.  The test of
 * completeness at the end fails when an op of the op table, or a public function, has no samples.
 *
 *     test_ops [text]       only the rows and tests whose name contains the text
 *     SMALL=1 test_ops      fewer layouts, for sanitizers and simulators */
#define TENSORGRAD_IMPLEMENTATION
#include "tensorgrad.h"
#include "harness.h"
#include "samples.h"

static bool small;
static bool seen[TGI_OP_COUNT]; /* ops whose rule a backward has run */

/* ---- layouts ---- */

enum { CONTIGUOUS, TRANSPOSED, SLICED, OFFSET, LAYOUTS };
static const char *const layout_names[] = {"contiguous", "transposed", "sliced", "offset"};

/* What must never be read: NaN, or 1 where integers live. */
static tg_tensor *filler(tg_tensor *x) { return tg_is_floating_point(tg_dtype_of(x)) ? tg_full_like(x, NAN) : tg_ones_like(x); }

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
        pair[0] = pair[2] = filler(tg_ones_on(TG_SHAPE(3), tg_dtype_of(x), TG_CPU)), pair[1] = tg_flatten(x, 0, -1);
        return tg_view(tg_narrow(tg_cat(pair, 3, 0), 0, 3, tg_numel(x)), tg_shape_of(x));
    }
    return x;
}

/* The op on inputs arranged in a layout, or expanded from their first slice along dim 0 (and made contiguous, for comparing). */
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

typedef struct {
    tg_tensor *y, *grad[MAX_INPUTS];
} outcome;

/* A gradient for y: numbers without a pattern, in y's dtype. */
static tg_tensor *cotangent(tg_tensor *y)
{
    static double value[4096];
    int64_t i, n = tg_numel(y);
    uint64_t state = 88172645463325252u;
    if (n > 4096) abort();
    for (i = 0; i < n; ++i) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        value[i] = (double)(state >> 40) / (double)(1 << 23) - 1;
    }
    return tg_to_dtype(tg_from_f64(value, tg_shape_of(y)), tg_dtype_of(y));
}

/* Backward of y from g by steps, noting whose rules ran. */
static bool step_back(tg_tensor *y, tg_tensor *g, int flags)
{
    tg_backward_run *run = tg_backward_begin(&y, 1, &g, flags);
    tg_step_info info;
    int i;
    if (!run) return false;
    while (tg_backward_step(run, &info)) {
        for (i = 0; i < TGI_OP_COUNT; ++i) {
            if (strcmp(tgi_op_row(i)->name, info.op) == 0) seen[i] = true;
        }
    }
    return tg_backward_end(run) == TG_OK;
}

/* Runs call on leaves with the elements of `in_` and goes back from g (made up when NULL). */
static outcome run(tg_function call, tg_tensor *const *in_, int n, void *user, tg_tensor *g)
{
    outcome result;
    tg_tensor *leaves[MAX_INPUTS];
    int i;
    memset(&result, 0, sizeof result);
    for (i = 0; i < n; ++i) {
        leaves[i] = tg_detach(in_[i]);
        if (at.differentiable[i]) tg_set_requires_grad(leaves[i], true);
    }
    tg_seed(1);
    result.y = call(leaves, n, user);
    if (!result.y || !tg_requires_grad(result.y)) return result;
    if (!step_back(result.y, g ? g : cotangent(result.y), 0)) return result;
    for (i = 0; i < n; ++i) result.grad[i] = tg_grad(leaves[i]);
    return result;
}

static bool fail(const char *what, const char *detail)
{
    char message[400];
    snprintf(message, sizeof message, "%s: %s", what, detail);
    return harness_check(false, message, __FILE__, at.line);
}

/* One check: the same shape and elements; to the last bit (but for the signs of NaN and 0) if the tolerance is 0, else within
   it relative to the largest. */
static bool agree(const char *what, tg_tensor *a, tg_tensor *b, double tolerance)
{
    static double x[4096], y[4096];
    char detail[200];
    double largest = 0;
    int64_t i, n;
    if (!a && !b) return true;
    if (!a || !b) return fail(what, a ? "the other has none" : "there is none");
    if (!same_shape(tg_shape_of(a), tg_shape_of(b))) return fail(what, "different shapes");
    n = tg_numel(a);
    tg_copy_out(tg_to_dtype(tg_detach(a), TG_F64), x, (size_t)n * sizeof x[0]);
    tg_copy_out(tg_to_dtype(tg_detach(b), TG_F64), y, (size_t)n * sizeof y[0]);
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

static void agree_all(const char *what, outcome a, outcome b, int n, double tolerance)
{
    char text_[160];
    int i;
    snprintf(text_, sizeof text_, "%s: output", what);
    agree(text_, a.y, b.y, tolerance);
    for (i = 0; i < n; ++i) {
        snprintf(text_, sizeof text_, "%s: gradient of input %d", what, i);
        agree(text_, a.grad[i], b.grad[i], tolerance);
    }
}

/* ---- the checks that a sample goes through ---- */

static double bits_or_nearly(void) { return at.row->flags & EXACT ? 0 : 1e-12; }

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
        if (differences && (!small || layout == CONTIGUOUS)) check_against_differences(at.in, &how, layout_names[layout]);
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
        agree_all(what, result, plain, at.n, bits_or_nearly());
        agree("backward wrote into the gradient that came in", arranged_g, g, 0);
        for (i = 0; i < at.n; ++i) {
            if (result.grad[i]) tg_fill_(result.grad[i], 99);
        }
        agree("a gradient shares memory with the one that came in", arranged_g, g, 0);
    }
    one = tg_full_on(TG_SCALAR, 0.7, tg_dtype_of(plain.y), TG_CPU);
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
    static const double tolerance[] = {2e-5, 2e-2, 1.5e-1};
    static const char *const names[] = {"f32", "f16", "bf16"};
    int k, i;
    for (k = 0; k < 3; ++k) {
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
        agree_all(names[k], a, b, at.n, tolerance[k]);
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

/* ---- in-place twins ---- */

#define TWINS(OP)                                                                                                      \
    OP(add, tg_add_(a, b)) OP(sub, tg_sub_(a, b)) OP(mul, tg_mul_(a, b)) OP(div, tg_div_(a, b)) OP(pow, tg_pow_(a, b)) \
    OP(add_scalar, tg_add_scalar_(a, p->num)) OP(sub_scalar, tg_sub_scalar_(a, p->num))                                \
    OP(mul_scalar, tg_mul_scalar_(a, p->num)) OP(div_scalar, tg_div_scalar_(a, p->num))                                \
    OP(pow_scalar, tg_pow_scalar_(a, p->num)) OP(clamp, tg_clamp_(a, p->num, p->num2))                                 \
    OP(masked_fill, tg_masked_fill_(a, b, p->num)) OP(neg, tg_neg_(a)) OP(abs, tg_abs_(a)) OP(sign, tg_sign_(a))       \
    OP(square, tg_square_(a)) OP(exp, tg_exp_(a)) OP(expm1, tg_expm1_(a)) OP(log, tg_log_(a)) OP(log2, tg_log2_(a))    \
    OP(log10, tg_log10_(a)) OP(log1p, tg_log1p_(a)) OP(sqrt, tg_sqrt_(a)) OP(rsqrt, tg_rsqrt_(a))                      \
    OP(reciprocal, tg_reciprocal_(a)) OP(sin, tg_sin_(a)) OP(cos, tg_cos_(a)) OP(tan, tg_tan_(a))                      \
    OP(asin, tg_asin_(a)) OP(acos, tg_acos_(a)) OP(atan, tg_atan_(a)) OP(sinh, tg_sinh_(a)) OP(cosh, tg_cosh_(a))      \
    OP(tanh, tg_tanh_(a)) OP(erf, tg_erf_(a)) OP(floor, tg_floor_(a)) OP(ceil, tg_ceil_(a)) OP(round, tg_round_(a))    \
    OP(trunc, tg_trunc_(a)) OP(relu, tg_relu_(a)) OP(sigmoid, tg_sigmoid_(a)) OP(silu, tg_silu_(a))                    \
    OP(logsigmoid, tg_logsigmoid_(a))

/* A twin writes into a copy of the first input that has a history; what comes out must be that copy. */
#define DEFINE_TWIN(name, expression)                                                                                  \
    static tg_tensor *twin_##name(tg_tensor *const *in_, int n, void *user)                                            \
    {                                                                                                                  \
        const numbers *p = (const numbers *)user;                                                                      \
        tg_tensor *a = tg_clone(in_[0]), *b = n > 1 ? in_[1] : NULL;                                                   \
        int64_t version = tg_version_of(a);                                                                            \
        (void)p, (void)b;                                                                                              \
        return (expression) == a && tg_version_of(a) == version + 1 ? a : NULL;                                        \
    }
TWINS(DEFINE_TWIN)
static const struct {
    const char *name;
    tg_function call;
} twins[] = {
#define TWIN_ROW(name, expression) {#name, twin_##name},
    TWINS(TWIN_ROW)
};
enum { TWIN_ROWS = (int)(sizeof twins / sizeof twins[0]) };

static void check_twin(outcome plain)
{
    int i;
    for (i = 0; i < TWIN_ROWS; ++i) {
        outcome result;
        if (strcmp(twins[i].name, at.row->name) != 0) continue;
        if (!plain.y || !same_shape(tg_shape_of(plain.y), tg_shape_of(at.in[0]))) return;
        result = run(twins[i].call, at.in, at.n, &at.p, NULL);
        agree_all("in place", result, plain, at.n, 0);
    }
}

/* ---- drivers ---- */

/* Goes twice through the graph, so that the rules of rules run and are noted. */
static void check_second_order(void)
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
        if (tg_gradients(&y, 1, &g, &leaves[i], 1, &result, TG_CREATE_GRAPH | TG_ALLOW_UNUSED) != TG_OK || !result) continue;
        result = tg_sum(tg_mul(result, result));
        total = total ? tg_add(total, result) : result;
    }
    if (total && tg_requires_grad(total)) harness_check(step_back(total, NULL, 0), "backward of backward", __FILE__, at.line);
}

static void check_wanted(outcome plain)
{
    char what[400];
    int i, k = 0;
    if (at.gives) {
        snprintf(what, sizeof what, "output at line %d", at.line);
        match(plain.y, at.gives, what, at.line);
    }
    for (i = 0; i < at.n && k < at.grads; ++i) {
        if (!at.differentiable[i]) continue;
        snprintf(what, sizeof what, "gradient %d at line %d", k, at.line);
        match(plain.grad[i], at.grad[k++], what, at.line);
    }
    harness_check(k == at.grads, "as many gradients as are wanted", __FILE__, at.line);
}

static void drive_sample(void)
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
    check_nan(plain);
    check_twin(plain);
    check_second_order();
}

/* Values at chosen inputs: f64 in every layout, f32, and f32 repeated so that vector code sees them, too. */
static void drive_edge(void)
{
    tg_tensor *single[MAX_INPUTS];
    arranged how = as_given();
    tg_tensor *y = at.row->call(at.in, at.n, &at.p), *g = y ? tg_ones_like(y) : NULL;
    bool same = true;
    int i;
    if (!harness_check(y != NULL && tg_ok(), "the call", __FILE__, at.line)) return;
    if (tg_is_floating_point(tg_dtype_of(y))) check_wanted(run(at.row->call, at.in, at.n, &at.p, g));
    else check_wanted(run(at.row->call, at.in, at.n, &at.p, NULL));
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

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    small = getenv("SMALL") != NULL;
    run_samples(harness.only);
    return harness_end();
}
