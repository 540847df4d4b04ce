"""The products of matrices in NumPy, which hands them to its BLAS, OpenBLAS as a rule."""
import numpy

from common import numbers, serve


def blas():
    try:
        found = numpy.show_config(mode="dicts")["Build Dependencies"]["blas"]
        return "%s %s" % (found["name"], found["version"])
    except (KeyError, TypeError):
        return "unknown BLAS"


def build(w, mode):
    M, N, K = w.sizes
    a_transposed, b_transposed = (letter == "T" for letter in (w.options or ["NN"])[0])
    a = numbers([K, M], 1).T if a_transposed else numbers([M, K], 1)
    b = numbers([N, K], 2).T if b_transposed else numbers([K, N], 2)
    out = numpy.empty((M, N), numpy.float32)
    return lambda: numpy.dot(a, b, out=out)


serve("NumPy %s, %s" % (numpy.__version__, blas()), lambda w: ["dot"] if w.kind == "sgemm" else [], build)
