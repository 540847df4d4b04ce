/* mul_first_row.c: the gradient of b is that of the first row alone.  What it gets:

   not ok 2 - mul: 0 of 15 points, mul_backward is wrong
   # tg_gradcheck_ex: Jacobian mismatch for output 0 with respect to input 1: at [4], output [3,4] numerical
      1.23801, analytical -0
   #   hint: only a part is summed of the broadcast dims [0] */
#include "../lab.h"

#define mul_backward right_mul_backward
#include "../answers.c"
#undef mul_backward

tg_status mul_backward(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)
{
    tg_tensor *x = tg_saved(ctx, 0), *b = tg_saved(ctx, 1), *g = grad_out[0];
    grad_in[0] = tg_mul(g, b);
    grad_in[1] = tg_select(tg_mul(g, x), 0, 0);
    return TG_OK;
}
