"""The table of other directions and bounds is what its script makes of the measurements."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from fastadmm.engine.engine import Engine
from fastadmm.problem.problem import make_problem
from fastadmm.solver.solver import SolverOptions, solve

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def bench() -> ModuleType:
    path = list(sys.path)
    spec = importlib.util.spec_from_file_location("bench_directions", ROOT / "bench" / "directions.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.path[:] = path
    return module


def test_page_is_made_of_the_measurements(bench: ModuleType) -> None:
    measured = json.loads(bench.MEASURED.read_text(encoding="utf-8"))
    assert f"{bench.BEGIN}\n{bench.block(measured)}\n{bench.END}" in bench.PAGE.read_text(encoding="utf-8")
    assert len(measured["cases"]) == 40


def small():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(300, 24)) @ np.diag(np.logspace(0.5, -1, 24)) @ rng.normal(size=(24, 24))
    y = (X @ rng.normal(size=24) + 5 * rng.normal(size=300) > 0) * 1.0
    return make_problem([X[:, :10], X[:, 10:]], y, lam=1e-4, fit_intercept=False)


def test_the_default_variant_is_the_scheme_itself(bench: ModuleType) -> None:
    problem = small()
    with Engine(1) as engine:
        rounds = bench.rounds_needed(problem, engine)
        exact = bench.rounds_needed(problem, engine, exact=True)
    assert (
        rounds
        == exact
        == len(solve(problem, SolverOptions(scheme="subspace", gap=1e-6, directions="one")).history)
    )


def test_a_combination_of_gradients_bounds_the_optimum_better_than_each(bench: ModuleType) -> None:
    problem = small()
    optimum = solve(problem, SolverOptions(gap=1e-11)).history[-1].objective * problem.n_samples
    rng = np.random.default_rng(0)
    with Engine(1) as engine:
        D = np.vstack([block.matrix_product(np.eye(block.shape[1]), engine) for block in problem.blocks]).T
    weights = solve(problem, SolverOptions(gap=1e-3)).weights
    points = [np.concatenate(weights) * (1 + 0.05 * rng.normal(size=24)) for _ in range(3)]
    U = np.stack([1 / (1 + np.exp(-D @ x)) - problem.y for x in points])
    Y = U @ D
    best = bench.best_combination(U, Y @ Y.T, problem)
    single = max(bench.dual_value(u, float(v @ v), problem) for u, v in zip(U, Y))
    assert single < best <= optimum * (1 + 1e-10)
