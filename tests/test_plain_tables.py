"""CSV tables of numbers: pandas reads the same rows as the reader that names faults."""

import numpy as np
import pytest
from fastadmm.data_tools import libsvm, opening, tables, threads
from fastadmm.data_tools.blocks import Block
from fastadmm.data_tools.csv_source import CsvSource
from fastadmm.data_tools.csv_table import is_number
from fastadmm.errors import FastadmmError
from scipy import sparse

#: Cells at the edge of what is a plain number.
CELLS = [
    "0", "-0", "+1", ".5", "-.25", "5.", "007", "1e5", "1E-05", "1e22", "1e23", "1e400", "1e-400", "5e-324",
    "2.2250738585072014e-308", "9007199254740993", "0.1234567890123456789012", "123456789012345678901",
    "1.7976931348623157e308", "1e00005", "", "-", ".", "e5", "1e", "1e+", "--1", "+-1", "1.2.3", "0x10",
    "1_0", "nan", "inf", "NA", " 1", "1 ", "\t1", "1\x0b", "é", "1\0", '"1"', "a", "1;2",
]  # fmt: skip


def write(path, lines, end="\n"):
    path.write_bytes("".join(line + end for line in lines).encode())
    return path


def read(path):
    """All rows with their notes, or what is wrong with them."""
    try:
        source = CsvSource(path, label="y")
        rows, labels = [], []
        for block in source.blocks():
            rows += block.X.view(np.int64).tolist()
            labels += [float(label) if is_number(str(label)) else label for label in block.labels.tolist()]
    except FastadmmError as error:
        return f"{type(error).__name__}: {error}"
    return repr((rows, labels, source.table.notes))


#: Bytes from which pandas reads: at once, or never.
WAYS = 0, 1 << 30


@pytest.mark.representatives(1)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_every_cell_is_read_or_refused_as_row_by_row(tmp_path, monkeypatch, end):
    plain = [f"{k},{k / 7!r},{k % 2}" for k in range(40)]
    for k, cell in enumerate(CELLS):
        for line in (f"{cell},1,0", f"1,{cell},1", f"1,2,{cell}"):
            path = write(tmp_path / f"{k}.csv", ["a,b,y", *plain, line, *plain], end)
            seen = []
            for way in WAYS:
                monkeypatch.setattr(tables, "LARGE", way)
                monkeypatch.setattr(opening, "BLOCK_BYTES", 300)
                seen.append(read(path))
            assert seen[0] == seen[1], (cell, line)


@pytest.mark.parametrize(
    "lines",
    [
        *(["a,b,y", "", "1,2,0", "", "3,4,1", ""], ["a,b,y", "1,2,0", "3,4"]),
        *(["a,b,y", "1,2,0", "3,4,1,5"], ["a,b,y", "1,2,0", "  ", "3,4,1"], ["a,b,y", "1,2,0\r3,4,1"]),
        *(["\ufeffa,b,y", "1,2,0", "3,4,1"], ["a;b;y", "1;2;0", "3;4;1"]),
        *(["a\tb\ty", "1\t2\tno", "3\t4\tyes"], ["a,b,y", "1,2,no", "3,4, yes ", "5,6,1"]),
        *(
            ["a,b,y", "\ufeff1,2,0"],
            ["a,b,y", "1,2,a", "3,4,9007199254740993"],
            ["a,b,y", "1,2,0", "3,4,"],
            ["a,b,y", "1,2,0", '3,4,"1"'],
            ["a,b,y", "1,007,0", "3,4,1"],
        ),
        *(['"a\nb",c,y', "1,2,0", "3,4,1"], ["a,b,y"]),
    ],
)
def test_tables_of_every_shape_are_read_alike(tmp_path, monkeypatch, lines):
    for text in ("\n".join(lines) + "\n", "\n".join(lines)):
        path = tmp_path / "a.csv"
        path.write_bytes(text.encode())
        for block_bytes in (5, 12, 1 << 20):
            seen = []
            for way in WAYS:
                monkeypatch.setattr(tables, "LARGE", way)
                monkeypatch.setattr(opening, "BLOCK_BYTES", block_bytes)
                seen.append(read(path))
            assert seen[0] == seen[1], (text, block_bytes)


@pytest.mark.parametrize("most", [0, 1 << 20, 1 << 30])
def test_what_is_kept_comes_back_to_the_last_bit(tmp_path, monkeypatch, most):
    monkeypatch.setattr(libsvm, "CACHE_BYTES", most)
    kept = libsvm._Kept(tmp_path)
    rng = np.random.default_rng(0)
    kinds = [
        *(np.ones(3000), np.arange(3000.0), np.arange(3000.0) * 20, np.full(3000, 0.25)),
        *(rng.standard_normal(3000), np.r_[np.ones(2000), -0.0], np.r_[np.ones(2000), 1e300], np.zeros(0)),
    ]
    blocks = []
    for data in kinds:
        for top in (100, 60_000, 2**31 - 2):
            indices = np.sort(rng.integers(0, top, len(data))).astype(np.int32)
            X = sparse.csr_array((data, indices, np.array([0, len(data)], dtype=np.int32)), shape=(1, top))
            blocks.append(Block(X, np.zeros(1)))
            kept.put(blocks[-1])
    for block, back in zip(blocks, kept.blocks(), strict=True):
        for key in ("data", "indices", "indptr"):
            one, other = getattr(block.X, key), getattr(back.X, key)
            assert one.dtype == other.dtype
            assert one.tobytes() == other.tobytes()


def test_errors_on_threads_are_those_of_the_first_item():
    seen: list[int] = []
    with threads.on_threads(3) as every:
        every(seen.append, range(20))
        assert sorted(seen) == list(range(20))
        with pytest.raises(ZeroDivisionError):
            every(lambda i: seen.append(1 // (i - 2)), range(5))
