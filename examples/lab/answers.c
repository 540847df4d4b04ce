/* answers.c: one right solution of each task.  For lecturers. */
#include "lab.h"

/* ---- 1. tanh ---- */

tg_status tanh_forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    out[0] = tg_tanh(in[0]);
    return tg_save(ctx, out[0]);
}

tg_status tanh_backward(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)
{
    tg_tensor *y = tg_saved(ctx, 0);
    grad_in[0] = tg_mul(grad_out[0], tg_rsub_scalar(tg_square(y), 1)); /* 1 - y * y */
    return TG_OK;
}

/* ---- 2. mul ---- */

tg_status mul_forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    out[0] = tg_mul(in[0], in[1]);
    tg_save(ctx, in[0]);
    return tg_save(ctx, in[1]);
}

tg_status mul_backward(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)
{
    tg_tensor *x = tg_saved(ctx, 0), *b = tg_saved(ctx, 1), *g = grad_out[0];
    grad_in[0] = tg_mul(g, b);
    grad_in[1] = tg_sum_dim(tg_mul(g, x), 0, false);
    return TG_OK;
}

/* ---- 3. matmul ---- */

tg_status matmul_forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    out[0] = tg_matmul(in[0], in[1]);
    tg_save(ctx, in[0]);
    return tg_save(ctx, in[1]);
}

tg_status matmul_backward(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)
{
    tg_tensor *a = tg_saved(ctx, 0), *b = tg_saved(ctx, 1), *g = grad_out[0];
    grad_in[0] = tg_matmul(g, tg_t(b)); /* [m, n] [n, k] */
    grad_in[1] = tg_matmul(tg_t(a), g); /* [k, m] [m, n] */
    return TG_OK;
}

/* ---- 4. softmax ---- */

tg_status softmax_forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    tg_tensor *e = tg_exp(tg_sub(in[0], tg_amax_dim(in[0], -1, true)));
    out[0] = tg_div(e, tg_sum_dim(e, -1, true));
    return tg_save(ctx, out[0]);
}

tg_status softmax_backward(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)
{
    tg_tensor *y = tg_saved(ctx, 0), *g = grad_out[0];
    grad_in[0] = tg_mul(y, tg_sub(g, tg_sum_dim(tg_mul(g, y), -1, true)));
    return TG_OK;
}

/* ---- 5. cross_entropy ---- */

tg_status cross_entropy_forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    tg_tensor *x = in[0], *t = in[1];
    tg_tensor *shifted = tg_sub(x, tg_amax_dim(x, -1, true));
    tg_tensor *log_p = tg_sub(shifted, tg_log(tg_sum_dim(tg_exp(shifted), -1, true)));
    out[0] = tg_neg(tg_mean(tg_gather(log_p, 1, tg_unsqueeze(t, 1))));
    tg_save(ctx, log_p);
    return tg_save(ctx, t);
}

tg_status cross_entropy_backward(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)
{
    tg_tensor *log_p = tg_saved(ctx, 0), *t = tg_saved(ctx, 1);
    tg_tensor *hot = tg_to_dtype(tg_one_hot(t, tg_dim(log_p, 1)), TG_F64);
    tg_tensor *difference = tg_sub(tg_exp(log_p), hot);
    grad_in[0] = tg_mul(grad_out[0], tg_div_scalar(difference, (double)tg_dim(log_p, 0)));
    return TG_OK;
}

/* ---- 6. layer_norm ---- */

tg_status layer_norm_forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    tg_tensor *centred = tg_sub(in[0], tg_mean_dim(in[0], -1, true));
    tg_tensor *variance = tg_mean_dim(tg_square(centred), -1, true);
    tg_tensor *r = tg_rsqrt(tg_add_scalar(variance, 1e-5));
    out[0] = tg_mul(centred, r);
    tg_save(ctx, out[0]);
    return tg_save(ctx, r);
}

tg_status layer_norm_backward(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)
{
    tg_tensor *y = tg_saved(ctx, 0), *r = tg_saved(ctx, 1), *g = grad_out[0];
    tg_tensor *along_y = tg_mul(y, tg_mean_dim(tg_mul(g, y), -1, true));
    grad_in[0] = tg_mul(r, tg_sub(tg_sub(g, tg_mean_dim(g, -1, true)), along_y));
    return TG_OK;
}

/* ---- 7. descend ---- */

double descend(tg_tensor *w, int steps)
{
    double sum = 0;
    for (int step = 0; step < steps; ++step) {
        TG_SCOPE;
        tg_zero_grad(&w, 1);
        tg_tensor *loss = lab_loss(w);
        tg_backward(loss);
        sum += tg_item(loss);
        TG_NO_GRAD;
        tg_sub_(w, tg_mul_scalar(tg_grad(w), 0.1));
    }
    return sum / steps;
}
