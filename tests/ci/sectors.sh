#!/bin/sh
# sectors.sh FILE [KERNEL...]: these kernels, or those of a training step that are listed here, in a report of the
# simulator (TG_SIM_REPORT), move at most 1.15 times the sectors that their bytes fill, and wait for no bank of shared
# memory.  A kernel that is not in the report fails.  An op in the name of a kernel is named as in the op table, as in
# tgi_gradient<gelu, float>.
file=$1
shift
[ $# -gt 0 ] || set -- 'tgi_optim_pieces<tgi_optim_adamw_f32, 0>' 'tgi_optim_pieces<tgi_optim_adamw_f32, 2>' \
    'tgi_map_packs<tgi_identity<float>, 1, 0, 0, 2>' \
    'tgi_map_packs<tgi_formula<add, float>, 2, 0, 0, 0>' 'tgi_map_packs<tgi_formula<add, float>, 2, 2, 2, 2>' \
    'tgi_map_packs<tgi_gradient<relu, float>, 2, 0, 0, 0>' \
    'tgi_class_mean<0>' 'tgi_class_mean<2>' 'tgi_fold_across<tgi_combine_sum, float, 0, 4>' \
    'tgi_fold_across<tgi_combine_sum, float, 2, 4>' tgi_fill_flat 'tgi_norm_rows<0, 4, false>' 'tgi_norm_rows<2, 8, false>' \
    'tgi_norm_rows<0, 4, true>' 'tgi_norm_rows<2, 8, true>' 'tgi_norm_backward_rows<0, 4, true, false>' \
    'tgi_norm_backward_rows<0, 4, true, true>' 'tgi_norm_backward_rows<2, 8, true, true>' 'tgi_flash_forward<2, 64, 2>' \
    'tgi_flash_backward<2, 64, false>' 'tgi_flash_backward<2, 64, true>'
set -f
IFS='
'
set -- $(printf '%s\n' "$@" | sh tests/ci/op_numbers.sh)
passed=0 failed=0
for kernel in "$@"; do
    line=$(grep -F "$kernel" "$file" | head -n 1)
    if printf '%s\n' "$line" | awk 'NF > 6 { exit !($4 <= 1.15 && $5 == 0) } { exit 1 }'; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $kernel: ${line:-not in the report}"
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
