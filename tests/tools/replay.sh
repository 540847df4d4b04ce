#!/bin/sh
# Replays PyTorch's own op tests: records them with a PyTorch (a minute), then compares every output and gradient.
#
#   tests/tools/replay.sh [python] [op]     python: one that can import torch; op: only this one
#
#   TG_PYTHON         the same python; without either: python3, then a virtual environment in the user's cache, made if
#                     need be
#   TG_FIXTURES_TOOL  the recorder (default ../shared/tools/opinfo_fixtures.py)
#   TG_REPLAY_CAP     samples per op (default 200)
# Without the recorder or a PyTorch it says "skipped: ..." and succeeds.
cd "$(dirname "$0")/../.." || exit 2
tool=${TG_FIXTURES_TOOL:-../shared/tools/opinfo_fixtures.py}
cap=${TG_REPLAY_CAP:-200}
build=${BUILD:-build}
fixtures=$build/replay-fixtures
venv=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/tensorgrad/venv

skip() { echo "skipped: $1"; echo "0 passed, 0 failed"; exit 0; }
has_torch() { "$1" -c 'import numpy, torch' >/dev/null 2>&1; }
within() { # within SECONDS command...
    if command -v timeout >/dev/null 2>&1; then timeout "$@"; else shift; "$@"; fi
}

[ -f "$tool" ] || skip "no recorder at $tool (set TG_FIXTURES_TOOL)"
python=${1:-${TG_PYTHON:-}}
if [ -n "$python" ]; then
    has_torch "$python" || skip "$python cannot import torch and numpy"
elif has_torch python3; then
    python=python3
else
    python=$venv/bin/python
    if ! has_torch "$python"; then
        echo "no PyTorch: installing one in $venv"
        mkdir -p "$(dirname "$venv")" && python3 -m venv "$venv" >/dev/null 2>&1 ||
            skip "no PyTorch and no way to make $venv"
        cpu=https://download.pytorch.org/whl/cpu
        within 30 "$python" -m pip install -q numpy expecttest >/dev/null 2>&1
        within 80 "$python" -m pip install -q --retries 0 --index-url "$cpu" torch >/dev/null 2>&1 ||
            within 80 "$python" -m pip install -q --retries 0 torch >/dev/null 2>&1
        has_torch "$python" || skip "no PyTorch could be installed in $venv"
    fi
fi

mkdir -p "$build"
stamp="cap $cap, $("$python" -c 'import torch; print(torch.__version__)')"
if [ ! -s "$fixtures"/cases.txt ] || [ "$tool" -nt "$fixtures"/stamp ] ||
    [ "$(cat "$fixtures"/stamp 2>/dev/null)" != "$stamp" ]; then
    rm -rf "$fixtures"
    within 170 "$python" "$tool" "$fixtures" --cap "$cap" >"$build/replay-fixtures.log" 2>&1 || {
        tail -n 5 "$build/replay-fixtures.log"
        echo "0 passed, 1 failed"
        exit 1
    }
    tail -n 1 "$build/replay-fixtures.log"
    echo "$stamp" >"$fixtures"/stamp
fi
if [ ! -x "$build/replay" ] || [ tests/tools/replay.c -nt "$build/replay" ] || [ tensorgrad.h -nt "$build/replay" ]; then
    ${CC:-cc} -std=c99 -O1 -I. -o "$build/replay" tests/tools/replay.c -lm || { echo "0 passed, 1 failed"; exit 1; }
fi
exec "$build/replay" "$fixtures" ${2:+"$2"}
