"""Columns of very different sizes, far from zero, or few and huge: certified all the same, and truly."""

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm.engine.engine import Engine
from fastadmm.engine.singular import singular
from fastadmm.method import certificate
from fastadmm.method.certificate import make_feasible, primal_value, sums_to_zero
from fastadmm.problem.problem import make_problem
from fastadmm.solver.loop import run_rounds
from fastadmm.solver.solver import Solver, SolverOptions, solve


def uneven(seed, loss):
    """Seven orders of magnitude between columns, means of up to 1e4."""
    rng = np.random.default_rng(seed)
    n, d, parties = int(rng.integers(40, 600)), int(rng.integers(4, 60)), int(rng.integers(1, 5))
    X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-3, 4, d)
    X += (rng.random(d) < 0.5) * 10.0 ** rng.uniform(0, 4, d)
    z = (X - X.mean(axis=0)) / X.std(axis=0) @ rng.normal(size=d)
    if loss in ("logistic", "hinge"):
        y = (z + 2.0 * rng.normal(size=n) > 0.0) * 1.0
    elif loss in ("poisson", "negative_binomial"):
        y = rng.poisson(np.exp(np.clip(z / 3.0, -3.0, 3.0))) * 1.0
    elif loss == "gamma":
        y = rng.gamma(2.0, np.exp(np.clip(z / 3.0, -3.0, 3.0))) + 1e-3
    else:
        y = z + rng.standard_t(2, size=n)
    lam = float(10.0 ** rng.uniform(-7, -1))
    blocks = np.array_split(X, parties, axis=1)
    return make_problem(blocks, y, lam=lam, loss=loss, fit_intercept=bool(seed % 3))


@pytest.mark.parametrize(
    ("seed", "loss"),
    [
        *((22, "logistic"), (154, "logistic"), (4, "poisson"), (50, "huber"), (122, "huber")),
        *((143, "negative_binomial"), (165, "gamma")),
    ],
)
def test_smooth_losses_are_certified(seed, loss):
    assert solve(uneven(seed, loss), SolverOptions(gap=1e-6, max_rounds=120)).gap <= 1e-6


@pytest.mark.parametrize(
    ("seed", "loss"),
    [
        *((55, "quantile"), (163, "quantile"), (247, "quantile"), (198, "hinge")),
        *((486, "hinge"), (328, "poisson")),
    ],
)
def test_losses_are_certified_where_predictors_round(seed, loss):
    """A narrow parabola at a kink, times large columns, makes much of a predictor's last digit."""
    assert solve(uneven(seed, loss), SolverOptions(gap=1e-6, max_rounds=200)).gap <= 1e-6


def uneven_classes(seed):
    """Five orders of magnitude between columns."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(60, 600)), int(rng.integers(4, 24))
    parties, classes = int(rng.integers(1, 4)), int(rng.integers(3, 6))
    X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-2, 3, d)
    X += (rng.random(d) < 0.5) * 10.0 ** rng.uniform(0, 3, d)
    z = (X - X.mean(axis=0)) / X.std(axis=0) @ rng.normal(size=(d, classes))
    y = (z + rng.gumbel(size=(n, classes)) - 0.7 * np.arange(classes)).argmax(axis=1)
    y = np.unique(y, return_inverse=True)[1].astype(float)
    lam, intercept = float(10.0 ** rng.uniform(-6, -2)), bool(seed % 3)
    blocks = np.array_split(X, parties, axis=1)
    return make_problem(blocks, y, lam=lam, loss="multinomial", fit_intercept=intercept)


@pytest.mark.parametrize("seed", [4, 22, 30, 42, 57, 78])
def test_several_classes_are_certified(seed):
    assert solve(uneven_classes(seed), SolverOptions(gap=1e-6, max_rounds=60)).gap <= 1e-6


# Columns far from zero, beside an intercept: what is proved is true, and nothing divides by zero.
N, WIDTHS = 800, (12, 12)


def case(loss, seed):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(N, sum(WIDTHS)))
    z = x @ rng.normal(size=x.shape[1]) * 0.4 + rng.logistic(size=N)
    return np.split(x, [WIDTHS[0]], axis=1), z if loss == "quantile" else (z > 0.0) * 1.0


@pytest.mark.representatives(4)
@pytest.mark.parametrize("regularizer", ["l2", "elastic_net", "group_lasso"])
@pytest.mark.parametrize("loss", ["hinge", "quantile", "logistic"])
def test_a_gap_is_a_bound_far_from_zero(loss, regularizer):
    """The intercept takes up what columns are shifted by: the optimum is that of centred columns."""
    for seed in range(4):
        centred, y = case(loss, seed)
        asked = {"loss": loss, "regularizer": regularizer, "lam": 1e-3}
        exact = solve(make_problem(centred, y, **asked), SolverOptions(gap=1e-9))
        far = solve(make_problem([1e6 + block for block in centred], y, **asked), SolverOptions(gap=1e-6))
        assert far.certified
        assert far.objective - exact.objective <= (1.01 * far.gap + 2e-9) * exact.objective


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("directions", ["auto", "one"])
def test_several_classes_far_from_zero(directions, sparse):
    rng = np.random.default_rng(5)
    centred, _ = case("logistic", 0)
    more = [sp.random_array((N, 300), density=0.02, rng=rng, format="csr")] if sparse else []
    z = sum(block @ rng.normal(size=(block.shape[1], 3)) for block in [*centred, *more])
    y = (z / z.std() + rng.gumbel(size=z.shape)).argmax(axis=1) * 1.0
    asked = {"loss": "multinomial", "lam": 1e-4}
    exact = solve(make_problem([*centred, *more], y, **asked), SolverOptions(gap=1e-9, max_rounds=100))
    assert exact.certified
    options = SolverOptions(gap=1e-6, directions=directions, max_rounds=100)
    far = solve(make_problem([*(1e6 + block for block in centred), *more], y, **asked), options)
    assert far.certified
    assert far.objective - exact.objective <= (1.01 * far.gap + 2e-9) * exact.objective


def test_a_hessian_of_rounding_ends_the_steps():
    """What the intercept leaves of a Gram matrix of 3e24 can be no number: steps end, and rounds go on."""
    rng = np.random.default_rng(3)
    steps, other = np.cumsum(rng.integers(1, 9, size=200)) * 1.0, rng.normal(size=200)
    block = np.column_stack([1.7e12 + steps, other])
    y = steps / steps.std() - 2.0 * other + 0.1 * rng.normal(size=200)
    for lam in (1e-3, 1e-6, 1e-9, 1e-12):
        problem = make_problem([block], y, loss="squared", regularizer="l2", lam=lam)
        assert solve(problem, SolverOptions(scheme="proximal", max_rounds=5)).history


#: What rounding may make of a bound, relative to the objective or to that of zero weights.
ROUNDING = 1e-11

WAYS = [
    {"scheme": "auto"},
    {"scheme": "subspace", "directions": "one"},
    {"scheme": "subspace", "directions": "both"},
    {"scheme": "proximal"},
]


def fitted(given, **options):
    """Proved bound, objective of the returned weights and objective of zero weights, per mean loss."""
    solver = Solver(make_problem(**given), SolverOptions(max_rounds=300, n_threads=1, **options))
    found = run_rounds(solver)
    objective = solver._objective_of(found.weights, found.intercept)
    return solver.bound.value, objective, solver.divergence.start


def check(given):
    found = [fitted(given, **way) for way in WAYS]
    least = min(objective for _, objective, _ in found)
    for way, (bound, _, start) in zip(WAYS, found):
        assert bound <= least + ROUNDING * max(least, 1e-5 * start), way


def test_six_rows_and_known_gradients():
    x = np.zeros((6, 2))
    x[0], y = 1.0, np.array([0.0, 1.0, 1.0, 1.0, 1.0, 0.0])
    given = {"blocks": [x[:, :1], x[:, 1:]], "y": y, "loss": "smoothed_hinge", "lam": 0.1}
    check(given)
    for way in WAYS:
        assert fitted(given, **way)[1] == pytest.approx(0.28484848484848485, rel=2e-6)
    # A known gradient stays as it is.
    random, engine = np.random.default_rng(3), Engine(1)
    y = (random.random(40) < 0.4).astype(float)
    problem = make_problem([random.normal(size=(40, 2))], y)
    total, gradient = random.normal(size=40), np.empty(40)
    best = primal_value(problem, total, 0.0, engine)
    z = total + best.intercept + 1e-3
    value = problem.loss.evaluate(z, y, problem.weight, gradient, engine)
    before, sums = gradient.copy(), engine.total_and_size(gradient)
    known = value, gradient, (float(sums[0]), float(sums[1]))
    near = total, best.intercept + 1e-3
    assert certificate._from_nearby(problem, *near, known, engine) is not None  # in a few Newton steps
    found = primal_value(problem, *near, engine, known)
    assert found.intercept == pytest.approx(best.intercept, abs=1e-12)
    assert found.gradient is not gradient
    assert np.array_equal(gradient, before)
    # What a sum that is not zero costs grows with the intercept: far away less of it is rounding.
    rounded = found.gradient + 5e-10 * np.abs(found.gradient).mean()
    for intercept, allowed in ((0.0, True), (1e3, False)):
        place = value, intercept
        assert make_feasible(problem, z, rounded.copy(), place, engine) == allowed
        assert sums_to_zero(rounded, engine, place=place) == allowed


@pytest.mark.parametrize("regularizer", ["l1", "elastic_net", "l2"])
@pytest.mark.parametrize(("of_columns", "of_targets"), [(1.0, 1e150), (1e150, 1.0), (1e150, 1e150)])
def test_huge_numbers_are_fitted(of_columns, of_targets, regularizer):
    random = np.random.default_rng(0)
    x, noise = random.normal(size=(40, 4)), 0.1 * random.normal(size=40)
    y = (x @ np.array([1.0, -1.0, 0.5, 0.0]) + noise) * of_targets
    blocks = [x[:, :2] * of_columns, x[:, 2:] * of_columns]
    for scheme in ["auto", "proximal"]:
        problem = make_problem(blocks, y, loss="squared", regularizer=regularizer, lam=1e-3)
        found = solve(problem, SolverOptions(scheme=scheme, max_rounds=50))
        # Of an objective near the largest number a run has one round.
        most = 0.006 if of_columns * of_targets <= 1e150 else 0.04
        assert found.objective <= most * of_targets**2


def gives_up(*args, **settings):
    raise np.linalg.LinAlgError("SVD did not converge")


def test_another_method_takes_over(monkeypatch):
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(9, 4)) @ np.diag([1.0, 1.0, 1e-3, 0.0])
    expected = singular(matrix, whole=True)[1]
    monkeypatch.setattr(np.linalg, "svd", gives_up)
    for whole in (True, False):
        left, values, right = singular(matrix, whole)
        assert left.shape == ((9, 9) if whole else (9, 4))
        np.testing.assert_allclose(values, expected, atol=1e-14)
        np.testing.assert_allclose(left[:, :4] * values @ right, matrix, atol=1e-14)
