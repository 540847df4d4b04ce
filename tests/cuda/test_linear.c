/* linear and linear_gelu by cuBLASLt: values and gradients against the composed rule, for every dtype and layout of the
 * operands; how many kernels and library calls it takes; plans that are kept, replaced and not to be had; calls that
 * fail.  Built by `make sim MAIN=tests/cuda/test_linear.c OUT=prog` for the simulator; it runs on GPUs, too. */
#include "tensorgrad.h"
#include "../helpers.h"
#include "../inside.h"
#ifdef CUDASIM
#include "cudasim_test.h"
#include <pthread.h>
#endif

static const tg_dtype dtypes[] = {TG_F32, TG_F64, TG_BF16, TG_F16};
static const double tolerances[] = {2e-6, 1e-14, 1.6e-2, 2e-3}; /* of the largest element, where results are rounded */
enum { DTYPES = 4, RESULTS = 4 };

/* How x [rows.., in] lies in memory.  ROWS: every second row; OUTER: the outer dims exchanged; COLUMNS: the elements of
   a row are apart; SAME: all rows are one; ODD: begins at an element that is not aligned. */
enum { PLAIN, ROWS, OUTER, COLUMNS, SAME, ODD, LAYOUTS };

/* x has dims [a, b, in] */
typedef struct { int64_t a, b, in, out; } sizes;

static sizes size_of(int64_t a, int64_t b, int64_t in, int64_t out)
{
    const sizes n = {a, b, in, out};
    return n;
}

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
    inside_compose(composes);
    result[0] = tg_linear(in[0], in[1], in[2]);
    tg_tensor *g = p->g;
    const bool ok = result[0] && tg_gradients(&result[0], 1, &g, in, in[2] ? 3 : 2, result + 1, 0) == TG_OK;
    inside_compose(false);
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
                inside_compose(composes);
                CHECK(tg_backward_ex(y, USES, g, 0) == TG_OK);
                inside_compose(false);
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

/* ---- gelu in the products ---- */

/* What is done with h, the hidden layer, besides the next linear: nothing; a hook; tg_retain_grad; its gradient is a
   result; another op takes it; it is a second root; backward goes step by step; anomaly mode; the next linear gets a
   view of it. */
enum { ALONE, HOOKED, RETAINED, WANTED, SHARED, ROOT, STEPPED, WATCHED, VIEWED, USES_OF_HIDDEN };
enum { INPUTS = 5, NET_RESULTS = INPUTS + 2 }; /* x, w1, b1, w2, b2; y, their gradients, that of h */

typedef struct { tg_tensor *in[INPUTS], *g, *g_hidden; } network;

static network network_of(sizes n, int layout, tg_dtype dtype, bool bias)
{
    network net;
    const problem p = problem_of(n, layout, dtype, bias, true);
    for (int i = 0; i < 3; ++i) net.in[i] = p.in[i];
    net.in[3] = drawn(TG_SHAPE(12, n.out), dtype, true);
    net.in[4] = bias ? drawn(TG_SHAPE(12), dtype, true) : NULL;
    net.g = drawn(TG_SHAPE(n.a, n.b, 12), dtype, true);
    net.g_hidden = drawn(TG_SHAPE(n.a, n.b, n.out), dtype, true);
    return net;
}

static tg_tensor *doubled(tg_tensor *g, void *user)
{
    ++*(int *)user;
    return tg_mul_scalar(g, 2);
}

/* The gradients of the inputs by tg_backward or by steps, which show each gradient. */
static bool run_backward(tg_tensor *const *root, int roots, tg_tensor *const *g, bool by_steps)
{
    tg_step_info info;
    bool ok = true;
    if (!by_steps) return tg_backward_ex(root, roots, g, 0) == TG_OK;
    tg_backward_run *run = tg_backward_begin(root, roots, g, 0);
    while (ok && run && tg_backward_step(run, &info)) ok = info.grad != NULL;
    return ok && run && tg_backward_end(run) == TG_OK;
}

/* result [NET_RESULTS]; NULL where there are none. */
static bool solve_network(const network *net, bool composes, int use, tg_tensor **result)
{
    tg_tensor *in[INPUTS + 1] = {NULL}, *root[2], *g[2] = {net->g, net->g_hidden}; /* in: h, too */
    int calls = 0;
    for (int i = 0; i < NET_RESULTS; ++i) result[i] = NULL;
    for (int i = 0; i < INPUTS; ++i) in[i] = net->in[i] ? tg_set_requires_grad(tg_detach(net->in[i]), true) : NULL;
    inside_compose(composes);
    if (use == WATCHED) tg_set_anomaly(true);
    tg_tensor *h = in[INPUTS] = root[1] = tg_linear_gelu(in[0], in[1], in[2], true);
    if (use == HOOKED) tg_hook(h, doubled, &calls);
    if (use == RETAINED) tg_retain_grad(h);
    root[0] = result[0] = tg_linear(use == VIEWED ? tg_transpose(tg_transpose(h, 0, 1), 0, 1) : h, in[3], in[4]);
    if (use == SHARED) root[0] = tg_add(root[0], tg_sum_dim(tg_mul_scalar(h, 0.25), 2, true));
    bool ok = root[0] != NULL;
    if (use == WANTED) {
        for (int i = 0; i <= INPUTS && ok; ++i)
            ok = !in[i] || tg_gradients(root, 1, g, &in[i], 1, &result[i + 1], TG_RETAIN_GRAPH) == TG_OK;
    } else {
        ok = ok && run_backward(root, use == ROOT ? 2 : 1, g, use == STEPPED);
        for (int i = 0; i < INPUTS; ++i) result[i + 1] = in[i] ? tg_grad(in[i]) : NULL;
        if (use == RETAINED) result[INPUTS + 1] = tg_grad(h);
    }
    if (use == HOOKED) ok = ok && calls == 1;
    if (use == WATCHED) tg_set_anomaly(false);
    inside_compose(false);
    return ok;
}

static void compare_networks(sizes n, int layout, int k, bool bias, int use)
{
    static const double tolerance[] = {1e-5, 1e-13, 3e-2, 4e-3};
    TG_SCOPE;
    tg_tensor *fused[NET_RESULTS], *composed[NET_RESULTS];
    const network net = network_of(n, layout, dtypes[k], bias);
    if (!CHECK(solve_network(&net, false, use, fused)) || !CHECK(solve_network(&net, true, use, composed))) return;
    for (int i = 0; i < NET_RESULTS; ++i) {
        if (!CHECK(agree(fused[i], composed[i], tolerance[k]))) {
            printf("    result %d, %s, x [%d, %d, %d], layout %d, out %d, use %d\n", i, tg_dtype_name(dtypes[k]),
                   (int)n.a, (int)n.b, (int)n.in, layout, (int)n.out, use);
        }
    }
}

TEST(gelu_against_the_composed_rule)
{
    static const sizes size[] = {{2, 16, 24, 40}, {3, 5, 7, 9}, {1, 33, 65, 32}, {4, 1, 18, 8}, {1, 1, 20, 16},
                                 {2, 3, 1, 8},    {2, 3, 8, 4}, {2, 0, 8, 8},    {2, 3, 0, 8},  {2, 3, 8, 0}};
    for (size_t i = 0; i < sizeof size / sizeof *size; ++i) {
        for (int how = 0; how < LAYOUTS * DTYPES * 2; ++how)
            compare_networks(size[i], how / (DTYPES * 2), how / 2 % DTYPES, how & 1, ALONE);
    }
    for (int use = 0; use < USES_OF_HIDDEN; ++use) {
        for (int how = 0; how < DTYPES * 2; ++how) compare_networks(size[how & 1 ? 0 : 1], PLAIN, how / 2, true, use);
    }
}

/* Without a graph z is not kept, and y is the same; a NaN stays one; what backward has used up is an error. */
TEST(gelu_alone)
{
    TG_SCOPE;
    const network net = network_of(size_of(2, 16, 24, 40), PLAIN, TG_BF16, true);
    tg_tensor *w = tg_set_requires_grad(tg_detach(net.in[1]), true), *x = net.in[0];
    tg_tensor *y = tg_linear_gelu(x, w, net.in[2], true);
    CHECK(tg_equal(tg_detach(y), tg_linear_gelu(x, net.in[1], net.in[2], true)));
    x = tg_clone(x);
    tg_set(x, TG_SHAPE(1, 3, 5), (double)NAN);
    tg_tensor *bad = tg_any_dim(tg_isnan(tg_linear_gelu(x, net.in[1], net.in[2], true)), 2, false);
    CHECK(tg_get(bad, TG_SHAPE(1, 3)) == 1 && tg_item(tg_sum(tg_to_dtype(bad, TG_F32))) == 1);
    tg_tensor *loss = tg_sum(tg_linear(y, tg_ones_on(TG_SHAPE(8, 40), TG_BF16, HERE), NULL));
    CHECK(tg_backward(loss) == TG_OK);
    CHECK_FAILS(tg_backward(loss), "second time");
}

/* Gradients of gradients go through z, which is an output of the op. */
TEST(gelu_twice)
{
    TG_SCOPE;
    const network net = network_of(size_of(2, 4, 6, 8), PLAIN, TG_F32, true);
    tg_tensor *second[2][3];
    for (int composes = 0; composes < 2; ++composes) {
        tg_tensor *in[3], *d[3];
        for (int i = 0; i < 3; ++i) in[i] = tg_set_requires_grad(tg_detach(net.in[i]), true);
        inside_compose(composes);
        tg_tensor *y = tg_mean(tg_linear(tg_linear_gelu(in[0], in[1], in[2], true), net.in[3], NULL));
        CHECK(tg_gradients(&y, 1, NULL, in, 3, d, TG_CREATE_GRAPH) == TG_OK);
        tg_tensor *sum = tg_add(tg_add(tg_sum(tg_square(d[0])), tg_sum(tg_square(d[1]))), tg_sum(tg_square(d[2])));
        CHECK(tg_gradients(&sum, 1, NULL, in, 3, second[composes], 0) == TG_OK);
        inside_compose(false);
    }
    for (int i = 0; i < 3; ++i) CHECK(agree(second[0][i], second[1][i], 1e-5));
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

/* A hidden layer with gelu: two products forward, four backward, no kernel; one more, the gradient of gelu, where a
   hook wants that of h; all of gelu's where the library has no algorithm. */
TEST(calls_with_gelu)
{
    static const int use[] = {ALONE, HOOKED};
    for (int k = 0; k < DTYPES; ++k) {
        for (int how = 0; how < 4; ++how) {
            TG_SCOPE;
            const bool odd = how & 1, planned = dtypes[k] != TG_F64 && !odd, hooked = use[how / 2] == HOOKED;
            const network net = network_of(size_of(1, 16, 24, odd ? 36 : 40), PLAIN, dtypes[k], true);
            tg_tensor *result[NET_RESULTS];
            tg_synchronize(HERE);
            const long calls = library_calls(), launches = kernels();
            CHECK(solve_network(&net, false, use[how / 2], result));
            tg_synchronize(HERE);
            CHECK(library_calls() - calls == 6);
            if (planned) CHECK(kernels() - launches == (hooked ? 2 : 0)); /* the hook's own, and gelu's gradient */
            else CHECK(kernels() - launches >= 2 + hooked);
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

/* Each thread has plans of its own, which end with it: the same products in two threads, one after the other. */
static void *plans_of_a_thread(void *found)
{
    long *const asked = (long *)found;
    asked[0] = algorithms_of(2, 101);
    asked[1] = algorithms_of(2, 101);
    CHECK(tg_thread_end() == TG_OK);
    return NULL;
}

TEST(plans_of_another_thread)
{
    pthread_t thread;
    CHECK(algorithms_of(2, 101) + algorithms_of(2, 101) <= 1);
    for (int i = 0; i < 2; ++i) {
        long asked[2] = {-1, -1};
        CHECK(pthread_create(&thread, NULL, plans_of_a_thread, asked) == 0);
        CHECK(pthread_join(thread, NULL) == 0 && asked[0] == 1 && asked[1] == 0);
    }
    CHECK(algorithms_of(2, 101) == 0); /* this thread's are still there */
}

/* Every call fails once: the error names it, nothing is left behind, and the same product then succeeds. */
TEST(failures)
{
    static const char *const call[] = {
        "cublasLtMatmulDescInit",       "cublasLtMatmulDescSetAttribute",       "cublasLtMatrixLayoutInit",
        "cublasLtMatmulPreferenceInit", "cublasLtMatmulPreferenceSetAttribute", "cublasLtMatmulAlgoGetHeuristic",
        "cublasLtMatmul"};
    int64_t out = 1000, wide = 25; /* of products that are new */
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
        n = 0;
        for (fired = true; fired; ++n) { /* the same with gelu */
            TG_SCOPE;
            const network net = network_of(size_of(1, 4, 6, 8 * ++wide), PLAIN, TG_F32, true);
            tg_tensor *found[NET_RESULTS], *right[NET_RESULTS];
            cudasim_fail_call(call[i], n, 0);
            const bool ok = solve_network(&net, false, ALONE, found);
            fired = cudasim_failure_left() < 0;
            cudasim_fail_call("", -1, 0);
            CHECK(ok == !fired && tg_ok() == ok);
            tg_clear_error();
            CHECK(solve_network(&net, false, ALONE, found) && solve_network(&net, true, ALONE, right));
            for (int k = 0; k < NET_RESULTS; ++k) CHECK(agree(found[k], right[k], 4e-6));
        }
    }
    harness.sample = NULL;
}

/* Whatever the library answers where it is asked for an algorithm, the product is computed by other calls; only without
 * memory, and without a handle, it fails. */
TEST(refusals)
{
    enum { NOT_INITIALIZED = 1, ALLOC_FAILED = 3, INVALID_VALUE = 7, ARCH_MISMATCH = 8, INTERNAL = 14, NOT_SUPPORTED = 15 };
    static const struct { int status; bool fails; } answers[] = {{NOT_INITIALIZED, true},  {ALLOC_FAILED, true},
                                                                 {INVALID_VALUE, false},   {ARCH_MISMATCH, false},
                                                                 {INTERNAL, false},        {NOT_SUPPORTED, false}};
    int64_t wide = 600; /* of products that are new */
    for (size_t i = 0; i < sizeof answers / sizeof *answers; ++i) {
        for (int n = 0; n < 4; ++n) { /* forward with gelu, gradients with the sum for the bias, and so on */
            TG_SCOPE;
            const network net = network_of(size_of(1, 4, 6, 8 * ++wide), PLAIN, TG_F32, true);
            tg_tensor *found[NET_RESULTS], *right[NET_RESULTS];
            cudasim_fail_call("cublasLtMatmulAlgoGetHeuristic", n, answers[i].status);
            const bool ok = solve_network(&net, false, ALONE, found);
            CHECK(cudasim_failure_left() < 0);
            cudasim_fail_call("", -1, 0);
            CHECK(ok == !answers[i].fails && tg_ok() == ok);
            tg_clear_error();
            CHECK(solve_network(&net, true, ALONE, right));
            for (int k = 0; ok && k < NET_RESULTS; ++k) CHECK(agree(found[k], right[k], 4e-6));
        }
    }
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
    RUN(gelu_against_the_composed_rule);
    RUN(gelu_alone);
    RUN(gelu_twice);
    RUN(devices);
#ifdef CUDASIM
    RUN(calls);
    RUN(calls_with_gelu);
    RUN(plans);
    RUN(plans_of_another_thread);
    RUN(failures);
    RUN(refusals);
#endif
    CHECK(tg_shutdown() == TG_OK);
    return harness_end();
}
