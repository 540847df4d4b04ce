/* The workloads that are one op: roofs, products of matrices, elementwise ops, rows and columns, copies, and what an
 * op costs beside its arithmetic.  The table of their kinds stands at the end. */
#include "roof.h"
#include "workloads.h"
#include <stdlib.h>
#include <string.h>

enum { REPEATED = 1000 };

/* ---- the roofs ------------------------------------------------------------------------------------------------- */

static void setup_peak(void) { now.flops = 0; }
static tg_tensor *forward_peak(void) { return now.flops = roof_fma(now.threads), NULL; }

enum { COPIED_FLOATS = 1 << 20 }; /* a turn copies at least as many: its own cost does not count then */
enum { APART = 272 }; /* floats between the two: where both begin at the same place of a page, loads wait for stores */
static float *buffer; /* destination and source */

static void setup_copy(void)
{
    const int64_t n = now.size[0];
    buffer = (float *)malloc((2 * (size_t)n + APART) * sizeof *buffer);
    for (int64_t i = 0; buffer && i < 2 * n + APART; ++i) buffer[i] = 1;
    now.calls = n < COPIED_FLOATS ? (double)(COPIED_FLOATS / n) : 1;
    cost(0, 2 * (double)n * now.calls);
}
static tg_tensor *forward_copy(void)
{
    const float *source = buffer + now.size[0] + APART;
    if (buffer) roof_copy(buffer, source, now.size[0], (int)now.calls, option("stream"), now.threads);
    return NULL;
}

/* ---- products of matrices -------------------------------------------------------------------------------------- */

/* sizes M, N, K; options say which of the two is transposed: NN, NT, TN, TT */
static void setup_product(tg_dtype dtype)
{
    const int64_t M = now.size[0], N = now.size[1], K = now.size[2];
    const bool a = now.options[0] == 'T', b = now.options[0] && now.options[1] == 'T';
    const tg_shape shapes[2] = {a ? TG_SHAPE(K, M) : TG_SHAPE(M, K), b ? TG_SHAPE(N, K) : TG_SHAPE(K, N)};
    for (int i = 0; i < 2; ++i) {
        TG_SCOPE;
        tg_tensor *t = numbers(shapes[i], (uint32_t)i + 1);
        if (dtype == TG_I64) tg_mul_scalar_(t, 100);
        now.input[i] = tg_retain(tg_to_dtype(t, dtype));
        tg_release(t);
    }
    now.inputs = 2;
    if (M == 1 || N == 1) cost(0, (double)(M * N + M * K + N * K)); /* each element of the matrix is needed once */
    else if (dtype != TG_I64) cost(2.0 * (double)M * (double)N * (double)K, 0);
}
static void setup_sgemm(void) { setup_product(TG_F32); }
static void setup_matmul_i64(void) { setup_product(TG_I64); }
static void setup_matmul_bf16(void) { setup_product(TG_BF16); }
static tg_tensor *forward_product(void)
{
    tg_tensor *a = now.input[0], *b = now.input[1];
    if (now.options[0] == 'T') a = tg_t(a);
    if (now.options[0] && now.options[1] == 'T') b = tg_t(b);
    return tg_matmul(a, b);
}

/* sizes N, C, H, W: a 3x3 convolution from C to C channels */
static void setup_conv2d(void)
{
    const int64_t N = now.size[0], C = now.size[1], H = now.size[2], W = now.size[3];
    input(TG_SHAPE(N, C, H, W));
    input(TG_SHAPE(C, C, 3, 3));
    cost(2.0 * (double)(N * C * H * W) * (double)C * 9, 0);
}
static tg_tensor *forward_conv2d(void)
{
    return tg_conv2d(now.input[0], now.input[1], NULL, TG_SHAPE(1), TG_SHAPE(1), TG_SHAPE(1), 1);
}

/* ---- elementwise, rows and columns, copies --------------------------------------------------------------------- */

static void setup_unary(void)
{
    input(TG_SHAPE(now.size[0]));
    cost(0, 2 * (double)now.size[0]);
}
static tg_tensor *forward_unary(void) { return now.kind->unary(now.input[0]); }
static tg_tensor *gelu_erf(tg_tensor *x) { return tg_gelu(x, false); }
static tg_tensor *gelu_tanh(tg_tensor *x) { return tg_gelu(x, true); }
static tg_tensor *to_f16(tg_tensor *x) { return tg_to_dtype(x, TG_F16); }

static void setup_binary(void)
{
    input(TG_SHAPE(now.size[0]));
    input(TG_SHAPE(now.size[0]));
    cost(0, 3 * (double)now.size[0]);
}
static tg_tensor *forward_binary(void) { return now.kind->binary(now.input[0], now.input[1]); }

static void setup_sum(void)
{
    input(TG_SHAPE(now.size[0]));
    cost(0, (double)now.size[0]);
}

/* sizes rows, columns */
static void setup_matrix(void)
{
    input(TG_SHAPE(now.size[0], now.size[1]));
    cost(0, 2 * (double)(now.size[0] * now.size[1]));
}
static tg_tensor *softmax(tg_tensor *x) { return tg_softmax(x, -1); }
static tg_tensor *log_softmax(tg_tensor *x) { return tg_log_softmax(x, -1); }
static tg_tensor *transposed_copy(tg_tensor *x) { return tg_contiguous(tg_t(x)); }

static void setup_sums(void)
{
    input(TG_SHAPE(now.size[0], now.size[1]));
    cost(0, (double)(now.size[0] * now.size[1]));
}
static tg_tensor *sum_dim0(tg_tensor *x) { return tg_sum_dim(x, 0, false); }
static tg_tensor *sum_dim1(tg_tensor *x) { return tg_sum_dim(x, 1, false); }

static void setup_layer_norm(void)
{
    setup_matrix();
    input(TG_SHAPE(now.size[1]));
    input(TG_SHAPE(now.size[1]));
}
static tg_tensor *forward_layer_norm(void) { return tg_layer_norm(now.input[0], 1, now.input[1], now.input[2], 1e-5); }

static void setup_bias_add(void)
{
    setup_matrix();
    input(TG_SHAPE(now.size[1]));
}

static void setup_cat(void)
{
    setup_matrix();
    input(TG_SHAPE(now.size[0], now.size[1]));
    cost(0, 4 * (double)(now.size[0] * now.size[1]));
}
static tg_tensor *forward_cat(void) { return tg_cat(now.input, 2, 1); }

/* sizes rows of the table, its columns, ids */
static void setup_embedding(void)
{
    input(TG_SHAPE(now.size[0], now.size[1]));
    now.index = labels(TG_SHAPE(now.size[2]), 9, now.size[0]);
    cost(0, 2 * (double)(now.size[2] * now.size[1]));
    if (now.mode != FORWARD) now.bytes += 4 * (double)(now.size[0] * now.size[1]); /* the gradient of the whole table */
}
static tg_tensor *forward_embedding(void) { return tg_embedding(now.input[0], now.index); }

static void setup_randn(void) { cost(0, (double)now.size[0]); }
static tg_tensor *forward_randn(void) { return tg_randn(TG_SHAPE(now.size[0])); }

static void setup_index_select(void)
{
    setup_matrix();
    now.index = labels(TG_SHAPE(now.size[1]), 9, now.size[1]);
}
static tg_tensor *forward_index_select(void) { return tg_index_select(now.input[0], 1, now.index); }

/* sizes rows, columns, k */
static void setup_topk(void)
{
    input(TG_SHAPE(now.size[0], now.size[1]));
    cost(0, (double)(now.size[0] * now.size[1]));
}
static tg_tensor *forward_topk(void)
{
    tg_tensor *indices;
    return tg_topk(now.input[0], now.size[2], 1, true, &indices);
}

/* sizes count, n: matrices [count, n, n] that are far from singular; of them positive-definite and symmetric ones */
static void setup_matrices(void)
{
    const int64_t n = now.size[1];
    TG_SCOPE;
    tg_tensor *x = input(TG_SHAPE(now.size[0], n, n));
    cost(0, (double)(now.size[0] * n * n));
    tg_add_(x, tg_mul_scalar(tg_eye(n), (double)n));
}
static void setup_positive(void)
{
    TG_SCOPE;
    setup_matrices();
    tg_copy_(now.input[0], tg_matmul(now.input[0], tg_transpose(now.input[0], -2, -1)));
}
static void setup_symmetric(void)
{
    TG_SCOPE;
    setup_matrices();
    tg_copy_(now.input[0], tg_add(now.input[0], tg_transpose(now.input[0], -2, -1)));
}
static tg_tensor *solved(tg_tensor *x) { return tg_linalg_solve(x, x, true); }
static tg_tensor *cholesky(tg_tensor *x) { return tg_linalg_cholesky(x, false); }
static tg_tensor *eigh(tg_tensor *x)
{
    tg_tensor *v;
    return tg_linalg_eigh(x, NULL, &v);
}
static tg_tensor *svd(tg_tensor *x) { return tg_linalg_svd(x, false, NULL, NULL); }

/* sizes rows, classes */
static void setup_cross_entropy(void)
{
    const double floats = (double)(now.size[0] * now.size[1]);
    input(TG_SHAPE(now.size[0], now.size[1]));
    now.index = labels(TG_SHAPE(now.size[0]), 9, now.size[1]);
    cost(0, floats);
    now.bytes = 4 * floats * (now.mode == FORWARD ? 1 : now.mode == BACKWARD ? 2 : 3);
}
static tg_tensor *forward_cross_entropy(void) { return tg_cross_entropy(now.input[0], now.index); }

/* ---- what an op costs beside its arithmetic -------------------------------------------------------------------- */

static void setup_op(void)
{
    now.grad = option("grad");
    input(TG_SHAPE(now.size[0]));
    input(TG_SHAPE(now.size[0]));
    now.calls = REPEATED;
}
static tg_tensor *forward_op(void)
{
    for (int i = 0; i < REPEATED / 100; ++i) {
        TG_SCOPE;
        for (int k = 0; k < 100; ++k) (void)tg_add(now.input[0], now.input[1]);
    }
    return NULL;
}

static tg_tensor *forward_chain(void)
{
    tg_tensor *y = now.input[0];
    for (int i = 0; i < REPEATED; ++i) y = tg_mul(y, now.input[1]);
    return y;
}
static void setup_chain(void)
{
    now.grad = now.grad || option("grad");
    input(TG_SHAPE(now.size[0]));
    now.grad = false;
    input(TG_SHAPE(now.size[0]));
    tg_fill_(now.input[1], 1);
    now.calls = REPEATED;
}

/* A network of scalars, 2-16-16-1 with relu, whose every sum and product is a tensor of one element: what micrograd
   does. sizes: points.  The calls of a turn are the nodes of the graph. */
enum { SCALAR_LAYERS = 3 };
static const int scalar_width[SCALAR_LAYERS + 1] = {2, 16, 16, 1};
static tg_tensor *scalar_weight[SCALAR_LAYERS * 16 * 17];
static int scalar_weights;

static void setup_scalar_graph(void)
{
    double nodes = 0;
    scalar_weights = 0;
    for (int layer = 0; layer < SCALAR_LAYERS; ++layer) {
        const int in = scalar_width[layer], out = scalar_width[layer + 1];
        for (int i = 0; i < (in + 1) * out; ++i) {
            tg_tensor *w = tg_param(fill(tg_empty(TG_SCALAR), (uint32_t)scalar_weights + 1, 1));
            scalar_weight[scalar_weights++] = w;
        }
        nodes += (2.0 * in + (layer < SCALAR_LAYERS - 1)) * out;
    }
    for (int i = 0; i < 3; ++i) now.input[i] = numbers(TG_SHAPE(now.size[0]), 100 + (uint32_t)i);
    now.inputs = 3;
    now.calls = (nodes + 4) * (double)now.size[0];
}
static tg_tensor *scalar_output(tg_tensor *const *point)
{
    tg_tensor *x[16], *y[16];
    int w = 0;
    memcpy(x, point, 2 * sizeof *x);
    for (int layer = 0; layer < SCALAR_LAYERS; ++layer) {
        for (int o = 0; o < scalar_width[layer + 1]; ++o) {
            y[o] = scalar_weight[w++];
            for (int i = 0; i < scalar_width[layer]; ++i) y[o] = tg_add(y[o], tg_mul(x[i], scalar_weight[w++]));
            if (layer < SCALAR_LAYERS - 1) y[o] = tg_relu(y[o]);
        }
        memcpy(x, y, sizeof x);
    }
    return x[0];
}
static tg_tensor *forward_scalar_graph(void)
{
    tg_tensor *loss = tg_scalar(0);
    for (int64_t i = 0; i < now.size[0]; ++i) {
        tg_tensor *point[2], *score;
        for (int k = 0; k < 2; ++k) point[k] = tg_scalar((double)tg_data_f32(now.input[k])[i]);
        score = tg_mul_scalar(scalar_output(point), tg_data_f32(now.input[2])[i] < 0 ? 1 : -1);
        loss = tg_add(loss, tg_relu(tg_add_scalar(score, 1)));
    }
    tg_zero_grad(scalar_weight, scalar_weights);
    tg_backward(loss);
    return NULL;
}

void end_op(void)
{
    tg_release_all(scalar_weight, scalar_weights);
    scalar_weights = 0;
    free(buffer);
    buffer = NULL;
}

/* ---- the table ------------------------------------------------------------------------------------------------- */

const kind op_kinds[] = {
    {"fma_peak", setup_peak, forward_peak, NULL, NULL},
    {"copy", setup_copy, forward_copy, NULL, NULL},
    {"sgemm", setup_sgemm, forward_product, NULL, NULL},
    {"matmul_i64", setup_matmul_i64, forward_product, NULL, NULL},
    {"matmul_bf16", setup_matmul_bf16, forward_product, NULL, NULL},
    {"conv2d", setup_conv2d, forward_conv2d, NULL, NULL},
    {"exp", setup_unary, forward_unary, tg_exp, NULL},
    {"tanh", setup_unary, forward_unary, tg_tanh, NULL},
    {"gelu", setup_unary, forward_unary, gelu_erf, NULL},
    {"gelu_tanh", setup_unary, forward_unary, gelu_tanh, NULL},
    {"sigmoid", setup_unary, forward_unary, tg_sigmoid, NULL},
    {"silu", setup_unary, forward_unary, tg_silu, NULL},
    {"relu", setup_unary, forward_unary, tg_relu, NULL},
    {"f32_to_f16", setup_unary, forward_unary, to_f16, NULL},
    {"add", setup_binary, forward_binary, NULL, tg_add},
    {"mul", setup_binary, forward_binary, NULL, tg_mul},
    {"add_in_place", setup_binary, forward_binary, NULL, tg_add_},
    {"relu_in_place", setup_unary, forward_unary, tg_relu_, NULL},
    {"sum", setup_sum, forward_unary, tg_sum, NULL},
    {"sum_dim0", setup_sums, forward_unary, sum_dim0, NULL},
    {"sum_dim1", setup_sums, forward_unary, sum_dim1, NULL},
    {"softmax", setup_matrix, forward_unary, softmax, NULL},
    {"log_softmax", setup_matrix, forward_unary, log_softmax, NULL},
    {"layer_norm", setup_layer_norm, forward_layer_norm, NULL, NULL},
    {"bias_add", setup_bias_add, forward_binary, NULL, tg_add},
    {"transposed_copy", setup_matrix, forward_unary, transposed_copy, NULL},
    {"cat", setup_cat, forward_cat, NULL, NULL},
    {"embedding", setup_embedding, forward_embedding, NULL, NULL},
    {"randn", setup_randn, forward_randn, NULL, NULL},
    {"index_select", setup_index_select, forward_index_select, NULL, NULL},
    {"topk", setup_topk, forward_topk, NULL, NULL},
    {"inv", setup_matrices, forward_unary, tg_linalg_inv, NULL},
    {"solve", setup_matrices, forward_unary, solved, NULL},
    {"det", setup_matrices, forward_unary, tg_linalg_det, NULL},
    {"cholesky", setup_positive, forward_unary, cholesky, NULL},
    {"eigh", setup_symmetric, forward_unary, eigh, NULL},
    {"svd", setup_matrices, forward_unary, svd, NULL},
    {"cross_entropy", setup_cross_entropy, forward_cross_entropy, NULL, NULL},
    {"op", setup_op, forward_op, NULL, NULL},
    {"chain", setup_chain, forward_chain, NULL, NULL},
    {"scalar_graph", setup_scalar_graph, forward_scalar_graph, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};
