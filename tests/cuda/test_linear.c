/* linear by cuBLASLt: values and gradients against the composed rule, for every dtype and layout of the operands; how
 * many kernels and library calls it takes; plans that are kept, replaced and not to be had; calls that fail.  Built by
 * `make sim MAIN=tests/cuda/test_linear.c OUT=prog` for the simulator; it runs on GPUs, too. */
#define TENSORGRAD_IMPLEMENTATION
#include "tensorgrad.h"
#include "../helpers.h"
#ifdef CUDASIM
#include "cudasim_test.h"
#endif

static const tg_dtype dtypes[] = {TG_F32, TG_F64, TG_BF16, TG_F16};
static const double tolerances[] = {2e-6, 1e-14, 1.6e-2, 2e-3}; /* of the largest element, where results are rounded */
enum { DTYPES = 4, RESULTS = 4 };

/* How x [rows.., in] lies in memory.  ROWS: every second row; OUTER: the outer dims exchanged; COLUMNS: the elements of
   a row are apart; SAME: all rows are one; ODD: begins at an element that is not aligned. */
enum { PLAIN, ROWS, OUTER, COLUMNS, SAME, ODD, LAYOUTS };

/* x has dims [a, b, in] */
typedef struct { int64_t a, b, in, out; } sizes;

/* Numbers of which all sums are exact in every dtype, or, if `rounds`, of which they are not. */
static tg_tensor *drawn(tg_shape shape, tg_dtype dtype, bool rounds)
{
    tg_tensor *t = tg_rand_on(shape, TG_F32, HERE);
    return tg_to_dtype(rounds ? tg_sub_scalar(t, 0.5) : tg_floor(tg_add_scalar(tg_mul_scalar(t, 3), -1)), dtype);
}

static tg_tensor *drawn_x(sizes n, int layout, tg_dtype dtype, bool rounds)
{
    if (layout == ROWS) return tg_slice(drawn(TG_SHAPE(n.a, 2 * n.b, n.in), dtype, rounds), 1, 0, 2 * n.b, 2);
    if (layout == OUTER) return tg_transpose(drawn(TG_SHAPE(n.b, n.a, n.in), dtype, rounds), 0, 1);
    if (layout == COLUMNS) return tg_transpose(drawn(TG_SHAPE(n.a, n.in, n.b), dtype, rounds), 1, 2);
    if (layout == SAME) return tg_expand(drawn(TG_SHAPE(1, 1, n.in), dtype, rounds), TG_SHAPE(n.a, n.b, n.in));
    if (layout != ODD) return drawn(TG_SHAPE(n.a, n.b, n.in), dtype, rounds);
    tg_tensor *line = tg_narrow(drawn(TG_SHAPE(n.a * n.b * n.in + 1), dtype, rounds), 0, 1, n.a * n.b * n.in);
    return tg_view(line, TG_SHAPE(n.a, n.b, n.in));
}

typedef struct { tg_tensor *in[3], *g; } problem; /* x, weight, bias (or NULL); the gradient of y */

static problem problem_of(sizes n, int layout, tg_dtype dtype, bool bias, bool rounds)
{
    problem p;
    p.in[0] = drawn_x(n, layout, dtype, rounds);
    p.in[1] = layout == COLUMNS ? tg_t(drawn(TG_SHAPE(n.in, n.out), dtype, rounds))
                                : drawn(TG_SHAPE(n.out, n.in), dtype, rounds);
    p.in[2] = bias ? drawn(TG_SHAPE(n.out, 2), dtype, rounds) : NULL;
    if (bias) p.in[2] = tg_select(p.in[2], 1, 0);
    if (bias && layout != SAME) p.in[2] = tg_contiguous(p.in[2]); /* else it is strided */
    p.g = layout == OUTER  ? tg_transpose(drawn(TG_SHAPE(n.b, n.a, n.out), dtype, rounds), 0, 1)
          : layout == SAME ? tg_expand(drawn(TG_SHAPE(1), dtype, rounds), TG_SHAPE(n.a, n.b, n.out))
                           : drawn(TG_SHAPE(n.a, n.b, n.out), dtype, rounds);
    return p;
}

/* result [RESULTS] = y and the gradients of x, weight and bias; NULL where there are none. */
static bool solve(const problem *p, bool composes, tg_tensor **result)
{
    tg_tensor *in[3];
    for (int i = 0; i < 3; ++i) in[i] = p->in[i] ? tg_set_requires_grad(tg_detach(p->in[i]), true) : NULL;
    result[3] = NULL;
    tgi_self()->composes = composes;
    result[0] = tg_linear(in[0], in[1], in[2]);
    tg_tensor *g = p->g;
    const bool ok = result[0] && tg_gradients(&result[0], 1, &g, in, in[2] ? 3 : 2, result + 1, 0) == TG_OK;
    tgi_self()->composes = false;
    return ok;
}

/* Whether the two are the same up to the tolerance, a part of the largest element. */
static bool agree(tg_tensor *a, tg_tensor *b, double tolerance)
{
    if (!a || !b) return a == b;
    a = tg_to_dtype(tg_detach(a), TG_F64), b = tg_to_dtype(tg_detach(b), TG_F64);
    if (tg_numel(a) == 0) return tg_numel(b) == 0;
    const double off = tg_item(tg_max(tg_abs(tg_sub(a, b)))), largest = tg_item(tg_max(tg_abs(b)));
    return off <= tolerance * largest;
}

static void compare(sizes n, int layout, int k, bool bias, bool rounds)
{
    TG_SCOPE;
    tg_tensor *fused[RESULTS], *composed[RESULTS];
    const problem p = problem_of(n, layout, dtypes[k], bias, rounds);
    if (!CHECK(solve(&p, false, fused)) || !CHECK(solve(&p, true, composed))) return;
    for (int i = 0; i < RESULTS; ++i) {
        if (!CHECK(agree(fused[i], composed[i], rounds ? tolerances[k] : 0))) {
            printf("    result %d, %s, x [%d, %d, %d], layout %d, out %d\n", i, tg_dtype_name(dtypes[k]), (int)n.a,
                   (int)n.b, (int)n.in, layout, (int)n.out);
        }
    }
}

TEST(against_the_composed_rule)
{
    static const sizes size[] = {{2, 16, 24, 40}, {3, 5, 7, 9}, {1, 33, 65, 31}, {4, 1, 18, 6}, {1, 1, 20, 30},
                                 {2, 3, 1, 8},    {2, 3, 8, 1}, {2, 0, 8, 4},    {2, 3, 0, 4},  {2, 3, 4, 0},
                                 {2, 40, 66, 10}};
    for (size_t i = 0; i < sizeof size / sizeof *size; ++i) {
        for (int how = 0; how < LAYOUTS * DTYPES * 4; ++how) {
            const int layout = how / (DTYPES * 4);
            compare(size[i], layout, how / 4 % DTYPES, how & 1, (how & 2) != 0);
        }
    }
}

/* f32 may be computed in TF32 if that is allowed, forward and backward. */
TEST(in_tf32)
{
    TG_SCOPE;
    const problem p = problem_of((sizes){2, 16, 64, 32}, PLAIN, TG_F32, true, true);
    tg_tensor *exact[RESULTS], *rounded[RESULTS], *composed[RESULTS];
    const tg_precision before = tg_matmul_precision();
    CHECK(solve(&p, false, exact));
    tg_set_matmul_precision(TG_PRECISION_TF32);
    CHECK(solve(&p, false, rounded) && solve(&p, true, composed));
    tg_set_matmul_precision(before);
    for (int i = 0; i < RESULTS; ++i) {
        CHECK(agree(rounded[i], exact[i], 2e-3) && agree(rounded[i], composed[i], 1e-3));
        if (i < 3) CHECK(!agree(rounded[i], exact[i], 1e-7));
    }
}

/* A layer that is used three times: its gradients are added up in one run of backward; the next run adds to .grad. */
TEST(gradients_that_are_added)
{
    enum { USES = 3 };
    for (int k = 0; k < DTYPES; ++k) {
        TG_SCOPE;
        tg_tensor *sum[2][2]; /* composed or not; weight, bias */
        for (int composes = 0; composes < 2; ++composes) {
            tg_seed(5);
            tg_tensor *w = tg_param(drawn(TG_SHAPE(12, 8), dtypes[k], false));
            tg_tensor *b = tg_param(drawn(TG_SHAPE(12), dtypes[k], false));
            for (int run = 0; run < 2; ++run) {
                tg_tensor *y[USES], *g[USES];
                for (int use = 0; use < USES; ++use) {
                    y[use] = tg_linear(drawn(TG_SHAPE(5, 8), dtypes[k], false), w, b);
                    g[use] = drawn(TG_SHAPE(5, 12), dtypes[k], false);
                }
                tgi_self()->composes = composes;
                CHECK(tg_backward_ex(y, USES, g, 0) == TG_OK);
                tgi_self()->composes = false;
            }
            sum[composes][0] = tg_clone(tg_grad(w)), sum[composes][1] = tg_clone(tg_grad(b));
            tg_release(w), tg_release(b);
        }
        CHECK(tg_equal(sum[0][0], sum[1][0]) && tg_equal(sum[0][1], sum[1][1]));
    }
}

/* A graph of the gradient, which only the composed rule makes, gives the same gradients. */
TEST(with_a_graph)
{
    TG_SCOPE;
    const problem p = problem_of((sizes){2, 8, 6, 10}, PLAIN, TG_F32, true, false);
    tg_tensor *fused[RESULTS], *in[3], *d[3], *g = p.g;
    CHECK(solve(&p, false, fused));
    for (int i = 0; i < 3; ++i) in[i] = tg_set_requires_grad(tg_detach(p.in[i]), true);
    tg_tensor *y = tg_linear(in[0], in[1], in[2]);
    CHECK(tg_gradients(&y, 1, &g, in, 3, d, TG_CREATE_GRAPH) == TG_OK);
    for (int i = 0; i < 3; ++i) CHECK(tg_equal(tg_detach(d[i]), fused[i + 1]));
}

/* Each device has plans of its own. */
TEST(devices)
{
    for (int i = 0; i < tg_cuda_device_count(); ++i) {
        TG_SCOPE;
        const tg_device device = TG_CUDA(i);
        tg_tensor *x = tg_ones_on(TG_SHAPE(3, 5), TG_F32, device), *w = tg_ones_on(TG_SHAPE(4, 5), TG_F32, device);
        tg_tensor *y = tg_linear(x, w, tg_ones_on(TG_SHAPE(4), TG_F32, device));
        CHECK(tg_equal(y, tg_full_on(TG_SHAPE(3, 4), 6, TG_F32, device)));
    }
}

#ifdef CUDASIM
static long kernels(void) { return (long)cudasim_total(CUDASIM_KERNELS); }
static long library_calls(void) { return (long)cudasim_total(CUDASIM_LIBRARY_CALLS); }

/* Forward is one library call, backward two, without kernels; where 16 bits are odd sizes there is no algorithm with
   the sums, which a kernel then makes. */
TEST(calls)
{
    for (int k = 0; k < DTYPES; ++k) {
        for (int odd = 0; odd < 2; ++odd) {
            TG_SCOPE;
            const problem p = problem_of((sizes){1, 16, 24 + odd, 32}, PLAIN, dtypes[k], true, false);
            tg_tensor *in[3], *y, *d[3], *g = p.g;
            for (int i = 0; i < 3; ++i) in[i] = tg_set_requires_grad(tg_detach(p.in[i]), true);
            const bool planned = dtypes[k] != TG_F64, sums = planned && (dtypes[k] == TG_F32 || !odd);
            long calls[3] = {0, 0, 0}, launches[3] = {0, 0, 0};
            for (int part = 0; part < 3; ++part) {
                tg_synchronize(HERE);
                calls[part] = library_calls(), launches[part] = kernels();
                if (part == 0) y = tg_linear(in[0], in[1], in[2]);
                if (part == 1) tg_gradients(&y, 1, &g, in, 3, d, 0);
            }
            CHECK(calls[1] - calls[0] == 1 && launches[1] - launches[0] == (planned ? 0 : 1));
            CHECK(calls[2] - calls[1] == 2 && (launches[2] - launches[1] == 0) == sums);
        }
    }
}

/* Asks the library for an algorithm how many times? */
static long algorithms_of(int64_t rows, int64_t out)
{
    TG_SCOPE;
    cudasim_fail_call("cublasLtMatmulAlgoGetHeuristic", 1000, 0);
    tg_tensor *x = tg_ones_on(TG_SHAPE(rows, 3), TG_F32, HERE), *w = tg_ones_on(TG_SHAPE(out, 3), TG_F32, HERE);
    tg_tensor *y = tg_linear(x, w, tg_ones_on(TG_SHAPE(out), TG_F32, HERE));
    CHECK(tg_equal(y, tg_full_on(TG_SHAPE(rows, out), 4, TG_F32, HERE)));
    const long left = cudasim_failure_left();
    cudasim_fail_call("", -1, 0);
    return 1000 - left;
}

/* A plan is made at the first use of a product and kept, but only for so many products. */
TEST(plans)
{
    enum { MORE_THAN_ARE_KEPT = 300 };
    CHECK(algorithms_of(2, 101) == 1 && algorithms_of(2, 101) == 0 && algorithms_of(3, 101) == 1);
    CHECK(algorithms_of(2, 101) == 0);
    for (int i = 0; i < MORE_THAN_ARE_KEPT; ++i) CHECK(algorithms_of(2, 201 + i) == 1);
    CHECK(algorithms_of(2, 101) == 1 && algorithms_of(2, 101) == 0);
    long again = 0;
    for (int i = 0; i < MORE_THAN_ARE_KEPT; ++i) again += algorithms_of(2, 201 + i);
    CHECK(again > MORE_THAN_ARE_KEPT / 2 && again <= MORE_THAN_ARE_KEPT);
}

/* Every call fails once: the error names it, nothing is left behind, and the same product then succeeds. */
TEST(failures)
{
    static const char *const call[] = {
        "cublasLtMatmulDescInit",       "cublasLtMatmulDescSetAttribute",       "cublasLtMatrixLayoutInit",
        "cublasLtMatmulPreferenceInit", "cublasLtMatmulPreferenceSetAttribute", "cublasLtMatmulAlgoGetHeuristic",
        "cublasLtMatmul"};
    int64_t out = 1000; /* a product that is new */
    for (size_t i = 0; i < sizeof call / sizeof *call; ++i) {
        bool fired = true;
        int n = 0;
        for (harness.sample = call[i]; fired; ++n) {
            TG_SCOPE;
            const problem p = problem_of((sizes){1, 4, 6, ++out}, PLAIN, TG_F32, true, false);
            tg_tensor *found[RESULTS], *right[RESULTS];
            cudasim_fail_call(call[i], n, 0);
            const bool ok = solve(&p, false, found);
            fired = cudasim_failure_left() < 0;
            cudasim_fail_call("", -1, 0);
            CHECK(ok == !fired && tg_ok() == ok);
            CHECK(ok || (strstr(tg_error_message(), "cublasLt") && strstr(tg_error_message(), "tensorgrad_cuda.cu:")));
            tg_clear_error();
            CHECK(solve(&p, false, found) && solve(&p, true, right));
            for (int k = 0; k < RESULTS; ++k) CHECK(agree(found[k], right[k], 0));
        }
        CHECK(n > 1);
    }
    harness.sample = NULL;
}

static int no_memory(void) { return 0; }

/* Without memory for the workspace of the library, or for the plans: an error, and then it works. */
static void memory_runs_out(void)
{
    const tg_allocator allocator = {alloc_some, free_some, NULL};
    harness.test = "memory_runs_out";
    fails_once = true;
    allocations_left = INT64_MAX;
    CHECK(tg_set_allocator(&allocator) == TG_OK);
    tg_set_cache_limit(0);
    tg_seed(3);
    {
        TG_SCOPE;
        const problem p = problem_of((sizes){1, 4, 6, 8}, PLAIN, TG_F32, true, false);
        tg_tensor *room = tg_empty_on(TG_SHAPE(4, 8), TG_F32, HERE), *found[RESULTS];
        tg_drop(room); /* for y */
        cudasim_ask_allocation(no_memory);
        CHECK(tg_linear(p.in[0], p.in[1], p.in[2]) == NULL && tg_error_code() == TG_ERR_MEMORY);
        cudasim_ask_allocation(NULL);
        tg_clear_error();
        bool done = false;
        int refused = 0;
        for (int n = 0; !done && n < 100; ++n) {
            allocations_left = n;
            done = tg_linear(p.in[0], p.in[1], p.in[2]) != NULL;
            allocations_left = INT64_MAX;
            CHECK(done == tg_ok() && (done || tg_error_code() == TG_ERR_MEMORY));
            refused += !done;
            tg_clear_error();
        }
        CHECK(done && refused > 0 && solve(&p, false, found));
    }
    tg_set_cache_limit(SIZE_MAX);
}
#endif

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    HERE = TG_CUDA(0);
#ifdef CUDASIM
    memory_runs_out();
#endif
    tg_set_default_device(HERE);
    tg_seed(3);
    RUN(against_the_composed_rule);
    RUN(in_tf32);
    RUN(gradients_that_are_added);
    RUN(with_a_graph);
    RUN(devices);
#ifdef CUDASIM
    RUN(calls);
    RUN(plans);
    RUN(failures);
#endif
    CHECK(tg_shutdown() == TG_OK);
    return harness_end();
}
