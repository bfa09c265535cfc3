"""A round of every scheme, and the reference kernel that makes runs comparable."""

from __future__ import annotations

import pytest

from datasets import synthetic
from reference import reference_call


def bench_reference(benchmark):
    benchmark.group = "reference kernel"
    benchmark(reference_call)


@pytest.fixture(scope="module")
def problem():
    """Four sparse parties, 100,000 rows."""
    from fastadmm import make_problem

    dataset = synthetic(100_000)
    return make_problem(dataset.blocks, dataset.y, lam=1e-4, fit_intercept=False)


@pytest.mark.parametrize("scheme", ["subspace", "sharing", "jacobi", "gauss-seidel"])
def bench_round(benchmark, problem, scheme):
    from fastadmm.solver.solver import Solver, SolverOptions

    benchmark.group = "one round, 2 million non-zeros"

    def prepared():
        solver = Solver(problem, SolverOptions(scheme=scheme, gap=0.0))
        solver.prepare()
        solver.round()
        return (solver,), {}

    benchmark.pedantic(lambda solver: solver.round(), setup=prepared, rounds=7, warmup_rounds=1)
