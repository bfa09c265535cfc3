"""Weights that nothing bounds: doubles prove a gap to the best model of a size, not to the best of all."""

from __future__ import annotations

import math

import numpy as np
import pytest
from fastadmm.engine.engine import Engine
from fastadmm.problem.constraints import get_constraint
from fastadmm.problem.penalty import PartyPenalty
from fastadmm.problem.problem import make_problem
from fastadmm.problem.regularizers import get_regularizer
from fastadmm.solver.history import Status
from fastadmm.solver.loop import run_rounds
from fastadmm.solver.solver import Solver, SolverOptions
from scipy.optimize import nnls


def test_a_run_without_a_bound_on_weights_ends_and_says_what_it_proved() -> None:
    rng = np.random.default_rng(4)
    blocks = [rng.normal(size=(50, 4)) for _ in range(2)]
    y = np.hstack(blocks) @ rng.normal(size=8) + rng.normal(size=50)
    problem = make_problem(
        blocks, y, loss="squared", regularizer="none", constraint="nonnegative", fit_intercept=False
    )
    with Engine(1) as engine:
        solver = Solver(problem, SolverOptions(max_rounds=60), engine)
        result = run_rounds(solver)
        # A run that was stopped before its result ends in the same way.
        again = Solver(problem, SolverOptions(max_rounds=60), engine)
        again.restore(solver.export(), solver.export_parties())
        assert again.last_record is not None
        assert again.stop_reason(again.last_record) is Status.CONVERGED
    assert result.status is Status.CONVERGED
    assert "among models in which no column contributes more than 1000 times" in result.message
    assert solver.method.gap_within <= 1e-6
    best, residual = nnls(np.hstack(blocks), y)
    assert result.objective == pytest.approx(residual**2 / 100, rel=1e-6)
    np.testing.assert_allclose(np.concatenate(result.weights), best, atol=1e-4)


@pytest.mark.parametrize("constraint", ["nonnegative", "all"])
def test_excess_is_the_conjugate_over_weights_of_bounded_size(constraint: str) -> None:
    rng = np.random.default_rng(1)
    q, scale = rng.normal(size=5), rng.uniform(0.1, 9.0, size=5)
    penalty = PartyPenalty(get_regularizer("none"), get_constraint(constraint), 1.0)
    assert penalty.bounds_nothing
    x = np.where(rng.random((4_000, 5)) < 0.5, 1.0, -1.0) * rng.random((4_000, 5)).round() / scale
    x = np.array([penalty.constraint.project(own) for own in x])
    assert penalty.excess(q, scale) == pytest.approx((x @ q).max())
    assert penalty.largest_scale(q) == 0.0
    signed = -np.abs(q) if constraint == "nonnegative" else 0.0 * q
    assert penalty.largest_scale(signed) == 1.0
    assert penalty.conjugate(signed) == 0.0


def test_what_is_bounded_has_no_excess() -> None:
    for regularizer, constraint in (("l2", "nonnegative"), ("none", "ball:1"), ("none", "box:-1,1")):
        penalty = PartyPenalty(get_regularizer(regularizer), get_constraint(constraint), 1.0)
        assert not penalty.bounds_nothing
    assert math.isinf(get_constraint("all").radius)
