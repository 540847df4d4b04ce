"""Finds the places of tensorgrad.h where a mutant can live, and writes a copy of the header that holds them all.

A mutant is a number: the copy compares it with the environment variable TG_MUTANT, so that one program holds every mutant.
Kinds: sign and scale (a rule gives minus, or twice, its gradient), drop (a term or factor of a rule, or of the sum of
gradients, is left out), check (a check of sizes, dtypes or arguments never fails).
"""
import re

SUPPORT = r"""
#define TGI_SITES %d
const char *const *tgi_site_test = NULL; /* the name of the test that runs, as the harness says */

/* Notes in the file TG_TRACE that a test came here; true if the mutant that lives here is chosen. */
static bool tgi_site(int number)
{
    static const char *last[TGI_SITES];
    static FILE *trace = NULL;
    static int chosen = -2;
    if (chosen == -2) {
        const char *mutant = getenv("TG_MUTANT"), *path = getenv("TG_TRACE");
        chosen = mutant ? atoi(mutant) : -1;
        trace = path ? fopen(path, "a") : NULL;
    }
    if (trace && last[number] != (tgi_site_test ? *tgi_site_test : "")) {
        last[number] = tgi_site_test ? *tgi_site_test : "";
        fprintf(trace, "%%d %%s\n", number, last[number]);
        fflush(trace); /* a child of the test may end by _exit */
    }
    return number == chosen;
}

static tg_tensor *tgi_give_site(int number, tg_tensor *g)
{
    if (tgi_site(number)) return tg_neg(g);
    return tgi_site(number + 1) ? tg_mul_scalar(g, 2) : g;
}

static tg_tensor *tgi_drop_site(int number, tg_tensor *(*f)(tg_tensor *, tg_tensor *), tg_tensor *a, tg_tensor *b)
{
    return tgi_site(number) ? a : f(a, b);
}
"""
TABLES = {"TGI_UNARY_OPS": 1, "TGI_SCALAR_OPS": 1, "TGI_BINARY_OPS": 2, "TGI_TERNARY_OPS": 3,
          "TGI_BINARY_SCALAR_OPS": 2}                        # and how many rules, one per input, a row has
FUNCTION = re.compile(r"^(?!typedef)[A-Za-z_][^\n;={}#]*?\b(tgi?_\w+)\s*\([^;{}]*\)\s*\{", re.M)
RULE = re.compile(r"tgi_rule_\w+$|tgi_\w+_(gradient|rule|fused)$")
PAIR = re.compile(r"\b(tg_add|tg_sub|tg_mul|tg_div|tg_logical_or|tg_logical_and|tgi_later_add_?)\(")
FAILURE = re.compile(r"\b(tgi_fail|tgi_refuse|tgi_composite_fail|tgi_null_argument)\s*\(")
NO_CALL = re.compile(r".*(\b(tgi_thread|tgi_composite) \*|, code, \.\.\.|__VA_ARGS__)", re.S)
NEVER = re.compile(r"TG_ERR_(MEMORY|IO)\b")               # those have tests of their own: allocation failures, full disks


class Site:
    def __init__(self, number, kind, where, line, text):
        self.number, self.kind, self.where, self.line, self.text = number, kind, where, line, text

    def place(self):
        """As survivors.txt names it."""
        return "%s %s: %s" % (self.kind, self.where, self.text)

    def __str__(self):
        return "tensorgrad.h:%d: %s in %s: %s" % (self.line, self.kind, self.where, self.text)


def blank(text):
    """The text with comments, strings and characters as spaces, of the same length."""
    tokens = r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])+'"
    return re.sub(tokens, lambda m: re.sub(r"[^\n\\]", " ", m.group(0)), text, flags=re.S)


def closing(code, opening):
    """Where the parenthesis that opens at `opening` closes."""
    depth = 0
    for i in range(opening, len(code)):
        depth += {"(": 1, ")": -1}.get(code[i], 0)
        if depth == 0:
            return i
    raise ValueError("an open parenthesis at %d" % opening)


def arguments(code, opening):
    """Start and end of each argument of the call whose parenthesis opens at `opening`."""
    end, depth, start, found = closing(code, opening), 0, opening + 1, []
    for i in range(opening, end):
        depth += {"(": 1, ")": -1, "{": 1, "}": -1}.get(code[i], 0)
        if code[i] == "," and depth == 1:
            found.append((start, i))
            start = i + 1
    return found + [(start, end)]


def condition_before(code, at):
    """The parentheses of the `if` whose first or only statement begins at `at`, or None."""
    end = len(code[:at].rstrip(" \t\n\\{")) - 1
    depth, i = 0, end
    while code[end] == ")" and i > 0:
        depth += {")": 1, "(": -1}.get(code[i], 0)
        if depth == 0:
            return (i, end) if re.search(r"\bif\s*$", code[i - 8:i]) else None
        i -= 1
    return None


class Mutator:
    def __init__(self, text):
        self.text, self.code = text, blank(text)
        self.sites, self.edits = [], []                       # edits: start, end, order where several meet, new text
        self.half = self.code.index("#define TENSORGRAD_IMPLEMENTED")
        starts = [(m.start(), m.end(), m.group(1)) for m in FUNCTION.finditer(self.code, self.half)]
        ends = [s[0] for s in starts[1:]] + [len(text)]
        self.functions = [(s[0], s[1], end, s[2]) for s, end in zip(starts, ends)]
        for table, rules in TABLES.items():
            self.table(table, rules)
        self.rules()
        self.checks()
        first_room = self.text.index("/* ======== @@BASE", self.half)  # every use of the support stands behind it
        self.edits.append((first_room, first_room, 0, SUPPORT % len(self.sites)))

    def site(self, kind, at, shown, where=None):
        if not where:
            where = next((f[3] for f in self.functions if f[0] <= at < f[2]), "?")
        shown = " ".join(shown.replace("\\\n", " ").split())
        self.sites.append(Site(len(self.sites), kind, where, self.text.count("\n", 0, at) + 1, shown[:140]))
        return len(self.sites) - 1

    def wrap(self, start, end, before, after):
        self.edits += [(start, start, 1, before), (end, end, 0, after)]

    def give(self, start, end, where=None):
        shown = self.text[start:end]
        if re.match(r"\s*(tg_zeros_like\(\w+\)|NULL|rule(_\w)?)\s*\\?\s*$", shown):
            return                                           # minus zero is zero; the macro gives what the tables say
        number = self.site("sign", start, shown, where)
        self.site("scale", start, shown, where)
        self.wrap(start + len(shown) - len(shown.lstrip(" \t\n\\")), end, "tgi_give_site(%d, " % number, ")")

    def drop(self, start, end, where=None):
        for m in PAIR.finditer(self.code, start, end):
            number = self.site("drop", m.start(), self.text[m.start():closing(self.code, m.end() - 1) + 1], where)
            self.edits.append((m.start(), m.end(), 2, "tgi_drop_site(%d, %s, " % (number, m.group(1))))

    def table(self, name, rules):
        start = self.code.index("#define %s(OP)" % name)
        end = re.compile(r"[^\\]\n").search(self.code, start).start() + 1
        for m in re.compile(r"\bOP\(").finditer(self.code, self.code.index("\n", start), end):
            columns = arguments(self.code, m.end() - 1)      # name, kind, y, yi, flags, the rules, others
            for a, b in columns[5:5 + rules]:
                self.give(a, b, self.text[slice(*columns[0])].strip())
                self.drop(a, b, self.text[slice(*columns[0])].strip())

    def rules(self):
        for start, body, end, name in self.functions:
            for m in re.compile(r"\btgi_set_input_grad\(").finditer(self.code, body, end):
                self.give(*arguments(self.code, m.end() - 1)[2])
            if RULE.match(name) or "tgi_later_add" in self.code[body:end]:
                self.drop(body, end)

    def checks(self):
        for m in FAILURE.finditer(self.code, self.half):
            end = closing(self.code, m.end() - 1)
            shown = self.text[m.start():end + 1]
            if NEVER.search(shown) or NO_CALL.match(shown):
                continue                                     # not a call, or none that is asked for
            before = re.search(r"(return(?: tgi_no_tensor\()?|ok =)?\s*$", self.code[m.start() - 40:m.start()])
            start = m.start() - len(before.group(0))
            condition = condition_before(self.code, start)
            if condition:
                number = self.site("check", condition[0], "if " + self.text[condition[0]:condition[1] + 1])
                self.wrap(condition[0] + 1, condition[1], "(", ") && !tgi_site(%d)" % number)
                continue
            number = self.site("check", m.start(), shown)
            statement = not before.group(1) and self.code[:start].rstrip()[-1] in ";{})"
            if statement:
                self.edits.append((m.start(), m.start(), 1, "if (!tgi_site(%d)) " % number))
            else:
                self.wrap(m.start(), end + 1, "(tgi_site(%d) || " % number, ")")

    def header(self):
        """The header with every mutant in it."""
        parts, at = [], 0
        for start, end, _, new in sorted(self.edits, key=lambda e: (e[0], e[2])):
            parts += [self.text[at:start], new]
            at = end
        return "".join(parts) + self.text[at:]
