/* bugs.c: fourteen mistakes that are made in autograd and with it, and what finds each of them.

   READ    the functions that make them: a mistake is there where `bug` is its number, else that line is right.
   CHANGE  bugs 6 prints all that is said of mistake 6: find out why, before you read its line.  Plant one of yours.
   PRINTS  what finds each mistake, and what it says; then, for 200 random graphs by engine, library and numeric slopes,
           how often there is an alarm: without a mistake (0), and with two of them; last, how many are found. */
#include "graphs.h"

/* ---- 1, 2, 14: backward in the engine, by the graphs twice() and chain() of bugs.h ---- */

static void visit(value *v)
{
    note_stack();
    if (bug == 1 && v->a) v->a->grad = 0; /* so that += is = */
    if (bug == 1 && v->b) v->b->grad = 0;
    backward_of(v);
}

static void recurse(value *v) /* goes on before v has all of its gradient, and as deep as the graph is */
{
    visit(v);
    if (v->a) recurse(v->a);
    if (v->b) recurse(v->b);
}

static void backward(value *root)
{
    v_zero_grad();
    root->grad = 1;
    if (bug == 2 || bug == 14) recurse(root);
    else for (value *v = root + 1; v-- > tape.values;) visit(v);
}

static const char *numbers(void) { return slopes(mistake == 14 ? chain : twice, 2, backward); }

/* ---- 4, 5, 6, 8, 11: rules of custom functions; 10, 12: functions of other ops ---- */

static tg_status forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    switch (mistake) {
    case 4: out[0] = tg_add(in[0], in[1]); break; /* x [2, 3] + b [3] */
    case 8: out[0] = tg_amax(in[0]); break;
    case 11: out[0] = tg_mean(in[0]); break;
    default: out[0] = tg_tanh(in[0]);
    }
    tg_save(ctx, in[0]);
    return tg_save(ctx, out[0]);
}

static tg_status rule(tg_ctx *ctx, tg_tensor *const *g, tg_tensor **grad)
{
    tg_tensor *x = tg_saved(ctx, 0), *y = tg_saved(ctx, 1), *gy = g[0];
    tg_tensor *largest = tg_to_dtype(tg_eq(x, y), TG_F64); /* 1 or 0 */
    const double n = (double)tg_numel(x);
    switch (mistake) {
    case 4: grad[0] = gy; grad[1] = bug == 4 ? tg_mean_dim(gy, 0, false) : tg_sum_dim(gy, 0, false); break;
    case 8: grad[0] = tg_mul(gy, bug == 8 ? largest : tg_div(largest, tg_sum(largest))); break;
    case 11: grad[0] = tg_expand(tg_div_scalar(gy, bug == 11 ? n * n : n), tg_shape_of(x)); break;
    default: /* gy may be a transpose, whose rows are columns in memory */
        if (bug == 5) gy = tg_from_f64((const double *)tg_data(gy), tg_shape_of(gy));
        grad[0] = tg_mul(gy, tg_rsub_scalar(tg_square(bug == 6 ? tg_tanh(y) : y), 1));
    }
    return TG_OK;
}

static tg_tensor *function(tg_tensor *const *in, int n, void *user)
{
    tg_tensor *x = in[0], *b = in[n - 1], *y = tg_tanh(b);
    const tg_device gpu = tg_cuda_is_available() ? TG_CUDA(0) : TG_CPU;
    (void)user;
    if (mistake == 10) return tg_mul(bug == 10 ? tg_detach(y) : y, x);
    tg_tensor *there = bug == 12 ? tg_from_on(tg_data(b), tg_shape_of(b), TG_F64, gpu) : tg_to(b, gpu);
    if (mistake == 12) return tg_mul(tg_to(there, TG_CPU), x);
    tg_tensor *equal = tg_expand(tg_sum(b), TG_SHAPE(2, 3)), *inputs[2] = {mistake == 8 ? equal : x, b};
    tg_custom("function", forward, rule, NULL, inputs, mistake == 4 ? 2 : 1, &y, 1);
    return mistake == 5 ? tg_t(y) : y;
}

static const char *rules(void)
{
    tg_tensor *in[2] = {tg_reshape(tg_linspace(-1, 1, 6), TG_SHAPE(2, 3)), tg_linspace(0.5, 1, 3)};
    tg_set_requires_grad(in[0], true);
    tg_set_requires_grad(in[1], mistake != 5 && mistake != 6);
    return gradcheck(function, in, 2);
}

/* ---- 3, 7, 9, 13: mistakes in programs ---- */

static const char *training(void)
{
    tg_tensor *w = tg_set_requires_grad(tg_scalar(0.5), true), *total = tg_scalar(0), *fresh = NULL;
    const int64_t nodes = tg_stats().nodes;
    const char *said = NULL;
    for (int step = 0; step < 5; ++step) {
        TG_SCOPE;
        tg_tensor *loss = tg_square(tg_add_scalar(w, -2));
        if (bug != 3) tg_zero_grad(&w, 1);
        tg_gradients(&loss, 1, NULL, &w, 1, &fresh, TG_RETAIN_GRAPH);
        tg_backward(loss);
        if (tg_item(tg_grad(w)) != tg_item(fresh)) said = ".grad has more in it than tg_gradients gives: tg_zero_grad";
        total = tg_keep(tg_add(total, bug == 13 ? loss : tg_detach(loss)));
    }
    if (tg_stats().nodes > nodes) said = "tg_stats() counts more nodes of the tape after each step: tg_detach";
    return said;
}

static const char *messages(void)
{
    tg_tensor *x = tg_set_requires_grad(tg_linspace(0, 1000, 3), true), *shift = tg_detach(tg_amax(x));
    tg_tensor *e = tg_exp(bug == 7 ? x : tg_sub(x, shift)), *y = tg_div(e, tg_sum(e)); /* softmax of x */
    tg_backward(tg_sum(bug == 9 ? tg_add_scalar_(e, 1) : tg_add_scalar(y, 1)));
    return message();
}

int main(int argc, char **argv)
{
    static const struct { const char *name, *tool, *(*find)(void); } table[] = {
        {"a gradient is stored, not added", "slopes", numbers},
        {"recursion in place of an order", "slopes", numbers},
        {"tg_zero_grad is forgotten", "tg_gradients", training},
        {"not reduced over a broadcast dim", "tg_gradcheck", rules},
        {"strides are ignored", "tg_gradcheck", rules},
        {"a rule takes y for x", "tg_gradcheck", rules},
        {"softmax without a shift", "tg_set_anomaly", messages},
        {"equal maxima each get all", "tg_gradcheck", rules},
        {"a saved value is overwritten", "message", messages},
        {"a detach too many", "tg_gradcheck", rules},
        {"divided by n twice", "tg_gradcheck", rules},
        {"moved by a copy of the numbers", "tg_gradcheck", rules},
        {"the graph of each step is kept", "tg_stats", training},
        {"recursion over the graph", "stack", numbers}};
    int found = 0, alarms = 0;
    tg_set_default_dtype(TG_F64);
    tg_set_error_handler(heard, NULL);
    tg_set_anomaly(true);
    verbose = argc > 1;
    for (mistake = 1; mistake <= 14; ++mistake) {
        TG_SCOPE;
        if (verbose && mistake != atoi(argv[1])) continue;
        bug = 0;
        alarms += table[mistake - 1].find() != NULL;
        bug = mistake;
        const char *said = table[mistake - 1].find();
        found += said != NULL;
        printf("%2d  %-32s %-14s %s\n", mistake, table[mistake - 1].name, table[mistake - 1].tool, said ? said : "-");
    }
    for (int k = 0; k < 3 && !verbose; ++k) printf("200 graphs, mistake %d: %d alarms\n", k, graph_alarms(k, backward));
    printf("%d of 14 found; %d alarms without a mistake, %d warnings\n", found, alarms, warnings);
    return tg_shutdown() == TG_OK ? 0 : 1;
}
