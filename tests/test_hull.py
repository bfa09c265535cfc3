"""The coordinator's small problems over hull, faces and segment, against brute force."""

from itertools import product

import numpy as np
import pytest
from fastadmm.coordinator.proximal.newton_system import newton_system
from fastadmm.coordinator.proximal.parts import HullPoint
from fastadmm.coordinator.proximal.segment_search import SegmentPenalty, best_position
from fastadmm.engine.engine import Engine
from fastadmm.engine.singular import descent_solver
from fastadmm.kernels.weights_program import weights_program
from fastadmm.problem.problem import make_problem
from hypothesis import given, settings
from hypothesis import strategies as st

N = 50
seeds = given(seed=st.integers(0, 10**6))
few = settings(max_examples=15, deadline=None)


def a_problem(rng, loss, intercept=True):
    X = rng.normal(size=(N, 4))
    y = X[:, 0] + rng.normal(size=N)
    y = (y > 0.0) * 1.0 if loss == "logistic" else y
    weight = rng.uniform(0.5, 2.0, N)
    return make_problem([X[:, :2], X[:, 2:]], y, loss=loss, fit_intercept=intercept, sample_weight=weight)


def loss_value(problem, z):
    with Engine(1) as engine:
        return problem.loss.evaluate(z, problem.y, problem.weight, np.empty(N), engine)


def solved(hessian, slope, weights, lower, owner, most):
    step = np.zeros(len(slope))
    weights_program(hessian, slope, weights, lower, owner, most, 1e-13, step)
    return step


@seeds
@few
def test_the_weights_program_is_the_best_of_all_active_sets(seed):
    rng = np.random.default_rng(seed)
    owner = np.array([0, 0, 0, 1, 1, -1])
    lower = np.where(owner < 0, -np.inf, 0.0)
    k = len(owner)
    root = rng.normal(size=(k, k))
    hessian, slope = root @ root.T, rng.normal(size=k)
    weights = np.array([1.0, 0.0, 0.0, 0.4, 0.6, 0.3])
    found = solved(hessian, slope, weights, lower, owner, 40)

    def value(d):
        return float(slope @ d + 0.5 * d @ hessian @ d)

    best = np.inf
    for at_bound in product((False, True), repeat=5):
        held = np.append(at_bound, False)
        rows = [np.where(owner == m, 1.0, 0.0) for m in (0, 1)] + list(np.eye(k)[held])
        right = np.concatenate([[0.0, 0.0], (lower - weights)[held]])
        system = np.block([[hessian, np.array(rows).T], [np.array(rows), np.zeros((len(rows), len(rows)))]])
        d = np.linalg.lstsq(system, np.concatenate([-slope, right]), rcond=None)[0][:k]
        if np.abs(np.array(rows) @ d - right).max() < 1e-9 and (weights + d >= lower - 1e-9).all():
            best = min(best, value(d))
    assert (weights + found >= lower - 1e-15).all()
    for m in (0, 1):
        assert abs(found[owner == m].sum()) <= 1e-14
    # The condition of a Gaussian 6 x 6 matrix squared, times rounding and the ridge of 1e-13.
    assert value(found) == pytest.approx(best, rel=1e-6, abs=1e-9)


def test_what_is_no_number_ends_without_a_step_to_infinity():
    owner, lower = np.zeros(3, dtype=np.int64), np.zeros(3)
    step = solved(np.full((3, 3), np.nan), np.ones(3), np.eye(3)[0], lower, owner, 9)
    assert not np.isinf(step).any()


@pytest.mark.parametrize("rank", [0, 1, 3, 4])
def test_a_descent_step_of_a_singular_system_descends(rank):
    rng = np.random.default_rng(rank)
    root, slope = rng.normal(size=(4, rank)) * 10.0 ** rng.uniform(-5, 5, (4, 1)), rng.normal(size=4)
    step = -descent_solver(root @ root.T, 1e-13)(slope)
    assert np.isfinite(step).all()
    assert slope @ step < 0.0
    if rank == 4:
        np.testing.assert_allclose(root @ root.T @ step, -slope, rtol=1e-2, atol=1e-6)


@pytest.mark.parametrize("extra", [0, 1])
@pytest.mark.parametrize("flat", [0.0, 0.9])
def test_newton_system_is_gradient_and_hessian(extra, flat):
    rng = np.random.default_rng(1)
    n = 20_000  # of more than one piece
    messages, gradient = rng.normal(size=(4, n)), rng.normal(size=n)
    curvature = rng.uniform(size=n) * (rng.random(n) >= flat)
    with Engine(1) as engine:
        slope, hessian = newton_system(messages, gradient, curvature, extra, engine)
    rows = np.vstack([messages, np.ones((extra, n))])
    # sums of n terms, added in another order
    np.testing.assert_allclose(slope, rows @ gradient, atol=1e-10)
    np.testing.assert_allclose(hessian, (rows * curvature) @ rows.T, rtol=1e-11, atol=1e-10)


@pytest.mark.parametrize("loss", ["logistic", "squared"])
@seeds
@few
def test_the_best_position_is_the_best_of_a_dense_grid(loss, seed):
    rng = np.random.default_rng(seed)
    problem = a_problem(rng, loss)
    ends = [HullPoint(np.empty(0), rng.normal(), 3.0 * rng.normal(size=N)) for _ in range(2)]
    x, y = rng.normal(size=(2, 2, 5))  # of two parties
    penalties, reach = [], rng.choice([1.0, 0.6])
    for a, b in zip(x, y):
        kinks = a / (a - b)
        positions = np.sort(np.concatenate([[0.0], kinks[(kinks > 0.0) & (kinks < reach)], [reach]]))
        norms = np.abs(a + positions[:, None] * (b - a)).sum(axis=1)
        square = (float(a @ a), 2.0 * float(a @ (b - a)), float((b - a) @ (b - a)))
        penalties.append(SegmentPenalty(positions, norms, square, 7.0, 2.0))

    def value(t):
        points = x + t * (y - x)
        z = (ends[0].total + ends[0].intercept) * (1 - t) + (ends[1].total + ends[1].intercept) * t
        norm, square = float(np.abs(points).sum()), float((points * points).sum())
        return loss_value(problem, problem.offset + z) + 7.0 * norm + square

    with Engine(1) as engine:
        found = best_position(problem, ends[0], ends[1], penalties, engine)
    grid = np.linspace(0.0, reach, 201)
    values = [value(t) for t in grid]
    assert 0.0 <= found <= reach
    assert value(found) <= min(values) * (1.0 + 1e-13)
    assert abs(found - grid[int(np.argmin(values))]) <= 1.01 * reach / 200.0
