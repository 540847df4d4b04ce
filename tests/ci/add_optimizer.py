#!/usr/bin/env python3
"""add_optimizer.py FOLDER [cpu]: adds Adamax to a copy of the library in FOLDER, in as many places as the head of @@OPTIM says
that an optimizer takes, and tests it; ends in "N passed, N failed".

The test compares six steps with the formula in plain ops, and saves, loads and goes on, on the CPU, on the plain backend and,
without "cpu" and where there is a C++ compiler, with the CUDA kernels on a pretend device."""
import math
import sys

from checks import summary
from copies import DEVICE, HEADER, add, build, build_on_device, copy, test

TEST = "tests/test_optim.c"


def adamax(start, steps, lr, beta1, beta2, eps):
    """PyTorch's formula for one element whose gradient is cos(3 p + step): what the library must give."""
    p, mean, norm = start, 0.0, 0.0
    for k in range(steps):
        g = math.cos(3 * p + k)
        mean += (1 - beta1) * (g - mean)
        norm = max(beta2 * norm, abs(g) + eps)
        p -= lr / (1 - beta1 ** (k + 1)) * mean / norm
    return p


VALUES = ", ".join(repr(adamax(start, 6, 0.1, 0.8, 0.95, 1e-3)) for start in (1.0, 2.0, -0.5))

ADAMAX = [
    (HEADER, '    OP(adagrad, suffix, type, "sum",', '''\
    OP(adamax, suffix, type, "exp_avg", "exp_inf", NULL, 3, TGI_READS(beta1) | TGI_READS(beta2) | TGI_READS(eps), (void)o, { \\
        const real size = (g += decay * p) < 0 ? eps - g : eps + g; \\
        a += one_minus_beta1 * (g - a); \\
        b = beta2 * b > size ? beta2 * b : size; \\
        p -= rate * a / b; \\
    }) \\
'''),
    (HEADER, "TG_API tg_optim *tg_adagrad(",
     "TG_API tg_optim *tg_adamax(tg_tensor *const *params, int n, double lr); /* torch.optim.Adamax */\n"),
    (TEST, '    {"adagrad", tg_adagrad,', '    {"adamax", tg_adamax, 0, 0, false, false, false},\n'),
    (TEST, '    {"adagrad", 0, 0, 0, -1,',
     '    {"adamax", 0, 0, 0, 0.8, 0.95, 1e-3, -1, 0, 0, 0, {%s}},\n' % VALUES),
]


def main():
    folder = copy(sys.argv[1])
    if not add(folder, "an optimizer", ADAMAX, 4):
        return summary()
    program = build(folder, "test_optim")
    for filters in ("optim_trajectories",), ("optim_narrow_dtypes",), ("resumed_bit_for_bit",):
        test(folder, program, 10, *filters)
        test(folder, program, 10, *filters, TG_PLAIN="1")
    if "cpu" in sys.argv:
        print("skipped: the pretend device, which takes turns by commit")
    else:
        device = build_on_device(folder, "test_optim")
        if device:
            test(folder, device, 10, "optim_trajectories", **DEVICE)
    return summary()


if __name__ == "__main__":
    sys.exit(main())
