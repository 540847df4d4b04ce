/* cross_entropy_without_g.c: the gradient that comes in is forgotten, which is 1 in most programs.  What it gets:

   not ok 5 - cross_entropy: 0 of 15 points, cross_entropy_backward is wrong
   # tg_gradcheck_ex: backward not multiplied by grad_output
   #   hint: a gradient of zeros must give zeros: every term of a rule has g as a factor */
#include "../lab.h"

#define cross_entropy_backward right_cross_entropy_backward
#include "../answers.c"
#undef cross_entropy_backward

tg_status cross_entropy_backward(tg_ctx *ctx, tg_tensor *const *grad_out, tg_tensor **grad_in)
{
    tg_tensor *log_p = tg_saved(ctx, 0), *t = tg_saved(ctx, 1);
    tg_tensor *hot = tg_to_dtype(tg_one_hot(t, tg_dim(log_p, 1)), TG_F64);
    (void)grad_out;
    grad_in[0] = tg_div_scalar(tg_sub(tg_exp(log_p), hot), (double)tg_dim(log_p, 0));
    return TG_OK;
}
