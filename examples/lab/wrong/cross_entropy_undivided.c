/* cross_entropy_undivided.c: the gradient of the sum, not of the mean.  What it gets:

   not ok 5 - cross_entropy: 0 of 15 points, cross_entropy_backward is wrong
   # tg_gradcheck_ex: Jacobian mismatch for output 0 with respect to input 0: at [2,4] numerical -0.236737,
      analytical -0.946947
   #   hint: constant ratio: analytic is 4 times numeric: not divided by that size, or added so many times */
#include "../lab.h"

#define cross_entropy_backward right_cross_entropy_backward
#include "../answers.c"
#undef cross_entropy_backward

tg_status cross_entropy_backward(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)
{
    tg_tensor *log_p = tg_saved(ctx, 0), *t = tg_saved(ctx, 1);
    tg_tensor *hot = tg_to_dtype(tg_one_hot(t, tg_dim(log_p, 1)), TG_F64);
    grad_in[0] = tg_mul(grad_out[0], tg_sub(tg_exp(log_p), hot));
    return TG_OK;
}
