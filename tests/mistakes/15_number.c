/* Numbers in the place of tensors; C takes 0 without a cast. */
#include "tensorgrad.h"

int main(void)
{
    tg_tensor *x = tg_ones(TG_SHAPE(2));
    tg_tensor *y = tg_mul(x, (tg_tensor *)2);
    y = tg_add(x, (tg_tensor *)-1);
    y = tg_relu((tg_tensor *)3);
    y = tg_add(x, 0);
    return y != NULL;
}
