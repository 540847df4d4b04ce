/* Reductions, extremes with their indices, running sums, softmax and indexing along a dim, in rows and columns of
 * sizes that cross the blocks and tiles of the CPU's kernels, against the plain backend.  Numbers are small integers
 * with ties, whose sums a float holds exactly, and some are NaN: but for softmax, a result is right to the last bit or
 * wrong.  At the end ops on every integer of 8 and 16 bits, the gradient of a table, and grid_sample. */
#include "tensorgrad.h"
#include "helpers.h"

static const tg_dtype dtypes[] = {TG_F32, TG_F64, TG_BF16, TG_F16, TG_I64, TG_I32, TG_U8, TG_I8, TG_I16, TG_BOOL};

/* [outer, n, inner]: dim 1 is a row of contiguous elements where inner is 1; else rows lie side by side. */
static const int64_t shapes[][3] = {{40, 1, 1}, {70, 2, 1},  {45, 7, 1}, {3, 31, 1}, {70, 32, 1},
                                    {9, 33, 1}, {5, 70, 1},  {2, 650, 1}, {1, 0, 9}, {2, 1, 33},
                                    {2, 2, 8},  {3, 7, 9},   {2, 8, 31}, {1, 9, 64}, {2, 70, 33},
                                    {1, 300, 40}, {3, 5, 3}, {1, 17, 600}, {13, 8, 4},
                                    {2, 301, 8}, {3, 75, 2}, {2, 33, 16}, {3, 2, 40},
                                    {40, 70, 1}, {9, 128, 1}, {33, 64, 1}, {2, 96, 16},
                                    {40, 2, 2}, {100, 7, 3}, {33, 32, 3}};
enum { SHAPES = sizeof shapes / sizeof *shapes, DTYPES = sizeof dtypes / sizeof *dtypes };

/* Integers from 0 to 4, or from -2 to 2 where the dtype has them; `missing` is the part of NaN among floats. */
static tg_tensor *integers(const int64_t *dim, tg_dtype dtype, double missing)
{
    const bool with_sign = dtype != TG_U8 && dtype != TG_BOOL;
    const tg_shape shape = TG_SHAPE(dim[0], dim[1], dim[2]);
    tg_tensor *x = tg_floor(tg_mul_scalar(tg_rand_on(shape, TG_F32, HERE), 5));
    if (with_sign) x = tg_add_scalar(x, -2);
    if (tg_is_floating_point(dtype))
        x = tg_masked_fill(x, tg_lt_scalar(tg_rand_on(shape, TG_F32, HERE), missing), (double)NAN);
    return tg_to_dtype(x, dtype);
}

enum { SUM, PROD, ANY, ALL, CUMSUM, AMAX, AMIN, MAX_DIM, MIN_DIM, ARGMAX, ARGMIN, SORT, DESCENDING, TOPK, CUMMAX,
       CUMMIN, KTHVALUE, MEDIAN, FLIP, FLIP_OTHERS, ROT90, INDEX_REDUCE, OPS };

/* Slices 2 i and 2 i + 1 of x along dim 0, and slice i, become slice i, the largest of them. */
static tg_tensor *largest_of_pairs(tg_tensor *x)
{
    const int64_t n = tg_dim(x, 0);
    tg_tensor *half = tg_mul_scalar(tg_arange_on(0, (double)n, 1, TG_F32, tg_device_of(x)), 0.5);
    return tg_index_reduce(x, 0, tg_to_dtype(half, TG_I64), x, "amax", true);
}

static tg_tensor *along(int op, tg_tensor *x, tg_tensor **indices)
{
    *indices = NULL;
    switch (op) {
    case SUM: return tg_sum_dim(x, 1, false);
    case PROD:
        if (tg_dtype_of(x) == TG_U8) return tg_prod_dim(x, 1, false);
        return tg_prod_dim(tg_add_scalar(tg_mul_scalar(tg_eq_scalar(x, 0), 2), -1), 1, false); /* of 1 and -1 */
    case ANY: return tg_any_dim(x, 1, false);
    case ALL: return tg_all_dim(x, 1, false);
    case CUMSUM: return tg_cumsum(x, 1);
    case AMAX: return tg_amax_dim(x, 1, false);
    case AMIN: return tg_amin_dim(x, 1, false);
    case MAX_DIM: return tg_max_dim(x, 1, false, indices);
    case MIN_DIM: return tg_min_dim(x, 1, false, indices);
    case ARGMAX: return tg_argmax(x, 1, false);
    case SORT: return tg_sort(x, 1, false, indices);
    case DESCENDING: return tg_sort(x, 1, true, indices);
    case TOPK: return tg_topk(x, 1, 1, true, indices);
    case CUMMAX: return tg_cummax(x, 1, indices);
    case CUMMIN: return tg_cummin(x, 1, indices);
    case KTHVALUE: return tg_kthvalue(x, (tg_dim(x, 1) + 1) * 2 / 3, 1, false, indices);
    case MEDIAN: return tg_nanmedian_dim(x, 1, false, indices);
    case FLIP: return tg_flip(x, TG_DIMS(1));
    case FLIP_OTHERS: return tg_flip(x, TG_DIMS(0, 2));
    case ROT90: return tg_rot90(x, 3, TG_DIMS(1, 0));
    case INDEX_REDUCE: return largest_of_pairs(x);
    default: return tg_argmin(x, 1, false);
    }
}

/* NaN becomes a number that is no result, since it is equal to nothing. */
static tg_tensor *without_nan(tg_tensor *t)
{
    return tg_is_floating_point(tg_dtype_of(t)) ? tg_masked_fill(t, tg_isnan(t), 12345) : t;
}

/* What op gives of x is wanted, with the indices if it has any. */
static bool gives(int op, tg_tensor *x, tg_tensor *wanted, tg_tensor *wanted_indices)
{
    tg_tensor *indices, *y = along(op, x, &indices);
    return is_exactly(without_nan(y), wanted) && (!indices || is_exactly(indices, wanted_indices));
}

TEST(along_a_dim)
{
    for (int i = 0; i < SHAPES * DTYPES; ++i) {
        TG_SCOPE;
        const int64_t *const dim = shapes[i % SHAPES];
        const tg_dtype dtype = dtypes[i / SHAPES];
        tg_tensor *x = integers(dim, dtype, 0.003), *indices;
        tg_tensor *strided = tg_transpose(tg_contiguous(tg_transpose(x, 0, 1)), 0, 1);
        for (int op = 0; op < OPS; ++op) {
            if (dim[1] == 0 && op >= AMAX) continue;
            if (dtype == TG_BOOL && (op == PROD || op == INDEX_REDUCE)) continue;
            oracle_begin();
            tg_tensor *wanted = without_nan(along(op, copy_here(x), &indices));
            oracle_end();
            const bool right = CHECK(gives(op, x, wanted, indices)), also = CHECK(gives(op, strided, wanted, indices));
            if (right && also) continue;
            printf("    op %d of [%d, %d, %d] %s%s\n", op, (int)dim[0], (int)dim[1], (int)dim[2], tg_dtype_name(dtype),
                   right ? ", strided" : "");
        }
    }
}

/* Of one element a norm is its absolute value, most other reductions are the element; 0 + -0 is 0. */
TEST(reductions_of_one)
{
    const double powers[] = {2, 3, 0.5, 1, (double)INFINITY, -(double)INFINITY, -2};
    const double numbers[] = {-3, 0, -0.0, (double)NAN, -(double)INFINITY, 1e30};
    const double positive[] = {3, 0, 0, 12345, (double)INFINITY, 1e30};
    for (int d = 0; d < 2; ++d) {
        const tg_dtype dtype = dtypes[d];
        tg_tensor *x = tg_to_dtype(tg_from_on(numbers, TG_SHAPE(6, 1), TG_F64, HERE), dtype), *sizes, *count;
        sizes = tg_to_dtype(tg_from_on(positive, TG_SHAPE(6), TG_F64, HERE), dtype);
        for (int k = 0; k < 7; ++k) {
            CHECK(is_exactly(without_nan(tg_norm_dim(x, powers[k], 1, false)), sizes));
            tg_tensor *y = tg_norm_dim(tg_t(x), powers[k], 0, true);
            CHECK(tg_ndim(y) == 2 && tg_dim(y, 0) == 1 && is_exactly(without_nan(tg_squeeze(y, 0)), sizes));
            CHECK(tg_item(tg_norm_dims(tg_full_on(TG_SCALAR, -2, dtype, HERE), powers[k], TG_SCALAR, false)) == 2);
            tg_tensor *leaf_ = tg_set_requires_grad(tg_full_on(TG_SHAPE(3, 1), -2, dtype, HERE), true);
            CHECK(tg_backward(tg_sum(tg_norm_dim(leaf_, powers[k], -1, false))) == TG_OK);
            CHECK(is_exactly(tg_grad(leaf_), tg_full_on(TG_SHAPE(3, 1), -1, dtype, HERE)));
        }
        count = tg_norm_dim(x, 0, 1, false);
        CHECK(tg_item(tg_sum(count)) == 4 && tg_get(count, TG_INDEX(2)) == 0);
        tg_tensor *zero = tg_full_on(TG_SHAPE(5, 1), -0.0, dtype, HERE);
        CHECK(tg_item(tg_any(tg_signbit(tg_sum_dim(zero, 1, false)))) == 0);
        CHECK(tg_item(tg_all(tg_signbit(tg_amax_dim(zero, 1, false)))) == 1);
        CHECK(tg_item(tg_all(tg_signbit(tg_sort(zero, 1, false, NULL)))) == 1);
        CHECK(tg_item(tg_any(tg_any_dim(zero, 1, false))) == 0);
        CHECK(tg_item(tg_any(tg_signbit(tg_cumsum(zero, 1)))) == 0);
        CHECK(tg_item(tg_all(tg_signbit(tg_cumprod(zero, 1)))) == 1);
        tg_tensor *ones = tg_to_dtype(tg_eq(x, x), dtype); /* of numbers, and NaN of infinity and NaN */
        ones = tg_masked_fill(ones, tg_logical_not(tg_isfinite(x)), (double)NAN);
        CHECK(is_exactly(without_nan(tg_softmax(x, 1)), without_nan(ones)));
        CHECK(is_exactly(without_nan(tg_log_softmax(x, 1)), without_nan(tg_add_scalar(ones, -1))));
        CHECK(tg_item(tg_any(tg_signbit(tg_log_softmax(zero, 1)))) == 0);
    }
}

/* Copies of short rows that have gaps between them, of each number of bytes that has moves of its own; also the last
 * row first. */
TEST(copies_of_short_rows)
{
    for (int64_t n = 1; n < 20; ++n) {
        for (int d = 0; d < DTYPES; ++d) {
            TG_SCOPE;
            const int64_t dim[3] = {1, 37, n + 1};
            tg_tensor *x = tg_narrow(integers(dim, dtypes[d], 0), 2, 1, n);
            oracle_begin();
            tg_tensor *u = copy_here(x), *wanted = tg_flip(u, TG_DIMS(1));
            oracle_end();
            CHECK(is_exactly(tg_contiguous(x), u) && is_exactly(tg_flip(x, TG_DIMS(1)), wanted));
            CHECK(is_exactly(tg_flip(tg_contiguous(x), TG_DIMS(1)), wanted));
        }
    }
}

/* The mode of a row is the smallest of the elements that occur most often, and its index that of the last of them; NaN
 * is equal to nothing. */
TEST(modes_of_rows)
{
    static const int64_t lengths[] = {1, 2, 3, 8, 9, 40, 300};
    for (int i = 0; i < 4 * 7; ++i) {
        TG_SCOPE;
        const int64_t n = lengths[i % 7], dim[3] = {1, 9, n};
        tg_tensor *x = tg_squeeze(integers(dim, dtypes[i / 7], 0.1), 0), *index = NULL;
        tg_tensor *y = tg_mode(x, 1, false, &index);
        for (int64_t row = 0; row < 9; ++row) {
            int64_t most = 0, wanted = 0;
            double mode = 0;
            for (int64_t k = 0; k < n; ++k) {
                const double here = tg_get(x, TG_INDEX(row, k));
                int64_t count = 0, last = k;
                for (int64_t j = 0; j < n; ++j) {
                    if (tg_get(x, TG_INDEX(row, j)) == here) ++count, last = j;
                }
                count = here == here ? count : 1;
                if (count < most || (count == most && !(here < mode || mode != mode))) continue;
                if (count == most && here != here) continue;
                most = count, mode = here, wanted = last;
            }
            const double found = tg_get(y, TG_INDEX(row));
            CHECK(found == mode || (found != found && mode != mode));
            CHECK(tg_get(index, TG_INDEX(row)) == (double)wanted);
        }
    }
}

/* The gradient of running products of numbers, of some that are 0, tiny or large, in f64, and of f32 beside it. */
TEST(gradients_of_running_products)
{
    enum { N = 9 };
    static const double special[] = {1, 0, 1e-30, 1e35, -1e-12};
    for (int i = 0; i < 2 * 5 * 2; ++i) {
        TG_SCOPE;
        const tg_dtype dtype = i % 2 ? TG_F32 : TG_F64;
        tg_tensor *x = tg_randn_on(TG_SHAPE(3, N), TG_F32, HERE), *dx = NULL;
        tg_tensor *g = tg_randn_on(TG_SHAPE(3, N), dtype, HERE);
        for (int64_t row = 0; row < 2; ++row) tg_set(x, TG_INDEX(row, 4 + row), special[i / 2 % 5]);
        x = tg_to_dtype(x, dtype);
        if (i / 10) x = tg_t(tg_contiguous(tg_t(x)));
        x = tg_set_requires_grad(tg_detach(x), true);
        tg_tensor *y = tg_cumprod(x, 1);
        CHECK(tg_gradients(&y, 1, &g, &x, 1, &dx, 0) == TG_OK);
        for (int64_t at = 0; at < 3 * N; ++at) {
            double sum = 0, sizes = 0;
            for (int64_t j = at % N; j < N; ++j) {
                double term = tg_get(g, TG_INDEX(at / N, j));
                for (int64_t k = 0; k <= j; ++k) term *= k == at % N ? 1 : tg_get(x, TG_INDEX(at / N, k));
                sum += term, sizes += fabs(term);
            }
            CHECK(fabs(tg_get(dx, TG_INDEX(at / N, at % N)) - sum) <= (dtype == TG_F32 ? 2e-6 : 1e-14) * sizes);
        }
    }
}

/* Sums of all but NaN, also of rows without one and of those that are NaN for another reason. */
TEST(sums_without_nan)
{
    const double inf = (double)INFINITY, missing = (double)NAN;
    const double numbers[] = {1, missing, 2, 3, 4, 5, inf, -inf, 1, inf, missing, 0, missing, missing, missing};
    for (int d = 0; d < 4; ++d) {
        tg_tensor *x = tg_to_ex(tg_from(numbers, TG_SHAPE(5, 3), TG_F64), HERE, dtypes[d], 0);
        const double wanted[] = {3, 12, missing, inf, 0};
        tg_tensor *y = tg_nansum(x, TG_DIMS(1), false);
        for (int i = 0; i < 5; ++i) {
            const double found = tg_get(y, TG_INDEX(i));
            CHECK(found == wanted[i] || (found != found && wanted[i] != wanted[i]));
        }
        x = tg_set_requires_grad(tg_narrow(tg_detach(x), 0, 0, 2), true);
        CHECK(tg_item(tg_nansum(tg_narrow(x, 0, 1, 1), TG_SCALAR, false)) == 12);
        CHECK(tg_backward(tg_nansum(x, TG_SCALAR, false)) == TG_OK);
        CHECK(tg_item(tg_sum(tg_grad(x))) == 5 && tg_get(tg_grad(x), TG_INDEX(0, 1)) == 0);
    }
}

/* Each sum is of one element, of so many that two threads share them and no one looks whether there is a NaN. */
TEST(sums_of_one_without_nan)
{
    enum { N = 50001 };
    tg_set_num_threads(2);
    for (int d = 0; d < 4; ++d) {
        tg_tensor *whole = tg_remainder(tg_arange_on(0, N, 1, TG_F32, TG_CPU), tg_full(TG_SCALAR, 7));
        whole = tg_to_ex(tg_masked_fill(whole, tg_eq_scalar(whole, 3), -0.0), HERE, dtypes[d], 0);
        tg_tensor *x = tg_masked_fill(whole, tg_eq_scalar(whole, 5), (double)NAN);
        tg_tensor *wanted = tg_masked_fill(whole, tg_eq_scalar(whole, 5), 0), *y[2];
        for (int k = 0; k < 2; ++k) {
            tg_tensor *leaf = tg_set_requires_grad(tg_reshape(k ? whole : x, TG_SHAPE(1, N, 1)), true);
            y[k] = tg_nansum(leaf, TG_DIMS(-1, 0), false);
            CHECK(tg_ndim(y[k]) == 1 && tg_dim(y[k], 0) == N && tg_backward(tg_sum(y[k])) == TG_OK);
            CHECK(tg_item(tg_sum(tg_to_dtype(tg_grad(leaf), TG_F64))) == (k ? N : N - N / 7));
        }
        CHECK(tg_equal(y[0], wanted) && tg_equal(y[1], whole));
        CHECK(tg_item(tg_any(tg_signbit(y[1]))) == 0);
        CHECK(tg_get(tg_nansum(tg_full(TG_SHAPE(N, 1), (double)INFINITY), TG_DIMS(1), true), TG_INDEX(7, 0)) > 1e300);
    }
    tg_set_num_threads(0);
}

/* Two rows of any numbers: their product is rounded once. */
TEST(reductions_of_two)
{
    for (int d = 0; d < 2; ++d) {
        tg_tensor *x = tg_to_dtype(tg_randn_on(TG_SHAPE(3, 2, 70), TG_F32, HERE), dtypes[d]), *wanted[3];
        x = tg_mul(x, tg_exp(tg_mul_scalar(x, 9)));
        oracle_begin();
        tg_tensor *u = copy_here(x);
        wanted[0] = tg_prod_dim(u, 1, false), wanted[1] = tg_amax_dim(u, 1, false);
        wanted[2] = tg_amin_dim(u, 1, false);
        oracle_end();
        CHECK(is_exactly(tg_prod_dim(x, 1, false), wanted[0]) && is_exactly(tg_amax_dim(x, 1, false), wanted[1]));
        CHECK(is_exactly(tg_amin_dim(x, 1, false), wanted[2]));
        x = tg_unsqueeze(x, 2); /* over two dims, one of length 1 */
        CHECK(is_exactly(tg_amax_dims(x, TG_DIMS(1, 2), false), wanted[1]));
    }
}

/* The extremes of a few long rows, which an op of two operands finds row after row: with NaN, with zeros of both signs,
 * in any layout, and on more outputs than a block has. */
TEST(extremes_of_few_rows)
{
    static const int64_t rows[] = {3, 4, 7, 16, 17}, columns[] = {255, 256, 1025, 2500};
    for (int i = 0; i < 5 * 4 * 4; ++i) {
        TG_SCOPE;
        const tg_dtype dtype = dtypes[i % 2];
        const int64_t dim[3] = {2, rows[i / 4 % 5], columns[i / 20]};
        tg_tensor *x = tg_mul(integers(dim, dtype, 0.002), tg_sub_scalar(integers(dim, dtype, 0), 0.5)), *wanted[2];
        if (i / 2 % 2) x = tg_transpose(tg_contiguous(tg_transpose(x, 0, 1)), 0, 1);
        oracle_begin();
        tg_tensor *u = copy_here(x);
        wanted[0] = without_nan(tg_amax_dim(u, 1, true)), wanted[1] = without_nan(tg_amin_dim(u, 1, false));
        oracle_end();
        CHECK(is_exactly(without_nan(tg_amax_dim(x, 1, true)), wanted[0]));
        CHECK(is_exactly(without_nan(tg_amin_dim(x, 1, false)), wanted[1]));
        wanted[0] = tg_narrow(x, 1, 0, 1);
        x = tg_expand(wanted[0], TG_SHAPE(dim[0], dim[1], dim[2]));
        CHECK(is_exactly(without_nan(tg_amax_dim(x, 1, true)), without_nan(wanted[0])));
    }
}

/* Reductions of many short rows, which are taken beside one another or by themselves, as their length, their dtype and
 * the gaps between them say. */
TEST(reductions_of_short_rows)
{
    static tg_tensor *(*const ops[])(tg_tensor *, int, bool) = {tg_sum_dim, tg_prod_dim, tg_amax_dim, tg_amin_dim};
    static const int64_t lengths[] = {8, 15, 16, 17, 23, 31, 32, 33};
    for (unsigned i = 0; i < 8 * sizeof dtypes / sizeof *dtypes; ++i) {
        const int64_t n = lengths[i % 8], wide[] = {1, 530, n + 3};
        TG_SCOPE;
        tg_tensor *x = tg_narrow(tg_select(integers(wide, dtypes[i / 8], 0.001), 0, 0), 1, 1, n), *layout[3];
        layout[0] = tg_contiguous(x), layout[1] = x, layout[2] = tg_t(tg_contiguous(tg_t(x)));
        for (int op = 0; op < (dtypes[i / 8] == TG_BOOL ? 2 : 4); ++op) {
            oracle_begin();
            tg_tensor *wanted = without_nan(ops[op](copy_here(x), 1, false));
            oracle_end();
            for (int k = 0; k < 3; ++k) CHECK(is_exactly(without_nan(ops[op](layout[k], 1, false)), wanted));
        }
    }
}

/* Reductions of elements that are repeated along some dims, kept or reduced ones: as those of a copy.  The factors of
 * products are powers of two, so that nothing is rounded. */
TEST(reductions_of_repeats)
{
    static tg_tensor *(*const ops[])(tg_tensor *, tg_shape, bool) = {tg_prod_dims, tg_sum_dims, tg_any_dims,
                                                                     tg_amax_dims, tg_amin_dims};
    const tg_shape whole = TG_SHAPE(3, 50, 7);
    for (unsigned i = 0; i < 7 * 7 * sizeof dtypes / sizeof *dtypes; ++i) {
        TG_SCOPE;
        const tg_dtype dtype = dtypes[i / 49];
        const unsigned repeated = i % 7 + 1, reduced = i / 7 % 7 + 1; /* a bit for each dim */
        int64_t dim[3];
        tg_shape dims = TG_SCALAR;
        for (int d = 0; d < 3; ++d) {
            dim[d] = repeated >> d & 1 ? 1 : whole.dim[d];
            if (reduced >> d & 1) dims.dim[dims.ndim++] = d;
        }
        tg_tensor *x = integers(dim, dtype, i % 3 ? 0 : 0.01);
        tg_tensor *factors = tg_add_scalar(tg_mul_scalar(tg_to_dtype(tg_gt_scalar(x, 0), TG_F32), 2.5), -0.5);
        for (int op = 0; op < (dtype == TG_BOOL ? 3 : 5); ++op) {
            tg_tensor *all = tg_expand(op ? x : tg_to_dtype(factors, dtype), whole);
            oracle_begin();
            tg_tensor *wanted = without_nan(ops[op](tg_contiguous(copy_here(all)), dims, i % 2));
            oracle_end();
            CHECK(is_exactly(without_nan(ops[op](all, dims, i % 2)), wanted));
        }
    }
}

/* Sums, extremes, norms and products along dim 2; the factors are powers of two, so that nothing is rounded. */
static tg_tensor *reduced_rows(int op, tg_tensor *x)
{
    static tg_tensor *(*const ops[])(tg_tensor *, int, bool) = {tg_sum_dim, tg_amax_dim, tg_amin_dim};
    if (op == 3) return without_nan(tg_norm_dim(x, 2, 2, false));
    if (op < 3) return without_nan(ops[op](x, 2, false));
    tg_tensor *large = tg_to_dtype(tg_gt_scalar(x, 0), tg_dtype_of(x));
    return without_nan(tg_prod_dim(tg_add_scalar(tg_mul_scalar(large, 1.5), -2), 2, false));
}

/* Floats in rows of whole lanes, of which some are folded together: as many as that takes and not, beside one another,
 * apart, and with other rows between them; with NaN in the last row, in all and in none; and norms, whose lanes are
 * squares. */
TEST(reductions_of_rows_together)
{
    static const int64_t lengths[] = {32, 64, 96, 128, 512, 544}, rows[] = {1, 3, 4, 7, 8, 9, 21};
    for (int i = 0; i < 6 * 7 * 4; ++i) {
        TG_SCOPE;
        const int64_t n = lengths[i % 6], many = rows[i / 6 % 7], dim[] = {2, many, n};
        tg_tensor *x = integers(dim, dtypes[i / 42], 0), *two[2], *layout[3];
        x = tg_mul(x, tg_sub_scalar(integers(dim, dtypes[i / 42], 0), 1.25));
        const int odd = (i + i / 6) % 3; /* where NaN is: in all rows, the last, none */
        tg_tensor *last = tg_select(tg_narrow(x, 1, odd == 1 ? many - 1 : 0, odd == 1 ? 1 : many), 2, n - 1);
        if (odd != 2) CHECK(tg_fill_(last, (double)NAN));
        two[0] = two[1] = layout[0] = x;
        layout[1] = tg_narrow(tg_cat(two, 2, 2), 2, 0, n);
        layout[2] = tg_transpose(tg_contiguous(tg_transpose(x, 0, 1)), 0, 1);
        for (int op = 0; op < 5; ++op) {
            oracle_begin();
            tg_tensor *wanted = reduced_rows(op, copy_here(x));
            oracle_end();
            for (int k = 0; k < 3; ++k) CHECK(is_exactly(reduced_rows(op, layout[k]), wanted));
        }
    }
}

/* The sum and the product of a row, which are rounded, have the bits of those of the row alone. */
TEST(sums_of_rows_beside_others)
{
    static const int64_t lengths[] = {128, 512, 544, 1024, 1056};
    for (int i = 0; i < 5; ++i) {
        TG_SCOPE;
        tg_tensor *x = tg_randn_on(TG_SHAPE(9, lengths[i]), TG_F32, HERE), *sum = tg_sum_dim(x, 1, false);
        tg_tensor *near_one = tg_exp(tg_mul_scalar(x, 0.1)), *product = tg_prod_dim(near_one, 1, false);
        for (int r = 0; r < 9; ++r) {
            CHECK(is_exactly(tg_select(sum, 0, r), tg_sum(tg_select(x, 0, r))));
            CHECK(is_exactly(tg_select(product, 0, r), tg_prod(tg_select(near_one, 0, r))));
        }
    }
}

/* x reduced to one number, along rows and down columns */
static tg_tensor *reduced(tg_tensor *x, int kind, int to)
{
    if (kind == 0) return to == 2 ? tg_sum(x) : tg_sum_dim(x, to, false);
    if (kind == 1) return to == 2 ? tg_prod(x) : tg_prod_dim(x, to, false);
    return to == 2 ? tg_mean(x) : tg_mean_dim(x, to, false);
}

/* Sums, products and means of one row, repeated, have the bits of those of rows that are alike, with gaps between them:
 * of rows that fit in the pieces of a sum and do not, beside 0, infinity and NaN. */
TEST(sums_of_repeated_rows)
{
    static const int64_t rows[] = {2, 7, 8, 9, 40, 300}, columns[] = {1, 3, 64, 100, 513, 1024, 1500, 33000};
    static const double odd[] = {0.5, 0, INFINITY, NAN};
    for (int i = 0; i < 6 * 8 * 2 * 4; ++i) {
        TG_SCOPE;
        const int64_t m = rows[i % 6], n = columns[i / 6 % 8];
        if (m * n > 2000000) continue;
        tg_tensor *row = tg_exp(tg_mul_scalar(tg_randn_on(TG_SHAPE(1, n), dtypes[i / 48 % 2], HERE), 0.1));
        tg_fill_(tg_select(row, 1, n / 2), odd[i / 96]);
        tg_tensor *x = tg_expand(row, TG_SHAPE(m, n));
        tg_tensor *wide = tg_pad(tg_contiguous(x), TG_SHAPE(0, 3), 0), *apart = tg_narrow(wide, 1, 0, n);
        for (int k = 0; k < 9; ++k) {
            tg_tensor *y = reduced(x, k / 3, k % 3), *wanted = reduced(apart, k / 3, k % 3);
            CHECK(is_exactly(tg_nan_to_num(y, -1, 9, -9), tg_nan_to_num(wanted, -1, 9, -9)));
        }
    }
}

/* Products down columns, of powers of two: as many rows and columns as are multiplied together and not, with and without
 * others between them. */
TEST(products_down_columns)
{
    static const int64_t rows[] = {1, 3, 4, 5, 8, 12, 19}, columns[] = {1, 7, 8, 9, 40, 131};
    for (int i = 0; i < 7 * 6 * 4; ++i) {
        TG_SCOPE;
        const int64_t n = columns[i / 7 % 6], dim[] = {2, rows[i % 7], n + 3};
        tg_tensor *x = integers(dim, TG_F32, 0), *layout[2];
        x = tg_to_dtype(tg_exp2(x), dtypes[i / 42]);
        layout[0] = tg_narrow(x, 2, 1, n), layout[1] = tg_contiguous(layout[0]);
        oracle_begin();
        tg_tensor *wanted = tg_prod_dim(copy_here(layout[0]), 1, false);
        oracle_end();
        for (int k = 0; k < 2; ++k) CHECK(is_exactly(tg_prod_dim(layout[k], 1, false), wanted));
    }
}

TEST(softmax_along_a_dim)
{
    static const double tolerance[] = {1e-5, 1e-12, 1e-2, 2e-3};
    for (int i = 0; i < SHAPES * 4 * 2; ++i) {
        TG_SCOPE;
        const int64_t *const dim = shapes[i % SHAPES];
        const tg_dtype dtype = dtypes[i / SHAPES % 4];
        const bool log = i / SHAPES / 4 != 0;
        tg_tensor *x = tg_randn_on(TG_SHAPE(dim[0], dim[1], dim[2]), TG_F32, HERE);
        x = tg_add(integers(dim, dtype, 0), tg_to_dtype(x, dtype));
        if (!log) x = tg_masked_fill(x, tg_gt_scalar(x, 3), -(double)INFINITY);
        x = tg_set_requires_grad(tg_detach(x), true);
        tg_tensor *y = log ? tg_log_softmax(x, 1) : tg_softmax(x, 1);
        tg_tensor *g = tg_detach(tg_sin(y)), *dx = NULL;
        CHECK(tg_gradients(&y, 1, &g, &x, 1, &dx, 0) == TG_OK);
        oracle_begin();
        tg_tensor *u = exact_leaf(x), *v = log ? tg_log_softmax(u, 1) : tg_softmax(u, 1), *du = NULL;
        tg_tensor *h = tg_to_dtype(copy_here(g), TG_F64);
        CHECK(tg_gradients(&v, 1, &h, &u, 1, &du, 0) == TG_OK);
        v = tg_masked_fill(v, tg_isnan(v), 12345), du = tg_masked_fill(du, tg_isnan(du), 12345);
        oracle_end();
        const double least = tolerance[i / SHAPES % 4] * (log ? (double)dim[1] + 4 : 1);
        const bool right = is_nearly(without_nan(y), v, least, least) && is_nearly(without_nan(dx), du, least, least);
        if (!CHECK(right)) {
            printf("    %s of [%d, %d, %d] %s\n", log ? "log_softmax" : "softmax", (int)dim[0], (int)dim[1],
                   (int)dim[2], tg_dtype_name(dtype));
        }
    }
}

/* Up to 32 rows of at most 32 elements are computed at once: each is what it is alone, also beside rows whose squares
 * overflow or vanish. */
TEST(norms_of_short_rows)
{
    enum { ROWS = 70 };
    static const int64_t lengths[] = {1, 2, 4, 7, 16, 31, 32, 33};
    for (int i = 0; i < 4 * (int)(sizeof lengths / sizeof *lengths); ++i) {
        TG_SCOPE;
        const int64_t n = lengths[i / 4];
        const bool rms = i & 1, wide = i & 2;
        const tg_dtype dtype = wide ? TG_F64 : TG_F32;
        const double eps = wide ? 1e-300 : 1e-45;
        double size[ROWS];
        for (int r = 0; r < ROWS; ++r) size[r] = 1;
        for (int r = 3; r < ROWS; r += 7) size[r] = wide ? 1e-140 : 1e-20;
        for (int r = 5; r < ROWS; r += 7) size[r] = wide ? 1e200 : 1e25;
        tg_tensor *x = tg_randn_on(TG_SHAPE(ROWS, n), dtype, HERE), *weight = tg_randn_on(TG_SHAPE(n), dtype, HERE);
        tg_tensor *bias = tg_randn_on(TG_SHAPE(n), dtype, HERE);
        x = tg_mul(x, tg_to_ex(tg_from(size, TG_SHAPE(ROWS, 1), TG_F64), HERE, dtype, 0));
        tg_tensor *y = rms ? tg_rms_norm(x, 1, weight, eps) : tg_layer_norm(x, 1, weight, bias, eps);
        for (int r = 0; r < ROWS; ++r) {
            tg_tensor *row = tg_narrow(x, 0, r, 1);
            row = rms ? tg_rms_norm(row, 1, weight, eps) : tg_layer_norm(row, 1, weight, bias, eps);
            if (!CHECK(tg_allclose(tg_narrow(y, 0, r, 1), row, 1e-4, 1e-5)))
                printf("row %d of %lld elements, %s\n", r, (long long)n, rms ? "rms_norm" : "layer_norm");
        }
    }
}

/* Long rows whose keys differ in more than four bytes: with few pairs, or many, that the highest four do not order. */
TEST(sorts_of_long_rows)
{
    for (int i = 0; i < 4; ++i) {
        TG_SCOPE;
        const bool crowded = i % 2 != 0, descending = i / 2 != 0;
        const tg_shape shape = TG_SHAPE(2, 3000);
        tg_tensor *x = tg_rand_on(shape, TG_F64, HERE), *indices = NULL;
        if (crowded) { /* 2000 numbers close to 1, many of them equal, among a few of all sizes */
            x = tg_add_scalar(tg_mul_scalar(tg_to_dtype(tg_randint_on(0, 2000, shape, TG_I64, HERE), TG_F64),
                                            1.0 / (1 << 30) / (1 << 20)), 1);
            tg_tensor *both[2] = {tg_mul_scalar(tg_randn_on(TG_SHAPE(2, 9), TG_F64, HERE), 1e100), x};
            x = tg_cat(both, 2, 1);
        }
        tg_tensor *y = tg_sort(x, 1, descending, &indices);
        oracle_begin();
        tg_tensor *wanted_indices = NULL, *wanted = tg_sort(copy_here(x), 1, descending, &wanted_indices);
        oracle_end();
        CHECK(is_exactly(y, wanted) && is_exactly(indices, wanted_indices));
    }
}

enum { GATHER, SCATTER, SCATTER_ADD, INDEX_SELECT, INDEX_ADD, INDEX_OPS };

/* By index [like x, or n], whose numbers occur several times. */
static tg_tensor *by_index(int op, tg_tensor *x, tg_tensor *index, tg_tensor *src)
{
    switch (op) {
    case GATHER: return tg_gather(x, 1, index);
    case SCATTER: return tg_scatter(x, 1, index, src);
    case SCATTER_ADD: return tg_scatter_add(x, 1, index, src);
    case INDEX_SELECT: return tg_index_select(x, 1, index);
    default: return tg_index_add(x, 1, index, src);
    }
}

TEST(indices_along_a_dim)
{
    static const tg_dtype index_dtypes[] = {TG_I64, TG_I32};
    for (int i = 0; i < SHAPES * DTYPES * 2; ++i) {
        TG_SCOPE;
        const int64_t *const dim = shapes[i % SHAPES];
        const tg_dtype dtype = dtypes[i / SHAPES % DTYPES], index_dtype = index_dtypes[i % 2];
        const bool strided = i / SHAPES / DTYPES != 0;
        tg_tensor *x = integers(dim, dtype, 0);
        if (dim[1] == 0 || dtype == TG_BOOL) continue;
        if (strided) x = tg_transpose(tg_contiguous(tg_transpose(x, 1, 2)), 1, 2);
        for (int op = 0; op < INDEX_OPS; ++op) {
            const int64_t length = dim[1] + 3;
            const tg_shape whole = TG_SHAPE(dim[0], length, dim[2]), one = TG_SHAPE(length);
            tg_tensor *index = tg_randint_on(0, dim[1], op < INDEX_SELECT ? whole : one, index_dtype, HERE);
            tg_tensor *src = integers(whole.dim, dtype, 0);
            if (strided && op < INDEX_SELECT) index = tg_transpose(tg_contiguous(tg_transpose(index, 0, 1)), 0, 1);
            oracle_begin();
            tg_tensor *wanted = by_index(op, copy_here(x), copy_here(index), copy_here(src));
            oracle_end();
            if (!CHECK(is_exactly(by_index(op, x, index, src), wanted))) {
                printf("    op %d of [%d, %d, %d] %s%s\n", op, (int)dim[0], (int)dim[1], (int)dim[2],
                       tg_dtype_name(dtype), strided ? ", strided" : "");
            }
        }
    }
}

/* Masks of which eight bytes side by side are all set, none of them, or some. */
TEST(nonzero_of_masks)
{
    static const int64_t sizes[] = {1, 7, 8, 9, 64, 1023, 5003};
    for (int i = 0; i < 7 * 4; ++i) {
        TG_SCOPE;
        tg_tensor *number = tg_rand_on(TG_SHAPE(sizes[i / 4] / 8 + 1), TG_F32, HERE); /* of eight bytes */
        tg_tensor *mask = tg_narrow(tg_repeat_interleave(number, 8, 0), 0, 0, sizes[i / 4]);
        mask = tg_lt_scalar(mask, i % 4 == 0 ? 2 : 0.25 * (i % 4));
        tg_tensor *x = tg_logical_xor(mask, tg_lt_scalar(tg_rand_on(tg_shape_of(mask), TG_F32, HERE), 0.02));
        if (i % 4 == 0) x = tg_mul_scalar(mask, 200);
        oracle_begin();
        tg_tensor *wanted = tg_nonzero(copy_here(x));
        oracle_end();
        CHECK(is_exactly(tg_nonzero(x), wanted) && is_exactly(tg_nonzero(tg_to_dtype(x, TG_U8)), wanted));
        CHECK(is_exactly(tg_nonzero(tg_narrow(x, 0, 0, 0)), tg_narrow(wanted, 0, 0, 0)));
    }
}

/* Several threads find what one finds, in a tensor of so many rows and in one of one dim. */
TEST(nonzero_on_threads)
{
    for (int i = 0; i < 3 * 3; ++i) {
        TG_SCOPE;
        tg_tensor *x = tg_lt_scalar(tg_rand_on(TG_SHAPE(3, 211, 131), TG_F32, HERE), 0.4 * (i / 3)), *wanted;
        if (i % 3 == 1) x = tg_flatten(x, 0, -1);
        if (i % 3 == 2) x = tg_transpose(tg_to_dtype(x, TG_F64), 0, 2);
        tg_set_num_threads(1);
        wanted = tg_nonzero(x);
        CHECK(i / 3 == 0 ? tg_dim(wanted, 0) == 0 : tg_dim(wanted, 0) > 30000 * (i / 3));
        for (int n = 2; n <= 5; ++n) {
            tg_set_num_threads(n);
            CHECK(is_exactly(tg_nonzero(x), wanted));
        }
    }
    tg_set_num_threads(0);
}

TEST(nonzero_and_one_hot)
{
    for (int i = 0; i < SHAPES * DTYPES; ++i) {
        TG_SCOPE;
        const int64_t *const dim = shapes[i % SHAPES];
        tg_tensor *x = integers(dim, dtypes[i / SHAPES], 0.01);
        for (int layout = 0; layout < 2; ++layout, x = tg_transpose(x, 0, 2)) {
            oracle_begin();
            tg_tensor *wanted = tg_nonzero(copy_here(x));
            oracle_end();
            CHECK(is_exactly(tg_nonzero(x), wanted));
        }
        tg_tensor *ids = tg_randint_on(0, 7, TG_SHAPE(dim[0], dim[2]), TG_I64, HERE);
        tg_tensor *classes = tg_arange_on(0, 7, 1, TG_I64, HERE);
        CHECK(is_exactly(tg_one_hot(ids, 7), tg_to_dtype(tg_eq(tg_unsqueeze(ids, -1), classes), TG_I64)));
    }
}

/* What the kernels for integers compute of every number of 8 and 16 bits, and of as many of 32 and 64, is what the
 * plain backend does; and tests of them against a number. */
static void check_every_number(tg_tensor *x)
{
    static tg_tensor *(*const unary[])(tg_tensor *) = {tg_floor, tg_ceil, tg_round, tg_trunc, tg_neg, tg_abs, tg_sign,
                                                       tg_relu, tg_square, tg_isfinite, tg_isinf, tg_isnan, tg_logical_not};
    static tg_tensor *(*const against[])(tg_tensor *, double) = {tg_eq_scalar, tg_ne_scalar, tg_lt_scalar,
                                                                 tg_le_scalar, tg_gt_scalar, tg_ge_scalar};
    enum { UNARY = sizeof unary / sizeof *unary, BYTE_OPS = UNARY + sizeof against / sizeof *against };
    for (int i = 0; i < (int)BYTE_OPS; ++i) {
        TG_SCOPE;
        tg_tensor *y[2];
        for (int plain = 0; plain < 2; ++plain) {
            if (plain) oracle_begin();
            tg_tensor *in = plain ? copy_here(x) : x;
            y[plain] = i < (int)UNARY ? unary[i](in) : against[i - (int)UNARY](in, 77);
            if (plain) oracle_end();
        }
        CHECK(y[0] && y[1] && tg_dtype_of(y[0]) == tg_dtype_of(y[1]) && is_exactly(y[0], y[1]));
    }
}

/* Ops on pairs of integers: of each number with another one, with itself, and with one from -3 to 66, as shifts are. */
static void check_pairs(tg_tensor *x)
{
    static tg_tensor *(*const ops[])(tg_tensor *, tg_tensor *) = {
        tg_eq, tg_ne, tg_lt, tg_le, tg_gt, tg_ge, tg_logical_and, tg_logical_or, tg_logical_xor, tg_bitwise_and,
        tg_bitwise_or, tg_bitwise_xor, tg_bitwise_left_shift, tg_bitwise_right_shift};
    tg_tensor *few = tg_remainder(x, tg_full_on(TG_SCALAR, 70, tg_dtype_of(x), HERE));
    tg_tensor *others[] = {tg_flip(x, TG_DIMS(0)), x, tg_sub_scalar(few, 3)};
    for (int i = 0; i < 3 * (int)(sizeof ops / sizeof *ops); ++i) {
        TG_SCOPE;
        oracle_begin();
        tg_tensor *wanted = ops[i / 3](copy_here(x), copy_here(others[i % 3]));
        oracle_end();
        CHECK(is_exactly(ops[i / 3](x, others[i % 3]), wanted));
    }
}

TEST(every_number)
{
    tg_tensor *all = tg_to(tg_arange_on(-32768, 32768, 1, TG_I64, TG_CPU), HERE);
    check_every_number(tg_to_dtype(tg_slice(all, 0, 0, 256, 1), TG_U8));
    check_every_number(tg_to_dtype(tg_slice(all, 0, 0, 256, 1), TG_I8));
    check_every_number(tg_to_dtype(all, TG_I16));
    check_every_number(tg_to_dtype(tg_mul_scalar(all, 65537), TG_I32));
    check_every_number(tg_mul_scalar(all, 281479271743489.0));
    check_pairs(tg_to_dtype(all, TG_I16));
    check_pairs(tg_to_dtype(tg_mul_scalar(all, 65537), TG_I32));
    check_pairs(tg_mul_scalar(all, 281479271743489.0));
}

/* The elements of x on one side of a diagonal, one by one. */
static tg_tensor *triangle(tg_tensor *x, int64_t diagonal, bool lower)
{
    const int64_t rows = tg_dim(x, -2), cols = tg_dim(x, -1);
    tg_tensor *keep = tg_zeros_on(TG_SHAPE(rows, cols), TG_BOOL, TG_CPU);
    bool *data = (bool *)tg_data(keep);
    for (int64_t i = 0; i < rows * cols; ++i)
        data[i] = lower ? i % cols <= i / cols + diagonal : i % cols >= i / cols + diagonal;
    return tg_masked_fill(x, tg_logical_not(tg_to(tg_touch_(keep), HERE)), 0);
}

/* Wide and tall matrices, most of which lie on one side of the diagonal, with gradients; NaN is no part of a zero. */
TEST(triangles_of_long_matrices)
{
    static const int64_t sizes[][2] = {{5, 1000}, {1000, 5}, {70, 60}, {1, 5000}, {5000, 1}, {40, 120}};
    static const int64_t diagonals[] = {0, 1, -1, 3, -4, 490, -490, 6000, -6000};
    for (int i = 0; i < 6 * 9 * 2; ++i) {
        TG_SCOPE;
        const int64_t rows = sizes[i / 18][0], cols = sizes[i / 18][1], diagonal = diagonals[i / 2 % 9];
        const bool lower = i % 2 != 0;
        tg_tensor *x = tg_set_requires_grad(tg_randn_on(TG_SHAPE(2, rows, cols), TG_F64, HERE), true), *dx = NULL;
        tg_tensor *y = lower ? tg_tril(x, diagonal) : tg_triu(x, diagonal);
        tg_tensor *weight = tg_randn_on(tg_shape_of(x), TG_F64, HERE);
        CHECK(is_exactly(y, triangle(x, diagonal, lower)));
        y = tg_sum(tg_mul(y, weight));
        CHECK(tg_gradients(&y, 1, NULL, &x, 1, &dx, 0) == TG_OK && is_exactly(dx, triangle(weight, diagonal, lower)));
        tg_tensor *part = tg_transpose(tg_to_dtype(tg_gt_scalar(x, 0), dtypes[i % DTYPES]), 1, 2); /* with gaps */
        CHECK(is_exactly(lower ? tg_tril(part, diagonal) : tg_triu(part, diagonal), triangle(part, diagonal, lower)));
        x = tg_full_on(TG_SHAPE(rows, cols), (double)NAN, TG_F32, HERE);
        y = lower ? tg_tril(x, diagonal) : tg_triu(x, diagonal);
        CHECK(is_exactly(without_nan(y), without_nan(triangle(x, diagonal, lower))));
    }
}

/* Copies of transposed tensors, whose elements are moved in squares. */
TEST(transposed_copies)
{
    static const int64_t sizes[][2] = {{64, 64}, {8, 8}, {131, 77}, {7, 200}, {18, 9}};
    for (int i = 0; i < 5 * DTYPES; ++i) {
        TG_SCOPE;
        const int64_t *const size = sizes[i % 5];
        tg_tensor *x = tg_to_dtype(tg_randint_on(-99, 99, TG_SHAPE(size[0], size[1]), TG_I64, HERE), dtypes[i / 5]);
        oracle_begin();
        tg_tensor *wanted = tg_contiguous(tg_transpose(copy_here(x), 0, 1));
        oracle_end();
        tg_tensor *y = tg_contiguous(tg_transpose(x, 0, 1));
        CHECK(is_exactly(y, wanted));
        x = tg_narrow(x, 1, 1, size[1] - 1), y = tg_narrow(y, 0, 1, size[1] - 1);
        CHECK(is_exactly(tg_add(tg_transpose(x, 0, 1), y), tg_add(y, y)));
    }
}

/* The elements that begin a run are those that are found with their places, by other means: runs of 1 to 3 elements, long
 * ones, and none, with NaN, infinities and zeros of both signs. */
TEST(starts_of_runs)
{
    const double odd[] = {NAN, NAN, 0, -0.0, INFINITY, INFINITY, -INFINITY, -0.0, 0, -1, 1, NAN, 0, NAN};
    for (int i = 0; i < 4 * DTYPES; ++i) {
        TG_SCOPE;
        const tg_dtype dtype = dtypes[i / 4];
        tg_tensor *x = i % 4 == 0 ? tg_randint_on(0, 3, TG_SHAPE(203), TG_I64, HERE) : tg_arange_on(0, 119, 1, TG_I64, HERE);
        if (i % 4 == 2) x = tg_repeat_interleave(x, 19, 0);
        x = tg_to_dtype(x, dtype);
        tg_tensor *const parts[3] = {x, tg_to_dtype(tg_from_on(odd, TG_SHAPE(14), TG_F64, HERE), dtype), x}, *places;
        if (i % 4 == 3 && tg_is_floating_point(dtype)) x = tg_cat(parts, 3, 0);
        tg_tensor *y = tg_unique_consecutive(x, NULL, NULL), *wanted = tg_unique_consecutive(x, &places, NULL);
        CHECK(tg_numel(y) == tg_numel(wanted) && (!tg_is_floating_point(dtype) || tg_equal(tg_isnan(y), tg_isnan(wanted))));
        CHECK(is_exactly(without_nan(y), without_nan(wanted)));
    }
}

/* Places of one to nine values in sorted rows of 0 to 35 elements, of which several are equal: how many elements are less than
 * the value, or not larger.  Infinite values and NaN, which belongs behind all; and, as PyTorch has it, in a row that ends with
 * NaN a search that meets one goes on behind it. */
TEST(places_in_sorted_rows)
{
    static const tg_dtype types[] = {TG_F32, TG_F64, TG_BF16, TG_F16, TG_I64, TG_U8, TG_I32};
    const double wanted[] = {3, -1, 0, INFINITY, 3, NAN, 17, -INFINITY, 5};
    for (int k = 0; k < 2 * (int)(sizeof types / sizeof *types); ++k) {
        const tg_dtype dtype = types[k / 2];
        const bool right = k % 2 != 0, floats = tg_is_floating_point(dtype);
        for (int64_t size = 0; size <= 35; ++size) {
            TG_SCOPE;
            const int64_t n = size % 9 + 1;
            double row[36], value[9];
            int64_t place[9];
            for (int64_t i = 0; i < size; ++i) row[i] = (double)(i / 2);
            for (int64_t i = 0; i < n; ++i) {
                const double x = floats ? wanted[i] : (double)(3 * i + size / 5);
                value[i] = x;
                place[i] = isnan(x) ? size : 0;
                for (int64_t j = 0; j < size; ++j) place[i] += row[j] < x || (right && row[j] == x);
            }
            tg_tensor *sorted = tg_to_dtype(tg_from_on(row, TG_SHAPE(size), TG_F64, HERE), dtype);
            tg_tensor *values = tg_to_dtype(tg_from_on(value, TG_SHAPE(n), TG_F64, HERE), dtype);
            tg_tensor *places = tg_from_on(place, TG_SHAPE(n), TG_I64, HERE);
            CHECK(tg_equal(tg_bucketize(values, sorted, right), places));
            CHECK(tg_equal(tg_searchsorted(sorted, values, right, tg_arange_on(0, (double)size, 1, TG_I64, HERE)), places));
        }
    }
    const float row[] = {0, 1, 2, 3, 4, 5, NAN, NAN}, value[] = {1, 7, 3, NAN, INFINITY};
    static const int64_t place[] = {1, 8, 3, 8, 8};
    tg_tensor *sorted = tg_from_on(row, TG_SHAPE(8), TG_F32, HERE), *values = tg_from_on(value, TG_SHAPE(5), TG_F32, HERE);
    CHECK(tg_equal(tg_bucketize(values, sorted, false), tg_from_on(place, TG_SHAPE(5), TG_I64, HERE)));
    /* In a row in no order each value has the place that it has alone, on any number of threads. */
    for (int64_t size = 1; size <= 40; ++size) {
        TG_SCOPE;
        tg_tensor *mixed = tg_randn_on(TG_SHAPE(size), TG_F32, HERE), *x = tg_randn_on(TG_SHAPE(7), TG_F32, HERE), *one[7];
        for (int64_t i = 0; i < 7; ++i) one[i] = tg_bucketize(tg_narrow(x, 0, i, 1), mixed, size % 2 != 0);
        CHECK(tg_equal(tg_bucketize(x, mixed, size % 2 != 0), tg_cat(one, 7, 0)));
    }
}

/* Each element several times, side by side: rows of 1 to 24 bytes, few and many, from rows with gaps and without. */
TEST(repeated_elements)
{
    static const tg_dtype types[] = {TG_U8, TG_BF16, TG_F32, TG_I64};
    static const int64_t rows[] = {1, 7, 8, 9, 10, 33};
    for (int i = 0; i < (int)(sizeof rows / sizeof *rows) * 8; ++i) {
        TG_SCOPE;
        const tg_dtype dtype = types[i % 4];
        const int64_t n = rows[i / 8];
        tg_tensor *x = tg_to_dtype(tg_randint_on(0, 200, TG_SHAPE(n, 2), TG_I64, HERE), dtype);
        x = i / 4 % 2 ? tg_select(x, 1, 1) : tg_narrow(tg_flatten(x, 0, -1), 0, n - 1, n);
        for (int64_t count = 1; count <= 24 / (int64_t)tg_dtype_size(dtype); ++count) {
            int64_t from[33 * 24];
            for (int64_t at = 0; at < n * count; ++at) from[at] = at / count;
            tg_tensor *index = tg_from_on(from, TG_SHAPE(n * count), TG_I64, HERE);
            CHECK(tg_equal(tg_repeat_interleave(x, count, 0), tg_index_select(x, 0, index)));
        }
    }
}

/* Rows of 1 to 600 bytes several times, one behind the other, from a tensor without gaps and from one with gaps. */
TEST(repeated_rows)
{
    static const int64_t bytes[] = {1, 3, 24, 64, 72, 600};
    for (int i = 0; i < (int)(sizeof bytes / sizeof *bytes) * 4; ++i) {
        TG_SCOPE;
        const int64_t n = i % 2 ? 70 : 9;
        tg_tensor *x = tg_to_dtype(tg_randint_on(0, 200, TG_SHAPE(n, bytes[i / 4] + 5), TG_I64, HERE), TG_U8);
        x = tg_narrow(x, 1, 5, bytes[i / 4]);
        if (i / 2 % 2) x = tg_contiguous(x);
        for (int64_t count = 1; count <= 9; ++count) {
            int64_t from[70 * 9];
            for (int64_t at = 0; at < n * count; ++at) from[at] = at / count;
            tg_tensor *index = tg_from_on(from, TG_SHAPE(n * count), TG_I64, HERE);
            CHECK(tg_equal(tg_repeat_interleave(x, count, 0), tg_index_select(x, 0, index)));
        }
    }
}

/* Windows of many elements side by side: the largest with its index, the first of equal ones but the last NaN, and means. */
TEST(long_windows)
{
    for (int i = 0; i < 4 * 3 * 4; ++i) {
        TG_SCOPE;
        const int64_t planes[3] = {3, i / 16 == 0 ? 1 : 20, i / 16 == 1 ? 15 : 37};
        tg_tensor *x = integers(planes, dtypes[i % 4], i / 4 % 4 == 3 ? 0.02 : 0), *at[2] = {NULL, NULL}, *wanted[2];
        const tg_shape out = i / 4 % 4 == 0 ? TG_SHAPE(1, 1) : TG_SHAPE(1, 2);
        if (i / 4 % 4 == 2) x = tg_masked_fill(x, tg_lt_scalar(x, 2), -(double)INFINITY);
        x = tg_unsqueeze(x, 0);
        oracle_begin();
        wanted[0] = without_nan(tg_adaptive_max_pool2d_ex(copy_here(x), out, &at[0]));
        wanted[1] = without_nan(tg_adaptive_avg_pool2d(copy_here(x), out));
        oracle_end();
        CHECK(is_exactly(without_nan(tg_adaptive_max_pool2d_ex(x, out, &at[1])), wanted[0]) && is_exactly(at[1], at[0]));
        if (i / 4 % 4 != 2)
            CHECK(is_nearly(without_nan(tg_adaptive_avg_pool2d(x, out)), wanted[1], i % 4 < 2 ? 1e-6 : 1e-2, 1e-6));
    }
}

/* Interpolation and sums of windows in f16 and bf16 are those of f32, rounded. */
TEST(windows_of_halves)
{
    for (int i = 0; i < 2 * 4; ++i) {
        TG_SCOPE;
        const double tolerance = i % 2 ? 1e-3 : 8e-3;
        tg_tensor *y[2], *x = tg_to_dtype(tg_randn_on(TG_SHAPE(2, 3, 13, 21), TG_F32, HERE), i % 2 ? TG_F16 : TG_BF16);
        for (int wide = 0; wide < 2; ++wide) {
            tg_tensor *in = tg_set_requires_grad(tg_detach(wide ? tg_to_dtype(x, TG_F32) : tg_clone(x)), true);
            tg_tensor *out = i / 2 == 0   ? tg_interpolate(in, TG_SHAPE(26, 42), "bilinear")
                             : i / 2 == 1 ? tg_interpolate(in, TG_SHAPE(7, 50), "bilinear")
                             : i / 2 == 2 ? tg_avg_pool2d(in, TG_SHAPE(3, 3), TG_SHAPE(2, 2), TG_SHAPE(1, 1))
                                          : tg_adaptive_avg_pool2d(in, TG_SHAPE(2, 5));
            tg_tensor *loss = tg_sum(tg_mul(tg_to_dtype(out, TG_F32), tg_to_dtype(tg_detach(out), TG_F32))), *dx = NULL;
            CHECK(tg_gradients(&loss, 1, NULL, &in, 1, &dx, 0) == TG_OK);
            y[wide] = tg_cat(TG_LIST(tg_flatten(tg_to_dtype(out, TG_F32), 0, -1), tg_flatten(tg_to_dtype(dx, TG_F32), 0, -1)), 0);
        }
        CHECK(is_nearly(y[0], y[1], tolerance, 4 * tolerance));
    }
}

/* Many numbers as integers and bool, converted as vectors, are what the plain backend makes of each. */
TEST(casts_of_many)
{
    static const tg_dtype floats[] = {TG_F32, TG_F64, TG_BF16, TG_F16};
    const tg_shape many = TG_SHAPE(1003);
    tg_tensor *parts[2];
    parts[0] = of(TG_F64, "[nan, inf, -inf, -0.0, 0.5, -0.5, 127.9, 128, -129, 255.5, 256, 32767.5, 32768, -32769, "
                          "2147483647, 2147483648, -2147483649, 9223372036854774784, 9223372036854775808, "
                          "-9223372036854775808, 1e19]");
    parts[1] = tg_mul(tg_randn_on(many, TG_F64, HERE), tg_exp2(tg_mul_scalar(tg_randn_on(many, TG_F64, HERE), 20)));
    tg_tensor *all = tg_cat(parts, 2, 0);
    for (int i = 0; i < 4 * DTYPES; ++i) {
        TG_SCOPE;
        tg_tensor *x = tg_to_dtype(all, floats[i % 4]);
        if (tg_is_floating_point(dtypes[i / 4])) continue;
        oracle_begin();
        tg_tensor *wanted = tg_to_dtype(copy_here(x), dtypes[i / 4]);
        oracle_end();
        CHECK(is_exactly(tg_to_dtype(x, dtypes[i / 4]), wanted));
    }
    all = tg_sub_scalar(tg_mul_scalar(tg_arange_on(0, 1003, 1, TG_I64, HERE), 4294967297.0 * 128), 4294967297.0 * 64000);
    for (int i = 0; i < DTYPES; ++i) {
        TG_SCOPE;
        oracle_begin();
        tg_tensor *wanted = tg_to_dtype(copy_here(all), dtypes[i]);
        oracle_end();
        CHECK(is_exactly(tg_to_dtype(all, dtypes[i]), wanted));
    }
}

/* Sums and extremes of signed integers from end to end of their dtype, and below 0 alone, are those of i64. */
TEST(reductions_of_integers)
{
    static const tg_dtype signed_dtypes[] = {TG_I8, TG_I16, TG_I32};
    static tg_tensor *(*const ops[])(tg_tensor *, int, bool) = {tg_sum_dim, tg_amax_dim, tg_amin_dim, tg_any_dim,
                                                               tg_all_dim};
    for (int i = 0; i < 3 * 2 * 4; ++i) {
        TG_SCOPE;
        const tg_dtype dtype = signed_dtypes[i % 3];
        const double end = ldexp(1, 8 * (int)tg_dtype_size(dtype) - 1);
        const tg_shape shape = i / 6 % 2 ? TG_SHAPE(7, 2100) : TG_SHAPE(1043, 9);
        tg_tensor *x = tg_randint_on((int64_t)-end, i % 2 ? (int64_t)end : -1, shape, TG_I64, HERE);
        if (i / 12) x = tg_slice(x, 1, 0, INT64_MAX, 2);
        tg_tensor *narrow = tg_to_dtype(x, dtype);
        for (int dim = 0; dim < 2; ++dim) {
            for (int op = 0; op < 5; ++op) {
                tg_tensor *y = ops[op](narrow, dim, false), *wanted = ops[op](x, dim, false);
                CHECK(is_exactly(y, tg_to_dtype(wanted, op == 1 || op == 2 ? dtype : tg_dtype_of(wanted))));
            }
        }
        CHECK(tg_item_i64(tg_amax(narrow)) == tg_item_i64(tg_amax(x)));
        CHECK(tg_item_i64(tg_sum(tg_transpose(narrow, 0, 1))) == tg_item_i64(tg_sum(x)));
    }
}

/* Many rows beside one row, or beside one with gaps, of lengths that are put together for a kernel and that are not. */
TEST(rows_beside_one_row)
{
    static const int64_t lengths[] = {3, 31, 32, 100, 127, 128, 255, 256, 1030};
    for (int i = 0; i < 9 * 2 * 2; ++i) {
        TG_SCOPE;
        const int64_t n = lengths[i % 9], rows = 2100 / n + 2, all[] = {1, rows, n}, one[] = {1, 1, 2 * n};
        const tg_dtype dtype = dtypes[i / 9 % 2];
        tg_tensor *x = tg_reshape(integers(all, dtype, 0), TG_SHAPE(rows, n));
        tg_tensor *row = tg_slice(tg_reshape(integers(one, dtype, 0), TG_SHAPE(2 * n)), 0, 0, i < 18 ? n : 2 * n,
                                  i < 18 ? 1 : 2);
        tg_tensor *whole = tg_clone(tg_expand(row, TG_SHAPE(rows, n)));
        CHECK(is_exactly(tg_sub(x, row), tg_sub(x, whole)) && is_exactly(tg_sub(row, x), tg_sub(whole, x)));
        CHECK(is_exactly(tg_maximum(x, row), tg_maximum(x, whole)));
        CHECK(is_exactly(tg_addcmul(x, row, x, 2), tg_addcmul(x, whole, x, 2)));
        CHECK(is_exactly(tg_where(tg_gt_scalar(row, 0), x, row), tg_where(tg_gt_scalar(whole, 0), x, whole)));
    }
}

/* The arithmetic of two operands whose rows have gaps, in one or both, or of which one has one number for each row, and
   of results that are written between gaps: what it is of contiguous ones, of rows shorter and longer than vectors;
   nothing is written to the gaps. */
TEST(arithmetic_between_gaps)
{
    static tg_tensor *(*const ops[])(tg_tensor *, tg_tensor *) = {tg_add, tg_sub,     tg_mul,
                                                                  tg_div, tg_maximum, tg_minimum};
    static tg_tensor *(*const in_place[])(tg_tensor *, tg_tensor *) = {tg_add_, tg_sub_, tg_mul_, tg_div_};
    static const int64_t lengths[] = {3, 4, 7, 8, 9, 16, 17, 31, 44, 100, 2100};
    for (int i = 0; i < 11 * 2; ++i) {
        TG_SCOPE;
        const int64_t n = lengths[i % 11], rows = 2100 / n + 2, wide[] = {1, rows, n + 5};
        const tg_dtype dtype = dtypes[i / 11];
        tg_tensor *x = tg_select(integers(wide, dtype, 0.002), 0, 0), *y = tg_select(integers(wide, dtype, 0), 0, 0);
        tg_tensor *a = tg_narrow(x, 1, 2, n), *b = tg_narrow(y, 1, 1, n), *c = tg_clone(a), *d = tg_clone(b);
        tg_tensor *one = tg_narrow(x, 1, 0, 1), *all = tg_clone(tg_expand(one, TG_SHAPE(rows, n)));
        for (int op = 0; op < 6; ++op) {
            tg_tensor *wanted = without_nan(ops[op](c, d));
            CHECK(is_exactly(without_nan(ops[op](one, b)), without_nan(ops[op](all, b))));
            CHECK(is_exactly(without_nan(ops[op](b, one)), without_nan(ops[op](b, all))));
            CHECK(is_exactly(without_nan(ops[op](a, b)), wanted));
            CHECK(is_exactly(without_nan(ops[op](a, d)), wanted) && is_exactly(without_nan(ops[op](c, b)), wanted));
            if (op >= 4) continue;
            tg_tensor *written = tg_clone(x), *around = tg_clone(x);
            in_place[op](tg_narrow(written, 1, 2, n), b);
            tg_copy_(tg_narrow(around, 1, 2, n), ops[op](c, d));
            CHECK(is_exactly(without_nan(written), without_nan(around)));
        }
    }
}

/* Rows of the table that no id names have the gradient 0, those that many name the sum. */
TEST(gradient_of_a_table)
{
    for (int i = 0; i < 3; ++i) {
        const int64_t sizes[3] = {1, 40, 300}, shape[3] = {1, 200, 33};
        TG_SCOPE;
        tg_tensor *g = tg_select(integers(shape, TG_F32, 0), 0, 0);
        tg_tensor *ids = tg_randint_on(0, sizes[i], TG_SHAPE(200), TG_I64, HERE), *grad[2];
        for (int plain = 0; plain < 2; ++plain) {
            if (plain) oracle_begin();
            tg_tensor *table = tg_set_requires_grad(tg_zeros_on(TG_SHAPE(sizes[i], 33), TG_F32, HERE), true);
            tg_tensor *y = tg_embedding(table, plain ? copy_here(ids) : ids);
            grad[plain] = gradient(tg_mul(y, plain ? copy_here(g) : g), table, 0);
            if (plain) oracle_end();
        }
        CHECK(is_exactly(grad[0], grad[1]));
    }
}

/* Channels of x at n places around it, in a row of places or, in 3 dims, a block of them. */
static void compare_places(int mode, int padding, int dims, int64_t n, tg_dtype dtype)
{
    static const char *const modes[] = {"nearest", "bilinear", "bicubic"};
    static const char *const paddings[] = {"zeros", "border", "reflection"};
    TG_SCOPE;
    const double tolerance = dtype == TG_F64 ? 1e-9 : 1e-4;
    const tg_shape size = dims == 2 ? TG_SHAPE(2, 3, 5, 7) : TG_SHAPE(2, 3, 4, 5, 3);
    const tg_shape at = dims == 2 ? TG_SHAPE(2, 1, n, 2) : TG_SHAPE(2, 1, n, 1, 3);
    const tg_shape out = dims == 2 ? TG_SHAPE(2, 3, 1, n) : TG_SHAPE(2, 3, 1, n, 1);
    tg_tensor *x = tg_randn_on(size, dtype, HERE), *g = tg_randn_on(out, dtype, HERE), *result[2][3];
    tg_tensor *grid = tg_add_scalar(tg_mul_scalar(tg_rand_on(at, dtype, HERE), 3), -1.5);
    for (int plain = 0; plain < 2; ++plain) {
        if (plain) oracle_begin();
        tg_tensor *in[2], *of_y = plain ? copy_here(g) : g;
        in[0] = tg_set_requires_grad(plain ? copy_here(x) : tg_detach(x), true);
        in[1] = tg_set_requires_grad(plain ? copy_here(grid) : tg_detach(grid), true);
        result[plain][0] = tg_grid_sample(in[0], in[1], modes[mode], paddings[padding], n % 2 == 0);
        CHECK(tg_gradients(result[plain], 1, &of_y, in, 2, result[plain] + 1, 0) == TG_OK);
        if (plain) oracle_end();
    }
    for (int i = 0; i < 3; ++i) {
        if (CHECK(tg_allclose(copy_here(result[0][i]), copy_here(result[1][i]), tolerance, tolerance))) continue;
        printf("    %s, %s, %d dims, %d places, %s, result %d\n", modes[mode], paddings[padding], dims, (int)n,
               tg_dtype_name(dtype), i);
    }
}

TEST(places_of_a_grid)
{
    static const int64_t places[] = {1, 2, 15, 127, 128, 129, 300}; /* blocks are of 128 */
    for (int i = 0; i < 2 * (int)(sizeof places / sizeof *places); ++i) {
        for (int mode = 0; mode < 3; ++mode) {
            for (int padding = 0; padding < 3; ++padding) {
                compare_places(mode, padding, 2, places[i / 2], i % 2 ? TG_F64 : TG_F32);
                if (mode < 2 || i == 4) compare_places(mode, padding, 3, places[i / 2], i % 2 ? TG_F64 : TG_F32);
            }
        }
    }
}

/* Pads of tensors that are filled around the part alone, and cropped ones, beside a copy into a filled tensor. */
TEST(pads_around_a_part)
{
    static const int64_t pads[][6] = {{1, 2, 0, 0, 0, 0}, {0, 0, 3, 1, 0, 0}, {0, 0, 0, 0, 1, 0}, {2, 1, 1, 2, 1, 1},
                                      {-3, 5, 2, -1, 0, 1}, {0, 0, -40, 41, 0, 0}, {0, 0, -2, -1, -1, -1}};
    static const tg_dtype four[] = {TG_F32, TG_F16, TG_U8, TG_I64};
    for (int i = 0; i < 28; ++i) {
        TG_SCOPE;
        const int64_t *const p = pads[i / 4], size[3] = {3, 40, i % 3 == 2 ? 9 : 300};
        const tg_dtype dtype = four[i % 4];
        tg_tensor *x = tg_to_dtype(tg_randint(1, 100, TG_SHAPE(size[0], size[1], size[2])), dtype), *part = x;
        if (i % 5 == 4) x = part = tg_transpose(tg_contiguous(tg_transpose(x, 1, 2)), 1, 2);
        tg_tensor *wanted = tg_full_on(TG_SHAPE(size[0] + p[4] + p[5], size[1] + p[2] + p[3], size[2] + p[0] + p[1]), 7,
                                       dtype, TG_CPU), *inner = wanted;
        for (int d = 0; d < 3; ++d) {
            const int64_t before = p[4 - 2 * d], behind = p[5 - 2 * d], cut = before < 0 ? -before : 0;
            const int64_t length = size[d] - cut + (behind < 0 ? behind : 0);
            part = tg_narrow(part, d, cut, length);
            inner = tg_narrow(inner, d, before > 0 ? before : 0, length);
        }
        CHECK(tg_copy_(inner, part) != NULL);
        CHECK(tg_equal(tg_pad(x, TG_SHAPE(p[0], p[1], p[2], p[3], p[4], p[5]), 7), wanted));
    }
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    harness_take_device();
    tg_seed(5);
    RUN(pads_around_a_part);
    RUN(along_a_dim);
    RUN(reductions_of_one);
    RUN(copies_of_short_rows);
    RUN(modes_of_rows);
    RUN(gradients_of_running_products);
    RUN(sums_without_nan);
    RUN(sums_of_one_without_nan);
    RUN(reductions_of_two);
    RUN(extremes_of_few_rows);
    RUN(reductions_of_short_rows);
    RUN(reductions_of_repeats);
    RUN(reductions_of_rows_together);
    RUN(sums_of_rows_beside_others);
    RUN(sums_of_repeated_rows);
    RUN(products_down_columns);
    RUN(softmax_along_a_dim);
    RUN(norms_of_short_rows);
    RUN(sorts_of_long_rows);
    RUN(indices_along_a_dim);
    RUN(nonzero_of_masks);
    RUN(nonzero_on_threads);
    RUN(nonzero_and_one_hot);
    RUN(every_number);
    RUN(triangles_of_long_matrices);
    RUN(transposed_copies);
    RUN(starts_of_runs);
    RUN(places_in_sorted_rows);
    RUN(repeated_elements);
    RUN(repeated_rows);
    RUN(long_windows);
    RUN(windows_of_halves);
    RUN(casts_of_many);
    RUN(reductions_of_integers);
    RUN(rows_beside_one_row);
    RUN(arithmetic_between_gaps);
    RUN(gradient_of_a_table);
    RUN(places_of_a_grid);
    CHECK(tg_shutdown() == TG_OK);
    return harness_end();
}
