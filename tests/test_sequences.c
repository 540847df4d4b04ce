/* Layers of sequences beyond the rows of layers.h: states that are left out, batches and single sequences, sequences of
 * different lengths, dropout between layers, masks in their several forms, initialisation, memory without a graph,
 * refusals. */
#include "tensorgrad.h"
#include "helpers.h"

enum { T = 5, N = 3, IN = 4, H = 6 };
static tg_tensor *random_of(tg_shape shape) { return tg_randn_on(shape, TG_F64, HERE); }
static bool same(tg_tensor *a, tg_tensor *b) { return a && b && tg_allclose(a, b, 0, 1e-12); }

/* ---- every recurrent layer and cell ---- */

enum { KINDS = 4 };
static const char *const kind_name[KINDS] = {"rnn", "rnn relu", "lstm", "gru"};

static tg_module *recurrent(int kind, int layers, bool batch_first, double dropout, bool bidirectional)
{
    switch (kind) {
    case 0: return tg_nn_rnn_ex(IN, H, layers, "tanh", true, batch_first, dropout, bidirectional);
    case 1: return tg_nn_rnn_ex(IN, H, layers, "relu", true, batch_first, dropout, bidirectional);
    case 2: return tg_nn_lstm_ex(IN, H, layers, true, batch_first, dropout, bidirectional);
    default: return tg_nn_gru_ex(IN, H, layers, true, batch_first, dropout, bidirectional);
    }
}

static tg_module *cell(int kind)
{
    switch (kind) {
    case 0: return tg_nn_rnn_cell(IN, H, true, "tanh");
    case 1: return tg_nn_rnn_cell(IN, H, true, "relu");
    case 2: return tg_nn_lstm_cell(IN, H, true);
    default: return tg_nn_gru_cell(IN, H, true);
    }
}

static int outputs_of(int kind) { return kind == 2 ? 3 : 2; }

static tg_module *in_f64(tg_module *m) { return tg_module_to(tg_module_to_dtype(m, TG_F64), HERE); }

static void copy_parameters(tg_module *to, tg_module *from)
{
    TG_NO_GRAD;
    CHECK(tg_module_count(to) == tg_module_count(from));
    for (int i = 0; i < tg_module_count(to); ++i)
        CHECK(tg_copy_(tg_module_params(to)[i], tg_module_params(from)[i]) != NULL);
}

/* The first of `outputs` outputs. */
static tg_tensor *run(tg_module *m, tg_tensor *const *in, int n, tg_tensor **out, int outputs)
{
    return tg_forward_n(m, in, n, out, outputs) == TG_OK ? out[0] : NULL;
}

/* States left out are zeros; fewer outputs are the first ones. */
TEST(optional_states_and_outputs)
{
    for (int kind = 0; kind < KINDS; ++kind) {
        tg_module *m = in_f64(recurrent(kind, 2, false, 0, true));
        tg_tensor *in[3], *all[3], *some[4];
        harness.sample = kind_name[kind];
        in[0] = random_of(TG_SHAPE(T, N, IN)), in[1] = in[2] = tg_zeros_on(TG_SHAPE(4, N, H), TG_F64, HERE);
        CHECK(run(m, in, outputs_of(kind), all, outputs_of(kind)) != NULL);
        for (int n = 1; n <= outputs_of(kind); ++n) {
            CHECK(run(m, in, n, some, n) != NULL);
            for (int i = 0; i < n; ++i) CHECK(same(some[i], all[i]));
        }
        CHECK_FAILS(tg_forward_n(m, in, 1, some, outputs_of(kind) + 1), "outputs, not");
        CHECK_FAILS(tg_forward_n(m, in, 0, some, 1), "inputs, not 0");
        tg_module_free(m);
    }
    harness.sample = NULL;
}

/* Each sequence of a batch gives what it gives alone, and a transposed batch the same transposed. */
TEST(batches)
{
    for (int kind = 0; kind < KINDS; ++kind) {
        tg_module *m = in_f64(recurrent(kind, 2, false, 0, true)), *first = in_f64(recurrent(kind, 2, true, 0, true));
        const int states = outputs_of(kind) - 1;
        tg_tensor *in[3], *one[3], *y[3], *alone[3], *turned[3];
        harness.sample = kind_name[kind];
        copy_parameters(first, m);
        in[0] = random_of(TG_SHAPE(T, N, IN));
        for (int i = 1; i <= states; ++i) in[i] = random_of(TG_SHAPE(4, N, H));
        CHECK(run(m, in, 1 + states, y, 1 + states) != NULL);
        for (int i = 0; i <= states; ++i) one[i] = tg_select(in[i], 1, 2);
        CHECK(run(m, one, 1 + states, alone, 1 + states) && tg_ndim(alone[0]) == 2);
        for (int i = 0; i <= states; ++i) CHECK(same(alone[i], tg_select(y[i], 1, 2)));
        in[0] = tg_transpose(in[0], 0, 1);
        CHECK(run(first, in, 1 + states, turned, 1 + states) && same(tg_transpose(turned[0], 0, 1), y[0]));
        CHECK(same(turned[1], y[1])); /* states stay [layers, N, H] */
        tg_module_free(m), tg_module_free(first);
    }
    harness.sample = NULL;
}

/* A layer is its cell, step by step; the last state is the last output; a second half goes on from the first. */
TEST(steps)
{
    for (int kind = 0; kind < KINDS; ++kind) {
        tg_module *m = in_f64(recurrent(kind, 1, false, 0, false)), *step = in_f64(cell(kind));
        const int states = outputs_of(kind) - 1;
        tg_tensor *x = random_of(TG_SHAPE(T, N, IN)), *y[3], *in[3], *half[3];
        harness.sample = kind_name[kind];
        copy_parameters(step, m);
        CHECK(run(m, &x, 1, y, 1 + states) != NULL);
        for (int t = 0; t < T; ++t) {
            in[0] = tg_select(x, 0, t);
            CHECK(run(step, in, t ? 1 + states : 1, half, states) && same(half[0], tg_select(y[0], 0, t)));
            in[1] = half[0], in[2] = half[states - 1];
        }
        CHECK(same(in[1], tg_select(y[1], 0, 0)) && (states == 1 || same(in[2], tg_select(y[2], 0, 0))));
        in[0] = tg_narrow(x, 0, 0, 2);
        CHECK(run(m, in, 1, half, 1 + states) != NULL);
        in[0] = tg_narrow(x, 0, 2, T - 2), in[1] = half[1], in[2] = half[states];
        CHECK(run(m, in, 1 + states, half, 1 + states) && same(half[0], tg_narrow(y[0], 0, 2, T - 2)));
        tg_module_free(m), tg_module_free(step);
    }
    harness.sample = NULL;
}

TEST(dropout_between_layers)
{
    tg_module *m = tg_module_to(tg_nn_gru_ex(IN, H, 2, true, false, 0.5, false), HERE), *one;
    tg_tensor *x = tg_randn_on(TG_SHAPE(T, N, IN), TG_F32, HERE), *a, *b;
    a = tg_forward(m, x);
    CHECK(!tg_equal(a, tg_forward(m, x)));
    tg_module_train(m, false);
    a = tg_forward(m, x), b = tg_forward(m, x);
    CHECK(tg_equal(a, b));
    tg_module_free(m);
    one = tg_module_to(tg_nn_gru_ex(IN, H, 1, true, false, 0.5, false), HERE); /* there is nothing between one layer */
    a = tg_forward(one, x), b = tg_forward(one, x);
    CHECK(tg_equal(a, b));
    tg_module_free(one);
}

/* Without a graph, what a step has made ends with the step. */
TEST(memory_without_a_graph)
{
    tg_module *m = tg_module_to(tg_nn_lstm(IN, 64, 1), HERE);
    tg_tensor *x = tg_randn_on(TG_SHAPE(40, 16, IN), TG_F32, HERE);
    TG_NO_GRAD;
    const int64_t step = 16 * 64 * 4; /* bytes of one state */
    tg_reset_peak();
    const int64_t before = tg_stats().bytes;
    CHECK(tg_forward(m, x) != NULL);
    /* the gates of all steps, before and after the bias is added; else also the states of each step, y, and what one
       step makes, which is 18 such states */
    CHECK(tg_stats().peak_bytes - before < (2 * 4 * 40 + 18) * step);
    tg_module_free(m);
}

TEST(recurrent_initialisation)
{
    tg_module *m = tg_nn_lstm_ex(3, 100, 2, true, false, 0, true);
    CHECK(tg_module_count(m) == 16 && strcmp(tg_module_path(m, 6), "bias_ih_l0_reverse") == 0);
    for (int i = 0; i < 16; ++i) {
        const double largest = tg_item(tg_amax(tg_abs(tg_detach(tg_module_params(m)[i]))));
        CHECK(largest <= 0.1 && largest > 0.09);
    }
    tg_module_free(m);
}

TEST(recurrent_refusals)
{
    tg_module *m = tg_nn_lstm(3, 4, 1), *g = tg_nn_lstm_cell(3, 4, true);
    tg_tensor *in[3], *out[3];
    CHECK_FAILS(tg_forward(m, tg_cpu(tg_ones(TG_SHAPE(3)))), "LSTM: Expected input to be 2D or 3D, got 1D instead");
    CHECK_FAILS(tg_forward(m, tg_ones(TG_SHAPE(5, 2, 2))),
                "LSTM: input.size(-1) must be equal to input_size. Expected 3, got 2");
    CHECK_FAILS(tg_forward(m, tg_ones(TG_SHAPE(0, 2, 3))), "Expected sequence length to be larger than 0 in RNN");
    in[0] = tg_ones(TG_SHAPE(5, 2, 3)), in[1] = tg_ones(TG_SHAPE(1, 3, 4)), in[2] = tg_ones(TG_SHAPE(1, 2, 4));
    CHECK_FAILS(tg_forward_n(m, in, 3, out, 3), "LSTM: Expected hidden size [1, 2, 4], got [1, 3, 4]");
    in[1] = in[2], in[2] = tg_ones(TG_SHAPE(2, 4));
    CHECK_FAILS(tg_forward_n(m, in, 3, out, 3), "LSTM: Expected hidden size [1, 2, 4], got [2, 4]");
    in[0] = tg_ones(TG_SHAPE(5, 3));
    CHECK_FAILS(tg_forward_n(m, in, 2, out, 1), "LSTM: Expected hidden size [1, 4], got [1, 2, 4]");
    CHECK_FAILS(tg_forward(g, tg_ones(TG_SHAPE(2, 2, 3))), "LSTMCell: Expected input to be 1D or 2D, got 3D instead");
    in[0] = tg_ones(TG_SHAPE(3)), in[1] = tg_ones(TG_SHAPE(1, 4));
    CHECK_FAILS(tg_forward_n(g, in, 2, out, 1), "LSTMCell: Expected hidden size [4], got [1, 4]");
    tg_module_free(m), tg_module_free(g);
    CHECK_FAILS(tg_nn_rnn(0, 4, 1), "tg_nn_rnn: input_size must be greater than zero");
    CHECK_FAILS(tg_nn_gru(3, -4, 1), "hidden_size must be greater than zero");
    CHECK_FAILS(tg_nn_lstm(3, 4, 0), "num_layers must be greater than zero");
    CHECK_FAILS(tg_nn_lstm(3, 4, 2000000000), "layers are too many");
    CHECK_FAILS(tg_nn_lstm(3, INT64_MAX / 2, 1), "overflows");
    CHECK_FAILS(tg_nn_gru_ex(3, 4, 2, true, false, 1.5, false), "dropout should be a number in range [0, 1]");
    CHECK_FAILS(tg_nn_rnn_ex(3, 4, 1, "gelu", true, false, 0, false),
                "tg_nn_rnn_ex: Unknown nonlinearity 'gelu'. Select from 'tanh' or 'relu'.");
    CHECK_FAILS(tg_nn_rnn_cell(3, 4, true, NULL), "nonlinearity is NULL");
}

/* ---- sequences of different lengths ---- */

enum { MOST = 6, MANY = 5 };
static const int64_t length_of[MANY] = {2, 6, 1, 6, 4};

static tg_tensor *lengths_on(tg_device device) { return tg_from_on(length_of, TG_SHAPE(MANY), TG_I64, device); }

/* Sequence i of a batch, which has no dim N then: its steps of x, or its state. */
static tg_tensor *sequence(tg_tensor *t, int i, bool state, bool batch_first)
{
    t = tg_select(t, state || !batch_first, i);
    return state ? t : tg_narrow(t, 0, 0, length_of[i]);
}

/* Each sequence gives what it gives alone, whatever stands behind its end, where y is 0. */
static void check_lengths(int kind, bool batch_first, bool first_states)
{
    tg_module *m = in_f64(recurrent(kind, 2, batch_first, 0, true));
    const int states = outputs_of(kind) - 1, given = first_states ? states : 0;
    tg_tensor *in[4], *one[3], *y[3], *alone[3], *x = random_of(TG_SHAPE(MOST, MANY, IN)), *behind;
    behind = tg_unsqueeze(tg_ge(tg_unsqueeze(tg_arange_on(0, MOST, 1, TG_I64, HERE), 1), lengths_on(HERE)), 2);
    x = tg_masked_fill(x, behind, (double)NAN);
    in[0] = batch_first ? tg_transpose(x, 0, 1) : x;
    for (int i = 1; i <= given; ++i) in[i] = random_of(TG_SHAPE(4, MANY, H));
    in[1 + given] = lengths_on(TG_CPU);
    CHECK(run(m, in, 2 + given, y, 1 + states) != NULL);
    for (int i = 0; i < MANY; ++i) {
        for (int k = 0; k <= given; ++k) one[k] = sequence(in[k], i, k > 0, batch_first);
        CHECK(run(m, one, 1 + given, alone, 1 + states) != NULL);
        for (int k = 0; k <= states; ++k) CHECK(same(alone[k], sequence(y[k], i, k > 0, batch_first)));
    }
    tg_tensor *rest = tg_masked_select(batch_first ? tg_transpose(y[0], 0, 1) : y[0], behind);
    CHECK(tg_numel(rest) == (MOST * MANY - 19) * 2 * H && tg_item(tg_amax(tg_abs(rest))) == 0);
    in[1 + given] = lengths_on(HERE); /* the host reads them from a device, too */
    CHECK(run(m, in, 2 + given, alone, 1) && same(alone[0], y[0]));
    tg_module_free(m);
}

TEST(lengths)
{
    for (int kind = 0; kind < KINDS; ++kind) {
        harness.sample = kind_name[kind];
        for (int variant = 0; variant < 4; ++variant) check_lengths(kind, variant & 1, variant >> 1);
    }
    harness.sample = NULL;
}

/* in: x, a state, and of the lstm another; user: the module. */
static tg_tensor *outputs_with_lengths(tg_tensor *const *in_, int n, void *user)
{
    tg_tensor *in[4], *out[3];
    for (int i = 0; i < n; ++i) in[i] = in_[i];
    in[n] = lengths_on(TG_CPU);
    if (tg_forward_n((tg_module *)user, in, n + 1, out, n) != TG_OK) return NULL;
    tg_tensor *sum = tg_sum(tg_square(out[0]));
    for (int i = 1; i < n; ++i) sum = tg_add(sum, tg_sum(tg_mul_scalar(tg_square(out[i]), 1 + i)));
    return sum;
}

/* Gradients of x, which are 0 behind a length, and of the first states; those of parameters are in layers.h. */
TEST(lengths_gradients)
{
    for (int kind = 0; kind < KINDS; ++kind) {
        if (kind == 1) continue; /* relu has kinks */
        tg_module *m = in_f64(recurrent(kind, 2, false, 0, true));
        tg_tensor *in[3];
        harness.sample = kind_name[kind];
        in[0] = random_of(TG_SHAPE(MOST, MANY, IN));
        in[1] = random_of(TG_SHAPE(4, MANY, H)), in[2] = random_of(TG_SHAPE(4, MANY, H));
        for (int i = 0; i < 3; ++i) tg_set_requires_grad(in[i], true);
        CHECK(tg_gradcheck_ex(outputs_with_lengths, in, outputs_of(kind), m, NULL));
        CHECK(tg_backward(outputs_with_lengths(in, outputs_of(kind), m)) == TG_OK);
        for (int i = 0; i < MANY; ++i) {
            if (length_of[i] == MOST) continue;
            tg_tensor *g = tg_select(tg_grad(in[0]), 1, i), *tail = tg_narrow(g, 0, length_of[i], MOST - length_of[i]);
            CHECK(tg_item(tg_amax(tg_abs(tail))) == 0);
            CHECK(tg_item(tg_amax(tg_abs(tg_narrow(g, 0, length_of[i] - 1, 1)))) > 0);
        }
        tg_module_free(m);
    }
    harness.sample = NULL;
}

/* Equal lengths are those of a batch without them, cut there; and dropout leaves what it does not drop. */
TEST(lengths_all_equal)
{
    const int64_t all[N] = {T - 1, T - 1, T - 1};
    tg_module *m = in_f64(recurrent(2, 2, false, 0.5, false));
    tg_tensor *in[2], *y[3], *cut[3];
    in[0] = random_of(TG_SHAPE(T, N, IN)), in[1] = tg_from_on(all, TG_SHAPE(N), TG_I64, TG_CPU);
    CHECK(run(m, in, 2, y, 1) && run(m, in, 2, cut, 1) && !same(y[0], cut[0]));
    tg_module_train(m, false);
    CHECK(run(m, in, 2, y, 3) != NULL);
    in[0] = tg_narrow(in[0], 0, 0, T - 1);
    CHECK(run(m, in, 1, cut, 3) && same(cut[0], tg_narrow(y[0], 0, 0, T - 1)));
    CHECK(same(cut[1], y[1]) && same(cut[2], y[2]));
    tg_module_free(m);
}

TEST(lengths_refused)
{
    const int64_t zero[2] = {3, 0}, longer[2] = {5, 6};
    tg_module *m = tg_nn_lstm(3, 4, 1), *step = tg_nn_lstm_cell(3, 4, true);
    tg_tensor *in[5], *out[3];
    in[0] = tg_ones(TG_SHAPE(5, 2, 3)), in[1] = tg_from_on(zero, TG_SHAPE(2), TG_I64, TG_CPU);
    CHECK_FAILS(tg_forward_n(m, in, 2, out, 3),
                "LSTM: Length of all samples has to be greater than 0, but lengths[1] is 0");
    in[1] = tg_from_on(longer, TG_SHAPE(2), TG_I64, TG_CPU);
    CHECK_FAILS(tg_forward_n(m, in, 2, out, 3), "LSTM: lengths[1] is 6, but the input has 5 steps");
    in[1] = tg_from_on(longer, TG_SHAPE(1), TG_I64, TG_CPU);
    CHECK_FAILS(tg_forward_n(m, in, 2, out, 3), "Expected `len(lengths)` to be equal to batch_size, i64 [2], but got");
    in[1] = tg_ones_on(TG_SHAPE(2), TG_I32, TG_CPU);
    CHECK_FAILS(tg_forward_n(m, in, 2, out, 3), "i64 [2], but got i32 [2]");
    in[1] = in[2] = tg_ones(TG_SHAPE(1, 2, 4)), in[3] = in[4] = tg_ones_on(TG_SHAPE(2), TG_I64, TG_CPU);
    CHECK_FAILS(tg_forward_n(m, in, 5, out, 3), "'LSTM' takes 1 to 3 inputs, not 4");
    in[0] = tg_ones(TG_SHAPE(5, 3)), in[1] = tg_ones_on(TG_SHAPE(1), TG_I64, TG_CPU);
    CHECK_FAILS(tg_forward_n(m, in, 2, out, 3), "LSTM: lengths are for a batch, 3D, but the input is 2D");
    in[0] = tg_ones(TG_SHAPE(5, 0, 3)), in[1] = tg_ones_on(TG_SHAPE(0), TG_I64, TG_CPU);
    CHECK_FAILS(tg_forward_n(m, in, 2, out, 3), "Expected sequence length to be larger than 0 in RNN");
    in[0] = tg_ones(TG_SHAPE(2, 3)), in[1] = tg_ones_on(TG_SHAPE(2), TG_I64, TG_CPU);
    CHECK_FAILS(tg_forward_n(step, in, 2, out, 1), "LSTMCell: Expected hidden size [2, 4], got [2]");
    tg_module_free(m), tg_module_free(step);
}

/* ---- attention ---- */

enum { E = 8, HEADS = 2, L = 4, S = 5 };

static tg_tensor *attend(tg_module *m, tg_tensor *q, tg_tensor *k, tg_tensor *mask, tg_tensor **weights)
{
    tg_tensor *in[4], *out[2];
    in[0] = q, in[1] = in[2] = k, in[3] = mask;
    if (tg_forward_n(m, in, mask ? 4 : 3, out, weights ? 2 : 1) != TG_OK) return NULL;
    if (weights) *weights = out[1];
    return out[0];
}

TEST(masks)
{
    tg_module *m = in_f64(tg_nn_multihead_attention(E, HEADS, true));
    tg_tensor *q = random_of(TG_SHAPE(N, L, E)), *k = random_of(TG_SHAPE(N, S, E)), *weights, *y, *plain;
    tg_tensor *hidden = boolean("[[0, 1, 0, 0, 1], [0, 0, 0, 0, 0], [1, 1, 0, 1, 1], [0, 0, 1, 0, 0]]");
    tg_tensor *added = tg_masked_fill(tg_zeros_on(TG_SHAPE(L, S), TG_F64, HERE), hidden, -INFINITY);
    tg_tensor *padding = boolean("[[0, 0, 0, 1, 1], [0, 0, 0, 0, 1], [0, 0, 0, 0, 0]]"), *short_k;
    plain = attend(m, q, k, NULL, NULL);
    y = attend(m, q, k, hidden, &weights);
    CHECK(plain && y && !same(plain, y));
    CHECK(same(y, attend(m, q, k, hidden, NULL))); /* asking for the weights does not change y */
    CHECK(same(y, attend(m, q, k, added, NULL)) && same(y, attend(m, q, k, tg_to_dtype(added, TG_F32), NULL)));
    CHECK(same(y, attend(m, q, k, tg_expand(hidden, TG_SHAPE(N * HEADS, L, S)), NULL)));
    CHECK(same(y, attend(m, q, k, tg_view(hidden, TG_SHAPE(1, 1, L, S)), NULL)));
    CHECK(same(tg_sum_dim(weights, 2, false), tg_ones_on(TG_SHAPE(N, L), TG_F64, HERE)));
    CHECK(tg_item(tg_amax(tg_masked_fill(weights, tg_logical_not(hidden), 0))) == 0);
    CHECK(tg_get(weights, TG_INDEX(0, 2, 2)) == 1);
    /* keys that are padding count for nothing: sequence 0 has three */
    y = attend(m, q, k, tg_view(padding, TG_SHAPE(N, 1, 1, S)), NULL);
    short_k = tg_narrow(tg_select(k, 0, 0), 0, 0, 3);
    CHECK(same(tg_select(y, 0, 0), attend(m, tg_select(q, 0, 0), short_k, NULL, NULL)));
    CHECK(same(tg_select(y, 0, 2), tg_select(plain, 0, 2)));
    /* a query that may see nothing gets the bias of out_proj */
    y = attend(m, q, k, boolean("[[1, 1, 1, 1, 1], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]]"), NULL);
    CHECK(same(tg_select(tg_select(y, 1, 0), 0, 0), tg_module_get(m, "out_proj.bias")));
    CHECK_FAILS(attend(m, q, k, tg_ones_on(TG_SHAPE(L, L), TG_F64, HERE), NULL),
                "the attn_mask is [4, 4]; for scores of [3, 2, 4, 5] it should be");
    CHECK_FAILS(attend(m, q, k, tg_ones_on(TG_SHAPE(N, L, S), TG_F64, HERE), NULL), "the attn_mask is [3, 4, 5]");
    CHECK_FAILS(attend(m, q, k, tg_ones_on(TG_SHAPE(S), TG_F64, HERE), NULL), "the attn_mask is [5]");
    CHECK_FAILS(attend(m, q, k, tg_ones_on(TG_SHAPE(L, S), TG_I64, HERE), NULL),
                "only bool and floating types of attn_mask are supported, not i64");
    tg_module_free(m);
}

/* A causal mask: position l does not change when later ones do. */
TEST(causal)
{
    tg_module *m = in_f64(tg_nn_transformer_encoder_layer(E, HEADS, 16, 0.1, true, true));
    tg_tensor *in[2], *y, *z, *x = random_of(TG_SHAPE(N, L, E));
    tg_module_train(m, false);
    in[0] = x, in[1] = tg_triu(tg_ones_on(TG_SHAPE(L, L), TG_BOOL, HERE), 1);
    CHECK(tg_forward_n(m, in, 2, &y, 1) == TG_OK);
    in[0] = tg_cat(TG_LIST(tg_narrow(x, 1, 0, 2), random_of(TG_SHAPE(N, L - 2, E))), 1);
    CHECK(tg_forward_n(m, in, 2, &z, 1) == TG_OK);
    CHECK(same(tg_narrow(y, 1, 0, 2), tg_narrow(z, 1, 0, 2)) && !same(y, z));
    tg_module_free(m);
}

/* A stack is its layers one after the other, and then the norm; each layer has numbers of its own. */
TEST(stacks)
{
    tg_module *layer = tg_nn_transformer_encoder_layer(E, HEADS, 16, 0, true, false);
    tg_module *m = in_f64(tg_nn_transformer_encoder(layer, 3, tg_nn_layer_norm(TG_SHAPE(E), 1e-5, true)));
    tg_tensor *in[4], *x = random_of(TG_SHAPE(N, L, E)), *memory = random_of(TG_SHAPE(N, S, E)), *y, *z, *first;
    CHECK(strcmp(tg_module_name(m), "TransformerEncoder") == 0 && tg_module_count(m) == 3 * 12 + 2);
    CHECK(tg_module_get_child(m, "layers.0") == layer && strcmp(tg_module_path(m, 37), "norm.bias") == 0);
    first = tg_module_get(m, "layers.0.linear1.weight");
    CHECK(same(first, tg_module_get(m, "layers.2.linear1.weight")));
    TG_NO_GRAD;
    tg_uniform_(first, -1, 1);
    CHECK(!same(first, tg_module_get(m, "layers.2.linear1.weight")));
    in[0] = x, in[1] = tg_triu(tg_ones_on(TG_SHAPE(L, L), TG_BOOL, HERE), 1);
    CHECK(tg_forward_n(m, in, 2, &y, 1) == TG_OK);
    for (int i = 0; i < 3; ++i) {
        CHECK(tg_forward_n(tg_module_child_at(tg_module_get_child(m, "layers"), i), in, 2, &z, 1) == TG_OK);
        in[0] = z;
    }
    CHECK(same(y, tg_forward(tg_module_get_child(m, "norm"), z)));
    in[0] = in[2] = x;
    CHECK_FAILS(tg_forward_n(m, in, 3, &y, 1), "'TransformerEncoder' takes 1 to 2 inputs, not 3");
    CHECK(tg_module_remove(m, "norm") == TG_OK && tg_forward_n(m, in, 2, &y, 1) == TG_OK && same(z, y));
    CHECK(tg_module_remove(m, "layers") == TG_OK && same(x, tg_forward(m, x)));
    tg_module_free(m);
    m = in_f64(tg_nn_transformer_decoder(tg_nn_transformer_decoder_layer(E, HEADS, 16, 0, false, true), 2, NULL));
    in[0] = x, in[1] = memory, in[2] = tg_triu(tg_ones_on(TG_SHAPE(L, L), TG_BOOL, HERE), 1);
    CHECK(tg_forward_n(m, in, 3, &y, 1) == TG_OK);
    in[0] = tg_cat(TG_LIST(tg_narrow(x, 1, 0, 2), random_of(TG_SHAPE(N, L - 2, E))), 1);
    CHECK(tg_forward_n(m, in, 3, &z, 1) == TG_OK && same(tg_narrow(y, 1, 0, 2), tg_narrow(z, 1, 0, 2)) && !same(y, z));
    CHECK_FAILS(tg_forward_n(m, in, 1, &y, 1), "'TransformerDecoder' takes 2 to 4 inputs, not 1");
    tg_module_free(m);
}

/* What a stack takes over is freed when it fails: a leak would be found where memory is checked. */
TEST(stacks_refused)
{
    tg_module *layer = tg_nn_relu(), *m;
    CHECK_FAILS(tg_nn_transformer_encoder(NULL, 2, tg_nn_relu()), "tg_nn_transformer_encoder: argument layer is NULL");
    CHECK_FAILS(tg_nn_transformer_encoder(tg_nn_relu(), 0, tg_nn_relu()), "n has to be at least 1, but got 0");
    CHECK_FAILS(tg_nn_transformer_decoder(tg_nn_relu(), -3, NULL), "tg_nn_transformer_decoder: n has to be at least 1");
    m = tg_nn_list(&layer, 1);
    CHECK_FAILS(tg_nn_transformer_encoder(layer, 2, tg_nn_relu()), "is the child of another module");
    tg_module_free(m);
}

TEST(attention_dropout)
{
    tg_module *m = in_f64(tg_nn_multihead_attention_ex(E, HEADS, 0.5, true, E, E));
    tg_tensor *q = random_of(TG_SHAPE(N, L, E)), *weights, *y;
    CHECK(!same(attend(m, q, q, NULL, NULL), attend(m, q, q, NULL, NULL)));
    attend(m, q, q, NULL, &weights);
    CHECK(tg_item(tg_amin(weights)) == 0); /* both heads dropped it, somewhere among the 48 weights */
    tg_module_train(m, false);
    y = attend(m, q, q, NULL, NULL);
    CHECK(same(y, attend(m, q, q, NULL, NULL)));
    tg_module_free(m);
    m = in_f64(tg_nn_transformer_decoder_layer(E, HEADS, 16, 0.5, false, false));
    tg_tensor *in[2], *a, *b;
    in[0] = q, in[1] = random_of(TG_SHAPE(N, S, E));
    CHECK(tg_forward_n(m, in, 2, &a, 1) == TG_OK && tg_forward_n(m, in, 2, &b, 1) == TG_OK && !same(a, b));
    tg_module_train(m, false);
    CHECK(tg_forward_n(m, in, 2, &a, 1) == TG_OK && tg_forward_n(m, in, 2, &b, 1) == TG_OK && same(a, b));
    tg_module_free(m);
}

TEST(attention_initialisation)
{
    tg_module *m = tg_nn_multihead_attention(100, 4, true);
    tg_tensor *w = tg_detach(tg_module_get(m, "in_proj_weight"));
    const double bound = sqrt(6.0 / 400), largest = tg_item(tg_amax(tg_abs(w)));
    CHECK(largest <= bound && largest > 0.999 * bound);
    CHECK(tg_item(tg_amax(tg_abs(tg_detach(tg_module_get(m, "in_proj_bias"))))) == 0);
    CHECK(tg_item(tg_amax(tg_abs(tg_detach(tg_module_get(m, "out_proj.bias"))))) == 0);
    CHECK(tg_item(tg_amax(tg_abs(tg_detach(tg_module_get(m, "out_proj.weight"))))) <= 0.1);
    tg_module_free(m);
}

TEST(attention_refusals)
{
    tg_module *m = tg_nn_multihead_attention(E, HEADS, true);
    tg_tensor *q = tg_ones(TG_SHAPE(N, L, E)), *in[3], *y;
    CHECK_FAILS(attend(m, tg_ones(TG_SHAPE(E)), q, NULL, NULL),
                "query should be unbatched 2D or batched 3D tensor but received 1-D query tensor");
    CHECK_FAILS(attend(m, q, tg_ones(TG_SHAPE(L, E)), NULL, NULL),
                "query [3, 4, 8], key [4, 8] and value [4, 8] do not");
    CHECK_FAILS(attend(m, q, tg_ones(TG_SHAPE(2, L, E)), NULL, NULL), "key [2, 4, 8] and value [2, 4, 8] do not fit");
    CHECK_FAILS(attend(m, tg_ones(TG_SHAPE(N, L, 4)), q, NULL, NULL),
                "input 0: was expecting embedding dimension of 8, but got 4");
    in[0] = in[1] = q, in[2] = tg_ones(TG_SHAPE(N, S, E));
    CHECK_FAILS(tg_forward_n(m, in, 3, &y, 1), "do not fit");
    CHECK_FAILS(tg_forward_n(m, in, 2, &y, 1), "inputs, not 2");
    tg_module_free(m);
    CHECK_FAILS(tg_nn_multihead_attention(5, 2, true), "embed_dim must be divisible by num_heads");
    CHECK_FAILS(tg_nn_multihead_attention(4, 0, true), "num_heads=0");
    CHECK_FAILS(tg_nn_multihead_attention_ex(4, 2, 2, true, 4, 4), "dropout probability has to be between 0 and 1");
    CHECK_FAILS(tg_nn_multihead_attention_ex(4, 2, 0, true, -1, 4), "tg_nn_multihead_attention_ex: ");
    CHECK_FAILS(tg_nn_transformer_encoder_layer(5, 2, 8, 0, false, false),
                "tg_nn_transformer_encoder_layer: embed_dim must be divisible by num_heads");
    CHECK_FAILS(tg_nn_transformer_decoder_layer(4, 2, -8, 0, false, false), "a size cannot be negative");
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    harness_take_device();
    RUN(optional_states_and_outputs);
    RUN(batches);
    RUN(steps);
    RUN(dropout_between_layers);
    RUN(memory_without_a_graph);
    RUN(recurrent_initialisation);
    RUN(recurrent_refusals);
    RUN(lengths);
    RUN(lengths_gradients);
    RUN(lengths_all_equal);
    RUN(lengths_refused);
    RUN(masks);
    RUN(causal);
    RUN(stacks);
    RUN(stacks_refused);
    RUN(attention_dropout);
    RUN(attention_initialisation);
    RUN(attention_refusals);
    CHECK(tg_shutdown() == TG_OK);
    return harness_end();
}
