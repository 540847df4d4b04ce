/* What compiles, and what must not: MISUSE is the number of a mistake, 0 for none. */
#include "tensorgrad.h"

enum size { THREE = 3, FOUR };

void misuse(tg_tensor *x, int n, size_t size, double real);
void misuse(tg_tensor *x, int n, size_t size, double real)
{
#if MISUSE == 0
    TG_SCOPE;
    TG_NO_GRAD;
    enum size three = THREE;
    const unsigned u = 2;
    const int64_t wide = 5;
    (void)x, (void)real;
    {
        TG_SCOPE;
        TG_NO_GRAD;
        TG_ENABLE_GRAD;
        TG_AUTOCAST(TG_BF16);
        (void)TG_SHAPE(n, size, u, wide, 'c', three, (short)1, true);
        (void)TG_DIMS(-1, n ? 2 : 3, n << 2, sizeof n);
        (void)TG_CUDA(size);
    }
    for (int i = 0; i < n; ++i) {
        TG_SCOPE;
        (void)tg_relu(x);
        tg_relu_(x), tg_keep(x);
    }
#elif MISUSE == 1
    if (n) TG_NO_GRAD;
#elif MISUSE == 2
    for (int i = 0; i < n; ++i) TG_SCOPE;
#elif MISUSE == 3
    if (n) tg_relu_(x);
    else TG_AUTOCAST(TG_BF16);
#elif MISUSE == 4
    while (n) TG_ENABLE_GRAD;
#elif MISUSE == 5
    do TG_SCOPE;
    while (n);
#elif MISUSE == 6
    (void)TG_SHAPE(2.7, 3);
#elif MISUSE == 7
    (void)TG_DIMS(n, real);
#elif MISUSE == 8
    (void)TG_INDEX((float)n);
#elif MISUSE == 9
    (void)TG_CUDA(0.5);
#elif MISUSE == 10 /* these are warnings */
    tg_relu(x);
#elif MISUSE == 11
    tg_to(x, TG_CPU);
#endif
}
