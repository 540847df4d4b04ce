/* Callbacks that misbehave: hooks, custom functions, checkpoints, functions that gradcheck calls, error handlers,
 * deleters.  Whatever they do, the call around them fails with an error or goes on, nothing is freed under the library,
 * and the thread is as usable as before. */
#if !defined(__cplusplus) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L /* fork */
#endif
#include "tensorgrad.h"
#include "helpers.h"
#include <setjmp.h>
#if defined(__unix__) || defined(__APPLE__)
#include <sys/wait.h>
#endif

/* Leaving a callback without a return. */
#ifdef __cplusplus
#define LEAVE() throw 1
#define TRY try
#define WHEN_LEFT catch (int)
#else
static jmp_buf way_out;
#define LEAVE() longjmp(way_out, 1)
#define TRY if (!setjmp(way_out))
#define WHEN_LEFT else
#endif

static bool says(const char *text)
{
    bool holds = !tg_ok() && strstr(tg_error_message(), text);
    if (!holds) printf("    said: %s\n", tg_error_message());
    tg_clear_error();
    return holds;
}

/* ---- what a callback may do wrong; each kind of callback below does all of it ---- */

enum { NOTHING, LEAVES_OPEN, ENDS_OUTER, ENDS_STALE, ENDS_AND_CLEARS, SHUTDOWN, THREAD_END, LEAVES_MODE, MISDEEDS, JUMPS };
static const struct { const char *error; } misdeeds[MISDEEDS] = {
    {NULL}, {"left a scope open"}, {"cannot end a scope"}, {"cannot end a scope"},
    {"tried to end a scope that was open before it"}, {"cannot end its own thread"}, {"cannot end its own thread"}, {NULL}};
static int misdeed;
static tg_mark outer, stale;

/* Makes a copy of t in the way that is asked for. */
static tg_tensor *misbehave(tg_tensor *t)
{
    tg_tensor *y;
    if (misdeed == LEAVES_OPEN) tg_scope_begin();
    y = tg_mul_scalar(t, 1);
    if (misdeed == JUMPS) LEAVE();
    if (misdeed == ENDS_OUTER) tg_scope_end(outer);
    if (misdeed == ENDS_STALE) tg_scope_end(stale);
    if (misdeed == ENDS_AND_CLEARS) tg_scope_end(outer), tg_clear_error();
    if (misdeed == SHUTDOWN) CHECK(tg_shutdown() != TG_OK);
    if (misdeed == THREAD_END) CHECK(tg_thread_end() != TG_OK);
    if (misdeed == LEAVES_MODE) tg_set_grad_enabled(!tg_is_grad_enabled());
    return y;
}

static tg_tensor *bad_hook(tg_tensor *g, void *user) { return (void)user, misbehave(g); }
static void bad_post_hook(tg_tensor *t, void *user) { (void)user, (void)misbehave(t); }

static bool in_backward; /* of the custom function, which misbehaves there */
static tg_status bad_forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    (void)ctx;
    out[0] = in_backward ? tg_mul_scalar(in[0], 1) : misbehave(in[0]);
    return TG_OK;
}
static tg_status bad_backward(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)
{
    (void)ctx;
    grad_in[0] = in_backward ? misbehave(grad_out[0]) : grad_out[0];
    return TG_OK;
}
static tg_tensor *bad_function(tg_tensor *const *in, int n, void *user)
{
    (void)n, (void)user;
    return misbehave(in[0]);
}
static tg_status good_forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    (void)ctx;
    out[0] = tg_mul_scalar(in[0], 2);
    return TG_OK;
}
static void bad_handler(tg_status code, const char *text, void *user)
{
    (void)code, (void)text;
    ++*(int *)user;
    (void)misbehave(f64("[1, 2]"));
}
static void bad_deleter(void *user)
{
    ++*(int *)user;
    (void)misbehave(f64("[1, 2]"));
}

static void bad_module_forward(tg_module *m, tg_tensor *const *in, int n, tg_tensor **out, int n_out)
{
    (void)m, (void)n, (void)n_out;
    out[0] = misbehave(in[0]);
}
static void good_module_forward(tg_module *m, tg_tensor *const *in, int n, tg_tensor **out, int n_out)
{
    (void)m, (void)n, (void)n_out;
    out[0] = tg_neg(in[0]);
}
static void bad_module_hook(tg_module *m, tg_tensor **in, int n, tg_tensor **out, int n_out, void *user)
{
    (void)m, (void)n, (void)out, (void)n_out, (void)user;
    in[0] = misbehave(in[0]);
}
static tg_tensor *bad_closure(void *x) { return tg_sum(misbehave((tg_tensor *)x)); }
static int steps;
static bool bad_step(void *x)
{
    tg_tensor *y = steps == 2 ? misbehave((tg_tensor *)x) : tg_neg((tg_tensor *)x); /* when a device records it */
    return y != NULL;
}

/* Each returns whether its call succeeded. */
static bool by_hook(void)
{
    tg_tensor *x = leaf("[1, 2]"), *y = tg_mul_scalar(x, 3);
    bool ok;
    tg_hook(y, bad_hook, NULL);
    ok = tg_backward(tg_sum(y)) == TG_OK;
    CHECK(ok == (tg_grad(x) != NULL));
    return ok;
}
static bool by_leaf_hook(void)
{
    tg_tensor *x = leaf("[1, 2]");
    bool ok;
    tg_hook(x, bad_hook, NULL);
    ok = tg_backward(tg_sum(x)) == TG_OK;
    CHECK(ok == (tg_grad(x) != NULL));
    return ok;
}
static bool by_post_hook(void)
{
    tg_tensor *x = leaf("[1, 2]");
    bool ok;
    tg_hook_post_accumulate(x, bad_post_hook, NULL);
    ok = tg_backward(tg_sum(x)) == TG_OK;
    CHECK(tg_grad(x) != NULL); /* the gradient was accumulated before the hook */
    return ok;
}
static bool by_forward(void)
{
    tg_tensor *x = leaf("[1, 2]"), *y = x;
    bool ok;
    in_backward = false;
    ok = tg_custom("bad", bad_forward, bad_backward, NULL, &x, 1, &y, 1) == TG_OK;
    CHECK(ok == (y != NULL));
    if (ok) CHECK(tg_backward(tg_sum(y)) == TG_OK);
    return ok;
}
static bool by_backward(void)
{
    tg_tensor *x = leaf("[1, 2]"), *y = x;
    in_backward = true;
    CHECK(tg_custom("bad", bad_forward, bad_backward, NULL, &x, 1, &y, 1) == TG_OK);
    return tg_backward(tg_sum(y)) == TG_OK;
}
static bool by_checkpoint(void)
{
    tg_tensor *x = leaf("[1, 2]"), *y = tg_checkpoint(bad_function, &x, 1, NULL);
    return y && tg_backward(tg_sum(y)) == TG_OK;
}
static bool by_checkpoint_without_grad(void)
{
    TG_NO_GRAD;
    tg_tensor *x = leaf("[1, 2]");
    return tg_checkpoint(bad_function, &x, 1, NULL) != NULL;
}
static bool by_checkpoint_again(void) /* in backward, when the function runs again */
{
    const int deed = misdeed;
    tg_tensor *x = leaf("[1, 2]"), *y;
    misdeed = NOTHING;
    y = tg_checkpoint(bad_function, &x, 1, NULL);
    misdeed = deed;
    return tg_backward(tg_sum(y)) == TG_OK;
}
static bool by_gradcheck(void)
{
    tg_tensor *x = leaf("[1, 2]");
    return tg_gradcheck(bad_function, &x, 1, NULL);
}
static bool by_gradgradcheck(void)
{
    tg_tensor *x = leaf("[1, 2]");
    return tg_gradgradcheck(bad_function, &x, 1, NULL);
}
static bool by_handler(void) /* the handler runs within an op; its own mistake is another error */
{
    int calls = 0;
    tg_set_error_handler(bad_handler, &calls);
    CHECK(tg_add(f64("[1, 2]"), tg_ones_on(TG_SHAPE(3), TG_F64, HERE)) == NULL && calls == 1);
    CHECK(strstr(tg_error_message(), "must match the size") != NULL);
    tg_set_error_handler(NULL, NULL);
    if (tg_error_count() == 1) return tg_clear_error(), true;
    return tg_set_error_handler(NULL, NULL), false;
}
static bool by_deleter(void)
{
    double data[2] = {1, 2};
    int calls = 0;
    tg_drop(tg_wrap(data, TG_SHAPE(2), TG_F64, bad_deleter, &calls));
    CHECK(calls == 1);
    return tg_ok();
}

static bool by_free_user(void)
{
    tg_tensor *x = leaf("[1, 2]"), *y = x;
    int calls = 0;
    in_backward = true;
    CHECK(tg_custom_ex("bad", good_forward, bad_backward, &calls, bad_deleter, &x, 1, &y, 1) == TG_OK);
    tg_drop(y);
    CHECK(calls == 1);
    return tg_ok();
}
static bool by_module(void)
{
    tg_module *m = tg_module_new("bad", bad_module_forward, 0);
    const bool ok = tg_forward(m, leaf("[1, 2]")) != NULL;
    tg_module_free(m);
    return ok;
}
static bool by_module_hook(void)
{
    tg_module *m = tg_module_new("hooked", good_module_forward, 0);
    bool ok;
    tg_module_pre_hook(m, bad_module_hook, NULL);
    ok = tg_forward(m, leaf("[1, 2]")) != NULL;
    tg_module_free(m);
    return ok;
}
static bool by_closure(void)
{
    tg_tensor *x = leaf("[1, 2]");
    tg_optim *opt = tg_sgd(&x, 1, 0.1);
    const bool ok = tg_step_closure(opt, bad_closure, x) != NULL;
    tg_optim_free(opt);
    return ok;
}
static bool by_step(void)
{
    tg_tensor *x = leaf("[1, 2]");
    tg_capture *capture = tg_capture_new(HERE, bad_step, x);
    bool ok = true;
    for (steps = 0; ok && steps < 4; ++steps) ok = tg_capture_run(capture) == TG_OK;
    tg_capture_free(capture);
    return ok;
}

static bool (*const callbacks[])(void) = {by_hook, by_leaf_hook, by_post_hook, by_forward, by_backward, by_checkpoint,
    by_checkpoint_without_grad, by_checkpoint_again, by_gradcheck, by_gradgradcheck, by_handler, by_deleter, by_free_user,
    by_module, by_module_hook, by_closure, by_step};

TEST(every_misdeed_of_every_callback)
{
    size_t i;
    for (i = 0; i < sizeof callbacks / sizeof callbacks[0]; ++i) {
        for (misdeed = NOTHING; misdeed < MISDEEDS; ++misdeed) {
            if (misdeed == ENDS_AND_CLEARS && callbacks[i] == by_handler) continue; /* it would clear what it handles */
            tg_mark mark = tg_scope_begin();
            bool ok, grad = tg_is_grad_enabled();
            char place[64];
            snprintf(place, sizeof place, "callback %d, misdeed %d", (int)i, misdeed);
            harness.sample = place;
            outer = mark;
            stale = tg_scope_begin();
            tg_scope_end(stale);
            ok = callbacks[i]();
            CHECK(ok == !misdeeds[misdeed].error);
            if (misdeeds[misdeed].error && callbacks[i] != by_handler) CHECK(says(misdeeds[misdeed].error));
            CHECK(tg_error_count() <= 3);
            tg_clear_error();
            CHECK(tg_is_grad_enabled() == grad);
            tg_scope_end(mark); /* the scope is still open, and the innermost one */
            CHECK(tg_ok());
            harness.sample = NULL;
        }
    }
}

/* ---- a jump out of a callback ---- */

#if defined(__unix__) || defined(__APPLE__)
/* Ops from deeper on the stack than the callback was, over whatever it left there. */
static int use_deeper(tg_tensor *old)
{
    volatile char room[20000];
    int i;
    memset((void *)(uintptr_t)room, 0x5a, sizeof room);
    for (i = 0; i < 3; ++i) {
        tg_mark mark = tg_scope_begin();
        tg_tensor *x = tg_add(tg_mul_scalar(old, 2), tg_ones_like(old));
        if (x && tg_requires_grad(x)) tg_backward(tg_sum(x));
        tg_scope_end(mark);
    }
    return room[17];
}

/* In a process of its own, since the memory is lost.  The exit code says whether all held. */
static void leave_and_go_on(bool (*callback)(void), bool deeper)
{
    tg_tensor *volatile old = leaf("[1, 2]");
    tg_module *volatile module = tg_module_new("old", good_module_forward, 0);
    tg_tensor *x, *y;
    volatile bool left = false;
    bool told;
    harness.failed = 0;
    TRY { callback(); }
    WHEN_LEFT { left = true; }
    CHECK(left);
    if (deeper) CHECK(use_deeper(old) == 0x5a);
    told = strstr(tg_error_message(), "was left by") != NULL; /* by the end of a block of C++ */
    if (!told) tg_clear_error();
    tg_release(NULL); /* the next call finds it; one that needs little stack, since a sanitizer's frames are large */
    y = tg_ones(TG_SHAPE(2));
    CHECK(y && (deeper || says("was left by longjmp or an exception: all that this thread had made is lost")));
    tg_clear_error();
    CHECK(!tg_neg(old) && says("is lost: it was made before"));
    CHECK(!tg_forward(module, y) && says("is lost: it was made before"));
    CHECK(tg_is_grad_enabled() && tg_autocast_dtype() == TG_F32);
    x = tg_set_requires_grad(f64("[3, 4]"), true);
    y = tg_sum(tg_square(x));
    CHECK(y && tg_backward(y) == TG_OK && tg_get(tg_grad(x), TG_INDEX(1)) == 8);
    tg_drop(y), tg_drop(x);
    CHECK(tg_shutdown() == TG_OK && tg_ok());
    fflush(stdout);
    harness_leave_child(harness.failed != 0);
}

TEST(a_jump_out_of_every_callback)
{
    size_t i;
    int deeper, status;
    misdeed = JUMPS;
    for (i = 0; i < sizeof callbacks / sizeof callbacks[0]; ++i) {
        for (deeper = 0; deeper < (HARNESS_MEMORY_CHECKER ? 1 : 2); ++deeper) { /* redzones stay as they were */
            pid_t child;
            fflush(stdout);
            child = fork();
            if (child == 0) leave_and_go_on(callbacks[i], deeper != 0);
            CHECK(child > 0 && waitpid(child, &status, 0) == child);
            if (status) printf("%s: callback %d: status %d\n", deeper ? "deeper" : "at once", (int)i, status);
            CHECK(status == 0);
        }
    }
    misdeed = NOTHING;
}
#endif

/* ---- releasing what is in use ---- */

static tg_tensor *release_leaf(tg_tensor *g, void *user)
{
    (void)g;
    tg_release((tg_tensor *)user);
    return NULL;
}
static void release_leaf_post(tg_tensor *t, void *user) { (void)user, tg_release(t); }

TEST(hook_releases_the_last_reference_of_its_leaf)
{
    tg_tensor *x = tg_param(f64("[1, 2]")), *y = tg_sum(tg_mul(x, x));
    tg_hook(x, release_leaf, x);
    CHECK(tg_backward(y) == TG_OK);
    CHECK_FAILS(tg_neg(x), "ended by tg_release");
    x = tg_param(f64("[1, 2]")), y = tg_sum(tg_mul(x, x));
    tg_hook_post_accumulate(x, release_leaf_post, NULL);
    CHECK(tg_backward(y) == TG_OK);
    CHECK_FAILS(tg_neg(x), "ended by tg_release");
}

static tg_status release_input(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    CHECK(tg_save(ctx, in[0]) == TG_OK);
    out[0] = tg_mul_scalar(in[0], 2);
    tg_release(in[0]);
    return TG_OK;
}
static tg_status double_it(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)
{
    CHECK(tg_saved(ctx, 0) != NULL);
    grad_in[0] = tg_mul(tg_mul_scalar(grad_out[0], 2), tg_ones_like(tg_saved(ctx, 0)));
    return TG_OK;
}
static tg_tensor *release_in_function(tg_tensor *const *in, int n, void *user)
{
    tg_tensor *y = tg_mul(in[0], in[0]);
    (void)n;
    if (*(bool *)user) tg_release(in[0]);
    *(bool *)user = false;
    return y;
}

TEST(function_releases_its_input)
{
    tg_tensor *x = tg_param(f64("[1, 2]")), *y = NULL;
    bool first = true;
    CHECK(tg_custom("releases", release_input, double_it, NULL, &x, 1, &y, 1) == TG_OK);
    CHECK(tg_backward(tg_sum(y)) == TG_OK); /* x was freed within forward, so that no leaf takes the gradient */
    x = tg_param(f64("[1, 2]"));
    y = tg_checkpoint(release_in_function, &x, 1, &first);
    CHECK_FAILS(tg_neg(x), "ended by tg_release");
    if (y) CHECK(tg_backward(tg_sum(y)) == TG_OK);
    x = tg_param(f64("[1, 2]")), first = true;
    tg_retain(x);
    CHECK(tg_gradcheck(release_in_function, &x, 1, &first));
    tg_release(x);
    x = tg_param(f64("[1, 2]")), first = true;
    CHECK(tg_gradcheck(release_in_function, &x, 1, &first)); /* gradcheck holds references to its inputs */
    CHECK_FAILS(tg_neg(x), "ended by tg_release");
}

/* ---- custom functions ---- */

static tg_status count_only(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    CHECK(tg_save(ctx, in[0]) == TG_OK);
    if (tg_ctx_user(ctx)) {
        out[0] = tg_to_dtype(in[0], TG_I64);
        out[1] = tg_mul_scalar(in[0], 2);
        return tg_mark_non_differentiable(ctx, out[1]);
    }
    return TG_OK;
}

/* The input requires grad and no output is differentiable, or there is none: there is nothing to record. */
TEST(custom_without_a_differentiable_output)
{
    tg_tensor *x = leaf("[1.5, 2]"), *y[2];
    int64_t nodes = tg_stats().nodes;
    int user;
    tg_set_cache_limit(0); /* a memory checker sees a use after free */
    CHECK(tg_custom("counts", count_only, double_it, &user, &x, 1, y, 2) == TG_OK);
    CHECK(!tg_requires_grad(y[0]) && !tg_requires_grad(y[1]) && tg_stats().nodes == nodes);
    CHECK(tg_custom("counts", count_only, double_it, NULL, &x, 1, NULL, 0) == TG_OK);
    tg_set_cache_limit(SIZE_MAX);
}

TEST(custom_with_hostile_arguments)
{
    static char name[3000];
    tg_tensor *x = leaf("[1, 2]"), *none = NULL, *y[2] = {x, x};
    memset(name, 'n', sizeof name - 1);
    CHECK_FAILS(tg_custom(name, count_only, double_it, NULL, &none, 1, y, 2), "tg_custom: argument in is NULL");
    CHECK(!y[0] && !y[1]);
    CHECK_FAILS(tg_custom("c", count_only, double_it, NULL, &x, 1, y, -1), "-1 outputs cannot be");
    CHECK_FAILS(tg_custom("c", count_only, double_it, NULL, &x, -1, y, 1), "-1 inputs");
    CHECK_FAILS(tg_custom("c", NULL, double_it, NULL, &x, 1, y, 1), "argument forward is NULL");
    CHECK_FAILS(tg_custom("c", count_only, NULL, NULL, &x, 1, y, 1), "argument backward is NULL");
    CHECK_FAILS(tg_custom(NULL, count_only, double_it, NULL, &x, 1, y, 1), "argument name is NULL");
    CHECK_FAILS(tg_custom("c", count_only, double_it, NULL, &x, 1, NULL, 1), "argument out is NULL");
    CHECK_FAILS(tg_custom_ex("c", count_only, double_it, NULL, NULL, NULL, 1, y, 1), "tg_custom_ex: argument in");
    CHECK_FAILS(tg_custom(name, count_only, double_it, NULL, &x, 1, y, 1), "did not fill in output 0");
    CHECK_FAILS(tg_checkpoint(bad_function, &x, -1, NULL), "-1 inputs cannot be");
}

static tg_status sum_and_count(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    (void)ctx;
    out[0] = tg_mul_scalar(in[0], 3);
    out[1] = tg_to_dtype(in[0], TG_I64);
    return TG_OK;
}
static bool zeros_came;
static tg_status looks_at_both(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)
{
    (void)ctx;
    zeros_came = grad_out[1] && tg_dtype_of(grad_out[1]) == TG_I64 && tg_item_i64(tg_any(grad_out[1])) == 0;
    grad_in[0] = tg_mul_scalar(grad_out[0], 3);
    return TG_OK;
}

TEST(zeros_stand_for_the_gradient_of_an_integer_output)
{
    tg_tensor *x = leaf("[1, 2]"), *y[2];
    CHECK(tg_custom("both", sum_and_count, looks_at_both, NULL, &x, 1, y, 2) == TG_OK);
    CHECK(tg_backward(tg_sum(y[0])) == TG_OK && zeros_came && tg_get(tg_grad(x), TG_INDEX(0)) == 3);
}

static tg_tensor *returns_null(tg_tensor *const *in, int n, void *user)
{
    (void)in, (void)n, (void)user;
    return NULL;
}
static tg_tensor *returns_ended(tg_tensor *const *in, int n, void *user)
{
    TG_SCOPE;
    (void)n, (void)user;
    return tg_mul_scalar(in[0], 2);
}
static tg_tensor *ended_hook(tg_tensor *g, void *user)
{
    TG_SCOPE;
    (void)user;
    return tg_mul_scalar(g, 2);
}
static tg_status ended_output(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    TG_SCOPE;
    (void)ctx;
    out[0] = tg_mul_scalar(in[0], 2);
    return TG_OK;
}
static tg_status plain_output(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    (void)ctx;
    out[0] = tg_mul_scalar(in[0], 2);
    return TG_OK;
}
static tg_status ended_gradient(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)
{
    TG_SCOPE;
    (void)ctx;
    grad_in[0] = tg_mul_scalar(grad_out[0], 2);
    return TG_OK;
}

TEST(results_that_have_ended)
{
    tg_tensor *x = leaf("[1, 2]"), *y = tg_sum(tg_mul(x, x));
    CHECK_FAILS(tg_checkpoint(returns_null, &x, 1, NULL), "the function returned NULL");
    CHECK_FAILS(tg_checkpoint(returns_ended, &x, 1, NULL), "ended with its scope");
    CHECK_FAILS(tg_gradcheck(returns_null, &x, 1, NULL), "the function returned NULL");
    CHECK_FAILS(tg_gradcheck(returns_ended, &x, 1, NULL), "ended with its scope");
    CHECK_FAILS(tg_gradgradcheck(returns_ended, &x, 1, NULL), "ended with its scope");
    {
        TG_NO_GRAD;
        CHECK_FAILS(tg_checkpoint(returns_null, &x, 1, NULL), "the function returned NULL");
        CHECK_FAILS(tg_checkpoint(returns_ended, &x, 1, NULL), "ended with its scope");
    }
    tg_hook(x, ended_hook, NULL);
    CHECK_FAILS(tg_backward(y), "ended with its scope");
    x = leaf("[1, 2]");
    CHECK_FAILS(tg_custom("ended", ended_output, double_it, NULL, &x, 1, &y, 1), "ended with its scope");
    CHECK(tg_custom("ended", plain_output, ended_gradient, NULL, &x, 1, &y, 1) == TG_OK);
    CHECK_FAILS(tg_backward(tg_sum(y)), "ended with its scope");
    CHECK(!tg_grad(x));
}

/* ---- the error record decides nothing ---- */

static void clears(tg_status code, const char *text, void *user)
{
    (void)code, (void)text;
    ++*(int *)user;
    tg_clear_error();
}
static tg_tensor *wrong_shape(tg_tensor *g, void *user)
{
    (void)user;
    return tg_ones_on(TG_SHAPE(7), tg_dtype_of(g), HERE);
}
static tg_tensor *wrong_dtype(tg_tensor *g, void *user)
{
    (void)user;
    return tg_to_dtype(g, TG_F32);
}
static tg_tensor *raises(tg_tensor *g, void *user)
{
    (void)user;
    CHECK(!tg_add(g, tg_ones_on(TG_SHAPE(3), TG_F64, HERE)));
    return NULL;
}
static tg_tensor *raises_and_forgives(tg_tensor *g, void *user)
{
    (void)user;
    CHECK(!tg_add(g, tg_ones_on(TG_SHAPE(3), TG_F64, HERE)));
    tg_clear_error();
    return tg_mul_scalar(g, 2);
}
static tg_status fails_quietly(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    (void)ctx, (void)in, (void)out;
    return TG_ERR_FORMAT;
}

TEST(handler_that_clears_the_record)
{
    tg_hook_fn const hooks[] = {wrong_shape, wrong_dtype, raises};
    tg_tensor *x, *y = NULL;
    int calls = 0, i;
    tg_set_error_handler(clears, &calls);
    for (i = 0; i < 3; ++i) {
        x = leaf("[1, 2]");
        tg_hook(x, hooks[i], NULL);
        CHECK(tg_backward(tg_sum(x)) != TG_OK && calls == i + 1 && !tg_grad(x) && tg_ok());
    }
    x = leaf("[1, 2]");
    CHECK(tg_custom("quiet", fails_quietly, double_it, NULL, &x, 1, &y, 1) == TG_ERR_FORMAT && !y && calls == 4);
    CHECK(!tg_gradcheck(returns_null, &x, 1, NULL) && calls == 5);
    CHECK(!tg_zeros_on(TG_SHAPE(2), TG_F32, TG_CUDA(77)) && calls == 6);
    CHECK(tg_backward(NULL) != TG_OK && calls == 7);
    tg_set_error_handler(NULL, NULL);
    CHECK(tg_ok());
}

TEST(hook_that_forgives_its_own_error)
{
    tg_tensor *x = leaf("[1, 2]");
    tg_hook(x, raises_and_forgives, NULL);
    CHECK(tg_backward(tg_sum(x)) == TG_OK && tg_ok() && tg_get(tg_grad(x), TG_INDEX(0)) == 2);
    /* an error that was pending before the call */
    CHECK_FAILS(tg_add(x, tg_ones_on(TG_SHAPE(3), TG_F64, HERE)), "must match");
    CHECK(!tg_add(x, tg_ones_on(TG_SHAPE(3), TG_F64, HERE)));
    x = leaf("[1, 2]");
    CHECK(tg_backward(tg_sum(x)) == TG_OK && tg_error_count() == 1);
    tg_clear_error();
}

static void raises_again(tg_status code, const char *text, void *user)
{
    (void)code, (void)text;
    ++*(int *)user;
    CHECK(!tg_zeros(tg_make_shape(-1, NULL)));
}

TEST(handler_that_raises_errors)
{
    int calls = 0;
    tg_set_error_handler(raises_again, &calls);
    CHECK(!tg_zeros(tg_make_shape(99, NULL)) && calls == 1 && tg_error_count() == 2);
    tg_set_error_handler(NULL, NULL);
    tg_clear_error();
}

static void releases_operands(tg_status code, const char *text, void *user)
{
    tg_tensor **list = (tg_tensor **)user;
    (void)code, (void)text;
    tg_release(list[0]), tg_release(list[1]);
}

TEST(handler_that_releases_operands)
{
    tg_tensor *list[2];
    list[0] = tg_param(f64("[1, 2]")), list[1] = tg_param(tg_ones_on(TG_SHAPE(3), TG_F64, HERE));
    tg_set_error_handler(releases_operands, list);
    CHECK(!tg_add(list[0], list[1]));
    tg_set_error_handler(NULL, NULL);
    CHECK(says("shapes [2] and [3] do not broadcast"));
    CHECK_FAILS(tg_neg(list[0]), "ended by tg_release");
    list[0] = tg_keep(tg_full(TG_SCALAR, 3)), list[1] = tg_full(TG_SCALAR, 4); /* a root without a graph */
    tg_set_error_handler(releases_operands, list);
    CHECK(tg_backward(list[0]) != TG_OK);
    tg_set_error_handler(NULL, NULL);
    CHECK(says("does not require grad"));
    CHECK_FAILS(tg_neg(list[0]), "ended by tg_release");
}

/* What the handler was told of a backward that fails half-way. */
static void keeps_text(tg_status code, const char *text, void *user) { (void)code, strcpy((char *)user, text); }

static tg_tensor *fails(tg_tensor *g, void *user) { return (void)user, tg_add(g, tg_ones_on(TG_SHAPE(3), TG_F64, HERE)); }

TEST(handler_hears_that_a_backward_cannot_be_repeated)
{
    static const char note[] = "note: this backward has freed part of its graph: it cannot be repeated";
    char text[2000];
    int flags, saves;
    tg_set_error_handler(keeps_text, text);
    for (flags = 0; flags <= TG_RETAIN_GRAPH; flags += TG_RETAIN_GRAPH) {
        for (saves = 0; saves < 2; ++saves) { /* what runs before the hook fails: exp, which saves, or neg */
            tg_tensor *x = leaf("[1, 2]"), *y = tg_neg(x), *loss = tg_sum(saves ? tg_exp(y) : tg_neg(y));
            bool freed = saves && flags == 0;
            int hook = tg_hook(y, fails, NULL);
            CHECK(tg_backward_ex(&loss, 1, NULL, flags) != TG_OK);
            CHECK((strstr(text, note) != NULL) == freed && strcmp(text, tg_error_message()) == 0);
            CHECK(!tg_grad(x));
            tg_clear_error();
            tg_unhook(y, hook);
            CHECK((tg_backward_ex(&loss, 1, NULL, flags) == TG_OK) == !freed);
            tg_clear_error();
            CHECK(!tg_zeros(tg_make_shape(-1, NULL)) && !strstr(text, note)); /* no later error says so */
            tg_clear_error();
        }
    }
    tg_set_error_handler(NULL, NULL);
}

/* ---- what outlives tg_shutdown ---- */

TEST(graph_and_scope_across_tg_shutdown)
{
    tg_tensor *x = tg_param(tg_ones_on(TG_SHAPE(2), TG_F64, TG_CPU)), *y = tg_retain(tg_mul(x, x)), *z, *unrelated;
    int calls = 0, hook;
    tg_mark inside, after;
    hook = tg_hook(y, hook_count, &calls);
    {
        TG_SCOPE;
        inside = tg_scope_begin();
        CHECK(tg_shutdown() == TG_OK);
        after = tg_scope_begin(); /* the end of this block must not close that scope */
        unrelated = tg_ones_on(TG_SHAPE(2), TG_F64, TG_CPU);
    }
    CHECK(tg_ndim(unrelated) == 1 && tg_ok());
    CHECK_FAILS(tg_scope_end(inside), "this scope is not open");
    z = tg_add(tg_mul_scalar(y, 2), tg_mul_scalar(y, 3));
    CHECK(tg_hook(z, hook_count, &calls) != hook);
    CHECK(tg_backward(tg_sum(z)) == TG_OK && calls == 2); /* each hook ran once, with the whole gradient */
    CHECK(tg_get(tg_grad(x), TG_INDEX(0)) == 10);
    tg_scope_end(after);
    tg_release(x), tg_release(y);
    CHECK(tg_stats().tensors == 0 && tg_stats().nodes == 0);
    CHECK(tg_shutdown() == TG_OK);
}

/* ---- lists: callbacks that store more than they were asked for, and read more than they were given ---- */

/* What the callbacks below do: store out[store], and pass in[read] to tg_mul. */
static struct {
    int store, read, hook_store;
} lists;

static void stores_and_reads(tg_module *m, tg_tensor *const *in, int n, tg_tensor **out, int n_out)
{
    int i;
    (void)m, (void)n;
    for (i = 0; i < n_out; ++i) out[i] = tg_mul_scalar(in[0], i + 2);
    if (lists.store >= 0) out[lists.store] = tg_neg(in[0]);
    if (lists.read >= 0) out[0] = tg_mul(in[0], in[lists.read]);
}

/* The list that the caller has is longer than it says, so that a store beyond would be seen. */
TEST(forwards_that_store_or_read_beyond_their_lists)
{
    static const int beyond[] = {1, 2, 3, 7, 8, 31, 32, 63, 64};
    tg_module *m = tg_module_new("Two", stores_and_reads, 0);
    tg_tensor *x = f64("[1, 2]"), *out[4], *in[4];
    char text[100];
    size_t i;
    lists.read = -1;
    for (i = 0; i < sizeof beyond / sizeof beyond[0]; ++i) {
        lists.store = beyond[i];
        snprintf(text, sizeof text, "tg_forward: the forward of 'Two' sets out[%d], but 1 output was asked for", beyond[i]);
        CHECK_FAILS(CHECK(!tg_forward(m, x)), text);
    }
    CHECK_FAILS(tg_forward(m, x), "hint: tg_forward_n(m, in, n, out, n_out) asks for several");
    in[0] = in[1] = in[2] = in[3] = out[3] = x;
    lists.store = 3;
    CHECK_FAILS(tg_forward_n(m, in, 1, out, 3), "the forward of 'Two' sets out[3], but 3 outputs were asked for");
    CHECK(!out[0] && !out[1] && !out[2] && out[3] == x);
    CHECK_FAILS(tg_forward_n(m, in, 1, NULL, 0), "sets out[3], but 0 outputs were asked for");
    lists.store = 2;
    CHECK(tg_forward_n(m, in, 1, out, 3) == TG_OK);
    HAS(out[2], "[-1, -2]");
    lists.store = -1;
    for (i = 0; i < sizeof beyond / sizeof beyond[0]; ++i) {
        lists.read = beyond[i] > 31 ? 32 : beyond[i];
        CHECK_FAILS(CHECK(!tg_forward(m, x)), "tg_mul: argument b is NULL");
        CHECK_FAILS(tg_forward(m, x), "hint: the forward of 'Two' was given 1 input: in[1] is NULL\n  in Two");
    }
    lists.read = 3;
    CHECK_FAILS(tg_forward_n(m, in, 3, out, 1), "the forward of 'Two' was given 3 inputs: in[3] is NULL");
    CHECK(tg_forward_n(m, in, 4, out, 1) == TG_OK);
    lists.read = -1;
    tg_module_free(m);
}

static void hook_that_stores(tg_module *m, tg_tensor **in, int n, tg_tensor **out, int n_out, void *user)
{
    (void)m, (void)n_out;
    if (user) in[n + lists.hook_store] = tg_neg(in[0]);
    else if (out) out[lists.hook_store] = tg_neg(in[0]);
}

TEST(module_hooks_that_store_beyond_their_lists)
{
    tg_module *m = tg_module_new("One", stores_and_reads, 0);
    tg_tensor *x = f64("[1, 2]");
    int hook, before, user = 1;
    lists.store = lists.read = -1;
    for (lists.hook_store = 1; lists.hook_store < 32; lists.hook_store *= 2) {
        hook = tg_module_hook(m, hook_that_stores, NULL);
        CHECK_FAILS(CHECK(!tg_forward(m, x)), "a hook of 'One' sets out[");
        tg_module_unhook(m, hook);
        for (before = 0; before < 2; ++before) {
            hook = (before ? tg_module_pre_hook : tg_module_hook)(m, hook_that_stores, &user);
            CHECK_FAILS(CHECK(!tg_forward(m, x)), "a hook of 'One' sets in[");
            tg_module_unhook(m, hook);
        }
        CHECK(tg_forward(m, x) != NULL);
    }
    tg_module_free(m);
}

static tg_status custom_forward_beyond(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    (void)ctx;
    out[0] = tg_mul_scalar(in[0], 2);
    if (tg_ctx_user(ctx)) return TG_OK; /* backward is at fault */
    if (lists.store >= 0) out[lists.store] = out[0];
    if (lists.read >= 0) out[0] = tg_mul(in[0], in[lists.read]);
    return tg_ok() ? TG_OK : tg_error_code();
}

static tg_status custom_backward_beyond(tg_ctx *ctx, tg_tensor *const *g, tg_tensor **grad_in)
{
    (void)ctx;
    grad_in[0] = tg_mul_scalar(g[0], 2);
    if (lists.store >= 0) grad_in[lists.store] = g[0];
    if (lists.read >= 0) grad_in[0] = tg_mul(g[0], g[lists.read]);
    return tg_ok() ? TG_OK : tg_error_code();
}

static tg_tensor *function_beyond(tg_tensor *const *in, int n, void *user)
{
    (void)n, (void)user;
    return lists.read >= 0 ? tg_mul(in[0], in[lists.read]) : tg_neg(in[0]);
}

TEST(functions_that_store_or_read_beyond_their_lists)
{
    static const int beyond[] = {1, 2, 8, 31, 64};
    tg_tensor *x = leaf("[1, 2]"), *y;
    int user = 1;
    size_t i;
    for (i = 0; i < sizeof beyond / sizeof beyond[0]; ++i) {
        lists.store = beyond[i], lists.read = -1;
        CHECK_FAILS(tg_custom("double", custom_forward_beyond, custom_backward_beyond, NULL, &x, 1, &y, 1),
                    "tg_custom: the forward of 'double' sets out[");
        CHECK(!y && tg_custom("double", custom_forward_beyond, custom_backward_beyond, &user, &x, 1, &y, 1) == TG_OK);
        CHECK_FAILS(backward_sum(y), "the backward of 'double' sets grad_in[");
        CHECK(!tg_grad(x));
        lists.store = -1, lists.read = beyond[i] > 32 ? 32 : beyond[i];
        CHECK_FAILS(tg_custom("double", custom_forward_beyond, custom_backward_beyond, NULL, &x, 1, &y, 1),
                    "argument b is NULL\n  hint: the forward of 'double' was given 1 input: in[1] is NULL");
        CHECK(tg_custom("double", custom_forward_beyond, custom_backward_beyond, &user, &x, 1, &y, 1) == TG_OK);
        CHECK_FAILS(backward_sum(y), "hint: the backward of 'double' was given 1 gradient: grad_out[1] is NULL");
        CHECK_FAILS(tg_checkpoint(function_beyond, &x, 1, NULL), "hint: the checkpointed function was given 1 input");
        CHECK_FAILS(tg_gradcheck(function_beyond, &x, 1, NULL), "hint: the function was given 1 input: in[1] is NULL");
        lists.read = -1;
        y = tg_checkpoint(function_beyond, &x, 1, NULL);
        lists.read = 1; /* when it is run again */
        CHECK_FAILS(backward_sum(y), "hint: the checkpointed function was given 1 input: in[1] is NULL");
    }
    { TG_NO_GRAD; CHECK_FAILS(tg_checkpoint(function_beyond, &x, 1, NULL), "the checkpointed function was given 1 input"); }
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    harness_take_device();
    harness.uses_ended = true;
    RUN(every_misdeed_of_every_callback);
#if defined(__unix__) || defined(__APPLE__)
    RUN(a_jump_out_of_every_callback);
#else
    puts("skipped: jumps out of callbacks: there is no fork");
#endif
    RUN(hook_releases_the_last_reference_of_its_leaf);
    RUN(function_releases_its_input);
    RUN(custom_without_a_differentiable_output);
    RUN(custom_with_hostile_arguments);
    RUN(zeros_stand_for_the_gradient_of_an_integer_output);
    RUN(results_that_have_ended);
    RUN(handler_that_clears_the_record);
    RUN(hook_that_forgives_its_own_error);
    RUN(handler_that_raises_errors);
    RUN(handler_that_releases_operands);
    RUN(handler_hears_that_a_backward_cannot_be_repeated);
    RUN(forwards_that_store_or_read_beyond_their_lists);
    RUN(module_hooks_that_store_beyond_their_lists);
    RUN(functions_that_store_or_read_beyond_their_lists);
    harness.only = harness.only ? harness.only : "";
    if (strstr("graph_and_scope_across_tg_shutdown", harness.only)) {
        harness.test = "graph_and_scope_across_tg_shutdown";
        test_graph_and_scope_across_tg_shutdown();
    }
    CHECK(tg_shutdown() == TG_OK);
    return harness_end();
}
