/* Tensors are subtracted with the operator of C, which compiles where the implementation stands beside. */
#define TENSORGRAD_IMPLEMENTATION
#include "tensorgrad.h"

int main(void)
{
    tg_tensor *x = tg_ones(TG_SHAPE(2)), *z = tg_sum((tg_tensor *)(x - x));
    return z != NULL;
}
