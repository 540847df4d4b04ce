#!/usr/bin/env python3
"""bench.py [options] WORKLOADS [TEXT...]: the rows of tests/bench/workloads.c beside other libraries (`make bench`).

WORKLOADS is the compiled program.  TEXT selects rows whose name contains one of the texts, or names a workload of other
sizes, as sgemm-100x200x300-NT.  Each library runs in processes of its own, one for each number of threads, which stay
alive and measure when they are asked, in the order A B B A, and start anew after the networks.  A ratio is the other
library's time divided by ours in the same round; printed are the medians, and the ratios that a tenth of the rounds
stay below and above.  The speed of multiply-adds is measured before, during and after each row: where it is less than
0.93 of the best of this run, something else uses the processor, the row is measured again, and if that does not help
it is marked "contended".
Python needs no package but those that it is to compare with; a library that is not installed is left out, and none is
installed.  TG_LLM_C names the folder of llm.c's source, TG_LLAMA2_C that of llama2.c's.  TG_BENCH_COMPILE=0 leaves
torch.compile out, which takes a quarter of a minute for each network."""
import argparse
import datetime
import fnmatch
import math
import os
import platform
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PEERS = {"pytorch": "pytorch.py", "numpy": "numpy_peer.py", "jax": "jax_peer.py", "micrograd": "micrograd_peer.py",
         "llm.c": "llmc.py", "transformers": "transformers_peer.py", "llama2.c": "llama2c.py"}
REST = {"numpy": 0.15}  # seconds until the threads of a library no longer wait actively
COPIES = (1024, 16384, 1048576, 16777216)  # floats
MEMORY_OF = ("gpt-16x256x6x384x6x65-adamw", "gpt-32x64x4x128x4x65-adamw", "mlp-64x784x512x512x10-adamw",
             "conv_net-64x28x16x32x128x10-sgd", "lstm-32x64x64x128x10-sgd")

# What a row is to reach: pattern, library, its time divided by ours at least, and the same to aim at.
TARGETS = [
    ("program-*", "pytorch", 1.0, 1.4),
    ("sgemm-*", "pytorch", 0.8, 1.0),
    ("conv2d-*", "pytorch", 0.8, 1.0),
    ("sgemm-*", "numpy", None, 1.0),
    ("sgemm-*", "jax", None, 1.0),
    ("mlp-*x784x512x512x10-sgd", "pytorch", 1.15, 1.3),
    ("mlp-*x784x512x512x10-sgd", "jax", 1.0, 1.12),
    ("mlp-*x784x512x512x10-adamw", "pytorch", 1.25, 1.45),
    ("mlp-32x2x16x16x1-sgd-tanh", "pytorch", 20, 40),
    ("mlp-32x2x16x16x1-sgd-tanh", "jax", 4, 8),
    ("gpt-16x256x6x384x6x65-adamw", "pytorch", 1.1, 1.25),
    ("gpt-32x64x4x128x4x65-adamw", "pytorch", 1.25, 1.5),
    ("gpt-4x64x12x768x12x50257-adamw-tied", "pytorch", 1.1, 1.35),
    ("gpt-4x64x12x768x12x50257-adamw-tied", "llm.c", 5, 8),
    ("conv_net-*", "pytorch channels_last", 1.3, 1.5),
    ("conv_net-*", "pytorch", 1.3, 2),
    ("lstm-*", "pytorch", 1.15, 1.4),
    ("scalar_graph-*", "micrograd gc", 100, 200),
    ("scalar_graph-*", "micrograd no_gc", 7, 15),
    ("exp-1048576", "pytorch", 2, 4),
    ("tanh-1048576", "pytorch", 5, 10),
    ("gelu-1048576", "pytorch", 1.2, 1.6),
    ("gelu_tanh-1048576", "pytorch", 4, 7),
    ("sigmoid-1048576", "pytorch", 1.3, 2),
    ("silu-1048576", "pytorch", 1.3, 2),
    ("add-1048576", "pytorch", 0.95, 1),
    ("mul-1048576", "pytorch", 0.95, 1),
    ("relu-1048576", "pytorch", 0.95, 1),
    ("sum-1048576", "pytorch", 0.95, 1),
    ("add-16777216", "pytorch", 2, None),
    ("softmax-*-backward", "pytorch", 1.1, 1.5),
    ("log_softmax-*-backward", "pytorch", 1.1, 1.5),
    ("layer_norm-*-backward", "pytorch", 1.1, 1.5),
    ("softmax-*", "pytorch", 1.3, 2.5),
    ("log_softmax-*", "pytorch", 1.3, 2.5),
    ("layer_norm-*", "pytorch", 1.3, 2.5),
    ("sum_dim0-*", "pytorch", 1.3, 2.5),
    ("bias_add-*", "pytorch", 1, 2),
    ("transposed_copy-*", "pytorch", 1, 2),
    ("cat-*", "pytorch", 1, 2),
    ("embedding-*", "pytorch", 1, 2),
    ("randn-1048576", "pytorch", 1, 2),
    ("index_select-*", "pytorch", 0.8, 1.5),
    ("topk-*", "pytorch", 0.8, 1.5),
    ("f32_to_f16-*", "pytorch", 0.8, 1.5),
    ("matmul_i64-*", "pytorch", 0.8, 1.5),
    ("matmul_bf16-*", "pytorch", 0.8, 1.5),
    ("cross_entropy-*", "pytorch", 5, 20),
    ("generate-*", "transformers", 3, None),
    ("generate-*", "llama2.c O3", 1.2, None),
    ("prefill-*", "transformers", 1.2, None),
    ("memory-of-gpt-16x256x6x384x6x65-adamw", "pytorch", 1, 1 / 0.75),
]
MOST_SECONDS = {"op-1-grad": (100e-9, 60e-9), "chain-1-backward": (80e-9, 50e-9)}
LEAST_OF_ROOF = {"sgemm-1024x1024x1024-NN": (0.82, 0.92), "add-1048576": (None, 0.95), "mul-1048576": (None, 0.95),
                 "relu-1048576": (None, 0.95), "sum-1048576": (None, 0.95)}
LEAST_OF_COPY = 0.8  # the weights of a token at the speed of a copy
BF16_FASTER = 1.7    # than f32, a token


def target(row, library):
    for pattern, name, must, aim in TARGETS:
        if name == library and fnmatch.fnmatchcase(row, pattern):
            return must, aim
    return None, None


class Failed(Exception):
    """A worker that cannot do what it was asked for."""


class Worker:
    """A process that answers one line for each line.  pinned: to so many processors, of different cores."""

    def __init__(self, library, command, threads, log, pinned=True):
        environment = dict(os.environ, CUDA_VISIBLE_DEVICES="", JAX_PLATFORMS="cpu", PYTHONPATH=HERE + "/peers")
        for name in ("OMP", "MKL", "OPENBLAS", "BLIS", "NUMEXPR"):
            environment[name + "_NUM_THREADS"] = str(threads)
        if pinned and library in ("tensorgrad", "pytorch"):  # others lose their second thread to the processor of the first
            environment["OMP_PROC_BIND"] = "true"
        if library == "jax" and threads == 1:
            environment["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
        self.library, self.rest = library, REST.get(library, 0.02)
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                                        env=environment, preexec_fn=lambda: use_processors(threads) if pinned else None)

    def ask(self, line):
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
            text = self.process.stdout.readline()
        except OSError:
            text = ""
        if not text or text.startswith("error"):
            raise Failed(text.strip() or "%s has ended" % self.library)
        return text.strip()

    def spent(self):
        """Seconds that a processor has had for its first thread."""
        with open("/proc/%d/schedstat" % self.process.pid) as file:
            return 1e-9 * int(file.read().split()[0])

    def lines(self, line):
        """The lines up to an empty one."""
        found = [self.ask(line)]
        while found[-1]:
            found.append(self.process.stdout.readline().strip())
        return found[:-1]

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def is_network(name):
    return name.split("-")[0] in ("mlp", "conv_net", "lstm", "gru", "gpt", "program", "generate",
                                  "prefill")


def use_processors(count):
    """So many, of different cores where there are enough."""
    if not hasattr(os, "sched_setaffinity"):
        return
    cores = {}
    for processor in sorted(os.sched_getaffinity(0)):
        try:
            with open("/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list" % processor) as file:
                cores.setdefault(file.read(), []).append(processor)
        except OSError:
            cores[processor] = [processor]
    seconds = [processor for core in cores.values() for processor in core[1:]]
    os.sched_setaffinity(0, ([core[0] for core in cores.values()] + seconds)[:count])


def load():
    """What else uses the machine: programs in the last minutes, and the part of its time that other guests had."""
    try:
        with open("/proc/stat") as file:
            spent = [int(text) for text in file.readline().split()[1:]]
        stolen = ", %.1f %% of the time stolen" % (100 * spent[7] / sum(spent))
    except (OSError, IndexError):
        stolen = ""
    return "load %.1f %.1f %.1f" % os.getloadavg() + stolen if hasattr(os, "getloadavg") else "load unknown"


def middle(values, part=0.5):
    """The value below which a part of the values lie."""
    values = sorted(values)
    place = part * (len(values) - 1)
    low = int(place)
    high = min(low + 1, len(values) - 1)
    return values[low] + (place - low) * (values[high] - values[low])


def seconds_text(seconds):
    for unit, size in (("s", 1), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= size:
            return "%.3g %s" % (seconds / size, unit) if seconds < 1000 * size else "%.0f %s" % (seconds / size, unit)
    return "%.3g ns" % (seconds * 1e9)


class Line:
    """One line of the table: a row on a number of threads, beside a library or alone."""

    def __init__(self, row, threads, ours="not run", library="", theirs="", ratios=None, roof=None, must="", aim="",
                 verdict="", seconds=None):
        self.row, self.threads, self.library, self.ratios, self.seconds = row, threads, library, ratios, seconds
        ratio = "%.2f [%.2f, %.2f]" % (middle(ratios), middle(ratios, 0.1), middle(ratios, 0.9)) if ratios else ""
        self.cells = [row, str(threads), ours, library, theirs, ratio, "" if roof is None else "%.0f %%" % (100 * roof),
                      must, aim, verdict]


HEAD = ["row", "threads", "ours", "library", "its time", "ratio [p10, p90]", "roof", "must", "aim", ""]
WIDTHS = [41, 7, 9, 22, 9, 21, 6, 8, 8, 0]


def plain(cells):
    return " ".join(cell.ljust(width) for cell, width in zip(cells, WIDTHS)).rstrip()


def number(value, unit=""):
    return "" if value is None else "%g%s" % (round(value, 2), unit)


class Bench:
    def __init__(self, options):
        self.options = options
        logs = os.path.join(os.path.dirname(options.program) or ".", "bench")
        os.makedirs(logs, exist_ok=True)
        self.log = open(os.path.join(logs, "peers.log"), "w")
        self.ours, self.roofs, self.peers, self.versions = {}, {}, {}, {}
        self.best, self.copies, self.lines = {}, {}, []

    def begin(self):
        options = self.options
        for threads in options.threads:
            self.ours[threads] = self.start_ours(threads)
            self.roofs[threads] = self.start_ours(threads)
        self.versions["tensorgrad"] = self.ours[options.threads[0]].ask("version")
        if "OpenMP" not in self.versions["tensorgrad"]:
            options.threads = options.threads[:1]
        for library in options.peers:
            for threads in options.threads:
                if library == "micrograd" and threads > 1:
                    continue
                try:
                    worker = self.start_peer(library, threads)
                    self.versions[library] = worker.ask("version")
                    self.peers[library, threads] = worker
                except Failed:
                    self.versions[library] = "not installed"
                    break
        for name, version in self.versions.items():
            print("%-12s %s" % (name, version))
        self.measure_roofs()

    def start_ours(self, threads):
        return Worker("tensorgrad", [self.options.program, "worker", str(threads)], threads, self.log)

    def start_peer(self, library, threads):
        program = os.path.join(HERE, "peers", PEERS[library])
        return Worker(library, [sys.executable, program, str(threads)], threads, self.log)

    def restart(self):
        """New workers: what networks leave in the heap of a process would serve the allocations of other rows."""
        for threads, worker in self.ours.items():
            worker.close()
            self.ours[threads] = self.start_ours(threads)
        for (library, threads), worker in self.peers.items():
            worker.close()
            self.peers[library, threads] = self.start_peer(library, threads)

    def end(self):
        for worker in [*self.ours.values(), *self.roofs.values(), *self.peers.values()]:
            worker.close()

    # ---- roofs -----------------------------------------------------------------------------------------------------

    def peak(self, threads):
        """Floating point operations per second just now: the best of three, as a processor that had nothing to do
        needs a while."""
        worker = self.roofs[threads]
        time.sleep(worker.rest)
        operations = float(worker.ask("cost fma_peak-1").split()[0])
        now = operations / min(self.measure(worker, "fma_peak-1", "", False) for _ in range(3))
        self.best[threads] = max(now, self.best.get(threads, 0))
        return now

    def measure_roofs(self):
        for threads in self.options.threads:
            for _ in range(5):
                self.peak(threads)
            for floats in COPIES:
                best = 0
                for name in ("copy-%d" % floats, "copy-%d-stream" % floats):
                    for _ in range(3):
                        best = max(best, 8 * floats / self.measure(self.roofs[threads], name, "", False))
                self.copies[threads, floats] = best
            print("%d thread%s    %.1f GFLOP/s; copies of 4 KiB, 64 KiB, 4 MiB, 64 MiB at %s GB/s" % (
                threads, "s" if threads > 1 else " ", self.best[threads] / 1e9,
                ", ".join("%.1f" % (self.copies[threads, n] / 1e9) for n in COPIES)))

    def least_seconds(self, name, threads):
        """What the row's arithmetic and bytes take at the speed of the roofs."""
        flops, moved = (float(text) for text in self.ours[threads].ask("cost " + name).split())
        if moved:
            nearest = min(COPIES, key=lambda floats: abs(math.log(moved / (8 * floats))))
            moved /= max(self.copies[t, nearest] for t in self.options.threads if t <= threads)
        return flops / max(self.best[t] for t in self.options.threads if t <= threads) + moved

    # ---- rows ------------------------------------------------------------------------------------------------------

    def measure(self, worker, name, mode, rest):
        if rest:
            time.sleep(worker.rest)
        begun, spent = time.perf_counter(), worker.spent() if self.options.processor else 0
        seconds = float(worker.ask(("time %s %g %s" % (name, self.options.ms, mode)).rstrip()))
        if self.options.processor:
            seconds *= (worker.spent() - spent) / (time.perf_counter() - begun)
        return seconds

    def fastest(self, worker, name, threads, modes):
        """The fastest of several ways to do the same."""
        found = {}
        for mode in modes:
            try:
                samples = 3 if len(modes) > 1 else 1
                found[mode] = min(self.measure(worker, name, mode, threads > 1) for _ in range(samples))
            except Failed as failed:
                print("%s %s %s: %s" % (name, worker.library, mode, failed), file=self.log, flush=True)
        return min(found, key=found.get) if found else None

    def rivals(self, name, threads):
        """What ours is compared with: a worker, its way to do this, and what the table calls that."""
        found = []
        for (library, of_threads), worker in self.peers.items():
            if of_threads != threads:
                continue
            try:
                modes = worker.ask("modes " + name + " ").split()
            except Failed:
                modes = []
            with_targets = () if name.startswith("program-") else ("channels_last", "gc", "no_gc", "O3", "Ofast")
            alone = [mode for mode in modes if mode in with_targets]
            for group in [[mode for mode in modes if mode not in alone]] + [[mode] for mode in alone]:
                mode = self.fastest(worker, name, threads, group) if group else None
                if mode:
                    found.append((worker, mode, library + " " + mode))
        return found

    def rounds(self, name, threads, entries):
        """Seconds of each entry in each round, in the order A B B A, and the slowest multiply-adds meanwhile; how many
        rounds depends on how long they take."""
        samples, count, done, rest = [[] for _ in entries], self.options.pairs, 0, threads > 1 and len(entries) > 1
        begun, slowest = time.perf_counter(), self.peak(threads)
        while done < count:
            order = list(enumerate(entries))
            for i, (worker, mode, _) in order if done % 2 == 0 else reversed(order):
                samples[i].append(self.measure(worker, name, mode, rest))
            done += 1
            if done % 10 == 0:
                slowest = min(slowest, self.peak(threads))
            if done >= 5 and time.perf_counter() - begun > self.options.seconds:
                break
        return samples, min(slowest, self.peak(threads))

    def row(self, name, threads):
        if self.ours[threads].process.poll() is not None:
            self.ours[threads] = self.start_ours(threads)
        ours = self.ours[threads]
        entries = [(ours, "", "")] + self.rivals(name, threads)
        self.measure(ours, name, "", False)
        for attempt in range(self.options.repeats + 1):
            samples, slowest = self.rounds(name, threads, entries)
            clean = slowest >= 0.93 * self.best[threads]
            if clean or attempt == self.options.repeats:
                break
            time.sleep(5)
        roof = self.least_seconds(name, threads) / middle(samples[0])
        for worker in [entry[0] for entry in entries]:
            worker.ask("drop")
        rivals = [(entry[2], theirs) for entry, theirs in zip(entries, samples)][1:] or [("", None)]
        return [self.line(name, threads, samples[0], library, theirs, roof, clean) for library, theirs in rivals]

    def line(self, name, threads, ours, library, theirs, roof, clean):
        seconds = middle(ours)
        musts, aims, passed_must, passed_aim = [], [], [], []

        def goal(value, must, aim, unit, show):
            for texts, passed, wanted in ((musts, passed_must, must), (aims, passed_aim, aim)):
                if wanted is not None:
                    texts.append(show(wanted))
                    passed.append(value <= wanted if unit == "s" else value >= wanted)

        ratios = [b / a for a, b in zip(ours, theirs)] if theirs else None
        must, aim = target(name, library)
        if (must, aim) == (None, None):
            must, aim = target(name, library.split(" ")[0])
        if ratios:
            goal(middle(ratios), must, aim, "x", lambda wanted: number(wanted, "x"))
        if name in MOST_SECONDS:
            goal(seconds, *MOST_SECONDS[name], "s", lambda wanted: "%.0f ns" % (1e9 * wanted))
        if name in LEAST_OF_ROOF and library.startswith("pytorch") or not library:
            goal(roof, *LEAST_OF_ROOF.get(name, (None, None)), "%", lambda wanted: "%.0f %%" % (100 * wanted))
        if name.startswith("generate-") and (library.startswith("transformers") or not library):
            goal(roof, LEAST_OF_COPY, None, "%", lambda wanted: "%.0f %%" % (100 * wanted))
        if not all(passed_must):
            verdict = "behind"
        elif aims and all(passed_aim):
            verdict = "aim"
        else:
            verdict = "must" if musts else "below aim" if aims else ""
        its_time = seconds_text(middle(theirs)) if theirs else ""
        return Line(name, threads, seconds_text(seconds), library, its_time, ratios, roof or None, " ".join(musts),
                    " ".join(aims), verdict if clean else "contended", seconds)

    def losses_agree(self, name):
        """Whether PyTorch loses the same in the first steps; a text for the table if not."""
        threads = max(self.options.threads)
        peer = self.peers.get(("pytorch", threads))
        if name.startswith(("generate-", "prefill-")):
            return self.tokens_agree(name, threads)
        if not peer or not is_network(name):
            return ""
        step = self.measure(self.ours[threads], name, "", False)
        program = name.startswith("program-")
        steps = 5 if program else max(3, min(20, int(3 * self.options.seconds / step)))
        try:
            a, b = ([float(text) for text in worker.ask("losses %s %d eager" % (name, steps)).split()]
                    for worker in (self.ours[threads], peer))
        except Failed as failed:
            print("losses of %s: %s" % (name, failed), file=self.log, flush=True)
            return "no losses"
        most = max(abs(x - y) for x, y in zip(a, b))
        same = most <= (1e-3 * (max(b) - min(b)) if program else 1e-4 * max(1, max(abs(y) for y in b)))
        print("%s: losses of %d steps %s, %.1e apart at most" % (name, steps, "agree" if same else "DIFFER", most))
        return "" if same else "losses differ"

    def tokens_agree(self, name, threads):
        """Whether a text needs no memory after its second token, and transformers ends texts with the same tokens: in
        f32, as few bits of the logits are left in bf16; a text for the table if not."""
        if not name.startswith("generate-"):
            return ""
        found = self.ours[threads].ask("allocations " + name)
        print("%s: %s allocations after the second token" % (name, found))
        peer = self.peers.get(("transformers", threads))
        if not peer or "-f32" not in name:
            return "" if found == "0" else "allocates"
        a, b = (worker.ask("losses %s 3 loop" % name).split() for worker in (self.ours[threads], peer))
        print("%s: tokens of 3 texts %s" % (name, "agree" if a == b else "DIFFER: %s, %s" % (a, b)))
        return "tokens differ" if a != b else "" if found == "0" else "allocates"

    def memory(self, name):
        """Peak memory of training beyond the idle process, in processes that do nothing else."""
        threads = max(self.options.threads)
        workers = [self.start_ours(threads)]
        if ("pytorch", threads) in self.peers:
            workers.append(self.start_peer("pytorch", threads))
        used = [float(worker.ask("memory %s eager" % name)) for worker in workers]
        for worker in workers:
            worker.close()
        row, texts = "memory-of-" + name, ["%.0f MB" % (value / 1e6) for value in used]
        if len(used) == 1:
            return [Line(row, threads, texts[0])]
        must, aim = target(row, "pytorch")
        ratio = used[1] / used[0]
        verdict = "" if must is None else "aim" if ratio >= aim else "must" if ratio >= must else "behind"
        return [Line(row, threads, texts[0], "pytorch eager", texts[1], [ratio], None, number(must, "x"),
                     number(aim, "x"), verdict)]

    def all_rows(self):
        return self.ours[self.options.threads[0]].lines("rows") + ["memory-of-" + name for name in MEMORY_OF]

    def selected(self):
        texts, rows = self.options.text, self.all_rows()
        self.products = rows[:[row.split("-")[0] for row in rows].index("conv2d") + 1]
        if not texts:
            return rows
        found = [row for row in rows if any(text in row for text in texts)]
        return found + [text for text in texts if not any(text in row for row in rows)]

    def run(self):
        print(load())
        print("\n" + plain(HEAD))
        rows = self.selected()
        for before, name in zip([None] + rows, rows):
            if before and is_network(before) and not is_network(name):
                self.restart()
            try:
                lines = self.lines_of(name)
            except Failed as failed:
                lines = [Line(name, "", str(failed)[:60])]
            self.lines += lines
            for line in lines:
                print(plain(line.cells), flush=True)
        print("\n" + load())
        self.summary()

    def lines_of(self, name):
        if name.startswith("memory-of-"):
            return self.memory(name[len("memory-of-"):])
        wrong = self.losses_agree(name)
        lines = [line for threads in self.options.threads for line in self.row(name, threads)]
        for line in lines:
            line.cells[-1] = wrong or line.cells[-1]
        return lines

    def summary(self):
        counts = {}
        for line in self.lines:
            counts[line.cells[-1]] = counts.get(line.cells[-1], 0) + 1
        print("%d lines: %s" % (len(self.lines), ", ".join("%d %s" % (n, word or "without a target")
                                                             for word, n in sorted(counts.items()))))
        clean = [line for line in self.lines if line.cells[-1] != "contended"]
        seconds = {(line.row, line.threads): line.seconds for line in clean if line.seconds}
        for threads in self.options.threads:
            products = [middle(line.ratios) for line in clean if line.ratios and line.threads == threads and
                        line.library.startswith("pytorch") and line.row in self.products]
            if products:
                print("%d thread(s): %d of %d products not slower than PyTorch's, the slowest %.2f times as fast" % (
                    threads, sum(ratio >= 1 for ratio in products), len(products), min(products)))
            programs = [middle(line.ratios) for line in clean if line.ratios and line.threads == threads and
                        line.row.startswith("program-")]
            if programs:
                print("%d thread(s): %d of %d programs not slower than PyTorch's, the slowest %.2f times as fast, "
                      "geometric mean %.2f" % (threads, sum(ratio >= 1 for ratio in programs), len(programs),
                                               min(programs), math.exp(sum(map(math.log, programs)) / len(programs))))
            for name in ("gpt2", "llama"):
                f32, bf16 = (seconds.get(("generate-64x16-%s-%s" % (name, dtype), threads)) for dtype in ("f32", "bf16"))
                if f32 and bf16:
                    print("%d thread(s): %s makes %.1f tokens a second in f32, %.1f in bf16, %.2f times as many; must: %g"
                          % (threads, name, 1 / f32, 1 / bf16, f32 / bf16, BF16_FASTER))
            add, in_place = (seconds.get((name + "-16777216", threads)) for name in ("add", "add_in_place"))
            if add and in_place:
                print("%d thread(s): add-16777216 takes %.2f times as long as in place" % (threads, add / in_place))
        slower = ["%s %.2f" % (row, seconds[row, 1] / seconds[row, 2]) for row, threads in seconds
                  if threads == 2 and (row, 1) in seconds and seconds[row, 2] > seconds[row, 1]]
        if slower:
            print("slower on two threads than on one: " + ", ".join(slower))


# ---- the results file ----------------------------------------------------------------------------------------------

CPU_TITLE = "# Results on a CPU"
OTHER_TITLES = ("# Newer results on the same processor", "# Results on a processor with half the multiply-adds",
                "# Earlier results on a CPU with AVX2", "# The sweep", "# Counted on the simulator", "# Results on a GPU")
INTRODUCTION = """\
Written by `make bench RESULTS=tests/bench/RESULTS.md`.  "not run" is what nobody has measured, "contended" what
something else on the machine disturbed; "behind" is short of what the row must reach, "must" and "aim" say how far it
is.  ratio: the other library's time divided by ours.  roof: the least time that the row's arithmetic and bytes take on
this processor, divided by ours.  [workloads.c](workloads.c) says what the names mean, [bench.py](bench.py) how it is
measured."""


def first_line(*command):
    try:
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        return result.stdout.split("\n")[0]
    except OSError:
        return ""


def processor():
    try:
        with open("/proc/cpuinfo") as file:
            model = next(line.split(":")[1].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.processor() or platform.machine()
    return "%s, %d threads" % (model, os.cpu_count())


def huge_pages():
    """What the kernel does with pages of 2 MiB: "madvise", for example."""
    try:
        with open("/sys/kernel/mm/transparent_hugepage/enabled") as file:
            return file.read().split("[")[1].split("]")[0]
    except (OSError, IndexError):
        return "unknown"


def header_commit():
    """The last commit that changed the header."""
    header = os.path.join(HERE, "..", "..", "tensorgrad.h")
    changed = first_line("git", "-C", HERE, "status", "--porcelain", "--", header)
    return first_line("git", "-C", HERE, "log", "-1", "--format=%h", "--", header) + (" and changes" if changed else "")


def about(bench):
    """What the figures depend on, by name."""
    facts = {"processor": processor(), "system": "%s %s" % (platform.system(), platform.release()), **bench.versions,
             "huge pages": huge_pages(), **{name: value for name, value in os.environ.items() if name == "TG_SIMD"},
             "library": header_commit(),
             "date": datetime.date.today().isoformat()}
    for threads, best in bench.best.items():
        facts["multiply-adds, %d thread%s" % (threads, "s" if threads > 1 else "")] = "%.0f GFLOP/s" % (best / 1e9)
        facts["copy of 64 MiB, %d thread%s" % (threads, "s" if threads > 1 else "")] = (
            "%.0f GB/s" % (bench.copies[threads, COPIES[-1]] / 1e9))
    return facts


def cells_of(text):
    return [cell.strip() for cell in text.strip().strip("|").split("|")]


def old_results(text):
    """The facts and the lines of a results file."""
    facts, lines, table = {}, [], 0
    for line in text.split("\n"):
        if line.startswith("|---"):
            table += 1
        elif line.startswith("| ") and table == 1 and not line.startswith("| row |"):
            facts[cells_of(line)[0]] = cells_of(line)[1]
        elif line.startswith("| ") and table == 2:
            lines.append(cells_of(line))
    return facts, lines


def publishable(cells):
    """A contended figure is not published."""
    if cells[-1] != "contended":
        return cells
    return cells[:2] + ["contended", cells[3], "", "", ""] + cells[7:9] + [""]


def merged(old, fresh):
    """The lines of both.  Fresh ones replace those of the same row and threads; nothing contended replaces a figure."""
    def keys(lines, contended):
        return {(cells[0], cells[1]) for cells in lines if (cells[2] == "contended") == contended}

    replaced, figures = keys(fresh, False), keys(old, False)
    marked = keys(fresh, True) - figures
    return ([cells for cells in old if (cells[0], cells[1]) not in replaced | marked] +
            [cells for cells in fresh if (cells[0], cells[1]) in replaced | marked])


def write_results(path, rows, facts, lines):
    """Rows that were not measured stay if they are of the same machine, compiler, library and peers."""
    try:
        with open(path) as file:
            text = file.read()
    except OSError:
        text = ""
    others = min([text.index(title) for title in OTHER_TITLES if title in text], default=len(text))
    old_facts, old = old_results(text[:others])
    depends = ["processor", "tensorgrad", "library", *PEERS]
    facts = {name: fact for name, fact in facts.items() if fact != "not installed"}
    if all(old_facts.get(name, facts[name]) == facts[name] for name in depends if name in facts):
        facts = {**facts, **{name: fact for name, fact in old_facts.items() if name not in facts}}
    else:
        old = []
    kept = merged([cells for cells in old if cells[2] != "not run"], [publishable(line.cells) for line in lines])
    table = []
    for row in rows + sorted({cells[0] for cells in kept} - set(rows)):
        found = [cells for cells in kept if cells[0] == row]
        table += sorted(found, key=lambda cells: cells[1]) or [Line(row, "").cells]
    with open(path, "w") as file:
        file.write("%s\n\n%s\n\n| | |\n|---|---|\n" % (CPU_TITLE, INTRODUCTION))
        file.writelines("| %s | %s |\n" % fact for fact in facts.items())
        file.write("\n| %s |\n|%s\n" % (" | ".join(HEAD), "---|" * len(HEAD)))
        file.writelines("| %s |\n" % " | ".join(cells) for cells in table)
        if others < len(text):
            file.write("\n" + text[others:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program", help="the compiled tests/bench/workloads.c")
    parser.add_argument("text", nargs="*", help="parts of names of rows, or whole names of other workloads")
    parser.add_argument("--threads", default="1,2", help="numbers of threads (1,2)")
    parser.add_argument("--peers", default=",".join(PEERS), help="libraries to compare with; none: no other library")
    parser.add_argument("--pairs", type=int, default=30, help="rounds (30)")
    parser.add_argument("--ms", type=float, default=20, help="milliseconds of one sample at least (20)")
    parser.add_argument("--seconds", type=float, default=20, help="after these seconds five rounds are enough (20)")
    parser.add_argument("--repeats", type=int, default=2, help="how often a contended row is measured again (2)")
    parser.add_argument("--processor", action="store_true",
                        help="processor time of one thread, on a machine that others use; with Linux and --threads 1")
    parser.add_argument("--results", help="also write the table to this file, beside what it has of other rows")
    parser.add_argument("--not-run", action="store_true", help="measure nothing: every row of the file is \"not run\"")
    options = parser.parse_args()
    options.threads = [int(text) for text in options.threads.split(",")]
    options.peers = [name for name in options.peers.split(",") if name in PEERS]
    bench = Bench(options)
    if options.not_run:
        worker = bench.ours[options.threads[0]] = bench.start_ours(options.threads[0])
        facts = dict.fromkeys(["processor", "system", "tensorgrad", *PEERS, "library", "date"], "not run")
        write_results(options.results, bench.all_rows(), facts, [])
        worker.close()
        return 0
    bench.begin()
    bench.run()
    if options.results:
        write_results(options.results, bench.all_rows(), about(bench), bench.lines)
        print("written: " + options.results)
    failed = [line for line in bench.lines if not line.threads]
    bench.end()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
