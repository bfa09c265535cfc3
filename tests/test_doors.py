"""A model gives one score at every door, or a refusal that names the column."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fastadmm.data_tools.predict_tables import TableRows
from fastadmm.runs.predict import Predictions, predict_tables

from run_tools import run

TYPES = ("--types", "joined=days", "--categorical", "plan", "--na-values", "debt=-999")


def write_table(path: Path, seed: int, n: int = 200) -> Path:
    """Categories, codes, numbers and dates, some of them missing."""
    rng = np.random.default_rng(seed)
    city, plan = rng.choice(["Rome", "Oslo", "Bern", ""], n), rng.choice(["1", "2", "3"], n)
    amount, debt = rng.normal(50.0, 20.0, n).round(3), rng.normal(size=n).round(3)
    joined = np.datetime64("2015-01-01") + rng.integers(0, 2000, n)
    flag = rng.choice(["True", "False"], n)
    z = (city == "Rome") + 0.7 * (plan == "2") + amount / 40.0 - (flag == "True") - 1.3
    label = np.where(rng.random(n) < 1.0 / (1.0 + np.exp(-z)), "yes", "no")
    columns = {
        "id": range(n), "city": city, "plan": plan, "amount": np.where(rng.random(n) < 0.1, "", amount),
        "debt": np.where(rng.random(n) < 0.1, -999, debt), "joined": joined, "flag": flag, "y": label,
    }  # fmt: skip
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values()))
    return path


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table to train on, another to predict, and models of the first."""
    home = tmp_path_factory.mktemp("doors")
    table, out = write_table(home / "t.csv", 0), home / "filled.parts"
    write_table(home / "new.csv", 1)
    begin = ("convert", table, "--label", "y", "--drop", "id", "--parties", 2, *TYPES)
    scaled = ("--missing", "most-frequent", "--standardize", "--normalize", "l2")
    assert run(*begin, *scaled, "-o", out) == 0
    assert run(*begin, "--missing", "indicator", "-o", home / "marked.parts") == 0
    assert run("scorecard", "bins", home / "marked.parts", "-o", home / "binned.parts") == 0
    strict = (*begin[:5], "id,city,amount,debt", "--parties", 1, *TYPES[:4])
    assert run(*strict, "-o", home / "strict.parts") == 0
    for name in MODELS:
        assert run("train", home / f"{name}.parts", "--lambda", 1e-3, "-q", "-o", home / name) == 0
    return home


MODELS = ("filled", "marked", "binned", "strict")


def predicted(model: Path, *tables: Path) -> Predictions:
    return predict_tables(model, tables, TableRows(id="id"))[0]


def cells(table: Path) -> dict[str, list[str]]:
    with table.open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return {name: [row[name] for row in rows] for name in rows[0]}


def number(cell: str) -> float:
    return float({"True": "1", "False": "0", "": "nan"}.get(cell, cell))


def of_onnx(session: Any, columns: Mapping[str, list[str]]) -> dict[str, np.ndarray]:
    """Outputs of an ONNX runtime."""
    given: dict[str, Any] = {}
    for entry in session.get_inputs():
        own = columns[entry.name]
        values = [number(cell) for cell in own] if entry.type == "tensor(double)" else own
        given[entry.name] = np.array(values, dtype=object if values is own else float)[:, np.newaxis]
    return dict(zip([entry.name for entry in session.get_outputs()], session.run(None, given)))


@pytest.mark.parametrize("name", MODELS)
def test_onnx_holds_everything_that_predict_does(home: Path, tmp_path: Path, name: str) -> None:
    pytest.importorskip("onnx")
    assert run("export", home / name, "-o", tmp_path / "m.onnx") == 0
    session = pytest.importorskip("onnxruntime").InferenceSession(str(tmp_path / "m.onnx"))
    found = of_onnx(session, cells(home / "new.csv"))
    wanted = predicted(home / name, home / "new.csv")
    assert np.abs(found["score"] - wanted.score).max() <= 1e-12
    assert np.abs(found["probability"] - wanted.mean).max() <= 1e-12
    assert found["label"].tolist() == wanted.label
    # Categories that training did not have or that are written otherwise, and cells that are refused.
    row = {column: own[:1] for column, own in cells(home / "new.csv").items()}
    for column, cell in (("city", "Paris"), ("plan", "+2.0"), ("city", "NULL"), ("joined", "2016-2-1")):
        changed = row | {column: [cell]}
        with (tmp_path / "one.csv").open("w", encoding="utf-8") as file:
            csv.writer(file).writerows([changed, [own[0] for own in changed.values()]])
        score = of_onnx(session, changed)["score"]
        assert np.abs(score - predicted(home / name, tmp_path / "one.csv").score).max() <= 1e-12
    for column, cell in (("plan", " 2"), ("amount", "inf"), ("joined", "soon"), ("plan", "")):
        outputs = of_onnx(session, row | {column: [cell]})
        refused = (cell or name == "strict") and (column != "amount" or name != "strict")
        assert np.isnan(outputs["score"]).all() == bool(refused)
        assert (outputs["label"].tolist() == [""]) == bool(refused)
