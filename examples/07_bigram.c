/* 07_bigram.c: which letter follows which?  Counting says it, and so does gradient descent: the two agree.

   READ    count_pairs(), then learn(): a table of logits, and the loss is that of all pairs.
   CHANGE  STEPS or the rate of learn(); SMOOTH = 0: why can gradient descent not end at that table?  07_bigram FILE
           counts the words of a file, as does TG_DATA=FOLDER 07_bigram those of names.txt in a folder.
   PRINTS  the loss (in nats per letter) of guessing, of counting, and of the table that learns; then how far the two
           tables of probabilities are apart, and names that each of them makes up from the same random numbers.
           With the 32,033 names of makemore's names.txt: guessing 3.2958, counting 2.4546. */
#define TENSORGRAD_IMPLEMENTATION
#include "../tensorgrad.h"
#include "names.h"
#include <math.h>

enum { STEPS = 500, EVERY = 100, MADE_UP = 8 };
static const double SMOOTH = 1; /* added to every count, so that no pair is impossible */

/* pairs [LETTERS, LETTERS]: how often the letter of a column follows that of a row */
static tg_tensor *count_pairs(void)
{
    static double pairs[LETTERS * LETTERS];
    for (int i = 0; i < name_count; ++i) {
        int before = 0, k = 0;
        do {
            const int letter = letter_of(i, k++);
            pairs[before * LETTERS + letter] += 1;
            before = letter;
        } while (before != 0);
    }
    return tg_from_f64(pairs, TG_SHAPE(LETTERS, LETTERS));
}

/* Cross-entropy of the pairs: the mean of -log p(letter | letter before) over all of them. */
static tg_tensor *loss_of(tg_tensor *pairs, tg_tensor *logp)
{
    return tg_neg(tg_div(tg_sum(tg_mul(pairs, logp)), tg_sum(pairs)));
}

/* The logits of a table that has learned from the pairs by gradient descent. */
static tg_tensor *learn(tg_tensor *pairs)
{
    tg_tensor *logits = tg_set_requires_grad(tg_randn(TG_SHAPE(LETTERS, LETTERS)), true);
    tg_tensor *smoothed = tg_add_scalar(pairs, SMOOTH);
    tg_optim *opt = tg_adam(TG_LIST(logits), 0.1);
    for (int step = 0; step <= STEPS; ++step) {
        TG_SCOPE;
        tg_tensor *logp = tg_log_softmax(logits, 1);
        if (step % EVERY == 0) printf("  step %3d    %.4f\n", step, tg_item(loss_of(pairs, logp)));
        opt->lr = tg_lr_cosine(step, 0, STEPS, 0.1, 0);
        tg_optim_zero_grad(opt);
        tg_backward(loss_of(smoothed, logp));
        tg_step(opt);
    }
    tg_optim_free(opt);
    return tg_detach(logits);
}

/* Draws letter after letter, each from the row of the letter before; p [LETTERS, LETTERS]: probabilities */
static void make_up(tg_tensor *p, char name[LONGEST + 1])
{
    TG_SCOPE;
    int letter = 0;
    memset(name, 0, LONGEST + 1);
    for (int length = 0; length < LONGEST; ++length) {
        letter = (int)tg_item_i64(tg_multinomial(tg_select(p, 0, letter), 1, false));
        if (letter == 0) return;
        name[length] = (char)('a' + letter - 1);
    }
}

int main(int argc, char **argv)
{
    TG_SCOPE;
    char name[2][LONGEST + 1];
    tg_set_default_dtype(TG_F64);
    tg_seed(1);
    if (find_names(argc > 1 ? argv[1] : NULL) == 0) return 1;
    tg_tensor *pairs = count_pairs(), *smoothed = tg_add_scalar(pairs, SMOOTH);
    tg_tensor *counted = tg_div(smoothed, tg_sum_dim(smoothed, 1, true));
    printf("%d names, %g pairs of letters\n", name_count, tg_item(tg_sum(pairs)));
    printf("guessing      %.4f\n", tg_item(loss_of(pairs, tg_full(TG_SHAPE(LETTERS, LETTERS), -log((double)LETTERS)))));
    printf("counting      %.4f\n", tg_item(loss_of(pairs, tg_log(counted))));
    printf("descent\n");
    tg_tensor *learned = tg_softmax(learn(pairs), 1);
    printf("a probability differs by %.4f at most\n", tg_item(tg_amax(tg_abs(tg_sub(counted, learned)))));
    printf("%-16s learned\n", "counted");
    for (int i = 0; i < MADE_UP; ++i) {
        tg_seed((uint64_t)i); /* the same random numbers for each table */
        make_up(counted, name[0]);
        tg_seed((uint64_t)i);
        make_up(learned, name[1]);
        printf("%-16s %s\n", name[0], name[1]);
    }
    return tg_ok() ? 0 : 1;
}
