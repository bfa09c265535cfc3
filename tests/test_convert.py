"""From files to partitions, through the library and the command line."""

import gzip
import inspect
import re
from pathlib import Path

import numpy as np
import pytest
from fastadmm.cli.convert import convert as convert_command
from fastadmm.data_tools import matrices, opening
from fastadmm.data_tools.convert import convert
from fastadmm.errors import FastadmmError, InputError
from fastadmm.store.partition import open_partition
from scipy import sparse

from run_tools import python, refuses, run


def matrix(path):
    blocks = [party.load() for party in open_partition(path).parties]
    return np.hstack([X.toarray() if sparse.issparse(X) else X for X in blocks])


def write_libsvm(path, X, y):
    lines = (
        " ".join([f"{label:g}", *(f"{j + 1}:{row[j]!r}" for j in np.flatnonzero(row))])
        for row, label in zip(X.tolist(), y.tolist())
    )
    path.write_text("\n".join(lines).replace("np.float64", "") + "\n")
    return path


def parquet():
    """PyArrow, which is optional, and its part for Parquet."""
    return pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def problem():
    rng = np.random.default_rng(3)
    X = np.round(rng.standard_normal((200, 9)), 3) * (
        rng.random((200, 9)) < [0.2, 0.3, 0.1, 0.2, 0.9, 0.8, 1, 0.9, 1]
    )
    X[0, 8] = 1.0
    return X, np.where(rng.random(200) < 0.3, 1.0, -1.0)


@pytest.mark.parametrize("storage", ["dense", "csr"])
@pytest.mark.parametrize("kind", ["svm", "csv", "npz"])
def test_every_source_gives_the_same_matrix(tmp_path, problem, storage, kind):
    X, y = problem
    source = tmp_path / f"a.{kind}"
    options = {}
    if kind == "svm":
        write_libsvm(source, X, y)
    elif kind == "csv":
        names = [f"v{i}" for i in range(9)] + ["y"]
        np.savetxt(
            source, np.column_stack([X, y]), delimiter=",", header=",".join(names), comments="", fmt="%r"
        )
        source.write_text(source.read_text().replace("np.float64(", "").replace(")", ""))
        options = {"label": "y"}
    else:
        np.savez(source, X=X, y=y)
    partition = convert(source, tmp_path / "o", parties=4, storage=storage, dtype="float32", **options)
    assert [party.n_features for party in partition.parties] == [3, 2, 2, 2]
    assert {party.kind for party in partition.parties} == {storage}
    assert (partition.task, partition.source) == ("classification", source.name)
    assert partition.labels.classes == ("-1", "1")
    np.testing.assert_array_equal(partition.labels.y, (y + 1) / 2)
    assert all(party.transform.is_identity for party in partition.parties)
    assert {str(party.dtype) for party in partition.parties} == {"float32"}
    np.testing.assert_array_equal(matrix(tmp_path / "o"), X.astype(np.float32))


def test_standardize_normalize_and_like(tmp_path, problem):
    X, y = problem
    train, test = X[:150], X[150:]
    write_libsvm(tmp_path / "train", train, y[:150])
    write_libsvm(tmp_path / "test", test[:, :8], y[150:])  # a test set may lack the last features
    made = convert(tmp_path / "train", tmp_path / "a.parts", columns="4,5", standardize=True, normalize="l2")
    like = convert(tmp_path / "test", tmp_path / "t.parts", like=tmp_path / "a.parts")

    scale = train.std(axis=0)
    center = np.where(
        np.arange(9) < 4, 0.0, train.mean(axis=0)
    )  # the first party is CSR: scaled, not centred
    full = np.column_stack([test[:, :8], np.zeros(50)])
    for path, raw in (("a.parts", train), ("t.parts", full)):
        Z = (raw - center) / scale
        for columns in (slice(0, 4), slice(4, 9)):
            norms = np.linalg.norm(Z[:, columns], axis=1, keepdims=True)
            Z[:, columns] /= np.where(norms > 0, norms, 1)
        np.testing.assert_allclose(matrix(tmp_path / path), Z, rtol=1e-10, atol=1e-13)
    for one, other in zip(made.parties, like.parties):
        assert one.transform == other.transform
        assert (one.kind, one.name, one.feature_names) == (other.kind, other.name, other.feature_names)
    np.testing.assert_array_equal(like.labels.y, (y[150:] + 1) / 2)


def test_like_refuses_what_training_did_not_have(tmp_path):
    (tmp_path / "train").write_text("1 1:1 2:1\n2 2:1 3:1\n")
    convert(tmp_path / "train", tmp_path / "a.parts", columns="2,1")
    (tmp_path / "labels").write_text("1 1:1\n3 1:1\n")
    (tmp_path / "wide").write_text("1 1:1\n2 4:1\n")
    with pytest.raises(InputError, match="label '3' is none of the classes of training; there are: 1, 2"):
        convert(tmp_path / "labels", tmp_path / "o", like=tmp_path / "a.parts")
    with pytest.raises(InputError, match="line 2: index '4' is out of range: there are 3 features"):
        convert(tmp_path / "wide", tmp_path / "o", like=tmp_path / "a.parts")


def test_csv_and_npz_columns(tmp_path):
    (tmp_path / "a.csv").write_text(
        "id,age,bmi,glucose,sick\nx,30,20,90,no\ny,40,25,100,yes\nz,50,31,120,yes\n"
    )
    (tmp_path / "t.csv").write_text("sick,glucose,age,bmi,id\nyes,95,35,22,x\nno,99,36,23,y\n")
    (tmp_path / "u.csv").write_text("sick,glucose,age,extra,bmi\nyes,95,35,22,1\n")
    partition = convert(
        tmp_path / "a.csv",
        tmp_path / "a.parts",
        columns="glucose,age;bmi",
        label="sick",
        drop=["id"],
        standardize=True,
    )
    assert [party.feature_names for party in partition.parties] == [["glucose", "age"], ["bmi"]]
    assert partition.labels.classes == ("no", "yes")
    raw = np.array([[90.0, 30, 20], [100, 40, 25], [120, 50, 31]])
    np.testing.assert_allclose(matrix(tmp_path / "a.parts"), (raw - raw.mean(0)) / raw.std(0))
    like = convert(tmp_path / "t.csv", tmp_path / "t.parts", like=tmp_path / "a.parts", drop=["id"])
    test = np.array([[95.0, 35, 22], [99, 36, 23]])
    np.testing.assert_allclose(matrix(tmp_path / "t.parts"), (test - raw.mean(0)) / raw.std(0))
    np.testing.assert_array_equal(like.labels.y, [1, 0])
    with pytest.raises(InputError, match="no feature column 'age'"):
        convert(tmp_path / "u.csv", tmp_path / "o", like=tmp_path / "a.parts", label="sick", drop=["age"])
    rng = np.random.default_rng(0)
    X, target = rng.integers(0, 255, (40, 6), dtype=np.uint8), rng.standard_normal(40)
    np.savez(tmp_path / "a.npz", X_train=X, y_train=target)
    partition = convert(tmp_path / "a.npz", tmp_path / "o", parties=2, x_key="X_train", y_key="y_train")
    assert partition.task == "regression"
    assert partition.labels.classes is None
    np.testing.assert_array_equal(partition.labels.y, target)
    np.testing.assert_array_equal(matrix(tmp_path / "o"), X)


def test_declared_features(tmp_path):
    (tmp_path / "a").write_text("1 1:1 2:1\n2 1:1 2:1 3:1\n")
    partition = convert(tmp_path / "a", tmp_path / "o", columns="2,3", names="bank,telco", features=5)
    told = [(party.name, party.kind, party.n_features) for party in partition.parties]
    assert told == [("bank", "dense", 2), ("telco", "csr", 3)]
    assert partition.parties[1].feature_names == ["f3", "f4", "f5"]
    partition = convert(tmp_path / "a", tmp_path / "o", parties=2, features=4, force=True)
    assert [party.n_features for party in partition.parties] == [2, 2]


@pytest.mark.parametrize("stage", ["reading", "writing"])
def test_interrupt_leaves_nothing(tmp_path, monkeypatch, problem, stage):
    monkeypatch.setattr(matrices, "CACHE_BYTES", 0)
    monkeypatch.setattr(opening, "BLOCK_BYTES", 500)
    source = write_libsvm(tmp_path / "a", *problem)

    def interrupt(at, done, total):
        assert 0 <= done <= total
        if at == stage and done > 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(source, tmp_path / "o", parties=2, progress=interrupt)
    assert list(tmp_path.iterdir()) == [source]


def test_a_file_that_changes_meanwhile(tmp_path, monkeypatch):
    path = tmp_path / "a"
    path.write_text("1 1:1 2:1\n2 2:2\n" * 50_000)

    def append(stage, done, total):
        path.write_text("1 1:1 2:1\n2 2:2\n2 2:2\n" * 50_000)

    monkeypatch.setattr(opening, "BLOCK_BYTES", 10_000)
    with pytest.raises(InputError, match="changed while it was read"):
        convert(path, tmp_path / "o", parties=2, progress=append)
    assert list(tmp_path.iterdir()) == [path]
    # Arrays are read in one piece.
    with path.open("wb") as file:
        np.savez(file, X=np.eye(40), y=np.arange(40) % 2)
    monkeypatch.setattr(opening.SourceFile, "state", lambda self: (1, object(), 0))
    refuses(InputError, "changed while it was read", convert, path, tmp_path / "o", parties=2)


MEMORY = """
import resource, sys
from fastadmm.data_tools import columns, matrices, opening, tables
from fastadmm.data_tools.convert import convert
columns.IN_MEMORY = matrices.CACHE_BYTES = 1 << 20
opening.BLOCK_BYTES, tables.LARGE = 1 << 18, 0
label = "y" if sys.argv[1].endswith("csv") else None
for source in sys.argv[1:]:
    convert(source, source + ".parts", parties=2, label=label, standardize=True)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.repeats
@pytest.mark.parametrize("kind", ["svm", "csv"])
def test_memory_does_not_grow_with_the_file(tmp_path, kind):
    rng = np.random.default_rng(0)
    paths = []
    for name, repeat in (("small", 10), ("large", 160)):
        path = tmp_path / f"{name}.{kind}"
        if kind == "svm":
            rows = [
                f"{i % 2} " + " ".join(f"{j}:{rng.integers(99)}" for j in range(i % 7 + 1, 60, 7))
                for i in range(1000)
            ]
            path.write_text(("\n".join(rows) + "\n") * repeat)
        else:
            rows = [",".join(map(str, rng.integers(0, 99, 30))) + f",{i % 2}" for i in range(1000)]
            path.write_text(",".join(f"v{i}" for i in range(30)) + ",y\n" + ("\n".join(rows) + "\n") * repeat)
        paths.append(path)
    assert paths[1].stat().st_size > 8e6
    output = python(MEMORY, *paths, check=True).stdout
    small, large = (int(line) for line in output.split())
    # The labels, 1.3 MB, and the allocator's slack; the data as float64 would be 20 to 40 MB.
    # Columns of a CSV table are mapped from a file, 40 MB here, which the system takes back when it needs to.
    assert large - small < (60_000 if kind == "csv" else 10_000), f"peak grew from {small} to {large} kB"


def test_documentation_names_every_option():
    page = (Path(__file__).resolve().parents[1] / "docs" / "converting.md").read_text()
    names = inspect.signature(convert_command).parameters
    options = {f"--{name.replace('_', '-')}" for name in names}
    options = options - {"--source", "--as-json", "--set-"} | {"--json", "--set"}
    own = re.sub(r"^\$ fastadmm (?!convert ).*", "", page, flags=re.MULTILINE)  # lines of other commands
    assert set(re.findall(r"--[a-z][a-z-]+", own)) == options


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
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


def _bytes(path):
    return {file.name: file.read_bytes() for file in sorted(path.rglob("*.h5"))}


def test_parts_are_one_file_on_any_number_of_threads(parts, tmp_path, monkeypatch):
    convert(parts / "whole.svm", tmp_path / "whole", parties=3)
    seen = []

    def told(stage, done, total):
        seen.append((done, total))

    convert(parts / "p", tmp_path / "parts", parties=3, progress=told)
    assert max(seen) == (sum(f.stat().st_size for f in (parts / "p").iterdir()),) * 2
    assert _bytes(tmp_path / "parts") == _bytes(tmp_path / "whole")
    for threads in ("1", "2"):
        monkeypatch.setenv("OMP_NUM_THREADS", threads)
        monkeypatch.setattr(opening, "BLOCK_BYTES", 400 * int(threads))
        monkeypatch.setattr(matrices, "CACHE_BYTES", (1 << 20) * (threads == "2"))
        convert(f"{parts}/p/part-*", tmp_path / threads, parties=3, standardize=True, storage="dense")
    one, two = (open_partition(tmp_path / t) for t in ("1", "2"))
    assert len(one.parties) == 3
    for a, b in zip(one.parties, two.parties):
        np.testing.assert_allclose(a.load(), b.load(), atol=1e-12)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    convert(parts / "p", tmp_path / "again", parties=3, standardize=True, storage="dense")
    assert _bytes(tmp_path / "again") == _bytes(tmp_path / "2")
    assert not list(tmp_path.glob(".fastadmm*"))


def test_one_npz_file_is_a_source(tmp_path):
    for name in "ab":
        np.savez(tmp_path / f"{name}.npz", X=np.eye(3), y=np.arange(3) % 2)
    refuses(InputError, "2 NPZ files: give one", convert, tmp_path, tmp_path / "o", parties=2)
    assert not (tmp_path / "o").exists()


def test_tables_in_parts_and_parquet_are_one_csv(tmp_path):
    pa, pq = parquet()
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


def test_nothing_among_parts_is_left_out_silently(tmp_path):
    """A part that is missing or deeper down would give a model of other rows."""
    folder = tmp_path / "p"
    (folder / ".hidden").mkdir(parents=True)
    (folder / "_temporary").mkdir()
    (folder / "a.svm").write_text("1 1:2 2:1\n-1 2:3\n")
    convert(folder, tmp_path / "o", parties=2)
    other = folder / "b.svm"
    for make, told in (
        (lambda: other.symlink_to("nowhere"), r"b\.svm: .*No such file"),
        (
            other.mkdir,
            r"b\.svm: .*is a directory",
        ),
    ):
        make()
        for source in (folder, f"{folder}/*"):
            refuses(FastadmmError, told, convert, source, tmp_path / "o2", parties=2)
        other.rmdir() if other.is_dir() else other.unlink()


def test_lists_in_a_parquet_column_are_refused(tmp_path):
    pa, pq = parquet()
    pq.write_table(pa.table({"a": [[1.0], [2.0]], "y": [0, 1]}), tmp_path / "a.parquet")
    words = "a.parquet: column 'a' is of type list.*: make it numbers or text, or leave it out with --drop"
    refuses(InputError, words, convert, tmp_path / "a.parquet", tmp_path / "o", parties=1, label="y")


def test_truth_values_in_one_part_and_numbers_in_another(tmp_path):
    """Labels 0 and 1 beside False and True would be four classes."""
    pa, pq = parquet()
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
def test_empty_parts_are_passed_over(tmp_path, kind, capsys):
    """As Spark writes them for a share without rows."""
    folder, whole = tmp_path / "spark", tmp_path / "whole"
    for place, counts in ((folder, (0, 3, 0, 4)), (whole, (3, 4))):
        place.mkdir()
        for k, count in enumerate(counts):
            name, first = place / f"part-0000{k}.{kind}", 3 * (count == 4)
            rows = range(first, first + count)
            if kind == "parquet":
                pa, pq = parquet()
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
def test_a_part_is_not_counted_twice(tmp_path, capsys, linked):
    """``latest.svm`` beside the part that it is another name of."""
    folder = tmp_path / "p"
    folder.mkdir()
    (folder / "a.svm").write_text("1 1:1\n0 1:2\n")
    linked(folder / "latest.svm", folder / "a.svm")
    for source in (folder, folder / "*.svm"):
        assert run("convert", source, "--parties", 1, "-o", tmp_path / "a.parts") == 3
        assert "latest.svm: is the same file as a.svm; remove one" in capsys.readouterr().err
