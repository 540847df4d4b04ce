#!/usr/bin/env bash
# builds.sh FOLDER PART: how the header and the Makefile answer to unusual wishes.  The part `ways`: options that break NaN are
# refused; the header includes itself under any name; a 32-bit x86 compiles without a warning and links without a library for
# atomics; make finds OpenMP with a C++ compiler as well, passes on a text with an apostrophe, and refuses a folder with a space.
# The part `objects`: TG_PLAIN leaves act III out, and TG_KERNELS_ELSEWHERE to another object.
set -u
out=$1 part=$2 passed=0 failed=0
mkdir -p "$out"
WARN='-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wsign-conversion -Werror'

verdict() { if [ "$1" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "failed: $2"; fi; }
have() { command -v "$1" >/dev/null 2>&1; }
fast() { nm "$1" | grep -cE ' tgi_(cpu_|kernels_)|_(portable|avx2|avx512)$'; } # functions and tables of act III

refused() # TEXT COMPILER OPTIONS...: the compiler refuses the header with this text, unless it is allowed to go on
{
    local text=$1
    shift
    "$@" -std=c99 -I. -fsyntax-only tests/ci/units/main.c 2>&1 | grep -q "$text"
    verdict $? "${*:2} is refused by $1"
    "$@" -std=c99 -DTG_ALLOW_FAST_MATH -I. -fsyntax-only tests/ci/units/main.c
    verdict $? "${*:2} is allowed on request by $1"
}

options_refused()
{
    for option in -ffast-math -ffinite-math-only; do refused 'tensorgrad needs NaN and infinity' cc $option; done
    if have gcc && gcc --version | grep -q 'Free Software'; then
        for option in -funsafe-math-optimizations '-fassociative-math -fno-signed-zeros -fno-trapping-math' -freciprocal-math \
            -fno-signed-zeros; do refused 'tensorgrad needs exact floats' gcc $option; done
        refused 'constants_are_not_double_under_fsingle_precision_constant' gcc -fsingle-precision-constant
    else
        echo 'skipped: no GCC'
    fi
    # Linked without the options: with them, the linker adds a start-up file that takes denormals as 0.
    if have clang; then
        clang -std=c99 -O1 -funsafe-math-optimizations -I. -c tests/library.c -o "$out/unsafe.o" &&
            clang -std=c99 -O1 -I. tests/test_math.c "$out/unsafe.o" -o "$out/unsafe" -lm && SMALL=1 "$out/unsafe" >"$out/unsafe.txt"
        verdict $? "clang -funsafe-math-optimizations gives the same results"
    else
        echo 'skipped: no clang'
    fi
}

# The header under another name, beside an older one: it includes itself, or says that it cannot.
other_names()
{
    mkdir -p "$out/renamed/inner"
    cp tensorgrad.h "$out/renamed/tg.h"
    sed 's/^#define TGI_SERIAL [0-9]* .*/#define TGI_SERIAL 0/; s/^#elif TGI_SERIAL == [0-9]*/#elif TGI_SERIAL == 0/' tensorgrad.h >"$out/renamed/older.h"
    printf '#define TENSORGRAD_IMPLEMENTATION\n#include "../tg.h"\nint main(void) { puts(tg_cpu_capability()); return 0; }\n' \
        >"$out/renamed/inner/main.c"
    for compiler in gcc clang; do
        if ! have $compiler || ! echo __FILE_NAME__ | $compiler -E -xc - | grep -q stdin || [ "$(uname -m)" != x86_64 ]; then
            echo "skipped: no $compiler for x86-64 that tells the name of a file"
            continue
        fi
        $compiler -std=c99 -O1 -fsyntax-only "$out/renamed/inner/main.c" &&
            [ "$($compiler -std=c99 -O1 -E "$out/renamed/inner/main.c" | grep -c 'tgi_kernels_avx[0-9]* =')" -eq 2 ]
        verdict $? "$compiler: under another name, the header includes itself"
        $compiler -std=c99 -O1 -DTG_SELF='"older.h"' -fsyntax-only "$out/renamed/inner/main.c" 2>&1 | grep -q 'another version stands'
        verdict $? "$compiler: another version of the header is noticed"
        (cd "$out/renamed" && { echo '#define TENSORGRAD_IMPLEMENTATION'; cat tg.h; echo 'int main(void) { return !tg_ok(); }'; } >pasted.c &&
            $compiler -std=c99 -O1 -fsyntax-only pasted.c)
        verdict $? "$compiler: the header as part of a .c file"
    done
}

# Within a .c file there are no loops in f64: products, norms, losses and attention go other ways, with the same results.
in_a_c_file()
{
    sed -e '/^#include "tensorgrad.h"/{r tensorgrad.h' -e 'd;}' tests/library.c >"$out/pasted_library.c"
    cc -std=c99 -O1 -ffp-contract=off -Itests -c "$out/pasted_library.c" -o "$out/pasted_library.o"
    verdict $? "the library with the header in its .c file"
    for name in attention layers products; do
        cc -std=c99 -O1 -ffp-contract=off -I. tests/test_$name.c "$out/pasted_library.o" -o "$out/pasted_$name" -lm -lpthread &&
            SMALL=1 "$out/pasted_$name" >"$out/pasted_$name.txt" 2>&1
        verdict $? "test_$name with the header in a .c file"
    done
}

# Debian's cross compilers displace its package with the headers of the kernel for -m32; those for 64 bits serve as well.
on_32_bits()
{
    printf '#include <errno.h>\nint main(void) { return 0; }\n' >"$out/empty.c"
    for command in 'gcc -std=c99 -m32' 'clang -std=c99 -m32' 'g++ -x c++ -std=c++11 -m32'; do
        if ! $command "$out/empty.c" -o "$out/empty" 2>/dev/null; then command+=' -isystem /usr/include/x86_64-linux-gnu'; fi
        if ! $command "$out/empty.c" -o "$out/empty" 2>/dev/null; then
            echo "skipped: ${command%% -isystem*} cannot link"
            continue
        fi
        $command -O0 $WARN -I. tests/test_tensor.c tests/library.c -o "$out/tensor32" -lm && "$out/tensor32" >"$out/tensor32.txt" 2>&1
        verdict $? "test_tensor by $command"
    done
}

by_make()
{
    if echo '#include <omp.h>' | cc -fopenmp -x c -c - -o "$out/omp.o" 2>/dev/null && have c++; then
        make -n CC=c++ BUILD="$out/c++" examples 2>&1 | grep -q 'OpenMP: -fopenmp$'
        verdict $? "make CC=c++ finds OpenMP"
    fi
    head -c 2000 LICENSE >"$out/it's.txt"
    make BUILD="$out/demo" CFLAGS=-O0 demo TEXT="$out/it's.txt" ARGS="--steps 1 --out $out/demo-out" >"$out/demo.txt" 2>&1
    verdict $? "a text with an apostrophe"
    make BUILD="$out/a b" demo 2>&1 | grep -q 'make needs a path without spaces'
    verdict $? "a folder with a space is refused"
}

# Act III left out: the object has no loop of it, and test_ops passes on the plain backend alone.
without_act_three()
{
    cc -std=c99 -O1 -ffp-contract=off $WARN -DTG_PLAIN -I. -Itests -c tests/library.c -o "$out/plain.o"
    verdict $? "the library without act III"
    echo "functions and tables of act III: $(fast "$out/one.o"), with TG_PLAIN $(fast "$out/plain.o"); bytes:"
    size "$out/one.o" "$out/plain.o"
    [ "$(fast "$out/one.o")" -gt 100 ] && [ "$(fast "$out/plain.o")" -eq 0 ]
    verdict $? "TG_PLAIN leaves the fast loops out of the object"
    for name in ops math; do
        cc -std=c99 -O1 -ffp-contract=off -DTG_PLAIN -I. tests/test_$name.c "$out/plain.o" -o "$out/plain_$name" -lm -lpthread &&
            SMALL=1 TG_PLAIN=0 "$out/plain_$name" >"$out/plain_$name.txt" 2>&1
        verdict $? "test_$name without act III"
    done
}

# Act III as an object of its own: it has no variables that change, the two objects share a function and a table, and give
# the results of one object to the last bit.  Of two versions they are not used together.
two_objects()
{
    printf '#define TENSORGRAD_IMPLEMENTATION\n#include "tensorgrad.h"\n' >"$out/tg.c"
    TIMEFORMAT=%U
    compile() { time cc -std=c99 -O1 -ffp-contract=off $WARN -Itests "${@:2}" -c -o "$1"; }
    echo "seconds to compile the library, acts I and II alone, act III alone:"
    compile "$out/one.o" -I. tests/library.c && compile "$out/two.o" -I. -DTG_KERNELS_ELSEWHERE tests/library.c &&
        compile "$out/kernels.o" -I. -DTG_KERNELS_ONLY "$out/tg.c"
    verdict $? "the library as two objects"
    [ "$(nm -g "$out/kernels.o" | grep -oE '. (tg_|tgi_)[a-z_]*' | tr '\n' ' ')" = 'T tgi_cpu_backend U tgi_library ' ] &&
        ! nm "$out/kernels.o" | grep -E ' [bBcC] ' && [ "$(fast "$out/two.o")" -eq 1 ] && nm "$out/two.o" | grep -q 'U tgi_cpu_backend'
    verdict $? "a function and a table between the two objects"
    for name in ops autograd; do
        for objects in one.o 'two.o kernels.o'; do
            (cd "$out" && cc -std=c99 -O1 -ffp-contract=off "-I$OLDPWD" "$OLDPWD/tests/test_$name.c" $objects -o "${objects%%.*}_$name" -lm -lpthread) &&
                SMALL=1 "$out/${objects%%.*}_$name" $([ $name != ops ] || echo --part 1/4) >"$out/${objects%%.*}_$name.txt" 2>&1
            verdict $? "test_$name with $objects"
        done
        [ "$(tail -n 1 "$out/one_$name.txt")" = "$(tail -n 1 "$out/two_$name.txt")" ]
        verdict $? "test_$name passes as many checks with two objects"
    done
    for objects in one two; do
        cc -std=c99 -O1 -ffp-contract=off -DTG_COMPILED -I. examples/12_chargpt.c "$out/$objects.o" $([ $objects = one ] || echo "$out/kernels.o") \
            -o "$out/${objects}_demo" -lm && "$out/${objects}_demo" --text LICENSE --steps 20 --out "$out/$objects-demo" >"$out/${objects}_demo.txt"
        verdict $? "the demo with $objects"
    done
    cmp "$out/one-demo/checkpoint.safetensors" "$out/two-demo/checkpoint.safetensors"
    verdict $? "20 steps of the demo with one object and with two: the same checkpoint"
    mkdir -p "$out/other"
    sed 's/TGI_ABI = [0-9]*/TGI_ABI = 987654/' tensorgrad.h >"$out/other/tensorgrad.h"
    printf '#include "tensorgrad.h"\nint main(void) { puts(tg_cpu_capability()); return tg_item(tg_sum(tg_ones(TG_SHAPE(3)))) != 3; }\n' >"$out/other.c"
    cc -std=c99 -O0 "-I$out/other" -DTG_KERNELS_ONLY -c "$out/tg.c" -o "$out/other.o" &&
        cc -std=c99 -O1 -I. "$out/other.c" "$out/two.o" "$out/other.o" -o "$out/other_version" -lm -lpthread &&
        "$out/other_version" >"$out/other.txt" 2>&1 && grep -q plain "$out/other.txt" && grep -q 'are not of one version' "$out/other.txt"
    verdict $? "two objects of two versions are noticed, and the CPU computes all the same"
}

case $part in
ways) options_refused; other_names; in_a_c_file; on_32_bits; by_make ;;
objects) two_objects; without_act_three ;; # the second compares with an object of the first
*) verdict 1 "no part is called $part" ;;
esac
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
