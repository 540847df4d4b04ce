/* The library behind macros of nonsense with the names of those in system headers. */
#include "hostile.h"
#ifndef HEADER_ALONE
#define TENSORGRAD_IMPLEMENTATION
#endif
#include "tensorgrad.h"
