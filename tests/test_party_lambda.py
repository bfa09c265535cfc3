"""A lambda for each party: runs against closed forms, general minimisers and the estimators."""

import json
import re
import tomllib

import numpy as np
import pytest
from fastadmm import ADMMSharingClassifier
from fastadmm.problem.party_lambda import party_lambda
from fastadmm.problem.regularizers import L1, SquaredL2
from fastadmm.runs.config import make_config
from fastadmm.runs.train import plan_run, resume_run, start_run
from fastadmm.store.model import open_model
from fastadmm.store.partition import open_partition
from scipy import sparse

from run_tools import (
    CrashAfter,
    SignalAfter,
    assert_same_run,
    in_file,
    logged,
    result_of,
    run,
    write_blocks,
)

OWN = {"party-1": 1e-3, "party-3": 0.2}
REST = 0.01
VALUES = [1e-3, REST, 0.2]
WIDTHS = [3, 4, 2]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Classes and numbers over a dense party, one of narrow floats and a sparse one."""
    folder = tmp_path_factory.mktemp("own")
    for name, n, seed in (("a", 150, 0), ("t", 60, 1)):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(n, 9))
        X[:, 7:] *= rng.random((n, 2)) < 0.5
        blocks = [X[:, :3], X[:, 3:7].astype(np.float32), sparse.csr_array(X[:, 7:])]
        z = X @ np.array([1.0, -2.0, 0.0, 0.5, 1.0, -1.0, 0.0, 2.0, -1.0]) + rng.normal(size=n) + 0.5
        write_blocks(folder / f"{name}.parts", blocks, (z > 0).astype(float))
        write_blocks(folder / f"{name}r.parts", blocks, z, task="regression")
    return folder


def matrix(path):
    partition = open_partition(path)
    blocks = [party.load() for party in partition.parties]
    dense = [b.toarray() if sparse.issparse(b) else b for b in blocks]
    return np.hstack(dense).astype(np.float64), partition.labels.y


def train(path, out, display=None, **keys):
    given = {"data": str(path), "lambda": REST, "party_lambda": OWN, **keys}
    return start_run(make_config(given), out, display=display)


def weights_of(run_directory):
    return np.concatenate([party.weights for party in open_model(run_directory).parties])


@pytest.mark.representatives(2)
@pytest.mark.parametrize(
    ("regularizer", "constraint"),
    [("l1", "all"), ("group_lasso", "all"), ("l2", "nonnegative"), ("l1", "nonnegative")],
)
def test_norms_and_the_orthant_against_a_general_minimiser(data, tmp_path, regularizer, constraint):
    import cvxpy

    keys = {"regularizer": regularizer, "constraint": constraint, "gap": 1e-9}
    result = train(data / "ar.parts", tmp_path / "run", **keys)
    X, y = matrix(data / "ar.parts")
    x, b = cvxpy.Variable(9), cvxpy.Variable()
    parts = [x[:3], x[3:7], x[7:]]
    norm = {
        "l1": cvxpy.norm1,
        "l2": lambda v: cvxpy.sum_squares(v) / 2,
        "group_lasso": lambda v: np.sqrt(v.shape[0]) * cvxpy.norm2(v),
    }[regularizer]
    penalty = sum(value * norm(part) for value, part in zip(VALUES, parts))
    allowed = [x >= 0] if constraint == "nonnegative" else []
    problem = cvxpy.Problem(
        cvxpy.Minimize(cvxpy.sum_squares(X @ x + b - y) / (2 * len(y)) + penalty), allowed
    )
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
    assert result["objective"] == pytest.approx(problem.value, rel=1e-7)
    np.testing.assert_allclose(weights_of(tmp_path / "run"), x.value, atol=2e-4)


@pytest.mark.representatives(1)
@pytest.mark.parametrize("regularizer", ["l2", "l1", "group_lasso"])
def test_the_estimators_result(data, tmp_path, regularizer):
    train(data / "a.parts", tmp_path / "run", regularizer=regularizer)
    X, y = matrix(data / "a.parts")
    model = ADMMSharingClassifier(WIDTHS, VALUES, regularizer=regularizer).fit(X, y)
    np.testing.assert_allclose(weights_of(tmp_path / "run"), model.coef_[0], rtol=1e-9, atol=1e-12)
    assert len(logged(tmp_path / "run")) == model.n_rounds_


def test_original_units_and_warm_starts(data, tmp_path):
    result = train(data / "a.parts", tmp_path / "run", test=str(data / "t.parts"))
    model = open_model(tmp_path / "run")
    norms = [np.linalg.norm(party.weights) for party in model.parties]
    np.testing.assert_allclose(logged(tmp_path / "run")[-1]["weight_norms"], norms)
    np.testing.assert_allclose([party["weight_norm"] for party in result["parties"]], norms)
    assert run("evaluate", tmp_path / "run", data / "t.parts", "--json") == 0
    evaluated = json.loads((tmp_path / "run" / "evaluation.json").read_text(encoding="utf-8"))["metrics"]
    for name in ("log_loss", "accuracy", "auc"):
        assert result["test"][name] == pytest.approx(evaluated[name], abs=1e-12)
    # Warm starts and validation partitions.
    cold = train(data / "a.parts", tmp_path / "cold", gap=1e-8)
    warm = train(data / "a.parts", tmp_path / "warm", warm_start=str(tmp_path / "cold"), gap=1e-7)
    assert warm["rounds"] <= cold["rounds"]
    assert warm["objective"] == pytest.approx(cold["objective"], rel=1e-7)
    keys = {"validation": str(data / "t.parts"), "validation_metric": "log_loss"}
    result = train(data / "a.parts", tmp_path / "early", **keys)
    assert run("evaluate", tmp_path / "early", data / "t.parts", "--json") == 0
    evaluated = json.loads((tmp_path / "early" / "evaluation.json").read_text(encoding="utf-8"))["metrics"]
    assert result["validation"] == pytest.approx(evaluated["log_loss"], abs=1e-12)


@pytest.mark.representatives(1)
@pytest.mark.parametrize("keys", [{"directions": "both"}, {"regularizer": "l1", "constraint": "nonnegative"}])
def test_interrupted_and_resumed_to_the_bit(data, tmp_path, keys):
    keys = {"gap": 1e-9, **keys}
    train(data / "a.parts", tmp_path / "run", **keys)
    train(data / "a.parts", tmp_path / "s", SignalAfter(2), **keys)
    assert result_of(tmp_path / "s")["status"] == "interrupted"
    resume_run(tmp_path / "s")
    assert_same_run(tmp_path / "run", tmp_path / "s")
    with pytest.raises(KeyboardInterrupt):
        train(data / "a.parts", tmp_path / "k", CrashAfter(3), checkpoint_rounds=1, **keys)
    resume_run(tmp_path / "k")
    assert_same_run(tmp_path / "run", tmp_path / "k")


def test_multinomial_runs_have_them_too(tmp_path):
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(3)
    X = rng.normal(size=(120, 5))
    y = np.argmax(X @ rng.normal(size=(5, 3)) + rng.normal(size=(120, 3)), axis=1).astype(float)
    write_blocks(tmp_path / "m.parts", [X[:, :2], X[:, 2:]], y, classes=("a", "b", "c"))
    config = {
        "data": str(tmp_path / "m.parts"),
        "lambda": REST,
        "party_lambda": {"party-2": 0.2},
        "gap": 1e-9,
    }
    start_run(make_config(config), tmp_path / "run")
    root = np.sqrt(REST / np.repeat([REST, 0.2], [2, 3]))
    reference = LogisticRegression(C=1 / (120 * REST), tol=1e-10, max_iter=10000).fit(X * root, y)
    np.testing.assert_allclose(weights_of(tmp_path / "run"), (root * reference.coef_).T, atol=1e-3)


def test_everything_names_them(data, tmp_path, capsys):
    where = data / "a.parts"
    options = ("--lambda", REST, *in_file(party_lambda=OWN))
    assert run("train", where, *options, "-o", tmp_path / "run") == 0
    assert "lambda 0.001 of party-1, 0.01 of party-2, 0.2 of party-3" in capsys.readouterr().err
    written = tomllib.loads((tmp_path / "run" / "run.toml").read_text(encoding="utf-8"))
    assert (written["lambda"], written["party_lambda"]) == (REST, OWN)
    every = dict(zip(["party-1", "party-2", "party-3"], VALUES))
    result = result_of(tmp_path / "run")
    assert (result["lambda"], result["party_lambda"]) == (REST, every)
    assert [party["lambda"] for party in result["parties"]] == VALUES
    model = open_model(tmp_path / "run")
    assert (model.lam, model.penalty["party_lambda"]) == (REST, every)
    assert run("train", where, *options, "--dry-run") == 0
    assert "; lambda 0.2" in capsys.readouterr().out
    plan = plan_run(make_config({"data": str(where), "lambda": REST, "party_lambda": OWN})).to_json()
    assert [party["lambda"] for party in plan["parties"]] == VALUES
    assert run("inspect", tmp_path / "run") == 0
    assert re.search(r"party_lambda.party-3 +0.2", capsys.readouterr().out)
    assert run("card", tmp_path / "run") == 0
    card = capsys.readouterr().out
    assert "| party_lambda.party-3 | 0.2 |" in card
    assert run("report", tmp_path / "run") == 0
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "0.001 to 0.2" in page
    assert '<th scope="col">λ</th>' in page
    assert run("export", tmp_path / "run", "-o", tmp_path / "m.json") == 0
    assert json.loads((tmp_path / "m.json").read_text(encoding="utf-8"))["party_lambda"] == every


def test_runs_with_and_without_them_are_told_apart(data, tmp_path, capsys):
    train(data / "a.parts", tmp_path / "one")
    train(data / "a.parts", tmp_path / "two", party_lambda={**OWN, "party-3": 0.3})
    assert run("compare", tmp_path / "one", tmp_path / "two") == 0
    assert "Objectives are not comparable: party_lambda.party-3 differs." in capsys.readouterr().out
    # A run without them says nothing.
    result = start_run(make_config({"data": str(data / "a.parts")}), tmp_path / "run")
    assert "party_lambda" not in result
    assert "lambda" not in result["parties"][0]
    assert run("report", tmp_path / "run") == 0
    assert '<th scope="col">λ</th>' not in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("key", "one", "two", "three"), [("lambda", 1, 2.0, 3.0), ("constraint", "all", "box:0,1", "ball:1")]
)
def test_options_win_name_by_name(key, one, two, three):
    key = f"party_{key}"
    config = make_config({"data": "a", key: {"x": one, "y": two}}, "f", {key: {"y": three, "z": one}})
    assert getattr(config, key) == {"x": one, "y": three, "z": one}
    assert make_config(config.to_toml()) == config


def test_the_worth_of_parties_is_measured_with_them(data, tmp_path):
    """Of everybody it is the run's own test metric."""
    train(data / "a.parts", tmp_path / "run", test=str(data / "t.parts"), gap=1e-9)
    assert run("worth", tmp_path / "run", "--metric", "log_loss") == 0
    from fastadmm.worth.coalitions import read_worth

    worth = read_worth(tmp_path / "run" / "worth.json")
    assert worth.of(worth.everyone) == pytest.approx(
        result_of(tmp_path / "run")["test"]["log_loss"], abs=1e-5
    )


def test_factors_and_damage(data, tmp_path):
    from fastadmm.errors import FormatError

    train(data / "a.parts", tmp_path / "run")
    manifest = tmp_path / "run" / "model" / "model.toml"
    text = manifest.read_text(encoding="utf-8")
    manifest.write_text(text.replace("party-3 = 0.2", "party-3 = nan"), encoding="utf-8")
    with pytest.raises(FormatError, match="key 'party_lambda' must hold one positive number for each party"):
        open_model(tmp_path / "run")
    # Factors.
    own = party_lambda([0.01, 1.0], SquaredL2())
    assert own.lam == pytest.approx(0.1)
    np.testing.assert_allclose(own.factors, [np.sqrt(10), np.sqrt(0.1)])
    np.testing.assert_allclose(party_lambda([0.01, 1.0], L1()).factors, [10, 0.1])
    weights = [np.ones(2), np.ones((1, 3))]
    for there, back in zip(weights, own.original(own.scaled(weights))):
        np.testing.assert_allclose(back, there)
