#!/usr/bin/env bash
# index.sh: tests/README.md names every file and folder of tests/, and nothing that is not there.
passed=0 failed=0
verdict() { if [ "$1" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "failed: $2"; fi; }
named=$(grep -oE '\]\([^)]+\)' tests/README.md | sed 's/^](//; s/)$//' | sort -u)
for path in tests/* tests/api/* tests/cuda/* tests/tools/*; do
    name=${path#tests/}
    [ "$name" = README.md ] && continue
    grep -qxF "$name" <<<"$named"
    verdict $? "tests/README.md does not name $name"
done
for name in $named; do
    test -e "tests/$name"
    verdict $? "tests/README.md names $name, which is not there"
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
