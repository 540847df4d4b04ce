#!/usr/bin/env bash
# page.sh FOLDER: in headless Chromium, the page of tg_tape_html shows at each step what a run of backward says: its line, the
# gradients on the wires, the sums; steps by keys, buttons and slider; plays; is legible in both colour schemes, no wider than a
# telephone, and well-formed.  units/page.c writes the pages, units/page.js steps through them.
set -u
out=$1 passed=0 failed=0
. tests/ci/browser.sh
rm -rf "$out" && mkdir -p "$out" || exit 1
cc -O0 -I. tests/ci/units/page.c -o "$out/page" -lm && "$out/page" "$out" || exit 1

while read -r name end scheme width; do # as XML if its name ends in xhtml
    { echo "const expected ="; cat "$out/$name.json"; } >"$out/$name.js"
    with_scripts "$out/$name.html" "$out/$name.js" tests/ci/units/browser.js tests/ci/units/page.js >"$out/$name-test.$end"
    open_page "$out/$name-test.$end" "$scheme" "$width" </dev/null
done <<'END'
neuron html 1 1280
neuron xhtml 0 390
broadcast xhtml 1 390
shared html 0 1280
folded xhtml 0 1280
END
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
