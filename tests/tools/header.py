"""What scripts read from the text of tensorgrad.h and tensorgrad_cuda.cu: code apart from comments, the declarations of the
public part, the bars of the rooms and the table of contents, definitions with those that macros make, and the op table."""
import bisect
import re

END = "#endif /* TENSORGRAD_H */"
TORCH = re.compile(r"\b(?:torch(?:\.\w+)+|F\.\w+|nn\.[A-Z]\w+)") # functions of PyTorch


def split(text):
    """The code, with a space for every character of a comment, and the comments as (start, end) in the text."""
    comments = [m.span() for m in re.finditer(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"', text, re.S) if m.group()[0] == "/"]
    code = list(text)
    for start, end in comments:
        code[start:end] = re.sub(r"[^\n]", " ", text[start:end])
    return "".join(code), comments


class Item:
    """A comment that stands alone, a directive or a declaration, with its lines; `own` is the text of comments on its lines."""

    def __init__(self, kind, name, line, end, own):
        self.kind, self.name, self.line, self.end, self.own = kind, name, line, end, own


def name_of(code):
    """Kind and name of a declaration or directive: kind "" for what the manual need not describe."""
    for kind, pattern in (("macro", r"\s*#\s*define (TG_\w+)"), ("function", r"\s*TG_API\b[^(]*?(\w+)\s*\("),
                          ("type", r"\s*typedef\b[^{]*?\(\*(tg_\w+)\)"), ("type", r"\s*typedef\b.*?(tg_\w+)\s*;\s*$")):
        found = re.match(pattern, code, re.S)
        if found:
            return kind, found.group(1)
    return ("type", "enum") if re.match(r"\s*enum\s*\{\s*TG_", code) else ("", "")


def items_of(public):
    """The items of the public part in order; None is a blank line."""
    code, comments = split(public)
    lines = code.split("\n")
    at = {public.count("\n", 0, start): (start, end) for start, end in comments} # the last comment that starts on a line
    items, line = [], 0
    while line < len(lines):
        first, text = line, lines[line]
        if not text.strip():
            span = at.get(line)
            line = public.count("\n", 0, span[1]) if span else line
            items.append(Item("comment", "", first, line, public[span[0]:span[1]]) if span else None)
        else:
            directive = text.lstrip().startswith("#")
            while line + 1 < len(lines) and not re.match(r'\s*(extern "C" \{|\}|template.*>|(private|public):|TGI_\w+\(\w+\))\s*$', text):
                if lines[line].endswith("\\") if directive else text.count("{") != text.count("}") or text.rstrip()[-1] not in ";}":
                    line += 1
                    text += "\n" + lines[line]
                else:
                    break
            own = [at[k] for k in range(first, line + 1) if k in at]
            if own:
                line = max(line, public.count("\n", 0, own[-1][1]))
            items.append(Item(*name_of(text), first, line, " ".join(public[a:b] for a, b in own)))
            items[-1].code = text
        line += 1
    return items


def bars(text):
    """[(position, tag)] of a half of the header"""
    return [(m.start(), m[1]) for m in re.finditer(r"^/\* [=-]{8} @@([A-Z_]+)", text, re.M)]


def contents(text):
    """The table of contents in the first comment: [(tag or None, sentence)], where None is the title of an act."""
    rows = re.findall(r"^ +@@([A-Z_]+) +(?:\* )? *(\S.*)$|^ {3}(Act [IVX]+, .*)$", text[:text.index("*/")], re.M)
    return [(tag or None, sentence or act) for tag, sentence, act in rows]


class Chunk:
    """A stretch of whole lines of one file, [first, end): what a page shows; tag "" is of no room."""

    def __init__(self, tag, half, first, end):
        self.tag, self.half, self.first, self.end = tag, half, first, end


def chunks(text):
    """The file cut at its bars and, in the header, where the public part ends and before the licence."""
    cuts = [(text.count("\n", 0, at), tag) for at, tag in bars(text)]
    line_of = lambda mark: text.count("\n", 0, text.index(mark))
    last, half = text.count("\n"), 0
    if END in text:
        half = line_of(END) + 1
        cuts += [(half, ""), (line_of("\n/*\ntensorgrad is available under") + 1, "")]
    cuts = [(0, "")] + sorted(cuts) + [(last, "")]
    return [Chunk(tag, "declarations" if a < half else "implementation", a, b) for (a, tag), (b, _) in zip(cuts, cuts[1:]) if a < b]


class Definition:
    """Where a name is defined: file, line, what it is; row is the line of the row of a table that a macro made it from."""

    def __init__(self, name, file, line, kind, row=None, code=""):
        self.name, self.file, self.line, self.kind, self.row, self.code = name, file, line, kind, row, code


class Macro:
    def __init__(self, line, params, body):
        self.line, self.params, self.body = line, params, body


def arguments(text, at):
    """The arguments of a call whose ( is at text[at], and where it ends."""
    depth, start, args, i = 0, at + 1, [], at
    for m in re.finditer(r'"(?:\\.|[^"\\])*"|[()\[\]{},]', text[at:]):
        i, c = at + m.start(), m.group()
        if c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
            if depth == 0:
                break
        elif c == "," and depth == 1:
            args.append(text[start:i])
            start = i + 1
    return [a.strip() for a in args + [text[start:i]]], i + 1


class Names:
    """All definitions of the files, given as {name: text}; the later ones may use the macros of those before."""

    def __init__(self, files):
        self.files, self.code, self.defined, self.macros, self.made = files, {}, {}, {}, {}
        for n, (file, text) in enumerate(files.items()):
            self.code[file] = split(text)[0]
            self.ends = [m.start() for m in re.finditer("\n", text)] # of the lines
            self.offset = n * 10 ** 6 # macros are found by lines that go on from file to file
            self.find_macros(file)
            self.find_written(file)
            self.find_made(file)

    def add(self, name, file, line, kind, row=None, code=""):
        """Keeps the first definition, of which that of a macro counts least."""
        known = self.defined.get(name)
        if not known or (known.kind == "macro" != kind) or (known.kind == "declared" != kind):
            self.defined[name] = Definition(name, file, line, kind, row, code)

    def find_macros(self, file):
        code = self.code[file]
        for m in re.finditer(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(?:\(([^)]*)\))?((?:.*\\\n)*.*)$", code, re.M):
            line = bisect.bisect_left(self.ends, m.start(1))
            params = None if m[2] is None else [p.strip() for p in m[2].replace("\\\n", "").split(",")]
            self.macros.setdefault(m[1], []).append(Macro(line + self.offset, params, m[3].replace("\\\n", " \n")))
            self.add(m[1], file, line, "macro")

    def macro(self, name, line):
        return next((m for m in reversed(self.macros.get(name, [])) if m.line <= line), None)

    def find_written(self, file):
        """Functions, types and enumerators.  No empty line is within the head of a function: a row of a macro ends there."""
        code = re.sub(r"^[ \t]*#(?:.*\\\n)*.*$", lambda m: re.sub(r"[^\n]", " ", m[0]), self.code[file], flags=re.M)
        line = lambda at: bisect.bisect_left(self.ends, at)
        for m in re.finditer(r"^(?!static_assert|TGI_COMPOSED|TGI_ADDS_PRODUCT)[A-Za-z_](?:(?!\n\n)[^;{}=])*?\b(tgi?_\w+)\((?:(?!\n\n)[^;{}]|\{\})*?\)\s*(?=(\{(?:.*\}$|[^\n]*\n(?:(?!\}).*\n)*\}))|;)", code, re.M):
            if m[2]:
                self.add(m[1], file, line(m.start(1)), "function", code=m[2])
            else:
                self.add(m[1], file, line(m.start(1)), "declared")
        for m in re.finditer(r"^(?:template <[^;{]*>\s+)?(?:typedef )?(?:struct|enum|union)\b(?: alignas\(.*\)| __align__\([^)]*\))?"
                             r" ?(tgi?_\w+)?[^;{]*\{(?:.*\}|(?:(?!\}).*\n)*\})\s*(tgi?_\w+)?[^;\n]*;", code, re.M):
            for name in filter(None, m.groups()):
                self.add(name, file, line(m.start()), "type")
        for m in re.finditer(r"^(?:\}|static [^;()=\n]*\{.*?\}) (tgi_\w+)[^;\n]*|^static [^;=\n]*?\(\*(?:const )?(tgi_\w+)\)", code, re.M):
            self.add(m[1] or m[2], file, line(m.end()), "variable")
        for m in re.finditer(r"^(?!typedef|struct|enum|union)[A-Za-z_](?:[^;{}()=\n]|\(\*)*\b(tgi_\w+)\)?(?:\[[^\]]*\])*(?: =|;)", code, re.M):
            self.add(m[1], file, line(m.start()), "variable")
        for m in re.finditer(r"^typedef [^{};]*?(?:\(\*(tgi?_\w+)\)[^;]*|\b(tgi?_\w+)(?:\[\w+\]| __attribute__.*)?);", code, re.M):
            self.add(m[1] or m[2], file, line(m.start()), "type")
        for m in re.finditer(r"\bFLAG\((\w+), \d+\)", self.code[file]): # enumerators that a table makes
            self.add("TGI_FLAG_" + m[1], file, line(m.start(1)), "enumerator")
        for m in re.finditer(r"\benum\b[^{};]*\{([^}]*)\}", code):
            for e in re.finditer(r"(?:^|,)\s*(TGI?_\w+)", m[1]):
                self.add(e[1], file, line(m.start(1) + e.start(1)), "enumerator")

    def expand(self, text, line, hidden=()):
        """The text with the macros expanded, as a preprocessor does, but for those that are defined after the line."""
        out, at = [], 0
        for m in iter(lambda: re.compile(r"[A-Za-z_]\w*").search(text, at), None):
            macro = None if m[0] in hidden else self.macro(m[0], line)
            out.append(text[at:m.start()])
            at = m.end()
            if not macro or (macro.params is not None and not re.match(r"\s*\(", text[at:])):
                out.append(m[0])
            elif macro.params is None:
                out.append(self.expand(macro.body, line, hidden + (m[0],)))
            else:
                args, at = arguments(text, text.index("(", at))
                out.append(self.expand(self.substitute(macro, args, line, hidden), line, hidden + (m[0],)))
        return "".join(out) + text[at:]

    def substitute(self, macro, args, line, hidden=()):
        names = ["__VA_ARGS__" if p == "..." else p for p in macro.params]
        args = args[:len(names) - 1] + [", ".join(args[len(names) - 1:])]
        values = dict(zip(names, args))
        body = re.sub(r"(?<!#)#\s*([A-Za-z_]\w*)", lambda m: '"%s"' % m[1], macro.body)

        def put(m):
            if m[0] not in values:
                return m[0]
            pasted = body[:m.start()].rstrip().endswith("##") or body[m.end():].lstrip().startswith("##")
            return values[m[0]] if pasted else self.expand(values[m[0]], line, hidden)
        return re.sub(r"\s*##\s*", "", re.sub(r'"(?:\\.|[^"\\])*"|[A-Za-z_]\w*', put, body))

    def rows(self, table, line, args=None):
        """The rows of a table, that is of a macro that calls its first argument: [(line, [columns])]."""
        macro, found = self.macro(table, line), []
        if not macro or not macro.params:
            return []
        for m in re.finditer(r"\b[A-Z]\w*(?=\()", macro.body):
            columns = arguments(macro.body, m.end())[0]
            row = macro.line + macro.body.count("\n", 0, m.start())
            if m[0] == macro.params[0]:
                values = dict(zip(macro.params[1:], args or []))
                found.append((row, [re.sub(r"[A-Za-z_]\w*", lambda w: values.get(w[0], w[0]), c) for c in columns]))
            elif columns[0] == macro.params[0]:
                found += self.rows(m[0], line, args)
        return found

    def find_made(self, file):
        """What the calls of macros that stand in no function define."""
        code = self.code[file]
        for m in re.finditer(r"^([A-Z]\w*)\(", code, re.M):
            line = bisect.bisect_left(self.ends, m.start())
            args = arguments(code, m.end() - 1)[0]
            rows = self.rows(m[1], line + self.offset, args[1:]) if self.macros.get(args[0]) else []
            calls = [(row, "%s(%s)" % (args[0], ", ".join(columns))) for row, columns in rows]
            for row, call in calls or [(None, "%s(%s)" % (m[1], ", ".join(args)))]:
                text = self.expand(call, line + self.offset)
                flat, depth = [], 0
                for part in re.split(r"([{}])", text):
                    depth -= part == "}"
                    flat.append(part if depth == 0 else "")
                    depth += part == "{"
                for d in re.finditer(r"\b(tgi?_\w+)\s*\([^;{}]*\)\s*\{|\btypedef struct \{\}\s*(tgi?_\w+);|\bstruct (tgi?_\w+)\b[^;{]*\{", "".join(flat)):
                    name = d[1] or d[2] or d[3]
                    self.add(name, file, line, "made", row, call + " " + text)
                    self.made.setdefault((file, line), []).append((name, row))


TABLES = ("TGI_ELEMENTWISE_OPS", "TGI_OPS", "TGI_UNRECORDED_OPS", "TGI_COMPOSITES")


class Op:
    def __init__(self, name, table, line, columns):
        self.name, self.table, self.line, self.columns = name, table, line, columns
        self.flags = set(re.findall(r"\b[A-Z][A-Z0-9_]+\b", columns[4 if table == TABLES[0] else 2]))


def ops_of(names):
    """The op table: {name: Op} in its order."""
    return {columns[0]: Op(columns[0], table, line, columns) for table in TABLES for line, columns in names.rows(table, 10 ** 5)}
