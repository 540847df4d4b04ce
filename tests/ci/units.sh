#!/usr/bin/env bash
# units.sh FOLDER: the files of tests/ci/units, each as C or as C++ and with options of its own, link and run; and the library
# exports nothing but tg_ and tgi_ names, none at all under TG_STATIC.
set -u
out=$1 passed=0 failed=0
mkdir -p "$out"

verdict() { if [ "$1" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "failed: $2"; fi; }

compile() # UNIT LANGUAGE FLAGS...
{
    local unit=$1 language=$2
    shift 2
    if [ "$language" = c ]; then cc -std=c99 "$@" -I. -c "tests/ci/units/$unit.c" -o "$out/$unit-c.o"
    else c++ -std=c++11 -x c++ "$@" -I. -c "tests/ci/units/$unit.c" -o "$out/$unit-c++.o"; fi
}

languages=c
if command -v c++ >/dev/null 2>&1; then languages='c c++'; else echo "skipped: no C++ compiler"; fi
for language in $languages; do
    compile main $language -O0 && compile user $language -O3 -DNDEBUG && compile private $language -O0 -fno-strict-aliasing
    verdict $? "compiling as $language"
done
for a in $languages; do
    for b in $languages; do
        for c in $languages; do
            linker=cc
            case $a$b$c in *+*) linker=c++ ;; esac
            $linker "$out/main-$a.o" "$out/user-$b.o" "$out/private-$c.o" -o "$out/units" -lm && "$out/units"
            verdict $? "main as $a, user as $b, private as $c"
        done
    done
done
if command -v nm >/dev/null 2>&1; then
    nm -g --defined-only "$out/main-c.o" | awk '$3 !~ /^(tgi?_.*|main)$/ { print; bad = 1 } END { exit bad }'
    verdict $? "exported names"
    nm -g --defined-only "$out/private-c.o" | awk '$3 != "private_slope" { print; bad = 1 } END { exit bad }'
    verdict $? "exported names under TG_STATIC"
else
    echo "skipped: no nm"
fi
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
