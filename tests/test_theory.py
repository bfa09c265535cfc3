"""Docs/theory.md: the counter-example to the paper's theorems, and bounds under noise."""

import numpy as np
import pytest
from fastadmm.problem.problem import make_problem
from fastadmm.solver.solver import Solver, SolverOptions


def round_matrix(n_parties, r):
    """One round of Algorithm 1 on (S - 1, z - 1): one sample, D_m = 1, loss (z - 1)^2 / 2, no ridge."""
    m = float(n_parties)
    total = np.array([1.0 - m, m * (1.0 - 1.0 / r)])
    return np.array([total, (np.array([0.0, 1.0]) + r * total) / (1.0 + r)])


def copies(n_parties, lam=1e-9):
    """The example; with a target, so that zero, where rounds begin, is not already the answer."""
    blocks = [np.ones((1, 1)) for _ in range(n_parties)]
    return make_problem(blocks, np.array([1.0]), loss="squared", lam=lam, fit_intercept=False)


@pytest.mark.parametrize("n_parties", [2, 3, 5, 10])
def test_threshold_of_the_penalty(n_parties):
    threshold = (3 * n_parties - 4) / 2
    for factor, converges in ((0.9, False), (1.1, True)):
        radius = np.abs(np.linalg.eigvals(round_matrix(n_parties, factor * threshold))).max()
        assert bool(radius < 1.0) is converges


def test_theorems_1_and_2_of_the_paper_fail_at_their_own_penalty():
    r, n_parties = 2.0, 3
    # Assumption 1.2 with sigma_min = sigma_max = 1, L = 1: all of it holds
    assert r * 1.0 >= 2.0 * 1.0
    assert r * (r + 1.0) > 2.0
    assert r >= 1.0
    growth = np.abs(np.linalg.eigvals(round_matrix(n_parties, r))).max()
    assert growth == pytest.approx(1.2152, abs=1e-4)
    solver = Solver(copies(n_parties), SolverOptions(scheme="jacobi", penalty=r, n_threads=1))
    records = [solver.round() for _ in range(30)]
    assert records[-1].primal_residual / records[-2].primal_residual == pytest.approx(growth, rel=1e-3)
    # Theorem 2: V falls below every eps; here it never comes below its first value again
    assert min(record.lyapunov for record in records) == records[0].lyapunov > 0.1


# --- sharing under noise of any size
@pytest.mark.parametrize("loss", ["logistic", "hinge"])
@pytest.mark.parametrize("size", [1.0, 1e6, 1e12])
def test_the_state_is_bounded_by_the_noise_of_one_round(loss, size):
    rng = np.random.default_rng(4)
    blocks = [rng.standard_normal((60, d)) for d in (3, 5, 2)]
    y = (blocks[0][:, 0] + rng.standard_normal(60) > 0).astype(float)
    problem = make_problem(blocks, y, loss=loss, lam=1e-3, constraint="ball:2", fit_intercept=False)
    options = SolverOptions(scheme="sharing", penalty=0.1, acceleration="none", gap=0, n_threads=1)
    solver = Solver(problem, options)
    solver.prepare()
    noise_norms = [0.0] * len(blocks)

    def noised(m, step):
        def answer(w, scaled_penalty):
            noise, made = size * rng.standard_normal(60), step(w, scaled_penalty)
            noise_norms[m] = float(np.linalg.norm(noise))
            return {**made, "message": made["message"] + noise}

        return answer

    for m, party in enumerate(solver.parties):
        party.step = noised(m, party.step)
    reach = [2.0 * np.linalg.norm(block, 2) for block in blocks]
    slope = np.sqrt(60.0)
    for _ in range(150):
        solver.round()
        state = solver.coordinator.last
        for party, limit in zip(solver.parties, reach):
            assert np.linalg.norm(party.block.matrix @ party.weights) <= limit * (1 + 1e-12)
        assert np.linalg.norm(state.u) <= slope * (1 + 1e-12)
        most = sum(reach) + sum(noise_norms) + 2.0 * slope / 0.1
        assert np.linalg.norm(state.z) <= most * (1 + 1e-9)
    solver.close()
