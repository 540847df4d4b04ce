/* graphs.h: random graphs of OPS ops on three inputs, on numbers by the engine and on tensors by the library. */
#ifndef GRAPHS_H
#define GRAPHS_H
#include "bugs.h"

enum { INPUTS = 3, OPS = 8 };
static struct { operation op; int a, b; } program[OPS];
static uint64_t random_state = 1;

static inline int random_below(int n)
{
    random_state = random_state * 6364136223846793005U + 1442695040888963407U;
    return (int)((random_state >> 33) % (uint64_t)n);
}

static inline value *engine_graph(void)
{
    value *v[INPUTS + OPS] = {&tape.values[0], &tape.values[1], &tape.values[2]}, *sum = v_leaf(0);
    for (int i = 0; i < OPS; ++i) {
        value *a = v[program[i].a], *b = v[program[i].b];
        v[INPUTS + i] = program[i].op == ADD ? v_add(a, b) : program[i].op == MUL ? v_mul(a, b) :
                        program[i].op == EXP ? v_exp(v_tanh(a)) : v_tanh(a);
        sum = v_add(sum, v[INPUTS + i]);
    }
    return sum;
}

static inline tg_tensor *library_graph(tg_tensor *const *in, int n, void *user)
{
    tg_tensor *t[INPUTS + OPS], *sum = tg_scalar(0);
    for (int i = 0; i < n; ++i) t[i] = in[i];
    for (int i = 0; i < OPS; ++i) {
        tg_tensor *a = t[program[i].a], *b = t[program[i].b];
        t[INPUTS + i] = program[i].op == ADD ? tg_add(a, b) : program[i].op == MUL ? tg_mul(a, b) :
                        program[i].op == EXP ? tg_exp(tg_tanh(a)) : tg_tanh(a);
        sum = tg_add(sum, tg_sum(t[INPUTS + i]));
    }
    (void)user;
    return sum;
}

/* The tools on one random graph, where they have nothing to say; and whether engine and library agree. */
static inline const char *random_graph(void (*backward)(value *root))
{
    TG_SCOPE;
    const operation ops[] = {ADD, MUL, TANH, EXP};
    for (int i = 0; i < OPS; ++i) {
        program[i].op = ops[random_below(4)];
        program[i].a = random_below(INPUTS + i);
        program[i].b = random_below(INPUTS + i);
    }
    tg_tensor *x = tg_randn(TG_SHAPE(2, 3)), *b = tg_randn(TG_SHAPE(3)), *transposed = tg_t(tg_randn(TG_SHAPE(3, 2)));
    tg_tensor *in[INPUTS] = {x, b, transposed}, *number[INPUTS];
    for (int i = 0; i < INPUTS; ++i) in[i] = tg_set_requires_grad(tg_detach(tg_mul_scalar(in[i], 0.5)), true);
    const char *said = gradcheck(library_graph, in, INPUTS), *more = slopes(engine_graph, INPUTS, backward);
    backward(engine_graph());
    for (int i = 0; i < INPUTS; ++i) number[i] = tg_set_requires_grad(tg_scalar(tape.values[i].data), true);
    tg_set_anomaly(true);
    tg_backward(library_graph(number, INPUTS, NULL));
    tg_set_anomaly(false);
    if (!said) said = message();
    for (int i = 0; i < INPUTS && !said; ++i) {
        const double library = tg_grad(number[i]) ? tg_item(tg_grad(number[i])) : 0;
        if (fabs(library - tape.values[i].grad) > 1e-9) said = "engine and library differ";
    }
    return said ? said : more;
}

/* How many of 200 are an alarm when this mistake is planted. */
static inline int graph_alarms(int planted, void (*backward)(value *root))
{
    int alarms = 0;
    bug = planted;
    for (int i = 0; i < 200; ++i) alarms += random_graph(backward) != NULL;
    return alarms;
}
#endif
