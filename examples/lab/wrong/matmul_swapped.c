/* matmul_swapped.c: g' a in place of a' g.  What it gets:

   not ok 3 - matmul: 0 of 15 points, matmul_backward is wrong
   # tg_gradients: Function matmulBackward returned an invalid gradient at index 1 - got [3, 5] but expected shape
      compatible with [5, 3] */
#include "../lab.h"

#define matmul_backward right_matmul_backward
#include "../answers.c"
#undef matmul_backward

tg_status matmul_backward(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)
{
    tg_tensor *a = tg_saved(ctx, 0), *b = tg_saved(ctx, 1), *g = grad_out[0];
    grad_in[0] = tg_matmul(g, tg_t(b));
    grad_in[1] = tg_matmul(tg_t(g), a);
    return TG_OK;
}
