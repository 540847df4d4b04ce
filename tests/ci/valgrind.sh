#!/usr/bin/env bash
# valgrind.sh [K/N]: parts of the tests under valgrind, or every N-th of them from the K-th on, with SMALL set and freed blocks
# given back at once.
. tests/ci/lib.sh
turn=${1:-0/1} n=0 passed=0 failed=0
for part in ops:matmul ops:softmax ops:layer_norm ops:index_add ops:cat ops:sort hooks:hook inplace:view custom:checkpoint \
    custom:custom memory:scope optim:optim show:print; do
    n=$((n + 1))
    [ $((n % ${turn#*/})) -eq "${turn%/*}" ] || continue
    name=test_${part%:*}
    [ -f "tests/$name.c" ] || continue
    build valgrind "$name" || exit 1
    if SMALL=1 timeout 300 valgrind -q --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite \
        "$B/$name-valgrind" "${part#*:}" >"$B/log/valgrind-part.txt" 2>&1; then
        passed=$((passed + 1))
    elif grep -q '^0 passed, 0 failed' "$B/log/valgrind-part.txt"; then
        echo "skipped: no test has $part in its name"
    else
        failed=$((failed + 1))
        echo "failed: $part"
        tail -n 30 "$B/log/valgrind-part.txt"
    fi
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
