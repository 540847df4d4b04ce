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

[ -f "$tool" ] || { echo "skipped: no recorder at $tool (set TG_FIXTURES_TOOL)"; echo "0 passed, 0 failed"; exit 0; }
. tests/tools/torch.sh

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
make -s BUILD="$build" "$build/replay" || { echo "0 passed, 1 failed"; exit 1; }
exec "$build/replay" "$fixtures" ${2:+"$2"}
