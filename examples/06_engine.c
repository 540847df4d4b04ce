/* 06_engine.c: the engine of numbers in engine.h trains a network.

   READ    engine.h, all of it; then loss_of() and step(): what a library does for you.
   CHANGE  the number of neurons; TANH to RELU in layer(), and with it what is printed.
   PRINTS  what Python prints for the same: the three numbers of micrograd's README; then every line of LLM101n's
           micrograd, which learns a yin-yang with two dots, three classes of points, from the same random numbers by
           the same AdamW (losses to 12 digits). */
#include "engine.h"
#include <stdint.h>

/* ---- LLM101n's random numbers: xorshift64*.  header: @@RANDOM tgi_philox ---- */

static uint64_t state = 42;

static double uniform(double low, double high)
{
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    const uint32_t word = (uint32_t)(state * 0x2545F4914F6CDD1DU >> 32);
    return low + (high - low) * ((word >> 8) / 16777216.0);
}

/* ---- the points: a disc around (1/2, 1/2), scaled to -2 .. 2; classes yin 0, yang 1, dots 2, in turns ---- */

enum { POINTS = 100, TRAINED = 80, VALIDATED = 10, HIDDEN = 8, CLASSES = 3, STEPS = 100 };
static struct { double x, y; int label; } point[POINTS];

static double distance(double x, double y, double from_x)
{
    return sqrt((x - from_x) * (x - from_x) + (y - 0.5) * (y - 0.5));
}

static void make_points(void)
{
    for (int n = 0; n < POINTS;) {
        const double x = uniform(0, 1), y = uniform(0, 1), left = distance(x, y, 0.25), right = distance(x, y, 0.75);
        if (distance(x, y, 0.5) > 0.5) continue;
        const int yin = right <= 0.1 || (left > 0.1 && left <= 0.25) || (y > 0.5 && right > 0.25);
        const int label = right < 0.1 || left < 0.1 ? 2 : yin ? 0 : 1;
        if (label != n % CLASSES) continue;
        point[n].x = (x / 0.5 - 1) * 2;
        point[n].y = (y / 0.5 - 1) * 2;
        point[n++].label = label;
    }
}

/* ---- the network: 2 inputs, 8 neurons with tanh, 3 outputs.  header: @@LAYERS tg_nn_linear ---- */

enum { PARAMETERS = HIDDEN * 3 + CLASSES * (HIDDEN + 1) }; /* they are the first values of the tape */

static void make_parameters(int inputs, int outputs)
{
    for (int i = 0; i < outputs; ++i) {
        for (int k = 0; k < inputs; ++k) (void)v_leaf(uniform(-1, 1) * pow(inputs, -0.5));
        (void)v_leaf(0); /* the bias */
    }
}

/* x [inputs] -> y [outputs]; returns where the parameters of the next layer begin. */
static value *layer(value *parameter, value **x, int inputs, value **y, int outputs)
{
    for (int i = 0; i < outputs; ++i, parameter += inputs + 1) {
        y[i] = &parameter[inputs];
        for (int k = 0; k < inputs; ++k) y[i] = v_add(y[i], v_mul(&parameter[k], x[k]));
    }
    return parameter;
}

/* -log(exp(logit of the label) / sum(exp(logits))).  header: @@LOSS tg_cross_entropy */
static value *cross_entropy(value **logits, int label)
{
    value *e[CLASSES], *sum = v_leaf(0);
    for (int i = 0; i < CLASSES; ++i) e[i] = v_exp(logits[i]);
    for (int i = 0; i < CLASSES; ++i) sum = v_add(sum, e[i]);
    return v_neg(v_log(v_div(e[label], sum)));
}

static value *loss_of(int first, int n)
{
    value *total = v_leaf(0);
    for (int i = first; i < first + n; ++i) {
        value *x[2] = {v_leaf(point[i].x), v_leaf(point[i].y)}, *hidden[HIDDEN], *logits[CLASSES];
        value *next = layer(tape.values, x, 2, hidden, HIDDEN);
        for (int k = 0; k < HIDDEN; ++k) hidden[k] = v_tanh(hidden[k]);
        layer(next, hidden, HIDDEN, logits, CLASSES);
        total = v_add(total, cross_entropy(logits, point[i].label));
    }
    return v_mul(total, v_leaf(1.0 / n));
}

/* Step t of AdamW, from 1.  header: @@OPTIM tg_adamw */
static void step(int t)
{
    static double m[PARAMETERS], v[PARAMETERS];
    for (int i = 0; i < PARAMETERS; ++i) {
        value *p = &tape.values[i];
        m[i] = 0.9 * m[i] + (1 - 0.9) * p->grad;
        v[i] = 0.95 * v[i] + (1 - 0.95) * (p->grad * p->grad);
        const double m_hat = m[i] / (1 - pow(0.9, t)), v_hat = v[i] / (1 - pow(0.95, t));
        p->data -= 0.1 * (m_hat / (sqrt(v_hat) + 1e-8) + 1e-4 * p->data);
    }
}

/* micrograd's README: g of a = -4 and b = 2 */
static void readme(void)
{
    value *a = v_leaf(-4), *b = v_leaf(2), *one = v_leaf(1), *two = v_leaf(2), *three = v_leaf(3);
    value *c = v_add(a, b), *d = v_add(v_mul(a, b), v_power(b, 3));
    c = v_add(c, v_add(c, one));
    c = v_add(c, v_add(v_add(one, c), v_neg(a)));
    d = v_add(d, v_add(v_mul(d, two), v_relu(v_add(b, a))));
    d = v_add(d, v_add(v_mul(three, d), v_relu(v_sub(b, a))));
    value *f = v_power(v_sub(c, d), 2), *g = v_add(v_div(f, two), v_div(v_leaf(10), f));
    v_backward(g);
    printf("%.4f\n%.4f\n%.4f\n", g->data, a->grad, b->grad);
    v_forget(0);
}

int main(void)
{
    readme();
    make_points();
    make_parameters(2, HIDDEN);
    make_parameters(HIDDEN, CLASSES);
    for (int t = 1; t <= STEPS; ++t) {
        if (t % 10 == 1) printf("step %d/%d, val loss %.6f\n", t, STEPS, loss_of(TRAINED, VALIDATED)->data);
        value *loss = loss_of(0, TRAINED);
        v_backward(loss);
        step(t);
        v_zero_grad();
        printf("step %d/%d, train loss %.12g\n", t, STEPS, loss->data);
        v_forget(PARAMETERS);
    }
    return 0;
}
