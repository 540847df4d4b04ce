/* Every public function with one argument that is wrong and good ones elsewhere.  build/api_calls.h (written by
 * tests/api/declarations.c) has a call for every declaration of tensorgrad.h; this file gives the arguments:
 *
 *   every tensor, and the first of every list   NULL             "tg_mul: argument b is NULL"
 *                                               ended            "tg_mul: ... ended ..."   (with TG_DEBUG=1 alone)
 *                                               of a thread      "tg_mul: ... belongs to another thread"
 *                                               a number         "tg_mul: argument b is the number 2, not a tensor"
 *   every module, dict, loader and optimizer    NULL, ended, of a thread, a number
 *   every shape                                 of -1, 9 and 1000000 dims: "tg_zeros: ..."
 *
 * and the call with good arguments everywhere must succeed, so that the wrong one is what the others fail of. */
#if !defined(__cplusplus) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L
#endif
#include "tensorgrad.h"
#include "harness.h"
#include <pthread.h>

static const char index_shape[] = "0,0"; /* of tg_get and tg_set, whose index is a shape */

/* Parameters that may be NULL, as "function parameter". */
static const char *const may_be_null[] = {"tg_set_grad g",
                                          "tg_release t",
                                          "tg_drop t",
                                          "tg_assign y",
                                          "tg_backward_ex grads",
                                          "tg_backward_begin grads",
                                          "tg_gradients grad_outputs",
                                          "tg_stft window",
                                          "tg_istft window",
                                          "tg_complex im",
                                          "tg_linear bias",
                                          "tg_linear_gelu bias",
                                          "tg_layer_norm weight",
                                          "tg_layer_norm bias",
                                          "tg_rms_norm weight",
                                          "tg_add_layer_norm weight",
                                          "tg_add_layer_norm bias",
                                          "tg_add_rms_norm weight",
                                          "tg_batch_norm weight",
                                          "tg_batch_norm bias",
                                          "tg_instance_norm weight",
                                          "tg_instance_norm bias",
                                          "tg_group_norm weight",
                                          "tg_group_norm bias",
                                          "tg_bincount weights",
                                          "tg_bilinear bias",
                                          "tg_embedding_bag per_sample_weights",
                                          "tg_multi_margin_loss weight",
                                          "tg_multilabel_soft_margin_loss weight",
                                          "tg_cov fweights",
                                          "tg_cov aweights",
                                          "tg_diff prepend",
                                          "tg_diff append",
                                          "tg_trapezoid x",
                                          "tg_cumulative_trapezoid x",
                                          "tg_searchsorted sorter",
                                          "tg_histogram weight",
                                          "tg_conv1d bias",
                                          "tg_conv2d bias",
                                          "tg_conv3d bias",
                                          "tg_conv_transpose1d bias",
                                          "tg_conv_transpose2d bias",
                                          "tg_conv_transpose3d bias",
                                          "tg_scaled_dot_product_attention mask",
                                          "tg_scaled_dot_product_attention_ex mask",
                                          "tg_cross_entropy_ex weight",
                                          "tg_nll_loss weight",
                                          "tg_binary_cross_entropy weight",
                                          "tg_binary_cross_entropy_with_logits weight",
                                          "tg_binary_cross_entropy_with_logits pos_weight",
                                          "tg_dict_free dict",
                                          "tg_optim_free opt",
                                          "tg_loader_free loader",
                                          "tg_module_free m",
                                          "tg_checkpoint_save opt",
                                          "tg_checkpoint_load opt", "tg_checkpoint_load_from opt"};
/* Lists whose entries may be NULL, and the list itself not. */
static const char *const may_hold_null[] = {"tg_index indices", "tg_index_put indices", "tg_index_put_ indices",
                                            "tg_release_all list"};

/* Functions that fail with good arguments where there is no GPU. */
static const char *const wants_a_gpu[] = {"tg_cuda", "tg_pin_memory"};

#define COUNT(array) ((int)(sizeof(array) / sizeof(array)[0]))

static bool is_in(const char *name, const char *const *names, int n)
{
    int i;
    for (i = 0; i < n; ++i)
        if (strcmp(name, names[i]) == 0) return true;
    return false;
}

/* ---- the call that is made ---- */

typedef enum { GOOD, IS_NULL, LIST_IS_NULL, HAS_ENDED, IS_FOREIGN, IS_NUMBER, NDIM, IS_ELSEWHERE } wrong;

static struct {
    int wrong_at; /* the parameter that is wrong, or -1 */
    wrong what;
    int ndim; /* of a shape that is wrong, or the number that is passed as a tensor */
    int at;   /* the parameter that is drawn next */
    tg_ctx *ctx;
    tg_tensor *out_of_ctx;
    tg_dict *dict;
    tg_module *module;
    int hook;         /* of tg_unhook */
    char error[2000]; /* what the call recorded, "" if nothing */
} now;

#include "dlpack.h"
#include "api/draw.h"
#include "api/recipes.h"
#include "api_calls.h"

static void call_starts(void) { tg_clear_error(); }

static const api_function *function; /* that is called */
static bool is(const char *name) { return strcmp(function->name, name) == 0; }
static void made_by_hand(void) { now.at++; }

/* The record as it is when the call returns. */
static void check_void(void) { snprintf(now.error, sizeof now.error, "%s", tg_ok() ? "" : tg_error_message()); }

static void check_tensor(tg_tensor *result)
{
    check_void();
    if (result && (is("tg_param") || is("tg_retain") || is("tg_share"))) tg_release(result);
}

static void check_optim(tg_optim *result)
{
    check_void();
    tg_optim_free(result);
}

static void check_dict(tg_dict *result)
{
    check_void();
    tg_dict_free(result);
}

static tg_optim *an_optimizer; /* that draw_optim made for the call */

static void check_status(tg_status result)
{
    (void)result, check_void();
    if (is("tg_step_rows")) tg_optim_free(an_optimizer);
}

static void check_group(tg_optim_group *result)
{
    (void)result, check_void();
    tg_optim_free(an_optimizer);
}

static void check_loader(tg_loader *result)
{
    check_void();
    tg_loader_free(result);
}

static void check_module(tg_module *result)
{
    check_void();
    tg_module_free(result);
}

static void check_run(tg_backward_run *result)
{
    check_void();
    if (result) tg_backward_end(result);
}

static void check_bool(bool result) { (void)result, check_void(); }
static void check_int64(int64_t result) { (void)result, check_void(); }
static void check_size(size_t result) { (void)result, check_void(); }
static void check_double(double result) { (void)result, check_void(); }
static void check_string(const char *result) { (void)result, check_void(); }
static void check_pointer(const void *result) { (void)result, check_void(); }

static void check_dlpack(DLManagedTensorVersioned *result)
{
    check_void();
    if (result) result->deleter(result);
}

static void check_dlpack_unversioned(DLManagedTensor *result)
{
    check_void();
    if (result) result->deleter(result);
}
static void check_dtype(tg_dtype result) { (void)result, check_void(); }
static void check_shape(tg_shape result) { (void)result, check_void(); }
static void check_device(tg_device result) { (void)result, check_void(); }
static void check_mark(tg_mark result) { (void)result, check_void(); }

/* ---- tensors from text ---- */

/* "f32:2,3", filled with 0.5; "i64:2" with zeros; "i64:2=1" with ones; "!f32:2,3" requires grad. */
static tg_tensor *make_tensor(const char *recipe)
{
    static const char *const names[] = {"f32:", "f64:", "bf16:", "f16:", "i32:", "i64:", "u8:", "i8:", "i16:", "bool:"};
    bool requires_grad = *recipe == '!';
    int dtype = 0;
    tg_tensor *t;
    if (requires_grad) ++recipe;
    while (strncmp(recipe, names[dtype], strlen(names[dtype])) != 0) ++dtype;
    const char *end = recipe + strcspn(recipe, " =");
    double value = *end == '=' ? strtod(end + 1, NULL) : dtype < TG_I32 ? 0.5 : 0;
    t = tg_full_on(read_shape(strchr(recipe, ':') + 1), value, (tg_dtype)dtype, TG_CPU);
    return requires_grad ? tg_set_requires_grad(t, true) : t;
}

/* ---- the other thread: it makes a tensor when it is asked to, and keeps it ---- */

/* One of each kind of object. */
typedef struct { tg_dict *dict; tg_optim *optim; tg_loader *loader; tg_module *module; } objects;

static struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    const char *recipe; /* what is asked for; NULL: nothing */
    tg_tensor *made;
    objects own;
    bool may_end;
} other;

static void make_objects(objects *o)
{
    tg_tensor *p = tg_set_requires_grad(tg_ones(TG_SHAPE(2)), true);
    o->dict = tg_dict_new();
    o->optim = tg_sgd(&p, 1, 0.1);
    o->loader = tg_loader_new(&p, 1, 1, 0, TG_CPU);
    o->module = tg_module_new("Any", NULL, 0);
}

static void free_objects(const objects *o)
{
    tg_dict_free(o->dict), tg_optim_free(o->optim), tg_loader_free(o->loader), tg_module_free(o->module);
}

static void *other_thread(void *user)
{
    (void)user;
    pthread_mutex_lock(&other.lock);
    make_objects(&other.own);
    while (!other.may_end) {
        if (other.recipe) {
            other.made = make_tensor(other.recipe);
            other.recipe = NULL;
            pthread_cond_broadcast(&other.changed);
        }
        pthread_cond_wait(&other.changed, &other.lock);
    }
    free_objects(&other.own);
    tg_thread_end();
    pthread_mutex_unlock(&other.lock);
    return NULL;
}

static tg_tensor *make_foreign(const char *recipe)
{
    pthread_mutex_lock(&other.lock);
    other.recipe = recipe;
    pthread_cond_broadcast(&other.changed);
    while (other.recipe) pthread_cond_wait(&other.changed, &other.lock);
    pthread_mutex_unlock(&other.lock);
    return other.made;
}

static void other_end(void)
{
    pthread_mutex_lock(&other.lock);
    other.may_end = true;
    pthread_cond_broadcast(&other.changed);
    pthread_mutex_unlock(&other.lock);
    pthread_join(other.thread, NULL);
}

/* ---- drawing ---- */

static tg_tensor *draw_one(const char *name, bool is_wrong)
{
    const char *recipe = recipe_of(function->name, name, "f32:2,3");
    tg_tensor *t = NULL;
    if (is_wrong && now.what == IS_NULL) return NULL;
    if (is_wrong && now.what == IS_FOREIGN) return make_foreign(recipe);
    if (is_wrong && now.what == IS_NUMBER) return (tg_tensor *)(intptr_t)now.ndim;
    if (is_wrong && now.what == HAS_ENDED) {
        tg_mark mark = tg_scope_begin();
        t = make_tensor(recipe);
        tg_scope_end(mark);
        return t;
    }
    if (is("tg_mark_non_differentiable")) return now.out_of_ctx;
    t = make_tensor(recipe);
    if (now.what == IS_ELSEWHERE) t = tg_to(tg_detach(t), TG_CUDA(is_wrong));
    if (is("tg_release") || is("tg_release_all")) tg_retain(t);
    return t;
}

static tg_tensor *return_grad(tg_tensor *grad, void *user)
{
    (void)user;
    return grad;
}

static tg_tensor *draw_tensor(const char *name)
{
    bool is_wrong = now.at++ == now.wrong_at;
    tg_tensor *t = draw_one(name, is_wrong);
    if (is("tg_unhook") && !is_wrong) now.hook = tg_hook(t, return_grad, NULL);
    return t;
}

enum { LIST = 4 };
static tg_tensor *const *draw_tensors(const char *name)
{
    static tg_tensor *lists[4][LIST];
    static int turn;
    tg_tensor **list = lists[turn++ % 4];
    bool is_wrong = now.at++ == now.wrong_at;
    int i;
    if (is_wrong && now.what == LIST_IS_NULL) return NULL;
    for (i = 0; i < LIST; ++i) list[i] = draw_one(name, is_wrong && i == 0);
    return list;
}

static tg_tensor **draw_out_tensor(const char *name)
{
    static tg_tensor *out;
    (void)name;
    return now.at++, &out;
}

static tg_tensor **draw_out_tensors(const char *name)
{
    static tg_tensor *out[LIST];
    (void)name;
    return now.at++, out;
}

static double draw_double(const char *name) { return now.at++, harness_number(recipe_of(function->name, name, "1"), NULL); }
static int64_t draw_int64(const char *name) { return now.at++, strtoll(recipe_of(function->name, name, "1"), NULL, 10); }
static int draw_int(const char *name) { return strcmp(name, "hook") == 0 ? now.at++, now.hook : (int)draw_int64(name); }
static int draw_count(const char *name) { return (int)draw_int64(name); }
static uint64_t draw_uint64(const char *name) { return (uint64_t)draw_int64(name); }
static size_t draw_size(const char *name) { return (size_t)draw_int64(name); }
static bool draw_bool(const char *name) { return now.at++, recipe_of(function->name, name, "0")[0] == '1'; }

/* A string of a recipe, or "x"; of the last few that were drawn. */
static const char *the_file(void)
{
    static char path[1000];
    snprintf(path, sizeof path, "%s.file", harness.program);
    return path;
}

static const char *draw_string(const char *name)
{
    static char strings[4][40];
    static int turn;
    char *const string = strings[turn++ % 4];
    const char *value = recipe_of(function->name, name, strcmp(name, "equation") == 0 ? "ij,ij->ij" : "x");
    now.at++;
    if (strcmp(name, "path") == 0 && strncmp(function->name, "tg_dict_", 8) != 0) return the_file();
    snprintf(string, sizeof strings[0], "%.*s", (int)strcspn(value, " "), value);
    return string;
}

static tg_shape draw_shape(const char *name)
{
    bool is_wrong = now.at++ == now.wrong_at;
    tg_shape shape = read_shape(strcmp(name, "index") == 0 ? index_shape : recipe_of(function->name, name, ""));
    if (is_wrong) shape.ndim = now.ndim;
    return shape;
}

static tg_dtype draw_dtype(const char *name) { return (void)name, now.at++, TG_F32; }
static tg_device draw_device(const char *name) { return (void)name, now.at++, TG_CPU; }
static tg_precision draw_precision(const char *name) { return (void)name, now.at++, TG_PRECISION_F32; }
static tg_rng draw_rng(const char *name) { return (void)name, now.at++, tg_rng_state(); }
static tg_status draw_status(const char *name) { return (void)name, now.at++, TG_OK; }

/* Those to draw from if the next parameter is wrong; NULL if it is right. */
static const objects *wrong_objects(void)
{
    static objects bad;
    if (now.at++ != now.wrong_at) return NULL;
    if (now.what == IS_FOREIGN) return &other.own;
    memset(&bad, 0, sizeof bad);
    if (now.what == IS_NUMBER) {
        bad.dict = (tg_dict *)(intptr_t)now.ndim, bad.optim = (tg_optim *)(intptr_t)now.ndim;
        bad.loader = (tg_loader *)(intptr_t)now.ndim, bad.module = (tg_module *)(intptr_t)now.ndim;
    }
    if (now.what == HAS_ENDED) make_objects(&bad), free_objects(&bad);
    return &bad;
}

static tg_dict *draw_dict(const char *name)
{
    const objects *bad = wrong_objects();
    return (void)name, bad ? bad->dict : now.dict;
}

static tg_optim *draw_optim(const char *name)
{
    const objects *bad = wrong_objects();
    tg_tensor *p = tg_set_requires_grad(tg_ones(TG_SHAPE(2)), true);
    an_optimizer = !bad && (is("tg_optim_add_group") || is("tg_step_rows")) ? tg_sgd(&p, 1, 0.1) : NULL;
    return (void)name, bad ? bad->optim : an_optimizer;
}

static tg_grad_scaler *draw_scaler(const char *name)
{
    static const tg_grad_scaler first = TG_GRAD_SCALER;
    static tg_grad_scaler scaler;
    scaler = first;
    return (void)name, now.at++, &scaler;
}

static tg_loader *draw_loader(const char *name)
{
    const objects *bad = wrong_objects();
    return (void)name, bad ? bad->loader : NULL;
}

static tg_module *draw_module(const char *name)
{
    const objects *bad = wrong_objects();
    return (void)name, bad ? bad->module : now.module;
}

static tg_ctx *draw_ctx(const char *name) { return (void)name, now.at++, now.ctx; }
static void *draw_user(const char *name) { return (void)name, now.at++, (void *)NULL; }
static tg_error_handler draw_handler(const char *name) { return (void)name, now.at++, (tg_error_handler)NULL; }

static tg_mark draw_mark(const char *name)
{
    tg_mark none = {0};
    return (void)name, now.at++, none;
}

static FILE *draw_file(const char *name)
{
    static FILE *file;
    if (!file) file = tmpfile();
    return (void)name, now.at++, file;
}

static tg_tensor *square(tg_tensor *const *in, int n, void *user)
{
    (void)n, (void)user;
    return tg_mul(in[0], in[0]);
}

static void look_at(tg_tensor *leaf, void *user) { (void)leaf, (void)user; }

static tg_status square_forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    out[0] = tg_mul(in[0], in[0]);
    return tg_save(ctx, in[0]);
}

static tg_status square_backward(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)
{
    grad_in[0] = tg_mul(grad_out[0], tg_saved(ctx, 0));
    return TG_OK;
}

static void square_module(tg_module *m, tg_tensor *const *in, int n, tg_tensor **out, int n_out)
{
    (void)m, (void)n, (void)n_out;
    out[0] = tg_mul(in[0], in[0]);
}

static tg_tensor *square_one(tg_module *m, tg_tensor *x) { return m ? tg_mul(x, x) : x; }

static tg_forward_fn draw_module_forward(const char *name) { return (void)name, now.at++, square_module; }
static tg_forward_one_fn draw_forward_one(const char *name) { return (void)name, now.at++, square_one; }
static tg_module_hook_fn draw_module_hook(const char *name) { return (void)name, now.at++, (tg_module_hook_fn)NULL; }
static tg_tensor *a_loss(void *user) { return (void)user, tg_ones(TG_SCALAR); }
static tg_closure draw_closure(const char *name) { return (void)name, now.at++, a_loss; }
static tg_function draw_function(const char *name) { return (void)name, now.at++, square; }
static tg_hook_fn draw_hook(const char *name) { return (void)name, now.at++, return_grad; }
static tg_post_hook_fn draw_post_hook(const char *name) { return (void)name, now.at++, look_at; }
static tg_custom_forward draw_forward(const char *name) { return (void)name, now.at++, square_forward; }
static tg_custom_backward draw_backward(const char *name) { return (void)name, now.at++, square_backward; }

/* ---- calls by hand: in each, one draw per parameter, in their order ---- */

static double host_memory[64];

static void hand_from(void)
{
    tg_shape shape = (now.at++, draw_shape("shape"));
    call_starts();
    if (is("tg_from"))
        check_tensor(tg_from(host_memory, shape, TG_F64));
    else if (is("tg_from_on"))
        check_tensor(tg_from_on(host_memory, shape, TG_F64, TG_CPU));
    else if (is("tg_from_f32"))
        check_tensor(tg_from_f32((const float *)(const void *)host_memory, shape));
    else if (is("tg_from_f64"))
        check_tensor(tg_from_f64(host_memory, shape));
    else if (is("tg_from_i64"))
        check_tensor(tg_from_i64((const int64_t *)(const void *)host_memory, shape));
    else if (is("tg_wrap_const"))
        check_tensor(tg_wrap_const(host_memory, shape, TG_F64, NULL, NULL));
    else
        check_tensor(tg_wrap(host_memory, shape, TG_F64, NULL, NULL));
}

static void hand_from_dlpack(void)
{
    static lent_tensor f; /* deleted at the end of the call's scope */
    static const int64_t shape[] = {2, 3};
    lent_of(&f, host_memory, 2, shape, NULL);
    call_starts();
    if (is("tg_from_dlpack")) check_tensor(tg_from_dlpack(&f.managed));
    else check_tensor(tg_from_dlpack_unversioned(&f.unversioned));
}

static void hand_copy_out(void)
{
    tg_tensor *t = draw_tensor("t");
    call_starts();
    check_status(tg_copy_out(t, host_memory, 6 * sizeof(float)));
}

/* The bytes are those of no file, but for a checkpoint. */
static void hand_parse(void)
{
    const bool checkpoint = is("tg_checkpoint_load_from");
    static char bytes[10000]; /* of the checkpoint that was saved last */
    FILE *file = checkpoint ? fopen(the_file(), "rb") : NULL;
    const size_t n = file ? fread(bytes, 1, sizeof bytes, file) : 0;
    if (file) fclose(file);
    if (checkpoint) now.at += 2; /* data, bytes */
    tg_module *m = checkpoint || is("tg_module_load_from") ? draw_module("m") : NULL;
    tg_optim *opt = checkpoint ? draw_optim("opt") : NULL;
    call_starts();
    if (checkpoint)
        check_status(tg_checkpoint_load_from(bytes, n, m, opt, NULL));
    else if (is("tg_module_load_from"))
        check_status(tg_module_load_from(m, host_memory, sizeof host_memory));
    else if (is("tg_csv_parse"))
        check_tensor(tg_csv_parse(host_memory, sizeof host_memory, NULL));
    else if (is("tg_npy_parse"))
        check_tensor(tg_npy_parse(host_memory, sizeof host_memory));
    else if (is("tg_idx_parse"))
        check_tensor(tg_idx_parse(host_memory, sizeof host_memory));
    else
        check_dict((is("tg_npz_parse")               ? tg_npz_parse
                    : is("tg_npz_list_from")         ? tg_npz_list_from
                    : is("tg_safetensors_list_from") ? tg_safetensors_list_from
                                                     : tg_safetensors_parse)(host_memory, sizeof host_memory));
}

static void hand_custom_ex(void)
{
    tg_tensor *const *in = (now.at += 5, draw_tensors("in"));
    tg_tensor *out[LIST];
    call_starts();
    check_status(tg_custom_ex("x", square_forward, square_backward, NULL, NULL, in, 2, out, 1));
}

static void hand_to_all(void)
{
    tg_tensor *list[2];
    tg_tensor **given = now.wrong_at == 0 && now.what == LIST_IS_NULL ? NULL : list;
    list[0] = draw_one("list", now.wrong_at == 0);
    list[1] = draw_one("list", false);
    call_starts();
    if (is("tg_to_all"))
        check_status(tg_to_all(given, 2, TG_CPU));
    else
        check_status(tg_to_all_ex(given, 2, TG_CPU, TG_SAME_DTYPE, 0));
}

static void hand_gradcheck_ex(void)
{
    tg_tensor *const *inputs = (now.at++, draw_tensors("inputs"));
    call_starts();
    check_bool((is("tg_gradcheck_ex") ? tg_gradcheck_ex : tg_gradgradcheck_ex)(square, inputs, 2, NULL, NULL));
}

static void hand_set_dict(void)
{
    tg_dict *dict = draw_dict("dict");
    const char *path = draw_string("path");
    call_starts();
    check_status(tg_dict_set_dict(dict, path, tg_dict_new()));
}

static void hand_rename(void)
{
    static const tg_rename table[] = {{"*", "a.*", false}};
    tg_dict *dict = draw_dict("dict");
    call_starts();
    check_status(tg_dict_rename(dict, table, 1));
}

static void hand_module(void)
{
    tg_module *m = draw_module("m"), *child = is("tg_module_child") ? tg_module_new("Any", NULL, 0) : NULL;
    tg_device device;
    call_starts();
    if (is("tg_module_device"))
        check_status(tg_module_device(m, &device));
    else
        check_module(tg_module_child(m, "child", child));
}

/* Functions that take a module over: base, or the one that replaces a child. */
static void hand_taken_module(void)
{
    const bool has_m = is("tg_module_replace") || is("tg_module_add");
    tg_module *m = has_m ? draw_module("m") : NULL, *given = m ? tg_nn_relu() : tg_nn_linear(2, 2, true);
    call_starts();
    if (is("tg_module_add"))
        check_module(tg_module_add(m, "a.b.c", given));
    else if (is("tg_module_replace"))
        check_module(tg_module_replace(m, "child", given));
    else if (is("tg_nn_weight_norm"))
        check_module(tg_nn_weight_norm(given, "weight", 0));
    else if (is("tg_nn_spectral_norm"))
        check_module(tg_nn_spectral_norm(given, "weight", 1, 1e-12, 0));
    else if (is("tg_nn_transformer_encoder"))
        check_module(tg_nn_transformer_encoder(given, 2, NULL));
    else if (is("tg_nn_transformer_decoder"))
        check_module(tg_nn_transformer_decoder(given, 2, tg_nn_relu()));
    else
        check_module(tg_nn_lora(given, 1, 1, 0));
}

static bool any_param(const char *path, tg_tensor *t, void *user) { return (void)path, (void)user, t != NULL; }

static void hand_split_params(void)
{
    tg_module *m = draw_module("m");
    tg_tensor *out[2];
    call_starts();
    check_int64(tg_module_split_params(m, any_param, NULL, out, 2));
}

static void hand_load_state(void)
{
    tg_module *m = draw_module("m");
    tg_dict *dict = draw_dict("dict");
    call_starts();
    check_status(tg_module_load_state_ex(m, dict, false, NULL, NULL));
}

static void hand_checkpoint_load(void)
{
    const char *path = draw_string("path");
    tg_module *m = draw_module("m");
    tg_optim *opt = draw_optim("opt");
    call_starts();
    check_status(tg_checkpoint_load(path, m, opt, NULL));
}

static void hand_checkpoint_n(void)
{
    const char *path = draw_string("path");
    tg_checkpoint_part part;
    part.name = "a", part.module = draw_module("m"), part.optim = draw_optim("opt");
    call_starts();
    check_status(is("tg_checkpoint_save_n") ? tg_checkpoint_save_n(path, &part, 1, 3)
                                            : tg_checkpoint_load_n(path, &part, 1, NULL));
}

static void hand_csv_load_options(void)
{
    const char *path = draw_string("path");
    call_starts();
    check_tensor(tg_csv_load_options(path, NULL));
}

static void hand_plateau(void)
{
    tg_plateau plateau = TG_PLATEAU;
    double lr = (now.at++, draw_double("lr")), metric = draw_double("metric");
    call_starts();
    check_double(tg_lr_plateau(&plateau, lr, metric));
}

static const struct {
    const char *name;
    void (*call)(void);
} by_hand[] = {
    HANDS_OF_DRAW,
    {"tg_lr_plateau", hand_plateau},
    {"tg_csv_load_options", hand_csv_load_options},
    {"tg_dict_set_dict", hand_set_dict},
    {"tg_dict_rename", hand_rename},
    {"tg_module_child", hand_module},
    {"tg_module_device", hand_module},
    {"tg_module_replace", hand_taken_module},
    {"tg_module_add", hand_taken_module},
    {"tg_nn_weight_norm", hand_taken_module},
    {"tg_nn_spectral_norm", hand_taken_module},
    {"tg_nn_lora", hand_taken_module},
    {"tg_nn_transformer_encoder", hand_taken_module},
    {"tg_nn_transformer_decoder", hand_taken_module},
    {"tg_module_split_params", hand_split_params},
    {"tg_module_load_state_ex", hand_load_state},
    {"tg_checkpoint_load", hand_checkpoint_load},
    {"tg_checkpoint_save_n", hand_checkpoint_n},
    {"tg_checkpoint_load_n", hand_checkpoint_n},
    {"tg_from", hand_from},
    {"tg_from_on", hand_from},
    {"tg_from_f32", hand_from},
    {"tg_from_f64", hand_from},
    {"tg_from_i64", hand_from},
    {"tg_wrap", hand_from},
    {"tg_wrap_const", hand_from},
    {"tg_from_dlpack", hand_from_dlpack},
    {"tg_from_dlpack_unversioned", hand_from_dlpack},
    {"tg_copy_out", hand_copy_out},
    {"tg_idx_parse", hand_parse},
    {"tg_npy_parse", hand_parse},
    {"tg_npz_parse", hand_parse},
    {"tg_npz_list_from", hand_parse},
    {"tg_safetensors_parse", hand_parse},
    {"tg_safetensors_list_from", hand_parse},
    {"tg_csv_parse", hand_parse},
    {"tg_module_load_from", hand_parse},
    {"tg_checkpoint_load_from", hand_parse},
    {"tg_custom_ex", hand_custom_ex},
    {"tg_to_all", hand_to_all},
    {"tg_to_all_ex", hand_to_all},
    {"tg_gradcheck_ex", hand_gradcheck_ex},
    {"tg_gradgradcheck_ex", hand_gradcheck_ex},
};

/* ---- the check ---- */

static bool call_by_hand_or_table(void)
{
    int i;
    for (i = 0; i < COUNT(by_hand); ++i)
        if (is(by_hand[i].name)) return by_hand[i].call(), true;
    if (function->call) function->call();
    return function->call != NULL;
}

/* Functions with a ctx are called from within a custom function. */
static tg_status host_forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    now.ctx = ctx;
    now.out_of_ctx = out[0] = tg_mul(in[0], in[0]);
    call_by_hand_or_table();
    now.ctx = NULL;
    return TG_OK;
}

/* Calls the function with the parameter wrong (-1: none), and leaves what it recorded in now.error. */
static void make_call(int parameter, wrong what, int ndim)
{
    tg_mark mark = tg_scope_begin();
    now.wrong_at = parameter, now.what = what, now.ndim = ndim, now.at = 0;
    now.error[0] = 0;
    now.dict = tg_dict_new();
    now.module = tg_module_new("Any", square_module, 0);
    tg_clear_error();
    if (function->n > 0 && strcmp(function->parameter[0].kind, "ctx") == 0) {
        tg_tensor *in[1], *out[1];
        in[0] = make_tensor("f32:2,3");
        tg_custom("host", host_forward, square_backward, NULL, in, 1, out, 1);
    } else if (!call_by_hand_or_table()) {
        harness.failed++;
        printf("%s: there is no call by hand\n", function->name);
    }
    tg_dict_free(now.dict);
    tg_module_free(now.module);
    tg_scope_end(mark);
    tg_clear_error();
}

static void verdict(bool holds, const char *how)
{
    const char *parameter = now.wrong_at < 0 ? "good arguments" : function->parameter[now.wrong_at].name;
    if (holds)
        harness.passed++;
    else {
        harness.failed++;
        printf("%s, %s%s: %.*s\n", function->name, parameter, how, (int)strcspn(now.error, "\n"),
               now.error[0] ? now.error : "no error");
    }
}

/* Whether the error names the function and then contains the text. */
static bool error_says(const char *text)
{
    char start[100];
    snprintf(start, sizeof start, "%s: ", function->name);
    return strncmp(now.error, start, strlen(start)) == 0 && strstr(now.error, text) != NULL;
}

static bool is_tensor(int parameter) { return strcmp(function->parameter[parameter].kind, "tensor") == 0; }
static bool is_list(int parameter) { return strcmp(function->parameter[parameter].kind, "tensors") == 0; }

static void check_null(int parameter, wrong what)
{
    char name[100], text[100];
    bool in_list = !is_tensor(parameter);
    snprintf(name, sizeof name, "%s %s", function->name, function->parameter[parameter].name);
    make_call(parameter, what, 0);
    if (is_in(name, may_be_null, COUNT(may_be_null)) ||
        (what == IS_NULL && is_in(name, may_hold_null, COUNT(may_hold_null)))) {
        verdict(!now.error[0], what == LIST_IS_NULL ? " NULL, which it may be" : " NULL, which that may be");
        return;
    }
    snprintf(text, sizeof text, in_list && what == IS_NULL ? "argument %s[0] is NULL" : "argument %s is NULL",
             function->parameter[parameter].name);
    verdict(error_says(text), in_list && what == IS_NULL ? "[0] is NULL" : " is NULL");
}

static void check_tensors(int parameter, bool is_list)
{
    static const struct { int number; const char *text; } numbers[] = {
        {1, "is the number 1, not a tensor"},   {2, "is the number 2, not a tensor"},
        {-1, "is the number -1, not a tensor"}, {4000, "is the number 4000, not a tensor"},
        {-48, "is the number -48, not a tensor"}, {0x7f000001, "is no tensor: none can be at the address 0x7f000001"}};
    int k;
    for (k = 0; k < COUNT(numbers); ++k) {
        make_call(parameter, IS_NUMBER, numbers[k].number);
        verdict(error_says(numbers[k].text), " a number");
    }
    check_null(parameter, IS_NULL);
    if (is_list) check_null(parameter, LIST_IS_NULL);
    make_call(parameter, IS_FOREIGN, 0);
    verdict(error_says("belongs to another thread"), " of another thread");
    make_call(parameter, HAS_ENDED, 0);
    verdict(error_says("ended"), " ended");
}

static bool is_object(int parameter)
{
    const char *const kinds[] = {"dict", "optim", "loader", "module"};
    return is_in(function->parameter[parameter].kind, kinds, COUNT(kinds));
}

static void check_objects(int parameter)
{
    check_null(parameter, LIST_IS_NULL);
    make_call(parameter, IS_NUMBER, 3);
    verdict(error_says("none can be at the address 0x3"), " a number");
    make_call(parameter, IS_FOREIGN, 0);
    verdict(is("tg_loader_batches") ? !now.error[0] : error_says("belongs to another thread"), " of another thread");
    make_call(parameter, HAS_ENDED, 0);
    verdict(error_says("that has ended"), " ended");
}

static void check_function(void)
{
    static const int wrong_ndims[] = {-1, TG_MAX_DIMS + 1, 1000000};
    bool has_any = false;
    int i, k;
    for (i = 0; i < function->n; ++i) {
        const char *kind = function->parameter[i].kind;
        bool is_shape = strcmp(kind, "shape") == 0;
        if (is_object(i)) check_objects(i);
        bool any_list = is_list(i) || strcmp(function->parameter[i].name, "list") == 0;
        if (!is_tensor(i) && !any_list && !is_shape) continue;
        if (!has_any) {
            make_call(-1, GOOD, 0);
            verdict(!now.error[0] || is_in(function->name, wants_a_gpu, COUNT(wants_a_gpu)), "");
        }
        has_any = true;
        if (is_tensor(i) || any_list) check_tensors(i, any_list);
        for (k = 0; is_shape && k < COUNT(wrong_ndims); ++k) {
            char how[40];
            make_call(i, NDIM, wrong_ndims[k]);
            snprintf(how, sizeof how, " of %d dims", wrong_ndims[k]);
            verdict(error_says(""), how);
        }
    }
}

/* Whether the error advises to move argument `parameter` (of a list, one of its tensors) to a device, -1: any. */
static bool advises_to_move(int parameter, int device)
{
    char text[100];
    snprintf(text, sizeof text, is_list(parameter) ? "tg_to(%s[" : "tg_to(%s, ", function->parameter[parameter].name);
    const char *at = strstr(now.error, text);
    snprintf(text, sizeof text, device < 0 ? ", TG_C" : ", TG_CUDA(%d))", device);
    return at && strstr(at, text);
}

/* Every function of several tensors, with all of them on one device, and then with one of them on another.  If that is an
 * error, it is told by the name of the function, and the advice is to move one of its arguments: the odd one out of three
 * or more, but not what is written.  Indices of indexing may be on the CPU, which is another advice. */
static void check_devices(void)
{
    const bool writes = function->name[strlen(function->name) - 1] == '_';
    int i, k, n = 0, lists = 0;
    for (i = 0; i < function->n; ++i) n += is_tensor(i), lists += is_list(i);
    if (n + 2 * lists < 2 || is("tg_release_all")) return;
    make_call(-1, IS_ELSEWHERE, 0);
    if (now.error[0]) return; /* what it is about has no place on a device, such as a graph that these tensors lack */
    for (i = 0; i < function->n; ++i) {
        bool names_one = false;
        if (!is_tensor(i) && !is_list(i)) continue;
        make_call(i, IS_ELSEWHERE, 0);
        if (!now.error[0] || strstr(now.error, "Please ensure that the gradient")) continue;
        if (strstr(now.error, "indices should be either on cpu")) continue;
        for (k = 0; k < function->n; ++k) names_one = names_one || ((is_tensor(k) || is_list(k)) && advises_to_move(k, -1));
        verdict(error_says("Expected all tensors to be on the same device") && names_one, " on another device");
        if (n < 3 || lists) continue;
        if (writes && i == 0) verdict(!advises_to_move(0, -1), " on another device, which is written");
        else verdict(advises_to_move(i, 0), " is the odd one out");
    }
}

TEST(devices)
{
    int i;
    for (i = 0; i < API_FUNCTIONS; ++i) {
        function = &api_functions[i];
        check_devices();
    }
}

TEST(arguments)
{
    int i, n = 0;
    for (i = 0; i < API_FUNCTIONS; ++i) {
        function = &api_functions[i];
        if (harness.only && strcmp(harness.only, "arguments") != 0 && !is(harness.only)) continue;
        check_function();
        ++n;
    }
    CHECK(n > 0);
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    setenv("TG_DEBUG", "1", 1); /* so that the memory of an ended handle is not used again */
    pthread_mutex_init(&other.lock, NULL);
    pthread_cond_init(&other.changed, NULL);
    CHECK(pthread_create(&other.thread, NULL, other_thread, NULL) == 0);
    harness.test = "devices";
    if (tg_cuda_device_count() > 1) test_devices();
    else puts("skipped: tensors on two devices, of which there are less");
    harness.test = "arguments";
    test_arguments();
    other_end();
    remove(the_file());
    CHECK(tg_shutdown() == TG_OK);
    return harness_end();
}
