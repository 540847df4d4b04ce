"""engine.py EXPECTED: what examples/06_engine.c is to print (examples/expected/06_engine.txt), computed by PyTorch in f64: the
expression of micrograd's README, and LLM101n's training of a small network on a yin-yang.  The network, the loss and AdamW are
PyTorch's own; the random numbers and the points are made here.  Every line must be the same text.  With --write EXPECTED it writes
the file instead."""
import sys

import torch

torch.set_default_dtype(torch.float64)
torch.set_num_threads(1)


def xorshift(state):
    """Random numbers in [0, 1) of 24 bits: xorshift64*, its upper half"""
    mask = (1 << 64) - 1
    while True:
        state ^= state >> 12
        state ^= state << 25 & mask
        state ^= state >> 27
        yield ((state * 0x2545F4914F6CDD1D & mask) >> 40) / 2**24


def yin_yang(numbers, n):
    """n points of the disc of radius 1/2 around (1/2, 1/2), scaled to -2 .. 2, and their classes, which take turns"""
    points, labels = [], []
    while len(points) < n:
        x, y = next(numbers), next(numbers)
        left, middle, right = (((x - at) ** 2 + (y - 0.5) ** 2) ** 0.5 for at in (0.25, 0.5, 0.75))
        if middle > 0.5:
            continue
        if min(left, right) < 0.1:
            label = 2
        else:
            label = 0 if right <= 0.1 or 0.1 < left <= 0.25 or (y > 0.5 and right > 0.25) else 1
        if label == len(points) % 3:
            points.append([4 * x - 2, 4 * y - 2])
            labels.append(label)
    return torch.tensor(points), torch.tensor(labels)


def readme():
    a, b = (torch.tensor(v, requires_grad=True) for v in (-4.0, 2.0))
    c, d = a + b, a * b + b**3
    c = c + c + 1
    c = c + 1 + c - a
    d = d + d * 2 + (b + a).relu()
    d = d + 3 * d + (b - a).relu()
    f = (c - d) ** 2
    g = f / 2 + 10 / f
    g.backward()
    return ["%.4f" % v.item() for v in (g, a.grad, b.grad)]


def training():
    numbers = xorshift(42)
    x, y = yin_yang(numbers, 100)
    layers = [torch.nn.Linear(2, 8), torch.nn.Linear(8, 3)]
    for layer in layers:
        torch.nn.init.zeros_(layer.bias)
        for row in layer.weight.detach():
            for k in range(len(row)):
                row[k] = (2 * next(numbers) - 1) * len(row) ** -0.5
    net = torch.nn.Sequential(layers[0], torch.nn.Tanh(), layers[1])
    adamw = torch.optim.AdamW(net.parameters(), lr=0.1, betas=(0.9, 0.95), weight_decay=1e-4)
    loss_of = lambda part: torch.nn.functional.cross_entropy(net(x[part]), y[part])
    for step in range(1, 101):
        if step % 10 == 1:
            yield "step %d/100, val loss %.6f" % (step, loss_of(slice(80, 90)).item())
        adamw.zero_grad()
        loss = loss_of(slice(0, 80))
        loss.backward()
        adamw.step()
        yield "step %d/100, train loss %.12g" % (step, loss.item())


wanted = readme() + list(training())
if sys.argv[1] == "--write":
    open(sys.argv[2], "w").write("#! tolerance 1e-6\n" + "\n".join(wanted) + "\n")
    sys.exit(0)
there = [line for line in open(sys.argv[1]).read().splitlines() if not line.startswith("#!")]
same = sum(a == b for a, b in zip(wanted, there))
for a, b in zip(wanted, there):
    if a != b:
        print("failed: PyTorch %s, expected %s" % (a, b))
print("%d passed, %d failed" % (same, max(len(wanted), len(there)) - same))
sys.exit(same != len(wanted) or len(wanted) != len(there))
