#!/usr/bin/env python3
"""manual.py: the manual, that is the public part of tensorgrad.h, is complete and names nothing that is not there.

Every public function, type and TG_ macro has a comment of its own, and so has every field and enumerator; that of an op names the
function of PyTorch.  A comment is that of the one declaration directly below it, where editors look; in a comment above several
macros each must be named, and a comment on the lines of a declaration counts only for a macro, field or enumerator.  And every tg_ or tgi_ name in a comment of tensorgrad.h and
tensorgrad_cuda.cu, and in the READMEs, exists: in the public part and the READMEs a tg_ name is a public one.  `tg_*_scalar`
stands for any name of that form.  Before that the script plants such mistakes in copies of the text, and each must be found."""
import os, re, sys

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "tools"))
from checks import check, summary
from header import END, TORCH, items_of, split

NOT_IN_PYTORCH = ("tg_set", "tg_rope", "tg_filter_logits", "tg_repetition_penalty", "tg_sample_logits")


def is_documented(items, k):
    item, above = items[k], k - 1
    inside = "{" in item.code and "\n" in item.code # then comments on its lines are those of fields
    if item.own and not inside:
        return item.kind == "macro"
    if item.kind == "macro": # definitions stand in branches of #ifdef: any comment since the last declaration may name it
        while above >= 0 and not (items[above] and items[above].kind in ("function", "type")):
            if items[above] and items[above].kind == "comment" and re.search(r"\b%s\b" % item.name, items[above].own):
                return True
            above -= 1
        return False
    return items[above] is not None and items[above].kind == "comment"


def undocumented(public):
    """What lacks a comment, as text; the number of places looked at."""
    items, missing, looked = items_of(public), [], 0
    first_comment = next(i.own for i in items if i and i.kind == "comment")
    configured = set(re.findall(r"^ {7}(TG_\w+) {3}", first_comment, re.M))
    documented = {i.name for k, i in enumerate(items) if i and i.kind == "macro" and is_documented(items, k)} | configured
    source = public.split("\n")
    line_of = lambda bar: public.count("\n", 0, public.index(bar))
    ops = range(line_of("/* -------- @@ELEMENTWISE"), line_of("/* ======== @@CHECK")) # the rooms of the ops
    for k, item in enumerate(items):
        if not item or item.kind not in ("function", "type", "macro"):
            continue
        looked += 1
        if not (item.name in documented if item.kind == "macro" else is_documented(items, k)):
            missing.append("%s %s (line %d) has no comment of its own" % (item.kind, item.name, item.line + 1))
        elif item.kind == "function" and item.line in ops and not TORCH.search(items[k - 1].own) and item.name not in NOT_IN_PYTORCH:
            missing.append("the comment of %s names no function of PyTorch" % item.name)
        if item.kind == "type" and "{" in item.code and "\n" in item.code:
            for n in range(item.line + 1, item.end):
                if re.search(r"\w", split(source[n])[0]):
                    looked += 1
                    if "/*" not in source[n]:
                        missing.append("a field of %s (line %d) has no comment: %s" % (item.name, n + 1, source[n].strip()))
    return missing, looked


def names_in(text):
    """The names that a text speaks of; one with a * stands for any name of that form."""
    return set(re.findall(r"(?<![\w/.-])tgi?_[a-z0-9*][a-z0-9_*]*", text))


class Known:
    def __init__(self, public, *sources):
        code = split(public)[0]
        items = [i for i in items_of(public) if i]
        self.public = {i.name for i in items if i.name} | set(re.findall(r"\bstruct (tg_\w+)", code))
        everything = "\n".join(split(s)[0] for s in sources)
        self.all = set(re.findall(r"\b\w+", everything)) | self.public
        self.pasted = [re.sub(r"##([a-zA-Z]\w*)", r"(\\w+)", p).replace("##", "") for p in set(re.findall(r"\btgi?_(?:\w|##)*##\w*(?:##\w+)*", everything))]

    def has(self, name, public_only):
        if "*" in name or (name.endswith("_") and name not in self.all): # a pattern, or what names begin with
            form = name.replace("*", r"\w+") + (r"\w+" if name.endswith("_") else "")
            return any(re.fullmatch(form, n) for n in (self.public if public_only else self.all))
        if name in (self.public if public_only else self.all):
            return True
        pasted = [] if public_only else [re.fullmatch(p, name) for p in self.pasted]
        return any(m and all(part in self.all for part in m.groups()) for m in pasted)


def unknown(header, companion, readme):
    """Names that do not exist, as text; the number of names looked at."""
    cut = header.index(END)
    known = Known(header[:cut], header, companion)
    missing, looked = [], 0
    for where, text, prose_only, public in (("the manual", header[:cut], True, True), ("tensorgrad.h", header[cut:], True, False),
                                            ("tensorgrad_cuda.cu", companion, True, False), ("a README", readme, False, True)):
        prose = "\n".join(text[a:b] for a, b in split(text)[1]) if prose_only else text
        for name in sorted(names_in(prose)):
            looked += 1
            if not known.has(name, public and name.startswith("tg_")):
                missing.append("%s speaks of %s, which does not exist" % (where, name))
    return missing, looked


def problems(header, companion, readme):
    return undocumented(header[:header.index(END)])[0] + unknown(header, companion, readme)[0]


def plant(header, companion, readme):
    """Each mistake, planted in a copy of the text, is found, and nothing else is."""
    def finds(what, old, new, text=0):
        texts = [header, companion, readme]
        check(old in texts[text], "planting: the text has no %r" % old)
        texts[text] = texts[text].replace(old, new, 1)
        more = [p for p in problems(*texts) if p not in before and not re.sub(r"line \d+", "", p) in without_lines]
        check(len(more) == 1 and what in more[0], "planted %s, found %s" % (what, more))

    before = problems(header, companion, readme)
    without_lines = {re.sub(r"line \d+", "", p) for p in before}
    last = "\n#ifdef __cplusplus\n}\n#endif\n" + END
    family = re.search(r"\nTG_API void tg_drop\(.*\n", header).group()
    alone = "\n/* Two functions, tg_other and tg_planted. */\nTG_API void tg_other(void);\nTG_API void tg_planted(void);\n"
    beside = "\nTG_API void tg_planted(void); /* The comment stands beside it. */\n"
    finds("tg_planted", family, family + "TG_API tg_tensor *tg_planted(tg_tensor *a, tg_tensor *b);\n")
    finds("tg_planted", last, "\nTG_API tg_tensor *tg_planted(tg_tensor *a,\n                             tg_tensor *b);\n" + last)
    finds("tg_planted", last, alone + last)
    finds("tg_planted", last, beside + last)
    finds("tg_tanh", "/* Hyperbolic tangent.  torch.tanh */", "/* Hyperbolic tangent. */")
    finds("tg_planted", last, "\ntypedef struct tg_planted tg_planted;\n" + last)
    finds("TG_PLANTED", last, "\n#define TG_PLANTED(x) (x)\n" + last)
    finds("int more;", "    TG_BOOL ", "    int more;\n    TG_BOOL ")
    finds("tg_no_such_name", "/* Status codes.", "/* Status codes, see tg_no_such_name().")
    finds("tg_no_such_*", "/* Status codes.", "/* Status codes of tg_no_such_*.")
    finds("tgi_no_such_name", END, END + " /* see tgi_no_such_name */")
    finds("tgi_no_such_name", "#include <cublas_v2.h>", "#include <cublas_v2.h> // tgi_no_such_name", 1)
    finds("tg_no_such_name", "# tensorgrad\n", "# tensorgrad\n\n`tg_no_such_name` is not there.\n", 2)


def main():
    header, companion = (open(f).read() for f in ("tensorgrad.h", "tensorgrad_cuda.cu"))
    readme = "\n".join(open(f).read() for f in ("README.md", "examples/README.md", "tests/README.md"))
    plant(header, companion, readme)
    for missing, looked in (undocumented(header[:header.index(END)]), unknown(header, companion, readme)):
        for m in missing:
            check(False, m)
        for _ in range(looked - len(missing)):
            check(True, "")


main()
sys.exit(summary())
