#!/usr/bin/env bash
# examples.sh BUILD: the examples of this folder, two at a time, print what is expected of them in less than a minute of processor
# time, so in less than that on two cores; the demo in short, as in `make check-examples`.  05_moons learns its other sets, too.
make -s "$1/check_output" BUILD="$1" || exit 1
TIMEFORMAT='%U %S %R'
programs=()
for source in examples/*.c; do programs+=("$1/$(basename "$source" .c)"); done
{ time BUILD=$1 JOBS=2 sh tests/run.sh -- "${programs[@]}" 2>&1; } 2>"$1/examples.seconds" || exit 1
awk -v n=${#programs[@]} '{ s = $1 + $2; printf "%d examples: %.1f s of processor time, %.1f s on two cores\n", n, s, $3 }
    END { exit !(n >= 14 && s > 0 && s < 60) }' "$1/examples.seconds"
[ $? -eq 0 ] || exit 1
for set in simple diagonal split xor circle spiral; do
    "$1/05_moons" $set | awk -v set=$set '/^step/ { right = $NF } END { print set ": " right; exit !(right >= 0.95) }' || exit 1
done
