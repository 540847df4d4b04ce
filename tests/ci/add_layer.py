#!/usr/bin/env python3
"""add_layer.py FOLDER: adds a layer with a parameter to a copy of the library in FOLDER, in as many places as the head of @@LAYERS
says, and tests it; ends in "N passed, N failed".

The layer multiplies the last dim of x by a weight.  Its row in tests/layers.h has the sums that this script computes; the test
checks them, the parameter's name and the printed text, on the CPU and on the plain backend."""
import math
import sys

from checks import summary
from copies import HEADER, add, build, copy, test

ROWS, FEATURES = 5, 4


def number(k, j, scale=1.0):
    """Element j of the k-th tensor of a test, as in tests/test_layers.c."""
    return scale * math.sin(0.7 * j + 1.3 * k + 0.4)


def sums():
    """The sums of outputs and of gradients, each element times a weight."""
    y = gradients = 0.0
    for i in range(ROWS):
        for j in range(FEATURES):
            at = i * FEATURES + j
            x, w, g = number(100, at), number(0, j, 0.5), number(200, at)
            y += g * x * w
            gradients += number(300, j) * g * x + number(400, at) * g * w
    return y, gradients


SCALE = [
    (HEADER, "/* tg_nn_prelu is tg_prelu with weight [count],",
     "/* x [.., count] times weight [count], which starts at init. */\n"
     "TG_API tg_module *tg_nn_scale(int64_t count, double init);\n"),
    (HEADER, "TGI_LAYER_FORWARD(prelu,", """\
TGI_LAYER_FORWARD(scale, tgi_affine, 1, tg_mul(x, self->weight))

tg_module *tg_nn_scale(int64_t count, double init)
{
    tgi_layer l;
    tgi_affine *self = (tgi_affine *)tgi_layer_begin(&l, "nn_scale", "Scale", tgi_scale_forward, sizeof *self);
    if (!self) return NULL;
    if (tgi_layer_size(&l, "count", count))
        self->weight = tgi_layer_param(&l, "weight", tg_full(TG_SHAPE(count), init));
    return tgi_layer_end(&l, "%lld", (long long)count);
}

"""),
    ("tests/layers.h", 'LAYER("nn.PReLU()",',
     'LAYER("nn.Scale(4)", tg_nn_scale(4, 1), "f:%d,%d", 1, "Scale(4)", "weight[4]", %r, %r)\n' % ((ROWS, FEATURES) + sums())),
]


def main():
    folder = copy(sys.argv[1])
    if not add(folder, "a layer", SCALE, 3):
        return summary()
    program = build(folder, "test_layers")
    test(folder, program, 100, "rows")
    test(folder, program, 100, "rows", TG_PLAIN="1")
    return summary()


if __name__ == "__main__":
    sys.exit(main())
