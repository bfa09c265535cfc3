"""Every loss with every regulariser and set that go together, against an independent solver.

Convex problems: what ``prove.references`` finds. Others: SciPy's SLSQP on the same objective with its kinks
written as constraints; it must find nothing better near the solution. A selection in which every two of loss,
regulariser and set meet runs always, everything with the slow tests.
"""

import itertools
import warnings
from typing import NamedTuple

import numpy as np
import pytest
from fastadmm.errors import ConfigError
from fastadmm.problem.constraints import get_constraint
from fastadmm.problem.losses import LOSSES, get_loss
from fastadmm.problem.penalty import check_compatible
from fastadmm.problem.regularizers import REGULARIZERS, get_regularizer
from fastadmm.solver.history import Status
from fastadmm.solver.solver import SolverOptions, solve
from mpmath import mp
from scipy.optimize import minimize

import naive
from prove.draws import Draw
from prove.exact import PRECISION, Exact
from prove.references import Upper

ROWS, WIDTHS, CLASSES, LAM, RATIO = 60, (2, 3, 1), 3, 0.03, 0.4
EDGES = np.cumsum([0, *WIDTHS])
PARTS = list(itertools.pairwise(EDGES))
LOW, HIGH, RADIUS = -0.15, 0.2, 0.3
SETS = ("all", "nonnegative", f"box:{LOW},{HIGH}", f"ball:{RADIUS}")

#: Wanted accuracy of the objective, relative to that at zero weights.
ACCURACY = 1e-6


class Case(NamedTuple):
    """Names of one combination."""

    loss: str
    regularizer: str
    constraint: str


def allowed():
    """What the compatibility check lets through."""
    for case in itertools.starmap(Case, itertools.product(LOSSES, REGULARIZERS, SETS)):
        try:
            check_compatible(
                get_regularizer(case.regularizer), get_constraint(case.constraint), get_loss(case.loss)
            )
        except ConfigError:
            continue
        yield case


#: Not these: without a bounded set and a regulariser the sigmoid loss falls for ever, and has no minimiser.
WITHOUT_MINIMISER = {Case("sigmoid", "none", "all"), Case("sigmoid", "none", "nonnegative")}

CASES = [case for case in allowed() if case not in WITHOUT_MINIMISER]


def covering(cases):
    """A selection that has every two names of the cases together: greedy, always the same."""

    def pairs(case):
        return set(itertools.combinations(case, 2))

    missing, chosen = set().union(*map(pairs, cases)), set()
    while missing:
        best = max(cases, key=lambda case: len(pairs(case) & missing))
        chosen.add(best)
        missing -= pairs(best)
    return chosen


CHOSEN = covering(CASES)


def data(loss):
    """Features, and targets that no hyperplane separates."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(ROWS, EDGES[-1]))
    X[:, 4] = 0.8 * X[:, 0] + 0.6 * X[:, 4]
    z = X @ np.array([0.7, -0.4, 0.05, 0.5, -0.3, 0.0]) + 0.3
    if loss == "sigmoid":  # flat far away: without a clear signal the best model is one class, at infinity
        return X, (4.0 * (z - 0.3) + 0.3 * rng.logistic(size=ROWS) > 0).astype(float)
    if loss == "multinomial":
        return X, np.clip(np.round(1.0 + 0.8 * z + 0.8 * rng.normal(size=ROWS)), 0, CLASSES - 1)
    if loss == "poisson":
        return X, rng.poisson(np.exp(z)).astype(float)
    if loss == "negative_binomial":
        return X, rng.poisson(np.exp(z) * rng.gamma(1.0, 1.0, ROWS)).astype(float)
    if loss == "binomial":
        return X, rng.binomial(5, 1.0 / (1.0 + np.exp(-z))) / 5.0
    if loss in ("gamma", "tweedie"):
        return X, np.exp(z) * rng.gamma(2.0, 0.5, ROWS) * (1.0 if loss == "gamma" else rng.random(ROWS) > 0.2)
    if LOSSES[loss].task == "classification":
        return X, (z + rng.logistic(size=ROWS) > 0).astype(float)
    return X, z + rng.normal(size=ROWS)


def strength(case):
    """Lambda: the sigmoid loss is small everywhere, and ``log_sum`` hardly holds large weights."""
    if case.loss != "sigmoid":
        return LAM
    return 2.0 * LAM if case.regularizer == "log_sum" else LAM / 2.0


def least(drawn):
    """Least objective of a convex problem that solvers and Newton's method find, in many digits."""
    with mp.workprec(PRECISION):
        known = Upper(Exact(drawn))
        known.solve(1.0)
        return float(known.value)


def best_near(case, X, y, x, b):
    """Least objective that SLSQP finds from given weights; kinks are linear or second-order constraints."""
    d, (kind, _, _) = EDGES[-1], case.constraint.partition(":")
    first = {"l1": 1.0, "elastic_net": RATIO}.get(case.regularizer, 0.0)
    second = {"l2": 1.0, "elastic_net": 1.0 - RATIO}.get(case.regularizer, 0.0)
    width, lam = LOG_SUM_WIDTH, strength(case)

    # Variables: p and q with x = p - q, the intercept, a bound of each party's norm.
    def parts(v):
        return v[:d] - v[d : 2 * d], v[2 * d], v[2 * d + 1 :]

    def value(v):
        w, shift, norms = parts(v)
        total = float(naive.value(LOSSES[case.loss], X @ w + shift, y).mean())
        total += lam * (first * v[: 2 * d].sum() + 0.5 * second * (w @ w))
        if case.regularizer == "log_sum":
            total += lam * 0.5 * width**2 * float(np.log1p((w / width) ** 2).sum())
        if case.regularizer == "group_lasso":
            total += lam * float(np.sqrt(WIDTHS) @ norms)
        return total

    conditions = []
    squares = lambda v: np.array([np.sum(parts(v)[0][at:to] ** 2) for at, to in PARTS])  # noqa: E731
    if case.regularizer == "group_lasso":
        conditions.append({"type": "ineq", "fun": lambda v: parts(v)[2] ** 2 - squares(v)})
    if kind == "ball":
        conditions.append({"type": "ineq", "fun": lambda v: RADIUS**2 - squares(v)})
    low, high = get_constraint(case.constraint).bounds
    bounds = (
        [(0.0, max(high, 0.0))] * d
        + [(0.0, max(-low, 0.0))] * d
        + [(None, None)]
        + [(0.0, None)] * len(WIDTHS)
    )
    norms = np.sqrt([np.sum(x[at:to] ** 2) for at, to in PARTS])
    start = np.concatenate([np.maximum(x, 0.0), np.maximum(-x, 0.0), [b], norms])
    begin, found = value(start), [value(start)]
    for nudge in (0.0, 1e-3):  # off the kinks, where a gradient says something
        moved = start + nudge * np.r_[np.ones(2 * d), 0.0, 2 * np.ones(len(WIDTHS))]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            done = minimize(
                value, moved, method="SLSQP", bounds=bounds, constraints=conditions,
                options={"ftol": 1e-13, "maxiter": 500},
            )  # fmt: skip
        feasible = all(np.min(c["fun"](done.x)) >= -1e-9 for c in conditions)
        if feasible and np.isfinite(done.fun):
            found.append(float(done.fun))
    assert begin == pytest.approx(found[0])
    return min(found)


LOG_SUM_WIDTH = get_regularizer("log_sum").width


@pytest.mark.representatives(5)
@pytest.mark.parametrize(
    "case",
    [case if case in CHOSEN else pytest.param(case, marks=pytest.mark.slow) for case in CASES],
    ids="-".join,
)
def test_every_combination_is_solved(case):
    X, y = data(case.loss)
    blocks = [X[:, at:to] for at, to in PARTS]
    more = {"l1_ratio": RATIO} if case.regularizer == "elastic_net" else {}
    about = (case.regularizer, more, case.constraint)
    drawn = Draw(0, blocks, y, case.loss, {}, strength(case), True, None, None, *about, [], ())
    problem = drawn.problem()
    uncertified = problem.convex and case.regularizer == "none" and case.constraint in SETS[:2]
    options = SolverOptions(
        gap=0.0 if uncertified else 3e-7, stationarity=1e-8 if not problem.convex else 1e-5,
        max_rounds=60 if uncertified else 3000, n_threads=1,
    )  # fmt: skip
    result = solve(problem, options)
    if not uncertified:
        assert result.status in (Status.CONVERGED, Status.STATIONARY), result.message
    x = np.concatenate(result.weights)
    at_zero = solve(problem, SolverOptions(max_rounds=1, n_threads=1)).objective
    slack = ACCURACY * max(at_zero, result.objective)
    for part in result.weights:
        for column in part.reshape(len(part), -1).T:
            np.testing.assert_allclose(problem.constraint.project(column), column, rtol=0, atol=1e-12)
    if problem.convex:
        assert result.objective == pytest.approx(least(drawn), abs=slack)
    else:
        best = best_near(case, X, y, x, float(result.intercept))
        assert best - slack <= result.objective <= best + slack


def test_the_selection_covers():
    assert len(CHOSEN) < len(CASES) / 3
    for one, two in itertools.combinations(range(3), 2):
        assert {(c[one], c[two]) for c in CASES} == {(c[one], c[two]) for c in CHOSEN}
    assert {c.loss for c in CASES} == set(LOSSES)
    assert {c.regularizer for c in CASES} == set(REGULARIZERS)
