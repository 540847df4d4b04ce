/* What is alive, and for how long: the memory of a graph, scopes, tg_keep and tg_drop, tg_retain and tg_release, and
 * the library after tg_shutdown.  Tensors that are used after they ended are in test_use_after_end.c. */
#include "tensorgrad.h"
#include "semantics.h"
#include "helpers.h"

/* ---- lifetimes: what is alive, and for how long ---- */

typedef tg_tensor *(*program1)(tg_tensor *x);
static tg_tensor *saves_input(tg_tensor *x) { return tg_mul(tg_sin(x), x); }
static tg_tensor *saves_output(tg_tensor *x) { return tg_exp(tg_tanh(x)); }
static tg_tensor *saves_both(tg_tensor *x) { return tg_layer_norm(x, 1, NULL, NULL, 1e-5); }
static tg_tensor *works_in_place(tg_tensor *x)
{
    tg_tensor *y = tg_mul_scalar(x, 2);
    tg_sin_(y);
    tg_mul_(tg_narrow(y, 0, 0, 1), tg_narrow(x, 0, 0, 1));
    return tg_add_scalar_(y, 1);
}
static tg_tensor *has_outputs(tg_tensor *x)
{
    tg_tensor *parts[2], *index = NULL;
    tg_split(x, 1, 0, parts, 2);
    return tg_add(tg_sort(x, 0, true, &index), parts[1]);
}

/* exp(x) and x + 1, by a function that saves an input, an output and a tensor of its own, and has memory in its
 * node. */
static tg_status saving_forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    out[0] = tg_exp(in[0]), out[1] = tg_add_scalar(in[0], 1);
    tg_save(ctx, in[0]), tg_save(ctx, out[0]), tg_save(ctx, tg_mul_scalar(in[0], 2));
    return tg_ctx_alloc(ctx, 64 * sizeof(double)) && tg_ok() ? TG_OK : tg_error_code();
}
static tg_status saving_backward(tg_ctx *ctx, tg_tensor *const *g, tg_tensor **grad_in)
{
    grad_in[0] = tg_add(tg_mul(g[0], tg_exp(tg_saved(ctx, 0))), g[1]);
    return grad_in[0] ? TG_OK : tg_error_code();
}
static tg_tensor *is_custom(tg_tensor *x)
{
    tg_tensor *out[2] = {NULL, NULL};
    return tg_custom("saving", saving_forward, saving_backward, NULL, &x, 1, out, 2) == TG_OK ? out[0] : NULL;
}

static tg_tensor *exp_of_first(tg_tensor *const *in, int n, void *user)
{
    (void)n, (void)user;
    return tg_exp(tg_mul(in[0], in[0]));
}
static tg_tensor *is_checkpointed(tg_tensor *x) { return tg_checkpoint(exp_of_first, &x, 1, NULL); }
static tg_tensor *is_hooked(tg_tensor *x)
{
    static int calls;
    tg_tensor *y = tg_retain_grad(tg_mul(x, x));
    tg_hook(y, hook_count, &calls);
    return tg_exp(y);
}
static tg_tensor *is_named(tg_tensor *x)
{
    tg_tensor *y = tg_exp(x);
    tg_set_name(y, "a name that is longer than any small buffer that one might think of keeping it in");
    tg_set_name(y, "another");
    return tg_mul(y, y);
}

TEST(nothing_is_left_at_the_end_of_a_scope)
{
    static const program1 programs[] = {saves_input, saves_output,    saves_both, works_in_place, has_outputs,
                                        is_custom,   is_checkpointed, is_hooked,  is_named};
    tg_stats_info before = tg_stats();
    size_t i;
    int way;
    for (i = 0; i < sizeof programs / sizeof programs[0]; ++i) {
        for (way = 0; way < 6; ++way) {
            char text[16];
            harness.sample = text;
            snprintf(text, sizeof text, "%d/%d", (int)i, way);
            {
                TG_SCOPE;
                tg_tensor *x = leaf("[0.5, 1]"), *y = programs[i](x), *g;
                if (way == 1) CHECK(backward_sum(y) == TG_OK);
                if (way == 2) CHECK(backward_flags(y, TG_RETAIN_GRAPH) == TG_OK && backward_sum(y) == TG_OK);
                if (way == 3) CHECK(backward_flags(y, TG_CREATE_GRAPH) == TG_OK);
                if (way == 4) g = gradient(y, x, TG_CREATE_GRAPH), CHECK(g != NULL);
                if (way == 5) {
                    tg_tensor *sum = tg_sum(y);
                    tg_backward_run *run = tg_backward_begin(&sum, 1, NULL, 0);
                    CHECK(tg_backward_step(run, NULL) && tg_backward_end(run) == TG_OK); /* abandoned */
                }
                CHECK(y != NULL && tg_ok());
            }
            CHECK(!alive_changed(&before));
        }
    }
    harness.sample = NULL;
}

TEST(memory_after_backward)
{
    tg_tensor *x = leaf("[0.5, 1]"), *loss;
    tg_stats_info before = tg_stats(), now;
    {
        TG_SCOPE;
        loss = tg_keep(tg_sum(saves_output(tg_mul(x, saves_input(x)))));
    }
    CHECK(tg_stats().saved > before.saved);
    CHECK(tg_backward(loss) == TG_OK);
    now = tg_stats();
    CHECK(now.saved == before.saved);         /* after backward the loss holds no saved tensor */
    CHECK(now.nodes > before.nodes);          /* the nodes and edges stay, */
    CHECK(now.tensors == before.tensors + 2); /* and so do the loss and one gradient */
    tg_drop(loss);
    CHECK(tg_stats().nodes == before.nodes);
}

TEST(activations_that_no_node_saved_are_freed)
{
    tg_tensor *x = tg_set_requires_grad(tg_ones(TG_SHAPE(1000)), true), *y;
    int64_t bytes = tg_stats().bytes;
    {
        TG_SCOPE;
        y = tg_keep(tg_add_scalar(tg_neg(tg_add_scalar(tg_mul_scalar(x, 2), 1)), 3)); /* nothing of these is saved */
    }
    CHECK(tg_stats().bytes == bytes + 4000 && tg_stats().nodes == 4);
    CHECK(backward_sum(y) == TG_OK);
    CHECK_NEAR(tg_get(tg_grad(x), TG_INDEX(999)), -2, 0);
    {
        TG_SCOPE;
        tg_tensor *a = tg_exp(x), *b = tg_mul_scalar(a, 2);
        bytes = tg_stats().bytes;
        tg_drop(b); /* no node has saved it */
        CHECK(tg_stats().bytes == bytes - 4000);
        b = tg_mul(a, a);
        bytes = tg_stats().bytes;
        tg_drop(a); /* the handle is freed; the bytes stay, as a node has saved them */
        CHECK(tg_stats().bytes == bytes && backward_sum(b) == TG_OK);
    }
}

static tg_tensor *block(tg_tensor *x, tg_tensor *a, tg_tensor *b)
{
    TG_SCOPE;
    return tg_keep(tg_add(x, tg_matmul(tg_gelu(tg_matmul(tg_layer_norm(x, 1, NULL, NULL, 1e-5), a), true), b)));
}

/* Bytes that a model of this many blocks needs at most, beyond weights and input. */
static int64_t peak_of_blocks(int blocks)
{
    TG_SCOPE;
    tg_tensor *a = tg_randn(TG_SHAPE(32, 128)), *b = tg_mul_scalar(tg_randn(TG_SHAPE(128, 32)), 0.01),
              *x = tg_randn(TG_SHAPE(64, 32));
    int64_t bytes;
    TG_NO_GRAD;
    tg_set_requires_grad(a, true), tg_set_requires_grad(b, true);
    bytes = tg_stats().bytes;
    tg_reset_peak();
    while (blocks-- > 0) {
        TG_SCOPE;
        x = tg_keep(block(x, a, b));
    }
    CHECK(x != NULL);
    return tg_stats().peak_bytes - bytes;
}

/* The same, where the result of each block replaces its input. */
static int64_t peak_of_chain(int blocks)
{
    TG_SCOPE;
    tg_tensor *a = tg_randn(TG_SHAPE(32, 128)), *b = tg_mul_scalar(tg_randn(TG_SHAPE(128, 32)), 0.01),
              *x = tg_randn(TG_SHAPE(64, 32));
    int64_t bytes = tg_stats().bytes;
    TG_NO_GRAD;
    tg_reset_peak();
    while (blocks-- > 0) {
        tg_tensor *y = block(x, a, b);
        tg_drop(x);
        x = y;
    }
    return tg_stats().peak_bytes - bytes;
}

TEST(peak_without_gradients)
{
    double few = (double)peak_of_chain(2), many = (double)peak_of_chain(24);
    CHECK(few > 0 && many <= 1.2 * few);
    few = (double)peak_of_blocks(2),
    many = (double)peak_of_blocks(24); /* 22 more results of 8 KB stay alive to the end */
    CHECK(many - few <= 22 * 64 * 32 * 4);
}

/* Bytes that tg_gradients needs at most for a chain of this many ops. */
static int64_t peak_of_gradients(int ops)
{
    TG_SCOPE;
    tg_tensor *x = tg_set_requires_grad(tg_randn(TG_SHAPE(64, 320)), true), *y = x, *gradient = NULL, *row;
    row = tg_rand(TG_SHAPE(320));
    for (int i = 0; i < ops; ++i) y = i % 2 ? tg_mul(y, row) : tg_mul_scalar(y, 0.5);
    tg_tensor *ones = tg_ones_like(y);
    const int64_t bytes = tg_stats().bytes;
    tg_reset_peak();
    CHECK(tg_gradients(&y, 1, &ones, &x, 1, &gradient, 0) == TG_OK && gradient);
    return tg_stats().peak_bytes - bytes;
}

TEST(gradients_of_nodes_that_have_run_are_dropped)
{
    const int64_t few = peak_of_gradients(3);
    CHECK(few > 0 && peak_of_gradients(30) == few);
    CHECK(few < 2 * 64 * 320 * 4); /* all but the first one are written in the place of the one before */
}

TEST(memory_of_the_graph)
{
    ROW(2.95) {
        tg_stats_info before = tg_stats();
        tg_tensor *x = leaf("[1, 2]"), *y;
        tg_mark mark = tg_scope_begin();
        int i;
        y = x;
        for (i = 0; i < 1000; ++i) y = tg_exp(tg_mul_scalar(y, 0.001));
        y = tg_keep(y);
        tg_scope_end(mark);
        CHECK(tg_stats().nodes == before.nodes + 2000);
        tg_drop(y); /* without any backward */
        CHECK(tg_stats().nodes == before.nodes && tg_stats().saved == before.saved);
        CHECK(tg_stats().tensors == before.tensors + 1);
        for (i = 0; i < 3; ++i) {
            TG_SCOPE;
            tg_backward(tg_sum(tg_mul(x, x)));
        }
        CHECK(tg_stats().tensors == before.tensors + 2 &&
              tg_stats().nodes == before.nodes); /* x and x.grad: no cycle */
    }
}

TEST(no_allocation_after_the_second_step)
{
    tg_tensor *w = tg_set_requires_grad(tg_randn(TG_SHAPE(8, 8)), true), *x = tg_randn(TG_SHAPE(4, 8));
    int64_t allocations = 0;
    int i;
    for (i = 0; i < 10; ++i) {
        TG_SCOPE;
        if (i == 2) allocations = tg_stats().allocations;
        tg_set_grad(w, NULL);
        tg_backward(tg_mean(tg_gelu(tg_matmul(tg_layer_norm(tg_matmul(x, w), 1, NULL, NULL, 1e-5), w), false)));
    }
    if (!HARNESS_MEMORY_CHECKER) CHECK(tg_stats().allocations == allocations);
}

/* ---- host memory: where blocks begin, and what is kept of them ---- */

#ifdef __linux__
enum { ON_LINUX = 1 };
#else
enum { ON_LINUX = 0 };
#endif

static tg_tensor *bytes_on_host(int64_t bytes) { return tg_empty_on(TG_SHAPE(bytes), TG_U8, TG_CPU); }

TEST(large_blocks_begin_at_a_cache_line)
{
    static const int64_t sizes[] = {4096, 5000, 70000, 1 << 20, 4 << 20, (9 << 20) + 1};
    for (int i = 0; i < 6; ++i) {
        tg_tensor *t = bytes_on_host(sizes[i]);
        unsigned char *data = (unsigned char *)tg_data(t);
        CHECK((uintptr_t)data % (i > 3 && ON_LINUX ? 2 << 20 : 64) == 0); /* there can be huge pages */
        data[0] = data[sizes[i] - 1] = 1;
    }
}

TEST(freed_blocks_are_kept_within_limits)
{
    const int64_t mib = 1 << 20;
    int64_t most = 0, kept, i;
    void *data;
    tg_tensor *t;
    tg_set_cache_limit(SIZE_MAX);
    tg_trim();
    kept = tg_stats().cached_bytes; /* memory of handles */
    t = bytes_on_host(9 * mib), data = tg_data(t);
    tg_drop(t);
    CHECK(tg_stats().cached_bytes >= 9 * mib && tg_stats_on(TG_CPU).cached_bytes == tg_stats().cached_bytes);
    t = bytes_on_host(8 * mib + 1); /* of the same size class */
    CHECK(tg_data(t) == data && tg_stats().cached_bytes < kept + mib);
    tg_drop(t);
    for (i = 8; i < 80; i += 3) { /* about a gigabyte of which little is in use at a time */
        tg_tensor *first = bytes_on_host(i * mib), *second = bytes_on_host(i * mib);
        most = 2 * i * mib + 2 * i * mib / 8 + mib;
        CHECK(tg_stats().cached_bytes + 2 * i * mib <= most + most / 4 + 64 * mib);
        tg_drop(first), tg_drop(second);
    }
    CHECK(tg_stats().cached_bytes > most / 2 && tg_stats().cached_bytes <= most + most / 4 + 64 * mib);
    tg_trim();
    CHECK(tg_stats().cached_bytes < kept + mib);
    for (i = 0; i < 10; ++i) { /* the most in use was counted from 0 again */
        t = bytes_on_host((i + 8) * mib);
        tg_drop(t);
    }
    CHECK(tg_stats().cached_bytes <= 2 * 17 * mib + 64 * mib);
    tg_set_cache_limit((size_t)(2 * mib));
    CHECK(tg_stats().cached_bytes <= 2 * mib);
    tg_drop(bytes_on_host(3 * mib));
    CHECK(tg_stats().cached_bytes <= 2 * mib);
    tg_set_cache_limit(HARNESS_MEMORY_CHECKER ? 0 : SIZE_MAX);
}

/* ---- scopes ---- */

static tg_tensor *returns_from_scope(tg_tensor *x)
{
    TG_SCOPE;
    tg_tensor *y = tg_mul(x, x);
    if (tg_numel(x) > 1) return tg_keep(tg_sum(y));
    return tg_keep(y);
}

static int leaves_by_goto(tg_tensor *x)
{
    int times = 0;
again : {
    TG_SCOPE;
    if (tg_exp(x) == NULL) return -1;
    if (++times < 5) goto again;
}
    return times;
}

TEST(scopes_keep_and_drop)
{
    tg_stats_info before = tg_stats();
    tg_tensor *x = leaf("[1, 2]"), *kept, *outer;
    int i, k;
    {
        TG_SCOPE;
        {
            TG_SCOPE;
            outer = tg_mul(x, x);
            {
                TG_SCOPE;
                CHECK(tg_keep(outer) == outer); /* the tensor is not of the innermost scope, so it stays in its own */
                kept = tg_keep(tg_sum(outer));
                TG_NO_GRAD; /* a gradient mode is not a scope */
                CHECK(tg_keep(kept) == kept && tg_keep(x) == x);
            }
            CHECK(tg_stats().tensors == before.tensors + 3);
            CHECK(tg_keep(kept) == kept);
        }
        HAS(kept, "5");
        CHECK(backward_sum(kept) == TG_OK);
    }
    tg_set_grad(x, NULL);
    CHECK(tg_stats().tensors == before.tensors + 1 && tg_stats().nodes == before.nodes);

    HAS(returns_from_scope(x), "5");
    CHECK(leaves_by_goto(x) == 5);
    for (i = 0; i < 10; ++i) {
        TG_SCOPE;
        if (i == 3) continue;
        if (tg_mul(x, x) && i == 7) break;
    }
    for (i = 0; i < 3; ++i) {
        switch (i) {
        case 0: {
            TG_SCOPE;
            CHECK(tg_exp(x) != NULL);
            break;
        }
        default: break;
        }
    }
    {
        TG_SCOPE;
        TG_SCOPE;
        TG_NO_GRAD;
        TG_SCOPE;
        CHECK(tg_exp(x) != NULL);
    }                                                                        /* several on one line */
    CHECK(tg_is_grad_enabled() && tg_stats().tensors == before.tensors + 2); /* x and the sum kept above */

    kept = tg_mul(x, x);
    tg_drop(kept);
    CHECK(tg_stats().tensors == before.tensors + 2);
    CHECK(tg_keep(NULL) == NULL && !tg_ok());
    tg_clear_error();
    tg_drop(NULL), tg_release(NULL);
    CHECK(tg_ok());
    { /* thousands of nested scopes */
        tg_mark first = tg_scope_begin(), mark;
        tg_tensor *t = tg_mul(x, x);
        for (k = 0; k < 5000; ++k) {
            mark = tg_scope_begin();
            t = tg_add(t, x);
        }
        (void)mark;
        CHECK(tg_stats().tensors == before.tensors + 2 + 5001);
        tg_scope_end(first); /* this also closes the scopes within it */
        CHECK(tg_stats().tensors == before.tensors + 2);
    }
}

TEST(scopes_left_open_and_stale_marks)
{
    tg_stats_info before = tg_stats();
    tg_tensor *x = leaf("[1, 2]"), *late;
    tg_mark outer = tg_scope_begin(), inner = tg_scope_begin();
    CHECK(tg_exp(x) != NULL);
    tg_set_grad_enabled(false);
    tg_scope_end(outer);
    CHECK(tg_is_grad_enabled() && tg_stats().tensors == before.tensors + 1);
    CHECK_FAILS(tg_scope_end(inner), "this scope is not open");
    CHECK_FAILS(tg_scope_end(outer), "this scope is not open");
    late = tg_exp(x);
    {
        tg_mark never;
        never.serial = UINT64_MAX - 3;
        CHECK_FAILS(tg_scope_end(never), "this scope is not open");
    }
    HAS(tg_mul_scalar(late, 0), "[0, 0]");
    {
        TG_SCOPE;
        tg_mark open = tg_scope_begin();
        (void)open;
        late = tg_exp(x);
    }
    CHECK(tg_stats().nodes == before.nodes + 2); /* the first value of late, and the product above */
}

TEST(retain_and_release)
{
    tg_stats_info before = tg_stats();
    tg_tensor *t, *p;
    {
        TG_SCOPE;
        t = tg_retain(tg_retain(f64("[1, 2]")));
    }
    CHECK(tg_stats().tensors == before.tensors + 1);
    tg_release(t);
    HAS(t, "[1, 2]");
    {
        TG_SCOPE;
        CHECK(tg_mul(t, t) != NULL);
    }
    tg_release(t);
    p = tg_param(f64("[3]"));
    CHECK(tg_is_leaf(p) && tg_requires_grad(p));
    tg_retain(p);
    tg_release(p);
    {
        TG_SCOPE;
        CHECK(tg_keep(p) == p && backward_sum(tg_mul(p, p)) == TG_OK); /* tg_keep has no effect: p is in no scope */
    }
    HAS(tg_grad(p), "[6]");
    CHECK_FAILS(tg_param(tg_mul_scalar(p, 2)), "tg_detach");
    tg_release(p);
    t = f64("[1]");
    CHECK_FAILS(tg_release(t), "released more often than retained");
    HAS(t, "[1]");
    tg_drop(t);
    p = tg_retain(tg_param(f64("[1]")));
    tg_release(p);
    tg_drop(p); /* has no effect: p is in no scope */
    HAS(p, "[1]");
    tg_release(p);
}

/* A state that lives from turn to turn: one tensor more at a time, and none at the end. */
TEST(assigned_from_turn_to_turn)
{
    tg_stats_info before = tg_stats();
    tg_tensor *h = NULL;
    for (int turn = 0; turn < 5; ++turn) {
        TG_SCOPE;
        tg_tensor *next = h ? tg_mul_scalar(h, 2) : f64("[1, 2]");
        CHECK(tg_assign(&h, next) == TG_OK && h == next);
        CHECK(tg_assign(&h, h) == TG_OK && h == next); /* to itself: neither lost nor kept twice */
        CHECK(tg_stats().tensors == before.tensors + 1); /* the old one has ended */
    }
    CHECK(tg_stats().tensors == before.tensors + 1);
    HAS(h, "[16, 32]");
    CHECK_FAILS(tg_assign(NULL, h), "tg_assign: argument place is NULL");
    HAS(h, "[16, 32]");
    CHECK(tg_assign(&h, NULL) == TG_OK && h == NULL);
    CHECK(tg_stats().tensors == before.tensors);
    h = tg_param(f64("[3]"));
    CHECK(tg_assign(&h, NULL) == TG_OK && tg_stats().tensors == before.tensors);
}

TEST(release_of_a_list)
{
    tg_stats_info before = tg_stats();
    tg_tensor *weights[4] = {NULL, NULL, NULL, NULL};
    weights[0] = tg_param(f64("[1]")), weights[2] = tg_param(f64("[2, 3]")), weights[3] = f64("[4]");
    CHECK(tg_stats().tensors == before.tensors + 3);
    CHECK_FAILS((tg_release_all(weights, 4), false), "tg_release: released more often than retained: tensor [1]");
    HAS(weights[3], "[4]"); /* belongs to a scope; the others have ended */
    CHECK(tg_stats().tensors == before.tensors + 1);
    CHECK_FAILS((tg_release_all(NULL, 1), false), "tg_release_all: argument list is NULL");
    tg_release_all(NULL, 0);
    CHECK(tg_ok());
}

TEST(gradient_of_a_parameter_outlives_scopes)
{
    tg_stats_info before = tg_stats();
    tg_tensor *p = tg_param(f64("[2]")), *g;
    int i;
    for (i = 0; i < 3; ++i) {
        TG_SCOPE;
        CHECK(backward_sum(tg_mul(p, p)) == TG_OK);
    }
    HAS(tg_grad(p), "[12]");
    g = tg_retain(tg_grad(p));
    tg_release(p);
    HAS(g, "[12]"); /* a handle of its own */
    tg_release(g);
    CHECK(tg_stats().tensors == before.tensors + 0);
}

static void tensors_in_no_scope(void) /* not a TEST: those run in a scope */
{
    static tg_tensor *list[10001];
    int i;
    harness.test = "tensors_in_no_scope";
    warnings = 0, warned[0] = 0;
    tg_set_error_handler(keep_warning, NULL);
    for (i = 0; i < 9999; ++i) list[i] = tg_scalar(i);
    CHECK(warnings == 0 && tg_stats().unscoped == 9999);
    for (; i < 10001; ++i) list[i] = tg_scalar(i);
    CHECK(warnings == 1 && strstr(warned, "TG_SCOPE") && tg_ok());
    {
        TG_SCOPE;
        CHECK(tg_scalar(1) != NULL && tg_stats().unscoped == 10001);
    }
    tg_set_error_handler(NULL, NULL);
    tg_release(tg_param(list[0])); /* a parameter belongs to its caller */
    for (i = 1; i < 10001; ++i) tg_release(list[i]);
    CHECK(tg_stats().unscoped == 0 && tg_stats().tensors == 0 && tg_ok());
}

/* ---- the end of the library, and its second beginning ---- */

static void shutdown_and_reuse(void) /* not a TEST: it ends the scope that a test runs in */
{
    tg_tensor *t;
    tg_stats_info now;
    harness.test = "shutdown_and_reuse";
    tg_set_grad_enabled(false);
    tg_seed(1);
    t = tg_rand(TG_SHAPE(3));
    CHECK(t != NULL);
    tg_scope_begin(); /* left open */
    CHECK(tg_exp(t) != NULL);
    CHECK(tg_shutdown() == TG_OK);
    now = tg_stats();
    CHECK(now.tensors == 0 && now.nodes == 0 && now.bytes == 0 && now.saved == 0 && now.cached_bytes == 0 &&
          now.unscoped == 0);
    CHECK(tg_is_grad_enabled());
    {
        TG_SCOPE;
        tg_tensor *x = leaf("[1, 2]");
        CHECK(backward_sum(tg_mul(x, x)) == TG_OK);
        HAS(tg_grad(x), "[2, 4]");
    }
    t = tg_param(f64("[1, 2]"));
    CHECK(tg_shutdown() == TG_OK && tg_shutdown() == TG_OK && tg_thread_end() == TG_OK);
    CHECK(tg_stats().tensors == 1 && tg_stats().unscoped == 0);
    {
        TG_SCOPE;
        CHECK(backward_sum(tg_mul(t, t)) == TG_OK); /* retained tensors stay valid */
        HAS(tg_grad(t), "[2, 4]");
    }
    tg_release(t);
    CHECK(tg_stats().tensors == 0 && tg_stats().bytes == 0 && tg_shutdown() == TG_OK);
    CHECK(tg_ok());
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    harness_take_device();
    RUN(nothing_is_left_at_the_end_of_a_scope);
    RUN(memory_after_backward);
    RUN(activations_that_no_node_saved_are_freed);
    RUN(peak_without_gradients);
    RUN(gradients_of_nodes_that_have_run_are_dropped);
    RUN(memory_of_the_graph);
    RUN(no_allocation_after_the_second_step);
    RUN(large_blocks_begin_at_a_cache_line);
    RUN(freed_blocks_are_kept_within_limits);
    RUN(scopes_keep_and_drop);
    RUN(scopes_left_open_and_stale_marks);
    RUN(retain_and_release);
    RUN(assigned_from_turn_to_turn);
    RUN(release_of_a_list);
    RUN(gradient_of_a_parameter_outlives_scopes);
    if (!harness.only) {
        tensors_in_no_scope();
        shutdown_and_reuse();
    }
    check_rows("test_memory");
    CHECK(tg_shutdown() == TG_OK);
    return harness_end();
}
