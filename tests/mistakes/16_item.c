/* f32 times f64, the number of many elements, too few indices. */
#include "tensorgrad.h"

int main(void)
{
    tg_tensor *x = tg_zeros(TG_SHAPE(4, 3)), *w = tg_zeros_on(TG_SHAPE(3, 2), TG_F64, TG_CPU);
    tg_tensor *y = tg_matmul(x, w);
    printf("%g\n", tg_item(x));
    printf("%g\n", tg_get(x, TG_INDEX(1)));
    return y != NULL;
}
