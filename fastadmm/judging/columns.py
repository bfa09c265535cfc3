"""Columns by themselves: how much they repeat each other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Array = np.ndarray

#: Eigenvalues of a correlation matrix below this, times its size, are taken for rounding.
_ROUNDING = 1e-12


def correlations(covariance: Array) -> Array:
    """Correlation matrix; rows and columns of constants are NaN.

    Shapes: covariance (d, d).
    """
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
