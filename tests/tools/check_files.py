#!/usr/bin/env python3
"""check_files.py COPY_TENSORS FOLDER: compares the files of tensorgrad.h with those of NumPy and safetensors.

COPY_TENSORS is the program of copy_tensors.c, which loads a file and saves it again; FOLDER is for the files.  A file that NumPy
or safetensors wrote must come out with the same tensors, and where the library promises it, with the same bytes; a file that it
wrote must be read by them.  A safetensors file with a damaged byte must be refused wherever the package refuses it."""
import random, subprocess, sys, zipfile

import numpy as np
import safetensors.numpy as st

program, folder = sys.argv[1:3]
passed = failed = 0
DTYPES = ["f4", "f8", "f2", "i4", "i8", "u1", "b1"]
SHAPES = [(), (1,), (5,), (2, 3), (3, 1, 4), (0, 3), (2, 0), (2, 1, 2, 1, 2, 1, 2, 2), (1000,), (70000,)]


def check(holds, what):
    global passed, failed
    passed += bool(holds)
    failed += not holds
    if not holds:
        print("failed:", what)


def copy(pairs):
    """What the program says of each pair (from, to) of names in the folder."""
    names = [f"{folder}/{name}" for pair in pairs for name in pair]
    run = subprocess.run([program] + names, capture_output=True, text=True, errors="replace")
    check(run.returncode == 0 and not run.stderr, f"copy_tensors: exit {run.returncode}\n{run.stderr[-2000:]}")
    return run.stdout.splitlines()


def bytes_of(name):
    with open(f"{folder}/{name}", "rb") as file:
        return file.read()


def write(name, data):
    with open(f"{folder}/{name}", "wb") as file:
        file.write(data)


def array(dtype, shape, rng=np.random.default_rng(1)):
    values = rng.standard_normal(shape) * 100
    return np.asarray(np.abs(values) if dtype == "u1" else values > 0 if dtype == "b1" else values).astype(dtype)


def equal(a, b):
    return a.dtype.newbyteorder("=") == b.dtype.newbyteorder("=") and a.shape == b.shape and np.array_equal(a, b)


def check_npy():
    cases = {}
    for dtype in DTYPES:
        for shape in SHAPES:
            for order in "<>":
                for layout in "CF":
                    cases[f"{len(cases)}.npy"] = np.array(array(dtype, shape), order=layout, dtype=order + dtype)
    for version in (1, 0), (2, 0), (3, 0):
        with open(f"{folder}/v{version[0]}.npy", "wb") as file:
            np.lib.format.write_array(file, np.arange(6.0).reshape(2, 3), version=version)
    for name, a in cases.items():
        np.save(f"{folder}/{name}", a)
    cases.update({f"v{v}.npy": np.arange(6.0).reshape(2, 3) for v in (1, 2, 3)})
    said = copy([(name, "out_" + name) for name in cases])
    for (name, a), line in zip(cases.items(), said):
        what = f"{name}: {a.dtype.str} {a.shape}: {line}"
        check(line == "ok" and equal(np.load(f"{folder}/out_{name}"), a), what)
        if a.flags.c_contiguous and a.dtype.str[0] != ">" and not name.startswith("v"):
            check(bytes_of("out_" + name) == bytes_of(name), what + ": other bytes")
    small = {f"{d}.npy": np.array([0, 1, np.iinfo(d).max, np.iinfo(d).min]).astype(d) for d in ("i1", ">i2", "<u2", ">u4", "<i2")}
    small["u8.npy"] = np.array([0, 2**63 - 1], "u8")
    for name, a in small.items():
        np.save(f"{folder}/{name}", a)
    for (name, a), line in zip(small.items(), copy([(name, "out_" + name) for name in small])):
        back = np.load(f"{folder}/out_{name}") if line == "ok" else None
        check(line == "ok" and back.dtype == ("i8" if a.itemsize > 2 else "i4") and np.array_equal(back, a), f"{name}: {line}")
    check_npy_headers()
    strange = {"complex": np.zeros(3, "c8"), "text": np.array(["a"]),
               "object": np.array([None]), "record": np.zeros(3, [("a", "f4")]), "date": np.zeros(3, "M8[s]")}
    for name, a in strange.items():
        np.save(f"{folder}/{name}.npy", a)
    for name, line in zip(strange, copy([(name + ".npy", "out.npy") for name in strange])):
        check("is that of no tensor" in line if name == "record" else "is none of f8, f4" in line, f"{name}: {line}")


def check_npy_headers():
    """Spellings of headers, most of which NumPy reads: what it reads, the library reads."""
    shapes = ["(2, 3)", "(2,3,)", "(2, 3, )", "( 2 ,3)", "(2L, 3L)", "(6)", "(6,)", "(6L,)", "6", "[2, 3]", "(2,,3)", "(,6)", "(-1, 6)"]
    descrs = ["'<f4'", "'=f4'", "'f4'", "'|f4'", "'>f4'", "'f'", "'float32'", "'<i4'", "'i'", "'int32'", "u'<f4'", '"<f4"', "'F4'",
              "'<u4'", "'I'", "'uint32'", "'!f4'"]
    headers = [f"{{'descr': {d}, 'fortran_order': False, 'shape': {s}, }}" for d in descrs for s in shapes]
    headers += [f"{{'shape': (6,), 'fortran_order': {o}, 'descr': '<f4'{end}" for o in ("True", "False", " True", "0", "None")
                for end in ("}", ",}", " , } ", ",, }", "", "} x", "}  \n\n")]
    wanted = []
    for i, header in enumerate(headers):
        text = header.encode() + b" " * (-(10 + len(header) + 1) % 64) + b"\n"
        write(f"header{i}.npy", b"\x93NUMPY\1\0" + len(text).to_bytes(2, "little") + text + np.arange(6, dtype="f4").tobytes())
        try:
            wanted.append(np.load(f"{folder}/header{i}.npy"))
        except Exception:
            wanted.append(None)
    for i, line in enumerate(copy([(f"header{i}.npy", f"out_header{i}.npy") for i in range(len(headers))])):
        back = np.load(f"{folder}/out_header{i}.npy") if line == "ok" else None
        check((back is None) == (wanted[i] is None) and (back is None or np.array_equal(back, wanted[i])), f"{headers[i]}: {line}")


def check_npz():
    arrays = {f"{dtype} {shape}": array(dtype, shape) for dtype in DTYPES for shape in SHAPES}
    arrays["d\u00e9j\u00e0/vu"] = np.arange(10)
    arrays["large"] = np.repeat(np.arange(100000.0), 3)
    arrays["random"] = np.random.default_rng(2).standard_normal(50000)
    np.savez(f"{folder}/stored.npz", **arrays)
    np.savez_compressed(f"{folder}/deflated.npz", **arrays)
    np.savez(f"{folder}/nothing.npz")
    for name in "stored", "deflated":
        line, = copy([(name + ".npz", "out.npz")])
        with np.load(f"{folder}/out.npz") as back:
            check(line == "ok" and list(back) == list(arrays), f"{name}: {line}")
            for key, a in arrays.items():
                check(equal(back[key], a), f"{name}: {key}")
    np.savez(f"{folder}/mixed.npz", a=np.arange(3.0), names=np.array(["x", "yz"]), objects=np.array([None, 1]), z=np.zeros(2, "c8"),
             i=np.array([1, -1], "i2"))
    with zipfile.ZipFile(f"{folder}/mixed.npz", "a") as file:
        file.writestr("sub/", b"")
        file.writestr("readme.txt", b"hello")
    line, = copy([("mixed.npz", "out.npz")])
    with np.load(f"{folder}/out.npz") as back:
        check(line == "ok" and list(back) == ["a", "i"] and np.array_equal(back["i"], [1, -1]), f"mixed: {line}")
    check(copy([("nothing.npz", "out.npz"), ("out.npz", "again.npz")]) == ["ok", "ok"], "an empty archive")


def check_safetensors():
    arrays = {f"{dtype} {shape}": array(dtype, shape) for dtype in DTYPES for shape in SHAPES}
    arrays.update({"d\u00e9j\u00e0 \U0001f600": np.arange(3.0), 'a"b\\c\n\x01\x7f/': np.arange(2)})
    files = {"all": st.save(arrays), "text": st.save({"x": np.ones(2)}, {"a \u00e9\n": 'b"'}), "none": st.save({}),
             "only_text": st.save({}, {"a": ""})}
    for name, data in files.items():
        write(name + ".safetensors", data)
    for name, line in zip(files, copy([(f"{name}.safetensors", f"out_{name}.safetensors") for name in files])):
        check(line == "ok" and bytes_of(f"out_{name}.safetensors") == files[name], f"{name}: {line}")
    line, = copy([("all.safetensors", "from_safetensors.npz")])
    with np.load(f"{folder}/from_safetensors.npz") as back:
        check(line == "ok" and all(equal(back[key], a) for key, a in arrays.items()), f"safetensors as npz: {line}")


def check_damaged_safetensors():
    """Each byte of a small file replaced by others: what the package refuses, the library refuses."""
    rng = random.Random(3)
    data = st.save({"a": np.arange(6, dtype="f4").reshape(2, 3), "bc": np.zeros((0, 2), "i8")}, {"k": "v"})
    tried = []
    for at in range(len(data)):
        for byte in {data[at] ^ 1, rng.randrange(256), ord(rng.choice('",:{}[]0123456789 \\'))} - {data[at]}:
            tried.append(data[:at] + bytes([byte]) + data[at + 1:])
    for start in range(0, len(tried), 200):
        names = [f"damaged{i}.safetensors" for i in range(len(tried[start:start + 200]))]
        for name, changed in zip(names, tried[start:]):
            write(name, changed)
        for changed, line in zip(tried[start:], copy([(name, "out.safetensors") for name in names])):
            try:
                taken = st.load(changed)
            except Exception:
                taken = None
            check(line != "ok" if taken is None else True, f"{changed}: {line}")


check_npy()
check_npz()
check_safetensors()
check_damaged_safetensors()
print(f"{passed} passed, {failed} failed")
sys.exit(failed != 0)
