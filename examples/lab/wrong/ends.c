/* ends.c: exit in place of return.  What it gets:

   not ok 1 - tanh: 0 of 10 points, it ended the program, with exit code 0 */
#include "../lab.h"

#define tanh_backward right_tanh_backward
#include "../answers.c"
#undef tanh_backward

#include <stdlib.h>

tg_status tanh_backward(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)
{
    tg_tensor *y = tg_saved(ctx, 0);
    grad_in[0] = tg_mul(grad_out[0], tg_rsub_scalar(tg_square(y), 1));
    exit(0);
}
