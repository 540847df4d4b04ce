#!/usr/bin/env python3
"""pages.py: what `make manual` and `make book` write (tests/tools/book.py) is whole and true; ends in "N passed, N failed".

The pages are well-formed, fetch nothing, and each of their links leads to an anchor that is there.  Every public function has its
entry in the manual.  The pages of the source hold the lines of both files, to the byte.  A name in the source, of a public function
or of any that is called, leads to a line that has the name, or to the row that it was made from.  Under each declaration and each
row of the op table stand links to the implementation, the row, the rule and the kernels, and they lead to lines that are those
things; only ops of WITHOUT_KERNEL have no kernel.  A search in the manual shows what it should, and on a telephone nothing of it is
too wide, where there is chromium.  Before that, mistakes are planted, and each must be found."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "tools"))
import book
from checks import check, summary
from header import split

# No kernel: a view whose rule is views, too; a function of the program; what computes by other ops.
WITHOUT_KERNEL = set("reshape permute split unbind checkpoint custom logsumexp".split())


class Page:
    """A page, read: `broken` says why it cannot be; links [(href, element)]; code {line: text} and notes {line: [(href, text)]}."""

    def __init__(self, text):
        self.text, self.broken, self.ids, self.links, self.code, self.notes, self.uses, self.called = text, "", [], [], {}, {}, [], set()
        try:
            root = xml.fromstring(text.split("\n", 1)[1])
        except xml.ParseError as error:
            self.broken = str(error)
            return
        self.line = None
        self.walk(root, False, False)
        code = split("".join(self.code.values()))[0]
        self.called = set(re.findall(r"\btgi_[a-z0-9_]*[a-z0-9](?=\()", code))

    def walk(self, element, in_code, in_link):
        name, kind = element.tag, element.get("class", "")
        if element.get("id"):
            self.ids.append(element.get("id"))
        if name == "a":
            self.links.append(element.get("href"))
            self.broken = self.broken or (in_link and "a link in a link")
            if in_code and kind != "l":
                self.uses.append((element.get("href"), "".join(element.itertext())))
        if name in ("script", "style") and re.search(r"https?:|@import|url\(", element.text or ""):
            self.broken = self.broken or "it fetches something"
        if name in ("link", "img", "iframe") or element.get("src"):
            self.broken = self.broken or "it fetches something"
        in_code = in_code or kind == "source"
        if in_code and kind == "x":
            self.notes[self.line] = [(a.get("href"), "".join(a.itertext())) for a in element.iter("a")]
            self.links += [href for href, _ in self.notes[self.line]]
            self.put(element.tail)
            return
        if kind == "l":
            self.line = int(element.get("id")[1:])
            self.code[self.line] = ""
        elif in_code:
            self.put(element.text)
        for child in element:
            self.walk(child, in_code, in_link or name == "a")
            if in_code:
                self.put(child.tail)

    def put(self, text):
        if text and self.line:
            self.code[self.line] += text


def made(library):
    """The pages as {path: text}."""
    pages = {"book/" + name: text for name, text in book.Book(library).texts().items()}
    pages["manual.html"] = book.Manual(library, "book/").text()
    pages["alone.html"] = book.Manual(library).text()
    return pages


class Site:
    def __init__(self, pages):
        self.pages = pages
        self.ids = {path: set(page.ids) for path, page in pages.items()}

    def at(self, path, href):
        """The page and the anchor that a link leads to."""
        file, _, anchor = href.partition("#")
        return os.path.normpath(os.path.join(os.path.dirname(path), file)) if file else path, anchor

    def line(self, path, href):
        """The line of source that a link leads to, with the last one of a struct or an enum; "" if it leads elsewhere."""
        file, anchor = self.at(path, href)
        page = self.pages.get(file)
        if not page or not re.fullmatch(r"L\d+", anchor):
            return ""
        first = last = int(anchor[1:])
        if re.match("(static|typedef) [^()]*{$", page.code.get(first, "").rstrip()):
            while not page.code.get(last, "}").startswith("}"):
                last += 1
        return page.code.get(first, "") + (page.code.get(last, "") if last > first else "")


def problems(pages, header, companion, rows):
    """What is wrong with the pages, as texts."""
    site, found = Site(pages), []
    for path, page in pages.items():
        if page.broken:
            found.append("%s: %s" % (path, page.broken))
        if len(page.ids) != len(site.ids[path]):
            found += ["%s has the anchor %s twice" % (path, i) for i in site.ids[path] if page.ids.count(i) > 1]
        for href in set(page.links):
            file, anchor = site.at(path, href)
            if file not in pages or (anchor and anchor not in site.ids[file]):
                found.append("%s: a link to %s, which is not there" % (path, href))
    for file, text, begins in (("tensorgrad.h", header, ("book/room-", "book/start", "book/halves", "book/licence")),
                               ("tensorgrad_cuda.cu", companion, ("book/cuda",))):
        lines = {}
        for path, page in pages.items():
            if path.startswith(begins):
                found += ["line %d of %s stands on two pages" % (n, file) for n in page.code if n in lines]
                lines.update(page.code)
        whole = "".join(lines[n] for n in sorted(lines))
        if whole != text:
            same = len(os.path.commonprefix([whole, text]))
            found.append("the pages are not %s, from line %d on" % (file, text.count("\n", 0, same) + 1))
    public = re.sub(r"/\*.*?\*/", "", header[:header.index(book.END)], flags=re.S)
    functions = set(re.findall(r"^TG_API [^;(]*?\b(tg_\w+)\(", public, re.M))
    for name in functions:
        found += ["%s has no entry for %s" % (m, name) for m in ("manual.html", "alone.html") if name not in site.ids[m]]
    return found + wrong_uses(site, functions) + wrong_notes(site, functions, rows)


def wrong_uses(site, functions):
    found = []
    for path, page in site.pages.items():
        for href, name in set(page.uses):
            if re.match(r"tgi?_|TGI?_", name):
                line = site.line(path, href)
                rows = re.findall(r"\b[A-Z]\w*\((\w+)", line)
                if not re.search(r"\b%s\b" % name, line) and not any(row in name for row in rows):
                    found.append("%s: %s leads to a line without it: %s" % (path, name, line.strip()))
        linked = {name for _, name in page.uses}
        text = "".join(page.code.values())
        words = set(re.findall(r"\btg_\w+", text)) & functions
        found += ["%s: %s leads nowhere" % (path, name) for name in (words | page.called) - linked]
    return found


def wrong_notes(site, functions, rows):
    """The links under declarations and under rows.  rows: {op: (its last line, whether it has a rule)}."""
    found, declared, table = [], {}, site.pages["book/room-table.html"]
    for path, page in site.pages.items():
        for links in page.notes.values():
            for href, text in links:
                if text == "manual":
                    declared[href.partition("#")[2]] = [(site.line(path, h), t) for h, t in links]
    for name in functions:
        links = declared.get(name, [])
        lines = [line for line, text in links if text == "implementation"]
        if not lines or not (re.search(r"\b%s\b" % name, lines[0]) or re.match(r"[A-Z]\w+\(", lines[0])):
            found.append("the declaration of %s has no link to its implementation" % name)
    for op, (first, has_rule) in rows.items():
        note = next((table.notes[n] for n in sorted(table.notes) if n >= first), [])
        links = [(site.line("book/room-table.html", href), text) for href, text in note]
        rules = [line for line, text in links if text == "rule"]
        if has_rule != bool(rules) or (rules and not re.search(r"\btgi_rule_%s\b|_RULE\d\)|^TGI_\w+\(TGI_RULE" % op, rules[0])):
            found.append("the row of %s: rule" % op)
        kernels = [line for line, text in links if text in ("plain", "cpu", "cuda")]
        wrong = any(not re.search(r"tgi_(plain|cpu|cuda)_|TGI_PLAIN_COMPOSES", k) for k in kernels)
        if wrong or (has_rule and (op in WITHOUT_KERNEL) == bool(kernels)):
            found.append("the row of %s: kernels" % op)
        if "tg_" + op in functions:
            if not any(re.search(r"\bOP\(%s," % op, line) for line, _ in declared.get("tg_" + op, [])):
                found.append("the declaration of tg_%s has no link to its row" % op)
            if not any(text == "tg_" + op for _, text in note):
                found.append("the row of %s has no link to the manual" % op)
    return found


def rows_of(header):
    """{op: (number of its first line, whether it has a rule)}, read from the text of the tables."""
    rows = {}
    for table in "UNARY SCALAR BINARY TERNARY BINARY_SCALAR".split() + [""]:
        text = re.search(r"^#define TGI_%sOPS\(OP\)(?:.*\\\n)*.*" % (table and table + "_"), header, re.M)
        for m in re.finditer(r"\bOP\((\w+), (\w+)?", text[0]):
            if m.start() > 60:
                rows[m[1]] = header.count("\n", 0, text.start() + m.start()) + 1, m[2] != "TEST"
    return rows


def plant(pages, header, companion, rows):
    """Each mistake, planted in a copy of a page, is found."""
    def finds(what, path, old, new, text=header):
        page = pages[path].text
        check(old in page, "planting: %s has no %r" % (path, old))
        more = set(problems(dict(pages, **{path: Page(page.replace(old, new, 1))}), text, companion, rows)) - before
        check(any(what in m for m in more), "planted: %s" % what, "\n".join(sorted(more)[:5]))

    before = set(problems(pages, header, companion, rows))
    norm, table = "book/room-norm.html", "book/room-table.html"
    finds("no entry for tg_matmul", "manual.html", ' id="tg_matmul"', "")
    finds("not there", "manual.html", 'href="#tg_matmul"', 'href="#tg_matmull"')
    finds("mismatched tag", "manual.html", "</article>", "")
    finds("it fetches", "manual.html", "<style>", "<style>@import 'x.css';")
    changed = header.count("\n", 0, header.index("/* Of floating point, along dim")) + 1
    finds("twice", norm, 'id="L%d"' % changed, 'id="L%d"' % (changed + 1))
    finds("are not tensorgrad.h, from line %d" % changed, norm, "/* Of floating point", "/* of floating point")
    finds("are not tensorgrad_cuda.cu", "book/cuda-norm.html", "/* softmax and layer", "/* softmux and layer")
    text = pages[norm].text
    finds("tgi_unheard leads nowhere", norm, "</span>", "</span>tgi_unheard(")
    finds("tg_softmax leads", norm, re.search('href="room-norm[^"]*">tg_softmax<', text)[0], 'href="#L%d">tg_softmax<' % changed)
    implementation = re.search('">implementation</a>. op <a href="[^"]*">softmax<', text)[0]
    finds("of tg_softmax has no link to its impl", norm, implementation, '">softmax<')
    row = re.search('op <a href="[^"]*">softmax<', text)[0]
    finds("of tg_softmax has no link to its row", norm, row, '<a href="#L%d">softmax<' % changed)
    row = re.search(r"\n.*OP</a>\(softmax,|\n.*OP\(softmax,.*\n.*", pages[table].text)[0]
    finds("row of softmax: rule", table, row, row.replace(">rule<", ">gradient<"))
    finds("row of softmax: kernels", table, row, re.sub(">(plain|cpu|cuda)<", "><", row))
    below = "\n/* a - b; not of two bools"
    finds("no entry for tg_planted", norm, "a", "a", header.replace(below, "\nTG_API tg_tensor *tg_planted(tg_tensor *a);" + below))


def searches(page):
    """What the search box of the manual does, in chromium; tries: (what is typed, a name that is shown, one that is not)."""
    tries = [("tg_matmul", "tg_matmul", "tg_tanh"), ("integers torch.cumsum", "tg_cumsum", "tg_matmul"),
             ("MATMUL", "tg_matmul", "tg_tanh"), ("", "tg_tanh", None)]
    script = "<script>var box = document.querySelector('input'), said = '';\n"
    for typed, shown, hidden in tries:
        script += "box.value = '%s'; box.dispatchEvent(new Event('input'));\n" % typed
        for name in filter(None, (shown, hidden)):
            script += "said += document.getElementById('%s').closest('[hidden]') ? '-' : '+';\n" % name
    # No name is wider than a telephone, of 390 pixels; what is preformatted scrolls in itself.
    script += """var main = document.querySelector('main'), wide = [];
        main.style.width = '390px'; main.style.margin = 0;
        main.querySelectorAll('*').forEach(function (e) {
            if (e.getBoundingClientRect().right > 390) { if (!e.closest('pre')) { wide.push(e.textContent); } }
        });
        document.title = 'search ' + said + ', too wide: ' + wide.length;</script></body>"""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "manual.html")
        book.write(path, page.replace("</body>", script))
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--user-data-dir=" + folder, "--dump-dom"]
        run = subprocess.run(["chromium"] + flags + ["file://" + path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=120)
        dom = run.stdout.decode()
    check("<title>search +-+-+-+, too wide: 0</title>" in dom, "the search and the width of the manual", "".join(re.findall("<title>.*?</title>", dom)))


def main():
    header, companion = (open(f, encoding="utf-8").read() for f in (book.HEADER, book.COMPANION))
    pages = {path: Page(text) for path, text in made(book.Library(header, companion)).items()}
    rows = rows_of(header)
    check(len(rows) > 140, "the rows of the op table are read: %d" % len(rows))
    plant(pages, header, companion, rows)
    found = problems(pages, header, companion, rows)
    check(not found, "the pages", "\n".join(found[:40]))
    if shutil.which("chromium"):
        searches(pages["alone.html"].text)
    else:
        print("skipped: no chromium to search in the manual")
    return summary()


if __name__ == "__main__":
    sys.exit(main())
