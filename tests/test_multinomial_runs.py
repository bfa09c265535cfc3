"""More than two classes from a source file to predictions and report, by the command line."""

import csv
import io
import json

import h5py
import numpy as np
import pytest
from fastadmm import ADMMSharingClassifier
from fastadmm.errors import FormatError, InputError
from fastadmm.runs.predict import predict_partition
from fastadmm.solver.metrics import multiclass_metrics, quick_class_metrics
from fastadmm.store.label_file import LabelWriter, open_labels
from fastadmm.store.model import open_model
from fastadmm.store.partition import open_partition
from sklearn.datasets import load_iris
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss, recall_score, roc_auc_score

from run_tools import assert_clean, assert_same_run, result_of, run, within

NAMES = ("setosa", "versicolor", "virginica")


def iris_csv(path, rows, weights=False):
    X, y = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))[rows]
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["sl", "sw", "pl", "pw", "species"])
        writer.writerows([*X[i], NAMES[y[i]]] for i in order)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classes")
    iris_csv(folder / "train.csv", slice(0, 110))
    iris_csv(folder / "test.csv", slice(110, 150))
    convert = ("--label", "species", "--columns", "2,2", "--standardize")
    assert run("convert", folder / "train.csv", "-o", folder / "train.parts", *convert) == 0
    assert run("convert", folder / "test.csv", "-o", folder / "test.parts", "--label", "species",
               "--like", folder / "train.parts") == 0  # fmt: skip
    train = ("train", folder / "train.parts", "--test", folder / "test.parts", "--lambda", "1e-3")
    assert run(*train, "--gap", "1e-9", "-o", folder / "run") == 0
    return folder


def test_the_run_is_the_estimators_model(folder):
    model, partition = open_model(folder / "run"), open_partition(folder / "train.parts")
    blocks = [party.load() for party in partition.parties]
    names = np.array(NAMES)[partition.labels.y.astype(int)]
    other = ADMMSharingClassifier(alpha=1e-3, tol=1e-9).fit(blocks, names)
    assert (model.loss, model.classes) == ("multinomial", NAMES)
    assert [party.weights.shape for party in model.parties] == [(2, 3), (2, 3)]
    for party, weights in zip(model.parties, other.party_coefs_):
        np.testing.assert_allclose(party.weights, weights, atol=1e-12)
    np.testing.assert_allclose(model.intercept, other.intercept_, atol=1e-12)
    result = result_of(folder / "run")
    assert (result["loss"], result["scheme"], result["status"]) == ("multinomial", "subspace", "converged")
    assert result["intercepts"] == pytest.approx(other.intercept_.tolist())
    last = json.loads((folder / "run" / "rounds.jsonl").read_text().splitlines()[-1])
    assert last["test"]["accuracy"] > 0.9


def test_predict_evaluate_report_inspect(folder, capsys):
    capsys.readouterr()
    assert run("predict", folder / "run", folder / "test.parts") == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    probabilities = np.array([[float(row[f"probability_{name}"]) for name in NAMES] for row in rows])
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    assert [row["label"] for row in rows] == [NAMES[c] for c in probabilities.argmax(axis=1)]
    got = predict_partition(folder / "run", folder / "test.parts")
    np.testing.assert_array_equal(got.mean, probabilities)

    assert run("evaluate", folder / "run", folder / "test.parts", "--json") == 0
    metrics = json.loads(capsys.readouterr().out)["metrics"]
    y = open_partition(folder / "test.parts").labels.y
    assert metrics["log_loss"] == pytest.approx(log_loss(y, probabilities))
    assert metrics["auc"] == pytest.approx(roc_auc_score(y, probabilities, multi_class="ovr"))
    assert [row["name"] for row in metrics["classes"]] == list(NAMES)
    last = json.loads((folder / "run" / "rounds.jsonl").read_text().splitlines()[-1])["test"]
    for key in ("log_loss", "accuracy", "auc"):
        assert last[key] == pytest.approx(metrics[key], abs=1e-9)
    assert run("report", folder / "run") == 0
    assert "virginica" in (folder / "run" / "report.html").read_text(encoding="utf-8")
    for path in ("run", "run/model", "train.parts", "train.parts/labels.h5"):
        capsys.readouterr()
        assert run("inspect", folder / path) == 0
        assert capsys.readouterr().out
    assert run("inspect", folder / "train.parts", "--json") == 0
    labels = json.loads(capsys.readouterr().out)["labels"]
    assert labels["classes"] == list(NAMES)
    assert sum(labels["counts"]) == 110


@pytest.mark.parametrize("scheme", ["subspace", "sharing"])
def test_resume_is_bit_identical_from_toml(folder, tmp_path, scheme):
    settings = {"data": folder / "train.parts", "loss": "multinomial", "scheme": scheme}
    text = "".join(f'{key} = "{value}"\n' for key, value in settings.items()) + "lambda = 1e-5\ngap = 0.0\n"
    (tmp_path / "run.toml").write_text(text, encoding="utf-8")
    train = ("train", "--config", tmp_path / "run.toml")
    assert run(*train, "--rounds", 6, "--threads", 1, "-o", tmp_path / "whole") == 7
    assert run(*train, "--rounds", 3, "--threads", 2, "-o", tmp_path / "half") == 7
    assert run("resume", tmp_path / "half", "--rounds", 6) == 7
    assert_same_run(tmp_path / "whole", tmp_path / "half")
    assert_clean(tmp_path / "half")


def test_two_classes_none_and_numbers(folder, tmp_path, capsys):
    lines = (folder / "train.csv").read_text().splitlines()
    (tmp_path / "two.csv").write_text("\n".join(line for line in lines if "setosa" not in line))
    two = ("--positive", "virginica", "--label", "species", "--parties", 2, "-o", tmp_path / "two.parts")
    assert run("convert", tmp_path / "two.csv", *two) == 0
    assert run("train", tmp_path / "two.parts", "--loss", "multinomial", "-o", tmp_path / "run") == 0
    model = open_model(tmp_path / "run")
    assert model.parties[0].weights.shape[1] == 2
    assert run("evaluate", tmp_path / "run", tmp_path / "two.parts") == 0
    (tmp_path / "real.csv").write_text("a,b,y\n" + "".join(f"{i},{i % 3},{i + 0.5}\n" for i in range(30)))
    real = ("-o", tmp_path / "real.parts", "--label", "y", "--parties", 2)
    assert run("convert", tmp_path / "real.csv", *real) == 0
    assert run("train", tmp_path / "real.parts", "--loss", "multinomial", "-o", tmp_path / "no") != 0
    assert "multinomial needs classes" in capsys.readouterr().err
    # Owners of rows have two classes.
    tmp_path = within(tmp_path)
    capsys.readouterr()
    convert = ("owners", "convert", folder / "train.csv", "--label", "species", "--sizes", "60,50")
    assert run(*convert, "-o", tmp_path / "out") != 0
    assert "3 classes, but exactly two are supported for owners of rows" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_numbers_need_the_task(tmp_path, capsys):
    (tmp_path / "a.svm").write_text("3 1:1\n1 2:1\n2 1:1 2:3\n1 1:4\n")
    convert = ("convert", tmp_path / "a.svm", "-o", tmp_path / "a.parts", "--parties", 2)
    assert run(*convert) != 0
    assert "for classes --task classification" in capsys.readouterr().err
    assert run(*convert, "--task", "classification") == 0
    assert "labels: 1 -> 0 (2 rows), 2 -> 1 (1 rows), 3 -> 2 (1 rows)" in capsys.readouterr().out
    np.savez(tmp_path / "a.npz", X=np.eye(4), y=np.array([5, 7, 9, 5]))
    convert = ("convert", tmp_path / "a.npz", "-o", tmp_path / "n.parts", "--parties", 2)
    assert run(*convert, "--task", "classification") == 0
    assert open_partition(tmp_path / "n.parts").labels.classes == ("5", "7", "9")


# --- files
def test_label_files_and_class_numbers(tmp_path):
    for names, y, version in ((("a", "b"), [0, 1], "1.0"), (("a", "b", "c"), [0, 2], "1.1")):
        path = tmp_path / f"{len(names)}.h5"
        with LabelWriter(path, task="classification", classes=names) as writer:
            writer.append(y)
        assert open_labels(path).classes == names
        with h5py.File(path) as file:
            assert file.attrs["encoding-version"] == version
    # Class numbers beyond the names are refused.
    tmp_path = within(tmp_path)
    writer = LabelWriter(tmp_path / "x.h5", task="classification", classes=("a", "b", "c"))
    with pytest.raises(InputError, match=r"row 2: value 3\.0 is no class number from 0 to 2"):
        writer.append([0, 3])
    writer.abort()
    assert not list(tmp_path.iterdir())


def test_damaged_models_are_refused(folder, tmp_path):
    import shutil

    def change_weights(path):
        with h5py.File(path / "party-1.h5", "a") as file:
            attributes, values = dict(file["weights"].attrs), file["weights"][:, :2]
            del file["weights"], file.attrs["digest"]
            file.create_dataset("weights", data=values).attrs.update(attributes)

    def drop_intercepts(path):
        with h5py.File(path / "coordinator.h5", "a") as file:
            del file["intercepts"]

    for damage, words in (
        (change_weights, "shape .2, 2., but model.toml and the intercepts say .2, 3."),
        (drop_intercepts, "intercepts"),
    ):
        path = tmp_path / damage.__name__
        shutil.copytree(folder / "run" / "model", path)
        damage(path)
        with pytest.raises(FormatError, match=words):
            open_model(path)


# --- metrics
@pytest.mark.parametrize("classes", [2, 4])
def test_metrics_are_scikit_learns(classes):
    rng = np.random.default_rng(classes)
    z, y, s = (
        rng.normal(size=(200, classes)),
        rng.integers(0, classes, 200),
        rng.integers(0, 4, 200).astype(float),
    )
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)
    full = multiclass_metrics(y, p, [f"c{c}" for c in range(classes)], s)
    quick = quick_class_metrics(y, z, s)
    assert full["log_loss"] == pytest.approx(log_loss(y, p, sample_weight=s))
    assert full["accuracy"] == pytest.approx(accuracy_score(y, p.argmax(axis=1), sample_weight=s))
    areas = [roc_auc_score(y == c, p[:, c], sample_weight=s) for c in range(classes)]
    assert full["auc"] == pytest.approx(np.mean(areas))
    recalls = recall_score(y, p.argmax(axis=1), average=None, sample_weight=s)
    assert [row["recall"] for row in full["classes"]] == pytest.approx(recalls.tolist())
    if classes == 2:
        assert full["brier"] == pytest.approx(2 * brier_score_loss(y, p[:, 1], sample_weight=s))
    for key, value in quick.items():
        assert value == pytest.approx(full[key], rel=1e-12)


def test_metrics_refuse_and_leave_out():
    with pytest.raises(InputError, match="classes must be given as 0 to 2"):
        quick_class_metrics([0, 3], np.zeros((2, 3)))
    with pytest.raises(InputError, match="sum to 1"):
        multiclass_metrics([0, 1], np.ones((2, 2)), ["a", "b"])
    with pytest.raises(InputError, match="one column per class"):
        quick_class_metrics([0, 1], np.zeros(2))
    assert quick_class_metrics([0, 1], np.full((2, 2), np.nan)) == dict.fromkeys(
        ("log_loss", "accuracy", "auc")
    )
    assert multiclass_metrics([0, 0], [[1.0, 0.0], [0.5, 0.5]], ["a", "b"])["auc"] is None
