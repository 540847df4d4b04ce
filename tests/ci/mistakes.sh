#!/usr/bin/env bash
# mistakes.sh LIBRARY FOLDER: programs with the mistakes that beginners make (tests/mistakes), each linked with the library and run;
# what it says, and then what it prints, are the lines of the text file beside it.  LIBRARY: tests/library.c, compiled.  A program
# with the implementation in it is compiled by tcc, where there is one, since gcc takes 5 s.
#   PRINT=1 mistakes.sh ...: writes these text files anew, to be read before they are committed.
library=$(realpath "$1") passed=0 failed=0
mkdir -p "$2" && rm -f "$2"/*.txt || exit 1
openmp=$(bash tests/ci/can.sh "${CC:-cc}" -fopenmp && echo -fopenmp) # as `make` has it
for source in tests/mistakes/*.c; do
    name=$(basename "$source" .c) expected=tests/mistakes/$(basename "$source" .c).txt
    compiler=(${CC:-cc} -std=c99 -O0 -Wall -Wextra -Werror) linked=("$library" $openmp)
    if grep -q '^#define TENSORGRAD_IMPLEMENTATION' "$source"; then
        linked=()
        if command -v tcc >/dev/null; then compiler=(tcc); fi
    fi
    "${compiler[@]}" -I. "$source" "${linked[@]}" -o "$2/$name" -lm &&
        (cd "$2" && "./$name" >"$name.stdout" 2>"$name.stderr")
    [ $? -eq 0 ] || echo "$name: exit status" >>"$2/$name.stderr"
    cat "$2/$name.stderr" "$2/$name.stdout" >"$2/$name.txt"
    [ ! "${PRINT:-}" ] || cp "$2/$name.txt" "$expected"
    if diff "$expected" "$2/$name.txt"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "failed: $name"; fi
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ] && [ $passed -gt 20 ]
