/* A program that tensorgrad comes to in many ways (install.sh): the version of its header and of the library, and a gradient.
 * Each entry of x is 1/2, and the gradient of sum(x @ x) is the sum of a row and that of a column, 32 + 32. */
#include "tensorgrad.h"
#include <string.h>

int main(void)
{
    tg_tensor *x = tg_param(tg_full(TG_SHAPE(64, 64), 0.5));
    double slope;
    {
        TG_SCOPE;
        tg_backward(tg_sum(tg_matmul(x, x)));
        slope = tg_get(tg_grad(x), TG_INDEX(3, 5));
    }
    tg_release(x);
    if (strcmp(tg_version(), TG_VERSION_STRING) != 0 || slope != 64 || !tg_ok()) return printf("%s %g\n", tg_version(), slope), 1;
    return tg_shutdown() != TG_OK;
}
