#!/usr/bin/env python3
"""engine.py: the map of examples/engine.h and 06_engine.c is true: where a comment says "header: @@ROOM name, name; @@ROOM name",
tensorgrad.h has that room, and the name stands in it.  Each piece of engine.h, a comment and what it is about, is on the map; the
engine has at most a hundred lines.  The examples: 01 to 14 are there, and each has at most 150 lines, has what it prints in
examples/expected, and begins with what to READ, what to CHANGE and what it PRINTS.  A map with a wrong name and one with a wrong room
do not pass."""
import glob
import os
import re

from checks import check, summary

header = open("tensorgrad.h").read()
bars = [(m.start(), m[1]) for m in re.finditer(r"^/\* [=-]{8} @@([A-Z_]+)", header, re.M)]
rooms = {}
for (start, tag), (end, _) in zip(bars, bars[1:] + [(len(header), None)]):
    rooms[tag] = rooms.get(tag, "") + header[start:end]


def places(text):
    """[(room, name)] of the map in this text"""
    found = []
    for comment in re.findall(r"/\*.*?\*/", text, re.S):
        for part in re.findall(r"header:((?:\s*@@[^;*]*;?)+)", comment):
            for room, names in re.findall(r"@@([A-Z_]+)([^;@]*)", part):
                found += [(room, name) for name in re.findall(r"\w+", names) if name != "and"]
    return found


def wrong(text):
    return [(room, name) for room, name in places(text) if not re.search(r"\b%s\b" % name, rooms.get(room, ""))]


files = {name: open("examples/" + name).read() for name in ("engine.h", "06_engine.c")}
for name, text in files.items():
    check(len(places(text)) >= 4, "%s has a map" % name)
    for room, piece in places(text):
        check((room, piece) not in wrong(text), "%s: the header has %s in @@%s" % (name, piece, room))
check(wrong(files["engine.h"].replace("tgi_node_new", "tgi_node_newer")), "a wrong name is noticed")
check(wrong(files["engine.h"].replace("@@SCOPE", "@@SCOOP")), "a wrong room is noticed")
for comment in re.findall(r"^/\*.*?\*/", files["engine.h"], re.S | re.M)[1:]:
    check("header:" in comment, "engine.h: this piece is on the map", comment)
check(files["engine.h"].count("\n") <= 100, "engine.h has at most a hundred lines")
programs = [os.path.basename(path) for path in sorted(glob.glob("examples/*.c"))]
check([p[:2] for p in programs[:14]] == ["%02d" % n for n in range(1, 15)], "the examples 01 to 14")
for program in programs:
    text, name = open("examples/" + program).read(), program[:-2]
    first = text[:text.find("*/")]
    parts = re.findall(r"^   ([A-Z]+)  ", first, re.M)
    check(text.count("\n") <= 150, "%s has at most 150 lines" % program)
    check(first.startswith("/* %s: " % program), "%s begins with its name" % program)
    check(parts[:3] == ["READ", "CHANGE", "PRINTS"], "%s: READ, CHANGE, PRINTS" % program)
    check(os.path.getsize("examples/expected/%s.txt" % name) > 0, "%s: what it prints" % program)
raise SystemExit(summary())
