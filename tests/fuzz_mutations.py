"""Ways to spoil a file, each decided by a random generator: bytes, text, JSON and TOML, HDF5, NPZ, Parquet."""

import bz2
import gzip
import json
import lzma
import os
import tomllib
import zlib
from copy import deepcopy

import numpy as np

_MAGIC = [0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF, 2**40, 2**63 - 1, 2**63, 2**64 - 1]

_TOKENS = [
    b"nan", b"NaN", b"inf", b"-inf", b"1e999", b"-1e308", b"5e-324", b"9" * 400, b"1" + b"0" * 30, b"-1", b"-0.0",
    b"0x1p3", b"1_000", b"1,5", b"1;5", b"\"", b"''", b"", b" ", b"\t", b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\xc3",
    b"\xed\xa0\x80", "é".encode(), "\u2028".encode(), "\u202e1".encode(), b"True", b"null", b"None", b"#", b"a:b", b"1:",
    b":1", b"0:1", b"-3:1", b"2147483648:1", b"99999999999999999999:1", b"1:1 1:2", b"9:1 2:1", b"1:nan", b"qid:3",
    b"1:1e400", b"+1", b"1.", b".5", b"1e", b"\r", b"\n", b"\n\n", b"\r\n", b"=cmd()", b"../../x", b"{", b"}", b"[", b"]",
    b"1970-01-01", b"x" * 70_000, b"1," * 30_000, b"\xf0\x9f\x92\xa9", b"\x1b[31m", b"\x1a", b"%s%n", b"2025-13-45T99:99",
]  # fmt: skip

_VALUES = [
    None, True, False, 0, 1, -1, 2, 3, 7, 10**9, 2**31, -(2**31), 2**63 - 1, 10**19, -(10**30), 0.0, 0.5, -0.5, 1e-320, 1e308,
    float("nan"), float("inf"), float("-inf"), "", " ", "x", "nan", "0", "1.0", "2.0", "99.0", "../x", "/etc/passwd", "a/b",
    "\0", "é", "\u2028", "x" * 5000, "sha256:" + "0" * 64, [], [1], ["x"], [[]], {}, {"a": 1}, [None], [1e400], [{}], ["x"] * 50,
]  # fmt: skip


def _span(raw, rng):
    start = rng.randrange(len(raw) + 1)
    return start, min(len(raw), start + rng.choice([1, 2, 8, 16, 64, 512, 4096]))


def _flip(raw, rng):
    changed = bytearray(raw)
    for _ in range(rng.choice([1, 1, 1, 2, 8, 64])):
        if changed:
            changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _swap(raw, rng):
    (a, b), (c, d) = sorted([_span(raw, rng), _span(raw, rng)])
    b = min(b, c)
    return raw[:a] + raw[c:d] + raw[b:c] + raw[a:b] + raw[d:]


def _insert(raw, rng):
    at = rng.randrange(len(raw) + 1)
    return raw[:at] + rng.choice([*_TOKENS, rng.randbytes(9), bytes(300)]) + raw[at:]


def _number(raw, rng):
    width = rng.choice([1, 2, 4, 8])
    at = rng.randrange(max(1, len(raw) - width))
    number = rng.choice(_MAGIC) % (1 << 8 * width)
    order = rng.choice(["little", "big"])
    return raw[:at] + number.to_bytes(width, order) + raw[at + width :]


_HEADS = [b"", b"\x89HDF\r\n\x1a\n", b"PK\x03\x04", b"PAR1", b"\x1f\x8b", b"BZh9", b"\xfd7zXZ\x00",
          b"\x93NUMPY", b"%PDF-1.4"]  # fmt: skip

#: What becomes of a file's bytes.
_WHOLE = {
    "flip": _flip,
    "cut": lambda raw, rng: raw[: rng.randrange(len(raw) + 1)],
    "cut front": lambda raw, rng: raw[rng.randrange(len(raw) + 1) :],
    "swap": _swap,
    "insert": _insert,
    "number": _number,
    "append": lambda raw, rng: raw + rng.choice([b"\0" * 100, b"\n", rng.randbytes(50), raw, b"\x1a"]),
    "other kind": lambda raw, rng: (
        rng.choice(_HEADS) + rng.choice([b"", bytes(200), rng.randbytes(200), raw])
    ),
}

#: What becomes of a piece of it.
_PIECE = {
    "drop": lambda piece, rng: b"",
    "repeat": lambda piece, rng: piece * (1 + rng.choice([1, 1, 3, 40])),
    "fill": lambda piece, rng: bytes([rng.choice([0, 0xFF, 0x41, 0x0A])]) * len(piece),
    "noise": lambda piece, rng: rng.randbytes(len(piece)),
}

_BYTES = ["flip", "flip", "flip", "cut", "cut", "cut front", "drop", "repeat", "swap", "fill", "noise", "insert", "number",
          "number", "append", "other kind"]  # fmt: skip


def spoiled(raw, rng):
    """Bytes that are spoiled whatever they mean, and how."""
    how = rng.choice(_BYTES)
    if how in _WHOLE:
        return how, _WHOLE[how](raw, rng)
    start, stop = _span(raw, rng)
    return how, raw[:start] + _PIECE[how](raw[start:stop], rng) + raw[stop:]


def of_bytes(path, rng):
    how, raw = spoiled(path.read_bytes(), rng)
    path.write_bytes(raw)
    return how


def of_text(path, rng):
    """Spoil lines, cells and the encoding of a text file."""
    raw = path.read_bytes()
    lines = raw.split(b"\n")
    at = rng.randrange(len(lines))
    kind = rng.choice(["cell", "cell", "cell", "cell", "line", "encoding", "many", "separator"])
    if kind == "cell":
        separator = b"," if b"," in raw else b" "
        cells = lines[at].split(separator)
        k = rng.randrange(len(cells))
        how, old = rng.choice(["set", "set", "set", "drop", "twice", "inside"]), cells[k]
        if how in ("drop", "twice"):
            cells[k : k + 1] = [] if how == "drop" else [old, old]
        else:
            token = rng.choice(_TOKENS)
            cells[k] = token if how == "set" else old[:1] + token + old[1:]
        lines[at] = separator.join(cells)
        raw = b"\n".join(lines)
    elif kind == "line":
        how = rng.choice(["drop", "twice", "swap", "empty", "only", "token"])
        other = rng.randrange(len(lines))
        if how == "drop":
            del lines[at]
        elif how == "twice":
            lines.insert(other, lines[at])
        elif how == "swap":
            lines[at], lines[other] = lines[other], lines[at]
        elif how == "empty":
            lines.insert(at, rng.choice([b"", b"   ", b",,,,", b"#", b"\t"]))
        elif how == "only":
            lines = lines[at : at + rng.choice([1, 2])]
        else:
            lines[at] = rng.choice(_TOKENS)
        raw = b"\n".join(lines)
    elif kind == "encoding":
        text = raw.decode("utf-8", "replace")
        name = rng.choice(["utf-16", "utf-16-le", "utf-32", "utf-7", "utf-8-sig", "cp037"])
        raw = text.encode(name, "replace")
    elif kind == "many":
        token = rng.choice(_TOKENS)
        raw = b"\n".join(line if rng.random() < 0.7 else line + b"," + token for line in lines)
    else:
        raw = raw.replace(*rng.choice([(b",", b";"), (b"\n", b"\r\n"), (b"\n", b"\r"), (b".", b","), (b"\n", b" "), (b",", b",,"),
                                       (b":", b"="), (b" ", b"  "), (b"0", b""), (b"1", b"-1"), (b"\n", b"\n\n")]))  # fmt: skip
    path.write_bytes(raw)
    return f"text {kind}"


def _places(value, where=()):
    found = [where] if where else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        found += _places(item, (*where, key))
    return found


def _near(old, rng):
    """A value of the same type but another: what a hand edit gives."""
    if isinstance(old, bool):
        return not old
    if isinstance(old, int):
        return rng.choice([old + 1, old - 1, -old, 0, old * 1000, float(old), str(old)])
    if isinstance(old, float):
        return rng.choice([-old, old * 1e300, 0.0, old + 1, int(old) if abs(old) < 1e300 else 0])
    if isinstance(old, str):
        return rng.choice([old.upper(), old + "x", old[:-1], old[::-1], " " + old])
    if isinstance(old, list):
        return rng.choice([old[:-1], old + old, old[::-1], dict(enumerate(old))])
    return rng.choice(_VALUES)


def change(tree, rng, values=_VALUES):
    """Other keys and values somewhere in a tree."""
    done = []
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        places = _places(tree)
        if not places:
            break
        *way, last = rng.choice(places)
        parent = tree
        for key in way:
            parent = parent[key]
        how = rng.choice(["value", "value", "near", "near", "drop", "add"])
        done.append(f"{how} {'.'.join(map(str, [*way, last]))}")
        if how == "value":
            parent[last] = deepcopy(rng.choice(values))
        elif how == "near":
            parent[last] = _near(parent[last], rng)
        elif how == "drop":
            del parent[last]
        elif isinstance(parent, dict):
            parent[rng.choice(["x", "", "name", "é", "a b", "version", "lambda"])] = deepcopy(
                deepcopy(rng.choice(values))
            )
        else:
            parent.insert(rng.randrange(len(parent) + 1), deepcopy(rng.choice(values)))
    return ", ".join(done)


def _tomlable(value):
    if isinstance(value, dict):
        return {str(k): _tomlable(v) for k, v in value.items() if v is not None}
    if isinstance(value, list):
        return [_tomlable(v) for v in value if v is not None]
    return value


def of_toml(path, rng):
    """Change keys and values of a TOML document that stays TOML."""
    import tomli_w

    tree = tomllib.loads(path.read_text(encoding="utf-8"))
    done = change(tree, rng)
    path.write_text(tomli_w.dumps(_tomlable(tree)), encoding="utf-8", errors="surrogatepass")
    return f"TOML {done}"


def of_json(path, rng):
    """Change keys and values of a JSON document, or of one line of JSON lines."""
    text = path.read_text(encoding="utf-8").rstrip("\n")
    lines, at, indent = [text], 0, 2
    try:
        box = [json.loads(text)]
    except ValueError:
        lines, indent = text.split("\n"), None
        at = rng.randrange(len(lines))
        try:
            box = [json.loads(lines[at])]
        except ValueError:
            return of_bytes(path, rng)
    done = change(box, rng)
    lines[at] = json.dumps(box[0] if box else None, indent=indent)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return f"JSON {done}"


def _arrays(rng, like):
    """A dataset's new value: other values, dtype, shape or kind."""
    n = like.shape[0] if like is not None and like.ndim else 5
    choices = [
        lambda: np.zeros(0), lambda: np.zeros((0, 3)), lambda: np.float64(1.5), lambda: np.int64(-1), lambda: np.zeros((n, 0)),
        lambda: np.full(n, np.nan), lambda: np.full(n, 2**62), lambda: np.full(n, -1), lambda: np.zeros((n, 2, 2)),
        lambda: np.zeros(n, dtype=np.complex128), lambda: np.zeros(n, dtype=np.uint64), lambda: np.ones(n, dtype=bool),
        lambda: np.zeros(n, dtype=[("a", "<f8"), ("b", "<i4")]), lambda: np.array([b"x" * 9] * n), lambda: "text", lambda: b"\xff\xfe",
        lambda: np.zeros(n, dtype=np.float16), lambda: np.zeros(n, dtype=">f8"), lambda: np.zeros((n, 400)),
    ]  # fmt: skip
    if like is not None and like.ndim and like.size and like.dtype.kind in "biuf":
        choices += [
            lambda: like[:-1], lambda: np.concatenate([like, like]), lambda: like[::-1], lambda: like.T, lambda: like.reshape(-1),
            lambda: like.astype(np.float32), lambda: like.astype(np.int32), lambda: like.astype(str).astype("S20"),
            lambda: like.astype(">f8"), lambda: like.astype(np.longdouble), lambda: rng_shuffled(like, rng),
            lambda: like * 1e300 if like.dtype.kind == "f" else like * -1, lambda: like[:, None] if like.ndim == 1 else like[:, 0],
        ]  # fmt: skip
    return rng.choice(choices)()


def rng_shuffled(array, rng):
    order = list(range(len(array)))
    rng.shuffle(order)
    return array[order]


_ATTRIBUTES = [
    -1, 0, 1, 2**62, 1.5, float("nan"), "", "x", "1.0", "0.2.0", "9.9", "csr_matrix", "array", "string-array", "dict", b"\xff\xfe",
    "sha256:" + "0" * 64, np.zeros(0), np.array([1, 2]), np.array([-5, 3]), np.array([2**40, 2**40]), np.zeros((2, 2)), True,
    np.array([1.5, 2.5]), "x" * 9000, np.array(["a", "b"], dtype=object), 1 + 2j, "y", "../x",
]  # fmt: skip


def _items(file):
    """Groups and datasets of a file; some may be deleted already."""
    items = []
    file.visititems(lambda _, item: items.append(item))
    return [item for item in items if item]


def of_hdf5(path, rng):
    """Change attributes, datasets, groups and links of an HDF5 file by way of the library."""
    import h5py

    done = []
    with h5py.File(path, "r+") as file:
        for _ in range(rng.choice([1, 1, 1, 2, 3])):
            items = _items(file)
            datasets = [item for item in items if isinstance(item, h5py.Dataset)]
            item = rng.choice([file, *items])
            how = rng.choice(["attribute", "attribute", "unattribute", "value", "value", "value", "replace", "replace", "replace",
                              "delete", "extra", "link", "rename", "resize", "move attribute", "huge"])  # fmt: skip
            if how in ("value", "replace", "resize", "huge") and datasets:
                item = rng.choice(datasets)
            done.append(f"{how} {item.name}")
            try:
                _edit(file, item, how, rng)
            except (TypeError, ValueError, OSError, KeyError, RuntimeError, OverflowError) as error:
                done[-1] += f" (not possible: {type(error).__name__})"
    return "HDF5 " + ", ".join(done)


def _edit(file, item, how, rng):
    import h5py

    name, parent = item.name.rsplit("/", 1)[-1], item.parent
    if how == "attribute":
        item.attrs[rng.choice([*item.attrs, "extra"])] = rng.choice(_ATTRIBUTES)
    elif how == "unattribute":
        del item.attrs[rng.choice(list(item.attrs))]
    elif how == "move attribute":
        item.attrs[rng.choice(list(item.attrs))] = file.attrs[rng.choice(list(file.attrs))]
    elif how == "value":
        k = rng.randrange(max(1, item.shape[0]))
        index = (k, *(rng.randrange(n) for n in item.shape[1:]))
        kinds = {
            "O": ["", "x", "é", "\u202e", "x" * 5000, "a\nb", b"\xff\xfe", "id", "y"],
            "f": [np.nan, np.inf, -np.inf, 1e308, -1e308, 5e-324, 0.0, -1.0, 0.5, 1e17],
        }
        item[index] = rng.choice(kinds.get(item.dtype.kind, [-1, 0, 1, 2**31 - 1, -(2**31), 2**20, 7]))
    elif how in ("replace", "huge"):
        attributes = dict(item.attrs)
        old = item[()] if item.shape is not None else None
        old = old if isinstance(old, np.ndarray) else None
        del parent[name]
        if how == "huge":
            shape = rng.choice([(2**40,), (2**40, 2), (2**31, 4), (10**6, 10**6)])
            parent.create_dataset(name, shape=shape, chunks=tuple(min(n, 1024) for n in shape), dtype="<f8")
        elif rng.random() < 0.1:
            parent[name] = h5py.Empty("f8")
        else:
            value = _arrays(rng, old)
            options = {"fletcher32": True} if np.ndim(value) and np.size(value) and rng.random() < 0.5 else {}
            parent.create_dataset(name, data=value, **options)
        if rng.random() < 0.8:
            parent[name].attrs.update(attributes)
    elif how == "delete":
        del parent[name]
    elif how == "extra":
        group = item if isinstance(item, h5py.Group) else parent
        group[rng.choice(["y", "extra", "data", "é", "names", "transform"])] = _arrays(rng, None)
    elif how == "link":
        target = rng.choice(
            [h5py.SoftLink("/"), h5py.SoftLink("/nowhere"), h5py.ExternalLink("other.h5", "/X"), file["/"]]
        )
        del parent[name]
        parent[name] = target
    elif how == "rename":
        parent.move(name, rng.choice(["x", "X", name.upper() + "_", "data"]))
    elif how == "resize":
        item.resize(
            rng.choice([0, 1, max(0, item.shape[0] - 1), item.shape[0] + 1, item.shape[0] * 2]), axis=0
        )


def of_npz(path, rng):
    with np.load(path) as file:
        arrays = dict(file)
    key = rng.choice(list(arrays))
    how = rng.choice(["array", "array", "drop", "pickle", "rename", "value", "value"])
    if how == "array":
        arrays[key] = np.asarray(_arrays(rng, arrays[key]))
    elif how == "drop":
        del arrays[key]
    elif how == "pickle":
        arrays[key] = np.array([{"a": 1}, None, "x"], dtype=object)
    elif how == "rename":
        arrays[rng.choice(["Z", "indices", "data", "shape", "é"])] = arrays.pop(key)
    elif arrays[key].size and (kind := arrays[key].dtype.kind) in "iuf":
        value = rng.choice([np.nan, np.inf, -np.inf, 1e308, -0.0] if kind == "f" else [-1, 0, 2**31 - 1, 99])
        arrays[key] = arrays[key].copy()
        arrays[key].reshape(-1)[rng.randrange(arrays[key].size)] = value
    save = rng.choice([np.savez, np.savez_compressed])
    with open(path, "wb") as out:
        save(out, **arrays)
    return f"NPZ {how} {key}"


def of_parquet(path, rng):
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    k = rng.randrange(table.num_columns)
    n, name = table.num_rows, table.column_names[k]
    columns = {
        "nulls": lambda: pa.array([None] * n, type=pa.float64()),
        "nan": lambda: pa.array([float("nan") if rng.random() < 0.2 else 1.0 for _ in range(n)]),
        "lists": lambda: pa.array([[1, 2]] * n),
        "decimals": lambda: pa.array([1] * n, type=pa.int64()).cast(pa.decimal128(25, 2)),
        "dates": lambda: pa.array([7] * n, type=pa.int64()).cast(pa.timestamp("ns")),
        "binary": lambda: pa.array([b"\xff\xfe"] * n),
        "dictionary": pa.array(["a", "b"] * n)[:n].dictionary_encode,
        "text": lambda: pa.array([rng.choice(["x", "", " ", "é", "\0", "1", "nan"]) for _ in range(n)]),
        "bool": lambda: pa.array([bool(i % 2) for i in range(n)]),
        "large": lambda: pa.array([2**60 + i for i in range(n)], type=pa.int64()),
    }
    how = rng.choice(
        [*columns, "drop", "twice", "rename", "no rows", "double rows", "compression", "odd name"]
    )
    if how in columns:
        table = table.set_column(k, name, columns[how]())
    elif how == "drop":
        table = table.remove_column(k)
    elif how == "twice":
        table = table.append_column(name, table.column(k))
    elif how in ("rename", "odd name"):
        new = "other" if how == "rename" else rng.choice(["", "a\nb", "é", "x" * 3000, "\0", "a,b", '"'])
        table = table.rename_columns([new if c == name else c for c in table.column_names])
    elif how == "no rows":
        table = table.slice(0, 0)
    elif how == "double rows":
        table = pa.concat_tables([table, table])
    codecs = ["none", "snappy", "gzip", "zstd", "lz4", "brotli"]
    codec = rng.choice(codecs) if how == "compression" else "snappy"
    pq.write_table(table, path, compression=codec, row_group_size=rng.choice([1, 7, 1000]))
    return f"Parquet {how} {name}"


def compressed(inner, kind):
    """Spoil a compressed file: its bytes, or the text within."""
    module = {"gz": gzip, "bz2": bz2, "xz": lzma}[kind]

    def change(path, rng):
        if rng.random() < 0.6:
            return of_bytes(path, rng)
        path.write_bytes(module.decompress(path.read_bytes()))
        done = inner(path, rng)
        path.write_bytes(module.compress(path.read_bytes()))
        return f"{kind} {done}"

    return change


def of_pipe(path, rng):
    """A pipe that nobody writes to, a directory, a device or nothing in the file's place."""
    path.unlink()
    how = rng.choice(["pipe", "directory", "link to a device", "nothing"])
    if how == "pipe":
        os.mkfifo(path)
    elif how == "directory":
        path.mkdir()
    elif how == "link to a device":
        path.symlink_to("/dev/zero")
    return f"a {how} instead"


def of_bomb(path, rng):
    """Gigabytes of zeros in a few megabytes, whole and with checksums, in a dataset's place."""
    import h5py

    with h5py.File(path, "r+") as file:
        old = rng.choice([item for item in _items(file) if isinstance(item, h5py.Dataset)])
        name, dtype, attributes, ndim = old.name, old.dtype, dict(old.attrs), max(1, old.ndim)
        if dtype.kind not in "iuf":
            return of_hdf5(path, rng)
        del file[name]
        rows = rng.choice([2**25, 2**28])
        chunk = (2**20, *[1] * (ndim - 1))
        item = file.create_dataset(
            name, shape=(rows, *[1] * (ndim - 1)), chunks=chunk, dtype=dtype, compression="gzip"
        )
        item.attrs.update(attributes)
        packed = zlib.compress(bytes(2**20 * dtype.itemsize), 1)
        for start in range(0, rows, 2**20):
            item.id.write_direct_chunk((start, *[0] * (ndim - 1)), packed)
    return f"bomb {name}"


def of_number(path, rng):
    """Another number, of the right kind, in a file that stays whole."""
    import h5py

    values = [-1e9, -1.0, -1e-300, 0.0, 1e-300, 1e9, 1e149, 1e151, 1e308, np.nan, np.inf, -np.inf]
    with h5py.File(path, "r+") as file:
        places = []
        for item in _items(file):
            if isinstance(item, h5py.Dataset) and item.size and item.dtype.kind == "f":
                places.append((item, None))
            places += [
                (item, key) for key, value in item.attrs.items() if isinstance(value, (float, np.floating))
            ]
        if not places:
            return of_hdf5(path, rng)
        item, key = rng.choice(places)
        value = deepcopy(rng.choice(values))
        if key is not None:
            item.attrs[key] = value
            return f"number {item.name}.{key} = {value}"
        with np.errstate(over="ignore"):
            flat = item[()].reshape(-1)
            flat[:: rng.choice([1, max(1, flat.size)])] = value
        item[...] = flat.reshape(item.shape)
        return f"number {item.name} = {value}"


def mutations_of(path, foreign=False):
    """What can be done to a file, by the end of its name; what is aimed at the contents comes more often.

    `foreign`: also what only somebody else would put there.
    """
    kinds = {
        ".h5": [of_bytes, of_hdf5, of_hdf5],
        ".toml": [of_text, of_bytes, of_toml, of_toml],
        ".json": [of_text, of_bytes, of_json, of_json],
        ".jsonl": [of_text, of_bytes, of_json, of_json],
        ".npz": [of_bytes, of_npz],
        ".parquet": [of_bytes, of_bytes, of_parquet],
        ".gz": [compressed(of_text, "gz")],
        ".bz2": [compressed(of_text, "bz2")],
        ".xz": [compressed(of_text, "xz")],
    }
    found = kinds.get(path.suffix, [of_bytes, of_text, of_text])
    if not foreign:
        return found
    return [*found, *found, of_pipe, *([of_bomb, of_number, of_number] if path.suffix == ".h5" else [])]
