"""One score at every door: however tables came in, and whatever program scores new rows."""

import csv
import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fastadmm.data_tools.encoding import encoder_of
from fastadmm.data_tools.per_table import TableRows
from fastadmm.runs.predict import predict_partition, predict_tables
from fastadmm.runs.service import make_app, open_service
from fastadmm.store.model import open_model
from fastadmm.store.partition import open_partition

from run_tools import run
from test_serve import ask

TYPES = ("--types", "joined=days", "--categorical", "plan", "--na-values", "debt=-999")
SCALED = ("--missing", "most-frequent", "--standardize", "--set", "normalize=l2")


def columns(seed, n=400):
    """Categories, codes, numbers, dates and truth values, some of them missing."""
    rng = np.random.default_rng(seed)
    city, plan = rng.choice(["Rome", "Oslo", "Bern", ""], n), rng.choice(["1", "2", "3"], n)
    amount, debt = rng.normal(50.0, 20.0, n).round(3), rng.normal(size=n).round(3)
    joined, flag = np.datetime64("2015-01-01") + rng.integers(0, 2000, n), rng.random(n) < 0.5
    days = (joined - np.datetime64("2015-01-01")).astype(float)
    z = 1.5 * (city == "Rome") + 1.5 * (plan == "2") + amount / 20.0 - 1.5 * flag + debt + days / 500.0 - 4.6
    cells = {
        "city": city, "plan": plan, "amount": np.where(rng.random(n) < 0.1, "", amount), "joined": joined,
        "debt": np.where(rng.random(n) < 0.1, -999, debt), "flag": np.where(flag, "True", "False"),
        "y": np.where(rng.random(n) < 1.0 / (1.0 + np.exp(-z)), "yes", "no"), "id": np.arange(n),
    }  # fmt: skip
    return {name: own.astype(str).tolist() for name, own in cells.items()}


def write(path, cells, *names):
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names or cells)
        writer.writerows(zip(*(cells[name] for name in names or cells)))
    return path


def spelled(cells, spell):
    return {**cells, "flag": [spell(cell) for cell in cells["flag"]]}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Models of the same rows, which came in by different doors, and other rows to score."""
    home, old = tmp_path_factory.mktemp("doors"), columns(0)
    one = ("--label", "y", "--drop", "id", "--columns", "city,plan,amount;joined,debt,flag", *TYPES)
    new = write(home / "new.csv", spelled(columns(1), str.upper))
    typed = write(home / "t.csv", old)
    names = pa.array([cell == "True" for cell in old["flag"]])
    table = pa.table({**{k: own for k, own in old.items() if k != "flag"}, "flag": names})
    pq.write_table(table, home / "t.parquet")
    guest = write(home / "party-1.csv", old, "id", "y", "city", "plan", "amount")
    host = write(
        home / "party-2.csv", spelled(old, lambda cell: cell[0].lower()), "id", "joined", "debt", "flag"
    )
    plain = write(home / "plain.csv", spelled(old, str.lower), "plan", "flag", "id", "y")
    converted = {
        "typed": (typed, *one, *SCALED),
        "parquet": (home / "t.parquet", *one, *SCALED),
        "tables": ("--guest", guest, "--host", host, "--id", "id", "--label", "y", *TYPES, *SCALED),
        "plain": (plain, "--label", "y", "--drop", "id", "--parties", 1),
        "strict": (typed, "--label", "y", "--drop", "id,city,amount,debt", "--parties", 1, *TYPES[:4]),
        "marked": (typed, *one, "--missing", "indicator"),
    }  # fmt: skip
    for name, arguments in converted.items():
        assert run("convert", *arguments, "-o", home / f"{name}.parts") == 0
        if name != "tables":
            like = ("--like", home / f"{name}.parts", "-o", home / f"{name}.new")
            assert run("convert", new, "--label", "y", *like) == 0
    assert run("scorecard", "bins", home / "marked.parts", "-o", home / "binned.parts") == 0
    assert (
        run("convert", new, "--label", "y", "--like", home / "binned.parts", "-o", home / "binned.new") == 0
    )
    for name in WAYS:
        assert run("train", home / f"{name}.parts", "--lambda", 1e-3, "-q", "-o", home / name) == 0
    return home


WAYS = ("typed", "parquet", "tables", "plain", "strict", "marked", "binned")


def number(cell):
    return float({"True": "1", "False": "0", "TRUE": "1", "FALSE": "0", "": "nan"}.get(cell, cell))


def of_onnx(session, cells):
    given = {}
    for entry in session.get_inputs():
        values = [number(cell) for cell in cells[entry.name]] if "double" in entry.type else cells[entry.name]
        given[entry.name] = np.array(values, dtype=float if "double" in entry.type else object)[:, np.newaxis]
    return dict(zip([entry.name for entry in session.get_outputs()], session.run(None, given)))


@pytest.mark.representatives(3)
@pytest.mark.parametrize("way", WAYS)
def test_programs_of_ours_agree(home, tmp_path, way):
    cells, trained = columns(1), open_model(home / way)
    wanted = predict_tables(home / way, [home / "new.csv"], TableRows())[0].score
    if way in ("parquet", "tables"):
        same = predict_tables(home / "typed", [home / "new.csv"], TableRows())[0].score
        assert np.abs(wanted - same).max() <= 1e-12
    used = [column.name for party in trained.parties for column in encoder_of(party).columns]
    rows = [{name: cells[name][i] or None for name in used} for i in range(len(wanted))]
    service = make_app(open_service(home / way, None, False, len(rows)))
    _, answer = ask(service, "POST", "/predict", {"rows": rows})
    assert np.abs([row["score"] for row in answer["predictions"]] - wanted).max() <= 1e-12
    if way == "tables":
        return
    like = open_partition(home / f"{way}.new")
    assert np.abs(predict_partition(home / way, like.path).score - wanted).max() <= 1e-12
    assert run("export", home / way, "-o", tmp_path / "m.json") == 0
    document = json.loads((tmp_path / "m.json").read_text())
    parts = zip(document["parties"], like.parties)
    sums = sum(own["scale"] * (party.load() @ np.array(own["weights"])) for own, party in parts)
    assert np.abs(document["intercept"] + sums - wanted).max() <= 1e-12
    assert document["model_id"] == trained.model_id


@pytest.mark.parametrize("way", WAYS)
def test_onnx_agrees(home, tmp_path, way):
    pytest.importorskip("onnx")
    assert run("export", home / way, "-o", tmp_path / "m.onnx") == 0
    session = pytest.importorskip("onnxruntime").InferenceSession(str(tmp_path / "m.onnx"))
    cells, wanted = columns(1), predict_tables(home / way, [home / "new.csv"], TableRows())[0]
    found = of_onnx(session, cells)
    assert np.abs(found["score"] - wanted.score).max() <= 1e-12
    assert np.abs(found["probability"] - wanted.mean).max() <= 1e-12
    assert found["label"].tolist() == wanted.label
    if way == "plain":
        return
    # Categories that training did not have or that are written otherwise, and cells that are refused.
    row = {name: own[:1] for name, own in cells.items()}
    for name, cell in (("city", "Paris"), ("plan", "+2.0"), ("city", "NULL"), ("joined", "2016-2-1")):
        changed = {**row, name: [cell]}
        same = predict_tables(home / way, [write(tmp_path / "one.csv", changed)], TableRows())[0].score
        assert np.abs(of_onnx(session, changed)["score"] - same).max() <= 1e-12
    for name, cell in (("plan", " 2"), ("amount", "inf"), ("joined", "soon"), ("plan", "")):
        outputs = of_onnx(session, {**row, name: [cell]})
        refused = (name != "amount") if way == "strict" else bool(cell)
        assert np.isnan(outputs["score"]).all() == refused
        assert (outputs["label"].tolist() == [""]) == refused


BIG = "9007199254740993"


def test_large_whole_numbers_of_parquet_are_refused(tmp_path, capsys):
    pq.write_table(pa.table({"x": [1, int(BIG)], "y": ["no", "yes"]}), tmp_path / "t.parquet")
    assert run("convert", tmp_path / "t.parquet", "--label", "y", "--parties", 1, "-o", tmp_path / "p") == 3
    assert f"row 2, column 'x': '{BIG}' is a whole number" in capsys.readouterr().err
    (tmp_path / "t.csv").write_text(f"x,c,y\n1,a,no\n{BIG}.0,b,yes\n")
    whole = ("--label", "y", "--parties", 1, "--categorical", "x", "-o", tmp_path / "p")
    assert run("convert", tmp_path / "t.csv", *whole) == 0
