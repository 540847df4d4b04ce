#!/usr/bin/env bash
# demo_threads.sh PROGRAM TEXT FOLDER: 20 steps of the demo with one thread and with two write the same bytes.
for threads in 1 2; do
    OMP_NUM_THREADS=$threads "$1" --text "$2" --steps 20 --threads $threads --out "$3/threads-$threads" >/dev/null || exit 1
done
cmp "$3/threads-1/log.csv" "$3/threads-2/log.csv" && cmp "$3/threads-1/sample.txt" "$3/threads-2/sample.txt"
