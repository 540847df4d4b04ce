#!/usr/bin/env bash
# sass_skipped.sh FOLDER: where there is no cuobjdump, sass.sh says so, and .ci/run prints and counts a skip.  The programs that
# it finds are those of a folder of links, which has no nvcc, no cuobjdump and no python3.
folder=$1
rm -rf "$folder"
mkdir -p "$folder/bin" "$folder/home" "$folder/log"
for tool in bash sh sed awk wc tail mkdir cat dirname readlink grep timeout cut sort paste; do
    ln -s "$(command -v "$tool")" "$folder/bin/$tool"
done
export B=$folder COUNTS=$folder/counts HOME=$folder/home PATH=$PWD/$folder/bin
case $folder in /*) PATH=$folder/bin ;; esac
unset XDG_CACHE_HOME TG_PYTHON
export CUDA_HOME=$folder/none CUDA_PATH=$folder/none
. tests/ci/lib.sh
said=$(one sass bash tests/ci/sass.sh "$folder/no.o" "$folder/sass")
passed=0 failed=0
expect() { if "${@:2}"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $1: $said"; fi; }
expect "a line says skip, and why" grep -qE '^skip +sass +no cuobjdump .*none of [1-9][0-9]+ kernels was checked$' <<<"$said"
expect "one is counted, and nothing as passed" test "$(cat "$COUNTS")" = "0 0 1"
expect "no other line" test "$(wc -l <<<"$said")" -eq 1
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
