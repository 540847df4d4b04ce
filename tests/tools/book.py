#!/usr/bin/env python3
"""book.py manual FILE | book FOLDER: writes the manual as one page, from the comments of the public part of tensorgrad.h; or
tensorgrad.h and tensorgrad_cuda.cu as pages, one for each room, and the manual beside the folder.  Each page is whole: no
network, no script or font of others.  Called from the root of the repository, by `make manual` and `make book`."""
import os
import re
import sys
from html import escape

from header import END, Names, TABLES, TORCH, chunks, contents, items_of, ops_of, split
from markup import Code, SCRIPT, WORDS, link, page, prose

HEADER, COMPANION = "tensorgrad.h", "tensorgrad_cuda.cu"


class Library:
    """The two files, their pages, and what belongs together: functions, rows, rules and kernels."""

    def __init__(self, header, companion):
        self.text = {HEADER: header, COMPANION: companion}
        self.names = Names(self.text)
        self.ops = ops_of(self.names)
        self.contents = contents(header)
        self.sentence = {tag: sentence for tag, sentence in self.contents if tag}
        self.chunks = {file: chunks(text) for file, text in self.text.items()}
        self.public = header[:header.index(END)]
        public = split(self.public)[0]
        found = re.finditer(r"^\s*TG_API\b[^(;]*?(\w+)\s*\(", public, re.M)
        self.declared = {m[1]: public.count("\n", 0, m.start(1)) for m in found}
        entries = re.search(r"^#define TGI_BACKEND_ENTRIES\(OP\)(?:.*\\\n)*.*", header, re.M)[0]
        self.entries = re.findall(r"OP\(\w+, [^,]+, (\w+),", entries[entries.index("bool, map,") - 10:]) # those that compute
        self.gradients = {columns[0] for _, columns in self.names.rows("TGI_GRADIENTS", 10 ** 5)}
        self.by_room, self.mentions = {}, {}
        for d in self.names.defined.values():
            if d.code:
                self.by_room.setdefault(self.room_of(d), {})[d.name] = d

    def room_of(self, d):
        return d.file, self.chunk_at(d.file, d.line).tag

    def chunk_at(self, file, line):
        return next(c for c in self.chunks[file] if c.first <= line < c.end)

    def page_of(self, file, chunk):
        if chunk.tag:
            return "%s-%s.html" % ("room" if file == HEADER else "cuda", chunk.tag.lower())
        if file == COMPANION:
            return "cuda.html"
        return "start.html" if not chunk.first else "halves.html" if chunk.end < self.chunks[file][-1].end else "licence.html"

    def place(self, file, line):
        return "%s#L%d" % (self.page_of(file, self.chunk_at(file, line)), line + 1)

    def target(self, name):
        """Where a use of the name leads: to its definition, or to the row of the op that it was made from."""
        if name.startswith("TGI_OP_") and name[7:] in self.ops:
            return self.place(HEADER, self.ops[name[7:]].line)
        d = self.names.defined.get(name)
        return d and (self.place(HEADER, d.row) if d.row and d.kind == "made" else self.place(d.file, d.line))

    def reached(self, names, room, wanted):
        """What `wanted` finds first in the code of the functions, then of those of the room that these name, and so on."""
        seen, level = set(), list(names)
        while level:
            code = [self.names.defined[n].code for n in level if n in self.names.defined]
            found = [x for c in code for x in re.findall(wanted, c)]
            if found:
                return found
            seen |= set(level)
            named = dict.fromkeys(re.findall(r"\btgi?_\w+", " ".join(code)))
            level = [n for n in named if n in self.by_room[room] and n not in seen]
        return []

    def ops_behind(self, function):
        """The ops that a public function runs: the one of its name, or those that its code comes to first."""
        name = function[3:]
        for known in (name, re.sub(r"_$|_dims?$|_ex$", "", name)):
            if known in self.ops:
                return [known]
        found = self.reached([function], self.room_of(self.names.defined[function]), r"\bTGI_OP_(\w+)")
        return [op for op in dict.fromkeys(found) if op in self.ops]

    def rule(self, op):
        return self.names.defined.get("tgi_rule_" + op)

    def where(self, name):
        d = self.names.defined[name]
        return self.place(d.file, d.line)

    def kernels(self, op):
        """The entries of the backend table that an op and its rule call."""
        if op not in self.mentions:
            found = []
            if self.ops[op].table == TABLES[0]:
                found = ["map"] + ["map_gradient"] * (op in self.gradients)
            else:
                home = self.rule(op) or self.names.defined.get("tg_" + op)
                near = self.by_room.get(home and self.room_of(home), {}).values()
                starts = [d.name for d in near if re.search(r"\bTGI_OP_%s\b" % op, d.code)]
                for name in starts + ["tgi_rule_" + op, "tg_" + op]:
                    found += self.all_entries(name)
            self.mentions[op] = [e for e in self.entries if e in found]
        return self.mentions[op]

    def all_entries(self, name):
        """Entries called by a function and by those that it names: in its room, and one step beyond it."""
        call, seen, todo, found = r"(?:->|\.)(%s)\(" % "|".join(self.entries), set(), [name], []
        while todo:
            d = self.names.defined.get(todo.pop())
            if not d or d.name in seen:
                continue
            seen.add(d.name)
            found += re.findall(call, d.code)
            near = self.by_room[self.room_of(d)] if d.code else {}
            for n in set(re.findall(r"\btgi_(?!rule_)\w+", d.code)):
                if n in near:
                    todo.append(n)
                elif n in self.names.defined:
                    found += re.findall(call, self.names.defined[n].code)
        return found

    def links_of_op(self, op, to):
        """Links to the rule and the kernels of an op; `to` makes a link of a place and a text."""
        rule, parts = self.rule(op), []
        if rule:
            parts.append(to(self.place(rule.file, rule.line), "rule"))
        for entry in self.kernels(op):
            kinds = [(kind, self.names.defined.get("tgi_%s_%s" % (kind, entry))) for kind in ("plain", "cpu", "cuda")]
            parts.append("%s (%s)" % (escape(entry), ", ".join(to(self.place(d.file, d.line), kind) for kind, d in kinds if d)))
        return "; ".join(parts)


def groups_of(public):
    """The public part in order: ("room", tag, comment), ("prose", comment) or ("entry", comment, items)."""
    items, out, comment, entry = items_of(public), [], None, []

    def close():
        if any(i.name and i.name != "enum" or "TG_" in i.code for i in entry) and any(i.kind for i in entry):
            out.append(("entry", comment.own if comment else "", [i for i in entry]))
        elif comment:
            out.append(("prose", comment.own))
        entry.clear()
    for item in items + [None]:
        if item and item.kind != "comment":
            entry.append(item)
            continue
        close()
        comment = item
        if item and re.match(r"/\* [=-]{8} @@", item.own):
            out.append(("room", re.match(r"/\* [=-]{8} @@([A-Z_]+)", item.own)[1], item.own))
            comment = None
    return out


CHAPTER = r" {3}([A-Z]{2,}(?: [A-Z]{2,})?)(?: {2,}| (?=[a-z(]))" # how a chapter of the first comment begins


class Manual:
    """The manual as a page.  book: the folder of the pages of the source, to link to, or None."""

    def __init__(self, library, book=None):
        self.library, self.book, self.lines = library, book, library.public.split("\n")
        self.first = library.public[:library.public.index("*/")]
        blocks = re.split(r"\n\n(?=%s)" % CHAPTER.replace("([A-Z]", "(?:[A-Z]"), self.first)
        self.chapters = [((re.match(CHAPTER, block) or {1: ""})[1], block) for block in blocks]
        self.ids = {title: re.sub(r"\W+", "-", title.lower()) for title, _ in self.chapters if title}
        self.rooms = set(re.findall(r"^/\* [=-]{8} @@([A-Z_]+)", library.public, re.M))
        self.configured = re.findall(r"^ {7}(TG_\w+) {2,}", self.first, re.M)
        self.groups, self.given, self.known = groups_of(library.public), set(self.configured), set(self.configured)
        for item in [item for group in self.groups if group[0] == "entry" for item in group[2]]:
            self.known |= {item.name} - {"", "enum"}
            if re.match(r"(typedef )?enum", item.code):
                self.known |= set(re.findall(r"^\s+(TG_\w+)", item.code, re.M))
        self.code = Code(self.target, self.room)

    def target(self, name):
        if name in self.known:
            return "#" + name
        return self.book + self.library.target(name) if self.book and self.library.names.defined.get(name) else None

    def room(self, word):
        if word in self.ids:
            return "#" + self.ids[word]
        return "#room-" + word.lower() if word in self.rooms and word not in WORDS else None

    def chapter(self, title, block):
        """A chapter of the first comment; the text of the first begins after the title of the page."""
        if not title:
            return "<section><article>%s</article></section>" % prose(re.sub(r"^/\* [^\n]*", "", block), self.code)
        if title == "BUILD": # a table
            block = re.sub("^ {3}BUILD", " " * 8, block)
        else:
            block = re.sub(r"^ {3}%s {2,}" % title, "   ", block)
        own = Code(self.target, lambda word: self.room(word) if word not in title.split(" ") else None)
        text = re.sub(r'<dt><a href="#(TG_\w+)">\w+</a></dt>', r'<dt id="\1">\1</dt>', prose(block, own))
        return '<section aria-labelledby="%s"><h2 id="%s">%s</h2><article>%s</article></section>' % (
            self.ids[title], self.ids[title], title.capitalize(), text)

    def section(self, tag, groups):
        """A room: its title, and its groups of declarations."""
        body = ['<section aria-labelledby="room-%s">' % tag.lower(), '<h2 id="room-%s">%s: %s</h2>' % (
            tag.lower(), tag, escape(self.library.sentence[tag].rstrip(".:")))]
        for group in groups:
            if group[0] == "entry":
                if group[1] or not all(i.name in self.configured for i in group[2] if i.name):
                    body.append(self.entry(group[1], group[2]))
            else:
                text = prose(group[-1], self.code)
                body.append('<div class="prose">%s</div>' % text if text else "")
        return "\n".join(body + ["</section>"])

    def declarations(self, names, text):
        """Declarations as they stand, with the anchors of enumerators."""
        shown = "\n".join(Code(lambda name: None if name in names else self.target(name), self.room).lines(text))
        for e in re.findall(r"^\s+(TG_\w+)(?=\s*[=,/]|\s*$)", text, re.M) if "enum" in text else []:
            if e not in self.given:
                self.given.add(e)
                anchor = r'\1<span id="%s" class="d">%s</span>' % (e, e)
                shown = re.sub(r'(^\s+)(?:<a href="#%s">)?\b%s\b(?:</a>)?' % (e, e), anchor, shown, count=1, flags=re.M)
        return "<pre><code>%s</code></pre>" % shown

    def entry(self, comment, items):
        """Names, declarations, comment, PyTorch's functions, and links to the source."""
        names = list(dict.fromkeys(i.name for i in items if i.name and i.name != "enum"))
        head = ", ".join("<code%s>%s</code>" % (' id="%s"' % n if n not in self.given else "", n) for n in names)
        self.given.update(names)
        out = ["<article><h3>%s</h3>" % (head or "constants"),
               self.declarations(names, "\n".join(self.lines[items[0].line:items[-1].end + 1]))]
        if comment: # PyTorch's function, at its end, has a line of its own
            said = re.sub(r"(\.|/\*|\n)\s+(torch(\.\w+)+|F\.\w+) \*/$", r"\1 */", comment)
            out.append(prose(said, Code(lambda name: None if name in names else self.target(name), self.room)))
        torch = dict.fromkeys(re.sub(r"^F\.", "torch.nn.functional.", t) for t in TORCH.findall(re.sub(r"\s+", " ", comment)))
        more = ["PyTorch: " + ", ".join("<code>%s</code>" % t for t in torch)] if torch else []
        if self.book:
            to = lambda place, what: link(self.book + place, what)
            more.append("Source: " + to(self.library.place(HEADER, items[0].line), "declaration"))
            for name in names:
                if name in self.library.declared:
                    more += links_of(self.library, name, to, name + " " if len(names) > 1 else "")
        return "\n".join(out + (['<p class="more">%s</p>' % ". ".join(more)] if more else [])) + "</article>"

    def text(self):
        sections = [(self.ids[title], title.capitalize()) for title, _ in self.chapters if title]
        body, rooms = [self.chapter(*c) for c in self.chapters], []
        for group in self.groups:
            if group[0] == "room":
                rooms.append((group[1], [group]))
                sections.append(("room-" + group[1].lower(), group[1]))
            elif rooms:
                rooms[-1][1].append(group)
        body += [self.section(*room) for room in rooms]
        head = ('<form role="search" hidden="hidden"><label for="search">Search</label>'
                '<input id="search" type="search" autocomplete="off" placeholder="names and words, as: matmul, norm" />'
                '<output aria-live="polite"></output><a href="#toc">Contents</a>%s</form>')
        title = re.match(r"/\* (.*?)\s*$", self.first.split("\n")[0])[1]
        toc = '<nav id="toc" aria-label="Contents"><ul class="columns">%s</ul></nav>' % "".join(
            "<li>%s</li>" % link("#" + anchor, name) for anchor, name in sections)
        return page("tensorgrad: the manual", head % (link(self.book + "index.html", "The source") if self.book else ""), "\n".join(
            ["<h1>tensorgrad: the manual</h1>", "<p>%s</p>" % escape(title), toc] + body), SCRIPT)


def links_of(library, name, to, before=""):
    """Links from a public function: its implementation; the row of each op that it runs, with rule and kernels."""
    parts = [before + to(library.where(name), "implementation")]
    for op in library.ops_behind(name):
        rest = library.links_of_op(op, to)
        parts.append("op " + to(library.place(HEADER, library.ops[op].line), op) + (": " + rest if rest else ""))
    return parts


class Notes:
    """The links that stand under a line: under declarations, rows, rules and definitions.  at: {(file, line): [HTML]}"""

    def __init__(self, library):
        self.library, self.at = library, {}
        self.code = {file: text.split("\n") for file, text in library.names.code.items()}
        for name, line in library.declared.items():
            self.add_head(HEADER, line, ". ".join([link("../manual.html#" + name, "manual")] + links_of(library, name, link)))
            d = library.names.defined[name]
            if d.kind == "function":
                self.add_head(d.file, d.line, "manual: " + self.manual(name))
        for op in library.ops:
            self.row(op)
        for (file, line), names in library.names.made.items():
            self.made(file, line, names)
        for entry in library.entries:
            self.kernels(entry)

    def manual(self, name):
        return link("../manual.html#" + name, name)

    def row_link(self, op, text=None):
        return link(self.library.place(HEADER, self.library.ops[op].line), text or op)

    def add(self, file, line, text):
        self.at.setdefault((file, line), []).append(text)

    def add_head(self, file, line, text):
        """Under the last line of a declaration, or of the head of a definition."""
        last = next(k for k in range(line, 10 ** 6) if re.search("[;{]", self.code[file][k]))
        self.add(file, last - self.code[file][last].startswith("{"), text)

    def row(self, op):
        library, line = self.library, self.library.ops[op].line
        functions = [n for n in ("tg_" + op, "tg_" + op + "_") if n in library.declared]
        loops = [link(library.place(*at), ("CUDA: " if at[0] == COMPANION else "@@") + library.chunk_at(*at).tag)
                 for at, names in library.names.made.items()
                 if any(row == line and not re.match("tg_|tgi_rule_", n) for n, row in names)]
        parts = ["manual: " + ", ".join(map(self.manual, functions)) if functions else "",
                 link(library.where(functions[0]), "implementation") if functions else "", library.links_of_op(op, link),
                 "made of the row: " + ", ".join(loops) if loops else ""]
        last, depth = line, 0
        while True: # the end of the row
            depth += self.code[HEADER][last].count("(") - self.code[HEADER][last].count(")")
            if depth <= 0:
                break
            last += 1
        self.add(HEADER, last, ". ".join(filter(None, parts)) or "no function, rule or kernel of its own")
        rule = library.rule(op)
        if rule and rule.kind == "function":
            self.add_head(rule.file, rule.line, "row of the op: " + self.row_link(op))

    def made(self, file, line, names):
        """What the call of a macro makes: names with their rows."""
        what = []
        for n, row in names:
            place = self.library.place(HEADER, row) if row else None
            if n in self.library.declared:
                what.append(self.manual(n) + (" (%s)" % link(place, "row") if row else ""))
            elif row or len(names) < 9:
                what.append(link(place, n) if row else escape(n))
        if what:
            self.add(file, line, "makes " + ", ".join(what))

    def kernels(self, entry):
        """Under the functions of an entry of the backend table: those of the other devices, and the ops."""
        found = [self.library.names.defined.get("tgi_%s_%s" % (kind, entry)) for kind in ("plain", "cpu", "cuda")]
        ops = [self.row_link(op) for op in self.library.ops if entry in self.library.kernels(op)]
        for d in filter(None, found):
            others = ["%s: %s" % (o.name, link(self.library.where(o.name), "line %d" % (o.line + 1)))
                      for o in found if o and o is not d]
            parts = ["the same elsewhere: " + ", ".join(others)] if others else []
            parts += ["ops: " + ", ".join(ops)] if ops and len(ops) < 40 else []
            if parts:
                (self.add_head if d.kind == "function" else self.add)(d.file, d.line, ". ".join(parts))

    def under(self, file, line):
        return '<small class="x">%s</small>' % ". ".join(self.at[file, line]) if (file, line) in self.at else ""


class Book:
    """The pages of the source: {name: (file, chunks)}, in the order of the contents."""

    def __init__(self, library):
        self.library, self.notes, self.pages = library, Notes(library), {}
        room = lambda word: "room-%s.html" % word.lower() if word in library.sentence and word not in WORDS else None
        code = Code(library.target, room)
        self.written = {file: code.lines(text) for file, text in library.text.items()}
        found = [(library.page_of(file, c), file, c) for file in (HEADER, COMPANION) for c in library.chunks[file]]
        order = ["start.html", "halves.html"] + ["room-%s.html" % tag.lower() for tag, _ in library.contents if tag]
        for name, file, chunk in sorted((f for f in found if f[0] in order), key=lambda f: order.index(f[0])) + [
                f for f in found if f[0] not in order and f[1] == COMPANION] + [f for f in found if f[0] == "licence.html"]:
            self.pages.setdefault(name, (file, []))[1].append(chunk)

    def title(self, name):
        """The title of a page, and the sentence that describes it in the contents of its file."""
        file, parts = self.pages[name]
        tag = parts[0].tag
        if file == COMPANION:
            head = self.library.text[COMPANION][:self.library.text[COMPANION].index("*/")]
            said = dict(re.findall(r"^ +@@([A-Z_]+) +(\S.*)$", head, re.M))
            return ("CUDA: " + tag, said[tag]) if tag else ("CUDA", "the head of tensorgrad_cuda.cu")
        if tag:
            return "@@" + tag, self.library.sentence[tag].rstrip(".:")
        return {"start.html": ("The first comment", "how to use the library, and the contents"),
                "halves.html": ("Between", "public part and implementation: the order of the rooms, what is included"),
                "licence.html": ("The licence", "at the end of the header")}[name]

    def room(self, name):
        file, parts = self.pages[name]
        title, sentence = self.title(name)
        defined = self.library.names.defined
        named = sorted(d.name for d in defined.values() if d.file == file and d.kind in ("function", "type", "made")
                       and any(c.first <= d.line < c.end for c in parts))
        body = ["<h1>%s</h1>" % escape(title), "<p>%s</p>" % escape(sentence)]
        if named:
            body.append('<details><summary>%d names defined here</summary><ul class="columns">%s</ul></details>' % (
                len(named), "".join("<li>%s</li>" % link("#L%d" % (defined[n].line + 1), n) for n in named)))
        for c in parts:
            what = "%s, lines %d to %d" % (c.half.capitalize() if len(parts) > 1 else file, c.first + 1, c.end)
            rows = ['<span class="r"><a class="l" id="L%d" href="#L%d" aria-hidden="true" tabindex="-1"></a>%s\n</span>%s' % (
                k + 1, k + 1, self.written[file][k], self.notes.under(file, k)) for k in range(c.first, c.end)]
            body.append('<h2 id="%s">%s</h2>' % (c.half, what))
            body.append('<pre class="source" style="--from: %d" tabindex="0" role="region" aria-label="%s">%s</pre>' % (
                c.first, what, "".join(rows)))
        order = list(self.pages)
        at = order.index(name)
        nav = [("index.html", "Contents", ""), ("../manual.html", "Manual", "")]
        nav += [(order[at - 1], "Before: " + self.title(order[at - 1])[0], ' rel="prev"')] if at else []
        nav += [(order[at + 1], "Next: " + self.title(order[at + 1])[0], ' rel="next"')] if at + 1 < len(order) else []
        return page(title + " - tensorgrad", '<nav aria-label="Pages">%s</nav>' % "".join(link(*n) for n in nav), "\n".join(body))

    def index(self):
        body = ["<h1>tensorgrad: the source</h1>",
                "<p>tensorgrad.h and tensorgrad_cuda.cu, a page for each room.  A name leads to its definition; a function or a rule "
                "that comes from a row of the op table leads to that row; under a declaration stand its implementation, the rows of "
                "its ops, their rules and their kernels.  Lines have the numbers that they have in their file.</p>"]
        parts = [("", ["start.html", "halves.html"])]
        for tag, sentence in self.library.contents:
            if tag:
                parts[-1][1].append("room-%s.html" % tag.lower())
            else:
                parts.append((sentence.rstrip("."), []))
        parts += [("On NVIDIA GPUs: tensorgrad_cuda.cu", [p for p in self.pages if self.pages[p][0] == COMPANION])]
        for title, names in parts + [("The end", ["licence.html"])]:
            body.append("<h2>%s</h2>" % escape(title) if title else "")
            body.append('<dl class="rooms">%s</dl>' % "".join('<dt>%s</dt><dd>%s <span class="more">(%d lines)</span></dd>' % (
                link(p, self.title(p)[0]), escape(self.title(p)[1]), sum(c.end - c.first for c in self.pages[p][1])) for p in names))
        return page("tensorgrad: the source", '<nav aria-label="Pages">%s</nav>' % link("../manual.html", "Manual"), "\n".join(body))

    def texts(self):
        return dict({name: self.room(name) for name in self.pages}, **{"index.html": self.index()})


def write(path, text):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in ("manual", "book"):
        sys.exit(__doc__)
    what, path = sys.argv[1:]
    library = Library(*(open(f, encoding="utf-8").read() for f in (HEADER, COMPANION)))
    if what == "manual":
        write(path, Manual(library).text())
        print("written: " + path)
        return
    folder = os.path.basename(os.path.normpath(path))
    write(os.path.join(path, "..", "manual.html"), Manual(library, folder + "/").text())
    pages = Book(library).texts()
    for name, text in pages.items():
        write(os.path.join(path, name), text)
    print("written: %d pages, %s first, and the manual beside them" % (len(pages), os.path.join(path, "index.html")))


if __name__ == "__main__":
    main()
