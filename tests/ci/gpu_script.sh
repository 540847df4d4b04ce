#!/usr/bin/env bash
# gpu_script.sh BUILD [--deep]: tests/gpu.sh writes the table of a GPU with the rows of tests/bench/RESULTS.md, whose table
# has nothing that is of the simulator; --deep: it runs through all of its parts there.
set -e
rows() { sed -n '/^# Results on a GPU$/,$p' "$1" | sed -nE 's/^(\| [^|]*\|).*/\1/p' | sort; }
if sed -n '/^# Results on a GPU$/,$p' tests/bench/RESULTS.md | grep -i simulator; then exit 1; fi
if [ "$2" = --deep ]; then
    TG_GPU_SIM=1 BUILD=$1/gpu-script tests/gpu.sh
else
    TG_GPU_SIM=1 BUILD=$1/gpu-script tests/gpu.sh --not-run
fi
diff <(rows tests/bench/RESULTS.md) <(rows "$1/gpu-script/RESULTS.md")
