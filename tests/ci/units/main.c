/* Three files with different options in one program: this one holds the library for itself and for user.c; private.c has a
 * copy of its own (TG_STATIC, and other options). */
#define TENSORGRAD_IMPLEMENTATION
#include "tensorgrad.h"
#include "units.h"

int main(void)
{
    tg_tensor *w = tg_param(tg_full(TG_SHAPE(3), 2));
    double slope, own;
    {
        TG_SCOPE;
        tg_tensor *loss = square_sum(w);
        tg_backward(loss);
    }
    slope = tg_get(tg_grad(w), TG_INDEX(1));
    own = private_slope(3);
    tg_release(w);
    if (slope != 4 || own != 6 || !tg_ok() || tg_stats().tensors != 0) return printf("%g %g\n", slope, own), 1;
    return tg_shutdown() != TG_OK;
}
