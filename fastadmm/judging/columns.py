"""Columns by themselves: how much they repeat each other, and how far they move between sets of rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Array = np.ndarray

#: Eigenvalues of a correlation matrix below this, times its size, are taken for rounding.
_ROUNDING = 1e-12


def correlations(covariance: Array) -> Array:
    """Correlation matrix; rows and columns of constants are NaN. Shapes: covariance (d, d)."""
    diagonal = np.diag(covariance)
    with np.errstate(invalid="ignore", divide="ignore"):
        scale = np.where(diagonal > 0.0, 1.0 / np.sqrt(diagonal), np.nan)
    return np.asarray(covariance * scale * scale[:, np.newaxis])


def variance_inflation(correlation: Array, groups: Sequence[Array]) -> Array:
    """How much the other columns inflate the variance of a column's weight.

    Of a column of numbers it is 1 / (1 - R²) of its regression on all others, with an intercept. Of a group
    of features, as the categories of one column, it is the generalised factor of Fox and Monette (1992) to
    the power 1 / number of features, which compares with the former.

    Returns: at least 1; infinite where a column is a combination of others; NaN of an empty group.
    Shapes: correlation (d, d).
    """
    values, vectors = np.linalg.eigh(correlation)
    null = values <= _ROUNDING * len(values)
    kept = vectors[:, ~null]
    inverse = (kept / values[~null]) @ kept.T
    caught = (vectors[:, null] ** 2).sum(axis=1) > 1e-9
    found = np.full(len(groups), np.nan)
    for k, own in enumerate(groups):
        if len(own) == 0:
            continue
        if caught[own].any():
            found[k] = np.inf
            continue
        at = np.ix_(own, own)
        factor = np.linalg.det(correlation[at]) * np.linalg.det(inverse[at])
        found[k] = max(factor, 1.0) ** (1.0 / len(own))
    return found


#: What an empty bin counts as, in rows, so that its logarithm exists.
_EMPTY = 0.5


def bin_edges(values: Array, weight: Array | None = None, count: int = 10) -> Array:
    """Upper edges of bins that hold equal shares of a reference, or one value each of a few.

    What lies below or above the reference, or between its few values, has bins of its own.

    Shapes: values, weight (N,).
    """
    counted = np.ones(len(values)) if weight is None else weight
    levels, at = np.unique(values[counted > 0.0], return_inverse=True)
    if len(levels) <= count:
        return np.unique([np.nextafter(levels, -np.inf), levels])
    mass = np.cumsum(np.bincount(at, counted[counted > 0.0]))
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
