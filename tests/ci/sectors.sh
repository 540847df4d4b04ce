#!/bin/sh
# sectors.sh FILE: the kernels that are listed here, in a report of the simulator (TG_SIM_REPORT), move at most 1.15 times
# the sectors that their bytes fill, and wait for no bank of shared memory.  A kernel that is not in the report fails.
passed=0 failed=0
for kernel in 'tgi_optim_pieces<tgi_optim_adamw_f32, 0>' 'tgi_optim_pieces<tgi_optim_adamw_f32, 2>' \
    'tgi_map_flat<tgi_identity<float>, 1, 0, 2, 4>' 'tgi_map_flat<tgi_identity<float>, 1, 2, 0, 4>' \
    'tgi_map_flat<tgi_formula<58, float>, 2, 0, 0, 4>' 'tgi_map_flat<tgi_formula<58, float>, 2, 2, 2, 8>' \
    'tgi_fold<tgi_combine_sum, double>' 'tgi_fold_across<tgi_combine_sum, double>' tgi_fill_flat 'tgi_copy_converted<float>' \
    tgi_layer_norm_rows tgi_layer_norm_backward_rows tgi_softmax_rows tgi_softmax_backward_rows; do
    line=$(grep -F "$kernel" "$1" | head -n 1)
    if printf '%s\n' "$line" | awk 'NF > 6 { exit !($4 <= 1.15 && $5 == 0) } { exit 1 }'; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $kernel: ${line:-not in the report}"
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
