# shellcheck shell=bash disable=SC2034
# Stages of .ci/run: jobs, two at a time, whose counts are summed.  Sourced by bash in the root of the repository.
export LC_ALL=C
B=${B:-build/ci}
WARN='-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wsign-conversion -Werror'
STRICT=-ffp-contract=off
DATA=../shared/data
ran= # the stages

have() { command -v "$1" >/dev/null 2>&1; }

# skip WHAT WHY: a line instead of a job, counted
skip()
{
    [ -z "${COUNTS:-}" ] || echo 0 0 1 >>"$COUNTS"
    printf 'skip  %-40s %s\n' "$1" "$2"
}

# note NAME PASSED FAILED REMARK: one line, counted
note()
{
    echo "$2 $3" >>"$COUNTS"
    if [ "$3" -eq 0 ]; then printf 'ok    %-40s %s\n' "$1" "$4"; else printf 'FAIL  %-40s %s\n' "$1" "$4"; fi
}

# one NAME COMMAND...: runs it, keeps what it prints in $B/log/NAME.txt, and counts what its last "N passed, N failed" (or
# "N held, N broken") says; a command that counts nothing is one check, and one that ends with 77 is skipped, for the reason that
# its last line "skipped: ..." says.  Its processor seconds are those of all that it has waited
# for: a busy machine stretches them less than those of the clock.
one()
{
    local name=$1 log=$B/log/$1.txt start=$SECONDS status counts p f cpu TIMEFORMAT='%U %S'
    shift
    { time "$@" >"$log" 2>&1 </dev/null; } 2>"$log.cpu"
    status=$?
    cpu=$(awk '{ printf "%.0f", $1 + $2 }' "$log.cpu")
    counts=$(sed -nE 's/^([0-9]+) (passed|held), ([0-9]+) (failed|broken).*/\1 \3/p' "$log" | tail -n 1)
    p=${counts% *} f=${counts#* }
    if [ $status -eq 77 ]; then skip "$name" "$(sed -n 's/^skipped: //p' "$log" | tail -n 1)"; return; fi
    if [ -z "$counts" ]; then p=$((status == 0)) f=$((status != 0)); fi
    if [ $status -ne 0 ] && [ "$f" -eq 0 ]; then f=1; fi
    note "$name" "$p" "$f" "$p passed, $f failed, $((SECONDS - start)) s, processor $cpu s"
    grep -E '^skipped' "$log" | sed 's/^/      /'
    if [ "$f" -ne 0 ]; then echo "      exit code $status of: $*"; tail -n 30 "$log" | cut -c1-300 | sed 's/^/      | /'; fi
}

# job NAME COMMAND...: the same beside another
job()
{
    while [ "$(jobs -rp | wc -l)" -ge "$(most_jobs)" ]; do wait -n; done
    one "$@" &
}

# most_jobs: as many as $JOBS says, or two; in a lane one, until the other lane has ended
most_jobs() { if [ "${LANE:-}" ] && [ ! -e "$B/lane-ended" ]; then echo 1; else echo "${JOBS:-2}"; fi; }

# stage NAME: runs the function stage_NAME and prints its seconds and counts, which $COUNTS keeps
stage()
{
    local start=$SECONDS cpu
    printf '\n== stage: %s\n' "$1"
    COUNTS=$B/counts.$1.running
    : >"$COUNTS"
    cpu_seconds; cpu=$CPU
    "stage_$1"
    wait
    cpu_seconds
    mv "$COUNTS" "$B/counts.$1"
    printf 'stage %s: %d s, processors %d s, %s\n' "$1" $((SECONDS - start)) $((CPU - cpu)) "$(counted "$1")"
}

# total FILE: the sums of the lines "PASSED FAILED" and "0 0 SKIPPED" of a file, which may be -; false if something failed
total() { awk '{ p += $1; f += $2 } END { printf "%d passed, %d failed\n", p, f; exit f > 0 }' "$1"; }

# counted NAME...: the total of these stages; one that has not ended is a failure
counted()
{
    local name
    for name; do cat "$B/counts.$name" 2>/dev/null || echo 0 1; done | total -
}

# skipped NAME...: how many lines of these stages say skip
skipped()
{
    local name
    for name; do cat "$B/counts.$name" 2>/dev/null; done | awk '{ n += $3 } END { print n + 0 }'
}

# lane NAME,NAME: stages one after the other, each with its jobs one by one; what a stage says is printed when it ends.  The lane
# that ends last has both processors from then on.
lane()
{
    local name LANE=1
    for name in ${1//,/ }; do
        stage "$name" >"$B/log/stage-$name.txt" 2>&1
        cat "$B/log/stage-$name.txt"
    done
    : >"$B/lane-ended"
}

# stages NAME | NAME,NAME+NAME,NAME: a stage, whose jobs keep the processors busy; or two lanes of them, beside one another
stages()
{
    local start=$SECONDS name
    for name in ${1//[,+]/ }; do rm -f "$B/counts.$name"; done
    rm -f "$B/lane-ended"
    case $1 in
    *+*) lane "${1%+*}" & lane "${1#*+}" & ;;
    *) stage "$1" ;;
    esac
    wait
    ran="$ran${1//[,+]/ } "
    case $1 in *+*) printf '\n%s: %d s\n' "$1" $((SECONDS - start)) ;; esac
}

# library WAY COMPILER FLAGS...: the library, compiled in a way that has a name; tests that are built in this way are linked with it.
# $library_warn: flags for the library alone
library() { one "library-$1" "${@:2}" ${library_warn:-} -I. -c tests/library.c -o "$B/library-$1.o"; echo "${@:2}" >"$B/library-$1.how"; }

# build WAY NAME: tests/NAME.c in this way, as $B/NAME-WAY, linked with $LIBRARIES
build()
{
    local how
    read -ra how <"$B/library-$1.how"
    "${how[@]}" -I. -I"$B/make" "tests/$2.c" -x none "$B/library-$1.o" -o "$B/$2-$1" -lm ${LIBRARIES:-}
}

# build_and_run WAY NAME [ARGUMENTS...]: by $RUNNER, where another processor is needed
build_and_run() { build "$1" "$2" && ${RUNNER:-} "$B/$2-$1" "${@:3}"; }

# tests with the given names, or those of tests/test_*.c but for the long ones
LONG='test_deep test_oom test_threads'
short_tests()
{
    local path name
    for path in tests/test_*.c; do
        name=$(basename "$path" .c)
        case " $LONG " in *" $name "*) ;; *) echo "$name" ;; esac
    done
}

# tests whose tensors are where TG_TEST_DEVICE says; beside them test_ops and test_oom
ON_DEVICE='test_autograd test_lines test_gradients test_hooks test_inplace test_custom test_memory test_gradcheck test_optim
    test_loader test_show test_init test_dict test_files test_module test_adapt test_layers test_products test_sequences test_save
    test_mixed test_profile test_dlpack'

# rotation N: this commit's turn among N
rotation() { echo $(($(git rev-list --count HEAD 2>/dev/null || echo 0) % $1)); }

# CPU: processor seconds of all commands that have ended, which a busy machine does not stretch as it does the clock.
cpu_seconds()
{
    local file=$B/times.$BASHPID
    times >"$file" # not in a substitution: a subshell has its own
    CPU=$(awk 'NR == 2 { gsub(/[ms]/, " "); printf "%d", 60 * ($1 + $3) + $2 + $4 }' "$file")
    rm "$file"
}
