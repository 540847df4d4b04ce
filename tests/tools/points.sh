#!/bin/sh
# tests/tools/points.sh [python]: derivatives at special points beside PyTorch's, first and second ones: zeros, kinks, ties,
# poles, infinities and NaN; and of every op that replay.c can call the samples of PyTorch's tests, as they are, rounded, with
# zeros and with ones.  points.py records them, replay.c compares.  The python is found as replay.sh says; without one, or a
# PyTorch, it says "skipped: ..." and succeeds.
cd "$(dirname "$0")/../.." || exit 2
build=${BUILD:-build}
. tests/tools/torch.sh
mkdir -p "$build"
make -s BUILD="$build" "$build/replay" && "$build/replay" --names >"$build/points-names" || { echo "0 passed, 1 failed"; exit 1; }
within 240 "$python" tests/tools/points.py "$build/points" "$build/points-names" >"$build/points.log" 2>&1 || {
    tail -n 5 "$build/points.log"
    echo "0 passed, 1 failed"
    exit 1
}
exec "$build/replay" "$build/points"
