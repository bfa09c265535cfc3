"""``fastadmm verify`` proves what was written, and refuses what was changed; what prints a claim compares."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import h5py
import numpy as np
import pytest
from fastadmm.files.atomic import write_toml
from fastadmm.files.reading import read_toml
from fastadmm.runs.plain import Columns, Rows
from fastadmm.runs.recompute import recompute
from fastadmm.runs.verify import verify_run
from fastadmm.store.model import open_model, write_model
from fastadmm.store.partition import create_partition

from run_tools import in_file, refused, result_of, run, told, write_blocks

#: Targets that a loss takes, from a predictor.
TARGETS: dict[str, Callable[[np.random.Generator, np.ndarray], np.ndarray]] = {
    "classes": lambda rng, z: (rng.random(len(z)) < 1.0 / (1.0 + np.exp(-z))).astype(float),
    "real": lambda rng, z: z + rng.normal(size=len(z)),
    "counts": lambda rng, z: rng.poisson(np.exp(z / 2.0)).astype(float),
    "positive": lambda rng, z: np.exp(z / 2.0) * rng.gamma(2.0, size=len(z)),
    "shares": lambda rng, z: rng.integers(0, 5, len(z)) / 4.0,
    "three": lambda rng, z: rng.integers(0, 3, len(z)).astype(float),
}
KIND = {
    **dict.fromkeys(("logistic", "hinge", "smoothed_hinge", "squared_hinge"), "classes"),
    **dict.fromkeys(("squared", "huber", "quantile"), "real"),
    **dict.fromkeys(("poisson", "negative_binomial", "tweedie"), "counts"),
    "gamma": "positive",
    "binomial": "shares",
    "multinomial": "three",
}
PENALTIES: list[dict[str, object]] = [
    {"regularizer": "l2"},
    {"regularizer": "l1", "constraint": "nonnegative"},
    {"regularizer": "elastic_net", "l1_ratio": 0.3, "constraint": "box:-0.3,0.4"},
    {"regularizer": "l2", "constraint": "ball:0.5"},
]


def write_data(path, kind="classes", n=90, shift=0.0, **labels):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, 5))
    y = TARGETS[kind](rng, X @ [1.0, -1.0, 0.5, 0.3, 0.0])
    X[:, 0] += shift
    task = "classification" if kind in ("classes", "three") else "regression"
    with create_partition(path, task=task) as whole:
        whole.party("near", n_features=3, kind="dense").append(X[:, :3])
        whole.party("far", n_features=2).append(np.where(abs(X[:, 3:]) > 0.5, X[:, 3:], 0.0))
        names = {"classes": ("no", "yes"), "three": ("a", "b", "c")}.get(kind)
        whole.labels(classes=names).append(y, **labels)
    return path


def train(tmp_path, *options, kind="classes", gap=1e-7, **labels):
    data = write_data(tmp_path / "d.parts", kind, **labels)
    out = tmp_path / "run"
    assert run("train", data, "-o", out, "-q", "--lambda", 0.02, "--gap", gap, "--force", *options) == 0
    return out


@pytest.mark.representatives(12)
@pytest.mark.parametrize("penalty", PENALTIES, ids=lambda p: "-".join(map(str, p.values())))
@pytest.mark.parametrize("loss", KIND)
def test_every_loss(tmp_path, loss, penalty):
    weight = np.random.default_rng(5).random(90) + 0.1
    extra = {} if loss == "multinomial" else {"offset": 0.1 * weight}
    out = train(tmp_path, "--loss", loss, *in_file(**penalty), kind=KIND[loss], sample_weight=weight, **extra)
    found = verify_run(out)
    assert found.holds, found.line
    written = result_of(out)["certificate"]
    assert found.objective == pytest.approx(written["objective"], rel=1e-12)
    assert found.gap <= 1e-7
    assert verify_run(out, digits=40).gap_absolute == pytest.approx(found.gap_absolute, rel=1e-2, abs=1e-12)


@pytest.mark.parametrize(
    "options",
    [
        ["--set", "intercept=false"],
        ["--set", "validation=0.3", *in_file(patience=500)],
        ["--set", "class_weight=balanced"],
        in_file(class_weight={"no": 2.0}),
        in_file(party_lambda={"far": 0.2}),
        in_file(regularizer="group_lasso", groups=[[[0, 2], [1]], []]),
        in_file(party_constraint={"near": "box:-0.2,0.1"}),
        ["--scheme", "sharing", "--gap", "1e-4"],
    ],
    ids=["plain", "validation", "balanced", "weights", "party_lambda", "groups", "party_sets", "sharing"],
)
def test_every_setting(tmp_path, options):
    out = train(tmp_path, *options)
    found = verify_run(out)
    assert found.holds, found.line
    assert found.objective == pytest.approx(result_of(out)["certificate"]["objective"], rel=1e-11)


def test_columns_far_from_zero(tmp_path):
    data = write_data(tmp_path / "d.parts", "real", shift=3e8)
    assert run("train", data, "-o", tmp_path / "run", "-q", "--lambda", 0.02) == 0
    plain, exact = verify_run(tmp_path / "run"), verify_run(tmp_path / "run", digits=60)
    assert plain.objective == pytest.approx(exact.objective, rel=1e-9)
    assert plain.gap_absolute == pytest.approx(exact.gap_absolute, rel=1e-6, abs=1e-12)


def change_weight(out):
    with h5py.File(out / "model" / "near.h5", "r+") as file:
        file["weights"][0] += 0.01
        del file.attrs["digest"]  # as by somebody who knows of it


def change_lambda(out):
    values = read_toml(out / "run.toml")
    values["lambda"] *= 2.0
    del values["provenance"]["settings"]  # as by somebody who knows of the seal
    write_toml(out / "run.toml", values)


def change_labels(out):
    with h5py.File(out.parent / "d.parts" / "labels.h5", "r+") as file:
        file["y"][:2] = 1.0 - file["y"][:2]


def change_column(out):
    with h5py.File(out.parent / "d.parts" / "near.h5", "r+") as file:
        file["X"][3, 1] += 1.0


def edit(out, change=len, **values):
    """Write other values into a result, and change its certificate, in place."""
    document = result_of(out)
    change(document.get("certificate", {}))
    (out / "result.json").write_text(json.dumps(document | values), encoding="utf-8")


def assert_noticed(home, capsys, *changes):
    """Each change in turn, of a run and its data as they were, is one line."""
    kept = home.with_name("kept")
    shutil.copytree(home, kept)
    for change, code, said in changes:
        change(home / "run")
        capsys.readouterr()
        assert run("verify", home / "run") == code, said
        found = capsys.readouterr()
        assert said in found.out + found.err
        assert len((found.out + found.err).splitlines()) == 1
        shutil.rmtree(home)
        shutil.copytree(kept, home)


@pytest.fixture
def home(tmp_path):
    (tmp_path / "home").mkdir()
    return tmp_path / "home"


def test_changed(home, capsys):
    train(home)
    assert_noticed(
        home,
        capsys,
        (change_weight, 7, "the weights in model/ are not those that the claim is of"),
        (change_lambda, 7, "the settings in run.toml are not those"),
        (change_labels, 7, "the data in"),
        (change_column, 4, "content-digest"),
        (lambda out: np.save(out / "dual.npy", 0.5 * np.load(out / "dual.npy")), 7, "the gap is"),
        (lambda out: (out / "dual.npy").write_bytes((out / "dual.npy").read_bytes()[:-9]), 4, "damaged"),
        (lambda out: np.save(out / "dual.npy", np.zeros(7)), 4, "not 90 finite numbers"),
        (lambda out: (out / "dual.npy").unlink(), 0, "holds: objective"),
        (lambda out: edit(out, lambda c: c.update(asked=1e-30, gap=1e-30)), 7, "1e-30 was asked"),
        (lambda out: edit(out, lambda c: c.update(objective=0.9 * c["objective"])), 7, "the objective is"),
        (lambda out: edit(out, lambda c: c.update(claim="uncertified")), 7, "not certified; what is written"),
        (lambda out: edit(out, lambda c: c.update(claim="contradiction")), 10, "contradict"),
        (lambda out: edit(out, lambda c: c.pop("claim")), 4, "key 'certificate' is damaged"),
        (lambda out: (out / "result.json").unlink(), 6, "not finished"),
        (lambda out: (out / "run.toml").unlink(), 4, "not a run"),
    )


def test_older_and_moved_runs(tmp_path, capsys):
    out = train(tmp_path)
    (tmp_path / "d.parts").rename(tmp_path / "moved.parts")
    assert run("verify", out) == 6
    assert run("verify", out, tmp_path / "moved.parts") == 0
    assert run("verify", out, write_data(tmp_path / "other.parts", n=80)) == 7
    found = told(capsys, "verify", out, tmp_path / "moved.parts")
    assert found["holds"]
    assert found["gap"] <= 1e-7
    large = write_data(tmp_path / "large.parts", n=50_000)
    assert run("train", large, "-o", tmp_path / "large", "-q") == 0
    assert run("verify", tmp_path / "large", "--digits", 30) == 5
    assert run("verify", tmp_path / "large") == 0
    out = train(tmp_path)
    document = result_of(out)
    del document["certificate"]
    (out / "result.json").write_text(json.dumps(document), encoding="utf-8")
    (out / "dual.npy").unlink()
    model = open_model(out)
    old = {key: model.certificate[key] for key in ("status", "objective", "gap", "gap_absolute", "rounds")}
    write_model(out / "model", replace(model, certificate=old), force=True)
    shutil.copytree(out, tmp_path / "other")
    for text in printed(out, capsys, tmp_path / "other"):
        assert "recorded by an older version, not checkable" in text.lower()
    assert "older version" in refused(capsys, 4, "verify", out)


def printed(out, capsys, other):
    """What card, inspect, report and compare say of a run."""
    texts = []
    for command in (["card", out], ["inspect", out], ["compare", out, other]):
        assert run(*command) == 0
        texts.append(" ".join(capsys.readouterr().out.split()))
    assert run("report", out) == 0
    capsys.readouterr()
    page = (out / "report.html").read_text(encoding="utf-8")
    return [*texts, re.sub("(?s)<style>.*?</style>", "", page)]


@pytest.mark.parametrize("change", [change_weight, change_lambda])
def test_what_prints_a_claim(tmp_path, capsys, change):
    out = train(tmp_path)
    shutil.copytree(out, tmp_path / "other")
    assert all("ertified" in text for text in printed(out, capsys, tmp_path / "other"))
    assert "fastadmm verify run" in (out / "report.html").read_text(encoding="utf-8")
    change(out)
    shutil.rmtree(tmp_path / "other")
    shutil.copytree(out, tmp_path / "other")
    for text in printed(out, capsys, tmp_path / "other"):
        assert "not shown; run" in text.replace("&#39;", "'")
        assert not re.search(r"(?i)\bcertified", text)


def test_what_is_proved_among_bounded_models_verifies(tmp_path):
    """The norm paid for a share of the kept vector only, which proves less among models of bounded size."""
    rng = np.random.default_rng(2)
    color, job, city = (np.eye(k)[rng.integers(0, k, 3000)] for k in (4, 5, 3))
    age, income = rng.normal(size=(2, 3000))
    y = (color[:, 0] + job[:, 0] - 0.4 * age + 0.3 * income + rng.normal(size=3000) > 0.5) * 1.0
    blocks = [np.hstack([color, job]), np.column_stack([city, age]), income[:, None]]
    write_blocks(tmp_path / "d.parts", blocks, y)
    settings = ("--loss", "hinge", "--regularizer", "l1", "--lambda", 1e-5, "--gap", 1e-10)
    assert run("train", tmp_path / "d.parts", "-o", tmp_path / "run", "-q", *settings) == 0
    found = verify_run(tmp_path / "run")  # at last digits, which say whether the claim is of all models
    assert found.holds, found.line


@pytest.mark.parametrize("fitted", [True, False])
@pytest.mark.parametrize("loss", KIND)
def test_no_model_is_below_the_bound(loss, fitted):
    """Weak duality: whatever vector the dual is, no model has a smaller objective than the bound."""
    rng = np.random.default_rng(11)
    n, classes = 40, 3 if loss == "multinomial" else 1
    X, weight = rng.normal(size=(n, 3)), rng.random(n)
    weight[:3] = 0.0
    y = TARGETS[KIND[loss]](rng, X @ [1.0, -0.5, 0.2])
    parameter = {"quantile": 0.3, "tweedie": 1.4}.get(loss, 0.8)
    rows = Rows(loss, parameter, y, weight / weight.mean(), 0.1 * rng.normal(size=n))
    sets: list[dict[str, Any]] = [
        {"first": 0.0, "second": 0.1},
        {"first": 0.05, "second": 0.0},
        {"first": 0.05, "second": 0.0, "low": 0.0},
        {"first": 0.02, "second": 0.05, "low": -0.2, "high": 0.3},
        {"first": 0.0, "second": 0.0, "radius": 0.5},
        {"first": 0.05, "second": 0.0, "groups": [[0, 2], [1]]},
        {"first": 0.05, "second": 0.0, "groups": [[0, 2], [1]], "radius": 0.4},
        {"first": 0.0, "second": 0.0},
    ]

    def at(x, b, own, u):
        party = Columns(x, lambda: [(0, X[:25]), (25, X[25:])], **own)
        return recompute(rows, [party], b, fitted, u, 3.0)

    for own in sets:
        models = []
        for size in (0.0, 0.1, 0.5, 1.0):
            x = np.clip(size * rng.normal(size=(3, classes)), own.get("low", -9.0), own.get("high", 9.0))
            x *= np.minimum(1.0, own.get("radius", 9.0) / np.maximum(np.linalg.norm(x, axis=0), 1e-9))
            models.append((x, size * rng.normal(size=classes) * fitted))
        found = [at(x, b, own, None) for x, b in models]
        free = own == sets[-1]
        for x, b in models:
            for u in (None, rng.normal(size=(classes, n))):
                one = at(x, b, own, u)
                gap = one.within if free else one.gap
                assert np.isfinite(gap)
                assert all(other.objective >= one.objective - gap - 1e-12 for other in found)
                assert free or gap >= -1e-12
                assert all(other.objective >= one.objective - one.within - 1e-12 for other in found)
                assert one.within <= one.gap


def test_path(tmp_path):
    data = write_data(tmp_path / "d.parts")
    out = tmp_path / "run"
    asked = in_file(path=True, path_length=4, folds=3, regularizer="l1")
    assert run("train", data, "-o", out, "-q", *asked) == 0
    found = verify_run(out)
    assert found.holds, found.line
    table = json.loads((out / "path.json").read_text(encoding="utf-8"))
    assert {row["claim"] for row in table["values"]} == {"certified"}
    before = (out / "dual.npy").read_bytes()
    for name in ("result.json", "dual.npy"):
        (out / name).unlink()
    assert run("resume", out, "-q") == 0
    assert (out / "dual.npy").read_bytes() == before
    assert verify_run(out).holds


@pytest.mark.parametrize(
    ("loss", "kind"), [("squared", "real"), ("logistic", "classes"), ("poisson", "counts")]
)
def test_bounded_models(tmp_path, capsys, loss, kind):
    out = train(tmp_path, "--loss", loss, "--regularizer", "none", kind=kind)
    assert result_of(out)["certificate"]["claim"] == "certified_within"
    found = verify_run(out)
    assert found.holds, found.line
    assert "among models of reach" in found.line
    assert found.exit_code == 0
    edit(out, lambda c: c["within"].update(reach=0.5 * c["within"]["reach"]))
    capsys.readouterr()
    assert "the reach" in refused(capsys, 7, "verify", out)
    for reach, code, said in ((0.0, 7, "the reach 0 is less"), ("far", 4, "damaged"), (None, 4, "damaged")):
        edit(out, lambda c, reach=reach: c["within"].update(reach=reach))
        assert said in refused(capsys, code, "verify", out)


# Problems that are not convex.
STATIONARY: list[tuple[str, dict[str, object]]] = [
    ("sigmoid", {"regularizer": "l1"}),
    ("welsch", {"regularizer": "elastic_net", "l1_ratio": 0.3, "constraint": "box:0.1,0.4"}),
    ("tukey:3.0", {"regularizer": "group_lasso", "groups": [[[0, 2], [1]], []], "constraint": "nonnegative"}),
    ("welsch", {"regularizer": "none", "constraint": "ball:0.5"}),
    ("tukey", {"constraint": "simplex"}),
    ("welsch", {"regularizer": "none", "constraint": "sum:0.5"}),
    ("sigmoid", {"regularizer": "l2", "party_lambda": {"far": 0.2}}),
    ("tukey", {"regularizer": "l1", "party_lambda": {"far": 0.2}}),
    ("logistic", {"regularizer": "log_sum:0.3"}),
    ("huber", {"regularizer": "log_sum"}),
    ("welsch", {"regularizer": "log_sum:0.3", "constraint": "nonnegative"}),
]


@pytest.mark.parametrize(
    ("loss", "penalty"), STATIONARY, ids=lambda p: str(p).translate(str.maketrans("", "", "{}' "))
)
def test_stationary_points(tmp_path, loss, penalty):
    """The norm of the prox-gradient, as a share of that at zero weights, and the objective: a second time."""
    weight = np.random.default_rng(5).random(90) + 0.1
    kind = "classes" if (loss in KIND and KIND[loss] == "classes") or loss == "sigmoid" else "real"
    data = write_data(tmp_path / "d.parts", kind, shift=2.0, sample_weight=weight, offset=0.1 * weight)
    settings = in_file(loss=loss, stationarity=1e-2, **{"lambda": 0.02}, **penalty)
    assert run("train", data, "-o", tmp_path / "run", "-q", *settings) == 0
    found, written = verify_run(tmp_path / "run"), result_of(tmp_path / "run")
    assert (found.holds, found.exit_code) == (True, 0), found.line
    assert "a stationary point, not proved to be a minimum" in found.line
    assert found.objective == pytest.approx(written["objective"], rel=1e-10)
    assert found.stationarity is not None
    above = written["scheme"] == "sharing"  # which also measures the state of ADMM
    assert found.stationarity <= written["stationarity"] * (1.0 + 1e-6) + 1e-12
    assert above or found.stationarity == pytest.approx(written["stationarity"], rel=1e-3, abs=1e-12)
    exact = verify_run(tmp_path / "run", digits=40).stationarity
    assert exact == pytest.approx(found.stationarity, rel=1e-6, abs=1e-12)


def test_changed_stationary_points(home, capsys):
    data, asked = write_data(home / "d.parts"), in_file(loss="sigmoid", regularizer="l1", **{"lambda": 0.02})
    assert run("train", data, "-o", home / "run", "-q", *asked) == 0
    assert run("verify", home / "run") == 0
    assert_noticed(
        home,
        capsys,
        (change_weight, 7, "does not hold: the objective is"),
        (change_lambda, 7, "does not hold: the objective is"),
        (change_labels, 7, "does not hold: the objective is"),
        (change_column, 4, "content-digest"),
        (lambda out: edit(out, objective=0.1), 7, "and 0.1 was written"),
        (lambda out: edit(out, stationarity=1e-12), 7, "-12 was claimed"),
        (lambda out: edit(out, status="max_rounds"), 7, "not stationary; what is written holds"),
        (lambda out: edit(out, status=None), 4, "damaged"),
    )
