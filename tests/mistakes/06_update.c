/* w = w - rate * gradient makes another w, as in Python. */
#include "tensorgrad.h"

int main(void)
{
    tg_tensor *w = tg_param(tg_ones(TG_SHAPE(3)));
    for (int i = 0; i < 3; ++i) {
        tg_backward(tg_sum(tg_mul(w, w)));
        w = tg_sub(w, tg_mul_scalar(tg_grad(w), 0.1));
    }
    return 0;
}
