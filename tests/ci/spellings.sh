#!/usr/bin/env bash
# spellings.sh COMPILER FLAGS DECLARATIONS: whether tensorgrad.h declares all functions of a file of declarations, in the same
# way: the file is included after it.
file=$(mktemp --suffix=.c) || exit 1
trap 'rm -f "$file"' EXIT
{
    printf '#include "tensorgrad.h"\n#ifdef __cplusplus\nextern "C" {\n#endif\n#include "%s"\n#ifdef __cplusplus\n}\n#endif\n' \
        "$(realpath "$3")"
    printf 'int main(void) { return 0; }\n'
} >"$file"
$1 $2 -I. -fsyntax-only "$file" || exit 1
for name in $(sed -nE 's/^extern [^(]*\b(tg_[a-z0-9_]+)\(.*/\1/p' "$3"); do
    grep -qE "^TG_API .*\b$name\(" tensorgrad.h || { echo "tensorgrad.h does not declare $name"; missing=1; }
done
[ -z "${missing:-}" ]
