#!/usr/bin/env bash
# pipeline_device.sh BUILD FOLDER: the two halves of a network on two simulated GPUs print what they print on the CPU, but for where
# they are, whichever stream runs first, and whether a GPU reaches the memory of the other.
set -e
make -s "$1/check_output" BUILD="$1"
make -s sim MAIN=examples/pipeline.c OUT="$2/pipeline-sim" BUILD="$1" CFLAGS='-O1 -ffp-contract=off' SIM_CFLAGS=-DTG_COMPILED
for way in lazy/1 others/0; do
    TG_SIM_DEVICES=2 TG_SIM_STREAMS=${way%/*} TG_SIM_PEER=${way#*/} "$2/pipeline-sim" >"$2/pipeline.txt"
    sed 's/cuda:[01]/cpu/g' "$2/pipeline.txt" >"$2/pipeline-cpu.txt"
    "$1/check_output" examples/expected/pipeline.txt "$2/pipeline-cpu.txt"
    grep -q 'weight \[32, 2\] f64 cuda:0 ' "$2/pipeline.txt"
    grep -q 'weight \[3, 32\] f64 cuda:1 ' "$2/pipeline.txt"
done
