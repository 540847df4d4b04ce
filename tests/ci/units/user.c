#include "tensorgrad.h"
#include "units.h"

tg_tensor *square_sum(tg_tensor *x)
{
    return tg_sum(tg_mul(x, x));
}
