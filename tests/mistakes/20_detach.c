/* tg_detach in the wrong place: w1 is behind it and never learns; a parameter that nothing uses. */
#include "tensorgrad.h"

int main(void)
{
    tg_tensor *w1 = tg_param(tg_ones(TG_SHAPE(1))), *w2 = tg_param(tg_ones(TG_SHAPE(1)));
    tg_set_name(w1, "w1"), tg_set_name(w2, "w2");
    tg_optim *opt = tg_sgd(TG_LIST(w1, w2), 0.1);
    for (int i = 0; i < 20; ++i) {
        tg_optim_zero_grad(opt);
        tg_backward(tg_mul(tg_detach(tg_mul(w1, w1)), w2));
        tg_step(opt);
    }
    printf("w1 %.4g, w2 %.4g\n", tg_item(w1), tg_item(w2));
    return 0;
}
