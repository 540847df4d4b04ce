/* Attention that keeps no scores, where the device has it, against the same composed of products and a softmax, which
 * the plain backend computes in f64: values and gradients in all dtypes and layouts, masks, and the memory it takes. */
#include "tensorgrad.h"
#include "helpers.h"

typedef struct { int64_t batch, heads, queries, keys, width, value_width; } sizes;

/* Kinds of masks.  Rows that the mask hides from all keys give 0. */
enum { NO_MASK, CAUSAL, BOOL_MASK, FLOAT_MASK, KEYS_MASK, MASKS };

/* [heads, L, S], in which query 1 sees nothing and others about half of the keys, with numbers between; KEYS_MASK
   [batch, 1, 1, S]: the same keys for all queries. */
static tg_tensor *mask_of(int kind, sizes n, tg_dtype dtype)
{
    tg_shape shape = TG_SHAPE(n.heads, n.queries, n.keys);
    if (kind < BOOL_MASK) return NULL;
    if (kind == KEYS_MASK) shape = TG_SHAPE(n.batch, 1, 1, n.keys);
    tg_tensor *chance = tg_rand_on(shape, TG_F32, HERE), *seen = tg_lt_scalar(chance, 0.5);
    if (kind == KEYS_MASK) return seen;
    if (n.queries > 1) tg_fill_(tg_select(seen, 1, 1), 0);
    if (kind == BOOL_MASK) return seen;
    return tg_masked_fill(tg_to_dtype(chance, dtype), tg_logical_not(seen), -(double)INFINITY);
}

/* The definition; in and mask are the oracle's, in f64. */
static tg_tensor *defined(tg_tensor *const *in, tg_tensor *mask, bool is_causal, double scale)
{
    const double none = -(double)INFINITY;
    tg_tensor *s = tg_mul_scalar(tg_matmul(in[0], tg_transpose(in[1], -2, -1)), scale), *blind;
    tg_tensor *all = tg_ones_on(TG_SHAPE(tg_dim(s, -2), tg_dim(s, -1)), TG_BOOL, HERE);
    if (is_causal) mask = tg_tril(all, 0);
    if (mask && tg_dtype_of(mask) != TG_BOOL) s = tg_add(s, tg_to_dtype(mask, TG_F64));
    if (mask && tg_dtype_of(mask) == TG_BOOL) s = tg_masked_fill(s, tg_logical_not(mask), none);
    blind = tg_all_dim(tg_eq_scalar(s, none), -1, true);
    return tg_matmul(tg_masked_fill(tg_softmax(tg_masked_fill(s, blind, 0), -1), blind, 0), in[2]);
}

/* q, k and v: leaves, and what is given to attention.  packed: views of one [batch, length, 3, heads, width]. */
static void draw(sizes n, tg_dtype dtype, bool packed, tg_tensor **leaves, tg_tensor **in)
{
    if (packed) {
        const tg_shape shape = TG_SHAPE(n.batch, n.queries, 3, n.heads, n.width);
        leaves[0] = tg_set_requires_grad(tg_to_dtype(tg_randn_on(shape, TG_F32, HERE), dtype), true);
        tg_unbind(leaves[0], 2, in, 3);
        for (int i = 0; i < 3; ++i) in[i] = tg_transpose(in[i], 1, 2);
        return;
    }
    for (int i = 0; i < 3; ++i) {
        const tg_shape shape = TG_SHAPE(n.batch, n.heads, i ? n.keys : n.queries, i < 2 ? n.width : n.value_width);
        in[i] = leaves[i] = tg_set_requires_grad(tg_to_dtype(tg_randn_on(shape, TG_F32, HERE), dtype), true);
    }
}

static bool close_to(tg_tensor *t, tg_tensor *wanted, tg_dtype dtype)
{
    static const double least[] = {3e-5, 1e-11, 3e-2, 4e-3};
    return t && tg_dtype_of(t) == dtype && is_nearly(t, wanted, least[dtype], least[dtype]);
}

/* Values, gradients, and gradients of which a graph is made, against the definition. */
static bool agrees(sizes n, tg_dtype dtype, int kind, bool packed, double scale)
{
    TG_SCOPE;
    tg_tensor *leaves[3], *in[3], *exact[3], *exact_in[3], *d[3] = {NULL}, *composed[3] = {NULL}, *wanted[3] = {NULL};
    const int count = packed ? 1 : 3;
    draw(n, dtype, packed, leaves, in);
    tg_tensor *mask = mask_of(kind, n, dtype);
    tg_tensor *y = tg_scaled_dot_product_attention(in[0], in[1], in[2], mask, 0, kind == CAUSAL, scale);
    tg_tensor *g = y ? tg_to_dtype(tg_randn_on(tg_shape_of(y), TG_F32, HERE), dtype) : NULL;
    oracle_begin();
    for (int i = 0; i < count; ++i) exact[i] = exact_leaf(leaves[i]);
    if (packed) tg_unbind(exact[0], 2, exact_in, 3);
    for (int i = 0; i < 3; ++i) exact_in[i] = packed ? tg_transpose(exact_in[i], 1, 2) : exact[i];
    tg_tensor *h = exact_leaf(g);
    tg_tensor *x = defined(exact_in, copy_here(mask), kind == CAUSAL, scale != 0 ? scale : 1 / sqrt((double)n.width));
    const bool solved = tg_gradients(&x, 1, &h, exact, count, wanted, 0) == TG_OK;
    oracle_end();
    return solved && close_to(y, x, dtype) &&
           tg_gradients(&y, 1, &g, leaves, count, d, TG_RETAIN_GRAPH) == TG_OK &&
           tg_gradients(&y, 1, &g, leaves, count, composed, TG_CREATE_GRAPH) == TG_OK &&
           close_to(d[0], wanted[0], dtype) && close_to(composed[0], wanted[0], dtype) &&
           (packed || (close_to(d[1], wanted[1], dtype) && close_to(composed[1], wanted[1], dtype) &&
                       close_to(d[2], wanted[2], dtype) && close_to(composed[2], wanted[2], dtype)));
}

static void check_agrees(sizes n, tg_dtype dtype, int kind, bool packed, double scale)
{
    if (CHECK(agrees(n, dtype, kind, packed, scale))) return;
    printf("    %s, mask %d, packed %d, batch %d, heads %d, queries %d, keys %d, width %d, value width %d\n",
           tg_dtype_name(dtype), kind, packed, (int)n.batch, (int)n.heads, (int)n.queries, (int)n.keys, (int)n.width,
           (int)n.value_width);
}

TEST(attention_as_defined)
{
    static const sizes all[] = {{1, 1, 1, 1, 1, 1},     {2, 1, 8, 3, 16, 16},   {1, 2, 9, 8, 1, 5},
                                {2, 1, 17, 33, 32, 7},  {1, 2, 50, 15, 7, 32},  {1, 1, 70, 130, 64, 80},
                                {1, 1, 101, 61, 80, 9}, {1, 1, 13, 20, 5, 128}, {1, 1, 13, 3000, 3, 2},
                                {2, 2, 1, 200, 16, 16}, {1, 3, 5, 129, 7, 40},  {1, 2, 7, 64, 33, 64}};
    tg_seed(7);
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
        for (int kind = 0; kind < MASKS; ++kind) {
            check_agrees(all[i], TG_F32, kind, false, 0);
            check_agrees(all[i], TG_F64, kind, false, -0.7);
            if (i % 3 == 1) check_agrees(all[i], TG_BF16, kind, false, 0);
            if (i % 3 == 2) check_agrees(all[i], TG_F16, kind, false, 0);
        }
    }
}

TEST(attention_of_packed_q_k_v)
{
    static const sizes all[] = {{2, 3, 8, 8, 4, 4}, {1, 2, 37, 37, 16, 16}, {2, 2, 64, 64, 32, 32}};
    static const tg_dtype dtypes[] = {TG_F32, TG_F64, TG_BF16, TG_F16};
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
        for (int kind = 0; kind < MASKS; ++kind) {
            for (int k = 0; k < 4; ++k) check_agrees(all[i], dtypes[k], kind, true, 0);
        }
    }
}

/* Batch dims that broadcast: queries of several heads with one head of keys, a single matrix of values. */
TEST(attention_broadcasts)
{
    tg_seed(8);
    for (int is_causal = 0; is_causal < 2; ++is_causal) {
        tg_tensor *in[3], *exact[3], *d[3], *wanted[3];
        in[0] = tg_randn_on(TG_SHAPE(2, 3, 11, 6), TG_F32, HERE);
        in[1] = tg_randn_on(TG_SHAPE(3, 1, 9, 6), TG_F32, HERE);
        in[1] = tg_expand(tg_narrow(in[1], 0, 1, 1), TG_SHAPE(1, 1, 9, 6));
        in[2] = tg_t(tg_randn_on(TG_SHAPE(5, 9), TG_F32, HERE));
        for (int i = 0; i < 3; ++i) in[i] = tg_set_requires_grad(tg_detach(in[i]), true);
        oracle_begin();
        for (int i = 0; i < 3; ++i) exact[i] = exact_leaf(in[i]);
        tg_tensor *x = defined(exact, NULL, is_causal != 0, 1), *loss = tg_sum(tg_square(x));
        CHECK(tg_gradients(&loss, 1, NULL, exact, 3, wanted, 0) == TG_OK);
        oracle_end();
        tg_tensor *y = tg_scaled_dot_product_attention(in[0], in[1], in[2], NULL, 0, is_causal != 0, 1);
        CHECK(close_to(y, x, TG_F32));
        y = tg_sum(tg_square(y));
        CHECK(tg_gradients(&y, 1, NULL, in, 3, d, 0) == TG_OK);
        for (int i = 0; i < 3; ++i) CHECK(close_to(d[i], wanted[i], TG_F32));
        tg_set_requires_grad(in[0], false), tg_set_requires_grad(in[1], false); /* only the gradient of v */
        y = tg_scaled_dot_product_attention(in[0], in[1], in[2], NULL, 0, is_causal != 0, 1);
        CHECK(backward_sum(tg_square(y)) == TG_OK && close_to(tg_grad(in[2]), wanted[2], TG_F32));
    }
}

/* Parts of one tensor [batch, length, 3 * heads * width] as q, k and v, in any order, one of them twice or without a
   gradient, with gradients of the parts that are kept: like the definition, in f64, of parts of such a tensor. */
TEST(attention_of_parts)
{
    static const int order[][3] = {{0, 1, 2}, {2, 1, 0}, {1, 2, 0}, {0, 0, 2}, {0, 2, 2}};
    const sizes n = {2, 3, 9, 9, 8, 8};
    tg_seed(9);
    for (int how = 0; how < 5 * 4; ++how) {
        TG_SCOPE;
        const bool unbinds = how & 1, keeps = how & 2;
        tg_tensor *leaf[2], *d[2][3];
        leaf[0] = tg_set_requires_grad(tg_randn_on(TG_SHAPE(n.batch, n.queries, 3 * 24), TG_F32, HERE), true);
        for (int k = 0; k < 2; ++k) {
            tg_tensor *part[3], *in[3];
            if (k) oracle_begin(), leaf[1] = exact_leaf(leaf[0]);
            if (unbinds) tg_unbind(tg_view(leaf[k], TG_SHAPE(n.batch, n.queries, 3, 24)), 2, part, 3);
            else tg_chunk(leaf[k], 3, -1, part, 3);
            for (int i = 0; keeps && i < 3; ++i) tg_retain_grad(part[i]);
            for (int i = 0; i < 3; ++i) {
                tg_tensor *of = tg_view(part[order[how / 4][i]], TG_SHAPE(n.batch, n.queries, n.heads, n.width));
                in[i] = tg_transpose(of, 1, 2);
            }
            if (how / 4 == 4) in[1] = tg_detach(in[1]);
            tg_tensor *y = k ? defined(in, NULL, true, 0.5)
                             : tg_scaled_dot_product_attention(in[0], in[1], in[2], NULL, 0, true, 0.5);
            CHECK(backward_sum(tg_square(y)) == TG_OK);
            for (int i = 0; i < 3; ++i) d[k][i] = keeps ? tg_grad(part[i]) : NULL;
        }
        oracle_end();
        CHECK(close_to(tg_grad(leaf[0]), tg_grad(leaf[1]), TG_F32));
        for (int i = 0; i < 3; ++i) CHECK(!d[1][i] == !d[0][i] && (!d[0][i] || close_to(d[0][i], d[1][i], TG_F32)));
    }
}

/* NaN in a query or a key reaches all results that depend on it. */
TEST(attention_of_nan)
{
    tg_tensor *q = tg_randn_on(TG_SHAPE(12, 4), TG_F32, HERE), *k = tg_randn_on(TG_SHAPE(12, 4), TG_F32, HERE);
    CHECK(tg_set(q, TG_INDEX(5, 1), NAN) == TG_OK);
    tg_tensor *y = tg_isnan(tg_scaled_dot_product_attention(q, k, k, NULL, 0, false, 0));
    CHECK(tg_item(tg_all(tg_select(y, 0, 5))) == 1 && tg_item(tg_sum(y)) == 4);
    CHECK(tg_set(k, TG_INDEX(9, 0), NAN) == TG_OK);
    y = tg_isnan(tg_scaled_dot_product_attention(k, k, k, NULL, 0, true, 0));
    CHECK(tg_item(tg_all(tg_narrow(y, 0, 9, 3))) == 1 && tg_item(tg_any(tg_narrow(y, 1, 1, 3))) == 1);
    CHECK(tg_item(tg_all(tg_isnan(tg_scaled_dot_product_attention(k, k, k, NULL, 0, false, 0)))) == 1);
    /* a query gives its NaN to the gradients of the values that it sees, and to no others */
    if (harness_skips_plain("attention_of_nan of the fused gradient")) return;
    tg_tensor *leaf = tg_set_requires_grad(tg_randn_on(TG_SHAPE(12, 4), TG_F32, HERE), true);
    tg_tensor *key = tg_randn_on(TG_SHAPE(12, 4), TG_F32, HERE);
    CHECK(tg_backward(tg_sum(tg_scaled_dot_product_attention(q, key, leaf, NULL, 0, true, 0))) == TG_OK);
    y = tg_isnan(tg_grad(leaf));
    CHECK(tg_item(tg_all(tg_narrow(y, 0, 0, 6))) == 1 && tg_item(tg_any(tg_narrow(y, 0, 6, 6))) == 0);
}

/* The CPU has no tensor of scores, neither for backward nor while it computes. */
TEST(attention_keeps_no_scores)
{
    if (HERE.type != TG_DEV_CPU || harness_skips_plain("attention_keeps_no_scores")) return;
    const int64_t heads = 16, length = 512, bytes = heads * length * length * 4;
    tg_tensor *q = tg_set_requires_grad(tg_randn(TG_SHAPE(heads, length, 8)), true);
    const tg_stats_info before = (tg_reset_peak(), tg_stats());
    tg_tensor *y = tg_scaled_dot_product_attention(q, q, q, NULL, 0, true, 0);
    CHECK(backward_sum(y) == TG_OK);
    CHECK(tg_stats().peak_bytes - before.bytes < bytes / 4);
}

/* A few queries read keys and values in bf16 where they lie, if a row has whole vectors of any processor. */
TEST(attention_of_few_queries_in_bf16)
{
    static const sizes all[] = {{2, 2, 3, 70, 64, 64}, {1, 2, 1, 129, 128, 64}, {1, 1, 7, 65, 32, 192},
                                {1, 2, 2, 67, 64, 40}, {1, 2, 4, 4, 64, 64},    {1, 1, 5, 131, 48, 128}};
    tg_seed(8);
    for (size_t i = 0; i < sizeof all / sizeof *all; ++i) {
        for (int kind = 0; kind < MASKS; ++kind) check_agrees(all[i], TG_BF16, kind, false, 0);
    }
    for (int kind = 0; kind < BOOL_MASK; ++kind) {
        const sizes packed = {2, 3, 5, 5, 64, 64};
        check_agrees(packed, TG_BF16, kind, true, 0);
    }
}

/* A few queries read the keys in blocks: keys that are hidden block by block, from the first or from the last on, count
   for nothing, also where they are NaN behind the causal limit; the memory does not grow with the keys. */
TEST(attention_of_few_queries)
{
    const int64_t keys = 300;
    tg_tensor *q = tg_randn_on(TG_SHAPE(2, 3, 8), TG_F32, HERE), *k = tg_randn_on(TG_SHAPE(2, keys, 8), TG_F32, HERE);
    tg_tensor *v = tg_randn_on(TG_SHAPE(2, keys, 5), TG_F32, HERE);
    for (int64_t from = 0; from < keys; from += 70) {
        for (int64_t to = from; to <= keys; to += 115) { /* from == to: nothing is seen */
            tg_tensor *seen = tg_zeros_on(TG_SHAPE(keys), TG_BOOL, HERE);
            tg_fill_(tg_narrow(seen, 0, from, to - from), 1);
            tg_tensor *y = tg_scaled_dot_product_attention(q, k, v, seen, 0, false, 0);
            tg_tensor *part = tg_scaled_dot_product_attention(q, tg_narrow(k, 1, from, to - from),
                                                              tg_narrow(v, 1, from, to - from), NULL, 0, false, 0);
            CHECK(is_nearly(y, part, 1e-5, 1e-6));
        }
    }
    tg_tensor *few = tg_scaled_dot_product_attention(q, tg_narrow(k, 1, 0, 3), tg_narrow(v, 1, 0, 3), NULL, 0, true, 0);
    tg_fill_(tg_narrow(k, 1, 3, keys - 3), NAN);
    tg_fill_(tg_narrow(v, 1, 3, keys - 3), NAN);
    if (HERE.type != TG_DEV_CPU || harness_skips_plain("attention_of_few_queries: NaN that is hidden, memory")) return;
    CHECK(tg_equal(tg_scaled_dot_product_attention(q, k, v, NULL, 0, true, 0), few));
    int64_t peak[2];
    for (int i = 0; i < 2; ++i) {
        k = tg_randn(TG_SHAPE(4, i ? 20000 : 200, 8));
        q = tg_randn(TG_SHAPE(4, 1, 8));
        const tg_stats_info before = (tg_reset_peak(), tg_stats());
        CHECK(tg_scaled_dot_product_attention(q, k, k, NULL, 0, false, 0) != NULL);
        peak[i] = tg_stats().peak_bytes - before.bytes;
    }
    CHECK(peak[0] == peak[1]);
}

/* Scores of 1e4 and more, many of them equal: the logarithm of the sum of their exp is rounded. */
TEST(large_scores)
{
    tg_tensor *in[3], *exact[3], *g[3], *wanted[3];
    for (int i = 0; i < 3; ++i) {
        tg_tensor *whole = tg_to_dtype(tg_randint_on(-2, 3, TG_SHAPE(1, 1, 64, 16), TG_I64, HERE), TG_F32);
        in[i] = tg_set_requires_grad(tg_mul_scalar(whole, i ? 1 : 30000), true);
    }
    if (tg_is_cuda(in[0])) {
        printf("skipped on a GPU, whose kernel keeps the rounded logarithm alone, as PyTorch's does\n");
        return;
    }
    tg_tensor *y = tg_sum(tg_scaled_dot_product_attention(in[0], in[1], in[2], NULL, 0, false, 0));
    oracle_begin();
    for (int i = 0; i < 3; ++i) exact[i] = exact_leaf(in[i]);
    tg_tensor *x = tg_sum(defined(exact, NULL, false, 0.25));
    CHECK(tg_gradients(&x, 1, NULL, exact, 3, wanted, 0) == TG_OK);
    oracle_end();
    CHECK(tg_gradients(&y, 1, NULL, in, 3, g, 0) == TG_OK);
    for (int i = 0; i < 3; ++i) {
        const double most = tg_item(tg_max(tg_abs(wanted[i])));
        CHECK(most > 0.01 && is_nearly(g[i], wanted[i], 0, 1e-5 * most));
    }
}

/* Heads that share keys or values, as views of one head, have the results of heads with copies of these: neighbouring
 * heads, others, and keys alone. */
TEST(attention_of_shared_keys)
{
    static const tg_dtype dtypes[] = {TG_F32, TG_F64, TG_BF16, TG_F16};
    for (int i = 0; i < 24; ++i) {
        const int which = i / 4 % 3;
        TG_SCOPE;
        const tg_shape one = which == 1 ? TG_SHAPE(1, 3, 33, 20) : TG_SHAPE(2, 1, 33, 20), all = TG_SHAPE(2, 3, 33, 20);
        tg_tensor *in[3], *copy[3], *y[2], *g[2][3];
        for (int k = 0; k < 3; ++k) {
            const tg_shape shape = k == 0 ? TG_SHAPE(2, 3, 20, 20) : which == 2 && k == 2 ? all : one;
            tg_tensor *x = tg_to_dtype(tg_randn_on(shape, TG_F32, HERE), dtypes[i % 4]);
            in[k] = tg_set_requires_grad(k ? tg_expand(x, all) : x, true);
            copy[k] = tg_set_requires_grad(tg_clone(tg_contiguous(tg_detach(in[k]))), true);
        }
        y[0] = tg_scaled_dot_product_attention(in[0], in[1], in[2], NULL, 0, i >= 12, 0);
        y[1] = tg_scaled_dot_product_attention(copy[0], copy[1], copy[2], NULL, 0, i >= 12, 0);
        CHECK(tg_equal(tg_detach(y[0]), tg_detach(y[1])));
        tg_tensor *start = tg_randn_like(tg_detach(y[0]));
        CHECK(tg_gradients(&y[0], 1, &start, in, 3, g[0], 0) == TG_OK);
        CHECK(tg_gradients(&y[1], 1, &start, copy, 3, g[1], 0) == TG_OK);
        for (int k = 0; k < 3; ++k) CHECK(tg_equal(g[0][k], g[1][k]));
    }
}

/* Rotary embedding where nothing is recorded, which works in a copy, equals the recorded one, is contiguous, and leaves
 * x alone: all dtypes, mixed ones, broadcast angles, a permuted x, and elements that stay. */
TEST(rope_with_and_without_a_graph)
{
    static const tg_dtype dtypes[] = {TG_F32, TG_F64, TG_BF16, TG_F16};
    const bool exact = HERE.type == TG_DEV_CPU && strcmp(tg_cpu_capability(), "plain") != 0; /* no f64, no FMA */
    for (int k = 0; k < 64; ++k) {
        const tg_dtype dtype = dtypes[k % 4], angles = dtypes[k / 4 % 4];
        const bool interleaved = k / 16 % 2, permuted = k / 32 % 2;
        const int64_t width = k % 3 ? 10 : 13;
        TG_SCOPE;
        tg_tensor *x = tg_to_dtype(tg_randn_on(TG_SHAPE(2, 7, 3, width), TG_F32, HERE), dtype), *still, *same;
        if (permuted) x = tg_transpose(x, 1, 2);
        const tg_shape shape = permuted ? TG_SHAPE(7, 5) : TG_SHAPE(7, 1, 5);
        tg_tensor *cos = tg_to_dtype(tg_randn_on(shape, TG_F32, HERE), angles);
        tg_tensor *sin = tg_to_dtype(tg_randn_on(shape, TG_F32, HERE), angles);
        still = tg_clone(x), same = tg_set_requires_grad(tg_clone(x), true);
        tg_tensor *y = tg_rope(x, cos, sin, interleaved), *recorded = tg_rope(same, cos, sin, interleaved);
        CHECK(tg_dtype_of(y) == dtype && tg_is_contiguous(y) && tg_equal(x, still));
        CHECK(close_to(y, tg_to_dtype(recorded, TG_F64), dtype) && (!exact || tg_equal(y, recorded)));
        TG_NO_GRAD;
        CHECK(tg_equal(tg_rope(same, cos, sin, interleaved), y));
    }
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    harness_take_device();
    RUN(attention_as_defined);
    RUN(attention_of_packed_q_k_v);
    RUN(attention_of_parts);
    RUN(attention_broadcasts);
    RUN(attention_of_nan);
    RUN(attention_keeps_no_scores);
    RUN(attention_of_few_queries_in_bf16);
    RUN(attention_of_few_queries);
    RUN(large_scores);
    RUN(attention_of_shared_keys);
    RUN(rope_with_and_without_a_graph);
    CHECK(tg_shutdown() == TG_OK);
    return harness_end();
}
