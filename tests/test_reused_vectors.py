"""Vectors with a number for every row: written in one pass and used again."""

from types import SimpleNamespace

import numpy as np
import pytest
from fastadmm.engine.engine import Engine
from fastadmm.problem.losses import LOSSES, get_loss
from fastadmm.problem.problem import make_problem
from fastadmm.solver.solver import Solver, SolverOptions, solve

SMOOTH = [name for name, loss in LOSSES.items() if loss.smooth and loss.convex and not loss.vector]
LARGE = 300_000


@pytest.mark.parametrize("name", SMOOTH)
def test_curvature_in_one_pass_is_that_of_several(name):
    rng, n, loss = np.random.default_rng(0), 70_001, get_loss(name)
    base, total = 0.3 * rng.normal(size=(2, n))
    y = rng.integers(0, 2, n).astype(float) + (
        0.5 if loss.link(1.0) is not None and name != "binomial" else 0.0
    )
    weight, found = rng.uniform(0.2, 3.0, n), []
    for threads in (1, 3):
        with Engine(threads) as engine:
            bend, root = np.full(n, np.nan), np.full(n, np.nan)
            given = SimpleNamespace(y=y, weight=weight, offset=base), total, 0.7, bend, engine
            ((first, size),) = engine.together(loss.curvature_parts(*given, root))
            ((second, _),) = engine.together(loss.curvature_parts(*given))
            z = engine.plus(base, total, 0.7)
            expected = loss.curvature(z, y, weight, np.empty(n), engine)
            assert first == second == engine.total(expected)
            assert size == engine.total(np.abs(expected))
            np.testing.assert_array_equal(bend, expected)
            np.testing.assert_array_equal(root, np.sqrt(expected))
            found.append((first, bend.tobytes()))
    assert found[0] == found[1]


@pytest.mark.representatives(2)
@pytest.mark.parametrize("loss", ["logistic", "huber", "squared_hinge", "hinge"])
def test_fits_do_not_depend_on_what_stood_in_memory(loss, monkeypatch):
    rng, found = np.random.default_rng(1), []
    X = rng.normal(size=(LARGE, 4)) * [1.0, 3.0, 0.1, 1.0]
    y = (X @ [1.0, -0.5, 2.0, 0.0] + rng.normal(size=LARGE) > 0.3).astype(float)
    problem = make_problem([X[:, :2].copy(), X[:, 2:].copy()], y, loss=loss, lam=1e-4)
    for threads in (1, 2, 0):
        if not threads:
            monkeypatch.setattr(Engine, "vector", lambda self, size: np.full(size, np.nan))
        result = solve(problem, SolverOptions(gap=1e-5, n_threads=max(1, threads), max_rounds=40))
        records = [(record.objective, record.gap) for record in result.history]
        found.append((records, result.intercept, *(own.tobytes() for own in result.weights)))
    assert found[0] == found[1] == found[2]


def test_a_method_that_is_closed_holds_no_messages():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(500, 6))
    solver = Solver(make_problem([X[:, :3], X[:, 3:]], (X[:, 0] > 0).astype(float)), SolverOptions())
    solver.round()
    assert len(solver.coordinator.messages)
    solver.method.close()
    assert not len(solver.coordinator.messages)
