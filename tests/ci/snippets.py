#!/usr/bin/env python3
"""snippets.py FOLDER [nvcc]: the programs in README.md and in the first comment of tensorgrad.h compile without a warning, as C99
and as C++11, and print what stands there; the one on a GPU also as the README's `make sim` builds it; the rows of the op table and
the error messages that the README quotes are the real ones.  With nvcc: the README's lines of nvcc and cc, just as they stand, build
that program, and it runs, be there a GPU or not."""
import os, re, shutil, subprocess, sys

from checks import check, summary

FOLDER = sys.argv[1]
LANGUAGES = (("cc", ".c", "-std=c99"), ("c++", ".cc", "-std=c++11"))
FLAGS = "-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wsign-conversion -Werror -O1 -I.".split()


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


def shell(lines, name, **options):
    said = subprocess.run(["sh", "-ec", lines], capture_output=True, text=True, stdin=subprocess.DEVNULL, **options)
    check(said.returncode == 0, "%s ends with %d" % (name, said.returncode), (said.stdout + said.stderr)[-2000:])
    return said.stdout


def gpu_program(blocks):
    """The README's program that asks for a GPU, and what it prints."""
    return next((text, blocks[k + 1][1]) for k, (_, text) in enumerate(blocks) if "tg_cuda_is_available" in text)


def nvcc(blocks):
    """The nvcc block in a folder of its own with the program as main.c, and the toolkit's libraries where cc and ld.so look."""
    folder, lines = os.path.join(FOLDER, "nvcc"), next(text for _, text in blocks if text.startswith("nvcc "))
    program, wanted = gpu_program(blocks)
    libraries = os.path.join(os.path.dirname(os.path.realpath(shutil.which("nvcc"))), "..", "lib64")
    os.makedirs(folder, exist_ok=True)
    for name in ("tensorgrad.h", "tensorgrad_cuda.cu"):
        shutil.copy(name, folder)
    open(os.path.join(folder, "main.c"), "w").write(program)
    environment = dict(os.environ, LIBRARY_PATH=libraries, LD_LIBRARY_PATH=libraries)
    check(shell(lines + "./a.out", "the README's nvcc and cc", cwd=folder, env=environment) == wanted, "what it prints")


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
    """The block that compiles the library once, in a folder of its own; main.c is the program without the define."""
    folder = os.path.join(FOLDER, "separate")
    os.makedirs(folder, exist_ok=True)
    shutil.copy("tensorgrad.h", folder)
    open(os.path.join(folder, "main.c"), "w").write(program.replace("#define TENSORGRAD_IMPLEMENTATION\n", ""))
    check(shell(lines + "./a.out", "the README's tg.c", cwd=folder) == wanted, "what it prints with the library in tg.c")


def error_program(message):
    """A program that makes the error that the README quotes: an op on tensors of the shapes in its hint."""
    op = re.match(r"(tg_\w+): ", message).group(1)
    shapes = re.findall(r"\[([\d, ]+)\]", message)
    tensors = ", ".join("tg_ones(TG_SHAPE(%s))" % s for s in shapes)
    return ('#define TENSORGRAD_IMPLEMENTATION\n#include "tensorgrad.h"\nint main(void)\n{\n    tg_set_error_handler(NULL, NULL);\n'
            '    (void)%s(%s);\n    puts(tg_error_message());\n    tg_clear_error();\n    tg_shutdown();\n    return 0;\n}\n') % (op, tensors)


def main():
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.makedirs(FOLDER)
    header, readme = open("tensorgrad.h").read(), open("README.md").read()
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", readme, re.M | re.S)
    if sys.argv[2:] == ["nvcc"]:
        nvcc(blocks)
        return
    rules = open("Makefile").read() + open("tests/cudasim/sim.mk").read()
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
        elif text.startswith("OP("):
            check(all(line in header for line in text.strip().split("\n")), "a row that the op table does not have", text)
        elif re.match(r"tg_\w+: ", text):
            run("readme-error", error_program(text), text)
        elif text == prints or re.match(r"(cc|make) ", text):
            for target in re.findall(r"^make ([\w-]+)", text, re.M):
                check(re.search(r"^%s:" % target, rules, re.M), "the README's `make %s`" % target)
            if text.startswith("make sim"):
                simulated(text, blocks)
        elif text.startswith("printf "):
            separate(text, *next((t, blocks[i + 1][1]) for i, (language, t) in enumerate(blocks) if "int main" in t))
        elif text.startswith("nvcc "): # stage cuda of .ci/run compiles and links so
            companion = open("tensorgrad_cuda.cu").read()
            check(all(line in companion for line in text.strip().split("\n")), "not as tensorgrad_cuda.cu says", text)
        else:
            check(False, "a block of the README that nothing checks", text)
    for target in re.findall(r"`make ([\w-]+)", readme):
        check(re.search(r"^%s:" % target, rules, re.M), "the README's `make %s`" % target)
    check(programs > 0, "the README has no program")
    tested = set(re.findall(r'^ *BELIEF\("([^"]*)"\)', open("tests/test_moves.c").read(), re.M))
    listed = set(re.findall(r"\| (\d+:\d+) \|$", readme, re.M))
    check(tested == listed, "the README's table of beliefs", "only in the README or only in test_moves: %s" % sorted(tested ^ listed))


main()
sys.exit(summary())
