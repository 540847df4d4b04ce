#!/bin/sh
# tests/tools/layers.sh [python]: every layer against PyTorch, by layers.py: the columns of layers.h, then the same weights
# and inputs in both and ten steps of training.  The python is found as replay.sh says.
cd "$(dirname "$0")/../.." || exit 2
build=${BUILD:-build}
. tests/tools/torch.sh
"$python" -c 'import safetensors' 2>/dev/null || skip "$python cannot import safetensors"
make -s BUILD="$build" "$build/test_layers" || { echo "0 passed, 1 failed"; exit 1; }
"$python" tests/tools/layers.py || exit 1
"$python" tests/tools/layers.py --judge "$build/test_layers" "$build/judge"
