"""How the pages of book.py look: style, script, source and comments as HTML.  All of it is well-formed XML, too."""
import re
from html import escape

KEYWORDS = set("""auto bool break case char class const constexpr continue default do double else enum extern false float for goto if
inline int int8_t int16_t int32_t int64_t long namespace nullptr private public return short signed size_t sizeof static struct
switch template true typedef typename uint8_t uint16_t uint32_t uint64_t union unsigned using void volatile while __device__
__global__ __shared__ __host__ NULL""".split())
TOKEN = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|#[ ]*[a-z]+|[A-Za-z_]\w*|\n|[^\w"\'/#\n]+|.', re.S)
WORDS_OF_COMMENTS = re.compile(r"@@([A-Z_]+)|\b(?:TGI?_\w+|tgi?_\w+)|(?<![.\w])[A-Z]{2,}\b")
TERM = re.compile(r"(?=[\w@].{0,27} {2})(\S+(?: \S+)*(?<![.,;:?!])) {2,}(?:\* )?(\S.*)$") # and what it means, in a list

WORDS = ("CPU", "CSV", "NPZ", "NN", "SIMD") # are said of other things than the rooms, too

STYLE = """
:root { color-scheme: light dark; --ink: #1d232a; --paper: #fff; --soft: #f4f5f7; --line: #d5d9df; --quiet: #59636e;
  --link: #0b57b0; --comment: #3f6d3f; --word: #8a2252; --text: #95520a; --mark: #fff3bf; }
@media (prefers-color-scheme: dark) { :root { --ink: #dfe3e8; --paper: #15191e; --soft: #1e242b; --line: #39424d;
  --quiet: #a0abb7; --link: #86bbff; --comment: #93bf8d; --word: #ee9dc5; --text: #e5b077; --mark: #4a4108; } }
* { box-sizing: border-box; }
html { scroll-padding-top: 4.5rem; -webkit-text-size-adjust: 100%; }
body { margin: 0; color: var(--ink); background: var(--paper); font: 16px/1.55 system-ui, sans-serif; }
main { overflow-wrap: break-word; max-width: 68rem; margin: 0 auto; padding: 0 1rem 2rem; }
a { color: var(--link); text-decoration: none; } a:hover { text-decoration: underline; }
p a, li a, dd a { text-decoration: underline; }
:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
.skip { position: absolute; left: -99rem; }
.skip:focus { left: 1rem; top: .5rem; background: var(--paper); padding: .3rem; z-index: 3; }
header { position: sticky; top: 0; z-index: 2; background: var(--paper); border-bottom: 1px solid var(--line);
  padding: .45rem 1rem; }
header nav, header form { display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; align-items: center; max-width: 66rem;
  margin: 0 auto; }
[hidden] { display: none !important; }
input { font: inherit; color: inherit; background: var(--soft); border: 1px solid var(--quiet); border-radius: 5px;
  padding: .25rem .5rem; width: 22rem; max-width: 100%; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 1.6rem 0 .6rem; overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; margin: 2.4rem 0 .6rem; border-bottom: 1px solid var(--line); }
h3 { font-size: 1.02rem; margin: 0 0 .4rem; }
code, pre { font: .84rem/1.5 ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; tab-size: 4; }
h3 code { font-size: 1.02rem; overflow-wrap: anywhere; }
pre { background: var(--soft); margin: .5rem 0; padding: .6rem .8rem; overflow-x: auto; border-radius: 5px; }
article { border-top: 1px solid var(--line); padding: .9rem 0 .5rem; }
h2 + article { border: 0; } article:has(:target) { background: var(--mark); }
p { margin: .5rem 0; max-width: 46rem; } .more { color: var(--quiet); font-size: .88rem; }
dl { margin: .6rem 0; max-width: 52rem; } dt { font-weight: 600; }
dd { margin: 0 0 .4rem 1.5rem; }
.columns { columns: 14rem; padding-left: 1.1rem; overflow-wrap: anywhere; }
dl.rooms { display: grid; grid-template-columns: 11rem 1fr; gap: .2rem 1rem; max-width: none; }
.rooms dd { margin: 0; } .c { color: var(--comment); } .k { color: var(--word); }
.s { color: var(--text); } .c a, .d { font-weight: 600; } summary { cursor: pointer; }
.source { --number: 4.5rem; max-width: none; margin-left: -1rem; margin-right: -1rem; border-radius: 0; font-size: .78rem;
  counter-reset: line var(--from); }
.r { display: block; padding-left: var(--number); text-indent: calc(-1 * var(--number)); }
.l { counter-increment: line; display: inline-block; width: calc(var(--number) - .9rem); margin-right: .9rem;
  text-indent: 0; text-align: right; color: var(--quiet); user-select: none; -webkit-user-select: none; }
.l::before { content: counter(line); }
.l:target { background: var(--mark); font-weight: 700; }
.x { display: block; margin: 0 0 .2rem var(--number); color: var(--quiet); user-select: none;
  -webkit-user-select: none; white-space: normal; max-width: 60rem; font-family: system-ui, sans-serif; }
.x a { text-decoration: underline; }
.prose { border-top: 3px double var(--line); margin-top: 1rem; padding-top: .4rem; }
h2 + .prose { border: 0; margin: 0; }
@media (max-width: 40rem) {
  html { scroll-padding-top: .6rem; } header { position: static; } body { font-size: 15px; }
  .source { font-size: .72rem; padding: .5rem .3rem; --number: 3.4rem; white-space: pre-wrap; overflow-wrap: anywhere; }
  .l { padding-right: .3rem; margin-right: .3rem; } dl.rooms { display: block; }
}
@media print {
  header, .skip, details { display: none; } body { font-size: 10pt; background: #fff; color: #000; }
  article { break-inside: avoid; } h2, h3 { break-after: avoid; } a { color: inherit; } main { max-width: none; }
  pre { white-space: pre-wrap; background: #fff; border: 0; overflow: visible; } .source, .x { font-size: 6.6pt; }
}
"""

# Shows the entries that have every word typed, and says how many; Escape empties the box, / goes to it.
SCRIPT = """
(function () {
  var form = document.querySelector('form'), box = form.querySelector('input'), count = form.querySelector('output');
  var parts = Array.prototype.slice.call(document.querySelectorAll('main section')), entries = [];
  parts.forEach(function (part) {
    part.querySelectorAll('article').forEach(function (entry) {
      entries.push({ entry: entry, text: entry.textContent.toLowerCase() });
    });
  });
  function show() {
    var words = box.value.toLowerCase().split(/[ ,()]+/).filter(Boolean), found = 0;
    entries.forEach(function (e) {
      e.entry.hidden = !words.every(function (word) { return e.text.includes(word); });
      if (!e.entry.hidden) found++;
    });
    parts.forEach(function (part) {
      part.hidden = words.length !== 0 ? part.querySelector('article:not([hidden])') === null : false;
    });
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


class Code:
    """Writes source as HTML: colours, and links by `target`, of a name, and `room`, of a tag; either may give None."""

    def __init__(self, target, room):
        self.target, self.room = target, room

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
    """What a row of a comment is: " ", indented; -, an item; t, a term and its meaning; c, one that fills its column; p, prose."""
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
        elif entries and kind_of(row, column) == "c":
            entries.append([row[:column].strip(), row[column:]])
        elif entries and len(row) - len(row.lstrip()) >= min(column, 6) and "{" not in row and not re.search(r"\S {4,}\S", row):
            entries[-1][1] += " " + row.strip()
        else:
            return "<pre>%s</pre>" % marked("\n".join(rows))
    return "<dl>%s</dl>" % "".join("<dt>%s</dt><dd>%s</dd>" % (marked(a), marked(b)) for a, b in entries)
