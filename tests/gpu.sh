#!/usr/bin/env bash
# tests/gpu.sh [--not-run]: everything that wants an NVIDIA GPU, in one call of under ten minutes.
#
# Builds with nvcc, prints what each kernel of a step of GPT-2 takes beside the prediction, as it is by default and with products
# by plans (TG_CUDA_PLANS), runs the benchmarks, the tests of the kernels, the test suite on the GPU, the four tools of
# compute-sanitizer, the device tour and the demo, writes the GPU's part of tests/bench/RESULTS.md and ends in "N passed, N failed".
# Each part has a time limit, and one that fails does not stop the others.  What is needed: nvcc, compute-sanitizer, a C compiler, make.
#   --not-run       only writes the file, every result as "not run"
#   TG_GPU_SIM=1    rehearses the script on the simulator, in small: its own build folder, nothing in tests/bench
cd "$(dirname "$0")/.." || exit 2
export LC_ALL=C mode=gpu B=${BUILD:-build/gpu}
results=tests/bench/RESULTS.md
if [ -n "${TG_GPU_SIM:-}" ]; then mode=sim B=${BUILD:-build/gpu-sim} results=$B/RESULTS.md; fi
if [ "${1:-}" = --not-run ]; then mode=not-run; fi
mkdir -p "$B/log"
: >"$B/checks.md"
: >"$B/figures.md"

if [ $mode = gpu ] && ! nvidia-smi -L >"$B/log/gpus.txt" 2>&1; then
    echo "tests/gpu.sh: no NVIDIA GPU here: nvidia-smi finds none.  TG_GPU_SIM=1 tests/gpu.sh rehearses on the simulator."
    exit 1
fi

if [ $mode = sim ]; then echo "a rehearsal: the simulator stands in for the GPU, and nothing for compute-sanitizer"; fi

# part NAME SECONDS COMMAND...: one check, what it prints in $B/log; it fails when the command does, or takes longer, and what
# begins late has less time, so that all of it ends in ten minutes
part()
{
    local name=$1 limit=$2 left=$((580 - SECONDS)) log="$B/log/${1//[ ,]/-}.txt" begun=$SECONDS status said
    shift 2
    if [ $mode = sim ]; then limit=$((10 * limit)); elif [ $limit -gt $left ]; then limit=$((left > 1 ? left : 1)); fi
    if [ $mode = not-run ]; then echo "| $name | not run | |" >>"$B/checks.md"; return; fi
    timeout -k 5 "$limit" bash -c '"$@"' - "$@" >"$log" 2>&1 </dev/null
    status=$?
    said=$(grep -E '^[0-9]+ passed, [0-9]+ failed' "$log" | tail -n 1)
    case $status in
    0) said="ok${said:+, $said}" ;;
    124 | 137) said="FAILED, took more than $limit s" ;;
    *) said="FAILED, ${said:-exit code $status}" ;;
    esac
    printf '%-28s %s, %d s\n' "$name" "$said" $((SECONDS - begun))
    [ $status -eq 0 ] || tail -n 20 "$log" | cut -c1-200 | sed 's/^/      | /'
    echo "| $name | $said | $((SECONDS - begun)) |" >>"$B/checks.md"
}

# ---- the parts -------------------------------------------------------------------------------------------------------

# as in the Makefile: an H100 has kernels that native leaves out
case $(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>&1 | sort -u) in 9.0) arch=sm_90a ;; *) arch=native ;; esac
export arch

# With nvcc, beside one another; the second companion has line numbers for compute-sanitizer.
build()
{
    local source jobs status=0 programs=("$B/check_output" "$B/device" "$B/library.o") name
    local whole="-O2 -arch=$arch -lineinfo"
    if [ $mode = gpu ]; then
        jobs=-j$(nproc)
        c++ -std=c++17 -O1 -I"$(toolkit)/include" -I. -c tests/bench/timing.cpp -o "$B/timing.o" || return
        for source in examples/*.c tests/test_*.c; do programs+=("$B/$(basename "$source" .c)"); done
        make -s "$jobs" CUDA=1 BUILD="$B/pass" NVCCFLAGS="$whole" "$B/pass/test_ops" &
        make -s "$jobs" CUDA=1 BUILD="$B" "${programs[@]}" || status=1
        linked tests/bench/kernels.c @tests/bench/timing.options "$B/timing.o" -lstdc++ || status=1
        for name in $kernel_tests; do linked tests/cuda/$name.c || status=1; done
        wait $! && return $status
        return 1
    fi
    make BUILD="$B" "$B/check_output" || return
    c++ -std=c++17 -O1 -Itests/cudasim -I. -c tests/bench/timing.cpp -o "$B/timing.o" || return
    make sim MAIN=tests/bench/kernels.c OUT="$B/kernels" BUILD="$B" LDFLAGS="@tests/bench/timing.options $B/timing.o" || return
    for source in examples/12_chargpt.c examples/14_device_tour.c tests/bench/device.c tests/test_ops.c tests/cuda/test_kernels.c; do
        make sim MAIN=$source OUT="$B/$(basename $source .c)" BUILD="$B" || return
    done
}

toolkit() { dirname "$(dirname "$(realpath "$(command -v nvcc)")")"; }

# linked SOURCE ARGUMENTS...: a program of tests/bench or tests/cuda, which the Makefile builds for the simulator alone
linked()
{
    cc -O1 -I. -DTG_ENABLE_CUDA "$1" "${@:2}" "$B/library.o" "$B/tensorgrad_cuda.o" -o "$B/$(basename "$1" .c)" \
        -L"$(toolkit)/lib64" -Wl,-rpath,"$(toolkit)/lib64" -lcudart -lcublas -lcublasLt -fopenmp -lm
}

step_kernels() { TG_CUDA_PASS_THROUGH=0 "$B/kernels" $([ $mode = gpu ] || echo tiny) >"$B/kernels.txt"; }

# The same step by plans: the first run times each product and writes the file, the second reads it.
step_plans()
{
    local size=$([ $mode = gpu ] || echo least) plans="$B/plans.txt"
    rm -f "$plans"
    TG_CUDA_PASS_THROUGH=0 TG_CUDA_PLANS="$plans" "$B/kernels" $size >/dev/null && [ -s "$plans" ] &&
        TG_CUDA_PASS_THROUGH=0 TG_CUDA_PLANS="read:$plans" "$B/kernels" $size >"$B/planned.txt"
}

# Every kernel of the file, on few elements.
every_kernel() { if [ $mode = gpu ]; then "$B/test_kernels"; else "$B/test_kernels" rows_in_f32; fi; }

# The tests of the kernels, each to its end, whatever the others say.
export kernel_tests='test_kernels test_rows test_flash test_linear test_plans test_along test_windows test_elementwise'
tests_of_kernels()
{
    local name failed=0
    if [ $mode = sim ]; then "$B/test_kernels" reductions; return; fi
    for name in ${kernel_tests#test_kernels }; do
        SMALL=1 timeout 60 "$B/$name" || { echo "FAILED: $name"; failed=$((failed + 1)); }
    done
    echo "$(($(wc -w <<<"$kernel_tests") - 1 - failed)) passed, $failed failed"
    [ $failed -eq 0 ]
}

suite()
{
    if [ $mode = gpu ]; then make test CUDA=1 BUILD="$B"; else TG_TEST_DEVICE=cuda:0 SMALL=1 "$B/test_ops" softmax; fi
}

# What is FAILED here need not be a defect of the kernels: initcheck looks into those of cuBLAS, too, which may read what nobody has
# written, and a tool that is not done in its time is cut off.  The log tells: a defect names a kernel tgi_....
sanitizer() # TOOL
{
    export TG_TEST_DEVICE=cuda:0 SMALL=1 TG_CUDA_PASS_THROUGH=1 # every allocation is CUDA's: the tool sees its end
    if [ $mode = gpu ]; then compute-sanitizer --tool "$1" --error-exitcode 9 "$B/pass/test_ops"
    else "$B/test_ops" softmax; fi
}

demo() # DEVICE STEPS: trains, and prints milliseconds per step, its few validations included
{
    "$B/12_chargpt" --device "$1" --text LICENSE --steps "$2" --out "$B/demo-$1" | tee "$B/demo-$1.txt"
    awk '{ for (i = 2; i <= NF; ++i) if ($i == "tokens/s" && $(i - 1) > 0) ms = 16 * 32 * 1e3 / $(i - 1) } # batch x context
         END { if (!ms) exit 1; printf "%.2f ms\n", ms }' "$B/demo-$1.txt" >"$B/demo-$1.ms"
}

# "not captured: ..." in the log: a step was called where it was to be captured.  A shape that the step has for the first time while
# it is captured makes CUDA load a kernel of cuBLAS then; captures are relaxed, so that this is allowed.
benchmarks() { TG_CUDA_PASS_THROUGH=0 "$B/device" $([ $mode = gpu ] || echo tiny) >"$B/device.txt"; } # 0: steps can be captured

# One rank, with a companion of its own.
nccl()
{
    local O="$B/nccl" home
    if [ $mode = sim ]; then make sim MAIN=tests/cuda/test_nccl.c OUT="$B/test_nccl" BUILD="$B" && "$B/test_nccl"; return; fi
    home=$(toolkit)
    make -s CUDA=1 BUILD="$O" NVCCFLAGS="-O2 -arch=$arch -DTG_USE_NCCL" "$O/tensorgrad_cuda.o" "$O/library.o" &&
        cc -O1 -I. -DTG_ENABLE_CUDA -DTG_USE_NCCL tests/cuda/test_nccl.c "$O/library.o" "$O/tensorgrad_cuda.o" -o "$O/test_nccl" \
            -L"$home/lib64" -L"$home/lib" -Wl,-rpath,"$home/lib64:$home/lib" -lnccl -lcudart -lcublas -lcublasLt -fopenmp -lm &&
        "$O/test_nccl"
}
export -f build toolkit linked step_kernels step_plans every_kernel tests_of_kernels suite sanitizer demo benchmarks nccl

# figure NAME VALUE: a row of the table; one that a failed part owes is "not run"
figure() { echo "| $1 | ${2:-not run} |" >>"$B/figures.md"; }

figures()
{
    local name
    cc -O0 -I. tests/bench/device.c -o "$B/device-names" -lm && "$B/device-names" names >"$B/names.txt"
    while IFS= read -r name; do # 32 columns of name, a blank, the value
        name=${name:0:32}
        figure "$(echo "$name" | sed 's/ *$//')" "$(grep -sF "$name " "$B/device.txt" | cut -c34-)"
    done <"$B/names.txt"
    figure "a step of the demo, on the CPU" "$(cat "$B/demo-cpu.ms" 2>/dev/null)"
    figure "a step of the demo, on the GPU" "$(cat "$B/demo-cuda.ms" 2>/dev/null)"
}

# The step of GPT-2, a row for each kernel: what predict.py says, what this GPU takes, and what it takes by plans.  An epilogue
# that is apart there is a product of another name, which counts among the others, as its kernel does.
step_table()
{
    echo '| kernel | launches | MB | GFLOP | instructions, millions | bound by | ms, predicted | ms, measured | how it ran | ms, by plans | how it ran by plans |'
    echo '|---|---|---|---|---|---|---|---|---|---|---|'
    touch "$B/kernels.txt" "$B/planned.txt"
    sh tests/ci/op_numbers.sh <tests/bench/predicted.txt | sed 1d >"$B/predicted-numbers.txt"
    sed 1d tests/bench/predicted.txt | paste -d '\t' "$B/predicted-numbers.txt" - | awk -F '\t' '
        function kernel(line,    i) { for (i = 1; i <= 6; ++i) sub(/^[^ ]+ /, "", line); return line }
        function of(which, n, launches) {
            if (!((which, n) in took)) return which == 2 && all_ran[2] && (1, n) in took ? "apart" : "not run"
            here[which] += took[which, n]
            here_ran[which] += ran[which, n]
            return sprintf("%.3f%s", took[which, n], ran[which, n] == launches ? "" : " of " ran[which, n])
        }
        function rest(which) {
            if (all_ran[which] == here_ran[which]) return "not run"
            return sprintf("%.3f of %d", all[which] - here[which], all_ran[which] - here_ran[which])
        }
        function total(which) { return all_ran[which] ? sprintf("%.1f of %d", all[which], all_ran[which]) : "not run" }
        FILENAME == ARGV[1] || FILENAME == ARGV[2] {
            which = FILENAME == ARGV[1] ? 1 : 2
            split($0, word, " ")
            name = $0
            sub(/^[^ ]+ [^ ]+ /, "", name)
            n = substr(name, 1, index(name, " | ") - 1)
            how[which, n] = substr(name, index(name, " | ") + 3)
            ran[which, n] = word[1]
            took[which, n] = word[2]
            all[which] += word[2]
            all_ran[which] += word[1]
            next
        }
        {
            split($2, word, " ")
            n = kernel($1)
            print "| " kernel($2) " | " word[1] " | " word[2] " | " word[3] " | " word[4] " | " word[6] " | " word[5] " | " \
                of(1, n, word[1]) " | " how[1, n] " | " of(2, n, word[1]) " | " how[2, n] " |"
            for (i = 1; i <= 5; ++i) sum[i] += word[i]
        }
        END {
            print "| others | 0 | | | | | | " rest(1) " | | " rest(2) " | |"
            printf "| sum | %d | %.0f | %.0f | %.0f | | %.1f | %s | | %s | |\n", sum[1], sum[2], sum[3], sum[4], sum[5], total(1), total(2)
        }' "$B/kernels.txt" "$B/planned.txt" -
}

# about NAME COMMAND...: a row on the machine, of the first line that the command prints
about()
{
    local said='not run'
    if [ $mode != not-run ]; then said=$("${@:2}" 2>/dev/null | head -n 1); fi
    echo "| $1 | ${said:-unknown} |"
}
gpu_names()
{
    if [ $mode = sim ]; then echo "none: the simulator, in tiny sizes"; return; fi
    nvidia-smi --query-gpu=name,memory.total --format=csv,noheader | sort | uniq -c | sed 's/^ *//'
}
processor() { echo "$(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -n 1), $(nproc) threads"; }

# The part of the file that is not ours: results on a CPU, which `make bench` writes.
cpu_results() { sed '/^# Results on a GPU$/,$d' "$results" 2>/dev/null; }

write_results()
{
    echo "# Results on a GPU"
    echo
    echo "Written by \`tests/gpu.sh\`; \"not run\" is what nobody has measured."
    printf '\n| | |\n|---|---|\n'
    about GPU gpu_names
    about driver nvidia-smi --query-gpu=driver_version --format=csv,noheader
    about toolkit sh -c 'nvcc --version | sed -n "s/.*release //p"'
    about processor processor
    about compiler cc --version
    about date date -u +%F
    about commit git describe --always --dirty
    printf '\n| check | result | s |\n|---|---|---|\n'
    grep -v compute-sanitizer "$B/checks.md"
    grep compute-sanitizer "$B/checks.md" | sort # they ran beside one another
    printf '\ninitcheck may name kernels of cuBLAS, and a tool may take more than its time: neither is a defect of the kernels here.\n'
    printf '\n| figure (median) | value |\n|---|---|\n'
    cat "$B/figures.md"
    echo
    echo "A step of GPT-2 124M with 16 sequences of 1024 tokens, in bf16 with AdamW: the head of predict.py says how the times for an"
    echo "H100 are predicted, from the bytes that kernels ask for and from their instructions. Measured are the times from the end of one launch"
    echo "to the end of the next. By plans is with a file of TG_CUDA_PLANS that a run before has written."
    echo
    step_table
    awk 'NR > 1 { sum += $5; part[/ tgi_(flash|hopper)/ ? 1 : / tgi_(class|norm)/ ? 2 : / product/ ? 3 : 4] += $5 }
        END { printf "\nThe aim is 28 ms. Of the %.1f that are predicted products take %.1f, attention %.1f, norms and the loss %.1f, all " \
            "else %.1f.\n", sum, part[3], part[1], part[2], part[4] }' tests/bench/predicted.txt
}

# ---- all of it -----------------------------------------------------------------------------------------------------------

small=$([ $mode = gpu ] && echo 300 || echo 2)
rm -f "$B/device.txt" "$B/kernels.txt" "$B/planned.txt" "$B"/demo-*.ms
part build 240 build
part "kernels of a step" 40 step_kernels
part "products by plans" 60 step_plans
if [ $mode != not-run ]; then step_table; fi
part "every kernel" 60 every_kernel
part benchmarks 60 benchmarks
part "device tour" 20 bash tests/ci/tour_same.sh "$B/14_device_tour" "$B/check_output" "$B"
part "demo, GPU against CPU" 60 bash tests/ci/demo_same.sh "$B/12_chargpt" "$B/check_output" "$B"
part "demo, CPU" 40 demo cpu "$small"
part "demo, GPU" 40 demo cuda "$small"
part "tests of kernels" 90 tests_of_kernels
part "test suite" 240 suite
if [ $mode = gpu ] && ! echo '#include <nccl.h>' | nvcc -x cu -E - >/dev/null 2>&1; then
    echo "| NCCL, one rank | not run: no nccl.h | |" >>"$B/checks.md"
else
    part "NCCL, one rank" 120 nccl
fi
for tool in memcheck racecheck initcheck synccheck; do part "compute-sanitizer $tool" 240 sanitizer $tool & done
wait
figures
{ cpu_results; write_results; } >"$B/results.md"
cp "$B/results.md" "$results"
if [ $mode = not-run ]; then exit; fi
echo "written: $results"
failed=$(grep -c '| FAILED' "$B/checks.md")
echo "$(grep -c '| ok' "$B/checks.md") passed, $failed failed"
[ "$failed" -eq 0 ]
