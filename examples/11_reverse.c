/* 11_reverse.c: attention learns to reverse six tokens; it cannot without the positions of the tokens.

   READ    attention(), written in matrix products and a softmax: each position asks a question (query) of all tokens,
           and takes the mean of their values, weighted by how well their keys answer.
   CHANGE  TOKENS, WIDTH, STEPS; let the target be x itself, or x sorted: which of them needs positions?
   PRINTS  the loss with positions, how many tokens of 1,000 new sequences are right (more than 95 %), and where each
           place of an answer looks, the darker the more: place 0 at the last token, and so on.  Then the loss without
           positions: the network sees a bag of tokens, and can only guess which of them it is. */
#define TENSORGRAD_IMPLEMENTATION
#include "../tensorgrad.h"
#include <math.h>
#include <stdio.h>

enum { TOKENS = 6, KINDS = 10, WIDTH = 32, BATCH = 64, STEPS = 60, EVERY = 10, TESTED = 1000 };

/* The parameters of the network, in one list for the optimizer; positions last, so that it can leave them out. */
enum { TOKEN, QUERY, KEY, VALUE, OUT, POSITION, COUNT };

/* x [N, TOKENS, WIDTH] -> the same.  weights: receives what each place (row) takes of each token (column)
   [N, TOKENS, TOKENS]; rows sum to 1. */
static tg_tensor *attention(tg_tensor *const p[COUNT], tg_tensor *x, tg_tensor **weights)
{
    tg_tensor *q = tg_matmul(x, p[QUERY]), *k = tg_matmul(x, p[KEY]), *v = tg_matmul(x, p[VALUE]);
    tg_tensor *scores = tg_div_scalar(tg_matmul(q, tg_transpose(k, 1, 2)), sqrt((double)WIDTH));
    *weights = tg_softmax(scores, 2);
    return tg_matmul(*weights, v);
}

/* tokens [N, TOKENS] -> logits of the token at each place of the answer [N, TOKENS, KINDS] */
static tg_tensor *network(tg_tensor *const p[COUNT], bool positions, tg_tensor *tokens, tg_tensor **weights)
{
    tg_tensor *x = tg_embedding(p[TOKEN], tokens);
    if (positions) x = tg_add(x, p[POSITION]);
    return tg_matmul(attention(p, x, weights), p[OUT]);
}

static void make_parameters(tg_tensor *p[COUNT])
{
    const int64_t rows[COUNT] = {KINDS, WIDTH, WIDTH, WIDTH, WIDTH, TOKENS};
    for (int i = 0; i < COUNT; ++i) {
        const int64_t columns = i == OUT ? KINDS : WIDTH;
        const double scale = i == TOKEN || i == POSITION ? 1 : 1 / sqrt((double)WIDTH);
        p[i] = tg_set_requires_grad(tg_mul_scalar(tg_randn(TG_SHAPE(rows[i], columns)), scale), true);
    }
}

static void train(tg_tensor *p[COUNT], bool positions)
{
    tg_optim *opt = tg_adam(p, positions ? COUNT : POSITION, 0.01);
    for (int step = 0; step <= STEPS; ++step) {
        TG_SCOPE;
        tg_tensor *weights, *x = tg_randint(0, KINDS, TG_SHAPE(BATCH, TOKENS)), *reversed = tg_flip(x, TG_DIMS(1));
        tg_tensor *logits = network(p, positions, x, &weights);
        tg_tensor *loss = tg_cross_entropy(tg_flatten(logits, 0, 1), tg_flatten(reversed, 0, 1));
        if (step % EVERY == 0) printf("  step %3d  loss %.3f\n", step, tg_item(loss));
        tg_optim_zero_grad(opt);
        tg_backward(loss);
        tg_step(opt);
    }
    tg_optim_free(opt);
}

/* The part of the tokens of new sequences that is right. */
static double test(tg_tensor *const p[COUNT], bool positions)
{
    TG_SCOPE;
    TG_NO_GRAD;
    tg_tensor *weights, *x = tg_randint(0, KINDS, TG_SHAPE(TESTED, TOKENS));
    tg_tensor *answer = tg_argmax(network(p, positions, x, &weights), 2, false);
    return tg_item(tg_mean(tg_to_dtype(tg_eq(answer, tg_flip(x, TG_DIMS(1))), TG_F64)));
}

static void show(tg_tensor *const p[COUNT])
{
    TG_SCOPE;
    TG_NO_GRAD;
    tg_tensor *weights, *x = tg_randint(0, KINDS, TG_SHAPE(1, TOKENS));
    tg_tensor *answer = tg_argmax(network(p, true, x, &weights), 2, false);
    printf("           ");
    for (int i = 0; i < TOKENS; ++i) printf(" %d", (int)tg_get(x, TG_INDEX(0, i)));
    for (int row = 0; row < TOKENS; ++row) {
        printf("\n  place %d:  ", row);
        for (int i = 0; i < TOKENS; ++i) printf(" %c", " .:*#"[(int)(4.99 * tg_get(weights, TG_INDEX(0, row, i)))]);
        printf("  -> %d", (int)tg_get(answer, TG_INDEX(0, row)));
    }
    printf("\n");
}

int main(void)
{
    TG_SCOPE;
    tg_tensor *with[COUNT], *without[COUNT];
    tg_set_default_dtype(TG_F64);
    tg_seed(1);
    make_parameters(with);
    make_parameters(without);
    printf("with positions\n");
    train(with, true);
    printf("  right: %.0f %%\n", 100 * test(with, true));
    show(with);
    printf("without positions\n");
    train(without, false);
    printf("  right: %.0f %%\n", 100 * test(without, false));
    return tg_ok() ? 0 : 1;
}
