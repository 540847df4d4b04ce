/* softmax_unshifted.c: exp of what was not shifted by the largest.  What it gets:

   not ok 4 - softmax: 0 of 15 points, softmax_forward is wrong for large x: y[0,0] is nan and not 1 */
#include "../lab.h"

#define softmax_forward right_softmax_forward
#include "../answers.c"
#undef softmax_forward

tg_status softmax_forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    tg_tensor *e = tg_exp(in[0]);
    out[0] = tg_div(e, tg_sum_dim(e, -1, true));
    return tg_save(ctx, out[0]);
}
