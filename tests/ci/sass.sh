#!/usr/bin/env bash
# sass.sh --path prints where cuobjdump is.
# sass.sh OBJECT FOLDER: the machine code of the kernels that are listed below, in an object file that nvcc has made of
# tensorgrad_cuda.cu for one GPU or more; each kernel is checked for each of these GPUs.  Needs cuobjdump with
# nvdisasm beside it, which the CUDA toolkit has, and the Python packages triton, and nvidia-cuda-cuobjdump with
# nvidia-cuda-nvdisasm: these two are installed by pip, if nothing else has them.  Without them it says how many kernels
# it has not checked, and ends with status 77, so that .ci/run counts it as skipped.
#
# A line of the list is
#     REGISTERS DEMANDS KERNEL
# REGISTERS  of a thread, at most; 65536 divided by them is the number of threads that a multiprocessor can hold.
# DEMANDS    with commas between them, or -
#     ld128, st128   there are loads, stores of 16 bytes
#     f32            no arithmetic in double and no conversion from or to it
#     mma            there are products by tensor cores
#     wgmma          products of four warps (HGMMA), and no others; such a line is for sm_90a alone, where this code is, and
#                    is skipped, with a word, in an object file that has none of it
#     tile480        in the loop with such products, that over the tiles of attention, a warp executes 480 instructions at most
#                    for a tile, one without a mask and not at an end: see tiles.py.  A tile has 64 columns, or 32 in tgi_flash
#                    where D is 128; a warp has 16 rows, but 32 in tgi_flash_forward<.., 64, 2>
# KERNEL     as c++filt writes it, without its parameters, but an op by its name and not by its number; a kernel that is
#            not in the object file is a failure
# No listed kernel may jump through a table (BRX), as a switch over dtypes in a loop does, or use local memory (LDL, STL), where
# registers that are indexed by a variable go.
set -o pipefail
object=$1 folder=$2
passed=0 failed=0
mkdir -p "$folder"

works() { command -v "$1" >/dev/null && command -v "$(dirname "$(command -v "$1")")/nvdisasm" >/dev/null; } # it calls that

tools=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/tensorgrad/cuda-tools
of_pip() # prints the path of cuobjdump in $tools
{
    local at
    for at in "$tools"/nvidia/*/bin/cuobjdump; do if works "$at"; then echo "$at" && return; fi; done
    return 1
}

find_cuobjdump() # prints its path: of the toolkit, or of a Python package that has it
{
    local nvcc python at
    nvcc=$(command -v nvcc)
    for at in "$(command -v cuobjdump)" "$(dirname "$(readlink -f "${nvcc:-/nvcc}")")/cuobjdump" \
        {"${CUDA_HOME:-/usr/local/cuda}","${CUDA_PATH:-/usr/local/cuda}"}/bin/cuobjdump; do
        if works "$at"; then echo "$at" && return; fi
    done
    for python in ${TG_PYTHON:+"$TG_PYTHON"} python3 "${XDG_CACHE_HOME:-$HOME/.cache}/tensorgrad/venv/bin/python"; do
        while IFS= read -r at; do
            if works "$at"; then echo "$at" && return; fi
        done < <("$python" -c '
import glob, importlib.util as u
for name in ("triton", "nvidia"):
    package = u.find_spec(name)
    for folder in package.submodule_search_locations if package else []:
        for path in glob.glob(folder + "/**/bin/cuobjdump", recursive=True): print(path)' 2>/dev/null)
    done
    of_pip && return
    timeout 60 python3 -m pip install -q --retries 0 --no-deps --target "$tools" nvidia-cuda-cuobjdump nvidia-cuda-nvdisasm >&2
    of_pip
}

if [ "$1" = --path ]; then find_cuobjdump && exit; fi

# check LIST OBJECT: prints "ok GPU KERNEL: WHAT" or "FAILED GPU KERNEL: WHAT" for each line of the list and each GPU
check()
{
    local names
    # GPU, name, registers, name in C++ without parameters: a line for each kernel of the object
    "$cuobjdump" -res-usage "$2" | awk '/^arch =/ { gpu = $3 } /^ Function/ { name = $2; sub(/:$/, "", name) }
        /^  REG:/ { sub(/REG:/, "", $1); print gpu "\t" name "\t" $1 }' >"$folder/mangled.txt"
    cut -f 2 "$folder/mangled.txt" | c++filt | sed 's/^void //; s/([^()]*)$//' | paste "$folder/mangled.txt" - >"$folder/kernels.txt"
    # the code of the listed ones alone, which is much less than that of all
    names=$(awk -F '\t' 'NR == FNR { sub(/^ *[^ ]+ +[^ ]+ +/, ""); listed[$0] = 1; next } $4 in listed { print $2 }' \
        "$1" "$folder/kernels.txt" | sort -u | paste -sd, -)
    : >"$folder/listed.sass"
    [ -n "$names" ] && "$cuobjdump" -sass -fun "$names" "$2" >"$folder/listed.sass"
    python3 tests/ci/tiles.py "$folder/listed.sass" >"$folder/tiles.txt"
    awk -F '\t' '
        FILENAME == ARGV[1] {
            line = $0
            split(line, part, " ")
            sub(/^ *[^ ]+ +[^ ]+ +/, "", line)
            most[++lines] = part[1]
            demands[lines] = part[2]
            kernel[lines] = line
            next
        }
        FILENAME == ARGV[2] { registers[$1, $4] = $3; shown[$2] = $4; gpus[$1] = 1; next }
        FILENAME == ARGV[3] { tile[$1, shown[$2]] = $3; next }
        /^arch =/ { gpu = $0; sub(/.*= /, "", gpu) }
        /Function :/ { name = $0; sub(/.*: /, "", name); at = gpu SUBSEP shown[name] }
        /^ *\/\*[0-9a-f]+\*\// {
            ++code[at]
            if (/LDG\.E[.A-Z0-9]*\.128/) ++ld128[at]
            if (/STG\.E[.A-Z0-9]*\.128/) ++st128[at]
            if (/ D(ADD|MUL|FMA|SETP|MNMX)[ .]|MUFU\.[A-Z0-9]*64H|[FI]2[FI][.A-Z0-9]*\.F64/) ++f64[at]
            if (/ (BRX|JMX)[ .]/) ++indirect[at]
            if (/ (LDL|STL)[ .]/) ++local[at]
            if (/ [HI]G?MMA[ .]/) { ++mma[at]; wgmma[at] += / HGMMA[ .]/ }
        }
        END {
            for (gpu in gpus) {
                for (i = 1; i <= lines; ++i) {
                    at = gpu SUBSEP kernel[i]
                    wrong = ""
                    wanted = "," demands[i] ","
                    if (wanted ~ /,wgmma,/ && gpu != "sm_90a") { ++others; continue }
                    if (!(at in registers)) wrong = " not in the object"
                    else {
                        if (registers[at] + 0 > most[i] + 0) wrong = wrong " registers"
                        if (wanted ~ /,ld128,/ && !ld128[at]) wrong = wrong " ld128"
                        if (wanted ~ /,st128,/ && !st128[at]) wrong = wrong " st128"
                        if (wanted ~ /,mma,/ && !mma[at]) wrong = wrong " mma"
                        if (wanted ~ /,wgmma,/ && (!mma[at] || wgmma[at] != mma[at])) wrong = wrong " wgmma"
                        if (wanted ~ /,f32,/ && f64[at]) wrong = wrong " f32"
                        if (match(wanted, /,tile[0-9]+,/) &&
                            (!tile[at] || tile[at] > substr(wanted, RSTART + 5, RLENGTH - 6) + 0)) wrong = wrong " tile"
                        if (indirect[at]) wrong = wrong " BRX"
                        if (local[at]) wrong = wrong " local"
                    }
                    printf "%s %s %s: %d instructions%s, %d registers%s\n", wrong == "" ? "ok" : "FAILED", gpu, kernel[i],
                        code[at], tile[at] ? ", " tile[at] " for a tile" : "", registers[at], wrong == "" ? "" : "; wrong:" wrong
                }
            }
            if (others && !("sm_90a" in gpus)) print "skipped: " others " kernels that only code for sm_90a has"
        }' "$1" "$folder/kernels.txt" "$folder/tiles.txt" "$folder/listed.sass"
}

verdict() { if [ "$1" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $2"; fi; }

sh tests/ci/op_numbers.sh >"$folder/list" <<'END'
32 ld128,st128,f32 tgi_map_packs<tgi_formula<add, float>, 2, 0, 0, 0>
32 ld128,st128,f32 tgi_map_packs<tgi_formula<add, float>, 2, 2, 2, 2>
32 ld128,st128,f32 tgi_map_packs<tgi_formula<add, float>, 2, 3, 3, 3>
32 ld128,st128,f32 tgi_map_packs<tgi_formula<mul_scalar, float>, 1, 0, 0, 0>
32 ld128,st128,f32 tgi_map_packs<tgi_formula<where, float>, 3, 0, 9, 0>
40 ld128,st128,f32 tgi_map_packs<tgi_formula<gelu, float>, 1, 2, 2, 2>
40 ld128,st128,f32 tgi_map_packs<tgi_gradient<gelu, float>, 2, 0, 0, 0>
40 ld128,st128,f32 tgi_map_packs<tgi_gradient<gelu, float>, 2, 2, 2, 2>
32 ld128,f32 tgi_map_packs<tgi_identity<float>, 1, 0, 0, 2>
32 st128,f32 tgi_map_packs<tgi_identity<float>, 1, 2, 2, 0>
32 ld128,st128,f32 tgi_copy_words<tgi_pack<5, 2> >
64 f32 tgi_copy_tiles<unsigned short>
64 f32 tgi_copy_tiles<unsigned int>
64 st128,f32 tgi_random_packs<1, 0>
64 st128,f32 tgi_random_packs<0, 0>
64 ld128,st128,f32 tgi_dropout_packs<0>
64 ld128,st128,f32 tgi_dropout_packs<2>
128 ld128,st128,f32 tgi_optim_pieces<tgi_optim_adamw_f32, 0>
128 ld128,st128,f32 tgi_optim_pieces<tgi_optim_adamw_f32, 2>
64 ld128,st128,f32 tgi_softmax_rows<0, 4>
64 ld128,st128,f32 tgi_softmax_rows<2, 8>
64 ld128,st128,f32 tgi_softmax_rows<2, 72>
80 ld128,st128,f32 tgi_softmax_backward_rows<0, 4>
80 ld128,st128,f32 tgi_softmax_backward_rows<2, 8>
128 ld128,st128,f32 tgi_softmax_backward_rows<2, 72>
128 ld128,st128,f32 tgi_norm_rows<0, 4, false>
128 ld128,st128,f32 tgi_norm_rows<2, 8, false>
128 ld128,st128,f32 tgi_norm_rows<2, 72, false>
128 ld128,st128,f32 tgi_norm_rows<0, 4, true>
128 ld128,st128,f32 tgi_norm_rows<2, 8, true>
128 ld128,st128,f32 tgi_norm_backward_rows<0, 4, true, false>
128 ld128,st128,f32 tgi_norm_backward_rows<2, 8, true, false>
128 ld128,st128,f32 tgi_norm_backward_rows<2, 72, true, false>
128 ld128,st128,f32 tgi_norm_backward_rows<0, 4, true, true>
128 ld128,st128,f32 tgi_norm_backward_rows<2, 8, true, true>
64 ld128,st128,f32 tgi_class_loss_rows<0, 4>
64 ld128,st128,f32 tgi_class_loss_rows<2, 8>
128 ld128,st128,f32 tgi_class_loss_rows<2, 72>
128 f32 tgi_class_loss_rows<2, 1>
64 ld128,st128,f32 tgi_class_loss_backward_rows<0, 4>
64 ld128,st128,f32 tgi_class_loss_backward_rows<2, 8>
64 ld128,st128,f32 tgi_class_loss_backward_rows<2, 72>
128 f32 tgi_class_loss_backward_rows<2, 1>
64 ld128,st128,f32 tgi_lstm_cell_packs<4>
64 ld128,st128,f32 tgi_lstm_backward_packs<4>
48 f32 tgi_max_pool_windows<0, 2>
48 f32 tgi_max_pool_windows<2, 2>
64 f32 tgi_max_pool_found<0, 0>
64 f32 tgi_window_sums<0, false, false, 2>
64 f32 tgi_window_sums<0, true, false, 1>
64 f32 tgi_window_sums<2, true, false, 1>
64 f32 tgi_im2col_windows<unsigned short>
64 f32 tgi_im2col_windows<unsigned int>
64 f32 tgi_col2im_elements<0>
255 st128,f32,mma,tile720 tgi_flash_forward<2, 64, 2>
255 st128,f32,mma,tile720 tgi_flash_forward<3, 64, 2>
192 st128,f32,mma,tile430 tgi_flash_forward<2, 128, 1>
192 st128,f32,mma,tile430 tgi_flash_forward<3, 128, 1>
128 st128,f32,wgmma,tile325 tgi_hopper_forward<2, 64>
128 st128,f32,wgmma,tile325 tgi_hopper_forward<3, 64>
255 st128,f32,wgmma,tile340 tgi_hopper_forward<2, 128>
255 st128,f32,wgmma,tile340 tgi_hopper_forward<3, 128>
255 st128,f32,wgmma,tile315 tgi_hopper_backward<2, 64, false>
255 st128,f32,wgmma,tile370 tgi_hopper_backward<2, 64, true>
255 st128,f32,wgmma,tile360 tgi_hopper_backward<2, 128, false>
255 st128,f32,wgmma,tile450 tgi_hopper_backward<2, 128, true>
255 st128,f32,wgmma,tile370 tgi_hopper_backward<3, 64, true>
255 st128,f32,wgmma,tile450 tgi_hopper_backward<3, 128, true>
224 st128,f32,mma,tile480 tgi_flash_backward<2, 64, false>
255 st128,f32,mma,tile580 tgi_flash_backward<2, 64, true>
192 st128,f32,mma,tile420 tgi_flash_backward<2, 128, false>
255 st128,f32,mma,tile500 tgi_flash_backward<2, 128, true>
255 st128,f32,mma,tile580 tgi_flash_backward<3, 64, true>
255 st128,f32,mma,tile500 tgi_flash_backward<3, 128, true>
192 st128,f32 tgi_flash_forward<0, 64, 1>
192 st128,f32 tgi_flash_forward<0, 128, 1>
240 st128,f32 tgi_flash_backward<0, 64, true>
255 st128,f32 tgi_flash_backward<0, 128, true>
40 ld128,st128,f32 tgi_multi_pieces<0>
40 ld128,st128,f32 tgi_multi_pieces<2>
40 ld128,f32 tgi_multi_cast<2>
40 ld128,f32 tgi_multi_cast<3>
56 ld128 tgi_fold<tgi_combine_sum, float, 0, 4>
72 ld128 tgi_fold<tgi_combine_sum, float, 2, 8>
72 ld128 tgi_fold<tgi_combine_sum, float, 3, 8>
56 ld128 tgi_fold<tgi_combine_amax, float, 0, 4>
72 ld128 tgi_fold<tgi_combine_amax, float, 2, 8>
80 ld128 tgi_fold_across<tgi_combine_sum, float, 0, 4>
80 - tgi_fold_across<tgi_combine_sum, float, 2, 4>
80 - tgi_fold_across<tgi_combine_amax, float, 2, 4>
40 f32 tgi_radix_count<unsigned int>
40 f32 tgi_radix_scan<unsigned int>
80 f32 tgi_radix_move<unsigned int>
40 f32 tgi_radix_count<unsigned long>
40 f32 tgi_radix_scan<unsigned long>
80 f32 tgi_radix_move<unsigned long>
END

if ! cuobjdump=$(find_cuobjdump 2>"$folder/pip.txt"); then
    echo "skipped: no cuobjdump and nvdisasm, neither in the CUDA toolkit nor in Python's packages triton and nvidia-cuda-*: none of" \
        "$(wc -l <"$folder/list") kernels was checked"
    exit 77
fi
echo "by $cuobjdump"

# The check finds what is planted: each kernel breaks the demand that its name says.
cat >"$folder/planted.cu" <<'END'
template <int> __global__ void good(float4 *y, const float4 *x) { y[threadIdx.x] = x[threadIdx.x]; }
template __global__ void good<1>(float4 *, const float4 *);
__global__ void ld128(float4 *y, const float *x) { y[threadIdx.x] = make_float4(x[threadIdx.x], 0, 0, 0); }
__global__ void st128(float *y, const float4 *x) { y[threadIdx.x] = x[threadIdx.x].x + x[threadIdx.x].y * x[threadIdx.x].z - x[threadIdx.x].w; }
__global__ void f32(float *y, const float *x) { y[threadIdx.x] = (float)(x[threadIdx.x] * 1.1); }
__global__ void tile(float *y, int n)
{
    float d0 = y[0], d1 = y[1], d2 = y[2], d3 = y[3];
#pragma unroll 1
    for (int i = 0; i < n; ++i)
        asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%4,%5}, {%4,%5}, {%0,%1,%2,%3};"
                     : "+f"(d0), "+f"(d1), "+f"(d2), "+f"(d3) : "r"(i), "r"(n));
    y[0] = d0, y[1] = d1, y[2] = d2, y[3] = d3;
}
__global__ void local(float *y, int n)
{
    float x[64];
    for (int i = 0; i < 64; ++i) x[i] = y[i];
    x[n] = 1;
    y[0] = x[n / 2] + x[n / 3];
}
__global__ void indirect(float *y, int n)
{
    switch (n) {
    case 0: y[0] = sqrtf(y[7]); break;
    case 1: y[1] = y[2] / y[3]; break;
    case 2: y[5] = y[4] * y[1]; break;
    case 3: y[6] = expf(y[2]) - y[1]; break;
    case 4: y[7] = y[3] - y[9]; __syncthreads(); break;
    case 5: y[8] = logf(y[5]); break;
    case 6: y[9] = sqrtf(y[1]); break;
    }
}
END
cat >"$folder/planted.list" <<'END'
32 ld128,st128,f32 good<1>
32 ld128,st128,f32 ld128
32 ld128,st128,f32 st128
32 f32 f32
99 - local
99 - indirect
32 mma good<1>
1 - good<1>
32 - absent
99 mma,tile99 tile
99 mma,tile2 tile
99 wgmma tile
32 tile99 good<1>
END
wanted=';ld128;st128;f32;local;BRX;mma;registers;not in the object;;tile;wgmma;tile'
nvcc -arch=sm_90a -c "$folder/planted.cu" -o "$folder/planted.o" 2>"$folder/planted.txt"
found=$(check "$folder/planted.list" "$folder/planted.o" | sed 's/.*wrong: //; s/^ok.*//' | paste -sd ';' -)
test "$found" = "$wanted"
verdict $? "what is planted is found as '$found', not as '$wanted'"

check "$folder/list" "$object" >"$folder/found.txt"
cat "$folder/found.txt"
test -s "$folder/found.txt"
verdict $? "no machine code is found in $object: none of $(wc -l <"$folder/list") kernels was checked"
passed=$((passed + $(grep -c '^ok' "$folder/found.txt"))) failed=$((failed + $(grep -c '^FAILED' "$folder/found.txt")))
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
