#!/usr/bin/env python3
"""lines.py [--write] [HEADER]: the lists of the room LINES of tensorgrad.h, made from the declarations of its public functions.

With --write it writes them into the header.  Else it holds that they are what it would write, so that each function that can
fail or make a node has its line, and tries that on damaged copies; ends in "N passed, N failed"."""
import re
import sys

from checks import check, summary

END = "#endif /* TENSORGRAD_H */"
FIRST = "/* What follows is written by tests/ci/lines.py --write. */\n"
LAST = "/* the end of what lines.py writes */\n"
WIDE = 120
# These neither fail nor make a node, and call no function of the program's.
WITHOUT = """version build_info ok error_message error_code error_count clear_error set_error_handler abort_on_error trim
reset_peak is_grad_enabled default_dtype autocast_dtype cpu_capability""".split()
EXAMPLES = "exp add add_scalar sum_dim sum_dims reshape softmax add_ sgd".split() # others are named after these, or the first
TYPES = {"void (*)(void *user)": "tgi_user_fn *", "bool (*)(void *user)": "tgi_user_test_fn *"}


def declarations(header):
    """[(result, name, [types])] of the public functions, in order."""
    public = re.sub(r"/\*.*?\*/", "", header[:header.index(END)], flags=re.S)
    found = []
    for m in re.finditer(r"^TG_API\s+([^;]*?)\btg_(\w+)\(([^;]*)\);", public, re.M):
        types = []
        for parameter in re.split(r",\s*(?![^()]*\))", m[3]):
            parameter = " ".join(parameter.split())
            if parameter == "void":
                continue
            function = re.sub(r"\(\*\w+\)", "(*)", parameter)
            types.append(TYPES[function] if "(*)" in function else re.sub(r"\b\w+$", "", parameter).strip())
        found.append((" ".join(m[1].split()), m[2], types))
    return found


def folded(text, indent=4):
    """A line, or two where it is too long."""
    if len(text) <= WIDE:
        return text + "\n"
    cut = text.rindex(", ", 0, WIDE) + 1
    return text[:cut] + "\n" + " " * indent + text[cut + 1:] + "\n"


def definer(types, void):
    """The macro that defines a function in front of those with so many parameters."""
    letters = "ABCDEFGHIJ"[:len(types)]
    name = "TGI_%s%d" % ("DOES" if void else "GIVES", len(types))
    parameters = "".join("%s %s, " % (letter, letter.lower()) for letter in letters)
    call = "call(%s)" % ", ".join(letters.lower())
    result = "void" if void else "R"
    lines = ["#define %s(%s)" % (name, ", ".join((["like"] if void else ["R", "like"]) + list(letters))),
             "    static inline %s tgi_at_##like(%s%s (*call)(%s), const char *place) %s)" % (
                 result, parameters, result, ", ".join(letters) or "void", ("TGI_DO(" if void else "TGI_GIVE(R, ") + call)]
    if len(lines[1]) > WIDE:
        cut = lines[1].index(" TGI_")
        lines[1:] = [lines[1][:cut], "        " + lines[1][cut + 1:]]
    if len(lines[1]) > WIDE - 2:
        cut = lines[1].index("(*call)") - len(result) - 2
        lines[1:2] = [lines[1][:cut], "        " + lines[1][cut + 1:]]
    return "".join("%-*s\\\n" % (WIDE - 1, line) for line in lines[:-1]) + lines[-1] + "\n"


def written(header):
    """The lists, as text."""
    results = re.search(r"#define TGI_RESULTS\(R\)(.*?[^\\])\n", header, re.S)[1]
    used = set(re.findall(r"R\((\w+)\)", results))
    first, definers, functions, lines = {}, {}, [], []
    for result, name, types in declarations(header):
        if name in WITHOUT:
            continue
        key = (result, tuple(types), name in used)
        if key not in first or name in EXAMPLES:
            first[key] = name
    for result, name, types in declarations(header):
        key = (result, tuple(types), name in used)
        if name in WITHOUT:
            continue
        if first[key] == name:
            void = result == "void"
            definers[(len(types), void)] = definer(types, void)
            functions.append(folded("%sTGI_%s%d(%s)" % ("TGI_USED " if name in used else "", "DOES" if void else "GIVES",
                                                       len(types), ", ".join(([] if void else [result]) + [name] + types))))
        macro = ["#define tg_%s(...)" % name, "TGI_CALL%s(%s, %s, __VA_ARGS__)" % ("" if types else "0", first[key], name)]
        wide = len(" ".join(macro)) > WIDE
        lines.append("%-*s\\\n    %s\n" % (WIDE - 1, *macro) if wide else " ".join(macro) + "\n")
    return "".join(text for _, text in sorted(definers.items())) + "\n" + "".join(functions) + "\n" + "".join(lines)


def parts(header):
    """What stands before, between and behind the two marks."""
    before, rest = header.split(FIRST)
    inside, behind = rest.split(LAST)
    return before, inside, behind


def check_lists(header):
    check(parts(header)[1] == written(header), "LINES does not list the public functions as they are: run tests/ci/lines.py --write")


def damaged(header):
    """Copies of the header in each of which the lists are not what they should be."""
    yield "a function without a line", re.sub(r"#define tg_add\(\.\.\.\).*\n", "", header)
    yield "a line of another function", header.replace("(add, sub,", "(add, mul,")
    yield "a new function", header.replace("TG_API tg_status tg_print(", "TG_API void tg_plus(int a);\nTG_API tg_status tg_print(")
    yield "another type", re.sub(r"(tg_cumsum\(tg_tensor \*\w+, int)( dim\);)", r"\g<1>64_t\2", header)


def main():
    paths = [argument for argument in sys.argv[1:] if argument != "--write"]
    path = paths[0] if paths else "tensorgrad.h"
    with open(path, encoding="utf-8") as file:
        header = file.read()
    before, inside, behind = parts(header)
    if "--write" in sys.argv:
        with open(path, "w", encoding="utf-8") as file:
            file.write(before + FIRST + written(header) + LAST + behind)
        return 0
    check_lists(header)
    for name, copy in damaged(header):
        check(copy != header and parts(copy)[1] != written(copy), "not noticed: " + name)
    public = [name for _, name, _ in declarations(header)]
    for name in WITHOUT:
        check(name in public, "tg_%s, which needs no line, is no function" % name)
    return summary()


if __name__ == "__main__":
    sys.exit(main())
