#!/bin/sh
# tests/tools/engine.sh [python]: what examples/06_engine.c is to print against PyTorch, by engine.py.  The python is found as
# replay.sh says.
cd "$(dirname "$0")/../.." || exit 2
. tests/tools/torch.sh
"$python" tests/tools/engine.py examples/expected/06_engine.txt
