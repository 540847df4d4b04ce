/* Every layer against PyTorch: the rows of layers.h say what PyTorch computes, prints and calls its parameters.  Also
 * the default initialisation, and what only a layer can do: modes, containers, refusals.
 *     test_layers --judge FOLDER      the rows with weights and inputs from files: see tools/layers.py */
#include "tensorgrad.h"
#include "helpers.h"
#include "inside.h"

static tg_module *in_sequence(tg_module *a, tg_module *b, tg_module *c)
{
    tg_module *list[3];
    list[0] = a, list[1] = b, list[2] = c;
    return tg_nn_sequential(list, 3);
}

/* ---- the rows ---- */

/* Element j of tensor k: numbers in [-1, 1] without a pattern that a layer could share.  layers.py has the same. */
static double element(int k, int64_t j) { return sin(0.7 * (double)j + 1.3 * k + 0.4); }

static tg_tensor *numbers(tg_shape shape, int k, double scale)
{
    static double value[65536];
    int64_t n = 1;
    for (int i = 0; i < shape.ndim; ++i) n *= shape.dim[i];
    if (n > (int64_t)(sizeof value / sizeof value[0])) abort(); /* a row that is too large */
    for (int64_t j = 0; j < n; ++j) value[j] = scale * element(k, j);
    return tg_from_on(value, shape, TG_F64, HERE);
}

/* The sum of t, each element times a weight. */
static double weighed(tg_tensor *t, int k)
{
    return tg_item(tg_sum(tg_mul(tg_to_dtype(tg_detach(t), TG_F64), numbers(tg_shape_of(t), k, 1))));
}

/* Input k from its text, "f:5,4", "i:7<10", "b:3,3" or "n:3,5,2"; *text moves to the next. */
static tg_tensor *read_input(const char **text, int k)
{
    const char kind = **text;
    const char *p = *text + 2;
    tg_shape shape = tg_make_shape(0, NULL);
    int most = 2;
    for (; *p >= '0' && *p <= '9'; p += *p == ',') {
        char *end;
        shape.dim[shape.ndim++] = strtol(p, &end, 10);
        p = end;
    }
    if (*p == '<') {
        char *end;
        most = (int)strtol(p + 1, &end, 10);
        p = end;
    }
    *text = *p == ' ' ? p + 1 : p;
    if (kind == 'n') return tg_from_on(shape.dim, TG_SHAPE(shape.ndim), TG_I64, HERE);
    tg_tensor *t = numbers(shape, 100 + k, 1);
    if (kind == 'f') return tg_set_requires_grad(t, true);
    /* (x + 1) / 2 * most, rounded down */
    t = tg_to_dtype(tg_floor(tg_mul_scalar(tg_add_scalar(t, 1), 0.5 * most)), TG_I64);
    return kind == 'b' ? tg_eq_scalar(t, 1) : t;
}

enum { MOST_INPUTS = 6, MOST_OUTPUTS = 4 };

/* The parameters and buffers of m as "weight[3,4] bias[3]", in the order of the tree. */
static void describe(tg_module *m, const char *prefix, char *text, size_t size)
{
    tg_module *child;
    tg_tensor *t;
    const char *name;
    for (int i = 0; (name = inside_member(m, i, &child, &t)) != NULL; ++i) {
        char path[200];
        size_t used = strlen(text);
        snprintf(path, sizeof path, "%s%s%s", prefix, *prefix ? "." : "", name);
        if (child) {
            describe(child, path, text, size);
            continue;
        }
        used += (size_t)snprintf(text + used, size - used, "%s%s[", used ? " " : "", path);
        for (int k = 0; k < tg_ndim(t); ++k)
            used += (size_t)snprintf(text + used, size - used, k ? ",%lld" : "%lld", (long long)tg_shape_of(t).dim[k]);
        snprintf(text + used, size - used, "]");
    }
}

/* Fills the parameters with numbers. */
static void fill_parameters(tg_module *m)
{
    TG_NO_GRAD;
    const int n = tg_module_count(m);
    for (int i = 0; i < n; ++i) tg_copy_(tg_module_params(m)[i], numbers(tg_shape_of(tg_module_params(m)[i]), i, 0.5));
}

/* The sum of the outputs, each element times a weight; fills in out. */
static tg_tensor *loss_of(tg_module *m, tg_tensor *const *in, int n, tg_tensor **out, int outputs)
{
    tg_tensor *loss = NULL;
    if (tg_forward_n(m, in, n, out, outputs) != TG_OK) return NULL;
    for (int i = 0; i < outputs; ++i) {
        tg_tensor *sum = tg_sum(tg_mul(out[i], numbers(tg_shape_of(out[i]), 200 + i, 1)));
        loss = loss ? tg_add(loss, sum) : sum;
    }
    return loss;
}

static void check_row(const char *name, tg_module *m, const char *inputs, int outputs, const char *repr,
                      const char *members, double y_wanted, double g_wanted)
{
    tg_tensor *in[MOST_INPUTS], *out[MOST_OUTPUTS], *loss;
    int n = 0;
    double y = 0, g = 0;
    char text[4096] = "";
    harness.sample = name;
    if (!CHECK(m != NULL)) return;
    TG_SCOPE;
    describe(m, "", text, sizeof text);
    if (!CHECK(strcmp(text, members) == 0)) printf("    %s\n", text);
    if (*repr) {
        FILE *file = tmpfile();
        CHECK(file && tg_module_print(file, m) == TG_OK && strncmp(text_of(file), repr, strlen(repr)) == 0);
    }
    fill_parameters(m);
    while (*inputs) in[n] = read_input(&inputs, n), n++;
    loss = loss_of(m, in, n, out, outputs);
    CHECK(loss != NULL);
    for (int i = 0; tg_ok() && i < outputs; ++i) y += weighed(out[i], 200 + i);
    CHECK_NEAR(y, y_wanted, 1e-9);
    if (loss && tg_requires_grad(loss)) CHECK(tg_backward(loss) == TG_OK);
    for (int i = 0; i < tg_module_count(m); ++i) {
        tg_tensor *grad = tg_grad(tg_module_params(m)[i]);
        if (grad) g += weighed(grad, 300 + i);
    }
    for (int i = 0; i < n; ++i) {
        tg_tensor *grad = tg_grad(in[i]);
        if (grad) g += weighed(grad, 400 + i);
    }
    CHECK_NEAR(g, g_wanted, 1e-9);
    tg_module_free(m);
}

TEST(rows)
{
    tg_set_default_dtype(TG_F64);
#define LAYER(torch, ours, inputs, outputs, repr, members, y, g) \
    check_row(torch, ours, inputs, outputs, repr, members, y, g);
#include "layers.h"
#undef LAYER
    tg_set_default_dtype(TG_F32);
}

/* ---- the judge: the same weights and inputs from files, and ten steps of training ---- */

/* Row `row` with the weights of FOLDER/row.safetensors and the inputs of FOLDER/row.inputs.safetensors.  Outputs,
   gradients, and the parameters and buffers after ten steps of SGD go to FOLDER/row.result.safetensors; layers.py compares
   them with PyTorch's. */
static void judge_row(const char *folder, int row, const char *name, tg_module *m, int outputs)
{
    char path[1200], key[300];
    tg_tensor *in[MOST_INPUTS], *out[MOST_OUTPUTS];
    tg_dict *inputs, *result = tg_dict_new(), *state;
    int n = 0;
    harness.sample = name;
    TG_SCOPE;
    snprintf(path, sizeof path, "%s/%d.safetensors", folder, row);
    CHECK(tg_module_load(m, path) == TG_OK);
    snprintf(path, sizeof path, "%s/%d.inputs.safetensors", folder, row);
    inputs = tg_safetensors_load(path);
    for (; inputs && n < tg_dict_count(inputs) && n < MOST_INPUTS; ++n) {
        snprintf(key, sizeof key, "%d", n);
        in[n] = tg_to(tg_dict_get(inputs, key), HERE);
        if (tg_is_floating_point(tg_dtype_of(in[n]))) tg_set_requires_grad(in[n], true);
    }
    const int params = tg_module_count(m);
    tg_optim *opt = params ? tg_sgd(tg_module_params(m), params, 0.01) : NULL;
    if (opt) opt->momentum = 0.9;
    for (int step = 0; step < (opt ? 10 : 1) && tg_ok(); ++step) {
        TG_SCOPE;
        tg_tensor *loss = loss_of(m, in, n, out, outputs);
        tg_module_zero_grad(m);
        if (loss && tg_requires_grad(loss)) CHECK(tg_backward(loss) == TG_OK);
        for (int i = 0; step == 0 && i < outputs; ++i) {
            snprintf(key, sizeof key, "output.%d", i);
            tg_dict_set(result, key, tg_keep(tg_clone(tg_detach(out[i]))));
        }
        for (int i = 0; step == 0 && i < n; ++i) {
            snprintf(key, sizeof key, "gradient of input.%d", i);
            if (tg_grad(in[i])) tg_dict_set(result, key, tg_keep(tg_clone(tg_grad(in[i]))));
        }
        for (int i = 0; step == 0 && i < params; ++i) {
            snprintf(key, sizeof key, "gradient of %s", tg_module_path(m, i));
            if (tg_grad(tg_module_params(m)[i]))
                tg_dict_set(result, key, tg_keep(tg_clone(tg_grad(tg_module_params(m)[i]))));
        }
        if (opt) CHECK(tg_step(opt) == TG_OK);
    }
    state = tg_module_state(m);
    for (int i = 0; state && i < tg_dict_count(state); ++i) {
        snprintf(key, sizeof key, "after ten steps %s", tg_dict_name(state, i));
        tg_dict_set(result, key, tg_dict_get(state, tg_dict_name(state, i)));
    }
    snprintf(path, sizeof path, "%s/%d.result.safetensors", folder, row);
    CHECK(tg_safetensors_save(path, result) == TG_OK);
    tg_dict_free(state), tg_dict_free(inputs), tg_dict_free(result);
    tg_optim_free(opt), tg_module_free(m);
}

static int judge(const char *folder)
{
    int row = 0;
    harness.test = "judge";
    tg_set_default_dtype(TG_F64);
#define LAYER(torch, ours, inputs, outputs, repr, members, y, g) judge_row(folder, row++, torch, ours, outputs);
#include "layers.h"
#undef LAYER
    return harness_end();
}

/* ---- out of memory: a layer is made and run, or nothing of it is left ---- */

/* ours is evaluated with little memory left, so each row is a function. */
static bool run_row(tg_module *m, const char *inputs, int outputs)
{
    tg_tensor *in[MOST_INPUTS], *out[MOST_OUTPUTS];
    int n = 0;
    bool ok = m != NULL;
    for (; *inputs; ++n) ok = (in[n] = read_input(&inputs, n)) != NULL && ok;
    ok = ok && tg_forward_n(m, in, n, out, outputs) == TG_OK;
    for (int i = 0; !ok && m && n && i < outputs && in[0]; ++i) ok = false;
    tg_module_free(m);
    return ok && tg_ok();
}

static int oom_row; /* the row that out_of_memory runs */
static bool oom_scenario(void)
{
    int row = 0;
    tg_set_default_dtype(TG_F64);
#define LAYER(torch, ours, inputs, outputs, repr, members, y, g) \
    if (row++ == oom_row) return run_row(ours, inputs, outputs);
#include "layers.h"
#undef LAYER
    return true;
}

static int count_rows(void)
{
    int n = 0;
#define LAYER(torch, ours, inputs, outputs, repr, members, y, g) ++n;
#include "layers.h"
#undef LAYER
    return n;
}

/* ---- initialisation ---- */

/* What is copied into a module without numbers is what it has then. */
static void check_skipped(const char *name, tg_module *skipped, tg_module *drawn)
{
    harness.sample = name;
    if (CHECK(skipped && drawn) && CHECK(tg_module_copy_(skipped, drawn) == TG_OK)) {
        for (int i = 0; i < tg_module_count(drawn); ++i)
            CHECK(tg_equal(tg_module_params(skipped)[i], tg_module_params(drawn)[i]));
    }
    tg_module_free(skipped), tg_module_free(drawn);
    harness.sample = NULL;
}

/* m, which was made while nothing was to be drawn. */
static tg_module *without_numbers(tg_module *m, tg_rng rng)
{
    CHECK(tg_rng_state().seed == rng.seed && tg_rng_state().offset == rng.offset);
    tg_set_skip_init(false);
    return m;
}

/* No layer draws a number under TG_SKIP_INIT, and each can be filled from another one. */
TEST(rows_without_random_numbers)
{
    tg_set_default_dtype(TG_F64);
    const tg_rng rng = tg_rng_state();
    tg_module *m;
#define LAYER(torch, ours, inputs, outputs, repr, members, y, g) \
    tg_set_skip_init(true);                                      \
    tg_rng_set_state(rng);                                       \
    m = without_numbers(ours, rng);                              \
    check_skipped(torch, m, ours);
#include "layers.h"
#undef LAYER
    tg_set_default_dtype(TG_F32);
}

static double largest(tg_tensor *t) { return tg_item(tg_amax(tg_abs(tg_detach(t)))); }

TEST(default_initialisation)
{
    tg_module *m = tg_nn_linear(100, 200, true);
    CHECK(largest(tg_module_get(m, "weight")) <= 0.1 && largest(tg_module_get(m, "weight")) > 0.0999);
    CHECK(largest(tg_module_get(m, "bias")) <= 0.1 && largest(tg_module_get(m, "bias")) > 0.09);
    CHECK_NEAR(tg_item(tg_std(tg_detach(tg_module_get(m, "weight")))), 0.1 / sqrt(3.0), 1e-3);
    tg_module_free(m);
    m = tg_nn_bilinear(25, 10, 50, true);
    CHECK(largest(tg_module_get(m, "weight")) <= 0.2 && largest(tg_module_get(m, "weight")) > 0.199);
    tg_module_free(m);
    m = tg_nn_conv2d(8, 60, TG_SHAPE(5), TG_SHAPE(1), TG_VALID, TG_SHAPE(1), 2, true); /* 4 * 5 * 5 */
    CHECK(largest(tg_module_get(m, "weight")) <= 0.1 && largest(tg_module_get(m, "weight")) > 0.099);
    CHECK(largest(tg_module_get(m, "bias")) <= 0.1 && largest(tg_module_get(m, "bias")) > 0.08);
    tg_module_free(m);
    m = tg_nn_conv_transpose1d(60, 8, TG_SHAPE(25), TG_SHAPE(1), TG_SHAPE(0), TG_SHAPE(0), 2, true, TG_SHAPE(1));
    CHECK(largest(tg_module_get(m, "weight")) <= 0.1 && largest(tg_module_get(m, "weight")) > 0.099);
    tg_module_free(m);
    m = tg_nn_embedding_ex(100, 50, -1);
    CHECK_NEAR(tg_item(tg_std(tg_detach(tg_module_get(m, "weight")))), 1, 0.05);
    CHECK(largest(tg_select(tg_module_get(m, "weight"), 0, 99)) == 0);
    tg_module_free(m);
    m = tg_nn_layer_norm(TG_SHAPE(3), 1e-5, true);
    HAS(tg_module_get(m, "weight"), "[1, 1, 1]");
    HAS(tg_module_get(m, "bias"), "[0, 0, 0]");
    tg_module_free(m);
}

TEST(the_seed_decides)
{
    tg_module *a, *b;
    tg_seed(5);
    a = tg_nn_linear(4, 3, true);
    tg_rng after = tg_rng_state();
    tg_seed(5);
    CHECK_FAILS(tg_nn_embedding_ex(4, 3, 9), "padding_idx 9 must be within num_embeddings 4");
    b = tg_nn_linear(4, 3, true); /* the call that failed used no random numbers */
    CHECK(tg_equal(tg_module_get(a, "weight"), tg_module_get(b, "weight")) && tg_rng_state().offset == after.offset);
    CHECK(tg_equal(tg_module_get(a, "bias"), tg_module_get(b, "bias")));
    tg_module_free(a), tg_module_free(b);
}

/* ---- modes ---- */

TEST(dropout_asks_for_the_mode)
{
    tg_module *m = tg_nn_dropout(0.5), *channels = tg_nn_dropout2d(0.5);
    tg_tensor *x = tg_ones(TG_SHAPE(8, 16, 4, 4)), *y = tg_forward(m, x), *per_channel;
    CHECK_NEAR(tg_item(tg_mean(tg_to_dtype(tg_eq_scalar(y, 0), TG_F32))), 0.5, 0.05);
    CHECK(tg_item(tg_amax(y)) == 2);
    y = tg_forward(channels, x);
    per_channel = tg_mean_dims(y, TG_DIMS(2, 3), false); /* 0 or 2: all elements of a channel or none */
    CHECK(tg_item(tg_sum(tg_mul(per_channel, tg_sub_scalar(per_channel, 2)))) == 0);
    CHECK(tg_item(tg_sum(per_channel)) > 0 && tg_item(tg_amin(per_channel)) == 0);
    CHECK(tg_forward(tg_module_train(m, false), x) == x && tg_forward(tg_module_train(channels, false), x) == x);
    CHECK_FAILS(tg_forward(channels, tg_ones(TG_SHAPE(3, 3))), "expected 3 or 4 dims");
    tg_module_free(m), tg_module_free(channels);
    m = tg_nn_dropout1d(0.5);
    y = tg_forward(m, tg_ones(TG_SHAPE(64, 5)));
    CHECK(tg_equal(tg_select(y, 1, 0), tg_select(y, 1, 4)));
    tg_module_free(m);
}

static double batches(tg_module *m) { return tg_item(tg_module_get(m, "num_batches_tracked")); }

TEST(batch_norm_keeps_statistics)
{
    tg_set_default_dtype(TG_F64);
    tg_tensor *x = f64("[[1, 2], [4, -1], [0, 3]]"), *trained;
    tg_module *m = tg_nn_batch_norm(2, 1e-5, 0.1), *mean_of_all = tg_nn_batch_norm_ex(2, 1e-5, NAN, true, true);
    tg_module *instance = tg_nn_instance_norm_ex(2, 1e-5, -1, false, true);
    trained = tg_forward(m, x);
    HAS(trained, "[[-0.39223159141459, 0.39223159141459], [1.37281056995105, -1.37281056995105], "
                 "[-0.98057897853646, 0.98057897853646]]");
    HAS(tg_module_get(m, "running_mean"), "[0.166666666666667, 0.133333333333333]");
    HAS(tg_module_get(m, "running_var"), "[1.33333333333333, 1.33333333333333]");
    CHECK(batches(m) == 1 && tg_dtype_of(tg_module_get(m, "num_batches_tracked")) == TG_I64);
    tg_module_train(m, false);
    HAS(tg_forward(m, x), "[[0.72168513017287, 1.61657469158723], [3.31975159879519, -0.98149177703510], "
                          "[-0.14433702603457, 2.48259684779467]]");
    CHECK(batches(m) == 1 && tg_version_of(tg_module_get(m, "running_mean")) == 1); /* evaluation writes nothing */
    tg_module_train(m, true);
    CHECK_FAILS(tg_forward(m, tg_ones(TG_SHAPE(1, 2))), "Expected more than 1 value per channel when training");
    CHECK_FAILS(tg_forward(m, tg_ones(TG_SHAPE(4, 3))), "running_mean should contain 3 elements not 2");
    CHECK(batches(m) == 1 && tg_version_of(tg_module_get(m, "running_mean")) == 1); /* nor does what fails */
    CHECK(tg_forward(mean_of_all, x) && tg_forward(mean_of_all, tg_mul_scalar(x, 2)));
    HAS(tg_module_get(mean_of_all, "running_mean"), "[2.5, 2]");
    HAS(tg_module_get(mean_of_all, "running_var"), "[10.8333333333333, 10.8333333333333]");
    CHECK(batches(mean_of_all) == 2);
    CHECK(tg_module_to_dtype(m, TG_BF16) == m && tg_dtype_of(tg_module_get(m, "running_var")) == TG_BF16);
    CHECK(tg_dtype_of(tg_forward(m, tg_to_dtype(x, TG_BF16))) == TG_BF16 && batches(m) == 2);
    CHECK(tg_forward(instance, tg_unsqueeze(tg_t(x), 0)) && batches(instance) == 0);
    HAS(tg_module_get(instance, "running_var"), "[1, 1]");
    tg_module_free(m), tg_module_free(mean_of_all), tg_module_free(instance);
    tg_set_default_dtype(TG_F32);
}

/* Norms of bf16 and f16 are computed in f32, a set of runs at once if it is small, else run by run: y and dx are those of
   the same numbers in f32, rounded. */
TEST(norms_of_halves)
{
    for (int i = 0; i < 8; ++i) {
        const tg_dtype dtype = i % 2 ? TG_F16 : TG_BF16;
        const int64_t length = i / 2 % 2 ? 4000 : 70;
        const bool groups = i / 4;
        TG_SCOPE;
        tg_tensor *x[2], *y[2], *dx[2], *w = tg_rand(TG_SHAPE(4));
        tg_tensor *g = tg_to_dtype(tg_to_dtype(tg_randn(TG_SHAPE(5, 4, length)), dtype), TG_F32);
        x[0] = tg_to_dtype(tg_to_dtype(tg_randn(TG_SHAPE(5, 4, length)), dtype), TG_F32);
        x[1] = tg_to_dtype(x[0], dtype);
        w = tg_to_dtype(tg_to_dtype(w, dtype), TG_F32);
        for (int k = 0; k < 2; ++k) {
            tg_tensor *weight = tg_to_dtype(w, tg_dtype_of(x[k])), *leaf = tg_set_requires_grad(x[k], true);
            tg_tensor *bias = tg_zeros_like(weight); /* without one, several ops would compose the norm */
            y[k] = groups ? tg_group_norm(leaf, 2, weight, bias, 1e-5)
                          : tg_batch_norm(leaf, NULL, NULL, weight, bias, true, 0.1, 1e-5);
            CHECK(tg_backward(tg_sum(tg_mul(y[k], tg_to_dtype(g, tg_dtype_of(x[k]))))) == TG_OK);
            dx[k] = tg_to_dtype(tg_grad(x[k]), TG_F32), y[k] = tg_to_dtype(tg_detach(y[k]), TG_F32);
        }
        CHECK(tg_allclose(y[1], y[0], 0.01, 0.01) && tg_allclose(dx[1], dx[0], 0.01, 0.01));
    }
}

/* Halves in [samples, channels], by statistics of the batch and by running ones: y and the gradients are those of the
   same numbers in f32, rounded. */
TEST(norms_of_halves_in_columns)
{
    static const int64_t size[][2] = {{70, 40}, {3, 16}, {2, 100}, {33, 15}};
    for (int i = 0; i < 16; ++i) {
        const tg_dtype dtype = i % 2 ? TG_F16 : TG_BF16;
        const int64_t samples = size[i / 4][0], channels = size[i / 4][1];
        const bool training = i / 2 % 2, composed = channels < 16; /* by several ops, which round otherwise */
        TG_SCOPE;
        tg_tensor *mean = tg_randn(TG_SHAPE(channels)), *var = tg_rand(TG_SHAPE(channels)), *in[3], *d[2][4];
        in[0] = tg_add_scalar(tg_randn(TG_SHAPE(samples, channels)), 2);
        in[1] = tg_rand(TG_SHAPE(channels)), in[2] = tg_randn(TG_SHAPE(channels));
        tg_tensor *g = tg_to_dtype(tg_randn(TG_SHAPE(samples, channels)), dtype);
        for (int k = 0; k < 2; ++k) {
            tg_tensor *leaf[3];
            for (int j = 0; j < 3; ++j) {
                tg_tensor *t = tg_to_dtype(in[j], dtype);
                leaf[j] = tg_set_requires_grad(k ? t : tg_to_dtype(t, TG_F32), true);
            }
            tg_tensor *y = tg_batch_norm(leaf[0], tg_clone(mean), tg_clone(var), leaf[1], leaf[2], training, 0.1, 1e-5);
            CHECK(tg_backward(tg_sum(tg_mul(y, tg_to_dtype(g, tg_dtype_of(y))))) == TG_OK);
            d[k][3] = tg_to_dtype(tg_detach(y), dtype);
            for (int j = 0; j < 3; ++j) d[k][j] = tg_to_dtype(tg_grad(leaf[j]), dtype);
        }
        for (int j = 0; j < 4; ++j)
            CHECK(composed ? tg_allclose(d[1][j], d[0][j], 0.02, 0.02) : tg_equal(d[1][j], d[0][j]));
    }
}

/* By running statistics, in blocks of rows that end in the middle of one, and in rows that are longer than a block,
   beside the formula in f64. */
TEST(norms_by_running_statistics)
{
    static const int64_t size[][3] = {{70, 40, 1},  {3, 16, 1},   {600, 33, 1},   {2, 2100, 1},
                                      {9, 3, 8},    {40, 3, 70},  {2, 5, 1025},   {1, 2, 4100}};
    static const tg_dtype dtypes[] = {TG_F32, TG_F64, TG_BF16, TG_F16};
    static const double bounds[] = {1e-5, 1e-13, 8e-3, 1e-3};
    for (int i = 0; i < 32; ++i) {
        TG_SCOPE;
        const int64_t *const s = size[i / 4];
        const tg_dtype dtype = dtypes[i % 4];
        const tg_shape channels = TG_SHAPE(s[1]), each = TG_SHAPE(1, s[1], 1);
        tg_tensor *x = tg_to_dtype(tg_add_scalar(tg_randn(TG_SHAPE(s[0], s[1], s[2])), 2), dtype), *t[4];
        for (int k = 0; k < 4; ++k) {
            t[k] = tg_to_dtype(k % 2 ? tg_add_scalar(tg_rand(channels), 0.5) : tg_randn(channels), dtype);
            if (k < 2) t[k] = tg_to_dtype(t[k], dtype == TG_F64 ? TG_F64 : TG_F32); /* the mean, the variance */
        }
        tg_tensor *y = tg_batch_norm(s[2] == 1 ? tg_view(x, TG_SHAPE(s[0], s[1])) : x, t[0], t[1], t[2], t[3], false, 0,
                                     1e-5);
        tg_tensor *wanted = tg_to_dtype(x, TG_F64);
        for (int k = 0; k < 4; ++k) t[k] = tg_view(tg_to_dtype(t[k], TG_F64), each);
        wanted = tg_mul(tg_sub(wanted, t[0]), tg_rsqrt(tg_add_scalar(t[1], 1e-5)));
        wanted = tg_add(tg_mul(wanted, t[2]), t[3]);
        y = tg_reshape(tg_to_dtype(y, TG_F64), tg_shape_of(wanted));
        CHECK(tg_allclose(y, wanted, bounds[i % 4], bounds[i % 4]));
    }
}

/* [samples, channels, length] in groups, whose runs lie side by side and are one for the sums, beside the formula. */
TEST(norms_of_groups_in_one_run)
{
    static const int64_t size[][4] = {{3, 8, 64, 2}, {2, 6, 9, 3}, {2, 4, 3000, 1}, {1, 5, 33, 5}};
    for (int i = 0; i < 8; ++i) {
        TG_SCOPE;
        const int64_t *const s = size[i / 2];
        const tg_shape shape = TG_SHAPE(s[0], s[1], s[2]), sets = TG_SHAPE(s[0], s[3], s[1] / s[3] * s[2]);
        tg_tensor *x = tg_to_dtype(tg_add_scalar(tg_randn(shape), 5), TG_F64), *w = tg_ones(TG_SHAPE(s[1]));
        tg_tensor *t = tg_reshape(x, sets), *away = tg_sub(t, tg_mean_dim(t, 2, true));
        tg_tensor *variance = tg_mean_dim(tg_square(away), 2, true);
        tg_tensor *wanted = tg_reshape(tg_mul(away, tg_rsqrt(tg_add_scalar(variance, 1e-5))), shape);
        if (i % 2) w = tg_to_dtype(w, TG_F64);
        else x = tg_to_dtype(x, TG_F32);
        tg_tensor *y = tg_group_norm(x, s[3], w, tg_zeros_like(w), 1e-5);
        CHECK(tg_allclose(tg_to_dtype(y, TG_F64), wanted, i % 2 ? 1e-11 : 1e-4, i % 2 ? 1e-11 : 1e-4));
    }
}

/* [samples, 3, length] of f32 and f64, whose runs are rows of one set, beside the formula in f64. */
TEST(batch_norms_of_short_runs)
{
    static const int64_t size[][2] = {{70, 8}, {5, 16}, {65, 32}, {9, 40}, {33, 64}, {2, 100}, {3, 2100}, {1, 4097}};
    for (int i = 0; i < 16; ++i) {
        TG_SCOPE;
        const tg_dtype dtype = i % 2 ? TG_F64 : TG_F32;
        const double bound = i % 2 ? 1e-11 : 1e-4;
        const tg_shape shape = TG_SHAPE(size[i / 2][0], 3, size[i / 2][1]), each = TG_SHAPE(1, 3, 1);
        tg_tensor *x[2], *w[2], *y[2], *g = tg_to_dtype(tg_randn(shape), TG_F64);
        x[0] = tg_add_scalar(tg_randn(shape), 3), w[0] = tg_rand(TG_SHAPE(3));
        x[1] = tg_set_requires_grad(tg_to_dtype(x[0], TG_F64), true), w[1] = tg_to_dtype(w[0], TG_F64);
        x[0] = tg_set_requires_grad(tg_to_dtype(x[0], dtype), true), w[0] = tg_to_dtype(w[0], dtype);
        tg_set_requires_grad(w[0], true), tg_set_requires_grad(w[1], true);
        y[0] = tg_batch_norm(x[0], NULL, NULL, w[0], tg_zeros_like(w[0]), true, 0.1, 1e-5);
        tg_tensor *away = tg_sub(x[1], tg_mean_dims(x[1], TG_DIMS(0, 2), true));
        tg_tensor *deviation = tg_sqrt(tg_add_scalar(tg_mean_dims(tg_mul(away, away), TG_DIMS(0, 2), true), 1e-5));
        y[1] = tg_mul(tg_div(away, deviation), tg_view(w[1], each));
        for (int k = 0; k < 2; ++k)
            CHECK(tg_backward(tg_sum(tg_mul(y[k], tg_to_dtype(g, tg_dtype_of(x[k]))))) == TG_OK);
        CHECK(tg_allclose(tg_to_dtype(tg_detach(y[0]), TG_F64), tg_detach(y[1]), bound, bound));
        CHECK(tg_allclose(tg_to_dtype(tg_grad(x[0]), TG_F64), tg_grad(x[1]), bound, bound));
        CHECK(tg_allclose(tg_to_dtype(tg_grad(w[0]), TG_F64), tg_grad(w[1]), 10 * bound, 10 * bound));
    }
}

/* The columns of a large x are copied before they are added up: results are those of a part of them, which is not. */
TEST(batch_norms_of_large_rows)
{
    enum { SAMPLES = 300, CHANNELS = 1003, LAST = 75 };
    for (int i = 0; i < 2; ++i) {
        TG_SCOPE;
        const tg_dtype dtype = i ? TG_F64 : TG_F32;
        tg_tensor *x[2], *g[2], *y[2], *w = tg_to_dtype(tg_rand(TG_SHAPE(CHANNELS)), dtype);
        x[0] = tg_to_dtype(tg_randn(TG_SHAPE(SAMPLES, CHANNELS)), dtype);
        g[0] = tg_randn_like(x[0]);
        x[1] = tg_clone(tg_narrow(x[0], 1, CHANNELS - LAST, LAST)), g[1] = tg_narrow(g[0], 1, CHANNELS - LAST, LAST);
        for (int k = 0; k < 2; ++k) {
            tg_tensor *leaf = tg_set_requires_grad(x[k], true);
            tg_tensor *weight = k ? tg_narrow(w, 0, CHANNELS - LAST, LAST) : w;
            y[k] = tg_batch_norm(leaf, NULL, NULL, weight, tg_zeros_like(weight), true, 0.1, 1e-5);
            CHECK(tg_backward(tg_sum(tg_mul(y[k], g[k]))) == TG_OK);
        }
        CHECK(tg_equal(tg_narrow(y[0], 1, CHANNELS - LAST, LAST), y[1]));
        CHECK(tg_equal(tg_narrow(tg_grad(x[0]), 1, CHANNELS - LAST, LAST), tg_grad(x[1])));
    }
}

/* A batch norm in the middle of a network: what backward needs is not what the next forward writes. */
TEST(batch_norm_between_backwards)
{
    tg_module *m = in_sequence(tg_nn_linear(3, 4, true), tg_nn_batch_norm(4, 1e-5, 0.1), tg_nn_hardsigmoid());
    tg_tensor *x = tg_randn(TG_SHAPE(6, 3)), *first = tg_sum(tg_forward(m, x)), *second;
    x = tg_randn(TG_SHAPE(6, 3));
    second = tg_sum(tg_forward(m, x));
    CHECK(tg_backward(first) == TG_OK && tg_backward(second) == TG_OK);
    tg_module_train(m, false);
    first = tg_sum(tg_forward(m, x));
    tg_module_train(m, true);
    CHECK(tg_forward(m, x) && tg_ok());
    CHECK_FAILS(tg_backward(first), "modified by an inplace operation"); /* as in PyTorch: it used the running ones */
    tg_module_free(m);
}

/* ---- containers ---- */

TEST(containers)
{
    static const char *const names[] = {"first", "second"};
    tg_module *list[3], *m;
    list[0] = tg_nn_linear(2, 3, true), list[1] = tg_nn_relu();
    m = tg_nn_list(list, 2);
    CHECK(tg_module_child_count(m) == 2 && tg_module_get_child(m, "1") == list[1] && tg_module_count(m) == 2);
    CHECK_FAILS(tg_forward(m, tg_ones(TG_SHAPE(2))), "'ModuleList' has no forward");
    tg_module_free(m);
    list[0] = tg_nn_linear(2, 3, true), list[1] = tg_nn_relu();
    m = tg_nn_dict(names, list, 2);
    CHECK(tg_module_get_child(m, "first") == list[0] && tg_module_get(m, "first.weight") != NULL);
    tg_module_free(m);
    m = tg_nn_sequential(NULL, 0); /* gives back its input */
    tg_tensor *x = tg_ones(TG_SHAPE(2));
    CHECK(tg_forward(m, x) == x);
    tg_module_free(m);
    /* what was given is freed on every error */
    list[0] = tg_nn_relu(), list[1] = NULL, list[2] = tg_nn_linear(2, 2, true);
    CHECK_FAILS(tg_nn_sequential(list, 3), "argument modules[1] is NULL");
    list[0] = tg_nn_relu(), list[1] = tg_nn_relu();
    CHECK_FAILS(tg_nn_dict(NULL, list, 2), "argument names is NULL");
    CHECK_FAILS(tg_nn_list(NULL, 2), "argument modules is NULL");
    CHECK_FAILS(tg_nn_list(NULL, -1), "-1 modules cannot be");
    list[0] = list[1] = tg_nn_relu();
    CHECK_FAILS(tg_nn_list(list, 2), "is the child of another module");
    list[0] = list[1] = tg_module_retain(tg_nn_relu());
    m = tg_nn_sequential(list, 2); /* one module in two places */
    CHECK(m && tg_module_child_at(m, 0) == tg_module_child_at(m, 1));
    tg_module_free(m);
}

/* ---- options by name ---- */

/* Whether the two, which end, print the same and have the same parameters, made with seeds that are equal. */
static bool is_the_same_layer(tg_module *a, tg_module *b)
{
    char text[4096];
    FILE *file = tmpfile();
    bool same = file && a && b && tg_module_print(file, a) == TG_OK && tg_module_count(a) == tg_module_count(b);
    if (same) snprintf(text, sizeof text, "%s", text_of(file));
    file = same ? tmpfile() : NULL;
    same = same && file && tg_module_print(file, b) == TG_OK && prints(file, text);
    for (int i = 0; same && i < tg_module_count(a); ++i)
        same = strcmp(tg_module_path(a, i), tg_module_path(b, i)) == 0 &&
               is_exactly(tg_module_params(a)[i], tg_module_params(b)[i]);
    tg_module_free(a);
    tg_module_free(b);
    return same;
}

/* The argument, made with the first random numbers */
#define FIRST(layer) (tg_seed(1), (layer))

TEST(options_by_name)
{
    const tg_shape one = TG_SHAPE(1), two = TG_SHAPE(2), none = TG_SHAPE(0);
    int64_t stride = 2;
    const struct { tg_module *named, *in_a_row; } pair[] = {
        {FIRST(TG_CONV1D(4, 6, 3)), FIRST(tg_nn_conv1d(4, 6, TG_SHAPE(3), one, none, one, 1, true))},
        {FIRST(TG_CONV2D(4, 6, 3, stride = stride, padding = 1, dilation = 2, groups = 2, no_bias = true)),
         FIRST(tg_nn_conv2d(4, 6, TG_SHAPE(3), two, one, two, 2, false))},
        {FIRST(TG_CONV2D(4, 6, 3, groups = 2, same = true)),
         FIRST(tg_nn_conv2d(4, 6, TG_SHAPE(3), one, TG_SAME, one, 2, true))},
        {FIRST(TG_CONV3D(4, 6, 2, padding = 1)), FIRST(tg_nn_conv3d(4, 6, two, one, one, one, 1, true))},
        {FIRST(TG_CONV_TRANSPOSE1D(4, 6, 3)),
         FIRST(tg_nn_conv_transpose1d(4, 6, TG_SHAPE(3), one, none, none, 1, true, one))},
        {FIRST(TG_CONV_TRANSPOSE2D(4, 6, 3, stride = 2, output_padding = 1, dilation = 2, no_bias = true)),
         FIRST(tg_nn_conv_transpose2d(4, 6, TG_SHAPE(3), two, none, one, 1, false, two))},
        {FIRST(TG_CONV_TRANSPOSE3D(4, 6, 2, groups = 2, padding = 1)),
         FIRST(tg_nn_conv_transpose3d(4, 6, two, one, one, none, 2, true, one))},
        {FIRST(TG_BATCH_NORM(5)), FIRST(tg_nn_batch_norm(5, 1e-5, 0.1))},
        {FIRST(TG_BATCH_NORM(5, eps = 1e-3, momentum = 0.2, no_affine = true, no_running_stats = true)),
         FIRST(tg_nn_batch_norm_ex(5, 1e-3, 0.2, false, false))},
        {FIRST(TG_INSTANCE_NORM(5)), FIRST(tg_nn_instance_norm(5, 1e-5))},
        {FIRST(TG_INSTANCE_NORM(5, track_running_stats = true, affine = true, momentum = 0.3, eps = 1e-4)),
         FIRST(tg_nn_instance_norm_ex(5, 1e-4, 0.3, true, true))},
        {FIRST(TG_GROUP_NORM(2, 6)), FIRST(tg_nn_group_norm(2, 6, 1e-5))},
        {FIRST(TG_GROUP_NORM(2, 6, eps = 1e-4, no_affine = true)), FIRST(tg_nn_group_norm_ex(2, 6, 1e-4, false))},
        {FIRST(TG_LAYER_NORM(6)), FIRST(tg_nn_layer_norm(TG_SHAPE(6), 1e-5, true))},
        {FIRST(TG_LAYER_NORM(6, eps = 1e-4, no_affine = true)), FIRST(tg_nn_layer_norm(TG_SHAPE(6), 1e-4, false))},
        {FIRST(TG_RNN(3, 4)), FIRST(tg_nn_rnn(3, 4, 1))},
        {FIRST(TG_RNN(3, 4, nonlinearity = "relu", layers = 2, no_bias = true, batch_first = true)),
         FIRST(tg_nn_rnn_ex(3, 4, 2, "relu", false, true, 0, false))},
        {FIRST(TG_LSTM(3, 4, layers = 2, dropout = 0.5)), FIRST(tg_nn_lstm_ex(3, 4, 2, true, false, 0.5, false))},
        {FIRST(TG_GRU(3, 4, bidirectional = true)), FIRST(tg_nn_gru_ex(3, 4, 1, true, false, 0, true))},
        {FIRST(TG_MULTIHEAD_ATTENTION(4, 2)), FIRST(tg_nn_multihead_attention(4, 2, true))},
        {FIRST(TG_MULTIHEAD_ATTENTION(4, 2, kdim = 3, vdim = 5, dropout = 0.1, no_bias = true)),
         FIRST(tg_nn_multihead_attention_ex(4, 2, 0.1, false, 3, 5))},
    };
    for (size_t i = 0; i < sizeof pair / sizeof pair[0]; ++i) CHECK(is_the_same_layer(pair[i].named, pair[i].in_a_row));

    tg_conv_options padded;
    memset(&padded, 0, sizeof padded);
    padded.kernel = 3, padded.output_padding = 1;
    CHECK_FAILS(tg_nn_conv_with(2, 1, 1, padded), "output_padding is no option of this layer");
    CHECK_FAILS(tg_nn_conv_with(4, 1, 1, padded), "dims is 4, but convolutions have 1, 2 or 3");
    CHECK_FAILS(tg_nn_conv_transpose_with(0, 1, 1, padded), "dims is 0, but convolutions have 1, 2 or 3");
    CHECK_FAILS(TG_CONV2D(1, 1, 3, same = true, padding = 1), "same is an option instead of padding, which is 1");
    CHECK_FAILS(TG_CONV_TRANSPOSE2D(1, 1, 3, same = true), "same is no option of this layer");
    CHECK_FAILS(TG_CONV1D(1, 1, 0), "tg_nn_conv1d: non-positive kernel_size is not supported");
    CHECK_FAILS(TG_CONV1D(3, 4, 1, groups = 2), "in_channels must be divisible by groups, but got 3 and 2");
    CHECK_FAILS(TG_LSTM(3, 4, nonlinearity = "relu"), "nonlinearity is no option of this layer");
    CHECK_FAILS(TG_GRU(3, 4, nonlinearity = "relu"), "nonlinearity is no option of this layer");
    CHECK_FAILS(TG_RNN(3, 4, nonlinearity = "sine"), "Unknown nonlinearity 'sine'");
    CHECK_FAILS(TG_BATCH_NORM(-3), "features is -3");

    /* The functions behind them, with structs that are not made by a macro. */
    tg_batch_norm_options batch;
    tg_instance_norm_options instance;
    tg_norm_options other;
    memset(&batch, 0, sizeof batch), memset(&instance, 0, sizeof instance), memset(&other, 0, sizeof other);
    batch.features = instance.features = other.size = 6;
    CHECK(is_the_same_layer(tg_nn_batch_norm_with(batch), TG_BATCH_NORM(6)));
    CHECK(is_the_same_layer(tg_nn_instance_norm_with(instance), TG_INSTANCE_NORM(6)));
    CHECK(is_the_same_layer(tg_nn_group_norm_with(3, other), TG_GROUP_NORM(3, 6)));
    CHECK(is_the_same_layer(tg_nn_layer_norm_with(other), TG_LAYER_NORM(6)));
    CHECK_FAILS(TG_GROUP_NORM(2, 3), "num_channels (3) must be divisible by num_groups (2)");
    CHECK_FAILS(TG_MULTIHEAD_ATTENTION(5, 2), "tg_nn_multihead_attention_ex: ");
}

/* y = fc(x) * scale + shift, of which x and shift are inputs */
typedef struct { tg_module *fc; tg_tensor *scale, *count; } scaled;

static void scaled_forward(tg_module *m, tg_tensor *const *in, int n, tg_tensor **out, int n_out)
{
    scaled *self = TG_MODULE_SELF(scaled, m);
    tg_tensor *y = tg_mul(tg_forward(self->fc, in[0]), self->scale);
    out[0] = n > 1 ? tg_add(y, in[1]) : y;
    if (n_out > 1) out[1] = y;
}

TEST(members_and_calls_in_one_line)
{
    tg_module *m = tg_module_new("Scaled", scaled_forward, sizeof(scaled));
    scaled *self = TG_MODULE_SELF(scaled, m);
    CHECK(TG_CHILD(m, self, fc, tg_nn_linear(3, 2, false)) == tg_module_get_child(m, "fc") && self->fc);
    CHECK(TG_PARAM(m, self, scale, tg_full(TG_SHAPE(2), 3)) == tg_module_get(m, "scale") && self->scale);
    CHECK(TG_BUFFER(m, self, count, tg_ones(TG_SHAPE(1))) == tg_module_get(m, "count") && self->count);
    tg_tensor *x = tg_ones(TG_SHAPE(3)), *shift = tg_full(TG_SHAPE(2), 0.5), *two[2];
    tg_tensor *y = tg_call(m, TG_LIST(x, shift));
    CHECK(tg_forward_n(m, TG_LIST(x, shift), two, 2) == TG_OK && is_exactly(y, two[0]));
    CHECK(is_exactly(tg_call(m, TG_LIST(x)), two[1]) && is_exactly(tg_forward(m, x), two[1]));
    CHECK_FAILS(tg_call(NULL, TG_LIST(x)), "tg_call: argument m is NULL");
    CHECK_FAILS(tg_call(m, NULL, 1), "tg_call: argument in is NULL");
    CHECK_FAILS(tg_call(m, TG_LIST(x, NULL)), "tg_call: argument in[1] is NULL");
    tg_optim *opt = tg_sgd(TG_PARAMS(m), 0.1);
    CHECK(opt && opt->count == 2);
    tg_optim_free(opt);
    tg_module_free(m);
    m = tg_nn_sequential(TG_MODULES(tg_nn_linear(3, 4, true), tg_nn_relu(), TG_CONV1D(1, 2, 3, padding = 1)));
    CHECK(tg_module_child_count(m) == 3 && strcmp(tg_module_name(tg_module_child_at(m, 2)), "Conv1d") == 0);
    tg_module_free(m);
    m = tg_nn_list(TG_MODULES(tg_nn_relu()));
    CHECK(tg_module_child_count(m) == 1);
    tg_module_free(m);
}

TEST(refusals)
{
    const tg_shape one = TG_SHAPE(1);
    tg_module *m = tg_nn_layer_norm(TG_SHAPE(3, 4), 1e-5, false);
    tg_tensor *two[2], *out[2];
    two[0] = two[1] = tg_ones(TG_SHAPE(3, 4));
    CHECK_FAILS(tg_forward(m, tg_ones(TG_SHAPE(4, 3))),
                "Given normalized_shape=[3, 4], expected input with shape [*, 3, 4]");
    CHECK_FAILS(tg_forward_n(m, two, 2, out, 1), "'LayerNorm' takes 1 to 1 inputs, not 2");
    CHECK_FAILS(tg_forward_n(m, two, 1, out, 2), "'LayerNorm' gives 1 to 1 outputs, not 2");
    CHECK_FAILS(tg_forward_n(m, two, 1, out, 0), "gives 1 to 1 outputs, not 0");
    tg_module_free(m);
    m = tg_nn_rms_norm(TG_SHAPE(4), 1e-6, false);
    CHECK_FAILS(tg_forward(m, tg_ones(TG_SHAPE(3))), "expected input with shape [*, 4]");
    tg_module_free(m);
    m = tg_nn_bilinear(2, 3, 4, true);
    two[0] = tg_ones(TG_SHAPE(5, 2)), two[1] = tg_ones(TG_SHAPE(4, 3));
    CHECK_FAILS(tg_forward_n(m, two, 2, out, 1), "do not fit weight [4, 2, 3]");
    tg_module_free(m);
    m = tg_nn_unflatten(3, TG_SHAPE(2, 2));
    CHECK_FAILS(tg_forward(m, tg_ones(TG_SHAPE(4))), "Dimension out of range");
    tg_module_free(m);
    m = tg_nn_unflatten(0, TG_SHAPE(1, 1, 1, 1, 1, 1, 2, 2));
    CHECK_FAILS(tg_forward(m, tg_ones(TG_SHAPE(4, 1))), "tg_forward: a tensor has at most 8 dims, not 9");
    tg_module_free(m);
    CHECK_FAILS(tg_nn_linear(-1, 2, true), "in is -1: a size cannot be negative");
    CHECK_FAILS(tg_nn_linear(1, -2, true), "out is -2");
    CHECK_FAILS(tg_nn_bilinear(1, -2, 3, true), "in2 is -2");
    CHECK_FAILS(tg_nn_embedding(-3, 2), "count is -3");
    CHECK_FAILS(tg_nn_layer_norm(TG_SCALAR, 1e-5, true), "at least one dim");
    CHECK_FAILS(tg_nn_batch_norm(-3, 1e-5, 0.1), "features is -3");
    CHECK_FAILS(tg_nn_group_norm(2, 3, 1e-5), "num_channels (3) must be divisible by num_groups (2)");
    CHECK_FAILS(tg_nn_group_norm(0, 3, 1e-5), "num_channels (3) must be divisible by num_groups (0)");
    CHECK_FAILS(tg_nn_group_norm_ex(2, -4, 1e-5, true), "channels is -4");
    CHECK_FAILS(tg_nn_prelu(-1, 0.25), "count is -1");
    CHECK_FAILS(tg_nn_max_pool2d(TG_SHAPE(1, 2, 3), TG_SCALAR, TG_SCALAR), "kernel_size must either be a single int");
    CHECK_FAILS(tg_nn_avg_pool1d(TG_SHAPE(2), TG_SHAPE(1, 2), TG_SCALAR), "stride must be omitted, a single int");
    CHECK_FAILS(tg_nn_max_pool1d(TG_SHAPE(2), TG_SCALAR, TG_SHAPE(1, 2)), "padding must be omitted, a single int");
    CHECK_FAILS(tg_nn_adaptive_avg_pool1d(TG_SHAPE(1, 2)), "output_size must be a single int, but got 2 numbers");
    CHECK_FAILS(tg_nn_conv1d(3, 4, one, one, one, one, 2, true),
                "in_channels must be divisible by groups, but got 3 and 2");
    CHECK_FAILS(tg_nn_conv2d(4, 3, one, one, one, one, 2, true), "out_channels must be divisible by groups");
    CHECK_FAILS(tg_nn_conv3d(4, 3, one, one, one, one, 0, true), "tg_nn_conv3d: groups must be a positive integer");
    CHECK_FAILS(tg_nn_conv2d(-4, 3, one, one, one, one, 1, true), "in is -4");
    CHECK_FAILS(tg_nn_conv2d(4, -3, one, one, one, one, 1, true), "out is -3");
    CHECK_FAILS(tg_nn_conv2d(4, 3, TG_SHAPE(1, 2, 3), one, one, one, 1, true),
                "expected kernel_size to be a single integer");
    CHECK_FAILS(tg_nn_conv1d(4, 3, TG_SHAPE(0), one, one, one, 1, true), "non-positive kernel_size is not supported");
    CHECK_FAILS(tg_nn_conv1d(4, 3, one, TG_SHAPE(2), TG_SAME, one, 1, true),
                "tg_nn_conv1d: padding='same' is not supported for strided convolutions");
    CHECK_FAILS(tg_nn_conv_transpose2d(4, 3, one, one, one, TG_SHAPE(-1), 1, true, one),
                "tg_nn_conv_transpose2d: negative output_padding is not supported");
    CHECK_FAILS(tg_nn_upsample(TG_SHAPE(2), 2, "nearest"), "only one of size or scale_factor should be defined");
    CHECK_FAILS(tg_nn_upsample(TG_SCALAR, 0, "nearest"), "only one of size or scale_factor should be defined");
    CHECK_FAILS(tg_nn_upsample(TG_SCALAR, 2, "cubic"), "mode is 'cubic', not nearest, linear, bilinear or trilinear");
    CHECK_FAILS(tg_nn_upsample(TG_SCALAR, 2, NULL), "argument mode is NULL");
    CHECK_FAILS(tg_nn_upsample(tg_make_shape(9, NULL), 0, "nearest"), "argument size");
    m = tg_nn_upsample(TG_SCALAR, INT64_MAX, "linear");
    CHECK_FAILS(tg_forward(m, tg_ones(TG_SHAPE(1, 1, 2))), "[1, 1, 9223372036854775807]");
    tg_module_free(m);
    CHECK_FAILS(tg_nn_dropout(1.5), "dropout probability has to be between 0 and 1, but got 1.5");
    CHECK_FAILS(tg_nn_dropout1d(-0.5), "but got -0.5");
}

int main(int argc, char **argv)
{
    const char *folder = argc == 3 && strcmp(argv[1], "--judge") == 0 ? argv[2] : NULL;
    harness_begin(folder ? 1 : argc, argv);
    harness_take_device();
    if (folder) return judge(folder);
    if (!harness.only && HERE.type == TG_DEV_CPU) { /* on a device each of the many runs would begin anew */
        const int n = count_rows();
        for (oom_row = 0; oom_row < n; ++oom_row) out_of_memory(oom_scenario);
    }
    RUN(rows);
    RUN(default_initialisation);
    RUN(rows_without_random_numbers);
    RUN(the_seed_decides);
    RUN(dropout_asks_for_the_mode);
    RUN(batch_norm_keeps_statistics);
    RUN(norms_of_halves);
    RUN(norms_of_halves_in_columns);
    RUN(norms_by_running_statistics);
    RUN(norms_of_groups_in_one_run);
    RUN(batch_norms_of_short_runs);
    RUN(batch_norms_of_large_rows);
    RUN(batch_norm_between_backwards);
    RUN(containers);
    RUN(options_by_name);
    RUN(members_and_calls_in_one_line);
    RUN(refusals);
    CHECK(tg_shutdown() == TG_OK);
    return harness_end();
}
