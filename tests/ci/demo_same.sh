#!/usr/bin/env bash
# demo_same.sh DEMO CHECK_OUTPUT FOLDER: 20 steps of the demo, twice on the GPU: the same bytes, and losses that are the CPU's
# but for rounding.  On the simulator the two runs take the threads in different orders.
set -e
run() { "$demo" --device "$1" --text LICENSE --steps 20 --out "$2" >/dev/null; }
demo=$1
run cpu "$3/same-cpu"
for order in fwd greedy:3; do TG_SIM_ORDER=$order run cuda "$3/same-$order" & done
wait -n
wait -n
cmp "$3/same-fwd/log.csv" "$3/same-greedy:3/log.csv"
cmp "$3/same-fwd/sample.txt" "$3/same-greedy:3/sample.txt"
"$2" "$3/same-cpu/log.csv" "$3/same-fwd/log.csv" 1e-4
