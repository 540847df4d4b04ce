/* The library behind headers of the system, as many as there are: none of their macros is a name of the library. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "others.h"
#define TENSORGRAD_IMPLEMENTATION
#include "tensorgrad.h"

int main(void)
{
    TG_SCOPE;
    return tg_print(tg_add(tg_ones(TG_SHAPE(2)), tg_ones(TG_SHAPE(2)))) != TG_OK;
}
