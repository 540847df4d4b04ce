/* Backward of one loss, twice. */
#include "tensorgrad.h"

int main(void)
{
    tg_tensor *w = tg_param(tg_ones(TG_SHAPE(3)));
    tg_tensor *loss = tg_sum(tg_mul(w, w));
    tg_backward(loss);
    tg_backward(loss);
    return 0;
}
