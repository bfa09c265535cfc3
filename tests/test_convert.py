"""From files to partitions, through the library and the command line."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from fastadmm.cli.app import main
from fastadmm.data_tools import matrices, opening
from fastadmm.data_tools.convert import convert
from fastadmm.errors import InputError
from fastadmm.store.partition import open_partition
from scipy import sparse

from run_tools import python


def matrix(path: Path) -> np.ndarray:
    blocks = [party.load() for party in open_partition(path).parties]
    return np.hstack([X.toarray() if sparse.issparse(X) else X for X in blocks])


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as stop:
        main(["convert", *map(str, arguments)])
    return stop.value.code or 0


def write_libsvm(path: Path, X: np.ndarray, y: np.ndarray) -> Path:
    lines = (
        " ".join([f"{label:g}", *(f"{j + 1}:{row[j]!r}" for j in np.flatnonzero(row))])
        for row, label in zip(X.tolist(), y.tolist())
    )
    path.write_text("\n".join(lines).replace("np.float64", "") + "\n")
    return path


@pytest.fixture
def problem() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(3)
    X = np.round(rng.standard_normal((200, 9)), 3) * (
        rng.random((200, 9)) < [0.2, 0.3, 0.1, 0.2, 0.9, 0.8, 1, 0.9, 1]
    )
    X[0, 8] = 1.0
    return X, np.where(rng.random(200) < 0.3, 1.0, -1.0)


# --- options ---------------------------------------------------------------------------------------------
def test_libsvm_partition(tmp_path: Path, problem: tuple) -> None:
    X, y = problem
    source = write_libsvm(tmp_path / "a.svm", X, y)
    partition = convert(source, tmp_path / "a.parts", columns="4,5", names="bank,telco")
    assert partition.task == "classification"
    assert partition.source == "a.svm"
    assert partition.labels.classes == ("-1", "1")
    np.testing.assert_array_equal(partition.labels.y, (y + 1) / 2)
    assert [(p.name, p.kind, p.n_features) for p in partition.parties] == [
        ("bank", "csr", 4),
        ("telco", "dense", 5),
    ]
    assert partition.parties[1].feature_names == ["f5", "f6", "f7", "f8", "f9"]
    assert all(party.transform.is_identity for party in partition.parties)
    np.testing.assert_array_equal(matrix(tmp_path / "a.parts"), X)


@pytest.mark.parametrize("storage", ["dense", "csr"])
@pytest.mark.parametrize("kind", ["svm", "csv", "npz"])
def test_every_source_gives_the_same_matrix(tmp_path: Path, problem: tuple, storage: str, kind: str) -> None:
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
    assert {str(party.dtype) for party in partition.parties} == {"float32"}
    np.testing.assert_array_equal(matrix(tmp_path / "o"), X.astype(np.float32))


def test_standardize_normalize_and_like(tmp_path: Path, problem: tuple) -> None:
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


def test_like_refuses_what_training_did_not_have(tmp_path: Path) -> None:
    (tmp_path / "train").write_text("1 1:1 2:1\n2 2:1 3:1\n")
    convert(tmp_path / "train", tmp_path / "a.parts", columns="2,1")
    (tmp_path / "labels").write_text("1 1:1\n3 1:1\n")
    (tmp_path / "wide").write_text("1 1:1\n2 4:1\n")
    with pytest.raises(InputError, match="label '3' is neither '1' nor '2'"):
        convert(tmp_path / "labels", tmp_path / "o", like=tmp_path / "a.parts")
    with pytest.raises(InputError, match="line 2: index '4' is out of range: there are 3 features"):
        convert(tmp_path / "wide", tmp_path / "o", like=tmp_path / "a.parts")


def test_csv_and_npz_columns(tmp_path: Path) -> None:
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
    # Npz keys and real targets.
    rng = np.random.default_rng(0)
    X, target = rng.integers(0, 255, (40, 6), dtype=np.uint8), rng.standard_normal(40)
    np.savez(tmp_path / "a.npz", X_train=X, y_train=target)
    partition = convert(tmp_path / "a.npz", tmp_path / "o", parties=2, x_key="X_train", y_key="y_train")
    assert partition.task == "regression"
    assert partition.labels.classes is None
    np.testing.assert_array_equal(partition.labels.y, target)
    np.testing.assert_array_equal(matrix(tmp_path / "o"), X)


def test_declared_features(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("1 1:1\n2 2:1 3:1\n")
    partition = convert(tmp_path / "a", tmp_path / "o", columns="2,3", features=5)
    assert [party.n_features for party in partition.parties] == [2, 3]
    partition = convert(tmp_path / "a", tmp_path / "o", parties=2, features=4, force=True)
    assert [party.n_features for party in partition.parties] == [2, 2]


# --- command line ----------------------------------------------------------------------------------------
def test_summary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a").write_text("1 1:1 3:1\n2 2:2\n2 1:3\n")
    assert run(tmp_path / "a", "-o", tmp_path / "o", "--columns", "2,1") == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert "3 rows, 3 features, classification" in out
    assert "party-1: 2 features, csr, 3 non-zeros, float64" in out
    assert "1 -> 0 (1 rows), 2 -> 1 (2 rows)" in out
    assert (
        run(
            tmp_path / "a",
            "-o",
            tmp_path / "o",
            "--columns",
            "2,1",
            "--force",
            "--json",
            "--set",
            "normalize=l2",
        )
        == 0
    )
    summary = json.loads(capsys.readouterr().out)
    assert summary["classes"] == {"1": 1, "2": 2}
    assert summary["nnz"] == 4
    assert [party["nnz"] for party in summary["parties"]] == [3, 1]


@pytest.mark.parametrize("stage", ["reading", "writing"])
def test_interrupt_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: tuple, stage: str
) -> None:
    monkeypatch.setattr(matrices, "CACHE_BYTES", 0)
    monkeypatch.setattr(opening, "BLOCK_BYTES", 500)
    source = write_libsvm(tmp_path / "a", *problem)

    def interrupt(at: str, done: int, total: int) -> None:
        assert 0 <= done <= total
        if at == stage and done > 0:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        convert(source, tmp_path / "o", parties=2, progress=interrupt)
    assert list(tmp_path.iterdir()) == [source]


def test_deterministic_whatever_the_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: tuple
) -> None:
    source = write_libsvm(tmp_path / "a", *problem)
    convert(source, tmp_path / "o1", parties=2)
    convert(source, tmp_path / "o2", parties=2)
    files = sorted(path.name for path in (tmp_path / "o1").iterdir())
    digests = [
        [hashlib.sha256((tmp_path / out / name).read_bytes()).hexdigest() for name in files]
        for out in ("o1", "o2")
    ]
    assert digests[0] == digests[1]
    monkeypatch.setattr(matrices, "CACHE_BYTES", 0)
    monkeypatch.setattr(opening, "BLOCK_BYTES", 300)
    convert(source, tmp_path / "o3", parties=2)
    one, other = open_partition(tmp_path / "o1"), open_partition(tmp_path / "o3")
    assert [p.content_digest for p in one.parties] == [p.content_digest for p in other.parties]


def test_a_file_that_changes_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a"
    path.write_text("1 1:1 2:1\n2 2:2\n" * 50_000)

    def append(stage: str, done: int, total: int) -> None:
        path.write_text("1 1:1 2:1\n2 2:2\n2 2:2\n" * 50_000)

    monkeypatch.setattr(opening, "BLOCK_BYTES", 10_000)
    with pytest.raises(InputError, match="changed while it was read"):
        convert(path, tmp_path / "o", parties=2, progress=append)
    assert list(tmp_path.iterdir()) == [path]


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
def test_memory_does_not_grow_with_the_file(tmp_path: Path, kind: str) -> None:
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


def test_documentation_names_every_option() -> None:
    import inspect
    import re

    from fastadmm.cli.convert import convert as convert_command

    page = (Path(__file__).resolve().parents[1] / "docs" / "converting.md").read_text()
    names = inspect.signature(convert_command).parameters
    options = {f"--{name.replace('_', '-')}" for name in names}
    options = options - {"--source", "--as-json", "--set-"} | {"--json", "--set"}
    own = re.sub(r"^\$ fastadmm (?!convert ).*", "", page, flags=re.MULTILINE)  # lines of other commands
    assert set(re.findall(r"--[a-z][a-z-]+", own)) == options
