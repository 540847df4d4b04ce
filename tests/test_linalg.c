/* Linear algebra: what factorizations promise, on matrices of many sizes, shapes and kinds; what samples.h, which has the
 * gradients, is too small for. */
#include "tensorgrad.h"
#include "harness.h"
#include "helpers.h"

static const int64_t sizes[] = {0, 1, 2, 3, 17, 64, 200};
enum { SIZES = (int)(sizeof sizes / sizeof sizes[0]) };
static bool is_small; /* SMALL=1: no matrices of 200 rows but in f64 on the CPU */

static tg_tensor *turned(tg_tensor *t) { return tg_transpose(t, -2, -1); }
static tg_tensor *one_like(tg_tensor *t, int64_t n) { return tg_eye_on(n, n, tg_dtype_of(t), HERE); }

/* Matrices [batch, m, n] of normal numbers. */
static tg_tensor *normal(int64_t batch, int64_t m, int64_t n, tg_dtype dtype)
{
    return tg_to_dtype(tg_randn_on(TG_SHAPE(batch, m, n), TG_F64, HERE), dtype);
}

/* The largest |a - b|, divided by the largest |b|, or 1. */
static double distance(tg_tensor *a, tg_tensor *b)
{
    TG_SCOPE;
    double size;
    if (!a || !b) return INFINITY;
    if (tg_numel(a) == 0) return tg_numel(b) == 0 ? 0 : INFINITY;
    size = tg_item(tg_max(tg_abs(b)));
    return tg_item(tg_max(tg_abs(tg_sub(a, b)))) / (size > 1 ? size : 1);
}

/* What rounding may do to n rows. */
static double tolerance(tg_dtype dtype, int64_t n) { return (dtype == TG_F64 ? 2e-15 : 1e-6) * (double)(n + 4); }

/* Calls check for each size and dtype with matrices [3, m, n], contiguous, transposed, expanded and with gaps, and with
   matrices that are not equally far apart. */
static void on_all(void (*check)(tg_tensor *a), bool square)
{
    int i, j, k, layout;
    for (k = 0; k < 2; ++k) {
        const tg_dtype dtype = k ? TG_F32 : TG_F64;
        for (i = 0; i < SIZES; ++i) {
            for (j = square ? i : 0; j < (square ? i + 1 : SIZES); ++j) {
                const int64_t m = sizes[i], n = sizes[j], most = m > n ? m : n;
                const bool huge = most > 64 && (k || is_small || HERE.type != TG_CPU.type || m != n);
                if (huge || (m != n && most > 17 && (m % 2 || n % 2))) continue;
                for (layout = 0; layout < (most > 17 ? 1 : 5); ++layout) {
                    TG_SCOPE;
                    tg_tensor *a = normal(most > 64 ? 1 : 3, m, n, dtype);
                    if (layout == 1) a = turned(tg_contiguous(turned(a)));
                    if (layout == 2) a = tg_expand(tg_unsqueeze(tg_narrow(a, 0, 0, 1), 0), TG_SHAPE(2, 2, m, n));
                    if (layout == 3) a = tg_slice(tg_repeat_interleave(a, 2, -1), -1, 0, 2 * n, 2);
                    if (layout == 4) a = tg_transpose(tg_stack(TG_LIST(a, tg_neg(a)), 0), 0, 1); /* uneven steps */
                    check(a);
                    CHECK(tg_ok());
                    tg_clear_error();
                }
            }
        }
    }
}

/* a is as near to b as rounding makes it. */
#define NEAR(a, b, n) CHECK(distance(a, b) <= tolerance(tg_dtype_of(b), n))

static void check_inverse(tg_tensor *a)
{
    const int64_t n = tg_dim(a, -1);
    tg_tensor *b = tg_add(a, tg_mul_scalar(one_like(a, n), 3 * (double)n)), *y = tg_linalg_inv(b), *size = NULL, *sign;
    NEAR(tg_sub(tg_matmul(b, y), one_like(a, n)), tg_zeros_like(a), n);
    NEAR(tg_matmul(b, tg_linalg_solve(b, a, true)), a, n);
    NEAR(tg_matmul(tg_linalg_solve(b, a, false), b), a, n);
    b = tg_div_scalar(b, 3 * (double)n + 1); /* with a determinant that is not too large */
    sign = tg_linalg_slogdet(b, &size);
    NEAR(tg_linalg_det(b), tg_mul(sign, tg_exp(size)), n);
}

static void check_lu(tg_tensor *a)
{
    const int64_t m = tg_dim(a, -2), n = tg_dim(a, -1), k = m < n ? m : n;
    tg_tensor *pivots = NULL, *lu = tg_linalg_lu_factor(a, &pivots), *l, *u, *product, *swapped;
    int64_t i;
    l = tg_add(tg_tril(tg_narrow(lu, -1, 0, k), -1), tg_eye_on(m, k, tg_dtype_of(a), HERE));
    u = tg_triu(tg_narrow(lu, -2, 0, k), 0);
    product = tg_flatten(tg_matmul(l, u), 0, -3);
    swapped = tg_clone(tg_flatten(a, 0, -3));
    pivots = tg_flatten(tg_to_dtype(pivots, TG_I64), 0, -2);
    for (i = 0; i < tg_dim(swapped, 0); ++i) { /* the exchanges, one by one */
        int64_t r;
        for (r = 0; r < k; ++r) {
            const int64_t with = (int64_t)tg_get(pivots, TG_SHAPE(i, r)) - 1;
            tg_tensor *one = tg_select(swapped, 0, i), *row = tg_clone(tg_select(one, 0, r));
            CHECK(with >= r && with < m);
            tg_copy_(tg_select(one, 0, r), tg_select(one, 0, with));
            tg_copy_(tg_select(one, 0, with), row);
        }
    }
    NEAR(product, swapped, m + n);
    CHECK(tg_numel(l) == 0 || tg_item(tg_max(tg_abs(l))) == 1); /* the largest of each column is the pivot */
}

static void check_cholesky(tg_tensor *a)
{
    const int64_t n = tg_dim(a, -1);
    tg_tensor *b = tg_add(tg_matmul(a, turned(a)), one_like(a, n)), *l = tg_linalg_cholesky(b, false);
    NEAR(tg_matmul(l, turned(l)), b, n);
    CHECK(distance(tg_triu(l, 1), tg_zeros_like(l)) == 0);
    NEAR(turned(tg_linalg_cholesky(b, true)), l, n);
    NEAR(tg_matmul(b, tg_cholesky_solve(a, l, false)), a, 40 * n);
}

static void check_qr(tg_tensor *a)
{
    const int64_t m = tg_dim(a, -2), n = tg_dim(a, -1);
    int complete;
    for (complete = 0; complete < 2; ++complete) {
        tg_tensor *r = NULL, *q = tg_linalg_qr(a, complete ? "complete" : NULL, &r);
        const int64_t k = complete || m < n ? m : n;
        CHECK(tg_dim(q, -1) == k && tg_dim(r, -2) == k);
        NEAR(tg_matmul(q, r), tg_contiguous(a), m + n);
        NEAR(tg_sub(tg_matmul(turned(q), q), one_like(q, k)), tg_zeros_like(tg_matmul(turned(q), q)), m + n);
        CHECK(distance(tg_tril(r, -1), tg_zeros_like(r)) == 0);
    }
}

/* Whether t rises (sign 1) or falls (-1) along its last dim. */
static bool in_order(tg_tensor *t, double sign)
{
    const int64_t n = tg_dim(t, -1);
    if (n < 2 || tg_numel(t) == 0) return true;
    return tg_item(tg_all(tg_ge_scalar(
               tg_mul_scalar(tg_sub(tg_narrow(t, -1, 1, n - 1), tg_narrow(t, -1, 0, n - 1)), sign), 0))) != 0;
}

static void check_eigh(tg_tensor *a)
{
    const int64_t n = tg_dim(a, -1);
    tg_tensor *b = tg_add(a, turned(a)), *v = NULL, *l = tg_linalg_eigh(b, NULL, &v);
    NEAR(tg_matmul(tg_mul(v, tg_unsqueeze(l, -2)), turned(v)), tg_contiguous(b), 4 * n);
    NEAR(tg_sub(tg_matmul(turned(v), v), one_like(v, n)), tg_zeros_like(v), 4 * n);
    NEAR(tg_linalg_eigvalsh(b, "U"), l, 4 * n);
    CHECK(in_order(l, 1));
}

static void check_svd(tg_tensor *a)
{
    const int64_t m = tg_dim(a, -2), n = tg_dim(a, -1), k = m < n ? m : n;
    int full;
    for (full = 0; full < 2; ++full) {
        tg_tensor *s = NULL, *vh = NULL, *u = tg_linalg_svd(a, full != 0, &s, &vh);
        tg_tensor *part = tg_mul(tg_narrow(u, -1, 0, k), tg_unsqueeze(s, -2));
        CHECK(tg_dim(u, -1) == (full ? m : k) && tg_dim(vh, -2) == (full ? n : k));
        NEAR(tg_matmul(part, tg_narrow(vh, -2, 0, k)), tg_contiguous(a), 4 * (m + n));
        NEAR(tg_sub(tg_matmul(turned(u), u), one_like(u, tg_dim(u, -1))), tg_zeros_like(tg_matmul(turned(u), u)),
             4 * (m + n));
        NEAR(tg_sub(tg_matmul(vh, turned(vh)), one_like(u, tg_dim(vh, -2))), tg_zeros_like(tg_matmul(vh, turned(vh))),
             4 * (m + n));
        CHECK(in_order(s, -1));
        NEAR(tg_linalg_svdvals(a), s, m + n);
    }
}

/* The four equations of Penrose. */
static void check_pinv(tg_tensor *a)
{
    const int64_t m = tg_dim(a, -2), n = tg_dim(a, -1), most = 1000 * (m + n); /* the condition of a is some hundred */
    tg_tensor *p = tg_linalg_pinv(a, -1, -1, false), *ap = tg_matmul(a, p), *pa = tg_matmul(p, a);
    NEAR(tg_matmul(ap, a), tg_contiguous(a), most);
    NEAR(tg_matmul(pa, p), p, most);
    NEAR(turned(ap), ap, most);
    NEAR(turned(pa), pa, most);
}

TEST(inverses_and_solutions) { on_all(check_inverse, true); }
TEST(lu_factors) { on_all(check_lu, false); }

/* Pivots that are one out of two in memory, or expanded, are taken like those side by side; one outside is an error. */
TEST(pivots_in_any_layout)
{
    tg_tensor *a = normal(3, 5, 5, TG_F64), *b = normal(3, 5, 2, TG_F64), *pivots = NULL, *lu, *gaps;
    lu = tg_linalg_lu_factor(a, &pivots);
    gaps = tg_slice(tg_repeat_interleave(pivots, 2, -1), -1, 0, 10, 2);
    for (int way = 0; way < 4; ++way) {
        tg_tensor *side = way & 1 ? b : turned(b), *y = tg_linalg_lu_solve(lu, pivots, side, way & 1, way & 2);
        CHECK(distance(y, way & 1 ? tg_linalg_solve(way & 2 ? turned(a) : a, b, true)
                                  : tg_linalg_solve(way & 2 ? turned(a) : a, side, false)) < 1e-10);
        CHECK(tg_equal(tg_linalg_lu_solve(lu, gaps, side, way & 1, way & 2), y));
    }
    lu = tg_expand(tg_narrow(lu, 0, 1, 1), TG_SHAPE(3, 5, 5));
    pivots = tg_expand(tg_narrow(pivots, 0, 1, 1), TG_SHAPE(3, 5));
    CHECK(distance(tg_linalg_lu_solve(lu, pivots, b, true, false), tg_linalg_solve(tg_narrow(a, 0, 1, 1), b, true)) < 1e-10);
    for (int wrong = 0; wrong < 7; wrong += 6) {
        tg_tensor *bad = tg_full_on(TG_SHAPE(3, 5), wrong, TG_I32, HERE);
        CHECK_FAILS(tg_linalg_lu_solve(lu, bad, b, true, false), "out of bounds");
    }
}
TEST(cholesky_factors) { on_all(check_cholesky, true); }
TEST(qr_factors) { on_all(check_qr, false); }
TEST(eigenvectors) { on_all(check_eigh, true); }
TEST(singular_vectors) { on_all(check_svd, false); }
TEST(pseudoinverses) { on_all(check_pinv, false); }

/* a [n, n] without row i and column j */
static tg_tensor *minor_of(tg_tensor *a, int64_t i, int64_t j)
{
    const int64_t n = tg_dim(a, 0);
    a = tg_cat(TG_LIST(tg_narrow(a, 0, 0, i), tg_narrow(a, 0, i + 1, n - 1 - i)), 0);
    return tg_cat(TG_LIST(tg_narrow(a, 1, 0, j), tg_narrow(a, 1, j + 1, n - 1 - j)), 1);
}

/* Matrices [7, n, n] that are regular, but for: 1 a column of zeros, 2 and 3 a column or row that is in it twice, 4 both
   of these, of rank n - 2 if they are not one and the same, 5 nothing but zeros, 6 zeros above and on the diagonal. */
static tg_tensor *of_all_ranks(int64_t n, tg_dtype dtype)
{
    tg_tensor *a = tg_mul_scalar(normal(7, n, n, TG_F64), n < 9 ? 3 : 1 / sqrt((double)n));
    if (n < 9) a = tg_floor(a); /* pivots that are 0 without rounding */
    tg_fill_(tg_select(tg_select(a, 0, 1), 1, 0), 0);
    if (n > 1) {
        tg_copy_(tg_select(tg_select(a, 0, 2), 1, 1), tg_select(tg_select(a, 0, 2), 1, 0));
        tg_copy_(tg_select(tg_select(a, 0, 3), 0, n - 1), tg_select(tg_select(a, 0, 3), 0, 0));
        tg_copy_(tg_select(tg_select(a, 0, 4), 1, 1), tg_select(tg_select(a, 0, 4), 1, 0));
        tg_fill_(tg_select(tg_select(a, 0, 4), 0, n / 2), 0);
    }
    tg_fill_(tg_select(a, 0, 5), 0);
    tg_copy_(tg_select(a, 0, 6), tg_tril(tg_select(a, 0, 6), -1));
    return tg_to_dtype(a, dtype);
}

/* The gradient of a determinant has the determinants of all minors, also where it is 0 itself; only with a graph backward
   waits for the device. */
TEST(cofactors)
{
    static const int64_t rows[] = {1, 2, 3, 5, 20};
    int64_t k, b, i, j;
    for (k = 0; k < 20; ++k) {
        TG_SCOPE;
        const int64_t n = rows[k / 4];
        tg_tensor *a = of_all_ranks(n, k & 1 ? TG_F32 : TG_F64), *y, *grad, *again;
        int64_t waits;
        a = tg_set_requires_grad(k & 2 ? turned(tg_contiguous(turned(a))) : a, true);
        y = tg_sum(tg_linalg_det(a));
        again = NULL;
        CHECK(tg_gradients(TG_LIST(y), NULL, TG_LIST(a), &again, TG_CREATE_GRAPH) == TG_OK);
        waits = tg_stats_on(HERE).waits;
        tg_backward(y);
        CHECK(tg_stats_on(HERE).waits == waits);
        grad = tg_grad(a);
        for (b = 0; b < 7; ++b) {
            tg_tensor *wanted = tg_zeros_on(TG_SHAPE(n, n), TG_F64, HERE);
            for (i = 0; i < n; ++i) {
                for (j = 0; j < n; ++j) {
                    tg_tensor *minor = minor_of(tg_to_dtype(tg_select(tg_detach(a), 0, b), TG_F64), i, j);
                    tg_set(wanted, TG_SHAPE(i, j), ((i + j) % 2 ? -1 : 1) * tg_item(tg_linalg_det(minor)));
                }
            }
            wanted = tg_to_dtype(wanted, tg_dtype_of(a));
            NEAR(tg_select(grad, 0, b), wanted, n);
            NEAR(tg_select(again, 0, b), wanted, 20 * n);
        }
        CHECK(tg_ok());
    }
}

/* The gradient of sum(v * g), where g is the gradient of the determinants of a. */
static tg_tensor *curvature(tg_tensor *a, tg_tensor *v)
{
    tg_tensor *y, *g = NULL, *h = NULL;
    a = tg_set_requires_grad(tg_clone(tg_detach(a)), true);
    y = tg_sum(tg_linalg_det(a));
    CHECK(tg_gradients(TG_LIST(y), NULL, TG_LIST(a), &g, TG_CREATE_GRAPH) == TG_OK);
    y = tg_sum(tg_mul(g, v));
    CHECK(tg_gradients(TG_LIST(y), NULL, TG_LIST(a), &h, 0) == TG_OK);
    return h;
}

/* Of 3 rows the second derivatives of a determinant are linear: those of a are the mean of those of a + b and a - b.  The
   matrices of a have the ranks 1, 0, 2 and 3.  A large one with determinant 0 has its recorded gradient in another way. */
TEST(second_derivatives_of_determinants)
{
    tg_tensor *a = f64("[[[1, 1, 1], [1, 1, 1], [1, 1, 1]], [[0, 0, 0], [0, 0, 0], [0, 0, 0]], "
                       "[[1, 2, 3], [4, 5, 6], [5, 7, 9]], [[2, 0, 1], [0, 3, 0], [1, 0, 4]]]");
    tg_tensor *b = normal(4, 3, 3, TG_F64), *v = normal(4, 3, 3, TG_F64), *large, *y, *g = NULL;
    tg_tensor *wanted = tg_mul_scalar(tg_add(curvature(tg_add(a, b), v), curvature(tg_sub(a, b), v)), 0.5);
    CHECK(distance(curvature(a, v), wanted) < 1e-12);
    large = normal(1, 40, 40, TG_F64);
    tg_fill_(tg_select(large, -1, 7), 0);
    large = tg_set_requires_grad(large, true);
    y = tg_sum(tg_linalg_det(large));
    CHECK(tg_gradients(TG_LIST(y), NULL, TG_LIST(large), &g, TG_CREATE_GRAPH) == TG_OK);
    tg_backward(y);
    NEAR(g, tg_grad(large), 400);
}

/* Matrices on which simpler methods fail: the factorizations of check_* hold for them, too. */
TEST(hard_matrices)
{
    int i;
    for (i = 0; i < 9; ++i) {
        TG_SCOPE;
        const int64_t n = 12;
        tg_tensor *a = normal(1, n, n, TG_F64), *step = tg_arange_on(0, (double)n, 1, TG_F64, HERE), *q;
        tg_tensor *row = tg_unsqueeze(step, 1), *sum = tg_add(row, step);
        if (i == 0) a = tg_reciprocal(tg_add_scalar(sum, 1));                /* Hilbert's: condition 1e16 */
        if (i == 1) a = tg_zeros_like(a);
        if (i == 2) a = tg_ones_like(a);                                     /* rank 1 */
        if (i == 3) a = tg_mul(a, tg_exp(tg_mul_scalar(row, -6)));           /* rows down to 1e-29 */
        if (i == 4) a = tg_mul_scalar(a, 1e-300);
        if (i == 5) a = tg_mul_scalar(a, 1e300);
        if (i == 6) a = tg_eye_on(n, n, TG_F64, HERE);                       /* all values equal */
        if (i == 7) a = tg_triu(tg_ones_like(a), 0);                         /* bidiagonal sweeps over equal numbers */
        if (i == 8) {                                                        /* Wilkinson's: pairs of near values */
            tg_tensor *near = tg_eq_scalar(tg_abs(tg_sub(row, step)), 1);
            a = tg_add(tg_diag(tg_abs(tg_sub_scalar(step, 5.5)), 0), tg_to_dtype(near, TG_F64));
        }
        a = tg_reshape(a, TG_SHAPE(n, n));
        check_lu(tg_unsqueeze(a, 0));
        if (i != 4 && i != 5) check_eigh(a); /* NEAR is for numbers that can be squared */
        q = tg_max(tg_abs(a));
        if (tg_item(q) > 0) a = tg_div(a, q);
        check_qr(a);
        check_eigh(a);
        check_svd(a);
        CHECK(tg_ok());
    }
}

/* The squares of these numbers overflow, or vanish; the results do neither. */
TEST(numbers_that_are_scaled)
{
    int i;
    for (i = 0; i < 2; ++i) {
        TG_SCOPE;
        const double scale = i ? 1e300 : 1e-300;
        tg_tensor *a = normal(2, 5, 5, TG_F64), *b = tg_mul_scalar(a, scale), *r = NULL, *r_of_b = NULL;
        tg_tensor *symmetric = tg_add(a, turned(a));
        tg_tensor *q_of_b = tg_linalg_qr(b, NULL, &r_of_b), *q = tg_linalg_qr(a, NULL, &r);
        NEAR(tg_mul_scalar(tg_linalg_svdvals(b), 1 / scale), tg_linalg_svdvals(a), 5);
        NEAR(tg_mul_scalar(tg_linalg_eigvalsh(tg_mul_scalar(symmetric, scale), NULL), 1 / scale),
             tg_linalg_eigvalsh(symmetric, NULL), 5);
        NEAR(q_of_b, q, 5);
        NEAR(tg_mul_scalar(r_of_b, 1 / scale), r, 5);
    }
}

/* What is infinite or NaN ends: as an error where values are searched, else as NaN. */
TEST(numbers_that_are_not_finite)
{
    const double odd[] = {(double)INFINITY, -(double)INFINITY, (double)NAN};
    int i;
    for (i = 0; i < 3; ++i) {
        TG_SCOPE;
        tg_tensor *a = normal(1, 9, 9, TG_F64), *r = NULL;
        tg_set(a, TG_SHAPE(0, 4, 2), odd[i]);
        a = tg_select(a, 0, 0);
        CHECK(tg_linalg_eigh(a, NULL, NULL) == NULL);
        harness_fails("contained non-finite values", "eigh", __FILE__, __LINE__);
        CHECK(tg_linalg_svdvals(a) == NULL);
        harness_fails("contained non-finite values", "svdvals", __FILE__, __LINE__);
        CHECK(tg_linalg_pinv(a, -1, -1, false) == NULL);
        harness_fails("contained non-finite values", "pinv", __FILE__, __LINE__);
        CHECK(isnan(tg_item(tg_sum(tg_linalg_qr(a, NULL, &r)))));
        CHECK(isnan(tg_item(tg_sum(r))));
        CHECK(tg_linalg_lu_factor(a, NULL) && tg_linalg_inv(a) && tg_linalg_solve(a, tg_ones_like(a), true));
        CHECK(isnan(tg_item(tg_sum(tg_linalg_matrix_exp(a)))));
        CHECK(isnan(tg_item(tg_linalg_det(a))) || isinf(tg_item(tg_linalg_det(a))));
        CHECK(tg_ok());
    }
}

/* One singular matrix in many: its number is in the message, and nothing is left behind. */
TEST(one_singular_matrix)
{
    tg_stats_info before = tg_stats();
    {
        TG_SCOPE;
        tg_tensor *a = tg_add(normal(100, 4, 4, TG_F32), tg_mul_scalar(tg_eye_on(4, 4, TG_F32, HERE), 9));
        tg_fill_(tg_select(a, 0, 77), 1);
        CHECK(tg_linalg_inv(a) == NULL);
        harness_fails("(Batch element 77): The diagonal element 2 is zero", "inv", __FILE__, __LINE__);
        CHECK(tg_linalg_solve(a, tg_ones_like(a), true) == NULL);
        harness_fails("(Batch element 77): The solver failed", "solve", __FILE__, __LINE__);
        tg_fill_(tg_select(a, 0, 5), 0);
        CHECK(tg_linalg_cholesky(a, false) == NULL);
        harness_fails("(Batch element ", "cholesky", __FILE__, __LINE__);
        CHECK(isinf(tg_get(tg_linalg_cond(a, "1"), TG_SHAPE(77))) && tg_ok());
    }
    CHECK(tg_stats().tensors == before.tensors && tg_stats().bytes == before.bytes && tg_stats().nodes == before.nodes);
}

/* What an output that is not asked for takes does not stay; and what is handed out lives as long as its scope. */
/* lstsq is what the pseudoinverse says, with its gradients, whether or not some of the singular values are negligible:
   by themselves (kind 1, in one matrix of the batch), or because rcond is large (kind 2). */
TEST(least_squares)
{
    int i;
    for (i = 0; i < 2 * 3 * 3; ++i) {
        TG_SCOPE;
        const tg_dtype dtype = i % 2 ? TG_F32 : TG_F64;
        const int kind = i / 2 % 3;
        const int64_t n = i / 6 == 0 ? 3 : 17, m = i / 6 == 2 ? 17 : n + 5;
        const double rcond = kind == 2 ? 0.4 : -1;
        tg_tensor *a = normal(2, m, n, dtype), *b = normal(2, m, 4, dtype), *ga[2], *rank = NULL, *residuals = NULL;
        tg_tensor *x, *y, *g = normal(2, n, 4, dtype), *s = tg_linalg_svdvals(a);
        const double spread = tg_item(tg_max(tg_div(tg_amax_dim(s, 1, false), tg_amin_dim(s, 1, false))));
        const double near = tolerance(dtype, m) * 20 * spread * spread;
        if (kind == 1) tg_copy_(tg_select(tg_select(a, 0, 1), 1, 0), tg_select(tg_select(a, 0, 1), 1, 1));
        a = tg_set_requires_grad(tg_detach(a), true);
        x = tg_linalg_lstsq(a, b, rcond, &residuals, &rank);
        y = tg_matmul(tg_linalg_pinv(a, -1, rcond, false), b);
        CHECK(distance(tg_detach(x), tg_detach(y)) < near);
        CHECK(tg_equal(rank, tg_linalg_matrix_rank(a, -1, rcond, false)));
        CHECK((tg_numel(residuals) > 0) == (m > n && tg_item_i64(tg_min(rank)) == n));
        CHECK(tg_equal(tg_detach(x), tg_linalg_lstsq(tg_detach(a), b, rcond, NULL, NULL)));
        CHECK(tg_gradients(&x, 1, &g, &a, 1, &ga[0], 0) == TG_OK && tg_gradients(&y, 1, &g, &a, 1, &ga[1], 0) == TG_OK);
        CHECK(kind == 1 || distance(ga[0], ga[1]) < near * spread);
        CHECK(tg_ok());
    }
}

TEST(outputs_that_are_not_wanted)
{
    TG_SCOPE;
    tg_tensor *a = normal(2, 3, 3, TG_F64), *s = NULL, *vh = NULL, *rank = NULL, *residuals = NULL, *b;
    int64_t tensors;
    tg_set_requires_grad(a, true);
    tensors = tg_stats().tensors;
    b = tg_linalg_svd(a, false, NULL, NULL);
    CHECK(b && tg_stats().tensors - tensors <= 4); /* and what the node saves */
    tg_backward(tg_sum(tg_square(tg_linalg_svdvals(a))));
    NEAR(tg_grad(a), tg_mul_scalar(tg_detach(a), 2), 10); /* the sum of the squares of a */
    b = tg_linalg_svd(a, false, &s, &vh);
    CHECK(tg_requires_grad(b) && tg_requires_grad(s) && tg_requires_grad(vh));
    b = tg_linalg_lstsq(a, tg_ones_like(a), -1, &residuals, &rank);
    CHECK(tg_requires_grad(b) && !tg_requires_grad(rank) && tg_numel(residuals) == 0);
    CHECK(tg_linalg_eigh(tg_detach(a), NULL, NULL) && tg_ok());
}

/* Matrices that are moved to f32 by TG_AUTOCAST, and products that are not rounded on the way. */
TEST(mixed_precision)
{
    TG_SCOPE;
    tg_tensor *a = tg_to_dtype(tg_add(normal(2, 4, 4, TG_F32), tg_mul_scalar(tg_eye_on(4, 4, TG_F32, HERE), 6)), TG_BF16);
    tg_tensor *wide = tg_to_dtype(a, TG_F32), *b = tg_ones_on(TG_SHAPE(4, 1), TG_BF16, HERE);
    {
        TG_AUTOCAST(TG_BF16);
        NEAR(tg_linalg_inv(a), tg_linalg_inv(wide), 4);
        NEAR(tg_linalg_pinv(a, -1, -1, false), tg_linalg_inv(wide), 40);
        NEAR(tg_linalg_matrix_power(a, 3), tg_linalg_matrix_power(wide, 3), 4);
        NEAR(tg_linalg_solve(a, b, true), tg_linalg_solve(wide, tg_to_dtype(b, TG_F32), true), 4);
    }
    CHECK(tg_linalg_inv(a) == NULL);
    harness_fails("Low precision dtypes not supported. Got bf16", "inv", __FILE__, __LINE__);
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    harness_take_device();
    is_small = getenv("SMALL") != NULL;
    tg_seed(7);
    RUN(inverses_and_solutions);
    RUN(lu_factors);
    RUN(pivots_in_any_layout);
    RUN(cholesky_factors);
    RUN(qr_factors);
    RUN(eigenvectors);
    RUN(singular_vectors);
    RUN(pseudoinverses);
    RUN(cofactors);
    RUN(second_derivatives_of_determinants);
    RUN(hard_matrices);
    RUN(numbers_that_are_scaled);
    RUN(numbers_that_are_not_finite);
    RUN(one_singular_matrix);
    RUN(least_squares);
    RUN(outputs_that_are_not_wanted);
    RUN(mixed_precision);
    CHECK(tg_shutdown() == TG_OK);
    return harness_end();
}
