/* Distributions: draws by their moments and by the largest distance of their distribution function from the true one (of
 * Kolmogorov and Smirnov), the same on each device; log-probabilities, entropies and divergences against PyTorch's. */
#include "tensorgrad.h"
#include "helpers.h"
#include <math.h>

enum { DRAWS = 20000 };

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The largest distance of the draws t, of DRAWS elements, from a distribution function with parameters p and q. */
static double distance(tg_tensor *t, double (*below)(double x, double p, double q), double p, double q, bool whole)
{
    static double x[DRAWS];
    double most = 0;
    int i, end;
    if (!t || tg_copy_out(tg_to_dtype(t, TG_F64), x, sizeof x) != TG_OK) return 1;
    qsort(x, DRAWS, sizeof *x, by_size);
    for (i = 0; i < DRAWS; i = end) {
        double apart, f = below(x[i], p, q);
        for (end = i + 1; end < DRAWS && x[end] == x[i]; ++end) {}
        apart = fabs((double)end / (double)DRAWS - f);
        if (!(apart <= most)) most = apart;
        if (!whole && fabs((double)i / (double)DRAWS - f) > most) most = fabs((double)i / (double)DRAWS - f);
    }
    return most;
}

/* With a probability of 1 in 1,000 a right one is further away; the seed is fixed. */
#define CHECK_DRAWS(t, below, p, q, whole) CHECK(distance(t, below, p, q, whole) < 1.95 / sqrt((double)DRAWS))

static double exponential(double x, double rate, double unused) { return (void)unused, 1 - exp(-rate * x); }
static double log_normal(double x, double mean, double std) { return erfc((mean - log(x)) / std / sqrt(2.0)) / 2; }
static double cauchy(double x, double median, double sigma) { return 0.5 + atan((x - median) / sigma) / acos(-1.0); }
static double laplace(double x, double loc, double scale)
{
    return x < loc ? exp((x - loc) / scale) / 2 : 1 - exp((loc - x) / scale) / 2;
}
static double geometric(double x, double p, double unused) { return (void)unused, 1 - pow(1 - p, x); }
static double half_gamma(double x, double p, double q) { return (void)p, (void)q, erf(sqrt(x)); }
static double whole_gamma(double x, double shape, double unused)
{
    double term = exp(-x), sum = 0;
    int i;
    for (i = 0; i < (int)shape; ++i) sum += term, term *= x / (i + 1);
    return (void)unused, 1 - sum;
}
static double poisson(double k, double rate, double unused) { return (void)unused, 1 - whole_gamma(rate, k + 1, 0); }
static double binomial(double k, double n, double p)
{
    double term = pow(1 - p, n), sum = 0;
    int i;
    for (i = 0; i <= (int)k; ++i) sum += term, term *= (n - i) / (i + 1) * p / (1 - p);
    return sum;
}
static double beta_2_2(double x, double p, double q) { return (void)p, (void)q, x * x * (3 - 2 * x); }
static double student_2(double x, double loc, double scale)
{
    double t = (x - loc) / scale;
    return 0.5 + t / (2 * sqrt(2 + t * t));
}

static tg_tensor *all(double value) { return tg_full_on(TG_SHAPE(DRAWS), value, TG_F64, HERE); }
static tg_tensor *one(double value) { return tg_full_on(TG_SHAPE(1), value, TG_F64, HERE); }

TEST(draws_in_place)
{
    tg_tensor *t = tg_empty_on(TG_SHAPE(100, DRAWS / 100), TG_F32, HERE), *wide = tg_empty_on(TG_SHAPE(4, 3), TG_F64, HERE);
    uint64_t before = tg_rng_state().offset;
    CHECK_DRAWS(tg_exponential_(t, 2.5), exponential, 2.5, 0, false);
    CHECK(tg_rng_state().offset == before + DRAWS);
    CHECK_DRAWS(tg_log_normal_(t, 0.5, 1.5), log_normal, 0.5, 1.5, false);
    CHECK_DRAWS(tg_cauchy_(t, -1, 2), cauchy, -1, 2, false);
    CHECK_DRAWS(tg_geometric_(t, 0.3), geometric, 0.3, 0, true);
    CHECK_DRAWS(tg_geometric_(tg_transpose(t, 0, 1), 0.9), geometric, 0.9, 0, true);
    CHECK(tg_exponential_(tg_set_requires_grad(wide, true), 1) != NULL && tg_is_leaf(wide));
    CHECK_FAILS(tg_exponential_(t, 0), "a parameter is out of its range");
    CHECK_FAILS(tg_log_normal_(t, 0, 0), "a parameter is out of its range");
    CHECK_FAILS(tg_cauchy_(t, 0, -1), "a parameter is out of its range");
    CHECK_FAILS(tg_geometric_(t, 1), "a parameter is out of its range");
    CHECK_FAILS(tg_exponential_(tg_zeros_on(TG_SHAPE(2), TG_I64, HERE), 1), "float");
}

TEST(draws_by_parameters)
{
    tg_tensor *x, *nan;
    CHECK_DRAWS(tg_standard_gamma(all(0.5)), half_gamma, 0, 0, false);
    CHECK_DRAWS(tg_standard_gamma(all(1)), whole_gamma, 1, 0, false);
    CHECK_DRAWS(tg_standard_gamma(all(12)), whole_gamma, 12, 0, false);
    CHECK_DRAWS(tg_poisson(all(0.2)), poisson, 0.2, 0, true);
    CHECK_DRAWS(tg_poisson(all(9)), poisson, 9, 0, true);
    CHECK_DRAWS(tg_poisson(all(45)), poisson, 45, 0, true);
    CHECK_DRAWS(tg_binomial(all(20), one(0.3)), binomial, 20, 0.3, true);
    CHECK_DRAWS(tg_binomial(all(100), one(0.6)), binomial, 100, 0.6, true);
    CHECK_DRAWS(tg_binomial(one(5), all(0.9)), binomial, 5, 0.9, true);
    CHECK_DRAWS(tg_beta(all(2), one(2)), beta_2_2, 0, 0, false);
    CHECK_DRAWS(tg_laplace(all(1), one(0.5)), laplace, 1, 0.5, false);
    CHECK_DRAWS(tg_student_t(one(2), all(1), one(3)), student_2, 1, 3, false);
    x = tg_dirichlet(tg_expand(tg_to(f64("[1, 2, 5]"), HERE), TG_SHAPE(DRAWS, 3)));
    CHECK(is_nearly(tg_mean_dim(x, 0, false), f64("[0.125, 0.25, 0.625]"), 0, 0.005));
    CHECK(is_nearly(tg_sum_dim(x, 1, false), all(1), 1e-12, 1e-12));
    nan = tg_poisson(one(-1));
    CHECK(tg_item(nan) != tg_item(nan));
    nan = tg_binomial(one(3), one(1.5));
    CHECK(tg_item(nan) != tg_item(nan));
    nan = tg_standard_gamma(one(-2));
    CHECK(tg_item(nan) != tg_item(nan));
    CHECK(tg_item(tg_binomial(one(7), one(1))) == 7 && tg_item(tg_binomial(one(7), one(0))) == 0);
    CHECK(tg_item(tg_poisson(one(0))) == 0 && tg_item(tg_standard_gamma(one(0))) == 0);
    CHECK(tg_dtype_of(tg_poisson(tg_ones_on(TG_SHAPE(2), TG_F16, HERE))) == TG_F16);
    CHECK(tg_numel(tg_poisson(tg_empty_on(TG_SHAPE(0), TG_F32, HERE))) == 0);
    CHECK(!tg_requires_grad(tg_standard_gamma(tg_set_requires_grad(one(1), true))));
    CHECK_FAILS(tg_poisson(NULL), "is NULL");
    CHECK_FAILS(tg_binomial(tg_ones(TG_SHAPE(2)), tg_ones(TG_SHAPE(3))), "");
}

/* An element depends on the seed, its place and its parameters: the same on each device, and in a larger tensor. */
TEST(the_same_numbers_everywhere)
{
    tg_tensor *shape = f64("[0.2, 0.9, 1, 3.5, 40, 1000]"), *here = tg_to(shape, HERE), *y[2], *head;
    int way, k;
    for (way = 0; way < 7; ++way) {
        for (k = 0; k < 2; ++k) {
            tg_tensor *x = k ? here : shape, *empty = tg_empty_like(x);
            tg_seed(11);
            y[k] = way == 0   ? tg_standard_gamma(x)
                   : way == 1 ? tg_poisson(x)
                   : way == 2 ? tg_binomial(x, tg_full_like(x, 0.4))
                   : way == 3 ? tg_exponential_(empty, 1)
                   : way == 4 ? tg_log_normal_(empty, 0, 1)
                   : way == 5 ? tg_cauchy_(empty, 0, 1)
                              : tg_geometric_(empty, 0.1);
        }
        CHECK(is_exactly(y[1], y[0]));
    }
    tg_seed(12);
    head = tg_standard_gamma(tg_full_on(TG_SHAPE(3), 0.7, TG_F32, HERE));
    tg_seed(12);
    CHECK(tg_equal(head, tg_narrow(tg_standard_gamma(tg_full_on(TG_SHAPE(1000), 0.7, TG_F32, HERE)), 0, 0, 3)));
}

static bool gives(tg_tensor *t, const char *wanted) { return is_nearly(t, f64(wanted), 1e-10, 1e-10); }

TEST(log_probabilities)
{
    tg_tensor *x = tg_to(f64("[0.3, 0.9]"), HERE), *a = tg_to(f64("[0.5, 2]"), HERE), *b = tg_to(f64("[1.5, 0.7]"), HERE);
    tg_tensor *p = tg_to(f64("[0.3, 0.8]"), HERE);
    CHECK(gives(tg_normal_log_prob(x, a, b), "[-1.3332925302, -1.79695746682]"));
    CHECK(gives(tg_log_normal_log_prob(x, a, b), "[-0.765658240961, -4.9799060337]"));
    CHECK(gives(tg_uniform_log_prob(x, tg_zeros_like(x), tg_to(f64("[2, 0.5]"), HERE)), "[-0.69314718056, -inf]"));
    CHECK(gives(tg_exponential_log_prob(x, b), "[-0.0445348918918, -0.986674943939]"));
    CHECK(gives(tg_laplace_log_prob(x, a, b), "[-1.231945622, -1.90790080805]"));
    CHECK(gives(tg_cauchy_log_prob(x, a, b), "[-1.56781659531, -2.03203308085]"));
    CHECK(gives(tg_student_t_log_prob(x, tg_to(f64("[3, 5]"), HERE), a, b), "[-1.4181708311, -1.81607001369]"));
    CHECK(gives(tg_gamma_log_prob(x, a, b), "[-0.217645986708, -1.44871040354]"));
    CHECK(gives(tg_beta_log_prob(x, a, b), "[-0.0279337750959, 0.759368319364]"));
    CHECK(gives(tg_dirichlet_log_prob(tg_to(f64("[0.2, 0.5, 0.3]"), HERE), tg_to(f64("[0.5, 2, 1.5]"), HERE)),
                "0.849762137433"));
    CHECK(gives(tg_bernoulli_log_prob(tg_to(f64("[0, 1]"), HERE), p), "[-0.356674943939, -0.223143551314]"));
    CHECK(gives(tg_geometric_log_prob(tg_to(f64("[0, 3]"), HERE), p), "[-1.20397280433, -5.05145728862]"));
    CHECK(gives(tg_binomial_log_prob(tg_to(f64("[2, 9]"), HERE), tg_to(f64("[5, 9]"), HERE), p),
                "[-1.17538534747, -2.00829196183]"));
    CHECK(gives(tg_poisson_log_prob(tg_to(f64("[0, 3]"), HERE), tg_to(f64("[0.5, 4]"), HERE)),
                "[-0.5, -1.63287638587]"));
    CHECK(gives(tg_categorical_log_prob(tg_to(i64("[2, 0]"), HERE), tg_to(f64("[[0.5, -1, 2], [0.5, -1, 2]]"), HERE)),
                "[-0.241311296657, -1.74131129666]"));
    CHECK_FAILS(tg_normal_log_prob(x, NULL, b), "argument mean is NULL");
    CHECK_FAILS(tg_normal_log_prob(x, tg_ones_on(TG_SHAPE(3), TG_F64, HERE), b), "");
}

TEST(entropies_and_divergences)
{
    tg_tensor *a = tg_to(f64("[0.5, 2]"), HERE), *b = tg_to(f64("[1.5, 0.7]"), HERE), *p = tg_to(f64("[0.3, 0.8]"), HERE);
    tg_tensor *logits = tg_to(f64("[0.5, -1, 2]"), HERE);
    CHECK(gives(tg_normal_entropy(b), "[1.82440364131, 1.06226358927]"));
    CHECK(gives(tg_log_normal_entropy(a, b), "[2.32440364131, 3.06226358927]"));
    CHECK(gives(tg_exponential_entropy(b), "[0.594534891892, 1.35667494394]"));
    CHECK(gives(tg_laplace_entropy(b), "[2.09861228867, 1.33647223662]"));
    CHECK(gives(tg_cauchy_entropy(b), "[2.93648935508, 2.17434930303]"));
    CHECK(gives(tg_gamma_entropy(a, b), "[-0.314855178194, 1.93389060884]"));
    CHECK(gives(tg_beta_entropy(a, b), "[-0.548417294711, -0.404996490037]"));
    CHECK(gives(tg_bernoulli_entropy(p), "[0.610864302055, 0.500402423538]"));
    CHECK(gives(tg_geometric_entropy(p), "[2.03621434018, 0.625503029423]"));
    CHECK(gives(tg_categorical_entropy(logits), "0.621584604679"));
    CHECK(gives(tg_uniform_entropy(tg_zeros_like(b), b), "[0.405465108108, -0.356674943939]"));
    CHECK(gives(tg_student_t_entropy(tg_to(f64("[3, 5]"), HERE), b), "[2.17894267997, 1.27082772848]"));
    CHECK(gives(tg_dirichlet_entropy(tg_to(f64("[0.5, 2, 1.5]"), HERE)), "-1.50684343061"));
    CHECK(gives(tg_normal_kl(a, b, b, a), "[4.90138771133, 0.822322124499]"));
    CHECK(gives(tg_beta_kl(a, b, b, a), "[2, 2.13565025544]"));
    CHECK(gives(tg_exponential_kl(a, b), "[0.901387711332, 0.399822124499]"));
    CHECK(gives(tg_bernoulli_kl(p, tg_to(f64("[0.6, 0.5]"), HERE)), "[0.183786897387, 0.192744757022]"));
    CHECK_FAILS(tg_dirichlet_entropy(NULL), "argument concentration is NULL");
    CHECK_FAILS(tg_student_t_entropy(b, NULL), "argument scale is NULL");
    CHECK_FAILS(tg_beta_kl(a, b, tg_ones_on(TG_SHAPE(3), TG_F64, HERE), a), "");
    CHECK(gives(tg_categorical_kl(logits, tg_to(f64("[0, 1, 0.5]"), HERE)), "0.626773975397"));
    CHECK(gives(tg_gamma_kl(a, b, b, a), "[2.58494794513, 3.7898971093]"));
}

static tg_tensor *beta_law(tg_tensor *const *in, int n, void *user)
{
    return (void)n, (void)user, tg_beta_log_prob(in[0], in[1], in[2]);
}
static tg_tensor *student_law(tg_tensor *const *in, int n, void *user)
{
    return (void)n, (void)user, tg_student_t_log_prob(in[0], in[1], in[2], in[3]);
}

static tg_tensor *entropies(tg_tensor *const *in, int n, void *user)
{
    tg_tensor *y = tg_add(tg_beta_kl(in[0], in[1], in[2], in[3]), tg_student_t_entropy(in[1], in[2]));
    return (void)n, (void)user, tg_add(y, tg_dirichlet_entropy(in[2]));
}

TEST(gradients_of_laws)
{
    tg_tensor *in[4];
    in[0] = tg_set_requires_grad(tg_to(f64("[0.3, 0.9]"), HERE), true);
    in[1] = tg_set_requires_grad(tg_to(f64("[0.5, 2]"), HERE), true);
    in[2] = tg_set_requires_grad(tg_to(f64("[1.5, 0.7]"), HERE), true);
    in[3] = tg_set_requires_grad(tg_to(f64("[1.5, 0.7]"), HERE), true);
    CHECK(tg_gradcheck(beta_law, in, 3, NULL) && tg_gradgradcheck(beta_law, in, 3, NULL));
    CHECK(tg_gradcheck(student_law, in, 4, NULL));
    CHECK(tg_gradcheck(entropies, in, 4, NULL) && tg_gradgradcheck(entropies, in, 4, NULL));
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    harness_take_device();
    tg_seed(7);
    RUN(draws_in_place);
    RUN(draws_by_parameters);
    RUN(the_same_numbers_everywhere);
    RUN(log_probabilities);
    RUN(entropies_and_divergences);
    RUN(gradients_of_laws);
    CHECK(tg_shutdown() == TG_OK);
    return harness_end();
}
