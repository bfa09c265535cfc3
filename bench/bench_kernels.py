"""Kernels on one core, beside what a user would call instead."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import expit

N = 1 << 17


@pytest.fixture(scope="module")
def samples():
    """Centres, targets, weights, offsets, and space for results."""
    rng = np.random.default_rng(0)
    v = 3.0 * rng.normal(size=N)
    return v, (rng.random(N) < 0.3) * 1.0, np.ones(N), np.zeros(N), np.empty(N)


@pytest.mark.benchmark(group="logistic value and gradient")
@pytest.mark.parametrize("who", ["fastadmm", "numpy"])
def bench_logistic_evaluate(benchmark, samples, who):
    from fastadmm.kernels.logistic import logistic

    z, y, weight, _, gradient = samples

    def ours():
        return logistic.evaluate(z, y, weight, (), gradient, 0, N)

    def theirs():
        np.subtract(expit(z), y, out=gradient)
        return float(np.sum(np.logaddexp(0.0, z) - y * z))

    value = benchmark(ours if who == "fastadmm" else theirs)
    assert value == pytest.approx(theirs(), rel=1e-12)


@pytest.mark.benchmark(group="logistic proximal operator")
@pytest.mark.parametrize("start", ["cold", "warm"])
def bench_logistic_prox(benchmark, samples, start):
    from fastadmm.kernels.logistic import logistic

    v, y, weight, shift, gradient = samples
    z = np.zeros(N)
    logistic.prox(v, shift, y, weight, (), 0.05, z, gradient, 0, N)

    def call():
        if start == "cold":
            z[:] = 0.0
        logistic.prox(v, shift, y, weight, (), 0.05, z, gradient, 0, N)

    benchmark(call)
    np.testing.assert_allclose(gradient, expit(z) - y, atol=1e-12)


@pytest.mark.benchmark(group="sparse product, 20 of 200 per row")
@pytest.mark.parametrize("who", ["fastadmm", "scipy"])
@pytest.mark.parametrize("transposed", [False, True], ids=["D x", "D' v"])
def bench_sparse_product(benchmark, who, transposed):
    from fastadmm.blocks.block import CSRBlock
    from fastadmm.engine.engine import Engine

    rng = np.random.default_rng(0)
    matrix = sp.random_array((N, 200), density=0.1, format="csr", rng=rng)
    block, engine = CSRBlock(matrix), Engine(1)
    x = rng.normal(size=N if transposed else 200)
    if who == "scipy":
        result = benchmark((lambda: matrix.T @ x) if transposed else (lambda: matrix @ x))
    else:
        product = block.transposed_product if transposed else block.product
        result = benchmark(lambda: product(x, engine))
    np.testing.assert_allclose(result, matrix.T @ x if transposed else matrix @ x, atol=1e-9)


@pytest.mark.benchmark(group="standard normals")
@pytest.mark.parametrize("who", ["fastadmm", "numpy"])
def bench_standard_normal(benchmark, who):
    from fastadmm.kernels.gaussian_noise import standard_normal

    key, nonce, out = np.arange(8, dtype=np.uint32), np.arange(3, dtype=np.uint32), np.empty(N)
    rng = np.random.default_rng(0)
    if who == "numpy":
        benchmark(lambda: rng.standard_normal(out=out))
    else:
        benchmark(lambda: standard_normal(key, nonce, out, 0, N))
    assert out.std() == pytest.approx(1.0, abs=0.01)
