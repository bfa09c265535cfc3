"""Drift, variance inflation, correlation and information value of columns, from party files."""

import json

import numpy as np
import pandas as pd
import pytest
from fastadmm.judging.binning import information_value
from fastadmm.runs.scorecard import column_drift, column_report
from scipy import sparse
from sklearn.datasets import load_breast_cancer

from run_tools import printed, refused, run, write_blocks


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Tables of two parties with a category and a missing cell; later rows; scaled and raw."""
    home = tmp_path_factory.mktemp("columns")
    rng = np.random.default_rng(1)
    for name, n, moved in (("old", 300, 0.0), ("new", 200, 0.8)):
        age = rng.normal(40.0 + 10.0 * moved, 9.0, n)
        jobs = rng.choice(["clerk", "nurse", "smith"], n, p=[0.6 - 0.5 * moved, 0.2, 0.2 + 0.5 * moved])
        bad = np.where(rng.random(n) < 0.2 + 0.5 * (age > 45.0), "yes", "no")
        pay = np.where(rng.random(n) < 0.1, np.nan, age + rng.normal(0.0, 3.0, n))
        table = {"id": np.arange(n), "age": age, "job": jobs, "pay": pay, "bad": bad}
        pd.DataFrame(table).to_csv(home / f"{name}-bank.csv", index=False)
        shop = {"id": np.arange(n), "visits": rng.poisson(3.0, n), "one": np.ones(n)}
        pd.DataFrame(shop).to_csv(home / f"{name}-shop.csv", index=False)
        tables = ["--guest", home / f"{name}-bank.csv", "--host", home / f"{name}-shop.csv", "--id", "id"]
        tables += ["--label", "bad"]
        like = ["--missing", "indicator"] if name == "old" else ["--like", home / "old.parts"]
        scale = ["--standardize"] if name == "old" else []
        assert run("convert", *tables, *like, *scale, "-o", home / f"{name}.parts") == 0
    tables[1], tables[3] = home / "old-bank.csv", home / "old-shop.csv"
    assert run("convert", *tables, "--missing", "indicator", "-o", home / "raw.parts") == 0
    return home


def by_column(rows):
    return {row["column"]: row for row in rows}


def psi(p, q):
    return float(((p - q) * np.log(p / q)).sum())


def test_drift_of_columns(home):
    found = by_column(column_drift(home / "old.parts", home / "new.parts"))
    old, new = pd.read_csv(home / "old-bank.csv"), pd.read_csv(home / "new-bank.csv")
    assert list(found) == ["age", "job", "pay", "pay:missing", "visits", "one"]
    edges = [np.nextafter(old.age.min(), 0.0), *np.sort(old.age)[29::30]]  # the largest of each tenth
    counts = [np.bincount(np.searchsorted(edges, t.age), minlength=12) for t in (old, new)]
    used = sum(counts) > 0
    assert found["age"]["outside"] == counts[1][0] + counts[1][-1] > 0
    shares = [np.maximum(bins, 0.5)[used] / np.maximum(bins, 0.5)[used].sum() for bins in counts]
    assert found["age"]["psi"] == pytest.approx(psi(*shares), rel=1e-12)
    assert found["age"]["mean_shift"] == pytest.approx(
        (new.age.mean() - old.age.mean()) / old.age.std(ddof=0)
    )
    jobs = [t.job.value_counts(normalize=True).sort_index().to_numpy() for t in (old, new)]
    assert found["job"]["psi"] == pytest.approx(psi(*jobs), rel=1e-12)
    assert (found["job"]["bins"], found["job"]["mean_shift"]) == (3, None)
    missing = [np.array([1.0 - t.pay.isna().mean(), t.pay.isna().mean()]) for t in (old, new)]
    assert found["pay:missing"]["psi"] == pytest.approx(psi(*missing), rel=1e-12)
    assert (found["one"]["psi"], found["one"]["bins"]) == (0.0, 1)
    # raw rows are brought to the reference's scale, and a party can do it alone
    raw = by_column(column_drift(home / "old.parts" / "guest.h5", home / "raw.parts" / "guest.h5"))
    assert max(abs(row["psi"]) for row in raw.values()) < 1e-12
    back = by_column(column_drift(home / "raw.parts", home / "old.parts"))
    assert max(abs(row["psi"]) for row in back.values()) < 1e-12


def test_values_outside_the_reference_are_a_shift(tmp_path):
    rng = np.random.default_rng(3)
    x = rng.normal(size=300)
    old = {"flag": np.zeros(300), "mostly": rng.choice([0.0, 9.0], 300, p=[0.95, 0.05]), "x": x}
    new = {"flag": np.ones(300), "mostly": np.full(300, -5.0), "x": np.where(x > 1.0, x + 9.0, x)}
    gap = {"flag": np.zeros(300), "mostly": np.full(300, 4.0), "x": x}
    for name, columns in (("old", old), ("new", new), ("gap", gap)):
        pd.DataFrame(columns | {"y": np.arange(300) % 2}).to_csv(tmp_path / f"{name}.csv", index=False)
        like = ["--parties", 1] if name == "old" else ["--like", tmp_path / "old.parts"]
        source = [tmp_path / f"{name}.csv", "--label", "y"]
        assert run("convert", *source, *like, "-o", tmp_path / f"{name}.parts") == 0
    found = column_drift(tmp_path / "old.parts", tmp_path / "new.parts")
    assert [row["outside"] for row in found] == [300, 300, int((x > 1.0).sum())]
    assert min(row["psi"] for row in found[:2]) > 5.0
    assert [row["outside"] for row in column_drift(tmp_path / "old.parts", tmp_path / "gap.parts")] == [
        0,
        300,
        0,
    ]


def test_commands(home, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("fastadmm.cli.options.SHOWN", 2)
    text = printed(capsys, "drift", home / "old.parts", home / "new.parts")
    assert "4 more columns" in text
    assert max(map(len, text.splitlines())) <= 80
    assert run("drift", home / "old.parts" / "guest.h5", home / "old.parts" / "host.h5") == 3
    assert "other parties" in capsys.readouterr().err
    labels = home / "old.parts" / "labels.h5"
    assert run("columns", home / "old.parts", "--labels", labels, "--json") == 0
    rows = by_column(json.loads(capsys.readouterr().out)["columns"])
    assert rows["age"]["iv_cross"] > rows["visits"]["iv_cross"]
    assert rows["one"] == {
        "party": "host", "column": "one", "correlation": None, "with": None, "iv": 0.0,
        "iv_cross": 0.0, "luck": 0.0,
    }  # fmt: skip
    assert "other rows" in refused(capsys, 3, "columns", home / "new.parts", "--labels", labels)
    assert run("columns", home / "old.parts") == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_information_values(home, tmp_path, capsys):
    """One number of a column, whichever command tells it, scaled or not, before and after binning."""
    keys = ("iv", "iv_cross", "luck")
    labels = home / "old.parts" / "labels.h5"
    old, raw = (by_column(column_report(home / name, labels)) for name in ("old.parts", "raw.parts"))
    capsys.readouterr()
    bins = ("scorecard", "bins", home / "raw.parts" / "guest.h5", "--labels", labels)
    assert run(*bins, "-o", tmp_path / "w.h5", "--json") == 0
    for name, row in by_column(json.loads(capsys.readouterr().out)["columns"]).items():
        told = {key: row[key] for key in keys}
        assert told == {key: raw[name][key] for key in keys}
        assert told == pytest.approx({key: old[name][key] for key in keys}, rel=1e-12)
        if row["used"]:
            binned = by_column(column_report(tmp_path / "w.h5", labels))[name]
            assert told == pytest.approx({key: binned[key] for key in keys}, rel=1e-12)
    assert raw["pay:missing"]["iv"] is None  # a bin of pay


@pytest.mark.parametrize("storage", [np.asarray, sparse.csr_array])
def test_the_strongest_correlation(tmp_path, storage):
    X, y = load_breast_cancer(return_X_y=True)
    X = X[:, [0, 1, 4, 5, 9, 20]]
    write_blocks(tmp_path / "d.parts", [storage(X), storage(np.ones((len(y), 1)))], y)
    rows = column_report(tmp_path / "d.parts")
    assert rows[6]["correlation"] is None
    matrix = np.corrcoef(X.T) - np.eye(6)
    strongest = np.abs(matrix).argmax(axis=1)
    assert [row["with"] for row in rows[:6]] == [f"f{j + 1}" for j in strongest]
    np.testing.assert_allclose([r["correlation"] for r in rows[:6]], matrix[range(6), strongest], rtol=1e-10)
    assert information_value(np.array([5.0, 5.0, 0.0]), np.array([10.0, 10.0, 0.0])) == 0.0
