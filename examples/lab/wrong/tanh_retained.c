/* tanh_retained.c: what a graph holds is retained once more, and never released.  What it gets:

   not ok 1 - tanh: 0 of 10 points, tanh leaves 10 tensors in 10 calls */
#include "../lab.h"

#define tanh_forward right_tanh_forward
#include "../answers.c"
#undef tanh_forward

tg_status tanh_forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    out[0] = tg_tanh(in[0]);
    return tg_save(ctx, tg_retain(tg_clone(out[0])));
}
