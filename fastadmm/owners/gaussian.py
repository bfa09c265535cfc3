"""Gaussian answers: noise on a lattice, and secret batches accounted by a library."""

from __future__ import annotations

import math
import os
from functools import lru_cache

import numpy as np

from fastadmm.errors import ConfigError
from fastadmm.privacy.accounting import noise_multiplier


@lru_cache(maxsize=256)
def batch_multiplier(epsilon: float, delta: float, rounds: int, n_records: int, size: int) -> float:
    r""":math:`\sigma / \Delta` of each of T answers on secret batches, drawn without replacement.

    Accounted by ``dp-accounting``: Renyi differential privacy of sampling without
    replacement under replacement of one record (Wang, Balle and Kasiviswanathan
    2019). Where that bound is worse than leaving the sampling out, the latter counts.
    """
    try:
        import dp_accounting
        from dp_accounting import rdp
    except ImportError:
        raise ConfigError(
            "batch: the accounting of batches needs dp-accounting; install it with: "
            "pip install 'fastadmm[privacy]'"
        ) from None
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE

    def event(multiplier: float) -> dp_accounting.DpEvent:
        answer = dp_accounting.SampledWithoutReplacementDpEvent(
            n_records, size, dp_accounting.GaussianDpEvent(multiplier)
        )
        return dp_accounting.SelfComposedDpEvent(answer, rounds)

    plain = noise_multiplier(epsilon, delta, rounds)
    orders = [*range(2, 33), *range(34, 65, 2), 80, 96, 128]

    def spent(multiplier: float) -> float:
        accountant = rdp.RdpAccountant(orders, relation)
        accountant.compose(event(multiplier))
        return float(accountant.get_epsilon(delta))

    if spent(plain) > epsilon:
        return plain
    from scipy.optimize import brentq

    # Sampling can at best divide the multiplier by the ratio of the sizes.
    low = 0.3 * plain * size / n_records
    if spent(low) <= epsilon:
        return low
    root = brentq(lambda m: math.log(spent(math.exp(m)) / epsilon), math.log(low), math.log(plain), xtol=1e-3)
    result = math.exp(root) * 1.002
    while spent(result) > epsilon:
        result *= 1.001
    return min(result, plain)


def gaussian_steps(scale: float, size: int) -> np.ndarray:
    """Gaussian noise of standard deviation `scale`, rounded to integers, int64 of shape (size,).

    The key is the operating system's and lives for this call alone, so that no
    part of the keystream can be used twice, nor be drawn again by a resumed run.
    """
    from fastadmm.kernels.gaussian_noise import grid_normal

    key = np.frombuffer(os.urandom(32), dtype=np.uint32)
    out = np.empty(size, dtype=np.int64)
    grid_normal(key, np.zeros(3, dtype=np.uint32), scale, out, 0, size)
    return out


def secret_batch(n_records: int, size: int) -> np.ndarray:
    """A uniform subset of the records as a mask of shape (n,), drawn from the operating system."""
    tickets = np.frombuffer(os.urandom(8 * n_records), dtype=np.uint64)
    mask = np.zeros(n_records, dtype=bool)
    mask[np.argpartition(tickets, size - 1)[:size]] = True
    return mask
