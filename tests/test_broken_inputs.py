"""Broken sources through the command line: one line naming file and place, an exit code, nothing left."""

import bz2
import gzip
import io
import lzma
import os
import re
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from fastadmm.cli.app import main
from fastadmm.data_tools import matrices, opening, tables
from fastadmm.data_tools.matrices import NpzSource
from fastadmm.data_tools.opening import SourceFile
from fastadmm.data_tools.owners import CsvSource
from fastadmm.data_tools.per_table import TableOptions
from fastadmm.errors import ExitCode, InputError
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from run_tools import run_process

INPUT, STORAGE, FORMAT = ExitCode.INPUT, ExitCode.STORAGE, ExitCode.FORMAT
SVM = b"".join(b"%d 1:%d 2:1 %d:0.5\n" % (i % 2, i + 1, 3 + i % 3) for i in range(40))
CSV = b"age,bmi,y\n" + b"".join(b"%d,2%d.5,%d\n" % (20 + i, i % 10, i % 2) for i in range(40))
TWO, LABEL = "--parties 2", "--parties 2 --label y"


def packed(**arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def npy_with_shape(shape):
    """An array file whose header promises more than there is."""
    header = str({"descr": "<f8", "fortran_order": False, "shape": shape}).encode().ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64)


def archive(**members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as target:
        for name, data in members.items():
            target.writestr(f"{name}.npy", data)
    return buffer.getvalue()


def bad(id, content, message, arguments=TWO):
    """A bad file, whose name begins the message."""
    return pytest.param(content, message, arguments, id=id)


X, Y = np.arange(12.0).reshape(4, 3), np.array([0, 1, 0, 1])
CSR = {
    "data": np.ones(3),
    "indices": np.array([0, 1, 2]),
    "indptr": np.array([0, 1, 2, 3, 3]),
    "shape": np.array([4, 3]),
    "y": Y,
}

CASES = [
    # texts: error_lines.txt
    bad("svm empty", b"", "bad.svm: file is empty"),
    bad("svm binary", bytes(range(1, 256)) * 40, "bad.svm: line 1: label"),
    # compression
    bad("bz2 cut", bz2.compress(SVM * 99)[:-20], "bad.bz2: bzip2 data are damaged or truncated after"),
    bad("gz cut", gzip.compress(SVM * 99)[:-20], "bad.gz: gzip data are damaged or truncated after"),
    bad("xz cut", lzma.compress(SVM * 99)[:-40], "bad.xz: xz data are damaged or truncated after"),
    bad("bz2 head only", b"BZh9", "bad.bz2: bzip2 data are damaged or truncated after"),
    bad("bz2 junk", b"BZh9" + b"junk" * 9, "bad.bz2: bzip2 data are damaged"),
    bad("gz junk", b"\x1f\x8b" + b"junk" * 9, "bad.gz: gzip data are damaged"),
    bad("gz crc", gzip.compress(SVM)[:-8] + bytes(8), "bad.gz: gzip data are damaged"),
    bad(
        "gz csv cut",
        gzip.compress(CSV * 99)[:-20],
        "bad.csv.gz: gzip data are damaged or truncated after",
        LABEL,
    ),
    bad("zstd", b"\x28\xb5\x2f\xfd" + bytes(9), "bad.zst: is no table .it begins as zstd"),
    bad("hdf5", b"\x89HDF\r\n\x1a\n" + bytes(9), r"bad.h5: is no table .* as HDF5\); convert reads"),
    # NPZ
    bad("npz not zip", b"hello", "bad.npz: not an NPZ file"),
    bad("npz cut", packed(X=X, y=Y)[:-40], "bad.npz: damaged or truncated NPZ"),
    bad(
        "npz changed",
        packed(X=X, y=Y).replace(X.tobytes(), (X + 1.0).tobytes()),
        "bad.npz: array 'X' is damaged: Bad CRC",
    ),
    bad("npz no arrays", b"PK\x05\x06" + bytes(18), "bad.npz: is a zip archive without arrays"),
    bad("npz no X", packed(Z=X, y=Y), "bad.npz: no array 'X'"),
    bad("npz no y", packed(X=X), "bad.npz: no array 'y'"),
    bad("npz pickle", packed(X=np.array([[None]]), y=Y), "bad.npz: array 'X' holds Python objects"),
    bad("npz text", packed(X=X.astype(str), y=Y), "bad.npz: array 'X' has type <U"),
    bad("npz 3-d", packed(X=X[None], y=Y), r"bad.npz: array 'X' has shape \(1, 4, 3\)"),
    bad("npz lengths", packed(X=X, y=Y[:3]), "bad.npz: array 'y' has shape"),
    bad("npz nan", packed(X=np.where(X == 7, np.nan, X), y=Y), "bad.npz: row 3, column 2: nan"),
    bad("npz no rows", packed(X=X[:0], y=Y[:0]), "bad.npz: no rows"),
    *(
        bad(f"npz {key}", packed(**CSR | {key: np.array(values)}), f"bad.npz: no sparse matrix .*: .*({why})")
        for key, values, why in (
            ("indices", [0, 1, 9], "3"),
            ("indices", [0, -1, 1], "0"),
            ("indices", [1.0, 1.0, 1.0], "type float64"),
            ("indptr", [0, 2, 1, 3, 3], "indptr|index pointer"),
            ("indptr", [0, 2], "index pointer"),
            ("indptr", [0, 1, 2, 3, 4], ""),
            ("indptr", [0, 1, 2, 2, 2], "3 data, but 'indptr' ends at 2"),
            ("data", np.ones(3, np.float16), "type float16"),
        )
    ),
    bad("npz vector", packed(X=X[0], y=Y), r"bad.npz: array 'X' has shape \(3,\)"),
    bad("npz complex", packed(X=X + 1j, y=Y), "bad.npz: array 'X' has type complex128"),
    bad("npz label inf", packed(X=X, y=np.where(Y, np.inf, 0.0)), "bad.npz: array 'y', row 2: label inf"),
    bad("npz no columns", packed(X=X[:, :0], y=Y), "bad.npz: no feature columns"),
    bad(
        "npz twice",
        packed(**CSR | {"indptr": np.array([0, 0, 2, 3, 3]), "indices": np.array([1, 1, 2])}),
        "bad.npz: rows 1 to 4: a column appears twice",
    ),
    bad("npz data inf", packed(**CSR | {"data": np.array([1, 2, np.inf])}), "bad.npz: row 3, column 3: inf"),
    bad("npz shape", packed(**CSR | {"shape": np.array([4, 3, 1])}), r"bad.npz: .* shape \[4, 3, 1\]"),
    bad("npz csc", packed(**CSR | {"format": np.array(b"csc")}), "bad.npz: no sparse matrix .*index pointer"),
    bad(
        "npz dia",
        packed(format=b"dia", data=np.ones((1, 4)), offsets=[2**32], shape=[4, 4], y=Y),
        "bad.npz: no sparse matrix .*: offsets beyond the matrix",
    ),
    bad("npz pickled csr", packed(**CSR | {"data": np.array([None])}), "bad.npz: no sparse matrix .*pickle"),
    bad(
        "npz tall lie",
        archive(X=npy_with_shape((10**12, 3)), y=npy_with_shape((10**12,))),
        "bad.npz: array '[Xy]' is damaged: Unable to allocate",
    ),
    bad(
        "npz wide lie",
        archive(X=npy_with_shape((8, 10**12)), y=npy_with_shape((8,))),
        "bad.npz: array '[Xy]' is damaged: Unable to allocate",
    ),
    bad("npz junk member", archive(X=b"junk", y=b"junk"), "bad.npz: array 'y' has type of no array"),
]


def check(code, stderr, case_code, message):
    lines = stderr.splitlines()
    assert len(lines) == 1, stderr
    assert re.search(message, lines[0]), lines[0]
    assert lines[0].startswith("fastadmm: error: ")
    assert code == case_code, lines[0]


@pytest.mark.parametrize(("content", "message", "arguments"), CASES)
def test_broken_source(content, message, arguments, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    name = message.partition(":")[0]
    Path(name).write_bytes(content)
    with pytest.raises(SystemExit) as stop:
        main(["convert", name, "-o", "out.parts", *arguments.split()])
    out, err = capsys.readouterr()
    assert out == ""
    check(stop.value.code, err, INPUT, message)
    assert os.listdir() == [name]


def test_permissions():
    # As root, give up the rights of root after the imports; pytest's own directory would be closed to others.
    prelude = (
        "import os, sklearn.datasets, fastadmm.data_tools.convert, fastadmm.cli.app\n"
        "fastadmm.cli.app._register()\n"
        "os.geteuid() == 0 and os.seteuid(65534)"
    )
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        root = Path(name)
        root.chmod(0o777)
        (root / "locked").mkdir(mode=0o555)
        (root / "a.svm").write_bytes(SVM)
        (root / "secret.svm").write_bytes(SVM)
        (root / "secret.svm").chmod(0)
        for source, out, culprit in (
            ("secret.svm", "out", "secret.svm"),
            ("a.svm", "locked/out", "locked/out"),
        ):
            code, _, err = run_process("convert", source, "-o", out, *TWO.split(), cwd=root, prelude=prelude)
            check(code, err, STORAGE, f"{culprit}: cannot .*Permission denied")
        assert sorted(os.listdir(root)) == ["a.svm", "locked", "secret.svm"]


def test_too_many_open_files(tmp_path):
    np.savez(tmp_path / "a.npz", X=np.random.default_rng(0).random((50, 60)), y=np.arange(50) % 2)
    prelude = (
        "import resource, fastadmm.data_tools.convert\nresource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))"
    )
    command = ("convert", "a.npz", "-o", "out.parts", "--parties", "60")
    code, _, err = run_process(*command, cwd=tmp_path, prelude=prelude)
    check(code, err, STORAGE, r"out\.parts")
    assert os.listdir(tmp_path) == ["a.npz"]


def test_unprintable_names_stay_on_one_line(tmp_path):
    name = "a\n\x1b[31m.svm"
    (tmp_path / name).write_bytes(SVM + b"1 1:x\n")
    code, _, err = run_process("convert", name, "-o", "out.parts", *TWO.split(), cwd=tmp_path)
    check(code, err, INPUT, "line 41")
    assert "\x1b" not in err


def write(path, text):
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def collect(source):
    blocks = list(source.blocks())
    X = [block.X if isinstance(block.X, np.ndarray) else block.X.toarray() for block in blocks]
    return np.concatenate(X), np.concatenate([block.labels for block in blocks])


#: Those that are written as whole numbers above 2**53 are refused.
FLOATS = st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: not 2.0**53 <= abs(x) < 1e16)


@settings(max_examples=30, deadline=None)
@given(
    table=st.lists(
        st.lists(FLOATS, min_size=3, max_size=3),
        min_size=1,
        max_size=20,
    ),
    newline=st.sampled_from(["\n", "\r\n"]),
    quote=st.sampled_from(["", '"']),
    blank=st.booleans(),
)
def test_csv_keeps_every_bit(tmp_path_factory, table, newline, quote, blank):
    lines = ["a,y,b"] + [
        ",".join(f"{quote}{v!r}{quote}" for v in row) + (newline if blank else "") for row in table
    ]
    source = write(tmp_path_factory.mktemp("csv") / "a.csv", newline.join(lines))
    X, y = collect(CsvSource(source, TableOptions(label="y")))
    np.testing.assert_array_equal(np.column_stack([X[:, 0], y, X[:, 1]]), np.array(table))


def test_csv_variants_and_encodings(tmp_path):
    expected = [[1.0, 2.0], [3.0, 4.0]]
    texts = {
        "bom.csv": b"\xef\xbb\xbfa,y,b\n1,0,2\n3,1,4\n",
        "gz.csv.gz": gzip.compress(b"a,y,b\n1,0,2\n3,1,4\n"),
        "spaces.csv": b"a , y,b\n 1,0 ,2\n3, 1,4\n",
        "quoted.csv": b'"a","y","b"\n1,0,2\n3,1,"4"\n',
        "mac.csv": b"a,y,b\r1,0,2\r3,1,4\r",
        "break.csv": b'"a","y","b"\n"1",0,"2\n"\n3,1,4\n',
    }
    for name, text in texts.items():
        X, y = collect(CsvSource(write(tmp_path / name, text), TableOptions(label="y")))
        np.testing.assert_array_equal(X, expected, err_msg=name)
        np.testing.assert_array_equal(y, [0, 1], err_msg=name)
    source = write(tmp_path / "semi.csv", "a;y;b\n1;0;2\n3;1;4")
    np.testing.assert_array_equal(
        collect(CsvSource(source, TableOptions(separator=";", label="y")))[0], expected
    )
    source = write(tmp_path / "a.csv", b"a,b,y\n1,1,0\n1,\xff,1\n")
    with pytest.raises(InputError, match=r"line 3, column 'b': 'ÿ' is not a number"):
        CsvSource(source, TableOptions(label="y"))
    np.testing.assert_array_equal(
        collect(CsvSource(source, TableOptions(label="y", drop=["b"])))[0], [[1], [1]]
    )
    latin = CsvSource(write(tmp_path / "b.csv", b"a,\xff\n1,1\n"), TableOptions(label="ÿ"))
    assert collect(latin)[1].tolist() == [1]
    assert "read as cp1252" in latin.table.notes[0]


GOOD = "1,2,0\n" * 30


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1,,0", "line 32, column 'b': missing value"),
        ("1,x,0", "line 32, column 'b': 'x' is not a number"),
        ("1,nan,0", "line 32, column 'b': missing value"),
        ("NA,1,0", "line 32, column 'a': missing value"),
        ("-inf,1,0", "line 32, column 'a': '-inf' is not finite"),
        ("1e999,1,0", "line 32, column 'a': '1e999' is not finite"),
        ("1_0,1,0", "line 32, column 'a': '1_0' is not a number"),
        ("1,True,0", "line 32, column 'b': 'True' is not a number"),
        ("1,2", "line 32: 2 cells, but there are 3 columns"),
        ("1,2,0,", "line 32: 4 cells, but there are 3 columns"),
        ("1,2,0,9", "line 32: 4 cells, but there are 3 columns"),
        ("1,2,", "line 32, label column 'y': missing label .1 of 61 rows"),
        ("1,2,NaN", "line 32, label column 'y': missing label .1 of 61 rows"),
        ("1,2,inf", "line 32, column 'y': 'inf' is not finite"),
        ('1,"2,0', "line 32: a quote is opened and never closed"),
        ("1,2\x00,0", "line 32, column 'b': '2.x00' holds a NUL character"),
        ("   ", "line 32: 1 cells"),
    ],
)
@pytest.mark.parametrize("large", [0, 1 << 30])
def test_csv_faults_name_line_and_column(tmp_path, monkeypatch, line, message, large):
    monkeypatch.setattr(tables, "LARGE", large)
    monkeypatch.setattr(opening, "BLOCK_BYTES", 40)
    text = "a,b,y\n" + GOOD + line + "\n" + ("" if '"' in line else GOOD)
    with pytest.raises(InputError, match=f"bad.csv: {message}"):
        CsvSource(write(tmp_path / "bad.csv", text), TableOptions(label="y"))


def save(path, **arrays):
    np.savez_compressed(path, **arrays)
    return SourceFile(path)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int16, np.uint8, ">f8", bool])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npz_dense(tmp_path, dtype, order, monkeypatch):
    monkeypatch.setattr(matrices, "BLOCK_VALUES", 20)
    X = np.asarray(np.arange(60).reshape(12, 5) % 7, dtype=dtype, order=order)
    y = np.arange(12)[:, None]
    got, labels = collect(NpzSource(save(tmp_path / "a.npz", X=X, y=y)))
    assert got.dtype == np.float64
    np.testing.assert_array_equal(got, X)
    np.testing.assert_array_equal(labels, np.arange(12))


@pytest.mark.parametrize("layout", ["plain", "csr", "csc", "coo", "bsr", "dia"])
def test_npz_csr(tmp_path, layout, monkeypatch):
    monkeypatch.setattr(matrices, "BLOCK_VALUES", 7)
    rng = np.random.default_rng(0)
    dense = rng.integers(0, 3, (30, 9)) * (rng.random((30, 9)) < 0.4)
    dense[4] = 0
    X = sparse.csr_matrix(dense)
    for i in range(30):  # any order within a row is legal in SciPy
        row = slice(X.indptr[i], X.indptr[i + 1])
        X.indices[row], X.data[row] = X.indices[row][::-1].copy(), X.data[row][::-1].copy()
    if layout in ("plain", "csr"):
        arrays = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": X.shape}
        arrays |= {"format": np.array(b"csr")} if layout == "csr" else {}
    else:
        sparse.save_npz(tmp_path / "m.npz", X.asformat(layout))
        arrays = dict(np.load(tmp_path / "m.npz"))
    source = save(tmp_path / "a.npz", **arrays, y=dense[:, 0])
    reader = NpzSource(source)
    assert reader.kind == "csr"
    for block in reader.blocks():
        assert block.X.has_canonical_format
    np.testing.assert_array_equal(collect(reader)[0], dense)
