"""The graph of scalars in micrograd, with Python's cyclic garbage collection, as it comes, and without."""
import gc
import importlib.metadata

from micrograd.engine import Value

from common import numbers, serve

WIDTHS = (2, 16, 16, 1)


def build(w, mode):
    points = w.sizes[0]
    inputs = [[float(x) for x in numbers([points], 100 + i)] for i in range(3)]
    weights, nodes, number = [], 0, 0
    for layer, (n, m) in enumerate(zip(WIDTHS, WIDTHS[1:])):
        rows = []
        for _ in range(m):
            rows.append([Value(float(numbers([1], number + i + 1)[0])) for i in range(n + 1)])
            number += n + 1
        weights.append(rows)
        nodes += (2 * n + (layer < len(WIDTHS) - 2)) * m
    parameters = [p for rows in weights for row in rows for p in row]

    def output(x):
        for layer, rows in enumerate(weights):
            y = [sum((weight * value for weight, value in zip(row[1:], x)), row[0]) for row in rows]
            x = [value.relu() for value in y] if layer < len(weights) - 1 else y
        return x[0]

    def turn():
        loss = Value(0)
        for a, b, label in zip(*inputs):
            loss = loss + (output([a, b]) * (1 if label < 0 else -1) + 1).relu()
        for parameter in parameters:
            parameter.grad = 0
        loss.backward()
        return loss.data

    def without_collection():
        gc.disable()
        turn()
        gc.enable()

    def as_in_a_loop():
        """A graph of micrograd is a cycle, which only the collector frees, in a later turn; gc.collect() of the other
        mode would spare this one that work.  After two turns a turn pays for its forerunners, as it does in training."""
        turn()
        turn()

    calls = (nodes + 4) * points
    return (turn, calls, as_in_a_loop) if mode == "gc" else (without_collection, calls, gc.collect)


serve("micrograd " + importlib.metadata.version("micrograd"),
      lambda w: ["gc", "no_gc"] if w.kind == "scalar_graph" else [], build)
