#!/usr/bin/env python3
"""contents.py [HEADER]: holds that the table of contents of tensorgrad.h is true; ends in "N passed, N failed".

Each tag of the contents has a bar (/* ======== @@TAG or /* -------- @@TAG) above its declarations and above its implementation,
or only above the latter if the contents mark it with *; there is no bar of another tag; the layers are listed in the
order of the contents; each public function is implemented under the tag that declares it; no tag covers more lines than
LONGEST.  Each of these is tried on a damaged copy of the header, too, which must not pass."""
import re
import sys

from checks import check, summary

LONGEST = 2300


def bars(text):
    """[(position, tag)] of a half of the header"""
    return [(m.start(), m[1]) for m in re.finditer(r"^/\* [=-]{8} @@([A-Z]+)", text, re.M)]


def tag_at(marks, position):
    return next((tag for start, tag in reversed(marks) if start <= position), None)


def faults(header):
    """What is wrong with the contents, as sentences."""
    top, rest = header.split("\n*/\n", 1)
    public, implementation = rest.split("#define TENSORGRAD_IMPLEMENTED\n", 1)
    contents = re.findall(r"^ +@@([A-Z]+) +(\*)? *\S", top, re.M)
    tags = [tag for tag, _ in contents]
    declared, implemented = bars(public), bars(implementation)
    found = []
    for tag, private in contents:
        places = [t for _, t in declared].count(tag)
        if places != (0 if private else 1):
            found.append("@@%s stands above %d groups of declarations" % (tag, places))
        if tag not in [t for _, t in implemented]:
            found.append("@@%s stands above no implementation" % tag)
    for _, tag in declared + implemented:
        if tag not in tags:
            found.append("@@%s is not in the contents" % tag)
    layers = re.findall(r"@@([A-Z]+)", implementation[:implementation.index("*/")])
    if layers != [tag for tag in tags]:
        found.append("the layers are not the contents: %s" % " ".join(layers))
    home = {}
    for m in re.finditer(r"^TG_API\b[^;]*?\b(tg_\w+)\(", public, re.M):
        home[m[1]] = tag_at(declared, m.start())
    for m in re.finditer(r"^(?!static\b|typedef\b)[a-z][^\n;={}#]*?\b(tg_\w+)\([^;{}]*\)\s*\{", implementation, re.M):
        there = tag_at(implemented, m.start())
        if m[1] in home and home[m[1]] != there:
            found.append("%s is declared under @@%s and implemented under @@%s" % (m[1], home[m[1]], there))
    ends = implemented[1:] + [(len(implementation), None)]
    for (start, tag), (end, _) in zip(implemented, ends):
        lines = implementation.count("\n", start, end)
        if lines > LONGEST:
            found.append("@@%s has %d lines, more than %d" % (tag, lines, LONGEST))
    return found


def damaged(header):
    """Copies of the header with one fault each."""
    yield "a tag that the contents do not have", header.replace("/* ======== @@MOVE", "/* ======== @@SHIFT")
    yield "a tag without an implementation", header.replace("       @@SHOW ", "       @@NOWHERE   nothing\n       @@SHOW ")
    yield "a function in another room", re.sub(
        r"(TG_API bool tg_equal\([^;]*;[^\n]*\n)(.*?)(/\* ======== @@SHOW)", r"\2\1\n\3", header, count=1, flags=re.S)
    yield "a room that is too long", header.replace("/* ======== @@CHECK", "\n" * LONGEST + "/* ======== @@CHECK")


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else "tensorgrad.h"
    with open(path, encoding="utf-8") as file:
        header = file.read()
    found = faults(header)
    check(not found, "the contents of " + path, "\n".join(found))
    for name, copy in damaged(header):
        check(copy != header and len(faults(copy)) > len(found), "not noticed: " + name)
    return summary()


if __name__ == "__main__":
    sys.exit(main())
