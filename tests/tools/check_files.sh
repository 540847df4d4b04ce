#!/bin/sh
# Compares the files of tensorgrad.h with those of NumPy and safetensors.
#
#   tests/tools/check_files.sh [python]     python: one that can import both
#
#   TG_PYTHON   the same python; without either: python3, then the virtual environment that replay.sh makes
# Without such a python it says "skipped: ..." and succeeds.
cd "$(dirname "$0")/../.." || exit 2
build=${BUILD:-build}
skip() { echo "skipped: $1"; echo "0 passed, 0 failed"; exit 0; }

for python in ${1:-${TG_PYTHON:-python3 "${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/tensorgrad/venv/bin/python"}} ''; do
    if [ -n "$python" ] && "$python" -c 'import numpy, safetensors.numpy' >/dev/null 2>&1; then break; fi
done
[ -n "$python" ] || skip "no python3 with numpy and safetensors"
mkdir -p "$build/files"
make -s BUILD="$build" "$build/copy_tensors" || { echo "0 passed, 1 failed"; exit 1; }
exec "$python" tests/tools/check_files.py "$build/copy_tensors" "$build/files"
