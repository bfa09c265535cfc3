"""Whether a run that another process could have resumed ends as one that was never stopped."""

import numpy as np
from fastadmm import SolverOptions
from fastadmm.problem.problem import Problem
from fastadmm.solver.solver import Solver


def assert_resumed_is_the_same(given: Problem, options: SolverOptions, rounds: int, after: int = 3) -> Solver:
    """Stop after some rounds, go on with what was saved, and compare records and weights to the bit.

    The solver that was never stopped is returned.
    """
    straight, resumed = Solver(given, options), Solver(given, options)
    for _ in range(rounds):
        straight.round()
    resumed.restore(straight.export(), straight.export_parties())
    for _ in range(after):
        a, b = straight.round(), resumed.round()
        assert (a.objective, a.gap) == (b.objective, b.gap)
    for x, y in zip(straight.party_weights(), resumed.party_weights(), strict=True):
        np.testing.assert_array_equal(x, y)
    np.testing.assert_array_equal(straight.intercept, resumed.intercept)
    return straight
