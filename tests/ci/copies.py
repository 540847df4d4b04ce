"""What the scripts add_*.py share: a copy of the library in a folder, insertions into it, programs built and run there.

A place is one insertion: (file, text in front of which it goes, insertion).  The text must stand there exactly once, so that a
script fails where the library has moved away from its recipe."""
import os
import re
import shutil
import subprocess

from checks import check

HEADER, CUDA, SAMPLES = "tensorgrad.h", "tensorgrad_cuda.cu", "tests/samples.h"


def copy(folder):
    """Copies all files of the repository to the folder, which is emptied first; returns its whole path."""
    folder = os.path.abspath(folder)
    shutil.rmtree(folder, ignore_errors=True)
    for name in subprocess.check_output(["git", "ls-files"], text=True).split():
        os.makedirs(os.path.dirname(os.path.join(folder, name)), exist_ok=True)
        shutil.copy(name, os.path.join(folder, name))
    return folder


def insert(folder, places):
    """Inserts the text of each place; false where a place was not found, and then the copy is not worth compiling."""
    whole = True
    for name, anchor, text in places:
        path = os.path.join(folder, name)
        with open(path, encoding="utf-8") as file:
            parts = file.read().split(anchor)
        if not check(len(parts) == 2, "%s has %r %d times, not once" % (name, anchor, len(parts) - 1)):
            whole = False
            continue
        with open(path, "w", encoding="utf-8") as file:
            file.write(parts[0] + text + anchor + parts[1])
    return whole


def recipe(what):
    """The numbers of the steps that a head of the header has after "To add WHAT (tests/ci/add_..py adds ..):"."""
    words = r"To add %s\b[^:]*\(tests/ci/add_\w+\.py\s+adds [^)]*\)(.*?)(?=To add |\*/)" % what
    with open(HEADER, encoding="utf-8") as file:
        steps = re.findall(words, file.read(), re.S)
    check(len(steps) == 1, "%d recipes for %s, not one" % (len(steps), what))
    return [int(n) for n in re.findall(r"\b(\d+)\. ", " ".join(steps))]


def add(folder, what, places, most):
    """Adds the places of a thing: no more than `most`, and as many as its recipe in the header numbers, which may go on from
    the numbers of another recipe."""
    print("%s: %d places in %d files, of %d" % (what, len(places), len({name for name, _, _ in places}), most))
    check(len(places) <= most, "%s takes %d places, more than %d" % (what, len(places), most))
    steps = recipe(what)
    check(steps and steps == list(range(steps[0], len(places) + 1)), "the recipe for %s has the steps %s" % (what, steps))
    return insert(folder, places)


def run(folder, *command, **environment):
    """Runs a command in the folder, which must succeed; returns what it printed."""
    done = subprocess.run(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env=dict(os.environ, **environment))
    check(done.returncode == 0, " ".join(command), done.stdout[-3000:])
    return done.stdout


def test(folder, program, least, *filters, **environment):
    """Runs a test, of which at least so many checks must pass and none fail."""
    output = run(folder, program, *filters, SMALL="1", **environment)
    count = re.search(r"^(\d+) passed, 0 failed$", output, re.M)
    check(count and int(count[1]) >= least, " ".join((program,) + filters), output[-3000:])


def build(folder, name, flags="-O0"):
    """Builds a test; returns the program, relative to the folder."""
    run(folder, "make", "-s", "OPENMP=", "CFLAGS=" + flags, "BUILD=build", "build/" + name)
    return "build/" + name


def build_on_device(folder, name, flags="-O0"):
    """Builds a test with the CUDA kernels on pretend devices; None without a C++ compiler."""
    if not shutil.which("c++"):
        print("skipped: the pretend device, without a C++ compiler")
        return None
    run(folder, "make", "-s", "sim", "MAIN=tests/%s.c" % name, "OUT=build/sim-" + name, "BUILD=build",
        "CFLAGS=" + flags, "SIM_CXX=c++ -O0")
    return "build/sim-" + name


DEVICE = {"TG_SIM_DEVICES": "1", "TG_SIM_STRICT": "1", "TG_TEST_DEVICE": "cuda:0"}
