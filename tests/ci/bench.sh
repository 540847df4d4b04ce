#!/usr/bin/env bash
# bench.sh BUILD [K/2]: the benchmarks run.  The rows of `make bench-quick`, less than a millisecond each; other workloads in
# small; the driver with one row and without another library; RESULTS.md has every row; small networks and all programs
# lose the same in PyTorch, where there is one; and the sweep has cells of every op, which run, and agree with PyTorch's.
# With 0/2 or 1/2 half of what is compared with PyTorch: networks and the sweep, or programs.
passed=0 failed=0 half=${2:-}
takes() { [ "${half:-$1}" = "$1" ]; }
verdict() { if [ "$1" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "failed: $2"; fi; }
make -s BUILD="$1" "$1/workloads" "$1/sweep" || { echo "0 passed, 1 failed"; exit 1; }
"$1/workloads" tiny
verdict $? "workloads tiny"
mapfile -t programs < <(echo rows | "$1/workloads" worker 1 | grep '^program-')
for name in conv2d-1x2x4x4 log_softmax-3x5-backward cat-3x5-both embedding-7x3x5-both bias_add-3x5-backward topk-3x9x2 \
    index_select-4x6 f32_to_f16-9 matmul_i64-3x4x5-NT matmul_bf16-3x4x5-TN randn-9 cross_entropy-3x5-both \
    scalar_graph-2 mlp-4x3x5x2-adamw conv_net-2x8x2x3x5x4-sgd lstm-2x3x4x5x3-sgd gru-2x3x4x5x3-sgd \
    gpt-2x4x1x8x2x11-adamw-tied generate-5x4-gpt2-f32-tiny generate-5x4-llama-bf16-tiny prefill-5-llama-f32-tiny \
    "${programs[@]}"; do
    answer=$(echo "time $name 0.1" | "$1/workloads" worker 1)
    [[ $answer =~ ^[0-9.e+-]+$ ]]
    verdict $? "$name: $answer"
done
for name in generate-5x9-gpt2-bf16-tiny generate-5x9-llama-f32-tiny; do
    [ "$(echo "allocations $name" | "$1/workloads" worker 1)" = 0 ]
    verdict $? "$name asks for memory after the second token"
done
"$1/sweep" missing
verdict $? "ops without a cell in tests/bench/cells.h: sweep missing"
[ "$("$1/sweep" missing softmax | uniq)" = softmax ] && ! "$1/sweep" missing softmax >/dev/null
verdict $? "sweep missing finds an op without a cell"
"$1/sweep" tiny
verdict $? "sweep tiny"
if command -v python3 >/dev/null 2>&1; then
    small=(--coarse --threads 1 --rounds 1 --ms 0.01)
    cells=("softmax f32 64x1024" "add f32 256x256:t" "sort i64 1024x64 dim=1")
    python3 tests/bench/sweep.py "${small[@]}" --peers none --all "$1/sweep.txt" "$1/sweep" "${cells[@]}"
    verdict $? "the driver of the sweep"
    for cell in "${cells[@]}"; do
        grep -q "^$cell.*	1	[0-9]" "$1/sweep.txt"
        verdict $? "the cell of the sweep: $cell"
    done
    (cd tests/bench && python3 -B -c 'from sweep import agree
cell = "softmax f32 2x3 dim=1"
assert agree(cell, "6 2 5 2", "6 2 5.00001 2") and not agree(cell, "6 2 5 2", "6 2 5.1 2")
assert not agree(cell, "6 2 5 2", "5 2 5 2") and agree(cell, "6 nan 5 2", "6 nan 5 2")')
    verdict $? "the sweep tells results that differ"
    brief=(--pairs 2 --ms 0.1 --repeats 0 --threads 1)
    python3 tests/bench/bench.py "${brief[@]}" --peers none --results "$1/RESULTS.md" "$1/workloads" sgemm-8x8x8-NT
    verdict $? "the driver"
    grep -q '^| sgemm-8x8x8-NT | 1 | ' "$1/RESULTS.md"
    verdict $? "the row of the driver in a results file"
    python3 tests/bench/bench.py --not-run --results "$1/RESULTS.md" "$1/workloads"
    rows() { sed '/^# Results on a GPU$/,$d' "$1" | sed -nE 's/^\| ([a-z0-9_]+-[^ |]*) \|.*/\1/p' | sort -u; }
    diff <(rows tests/bench/RESULTS.md) <(rows "$1/RESULTS.md")
    verdict $? "tests/bench/RESULTS.md has not the rows of workloads.c: tests/bench/bench.py --not-run"
    python=
    for name in "${TG_PYTHON:-}" python3 "${XDG_CACHE_HOME:-$HOME/.cache}/tensorgrad/venv/bin/python"; do
        if [ -z "$python" ] && "$name" -c 'import numpy, torch' >/dev/null 2>&1; then python=$name; fi
    done
    if [ "$python" ]; then
        nets=(mlp-4x3x5x2-adamw mlp-4x3x5x1-sgd-tanh conv_net-2x8x2x3x5x4-sgd lstm-2x3x4x5x3-sgd
            gpt-2x4x1x8x2x11-adamw-tied)
        ran() { [ "$(grep -c 'losses of [0-9]* steps agree' "$1")" -eq "$2" ] && grep -q "^$3  *1 .*pytorch " "$1"; }
        export TG_BENCH_COMPILE=0
        if takes 0/2; then
            "$python" tests/bench/bench.py "${brief[@]}" --peers pytorch "$1/workloads" "${nets[@]}" cat-3x5-both \
                embedding-7x3x5-backward > "$1/bench-pytorch.txt" &&
                ran "$1/bench-pytorch.txt" 5 embedding-7x3x5-backward
            verdict $? "beside PyTorch: $(cat "$1/bench-pytorch.txt")"
        fi
        if takes 1/2; then
            "$python" tests/bench/bench.py "${brief[@]}" --peers pytorch "$1/workloads" "${programs[@]}" \
                > "$1/bench-programs.txt" && ran "$1/bench-programs.txt" ${#programs[@]} "${programs[-1]}"
            verdict $? "programs beside PyTorch: $(cat "$1/bench-programs.txt")"
        fi
        if ! takes 0/2; then
            echo "skipped: transformers take turns by commit"
        elif "$python" -c 'import transformers' >/dev/null 2>&1; then
            "$python" tests/bench/bench.py "${brief[@]}" --peers transformers "$1/workloads" generate-5x9-gpt2-f32-tiny \
                generate-5x9-llama-f32-tiny prefill-5-llama-bf16-tiny > "$1/bench-models.txt" &&
                [ "$(grep -c 'tokens of 3 texts agree' "$1/bench-models.txt")" -eq 2 ] &&
                grep -q '^prefill-5-llama-bf16-tiny  *1 .*transformers ' "$1/bench-models.txt"
            verdict $? "models beside transformers: $(cat "$1/bench-models.txt")"
        else
            echo "skipped: no transformers"
        fi
        if takes 0/2; then
            cp tests/bench/RESULTS.md "$1/sweep-RESULTS.md"
            "$python" tests/bench/sweep.py "${small[@]}" --results "$1/sweep-RESULTS.md" "$1/sweep" "${cells[@]}" \
                'matmul f32 64x64,64x64' 'layer_norm bf16' 'index_put_ f32' > "$1/sweep-pytorch.txt" &&
                grep -q '^matmul  *[0-9]* ' "$1/sweep-pytorch.txt" &&
                grep -q '^1 thread: .* geometric mean ' "$1/sweep-pytorch.txt" &&
                ! grep 'results that differ' "$1/sweep-pytorch.txt" &&
                grep -q '^| [0-9.]* | softmax f32 64x1024 dim=1' "$1/sweep-RESULTS.md" &&
                diff <(rows tests/bench/RESULTS.md) <(rows "$1/sweep-RESULTS.md")
            verdict $? "the sweep beside PyTorch: $(cat "$1/sweep-pytorch.txt")"
        fi
    else
        echo "skipped: no python with PyTorch and NumPy"
    fi
else
    echo "skipped: the driver, no python3"
fi
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
