/* mul_averaged.c: the gradient of b is averaged over the rows, which gives the right shape.  What it gets:

   not ok 2 - mul: 0 of 15 points, mul_backward is wrong
   # tg_gradcheck_ex: Jacobian mismatch for output 0 with respect to input 1: at [4], output [0,4] numerical
      -1.8222, analytical -0.45555
   #   hint: 1/4 of the numeric: averaged over the broadcast dims [0], not summed */
#include "../lab.h"

#define mul_backward right_mul_backward
#include "../answers.c"
#undef mul_backward

tg_status mul_backward(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)
{
    tg_tensor *x = tg_saved(ctx, 0), *b = tg_saved(ctx, 1), *g = grad_out[0];
    grad_in[0] = tg_mul(g, b);
    grad_in[1] = tg_mean_dim(tg_mul(g, x), 0, false);
    return TG_OK;
}
