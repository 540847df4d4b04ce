#!/usr/bin/env bash
# support.sh BUILD: tests/SUPPORT.md is what `make support` writes, and a table with another letter is noticed.
# support.sh - COMMAND: it is what the command writes, which is support on another device.
passed=0 failed=0
verdict() { if [ "$1" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "failed: $2"; fi; }
if [ "$1" = - ]; then
    diff <("${@:2}") tests/SUPPORT.md
    verdict $? "on this device the table is another one"
    echo "$passed passed, $failed failed"
    exit $failed
fi
make -s BUILD="$1" "$1/support" || { echo "0 passed, 1 failed"; exit 1; }
"$1/support" >"$1/support.txt"
verdict $? "support runs"
diff "$1/support.txt" tests/SUPPORT.md
verdict $? "tests/SUPPORT.md is not current: make support"
sed 's/^| exp | bb /| exp | b /' "$1/support.txt" | cmp -s - tests/SUPPORT.md
[ $? -eq 1 ]
verdict $? "a table that differs is noticed"
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
