/* The library by itself.  Most programs of tests/ are linked with it, so that it is compiled once for all of them; those that
   look inside, which define TENSORGRAD_IMPLEMENTATION themselves, are not. */
#define TENSORGRAD_IMPLEMENTATION
#include "tensorgrad.h"
