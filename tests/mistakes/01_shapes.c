/* A sum of two matrices of which one is transposed. */
#include "tensorgrad.h"

int main(void)
{
    tg_tensor *x = tg_zeros(TG_SHAPE(32, 10)), *y = tg_zeros(TG_SHAPE(10, 32));
    tg_tensor *sum = tg_add(x, y);
    return sum != NULL;
}
