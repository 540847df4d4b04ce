/* Hooks and retained gradients: section 2.3 of the semantics list, and hooks that remove themselves, run a backward or
 * change modes.  Hooks that misbehave are in test_callbacks.c. */
#include "tensorgrad.h"
#include "semantics.h"
#include "helpers.h"

/* A string to which hooks append letters, to record their order. */
static char journal[64];
static void note(char c)
{
    size_t n = strlen(journal);
    if (n + 1 < sizeof journal) journal[n] = c, journal[n + 1] = 0;
}

static tg_tensor *hook_note(tg_tensor *g, void *user)
{
    (void)g;
    note(*(const char *)user);
    return NULL;
}

/* ---- section 2.3: hooks and retained gradients ---- */

static void post_note(tg_tensor *t, void *user)
{
    note(*(const char *)user);
    if (tg_grad(t) == NULL) note('!');
}
static void post_see(tg_tensor *t, void *user) { *(double *)user = tg_item(tg_sum(tg_grad(t))); }
static tg_tensor *hook_wrong_size(tg_tensor *g, void *user)
{
    (void)g, (void)user;
    return f64("[1, 2, 3, 4, 5]");
}
static tg_tensor *hook_wrong_type(tg_tensor *g, void *user)
{
    (void)user;
    return tg_to_dtype(g, TG_F32);
}
static tg_tensor *hook_fails(tg_tensor *g, void *user)
{
    (void)user;
    return tg_add(g, tg_ones(TG_SHAPE(7, 7)));
}
static tg_tensor *hook_writes(tg_tensor *g, void *user)
{
    (void)user;
    tg_mul_scalar_(g, 100);
    return NULL;
}
typedef struct {
    tg_tensor *t;
    int id, calls;
} own_hook;
static tg_tensor *hook_removes_itself(tg_tensor *g, void *user)
{
    own_hook *own = (own_hook *)user;
    (void)g;
    own->calls++;
    tg_unhook(own->t, own->id);
    return NULL;
}

TEST(hooks_and_retained_gradients)
{
    double two = 2, three = 3, ten = 10;
    ROW(2.30) {
        tg_tensor *x = leaf("[1, 2]"), *y = tg_mul_scalar(x, 3);
        CHECK(tg_retain_grad(y) == y && tg_retain_grad(y) == y && tg_retain_grad(x) == x);
        CHECK(backward_sum(tg_mul_scalar(y, 2)) == TG_OK);
        HAS(tg_grad(y), "[2, 2]");
        HAS(tg_grad(x), "[6, 6]");
        CHECK_FAILS(tg_retain_grad(f64("[1]")), "can't retain_grad on Tensor that has requires_grad=False");
        y = tg_mul_scalar(x, 3);
        /* has no effect on a backward that has run */
        CHECK(backward_sum(y) == TG_OK && tg_retain_grad(y) == y && tg_grad(y) == NULL);
    }
    ROW(2.31) {
        tg_tensor *x = leaf("[1, 2]"), *y = leaf("[1]");
        double seen = 0;
        tg_hook(x, hook_times, &three);
        tg_hook(x, hook_see, &seen);
        CHECK(backward_sum(x) == TG_OK);
        HAS(tg_grad(x), "[3, 3]");
        tg_hook(y, hook_times, &two);
        tg_hook(y, hook_times, &ten);
        CHECK(backward_sum(y) == TG_OK);
        HAS(tg_grad(y), "[20]");
    }
    ROW(2.31) { /* each hook sees what the one before returned */
        tg_tensor *x = leaf("[1]");
        double before = 0, after = 0;
        tg_hook(x, hook_see, &before);
        tg_hook(x, hook_times, &ten);
        tg_hook(x, hook_see, &after);
        CHECK(backward_sum(x) == TG_OK);
        CHECK_NEAR(before, 1, 0);
        CHECK_NEAR(after, 10, 0);
    }
    ROW(2.32) { /* a retained gradient has seen all hooks, registered before or after */
        tg_tensor *x = leaf("[1]"), *y = tg_mul_scalar(x, 3);
        tg_hook(y, hook_times, &two);
        tg_retain_grad(y);
        tg_hook(y, hook_times, &two);
        CHECK(backward_sum(y) == TG_OK);
        HAS(tg_grad(y), "[4]");
        HAS(tg_grad(x), "[12]");
    }
    ROW(2.33) {
        tg_tensor *x = leaf("[1]");
        char a = 'a', p = 'p', q = 'q';
        double sum = 0;
        journal[0] = 0;
        tg_hook_post_accumulate(x, post_note, &p);
        tg_hook(x, hook_note, &a);
        tg_hook(x, hook_times, &three);
        tg_hook_post_accumulate(x, post_see, &sum);
        tg_hook_post_accumulate(x, post_note, &q);
        CHECK(backward_sum(x) == TG_OK && strcmp(journal, "apq") == 0);
        CHECK_NEAR(sum, 3, 0);
        CHECK(backward_sum(x) == TG_OK);
        CHECK_NEAR(sum, 6, 0);
    }
    ROW(2.34) {
        tg_tensor *y = tg_mul_scalar(leaf("[1]"), 2);
        CHECK_FAILS(tg_hook_post_accumulate(y, post_see, &two),
                    "post accumulate grad hooks cannot be registered on non-leaf");
        CHECK(tg_hook_post_accumulate(f64("[1]"), post_see, &two) == 0);
        tg_clear_error();
    }
    ROW(2.35) {
        tg_tensor *x = leaf("[1]"), *y = tg_mul_scalar(x, 2);
        int calls = 0, first = tg_hook(y, hook_count, &calls), second = tg_hook(y, hook_times, &ten);
        CHECK(first != 0 && second != 0 && first != second && tg_unhook(y, second) == TG_OK);
        CHECK(backward_sum(y) == TG_OK && calls == 1);
        HAS(tg_grad(x), "[2]");
        CHECK(tg_unhook(y, first) == TG_OK && backward_sum(y) == TG_OK && calls == 1);
        CHECK_FAILS(tg_unhook(y, first), "has no hook");
        CHECK_FAILS(tg_hook(f64("[1]"), hook_count, &calls),
                    "cannot register a hook on a tensor that doesn't require gradient");
        CHECK_FAILS(tg_hook(x, NULL, NULL), "NULL");
    }
    ROW(2.36) {
        tg_tensor *x = leaf("[1, 2]"), *y = tg_mul_scalar(x, 2);
        int hook = tg_hook(y, hook_wrong_size, NULL);
        CHECK_FAILS(backward_sum(y), "has changed the size of value");
        tg_unhook(y, hook);
        hook = tg_hook(y, hook_wrong_type, NULL);
        CHECK_FAILS(backward_sum(y), "has changed the type of value");
        tg_unhook(y, hook);
        hook = tg_hook(y, hook_fails, NULL);
        CHECK_FAILS(backward_sum(y), "do not broadcast");
        tg_unhook(y, hook);
        CHECK(tg_grad(x) == NULL && backward_sum(y) == TG_OK);
    }
    ROW(2.37) { /* PyTorch forbids it without saying what happens; here other runs do not see the change */
        tg_tensor *x = leaf("[1, 2]"), *y = tg_mul_scalar(x, 2), *g = f64("[1, 1]"), *z = tg_mul_scalar(x, 2);
        tg_hook(y, hook_writes, NULL);
        CHECK(backward_with(y, tg_clone(g), 0) == TG_OK);
        tg_set_grad(x, NULL);
        CHECK(backward_with(z, g, 0) == TG_OK);
        HAS(tg_grad(x), "[2, 2]");
    }
    ROW(2.38) { /* the old hook sees the gradient of what the tensor was */
        tg_tensor *x = leaf("[1, 2]"), *y = tg_mul_scalar(x, 2);
        double old = 0, now = 0;
        tg_hook(y, hook_see, &old);
        tg_mul_scalar_(y, 3);
        tg_hook(y, hook_see, &now);
        CHECK(backward_sum(y) == TG_OK);
        CHECK_NEAR(old, 6, 0);
        CHECK_NEAR(now, 2, 0);
        HAS(tg_grad(x), "[6, 6]");
    }
}

TEST(retained_gradient_moves_with_a_write)
{
    tg_tensor *x = leaf("[1, 2, 3]"), *y = tg_retain_grad(tg_mul_scalar(x, 2)), *v;
    tg_mul_scalar_(y, 3);
    CHECK(backward_sum(y) == TG_OK);
    HAS(tg_grad(y), "[1, 1, 1]");
    HAS(tg_grad(x), "[6, 6, 6]");
    y = tg_retain_grad(tg_mul_scalar(x, 1)), v = tg_retain_grad(tg_narrow(y, 0, 0, 2));
    tg_mul_scalar_(v, 10);
    CHECK(tg_backward(tg_add(tg_sum(y), tg_sum(v))) == TG_OK);
    HAS(tg_grad(y), "[2, 2, 1]"); /* v is a part of it */
    HAS(tg_grad(v), "[1, 1]");
    HAS(tg_grad(x), "[26, 26, 7]");
}

TEST(hook_that_removes_itself)
{
    tg_tensor *x = leaf("[1]"), *y = tg_mul_scalar(x, 2);
    int calls = 0, k;
    own_hook on_x = {NULL, 0, 0}, on_y = {NULL, 0, 0};
    on_x.t = x, on_x.id = tg_hook(x, hook_removes_itself, &on_x);
    on_y.t = y, on_y.id = tg_hook(y, hook_removes_itself, &on_y);
    tg_hook(y, hook_count, &calls);
    tg_set_cache_limit(0); /* so that a memory checker sees what a freed entry is used for */
    for (k = 0; k < 2; ++k) CHECK(backward_sum(y) == TG_OK && on_x.calls == 1 && on_y.calls == 1 && calls == k + 1);
    tg_set_cache_limit(HARNESS_MEMORY_CHECKER ? 0 : SIZE_MAX);
}

TEST(hook_removed_after_a_write)
{
    tg_tensor *x = leaf("[1]"), *y = tg_mul_scalar(x, 2);
    double two = 2;
    int hook = tg_hook(y, hook_times, &two);
    tg_add_scalar_(y, 1);
    CHECK(tg_unhook(y, hook) == TG_OK && backward_sum(y) == TG_OK);
    HAS(tg_grad(x), "[2]");
}

/* Modes that a hook changes are restored after it.  Scopes that hooks leave open or try to end are in
 * test_callbacks.c. */
static tg_tensor *hook_changes_modes(tg_tensor *g, void *user)
{
    tg_mark mark = tg_scope_begin();
    tg_tensor *twice = tg_keep(tg_mul_scalar(g, 2));
    (void)user;
    tg_scope_end(mark);
    tg_set_grad_enabled(true);
    return twice;
}

TEST(hooks_and_modes)
{
    tg_tensor *x = leaf("[1, 2]"), *y = tg_mul_scalar(x, 3);
    tg_hook(y, hook_changes_modes, NULL);
    tg_hook(x, hook_changes_modes, NULL);
    y = tg_sum(y);
    tg_set_grad_enabled(false);
    CHECK(tg_backward(y) == TG_OK && !tg_is_grad_enabled());
    tg_set_grad_enabled(true);
    HAS(tg_grad(x), "[12, 12]");
}

/* A backward within a backward: a hook differentiates another graph, and then the graph that is running. */
static tg_tensor *inner_loss, *inner_leaf;
static tg_tensor *hook_runs_backward(tg_tensor *g, void *user)
{
    (void)user;
    if (tg_backward_ex(&inner_loss, 1, NULL, TG_RETAIN_GRAPH) != TG_OK) return NULL;
    return tg_mul(g, tg_full_like(g, tg_item(tg_grad(inner_leaf))));
}

static tg_tensor *hook_runs_backward_once(tg_tensor *g, void *user)
{
    tg_tensor *loss = inner_loss, *result;
    if (!loss) return NULL;
    inner_loss = NULL;
    result = tg_backward_ex(&loss, 1, NULL, TG_RETAIN_GRAPH) == TG_OK ? tg_mul(g, tg_grad(inner_leaf)) : NULL;
    (void)user;
    return result;
}

TEST(backward_inside_hooks)
{
    tg_tensor *x = leaf("[1, 2]"), *y = tg_mul(x, x), *loss;
    inner_leaf = scalar_leaf(3);
    inner_loss = tg_mul(inner_leaf, inner_leaf);
    tg_hook(y, hook_runs_backward, NULL);
    CHECK(backward_sum(y) == TG_OK);
    HAS(tg_grad(x), "[12, 24]");
    x = scalar_leaf(2), y = tg_mul(x, x), loss = tg_mul(y, y); /* x^4: the hook runs the running graph once more */
    inner_leaf = x, inner_loss = loss;
    tg_hook(y, hook_runs_backward_once, NULL);
    CHECK(tg_backward_ex(&loss, 1, NULL, TG_RETAIN_GRAPH) == TG_OK);
    HAS(tg_grad(x), "1056"); /* 32 from inside, then 32 * 32 */
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    harness_take_device();
    RUN(hooks_and_retained_gradients);
    RUN(retained_gradient_moves_with_a_write);
    RUN(hook_that_removes_itself);
    RUN(hook_removed_after_a_write);
    RUN(hooks_and_modes);
    RUN(backward_inside_hooks);
    check_rows("test_hooks");
    CHECK(tg_shutdown() == TG_OK);
    return harness_end();
}
