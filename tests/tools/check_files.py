#!/usr/bin/env python3
"""check_files.py COPY_TENSORS FOLDER: compares the files of tensorgrad.h with those of NumPy and safetensors.

COPY_TENSORS is the program of copy_tensors.c, which loads a file and saves it again; FOLDER is for the files.  A file that NumPy
or safetensors wrote must come out with the same tensors, and where the library promises it, with the same bytes; a file that it
wrote must be read by them.  A safetensors file with a damaged byte must be refused wherever the package refuses it, and headers
in all the spellings that JSON leaves open are taken by both or by neither.  An index of several files gives the tensors that
transformers would load.  Tables in random forms hold what numpy.genfromtxt finds."""
import glob, io, itertools, json, os, random, subprocess, sys, zipfile

import numpy as np
import safetensors, safetensors.numpy as st

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
        wanted = "i8" if a.itemsize > 2 else "i4" if a.dtype.kind == "u" else a.dtype.newbyteorder("=")
        check(line == "ok" and back.dtype == wanted and np.array_equal(back, a), f"{name}: {line}")
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


def shards_by_python(path):
    """The tensors of the files that an index names, as transformers loads them: all of each file.  None: it cannot be done, or a name
    is in a file that is not the one of the index, where transformers takes the last that it reads."""
    try:
        with open(path, encoding="utf-8") as file:
            names = json.load(file)["weight_map"]
        arrays, home = {}, {}
        for shard in sorted(set(names.values())):
            for key, value in st.load_file(os.path.join(os.path.dirname(path), shard)).items():
                if names.get(key, shard) != shard or key in arrays:
                    return None
                arrays[key], home[key] = value, shard
        return arrays if all(home.get(key) == shard for key, shard in names.items()) else None
    except Exception:
        return None


def check_shards():
    """Models in several files: an index gives what Python makes of it, in forms that Hugging Face writes, in others, and damaged."""
    rng = random.Random(5)
    arrays = {f"layers.{i}.{dtype}": array(dtype, shape) for i, (dtype, shape) in enumerate(itertools.product(DTYPES, SHAPES[:7]))}
    arrays["d\u00e9j\u00e0 \U0001f600"] = np.arange(3.0)
    place = {key: f"model-{rng.randrange(1, 4):05d}-of-00003.safetensors" for key in arrays}
    for shard in set(place.values()):
        st.save_file({key: a for key, a in arrays.items() if place[key] == shard}, f"{folder}/{shard}", {"format": "pt"})
    total = {"metadata": {"total_size": sum(a.nbytes for a in arrays.values()), "total_parameters": 1.5e3}, "weight_map": place}
    some = dict(rng.sample(list(place.items()), 20))
    wrong = dict(place, **{list(place)[0]: "model-00009-of-00003.safetensors"})
    moved = dict(place, **{key: "model-00001-of-00003.safetensors" for key in list(place)[:5]})
    texts = [json.dumps(total, indent=2) + "\n", json.dumps(total, sort_keys=True), json.dumps({"weight_map": place}, ensure_ascii=False),
             json.dumps({"weight_map": some}), json.dumps({"weight_map": {}}), json.dumps({"weight_map": dict(place, more=place[list(place)[0]])}),
             json.dumps({"weight_map": wrong}), json.dumps({"weight_map": moved}), json.dumps({"weight_map": list(place)}),
             json.dumps({"weight_map": dict(some, x=1)}), json.dumps({"metadata": place}), json.dumps([place])]
    for _ in range(150):  # damaged
        text = rng.choice(texts[:4])
        at = rng.randrange(len(text))
        texts.append(text[:at] + rng.choice(["", '"', "{", "}", ",", ":", "\\", " ", "x", "[", "]", "0"]) + text[at + rng.randrange(3):])
    for i, text in enumerate(texts):
        write(f"model{i}.safetensors.index.json", text.encode())
    taken = 0
    for i, line in enumerate(copy([(f"model{i}.safetensors.index.json", f"model{i}.safetensors") for i in range(len(texts))])):
        wanted = shards_by_python(f"{folder}/model{i}.safetensors.index.json")
        taken += wanted is not None
        check((line == "ok") == (wanted is not None), f"index {i}: {line}: {texts[i][:200]}")
        if line == "ok" and wanted is not None:
            back = st.load_file(f"{folder}/model{i}.safetensors")
            check(set(back) == set(wanted) and all(equal(back[key], a) for key, a in wanted.items()), f"index {i}: other tensors")
    check(taken > 5 and taken < len(texts) - 5, f"{taken} of {len(texts)} indices are taken")


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


def headers_of_other_writers():
    """Pairs of a safetensors header and the bytes behind it: what JSON leaves open, spelled as no common writer does, too."""
    rng = random.Random(4)
    entry = '"dtype":"U8","shape":[1],"data_offsets":[0,1]'
    one = "{" + entry + "}"
    token = ["{", '"x"', ":", "{", '"dtype"', ":", '"U8"', ",", '"shape"', ":", "[", "1", "]", ",", '"data_offsets"', ":", "[", "0",
             ",", "1", "]", "}", "}"]
    values = ["1", "-1", "0", "-0", "01", "1.5", "1.", ".5", "1e5", "1e", "1E+5", "+1", "-", "1-", "99999999999999999999", "null", "nul",
              "nulll", "true", "True", "NaN", '""', '"a\\u0000"', '"\\ud800"', '"\\x"', '"\t"', "[]", "[1,]", "[,]", "[1 2]", "{}",
              '{"a":1}', '{"a":1,}', "{a:1}", '{"a":1,"a":2}', "[" * 60 + "]" * 60, "[" * 125 + "]" * 125, "[" * 126 + "]" * 126, ""]
    names = ["\\u0078", "\\ud83d\\ude00", "\\uD83D\\uDE00", "\\ud83d", "\\ude00", "\\ud83d\\u0041", "\\ud83dx", "\\u0000", "a\\u0000b", "",
             "\u00e9", "\x7f", "\x01", "\n", "\\/", "\\x41", "\\u00e9", "\\uFFFF", "\\b\\f\\n\\r\\t\\\"\\\\", "dtype", "a'b", "\\u12", "\\"]
    places = ["[0,1]", "[0,0]", "[1,1]", "[1,0]", "[0,2]", "[1,2]", "[2,3]", "[0]", "[]", "[0,1,2]", "[0,1,]", "[-1,0]", "[0.0,1]", "null"]
    bits = {"U8": 8, "I8": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32, "F32": 32, "F64": 64, "I64": 64, "U64": 64,
            "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "C64": 64, "F7": 7, "u8": 8}
    for parts in itertools.permutations(entry.replace(",\"", "\n\"").split("\n")):
        yield '{"x":{%s}}' % ",".join(parts), b"\7"
    for space in (" ", "\n", "\t", "\r\n", "\v", "\u00a0", "\ufeff", "\0"):
        for i in range(len(token) + 1):
            yield "".join(token[:i]) + space + "".join(token[i:]), b"\7"
        yield space.join(token) + space, b"\7"
    for v in values:
        for form in ('{"x":{"q":%s,' + entry + "}}", '{"x":{' + entry + ',"q":%s}}', '{"x":' + one + ',"__metadata__":%s}',
                     '{"__metadata__":{"k":%s},"x":' + one + "}"):
            yield form % v, b"\7"
        for form in ('"dtype":%s,"shape":[1],"data_offsets":[0,1]', '"dtype":"U8","shape":[%s],"data_offsets":[0,1]',
                     '"dtype":"U8","shape":%s,"data_offsets":[0,1]', '"dtype":"U8","shape":[1],"data_offsets":[%s,1]',
                     '"dtype":"U8","shape":[1],"data_offsets":[0,%s]', '"dtype":"U8","shape":[1],"data_offsets":%s'):
            yield '{"x":{%s}}' % (form % v), b"\7"
        yield '{"x":%s}' % v, b""
        yield '{"__metadata__":%s}' % v, b""
    for n in names:
        for form in ('{"%s":' + one + "}", '{"__metadata__":{"%s":"v"},"x":' + one + "}", '{"__metadata__":{"k":"%s"},"x":' + one + "}",
                     '{"x":{"%s":0,' + entry + "}}", '{"__metadata__":{},"%s":' + one + "}"):
            yield form % n, b"\7"
    for first, second in itertools.product(places, places[:7]):
        for shapes in itertools.product(("[1]", "[0]"), repeat=2):
            for size in range(4):
                yield ('{"a":{"dtype":"U8","shape":%s,"data_offsets":%s},"b":{"dtype":"U8","shape":%s,"data_offsets":%s}}'
                       % (shapes[0], first, shapes[1], second), b"\7" * size)
    for dtype, shape in itertools.product(bits, ([], [1], [2], [3], [0], [1] * 9, [2] + [1] * 8)):
        size = (int(np.prod(shape)) * bits[dtype] + 7) // 8
        for end in {1, max(size, 1), size + 1, size + 2}:
            yield '{"x":{"dtype":"%s","shape":%s,"data_offsets":[1,%d]},"y":%s}' % (dtype, shape, end, one), b"\1" * end
    for pad in (" ", " \n\t\r ", "\0", "x", ",", "}", "\v"):
        yield '{"x":%s}%s' % (one, pad), b"\7"
        yield pad + '{"x":%s}' % one, b"\7"
        yield "{}" + pad, b""
    for _ in range(700):  # several of these at once
        at, parts = 0, []
        for n in rng.sample(["a", "c.d", "\\u0000", "\\ud83d\\ude00", "", "\u00e9", "\\n", "a b"], rng.randrange(1, 6)):
            dtype, shape = rng.choice(list(bits)[:-2]), rng.choice([[], [0], [1], [2], [4], [2, 3], [1] * 9, [3, 0]])
            begin = at + rng.choice([0] * 60 + [-1, 1])
            at = max(0, begin + (int(np.prod(shape)) * bits[dtype] + 7) // 8 + rng.choice([0] * 60 + [-1, 1]))
            fields = ['"dtype": "%s"' % dtype, '"shape" :%s' % shape, '"data_offsets":[%d,%d]' % (begin, at)]
            fields += ['"more":%s' % rng.choice(["null", "[1, {}]", '"\\u0000"'])] * rng.randrange(2)
            parts.append('"%s":{%s}' % (n, rng.choice([",", ", ", ",\n"]).join(rng.sample(fields, len(fields)))))
        parts += ['"__metadata__":%s' % rng.choice(["null", "{}", '{"k":"v"}', '{"k":"\\u0000"}', '{"k":1}'])] * rng.randrange(2)
        yield "{%s}%s" % (",".join(rng.sample(parts, len(parts))), " " * rng.randrange(9)), b"\1" * (at + rng.choice([0] * 40 + [1]))


def check_safetensors_of_others():
    """What the package takes, the library takes, with the same tensors, but for those that it must leave out; and it takes no more.
    It refuses two entries of one name, of which the package takes the last."""
    wider = {"U16": ("u2", "i4"), "U32": ("u4", "i8"), "U64": ("u8", "i8")}
    have = ["F32", "F64", "BF16", "F16", "I32", "I64", "U8", "I8", "I16", "BOOL"] + list(wider)
    cases = [(h.encode(), data) for h, data in dict.fromkeys(headers_of_other_writers())]
    cases = [len(h).to_bytes(8, "little") + h + data for h, data in cases]
    taken_by_both = 0
    for i, whole in enumerate(cases):
        write(f"other{i}.safetensors", whole)
    for i, line in enumerate(copy([(f"other{i}.safetensors", f"out_other{i}.safetensors") for i in range(len(cases))])):
        try:
            wanted = {n: (v["dtype"], v["shape"], bytes(v["data"])) for n, v in safetensors.deserialize(cases[i])}
        except Exception:
            wanted = None
        if wanted:
            wanted = {n: v for n, v in wanted.items() if v[0] in have and len(v[1]) <= 8 and "\0" not in n} or None
        for n, (dtype, shape, data) in (wanted or {}).items():
            if dtype in wider:
                data = np.frombuffer(data, wider[dtype][0]).astype(wider[dtype][1])
                wanted[n] = ("I32" if data.itemsize == 4 else "I64", shape, data.tobytes())
        out = bytes_of(f"out_other{i}.safetensors") if line == "ok" else None
        back = {n: (v["dtype"], v["shape"], bytes(v["data"])) for n, v in safetensors.deserialize(out)} if out else None
        check(back == wanted, f"{cases[i]}: {line}")
        if out and back == wanted:
            taken_by_both += 1
            text = [json.loads(b[8:8 + int.from_bytes(b[:8], "little")]).get("__metadata__") or {} for b in (cases[i], out)]
            check({k: v for k, v in text[0].items() if "\0" not in k + v} == text[1], f"{cases[i]}: the texts {text}")
    for name in glob.glob(f"{glob.escape(folder)}/*other*.safetensors"):
        os.remove(name)
    check(taken_by_both > 500 and len(cases) - taken_by_both > 500, f"{taken_by_both} of {len(cases)} headers are taken")


def tables(rng):
    """A table in one of the forms that programs write: its text, what it holds, and how NumPy is told to read it."""
    between, delimiter = rng.choice([(",", ","), (", ", ","), (" , ", ","), (",\t", ","), (";", ";"), ("; ", ";"), ("\t", "\t"), (" ", None),
                                     ("  ", None), (" \t", None)])
    rows, columns = rng.randrange(1, 5), rng.randrange(1, 5)
    decimal = "," if columns > 1 and delimiter in (";", "\t") and rng.random() < .3 else "."
    missing = rng.choice(["NA", "nan", "null", "#N/A"] + [""] * 4 * (delimiter is not None))
    values = [[rng.choice([rng.randrange(-9, 3000), rng.random(), -rng.random() * 1e-7, 1.5, 1e30]) for _ in range(columns)] for _ in range(rows)]
    if rng.random() < .4:
        for row in values:
            row[:-1] = [float("nan") if rng.random() < .3 else v for v in row[:-1]]
    text = [[missing if v != v else repr(v).replace(".", decimal) for v in row] for row in values]
    if decimal == "," and rng.random() < .7:
        text[-1][-1], values[-1][-1] = "0,25", .25
    if rng.random() < .15:
        text = [['"%s"' % cell for cell in row] for row in text]
    head = rng.choice([[], [], ["x", "y", "width", "z_1"], ["L\u00e4nge", "b-c", "'d'", "e"], ['"a"', '"b"', '"c"', '"d"'],
                       ["id"] + ["2019", "2020", "2021"] * (columns > 2)])[:columns]
    lines = [between.join(row) for row in [head] * bool(head) + text]
    trailing = delimiter in (",", ";") and rng.random() < .2
    lines = [line + delimiter for line in lines] if trailing else lines
    before = rng.choice([[], [], [], ["# a comment, of 1"], ["", " "]])
    if rng.random() < .2:
        lines.insert(rng.randrange(len(lines)) + 1, rng.choice(["", "  ", "# 1,2;3\t4"]))
    if rng.random() < .2 and not missing == "#N/A":
        lines[-1] += " # 7"
    if rng.random() < .2:
        lines = [" " + line for line in lines]
    end = rng.choice(["\n", "\n", "\r\n", "\r"])
    whole = rng.choice(["", "", "\ufeff"]) + end.join(before + lines) + end * rng.randrange(2)
    plain = "\n".join(lines[bool(head):]).replace('"', "").replace("#N/A", "nan")
    plain = plain.replace(",", ".") if decimal == "," else plain
    return whole, np.array(values), (plain, delimiter, trailing), (between, rows, columns, head, text)


def check_csv():
    """Tables in random forms: what the library finds without options is what was written, and what numpy.genfromtxt finds when it is
    told how; or, in a few cases, an error.  A table with one cell that is no number, or one separator too many, is refused."""
    rng = random.Random(6)
    made = [tables(rng) for _ in range(1000)]
    for i, (whole, *_) in enumerate(made):
        write(f"table{i}.csv", whole.encode())
    refused = 0
    for i, line in enumerate(copy([(f"table{i}.csv", "") for i in range(len(made))])):
        whole, values, (plain, delimiter, trailing), _ = made[i]
        numpy = np.genfromtxt(io.StringIO(plain), delimiter=delimiter, ndmin=2, missing_values=["NA", "null"])
        numpy = numpy[:, :-1] if trailing else numpy
        check(np.array_equal(numpy, values, equal_nan=True), f"NumPy finds otherwise: {whole!r}")
        if line.startswith("[["):
            back = np.array(eval(line, {"nan": np.nan}))
            check(np.array_equal(back, values, equal_nan=True), f"{whole!r}: {line}")
        else:
            refused += 1
            check(any(w in line for w in ("can be names of columns or numbers", "commas from line", "is not a number")), f"{whole!r}: {line}")
    check(refused < len(made) // 20, f"{refused} of {len(made)} tables are refused")
    damaged = []
    for whole, _, _, (between, rows, columns, head, text) in made:
        row, column = rng.randrange(rows), rng.randrange(columns)
        if columns > 1 and (row > 0 or head):
            text[row][column] = rng.choice(["x", "1.2.3", "12a", "?", "-", "0x10", "1e", "--1"] + [text[row][column] + between + "1"] * (rows > 1))
            damaged.append("\n".join(between.join(r) for r in [head] * bool(head) + text))
    for i, whole in enumerate(damaged):
        write(f"table{i}.csv", whole.encode())
    for whole, line in zip(damaged, copy([(f"table{i}.csv", "") for i in range(len(damaged))])):
        check(not line.startswith("[["), f"{whole!r}: {line}")
    for name in glob.glob(f"{glob.escape(folder)}/table*"):
        os.remove(name)


check_npy()
check_npz()
check_safetensors()
check_damaged_safetensors()
check_safetensors_of_others()
check_shards()
check_csv()
print(f"{passed} passed, {failed} failed")
sys.exit(failed != 0)
