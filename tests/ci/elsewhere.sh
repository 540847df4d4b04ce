#!/usr/bin/env bash
# elsewhere.sh BUILD LOCALES [K/N]: `make -j1 test` with the programs that are in BUILD, but on another machine as it were: the
# sources in a folder with a space, where nobody may write, by another user if this one is root; a locale with a decimal comma,
# from the folder LOCALES or of the system, another time zone and TMPDIR, and no home.  With K/N every N-th test, from the K-th, and
# all examples.
set -e
turn=${3:-0/1} n=0 tests=()
place=$(mktemp -d)
trap 'chmod -R u+w "$place"; rm -rf "$place"' EXIT
tree="$place/source tree" temporary="$place/temporary files"
mkdir "$tree" "$temporary"
git ls-files -z | tar --null -T - -cf - | tar -xpf - -C "$tree"
cp -a "$1" "$place/build"
cp -r "$2" "$place/locales"
chmod -R a-w,a+rX "$tree"
chmod a+rx "$place"
run=(env -u HOME LC_ALL=de_DE.UTF-8 LOCPATH="$place/locales" TZ=Asia/Kathmandu TMPDIR="$temporary")
if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null 2>&1; then
    chown -R 65534:65534 "$place/build" "$temporary"
    run+=(setpriv --reuid=65534 --regid=65534 --clear-groups)
else
    echo "skipped: another user: this one is not root, or there is no setpriv"
fi
"${run[@]}" sh -c ': 2>/dev/null >"$0/file"' "$tree" && echo 'skipped: sources that are read-only: this user may write them'
for source in tests/test_*.c; do
    if [ $((n++ % ${turn#*/})) -eq "${turn%/*}" ]; then tests+=("$place/build/$(basename "$source" .c)"); fi
done
"${run[@]}" make -C "$tree" -j1 test BUILD="$place/build" TESTS="${tests[*]}"
