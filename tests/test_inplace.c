/* Writes in place, versions and views: section 2.5 of the semantics list. */
#include "tensorgrad.h"
#include "semantics.h"
#include "helpers.h"

/* ---- section 2.5: writes in place, versions, views ---- */

static tg_tensor *view_of(tg_tensor *t) { return tg_view(t, TG_SHAPE(-1)); }
static tg_tensor *to_f32(tg_tensor *t) { return tg_to_dtype(t, TG_F32); }
static tg_tensor *twice(tg_tensor *t)
{
    tg_tensor *pair[2];
    pair[0] = pair[1] = t;
    return tg_cat(pair, 2, 0);
}
static tg_tensor *expanded(tg_tensor *t) { return tg_expand(t, TG_SHAPE(3, 2)); }
static tg_tensor *with_itself(tg_tensor *t) { return tg_mul(t, tg_add_scalar(t, 1)); }
static tg_tensor *by_itself(tg_tensor *t) { return tg_div(t, tg_add_scalar(t, 1)); }
static tg_tensor *with_constant(tg_tensor *t) { return tg_mul(t, f64("[2, 3]")); }
static tg_tensor *softmax(tg_tensor *t) { return tg_softmax(t, 0); }
static tg_tensor *log_softmax(tg_tensor *t) { return tg_log_softmax(t, 0); }
static tg_tensor *std_of(tg_tensor *t) { return tg_std_dim(t, 0, 1, true); }
static tg_tensor *norm_of(tg_tensor *t) { return tg_norm_dim(t, 2, 0, true); }
static tg_tensor *two_to(tg_tensor *t) { return tg_pow(scalar(2), t); }
static tg_tensor *outer_product(tg_tensor *t)
{
    return tg_matmul(tg_view(t, TG_SHAPE(2, 1)), tg_view(t, TG_SHAPE(1, 2)));
}

typedef tg_tensor *(*function1)(tg_tensor *);

/* Whether backward through fn fails after its input, or its output, was written. */
static bool notices(function1 fn, bool output)
{
    TG_SCOPE;
    tg_tensor *x = tg_mul_scalar(leaf("[0.5, 0.75]"), 1), *y = fn(x), *sum = tg_sum(output ? tg_mul_scalar(y, 1) : y);
    bool refused;
    tg_add_scalar_(output ? y : x, 1);
    refused = tg_backward(sum) != TG_OK && strstr(tg_error_message(), "modified by an inplace operation");
    tg_clear_error();
    return refused;
}

TEST(writes_in_place)
{
    ROW(2.44) {
        tg_tensor *x = leaf("[1, 2, 3]"), *v = tg_narrow(x, 0, 0, 2);
        CHECK_FAILS(tg_add_scalar_(x, 1), "a leaf Variable that requires grad is being used in an in-place operation.");
        CHECK_FAILS(tg_add_scalar_(v, 1),
                    "a view of a leaf Variable that requires grad is being used in an in-place operation.");
        CHECK_FAILS(tg_fill_(x, 1), "a leaf Variable");
        CHECK_FAILS(tg_zero_(v), "a view of a leaf Variable");
        CHECK_FAILS(tg_set(x, TG_INDEX(0), 9), "a leaf Variable");
        HAS(x, "[1, 2, 3]");
        CHECK(tg_version_of(x) == 0);
    }
    ROW(2.45) {
        tg_tensor *x = leaf("[1, 2]"), *y = tg_mul_scalar(x, 2);
        CHECK(tg_add_scalar_(y, 1) == y && tg_version_of(y) == 1 && backward_sum(y) == TG_OK);
        HAS(tg_grad(x), "[2, 2]");
        HAS(y, "[3, 5]");
        y = tg_mul_scalar(x, 2);
        tg_mul_(y, tg_detach(x)); /* 2x * c */
        tg_exp_(y);
        CHECK(backward_sum(y) == TG_OK);
        CHECK_NEAR(tg_get(tg_grad(x), TG_INDEX(1)), 2 + 4 * exp(8.0), 1e-12);
    }
    ROW(2.46) {
        tg_tensor *x = leaf("[1, 2]"), *q = tg_exp(x), *r = tg_mul(q, q);
        tg_add_scalar_(q, 1);
        CHECK(backward_sum(r) != TG_OK && tg_error_code() == TG_ERR_GRAPH);
        CHECK(strstr(tg_error_message(),
                     "one of the variables needed for gradient computation has been modified by an inplace "
                     "operation: [") != NULL);
        CHECK(strstr(tg_error_message(), "[2]], which is output 0 of ") != NULL);
        CHECK(strstr(tg_error_message(), "is at version 1; expected version 0 instead.") != NULL);
        /* the error names the op that needs the value and the op that wrote it */
        CHECK(strstr(tg_error_message(), "backward of mul") != NULL);
        CHECK(strstr(tg_error_message(), "written by add_scalar") != NULL);
        tg_clear_error();
        CHECK(tg_grad(x) == NULL);
        q = tg_exp(x);
        tg_add_scalar_(q, 1);
        CHECK_FAILS(backward_sum(q), "which is output 0 of ExpBackward0, is at version 1; expected version 0 instead.");
        q = tg_exp(x), r = tg_mul(q, q);
        CHECK(tg_touch_(q) == q);
        CHECK_FAILS(backward_sum(r), "touch_");
    }
    ROW(2.47) {
        tg_tensor *t = f64("[1, 2, 3]"), *v = tg_narrow(t, 0, 1, 2), *d = tg_detach(v), *p = leaf("[1]"), *c;
        tg_optim *opt = tg_sgd(&p, 1, 0.5);
        tg_add_scalar_(t, 1);
        CHECK(tg_version_of(t) == 1 && tg_version_of(v) == 1 && tg_version_of(d) == 1);
        tg_set(t, TG_INDEX(0), 5);
        tg_copy_(v, d);
        tg_zero_(d);
        tg_fill_(t, 2);
        tg_touch_(v);
        CHECK(tg_version_of(t) >= 5 && tg_version_of(t) == tg_version_of(d));
        {
            TG_NO_GRAD;
            int64_t before = tg_version_of(t);
            tg_mul_(t, t);
            CHECK(tg_version_of(t) == before + 1);
        }
        c = tg_clone(t);
        CHECK(tg_version_of(c) == 0);
        tg_backward(tg_sum(tg_mul(p, p)));
        tg_step(opt);
        CHECK(tg_version_of(p) == 1);
        tg_optim_free(opt);
    }
    ROW(2.48) {
        static const function1 save_output[] = {tg_exp,        tg_sigmoid, tg_tanh,     tg_sqrt, tg_relu, tg_rsqrt,
                                                tg_reciprocal, softmax,    log_softmax, std_of,  norm_of, two_to};
        static const function1 save_input[] = {with_itself, by_itself, outer_product, tg_sin, tg_cos, tg_log, tg_abs};
        static const function1 save_nothing[] = {tg_neg, tg_sum, tg_mean, view_of, to_f32, twice, expanded, tg_clone};
        size_t i;
        for (i = 0; i < sizeof save_output / sizeof save_output[0]; ++i) {
            char text[8];
            harness.sample = text;
            snprintf(text, sizeof text, "%d", (int)i);
            CHECK(notices(save_output[i], true));
        }
        for (i = 0; i < sizeof save_input / sizeof save_input[0]; ++i) {
            char text[8];
            harness.sample = text;
            snprintf(text, sizeof text, "%d", (int)i);
            CHECK(notices(save_input[i], false));
        }
        for (i = 0; i < sizeof save_nothing / sizeof save_nothing[0]; ++i) {
            char text[8];
            harness.sample = text;
            snprintf(text, sizeof text, "%d", (int)i);
            CHECK(!notices(save_nothing[i], false));
            if (save_nothing[i] != expanded) CHECK(!notices(save_nothing[i], true));
        }
        harness.sample = NULL;
        CHECK(!notices(with_constant, false)); /* mul by a constant needs the constant, not its input */
        {
            tg_tensor *x = leaf("[1, 3, 2]"), *index = NULL, *y = tg_max_dim(x, 0, false, &index);
            tg_add_scalar_(index, 1);
            CHECK_FAILS(tg_backward(y), "modified by an inplace operation");
        }
    }
    ROW(2.55) {
        tg_tensor *i = of(TG_I64, "[1, 2]"), *one = f64("[1]"), *half = of(TG_F32, "[1, 2]");
        CHECK_FAILS(tg_add_(i, f64("[0.5, 0.5]")), "can't be cast to the desired output type");
        HAS(i, "[1, 2]");
        CHECK_FAILS(tg_add_(one, f64("[1, 2, 3]")), "doesn't match the broadcast shape");
        HAS(one, "[1]");
        CHECK(tg_add_(half, f64("[1, 1]")) == half && tg_dtype_of(half) == TG_F32);
        HAS(half, "[2, 3]");
    }
}

TEST(views_and_writes)
{
    int64_t nodes;
    ROW(2.49) {
        tg_tensor *x = leaf("[1, 2, 3, 4]"), *y = tg_mul_scalar(x, 1), *v = tg_narrow(y, 0, 1, 2);
        CHECK(tg_mul_scalar_(v, 10) == v && !tg_is_leaf(y));
        nodes = tg_stats().nodes;
        /* v has the history of the write already: only the node of the new op is added */
        CHECK(tg_neg(v) != NULL && tg_stats().nodes == nodes + 1);
        HAS(y, "[1, 20, 30, 4]");
        CHECK(backward_sum(y) == TG_OK);
        HAS(tg_grad(x), "[1, 10, 10, 1]");
    }
    ROW(2.50) {
        tg_tensor *x = leaf("[1, 2, 3, 4]"), *y = tg_mul_scalar(x, 1), *v = tg_narrow(y, 0, 1, 2);
        tg_mul_scalar_(y, 10);
        HAS(v, "[20, 30]");
        CHECK(backward_sum(v) == TG_OK);
        HAS(tg_grad(x), "[0, 10, 10, 0]");
    }
    ROW(2.51) {
        tg_tensor *x = leaf("[1, 2]"), *y = tg_mul_scalar(x, 2), *base = f64("[0, 0, 0]"), *w = leaf("[5]");
        CHECK(tg_set(y, TG_INDEX(0), 5) == TG_OK && backward_sum(y) == TG_OK);
        HAS(y, "[5, 4]");
        HAS(tg_grad(x), "[0, 2]");
        y = tg_mul_scalar(x, 2);
        tg_fill_(tg_select(y, 0, 1), 7);
        CHECK(backward_sum(y) == TG_OK);
        HAS(tg_grad(x), "[2, 2]");
        CHECK(tg_copy_(tg_narrow(base, 0, 1, 1), w) != NULL && tg_requires_grad(base) && !tg_is_leaf(base));
        CHECK(backward_sum(tg_mul_scalar(base, 3)) == TG_OK);
        HAS(tg_grad(w), "[3]");
        HAS(base, "[0, 5, 0]");
    }
    ROW(2.52) {
        tg_tensor *x = leaf("[1, 2, 3, 4]"), *y = tg_mul_scalar(x, 1), *parts[4], *data = f64("[1, 2, 3, 4]");
        const char *text =
            "is a view and is being modified inplace. This view is the output of a function that returns multiple "
            "views. Such functions do not allow the output views to be modified inplace. You should replace the "
            "inplace operation by an out-of-place one.";
        CHECK(tg_split(y, 2, 0, parts, 4) == 2);
        CHECK_FAILS(tg_add_scalar_(parts[0], 1), text);
        CHECK(tg_chunk(y, 2, 0, parts, 4) == 2);
        CHECK_FAILS(tg_add_scalar_(parts[1], 1), text);
        CHECK(tg_unbind(y, 0, parts, 4) == 4);
        CHECK_FAILS(tg_add_scalar_(parts[3], 1), text);
        HAS(y, "[1, 2, 3, 4]");
        CHECK(tg_unbind(data, 0, parts, 4) == 4 &&
              tg_add_scalar_(parts[3], 1) == parts[3]); /* allowed, as there is no graph */
        HAS(data, "[1, 2, 3, 5]");
    }
    ROW(2.53) {
        tg_tensor *x = leaf("[1, 2]"), *y = tg_mul_scalar(x, 1), *v, *data = f64("[1, 2]"), *w, *of_leaf;
        {
            TG_NO_GRAD;
            v = tg_narrow(y, 0, 0, 1);
            w = tg_narrow(data, 0, 0, 1);
        }
        CHECK_FAILS(tg_mul_scalar_(v, 2),
                    "A view was created in no_grad mode and is being modified inplace with grad mode "
                    "enabled. Given that this use case is ambiguous");
        CHECK_FAILS(tg_mul_(v, tg_narrow(y, 0, 1, 1)), "A view was created in no_grad mode");
        HAS(y, "[1, 2]");
        {
            TG_NO_GRAD;
            of_leaf = tg_narrow(x, 0, 0, 1);
        }
        CHECK(tg_mul_scalar_(of_leaf, 2) == NULL && tg_error_code() == TG_ERR_GRAPH); /* its base is a leaf */
        tg_clear_error();
        HAS(x, "[1, 2]");
        CHECK(tg_mul_scalar_(w, 2) == w); /* allowed where no gradient is recorded */
        {
            TG_NO_GRAD;
            CHECK(tg_mul_scalar_(v, 2) == v);
        }
        HAS(y, "[2, 2]");
    }
    ROW(2.54) {
        tg_tensor *t = tg_expand(f64("[[1], [2]]"), TG_SHAPE(2, 3)), *windows = tg_unfold(f64("[1, 2, 3, 4]"), 0, 3, 1);
        CHECK_FAILS(tg_add_scalar_(t, 1),
                    "more than one element of the written-to tensor refers to a single memory location");
        CHECK_FAILS(tg_zero_(windows),
                    "more than one element of the written-to tensor refers to a single memory location");
        CHECK(tg_add_scalar_(tg_unfold(f64("[1, 2, 3, 4]"), 0, 2, 2), 1) != NULL);
    }
}

/* Views taken before, between and after writes, the base and views written, all of it used: the sum of everything. */
TEST(base_and_views_written_in_turn)
{
    tg_tensor *x = leaf("[[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12], [13, 14, 15, 16]]"), *y = tg_mul_scalar(x, 1),
              *early = tg_add_scalar(y, 0);
    tg_tensor *old = tg_select(y, 1, 2), *v = tg_select(y, 0, 1), *w;
    int i;
    tg_mul_scalar_(v, 3);
    w = tg_narrow(tg_t(y), 0, 1, 2);
    tg_add_scalar_(w, 1);
    CHECK(tg_backward(tg_add(tg_add(tg_sum(tg_mul(y, y)), tg_sum(v)),
                             tg_add(tg_sum(early), tg_sum(tg_mul(old, old))))) == TG_OK);
    for (i = 0; i < 16; ++i) {
        int row = i / 4, column = i % 4;
        double d = row == 1 ? 3 : 1, value = (i + 1) * d + (column == 1 || column == 2 ? 1 : 0);
        double wanted = 2 * value * d + (row == 1 ? d : 0) + 1 + (column == 2 ? 2 * value * d : 0);
        CHECK_NEAR(tg_get(y, TG_INDEX(row, column)), value, 1e-12);
        CHECK_NEAR(tg_get(tg_grad(x), TG_INDEX(row, column)), wanted, 1e-12);
    }
}

TEST(view_of_a_constant_written_with_a_gradient)
{
    tg_tensor *w = leaf("[3, 3]"), *base = f64("[2, 2, 2, 2]"), *v = tg_narrow(base, 0, 0, 2),
              *other = tg_narrow(base, 0, 1, 2);
    tg_mul_(v, w);
    CHECK(tg_requires_grad(base) && tg_requires_grad(other) && !tg_is_leaf(other));
    CHECK(backward_sum(other) == TG_OK);
    HAS(tg_grad(w), "[0, 2]");
}

TEST(views_that_outlive_their_base)
{
    tg_tensor *x = leaf("[2, 2, 2, 2]"), *v, *other;
    {
        TG_SCOPE;
        tg_tensor *y = tg_mul_scalar(x, 5);
        v = tg_keep(tg_narrow(y, 0, 0, 2));
        other = tg_keep(tg_narrow(y, 0, 1, 2));
    }
    tg_mul_scalar_(v, 7);
    CHECK(backward_sum(other) == TG_OK);
    HAS(tg_grad(x), "[0, 35, 5, 0]");
}

TEST(write_of_a_tensor_into_itself)
{
    tg_tensor *x = leaf("[2, 3]"), *y = tg_mul_scalar(x, 1), *q, *r;
    tg_mul_(y, y);
    HAS(y, "[4, 9]");
    CHECK_FAILS(backward_sum(y), "modified by an inplace operation"); /* as PyTorch: the second factor was needed */
    q = tg_exp(x), r = tg_mul(q, q);
    tg_mul_(q, r); /* q's history saves r, whose node saved q: no cycle, or the test's end finds it alive */
    CHECK_FAILS(backward_sum(q), "modified by an inplace operation");
    y = tg_mul_scalar(x, 1);
    tg_add_(y, y);
    CHECK(backward_sum(y) == TG_OK);
    HAS(tg_grad(x), "[2, 2]");
    y = tg_clone(x);
    tg_add_(tg_narrow(y, 0, 0, 1), tg_narrow(y, 0, 1, 1));
    CHECK(backward_sum(tg_mul(y, f64("[10, 1]"))) == TG_OK);
    HAS(tg_grad(x), "[12, 13]");
}

/* y = x * x; y *= b;  sum(y * y) */
static tg_tensor *write_whole(tg_tensor *const *in, int n, void *user)
{
    tg_tensor *y = tg_mul(in[0], in[0]);
    (void)n, (void)user;
    tg_mul_(y, in[1]);
    tg_exp_(tg_mul_scalar_(y, 0.1));
    return tg_sum(tg_mul(y, y));
}

/* y = x * x; y[1:3] *= b; then sin in place on y transposed's row; old views are used after */
static tg_tensor *write_views(tg_tensor *const *in, int n, void *user)
{
    tg_tensor *y = tg_view(tg_mul(in[0], in[0]), TG_SHAPE(2, 2)), *old = tg_select(y, 1, 0);
    (void)n, (void)user;
    tg_mul_(tg_select(y, 0, 1), tg_narrow(in[1], 0, 0, 2));
    tg_sin_(tg_select(tg_t(y), 0, 1));
    tg_add_(y, tg_view(in[1], TG_SHAPE(2, 2)));
    return tg_add(tg_sum(tg_mul(y, y)), tg_sum(tg_exp(old)));
}

static tg_tensor *write_copy(tg_tensor *const *in, int n, void *user)
{
    tg_tensor *base = tg_zeros_on(TG_SHAPE(3, 2), TG_F64, HERE), *row = tg_select(base, 0, 1);
    (void)n, (void)user;
    tg_copy_(row, tg_mul(tg_narrow(in[0], 0, 0, 2), tg_narrow(in[1], 0, 2, 2)));
    tg_copy_(tg_select(base, 0, 2), tg_exp(tg_narrow(in[0], 0, 1, 1)));
    tg_masked_fill_(base, tg_gt_scalar(base, 100), 0);
    return tg_sum(tg_mul(base, tg_sin(base)));
}

TEST(double_backward_through_writes)
{
    static const tg_function functions[] = {write_whole, write_views, write_copy};
    tg_tensor *in[2];
    size_t i;
    in[0] = leaf("[0.5, -0.7, 1.1, 0.3]"), in[1] = leaf("[1.5, 0.9, -1.2, 0.4]");
    ROW(2.45)
        ROW(2.49) {
            for (i = 0; i < sizeof functions / sizeof functions[0]; ++i) {
                char text[8];
                harness.sample = text;
                snprintf(text, sizeof text, "%d", (int)i);
                CHECK(tg_gradcheck(functions[i], in, 2, NULL) && tg_gradgradcheck(functions[i], in, 2, NULL));
            }
            harness.sample = NULL;
        }
}

TEST(in_place_after_save)
{
    tg_tensor *x = leaf("[1, 2]"), *y = tg_mul_scalar(x, 2), *z = tg_mul(y, y), *w = tg_add(y, y);
    tg_mul_scalar_(y, 5);
    CHECK_FAILS(backward_sum(z), "modified by an inplace operation");
    CHECK(backward_sum(w) == TG_OK); /* a sum saves nothing */
    HAS(tg_grad(x), "[4, 4]");
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    harness_take_device();
    RUN(writes_in_place);
    RUN(views_and_writes);
    RUN(base_and_views_written_in_turn);
    RUN(view_of_a_constant_written_with_a_gradient);
    RUN(views_that_outlive_their_base);
    RUN(write_of_a_tensor_into_itself);
    RUN(double_backward_through_writes);
    RUN(in_place_after_save);
    check_rows("test_inplace");
    CHECK(tg_shutdown() == TG_OK);
    return harness_end();
}
