"""The Llama of tests/bench/generation.c as llama2.c runs it: its run.c in the folder TG_LLAMA2_C, compiled for this
processor.  Modes: O3, and Ofast, which is how its own Makefile makes it fast.  The weights are random: the time of a
token does not depend on them."""
import atexit
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile

import numpy

from common import serve

FOLDER = os.environ["TG_LLAMA2_C"]
FLAGS = ["-march=native", "-fopenmp", "-DTESTING"]  # TESTING: without its main function
CONFIG = [1024, 2816, 12, 16, 8, 32000, 256]  # of its file: width, hidden, layers, heads, of keys, vocabulary, context

sys.stdout = os.fdopen(os.dup(1), "w")  # for the answers: what the C code prints goes to the log
os.dup2(2, 1)
scratch = tempfile.mkdtemp()
atexit.register(shutil.rmtree, scratch)


def library(mode):
    path = os.path.join(scratch, mode + ".so")
    subprocess.run([os.environ.get("CC", "cc"), "-" + mode, *FLAGS, "-shared", "-fPIC", "-w", "-o", path,
                    os.path.join(FOLDER, "run.c"), "-lm"], check=True)
    return ctypes.CDLL(path)


def weights_file():
    path = os.path.join(scratch, "model.bin")
    if os.path.exists(path):
        return path
    width, hidden, layers, heads, kv_heads, vocabulary, context = CONFIG
    kv = width // heads * kv_heads
    count = vocabulary * width + layers * (2 * width + 2 * width * width + 2 * width * kv + 3 * width * hidden)
    count += width + context * (width // heads)
    with open(path, "wb") as file:
        numpy.array(CONFIG, numpy.int32).tofile(file)
        (numpy.random.default_rng(1).standard_normal(count, numpy.float32) * numpy.float32(0.02)).tofile(file)
    return path


def build(w, mode):
    code, model = library(mode), ctypes.create_string_buffer(1 << 12)  # far more than its struct Transformer has
    prompt, count = w.sizes
    code.build_transformer(model, weights_file().encode())
    code.forward.restype = ctypes.POINTER(ctypes.c_float)
    for position in range(prompt):
        code.forward(model, 1 + position, position)

    def text():
        token = 100
        for position in range(prompt, prompt + count):
            logits = code.forward(model, token, position)
            token = code.sample_argmax(logits, CONFIG[5])
        return token

    return text, count


def modes(w):
    is_it = w.kind == "generate" and w.options == ["llama", "f32"] and sum(w.sizes) <= CONFIG[6]
    return ["O3", "Ofast"] if is_it else []


def version():
    of = subprocess.run(["git", "-C", FOLDER, "log", "-1", "--format=%h"], capture_output=True, text=True)
    return "llama2.c " + of.stdout.strip()


serve(version(), modes, build)
