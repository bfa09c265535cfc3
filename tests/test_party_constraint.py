"""A constraint for each party: runs against a general minimiser, SciPy and the estimators."""

import json
import re
import tomllib

import numpy as np
import pytest
from fastadmm import ADMMSharingRegressor
from fastadmm.errors import ConfigError
from fastadmm.problem.problem import make_problem
from fastadmm.runs.config import make_config
from fastadmm.runs.train import plan_run, resume_run, start_run
from fastadmm.solver.solver import SolverOptions, solve
from fastadmm.store.model import open_model

from run_tools import SignalAfter, assert_same_run, in_file, result_of, run, write_blocks

WIDTHS = (3, 4, 2)
OWN = {"party-1": "box:0.0,0.5", "party-3": "ball:0.25"}
EVERY = {"party-1": "box:0.0,0.5", "party-2": "box:-1.0,inf", "party-3": "ball:0.25"}
REST = "box:-1,inf"


def numbers():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(120, 9))
    y = X @ np.array([1.0, -2.0, 0.2, 0.5, 1.0, -2.0, 0.0, 2.0, -1.0]) + rng.normal(size=120) + 0.5
    return [X[:, :3], X[:, 3:7], X[:, 7:]], y


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    blocks, y = numbers()
    return write_blocks(tmp_path_factory.mktemp("sets") / "a.parts", blocks, y, task="regression")


def keys(data, **others):
    return {"data": str(data), "lambda": 1e-2, "constraint": REST, "party_constraint": OWN, **others}


def optimum(regularizer, loss="squared"):
    """Of the same problem, by an interior-point method."""
    import cvxpy as cp

    blocks, y = numbers()
    x, b = cp.Variable(9), cp.Variable()
    norm = cp.norm1(x) if regularizer == "l1" else cp.sum_squares(x) / 2
    rest = cp.hstack(blocks) @ x + b - y
    fit = cp.sum_squares(rest) / 2 if loss == "squared" else cp.norm1(rest) / 2
    inside = [x[:3] >= 0, x[:3] <= 0.5, x[3:7] >= -1, cp.norm(x[7:]) <= 0.25]
    problem = cp.Problem(cp.Minimize(fit / len(y) + 1e-2 * norm), inside)
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    return float(problem.value), x.value


@pytest.mark.representatives(4)
@pytest.mark.parametrize("scheme", ["auto", "sharing", "gauss-seidel"])
@pytest.mark.parametrize("regularizer", ["l2", "l1"])
@pytest.mark.parametrize("loss", ["squared", "quantile"])
def test_every_party_keeps_to_its_own(scheme, regularizer, loss):
    if loss == "quantile" and scheme != "auto":
        pytest.skip("thousands of rounds")
    blocks, y = numbers()
    sets = list(EVERY.values())
    problem = make_problem(blocks, y, loss=loss, lam=1e-2, regularizer=regularizer, constraint=sets)
    options = SolverOptions(scheme=scheme, gap=1e-7, max_rounds=3000, n_threads=1)
    result = solve(problem, options)
    best, x = optimum(regularizer, loss)
    assert result.gap <= 1e-7
    assert result.objective == pytest.approx(best, rel=3e-7)
    if loss == "squared":
        np.testing.assert_allclose(np.concatenate(result.weights), x, atol=2e-3)
    for weights, allowed in zip(result.weights, problem.party_constraints):
        np.testing.assert_allclose(allowed.project(weights), weights, atol=1e-12)
    assert all(r.objective - r.gap_absolute <= best * (1.0 + 1e-8) for r in result.history)


def test_the_same_for_all_and_the_estimators_result(data, tmp_path):
    blocks, y = numbers()
    one = make_problem(blocks, y, loss="squared", constraint="nonnegative")
    each = make_problem(blocks, y, loss="squared", constraint=["nonnegative"] * 3)
    assert (each.constraint, each.constraints) == (one.constraint, [])
    assert make_problem(blocks, y, loss="squared", constraint=["all", None, "all"]).is_ridge
    assert not make_problem(blocks, y, loss="squared", constraint=["all", None, "nonnegative"]).is_ridge
    # The estimators result.
    blocks, y = numbers()
    model = ADMMSharingRegressor(list(WIDTHS), 1e-2, constraint=list(EVERY.values()))
    model.fit(np.hstack(blocks), y)
    start_run(make_config(keys(data)), tmp_path / "run")
    weights = np.concatenate([party.weights for party in open_model(tmp_path / "run").parties])
    np.testing.assert_allclose(model.coef_, weights, rtol=1e-9, atol=1e-12)
    both = ADMMSharingRegressor(list(WIDTHS), [1e-2, 1e-1, 1.0], constraint=["nonnegative", None, None])
    assert both.fit(np.hstack(blocks), y).coef_[:3].min() >= 0.0
    with pytest.raises(ConfigError, match="alpha: one for each party goes with"):
        both.set_params(constraint=["box:0,1", None, None]).fit(np.hstack(blocks), y)


def test_runs_records_and_resuming(data, tmp_path, capsys):
    result = start_run(make_config(keys(data)), tmp_path / "run")
    assert result["objective"] == pytest.approx(optimum("l2")[0], rel=2e-6)
    written = tomllib.loads((tmp_path / "run" / "run.toml").read_text(encoding="utf-8"))
    assert (written["constraint"], written["party_constraint"]) == (REST, OWN)
    assert result_of(tmp_path / "run")["party_constraint"] == EVERY
    assert open_model(tmp_path / "run").penalty["party_constraint"] == EVERY
    start_run(make_config(keys(data)), tmp_path / "s", display=SignalAfter(1))
    assert result_of(tmp_path / "s")["status"] == "interrupted"
    resume_run(tmp_path / "s")
    assert_same_run(tmp_path / "run", tmp_path / "s")
    assert run("inspect", tmp_path / "run") == 0
    assert re.search(r"party_constraint.party-3 +ball:0.25", capsys.readouterr().out)
    assert run("card", tmp_path / "run") == 0
    card = capsys.readouterr().out
    assert "| party_constraint.party-3 | ball:0.25 |" in card
    assert run("export", tmp_path / "run", "-o", tmp_path / "m.json") == 0
    assert json.loads((tmp_path / "m.json").read_text(encoding="utf-8"))["party_constraint"] == EVERY
    other = {**OWN, "party-3": "ball:0.5"}
    start_run(make_config(keys(data, party_constraint=other)), tmp_path / "other")
    capsys.readouterr()
    assert run("compare", tmp_path / "run", tmp_path / "other") == 0
    assert "party_constraint.party-3 differs" in capsys.readouterr().out


def test_command_line_and_plan(data, tmp_path, capsys):
    start_run(make_config(keys(data)), tmp_path / "toml")
    given = ("--lambda", 1e-2, "--set", f"constraint={REST}", *in_file(party_constraint=OWN))
    assert run("train", data, *given, "-q", "-o", tmp_path / "run") == 0
    assert_same_run(tmp_path / "toml", tmp_path / "run")
    capsys.readouterr()
    assert run("train", data, "--lambda", 1e-2, *in_file(party_constraint=OWN), "--dry-run") == 0
    assert "in memory, gram" in capsys.readouterr().out
    plan = plan_run(make_config({"data": str(data), "party_constraint": OWN}))
    assert plan.scheme == plan_run(make_config({"data": str(data), "constraint": "nonnegative"})).scheme


@pytest.mark.parametrize(
    ("constraint", "message"),
    [
        (["all"], "constraint: 1 entries, but 3 parties; one entry per party"),
        (["all", "all", "cube"], "constraint: unknown constraint 'cube'"),
        (3.0, "constraint: 3.0 is neither a constraint nor a list with one for each party"),
    ],
)
def test_wrong_lists_are_named(constraint, message):
    blocks, y = numbers()
    with pytest.raises(ConfigError, match=message):
        make_problem(blocks, y, loss="squared", constraint=constraint)
