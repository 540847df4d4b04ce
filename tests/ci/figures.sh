#!/usr/bin/env bash
# figures.sh FOLDER [LIBRARY.o]: figures to watch, not gates: what it takes to compile the header, and what an op costs.  With
# LIBRARY.o only what an op costs, of that library.
out=$1 library=${2:-}
mkdir -p "$out"
echo '#include "tensorgrad.h"' >"$out/include.c"
printf '#define TENSORGRAD_IMPLEMENTATION\n#include "tensorgrad.h"\n' >"$out/implementation.c"
TIMEFORMAT=%U
seconds() { { time "$@" >/dev/null 2>&1; } 2>&1; }
for compiler in $([ "$library" ] || echo "${FIGURES:-gcc clang g++ clang++}"); do
    command -v $compiler >/dev/null 2>&1 || continue
    language='-std=c99'
    case $compiler in *++) language='-std=c++11 -x c++' ;; esac
    for opt in -O0 -O2; do
        s=$(seconds $compiler $language $opt -I. -c "$out/implementation.c" -o "$out/$compiler.o")
        printf 'compile %-8s %s   %6s s, object %d KB\n' $compiler $opt "$s" $(($(wc -c <"$out/$compiler.o") / 1024))
    done
    library=${library:-$out/$compiler.o}
    for part in TG_KERNELS_ELSEWHERE TG_KERNELS_ONLY TG_PLAIN; do
        s=$(seconds $compiler $language -O2 -D$part -I. -c "$out/implementation.c" -o "$out/part.o")
        printf 'compile %-8s -O2   %6s s, with %s\n' $compiler "$s" $part
    done
    printf 'include %-8s       %6s s\n' $compiler "$(seconds $compiler $language -I. -c "$out/include.c" -o "$out/include.o")"
done
openmp=$(nm "$library" | grep -q 'GOMP\|__kmpc' && echo -fopenmp)
cc -std=c99 -O2 -DTG_COMPILED -I. tests/bench/figures.c "$library" $openmp -o "$out/figures" -lm && "$out/figures"
