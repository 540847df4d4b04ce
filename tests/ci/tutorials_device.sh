#!/usr/bin/env bash
# tutorials_device.sh BUILD FOLDER: the tutorials on one and on two simulated GPUs print the lines of the CPU, but for the names of
# devices, and an error for each forgotten move (a line that begins with ! and those below it that are indented).
set -e
lines() { sed -E '/^[! ]/d; s/cuda:[0-9]/cpu/g' "$1"; }
make -s "$1/check_output" BUILD="$1"
for program in tutorials_tensors tutorials_modules; do
    make -s sim MAIN="examples/$program.c" OUT="$2/$program" BUILD="$1" CFLAGS='-O1 -ffp-contract=off' SIM_CFLAGS=-DTG_COMPILED
    lines "examples/expected/$program.txt" >"$2/tutorial-cpu.txt"
    for devices in 1 2; do
        TG_SIM_DEVICES=$devices TG_SIM_LEAKS=1 "$2/$program" | tee "$2/tutorial.txt"
        lines "$2/tutorial.txt" >"$2/tutorial-device.txt"
        "$1/check_output" "$2/tutorial-cpu.txt" "$2/tutorial-device.txt"
        if grep 'nothing is refused' "$2/tutorial.txt"; then exit 1; fi
        case $program in
        *_tensors) found="after tensor = tg_to on cuda:$((devices - 1))|cuda is cuda:$((devices - 1))|bytes moved: 2560 and 0" ;;
        *_modules) found="added after tg_module_to|no parameter or buffer of MyModule|input 0 of CustomLinear is on cpu" ;;
        esac
        test "$(grep -cE "$found" "$2/tutorial.txt")" -eq 3
    done
done
