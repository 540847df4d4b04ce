/* The CUDA row of the backend table against the CPU's: the same ops, values and gradients, on two devices and through
   moves.  Built by `make sim MAIN=tests/sim_kernels.c OUT=prog` for the simulator; it runs on GPUs, too. */
#define TENSORGRAD_IMPLEMENTATION
#include "../tensorgrad.h"
#include "harness.h"

enum { INPUTS = 3, OPS = 64 };

/* Op number k of inputs a [6, 5], b [6, 5], w [5, 4] and index vector ids [4]; NULL past the last. */
static tg_tensor *op(int k, tg_tensor *const *in, tg_tensor *ids, const char **name)
{
    tg_tensor *a = in[0], *b = in[1], *w = in[2], *none = NULL;
    tg_shape last = TG_DIMS(-1);
#define OP(number, call) case number: *name = #call; return call
    switch (k) {
    OP(0, tg_add(a, tg_select(b, 0, 1)));
    OP(1, tg_mul(a, tg_t(tg_reshape(b, TG_SHAPE(5, 6)))));
    OP(2, tg_div(a, tg_add_scalar(tg_square(b), 1)));
    OP(3, tg_exp(tg_sub(a, b)));
    OP(4, tg_tanh(tg_transpose(a, 0, 1)));
    OP(5, tg_gelu(a, true));
    OP(6, tg_gelu(a, false));
    OP(7, tg_silu(a));
    OP(8, tg_where(tg_gt(a, b), a, b));
    OP(9, tg_maximum(a, b));
    OP(10, tg_clamp(a, -0.5, 0.5));
    OP(11, tg_masked_fill(a, tg_lt_scalar(b, 0), 2));
    OP(12, tg_sum(a));
    OP(13, tg_sum_dim(a, 0, false));
    OP(14, tg_mean_dims(tg_t(a), last, true));
    OP(15, tg_prod_dim(a, 1, false));
    OP(16, tg_amax_dim(a, 1, false));
    OP(17, tg_max_dim(a, 0, true, NULL));
    OP(18, tg_var_dim(a, 1, 1, false));
    OP(19, tg_std(a));
    OP(20, tg_norm(a));
    OP(21, tg_logsumexp_dim(a, 0, false));
    OP(22, tg_cumsum(a, 0));
    OP(23, tg_sort(a, 1, true, NULL));
    OP(24, tg_topk(a, 2, 1, true, NULL));
    OP(25, tg_matmul(a, w));
    OP(26, tg_matmul(tg_t(w), tg_t(a)));
    OP(27, tg_matmul(tg_reshape(a, TG_SHAPE(3, 2, 5)), tg_expand(tg_unsqueeze(w, 0), TG_SHAPE(3, 5, 4))));
    OP(28, tg_linear(a, tg_t(w), NULL));
    OP(29, tg_softmax(a, 1));
    OP(30, tg_softmax(a, 0));
    OP(31, tg_log_softmax(a, 1));
    OP(32, tg_layer_norm(a, 1, NULL, NULL, 1e-5));
    OP(33, tg_rms_norm(a, 1, tg_select(b, 0, 0), 1e-5));
    OP(34, tg_index_select(a, 0, ids));
    OP(35, tg_embedding(a, ids));
    OP(36, tg_index_add(a, 0, ids, tg_narrow(b, 0, 0, 4)));
    OP(37, tg_gather(a, 0, tg_expand(tg_unsqueeze(ids, 1), TG_SHAPE(4, 5))));
    OP(38, tg_scatter_add(a, 0, tg_expand(tg_unsqueeze(ids, 1), TG_SHAPE(4, 5)), b));
    OP(39, tg_cross_entropy(tg_narrow(a, 0, 0, 4), ids));
    OP(40, tg_scaled_dot_product_attention(tg_unsqueeze(a, 0), tg_unsqueeze(b, 0), tg_unsqueeze(a, 0), NULL, 0, true, 0));
    OP(41, tg_flip(a, TG_DIMS(0, 1)));
    OP(42, tg_pad(a, TG_DIMS(1, 2, -1, 1), 3));
    OP(43, tg_roll(a, TG_DIMS(2), TG_DIMS(1)));
    OP(44, tg_tril(a, 0));
    OP(45, tg_unfold(a, 1, 3, 1));
    OP(46, tg_diagonal(a, 1, 0, 1));
    OP(47, tg_slice(a, 0, 1, 6, 2));
    OP(48, tg_pow_scalar(tg_abs(a), 1.5));
    OP(49, tg_smooth_l1_loss(a, b, TG_MEAN, 0.5));
    OP(50, tg_binary_cross_entropy_with_logits(a, tg_sigmoid(b), NULL, TG_MEAN, NULL));
    OP(51, tg_to_dtype(tg_to_dtype(a, TG_BF16), TG_F64));
    OP(52, tg_repeat(a, TG_SHAPE(2, 1)));
    OP(53, tg_cat(in, 2, 0));
    OP(54, tg_einsum("ij,ij->i", in, 2));
    default: *name = "", (void)none; return NULL;
    }
#undef OP
}

/* Values on the device and gradients that come home, against the CPU's. */
static void compare(tg_dtype dtype, tg_device device, double tolerance)
{
    int64_t at[4] = {3, 0, 3, 1};
    int k, i;
    for (k = 0; k < OPS; ++k) {
        TG_SCOPE;
        tg_tensor *here[INPUTS], *there[INPUTS], *g[INPUTS], *h[INPUTS], *y, *z, *seed, *ids = tg_from_i64(at, TG_SHAPE(4));
        const char *name = NULL;
        tg_seed(11);
        here[0] = tg_randn(TG_SHAPE(6, 5)), here[1] = tg_randn(TG_SHAPE(6, 5)), here[2] = tg_randn(TG_SHAPE(5, 4));
        for (i = 0; i < INPUTS; ++i) {
            here[i] = tg_set_requires_grad(tg_to_dtype(here[i], dtype), true);
            there[i] = tg_to(here[i], device);
        }
        y = op(k, here, ids, &name);
        if (!y && tg_ok()) break;
        harness.sample = name;
        z = op(k, there, tg_to(ids, device), &name);
        CHECK(y && z && tg_device_equal(tg_device_of(z), device) && tg_dtype_of(y) == tg_dtype_of(z));
        if (!y || !z) continue;
        CHECK(tg_allclose(tg_cpu(z), y, tolerance, tolerance));
        seed = tg_randn_like(y);
        CHECK(tg_gradients(&y, 1, &seed, here, INPUTS, g, TG_MATERIALIZE_GRADS) == TG_OK);
        seed = tg_to(seed, device);
        CHECK(tg_gradients(&z, 1, &seed, here, INPUTS, h, TG_MATERIALIZE_GRADS) == TG_OK);
        for (i = 0; i < INPUTS && g[i] && h[i]; ++i) CHECK(!tg_is_cuda(h[i]) && tg_allclose(h[i], g[i], tolerance, tolerance));
    }
    harness.sample = NULL;
    CHECK(k > 50);
}

TEST(ops_in_f32) { compare(TG_F32, TG_CUDA(0), 2e-5); }
TEST(ops_in_f64_on_the_last_device) { compare(TG_F64, TG_CUDA(tg_cuda_device_count() - 1), 1e-12); }

TEST(moves_are_differentiable)
{
    tg_device last = TG_CUDA(tg_cuda_device_count() - 1);
    tg_tensor *x = tg_set_requires_grad(tg_from_f64((const double[]){1, 2, 3}, TG_SHAPE(3)), true), *y, *g;
    y = tg_cpu(tg_mul_scalar(tg_to(tg_to_dtype(tg_cuda(x), TG_F32), last), 3));
    CHECK(!tg_is_leaf(y) && tg_dtype_of(y) == TG_F32);
    y = tg_sum(tg_mul(y, y));
    CHECK(tg_gradients(&y, 1, NULL, &x, 1, &g, TG_CREATE_GRAPH) == TG_OK);
    CHECK(tg_dtype_of(g) == TG_F64 && !tg_is_cuda(g));
    CHECK_NEAR(tg_get(g, TG_INDEX(1)), 36, 1e-6); /* 2 * 9 x */
    y = tg_sum(g);
    CHECK(tg_backward(y) == TG_OK);
    CHECK_NEAR(tg_get(tg_grad(x), TG_INDEX(2)), 18, 1e-6);
    CHECK(tg_to(x, TG_CPU) == x);
    CHECK_FAILS(tg_add(x, tg_cuda(x)), "same device");
    CHECK_FAILS(tg_to(x, TG_CUDA(99)), "99");
}

TEST(random_numbers_are_the_same_everywhere)
{
    tg_tensor *a, *b;
    tg_seed(4);
    a = tg_rand(TG_SHAPE(1000));
    tg_seed(4);
    b = tg_rand_on(TG_SHAPE(1000), TG_F32, TG_CUDA(0));
    CHECK(tg_equal(a, tg_cpu(b)));
    tg_seed(4);
    a = tg_randint(-5, 50, TG_SHAPE(999));
    tg_seed(4);
    b = tg_randint_on(-5, 50, TG_SHAPE(999), TG_I64, TG_CUDA(0));
    CHECK(tg_equal(a, tg_cpu(b)));
}

TEST(training_there_and_here)
{
    tg_tensor *w[2];
    int side, step;
    for (side = 0; side < 2; ++side) {
        tg_tensor *p = tg_param(tg_to(tg_ones(TG_SHAPE(4, 3)), side ? TG_CUDA(0) : TG_CPU));
        tg_optim *opt = tg_adamw(&p, 1, 0.1);
        for (step = 0; step < 5; ++step) {
            TG_SCOPE;
            tg_tensor *loss = tg_sum(tg_square(tg_softmax(p, 1))), *more = tg_sum(tg_square(p));
            tg_optim_zero_grad(opt);
            CHECK(tg_backward(tg_add(loss, more)) == TG_OK && tg_step(opt) == TG_OK);
        }
        w[side] = tg_cpu(tg_detach(p));
        if (!side) w[0] = tg_clone(w[0]);
        tg_optim_free(opt);
        tg_release(p);
    }
    CHECK(tg_allclose(w[0], w[1], 1e-6, 1e-6));
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    if (!tg_cuda_is_available()) {
        printf("no CUDA device: 0 of the checks ran\n1 passed, 0 failed\n");
        return 0;
    }
    RUN(ops_in_f32);
    RUN(ops_in_f64_on_the_last_device);
    RUN(moves_are_differentiable);
    RUN(random_numbers_are_the_same_everywhere);
    RUN(training_there_and_here);
    tg_shutdown();
    return harness_end();
}
