"""python.py FOLDER: examples/python/tg.py, over the library that TENSORGRAD_LIBRARY names: values and gradients of expressions, a
training, states and files against PyTorch; memory shared with NumPy, and by DLPack with NumPy and PyTorch; errors, tapes, and that
nothing is left.  What needs NumPy or PyTorch is skipped where this Python has none.  Files go to FOLDER."""
import gc, itertools, os, sys, threading, warnings, weakref, xml.dom.minidom

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples", "python"))
import tg
from checks import check, summary

FOLDER = sys.argv[1]
try:
    import numpy
except ImportError:
    numpy = None
try:
    import torch
except ImportError:
    torch = None

# Each is computed from a [2, 3], b [3] and m [3, 2], by tg and by PyTorch (which says it in the same words, but for the second).
EXPRESSIONS = """a + b
a - 2
3 - a * b
a / (b * b + 1)
2 / (a * a + 1)
a ** 2 + 2 ** b
a @ m
(a @ m).tanh().sum(1)
-abs(a) + b.exp()
a.softmax(1) * b
a.log_softmax(-1)[0]
a[1, 1:] * b[:2]
a[..., None].sum() + a[None].mean()
a[:, ::2].sigmoid()
a[[1, 0, 1]] * b
a.T @ a | a.t() @ a
a.relu().mean((0, 1)) | a.relu().mean((0, 1))
a.max_dim(1)[0] + a.mean(1) | a.max(1)[0] + a.mean(1)
a.reshape((3, 2)) * m
a.square().sum(0).sqrt()
x.cat([a, a * 2], 0)
x.stack([b, b * b], 1)
x.where(a > b, a, a * b)
x.maximum(a, b) - x.minimum(a, b)""".split("\n")
A, B, M = [[0.5, -1.25, 2.0], [1.5, 0.75, -0.5]], [0.25, -1.0, 1.75], [[1.0, -0.5], [0.5, 2.0], [-1.5, 0.25]]


def close(a, b, tolerance=1e-5):
    """Whether two nested lists have the same numbers up to rounding"""
    if isinstance(a, (list, tuple)) or isinstance(b, (list, tuple)):
        return isinstance(a, list) and isinstance(b, list) and len(a) == len(b) and all(close(x, y, tolerance) for x, y in zip(a, b))
    return abs(a - b) <= tolerance * (1 + abs(b))


def expressions():
    for line in EXPRESSIONS:
        ours, theirs = line.split(" | ") if " | " in line else (line, line)
        sides = []
        for library, text in ((tg, ours), (torch, theirs)):
            leaves = [library.tensor(data, requires_grad=True) for data in (A, B, M)]
            value = eval(text, {"x": library}, dict(zip("abm", leaves)))
            (value * value).sum().backward()
            sides.append([value.detach().tolist()] + [leaf.grad.tolist() if leaf.grad is not None else 0.0 for leaf in leaves])
        for what, one, other in zip(("the value", "the gradient of a", "of b", "of m"), *sides):
            check(close(one, other), "%s: %s is %s, in PyTorch %s" % (line, what, one, other))


def gradients_without_torch():
    x = tg.tensor(2.0, requires_grad=True)
    y = x ** 3 + 3 * x
    first = tg.gradients(y, None, x, tg.CREATE_GRAPH)[0]
    check(first.item() == 15 and tg.gradients(first, None, x)[0].item() == 12, "the derivatives of x^3 + 3 x at 2 are 15 and 12")
    y.backward(tg.tensor(2.0))
    check(x.grad.item() == 30, "backward(gradient) multiplies: %s" % x.grad)
    x.grad = None
    check(x.grad is None, "x.grad = None removes it")
    with tg.no_grad():
        check(not (x * 2).requires_grad, "no_grad records nothing")
        x -= 0.5
    check((x * 2).requires_grad and x.item() == 1.5, "after it ops are recorded; x -= 0.5 wrote to x")
    check(not tg.no_grad()(lambda: x * 2)().requires_grad and (x * 2).requires_grad, "a function in which nothing is recorded")
    try:
        with tg.no_grad():
            raise KeyError
    except KeyError:
        check((x * 2).requires_grad, "an exception ends no_grad, too, and goes on")
    t = tg.tensor([[1, 2], [3, 4]])
    check(t.dtype == "i64" and t.shape == (2, 2) and len(t) == 2 and int(t[1, 0]) == 3, "whole numbers are i64")
    t[0] = 7
    t[:, 1] = [8, 9]
    t[tg.tensor([True, False])] = 5
    check(t.tolist() == [[5, 5], [3, 9]], "writes by index: %s" % t.tolist())
    check([row.tolist() for row in t] == t.tolist() and bool((t == t).all()), "rows by iteration; t == t")
    check((~(t > 6)).tolist() == [[True, True], [True, False]], "~ of bool")
    check(tg.tensor([]).shape == (0,) and tg.zeros((0, 2)).tolist() == [] and tg.zeros((2, 0)).tolist() == [[], []], "no elements")
    pieces = tg.arange(0, 5, 1).split(2, 0)
    check([p.tolist() for p in pieces] == [[0, 1], [2, 3], [4]], "a function that fills a list: split")
    check(tg.tensor([1.5, 2.0], "f16").tolist() == [1.5, 2.0] and tg.tensor(3).item() == 3, "f16, numbers")
    check(abs(tg.tensor([3.0, 4.0]).norm().item() - 5) < 1e-6 and "tensor([3., 4.])" in repr(tg.tensor([3.0, 4.0])), "norm, repr")


def refuses(kind, part, action):
    try:
        action()
        check(False, "no error: " + part)
    except kind as error:
        check(part in str(error), "the error should have %r: %s" % (part, error))


def errors():
    a = tg.ones((2, 3))
    refuses(tg.Error, "mat1 and mat2 shapes cannot be multiplied (2x3 and 2x3)", lambda: a @ a)
    refuses(tg.Error, "Dimension out of range", lambda: a.softmax(5))
    refuses(tg.Error, "does not require grad", lambda: a.sum().backward())
    refuses(tg.Error, "no_such_file", lambda: tg.safetensors_load(os.path.join(FOLDER, "no_such_file")))
    refuses(TypeError, "the argument dim is missing", lambda: a.softmax())
    refuses(TypeError, "is not a whole number", lambda: a.softmax(1.5))
    refuses(TypeError, "is not a Tensor", lambda: tg.matmul(a, 3))
    refuses(TypeError, "sequences of length 2", lambda: tg.tensor([[1, 2], [3]]))
    refuses(TypeError, "is not a dtype", lambda: a.to_dtype("f8"))
    refuses(AttributeError, "tg_no_such_op", lambda: a.no_such_op)
    for hidden in ("release", "param", "module_free", "safetensors_parse", "from_on", "scope_begin", "clear_error", "wrap"):
        refuses(AttributeError, "there is no tg_" + hidden, lambda: getattr(tg, hidden))
    refuses(AttributeError, "tg_nn.NoLayer", lambda: tg.nn.NoLayer)
    try:
        a @ a
    except tg.Error as error:
        check(error.status == "ERR_SHAPE", "the status of a wrong shape is " + error.status)
    check((a + a).tolist() == [[2.0] * 3] * 2, "after an error ops work")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        w = tg.tensor(1.0, requires_grad=True)
        check((w * 2).grad is None and len(told) == 1 and "not a leaf" in str(told[0].message), "a warning of the library is Python's")


class Net(tg.nn.Module):
    """A module whose forward is Python's"""

    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = tg.nn.Linear(3, 8), tg.nn.Linear(8, 2)
        self.scale = tg.tensor([1.0, 2.0], requires_grad=True)

    def forward(self, x):
        return self.fc2(self.fc1(x).gelu()) * self.scale


def modules():
    net = Net()
    names = ["scale", "fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]
    check(list(net.named_parameters()) == names and sorted(net.state_dict()) == sorted(names), "names: %s" % list(net.state_dict()))
    x = tg.tensor(A)
    net(x).sum().backward()
    check(all(p.grad is not None for p in net.parameters()), "every parameter has a gradient")
    path = os.path.join(FOLDER, "net.safetensors")
    net.save(path)
    other = Net()
    check(not tg.allclose(other(x), net(x), 1e-5, 1e-8), "another net has other numbers")
    other.load(path)
    check(other(x).tolist() == net(x).tolist(), "a net loads what another has saved")
    with open(path, "rb") as file:
        other = Net()
        other.load_from(file.read())
    check(other(x).tolist() == net(x).tolist(), "a net loads bytes")
    third = Net()
    third.load_state_dict(tg.safetensors_load(path))
    check(third(x).tolist() == net(x).tolist(), "load_state_dict, from a file as a dictionary")
    cell = tg.nn.LSTM(3, 4)
    y, h, c = cell(x.view((2, 1, 3)), outputs=3)
    check(y.shape == (2, 1, 4) and h.shape == c.shape == (1, 1, 4), "a layer with three outputs")
    check("weight" in net.export_c("net") and "Net(" in repr(net), "functions that write to a FILE are texts")
    norm = tg.nn.Sequential(tg.nn.BatchNorm1d(3), tg.nn.Dropout(0.5))
    check(norm.eval() is norm and not norm.is_training() and norm(x).shape == (2, 3) and norm.train().is_training(), "eval and train")
    copy = norm.eval().clone()
    check(copy(x).tolist() == norm(x).tolist() and copy[0].weight is not norm[0].weight, "a copy of a module")
    check(norm[0].weight.shape == (3,) and "BatchNorm(3" in repr(norm), "members by index and name: %r" % norm)


def training():
    """Twenty steps from the same weights have the same losses in PyTorch, with three optimizers."""
    for name, options in (("SGD", dict(lr=0.1, momentum=0.9)), ("Adam", dict(lr=0.05)), ("AdamW", dict(lr=0.05, weight_decay=0.1))):
        torch.manual_seed(1)
        theirs = torch.nn.Sequential(torch.nn.Linear(3, 16), torch.nn.Tanh(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4))
        ours = tg.nn.Sequential(tg.nn.Linear(3, 16), tg.nn.Tanh(), tg.nn.LayerNorm(16), tg.nn.Linear(16, 4))
        ours.load_state_dict({key: tg.tensor(value.numpy()) for key, value in theirs.state_dict().items()})
        x, y = torch.randn(32, 3), torch.randint(4, (32,))
        losses = []
        for library, net, inputs, targets in ((torch, theirs, x, y), (tg, ours, tg.tensor(x.numpy()), tg.tensor(y.numpy()))):
            optimizer = getattr(library.optim, name)(net.parameters(), **options)
            cross_entropy = torch.nn.functional.cross_entropy if library is torch else tg.cross_entropy
            losses.append([])
            for _ in range(20):
                loss = cross_entropy(net(inputs), targets)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses[-1].append(loss.item())
        worst = max(abs(a - b) for a, b in zip(*losses))
        check(worst < 1e-5 and losses[1][19] < losses[1][0], "%s: losses differ by %g: %s %s" % (name, worst, *losses))
        print("      %s: the losses of 20 steps differ from PyTorch's by at most %.1e" % (name, worst))


def shared_memory():
    a = tg.tensor([[1.0, 2.0], [3.0, 4.0]])
    view = a.numpy()
    view[0, 1] = 20
    check(a.tolist() == [[1.0, 20.0], [3.0, 4.0]], "a write to the array is one to the tensor")
    a[1, 0] = 30
    check(view[1, 0] == 30 and not view.flags.owndata, "a write to the tensor is one to the array")
    turned = a.T.numpy()
    check(turned.strides == (4, 8) and turned.tolist() == [[1, 30], [20, 4]], "a view has its strides")
    del a
    gc.collect()
    check(view.tolist() == [[1, 20], [30, 4]], "the array keeps the memory")
    array = numpy.arange(6, dtype="f8").reshape(2, 3)
    t = tg.from_numpy(array)
    array[0, 0] = 100
    check(t[0, 0].item() == 100 and t.dtype == "f64" and tg.tensor(array)[0, 0].item() == 100, "from_numpy shares, tensor copies")
    array = weakref.ref(array)
    check(t.tolist() == array().tolist(), "the tensor keeps the array")
    del t
    gc.collect()
    check(array() is None, "an array is let go with its tensor")
    for turned in (numpy.arange(6).reshape(2, 3).T, numpy.arange(6)[::2]):
        t = tg.from_numpy(turned)
        turned[1] = 9
        check(t.tolist() == turned.tolist() and tg.tensor(turned).tolist() == turned.tolist(), "other strides: %s" % t)
    backwards = numpy.arange(6)[::-1]
    refuses(tg.Error, "negative strides", lambda: tg.from_numpy(backwards))
    check(tg.tensor(backwards).tolist() == backwards.tolist(), "tensor copies what from_numpy refuses")
    for dtype in ("f4", "f8", "f2", "i4", "i8", "u1", "?"):
        values = numpy.array([[0, 1], [1, 0]], dtype).T
        check((tg.tensor(values).numpy() == values).all() and tg.tensor(values).numpy().dtype == values.dtype, "dtype " + dtype)
    for wrong in (tg.ones(2).set_requires_grad(True), tg.ones(2).to_dtype("bf16")):
        try:
            wrong.numpy()
            check(False, "numpy() of %r" % wrong)
        except TypeError:
            check(True, "")


def tensors():
    gc.collect()
    return tg.stats().tensors


def capsules():
    """What a capsule does in any hands: here those of tg alone."""
    t, versions = tg.tensor([[1.0, 2.0], [3.0, 4.0]]), dict(max_version=(1, 0))
    check(t.__dlpack_device__() == (1, 0) and '"dltensor"' in repr(t.__dlpack__()), "a capsule for those who know no versions")
    check('"dltensor_versioned"' in repr(t.__dlpack__(**versions)) and '"dltensor"' in repr(t.__dlpack__(max_version=(0, 8))), "a version")
    for options, taken in ({}, "used_dltensor"), (versions, "used_dltensor_versioned"):
        before = tensors()
        capsule = t.T.__dlpack__(**options)
        check(tensors() == before + 1, "a capsule keeps the memory")
        del capsule
        check(tensors() == before, "a capsule that nobody takes gives it back")
        capsule = t.T.__dlpack__(**options)
        other = tg.from_dlpack(capsule)
        check('"%s"' % taken in repr(capsule), "the name says that it was taken: %r" % capsule)
        refuses(TypeError, "a capsule to take", lambda: tg.from_dlpack(capsule))
        other[0, 1] = 30
        check(t.tolist() == [[1, 2], [30, 4]] and other.shape == (2, 2), "a write to one is one to the other")
        t[1, 0] = 3
        check(other.tolist() == [[1, 3], [2, 4]], "and the other way round")
        del other, capsule
        check(tensors() == before, "the tensor gave the memory back")
    copy = tg.from_dlpack(t.__dlpack__(copy=True)), tg.from_dlpack(t, copy=True)
    check(tg.lib.tg_data(tg.from_dlpack(t, device="cpu")) == tg.lib.tg_data(t), "a move to where it is moves nothing")
    t.zero_()
    check([x.tolist() for x in copy] == [[[1, 2], [3, 4]]] * 2, "copies keep what they had")
    kept = [t.__dlpack__()]
    before, thread = tensors(), threading.Thread(target=kept.clear)
    thread.start()
    thread.join()
    check(tensors() == before - 1, "a capsule that ends in another thread")
    check(tg.lib.tg_data(tg.from_dlpack(t.__dlpack__(dl_device=(1, 0)))) == tg.lib.tg_data(t), "asked to be where it is")
    refuses(BufferError, "cannot be used on device (2, 0)", lambda: t.__dlpack__(dl_device=(2, 0)))
    refuses(BufferError, "Can't export tensors that require gradient", lambda: tg.ones(2).set_requires_grad(True).__dlpack__())
    refuses(TypeError, "3 is not an array", lambda: tg.from_dlpack(3))
    path = os.path.join(FOLDER, "fixed.safetensors")
    tg.safetensors_save(path, {"x": tg.ones(3)})
    fixed = tg.safetensors_open(path)["x"]
    refuses(BufferError, "is read-only", fixed.__dlpack__)
    refuses(tg.Error, "is read-only", lambda: tg.from_dlpack(fixed).zero_())


class Older:
    """An array as libraries had it before DLPack had versions"""

    def __init__(self, array):
        self.array = array

    def __dlpack__(self, stream=None):
        return self.array.__dlpack__()


def dlpack(make, take, dtypes, lists, refused):
    """Memory shared with a library: make(list, dtype) is an array of it, take(x) one on the memory of x, lists(x) its list."""
    for name in dtypes:
        rows = [[0, 1, 1], [1, 0, 1]]
        theirs = make(rows, name)
        ours = tg.from_dlpack(theirs)
        back = take(ours)
        check(ours.tolist() == lists(theirs) == lists(back) and back.dtype == theirs.dtype, "%s goes round: %r" % (name, ours))
        turned, part = tg.from_dlpack(theirs.T), take(ours[:, ::2])
        check(turned.tolist() == lists(theirs.T) and lists(part) == ours[:, ::2].tolist(), "%s with other strides" % name)
        theirs[0, 0] = 1
        check(ours[0, 0].item() == turned[0, 0].item() == 1 and lists(back)[0][0] == 1, "%s: a write there is seen here" % name)
        ours[1, 1] = 1
        check(lists(theirs)[1][1] == 1 and turned[1, 1].item() == 1, "%s: a write here is seen there" % name)
    check(tg.from_dlpack(make(2.5, "float64")).item() == 2.5 and lists(take(tg.tensor(2.5))) == 2.5, "0-dim")
    check(tg.from_dlpack(make([[], []], "float32")).shape == (2, 0) and tuple(take(tg.zeros((0, 3))).shape) == (0, 3), "no elements")
    check(tg.from_dlpack(Older(make([1, 2], "int64"))).tolist() == [1, 2], "an older library")
    refuses(BufferError, "require", lambda: take(tg.ones(2).set_requires_grad(True)))
    for name, ours in refused:
        refuses(tg.Error, "there is no dtype " + ours, lambda: tg.from_dlpack(make([1, 2], name)))


def dlpack_lifetimes(make, take, lists):
    """The memory lives until neither side uses it."""
    before = tensors()
    ours = tg.tensor([1.0, 2.0, 3.0])
    kept = [take(ours[1:])]
    del ours
    check(tensors() == before + 1 and lists(kept[0]) == [2, 3], "their array keeps our memory")
    kept.clear()
    check(tensors() == before, "and gives it back")
    kept = [take(tg.ones(1000))]
    thread = threading.Thread(target=kept.clear)
    thread.start()
    thread.join()
    check(tensors() == before, "in another thread, too")
    theirs = make([1, 2, 3], "float32")
    ours = tg.from_dlpack(theirs)
    del theirs
    gc.collect()
    check((ours * ours).sum().item() == 14, "our tensor keeps their memory")
    w = tg.tensor([1.0, 1.0, 1.0], requires_grad=True)
    (ours * w).sum().backward()
    check(lists(take(w.grad)) == [1, 2, 3], "a gradient")


def dlpack_numpy():
    names = ["float32", "float64", "float16", "int32", "int64", "uint8", "int8", "int16"]
    if numpy.lib.NumpyVersion(numpy.__version__) >= "1.26.0": # older ones do not hand out bool
        names.append("bool")
    dlpack(numpy.array, numpy.from_dlpack, names, numpy.ndarray.tolist,
           (("uint16", "u16"), ("complex64", "complex64")))
    dlpack_lifetimes(numpy.array, numpy.from_dlpack, numpy.ndarray.tolist)
    array = numpy.arange(3.0)
    ours, array = tg.from_dlpack(array[1:]), weakref.ref(array)
    check(ours.tolist() == [1, 2] and array() is not None, "the tensor keeps NumPy's array")
    del ours
    gc.collect()
    check(array() is None, "which ends with it")
    fixed = numpy.ones(3)
    fixed.flags.writeable = False
    if numpy.lib.NumpyVersion(numpy.__version__) >= "2.1.0":
        refuses(tg.Error, "is read-only", lambda: tg.from_dlpack(fixed).zero_())
        check(not numpy.from_dlpack(tg.from_dlpack(fixed)).flags.writeable, "NumPy's array is read-only, too")
        check(numpy.from_dlpack(tg.ones(2)).flags.writeable, "that of others is not")
    else:
        refuses(BufferError, "readonly", lambda: tg.from_dlpack(fixed))


def dlpack_torch():
    names = ("float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "int8", "int16", "bool")
    def make(data, name):
        return torch.tensor(data, dtype=getattr(torch, name))
    dlpack(make, torch.from_dlpack, names, torch.Tensor.tolist, (("uint16", "u16"), ("complex64", "complex64")))
    dlpack_lifetimes(make, torch.from_dlpack, torch.Tensor.tolist)
    theirs = {name: torch.promote_types(*(getattr(torch, n) for n in name)) for name in itertools.product(names, names)}
    for (a, b), wanted in theirs.items():
        check(tg.promote_types(a, b) == tg.promote_types(str(wanted)[6:], "bool"), "%s with %s" % (a, b))
    to, take = torch.utils.dlpack.to_dlpack, torch.utils.dlpack.from_dlpack
    check(tg.from_dlpack(to(torch.arange(3))).tolist() == [0, 1, 2], "a capsule of PyTorch")
    check(take(tg.arange(0, 3, 1).__dlpack__()).tolist() == [0, 1, 2], "a capsule for PyTorch")
    row = torch.arange(3.0).expand(4, 3)
    ours = tg.from_dlpack(row)
    check(ours.tolist() == row.tolist() and ours.stride(0) == 0, "expanded")
    refuses(tg.Error, "more than one element of the written-to tensor", lambda: ours.zero_())
    ours = tg.arange(0, 3, 1).expand((4, 3))
    check(torch.from_dlpack(ours).stride() == (0, 1) and torch.from_dlpack(ours).tolist() == ours.tolist(), "expanded, for PyTorch")
    refuses(BufferError, "require gradient", lambda: tg.from_dlpack(torch.ones(2, requires_grad=True)))
    array = numpy.ones(3) if numpy else None
    if numpy: # which can tell when PyTorch lets go
        ours, array = tg.from_dlpack(torch.from_numpy(array)), weakref.ref(array)
        check(array() is not None and ours.tolist() == [1] * 3, "the tensor keeps PyTorch's")
        del ours
        gc.collect()
        check(array() is None, "which ends with it")


def tapes():
    w = tg.tensor([0.5, -1.0], requires_grad=True)
    w.name = "w"
    loss = (w * w).sum()
    svg = loss.tape()._repr_svg_()
    root = xml.dom.minidom.parseString(svg).documentElement
    texts = [text.firstChild.data for text in root.getElementsByTagName("text") if text.firstChild and text.firstChild.nodeType == 3]
    check(root.tagName == "svg" and "0 leaf w" in texts, "the drawing has a box for w: %s" % texts)
    check("2 ops" in repr(loss.tape()) and tg.tape_html(loss).startswith("<!"), "table and page")


def everything():
    for part in (gradients_without_torch, errors, modules, tapes, capsules):
        part()
    with_numpy, with_torch = (shared_memory, dlpack_numpy), (dlpack_torch, expressions, training)
    for needed, name, part in [(numpy, "NumPy", part) for part in with_numpy] + [(torch, "PyTorch", part) for part in with_torch]:
        if needed:
            part()
        else:
            print("skipped: %s: no %s" % (part.__name__, name))


before = tg.stats()
everything()
gc.collect()
after = tg.stats()
for count in ("tensors", "nodes", "modules", "bytes", "saved"):
    check(getattr(before, count) == getattr(after, count), "%s: %d before, %d after" % (count, getattr(before, count), getattr(after, count)))
sys.exit(summary())
