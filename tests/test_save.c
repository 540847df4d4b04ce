/* Modules in files: their state as a dictionary, what fits and what does not, checkpoints from which a run goes on.
 *     test_save --resume FILE      goes on from a checkpoint of two networks, as one of the tests has it done */
#include "tensorgrad.h"
#include "helpers.h"

static char path[1000]; /* of the file that the tests write */

static tg_module *net_new(int in, int hidden, int out)
{
    tg_module *list[3];
    list[0] = tg_nn_linear(in, hidden, true), list[1] = tg_nn_tanh(), list[2] = tg_nn_linear(hidden, out, false);
    return tg_nn_sequential(list, 3);
}

/* A hash of the elements of all parameters, in their order. */
static uint64_t bits_of(tg_module *m)
{
    uint64_t hash = HARNESS_HASH;
    const int n = tg_module_count(m);
    for (int i = 0; i < n; ++i) hash = harness_mix_tensor(hash, tg_module_params(m)[i]);
    return hash;
}

TEST(state)
{
    tg_module *m = net_new(2, 3, 1);
    tg_dict *d;
    tg_module_buffer(m, "steps", i64("7"));
    d = tg_module_state(m);
    CHECK(d && tg_dict_count(d) == 4 && strcmp(tg_dict_name(d, 0), "steps") == 0);
    CHECK(tg_dict_get(d, "0.weight") == tg_module_get(m, "0.weight")); /* the tensor itself */
    tg_dict_free(d);
    CHECK_FAILS(tg_module_state(NULL), "argument m is NULL");
    tg_module_free(m);
}

TEST(copies)
{
    tg_module *a = net_new(2, 3, 1), *b = net_new(2, 3, 1), *c = net_new(3, 3, 1);
    tg_tensor *w = tg_module_get(b, "0.weight");
    const uint64_t before = bits_of(c);
    const int64_t version = tg_version_of(w);
    CHECK(bits_of(a) != bits_of(b) && tg_module_copy_(b, a) == TG_OK && bits_of(a) == bits_of(b));
    CHECK(tg_module_get(b, "0.weight") == w && tg_version_of(w) == version + 1 && tg_is_leaf(w) && tg_requires_grad(w));
    CHECK(tg_module_copy_(a, a) == TG_OK && bits_of(a) == bits_of(b));
    CHECK_FAILS(tg_module_copy_(c, a), "these tensors do not fit 'Sequential': 0.weight is [3, 2], not [3, 3]");
    CHECK(bits_of(c) == before);
    CHECK_FAILS(tg_module_copy_(NULL, a), "argument dst is NULL");
    CHECK_FAILS(tg_module_copy_(a, NULL), "argument src is NULL");
    ROW(1.114)
    {
        CHECK(tg_module_to_dtype(b, TG_F64) == b && tg_module_copy_(b, a) == TG_OK);
        CHECK(tg_dtype_of(w) == TG_F64 && tg_equal(w, tg_to_dtype(tg_module_get(a, "0.weight"), TG_F64)));
    }
    tg_module_free(a), tg_module_free(b), tg_module_free(c);
}

TEST(what_does_not_fit_is_one_error)
{
    tg_module *m = net_new(2, 3, 1);
    tg_dict *d = tg_dict_new(), *inner = tg_dict_new();
    char name[8];
    const uint64_t before = bits_of(m);
    tg_dict_set(d, "0.weight", tg_zeros(TG_SHAPE(3, 2)));
    tg_dict_set(d, "2.weight", tg_zeros(TG_SHAPE(1)));
    tg_dict_set(inner, "bias", tg_ones(TG_SHAPE(3)));
    tg_dict_set_dict(d, "more", inner);
    CHECK_FAILS(
        tg_module_load_state(m, d, true),
        "these tensors do not fit 'Sequential': 2.weight is [1], not [1, 3]; missing: 0.bias; unexpected: more.bias");
    CHECK_FAILS(tg_module_load_state(m, d, false), "2.weight is [1], not [1, 3]");
    CHECK(bits_of(m) == before);
    tg_dict_remove(d, "2.weight");
    CHECK(tg_module_load_state(m, d, false) == TG_OK);
    HAS(tg_module_get(m, "0.weight"), "[[0, 0], [0, 0], [0, 0]]");
    tg_dict_remove(d, "more");
    tg_dict_remove(d, "0.weight");
    inner = tg_dict_new();
    tg_dict_set(inner, "bias", tg_ones(TG_SHAPE(3)));
    tg_dict_set_dict(d, "0", inner); /* a path through inner dictionaries is a path of the module */
    CHECK(tg_module_load_state(m, d, false) == TG_OK);
    HAS(tg_module_get(m, "0.bias"), "[1, 1, 1]");
    for (int i = 0; i < 100; ++i) {
        snprintf(name, sizeof name, "x%d", i);
        tg_dict_set(d, name, tg_zeros(TG_SCALAR));
    }
    CHECK_FAILS(tg_module_load_state(m, d, true), "unexpected: x0, x1, x2");
    tg_module_load_state(m, d, true);
    CHECK(strstr(tg_error_message(), " more") != NULL);
    tg_clear_error();
    CHECK_FAILS(tg_module_load_state(NULL, d, true), "argument m is NULL");
    CHECK_FAILS(tg_module_load_state(m, NULL, true), "argument dict is NULL");
    tg_dict_free(d);
    tg_module_free(m);
}

/* What the handler is told by a load that is not strict: "" for nothing. */
static const char *told(tg_module *m, tg_dict *d)
{
    warned[0] = 0;
    tg_set_error_handler(keep_warning, NULL);
    CHECK(tg_module_load_state(m, d, false) == TG_OK);
    tg_set_error_handler(NULL, NULL);
    return warned;
}

TEST(what_a_partial_load_leaves_out)
{
    tg_module *m = net_new(2, 3, 1), *outer = tg_module_new("Outer", NULL, 0);
    tg_dict *d = tg_dict_new(), *missing, *unexpected;
    tg_dict_set(d, "0.weight", tg_zeros(TG_SHAPE(3, 2)));
    tg_dict_set(d, "head.weight", tg_ones(TG_SHAPE(1)));
    CHECK(strcmp(told(m, d), "warning: tg_module_load_state: not all tensors fit 'Sequential'; missing: 0.bias, 2.weight; "
                             "unexpected: head.weight") == 0);
    warnings = 0;
    tg_set_error_handler(keep_warning, NULL);
    CHECK(tg_module_load_state_ex(m, d, false, &missing, &unexpected) == TG_OK && !warnings);
    tg_set_error_handler(NULL, NULL);
    CHECK(tg_dict_count(missing) == 2 && tg_dict_get(missing, "0.bias") == tg_module_get(m, "0.bias"));
    CHECK(tg_dict_count(unexpected) == 1 && tg_dict_get(unexpected, "head.weight") == tg_dict_get(d, "head.weight"));
    tg_dict_free(missing), tg_dict_free(unexpected);
    CHECK(tg_module_load_state_ex(m, d, false, NULL, NULL) == TG_OK);
    CHECK_FAILS(tg_module_load_state_ex(m, d, true, &missing, &unexpected), "missing: 0.bias, 2.weight; unexpected: head");
    CHECK(missing == NULL && unexpected == NULL);
    CHECK_FAILS(tg_module_load_state_ex(m, NULL, false, &missing, NULL), "argument dict is NULL");
    tg_dict_free(d);
    d = tg_module_state(m);
    CHECK(!*told(m, d)); /* all fit */
    CHECK(tg_module_load_state_ex(m, d, true, &missing, &unexpected) == TG_OK);
    CHECK(missing && tg_dict_count(missing) == 0 && unexpected && tg_dict_count(unexpected) == 0);
    tg_dict_free(missing), tg_dict_free(unexpected);
    tg_dict_free(d);
    d = tg_dict_new();
    for (int i = 0; i < tg_module_count(m); ++i) {
        char name[100];
        snprintf(name, sizeof name, "module.%s", tg_module_path(m, i));
        tg_dict_set(d, name, tg_module_params(m)[i]);
    }
    CHECK(strstr(told(m, d), "nothing was loaded, since no path fits 'Sequential'; missing: 0.weight, 0.bias, 2.weight"));
    CHECK(strstr(warned, "\n  hint: the paths of the dictionary begin with 'module.'"));
    CHECK_FAILS(tg_module_load_state(m, d, true), "\n  hint: the paths of the dictionary begin with 'module.': tg_dict_rename changes them");
    tg_dict_free(d);
    d = tg_module_state(m);
    tg_module_child(outer, "net", m);
    CHECK(strstr(told(outer, d), "\n  hint: the paths of the module begin with 'net.': tg_dict_rename can add that"));
    tg_dict_free(d);
    CHECK(tg_checkpoint_save(path, outer, NULL, 7) == TG_OK);
    CHECK_FAILS(tg_module_load(outer, path), "this is a checkpoint, not the state of 'Outer'\n  hint: tg_checkpoint_load reads it");
    tg_module_free(outer);
    remove(path);
}

TEST(a_file)
{
    tg_module *a = net_new(2, 3, 1), *b = net_new(2, 3, 1), *c = net_new(2, 4, 1);
    tg_dict *d;
    CHECK(tg_module_save(a, path) == TG_OK && tg_module_load(b, path) == TG_OK && bits_of(a) == bits_of(b));
    CHECK(tg_device_equal(tg_device_of(tg_module_get(b, "0.bias")), HERE));
    d = tg_safetensors_load(path);
    CHECK(tg_dict_count(d) == 3 && tg_dict_get(d, "0.bias"));
    tg_dict_free(d);
    CHECK_FAILS(tg_module_load(c, path),
                "tg_module_load: these tensors do not fit 'Sequential': 0.weight is [3, 2], not [4, 2]");
    CHECK_FAILS(tg_module_load(b, "no such file"), "tg_module_load: 'no such file'");
    CHECK_FAILS(tg_module_load(b, NULL), "argument path is NULL");
    CHECK_FAILS(tg_module_save(b, NULL), "argument path is NULL");
    CHECK_FAILS(tg_module_save(NULL, path), "argument m is NULL");
    CHECK_FAILS(tg_module_load(NULL, path), "argument m is NULL");
    CHECK_FAILS(tg_module_save(a, "no such folder/x"), "no such folder");
    remove(path);
    tg_module_free(a), tg_module_free(b), tg_module_free(c);
}

/* A module gets the bytes of a file, from an address that is aligned for no element, and keeps none of them. */
TEST(a_file_in_memory)
{
    char bytes[2000];
    tg_module *a = net_new(2, 3, 1), *b = net_new(2, 3, 1), *c = net_new(2, 4, 1);
    CHECK(tg_module_save(a, path) == TG_OK);
    FILE *file = fopen(path, "rb");
    const size_t size = file ? fread(bytes + 1, 1, sizeof bytes - 1, file) : 0;
    if (file) fclose(file);
    CHECK(bits_of(a) != bits_of(b) && tg_module_load_from(b, bytes + 1, size) == TG_OK && bits_of(a) == bits_of(b));
    memset(bytes + 1 + size - 8, 0, 8);
    CHECK(bits_of(a) == bits_of(b) && tg_fill_(tg_detach(tg_module_get(b, "0.bias")), 0) != NULL);
    CHECK(tg_module_load_from(a, bytes + 1, size) == TG_OK && bits_of(a) != bits_of(b));
    CHECK_FAILS(tg_module_load_from(c, bytes + 1, size),
                "tg_module_load_from: these tensors do not fit 'Sequential': 0.weight is [3, 2], not [4, 2]");
    CHECK_FAILS(tg_module_load_from(b, bytes + 1, size - 1), "tg_module_load_from: 'bytes in memory': the file ends too early");
    CHECK_FAILS(tg_module_load_from(b, NULL, 0), "tg_module_load_from: argument data is NULL");
    CHECK_FAILS(tg_module_load_from(NULL, bytes + 1, size), "argument m is NULL");
    remove(path);
    tg_module_free(a), tg_module_free(b), tg_module_free(c);
}

/* Reads what tg_module_export_c has printed to path: the numbers behind "= {{".  Returns how many. */
static size_t read_exported(unsigned char *bytes, size_t most)
{
    static char text[20000];
    FILE *file = fopen(path, "rb");
    const size_t n = file ? fread(text, 1, sizeof text - 1, file) : 0;
    char *at, *end;
    size_t count = 0;
    if (file) fclose(file);
    text[n] = 0;
    at = strstr(text, "= {{");
    for (at = at ? at + 4 : text + n; count < most; at = end + 1) {
        const long value = strtol(at, &end, 10);
        if (end == at) break;
        bytes[count++] = (unsigned char)value;
        if (*end != ',') break;
    }
    return count;
}

static tg_status export_to_path(tg_module *m, const char *mode, const char *name)
{
    FILE *file = fopen(path, mode);
    const tg_status status = tg_module_export_c(file, m, name);
    if (file) fclose(file);
    return status;
}

/* The array has the bytes of the file, the same each time, and a program can go without a copy of them. */
TEST(weights_as_c)
{
    static double aligned[300];
    unsigned char *bytes = (unsigned char *)aligned, whole[2000], again[2000];
    tg_module *a = net_new(2, 3, 1), *b = net_new(2, 3, 1), *none = tg_module_new("None", NULL, 0);
    CHECK(tg_module_save(a, path) == TG_OK);
    FILE *file = fopen(path, "rb");
    const size_t size = file ? fread(whole, 1, sizeof whole, file) : 0;
    if (file) fclose(file);
    CHECK(size > 100 && export_to_path(a, "wb", "net") == TG_OK);
    CHECK(read_exported(bytes, sizeof aligned) == size && memcmp(bytes, whole, size) == 0);
    CHECK(export_to_path(a, "wb", "_Net9") == TG_OK && read_exported(again, sizeof again) == size);
    CHECK(memcmp(again, whole, size) == 0 && bits_of(a) != bits_of(b));
    CHECK(tg_module_load_from(b, bytes, size) == TG_OK && bits_of(a) == bits_of(b));
    CHECK(export_to_path(none, "wb", "net") == TG_OK && tg_module_load_from(none, bytes, read_exported(bytes, sizeof aligned)) == TG_OK);
    CHECK_FAILS(tg_module_export_c(NULL, a, "net"), "tg_module_export_c: argument file is NULL");
    CHECK_FAILS(tg_module_export_c(stdout, NULL, "net"), "argument m is NULL");
    CHECK_FAILS(tg_module_export_c(stdout, a, NULL), "argument name is NULL");
    CHECK_FAILS(tg_module_export_c(stdout, a, ""), "'' is no identifier of C");
    CHECK_FAILS(tg_module_export_c(stdout, a, "9net"), "'9net' is no identifier of C");
    CHECK_FAILS(tg_module_export_c(stdout, a, "n; x"), "'n; x' is no identifier of C");
    CHECK_FAILS(export_to_path(a, "rb", "net"), "tg_module_export_c: ");
    CHECK(export_to_path(a, "rb", "net") == TG_ERR_IO);
    tg_clear_error();
    remove(path);
    tg_module_free(a), tg_module_free(b), tg_module_free(none);
}

/* Each allocation fails once, and the next try succeeds. */
static bool export_scenario(void)
{
    TG_SCOPE;
    tg_module *a = net_new(2, 3, 1), *b = net_new(2, 3, 1);
    unsigned char bytes[2000];
    bool ok = a && b && tg_module_buffer(a, "t", tg_t(tg_ones(TG_SHAPE(3, 2)))) && /* which is copied to be written */
              tg_module_buffer(b, "t", tg_zeros(TG_SHAPE(2, 3)));
    ok = ok && export_to_path(a, "wb", "net") == TG_OK;
    ok = ok && tg_module_load_from(b, bytes, read_exported(bytes, sizeof bytes)) == TG_OK;
    remove(path);
    if (a) tg_module_free(a);
    if (b) tg_module_free(b);
    return ok;
}

/* A module whose tensors are read-only memory takes no state, and keeps what it has. */
TEST(a_module_of_read_only_memory)
{
    static const float weight[2] = {1, 2};
    tg_module *a = tg_module_new("A", NULL, 0), *b = tg_module_new("B", NULL, 0);
    tg_module_param(a, "first", tg_ones(TG_SHAPE(2)));
    tg_module_param(a, "weight", tg_to(tg_wrap_const(weight, TG_SHAPE(2), TG_F32, NULL, NULL), TG_CPU));
    tg_module_param(b, "first", tg_zeros(TG_SHAPE(2)));
    tg_module_param(b, "weight", tg_zeros(TG_SHAPE(2)));
    const uint64_t before = bits_of(a);
    CHECK_FAILS(tg_module_copy_(a, b), "tg_module_copy_: the memory of the tensor 'weight', of shape [2], is read-only");
    CHECK(bits_of(a) == before && weight[0] == 1 && weight[1] == 2);
    CHECK(tg_module_copy_(b, a) == TG_OK && bits_of(b) == before);
    tg_module_free(a), tg_module_free(b);
}

/* A tied tensor is written under both of its names, as PyTorch does, and may be read under one. */
TEST(tied_tensors)
{
    tg_module *m = net_new(2, 3, 1), *head = tg_module_child(m, "head", tg_module_new("Head", NULL, 0));
    tg_dict *d;
    tg_module_param(head, "weight", tg_module_get(m, "0.weight"));
    d = tg_module_state(m);
    CHECK(tg_dict_count(d) == 4 && tg_dict_get(d, "head.weight") == tg_dict_get(d, "0.weight"));
    tg_dict_remove(d, "head.weight");
    CHECK(tg_module_load_state(m, d, true) == TG_OK);
    tg_dict_remove(d, "0.weight");
    CHECK_FAILS(tg_module_load_state(m, d, true), "missing: 0.weight, head.weight");
    tg_dict_free(d);
    CHECK(tg_module_save(m, path) == TG_OK && tg_module_load(m, path) == TG_OK);
    remove(path);
    tg_module_free(m);
}

/* ---- checkpoints ---- */

enum { STEPS = 12, STOP = 5 };

/* Trains up to step `end`, with dropout, in batches of a shuffled loader. */
static void train(tg_module *m, tg_optim *opt, tg_loader *loader, int64_t step, int64_t end)
{
    while (step < end) {
        TG_SCOPE;
        tg_tensor *batch[1];
        if (!tg_loader_next(loader, batch)) continue;
        tg_optim_zero_grad(opt);
        CHECK(tg_backward(tg_mean(tg_square(tg_forward(m, tg_dropout(batch[0], 0.2, true))))) == TG_OK);
        CHECK(tg_step(opt) == TG_OK);
        step++;
    }
}

static tg_optim *optim_of(tg_module *m, int kind)
{
    tg_tensor *const *params = tg_module_params(m);
    const int n = tg_module_count(m);
    tg_optim *opt = kind == 0   ? tg_sgd(params, n, 0.1)
                    : kind == 1 ? tg_adamw(params, n, 0.01)
                                : tg_rmsprop(params, n, 0.01);
    opt->momentum = 0.9;
    if (kind == 1) opt->amsgrad = true;
    return opt;
}

static tg_loader *loader_of(tg_tensor *data)
{
    tg_seed(11);
    return tg_loader_new(&data, 1, 4, TG_SHUFFLE, HERE);
}

/* A run that stops at step STOP and goes on in new objects has the bits of one that does not. */
TEST(resumed_bit_for_bit)
{
    tg_tensor *data = tg_randn(TG_SHAPE(30, 2));
    for (int kind = 0; kind < 3; ++kind) {
        tg_loader *loader = loader_of(data);
        tg_module *a = net_new(2, 3, 1), *b;
        tg_optim *opt = optim_of(a, kind);
        train(a, opt, loader, 0, STOP);
        opt->lr *= 0.5;
        CHECK(tg_checkpoint_save(path, a, opt, STOP) == TG_OK);
        train(a, opt, loader, STOP, STEPS);
        tg_optim_free(opt), tg_loader_free(loader);
        loader = loader_of(data);
        b = net_new(2, 3, 1);
        tg_seed(77); /* the file brings the random numbers back */
        opt = optim_of(b, kind);
        int64_t step = 0;
        CHECK(tg_checkpoint_load(path, b, opt, &step) == TG_OK && step == STOP &&
              tg_loader_seek(loader, step) == TG_OK);
        train(b, opt, loader, step, STEPS);
        CHECK(bits_of(a) == bits_of(b) && bits_of(a) != 0);
        tg_optim_free(opt), tg_loader_free(loader);
        tg_module_free(a), tg_module_free(b);
    }
    remove(path);
}

/* On another device, in another dtype: the same values, as near as these have them. */
TEST(resumed_elsewhere)
{
    tg_tensor *data = tg_randn(TG_SHAPE(30, 2));
    tg_module *a = net_new(2, 3, 1), *b = net_new(2, 3, 1);
    tg_optim *opt = optim_of(a, 1), *other = optim_of(b, 1);
    tg_loader *loader = loader_of(data);
    const tg_device device = tg_cuda_device_count() > 0 ? TG_CUDA(0) : TG_CPU;
    train(a, opt, loader, 0, STOP);
    CHECK(tg_checkpoint_save(path, a, opt, STOP) == TG_OK);
    CHECK(tg_module_to(b, device) == b && tg_module_to_dtype(b, TG_F64) == b);
    ROW(1.124)
    {
        CHECK(tg_checkpoint_load(path, b, other, NULL) == TG_OK && tg_is_leaf(tg_module_get(b, "0.weight")));
        for (int i = 0; i < tg_module_count(a); ++i)
            tg_set_grad(tg_module_params(a)[i], tg_ones_like(tg_module_params(a)[i])),
                tg_set_grad(tg_module_params(b)[i], tg_ones_like(tg_module_params(b)[i]));
        CHECK(tg_step(opt) == TG_OK && tg_step(other) == TG_OK);
        CHECK(tg_allclose(tg_to(tg_to_dtype(tg_module_get(b, "0.weight"), TG_F32), HERE), tg_module_get(a, "0.weight"),
                          1e-5, 1e-6));
    }
    tg_optim_free(opt), tg_optim_free(other), tg_loader_free(loader);
    tg_module_free(a), tg_module_free(b);
    remove(path);
}

static size_t read_bytes(unsigned char *bytes, size_t most)
{
    FILE *file = fopen(path, "rb");
    const size_t size = file ? fread(bytes, 1, most, file) : 0;
    if (file) fclose(file);
    return size;
}

/* What the bytes of a checkpoint restore is what the file does: parameters, steps, random numbers, the state of the
   optimizer; and they can be lost after the call. */
TEST(a_checkpoint_in_memory)
{
    static unsigned char bytes[10000];
    tg_tensor *data = tg_randn(TG_SHAPE(30, 2));
    for (int kind = 0; kind < 3; ++kind) {
        tg_module *m[2] = {net_new(2, 3, 1), net_new(2, 3, 1)};
        tg_optim *opt[2] = {optim_of(m[0], kind), optim_of(m[1], kind)};
        tg_loader *loader = loader_of(data);
        int64_t step = 0;
        train(m[0], opt[0], loader, 0, STOP);
        tg_loader_free(loader);
        CHECK(tg_checkpoint_save(path, m[0], opt[0], STOP) == TG_OK);
        const size_t size = read_bytes(bytes + 1, sizeof bytes - 1);
        const tg_rng rng = tg_rng_state();
        tg_seed(77);
        CHECK(bits_of(m[0]) != bits_of(m[1]));
        CHECK(tg_checkpoint_load_from(bytes + 1, size, m[1], opt[1], &step) == TG_OK && step == STOP);
        CHECK(bits_of(m[0]) == bits_of(m[1]) && tg_rng_state().seed == rng.seed && tg_rng_state().offset == rng.offset);
        memset(bytes, 0, sizeof bytes);
        for (int i = 0; i < 2; ++i) {
            loader = loader_of(data);
            tg_rng_set_state(rng);
            CHECK(tg_loader_seek(loader, STOP) == TG_OK);
            train(m[i], opt[i], loader, STOP, STEPS);
            tg_loader_free(loader);
        }
        CHECK(bits_of(m[0]) == bits_of(m[1]));
        for (int i = 0; i < 2; ++i) tg_optim_free(opt[i]), tg_module_free(m[i]);
    }
    tg_module *m = net_new(2, 3, 1);
    CHECK(tg_checkpoint_save(path, m, NULL, 3) == TG_OK);
    const size_t size = read_bytes(bytes, sizeof bytes);
    CHECK(tg_checkpoint_load_from(bytes, size, m, NULL, NULL) == TG_OK);
    CHECK_FAILS(tg_checkpoint_load_from(NULL, 0, m, NULL, NULL), "tg_checkpoint_load_from: argument data is NULL");
    CHECK_FAILS(tg_checkpoint_load_from(bytes, size, NULL, NULL, NULL), "tg_checkpoint_load_from: argument m is NULL");
    CHECK_FAILS(tg_checkpoint_load_from(bytes, size - 1, m, NULL, NULL), "'bytes in memory': the file ends too early");
    CHECK(tg_module_save(m, path) == TG_OK);
    CHECK_FAILS(tg_checkpoint_load_from(bytes, read_bytes(bytes, sizeof bytes), m, NULL, NULL),
                "'bytes in memory': this file is no checkpoint: it has no 'rng' of 2 i64");
    tg_module_free(m);
    remove(path);
}

/* The last error without the names of what was read and of the function. */
static const char *said(char text[1000])
{
    static const char *const names[] = {"'bytes in memory'", "tg_checkpoint_load_from", "tg_checkpoint_load"};
    snprintf(text, 1000, "%s", tg_error_message());
    for (int i = 0; i < 4; ++i) {
        char name[1010];
        snprintf(name, sizeof name, "'%s'", path);
        const char *wanted = i < 3 ? names[i] : name;
        char *at = strstr(text, wanted);
        if (at) memmove(at, at + strlen(wanted), strlen(at + strlen(wanted)) + 1);
    }
    return text;
}

/* Of each beginning of a checkpoint, and of each that differs in a bit, the file and the bytes give one result: the
   module as it was and the same error, or the same parameters. */
TEST(checkpoints_that_are_damaged)
{
    static const unsigned char bits[] = {1, 16, 128};
    static unsigned char whole[2000], bytes[2000];
    tg_module *saved = tg_nn_linear(2, 1, true), *a = tg_nn_linear(2, 1, true), *b = tg_nn_linear(2, 1, true);
    size_t bad = 0, refusals = 0;
    CHECK(tg_checkpoint_save(path, saved, NULL, 3) == TG_OK);
    const size_t size = read_bytes(whole, sizeof whole);
    CHECK(size > 100 && size < sizeof whole);
    for (size_t i = 0; i < 4 * size; ++i) {
        const tg_mark mark = tg_scope_begin();
        const size_t n = i < size ? i : size, at = (i - size) / 3;
        char first[1000], second[1000];
        int64_t steps[2] = {0, 0};
        memcpy(bytes, whole, size);
        if (i >= size) bytes[at] = (unsigned char)(bytes[at] ^ bits[i % 3]);
        FILE *file = fopen(path, "wb");
        bad += !file || fwrite(bytes, 1, n, file) != n;
        if (file) fclose(file);
        tg_module_copy_(b, a);
        const uint64_t before = bits_of(a);
        tg_clear_error();
        const tg_status of_file = tg_checkpoint_load(path, a, NULL, &steps[0]);
        said(first);
        tg_clear_error();
        const tg_status of_bytes = tg_checkpoint_load_from(bytes, n, b, NULL, &steps[1]);
        bad += of_file != of_bytes || strcmp(first, said(second)) || steps[0] != steps[1] || bits_of(a) != bits_of(b);
        bad += of_file != TG_OK && bits_of(a) != before;
        bad += i < size && of_file != TG_ERR_FORMAT;
        refusals += of_file != TG_OK;
        tg_clear_error();
        tg_scope_end(mark);
    }
    CHECK(bad == 0 && refusals > size && refusals < 4 * size);
    tg_module_free(saved), tg_module_free(a), tg_module_free(b);
    remove(path);
}

TEST(checkpoints_that_do_not_fit)
{
    tg_module *a = net_new(2, 3, 1), *b = net_new(2, 4, 1);
    tg_optim *sgd = optim_of(a, 0), *adam = optim_of(a, 1);
    const tg_rng rng = tg_rng_state();
    int64_t step = 3;
    CHECK(tg_checkpoint_save(path, a, sgd, 7) == TG_OK);
    tg_seed(rng.seed + 1);
    const tg_rng now = tg_rng_state();
    const uint64_t bits = bits_of(b);
    CHECK_FAILS(tg_checkpoint_load(path, b, NULL, &step), "these tensors do not fit 'Sequential'");
    CHECK_FAILS(tg_checkpoint_load(path, a, adam, &step), "tg_checkpoint_load");
    CHECK(step == 3 && tg_rng_state().seed == now.seed && bits_of(b) == bits);
    CHECK(tg_checkpoint_load(path, a, NULL, &step) == TG_OK && step == 7 && tg_rng_state().seed == rng.seed);
    CHECK(tg_module_save(a, path) == TG_OK);
    CHECK_FAILS(tg_checkpoint_load(path, a, NULL, NULL), "this file is no checkpoint: it has no 'rng' of 2 i64");
    CHECK_FAILS(tg_checkpoint_load("no such file", a, NULL, NULL), "no such file");
    CHECK_FAILS(tg_checkpoint_load(path, NULL, NULL, NULL), "argument m is NULL");
    CHECK_FAILS(tg_checkpoint_save(path, NULL, NULL, 0), "argument m is NULL");
    CHECK_FAILS(tg_checkpoint_save(NULL, a, NULL, 0), "argument path is NULL");
    tg_optim_free(sgd), tg_optim_free(adam);
    tg_module_free(a), tg_module_free(b);
    remove(path);
}

/* ---- several modules and optimizers in one checkpoint ---- */

/* Two networks that train each other, with random numbers in each step. */
typedef struct { tg_module *generator, *discriminator; tg_optim *of_generator, *of_discriminator; } gan;

static gan gan_new(void)
{
    gan made;
    made.generator = net_new(3, 5, 2), made.discriminator = net_new(2, 4, 1);
    made.of_generator = optim_of(made.generator, 1), made.of_discriminator = optim_of(made.discriminator, 0);
    made.of_discriminator->lr = 0.01;
    return made;
}

static void gan_free(gan *n)
{
    tg_optim_free(n->of_generator), tg_optim_free(n->of_discriminator);
    tg_module_free(n->generator), tg_module_free(n->discriminator);
}

static void gan_parts(const gan *n, tg_checkpoint_part parts[2])
{
    const tg_checkpoint_part made[2] = {{"generator", n->generator, n->of_generator},
                                        {"discriminator", n->discriminator, n->of_discriminator}};
    memcpy(parts, made, sizeof made);
}

/* Trains to step `end`; stores the losses of both in curve [2] as bits. */
static void gan_train(const gan *n, int64_t step, int64_t end, uint64_t *curve)
{
    for (; step < end; ++step) {
        TG_SCOPE;
        tg_tensor *real = tg_mul_scalar(tg_randn(TG_SHAPE(6, 2)), 0.5), *ones = tg_ones(TG_SHAPE(6, 1)), *made, *loss;
        made = tg_forward(n->generator, tg_randn(TG_SHAPE(6, 3)));
        loss = tg_binary_cross_entropy_with_logits(tg_forward(n->discriminator, real), ones, NULL, TG_MEAN, NULL);
        loss = tg_add(loss, tg_binary_cross_entropy_with_logits(tg_forward(n->discriminator, tg_detach(made)),
                                                                tg_zeros_like(ones), NULL, TG_MEAN, NULL));
        tg_optim_zero_grad(n->of_discriminator);
        CHECK(tg_backward(loss) == TG_OK && tg_step(n->of_discriminator) == TG_OK);
        curve[0] = harness_mix_tensor(curve[0], loss);
        loss = tg_binary_cross_entropy_with_logits(tg_forward(n->discriminator, made), ones, NULL, TG_MEAN, NULL);
        tg_optim_zero_grad(n->of_generator);
        CHECK(tg_backward(loss) == TG_OK && tg_step(n->of_generator) == TG_OK);
        curve[1] = harness_mix_tensor(curve[1], loss);
    }
}

/* Goes on from the file to the end, and prints the losses' bits, and those of the parameters, to file. */
static int gan_resume(const char *from, FILE *file)
{
    gan n = gan_new();
    tg_checkpoint_part parts[2];
    uint64_t curve[2] = {HARNESS_HASH, HARNESS_HASH};
    int64_t step = 0;
    gan_parts(&n, parts);
    tg_seed(123);
    n.of_generator->lr = 7;
    const bool ok = tg_checkpoint_load_n(from, parts, 2, &step) == TG_OK && step == STOP;
    gan_train(&n, step, STEPS, curve);
    if (ok && tg_ok())
        fprintf(file, "%016llx %016llx %016llx %016llx\n", (unsigned long long)curve[0], (unsigned long long)curve[1],
                (unsigned long long)bits_of(n.generator), (unsigned long long)bits_of(n.discriminator));
    gan_free(&n);
    return !(ok && tg_ok());
}

static void first_line(FILE *file, char text[100])
{
    text[0] = 0;
    if (!file) return;
    rewind(file);
    if (!fgets(text, 100, file)) text[0] = 0;
    fclose(file);
}

/* Another process of this program goes on from the file, as --resume says; false if none can be started. */
static bool elsewhere_resumed(char text[100])
{
#if defined(__unix__) || defined(__APPLE__)
    char command[4000], out[1200];
    snprintf(out, sizeof out, "%s.resumed", path);
    snprintf(command, sizeof command, "'%.1400s' --resume '%s' > '%s' 2>/dev/null", harness.program, path, out);
    if (strchr(out, '\'') || strchr(harness.program, '\'')) return false;
    const int status = system(command);
    first_line(fopen(out, "rb"), text);
    remove(out);
    if (status == 0) return CHECK(text[0] != 0);
#else
    (void)text;
#endif
    puts("skipped: another process that resumes: this program cannot be started from within");
    return false;
}

/* A run of two that stops goes on to the bit: the losses of both, and their parameters, here and in another process. */
TEST(several_resumed_bit_for_bit)
{
    gan n = gan_new();
    tg_checkpoint_part parts[2];
    uint64_t curve[2] = {HARNESS_HASH, HARNESS_HASH}, rest[2] = {HARNESS_HASH, HARNESS_HASH};
    char wanted[100], text[100];
    gan_parts(&n, parts);
    gan_train(&n, 0, STOP, curve);
    n.of_generator->lr *= 0.5;
    CHECK(tg_checkpoint_save_n(path, parts, 2, STOP) == TG_OK);
    gan_train(&n, STOP, STEPS, rest);
    snprintf(wanted, sizeof wanted, "%016llx %016llx %016llx %016llx\n", (unsigned long long)rest[0],
             (unsigned long long)rest[1], (unsigned long long)bits_of(n.generator),
             (unsigned long long)bits_of(n.discriminator));
    FILE *file = tmpfile();
    CHECK(file && gan_resume(path, file) == 0);
    first_line(file, text);
    CHECK(strcmp(text, wanted) == 0);
    if (elsewhere_resumed(text)) CHECK(strcmp(text, wanted) == 0);
    gan_free(&n);
    remove(path);
}

/* The names in the file; a part alone, a module or an optimizer alone; a file of one is not one of several. */
TEST(parts_of_a_checkpoint)
{
    gan n = gan_new(), other = gan_new();
    tg_checkpoint_part parts[2], one;
    uint64_t curve[2] = {0, 0};
    int64_t step = 0;
    gan_parts(&n, parts);
    gan_train(&n, 0, 2, curve);
    CHECK(tg_checkpoint_save_n(path, parts, 2, 2) == TG_OK);
    tg_dict *d = tg_safetensors_load(path);
    CHECK(tg_dict_get(d, "module.generator.0.weight") && tg_dict_get(d, "module.discriminator.2.weight"));
    CHECK(tg_dict_get(d, "optim.generator.adamw.lr") && tg_dict_get(d, "optim.discriminator.sgd.state.0.step"));
    CHECK(tg_dict_get(d, "rng") && tg_item_i64(tg_dict_get(d, "step")) == 2);
    tg_dict_free(d);
    const uint64_t bits = bits_of(other.discriminator);
    one = parts[0], one.module = other.generator, one.optim = NULL;
    CHECK(tg_checkpoint_load_n(path, &one, 1, &step) == TG_OK && step == 2);
    CHECK(bits_of(other.generator) == bits_of(n.generator) && bits_of(other.discriminator) == bits);
    one = parts[0], one.module = NULL, one.optim = other.of_generator;
    other.of_generator->lr = 3;
    CHECK(tg_checkpoint_load_n(path, &one, 1, NULL) == TG_OK && other.of_generator->lr == 0.01);
    CHECK(tg_checkpoint_load_n(path, NULL, 0, &step) == TG_OK && tg_checkpoint_save_n(path, NULL, 0, 9) == TG_OK);
    CHECK(tg_checkpoint_load_n(path, NULL, 0, &step) == TG_OK && step == 9);
    CHECK(tg_checkpoint_save(path, n.generator, NULL, 1) == TG_OK);
    one = parts[0], one.optim = NULL;
    CHECK_FAILS(tg_checkpoint_load_n(path, &one, 1, NULL), "missing: generator.0.weight");
    gan_free(&n), gan_free(&other);
    remove(path);
}

/* Of several parts none changes when one does not fit. */
TEST(parts_that_do_not_fit)
{
    gan n = gan_new(), other = gan_new();
    tg_checkpoint_part parts[2], wrong[2];
    uint64_t curve[2] = {0, 0};
    int64_t step = 3;
    gan_parts(&n, parts), gan_parts(&other, wrong);
    gan_train(&n, 0, 2, curve);
    CHECK(tg_checkpoint_save_n(path, parts, 2, 2) == TG_OK);
    tg_seed(5);
    const uint64_t bits = bits_of(other.generator);
    tg_module *wide = net_new(2, 9, 1);
    tg_optim *adam = optim_of(other.discriminator, 2);
    other.of_generator->lr = 3;
    wrong[1].module = wide, wrong[1].optim = NULL;
    CHECK_FAILS(tg_checkpoint_load_n(path, wrong, 2, &step),
                "these tensors do not fit 'the parts': discriminator.0.weight is [4, 2], not [9, 2]");
    wrong[1].module = other.discriminator, wrong[1].optim = adam;
    CHECK_FAILS(tg_checkpoint_load_n(path, wrong, 2, &step), "the optimizer is rmsprop, but there is the state of sgd");
    CHECK(bits_of(other.generator) == bits && other.of_generator->lr == 3 && step == 3 && tg_rng_state().seed == 5);
    wrong[1] = parts[1], wrong[1].name = "generator";
    CHECK_FAILS(tg_checkpoint_load_n(path, wrong, 2, NULL), "parts 0 and 1 have the same name, 'generator'");
    CHECK_FAILS(tg_checkpoint_save_n(path, wrong, 2, 0), "tg_checkpoint_save_n: parts 0 and 1 have the same name");
    wrong[1].name = "";
    CHECK_FAILS(tg_checkpoint_save_n(path, wrong, 2, 0), "part 1: a name has 1 to 100 bytes and no dot: ''");
    wrong[1].name = "a.b";
    CHECK_FAILS(tg_checkpoint_save_n(path, wrong, 2, 0), "no dot: 'a.b'");
    wrong[1].name = NULL;
    CHECK_FAILS(tg_checkpoint_save_n(path, wrong, 2, 0), "argument parts.name is NULL");
    CHECK_FAILS(tg_checkpoint_save_n(path, NULL, 2, 0), "tg_checkpoint_save_n: argument parts is NULL");
    CHECK_FAILS(tg_checkpoint_load_n(path, parts, -1, NULL), "a checkpoint of -1 parts cannot be");
    CHECK_FAILS(tg_checkpoint_load_n("no such file", parts, 2, NULL), "no such file");
    CHECK_FAILS(tg_checkpoint_save_n(NULL, parts, 2, 0), "argument path is NULL");
    tg_optim_free(adam), tg_module_free(wide);
    gan_free(&n), gan_free(&other);
    remove(path);
}

/* A state, a file and a checkpoint of n parameters; what is missing and unexpected is found as well. */
static void many_parameters(int n)
{
    tg_module *m = tg_module_new("Many", NULL, 0);
    char name[20];
    bool ok = true;
    for (int i = 0; i < n; ++i) {
        snprintf(name, sizeof name, "p%d", i);
        ok = ok && tg_module_param(m, name, tg_zeros(TG_SHAPE(1)));
    }
    tg_optim *opt = tg_adam(tg_module_params(m), tg_module_count(m), 0.1);
    tg_dict *d = tg_module_state(m), *none = tg_dict_new();
    ok = ok && tg_dict_count(d) == n && tg_module_load_state(m, d, true) == TG_OK;
    ok = ok && tg_module_save(m, path) == TG_OK && tg_module_load(m, path) == TG_OK;
    ok = ok && tg_checkpoint_save(path, m, opt, 1) == TG_OK && tg_checkpoint_load(path, m, opt, NULL) == TG_OK;
    CHECK(ok);
    CHECK_FAILS(tg_module_load_state(m, none, true), "missing: p0, p1,");
    tg_dict_free(d), tg_dict_free(none), tg_optim_free(opt), tg_module_free(m);
    remove(path);
}

TEST(parameters_are_found_without_a_search) { grows_in_proportion("parameters in files", many_parameters); }

static bool oom_scenario(void)
{
    tg_module *a = net_new(2, 3, 1), *b = net_new(2, 3, 1);
    bool ok = a && b && tg_module_to_dtype(b, TG_F64) && tg_module_save(a, path) == TG_OK;
    ok = ok && tg_module_load(b, path) == TG_OK && tg_module_copy_(a, b) == TG_OK;
    tg_optim *opt = ok ? tg_adam(tg_module_params(a), tg_module_count(a), 0.1) : NULL;
    ok = opt && tg_backward(tg_sum(tg_forward(a, tg_ones(TG_SHAPE(1, 2))))) == TG_OK && tg_step(opt) == TG_OK;
    ok = ok && tg_checkpoint_save(path, a, opt, 1) == TG_OK && tg_checkpoint_load(path, a, opt, NULL) == TG_OK;
    unsigned char bytes[10000];
    ok = ok && tg_checkpoint_load_from(bytes, read_bytes(bytes, sizeof bytes), a, opt, NULL) == TG_OK;
    const tg_checkpoint_part parts[2] = {{"a", a, opt}, {"b", b, NULL}};
    ok = ok && tg_checkpoint_save_n(path, parts, 2, 1) == TG_OK && tg_checkpoint_load_n(path, parts, 2, NULL) == TG_OK;
    tg_optim_free(opt);
    tg_module_free(a), tg_module_free(b);
    remove(path);
    return ok && tg_ok();
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    harness_take_device();
    if (argc == 3 && strcmp(argv[1], "--resume") == 0) return gan_resume(argv[2], stdout);
    snprintf(path, sizeof path, "%s", beside("save.safetensors"));
    if (!harness.only) out_of_memory(oom_scenario), out_of_memory(export_scenario);
    RUN(state);
    RUN(copies);
    RUN(what_does_not_fit_is_one_error);
    RUN(what_a_partial_load_leaves_out);
    RUN(a_file);
    RUN(a_file_in_memory);
    RUN(a_module_of_read_only_memory);
    RUN(weights_as_c);
    RUN(tied_tensors);
    RUN(resumed_bit_for_bit);
    RUN(resumed_elsewhere);
    RUN(a_checkpoint_in_memory);
    RUN(checkpoints_that_are_damaged);
    RUN(checkpoints_that_do_not_fit);
    RUN(several_resumed_bit_for_bit);
    RUN(parts_of_a_checkpoint);
    RUN(parts_that_do_not_fit);
    RUN(parameters_are_found_without_a_search);
    CHECK(tg_shutdown() == TG_OK);
    return harness_end();
}
