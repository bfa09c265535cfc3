"""A lambda and a set for each party: against a general minimiser, the estimators, and what names them."""

import json
import tomllib

import cvxpy as cp
import numpy as np
import pytest
from fastadmm import ADMMSharingClassifier, ADMMSharingRegressor
from fastadmm.errors import ConfigError, FormatError
from fastadmm.problem.party_lambda import party_lambda
from fastadmm.problem.problem import make_problem
from fastadmm.problem.regularizers import L1, SquaredL2
from fastadmm.runs.config import make_config
from fastadmm.runs.train import plan_run, start_run
from fastadmm.solver.solver import SolverOptions, solve
from fastadmm.store.model import open_model
from fastadmm.store.partition import open_partition
from fastadmm.worth.coalitions import read_worth
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from run_tools import assert_same_run, in_file, logged, printed, refuses, result_of, run, told, write_blocks

NAMES, WIDTHS, REST = ["party-1", "party-2", "party-3"], [3, 4, 2], 0.01
VALUES = [1e-3, REST, 0.2]
SETS = ["box:0.0,0.5", "box:-1.0,inf", "ball:0.25"]
#: By key: what first and last party have of their own, and the rest's.
OWN = {
    "party_lambda": {"party-1": 1e-3, "party-3": 0.2},
    "party_constraint": {"party-1": "box:0.0,0.5", "party-3": "ball:0.25"},
}
EVERY = {"party_lambda": dict(zip(NAMES, VALUES)), "party_constraint": dict(zip(NAMES, SETS))}
each_key = pytest.mark.parametrize("key", OWN)


def keys_of(key, path, **more):
    rest = {"constraint": "box:-1,inf"} if key == "party_constraint" else {}
    return {"data": str(path), "lambda": REST, **rest, key: OWN[key], **more}


def train(path, out, key="party_lambda", **more):
    return start_run(make_config(keys_of(key, path, **more)), out)


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


def split(X):
    return np.split(X, np.cumsum(WIDTHS)[:-1], axis=1)


def weights_of(run_directory):
    return np.concatenate([party.weights for party in open_model(run_directory).parties])


def optimum(path, regularizer, loss="squared", lambdas=(REST,) * 3, allowed=lambda parts: []):
    """Objective and weights of the same problem by an interior-point method."""
    (X, y), x, b = matrix(path), cp.Variable(9), cp.Variable()
    parts, rest = [x[:3], x[3:7], x[7:]], X @ x + b - y
    norm = {
        "l1": cp.norm1,
        "l2": lambda v: cp.sum_squares(v) / 2,
        "group_lasso": lambda v: np.sqrt(v.shape[0]) * cp.norm2(v),
    }[regularizer]
    fit = cp.sum_squares(rest) / 2 if loss == "squared" else cp.norm1(rest) / 2
    penalty = sum(lam * norm(part) for lam, part in zip(lambdas, parts))
    problem = cp.Problem(cp.Minimize(fit / len(y) + penalty), allowed(parts))
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-12, tol_gap_rel=1e-12, tol_feas=1e-12)
    return float(problem.value), x.value


def inside_the_sets(parts):
    return [parts[0] >= 0, parts[0] <= 0.5, parts[1] >= -1, cp.norm(parts[2]) <= 0.25]


@pytest.mark.representatives(2)
@pytest.mark.parametrize(
    ("regularizer", "constraint"),
    [("l1", "all"), ("group_lasso", "all"), ("l2", "nonnegative"), ("l1", "nonnegative")],
)
def test_lambdas_of_norms_and_the_orthant(data, tmp_path, regularizer, constraint):
    keys = {"regularizer": regularizer, "constraint": constraint, "gap": 1e-9}
    result = train(data / "ar.parts", tmp_path / "run", **keys)
    positive = (lambda parts: [part >= 0 for part in parts]) if constraint == "nonnegative" else lambda _: []
    best, x = optimum(data / "ar.parts", regularizer, "squared", VALUES, positive)
    assert result["objective"] == pytest.approx(best, rel=1e-7)
    np.testing.assert_allclose(weights_of(tmp_path / "run"), x, atol=2e-4)


@pytest.mark.representatives(4)
@pytest.mark.parametrize(
    ("loss", "scheme"),
    [*(("squared", scheme) for scheme in ("auto", "sharing", "gauss-seidel")), ("quantile", "auto")],
)
@pytest.mark.parametrize("regularizer", ["l2", "l1"])
def test_every_party_keeps_to_its_own_set(data, scheme, regularizer, loss):
    X, y = matrix(data / "ar.parts")
    more = {"loss": loss, "lam": REST, "regularizer": regularizer}
    problem = make_problem(split(X), y, constraint=SETS, **more)
    result = solve(problem, SolverOptions(scheme=scheme, gap=1e-7, max_rounds=3000, n_threads=1))
    best, x = optimum(data / "ar.parts", regularizer, loss, allowed=inside_the_sets)
    assert result.gap <= 1e-7
    assert result.objective == pytest.approx(best, rel=3e-7)
    if loss == "squared":
        np.testing.assert_allclose(np.concatenate(result.weights), x, atol=2e-3)
    for weights, allowed in zip(result.weights, problem.party_constraints):
        np.testing.assert_allclose(allowed.project(weights), weights, atol=1e-12)
    assert all(r.objective - r.gap_absolute <= best * (1.0 + 1e-8) for r in result.history)


@pytest.mark.representatives(2)
@pytest.mark.parametrize(
    ("key", "regularizer"),
    [*(("party_lambda", kind) for kind in ("l2", "l1", "group_lasso")), ("party_constraint", "l2")],
)
def test_the_estimators_result(data, tmp_path, key, regularizer):
    path = data / ("a.parts" if key == "party_lambda" else "ar.parts")
    train(path, tmp_path / "run", key, regularizer=regularizer)
    if key == "party_lambda":
        model = ADMMSharingClassifier(WIDTHS, VALUES, regularizer=regularizer)
    else:
        model = ADMMSharingRegressor(WIDTHS, REST, constraint=SETS)
    X, y = matrix(path)
    model.fit(X, y)
    np.testing.assert_allclose(weights_of(tmp_path / "run"), model.coef_.ravel(), rtol=1e-9, atol=1e-12)
    assert len(logged(tmp_path / "run")) == model.n_rounds_


def test_sets_of_all_and_lambdas_beside_sets(data):
    X, y = matrix(data / "ar.parts")

    def problem(constraint):
        return make_problem(split(X), y, loss="squared", constraint=constraint)

    one, each = problem("nonnegative"), problem(["nonnegative"] * 3)
    assert (each.constraint, each.constraints) == (one.constraint, [])
    assert problem(["all", None, "all"]).is_ridge
    assert not problem(["all", None, "nonnegative"]).is_ridge
    both = ADMMSharingRegressor(WIDTHS, [1e-2, 1e-1, 1.0], constraint=["nonnegative", None, None])
    assert both.fit(X, y).coef_[:3].min() >= 0.0
    both.set_params(constraint=["box:0,1", None, None])
    refuses(ConfigError, "alpha: one for each party goes with", both.fit, X, y)
    for constraint, message in (
        (["all"], "constraint: 1 entries, but 3 parties; one entry per party"),
        (["all", "all", "cube"], "constraint: unknown constraint 'cube'"),
        (3.0, "constraint: 3.0 is neither a constraint nor a list with one for each party"),
    ):
        refuses(ConfigError, message, problem, constraint)


def test_original_units_and_warm_starts(data, tmp_path, capsys):
    result = train(data / "a.parts", tmp_path / "run", test=str(data / "t.parts"))
    norms = [np.linalg.norm(party.weights) for party in open_model(tmp_path / "run").parties]
    np.testing.assert_allclose(logged(tmp_path / "run")[-1]["weight_norms"], norms)
    np.testing.assert_allclose([party["weight_norm"] for party in result["parties"]], norms)
    evaluated = told(capsys, "evaluate", tmp_path / "run", data / "t.parts")["metrics"]
    for name in ("log_loss", "accuracy", "auc"):
        assert result["test"][name] == pytest.approx(evaluated[name], abs=1e-12)
    # Warm starts and validation partitions.
    cold = train(data / "a.parts", tmp_path / "cold", gap=1e-8)
    warm = train(data / "a.parts", tmp_path / "warm", warm_start=str(tmp_path / "cold"), gap=1e-7)
    assert warm["rounds"] <= cold["rounds"]
    assert warm["objective"] == pytest.approx(cold["objective"], rel=1e-7)
    keys = {"validation": str(data / "t.parts"), "validation_metric": "log_loss"}
    result = train(data / "a.parts", tmp_path / "early", **keys)
    evaluated = told(capsys, "evaluate", tmp_path / "early", data / "t.parts")["metrics"]
    assert result["validation"] == pytest.approx(evaluated["log_loss"], abs=1e-12)


def test_multinomial_runs_have_lambdas_too(tmp_path):
    rng = np.random.default_rng(3)
    X = rng.normal(size=(120, 5))
    y = np.argmax(X @ rng.normal(size=(5, 3)) + rng.normal(size=(120, 3)), axis=1).astype(float)
    write_blocks(tmp_path / "m.parts", [X[:, :2], X[:, 2:]], y, classes=("a", "b", "c"))
    train(tmp_path / "m.parts", tmp_path / "run", party_lambda={"party-2": 0.2}, gap=1e-9)
    root = np.sqrt(REST / np.repeat([REST, 0.2], [2, 3]))
    reference = LogisticRegression(C=1 / (120 * REST), tol=1e-10, max_iter=10000).fit(X * root, y)
    np.testing.assert_allclose(weights_of(tmp_path / "run"), (root * reference.coef_).T, atol=1e-3)


@each_key
def test_everything_names_them(data, tmp_path, capsys, key):
    where, every, out = data / "ar.parts", EVERY[key], tmp_path / "run"
    keys = keys_of(key, where)
    options = in_file(**{name: value for name, value in keys.items() if name != "data"})
    assert run("train", where, *options, "-o", out) == 0
    said = capsys.readouterr().err
    written = tomllib.loads((out / "run.toml").read_text(encoding="utf-8"))
    assert written.items() >= {**keys, "data": written["data"]}.items()
    assert result_of(out)[key] == open_model(out).penalty[key] == every
    train(where, tmp_path / "toml", key)
    assert_same_run(out, tmp_path / "toml")
    assert f"party-3: {every['party-3']}" in printed(capsys, "inspect", out)
    assert f"party-3 = {every['party-3']} |" in printed(capsys, "card", out)
    printed(capsys, "export", out, "-o", tmp_path / "m.json")
    assert json.loads((tmp_path / "m.json").read_text(encoding="utf-8"))[key] == every
    other = {"party_lambda": 0.3, "party_constraint": "ball:0.5"}[key]
    train(where, tmp_path / "other", key, **{key: {**OWN[key], "party-3": other}})
    assert f"{key}.party-3 differs" in printed(capsys, "compare", out, tmp_path / "other")
    plan, dry = plan_run(make_config(keys)), printed(capsys, "train", where, *options, "--dry-run")
    if key == "party_constraint":
        assert "in memory" in dry
        assert plan.scheme == plan_run(make_config({"data": str(where), "constraint": "nonnegative"})).scheme
        assert result_of(out)["objective"] == pytest.approx(
            optimum(where, "l2", allowed=inside_the_sets)[0], rel=2e-6
        )
        return
    assert "lambda 0.001 of party-1, 0.01 of party-2, 0.2 of party-3" in said
    assert (result_of(out)["lambda"], open_model(out).lam) == (REST, REST)
    assert [party["lambda"] for party in result_of(out)["parties"]] == VALUES
    printed(capsys, "report", out)
    page = (out / "report.html").read_text(encoding="utf-8")
    assert '<th scope="col">λ</th>' in page


@pytest.mark.parametrize(
    ("key", "one", "two", "three"), [("lambda", 1, 2.0, 3.0), ("constraint", "all", "box:0,1", "ball:1")]
)
def test_options_win_name_by_name(key, one, two, three):
    key = f"party_{key}"
    config = make_config({"data": "a", key: {"x": one, "y": two}}, "f", {key: {"y": three, "z": one}})
    assert getattr(config, key) == {"x": one, "y": three, "z": one}
    assert make_config(config.to_toml()) == config


def test_worth_damage_and_factors(data, tmp_path):
    """The worth of everybody is the run's own test metric."""
    train(data / "a.parts", tmp_path / "run", test=str(data / "t.parts"), gap=1e-9)
    assert run("worth", tmp_path / "run", "--metric", "log_loss") == 0
    worth, measured = read_worth(tmp_path / "run" / "worth.json"), result_of(tmp_path / "run")["test"]
    assert worth.of(worth.everyone) == pytest.approx(measured["log_loss"], abs=1e-5)
    manifest = tmp_path / "run" / "model" / "model.toml"
    text = manifest.read_text(encoding="utf-8")
    manifest.write_text(text.replace("party-3 = 0.2", "party-3 = nan"), encoding="utf-8")
    refuses(FormatError, "must hold one (positive number|text) for each", open_model, tmp_path / "run")
    own = party_lambda([0.01, 1.0], SquaredL2())
    assert own.lam == pytest.approx(0.1)
    np.testing.assert_allclose(own.factors, [np.sqrt(10), np.sqrt(0.1)])
    np.testing.assert_allclose(party_lambda([0.01, 1.0], L1()).factors, [10, 0.1])
    weights = [np.ones(2), np.ones((1, 3))]
    for there, back in zip(weights, own.original(own.scaled(weights))):
        np.testing.assert_allclose(back, there)
