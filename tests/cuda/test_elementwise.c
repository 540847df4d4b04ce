/* Kernels of tensorgrad_cuda.cu that go over elements: sin, cos and tan against the C library; those for elements that
   lie side by side, and the optimizers, against the CPU; products in f32 and TF32.  Built by
   `make sim MAIN=tests/cuda/test_elementwise.c OUT=prog` for the simulator; it runs on GPUs, too. */
#include "tensorgrad.h"
#include "../harness.h"
#ifdef CUDASIM
#include "cudasim_test.h"
#define LAUNCHES() (long)cudasim_total(CUDASIM_KERNELS)
enum { COUNTED = 1 };
#else
#define LAUNCHES() 0
enum { COUNTED = 0 };
#endif

/* ---- sin, cos, tan ---- */

/* The error of a float or double value, in units in the last place (ulp). */
static double off_by(double value, long double wanted, bool single)
{
    const int digits = single ? 24 : 53, least = single ? -149 : -1074;
    int exponent;
    if (isnan(value) || isnan((double)wanted)) return isnan(value) && isnan((double)wanted) ? 0 : HUGE_VAL;
    frexpl(wanted, &exponent);
    exponent = exponent - digits > least ? exponent - digits : least;
    return (double)fabsl(((long double)value - wanted) / ldexpl(1, exponent));
}

/* Fills x [room] with angles: special, small and large ones, those next to multiples of pi / 2 (the last one of `some`
   is the double that is nearest to a multiple), and random ones of every exponent that the dtype has. */
static void angles(double *x, int64_t room, bool single)
{
    static const double some[] = {0.0,
                                  -0.0,
                                  HUGE_VAL,
                                  -HUGE_VAL,
                                  NAN,
                                  5e-324,
                                  -2.2250738585072014e-308,
                                  1e-45,
                                  1e-38,
                                  0.25,
                                  0.5,
                                  1,
                                  2,
                                  -0.7853981633974483,
                                  3,
                                  1e5,
                                  -1e5,
                                  105615,
                                  1e15,
                                  1e22,
                                  0.7853981633974484,
                                  -3e38,
                                  1e300,
                                  1e30,
                                  10,
                                  1e-9,
                                  33,
                                  1.7976931348623157e308,
                                  1e-300,
                                  5.319372648326541e255};
    uint64_t bits = 1;
    int64_t n = 0, k;
    int exponent;
    for (k = 0; k < (int64_t)(sizeof some / sizeof *some); ++k) x[n++] = some[k];
    for (k = 1; k < 1000000000000 && n + 1 < room; k += k < 500 ? 1 : k / 99) {
        const double near = (double)((long double)k * 1.57079632679489661923132169163975144L);
        x[n++] = -near;
        x[n++] = nextafter(near, HUGE_VAL);
    }
    while (n < room) {
        double y;
        bits = bits * 6364136223846793005u + 1442695040888963407u;
        memcpy(&y, &bits, sizeof y);
        if (y - y != 0) continue;
        y = frexp(y, &exponent);
        x[n++] = ldexp(y, single ? exponent % 139 - 10 : exponent);
    }
    for (k = 0; single && k < n; ++k) x[k] = (double)(float)x[k];
}

static void trigonometry(tg_dtype dtype, bool strided)
{
    enum { N = 10000 };
    static double x[N];
    static const char *const names[3] = {"sin", "cos", "tan"};
    const bool single = dtype == TG_F32;
    tg_tensor *t, *y[3];
    int k;
    angles(x, N, single);
    t = tg_to(tg_to_dtype(tg_from_f64(x, TG_SHAPE(N)), dtype), TG_CUDA(0));
    if (strided) t = tg_slice(tg_repeat(tg_unsqueeze(t, 1), TG_SHAPE(1, 2)), 1, 0, 1, 1);
    y[0] = tg_sin(t), y[1] = tg_cos(t), y[2] = tg_tan(t);
    for (k = 0; k < 3; ++k) {
        double worst = 0, at = 0;
        tg_tensor *here = tg_to_dtype(tg_cpu(tg_contiguous(y[k])), TG_F64);
        const double *value = tg_data_f64(here);
        int64_t i;
        for (i = 0; value && i < N; ++i) {
            const long double exact = k == 0 ? sinl(x[i]) : k == 1 ? cosl(x[i]) : tanl(x[i]);
            const double off = off_by(value[i], exact, single);
            if (!(off <= worst)) worst = off, at = x[i];
        }
        harness.sample = names[k];
        if (!CHECK(value && worst <= (k < 2 ? 1 : 2))) printf("    %s(%a) is off by %.2f ulp\n", names[k], at, worst);
        CHECK(value && value[1] == (k == 1) && (1 / value[1] < 0) == (k != 1)); /* sin(-0) is -0 */
    }
    harness.sample = NULL;
}

TEST(trigonometry_in_f64) { trigonometry(TG_F64, false); }
TEST(trigonometry_in_f64_strided) { trigonometry(TG_F64, true); }
TEST(trigonometry_in_f32) { trigonometry(TG_F32, false); }
TEST(trigonometry_in_f32_strided) { trigonometry(TG_F32, true); }

/* ---- contiguous operands: packs of 16 bytes and the elements after them, aligned or not ---- */

static const int64_t sizes[] = {1, 3, 4, 5, 1023, 4097};
enum { SIZES = sizeof sizes / sizeof *sizes, DTYPES = TG_BOOL + 1, MARGIN = 16 };

/* A tensor of MARGIN elements more than are used, and the part that is used, which begins at `start`. */
typedef struct {
    tg_tensor *whole, *part;
} strip;

static strip strip_of(tg_tensor *values, tg_dtype dtype, tg_device device, int64_t start)
{
    strip s;
    const int64_t n = tg_numel(values) - MARGIN;
    s.whole = tg_to_ex(values, device, dtype, TG_COPY);
    s.part = tg_narrow(s.whole, 0, start, n);
    return s;
}

/* Calls op number k with strips; NULL after the last one.  From 8 on the ops write in place and return the whole
   tensor: the elements around the part must not change. */
static tg_tensor *side_by_side(int k, const strip *s, const char **name)
{
    tg_tensor *a = s[0].part, *b = s[1].part, *c = s[2].part;
    const bool floating = tg_dtype_of(a) <= TG_F16, real = tg_dtype_of(a) != TG_BOOL;
#define OP(number, takes, call) \
    case number: *name = #call; return takes ? call : a
    switch (k) {
        OP(0, true, tg_add(a, b));
        OP(1, true, tg_lt(a, b));
        OP(2, real, tg_square(a));
        OP(3, real, tg_mul_scalar(a, 3));
        OP(4, floating, tg_lerp(a, b, c));
        OP(5, floating, tg_floor(a));
        OP(6, real, tg_maximum(a, b));
        OP(7, true, tg_logical_not(a));
        OP(8, true, (tg_mul_(a, b), s[0].whole));
        OP(9, true, (tg_fill_(a, 7), s[0].whole));
        OP(10, true, (tg_fill_(a, 0), s[0].whole));
        OP(11, true, (tg_copy_(a, s[3].part), s[0].whole));
    }
#undef OP
    return NULL;
}

static void both_sides(tg_dtype dtype, int64_t n, int64_t start)
{
    const tg_device device[2] = {TG_CPU, TG_CUDA(0)};
    strip s[2][4];
    int k, i, side;
    for (i = 0; i < 4; ++i) {
        tg_tensor *values = tg_mul_scalar(tg_randn_on(TG_SHAPE(n + MARGIN), TG_F64, TG_CPU), i == 3 ? 300 : 4);
        for (side = 0; side < 2; ++side)
            s[side][i] = strip_of(values, i < 3 ? dtype : TG_F64, device[side], i ? start : 0);
    }
    for (k = 0;; ++k) {
        const char *name = "";
        tg_tensor *y = side_by_side(k, s[0], &name), *z = side_by_side(k, s[1], &name);
        if (!y && tg_ok()) return;
        harness.sample = name;
        if (!CHECK(y && z && tg_dtype_of(y) == tg_dtype_of(z) && tg_equal(y, tg_cpu(z))))
            printf("    %s, %d elements from %d\n", tg_dtype_name(dtype), (int)n, (int)start);
    }
}

TEST(elements_side_by_side)
{
    int dtype, size, start;
    for (dtype = 0; dtype < DTYPES; ++dtype) {
        for (size = 0; size < SIZES; ++size) {
            for (start = 0; start < 2; ++start) {
                TG_SCOPE;
                both_sides((tg_dtype)dtype, sizes[size], start);
            }
        }
    }
    harness.sample = NULL;
}

TEST(conversions_side_by_side)
{
    int from, to, start;
    for (from = 0; from < DTYPES; ++from) {
        for (start = 0; start < 2; ++start) {
            TG_SCOPE;
            tg_tensor *values = tg_mul_scalar(tg_randn(TG_SHAPE(1023 + MARGIN)), 1e3);
            const strip here = strip_of(values, (tg_dtype)from, TG_CPU, start);
            const strip there = strip_of(values, (tg_dtype)from, TG_CUDA(0), start);
            for (to = 0; to < DTYPES; ++to) {
                tg_tensor *y = tg_to_dtype(here.part, (tg_dtype)to), *z = tg_to_dtype(there.part, (tg_dtype)to);
                if (!CHECK(tg_dtype_of(z) == (tg_dtype)to && tg_equal(y, tg_cpu(z))))
                    printf("    %s to %s\n", tg_dtype_name((tg_dtype)from), tg_dtype_name((tg_dtype)to));
            }
        }
    }
}

/* ---- f32 and TF32 ---- */

TEST(matmul_precision)
{
    TG_SCOPE;
    tg_tensor *a = tg_randn(TG_SHAPE(8, 40)), *b = tg_randn(TG_SHAPE(40, 8)), *y = tg_matmul(a, b), *exact, *rounded;
    tg_tensor *there[2] = {tg_cuda(a), tg_cuda(b)};
    CHECK(tg_matmul_precision() == TG_PRECISION_F32);
    exact = tg_cpu(tg_matmul(there[0], there[1]));
    CHECK(tg_set_matmul_precision(TG_PRECISION_TF32) == TG_OK && tg_matmul_precision() == TG_PRECISION_TF32);
    rounded = tg_cpu(tg_matmul(there[0], there[1]));
    CHECK(tg_equal(tg_matmul(a, b), y)); /* products on the CPU do not change */
    CHECK(tg_allclose(tg_cpu(tg_matmul(tg_to_dtype(there[0], TG_F64), tg_to_dtype(there[1], TG_F64))),
                      tg_matmul(tg_to_dtype(a, TG_F64), tg_to_dtype(b, TG_F64)), 1e-13, 1e-13));
    CHECK(tg_set_matmul_precision(TG_PRECISION_F32) == TG_OK);
    CHECK(tg_allclose(exact, y, 1e-5, 1e-5));
    CHECK(tg_allclose(rounded, y, 1e-2, 1e-2) && (!COUNTED || !tg_allclose(rounded, y, 1e-5, 1e-5)));
    CHECK(tg_equal(tg_cpu(tg_matmul(there[0], there[1])), exact));
}

/* ---- optimizers ---- */

enum { PARAMS = 30, KINDS = 5 };

static tg_optim *optimizer(int kind, tg_tensor *const *params, int n)
{
    tg_optim *(*const make[KINDS])(tg_tensor *const *, int, double) = {tg_sgd, tg_adam, tg_adamw, tg_rmsprop,
                                                                       tg_adagrad};
    tg_optim *o = make[kind](params, n, 0.1);
    if (kind == 0 || kind == 3) o->momentum = 0.9;
    if (kind == 1) o->amsgrad = true;
    if (kind == 3) o->centered = true;
    o->weight_decay = 0.01;
    return o;
}

/* Parameters of different sizes, one of them empty, some of them not aligned. */
static void parameters(tg_tensor **params, int n, tg_dtype dtype)
{
    int i;
    tg_seed(5);
    for (i = 0; i < n; ++i) {
        tg_tensor *t = tg_randn_on(TG_SHAPE(i == 7 ? 5000 : i == 8 ? 0 : i + 2), dtype, TG_CUDA(0));
        params[i] = tg_param(tg_narrow(t, 0, i % 3 == 1, tg_numel(t) - (i % 3 == 1)));
    }
}

static void gradients(tg_tensor *const *params, int n)
{
    int i;
    for (i = 0; i < n; ++i) tg_set_grad(params[i], tg_randn_like(params[i]));
}

static bool step(tg_optim *o, long *launches)
{
    bool ok;
    tg_synchronize(TG_CUDA(0));
    *launches = LAUNCHES();
    ok = tg_step(o) == TG_OK && tg_synchronize(TG_CUDA(0)) == TG_OK;
    *launches = LAUNCHES() - *launches;
    return ok;
}

/* All parameters in one optimizer give the same bits as each one in an optimizer of its own. */
static void together_and_alone(int kind, tg_dtype dtype)
{
    TG_SCOPE;
    tg_tensor *here[PARAMS], *alone[PARAMS];
    tg_optim *all, *one[PARAMS];
    long launches;
    int i, k;
    parameters(here, PARAMS, dtype);
    parameters(alone, PARAMS, dtype);
    all = optimizer(kind, here, PARAMS);
    for (i = 0; i < PARAMS; ++i) one[i] = optimizer(kind, alone + i, 1);
    for (k = 0; k < 3; ++k) {
        tg_seed(8 + (uint64_t)k);
        gradients(here, PARAMS);
        tg_seed(8 + (uint64_t)k);
        gradients(alone, PARAMS);
        CHECK(step(all, &launches));
        if (k > 0 && COUNTED) CHECK(launches == 1); /* the first step also creates the state */
        for (i = 0; i < PARAMS; ++i) CHECK(tg_step(one[i]) == TG_OK && tg_equal(here[i], alone[i]));
    }
    tg_optim_free(all);
    for (i = 0; i < PARAMS; ++i) {
        tg_optim_free(one[i]);
        tg_release(here[i]);
        tg_release(alone[i]);
    }
}

TEST(optimizers_in_one_launch)
{
    static const tg_dtype dtypes[] = {TG_F32, TG_F64, TG_BF16, TG_F16};
    int kind, k;
    for (kind = 0; kind < KINDS; ++kind) {
        for (k = 0; k < 4; ++k) together_and_alone(kind, dtypes[k]);
    }
}

/* Against the CPU: more parameters than one launch takes, of two dtypes and on both devices; one of them listed twice,
 * which is moved twice; some have no gradient at first, and have other numbers from then on. */
TEST(optimizers_with_a_mixture_of_parameters)
{
    enum { N = 100 };
    tg_tensor *p[2][N + 1];
    int side, i, k;
    for (side = 0; side < 2; ++side) {
        TG_SCOPE;
        tg_optim *o;
        tg_seed(3);
        for (i = 0; i < N; ++i) {
            tg_tensor *t = tg_randn_on(TG_SHAPE(3, 1 + i % 5), i % 4 ? TG_F32 : TG_F64, TG_CPU);
            p[side][i] = tg_param(side && i % 10 ? tg_cuda(t) : i % 10 ? t : tg_t(t));
        }
        p[side][N] = p[side][N - 1];
        o = tg_adamw(p[side], N + 1, 0.05);
        for (k = 0; k < 3; ++k) {
            tg_seed(20 + (uint64_t)k);
            for (i = 0; i < N; ++i) {
                tg_tensor *g = tg_randn_on(tg_shape_of(p[side][i]), tg_dtype_of(p[side][i]), TG_CPU);
                if (k > 0 || i % 7) tg_set_grad(p[side][i], tg_to(g, tg_device_of(p[side][i])));
            }
            CHECK(tg_step(o) == TG_OK);
        }
        tg_optim_free(o);
    }
    for (i = 0; i < N; ++i) {
        CHECK(tg_allclose(p[0][i], tg_cpu(p[1][i]), 1e-6, 1e-6));
        for (side = 0; side < 2; ++side) tg_release(p[side][i]);
    }
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    if (!tg_cuda_is_available()) {
        printf("no CUDA device: 0 of the checks ran\n1 passed, 0 failed\n");
        return 0;
    }
    RUN(trigonometry_in_f64);
    RUN(trigonometry_in_f64_strided);
    RUN(trigonometry_in_f32);
    RUN(trigonometry_in_f32_strided);
    RUN(elements_side_by_side);
    RUN(conversions_side_by_side);
    RUN(matmul_precision);
    RUN(optimizers_in_one_launch);
    RUN(optimizers_with_a_mixture_of_parameters);
    tg_shutdown();
    return harness_end();
}
