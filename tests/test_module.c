/* Modules: members and their paths, who owns what, forwards and their errors, hooks, modes, moves in place, printing.
 * Where there are two devices (on the simulator: TG_SIM_DEVICES=2) also what an error inside a forward says of a tensor
 * that is on the wrong one. */
#include "tensorgrad.h"
#include "helpers.h"

/* y = fc(x) * scale */
typedef struct {
    tg_tensor *scale;
    tg_module *fc;
} scaled;

static void scaled_forward(tg_module *m, tg_tensor *const *in, int n, tg_tensor **out, int n_out)
{
    scaled *self = (scaled *)tg_module_self(m);
    (void)n, (void)n_out;
    out[0] = tg_mul(tg_forward(self->fc, in[0]), self->scale);
}

static tg_module *scaled_new(int in, int out)
{
    tg_module *m = tg_module_new("Scaled", scaled_forward, sizeof(scaled));
    scaled *self = (scaled *)tg_module_self(m);
    if (!self) return NULL;
    self->scale = tg_module_param(m, "scale", tg_ones(TG_SHAPE(out)));
    self->fc = tg_module_child(m, "fc", tg_nn_linear(in, out, true));
    return m;
}

static tg_module *holder(const char *name) { return tg_module_new(name, NULL, 0); }

/* A chain of holders, n below each other: "0.0.0..." */
static tg_module *chain(int n)
{
    tg_module *top = holder("Chain"), *m = top;
    while (n-- > 0) m = tg_module_child(m, "0", holder("Chain"));
    return top;
}

/* ---- members ---- */

TEST(members_and_paths)
{
    tg_module *m = scaled_new(4, 2), *outer = holder("Outer");
    tg_tensor *steps = tg_module_buffer(m, "steps", i64("7"));
    CHECK(tg_module_child(outer, "block", m) == m);
    CHECK(strcmp(tg_module_name(m), "Scaled") == 0 && tg_module_get(m, "steps") == steps && !tg_requires_grad(steps));
    CHECK(tg_module_count(outer) == 3 && tg_module_numel(outer) == 2 + 8 + 2);
    CHECK(strcmp(tg_module_path(outer, 0), "block.scale") == 0 &&
          strcmp(tg_module_path(outer, 2), "block.fc.bias") == 0);
    CHECK(tg_module_get(outer, "block.fc.weight") == tg_module_params(m)[1]);
    CHECK(tg_requires_grad(tg_module_get(m, "scale")) && strcmp(tg_name(tg_module_get(m, "scale")), "scale") == 0);
    CHECK(tg_module_get_child(outer, "block.fc") == tg_module_child_at(m, 0));
    CHECK(tg_module_child_count(m) == 1 && strcmp(tg_module_child_name(m, 0), "fc") == 0);
    /* a path that leads nowhere, or to a member of the other kind, is no error */
    CHECK(!tg_module_get(m, "fc") && !tg_module_get(m, "fc.") && !tg_module_get(m, "") && !tg_module_get(m, "scale.x"));
    CHECK(!tg_module_get_child(m, "scale") && !tg_module_get_child(m, "f") && !tg_module_get_child(m, "fcc") &&
          tg_ok());
    CHECK_FAILS(tg_module_path(m, 3), "there is no parameter 3: 'Scaled' has 3");
    CHECK_FAILS(tg_module_child_at(m, 1), "there is no child 1: 'Scaled' has 1");
    CHECK_FAILS(tg_module_child_name(m, -1), "there is no child -1");
    tg_module_free(outer);
    tg_module_free(NULL);
}

TEST(the_order_is_own_first)
{
    tg_module *m = holder("M"), *a;
    a = tg_module_child(m, "a", tg_nn_linear(1, 1, true));
    tg_module_buffer(m, "buffer", f32("[1]"));
    tg_module_param(m, "late", f32("[1]"));
    tg_module_param(a, "more", f32("[1, 2]"));
    CHECK(tg_module_count(m) == 4 && tg_module_params(m)[0] == tg_module_get(m, "late"));
    CHECK(tg_module_params(m)[3] == tg_module_get(m, "a.more"));
    tg_module_free(m);
    m = holder("Empty");
    CHECK(tg_module_params(m) == NULL && tg_module_count(m) == 0 && tg_module_numel(m) == 0 && tg_ok());
    tg_module_free(m);
}

TEST(names_that_are_refused)
{
    char longest[102];
    tg_module *m = scaled_new(2, 2);
    tg_tensor *t = tg_ones(TG_SHAPE(1));
    memset(longest, 'x', 101), longest[101] = 0;
    CHECK_FAILS(tg_module_param(m, "scale", t), "attribute 'scale' of 'Scaled' already exists");
    CHECK_FAILS(tg_module_buffer(m, "fc", t), "attribute 'fc' of 'Scaled' already exists");
    CHECK_FAILS(tg_module_child(m, "scale", tg_nn_relu()), "attribute 'scale' of 'Scaled' already exists");
    CHECK_FAILS(tg_module_param(m, "a.b", t), "parameter name can't contain \".\": a.b");
    CHECK_FAILS(tg_module_buffer(m, "", t), "buffer name can't be empty string \"\"");
    CHECK_FAILS(tg_module_child(m, longest, tg_nn_relu()), "a module name has at most 100 bytes");
    CHECK(tg_module_param(m, longest + 1, t) == t && strlen(tg_module_path(m, 1)) == 100);
    CHECK_FAILS(tg_module_param(m, "w", tg_exp(tg_module_get(m, "scale"))), "tg_detach(t) is a leaf");
    CHECK_FAILS(tg_module_param(m, "w", i64("[1]")), "only Tensors of floating point dtype can require gradients");
    tg_module_free(m);
}

TEST(null_arguments)
{
    tg_module *m = scaled_new(2, 2);
    tg_device device;
    CHECK_FAILS(tg_module_new(NULL, NULL, 0), "argument name is NULL");
    CHECK_FAILS(tg_module_new("Huge", NULL, SIZE_MAX), "tg_module_new");
    CHECK_FAILS(tg_module_self(NULL), "argument m is NULL");
    CHECK_FAILS(tg_module_name(NULL), "argument m is NULL");
    CHECK_FAILS(tg_module_set_extra(NULL, "x"), "argument m is NULL");
    CHECK_FAILS(tg_module_retain(NULL), "argument m is NULL");
    CHECK_FAILS(tg_module_param(NULL, "x", tg_ones(TG_SCALAR)), "argument m is NULL");
    CHECK_FAILS(tg_module_param(m, NULL, tg_ones(TG_SCALAR)), "argument name is NULL");
    CHECK_FAILS(tg_module_child(m, NULL, tg_nn_relu()), "argument name is NULL");
    CHECK_FAILS(tg_module_child(NULL, "x", tg_nn_relu()), "argument m is NULL");
    CHECK_FAILS(tg_module_child(m, "x", NULL), "argument child is NULL");
    CHECK_FAILS(tg_module_get(NULL, "x"), "argument m is NULL");
    CHECK_FAILS(tg_module_get(m, NULL), "argument path is NULL");
    CHECK_FAILS(tg_module_get_child(NULL, "x"), "argument m is NULL");
    CHECK_FAILS(tg_module_get_child(m, NULL), "argument path is NULL");
    CHECK_FAILS(tg_module_child_count(NULL), "argument m is NULL");
    CHECK_FAILS(tg_module_child_at(NULL, 0), "argument m is NULL");
    CHECK_FAILS(tg_module_params(NULL), "argument m is NULL");
    CHECK_FAILS(tg_module_count(NULL), "argument m is NULL");
    CHECK_FAILS(tg_module_numel(NULL), "argument m is NULL");
    CHECK_FAILS(tg_module_path(NULL, 0), "argument m is NULL");
    CHECK_FAILS(tg_module_zero_grad(NULL), "argument m is NULL");
    CHECK_FAILS(tg_module_requires_grad_(NULL, true), "argument m is NULL");
    CHECK_FAILS(tg_module_train(NULL, true), "argument m is NULL");
    CHECK_FAILS(tg_module_is_training(NULL), "argument m is NULL");
    CHECK_FAILS(tg_module_to(NULL, TG_CPU), "argument m is NULL");
    CHECK_FAILS(tg_module_to_dtype(NULL, TG_F64), "argument m is NULL");
    CHECK_FAILS(tg_module_device(NULL, &device), "argument m is NULL");
    CHECK_FAILS(tg_module_device(m, NULL), "argument device is NULL");
    CHECK_FAILS(tg_forward(NULL, tg_ones(TG_SCALAR)), "argument m is NULL");
    CHECK_FAILS(tg_forward(m, NULL), "argument x is NULL");
    CHECK_FAILS(tg_forward_n(m, NULL, 1, NULL, 0), "argument in is NULL");
    CHECK_FAILS(tg_forward_n(m, NULL, -1, NULL, 0), "-1 inputs and 0 outputs cannot be");
    CHECK_FAILS(tg_forward_n(m, NULL, 0, NULL, 1), "argument out is NULL");
    CHECK_FAILS(tg_module_hook(NULL, NULL, NULL), "argument m is NULL");
    CHECK_FAILS(tg_module_pre_hook(m, NULL, NULL), "argument hook is NULL");
    CHECK_FAILS(tg_module_unhook(NULL, 1), "argument m is NULL");
    CHECK_FAILS(tg_module_unhook(m, 0), "'Scaled' has no hook 0");
    CHECK_FAILS(tg_module_print(NULL, m), "argument file is NULL");
    CHECK_FAILS(tg_module_print(stdout, NULL), "argument m is NULL");
    tg_module_free(m);
}

/* ---- who owns what ---- */

TEST(tensors_live_with_their_module)
{
    const int64_t before = tg_stats().tensors;
    tg_module *m;
    tg_tensor *kept, *mine = tg_param(tg_ones(TG_SHAPE(2)));
    tg_mark mark = tg_scope_begin();
    m = scaled_new(3, 2);
    kept = tg_module_get(m, "fc.weight");
    tg_module_param(m, "mine", mine);
    tg_scope_end(mark);
    CHECK(tg_stats().tensors == before + 4 && tg_dim(kept, 1) == 3 && tg_stats().modules >= 2);
    tg_module_free(m);
    CHECK(tg_stats().tensors == before + 1 && tg_numel(mine) == 2); /* tg_param's reference is the caller's */
    tg_release(mine);
    CHECK(tg_stats().tensors == before);
}

TEST(a_tensor_tied_to_two_modules)
{
    tg_module *m = holder("Tied"), *a, *b;
    tg_tensor *w;
    a = tg_module_child(m, "a", tg_nn_linear(3, 3, false));
    b = tg_module_child(m, "b", holder("B"));
    w = tg_module_get(a, "weight");
    ROW(1.110)
    {
        CHECK(tg_module_param(b, "weight", w) == w && tg_module_count(m) == 1 && tg_module_numel(m) == 9);
        CHECK(tg_module_to_dtype(m, TG_F64) == m && tg_module_get(a, "weight") == w);
        CHECK(tg_module_get(b, "weight") == w && tg_dtype_of(w) == TG_F64);
    }
    tg_module_free(m);
}

TEST(a_module_with_two_parents)
{
    const int64_t before = tg_stats().modules;
    tg_module *a = holder("A"), *b = holder("B"), *shared = tg_nn_linear(2, 2, false);
    CHECK(tg_module_child(a, "s", shared) == shared);
    CHECK_FAILS(tg_module_child(b, "s", shared), "this 'Linear' is the child of another module");
    CHECK_FAILS(tg_module_free(shared), "belongs to a module that it is a child of");
    CHECK(tg_module_child(b, "s", tg_module_retain(shared)) == shared);
    CHECK(tg_module_child(a, "b", b) == b && tg_module_count(a) == 1);
    CHECK(tg_module_retain(shared) == shared);
    tg_module_free(a);
    CHECK(tg_stats().modules == before + 1 && tg_module_count(shared) == 1); /* the reference of tg_module_retain */
    tg_module_free(shared);
    CHECK(tg_stats().modules == before);
}

TEST(a_tree_has_no_circles)
{
    tg_module *a = holder("A"), *b = tg_module_child(a, "b", holder("B"));
    CHECK_FAILS(tg_module_child(b, "a", tg_module_retain(a)), "a module cannot be a child of its own children");
    CHECK_FAILS(tg_module_child(a, "a", tg_module_retain(a)), "a module cannot be its own child");
    CHECK(tg_module_child_count(b) == 0);
    tg_module_free(a);
}

TEST(depth)
{
    tg_module *m = chain(31);
    tg_device device;
    CHECK(tg_module_train(m, false) == m && tg_module_count(m) == 0);
    tg_module_free(m);
    m = chain(5000); /* deeper than may be: it can be freed, and everything else says so */
    CHECK_FAILS(tg_module_params(m), "modules are nested deeper than 32, below '0'");
    CHECK_FAILS(tg_module_train(m, false), "nested deeper than 32");
    CHECK(tg_module_is_training(m));
    CHECK_FAILS(tg_module_to(m, HERE), "nested deeper than 32");
    CHECK_FAILS(tg_module_device(m, &device), "nested deeper than 32");
    CHECK_FAILS(tg_module_child(tg_module_get_child(m, "0"), "x", chain(40)), "nested deeper than 32");
    tg_module_free(m);
}

/* ---- forward ---- */

static void pieces_forward(tg_module *m, tg_tensor *const *in, int n, tg_tensor **out, int n_out)
{
    (void)n;
    tg_split(tg_relu(tg_forward(tg_module_get_child(m, "linear"), in[0])), 2, 1, out, n_out);
}

static void forgets_forward(tg_module *m, tg_tensor *const *in, int n, tg_tensor **out, int n_out)
{
    (void)m;
    for (int i = 1; i < n_out && n > 0; ++i) out[i] = in[0];
}

static void raises_forward(tg_module *m, tg_tensor *const *in, int n, tg_tensor **out, int n_out)
{
    (void)m, (void)n, (void)n_out;
    (void)tg_add(in[0], tg_ones(TG_SHAPE(7, 7))); /* fails, and the forward goes on */
    out[0] = in[0];
}

static void calls_itself(tg_module *m, tg_tensor *const *in, int n, tg_tensor **out, int n_out)
{
    (void)n, (void)n_out;
    out[0] = tg_forward(m, in[0]);
}

static void scope_left_open(tg_module *m, tg_tensor *const *in, int n, tg_tensor **out, int n_out)
{
    (void)m, (void)n, (void)n_out;
    tg_scope_begin();
    out[0] = in[0];
}

static void frees_itself(tg_module *m, tg_tensor *const *in, int n, tg_tensor **out, int n_out)
{
    (void)n, (void)n_out;
    out[0] = tg_add_scalar(in[0], 1);
    tg_module_free(m);
}

TEST(several_outputs)
{
    tg_module *m = tg_module_new("Pieces", pieces_forward, 0);
    tg_tensor *x = tg_randn(TG_SHAPE(3, 4)), *out[3], *few[2];
    tg_module_child(m, "linear", tg_nn_linear(4, 5, true));
    CHECK(tg_forward_n(m, &x, 1, out, 3) == TG_OK && tg_dim(out[0], 1) == 2 && tg_dim(out[2], 1) == 1);
    few[0] = few[1] = x;
    CHECK_FAILS(tg_forward_n(m, &x, 1, few, 2), "in Pieces");
    CHECK(few[0] == NULL && few[1] == NULL);
    tg_module_free(m);
}

TEST(what_a_forward_makes_ends_with_it)
{
    tg_module *m = scaled_new(4, 2);
    tg_tensor *x = tg_ones(TG_SHAPE(3, 4));
    const int64_t before = tg_stats().tensors;
    {
        TG_NO_GRAD;
        CHECK(tg_forward(m, x) != NULL && tg_stats().tensors == before + 1);
    }
    tg_module_free(m);
}

TEST(forwards_that_fail)
{
    tg_module *m = tg_module_new("Forgets", forgets_forward, 0);
    tg_tensor *x = tg_ones(TG_SHAPE(2)), *out[2];
    const tg_rng rng = tg_rng_state();
    CHECK_FAILS(tg_forward(m, x), "the forward of 'Forgets' did not set out[0]");
    CHECK_FAILS(tg_forward_n(m, &x, 1, out, 2), "did not set out[0]");
    CHECK(out[1] == NULL);
    tg_module_free(m);
    m = tg_module_new("Raises", raises_forward, 0);
    CHECK(tg_forward(m, x) == NULL && tg_error_count() == 1);
    tg_clear_error();
    tg_module_free(m);
    m = tg_module_new("Recursive", calls_itself, 0);
    CHECK_FAILS(tg_forward(m, x), "256 forwards run one inside the other");
    tg_module_free(m);
    m = tg_module_new("Open", scope_left_open, 0);
    CHECK_FAILS(tg_forward(m, x), "the forward of a module left a scope open");
    tg_module_free(m);
    m = holder("Holder");
    CHECK_FAILS(tg_forward(m, x), "'Holder' has no forward");
    tg_module_free(m);
    m = tg_module_new("Frees", frees_itself, 0);
    HAS(tg_forward(m, f32("[1, 2]")), "[2, 3]");
    CHECK(rng.offset == tg_rng_state().offset);
}

static tg_tensor *net_forward(tg_module *m, tg_tensor *x) { return tg_tanh(tg_forward(tg_module_child_at(m, 0), x)); }

static tg_tensor *nothing_forward(tg_module *m, tg_tensor *x) { return m && x ? (tg_tensor *)NULL : x; }

TEST(forward_of_one_input)
{
    tg_module *m = tg_nn_module("Net", net_forward, sizeof(double)), *list[2];
    tg_tensor *x = tg_ones(TG_SHAPE(3, 4)), *two[2], *out[2];
    two[0] = two[1] = x;
    CHECK(*(double *)tg_module_self(m) == 0 && strcmp(tg_module_name(m), "Net") == 0);
    list[0] = tg_module_child(m, "fc", tg_nn_linear(4, 2, true));
    const int64_t before = tg_stats().tensors;
    tg_tensor *y = tg_forward(m, x);
    CHECK(tg_equal(y, tg_tanh(tg_forward(list[0], x))) && tg_forward_n(m, &x, 1, out, 1) == TG_OK);
    CHECK(tg_equal(out[0], y) && tg_backward(tg_sum(y)) == TG_OK && tg_grad(tg_module_params(m)[0]));
    CHECK(tg_stats().tensors >= before && tg_forward(m, NULL) == NULL && strstr(tg_error_message(), "NULL"));
    tg_clear_error();
    CHECK_FAILS(tg_forward_n(m, two, 2, out, 1), "the forward of 'Net' has one input and one output, not 2 and 1");
    CHECK_FAILS(tg_forward_n(m, two, 1, out, 2), "has one input and one output, not 1 and 2");
    CHECK_FAILS(tg_forward_n(m, NULL, 0, out, 1), "has one input and one output, not 0 and 1");
    CHECK_FAILS(tg_forward(m, tg_ones(TG_SHAPE(3, 5))), "\n  in Net.fc");
    list[0] = m, list[1] = tg_nn_module("Nothing", nothing_forward, 0);
    CHECK_FAILS(tg_forward(list[1], x), "the forward of 'Nothing' returned NULL");
    tg_module *net = tg_nn_sequential(list, 2);
    CHECK_FAILS(tg_forward(net, x), "\n  in Sequential.1");
    tg_module_free(net);
    m = tg_nn_module("Holder", NULL, 0);
    CHECK_FAILS(tg_forward(m, x), "'Holder' has no forward: it only holds other modules");
    tg_module_free(m);
    CHECK_FAILS(tg_nn_module(NULL, net_forward, 0), "nn_module: ");
}

TEST(errors_name_the_path)
{
    tg_module *list[2], *net;
    list[0] = tg_nn_relu(), list[1] = scaled_new(4, 2);
    net = tg_nn_sequential(list, 2);
    CHECK_FAILS(tg_forward(net, tg_ones(TG_SHAPE(2, 3))), "\n  in Sequential.1.fc");
    CHECK(tg_add(tg_ones(TG_SHAPE(2)), tg_ones(TG_SHAPE(3))) == NULL && !strstr(tg_error_message(), "\n  in "));
    tg_clear_error();
    CHECK_FAILS(tg_forward_n(list[0], NULL, 0, NULL, 0), "\n  in ReLU");
    tg_module_free(net);
}

/* ---- hooks ---- */

static int hook_calls;
static void double_outputs(tg_module *m, tg_tensor **in, int n, tg_tensor **out, int n_out, void *user)
{
    (void)m, (void)in, (void)n, (void)user;
    ++hook_calls;
    for (int i = 0; i < n_out; ++i) out[i] = tg_mul_scalar(out[i], 2);
}

static void add_one_to_inputs(tg_module *m, tg_tensor **in, int n, tg_tensor **out, int n_out, void *user)
{
    (void)m;
    CHECK(out == NULL && n_out == 0);
    for (int i = 0; i < n; ++i) in[i] = tg_add_scalar(in[i], *(double *)user);
}

static void unhook_both(tg_module *m, tg_tensor **in, int n, tg_tensor **out, int n_out, void *user)
{
    int *numbers = (int *)user;
    (void)in, (void)n, (void)out, (void)n_out;
    CHECK(tg_module_unhook(m, numbers[0]) == TG_OK && tg_module_unhook(m, numbers[1]) == TG_OK);
}

static void bad_input(tg_module *m, tg_tensor **in, int n, tg_tensor **out, int n_out, void *user)
{
    (void)m, (void)n, (void)out, (void)n_out, (void)user;
    in[0] = NULL;
}

TEST(hooks_of_forwards)
{
    tg_module *m = tg_nn_identity();
    double one = 1;
    int numbers[2], before = tg_module_pre_hook(m, add_one_to_inputs, &one),
                    after = tg_module_hook(m, double_outputs, NULL);
    CHECK(before > 0 && after > before);
    HAS(tg_forward(m, f32("[1, 2]")), "[4, 6]");
    CHECK(tg_module_unhook(m, before) == TG_OK);
    HAS(tg_forward(m, f32("[1, 2]")), "[2, 4]");
    CHECK_FAILS(tg_module_unhook(m, before), "'Identity' has no hook");
    numbers[0] = after;
    numbers[1] = tg_module_pre_hook(m, unhook_both, numbers);
    hook_calls = 0;
    HAS(tg_forward(m, f32("[1, 2]")), "[1, 2]"); /* the first hook removes both */
    CHECK(hook_calls == 0 && tg_module_hook(m, double_outputs, NULL) > 0);
    HAS(tg_forward(m, f32("[1, 2]")), "[2, 4]");
    tg_module_pre_hook(m, bad_input, NULL);
    CHECK_FAILS(tg_forward(m, f32("[1]")), "is NULL");
    tg_module_free(m);
}

/* ---- modes, gradients ---- */

TEST(modes_and_gradients)
{
    tg_module *m = scaled_new(4, 2), *fc = tg_module_get_child(m, "fc");
    CHECK(tg_module_is_training(m) && tg_module_train(m, false) == m && !tg_module_is_training(fc));
    CHECK(tg_module_train(fc, true) == fc && tg_module_is_training(fc) && !tg_module_is_training(m));
    CHECK(backward_sum(tg_forward(m, tg_ones(TG_SHAPE(1, 4)))) == TG_OK && tg_grad(tg_module_get(m, "fc.weight")));
    CHECK(tg_module_zero_grad(m) == TG_OK && !tg_grad(tg_module_get(m, "fc.weight")) &&
          !tg_grad(tg_module_get(m, "scale")));
    CHECK(tg_module_requires_grad_(fc, false) == fc && !tg_requires_grad(tg_module_get(fc, "bias")));
    CHECK(backward_sum(tg_forward(m, tg_ones(TG_SHAPE(1, 4)))) == TG_OK && !tg_grad(tg_module_get(m, "fc.weight")));
    CHECK(tg_module_count(m) == 3 && tg_grad(tg_module_get(m, "scale")));
    tg_module_free(m);
}

/* ---- moves ---- */

TEST(rows_of_module_to)
{
    tg_module *m = scaled_new(4, 3);
    tg_tensor *w = tg_module_get(m, "fc.weight"), *g, *plain = tg_ones(TG_SHAPE(3)), *row;
    tg_module_buffer(m, "steps", tg_zeros_on(TG_SCALAR, TG_I64, HERE));
    tg_module_buffer(m, "mean", tg_zeros(TG_SHAPE(3)));
    CHECK(backward_sum(tg_forward(m, tg_ones(TG_SHAPE(2, 4)))) == TG_OK);
    g = tg_grad(w);
    ROW(1.105) CHECK(tg_module_to(m, HERE) == m);
    ROW(1.106)
    {
        CHECK(tg_module_to_dtype(m, TG_BF16) == m && tg_dtype_of(w) == TG_BF16);
        CHECK(tg_dtype_of(tg_module_get(m, "mean")) == TG_BF16 && tg_dtype_of(tg_module_get(m, "steps")) == TG_I64);
    }
    ROW(1.107)
    CHECK_FAILS(tg_module_to_dtype(m, TG_I32),
                "nn.Module.to only accepts floating point or complex dtypes, but got desired "
                "dtype=i32");
    ROW(1.108) CHECK(tg_module_get(m, "fc.weight") == w && tg_is_leaf(w) && tg_requires_grad(w));
    ROW(1.109) CHECK(tg_grad(w) == g && tg_dtype_of(g) == TG_BF16);
    ROW(1.111) CHECK(tg_dtype_of(plain) == TG_F32);
    ROW(1.112)
    {
        TG_NO_GRAD;
        row = tg_select(w, 0, 0);
        CHECK(tg_module_to_dtype(m, TG_F32) == m && tg_dtype_of(row) == TG_BF16 && tg_dtype_of(w) == TG_F32);
    }
    ROW(1.113)
    {
        CHECK(tg_module_to_dtype(m, TG_F64) == m);
        CHECK_FAILS(tg_forward(m, tg_ones(TG_SHAPE(2, 4))), "dtype");
    }
    CHECK_FAILS(tg_module_to(m, TG_CUDA(15)), "15");
    CHECK(tg_device_equal(tg_device_of(w), HERE));
    tg_module_free(m);
}

TEST(the_device_of_a_module)
{
    tg_module *m = holder("Empty");
    tg_device device;
    CHECK_FAILS(tg_module_device(m, &device), "'Empty' has no parameters and no buffers");
    tg_module_param(m, "w", tg_ones(TG_SHAPE(1)));
    CHECK(tg_module_device(m, &device) == TG_OK && tg_device_equal(device, HERE));
    tg_module_free(m);
}

/* ---- several devices: what an error says of the tensor that is on the wrong one ---- */

static tg_tensor *wrong_in_forward; /* for made_here_forward: another tensor, made before */
static void made_here_forward(tg_module *m, tg_tensor *const *in, int n, tg_tensor **out, int n_out)
{
    (void)m, (void)n, (void)n_out;
    out[0] = tg_mul(in[0], wrong_in_forward ? wrong_in_forward : tg_ones_on(TG_SHAPE(4), TG_F32, TG_CPU));
}

static void loose_forward(tg_module *m, tg_tensor *const *in, int n, tg_tensor **out, int n_out)
{
    (void)n, (void)n_out;
    out[0] = tg_forward(*(tg_module **)tg_module_self(m), in[0]);
}

TEST(five_explanations)
{
    const tg_device d0 = TG_CUDA(0), d1 = TG_CUDA(1);
    tg_module *m = scaled_new(4, 3), *loose, *made;
    scaled *self = (scaled *)tg_module_self(m);
    tg_tensor *x = tg_to(tg_ones(TG_SHAPE(2, 4)), d0), *cpu = tg_cpu(x), *keep = self->scale;
    CHECK(tg_module_to(m, TG_CUDA(-1)) == m && tg_device_equal(tg_device_of(keep), d0)); /* resolved at the call */
    CHECK_FAILS(tg_forward(m, cpu),
                "input 0 of Scaled is on cpu, the module on cuda:0: move the input, tg_to(input, TG_CUDA(0))");
    CHECK_FAILS(tg_forward(m, tg_to(x, d1)), "input 0 of Scaled is on cuda:1");
    {
        TG_NO_GRAD; /* computed from the input */
        CHECK_FAILS(tg_forward(m, tg_add_scalar(cpu, 1)), "input 0 of Scaled is on cpu");
    }
    self->fc = tg_module_child(m, "late", tg_nn_linear(4, 3, true));
    tg_to_all_(tg_module_params(self->fc), tg_module_count(self->fc), TG_CPU);
    CHECK_FAILS(tg_forward(m, x), "'late.weight' of Scaled is on cpu: it was added after tg_module_to(.., TG_CUDA(0))");
    self->fc = tg_module_get_child(m, "fc");
    self->scale = tg_ones_on(TG_SHAPE(3), TG_F32, TG_CPU);
    CHECK_FAILS(tg_forward(m, x),
                "it is no parameter or buffer of Scaled, so tg_module_to does not move it: tg_module_buffer");
    self->scale = keep;
    CHECK(tg_forward(m, x) != NULL);
    made = tg_module_new("Made", made_here_forward, 0);
    tg_module_param(made, "w", tg_ones(TG_SHAPE(1)));
    CHECK(tg_module_to(made, d0) == made);
    CHECK_FAILS(tg_forward(made, x), "it was made in the forward of Made, on cpu: make it where the module is");
    tg_module_free(made);
    loose = tg_module_new("Loose", loose_forward, sizeof(tg_module *));
    tg_module_param(loose, "w", tg_ones(TG_SHAPE(1)));
    CHECK(tg_module_to(loose, d0) == loose);
    made = *(tg_module **)tg_module_self(loose) = tg_nn_linear(4, 3, true);
    tg_to_all_(tg_module_params(made), tg_module_count(made), TG_CPU);
    CHECK_FAILS(tg_forward(loose, x),
                "is no child of the Loose that was moved to cuda:0: tg_module_child makes it one");
    CHECK_FAILS(tg_forward(loose, x), "\n  in Loose.(Linear)");
    tg_module_free(made), tg_module_free(loose), tg_module_free(m);
}

TEST(without_a_move_both_ways_are_named)
{
    tg_module *m = tg_nn_linear(4, 3, true);
    tg_to_all_(tg_module_params(m), tg_module_count(m), TG_CPU);
    CHECK_FAILS(tg_forward(m, tg_to(tg_ones(TG_SHAPE(2, 4)), TG_CUDA(1))),
                "tg_to(input, TG_CPU), or the module, tg_module_to");
    tg_module_free(m);
}

/* A child of its own device inside a forward that hands tensors on: no move of the input mends that. */
TEST(a_module_on_two_devices)
{
    tg_module *list[2], *m;
    tg_tensor *x = tg_to(tg_ones(TG_SHAPE(2, 4)), TG_CUDA(0));
    list[0] = tg_nn_linear(4, 4, true), list[1] = tg_nn_linear(4, 3, true);
    m = tg_nn_sequential(list, 2);
    tg_to_all_(tg_module_params(m), tg_module_count(m), TG_CPU);
    CHECK(tg_module_to(list[0], TG_CUDA(0)) == list[0]);
    for (int moved = 0; moved < 2; ++moved) {
        CHECK_FAILS(tg_forward(m, x), "hint: Sequential is on two devices: 0.weight is on cuda:0, 1.weight is on c");
        CHECK_FAILS(tg_forward(m, x), "tg_module_to(m, TG_CUDA(0)) moves all of it");
        CHECK(tg_module_to(list[1], TG_CUDA(1)) == list[1]);
    }
    CHECK(tg_module_to(m, TG_CUDA(0)) == m && tg_forward(m, x));
    tg_module_free(m);
}

TEST(a_pipeline_over_two_devices)
{
    tg_module *net = holder("Pipe"), *a, *b;
    tg_device device;
    tg_tensor *h;
    a = tg_module_child(net, "a", tg_nn_linear(4, 4, true)), b = tg_module_child(net, "b", tg_nn_linear(4, 1, true));
    CHECK(tg_module_to(a, TG_CUDA(0)) == a && tg_module_to(b, TG_CUDA(1)) == b);
    CHECK_FAILS(tg_module_device(net, &device),
                "'Pipe' is on at least two devices: a.weight is on cuda:0, b.weight is on cuda:1");
    h = tg_forward(a, tg_to(tg_ones(TG_SHAPE(8, 4)), TG_CUDA(0)));
    CHECK_FAILS(tg_forward(b, h),
                "input 0 of Linear is on cuda:0, the module on cuda:1: move the input, tg_to(input, TG_CUDA(1))");
    CHECK(backward_sum(tg_forward(b, tg_to(h, TG_CUDA(1)))) == TG_OK);
    CHECK(tg_device_equal(tg_device_of(tg_grad(tg_module_get(a, "weight"))), TG_CUDA(0)));
    CHECK(tg_device_equal(tg_device_of(tg_grad(tg_module_get(b, "weight"))), TG_CUDA(1)));
    tg_module_free(net);
}

/* Children, parameters and buffers of one module, registered after each other; their paths, each as it is asked for. */
static void many_members(int n)
{
    tg_module *m = holder("Many");
    char name[20];
    bool ok = true;
    for (int i = 0; i < n; ++i) {
        snprintf(name, sizeof name, "c%d", i);
        ok = ok && tg_module_child(m, name, tg_nn_linear(1, 1, false));
    }
    for (int i = 0; i < n; ++i) {
        snprintf(name, sizeof name, "p%d", i);
        ok = ok && tg_module_param(m, name, tg_zeros(TG_SHAPE(1)));
        name[0] = 'b';
        ok = ok && tg_module_buffer(m, name, tg_zeros(TG_SHAPE(1)));
    }
    for (int i = 0; i < tg_module_child_count(m); ++i)
        ok = ok && tg_module_get_child(m, tg_module_child_name(m, i)) == tg_module_child_at(m, i);
    for (int i = 0; i < tg_module_count(m); ++i)
        ok = ok && tg_module_get(m, tg_module_path(m, i)) == tg_module_params(m)[i];
    CHECK(ok && tg_module_count(m) == 2 * n && strcmp(tg_module_path(m, n + 1), "c1.weight") == 0);
    tg_module_free(m);
}

TEST(members_are_found_without_a_search) { grows_in_proportion("children of a module", many_members); }

/* What a module lists is that of the tree as it is, also after a member was added far below, and after a tie. */
TEST(lists_follow_the_tree)
{
    tg_module *m = holder("Outer"), *inner = tg_module_child(m, "inner", holder("Inner"));
    tg_tensor *a = tg_module_param(inner, "a", tg_ones(TG_SHAPE(2)));
    const char *path = tg_module_path(m, 0);
    CHECK(tg_module_count(m) == 1 && strcmp(path, "inner.a") == 0 && tg_module_path(m, 0) == path);
    CHECK(tg_module_param(inner, "b", tg_ones(TG_SHAPE(3))) && tg_module_count(m) == 2);
    CHECK(strcmp(tg_module_path(m, 1), "inner.b") == 0 && tg_module_numel(m) == 5);
    CHECK(tg_module_param(m, "own", a) == a && tg_module_count(m) == 2 && tg_module_params(m)[0] == a);
    CHECK(strcmp(tg_module_path(m, 0), "own") == 0 && strcmp(tg_module_path(m, 1), "inner.b") == 0);
    CHECK(tg_module_count(inner) == 2 && strcmp(tg_module_path(inner, 0), "a") == 0);
    CHECK_FAILS(tg_module_path(m, 2), "there is no parameter 2");
    tg_module_free(m);
}

/* ---- printing ---- */

TEST(printed)
{
    tg_module *list[2], *m;
    FILE *file = tmpfile();
    char wanted[600];
    const char *at = tg_device_str(HERE);
    list[0] = scaled_new(4, 2), list[1] = tg_nn_relu();
    m = tg_nn_sequential(list, 2);
    tg_module_buffer(m, "steps", i64("3"));
    CHECK(tg_module_set_extra(m, "a line") == TG_OK);
    CHECK(file && tg_module_print(file, m) == TG_OK);
    snprintf(wanted, sizeof wanted,
             "Sequential(\n"
             "  a line\n"
             "  (steps): [] i64 %s\n"
             "  (0): Scaled(\n"
             "    (scale): [2] f32 %s\n"
             "    (fc): Linear(in_features=4, out_features=2, bias=True)  weight [2, 4] f32 %s  bias [2] f32 %s\n"
             "  )\n"
             "  (1): ReLU()\n"
             ")\n"
             "12 parameters in 3 tensors\n",
             at, at, at, at);
    CHECK(prints(file, wanted));
    tg_module_free(m);
    file = fopen("/dev/full", "w");
    if (file) {
        m = tg_nn_relu();
        CHECK_FAILS(tg_module_print(file, m), "tg_module_print: the file could not be written");
        fclose(file);
        tg_module_free(m);
    }
    m = chain(31);
    file = tmpfile();
    CHECK(file && tg_module_print(file, m) == TG_OK && strstr(text_of(file), "0 parameters in 0 tensors"));
    tg_module_free(m);
}

/* ---- out of memory ---- */

static bool oom_scenario(void)
{
    static double one = 1;
    bool ok = false;
    tg_module *list[2], *net;
    tg_tensor *x = tg_ones(TG_SHAPE(2, 4)), *y;
    list[0] = scaled_new(4, 2), list[1] = tg_nn_relu();
    net = tg_nn_sequential(list, 2);
    if (net && x && tg_module_pre_hook(list[1], add_one_to_inputs, &one) &&
        tg_module_hook(list[1], double_outputs, NULL)) {
        y = tg_forward(net, x);
        ok = y && tg_backward(tg_sum(y)) == TG_OK && tg_module_params(net) && tg_module_count(net) == 3;
        ok = ok && strcmp(tg_module_path(net, 2), "0.fc.bias") == 0 && tg_module_set_extra(net, "text") == TG_OK;
        if (!tg_module_to_dtype(net, TG_F64)) { /* all or none */
            bool same = true;
            const tg_stats_info before = tg_stats();
            if (tg_ok()) return false;
            tg_clear_error();
            same = tg_dtype_of(tg_module_get(net, "0.scale")) == tg_dtype_of(tg_module_get(net, "0.fc.bias"));
            if (!same || before.modules < 4) printf("moved in part\n");
            ok = false;
        }
    }
    tg_module_free(net);
    return ok && tg_ok();
}

static void reverse_forward(tg_module *m, tg_tensor *const *in, int n, tg_tensor **out, int n_out)
{
    int i;
    (void)m;
    for (i = 0; i < n_out; ++i) out[i] = tg_add(in[n - 1 - i], in[0]);
}

static tg_status reverse_custom(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    int i;
    (void)ctx;
    for (i = 0; i < 3; ++i) out[i] = tg_add(in[2 - i], in[0]);
    return TG_OK;
}

static tg_status no_gradients(tg_ctx *ctx, tg_tensor *const *g, tg_tensor **grad_in)
{
    return (void)ctx, (void)g, (void)grad_in, TG_OK;
}

/* A function reads its lists before it writes its results, so that these may be the lists, or parts of them. */
TEST(results_that_are_stored_over_the_arguments)
{
    tg_module *relu = tg_nn_relu(), *m = tg_module_new("Reverse", reverse_forward, 0);
    tg_tensor *t[5], *both[2], *x, *y;
    t[0] = f64("[-1, 1]");
    CHECK(tg_forward_n(relu, t, 1, t, 1) == TG_OK);
    HAS(t[0], "[0, 1]");
    t[0] = f64("[1]"), t[1] = f64("[2]"), t[2] = f64("[3]");
    CHECK(tg_forward_n(m, t, 3, t + 1, 2) == TG_OK); /* as a cell: x, h, c -> h, c */
    HAS(t[0], "[1]"), HAS(t[1], "[4]"), HAS(t[2], "[3]");
    CHECK(tg_forward_n(m, t + 1, 2, t, 2) == TG_OK);
    HAS(t[0], "[7]"), HAS(t[1], "[8]"), HAS(t[2], "[3]");
    CHECK(tg_custom("reverse", reverse_custom, no_gradients, NULL, t, 3, t, 3) == TG_OK);
    HAS(t[0], "[10]"), HAS(t[1], "[15]"), HAS(t[2], "[14]");
    CHECK(tg_meshgrid(t, 2, t) == TG_OK);
    HAS(t[0], "[[10]]"), HAS(t[1], "[[15]]");
    x = both[0] = leaf("[3]"), y = both[1] = tg_mul(x, x);
    t[0] = x, t[1] = y, t[2] = f64("[1]");
    CHECK(tg_gradients(t + 1, 1, t + 2, t, 1, t, TG_RETAIN_GRAPH) == TG_OK);
    HAS(t[0], "[6]");
    t[0] = x;
    CHECK(tg_gradients(t + 1, 1, t + 2, t, 1, t + 1, TG_RETAIN_GRAPH) == TG_OK);
    HAS(t[1], "[6]");
    t[1] = y;
    CHECK(tg_gradients(t + 1, 1, t + 2, both, 2, t + 1, TG_RETAIN_GRAPH) == TG_OK);
    HAS(t[1], "[6]"), HAS(t[2], "[1]");
    t[0] = f64("[3, 5]");
    t[0] = tg_max_dim(t[0], 0, true, &t[0]);
    HAS(t[0], "[5]");
    t[0] = f64("[3, 5]");
    CHECK(tg_unbind(t[0], 0, t, 2) == 2);
    HAS(t[0], "3"), HAS(t[1], "5");
    t[0] = f64("[1]"); /* on error all results are NULL, these as others */
    CHECK_FAILS(tg_forward_n(relu, t, 2, t, 2), "");
    CHECK(!t[0] && !t[1]);
    tg_module_free(relu), tg_module_free(m);
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    harness_take_device();
    if (!harness.only) out_of_memory(oom_scenario);
    RUN(members_and_paths);
    RUN(the_order_is_own_first);
    RUN(names_that_are_refused);
    RUN(null_arguments);
    RUN(tensors_live_with_their_module);
    RUN(a_tensor_tied_to_two_modules);
    RUN(a_module_with_two_parents);
    RUN(a_tree_has_no_circles);
    RUN(depth);
    RUN(several_outputs);
    RUN(results_that_are_stored_over_the_arguments);
    RUN(what_a_forward_makes_ends_with_it);
    RUN(forwards_that_fail);
    RUN(forward_of_one_input);
    RUN(errors_name_the_path);
    RUN(hooks_of_forwards);
    RUN(modes_and_gradients);
    RUN(rows_of_module_to);
    RUN(the_device_of_a_module);
    if (tg_cuda_device_count() >= 2) {
        RUN(five_explanations);
        RUN(without_a_move_both_ways_are_named);
        RUN(a_module_on_two_devices);
        RUN(a_pipeline_over_two_devices);
    }
    RUN(members_are_found_without_a_search);
    RUN(lists_follow_the_tree);
    RUN(printed);
    CHECK(tg_shutdown() == TG_OK);
    return harness_end();
}
