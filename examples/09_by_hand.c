/* 09_by_hand.c: backprop by hand, through each step of a network, and compared with the tape.

   READ    forward() from the top down, then by_hand() from its end: the gradient of each tensor from that of the next.
   CHANGE  cover by_hand() and write it again.  Then shorter: logits in one line from p, hidden from normal.
   PRINTS  for each of the 26 tensors, whether the gradient by hand is that of tg_backward, up to 1e-12. */
#define TENSORGRAD_IMPLEMENTATION
#include "../tensorgrad.h"
#include <stdio.h>

/* The parameters, and each step of the computation on them.  A second struct has their gradients. */
#define TENSORS(T)                                                                                                 \
    T(table) T(w1) T(b1) T(gain) T(bias) T(w2) T(b2) T(embedded) T(flat) T(hidden) T(mean) T(centred) T(squares)   \
    T(variance) T(rstd) T(normal) T(scaled) T(active) T(logits) T(largest) T(shifted) T(e) T(sum) T(inverse) T(p) \
    T(logp)
#define MEMBER(name) *name,
typedef struct { tg_tensor TENSORS(MEMBER) *loss; } network;

enum { ROWS = 32, LETTERS = 27, CONTEXT = 3, SIZE = 10, FLAT = CONTEXT * SIZE, HIDDEN = 20 };

/* Random, biases as well: zeros would hide mistakes. */
static tg_tensor *parameter(tg_shape shape, double scale)
{
    return tg_set_requires_grad(tg_mul_scalar(tg_randn(shape), scale), true);
}

/* x [ROWS, CONTEXT]: letters; y [ROWS, 1]: the next ones */
static void forward(network *n, tg_tensor *x, tg_tensor *y)
{
    n->embedded = tg_embedding(n->table, x);                                  /* [ROWS, CONTEXT, SIZE] */
    n->flat = tg_reshape(n->embedded, TG_SHAPE(ROWS, FLAT));
    n->hidden = tg_add(tg_matmul(n->flat, n->w1), n->b1);                     /* [ROWS, HIDDEN] */
    n->mean = tg_mean_dim(n->hidden, 0, true);                                /* batch norm: over the rows */
    n->centred = tg_sub(n->hidden, n->mean);
    n->squares = tg_square(n->centred);
    n->variance = tg_div_scalar(tg_sum_dim(n->squares, 0, true), ROWS - 1);
    n->rstd = tg_pow_scalar(tg_add_scalar(n->variance, 1e-5), -0.5);
    n->normal = tg_mul(n->centred, n->rstd);
    n->scaled = tg_add(tg_mul(n->normal, n->gain), n->bias);
    n->active = tg_tanh(n->scaled);
    n->logits = tg_add(tg_matmul(n->active, n->w2), n->b2);                   /* [ROWS, LETTERS] */
    n->largest = tg_amax_dim(n->logits, 1, true);                             /* softmax: over the letters */
    n->shifted = tg_sub(n->logits, n->largest);
    n->e = tg_exp(n->shifted);
    n->sum = tg_sum_dim(n->e, 1, true);
    n->inverse = tg_pow_scalar(n->sum, -1);
    n->p = tg_mul(n->e, n->inverse);
    n->logp = tg_log(n->p);
    n->loss = tg_neg(tg_mean(tg_gather(n->logp, 1, y)));
}

static tg_tensor *rows(tg_tensor *t) { return tg_sum_dim(t, 0, true); }
static tg_tensor *columns(tg_tensor *t) { return tg_sum_dim(t, 1, true); }

static void by_hand(const network *n, network *d, tg_tensor *x, tg_tensor *y)
{
    tg_tensor *one = tg_to_dtype(tg_one_hot(tg_reshape(y, TG_SHAPE(ROWS)), LETTERS), TG_F64);
    d->logp = tg_mul_scalar(one, -1.0 / (int)ROWS);
    d->p = tg_div(d->logp, n->p);
    d->inverse = columns(tg_mul(d->p, n->e));
    d->sum = tg_neg(tg_mul(d->inverse, tg_square(n->inverse)));
    d->e = tg_add(tg_mul(d->p, n->inverse), d->sum); /* two uses, two terms */
    d->shifted = tg_mul(d->e, n->e);
    d->largest = tg_neg(columns(d->shifted)); /* 0 up to rounding: a shift changes nothing */
    tg_tensor *is_largest = tg_to_dtype(tg_eq(n->logits, n->largest), TG_F64);
    d->logits = tg_add(d->shifted, tg_mul(is_largest, d->largest));
    d->active = tg_matmul(d->logits, tg_t(n->w2));
    d->w2 = tg_matmul(tg_t(n->active), d->logits);
    d->b2 = rows(d->logits);
    d->scaled = tg_mul(d->active, tg_rsub_scalar(tg_square(n->active), 1));
    d->gain = rows(tg_mul(d->scaled, n->normal));
    d->bias = rows(d->scaled);
    d->normal = tg_mul(d->scaled, n->gain);
    d->rstd = rows(tg_mul(d->normal, n->centred));
    d->variance = tg_mul_scalar(tg_mul(d->rstd, tg_pow_scalar(n->rstd, 3)), -0.5);
    d->squares = tg_div_scalar(tg_expand(d->variance, TG_SHAPE(ROWS, HIDDEN)), ROWS - 1);
    d->centred = tg_add(tg_mul(d->normal, n->rstd), tg_mul(d->squares, tg_mul_scalar(n->centred, 2)));
    d->mean = tg_neg(rows(d->centred));
    d->hidden = tg_add(d->centred, tg_div_scalar(d->mean, ROWS));
    d->flat = tg_matmul(d->hidden, tg_t(n->w1));
    d->w1 = tg_matmul(tg_t(n->flat), d->hidden);
    d->b1 = rows(d->hidden);
    d->embedded = tg_reshape(d->flat, TG_SHAPE(ROWS, CONTEXT, SIZE));
    tg_tensor *letters = tg_to_dtype(tg_one_hot(tg_reshape(x, TG_SHAPE(ROWS * CONTEXT)), LETTERS), TG_F64);
    d->table = tg_matmul(tg_t(letters), tg_reshape(d->flat, TG_SHAPE(ROWS * CONTEXT, SIZE)));
}

static void compare(const char *name, tg_tensor *t, tg_tensor *hand)
{
    const bool fits = tg_numel(hand) == tg_numel(t);
    const double far = fits ? tg_item(tg_amax(tg_abs(tg_sub(hand, tg_grad(t))))) : 0;
    printf("%-9s %4d numbers, ", name, (int)tg_numel(t));
    if (!fits) printf("by hand %d\n", (int)tg_numel(hand));
    else if (far <= 1e-12) printf("as by the tape\n");
    else printf("by hand off by up to %.2g\n", far);
}

int main(void)
{
    TG_SCOPE;
    network n, d;
    tg_set_default_dtype(TG_F64);
    tg_seed(1);
    tg_tensor *x = tg_randint(0, LETTERS, TG_SHAPE(ROWS, CONTEXT)), *y = tg_randint(0, LETTERS, TG_SHAPE(ROWS, 1));
    n.table = parameter(TG_SHAPE(LETTERS, SIZE), 1);
    n.w1 = parameter(TG_SHAPE(FLAT, HIDDEN), 0.3);
    n.b1 = parameter(TG_SHAPE(1, HIDDEN), 0.1);
    n.gain = parameter(TG_SHAPE(1, HIDDEN), 1);
    n.bias = parameter(TG_SHAPE(1, HIDDEN), 0.1);
    n.w2 = parameter(TG_SHAPE(HIDDEN, LETTERS), 0.1);
    n.b2 = parameter(TG_SHAPE(1, LETTERS), 0.1);
    forward(&n, x, y);
#define RETAIN(name) tg_retain_grad(n.name);
    TENSORS(RETAIN)
    tg_backward_ex(TG_LIST(n.loss), NULL, TG_RETAIN_GRAPH);
    TG_NO_GRAD;
    by_hand(&n, &d, x, y);
#define COMPARE(name) compare(#name, n.name, d.name);
    TENSORS(COMPARE)
    return tg_ok() ? 0 : 1;
}
