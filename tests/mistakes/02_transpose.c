/* A layer's weight is [out, in]: its transpose is forgotten in each of the products of matrices. */
#include "tensorgrad.h"

int main(void)
{
    tg_tensor *x = tg_zeros(TG_SHAPE(32, 784)), *weight = tg_param(tg_zeros(TG_SHAPE(10, 784)));
    tg_tensor *q = tg_zeros(TG_SHAPE(8, 5, 16)), *k = tg_zeros(TG_SHAPE(8, 5, 16)), *bias = tg_zeros(TG_SHAPE(10));
    tg_tensor *y = tg_matmul(x, weight);
    y = tg_mm(x, weight);
    y = tg_bmm(q, k);
    y = tg_matmul(q, k);
    y = tg_addmm(bias, x, weight, 1, 1);
    y = tg_linear(x, tg_t(weight), NULL);
    return y != NULL;
}
