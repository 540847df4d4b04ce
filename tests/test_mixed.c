/* Mixed precision: which dtype each op has under TG_AUTOCAST, casts of parameters that are kept, backward; optimizers
 * of parameters in bf16 and f16; scaling of the loss; a small GPT in lower precision. */
#include "tensorgrad.h"
#include "helpers.h"

static tg_tensor *filled(tg_dtype dtype, tg_shape shape)
{
    int64_t n = 1;
    for (int i = 0; i < shape.ndim; ++i) n *= shape.dim[i];
    tg_tensor *t = tg_add_scalar(tg_mul_scalar(tg_arange_on(0, (double)n, 1, TG_F32, HERE), 0.37), 0.1);
    t = tg_sub(t, tg_floor(t)); /* in [0, 1) */
    return tg_to_dtype(tg_clone(tg_reshape(t, shape)), dtype); /* a tensor of its own, no view */
}

static tg_tensor *same_bits(tg_tensor *a, tg_tensor *b) { return a && b && tg_equal(a, b) ? a : NULL; }

/* ---- the lists ---- */

enum { LOW, F32, WIDEST, KEPT };
static const char *const lists[] = {"low", "f32", "widest", "kept"};

/* x and y have one dtype each; WIDEST is the low dtype if both are of it, else f32. */
static void check_dtype(tg_tensor *result, int list, tg_dtype low, tg_dtype x, tg_dtype y, const char *call)
{
    const bool both_low = x == low && y == low;
    const tg_dtype wanted = list == LOW ? low : list == F32 ? TG_F32 : list == WIDEST ? (both_low ? low : TG_F32) : x;
    char text[200];
    snprintf(text, sizeof text, "%s of %s, %s is %s, wanted %s (%s)", call, tg_dtype_name(x), tg_dtype_name(y),
             result ? tg_dtype_name(tg_dtype_of(result)) : "NULL", tg_dtype_name(wanted), lists[list]);
    harness_check(result && tg_dtype_of(result) == wanted, text, __FILE__, __LINE__);
    tg_drop(result);
}
#define IS(list, call) check_dtype(call, list, low, a, b, #call)

/* Ops of x [2, 2], in dtype a. */
static void check_lists_of_one(tg_dtype low, tg_dtype a)
{
    const tg_dtype b = a;
    tg_tensor *x = filled(a, TG_SHAPE(2, 2)), *image = filled(a, TG_SHAPE(1, 2, 3, 3));
    IS(F32, tg_exp(x)), IS(F32, tg_expm1(x)), IS(F32, tg_log(x)), IS(F32, tg_log2(x)), IS(F32, tg_log10(x));
    IS(F32, tg_log1p(x)), IS(F32, tg_reciprocal(x)), IS(F32, tg_rsqrt(x)), IS(F32, tg_tan(x));
    IS(F32, tg_asin(x)), IS(F32, tg_acos(x)), IS(F32, tg_sinh(x)), IS(F32, tg_cosh(x));
    IS(F32, tg_pow_scalar(x, 2)), IS(F32, tg_softplus(x, 1, 20)), IS(F32, tg_sum(x)), IS(F32, tg_sum_dim(x, 0, 0));
    IS(F32, tg_prod(x)), IS(F32, tg_norm(x)), IS(F32, tg_norm_dim(x, 1, 0, false)), IS(F32, tg_logsumexp(x));
    IS(F32, tg_cumsum(x, 0)), IS(F32, tg_softmax(x, 0)), IS(F32, tg_log_softmax(x, 0));
    IS(F32, tg_layer_norm(x, 1, NULL, NULL, 1e-5)), IS(F32, tg_rms_norm(x, 1, NULL, 1e-5));
    IS(F32, tg_group_norm(image, 1, NULL, NULL, 1e-5)), IS(F32, tg_interpolate(image, TG_SHAPE(6, 6), "nearest"));
    IS(KEPT, tg_mean(x)), IS(KEPT, tg_amax(x)), IS(KEPT, tg_var(x)), IS(KEPT, tg_relu(x)), IS(KEPT, tg_tanh(x));
    IS(KEPT, tg_gelu(x, true)), IS(KEPT, tg_sqrt(x)), IS(KEPT, tg_sin(x)), IS(KEPT, tg_mul_scalar(x, 2));
    IS(KEPT, tg_add(x, x)), IS(KEPT, tg_cat(TG_LIST(x, x), 0)), IS(KEPT, tg_trace(x)), IS(KEPT, tg_clone(x));
    IS(KEPT, tg_max_pool2d(image, TG_SHAPE(2), TG_SHAPE(1), TG_SHAPE(0))), IS(KEPT, tg_dropout(x, 0.5, true));
    IS(KEPT, tg_exp_(tg_clone(x))), IS(KEPT, tg_cumsum(tg_to_dtype(x, TG_F64), 0) ? tg_clone(x) : NULL);
}

/* Ops of x in dtype a and y in dtype b. */
static void check_lists_of_two(tg_dtype low, tg_dtype a, tg_dtype b)
{
    tg_tensor *x = filled(a, TG_SHAPE(2, 2)), *y = filled(b, TG_SHAPE(2, 2)), *v = filled(a, TG_SHAPE(2));
    tg_tensor *image = filled(a, TG_SHAPE(1, 2, 3, 3)), *kernel = filled(b, TG_SHAPE(2, 2, 1, 1));
    tg_tensor *w = filled(b, TG_SHAPE(2)), *q = filled(a, TG_SHAPE(1, 2, 2)), *k = filled(b, TG_SHAPE(1, 2, 2));
    tg_tensor *index = tg_to(i64("[[0, 1], [1, 0]]"), HERE), *classes = tg_to(i64("[0, 1]"), HERE);
    tg_tensor *both[2] = {x, y};
    const tg_shape one = TG_SHAPE(1), none = TG_SHAPE(0);
    IS(LOW, tg_matmul(x, y)), IS(LOW, tg_matmul(v, y)), IS(LOW, tg_matmul(q, y)), IS(LOW, tg_mm(x, y));
    IS(LOW, tg_bmm(q, k)), IS(LOW, tg_mv(x, w)), IS(LOW, tg_linear(x, y, w)), IS(LOW, tg_linear(x, y, NULL));
    IS(LOW, tg_linear_gelu(x, y, w, true)), IS(LOW, tg_linear_gelu(x, y, NULL, false));
    IS(LOW, tg_addmm(x, x, y, 1, 1)), IS(LOW, tg_einsum("ij,jk->ik", both, 2)), IS(LOW, tg_prelu(x, w));
    IS(LOW, tg_einsum("ij->i", both, 1));
    IS(LOW, tg_conv2d(image, kernel, w, one, none, one, 1));
    IS(LOW, tg_conv_transpose2d(image, kernel, NULL, one, none, none, 1, one));
    IS(LOW, tg_scaled_dot_product_attention(q, k, k, NULL, 0, false, 0));
    IS(F32, tg_pow(x, y)), IS(F32, tg_mse_loss(x, y, TG_MEAN)), IS(F32, tg_l1_loss(x, y, TG_NONE));
    IS(F32, tg_smooth_l1_loss(x, y, TG_SUM, 1)), IS(F32, tg_huber_loss(x, y, TG_MEAN, 1));
    IS(F32, tg_kl_div(x, y, TG_SUM, false)), IS(F32, tg_cross_entropy(x, classes));
    IS(F32, tg_cross_entropy_ex(x, classes, w, -100, 0.1, TG_MEAN)), IS(F32, tg_cross_entropy(x, y));
    IS(F32, tg_nll_loss(x, classes, w, -100, TG_MEAN)), IS(F32, tg_cosine_similarity(x, y, 1, 1e-8));
    IS(F32, tg_binary_cross_entropy_with_logits(x, y, NULL, TG_MEAN, w)), IS(F32, tg_cdist(x, y, 2));
    IS(F32, tg_layer_norm(x, 1, w, w, 1e-5)), IS(F32, tg_rms_norm(x, 1, w, 1e-5));
    IS(WIDEST, tg_addcmul(x, x, y, 1)), IS(WIDEST, tg_addcdiv(x, x, y, 1)), IS(WIDEST, tg_atan2(x, y));
    IS(WIDEST, tg_dot(v, w)), IS(WIDEST, tg_scatter_add(x, 0, index, y));
    IS(WIDEST, tg_index_put(x, &classes, 1, y, true));
}

TEST(each_op_has_the_dtype_of_its_list)
{
    const tg_dtype low[] = {TG_BF16, TG_F16};
    for (int i = 0; i < 2; ++i) {
        const tg_dtype given[] = {low[i], TG_F32};
        TG_AUTOCAST(low[i]);
        for (int a = 0; a < 2; ++a) {
            check_lists_of_one(low[i], given[a]);
            for (int b = 0; b < 2; ++b) check_lists_of_two(low[i], given[a], given[b]);
        }
    }
}

TEST(others_are_left_alone)
{
    TG_AUTOCAST(TG_BF16);
    tg_tensor *x = filled(TG_F64, TG_SHAPE(2, 2)), *n = tg_to(i64("[[1, 2], [3, 4]]"), HERE);
    CHECK(tg_dtype_of(tg_matmul(x, x)) == TG_F64 && tg_dtype_of(tg_exp(x)) == TG_F64);
    CHECK(tg_dtype_of(tg_sum(n)) == TG_I64 && tg_dtype_of(tg_matmul(n, n)) == TG_I64);
    CHECK(tg_dtype_of(tg_pow_scalar(n, 2)) == TG_I64);
    CHECK(tg_dtype_of(tg_pow(filled(TG_BF16, TG_SHAPE(2, 2)), n)) == TG_F32);
    CHECK_FAILS(tg_matmul(x, filled(TG_F32, TG_SHAPE(2, 2))), "to have the same dtype, but got: f64 != bf16");
    CHECK_FAILS(tg_binary_cross_entropy(x, x, NULL, TG_MEAN), "unsafe to autocast");
    CHECK(tg_matmul(NULL, x) == NULL && tg_softmax(NULL, 0) == NULL && tg_exp(NULL) == NULL);
    tg_clear_error();
}

/* ---- values and gradients ---- */

/* The loss of a layer, by TG_AUTOCAST or by casts written out. */
static tg_tensor *layer_loss(tg_tensor *x, tg_tensor *w, tg_tensor *b, bool autocast)
{
    if (!autocast) {
        tg_tensor *y = tg_linear(tg_to_dtype(x, TG_BF16), tg_to_dtype(w, TG_BF16), tg_to_dtype(b, TG_BF16));
        return tg_mean(tg_softmax(tg_to_dtype(tg_mul(y, y), TG_F32), -1));
    }
    TG_AUTOCAST(TG_BF16);
    tg_tensor *y = tg_linear(x, w, b);
    return tg_mean(tg_softmax(tg_mul(y, y), -1));
}

TEST(the_same_as_casts_by_hand)
{
    tg_tensor *grad[2][3], *loss[2];
    for (int i = 0; i < 2; ++i) {
        tg_tensor *in[3] = {filled(TG_F32, TG_SHAPE(5, 7)), filled(TG_F32, TG_SHAPE(4, 7)),
                            filled(TG_F32, TG_SHAPE(4))};
        for (int k = 0; k < 3; ++k) tg_set_requires_grad(in[k], true);
        loss[i] = layer_loss(in[0], in[1], in[2], i == 1);
        CHECK(tg_autocast_dtype() == TG_F32 && tg_backward(tg_sum(tg_mul_scalar(loss[i], 100))) == TG_OK);
        for (int k = 0; k < 3; ++k) grad[i][k] = tg_grad(in[k]);
    }
    CHECK(tg_dtype_of(loss[1]) == TG_F32 && same_bits(loss[0], loss[1]));
    for (int k = 0; k < 3; ++k)
        CHECK(same_bits(grad[0][k], grad[1][k]) && tg_dtype_of(grad[1][k]) == TG_F32);
}

static int64_t nodes(void) { return tg_stats().nodes; }

TEST(a_parameter_is_cast_once)
{
    tg_tensor *w = tg_param(filled(TG_F32, TG_SHAPE(3, 3))), *x = filled(TG_BF16, TG_SHAPE(2, 3));
    {
        TG_AUTOCAST(TG_BF16);
        const int64_t before = nodes();
        tg_tensor *first = tg_linear(x, w, NULL);
        const int64_t both = nodes() - before; /* the cast and the product */
        tg_tensor *second = tg_linear(x, w, NULL);
        CHECK(both == 2 && nodes() - before == 3 && same_bits(first, second));
        {
            TG_AUTOCAST(TG_F32); /* off, which ends no cast */
            CHECK(tg_dtype_of(tg_linear(filled(TG_F32, TG_SHAPE(2, 3)), w, NULL)) == TG_F32);
        }
        const int64_t inner = nodes();
        tg_tensor *third = tg_linear(x, w, NULL);
        CHECK(nodes() - inner == 1);
        CHECK(tg_backward(tg_sum(tg_add(tg_add(first, second), third))) == TG_OK);
        tg_tensor *once = tg_clone(tg_grad(w));
        CHECK(backward_sum(tg_linear(x, w, NULL)) == TG_OK); /* through the same cast again */
        CHECK(tg_allclose(tg_mul_scalar(once, 4.0 / 3), tg_grad(w), 0.02, 0));
        {
            TG_NO_GRAD;
            tg_mul_scalar_(w, 2);
        }
        CHECK(same_bits(tg_linear(x, w, NULL), tg_mul_scalar(first, 2))); /* cast again after the write */
        CHECK(tg_dtype_of(tg_matmul(tg_to_dtype(x, TG_F32), tg_t(w))) == TG_BF16); /* a view is no parameter */
    }
    tg_release(w);
}

TEST(a_cast_without_grad_does_not_hide_the_parameter)
{
    tg_tensor *w = tg_param(filled(TG_F32, TG_SHAPE(3, 3))), *x = filled(TG_BF16, TG_SHAPE(2, 3));
    {
        TG_AUTOCAST(TG_F16);
        tg_tensor *plain = NULL;
        {
            TG_NO_GRAD;
            plain = tg_linear(x, w, NULL);
        }
        CHECK(!tg_requires_grad(plain));
        CHECK(backward_sum(tg_linear(x, w, NULL)) == TG_OK && tg_grad(w) && tg_dtype_of(tg_grad(w)) == TG_F32);
        {
            TG_NO_GRAD;
            CHECK(!tg_requires_grad(tg_linear(x, w, NULL)));
        }
        TG_AUTOCAST(TG_BF16); /* of another dtype, in the same block */
        CHECK(tg_dtype_of(tg_linear(x, w, NULL)) == TG_BF16);
    }
    tg_release(w);
}

/* Many parameters, so that the table grows. */
TEST(many_parameters)
{
    enum { MANY = 300 };
    tg_tensor *list[MANY], *x = filled(TG_BF16, TG_SHAPE(1, 2));
    for (int i = 0; i < MANY; ++i) list[i] = tg_param(tg_full_on(TG_SHAPE(1, 2), i, TG_F32, HERE));
    {
        TG_AUTOCAST(TG_BF16);
        for (int pass = 0; pass < 2; ++pass) {
            const int64_t before = nodes();
            tg_tensor *sum = tg_linear(x, list[0], NULL);
            for (int i = 1; i < MANY; ++i) sum = tg_add(sum, tg_linear(x, list[i], NULL));
            CHECK(nodes() - before == (pass ? 0 : MANY) + MANY + MANY - 1);
        }
    }
    tg_release_all(list, MANY);
}

/* Parameters of a module that no op casts, beside others, which later steps cast together. */
TEST(parameters_that_are_not_cast)
{
    tg_module *layers[] = {tg_nn_linear(4, 4, true), tg_nn_layer_norm(TG_SHAPE(4), 1e-5, true), tg_nn_linear(4, 2, true)};
    tg_module *net = tg_nn_sequential(layers, 3);
    tg_tensor *const *p, *y, *h, *low[6], *x = filled(TG_F32, TG_SHAPE(3, 4));
    tg_module_to(net, HERE);
    p = tg_module_params(net);
    for (int k = 0; k < 3; ++k) {
        TG_NO_GRAD;
        {
            TG_AUTOCAST(TG_BF16);
            y = tg_forward(net, x);
        }
        for (int i = 0; i < 6; ++i) low[i] = tg_to_dtype(p[i], TG_BF16);
        h = tg_to_dtype(tg_linear(tg_to_dtype(x, TG_BF16), low[0], low[1]), TG_F32);
        h = tg_to_dtype(tg_layer_norm(h, 1, p[2], p[3], 1e-5), TG_BF16);
        CHECK(tg_equal(y, tg_linear(h, low[4], low[5])));
        for (int i = 0; i < 6; ++i) CHECK(tg_mul_scalar_(p[i], 0.75) != NULL);
    }
    tg_module_free(net);
}

/* ---- the mode ---- */

static tg_tensor *see_mode(tg_tensor *g, void *user)
{
    *(tg_dtype *)user = tg_autocast_dtype();
    return g;
}

TEST(backward_is_outside)
{
    tg_dtype seen = TG_BF16;
    tg_tensor *w = tg_param(filled(TG_F32, TG_SHAPE(3, 3))), *x = filled(TG_F32, TG_SHAPE(2, 3));
    {
        TG_AUTOCAST(TG_BF16);
        tg_tensor *y = tg_linear(x, w, NULL);
        tg_hook(y, see_mode, &seen);
        CHECK(tg_backward(tg_mse_loss(y, tg_zeros_like(y), TG_MEAN)) == TG_OK);
        CHECK(seen == TG_F32 && tg_autocast_dtype() == TG_BF16);
        CHECK(tg_dtype_of(tg_grad(w)) == TG_F32);
        tg_tensor *in[1] = {w}, *out[1] = {tg_mean(tg_linear(x, w, NULL))}, *g[1];
        CHECK(tg_gradients(out, 1, NULL, in, 1, g, TG_CREATE_GRAPH) == TG_OK && tg_dtype_of(g[0]) == TG_F32);
    }
    tg_release(w);
}

static tg_tensor *two_layers(tg_tensor *const *in, int n, void *user)
{
    tg_tensor *const *w = (tg_tensor *const *)user;
    (void)n;
    return tg_linear(tg_gelu(tg_linear(in[0], w[0], NULL), false), w[1], NULL);
}

TEST(a_checkpoint_runs_again_in_its_mode)
{
    for (int late = 0; late < 2; ++late) { /* backward in the block, or after it */
        tg_tensor *w[2] = {tg_param(filled(TG_F32, TG_SHAPE(3, 3))), tg_param(filled(TG_F32, TG_SHAPE(2, 3)))};
        tg_tensor *x = filled(TG_F32, TG_SHAPE(4, 3)), *wanted[2], *loss = NULL;
        {
            TG_AUTOCAST(TG_BF16);
            CHECK(tg_backward(tg_mean(two_layers(&x, 1, w))) == TG_OK);
            for (int i = 0; i < 2; ++i) wanted[i] = tg_clone(tg_grad(w[i]));
            tg_zero_grad(w, 2);
            tg_tensor *y = tg_checkpoint(two_layers, &x, 1, w);
            CHECK(y && tg_dtype_of(y) == TG_BF16);
            loss = tg_mean(y);
            if (!late) CHECK(tg_backward(loss) == TG_OK && tg_autocast_dtype() == TG_BF16);
        }
        if (late) CHECK(tg_backward(loss) == TG_OK);
        for (int i = 0; i < 2; ++i) CHECK(same_bits(tg_grad(w[i]), wanted[i]));
        tg_release_all(w, 2);
    }
}

TEST(blocks_nest_and_end)
{
    CHECK(tg_autocast_dtype() == TG_F32);
    {
        TG_AUTOCAST(TG_BF16);
        CHECK(tg_autocast_dtype() == TG_BF16);
        {
            TG_AUTOCAST(TG_F16);
            CHECK(tg_autocast_dtype() == TG_F16);
            CHECK_FAILS(tg_set_autocast(TG_F64), "autocast takes bf16, f16, or f32 for off");
            CHECK(tg_autocast_dtype() == TG_F16);
        }
        CHECK(tg_autocast_dtype() == TG_BF16);
        tg_mark m = tg_scope_begin();
        CHECK(tg_set_autocast(TG_F32) == TG_BF16 && tg_autocast_dtype() == TG_F32);
        tg_scope_end(m);
        CHECK(tg_autocast_dtype() == TG_BF16);
    }
    CHECK(tg_set_autocast(TG_F16) == TG_F32);
    tg_tensor *w = tg_param(filled(TG_F32, TG_SHAPE(3, 3)));
    CHECK(tg_dtype_of(tg_linear(w, w, NULL)) == TG_F16);
    CHECK(tg_set_autocast(TG_F32) == TG_F16);
    tg_release(w);
}

TEST(recurrent_layers_are_low)
{
    tg_module *made[] = {tg_nn_lstm(3, 4, 1), tg_nn_gru(3, 4, 2), tg_nn_rnn(3, 4, 1), tg_nn_lstm_cell(3, 4, true)};
    for (int i = 0; i < 4; ++i) {
        tg_module_to(made[i], HERE);
        const bool cell = i == 3, two = i == 0 || cell;
        tg_tensor *x = cell ? filled(TG_F32, TG_SHAPE(2, 3)) : filled(TG_F32, TG_SHAPE(5, 2, 3)), *out[3];
        TG_AUTOCAST(TG_BF16);
        const int n = cell ? 2 : two ? 3 : 2;
        CHECK(tg_forward_n(made[i], &x, 1, out, n) == TG_OK);
        for (int k = 0; k < n; ++k) CHECK(out[k] && tg_dtype_of(out[k]) == TG_BF16);
        CHECK(backward_sum(out[0]) == TG_OK);
        for (int k = 0; k < tg_module_count(made[i]); ++k)
            CHECK(tg_dtype_of(tg_grad(tg_module_params(made[i])[k])) == TG_F32);
        tg_module_free(made[i]);
    }
}

/* ---- parameters in bf16 and f16: the optimizer computes in f32 ---- */

enum { KINDS = 6 };

static tg_optim *optimizer(int kind, tg_tensor **p)
{
    tg_optim *o = kind == 0   ? tg_sgd(p, 1, 0.01)
                  : kind == 1 ? tg_adam(p, 1, 0.002)
                  : kind == 2 ? tg_adamw(p, 1, 0.002)
                  : kind == 3 ? tg_rmsprop(p, 1, 0.002)
                  : kind == 4 ? tg_adagrad(p, 1, 0.002)
                              : tg_adadelta(p, 1, 0.1);
    o->momentum = kind == 0 || kind == 3 ? 0.9 : 0;
    o->amsgrad = kind == 2;
    o->centered = kind == 3;
    o->alpha = 0.9; /* with 0.99 a root of less than 0 comes up */
    o->weight_decay = 0.01;
    return o;
}

/* The gradient of step k, of any dtype: numbers that bf16 has. */
static tg_tensor *gradient_of(tg_tensor *p, int k)
{
    tg_tensor *x = tg_arange_on(0, (double)tg_numel(p), 1, TG_F32, HERE);
    x = tg_to_dtype(tg_sin(tg_add_scalar(tg_mul_scalar(x, 0.3), k)), TG_BF16);
    return tg_to_dtype(tg_reshape(x, tg_shape_of(p)), tg_dtype_of(p));
}

/* Steps of a parameter in a lower dtype round to it what steps of one in f32 give. */
TEST(steps_are_those_in_f32_rounded)
{
    const tg_dtype low[] = {TG_BF16, TG_F16};
    for (int i = 0; i < 2 * KINDS * 2; ++i) {
        TG_SCOPE;
        const int kind = i / 4;
        const bool strided = i % 2 != 0;
        tg_tensor *start = filled(low[i / 2 % 2], TG_SHAPE(9, 61)); /* more than two tiles, and an odd number */
        tg_tensor *p[2] = {strided ? tg_clone(tg_t(start)) : tg_clone(start), tg_to_dtype(start, TG_F32)};
        if (strided) p[0] = tg_t(p[0]);
        p[0] = tg_set_requires_grad(tg_detach(p[0]), true), tg_set_requires_grad(p[1], true);
        tg_optim *o[2] = {optimizer(kind, p), optimizer(kind, p + 1)};
        bool equal = true;
        for (int k = 0; k < 30 && equal; ++k) {
            TG_SCOPE;
            if (k == 20) { /* what the program writes counts */
                TG_NO_GRAD;
                for (int n = 0; n < 2; ++n) tg_fill_(tg_narrow(p[n], 0, 2, 3), 0.5);
            }
            for (int n = 0; n < 2; ++n)
                CHECK(tg_set_grad(p[n], gradient_of(p[n], k)) == TG_OK && tg_step(o[n]) == TG_OK);
            equal = same_bits(tg_to_dtype(p[1], low[i / 2 % 2]), p[0]) != NULL;
        }
        CHECK(equal);
        CHECK(!tg_equal(p[0], start));
        tg_optim_free(o[0]), tg_optim_free(o[1]);
    }
}

/* A step that is smaller than the distance of two bf16 numbers is not lost. */
TEST(small_steps_add_up)
{
    tg_tensor *p = tg_param(tg_full_on(TG_SHAPE(4), 1, TG_BF16, HERE));
    tg_optim *o = tg_sgd(&p, 1, 0.001);
    for (int k = 0; k < 100; ++k) {
        TG_SCOPE;
        CHECK(tg_set_grad(p, tg_ones_like(p)) == TG_OK && tg_step(o) == TG_OK);
    }
    CHECK_NEAR(tg_get(p, TG_INDEX(3)), 0.9, 0.002);
    tg_optim_free(o);
    tg_release(p);
}

static void steps_of(tg_module *m, tg_optim *o, int first, int end)
{
    for (int k = first; k < end; ++k) {
        TG_SCOPE;
        tg_tensor *p = tg_module_params(m)[0];
        CHECK(tg_set_grad(p, gradient_of(p, k)) == TG_OK && tg_step(o) == TG_OK);
    }
}

/* A run that goes on from a file goes on to the same bits: the file has the master copies. */
TEST(master_copies_are_saved)
{
    const char *path = beside("safetensors");
    tg_module *m[2];
    tg_optim *o[2];
    for (int i = 0; i < 2; ++i) {
        m[i] = tg_nn_linear(7, 5, false);
        tg_module_to(m[i], HERE);
        tg_module_to_dtype(m[i], TG_BF16);
        o[i] = tg_adamw(tg_module_params(m[i]), 1, 0.001);
    }
    steps_of(m[0], o[0], 0, 5);
    CHECK(tg_checkpoint_save(path, m[0], o[0], 5) == TG_OK);
    int64_t step = 0;
    CHECK(tg_checkpoint_load(path, m[1], o[1], &step) == TG_OK && step == 5);
    for (int i = 0; i < 2; ++i) steps_of(m[i], o[i], 5, 60);
    CHECK(same_bits(tg_module_params(m[0])[0], tg_module_params(m[1])[0]));
    tg_module_to_dtype(m[0], TG_F32); /* the state follows, and comes back */
    steps_of(m[0], o[0], 60, 62);
    tg_module_to_dtype(m[0], TG_F16);
    steps_of(m[0], o[0], 62, 64);
    for (int i = 0; i < 2; ++i) tg_optim_free(o[i]), tg_module_free(m[i]);
    remove(path);
}

/* ---- scaling of the loss ---- */

static tg_tensor *vector_param(void) { return tg_param(tg_ones_on(TG_SHAPE(3), TG_F32, HERE)); }

/* A step for the loss sum(p^2), or infinity. */
static tg_status scaled_step(tg_grad_scaler *scaler, tg_optim *o, tg_tensor *p, bool infinite)
{
    TG_SCOPE;
    tg_tensor *loss = tg_mul_scalar(tg_sum(tg_mul(p, p)), infinite ? INFINITY : 1);
    if (tg_optim_zero_grad(o) != TG_OK || tg_backward(tg_grad_scaler_scale(scaler, loss)) != TG_OK)
        return tg_error_code();
    const tg_status status = tg_grad_scaler_step(scaler, o);
    return status == TG_OK ? tg_grad_scaler_update(scaler) : status;
}

/* As torch.amp.GradScaler("cpu", init_scale=1024, growth_interval=2) with SGD. */
TEST(scale_as_in_pytorch)
{
    const double scales[] = {1024, 2048, 1024, 1024, 2048, 1024, 1024, 2048};
    const double values[] = {.8, .64, .64, .512, .4096, .4096, .32768, .262144};
    tg_grad_scaler scaler = TG_GRAD_SCALER;
    tg_tensor *p = vector_param();
    tg_optim *o = tg_sgd(&p, 1, 0.1);
    CHECK(scaler.scale == 65536 && scaler.growth_interval == 2000);
    scaler.scale = 1024, scaler.growth_interval = 2;
    for (int k = 0; k < 8; ++k) {
        const bool infinite = k == 2 || k == 5;
        CHECK(scaled_step(&scaler, o, p, infinite) == TG_OK && scaler.found_inf == infinite);
        CHECK(scaler.scale == scales[k]);
        CHECK_NEAR(tg_get(p, TG_INDEX(1)), values[k], 1e-6);
    }
    CHECK(scaler.growth_tracker == 0);
    scaler.scale = 3e38; /* twice that is no number of f32: the scale stays */
    for (int k = 0; k < 2; ++k) {
        CHECK(tg_set_grad(p, tg_ones_like(p)) == TG_OK && tg_grad_scaler_step(&scaler, o) == TG_OK);
        CHECK(tg_grad_scaler_update(&scaler) == TG_OK);
    }
    CHECK(scaler.scale == 3e38);
    tg_optim_free(o);
    tg_release(p);
}

TEST(unscaled_gradients_can_be_used)
{
    tg_grad_scaler scaler = TG_GRAD_SCALER, other = TG_GRAD_SCALER, off = TG_GRAD_SCALER;
    tg_tensor *p = vector_param(), *q = tg_param(tg_ones_on(TG_SHAPE(2), TG_BF16, HERE));
    tg_optim *o = tg_sgd(&p, 1, 0.1), *o2 = tg_sgd(&q, 1, 0.1);
    CHECK(tg_backward(tg_grad_scaler_scale(&scaler, tg_add(tg_sum(p), tg_sum(q)))) == TG_OK);
    CHECK(tg_get(tg_grad(p), TG_INDEX(0)) == 65536 && tg_get(tg_grad(q), TG_INDEX(0)) == 65536);
    CHECK(tg_grad_scaler_unscale_(&scaler, o) == TG_OK && tg_get(tg_grad(p), TG_INDEX(0)) == 1);
    CHECK_FAILS(tg_grad_scaler_unscale_(&scaler, o), "unscale_() has already been called on this optimizer");
    CHECK(tg_grad_scaler_step(&scaler, o) == TG_OK && tg_grad_scaler_step(&scaler, o2) == TG_OK);
    CHECK_NEAR(tg_get(p, TG_INDEX(0)), 0.9, 1e-6);
    CHECK_NEAR(tg_get(q, TG_INDEX(0)), 0.9, 4e-3);
    CHECK_FAILS(tg_grad_scaler_step(&scaler, o), "step() has already been called since the last update()");
    CHECK_FAILS(tg_grad_scaler_unscale_(&scaler, o), "unscale_() is being called after step()");
    CHECK(tg_grad_scaler_update(&scaler) == TG_OK && scaler.growth_tracker == 1);
    /* one optimizer finds an infinity: the other one has stepped */
    CHECK(tg_set_grad(p, tg_full_like(p, INFINITY)) == TG_OK && tg_set_grad(q, tg_zeros_like(q)) == TG_OK);
    CHECK(tg_grad_scaler_step(&scaler, o) == TG_OK && tg_grad_scaler_step(&scaler, o2) == TG_OK && scaler.found_inf);
    CHECK(tg_grad_scaler_update(&scaler) == TG_OK && scaler.scale == 32768);
    CHECK_NEAR(tg_get(p, TG_INDEX(0)), 0.9, 1e-6);
    CHECK(tg_set_grad(p, tg_full_like(p, NAN)) == TG_OK && tg_grad_scaler_unscale_(&scaler, o) == TG_OK);
    tg_optim_free(o); /* between unscale and step */
    o = tg_sgd(&p, 1, 0.1);
    off.enabled = false;
    tg_tensor *loss = tg_sum(p);
    CHECK(tg_grad_scaler_scale(&off, loss) == loss && tg_grad_scaler_scale(&off, NULL) == NULL);
    tg_clear_error();
    CHECK(tg_set_grad(p, tg_ones_like(p)) == TG_OK && tg_grad_scaler_unscale_(&off, o) == TG_OK);
    CHECK(tg_grad_scaler_step(&off, o) == TG_OK && tg_grad_scaler_update(&off) == TG_OK && off.scale == 65536);
    CHECK_NEAR(tg_get(p, TG_INDEX(0)), 0.8, 1e-6);
    tg_tensor *f16 = tg_full_on(TG_SCALAR, 3, TG_F16, HERE);
    CHECK(tg_item(tg_grad_scaler_scale(&other, f16)) == 3 * 65536.0);
    tg_optim_free(o), tg_optim_free(o2);
    tg_release(p), tg_release(q);
}

TEST(scalers_refuse)
{
    tg_grad_scaler scaler = TG_GRAD_SCALER, bad = TG_GRAD_SCALER;
    tg_tensor *p = vector_param(), *h = tg_param(tg_ones_on(TG_SHAPE(2), TG_F16, HERE));
    tg_optim *o = tg_sgd(&p, 1, 0.1), *o2 = tg_sgd(&h, 1, 0.1);
    CHECK_FAILS(tg_grad_scaler_step(&scaler, o), "No inf checks were recorded for this optimizer");
    CHECK_FAILS(tg_grad_scaler_update(&scaler), "No inf checks were recorded prior to update");
    CHECK(tg_set_grad(h, tg_ones_like(h)) == TG_OK);
    CHECK_FAILS(tg_grad_scaler_step(&scaler, o2), "Attempting to unscale FP16 gradients.");
    CHECK_FAILS(tg_grad_scaler_step(NULL, o), "scaler is NULL");
    CHECK_FAILS(tg_grad_scaler_step(&scaler, NULL), "opt is NULL");
    CHECK_FAILS(tg_grad_scaler_unscale_(&scaler, NULL), "opt is NULL");
    CHECK_FAILS(tg_grad_scaler_scale(&scaler, NULL), "loss is NULL");
    CHECK_FAILS(tg_grad_scaler_load_state(NULL, NULL), "scaler is NULL");
    bad.scale = 0;
    CHECK_FAILS(tg_grad_scaler_scale(&bad, p), "Invalid scale: 0");
    bad.scale = 1, bad.growth_factor = 1;
    CHECK_FAILS(tg_grad_scaler_update(&bad), "The growth factor must be > 1.0.");
    bad.growth_factor = 2, bad.backoff_factor = 1;
    CHECK_FAILS(tg_grad_scaler_update(&bad), "The backoff factor must be < 1.0.");
    bad.backoff_factor = 0.5, bad.growth_interval = 0;
    CHECK_FAILS(tg_grad_scaler_update(&bad), "The growth interval must be > 0.");
    tg_optim_free(o), tg_optim_free(o2);
    tg_release(p), tg_release(h);
}

TEST(scalers_in_a_dict)
{
    tg_grad_scaler scaler = TG_GRAD_SCALER, loaded = TG_GRAD_SCALER;
    scaler.scale = 512, scaler.growth_factor = 3, scaler.backoff_factor = 0.25;
    scaler.growth_interval = 7, scaler.growth_tracker = 5;
    tg_dict *d = tg_grad_scaler_state(&scaler);
    CHECK(d && tg_dict_count(d) == 5 && tg_item(tg_dict_get(d, "_growth_tracker")) == 5);
    CHECK(tg_grad_scaler_load_state(&loaded, d) == TG_OK);
    CHECK(loaded.scale == 512 && loaded.growth_factor == 3 && loaded.backoff_factor == 0.25);
    CHECK(loaded.growth_interval == 7 && loaded.growth_tracker == 5);
    CHECK(tg_dict_set(d, "scale", tg_scalar(-1)) == TG_OK);
    CHECK_FAILS(tg_grad_scaler_load_state(&loaded, d), "Invalid scale: -1");
    CHECK(tg_dict_remove(d, "scale") == TG_OK);
    CHECK_FAILS(tg_grad_scaler_load_state(&loaded, d), "there is no 'scale'");
    CHECK(loaded.scale == 512);
    tg_dict_free(d);
}

/* ---- a small GPT: its loss, step by step, in lower precision is that in f32 within 2 % ---- */

enum { STEPS = 30, BATCH = 4, LENGTH = 16, WIDTH = 32, HEADS = 2, LAYERS = 2, WORDS = 19 };

typedef enum { PLAIN, AUTOCAST_BF16, AUTOCAST_F16, ALL_BF16 } precision;

static tg_module *child(tg_module *net, tg_module *m)
{
    char name[16];
    snprintf(name, sizeof name, "%d", tg_module_child_count(net));
    return tg_module_child(net, name, m);
}

/* tokens, positions; for each layer norm, qkv, out, norm, up, down; norm, logits */
static tg_module *gpt(tg_module **part)
{
    tg_module *net = tg_module_new("GPT", NULL, 0);
    int n = 0;
    tg_seed(7);
    part[n++] = child(net, tg_nn_embedding(WORDS, WIDTH)), part[n++] = child(net, tg_nn_embedding(LENGTH, WIDTH));
    for (int i = 0; i < LAYERS; ++i) {
        part[n++] = child(net, tg_nn_layer_norm(TG_SHAPE(WIDTH), 1e-5, true));
        part[n++] = child(net, tg_nn_linear(WIDTH, 3 * WIDTH, true));
        part[n++] = child(net, tg_nn_linear(WIDTH, WIDTH, true));
        part[n++] = child(net, tg_nn_layer_norm(TG_SHAPE(WIDTH), 1e-5, true));
        part[n++] = child(net, tg_nn_linear(WIDTH, 4 * WIDTH, true));
        part[n++] = child(net, tg_nn_linear(4 * WIDTH, WIDTH, true));
    }
    part[n++] = child(net, tg_nn_layer_norm(TG_SHAPE(WIDTH), 1e-5, true));
    part[n++] = child(net, tg_nn_linear(WIDTH, WORDS, false));
    tg_module_to(net, HERE);
    return net;
}

/* x + attention of norm(x), and that + MLP of its norm */
static tg_tensor *gpt_layer(tg_module *const *part, tg_tensor *x)
{
    tg_tensor *qkv[3], *y = tg_forward(part[1], tg_forward(part[0], x));
    tg_unbind(tg_view(y, TG_SHAPE(BATCH, LENGTH, 3, HEADS, WIDTH / HEADS)), 2, qkv, 3);
    for (int i = 0; i < 3; ++i) qkv[i] = tg_transpose(qkv[i], 1, 2);
    y = tg_scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], NULL, 0, true, 0);
    x = tg_add(x, tg_forward(part[2], tg_reshape(tg_transpose(y, 1, 2), TG_SHAPE(BATCH, LENGTH, WIDTH))));
    y = tg_forward(part[3], x);
    y = tg_linear_gelu(y, tg_module_get(part[4], "weight"), tg_module_get(part[4], "bias"), true);
    return tg_add(x, tg_forward(part[5], y));
}

static tg_tensor *gpt_loss(tg_module *const *part, int step)
{
    int64_t word[BATCH * LENGTH + 1], place[LENGTH];
    for (int i = 0; i <= BATCH * LENGTH; ++i) word[i] = (i * 7 + 5 * step) % WORDS;
    for (int i = 0; i < LENGTH; ++i) place[i] = i;
    tg_tensor *ids = tg_from_on(word, TG_SHAPE(BATCH, LENGTH), TG_I64, HERE);
    tg_tensor *targets = tg_from_on(word + 1, TG_SHAPE(BATCH * LENGTH), TG_I64, HERE);
    tg_tensor *places = tg_from_on(place, TG_SHAPE(LENGTH), TG_I64, HERE);
    tg_tensor *x = tg_add(tg_forward(part[0], ids), tg_forward(part[1], places));
    for (int i = 0; i < LAYERS; ++i) x = gpt_layer(part + 2 + 6 * i, x);
    x = tg_forward(part[3 + 6 * LAYERS], tg_forward(part[2 + 6 * LAYERS], x));
    return tg_cross_entropy(tg_view(x, TG_SHAPE(BATCH * LENGTH, WORDS)), targets);
}

static void train(precision how, double *losses)
{
    tg_module *part[4 + 6 * LAYERS], *net = gpt(part);
    if (how == ALL_BF16) tg_module_to_dtype(net, TG_BF16);
    tg_optim *o = tg_adamw(tg_module_params(net), tg_module_count(net), 2e-3);
    tg_grad_scaler scaler = TG_GRAD_SCALER;
    scaler.enabled = how == AUTOCAST_F16;
    for (int step = 0; step < STEPS; ++step) {
        TG_SCOPE;
        tg_tensor *loss;
        {
            TG_AUTOCAST(how == AUTOCAST_BF16 ? TG_BF16 : how == AUTOCAST_F16 ? TG_F16 : TG_F32);
            loss = gpt_loss(part, step);
        }
        tg_optim_zero_grad(o);
        CHECK(tg_backward(tg_grad_scaler_scale(&scaler, loss)) == TG_OK);
        CHECK(tg_grad_scaler_step(&scaler, o) == TG_OK && tg_grad_scaler_update(&scaler) == TG_OK);
        losses[step] = tg_item(loss);
    }
    tg_optim_free(o);
    tg_module_free(net);
}

TEST(a_gpt_learns_as_in_f32)
{
    double wanted[STEPS], losses[STEPS];
    train(PLAIN, wanted);
    CHECK(wanted[STEPS - 1] < 0.8 * wanted[0]);
    for (int how = AUTOCAST_BF16; how <= ALL_BF16; ++how) {
        train((precision)how, losses);
        for (int i = 0; i < STEPS; ++i) CHECK(fabs(losses[i] - wanted[i]) <= 0.02 * wanted[i]);
    }
}

/* ---- allocation failure ---- */

static bool step_of_a_layer(void)
{
    TG_SCOPE;
    tg_tensor *w = filled(TG_F32, TG_SHAPE(3, 3)), *x = filled(TG_F32, TG_SHAPE(2, 3));
    if (!tg_set_requires_grad(w, true)) return false;
    TG_AUTOCAST(TG_BF16);
    tg_tensor *y = tg_exp(tg_softmax(tg_cumsum(tg_matmul(tg_linear(x, w, NULL), w), 0), 0));
    tg_tensor *both[2] = {y, w};
    y = tg_einsum("ij,jk->ik", both, 2);
    tg_tensor *loss = tg_add(tg_mse_loss(y, x, TG_MEAN), tg_norm(tg_add(tg_sum(y), tg_logsumexp(y))));
    return tg_backward(loss) == TG_OK && tg_grad(w);
}

static bool scaled_steps(void)
{
    TG_SCOPE;
    tg_grad_scaler scaler = TG_GRAD_SCALER;
    tg_tensor *p = tg_param(tg_ones_on(TG_SHAPE(3), TG_BF16, HERE));
    tg_optim *o = p ? tg_adamw(&p, 1, 0.1) : NULL;
    bool ok = o && scaled_step(&scaler, o, p, false) == TG_OK && scaled_step(&scaler, o, p, true) == TG_OK;
    tg_dict *d = ok ? tg_grad_scaler_state(&scaler) : NULL;
    ok = d && tg_grad_scaler_load_state(&scaler, d) == TG_OK;
    tg_dict_free(d);
    tg_optim_free(o);
    tg_release(p);
    return ok;
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    harness_take_device();
    out_of_memory(step_of_a_layer);
    out_of_memory(scaled_steps);
    RUN(each_op_has_the_dtype_of_its_list);
    RUN(others_are_left_alone);
    RUN(the_same_as_casts_by_hand);
    RUN(a_parameter_is_cast_once);
    RUN(a_cast_without_grad_does_not_hide_the_parameter);
    RUN(many_parameters);
    RUN(parameters_that_are_not_cast);
    RUN(backward_is_outside);
    RUN(a_checkpoint_runs_again_in_its_mode);
    RUN(blocks_nest_and_end);
    RUN(recurrent_layers_are_low);
    RUN(steps_are_those_in_f32_rounded);
    RUN(small_steps_add_up);
    RUN(master_copies_are_saved);
    RUN(scale_as_in_pytorch);
    RUN(unscaled_gradients_can_be_used);
    RUN(scalers_refuse);
    RUN(scalers_in_a_dict);
    RUN(a_gpt_learns_as_in_f32);
    CHECK(tg_shutdown() == TG_OK);
    return harness_end();
}
