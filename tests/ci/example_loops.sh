#!/usr/bin/env bash
# example_loops.sh LIBRARY FOLDER: every example that trains, with an eye on each of its steps (units/steps.h): what exists
# after many steps is what existed after a hundred.  LIBRARY: tests/library.c, compiled.
mkdir -p "$2" || exit 1
passed=0 failed=0
openmp=$(bash tests/ci/can.sh ${CC:-cc} -fopenmp && echo -fopenmp) # as `make` has it
for source in $(grep -l 'tg_step(' examples/*.c); do
    name=$(basename "$source" .c) arguments=()
    [ "$name" != 12_chargpt ] || arguments=(--steps 160 --text tests/harness.h --out "$2/chargpt")
    sed '/define TENSORGRAD_IMPLEMENTATION/d; s|^#include ".*tensorgrad.h"|&\n#include "tests/ci/units/steps.h"|' "$source" >"$2/$name.c"
    { ${CC:-cc} -O1 -I. -Iexamples "$2/$name.c" "$1" -o "$2/$name" $openmp -lm &&
        "$2/$name" "${arguments[@]}"; } >"$2/$name.txt" 2>"$2/$name.steps"
    line=$(grep '^steps: ' "$2/$name.steps" | tail -n 1)
    case $line in
    *even) passed=$((passed + 1)) ;;
    *'too few steps') line="skipped: ${line#steps: }" ;;
    *) failed=$((failed + 1)) ;;
    esac
    printf '%-22s %s\n' "$name" "${line:-no report: $(head -c 300 "$2/$name.steps")}"
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ] && [ $passed -gt 3 ]
