/* The update in place, but outside of TG_NO_GRAD. */
#include "tensorgrad.h"

int main(void)
{
    tg_tensor *w = tg_param(tg_ones(TG_SHAPE(3)));
    tg_backward(tg_sum(tg_mul(w, w)));
    tg_sub_(w, tg_mul_scalar(tg_grad(w), 0.1));
    return 0;
}
