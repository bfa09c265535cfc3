"""What the parties' metric and directions are allowed: its drift from the curvature, and their number."""

from __future__ import annotations

import math

import numpy as np

from fastadmm.engine.engine import Engine

__all__ = ["directions_per_party", "drift_share"]

#: Samples whose curvature is a smaller share of the mean get this share.
_CURVATURE_FLOOR = 1e-6

#: Root mean square of log(curvature / metric) beyond which the parties factorise again.
_METRIC_DRIFT = 0.5


def directions_per_party(n_parties: int) -> int:
    """Most directions a party keeps; beyond it some are merged or forgotten."""
    return max(8, min(64, 512 // n_parties))


def drift_share(
    curvature: np.ndarray, mean: float, metric: np.ndarray | None, engine: Engine, n_outputs: int = 1
) -> float:
    """How far the curvature has drifted from the metric, as a share of what is allowed.

    Parameters
    ----------
    curvature : ndarray of shape (N,) or (C N,)
        Raised in place to a small share of ``mean``.
    mean : float
        Positive; what counts as a usual curvature.
    metric : ndarray of the same shape, or None
        Infinitely far where there is none yet.
    engine : Engine
    n_outputs : int
        C.
    """
    from fastadmm.kernels.metric_drift import metric_drift

    floor = _CURVATURE_FLOOR * mean
    if metric is None:
        np.maximum(curvature, floor, out=curvature)
        return math.inf
    classes = zip(curvature.reshape(n_outputs, -1), metric.reshape(n_outputs, -1))
    ranges = engine.leaves(len(curvature) // n_outputs)
    parts = [engine.kernel_parts(metric_drift, ranges, (2,), *own, floor) for own in classes]
    squares, weights = np.sum(engine.together(*parts), axis=0)
    return math.sqrt(squares / weights) / _METRIC_DRIFT
