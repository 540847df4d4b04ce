#!/usr/bin/env bash
# lines.sh COMPILER FLAGS FOLDER: with TG_LINES the examples and the good uses of misuse.c pass the compiler without a warning,
# mistakes are told as without it, and the header may be included before the implementation (tests/ci/units/late.c).
passed=0 failed=0 out=$3
mkdir -p "$out"
verdict() { if [ "$1" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "failed: $2"; fi; }

case $1 in *c++*) ;; *)
    for source in examples/*.c; do
        $1 $2 -DTG_LINES -DTG_COMPILED -fsyntax-only -I. "$source"
        verdict $? "$source"
    done ;;
esac
$1 $2 -DTG_LINES -DMISUSE=0 -fsyntax-only -I. tests/ci/units/misuse.c
verdict $? "good uses"
for n in 1 2 3 4 5 6 7 8 9 10 11; do
    ! $1 $2 -DTG_LINES -DMISUSE=$n -c -I. tests/ci/units/misuse.c -o "$out/misuse.o" 2>/dev/null
    verdict $? "mistake $n is not told"
done
$1 -DTG_LINES -DHEADER_ALONE -fsyntax-only -I. tests/ci/units/nonsense.c
verdict $? "the header behind macros of nonsense"
case $1 in clang*) # which is quick
    $1 $2 -O0 -DTG_LINES -I. tests/ci/units/late.c -o "$out/late" -lm && "$out/late"
    verdict $? "an implementation behind the macros" ;;
esac
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
