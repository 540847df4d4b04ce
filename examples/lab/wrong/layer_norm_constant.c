/* layer_norm_constant.c: mean and variance as if they were constants.  What it gets:

   not ok 6 - layer_norm: 0 of 15 points, layer_norm_backward is wrong
   # tg_gradcheck_ex: Jacobian mismatch for output 0 with respect to input 0: at [3,5], output [3,5] numerical
      0.776945, analytical 5.32728
   #   hint: 144 of 576 elements differ: a term is missing or wrong */
#include "../lab.h"

#define layer_norm_backward right_layer_norm_backward
#include "../answers.c"
#undef layer_norm_backward

tg_status layer_norm_backward(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)
{
    grad_in[0] = tg_mul(grad_out[0], tg_saved(ctx, 1));
    return TG_OK;
}
