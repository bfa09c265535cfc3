"""Non-convex losses and the log-sum penalty: global proximal operators, descent, stationary points."""

import json
import math
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from fastadmm import ADMMSharingRegressor
from fastadmm.blocks.block import as_block
from fastadmm.coordinator.stationarity import descent_penalty
from fastadmm.engine.engine import Engine
from fastadmm.parties.xupdate.choose import choose_penalised
from fastadmm.parties.xupdate.majorised import Majorised
from fastadmm.parties.xupdate.proximal_gradient import ProximalGradient
from fastadmm.problem.constraints import AllSpace, Ball, Box, NonNegative
from fastadmm.problem.losses import LOSSES, get_loss
from fastadmm.problem.problem import make_problem
from fastadmm.problem.regularizers import LogSum, SquaredL2, get_regularizer
from fastadmm.proof.stationary import squared_prox_gradient
from fastadmm.solver.history import Status
from fastadmm.solver.solver import Solver, SolverOptions, solve
from fastadmm.store.model import open_model
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.preprocessing import scale

from naive import value
from resumed import assert_resumed_is_the_same
from run_tools import in_file, run, write_blocks

ENGINE = Engine(1)
EPS = np.finfo(float).eps
BOUNDED = [get_loss("sigmoid"), get_loss("tukey"), get_loss("tukey", c=0.05)]
BOUNDED += [get_loss("welsch"), get_loss("welsch", c=30.0)]
every_loss = pytest.mark.parametrize(
    "loss", BOUNDED, ids=lambda x: x.name + "".join(f"-{v:g}" for v in x.parameters.values())
)


def slope(loss, z, y):
    """Its derivative in z."""
    if loss.name == "sigmoid":
        t = 2 * y - 1
        e = np.exp(-np.abs(z))
        return -t * e / (1 + e) ** 2
    e = z - y
    if loss.name == "tukey":
        return e * (1 - np.minimum((e / loss.c) ** 2, 1)) ** 2
    return e * np.exp(-((e / loss.c) ** 2) / 2)


def least_on_a_grid(f, low, high):
    """Smallest value on ever finer grids around the best points: brute force."""
    best = math.inf
    grid = np.linspace(low, high, 2001)
    values = f(grid)
    # the lowest local minima of the grid are polished, for the best of them need not be the best in the end
    ends = np.concatenate([[np.inf], values, [np.inf]])
    places = np.flatnonzero((ends[1:-1] <= ends[:-2]) & (ends[1:-1] <= ends[2:]))
    for j in places[np.argsort(values[places])][:3]:
        a, b = grid[max(j - 1, 0)], grid[min(j + 1, 2000)]
        for _ in range(3):
            inner = np.linspace(a, b, 101)
            there = f(inner)
            k = int(np.argmin(there))
            best = min(best, float(there[k]))
            a, b = inner[max(k - 1, 0)], inner[min(k + 1, 100)]
    return best


def draw(loss, rng, n):
    c = loss.parameters.get("c", 1.0)
    y = rng.integers(0, 2, n).astype(float) if loss.name == "sigmoid" else 3 * c * rng.normal(size=n)
    centre = c * rng.normal(size=n) * 10 ** rng.uniform(-2, 1.2, n) + (0 if loss.name == "sigmoid" else y)
    return y, centre, np.where(rng.random(n) < 0.1, 0.0, 10 ** rng.uniform(-1, 1, n))


@every_loss
def test_value_gradient_and_curvature(loss):
    rng = np.random.default_rng(0)
    y, z, s = draw(loss, rng, 600)
    g, h, unused = (np.full(600, np.nan) for _ in range(3))
    each = s * value(loss, z, y)
    assert loss.evaluate(z, y, s, g, ENGINE) == pytest.approx(math.fsum(each), rel=1e-12)
    np.testing.assert_allclose(g, s * slope(loss, z, y), rtol=1e-11, atol=1e-13 * s.max())
    loss.curvature(z, y, s, h, ENGINE)
    step = 1e-5 * loss.parameters.get("c", 1.0)
    difference = s * (slope(loss, z + step, y) - slope(loss, z - step, y)) / (2 * step)
    np.testing.assert_allclose(h, difference, atol=1e-4 * s.max())
    lipschitz, weak = loss.gradient_lipschitz, loss.weak_convexity
    assert (-weak * s * (1 + 1e-12) <= h).all()
    assert (h <= lipschitz * s * (1 + 1e-12)).all()
    fine = np.linspace(-4, 4, 20001) * loss.parameters.get("c", 1.0)
    loss.curvature(fine, np.zeros(20001), np.ones(20001), out := np.empty(20001), ENGINE)
    assert out.min() == pytest.approx(-weak, rel=1e-5)  # the constants are attained
    assert np.abs(out).max() == pytest.approx(lipschitz, rel=1e-5)
    assert loss.evaluate(z, y, s, unused, ENGINE) <= s.sum() * value(loss, 1e9, 0.0) * (1 + 1e-12)


def test_small_residuals_and_names_keep_their_digits():
    for name in ("tukey", "welsch"):
        found = get_loss(name).evaluate(np.array([1e-9]), np.zeros(1), np.ones(1), np.empty(1), ENGINE)
        assert found == pytest.approx(5e-19, rel=1e-12)
    # Log sum by name.
    assert get_regularizer("log_sum") == LogSum(1.0)
    assert get_regularizer("log_sum:0.25") == get_regularizer("log_sum", {"width": 0.25}) == LogSum(0.25)
    assert get_regularizer(LogSum(0.25).text) == LogSum(0.25)


@pytest.mark.representatives(12)
@every_loss
@pytest.mark.parametrize("exponent", range(-5, 6, 2))
def test_prox_is_the_global_minimiser(loss, exponent):
    """Also for small r, where the scalar problem has two minima."""
    rng, n, r = np.random.default_rng(20 + exponent), 60, 10.0**exponent
    y, centre, s = draw(loss, rng, n)
    shift = rng.normal(size=n)
    v = centre - shift
    z, g = rng.normal(size=n), np.empty(n)
    loss.prox(v, shift, SimpleNamespace(y=y, weight=s), r, z, g, ENGINE)
    # stationarity: g is the gradient at z and r (v - z)
    size = r * (np.abs(v) + np.abs(y) + np.abs(shift) + np.abs(z)) + s
    np.testing.assert_array_less(np.abs(g - r * (v - z)), 32 * EPS * size + 1e-300)
    np.testing.assert_allclose(g, s * slope(loss, z + shift, y), atol=64 * EPS * float(size.max()))
    for i in range(n):

        def f(x, i=i):
            return s[i] * value(loss, x + shift[i], y[i]) + r / 2 * (x - v[i]) ** 2

        # no minimiser is farther than where the square alone exceeds the bound of the loss
        reach = math.sqrt(2 * s[i] * value(loss, 1e9, 0.0) / r) * 1.01 + 1e-12
        if loss.name != "sigmoid":
            reach = min(reach, abs(v[i] + shift[i] - y[i]) * 1.01 + 1e-12)
        best = least_on_a_grid(f, v[i] - reach, v[i] + reach)
        assert f(z[i]) <= best + 1e-13 * size[i] * (abs(v[i]) + abs(y[i]) + 1) * 4


@pytest.mark.parametrize("name", ["tukey", "welsch"])
def test_prox_at_the_border_between_one_minimum_and_two(name):
    loss = get_loss(name)
    ratio = 1 / loss.weak_convexity  # s/r above which there can be two minima
    bend = {"tukey": math.sqrt(0.6), "welsch": math.sqrt(3.0)}[name] * loss.c
    for factor in (1 - 1e-12, 1.0, 1 + 1e-12, 1 + 1e-6):
        at = bend + factor * ratio * float(slope(loss, bend, 0.0))
        z, g = np.zeros(1), np.empty(1)
        rows = SimpleNamespace(y=np.zeros(1), weight=np.array([factor * ratio]))
        loss.prox(np.array([at]), np.zeros(1), rows, 1.0, z, g, ENGINE)
        assert z[0] == pytest.approx(bend, abs=0.05 * loss.c)
        assert abs(g[0] - (at - z[0])) <= 1e-13


@every_loss
def test_only_zero_is_in_the_domain_of_the_conjugate(loss):
    y, s = np.array([1.0, 0.0]), np.ones(2)
    assert loss.conjugate(np.zeros(2), y, s, ENGINE) == 0.0
    assert loss.conjugate(np.array([0.0, 1e-300]), y, s, ENGINE) == math.inf


SETS = [AllSpace(), NonNegative(), Box(-0.3, 0.5), Box(0.1, math.inf), Ball(0.7)]


@pytest.mark.parametrize("constraint", SETS, ids=lambda c: c.text)
@pytest.mark.parametrize("wide", [False, True])
def test_x_update_of_log_sum_descends_to_a_stationary_point(constraint, wide):
    rng = np.random.default_rng(5)
    matrix, w = rng.normal(size=(30, 8)), 3 * rng.normal(size=30)
    penalty, mu = LogSum(0.2), 4.0
    block = as_block(matrix, "p")
    update, reason = choose_penalised(block, penalty, constraint)
    assert "squared l2" in reason
    if wide:
        update = Majorised(ProximalGradient(block, SquaredL2(), constraint), penalty, 5)
    update.prepare(ENGINE)

    def objective(x):
        return mu * penalty.value(x) + 0.5 * float(np.sum((matrix @ x - w) ** 2))

    start = constraint.project(rng.normal(size=8))
    x, before = start, objective(start)
    for _ in range(60):
        x = update.solve(w, mu, x, ENGINE)
        np.testing.assert_allclose(constraint.project(x), x, rtol=1e-14)
        assert objective(x) <= before * (1 + 1e-13)
        before = objective(x)
    gradient = matrix.T @ (matrix @ x - w) + mu * penalty.gradient(x)
    np.testing.assert_allclose(constraint.project(x - gradient), x, atol=1e-6)


CASES = [
    *(
        (name, regularizer, "all")
        for name in ("sigmoid", "tukey:1.0", "welsch")
        for regularizer in ("l2", "l1")
    ),
    ("tukey", "log_sum:0.3", "nonnegative"),
    ("welsch", "log_sum", "box:-0.5,0.5"),
    ("sigmoid", "log_sum:0.1", "ball:0.8"),
    ("logistic", "log_sum:0.2", "all"),
    ("huber", "log_sum:0.2", "all"),
    ("sigmoid", "none", "ball:2.0"),
    ("tukey:0.3", "elastic_net", "nonnegative"),
]


def generated(seed, loss, regularizer, constraint, lam, intercept):
    """A small problem with duplicated parties, zero blocks, weights and offsets."""
    rng = np.random.default_rng(seed)
    n, parties = int(rng.integers(5, 60)), int(rng.choice([1, 2, 3, 5, 8, 16]))
    blocks = [rng.normal(size=(n, int(rng.integers(1, 5)))) for _ in range(parties)]
    for m in range(1, parties):
        kind = rng.integers(0, 6)
        blocks[m] = blocks[m - 1].copy() if kind == 0 else 0.0 * blocks[m] if kind == 1 else blocks[m]
        blocks[m] = sp.csr_array(blocks[m]) if kind == 2 else 10.0 * blocks[m] if kind == 3 else blocks[m]
    z = sum(np.asarray(b.sum(axis=1)).ravel() for b in blocks) / parties
    name, _, parameter = loss.partition(":")
    if LOSSES[name].task == "classification":
        y = (z + rng.normal(size=n) > np.median(z)).astype(float)
        y[:2] = 0.0, 1.0
    else:
        y = 2 * z + rng.standard_t(1.5, n)
    return make_problem(
        blocks,
        y,
        loss=name,
        loss_parameters={"c": float(parameter)} if parameter else None,
        lam=lam,
        regularizer=regularizer,
        constraint=constraint,
        fit_intercept=intercept,
        sample_weight=rng.uniform(0.1, 3.0, n) if seed % 3 == 0 else None,
        offset=rng.normal(size=n) if seed % 2 else None,
    )


@pytest.mark.representatives(4)
@pytest.mark.parametrize("case", CASES, ids="-".join)
@given(seed=st.integers(0, 10**6), lam=st.sampled_from([1e-3, 1e-2, 0.3]), intercept=st.booleans())
@settings(max_examples=12, deadline=None)
def test_the_augmented_lagrangian_decreases_by_what_the_theorem_says(case, seed, lam, intercept):
    """Every round, at the default penalty: also the amount, from the moves of messages and z."""
    problem = generated(seed, *case, lam, intercept)
    solver = Solver(problem, SolverOptions(scheme="sharing", n_threads=1))
    coordinator, total = solver.coordinator, problem.total_weight
    solver.prepare()
    state, b = coordinator.state, coordinator.shift
    r, largest = coordinator.penalty, float(problem.weight.max())
    lipschitz, weak = problem.loss.gradient_lipschitz * largest, problem.loss.weak_convexity * largest
    keep = (r - weak) / 2 - lipschitz**2 / r
    assert keep > 0
    before = solver.divergence.start  # at zero weights, z = 0: the loss alone
    for t in range(15):
        record = solver.round()
        new = coordinator.last
        move_z = new.z + coordinator.shift - state.z - b
        decrease = keep * float(move_z @ move_z)
        if t > 0 or problem.constraint.project(np.zeros(1))[0] == 0.0:  # the first x is feasible at last
            moved = new.messages - state.messages
            decrease += 0.5 * r * problem.n_parties * float(np.sum(moved * moved))
            decrease += 0.5 * r * problem.n_samples * (coordinator.shift - b) ** 2
            slack = 1e-9 * (abs(before) * total + decrease)
            assert record.augmented_lagrangian * total <= before * total - decrease + slack
        assert math.isfinite(record.lyapunov)
        assert record.gap == math.inf
        before, state, b = record.augmented_lagrangian, new, coordinator.shift
    assert record.augmented_lagrangian >= 0.0


def test_penalties_with_and_without_a_guarantee():
    rng = np.random.default_rng(0)
    matrix = rng.normal(size=(40, 6))
    problem = make_problem(np.array_split(matrix, 3, axis=1), rng.normal(size=40) * 3, loss="tukey", lam=1e-3)
    small = Solver(problem, SolverOptions(scheme="sharing", penalty=0.05, n_threads=1))
    assert not small.method.convergent
    assert Solver(problem, SolverOptions(scheme="sharing")).method.convergent
    values = [small.round().augmented_lagrangian for _ in range(40)]
    assert max(np.diff(values)) > 0
    assert descent_penalty(problem, Engine(1), above=1.0) == pytest.approx((0.8 + math.sqrt(0.64 + 8)) / 2)
    # Documented penalties are the derived ones.
    page = (Path(__file__).parents[1] / "docs" / "losses.md").read_text("utf-8")
    rows = re.findall(r"^\| (`\w+`.*?) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", page, re.MULTILINE)
    assert len(rows) == 5
    for names, lipschitz, weak, penalty in rows:
        for name in re.findall(r"`(\w+)`", names):
            if name == "log_sum":
                continue
            loss = LOSSES[name]
            assert loss.gradient_lipschitz == pytest.approx(float(lipschitz), rel=1e-3)
            assert loss.weak_convexity == pytest.approx(float(weak), rel=1e-3)
            problem = make_problem([np.eye(3)], [0.0, 1.0, 1.0], loss=name)
            assert descent_penalty(problem, Engine(1)) == pytest.approx(float(penalty), rel=1e-3)


def problem_data(name):
    if LOSSES[name].task == "classification":
        X, y = load_breast_cancer(return_X_y=True)
        return scale(X), y.astype(float)
    X, y = load_diabetes(return_X_y=True)
    y = scale(y)
    y[::9] += 15.0
    return scale(X), y


def parted(name, parties, lam, **more):
    """The data of a loss, cut among parties."""
    X, y = problem_data(name)
    return make_problem(np.array_split(X, parties, axis=1), y, loss=name, lam=lam, **more)


def descended(solver, most_rounds):
    """The record at a stationary point, to which the objective never rose."""
    before = math.inf
    for _ in range(most_rounds):
        record = solver.round()
        if not solver.method.starting:
            assert record.objective <= before * (1 + 1e-14)
            before = record.objective
        if solver.stop_reason(record) is Status.STATIONARY:
            break
    assert record.stationarity <= 1e-5
    return record


@pytest.mark.representatives(3)
@pytest.mark.parametrize("name", ["logistic", "squared", "huber", "welsch"])
@pytest.mark.parametrize(("lam", "width", "parties"), [(1e-1, 0.3, 3), (1e-2, 1.0, 1), (1e-3, 0.1, 8)])
def test_log_sum_takes_tens_of_rounds_and_ends_about_as_low_as_sharing(name, lam, width, parties):
    problem = parted(name, parties, lam, regularizer=f"log_sum:{width}")
    solver = Solver(problem, SolverOptions(n_threads=1))
    assert solver.method.name == "subspace"
    record = descended(solver, 30)
    X, _ = problem_data(name)
    x, g = np.concatenate(solver.party_weights()), np.empty(len(X))
    loss = problem.loss.evaluate(X @ x + solver.intercept, problem.y, problem.weight, g, ENGINE)
    penalty = width**2 / 2 * np.log1p((x / width) ** 2).sum()
    assert loss / problem.total_weight + lam * penalty == pytest.approx(record.objective, rel=1e-12)
    gradient = X.T @ g + lam * problem.total_weight * x / (1 + (x / width) ** 2)
    measure = gradient @ gradient + g.sum() ** 2
    assert measure == pytest.approx(record.lyapunov, rel=1e-3)
    other = solve(problem, SolverOptions(scheme="sharing", max_rounds=300, n_threads=1))
    assert record.objective <= other.objective * 1.02  # of several local solutions each may find another


@pytest.mark.representatives(5)
@pytest.mark.parametrize("name", ["sigmoid", "tukey", "welsch"])
@pytest.mark.parametrize(("lam", "parties"), [(1e-1, 1), (1e-3, 8), (1e-5, 3)])
def test_subspace_descends_to_a_stationary_point_in_few_rounds(name, lam, parties):
    problem = parted(name, parties, lam)
    solver = Solver(problem, SolverOptions(n_threads=1))
    assert solver.method.name == "subspace"
    descended(solver, 60)


def test_no_global_optimum_is_claimed():
    X, y = problem_data("tukey")
    model = ADMMSharingRegressor(parties=2, alpha=1e-2, loss="tukey").fit(X, y)
    assert model.status_ is Status.STATIONARY
    assert model.converged_
    assert not model.certified_
    assert model.duality_gap_ == math.inf
    assert model.stationarity_ <= 1e-6
    convex = ADMMSharingRegressor(parties=2, alpha=1e-2).fit(X, y)
    assert convex.certified_
    assert convex.stationarity_ is None
    problem = make_problem([X], y, loss="tukey")
    for options, words in (
        (SolverOptions(), "stationary after"),
        (SolverOptions(max_rounds=2), "not stationary"),
        (SolverOptions(max_rounds=2, stationarity=0.0), "stopped at the round limit after 2 rounds"),
    ):
        message = solve(problem, options).message
        assert words in message
        assert "no global optimum is claimed" in message
        assert "certified" not in message


def measure(problem, blocks, weights, b):
    """The norm of the prox-gradient maps of all parties and the intercept's slope."""
    g = slope(problem.loss, b + sum(D @ x for D, x in zip(blocks, weights)), problem.y)
    found = [g.sum()]
    for D, p, x in zip(blocks, problem.penalties, weights):
        t = 1 / (problem.loss.gradient_lipschitz * (D * D).sum(axis=0).max())
        found.extend((x - p.prox(x - t * D.T @ g, t)) / t)
    return np.linalg.norm(found)


def proximal_gradient(problem, X, tol=1e-6):
    """Objective where proximal gradient with backtracking ends, from the same start; one set for all."""
    X, W, penalty, engine = np.hstack(X), problem.total_weight, problem.penalties, Engine(1)
    cuts, gradient = np.cumsum([b.shape[1] for b in problem.blocks])[:-1], np.empty(problem.n_samples)
    b = problem.loss.start_intercept(problem.y, problem.weight, problem.offset)

    def at(x, b):
        found = problem.loss.evaluate(b + X @ x, problem.y, problem.weight, gradient, engine)
        return found, X.T @ gradient, gradient.sum()

    x, t, first = np.zeros(X.shape[1]), 1 / W, math.inf
    loss, s, rise = at(x, b)
    for _ in range(20000):
        step = np.concatenate([p.prox(v, t) for p, v in zip(penalty, np.split(x - t * s, cuts))]) - x
        up = -t * rise
        there = at(x + step, b + up)
        square = step @ step + up * up
        if there[0] > loss + s @ step + rise * up + square / (2 * t) + 1e-13 * abs(loss):
            t *= 0.5
            continue
        x, b, (loss, s, rise) = x + step, b + up, there
        first = min(first, math.sqrt(square) / t) if first == math.inf else first
        if math.sqrt(square) <= tol * first * t:
            break
        t *= 1.3
    return (loss + sum(p.value(v) for p, v in zip(penalty, np.split(x, cuts)))) / W


PENALTIES = [
    {"regularizer": "l1"},
    {"regularizer": "group_lasso"},
    {"constraint": "nonnegative"},
    {"constraint": "box:-0.2,0.3"},
    {"constraint": "ball:0.7"},
    {"regularizer": "l1", "constraint": "nonnegative"},
]


@pytest.mark.representatives(6)
@pytest.mark.parametrize("penalty", PENALTIES, ids=lambda p: "-".join(p.values()))
@pytest.mark.parametrize("loss", ["sigmoid", "tukey", "welsch"])
def test_norms_and_sets_end_stationary_and_as_low_as_proximal_gradient(loss, penalty):
    X, y = problem_data(loss)
    blocks = np.array_split(X, 2, axis=1)
    problem = make_problem(blocks, y, loss=loss, lam=3e-3, **penalty)
    result = solve(problem, SolverOptions(max_rounds=30))
    assert (result.program.split(",")[0], result.status) == ("parties: proximal", Status.STATIONARY)
    assert (np.diff([record.objective for record in result.history]) <= 1e-14).all()
    assert result.objective <= proximal_gradient(problem, blocks) + 1e-6
    at_end = measure(problem, blocks, result.weights, result.intercept)
    start = problem.loss.start_intercept(problem.y, problem.weight, problem.offset)
    at_start = measure(problem, blocks, [np.zeros_like(x) for x in result.weights], start)
    assert result.stationarity == pytest.approx(at_end / at_start, rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("seed", [4, 24, 34])
def test_a_line_search_that_ends_in_a_higher_valley_is_shortened(seed):
    """Few rows, and weights that only a set bounds: rounds that kept their model never ended."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(30, 20))
    y = X @ rng.normal(size=20) + rng.standard_t(1.5, 30)
    more: dict[str, Any] = {"loss_parameters": {"c": 1.5}, "constraint": "nonnegative"}
    blocks = np.array_split(X, 3, axis=1)
    problem = make_problem(blocks, y, loss="tukey", lam=3e-3, regularizer="none", **more)
    assert solve(problem, SolverOptions(max_rounds=50)).status is Status.STATIONARY


def test_intercepts_and_measures_at_stationary_points():
    X, y = problem_data("welsch")
    t, some = 1 / (X * X).sum(axis=0).max(), np.linspace(-0.1, 0.2, X.shape[1])
    for kind, allowed, x in (("l2", "all", some), ("none", "nonnegative", np.full_like(some, 1e-9))):
        problem = make_problem([X], y, loss="welsch", lam=0.1, regularizer=kind, constraint=allowed)
        q, ridge = X.T @ slope(problem.loss, X @ x, y), problem.regularization
        wanted = (q + ridge * x) / (1 + t * ridge) if kind == "l2" else np.minimum(q, x / t)
        assert squared_prox_gradient(problem.penalties[0], x, q, t) == pytest.approx(wanted @ wanted)
    # An intercept without a best value still ends stationary.
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), np.repeat([0.0, 1.0], [10, 30])
    result = solve(make_problem(np.array_split(X, 2, axis=1), y, loss="sigmoid", lam=1.0, regularizer="l1"))
    assert result.status is Status.STATIONARY
    assert result.objective == pytest.approx(0.25, abs=1e-5)  # one class for all rows


@pytest.mark.parametrize(
    ("loss", "regularizer", "scheme", "after"),
    [
        ("tukey", "l2", "subspace", 1),
        ("tukey", "l2", "subspace", 6),
        ("sigmoid", "l2", "sharing", 6),
        ("welsch", "log_sum:0.2", "auto", 1),
        ("welsch", "log_sum:0.2", "auto", 6),
        ("welsch", "log_sum:0.2", "sharing", 1),
        ("sigmoid", "l1", "auto", 2),
        ("tukey", "group_lasso", "proximal", 1),
    ],
)
def test_runs_resume_to_the_bit(loss, regularizer, scheme, after):
    problem = parted(loss, 3, 1e-3, regularizer=regularizer)
    options = SolverOptions(scheme=scheme, stationarity=0.0, n_threads=1)
    assert_resumed_is_the_same(problem, options, after, 6)


def test_from_the_command_line(tmp_path, capsys):
    def command(*arguments):
        code = run(*arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    X, y = problem_data("tukey")
    data = write_blocks(tmp_path / "d.parts", np.array_split(X, 2, axis=1), y, task="regression")
    out = tmp_path / "run"
    code, text, _ = command("train", data, "--loss", "tukey:4.0", "--lambda", "1e-3", "--out", out)
    assert code == 0
    assert "stationary after" in text
    assert "no global optimum is claimed" in text
    result = json.loads((out / "result.json").read_text())
    assert (result["status"], result["gap"], result["convex"]) == ("stationary", None, False)
    assert 0 < result["stationarity"] <= 1e-5
    assert open_model(out).certificate["stationarity"] == result["stationarity"]
    code, text, _ = command("resume", out, "--set", "stationarity=1e-9")
    assert code == 0
    assert json.loads((out / "result.json").read_text())["stationarity"] <= 1e-9
    again = tmp_path / "again"
    command("train", data, *in_file(loss="tukey:4.0", stationarity=1e-9), "--lambda", "1e-3", "--out", again)
    for a, b in zip(open_model(out).parties, open_model(again).parties, strict=True):
        np.testing.assert_array_equal(a.weights, b.weights)
    assert command("report", out)[0] == 0
    page = (out / "report.html").read_text()
    assert "no global optimum is claimed" in page
    assert "Stationarity against rounds" in page
    assert ">Certified<" not in page
