#!/usr/bin/env python3
"""predict.py FOLDER: writes tests/bench/predicted.txt, what one training step of GPT-2 124M should take on an H100, from the
reports in the folder (make sim-step); predict.py --check holds that the file has the times of this model; both print the sums.

The step: 12 layers of 768, 16 sequences of 1024 tokens, 50304 words, tied weights, bf16, AdamW.  Work of a kernel grows with
layers, and by so much for each token and each word, so that six small steps tell that of the large one.  Attention, embedding,
norms and the loss run alone: theirs grows otherwise.

The model.  A launch takes the longest of four times, and then GAP:
    bytes         / (MEMORY * MEMORY_SHARE)             each as a kernel asks for it; of attention each operand once
    bytes         / (CACHE * CACHE_SHARE)               what blocks of attention ask for again, which the L2 cache holds
    FLOP          / (PRODUCTS * the share of its kind)
    instructions  / (SCHEDULERS * CLOCK * ISSUE)        of warps, of the GPU's own: the interpreter counts those of PTX,
                                                        each as often as machine.py finds that ptxas made some of it
Nothing here was measured on a GPU: the shares are what others report of their kernels on an H100, or assumptions."""
import os
import re
import subprocess
import sys

MEMORY, MEMORY_SHARE = 3.35e12, 0.9          # bytes a second; published kernels that only move rows reach 0.87 to 0.9
CACHE, CACHE_SHARE = 5.5e12, 0.7             # L2 has been measured at 5.5e12; it is 50 MB, 33 heads at once take 17
PRODUCTS = 989e12                            # FLOP a second in bf16
SHARES = {"large": 0.70, "sums": 0.51, "product": 0.61, "attention": 0.60} # cuBLAS has 0.72 with squares of 4096, best 0.8
SCHEDULERS, CLOCK, ISSUE = 132 * 4, 1.7e9, 0.6  # an instruction each at most; of four cycles some wait for memory
GAP = 1.2e-6                                 # seconds between two kernels of a stream
LAYERS, TOKENS, WORDS, HEADS, LENGTH, WIDTH = 12, 16384, 50304, 16 * 12, 1024, 768
LOSS_TOKENS = 256
SMALL_TOKENS, SMALL_WORDS = 64, 8384
ALONE = {"attention": r"tgi_(flash|hopper)_", "embedding": r"tgi_(sort_runs|radix_|load_indices|add_segments|join_segments)",
         "norms": r"tgi_norm_", "loss": r"tgi_class_"}
PARTS = {"attention": HEADS, "norms": 1, "loss": TOKENS // LOSS_TOKENS} # the runs of one head, of all rows, of some
# products of [1024, 1024, 64], half of each, and operands [1024, 64]
FLASH = {"forward": (2, 4), "backward<2, 64, false>": (3, 6), "backward<2, 64, true>": (4, 6)}
TABLE = os.path.join(os.path.dirname(__file__), "predicted.txt")
HEAD = "launches megabytes gigaflop megainstructions milliseconds bound kernel"


def op_names():
    """The names of ops by their numbers, as in op_numbers.sh."""
    text = subprocess.run(["cc", "-E", "-P", "-DTENSORGRAD_IMPLEMENTATION", "-x", "c", "tensorgrad.h"], check=True,
                          capture_output=True, text=True).stdout
    return list(dict.fromkeys(re.findall(r"TGI_OP_([a-z_0-9]+),", text)))


def read(folder, run, names):
    """kernel -> [launches, bytes, instructions] of a run."""
    found = {}
    for path, columns in (os.path.join(folder, run + ".bytes"), 6), (os.path.join(folder, run + ".ptx"), 2):
        with open(path, encoding="utf-8") as file:
            for line in file:
                part = line.split(maxsplit=columns)
                if not part[0].isdigit():
                    continue
                kernel = re.sub(r"^void ", "", part[columns].strip()).replace("> >", ">>")
                kernel = re.sub(r"(?<=tgi_)(formula|gradient)<(\d+)", lambda m: m[1] + "<" + names[int(m[2])], kernel)
                row = found.setdefault(kernel, [int(part[0]), 0, 0])
                if columns == 2:
                    row[2] += int(part[1])
                else:
                    row[1] += int(part[1]) + int(part[2])
    return found


def large(run, rows):
    """The same rows, with the sizes of products those of the large step."""
    layers, sequences, words = (int(n) for n in run.split(","))
    sizes = {str(sequences * SMALL_TOKENS): str(TOKENS), str(words): str(WORDS)}
    return {re.sub(r"\d+", lambda m: sizes.get(m[0], m[0]), k) if k.startswith("product") else k: v for k, v in rows.items()}


def whole(folder):
    """kernel -> [launches, bytes, instructions] of the large step."""
    names, runs, step = op_names(), {}, {}
    for run in ("%d,%d,%d" % (l, b, w) for l, b, w in
                ((1, 1, 1), (1, 2, 1), (2, 1, 1), (2, 2, 1), (1, 1, 2), (1, 2, 2))):
        layers, sequences, words = run.split(",")
        name = "%s,%s,%d" % (layers, sequences, int(words) * SMALL_WORDS)
        runs[run] = large(name, read(folder, name, names))
    for kernel in sorted(set().union(*runs.values())):
        def tokens(layers, words):
            one, two = (runs["%d,%d,%d" % (layers, b, words)].get(kernel, [0, 0, 0]) for b in (1, 2))
            return [x + (TOKENS // SMALL_TOKENS - 1) * (y - x) for x, y in zip(one, two)]
        base = tokens(1, 1)
        step[kernel] = [a + (LAYERS - 1) * (b - a) + (WORDS // SMALL_WORDS - 1) * (c - a)
                        for a, b, c in zip(base, tokens(2, 1), tokens(1, 2))]
        step[kernel][0] = sum(n * runs[r].get(kernel, [0])[0] for r, n in (("1,1,1", 2 - LAYERS), ("2,1,1", LAYERS - 1)))
    for run, pattern in ALONE.items():
        alone = {k: v for k, v in read(folder, run, names).items() if re.match(pattern, k)}
        for kernel in [k for k in step if re.match(pattern, k)]:
            launches = step.pop(kernel)[0]
            if run != "embedding":
                step[kernel] = [launches] + [launches * PARTS[run] * n // alone[kernel][0] for n in alone[kernel][1:]]
        if run == "embedding":
            step.update(alone)
    return step


def flop(kernel, launches):
    """FLOP of products and of causal attention."""
    if kernel.startswith("product"):
        m, n, k = (int(x) for x in re.findall(r"\d+", kernel)[:3])
        return 2.0 * launches * m * n * k
    return 1.0 * launches * flash(kernel)[0] * HEADS * LENGTH * LENGTH * 64


def flash(kernel):
    return next((row for name, row in FLASH.items() if re.match("tgi_(flash|hopper)_" + name, kernel)), (0, 0))


def milliseconds(kernel, launches, data, operations, instructions):
    """What the launches take, and what bounds them."""
    kind = ("attention" if re.match(ALONE["attention"], kernel) else "large" if str(WORDS) in kernel else
            "sums" if kernel.endswith("sums") else "product")
    once = launches * flash(kernel)[1] * HEADS * LENGTH * 64 * 2 if kind == "attention" else data
    times = {"bytes": once / (MEMORY * MEMORY_SHARE), "cache": data / (CACHE * CACHE_SHARE),
             "FLOP": operations / (PRODUCTS * SHARES[kind]), "instructions": instructions / (SCHEDULERS * CLOCK * ISSUE)}
    longest = max(times.values())
    bound = max(times, key=times.get) if longest > launches * GAP else "launches"
    return 1e3 * (longest + launches * GAP), bound


def line_of(kernel, launches, megabytes, gigaflop, megainstructions):
    time, bound = milliseconds(kernel, launches, 1e6 * megabytes, 1e9 * gigaflop, 1e6 * megainstructions)
    return "%d %.1f %.1f %.1f %.3f %s %s" % (launches, megabytes, gigaflop, megainstructions, time, bound, kernel)


def main():
    if sys.argv[1] != "--check":
        rows = []
        for kernel, (launches, data, instructions) in whole(sys.argv[1]).items():
            numbers = (round(x, 1) for x in (data / 1e6, flop(kernel, launches) / 1e9, instructions / 1e6))
            rows.append(line_of(kernel, launches, *numbers))
        rows.sort(key=lambda row: -float(row.split()[4]))
        with open(TABLE, "w", encoding="utf-8") as file:
            file.write("\n".join([HEAD] + rows) + "\n")
    with open(TABLE, encoding="utf-8") as file:
        lines = file.read().splitlines()
    wrong, sums = 0 if lines[0] == HEAD else 1, [0.0] * 5
    for line in lines[1:]:
        part = line.split(maxsplit=6)
        again = line_of(part[6], int(part[0]), *(float(x) for x in part[1:4]))
        if line != again:
            print("FAILED: %s\n    the model says %s" % (line, again))
            wrong += 1
        sums = [x + float(y) for x, y in zip(sums, part)]
    print("%d launches, %.1f GB, %.2f TFLOP, %.0f million instructions, %.1f ms" % (
        sums[0], sums[1] / 1e3, sums[2] / 1e3, sums[3], sums[4]))
    print("%d passed, %d failed" % (len(lines) - wrong, wrong))
    return wrong != 0


if __name__ == "__main__":
    sys.exit(main())
