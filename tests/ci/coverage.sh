#!/usr/bin/env bash
# coverage.sh [FOLDER]: which lines and branches of tensorgrad.h the tests reach, over all programs together.  Needs
# bash, make, awk, gcc and its gcov; with a C++ compiler the programs run on the simulator as well.
#
# Prints the percentages and every line that no program reaches; of functions that a macro makes, for each by itself.
# With the simulator each of them must have a reason in tests/unreached.txt, and each entry there must be of such a
# line: anything else is a failure.  Code that is not compiled is not counted: what #if leaves out with this compiler.
# Allocation failures are those of test_oom, in full on the CPU and one scenario in 32 on the simulator, with the captured
# steps and those in mixed precision.
B=${1:-build/coverage}
. tests/ci/lib.sh
if ! have gcc || ! have gcov; then skip coverage "no gcc with gcov"; exit 0; fi
rm -rf "$B"
mkdir -p "$B/log"
COUNTS=$B/counts
: >"$COUNTS"
HOW='-std=c99 -O0 -g --coverage -fprofile-update=atomic -ffp-contract=off -DHARNESS_COVERAGE'
# gcov leaves out the functions that OpenMP makes of loops.  With the pragmas not read, the parts run one by one.
parts= LIBRARIES=
if echo 'int omp_get_num_procs(void); int main(void) { return omp_get_num_procs() < 1; }' >"$B/omp.c" &&
    gcc "$B/omp.c" -o "$B/omp" -lgomp 2>"$B/log/omp.txt"; then
    parts=-D_OPENMP=201511 LIBRARIES=-lgomp
fi

# run NAME COMMAND...: a job, or a line that says what is missing
run() { if [ -x "$B/$1" ]; then job "$2" "${@:3}"; else note "$2" 0 1 "$1 was not built"; fi; }

# ---- the CPU ----

one api-calls make -s CC=gcc BUILD="$B/make" "$B/make/api_calls.h" # tests/test_api.c includes it

LIBRARIES+=' -lpthread'
library cpu gcc $HOW $parts
for path in tests/test_*.c; do
    name=$(basename "$path" .c)
    job "build-$name" build cpu "$name"
done
wait
for path in tests/test_*.c; do
    name=$(basename "$path" .c)
    run "$name-cpu" "$name" "$B/$name-cpu"
done
run test_use_after_end-cpu test_use_after_end-debug env TG_DEBUG=1 "$B/test_use_after_end-cpu"
run test_ops-cpu test_ops-small env SMALL=1 "$B/test_ops-cpu"
for name in $(short_tests); do run "$name-cpu" "$name-plain" env TG_PLAIN=1 SMALL=1 "$B/$name-cpu"; done
run test_ops-cpu test_ops-portable env SMALL=1 TG_SIMD=portable "$B/test_ops-cpu"
wait

# ---- the simulator ----

listed=
if have c++ && [ "$parts" ]; then listed=tests/unreached.txt; fi
sim_build() { make -s sim CC=gcc MAIN="tests/$1.c" OUT="$B/sim-${1##*/}" BUILD="$B/make" CFLAGS="$HOW" LDFLAGS=--coverage; }
on_sim() { run "sim-$1" "sim-$2" env SMALL=1 TG_SIM_DEVICES=2 TG_SIM_STREAMS=lazy "${@:3}"; }

if have c++; then
    one sim-build-test_oom sim_build test_oom # makes what all are linked with
    kernels=$(cd tests && ls cuda/test_*.c | sed 's/\.c$//') # test_faults, test_capture and others
    for name in $ON_DEVICE test_moves test_streams test_use_after_end test_callbacks test_ops $kernels; do
        job "sim-build-${name##*/}" sim_build $name
    done
    wait
    on_sim test_ops ops TG_TEST_DEVICE=cuda:0 "$B/sim-test_ops"
    on_sim test_ops memory TG_TEST_DEVICE=cuda:0 TG_TEST_MEMORY=1 "$B/sim-test_ops"
    for name in $ON_DEVICE; do on_sim $name ${name#test_} TG_TEST_DEVICE=cuda:0 "$B/sim-$name"; done
    on_sim test_oom oom TG_TEST_DEVICE=cuda:0 "$B/sim-test_oom" --part 0/32
    on_sim test_oom oom-steps TG_TEST_DEVICE=cuda:0 "$B/sim-test_oom" steps_
    on_sim test_callbacks callbacks-reuse TG_TEST_DEVICE=cuda:0 TG_SIM_REUSE=1 "$B/sim-test_callbacks" # a captured step
    for devices in 0 1 2; do on_sim test_moves moves-$devices TG_SIM_DEVICES=$devices "$B/sim-test_moves"; done
    on_sim test_moves moves-debug TG_DEBUG=1 "$B/sim-test_moves"
    for name in test_streams test_use_after_end test_callbacks $kernels; do
        on_sim ${name#cuda/} ${name#cuda/} "$B/sim-${name#cuda/}"
    done
    wait
else
    skip simulator "no c++"
fi
[ "$listed" ] || skip tests/unreached.txt "not compared: it is of all programs, with OpenMP's library and the simulator"

# ---- the counts of all programs ----

while read -r notes; do
    gcov -b -c -t "$notes" 2>>"$B/log/gcov.txt"
done < <(find "$B" -name '*.gcno') >"$B/gcov.txt"

# What gcov -t prints: "COUNT:LINE:TEXT", before a function's first line "function NAME called N ...", and after a line
# its branches.  Functions that start on the same line, which a macro makes, come first as one and then each by itself,
# after a line of dashes and "NAME:"; only the latter count.  A line's key is "LINE FUNCTION".
awk -v listed="$listed" -v missed_file="$B/unreached.txt" '
function trim(s) { sub(/^[ \t]+/, "", s); sub(/[ \t]+$/, "", s); return s }
function flush(from,    k) # adds what waits and belongs to lines before `from`
{
    for (k = 1; k <= waiting; ++k) {
        if (line_of[k] >= from) continue;
        if (is_branch[k]) branch[key_of[k]] = branch[key_of[k]] || taken[k]
        else { hit[key_of[k]] = hit[key_of[k]] || taken[k]; code[line_of[k]] = text_of[k] }
    }
    waiting = 0
}
function add(key, branches, value, content)
{
    ++waiting; key_of[waiting] = key; is_branch[waiting] = branches; taken[waiting] = value
    line_of[waiting] = line; text_of[waiting] = content
}
function matches(pattern, name) # * stands for any part of a name
{
    gsub(/\*/, ".*", pattern)
    return name ~ ("^" pattern "$")
}
/^ +-: +0:Source:/ { flush(1e9); ours = /[:\/]tensorgrad\.h$/; section = 0; next }
!ours || / +-: +0:/ { next }
/^-{18}$/ { dashes = 1; next }
dashes && /^[A-Za-z_0-9.]+:$/ { first = !section; section = 1; dashes = 0; next }
dashes { dashes = 0; flush(1e9); section = 0 }
/^function / { name = $2; next }
/^branch / { add(line " " name " " ++branches, 1, $4 + 0 > 0, ""); next }
/^ *[-#=0-9*]+: *[0-9]+:/ {
    count = trim($0); sub(/:.*/, "", count)
    content = $0; sub(/^[^:]*:/, "", content)
    line = content + 0; sub(/^[^:]*:/, "", content)
    branches = 0
    if (section && first) { flush(line); first = 0 } # the functions as one
    if (count != "-") add(line " " name, 0, count + 0 > 0, trim(content))
    next
}
END {
    flush(1e9)
    for (key in hit) { ++lines; reached += hit[key] }
    for (key in branch) { ++ways; went += branch[key] }
    while (listed && (getline text < listed) > 0) {
        if (text ~ /^#/ || text !~ /[^ ]/) continue
        if (split(text, part, / \| /) < 3) {
            print "FAIL  " listed ": not function | text | reason: " text; ++failed
            continue
        }
        ++entries; where[entries] = trim(part[1]); what[entries] = trim(part[2]); entry[entries] = text
    }
    sort = "sort -n > " missed_file
    for (key in hit) {
        if (hit[key]) continue
        split(key, part, " ")
        state = "unlisted"
        for (k = 1; k <= entries; ++k) {
            if (!matches(where[k], part[2]) || (what[k] != "*" && !index(code[part[1]], what[k]))) continue
            ++used[k]
            state = "listed"
        }
        if (state == "unlisted") ++unlisted; else ++explained
        printf "%5d  %-8s %s: %s\n", part[1], state, part[2], code[part[1]] | sort
    }
    close(sort)
    while ((getline text < missed_file) > 0) print "unreached " text
    for (k = 1; k <= entries; ++k) {
        if (used[k]) { ++passed; continue }
        print "FAIL  " listed ": no unreached line is: " entry[k]; ++failed
    }
    printf "coverage: lines %.1f %% (%d of %d), branches %.1f %% (%d of %d)\n", 100 * reached / lines, reached, lines, \
        100 * went / ways, went, ways
    printf "unreached lines: %d with a reason, %d without\n", explained, unlisted
    print passed + (lines > 0) " " failed + (listed ? unlisted : 0) + (lines == 0) > (missed_file ".counts")
}' "$B/gcov.txt"
cat "$B/unreached.txt.counts" >>"$COUNTS"
total "$COUNTS"
