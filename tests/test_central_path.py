"""Small tables whose runs take long: the interior point method over all columns, and what runs make of it."""

import math

import numpy as np
import pytest
from fastadmm import SolverOptions, make_problem, solve
from fastadmm.engine.engine import Engine
from fastadmm.pooled.barrier import ClassRows, PenaltyBarrier, PredictorRows
from fastadmm.pooled.central_path import follow_central_path
from fastadmm.pooled.goal import Goal
from fastadmm.problem.losses import get_loss
from fastadmm.solver.history import Status

from scripts import script_of


def generated(seed):
    case = script_of("bench/stalls.py").generate(seed)
    return make_problem(case.blocks, case.y, **case.arguments)


def small(loss="logistic", n=30, seed=0, **more):
    rng = np.random.default_rng(seed)
    blocks = [rng.normal(size=(n, d)) for d in (4, 3, 5)]
    z = blocks[0] @ [1.0, -2.0, 0.0, 0.5] + blocks[2][:, 0] + rng.normal(size=n)
    y = rng.poisson(np.exp(np.clip(z, -3.0, 2.0))) * 1.0 if loss == "poisson" else z
    if get_loss(loss).task == "classification":
        y = (z > 0.0) * 1.0
    weight = rng.exponential(size=n) + 0.1
    weight[3] = 0.0
    return make_problem(blocks, y, loss=loss, lam=0.02, sample_weight=weight, **more)


def small_classes(n=30, **more):
    rng = np.random.default_rng(1)
    blocks = [rng.normal(size=(n, d)) for d in (4, 3, 5)]
    z = np.hstack(blocks) @ rng.normal(size=(12, 3)) + rng.gumbel(size=(n, 3))
    y, weight = z.argmax(axis=1), rng.exponential(size=n) + 0.1
    y[:3], weight[3] = [0, 1, 2], 0.0
    return make_problem(blocks, y, loss="multinomial", lam=0.02, sample_weight=weight, **more)


def best_of_all_columns(problem, wanted, engine):
    """Weights of every party, (d_m,) or (d_m, C), and the end of the path."""
    goal = Goal(problem, engine)
    with np.errstate(all="ignore"):
        end = follow_central_path(goal, wanted, 0.0, 0.0)
    return None if end is None else ([np.ascontiguousarray(x.T) for x in goal.parted(end.weights)], end)


def slopes(function, x):
    """Central differences."""
    steps = 1e-6 * np.eye(len(x))
    return np.array([(function(x + h) - function(x - h)) / 2e-6 for h in steps])


@pytest.mark.parametrize(
    ("regularizer", "constraint"),
    [
        *(("l1", "all"), ("elastic_net", "ball:2.0"), ("l2", ["nonnegative", "box:-1,0.5", "ball:3.0"])),
        *(("none", ["nonnegative", "all", "ball:3.0"]), ("group_lasso", "all")),
        *(("group_lasso", "ball:2.0"), ("l1", "nonnegative")),
    ],
)
def test_penalties_with_logarithms(regularizer, constraint):
    """Derivatives by differences; and the penalty itself is what is left without logarithms."""
    problem, mu = small(regularizer=regularizer, constraint=constraint), 0.1
    penalties = problem.penalties
    barrier = PenaltyBarrier(penalties, [4, 3, 5], np.ones(12))
    x = barrier.inside(np.full(12, 0.2)) + 0.01 * np.arange(12)
    assert barrier.holds(x)
    _, slope, bend, squares = barrier.at(x, mu)
    np.testing.assert_allclose(slope, slopes(lambda p: barrier.at(p, mu)[0], x), rtol=1e-5, atol=1e-7)
    hessian = np.diag(bend)
    for at, part, factor in squares:
        hessian[np.ix_(at, at)] += factor * np.outer(part, part)
    differences = [(barrier.at(x + e, mu)[1] - barrier.at(x - e, mu)[1]) / 2e-6 for e in 1e-6 * np.eye(12)]
    np.testing.assert_allclose(hessian, np.array(differences), rtol=1e-4, atol=1e-6)
    own = sum(p.value(v) for p, v in zip(penalties, np.split(x, [4, 7]), strict=True))
    assert barrier.at(x, 1e-12)[0] == pytest.approx(own, abs=1e-9)
    for seed in range(20):
        step = np.random.default_rng(seed).normal(size=12)
        length = barrier.longest(x, step)
        assert length == math.inf or barrier.holds(x + 0.999 * length * step)
        assert length == math.inf or not barrier.holds(x + 1.001 * length * step)


@pytest.mark.representatives(6)
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(
    "loss",
    ["hinge", "quantile", "huber", "smoothed_hinge", "squared_hinge", "logistic", "poisson", "classes"],
)
def test_newton_equations_of_the_rows(loss, fit_intercept):
    """Derivatives by differences, and the same equations as normal equations and as least squares."""
    classes, more = loss == "classes", {"fit_intercept": fit_intercept}
    problem = small_classes(**more) if classes else small(loss, **more)
    with Engine(1) as engine:
        values = np.hstack([b.columns(np.arange(b.shape[1]), engine) for b in problem.blocks])
        rows = (ClassRows if classes else PredictorRows)(problem, values, engine)
        lead, count = rows.lead, rows.lead + 12 * problem.n_outputs
        point = 0.3 * np.random.default_rng(2).normal(size=count)

        def at(v):
            return rows.at(problem.offset + rows.moved(v[lead:], rows.rise(v[:lead])), 0.1)

        _, u, h = at(point)
        system, right = rows.normal(u, h)
        np.testing.assert_allclose(right, slopes(lambda v: at(v)[0], point), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(right[lead:], rows.slopes(u), rtol=1e-12)
        steps = 1e-6 * np.eye(count)
        bent = [rows.normal(*at(point + e)[1:])[1] - rows.normal(*at(point - e)[1:])[1] for e in steps]
        np.testing.assert_allclose(system, np.array(bent) / 2e-6, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(rows.stiff(h), system.diagonal()[lead:], rtol=1e-12)
        equations, target = rows.equations(u, h)
        np.testing.assert_allclose(equations.T @ equations, system, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(equations.T @ target, -right, rtol=1e-10, atol=1e-12)
        along = rows.moved(point[lead:], rows.rise(point[:lead]))
        np.testing.assert_allclose(rows.slopes(rows.bent(h, along)), (system @ point)[lead:], rtol=1e-10)
        sums = rows.balanced(u, h).reshape(problem.n_outputs, -1).sum(axis=1)
        assert not fit_intercept or np.abs(sums).max() <= 1e-13 * np.abs(u).sum()


def test_a_class_that_is_nearly_sure_keeps_its_digits():
    problem = small_classes(fit_intercept=False)
    with Engine(1) as engine:
        rows = ClassRows(problem, np.zeros((30, 12)), engine)
        z = np.where(np.arange(3)[:, None] == problem.y, 40.0, 0.0).ravel()
        h = rows.at(z, 0.0)[2]
    own = problem.y.astype(int), np.arange(30)
    np.testing.assert_allclose(rows._others(h)[own], 2.0 * math.exp(-40.0), rtol=1e-12)


@pytest.mark.representatives(3)
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(
    ("regularizer", "constraint"),
    [("l1", "all"), ("elastic_net", "nonnegative"), ("group_lasso", "ball:0.7"), ("none", "box:-0.3,0.5")],
)
def test_the_end_of_the_path_of_several_classes(regularizer, constraint, fit_intercept):
    problem = small_classes(regularizer=regularizer, constraint=constraint, fit_intercept=fit_intercept)
    with Engine(1) as engine:
        found = best_of_all_columns(problem, 1e-8, engine)
    assert found is not None
    weights, end = found
    assert 0.0 <= end.value - end.lower <= 1e-8 * end.lower
    assert [x.shape for x in weights] == [(4, 3), (3, 3), (5, 3)]
    assert end.intercept.sum() == pytest.approx(0.0, abs=1e-12)
    other = solve(problem, SolverOptions(scheme="pooled", gap=1e-8, history=30, n_threads=1))
    assert other.certified
    assert end.value / problem.total_weight == pytest.approx(other.objective, rel=3e-8)
    for x, own in zip(weights, problem.party_constraints, strict=True):
        for part in x.T:
            np.testing.assert_array_equal(own.project(part), part)


@pytest.mark.representatives(6)
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize(
    ("loss", "regularizer", "constraint"),
    [
        ("logistic", "l1", "all"),
        ("hinge", "l2", "all"),
        ("quantile", "elastic_net", ["nonnegative", "box:-0.3,0.5", "all"]),
        ("huber", "group_lasso", "ball:0.7"),
        ("poisson", "none", "ball:0.5"),
        ("squared_hinge", "l1", "nonnegative"),
        ("smoothed_hinge", "none", "box:-0.1,0.2"),
        ("squared", "elastic_net", "ball:0.5"),
    ],
)
def test_the_end_of_the_path_is_the_optimum(loss, regularizer, constraint, fit_intercept):
    problem = small(loss, regularizer=regularizer, constraint=constraint, fit_intercept=fit_intercept)
    with Engine(1) as engine:
        found = best_of_all_columns(problem, 1e-8, engine)
    assert found is not None
    weights, end = found
    assert 0.0 <= end.value - end.lower <= 1e-8 * end.lower
    other = solve(problem, SolverOptions(scheme="pooled", gap=1e-8, history=30, n_threads=1))
    assert other.certified
    assert end.value / problem.total_weight == pytest.approx(other.objective, rel=3e-8)
    for x, own in zip(weights, problem.party_constraints, strict=True):
        np.testing.assert_array_equal(own.project(x), x)


def test_weights_are_zero_where_they_are_zero():
    problem = small(regularizer="l1")
    with Engine(1) as engine:
        found = best_of_all_columns(problem, 1e-8, engine)
    assert found is not None
    exact = solve(problem, SolverOptions(scheme="pooled", gap=1e-10, n_threads=1))
    zeros = [np.concatenate(w) == 0.0 for w in (found[0], exact.weights)]
    assert zeros[0].any()
    np.testing.assert_array_equal(*zeros)


def test_a_set_without_an_inside():
    problem = small(regularizer="l1", constraint=["all", "box:0.5,0.5", "all"])
    with Engine(1) as engine:
        assert best_of_all_columns(problem, 1e-6, engine) is None


@pytest.mark.parametrize(
    "seed",
    [
        40066,  # an optimum of zero, infinitely far away: the objective fell as one over the rounds
        40100,  # a loss with flat pieces and columns of different sizes: proximal Newton steps came to no end
        1720,  # a ball, and an optimum of about nothing
        pytest.param(40226, marks=pytest.mark.repeats),  # the same of `subspace`
        40332,  # many bounds
        20271,  # nothing bounds some weights: proved among models of bounded size
        5206,  # one bound after another
        # Predictors whose rounding was all of a gradient that l1 on large columns needs to ten digits.
        pytest.param(70039, marks=pytest.mark.repeats),
        60163,  # weights far larger than they have to be, whose sums rounded
        60219,  # several classes: columns of very different sizes, and an optimum of about nothing
        42190,  # several classes: groups
        pytest.param(6064, marks=pytest.mark.repeats),  # 179 parties: rounds took a second each
    ],
)
def test_runs_that_stalled_are_certified(seed):
    problem = generated(seed)
    result = solve(problem, SolverOptions(scheme="pooled", gap=1e-6, max_rounds=60, n_threads=1))
    if result.status is not Status.CONVERGED:  # of an optimum of zero no relative gap can be proved
        assert result.proof is not None
        assert result.proof.gap_absolute <= result.objective + 1e-9 <= 1e-8
