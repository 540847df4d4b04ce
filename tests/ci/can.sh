#!/usr/bin/env bash
# can.sh COMPILER FLAGS...: can it build a program with these flags, and does that run?
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
echo 'int main(void) { return 0; }' >"$folder/can.c"
"$@" "$folder/can.c" -o "$folder/can" >/dev/null 2>&1 && "$folder/can" >/dev/null 2>&1
