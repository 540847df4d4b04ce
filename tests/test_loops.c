/* Loops leak nothing: 20,000 steps of each way to write one (README, the comments of tensorgrad.h) end with the tensors,
 * nodes, modules and bytes of step 100, and with the memory that the process had then. */
#if !defined(__cplusplus) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200112L
#endif
#include "tensorgrad.h"
#include "helpers.h"
#ifdef __linux__
#include <unistd.h>
#endif

/* Of each loop.  What a step does depends on its number modulo 2 to 7, 10 and 20 at most; by all of them the last one is
 * as number 100. */
enum { STEPS = 101 + 48 * 420, FEW_STEPS = 101 + 420 };
static int steps;

/* ---- what is compared ---- */

/* Resident bytes of the process; 0 where nobody tells, or a memory checker keeps what was freed. */
static int64_t resident(void)
{
    int64_t pages = 0;
#ifdef __linux__
    long long all = 0, in_memory = 0;
    FILE *file = HARNESS_MEMORY_CHECKER ? NULL : fopen("/proc/self/statm", "r");
    if (file && fscanf(file, "%lld %lld", &all, &in_memory) == 2) pages = (int64_t)in_memory * sysconf(_SC_PAGESIZE);
    if (file) fclose(file);
#endif
    return pages;
}

static struct {
    tg_stats_info stats;
    int64_t resident;
    int laps;
} early;

/* Called in each step, at the same place.  Less than 512 KB more than at step 100 are the own affair of malloc, which grows by 128 KB; a leak
   of 27 bytes per step is more than that. */
static void lap(int step)
{
    const tg_stats_info now = tg_stats();
    early.laps++;
    if (step == 100) early.stats = now, early.resident = resident();
    if (step != steps - 1) return;
    CHECK(now.tensors == early.stats.tensors && now.nodes == early.stats.nodes && now.bytes == early.stats.bytes);
    CHECK(now.saved == early.stats.saved && now.modules == early.stats.modules);
    CHECK(now.unscoped == early.stats.unscoped);
    CHECK(now.allocations - early.stats.allocations < 1000 || HARNESS_MEMORY_CHECKER);
    if (early.resident && steps == STEPS) {
        const int64_t more = resident() - early.resident;
        if (!CHECK(more < (int64_t)1 << 19)) printf("    %lld bytes more than at step 100\n", (long long)more);
    }
}

#define LOOP(step) for (int step = 0; step < steps; ++step)

/* A small network with its data: 2 -> 4 -> 2. */
typedef struct {
    tg_module *m, *hidden, *out;
    tg_tensor *x, *y;
    tg_optim *opt;
} net;

static void net_forward(tg_module *m, tg_tensor *const *in, int n, tg_tensor **out, int n_out)
{
    net *self = *(net **)tg_module_self(m);
    out[0] = tg_forward(self->out, tg_tanh(tg_forward(self->hidden, in[0])));
    (void)n, (void)n_out;
}

static net net_new(net *self)
{
    net none;
    memset(&none, 0, sizeof none);
    *self = none;
    self->m = tg_module_new("Net", net_forward, sizeof self);
    *(net **)tg_module_self(self->m) = self;
    self->hidden = tg_module_child(self->m, "hidden", tg_nn_linear(2, 4, true));
    self->out = tg_module_child(self->m, "out", tg_nn_linear(4, 2, true));
    self->x = tg_randn(TG_SHAPE(3, 2)), self->y = tg_randint(0, 2, TG_SHAPE(3));
    self->opt = tg_adamw(tg_module_params(self->m), tg_module_count(self->m), 1e-3);
    return *self;
}

static void net_free(net *self)
{
    tg_optim_free(self->opt);
    tg_module_free(self->m);
}

static tg_tensor *loss_of(net *n) { return tg_cross_entropy(tg_forward(n->m, n->x), n->y); }

/* ---- training ---- */

TEST(the_first_screen)
{
    tg_tensor *w = tg_param(tg_zeros(TG_SHAPE(1))), *b = tg_param(tg_zeros(TG_SHAPE(1)));
    tg_optim *opt = tg_sgd(TG_LIST(w, b), 0.1);
    LOOP(step)
    {
        {
            TG_SCOPE;
            tg_tensor *x = tg_randn(TG_SHAPE(4, 1));
            tg_tensor *y = tg_add_scalar(tg_mul_scalar(x, 3), 2);
            tg_tensor *loss = tg_mse_loss(tg_add(tg_mul(x, w), b), y, TG_MEAN);
            tg_optim_zero_grad(opt);
            tg_backward(loss);
            tg_step(opt);
        }
        lap(step);
    }
    tg_optim_free(opt), tg_release(w), tg_release(b);
}

TEST(optimizer_and_schedule)
{
    net n;
    double late = 0;
    net_new(&n);
    LOOP(step)
    {
        tg_mark mark = tg_scope_begin();
        tg_tensor *loss = loss_of(&n);
        n.opt->lr = tg_lr_cosine(step, 100, steps, 0.02, 0);
        tg_optim_zero_grad(n.opt);
        tg_backward(loss);
        tg_clip_grad_norm(tg_module_params(n.m), tg_module_count(n.m), 1);
        tg_step(n.opt);
        if (step % 100 == 0) late = tg_item(loss);
        lap(step);
        tg_scope_end(mark);
    }
    CHECK(late < 1);
    net_free(&n);
}

TEST(gradients_are_accumulated)
{
    net n;
    net_new(&n);
    LOOP(step)
    {
        for (int part = 0; part < 2; ++part) {
            TG_SCOPE;
            tg_backward(tg_mul_scalar(loss_of(&n), 0.5));
        }
        tg_step(n.opt);
        tg_module_zero_grad(n.m);
        lap(step);
    }
    net_free(&n);
}

static tg_tensor *closure(void *user)
{
    net *n = (net *)user;
    tg_optim_zero_grad(n->opt);
    tg_tensor *loss = loss_of(n);
    return tg_backward(loss) == TG_OK ? loss : NULL;
}

TEST(closures)
{
    net n;
    net_new(&n);
    LOOP(step)
    {
        {
            TG_SCOPE;
            CHECK(tg_step_closure(n.opt, closure, &n) != NULL);
        }
        lap(step);
    }
    net_free(&n);
}

TEST(optimizers_made_and_freed)
{
    net n;
    net_new(&n);
    LOOP(step)
    {
        TG_SCOPE;
        net again;
        tg_optim *opt = step % 2 ? tg_rmsprop(tg_module_params(n.m), 4, 1e-3) : tg_adam(tg_module_params(n.m), 4, 1e-3);
        tg_backward(loss_of(&n));
        tg_step(opt);
        tg_optim_zero_grad(opt);
        tg_optim_free(opt);
        if (step % 10 == 0) net_new(&again), net_free(&again);
        lap(step);
    }
    net_free(&n);
}

TEST(scaler_and_autocast)
{
    net n;
    tg_grad_scaler scaler = TG_GRAD_SCALER;
    net_new(&n);
    scaler.scale = 128, scaler.growth_interval = 1000000;
    LOOP(step)
    {
        {
            TG_SCOPE;
            tg_tensor *loss;
            tg_optim_zero_grad(n.opt);
            {
                TG_AUTOCAST(step % 2 ? TG_F16 : TG_BF16);
                loss = loss_of(&n);
            }
            tg_backward(tg_grad_scaler_scale(&scaler, loss));
            tg_grad_scaler_unscale_(&scaler, n.opt);
            tg_clip_grad_norm(tg_module_params(n.m), 4, 1);
            tg_grad_scaler_step(&scaler, n.opt);
            tg_grad_scaler_update(&scaler);
        }
        lap(step);
    }
    net_free(&n);
}

typedef struct {
    net *n;
    tg_tensor *loss;
} captured;

static bool captured_step(void *user)
{
    captured *r = (captured *)user;
    tg_optim_zero_grad(r->n->opt);
    tg_tensor *loss = loss_of(r->n);
    return tg_backward(loss) == TG_OK && tg_step(r->n->opt) == TG_OK && tg_copy_(r->loss, tg_detach(loss)) != NULL;
}

TEST(captured_steps)
{
    net n;
    captured r;
    tg_capture *capture;
    net_new(&n);
    r.n = &n, r.loss = tg_scalar(0);
    capture = tg_capture_new(HERE, captured_step, &r);
    LOOP(step)
    {
        {
            TG_SCOPE;
            tg_copy_(n.x, tg_randn(TG_SHAPE(3, 2)));
            CHECK(tg_capture_run(capture) == TG_OK);
        }
        lap(step);
    }
    CHECK(tg_item(r.loss) > 0);
    tg_capture_free(capture);
    net_free(&n);
}

/* ---- loaders ---- */

static tg_loader *rows(net *n)
{
    n->x = tg_randn(TG_SHAPE(12, 2)), n->y = tg_randint(0, 2, TG_SHAPE(12));
    return tg_loader_new(TG_LIST(n->x, n->y), 3, TG_SHUFFLE, HERE);
}

TEST(a_loader_in_the_scope_of_the_step)
{
    net n;
    net_new(&n);
    tg_loader *loader = rows(&n);
    LOOP(step)
    {
        TG_SCOPE;
        tg_tensor *batch[2];
        while (!tg_loader_next(loader, batch)) {} /* the end of an epoch */
        tg_optim_zero_grad(n.opt);
        tg_backward(tg_cross_entropy(tg_forward(n.m, batch[0]), batch[1]));
        tg_step(n.opt);
        lap(step);
    }
    tg_loader_free(loader);
    net_free(&n);
}

TEST(a_loader_around_the_scope_of_the_step)
{
    net n;
    net_new(&n);
    tg_loader *loader = rows(&n);
    tg_tensor *batch[2];
    for (int step = 0; step < steps;) {
        while (step < steps && tg_loader_next(loader, batch)) {
            TG_SCOPE;
            tg_optim_zero_grad(n.opt);
            tg_backward(tg_cross_entropy(tg_forward(n.m, batch[0]), batch[1]));
            tg_step(n.opt);
            lap(step++);
        }
    }
    tg_loader_free(loader);
    net_free(&n);
}

/* An evaluation after each epoch, with a loader of its own and a sum of tensors. */
TEST(training_and_evaluation)
{
    net n;
    net_new(&n);
    tg_loader *learn = rows(&n), *judge = tg_loader_new(TG_LIST(n.x, n.y), 6, 0, HERE);
    tg_tensor *batch[2];
    for (int step = 0; step < steps; step += 4) {
        double right = 0;
        while (tg_loader_next(learn, batch)) {
            TG_SCOPE;
            tg_optim_zero_grad(n.opt);
            tg_backward(tg_cross_entropy(tg_forward(n.m, batch[0]), batch[1]));
            tg_step(n.opt);
        }
        tg_module_train(n.m, false);
        while (tg_loader_next(judge, batch)) {
            TG_SCOPE;
            TG_NO_GRAD;
            right += tg_item(tg_sum(tg_eq(tg_argmax(tg_forward(n.m, batch[0]), 1, false), batch[1])));
        }
        tg_module_train(n.m, true);
        CHECK(right <= 12);
        lap(step);
    }
    tg_loader_free(learn), tg_loader_free(judge);
    net_free(&n);
}

/* ---- gradients ---- */

TEST(gradients_of_gradients)
{
    net n;
    net_new(&n);
    LOOP(step)
    {
        {
            TG_SCOPE;
            tg_tensor *x = tg_set_requires_grad(tg_randn(TG_SHAPE(3, 2)), true), *g;
            tg_tensor *score = tg_sum(tg_forward(n.m, x));
            tg_gradients(&score, 1, NULL, &x, 1, &g, TG_CREATE_GRAPH);
            tg_optim_zero_grad(n.opt);
            tg_backward(tg_mean(tg_square(tg_sub_scalar(tg_norm_dim(g, 2, 1, false), 1))));
            tg_step(n.opt);
        }
        lap(step);
    }
    net_free(&n);
}

TEST(a_graph_that_is_retained)
{
    tg_tensor *x = tg_param(tg_ones(TG_SHAPE(3))), *y = tg_sum(tg_exp(x));
    LOOP(step)
    {
        TG_SCOPE;
        tg_set_grad(x, NULL);
        CHECK(tg_backward_ex(&y, 1, NULL, step % 2 ? TG_RETAIN_GRAPH : TG_CREATE_GRAPH) == TG_OK);
        tg_set_grad(x, tg_detach(tg_grad(x))); /* the graph of a gradient of TG_CREATE_GRAPH has x */
        lap(step);
    }
    tg_release(x);
}

TEST(backward_step_by_step)
{
    net n;
    net_new(&n);
    LOOP(step)
    {
        TG_SCOPE;
        tg_tensor *loss = loss_of(&n);
        tg_backward_run *run = tg_backward_begin(&loss, 1, NULL, 0);
        tg_step_info info;
        int nodes = 0;
        while ((step % 3 || nodes < 4) && tg_backward_step(run, &info)) ++nodes; /* one of three is abandoned */
        CHECK(tg_backward_end(run) == TG_OK);
        tg_optim_zero_grad(n.opt);
        lap(step);
    }
    net_free(&n);
}

static tg_tensor *halve(tg_tensor *grad, void *user) { return (void)user, tg_mul_scalar(grad, 0.5); }
static void look(tg_tensor *leaf, void *user) { *(int *)user += tg_grad(leaf) != NULL; }

TEST(hooks_added_and_removed)
{
    net n;
    int seen = 0;
    net_new(&n);
    tg_tensor *w = tg_module_get(n.m, "out.weight");
    LOOP(step)
    {
        TG_SCOPE;
        const int hook = tg_hook(w, halve, NULL), post = tg_hook_post_accumulate(w, look, &seen);
        tg_tensor *loss = loss_of(&n);
        tg_hook(loss, halve, NULL);
        tg_retain_grad(loss);
        tg_backward(loss);
        CHECK(tg_unhook(w, hook) == TG_OK && tg_unhook(w, post) == TG_OK);
        tg_optim_zero_grad(n.opt);
        lap(step);
    }
    CHECK(seen == steps);
    net_free(&n);
}

static void twice(tg_module *m, tg_tensor **in, int count, tg_tensor **out, int n_out, void *user)
{
    (void)m, (void)count, (void)n_out, (void)user;
    if (out) out[0] = tg_mul_scalar(out[0], 2);
    else in[0] = tg_mul_scalar(in[0], 2);
}

TEST(hooks_of_modules)
{
    net n;
    net_new(&n);
    LOOP(step)
    {
        TG_SCOPE;
        const int before = tg_module_pre_hook(n.hidden, twice, NULL), after = tg_module_hook(n.out, twice, NULL);
        tg_backward(loss_of(&n));
        tg_module_unhook(n.hidden, before), tg_module_unhook(n.out, after);
        lap(step);
    }
    net_free(&n);
}

/* ---- functions of the user's ---- */

static tg_status cube_forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    double *memory = (double *)tg_ctx_alloc(ctx, 64);
    if (memory) memory[0] = 3;
    out[0] = tg_mul(in[0], tg_mul(in[0], in[0]));
    return tg_save(ctx, in[0]);
}

static tg_status cube_backward(tg_ctx *ctx, tg_tensor *const *g, tg_tensor **grad_in)
{
    tg_tensor *x = tg_saved(ctx, 0);
    grad_in[0] = tg_mul(g[0], tg_mul_scalar(tg_mul(x, x), 3));
    return TG_OK;
}

static tg_tensor *block(tg_tensor *const *in, int n, void *user)
{
    return (void)n, tg_forward(((net *)user)->m, tg_dropout(in[0], 0.1, true));
}

TEST(custom_functions)
{
    tg_tensor *x = tg_param(tg_ones(TG_SHAPE(3)));
    LOOP(step)
    {
        TG_SCOPE;
        tg_tensor *y = NULL;
        tg_custom("cube", cube_forward, cube_backward, NULL, &x, 1, &y, 1);
        if (step % 2) tg_backward(tg_sum(y)); /* in other turns the graph is dropped */
        tg_set_grad(x, NULL);
        lap(step);
    }
    tg_release(x);
}

TEST(checkpoints)
{
    net n;
    net_new(&n);
    LOOP(step)
    {
        TG_SCOPE;
        tg_tensor *y = tg_checkpoint(block, &n.x, 1, &n);
        if (step % 2) tg_backward(tg_cross_entropy(y, n.y));
        tg_optim_zero_grad(n.opt);
        lap(step);
    }
    net_free(&n);
}

static tg_tensor *sines(tg_tensor *const *in, int n, void *user) { return (void)n, (void)user, tg_sin(in[0]); }

TEST(gradcheck)
{
    tg_tensor *x = tg_set_requires_grad(tg_ones_on(TG_SHAPE(1), TG_F64, HERE), true);
    LOOP(step)
    {
        CHECK(tg_gradcheck(sines, &x, 1, NULL));
        lap(step);
    }
}

/* ---- tensors that live from step to step ---- */

static tg_tensor *number(double x) { return tg_param(tg_scalar(x)); }

TEST(a_state_that_is_detached)
{
    tg_tensor *input = number(0.5), *state = number(0.1), *bias = number(0), *h = tg_retain(tg_scalar(0)), *old;
    tg_optim *opt = tg_adam(TG_LIST(input, state, bias), 0.01);
    LOOP(turn)
    {
        {
            TG_SCOPE;
            tg_tensor *x = tg_scalar(turn % 2);
            tg_tensor *next = tg_tanh(tg_add(tg_add(tg_mul(input, x), tg_mul(state, h)), bias));
            tg_optim_zero_grad(opt);
            tg_backward(tg_square(tg_add_scalar(next, turn % 2 - 0.5)));
            tg_step(opt);
            old = h, h = tg_retain(tg_detach(next)), tg_release(old);
        }
        lap(turn);
    }
    tg_optim_free(opt), tg_release(h), tg_release(input), tg_release(state), tg_release(bias);
}

TEST(recurrent_layers)
{
    tg_module *lstm = tg_nn_lstm(2, 3, 1);
    tg_tensor *state[3], *out[3], *old[2];
    for (int k = 1; k < 3; ++k) state[k] = tg_retain(tg_zeros(TG_SHAPE(1, 1, 3)));
    LOOP(step)
    {
        {
            TG_SCOPE;
            state[0] = tg_randn(TG_SHAPE(2, 1, 2));
            if (!CHECK(tg_forward_n(lstm, state, 3, out, 3) == TG_OK)) break;
            tg_backward(tg_sum(out[0]));
            tg_module_zero_grad(lstm);
            for (int k = 1; k < 3; ++k) old[k - 1] = state[k], state[k] = tg_retain(tg_detach(out[k]));
            tg_release_all(old, 2);
        }
        lap(step);
    }
    tg_release_all(state + 1, 2);
    tg_module_free(lstm);
}

/* An average of the weights, written in place, and the best of all steps, which is replaced. */
TEST(averages_and_the_best)
{
    net n;
    tg_tensor *average, *best = NULL;
    net_new(&n);
    tg_tensor *w = tg_module_get(n.m, "out.weight");
    average = tg_retain(tg_clone(tg_detach(w)));
    LOOP(step)
    {
        {
            TG_SCOPE;
            TG_NO_GRAD;
            tg_mul_scalar_(average, 0.99);
            tg_add_(average, tg_mul_scalar(w, 0.01));
            if (step % 7 == 0) {
                tg_tensor *replaced = best;
                best = tg_retain(tg_clone(tg_detach(w)));
                tg_release(replaced);
            }
        }
        lap(step);
    }
    tg_release(average), tg_release(best);
    net_free(&n);
}

static tg_tensor *mean_of_three(tg_tensor *x)
{
    TG_SCOPE;
    tg_tensor *sum = x;
    for (int i = 0; i < 3; ++i) sum = tg_add(sum, x);
    return tg_keep(tg_div_scalar(sum, 3));
}

TEST(functions_that_keep_their_result)
{
    tg_tensor *x = tg_ones(TG_SHAPE(2));
    LOOP(step)
    {
        TG_SCOPE;
        tg_tensor *y = mean_of_three(mean_of_three(x)), *t = tg_neg(y);
        tg_drop(t);
        CHECK(tg_numel(y) == 2);
        lap(step);
    }
}

/* ---- moves, views and writes ---- */

TEST(moves)
{
    net n;
    net_new(&n);
    LOOP(step)
    {
        {
            TG_SCOPE;
            tg_tensor *there = tg_to_ex(n.x, HERE, TG_F64, TG_COPY), *back = tg_cpu(tg_to_dtype(there, TG_F32));
            tg_tensor *list[2];
            list[0] = there, list[1] = back;
            tg_to_all(list, 2, HERE);
            tg_module_to(n.m, HERE), tg_module_to_dtype(n.m, TG_F64), tg_module_to_dtype(n.m, TG_F32);
            tg_backward(loss_of(&n));
            tg_module_zero_grad(n.m);
        }
        lap(step);
    }
    net_free(&n);
}

TEST(views_and_writes_in_place)
{
    tg_tensor *x = tg_param(tg_ones(TG_SHAPE(3, 4))), *table = tg_zeros(TG_SHAPE(4, 4));
    LOOP(step)
    {
        TG_SCOPE;
        tg_tensor *y = tg_clone(x), *part[3];
        tg_mul_scalar_(tg_narrow(y, 0, 0, 2), 2);
        tg_copy_(tg_select(y, 0, 2), tg_ones(TG_SHAPE(4)));
        CHECK(tg_unbind(y, 0, part, 3) == 3);
        tg_backward(tg_sum(tg_mul(part[0], part[1])));
        tg_set_grad(x, NULL);
        tg_set(table, TG_INDEX(step % 4, 0), step);
        tg_fill_(tg_select(table, 0, 1), step);
        lap(step);
    }
    tg_release(x);
}

/* ---- names and states ---- */

TEST(states)
{
    net n, other;
    net_new(&n), net_new(&other);
    LOOP(step)
    {
        TG_SCOPE;
        tg_dict *state = tg_module_state(n.m), *moved = tg_dict_to(state, HERE);
        CHECK(tg_module_load_state(other.m, state, true) == TG_OK);
        tg_dict_set(moved, "step", tg_scalar(step));
        tg_set_name(n.x, step % 2 ? "x" : "a longer name of x");
        tg_dict_free(state), tg_dict_free(moved);
        lap(step);
    }
    tg_set_name(n.x, NULL);
    net_free(&n), net_free(&other);
}

TEST(printing)
{
    net n;
    FILE *file = tmpfile();
    net_new(&n);
    if (!file) printf("skipped printing: there is no temporary file\n");
    LOOP(step)
    {
        TG_SCOPE;
        if (file) {
            tg_tensor *loss = loss_of(&n);
            rewind(file);
            tg_fprint(file, n.x);
            if (step % 10 == 0) tg_tape_print(file, loss), tg_module_print(file, n.m);
        }
        lap(step);
    }
    if (file) fclose(file);
    net_free(&n);
}

/* Files: of all steps one in twenty, as the disk is slow. */
TEST(checkpoints_in_files)
{
    net n;
    int64_t at = 0;
    const char *path = beside("checkpoint.safetensors");
    net_new(&n);
    tg_backward(loss_of(&n)), tg_step(n.opt);
    LOOP(step)
    {
        if (step % 20 == 0) CHECK(tg_checkpoint_save(path, n.m, n.opt, step) == TG_OK);
        if (step % 20 == 10) CHECK(tg_checkpoint_load(path, n.m, n.opt, &at) == TG_OK && at == step - 10);
        lap(step);
    }
    remove(path);
    net_free(&n);
}

/* ---- errors ---- */

TEST(errors_inside_a_loop)
{
    net n;
    net_new(&n);
    LOOP(step)
    {
        {
            TG_SCOPE;
            tg_tensor *wrong = tg_randn(TG_SHAPE(3, 5)), *y = NULL, *loss = loss_of(&n);
            switch (step % 5) {
            case 0: y = tg_forward(n.m, wrong); break;
            case 1: y = tg_add(tg_exp(n.x), wrong); break;
            case 2: tg_backward(loss), tg_backward(loss); break;
            case 3: tg_npy_load("/there/is/no/such/file.npy"); break;
            default: y = tg_reshape(loss, TG_SHAPE(7)); break;
            }
            CHECK(!y && !tg_ok());
            tg_clear_error();
            tg_optim_zero_grad(n.opt);
        }
        lap(step);
    }
    net_free(&n);
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    harness_take_device();
    steps = getenv("SMALL") || HARNESS_MEMORY_CHECKER ? FEW_STEPS : STEPS;
    if (!resident() || steps < STEPS) printf("skipped resident bytes: %s\n", steps < STEPS ? "few steps" : "unknown");
    RUN(the_first_screen);
    RUN(optimizer_and_schedule);
    RUN(gradients_are_accumulated);
    RUN(closures);
    RUN(optimizers_made_and_freed);
    RUN(scaler_and_autocast);
    RUN(captured_steps);
    RUN(a_loader_in_the_scope_of_the_step);
    RUN(a_loader_around_the_scope_of_the_step);
    RUN(training_and_evaluation);
    RUN(gradients_of_gradients);
    RUN(a_graph_that_is_retained);
    RUN(backward_step_by_step);
    RUN(hooks_added_and_removed);
    RUN(hooks_of_modules);
    RUN(custom_functions);
    RUN(checkpoints);
    RUN(gradcheck);
    RUN(a_state_that_is_detached);
    RUN(recurrent_layers);
    RUN(averages_and_the_best);
    RUN(functions_that_keep_their_result);
    RUN(moves);
    RUN(views_and_writes_in_place);
    RUN(states);
    RUN(printing);
    RUN(checkpoints_in_files);
    RUN(errors_inside_a_loop);
    CHECK(early.laps > 0 || harness.only);
    CHECK(tg_shutdown() == TG_OK);
    return harness_end();
}
