#!/usr/bin/env python3
"""book.py manual FILE | book FOLDER: writes the manual as one page, from the comments of the public part of tensorgrad.h; or
tensorgrad.h and tensorgrad_cuda.cu as pages, one for each room, and the manual beside the folder.  Each page is whole: no
network, no script or font of others.  Called from the root of the repository, by `make manual` and `make book`."""
import os
import re
import sys
from html import escape

from header import END, Names, TABLES, TORCH, chunks, contents, items_of, ops_of, split

HEADER, COMPANION = "tensorgrad.h", "tensorgrad_cuda.cu"
KEYWORDS = set("""auto bool break case char class const constexpr continue default do double else enum extern false float for goto if
inline int int8_t int16_t int32_t int64_t long namespace nullptr private public return short signed size_t sizeof static struct
switch template true typedef typename uint8_t uint16_t uint32_t uint64_t union unsigned using void volatile while __device__
__global__ __shared__ __host__ NULL""".split())
TOKEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|#[ ]*[a-z]+|[A-Za-z_]\w*|\n|[^\w"\'/#\n]+|.', re.S)
WORDS_OF_COMMENTS = re.compile(r"@@([A-Z_]+)|\b(?:TGI?_\w+|tgi?_\w+)|(?<![.\w])[A-Z]{2,}\b")
TERM = re.compile(r"(?=[\w@].{0,27} {2})(\S+(?: \S+)*(?<![.,;:?!])) {2,}(?:\* )?(\S.*)$") # and what it means, in a list

WORDS = ("CPU", "CSV", "NPZ", "NN", "SIMD") # are said of other things than the rooms, too

STYLE = """
:root { color-scheme: light dark; --ink: #1d232a; --paper: #fff; --soft: #f4f5f7; --line: #d5d9df; --quiet: #59636e; --link: #0b57b0;
  --comment: #3f6d3f; --word: #8a2252; --text: #95520a; --mark: #fff3bf; }
@media (prefers-color-scheme: dark) { :root { --ink: #dfe3e8; --paper: #15191e; --soft: #1e242b; --line: #39424d; --quiet: #a0abb7;
  --link: #86bbff; --comment: #93bf8d; --word: #ee9dc5; --text: #e5b077; --mark: #4a4108; } }
* { box-sizing: border-box; }
html { scroll-padding-top: 4.5rem; -webkit-text-size-adjust: 100%; }
body { margin: 0; color: var(--ink); background: var(--paper); font: 16px/1.55 system-ui, sans-serif; }
main, footer { max-width: 68rem; margin: 0 auto; padding: 0 1rem 2rem; }
a { color: var(--link); text-decoration: none; } a:hover { text-decoration: underline; } p a, li a, dd a { text-decoration: underline; }
:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
.skip { position: absolute; left: -99rem; } .skip:focus { left: 1rem; top: .5rem; background: var(--paper); padding: .3rem; z-index: 3; }
header { position: sticky; top: 0; z-index: 2; background: var(--paper); border-bottom: 1px solid var(--line); padding: .45rem 1rem; }
header nav, header form { display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; align-items: center; max-width: 66rem; margin: 0 auto; }
[hidden] { display: none !important; }
input { font: inherit; color: inherit; background: var(--soft); border: 1px solid var(--quiet); border-radius: 5px; padding: .25rem .5rem;
  width: 22rem; max-width: 100%; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 1.6rem 0 .6rem; overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; margin: 2.4rem 0 .6rem; border-bottom: 1px solid var(--line); } h3 { font-size: 1.02rem; margin: 0 0 .4rem; }
code, pre { font: .84rem/1.5 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; tab-size: 4; }
h3 code { font-size: 1.02rem; overflow-wrap: anywhere; }
pre { background: var(--soft); margin: .5rem 0; padding: .6rem .8rem; overflow-x: auto; border-radius: 5px; }
article { border-top: 1px solid var(--line); padding: .9rem 0 .5rem; } h2 + article { border: 0; } article:has(:target) { background: var(--mark); }
p { margin: .5rem 0; max-width: 46rem; } .more { color: var(--quiet); font-size: .88rem; } dl { margin: .6rem 0; max-width: 52rem; }
dt { font-weight: 600; } dd { margin: 0 0 .4rem 1.5rem; } .columns { columns: 14rem; padding-left: 1.1rem; overflow-wrap: anywhere; }
dl.rooms { display: grid; grid-template-columns: 11rem 1fr; gap: .2rem 1rem; max-width: none; } .rooms dd { margin: 0; }
.c { color: var(--comment); } .k { color: var(--word); } .s { color: var(--text); } .c a, .d { font-weight: 600; } summary { cursor: pointer; }
.source { max-width: none; margin-left: -1rem; margin-right: -1rem; border-radius: 0; font-size: .78rem; counter-reset: line var(--from); }
.r { display: block; padding-left: var(--number); text-indent: calc(-1 * var(--number)); } .source { --number: 4.5rem; }
.l { counter-increment: line; display: inline-block; width: calc(var(--number) - .9rem); margin-right: .9rem; text-indent: 0; text-align: right; color: var(--quiet);
  user-select: none; -webkit-user-select: none; } .l::before { content: counter(line); } .l:target { background: var(--mark); font-weight: 700; }
.x { display: block; margin: 0 0 .2rem var(--number); color: var(--quiet); user-select: none; -webkit-user-select: none; white-space: normal;
  max-width: 60rem; font-family: system-ui, sans-serif; } .x a { text-decoration: underline; }
.prose { border-top: 3px double var(--line); margin-top: 1rem; padding-top: .4rem; } h2 + .prose { border: 0; margin: 0; }
@media (max-width: 40rem) { html { scroll-padding-top: .6rem; } header { position: static; } body { font-size: 15px; } .source { font-size: .72rem; padding: .5rem .3rem;
  --number: 3.4rem; white-space: pre-wrap; overflow-wrap: anywhere; } .l { padding-right: .3rem; margin-right: .3rem; } dl.rooms { display: block; } }
@media print { header, .skip { display: none; } body { font-size: 10pt; background: #fff; color: #000; } article { break-inside: avoid; }
  pre { white-space: pre-wrap; background: #fff; border: 0; overflow: visible; } .source { font-size: 6.6pt; } .x { font-size: 6.6pt; }
  h2, h3 { break-after: avoid; } a { color: inherit; } main { max-width: none; } }
"""

# Shows the entries that have every word typed, and says how many; Escape empties the box, / goes to it.
SCRIPT = """
(function () {
  var form = document.querySelector('form'), box = form.querySelector('input'), count = form.querySelector('output');
  var parts = Array.prototype.slice.call(document.querySelectorAll('main section')), entries = [];
  parts.forEach(function (part) {
    part.querySelectorAll('article').forEach(function (entry) { entries.push({ entry: entry, text: entry.textContent.toLowerCase() }); });
  });
  function show() {
    var words = box.value.toLowerCase().split(/[ ,()]+/).filter(Boolean), found = 0;
    entries.forEach(function (e) {
      e.entry.hidden = !words.every(function (word) { return e.text.includes(word); });
      if (!e.entry.hidden) found++;
    });
    parts.forEach(function (part) { part.hidden = words.length !== 0 ? part.querySelector('article:not([hidden])') === null : false; });
    document.querySelectorAll('.prose').forEach(function (p) { p.hidden = words.length !== 0; });
    count.textContent = words.length ? found + (found === 1 ? ' entry' : ' entries') : '';
  }
  form.hidden = false;
  form.addEventListener('submit', function (event) { event.preventDefault(); });
  box.addEventListener('input', show);
  document.addEventListener('keydown', function (event) {
    if (event.key === '/') { if (document.activeElement !== box) { event.preventDefault(); box.focus(); } }
    if (event.key === 'Escape') { if (document.activeElement === box) { box.value = ''; show(); } }
  });
  window.addEventListener('hashchange', function () {
    var target = document.getElementById(location.hash.slice(1));
    if (target) { if (target.closest('[hidden]')) { box.value = ''; show(); target.scrollIntoView(); } }
  });
})();
"""


def page(title, head, body, script=""):
    return """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8" />
<meta name="viewport" content="width=device-width, initial-scale=1" />
<title>%s</title>
<style>%s</style>
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<header>%s</header>
<main id="content">
%s
</main>
%s</body>
</html>
""" % (escape(title), STYLE, head, body, script and "<script>%s</script>\n" % script)


def link(href, text, more=""):
    return '<a href="%s"%s>%s</a>' % (escape(href), more, escape(text))


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
        self.declared = {m[1]: public.count("\n", 0, m.start(1)) for m in re.finditer(r"^\s*TG_API\b[^(;]*?(\w+)\s*\(", public, re.M)}
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
        return "%s.html" % ("cuda" if file == COMPANION else "start" if not chunk.first else "halves" if chunk.end < self.chunks[file][-1].end else "licence")

    def place(self, file, line):
        return "%s#L%d" % (self.page_of(file, self.chunk_at(file, line)), line + 1)

    def target(self, name):
        """Where a use of the name leads: to its definition, or to the row of the op that it was made from."""
        if name.startswith("TGI_OP_") and name[7:] in self.ops:
            return self.place(HEADER, self.ops[name[7:]].line)
        d = self.names.defined.get(name)
        return d and self.place(*(HEADER, d.row) if d.row and d.kind == "made" and not d.name.startswith("tgi_cuda") else (d.file, d.line))

    def reached(self, names, room, wanted):
        """What `wanted` finds first in the code of the functions, then of those of the room that these name, and so on."""
        seen, level = set(), list(names)
        while level:
            code = [self.names.defined[n].code for n in level if n in self.names.defined]
            found = [x for c in code for x in re.findall(wanted, c)]
            if found:
                return found
            seen |= set(level)
            level = [n for n in dict.fromkeys(re.findall(r"\btgi?_\w+", " ".join(code))) if n in self.by_room[room] and n not in seen]
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

    def kernels(self, op):
        """The entries of the backend table that an op and its rule call."""
        if op not in self.mentions:
            found = []
            if self.ops[op].table == TABLES[0]:
                found = ["map"] + ["map_gradient"] * (op in self.gradients)
            else:
                home = self.names.defined.get("tgi_rule_" + op) or self.names.defined.get("tg_" + op)
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


class Code:
    """Writes source as HTML: colours, and links by `target`, a function of a name; `names` may only be links where it gives one."""

    def __init__(self, target, room, manual=None):
        self.target, self.room, self.manual = target, room, manual

    def comment(self, text):
        rooms = text[:1] != '"' # a text of the program names functions, too, but no rooms

        def word(m):
            href = rooms and self.room(m[1] or m[0]) if m[1] or m[0].isupper() and "_" not in m[0] else self.target(m[0])
            return link(href, m[0]) if href else escape(m[0])
        parts, at = [], 0
        for m in WORDS_OF_COMMENTS.finditer(text):
            parts += [escape(text[at:m.start()]), word(m)]
            at = m.end()
        return "".join(parts) + escape(text[at:])

    def token(self, text):
        if text.startswith(("/*", "//")):
            return '<span class="c">%s</span>' % self.comment(text)
        if text[0] in "\"'":
            return '<span class="s">%s</span>' % self.comment(text)
        if text[0] == "#" or text in KEYWORDS:
            return '<span class="k">%s</span>' % escape(text)
        href = self.target(text) if re.match(r"tgi?_|TGI?_", text) else None
        return link(href, text) if href else escape(text)

    def lines(self, text):
        """The text as HTML, line by line; what spans lines is closed and opened again."""
        whole = "".join(self.token(m[0]) for m in TOKEN.finditer(text))
        lines, opened = [], ""
        for line in whole.split("\n"):
            line = opened + line
            last = max(line.rfind('<span class="c">'), line.rfind('<span class="s">'))
            opened = line[last:last + 16] if last >= 0 and "</span>" not in line[last:] else ""
            lines.append(line + ("</span>" if opened else ""))
        return lines


def prose(comment, code):
    """A comment as paragraphs, lists and listings, by its indents."""
    text = re.sub(r"^/\* [=-]{8} @@.*$", "", re.sub(r"\s*\*/$", "", comment), count=1, flags=re.M)
    if text.lstrip().startswith("/*"):
        text = text.replace("/*", "  ", 1)
    lines = [line.rstrip().replace("/* ---- ", "        ") for line in text.split("\n")]
    base = min([len(line) - len(line.lstrip()) for line in lines if line.strip()] or [0])
    out = []
    marked = lambda t: re.sub(r"`([^`]+)`", r"<code>\1</code>", code.comment(t))
    for block in re.split(r"\n(?:\s*\n)+", "\n".join(line[base:] for line in lines).strip("\n")):
        rows = block.split("\n") if block else []
        indent = min([len(row) - len(row.lstrip()) for row in rows] or [0])
        rows = [row[indent:] for row in rows]
        while rows:
            end, column = 1, 0
            if indent > 3: # a listing, or a list that stands apart
                end = len(rows)
            while end < len(rows) and kind_of(rows[end], column) in {"-": " ", "p": "p", " ": " t"}.get(kind_of(rows[0]), " tc"):
                column = len(rows[end - 1]) - len(TERM.match(rows[end - 1])[2]) if TERM.match(rows[end - 1]) else column
                end += 1
            part, rows, kind = rows[:end], rows[end:], "" if indent > 3 else kind_of(rows[0])
            if kind == "-":
                out.append("<ul><li>%s</li></ul>" % marked(" ".join(row.strip() for row in part)[2:]))
            else:
                out.append("<p>%s</p>" % marked(" ".join(part)) if kind == "p" else listed(part, marked))
    return "\n".join(out).replace("</pre>\n<pre>", "\n\n").replace("</ul>\n<ul>", "\n").replace("</dl>\n<dl>", "\n")


def kind_of(row, column=0):
    """What a row of a comment is: indented, an item, a term with its meaning, c: one that fills its column; or p, of a paragraph."""
    if row[0] == " " or row.startswith("- "):
        return row[0]
    return "t" if TERM.match(row) else "c" if column and row[column - 1:column] == " " and row[column:column + 1].strip() else "p"


def listed(rows, marked):
    """Rows `term  text`, whose texts go on below, as a list; other rows, and tables, as they stand."""
    indent = min(len(row) - len(row.lstrip()) for row in rows)
    rows = [row[indent:] for row in rows]
    entries, column = [], 0
    for row in rows:
        m = TERM.match(row)
        if m and "{" not in row and not re.search(r"\S {4,}\S", m[2]):
            column = len(row) - len(m[2])
            entries.append([m[1], m[2]])
        elif entries and row[0] != " " and row[column - 1:column + 1].strip() and row[column - 1] == " ": # the term fills its column
            entries.append([row[:column].strip(), row[column:]])
        elif entries and len(row) - len(row.lstrip()) >= min(column, 6) and "{" not in row and not re.search(r"\S {4,}\S", row):
            entries[-1][1] += " " + row.strip()
        else:
            return "<pre>%s</pre>" % marked("\n".join(rows))
    return "<dl>%s</dl>" % "".join("<dt>%s</dt><dd>%s</dd>" % (marked(a), marked(b)) for a, b in entries)


class Section:
    def __init__(self, tag, title):
        self.tag, self.title, self.parts, self.entries = tag, title, [], 0


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


def manual(library, book=None):
    """The manual as a page; book: the folder of the pages of the source, to link to, or None."""
    public, lines = library.public, library.public.split("\n")
    rooms = {tag for _, tag in re.findall(r"^/\* ([=-]{8}) @@([A-Z_]+)", public, re.M)}
    first, chapters = public[:public.index("*/")], []
    for block in re.split(r"\n\n(?= {3}[A-Z]{2,}(?: [A-Z]{2,})?(?: {2,}| (?=[a-z(])))", first):
        m = re.match(r" {3}([A-Z]{2,}(?: [A-Z]{2,})?) +", block)
        chapters.append((m[1] if m else "", block))
    ids = {title: re.sub(r"\W+", "-", title.lower()) for title, _ in chapters if title}
    known, groups = {}, groups_of(public)
    for g in groups:
        if g[0] == "entry":
            for item in g[2]:
                for name in [item.name] if item.name and item.name != "enum" else []:
                    known[name] = "#" + name
                for name in re.findall(r"^\s+(TG_\w+)", item.code, re.M) if re.match(r"(typedef )?enum", item.code) else []:
                    known.setdefault(name, "#" + name)
    configured = re.findall(r"^ {7}(TG_\w+) {2,}", first, re.M)
    known.update((name, "#" + name) for name in configured)

    def room(word):
        return "#" + ids[word] if word in ids else "#room-" + word.lower() if word in rooms and word not in WORDS else None
    code = Code(lambda name: known.get(name) or (book and library.names.defined.get(name) and book + library.target(name)), room)
    sections, body = [], []
    for title, block in chapters:
        text = re.sub(r"^ {3}[A-Z]{2,}(?: [A-Z]{2,})? {2,}(?!.* {4,})", "   ", block) if title and title != "BUILD" else re.sub("^ {3}BUILD", " " * 8, block)
        name = title.capitalize() if title else ""
        own = Code(code.target, lambda word: room(word) if word != title.split(" ")[0] else None)
        body.append('<section class="chapter"%s>%s<article>%s</article></section>' % (
            ' aria-labelledby="%s"' % ids[title] if title else "", '<h2 id="%s">%s</h2>' % (ids[title], name) if title else "",
            re.sub(r'<dt><a href="#(TG_\w+)">\w+</a></dt>', r'<dt id="\1">\1</dt>', prose(text if title else re.sub(r"^/\* [^\n]*", "", text), own))))
        if title:
            sections.append((ids[title], name))
    opened, given = False, set(configured)
    for g in groups:
        if g[0] == "room":
            body.append(("</section>" if opened else "") + '<section aria-labelledby="room-%s">\n<h2 id="room-%s">%s: %s</h2>' % (
                g[1].lower(), g[1].lower(), g[1], escape(library.sentence[g[1]].rstrip(".:"))))
            opened = True
            sections.append(("room-" + g[1].lower(), g[1]))
            text = prose(g[2], code)
            body.append('<div class="prose">%s</div>' % text if text else "")
        elif opened and g[0] == "prose":
            body.append('<div class="prose">%s</div>' % prose(g[1], code))
        elif opened and (g[1] or not all(i.name in configured for i in g[2] if i.name)):
            body.append(entry_of(library, g[1], g[2], lines, code, given, book))
    body.append("</section>")
    head = ('<form role="search" hidden="hidden"><label for="search">Search</label><input id="search" type="search" autocomplete="off" '
            'placeholder="names and words, as: matmul, running sum" /><output aria-live="polite"></output>'
            '<a href="#toc">Contents</a>%s</form>' % ('<a href="%sindex.html">The source</a>' % book if book else ""))
    title = re.match(r"/\* (.*?)\s*$", first.split("\n")[0])[1]
    toc = "".join("<li>%s</li>" % link("#" + a, t) for a, t in sections)
    return page("tensorgrad: the manual", head, "<h1>tensorgrad: the manual</h1>\n<p>%s</p>\n<nav id=\"toc\" aria-label=\"Contents\">"
                "<ul class=\"columns\">%s</ul></nav>\n%s" % (escape(title), toc, "\n".join(body)), SCRIPT)


def entry_of(library, comment, items, lines, code, given, book):
    """An entry of the manual: names, declarations as they stand, comment, PyTorch's functions, and links to the source."""
    names = list(dict.fromkeys(i.name for i in items if i.name and i.name != "enum"))
    text = "\n".join(lines[items[0].line:items[-1].end + 1])
    fresh = [n for n in names if n not in given]
    given.update(names)
    inner = Code(lambda name: None if name in names else code.target(name), code.room)
    shown = "\n".join(inner.lines(text))
    for e in re.findall(r"^\s+(TG_\w+)(?=\s*[=,/]|\s*$)", text, re.M) if "enum" in text else []: # the anchors of enumerators
        if e not in given:
            given.add(e)
            shown = re.sub(r'(^\s+)(?:<a href="#%s">)?\b%s\b(?:</a>)?' % (e, e), r'\1<span id="%s" class="d">%s</span>' % (e, e), shown, count=1, flags=re.M)
    head = ", ".join('<code%s>%s</code>' % (' id="%s"' % n if n in fresh else "", n) for n in names) or "constants"
    out = ["<article><h3>%s</h3>" % head, "<pre><code>%s</code></pre>" % shown]
    said = re.sub(r"(\.|/\*|\n)\s+(torch(\.\w+)+|F\.\w+) \*/$", r"\1 */", comment) # PyTorch's function has a line of its own
    out += [prose(said, inner)] if comment else []
    torch = dict.fromkeys(t.replace("F.", "torch.nn.functional.", 1) if t.startswith("F.") else t for t in TORCH.findall(re.sub(r"\s+", " ", comment)))
    more = ["PyTorch: " + ", ".join("<code>%s</code>" % t for t in torch)] if torch else []
    if book:
        to = lambda place, what: '<a href="%s%s">%s</a>' % (book, place, escape(what))
        more.append("Source: " + to(library.place(HEADER, items[0].line), "declaration"))
        for name in names:
            if name in library.declared:
                more += links_of(library, name, to, name + " " if len(names) > 1 else "")
    if more:
        out.append('<p class="more">%s</p>' % ". ".join(more))
    return "\n".join(out) + "</article>"


def links_of(library, name, to, before=""):
    """Links from a public function: its implementation; the row of each op that it runs, with rule and kernels."""
    d = library.names.defined[name]
    parts = [before + to(library.place(d.file, d.line), "implementation")]
    for op in library.ops_behind(name):
        rest = library.links_of_op(op, to)
        parts.append("op " + to(library.place(HEADER, library.ops[op].line), op) + (": " + rest if rest else ""))
    return parts


def title_of(library, at):
    """The room of a place, as the text of a link."""
    return ("CUDA: " if at[0] == COMPANION else "@@") + library.chunk_at(*at).tag


def beside(library):
    """{(file, line): HTML} of the links that stand under a line: under declarations, rows, rules and definitions."""
    notes, to = {}, lambda place, what: link(place, what)
    add = lambda file, line, text: notes.setdefault((file, line), []).append(text)
    code = {file: text.split("\n") for file, text in library.names.code.items()}
    head_end = lambda file, line: next(k - code[file][k].startswith("{") for k in range(line, 10 ** 6) if re.search("[;{]", code[file][k]))
    depth = lambda text: text.count("(") - text.count(")")
    row_end = lambda line: next(k for k in range(line, 10 ** 6) if depth("".join(code[HEADER][line:k + 1])) <= 0)
    by_manual = lambda n: link("../manual.html#" + n, n)
    for name, line in library.declared.items():
        add(HEADER, head_end(HEADER, line), ". ".join([link("../manual.html#" + name, "manual")] + links_of(library, name, to)))
        d = library.names.defined[name]
        if d.kind == "function":
            add(d.file, head_end(d.file, d.line), "manual: " + by_manual(name))
    for op, o in library.ops.items():
        functions = [n for n in ("tg_" + op, "tg_" + op + "_") if n in library.declared]
        parts = ["manual: " + ", ".join(by_manual(n) for n in functions)] if functions else []
        parts += [link(library.place(library.names.defined[n].file, library.names.defined[n].line), "implementation") for n in functions[:1]]
        rest = library.links_of_op(op, to)
        loops = [link(library.place(*at), title_of(library, at)) for at, names in library.names.made.items()
                 if any(row == o.line and not re.match("tg_|tgi_rule_", n) for n, row in names)]
        parts += [rest] if rest else []
        parts += ["made of the row: " + ", ".join(loops)] if loops else []
        add(HEADER, row_end(o.line), ". ".join(parts) or "no function, rule or kernel of its own")
        if library.rule(op) and library.rule(op).kind == "function":
            add(library.rule(op).file, head_end(library.rule(op).file, library.rule(op).line), "row of the op: " + link(library.place(HEADER, o.line), op))
    for (file, line), names in library.names.made.items():
        what = []
        for n, row in names:
            if n in library.declared:
                what.append(by_manual(n) + (" (%s)" % link(library.place(HEADER, row), "row") if row else ""))
            elif row or len(names) < 9:
                what.append(link(library.place(HEADER, row), n) if row else escape(n))
        if what:
            add(file, line, "makes " + ", ".join(what))
    for entry in library.entries:
        kinds = [library.names.defined.get("tgi_%s_%s" % (kind, entry)) for kind in ("plain", "cpu", "cuda")]
        for d in filter(None, kinds):
            others = ["%s: %s" % (o.name, link(library.place(o.file, o.line), "line %d" % (o.line + 1))) for o in kinds if o and o is not d]
            ops = [link(library.place(HEADER, library.ops[op].line), op) for op in library.ops if entry in library.kernels(op)]
            add(d.file, head_end(d.file, d.line) if d.kind == "function" else d.line, ". ".join((others and ["the same elsewhere: " + ", ".join(others)] or []) + (
                ["ops: " + ", ".join(ops)] if ops and len(ops) < 40 else [])))
    return {at: ". ".join(filter(None, texts)) for at, texts in notes.items()}


def book(library):
    """{name of a page: its text}."""
    notes, pages, order = beside(library), {}, []
    written = {}
    for file in (HEADER, COMPANION):
        whole = Code(library.target, lambda word: "room-%s.html" % word.lower() if word in library.sentence and word not in WORDS else None)
        written[file] = whole.lines(library.text[file])
        tags = [""] + [tag for tag, _ in library.contents if tag] if file == HEADER else [None]
        found = [(library.page_of(file, c), c) for c in library.chunks[file]]
        rank = {tag: n for n, tag in enumerate(tags)}
        if file == HEADER:
            found.sort(key=lambda f: (f[0] == "licence.html", rank[f[1].tag] if f[1].tag else f[0] == "halves.html" and -1, f[1].first))
            found.sort(key=lambda f: {"start.html": 0, "halves.html": 1, "licence.html": 3}.get(f[0], 2))
        for name, chunk in found:
            if name not in pages:
                order.append(name)
            pages.setdefault(name, (file, []))[1].append(chunk)
    out = {}
    for n, name in enumerate(order):
        file, parts = pages[name]
        around = [("Before: ", order[n - 1] if n else None), ("Next: ", order[n + 1] if n + 1 < len(order) else None)]
        nav = "".join(link(p, w + title_of_page(library, p, pages)[0], ' rel="%s"' % w[:-2].lower().replace("before", "prev")) for w, p in around if p)
        head = '<nav aria-label="Pages">%s%s%s</nav>' % (link("index.html", "Contents"), link("../manual.html", "Manual"), nav)
        title, sentence = title_of_page(library, name, pages)
        body = ["<h1>%s</h1>\n<p>%s</p>" % (escape(title), escape(sentence))]
        named = sorted(d.name for d in library.names.defined.values() if d.file == file and d.kind in ("function", "type", "made")
                       and any(c.first <= d.line < c.end for c in parts))
        if named:
            body.append('<details><summary>%d names defined here</summary><ul class="columns">%s</ul></details>' % (
                len(named), "".join("<li>%s</li>" % link("#L%d" % (library.names.defined[d].line + 1), d) for d in named)))
        for c in parts:
            what = (c.half.capitalize() + ", l" if len(parts) > 1 else file + ", l") + "ines %d to %d" % (c.first + 1, c.end)
            body.append('<h2 id="%s">%s</h2>' % (c.half, what))
            rows = ['<span class="r"><a class="l" id="L%d" href="#L%d" aria-hidden="true" tabindex="-1"></a>%s\n</span>%s' % (
                k + 1, k + 1, written[file][k], '<small class="x">%s</small>' % notes[file, k] if (file, k) in notes else "")
                for k in range(c.first, c.end)]
            body.append('<pre class="source" style="--from: %d" tabindex="0" role="region" aria-label="%s">%s</pre>' % (c.first, what, "".join(rows)))
        out[name] = page("%s - tensorgrad" % title, head, "\n".join(body))
    out["index.html"] = index(library, order, pages)
    return out


def title_of_page(library, name, pages):
    """The title of a page, and the sentence that describes it in the contents of its file."""
    file, parts = pages[name]
    tag = parts[0].tag
    if file == COMPANION:
        said = dict(re.findall(r"^ +@@([A-Z_]+) +(\S.*)$", library.text[COMPANION][:library.text[COMPANION].index("*/")], re.M))
        return ("CUDA: " + tag, said[tag]) if tag else ("CUDA", "the head of tensorgrad_cuda.cu")
    if tag:
        return "@@" + tag, library.sentence[tag].rstrip(".:")
    return {"start.html": ("The first comment", "how to use the library, and the contents"),
            "halves.html": ("Between the halves", "the order of the rooms, what the implementation includes"),
            "licence.html": ("The licence", "at the end of the header")}[name]


def index(library, order, pages):
    size = lambda p: sum(c.end - c.first for c in pages[p][1])
    row = lambda p: "<dt>%s</dt><dd>%s <span class=\"more\">(%d lines)</span></dd>" % (
        link(p, title_of_page(library, p, pages)[0]), escape(title_of_page(library, p, pages)[1]), size(p))
    body = ["<h1>tensorgrad: the source</h1>",
            "<p>tensorgrad.h and tensorgrad_cuda.cu, a page for each room.  A name leads to its definition; a function or a rule that "
            "comes from a row of the op table leads to that row; under a declaration stand its implementation, the rows of its ops, "
            "their rules and their kernels.  Lines have the numbers that they have in their file.</p>"]
    rows = [row(p) for p in order if p in ("start.html", "halves.html")]
    for tag, sentence in library.contents + [(None, "On NVIDIA GPUs: tensorgrad_cuda.cu.")]:
        if tag:
            rows.append(row("room-%s.html" % tag.lower()))
            continue
        body.append("<dl class=\"rooms\">%s</dl>\n<h2>%s</h2>" % ("".join(rows), escape(sentence.rstrip("."))))
        rows = []
    rows = [row(p) for p in order if pages[p][0] == COMPANION]
    body.append("<dl class=\"rooms\">%s</dl>\n<h2>The end</h2>\n<dl class=\"rooms\">%s</dl>" % ("".join(rows), row("licence.html")))
    return page("tensorgrad: the source", '<nav aria-label="Pages">%s</nav>' % link("../manual.html", "Manual"), "\n".join(body))


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
        write(path, manual(library))
        print("written: " + path)
        return
    folder = os.path.basename(os.path.normpath(path))
    write(os.path.join(path, "..", "manual.html"), manual(library, folder + "/"))
    pages = book(library)
    for name, text in pages.items():
        write(os.path.join(path, name), text)
    print("written: %d pages, %s first, and the manual beside them" % (len(pages), os.path.join(path, "index.html")))


if __name__ == "__main__":
    main()
