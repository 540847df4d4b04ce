/* Two errors by turns in a loop. */
#include "tensorgrad.h"

int main(void)
{
    for (int i = 0; i < 100; ++i) {
        TG_SCOPE;
        tg_tensor *x = tg_zeros(TG_SHAPE(2)), *y = tg_zeros(TG_SHAPE(3));
        tg_tensor *sum = tg_add(x, y);
        sum = tg_mul(y, x);
        if (sum) return 1;
    }
    printf("%d errors\n", (int)tg_error_count());
    return 0;
}
