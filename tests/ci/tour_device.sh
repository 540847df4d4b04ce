#!/usr/bin/env bash
# tour_device.sh BUILD FOLDER: the device tour on one and on two simulated GPUs, whichever stream runs first.
set -e
make -s "$1/check_output" BUILD="$1"
make -s sim MAIN=examples/14_device_tour.c OUT="$2/tour-sim" BUILD="$1" CFLAGS='-O1 -ffp-contract=off' SIM_CFLAGS=-DTG_COMPILED
for devices in 1 2; do
    for streams in lazy others; do
        export TG_SIM_DEVICES=$devices TG_SIM_STREAMS=$streams TG_SIM_LEAKS=1
        bash tests/ci/tour_same.sh "$2/tour-sim" "$1/check_output" "$2"
        grep -q "the loss on cuda:$((devices - 1))" "$2/tour.txt"
    done
done
