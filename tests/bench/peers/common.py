"""What the workers of other libraries share: the lines that they answer, and the numbers that they compute with.

A worker is asked for workloads by the names of tests/bench/workloads.c, and answers one line for each:

    version              the library and its version
    modes NAME           the ways in which this library can do it, separated by blanks; nothing: it cannot
    time NAME MS MODE    seconds per call, measured for about that many milliseconds
    losses NAME STEPS MODE   the losses of the first steps of training
    memory NAME MODE     bytes of memory that three steps take at most beyond what the idle process had
    drop                 frees what the workloads of before have
"""
import gc
import sys
import time


class Workload:
    """A name, taken apart: kind, sizes, options."""

    def __init__(self, name):
        parts = name.split("-")
        self.name, self.kind, self.options = name, parts[0], parts[2:]
        self.sizes = [int(size) for size in parts[1].split("x")]


def random_bits(count, seed):
    """24 bits each, as in workloads.c."""
    import numpy
    x = numpy.arange(count, dtype=numpy.uint32) * numpy.uint32(2654435761) + numpy.uint32(seed * 2246822519 % 2 ** 32)
    for _ in range(2):
        x ^= x >> numpy.uint32(16)
        x *= numpy.uint32(0x45d9f3b)
    return (x ^ (x >> numpy.uint32(16))) >> numpy.uint32(8)


def numbers(shape, seed, scale=1):
    """f32 in [-scale, scale)"""
    import numpy
    one = numpy.float32(1)
    bits = random_bits(int(numpy.prod(shape)), seed).astype(numpy.float32)
    return ((bits * numpy.float32(2 ** -23) - one) * numpy.float32(scale)).reshape(shape)


def labels(shape, seed, classes):
    import numpy
    return (random_bits(int(numpy.prod(shape)), seed) % numpy.uint32(classes)).astype(numpy.int64).reshape(shape)


def weight(shape, number):
    """Parameter `number` of a network: matrices are uniform within 1 / sqrt(inputs); None for norms and biases."""
    import numpy
    if len(shape) < 2:
        return None
    inputs = int(numpy.prod(shape)) // shape[0]
    return numbers(shape, number + 1, numpy.float32(1) / numpy.sqrt(numpy.float32(inputs)))


def memory_status(name):
    with open("/proc/self/status") as file:
        return 1024 * next(int(line.split()[1]) for line in file if line.startswith(name + ":"))


class Timer:
    """A call that is made again and again; calls: how many a turn of it counts as; before: is called before a sample,
    and not timed."""

    def __init__(self, turn, calls=1, before=None):
        self.turn, self.calls, self.before, self.seconds = turn, calls, before, None

    def run(self, turns):
        if self.before:
            self.before()
        begun = time.perf_counter()
        for _ in range(turns):
            self.turn()
        return (time.perf_counter() - begun) / turns

    def warm_up(self, sample):
        """Until three samples in a row agree within 5 %, after ten turns; not for longer than 1.5 s after the first
        turn, which may compile."""
        self.turn()
        last, turns, done, begun = [], 1, 0, time.perf_counter()
        while True:
            last = last[-2:] + [self.run(turns)]
            done += turns
            self.seconds = min(last)
            if time.perf_counter() - begun > min(1.5, 75 * sample):
                break
            if done >= 10 and len(last) == 3 and max(last) < 1.05 * min(last):
                break
            turns = int(sample / 4 / last[-1]) + 1

    def measure(self, sample):
        if self.seconds is None:
            self.warm_up(sample)
        seconds = self.run(max(1, int(sample / self.seconds)))
        self.seconds = min(self.seconds, seconds)
        return seconds / self.calls


def serve(version, modes, build):
    """modes(workload) -> names; build(workload, mode) -> the function that does it once and returns the loss, if
    there is one, or a tuple of what a Timer is made of.  One workload is kept at a time for each mode."""
    idle_bytes = memory_status("VmRSS") if sys.platform == "linux" else 0
    out = sys.stdout
    sys.stdout = sys.stderr  # libraries print, too
    built = {}

    def timer(name, mode):
        for key in [key for key in built if key[0] != name]:
            del built[key]
            gc.collect()
        if (name, mode) not in built:
            turn = build(Workload(name), mode)
            built[name, mode] = Timer(*turn) if isinstance(turn, tuple) else Timer(turn)
        return built[name, mode]

    def answer(words):
        if words[0] == "version":
            return version
        if words[0] == "modes":
            return " ".join(modes(Workload(words[1])))
        if words[0] == "time":
            return "%.9g" % timer(words[1], words[3]).measure(float(words[2]) / 1000)
        if words[0] == "losses":
            turn = build(Workload(words[1]), words[3])
            turn = turn[0] if isinstance(turn, tuple) else turn
            return " ".join("%.9g" % turn() for _ in range(int(words[2])))
        if words[0] == "memory":
            timer(words[1], words[2]).run(3)
            return str(memory_status("VmHWM") - idle_bytes)
        if words[0] == "drop":
            built.clear()
            gc.collect()
            return "ok"
        return "error: not a line of this worker"

    for line in sys.stdin:
        try:
            text = answer(line.split())
        except Exception as error:  # the driver goes on without this row
            text = "error: " + repr(error).replace("\n", " ")[:200]
        print(text, file=out, flush=True)
