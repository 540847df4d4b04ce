/* tasks.c: the seven tasks of the lab.  This is the only file that you change; lab.h says what the functions get.

   BUILD   cc -g -fsanitize=address,undefined tasks.c grade.o -lm -o grade      (grade.o is there: see README.md)
   RUN     ./grade for all tasks, ./grade 3 for task 3 alone

   In the formulas y is the output, g the gradient of y that comes in, * is elementwise.  A line
   LAB_UNUSED keeps compilers quiet about arguments that are not used yet; it goes when you fill in the function. */
#include "lab.h"

/* ---- 1. tanh, 10 points ----

   in[0]            x, of any shape
   y                tanh(x)
   gradient of x    g * (1 - y * y)

   Given: tg_tanh, tg_square, tg_rsub_scalar(t, 1), which is 1 - t.  The point: save what backward needs, which is y and
   not x. */

tg_status tanh_forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    LAB_UNUSED(ctx, in, out);
    return TG_OK;
}

tg_status tanh_backward(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)
{
    LAB_UNUSED(ctx, grad_out, grad_in);
    return TG_OK;
}

/* ---- 2. mul, 15 points ----

   in[0], in[1]     x [rows, columns], b [columns]
   y[i,j]           x[i,j] * b[j]: b is broadcast to the rows of x
   gradient of x    g[i,j] * b[j]
   gradient of b    at j, the sum over i of g[i,j] * x[i,j], since b[j] is used once in each row

   Given: tg_mul, which broadcasts; tg_sum_dim(t, dim, keepdim). */

tg_status mul_forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    LAB_UNUSED(ctx, in, out);
    return TG_OK;
}

tg_status mul_backward(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)
{
    LAB_UNUSED(ctx, grad_out, grad_in);
    return TG_OK;
}

/* ---- 3. matmul, 15 points ----

   in[0], in[1]     a [m, k], b [k, n]
   y                a b, the product of matrices, [m, n]
   gradient of a    g b', where b' is b transposed
   gradient of b    a' g

   Given: tg_matmul, and tg_t(t), which transposes.  Write down the shapes first: only one order of the factors fits. */

tg_status matmul_forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    LAB_UNUSED(ctx, in, out);
    return TG_OK;
}

tg_status matmul_backward(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)
{
    LAB_UNUSED(ctx, grad_out, grad_in);
    return TG_OK;
}

/* ---- 4. softmax, 15 points ----

   in[0]            x [rows, columns]
   y[i,j]           exp(x[i,j]) / (sum over k of exp(x[i,k]))
   gradient of x    y[i,j] * (g[i,j] - s[i]), where s[i] is the sum over k of g[i,k] * y[i,k]

   exp(710) is infinite in f64, and what is graded goes to 5000 and more: subtract the largest x of each row first,
   which does not change y.
   Given: tg_amax_dim(t, dim, keepdim), tg_sub, tg_exp, tg_sum_dim, tg_div; not tg_softmax. */

tg_status softmax_forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    LAB_UNUSED(ctx, in, out);
    return TG_OK;
}

tg_status softmax_backward(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)
{
    LAB_UNUSED(ctx, grad_out, grad_in);
    return TG_OK;
}

/* ---- 5. cross_entropy, 15 points ----

   in[0], in[1]     x [rows, classes], t [rows]: the class of each row, i64, without a gradient: grad_in[1] stays NULL
   y                the mean over the rows i of -log(p[i,t[i]]), where p is the softmax of x in each row
   gradient of x    g * (p[i,j] - h[i,j]) / rows, where h[i,j] is 1 if j is t[i], else 0

   Where x is 5000 below the largest, p is 0 and log(p) is infinite.  So compute log(p) in another way, as
   x - largest - log(sum of exp(x - largest)).
   Given: tg_gather(t, dim, index), with an index [rows, 1] (tg_unsqueeze(t, 1)); tg_one_hot(t, classes), of i64, and
   tg_to_dtype(t, TG_F64); tg_log, tg_neg, tg_mean; tg_dim(t, dim), the size of a dim.  Not tg_cross_entropy. */

tg_status cross_entropy_forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    LAB_UNUSED(ctx, in, out);
    return TG_OK;
}

tg_status cross_entropy_backward(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)
{
    LAB_UNUSED(ctx, grad_out, grad_in);
    return TG_OK;
}

/* ---- 6. layer_norm, 15 points ----

   in[0]            x [rows, columns]
   y[i,j]           (x[i,j] - m[i]) * r[i], where m[i] is the mean of row i of x, v[i] that of (x[i,j] - m[i])^2, and
                    r[i] = 1 / sqrt(v[i] + 1e-5)
   gradient of x    r * (g - mean(g) - y * mean(g * y)), with the means of each row

   m and r depend on each x of the row: the second and third term come from them.
   Given: tg_mean_dim(t, dim, keepdim), tg_square, tg_add_scalar, tg_rsqrt; not tg_layer_norm. */

tg_status layer_norm_forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    LAB_UNUSED(ctx, in, out);
    return TG_OK;
}

tg_status layer_norm_backward(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)
{
    LAB_UNUSED(ctx, grad_out, grad_in);
    return TG_OK;
}

/* ---- 7. descend, 15 points ----

   Each of the steps computes the loss of w once, by lab_loss(w), and its gradient by tg_backward, and updates w in
   place: w = w - 0.1 * gradient.  Returns the mean of the losses.

   No step leaves a tensor: a TG_SCOPE in the loop ends those of one step.  Numbers outlive it: tg_item(t) is a double.
   Given: tg_zero_grad(&w, 1), tg_grad(w), TG_NO_GRAD in a block of its own, tg_sub_(w, t), tg_mul_scalar. */

double descend(tg_tensor *w, int steps)
{
    LAB_UNUSED(w, w, steps);
    return 0;
}
