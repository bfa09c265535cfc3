"""A round of the paper's algorithm as its authors say they ran it: SciPy for every subproblem.

Hu et al. (section VI): each party's x-update by ``scipy.optimize``'s L-BFGS-B,
the z-update one scalar minimisation per sample. Nothing is tuned.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

__all__ = ["prototype_round"]


def prototype_round(
    blocks: list[Any], y: np.ndarray, lam: float, penalty: float, samples: int | None = None
) -> float:
    """Seconds of the first round of Algorithm 1 from zero.

    Parameters
    ----------
    blocks : list of matrices, shape (N, d_m)
    y : ndarray of shape (N,)
        Labels 0/1.
    lam, penalty : float
        Lambda per mean loss, r in the summed scaling.
    samples : int, optional
        Do only so many of the N scalar minimisations, and multiply their time up.
    """
    from scipy.optimize import minimize, minimize_scalar

    n = len(y)
    z, u = np.zeros(n), y - 0.5
    begin = time.perf_counter()
    messages = []
    for block in blocks:

        def value(x: np.ndarray, block: Any = block) -> tuple[float, np.ndarray]:
            message = block @ x
            left = message - z
            f = 0.5 * n * lam * (x @ x) + u @ message + 0.5 * penalty * (left @ left)
            return f, n * lam * x + block.T @ (u + penalty * left)

        found = minimize(value, np.zeros(block.shape[1]), jac=True, method="L-BFGS-B")
        messages.append(block @ found.x)
    total = np.sum(messages, axis=0)
    seconds = time.perf_counter() - begin

    count = n if samples is None else min(samples, n)
    begin = time.perf_counter()
    for i in range(count):
        a, dual, label = total[i], u[i], y[i]
        z[i] = minimize_scalar(
            lambda t: np.logaddexp(0.0, t) - label * t - dual * t + 0.5 * penalty * (a - t) ** 2  # noqa: B023
        ).x
    return seconds + (time.perf_counter() - begin) * n / count
