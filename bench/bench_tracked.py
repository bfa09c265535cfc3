"""Timings followed over time (``make bench-compare``): kernels, rounds of every scheme, fits of every kind.

All data are generated, so that anybody can repeat it, and everything runs on one thread.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from datasets import synthetic

ROWS = 1 << 17


@pytest.mark.benchmark(group="kernels")
@pytest.mark.parametrize("what", ["value and gradient", "proximal operator", "normals"])
def bench_kernel(in_turns, what):
    from fastadmm.kernels.gaussian_noise import standard_normal
    from fastadmm.kernels.logistic import logistic

    rng = np.random.default_rng(0)
    v, y, out = 3.0 * rng.normal(size=ROWS), (rng.random(ROWS) < 0.3) * 1.0, np.empty(ROWS)
    weight, shift, z = np.ones(ROWS), np.zeros(ROWS), np.zeros(ROWS)
    key, nonce = np.arange(8, dtype=np.uint32), np.arange(3, dtype=np.uint32)
    calls = {
        "value and gradient": lambda: logistic.evaluate(v, y, weight, (), out, 0, ROWS),
        "proximal operator": lambda: logistic.prox(v, shift, y, weight, (), 0.05, z, out, 0, ROWS),
        "normals": lambda: standard_normal(key, nonce, out, 0, ROWS),
    }
    in_turns(calls[what], rounds=25)


@pytest.mark.benchmark(group="products")
@pytest.mark.parametrize("kind", ["sparse", "dense"])
@pytest.mark.parametrize("transposed", [False, True], ids=["D x", "D' v"])
def bench_product(in_turns, kind, transposed):
    from fastadmm.blocks.block import as_block
    from fastadmm.engine.engine import Engine

    rng = np.random.default_rng(0)
    n = ROWS if kind == "sparse" else ROWS // 8
    matrix = sp.random_array((n, 200), density=0.1, format="csr", rng=rng)
    block = as_block(matrix if kind == "sparse" else matrix.toarray())
    engine, v = Engine(1), rng.normal(size=n if transposed else 200)
    product = block.transposed_product if transposed else block.product
    in_turns(lambda: product(v, engine), rounds=25)


@pytest.fixture(scope="module")
def sparse():
    """Four sparse parties, 100,000 rows."""
    return synthetic(100_000)


@pytest.mark.benchmark(group="one round, 2 million non-zeros")
@pytest.mark.parametrize("scheme", ["subspace", "sharing", "jacobi", "gauss-seidel"])
def bench_round(in_turns, sparse, scheme):
    from fastadmm import make_problem
    from fastadmm.solver.solver import Solver, SolverOptions

    problem = make_problem(sparse.blocks, sparse.y, lam=1e-4, fit_intercept=False)

    def prepared():
        solver = Solver(problem, SolverOptions(scheme=scheme, gap=0.0))
        solver.prepare()
        solver.round()
        return solver

    in_turns(lambda solver: solver.round(), setup=prepared, rounds=7)


FITS = {
    "logistic": {"lam": 1e-4},
    "logistic, intercept": {"lam": 1e-4, "fit_intercept": True},
    "logistic l1": {"lam": 1e-3, "regularizer": "l1"},
    "logistic group lasso": {"lam": 1e-3, "regularizer": "group_lasso"},
    "squared": {"lam": 1e-3, "loss": "squared"},
    "lasso": {"lam": 1e-2, "loss": "squared", "regularizer": "l1"},
    "poisson": {"lam": 1e-3, "loss": "poisson"},
    "hinge": {"lam": 1e-2, "loss": "hinge"},
    "multinomial": {"lam": 1e-3, "loss": "multinomial"},
}


@pytest.mark.benchmark(group="fits to 1e-6, 10,000 rows")
@pytest.mark.parametrize("kind", FITS)
def bench_fit(benchmark, in_turns, kind):
    from fastadmm import SolverOptions, make_problem, solve

    options = {"fit_intercept": False, **FITS[kind]}
    rng = np.random.default_rng(0)
    # Columns of different parties are correlated by what they have in common.
    common = rng.normal(size=(10_000, 3))
    X = rng.normal(size=(10_000, 40)) + common @ rng.normal(size=(3, 40))
    z = X @ rng.normal(size=40) / 8.0
    y = {
        "squared": z + rng.normal(size=len(z)),
        "poisson": rng.poisson(np.exp(np.clip(z, -3, 3))).astype(float),
        "multinomial": np.digitize(z + rng.normal(size=len(z)), [-1.0, 0.0, 1.0]).astype(float),
    }.get(options.get("loss", ""), (z + rng.logistic(size=len(z)) > 0.0) * 1.0)
    blocks = [X[:, :15], X[:, 15:30], X[:, 30:]]

    result = in_turns(
        lambda: solve(make_problem(blocks, y, **options), SolverOptions(max_rounds=300)), rounds=5
    )
    assert result.gap <= 1e-6
    benchmark.extra_info["rounds"] = len(result.history)
