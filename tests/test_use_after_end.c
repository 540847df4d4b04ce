/* Tensors that are used after they ended: every public function says so.  Without TG_DEBUG until 128 other tensors have
 * ended; with it always, and the message says what the tensor was and what ended it.
 * tests/test_api.c asks the same of every parameter of every function. */
#if !defined(__cplusplus) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200112L
#endif
#include "tensorgrad.h"
#include "helpers.h"
#include <pthread.h>
#include <time.h>

/* Whether the pending error has all of these words; clears it. */
static bool says(const char *a, const char *b, const char *c)
{
    const char *text = tg_error_message();
    bool all = !tg_ok() && strstr(text, a) && strstr(text, b) && strstr(text, c);
    if (!all) printf("    said: %s\n", text);
    tg_clear_error();
    return all;
}

/* Between the end of a tensor and its use others are made, which in the end would get the memory of its handle. */
static bool debug;
static void make_others(void)
{
    int i;
    TG_SCOPE;
    for (i = 0; i < (debug ? 500 : 50); ++i) CHECK(scalar(i) != NULL);
}

/* ---- the mistakes ---- */

static tg_tensor *forgets_keep(tg_tensor *x)
{
    TG_SCOPE;
    tg_tensor *h = tg_exp(x);
    tg_set_name(h, "h");
    return h;
}

static void forgotten_keep(void)
{
    tg_tensor *b = f64("[1, 2]"), *h = forgets_keep(f64("[0, 0]"));
    make_others();
    CHECK(!tg_mul(h, b) && says("tg_mul: argument a ended with its scope: tg_keep hands it out, tg_param owns it",
                                debug ? "made by tg_exp" : "", debug ? "'h'" : ""));
    CHECK(!tg_mul(b, h) && says("tg_mul: argument b ended with its scope", debug ? "f64 [2]" : "", ""));
    CHECK(tg_ndim(h) == 0 && says("tg_ndim: argument t ended", "", ""));
    CHECK(isnan(tg_item(h)) && says("tg_item: argument t ended", "", ""));
    CHECK(!tg_keep(h) && says("tg_keep: argument t ended", "", ""));
    CHECK(!tg_retain(h) && says("tg_retain: argument t ended", "", ""));
    CHECK(!tg_linear(b, b, h) && says("tg_linear: argument bias ended", "", ""));
    tg_release(h), CHECK(says("tg_release: argument t ended", "", ""));
    tg_drop(h), CHECK(says("tg_drop: argument t ended", "", ""));
}

static void carried_out_of_a_scope(void)
{
    tg_tensor *list[2], *best = NULL;
    int step;
    for (step = 0; step < 3; ++step) {
        TG_SCOPE;
        best = tg_mul_scalar(f64("[1, 2]"), step);
    }
    list[0] = f64("[1, 2]"), list[1] = best;
    make_others();
    CHECK(!tg_cat(list, 2, 0) && says("tg_cat: argument tensors[1] ended with its scope", debug ? "mul_scalar" : "", ""));
}

/* A function with many temporaries; its caller goes on with others before it uses the result. */
static tg_tensor *forgets_after_many(tg_tensor *x)
{
    TG_SCOPE;
    int i;
    for (i = 0; i < 400; ++i) x = tg_add_scalar(x, 1);
    return x;
}

static void used_later(void)
{
    tg_tensor *x = f64("[1, 2]"), *a = forgets_after_many(x), *z = tg_full(TG_SHAPE(2), 7);
    int i;
    for (i = 0; i < 40; ++i) z = tg_softmax(tg_mul(z, z), 0);
    CHECK(!tg_mul(a, z) && says("tg_mul: argument a ended with its scope: tg_keep hands it out", "", ""));
}

/* The stock of handles that are not reused yet is no leak: no loop makes more of them, and a limit to the cache holds. */
static void stock(void)
{
    int64_t allocations = 0;
    int i;
    for (i = 0; i < 1000; ++i) {
        TG_SCOPE;
        CHECK(tg_scalar(i) != NULL);
        if (i == 200) allocations = tg_stats().allocations;
    }
    CHECK(debug || tg_stats().allocations == allocations);
    tg_set_cache_limit(1000);
    CHECK(tg_stats().cached_bytes <= 1000);
    tg_set_cache_limit(SIZE_MAX);
}

/* What a program passes where a tensor is expected; tests/test_api.c has more. */
static void numbers(void)
{
    tg_tensor *x = f64("[1, 2]");
    CHECK(!tg_mul(x, (tg_tensor *)2) && says("tg_mul: argument b is the number 2, not a tensor", "_scalar", "tg_scalar"));
    CHECK(!tg_linear(x, x, (tg_tensor *)1) && says("tg_linear: argument bias is the number 1, not a tensor", "", ""));
    CHECK(!tg_neg((tg_tensor *)(intptr_t)-3) && says("tg_neg: argument x is the number -3, not a tensor", "", ""));
    CHECK(!tg_cat(TG_LIST(x, (tg_tensor *)4), 0) && says("argument tensors[1] is the number 4, not a tensor", "", ""));
    CHECK(!tg_neg((tg_tensor *)((char *)x + 1)) && says("tg_neg: argument x is no tensor", "address 0x", ""));
}

/* A list of tensors where one is expected, as TG_LIST(list) makes it: in the middle of others, since its memory is read
   as if it were a tensor. */
static void lists(void)
{
    tg_tensor *list[64], *x = leaf("[1, 2]");
    tg_optim *opt;
    for (int i = 0; i < 64; ++i) list[i] = x;
    CHECK(!tg_neg((tg_tensor *)(void *)(list + 8)) && says("argument x is no tensor: something else", "TG_LIST", ""));
    opt = tg_sgd(TG_LIST((tg_tensor *)(void *)(list + 8)), 0.1);
    CHECK(!opt && says("tg_sgd: argument params is no tensor", "a list that you have is passed itself", ""));
    opt = tg_sgd(list, 1, 0.1);
    CHECK(opt && tg_ok());
    tg_optim_free(opt);
}

/* The memory of a saved tensor stays; its handle has ended all the same. */
static void saved_by_the_tape(void)
{
    tg_tensor *x = leaf("[1, 2]"), *h, *y;
    tg_mark mark = tg_scope_begin();
    h = tg_exp(x);
    y = tg_keep(tg_sum(h));
    tg_scope_end(mark);
    make_others();
    CHECK(!tg_add(h, h) && says("tg_add: argument a ended with its scope", debug ? "made by tg_exp" : "", ""));
    CHECK(tg_backward_ex(&y, 1, NULL, TG_RETAIN_GRAPH) == TG_OK); /* the backward of exp uses it */
    CHECK_NEAR(tg_get(tg_grad(x), TG_INDEX(1)), exp(2), 1e-12);
    CHECK(!tg_add(h, h) && says("tg_add: argument a ended with its scope", debug ? "made by tg_exp" : "", ""));
    CHECK(tg_gradients(&y, 1, NULL, &x, 1, &h, TG_CREATE_GRAPH) == TG_OK && tg_requires_grad(h));
}

static void after_release(void)
{
    tg_tensor *p = tg_param(f64("[3, 4]")), *b = f64("[1, 1]");
    tg_set_name(p, "w1");
    tg_release(p);
    make_others();
    CHECK(!tg_mul(b, p) && says("argument b was ended by tg_release", debug ? "'w1'" : "", debug ? "from_on" : ""));
    CHECK(!tg_sgd(&p, 1, 0.1) && says("tg_sgd: argument params was ended by tg_release", "", ""));
}

static void after_drop(void)
{
    tg_tensor *t = f64("[3, 4]");
    tg_drop(t);
    make_others();
    CHECK(!tg_exp(t) && says("tg_exp: argument x was ended by tg_drop", "", ""));
}

static void old_gradient(void)
{
    tg_tensor *x = leaf("[1, 2]"), *g, *y = tg_sum(tg_mul(x, x));
    CHECK(tg_backward_ex(&y, 1, NULL, TG_RETAIN_GRAPH) == TG_OK);
    g = tg_grad(x);
    CHECK(tg_set_grad(x, NULL) == TG_OK);
    make_others();
    CHECK(!tg_neg(g) && says("tg_neg: argument x ended as a gradient", "", ""));
    CHECK(tg_backward(y) == TG_OK);
    g = tg_grad(x);
    CHECK(tg_set_grad(x, f64("[0, 0]")) == TG_OK);
    make_others();
    CHECK(!tg_neg(g) && says("tg_neg: argument x ended as a gradient", "", ""));
}

static void root_of_backward(void)
{
    tg_tensor *x = leaf("[1, 2]"), *loss, *result = x;
    tg_mark mark = tg_scope_begin();
    loss = tg_sum(x);
    tg_scope_end(mark);
    make_others();
    CHECK(tg_backward(loss) == TG_ERR_ARGUMENT && says("tg_backward: argument root ended with its scope", "", ""));
    CHECK(!tg_backward_begin(&loss, 1, NULL, 0) && says("tg_backward_begin: argument roots ended", "", ""));
    CHECK(tg_gradients(&loss, 1, NULL, &x, 1, &result, 0) != TG_OK && says("tg_gradients: argument outputs", "", ""));
    CHECK(result == NULL);
    loss = tg_sum(x);
    CHECK(tg_backward(loss) == TG_OK);
}

/* A backward function that keeps a temporary of its last call. */
static tg_tensor *stale;
static tg_status save_input(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    out[0] = tg_mul_scalar(in[0], 2);
    return tg_save(ctx, in[0]);
}
static tg_status use_stale(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)
{
    if (!stale) stale = tg_exp(tg_saved(ctx, 0));
    grad_in[0] = tg_mul(grad_out[0], stale);
    return grad_in[0] ? TG_OK : TG_ERR_ARGUMENT;
}

static void inside_a_custom_rule(void)
{
    tg_tensor *x = leaf("[0, 0]"), *y;
    stale = NULL;
    CHECK(tg_custom("stale", save_input, use_stale, NULL, &x, 1, &y, 1) == TG_OK);
    y = tg_sum(y);
    CHECK(tg_backward_ex(&y, 1, NULL, TG_RETAIN_GRAPH) == TG_OK);
    make_others();
    if (debug) { /* else its memory is the first that the rule's own temporaries take */
        CHECK(tg_backward(y) != TG_OK && says("tg_mul: argument b ended with its scope", "made by tg_exp", ""));
    }
    CHECK(tg_get(tg_grad(x), TG_INDEX(0)) == 1);
}

/* ---- objects ---- */

static bool step_of_capture(void *user) { return (void)user, true; }

static void passes_on(tg_module *m, tg_tensor *const *in, int n, tg_tensor **out, int n_out)
{
    (void)m, (void)n, (void)n_out;
    out[0] = tg_neg(in[0]);
}

/* As many that were made and freed later as the library knows at least; with TG_DEBUG more. */
static void make_other_objects(void)
{
    int i;
    for (i = 0; i < (debug ? 200 : 20); ++i) tg_dict_free(tg_dict_new());
}

static void freed_objects(void)
{
    tg_tensor *p = tg_param(f64("[1, 2]")), *x = f64("[1, 2]"), *loss, *batch[1];
    tg_module *m = tg_module_new("Block", passes_on, 8), *child = tg_module_new("Inner", passes_on, 0), *list[2];
    tg_dict *dict = tg_dict_new(), *inner = tg_dict_new();
    tg_loader *loader = tg_loader_new(&x, 1, 1, 0, TG_CPU);
    tg_optim *opt = tg_adamw(&p, 1, 0.1);
    tg_capture *capture = tg_capture_new(TG_CPU, step_of_capture, NULL);
    tg_backward_run *run;
    tg_step_input_info input;
    tg_grad_scaler scaler = TG_GRAD_SCALER;
    CHECK(tg_module_child(m, "inner", child) == child && tg_dict_set_dict(dict, "a", inner) == TG_OK);
    CHECK(tg_forward(m, x) != NULL && tg_loader_next(loader, batch) && tg_capture_run(capture) == TG_OK);
    loss = tg_sum(tg_mul(p, x));
    run = tg_backward_begin(&loss, 1, NULL, 0);
    while (tg_backward_step(run, NULL)) {}
    CHECK(tg_backward_end(run) == TG_OK && tg_step(opt) == TG_OK);
    tg_module_free(m), tg_dict_free(dict), tg_loader_free(loader), tg_optim_free(opt), tg_capture_free(capture);
    CHECK(tg_ok());
    make_other_objects();

    CHECK(!tg_forward(m, x) && says("tg_forward: argument m is a module 'Block' that has ended",
                                    "made by tg_module_new", "tg_module_free"));
    CHECK(!tg_forward(child, x) && says("a module 'Inner' that has ended", "with the module that held it last", ""));
    CHECK(!tg_module_self(m) && says("tg_module_self: argument m", "ended", ""));
    tg_module_free(m), CHECK(says("tg_module_free: argument m is a module 'Block' that has ended", "", ""));
    list[0] = tg_nn_linear(2, 2, true), list[1] = m;
    CHECK(!tg_nn_sequential(list, 2) && says("tg_nn_sequential", "a module 'Block' that has ended", ""));
    CHECK(tg_dict_set(dict, "b", x) != TG_OK && says("tg_dict_set: argument dict is a dict that has ended", "", ""));
    CHECK(tg_dict_count(inner) == 0 && says("tg_dict_count: argument dict", "with the dict that held it", ""));
    tg_dict_free(dict), CHECK(says("tg_dict_free: argument dict is a dict that has ended", "", ""));
    CHECK(tg_safetensors_save("never", dict) != TG_OK && says("tg_safetensors_save", "that has ended", ""));
    CHECK(!tg_loader_next(loader, batch) && says("tg_loader_next: argument loader is a loader that has ended", "", ""));
    tg_loader_free(loader), CHECK(says("tg_loader_free: argument loader", "has ended", ""));
    CHECK(tg_step(opt) != TG_OK && says("tg_step: argument opt is an optimizer that has ended", "made by tg_adamw", ""));
    CHECK(tg_grad_scaler_step(&scaler, opt) != TG_OK && says("tg_grad_scaler_step: argument opt", "has ended", ""));
    tg_optim_free(opt), CHECK(says("tg_optim_free: argument opt", "has ended", ""));
    CHECK(tg_capture_run(capture) != TG_OK &&
          says("tg_capture_run: argument capture is a capture that has ended", "", ""));
    CHECK(!tg_capture_obstacle(capture) && says("tg_capture_obstacle: argument capture", "has ended", ""));
    tg_capture_free(capture), CHECK(says("tg_capture_free: argument capture", "has ended", ""));
    CHECK(!tg_backward_step(run, NULL) && says("tg_backward_step: argument run is a run that has ended", "", ""));
    CHECK(tg_backward_end(run) != TG_OK && says("tg_backward_end: argument run", "tg_backward_end", ""));
    CHECK(!tg_step_input(run, 0, &input) && says("tg_step_input: argument run is a run that has ended", "", ""));
    CHECK(tg_step_print(stdout, run) != TG_OK && says("tg_step_print: argument run is a run that has ended", "", ""));
    CHECK(tg_ok() && tg_forward((tg_module *)(intptr_t)7, x) == NULL && says("argument m is not a module", "0x7", ""));
    tg_release(p);
}

/* Two tensors of one thread in another: one that has ended, and one that is alive there. */
static tg_tensor *ended_there, *alive_there;
static void *uses_both(void *unused)
{
    (void)unused;
    CHECK(!tg_neg(ended_there) && says("tg_neg: argument x was ended by tg_drop", "", ""));
    CHECK(!tg_neg(alive_there) && says("tg_neg: argument x belongs to another thread", "", ""));
    CHECK(tg_ndim(alive_there) == 0 && says("tg_ndim: argument t belongs to another thread", "", ""));
    CHECK(tg_set_name(alive_there, "x") != TG_OK && says("tg_set_name: argument t belongs", "", ""));
    CHECK(!tg_touch_(alive_there) && says("tg_touch_: argument t belongs to another thread", "", ""));
    CHECK(tg_unhook(alive_there, 1) != TG_OK && says("tg_unhook: argument t belongs to another thread", "", ""));
    CHECK(tg_thread_end() == TG_OK);
    return NULL;
}
static void *ends_one(void *unused)
{
    (void)unused;
    ended_there = tg_ones(TG_SHAPE(2));
    CHECK(tg_thread_end() == TG_OK);
    return NULL;
}

/* ---- both modes ---- */

static void all(bool with_debug)
{
    debug = with_debug;
    forgotten_keep();
    carried_out_of_a_scope();
    used_later();
    stock();
    numbers();
    lists();
    saved_by_the_tape();
    after_release();
    after_drop();
    old_gradient();
    root_of_backward();
    inside_a_custom_rule();
    freed_objects();
}

TEST(without_debug) { all(false); }

static void *in_debug(void *unused)
{
    (void)unused;
    {
        TG_SCOPE;
        all(true);
    }
    CHECK(tg_thread_end() == TG_OK);
    return NULL;
}

/* A thread looks at TG_DEBUG when its state begins. */
TEST(with_debug)
{
    pthread_t thread;
    tg_stats_info before = tg_stats(), after;
    setenv("TG_DEBUG", "1", 1);
    CHECK(pthread_create(&thread, NULL, in_debug, NULL) == 0 && pthread_join(thread, NULL) == 0);
    setenv("TG_DEBUG", "0", 1);
    after = tg_stats();
    CHECK(after.tensors == before.tensors && after.bytes == before.bytes && after.nodes == before.nodes);
}

/* What a thread still owns at its end is told one by one with TG_DEBUG, and not at all without. */
static char told[4000];
static void note_warning(tg_status code, const char *message, void *user)
{
    (void)user;
    CHECK(code == TG_OK);
    snprintf(told + strlen(told), sizeof told - strlen(told), "%s\n", message);
}

static void *owns_much(void *released)
{
    tg_tensor *w = tg_param(tg_ones_on(TG_SHAPE(2, 3), TG_F32, TG_CPU)), *b = tg_param(tg_zeros(TG_SHAPE(2)));
    tg_module *net = tg_nn_linear(3, 2, true), *outer = tg_module_new("Net", NULL, 0);
    tg_dict *dict = tg_dict_new();
    tg_optim *opt = tg_sgd(&w, 1, 0.1);
    tg_set_name(w, "w");
    CHECK(tg_module_child(outer, "net", net) == net && tg_dict_set_dict(dict, "in", tg_dict_new()) == TG_OK);
    tg_release(b);
    CHECK(tg_ok());
    if (released) tg_release(w), tg_module_free(outer), tg_dict_free(dict), tg_optim_free(opt);
    tg_set_error_handler(note_warning, NULL);
    CHECK(tg_thread_end() == TG_OK);
    if (!released) tg_release(w), tg_module_free(outer), tg_dict_free(dict), tg_optim_free(opt);
    CHECK(tg_ok() && tg_thread_end() == TG_OK);
    tg_set_error_handler(NULL, NULL);
    return NULL;
}

static int lines_told(void)
{
    int n = 0;
    const char *at;
    for (at = told; (at = strstr(at, "warning: tg_thread_end: the program still owns ")) != NULL; ++at) ++n;
    return n;
}

TEST(what_is_still_owned_is_told)
{
    pthread_t thread;
    int released;
    told[0] = 0;
    CHECK(pthread_create(&thread, NULL, owns_much, &released) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(!told[0]);
    setenv("TG_DEBUG", "1", 1);
    CHECK(pthread_create(&thread, NULL, owns_much, &released) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(!told[0]);
    CHECK(pthread_create(&thread, NULL, owns_much, NULL) == 0 && pthread_join(thread, NULL) == 0);
    setenv("TG_DEBUG", "0", 1);
    CHECK(lines_told() == 4);
    CHECK(strstr(told, "owns a module 'Net', made by tg_module_new") && strstr(told, "tg_module_free frees it"));
    CHECK(strstr(told, "owns a dict, made by tg_dict_new") && strstr(told, "owns an optimizer, made by tg_sgd"));
    CHECK(strstr(told, "owns a tensor 'w', f32 [2, 3], made by tg_ones"));
}

static void *poisoned(void *unused)
{
    double *data;
    int64_t *integers;
    tg_tensor *big = tg_zeros_on(TG_SHAPE(1000), TG_F64, TG_CPU), *i = tg_zeros_on(TG_SHAPE(1000), TG_I64, TG_CPU);
    (void)unused;
    data = tg_data_f64(big), integers = tg_data_i64(i);
    tg_drop(big), tg_drop(i);
    CHECK(isnan(data[500]) && integers[500] == -1); /* (the first words of a free block are the library's) */
    CHECK(tg_thread_end() == TG_OK);
    return NULL;
}

TEST(bytes_are_poisoned)
{
    pthread_t thread;
    if (HARNESS_MEMORY_CHECKER) return; /* which sees the use of freed bytes itself */
    setenv("TG_DEBUG", "1", 1);
    CHECK(pthread_create(&thread, NULL, poisoned, NULL) == 0 && pthread_join(thread, NULL) == 0);
    setenv("TG_DEBUG", "0", 1);
}

TEST(of_another_thread)
{
    pthread_t thread;
    alive_there = f64("[1, 2]"), ended_there = f64("[3, 4]");
    tg_drop(ended_there);
    CHECK(pthread_create(&thread, NULL, uses_both, NULL) == 0 && pthread_join(thread, NULL) == 0);
    setenv("TG_DEBUG", "1", 1); /* in this case the memory outlives its thread */
    CHECK(pthread_create(&thread, NULL, ends_one, NULL) == 0 && pthread_join(thread, NULL) == 0);
    setenv("TG_DEBUG", "0", 1);
    CHECK(!tg_neg(ended_there) && says("ended with its thread's tensors, by tg_shutdown or tg_thread_end", "ones", ""));
}

/* tg_drop ends what belongs to the innermost scope, and leaves all else: so that tg_drop(tg_to(x, device)) is right
   where x was there already. */
TEST(drop_acts_on_the_innermost_scope)
{
    tg_tensor *p = tg_param(f64("[1, 2]")), *outer = f64("[3, 4]"), *inner;
    {
        TG_SCOPE;
        inner = f64("[5, 6]");
        tg_drop(tg_to(p, HERE)), tg_drop(tg_to(outer, HERE)), tg_drop(tg_contiguous(outer));
        CHECK(tg_ok() && tg_get(p, TG_INDEX(0)) == 1 && tg_get(outer, TG_INDEX(0)) == 3);
        tg_drop(inner);
        CHECK_FAILS(tg_neg(inner), "ended by tg_drop");
    }
    tg_drop(outer);
    CHECK_FAILS(tg_neg(outer), "ended by tg_drop");
    tg_release(p);
}

/* To carry a tensor through a loop: retain the new one, release the old one.  Memory does not grow. */
TEST(carried_from_turn_to_turn)
{
    tg_tensor *h = tg_retain(f64("[1, 1]"));
    int64_t alive = 0;
    int turn;
    for (turn = 0; turn < 5; ++turn) {
        TG_SCOPE;
        tg_tensor *next = tg_retain(tg_detach(tg_mul_scalar(h, 2)));
        tg_release(h);
        h = next;
        CHECK(tg_get(h, TG_INDEX(0)) == 2 << turn);
        if (turn == 0) alive = tg_stats().tensors;
        CHECK(tg_stats().tensors == alive);
    }
    tg_release(h);
}

/* An op's result is never a view that the user did not ask for: it can be written, shared, viewed. */
TEST(results_are_no_hidden_views)
{
    const int64_t ids[2] = {1, 0};
    tg_tensor *w = leaf("[3, 4]"), *x = tg_ones_on(TG_SHAPE(2, 2), TG_F64, HERE), *index, *mask, *made[12], *list[2], *loss;
    tg_tensor *batch = tg_ones_on(TG_SHAPE(3, 2, 2), TG_F64, HERE);
    int i, n = 0;
    index = tg_from_on(ids, TG_SHAPE(2), TG_I64, HERE);
    mask = tg_to_dtype(x, TG_BOOL);
    list[0] = x, list[1] = w;
    made[n++] = tg_mv(x, w);
    made[n++] = tg_dot(w, w);
    made[n++] = tg_matmul(w, x);
    made[n++] = tg_matmul(batch, tg_unsqueeze(w, 1));
    made[n++] = tg_linear(batch, tg_unsqueeze(w, 0), NULL);
    made[n++] = tg_einsum("ij,j->i", list, 2);
    made[n++] = tg_embedding(tg_unsqueeze(w, 1), index);
    made[n++] = tg_index(w, &index, 1);
    made[n++] = tg_index_put(w, &index, 1, w, false);
    made[n++] = tg_masked_select(tg_mul(x, w), mask);
    made[n++] = tg_reshape(tg_t(tg_mul(x, w)), TG_SHAPE(4));
    made[n++] = tg_flatten(tg_t(tg_mul(x, w)), 0, -1);
    for (i = 0; i < n; ++i) { /* y and a view of it see one write: d (sum y + 10 sum u) / dy = 11 before it, times 2 */
        tg_tensor *y = made[i], *u, *before = tg_clone(y), *g = NULL, *plain = NULL;
        u = tg_unsqueeze(y, 0);
        CHECK(tg_mul_scalar_(y, 2) == y);
        loss = tg_add(tg_sum(y), tg_mul_scalar(tg_sum(u), 10));
        before = tg_mul_scalar(tg_sum(before), 22);
        CHECK(tg_gradients(&before, 1, NULL, &w, 1, &plain, TG_RETAIN_GRAPH) == TG_OK);
        CHECK(tg_gradients(&loss, 1, NULL, &w, 1, &g, TG_RETAIN_GRAPH) == TG_OK);
        CHECK(tg_allclose(g, plain, 1e-12, 0));
        y = tg_retain_grad(tg_add_scalar(y, 0));
    }
    {
        TG_NO_GRAD;
        made[0] = tg_mv(x, w), made[1] = tg_embedding(tg_unsqueeze(w, 1), index), made[2] = tg_linear(x, x, NULL);
    }
    for (i = 0; i < 3; ++i) CHECK(tg_add_(made[i], tg_sum(w)) == made[i] && tg_requires_grad(made[i]));
    {
        TG_NO_GRAD;
        tg_tensor *shared = tg_share(tg_mv(x, w));
        CHECK(shared != NULL);
        tg_release(shared);
    }
}

/* The gradient of y is that of all that is made of it, y = mv(W, p) written through a view included. */
TEST(gradient_of_a_result_that_is_written)
{
    tg_tensor *p = leaf("[1, 2]"), *w = tg_ones_on(TG_SHAPE(2, 2), TG_F64, HERE), *y, *u, *loss, *g = NULL;
    y = tg_mv(w, p), u = tg_unsqueeze(y, 0);
    CHECK(tg_mul_scalar_(y, 2) == y);
    loss = tg_add(tg_sum(y), tg_mul_scalar(tg_sum(u), 10));
    CHECK(tg_gradients(&loss, 1, NULL, &y, 1, &g, 0) == TG_OK && tg_get(g, TG_INDEX(0)) == 11);
}

/* ---- several views by one call ---- */

static double seconds_of_unbind(int64_t pieces)
{
    tg_tensor *x = tg_set_requires_grad(tg_ones_on(TG_SHAPE(pieces, 256), TG_F32, HERE), true), *sum;
    tg_tensor **row = (tg_tensor **)malloc((size_t)pieces * sizeof *row);
    clock_t start = clock();
    int n = tg_unbind(x, 0, row, (int)pieces), i;
    CHECK(n == pieces);
    sum = row[0];
    for (i = 1; i < n; ++i) sum = tg_add(sum, row[i]);
    CHECK(tg_backward(tg_sum(sum)) == TG_OK && tg_item(tg_mean(tg_grad(x))) == 1);
    free(row);
    return (double)(clock() - start) / CLOCKS_PER_SEC;
}

/* Every row of an RNN's input comes from one unbind: its backward is linear in the rows. */
TEST(unbind_is_linear)
{
    double once, twice;
    int64_t n = getenv("SMALL") ? 200 : 1600;
    (void)seconds_of_unbind(n);
    once = seconds_of_unbind(n), twice = seconds_of_unbind(2 * n);
    printf("unbind of [%d, 256], sum of the rows and backward: %.1f ms; of twice as many: %.1f ms\n", (int)n, once * 1e3,
           twice * 1e3);
}

TEST(pieces_are_outputs_of_one_node)
{
    tg_tensor *x = tg_set_requires_grad(tg_arange_on(0, 10, 1, TG_F64, HERE), true), *piece[12], *y, *g = NULL, *again;
    int64_t nodes = tg_stats().nodes;
    int i, n;
    for (i = 0; i < 12; ++i) piece[i] = x;
    n = tg_split(x, 4, 0, piece, 12);
    CHECK(n == 3 && tg_stats().nodes == nodes + 1 && tg_dim(piece[2], 0) == 2);
    for (i = 3; i < 12; ++i) CHECK(piece[i] == NULL);
    y = tg_sum(tg_mul(piece[0], piece[0])); /* the others have no gradient: zeros */
    CHECK(tg_gradients(&y, 1, NULL, &x, 1, &g, TG_CREATE_GRAPH) == TG_OK);
    CHECK(tg_get(g, TG_INDEX(3)) == 6 && tg_get(g, TG_INDEX(4)) == 0 && tg_get(g, TG_INDEX(9)) == 0);
    y = tg_sum(g), again = NULL;
    CHECK(tg_gradients(&y, 1, NULL, &x, 1, &again, 0) == TG_OK && tg_get(again, TG_INDEX(3)) == 2);
    CHECK_FAILS(tg_mul_scalar_(piece[1], 2), "Output 1 of split is a view and is being modified inplace.");
    n = tg_chunk(tg_zeros_on(TG_SHAPE(0, 4), TG_F64, HERE), 3, 0, piece, 12);
    CHECK(n == 3 && tg_dim(piece[2], 0) == 0 && tg_dim(piece[2], 1) == 4);
    CHECK(tg_unbind(tg_zeros_on(TG_SHAPE(0, 4), TG_F64, HERE), 0, piece, 12) == 0 && tg_ok() && !piece[0]);
    {
        TG_NO_GRAD; /* writing the base gives its views a new history */
        x = tg_ones_on(TG_SHAPE(4), TG_F64, HERE);
        CHECK(tg_chunk(x, 2, 0, piece, 2) == 2);
    }
}

/* A call that fails leaves NULL in every place that its caller could read. */
TEST(failed_calls_leave_null)
{
    tg_tensor *x = tg_ones_on(TG_SHAPE(4), TG_F64, HERE), *out[4], *index = x, *w = tg_set_requires_grad(x, true), *y;
    int i, k;
    for (k = 0; k < 9; ++k) {
        for (i = 0; i < 4; ++i) out[i] = x;
        y = tg_sum(w);
        if (k == 0) CHECK_FAILS(tg_split(x, 1, 0, out, 3), "4 pieces, but out has room for 3");
        if (k == 1) CHECK_FAILS(tg_split(x, -1, 0, out, 4), "split_size=-1");
        if (k == 2) CHECK_FAILS(tg_chunk(x, 0, 0, out, 4), "`chunks` to be greater than 0");
        if (k == 3) CHECK_FAILS(tg_unbind(x, 7, out, 4), "Dimension out of range");
        if (k == 4) CHECK_FAILS(tg_unbind(NULL, 0, out, 4), "argument t is NULL");
        if (k == 5) CHECK_FAILS(tg_gradients(&y, 1, NULL, NULL, 4, out, 0), "argument inputs is NULL");
        if (k == 6) CHECK_FAILS(tg_gradients(NULL, 1, NULL, &w, 1, out, 0), "argument outputs is NULL");
        if (k == 7) CHECK_FAILS(tg_split(x, INT64_MAX, 3, out, 4), "Dimension out of range");
        if (k == 8) CHECK(tg_split(x, INT64_MAX, 0, out, 4) == 1 && tg_dim(out[0], 0) == 4), out[0] = NULL;
        for (i = k == 6 ? 1 : k == 0 ? 3 : 4; i < 4; ++i) out[i] = NULL; /* more than there is room for */
        for (i = 0; i < 4; ++i) CHECK(out[i] == NULL);
    }
    CHECK_FAILS(tg_max_dim(x, 5, false, &index), "Dimension out of range");
    CHECK(index == NULL);
    index = x;
    CHECK_FAILS(tg_topk(x, 9, 0, true, &index), "selected index k out of range");
    CHECK(index == NULL);
    index = x;
    CHECK_FAILS(tg_sort(NULL, 0, true, &index), "argument t is NULL");
    CHECK(index == NULL);
}

/* A leaf that is a view is a leaf: it is not written in grad mode. */
TEST(leaf_views_are_not_written)
{
    tg_tensor *data = tg_ones_on(TG_SHAPE(4), TG_F64, HERE), *p = tg_set_requires_grad(tg_narrow(data, 0, 1, 2), true);
    CHECK_FAILS(tg_mul_scalar_(p, 2), "a view of a leaf Variable that requires grad is being used in an in-place");
    CHECK(tg_is_leaf(p) && tg_backward(tg_sum(tg_mul(p, p))) == TG_OK && tg_get(tg_grad(p), TG_INDEX(0)) == 2);
    {
        TG_NO_GRAD;
        CHECK(tg_mul_scalar_(p, 2) == p);
    }
}

/* Each call of tg_param adds a reference, of a parameter, too. */
TEST(parameter_made_twice_is_released_twice)
{
    tg_tensor *p = tg_param(tg_ones_on(TG_SHAPE(4), TG_F64, HERE));
    CHECK(tg_param(p) == p && tg_requires_grad(p));
    tg_release(p);
    CHECK(tg_numel(p) == 4 && tg_ok());
    tg_release(p);
    CHECK_FAILS(tg_numel(p), "was ended by tg_release");
}

/* Inside a deleter what ends waits.  A rule takes views of what its node saved, which brings that back for as long. */
static void backward_of_ended(void *user)
{
    double *slope = (double *)user;
    TG_SCOPE;
    tg_tensor *x = tg_set_requires_grad(tg_ones_on(TG_SHAPE(2, 2), TG_F64, TG_CPU), true), *a, *y;
    a = tg_mul_scalar(x, 3);
    y = tg_sum(tg_matmul(a, a));
    tg_drop(a);
    if (tg_backward(y) == TG_OK) *slope = tg_get(tg_grad(x), TG_INDEX(0, 1));
}

/* y = x, whose backward keeps what its forward saved. */
static tg_status kept_forward(tg_ctx *c, tg_tensor *const *in, tg_tensor **out)
{
    out[0] = tg_clone(in[0]);
    return tg_save(c, in[0]);
}

static tg_status kept_backward(tg_ctx *c, tg_tensor *const *g, tg_tensor **gin)
{
    tg_tensor **kept = (tg_tensor **)tg_ctx_user(c);
    *kept = tg_retain(tg_saved(c, 0));
    gin[0] = g[0];
    return TG_OK;
}

static void backward_that_keeps_the_ended(void *user)
{
    TG_SCOPE;
    tg_tensor *x = tg_set_requires_grad(tg_ones_on(TG_SHAPE(2), TG_F64, TG_CPU), true), *a, *y;
    a = tg_mul_scalar(x, 3);
    if (tg_custom("kept", kept_forward, kept_backward, user, &a, 1, &y, 1) != TG_OK) return;
    tg_drop(a);
    tg_backward(tg_sum(y));
}

TEST(saved_tensor_that_waits_to_end_is_kept)
{
    double data[2] = {1, 2};
    const tg_stats_info before = tg_stats();
    tg_tensor *kept = NULL;
    tg_drop(tg_wrap(data, TG_SHAPE(2), TG_F64, backward_that_keeps_the_ended, &kept));
    CHECK(tg_ok() && kept && tg_get(kept, TG_INDEX(1)) == 3);
    tg_release(kept);
    CHECK_FAILS(tg_numel(kept), "was ended by tg_release");
    CHECK(tg_stats().tensors == before.tensors && tg_stats().nodes == before.nodes);
}

/* Twice, with the graph of the gradient: the history that it still has is not given to it again. */
static void two_backwards_of_ended(void *user)
{
    tg_tensor *x, *a, *y, *g[2] = {NULL, NULL};
    tg_mark mark = tg_scope_begin();
    x = tg_set_requires_grad(tg_ones_on(TG_SHAPE(2), TG_F64, TG_CPU), true);
    a = tg_exp(x);
    y = tg_sum(tg_mul(a, a));
    tg_drop(a);
    if (tg_gradients(&y, 1, NULL, &x, 1, &g[0], TG_CREATE_GRAPH) == TG_OK &&
        tg_gradients(&y, 1, NULL, &x, 1, &g[1], TG_CREATE_GRAPH) == TG_OK) {
        *(bool *)user = tg_equal(g[0], g[1]) && tg_requires_grad(g[1]);
    }
    tg_scope_end(mark);
}

TEST(saved_tensor_that_waits_to_end_is_revived_twice)
{
    double data[2] = {1, 2};
    const tg_stats_info before = tg_stats();
    bool equal = false;
    tg_drop(tg_wrap(data, TG_SHAPE(2), TG_F64, two_backwards_of_ended, &equal));
    CHECK(tg_ok() && equal);
    CHECK(tg_stats().tensors == before.tensors && tg_stats().nodes == before.nodes);
}

TEST(saved_tensor_that_waits_to_end_is_used)
{
    double data[2] = {1, 2}, slope = 0;
    const tg_stats_info before = tg_stats();
    tg_drop(tg_wrap(data, TG_SHAPE(2), TG_F64, backward_of_ended, &slope));
    CHECK(slope == 36 && tg_ok());
    CHECK(tg_stats().tensors == before.tensors && tg_stats().nodes == before.nodes);
}

int main(int argc, char **argv)
{
    setenv("TG_DEBUG", "0", 1); /* tests choose */
    harness_begin(argc, argv);
    harness_take_device();
    harness.uses_ended = true;
    RUN(without_debug);
    RUN(with_debug);
    RUN(bytes_are_poisoned);
    RUN(what_is_still_owned_is_told);
    RUN(of_another_thread);
    RUN(drop_acts_on_the_innermost_scope);
    RUN(carried_from_turn_to_turn);
    RUN(results_are_no_hidden_views);
    RUN(gradient_of_a_result_that_is_written);
    RUN(unbind_is_linear);
    RUN(pieces_are_outputs_of_one_node);
    RUN(failed_calls_leave_null);
    RUN(leaf_views_are_not_written);
    RUN(parameter_made_twice_is_released_twice);
    RUN(saved_tensor_that_waits_to_end_is_revived_twice);
    RUN(saved_tensor_that_waits_to_end_is_used);
    RUN(saved_tensor_that_waits_to_end_is_kept);
    CHECK(tg_shutdown() == TG_OK);
    return harness_end();
}
