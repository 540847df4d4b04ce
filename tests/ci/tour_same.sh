#!/usr/bin/env bash
# tour_same.sh TOUR CHECK_OUTPUT FOLDER: on a GPU the device tour prints the gradients and losses of the CPU, and counts the bytes
# that it moved: 64 x (8 + 1) doubles of a batch, 8 x 32 + 32 + 32 + 1 of the weights, and as many of their gradients.
set -e
same() { grep -oE '(gradient|loss) [0-9].*' "$1"; }
"$1" | tee "$3/tour.txt"
same "$3/tour.txt" >"$3/tour-device.txt"
same examples/expected/14_device_tour.txt >"$3/tour-cpu.txt"
"$2" "$3/tour-cpu.txt" "$3/tour-device.txt"
grep -q 'its square on cuda:0' "$3/tour.txt"
grep -q 'batches moved  *4608 bytes there and  *0 back' "$3/tour.txt"
grep -q 'every step  *7176 bytes there and  *2568 back' "$3/tour.txt"
