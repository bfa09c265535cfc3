"""Anderson acceleration: against least squares, on linear maps, its memory and its safeguard."""

import math

import numpy as np
import pytest
from fastadmm.coordinator.admm.anderson import Anderson, acceleration_memory
from fastadmm.coordinator.divergence import DivergenceDetector
from fastadmm.engine.engine import Engine
from fastadmm.engine.stacked import StackedRows
from fastadmm.problem.problem import make_problem
from fastadmm.solver.solver import Solver, SolverOptions, solve

import naive


def plain(size, memory):
    return Anderson(size, [(slice(0, size), 1.0)], memory, StackedRows(Engine(1), size))


def linear_map(size, radius, seed=0):
    """A contraction v -> A v + c and its fixed point."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(size, size))
    a *= radius / np.abs(np.linalg.eigvals(a)).max()
    c = rng.normal(size=size)
    return (lambda v: a @ v + c), np.linalg.solve(np.eye(size) - a, c)


@pytest.mark.parametrize("memory", [3, 5, 20])
def test_every_step_is_the_least_squares_extrapolation(memory):
    size = 12
    function, _ = linear_map(size, 0.9)
    metric = np.repeat([4.0, 0.25, 1.0], 4)
    sections = [(slice(4 * k, 4 * k + 4), metric[4 * k]) for k in range(3)]
    fast = Anderson(size, sections, memory, StackedRows(Engine(1), 4))
    rng = np.random.default_rng(1)
    points, images = [], []
    v = rng.normal(size=size)
    for k in range(9):
        image = function(v)
        points.append(v)
        images.append(image)
        assert fast.squared_norm(image - v) == pytest.approx(float(metric @ (image - v) ** 2))
        got = fast.extrapolate(image, image - v)
        assert (got is None) == (k < 2)
        if got is not None:
            np.testing.assert_allclose(
                got, naive.anderson_step(points, images, memory, metric), rtol=1e-4, atol=1e-5
            )
        # a wild walk keeps the small problem well conditioned
        v = image + rng.normal(size=size)


def test_histories_that_say_nothing_are_not_trusted():
    size, memory = 8, 3
    function, _ = linear_map(size, 0.8)
    long, short = plain(size, memory), plain(size, memory)
    rng = np.random.default_rng(2)
    points = [rng.normal(size=size) for _ in range(10)]
    for k, v in enumerate(points):
        last = long.extrapolate(function(v), function(v) - v)
        if k >= len(points) - memory - 1:
            recent = short.extrapolate(function(v), function(v) - v)
    assert long.count == short.count == memory
    np.testing.assert_allclose(last, recent, rtol=1e-9)
    # Reset forgets and a repeated point is not trusted.
    fast = plain(4, 5)
    rng = np.random.default_rng(3)
    for _ in range(4):
        v = rng.normal(size=4)
        fast.extrapolate(v, v / 2)
    fast.reset()
    assert fast.count == 0
    assert fast.extrapolate(np.ones(4), np.ones(4)) is None
    # nothing moves: all differences are zero, the small problem is singular
    for _ in range(3):
        got = fast.extrapolate(np.ones(4), np.ones(4))
        assert got is None or np.isfinite(got).all()


def test_memory_fits_its_budget():
    assert acceleration_memory(2, 1000) == 10
    assert acceleration_memory(2, 10**7) == 3
    assert acceleration_memory(8, 10**8) == 0


def hard_problem(seed=0):
    """Correlated parties and little regularisation: where plain sharing is slow."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(150, 4))
    blocks = [common + 0.1 * rng.normal(size=(150, 4)) for _ in range(3)]
    y = (common @ np.ones(4) + rng.normal(size=150) > 0).astype(float)
    return make_problem(blocks, y, lam=1e-4)


@pytest.mark.parametrize("scheme", ["jacobi", "gauss-seidel"])
def test_the_papers_schemes_stay_as_printed_unless_asked(scheme):
    problem = hard_problem()
    options = {"scheme": scheme, "max_rounds": 12, "gap": 0.0}
    printed = solve(problem, SolverOptions(**options))
    assert not any(record.accelerated for record in printed.history)
    asked = solve(problem, SolverOptions(**options, acceleration="anderson"))
    assert any(record.accelerated for record in asked.history)


def test_a_bad_extrapolation_is_taken_back():
    solver = Solver(hard_problem(), SolverOptions(scheme="sharing", gap=0.0))
    for _ in range(6):
        solver.round()
    coordinator = solver.coordinator
    reached = coordinator.reached.vector.copy()
    assert coordinator.extrapolated
    coordinator.state.vector[:] += 1e6 * np.random.default_rng(0).normal(size=coordinator.state.vector.size)
    record = solver.round()
    assert record.accelerated
    assert not coordinator.extrapolated
    np.testing.assert_array_equal(coordinator.state.vector, reached)
    assert coordinator.anderson.count == 0
    # and the run goes on to the optimum
    while solver.round().gap > 1e-6:
        assert solver.n_rounds < 400


def feed(detector, objectives, residuals):
    """Number of the round in which the detector speaks; None if it never does."""
    for k, (objective, residual) in enumerate(zip(objectives, residuals, strict=True)):
        if detector.diverged(objective, residual):
            return k + 1
    return None


def test_growth_that_passes_and_cycles_are_not_divergence():
    assert feed(DivergenceDetector(1.0, guaranteed=True), [1.0, math.inf], [1.0, 1.0]) == 2
    assert feed(DivergenceDetector(1.0, guaranteed=True), [1.0, 1.0], [1.0, math.nan]) == 2
    # Growth that stays and growth that passes.
    grown = [1.0, *[3.0] * 60]
    assert feed(DivergenceDetector(1.0, guaranteed=False), [1.0] * 61, grown) == 41
    assert feed(DivergenceDetector(1.0, guaranteed=True), [1.0] * 61, grown) is None
    passing = [1.0, *[3.0] * 30, *[1.5] * 5, *[3.0] * 30]
    assert feed(DivergenceDetector(1.0, guaranteed=False), [1.0] * 66, passing) is None
    assert feed(DivergenceDetector(1.0, guaranteed=False), [1.0, 200.0], [1.0, 5.0]) == 2
    # A cycle is not slow convergence.
    rounds = 400
    cycle = 0.7 + 0.1 * np.sin(np.arange(rounds))
    assert feed(DivergenceDetector(1.0, guaranteed=False), 0.5 + 0.1 * cycle, cycle) == 200
    slow = 0.99999 ** np.arange(rounds)  # a residual that falls by 0.1 % in 100 rounds
    assert feed(DivergenceDetector(1.0, guaranteed=False), 0.9999 ** np.arange(rounds), slow) is None
    small = np.concatenate([[1.0], np.full(rounds - 1, 0.01)])  # stalled, but near an answer
    assert feed(DivergenceDetector(1.0, guaranteed=False), [0.5] * rounds, small) is None
