"""The reference kernel: not ours, timed beside every section, so that runs can be compared."""

from __future__ import annotations

import statistics
import time
from functools import cache

import numpy as np


@cache
def _operands() -> tuple[object, np.ndarray, np.ndarray]:
    import scipy.sparse as sp

    rng = np.random.default_rng(0)
    matrix = sp.random_array((1 << 16, 200), density=0.1, format="csr", rng=rng)
    return matrix, rng.normal(size=200), rng.normal(size=1 << 20)


def reference_call() -> float:
    """A SciPy product with 1.3 million non-zeros, and a million exponentials, on one thread."""
    matrix, x, v = _operands()
    return float(np.sum(matrix @ x)) + float(np.sum(np.exp(-np.abs(v))))  # type: ignore[operator]


def reference_seconds(repeats: int = 15) -> float:
    """Median seconds of :func:`reference_call`."""
    reference_call()
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        reference_call()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)
