"""Predictions are what the formula says, on raw and on converted data, and misfits are refused."""

import csv
import io
import json
import shutil

import numpy as np
import pytest
from fastadmm.data_tools.convert import convert
from fastadmm.errors import InputError, StorageError
from fastadmm.runs.config import make_config
from fastadmm.runs.evaluate import evaluate_partition
from fastadmm.runs.predict import predict_partition
from fastadmm.runs.train import start_run
from fastadmm.store.model import open_model
from fastadmm.store.partition import create_partition, open_partition
from scipy import sparse
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import log_loss, roc_auc_score

from problems import make_vertical_classification, make_vertical_regression
from run_tools import printed, refused, refuses, run, told, within, write_blocks


def write_csv(path, X, y, first=0):
    names = [f"x{j + 1}" for j in range(X.shape[1])]
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["kind", *names])
        writer.writerows([label, *map(repr, row)] for label, row in zip(y, X.tolist()))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Breast cancer, standardised: train.parts, test.parts (converted alike), raw.parts, run/."""
    folder = tmp_path_factory.mktemp("predict")
    data = load_breast_cancer()
    kinds = np.array(["malignant", "benign"])[data.target].tolist()
    write_csv(folder / "train.csv", data.data[:400], kinds[:400])
    write_csv(folder / "test.csv", data.data[400:], kinds[400:])
    convert(folder / "train.csv", folder / "train.parts", parties=3, label="kind", standardize=True)
    convert(folder / "test.csv", folder / "test.parts", label="kind", like=folder / "train.parts")
    convert(folder / "test.csv", folder / "raw.parts", parties=3, label="kind")
    start_run(make_config({"data": str(folder / "train.parts"), "lambda": 1e-2}), folder / "run")
    return folder


def test_the_formula_of_raw_data(folder):
    model, partition = open_model(folder / "run"), open_partition(folder / "test.parts")
    z = model.intercept + sum(p.load() @ m.weights for p, m in zip(partition.parties, model.parties))
    got = predict_partition(folder / "run", folder / "test.parts")
    assert np.abs(got.score - z).max() <= 1e-12 * np.abs(z).max()
    assert np.abs(got.mean - 1 / (1 + np.exp(-z))).max() <= 1e-14
    assert got.label == [model.classes[int(v > 0)] for v in z]
    assert got.ids.tolist() == list(range(169))
    # Raw data get the models transform.
    alike = predict_partition(folder / "run", folder / "test.parts")
    raw = predict_partition(folder / "run" / "model", folder / "raw.parts")
    assert np.abs(alike.score - raw.score).max() <= 1e-12 * np.abs(alike.score).max()
    assert evaluate_partition(folder / "run" / "model", folder / "raw.parts")["metrics"]["auc"] > 0.98


def test_ids_offsets_and_no_labels(tmp_path, capsys):
    blocks, y, _ = make_vertical_classification(100, (3, 2))
    offset = np.random.default_rng(0).normal(size=100)
    data = write_blocks(tmp_path / "a.parts", blocks, y, offset=offset)
    write_blocks(tmp_path / "plain.parts", blocks, y)
    start_run(make_config({"data": str(data)}), tmp_path / "run")
    write_blocks(tmp_path / "zero.parts", blocks, y, offset=0 * offset)
    scores = [
        predict_partition(tmp_path / "run", tmp_path / name).score for name in ("a.parts", "zero.parts")
    ]
    assert np.abs(scores[0] - scores[1] - offset).max() <= 1e-12
    with pytest.raises(InputError, match="trained with an offset, and these rows have none"):
        predict_partition(tmp_path / "run", tmp_path / "plain.parts")
    # Ids and no labels.
    tmp_path = within(tmp_path)
    blocks, y, _ = make_vertical_classification(60, (3, 2))
    start_run(make_config({"data": str(write_blocks(tmp_path / "a.parts", blocks, y))}), tmp_path / "run")
    ids = [f"pätient, {k}" for k in range(60)]
    with create_partition(tmp_path / "new.parts", task="classification") as writer:
        for block in blocks:
            writer.party(n_features=block.shape[1], kind="dense").append(block, ids)
    got = predict_partition(tmp_path / "run", tmp_path / "new.parts")
    assert got.ids.tolist() == ids
    assert np.array_equal(got.score, predict_partition(tmp_path / "run", tmp_path / "a.parts").score)
    rows = list(csv.reader(io.StringIO(printed(capsys, "predict", tmp_path / "run", tmp_path / "new.parts"))))
    assert [row[0] for row in rows[1:]] == ids
    assert run("evaluate", tmp_path / "run", tmp_path / "new.parts") in (3, 6)
    assert "labels" in capsys.readouterr().err
    assert run("train", tmp_path / "new.parts", "--out", tmp_path / "other") in (3, 6)
    assert not (tmp_path / "other").exists()


def test_csv(folder, tmp_path, capsys):
    text = printed(capsys, "predict", folder / "run", folder / "test.parts")
    rows = list(csv.reader(io.StringIO(text)))
    got = predict_partition(folder / "run", folder / "test.parts")
    assert rows[0] == ["id", "score", "probability", "label"]
    assert [int(row[0]) for row in rows[1:]] == got.ids.tolist()
    assert [float(row[1]) for row in rows[1:]] == got.score.tolist()  # to the last digit
    assert [float(row[2]) for row in rows[1:]] == got.mean.tolist()
    assert [row[3] for row in rows[1:]] == got.label

    out = tmp_path / "p.csv"
    assert run("predict", folder / "run", folder / "test.parts", "--out", out) == 0
    assert capsys.readouterr().out == f"169 predictions in {out}\n"
    assert out.read_text() == text
    assert run("predict", folder / "run", folder / "raw.parts", "--out", out) == 6
    assert "exists already" in capsys.readouterr().err
    assert out.read_text() == text
    assert run("predict", folder / "run", folder / "test.parts", "--out", out, "--force") == 0
    for bad in (tmp_path, tmp_path / "absent" / "p.csv"):
        assert run("predict", folder / "run", folder / "test.parts", "--out", bad) == 6
    assert [p.name for p in tmp_path.iterdir()] == ["p.csv"]


def test_metrics_of_classification(folder, capsys):
    document = told(capsys, "evaluate", folder / "run", folder / "test.parts")
    assert (document["data"], document["n_samples"]) == ("test.parts", 169)
    y = open_partition(folder / "test.parts").labels.y
    p = predict_partition(folder / "run", folder / "test.parts").mean
    metrics = document["metrics"]
    assert metrics["log_loss"] == pytest.approx(log_loss(y, p), rel=1e-12)
    assert metrics["auc"] == pytest.approx(roc_auc_score(y, p), rel=1e-12)
    assert metrics["accuracy"] == pytest.approx(np.mean((p > 0.5) == y), rel=1e-12)
    assert set(metrics) >= {"brier", "calibration"}
    assert json.loads((folder / "run" / "evaluation.json").read_text()) == document
    evaluate_partition(folder / "run" / "model", folder / "test.parts")
    assert not (folder / "run" / "model" / "evaluation.json").exists()


def test_regressions_and_least_squares_on_classes(tmp_path, capsys, folder):
    blocks, y, _ = make_vertical_regression(120, (3, 4))
    data = write_blocks(tmp_path / "a.parts", blocks, y, task="regression")
    result = told(capsys, "train", data, "--test", data, "--out", tmp_path / "run", "--quiet")
    assert result["loss"] == "squared"
    got = predict_partition(tmp_path / "run", data)
    rmse = float(np.sqrt(np.mean((got.mean - y) ** 2)))
    assert result["test"]["rmse"] == pytest.approx(rmse, rel=1e-9)
    metrics = evaluate_partition(tmp_path / "run", data)["metrics"]
    assert metrics["rmse"] == pytest.approx(rmse, rel=1e-12)
    assert {"mae", "r2"} <= set(metrics)
    assert printed(capsys, "predict", tmp_path / "run", data).startswith("id,prediction\n0,")
    # A regression on 0 and 1: its predictions are no probabilities, and are not called so.
    tmp_path = within(tmp_path)
    config = make_config({"data": str(folder / "train.parts"), "loss": "squared", "lambda": 1e-2})
    start_run(config, tmp_path / "run")
    got = predict_partition(tmp_path / "run", folder / "test.parts")
    assert got.label is None
    y = open_partition(folder / "test.parts").labels.y
    metrics = evaluate_partition(tmp_path / "run", folder / "test.parts")["metrics"]
    assert metrics["rmse"] == pytest.approx(float(np.sqrt(np.mean((got.score - y) ** 2))), rel=1e-12)


def other(old="", new="", **options):
    """What converts the test data otherwise, or after a change of their text."""

    def make(folder, to):
        text = (folder / "test.csv").read_text()
        assert old in text
        (to.parent / "changed.csv").write_text(text.replace(old, new, -1 if old == "benign" else 1))
        convert(to.parent / "changed.csv", to, **{"parties": 3, "label": "kind", **options})

    return make


def _regression(folder, to):
    text = (folder / "test.csv").read_text().replace("benign", "0.5").replace("malignant", "1.5")
    (to.parent / "r.csv").write_text(text)
    convert(to.parent / "r.csv", to, parties=3, label="kind", task="regression")


FEATURES = {
    "columns": other(parties=2),
    "fewer": other(parties=None, columns="10,10,9", drop=["x30"]),
    "names": other("x7,", "seven,"),
    "order": other("x7,x8,", "x8,x7,"),
    "parties": other(names="a,b,c"),
    "scaling": other(standardize=True),
    "norm": other(normalize="l2"),
}
LABELS = {"classes": other("benign", "harmless"), "regression": _regression}
OTHERS = {**FEATURES, **LABELS}


@pytest.mark.representatives(2)
@pytest.mark.parametrize("make", FEATURES)
def test_predict_refuses_other_features(folder, tmp_path, capsys, make):
    OTHERS[make](folder, tmp_path / "other.parts")
    for command in ("predict", "evaluate"):
        assert run(command, folder / "run", tmp_path / "other.parts") == 3
        out, err = capsys.readouterr()
        assert out == ""
        assert err.count("\n") == 1
        assert "other.parts" in err
        assert "--like" in err


def test_a_run_that_cannot_be_written(folder, tmp_path):
    shutil.copytree(folder / "run", tmp_path / "run")
    (tmp_path / "run" / "evaluation.json").unlink(missing_ok=True)
    (tmp_path / "run" / "evaluation.json").mkdir()
    with pytest.raises(StorageError, match="is a directory"):
        evaluate_partition(tmp_path / "run", folder / "test.parts")
    assert evaluate_partition(tmp_path / "run" / "model", folder / "test.parts")["n_samples"] > 0


@pytest.mark.parametrize("make", LABELS)
def test_evaluate_refuses_other_labels(folder, tmp_path, make):
    OTHERS[make](folder, tmp_path / "other.parts")
    before = (folder / "run" / "evaluation.json").exists()
    refuses(InputError, r"other\.parts", evaluate_partition, folder / "run", tmp_path / "other.parts")
    assert (folder / "run" / "evaluation.json").exists() == before
    predict_partition(folder / "run", tmp_path / "other.parts")  # needs no labels


@pytest.mark.representatives(2)
@pytest.mark.parametrize("make", OTHERS)
def test_train_refuses_a_test_partition_that_differs(folder, tmp_path, capsys, make):
    OTHERS[make](folder, tmp_path / "other.parts")
    test = ["--test", tmp_path / "other.parts"]
    err = refused(capsys, 3, "train", folder / "train.parts", *test, "--out", tmp_path / "run", "--quiet")
    assert "other.parts" in err
    assert not (tmp_path / "run").exists()


def test_dense_model_on_sparse_raw_data(folder, tmp_path):
    """A model that centres its columns also takes raw rows that are stored sparse."""
    raw = open_partition(folder / "raw.parts")
    with create_partition(tmp_path / "csr.parts", task="classification") as writer:
        for party in raw.parties:
            block = sparse.csr_array(party.load())
            writer.party(n_features=10, kind="csr", feature_names=party.feature_names).append(block)
    got = predict_partition(folder / "run", tmp_path / "csr.parts").score
    want = predict_partition(folder / "run", folder / "raw.parts").score
    assert np.abs(got - want).max() <= 1e-12 * np.abs(want).max()
