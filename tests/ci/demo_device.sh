#!/usr/bin/env bash
# demo_device.sh BUILD FOLDER: the demo on a simulated GPU, and on a machine that has none.
set -e
make -s "$1/check_output" BUILD="$1"
make -s sim MAIN=examples/12_chargpt.c OUT="$2/chargpt-sim" BUILD="$1" CFLAGS='-O1 -ffp-contract=off' SIM_CFLAGS=-DTG_COMPILED
bash tests/ci/demo_same.sh "$2/chargpt-sim" "$1/check_output" "$2"
if TG_SIM_DEVICES=0 "$2/chargpt-sim" --device cuda --text LICENSE --out "$2/none" 2>"$2/none.txt"; then exit 1; fi
grep 'chargpt: cuda: .*No CUDA GPUs are available' "$2/none.txt"
