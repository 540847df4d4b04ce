#!/usr/bin/env bash
# valgrind.sh FOLDER: parts of the tests under valgrind, with SMALL set and freed blocks given back at once.
passed=0 failed=0
for part in ops:matmul ops:softmax ops:layer_norm ops:index_add ops:cat ops:sort hooks:hook inplace:view custom:checkpoint \
    custom:custom memory:scope optim:optim show:print; do
    name=test_${part%:*}
    [ -f "tests/$name.c" ] || continue
    if [ ! -x "$1/$name-valgrind" ] || [ tensorgrad.h -nt "$1/$name-valgrind" ] || [ "tests/$name.c" -nt "$1/$name-valgrind" ]; then
        cc -std=c99 -O1 -g -DHARNESS_MEMORY_CHECKER=1 -I. "tests/$name.c" -o "$1/$name-valgrind" -lm || exit 1
    fi
    if SMALL=1 timeout 300 valgrind -q --error-exitcode=9 --leak-check=full --errors-for-leak-kinds=definite \
        "$1/$name-valgrind" "${part#*:}" >"$1/log/valgrind-part.txt" 2>&1; then
        passed=$((passed + 1))
    elif grep -q '^0 passed, 0 failed' "$1/log/valgrind-part.txt"; then
        echo "skipped: no test has $part in its name"
    else
        failed=$((failed + 1))
        echo "failed: $part"
        tail -n 30 "$1/log/valgrind-part.txt"
    fi
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
