#!/usr/bin/env bash
# misuse.sh COMPILER FLAGS: mistakes that the compiler tells (tests/ci/units/misuse.c), the library beside
# headers of others, and every op among those whose result must be used.
passed=0 failed=0
verdict() { if [ "$1" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "failed: $2"; fi; }

unit() { $1 $2 -I. -c "tests/ci/units/$3.c" "${@:4}" -o /dev/null 2>/dev/null; }

unit "$1" "$2" misuse -DMISUSE=0
verdict $? "good uses"
for n in 1 2 3 4 5 6 7 8 9 10 11; do
    ! unit "$1" "$2" misuse -DMISUSE=$n
    verdict $? "mistake $n is not told"
done
for place in headers after; do # the library behind headers of the system, and in front of them
    $1 $2 -I. -fsyntax-only tests/ci/units/$place.c 2>&1 | head -n 20 | grep .
    [ "${PIPESTATUS[0]}" -eq 0 ]
    verdict $? "the library and headers of the system: $place.c"
done
$1 -I. -fsyntax-only tests/ci/units/nonsense.c 2>&1 | head -n 20 | grep .
[ "${PIPESTATUS[0]}" -eq 0 ]
verdict $? "the library behind macros of nonsense"
$1 -I. -DHEADER_ALONE -fsyntax-only tests/ci/units/nonsense.c
verdict $? "the header behind macros of nonsense"

# Ops return tensors, do not end in _, and store no indices.  Those here do something besides, or look something up.
besides=' keep retain share param set_requires_grad retain_grad step_closure clip_grad_norm clip_grad_norm_ex module_param
 module_buffer_ex functional_call
 module_buffer forward call batch_norm instance_norm grad saved dict_get module_get grad_scaler_scale npy_load npy_parse idx_load idx_parse csv_load
 csv_load_ex csv_load_options csv_parse from_dlpack from_dlpack_unversioned parallel_sum add_layer_norm add_rms_norm max_pool1d_ex max_pool2d_ex
 max_pool3d_ex positive '
list=$(sed -n '/^#define TGI_RESULTS/,/[^\\]$/p' tensorgrad.h)
for name in $(sed -n '/^#ifdef TENSORGRAD_IMPLEMENTATION/q; /TG_API tg_tensor \*tg_/{ /tg_tensor \*\*/d; s/^TG_API tg_tensor \*tg_\([a-z0-9_]*[a-z0-9]\)(.*/\1/p; }' tensorgrad.h); do
    case $besides in *[[:space:]]$name[[:space:]]*) continue ;; esac
    case $list in *"R($name)"*) true ;; *) false ;; esac
    verdict $? "TGI_RESULTS lacks $name"
done
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
