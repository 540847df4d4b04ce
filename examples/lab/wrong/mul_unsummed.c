/* mul_unsummed.c: the gradient of b is not summed over the rows.  What it gets:

   not ok 2 - mul: 0 of 15 points, mul_backward is wrong
   # tg_gradients: Function mulBackward returned a gradient of shape [4, 5] at index 1, for an input of shape [5]
   #   hint: backward would sum it: do that in the rule, over the dims that were broadcast */
#include "../lab.h"

#define mul_backward right_mul_backward
#include "../answers.c"
#undef mul_backward

tg_status mul_backward(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)
{
    tg_tensor *x = tg_saved(ctx, 0), *b = tg_saved(ctx, 1), *g = grad_out[0];
    grad_in[0] = tg_mul(g, b);
    grad_in[1] = tg_mul(g, x);
    return TG_OK;
}
