"""Confidence intervals of what a test set measures; rows, not weights, are what chance draws."""

from __future__ import annotations

import numpy as np
from scipy.special import expit, logit, ndtri

Array = np.ndarray


def auc_interval(
    y: Array, score: Array, weight: Array, level: float = 0.95
) -> tuple[float, float, float] | None:
    """Interval of an AUC: DeLong's variance, on the scale of log odds.

    Without weights the variance is that of DeLong, DeLong and Clarke-Pearson (1988). With weights each row's
    part of the AUC counts by its weight (linearisation); a factor of all weights changes nothing.

    Shapes: y, score, weight (N,).
    """
    counted = weight > 0.0
    y, score, weight = y[counted], score[counted], weight[counted]
    one = y == 1.0
    if min(one.sum(), (~one).sum()) < 2:
        return None
    # Each row's share of the other class that it beats; ties count half.
    below = _share_below(score[one], score[~one], weight[~one])
    above = 1.0 - _share_below(score[~one], score[one], weight[one])
    area = float(weight[one] @ below / weight[one].sum())
    variance = _variance_of_mean(below, weight[one]) + _variance_of_mean(above, weight[~one])
    if not (0.0 < area < 1.0) or variance <= 0.0:
        return None
    error = float(np.sqrt(variance))
    half = ndtri(0.5 + 0.5 * level) * error / (area * (1.0 - area))
    return float(expit(logit(area) - half)), float(expit(logit(area) + half)), error


def _share_below(at: Array, values: Array, weight: Array) -> Array:
    order = np.argsort(values, kind="stable")
    values, sums = values[order], np.r_[0.0, np.cumsum(weight[order])]
    left, right = np.searchsorted(values, at, "left"), np.searchsorted(values, at, "right")
    return np.asarray(0.5 * (sums[left] + sums[right]) / sums[-1])


def _variance_of_mean(values: Array, weight: Array) -> float:
    n, share = len(values), weight / weight.sum()
    return float(np.sum((share * (values - share @ values)) ** 2) * n / (n - 1))


def rate_interval(rate: Array, effective: Array, level: float = 0.95) -> tuple[Array, Array]:
    """Wilson's interval of observed rates."""
    z = ndtri(0.5 + 0.5 * level)
    shrunk = 1.0 + z * z / effective
    middle = (rate + 0.5 * z * z / effective) / shrunk
    half = z / shrunk * np.sqrt(rate * (1.0 - rate) / effective + 0.25 * (z / effective) ** 2)
    return np.maximum(middle - half, 0.0), np.minimum(middle + half, 1.0)
