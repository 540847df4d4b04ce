/* A function returns a tensor of its own scope, and another one is made before the result is used. */
#include "tensorgrad.h"

static tg_tensor *square(tg_tensor *x)
{
    TG_SCOPE;
    return tg_mul(x, x);
}

int main(void)
{
    tg_tensor *x = tg_scalar(3), *y = square(x), *seven = tg_scalar(7);
    printf("3 * 3 = %g\n", tg_item(y));
    return seven == NULL;
}
