/* The graph and its backward: section 2.1, 2.2 and 2.4 of the semantics list.  Leaves and their gradients, retained
 * graphs, several roots, tg_gradients, gradient modes, anomaly mode, runs one step at a time, graphs of unusual shape,
 * and mistakes that other libraries have made.  Values of gradients op by op are in test_gradients.c and test_ops.c. */
#include "tensorgrad.h"
#include "semantics.h"
#include "helpers.h"
#include <time.h>

TEST(gradient_assignment_and_legality)
{
    ROW(1.72) {
        tg_tensor *x = leaf("[1, 2, 3]"), *g = f64("[4, 5, 6]");
        CHECK_FAILS(tg_set_grad(x, of(TG_F32, "[1, 2, 3]")),
                    "attempting to assign a gradient with dtype 'f32' to a tensor with "
                    "dtype 'f64'. Please ensure that the gradient and the tensor");
        CHECK_FAILS(tg_set_grad(x, f64("[1, 2, 3, 4]")), "of size '[4]' to a tensor of size '[3]'. Please ensure");
        CHECK_FAILS(tg_set_grad(x, x), "can't assign Variable as its own grad");
        CHECK(tg_grad(x) == NULL);
        CHECK(tg_set_grad(x, g) == TG_OK && tg_grad(x) == g);
        CHECK(backward_sum(tg_mul_scalar(x, 2)) == TG_OK);
        HAS(tg_grad(x), "[6, 7, 8]");
        CHECK(tg_set_grad(x, NULL) == TG_OK && tg_grad(x) == NULL);
    }
    ROW(1.120) {
        CHECK_FAILS(tg_set_requires_grad(of(TG_I64, "[1]"), true),
                    "only Tensors of floating point dtype can require gradients");
        CHECK_FAILS(tg_set_requires_grad(of(TG_BOOL, "[1]"), true), "only Tensors of floating point dtype");
        CHECK_FAILS(tg_param(of(TG_I32, "[1]")), "only Tensors of floating point dtype");
        CHECK(tg_set_requires_grad(of(TG_I64, "[1]"), false) != NULL && tg_ok());
    }
    ROW(1.121) {
        tg_tensor *x = leaf("[1]"), *y = tg_mul_scalar(x, 2);
        CHECK_FAILS(tg_set_requires_grad(y, false), "you can only change requires_grad flags of leaf variables.");
        CHECK(tg_set_requires_grad(y, true) == y && !tg_is_leaf(y) && tg_set_requires_grad(x, false) == x);
        CHECK(!tg_requires_grad(x) && tg_requires_grad(y));
    }
}

/* ---- section 2.1: the graph ---- */

TEST(graph_basics)
{
    ROW(2.1) {
        tg_tensor *x = leaf("[1, 2]"), *c = f64("[1, 2]");
        CHECK(tg_requires_grad(tg_add(x, c)) && tg_requires_grad(tg_add(c, x)) && !tg_requires_grad(tg_add(c, c)));
        CHECK(!tg_requires_grad(tg_eq(x, c)) && !tg_requires_grad(tg_argmax(x, 0, false)));
        {
            TG_NO_GRAD;
            CHECK(!tg_requires_grad(tg_add(x, c)));
        }
    }
    ROW(2.2) {
        tg_tensor *x = leaf("[1, 2]"), *c = f64("[1, 2]");
        CHECK(tg_is_leaf(x) && tg_is_leaf(c) && tg_is_leaf(tg_mul(c, c)) && !tg_is_leaf(tg_mul(c, x)));
    }
    ROW(2.3) {
        tg_tensor *x = scalar_leaf(3);
        CHECK(tg_backward(x) == TG_OK);
        HAS(tg_grad(x), "1");
    }
    ROW(2.4) {
        tg_tensor *x = tg_set_requires_grad(tg_ones(TG_SHAPE(1, 1)), true);
        CHECK(tg_backward(scalar_leaf(1)) == TG_OK && tg_backward(leaf("[1]")) == TG_OK && tg_backward(x) == TG_OK);
        CHECK(tg_ndim(tg_grad(x)) == 2);
        CHECK_FAILS(tg_backward(tg_mul_scalar(leaf("[1, 2]"), 2)),
                    "grad can be implicitly created only for scalar outputs");
    }
    ROW(2.5) {
        tg_tensor *roots[2];
        CHECK_FAILS(tg_backward(scalar(1)), "element 0 of tensors does not require grad and does not have a grad_fn\n  hint: "
                                            "no input of it requires grad, which tg_param(t) or ");
        roots[0] = scalar_leaf(1), roots[1] = scalar(1);
        CHECK_FAILS(tg_backward_ex(roots, 2, NULL, 0), "element 1 of tensors does not require grad");
        CHECK(tg_grad(roots[0]) == NULL);
    }
    ROW(2.6) {
        tg_tensor *y = tg_mul_scalar(leaf("[1, 2, 3]"), 2);
        CHECK_FAILS(backward_with(y, f64("[1, 2, 3, 4]"), 0), "Mismatch in shape: grad_output[0] has a shape of ");
        CHECK_FAILS(backward_with(y, f64("[1, 2, 3, 4]"), 0), "[4] and output[0] has a shape of ");
    }
    ROW(2.7) {
        tg_tensor *x = leaf("[1, 2]"), *y = tg_retain_grad(tg_mul_scalar(x, 3)), *sum = tg_sum(y);
        CHECK(tg_backward(sum) == TG_OK && tg_backward(sum) == TG_OK);
        HAS(tg_grad(x), "[6, 6]");
        HAS(tg_grad(y), "[2, 2]");
    }
    ROW(2.8) {
        tg_tensor *x = leaf("[1, 2]"), *a = leaf("[1, 2]"), *b = leaf("[1, 2]"), *g = f64("[5, 6]");
        CHECK(backward_with(tg_add(a, b), g, 0) == TG_OK);
        CHECK(tg_data(tg_grad(a)) != tg_data(tg_grad(b)) && tg_data(tg_grad(a)) != tg_data(g));
        CHECK(backward_with(x, g, 0) == TG_OK && tg_grad(x) != g && tg_data(tg_grad(x)) != tg_data(g));
        tg_fill_(g, 0);
        tg_fill_(tg_grad(a), 0);
        HAS(tg_grad(x), "[5, 6]");
        HAS(tg_grad(b), "[5, 6]");
    }
    ROW(2.9) {
        tg_tensor *x = leaf("[1, 2]"), *first;
        CHECK(backward_sum(tg_mul(x, x)) == TG_OK);
        first = tg_grad(x);
        CHECK(backward_sum(tg_mul(x, x)) == TG_OK && tg_grad(x) == first);
        HAS(first, "[4, 8]");
        tg_retain(first);
        CHECK(backward_flags(tg_mul(x, x), TG_CREATE_GRAPH) == TG_OK && tg_grad(x) != first);
        HAS(first, "[4, 8]");
        HAS(tg_grad(x), "[6, 12]");
        tg_release(first);
    }
    ROW(2.10) {
        tg_tensor *dense = tg_set_requires_grad(tg_t(f64("[[0, 1, 2], [3, 4, 5]]")), true);
        tg_tensor *gaps = tg_set_requires_grad(tg_slice(f64("[[0, 1, 2, 3], [4, 5, 6, 7]]"), 1, 0, 4, 2), true),
                  *x = leaf("[1, 2]");
        CHECK(backward_sum(tg_mul_scalar(dense, 2)) == TG_OK && backward_sum(tg_mul_scalar(gaps, 2)) == TG_OK);
        CHECK(tg_stride(tg_grad(dense), 0) == 1 && tg_stride(tg_grad(dense), 1) == 3);
        CHECK(tg_stride(tg_grad(gaps), 0) == 2 && tg_stride(tg_grad(gaps), 1) == 1);
        CHECK(backward_sum(x) == TG_OK && tg_stride(tg_grad(x), 0) == 1); /* the gradient of sum is an expanded 1 */
        tg_set(tg_grad(x), TG_INDEX(0), 9);
        HAS(tg_grad(x), "[9, 1]");
    }
    ROW(2.11) {
        tg_tensor *x = leaf("[2, 3]"), *y = tg_mul(tg_mul(x, x), x);
        int calls = 0;
        double sum = 0;
        tg_hook(x, hook_count, &calls);
        tg_hook(x, hook_see, &sum);
        CHECK(backward_sum(y) == TG_OK && calls == 1);
        CHECK_NEAR(sum, 12 + 27, 1e-12);
        HAS(tg_grad(x), "[12, 27]");
    }
    ROW(2.12) {
        tg_tensor *x = leaf("[1, 1]"), *y = tg_mul_scalar(x, 2), *a = tg_mul_scalar(y, 3), *b = tg_mul(y, y);
        tg_tensor *sum = tg_sum(tg_add(tg_mul(a, b), y));
        int calls = 0, steps = 0;
        tg_step_info info;
        tg_backward_run *run;
        int64_t last = INT64_MAX;
        bool falling = true;
        tg_hook(y, hook_count, &calls);
        run = tg_backward_begin(&sum, 1, NULL, 0);
        while (tg_backward_step(run, &info)) {
            falling = falling && info.node < last;
            last = info.node;
            ++steps;
        }
        CHECK(tg_backward_end(run) == TG_OK && calls == 1 && steps == 6 && falling);
        HAS(tg_grad(x), "[74, 74]"); /* 6x * 4x^2 + 2x */
    }
    ROW(2.13) {
        tg_tensor *x = leaf("[1, 2]"), *y = tg_sum(tg_exp(x)), *g;
        CHECK(tg_backward(y) == TG_OK);
        CHECK_FAILS(tg_backward(y),
                    "Trying to backward through the graph a second time (or directly access saved tensors after "
                    "they have already been freed). Saved intermediate values of the graph are freed by tg_backward "
                    "and tg_gradients. (at exp)");
        CHECK_FAILS(tg_backward(y), "\n  hint: pass TG_RETAIN_GRAPH to the first backward");
        CHECK_FAILS(tg_backward(y), "a state of the step before is still attached, as that of an RNN: tg_detach(state)");
        CHECK_FAILS(tg_gradients(&y, 1, NULL, &x, 1, &g, 0), "tg_gradients: Trying to backward through the graph");
        CHECK_FAILS(tg_backward(y), "tg_backward: Trying to backward through the graph"); /* not the run before */
        CHECK_NEAR(tg_get(tg_grad(x), TG_INDEX(0)), exp(1.0), 1e-12);
    }
    ROW(2.14) {
        tg_tensor *x = leaf("[[1, 2], [3, 4]]"), *y = tg_sum(tg_view(tg_add(x, tg_t(x)), TG_SHAPE(4))), *trunk, *one,
                  *two;
        CHECK(tg_backward(y) == TG_OK && tg_backward(y) == TG_OK);
        HAS(tg_grad(x), "[[4, 4], [4, 4]]");
        trunk = tg_exp(x), one = tg_sum(trunk), two = tg_sum(tg_mul_scalar(trunk, 2));
        CHECK(tg_backward(one) == TG_OK);
        CHECK_FAILS(tg_backward(two), "second time"); /* the shared part was freed */
        CHECK(tg_backward(tg_sum(tg_mul_scalar(x, 2))) == TG_OK);
    }
    ROW(2.15) {
        tg_tensor *x = leaf("[1, 2]"), *y = tg_sum(tg_mul(x, x)), *z = tg_sum(tg_mul(x, x));
        CHECK(tg_backward_ex(&y, 1, NULL, TG_RETAIN_GRAPH) == TG_OK &&
              tg_backward_ex(&y, 1, NULL, TG_RETAIN_GRAPH) == TG_OK);
        HAS(tg_grad(x), "[4, 8]");
        CHECK(tg_backward(y) == TG_OK);
        CHECK_FAILS(tg_backward(y), "second time");
        CHECK(tg_backward_ex(&z, 1, NULL, TG_CREATE_GRAPH) == TG_OK && tg_backward(z) == TG_OK);
        HAS(tg_grad(x), "[10, 20]");
        tg_set_grad(x, NULL);
    }
    ROW(2.16) { /* a million nodes in a small stack: test_deep */
        tg_tensor *x = tg_set_requires_grad(tg_cpu(f64("[1]")), true), *y = x;
        int i;
        for (i = 0; i < 200000; ++i) y = tg_add_scalar(y, 1);
        CHECK(backward_sum(y) == TG_OK);
        HAS(tg_grad(x), "[1]");
        HAS(y, "[200001]");
    }
    ROW(2.17) {
        tg_tensor *x = leaf("[1, 2]"), *roots[2];
        roots[0] = roots[1] = tg_sum(tg_mul_scalar(x, 3));
        CHECK(tg_backward_ex(roots, 2, NULL, 0) == TG_OK);
        HAS(tg_grad(x), "[6, 6]");
        roots[1] = tg_sum(tg_mul(x, x));
        CHECK(tg_backward_ex(roots, 2, NULL, 0) == TG_OK);
        HAS(tg_grad(x), "[11, 13]");
    }
    ROW(2.18) {
        tg_tensor *x = leaf("[1, 2]"), *y = tg_mul(x, x);
        {
            TG_NO_GRAD;
            CHECK(backward_sum(x) != TG_OK); /* a new op under no_grad has no graph */
            tg_clear_error();
            CHECK(backward_with(y, f64("[1, 1]"), TG_RETAIN_GRAPH) == TG_OK);
        }
        HAS(tg_grad(x), "[2, 4]");
    }
    ROW(2.19) { /* tg_backward has no inputs argument: tg_gradients with tg_set_grad is its form here */
        tg_tensor *a = leaf("[1, 2]"), *b = leaf("[3, 4]"), *product = tg_mul(a, b), *y = tg_sum(product), *g = NULL;
        CHECK(tg_gradients(&y, 1, NULL, &a, 1, &g, TG_RETAIN_GRAPH) == TG_OK && tg_set_grad(a, g) == TG_OK);
        HAS(tg_grad(a), "[3, 4]");
        CHECK(tg_grad(b) == NULL);
        CHECK(tg_gradients(&y, 1, NULL, &product, 1, &g, 0) == TG_OK);
        HAS(g, "[1, 1]");
        CHECK_FAILS(tg_gradients(&y, 1, NULL, &a, 0, &g, 0), "grad requires non-empty inputs.");
    }
    ROW(2.20) {
        tg_tensor *x = leaf("[1, 2]"), *i = NULL;
        CHECK(!tg_requires_grad(tg_to_dtype(x, TG_I32)) && tg_requires_grad(tg_max_dim(x, 0, false, &i)));
        CHECK(!tg_requires_grad(i) && tg_is_leaf(i) && tg_dtype_of(i) == TG_I64);
    }
    ROW(2.21) {
        tg_tensor *x = leaf("[1, 2]"), *other = leaf("[1, 2]"), *unused = tg_mul(other, x);
        CHECK(unused != NULL && backward_sum(tg_mul_scalar(x, 2)) == TG_OK && tg_grad(other) == NULL);
        HAS(tg_grad(x), "[2, 2]");
    }
}

static int grad_modes[2]; /* hooks called with grad mode off and on */
static tg_tensor *hook_grad_mode(tg_tensor *g, void *user)
{
    (void)g, (void)user;
    grad_modes[tg_is_grad_enabled()]++;
    return NULL;
}

TEST(grad_mode_inside_backward)
{
    ROW(2.18) {
        tg_tensor *x = leaf("[1, 2]"), *y = tg_mul(x, x);
        grad_modes[0] = grad_modes[1] = 0;
        tg_hook(y, hook_grad_mode, NULL);
        tg_hook(x, hook_grad_mode, NULL);
        CHECK(backward_flags(y, TG_RETAIN_GRAPH) == TG_OK && grad_modes[0] == 2 && grad_modes[1] == 0);
        CHECK(backward_flags(y, TG_CREATE_GRAPH) == TG_OK && grad_modes[0] == 2 && grad_modes[1] == 2);
        CHECK(tg_is_grad_enabled());
        {
            TG_NO_GRAD;
            CHECK(backward_with(y, f64("[1, 1]"), 0) == TG_OK && !tg_is_grad_enabled());
        }
        tg_set_grad(x, NULL);
    }
}

/* ---- section 2.2: tg_gradients ---- */

TEST(gradients_of_chosen_inputs)
{
    ROW(2.22) {
        tg_tensor *x = leaf("[1, 2]"), *y = tg_mul(x, x), *z = tg_sum(tg_exp(y)), *in[2], *g[2] = {NULL, NULL};
        in[0] = x, in[1] = y;
        CHECK(tg_gradients(&z, 1, NULL, in, 2, g, 0) == TG_OK && tg_grad(x) == NULL && tg_is_leaf(g[0]));
        CHECK_NEAR(tg_get(g[1], TG_INDEX(0)), exp(1.0), 1e-12);
        CHECK_NEAR(tg_get(g[0], TG_INDEX(1)), 4 * exp(4.0), 1e-12);
    }
    ROW(2.23) {
        tg_tensor *x = leaf("[1, 2]"), *u = leaf("[[7], [8]]"), *y = tg_sum(x), *in[2], *g[2] = {NULL, NULL};
        in[0] = x, in[1] = u;
        CHECK_FAILS(
            tg_gradients(&y, 1, NULL, in, 2, g, 0),
            "One of the differentiated Tensors appears to not have been used in the graph. (input 1)\n"
            "  hint: pass TG_ALLOW_UNUSED");
        CHECK(g[0] == NULL && g[1] == NULL);
        CHECK(tg_gradients(&y, 1, NULL, in, 2, g, TG_ALLOW_UNUSED) == TG_OK && g[1] == NULL);
        HAS(g[0], "[1, 1]");
        CHECK(tg_gradients(&y, 1, NULL, in, 2, g, TG_MATERIALIZE_GRADS) == TG_OK);
        HAS(g[1], "[[0], [0]]");
        CHECK(tg_ndim(g[1]) == 2);
    }
    ROW(2.24) {
        tg_tensor *x = leaf("[1, 2]"), *c = f64("[1, 2]"), *y = tg_sum(tg_mul(x, c)), *g = NULL;
        CHECK_FAILS(tg_gradients(&y, 1, NULL, &c, 1, &g, 0), "One of the differentiated Tensors does not require grad");
    }
    ROW(2.25) {
        tg_tensor *y = tg_sum(leaf("[1]")), *g = NULL;
        CHECK_FAILS(tg_gradients(&y, 1, NULL, NULL, 0, &g, 0), "grad requires non-empty inputs.");
    }
    ROW(2.26) {
        tg_tensor *x = leaf("[2, 3]"), *y = tg_mul(x, x), *z = tg_sum(tg_mul(y, y)), *in[2], *g[2] = {NULL, NULL};
        int calls = 0, on_y = 0;
        in[0] = in[1] = x;
        CHECK(tg_gradients(&z, 1, NULL, in, 2, g, TG_RETAIN_GRAPH) == TG_OK);
        HAS(g[0], "[32, 108]");
        HAS(g[1], "[32, 108]");
        tg_fill_(g[0], 0);
        HAS(g[1], "[32, 108]");
        tg_hook(x, hook_count, &calls);
        tg_hook(y, hook_count, &on_y);
        CHECK(tg_gradients(&z, 1, NULL, &y, 1, g, TG_RETAIN_GRAPH) == TG_OK && calls == 0 && on_y == 1);
        HAS(g[0], "[8, 18]");
        /* nodes before the intermediate were not run: nothing of theirs was freed */
        CHECK(tg_gradients(&z, 1, NULL, &y, 1, g, 0) == TG_OK && backward_sum(y) == TG_OK);
    }
    ROW(2.26) { /* hooks of a leaf that is not an input do not run, though a node that runs has an edge to it */
        tg_tensor *a = leaf("[2]"), *b = leaf("[3]"), *y = tg_sum(tg_mul(a, b));
        int calls = 0;
        tg_hook(b, hook_count, &calls);
        HAS(gradient(y, a, 0), "[3]");
        CHECK(calls == 0);
    }
    ROW(2.27) {
        tg_tensor *x = leaf("[3]"), *g = gradient(tg_mul(x, tg_mul(x, x)), x, TG_CREATE_GRAPH);
        CHECK(tg_requires_grad(g) && !tg_is_leaf(g));
        HAS(g, "[27]");
        g = gradient(g, x, TG_CREATE_GRAPH);
        HAS(g, "[18]");
        HAS(gradient(g, x, 0), "[6]");
    }
    ROW(2.28) {
        tg_stats_info before = tg_stats();
        {
            TG_SCOPE;
            tg_tensor *x = leaf("[3]"), *y = tg_mul(x, tg_mul(x, x));
            CHECK(backward_flags(y, TG_CREATE_GRAPH) == TG_OK && tg_requires_grad(tg_grad(x)));
            HAS(gradient(tg_grad(x), x, 0), "[18]");
        }
        CHECK(!alive_changed(&before)); /* PyTorch warns of a reference cycle here; there is none */
    }
    ROW(2.29) {
        tg_tensor *x = leaf("[3, 1, 2]"), *parts[3], *i = NULL, *values;
        CHECK(tg_unbind(x, 0, parts, 3) == 3 && tg_backward(tg_mul_scalar(parts[1], 5)) == TG_OK);
        HAS(tg_grad(x), "[0, 5, 0]");
        values = tg_sort(x, 0, false, &i);
        CHECK(tg_backward(tg_select(values, 0, 2)) == TG_OK);
        HAS(tg_grad(x), "[1, 5, 0]");
    }
}

TEST(gradients_of_several_outputs)
{
    tg_tensor *x = leaf("[1, 2]"), *out[2], *grads[2], *g = NULL;
    out[0] = tg_mul(x, x), out[1] = tg_mul_scalar(x, 3);
    grads[0] = f64("[1, 10]"), grads[1] = f64("[2, 0]");
    CHECK(tg_gradients(out, 2, grads, &x, 1, &g, TG_RETAIN_GRAPH) == TG_OK);
    HAS(g, "[8, 40]");
    grads[1] = NULL;
    CHECK_FAILS(tg_gradients(out, 2, grads, &x, 1, &g, TG_RETAIN_GRAPH),
                "grad can be implicitly created only for scalar");
    out[1] = tg_sum(out[1]);
    CHECK(tg_gradients(out, 2, grads, &x, 1, &g, TG_RETAIN_GRAPH) == TG_OK);
    HAS(g, "[5, 43]");
    out[1] = out[0]; /* an output that is an input, too */
    CHECK(tg_gradients(out, 2, grads, out, 1, &g, TG_RETAIN_GRAPH) != TG_OK);
    tg_clear_error();
    grads[1] = f64("[1, 1]");
    CHECK(tg_gradients(out, 2, grads, out, 1, &g, TG_RETAIN_GRAPH) == TG_OK);
    HAS(g, "[2, 11]");
    CHECK(tg_gradients(&x, 1, grads, &x, 1, &g, 0) == TG_OK);
    HAS(g, "[1, 10]");
    CHECK(g != grads[0]);
    grads[0] = tg_param(f64("[3, 4]")); /* a parameter belongs to no scope, and stays so */
    CHECK(tg_gradients(&x, 1, grads, &x, 1, &g, 0) == TG_OK && g != grads[0]);
    CHECK(tg_data(g) != tg_data(grads[0]));
    HAS(g, "[3, 4]");
    tg_release(grads[0]);
    CHECK_FAILS(tg_gradients(NULL, 1, NULL, &x, 1, &g, 0), "NULL");
    CHECK_FAILS(tg_gradients(out, 1, NULL, &x, 1, NULL, 0), "NULL");
}

/* ---- section 2.4: modes ---- */

TEST(modes)
{
    ROW(2.39) {
        tg_tensor *x = leaf("[1, 2]"), *inside, *again;
        {
            TG_NO_GRAD;
            tg_tensor *y = tg_mul(x, x);
            CHECK(!tg_is_grad_enabled() && !tg_requires_grad(y) && tg_is_leaf(y));
            {
                TG_ENABLE_GRAD;
                CHECK(tg_is_grad_enabled() && tg_requires_grad(tg_mul(x, x)));
            }
            CHECK(!tg_is_grad_enabled());
            inside = tg_set_requires_grad(tg_ones(TG_SHAPE(2)), true);
        }
        CHECK(tg_is_grad_enabled() && tg_requires_grad(inside) && tg_is_leaf(inside));
        CHECK(tg_set_grad_enabled(false) == true);
        again = tg_mul(x, x);
        CHECK(tg_set_grad_enabled(true) == false && !tg_requires_grad(again));
        {
            tg_mark mark = tg_scope_begin();
            tg_set_grad_enabled(false);
            tg_scope_end(mark);
            CHECK(tg_is_grad_enabled()); /* the end of a scope restores the mode */
        }
    }
    ROW(2.40) {
        tg_tensor *x = leaf("[1, 2]");
        TG_NO_GRAD;
        CHECK(tg_sub_(x, f64("[0.5, 0.5]")) == x && tg_version_of(x) == 1 && tg_is_leaf(x) && tg_requires_grad(x));
        HAS(x, "[0.5, 1.5]");
    }
    ROW(2.42) {
        tg_tensor *x = leaf("[1, 2]"), *y = tg_exp(x), *d = tg_detach(y);
        CHECK(!tg_requires_grad(d) && tg_is_leaf(d) && tg_data(d) == tg_data(y));
        tg_add_scalar_(d, 1);
        CHECK(tg_version_of(y) == 1 && tg_version_of(d) == 1);
        CHECK_FAILS(backward_sum(y), "modified by an inplace operation");
    }
    ROW(2.39) { /* no_grad builds no node */
        tg_tensor *x = leaf("[1, 2]");
        int64_t nodes = tg_stats().nodes;
        TG_NO_GRAD;
        CHECK(tg_sum(tg_exp(tg_mul(x, x))) != NULL && tg_stats().nodes == nodes);
    }
}

/* w = tg_sub(w, ...) in place of an update: w is then no leaf, and the warning says so. */
TEST(gradients_of_a_new_tensor)
{
    tg_tensor *w = leaf("[1, 2]"), *y = tg_sub(w, f64("[1, 1]")), *h = tg_tanh(y);
    warnings = 0, warned[0] = 0;
    tg_set_error_handler(keep_warning, NULL);
    tg_set_name(y, "w");
    CHECK(tg_grad(y) == NULL && warnings == 1);
    CHECK(strstr(warned, "t 'w' was made by tg_sub: a new tensor, no parameter.  An update writes the parameter in place: "
                         "{ TG_NO_GRAD; tg_sub_(w, ...); }.  Else read the leaf's, or call tg_retain_grad(t)"));
    CHECK(tg_grad(h) == NULL && warnings == 2 && strstr(warned, "hint: read the leaf's, or call tg_retain_grad(t)"));
    CHECK(tg_grad(tg_exp(w)) == NULL && warnings == 3 && strstr(warned, "t was made by tg_exp"));
    CHECK(tg_grad(tg_sum(w)) == NULL && warnings == 4 && strstr(warned, "hint: read the leaf's"));
    CHECK(tg_grad(w) == NULL && warnings == 4); /* a leaf without gradient yet */
    CHECK(tg_grad(tg_detach(y)) == NULL && warnings == 4);
    tg_retain_grad(h);
    CHECK(tg_grad(h) == NULL && warnings == 4);
    CHECK(tg_grad(tg_softmax(w, 0)) == NULL && warnings == 5 && strstr(warned, "made by tg_softmax: a new tensor"));
    CHECK(!strstr(warned, "tg_softmax_")); /* which does not exist */
    tg_set_error_handler(NULL, NULL);
}

TEST(anomaly_mode)
{
    ROW(2.89) {
        tg_tensor *x = leaf("[-1, 1]"), *y;
        tg_set_anomaly(true);
        y = tg_sqrt(x);
        tg_set_name(y, "root");
        CHECK(backward_sum(y) != TG_OK);
        CHECK(strstr(tg_error_message(), "Function 'SqrtBackward0' returned nan values in its 0th output.") != NULL);
        CHECK(strstr(tg_error_message(), "the op was sqrt, which made root (node 1 of its tape)") != NULL);
        tg_clear_error();
        CHECK(tg_grad(x) == NULL && backward_sum(tg_sqrt(tg_abs(x))) == TG_OK);
        tg_set_anomaly(false);
        tg_set_grad(x, NULL);
        CHECK(backward_sum(tg_sqrt(x)) == TG_OK);
        HAS(tg_grad(x), "[nan, 0.5]");
    }
}

static tg_status roots(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out) /* a NaN that no op of the library makes */
{
    double y[2] = {0, 0};
    (void)ctx;
    y[1] = tg_get(in[0], TG_INDEX(1)) - INFINITY;
    y[0] = INFINITY + y[1];
    out[0] = tg_to(tg_from_f64(y, TG_SHAPE(2)), tg_device_of(in[0]));
    return TG_OK;
}
static tg_status no_gradient(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)
{
    (void)ctx, (void)grad_out, (void)grad_in;
    return TG_OK;
}

/* Anomaly mode, forward: the op that makes NaN of numbers is told once, and nothing that passes it on. */
static tg_tensor *log_forward(tg_module *m, tg_tensor *x) { return m ? tg_log(x) : x; }

/* The warning has the path of the module; where the first NaN is it does not say if that would take long to find. */
TEST(anomaly_mode_in_a_module)
{
    tg_module *m = tg_nn_module("Logs", log_forward, 0);
    warnings = 0, warned[0] = 0;
    tg_set_error_handler(keep_warning, NULL);
    tg_set_anomaly(true);
    (void)tg_forward(m, f64("[-1]"));
    CHECK(warnings == 1 && strstr(warned, "the first at [0]") && strstr(warned, "\n  in Logs"));
    (void)tg_log(tg_full_on(TG_SHAPE(70000), -1, TG_F32, HERE));
    CHECK(warnings == 2 && strstr(warned, "tg_log: the result [70000] has nan values, where the inputs have none"));
    tg_set_anomaly(false);
    tg_set_error_handler(NULL, NULL);
    tg_module_free(m);
    CHECK(tg_ok());
}

TEST(anomaly_mode_in_forward)
{
    tg_tensor *x = leaf("[0, 1]"), *y, *z = NULL, *other = f64("[[1, nan]]"), *w = leaf("[[1, 2], [3, 4]]");
    int64_t tensors;
    tg_set_name(x, "x"), tg_set_name(other, "other");
    warnings = 0, warned[0] = 0;
    tg_set_error_handler(keep_warning, NULL);
    y = tg_mul(tg_log(x), x);
    CHECK(warnings == 0); /* not asked for */
    tg_set_anomaly(true);
    y = tg_mul(tg_log(x), x);
    CHECK(warnings == 1 && strstr(warned, "tg_mul: the result [2] has nan values, the first at [0], where the inputs "
                                          "have none: a = -inf, b 'x' = 0 (node 2 of its tape)\n  hint: "));
    tensors = tg_stats().tensors;
    z = tg_sum(tg_add_scalar(tg_relu(tg_to_dtype(y, TG_F32)), 1));
    CHECK(warnings == 1 && tg_stats().tensors == tensors + 4 && tg_ok()); /* the look leaves nothing behind */
    z = tg_sub(tg_log(x), tg_log(x)); /* the row is the one that the tape prints */
    CHECK(warnings == 2 && strstr(warned, "(node 3 of its tape)") && strstr(warned, "a = -inf, b = -inf"));
    z = tg_mul_scalar(tg_log(x), 0); /* the number of the op; a result that is not written */
    CHECK(warnings == 3 && strstr(warned, "x = -inf, number 0 (node 2 of its tape)"));
    {
        TG_NO_GRAD; /* no node */
        z = tg_add(tg_log(x), tg_neg(tg_log(x)));
        CHECK(warnings == 4 && strstr(warned, "b = inf\n  hint: "));
        z = tg_linear(tg_log(x), tg_zeros_on(TG_SHAPE(3, 2), TG_F64, HERE), NULL);
        CHECK(warnings == 5 && strstr(warned, "tg_linear: the result [3] has nan values, the first at [0]") &&
              strstr(warned, "x [2], weight [3, 2]"));
    }
    y = tg_log(tg_mul_scalar(w, 1));
    z = tg_log_(tg_sub_scalar(y, 1)); /* in place: what was overwritten is not shown */
    CHECK(warnings == 6 && strstr(warned, "tg_log_: the result [2, 2] has nan values, the first at [0,0]"));
    tg_add_scalar_(z, 1); /* it has been NaN before */
    CHECK(warnings == 6);
    z = tg_mul(w, other); /* a leaf: once */
    z = tg_add(z, other);
    CHECK(warnings == 7 && strstr(warned, "tg_mul: input b 'other', a leaf of shape [1, 2], has nan values"));
    tg_set_anomaly(false);
    z = tg_mul(tg_log(x), x);
    tg_set_anomaly(true);
    CHECK(warnings == 7);
    z = tg_add(w, other); /* once more since it was switched on */
    CHECK(warnings == 8);
    y = NULL;
    CHECK(tg_custom("roots", roots, no_gradient, NULL, &x, 1, &y, 1) == TG_OK && warnings == 9);
    CHECK(strstr(warned, "tg_custom (roots): the result [2] has nan values, the first at [0]") &&
          strstr(warned, "(node 1 of its tape)"));
    tg_set_error_handler(NULL, NULL);
    tg_set_anomaly(false);
    tg_clear_error();
}

/* A handler may end the inputs of the op that the warning is about: they are still there for backward. */
static tg_tensor *ended_by_handler[2];
static void ends_inputs(tg_status code, const char *message, void *user)
{
    (void)code, (void)message, (void)user;
    tg_release(ended_by_handler[0]);
    ended_by_handler[0] = NULL;
    ++warnings;
}
TEST(inputs_that_end_in_the_warning_of_nan)
{
    tg_tensor *x, *y;
    tg_mark mark = tg_scope_begin();
    x = tg_param(of(TG_F64, "[0, 2]"));
    ended_by_handler[0] = x;
    warnings = 0;
    tg_set_anomaly(true);
    tg_set_error_handler(ends_inputs, NULL);
    y = tg_div(x, x);
    tg_set_error_handler(NULL, NULL);
    tg_set_anomaly(false);
    CHECK(warnings == 1 && y && tg_get(y, TG_INDEX(1)) == 1 && tg_ok());
    CHECK(backward_sum(y) == TG_OK && tg_get(tg_grad(x), TG_INDEX(1)) == 0);
    tg_scope_end(mark);
}

/* No false alarm: infinities, integers, masked results, empty tensors, backward and checkpoints; the same results. */
static tg_tensor *logs(tg_tensor *const *in, int n, void *user)
{
    (void)n, (void)user;
    return tg_log(tg_mul(in[0], in[0]));
}
TEST(anomaly_mode_without_nan)
{
    tg_tensor *x = leaf("[0, 1, 4]"), *y, *z;
    warnings = 0;
    tg_set_error_handler(keep_warning, NULL);
    tg_set_anomaly(true);
    y = tg_where(tg_gt_scalar(x, 0), tg_log(tg_clamp(x, 0.5, INFINITY)), tg_zeros_like(x));
    HAS(y, "[0, 0, 1.3862943611198906]");
    CHECK(tg_sum(tg_log(x)) && tg_div(x, tg_zeros_like(tg_narrow(x, 0, 1, 0))) == NULL);
    tg_clear_error();
    CHECK(tg_exp(tg_zeros_on(TG_SHAPE(0, 3), TG_F64, HERE)) && tg_add(of(TG_I64, "[1, 2]"), of(TG_I64, "[1, 2]")));
    CHECK(backward_sum(tg_softmax(tg_mul(y, y), 0)) == TG_OK);
    z = tg_narrow(x, 0, 1, 2);
    CHECK(backward_sum(tg_checkpoint(logs, &z, 1, NULL)) == TG_OK);
    {
        TG_NO_GRAD;
        tg_add_scalar_(tg_detach(x), 1);
    }
    CHECK(warnings == 0 && tg_ok());
    y = tg_sum(tg_mul_scalar(tg_sqrt(tg_mul_scalar(x, 0)), 0)); /* the ops of a rule: backward's error says it all */
    CHECK(tg_backward_ex(&y, 1, NULL, TG_CREATE_GRAPH) != TG_OK && warnings == 0);
    CHECK(strstr(tg_error_message(), "Function 'SqrtBackward0' returned nan values") != NULL);
    tg_clear_error();
    tg_set_error_handler(NULL, NULL);
    tg_set_anomaly(false);
}

/* ---- the run, a step at a time ---- */

TEST(backward_step_by_step)
{
    tg_tensor *x = leaf("[1, 2]"), *e = tg_exp(x), *y = tg_mul(e, x), *sum;
    tg_backward_run *run;
    tg_step_info info;
    const char *ops[3] = {"sum", "mul", "exp"};
    int k;
    tg_set_name(y, "product");
    sum = tg_sum(y);
    memset(&info, 0, sizeof info);
    run = tg_backward_begin(&sum, 1, NULL, 0);
    for (k = 0; k < 3; ++k) {
        CHECK(tg_backward_step(run, &info) && strcmp(info.op, ops[k]) == 0 && info.formula != NULL && info.formula[0]);
        CHECK(tg_grad(x) == NULL); /* nothing is committed before the end */
        if (k == 1) {
            CHECK(info.inputs == 2 && strcmp(info.name, "product") == 0);
            HAS(info.grad, "[1, 1]");
        }
        if (k == 2) HAS(info.grad, "[1, 2]");
    }
    CHECK(!tg_backward_step(run, &info) && tg_backward_end(run) == TG_OK);
    CHECK_NEAR(tg_get(tg_grad(x), TG_INDEX(1)), 3 * exp(2.0), 1e-12);
    tg_set_grad(x, NULL);

    y = tg_mul_scalar(tg_mul_scalar(x, 2), 3);
    sum = of(TG_F64, "[1, 1]");
    run = tg_backward_begin(&y, 1, &sum, 0);
    CHECK(tg_backward_step(run, NULL) && tg_backward_step(run, &info)); /* shows the gradient before the rule */
    HAS(info.grad, "[3, 3]");
    CHECK(tg_backward_end(run) == TG_OK);
    HAS(tg_grad(x), "[6, 6]");
    tg_set_grad(x, NULL);

    sum = tg_sum(tg_mul(tg_exp(x), x));
    run = tg_backward_begin(&sum, 1, NULL, TG_RETAIN_GRAPH);
    CHECK(tg_backward_step(run, NULL) && tg_backward_end(run) == TG_OK && tg_grad(x) == NULL); /* abandoned */
    CHECK(tg_backward(sum) == TG_OK);
    CHECK_NEAR(tg_get(tg_grad(x), TG_INDEX(1)), 3 * exp(2.0), 1e-12);
    CHECK(tg_backward_begin(&y, 1, NULL, 0) == NULL && !tg_ok());
    tg_clear_error();
    CHECK(tg_backward_step(NULL, &info) == false);
    CHECK_FAILS(tg_backward_end(NULL), "NULL");
}

/* One numbering for steps, rows and messages; and what a step says of each input. */
TEST(what_a_step_shows)
{
    tg_tensor *x = leaf("[1, 2]"), *c = f64("[5, 6]"), *other = tg_exp(x), *e = tg_exp(x), *y, *sum, *value;
    tg_backward_run *run;
    tg_step_info info;
    tg_step_input_info in;
    tg_set_name(x, "x"), tg_set_name(c, "c");
    y = tg_mul(tg_mul(e, x), c);
    sum = tg_sum(y); /* rows: 0 x, 1 exp, 2 mul, 3 mul, 4 sum */
    CHECK(other != NULL);
    run = tg_backward_begin(&sum, 1, NULL, 0);
    CHECK_FAILS(tg_step_input(run, 0, &in), "this run has no step to show");
    CHECK(tg_backward_step(run, &info) && info.node == 4 && info.inputs == 1);
    CHECK(tg_step_input(run, 0, &in) && in.node == 3 && in.name[0] == 0 && in.value == y && in.sent == in.sum);
    HAS(in.sent, "[1, 1]");
    CHECK(tg_backward_step(run, &info) && info.node == 3 && info.inputs == 2);
    CHECK(tg_step_input(run, 1, &in) && in.node == -1 && !in.sent && !in.sum && in.value == c && !strcmp(in.name, "c"));
    CHECK(tg_step_input(run, 0, &in) && in.node == 2 && in.value != NULL);
    HAS(in.sent, "[5, 6]");
    CHECK_FAILS(tg_step_input(run, 2, &in), "input 2 of a node with 2 inputs");
    CHECK_FAILS(tg_step_input(run, -1, &in), "input -1 of a node with 2 inputs");
    CHECK_FAILS(tg_step_input(run, 0, NULL), "argument input is NULL");
    CHECK_FAILS(tg_step_input(NULL, 0, &in), "argument run is NULL");
    CHECK(tg_backward_step(run, &info) && info.node == 2);
    CHECK(tg_step_input(run, 1, &in) && in.node == 0 && in.value == x && !strcmp(in.name, "x"));
    CHECK_NEAR(tg_get(in.sum, TG_INDEX(0)), 5 * exp(1.0), 1e-12);
    value = tg_retain(in.sum); /* stays as it is when more arrives */
    CHECK(tg_backward_step(run, &info) && info.node == 1 && tg_step_input(run, 0, &in) && in.node == 0);
    CHECK_NEAR(tg_get(in.sent, TG_INDEX(0)), 5 * exp(1.0), 1e-12);
    CHECK_NEAR(tg_get(in.sum, TG_INDEX(0)), 10 * exp(1.0), 1e-12);
    CHECK_NEAR(tg_get(value, TG_INDEX(0)), 5 * exp(1.0), 1e-12);
    tg_release(value);
    CHECK(!tg_backward_step(run, &info) && tg_backward_end(run) == TG_OK);
    CHECK_NEAR(tg_get(tg_grad(x), TG_INDEX(0)), 10 * exp(1.0), 1e-12);

    { /* two roots are one tape; the root and its nodes may go before the run ends, and the numbers stay */
        tg_tensor *roots[2];
        int64_t last = 100;
        int k;
        tg_set_grad(x, NULL);
        {
            TG_SCOPE;
            roots[0] = tg_sum(tg_exp(x)), roots[1] = tg_sum(tg_neg(x));
            run = tg_backward_begin(roots, 2, NULL, TG_RETAIN_GRADS);
        }
        for (k = 4; k > 0; --k) CHECK(tg_backward_step(run, &info) && info.node == k && info.node < last);
        CHECK(!tg_backward_step(run, &info) && tg_backward_end(run) == TG_OK);
        CHECK_NEAR(tg_get(tg_grad(x), TG_INDEX(0)), exp(1.0) - 1, 1e-12);
    }
    sum = tg_sum(tg_mul(x, x));
    run = tg_backward_begin(&sum, 1, NULL, TG_CREATE_GRAPH | TG_RETAIN_GRADS); /* the history of a gradient is whole */
    tg_set_grad(x, NULL);
    while (tg_backward_step(run, &info)) CHECK(tg_step_input(run, 0, &in));
    CHECK(tg_backward_end(run) == TG_OK);
    value = tg_grad(x);
    CHECK(tg_requires_grad(value) && tg_gradients(&value, 1, &c, &x, 1, &y, 0) == TG_OK);
    HAS(y, "[10, 12]");
    tg_set_grad(x, NULL);
}

/* A node that a checkpoint records in the run has no row. */
static tg_tensor *square_in_checkpoint(tg_tensor *const *in, int n, void *user)
{
    (void)n, (void)user;
    return tg_mul(in[0], in[0]);
}
TEST(a_step_inside_a_checkpoint)
{
    tg_tensor *x = leaf("3"), *y = tg_checkpoint(square_in_checkpoint, &x, 1, NULL);
    const int64_t rows[2] = {1, -1};
    tg_backward_run *run = tg_backward_begin(&y, 1, NULL, TG_RETAIN_GRADS);
    tg_step_info info;
    tg_step_input_info in;
    int k;
    for (k = 0; k < 2; ++k) CHECK(tg_backward_step(run, &info) && info.node == rows[k] && tg_step_input(run, 0, &in));
    CHECK(in.node == 0 && in.value == x);
    HAS(in.sum, "6");
    CHECK(tg_backward_end(run) == TG_OK);
    HAS(tg_grad(x), "6");
}

/* A run that has failed says so at its end, too, even if the error of the step was cleared. */
TEST(the_end_of_a_run_that_failed)
{
    tg_tensor *x = leaf("[1, 2]"), *y = tg_exp(tg_mul_scalar(x, 2)), *sum = tg_sum(y);
    tg_backward_run *run = tg_backward_begin(&sum, 1, NULL, 0);
    tg_fill_(y, 0); /* exp has saved its output */
    CHECK(tg_backward_step(run, NULL));
    CHECK_FAILS(tg_backward_step(run, NULL), "modified");
    tg_clear_error();
    CHECK(tg_backward_end(run) != TG_OK && strstr(tg_error_message(), "this run has failed in a step before") != NULL);
    tg_clear_error();
    CHECK(tg_grad(x) == NULL);
}

TEST(live_runs_interleaved)
{
    tg_tensor *x = leaf("[0.5, 0.5]"), *y = tg_exp(x), *z = tg_mul(y, y), *l = tg_sum(z), *k = tg_sum(tg_mul(z, x));
    double v = exp(0.5), in_a = 2 * v * v, in_b = v * v + 0.5 * 2 * v * v;
    tg_backward_run *a = tg_backward_begin(&l, 1, NULL, TG_RETAIN_GRAPH),
                    *b = tg_backward_begin(&k, 1, NULL, TG_RETAIN_GRAPH);
    bool more_a = true, more_b = true;
    /* both runs have a gradient for z that has not been used */
    CHECK(tg_backward_step(a, NULL) && tg_backward_step(b, NULL) && tg_backward_step(b, NULL));
    CHECK(tg_backward_ex(&l, 1, NULL, TG_RETAIN_GRAPH) == TG_OK); /* a third run, from start to end */
    CHECK_NEAR(tg_get(tg_grad(x), TG_INDEX(0)), in_a, 1e-12);
    while (more_a || more_b) {
        if (more_b) more_b = tg_backward_step(b, NULL);
        if (more_a) more_a = tg_backward_step(a, NULL);
    }
    CHECK(tg_backward_end(a) == TG_OK);
    CHECK_NEAR(tg_get(tg_grad(x), TG_INDEX(0)), 2 * in_a, 1e-12);
    CHECK(tg_backward_end(b) == TG_OK);
    CHECK_NEAR(tg_get(tg_grad(x), TG_INDEX(1)), 2 * in_a + in_b, 1e-12);
}

TEST(a_backward_that_fails_changes_no_gradient)
{
    tg_tensor *a = leaf("[1, 2]"), *b = leaf("[3, 4]"), *q = tg_mul_scalar(a, 2), *y;
    CHECK(backward_sum(tg_mul(a, b)) == TG_OK);
    y = tg_add(tg_mul(b, b), tg_exp(q));
    q = tg_exp(q);
    y = tg_add(y, tg_mul(q, q));
    tg_add_scalar_(q, 1);
    CHECK_FAILS(backward_sum(y), "modified by an inplace operation");
    HAS(tg_grad(a), "[3, 4]");
    HAS(tg_grad(b), "[1, 2]");
}

/* ---- the shape of graphs ---- */

TEST(sixty_doublings)
{
    tg_tensor *x = scalar_leaf(1), *y = x;
    int i;
    for (i = 0; i < 60; ++i) y = tg_add(y, y);
    CHECK(tg_backward(y) == TG_OK);
    CHECK_NEAR(tg_item(tg_grad(x)), 1152921504606846976.0, 0);
}

/* Seconds for backward of n losses over one trunk that stays alive, each freed after. */
static double seconds_of_losses(int n)
{
    TG_SCOPE;
    tg_tensor *x = tg_set_requires_grad(tg_cpu(f64("[1]")), true), *trunk = x; /* on the CPU: the graph is timed */
    clock_t start;
    int i;
    for (i = 0; i < 10; ++i) trunk = tg_mul_scalar(trunk, 1);
    {
        tg_tensor *total = tg_mul_scalar(trunk, 0);
        start = clock();
        for (i = 0; i < n; ++i) total = tg_add(total, tg_mul_scalar(trunk, 1));
        CHECK(backward_sum(total) == TG_OK);
    }
    CHECK_NEAR(tg_item(tg_grad(x)), n, 0);
    for (i = 0; i < n; ++i) {
        TG_SCOPE;
        tg_backward_ex(&trunk, 1, NULL, TG_RETAIN_GRAPH);
    }
    return (double)(clock() - start) / CLOCKS_PER_SEC;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

TEST(twenty_thousand_losses_over_one_trunk)
{
    double single[5], twofold[5];
    int i;
    for (i = 0; i < 5; ++i) {
        single[i] = seconds_of_losses(20000);
        twofold[i] = seconds_of_losses(40000);
    }
    qsort(single, 5, sizeof(double), by_size);
    qsort(twofold, 5, sizeof(double), by_size);
    printf("20000 losses over one trunk: %.0f ms; 40000: %.0f ms, %.2f times as long\n", 1e3 * single[2],
           1e3 * twofold[2], twofold[2] / single[2]);
    CHECK(twofold[2] < 3 * single[2]); /* 2 is linear time; 4 would mean that each loss walks the graph */
}

/* What the backward of one small graph over x takes. */
typedef struct {
    int steps;
    int64_t allocations, tensors, nodes, bytes; /* the last three at most, beyond what was there */
} effort;

static effort effort_of_backward(tg_tensor *x)
{
    TG_SCOPE;
    tg_tensor *y = tg_sum(tg_exp(tg_mul(x, x)));
    effort e = {0, 0, 0, 0, 0};
    tg_reset_peak();
    const tg_stats_info before = tg_stats();
    tg_backward_run *run = tg_backward_begin(&y, 1, NULL, 0);
    while (tg_backward_step(run, NULL)) ++e.steps;
    CHECK(tg_backward_end(run) == TG_OK);
    const tg_stats_info after = tg_stats();
    e.allocations = after.allocations - before.allocations;
    e.tensors = after.peak_tensors - before.tensors;
    e.nodes = after.peak_nodes - before.nodes;
    e.bytes = after.peak_bytes - before.bytes;
    tg_set_grad(x, NULL);
    return e;
}

/* Ten thousand nodes of another graph, and as many over the same leaf, change neither the steps of a backward nor the
 * memory that it takes.  Nothing is cached meanwhile, so that every block is an allocation. */
TEST(unrelated_graphs_cost_nothing)
{
    tg_tensor *x = leaf("[1]"), *far = leaf("[1]"), *other = far, *beside = x;
    int calls = 0;
    tg_set_cache_limit(0);
    const effort alone = effort_of_backward(x);
    for (int i = 0; i < 10000; ++i) other = tg_mul_scalar(other, 1), beside = tg_mul_scalar(beside, 1);
    tg_hook(other, hook_count, &calls), tg_hook(beside, hook_count, &calls);
    const effort among = effort_of_backward(x);
    tg_set_cache_limit(HARNESS_MEMORY_CHECKER ? 0 : SIZE_MAX);
    CHECK(alone.steps == 3 && among.steps == 3);
    CHECK(alone.allocations > 0 && among.allocations == alone.allocations);
    CHECK(among.tensors == alone.tensors && among.nodes == alone.nodes && among.bytes == alone.bytes);
    CHECK(calls == 0 && tg_grad(far) == NULL);
    CHECK(backward_sum(other) == TG_OK && calls == 1);
}

/* ---- properties that hold for any graph ---- */

static tg_tensor *mixture(tg_tensor *const *in, int n, void *user)
{
    tg_tensor *y = tg_matmul(tg_tanh(in[0]), tg_exp(in[1]));
    (void)n, (void)user;
    return tg_sum(tg_mul(tg_softmax(y, 1), tg_mul(y, tg_t(y))));
}

TEST(backward_repeats_to_the_bit)
{
    tg_tensor *in[2], *y, *first[2], *g[2];
    int times;
    tg_seed(8);
    in[0] = tg_set_requires_grad(tg_randn(TG_SHAPE(4, 6)), true);
    in[1] = tg_set_requires_grad(tg_randn(TG_SHAPE(6, 4)), true);
    for (times = 0; times < 3; ++times) {
        y = mixture(in, 2, NULL);
        CHECK(tg_gradients(&y, 1, NULL, in, 2, times ? g : first, TG_RETAIN_GRAPH) == TG_OK);
        if (times) CHECK(tg_equal(g[0], first[0]) && tg_equal(g[1], first[1]));
        CHECK(tg_backward(y) == TG_OK && tg_equal(tg_grad(in[0]), first[0]) && tg_equal(tg_grad(in[1]), first[1]));
        tg_set_grad(in[0], NULL), tg_set_grad(in[1], NULL);
    }
}

TEST(hessian_is_symmetric)
{
    tg_tensor *x = leaf("[[0.3, -0.5], [0.7, 0.2]]"), *in[2], *y, *g;
    double h[4][4];
    int i, k;
    in[0] = x, in[1] = tg_t(x);
    y = mixture(in, 2, NULL);
    g = tg_view(gradient(y, x, TG_CREATE_GRAPH), TG_SHAPE(4));
    for (i = 0; i < 4; ++i) {
        tg_tensor *row = gradient(tg_select(g, 0, i), x, TG_RETAIN_GRAPH);
        for (k = 0; k < 4; ++k) h[i][k] = tg_get(row, TG_INDEX(k / 2, k % 2));
    }
    for (i = 0; i < 4; ++i) {
        for (k = 0; k < i; ++k) CHECK_NEAR(h[i][k], h[k][i], 1e-12);
        CHECK(h[i][i] != 0);
    }
}

TEST(order_of_building_does_not_matter)
{
    tg_tensor *x = leaf("[0.5, 2]"), *a = tg_exp(x), *b = tg_sin(x), *one = gradient(tg_add(a, b), x, 0), *other;
    b = tg_sin(x), a = tg_exp(x);
    other = gradient(tg_add(b, a), x, 0);
    CHECK(tg_equal(one, other));
    /* no gradient flows through tg_detach */
    CHECK(tg_equal(gradient(tg_add(tg_detach(a), tg_sin(x)), x, 0), tg_cos(tg_detach(x))));
}

/* ---- what has broken others: each of these was wrong in at least one library of this kind ---- */

TEST(x_plus_x)
{
    tg_tensor *x = leaf("[3]");
    CHECK(backward_sum(tg_add(x, x)) == TG_OK);
    HAS(tg_grad(x), "[2]");
    CHECK(backward_sum(tg_sub(x, x)) == TG_OK);
    HAS(tg_grad(x), "[2]");
    CHECK(backward_sum(tg_div(x, x)) == TG_OK);
    HAS(tg_grad(x), "[2]");
    CHECK(backward_sum(tg_mul(x, x)) == TG_OK);
    HAS(tg_grad(x), "[8]");
    x = leaf("[[1, 2], [3, 4]]");
    CHECK(backward_sum(tg_matmul(x, tg_t(x))) == TG_OK);
    HAS(tg_grad(x), "[[8, 12], [8, 12]]");
}

/* What a hook has seen of a gradient, and a copy of its values at that time. */
typedef struct { tg_tensor *seen, *copy; } seen_gradient;

static tg_tensor *see(tg_tensor *g, void *user)
{
    seen_gradient *at = (seen_gradient *)user;
    at->seen = tg_retain(g);
    at->copy = tg_retain(tg_clone(g));
    return NULL;
}

/* Backward adds to a gradient in place, or puts the next one in its place, where nobody else can see it: the values are
   those of a backward that records, and what others see does not change.  By turns of few elements, and of many, with
   a row for all rows. */
TEST(gradients_in_the_place_of_others)
{
    const tg_dtype dtypes[] = {TG_F32, TG_F64};
    int k, i;
    for (k = 0; k < 4; ++k) {
        TG_SCOPE;
        const tg_dtype dtype = dtypes[k / 2];
        const tg_shape rows = k % 2 ? TG_SHAPE(700, 1) : TG_SHAPE(1);
        tg_tensor *x = tg_set_requires_grad(tg_repeat(of(dtype, "[1, -2, 3]"), rows), true);
        tg_tensor *w = tg_set_requires_grad(of(dtype, "[2, 0.5, -1]"), true);
        tg_tensor *a = tg_mul(x, w), *b = tg_sub(tg_mul(a, x), tg_div(w, tg_add_scalar(tg_square(a), 1)));
        tg_tensor *c = tg_tanh(tg_neg(tg_rsub_scalar(b, 1))), *d = tg_mul(tg_exp(c), tg_mul_scalar(b, 0.5));
        tg_tensor *y = tg_add(tg_mul(d, x), tg_sub(tg_relu(a), tg_sub(d, d)));
        tg_tensor *inputs[3], *recorded[3], *g = tg_repeat(of(dtype, "[1, 2, 3]"), rows), *same = tg_clone(g);
        seen_gradient at = {NULL, NULL};
        inputs[0] = x, inputs[1] = w, inputs[2] = a;
        CHECK(tg_gradients(&y, 1, &g, inputs, 3, recorded, TG_CREATE_GRAPH) == TG_OK);
        tg_hook(d, see, &at);
        tg_retain_grad(a);
        CHECK(tg_backward_ex(&y, 1, &g, TG_RETAIN_GRAPH) == TG_OK);
        for (i = 0; i < 3; ++i) CHECK(tg_allclose(tg_grad(inputs[i]), recorded[i], 1e-5, 1e-6));
        CHECK(tg_equal(at.seen, at.copy) && tg_equal(g, same));
        tg_release(at.seen), tg_release(at.copy);
    }
}

/* A custom function y = 2 x whose backward returns the user's own tensor as the gradient. */
static tg_status twice(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    (void)ctx;
    return (out[0] = tg_mul_scalar(in[0], 2)) ? TG_OK : TG_ERR_MEMORY;
}

static tg_status own_gradient(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)
{
    (void)grad_out;
    grad_in[0] = (tg_tensor *)tg_ctx_user(ctx);
    return TG_OK;
}

static tg_tensor *release_it(tg_tensor *g, void *user)
{
    tg_tensor **held = (tg_tensor **)user;
    (void)g;
    tg_release(*held);
    *held = NULL;
    return NULL;
}

/* The sum of squares of what `of` [5, 4] has in several parts, some of which have elements in common. */
static tg_tensor *of_parts(tg_tensor *of)
{
    tg_tensor *y = tg_sum(tg_square(tg_diagonal(of, 0, 0, 1)));
    for (int64_t i = 0; i < 5; ++i) {
        y = tg_add(y, tg_mul_scalar(tg_sum(tg_square(tg_select(of, 0, i))), (double)i + 1));
        y = tg_add(y, tg_sum(tg_square(tg_slice(of, 1, i % 4, 4, 1 + i % 2))));
    }
    return tg_add(y, tg_sum(tg_square(tg_unfold(of, 0, 2, 1))));
}

/* What flows into a tensor from its parts is added up in place, but not where a graph of it is wanted, which has the
 * numbers to compare with. */
TEST(parts_are_added_in_place)
{
    const tg_dtype dtypes[] = {TG_F32, TG_F64, TG_BF16};
    for (int i = 0; i < 3; ++i) {
        tg_tensor *x = tg_set_requires_grad(tg_to_dtype(tg_randn(TG_SHAPE(5, 4)), dtypes[i]), true);
        tg_tensor *turned = tg_set_requires_grad(tg_t(tg_to_dtype(tg_randn(TG_SHAPE(4, 5)), dtypes[i])), true);
        tg_tensor *const in[] = {x, turned};
        for (int k = 0; k < 4; ++k) {
            tg_tensor *y = of_parts(k / 2 ? tg_exp(in[k % 2]) : in[k % 2]), *seen;
            tg_tensor *want = gradient(y, in[k % 2], TG_CREATE_GRAPH);
            seen_gradient by_hook = {NULL, NULL};
            const int hook = tg_hook(in[k % 2], see, &by_hook);
            seen = gradient(y, in[k % 2], TG_RETAIN_GRAPH);
            CHECK(tg_equal(seen, tg_detach(want)) && tg_equal(by_hook.copy, seen));
            tg_unhook(in[k % 2], hook);
            CHECK(tg_backward(y) == TG_OK && tg_equal(tg_grad(in[k % 2]), seen));
            tg_set_grad(in[k % 2], NULL);
            tg_release(by_hook.seen), tg_release(by_hook.copy);
        }
    }
}

/* 64 steps that select a row each take no 64 tensors of all rows. */
TEST(a_gradient_of_parts_takes_its_own_memory)
{
    enum { ROWS = 64, COLUMNS = 1000 };
    tg_tensor *x = tg_set_requires_grad(tg_randn(TG_SHAPE(ROWS, COLUMNS)), true), *y = tg_zeros(TG_SHAPE(COLUMNS));
    for (int64_t i = 0; i < ROWS; ++i) y = tg_add(y, tg_square(tg_select(x, 0, i)));
    y = tg_sum(y);
    tg_set_cache_limit(0);
    tg_reset_peak();
    const tg_stats_info before = tg_stats();
    CHECK(tg_backward(y) == TG_OK);
    const tg_stats_info after = tg_stats();
    tg_set_cache_limit(HARNESS_MEMORY_CHECKER ? 0 : SIZE_MAX);
    CHECK(after.peak_bytes - before.bytes < 2 * 4 * ROWS * COLUMNS);
    CHECK(tg_equal(tg_grad(x), tg_detach(tg_mul_scalar(x, 2))));
}

/* A result of tg_gradients may share the elements of the gradient that was given, but of nothing else. */
TEST(gradients_given_are_results)
{
    tg_tensor *x = leaf("[[1, 2], [3, 4]]"), *w = leaf("[[5, 6], [7, 8]]"), *in[3], *out[3], *g, *y;
    int k;
    for (k = 0; k < 5; ++k) { /* through views, and through no op at all */
        g = f64(k < 2 ? "[1, 2, 3, 4]" : "[[1, 2], [3, 4]]");
        y = k == 0 ? tg_ravel(x) : k == 1 ? tg_view(x, TG_SHAPE(4)) : k == 2 ? tg_positive(x) : tg_contiguous(x);
        if (k == 3) y = tg_t(x);
        CHECK(tg_gradients(&y, 1, &g, &x, 1, out, 0) == TG_OK);
        HAS(out[0], k == 3 ? "[[1, 3], [2, 4]]" : "[[1, 2], [3, 4]]");
        CHECK(!tg_requires_grad(out[0]) && out[0] != g);
        tg_mul_scalar_(g, 10);
        HAS(out[0], k == 3 ? "[[10, 30], [20, 40]]" : "[[10, 20], [30, 40]]");
    }
    g = f64("[[1, 2], [3, 4]]"), y = tg_add(x, w), in[0] = x, in[1] = w, in[2] = x;
    CHECK(tg_gradients(&y, 1, &g, in, 3, out, 0) == TG_OK); /* the results do not share with each other */
    tg_mul_scalar_(out[0], 10), tg_mul_scalar_(out[1], 100);
    HAS(out[0], "[[10, 20], [30, 40]]");
    HAS(out[1], "[[100, 200], [300, 400]]");
    HAS(out[2], "[[1, 2], [3, 4]]");
    g = tg_expand(f64("[1, 2]"), TG_SHAPE(2, 2)), y = tg_positive(x); /* whose rows are the same memory */
    CHECK(tg_gradients(&y, 1, &g, &x, 1, out, 0) == TG_OK && tg_add_scalar_(out[0], 1) != NULL);
    HAS(out[0], "[[2, 3], [2, 3]]");
    y = tg_ravel(x), g = tg_ravel(w); /* a parameter's elements: never those of a result */
    for (k = 0; k < 2; ++k) {
        CHECK(tg_gradients(&y, 1, &g, &x, 1, out, TG_RETAIN_GRAPH | (k ? (int)TG_CREATE_GRAPH : 0)) == TG_OK);
        CHECK(tg_requires_grad(out[0]) == (k == 1));
        out[0] = tg_detach(out[0]);
        tg_zero_(out[0]);
        HAS(w, "[[5, 6], [7, 8]]");
    }
    g = f64("[[1, 2], [3, 4]]"), in[0] = g; /* neither are those of a tensor that a function of the user's returned */
    CHECK(tg_custom("twice", twice, own_gradient, g, &x, 1, &y, 1) == TG_OK);
    CHECK(tg_gradients(&y, 1, NULL, &x, 1, out, 0) != TG_OK);
    tg_clear_error();
    in[1] = f64("[[1, 1], [1, 1]]");
    CHECK(tg_gradients(&y, 1, &in[1], &x, 1, out, 0) == TG_OK && tg_zero_(out[0]) == out[0]);
    HAS(g, "[[1, 2], [3, 4]]");
    {
        TG_SCOPE; /* a hook may release the gradient that was given */
        y = tg_ravel(x), g = tg_retain(f64("[1, 2, 3, 4]"));
        tg_drop(g);
        k = tg_hook(y, release_it, &g);
        CHECK(k > 0 && tg_gradients(&y, 1, &g, &x, 1, out, 0) == TG_OK && g == NULL);
        HAS(out[0], "[[1, 2], [3, 4]]");
    }
}

static tg_tensor *note_place(tg_tensor *g, void *user)
{
    void **place = (void **)user;
    *place = tg_data(g);
    return NULL;
}

/* A .grad takes over the elements of a gradient that is a view, if nobody else has them and they are all of it. */
TEST(gradients_that_are_views)
{
    tg_tensor *x = leaf("[[1, 2], [3, 4]]"), *w = leaf("[[5, 6], [7, 8]]"), *y, *g = f64("[1, 2, 3, 4]");
    seen_gradient at = {NULL, NULL};
    void *place = NULL;
    int k;
    for (k = 0; k < 2; ++k) { /* the second backward adds to the first .grad in place */
        y = tg_mul_scalar(tg_ravel(tg_t(x)), 3);
        CHECK(tg_backward_ex(&y, 1, &g, 0) == TG_OK);
        HAS(tg_grad(x), k ? "[[6, 18], [12, 24]]" : "[[3, 9], [6, 12]]");
    }
    HAS(g, "[1, 2, 3, 4]");
    CHECK(tg_is_contiguous(tg_grad(x)) && tg_zero_(tg_grad(x)) != NULL);
    tg_zero_grad(&x, 1);
    y = tg_ravel(x), tg_retain_grad(y); /* y's gradient and x's are each their own */
    CHECK(backward_sum(tg_mul_scalar(y, 3)) == TG_OK && tg_zero_(tg_grad(y)) != NULL);
    HAS(tg_grad(x), "[[3, 3], [3, 3]]");
    tg_zero_grad(&x, 1);
    y = tg_ravel(x), tg_hook(x, see, &at); /* so is one that a hook keeps */
    CHECK(backward_sum(tg_mul_scalar(y, 3)) == TG_OK && tg_zero_(tg_grad(x)) != NULL && tg_equal(at.seen, at.copy));
    tg_release(at.seen), tg_release(at.copy);
    for (k = 0; k < 2; ++k) { /* k = 1: the gradient is a part of the one that tg_cat received */
        y = tg_ravel(w), y = tg_mul_scalar(k ? tg_cat(TG_LIST(y, f64("[1, 2]")), 0) : y, 3);
        if (k == 0) tg_hook(w, note_place, &place);
        CHECK(backward_sum(y) == TG_OK && (tg_data(tg_grad(w)) == place) == (k == 0));
        HAS(tg_grad(w), "[[3, 3], [3, 3]]");
        tg_zero_grad(&w, 1);
    }
}

TEST(shared_nonleaf_diamond)
{
    tg_tensor *x = leaf("[2]"), *a = leaf("[3]"), *b = leaf("[5]"), *y = tg_mul(x, x);
    CHECK(backward_sum(tg_mul(tg_mul(y, a), tg_mul(y, b))) == TG_OK); /* 15 x^4 */
    HAS(tg_grad(x), "[480]");
    HAS(tg_grad(a), "[80]");
    HAS(tg_grad(b), "[48]");
}

TEST(same_relu_input_twice)
{
    tg_tensor *x = leaf("[-1, 2]"), *y = tg_mul_scalar(x, 1);
    CHECK(backward_sum(tg_add(tg_relu(y), tg_relu(y))) == TG_OK);
    HAS(tg_grad(x), "[0, 2]");
    CHECK(backward_sum(tg_mul(tg_relu(y), y)) == TG_OK);
    HAS(tg_grad(x), "[0, 6]");
}

TEST(consumer_not_on_the_loss_path)
{
    tg_tensor *x = leaf("[2]"), *y = tg_mul(x, x), *aside = tg_exp(y), *loss = tg_mul_scalar(y, 3);
    CHECK(backward_sum(loss) == TG_OK);
    HAS(tg_grad(x), "[12]");
    CHECK(backward_sum(aside) != TG_OK); /* y's product was freed */
    tg_clear_error();
}

TEST(backward_twice_with_and_without_zero_grad)
{
    tg_tensor *x = leaf("[2]"), *y = tg_sum(tg_mul(tg_mul(x, x), x));
    int i;
    for (i = 1; i <= 3; ++i) {
        CHECK(tg_backward_ex(&y, 1, NULL, TG_RETAIN_GRAPH) == TG_OK);
        CHECK_NEAR(tg_item(tg_grad(x)), 12.0 * i, 1e-12);
    }
    for (i = 1; i <= 3; ++i) {
        tg_tensor *unused = leaf("[1]"), *both[2];
        both[0] = unused, both[1] = x; /* one without gradient is no error */
        CHECK(tg_zero_grad(both, 2) == TG_OK && tg_grad(x) == NULL);
        CHECK(tg_backward_ex(&y, 1, NULL, TG_RETAIN_GRAPH) == TG_OK);
        CHECK_NEAR(tg_item(tg_grad(x)), 12, 1e-12);
        both[0] = NULL;
        CHECK_FAILS(tg_zero_grad(both, 2), "argument params[0] is NULL");
        CHECK(tg_grad(x) != NULL);
    }
}

TEST(shape_error_then_three_more_ops)
{
    tg_tensor *x = leaf("[1, 2]"), *bad = tg_mul(x, f64("[1, 2, 3]"));
    CHECK(bad == NULL && !tg_ok() && tg_error_count() == 1);
    bad = tg_sum(tg_exp(tg_matmul(bad, x)));
    CHECK(bad == NULL && tg_error_count() == 1); /* the first error is the one that is kept */
    CHECK(strstr(tg_error_message(), "tg_mul") != NULL && tg_backward(bad) != TG_OK);
    CHECK(strstr(tg_error_message(), "tg_mul") != NULL);
    tg_clear_error();
    CHECK(backward_sum(tg_mul(x, x)) == TG_OK);
    HAS(tg_grad(x), "[2, 4]");
}

/* The indices of topk, whose handle has ended, have no history when a rule whose ops are recorded reads them: the
   gradient of a sum of elements is a constant, also of one that was scattered by them, each time. */
TEST(indices_have_no_history)
{
    tg_tensor *a = leaf("[[1, 3, 2], [6, 4, 5]]"), *y = NULL;
    {
        TG_SCOPE;
        tg_tensor *at = NULL, *best = tg_topk(a, 2, 1, true, &at);
        y = tg_keep(tg_sum(tg_scatter(tg_zeros_like(a), 1, at, best)));
    }
    for (int i = 0; i < 3; ++i) {
        tg_tensor *d = NULL;
        CHECK(tg_gradients(&y, 1, NULL, &a, 1, &d, TG_CREATE_GRAPH) == TG_OK);
        CHECK(is_exactly(d, f64("[[0, 1, 1], [1, 0, 1]]")) && !tg_requires_grad(d));
    }
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    harness_take_device();
    RUN(gradient_assignment_and_legality);
    RUN(graph_basics);
    RUN(grad_mode_inside_backward);
    RUN(gradients_of_chosen_inputs);
    RUN(gradients_of_several_outputs);
    RUN(modes);
    RUN(anomaly_mode);
    RUN(anomaly_mode_in_forward);
    RUN(anomaly_mode_in_a_module);
    RUN(inputs_that_end_in_the_warning_of_nan);
    RUN(anomaly_mode_without_nan);
    RUN(gradients_of_a_new_tensor);
    RUN(backward_step_by_step);
    RUN(what_a_step_shows);
    RUN(a_step_inside_a_checkpoint);
    RUN(the_end_of_a_run_that_failed);
    RUN(live_runs_interleaved);
    RUN(a_backward_that_fails_changes_no_gradient);
    RUN(sixty_doublings);
    RUN(twenty_thousand_losses_over_one_trunk);
    RUN(unrelated_graphs_cost_nothing);
    RUN(backward_repeats_to_the_bit);
    RUN(hessian_is_symmetric);
    RUN(order_of_building_does_not_matter);
    RUN(x_plus_x);
    RUN(gradients_in_the_place_of_others);
    RUN(parts_are_added_in_place);
    RUN(a_gradient_of_parts_takes_its_own_memory);
    RUN(gradients_given_are_results);
    RUN(gradients_that_are_views);
    RUN(shared_nonleaf_diamond);
    RUN(same_relu_input_twice);
    RUN(consumer_not_on_the_loss_path);
    RUN(backward_twice_with_and_without_zero_grad);
    RUN(shape_error_then_three_more_ops);
    RUN(indices_have_no_history);
    check_rows("test_autograd");
    check_semantics_form();
    CHECK(tg_shutdown() == TG_OK);
    return harness_end();
}
