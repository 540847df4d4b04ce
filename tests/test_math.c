/* The functions of f32 and f64 tensors against the C library's in a wider type, for each instruction set that this
 * processor has: the largest error in units in the last place, over numbers of all sizes, and what they give for zero,
 * infinity and NaN.  The gradients in f32 against those of f64 tensors, which gradcheck holds. */
#if !defined(__cplusplus) && !defined(_POSIX_C_SOURCE)
#define _POSIX_C_SOURCE 200809L /* setenv */
#endif
#include "tensorgrad.h"
#include "harness.h"
#include <stdlib.h>

enum { AT_ONCE = 1 << 16 };
static const char *capability;
#ifdef TG_PLAIN
static const bool left_out = true; /* act III: there is only the plain backend */
#else
static const bool left_out = false;
#endif

static tg_tensor *gelu_erf(tg_tensor *x) { return tg_gelu(x, false); }
static tg_tensor *gelu_tanh(tg_tensor *x) { return tg_gelu(x, true); }

static tg_tensor *power(tg_tensor *x) { return tg_pow_scalar(x, 2.25); }
static tg_tensor *inverse_cube(tg_tensor *x) { return tg_pow_scalar(x, -3); }
static double exact_power(double x) { return pow(x, 2.25); }
static double exact_inverse_cube(double x) { return pow(x, -3); }
static long double wide_power(long double x) { return powl(x, 2.25L); }
static long double wide_inverse_cube(long double x) { return powl(x, -3); }

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double silu(double x) { return x / (1 + exp(-x)); }
static double normal_gelu(double x) { return x * 0.5 * erfc(-x * 0.70710678118654752440); }
static double tanh_gelu(double x) { return x * sigmoid(1.5957691216057307 * (x + 0.044715 * x * x * x)); }

/* x with erf(x) = y by steps of Halley's method, whose error is taken of erfc near 1. */
static long double wide_inverse_erf(long double y)
{
    const long double a = fabsl(y);
    if (!(a < 1) || a == 0) return a == 1 ? y * HUGE_VALL : a == 0 ? y : (long double)NAN;
    long double x = 0.9L * sqrtl(-log1pl(-a * a));
    if (x == 0) return 0.88622692545275801365L * y; /* a^2 is 0 */
    for (int step = 0; step < 6; ++step) {
        const long double error = a < 0.5L ? erfl(x) - a : (1 - a) - erfcl(x);
        const long double f = error * 0.88622692545275801365L * expl(x * x);
        x -= f / (1 + x * f);
    }
    return y < 0 ? -x : x;
}
static double inverse_erf(double y) { return (double)wide_inverse_erf(y); }

static const struct {
    const char *name;
    tg_tensor *(*op)(tg_tensor *x);
    double (*exact)(double x);
    long double (*wide)(long double x); /* NULL: the function in f64 is a formula of the others */
    double most, most_f64;              /* units in the last place */
} functions[] = {
    {"exp", tg_exp, exp, expl, 1, 1.5},
    {"expm1", tg_expm1, expm1, expm1l, 2, 2.5},
    {"log", tg_log, log, logl, 1, 1.5},
    {"log2", tg_log2, log2, log2l, 2, 2.5},
    {"log10", tg_log10, log10, log10l, 2, 2},
    {"log1p", tg_log1p, log1p, log1pl, 2, 2},
    {"sin", tg_sin, sin, sinl, 1.6, 2.5},
    {"cos", tg_cos, cos, cosl, 1.6, 2.5},
    {"tan", tg_tan, tan, tanl, 2.5, 3.5},
    {"asin", tg_asin, asin, asinl, 2, 2.5},
    {"acos", tg_acos, acos, acosl, 1.5, 1.5},
    {"atan", tg_atan, atan, atanl, 1.6, 2},
    {"x^2.25", power, exact_power, wide_power, 1, 1.5},
    {"x^-3", inverse_cube, exact_inverse_cube, wide_inverse_cube, 1, 1.5},
    {"sinh", tg_sinh, sinh, sinhl, 2, 2},
    {"cosh", tg_cosh, cosh, coshl, 2, 2},
    {"asinh", tg_asinh, asinh, asinhl, 3, 3},
    {"acosh", tg_acosh, acosh, acoshl, 3, 3},
    {"atanh", tg_atanh, atanh, atanhl, 3, 3},
    {"exp2", tg_exp2, exp2, exp2l, 2, 2},
    {"erfc", tg_erfc, erfc, erfcl, 4.5, 5},
    {"erfinv", tg_erfinv, inverse_erf, wide_inverse_erf, 4, 5},
    {"lgamma", tg_lgamma, lgamma, lgammal, 6, 6},
    {"tanh", tg_tanh, tanh, tanhl, 2, 3},
    {"erf", tg_erf, erf, erfl, 2, 2},
    {"sigmoid", tg_sigmoid, sigmoid, NULL, 2, 0},
    {"silu", tg_silu, silu, NULL, 2, 0},
    {"gelu", gelu_erf, normal_gelu, NULL, 2, 0},
    {"gelu tanh", gelu_tanh, tanh_gelu, NULL, 2, 0},
};
enum { FUNCTIONS = (int)(sizeof functions / sizeof functions[0]) };

/* The distance of y from the exact result in units in the last place of a float of that size. */
static double distance(float y, double exact)
{
    const int place = exact == 0 || ilogb(exact) < -126 ? -149 : ilogb(exact) - 23;
    if (isnan(exact)) return isnan(y) ? 0 : HUGE_VAL;
    if ((double)y == exact || (float)exact == y) return 0;
    return isinf(y) || isinf((float)exact) ? HUGE_VAL : fabs((double)y - exact) / ldexp(1, place);
}

/* pow and atan2 of each two of some numbers, special ones among them. */
TEST(pairs)
{
    const float number[] = {0.0f,   -0.0f,    1,         -1,    2,        -2,        0.5f,  -0.5f,
                            3,      -3,       0.3f,      -7.7f, 1e-40f,   -1e-40f,   3e38f, -3e38f,
                            1e-10f, INFINITY, -INFINITY, NAN,   16777216, -16777218, 12.5f, -101};
    enum { NUMBERS = (int)(sizeof number / sizeof number[0]), PAIRS = NUMBERS * NUMBERS };
    static float a[PAIRS], b[PAIRS], y[PAIRS], angle[PAIRS];
    tg_mark mark = tg_scope_begin();
    tg_tensor *x, *e;
    int i;
    for (i = 0; i < PAIRS; ++i) a[i] = number[i / NUMBERS], b[i] = number[i % NUMBERS];
    x = tg_from_f32(a, TG_SHAPE(PAIRS)), e = tg_from_f32(b, TG_SHAPE(PAIRS));
    CHECK(tg_copy_out(tg_pow(x, e), y, sizeof y) == TG_OK && tg_copy_out(tg_atan2(x, e), angle, sizeof angle) == TG_OK);
    for (i = 0; i < PAIRS; ++i) {
        const double power = pow((double)a[i], (double)b[i]), wanted = atan2((double)a[i], (double)b[i]);
        CHECK(distance(y[i], power) <= 1 && distance(angle[i], wanted) <= 2);
        CHECK(isnan(power) || !signbit(y[i]) == !signbit(power));
        CHECK(isnan(wanted) || !signbit(angle[i]) == !signbit(wanted));
    }
    tg_scope_end(mark);
}

/* Angles of all sizes, those for libm among others, in place, too. */
TEST(large_angles)
{
    static float x[1000], y[1000];
    tg_mark mark = tg_scope_begin();
    tg_tensor *t;
    int i;
    for (i = 0; i < 1000; ++i) x[i] = i % 7 ? (float)i : (float)i * 3e6f;
    t = tg_sin_(tg_from_f32(x, TG_SHAPE(1000)));
    CHECK(tg_copy_out(t, y, sizeof y) == TG_OK);
    for (i = 0; i < 1000; ++i) CHECK(distance(y[i], sin((double)x[i])) <= 1.6);
    tg_scope_end(mark);
}

/* lgamma below -1, which the C library computes, but for whole numbers, where it is infinite; in place, too. */
TEST(gamma_of_negative_numbers)
{
    enum { N = 2000 };
    static double x[N], y[N];
    for (int i = 0; i < N; ++i) x[i] = i % 3 ? -(double)i / 4 : i % 2 ? (double)i : -1e17 * (double)i;
    x[5] = -HUGE_VAL, x[7] = (double)NAN, x[8] = -1;
    for (int k = 0; k < 3; ++k) {
        TG_SCOPE;
        tg_tensor *t = tg_to_dtype(tg_from(x, TG_SHAPE(N), TG_F64), k == 0 ? TG_F64 : k == 1 ? TG_F32 : TG_I32);
        tg_tensor *z = k == 2 ? tg_lgamma(t) : tg_lgamma_(tg_clone(t));
        int wrong = 0;
        CHECK(tg_copy_out(tg_to_dtype(t, TG_F64), x, sizeof x) == TG_OK);
        CHECK(tg_copy_out(tg_to_dtype(z, TG_F64), y, sizeof y) == TG_OK);
        for (int i = 0; i < N; ++i) {
            const double exact = lgamma(x[i]), most = 1e-14 + 4e-7 * (k > 0);
            const bool whole = x[i] <= 0 && floor(x[i]) == x[i];
            wrong += isnan(x[i]) ? !isnan(y[i]) : whole || isinf(exact) ? y[i] != HUGE_VAL
                                                                       : fabs(y[i] - exact) > most * (1 + fabs(exact));
        }
        CHECK(wrong == 0);
    }
}

/* gelu of numbers where it vanishes, among them those whose results are below 2^-126, and of few and many at once. */
TEST(vanishing_gelu)
{
    enum { N = 3000 };
    static float x[N], y[N];
    for (int i = 0; i < N; ++i) x[i] = i % 3 == 2 ? (float)i / 150 : -(float)(i + 1) / 200;
    x[5] = -13.1463f, x[6] = -13.147f, x[7] = -13.1471f, x[8] = -14.4f, x[9] = -HUGE_VALF, x[10] = HUGE_VALF;
    for (int n = 11; n <= N; n = n * 3 - 1) {
        TG_SCOPE;
        CHECK(tg_copy_out(tg_gelu(tg_from_f32(x, TG_SHAPE(n)), false), y, (size_t)n * sizeof *y) == TG_OK);
        for (int i = 0; i < n; ++i)
            CHECK(i == 9 ? isnan(y[i]) : i == 10 ? y[i] == HUGE_VALF : distance(y[i], normal_gelu((double)x[i])) <= 2);
        for (int i = 0; i < 2 * n; i += 3) { /* no result depends on its place, by either formula */
            float alone, *const of = x + i / 2;
            tg_tensor *at_once = tg_gelu(tg_from_f32(x, TG_SHAPE(n)), i % 2 != 0);
            CHECK(tg_copy_out(tg_gelu(tg_from_f32(of, TG_SHAPE(1)), i % 2 != 0), &alone, sizeof alone) == TG_OK);
            CHECK(tg_copy_out(tg_narrow(at_once, 0, i / 2, 1), y, sizeof *y) == TG_OK);
            CHECK(isnan(y[0]) ? isnan(alone) : memcmp(y, &alone, sizeof alone) == 0);
        }
    }
}

/* Whether the square roots of x [n], or one by them, are those of the C library, to the last bit. */
static bool roots_are_exact(const double *x, int n, tg_dtype dtype, tg_tensor *(*root)(tg_tensor *x))
{
    static double y[AT_ONCE];
    TG_SCOPE;
    tg_tensor *roots = root(tg_to_dtype(tg_from(x, TG_SHAPE(n), TG_F64), dtype));
    if (tg_copy_out(tg_to_dtype(roots, TG_F64), y, (size_t)n * sizeof *y) != TG_OK) return false;
    for (int i = 0; i < n; ++i) {
        double wanted = dtype == TG_F64 ? sqrt(x[i]) : (double)sqrtf((float)x[i]);
        if (root == tg_rsqrt) wanted = dtype == TG_F64 ? 1 / wanted : (double)(float)(1 / (float)wanted);
        if (isnan(wanted) ? !isnan(y[i]) : memcmp(&wanted, &y[i], sizeof wanted) != 0) return false;
    }
    return true;
}
static tg_tensor *power_half(tg_tensor *x) { return tg_pow_scalar(x, 0.5); }
static tg_tensor *root_in_place(tg_tensor *x) { return tg_sqrt_(tg_clone(x)); }

/* Some x of 53 digits with m^2 = 2^54 x + k for an odd m of 54 digits, which is in the middle of two doubles: for small
   |k|, no other square roots are as near to such a middle.  k is 1 modulo 8, so that it has a square root modulo 2^55,
   which is found digit by digit.  `which`, 0 to 3, is the sign of m and its upper bit; 2 where there is no such m. */
static double nearly_between_doubles(int64_t k, int which)
{
    const uint64_t half = (uint64_t)1 << 27, most = (uint64_t)1 << 53;
    uint64_t root = 1;
    for (int digit = 3; digit < 55; ++digit)
        if ((root * root - (uint64_t)k) >> digit & 1) root += (uint64_t)1 << (digit - 1);
    const uint64_t m = ((which & 1 ? 0 - root : root) ^ (which & 2 ? most : 0)) % (2 * most);
    const uint64_t high = m / half, low = m % half;
    const int64_t middle = (int64_t)(2 * high * low) + ((int64_t)(low * low) - k) / (int64_t)half;
    const uint64_t x = high * high + (uint64_t)(middle / (int64_t)half);
    return m >= most && (x < most || x % 2 == 0) ? (double)x : 2;
}

/* sqrt is rounded right: of all floats from 1 to 4, to which those of another size are alike (where the processor's
   instruction is used, of some), of doubles with the most difficult roots, and of any bits, zero, infinity, NaN and
   negative ones among them; few of them, too. */
TEST(square_roots)
{
    const double special[] = {0, -0.0, 5e-324, -5e-324, 2.2250738585072014e-308, 1.7976931348623157e308, HUGE_VAL,
                              -HUGE_VAL, (double)NAN, /* not static: to tcc -HUGE_VAL is no constant */
                              -1, 1e-40, 1.4e-45, 4.5e-155, 1e-309, 7.5e-155, 5.4e-20, 1.8e19};
    enum { SPECIAL = (int)(sizeof special / sizeof special[0]) };
    static double x[AT_ONCE];
    const int step = strcmp(capability, "avx512") == 0 ? 1 : 15;
    uint64_t state = 12;
    bool right = true;
    int n = 0, found = 0;
    for (int block = 0; block < (1 << 24) / AT_ONCE && right; block += step) {
        for (int i = 0; i < AT_ONCE; ++i) x[i] = (block / 128 + 1) * (1 + (block % 128 * AT_ONCE + i) / 8388608.0);
        right = roots_are_exact(x, AT_ONCE, TG_F32, tg_sqrt);
    }
    CHECK(right);
    for (int64_t k = -32767; k < 32768; k += 8, ++n) {
        x[n] = nearly_between_doubles(k, (int)(k + 32767) / 8 % 4);
        found += x[n] != 2;
    }
    CHECK(found > n / 4 && roots_are_exact(x, n, TG_F64, tg_sqrt));
    for (int round = 0; round < 16; ++round) {
        for (int i = 0; i < AT_ONCE; ++i) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            const uint64_t bits = state ^ state >> 31;
            memcpy(&x[i], &bits, sizeof bits);
            if (round % 2) x[i] = fabs(x[i]);
            if (round % 4 > 1) x[i] = 1 + (double)(bits >> 11) / 4503599627370496.0; /* of middle size */
            if (round > 11 && (bits & 127) == 0) x[i] = special[bits / 128 % SPECIAL];
        }
        CHECK(roots_are_exact(x, AT_ONCE - round, round % 3 ? TG_F64 : TG_F32, round % 2 ? power_half : root_in_place));
        CHECK(roots_are_exact(x + round, 40 + round, round % 3 ? TG_F32 : TG_F64, tg_sqrt));
        CHECK(roots_are_exact(x, AT_ONCE - round, TG_F32, tg_rsqrt) && roots_are_exact(x, 600 + round, TG_F64, tg_rsqrt));
    }
    CHECK(roots_are_exact(special, SPECIAL, TG_F64, tg_sqrt) && roots_are_exact(special, SPECIAL, TG_F32, tg_sqrt));
    CHECK(roots_are_exact(special, SPECIAL, TG_F64, tg_rsqrt) && roots_are_exact(special, SPECIAL, TG_F32, tg_rsqrt));
}

/* fmod, remainder and floor_divide are exact: of small and of huge quotients, zeros, infinities and NaN. */
static double rounded_down(double a, double b)
{
    const double rest = fmod(a, b);
    if (b == 0) return a / b;
    const double quotient = (a - rest) / b - (rest != 0 && (rest < 0) != (b < 0));
    return quotient != 0 ? rint(quotient) : a / b * 0;
}

static double rest_of(double a, double b)
{
    const double rest = fmod(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

static bool alike(double a, double b) { return isnan(a) ? isnan(b) : a == b && !signbit(a) == !signbit(b); }

TEST(quotients)
{
    enum { N = 3000, SOME = 12 };
    static double a[N], b[N], y[N];
    static float a32[N], b32[N], y32[N];
    const double some[SOME] = {0, -0.0, 1, -1, 0.1, -0.1, 7, 1e300, -1e-300, HUGE_VAL, -HUGE_VAL, (double)NAN};
    tg_tensor *(*const ops[])(tg_tensor *, tg_tensor *) = {tg_fmod, tg_remainder, tg_floor_divide};
    double (*const exact[])(double, double) = {fmod, rest_of, rounded_down};
    uint64_t state = 7;
    for (int i = 0; i < N; ++i) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const double u = (double)(state >> 12) / 2251799813685248.0 - 1, v = (double)(state >> 20 & 1023) - 511.5;
        a[i] = i < SOME * SOME ? some[i / SOME] : i % 3 ? u * 1000 : ldexp(u, (int)(state >> 40 & 127) - 40);
        b[i] = i < SOME * SOME ? some[i % SOME] : i % 5 ? v / 64 : i % 7 ? a[i] / 3 : a[i];
        a32[i] = (float)a[i];
        b32[i] = (float)b[i];
    }
    for (int k = 0; k < 3; ++k) {
        TG_SCOPE;
        tg_tensor *z = ops[k](tg_from(a, TG_SHAPE(N), TG_F64), tg_from(b, TG_SHAPE(N), TG_F64));
        CHECK(tg_copy_out(z, y, sizeof y) == TG_OK);
        z = ops[k](tg_from(a32, TG_SHAPE(N), TG_F32), tg_from(b32, TG_SHAPE(N), TG_F32));
        CHECK(tg_copy_out(z, y32, sizeof y32) == TG_OK);
        for (int i = 0; i < N; ++i) {
            CHECK(alike(y[i], exact[k](a[i], b[i])));
            CHECK(alike((double)y32[i], (double)(float)exact[k]((double)a32[i], (double)b32[i])));
        }
    }
}

/* hypot within 1 unit in the last place, and neither 0 nor infinite where squares are. */
TEST(hypotenuses)
{
    enum { N = 4000 };
    static double a[N], b[N], y[N];
    double worst = 0;
    uint64_t state = 3;
    for (int i = 0; i < N; ++i) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        a[i] = ldexp((double)(state >> 12) / 4503599627370496.0, (int)(i % 4 ? state & 7 : state & 2047) - 1040);
        b[i] = a[i] * ((double)(state >> 24 & 65535) / 30000 - 1);
    }
    a[0] = HUGE_VAL, b[0] = (double)NAN, a[1] = 0, b[1] = -0.0, a[2] = 3, b[2] = -4;
    TG_SCOPE;
    CHECK(tg_copy_out(tg_hypot(tg_from(a, TG_SHAPE(N), TG_F64), tg_from(b, TG_SHAPE(N), TG_F64)), y, sizeof y) == TG_OK);
    CHECK(y[0] == HUGE_VAL && y[1] == 0 && y[2] == 5);
    for (int i = 1; i < N; ++i) {
        const double exact = hypot(a[i], b[i]), off = exact == 0 ? 0 : fabs(y[i] / exact - 1) / 2.220446049250313e-16;
        if (!(off <= worst) && fpclassify(exact) != FP_SUBNORMAL) worst = off;
    }
    printf("%-8s  hypot in f64 at most %.2f units in the last place\n", capability, worst);
    CHECK(worst <= 2);
}

/* Doubles of all sizes, in the order of a random walk over their bits; every second one is of ordinary size. */
static double some_double(uint64_t *state)
{
    double x;
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    const uint64_t bits = *state ^ *state >> 31;
    if (bits & 1) return ((double)(bits >> 12) / 2251799813685248.0 - 1) * (bits & 2 ? 1 : bits & 4 ? 8 : 720);
    memcpy(&x, &bits, sizeof x);
    return x;
}

enum { SPECIAL = 17 };
static double special(int i)
{
    const double numbers[SPECIAL] = {0, -0.0, 1, -1, 2, -2, 3, 0.5, -0.5, -2.5, 5e-324, -5e-324, 1e300, -1e300,
                                     HUGE_VAL, -HUGE_VAL, (double)NAN}; /* not static: to tcc -HUGE_VAL is no constant */
    return numbers[i];
}

/* digamma and its derivative in wide numbers, by many terms of their sums, and the size of the terms that cancel. */
static long double wide_psi(long double x, bool slope, long double *terms)
{
    const long double pi = 3.14159265358979323846264338327950288L, turn = sinl(pi * (x - rintl(x)));
    long double y = 0, mirror = 0;
    if (x < 0) {
        mirror = turn == 0 ? (slope ? HUGE_VALL : (long double)NAN) : slope ? pi / turn * (pi / turn)
                 : pi / tanl(pi * (x - rintl(x)));
        x = 1 - x;
    }
    for (; x < 40; x += 1) y += slope ? 1 / (x * x) : -1 / x;
    const long double u = 1 / x, z = u * u;
    if (slope) y += u + z / 2 + u * z * (1 / 6.0L - z * (1 / 30.0L - z * (1 / 42.0L - z * (1 / 30.0L - z * 5 / 66))));
    else y += logl(x) - u / 2 - z * (1 / 12.0L - z * (1 / 120.0L - z * (1 / 252.0L - z * (1 / 240.0L - z / 132))));
    *terms = fabsl(y) + fabsl(mirror) + (slope ? 0 : 5); /* log(10 + x) and the sum of 1 / (x + k) */
    return slope ? (mirror != 0 ? mirror - y : y) : y - mirror;
}

/* digamma and polygamma(1, x), whose errors are few units of 2^-52 times the terms that they are the sum of. */
TEST(gamma_functions)
{
    static double x[AT_ONCE], y[2][AT_ONCE];
    static float y32[2][AT_ONCE];
    const double nan = (double)NAN, infinite = HUGE_VAL;
    const double ends[][3] = {{0, -infinite, infinite}, {-0.0, infinite, infinite}, {-1, nan, infinite},
                              {-3e20, nan, infinite}, {infinite, infinite, 0}, {-infinite, nan, nan}, {nan, nan, nan},
                              {5e-324, -infinite, infinite}, {-5e-324, infinite, infinite}};
    enum { ENDS = (int)(sizeof ends / sizeof ends[0]) };
    double worst[2] = {0};
    uint64_t state = 5;
    for (int i = 0; i < AT_ONCE; ++i) {
        const double some = some_double(&state);
        const double near = ldexp(i - AT_ONCE / 3, i % 2 ? -11 : -8);
        x[i] = i < ENDS ? ends[i][0] : i % 4 == 0 && fabs(some) > 1e-150 ? some : near;
    }
    TG_SCOPE;
    tg_tensor *wide = tg_from(x, TG_SHAPE(AT_ONCE), TG_F64), *single = tg_to_dtype(wide, TG_F32);
    CHECK(tg_copy_out(tg_digamma(wide), y[0], sizeof y[0]) == TG_OK);
    CHECK(tg_copy_out(tg_polygamma(1, wide), y[1], sizeof y[1]) == TG_OK);
    CHECK(tg_copy_out(tg_digamma(single), y32[0], sizeof y32[0]) == TG_OK);
    CHECK(tg_copy_out(tg_polygamma(1, single), y32[1], sizeof y32[1]) == TG_OK);
    for (int i = 0; i < AT_ONCE; ++i) {
        for (int k = 0; k < 2; ++k) {
            long double terms, exact = i < ENDS ? (long double)ends[i][1 + k] : wide_psi((long double)x[i], k, &terms);
            if (i < ENDS) CHECK(alike(y[k][i], (double)exact));
            else if (fabsl(exact) < HUGE_VALL) {
                const double d = (double)(fabsl((long double)y[k][i] - exact) / terms) * 4503599627370496.0;
                if (!(d <= worst[k])) worst[k] = isnan(d) ? HUGE_VAL : d;
            }
            if ((double)(float)x[i] != x[i] || isnan(y[k][i])) continue;
            CHECK(distance(y32[k][i], y[k][i]) <= 0.5); /* computed in f64 */
        }
    }
    printf("%-8s  digamma at most %.2f, polygamma(1, x) %.2f of their terms\n", capability, worst[0], worst[1]);
    CHECK(worst[0] <= 4 && worst[1] <= 4);
}

/* logaddexp2 within 2 units in the last place of the result, or of 1; infinities and NaN as the formula has them. */
TEST(sums_of_powers)
{
    static double a[AT_ONCE], b[AT_ONCE], y[2][AT_ONCE];
    double worst[2] = {0};
    uint64_t state = 6;
    for (int i = 0; i < AT_ONCE; ++i) {
        const bool pair = i < SPECIAL * SPECIAL;
        a[i] = pair ? special(i / SPECIAL) : (double)(float)some_double(&state);
        b[i] = pair ? special(i % SPECIAL) : (double)(float)(i % 2 ? some_double(&state) : a[i] + i % 99 - 49);
    }
    TG_SCOPE;
    tg_tensor *x = tg_from(a, TG_SHAPE(AT_ONCE), TG_F64), *z = tg_from(b, TG_SHAPE(AT_ONCE), TG_F64);
    CHECK(tg_copy_out(tg_logaddexp2(x, z), y[0], sizeof y[0]) == TG_OK);
    z = tg_logaddexp2(tg_to_dtype(x, TG_F32), tg_to_dtype(z, TG_F32));
    CHECK(tg_copy_out(tg_to_dtype(z, TG_F64), y[1], sizeof y[1]) == TG_OK);
    for (int i = 0; i < AT_ONCE; ++i) {
        const bool second = b[i] > a[i] || isnan(b[i]);
        const long double most = (long double)(second ? b[i] : a[i]), least = (long double)(second ? a[i] : b[i]);
        const long double part = log1pl(exp2l(least - most)) * 1.4426950408889634074L;
        const long double exact = most == least ? most + 1 : most + part;
        for (int k = 0; k < 2; ++k) {
            const double size = fabs((double)exact) > 1 ? fabs((double)exact) : 1, unit = k ? ldexp(1, 23) : ldexp(1, 52);
            if (k && (double)(float)a[i] != a[i] && !isnan(a[i])) continue; /* 1e300 among the special ones */
            if (k && (double)(float)b[i] != b[i] && !isnan(b[i])) continue;
            if (isnan(exact) || !(size < HUGE_VAL)) CHECK(alike(y[k][i], (double)exact));
            else if (fabs(y[k][i] - (double)exact) / size * unit > worst[k])
                worst[k] = fabs(y[k][i] - (double)exact) / size * unit;
        }
    }
    printf("%-8s  logaddexp2 at most %.2f in f64, %.2f in f32\n", capability, worst[0], worst[1]);
    CHECK(worst[0] <= 2 && worst[1] <= 2);
}

/* nextafter of f64 and f32 is the C library's; of each bf16 and f16 it has the bits before or behind. */
TEST(next_numbers)
{
    static double a[AT_ONCE], b[AT_ONCE], y[AT_ONCE];
    static float a32[AT_ONCE], b32[AT_ONCE], y32[AT_ONCE];
    static uint16_t bits[AT_ONCE], next[AT_ONCE];
    uint64_t state = 4;
    int wrong = 0;
    for (int i = 0; i < AT_ONCE; ++i) {
        const bool pair = i < SPECIAL * SPECIAL;
        a[i] = pair ? special(i / SPECIAL) : some_double(&state);
        b[i] = pair ? special(i % SPECIAL) : i % 3 ? some_double(&state) : -a[i];
        a32[i] = i % 5 ? (float)a[i] : (float)ldexp(a[i], -1000), b32[i] = (float)b[i];
        bits[i] = (uint16_t)i;
    }
    TG_SCOPE;
    tg_tensor *z = tg_nextafter(tg_from(a, TG_SHAPE(AT_ONCE), TG_F64), tg_from(b, TG_SHAPE(AT_ONCE), TG_F64));
    CHECK(tg_copy_out(z, y, sizeof y) == TG_OK);
    z = tg_nextafter(tg_from(a32, TG_SHAPE(AT_ONCE), TG_F32), tg_from(b32, TG_SHAPE(AT_ONCE), TG_F32));
    CHECK(tg_copy_out(z, y32, sizeof y32) == TG_OK);
    for (int i = 0; i < AT_ONCE; ++i)
        wrong += !alike(y[i], nextafter(a[i], b[i])) || !alike((double)y32[i], (double)nextafterf(a32[i], b32[i]));
    CHECK(wrong == 0);
    for (int k = 0; k < 4; ++k) {
        const unsigned infinity = k < 2 ? 0x7f80 : 0x7c00;
        tg_tensor *half = tg_from(bits, TG_SHAPE(AT_ONCE), k < 2 ? TG_BF16 : TG_F16);
        z = tg_nextafter(half, tg_to_dtype(tg_full(TG_SHAPE(1), k % 2 ? -HUGE_VAL : HUGE_VAL), tg_dtype_of(half)));
        CHECK(tg_copy_out(z, next, sizeof next) == TG_OK);
        for (unsigned i = 0; i < AT_ONCE; ++i) {
            const unsigned rest = i & 0x7fff, sign = k % 2 ? 0x8000 : 0, out = rest + 1, in_ = rest - 1;
            const unsigned wanted = rest == 0 ? sign | 1 : i == (sign | infinity) ? i
                                    : (i & 0x8000) == sign ? sign | out : (sign ^ 0x8000) | in_;
            wrong += rest > infinity ? (next[i] & 0x7fff) <= infinity : next[i] != wanted;
        }
    }
    CHECK(wrong == 0);
}

/* One in so many of all floats, NaN and infinity among them. */
TEST(errors)
{
    static float x[AT_ONCE], y[AT_ONCE];
    const uint64_t step = getenv("SMALL") ? 100003 : 4999;
    double worst[FUNCTIONS] = {0};
    uint64_t bits = 0;
    while (bits < (uint64_t)1 << 32) {
        int n = 0;
        for (; n < AT_ONCE && bits < (uint64_t)1 << 32; ++n, bits += step) {
            const uint32_t these = (uint32_t)bits;
            memcpy(&x[n], &these, sizeof these);
        }
        for (int f = 0; f < FUNCTIONS; ++f) {
            TG_SCOPE;
            tg_tensor *result = functions[f].op(tg_from(x, TG_SHAPE(n), TG_F32));
            if (!CHECK(tg_copy_out(result, y, (size_t)n * sizeof *y) == TG_OK)) return;
            for (int i = 0; i < n; ++i) {
                const double d = distance(y[i], functions[f].exact((double)x[i]));
                if (!(d <= worst[f])) worst[f] = isnan(d) ? HUGE_VAL : d;
            }
        }
    }
    for (int f = 0; f < FUNCTIONS; ++f) {
        printf("%-8s  %-10s at most %.2f units in the last place\n", capability, functions[f].name, worst[f]);
        CHECK(worst[f] <= functions[f].most);
    }
}

/* The distance of y from the exact result in units in the last place of a double of that size; where long double is
 * double, the exact result may be off itself. */
static double wide_distance(double y, long double exact)
{
    if (isnan(exact)) return isnan(y) ? 0 : HUGE_VAL;
    if ((long double)y == exact || (double)exact == y) return 0;
    if (isinf(y) || isinf((double)exact)) return HUGE_VAL;
    const int place = exact == 0 || ilogbl(exact) < -1022 ? -1074 : ilogbl(exact) - 52;
    return (double)(fabsl((long double)y - exact) / ldexpl(1, place));
}

TEST(errors_f64)
{
    static double x[AT_ONCE], y[AT_ONCE];
    const int rounds = getenv("SMALL") ? 1 : 8;
    double worst[FUNCTIONS] = {0};
    uint64_t state = 1;
    for (int round = 0; round < rounds; ++round) {
        for (int i = 0; i < AT_ONCE; ++i) x[i] = i < SPECIAL ? special(i) : some_double(&state);
        for (int f = 0; f < FUNCTIONS; ++f) {
            if (!functions[f].wide) continue;
            TG_SCOPE;
            if (!CHECK(tg_copy_out(functions[f].op(tg_from(x, TG_SHAPE(AT_ONCE), TG_F64)), y, sizeof y) == TG_OK)) return;
            for (int i = 0; i < AT_ONCE; ++i) {
                const double d = wide_distance(y[i], functions[f].wide((long double)x[i]));
                if (!(d <= worst[f])) worst[f] = isnan(d) ? HUGE_VAL : d;
            }
            CHECK(isnan(y[1]) || !signbit(y[1]) == !signbit(functions[f].exact(x[1]))); /* of -0 */
        }
    }
    for (int f = 0; f < FUNCTIONS; ++f) {
        if (!functions[f].wide) continue;
        printf("%-8s  %-10s in f64 at most %.2f units in the last place\n", capability, functions[f].name, worst[f]);
        CHECK(worst[f] <= functions[f].most_f64);
    }
}

/* pow and atan2 at random numbers, and at all pairs of the special ones, where the sign of zero counts, too. */
static void errors_of_two(const char *name, tg_tensor *(*op)(tg_tensor *a, tg_tensor *b),
                          long double (*wide)(long double a, long double b), tg_dtype dtype, double most)
{
    static double a[AT_ONCE], b[AT_ONCE], y[AT_ONCE];
    double worst = 0;
    uint64_t state = 2;
    for (int i = 0; i < AT_ONCE; ++i) {
        const bool pair = i < SPECIAL * SPECIAL;
        a[i] = pair ? special(i / SPECIAL) : some_double(&state);
        b[i] = pair ? special(i % SPECIAL) : some_double(&state);
        if (dtype == TG_F32) a[i] = (double)(float)a[i], b[i] = (double)(float)b[i];
    }
    TG_SCOPE;
    tg_tensor *left = tg_to_dtype(tg_from(a, TG_SHAPE(AT_ONCE), TG_F64), dtype);
    tg_tensor *right = tg_to_dtype(tg_from(b, TG_SHAPE(AT_ONCE), TG_F64), dtype);
    if (!CHECK(tg_copy_out(tg_to_dtype(op(left, right), TG_F64), y, sizeof y) == TG_OK)) return;
    for (int i = 0; i < AT_ONCE; ++i) {
        const long double exact = wide((long double)a[i], (long double)b[i]);
        const double d = dtype == TG_F32 ? distance((float)y[i], (double)exact) : wide_distance(y[i], exact);
        if (!(d <= worst)) worst = isnan(d) ? HUGE_VAL : d;
        if (exact == 0) CHECK(!signbit(y[i]) == !signbit(exact));
    }
    printf("%-8s  %-10s in %s at most %.2f units in the last place\n", capability, name,
           dtype == TG_F32 ? "f32" : "f64", worst);
    CHECK(worst <= most);
}

TEST(errors_of_pow_and_atan2)
{
#ifdef __TINYC__
    printf("skipped: errors_of_pow_and_atan2, as the wide functions called by tcc give NaN for pow(0, 1)\n");
    return;
#endif
    errors_of_two("pow", tg_pow, powl, TG_F32, 1.5);
    errors_of_two("pow", tg_pow, powl, TG_F64, 1.5);
    errors_of_two("atan2", tg_atan2, atan2l, TG_F32, 2);
    errors_of_two("atan2", tg_atan2, atan2l, TG_F64, 2.5);
}

/* A result depends on its own x alone: not on an angle beside it that the C library computes, nor on how many elements
 * there are, nor on their place. */
static tg_tensor *logit(tg_tensor *x) { return tg_logit(x, 0.01); }
static void neighbours_of(tg_tensor *(*op)(tg_tensor *x), tg_dtype dtype)
{
    enum { N = 1000, PART = 37 };
    static double x[N], y[N], z[N];
    TG_SCOPE;
    for (int i = 0; i < N; ++i) x[i] = (i * 0.37 - 100) / (i % 3 ? 1 : 100);
    x[500] = 1;
    tg_tensor *plain = tg_to_dtype(tg_from(x, TG_SHAPE(N), TG_F64), dtype);
    CHECK(tg_copy_out(tg_to_dtype(op(plain), TG_F64), y, sizeof y) == TG_OK);
    x[500] = 1e9;
    tg_tensor *large = tg_to_dtype(tg_from(x, TG_SHAPE(N), TG_F64), dtype);
    CHECK(tg_copy_out(tg_to_dtype(op(large), TG_F64), z, sizeof z) == TG_OK);
    y[500] = z[500] = 0;
    CHECK(memcmp(y, z, sizeof y) == 0);
    tg_tensor *part = tg_clone(tg_slice(plain, 0, 7, 7 + PART, 1));
    CHECK(tg_copy_out(tg_to_dtype(op(part), TG_F64), z, PART * sizeof *z) == TG_OK);
    CHECK(memcmp(y + 7, z, PART * sizeof *z) == 0);
}

TEST(neighbours)
{
    for (int f = 0; f < FUNCTIONS; ++f) neighbours_of(functions[f].op, TG_F32), neighbours_of(functions[f].op, TG_F64);
    neighbours_of(tg_digamma, TG_F32), neighbours_of(tg_digamma, TG_F64);
    neighbours_of(logit, TG_F32), neighbours_of(logit, TG_F64);
}

static tg_tensor *clamp_one(tg_tensor *x) { return tg_clamp(x, -1, (double)INFINITY); }
static tg_tensor *leaky(tg_tensor *x) { return tg_leaky_relu(x, 0.1); }
static tg_tensor *elu_two(tg_tensor *x) { return tg_elu(x, 2); }
static tg_tensor *celu_two(tg_tensor *x) { return tg_celu(x, 2); }
static tg_tensor *softplus_two(tg_tensor *x) { return tg_softplus(x, 2, 20); }

static const struct {
    const char *name;
    tg_tensor *(*op)(tg_tensor *x);
    double largest; /* |x|; beyond it a part of the formula is infinite in f32 but not in f64 */
} gradients[] = {
    {"abs", tg_abs, HUGE_VAL},
    {"square", tg_square, 1e38},
    {"tanh", tg_tanh, HUGE_VAL},
    {"sigmoid", tg_sigmoid, HUGE_VAL},
    {"erf", tg_erf, HUGE_VAL},
    {"relu", tg_relu, HUGE_VAL},
    {"silu", tg_silu, HUGE_VAL},
    {"logsigmoid", tg_logsigmoid, HUGE_VAL},
    {"mish", tg_mish, HUGE_VAL},
    {"selu", tg_selu, HUGE_VAL},
    {"softsign", tg_softsign, 1e18},
    {"hardsigmoid", tg_hardsigmoid, HUGE_VAL},
    {"hardswish", tg_hardswish, HUGE_VAL},
    {"clamp", clamp_one, HUGE_VAL},
    {"leaky_relu", leaky, HUGE_VAL},
    {"elu", elu_two, HUGE_VAL},
    {"celu", celu_two, HUGE_VAL},
    {"softplus", softplus_two, 1e38},
    {"gelu", gelu_erf, HUGE_VAL},
    {"gelu tanh", gelu_tanh, 1e12},
};
enum { GRADIENTS = (int)(sizeof gradients / sizeof gradients[0]) };

/* The gradient of the sum of op at x [n], as n doubles. */
static bool gradient(tg_tensor *(*op)(tg_tensor *x), const float *x, int64_t n, tg_dtype dtype, double *g)
{
    TG_SCOPE;
    tg_tensor *leaf = tg_set_requires_grad(tg_to_dtype(tg_from(x, TG_SHAPE(n), TG_F32), dtype), true);
    if (tg_backward(tg_sum(op(leaf))) != TG_OK) return false;
    return tg_copy_out(tg_to_dtype(tg_grad(leaf), TG_F64), g, (size_t)n * sizeof *g) == TG_OK;
}

/* Their errors in units of 2^-23, or of that times the gradient where it is larger than 1: near a zero of the gradient
 * its digits are lost. */
TEST(errors_of_gradients)
{
    static float x[AT_ONCE];
    static double g[AT_ONCE], exact[AT_ONCE];
    const uint64_t step = getenv("SMALL") ? 1000003 : 49999;
    for (int f = 0; f < GRADIENTS; ++f) {
        double worst = 0;
        for (uint64_t bits = 0; bits < (uint64_t)1 << 32;) {
            int n = 0;
            for (; n < AT_ONCE && bits < (uint64_t)1 << 32; bits += step) {
                const uint32_t these = (uint32_t)bits;
                memcpy(&x[n], &these, sizeof these);
                if (!(fabs((double)x[n]) > gradients[f].largest)) n++;
            }
            if (!CHECK(gradient(gradients[f].op, x, n, TG_F32, g) && gradient(gradients[f].op, x, n, TG_F64, exact)))
                return;
            for (int i = 0; i < n; ++i) {
                const double size = fabs(exact[i]) > 1 ? fabs(exact[i]) : 1;
                const double d = fabs(g[i] - exact[i]) / size * (1 << 23);
                if (g[i] == exact[i] || (isnan(g[i]) && isnan(exact[i]))) continue;
                if (!(d <= worst)) worst = isnan(d) ? HUGE_VAL : d;
            }
        }
        printf("%-8s  gradient of %-11s at most %.2f\n", capability, gradients[f].name, worst);
        CHECK(worst <= 5);
    }
}

/* The number with these bits, of a type with so many bits of fraction and exponent.  Infinity has the value that would
 * follow the largest number, beside which the type rounds to infinity from half the way on. */
static double value_of(unsigned bits, int fraction, int exponent)
{
    const unsigned rest = bits & 0x7fff, size = rest >> fraction, digits = rest & ((1u << fraction) - 1);
    const int bias = (1 << (exponent - 1)) - 1;
    const double y = size ? ldexp((double)(digits + (1u << fraction)), (int)size - bias - fraction)
                          : ldexp((double)digits, 1 - bias - fraction);
    return bits & 0x8000 ? -y : y;
}

/* Numbers `wide` [n] of f32 and f64 become `narrow` [n] of the dtype, bit for bit. */
static void check_rounding(const double *wide, const uint16_t *narrow, int n, tg_dtype dtype)
{
    static uint16_t found[AT_ONCE];
    for (int by_f64 = 0; by_f64 < 2; ++by_f64) {
        TG_SCOPE;
        tg_tensor *x = tg_from(wide, TG_SHAPE(n), TG_F64);
        if (!by_f64) x = tg_to_dtype(x, TG_F32);
        if (!CHECK(tg_copy_out(tg_to_dtype(x, dtype), found, (size_t)n * sizeof *found) == TG_OK)) return;
        int wrong = 0;
        for (int i = 0; i < n; ++i) {
            if (found[i] == narrow[i]) continue;
            if (wrong++ == 0)
                printf("%s: %a of %s gives %04x, not %04x\n", capability, wide[i], by_f64 ? "f64" : "f32",
                       (unsigned)found[i], (unsigned)narrow[i]);
        }
        CHECK(wrong == 0);
    }
}

/* Every bf16 and f16 as f32 and as f64; and back from the numbers halfway between two neighbours, from the floats next
 * to those, and from the doubles next to some. */
TEST(halves)
{
    static const struct { tg_dtype dtype; int fraction, exponent; } types[] = {{TG_BF16, 7, 8}, {TG_F16, 10, 5}};
    static uint16_t bits[AT_ONCE], narrow[AT_ONCE];
    static double wide[AT_ONCE];
    static float single[AT_ONCE];
    for (int t = 0; t < 2; ++t) {
        const int fraction = types[t].fraction, exponent = types[t].exponent;
        const unsigned infinity = 0x7fffu >> fraction << fraction;
        TG_SCOPE;
        for (int i = 0; i < AT_ONCE; ++i) bits[i] = (uint16_t)i;
        tg_tensor *all = tg_from(bits, TG_SHAPE(AT_ONCE), types[t].dtype);
        CHECK(tg_copy_out(tg_to_dtype(all, TG_F32), single, sizeof single) == TG_OK);
        CHECK(tg_copy_out(tg_to_dtype(all, TG_F64), wide, sizeof wide) == TG_OK);
        int wrong = 0;
        for (int i = 0; i < AT_ONCE; ++i) {
            const unsigned rest = (unsigned)i & 0x7fff;
            const double number = value_of((unsigned)i, fraction, exponent);
            const double exact = rest < infinity ? number : number * HUGE_VAL;
            const bool nan = rest > infinity, same_sign = signbit(wide[i]) == signbit(exact);
            wrong += nan ? !isnan(single[i]) || !isnan(wide[i])
                         : (double)single[i] != exact || wide[i] != exact || !same_sign;
        }
        CHECK(wrong == 0);
        CHECK(tg_copy_out(tg_to_dtype(tg_to_dtype(all, TG_F32), types[t].dtype), narrow, sizeof narrow) == TG_OK);
        for (int i = 0; i < AT_ONCE; ++i) {
            const bool nan = ((unsigned)i & 0x7fff) > infinity;
            wrong += nan ? (narrow[i] & 0x7fff) <= infinity : narrow[i] != bits[i];
        }
        CHECK(wrong == 0);
        int n = 0;
        for (unsigned low = 0; low < 0x10000; ++low) {
            if ((low & 0x7fff) >= infinity) continue;
            const double half = (value_of(low, fraction, exponent) + value_of(low + 1, fraction, exponent)) / 2;
            const double out = half < 0 ? -HUGE_VAL : HUGE_VAL;
            const uint16_t up = (uint16_t)(low + 1), even = (uint16_t)(low & 1 ? low + 1 : low);
            wide[n] = half, narrow[n++] = even;
            if (fabs(half) < 3.4e38) wide[n] = (double)nextafterf((float)half, (float)out), narrow[n++] = up;
            wide[n] = (double)nextafterf((float)half, 0), narrow[n++] = (uint16_t)low;
            if (n > AT_ONCE - 8 || low == 0x8000 + infinity - 1) check_rounding(wide, narrow, n, types[t].dtype), n = 0;
        }
        for (int i = 0; i < 6; ++i) { /* f64 alone: too near to half for f32; the smallest, and one near 1 */
            const unsigned low = i < 3 ? 0x3c01 : 0x0001;
            const double half = (value_of(low, fraction, exponent) + value_of(low + 1, fraction, exponent)) / 2;
            for (int k = 0; k < 21; ++k) wide[k] = i % 3 == 0 ? half : nextafter(half, i % 3 == 1 ? 0 : 8);
            tg_tensor *x = tg_to_dtype(tg_from(wide, TG_SHAPE(21), TG_F64), types[t].dtype);
            CHECK(tg_copy_out(x, narrow, 21 * sizeof *narrow) == TG_OK);
            for (int k = 0; k < 21; ++k) CHECK(narrow[k] == (i % 3 == 1 ? low : low + 1));
        }
    }
}

/* The number next to x with so many digits, to even in the middle; beyond `most` infinity. */
static double rounded_whole(int64_t x, int digits, double most)
{
    const uint64_t size = x < 0 ? 0 - (uint64_t)x : (uint64_t)x;
    int shift = 0;
    while (size >> shift >> digits) ++shift;
    const uint64_t q = size >> shift, rest = size - (q << shift), half = shift ? (uint64_t)1 << (shift - 1) : 1;
    const double y = ldexp((double)(q + (rest > half || (rest == half && shift && (q & 1)))), shift);
    return (x < 0 ? -1 : 1) * (y > most ? HUGE_VAL : y);
}

/* i64 of all sizes as bf16 and f16, among them those in the middle of two and beside it; and few of them alone. */
TEST(whole_numbers_as_halves)
{
    static int64_t x[AT_ONCE];
    static double y[AT_ONCE];
    uint64_t state = 8;
    for (int i = 0; i < AT_ONCE; ++i) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        const uint64_t some = state >> (state >> 20 & 63);
        const int shift = (int)(state >> 40) % 52 + 1;
        x[i] = (int64_t)(i % 2 ? some : ((2 * (some & 1023) + 1) << shift) + (state >> 60) % 3 - 1);
        if (i % 3 == 0) x[i] = (int64_t)(0 - (uint64_t)x[i]);
    }
    x[0] = INT64_MAX, x[1] = INT64_MIN, x[2] = 0, x[3] = 65519, x[4] = 65520, x[5] = -65520;
    x[6] = ((int64_t)1 << 53) + 1;
    for (int k = 0; k < 4; ++k) {
        const int n = k < 2 ? AT_ONCE : 7, wanted = k % 2 ? 11 : 8;
        int wrong = 0;
        TG_SCOPE;
        tg_tensor *half = tg_to_dtype(tg_from(x, TG_SHAPE(n), TG_I64), k % 2 ? TG_F16 : TG_BF16);
        if (!CHECK(tg_copy_out(tg_to_dtype(half, TG_F64), y, (size_t)n * sizeof *y) == TG_OK)) return;
        for (int i = 0; i < n; ++i) wrong += y[i] != rounded_whole(x[i], wanted, k % 2 ? 65504 : HUGE_VAL);
        CHECK(wrong == 0);
    }
}

/* Numbers of each dtype as each other one: side by side, in vectors, as with gaps between them, one by one. */
TEST(conversions)
{
    static const tg_dtype all[] = {TG_F32, TG_F64, TG_BF16, TG_F16, TG_I32, TG_I64, TG_U8, TG_I8, TG_I16, TG_BOOL};
    enum { DTYPES = (int)(sizeof all / sizeof all[0]), N = 2 * 203 };
    static double number[N];
    static char dense[8 * N], one_by_one[8 * N];
    for (int i = 0; i < N; ++i) {
        const double digits = (double)(i * 40503 % 65536) * 65537 + 1;
        number[i] = (i & 2 ? -1 : 1) * ldexp(digits, i % 12 == 0 ? i / 2 - 260 : i % 67 - 40);
    }
    number[6] = -0.0, number[8] = HUGE_VAL, number[20] = -HUGE_VAL, number[32] = (double)NAN, number[34] = 16777217;
    for (int from = 0; from < DTYPES; ++from) {
        for (int to = 0; to < DTYPES; ++to) {
            TG_SCOPE;
            tg_tensor *x = tg_to_dtype(tg_from(number, TG_SHAPE(N), TG_F64), all[from]);
            tg_tensor *gaps = tg_slice(x, 0, 0, N, 2), *y = tg_to_dtype(tg_contiguous(gaps), all[to]);
            const size_t bytes = (size_t)tg_numel(y) * tg_dtype_size(all[to]);
            CHECK(tg_copy_out(y, dense, bytes) == TG_OK);
            CHECK(tg_copy_out(tg_to_dtype(gaps, all[to]), one_by_one, bytes) == TG_OK);
            if (!CHECK(memcmp(dense, one_by_one, bytes) == 0))
                printf("%s: %s to %s\n", capability, tg_dtype_name(all[from]), tg_dtype_name(all[to]));
        }
    }
}

/* copysign of bf16 and f16 by their bits: operands side by side, with strides, expanded, of another dtype, and none. */
TEST(signs_of_halves)
{
    static uint16_t a[AT_ONCE], b[AT_ONCE], y[AT_ONCE];
    for (int i = 0; i < AT_ONCE; ++i) a[i] = (uint16_t)i, b[i] = (uint16_t)((unsigned)i * 40503 >> 3);
    for (int k = 0; k < 6; ++k) {
        const tg_dtype dtype = k % 2 ? TG_F16 : TG_BF16;
        int wrong = 0;
        TG_SCOPE;
        tg_tensor *x = tg_from(a, TG_SHAPE(256, 256), dtype), *of = tg_from(b, TG_SHAPE(256, 256), dtype);
        if (k / 2 == 1) x = tg_t(x), of = tg_expand(tg_slice(of, 1, 7, 8, 1), TG_SHAPE(256, 256));
        if (k / 2 == 2) of = tg_to_dtype(of, TG_F32); /* the result is f32 */
        tg_tensor *z = tg_to_dtype(tg_copysign(x, of), dtype);
        if (!CHECK(tg_copy_out(z, y, sizeof y) == TG_OK)) return;
        for (int i = 0; i < AT_ONCE; ++i) {
            const uint16_t from = a[k / 2 == 1 ? i % 256 * 256 + i / 256 : i];
            const uint16_t sign = b[k / 2 == 1 ? i / 256 * 256 + 7 : i];
            const bool nan = (from & 0x7fff) > (k % 2 ? 0x7c00 : 0x7f80);
            wrong += !nan && y[i] != ((from & 0x7fff) | (sign & 0x8000));
        }
        CHECK(wrong == 0);
        CHECK(tg_numel(tg_copysign(tg_slice(x, 0, 3, 3, 1), tg_slice(of, 0, 3, 3, 1))) == 0);
        CHECK(tg_item(tg_copysign(tg_to_dtype(tg_scalar(2.5), dtype), tg_to_dtype(tg_scalar(-0.0), dtype))) == -2.5);
    }
}

/* Whether the elements of a and b have the same bytes; the dtype and the number of elements are those of both. */
static bool same_bytes(tg_tensor *a, tg_tensor *b)
{
    static char bytes[2][8 * AT_ONCE];
    const size_t n = (size_t)tg_numel(a) * tg_dtype_size(tg_dtype_of(a));
    return tg_copy_out(a, bytes[0], n) == TG_OK && tg_copy_out(b, bytes[1], n) == TG_OK &&
           memcmp(bytes[0], bytes[1], n) == 0;
}

/* Rows of three bf16 or f16, which are converted one by one, as among others. */
TEST(few_halves)
{
    static uint16_t bits[AT_ONCE];
    for (int i = 0; i < AT_ONCE; ++i) bits[i] = (uint16_t)i;
    for (int k = 0; k < 2; ++k) {
        TG_SCOPE;
        tg_tensor *all = tg_from(bits, TG_SHAPE(AT_ONCE / 4, 4), k ? TG_F16 : TG_BF16);
        tg_tensor *single = tg_to_dtype(all, TG_F32);
        tg_tensor *few = tg_to_dtype(tg_narrow(all, 1, 1, 3), TG_F32), *again = tg_to_dtype(single, tg_dtype_of(all));
        CHECK(same_bytes(few, tg_narrow(single, 1, 1, 3)));
        CHECK(same_bytes(tg_to_dtype(few, tg_dtype_of(all)), tg_narrow(again, 1, 1, 3)));
    }
}

/* sign of zeros, which have none, as NaN; of infinities; and of subnormal numbers of f32. */
TEST(signs)
{
    const double x[] = {0, -0.0, (double)NAN, HUGE_VAL, -HUGE_VAL, 1e-39, -1e-39, 3, -3, 0.5};
    static const double y[] = {0, 0, 0, 1, -1, 1, -1, 1, -1, 1};
    for (int k = 0; k < 2; ++k) {
        TG_SCOPE;
        const tg_dtype dtype = k ? TG_F64 : TG_F32;
        tg_tensor *some = tg_repeat(tg_from(x, TG_SHAPE(10), TG_F64), TG_SHAPE(7));
        tg_tensor *wanted = tg_repeat(tg_from(y, TG_SHAPE(10), TG_F64), TG_SHAPE(7));
        CHECK(same_bytes(tg_sign(tg_to_dtype(some, dtype)), tg_to_dtype(wanted, dtype)));
    }
}

/* An op of the tests of halves; those of one input leave b alone. */
#define HALVES_OP(name, call) \
    static tg_tensor *name##_of_halves(tg_tensor *a, tg_tensor *b) { return (void)b, call; }
#define HALVES_OPS(OP)                                                                                        \
    OP(add, tg_add(a, b)) OP(sub, tg_sub(a, b)) OP(mul, tg_mul(a, b)) OP(div, tg_div(a, b))                   \
    OP(add_alpha, tg_add_alpha(a, b, 3)) OP(addcmul, tg_addcmul(a, b, a, 3)) OP(addcdiv, tg_addcdiv(b, a, b, 3)) \
    OP(square, tg_square(a)) OP(reciprocal, tg_reciprocal(a)) OP(power, tg_pow_scalar(a, 2))                  \
    OP(add_scalar, tg_add_scalar(a, -0.0)) OP(sub_scalar, tg_sub_scalar(a, 0.3))                              \
    OP(rsub_scalar, tg_rsub_scalar(a, 7)) OP(mul_scalar, tg_mul_scalar(a, -0.3)) OP(div_scalar, tg_div_scalar(a, 0.7))
HALVES_OPS(HALVES_OP)

/* Whether the op of a and b is what it is of them as f32, rounded once; any NaN is as good as another. */
static bool rounds_once(tg_tensor *(*op)(tg_tensor *a, tg_tensor *b), tg_tensor *a, tg_tensor *b)
{
    static uint16_t y[AT_ONCE], wanted[AT_ONCE];
    const tg_dtype dtype = tg_dtype_of(a);
    const unsigned infinity = dtype == TG_F16 ? 0x7c00 : 0x7f80;
    tg_tensor *single = op(tg_to_dtype(a, TG_F32), tg_to_dtype(b, TG_F32)), *half = op(a, b);
    const size_t n = (size_t)tg_numel(a);
    int wrong = tg_copy_out(half, y, n * sizeof *y) != TG_OK;
    wrong += tg_copy_out(tg_to_dtype(single, dtype), wanted, n * sizeof *y) != TG_OK;
    for (size_t i = 0; i < n; ++i) {
        const bool nan = (wanted[i] & 0x7fff) > infinity;
        wrong += nan ? (y[i] & 0x7fff) <= infinity : y[i] != wanted[i];
    }
    return wrong == 0;
}

/* Arithmetic of bf16 and f16: of all numbers, side by side, with strides and expanded, and with gaps; then of rows of
   any length, in place, which leaves what is behind them as it was. */
TEST(arithmetic_of_halves)
{
#define HALVES_ROW(name, call) {#name, name##_of_halves},
    static const struct { const char *name; tg_tensor *(*op)(tg_tensor *a, tg_tensor *b); } ops[] = {
        HALVES_OPS(HALVES_ROW)};
    static uint16_t a[AT_ONCE], b[AT_ONCE];
    for (int i = 0; i < AT_ONCE; ++i) a[i] = (uint16_t)i, b[i] = (uint16_t)((unsigned)i * 40503 >> 3);
    for (size_t k = 0; k < 6 * sizeof ops / sizeof *ops; ++k) {
        const int layout = (int)(k % 3);
        TG_SCOPE;
        tg_tensor *x = tg_from(a, TG_SHAPE(256, 256), k / 3 % 2 ? TG_F16 : TG_BF16);
        tg_tensor *of = tg_from(b, TG_SHAPE(256, 256), tg_dtype_of(x));
        if (layout == 1) x = tg_t(x), of = tg_expand(tg_slice(of, 1, 7, 8, 1), TG_SHAPE(256, 256));
        if (layout == 2) x = tg_narrow(x, 1, 3, 77), of = tg_narrow(of, 1, 0, 77);
        if (!CHECK(rounds_once(ops[k / 6].op, x, of)))
            printf("%s: %s of %s, layout %d\n", capability, ops[k / 6].name, tg_dtype_name(tg_dtype_of(x)), layout);
    }
    for (int64_t n = 0; n < 100; ++n) {
        TG_SCOPE;
        tg_tensor *all = tg_from(a + 0x3c00, TG_SHAPE(200), n % 2 ? TG_F16 : TG_BF16), *x = tg_slice(all, 0, 0, n, 1);
        tg_tensor *of = tg_from(a + 0x4000 + n, TG_SHAPE(n), tg_dtype_of(x));
        tg_tensor *behind = tg_clone(tg_slice(all, 0, n, 200, 1));
        tg_tensor *product = tg_mul(x, of);
        CHECK(rounds_once(tg_mul, x, of));
        tg_mul_(x, of);
        CHECK(tg_allclose(x, product, 0, 0));
        CHECK(tg_equal(tg_slice(all, 0, n, 200, 1), behind));
    }
}

/* i0 and its gradient i1, on both sides of 10, where the formulas change, and where exp(x) is infinite already. */
TEST(bessel_functions)
{
    static const double x[] = {0, -0.5, 9.75, 10.5, -40, 700.5, 713.75};
    static const double i0[] = {1, 1.0634833707413236, 2221.6170531057024, 4527.441714638888, 14894774793419900.,
                                2.5209725792992757e+302, 1.4187294227531315e+308};
    static const double i1[] = {0, -0.25789430539089631, 2104.4046883684332, 4306.1348750962747, -14707396163259353.,
                                2.5191725267858915e+302, 1.417735218165743e+308};
    for (int i = 0; i < 2; ++i) {
        TG_SCOPE;
        const tg_dtype dtype = i ? TG_F64 : TG_F32;
        const int64_t n = i ? 7 : 5;
        tg_tensor *v = tg_to_dtype(tg_repeat(tg_from(x, TG_SHAPE(n), TG_F64), TG_SHAPE(11)), dtype);
        tg_set_requires_grad(v, true);
        tg_tensor *y = tg_i0(v);
        CHECK(tg_backward(tg_sum(y)) == TG_OK);
        tg_tensor *of_0 = tg_repeat(tg_from(i0, TG_SHAPE(n), TG_F64), TG_SHAPE(11));
        tg_tensor *of_1 = tg_repeat(tg_from(i1, TG_SHAPE(n), TG_F64), TG_SHAPE(11));
        CHECK(tg_allclose(tg_to_dtype(y, TG_F64), of_0, i ? 1e-15 : 4e-7, 0));
        CHECK(tg_allclose(tg_to_dtype(tg_grad(v), TG_F64), of_1, i ? 1e-15 : 4e-7, 0));
    }
}

int main(int argc, char **argv)
{
    static const char *const wishes[] = {"portable", "avx2", "avx512", ""};
    harness_begin(argc, argv);
    const int sets = harness_skips_plain("halves, errors and errors_of_gradients for each instruction set") ? 0 : 4;
    for (int k = 0; k < sets; ++k) {
#if defined(__unix__) || defined(__APPLE__)
        setenv("TG_SIMD", wishes[k], 1);
        tg_shutdown(); /* the thread's next call asks again */
#endif
        capability = tg_cpu_capability();
        CHECK(strcmp(capability, "portable") == 0 || k > 0);
        if (*wishes[k] && strcmp(capability, wishes[k]) != 0)
            printf("skipped: %s: not on this processor\n", wishes[k]);
        else if (*wishes[k]) {
            RUN(halves);
            RUN(whole_numbers_as_halves);
            RUN(conversions);
            RUN(signs_of_halves);
            RUN(arithmetic_of_halves);
            RUN(few_halves);
            RUN(signs);
            RUN(errors);
            RUN(errors_f64);
            RUN(gamma_functions);
            RUN(sums_of_powers);
            RUN(next_numbers);
            RUN(errors_of_pow_and_atan2);
            RUN(neighbours);
            RUN(pairs);
            RUN(large_angles);
            RUN(gamma_of_negative_numbers);
            RUN(square_roots);
    RUN(vanishing_gelu);
            RUN(quotients);
            RUN(hypotenuses);
            RUN(errors_of_gradients);
            RUN(bessel_functions);
        }
    }
#if defined(__unix__) || defined(__APPLE__)
    for (int plain = 0; plain < 2; ++plain) {
        setenv("TG_PLAIN", plain ? "1" : "0", 1), tg_shutdown();
        CHECK((strcmp(tg_cpu_capability(), "plain") == 0) == (plain || left_out));
    }
#endif
    return harness_end();
}
