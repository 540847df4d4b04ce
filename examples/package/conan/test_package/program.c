/* The derivative of x * x at 3. */
#include <tensorgrad.h>

int main(void)
{
    tg_tensor *x = tg_param(tg_scalar(3));
    tg_backward(tg_mul(x, x));
    printf("tensorgrad %s: the derivative of x * x at 3 is %g\n", tg_version(), tg_item(tg_grad(x)));
    tg_release(x);
    tg_shutdown();
    return tg_ok() ? 0 : 1;
}
