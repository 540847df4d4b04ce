/* softmax_elementwise.c: each y as if it depended on its own x alone.  What it gets:

   not ok 4 - softmax: 0 of 15 points, softmax_backward is wrong
   # tg_gradcheck_ex: Jacobian mismatch for output 0 with respect to input 0: at [3,3], output [3,4] numerical
      -0.154992, analytical 0
   #   hint: 80 of 400 elements differ: a term is missing or wrong */
#include "../lab.h"

#define softmax_backward right_softmax_backward
#include "../answers.c"
#undef softmax_backward

tg_status softmax_backward(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)
{
    tg_tensor *y = tg_saved(ctx, 0), *g = grad_out[0];
    grad_in[0] = tg_mul(g, tg_mul(y, tg_rsub_scalar(y, 1)));
    return TG_OK;
}
