"""Large CSV tables of numbers: compiled code reads the same rows as the readers of small ones."""

import random

import numpy as np
import pytest
from fastadmm.data_tools import csv_table, large_text
from fastadmm.data_tools.blocks import Block
from fastadmm.data_tools.convert import convert
from fastadmm.data_tools.csv_table import CsvSource
from fastadmm.data_tools.large_text import powers
from fastadmm.data_tools.opening import SourceFile
from fastadmm.data_tools.spool import Spool
from fastadmm.errors import FastadmmError
from fastadmm.kernels.cells import parse_table
from scipy import sparse

import naive

#: Cells at the edge of what is a plain number.
CELLS = [
    "0", "-0", "+1", ".5", "-.25", "5.", "007", "1e5", "1E-05", "1e22", "1e23", "1e400", "1e-400", "5e-324",
    "2.2250738585072014e-308", "9007199254740993", "0.1234567890123456789012", "123456789012345678901",
    "1.7976931348623157e308", "1e00005", "", "-", ".", "e5", "1e", "1e+", "--1", "1.2.3", "0x10", "1_0",
    "nan", "inf", "NA", " 1", "1 ", "\t1", "1\x0b", "é", "1\0", '"1"', "a", "1;2",
]  # fmt: skip


def write(path, lines, end="\n"):
    path.write_bytes("".join(line + end for line in lines).encode())
    return path


def read(path, **options):
    """All rows with their notes, or what is wrong with them."""
    try:
        source = CsvSource(SourceFile(path), label="y", **options)
        blocks = [
            (block.first_row, block.X.view(np.int64).tolist(), repr(block.labels.tolist()))
            for block in source.blocks()
        ]
    except FastadmmError as error:
        return f"{type(error).__name__}: {error}"
    return repr((blocks, source.notes))


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_every_cell_is_read_or_refused_as_in_small_tables(tmp_path, monkeypatch, end):
    plain = [f"{k},{k / 7!r},{k % 2}" for k in range(40)]
    for k, cell in enumerate(CELLS):
        for line in (f"{cell},1,0", f"1,{cell},1", f"1,2,{cell}"):
            path = write(tmp_path / f"{k}.csv", ["a,b,y", *plain, line, *plain], end)
            seen = []
            for large in (1 << 30, 0):
                monkeypatch.setattr(csv_table, "LARGE", large)
                seen.append(read(path, block_bytes=300))
            assert seen[0] == seen[1], (cell, line)


@pytest.mark.parametrize(
    "lines",
    [
        *(["a,b,y", "", "1,2,0", "", "3,4,1", ""], ["a,b,y", "1,2,0", "3,4"]),
        *(["a,b,y", "1,2,0", "3,4,1,5"], ["a,b,y", "1,2,0", "  ", "3,4,1"], ["a,b,y", "1,2,0\r3,4,1"]),
        *(["\ufeffa,b,y", "1,2,0", "3,4,1"], ["a;b;y", "1;2;0", "3;4;1"]),
        *(["a\tb\ty", "1\t2\tno", "3\t4\tyes"], ["a,b,y", "1,2,no", "3,4, yes ", "5,6,1"]),
        *(["a,b,y", "1,2,0", "3,4,"], ["a,b,y", "1,2,0", '3,4,"1"'], ["a,b,y", "1,007,0", "3,4,1"]),
        *(['"a\nb",c,y', "1,2,0", "3,4,1"], ["a,b,y"]),
    ],
)
def test_tables_of_every_shape_are_read_alike(tmp_path, monkeypatch, lines):
    for text in ("\n".join(lines) + "\n", "\n".join(lines)):
        path = tmp_path / "a.csv"
        path.write_bytes(text.encode())
        for block_bytes in (5, 12, None):
            seen = []
            for large in (1 << 30, 0):
                monkeypatch.setattr(csv_table, "LARGE", large)
                seen.append(read(path, block_bytes=block_bytes))
            assert seen[0] == seen[1], (text, block_bytes)


def test_rows_are_those_of_the_twin():
    rng = random.Random(3)
    numbers = [cell for cell in CELLS if naive.plain_number(cell) is not None]
    places = np.array([1, -2, -1, 0])
    for labels in (numbers, ["yes", " no", "7"]):
        for _ in range(50):
            rows = [
                [rng.choice(numbers), "left out", rng.choice(labels), rng.choice(numbers)] for _ in range(9)
            ]
            if rng.random() < 0.5:
                rows[rng.randrange(9)][rng.choice([0, 3])] = rng.choice(CELLS)
            text = "\n".join(";".join(row) for row in rows) + "\n"
            raw = np.frombuffer(text.encode(), dtype=np.uint8)
            X, y = np.zeros((9, 2)), np.zeros(9)
            starts, stops = np.zeros(9, dtype=np.int32), np.zeros(9, dtype=np.int32)
            count, right = parse_table(
                raw, ord(";"), places, powers(), X.view(np.uint64), y.view(np.uint64), starts, stops
            )
            expected = naive.table_rows(text, ";", places.tolist())
            if expected is None:
                assert count == -1
                continue
            assert count == 9
            assert repr(X.tolist()) == repr(expected[0])
            words = [raw[a:b].tobytes().decode() for a, b in zip(starts, stops, strict=True)]
            assert words == expected[1]
            known = [naive.plain_number(word) for word in words]
            assert right == (None not in known)
            assert not right or repr(y.tolist()) == repr(known)


def test_what_is_spooled_comes_back_to_the_last_bit(tmp_path):
    spool = Spool(tmp_path)
    rng = np.random.default_rng(0)
    kinds = [
        *(np.ones(3000), np.arange(3000.0), np.arange(3000.0) * 20, np.full(3000, 0.25)),
        *(rng.standard_normal(3000), np.r_[np.ones(2000), -0.0], np.r_[np.ones(2000), 1e300], np.zeros(0)),
    ]
    blocks = [Block(data.reshape(-1, 1), data, 0) for data in kinds]
    for data in kinds:
        for top in (100, 60_000, 2**31 - 2):
            indices = np.sort(rng.integers(0, top, len(data))).astype(np.int32)
            X = sparse.csr_array((data, indices, np.array([0, len(data)], dtype=np.int32)), shape=(1, top))
            blocks.append(Block(X, np.zeros(1), 0))
    kept = [spool.put(block) for block in blocks]
    for block, place in zip(blocks, kept, strict=True):
        assert place is not None
        back = spool.get(place)
        pairs = [(block.X, back.X)]
        if sparse.issparse(block.X):
            pairs = [(getattr(block.X, key), getattr(back.X, key)) for key in ("data", "indices", "indptr")]
        for one, other in pairs:
            assert one.dtype == other.dtype
            assert one.tobytes() == other.tobytes()


def test_a_partition_of_a_large_table_has_the_same_bytes(tmp_path, monkeypatch):
    rng = np.random.default_rng(1)
    lines = [
        ",".join(map(repr, row)) + f",{k % 2}" for k, row in enumerate(rng.standard_normal((300, 5)).tolist())
    ]
    path = write(tmp_path / "a.csv", ["a,b,c,d,e,y", *lines])
    for k, large in enumerate((1 << 30, 0)):
        monkeypatch.setattr(csv_table, "LARGE", large)
        convert(path, tmp_path / str(k), parties=2, label="y", standardize=True)
    for file in (tmp_path / "0").iterdir():
        assert file.read_bytes() == (tmp_path / "1" / file.name).read_bytes()


def test_errors_on_threads_are_those_of_the_first_item():
    seen: list[int] = []
    with large_text.on_threads(3) as every:
        every(seen.append, range(20))
        assert sorted(seen) == list(range(20))
        with pytest.raises(ZeroDivisionError):
            every(lambda i: seen.append(1 // (i - 2)), range(5))
