#!/usr/bin/env bash
# python.sh FOLDER [python]: the library as a shared one, from Python by examples/python/tg.py; then examples/python/to_c.py and
# examples/from_pytorch.c: a network of PyTorch gives the same numbers in C; and the dlpack.h that is part of PyTorch.  The python is found as tests/tools/replay.sh says; with
# one that has no PyTorch, or no NumPy, what needs it is skipped.
cd "$(dirname "$0")/../.." || exit 2
mkdir -p "$1" || exit 2
if ! command -v python3 >/dev/null; then echo "skipped: no python3"; exit 0; fi
python=$(shift; . tests/tools/torch.sh >/dev/null; echo "$python")
cc -O0 -shared -fPIC -DTENSORGRAD_IMPLEMENTATION -x c tensorgrad.h -o "$1/libtensorgrad.so" -lm || exit 1
export PYTHONDONTWRITEBYTECODE=1
TENSORGRAD_LIBRARY=$1/libtensorgrad.so "${python:-python3}" tests/ci/python.py "$1" || exit 1
cc -O1 -DTG_COMPILED examples/from_pytorch.c "$1/libtensorgrad.so" -lm -o "$1/from_pytorch" || exit 1
export LD_LIBRARY_PATH=$1
if [ ! "$python" ]; then echo "skipped: to_c.py, dlpack.h: no PyTorch"; exit 0; fi
include=$("$python" -c 'import os, torch; print(os.path.join(os.path.dirname(torch.__file__), "include"))')
if [ -f "$include/ATen/dlpack.h" ]; then
    for how in "cc -std=c99" "c++ -std=c++11 -x c++ -DBEHIND"; do
        $how -Wall -Wextra -Wpedantic -Werror -Wno-pragmas -isystem "$include" -DDLPACK='<ATen/dlpack.h>' -I. \
            tests/ci/units/dlpack.c -o "$1/dlpack" -lm && "$1/dlpack" || { echo "failed: dlpack.h by $how"; exit 1; }
    done
else
    echo "skipped: units/dlpack.c: this PyTorch has no dlpack.h"
fi
"$python" examples/python/to_c.py "$1/model" && "$1/from_pytorch" "$1/model" || exit 1
if "$1/from_pytorch" "$1/no_such_folder" >/dev/null 2>&1; then echo "failed: no error without the files"; exit 1; fi
"$python" - "$1/model" <<'END' || exit 1
import sys
from safetensors.torch import load_file, save_file
weights = load_file(sys.argv[1] + "/weights.safetensors")
weights["5.weight"][0] += 0.5
save_file(weights, sys.argv[1] + "/weights.safetensors")
END
if "$1/from_pytorch" "$1/model" >/dev/null; then echo "failed: other weights, and no difference was seen"; exit 1; fi
