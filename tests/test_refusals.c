/* What the library refuses: each required argument that is NULL, by name, and the sizes, dims, dtypes and numbers that
 * no other test tries.  A refused call returns NULL (or a status, false, 0), leaves nothing alive, and says why. */
#include "tensorgrad.h"
#include "harness.h"
#include <stdlib.h>

/* The function called with a NULL: its name and that of the argument must be in the error. */
#define NULLS(name, argument, arguments) CHECK_FAILS(tg_##name arguments, "tg_" #name ": argument " argument " is NULL")

static tg_tensor *ones(int64_t a, int64_t b) { return tg_ones(TG_SHAPE(a, b)); }

/* A dtype that a C program may pass by mistake. */
static tg_dtype wrong_dtype(int number)
{
    tg_dtype dtype = TG_F32;
    memcpy(&dtype, &number, sizeof dtype);
    return dtype;
}

static tg_precision wrong_precision(int number)
{
    tg_precision precision = TG_PRECISION_F32;
    memcpy(&precision, &number, sizeof precision);
    return precision;
}

static tg_tensor *eight_dims(void) { return tg_ones(TG_SHAPE(1, 1, 1, 1, 1, 1, 1, 1)); }

TEST(null_in_access_and_scopes)
{
    tg_tensor *t = ones(2, 3);
    double room[6];
    NULLS(retain, "t", (NULL));
    NULLS(keep, "t", (NULL));
    NULLS(share, "t", (NULL));
    NULLS(pin_memory, "t", (NULL));
    NULLS(op_waits, "op", (NULL));
    NULLS(param, "t", (NULL));
    NULLS(set_name, "t", (NULL, "a name"));
    NULLS(item, "t", (NULL));
    NULLS(get, "t", (NULL, TG_INDEX(0)));
    NULLS(set, "t", (NULL, TG_INDEX(0), 1));
    NULLS(data, "t", (NULL));
    NULLS(copy_out, "t", (NULL, room, sizeof room));
    NULLS(copy_out, "dst", (t, NULL, 6 * sizeof(float)));
    NULLS(touch_, "t", (NULL));
    CHECK_FAILS(tg_zeros_like(NULL), "argument t is NULL");
    NULLS(rand_like, "t", (NULL));
    NULLS(randn_like, "t", (NULL));
    NULLS(print, "t", (NULL));
    CHECK_FAILS(tg_fprint(NULL, t), "argument file is NULL");
    CHECK(tg_copy_out(t, NULL, 0) != TG_OK), tg_clear_error();
    tg_release(NULL), tg_drop(NULL), tg_optim_free(NULL); /* nothing to do, as for free */
    CHECK(tg_ok());
}

static tg_tensor *same_again(tg_tensor *const *in, int n, void *user)
{
    (void)user;
    return n ? tg_mul_scalar(in[0], 1) : NULL;
}

static tg_tensor *without_history(tg_tensor *const *in, int n, void *user)
{
    (void)n, (void)user;
    return tg_detach(tg_mul_scalar(in[0], 2));
}

static tg_status forward_of_one(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    (void)ctx;
    out[0] = tg_mul_scalar(in[0], 1);
    return out[0] ? TG_OK : TG_ERR_ARGUMENT;
}

static tg_status backward_of_one(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)
{
    (void)ctx;
    grad_in[0] = grad_out[0];
    return TG_OK;
}

static bool fails_silently(void *user) { return user != NULL; }

TEST(captures_without_a_step)
{
    NULLS(capture_new, "step", (TG_CPU, NULL, NULL));
    tg_capture *capture = tg_capture_new(TG_CPU, fails_silently, NULL);
    CHECK_FAILS(tg_capture_run(capture), "the step returned false");
    tg_capture_free(capture);
}

/* What tg_nccl_comm says before it asks for a device, and of one that has no NCCL; the rest is in cuda/test_nccl.c. */
TEST(nccl_without_a_gpu)
{
    tg_nccl_id id, empty;
    tg_comm comm;
    memset(&id, 1, sizeof id);
    memset(&empty, 0, sizeof empty);
    NULLS(nccl_new_id, "id", (NULL));
    NULLS(nccl_comm, "comm", (NULL, &id, 0, 1, TG_CPU, 0));
    NULLS(nccl_comm, "id", (&comm, NULL, 0, 1, TG_CPU, 0));
    CHECK_FAILS(tg_nccl_comm(&comm, &empty, 0, 1, TG_CPU, 0), "the id is empty");
    CHECK_FAILS(tg_nccl_comm(&comm, &id, -1, 1, TG_CPU, 0), "rank -1 of 1 ranks cannot be");
    CHECK_FAILS(tg_nccl_comm(&comm, &id, 0, 0, TG_CPU, 0), "rank 0 of 0 ranks cannot be");
    CHECK_FAILS(tg_nccl_comm(&comm, &id, 0, 1, TG_CPU, -0.5), "seconds is -0.5");
    CHECK_FAILS(tg_nccl_comm(&comm, &id, 0, 1, TG_CPU, 0), "tg_nccl_comm: NCCL has no ranks on cpu");
    CHECK(!comm.context && !comm.all_reduce && comm.size == 0);
    tg_nccl_comm_free(&comm);
    tg_nccl_comm_free(NULL);
    CHECK(tg_ok());
#ifndef TG_ENABLE_CUDA
    CHECK_FAILS(tg_nccl_new_id(&id), "tg_nccl_new_id: NCCL cannot be used: tensorgrad not compiled with CUDA enabled");
    CHECK(memcmp(&id, &empty, sizeof id) == 0);
    memset(&id, 1, sizeof id);
    CHECK_FAILS(tg_nccl_comm(&comm, &id, 0, 1, TG_CUDA(0), 0), "not compiled with CUDA enabled\n  hint: build");
    comm.context = &id;
    CHECK_FAILS(tg_nccl_comm_free(&comm), "not compiled with CUDA enabled");
#endif
}

TEST(null_in_the_tape)
{
    tg_tensor *x = tg_set_requires_grad(ones(2, 2), true), *y = tg_sum(x), *none = NULL, *result = NULL, *out[1];
    tg_optim *opt = tg_sgd(&x, 1, 0.1);
    NULLS(detach, "t", (NULL));
    NULLS(grad, "t", (NULL));
    NULLS(set_grad, "t", (NULL, x));
    NULLS(set_requires_grad, "t", (NULL, true));
    NULLS(retain_grad, "t", (NULL));
    NULLS(hook_post_accumulate, "hook", (x, NULL, NULL));
    NULLS(hook, "hook", (x, NULL, NULL));
    NULLS(unhook, "t", (NULL, 1));
    NULLS(gradients, "inputs", (&y, 1, NULL, &none, 1, &result, 0));
    NULLS(gradients, "inputs", (&y, 1, NULL, NULL, 1, &result, 0));
    NULLS(gradients, "results", (&y, 1, NULL, &x, 1, NULL, 0));
    NULLS(saved, "ctx", (NULL, 0));
    NULLS(save, "ctx", (NULL, x));
    NULLS(ctx_alloc, "ctx", (NULL, 8));
    NULLS(ctx_user, "ctx", (NULL));
    NULLS(mark_non_differentiable, "ctx", (NULL, x));
    CHECK_FAILS(tg_custom("one", forward_of_one, backward_of_one, NULL, &none, 1, out, 1), "argument in is NULL");
    CHECK_FAILS(tg_custom("one", forward_of_one, backward_of_one, NULL, &x, 1, out, 65536), "65536 outputs are too many");
    NULLS(checkpoint, "in", (same_again, &none, 1, NULL));
    NULLS(gradcheck, "inputs", (same_again, &none, 1, NULL));
    CHECK_FAILS(tg_gradgradcheck(without_history, &x, 1, NULL), "does not require grad");
    NULLS(backward_end, "run", (NULL));
    NULLS(sgd, "params", (&none, 1, 0.1));
    NULLS(sgd, "params", (NULL, 1, 0.1));
    NULLS(step, "opt", (NULL));
    NULLS(optim_zero_grad, "opt", (NULL));
    NULLS(zero_grad, "params", (NULL, 1));
    NULLS(clip_grad_norm, "params", (&none, 1, 1));
    NULLS(clip_grad_value, "params", (&none, 1, 1));
    NULLS(clip_grad_norm, "params", (NULL, 1, 1));
    tg_optim_free(opt);
}

TEST(null_in_moves_and_views)
{
    tg_tensor *t = ones(2, 3), *none = NULL, *out[4];
    NULLS(to, "t", (NULL, TG_CPU));
    CHECK_FAILS(tg_to_ex(NULL, TG_CPU, TG_F32, 0), "argument t is NULL");
    NULLS(to_like, "other", (t, NULL));
    NULLS(copy_, "dst", (NULL, t));
    NULLS(copy_, "src", (t, NULL));
    NULLS(contiguous, "t", (NULL));
    NULLS(view, "t", (NULL, TG_SHAPE(6)));
    NULLS(reshape, "t", (NULL, TG_SHAPE(6)));
    NULLS(flatten, "t", (NULL, 0, -1));
    NULLS(squeeze, "t", (NULL, 0));
    NULLS(unsqueeze, "t", (NULL, 0));
    NULLS(permute, "t", (NULL, TG_DIMS(1, 0)));
    NULLS(movedim, "t", (NULL, 0, 1));
    NULLS(transpose, "t", (NULL, 0, 1));
    NULLS(t, "t", (NULL));
    NULLS(split, "t", (NULL, 1, 0, out, 4));
    NULLS(split, "out", (t, 1, 0, NULL, 4));
    NULLS(chunk, "t", (NULL, 2, 0, out, 4));
    NULLS(chunk, "out", (t, 2, 0, NULL, 4));
    NULLS(unbind, "t", (NULL, 0, out, 4));
    NULLS(unbind, "out", (t, 0, NULL, 4));
    CHECK_FAILS(tg_stack(&none, 1, 0), "is NULL");
    CHECK_FAILS(tg_cat(&none, 1, 0), "is NULL");
    NULLS(repeat, "t", (NULL, TG_SHAPE(2, 2)));
    NULLS(roll, "t", (NULL, TG_DIMS(1), TG_DIMS(0)));
    NULLS(tril, "t", (NULL, 0));
    NULLS(triu, "t", (NULL, 0));
}

TEST(null_in_ops)
{
    tg_tensor *t = ones(2, 2), *ids = tg_randint(0, 2, TG_SHAPE(2)), *none = NULL;
    NULLS(lerp_scalar, "a", (NULL, t, 0.5));
    NULLS(lerp_scalar, "b", (t, NULL, 0.5));
    CHECK_FAILS(tg_var_dims(NULL, TG_DIMS(0), 1, false), "argument t is NULL");
    NULLS(topk, "t", (NULL, 1, 0, true, NULL));
    NULLS(layer_norm, "x", (NULL, 1, NULL, NULL, 1e-5));
    NULLS(rms_norm, "x", (NULL, 1, NULL, 1e-5));
    NULLS(add_layer_norm, "x", (NULL, NULL, 1, NULL, NULL, 1e-5, NULL));
    NULLS(add_rms_norm, "x", (NULL, NULL, 1, NULL, 1e-5, NULL));
    NULLS(mm, "a", (NULL, t));
    NULLS(mm, "b", (t, NULL));
    NULLS(outer, "a", (NULL, t));
    NULLS(outer, "b", (t, NULL));
    NULLS(linear, "x", (NULL, t, NULL));
    NULLS(linear, "weight", (t, NULL, NULL));
    NULLS(linear_gelu, "x", (NULL, t, NULL, true));
    NULLS(linear_gelu, "weight", (t, NULL, NULL, true));
    NULLS(addmm, "c", (NULL, t, t, 1, 1));
    NULLS(einsum, "equation", (NULL, &t, 1));
    NULLS(einsum, "tensors", ("i", NULL, 1));
    CHECK_FAILS(tg_einsum("i", &none, 1), "is NULL");
    NULLS(index_select, "t", (NULL, 0, ids));
    NULLS(index_select, "index", (t, 0, NULL));
    NULLS(take_along_dim, "t", (NULL, ids, 0));
    NULLS(take_along_dim, "index", (t, NULL, 0));
    NULLS(embedding, "weight", (NULL, ids));
    NULLS(embedding, "ids", (t, NULL));
    NULLS(index_add, "t", (NULL, 0, ids, t));
    NULLS(index_add, "index", (t, 0, NULL, t));
    NULLS(index_add, "src", (t, 0, ids, NULL));
    NULLS(index, "t", (NULL, &ids, 1));
    NULLS(index, "indices", (t, NULL, 1));
    NULLS(index_put, "t", (NULL, &ids, 1, t, false));
    NULLS(index_put, "indices", (t, NULL, 1, t, false));
    NULLS(index_put, "values", (t, &ids, 1, NULL, false));
    NULLS(masked_select, "t", (NULL, t));
    NULLS(masked_select, "mask", (t, NULL));
    NULLS(one_hot, "ids", (NULL, 3));
    NULLS(dropout, "x", (NULL, 0.5, true));
    NULLS(scaled_dot_product_attention, "q", (NULL, t, t, NULL, 0, false, 0));
    NULLS(scaled_dot_product_attention, "k", (t, NULL, t, NULL, 0, false, 0));
    NULLS(scaled_dot_product_attention, "v", (t, t, NULL, NULL, 0, false, 0));
    NULLS(equal, "a", (NULL, t));
    NULLS(allclose, "a", (NULL, t, 0, 0));
    NULLS(allclose, "b", (t, NULL, 0, 0));
}

TEST(null_in_losses)
{
    tg_tensor *t = ones(2, 2), *ids = tg_randint(0, 2, TG_SHAPE(2));
    NULLS(mse_loss, "a", (NULL, t, TG_MEAN));
    NULLS(mse_loss, "b", (t, NULL, TG_MEAN));
    NULLS(nll_loss, "log_probs", (NULL, ids, NULL, -100, TG_MEAN));
    NULLS(nll_loss, "targets", (t, NULL, NULL, -100, TG_MEAN));
    NULLS(cross_entropy, "logits", (NULL, ids));
    NULLS(cross_entropy, "targets", (t, NULL));
    NULLS(binary_cross_entropy, "input", (NULL, t, NULL, TG_MEAN));
    NULLS(binary_cross_entropy, "target", (t, NULL, NULL, TG_MEAN));
    NULLS(binary_cross_entropy_with_logits, "input", (NULL, t, NULL, TG_MEAN, NULL));
    NULLS(binary_cross_entropy_with_logits, "target", (t, NULL, NULL, TG_MEAN, NULL));
    NULLS(kl_div, "input", (NULL, t, TG_MEAN, false));
    NULLS(kl_div, "target", (t, NULL, TG_MEAN, false));
}

TEST(sizes_of_new_tensors)
{
    tg_shape nine = TG_SHAPE(1, 1), below = TG_SHAPE(1);
    int64_t large = (int64_t)1 << 40;
    float number = 1;
    nine.ndim = 9, below.ndim = -1;
    CHECK_FAILS(tg_zeros(nine), "at most 8 dims, not 9");
    CHECK_FAILS(tg_zeros(below), "at most 8 dims, not -1");
    CHECK_FAILS(tg_zeros(TG_SHAPE(large, large)), "overflows");
    CHECK_FAILS(tg_zeros(TG_SHAPE(INT64_MAX, 2)), "overflows");
    CHECK_FAILS(tg_zeros_on(TG_SHAPE(INT64_MAX / 16), TG_F64, TG_CPU), "");
    CHECK(tg_numel(tg_zeros(TG_SHAPE(large, large, 0))) == 0 || !tg_ok()), tg_clear_error();
    CHECK_FAILS(tg_zeros_on(TG_SHAPE(1), wrong_dtype(99), TG_CPU), "unknown dtype 99");
    CHECK_FAILS(tg_zeros_on(TG_SHAPE(1), wrong_dtype(TG_BOOL + 1), TG_CPU), "unknown dtype 10");
    CHECK_FAILS(tg_wrap(&number, TG_SHAPE(1), wrong_dtype(99), NULL, NULL), "unknown dtype 99");
    CHECK_FAILS(tg_to_dtype(ones(1, 1), wrong_dtype(99)), "unknown dtype 99");
    CHECK_FAILS(tg_promote_types(TG_F32, wrong_dtype(99)), "unknown dtype 99");
    CHECK_FAILS(tg_promote_types(wrong_dtype(TG_BOOL + 1), TG_F32), "unknown dtype 10");
    CHECK_FAILS(tg_set_default_dtype(TG_I64), "only floating-point types are supported");
    CHECK_FAILS(tg_set_matmul_precision(wrong_precision(7)), "precision 7 is neither");
    CHECK(tg_matmul_precision() == TG_PRECISION_F32);
    CHECK(tg_set_matmul_precision(TG_PRECISION_TF32) == TG_OK && tg_matmul_precision() == TG_PRECISION_TF32);
    CHECK(tg_set_matmul_precision(TG_PRECISION_F32) == TG_OK && tg_matmul_precision() == TG_PRECISION_F32);
    CHECK(tg_default_dtype() == TG_F32);
    CHECK_FAILS(tg_arange(0, 1, 0), "step must be nonzero");
    CHECK_FAILS(tg_arange(0, 1, NAN), "step must be nonzero");
    CHECK_FAILS(tg_arange(0, HUGE_VAL, 1), "unsupported range");
    CHECK_FAILS(tg_arange(-HUGE_VAL, 0, 1), "unsupported range");
    CHECK_FAILS(tg_arange(0, 1, -1), "inconsistent with step sign");
    CHECK_FAILS(tg_arange(1, 0, 1), "inconsistent with step sign");
    CHECK_FAILS(tg_arange(0, 1e30, 1e-3), "too many");
    CHECK_FAILS(tg_linspace(0, 1, -1), "number of steps must be non-negative");
    CHECK_FAILS(tg_eye(-1), "n must be greater or equal to 0, got -1");
    CHECK_FAILS(tg_randperm(-1), "tg_randperm: n must be non-negative, got -1");
    CHECK_FAILS(tg_copy_out(ones(1, 1), &number, 3), "4 bytes");
}

TEST(dims_and_shapes_of_views)
{
    tg_tensor *scalar = tg_scalar(1), *t = ones(2, 3), *most = eight_dims(), *out[8], *parts[17];
    int i;
    CHECK_FAILS(tg_dim(scalar, 0), "Dimension specified as 0 but tensor has no dimensions");
    CHECK_FAILS(tg_unsqueeze(most, 0), "at most 8 dims");
    CHECK_FAILS(tg_unfold(most, 0, 1, 1), "at most 8 dims");
    CHECK_FAILS(tg_unfold(t, 0, -1, 1), "size is -1 but must be >= 0");
    CHECK_FAILS(tg_unfold(t, 0, 1, 0), "step is 0 but must be > 0");
    CHECK_FAILS(tg_split(scalar, 1, 0, out, 8), "at least a 1-dimensional tensor");
    CHECK_FAILS(tg_chunk(scalar, 1, 0, out, 8), "at least a 1-dimensional tensor");
    CHECK_FAILS(tg_unbind(scalar, 0, out, 8), "tensor has no dimensions");
    CHECK_FAILS(tg_roll(scalar, TG_DIMS(1), TG_DIMS(0)), "tensor has no dimensions");
    CHECK_FAILS(tg_pad(t, TG_DIMS(-4, 0), 0), "negative output size");
    CHECK_FAILS(tg_pad(t, TG_DIMS(INT64_MAX, INT64_MAX), 0), "tg_pad: ");
    CHECK_FAILS(tg_pad(t, TG_DIMS(INT64_MIN, 1), 0), "tg_pad: The input size 3");
    CHECK_FAILS(tg_repeat(t, TG_SHAPE(2)), "tg_repeat: ");
    CHECK_FAILS(tg_slice(scalar, 0, 0, 1, 1), "0-dim");
    for (i = 0; i < 17; ++i) parts[i] = tg_zeros(TG_SHAPE(0, INT64_MAX / 16)); /* no elements, hence no bytes */
    CHECK_FAILS(tg_cat(parts, 17, 1), "the joined size overflows");
}

TEST(shapes_of_products)
{
    tg_tensor *scalar = tg_scalar(1), *t = ones(2, 3), *list[4];
    CHECK_FAILS(tg_linear(scalar, t, NULL), "their shapes are [] and [2, 3]");
    CHECK_FAILS(tg_linear(t, scalar, NULL), "their shapes are [2, 3] and []");
    CHECK_FAILS(tg_linear(t, tg_ones(TG_SHAPE(1, 2, 3)), NULL), "their shapes are [2, 3] and [1, 2, 3]");
    CHECK_FAILS(tg_linear(t, ones(4, 2), NULL), "tg_linear: ");
    CHECK_FAILS(tg_scaled_dot_product_attention(scalar, t, t, NULL, 0, false, 0), "at least 2 dimensional");
    CHECK_FAILS(tg_scaled_dot_product_attention(t, t, tg_ones(TG_SHAPE(3)), NULL, 0, false, 0), "at least 2 dimensional");
    CHECK_FAILS(tg_einsum("i", &t, 0), "at least one operand");
    list[0] = list[2] = tg_ones(TG_SHAPE(1, 1, 1, 1, 1)), list[1] = list[3] = tg_ones(TG_SHAPE(1, 1, 1, 1));
    CHECK_FAILS(tg_einsum("abcde,fghi", list, 2), "the output has more than 8 dims");
    CHECK_FAILS(tg_einsum("abcde,fghi->abcdefghi", list, 2), "the output has more than 8 dims");
    CHECK_FAILS(tg_einsum("abcde,fghi,abcdf,eghi->a", list, 4), "a product has more than 8 dims");
    CHECK_FAILS(tg_outer(t, t), "Expected 1-D argument");
    CHECK_FAILS(tg_matmul(scalar, t), "at least 1D");
}

TEST(indices_and_classes)
{
    int64_t two[2] = {0, 1};
    tg_tensor *t = ones(2, 3), *ids = tg_from_i64(two, TG_SHAPE(2)), *most;
    tg_tensor *many = tg_from_i64(two, TG_SHAPE(1, 1, 1, 1, 1, 1, 1, 2));
    CHECK_FAILS(tg_embedding(t, many), "too many dims");
    CHECK_FAILS(tg_one_hot(tg_from_i64(NULL, TG_SHAPE(0)), -1), "Can not infer total number of classes from empty tensor");
    CHECK_FAILS(tg_one_hot(ids, 1), "tg_one_hot: ");
    most = tg_to_dtype(t, TG_F64);
    CHECK_FAILS(tg_scatter(most, 0, tg_expand(ids, TG_SHAPE(1, 2)), ones(1, 2)), "Expected self.dtype to be equal to src.dtype");
    CHECK_FAILS(tg_scatter_add(most, 0, tg_expand(ids, TG_SHAPE(1, 2)), ones(1, 2)), "dtype");
}

TEST(targets_of_losses)
{
    int64_t two[4] = {0, 1, 0, 1};
    tg_tensor *x = ones(2, 3), *ids = tg_from_i64(two, TG_SHAPE(2)), *image = tg_ones(TG_SHAPE(2, 3, 4));
    CHECK_FAILS(tg_nll_loss(tg_scalar(1), ids, NULL, -100, TG_MEAN), "at least one dim");
    int64_t bad[2] = {2, 9};
    CHECK_FAILS(tg_cross_entropy(x, tg_from_i64(bad, TG_SHAPE(2))), "Target 9 is out of bounds");
    bad[0] = 20; /* of many classes, by one kernel */
    CHECK_FAILS(tg_cross_entropy(ones(2, 20), tg_from_i64(bad, TG_SHAPE(2))), "Target 20 is out of bounds");
    CHECK_FAILS(tg_cross_entropy(tg_scalar(1), ids), "logits must have at least one dim");
    CHECK_FAILS(tg_cross_entropy(tg_scalar(1), tg_scalar(1)), "logits must have at least one dim");
    CHECK_FAILS(tg_nll_loss(x, tg_reshape(ids, TG_SHAPE(2, 1)), NULL, -100, TG_MEAN), "needs targets of 1 dims");
    CHECK_FAILS(tg_nll_loss(x, tg_from_i64(two, TG_SHAPE(3)), NULL, -100, TG_MEAN), "to match target batch_size");
    CHECK_FAILS(tg_nll_loss(image, tg_from_i64(two, TG_SHAPE(2, 2)), NULL, -100, TG_MEAN), "size mismatch");
    CHECK_FAILS(tg_cross_entropy(x, ones(2, 2)), "probabilities of shape [2, 2] for logits of shape [2, 3]");
    CHECK_FAILS(tg_binary_cross_entropy(tg_full_like(x, 0.5), tg_ones(TG_SHAPE(2, 1)), NULL, TG_MEAN), "Using a target size");
    CHECK_FAILS(tg_binary_cross_entropy(tg_full_like(x, 0.5), tg_ones(TG_SHAPE(3)), NULL, TG_MEAN), "Using a target size");
    CHECK_FAILS(tg_mse_loss(x, x, 7), "7 is not a valid value for reduction");
}

/* A gradient set before the parameter's dtype changed under it cannot be; one set by hand is checked when it is set. */
TEST(gradients_of_another_kind)
{
    tg_tensor *x = tg_set_requires_grad(ones(2, 2), true);
    CHECK_FAILS(tg_set_grad(x, tg_ones(TG_SHAPE(2))), "tg_set_grad: ");
    CHECK_FAILS(tg_set_grad(x, tg_to_dtype(ones(2, 2), TG_F64)), "tg_set_grad: ");
    CHECK_FAILS(tg_set_grad(x, x), "can't assign Variable as its own grad");
    CHECK(tg_grad(x) == NULL && tg_ok());
}

/* The largest of numbers among which are NaN is NaN, and its gradient goes to those, in equal shares; that of amax
   is NaN everywhere. */
TEST(gradient_of_the_largest_of_nan)
{
    double values[4] = {1, NAN, 3, NAN};
    tg_tensor *x = tg_set_requires_grad(tg_from_f64(values, TG_SHAPE(4)), true);
    CHECK(tg_backward(tg_max(x)) == TG_OK);
    CHECK_NEAR(tg_get(tg_grad(x), TG_INDEX(0)), 0, 0);
    CHECK_NEAR(tg_get(tg_grad(x), TG_INDEX(1)), 0.5, 0);
    CHECK_NEAR(tg_get(tg_grad(x), TG_INDEX(2)), 0, 0);
    CHECK_NEAR(tg_get(tg_grad(x), TG_INDEX(3)), 0.5, 0);
    tg_set_grad(x, NULL);
    CHECK(tg_backward(tg_amax(x)) == TG_OK);
    CHECK_NEAR(tg_get(tg_grad(x), TG_INDEX(0)), NAN, 0);
}

static void *plain_alloc(size_t bytes, void *user)
{
    (void)user;
    return malloc(bytes);
}

/* Called outside RUN, as no tensor may be alive. */
static void half_an_allocator(void)
{
    tg_allocator half = {NULL, NULL, NULL};
    harness.test = "half_an_allocator";
    half.alloc = plain_alloc;
    CHECK(tg_shutdown() == TG_OK);
    CHECK_FAILS(tg_set_allocator(&half), "alloc and free must both be given");
    CHECK(tg_set_allocator(NULL) == TG_OK);
}

/* Numbers of dims, sizes and shifts that no tensor can have. */
TEST(hostile_shapes)
{
    const int64_t p[10] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, far[1] = {(int64_t)1 << 32};
    tg_tensor *x = tg_ones(TG_SHAPE(2, 3, 1, 1, 2)), *wide = tg_expand(tg_scalar(1), TG_SHAPE((int64_t)1 << 40, 4096));
    CHECK_FAILS(tg_pad(x, tg_make_shape(10, p), 0), "tg_pad: argument pads: a tensor has at most 8 dims, not 10");
    CHECK_FAILS(tg_pad(x, tg_make_shape(-2, NULL), 0), "tg_pad: argument pads");
    CHECK_FAILS(tg_flip(x, tg_make_shape(-1, NULL)), "tg_flip: argument dims");
    CHECK_FAILS(tg_flip(x, tg_make_shape(9, p)), "tg_flip: argument dims");
    CHECK_FAILS(tg_roll(x, tg_make_shape(9, p), tg_make_shape(9, p)), "tg_roll: argument shifts");
    CHECK_FAILS(tg_sum_dims(x, tg_make_shape(-3, NULL), false), "tg_sum_dims: argument dims");
    CHECK_FAILS(tg_zeros(tg_make_shape(3, NULL)), "tg_zeros: argument shape");
    CHECK_FAILS(tg_zeros_on(tg_make_shape(99, p), TG_F32, TG_CPU), "tg_zeros_on: argument shape");
    CHECK_FAILS(tg_roll(x, TG_DIMS(1), tg_make_shape(1, far)), "Dimension out of range");
    CHECK_FAILS(tg_unfold(wide, 0, (int64_t)1 << 39, 1), "overflows");
    CHECK_FAILS(tg_repeat(wide, TG_DIMS((int64_t)1 << 30, 1)), "overflows");
    CHECK_FAILS(tg_get(x, tg_make_shape(9, p)), "tg_get: argument index");
}

/* All that is to be written is checked before the first write. */
TEST(clipping_is_all_or_nothing)
{
    tg_tensor *a = tg_param(tg_ones(TG_SHAPE(2))), *b = tg_param(tg_ones(TG_SHAPE(2))), *both[2];
    both[0] = a, both[1] = b;
    CHECK(tg_set_grad(a, tg_full(TG_SHAPE(2), 7)) == TG_OK);
    CHECK(tg_set_grad(b, tg_expand(tg_scalar(9), TG_SHAPE(2))) == TG_OK);
    CHECK_FAILS(tg_clip_grad_norm(both, 2, 1), "the gradient of parameter 1 has several elements in one place");
    CHECK_FAILS(tg_clip_grad_norm_ex(both, 2, 1, INFINITY, true), "tg_clip_grad_norm_ex: the gradient of parameter 1");
    CHECK_FAILS(tg_clip_grad_value(both, 2, 1), "tg_clip_grad_value: the gradient of parameter 1");
    CHECK(tg_get(tg_grad(a), TG_INDEX(0)) == 7);
    tg_release(a), tg_release(b);
}

TEST(integers_are_not_optimized)
{
    tg_tensor *n = tg_full_on(TG_SHAPE(2), 3, TG_I64, TG_CPU);
    tg_optim *opt[5];
    int i;
    CHECK(tg_set_grad(n, tg_full_on(TG_SHAPE(2), 1, TG_I64, TG_CPU)) == TG_OK); /* as PyTorch does */
    opt[0] = tg_sgd(&n, 1, 1), opt[1] = tg_adam(&n, 1, 1), opt[2] = tg_adamw(&n, 1, 1);
    opt[3] = tg_rmsprop(&n, 1, 1), opt[4] = tg_adagrad(&n, 1, 1);
    for (i = 0; i < 5; ++i) {
        CHECK_FAILS(tg_step(opt[i]), "tg_step: parameter 0 is i64: only floating point can be optimized");
        CHECK(tg_item_i64(tg_max(n)) == 3);
        tg_optim_free(opt[i]);
    }
}

/* A message names the function that was called, and tensors that have a name. */
TEST(names_in_messages)
{
    tg_tensor *w = tg_ones(TG_SHAPE(2, 3)), *x = tg_ones(TG_SHAPE(4)), *p = tg_param(tg_ones(TG_SHAPE(2)));
    tg_set_name(w, "fc.weight"), tg_set_name(x, "input"), tg_set_name(p, "p");
    CHECK_FAILS(tg_add(w, x), "shapes [2, 3] 'fc.weight' and [4] 'input' do not broadcast");
    CHECK_FAILS(tg_add(tg_t(w), x), "shapes [3, 2] 'fc.weight' and"); /* through a view */
    CHECK_FAILS(tg_matmul(tg_zeros_on(TG_SHAPE(2, 3), TG_F64, TG_CPU), tg_t(w)),
                "hint: a [2, 3] is f64 and b [3, 2] 'fc.weight' is f32: tg_to_dtype(b, TG_F64)");
    CHECK_FAILS(tg_matmul(tg_to_dtype(x, TG_I64), tg_reshape(w, TG_SHAPE(6))), "tg_to_dtype(a, TG_F32)");
    CHECK_FAILS(tg_linear(ones(2, 3), tg_narrow(tg_to_dtype_(w, TG_F16), 0, 0, 1), NULL),
                "hint: x [2, 3] is f32 and weight [1, 3] 'fc.weight' is f16: tg_to_dtype(x, TG_F16)");
    CHECK_FAILS(tg_mul_scalar_(p, 2), "in-place operation. (shape [2] 'p')");
    CHECK_FAILS(tg_exp_(tg_to_dtype(x, TG_I64)), "tg_exp_: ");
    CHECK_FAILS(tg_add_(x, w), "tg_add_: ");
    CHECK_FAILS(tg_sum_dim(x, 3, false), "tg_sum_dim: ");
    CHECK_FAILS(tg_mean_dims(tg_to_dtype(x, TG_I64), TG_DIMS(0), false), "tg_mean_dims: ");
    CHECK_FAILS(tg_clamp_min(NULL, 1), "tg_clamp_min: argument x is NULL");
    CHECK_FAILS(tg_narrow(x, 0, 9, 1), "tg_narrow: ");
    CHECK_FAILS(tg_zeros_on(TG_SHAPE(-1), TG_F32, TG_CPU), "tg_zeros_on: ");
    CHECK_FAILS(tg_from_f32(NULL, TG_SHAPE(2)), "tg_from_f32: argument data is NULL");
    CHECK_FAILS(tg_cpu(NULL), "tg_cpu: argument t is NULL");
    tg_release(p);
}

/* Every op that takes a mask or an index, and the dtypes that PyTorch takes there: of bool, u8, i8, i16, i32, i64, and "f"
 * for the dtype of the operand; an op accepts no other. */
TEST(masks_and_indices)
{
    static const tg_dtype dtypes[] = {TG_BOOL, TG_U8, TG_I8, TG_I16, TG_I32, TG_I64, TG_F16, TG_BF16, TG_F32, TG_F64};
    for (int i = 0; i < 10; ++i) {
        const bool small = dtypes[i] == TG_I8 || dtypes[i] == TG_I16;
        const tg_dtype d = dtypes[i];
        tg_tensor *x = tg_randn(TG_SHAPE(3)), *m = tg_to_dtype(tg_zeros(TG_SHAPE(3)), d), *one = tg_scalar(1);
        tg_tensor *rows = tg_randn(TG_SHAPE(3, 2)), *logits = tg_randn(TG_SHAPE(3, 3)), *q = tg_randn(TG_SHAPE(1, 1, 3, 4));
        tg_tensor *mask = tg_to_dtype(tg_ones(TG_SHAPE(1, 1, 1, 3)), d);
#define TAKES(call, accepted)                                                                                          \
    tg_clear_error();                                                                                                  \
    CHECK(((call) != NULL) == (accepted) && tg_ok() == (accepted))
        TAKES(tg_masked_fill(x, m, 1), d == TG_BOOL);
        TAKES(tg_masked_fill_(tg_clone(x), m, 1), d == TG_BOOL);
        TAKES(tg_masked_select(x, m), d == TG_BOOL);
        TAKES(tg_where(m, x, x), d == TG_BOOL);
        TAKES(tg_gather(x, 0, m), d == TG_I32 || d == TG_I64);
        TAKES(tg_index_select(x, 0, m), d == TG_I32 || d == TG_I64);
        TAKES(tg_scatter(x, 0, m, x), d == TG_I32 || d == TG_I64);
        TAKES(tg_scatter_(tg_clone(x), 0, m, x), d == TG_I32 || d == TG_I64);
        TAKES(tg_scatter_add(x, 0, m, x), d == TG_I32 || d == TG_I64);
        TAKES(tg_index_add(x, 0, m, x), d == TG_I32 || d == TG_I64);
        TAKES(tg_take_along_dim(x, m, 0), d == TG_I64);
        TAKES(tg_embedding(rows, m), d == TG_I32 || d == TG_I64);
        TAKES(tg_one_hot(m, 3), d == TG_I64);
        TAKES(tg_bincount(m, NULL, 0), d == TG_U8 || small || d == TG_I32 || d == TG_I64);
        TAKES(tg_index(x, TG_LIST(m)), d > TG_F16 && !small);
        TAKES(tg_index_put(x, TG_LIST(m), one, false), d > TG_F16 && !small);
        TAKES(tg_cross_entropy(logits, m), d == TG_U8 || d == TG_I64);
        TAKES(tg_nll_loss(logits, m, NULL, -100, TG_MEAN), d == TG_U8 || d == TG_I64);
        TAKES(tg_scaled_dot_product_attention(q, q, q, mask, 0, false, 0), d == TG_BOOL || d == TG_F32);
    }
    static const unsigned char labels[] = {1, 255};
    tg_tensor *q = tg_randn(TG_SHAPE(1, 1, 3, 4)), *m = tg_ones_on(TG_SHAPE(1, 1, 1, 3), TG_I64, TG_CPU);
    CHECK_FAILS(tg_scaled_dot_product_attention(q, q, q, m, 0, false, 0),
                "Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: i64 and "
                "query.dtype: f32 instead.\n  hint: tg_ne_scalar(mask, 0) makes a mask of zeros and ones");
    CHECK_FAILS(tg_cross_entropy(tg_randn(TG_SHAPE(3, 3)), tg_zeros_on(TG_SHAPE(3), TG_I32, TG_CPU)),
                "expected target dtype to be Long or Byte, but got i32");
    CHECK_FAILS(tg_take_along_dim(q, tg_ones(TG_SHAPE(1, 1, 3, 4)), 0), "dtype of indices should be Long, but got f32");
    CHECK(tg_item(tg_cross_entropy_ex(tg_zeros(TG_SHAPE(2, 3)), tg_from(labels, TG_SHAPE(2), TG_U8), NULL, 255, 0,
                                      TG_MEAN)) > 1.09);
}

int main(int argc, char **argv)
{
    harness_begin(argc, argv);
    RUN(null_in_access_and_scopes);
    RUN(captures_without_a_step);
    RUN(nccl_without_a_gpu);
    RUN(null_in_the_tape);
    RUN(null_in_moves_and_views);
    RUN(null_in_ops);
    RUN(null_in_losses);
    RUN(sizes_of_new_tensors);
    RUN(dims_and_shapes_of_views);
    RUN(shapes_of_products);
    RUN(indices_and_classes);
    RUN(targets_of_losses);
    RUN(gradients_of_another_kind);
    RUN(gradient_of_the_largest_of_nan);
    if (!harness.only) half_an_allocator();
    RUN(hostile_shapes);
    RUN(clipping_is_all_or_nothing);
    RUN(integers_are_not_optimized);
    RUN(names_in_messages);
    RUN(masks_and_indices);
    return harness_end();
}
