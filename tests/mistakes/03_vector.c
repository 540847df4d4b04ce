/* Backward of a loss that nobody has reduced. */
#include "tensorgrad.h"

int main(void)
{
    tg_tensor *w = tg_param(tg_ones(TG_SHAPE(3)));
    tg_backward(tg_mul(w, w));
    return 0;
}
