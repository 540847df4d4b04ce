#!/usr/bin/env python3
"""snippets.py FOLDER [nvcc|nccl]: the programs in README.md and in the first comment of tensorgrad.h compile without a warning, as C99
and as C++11, and print what stands there; the one on a GPU also as the README's `make sim` builds it.  Of README.md and those of
tests/ and examples/: the rows of the op table and the error messages that they quote are the real ones, the figures are those of
RESULTS.md, every link leads somewhere, and every example and belief is listed.  With nvcc: the README's lines of nvcc and cc, just
as they stand, build that program, and it runs, be there a GPU or not; with nccl those that stand there for NCCL."""
import os, re, shutil, subprocess, sys, xml.dom.minidom

from checks import check, summary

FOLDER = sys.argv[1]
READMES = ("README.md", "examples/README.md", "tests/README.md")
COURSE = ("examples/LECTURER.md", "examples/lab/README.md") # lab.sh runs what they tell to type
LANGUAGES = (("cc", ".c", "-std=c99"), ("c++", ".cc", "-std=c++11"))
FLAGS = "-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wsign-conversion -Werror -O0 -I.".split()


def library(compiler, suffix, standard):
    """The library as an object file of this language, compiled once for all programs."""
    path = os.path.join(FOLDER, "library" + suffix)
    if not os.path.exists(path + ".o"):
        open(path, "w").write('#define TENSORGRAD_IMPLEMENTATION\n#include "tensorgrad.h"\n')
        subprocess.check_call([compiler, standard] + FLAGS + ["-c", path, "-o", path + ".o"])
    return path + ".o"


def run(name, program, wanted, whole=False):
    """Compiles and runs the program in both languages: as a whole, or linked with the library, which saves most of the time."""
    for language in LANGUAGES:
        compiler, suffix, standard = language
        if not shutil.which(compiler):
            print("skipped: no %s" % compiler)
            continue
        path = os.path.join(FOLDER, name + suffix)
        open(path, "w").write(program)
        how = [path] if whole else ["-DTG_COMPILED", path, library(*language)]
        built = subprocess.run([compiler, standard] + FLAGS + how + ["-o", path + ".out", "-lm"], capture_output=True, text=True)
        check(built.returncode == 0, "%s does not compile as %s" % (name, standard), built.stderr[:2000])
        if built.returncode == 0:
            said = subprocess.run([os.path.abspath(path + ".out")], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                                  cwd=FOLDER)
            check(said.returncode == 0, "%s ends with %d" % (name, said.returncode), said.stderr)
            check(said.stdout.strip() == wanted.strip(), name, "prints:\n%s\nwanted:\n%s" % (said.stdout, wanted))


def picture():
    """The picture of README.md is what `make picture` writes: XML, and the steps that the first program prints."""
    compiler, suffix, standard = LANGUAGES[0]
    program, committed = os.path.join(FOLDER, "picture"), open("examples/player.svg").read()
    subprocess.check_call([compiler, standard] + FLAGS + ["-DTG_COMPILED", "tests/tools/picture.c", library(compiler, suffix, standard),
                          "-o", program, "-lm"])
    drawn = subprocess.run([os.path.abspath(program)], capture_output=True, text=True).stdout
    check(drawn == committed, "examples/player.svg is as `make picture` draws it")
    texts = [e.firstChild.data for e in xml.dom.minidom.parseString(committed).getElementsByTagName("text") if e.firstChild]
    steps = [line for line in texts if line.startswith("   ")]
    check(len(steps) == 3 and all(line + "\n" in open("README.md").read() for line in steps), "the README's steps are those of its picture")


def shell(lines, name, **options):
    said = subprocess.run(["sh", "-ec", lines], capture_output=True, text=True, stdin=subprocess.DEVNULL, **options)
    check(said.returncode == 0, "%s ends with %d" % (name, said.returncode), (said.stdout + said.stderr)[-2000:])
    return said.stdout


def gpu_program(blocks):
    """The README's program that asks for a GPU, and what it prints."""
    return next((text, blocks[k + 1][1]) for k, (_, text) in enumerate(blocks) if "tg_cuda_is_available" in text)


def nvcc(blocks):
    """The nvcc block in a folder of its own with the program as main.c, and the toolkit's libraries where cc and ld.so look."""
    folder, lines = os.path.join(FOLDER, "nvcc"), next(text for _, text in blocks if text.startswith("nvcc -arch"))
    program, wanted = gpu_program(blocks)
    libraries = os.path.join(os.path.dirname(os.path.realpath(shutil.which("nvcc"))), "..", "lib64")
    os.makedirs(folder, exist_ok=True)
    for name in ("tensorgrad.h", "tensorgrad_cuda.cu"):
        shutil.copy(name, folder)
    open(os.path.join(folder, "main.c"), "w").write(program)
    environment = dict(os.environ, LIBRARY_PATH=libraries, LD_LIBRARY_PATH=libraries)
    check(shell(lines + "./a.out", "the README's nvcc and cc", cwd=folder, env=environment) == wanted, "what it prints")


def nccl(blocks):
    """The block for NCCL likewise, with the nccl.h of the toolkit or of the system, or else the simulator's."""
    folder, lines = os.path.join(FOLDER, "nccl"), next(text for _, text in blocks if text.startswith("nvcc -DTG_USE_NCCL"))
    home = os.path.dirname(os.path.dirname(os.path.realpath(shutil.which("nvcc"))))
    libraries = ":".join(os.path.join(home, name) for name in ("lib64", "lib"))
    os.makedirs(folder, exist_ok=True)
    for name in ("tensorgrad.h", "tensorgrad_cuda.cu"):
        shutil.copy(name, folder)
    real = next((f for f in (os.path.join(home, "include/nccl.h"), "/usr/include/nccl.h") if os.path.exists(f)), None)
    if not real:
        shutil.copy("tests/cudasim/nccl.h", folder)
    print("nccl.h:", real or "that of the simulator; nothing is linked")
    program, wanted = gpu_program(blocks)
    open(os.path.join(folder, "main.c"), "w").write(program)
    environment = dict(os.environ, LIBRARY_PATH=libraries, LD_LIBRARY_PATH=libraries, CPATH=folder)
    lines = lines.split("\n")[0] + "\n" if not real else lines + "./a.out"
    check(shell(lines, "the README's nvcc with NCCL", cwd=folder, env=environment) == (wanted if real else ""), "what it prints")


def simulated(lines, blocks):
    """The `make sim` block with the program as main.c."""
    program, wanted = gpu_program(blocks)
    if not shutil.which("c++"):
        print("skipped: no c++")
        return
    open(os.path.join(FOLDER, "main.c"), "w").write(program)
    for name in ("main.c", "prog"):
        lines = re.sub(r"(=|\./)%s\b" % re.escape(name), lambda m: m.group(1).strip("./") + os.path.join(FOLDER, name), lines)
    lines = lines.replace("make sim", "make -s sim BUILD=" + os.environ.get("BUILD", FOLDER))
    check(shell(lines, "the README's make sim") == wanted, "what the program prints on the simulator")


def separate(lines, program, wanted):
    """The block that compiles the library once, in a folder of its own, if UNOPTIMISED is set in the environment without -O2; main.c
    is the program without the define."""
    folder = os.path.join(FOLDER, "separate")
    os.makedirs(folder, exist_ok=True)
    shutil.copy("tensorgrad.h", folder)
    if os.environ.get("UNOPTIMISED"):
        lines = lines.replace("-O2", "-O0")
    open(os.path.join(folder, "main.c"), "w").write(program.replace("#define TENSORGRAD_IMPLEMENTATION\n", ""))
    check(shell(lines + "./a.out", "the README's tg.c", cwd=folder) == wanted, "what it prints with the library in tg.c")


def installed(lines, blocks, program, wanted):
    """The block that installs the library in a home of its own, and those below it: main.c by pkg-config and by both ways of CMake,
    and the shared library, which main.c is linked with."""
    home = os.path.abspath(os.path.join(FOLDER, "home"))
    os.makedirs(home, exist_ok=True)
    main = os.path.join(home, "main.c")
    open(main, "w").write(program)
    lines = re.sub(r"^make ", "make -s ", lines).replace("cc -O2 main.c", "cc -O0 -o %s/main %s" % (home, main))
    if not shutil.which("pkg-config"):
        print("skipped: no pkg-config")
        lines = lines.split("\n")[0] + "\n"
    else:
        lines += home + "/main\n"
    said = shell(lines, "the README's make install", env=dict(os.environ, HOME=home))
    check(said == (wanted if "pkg-config" in lines else ""), "what the program by pkg-config prints", said)
    cmake(next(text for language, text in blocks if language == "cmake"), home)
    shared = next(text for _, text in blocks if "-shared" in text).replace("-O2", "-O0")
    shutil.copy("tensorgrad.h", home)
    shared += "cc -DTG_COMPILED main.c libtensorgrad.so.0 -Wl,-rpath,. -lm\n./a.out\n"
    check(shell(shared, "the README's shared library", cwd=home) == wanted, "what the program with the shared library prints")


def cmake(text, home):
    """The README's lines of CMake, each of its two ways alone; install.sh builds such projects."""
    if not shutil.which("cmake"):
        print("skipped: no cmake")
        return
    find, link = (next(line for line in text.split("\n") if line.startswith(word)) for word in ("find_package", "target_link"))
    fetch = "include(FetchContent)\n" + "\n".join(re.findall(r"^# (Fetch.*)", text, re.M)).replace("path/to/tensorgrad", os.getcwd())
    for name, way in (("find", find), ("fetch", fetch)):
        folder = os.path.join(home, name)
        os.makedirs(folder, exist_ok=True)
        shutil.copy(os.path.join(home, "main.c"), folder)
        open(os.path.join(folder, "CMakeLists.txt"), "w").write(
            "cmake_minimum_required(VERSION 3.18)\nproject(main C)\nadd_executable(main main.c)\n%s\n%s\n" % (way, link))
        shell("cmake -S . -B build -DCMAKE_PREFIX_PATH=%s/tg" % home, "the README's CMake, %s" % name, cwd=folder)


def first(lines, program, wanted):
    """The lines that run the first program, each in a folder that has nothing else but the header."""
    folder = os.path.join(FOLDER, "first")
    os.makedirs(folder, exist_ok=True)
    shutil.copy("tensorgrad.h", folder)
    open(os.path.join(folder, "first.c"), "w").write(program)
    for line in lines.strip().split("\n"):
        if not shutil.which(line.split()[0]):
            print("skipped: no %s" % line.split()[0])
            continue
        check(shell(line, "the README's %s" % line, cwd=folder) == wanted, "what the first program prints", line)


def python(program, wanted):
    """The program in Python, over the shared library as the line at the head of tg.py builds it, but unoptimised."""
    line = re.search(r"^ +(cc .* -shared .*)$", open("examples/python/tg.py").read(), re.M).group(1).replace("-O2", "-O0")
    where = os.path.abspath(os.path.join(FOLDER, "libtensorgrad.so"))
    shell(line.replace("libtensorgrad.so", where), "the line that tg.py names")
    said = subprocess.run([sys.executable, "-B", "-c", program], capture_output=True, text=True,
                          env=dict(os.environ, PYTHONPATH="examples/python", TENSORGRAD_LIBRARY=where))
    check(said.stdout == wanted, "the program in Python", "prints:\n%s%s\nwanted:\n%s" % (said.stdout, said.stderr, wanted))


def models(lines):
    """Each line calls a program of `make models` with options that this lists when it is called alone."""
    compiler, suffix, standard = LANGUAGES[0]
    for program in sorted(set(re.findall(r"^out/(\w+) ", lines, re.M))):
        check(re.search(r"^\tfor program in .*\b%s\b" % program, open("Makefile").read(), re.M), "make models builds %s" % program)
        path = os.path.join(FOLDER, "model-" + program)
        subprocess.check_call([compiler, standard, "-O0", "-I.", "-DTG_COMPILED", "examples/models/%s.c" % program,
                               library(compiler, suffix, standard), "-o", path, "-lm"])
        said = subprocess.run([os.path.abspath(path)], capture_output=True, text=True)
        for line in re.findall(r"^out/%s .*" % program, lines, re.M):
            for option in re.findall(r"--[\w-]+", line):
                check(re.search(re.escape(option) + r"(?![\w-])", said.stdout + said.stderr), "an option that is not listed: " + option, line)


def error_program(message):
    """A program that makes the error that the README quotes: an op on tensors of the shapes in its hint."""
    op = re.match(r"(tg_\w+): ", message).group(1)
    shapes = re.findall(r"\[([\d, ]+)\]", message)
    tensors = ", ".join("tg_ones(TG_SHAPE(%s))" % s for s in shapes)
    return ('#define TENSORGRAD_IMPLEMENTATION\n#include "tensorgrad.h"\nint main(void)\n{\n    tg_set_error_handler(NULL, NULL);\n'
            '    (void)%s(%s);\n    puts(tg_error_message());\n    tg_clear_error();\n    tg_shutdown();\n    return 0;\n}\n') % (op, tensors)


def anchors(text):
    """The headings of a page, as links write them."""
    return {re.sub(r"[^\w -]", "", h).strip().lower().replace(" ", "-") for h in re.findall(r"^#+ (.*)", text, re.M)}


def broken_links(path, text):
    """The links of a page that lead to no file, or to no heading of a page."""
    links = [re.fullmatch(r"([^#]*)#?(.*)", link).groups() for link in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text)]
    targets = [(os.path.join(os.path.dirname(path), file) if file else path, heading) for file, heading in links]
    return [t for t in targets if not os.path.exists(t[0]) or (t[1] and t[1] not in anchors(open(t[0]).read()))]


def unmeasured(readme, results):
    """The figures under "Measured" and of the door "Embed" that no row of RESULTS.md has of those that the same point names; these
    points."""
    rows = [[cell.strip() for cell in line.split("|")] for line in results.split("\n") if line.startswith("| ")]
    points = re.split(r"^- ", readme.split("\n## Measured\n")[1].split("\n## ")[0], flags=re.M)[1:]
    points.append(re.search(r"^- (\*\*Embed\..*?)^- ", readme, re.M | re.S).group(1))
    missing = []
    for point in points:
        cells = [cell for row in rows if "`%s`" % row[1] in point for cell in row]
        known = set(cells) | {re.sub(r" \[.*", " times", cell) for cell in cells}
        missing += [f for f in re.findall(r"\b[\d.,]+ (?:[nm]?s|us|bytes|MB|GB|%|times)(?!\w)", re.sub(r"\s+", " ", point)) if f not in known]
    return missing, points


def pages(readmes):
    """What the READMEs say beside their programs."""
    readme, examples = (readmes[f] for f in READMES[:2])
    course = {f: open(f).read() for f in COURSE}
    for path, text in list(readmes.items()) + list(course.items()):
        broken = broken_links(path, text)
        check(not broken, "links of %s" % path, "lead nowhere: %s" % broken)
    known = set(re.findall(r"\btg_\w+", open("tensorgrad.h").read()))
    for path, text in course.items():
        unknown = sorted(set(re.findall(r"\btg_\w+", text)) - known)
        check(not unknown, "names in %s" % path, "not in tensorgrad.h: %s" % unknown)
    results = open("tests/bench/RESULTS.md").read()
    missing, points = unmeasured(readme, results)
    check(len(points) == 6 and not missing, "the README's figures", "not in the rows of RESULTS.md that stand beside them: %s" % missing)
    point = next(p for p in points if "times" in p)
    planted = readme.replace(point, re.sub(r"\d(?=\s+times)", lambda m: str((int(m.group()) + 1) % 10), point, count=1))
    check(len(unmeasured(planted, results)[0]) == 1, "planting: a figure of the README that is in no row is found")
    programs = {f for f in os.listdir("examples") if f.endswith(".c")}
    check(programs == set(re.findall(r"^\| \[\w+\.c\]\((\w+\.c)\)", examples, re.M)), "examples/README.md names every example")
    tested = set(re.findall(r'^ *BELIEF\("([^"]*)"\)', open("tests/test_moves.c").read(), re.M))
    listed = set(re.findall(r"\| (\d+:\d+) \|$", examples, re.M))
    check(tested == listed, "the table of beliefs", "only in examples/README.md or only in test_moves: %s" % sorted(tested ^ listed))
    first = re.search(r"^```c\n(.*?)^```", readme, re.M | re.S).group(1)
    check(len(first.strip().split("\n")) <= 20, "the README's first program has twenty lines at most")
    door = [line.strip() for line in re.sub(r"```.*?```", "", readme, flags=re.S).split("\n") if line.startswith("- **")]
    check([line.split("**")[1] for line in door[:3]] == ["Teach.", "Embed.", "Train."], "the three doors")


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.makedirs(FOLDER)
    header, readmes = open("tensorgrad.h").read(), {f: open(f).read() for f in READMES}
    prose = "\n".join(readmes.values())
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", prose, re.M | re.S)
    if sys.argv[2:] in (["nvcc"], ["nccl"]):
        globals()[sys.argv[2]](blocks)
        return
    rules = "".join(open(f).read() for f in ("Makefile", "tests/cudasim/sim.mk", "tests/ptx/ptx.mk"))
    manual = header[:header.index("*/")]
    program = re.search(r"^       #define TENSORGRAD_IMPLEMENTATION\n       #include \"tensorgrad.h\"\n       #include.*?^       }$", manual,
                        re.M | re.S).group(0)
    program = re.sub(r"^       ", "", program, flags=re.M) + "\n"
    wanted = re.search(r"printf\(.*//(.*)", program).group(1)
    run("manual", re.sub(r"//(.*)", r"/*\1 */", program), wanted, whole=True)
    programs, prints = 0, None
    for k, (language, text) in enumerate(blocks):
        follows = blocks[k + 1][1] if k + 1 < len(blocks) and not blocks[k + 1][0] else ""
        if language == "c" and "int main" in text:
            programs += 1
            prints = follows
            run("readme-%d" % programs, text, follows)
        elif language == "python":
            prints = follows
            python(text, follows)
        elif text.startswith("OP("):
            check(all(line in header for line in text.strip().split("\n")), "a row that the op table does not have", text)
        elif re.match(r"tg_\w+: ", text):
            run("readme-error", error_program(text), text)
        elif text.startswith("cc first.c"):
            first(text, blocks[0][1], blocks[1][1])
        elif text.startswith("make install"):
            installed(text, blocks, *next((t, blocks[i + 1][1]) for i, (language, t) in enumerate(blocks) if "int main" in t))
        elif language == "cmake" or "-shared" in text:
            check(any(t.startswith("make install") for _, t in blocks), "this block is checked with that of make install", text)
        elif text == prints or re.match(r"(cc|make) ", text):
            for target in re.findall(r"^make ([\w-]+)(?!\S)", text, re.M):
                check(re.search(r"^%s:" % target, rules, re.M), "the README's `make %s`" % target)
            if text.startswith("make sim"):
                simulated(text, blocks)
        elif text.startswith("out/"):
            models(text)
        elif text.startswith("printf "):
            separate(text, *next((t, blocks[i + 1][1]) for i, (language, t) in enumerate(blocks) if "int main" in t))
        elif text.startswith("nvcc "): # stage cuda of .ci/run compiles and links so
            companion = open("tensorgrad_cuda.cu").read()
            check(all(line in companion for line in text.strip().split("\n")), "not as tensorgrad_cuda.cu says", text)
        else:
            check(False, "a block of a README that nothing checks", text)
    for target in re.findall(r"`make ([\w-]+)", prose):
        check(re.search(r"^%s:" % target, rules, re.M), "the README's `make %s`" % target)
    check(programs > 0, "the README has no program")
    pages(readmes)
    picture()


main()
sys.exit(summary())
