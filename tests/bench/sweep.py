#!/usr/bin/env python3
"""sweep.py [options] SWEEP [TEXT...]: every op of the op table beside PyTorch (`make bench-sweep`).

SWEEP is the compiled tests/bench/sweep.c, which has the list of cells and says how they are read.  TEXT selects cells
in which one of the texts occurs, as "softmax f32".  Both programs stay alive, make the inputs of a cell, compute it
once, and say what came out, so that cells are named whose results differ; then they are measured in turns.  Of each
program the fastest sample counts, on one thread in time of the processor, so that other programs disturb little; the
ratio is PyTorch's time divided by ours.  Where PyTorch comes out ahead, both are measured twice more after all other
cells, and the middle one of the three ratios counts; a cell that only seems to be ahead of PyTorch is not looked at
again.  Without PyTorch our times are printed alone.
Printed are, for each op, the number of cells, the median ratio and the worst cell; then the distribution of all ratios;
and what was not compared."""
import argparse
import math
import os
import subprocess
import sys
import time

from bench import HERE, OTHER_TITLES, Failed, Worker, header_commit, load, middle, processor, seconds_text

TITLE = "# The sweep"
INTRODUCTION = """\
Written by `make bench-sweep RESULTS=tests/bench/RESULTS.md`: every op of the op table over a grid of shapes, dtypes and
layouts, beside PyTorch.  ratio: its time divided by ours.  [cells.h](cells.h) is the grid, and [sweep.c](sweep.c) says
how a cell is read."""
WORST = 50
# How far two results of a dtype may be apart, as a part of the sum of absolute values.
TOLERANCE = {"f32": 1e-4, "f64": 1e-10, "bf16": 1e-2, "f16": 2e-3}
RANDOM = ("dropout", "multinomial")  # other random numbers
TIES = ("sort", "topk", "mode")  # equal elements in another order
SEVERAL = ("scatter", "scatter_", "index_put", "index_put_")  # whose gradient is it, where several write one element?


def agree(cell, ours, theirs):
    """Whether the four numbers that both programs say about the results of a cell are the same."""
    op, dtype = cell.split(" ")[:2]
    a, b = ([float(text) for text in line.split()] for line in (ours, theirs))
    if a[0] != b[0] or op in RANDOM or op in SEVERAL and "backward" in cell:
        return a[0] == b[0]
    if op in TIES:
        a[2] = b[2] = 0
    lower = [name for name in TOLERANCE if "text=" + name in cell]
    tolerance = max(TOLERANCE[name] for name in lower + [dtype if dtype in TOLERANCE else "f32"])
    most = tolerance * (max(abs(a[3]), abs(b[3])) + 1) if math.isfinite(a[3]) else 0
    return all(x == y or x != x and y != y or abs(x - y) <= most * (6 if i == 2 else 1)
               for i, (x, y) in enumerate(zip(a, b)))


class Measured:
    def __init__(self, cell, threads, ours, theirs=None):
        self.cell, self.threads, self.ours, self.theirs = cell, threads, ours, theirs
        self.op = cell.split(" ")[0]
        self.ratio = theirs / ours if theirs and ours else None


class Sweep:
    def __init__(self, options):
        self.options, self.measured = options, []
        self.differing, self.without, self.refused = {}, {}, []
        logs = os.path.join(os.path.dirname(options.program) or ".", "bench")
        os.makedirs(logs, exist_ok=True)
        self.log = open(os.path.join(logs, "sweep.log"), "w")

    def start(self, threads):
        """Our program and, if there is one, PyTorch's, on a number of threads.  A thread of either that waits for work
        keeps its processor busy; by default for some ten samples, so that it would disturb those of the other program.
        Here it goes to sleep after a part of one, which is still longer than it waits between two calls.  (bench.py lets
        the other program rest before each sample, which for so many cells would take longer than the samples.)"""
        os.environ.setdefault("GOMP_SPINCOUNT", "4000")
        ours = Worker("tensorgrad", [self.options.program, "worker", str(threads)], threads, self.log, threads > 1)
        self.version = ours.ask("version")
        if self.options.peers == "none":
            return ours, None, "no other library, as asked"
        program = os.path.join(HERE, "peers", "pytorch_sweep.py")
        theirs = Worker("pytorch", [sys.executable, program, str(threads)], threads, self.log, threads > 1)
        try:
            return ours, theirs, theirs.ask("version")
        except Failed:
            return ours, None, "skipped: PyTorch, which %s has not; our times alone" % sys.executable

    def run(self):
        for threads in self.options.threads:
            ours, theirs, self.peer = self.start(threads)
            if threads > 1 and "OpenMP" not in self.version:
                print("skipped: %d threads, without OpenMP" % threads)
                continue
            print("%s; %s; %d thread%s" % (self.version, self.peer, threads, "s" if threads > 1 else ""), flush=True)
            first = len(self.measured)
            for cell in self.cells(ours):
                self.measured += self.cell(cell, threads, ours, theirs)
            for i, m in enumerate(self.measured[first:], first):
                if m.ratio and m.ratio < 1:
                    again = [found for _ in range(2) for found in self.cell(m.cell, threads, ours, theirs)]
                    same = sorted([m] + again, key=lambda m: m.ratio)
                    self.measured[i] = same[len(same) // 2]
            for worker in (ours, theirs):
                if worker:
                    worker.close()

    def cells(self, ours):
        """Those that are selected, without those that are listed twice."""
        texts = self.options.text
        found = dict.fromkeys(ours.lines("list " + ("coarse" if self.options.coarse else "full")))
        return [cell for cell in found if not texts or any(text in " " + cell for text in texts)]

    def cell(self, cell, threads, ours, theirs):
        """What was measured of a cell, as a list: nothing of one that failed."""
        try:
            about = ours.ask("cell " + cell)
        except Failed as failed:
            self.refused.append("%s: %s" % (cell, failed))
            return []
        both = theirs and self.begin_theirs(cell, about, theirs)
        best, begun = [math.inf, math.inf], time.perf_counter()
        for done in range(self.options.rounds):
            if done >= 2 and time.perf_counter() - begun > self.options.seconds:
                break
            for i, worker in enumerate((ours, theirs) if both else (ours,)):
                best[i] = min(best[i], float(worker.ask("time %g" % self.options.ms)))
        return [Measured(cell, threads, best[0], best[1] if both else None)]

    def begin_theirs(self, cell, about, theirs):
        try:
            found = theirs.ask("cell " + cell)
        except Failed as failed:
            self.without.setdefault(cell.split(" ")[0], {})[cell] = str(failed)[len("error: "):]
            return False
        if not agree(cell, about, found):
            self.differing[cell] = "%s: %s, PyTorch has %s" % (cell, about, found)
        return True

    # ---- what is printed -------------------------------------------------------------------------------------------

    def report(self):
        self.print_ops()
        print("\n" + "\n".join(self.distribution()))
        for op, cells in self.without.items():
            print("without a ratio: %s, %d cells, as %s: %s" % (op, len(cells), *next(iter(cells.items()))))
        differing = list(self.differing.values())
        for title, lines in (("results that differ", differing), ("cells that failed", self.refused)):
            if lines:
                print("\n%s: %d" % (title, len(lines)))
                print("\n".join("    " + line for line in lines))

    def print_ops(self):
        print("\n%-34s %5s %7s %7s  worst cell, or the slowest" % ("op", "cells", "median", "worst"))
        ops = {}
        for m in self.measured:
            ops.setdefault(m.op, []).append(m)
        for op, all_cells in ops.items():
            cells = [m for m in all_cells if m.ratio]
            if cells:
                worst = min(cells, key=lambda m: m.ratio)
                print("%-34s %5d %7.2f %7.2f  %s" % (op, len(cells), middle([m.ratio for m in cells]), worst.ratio,
                                                     times_text(worst)))
            else:
                worst = max(all_cells, key=lambda m: m.ours)
                print("%-34s %5d %7s %7s  %s" % (op, len(all_cells), "", "", times_text(worst)))

    def distribution(self):
        lines = []
        for threads in self.options.threads:
            ratios = [m.ratio for m in self.measured if m.ratio and m.threads == threads]
            if ratios:
                above = ["%.1f %% above %.1fx" % (100 * sum(r > x for r in ratios) / len(ratios), x)
                         for x in (0.8, 1, 1.3)]
                mean = math.exp(sum(math.log(r) for r in ratios) / len(ratios))
                lines.append("%d thread%s: %d cells, %s, geometric mean %.2fx" % (
                    threads, "s" if threads > 1 else "", len(ratios), ", ".join(above), mean))
        return lines or ["no ratios: %s" % self.peer]

    def worst(self):
        return sorted((m for m in self.measured if m.ratio), key=lambda m: m.ratio)[:WORST]

    def write_all(self, path):
        with open(path, "w") as file:
            for m in self.measured:
                file.write("%s\t%d\t%.9g\t%s\t%s\n" % (m.cell, m.threads, m.ours, "%.9g" % m.theirs if m.theirs else "",
                                                       "%.3f" % m.ratio if m.ratio else ""))

    def write_results(self, path):
        """This section of a results file, in its old place, or before the figures of the simulator and of a GPU."""
        text = ""
        if os.path.exists(path):
            with open(path) as file:
                text = file.read()
        begin = text.find(TITLE + "\n")
        if begin >= 0:
            end = text.find("\n# ", begin)
            end = len(text) if end < 0 else end + 1
        else:
            begin = end = min([text.find(title) for title in OTHER_TITLES[-2:] if title in text], default=len(text))
        with open(path, "w") as file:
            file.write(text[:begin] + self.section() + text[end:])

    def section(self):
        facts = (processor(), self.version, "library " + header_commit(), self.peer, time.strftime("%Y-%m-%d"))
        lines = [TITLE, "", INTRODUCTION, "", "- " + "; ".join(facts)]
        lines += ["- " + line for line in self.distribution()]
        lines += ["", "The %d worst:" % len(self.worst()), "", "| ratio | cell | threads | ours | PyTorch |",
                  "|---|---|---|---|---|"]
        lines += ["| %.2f | %s | %d | %s | %s |" % (m.ratio, m.cell, m.threads, seconds_text(m.ours),
                                                    seconds_text(m.theirs)) for m in self.worst()]
        return "\n".join(lines) + "\n\n"


def times_text(m):
    return "%s, %d thread%s: %s%s" % (m.cell, m.threads, "s" if m.threads > 1 else "", seconds_text(m.ours),
                                      ", PyTorch %s" % seconds_text(m.theirs) if m.theirs else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the compiled tests/bench/sweep.c")
    parser.add_argument("text", nargs="*", help="parts of cells; ' add ' is the op alone")
    parser.add_argument("--coarse", action="store_true", help="the coarse grid: two minutes in place of fifteen")
    parser.add_argument("--threads", default="1,2", help="numbers of threads (1,2)")
    parser.add_argument("--peers", default="pytorch", help="pytorch, or none")
    parser.add_argument("--ms", type=float, default=0.5, help="milliseconds of one sample at least (0.5)")
    parser.add_argument("--rounds", type=int, default=5, help="samples of each program (5)")
    parser.add_argument("--seconds", type=float, default=0.05, help="after these seconds two samples are enough (0.05)")
    parser.add_argument("--all", metavar="FILE", help="write every cell to a file: threads, seconds of both, ratio")
    parser.add_argument("--results", metavar="FILE", help="write the %d worst cells to RESULTS.md" % WORST)
    options = parser.parse_args()
    options.threads = [int(text) for text in options.threads.split(",")]
    sweep, begun = Sweep(options), time.perf_counter()
    print(load())
    sweep.run()
    sweep.report()
    print("%d cells in %.0f s; %s" % (len(sweep.measured), time.perf_counter() - begun, load()))
    if options.all:
        sweep.write_all(options.all)
    if options.results:
        sweep.write_results(options.results)
        print("written: " + options.results)
    return int(bool(sweep.refused or not sweep.measured))  # some results of PyTorch are inaccurate, or overflow


if __name__ == "__main__":
    sys.exit(main())
