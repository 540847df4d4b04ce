/* TG_LIST of an array of parameters makes a list of one tensor, which the array is not. */
#include "tensorgrad.h"

int main(void)
{
    tg_tensor *params[64];
    for (int i = 0; i < 64; ++i) params[i] = tg_param(tg_ones(TG_SHAPE(2)));
    tg_optim *opt = tg_sgd(TG_LIST((tg_tensor *)(void *)params), 0.1);
    if (!opt) opt = tg_sgd(params, 64, 0.1);
    return opt == NULL;
}
