#!/usr/bin/env bash
# export.sh LIBRARY FOLDER: tests/ci/units/export.c prints the weights of a network as C; the text is the same each time, compiles
# without a warning as C99 and C++11, and the program that has it in itself gives the same forward, to the bit.  LIBRARY:
# tests/library.c, compiled.
set -u
library=$(realpath "$1") out=$2 passed=0 failed=0
strict=(-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wsign-conversion -Werror)
mkdir -p "$out" && rm -f "$out"/* || exit 1
openmp=$(bash tests/ci/can.sh "${CC:-cc}" -fopenmp && echo -fopenmp) # as `make` has it

verdict() { if [ "$1" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "failed: $2"; fi; }

"${CC:-cc}" -std=c99 -I. tests/ci/units/export.c "$library" $openmp -o "$out/export" -lm &&
    "$out/export" "$out/net.h" >"$out/wanted" && [ "$(sort -u "$out/wanted" | wc -l)" -gt 3 ]
verdict $? "printing the weights"
"$out/export" "$out/again.h" >"$out/printed" && cmp "$out/net.h" "$out/again.h"
verdict $? "the text is the same each time"
for how in "cc -std=c99" "c++ -std=c++11 -x c++" "clang -std=c99" "clang++ -std=c++11 -x c++"; do
    if ! command -v "${how%% *}" >/dev/null 2>&1; then echo "skipped: no ${how%% *}"; continue; fi
    $how "${strict[@]}" -I. -I"$out" -DWEIGHTS='"net.h"' -c tests/ci/units/export.c -o "$out/loads.o" &&
        "${how%% *}" "$out/loads.o" "$library" $openmp -o "$out/loads" -lm && "$out/loads" >"$out/printed" &&
        cmp "$out/wanted" "$out/printed"
    verdict $? "$how"
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ] && [ $passed -gt 2 ]
