#!/usr/bin/env bash
# bench.sh BUILD: the benchmarks run.  The rows of `make bench-quick`, less than a millisecond each; other workloads in small;
# the driver with one row and without another library; and RESULTS.md has every row.
passed=0 failed=0
verdict() { if [ "$1" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "failed: $2"; fi; }
make -s BUILD="$1" "$1/workloads" || { echo "0 passed, 1 failed"; exit 1; }
"$1/workloads" tiny
verdict $? "workloads tiny"
for name in conv2d-1x2x4x4 log_softmax-3x5-backward cat-3x5-both embedding-7x3x5-both bias_add-3x5-backward topk-3x9x2 \
    index_select-4x6 f32_to_f16-9 matmul_i64-3x4x5-NT matmul_bf16-3x4x5-TN randn-9 cross_entropy-3x5-both scalar_graph-2 \
    mlp-4x3x5x2-adamw conv_net-2x8x2x3x5x4-sgd lstm-2x3x4x5x3-sgd gru-2x3x4x5x3-sgd gpt-2x4x1x8x2x11-adamw-tied; do
    answer=$(echo "time $name 0.1" | "$1/workloads" worker 1)
    [[ $answer =~ ^[0-9.e+-]+$ ]]
    verdict $? "$name: $answer"
done
if command -v python3 >/dev/null 2>&1; then
    brief=(--pairs 2 --ms 0.1 --repeats 0 --threads 1)
    python3 tests/bench/bench.py "${brief[@]}" --peers none --results "$1/RESULTS.md" "$1/workloads" sgemm-8x8x8-NT
    verdict $? "the driver"
    grep -q '^| sgemm-8x8x8-NT | 1 | ' "$1/RESULTS.md"
    verdict $? "the row of the driver in a results file"
    python3 tests/bench/bench.py --not-run --results "$1/RESULTS.md" "$1/workloads"
    rows() { sed '/^# Results on a GPU$/,$d' "$1" | sed -nE 's/^\| ([a-z0-9_]+-[^ |]*) \|.*/\1/p' | sort -u; }
    diff <(rows tests/bench/RESULTS.md) <(rows "$1/RESULTS.md")
    verdict $? "tests/bench/RESULTS.md has not the rows of workloads.c: tests/bench/bench.py --not-run"
else
    echo "skipped: the driver, no python3"
fi
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
