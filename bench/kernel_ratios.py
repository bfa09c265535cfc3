"""Time of each kernel on one thread over that of what a user would call instead, measured in turn.

Run it with ``python bench/kernel_ratios.py`` on an otherwise idle machine: both
sides of a ratio are called alternately, so that what disturbs one disturbs both.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
import scipy.sparse as sp

N, WIDTH, PER_ROW = 1 << 17, 200, 20


def ratio(ours: Callable[[], object], theirs: Callable[[], object], repeats: int = 9) -> tuple[float, float]:
    """Median seconds of both sides, called in turn; the first call of each (compilation) is not counted."""
    times: tuple[list[float], list[float]] = ([], [])
    for k in range(repeats + 1):
        for side, function in enumerate((ours, theirs)):
            begin = time.perf_counter()
            function()
            if k:
                times[side].append(time.perf_counter() - begin)
    return statistics.median(times[0]), statistics.median(times[1])


def cases() -> list[tuple[str, str, int, Callable[[], object], Callable[[], object]]]:
    """Name, peer, number of items, our call, the peer's call."""
    from fastadmm.blocks.block import CSRBlock
    from fastadmm.engine.engine import Engine
    from fastadmm.kernels.gaussian_noise import standard_normal
    from fastadmm.kernels.log_link import poisson
    from fastadmm.kernels.logistic import logistic
    from scipy.special import expit, wrightomega

    rng = np.random.default_rng(0)
    matrix = sp.random_array((N, WIDTH), density=PER_ROW / WIDTH, format="csr", rng=rng)
    block, engine = CSRBlock(matrix), Engine(1)
    weight, x, v = rng.random(N), rng.normal(size=WIDTH), 3.0 * rng.normal(size=N)
    label, count = (rng.random(N) < 0.3) * 1.0, rng.poisson(2.0, N) * 1.0
    one, zero, z, gradient = np.ones(N), np.zeros(N), np.zeros(N), np.empty(N)
    key, nonce = np.arange(8, dtype=np.uint32), np.arange(3, dtype=np.uint32)

    def cold(kernel: Callable[..., object], target: np.ndarray) -> Callable[[], object]:
        def call() -> None:
            z[:] = 0.0
            kernel(v, zero, target, one, (), 0.05, z, gradient, 0, N)

        return call

    def newton() -> None:
        """Five Newton steps in NumPy: right only for samples that need no safeguard."""
        p = np.zeros(N)
        for _ in range(5):
            mean = expit(p)
            p -= (p - v + (mean - label) / 0.05) / (1.0 + mean * (1.0 - mean) / 0.05)

    def omega() -> None:
        wrightomega(v + count / 0.05 - np.log(0.05))

    def value() -> None:
        np.subtract(expit(v), label, out=gradient)
        np.sum(np.logaddexp(0.0, v) - label * v)

    def weighted_gram() -> None:
        (matrix.T @ (sp.diags_array(weight) @ matrix)).toarray()

    nnz = matrix.nnz
    return [
        ("CSR product", "SciPy", nnz, lambda: block.product(x, engine), lambda: matrix @ x),
        (
            "CSR transposed product",
            "SciPy",
            nnz,
            lambda: block.transposed_products([v], engine),
            lambda: matrix.T @ v,
        ),
        ("CSR weighted Gram matrix", "SciPy", nnz, lambda: block.gram(engine, weight), weighted_gram),
        ("logistic loss", "NumPy", N, lambda: logistic.evaluate(v, label, one, (), gradient, 0, N), value),
        ("logistic prox, cold", "NumPy", N, cold(logistic.prox, label), newton),
        ("poisson prox", "scipy.special", N, cold(poisson.prox, count), omega),
        (
            "standard normals",
            "NumPy",
            N,
            lambda: standard_normal(key, nonce, gradient, 0, N),
            lambda: np.random.default_rng(0).standard_normal(out=gradient),
        ),
    ]


def main() -> None:
    """Print one line per kernel."""
    print(f"{'kernel':26} {'ns per item':>12} {'peer':>14} {'ns per item':>12} {'ratio':>7}")
    for name, peer, items, ours, theirs in cases():
        a, b = ratio(ours, theirs)
        print(f"{name:26} {a / items * 1e9:12.2f} {peer:>14} {b / items * 1e9:12.2f} {a / b:7.2f}")


if __name__ == "__main__":
    main()
