/* crash.c: reads the numbers of a tensor that was never saved.  What it gets:

   not ok 4 - softmax: 0 of 15 points, killed by signal 11 (Segmentation fault) */
#include "../lab.h"

#define softmax_backward right_softmax_backward
#include "../answers.c"
#undef softmax_backward

tg_status softmax_backward(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)
{
    tg_tensor *y = tg_saved(ctx, 1); /* NULL: forward has saved one */
    const double *values = (const double *)tg_data(y);
    grad_in[0] = tg_mul_scalar(grad_out[0], values[0]);
    return TG_OK;
}
