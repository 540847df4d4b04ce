/* tanh_of_x.c: 1 - x * x in place of 1 - y * y.  What it gets:

   not ok 1 - tanh: 0 of 10 points, tanh_backward is wrong
   # tg_gradcheck_ex: Jacobian mismatch for output 0 with respect to input 0: at [0,4], output [0,4] numerical
      0.0992904, analytical -2.32041
   #   hint: 19 of 400 elements differ: a term is missing or wrong */
#include "../lab.h"

#define tanh_forward right_tanh_forward
#include "../answers.c"
#undef tanh_forward

tg_status tanh_forward(tg_ctx *ctx, tg_tensor *const *in, tg_tensor **out)
{
    out[0] = tg_tanh(in[0]);
    return tg_save(ctx, in[0]);
}
