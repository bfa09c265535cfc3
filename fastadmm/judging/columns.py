"""Columns by themselves: how much they repeat each other, and how far they move between sets of rows."""

from __future__ import annotations

import numpy as np

Array = np.ndarray


def correlations(covariance: Array) -> Array:
    """Correlation matrix; rows and columns of constants are NaN. Shapes: covariance (d, d)."""
    diagonal = np.diag(covariance)
    with np.errstate(invalid="ignore", divide="ignore"):
        scale = np.where(diagonal > 0.0, 1.0 / np.sqrt(diagonal), np.nan)
    return np.asarray(covariance * scale * scale[:, np.newaxis])


#: What an empty bin counts as, in rows, so that its logarithm exists.
_EMPTY = 0.5


def bin_edges(values: Array, count: int = 10) -> Array:
    """Upper edges of bins that hold equal shares of a reference, or one value each of a few.

    What lies below or above the reference, or between its few values, has bins of its own.

    Shapes: values (N,).
    """
    levels, rows = np.unique(values, return_counts=True)
    if len(levels) <= count:
        return np.unique([np.nextafter(levels, -np.inf), levels])
    mass = np.cumsum(rows)
    wanted = mass[-1] * np.arange(1, count) / count
    inner = levels[np.searchsorted(mass, wanted * (1.0 - 1e-12))]
    return np.unique([np.nextafter(levels[0], -np.inf), *inner, levels[-1]])


def bin_weights(values: Array, edges: Array, weight: Array | None = None) -> Array:
    """Summed weight in each bin. Shapes: values, weight (N,)."""
    return np.bincount(np.searchsorted(edges, values, "left"), weight, minlength=len(edges) + 1).astype(float)


def stability_index(reference: Array, new: Array) -> float:
    """Population stability index: Σ (p - q) ln(p / q) of the shares of two sets of rows in the same bins.

    Returns: 0 where the shares are equal. Rules of thumb: below 0.1 stable, above 0.25 shifted.
    """
    used = reference + new > 0.0
    p, q = (np.maximum(bins[used], _EMPTY) / bins.sum() for bins in (reference, new))
    shares = p / p.sum() - q / q.sum()
    return float(shares @ np.log(p * q.sum() / (q * p.sum())))
