/* Custom functions and checkpoints: what they save, their contexts, outputs that are views, closures, and functions
 * that fail.  Functions that misbehave are in test_callbacks.c. */
#include "tensorgrad.h"
#include "semantics.h"
#include "helpers.h"

/* ---- section 2.9: custom functions ---- */

/* y = exp(x), by saving what `user` says: an input, an output, a tensor that is neither, or two of them; z = x + 1 when
   there is a second output. */
enum {
    SAVE_INPUT = 1,
    SAVE_OUTPUT = 2,
    SAVE_OTHER = 4,
    USE_MEMORY = 8,
    TWO_OUTPUTS = 16,
    MARK_SECOND = 32,
    FAIL_FORWARD = 64,
    FAIL_BACKWARD = 128,
    RAISE_FORWARD = 256,
    NO_GRADIENT = 512,
    FORGET_OUTPUT = 1024,
    RETURN_INPUT = 2048,
    FAIL_LATE = 4096
};

typedef struct {
    int what;
    double *memory;
} exp_user;

static tg_status exp_forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    exp_user *user = (exp_user *)tg_ctx_user(ctx);
    int what = user->what;
    if (what & FAIL_FORWARD) return TG_ERR_UNSUPPORTED;
    if (what & RAISE_FORWARD) return tg_add(in[0], tg_ones(TG_SHAPE(9, 9))) ? TG_OK : tg_error_code();
    if (!(what & FORGET_OUTPUT)) out[0] = what & RETURN_INPUT ? in[0] : tg_exp(in[0]);
    if (what & TWO_OUTPUTS) out[1] = tg_add_scalar(in[0], 1);
    if (what & SAVE_INPUT && tg_save(ctx, in[0]) != TG_OK) return tg_error_code();
    if (what & SAVE_OUTPUT && tg_save(ctx, out[0]) != TG_OK) return tg_error_code();
    if (what & SAVE_OTHER && tg_save(ctx, tg_mul_scalar(in[0], 2)) != TG_OK) return tg_error_code();
    if (what & MARK_SECOND && tg_mark_non_differentiable(ctx, out[1]) != TG_OK) return tg_error_code();
    if (what & USE_MEMORY) {
        user->memory = (double *)tg_ctx_alloc(ctx, 64 * sizeof(double));
        if (!user->memory) return tg_error_code();
        user->memory[63] = 1;
    }
    return what & FAIL_LATE ? TG_ERR_ARGUMENT : tg_ok() ? TG_OK : tg_error_code();
}

static tg_status exp_backward(tg_ctx *ctx, tg_tensor *const *g, tg_tensor **grad_in)
{
    exp_user *user = (exp_user *)tg_ctx_user(ctx);
    int what = user->what;
    tg_tensor *y;
    if (what & FAIL_BACKWARD) return TG_ERR_UNSUPPORTED;
    if (what & NO_GRADIENT) return TG_OK;
    y = what & SAVE_INPUT    ? tg_exp(tg_saved(ctx, 0))
        : what & SAVE_OUTPUT ? tg_saved(ctx, 0)
                             : tg_exp(tg_mul_scalar(tg_saved(ctx, 0), 0.5));
    if (what & USE_MEMORY) y = tg_mul_scalar(y, user->memory[63]);
    grad_in[0] = tg_mul(g[0], y);
    if (what & TWO_OUTPUTS && !(what & MARK_SECOND)) grad_in[0] = tg_add(grad_in[0], g[1]);
    return grad_in[0] ? TG_OK : tg_error_code();
}

static tg_tensor *custom_exp(tg_tensor *x, exp_user *user)
{
    tg_tensor *out[2] = {NULL, NULL};
    tg_custom("my_exp", exp_forward, exp_backward, user, &x, 1, out, user->what & TWO_OUTPUTS ? 2 : 1);
    return out[0];
}

static tg_tensor *custom_exp_sum(tg_tensor *const *in, int n, void *user)
{
    tg_tensor *out[2] = {NULL, NULL}, *y;
    int two = ((exp_user *)user)->what & TWO_OUTPUTS ? 1 : 0;
    (void)n;
    tg_custom("my_exp", exp_forward, exp_backward, user, in, 1, out, 1 + two);
    y = tg_mul(out[0], out[0]);
    return tg_sum(two ? tg_add(y, tg_mul(out[1], out[1])) : y);
}

TEST(custom_functions)
{
    ROW(2.86) {
        tg_tensor *x = leaf("[0.5, 1]"), *y;
        exp_user user = {SAVE_INPUT | NO_GRADIENT, NULL};
        y = custom_exp(x, &user);
        CHECK(backward_sum(y) == TG_OK && tg_grad(x) == NULL); /* without a gradient from the function, x has none */
        CHECK_FAILS(tg_custom("half", exp_forward, NULL, &user, &x, 1, &y, 1), "argument backward is NULL");
        CHECK_FAILS(tg_custom("half", NULL, exp_backward, &user, &x, 1, &y, 1), "argument forward is NULL");
        CHECK_FAILS(tg_custom(NULL, exp_forward, exp_backward, &user, &x, 1, &y, 1), "argument name is NULL");
        CHECK_FAILS(tg_custom("half", exp_forward, exp_backward, &user, NULL, 1, &y, 1), "argument in is NULL");
        CHECK_FAILS(tg_custom("half", exp_forward, exp_backward, &user, &x, 1, NULL, 1), "argument out is NULL");
    }
    ROW(2.87) { /* versions, marks, zeros for unused outputs */
        tg_tensor *x = tg_mul_scalar(leaf("[0.5, 1]"), 1), *out[2] = {NULL, NULL};
        exp_user user = {SAVE_INPUT, NULL};
        tg_tensor *y = custom_exp(x, &user);
        tg_add_scalar_(x, 1);
        CHECK_FAILS(backward_sum(y), "modified by an inplace operation");
        user.what = SAVE_INPUT | TWO_OUTPUTS | MARK_SECOND;
        x = leaf("[0.5, 1]");
        CHECK(tg_custom("two", exp_forward, exp_backward, &user, &x, 1, out, 2) == TG_OK);
        CHECK(tg_requires_grad(out[0]) && !tg_requires_grad(out[1]) && tg_is_leaf(out[1]));
        CHECK(backward_sum(out[0]) == TG_OK);
        CHECK_NEAR(tg_get(tg_grad(x), TG_INDEX(1)), exp(1.0), 1e-12);
        user.what = SAVE_INPUT | TWO_OUTPUTS;
        x = leaf("[0.5, 1]");
        CHECK(tg_custom("two", exp_forward, exp_backward, &user, &x, 1, out, 2) == TG_OK);
        CHECK(backward_sum(out[1]) == TG_OK); /* g[0] is zeros in this case */
        HAS(tg_grad(x), "[1, 1]");
    }
    { /* the first and second derivative are right whichever tensor is saved */
        static const int ways[] = {SAVE_INPUT,
                                   SAVE_OUTPUT,
                                   SAVE_OTHER,
                                   SAVE_INPUT | SAVE_OTHER,
                                   SAVE_INPUT | USE_MEMORY,
                                   SAVE_INPUT | TWO_OUTPUTS,
                                   SAVE_OUTPUT | TWO_OUTPUTS};
        size_t i;
        for (i = 0; i < sizeof ways / sizeof ways[0]; ++i) {
            tg_tensor *x = leaf("[0.5, -1]");
            exp_user user = {0, NULL};
            user.what = ways[i];
            CHECK(tg_gradcheck(custom_exp_sum, &x, 1, &user));
            /* a saved tensor that is neither input nor output has no history: the second derivative does not see it */
            if (ways[i] != SAVE_OTHER) CHECK(tg_gradgradcheck(custom_exp_sum, &x, 1, &user));
        }
    }
    { /* an output that is an input becomes a tensor of its own */
        tg_tensor *x = leaf("[0.5, 1]"), *y;
        exp_user user = {SAVE_INPUT | RETURN_INPUT, NULL};
        y = custom_exp(x, &user);
        CHECK(y != x && !tg_is_leaf(y) && tg_is_leaf(x) && backward_sum(y) == TG_OK);
        CHECK_NEAR(tg_get(tg_grad(x), TG_INDEX(1)), exp(1.0), 1e-12);
    }
    { /* failures leave nothing alive, and the error names the function */
        tg_tensor *x = leaf("[0.5, 1]"), *y = x;
        exp_user user = {FAIL_FORWARD, NULL};
        tg_stats_info before = tg_stats();
        CHECK_FAILS(tg_custom("my_exp", exp_forward, exp_backward, &user, &x, 1, &y, 1), "forward of my_exp failed");
        CHECK(y == NULL);
        user.what = RAISE_FORWARD;
        CHECK_FAILS(tg_custom("my_exp", exp_forward, exp_backward, &user, &x, 1, &y, 1), "do not broadcast");
        user.what = FORGET_OUTPUT | SAVE_INPUT;
        CHECK_FAILS(tg_custom("my_exp", exp_forward, exp_backward, &user, &x, 1, &y, 1), "did not fill in output 0");
        user.what = SAVE_INPUT | SAVE_OTHER | USE_MEMORY | FAIL_LATE;
        CHECK_FAILS(tg_custom("my_exp", exp_forward, exp_backward, &user, &x, 1, &y, 1), "forward of my_exp failed");
        CHECK(!alive_changed(&before));
        user.what = SAVE_INPUT | FAIL_BACKWARD;
        CHECK_FAILS(backward_sum(custom_exp(x, &user)), "backward of my_exp failed");
        CHECK(tg_grad(x) == NULL);
    }
}

typedef struct {
    int saved, alloc;
} ctx_probe;
static tg_status probe_forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    ctx_probe *probe = (ctx_probe *)tg_ctx_user(ctx);
    int i;
    for (i = 0; i < 100; ++i)
        tg_save(ctx, i % 2 ? in[0] : tg_full_like(in[0], i)); /* more tensors than may have room at first */
    for (i = 0; i < 50; ++i) memset(tg_ctx_alloc(ctx, (size_t)(1 + i * 7)), i, (size_t)(1 + i * 7));
    probe->alloc = tg_ctx_alloc(ctx, SIZE_MAX - 8) == NULL && tg_error_code() == TG_ERR_MEMORY;
    tg_clear_error();
    CHECK_FAILS(tg_mark_non_differentiable(ctx, in[0]), "only an output");
    CHECK_FAILS(tg_save(ctx, NULL), "NULL");
    CHECK(!tg_is_grad_enabled());
    out[0] = tg_mul_scalar(in[0], 1);
    return TG_OK;
}
static tg_status probe_backward(tg_ctx *ctx, tg_tensor *const *g, tg_tensor **grad_in)
{
    ctx_probe *probe = (ctx_probe *)tg_ctx_user(ctx);
    CHECK_FAILS(tg_saved(ctx, 100), "100 tensors were saved");
    CHECK_FAILS(tg_saved(ctx, -1), "there is no number -1");
    CHECK_FAILS(tg_save(ctx, g[0]), "only forward saves tensors");
    probe->saved = (int)tg_item(tg_sum(tg_saved(ctx, 98)));
    grad_in[0] = tg_mul_scalar(g[0], 1);
    return TG_OK;
}
static int users_freed;
static void free_user(void *user)
{
    (void)user;
    ++users_freed;
}

TEST(custom_context)
{
    tg_tensor *x = leaf("[1, 2]"), *y = NULL, *c = f64("[1, 2]");
    ctx_probe probe;
    memset(&probe, 0, sizeof probe);
    users_freed = 0;
    {
        TG_SCOPE;
        CHECK(tg_custom_ex("probe", probe_forward, probe_backward, &probe, free_user, &x, 1, &y, 1) == TG_OK);
        CHECK(users_freed == 0 && probe.alloc && backward_sum(y) == TG_OK && probe.saved == 196);
        CHECK_FAILS(backward_sum(y), "second time");
        CHECK(users_freed == 0);
    }
    CHECK(users_freed == 1); /* with the node */
    CHECK(tg_custom_ex("probe", probe_forward, probe_backward, &probe, free_user, &c, 1, &y, 1) == TG_OK);
    CHECK(users_freed == 2 && !tg_requires_grad(y)); /* there is no node, so user is freed at once */
    {
        exp_user user = {FAIL_FORWARD, NULL};
        CHECK_FAILS(tg_custom_ex("bad", exp_forward, exp_backward, &user, free_user, &x, 1, &y, 1), "failed");
        CHECK(users_freed == 2); /* a call that fails changes nothing: user is still the caller's */
    }
    CHECK_FAILS(tg_save(NULL, x), "NULL");
    CHECK_FAILS(tg_ctx_alloc(NULL, 1), "NULL");
}

/* An output that is a view, saved, and one given twice. */
static tg_status flat_forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    out[0] = out[1] = tg_view(tg_exp(in[0]), TG_SHAPE(-1));
    return out[0] ? tg_save(ctx, out[0]) : tg_error_code();
}
static tg_status flat_backward(tg_ctx *ctx, tg_tensor *const *g, tg_tensor **grad_in)
{
    grad_in[0] = tg_view(tg_mul(tg_add(g[0], g[1]), tg_saved(ctx, 0)), *(tg_shape *)tg_ctx_user(ctx));
    return grad_in[0] ? TG_OK : tg_error_code();
}
static tg_tensor *flat_exp(tg_tensor *const *in, int n, void *user)
{
    tg_tensor *out[2] = {NULL, NULL};
    (void)n;
    tg_custom("flat", flat_forward, flat_backward, user, in, 1, out, 2);
    CHECK(out[0] != out[1]);
    return tg_add(tg_mul(out[0], out[0]), tg_mul_scalar(out[1], 3));
}

TEST(custom_outputs_that_are_views)
{
    tg_tensor *x = leaf("[[0.1, -0.2], [0.3, 0.4]]");
    tg_shape shape = TG_SHAPE(2, 2);
    CHECK(tg_gradcheck(flat_exp, &x, 1, &shape) && tg_gradgradcheck(flat_exp, &x, 1, &shape));
}

/* More saved tensors than a machine word has bits, with their handles dropped, differentiated twice. */
enum { MANY = 70 };
static tg_status many_forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    int i;
    for (i = 0; i < MANY; ++i) tg_save(ctx, in[i]);
    out[0] = tg_mul(in[0], in[MANY - 1]);
    return tg_ok() ? TG_OK : tg_error_code();
}
static tg_status many_backward(tg_ctx *ctx, tg_tensor *const *g, tg_tensor **grad_in)
{
    grad_in[0] = tg_mul(g[0], tg_saved(ctx, MANY - 1));
    grad_in[MANY - 1] = tg_mul(g[0], tg_saved(ctx, 0));
    return tg_ok() ? TG_OK : tg_error_code();
}
static tg_tensor *product_of_ends(tg_tensor *const *in, int n, void *user)
{
    (void)user;
    return tg_mul(in[0], in[n - 1]);
}

TEST(many_inputs)
{
    tg_tensor *x = leaf("[3]"), *y = NULL, *g;
    {
        TG_SCOPE;
        tg_tensor *in[MANY];
        int i;
        for (i = 0; i < MANY; ++i) in[i] = tg_mul_scalar(x, i + 1.0);
        CHECK(tg_custom("many", many_forward, many_backward, NULL, in, MANY, &y, 1) == TG_OK);
        tg_keep(y);
    }
    g = gradient(y, x, TG_CREATE_GRAPH); /* 70 x^2 */
    HAS(g, "[420]");
    HAS(gradient(g, x, 0), "[140]");
    {
        TG_SCOPE;
        tg_tensor *in[MANY];
        int i;
        for (i = 0; i < MANY; ++i) in[i] = tg_mul_scalar(x, i + 1.0);
        y = tg_keep(tg_checkpoint(product_of_ends, in, MANY, NULL));
    }
    CHECK(backward_sum(y) == TG_OK);
    HAS(tg_grad(x), "[420]");
}

/* ---- checkpoints ---- */

typedef struct {
    tg_tensor *w, *u;
    bool nested;
} closure;

static tg_tensor *dropped_layer(tg_tensor *const *in, int n, void *user)
{
    closure *c = (closure *)user;
    (void)n;
    return tg_dropout(tg_tanh(tg_matmul(in[0], c->w)), 0.5, true);
}

static tg_tensor *two_layers(tg_tensor *const *in, int n, void *user)
{
    closure *c = (closure *)user, second;
    tg_tensor *h = c->nested ? tg_checkpoint(dropped_layer, in, n, user) : dropped_layer(in, n, user);
    second = *c, second.w = c->u;
    return tg_dropout(tg_tanh(tg_matmul(h, second.w)), 0.25, true);
}

TEST(checkpoint_equals_plain)
{
    tg_tensor *x = leaf("[[0.1, 0.2, 0.3], [-0.4, 0.5, 0.6]]"), *w = leaf("[[1, 2, 3], [4, -5, 6], [0.7, 0.8, -0.9]]"),
              *u = leaf("[[1, 0, 2], [3, 1, 4], [1, 5, -2]]");
    tg_tensor *y[3], *g[3][3], *in[3];
    closure c;
    int way, i;
    in[0] = x, in[1] = w, in[2] = u;
    c.w = w, c.u = u;
    for (way = 0; way < 3; ++way) { /* plain; a checkpoint; a checkpoint within a checkpoint */
        tg_rng after;
        tg_tensor *sum;
        c.nested = way == 2;
        tg_seed(11);
        y[way] = way ? tg_checkpoint(two_layers, &x, 1, &c) : two_layers(&x, 1, &c);
        after = tg_rng_state();
        sum = tg_sum(tg_mul(y[way], y[way]));
        /* weights of the closure get a gradient, too */
        CHECK(tg_gradients(&sum, 1, NULL, in, 3, g[way], TG_RETAIN_GRAPH) == TG_OK);
        CHECK(tg_rng_state().offset == after.offset && tg_rng_state().seed == after.seed);
        CHECK(tg_backward(sum) == TG_OK);
        for (i = 0; i < 3; ++i) {
            CHECK(tg_equal(g[way][i], g[0][i]) && tg_equal(tg_grad(in[i]), g[0][i])); /* bit for bit */
            tg_set_grad(in[i], NULL);
        }
        CHECK(tg_equal(y[way], y[0]));
    }
    CHECK(tg_item(tg_sum(tg_abs(g[0][1]))) > 0);
}

TEST(checkpoint_lifetimes)
{
    tg_tensor *x = leaf("[[0.1, 0.2, 0.3], [-0.4, 0.5, 0.6]]"), *w = leaf("[[1, 2, 3], [4, -5, 6], [0.7, 0.8, -0.9]]"),
              *y, *sum, *g = NULL;
    closure c;
    int64_t nodes = tg_stats().nodes;
    c.w = w, c.u = w, c.nested = false;
    y = tg_checkpoint(dropped_layer, &x, 1, &c);
    CHECK(tg_stats().nodes == nodes + 1); /* the ops inside are not kept */
    sum = tg_sum(y);
    CHECK(tg_gradients(&sum, 1, NULL, &w, 1, &g, 0) == TG_OK && tg_grad(w) == NULL && tg_grad(x) == NULL);
    CHECK(g != NULL && tg_dim(g, 0) == 3);
    {
        TG_NO_GRAD;
        CHECK(!tg_requires_grad(tg_checkpoint(dropped_layer, &x, 1, &c)));
    }
    { /* an input whose handle is dropped, and a tensor that only the closure refers to */
        tg_tensor *h;
        {
            TG_SCOPE;
            h = tg_mul_scalar(x, 2);
            c.w = tg_keep(tg_mul_scalar(w, 3));
            y = tg_keep(tg_checkpoint(dropped_layer, &h, 1, &c));
        }
        CHECK(backward_sum(y) == TG_OK && tg_grad(x) != NULL && tg_grad(w) != NULL);
    }
    CHECK_FAILS(tg_checkpoint(NULL, &x, 1, NULL), "NULL");
}

static tg_tensor *fails_second_time(tg_tensor *const *in, int n, void *user)
{
    (void)n;
    if (++*(int *)user == 2) return tg_add(in[0], tg_ones(TG_SHAPE(9, 9)));
    return tg_exp(in[0]);
}
static tg_tensor *other_shape(tg_tensor *const *in, int n, void *user)
{
    (void)n;
    return ++*(int *)user == 2 ? tg_sum(in[0]) : tg_exp(in[0]);
}

static tg_tensor *first_input(tg_tensor *const *in, int n, void *user)
{
    (void)n, (void)user;
    return in[0];
}
static tg_tensor *what_user_is(tg_tensor *const *in, int n, void *user)
{
    (void)in, (void)n;
    return (tg_tensor *)user;
}
static tg_tensor *records_inside(tg_tensor *const *in, int n, void *user)
{
    TG_ENABLE_GRAD;
    (void)n, (void)user;
    return tg_exp(tg_mul(in[0], in[0]));
}

TEST(checkpoint_of_odd_functions)
{
    tg_tensor *x = leaf("[1, 2]"), *w = leaf("[3, 4]"), *y = tg_checkpoint(first_input, &x, 1, NULL);
    CHECK(y != x && backward_sum(tg_mul_scalar(y, 2)) == TG_OK);
    HAS(tg_grad(x), "[2, 2]");
    y = tg_checkpoint(what_user_is, &x, 1, f64("[7, 8]"));
    CHECK(!tg_requires_grad(y));
    HAS(y, "[7, 8]");
    y = tg_checkpoint(records_inside, &w, 1, NULL); /* the function may switch the gradient mode by itself */
    CHECK(backward_sum(y) == TG_OK);
    CHECK_NEAR(tg_get(tg_grad(w), TG_INDEX(0)), 6 * exp(9.0), 1e-12);
}

TEST(checkpoint_that_fails)
{
    tg_tensor *x = leaf("[1, 2]"), *y;
    int calls = 0;
    tg_rng state;
    y = tg_checkpoint(fails_second_time, &x, 1, &calls);
    state = tg_rng_state();
    CHECK_FAILS(backward_sum(y), "do not broadcast");
    CHECK(tg_grad(x) == NULL && tg_is_grad_enabled() && tg_rng_state().offset == state.offset);
    CHECK(backward_sum(tg_checkpoint(fails_second_time, &x, 1, &calls)) == TG_OK);
    calls = 0;
    CHECK_FAILS(backward_sum(tg_checkpoint(other_shape, &x, 1, &calls)), "run again");
    calls = 1;
    CHECK(tg_checkpoint(fails_second_time, &x, 1, &calls) == NULL && !tg_ok());
    tg_clear_error();
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    harness_take_device();
    RUN(custom_functions);
    RUN(custom_context);
    RUN(custom_outputs_that_are_views);
    RUN(many_inputs);
    RUN(checkpoint_equals_plain);
    RUN(checkpoint_lifetimes);
    RUN(checkpoint_of_odd_functions);
    RUN(checkpoint_that_fails);
    check_rows("test_custom");
    CHECK(tg_shutdown() == TG_OK);
    return harness_end();
}
