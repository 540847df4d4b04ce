#!/usr/bin/env python3
"""Shows that the tests can fail: plants one mistake at a time in the library and sees whether a test notices.

    python3 tests/mutate/mutate.py [--all | --part N] [--parts N] [--jobs N] [--build DIR] [TEST.c...]

The mistakes are those of sites.py.  One program per test holds all of them and takes the number of one from the environment.
Each runs only in the tests that come to its place (they are recorded first), and stops at the first check that fails; a
crash and a run of over 20 seconds count as noticed.  Without --all one part of --parts runs, by default the one that the
number of commits says, so that all get their turn.  What survives is listed; tests/mutate/survivors.txt says why some may.
Ends in "N passed, N failed": mutants noticed, and how many more would have had to be for 90 of 100, with the tests that
fail without a mutant, which would notice everything, and the lines of survivors.txt whose place is no more.
"""
import argparse, collections, concurrent.futures, glob, os, re, shutil, subprocess, sys, time
from sites import Mutator

WANTED = 0.9
LONG = ("test_deep", "test_oom", "test_determinism")  # they would take long to see what others see
ON_PLAIN = ("test_ops",)        # these run a second time, on the plain backend
PATIENCE = 20                   # seconds for a test that runs with a mutant


def options():
    o = argparse.ArgumentParser()
    o.add_argument("--all", action="store_true")
    o.add_argument("--part", type=int)
    o.add_argument("--parts", type=int, default=3)
    o.add_argument("--jobs", type=int, default=2)
    o.add_argument("--build", default="build/mutate")
    o.add_argument("--header", default="tensorgrad.h")
    o.add_argument("tests", nargs="*")
    return o.parse_args()


def prepare(o):
    """The mutated header and copies of the tests, whose harness names the test that runs and stops at a failed check."""
    mutator = Mutator(open(o.header).read())
    shutil.rmtree(o.build, ignore_errors=True)
    shutil.copytree("tests", o.build + "/tests", ignore=shutil.ignore_patterns("mutate", "ci", "bench", "*.txt"))
    open(o.build + "/tensorgrad.h", "w").write(mutator.header())
    for path in glob.glob(o.build + "/tests/*.[ch]"):
        text = open(path).read()
        if path.endswith("/harness.h"):
            text = "extern const char *const *tgi_site_test;\n" + text
        text = text.replace("harness.failed++;", 'harness.failed++;\n        if (getenv("TG_MUTANT")) _Exit(1);')
        text = re.sub(r"(static inline void harness_begin\([^)]*\)\n\{\n)", r"\1    tgi_site_test = &harness.test;\n", text)
        text = re.sub(r"!strstr\(([^;]+?), ((?:harness\.)?only)\)", r"strcmp(\1, \2) != 0", text)
        open(path, "w").write(text.replace("#include <math.h>", "#include <math.h>\n#include <stdlib.h>", 1))
    generator = o.build + "/declarations"  # test_api is made of the declarations, which no mutant changes
    subprocess.check_call([os.environ.get("CC", "cc"), "-o", generator, "tests/api/declarations.c"])
    subprocess.check_call(["./" + generator, o.header, o.build + "/api_calls.h"])
    return mutator


def build(o, test, link=True):
    source = "%s/tests/%s" % (o.build, os.path.basename(test))
    program = "%s/%s" % (o.build, os.path.basename(test)[:-2])
    command = [os.environ.get("CC", "cc"), "-std=c99", "-O1", "-w", "-ffp-contract=off", "-I" + o.build, source]
    if not link:
        command += ["-c", "-o", program + ".o"]
    else:
        command += ["-o", program] + [o.build + "/library.o"] + ["-lm"]
    return program if subprocess.call(command) == 0 else None


def ways_to_run(program):
    """A way is a program and what it has in the environment."""
    return [(program, ())] + [(program, (("TG_PLAIN", "1"),)) for name in ON_PLAIN if os.path.basename(program) == name]


def run(way, arguments, **environment):
    """The exit status of a test, or None when it took too long."""
    program, more = way
    environment.update(more)
    patience = 600 if "TG_TRACE" in environment else PATIENCE
    try:
        return subprocess.run(["./" + program] + arguments, env=dict(os.environ, **environment), timeout=patience,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL).returncode
    except subprocess.TimeoutExpired:
        return None


def trace(way):
    """Which tests come to which place, or None if the program fails."""
    name = " ".join([way[0]] + ["%s=%s" % pair for pair in way[1]])
    path = os.path.abspath(name.replace(" ", ".") + ".trace")
    begun = time.time()
    if run(way, [], TG_TRACE=path) != 0:
        print("%s fails without a mutant" % name)
        return None
    places = collections.defaultdict(set)
    for line in open(path) if os.path.exists(path) else []:  # a test that comes to no place
        number, _, test = line.rstrip("\n").partition(" ")
        places[int(number)].add(test)
    print("%-32s %4d places, %.0f s" % (name, len(places), time.time() - begun))
    return places


def runs_for(number, traces, weight):
    """What has to run for a mutant, cheapest first: (way, [] or [test])."""
    runs = []
    for way, places in traces.items():
        tests = places.get(number, set())
        if len(tests) > 20 or any(not re.match(r"\w+$", test) for test in tests):
            runs.append((10000, way, []))
        else:
            runs += [(weight[way, test], way, [test]) for test in tests]
    return [(way, arguments) for _, way, arguments in sorted(runs)]


def noticed(number, runs):
    return any(run(way, arguments, TG_MUTANT=str(number)) != 0 for way, arguments in runs)


def known_survivors():
    known = {}
    for line in open(os.path.join(os.path.dirname(__file__), "survivors.txt")):
        if line.strip() and not line.startswith("#"):
            place, _, reason = line.strip().rpartition(" -- ")
            known[place] = reason
    return known


def main():
    o = options()
    mutator = prepare(o)
    pool = concurrent.futures.ThreadPoolExecutor(o.jobs)
    tests = o.tests or sorted(test for test in glob.glob("tests/test_*.c") if not any(name in test for name in LONG))
    library = build(o, "library.c", link=False)
    programs = list(pool.map(lambda test: build(o, test), tests))
    if None in [library] + programs:
        sys.exit("0 passed, 1 failed")
    ways = [way for program in programs for way in ways_to_run(program)]
    traces = dict(zip(ways, pool.map(trace, ways)))
    broken = [way for way in ways if traces[way] is None]
    traces = {way: places for way, places in traces.items() if places is not None}
    weight = collections.Counter((way, test) for way in traces for tests in traces[way].values() for test in tests)
    chosen = mutator.sites
    if not o.all:
        if o.part is None:
            o.part = int(subprocess.run(["git", "rev-list", "--count", "HEAD"], capture_output=True, text=True).stdout or 0)
        chosen = [site for site in chosen if site.number % o.parts == o.part % o.parts]
        print("part %d of %d" % (o.part % o.parts, o.parts))
    known, count, caught = known_survivors(), collections.Counter(), collections.Counter()
    gone = set(known) - set(site.place() for site in mutator.sites)
    for place in gone:
        print("survivors.txt has a place that is no more: %s" % place)
    runs = [runs_for(site.number, traces, weight) for site in chosen]
    for site, tried, seen in zip(chosen, runs, pool.map(lambda pair: noticed(pair[0].number, pair[1]), zip(chosen, runs))):
        count[site.kind] += 1
        caught[site.kind] += seen
        if not seen:
            reason = known.get(site.place())
            print("survived: %s%s%s" % (site, "" if tried else "   [no test comes here]", "   (%s)" % reason if reason else ""))
    total, good = sum(count.values()), sum(caught.values())
    print("noticed: " + ", ".join("%s %d of %d" % (kind, caught[kind], count[kind]) for kind in sorted(count)) +
          ", in all %.1f %%" % (100.0 * good / max(total, 1)))
    missing = max(0, int(WANTED * total + 0.999) - good) + len(broken) + len(gone)
    print("%d passed, %d failed" % (good, missing))
    sys.exit(1 if missing else 0)


main()
