/* Modules that are changed: buffers that are not saved, children that are replaced or go, copies, forwards with other
 * parameters, averages, weight_norm, spectral_norm and LoRA.  The numbers are PyTorch 2.15's. */
#include "tensorgrad.h"
#include "helpers.h"

/* y = fc(x) * scale */
typedef struct {
    tg_tensor *scale;
    tg_module *fc, *list[2];
    double number;
} scaled;

static tg_tensor *scaled_forward(tg_module *m, tg_tensor *x)
{
    const scaled *self = (const scaled *)tg_module_self(m);
    return tg_mul(tg_forward(self->fc, x), self->scale);
}

static tg_module *linear_of(const char *weight, const char *bias)
{
    tg_tensor *w = f64(weight), *b = bias ? f64(bias) : NULL;
    tg_module *m = tg_nn_linear(tg_dim(w, 1), tg_dim(w, 0), bias != NULL);
    tg_module_to(tg_module_to_dtype(m, TG_F64), HERE);
    tg_copy_(tg_detach(tg_module_get(m, "weight")), w);
    if (b) tg_copy_(tg_detach(tg_module_get(m, "bias")), b);
    return m;
}

/* fc: y = [x0 + 2 x1, 3 x0 + 4 x1] + [1, -1]; scale [1, 2].  The children of `blocks` are kept in self, too. */
static tg_module *scaled_new(void)
{
    tg_module *m = tg_nn_module("Scaled", scaled_forward, sizeof(scaled)), *blocks;
    scaled *self = (scaled *)tg_module_self(m);
    if (!self) return NULL;
    self->number = 7;
    self->scale = tg_module_param(m, "scale", f64("[1, 2]"));
    self->fc = tg_module_child(m, "fc", linear_of("[[1, 2], [3, 4]]", "[1, -1]"));
    blocks = tg_module_child(m, "blocks", tg_nn_list(NULL, 0));
    self->list[0] = tg_module_child(blocks, "0", tg_nn_relu());
    self->list[1] = tg_module_child(blocks, "1", tg_nn_tanh());
    return m;
}

static scaled *self_of(tg_module *m) { return (scaled *)tg_module_self(m); }

/* ---- members ---- */

TEST(buffers_that_are_not_saved)
{
    tg_module *m = scaled_new(), *copy;
    tg_tensor *t = tg_module_buffer_ex(m, "mask", f64("[1, 2]"), false);
    tg_dict *state;
    CHECK(tg_module_buffer_ex(m, "kept", f64("[3]"), true) != NULL && tg_module_get(m, "mask") == t);
    state = tg_module_state(m);
    CHECK(tg_dict_get(state, "kept") != NULL && !tg_dict_get(state, "mask"));
    CHECK(tg_module_load_state(m, state, true) == TG_OK);
    tg_dict_free(state);
    CHECK(tg_module_to_dtype(m, TG_F32) == m && tg_dtype_of(t) == TG_F32); /* it moves */
    copy = tg_module_clone(m);
    HAS(tg_module_get(copy, "mask"), "[1, 2]");
    state = tg_module_state(copy);
    CHECK(!tg_dict_get(state, "mask"));
    tg_dict_free(state);
    tg_module_free(copy);
    CHECK_FAILS(tg_module_buffer_ex(m, "mask", f64("[1]"), false), "attribute 'mask' of 'Scaled' already exists");
    CHECK_FAILS(tg_module_buffer_ex(NULL, "a", f64("[1]"), false), "argument m is NULL");
    tg_module_free(m);
}

/* The names of a Hugging Face file, by paths alone: containers are made once, and stand in the order of their first
   use. */
TEST(paths_make_their_containers)
{
    static const char *const parts[] = {"attention.self.query", "attention.output.dense", "output.dense"};
    static const char *const wanted[] = {
        "bert.embeddings.word.weight", "bert.encoder.layer.0.attention.self.query.weight",
        "bert.encoder.layer.0.attention.output.dense.weight", "bert.encoder.layer.0.output.dense.weight",
        "bert.encoder.layer.1.attention.self.query.weight", "bert.encoder.layer.1.attention.output.dense.weight",
        "bert.encoder.layer.1.output.dense.weight", "head.weight"};
    tg_module *m = tg_module_new("Bert", NULL, 0), *last = NULL;
    const int64_t before = tg_stats().modules;
    CHECK(tg_module_add(m, "bert.embeddings.word", tg_nn_embedding(5, 2)) != NULL);
    for (int i = 0; i < 6; ++i) {
        char path[100];
        snprintf(path, sizeof path, "bert.encoder.layer.%d.%s", i / 3, parts[i % 3]);
        last = tg_nn_linear(2, 2, false);
        CHECK(tg_module_add(m, path, last) == last && tg_module_get_child(m, path) == last);
    }
    last = tg_nn_linear(2, 3, false);
    CHECK(tg_module_add(m, "head", last) == last); /* as tg_module_child */
    CHECK(tg_module_count(m) == 8 && tg_module_child_count(m) == 2);
    for (int i = 0; i < 8; ++i) CHECK(strcmp(tg_module_path(m, i), wanted[i]) == 0);
    tg_module *layers = tg_module_get_child(m, "bert.encoder.layer");
    CHECK(tg_module_child_count(layers) == 2 && strcmp(tg_module_name(layers), "Module") == 0);
    CHECK(tg_stats().modules == before + 8 + 14); /* bert, embeddings, encoder, layer, and 5 in each of two layers */
    CHECK_FAILS(tg_forward(layers, tg_ones(TG_SHAPE(1))), "Module");
    tg_module_free(m);
}

/* What fails leaves the module as it was, and frees the child. */
TEST(paths_in_vain)
{
    char name[150] = "a.", deep[200] = "";
    tg_module *m = scaled_new(), *list = tg_module_get_child(m, "blocks"), *held = tg_nn_relu(), *other;
    const int64_t before = tg_stats().modules;
    CHECK_FAILS(tg_module_add(m, "fc", tg_nn_relu()), "tg_module_add: attribute 'fc' of 'Scaled' already exists");
    CHECK_FAILS(tg_module_add(m, "fc.weight.x", tg_nn_relu()), "'weight' of 'Linear' is a tensor and not a child");
    CHECK_FAILS(tg_module_add(m, "a.b..c", tg_nn_relu()), "module name can't be empty string");
    CHECK_FAILS(tg_module_add(m, "a.b.", tg_nn_relu()), "module name can't be empty string");
    CHECK_FAILS(tg_module_add(m, ".a", tg_nn_relu()), "module name can't be empty string");
    CHECK_FAILS(tg_module_add(m, "", tg_nn_relu()), "module name can't be empty string");
    memset(name + 2, 'x', 101);
    CHECK_FAILS(tg_module_add(m, name, tg_nn_relu()), "a module name has at most 100 bytes");
    CHECK_FAILS(tg_module_add(m, name + 2, tg_nn_relu()), "a module name has at most 100 bytes");
    strcat(name, ".c");
    CHECK_FAILS(tg_module_add(m, name, tg_nn_relu()), "a module name has at most 100 bytes");
    for (int i = 0; i < 40; ++i) strcat(deep, i ? ".d" : "d");
    CHECK_FAILS(tg_module_add(m, deep, tg_nn_relu()), "nested deeper than 32");
    CHECK_FAILS(tg_module_add(m, NULL, tg_nn_relu()), "tg_module_add: argument path is NULL");
    CHECK_FAILS(tg_module_add(NULL, "a.b", tg_nn_relu()), "tg_module_add: argument m is NULL");
    CHECK_FAILS(tg_module_add(m, "a.b", NULL), "tg_module_add: argument child is NULL");
    CHECK_FAILS(tg_module_add(m, "a.b", list), "is the child of another module");
    CHECK_FAILS(tg_module_add(held, "a.b", tg_module_retain(held)), "cannot be a child of its own children");
    CHECK(tg_stats().modules == before && !tg_module_get_child(m, "a") && tg_module_child_count(m) == 2);
    other = tg_module_new("Other", NULL, 0);
    CHECK(tg_module_add(m, "x.y", tg_module_retain(other)) == other && tg_module_get_child(m, "x.y") == other);
    tg_module_free(m);
    CHECK(strcmp(tg_module_name(other), "Other") == 0);
    tg_module_free(other), tg_module_free(held);
}

TEST(a_child_is_replaced)
{
    tg_module *m = scaled_new(), *fc = linear_of("[[1, 0], [0, 1]]", NULL), *old;
    tg_tensor *x = f64("[1, 2]");
    CHECK(tg_module_count(m) == 3);
    HAS(tg_forward(m, x), "[6, 20]");
    CHECK(tg_module_replace(m, "fc", fc) == fc && self_of(m)->fc == fc && tg_module_get_child(m, "fc") == fc);
    HAS(tg_forward(m, x), "[1, 4]");
    CHECK(tg_module_count(m) == 2 && tg_module_params(m)[1] == tg_module_get(fc, "weight"));
    /* self of m keeps the children of its list */
    old = tg_module_retain(tg_module_get_child(m, "blocks.1"));
    CHECK(self_of(m)->list[1] == old);
    CHECK(tg_module_replace(m, "blocks.1", tg_nn_gelu(false)) == tg_module_get_child(m, "blocks.1"));
    CHECK(self_of(m)->list[1] == tg_module_get_child(m, "blocks.1") && self_of(m)->list[1] != old);
    tg_module_free(old); /* its owner was this test alone */
    tg_module_free(m);
}

TEST(a_child_with_two_parents_is_replaced_in_one)
{
    tg_module *m = scaled_new(), *fc = self_of(m)->fc, *other = scaled_new(), *top = tg_module_new("Top", NULL, 0);
    tg_module_child(top, "a", m), tg_module_child(top, "b", other);
    CHECK(tg_module_replace(top, "b.fc", tg_module_retain(fc)) == fc && self_of(other)->fc == fc);
    CHECK(tg_module_replace(top, "a.fc", linear_of("[[1, 0], [0, 1]]", NULL)) != NULL);
    CHECK(self_of(other)->fc == fc && self_of(m)->fc != fc);
    HAS(tg_forward(other, f64("[1, 2]")), "[6, 20]");
    tg_module_free(top);
}

static tg_tensor *replaces_itself(tg_module *m, tg_tensor *x)
{
    tg_module_replace(m, "0", tg_nn_relu());
    tg_module_remove(m, "0");
    return x;
}

TEST(replaced_in_vain)
{
    tg_module *m = scaled_new(), *inner = tg_nn_linear(2, 2, true), *outer = tg_module_new("Outer", NULL, 0);
    tg_module *running = tg_nn_module("Running", replaces_itself, 0);
    CHECK_FAILS(tg_module_replace(m, "blocks.7.fc", tg_nn_relu()),
                "tg_module_replace: 'Scaled' has no 'blocks.7.fc': its 'blocks' has no '7'");
    CHECK_FAILS(tg_module_replace(m, "fd", tg_nn_relu()), "'Scaled' has no 'fd': it has no 'fd'");
    CHECK_FAILS(tg_module_replace(m, "scale.x", tg_nn_relu()), "'Scaled' has no 'scale.x': it has no 'scale.x'");
    CHECK_FAILS(tg_module_replace(m, "fc.weight", tg_nn_relu()), "'fc.weight' of 'Scaled' is a tensor and not a child");
    CHECK_FAILS(tg_module_replace(m, NULL, tg_nn_relu()), "argument path is NULL");
    CHECK_FAILS(tg_module_replace(NULL, "fc", tg_nn_relu()), "argument m is NULL");
    CHECK_FAILS(tg_module_replace(m, "fc", NULL), "argument child is NULL");
    CHECK_FAILS(tg_module_replace(m, "fc", self_of(m)->list[0]), "is the child of another module");
    tg_module_child(outer, "m", tg_module_retain(m));
    CHECK_FAILS(tg_module_replace(m, "fc", outer), "a module cannot be a child of its own children");
    tg_module_child(running, "0", inner);
    CHECK_FAILS(tg_forward(running, f64("[1]")), "tg_module_replace: a forward of 'Running' is running");
    CHECK(tg_module_get_child(running, "0") == inner);
    tg_clear_error();
    HAS(tg_forward(m, f64("[1, 2]")), "[6, 20]");
    tg_module_free(running);
    tg_module_free(m);
}

TEST(members_are_removed)
{
    tg_module *m = scaled_new(), *fc = self_of(m)->fc;
    tg_tensor *bias = tg_retain(tg_module_get(m, "fc.bias"));
    tg_module_param(m, "more", f64("[5]")), tg_module_param(m, "most", f64("[6]"));
    CHECK(tg_module_remove(m, "more") == TG_OK && !tg_module_get(m, "more"));
    HAS(tg_module_get(m, "most"), "[6]");
    CHECK(tg_module_count(m) == 4 && strcmp(tg_module_path(m, 1), "most") == 0);
    CHECK(tg_module_param(m, "more", f64("[7]")) != NULL && strcmp(tg_module_path(m, 2), "more") == 0);
    CHECK(tg_module_remove(m, "fc.bias") == TG_OK); /* the linear layer then has none */
    HAS(tg_forward(fc, f64("[1, 2]")), "[5, 11]");
    HAS(bias, "[1, -1]");
    tg_release(bias);
    CHECK(tg_module_remove(m, "blocks.0") == TG_OK && !self_of(m)->list[0] && self_of(m)->list[1]);
    CHECK(tg_module_get_child(m, "blocks.1") == self_of(m)->list[1] && !tg_module_get_child(m, "blocks.0"));
    CHECK(tg_module_remove(m, "fc") == TG_OK && !self_of(m)->fc);
    CHECK_FAILS(tg_forward(m, f64("[1, 2]")), "argument m is NULL");
    CHECK_FAILS(tg_module_remove(m, "fc"), "tg_module_remove: 'Scaled' has no 'fc': it has no 'fc'");
    CHECK_FAILS(tg_module_remove(m, NULL), "argument path is NULL");
    CHECK_FAILS(tg_module_remove(NULL, "fc"), "argument m is NULL");
    tg_module_free(m);
}

/* ---- copies ---- */

static void count_hook(tg_module *m, tg_tensor **in, int n, tg_tensor **out, int n_out, void *user)
{
    (void)m, (void)in, (void)n, (void)out, (void)n_out;
    ++*(int *)user;
}

TEST(a_copy_of_a_module)
{
    tg_module *m = scaled_new(), *copy;
    tg_tensor *x = f64("[1, 2]"), *weight = tg_module_get(m, "fc.weight");
    int calls = 0;
    CHECK(tg_module_hook(m, count_hook, &calls) > 0);
    tg_module_param(m, "tied", weight);
    tg_module_child(tg_module_get_child(m, "blocks"), "fc", tg_module_retain(self_of(m)->fc));
    tg_set_requires_grad(self_of(m)->scale, false);
    tg_module_train(self_of(m)->fc, false);
    CHECK(backward_sum(tg_forward(m, x)) == TG_OK && tg_grad(weight) != NULL);
    copy = tg_module_clone(m);
    CHECK(copy && copy != m && strcmp(tg_module_name(copy), "Scaled") == 0 && self_of(copy)->number == 7);
    CHECK(self_of(copy)->fc == tg_module_get_child(copy, "fc") && self_of(copy)->fc != self_of(m)->fc);
    CHECK(self_of(copy)->list[1] == tg_module_get_child(copy, "blocks.1"));
    CHECK(tg_module_get_child(copy, "blocks.fc") == self_of(copy)->fc);
    CHECK(tg_module_get(copy, "tied") == tg_module_get(copy, "fc.weight") && tg_module_get(copy, "tied") != weight);
    CHECK(!tg_grad(tg_module_get(copy, "tied")) && tg_requires_grad(tg_module_get(copy, "tied")));
    CHECK(!tg_requires_grad(self_of(copy)->scale) && tg_module_count(copy) == tg_module_count(m));
    CHECK(tg_module_is_training(copy) && !tg_module_is_training(self_of(copy)->fc));
    tg_zero_(tg_detach(weight));
    tg_module_free(m);
    HAS(tg_forward(copy, x), "[6, 20]");
    CHECK(calls == 2);
    CHECK(backward_sum(tg_forward(copy, x)) == TG_OK);
    HAS(tg_grad(tg_module_get(copy, "fc.bias")), "[1, 2]");
    tg_module_free(copy);
    CHECK_FAILS(tg_module_clone(NULL), "argument m is NULL");
}

/* Layers keep addresses in self in many forms; a copy computes the same, and its parameters are its own. */
TEST(copies_of_layers)
{
    tg_module *layer[] = {tg_nn_lstm(3, 4, 2), tg_nn_multihead_attention_ex(4, 2, 0, true, 3, 3),
                          tg_nn_transformer_encoder_layer(4, 2, 8, 0, true, true), tg_nn_batch_norm(4, 1e-5, 0.1),
                          tg_nn_conv2d(3, 2, TG_DIMS(3), TG_DIMS(1), TG_DIMS(1), TG_DIMS(1), 1, true)};
    tg_tensor *wide = tg_rand(TG_SHAPE(2, 5, 4)), *slim = tg_rand(TG_SHAPE(2, 5, 3));
    tg_tensor *in[][3] = {{slim, NULL, NULL}, {wide, slim, slim}, {wide, NULL, NULL},
                          {tg_rand(TG_SHAPE(3, 4)), NULL, NULL}, {tg_rand(TG_SHAPE(1, 3, 4, 4)), NULL, NULL}};
    for (int i = 0; i < 5; ++i) {
        tg_module *copy = tg_module_clone(layer[i]);
        const int n = in[i][1] ? 3 : 1;
        tg_tensor *y = NULL, *z = NULL;
        CHECK(tg_forward_n(layer[i], in[i], n, &y, 1) == TG_OK && tg_forward_n(copy, in[i], n, &z, 1) == TG_OK);
        CHECK(tg_equal(y, z));
        for (int k = 0; k < tg_module_count(copy); ++k) tg_zero_(tg_detach(tg_module_params(layer[i])[k]));
        tg_module_free(layer[i]);
        CHECK(tg_forward_n(copy, in[i], n, &z, 1) == TG_OK && tg_equal(y, z));
        tg_module_free(copy);
    }
}

static tg_module *chain(int n)
{
    tg_module *top = tg_module_new("Chain", NULL, 0), *m = top;
    while (n-- > 0) m = tg_module_child(m, "0", tg_module_new("Chain", NULL, 0));
    return top;
}

/* A copy of a module that threads share is one that may be changed; modules nest 32 deep. */
TEST(copies_of_shared_and_of_deep_modules)
{
    tg_module *m = tg_module_share(tg_module_train(linear_of("[[1, 2]]", "[3]"), false)), *copy = tg_module_clone(m);
    tg_dict *none = tg_dict_new();
    CHECK(copy && !tg_module_is_training(copy) && tg_module_train(copy, true) == copy);
    CHECK(tg_module_replace(copy, "x", tg_nn_relu()) == NULL);
    tg_clear_error();
    CHECK_FAILS(tg_module_replace(m, "weight", tg_nn_relu()), "is shared by tg_module_share");
    CHECK_FAILS(tg_module_remove(m, "weight"), "is shared by tg_module_share");
    CHECK_FAILS(tg_nn_lora(tg_module_retain(m), 1, 1, 0), "is shared by tg_module_share");
    tg_module_free(m);
    HAS(tg_forward(copy, f64("[[1, 1]]")), "[[6]]");
    tg_module_free(copy);
    tg_module_free(m);
    m = chain(30);
    copy = tg_module_clone(m);
    CHECK(copy != NULL);
    tg_module_free(copy);
    tg_module_free(m);
    m = chain(40);
    CHECK_FAILS(tg_module_clone(m), "nested deeper than 32");
    CHECK_FAILS(tg_functional_call(m, none, f64("[1]")), "nested deeper than 32");
    CHECK_FAILS(tg_lora_merge(m, true), "nested deeper than 32");
    CHECK_FAILS(tg_lora_state(m), "nested deeper than 32");
    tg_module_free(m);
    tg_dict_free(none);
}

/* ---- groups ---- */

static bool decays(const char *path, tg_tensor *t, void *user)
{
    ++*(int *)user;
    return tg_ndim(t) > 1 && strcmp(path, "fc.bias") != 0;
}

static bool adds(const char *path, tg_tensor *t, void *user)
{
    (void)path, (void)t;
    return tg_module_param((tg_module *)user, "new", f64("[1]")) != NULL;
}

static bool fails(const char *path, tg_tensor *t, void *user) { return (void)path, (void)user, !tg_add(t, NULL); }

TEST(parameters_in_two_groups)
{
    tg_module *m = scaled_new();
    tg_tensor *out[3];
    int calls = 0;
    CHECK(tg_module_split_params(m, decays, &calls, out, 3) == 1 && calls == 3);
    CHECK(out[0] == tg_module_get(m, "fc.weight") && out[1] == self_of(m)->scale);
    CHECK(out[2] == tg_module_get(m, "fc.bias"));
    CHECK_FAILS(tg_module_split_params(m, decays, &calls, out, 2), "out has 2 places, but 'Scaled' has 3 parameters");
    CHECK_FAILS(tg_module_split_params(m, NULL, NULL, out, 3), "argument test is NULL");
    CHECK_FAILS(tg_module_split_params(m, decays, &calls, NULL, 3), "argument out is NULL");
    CHECK_FAILS(tg_module_split_params(NULL, decays, &calls, out, 3), "argument m is NULL");
    CHECK_FAILS(tg_module_split_params(m, fails, NULL, out, 3), "tg_add: ");
    CHECK(!out[0]);
    CHECK_FAILS(tg_module_split_params(m, adds, m, out, 3), "test has changed 'Scaled'");
    tg_module_free(m);
    m = tg_nn_relu();
    CHECK(tg_module_split_params(m, decays, &calls, NULL, 0) == 0 && tg_ok());
    tg_module_free(m);
}

/* ---- other parameters ---- */

TEST(a_forward_with_other_parameters)
{
    tg_module *m = scaled_new();
    tg_tensor *x = f64("[1, 2]"), *w = leaf("[[1, 1], [0, 2]]"), *own = tg_module_get(m, "fc.weight"), *y;
    tg_dict *params = tg_dict_new();
    CHECK(tg_dict_set(params, "fc.weight", tg_mul_scalar(w, 2)) == TG_OK);
    y = tg_functional_call(m, params, x);
    HAS(y, "[7, 14]");
    CHECK(tg_module_get(m, "fc.weight") == own);
    CHECK(backward_sum(y) == TG_OK && !tg_grad(own)); /* through the product */
    HAS(tg_grad(w), "[[2, 4], [4, 8]]");
    HAS(tg_grad(self_of(m)->scale), "[7, 7]");
    HAS(tg_forward(m, x), "[6, 20]");
    CHECK(tg_functional_call_n(m, params, &x, 1, &y, 1) == TG_OK);
    HAS(y, "[7, 14]");
    tg_dict_free(params);
    params = tg_dict_new(); /* none: it is a forward */
    HAS(tg_functional_call(m, params, x), "[6, 20]");
    tg_dict_free(params);
    tg_module_free(m);
}

/* A step of gradient descent that is itself differentiated: MAML. */
TEST(a_step_that_is_differentiated)
{
    tg_module *m = linear_of("[[2]]", NULL);
    tg_tensor *w = tg_module_get(m, "weight"), *x = f64("[[3]]"), *g, *y;
    tg_dict *fast = tg_dict_new();
    y = tg_forward(m, x);
    CHECK(tg_gradients(TG_LIST(tg_sum(tg_mul(y, y))), NULL, TG_LIST(w), &g, TG_CREATE_GRAPH) == TG_OK);
    CHECK(tg_dict_set(fast, "weight", tg_sub(w, tg_mul_scalar(g, 0.1))) == TG_OK);
    y = tg_functional_call(m, fast, x); /* (w - 0.1 * 18 w) * 3 = -2.4 w */
    HAS(y, "[[-4.8]]");
    CHECK(backward_sum(y) == TG_OK);
    HAS(tg_grad(w), "[[-2.4]]");
    tg_dict_free(fast);
    tg_module_free(m);
}

/* A tied tensor is replaced under each of its names; what a forward writes goes to the buffers that are given. */
TEST(tied_tensors_and_buffers_of_a_functional_call)
{
    tg_module *norm = tg_module_to_dtype(tg_nn_batch_norm(1, 1e-5, 0.5), TG_F64), *m = scaled_new();
    tg_tensor *mean = f64("[0]"), *x = f64("[[1], [3]]"), *t = f64("[2, 2]");
    tg_dict *params = tg_dict_new();
    tg_module_to(norm, HERE);
    CHECK(tg_dict_set(params, "running_mean", mean) == TG_OK && tg_functional_call(norm, params, x) != NULL);
    HAS(mean, "[1]");
    HAS(tg_module_get(norm, "running_mean"), "[0]");
    tg_dict_free(params);
    params = tg_dict_new();
    tg_module_param(m, "tied", self_of(m)->scale);
    CHECK(tg_dict_set(params, "tied", t) == TG_OK);
    HAS(tg_functional_call(m, params, f64("[1, 2]")), "[12, 20]");
    CHECK(tg_dict_set(params, "scale", t) == TG_OK);
    HAS(tg_functional_call(m, params, f64("[1, 2]")), "[12, 20]");
    CHECK(tg_dict_set(params, "scale", f64("[1, 1]")) == TG_OK);
    CHECK_FAILS(tg_functional_call(m, params, f64("[1, 2]")), "'scale' of 'Scaled' is tied to another path");
    tg_dict_free(params);
    tg_module_free(norm);
    tg_module_free(m);
}

static tg_tensor *changes_itself(tg_module *m, tg_tensor *x)
{
    tg_module_free(m);                                   /* the last reference of the program: it stays until the end */
    tg_module_child(m, "1", tg_nn_linear(1, 1, false));  /* the list of members moves */
    tg_module_param(m, "b", f64("[1]")), tg_module_param(m, "c", f64("[1]")), tg_module_param(m, "d", f64("[1]"));
    tg_module_param(m, "e", f64("[1]")), tg_module_param(m, "f", f64("[1]")), tg_module_param(m, "g", f64("[1]"));
    return tg_mul(x, tg_module_get(m, "a"));
}

TEST(functional_calls_that_fail)
{
    tg_module *m = scaled_new(), *shared;
    tg_tensor *x = f64("[1, 2]"), *own = tg_module_get(m, "fc.weight"), *out[2] = {x, x};
    tg_dict *params = tg_dict_new(), *inner = tg_dict_new();
    tg_dict_set(params, "fc.weight", f64("[1, 2, 3]"));
    CHECK_FAILS(tg_functional_call(m, params, x), "in Scaled.fc");
    CHECK(tg_module_get(m, "fc.weight") == own);
    CHECK_FAILS(tg_functional_call_n(m, params, &x, 1, out, 2), "one input and one output, not 1 and 2");
    CHECK(!out[0] && !out[1]);
    CHECK_FAILS(tg_functional_call(m, NULL, x), "argument params is NULL");
    CHECK_FAILS(tg_functional_call(NULL, params, x), "argument m is NULL");
    CHECK_FAILS(tg_functional_call(m, params, NULL), "argument x is NULL");
    tg_dict_set(params, "fc.wait", f64("[1]"));
    CHECK_FAILS(tg_functional_call(m, params, x), "tg_functional_call: 'Scaled' has no parameter or buffer 'fc.wait'");
    tg_dict_free(params);
    params = tg_dict_new();
    tg_dict_set_dict(params, "fc", inner);
    CHECK_FAILS(tg_functional_call(m, params, x), "'fc', which is a dictionary in params");
    tg_dict_free(params);
    tg_clear_error();
    HAS(tg_forward(m, x), "[6, 20]");
    tg_module_free(m);
    params = tg_dict_new();
    shared = tg_module_share(tg_module_train(tg_nn_linear(2, 2, true), false));
    CHECK_FAILS(tg_functional_call(shared, params, x), "is shared by tg_module_share");
    tg_module_free(shared);
    m = tg_nn_module("Changes", changes_itself, 0);
    tg_module_param(m, "a", f64("[1]"));
    tg_dict_set(params, "a", f64("[5]"));
    HAS(tg_functional_call(m, params, f64("[2]")), "[10]");
    tg_dict_free(params);
}

/* ---- averages ---- */

/* The weights and the statistics of model grow as in PyTorch's run. */
static tg_module *averaged_after(int steps, double decay, bool use_buffers)
{
    tg_module *part[2] = {tg_nn_linear(1, 1, true), tg_nn_batch_norm(1, 1e-5, 0.1)}, *m, *average;
    m = tg_module_to(tg_module_to_dtype(tg_nn_sequential(part, 2), TG_F64), HERE);
    for (int k = 0; k < 4; ++k) tg_zero_(tg_detach(tg_module_params(m)[k]));
    average = tg_nn_averaged(m, decay, use_buffers);
    for (int i = 0; i < steps; ++i) {
        for (int k = 0; k < 4; ++k) tg_add_scalar_(tg_detach(tg_module_params(m)[k]), k + 1 + i);
        tg_add_scalar_(tg_module_get(m, "1.running_mean"), i + 1);
        tg_add_scalar_(tg_module_get(m, "1.num_batches_tracked"), 3);
        CHECK(tg_averaged_update(average, m) == TG_OK);
    }
    tg_module_free(m);
    return average;
}

TEST(averages)
{
    for (int way = 0; way < 4; ++way) {
        const bool mean = way & 1, buffers = way > 1;
        tg_module *m = averaged_after(4, mean ? (double)NAN : 0.9, buffers);
        HAS(tg_module_get(m, "module.0.weight"), mean ? "[[5]]" : "[[2.512]]");
        HAS(tg_module_get(m, "module.1.bias"), mean ? "[12.5]" : "[7.195]");
        HAS(tg_module_get(m, "module.1.running_mean"), !buffers ? "[10]" : mean ? "[5]" : "[2.512]");
        HAS(tg_module_get(m, "module.1.num_batches_tracked"), !buffers ? "12" : mean ? "6" : "3");
        HAS(tg_module_get(m, "n_averaged"), "4");
        CHECK(tg_requires_grad(tg_module_get(m, "module.0.bias")));
        tg_module_train(m, false);
        CHECK(tg_forward(m, f64("[[1], [2]]")) != NULL);
        tg_module_free(m);
    }
}

TEST(averages_that_fail)
{
    tg_module *m = tg_nn_linear(2, 2, true), *other = tg_nn_linear(3, 2, true);
    tg_module *average = tg_nn_averaged(m, 0.5, false);
    CHECK_FAILS(tg_nn_averaged(m, 1.5, false), "Invalid decay value 1.5 provided. Please provide a value in [0,1]");
    CHECK_FAILS(tg_nn_averaged(NULL, 0.5, false), "argument model is NULL");
    CHECK_FAILS(tg_averaged_update(average, other), "'Linear' is not like the module that was copied");
    CHECK_FAILS(tg_averaged_update(m, m), "'Linear' was not made by tg_nn_averaged");
    CHECK_FAILS(tg_averaged_update(NULL, m), "argument averaged is NULL");
    CHECK_FAILS(tg_averaged_update(average, NULL), "argument model is NULL");
    HAS(tg_module_get(average, "n_averaged"), "0");
    tg_module_free(m), tg_module_free(other), tg_module_free(average);
}

/* ---- weight_norm and spectral_norm ---- */

static tg_module *base(void) { return linear_of("[[1, 2, -1], [0.5, -2, 3]]", "[0.1, -0.2]"); }
static tg_tensor *input(void) { return f64("[[1, -1, 2], [0.5, 3, 1]]"); }
static tg_status backward_squares(tg_tensor *y) { return backward_sum(tg_mul(y, y)); }

TEST(weight_norm)
{
    static const char all[] = "[[-50.69350649350649, 58.21298701298703, 46.49350649350649], "
                              "[31.15324675324676, -37.01298701298701, -36.28051948051946]]";
    static const char *const g[] = {
        "[[64.29910574805844], [87.07286148707396]]",
        "[[11.851160280748886, 103.37901140947324, 53.37924690364224]]",
        "108.13719100255044"};
    static const char *const v[] = {
        "[[-53.9, 51.8, 49.7], [31.879245283018875, -39.91698113207548, -31.924528301886767]]",
        "[[-22.6, 10.6, 30.96], [45.2, 10.6, 10.32]]",
        all};
    for (int way = 0; way < 3; ++way) {
        tg_module *m = tg_nn_weight_norm(base(), "weight", way < 2 ? way : -1), *copy;
        tg_tensor *y = tg_forward(m, input());
        HAS(y, "[[-2.9, 8.3], [5.6, -2.95]]"); /* at first it is the base */
        tg_mul_scalar_(tg_detach(tg_module_get(m, "g")), 2);
        copy = tg_module_clone(m);
        y = tg_forward(m, input());
        HAS(y, "[[-5.9, 16.8], [11.1, -5.7]]");
        CHECK(backward_squares(y) == TG_OK);
        HAS(tg_grad(tg_module_get(m, "g")), g[way]);
        HAS(tg_grad(tg_module_get(m, "base.weight")), v[way]);
        tg_module_free(m);
        HAS(tg_forward(copy, input()), "[[-5.9, 16.8], [11.1, -5.7]]");
        tg_module_free(copy);
    }
    CHECK_FAILS(tg_nn_weight_norm(base(), "weight", 2), "expected to be in range of [-1, 1], but got 2");
    CHECK_FAILS(tg_nn_weight_norm(base(), "wait", 0), "'Linear' has no parameter 'wait'");
    CHECK_FAILS(tg_nn_weight_norm(base(), NULL, 0), "argument name is NULL");
    CHECK_FAILS(tg_nn_weight_norm(NULL, "weight", 0), "argument base is NULL");
}

TEST(spectral_norm)
{
    static const char rows[] = "[[-0.7069904664720392, 5.837199164974715, -2.3385754225361257], "
                               "[-0.8619207380717502, -0.38597549968998424, -4.548991305452539]]";
    static const char columns[] = "[[0.21695775390632935, 1.5697488733307563, 1.3388957717019847], "
                                  "[0.3672070074779269, -0.4819688239595503, -1.0550336268413065]]";
    static const char *const y[] = {
        "[[-0.9167646616620734, 2.680833208042541], [1.9640685463804681, -1.1320342731902338]]",
        "[[-0.6358587799964758, 1.8849332099900147], [1.449074429993539, -0.8745372149967694]]"};
    static const char *const grad[] = {rows, columns};
    for (int dim = 0; dim < 2; ++dim) {
        tg_module *m = tg_nn_spectral_norm(base(), "weight", 2, 1e-12, dim);
        const double height = dim ? 3 : 2;
        tg_tensor *first;
        tg_constant_(tg_module_get(m, "u"), 1 / sqrt(height));
        tg_constant_(tg_module_get(m, "v"), 1 / sqrt(5 - height));
        first = tg_forward(m, input());
        HAS(first, y[dim]);
        CHECK(backward_squares(first) == TG_OK);
        HAS(tg_grad(tg_module_get(m, "base.weight")), grad[dim]);
        tg_module_train(m, false);
        HAS(tg_forward(m, input()), y[dim]); /* without another iteration */
        tg_module_free(m);
    }
    CHECK_FAILS(tg_nn_spectral_norm(base(), "weight", 0, 1e-12, 0), "Expected n_power_iterations to be positive");
    CHECK_FAILS(tg_nn_spectral_norm(base(), "weight", 1, 1e-12, -1), "expected to be in range of [0, 1], but got -1");
    CHECK_FAILS(tg_nn_spectral_norm(base(), "bia", 1, 1e-12, 0), "'Linear' has no parameter 'bia'");
    CHECK_FAILS(tg_nn_spectral_norm(NULL, "weight", 1, 1e-12, 0), "argument base is NULL");
}

/* After the first iterations the largest singular value is 1, and a parameter of one dim has length 1. */
TEST(spectral_norm_of_other_weights)
{
    tg_module *m = tg_nn_spectral_norm(base(), "weight", 200, 1e-12, 0), *one;
    tg_tensor *eye = f64("[[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0]]"), *y = tg_forward(m, eye), *bias;
    bias = tg_select(y, 0, 3);
    CHECK_NEAR(tg_item(tg_max(tg_linalg_svdvals(tg_narrow(tg_sub(y, bias), 0, 0, 3)))), 1, 1e-12);
    tg_module_free(m);
    one = tg_nn_spectral_norm(linear_of("[[1], [2]]", "[3, 4]"), "bias", 1, 1e-12, 0);
    HAS(tg_forward(one, f64("[[0]]")), "[[0.6, 0.8]]");
    CHECK(!tg_module_get(one, "u"));
    tg_module_free(one);
}

/* ---- LoRA ---- */

static tg_module *lora_of(tg_module *linear)
{
    tg_module *m = tg_nn_lora(linear, 2, 4, 0);
    if (m) tg_copy_(tg_detach(tg_module_get(m, "lora_A")), f64("[[1, 0, 1], [0, 2, 0]]"));
    return m;
}

TEST(lora)
{
    tg_module *m = lora_of(base());
    tg_tensor *x = input(), *y;
    CHECK(!tg_requires_grad(tg_module_get(m, "base.weight")) && !tg_requires_grad(tg_module_get(m, "base.bias")));
    CHECK(tg_requires_grad(tg_module_get(m, "lora_A")) && tg_module_numel(m) == 8 + 6 + 4);
    CHECK(tg_dtype_of(tg_module_get(m, "lora_B")) == TG_F64);
    HAS(tg_forward(m, x), "[[-2.9, 8.3], [5.6, -2.95]]"); /* lora_B is zeros */
    CHECK(backward_sum(tg_forward(m, x)) == TG_OK);
    HAS(tg_grad(tg_module_get(m, "lora_B")), "[[9, 8], [9, 8]]");
    HAS(tg_grad(tg_module_get(m, "lora_A")), "[[0, 0, 0], [0, 0, 0]]");
    CHECK(!tg_grad(tg_module_get(m, "base.weight")));
    tg_copy_(tg_detach(tg_module_get(m, "lora_B")), f64("[[1, 0], [0.5, 1]]"));
    y = tg_forward(m, x); /* A x: [3, -2], [1.5, 6]; B A x: [3, -0.5], [1.5, 6.75]; times 2 */
    HAS(y, "[[3.1, 7.3], [8.6, 10.55]]");
    CHECK(tg_lora_merge(m, true) == TG_OK && tg_lora_merge(m, true) == TG_OK);
    HAS(tg_forward(m, x), "[[3.1, 7.3], [8.6, 10.55]]");
    HAS(tg_module_get(m, "base.weight"), "[[3, 2, 1], [1.5, 2, 4]]");
    CHECK(!tg_requires_grad(tg_forward(m, x)));
    CHECK(tg_lora_merge(m, false) == TG_OK);
    HAS(tg_module_get(m, "base.weight"), "[[1, 2, -1], [0.5, -2, 3]]");
    HAS(tg_forward(m, x), "[[3.1, 7.3], [8.6, 10.55]]");
    tg_module_free(m);
}

/* Layers that fuse what their children do ask the children: no LoRA is passed over. */
TEST(lora_in_layers_of_a_transformer)
{
    tg_module *m = tg_nn_transformer_encoder(tg_nn_transformer_encoder_layer(6, 2, 8, 0, true, false), 2, NULL);
    tg_tensor *x = tg_randn(TG_SHAPE(2, 4, 6)), *y, *before;
    tg_dict *state;
    int i;
    before = tg_forward(m, x);
    CHECK(tg_lora_apply(m, "*", 2, 4, 0) == 6); /* out_proj, linear1 and linear2 of each */
    CHECK(tg_equal(tg_forward(m, x), before));
    state = tg_lora_state(m);
    for (i = 1; i < tg_dict_count(state); i += 2) {
        tg_uniform_(tg_detach(tg_dict_get(state, tg_dict_name(state, i))), -0.5, 0.5);
        y = tg_forward(m, x);
        harness_check(!tg_allclose(y, before, 1e-6, 1e-6), tg_dict_name(state, i), __FILE__, __LINE__);
        before = y;
    }
    CHECK(i == 13 && tg_lora_merge(m, true) == TG_OK && tg_allclose(tg_forward(m, x), before, 1e-5, 1e-5));
    CHECK(tg_lora_remove(m) == TG_OK && tg_allclose(tg_forward(m, x), before, 1e-5, 1e-5));
    tg_dict_free(state);
    tg_module_free(m);
}

TEST(dropout_of_lora)
{
    tg_module *m = tg_nn_lora(base(), 2, 4, 1); /* all of x is dropped */
    tg_tensor *x = input();
    tg_constant_(tg_module_get(m, "lora_B"), 1);
    HAS(tg_forward(m, x), "[[-2.9, 8.3], [5.6, -2.95]]");
    tg_module_train(m, false);
    CHECK(!tg_allclose(tg_forward(m, x), tg_forward(tg_module_get_child(m, "base"), x), 1e-9, 1e-9));
    tg_module_free(m);
}

static tg_module *network(void)
{
    tg_module *m = tg_module_new("Net", NULL, 0), *block[2];
    for (int i = 0; i < 2; ++i) {
        block[i] = tg_module_new("Block", NULL, 0);
        tg_module_child(block[i], "attn", base());
        tg_module_child(block[i], "mlp", base());
    }
    tg_module_child(m, "h", tg_nn_list(block, 2));
    tg_module_child(m, "head", base());
    return m;
}

TEST(lora_of_a_network)
{
    tg_module *m = network(), *attn = tg_module_get_child(m, "h.1.attn"), *again;
    tg_dict *state;
    CHECK(tg_lora_apply(m, "*.attn", 2, 4, 0) == 2);
    CHECK(tg_module_get_child(m, "h.1.attn.base") == attn && !tg_requires_grad(tg_module_get(m, "head.weight")));
    CHECK(tg_module_get(m, "h.0.mlp.weight") != NULL && tg_module_get(m, "h.0.attn.lora_A") != NULL);
    tg_constant_(tg_module_get(m, "h.1.attn.lora_B"), 3);
    state = tg_lora_state(m);
    CHECK(tg_dict_count(state) == 4 && strcmp(tg_dict_name(state, 0), "h.0.attn.lora_A") == 0 &&
          strcmp(tg_dict_name(state, 3), "h.1.attn.lora_B") == 0);
    again = network();
    CHECK(tg_lora_apply(again, "*.attn", 2, 4, 0) == 2 && tg_lora_load_state(again, state) == TG_OK);
    CHECK(tg_equal(tg_forward(tg_module_get_child(again, "h.1.attn"), input()),
                   tg_forward(tg_module_get_child(m, "h.1.attn"), input())));
    CHECK(tg_lora_apply(again, "*", 1, 1, 0) == 3); /* what is wrapped is not wrapped again */
    CHECK_FAILS(tg_lora_load_state(again, state), "missing: h.0.mlp.lora_A");
    CHECK(tg_lora_merge(m, true) == TG_OK);
    CHECK_FAILS(tg_lora_load_state(m, state), "'Net' is merged");
    CHECK(tg_lora_remove(m) == TG_OK && tg_module_get_child(m, "h.1.attn") == attn);
    CHECK(tg_lora_remove(again) == TG_OK && tg_module_count(again) == 10);
    CHECK(!tg_allclose(tg_module_get(m, "h.1.attn.weight"), tg_module_get(again, "h.1.attn.weight"), 1e-9, 1e-9));
    CHECK(tg_equal(tg_module_get(m, "h.0.attn.weight"), tg_module_get(again, "h.0.attn.weight")));
    tg_dict_free(state);
    tg_module_free(m);
    tg_module_free(again);
}

TEST(lora_that_fails)
{
    tg_module *m = network();
    tg_dict *state;
    CHECK_FAILS(tg_nn_lora(base(), 0, 1, 0), "rank should be a positive integer, but it is 0");
    CHECK_FAILS(tg_nn_lora(base(), 1, 1, 2), "dropout probability has to be between 0 and 1, but got 2");
    CHECK_FAILS(tg_nn_lora(tg_nn_relu(), 1, 1, 0), "'ReLU' has no parameter 'weight'");
    CHECK_FAILS(tg_nn_lora(tg_nn_layer_norm(TG_SHAPE(3), 1e-5, true), 1, 1, 0), "the weight has 1 dims");
    CHECK_FAILS(tg_nn_lora(NULL, 1, 1, 0), "argument base is NULL");
    CHECK_FAILS(tg_lora_apply(m, "*.nothing", 1, 1, 0),
                "tg_lora_apply: no linear layer of 'Net' has a path of the form '*.nothing'");
    CHECK(tg_requires_grad(tg_module_get(m, "head.weight")));
    CHECK_FAILS(tg_lora_apply(m, "*", 0, 1, 0), "tg_lora_apply: rank should be a positive integer");
    CHECK_FAILS(tg_lora_apply(m, "*********", 1, 1, 0), "has more than 8 *");
    CHECK_FAILS(tg_lora_apply(m, NULL, 1, 1, 0), "argument pattern is NULL");
    CHECK_FAILS(tg_lora_apply(NULL, "*", 1, 1, 0), "argument m is NULL");
    CHECK(tg_module_get(m, "h.0.attn.weight") != NULL && tg_lora_apply(m, "head", 1, 1, 0) == 1);
    state = tg_lora_state(m);
    CHECK(tg_dict_set(state, "other", f64("[1]")) == TG_OK);
    CHECK_FAILS(tg_lora_load_state(m, state), "unexpected: other");
    CHECK(tg_dict_set(state, "head.lora_A", f64("[1]")) == TG_OK);
    CHECK_FAILS(tg_lora_load_state(m, state), "head.lora_A is [1], not [1, 3]");
    tg_dict_free(state);
    CHECK_FAILS(tg_lora_state(NULL), "argument m is NULL");
    CHECK_FAILS(tg_lora_merge(NULL, true), "argument m is NULL");
    CHECK_FAILS(tg_lora_remove(NULL), "argument m is NULL");
    CHECK_FAILS(tg_lora_load_state(m, NULL), "argument dict is NULL");
    tg_module_free(m);
}

/* ---- allocations that fail ---- */

static bool scenario(void)
{
    tg_module *m = tg_nn_module("Scaled", scaled_forward, sizeof(scaled)), *copy = NULL, *average = NULL;
    tg_module *fc = m ? tg_module_child(m, "fc", tg_nn_linear(2, 2, true)) : NULL, *plain, *norm = NULL;
    tg_tensor *x = tg_ones(TG_SHAPE(1, 2)), *y = NULL;
    tg_dict *params = NULL, *state = NULL;
    bool ok = fc && (self_of(m)->scale = tg_module_param(m, "scale", tg_ones(TG_SHAPE(2)))) != NULL;
    if (ok) self_of(m)->fc = fc;
    ok = ok && (copy = tg_module_clone(m)) != NULL && (params = tg_module_state(copy)) != NULL;
    ok = ok && (y = tg_functional_call(m, params, x)) != NULL && tg_backward(tg_sum(y)) == TG_OK;
    ok = ok && (average = tg_nn_averaged(m, 0.5, true)) != NULL && tg_averaged_update(average, copy) == TG_OK;
    ok = ok && tg_averaged_update(average, copy) == TG_OK;
    ok = ok && tg_lora_apply(m, "fc", 1, 1, 0.5) == 1 && tg_forward(m, x) && tg_lora_merge(m, true) == TG_OK &&
         tg_lora_merge(m, false) == TG_OK && (state = tg_lora_state(m)) != NULL &&
         tg_lora_load_state(m, state) == TG_OK;
    ok = ok && tg_lora_remove(m) == TG_OK && (plain = tg_nn_linear(2, 2, false)) != NULL;
    ok = ok && tg_module_replace(m, "fc", plain) && tg_module_remove(m, "fc.weight") == TG_OK;
    ok = ok && (norm = tg_nn_weight_norm(tg_nn_spectral_norm(tg_nn_linear(2, 3, true), "weight", 1, 1e-12, 0),
                                         "base.weight", 0)) != NULL;
    ok = ok && tg_forward(norm, x) != NULL;
    tg_dict_free(params), tg_dict_free(state);
    tg_module_free(m), tg_module_free(copy), tg_module_free(average), tg_module_free(norm);
    return ok;
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    harness_take_device();
    if (!harness.only) out_of_memory(scenario);
    RUN(buffers_that_are_not_saved);
    RUN(paths_make_their_containers);
    RUN(paths_in_vain);
    RUN(a_child_is_replaced);
    RUN(a_child_with_two_parents_is_replaced_in_one);
    RUN(replaced_in_vain);
    RUN(members_are_removed);
    RUN(a_copy_of_a_module);
    RUN(copies_of_layers);
    RUN(copies_of_shared_and_of_deep_modules);
    RUN(parameters_in_two_groups);
    RUN(a_forward_with_other_parameters);
    RUN(a_step_that_is_differentiated);
    RUN(tied_tensors_and_buffers_of_a_functional_call);
    RUN(functional_calls_that_fail);
    RUN(averages);
    RUN(averages_that_fail);
    RUN(weight_norm);
    RUN(spectral_norm);
    RUN(spectral_norm_of_other_weights);
    RUN(lora);
    RUN(lora_in_layers_of_a_transformer);
    RUN(dropout_of_lora);
    RUN(lora_of_a_network);
    RUN(lora_that_fails);
    CHECK(tg_shutdown() == TG_OK);
    return harness_end();
}
