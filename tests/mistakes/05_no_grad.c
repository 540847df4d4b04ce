/* Nobody has said that w requires grad. */
#include "tensorgrad.h"

int main(void)
{
    tg_tensor *w = tg_ones(TG_SHAPE(3));
    tg_backward(tg_sum(tg_mul(w, w)));
    return 0;
}
