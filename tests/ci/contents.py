#!/usr/bin/env python3
"""contents.py [HEADER [COMPANION]]: holds that the tables of contents of tensorgrad.h and of tensorgrad_cuda.cu are true;
ends in "N passed, N failed".

Each tag of the contents has a bar (/* ======== @@TAG or /* -------- @@TAG) above its declarations and above its
implementation, or only above the latter if the contents mark it with *; there is no bar of another tag; the layers are
listed in the order of the contents; each public function is implemented under the tag that declares it; no tag covers
more lines than LONGEST; the comment at the bar of an implementation is the head of the room, with the parts of FORM; no
comment begins with words that only the text before it explains (LEANS); no macro of more than MACRO_LINES lines has a
loop, which a debugger could not step through; a type that ends in one of the five words of the list at the head of the
rooms is named there; no generic code says "cuda": that word stands only in the sections ABOUT_CUDA, in preprocessor
lines and in the public functions with it in their name.  The tags of the companion are the header's, its bars are its
own contents, in order, none of its functions is over MOST_LINES, and its entries stand in the order of
TGI_BACKEND_ENTRIES, but for those that its head names after OUT_OF_ORDER, each of which does not.  The line to which
its head says one can skip is the bar of @@KERNELS, up to AWAY; each number that an enum or a macro gives a name outside
of @@ATTENTION stands with this value among the numbers that were chosen, or has a comment with another number beside
it; each name of a type in its templates is a word that its head explains, outside of @@ATTENTION, too.  Each of these
is tried on a damaged copy of its file, too, which must not pass."""
import os
import re
import sys

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "tools"))
from checks import check, summary
from header import bars
from lines import FIRST, LAST, check_lists

LONGEST = 1200
MOST_LINES = 60
MACRO_LINES = 16  # a loop around the formula of a row of a table has no more
LONG_MACROS = ("TGI_CTC_LOOPS",)  # of before
OUT_OF_ORDER = "Out of the order of the table:"
AWAY = 12
NUMBERS = "/* ---- the numbers that were chosen ----"
NO_WORDS = ("combine", "formula", "places", "number", "kernel", "many", "type", "P", "A", "R")  # explained where they are
LEANS = r"^ *\/\* (?:The same|Both|It|Its|Their|All of it)\b.*"
WORD_TYPES = r"\} (tgi_\w*(?:step|part|place|map|record)s?);"
ABOUT_CUDA = ("the handshake with a companion", "the kinds of devices, each with its name: no other code says it")
FORM = {"Promise:": r"\n   Promise: ", "Types:": r"\n   Types: ", "Way": r"\n   Way\b", "(1)": r"\(\d+\) ",
        "To add": r"\n   To add\b"}


def tag_at(marks, position):
    return next((tag for start, tag in reversed(marks) if start <= position), None)


def cuda_in_generic_code(implementation):
    """The lines of generic code with the word "cuda" in a name or a text."""
    def blank(m):
        return re.sub(r"[^\n]", " ", m[0])
    for section in ABOUT_CUDA:
        implementation = re.sub(r"/\* ---- %s ---- \*/.*?(?=\n/\* (?:---- |[-=]{8} @@))" % re.escape(section), blank,
                                implementation, count=1, flags=re.S)
    implementation = re.sub(re.escape(FIRST) + ".*" + re.escape(LAST), blank, implementation, flags=re.S) # names of functions
    code = re.sub(r"/\*.*?\*/|//[^\n]*", blank, implementation, flags=re.S)
    code = re.sub(r"^ *#(?:[^\n]*\\\n)*[^\n]*", blank, code, flags=re.M)
    code = re.sub(r"^[a-z][^\n;={}]*\btg_(?:cuda\w*|is_cuda)\([^;{}]*\)\s*\{(?:[^\n]*\}|.*?\n\})(?=\n)", blank, code,
                  flags=re.M | re.S)
    return [line.strip() for line in code.split("\n") if re.search("cuda", line, re.I)]


def faults(header):
    """What is wrong with the contents, as sentences."""
    top, rest = header.split("\n*/\n", 1)
    public, implementation = rest.split("#define TENSORGRAD_IMPLEMENTED\n", 1)
    contents = re.findall(r"^ +@@([A-Z_]+) +(\*)? *\S", top, re.M)
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
    layers = re.findall(r"@@([A-Z_]+)", implementation[:implementation.index("*/")])
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
        room = implementation[start:end]
        if FIRST in room and LAST in room:  # nobody reads what a script writes
            room = room[:room.index(FIRST)] + room[room.index(LAST):]
        lines = room.count("\n")
        if lines > LONGEST:
            found.append("@@%s has %d lines, more than %d" % (tag, lines, LONGEST))
        head = implementation[start:implementation.index("*/", start)]
        lacks = [part for part, form in FORM.items() if not re.search(form, head)]
        if lacks:
            found.append("the head of @@%s lacks %s" % (tag, ", ".join(lacks)))
    for m in re.finditer(r"^# *define (\w+)(?:[^\n]*\\\n)+[^\n]*", header, re.M):
        lines = m[0].count("\n") + 1
        if lines > MACRO_LINES and re.search(r"\b(?:for|while) *\(", m[0]) and m[1] not in LONG_MACROS:
            found.append("%s is a macro of %d lines with a loop, more than %d" % (m[1], lines, MACRO_LINES))
    words = set(re.findall(r"\btgi_\w+", implementation[:implementation.index("*/")]))
    found += ["the list of words does not name the type " + name for name in re.findall(WORD_TYPES, implementation)
              if name not in words]
    found += ["generic code says cuda: " + line for line in cuda_in_generic_code(implementation)]
    found += ["a comment leans on its neighbour: " + line for line in re.findall(LEANS, header, re.M)]
    return found


def damaged(header):
    """Copies of the header with one fault each."""
    yield "a tag that the contents do not have", header.replace("/* ======== @@MOVE", "/* ======== @@SHIFT")
    yield "a tag without an implementation", header.replace("       @@SHOW ", "       @@NOWHERE   nothing\n       @@SHOW ")
    yield "a function in another room", re.sub(
        r"(TG_API bool tg_equal\([^;]*;[^\n]*\n)(.*?)(/\* ======== @@SHOW)", r"\2\1\n\3", header, count=1, flags=re.S)
    yield "a head without its invariants", re.sub(r"(@@HASH =[^*]*?)\(1\)(.*?)\(2\)(.*?)\(3\)", r"\1\2\3", header, count=1,
                                                  flags=re.S)
    yield "a room without a head", re.sub(r"\* (=+ @@MOVE =+)\n\n   Promise", r"* \1 */\n\n/* Promise", header, count=1)
    yield "a comment that leans on its neighbour", header.replace("/* tgi_run with an output", "/* The same with an output")
    yield "a kind of device in generic code", header.replace("if (!t->storage->backend->host) {",
                                                              "if (t->storage->backend->type == TG_DEV_CUDA) {", 1)
    yield "a name of a device in generic code", header.replace('"cannot pin a tensor on %s:', '"cannot pin a cuda tensor %s:')
    yield "a word with another meaning", header.replace("} tgi_flash_array;", "} tgi_flash_place;")
    yield "a long macro with a loop", re.sub(
        r"^TGI_ALWAYS_INLINE void tgi_fold_row\(.*?^}", lambda m: "#define TGI_FOLD_ROW_OF(name) " + m[0].replace("\n", " \\\n"),
        header, count=1, flags=re.M | re.S)
    yield "a room that is too long", header.replace("/* ======== @@CHECK", "\n" * LONGEST + "/* ======== @@CHECK")


def faults_of_companion(header, companion):
    """What is wrong with the tags of tensorgrad_cuda.cu and the order of its entries, as sentences."""
    tags = re.findall(r"^ +@@([A-Z_]+) +\*? *\S", header.split("\n*/\n", 1)[0], re.M)
    head = companion[:companion.index("*/")]
    contents = re.findall(r"^ +@@([A-Z_]+) +\S", head, re.M)
    there = [tag for _, tag in bars(companion)]
    found = ["@@%s is no tag of the header" % tag for tag in there if tag not in tags]
    found += ["a bar has no tag: " + line for line in re.findall(r"^/\* ={8} (?!@@).*", companion, re.M)]
    if there != contents:
        found.append("the contents are %s and the bars %s" % (" ".join(contents), " ".join(there)))
    for m in re.finditer(r"\n([^\n]*)\n\{\n.*?\n\}(?=\n)", companion, re.S):
        lines = m[0].count("\n") - 1
        if lines > MOST_LINES:
            found.append("a function has %d lines, more than %d: %s" % (lines, MOST_LINES, m[1].strip()))
    table = re.search(r"^#define TGI_BACKEND_ENTRIES\(OP\)(.*\\\n)+.*", header, re.M)[0]
    entries = re.findall(r"OP\((?:ALL|PLAIN|MEMORY|DEVICE), [^,]+, (\w+),", table)
    defined = re.findall(r"^static [^;{}=]*?\btgi_cuda_(\w+)\([^;{}]*\)\s*\{", companion, re.M)
    defined = [name for name in defined if name in entries]
    if sorted(defined) != sorted(entries):
        found.append("defined are %s" % " ".join(sorted(set(defined) ^ set(entries)) or defined))
    said = re.sub(r"\s+", " ", head.split("\n\n   Words of", 1)[0]).partition(OUT_OF_ORDER)[2].split(". ")[0]
    spared = re.findall(r"(?:^|; ) ?(\w+)", said)

    def in_order(but):
        return [name for name in defined if name not in but] == [name for name in entries if name not in but]
    if not in_order(spared):
        wrong = [a for a, b in zip((n for n in defined if n not in spared), (n for n in entries if n not in spared)) if a != b]
        found.append("not in the order of the table: %s" % " ".join(wrong[:1] or ["?"]))
    for name in spared:
        if in_order([other for other in spared if other != name]):
            found.append("%s is in the order of the table, but the head says that it is not" % name)
    return found


def faults_of_reading(companion):
    """What would mislead a reader: the line to skip to, numbers without a reason, words without an explanation."""
    head = companion[:companion.index("*/")]
    found = []
    line = int(re.search(r"skip\s+to\s+line\s+(\d+)", head)[1])
    bar = companion[:companion.index("/* ======== @@KERNELS")].count("\n") + 1
    if abs(line - bar) > AWAY:
        found.append("the head says that one can skip to line %d, but @@KERNELS is line %d" % (line, bar))
    said = companion[companion.index(NUMBERS):]
    reasons = dict(re.findall(r"^ {7}(TGI_\w+) (\S(?:.*?\S)??) {2,}\S", said[:said.index("*/")], re.M))
    attention = companion.index("/* ======== @@ATTENTION"), companion.index("/* ======== @@LAYERS")
    code = re.sub(r"/\*.*?\*/", "", companion[:attention[0]] + companion[attention[1]:], flags=re.S)
    chosen = {}
    for m in re.finditer(r"^(?:enum \{([^}]*)\};|#define (TGI_\w+) (\(?[0-9][^\n]*))", code, re.M):
        for name, value in re.findall(r"(TGI_\w+) = ([^,}]+)", m[1] or "") or ([(m[2], m[3])] if m[2] else []):
            chosen.setdefault(name, value.strip().strip("()"))
    for name, value in chosen.items():
        if name in ("TGI_FULL_MASK", "TGI_NO_POSITION", "TGI_FLASH_PTX", "TGI_ANY_DTYPE", "TGI_LAST_BLOCK_STEP"):
            continue  # no choices
        wanted = value if re.fullmatch(r"\d+|1 << \d+|\d+ \* TGI_BLOCK", value) else None
        beside = re.search(r"^[^\n]*\b%s\b[^\n]*/\*[^\n]*\d" % name, companion, re.M)
        if name not in reasons and (beside or not wanted):
            continue  # its reason stands beside it, or it follows from others
        if name not in reasons:
            found.append("the numbers that were chosen lack %s" % name)
        elif wanted and reasons[name] != wanted:
            found.append("%s is %s, and the numbers that were chosen say %s" % (name, wanted, reasons[name]))
    found += ["the numbers that were chosen have %s, which is none" % name for name in reasons if name not in chosen]
    words = set(re.findall(r"^ {7}(\w+)(?: {2,}|  )", head[head.index("Words of the kernels"):], re.M)) | set(NO_WORDS)
    for m in re.finditer(r"template <([^>]*)>|^ +typedef typename [^;]*? (\w+);", code, re.M):
        for name in re.findall(r"\bclass (\w+)", m[1] or "") + ([m[2]] if m[2] else []):
            if name.rstrip("_") not in words:
                found.append("the head does not explain the word %s" % name)
    return sorted(set(found))


def damaged_companions(companion):
    """Copies of the companion with one fault each."""
    yield "a tag of the companion that the header does not have", companion.replace("@@REDUCE", "@@FOLD")
    yield "a bar without a tag", companion.replace("/* ======== @@LOSS ", "/* ======== Losses ")
    yield "two rooms whose tags are exchanged", companion.replace(
        "= @@LOSS", "= @@X").replace("= @@INDEX", "= @@LOSS").replace("= @@X", "= @@INDEX")
    yield "a function that is too long", companion.replace("\n{\n", "\n{\n" + "\n" * MOST_LINES, 1)
    yield "an entry in another place", re.sub(
        r"(static bool tgi_cuda_gather\(.*?\n}\n)(.*?static bool tgi_cuda_scatter\(.*?\n}\n)", r"\2\1", companion, flags=re.S)
    yield "an entry that is not there", companion.replace("tgi_cuda_softmax(tgi_thread *S,", "tgi_cuda_softest(tgi_thread *S,")
    yield "a line to skip to that is not there", re.sub(r"skip to line \d+", "skip to line 1000", companion)
    yield "a number without a reason", companion.replace("enum { TGI_SEGMENT = 64 };", "enum { TGI_SEGMENT = 64, TGI_SHARE = 3 };")
    yield "a number with the reason of another", companion.replace("enum { TGI_SEGMENT = 64 };", "enum { TGI_SEGMENT = 32 };")
    yield "a word that nobody explains", companion.replace("template <class word> __global__ void tgi_copy_bits",
                                                           "template <class unit> __global__ void tgi_copy_bits")
    yield "an entry that is said to be out of order", companion.replace(OUT_OF_ORDER, OUT_OF_ORDER + " gather;")


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else "tensorgrad.h"
    with open(path, encoding="utf-8") as file:
        header = file.read()
    companion_path = sys.argv[2] if len(sys.argv) > 2 else "tensorgrad_cuda.cu"
    with open(companion_path, encoding="utf-8") as file:
        companion = file.read()
    def faults_in(text):
        return faults_of_companion(header, text) + faults_of_reading(text)
    found = faults_in(companion)
    check(not found, "the contents of " + companion_path, "\n".join(found))
    for name, copy in damaged_companions(companion):
        check(copy != companion and len(faults_in(copy)) > len(found), "not noticed: " + name)
    found = faults(header)
    check(not found, "the contents of " + path, "\n".join(found))
    check_lists(header)
    for name, copy in damaged(header):
        check(copy != header and len(faults(copy)) > len(found), "not noticed: " + name)
    return summary()


if __name__ == "__main__":
    sys.exit(main())
