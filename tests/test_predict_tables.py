"""``predict`` straight from tables gives what converting with --like and predicting gives."""

import csv

import numpy as np
import pytest
from fastadmm.data_tools.convert_tables import convert_tables
from fastadmm.data_tools.per_table import TableRows
from fastadmm.runs.config import make_config
from fastadmm.runs.evaluate import evaluate_partition, evaluate_tables
from fastadmm.runs.predict import predict_partition, predict_tables
from fastadmm.runs.train import start_run

from run_tools import run

RNG = np.random.default_rng(0)


def table(path, columns):
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values()))
    return path


def people(n, seed):
    """A bank's and a shop's table of the same people, in different orders, with categories and gaps."""
    rng = np.random.default_rng(seed)
    ids = [f"p{i}" for i in range(n)]
    age = [float(a) if a > 25 else "" for a in rng.integers(20, 70, n)]
    job = rng.choice(["clerk", "nurse", "pilot"], n).tolist()
    spent = rng.normal(100, 30, n).round(2)
    label = np.where(spent + rng.normal(0, 20, n) > 100, "yes", "no").tolist()
    order = rng.permutation(n)
    bank = {"id": ids, "age": age, "job": job, "label": label}
    shop = {
        "id": [ids[i] for i in order],
        "spent": [spent[i] for i in order],
        "town": [["a", "b"][i % 2] for i in order],
    }
    return bank, shop


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tables")
    bank, shop = people(120, 1)
    tables = table(folder / "bank.csv", bank), [table(folder / "shop.csv", shop)]
    how = {"id": "id", "label": "label", "missing": "median", "standardize": True, "names": "bank,shop"}
    convert_tables(*tables, folder / "train.parts", **how)
    start_run(make_config({"data": str(folder / "train.parts"), "lambda": 0.01}), folder / "run")
    bank, shop = people(40, 2)
    bank["job"][3] = "diver"  # unseen in training
    table(folder / "new-bank.csv", {k: v for k, v in bank.items() if k != "label"})
    table(folder / "new-shop.csv", shop)
    return folder


def scores(path):
    with path.open(encoding="utf-8") as file:
        return {row["id"]: float(row["score"]) for row in csv.DictReader(file)}


def test_scores_are_those_of_a_converted_partition(trained):
    convert_tables(
        trained / "new-bank.csv", [trained / "new-shop.csv"], trained / "new.parts",
        id="id", like=trained / "run",
    )  # fmt: skip
    converted = predict_partition(trained / "run", trained / "new.parts")
    tables = [trained / "new-bank.csv", trained / "new-shop.csv"]
    straight, notes = predict_tables(trained / "run", tables, TableRows(id="id"))
    # In the order of the first table, not in the canonical one.
    assert straight.ids.tolist() == [f"p{i}" for i in range(40)]
    expected = dict(zip(converted.ids.tolist(), converted.score.tolist()))
    np.testing.assert_allclose(straight.score, [expected[i] for i in straight.ids], rtol=1e-12)
    assert any("'job'" in note and "diver" in note for note in notes), notes


def test_one_table_with_all_columns_and_rows_left_out(trained, tmp_path, capsys):
    bank, shop = people(40, 2)
    place = {name: k for k, name in enumerate(shop["id"])}
    whole = {k: v for k, v in bank.items() if k != "label"}
    whole |= {k: [v[place[i]] for i in bank["id"]] for k, v in shop.items() if k != "id"}
    whole["colour"] = ["red"] * 40
    table(tmp_path / "whole.csv", whole)
    assert (
        run("predict", trained / "run", tmp_path / "whole.csv", "--id", "id", "-o", tmp_path / "w.csv") == 0
    )
    assert run("predict", trained / "run", tmp_path / "whole.csv", "-o", tmp_path / "n.csv") == 0
    numbered = scores(tmp_path / "n.csv")
    assert list(numbered) == [str(i) for i in range(40)]
    assert list(numbered.values()) == list(scores(tmp_path / "w.csv").values())
    fewer = {k: v[:30] for k, v in shop.items()}
    table(tmp_path / "fewer.csv", fewer)
    code = run("predict", trained / "run", trained / "new-bank.csv", tmp_path / "fewer.csv", "--id", "id",
               "-o", tmp_path / "f.csv")  # fmt: skip
    assert code == 0
    assert "10 ids are not in every table" in capsys.readouterr().err
    assert len(scores(tmp_path / "f.csv")) == 30


def test_offsets_and_labels_of_others(trained, tmp_path):
    tables = [trained / "new-bank.csv", trained / "new-shop.csv"]
    plain, _ = predict_tables(trained / "run", tables, TableRows(id="id"))
    bank, _ = people(40, 2)
    shift = np.linspace(-1, 1, 40).tolist()
    bank["job"][3] = "diver"
    table(tmp_path / "b.csv", {**bank, "shift": shift})
    moved, _ = predict_tables(
        trained / "run", [tmp_path / "b.csv", tables[1]], TableRows(id="id", offset="shift")
    )
    np.testing.assert_allclose(moved.score, plain.score + shift, rtol=1e-12)
    # Labels of a holder without columns are evaluated.
    bank, shop = people(60, 5)
    labels = table(tmp_path / "labels.csv", {"id": bank["id"], "label": bank.pop("label")})
    tables = [labels, table(tmp_path / "b.csv", bank), table(tmp_path / "s.csv", shop)]
    assert evaluate_tables(trained / "run" / "model", tables, TableRows(id="id"))["n_samples"] == 60


def test_tables_are_evaluated_as_their_partition_is(trained, tmp_path):
    bank, shop = people(60, 5)
    bank = {**bank, "weight": [1.0 + i % 3 for i in range(60)]}
    tables = [table(tmp_path / "b.csv", bank), table(tmp_path / "s.csv", shop)]
    convert_tables(*tables[:1], tables[1:], tmp_path / "new.parts", id="id", label="label",
                   like=trained / "train.parts")  # fmt: skip
    names = ("evaluate", trained / "run" / "model")
    assert run(*names, *tables, "--id", "id", "--label", "label") == 0
    told = evaluate_tables(trained / "run" / "model", tables, TableRows(id="id"), weight="weight")
    repeated = [i for i in range(60) for _ in range(1 + i % 3)]
    again = evaluate_partition(trained / "run" / "model", tmp_path / "new.parts")
    assert told["n_samples"] == again["n_samples"] == 60
    p = predict_tables(trained / "run", tables, TableRows(id="id"))[0].mean
    y = np.array(bank["label"]) == "yes"
    assert told["metrics"]["brier"] == pytest.approx(np.mean((p - y)[repeated] ** 2), rel=1e-12)


def test_parties_alone_and_their_sum(trained, tmp_path):
    tables = [trained / "new-bank.csv", trained / "new-shop.csv"]
    join = ("align", "--guest", tables[0], "--host", tables[1])
    assert run(*join, "--id", "id", "-o", tmp_path / "rows.json") == 0
    common = ["--id", "id", "--alignment", tmp_path / "rows.json"]
    model = trained / "run" / "model"
    assert run("predict", "--partial", model / "bank.h5", tables[0], *common, "-o", tmp_path / "b.h5") == 0
    assert run("predict", "--partial", trained / "run", tables[1], *common, "--party", "shop",
               "-o", tmp_path / "s.h5") == 0  # fmt: skip
    assert run("combine", tmp_path / "b.h5", tmp_path / "s.h5", "--model", trained / "run", "-o",
               tmp_path / "sum.csv") == 0  # fmt: skip
    assert run("predict", trained / "run", *tables, *common, "-o", tmp_path / "whole.csv") == 0
    assert (tmp_path / "sum.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_a_model_of_plain_columns(tmp_path):
    """Data without encoders: the features are columns of numbers."""
    X = RNG.normal(size=(60, 3))
    columns = {"label": (X[:, 0] > 0).astype(int).tolist(), **{f"x{j}": X[:, j].tolist() for j in range(3)}}
    table(tmp_path / "a.csv", columns)
    assert run("convert", tmp_path / "a.csv", "--label", "label", "--columns", "1,2", "--standardize",
               "-o", tmp_path / "a.parts") == 0  # fmt: skip
    assert run("train", tmp_path / "a.parts", "-o", tmp_path / "run", "-q") == 0
    assert run("predict", tmp_path / "run", tmp_path / "a.csv", "-o", tmp_path / "straight.csv") == 0
    assert run("predict", tmp_path / "run", tmp_path / "a.parts", "-o", tmp_path / "converted.csv") == 0
    np.testing.assert_allclose(
        list(scores(tmp_path / "straight.csv").values()),
        list(scores(tmp_path / "converted.csv").values()),
        rtol=1e-12,
    )
