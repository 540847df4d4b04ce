#!/usr/bin/env bash
# mnist.sh PROGRAM [FOLDER]: 10_mnist reads at least 0.97 of the held-out digits right, of those in FOLDER or of its own, in less
# than 60 s of processor time.
ulimit -t 60
OMP_NUM_THREADS=1 "$@" | awk '{ print } /^epoch/ { right = $(NF - 1) } END { exit !(right >= 0.97) }'
