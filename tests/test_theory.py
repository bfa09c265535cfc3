"""The counter-example of docs/theory.md: the paper's conditions hold, and its algorithm diverges."""

from __future__ import annotations

import numpy as np
import pytest
from fastadmm.problem import make_problem
from fastadmm.solver import Solver, SolverOptions


def round_matrix(n_parties: int, r: float) -> np.ndarray:
    """One round of Algorithm 1 on (S, z): one sample, D_m = 1, loss z^2 / 2, no regulariser, u = z."""
    m = float(n_parties)
    total = np.array([1.0 - m, m * (1.0 - 1.0 / r)])
    return np.array([total, (np.array([0.0, 1.0]) + r * total) / (1.0 + r)])


def copies(n_parties: int):
    """The example with a target, so that zero is not already the answer; ridge almost zero."""
    blocks = [np.ones((1, 1)) for _ in range(n_parties)]
    return make_problem(blocks, np.array([1.0]), loss="squared", lam=1e-9, fit_intercept=False)


@pytest.mark.parametrize("n_parties", [2, 3, 5, 10])
def test_threshold_of_the_penalty(n_parties):
    threshold = (3 * n_parties - 4) / 2
    for factor, converges in ((0.9, False), (1.1, True)):
        radius = np.abs(np.linalg.eigvals(round_matrix(n_parties, factor * threshold))).max()
        assert bool(radius < 1.0) is converges


def test_theorem_1_of_the_paper_fails_at_its_own_penalty():
    r, n_parties = 2.0, 3
    # Assumption 1.2 with sigma_min = sigma_max = 1, L = 1: all of it holds
    assert r * 1.0 >= 2.0 * 1.0
    assert r * (r + 1.0) > 2.0
    assert r >= 1.0
    growth = np.abs(np.linalg.eigvals(round_matrix(n_parties, r))).max()
    assert growth == pytest.approx(1.2152, abs=1e-4)
    solver = Solver(copies(n_parties), SolverOptions(scheme="jacobi", penalty=r, n_threads=1))
    residuals = [solver.round().primal_residual for _ in range(30)]
    assert residuals[-1] / residuals[-2] == pytest.approx(growth, rel=1e-3)


def test_a_larger_penalty_makes_the_example_converge():
    solver = Solver(copies(3), SolverOptions(scheme="jacobi", penalty=3.0, n_threads=1))
    residuals = [solver.round().primal_residual for _ in range(60)]
    assert residuals[-1] < 1e-3 * residuals[0]


@pytest.mark.parametrize("scheme", ["sharing", "subspace"])
@pytest.mark.parametrize("n_parties", [2, 3, 10])
def test_schemes_with_a_guarantee_converge_on_it(scheme, n_parties):
    solver = Solver(copies(n_parties), SolverOptions(scheme=scheme, n_threads=1))
    for _ in range(60):
        record = solver.round()
    # one sample and almost no ridge: the optimum is almost zero, so the absolute gap is the measure
    assert record.gap_absolute < 1e-6
