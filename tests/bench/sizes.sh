#!/usr/bin/env bash
# sizes.sh FOLDER: what the macros that leave parts out save, as a table for RESULTS.md: bytes of README's first program and
# processor seconds of the library at -O2, the least of TIMES (1).
set -eu
out=$1 names=() flags=() least=()
mkdir -p "$out"
CC=${CC:-cc}
ROOMS='-DTG_NO_FILES -DTG_NO_MODULES -DTG_NO_OPTIM -DTG_NO_TOOLS -DTG_NO_LINALG -DTG_NO_SPECIAL -DTG_NO_FFT -DTG_NO_DISTRIBUTIONS'
TIMEFORMAT=%U
awk '/^```c$/ { on = 1; next } /^```$/ { if (on) exit } on' README.md >"$out/first.c"
printf '#define TENSORGRAD_IMPLEMENTATION\n#include "tensorgrad.h"\n' >"$out/library.c"

# values FILE: what the program has printed, but for the formulas of a gradient, which TG_NO_TOOLS leaves out
values() { sed -e 's/   /\n/g' "$1" | sed -e 's/+= .* = /+= /'; }

# bytes FLAGS...: the size of the program from first.o, stripped; it must print the values that it prints without any
bytes()
{
    $CC "$@" "$out/first.o" -o "$out/program" -lm -s
    "$out/program" >"$out/program.txt"
    values "$out/program.txt" >"$out/values.txt"
    [ -f "$out/first.txt" ] || cp "$out/values.txt" "$out/first.txt"
    cmp -s "$out/values.txt" "$out/first.txt" || { echo "another result with $*" >&2; exit 1; }
    wc -c <"$out/program"
}

# row NAME FLAGS...: a line of the table
row() { names+=("$1"); flags+=("${*:2}"); }

# The rows take turns, so that what else the machine does meets all of them.
measure()
{
    local round k seconds
    for ((round = 0; round < ${TIMES:-1}; ++round)); do
        for k in "${!names[@]}"; do
            seconds=$({ time $CC -O2 -c -I. ${flags[k]} "$out/library.c" -o "$out/library.o"; } 2>&1)
            least[k]=$(awk -v a="$seconds" -v b="${least[k]:-$seconds}" 'BEGIN { print a < b ? a : b }')
        done
    done
}

rm -f "$out/first.txt"
printf '| | |\n|---|---|\n'
printf '| processor | %s |\n' "$(sed -n 's/^model name[^:]*: *//p' /proc/cpuinfo | head -n 1)"
printf '| compiler | %s |\n' "$($CC --version | head -n 1)"
printf '| date | %s |\n' "$(date +%F)"
printf '| others | at a load of %s |\n\n' "$(awk '{ print $1 }' /proc/loadavg)"
printf '| macros | bytes, sections collected | bytes | seconds |\n|---|---|---|---|\n'
row 'none' -UNONE
row '`TG_PORTABLE`' -DTG_PORTABLE
row 'all `TG_NO_`' $ROOMS
row 'these and `TG_PORTABLE`' $ROOMS -DTG_PORTABLE
row '`TG_PLAIN`' -DTG_PLAIN
for room in $ROOMS; do row "\`TG_PLAIN\`, \`${room#-D}\`" -DTG_PLAIN $room; done
row '`TG_PLAIN`, all `TG_NO_`' $ROOMS -DTG_PLAIN
row 'these and `-fno-asynchronous-unwind-tables`' $ROOMS -DTG_PLAIN -fno-asynchronous-unwind-tables
row 'these and `-no-pie`' $ROOMS -DTG_PLAIN -fno-asynchronous-unwind-tables -fno-pie -no-pie
measure
for k in "${!names[@]}"; do
    $CC -Os -ffunction-sections -fdata-sections -I. ${flags[k]} -c "$out/first.c" -o "$out/first.o"
    sections=$(bytes -Wl,--gc-sections ${flags[k]})
    whole=$(bytes ${flags[k]})
    printf '| %s | %d | %d | %.1f |\n' "${names[k]}" "$sections" "$whole" "${least[k]}"
done
