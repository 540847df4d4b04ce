#!/usr/bin/env bash
# demo_device.sh BUILD FOLDER: 20 steps of the demo on a pretend GPU, under two orders of its threads: both write the same
# bytes, and losses that are the CPU's but for rounding.
set -e
make -s "$1/12_chargpt" "$1/check_output" BUILD="$1"
make -s sim MAIN=examples/12_chargpt.c OUT="$2/chargpt-sim" BUILD="$1"
"$1/12_chargpt" --text LICENSE --steps 20 --out "$2/device-cpu" >/dev/null
for order in fwd greedy:3; do
    TG_SIM_ORDER=$order "$2/chargpt-sim" --device cuda --text LICENSE --steps 20 --out "$2/device-$order" >/dev/null &
done
wait -n
wait -n
cmp "$2/device-fwd/log.csv" "$2/device-greedy:3/log.csv"
cmp "$2/device-fwd/sample.txt" "$2/device-greedy:3/sample.txt"
"$1/check_output" "$2/device-cpu/log.csv" "$2/device-fwd/log.csv" 1e-4
TG_SIM_DEVICES=0 "$2/chargpt-sim" --device cuda --text LICENSE --out "$2/device-none" 2>"$2/device-none.txt" && exit 1
grep 'No CUDA GPUs are available' "$2/device-none.txt"
