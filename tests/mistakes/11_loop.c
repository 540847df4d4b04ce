/* A loop without TG_SCOPE: what each turn makes stays until the end of the program. */
#include "tensorgrad.h"

int main(void)
{
    tg_tensor *w = tg_param(tg_ones(TG_SHAPE(10)));
    tg_optim *opt = tg_sgd(TG_LIST(w), 0.001);
    for (int i = 0; i < 6000; ++i) {
        tg_optim_zero_grad(opt);
        tg_backward(tg_sum(tg_mul(w, w)));
        tg_step(opt);
    }
    return 0;
}
