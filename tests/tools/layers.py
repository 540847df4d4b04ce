#!/usr/bin/env python3
"""layers.py [--record] | --judge PROGRAM FOLDER: PyTorch's side of the rows of tests/layers.h; ends in "N passed, N failed".

Builds each layer in PyTorch, with the parameters and inputs of test_layers.c, and compares how it is printed, its
parameters and buffers, its outputs and gradients with the columns of the row; --record writes them there.

--judge gives both the same weights and inputs, in safetensors files of the folder, and compares outputs, gradients, and
the parameters and buffers after ten steps of SGD with momentum, to 1e-6 in f64.  PROGRAM is test_layers."""
import math
import os
import re
import subprocess
import sys

HEADER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "layers.h")
NUMBER = r"[-+\w.]+"
ROW = re.compile(r'^LAYER\("((?:[^"\\]|\\.)*)",\s*(.*?),\s*"([^"]*)",\s*(\d+),\s*"([^"]*)",\s*((?:"[^"]*"\s*)+),'
                 r"\s*(%s),\s*(%s)\)$" % (NUMBER, NUMBER), re.M | re.S)


def numbers(torch, shape, k, scale=1.0):
    """Element j of tensor k, as in test_layers.c."""
    n = math.prod(shape)
    return torch.tensor([scale * math.sin(0.7 * j + 1.3 * k + 0.4) for j in range(n)], dtype=torch.float64).reshape(shape)


def weighed(torch, t, k):
    return (t.detach().double() * numbers(torch, tuple(t.shape), k)).sum().item()


def read_input(torch, text, k):
    kind, rest = text.split(":")
    if kind == "n":
        return torch.tensor([int(n) for n in rest.split(",")])
    sizes, _, most = rest.partition("<")
    t = numbers(torch, tuple(int(s) for s in sizes.split(",") if s), 100 + k)
    if kind == "f":
        return t.requires_grad_()
    t = torch.floor((t + 1) * (0.5 * int(most or 2))).long()
    return t == 1 if kind == "b" else t


def flat(y):
    """The outputs as a list: of a tuple, its tensors, those of inner tuples too, but not of packed sequences."""
    if isinstance(y, (tuple, list)) and not hasattr(y, "batch_sizes"):
        return [t for part in y if part is not None for t in flat(part)]
    return [y]


def members(m):
    """Parameters, then buffers, then those of the children, as the library orders them."""
    found, own = [], list(m._parameters.items()) + list(m._buffers.items())
    for name, t in own:
        if t is not None:
            found.append("%s[%s]" % (name, ",".join(str(s) for s in t.shape)))
    for name, child in m.named_children():
        found += [name + "." + text for text in members(child)]
    return found


def call(torch, m, given):
    """The outputs of a module as a list; some take their inputs in other ways than one after the other."""
    nn = torch.nn
    if isinstance(m, nn.RNNBase) and getattr(given[-1], "dtype", None) == torch.int64:
        utils, x, first = nn.utils.rnn, given[0], m.batch_first
        packed = utils.pack_padded_sequence(x, given[-1], batch_first=first, enforce_sorted=False)
        y, *states = call(torch, m, [packed] + given[1:-1])
        return [utils.pad_packed_sequence(y, batch_first=first, total_length=x.shape[first])[0]] + states
    if isinstance(m, (nn.LSTM, nn.LSTMCell)) and len(given) == 3:
        return flat(m(given[0], (given[1], given[2])))
    if isinstance(m, nn.MultiheadAttention):
        return flat(m(*given[:3], attn_mask=given[3] if len(given) > 3 else None))
    return flat(m(*given))


def judge(torch, program, folder):
    """Compares the program's results with PyTorch's, row by row."""
    from safetensors.torch import load_file, save_file
    torch.set_default_dtype(torch.float64)
    torch.manual_seed(1)
    os.makedirs(folder, exist_ok=True)
    with open(HEADER, encoding="utf-8") as file:
        rows = [m.groups() for m in ROW.finditer(file.read())]
    wanted = []
    for k, (text, _, inputs, outputs, *_) in enumerate(rows):
        m = eval(text, {"nn": torch.nn, "torch": torch})
        given = [read_input(torch, t, i) for i, t in enumerate(inputs.split())]
        path = os.path.join(folder, str(k))
        save_file({n: t.detach().clone() for n, t in m.state_dict().items()}, path + ".safetensors")
        save_file({str(i): t.detach().clone() for i, t in enumerate(given)}, path + ".inputs.safetensors")
        wanted.append(train(torch, m, given, int(outputs)))
    said = subprocess.run([os.path.abspath(program), "--judge", folder], capture_output=True, text=True)
    print(said.stdout, end="") if said.returncode else None
    passed, failed = 0, 0
    for k, results in enumerate(wanted):
        path = os.path.join(folder, "%d.result.safetensors" % k)
        ours = load_file(path) if os.path.exists(path) else {}
        worst = max([distance(ours[n], t) for n, t in results.items() if n in ours] or [0])
        if set(ours) == set(results) and worst <= 1e-6:
            passed += 1
            continue
        failed += 1
        print("failed: %s: worst %g, names %s" % (rows[k][0], worst, sorted(set(ours) ^ set(results))[:5]))
    print("%d passed, %d failed" % (passed, failed))
    return failed != 0


def distance(a, b):
    if a.shape != b.shape:
        return math.inf
    difference = (a.double() - b.double()).abs() / (1 + b.double().abs())
    return difference.max().item() if difference.numel() else 0


def train(torch, m, given, outputs):
    """What judge_row of test_layers.c does."""
    params = dict(m.named_parameters())
    optimizer = torch.optim.SGD(list(params.values()), lr=0.01, momentum=0.9) if params else None
    results = {}
    for step in range(10 if optimizer else 1):
        m.zero_grad()
        y = call(torch, m, given)[:outputs]
        loss = sum((t * numbers(torch, tuple(t.shape), 200 + i)).sum() for i, t in enumerate(y))
        if loss.requires_grad:
            loss.backward()
        if step == 0:
            results.update({"output.%d" % i: t.detach().clone() for i, t in enumerate(y)})
            results.update({"gradient of input.%d" % i: t.grad.clone() for i, t in enumerate(given) if t.grad is not None})
            results.update({"gradient of " + n: p.grad.clone() for n, p in params.items() if p.grad is not None})
        if optimizer:
            optimizer.step()
    results.update({"after ten steps " + n: t.detach().clone() for n, t in m.state_dict().items()})
    return results


def run(torch, text, inputs, outputs):
    """The four columns of a row, as text."""
    nn = torch.nn
    torch.set_default_dtype(torch.float64)
    m = eval(text, {"nn": nn, "torch": torch})
    with torch.no_grad():
        for i, p in enumerate(m.parameters()):
            p.copy_(numbers(torch, tuple(p.shape), i, 0.5))
    given = [read_input(torch, t, k) for k, t in enumerate(inputs.split())]
    y = call(torch, m, given)[:outputs]
    total = sum((t * numbers(torch, tuple(t.shape), 200 + i)).sum() for i, t in enumerate(y))
    value = sum(weighed(torch, t, 200 + i) for i, t in enumerate(y))
    if total.requires_grad:
        total.backward()
    gradient = sum(weighed(torch, p.grad, 300 + i) for i, p in enumerate(m.parameters()) if p.grad is not None)
    gradient += sum(weighed(torch, t.grad, 400 + i) for i, t in enumerate(given) if t.grad is not None)
    printed = re.sub(r"^(Batch|Instance)Norm[123]d", r"\1Norm", repr(m)) # ours are one class for 1 to 3 dims
    return "" if "\n" in printed else printed.replace('"', "'"), " ".join(members(m)), value, gradient


def quoted(text, first):
    """A string literal, in several parts where the line would be longer than 118 columns."""
    parts, room = [], 118 - first
    while len(text) > room:
        cut = text.rfind(" ", 0, room) + 1
        parts.append(text[:cut])
        text, room = text[cut:], 110
    return ('"\n    "').join(parts + [text]).join('""')


def main():
    try:
        import torch
    except ImportError:
        print("PyTorch is not installed: nothing to compare with\n0 passed, 0 failed")
        return 0
    if "--judge" in sys.argv:
        return judge(torch, *sys.argv[2:4])
    with open(HEADER, encoding="utf-8") as file:
        header = file.read()
    record, passed, failed = "--record" in sys.argv, 0, 0

    def one(match):
        nonlocal passed, failed
        text, ours, inputs, outputs, printed, names, y, g = match.groups()
        wanted = run(torch, text, inputs, int(outputs))
        names = "".join(re.findall(r'"([^"]*)"', names))
        close = all(abs(float(a) - b) <= 1e-9 * (1 + abs(b)) for a, b in ((y, wanted[2]), (g, wanted[3])))
        if (printed, names) == wanted[:2] and close:
            passed += 1
            return match[0]
        if not record:
            failed += 1
            print("failed: %s\n  PyTorch: %s" % (text, wanted))
            return match[0]
        passed += 1
        last = "%.17g, %.17g)" % (wanted[2] + 0.0, wanted[3] + 0.0)
        first = 'LAYER("%s", %s, "%s", %s,' % (text, " ".join(ours.split()), inputs, outputs)
        if len(first) > 118:
            first = 'LAYER("%s",\n    %s, "%s", %s,' % (text, " ".join(ours.split()), inputs, outputs)
        return '%s\n    %s, %s,\n    %s' % (first, quoted(wanted[0], 8), quoted(wanted[1], 8 + len(wanted[0])), last)

    changed = ROW.sub(one, header)
    rows = len(re.findall(r"^LAYER\(", header, re.M))
    if passed + failed != rows:
        failed += 1
        print("failed: %d rows, of which %d can be read" % (rows, passed + failed - 1))
    if record and changed != header:
        with open(HEADER, "w", encoding="utf-8") as file:
            file.write(changed)
    print("%d passed, %d failed" % (passed, failed))
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
