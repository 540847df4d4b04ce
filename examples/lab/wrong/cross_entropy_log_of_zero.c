/* cross_entropy_log_of_zero.c: the log of a softmax, which may be 0.  What it gets:

   not ok 5 - cross_entropy: 0 of 15 points, cross_entropy_forward is wrong for large x: y[0,0] is inf and not
      6404.06 */
#include "../lab.h"

#define cross_entropy_forward right_cross_entropy_forward
#include "../answers.c"
#undef cross_entropy_forward

tg_status cross_entropy_forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    tg_tensor *log_p = tg_log(tg_softmax(in[0], -1));
    out[0] = tg_neg(tg_mean(tg_gather(log_p, 1, tg_unsqueeze(in[1], 1))));
    tg_save(ctx, log_p);
    return tg_save(ctx, in[1]);
}
