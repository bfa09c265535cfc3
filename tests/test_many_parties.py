"""Fits of many parties: the same bits with any number of threads."""

import numpy as np
from fastadmm.problem.problem import make_problem
from fastadmm.solver.options import SolverOptions
from fastadmm.solver.solver import solve


def test_many_parties_have_the_same_bits_with_any_number_of_threads():
    parties, rng, n = 40, np.random.default_rng(5), 30_000
    own = [rng.standard_normal((n, 1 + 40 // parties)) for _ in range(parties)]
    given, found = make_problem(own, (sum(X[:, 0] for X in own) > 0.0).astype(float), lam=1e-3), []
    for threads in (1, 2):
        result = solve(given, SolverOptions(gap=1e-6, n_threads=threads))
        found.append([w.tobytes() for w in result.weights])
    assert found[0] == found[1]
