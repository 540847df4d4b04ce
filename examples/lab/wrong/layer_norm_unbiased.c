/* layer_norm_unbiased.c: the variance divided by one less than the number of columns.  What it gets:

   not ok 6 - layer_norm: 0 of 15 points, layer_norm_forward is wrong: y[0,0] is 1.40643 and not 1.54067 */
#include "../lab.h"

#define layer_norm_forward right_layer_norm_forward
#include "../answers.c"
#undef layer_norm_forward

tg_status layer_norm_forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    tg_tensor *centred = tg_sub(in[0], tg_mean_dim(in[0], -1, true));
    tg_tensor *r = tg_rsqrt(tg_add_scalar(tg_var_dim(in[0], -1, 1, true), 1e-5));
    out[0] = tg_mul(centred, r);
    tg_save(ctx, out[0]);
    return tg_save(ctx, r);
}
