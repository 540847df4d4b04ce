#!/usr/bin/env bash
# demo_resumed.sh PROGRAM FOLDER: the demo, killed after its first checkpoints, goes on to the bytes of a run that was not;
# then it continues a text with the model that was saved.
set -e
arguments=(--text LICENSE --steps 100)
mkdir -p "$2"
rm -rf "$2/whole" "$2/killed"
"$1" "${arguments[@]}" --out "$2/whole" >/dev/null
"$1" "${arguments[@]}" --out "$2/killed" >/dev/null &
program=$!
until [ -f "$2/killed/checkpoint.safetensors" ]; do kill -0 $program; sleep 0.05; done
kill -KILL $program
wait $program || true
"$1" "${arguments[@]}" --out "$2/killed" --resume 1 >"$2/resumed.txt"
grep 'going on from step' "$2/resumed.txt"
for file in model.safetensors log.csv sample.txt loss.svg; do cmp "$2/whole/$file" "$2/killed/$file"; done
"$1" --out "$2/whole" --sample 'Permission' | tee "$2/continued.txt"
[ "$(wc -c <"$2/continued.txt")" -eq 311 ]
grep -q '^Permission' "$2/continued.txt"
