"""A single source in many files: a directory or pattern of LIBSVM, CSV or Parquet parts."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastadmm.data_tools import opening
from fastadmm.data_tools.convert import convert
from fastadmm.errors import FastadmmError, InputError
from fastadmm.store.partition import open_partition

from run_tools import run


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Five parts, two of them compressed, and one file of all rows."""
    folder = tmp_path_factory.mktemp("parts")
    rng = np.random.default_rng(2)
    (folder / "p").mkdir()
    whole = ""
    for k in range(5):
        rows = []
        for _ in range(30 + 7 * k):
            own = sorted(rng.choice(12, rng.integers(1, 8), replace=False) + 1)
            rows.append(f"{rng.choice([-1, 1])} " + " ".join(f"{j}:{rng.standard_normal():.5g}" for j in own))
        text = "\n".join(rows) + "\n"
        whole += text
        name = folder / "p" / f"part-{k}.svm"
        if k % 2:
            Path(f"{name}.gz").write_bytes(gzip.compress(text.encode()))
        else:
            name.write_text(text)
    (folder / "p" / "_SUCCESS").touch()
    (folder / "whole.svm").write_text(whole)
    return folder


def _bytes(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(path.rglob("*.h5"))}


def test_parts_are_one_file_on_any_number_of_threads(parts: Path, tmp_path: Path, monkeypatch: Any) -> None:
    convert(parts / "whole.svm", tmp_path / "whole", parties=3)
    seen: list[tuple[int, int]] = []

    def told(stage: str, done: int, total: int) -> None:
        seen.append((done, total))

    convert(parts / "p", tmp_path / "parts", parties=3, progress=told)
    assert max(seen) == (sum(f.stat().st_size for f in (parts / "p").iterdir()),) * 2
    assert _bytes(tmp_path / "parts") == _bytes(tmp_path / "whole")
    for threads in ("1", "2"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        monkeypatch.setattr(opening, "BLOCK_BYTES", 400 * int(threads))
        convert(f"{parts}/p/part-*", tmp_path / threads, parties=3, standardize=True, storage="dense")
    one, two = (open_partition(tmp_path / t) for t in ("1", "2"))
    assert len(one.parties) == 3
    for a, b in zip(one.parties, two.parties):
        np.testing.assert_allclose(a.load(), b.load(), atol=1e-12)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    convert(parts / "p", tmp_path / "again", parties=3, standardize=True, storage="dense")
    assert _bytes(tmp_path / "again") == _bytes(tmp_path / "2")
    assert not list(tmp_path.glob(".fastadmm*"))


def test_one_npz_file_is_a_source(tmp_path: Path) -> None:
    for name in "ab":
        np.savez(tmp_path / f"{name}.npz", X=np.eye(3), y=np.arange(3) % 2)
    with pytest.raises(InputError, match="2 NPZ files: give one"):
        convert(tmp_path, tmp_path / "o", parties=2)
    assert not (tmp_path / "o").exists()


def test_tables_in_parts_and_parquet_are_one_csv(tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    table = pa.table(
        {"a": rng.integers(0, 9, 90), "b": rng.normal(0, 1, 90).round(3), "y": ["no", "yes", "no"] * 30}
    )
    for kind in ("csv", "parquet"):
        (tmp_path / kind).mkdir()
        for k in range(3):
            part = table.slice(30 * k, 30)
            if kind == "csv":
                rows = [",".join(map(str, row.values())) for row in part.to_pylist()]
                (tmp_path / kind / f"{k}.csv").write_text("a,b,y\n" + "\n".join(rows) + "\n")
            else:
                pq.write_table(part, tmp_path / kind / f"{k}.parquet")
    pq.write_table(table, tmp_path / "one.parquet")
    for source in ("csv", "parquet", "one.parquet"):
        convert(tmp_path / source, tmp_path / f"{source}.parts", parties=2, label="y")
    assert _bytes(tmp_path / "csv.parts") == _bytes(tmp_path / "parquet.parts")
    assert _bytes(tmp_path / "csv.parts") == _bytes(tmp_path / "one.parquet.parts")
    with pytest.raises(InputError, match="is a Parquet file: leave --format out"):
        convert(tmp_path / "one.parquet", tmp_path / "o", parties=2, label="y", format="libsvm")


def test_nothing_among_parts_is_left_out_silently(tmp_path: Path) -> None:
    """A part that is missing or deeper down would give a model of other rows."""
    folder = tmp_path / "p"
    (folder / ".hidden").mkdir(parents=True)
    (folder / "_temporary").mkdir()
    (folder / "a.svm").write_text("1 1:2 2:1\n-1 2:3\n")
    convert(folder, tmp_path / "o", parties=2)
    other = folder / "b.svm"
    for make, told in (
        (lambda: other.symlink_to("nowhere"), r"b\.svm: no such file"),
        (
            other.mkdir,
            r"b\.svm: is a directory",
        ),
    ):
        make()
        for source in (folder, f"{folder}/*"):
            with pytest.raises(FastadmmError, match=told):
                convert(source, tmp_path / "o2", parties=2)
        other.rmdir() if other.is_dir() else other.unlink()


def test_truth_values_in_one_part_and_numbers_in_another(tmp_path: Path) -> None:
    """Labels 0 and 1 beside False and True would be four classes."""
    for column, name in (("y", "labels"), ("a", "features")):
        folder = tmp_path / name
        folder.mkdir()
        table = pa.table({"a": [0, 1, 1], "y": [0, 1, 0]})
        pq.write_table(table, folder / "a.parquet")
        place = table.column_names.index(column)
        pq.write_table(table.set_column(place, column, [[True, False, True]]), folder / "b.parquet")
        with pytest.raises(
            InputError,
            match=rf"b\.parquet: column '{column}' is bool, but int64 in .*a\.parquet: write it alike",
        ):
            convert(folder, tmp_path / "o", parties=1, label="y")


@pytest.mark.parametrize("kind", ["svm", "csv", "parquet"])
def test_empty_parts_are_passed_over(tmp_path: Path, kind: str, capsys: Any) -> None:
    """As Spark writes them for a share without rows."""
    folder, whole = tmp_path / "spark", tmp_path / "whole"
    for place, counts in ((folder, (0, 3, 0, 4)), (whole, (3, 4))):
        place.mkdir()
        for k, count in enumerate(counts):
            name, first = place / f"part-0000{k}.{kind}", 3 * (count == 4)
            rows = range(first, first + count)
            if kind == "parquet":
                pq.write_table(pa.table({"a": [1.5 * i for i in rows], "y": [i % 2 for i in rows]}), name)
            elif kind == "csv":
                name.write_text("".join(["a,y\n"] + [f"{1.5 * i},{i % 2}\n" for i in rows]))
            else:
                name.write_text("".join(f"{i % 2} 1:{1.5 * i}\n" for i in rows))
    (folder / "_SUCCESS").touch()
    (folder / ".part-00000.crc").write_bytes(b"crc")
    (folder / f"part-00004.{kind}").touch()
    Path(f"{folder}/part-00005.{kind}.gz").write_bytes(gzip.compress(b""))
    label = [] if kind == "svm" else ["--label", "y"]
    assert run("convert", folder, "--parties", 1, *label, "-o", tmp_path / "a.parts") == 0
    assert run("convert", whole, "--parties", 1, *label, "-o", tmp_path / "b.parts") == 0
    assert _bytes(tmp_path / "a.parts") == _bytes(tmp_path / "b.parts")
    for part in folder.glob("part-*"):
        part.write_bytes(b"")
    assert run("convert", folder, "--parties", 1, *label, "-o", tmp_path / "c.parts") == 3
    assert "spark: all parts are empty: give a data file" in capsys.readouterr().err


@pytest.mark.parametrize("linked", [Path.symlink_to, Path.hardlink_to], ids=["symbolic", "hard"])
def test_a_part_is_not_counted_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], linked: Callable[[Path, Path], None]
) -> None:
    """``latest.svm`` beside the part that it is another name of."""
    folder = tmp_path / "p"
    folder.mkdir()
    (folder / "a.svm").write_text("1 1:1\n0 1:2\n")
    linked(folder / "latest.svm", folder / "a.svm")
    for source in (folder, folder / "*.svm"):
        assert run("convert", source, "--parties", 1, "-o", tmp_path / "a.parts") == 3
        assert "latest.svm: is the same file as a.svm; remove one" in capsys.readouterr().err
