"""Slow and obvious twins of the multinomial kernels: one sample at a time, from the formulas."""

import math

import numpy as np

Array = np.ndarray


def probabilities(z: Array) -> Array:
    """``exp(z) / sum(exp(z))`` of one sample."""
    e = np.exp(z - z.max())
    return e / math.fsum(e)


def value(z: Array, label: int) -> float:
    """``log(sum(exp(z))) - z[label]`` of one sample."""
    return float(z.max() - z[label]) + math.log(math.fsum(np.exp(z - z.max())))


def gradient(z: Array, label: int) -> Array:
    """``p - onehot``, the label's entry as minus the others."""
    g = probabilities(z)
    g[label] = -math.fsum(np.delete(g, label))
    return g


def hessian(z: Array) -> Array:
    """``diag(p) - p p'``."""
    p = probabilities(z)
    return np.diag(p) - np.outer(p, p)


def conjugate(u: Array, label: int, s: float) -> float:
    """``s sum(p log p)`` at ``p = onehot + u / s``."""
    p = (np.arange(len(u)) == label) + u / s
    if (p < -1e-15).any() or abs(p.sum() - 1) > 1e-9:
        return math.inf
    return s * math.fsum(x * math.log(x) for x in p if x > 0)
