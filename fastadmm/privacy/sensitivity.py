r"""How far one record can move a message: the bounds that noise is scaled to.

A party answers a public target w with :math:`m = A x^*`,

.. math:: x^* = \arg\min_{\|x\| \le B} \tfrac12\|A x - w\|^2 + R(x), \qquad |w_i| \le W,
          \qquad \|a_i\| \le 1,

R convex with modulus :math:`\mu`, and may clip each entry to [-b, b]. Each function here is one
theorem of ``docs/privacy.md``, with formula and proof there; tests search for counter-examples.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from fastadmm.errors import ConfigError
from fastadmm.parties.xupdate.choose import MAX_EIGEN_SIDE
from fastadmm.settings.privacy import MessagePrivacy

#: Certified error of a solver that every message allows for, at least.
_LEAST_SLACK = 1e-6

#: Relative margin over rounding in the bounds' own evaluation.
_MARGIN = 1.0 + 1e-12


@dataclass(frozen=True)
class Sensitivity:
    r"""A proved bound on the l2 change of one release."""

    value: float  # :math:`\Delta`
    theorem: str  # which bound was the smallest: ``"T1"`` to ``"T4"``


def _least(*bounds: tuple[float, str]) -> Sensitivity:
    """The smallest bound, with its theorem."""
    value, theorem = min(bounds, key=lambda bound: bound[0])
    return Sensitivity(value * _MARGIN, theorem)


def zero_out_sensitivity(
    ball: float, target: float, mu: float = 0.0, clip: float | None = None
) -> Sensitivity:
    """Of a record set to zero: ``docs/privacy.md#t1-zero-out``, ``docs/privacy.md#t3-clipped-messages``."""
    _check(ball, target, mu, clip)
    excess = max(target - ball, 0.0)
    t = 2.0 * ball if mu == 0.0 else min(2.0 * ball, excess / (2.0 * mu))
    bounds = [(math.sqrt(ball * ball + excess * t - mu * t * t), "T1")]
    if clip is not None:
        bounds.append((math.hypot(clip, (target + ball) / (2.0 * math.sqrt(1.0 + mu))), "T3"))
    return _least(*bounds)


def replace_one_sensitivity(
    ball: float, target: float, mu: float = 0.0, clip: float | None = None
) -> Sensitivity:
    """Of any other record: ``docs/privacy.md#t2-replace-one``, ``docs/privacy.md#t3-clipped-messages``."""
    _check(ball, target, mu, clip)
    corners = max(2.0 * ball * ball + 2.0 * ball * max(ball, target), 4.0 * ball * (target - ball))
    bounds = [(min(math.sqrt(corners), 2.0 * zero_out_sensitivity(ball, target, mu).value), "T2")]
    if clip is not None:
        others = (target + ball) ** 2 / (1.0 + mu)
        if mu > 0.0:
            c = (math.sqrt(target * target + 8.0 * ball * ball) - target) / (4.0 * ball)
            others = min(others, (target + ball * c) ** 2 * (1.0 - c * c) / mu)
        bounds.append((math.sqrt(4.0 * clip * clip + others), "T3"))
    return _least(*bounds)


def column_sensitivity(move: float, target_norm: float, mu: float, ball: float | None = None) -> Sensitivity:
    """Message change when A moves by at most U in spectral norm, l2 only: ``docs/privacy.md#t4-one-column``.

    This protects a small move: not a person, and not a feature.
    """
    if not (move >= 0.0 and target_norm >= 0.0 and mu > 0.0 and (ball is None or ball > 0.0)):
        raise ConfigError("column sensitivity: mu and the ball must be positive, the norms not negative")
    if ball is None:
        value = 3.0 * math.sqrt(3.0) / 8.0 * move * target_norm / math.sqrt(mu)
    else:
        x = min(ball, target_norm / (2.0 * math.sqrt(mu)))
        value = 0.5 * move * (x + math.sqrt(x * x + target_norm * target_norm / mu))
    return _least((min(value, target_norm), "T4"))


def solver_error(residual_norm: float, mu: float) -> float:
    """Certified error of a computed x-update: ``docs/privacy.md#t6-inexact-solver``."""
    return residual_norm / (2.0 * math.sqrt(mu))


def solver_slack(settings: MessagePrivacy, mu: float, n_samples: int) -> float:
    """What a message may be off, known before any data: ``docs/privacy.md#t6-inexact-solver``."""
    ball, target = settings.ball, settings.clip_of_targets
    size = n_samples * (ball + target) + mu * ball
    return max(_LEAST_SLACK, 2.0**-53 * (n_samples + 4 * MAX_EIGEN_SIDE) * size / math.sqrt(mu))


def weights_sensitivity(ball: float, target: float, mu: float, adjacency: str = "replace_one") -> Sensitivity:
    """How far one record can move the local weights: ``docs/privacy.md#t7-the-local-model``."""
    _check(ball, target, mu, None)
    shrunk = 1.0 + mu if mu >= 1.0 else 2.0 * math.sqrt(mu)
    one = (target + ball) / shrunk if mu > 0.0 else math.inf
    factor = 2.0 if adjacency == "replace_one" else 1.0
    return _least((min(factor * one, 2.0 * ball), "T7"))


def message_sensitivity(settings: MessagePrivacy, mu: float, n_samples: int) -> Sensitivity:
    """The bound that a run's settings ask for, slack included: ``docs/privacy.md#t6-inexact-solver``."""
    ball, target = settings.ball, settings.clip_of_targets
    if settings.adjacency == "replace_one":
        exact = replace_one_sensitivity(ball, target, mu, settings.message_clip)
    elif settings.adjacency == "zero_out":
        exact = zero_out_sensitivity(ball, target, mu, settings.message_clip)
    else:
        exact = column_sensitivity(1.0, target * math.sqrt(n_samples), mu, ball)
    # A solver may be off on both neighbours.
    return replace(exact, value=exact.value + 2.0 * solver_slack(settings, mu, n_samples))


def _check(ball: float, target: float, mu: float, clip: float | None) -> None:
    if not (0.0 < ball < math.inf and 0.0 <= target < math.inf and 0.0 <= mu < math.inf):
        raise ConfigError(
            f"sensitivity: ball {ball!r}, target clip {target!r}, mu {mu!r}: finite, the ball positive"
        )
    if clip is not None and not 0.0 < clip < math.inf:
        raise ConfigError(f"sensitivity: message clip {clip!r} must be positive and finite")


def clip_rows(matrix: Any, limit: float = 1.0, *, l1: bool = False) -> Any:
    r"""Rows of l2 (or l1) norm at most a limit, scaled down to it. Shapes: matrix, result (N, d)."""
    sparse = sp.issparse(matrix)
    rows: Any = sp.csr_array(matrix, dtype=float, copy=True) if sparse else np.asarray(matrix, dtype=float)
    sums = np.asarray((abs(rows) if l1 else rows * rows).sum(axis=1))
    excess = np.maximum((sums if l1 else np.sqrt(sums)) / limit, 1.0)
    if not sparse:
        return rows / excess[:, None]
    rows.data /= np.repeat(excess, np.diff(rows.indptr))
    return rows
