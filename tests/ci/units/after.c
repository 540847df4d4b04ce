/* The headers of headers.c behind the library, and the program below them: no macro of the library is in their way, nor one of
 * theirs in that of its macros. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#define TENSORGRAD_IMPLEMENTATION
#include "tensorgrad.h"
#include "others.h"

int main(void)
{
    tg_tensor *w = tg_param(tg_ones(TG_SHAPE(2)));
    {
        TG_SCOPE;
        TG_NO_GRAD;
        tg_tensor *a = tg_get(w, TG_INDEX(1)) == 1 ? tg_add(w, tg_to(w, TG_CPU)) : NULL;
        if (tg_print(tg_cat(TG_LIST(w, a), 0)) != TG_OK) return 1;
    }
    tg_release(w);
    return tg_shutdown() != TG_OK;
}
