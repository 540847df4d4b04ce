#!/usr/bin/env bash
# warnings.sh COMPILER FLAGS: every test and example, and the header alone, passes the compiler without a warning; the library
# itself in tests/library.c, and act III without the others, as the object of TG_KERNELS_ONLY has it.  Examples have no comma operator, of which clang warns.
passed=0 failed=0
for source in tests/*.c tests/api/*.c tests/bench/*.c tests/ci/units/*.c tests/cuda/*.c tests/tools/*.c examples/*.c examples/models/*.c examples/web/*.c examples/lab/*.c \
    examples/lab/wrong/*.c; do
    case $source in */nonsense.c | */headers.c | */after.c | */units/dlpack.c) continue ;; esac # misuse.sh and python.sh compile them
    case $1 in *c++*) case $source in tests/library.c | tests/test_* | tests/api/* | tests/ci/* | examples/lab/*) ;; *) continue ;; esac ;; esac # only those are C++ as well
    compiled=
    case $source in examples/*) compiled=-DTG_COMPILED ;; esac
    case $1$source in clang*examples/*) compiled+=' -Wcomma' ;; esac
    if $1 $2 $compiled -fsyntax-only -I. "$source"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "failed: $source"; fi
done
kernels='#define TENSORGRAD_IMPLEMENTATION
#include "tensorgrad.h"'
case $1 in *c++*) language=c++ ;; *) language=c ;; esac
if $1 $2 -DTG_KERNELS_ONLY -fsyntax-only -I. -x $language - <<< "$kernels"; then passed=$((passed + 1))
else failed=$((failed + 1)) && echo 'failed: the object of TG_KERNELS_ONLY'; fi
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
