#!/usr/bin/env bash
# handshake.sh DIR BUILD [K/N]: a program compiled from another tensorgrad.h than tensorgrad_cuda.o, by its number,
# by the size of what both share or by the entries of the backend, is told so and computes on the CPU.  DIR is for what is written.
# With K/N every N-th of these, from the K-th.
set -e
dir=$1
build=$2
turn=${3:-0/1} n=0

# refused NAME EDIT: the program with a header that EDIT has changed
refused()
{
    n=$((n + 1))
    [ $((n % ${turn#*/})) -eq "${turn%/*}" ] || return 0
    mkdir -p "$dir/$1"
    sed "$2" tensorgrad.h >"$dir/$1/tensorgrad.h"
    if cmp -s tensorgrad.h "$dir/$1/tensorgrad.h"; then echo "handshake: $1: '$2' changes nothing"; exit 1; fi
    cat >"$dir/$1/handshake.c" <<'END'
#define TENSORGRAD_IMPLEMENTATION
#include "tensorgrad.h"
int main(void)
{
    tg_tensor *x = tg_ones(TG_SHAPE(3));
    tg_set_error_handler(NULL, NULL);
    printf("%s\n", tg_cuda(x) ? "it moved" : tg_error_message());
    tg_clear_error();
    printf("on the CPU: %g, devices: %d\n", tg_item(tg_sum(x)), tg_cuda_device_count());
    return 0;
}
END
    make -s sim MAIN="$dir/$1/handshake.c" OUT="$dir/$1/handshake" BUILD="$build" CFLAGS='-O1 -ffp-contract=off' SIM_CFLAGS=-O0
    TG_SIM_DEVICES=1 "$dir/$1/handshake" | tee "$dir/$1/said.txt"
    grep -q 'tensorgrad_cuda.o (number [0-9]*) and tensorgrad.h (number [0-9]*) are not of one version' "$dir/$1/said.txt"
    grep -q 'hint: compile tensorgrad_cuda.cu again' "$dir/$1/said.txt"
    grep -q 'on the CPU: 3, devices: 0' "$dir/$1/said.txt"
}

refused number 's/TGI_ABI = [0-9]*/TGI_ABI = 987654/'
refused size 's/#define TG_MAX_DIMS 8/#define TG_MAX_DIMS 7/'
refused devices 's/TGI_MAX_DEVICES = 16/TGI_MAX_DEVICES = 17/'
refused entry 's/OP(ALL, bool, cumsum, (tgi_thread \*S, const tgi_rows \*rows))/OP(ALL, bool, cumsum, (tgi_thread *S, const tgi_rows *x))/'
