"""The workloads in PyTorch.  Modes: eager; compile; for networks that train with SGD, also with the fused optimizer;
for convolutions also channels_last.  The driver takes the fastest."""
import itertools
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

from common import labels, numbers, serve
from pytorch_programs import first_weights, program, program_modes

THREADS = int(sys.argv[1])
REPEATED = 1000
torch.set_num_threads(THREADS)
torch.set_flush_denormal(True)


def tensor(shape, seed):
    return torch.from_numpy(numbers(shape, seed))


# ---- networks ------------------------------------------------------------------------------------------------------


class MLP(nn.Module):
    def __init__(self, widths, regression):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in zip(widths, widths[1:])])
        self.regression = regression

    def forward(self, x, target):
        for layer in self.layers[:-1]:
            x = torch.tanh(layer(x)) if self.regression else F.relu(layer(x))
        x = self.layers[-1](x)
        return F.mse_loss(x, target) if self.regression else F.cross_entropy(x, target)


class ConvNet(nn.Module):
    def __init__(self, side, c1, c2, width, classes):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, c1, 3, padding=1), nn.Conv2d(c1, c2, 3, padding=1)
        self.fc1, self.fc2 = nn.Linear(c2 * (side // 4) ** 2, width), nn.Linear(width, classes)

    def forward(self, x, target):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        return F.cross_entropy(self.fc2(F.relu(self.fc1(x.flatten(1)))), target)


class Recurrent(nn.Module):
    def __init__(self, cells, inputs, hidden, classes):
        super().__init__()
        self.cells, self.out = cells(inputs, hidden, batch_first=True), nn.Linear(hidden, classes)

    def forward(self, x, target):
        return F.cross_entropy(self.out(self.cells(x)[0][:, -1]), target)


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm_attention, self.norm_mlp = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value, self.attention_out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp_in, self.mlp_out = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        B, T, C = x.shape
        qkv = self.query_key_value(self.norm_attention(x)).view(B, T, 3, self.heads, C // self.heads)
        q, k, v = (part.transpose(1, 2) for part in qkv.unbind(2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C)
        x = x + self.attention_out(y)
        return x + self.mlp_out(F.gelu(self.mlp_in(self.norm_mlp(x))))


class GPT(nn.Module):
    def __init__(self, context, layers, width, heads, vocabulary, tied):
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        if tied:
            self.head.weight = self.token.weight

    def forward(self, ids, target):
        x = self.token(ids) + self.position(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.view(-1, logits.shape[-1]), target.view(-1))


def network(w):
    """The module, whose forward gives the loss, the shape of a batch, and that of its target with its classes, if
    any."""
    s = w.sizes
    if w.kind == "mlp":
        regression = "tanh" in w.options
        return MLP(s[1:], regression), s[:2], ([s[0], s[-1]], None) if regression else ([s[0]], s[-1])
    if w.kind == "conv_net":
        return ConvNet(*s[1:]), [s[0], 1, s[1], s[1]], ([s[0]], s[-1])
    if w.kind in ("lstm", "gru"):
        return Recurrent(nn.LSTM if w.kind == "lstm" else nn.GRU, *s[2:]), s[:3], ([s[0]], s[-1])
    return GPT(*s[1:], "tied" in w.options), s[:2], (s[:2], s[-1])


def training(w, mode):
    net, shape, (target_shape, classes) = network(w)
    params = list(net.parameters())
    first_weights(net)
    batches = []
    for i in range(4 if w.kind == "gpt" else 8):
        x = torch.from_numpy(labels(shape, 1000 + i, classes)) if w.kind == "gpt" else tensor(shape, 1000 + i)
        target = labels(target_shape, 2000 + i, classes) if classes else numbers(target_shape, 2000 + i)
        batches.append((x, torch.from_numpy(target)))
    if mode == "channels_last":
        net = net.to(memory_format=torch.channels_last)
    if "adamw" in w.options:
        optimizer = torch.optim.AdamW(params, lr=3e-4, fused=True)
    else:
        optimizer = torch.optim.SGD(params, lr=0.01, **({"fused": True} if mode == "fused" else {"foreach": False}))
    loss_of = torch.compile(net, dynamic=False) if mode == "compile" else net
    cycle = itertools.cycle(batches)

    def step():
        x, target = next(cycle)
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(x, target)
        loss.backward()
        optimizer.step()
        return loss.item()

    return step


# ---- ops -----------------------------------------------------------------------------------------------------------


def product(w, dtype=torch.float32):
    """The result goes to a tensor that is there, which is the fastest that PyTorch has."""
    M, N, K = w.sizes
    a_transposed, b_transposed = (letter == "T" for letter in (w.options or ["NN"])[0])
    a, b = tensor([K, M] if a_transposed else [M, K], 1), tensor([N, K] if b_transposed else [K, N], 2)
    if dtype == torch.int64:
        a, b = 100 * a, 100 * b
    a, b = a.to(dtype), b.to(dtype)
    a, b = a.t() if a_transposed else a, b.t() if b_transposed else b
    out = torch.empty(M, N, dtype=dtype)
    return lambda: torch.mm(a, b, out=out)


def index(count, below):
    return torch.from_numpy(labels([count], 9, below))


# kind: shapes of the inputs by the sizes, and the function of these inputs and the workload
OPS = {
    "conv2d": (lambda N, C, H, W: [[N, C, H, W], [C, C, 3, 3]], lambda x, k: F.conv2d(x, k, padding=1)),
    "exp": (lambda n: [[n]], torch.exp),
    "tanh": (lambda n: [[n]], torch.tanh),
    "gelu": (lambda n: [[n]], F.gelu),
    "gelu_tanh": (lambda n: [[n]], lambda x: F.gelu(x, approximate="tanh")),
    "sigmoid": (lambda n: [[n]], torch.sigmoid),
    "silu": (lambda n: [[n]], F.silu),
    "relu": (lambda n: [[n]], torch.relu),
    "f32_to_f16": (lambda n: [[n]], lambda x: x.to(torch.float16)),
    "add": (lambda n: [[n], [n]], torch.add),
    "mul": (lambda n: [[n], [n]], torch.mul),
    "add_in_place": (lambda n: [[n], [n]], lambda x, y: x.add_(y)),
    "relu_in_place": (lambda n: [[n]], torch.relu_),
    "sum": (lambda n: [[n]], torch.sum),
    "sum_dim0": (lambda r, c: [[r, c]], lambda x: x.sum(0)),
    "sum_dim1": (lambda r, c: [[r, c]], lambda x: x.sum(1)),
    "softmax": (lambda r, c: [[r, c]], lambda x: torch.softmax(x, -1)),
    "log_softmax": (lambda r, c: [[r, c]], lambda x: torch.log_softmax(x, -1)),
    "layer_norm": (lambda r, c: [[r, c], [c], [c]], lambda x, w, b: F.layer_norm(x, w.shape, w, b, 1e-5)),
    "bias_add": (lambda r, c: [[r, c], [c]], torch.add),
    "transposed_copy": (lambda r, c: [[r, c]], lambda x: x.t().contiguous()),
    "cat": (lambda r, c: [[r, c], [r, c]], lambda a, b: torch.cat([a, b], 1)),
}


# of matrices far from singular: what is made of them first, and what is measured
LINALG = {
    "inv": (lambda x: x, torch.linalg.inv),
    "solve": (lambda x: x, lambda x: torch.linalg.solve(x, x)),
    "det": (lambda x: x, torch.linalg.det),
    "cholesky": (lambda x: x @ x.mT, torch.linalg.cholesky),
    "eigh": (lambda x: x + x.mT, lambda x: torch.linalg.eigh(x)[0]),
    "svd": (lambda x: x, lambda x: torch.linalg.svd(x, full_matrices=False)[0]),
}


def op(w):
    """The inputs and the function of them."""
    s = w.sizes
    if w.kind in OPS:
        shapes, function = OPS[w.kind]
        scale = 1e-40 if "denormal" in w.options else 1
        torch.set_flush_denormal(scale == 1)  # as PyTorch is without a word of ours
        return [torch.from_numpy(numbers(shape, i + 1, scale)) for i, shape in enumerate(shapes(*s))], function
    if w.kind == "embedding":
        ids = index(s[2], s[0])
        return [tensor(s[:2], 1)], lambda table: F.embedding(ids, table)
    if w.kind == "index_select":
        columns = index(s[1], s[1])
        return [tensor(s, 1)], lambda x: x.index_select(1, columns)
    if w.kind == "topk":
        return [tensor(s[:2], 1)], lambda x: torch.topk(x, s[2], 1)
    if w.kind in LINALG:
        prepare, function = LINALG[w.kind]
        x = tensor([s[0], s[1], s[1]], 1) + s[1] * torch.eye(s[1])
        return [prepare(x)], function
    if w.kind == "cross_entropy":
        target = index(s[0], s[1])
        return [tensor(s, 1)], lambda x: F.cross_entropy(x, target)
    if w.kind == "randn":
        return [], lambda: torch.randn(s)
    return None


def overhead(w):
    a, b = torch.ones(w.sizes), torch.ones(w.sizes)
    if w.kind == "op":
        a.requires_grad_("grad" in w.options)

        def adds():
            for _ in range(REPEATED):
                a + b
        return adds, REPEATED
    a.requires_grad_(bool(w.options))

    def chain():
        y = a
        for _ in range(REPEATED):
            y = y * b
        return y
    if "backward" not in w.options:
        return chain, REPEATED
    y, gradient = chain(), torch.ones(w.sizes)
    return lambda: torch.autograd.grad(y, a, gradient, retain_graph=True), REPEATED


NETWORKS = ("mlp", "conv_net", "lstm", "gru", "gpt")
PRODUCTS = {"sgemm": torch.float32, "matmul_i64": torch.int64, "matmul_bf16": torch.bfloat16}


def modes(w):
    if w.kind in NETWORKS or w.kind == "program":
        found = program_modes(w) if w.kind == "program" else ["eager"]
        if "sgd" in w.options:
            found.append("fused")
        if w.kind == "conv_net":
            found.append("channels_last")
        if os.environ.get("TG_BENCH_COMPILE", "1") != "0":
            found.append("compile")
        return found
    return ["eager"] if w.kind in PRODUCTS or w.kind in ("op", "chain") or op_known(w) else []


def op_known(w):
    return w.kind in OPS or w.kind in LINALG or w.kind in ("embedding", "index_select", "topk", "cross_entropy", "randn")


def build(w, mode):
    if w.kind == "program":
        return program(w, mode)
    if w.kind in NETWORKS:
        return training(w, mode)
    if w.kind in PRODUCTS:
        return product(w, PRODUCTS[w.kind])
    if w.kind in ("op", "chain"):
        return overhead(w)
    inputs, function = op(w)
    backward, both = "backward" in w.options, "both" in w.options
    if not backward and not both:
        return lambda: function(*inputs)
    for x in inputs:
        x.requires_grad_()
    y = function(*inputs)
    gradient = tensor(list(y.shape), 99)
    if backward:
        return lambda: torch.autograd.grad(y, inputs, gradient, retain_graph=True)
    del y
    return lambda: torch.autograd.grad(function(*inputs), inputs, gradient)


serve("PyTorch %s, %s" % (torch.__version__, torch.backends.cpu.get_cpu_capability()), modes, build)
