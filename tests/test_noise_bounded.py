"""Sharing stays bounded under noise of any size on the messages; the bounds are those of docs/theory.md."""

import numpy as np
import pytest
from fastadmm.problem.problem import make_problem
from fastadmm.solver.solver import Solver, SolverOptions


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
