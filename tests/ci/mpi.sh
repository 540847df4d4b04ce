#!/bin/bash
# mpi.sh FOLDER [LIBRARY.o]: examples/mpi/train.c under mpirun.  1, 2 and 4 ranks have the same losses; a rank that is killed, is
# stopped or fails ends the others in bounded time, and two ranks go on from the checkpoint of four; how much of the
# communication a backward hides.  Without mpicc it prints "not run: no mpicc".
set -euo pipefail
for tool in mpicc mpirun; do
    command -v $tool >/dev/null || { echo "not run: no $tool"; exit 0; }
done
out=$1 library=${2:-}
mkdir -p "$out"
# Open MPI starts more ranks than there are processors, and as root, only when told; others do not know the words
run=(mpirun)
if mpirun --version 2>/dev/null | grep -q 'Open MPI'; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_mpi_yield_when_idle=1
fi
export OMP_NUM_THREADS=1
openmp=$(bash tests/ci/can.sh mpicc -fopenmp && echo -fopenmp || true) # as `make` has it
mpicc -std=c99 -O1 -ffp-contract=off -Wall -Wextra ${library:+-DTG_COMPILED} $openmp -o "$out/mpi_train" examples/mpi/train.c \
    $library -lm
passed=0
check() { # check NAME COMMAND...
    local name=$1
    shift
    if "$@"; then passed=$((passed + 1)); else echo "failed: $name"; tail -n 20 "$out"/*.txt; exit 1; fi
}
# close A B NEAR: the same lines, each loss within NEAR of the other
close()
{
    paste -d ' ' "$1" "$2" |
        awk -v near="$3" '$2 != $6 || ($4 - $8) ^ 2 > near ^ 2 { bad = 1 } END { exit bad || NR == 0 }'
}
for options in '' --shard --norm --bf16; do
    near=0.0001
    [ "$options" != --bf16 ] || near=0.01
    for ranks in 1 2 4; do
        timeout 300 "${run[@]}" -np $ranks "$out/mpi_train" $options >"$out/losses$options-$ranks.txt" 2>"$out/errors.txt"
        check "$options: $ranks ranks as one" close "$out/losses$options-1.txt" "$out/losses$options-$ranks.txt" $near
    done
done
# A rank that is killed, stopped or fails in step 50: mpirun ends with an error, within seconds, after the checkpoint of step 40
ended() # ended TROUBLE
{
    local code=0 start=$SECONDS
    timeout -k 5 300 "${run[@]}" -np 4 "$out/mpi_train" --shard --patience 2 --save "$out/$1.ckpt" --trouble "$1" \
        >"$out/$1.txt" 2>&1 || code=$?
    echo "$1: mpirun returned $code after $((SECONDS - start)) s"
    [ $code -ne 0 ] && [ $code -lt 124 -o $code -gt 137 -o $1 = kill ] && [ $((SECONDS - start)) -lt 200 ] &&
        grep -q '^step  40' "$out/$1.txt" && ! grep -q '^step  50' "$out/$1.txt"
}
for trouble in kill stop fail; do check "a rank and $trouble" ended $trouble; done
check 'a stopped rank is named' grep -q 'another rank gave no answer for 2 seconds' "$out/stop.txt"
check 'a failure is named' grep -q 'must match the size of tensor b' "$out/fail.txt"
sed -n '/^step  [4-9]0/p' "$out/losses-1.txt" >"$out/wanted.txt"
for ranks in 1 2; do
    timeout 300 "${run[@]}" -np $ranks "$out/mpi_train" --shard --load "$out/stop.ckpt" >"$out/resumed-$ranks.txt" 2>"$out/errors.txt"
    check "$ranks ranks go on" close "$out/wanted.txt" "$out/resumed-$ranks.txt" 0.0001
done
timeout 300 "${run[@]}" -np 2 "$out/mpi_train" --steps 0 --measure
echo "$passed passed, 0 failed"
