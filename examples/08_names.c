/* 08_names.c: a recurrent network (LSTM) learns how names are spelled, and then makes up some of its own.

   READ    names_forward(), then train(), then make_up(): the state of the LSTM goes from one letter to the next.
   CHANGE  STEPS, HIDDEN, the temperature in make_up(), the list of names; 08_names FILE learns the words of a file,
           as does TG_DATA=FOLDER 08_names those of names.txt in a folder.
   PRINTS  the loss while it learns (in nats per letter: 3.3 is guessing), then names; a + if it is one of the list.
           Always the same ones: the library's own random numbers draw the letters. */
#define TENSORGRAD_IMPLEMENTATION
#include "../tensorgrad.h"
#include "names.h"

enum { WIDTH = 16, HIDDEN = 64, BATCH = 32, STEPS = 300, PAD = -100 };

/* ---- the data ---------------------------------------------------------------------------------------------------- */

/* letters [n, LONGEST + 1]: what the network sees, 0 and then the name.  next: what it should say, the name and 0, and
   PAD in the rest of the row, which the loss leaves out. */
static void make_data(tg_tensor **letters, tg_tensor **next)
{
    *letters = tg_full_on(TG_SHAPE(name_count, LONGEST + 1), 0, TG_I64, TG_CPU);
    *next = tg_full_on(TG_SHAPE(name_count, LONGEST + 1), PAD, TG_I64, TG_CPU);
    int64_t *sees = tg_data_i64(*letters), *says = tg_data_i64(*next);
    for (int i = 0; sees && says && i < name_count; ++i) {
        for (int k = 0; k <= LONGEST && (k == 0 || names[i][k - 1]); ++k) {
            const int64_t at = (int64_t)i * (LONGEST + 1) + k;
            sees[at] = k ? letter_of(i, k - 1) : 0;
            says[at] = letter_of(i, k);
        }
    }
}

/* ---- the network ------------------------------------------------------------------------------------------------- */

typedef struct { tg_module *embedding, *lstm, *linear; } network;

/* in: letters [T, N], and perhaps the states h and c [1, N, HIDDEN] (else zeros); out: logits of the letter after each
   [T, N, LETTERS], and if asked for the states after the last. */
static void names_forward(tg_module *m, tg_tensor *const *in, int n, tg_tensor **out, int n_out)
{
    const network *self = TG_MODULE_SELF(const network, m);
    tg_tensor *x[3] = {tg_forward(self->embedding, in[0]), n > 1 ? in[1] : NULL, n > 2 ? in[2] : NULL};
    tg_forward_n(self->lstm, x, n, out, n_out);
    out[0] = tg_forward(self->linear, out[0]);
}

static tg_module *make_network(void)
{
    tg_module *m = tg_module_new("Names", names_forward, sizeof(network));
    network *self = TG_MODULE_SELF(network, m);
    if (!self) return NULL;
    TG_CHILD(m, self, embedding, tg_nn_embedding(LETTERS, WIDTH));
    TG_CHILD(m, self, lstm, tg_nn_lstm(WIDTH, HIDDEN, 1));
    TG_CHILD(m, self, linear, tg_nn_linear(HIDDEN, LETTERS, true));
    return m;
}

static void train(tg_module *net, tg_loader *loader)
{
    tg_optim *opt = tg_adamw(TG_PARAMS(net), 0.01);
    double sum = 0;
    for (int step = 0; step < STEPS && tg_ok();) {
        TG_SCOPE;
        tg_tensor *batch[2];
        if (!tg_loader_next(loader, batch)) continue; /* the end of an epoch: the next one begins */
        tg_tensor *logits = tg_forward(net, tg_t(batch[0])), *next = tg_t(batch[1]); /* the LSTM wants [T, N] */
        tg_tensor *loss = tg_cross_entropy(tg_flatten(logits, 0, 1), tg_flatten(next, 0, 1)); /* leaves out PAD */
        opt->lr = tg_lr_cosine(step, 20, STEPS, 0.01, 0);
        tg_optim_zero_grad(opt);
        tg_backward(loss);
        tg_step(opt);
        sum += tg_item(loss);
        if (++step % 50 == 0) {
            printf("step %3d  loss %.4f\n", step, sum / 50);
            sum = 0;
        }
    }
    tg_optim_free(opt);
}

/* Draws letter after letter with the probabilities that the network gives, and prints them. */
static void make_up(tg_module *net)
{
    TG_SCOPE;
    TG_NO_GRAD;
    char name[LONGEST + 1] = "";
    tg_tensor *x[3] = {tg_full_on(TG_SHAPE(1, 1), 0, TG_I64, TG_CPU), NULL, NULL}, *out[3];
    for (int length = 0; length < LONGEST; ++length) {
        if (tg_forward_n(net, x, length ? 3 : 1, out, 3) != TG_OK) return;
        tg_tensor *p = tg_softmax(tg_mul_scalar(tg_flatten(out[0], 0, -1), 1 / 0.8), 0); /* 0.8: rather the likely */
        const int letter = (int)tg_item_i64(tg_multinomial(p, 1, false));
        if (letter == 0) break;
        name[length] = (char)('a' + letter - 1);
        x[0] = tg_full_on(TG_SHAPE(1, 1), letter, TG_I64, TG_CPU);
        x[1] = out[1];
        x[2] = out[2];
    }
    printf("  %s%s\n", name, is_known(name) ? " +" : "");
}

int main(int argc, char **argv)
{
    TG_SCOPE;
    tg_tensor *data[2];
    tg_seed(7);
    tg_set_default_dtype(TG_F64);
    if (find_names(argc > 1 ? argv[1] : NULL) == 0) return 1;
    make_data(&data[0], &data[1]);
    tg_module *net = make_network();
    tg_loader *loader = tg_loader_new(data, 2, BATCH, TG_SHUFFLE, TG_CPU);
    tg_module_print(stdout, net);
    train(net, loader);
    for (int i = 0; i < 12; ++i) make_up(net);
    tg_loader_free(loader);
    tg_module_free(net);
    return tg_ok() ? 0 : 1;
}
