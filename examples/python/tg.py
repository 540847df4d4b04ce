"""tg.py: tensorgrad from Python, by ctypes alone.  The shared library is built once, in the root of the repository:

    cc -O2 -shared -fPIC -DTENSORGRAD_IMPLEMENTATION -x c tensorgrad.h -o libtensorgrad.so -lm

The functions are made from the declarations in tensorgrad.h when this file is imported, so the comments there are the manual:
tg_softmax(t, dim) is tg.softmax(t, dim) and t.softmax(dim), tg_nn_linear tg.nn.Linear, tg_adamw tg.optim.AdamW.  Of functions
that differ in their arguments the first that takes them is called: t.sum(1) is tg_sum_dim, t.add(2) tg_add_scalar.  The number
of a list is left out; what C stores behind pointers follows the result; what it would write to a FILE is a text.  TENSORGRAD_H
and TENSORGRAD_LIBRARY name a header and a library elsewhere.  Other libraries share memory by DLPack.  Left out are functions
that call back, and scopes: a tensor ends with its last reference in Python, which the thread that made it must drop."""
import contextlib, ctypes as c, os, re, warnings
HEADER = os.environ.get("TENSORGRAD_H") or os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../tensorgrad.h")
LIBRARY = os.environ.get("TENSORGRAD_LIBRARY", os.path.join(os.path.dirname(HEADER), "libtensorgrad.so"))
if not os.path.exists(LIBRARY):
    raise ImportError("no %s: build it by the line at the head of tg.py, or set TENSORGRAD_LIBRARY" % LIBRARY)
lib, libc = c.CDLL(LIBRARY), c.CDLL(None)
libc.tmpfile.restype = c.c_void_p
# Each dtype: its name, that of NumPy and the code in an __array_interface__, its type in C; in the order of tg_dtype
DTYPES = [("f32", "float32", "f4", c.c_float), ("f64", "float64", "f8", c.c_double), ("bf16", "bfloat16", None, None),
          ("f16", "float16", "f2", None), ("i32", "int32", "i4", c.c_int32), ("i64", "int64", "i8", c.c_int64),
          ("u8", "uint8", "u1", c.c_uint8), ("i8", "int8", "i1", c.c_int8), ("i16", "int16", "i2", c.c_int16),
          ("bool", "bool", "b1", c.c_bool)]
# The arguments that may be left out, by their names in the header, with PyTorch's defaults
DEFAULTS = dict(keepdim=False, bias=True, affine=True, eps=1e-5, momentum=0.1, stride=1, padding=0, dilation=1, groups=1,
                output_padding=0, correction=1, descending=False, largest=True, layers=1, strict=True, flags=0, on=True,
                accumulate=False, tanh_approx=False, reduction=1, batch_first=False, dropout=0, bidirectional=False)
# What this file does itself, as references, scopes and errors, and what would use the memory of a text after its end
HIDDEN = ("scope_.*|keep|retain|release.*|drop|share|param|dict_.*|.*_list|meshgrid|to_all.*|thread_end|shutdown|.*error.*"
          "|.*_free|module_(retain|child|param|buffer.*)|nn_(list|sequential)|from|from_on|.*_parse")
TAKEN = "base|child|layer|norm" # modules that C takes over: it gets a reference of its own
class Error(RuntimeError, BufferError): # the latter is DLPack's
    """What the library refused, in its own words; status names its tg_status: "ERR_SHAPE" """
struct = lambda *fields: type("Struct", (c.Structure,), {"_fields_": fields})
Shape, Device = struct(("ndim", c.c_int), ("dim", c.c_int64 * 8)), struct(("type", c.c_int), ("index", c.c_int))
TYPES = {"double": c.c_double, "int": c.c_int, "int64_t": c.c_int64, "size_t": c.c_size_t, "bool": c.c_bool,
         "tg_dtype": c.c_int, "uint64_t": c.c_uint64, "tg_status": c.c_int, "tg_shape": Shape, "tg_device": Device,
         "void": None, "tg_mark": struct(("serial", c.c_uint64)), "const char *": c.c_char_p,
         **dict.fromkeys(("tg_tensor *", "tg_optim *", "tg_dict *", "tg_module *"), c.c_void_p)}
FILE = object() # stands for a FILE * until one is opened
def text_of(file):
    libc.fflush(file)
    text = os.pread(libc.fileno(file), os.fstat(libc.fileno(file)).st_size, 0)
    return libc.fclose(file) or text.decode()

class Owned:
    """What C made, with one reference, which is given up when this object is collected"""
    _as_parameter_ = None # ctypes passes it to C for the object
    __init__ = lambda self, handle: self.__dict__.update(_as_parameter_=handle)
    @classmethod
    def of(cls, handle, new=False):
        """What has other owners, if it is not new, with one more reference; None for NULL"""
        self = cls.__new__(cls) if handle else None
        if handle:
            Owned.__init__(self, handle if new else cls.retain(handle))
        return self
    def __del__(self):
        if self._as_parameter_:
            self.free(self._as_parameter_)
def check(_=None):
    """Raises the error that the library has recorded, by the call just made."""
    if not lib.tg_ok():
        error = Error(lib.tg_error_message().decode())
        error.status = next(name for name, value in constants.items() if "ERR_" in name and value == lib.tg_error_code())
        lib.tg_clear_error()
        raise error
def wrong(value, wanted):
    raise TypeError("%r is not %s" % (value, wanted))
an = lambda kind: lambda value: value if isinstance(value, kind) else wrong(value, "a " + kind.__name__)
def dtype_of(name):
    """The number of a dtype: of "f32", "float32" or numpy.float32"""
    name = getattr(name, "__name__", None) or str(name)
    found = [number for number, names in enumerate(DTYPES) if name in names[:2]]
    return found[0] if found else wrong(name, "a dtype (%s)" % ", ".join(names[0] for names in DTYPES))
def device_of(name):
    device = Device()
    check(lib.tg_device_parse(str(name).encode(), c.byref(device)))
    return device
def shape_of(sizes):
    sizes = [sizes] if hasattr(sizes, "__index__") else list(sizes)
    return Shape(len(sizes), (c.c_int64 * 8)(*sizes)) if len(sizes) <= 8 else wrong(sizes, "a shape of at most 8 dims")
def read_header():
    """The functions, structs of numbers and constants of the header"""
    with open(HEADER, encoding="utf-8") as file:
        text = file.read().split("#endif /* TENSORGRAD_H */")[0]
    code = re.sub(r"\s+", " ", re.sub(r"/\*.*?\*/", " ", text, flags=re.S))
    functions, constants = {}, {}
    for body, name in re.findall(r"typedef struct(?: \w+)? \{ ([^}]*)\} (tg_\w+);", code):
        fields = re.findall(r"(double|bool|int64_t|int) ([\w, ]+);", re.split(r"[\w ]+\*", body)[0]) # those before a pointer
        TYPES.setdefault(name, struct(*[(word, TYPES[kind]) for kind, words in fields for word in words.split(", ")]))
    for result, name, arguments in re.findall(r"TG_API ([\w *]+?[ *])tg_(\w+)\(([^;{]*)\);", code):
        pairs = re.findall(r"([^,]*?)(\w+)(?:,|$)", "" if arguments == "void" else arguments)
        functions[name] = Function(name, result.strip(), [(kind.strip(), word) for kind, word in pairs])
    for body in re.findall(r"enum \{ (TG_[^}]*)\}", code):
        for value, (name, given) in enumerate(re.findall(r"TG_(\w+)(?: = (-?\d+))?", body)):
            last = constants[name] = int(given) if given else last + 1 if value else 0
    return functions, constants
class Function:
    """A function of the library as one of Python"""
    def __init__(self, name, result, arguments):
        self.name, self.result, self.arguments = name, result, list(zip(arguments, arguments[1:] + [("", "")]))
        self.c = getattr(lib, "tg_" + name)
        self.c.restype, self.c.argtypes = TYPES.get(result, c.c_void_p), [TYPES.get(kind, c.c_void_p) for kind, _ in arguments]
        known = all(kind in CONVERT or kind in LISTS or kind in ("FILE *", "tg_tensor **") for kind, _ in arguments)
        self.usable = result in TYPES and known and not re.fullmatch(HIDDEN, name)
    def bind(self, given, named):
        """The arguments as C takes them, and where it stores results; TypeError if they do not fit"""
        given, named, arguments, values, bound, out = list(given), dict(named), iter(self.arguments), {}, [], []
        for (kind, word), (_, next_word) in arguments:
            if kind == "FILE *":
                bound.append(FILE)
            elif kind == "tg_tensor **": # room for results: how many, the next argument tells
                several = {"max": max([1, *values["t"].shape]) if "t" in values else 1, "n_out": named.pop("outputs", 1),
                           "flags": len(values.get("inputs", ()))}.get(next_word)
                out.append(((c.c_void_p * (several or 1))(), next_word if several else "one"))
                bound.append(out[-1][0])
                if next_word in ("max", "n_out"):
                    bound.append(several)
                    next(arguments)
            else:
                default = None if word == "bias" and kind == "tg_tensor *" else DEFAULTS.get(word, self)
                default = values["kernel"] if word == "stride" and "pool" in self.name and "kernel" in values else default
                value = values[word] = given.pop(0) if given else named.pop(word, default)
                if value is self:
                    raise TypeError("%s: the argument %s is missing" % (self.name, word))
                if kind in LISTS and value is not None:
                    values[word] = value = [value] if isinstance(value, Owned) else list(value)
                    handles = [x if x is None else an(LISTS[kind])(x)._as_parameter_ for x in value]
                    bound.append((c.c_void_p * max(1, len(value)))(*handles))
                else:
                    bound.append(value if value is None and "*" in kind else CONVERT[kind](value))
                if kind in LISTS and next_word in ("n", "m") or kind == "const void *" and next_word == "bytes":
                    bound.append(len(value or ()))
                    next(arguments)
        if given or named:
            raise TypeError("%s: there is no argument for %s" % (self.name, [*given, *named]))
        return bound, out
    def run(self, bound, out, given):
        """Calls C.  A tensor that C makes belongs to a scope, which ends here; the reference of Python remains."""
        files = [c.c_void_p(libc.tmpfile()) for x in bound if x is FILE]
        for ((kind, word), _), x in zip(self.arguments, bound):
            if kind == "tg_module *" and re.fullmatch(TAKEN, word) and x is not None:
                lib.tg_module_retain(x)
        scope = lib.tg_scope_begin() if out or self.result == "tg_tensor *" else None # grad modes would end with one
        try:
            value = self.c(*[files[0] if x is FILE else x for x in bound])
            check()
            same = [x for x in given if isinstance(x, Owned) and x._as_parameter_ == value]
            result = same[0] if value and same else RESULTS.get(self.result, lambda value, name: value)(value, self.name)
            made = [[Tensor.of(handle) for handle in room[: value if count == "max" else None]] for room, count in out]
        finally:
            if scope:
                lib.tg_scope_end(scope)
            texts = [text_of(file) for file in files]
        results = [tensors[0] if count == "one" else tensors for tensors, (_, count) in zip(made, out)] + texts
        if self.result == "tg_status" or out and out[0][1] == "max":
            return results[0] if results else None
        return (result, *results) if results else result
    def __call__(self, *given, **named):
        return self.run(*self.bind(given, named), given)
def function_of(name, *first):
    """tg_NAME with the given first arguments; of its forms with other arguments the first that takes them"""
    tail = "_" if name.endswith("_") else ""
    names = [name[: len(name) - len(tail)] + form + tail for form in ("", "_scalar", "_dim", "_dims", "_ex")]
    forms = [functions[name] for name in names if name in functions and functions[name].usable]
    if name.startswith("__") or not forms:
        raise AttributeError("there is no tg_%s for Python" % name)
    def call(*given, **named):
        given, reasons = first + given, []
        for form in forms:
            try:
                bound = form.bind(given, named)
            except TypeError as reason:
                reasons.append(str(reason))
                continue
            return form.run(*bound, given)
        raise TypeError("; ".join(reasons))
    return call
method = lambda name: lambda self, *other: function_of(name, self)(*other)

class Tensor(Owned):
    """A tensor.  Every function of the library whose first argument is one is a method."""
    retain, free = lib.tg_retain, lib.tg_release
    shape, dtype, device, ndim, is_leaf, requires_grad, T = (
        property(method(name)) for name in ("shape_of", "dtype_of", "device_of", "ndim", "is_leaf", "requires_grad", "t"))
    grad, name = property(method("grad"), method("set_grad")), property(method("name"), method("set_name"))
    __neg__, __abs__, __matmul__, __rsub__ = method("neg"), method("abs"), method("matmul"), method("rsub_scalar")
    __rtruediv__, __rpow__ = lambda self, other: tensor(other).div(self), lambda self, other: tensor(other).pow(self)
    __bool__, __float__, __int__ = (lambda self, kind=kind: kind(self.item()) for kind in (bool, float, int))
    __iter__ = lambda self: (self[i] for i in range(len(self)))
    __len__ = lambda self: self.shape[0] if self.ndim else wrong(self, "a list: it has no dim")
    __repr__ = lambda self: functions["fprint"](self).rstrip("\n")
    __getattr__ = lambda self, name: function_of(name, self)
    __invert__ = lambda self: self.logical_not() if self.dtype == "bool" else wrong(self, "of dtype bool")
    __hash__, tape = object.__hash__, lambda self: Tape(self)
    def item(self):
        value = functions["item" if lib.tg_is_floating_point(lib.tg_dtype_of(self)) else "item_i64"](self)
        return bool(value) if self.dtype == "bool" else value
    def backward(self, gradient=None, retain_graph=False, create_graph=False):
        functions["backward_ex"](self, [gradient], retain_graph * RETAIN_GRAPH | create_graph * CREATE_GRAPH)
    @property
    def __array_interface__(self):
        """For NumPy: where the elements are.  The array that is made of it keeps this tensor."""
        code, size = DTYPES[lib.tg_dtype_of(self)][2], lib.tg_dtype_size(lib.tg_dtype_of(self))
        if self.requires_grad or self.device != "cpu" or not code:
            raise TypeError("for NumPy a tensor must not require grad (see detach), be on a GPU (cpu) or bf16 (to_dtype)")
        strides = tuple(lib.tg_stride(self, dim) * size for dim in range(self.ndim))
        return {"version": 3, "typestr": ("<" if size > 1 else "|") + code, "shape": self.shape, "strides": strides,
                "data": (lib.tg_data(self) or 1, False)}
    __dlpack_device__ = lambda self: (lib.tg_device_of(self).type + 1, lib.tg_device_of(self).index) # DLPack counts from 1
    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        """A capsule for another library.  On a GPU all streams have done their work by then, so that any may go on."""
        moves = dl_device not in (None, self.__dlpack_device__())
        if moves and (copy is False or dl_device != (1, 0)): # it goes to the CPU, or nowhere
            raise BufferError("a tensor on %s cannot be used on device %s of DLPack" % (self.device, dl_device))
        name = b"dltensor_versioned" if max_version and max_version[0] >= 1 else b"dltensor"
        managed = getattr(lib, "tg_to_" + CAPSULES[name][1])(self.cpu() if moves else self.clone() if copy else self)
        check()
        return capsule_new(managed, name, c.cast(capsule_end, c.c_void_p))
    def numpy(self):
        """The same memory as a NumPy array, which keeps it.  After a write to the array call touch_()."""
        return __import__("numpy").asarray(self if self.requires_grad else self.detach()) # a move in place leaves it the memory
    def tolist(self):
        kind = DTYPES[lib.tg_dtype_of(self)][3]
        if not kind:
            return self.detach().to_dtype("f32").tolist()
        items = (kind * self.numel())()
        check(lib.tg_copy_out(self, items, c.sizeof(items)))
        for size in reversed(self.shape[1:]):
            items = [items[i * size : (i + 1) * size] for i in range(len(items) // size if size else self.shape[0])]
        return list(items) if self.ndim else items[0]
    def __getitem__(self, index):
        index = list(index) if isinstance(index, tuple) else [index]
        if any(isinstance(i, (list, Tensor)) for i in index):
            return functions["index"](self, indices(index))
        dots = [k for k, i in enumerate(index) if i is Ellipsis]
        if dots:
            index[dots[0] : dots[0] + 1] = [slice(None)] * (self.ndim + 1 - sum(i is not None for i in index))
        view, dim = self, 0
        for i in index:
            if i is None:
                view = view.unsqueeze(dim)
            elif isinstance(i, slice):
                stop, step = 2**63 - 1 if i.stop is None else i.stop, 1 if i.step is None else i.step
                view = view.slice(dim, i.start or 0, stop, step)
            else:
                view, dim = view.select(dim, i), dim - 1
            dim += 1
        return view
    def __setitem__(self, index, value):
        index = index if isinstance(index, tuple) else (index,)
        value = value if isinstance(value, Tensor) else tensor(value).to_dtype(self.dtype)
        if any(isinstance(i, (list, Tensor)) for i in index):
            functions["index_put_"](self, indices(index), value)
        else:
            self[index].copy_(value)
def indices(parts): # for tg_index, where NULL is a whole dim
    return [i if isinstance(i, Tensor) else tensor(i) if not isinstance(i, slice) or i != slice(None) else None for i in parts]
operand = lambda x: isinstance(x, (Tensor, int, float))
operator = lambda name: lambda self, other: method(name)(self, other) if operand(other) else NotImplemented
for word in ("add", "sub", "mul", "truediv", "pow", "eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Tensor, "__%s__" % word, operator(word.replace("true", "")))
for word in ("add", "sub", "mul", "truediv"):
    setattr(Tensor, "__i%s__" % word, operator(word.replace("true", "") + "_"))
Tensor.__radd__, Tensor.__rmul__ = Tensor.__add__, Tensor.__mul__

def tensor(data, dtype=None, requires_grad=False):
    """A new tensor: of a number, nested lists (floats: the default dtype), or a copy of a NumPy array, whose dtype it has"""
    if hasattr(data, "__array_interface__"):
        made = functions["from"](data.tobytes(), data.shape, data.dtype)
    else:
        shape, items = [], [data]
        while items and isinstance(items[0], (list, tuple)):
            shape.append(len(items[0]))
            if any(not isinstance(row, (list, tuple)) or len(row) != shape[-1] for row in items):
                raise TypeError("expected sequences of length %d at dim %d" % (shape[-1], len(shape) - 1))
            items = [x for row in items for x in row]
        kinds = {type(x) for x in items}
        name = "bool" if kinds == {bool} else "i64" if kinds and kinds <= {int, bool} else "f64"
        made = functions["from"]((DTYPES[dtype_of(name)][3] * len(items))(*items), shape, name)
        dtype = dtype or (functions["default_dtype"]() if name == "f64" else None)
    made = made.to_dtype(dtype) if dtype else made
    return made.set_requires_grad(True) if requires_grad else made

# DLPack: by the name of a capsule that nobody has taken, its struct, the functions that make and take it, and its next name.
# Python's functions are given a capsule as an address, since one that is being deleted must not be counted again.
array = ("data", c.c_void_p), ("device_ndim_dtype", c.c_int * 4), ("shape_strides", c.c_void_p * 2), ("offset", c.c_uint64)
owner = ("context", c.c_void_p), ("deleter", c.CFUNCTYPE(None, c.c_void_p))
CAPSULES = {b"dltensor": (struct(*array, *owner), "dlpack_unversioned", b"used_dltensor"),
            b"dltensor_versioned": (struct(("version", c.c_uint64), *owner), "dlpack", b"used_dltensor_versioned")}
capsule_new, capsule_get, capsule_is, capsule_rename = (
    c.PYFUNCTYPE(result, c.c_void_p, c.c_char_p, *more)(("PyCapsule_" + name, c.pythonapi)) for name, result, *more in (
        ("New", c.py_object, c.c_void_p), ("GetPointer", c.c_void_p), ("IsValid", c.c_int), ("SetName", c.c_int)))
@c.PYFUNCTYPE(None, c.c_void_p)
def capsule_end(capsule): # gives back the struct if nobody has taken it
    for name in CAPSULES:
        if capsule_is(capsule, name):
            CAPSULES[name][0].from_address(capsule_get(capsule, name)).deleter(capsule_get(capsule, name))
def from_dlpack(x, *, device=None, copy=False):
    """A tensor on the memory of another library's array, or of a capsule.  After a write of the other call touch_()."""
    try:
        x = x.__dlpack__(max_version=(1, 0)) if hasattr(x, "__dlpack__") else x
    except TypeError: # the library has no versions
        x = x.__dlpack__()
    name = next((name for name in CAPSULES if capsule_is(id(x), name)), None) or wrong(x, "an array, or a capsule to take")
    handle = getattr(lib, "tg_from_" + CAPSULES[name][1])(capsule_get(id(x), name))
    check()
    capsule_rename(id(x), CAPSULES[name][2])
    made = Tensor(handle)
    return made.to(device or made.device).clone() if copy else made.to(device or made.device)
from_numpy = from_dlpack
class Tape:
    """The tape that leads to a tensor: as text a table, in a notebook a drawing"""
    __init__ = lambda self, root: setattr(self, "root", root)
    __repr__ = lambda self: functions["tape_print"](self.root)
    _repr_svg_ = lambda self: functions["tape_svg"](self.root)
class no_grad(contextlib.ContextDecorator): # in its block, or in a function with @no_grad(), ops are not recorded
    __enter__ = lambda self: setattr(self, "before", lib.tg_set_grad_enabled(False))
    __exit__ = lambda self, *_: lib.tg_set_grad_enabled(self.before) and None

class Module(Owned):
    """A module.  A subclass calls super().__init__(), sets children and parameters as attributes, and has a forward."""
    retain, free = lib.tg_module_retain, lib.tg_module_free
    def __init__(self):
        super().__init__(lib.tg_module_new(type(self).__name__.encode(), None, 0))
    def __setattr__(self, name, value):
        if isinstance(value, Module):
            lib.tg_module_child(self, name.encode(), self.retain(value))
        elif isinstance(value, Tensor) and value.requires_grad and value.is_leaf:
            lib.tg_module_param(self, name.encode(), value)
        check()
        self.__dict__[name] = value
    def __getattr__(self, name):
        tensor, child = lib.tg_module_get(self, name.encode()), lib.tg_module_get_child(self, name.encode())
        return Tensor.of(tensor) if tensor else Module.of(child) if child else function_of("module_" + name, self)
    def __call__(self, *inputs, outputs=1):
        """The output of forward; of a layer with several outputs as many as are asked for"""
        if hasattr(type(self), "forward"):
            return self.forward(*inputs)
        made = functions["forward_n"](self, inputs, outputs=outputs)
        return made[0] if outputs == 1 else made
    def named_parameters(self):
        each = c.cast(lib.tg_module_params(self), c.POINTER(c.c_void_p))
        return {lib.tg_module_path(self, i).decode(): Tensor.of(each[i]) for i in range(lib.tg_module_count(self))}
    parameters = lambda self: list(self.named_parameters().values())
    eval = lambda self: self.train(False)
    state_dict, load_state_dict = method("module_state"), method("module_load_state")
    __getitem__ = lambda self, i: getattr(self, str(i))
    __repr__ = lambda self: functions["module_print"](self).rstrip("\n")
class Layers:
    """tg.nn: the layers by PyTorch's names; BatchNorm1d and BatchNorm2d are both tg_nn_batch_norm"""
    Module = Module
    Sequential = lambda self, *modules: functions["nn_sequential"]([m for m in modules if Module.retain(an(Module)(m))])
    def __getattr__(self, name):
        found = [f for spelling in (name, name[:-2]) for f in functions if f.replace("_", "") == "nn" + spelling.lower()]
        return function_of(found[0] if found else "nn." + name)
class Optimizer(Owned):
    """An optimizer.  Its hyperparameters are attributes: the fields of tg_optim."""
    free = lib.tg_optim_free
    fields = property(lambda self: c.cast(self._as_parameter_, c.POINTER(TYPES["tg_optim"])).contents)
    __getattr__ = lambda self, name: getattr(self.fields, name)
    __setattr__ = lambda self, name, value: setattr(self.fields, name, type(getattr(self, name))(value))
    step, zero_grad = method("step"), method("optim_zero_grad")
class Optimizers:
    """tg.optim: the optimizers by PyTorch's names; more hyperparameters, by their names in tg_optim, after lr"""
    def __getattr__(self, name):
        def make(params, lr, **fields):
            made = function_of(name.lower())(params, lr)
            for field, value in fields.items():
                setattr(made, field, value)
            return made
        return make
class Dict(Owned):
    """A dictionary of C with the tensors of one of Python"""
    free = lib.tg_dict_free
    def __init__(self, tensors):
        super().__init__(lib.tg_dict_new())
        for name, value in tensors.items():
            check(lib.tg_dict_set(self, name.encode(), an(Tensor)(value)))

def dict_of(handle, _):
    """The tensors by their paths; frees the dictionary of C"""
    names = [lib.tg_dict_name(handle, i) for i in range(lib.tg_dict_count(handle))]
    made = {name.decode(): Tensor.of(lib.tg_dict_get(handle, name)) for name in names}
    lib.tg_dict_free(handle)
    return made
# Warnings of the library become Python's; errors are raised by check.
tell = c.CFUNCTYPE(None, c.c_int, c.c_char_p, c.c_void_p)(
    lambda code, message, _: None if code else warnings.warn(message.decode(), stacklevel=5))
number = lambda value: value.__index__() if hasattr(value, "__index__") else wrong(value, "a whole number")
real = lambda value: float(value) if not isinstance(value, (Tensor, str)) else wrong(value, "a number")
CONVERT = {"double": real, "tg_shape": shape_of, "tg_dtype": dtype_of, "tg_device": device_of, "tg_dict *": Dict,
           "const void *": lambda data: data, "const char *": lambda text: os.fspath(text).encode(), "tg_tensor *": an(Tensor),
           "const tg_tensor *": an(Tensor), "tg_module *": an(Module), "tg_optim *": an(Optimizer),
           **dict.fromkeys(("int", "int64_t", "size_t", "uint64_t", "bool"), number)}
LISTS = {"tg_tensor *const *": Tensor, "tg_module *const *": Module}
RESULTS = {"tg_tensor *": lambda handle, _: Tensor.of(handle), "tg_optim *": lambda handle, _: Optimizer(handle),
           "tg_module *": lambda at, name: Module.of(at, new=name.startswith(("nn_", "module_clone"))), "tg_dict *": dict_of,
           "const char *": lambda text, _: text and text.decode(), "tg_dtype": lambda number, _: DTYPES[number][0],
           "tg_shape": lambda shape, _: tuple(shape.dim[: shape.ndim]),
           "tg_device": lambda device, _: lib.tg_device_str(device).decode()}
functions, constants = read_header()
RETAIN_GRAPH, CREATE_GRAPH = constants["RETAIN_GRAPH"], constants["CREATE_GRAPH"]
nn, optim = Layers(), Optimizers()
lib.tg_set_error_handler(tell, None)
__getattr__ = lambda name: constants[name] if name in constants else function_of(name)
