#!/bin/sh
# tests/run.sh [TEST...] [-- EXAMPLE...]: runs test programs and examples from the root of the repository, as many at a time as
# there are processors (JOBS says otherwise; on a GPU one), and ends with one line, "N passed, N failed"; the exit code is 0
# when nothing failed.
#
# A test prints what it likes and ends with a line "N passed, N failed" of its own.  An example passes when it prints
# what examples/expected/NAME.txt says (tests/tools/check_output.c: equal text, numbers within a tolerance).  All that they
# print is kept in $BUILD/log.
BUILD=${BUILD:-build}
OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive} # a thread that waits leaves its processor to another program
export BUILD OMP_WAIT_POLICY
log=$BUILD/log
passed=0
failed=0
mkdir -p "$log" || exit 1

# verdict NAME PASSED FAILED REMARK [FILE]: one line, and the end of FILE when something failed
verdict()
{
    passed=$((passed + $2))
    failed=$((failed + $3))
    if [ "$3" -eq 0 ]; then
        printf 'ok    %-32s %s\n' "$1" "$4"
    else
        printf 'FAIL  %-32s %s\n' "$1" "$4"
        [ -z "$5" ] || tail -n 40 "$5" | sed 's/^/      | /'
    fi
}

run_test()
{
    name=$(basename "$1")
    start=$(date +%s)
    (
        [ "$name" != test_deep ] || ulimit -s 256 # kilobytes, which a recursion over a million nodes exceeds
        exec "$1"
    ) >"$log/$name.txt" 2>&1
    status=$?
    seconds=$(($(date +%s) - start))
    skipped=$(sed -n 's/^skipped: /      skipped: /p' "$log/$name.txt")
    counts=$(sed -n 's/^\([0-9][0-9]*\) passed, \([0-9][0-9]*\) failed.*/\1 \2/p' "$log/$name.txt" | tail -n 1)
    if [ -z "$counts" ]; then
        verdict "$name" 0 1 "ended without 'N passed, N failed' (exit code $status)" "$log/$name.txt"
    elif [ $status -ne 0 ] && [ "${counts#* }" -eq 0 ]; then
        verdict "$name" "${counts% *}" 1 "exit code $status" "$log/$name.txt"
    else
        verdict "$name" "${counts% *}" "${counts#* }" "${counts% *} passed, ${counts#* } failed, $seconds s" "$log/$name.txt"
    fi
    [ -z "$skipped" ] || echo "$skipped"
}

# check NAME COMMAND...: one test, passed when the command succeeds
check()
{
    name=$1
    shift
    if "$@" >"$log/$name.check" 2>&1; then
        verdict "$name" 1 0 "as expected"
    else
        verdict "$name" 0 1 "failed: $*" "$log/$name.check"
    fi
}

run_example()
{
    name=$(basename "$1")
    [ -f "examples/expected/$name.txt" ] || return 0
    set -- "$1"
    [ "$name" != 03_step ] || set -- "$1" "$log" # where it writes
    # what is expected is what the CPU does, with no GPU in sight, on the examples' own data
    if CUDA_VISIBLE_DEVICES='' TG_DATA='' "$@" >"$log/$name.txt" 2>&1; then
        check "$name" "$BUILD/check_output" "examples/expected/$name.txt" "$log/$name.txt"
    else
        verdict "$name" 0 1 "exit code $?" "$log/$name.txt"
    fi
}

# The demo in short, on a small text, with one thread and with two: what it writes and its last line.
run_chargpt()
{
    for threads in 1 2; do
        dir=$log/chargpt$threads
        if ! "$1" --steps 20 --text LICENSE --threads $threads --out "$dir" >"$dir.txt" 2>&1; then
            verdict chargpt$threads 0 1 "exit code $?" "$dir.txt"
            return
        fi
        tail -n 1 "$dir.txt" | cat "$dir/log.csv" - >"$dir/result.txt"
    done
    check 12_chargpt "$BUILD/check_output" examples/expected/12_chargpt.txt "$log/chargpt1/result.txt"
    for file in result.txt loss.svg sample.txt model.safetensors; do
        check "12_chargpt-threads-$file" cmp "$log/chargpt1/$file" "$log/chargpt2/$file"
    done
    check 12_chargpt-complete test ! -e "$log/chargpt2/log.csv.part" -a -s "$log/chargpt2/log.csv"
    if [ -w /dev/full ]; then
        "$1" --steps 1 --text LICENSE --out "$log/chargpt2" >/dev/full 2>"$log/chargpt-full.txt"
        check 12_chargpt-full-device test $? -eq 1
    fi
    "$1" --text "$log/no such text" --out "$log/chargpt1" >"$log/chargpt-error.txt" 2>&1
    check 12_chargpt-no-text test $? -eq 1
}

# run.sh one PROGRAM: this program alone.  Its lines come at once, so that those of two programs do not mix; the first says how
# many of all have ended.
if [ "$1" = one ]; then
    lines=$log/$(basename "$2").lines
    {
        case $(basename "$2") in
            test_*) run_test "$2" ;;
            12_chargpt) run_chargpt "$2" ;;
            *) run_example "$2" ;;
        esac
        echo "$passed $failed" >"${lines%.lines}.counts"
    } >"$lines"
    ended=$(ls "$log" | grep -c '\.counts$')
    sed "1s/\$/   ($ended of ${PROGRAMS:-1})/" "$lines"
    exit 0
fi

longest=
for program; do
    shift
    case $program in
        --) ;;
        */test_ops) longest=$program ;;
        *) set -- "$@" "$program" ;;
    esac
done
[ -z "$longest" ] || set -- "$longest" "$@" # begins first
jobs=${JOBS:-$(nproc 2>/dev/null || echo 1)}
[ -z "$TG_TEST_DEVICE" ] || jobs=1
rm -f "$log"/*.counts
PROGRAMS=$#
export PROGRAMS
echo "$# programs, $jobs at a time"
printf '%s\n' "$@" | xargs -n 1 -P "$jobs" sh tests/run.sh one
for program; do
    counts=$(cat "$log/$(basename "$program").counts" 2>/dev/null) || counts='0 1' # run.sh itself was stopped
    passed=$((passed + ${counts% *}))
    failed=$((failed + ${counts#* }))
done
# $BUILD/log/took is what the next `make test` says first
[ -z "$BEGUN" ] || echo "the last time it took $(($(date +%s) - BEGUN)) s" >"$log/took"
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
