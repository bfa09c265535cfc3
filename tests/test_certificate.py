"""The certificate never lies: reported gaps against an independent high-accuracy optimum."""

import itertools
import math

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm.engine.engine import Engine
from fastadmm.method.certificate import LowerBound, increasing_root
from fastadmm.problem.losses import LOSSES, get_loss
from fastadmm.problem.problem import make_problem
from fastadmm.solver.history import Status
from fastadmm.solver.loop import run_rounds
from fastadmm.solver.solver import Solver, SolverOptions, solve
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit

import naive

N = 80


def build(loss, weighted, seed):
    rng = np.random.default_rng(seed)
    first = rng.normal(size=(N, 4))
    second = np.where(rng.random((N, 7)) < 0.4, rng.normal(size=(N, 7)), 0.0)
    third = first[:, :3] + 0.1 * rng.normal(size=(N, 3))  # nearly the first party's columns
    z = first @ rng.normal(size=4) + second @ rng.normal(size=7) + 0.7
    y = z + rng.normal(size=N) if loss == "squared" else (z + rng.normal(size=N) > 0).astype(float)
    s = np.where(rng.random(N) < 0.1, 0.0, rng.uniform(0.1, 5.0, N)) if weighted else np.ones(N)
    offset = rng.normal(size=N) if weighted else np.zeros(N)
    return [first, sp.csr_array(second), third], y, s, offset


WEIGHTS = [(True, 1e-1), (False, 1e-3), (True, 1e-5)]
SCHEMES = ("subspace", "sharing", "jacobi", "gauss-seidel")
CASES = [
    (*case, *WEIGHTS[k % 3])
    for k, case in enumerate(itertools.product(SCHEMES, ("logistic", "squared"), (False, True)))
]


@pytest.mark.representatives(8)
@pytest.mark.parametrize(("scheme", "loss", "intercept", "weighted", "lam"), CASES)
def test_gap_bounds_the_distance_to_the_optimum_in_every_round(scheme, loss, intercept, weighted, lam):
    blocks, y, s, offset = build(loss, weighted, seed=len(scheme))
    matrix = np.hstack([naive.dense(block) for block in blocks])
    best = naive.optimum(loss, matrix, y, lam, s, offset, intercept)
    penalty = None if scheme == "subspace" else 0.05
    problem = make_problem(
        blocks, y, loss=loss, lam=lam, fit_intercept=intercept, sample_weight=s, offset=offset
    )
    solver = Solver(problem, SolverOptions(scheme=scheme, gap=0.0, penalty=penalty, n_threads=1))
    for _ in range(25 if scheme == "subspace" else 60):
        record = solver.round()
        x = np.concatenate(solver.party_weights())
        if not np.isfinite(record.objective) or record.objective > 1e6:
            assert scheme not in ("sharing", "subspace")
            break
        value = naive.objective(loss, x, solver.intercept, matrix, y, lam, s, offset)
        scale = max(1.0, abs(value))
        assert record.objective == pytest.approx(value, rel=1e-12)
        assert record.gap_absolute >= value - best.objective - 1e-13 * scale
        assert record.gap >= (value - best.objective) / best.objective - 1e-13 * scale / best.objective
        # `value` is summed in another order than the objective
        assert record.gap >= record.gap_absolute / value * (1.0 - 1e-12) or record.gap_absolute == 0.0
        # the lower bound it implies is one
        assert value - record.gap_absolute <= best.objective + 1e-13 * scale
        # the intercept is the best one for these weights
        if intercept:
            g = naive.loss_gradient(loss, offset + solver.intercept + matrix @ x, y, s)
            assert abs(g.sum()) <= 1e-10 * (1.0 + np.abs(g).sum())
        else:
            assert solver.intercept == 0.0
        assert record.weight_norms == pytest.approx([np.linalg.norm(w) for w in solver.party_weights()])


@pytest.mark.parametrize("size", [-1e5, -800.0, 150.0])
@pytest.mark.parametrize("scheme", ["subspace", "sharing"])
def test_a_large_offset_is_absorbed_by_the_intercept(scheme, size):
    blocks, y, *_ = build("logistic", False, seed=6)
    options = SolverOptions(scheme=scheme, gap=1e-9, max_rounds=1000)
    result = solve(make_problem(blocks, y, lam=1e-2), options)
    moved = solve(make_problem(blocks, y, lam=1e-2, offset=np.full(N, size)), options)
    assert result.status is moved.status is Status.CONVERGED
    assert moved.objective == pytest.approx(result.objective, rel=1e-8)
    assert moved.intercept + size == pytest.approx(result.intercept, abs=1e-4)


def test_without_an_exact_intercept_there_is_no_certificate(monkeypatch):
    """The dual point is feasible only where the gradient sums to zero; else the gap proves nothing."""

    def lazy(function, start):
        function(start + 3.0)
        return start + 3.0

    blocks, y, *_ = build("logistic", False, seed=7)
    solver = Solver(make_problem(blocks, y, lam=1e-2), SolverOptions(scheme="sharing", gap=0.0))
    solver.round()
    solver.bound = LowerBound()
    monkeypatch.setattr("fastadmm.method.certificate.increasing_root", lazy)
    record = solver.round()
    assert record.gap == math.inf
    assert solver.bound.value == -math.inf


def test_bounds_that_are_none_stay_none():
    bound = LowerBound()
    assert bound.update(1.0, -1.0) == (2.0, math.inf)
    assert LowerBound(1.0).update(1.0, -2.0) == (0.0, 0.0)
    assert LowerBound(0.0).update(0.0, -1.0) == (0.0, 0.0)
    # Not a number never becomes a bound.
    bound = LowerBound(0.25)
    bound.update(math.nan, math.nan)
    bound.update(math.inf, math.nan)
    bound.update(math.inf, -math.inf)
    assert bound.value == 0.25
    # A run in which the best bound comes before the last round keeps it.
    bound = LowerBound()
    assert bound.update(1.0, 0.5) == (0.5, 1.0)
    assert bound.update(1.2, 0.3) == (pytest.approx(0.7), pytest.approx(1.4))
    assert bound.update(0.6, 0.55) == (pytest.approx(0.05), pytest.approx(0.05 / 0.55))
    assert bound.value == 0.55


@pytest.mark.parametrize("start", [0.0, 1e-3, -50.0, 800.0])
@pytest.mark.parametrize("root", [0.0, -3.7, 41.0, -900.0])
def test_increasing_root_of_a_sigmoid(root, start):
    def function(t):
        return math.tanh((t - root) / 2), 1 / (2 * math.cosh(min(abs(t - root), 700) / 2) ** 2)

    assert increasing_root(function, start) == pytest.approx(root, abs=1e-12 * (1 + abs(root)))


def test_increasing_root_with_steps_and_flat_pieces():
    calls = []

    def function(t):
        calls.append(t)
        return float(np.clip(t - 5.0, -1.0, 1.0)), float(abs(t - 5.0) < 1.0)

    found = increasing_root(function, -1e4)
    assert found == pytest.approx(5.0, abs=1e-10)
    assert calls[-1] == found


# What a loss cannot go below.
@pytest.mark.representatives(1)
@pytest.mark.parametrize(
    "loss",
    ["squared", "huber", "quantile", "hinge", "squared_hinge", "poisson", "gamma", "tweedie", "logistic"],
)
def test_a_perfect_fit_without_regulariser_ends_at_rounding(loss):
    """Where the optimum is zero no relative gap can be proved; the loss's least value proves the other."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 30))
    z = X @ rng.normal(size=30)
    y = (z > 0.0) * 1.0 if get_loss(loss).task == "classification" else z
    problem = make_problem(
        [X[:, :12], X[:, 12:]],
        np.exp(0.1 * y) if get_loss(loss).link(1.0) is not None else y,
        loss=loss,
        regularizer="none",
    )
    result = solve(problem, SolverOptions(max_rounds=60, n_threads=1))
    assert result.status is Status.AT_ROUNDING
    assert not result.certified
    # Where double precision ends: 1e-13 of the objective at zero weights, which is up to ten.
    assert result.record.gap_absolute <= 1e-12


@pytest.mark.representatives(5)
@pytest.mark.parametrize("loss", sorted(name for name, loss in LOSSES.items() if loss.convex))
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_no_predictor_goes_below_the_least_value(loss, seed):
    rng = np.random.default_rng(seed)
    chosen, n, classes = LOSSES[loss], 12, 3
    y = rng.integers(0, 2, n) * 1.0
    if loss in ("logistic", "binomial"):
        y = rng.uniform(0.0, 1.0, n)
    elif loss == "multinomial":
        y = rng.integers(0, classes, n) * 1.0
    elif chosen.task == "regression":
        y = np.abs(rng.normal(size=n)) * 10.0 ** rng.uniform(-3, 3)
    weight = np.where(rng.random(n) < 0.2, 0.0, rng.uniform(0.0, 3.0, n))
    size = n * classes if loss == "multinomial" else n
    z = 10.0 ** rng.uniform(-3, 1.5) * rng.normal(size=size)
    with Engine(1) as engine:
        value = chosen.evaluate(z, y, weight, np.empty(size), engine)
    assert math.isfinite(chosen.least(y, weight))
    # Deviances are differences, rounded in units of their terms.
    assert value >= chosen.least(y, weight) - 1e-13 * float(
        weight @ (1.0 + np.abs(y) * (1.0 + np.abs(z[:n])))
    )


def test_soft_targets_are_fitted_no_better_than_their_entropy():
    rng = np.random.default_rng(0)
    X, weight = rng.normal(size=(20, 30)), rng.uniform(0.5, 2.0, 20)
    y = expit(0.2 * X @ rng.normal(size=30))
    problem = make_problem([X[:, :12], X[:, 12:]], y, regularizer="none", sample_weight=weight)
    result = solve(problem, SolverOptions(gap=1e-12, n_threads=1))
    assert result.status is Status.CONVERGED
    entropy = -(y * np.log(y) + (1.0 - y) * np.log(1.0 - y))
    assert result.objective == pytest.approx(float(weight @ entropy) / weight.sum(), rel=1e-12)
    y[0] = -0.2
    outside = make_problem([X], y, soft_targets=True)
    assert outside.loss.least(outside.y, outside.weight) == -math.inf


def objective_of(problem, weights, intercept):
    with Engine(1) as engine:
        z = problem.offset + sum(b.product(x, engine) for b, x in zip(problem.blocks, weights)) + intercept
        loss = problem.loss.evaluate(z, problem.y, problem.weight, np.empty_like(z), engine)
    penalty = sum(r.value(x) for r, x in zip(problem.party_regularizers, weights))
    return loss / problem.total_weight + problem.lam * penalty


@pytest.mark.representatives(1)
@pytest.mark.parametrize("seed", [51, 1036, 1038])
def test_the_objective_is_that_of_the_returned_weights(seed):
    """Columns over twelve decades: what is rounding in a weight is not in the sum of the messages."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(20, 80)), int(rng.integers(4, 12))
    X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-6, 6, d) + rng.choice([0, 1, 100])
    y = (X @ (rng.normal(size=d) / np.abs(X).mean(axis=0)) > 0.0) * 1.0
    if rng.random() < 0.5:
        y = np.where(rng.random(n) < 0.1, 1.0 - y, y)
    lam = 10.0 ** rng.uniform(-6, 0)
    more = {"regularizer": str(rng.choice(["elastic_net", "l1"])), "constraint": "nonnegative"}
    problem = make_problem([X[:, : d // 2], X[:, d // 2 :]], y, loss="hinge", lam=lam, **more)
    result = solve(problem, SolverOptions(gap=1e-8, max_rounds=40, n_threads=1))
    # A predictor is a sum that the intercept cancels, and is rounded as that.
    rounding = 1.1e-13 * result.objective + 2.0**-52 * abs(result.intercept)
    assert objective_of(problem, result.weights, result.intercept) <= result.objective + rounding


@pytest.mark.representatives(1)
@pytest.mark.parametrize(
    ("loss", "regularizer"), [("logistic", "l1"), ("squared", "l2"), ("multinomial", "l2")]
)
def test_weights_that_are_not_the_messages_are_not_certified(loss, regularizer, monkeypatch):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(60, 5)), rng.integers(0, 2, 60) * 1.0
    problem = make_problem([X[:, :2], X[:, 2:]], y, loss=loss, lam=1e-2, regularizer=regularizer)
    solver = Solver(problem, SolverOptions(max_rounds=60, n_threads=1))
    honest = type(solver.method).weights
    monkeypatch.setattr(type(solver.method), "weights", lambda self: [1.01 * x for x in honest(self)])
    with solver.engine:
        result = run_rounds(solver)
    assert result.status is Status.AT_ROUNDING
    assert not result.certified
    assert result.gap > 1e-6


def test_a_run_without_a_relative_gap_says_so():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 5))
    problem = make_problem([X], X[:, 0] + rng.normal(size=60), loss="squared", regularizer="none")
    solver = Solver(problem, SolverOptions(max_rounds=1, n_threads=1, gap=1e-15))
    with solver.engine:
        result = run_rounds(solver)
    assert result.gap == math.inf
    assert "absolute duality gap" in result.message
    assert "inf" not in result.message
