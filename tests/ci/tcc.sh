#!/usr/bin/env bash
# tcc.sh FOLDER: tcc compiles the library and a program in less than a second of processor time, without a warning, and runs the
# examples from memory (tcc -run) with the output that is expected of every compiler; and a tcc whose blocks do not run the cleanup
# of TG_SCOPE is noticed.
set -u
out=$1 passed=0 failed=0
mkdir -p "$out"
verdict() { if [ "$1" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "failed: $2"; fi; }

cc -O1 tests/tools/check_output.c -o "$out/check_output" -lm
TIMEFORMAT='%U %S'
for name in 01_hello_grad 02_slope 03_step 04_xor 05_moons 06_engine 07_bigram 09_by_hand 11_reverse 13_beyond_nn \
    14_device_tour bugs from_pytorch pipeline tutorials_tensors tutorials_modules; do
    TG_DATA='' tcc -lm -run "examples/$name.c" >"$out/$name.txt" 2>&1 && "$out/check_output" "examples/expected/$name.txt" "$out/$name.txt"
    verdict $? "$name by tcc -run"
done
for name in 08_names 10_mnist 12_chargpt; do # they learn for minutes: without the vectors of other compilers
    tcc -Wall -Werror "examples/$name.c" -lm -o "$out/$name"
    verdict $? "tcc compiles $name without a warning"
done

{ time tcc examples/01_hello_grad.c -lm -o "$out/hello" 2>"$out/hello.txt"; } 2>"$out/seconds.txt"
seconds=$(awk '{ printf "%.2f", $1 + $2 }' "$out/seconds.txt")
echo "tcc compiles the library and examples/01_hello_grad.c in $seconds s of processor time"
awk -v s="$seconds" 'BEGIN { exit !(s > 0 && s < 1) }'
verdict $? "library and program in less than a second: $seconds s"

# What a tcc of before 2019 makes of the attribute: nothing.
mkdir -p "$out/without/examples"
sed 's/__cleanup__([a-z_]*)/__unused__/' tensorgrad.h >"$out/without/tensorgrad.h"
cp examples/01_hello_grad.c "$out/without/examples"
! tcc -lm -run "$out/without/examples/01_hello_grad.c" >/dev/null 2>"$out/without.txt" &&
    grep -q 'the block of TG_SCOPE would never end' "$out/without.txt"
verdict $? "a compiler that ignores the cleanup attribute is noticed"
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
