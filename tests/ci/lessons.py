#!/usr/bin/env python3
"""lessons.py FOLDER BUILD: the kernels that comments of tensorgrad_cuda.cu show before the fast ones compute what these do, on the
simulator (tests/cuda/lessons.c), and nvcc takes them where it is installed; of each a version with a mistake does not.  Ends in
"N passed, N failed"."""
import os
import re
import shutil
import subprocess
import sys

sys.path.append(os.path.join(os.path.dirname(__file__), "..", "tools"))
from checks import check, summary

MISTAKES = {"exp_of": ("i += threads", "i += threads + 1", "exp_of<1>"),
            "layer_norm": ("variance + eps", "variance + 1", "layer_norm")}


def lessons(companion):
    """name -> (code, parameters), of kernels that stand in comments."""
    found = {}
    for m in re.finditer(r"^( +)__global__ void (\w+)\(([^)]*)\)\n\1\{\n.*?^\1\}\n", companion, re.M | re.S):
        before = companion[:m.start()]
        if before.rfind("/*") > before.rfind("*/"):
            found[m[2]] = m[0], [p.strip() for p in re.sub(r"\s+", " ", m[3]).split(",")]
    return found


def host_of(name, parameters, blocks):
    """The function lesson_NAME: float * and const float * are [rows * n], or [n] where there are rows and they are read second."""
    names = [re.search(r"\w+$", p)[0] for p in parameters]
    size = "rows * n" if "rows" in names else "n"
    lines = ['extern "C" void lesson_%s(%s)\n{' % (name, ", ".join(parameters))]
    for p, n in zip(parameters, names):
        if "*" in p:
            count = "n" if n in ("weight", "bias") else size
            lines.append("    float *on_%s = nullptr;\n    cudaMalloc(&on_%s, sizeof(float) * (size_t)(%s));" % (n, n, count))
            if p.startswith("const"):
                lines.append("    cudaMemcpy(on_%s, %s, sizeof(float) * (size_t)(%s), cudaMemcpyHostToDevice);" % (n, n, count))
    arguments = ", ".join("(%s)on_%s" % (re.sub(r"\w+$", "", p), n) if "*" in p else n for p, n in zip(parameters, names))
    lines.append("    cudaLaunchConfig_t c = {};\n    c.gridDim = dim3(%s);\n    c.blockDim = dim3(256);" % blocks)
    lines.append("    cudaLaunchKernelEx(&c, %s, %s);" % (name, arguments))
    lines.append("    cudaMemcpy(y, on_y, sizeof(float) * (size_t)(%s), cudaMemcpyDeviceToHost);" % size)
    lines += ["    cudaFree(on_%s);" % n for p, n in zip(parameters, names) if "*" in p]
    return "\n".join(lines + ["}", ""])


def source_of(found):
    head = "#include <cuda_runtime.h>\n#include <math.h>\n"
    hosts = {"exp_of": "4", "layer_norm": "(unsigned)((rows + 255) / 256)"} # of 4 blocks each thread has several elements
    return head + "".join(code + host_of(name, parameters, hosts[name]) for name, (code, parameters) in found.items())


def runs(found, folder, build, name):
    """Whether lessons.c passes with these kernels."""
    source, objects = os.path.join(folder, name + ".cu"), os.path.join(folder, name + ".o")
    with open(source, "w", encoding="utf-8") as file:
        file.write(source_of(found))
    if subprocess.run(["c++", "-std=c++17", "-O1", "-Itests/cudasim", "-x", "c++", "-c", source, "-o", objects]).returncode:
        return False
    program = os.path.join(folder, name)
    made = subprocess.run(["make", "-s", "sim", "MAIN=tests/cuda/lessons.c", "OUT=" + program, "BUILD=" + build,
                           "LDFLAGS=" + objects] + (["CFLAGS=" + os.environ["CFLAGS"]] if "CFLAGS" in os.environ else []))
    return made.returncode == 0 and subprocess.run([program]).returncode == 0


def main():
    folder, build = sys.argv[1:3]
    os.makedirs(folder, exist_ok=True)
    with open("tensorgrad_cuda.cu", encoding="utf-8") as file:
        found = lessons(file.read())
    check(sorted(found) == sorted(MISTAKES), "the comments show %s, not %s" % (sorted(found), sorted(MISTAKES)))
    check(runs(found, folder, build, "lessons"), "the kernels of the comments")
    for name, (right, wrong, _) in MISTAKES.items():
        code, parameters = found[name]
        check(right in code and not runs(dict(found, **{name: (code.replace(right, wrong), parameters)}), folder, build,
                                         "wrong-" + name), "not noticed: %s in %s" % (wrong, name))
    if shutil.which("nvcc"):
        compiled = subprocess.run(["nvcc", "-arch=sm_90", "-Werror", "all-warnings", "-c", os.path.join(folder, "lessons.cu"), "-o",
                                   os.path.join(folder, "lessons-nvcc.o")])
        check(compiled.returncode == 0, "nvcc takes them")
    return summary()


if __name__ == "__main__":
    sys.exit(main())
