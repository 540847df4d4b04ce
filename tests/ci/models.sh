#!/usr/bin/env bash
# models.sh FOLDER LIBRARY.o [python]: the models of examples/models against transformers and torchvision, and their tokenizers
# against tokenizers, in a python that has these and PyTorch; it is found as tests/tools/replay.sh says.  Where it has not,
# that is said.
cd "$(dirname "$0")/../.." || exit 2
out=$1 library=$2
mkdir -p "$out" || exit 2
openmp=$(nm "$library" | grep -q 'GOMP\|__kmpc' && echo -fopenmp)
for program in gpt2 llama bert vit resnet finetune; do
    cc -std=c99 -O1 -DTG_COMPILED examples/models/$program.c "$library" $openmp -lm -o "$out/$program" || exit 1
done
for program in tokens pieces; do cc -std=c99 -O1 tests/ci/units/$program.c -o "$out/$program" || exit 1; done
cc -O1 -shared -fPIC tests/ci/units/allocations.c -ldl -o "$out/allocations.so" || exit 1
if ! command -v python3 >/dev/null; then echo "skipped: no python3"; exit 0; fi
python=$(shift 2; . tests/tools/torch.sh >/dev/null; echo "$python")
if [ ! "$python" ] || ! "$python" -c 'import torch, transformers, tokenizers, safetensors' 2>/dev/null; then
    echo "skipped: no transformers and tokenizers: $python -m pip install transformers"
    exit 0
fi
export PYTHONDONTWRITEBYTECODE=1
"$python" tests/ci/models.py "$out" "$out/files" && "$python" tests/ci/bert.py "$out" "$out/files"
