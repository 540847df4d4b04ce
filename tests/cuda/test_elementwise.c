/* Kernels of tensorgrad_cuda.cu that go over elements: sin, cos and tan against the C library; those for elements that
   lie side by side, for rows, and random numbers, against the plain backend of the CPU; the optimizers; products in f32
   and TF32.  Built by `make sim MAIN=tests/cuda/test_elementwise.c OUT=prog` for the simulator; it runs on GPUs, too. */
#include "tensorgrad.h"
#include "counting.h"
#include "../inside.h"

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
        /* A GPU may round a product and a sum once, which no op of the list contains but lerp. */
        const double part = strcmp(name, "tg_lerp(a, b, c)") ? 0 : dtype == TG_F64 ? 1e-14 : dtype == TG_F32 ? 1e-5 : 0.01;
        if (!CHECK(y && z && tg_dtype_of(y) == tg_dtype_of(z) && tg_allclose(y, tg_cpu(z), part, part)))
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

/* Ties to even, numbers that become infinite or denormal, infinities: the bits of the CPU; NaN stays NaN. */
TEST(rounding_to_16_bits)
{
    static const float special[] = {1.00390625f, 1.01171875f, -1.00390625f, 1.00390637f, 3.4e38f, 65520.0f,
                                    65519.0f, 1e-40f, 5.9604645e-8f, 2.9802322e-8f, 0.0f, -0.0f,
                                    (float)INFINITY, -(float)INFINITY, (float)NAN, 1.00048828f};
    const int64_t n = (int64_t)(sizeof special / sizeof *special);
    for (int k = 0; k < 2; ++k) {
        TG_SCOPE;
        const tg_dtype dtype = k ? TG_F16 : TG_BF16;
        tg_tensor *x = tg_from_f32(special, TG_SHAPE(n)), *here = tg_to_dtype(x, dtype);
        tg_tensor *there = tg_cpu(tg_to_dtype(tg_cuda(x), dtype));
        for (int64_t i = 0; i < n; ++i) {
            const double a = tg_get(here, TG_SHAPE(i)), b = tg_get(there, TG_SHAPE(i));
            CHECK(a == b ? signbit(a) == signbit(b) : a != a && b != b);
        }
    }
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

/* ---- rows: operands that are broadcast, or views ---- */

enum { ROWS = 6, LAYOUTS = 9 };

/* [2, ROWS, columns], or what broadcasts to it, in one of LAYOUTS; `values` has enough elements. */
static tg_tensor *laid_out(tg_tensor *values, int layout, int64_t columns)
{
    const int64_t more = layout == 5 ? (columns + 15) / 16 * 16 + 16 : columns + 3;
    tg_tensor *all = tg_narrow(values, 0, 0, 2 * ROWS * columns), *wide = tg_narrow(values, 0, 0, 2 * ROWS * more);
    all = tg_view(all, TG_SHAPE(2, ROWS, columns));
    switch (layout) {
    case 0: return all;
    case 1: return tg_narrow(tg_select(all, 0, 0), 0, 1, 1);                          /* a row */
    case 2: return tg_narrow(tg_select(all, 0, 1), 1, 0, 1);                          /* a column */
    case 3: return tg_view(tg_narrow(values, 0, 3, 1), TG_SHAPE(1, 1));               /* a scalar */
    case 4: return tg_narrow(tg_view(wide, TG_SHAPE(2, ROWS, more)), 2, 1, columns);  /* not aligned */
    case 5: return tg_narrow(tg_view(wide, TG_SHAPE(2, ROWS, more)), 2, 16, columns); /* aligned */
    case 6: return tg_transpose(tg_view(all, TG_SHAPE(2, columns, ROWS)), 1, 2);
    case 7:
        return tg_slice(tg_view(tg_narrow(values, 0, 0, 4 * ROWS * columns), TG_SHAPE(2, ROWS, 2 * columns)), 2, 0,
                        INT64_MAX, 2);       /* every second column */
    default: return tg_narrow(all, 1, 2, 1); /* a row for each plane */
    }
}

/* Op number k of operands in layouts; NULL after the last one. */
static tg_tensor *of_rows(int k, tg_tensor *const *in, tg_tensor *mask, const char **name)
{
    const bool floating = tg_dtype_of(in[0]) <= TG_F16;
#define OP(number, takes, call) \
    case number: *name = #call; return takes ? call : in[0]
    switch (k) {
        OP(0, true, tg_add(in[0], in[1]));
        OP(1, true, tg_lt(in[0], in[1]));
        OP(2, true, tg_where(mask, in[0], in[1]));
        OP(3, true, tg_masked_fill(in[0], mask, 2));
        OP(4, floating, tg_maximum(in[0], in[1]));
        OP(5, floating, tg_floor(in[0]));
        OP(6, true, tg_copy_(tg_clone(in[0]), in[0]));
        OP(7, true, tg_to_dtype(in[0], TG_F32));
        OP(8, floating, tg_to_dtype(in[1], TG_BF16));
        OP(9, true, tg_contiguous(tg_transpose(in[0], -1, -2)));
    }
#undef OP
    return NULL;
}

static void rows_of(tg_dtype dtype, int64_t columns, int layout)
{
    tg_tensor *values[2], *mask[2], *whole[2];
    int other, k, side;
    values[0] = tg_to_dtype(tg_mul_scalar(tg_randn_on(TG_SHAPE(8 * ROWS * (columns + 32)), TG_F32, TG_CPU), 4), dtype);
    values[1] = tg_cuda(values[0]);
    mask[0] = tg_gt_scalar(tg_randn_on(tg_shape_of(values[0]), TG_F32, TG_CPU), 0);
    mask[1] = tg_cuda(mask[0]);
    for (other = 0; other < LAYOUTS; ++other) {
        TG_SCOPE;
        for (k = 0;; ++k) {
            const char *name = "";
            tg_tensor *y[2] = {NULL, NULL};
            for (side = 0; side < 2; ++side) {
                tg_tensor *in[2];
                in[0] = laid_out(values[side], layout, columns);
                in[1] = laid_out(tg_flip(values[side], TG_DIMS(0)), other, columns);
                y[side] = of_rows(k, in, laid_out(mask[side], (layout + other) % LAYOUTS, columns), &name);
            }
            if (!y[0] && tg_ok()) break;
            harness.sample = name;
            if (!CHECK(y[0] && y[1] && tg_equal(y[0], tg_cpu(y[1]))))
                printf("    %s, layouts %d and %d, %d columns\n", tg_dtype_name(dtype), layout, other, (int)columns);
        }
    }
    for (side = 0; side < 2; ++side) { /* written in place: the elements around them do not change */
        tg_tensor *y;
        whole[side] = tg_clone(values[side]);
        y = laid_out(whole[side], layout, columns);
        CHECK(tg_copy_(y, tg_flip(y, TG_DIMS(-1))) && tg_add_(y, tg_clone(y)));
    }
    CHECK(tg_equal(whole[0], tg_cpu(whole[1])));
}

TEST(rows_of_operands)
{
    static const int64_t columns[] = {1, 3, 10, 16, 33, 128};
    int dtype, c, layout;
    for (dtype = 0; dtype < DTYPES; ++dtype) {
        for (c = 0; c < 6; ++c) {
            for (layout = 0; layout < LAYOUTS; ++layout) {
                TG_SCOPE;
                rows_of((tg_dtype)dtype, columns[c], layout);
            }
        }
    }
    harness.sample = NULL;
}

/* ---- random numbers ---- */

/* Random numbers of kind k, of n elements; dropout of x. */
static tg_tensor *drawn(int k, tg_tensor *x, const char **name)
{
    const tg_shape shape = tg_shape_of(x);
    const tg_dtype dtype = tg_dtype_of(x);
    const tg_device device = tg_device_of(x);
#define OP(number, call) \
    case number: *name = #call; return call
    switch (k) {
        OP(0, tg_randn_on(shape, dtype, device));
        OP(1, tg_rand_on(shape, dtype, device));
        OP(2, tg_uniform_(tg_clone(x), -1, 1));
        OP(3, tg_uniform_(tg_clone(x), 0.1, 0.7));
        OP(4, tg_uniform_(tg_clone(x), 4, 7));
        OP(5, tg_bernoulli_on(shape, 0.3, dtype, device));
        OP(6, tg_bernoulli_on(shape, 1, dtype, device));
        OP(7, tg_normal_(tg_clone(x), 2, 3));
        OP(8, tg_dropout(x, 0.3, true));
        OP(9, tg_dropout(x, 1, true));
        OP(10, tg_uniform_(tg_narrow(tg_clone(x), 0, 1, tg_numel(x) - 1), -1, 1));
        OP(11, tg_dropout(tg_narrow(x, 0, 1, tg_numel(x) - 1), 0.5, true));
    }
#undef OP
    return NULL;
}

TEST(random_numbers_as_on_the_cpu)
{
    static const tg_dtype dtypes[] = {TG_F32, TG_F64, TG_BF16, TG_F16};
    int type, size, k;
    for (type = 0; type < 4; ++type) {
        for (size = 0; size < SIZES; ++size) {
            TG_SCOPE;
            tg_tensor *x = tg_randn_on(TG_SHAPE(sizes[size] + 1), dtypes[type], TG_CPU), *there = tg_cuda(x);
            for (k = 0;; ++k) {
                const char *name = "";
                tg_tensor *y, *z;
                tg_seed((uint64_t)(100 + k));
                y = drawn(k, x, &name);
                tg_seed((uint64_t)(100 + k));
                z = drawn(k, there, &name);
                if (!y && tg_ok()) break;
                harness.sample = name;
                if (!CHECK(y && z && tg_equal(y, tg_cpu(z))))
                    printf("    %s, %d elements\n", tg_dtype_name(dtypes[type]), (int)tg_numel(x));
            }
        }
    }
    harness.sample = NULL;
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
    *launches = kernels_so_far();
    ok = tg_step(o) == TG_OK && tg_synchronize(TG_CUDA(0)) == TG_OK;
    *launches = kernels_so_far() - *launches;
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

/* ---- clipping ---- */

/* Gradients of many sizes, more than one launch takes; `twice`: two of them are one tensor, which is scaled twice. */
static void gradients_here(tg_device device, tg_dtype dtype, bool twice, tg_tensor **params, int n)
{
    int i;
    tg_seed(4);
    for (i = 0; i < n; ++i) {
        const int64_t size = i == 3 ? 40000 : i == 5 ? 0 : 1 + i % 37;
        params[i] = tg_param(tg_zeros_on(TG_SHAPE(size), dtype, device));
        tg_tensor *g = tg_to(tg_to_dtype(tg_randn_on(TG_SHAPE(size + 1), TG_F64, TG_CPU), dtype), device);
        if (i != 7) tg_set_grad(params[i], i % 3 ? tg_narrow(g, 0, 1, size) : tg_clone(tg_narrow(g, 0, 0, size)));
    }
    if (twice) tg_set_grad(params[38], tg_grad(params[1]));
}

static void clip_here(tg_device device, tg_dtype dtype, bool twice, tg_tensor **params, int n, tg_tensor **norm)
{
    gradients_here(device, dtype, twice, params, n);
    *norm = tg_clip_grad_norm(params, n, 2);
}

TEST(clip_in_few_launches)
{
    enum { N = 200 };
    static const tg_dtype dtypes[] = {TG_F32, TG_F64, TG_BF16, TG_F16};
    static const double tolerance[] = {1e-6, 1e-12, 2e-2, 4e-3};
    int k, i, twice;
    for (k = 0; k < 4; ++k) {
        for (twice = 0; twice < 2; ++twice) {
            TG_SCOPE;
            tg_tensor *here[N], *there[N], *norm[3];
            clip_here(TG_CPU, dtypes[k], twice, here, N, &norm[0]);
            clip_here(TG_CUDA(0), dtypes[k], twice, there, N, &norm[1]);
            CHECK(norm[0] && norm[1] && tg_dtype_of(norm[1]) == dtypes[k]);
            CHECK(tg_allclose(tg_cpu(norm[1]), norm[0], tolerance[k], 0));
            for (i = 0; i < N; ++i) {
                tg_tensor *g[2];
                g[0] = tg_grad(here[i]), g[1] = tg_grad(there[i]);
                CHECK(!g[0] == !g[1]);
                if (g[0]) CHECK(tg_allclose(tg_cpu(g[1]), g[0], tolerance[k], 1e-6));
            }
            tg_synchronize(TG_CUDA(0));
            const long before = kernels_so_far();
            norm[2] = tg_clip_grad_norm(there, N, 0.5);
            tg_synchronize(TG_CUDA(0));
            CHECK(norm[2] && (!COUNTED || twice || kernels_so_far() - before <= 12));
            for (i = 0; i < N; ++i) tg_release(here[i]), tg_release(there[i]);
        }
    }
}

/* Unscaled on a device: the bits of the CPU, which composes it; and the same by ops (`twice`).  Element `at` of the
   gradient of parameter `odd` is `value`. */
static void unscale_here(tg_dtype dtype, bool twice, int odd, int64_t at, double value)
{
    enum { N = 200 };
    TG_SCOPE;
    tg_tensor *params[2][N];
    tg_optim *optim[2];
    int i, k;
    for (k = 0; k < 2; ++k) {
        tg_grad_scaler scaler = TG_GRAD_SCALER;
        const tg_device device = k ? TG_CUDA(0) : TG_CPU;
        gradients_here(device, dtype, twice, params[k], N);
        tg_fill_(tg_narrow(tg_grad(params[k][odd]), 0, at, 1), value);
        optim[k] = tg_sgd(params[k], N, 0.1);
        scaler.scale = 1000; /* its reciprocal is rounded */
        tg_synchronize(device);
        const long before = kernels_so_far();
        CHECK(tg_grad_scaler_unscale_(&scaler, optim[k]) == TG_OK);
        tg_synchronize(device);
        /* two numbers are written; 160 tensors, and 40 */
        if (COUNTED && k && !twice) CHECK(kernels_so_far() - before == 4);
        if (COUNTED && k && twice) CHECK(kernels_so_far() - before >= 3 * (N - 2));
        CHECK((tg_item(optim[k]->finite) != 0) == (isfinite(value) != 0));
    }
    for (i = 0; i < N; ++i) {
        tg_tensor *g[2];
        g[0] = tg_grad(params[0][i]), g[1] = tg_grad(params[1][i]);
        CHECK(!g[0] == !g[1] && (!g[0] || i == odd || tg_equal(tg_cpu(g[1]), g[0])));
    }
    for (k = 0; k < 2; ++k) {
        tg_optim_free(optim[k]);
        for (i = 0; i < N; ++i) tg_release(params[k][i]);
    }
}

TEST(unscale_in_one_launch)
{
    static const tg_dtype dtypes[] = {TG_F32, TG_F64, TG_BF16};
    static const struct { int odd; int64_t at; double value; } cases[] = {
        {0, 0, 1}, {3, 17, INFINITY}, {3, 39999, NAN}, {199, 2, -INFINITY}, {6, 0, NAN}};
    int k, c;
    for (k = 0; k < 3; ++k) {
        for (c = 0; c < 5; ++c) unscale_here(dtypes[k], false, cases[c].odd, cases[c].at, cases[c].value);
        unscale_here(dtypes[k], true, 3, 5, k ? INFINITY : 2);
    }
}

/* A forward and its backward under an autocast; the loss and the gradient of the first weight [LAYER, LAYER]. */
enum { LAYERS = 130, LAYER = 9 };
static void autocast_step(tg_module *net, tg_tensor *x, tg_dtype dtype, float *bits)
{
    TG_SCOPE;
    tg_tensor *loss;
    {
        TG_AUTOCAST(dtype);
        loss = tg_sum(tg_forward(net, x));
    }
    CHECK(tg_backward(loss) == TG_OK);
    CHECK(tg_copy_out(loss, bits, 4) == TG_OK);
    CHECK(tg_copy_out(tg_grad(tg_module_params(net)[0]), bits + 1, 4 * LAYER * LAYER) == TG_OK);
    for (int i = 0; i < tg_module_count(net); ++i) tg_set_grad(tg_module_params(net)[i], NULL);
}

/* In the first step each weight is cast when it is used; after it all are cast by as few launches as hold them. */
TEST(weights_are_cast_in_one_launch)
{
    static const tg_dtype dtypes[] = {TG_BF16, TG_F16};
    tg_module *layers[LAYERS], *net;
    tg_tensor *x;
    float bits[4][1 + LAYER * LAYER];
    long launches[4];
    int k, i;
    tg_seed(5);
    for (i = 0; i < LAYERS; ++i) layers[i] = tg_nn_linear(LAYER, LAYER, i % 2);
    net = tg_nn_sequential(layers, LAYERS);
    for (i = 0; i < tg_module_count(net); ++i) tg_mul_scalar_(tg_detach(tg_module_params(net)[i]), 1.7);
    tg_module_to(net, TG_CUDA(0));
    x = tg_retain(tg_to(tg_randn(TG_SHAPE(4, LAYER)), TG_CUDA(0)));
    for (k = 0; k < 4; ++k) {
        tg_synchronize(TG_CUDA(0));
        const long before = kernels_so_far();
        autocast_step(net, x, dtypes[k / 2], bits[k]);
        launches[k] = kernels_so_far() - before;
    }
    for (k = 0; k < 4; k += 2) CHECK(memcmp(bits[k], bits[k + 1], sizeof bits[k]) == 0 && bits[k][1] != 0);
    /* 195 weights and biases need three launches; those of another dtype, too */
    if (COUNTED) CHECK(launches[0] - launches[1] == 192 && launches[2] == launches[1] && launches[3] == launches[1]);
    tg_release(x);
    tg_module_free(net);
}

/* ---- how many kernels run, and what they move; bytes are known with TG_SIM_REPORT alone ---- */

static tg_tensor *gelu_erf(tg_tensor *x) { return tg_gelu(x, false); }
static tg_tensor *gelu_tanh(tg_tensor *x) { return tg_gelu(x, true); }
static tg_tensor *clamp(tg_tensor *x) { return tg_clamp(x, -1, 1); }
static tg_tensor *leaky_relu(tg_tensor *x) { return tg_leaky_relu(x, 0.1); }
static tg_tensor *elu(tg_tensor *x) { return tg_elu(x, 2); }
static tg_tensor *celu(tg_tensor *x) { return tg_celu(x, 2); }
static tg_tensor *softplus(tg_tensor *x) { return tg_softplus(x, 1, 20); }
static tg_tensor *dropout(tg_tensor *x) { return tg_dropout(x, 0.3, true); }

/* What reads one tensor [n] and writes one; its gradient reads g and one of x and y, or, if `alone`, g alone. */
static const struct {
    const char *name;
    tg_tensor *(*call)(tg_tensor *x);
    bool alone;
} maps[] = {{"abs", tg_abs, false},
            {"square", tg_square, false},
            {"sqrt", tg_sqrt, false},
            {"rsqrt", tg_rsqrt, false},
            {"reciprocal", tg_reciprocal, false},
            {"tanh", tg_tanh, false},
            {"sigmoid", tg_sigmoid, false},
            {"erf", tg_erf, false},
            {"relu", tg_relu, false},
            {"silu", tg_silu, false},
            {"logsigmoid", tg_logsigmoid, false},
            {"mish", tg_mish, false},
            {"selu", tg_selu, false},
            {"softsign", tg_softsign, false},
            {"hardsigmoid", tg_hardsigmoid, false},
            {"hardswish", tg_hardswish, false},
            {"clamp", clamp, false},
            {"leaky_relu", leaky_relu, false},
            {"elu", elu, false},
            {"celu", celu, false},
            {"softplus", softplus, false},
            {"gelu by erf", gelu_erf, false},
            {"gelu by tanh", gelu_tanh, false},
            {"dropout", dropout, true}};
static const tg_dtype low_and_f32[] = {TG_F32, TG_BF16, TG_F16};

TEST(what_maps_move)
{
    enum { N = 32768 };
    for (int k = 0; k < 3; ++k) {
        const double bytes = N * (double)tg_dtype_size(low_and_f32[k]);
        for (size_t i = 0; i < sizeof maps / sizeof *maps; ++i) {
            TG_SCOPE;
            tg_tensor *x = tg_set_requires_grad(tg_full_on(TG_SHAPE(N), 0.5, low_and_f32[k], TG_CUDA(0)), true);
            tg_tensor *g = tg_full_on(TG_SHAPE(N), 2, low_and_f32[k], TG_CUDA(0)), *y, *dx;
            harness.sample = maps[i].name;
            start_counting();
            y = maps[i].call(x);
            CHECK(at_most(1, 2.02 * bytes));
            start_counting();
            CHECK(tg_gradients(&y, 1, &g, &x, 1, &dx, 0) == TG_OK);
            CHECK(at_most(1, (maps[i].alone ? 2.02 : 3.03) * bytes));
        }
    }
    harness.sample = NULL;
}

/* Parameters of three sizes, N elements in all.  AdamW reads and writes p and two moments, in f32, and reads g; where
   p is of 16 bits also a copy of it in f32.  A clip reads the gradients for their norm, and reads and writes them once
   more. */
TEST(what_many_tensors_move)
{
    enum { TENSORS = 30, N = 10 * (1000 + 4096 + 1) };
    for (int k = 0; k < 3; ++k) {
        TG_SCOPE;
        const tg_dtype dtype = low_and_f32[k];
        const double size = (double)tg_dtype_size(dtype), masters = dtype == TG_F32 ? 0 : 8;
        tg_tensor *params[TENSORS];
        tg_optim *optim;
        int i;
        for (i = 0; i < TENSORS; ++i) {
            const tg_shape shape = TG_SHAPE(i % 3 == 0 ? 1000 : i % 3 == 1 ? 4096 : 1);
            params[i] = tg_param(tg_full_on(shape, 1, dtype, TG_CUDA(0)));
            tg_set_grad(params[i], tg_full_on(shape, 1, dtype, TG_CUDA(0)));
        }
        optim = tg_adamw(params, TENSORS, 0.01);
        CHECK(tg_step(optim) == TG_OK); /* makes the moments */
        harness.sample = "adamw";
        start_counting();
        CHECK(tg_step(optim) == TG_OK);
        CHECK(at_most(1, 1.02 * N * (3 * size + 16 + masters)));
        harness.sample = "clip_grad_norm"; /* and the factor, from the norm: kernels for one number */
        start_counting();
        CHECK(tg_clip_grad_norm(params, TENSORS, 1) != NULL);
        CHECK(at_most(12, 1.02 * N * 3 * size));
        tg_optim_free(optim);
        for (i = 0; i < TENSORS; ++i) tg_release(params[i]);
    }
    harness.sample = NULL;
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    if (harness_has_no_gpu()) return 0;
    inside_plain(true); /* what the CPU computes here is the oracle */
    RUN(trigonometry_in_f64);
    RUN(trigonometry_in_f64_strided);
    RUN(trigonometry_in_f32);
    RUN(trigonometry_in_f32_strided);
    RUN(elements_side_by_side);
    RUN(rounding_to_16_bits);
    RUN(conversions_side_by_side);
    RUN(rows_of_operands);
    RUN(random_numbers_as_on_the_cpu);
    RUN(matmul_precision);
    RUN(optimizers_in_one_launch);
    RUN(optimizers_with_a_mixture_of_parameters);
    RUN(clip_in_few_launches);
    RUN(unscale_in_one_launch);
    RUN(weights_are_cast_in_one_launch);
    RUN(what_maps_move);
    RUN(what_many_tensors_move);
    tg_shutdown();
    return harness_end();
}
