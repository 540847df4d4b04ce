"""GPT-2 124M as llm.c trains it on a CPU: its train_gpt2.c in the folder TG_LLM_C, compiled with the flags of its own
Makefile.  The weights are random: the time of a step does not depend on them."""
import atexit
import ctypes
import os
import shutil
import subprocess
import sys
import tempfile

import numpy

from common import labels, serve

FOLDER = os.environ["TG_LLM_C"]
FLAGS = ["-Ofast", "-march=native", "-fopenmp", "-DOMP", "-DTESTING"]  # TESTING: without its main function
BATCH, LENGTH, VOCABULARY = 4, 64, 50257
CONFIG = [20240326, 3, 1024, VOCABULARY, 12, 12, 768, 50304]  # of its file of weights: magic number, version, sizes
WEIGHTS = 124475904

sys.stdout = os.fdopen(os.dup(1), "w")  # for the answers: what the C code prints goes to the log
os.dup2(2, 1)
scratch = tempfile.mkdtemp()
atexit.register(shutil.rmtree, scratch)


def library():
    path = os.path.join(scratch, "train_gpt2.so")
    subprocess.run([os.environ.get("CC", "cc"), *FLAGS, "-shared", "-fPIC", "-w", "-o", path,
                    os.path.join(FOLDER, "train_gpt2.c"), "-lm"], check=True)
    return ctypes.CDLL(path)


def weights_file():
    path = os.path.join(scratch, "gpt2_124M.bin")
    header = numpy.zeros(256, numpy.int32)
    header[:len(CONFIG)] = CONFIG
    with open(path, "wb") as file:
        header.tofile(file)
        (numpy.random.default_rng(1).standard_normal(WEIGHTS, numpy.float32) * numpy.float32(0.02)).tofile(file)
    return path


def build(w, mode):
    code, model = library(), ctypes.create_string_buffer(1 << 16)  # far more than its struct GPT2 has
    code.gpt2_build_from_checkpoint(model, weights_file().encode())
    tokens = labels([BATCH, LENGTH + 1], 1, VOCABULARY).astype(numpy.int32)
    inputs, targets = tokens[:, :-1].copy(), tokens[:, 1:].copy()
    pointer, size, number = ctypes.POINTER(ctypes.c_int), ctypes.c_size_t, ctypes.c_float
    steps = [0]

    def step():
        steps[0] += 1
        code.gpt2_forward(model, inputs.ctypes.data_as(pointer), targets.ctypes.data_as(pointer), size(BATCH),
                          size(LENGTH))
        code.gpt2_zero_grad(model)
        code.gpt2_backward(model)
        code.gpt2_update(model, number(1e-3), number(0.9), number(0.999), number(1e-8), number(0.01), steps[0])

    return step


def version():
    of = subprocess.run(["git", "-C", FOLDER, "log", "-1", "--format=%h"], capture_output=True, text=True)
    return "llm.c " + of.stdout.strip()


name = "gpt-%dx%dx12x768x12x%d-adamw-tied" % (BATCH, LENGTH, VOCABULARY)
serve(version(), lambda w: ["c"] if w.name == name else [], build)
