#define TG_STATIC
#define TG_THREAD_LOCAL
#define TG_ABORT() ((void)0)
#define TENSORGRAD_IMPLEMENTATION
#include "tensorgrad.h"
#include "units.h"

double private_slope(double at)
{
    tg_tensor *x = tg_param(tg_scalar(at));
    double slope;
    {
        TG_SCOPE;
        tg_backward(tg_mul(x, x));
        slope = tg_item(tg_grad(x));
    }
    tg_release(x);
    return tg_shutdown() == TG_OK ? slope : -1;
}
