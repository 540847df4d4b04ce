/* matmul_untransposed.c: a is not transposed.  What it gets:

   not ok 3 - matmul: 0 of 15 points, matmul_backward is wrong
   # tg_matmul: mat1 and mat2 shapes cannot be multiplied (4x5 and 4x3)
   #   hint: a is [4, 5] 'a' and b is [4, 3]: tg_t(a) would fit */
#include "../lab.h"

#define matmul_backward right_matmul_backward
#include "../answers.c"
#undef matmul_backward

tg_status matmul_backward(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)
{
    tg_tensor *a = tg_saved(ctx, 0), *b = tg_saved(ctx, 1), *g = grad_out[0];
    grad_in[0] = tg_matmul(g, tg_t(b));
    grad_in[1] = tg_matmul(a, g);
    return TG_OK;
}
