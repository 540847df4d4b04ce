#!/usr/bin/env bash
# demo_refused.sh FOLDER: `make demo DEVICE=cuda` builds with nvcc, and where there is no GPU it says so and ends with an error.
if make demo DEVICE=cuda BUILD="$1" TEXT=LICENSE ARGS="--steps 2 --out $1/out" >"$1.txt" 2>&1; then
    nvidia-smi -L
else
    grep 'chargpt: cuda: .*Found no NVIDIA driver' "$1.txt"
fi
