"""What the parties' metric and directions are allowed: its drift from the curvature, and their number."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.parties.masked_direction import MOST_AT_ONCE
from fastadmm.problem.problem import Problem

#: Samples whose curvature is a smaller share of the mean get this share.
_FLOOR = 1e-6

#: Root mean square of log(curvature / metric) beyond which the parties factorise again.
_METRIC_DRIFT = 0.5

#: Directions of all parties together: their small problems grow with the cube of it.
MOST_TOGETHER = 512

#: The same where classes have directions in common: columns of all parties times classes, at most.
MOST_IN_COMMON = 1024

#: Numbers of first answers that all parties send, of 8 bytes: a gigabyte.
_MOST_HELD = 1 << 27

#: Numbers that the messages of a party may hold, without being many.
_FEW_NUMBERS = 1 << 18


def directions_per_party(n_parties: int) -> int:
    """Most directions a party keeps; beyond it some are forgotten."""
    return max(8, min(64, MOST_TOGETHER // n_parties))


def first_of_sums(widths: Sequence[int], n_samples: int) -> int:
    """How many directions a first answer has where only sums are seen: of all columns, or none beyond usual.

    Each is a message of every party, and none can be added up before all have come.
    """
    n = sum(widths)
    return n if n <= MOST_AT_ONCE and n * len(widths) * n_samples <= _MOST_HELD else 0


def directions_of_sums(widths: Sequence[int], n_samples: int) -> int:
    """Most directions of all parties together where only sums are seen."""
    return max(directions_per_party(1), first_of_sums(widths, n_samples))


def directions_for_faces(n_parts: int, n_samples: int, smooth: bool = True) -> int:
    """Most directions a party keeps where weights are held: each that is held takes a dimension away.

    As many directions are needed as weights are free in the end: on wide data about as many as there are
    rows. Where rows are few, more of them cost little, and with fewer proposals lose what they had found.
    """
    if not smooth:
        return directions_for_kinks(n_parts, n_samples)
    return max(directions_per_party(n_parts), directions_of_few_numbers(n_parts, n_samples))


def all_at_once(widths: Sequence[int], n_samples: int, most: int | None) -> bool:
    """Whether parties whose weights are held answer the first gradient with directions of all columns.

    Where faces are cut out of a span of everything, far fewer rounds find the right one. ``most`` are the
    directions that a party may keep, where memory limits them.
    """
    widest, together = max(widths), sum(widths)
    few = widest <= MOST_AT_ONCE and together <= MOST_TOGETHER and together * n_samples <= _MOST_HELD
    return few and (most is None or widest <= most)


def directions_of_few_numbers(n_parts: int, n_samples: int) -> int:
    """Directions of a party that take little memory: 2 MB of messages, and not too many together."""
    return min(MOST_TOGETHER // n_parts, _FEW_NUMBERS // n_samples)


def in_common(problem: Problem) -> bool:
    """Whether the classes of a party have its directions in common.

    A direction that one class asks for helps the others, and soon a party's directions span all its columns.
    It has a coefficient of each class, so that there must not be too many columns times classes.
    """
    outputs, width = problem.n_outputs, sum(block.shape[1] for block in problem.blocks)
    everywhere = all(float(own.project(np.zeros(1))[0]) == 0.0 for own in problem.party_constraints)
    return outputs > 1 and everywhere and outputs * width <= MOST_IN_COMMON


def directions_for_kinks(n_parties: int, n_samples: int) -> int:
    """Most directions a party keeps for squared l2 and a loss with kinks.

    At the optimum about as many samples are at their kinks as there are weights: nothing less than all
    directions solves that, and what is forgotten is found again. Where caches hold them they cost little.
    """
    return max(directions_per_party(n_parties), min(MOST_TOGETHER // n_parties, _CACHED // n_samples))


def directions_for_few_rows(n_parties: int, n_samples: int) -> int:
    """Most directions a party keeps for squared l2 and fewer rows than columns.

    The coordinator learns of the features what the directions hold of all gradients so far, and needs as
    many of these as the features' spectrum has turns, with rows few at most as many as rows.
    """
    few = min(_MOST_OF_FEW_ROWS // n_parties, _CACHED // n_samples, n_samples)
    return max(directions_per_party(n_parties), few)


#: Directions of all parties together where rows are few.
_MOST_OF_FEW_ROWS = 1024

#: Numbers of all messages that caches hold, which cost little.
_CACHED = 1 << 21


def drift_share(
    curvature: np.ndarray, metric: np.ndarray | None, usual: float, engine: Engine, n_outputs: int = 1
) -> tuple[float, float]:
    """How far the curvature has drifted from the metric, as a share of what is allowed; and its mean.

    Shapes: curvature (N,) or (C N,).
    """
    from fastadmm.kernels.metric_drift import metric_drift

    n = len(curvature) // n_outputs
    if metric is None or not usual > 0.0:
        totals = engine.total(curvature if n_outputs == 1 else curvature.reshape(n_outputs, -1))
        return math.inf, float(np.sum(totals)) / n_outputs / engine.all_rows(n)
    classes, floor = zip(curvature.reshape(n_outputs, -1), metric.reshape(n_outputs, -1)), _FLOOR * usual
    parts = [engine.kernel_parts(metric_drift, engine.leaves(n), (3,), *own, floor) for own in classes]
    squares, weights, total = np.sum(engine.together(*parts), axis=0).tolist()
    return math.sqrt(squares / weights) / _METRIC_DRIFT, total / n_outputs / engine.all_rows(n)


def raised(curvature: np.ndarray, mean: float, engine: Engine) -> np.ndarray:
    """A curvature of shape (N,) or (C N,) as a metric: raised in place to a small share of a usual one."""
    return engine.each(np.maximum, curvature, _FLOOR * mean, out=curvature)
