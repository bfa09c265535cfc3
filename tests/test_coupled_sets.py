"""Simplex and affine sets: projections, fits and certificates against other solvers, and what is refused."""

import itertools
import json
import re

import numpy as np
import pytest
from fastadmm import ADMMSharingRegressor
from fastadmm.between.approval import _WORDS
from fastadmm.errors import ConfigError
from fastadmm.problem.constraints import Affine, Simplex, get_constraint
from fastadmm.problem.penalty import PartyPenalty
from fastadmm.problem.problem import make_problem
from fastadmm.problem.regularizers import NoRegularizer
from fastadmm.solver.solver import SolverOptions, solve
from hypothesis import given, settings
from hypothesis import strategies as st

from run_tools import refuses, run, write_blocks

ROWS, VALUES = [[1.0, -1.0, 0.5, 0.0], [0.0, 2.0, 1.0, 1.0]], [0.0, 1.5]
SETS = {"simplex": "simplex", "sum": "sum:0.5", "own": ["simplex:2", Affine.of(ROWS, VALUES), None]}


def numbers(seed=4):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(90, 9))
    y = X @ rng.normal(size=9) + rng.normal(size=90) + 0.5
    return [X[:, :3], X[:, 3:7], X[:, 7:]], y


@given(st.integers(0, 10**6), st.integers(1, 6), st.sampled_from([1e-3, 1.0, 1e6, 1e14]))
@settings(max_examples=60, deadline=None)
def test_the_nearest_point_of_a_simplex(seed, d, size):
    rng = np.random.default_rng(seed)
    x, own = size * rng.standard_normal(d).round(1), Simplex(0.7)
    found = own.project(x)
    assert own.contains(found)
    assert np.array_equal(own.project(found), found)
    nearest = np.inf
    for k in range(1, d + 1):  # every set of positive weights
        for held in map(list, itertools.combinations(range(d), k)):
            other = np.zeros(d)
            other[held] = x[held] - x[held].mean() + 0.7 / k
            if (other >= 0.0).all():
                nearest = min(nearest, float(np.linalg.norm(other - x)))
    assert np.linalg.norm(found - x) <= nearest * (1.0 + 1e-12) + 1e-12


@given(st.integers(0, 10**6), st.integers(1, 5))
@settings(max_examples=40, deadline=None)
def test_the_nearest_point_of_an_affine_set(seed, k):
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((k, 5)) * 10.0 ** rng.integers(-6, 7, (k, 1))
    own = Affine.of(np.vstack([rows, 2.0 * rows[:1]]), np.append(rows @ np.ones(5), 2.0 * rows[0].sum()))
    x = 10.0 * rng.standard_normal(5)
    found = own.project(x)
    assert own.contains(found)
    error = PartyPenalty(NoRegularizer(), own, 1.0)._uncoupled(found, x, np.zeros(5))[3]
    assert (error >= 2.0**-52 * np.abs(x)).all()  # what its subtraction rounds
    unit = rows / np.linalg.norm(rows, axis=1)[:, None]
    assert np.allclose(
        found, x - np.linalg.pinv(unit) @ (unit @ (x - 1.0)), atol=1e-9 / np.linalg.svd(unit)[1][-1]
    )
    assert get_constraint(own.text) == own
    assert _WORDS["constraint"](own.text)


def optimum(sets, regularizer, loss, n_classes=0):
    """Of the same problem, by an interior-point method."""
    import cvxpy as cp

    blocks, y = numbers()
    own = [cp.Variable(block.shape[1]) for block in blocks]
    z = sum(block @ x for block, x in zip(blocks, own)) + cp.Variable()
    t = (y > 0).astype(float)
    fit = {
        "squared": lambda: cp.sum_squares(z - y) / 2,
        "logistic": lambda: cp.sum(cp.logistic(z) - cp.multiply(t, z)),
        "quantile": lambda: cp.norm1(z - y) / 2,
    }[loss]()
    pay = {"l2": lambda x: cp.sum_squares(x) / 2, "l1": cp.norm1, "none": lambda x: 0}[regularizer]
    inside = []
    for x, text in zip(own, sets if isinstance(sets, list) else [sets] * 3):
        allowed = get_constraint(text)
        rows, values = allowed.equations(x.shape[0])
        inside += [rows @ x == values] * allowed.coupled + [x >= 0] * isinstance(allowed, Simplex)
    problem = cp.Problem(cp.Minimize(fit / len(y) + 1e-2 * sum(map(pay, own))), inside)
    problem.solve(solver="CLARABEL", tol_gap_abs=1e-11, tol_gap_rel=1e-11, tol_feas=1e-11)
    return float(problem.value)


@pytest.mark.parametrize(
    ("name", "regularizer", "loss"),
    [
        *(("simplex", "l2", "squared"), ("simplex", "none", "logistic"), ("simplex", "l1", "squared")),
        *(("sum", "l2", "logistic"), ("own", "l2", "squared"), ("own", "l2", "quantile")),
    ],
)
def test_fits_are_proved_and_right(name, regularizer, loss):
    blocks, y = numbers()
    target = (y > 0).astype(float) if loss == "logistic" else y
    problem = make_problem(
        blocks, target, loss=loss, lam=1e-2, regularizer=regularizer, constraint=SETS[name]
    )
    result = solve(problem, SolverOptions(gap=1e-5))
    best = optimum(SETS[name], regularizer, loss)
    assert result.proof.claim == "certified"
    for record in result.history:
        assert record.gap_absolute >= record.objective - best - 1e-8
    assert abs(result.history[-1].objective - best) <= 1e-5 * best + 1e-8
    for x, allowed in zip(result.weights, problem.party_constraints):
        assert allowed.contains(x)


def test_sets_without_a_bound_or_together_with_others():
    blocks, y = numbers()
    problem = make_problem(blocks, y, loss="squared", regularizer="none", constraint="sum:0.5")
    result = solve(problem, SolverOptions(gap=1e-6, max_rounds=40))
    assert result.proof.claim == "certified_within"
    best = optimum("sum:0.5", "none", "squared")
    assert abs(result.history[-1].objective - best) <= 2e-6 * best
    blocks, y = numbers()
    for regularizer, constraint in (("l1", "sum:1"), ("group_lasso", "simplex"), ("log_sum", "simplex")):
        with pytest.raises(ConfigError, match="no proximal operator here; choose l2"):
            make_problem(blocks, y, loss="squared", regularizer=regularizer, constraint=constraint)
    problem = make_problem(blocks, y, loss="squared", constraint="simplex")
    refuses(ConfigError, "no simplex or affine set", solve, problem, SolverOptions(scheme="proximal"))


@pytest.mark.parametrize("constraint", ["simplex:0.5", "sum:1"])
def test_every_class_has_its_own(constraint):
    blocks, y = numbers()
    problem = make_problem(
        blocks, np.digitize(y, [-1.0, 1.0]), loss="multinomial", lam=1e-2, constraint=constraint
    )
    result = solve(problem, SolverOptions(gap=1e-5))
    assert result.proof.claim == "certified"
    assert all(get_constraint(constraint).contains(x) for w in result.weights for x in w.T)


@pytest.mark.parametrize("scheme", ["jacobi", "gauss-seidel"])
def test_estimators_take_them(scheme):
    blocks, y = numbers()
    X = np.hstack(blocks)
    given = {"parties": [3, 4, 2], "alpha": 1e-2, "scheme": scheme, "penalty": 1.0, "max_rounds": 500}
    model = ADMMSharingRegressor(constraint=SETS["own"], **given).fit(X, y)
    assert model.certified_
    assert model.coef_[:3].sum() == pytest.approx(2.0, abs=1e-14)
    assert np.allclose(np.array(ROWS) @ model.coef_[3:7], VALUES, atol=1e-13)


def test_a_run_is_verified(tmp_path, capsys):
    blocks, y = numbers()
    data = write_blocks(tmp_path / "a.parts", blocks, y, task="regression")
    affine = "affine:1,-1,0.5,0=0;0,2,1,1=1.5"
    own = tmp_path / "own.toml"
    own.write_text(f'constraint = "simplex"\n[party_constraint]\nparty-2 = "{affine}"\nparty-3 = "sum:2"\n')
    out = tmp_path / "run"
    assert run("train", data, "--config", own, "--lambda", 0.01, "-o", out, "-q") == 0
    record = json.loads((out / "result.json").read_text())
    assert record["scheme"] == "sharing"
    assert record["party_constraint"]["party-2"] == Affine.of(ROWS, VALUES).text
    assert run("verify", out, data) == 0
    for text in ("simplex", "sum:1"):
        given = ("--set", f"constraint={text}", "--regularizer", "l2")
        assert run("train", data, *given, "-o", out, "-q", "--force") == 0
        assert run("verify", out, data) == 0
    capsys.readouterr()
    assert run("train", data, "--set", "constraint=affine:1,1=0", "-o", out, "--force") == 5
    assert re.search("rows of 2 numbers, but party-1 has 3 columns", capsys.readouterr().err)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("simplex:0", "must be positive"),
        ("affine:1,0=1;2,0=1", "contradict each other"),
        ("affine:0,0=0", "a row of zeros"),
        ("affine:1,0=1;2=1", "as many numbers as the others"),
        ("affine:1,inf=1", "not finite"),
        ("affine:1,0", "unknown constraint 'affine:1,0'"),
        ("sum:", "unknown constraint"),
        ("probability", "simplex:SUM"),
    ],
)
def test_sets_that_say_nothing(text, why):
    refuses(ConfigError, why, get_constraint, text)
