/* tg_optim_zero_grad is forgotten: each step goes by the sum of all gradients so far. */
#include "tensorgrad.h"

int main(void)
{
    tg_tensor *w = tg_param(tg_full(TG_SHAPE(1), 5));
    tg_set_name(w, "w");
    tg_optim *opt = tg_sgd(TG_LIST(w), 0.1);
    for (int i = 0; i < 20; ++i) {
        TG_SCOPE;
        tg_tensor *loss = tg_mul(w, w);
        if (i % 4 == 0) printf("loss %.3g\n", tg_item(loss));
        tg_backward(loss);
        tg_step(opt);
    }
    return 0;
}
