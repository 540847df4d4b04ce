#!/usr/bin/env bash
# sizes.sh FOLDER [COMPILER]: TG_PORTABLE and the TG_NO_.. macros.  A program that trains runs with combinations of them; each alone and
# all together compile without a warning; a call of a function that is left out is an error of the linker that names it; and
# README's first program with all that it does not use left out has less than 300 KB, of 1024 bytes.  With COMPILER, gcc, g++, clang
# or clang++, only that one is asked for warnings.
set -u
out=$1 passed=0 failed=0
mkdir -p "$out"
WARN='-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wsign-conversion -Werror'
ROOMS='FILES MODULES OPTIM TOOLS LINALG SPECIAL'
ALL='-DTG_NO_FILES -DTG_NO_MODULES -DTG_NO_OPTIM -DTG_NO_TOOLS -DTG_NO_LINALG -DTG_NO_SPECIAL -DTG_NO_FFT -DTG_NO_DISTRIBUTIONS'
MORE='FFT DISTRIBUTIONS' # rooms that nothing else needs: each alone, and with all the others
verdict() { if [ "$1" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "failed: $2"; fi; }
have() { command -v "$1" >/dev/null 2>&1; }
build() { if have tcc; then tcc -I. "$@"; else cc -std=c99 -O0 -I. "$@"; fi; } # tcc needs a twentieth of the time
printf '#define TENSORGRAD_IMPLEMENTATION\n#include "tensorgrad.h"\n' >"$out/library.c"

# Combinations of at most two, or of at least five, on the kernels and on the plain loops.
for ((mask = 0; mask < 64; ++mask)); do
    macros=()
    left=
    k=0
    for room in $ROOMS; do
        if (((mask >> k++) & 1)); then macros+=("-DTG_NO_$room"); left+=" $room"; fi
    done
    case ${#macros[@]} in 3 | 4) continue ;; esac
    if ! have tcc && [ "$mask" -ne 0 ] && [ "$mask" -ne 63 ]; then continue; fi
    for plain in -DTG_PORTABLE -DTG_PLAIN; do
        build $plain ${macros[@]+"${macros[@]}"} tests/ci/units/rooms.c -o "$out/rooms" -lm &&
            "$out/rooms" "$out/rooms.npy" >"$out/rooms.txt" && grep -qx learned "$out/rooms.txt"
        verdict $? "the program learns with $plain, without:${left:- nothing}"
    done
done
build -DTG_PORTABLE $ALL tests/ci/units/rooms.c -o "$out/rooms" -lm &&
    "$out/rooms" | grep -q ', without tools, without linear algebra, without special functions, without fft, without distributions$'
verdict $? "tg_build_info says what is left out"

# No warning, not of private functions that nobody calls now.  GCC finds those when it compiles.
for compiler in 'gcc -std=c99 -c' 'g++ -std=c++11 -fsyntax-only -x c++' 'clang -std=c99 -fsyntax-only' \
    'clang++ -std=c++11 -fsyntax-only -x c++'; do
    case ${2:-any} in any | "${compiler%% *}") ;; *) continue ;; esac
    if ! have "${compiler%% *}"; then echo "skipped: no ${compiler%% *}"; continue; fi
    for room in $ROOMS $MORE; do
        $compiler -O0 $WARN -DTG_PLAIN "-DTG_NO_$room" -I. "$out/library.c" -o "$out/library.o"
        verdict $? "$compiler without $room"
    done
    for way in -DTG_PORTABLE -DTG_KERNELS_ELSEWHERE; do
        $compiler -O0 $WARN $way $ALL -I. "$out/library.c" -o "$out/library.o"
        verdict $? "$compiler with $way and without all rooms"
    done
done
cc -std=c99 -O0 -DTG_PLAIN -DTG_STATIC $ALL -I. tests/ci/units/rooms.c -o "$out/rooms" -lm 2>/dev/null && "$out/rooms" >/dev/null
verdict $? "with TG_STATIC, of which GCC says that functions are not defined"

# Declarations stay, so that files need no macro: the linker tells.
build -c $ALL -DTG_PLAIN "$out/library.c" -o "$out/least.o"
while read -r name call; do
    printf '#include "tensorgrad.h"\nint main(void) { return !%s; }\n' "$call" >"$out/call.c"
    build -c "$out/call.c" -o "$out/call.o"
    verdict $? "$name is declared"
    ! build "$out/call.o" "$out/least.o" -o "$out/call" -lm 2>"$out/call.txt" && grep -q "undefined.*$name" "$out/call.txt"
    verdict $? "the linker names $name"
done <<'END'
tg_npy_load tg_npy_load("a.npy")
tg_module_load tg_module_load(NULL, "a")
tg_nn_linear tg_nn_linear(1, 1, true)
tg_sgd tg_sgd(NULL, 0, 0.1)
tg_gradcheck tg_gradcheck(NULL, NULL, 0, NULL)
tg_lgamma tg_lgamma(NULL)
tg_bitwise_not tg_bitwise_not(NULL)
tg_profile_print tg_profile_print(NULL)
tg_linalg_inv tg_linalg_inv(NULL)
tg_fft_rfft tg_fft_rfft(NULL,-1,-1,NULL)
tg_poisson tg_poisson(NULL)
END
printf '#include "tensorgrad.h"\nint main(void) { return !tg_ok(); }\n' >"$out/call.c"
build "$out/call.c" "$out/least.o" -o "$out/call" -lm && "$out/call"
verdict $? "a program that calls nothing of it is linked"

# One instruction set; and -Os means the loops, too.
if have gcc && [ "$(uname -m)" = x86_64 ]; then
    [ "$(gcc -O1 -DTG_PORTABLE -I. -E "$out/library.c" | grep -c 'tgi_kernels_avx[0-9]* =')" -eq 0 ] &&
        [ "$(gcc -O1 -I. -E "$out/library.c" | grep -c 'tgi_kernels_avx[0-9]* =')" -eq 2 ]
    verdict $? "TG_PORTABLE has no kernels for AVX2 and AVX-512"
    awk '/^```c$/ { on = 1; next } /^```$/ { if (on) exit } on' README.md >"$out/first.c"
    gcc -Os -ffunction-sections -fdata-sections -DTG_PLAIN $ALL -fno-asynchronous-unwind-tables -I. "$out/first.c" -o "$out/first" -lm -Wl,--gc-sections -s &&
        "$out/first" >"$out/first.txt" && grep -q '5  tanh   y' "$out/first.txt"
    verdict $? "README's first program with all left out"
    grep -q 'n\.grad += 0\.5$' "$out/first.txt" # the formulas behind these are among what TG_NO_TOOLS leaves out
    verdict $? "its tape names what is sent to each input"
    bytes=$(wc -c <"$out/first")
    echo "README's first program, -Os, stripped, with TG_PLAIN and $ALL: $bytes bytes"
    [ "$bytes" -lt 307200 ]
    verdict $? "less than 300 KB: $bytes bytes"
fi
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
