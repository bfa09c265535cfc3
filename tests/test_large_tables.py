"""Large tables and tables in many parts: the same bits as one small table gives, in bounded memory."""

import random
import struct
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from fastadmm.data_tools import columns, opening, tables
from fastadmm.data_tools.convert_tables import convert_tables
from fastadmm.data_tools.csv_table import CsvFile, read_frame
from fastadmm.data_tools.matrices import LibsvmSource
from fastadmm.data_tools.opening import SourceFile
from fastadmm.data_tools.tables import Cells, read_table
from fastadmm.errors import InputError

N = 3000


def numbers(rng):
    """Numbers as people and programs write them, and near the ends of the range."""
    any_bits = [repr(struct.unpack("d", rng.randbytes(8))[0]) for _ in range(2000)]
    halfway = [str(2 * rng.randint(2**52, 2**61) + 1) for _ in range(1000)]
    short = [f"{rng.gauss(0, 1000):.{rng.randint(0, 17)}f}" for _ in range(2000)]
    powers = [f"{rng.randint(0, 10**19 - 1)}e{rng.randint(-330, 280)}" for _ in range(2000)]
    ends = ["0", "-0", "+0.0", ".5", "5.", "1e22", "1e23", "9007199254740993", "2.2250738585072014e-308",
            "1.7976931348623157e308", "4.9e-324", "0.000001", "123456789012345678901234567890"]  # fmt: skip
    return [cell for cell in [*any_bits, *halfway, *short, *powers, *ends] if "n" not in cell]


def test_numbers_and_plain_cells_are_read_as_python_reads_them(tmp_path):
    cells = numbers(random.Random(1))
    frame = read_frame("\n".join(cells).encode(), ",", ["a"], {"a": np.float64})
    np.testing.assert_array_equal(
        frame["a"].to_numpy().view(np.int64), np.array([*map(float, cells)]).view(np.int64)
    )
    path = tmp_path / "a.csv"
    path.write_text('id,a,b,c,d,e\n7,1,12.50,"x,y",1.500,007\n-8,,7.25,z,2.500,1.5\n')
    wanted = {"id": "ids", **dict.fromkeys("abde", "numbers"), "c": "words"}
    (chunk,) = CsvFile(SourceFile(path)).plain_chunks(wanted)
    kinds = " ".join(f"{name}:{type(found).__name__}" for name, found in sorted(chunk.cells.items()))
    assert kinds == "a:Numbers b:Numbers c:Words d:Words e:Words id:Whole"
    assert chunk.numbers.tolist() == [2, 3]


def tables_of(folder, ids=None):
    rng = np.random.default_rng(3)
    ids = rng.permutation(N) * 7 - 500 if ids is None else ids
    bank = {
        "id": ids,
        "age": rng.integers(18, 90, N),
        "income": rng.normal(3e3, 900, N).round(2),
        "y": np.array(["no", "yes"])[rng.integers(0, 2, N)],
    }
    order = rng.permutation(N)
    spend = [None if i % 50 == 0 else f"{v:.3f}" for i, v in enumerate(rng.normal(0, 1, N))]
    shop = {"id": ids[order], "spend": spend, "seg": np.array(["new", "gold", "a,b"])[rng.integers(0, 3, N)]}
    found = {"bank": pa.table(bank), "shop": pa.table(shop)}
    for name, table in found.items():
        pa.csv.write_csv(table, folder / f"{name}.csv")
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=700)
    return found


def made(folder, out, guest, host):
    options: dict[str, Any] = {"id": "id", "label": "y", "missing": "median", "standardize": True}
    partition = convert_tables(folder / guest, [folder / host], folder / out, names="bank,shop", **options)
    return {path.name: path.read_bytes() for path in partition.path.glob("*.h5")}


def in_parts(folder, name, table, kind):
    parts = folder / f"{name}-{kind}"
    parts.mkdir()
    for k, start in enumerate(range(0, N, 800)):
        part = table.slice(start, 800)
        if kind == "csv":
            pa.csv.write_csv(part, parts / f"part-{k}.csv")
        else:
            pq.write_table(part, parts / f"part-{k}.parquet")
    (parts / "_SUCCESS").touch()
    return parts.name


def test_every_way_of_reading_gives_the_same_bytes(tmp_path, monkeypatch):
    given = tables_of(tmp_path)
    expected = made(tmp_path, "slow", "bank.csv", "shop.csv")
    assert made(tmp_path, "arrow", "bank.parquet", "shop.parquet") == expected
    bank, shop = (
        in_parts(tmp_path, "bank", given["bank"], "parquet"),
        in_parts(tmp_path, "shop", given["shop"], "csv"),
    )
    assert made(tmp_path, "parts", bank, f"{shop}/part-*.csv") == expected
    monkeypatch.setattr(tables, "LARGE", 0)
    monkeypatch.setattr("fastadmm.data_tools.opening.BLOCK_BYTES", 1 << 12)
    monkeypatch.setattr(columns, "IN_MEMORY", 0)
    assert made(tmp_path, "fast", "bank.csv", shop) == expected
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert made(tmp_path, "one", "bank.csv", "shop.csv") == expected
    assert not list(tmp_path.glob(".fastadmm*"))


#: Cells at the edge of what is a plain number.
CELLS = [
    "0", "-0", "+1", ".5", "-.25", "5.", "007", "1e5", "1E-05", "1e22", "1e23", "1e400", "1e-400", "5e-324",
    "2.2250738585072014e-308", "9007199254740993", "0.1234567890123456789012", "123456789012345678901",
    "1.7976931348623157e308", "1e00005", "", "-", ".", "e5", "1e", "1e+", "--1", "+-1", "1.2.3", "0x10",
    "1_0", "nan", "inf", "NA", " 1", "1 ", "\t1", "1\x0b", "é", "1\0", '"1"', "a", "1;2",
]  # fmt: skip


def test_lines_and_faults_are_those_of_the_slow_reader(tmp_path, monkeypatch):
    blocks = [
        "a,b\n1,2\n\n3,4\n5,x\n",  # text after numbers, a blank line
        'a,b\r\n"1",2\r\n3,"n/a"\r\n',
        'a,b\n1,"two\nlines"\n3,4\n',  # not plain: read on in Python
        "a,b\n1,2\n3\n",  # ragged
        "a,b\n1,2\n3,inf\n",
        "a,b\n007,1.234\n8,12.345\n",
        "a,b\n1,2\r3,4\n",
        "a,b\n-0,NA\n5,n/A\n", "a,b\n+5, 3\n1.0,5e2\n", "a,b\n1.500,1.5\n12.250,0.250\n",
        "a,b\n+1.500,1.500  \n12.250, 1.500\n", "a,b\n00.123,1.5\n",
        "a,b\nTrue,\nfalse,true\n", "a,b\n\"x,y\",\"\"\n5,\"a\"\"b\"\n", "a,b\n\"x\"y,2\n",
        "a,b\n1,2\n  ,3\n",
        "a,b\n9007199254740993,1\n", "a,b\n1_0,0x1\n", "a,b\n5,\0\n", "\ufeffa,b\n1,é\n2,", "a,b\n,\n,\n",
        "a,b\n1e400,1\n",
        "a,b\n1,nan\nNA,007\n", "a,b\n1,2\n3,4,5\n", "a\tb\n1\t \n", "a,b\n1,'2'\n", "a,b\n+-1,1\n",
        "a,b\n1.234,5e-3\n1.500,12e-1\n", "a,b\n\ufeff1,2\n", "a;b\n1;2\n", "a\tb\n1\tno\n3\t yes ",
        '"a\nb",c\n1,2\n', "a,b", "a,b\n",
        *(f"a,b\n{line}\n1,2\n" for cell in CELLS for line in (f"5,{cell}", f"{cell},5", f"5,6\n{cell},6\r")),
    ]  # fmt: skip
    for k, text in enumerate(blocks):
        path = tmp_path / f"{k}.csv"
        path.write_bytes(text.encode())
        seen = []
        for large, size in ((1 << 30, 1 << 20), (0, 1 << 20), (0, 12)):
            monkeypatch.setattr(tables, "LARGE", large)
            monkeypatch.setattr("fastadmm.data_tools.opening.BLOCK_BYTES", size)
            try:
                table = read_table(path, cells=Cells(na={"": ["two\nlines"]} if k == 2 else {}))
            except InputError as error:
                seen.append(str(error))
                continue
            shown = [(c.kind, c.values.tolist(), c.words, c.zeros, c.grouped) for c in table.columns.values()]
            seen.append(repr((shown, [table.where(i) for i in range(table.n_rows)])))
        assert seen[0] == seen[1] == seen[2], text


def test_parts_that_do_not_fit_are_named(tmp_path):
    given = tables_of(tmp_path)
    whole = in_parts(tmp_path, "bank", given["bank"], "parquet")
    second = tmp_path / whole / "part-1.parquet"

    def refused(message):
        with pytest.raises(InputError, match=message):
            made(tmp_path, "p", whole, "shop.csv")
        assert not (tmp_path / "p").exists()

    pq.write_table(given["bank"].slice(800, 800).drop(["age"]), second)
    refused(r"part-1\.parquet: no column 'age', as the first part has \(.*part-0\.parquet\): parts need")
    pq.write_table(given["bank"].slice(798, 802), second)
    refused(
        r"repeated ids .2 rows too many.* in part-0\.parquet: row 799 and part-1\.parquet: row 1: correct"
    )
    pq.write_table(given["bank"].slice(800, 800), second)
    second.write_bytes(second.read_bytes()[:-9])
    refused(r"part-1\.parquet: a damaged Parquet file")
    (tmp_path / "none").mkdir()
    with pytest.raises(InputError, match=r"none: a directory without data files"):
        made(tmp_path, "p", "none", "shop.csv")


def test_a_large_csv_is_read_on_several_threads_in_order(tmp_path):
    assert list(opening.in_order(lambda i: i * i, range(50))) == [i * i for i in range(50)]
    with pytest.raises(ZeroDivisionError):
        list(opening.in_order(lambda i: 1 // (i - 7), range(50)))


def test_libsvm_text_is_read_as_token_by_token(tmp_path):
    blocks = [
        "+1 1:0.1 3:-2e-3 7:0\n\n-1 2:5. 3:.5 \r\n1\n", " 1\t1:2\n \n2 3:4\r\n\r\n# 5\n-0 9:1",
        "1 1:1 # 2:3\n2 3:4\n", "# a:b 'c'\n1\n", "1 007:2 10:1\n", "1 1:1\x0b\n", "",
        "1 1:123456789012345678901234567890 2:4.9e-324\n",
        *(f"1 1:1\n{line}\n" for line in (
            "1 2:1 2:1", "1 3:1 2:1", "1 0:1", "1 99:1", "1 12345678901:1", "1 qid:3 1:2", "1 1:x", "a 1:2",
            "1 1:inf", "1 1:1e400", "1 :2", "1 1", "1 1:", "1 1 2:3", "1 1 :2", "1 1: 2", "1 1::2", ":1",
            "1:2", "1 1:1:1", "1 1:.", "1 1:-", "-", "1 1:1e", "1 1:--1", "1 1:+-1", "1 1.0:2", "1 1e1:2",
            "1 9e2:2", "1 +2:3", "1 -2:3", "1 1:1_0", "1 1:0x1", "1 1:é", "1 1:\x0b2", "1 1:2 3",
        ))
    ]  # fmt: skip
    for k, text in enumerate(blocks):
        path, raw = tmp_path / f"{k}.txt", (text + "\n").encode()
        path.write_bytes(raw)
        lines = [tokens for line in text.split("\n") if (tokens := line.split("#")[0].split())]
        for zero_based, width in ((False, None), (True, None), (False, 8)):
            source = LibsvmSource([SourceFile(path)], n_features=width, zero_based=zero_based)
            found, fault = source._parse_plain(raw), str(source._fault(raw, 1, "a.txt"))
            # What is wrong is named, and only then.
            assert (found is None) != (fault == "a.txt: line 1: not LIBSVM text"), text
            if found is None:
                continue
            X, y = found
            assert y.tolist() == [float(label) for label, *_ in lines]
            for own, (_, *tokens) in zip(X, lines, strict=True):
                pairs = [token.split(":") for token in tokens]
                assert own.indices.tolist() == [int(index) - (not zero_based) for index, _ in pairs]
                assert own.data.tolist() == [float(value) for _, value in pairs]
    assert LibsvmSource([SourceFile(tmp_path / "0.txt")])._parse_plain(blocks[1].encode()) is not None


def test_labels_of_libsvm_text_keep_no_more_than_themselves(tmp_path):
    # Labels stay until all rows are read: views of a parser's buffers held four bytes for each of text.
    (tmp_path / "a.svm").write_text("1 1:2 3:4\n" * 1000)
    for block in LibsvmSource([SourceFile(tmp_path / "a.svm")]).blocks():
        whole = block.labels if block.labels.base is None else block.labels.base
        assert whole.nbytes == 8 * len(block.labels)
