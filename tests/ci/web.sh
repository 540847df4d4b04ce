#!/usr/bin/env bash
# web.sh FOLDER: the page of `make web` is smaller than 1.5 MB, and in headless Chromium it says what the same examples/web/web.c
# says as a program of this machine: the bytes of every answer, each step of backward, mistakes, 20 steps of the moons and their
# map.  units/web.js uses the page as a student does, in both colour schemes, on a screen and on a telephone.
set -u
out=$1 passed=0 failed=0
. tests/ci/browser.sh
rm -rf "$out" && mkdir -p "$out" || exit 1
make -s web WEB="$out/web.html" BUILD="$out/make" || exit 1
clang -O0 -ffp-contract=off -I. examples/web/web.c -o "$out/web" -lm || exit 1

bytes=$(wc -c <"$out/web.html")
verdict() { if [ "$1" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "failed: $2"; fi; }
[ "$bytes" -lt 1500000 ]
verdict $? "$bytes bytes"
! grep -oE '(https?:)?//[a-z][^ ]*' examples/web/page.html
verdict $? "the page has an address"

coded() { printf "decode(Uint8Array.from(atob('%s'), c => c.charCodeAt(0)))" "$(base64 -w 0)"; }

# a text, and how the native program answers it; with a slider and a number where that is how the text comes to be
try() { echo "{ text: $(printf '%s' "$1" | coded), answer: $("$out/web" "$1" | coded)${2:+, slider: $2, number: $3} },"; }
{
    echo 'const cases = ['
    try $'x1 = 2\nw1 = -3\nx2 = 0\nw2 = 1\nb = 6.8813735870195432\no = tanh(x1*w1 + x2*w2 + b)'
    try $'x1 = 2\nw1 = -1.25\nx2 = 0\nw2 = 1\nb = 6.8813735870195432\no = tanh(x1*w1 + x2*w2 + b)' 1 -1.25
    try $'x1 = 2\nw1 = -1.25\nx2 = 0\nw2 = 1\nb = -4.5\no = tanh(x1*w1 + x2*w2 + b)' 4 -4.5
    try $'x1 = 2\nw1 = -1.25\nx2 = 0\nw2 = 1\nb = -4.5\no = relu(x1*w1 + x2*w2 - 2*b)^2'
    try 'x = 2; y = -x^2 + 2^x + 2*3*x - 7/x; z = exp(y/7)*tanh(x)*sigmoid(x)'
    try $'x = .5 ; y=3e-1\n\nsin(x)*cos(y) + sqrt(x*y)/log(x + 2) - (1 - x)^(y + 1)'
    try 'x = 2; y = x*tanh('
    try 'x = 2; y = x*tanh(x)'
    try $'x = 2\nx = x*x\nx = x + x'
    try $'w = 3\nz = x*w'
    try $'gr\xc3\xb6\xc3\x9fe = 1'
    try 'x = 1; tan(x)'
    try $'x = 1\n(x + 1'
    try 'x = 1; x 2'
    try 'x = 1'
    try ''
    echo '];'
    echo 'const moonLines = `'
    "$out/web" moons 200 | sed '/^{"step":20,/q'
    "$out/web" moons 20 | grep -v '^{'
    "$out/web" moons 200 | sed -n '/^{"step":21,/,/^{"step":200,/p'
    echo '`.split("\n").filter(Boolean);'
} >"$out/cases.js"

with_scripts "$out/web.html" "$out/cases.js" tests/ci/units/browser.js tests/ci/units/web.js >"$out/web-test.html"
open_page "$out/web-test.html" 1 1280
open_page "$out/web-test.html" 0 390
echo "the page of make web has $bytes bytes"
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
