"""Fits of many parties, and of wide ones: the same bits with any number of threads."""

import numpy as np
import scipy.sparse as sp
from fastadmm.problem.problem import make_problem
from fastadmm.solver.options import SolverOptions
from fastadmm.solver.solver import solve

N = 40_003


def test_many_parties_have_the_same_bits_with_any_number_of_threads():
    parties, rng, n = 40, np.random.default_rng(5), 30_000
    own = [rng.standard_normal((n, 1 + 40 // parties)) for _ in range(parties)]
    given, found = make_problem(own, (sum(X[:, 0] for X in own) > 0.0).astype(float), lam=1e-3), []
    for threads in (1, 2):
        result = solve(given, SolverOptions(gap=1e-6, n_threads=threads))
        found.append([w.tobytes() for w in result.weights])
    assert found[0] == found[1]


def problem(parties):
    rng = np.random.default_rng(4)
    own = [sp.random(N, 400, 0.01, format="csr", rng=rng) for _ in range(parties)]
    z = sum(X @ rng.standard_normal(400) for X in own)
    return make_problem(own, (z + rng.standard_normal(N) > 0.0).astype(float), lam=1e-3)


def test_a_fit_has_the_same_bits_with_any_number_of_threads():
    given, found = problem(3), []
    for threads in (1, 2, 8):
        options = SolverOptions(gap=1e-6, max_rounds=8, history=3, n_threads=threads)
        found.append(solve(given, options))
    for other in found[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(found[0].weights, other.weights))
        assert [r.gap for r in found[0].history] == [r.gap for r in other.history]
