/* y is written in place, but backward of exp needs it as it was. */
#include "tensorgrad.h"

int main(void)
{
    tg_tensor *w = tg_param(tg_ones(TG_SHAPE(3))), *y = tg_exp(w);
    tg_set_name(y, "y");
    tg_add_scalar_(y, 1);
    tg_backward(tg_sum(y));
    return 0;
}
