#!/usr/bin/env bash
# page.sh FOLDER: in headless Chromium, the page of tg_tape_html shows at each step what a run of backward says: its line, the
# gradients on the wires, the sums; steps by keys, buttons and slider; plays; is legible in both colour schemes, no wider than a
# telephone, and well-formed.  units/page.c writes the pages, units/page.js steps through them.
set -u
out=$1 passed=0 failed=0
rm -rf "$out" && mkdir -p "$out" || exit 1
cc -O0 -I. tests/ci/units/page.c -o "$out/page" -lm && "$out/page" "$out" || exit 1

# open_page NAME END SCHEME WIDTH: the page with the script in it; as XML if END is xhtml, and light if SCHEME is 1, dark if 0
open_page()
{
    local file=$out/$1.test.$2 dark= counts
    [ "$3" = 1 ] || dark=dark
    awk -v json="$out/$1.json" -v script=tests/ci/units/page.js '
        function whole(file, line) { while ((getline line <file) > 0) print line; close(file) }
        $0 == "</body>" {
            print "<script>//<![CDATA["; print "const expected ="; whole(json); print ";"; whole(script); print "//]]></script>"
        }
        { print }' "$out/$1.html" >"$file"
    # A window of Chromium is at least 500 wide: a narrower one is a frame, which hands on what the script has found.
    echo "<!DOCTYPE html><body><iframe src='$1.test.$2#$dark' style='width:$4px;height:900px;border:0'></iframe>
        <pre id='report'></pre><script>onmessage = e => { document.querySelector('pre').textContent = e.data; };</script></body>" >"$out/$1.frame.html"
    [ "$4" -ge 500 ] || file=$out/$1.frame.html
    timeout 60 chromium --headless --no-sandbox --disable-gpu --user-data-dir="$out/profile" --window-size="$4,900" \
        --blink-settings=preferredColorScheme="$3" --virtual-time-budget=60000 --dump-dom "file://$(realpath "$file")#$dark" \
        >"$out/$1.$2.dom" 2>"$out/$1.$2.log"
    sed -n '/<pre id="report">/,/<\/pre>/p' "$out/$1.$2.dom" | sed 's/.*<pre id="report">//; s/<\/pre>.*//; /^$/d' >"$out/report"
    counts=$(sed -nE 's/.* ([0-9]+) passed, ([0-9]+) failed$/\1 \2/p' "$out/report")
    sed "s/^/$1.$2: /" "$out/report"
    if [ -z "$counts" ]; then
        echo "failed: $1.$2: no report: is it well-formed?"
        counts='0 1'
    fi
    passed=$((passed + ${counts% *})) failed=$((failed + ${counts#* }))
}

open_page neuron html 1 1280
open_page neuron xhtml 0 390
open_page broadcast xhtml 1 390
open_page shared html 0 1280
open_page folded xhtml 0 1280
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
