# shellcheck shell=bash
# Pages in headless Chromium, for page.sh and web.sh: sourced, with $out as the folder of all files.

# with_scripts PAGE SCRIPT...: prints the page with the scripts at its end, also where it is read as XML
with_scripts()
{
    sed '/^<\/body>$/,$d' "$1"
    echo '<script>//<![CDATA['
    cat "${@:2}"
    echo '//]]></script>'
    sed -n '/^<\/body>$/,$p' "$1"
}

# open_page FILE SCHEME WIDTH: opens a page that has scripts in it, light if SCHEME is 1, dark if 0; prints what they report and
# adds it to $passed and $failed
open_page()
{
    local file name dark= counts opened
    file=$(realpath "$1") name=$(basename "$1")
    [ "$2" = 1 ] || dark=dark
    opened="file://$file#$dark"
    if [ "$3" -lt 500 ]; then # a window of Chromium is no narrower: a frame is, which hands the report on
        echo "<!DOCTYPE html><body><iframe src='$opened' style='width:$3px;height:900px;border:0'></iframe><pre id='report'></pre>
            <script>onmessage = e => { document.querySelector('pre').textContent = e.data; };</script></body>" >"$out/frame.html"
        opened="file://$(realpath "$out/frame.html")"
    fi
    timeout 100 chromium --headless --no-sandbox --disable-gpu --user-data-dir="$out/profile" --window-size="$3,900" \
        --blink-settings=preferredColorScheme="$2" --virtual-time-budget=90000 --dump-dom "$opened" \
        >"$out/$name.dom" 2>"$out/$name.log"
    sed -n '/<pre id="report">/,/<\/pre>/p' "$out/$name.dom" | sed 's/.*<pre id="report">//; s/<\/pre>.*//; /^$/d' >"$out/report"
    sed "s/^/$name: /" "$out/report"
    counts=$(sed -nE 's/.* ([0-9]+) passed, ([0-9]+) failed$/\1 \2/p' "$out/report")
    if [ -z "$counts" ]; then
        echo "failed: $name: no report: is it well-formed?"
        counts='0 1'
    fi
    passed=$((passed + ${counts% *})) failed=$((failed + ${counts#* }))
}
