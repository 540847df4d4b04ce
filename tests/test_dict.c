/* Dictionaries of tensors: paths, nesting, who owns what, moves of all tensors at once, texts. */
#include "tensorgrad.h"
#include "helpers.h"

static tg_dict *dict_of(const char *name, tg_tensor *t)
{
    tg_dict *d = tg_dict_new();
    CHECK(tg_dict_set(d, name, t) == TG_OK);
    return d;
}

/* {"x": [1, 2], "list": {"0": [3], "1": {"deep": [4]}}, "fc.weight": [5]} */
static tg_dict *nested(void)
{
    tg_dict *d = dict_of("x", f64("[1, 2]")), *list = dict_of("0", f64("[3]"));
    CHECK(tg_dict_set_dict(d, "list", list) == TG_OK);
    CHECK(tg_dict_set_dict(d, "list.1", dict_of("deep", f64("[4]"))) == TG_OK);
    CHECK(tg_dict_set(d, "fc.weight", f64("[5]")) == TG_OK);
    return d;
}

TEST(names_and_order)
{
    tg_dict *d = tg_dict_new();
    tg_tensor *a = f64("1"), *b = f64("2"), *c = f64("3");
    CHECK(tg_dict_count(d) == 0 && tg_dict_get(d, "a") == NULL && tg_ok());
    CHECK(tg_dict_set(d, "b", b) == TG_OK && tg_dict_set(d, "a", a) == TG_OK && tg_dict_set(d, "a.c", c) == TG_OK);
    CHECK(tg_dict_count(d) == 3 && strcmp(tg_dict_name(d, 0), "b") == 0 && strcmp(tg_dict_name(d, 1), "a") == 0);
    CHECK(tg_dict_get(d, "a") == a && tg_dict_get(d, "a.c") == c); /* a tensor "a" does not hide "a.c" */
    CHECK(tg_dict_set(d, "b", c) == TG_OK && tg_dict_get(d, "b") == c && strcmp(tg_dict_name(d, 0), "b") == 0);
    CHECK(tg_dict_remove(d, "b") == TG_OK && tg_dict_count(d) == 2 && strcmp(tg_dict_name(d, 0), "a") == 0);
    CHECK(tg_dict_get(d, "") == NULL && tg_dict_get(d, "a.") == NULL && tg_dict_get_dict(d, "a") == NULL && tg_ok());
    for (int i = 0; i < 100; ++i) {
        char name[8];
        snprintf(name, sizeof name, "%d", i);
        CHECK(tg_dict_set(d, name, i % 2 ? a : b) == TG_OK);
    }
    CHECK(tg_dict_count(d) == 102 && tg_dict_get(d, "98") == b && strcmp(tg_dict_name(d, 101), "99") == 0);
    CHECK_FAILS(tg_dict_name(d, 102), "there is no entry 102, the dictionary has 102");
    CHECK_FAILS(tg_dict_name(d, -1), "there is no entry -1");
    CHECK_FAILS(tg_dict_remove(d, "b"), "there is no entry 'b'");
    CHECK_FAILS(tg_dict_set(d, "", a), "a name must not be empty");
    tg_dict_free(d);
    tg_dict_free(NULL);
}

TEST(paths_through_inner_dictionaries)
{
    tg_dict *d = nested(), *list = tg_dict_get_dict(d, "list");
    CHECK(tg_dict_count(d) == 3 && tg_dict_count(list) == 2 && tg_dict_get(d, "list") == NULL && tg_ok());
    HAS(tg_dict_get(d, "list.0"), "[3]");
    HAS(tg_dict_get(d, "list.1.deep"), "[4]");
    HAS(tg_dict_get(list, "1.deep"), "[4]");
    HAS(tg_dict_get(d, "fc.weight"), "[5]");
    CHECK(tg_dict_get_dict(d, "list.1") == tg_dict_get_dict(list, "1") && tg_dict_get(d, "list.2") == NULL);
    CHECK(tg_dict_set(d, "list.2", f64("[6]")) == TG_OK && tg_dict_count(list) == 3 && tg_dict_count(d) == 3);
    CHECK(tg_dict_set(d, "lists", f64("[7]")) == TG_OK && tg_dict_count(d) == 4); /* only begins alike */
    CHECK_FAILS(tg_dict_set(d, "list.", f64("[6]")), "a name must not be empty");
    CHECK(tg_dict_remove(d, "list.0") == TG_OK && strcmp(tg_dict_name(list, 0), "1") == 0);
    CHECK(tg_dict_set(d, "list.1", f64("[8]")) == TG_OK); /* a tensor in place of the inner dictionary */
    HAS(tg_dict_get(list, "1"), "[8]");
    CHECK(tg_dict_set_dict(d, "x", tg_dict_new()) == TG_OK && tg_dict_count(tg_dict_get_dict(d, "x")) == 0);
    CHECK(tg_dict_remove(d, "list") == TG_OK && tg_dict_get(d, "list.2") == NULL);
    tg_dict_free(d);
}

TEST(one_path_leads_to_one_entry)
{
    tg_dict *d = dict_of("fc.weight", f64("[1]"));
    CHECK_FAILS(tg_dict_set_dict(d, "fc", tg_dict_new()), "'fc.weight' is an entry beside it");
    CHECK(tg_dict_set(d, "fc", f64("[2]")) == TG_OK);
    CHECK_FAILS(tg_dict_set_dict(d, "fc", tg_dict_new()), "'fc' cannot be a dictionary");
    HAS(tg_dict_get(d, "fc"), "[2]");
    CHECK(tg_dict_set_dict(d, "a.b", dict_of("c", f64("[3]"))) == TG_OK);
    CHECK_FAILS(tg_dict_set_dict(d, "a", tg_dict_new()), "'a.b' is an entry beside it");
    HAS(tg_dict_get(d, "a.b.c"), "[3]");
    tg_dict_free(d);
}

TEST(an_inner_dictionary_is_taken_over)
{
    tg_dict *d = tg_dict_new(), *inner = dict_of("x", f64("[1]"));
    CHECK_FAILS(tg_dict_set_dict(d, "", inner), "a name must not be empty"); /* freed: modules are counted */
    CHECK_FAILS(tg_dict_set_dict(NULL, "x", tg_dict_new()), "argument dict is NULL");
    CHECK_FAILS(tg_dict_set_dict(d, NULL, tg_dict_new()), "argument path is NULL");
    CHECK_FAILS(tg_dict_set_dict(d, "x", NULL), "argument inner is NULL");
    CHECK_FAILS(tg_dict_set_dict(d, "x", d), "a dictionary cannot be inside itself");
    inner = tg_dict_new();
    CHECK(tg_dict_set_dict(d, "a", inner) == TG_OK);
    CHECK_FAILS(tg_dict_set_dict(inner, "b", d), "a dictionary cannot be inside itself");
    CHECK_FAILS(tg_dict_set_dict(d, "b", inner), "inside a dictionary already");
    CHECK_FAILS(tg_dict_free(inner), "inside another");
    CHECK(tg_dict_count(d) == 1 && tg_dict_get_dict(d, "a") == inner);
    CHECK(tg_stats().modules == 2);
    tg_dict_free(d);
    CHECK(tg_stats().modules == 0);
}

TEST(a_dictionary_holds_its_tensors)
{
    tg_dict *d = tg_dict_new();
    tg_tensor *kept;
    tg_set_cache_limit(SIZE_MAX); /* the memory of handles must stay, since ended ones are used */
    {
        TG_SCOPE;
        CHECK(tg_dict_set(d, "x", f64("[1, 2]")) == TG_OK && tg_dict_set(d, "y", f64("[3]")) == TG_OK);
        CHECK(tg_dict_set(d, "again", tg_dict_get(d, "x")) == TG_OK);
    }
    HAS(tg_dict_get(d, "x"), "[1, 2]");
    CHECK(tg_dict_remove(d, "x") == TG_OK);
    HAS(tg_dict_get(d, "again"), "[1, 2]");
    kept = tg_retain(tg_dict_get(d, "y"));
    tg_dict_free(d);
    HAS(kept, "[3]");
    tg_release(kept);
    CHECK_FAILS(tg_add_scalar(kept, 1), "was ended by tg_release");
    {
        TG_SCOPE;
        d = dict_of("x", f64("[1]"));
        kept = tg_dict_get(d, "x");
    }
    tg_dict_free(d);
    CHECK_FAILS(tg_add_scalar(kept, 1), "ended with the optimizer, module, dictionary, graph or view that held it last");
}

/* Many inner dictionaries: nothing may recurse. */
TEST(deeply_nested)
{
    tg_dict *d = dict_of("x", f64("[1]")), *moved;
    for (int i = 0; i < 200000; ++i) {
        tg_dict *outer = tg_dict_new();
        tg_dict_set_dict(outer, "d", d);
        d = outer;
    }
    CHECK(tg_dict_get(d, "d.d.d.x") == NULL && tg_dict_get_dict(d, "d.d.d") != NULL);
    CHECK(tg_dict_to_(d, TG_CPU) == TG_OK);
    moved = tg_dict_to(d, TG_CPU);
    CHECK(tg_stats().modules == 400002);
    tg_dict_free(d);
    tg_dict_free(moved);
}

static bool on(tg_tensor *t, tg_device device) { return tg_device_equal(tg_device_of(t), device); }

TEST(moves)
{
    tg_dict *d = nested(), *moved;
    tg_tensor *x = tg_dict_get(d, "x");
    const tg_device there = tg_cuda_is_available() ? TG_CUDA(tg_cuda_device_count() - 1) : TG_CPU;
    CHECK(tg_dict_set_metadata(d, "format", "pt") == TG_OK);
    moved = tg_dict_to(d, there);
    CHECK(tg_dict_count(moved) == 3 && strcmp(tg_dict_name(moved, 1), "list") == 0 && tg_dict_get(d, "x") == x);
    CHECK(on(x, HERE) && on(tg_dict_get(moved, "x"), there) && on(tg_dict_get(moved, "list.1.deep"), there));
    CHECK((tg_dict_get(moved, "x") == x) == tg_device_equal(HERE, there));
    CHECK(strcmp(tg_dict_metadata(moved, "format"), "pt") == 0);
    HAS(tg_cpu(tg_dict_get(moved, "list.1.deep")), "[4]");
    HAS(tg_cpu(tg_dict_get(moved, "fc.weight")), "[5]");
    tg_dict_free(moved);
    CHECK(tg_dict_to_(d, there) == TG_OK && on(tg_dict_get(d, "list.0"), there) && on(x, HERE));
    HAS(tg_cpu(tg_dict_get(d, "list.0")), "[3]");
    CHECK(tg_dict_to_(d, HERE) == TG_OK && on(tg_dict_get(d, "x"), HERE));
    tg_dict_free(d);
}

/* A copy, also of inner dictionaries and of the texts, that later writes do not reach. */
TEST(copies)
{
    tg_dict *d = nested(), *copy;
    tg_tensor *w = leaf("[1, 2]");
    CHECK(tg_dict_set(d, "w", w) == TG_OK && tg_dict_set(d, "double", tg_mul_scalar(w, 2)) == TG_OK);
    CHECK(tg_dict_set_metadata(d, "format", "pt") == TG_OK);
    copy = tg_dict_clone(d);
    CHECK(tg_dict_count(copy) == tg_dict_count(d) && strcmp(tg_dict_metadata(copy, "format"), "pt") == 0);
    CHECK(tg_dict_get(copy, "w") != w && !tg_requires_grad(tg_dict_get(copy, "w")) && tg_requires_grad(w));
    CHECK(!tg_requires_grad(tg_dict_get(copy, "double")));
    CHECK(tg_zero_(tg_detach(w)) != NULL && tg_zero_(tg_dict_get(d, "list.1.deep")) != NULL);
    HAS(tg_dict_get(copy, "w"), "[1, 2]");
    HAS(tg_dict_get(copy, "double"), "[2, 4]");
    HAS(tg_dict_get(copy, "list.1.deep"), "[4]");
    tg_dict_free(copy);
    tg_dict_free(d);
    CHECK_FAILS(tg_dict_clone(NULL), "tg_dict_clone: argument dict is NULL");
}

TEST(moves_that_fail)
{
    tg_dict *d = nested();
    tg_tensor *x = tg_dict_get(d, "x"), *deep = tg_dict_get(d, "list.1.deep");
    CHECK_FAILS(tg_dict_to(d, TG_CUDA(99)), "tg_dict_to: ");
    CHECK_FAILS(tg_dict_to_(d, TG_CUDA(99)), "tg_dict_to_: ");
    CHECK(tg_dict_get(d, "x") == x && tg_dict_get(d, "list.1.deep") == deep);
    CHECK_FAILS(tg_dict_to(NULL, TG_CPU), "argument dict is NULL");
    CHECK_FAILS(tg_dict_to_(NULL, TG_CPU), "argument dict is NULL");
    tg_dict_free(d);
}

TEST(gradients_come_back_through_a_move)
{
    tg_tensor *x = leaf("[1, 2]");
    const tg_device there = tg_cuda_is_available() ? TG_CUDA(tg_cuda_device_count() - 1) : TG_CPU;
    tg_dict *d = dict_of("x", x), *moved = tg_dict_to(d, there);
    CHECK(backward_sum(tg_mul_scalar(tg_dict_get(moved, "x"), 3)) == TG_OK);
    HAS(tg_grad(x), "[3, 3]");
    tg_dict_free(d);
    tg_dict_free(moved);
}

TEST(texts)
{
    tg_dict *d = tg_dict_new();
    CHECK(tg_dict_metadata(d, "a") == NULL && tg_dict_metadata_key(d, 0) == NULL && tg_ok());
    CHECK(tg_dict_set_metadata(d, "b", "1") == TG_OK && tg_dict_set_metadata(d, "a", "") == TG_OK);
    CHECK(tg_dict_set_metadata(d, "", "3") == TG_OK && tg_dict_set_metadata(d, "b", "two") == TG_OK);
    CHECK(strcmp(tg_dict_metadata(d, "b"), "two") == 0 && strcmp(tg_dict_metadata(d, ""), "3") == 0);
    CHECK(strcmp(tg_dict_metadata_key(d, 0), "b") == 0 && strcmp(tg_dict_metadata_key(d, 1), "a") == 0);
    CHECK(tg_dict_set_metadata(d, "b", NULL) == TG_OK && tg_dict_set_metadata(d, "no", NULL) == TG_OK);
    CHECK(tg_dict_metadata(d, "b") == NULL && strcmp(tg_dict_metadata_key(d, 0), "a") == 0);
    CHECK(tg_dict_metadata_key(d, 2) == NULL && tg_dict_metadata_key(d, -1) == NULL && tg_dict_count(d) == 0);
    tg_dict_free(d);
}

/* Names of several parts, inner dictionaries beside them, paths, removal at both ends, texts. */
static void many_entries(int n)
{
    tg_dict *d = tg_dict_new(), *plain = tg_dict_new();
    tg_tensor *t = f64("1");
    char name[40];
    bool ok = true;
    for (int i = 0; i < n; ++i) {
        snprintf(name, sizeof name, "%d", i);
        ok = ok && tg_dict_set_dict(plain, name, tg_dict_new()) == TG_OK;
        snprintf(name, sizeof name, "layer.%d.weight", i);
        ok = ok && tg_dict_set_dict(d, name, tg_dict_new()) == TG_OK;
        strcat(name, ".mean");
        ok = ok && tg_dict_set(d, name, t) == TG_OK && tg_dict_get(d, name) == t;
        ok = ok && tg_dict_set_metadata(d, name, "text") == TG_OK;
    }
    for (int i = 0; i < n; ++i) {
        ok = ok && tg_dict_get_dict(d, tg_dict_name(d, i)) && tg_dict_metadata(d, tg_dict_metadata_key(d, i));
    }
    CHECK(ok && tg_dict_count(d) == n);
    for (int i = 0; i < 100; ++i) ok = ok && tg_dict_remove(d, tg_dict_name(d, 0)) == TG_OK;
    for (int i = n - 1; i > n / 2; --i) ok = ok && tg_dict_remove(d, tg_dict_name(d, i - 100)) == TG_OK;
    CHECK(ok && strcmp(tg_dict_name(d, 0), "layer.100.weight") == 0 && tg_dict_get(d, "layer.100.weight.mean") == t);
    CHECK(tg_dict_get(d, "layer.99.weight.mean") == NULL && tg_dict_get_dict(plain, "99"));
    tg_dict_free(d), tg_dict_free(plain);
}

TEST(names_are_found_without_a_search) { grows_in_proportion("entries of a dictionary", many_entries); }

/* Names are removed from everywhere, and what is left is found, in order; an emptied prefix may be a dictionary. */
TEST(removed_names)
{
    tg_dict *d = tg_dict_new();
    tg_tensor *t = f64("1");
    char name[40];
    int last = -1;
    for (int i = 0; i < 1000; ++i) {
        snprintf(name, sizeof name, "%d.x", i);
        CHECK(tg_dict_set(d, name, t) == TG_OK && tg_dict_set_metadata(d, name, name) == TG_OK);
    }
    CHECK_FAILS(tg_dict_set_dict(d, "500", tg_dict_new()), "'500.x' is an entry beside it");
    for (int i = 0; i < 1000; ++i) {
        snprintf(name, sizeof name, "%d.x", i * 7 % 1000);
        if (i < 900) CHECK(tg_dict_remove(d, name) == TG_OK && tg_dict_set_metadata(d, name, NULL) == TG_OK);
        CHECK((tg_dict_get(d, name) == NULL) == (i < 900) && (tg_dict_metadata(d, name) == NULL) == (i < 900));
    }
    for (int i = 0; i < tg_dict_count(d); ++i) {
        const char *key = tg_dict_metadata_key(d, i);
        CHECK(atoi(tg_dict_name(d, i)) > last && key && strcmp(key, tg_dict_name(d, i)) == 0);
        last = atoi(tg_dict_name(d, i));
    }
    CHECK(tg_dict_count(d) == 100 && !tg_dict_metadata_key(d, 100));
    CHECK(tg_dict_get(d, "500.x") == NULL && tg_dict_set_dict(d, "500", tg_dict_new()) == TG_OK);
    CHECK_FAILS(tg_dict_set_dict(d, "300", tg_dict_new()), "'300.x' is an entry beside it");
    CHECK(tg_dict_set(d, "500.x", t) == TG_OK && tg_dict_count(tg_dict_get_dict(d, "500")) == 1);
    tg_dict_free(d);
}

static void check_names(tg_dict *d, const char *const *names, int n)
{
    CHECK(tg_dict_count(d) == n);
    for (int i = 0; i < n && i < tg_dict_count(d); ++i) {
        harness.row = names[i];
        CHECK(strcmp(tg_dict_name(d, i), names[i]) == 0 && tg_dict_get(d, names[i]) != NULL);
    }
    harness.row = NULL;
}

static tg_dict *named(const char *const *names, int n)
{
    tg_dict *d = tg_dict_new();
    for (int i = 0; i < n; ++i) CHECK(tg_dict_set(d, names[i], tg_full(TG_SHAPE(2, 3), i)) == TG_OK);
    return d;
}

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* Names as Hugging Face's files have them. */
TEST(names_of_other_programs)
{
    static const char *const gpt2_names[] = {"transformer.wte.weight", "transformer.h.0.ln_1.weight", "transformer.h.0.attn.bias",
                                             "transformer.h.0.attn.c_attn.weight", "transformer.h.0.attn.c_attn.bias",
                                             "transformer.h.10.attn.c_attn.weight"};
    static const tg_rename prefix[] = {{"transformer.*", "*", false}};
    static const tg_rename gpt2[] = {{"*.attn.bias", NULL, false}, {"h.*.attn.c_attn.weight", "layers.*.qkv.weight", true},
                                     {"h.*.attn.c_attn.*", "layers.*.qkv.*", false}, {"h.*", "layers.*", false}};
    static const char *const gpt2_here[] = {"wte.weight", "layers.0.ln_1.weight", "layers.0.qkv.weight", "layers.0.qkv.bias",
                                            "layers.10.qkv.weight"};
    tg_dict *d = named(gpt2_names, COUNT(gpt2_names));
    tg_tensor *conv1d = tg_dict_get(d, gpt2_names[3]), *bias = tg_dict_get(d, gpt2_names[4]);
    CHECK(tg_dict_set_metadata(d, "format", "pt") == TG_OK && tg_dict_rename(d, prefix, 1) == TG_OK);
    CHECK(tg_dict_rename(d, gpt2, COUNT(gpt2)) == TG_OK && strcmp(tg_dict_metadata(d, "format"), "pt") == 0);
    check_names(d, gpt2_here, COUNT(gpt2_here));
    tg_tensor *weight = tg_dict_get(d, "layers.0.qkv.weight");
    CHECK(tg_dim(weight, 0) == 3 && tg_dim(weight, 1) == 2 && tg_equal(tg_t(weight), conv1d) && tg_dict_get(d, "layers.0.qkv.bias") == bias);
    CHECK(tg_dict_set(d, "layers.0.qkv.weight", conv1d) == TG_OK && tg_dict_count(d) == 5); /* names are found, in their places */
    CHECK(tg_dict_set(d, "head", bias) == TG_OK && strcmp(tg_dict_name(d, 5), "head") == 0 && tg_dict_remove(d, "wte.weight") == TG_OK);
    tg_dict_free(d);

    static const char *const llama_names[] = {"model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight",
                                              "model.layers.11.mlp.gate_proj.weight", "lm_head.weight"};
    static const char *const llama_here[] = {"net.embed_tokens.weight", "net.layers.0.attn.q.weight", "net.layers.11.mlp.gate.weight",
                                             "net.lm_head.weight"};
    static const tg_rename llama[] = {{"model.*.self_attn.*_proj.*", "net.*.attn.*.*", false}, {"model.*_proj.*", "net.*.*", false},
                                      {"model.*", "net.*", false}, {"*", "net.*", false}};
    d = named(llama_names, COUNT(llama_names));
    CHECK(tg_dict_rename(d, llama, COUNT(llama)) == TG_OK);
    check_names(d, llama_here, COUNT(llama_here));
    tg_dict_free(d);

    static const char *const bert_names[] = {"bert.embeddings.LayerNorm.gamma", "bert.embeddings.LayerNorm.beta",
                                             "bert.encoder.layer.3.attention.self.query.weight", "cls.predictions.bias"};
    static const char *const bert_here[] = {"embeddings.LayerNorm.weight", "embeddings.LayerNorm.bias",
                                            "encoder.layer.3.attention.self.query.weight", "cls.predictions.bias"};
    static const tg_rename bert[] = {{"bert.*.gamma", "*.weight", false}, {"bert.*.beta", "*.bias", false}, {"bert.*", "*", false}};
    d = named(bert_names, COUNT(bert_names));
    CHECK(tg_dict_rename(d, bert, COUNT(bert)) == TG_OK);
    check_names(d, bert_here, COUNT(bert_here));
    tg_dict_free(d);
}

/* A linear layer gets what GPT-2's Conv1D has. */
TEST(renamed_state_is_loaded)
{
    static const tg_rename table[] = {{"h.0.c_fc.weight", "weight", true}, {"h.0.c_fc.*", "*", false}, {"*.mask", NULL, false}};
    tg_module *m = tg_nn_linear(3, 2, true);
    tg_dict *d = tg_dict_new();
    CHECK(tg_dict_set(d, "h.0.c_fc.weight", f32("[[1, 2], [3, 4], [5, 6]]")) == TG_OK && tg_dict_set(d, "h.0.mask", f32("[0]")) == TG_OK);
    CHECK(tg_dict_set(d, "h.0.c_fc.bias", f32("[7, 8]")) == TG_OK && tg_dict_rename(d, table, 3) == TG_OK);
    CHECK(tg_module_load_state(m, d, true) == TG_OK);
    HAS(tg_detach(tg_module_get(m, "weight")), "[[1, 3, 5], [2, 4, 6]]");
    HAS(tg_detach(tg_module_get(m, "bias")), "[7, 8]");
    tg_dict_free(d), tg_module_free(m);
}

/* What a star stands for, and what does not fit. */
TEST(patterns_of_names)
{
    static const struct { const char *from, *to, *name, *becomes; } rows[] = {
        {"a", "b", "a", "b"}, {"a", "b", "ab", "ab"}, {"*", "*", "x.y", "x.y"}, {"*", "p.*", "x", "p.x"},
        {"*", "q", "x", "q"}, {"a*", "*", "abc", "bc"}, {"*c", "*", "abc", "ab"}, {"a*c", "[*]", "ac", "[]"}, {"a*a", "*", "a", "a"},
        {"*.*", "*/*", "x.y.z", "x/y.z"}, {"*.*.*", "*-*-*", "1.2.3.4", "1-2-3.4"}, {"**", "*,*", "ab", ",ab"}, {"*aab*", "*,*", "aaaabb", "aa,b"},
        {"*ab", "*", "abab", "ab"}, {"*ab*ab", "*,*", "ab", "ab"}, {"*ab*ab", "*,*", "abab", ","}, {"*.b", "*", "a.c", "a.c"}, {"x*y*z", "*", "xaybz", "a"},
        {"a.*.b", "*", "a.b", "a.b"},
    };
    for (int i = 0; i < COUNT(rows); ++i) {
        const tg_rename row = {rows[i].from, rows[i].to, false};
        tg_dict *d = dict_of(rows[i].name, f64("1"));
        harness.row = rows[i].from;
        CHECK(tg_dict_rename(d, &row, 1) == TG_OK && tg_dict_count(d) == 1 && strcmp(tg_dict_name(d, 0), rows[i].becomes) == 0);
        tg_dict_free(d);
    }
    harness.row = NULL;
}

TEST(renames_that_fail)
{
    static const tg_rename one[] = {{"*", "x", false}}, none[] = {{"a*", "*", false}}, more[] = {{"a", "b", false}, {"a*", "**", false}},
                           null[] = {{NULL, "x", false}}, many_stars[] = {{"*********", "x", false}}, turned[] = {{"b", "c", true}};
    tg_dict *d = tg_dict_new();
    CHECK(tg_dict_set(d, "a", f64("1")) == TG_OK && tg_dict_set(d, "b", tg_zeros(TG_SHAPE(1, 1, 1))) == TG_OK);
    const tg_stats_info before = tg_stats();
    CHECK_FAILS(tg_dict_rename(d, one, 1), "tg_dict_rename: 'b' would have the name 'x', which another entry has");
    CHECK_FAILS(tg_dict_rename(d, none, 1), "tg_dict_rename: 'a' would have an empty name");
    CHECK_FAILS(tg_dict_rename(d, more, 2), "table[1]: '**' has more * than 'a*'");
    CHECK_FAILS(tg_dict_rename(d, null, 1), "table[0].from is NULL");
    CHECK_FAILS(tg_dict_rename(d, many_stars, 1), "table[0]: '*********' has more than 8 *");
    CHECK_FAILS(tg_dict_rename(d, turned, 1), "'b' is [1, 1, 1], and transpose is for at most 2 dims");
    CHECK_FAILS(tg_dict_rename(d, NULL, 1), "argument table is NULL");
    CHECK_FAILS(tg_dict_rename(d, one, -1), "-1 rows cannot be");
    CHECK_FAILS(tg_dict_rename(NULL, one, 1), "argument dict is NULL");
    CHECK(tg_dict_rename(d, NULL, 0) == TG_OK && tg_dict_count(d) == 2 && strcmp(tg_dict_name(d, 1), "b") == 0);
    CHECK(!alive_changed(&before));
    CHECK(tg_dict_set_dict(d, "inner", tg_dict_new()) == TG_OK);
    CHECK_FAILS(tg_dict_rename(d, more, 1), "tg_dict_rename: the dictionary has inner ones");
    tg_dict_free(d);
}

TEST(no_dictionary)
{
    tg_dict *d = tg_dict_new();
    CHECK_FAILS(tg_dict_set(NULL, "x", f64("1")), "argument dict is NULL");
    CHECK_FAILS(tg_dict_set(d, NULL, f64("1")), "argument path is NULL");
    CHECK_FAILS(tg_dict_set(d, "x", NULL), "argument t is NULL");
    CHECK_FAILS(tg_dict_get(NULL, "x"), "argument dict is NULL");
    CHECK_FAILS(tg_dict_get(d, NULL), "argument path is NULL");
    CHECK_FAILS(tg_dict_get_dict(NULL, "x"), "argument dict is NULL");
    CHECK_FAILS(tg_dict_remove(NULL, "x"), "argument dict is NULL");
    CHECK_FAILS(tg_dict_count(NULL), "argument dict is NULL");
    CHECK_FAILS(tg_dict_name(NULL, 0), "argument dict is NULL");
    CHECK_FAILS(tg_dict_metadata(NULL, "x"), "argument dict is NULL");
    CHECK_FAILS(tg_dict_metadata(d, NULL), "argument key is NULL");
    CHECK_FAILS(tg_dict_metadata_key(NULL, 0), "argument dict is NULL");
    CHECK_FAILS(tg_dict_set_metadata(NULL, "x", "y"), "argument dict is NULL");
    CHECK_FAILS(tg_dict_set_metadata(d, NULL, "y"), "argument key is NULL");
    tg_dict_free(d);
}

static bool dictionary_scenario(void)
{
    tg_dict *d = tg_dict_new(), *inner = tg_dict_new(), *moved = NULL;
    tg_tensor *x = tg_ones(TG_SHAPE(20)), *y = NULL;
    const tg_device there = tg_cuda_is_available() ? TG_CUDA(tg_cuda_device_count() - 1) : TG_CPU;
    int count = 0;
    bool ok = inner && tg_dict_set(inner, "0", x) == TG_OK;
    for (int i = 0; i < 10 && ok; ++i) {
        char name[8];
        snprintf(name, sizeof name, "n%d", i);
        ok = tg_dict_set(d, name, x) == TG_OK;
    }
    ok = tg_dict_set_dict(d, "list", inner) == TG_OK && ok && tg_dict_set_metadata(d, "a", "b") == TG_OK &&
         tg_dict_set_metadata(d, "a", "c") == TG_OK;
    if (d) count = tg_dict_count(d);
    if (ok) moved = tg_dict_clone(d);
    tg_dict_free(moved);
    moved = moved ? tg_dict_to(d, there) : NULL;
    y = ok ? tg_dict_get(d, "list.0") : NULL;
    ok = ok && tg_dict_to_(d, there) == TG_OK;
    if (!ok && y) harness_check(tg_dict_get(d, "list.0") == y, "a failed move changes nothing", __FILE__, __LINE__);
    if (d && count) harness_check(tg_dict_count(d) == count, "the entries stay", __FILE__, __LINE__);
    tg_dict_free(d);
    tg_dict_free(moved);
    return ok && moved;
}

static bool rename_scenario(void)
{
    static const tg_rename table[] = {{"a.*", "*", true}, {"b", NULL, false}};
    tg_dict *d = tg_dict_new();
    tg_tensor *x = tg_ones(TG_SHAPE(2, 3));
    bool ok = true;
    for (int i = 0; i < 10 && ok; ++i) {
        char name[8];
        snprintf(name, sizeof name, "a.%d", i);
        ok = tg_dict_set(d, name, x) == TG_OK;
    }
    ok = ok && tg_dict_set(d, "b", x) == TG_OK;
    if (ok && tg_dict_rename(d, table, 2) != TG_OK) {
        harness_check(tg_dict_count(d) == 11 && tg_dict_get(d, "a.0") == x, "names that do not change", __FILE__, __LINE__);
        ok = false;
    }
    if (ok) harness_check(tg_dict_count(d) == 10 && tg_dict_get(d, "9"), "other names", __FILE__, __LINE__);
    tg_dict_free(d);
    return ok;
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    harness_take_device();
    if (!harness.only) out_of_memory(dictionary_scenario), out_of_memory(rename_scenario);
    RUN(names_and_order);
    RUN(paths_through_inner_dictionaries);
    RUN(one_path_leads_to_one_entry);
    RUN(an_inner_dictionary_is_taken_over);
    RUN(a_dictionary_holds_its_tensors);
    RUN(deeply_nested);
    RUN(moves);
    RUN(copies);
    RUN(moves_that_fail);
    RUN(gradients_come_back_through_a_move);
    RUN(texts);
    RUN(names_are_found_without_a_search);
    RUN(removed_names);
    RUN(names_of_other_programs);
    RUN(renamed_state_is_loaded);
    RUN(patterns_of_names);
    RUN(renames_that_fail);
    RUN(no_dictionary);
    CHECK(tg_shutdown() == TG_OK);
    return harness_end();
}
