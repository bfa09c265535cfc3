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
from fastadmm.errors import ExitCode

from run_tools import run_process

INPUT, STORAGE, FORMAT = ExitCode.INPUT, ExitCode.STORAGE, ExitCode.FORMAT
SVM = b"".join(b"%d 1:%d 2:1 %d:0.5\n" % (i % 2, i + 1, 3 + i % 3) for i in range(40))
CSV = b"age,bmi,y\n" + b"".join(b"%d,2%d.5,%d\n" % (20 + i, i % 10, i % 2) for i in range(40))
TWO, LABEL = "--parties 2", "--parties 2 --label y"


def npz(**arrays):
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
    bad("csv empty", b"", "bad.csv: file is empty", LABEL),
    bad("svm binary", bytes(range(1, 256)) * 40, "bad.svm: line 1: label"),
    # compression
    bad("bz2 cut", bz2.compress(SVM * 99)[:-20], "bad.bz2: bzip2 data end early"),
    bad("gz cut", gzip.compress(SVM * 99)[:-20], "bad.gz: gzip data end early"),
    bad("xz cut", lzma.compress(SVM * 99)[:-40], "bad.xz: xz data end early"),
    bad("bz2 head only", b"BZh9", "bad.bz2: bzip2 data end early"),
    bad("bz2 junk", b"BZh9" + b"junk" * 9, "bad.bz2: bzip2 data are damaged"),
    bad("gz junk", b"\x1f\x8b" + b"junk" * 9, "bad.gz: gzip data are damaged"),
    bad("gz crc", gzip.compress(SVM)[:-8] + bytes(8), "bad.gz: gzip data are damaged"),
    bad("gz csv cut", gzip.compress(CSV * 99)[:-20], "bad.csv.gz: gzip data end early", LABEL),
    bad("zstd", b"\x28\xb5\x2f\xfd" + bytes(9), "bad.zst: is compressed with zstd"),
    bad("hdf5", b"\x89HDF\r\n\x1a\n" + bytes(9), "bad.h5: is an HDF5 file"),
    bad("npy", b"\x93NUMPY" + bytes(9), "bad.npy: is a single .npy"),
    # NPZ
    bad("npz not zip", b"hello", "bad.npz: not an NPZ file"),
    bad("npz cut", npz(X=X, y=Y)[:-40], "bad.npz: damaged or truncated NPZ"),
    bad("npz no arrays", b"PK\x05\x06" + bytes(18), "bad.npz: is a zip archive without arrays"),
    bad("npz no X", npz(Z=X, y=Y), "bad.npz: no array 'X'"),
    bad("npz no y", npz(X=X), "bad.npz: no array 'y'"),
    bad("npz pickle", npz(X=np.array([[None]]), y=Y), "bad.npz: array 'X' holds Python objects"),
    bad("npz text", npz(X=X.astype(str), y=Y), "bad.npz: array 'X' has type <U"),
    bad("npz 3-d", npz(X=X[None], y=Y), r"bad.npz: array 'X' has shape \(1, 4, 3\)"),
    bad("npz lengths", npz(X=X, y=Y[:3]), "bad.npz: array 'y' has shape"),
    bad("npz nan", npz(X=np.where(X == 7, np.nan, X), y=Y), "bad.npz: row 3, column 2: nan"),
    bad("npz no rows", npz(X=X[:0], y=Y[:0]), "bad.npz: no rows"),
    *(
        bad(f"npz {key}", npz(**CSR | {key: np.array(values)}), f"bad.npz: .* are no CSR matrix: .*{why}")
        for key, values, why in (
            ("indices", [0, 1, 9], "3"),
            ("indices", [0, -1, 1], "0"),
            ("indices", [1.0, 1.0, 1.0], "type float64"),
            ("indptr", [0, 2, 1, 3, 3], "indptr|index pointer"),
            ("indptr", [0, 2], "index pointer"),
            ("indptr", [0, 1, 2, 3, 4], ""),
        )
    ),
    bad("npz vector", npz(X=X[0], y=Y), r"bad.npz: array 'X' has shape \(3,\)"),
    bad("npz complex", npz(X=X + 1j, y=Y), "bad.npz: array 'X' has type complex128"),
    bad("npz label inf", npz(X=X, y=np.where(Y, np.inf, 0.0)), "bad.npz: array 'y', row 2: label inf"),
    bad("npz no columns", npz(X=X[:, :0], y=Y), "bad.npz: no feature columns"),
    bad(
        "npz twice",
        npz(**CSR | {"indptr": np.array([0, 0, 2, 3, 3]), "indices": np.array([1, 1, 2])}),
        "bad.npz: row 2, column 2: appears twice",
    ),
    bad("npz data inf", npz(**CSR | {"data": np.array([1, 2, np.inf])}), "bad.npz: row 3, column 3: inf"),
    bad("npz shape", npz(**CSR | {"shape": np.array([4, 3, 1])}), "bad.npz: .*'shape' must hold two"),
    bad("npz csc", npz(**CSR | {"format": np.array(b"csc")}), "bad.npz: sparse format 'csc'"),
    bad(
        "npz tall lie",
        archive(X=npy_with_shape((10**12, 3)), y=npy_with_shape((10**12,))),
        "bad.npz: array 'X' is damaged: Unable to allocate",
    ),
    bad(
        "npz wide lie",
        archive(X=npy_with_shape((8, 10**12)), y=npy_with_shape((8,))),
        "bad.npz: array 'X' is damaged: Unable to allocate",
    ),
    bad("npz junk member", archive(X=b"junk", y=b"junk"), "bad.npz: array 'X' has type of no array"),
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


# --- in a process of its own -----------------------------------------------------------------------------
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


def test_interrupt_exits_130(tmp_path):
    (tmp_path / "a.svm").write_bytes(SVM)
    prelude = (
        "import fastadmm.data_tools.convert as c, os, signal\n"
        "old = c.Scan\n"
        "def scan(*a): os.kill(os.getpid(), signal.SIGINT); return old(*a)\n"
        "c.Scan = scan\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)"
    )
    code, _, err = run_process(
        "convert", "a.svm", "-o", "out.parts", *TWO.split(), cwd=tmp_path, prelude=prelude
    )
    assert code == ExitCode.INTERRUPTED
    assert err == "fastadmm: interrupted\n"
    assert os.listdir(tmp_path) == ["a.svm"]


def test_unprintable_names_stay_on_one_line(tmp_path):
    name = "a\n\x1b[31m.svm"
    (tmp_path / name).write_bytes(SVM + b"1 1:x\n")
    code, _, err = run_process("convert", name, "-o", "out.parts", *TWO.split(), cwd=tmp_path)
    check(code, err, INPUT, "line 41")
    assert "\x1b" not in err
