/* engine.h: automatic differentiation of numbers in a hundred lines, as micrograd does it in Python.  tensorgrad does
   the same with tensors: "header:" names the room and what to look for there.

   06_engine.c shows the engine at work, bugs.c plants mistakes in it. */
#ifndef ENGINE_H
#define ENGINE_H
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef enum { LEAF, ADD, MUL, POWER, RELU, TANH, EXP, LOG } operation;

/* A number, and what it was computed from.  header: @@TENSOR tg_tensor; @@TAPE tgi_node */
typedef struct value value;
struct value {
    double data, grad; /* grad: the derivative of backward's root by this number */
    operation op;
    value *a, *b;      /* the inputs of op, or NULL */
    double exponent;   /* of POWER */
};

/* All numbers in the order in which they were made, so that inputs stand before what is computed from them.
   header: @@TAPE tgi_node_new */
enum { TAPE_LENGTH = 1 << 16 };
static struct {
    value values[TAPE_LENGTH];
    int count;
} tape;

static inline value *record(operation op, double data, value *a, value *b)
{
    if (tape.count == TAPE_LENGTH) {
        fprintf(stderr, "the tape is full\n");
        exit(1);
    }
    const value made = {data, 0, op, a, b, 0};
    tape.values[tape.count] = made;
    return &tape.values[tape.count++];
}

/* Forward: an op computes its value at once and records what it did.  header: @@ELEMENTWISE tg_mul;
   @@CALL tgi_record_node */
static inline value *v_leaf(double data) { return record(LEAF, data, NULL, NULL); }
static inline value *v_add(value *a, value *b) { return record(ADD, a->data + b->data, a, b); }
static inline value *v_mul(value *a, value *b) { return record(MUL, a->data * b->data, a, b); }
static inline value *v_relu(value *a) { return record(RELU, a->data < 0 ? 0 : a->data, a, NULL); }
static inline value *v_tanh(value *a) { return record(TANH, tanh(a->data), a, NULL); }
static inline value *v_exp(value *a) { return record(EXP, exp(a->data), a, NULL); }
static inline value *v_log(value *a) { return record(LOG, log(a->data), a, NULL); }

static inline value *v_power(value *a, double exponent)
{
    value *y = record(POWER, pow(a->data, exponent), a, NULL);
    y->exponent = exponent;
    return y;
}

/* Ops that are made of others need no rule.  header: @@LOSS tg_cross_entropy_ex */
static inline value *v_neg(value *a) { return v_mul(a, v_leaf(-1)); }
static inline value *v_sub(value *a, value *b) { return v_add(a, v_neg(b)); }
static inline value *v_div(value *a, value *b) { return v_mul(a, v_power(b, -1)); }

/* Backward, one number: gives its gradient g on to its inputs, times the slope of the op.  A number that is used twice
   gets two terms, hence += and not =.  header: @@TABLE TGI_UNARY_OPS and TGI_BINARY_OPS; @@BACKWARD tgi_accumulate */
static inline void backward_of(value *v)
{
    value *const a = v->a, *const b = v->b;
    const double g = v->grad, y = v->data;
    switch (v->op) {
    case LEAF: break;
    case ADD: a->grad += g; b->grad += g; break;
    case MUL: a->grad += b->data * g; b->grad += a->data * g; break;
    case POWER: a->grad += v->exponent * pow(a->data, v->exponent - 1) * g; break;
    case RELU: a->grad += y > 0 ? g : 0; break;
    case TANH: a->grad += (1 - y * y) * g; break;
    case EXP: a->grad += y * g; break;
    case LOG: a->grad += g / a->data; break;
    }
}

/* Backward, the whole tape: newest first, so that a number has all of its gradient when its turn comes.  Leaves keep
   what an earlier backward has given them.  header: @@BACKWARD tg_backward, tgi_backward_step */
static inline void v_backward(value *root)
{
    for (value *v = tape.values; v <= root; ++v)
        if (v->op != LEAF) v->grad = 0;
    root->grad = 1;
    for (int i = (int)(root - tape.values); i >= 0; --i) backward_of(&tape.values[i]);
}

/* Before the next backward.  header: @@TAPE tg_zero_grad */
static inline void v_zero_grad(void)
{
    for (int i = 0; i < tape.count; ++i) tape.values[i].grad = 0;
}

/* Frees what was made since the tape had this length: all but the parameters, after a step.  header: @@SCOPE
   tg_scope_end */
static inline void v_forget(int length) { tape.count = length; }
#endif
