r"""Lower bound for any regulariser and set, from a dual vector and two scalars per party.

With :math:`h_m = \lambda W R_m + \mathrm{ind}_{X_m}`, Fenchel duality gives for every
:math:`\alpha` and every u in the domain of the conjugate loss (with an
intercept: summing to zero)

.. math:: \mathcal D(\alpha u) = \alpha \langle u, o\rangle - \sum_i (s_i \ell)^*(\alpha u_i)
          - \sum_m h_m^*(-\alpha D_m^\top u) \;\le\; W F^*.

Where neither a square nor a set bounds the weights, :math:`h_m^*` is finite
near zero only: parties report the largest scale first.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastadmm.conversation.exchange import Talk, ask_all
from fastadmm.engine.engine import Engine
from fastadmm.method.certificate import inner_parts, sums_to_zero
from fastadmm.problem.penalty import PartyPenalty
from fastadmm.problem.problem import Problem

Array = np.ndarray


@dataclass(frozen=True)
class DualShare:
    r"""What a party says about the gradient as a dual vector."""

    scale: float  # largest :math:`\alpha \le 1` for which :math:`h_m^*(-\alpha D_m^\top g)` is finite
    value: float
    at_zero: float
    free: float = 0.0

    @classmethod
    def read(cls, answer: Mapping[str, Any]) -> DualShare:
        """From a party's answer."""
        keys = "dual_scale", "dual_value", "dual_at_zero"
        scale, value, at_zero = (float(answer[key]) for key in keys)
        return cls(scale, value, at_zero, float(answer.get("dual_free", 0.0)))

    @classmethod
    def proved(cls, penalty: PartyPenalty, pull: Array) -> DualShare:
        r"""What is proved by :math:`-D_m^\top g`, of shape (d,)."""
        scale = penalty.largest_scale(pull)
        value = penalty.conjugate(scale * pull) if scale > 0.0 else 0.0
        return cls(scale, value, penalty.conjugate(np.zeros_like(pull)), penalty.free_scale(pull))


def penalised_bound(problem: Problem, u: np.ndarray, engine: Engine) -> Talk[float]:
    r"""Evaluate :math:`\mathcal D(\alpha u)` at the largest :math:`\alpha \le 1` that all parties allow.

    Returns: summed scaling; minus infinity where the vector proves nothing.
    Shapes: u (N,).
    Scaling: u, the result summed scaling.
    """
    if problem.fit_intercept and not sums_to_zero(u, engine, problem.n_outputs):
        return -math.inf
    answers = yield from ask_all(problem.n_parties, "dual_scale", u=u)
    scale = min(float(answer["value"]) for answer in answers)
    if not scale > 0.0:
        return -math.inf
    answers = yield from ask_all(problem.n_parties, "dual_value", scale=scale)
    return _dual_value(problem, u, scale, sum(float(answer["value"]) for answer in answers), engine)


def bound_from_shares(problem: Problem, u: np.ndarray, shares: Sequence[DualShare], engine: Engine) -> float:
    r"""Bound the optimum below by :math:`\mathcal D(\alpha u)`, from one exchange.

    A party knows its own largest scale only. Its conjugate at the smallest of
    all is at most the linear interpolation between zero and its own, by convexity. Where that costs much,
    because a ball or box is far larger than the weights, the largest scale that costs nothing proves more.

    Returns: summed scaling; minus infinity where the vector proves nothing.
    Shapes: u (N,).
    Scaling: u, the result summed scaling.
    """
    if problem.fit_intercept and not sums_to_zero(u, engine, problem.n_outputs):
        return -math.inf
    scale, free = min(share.scale for share in shares), min(share.free for share in shares)
    parts = sum(s.at_zero + (scale / s.scale) * (s.value - s.at_zero) for s in shares) if scale > 0.0 else 0.0
    bound = _dual_value(problem, u, scale, parts, engine)
    return bound if parts == 0.0 else max(bound, _dual_value(problem, u, free, 0.0, engine))


def _dual_value(problem: Problem, u: np.ndarray, scale: float, parts: float, engine: Engine) -> float:
    """The dual at a scaled vector, where the parties' conjugates are at most ``parts``."""
    if not scale > 0.0:
        return -math.inf
    scaled = engine.vector(len(u))
    for own, out in zip(*(v.reshape(problem.n_outputs, -1) for v in (u, scaled))):
        engine.plus(own, own, factor=0.0, scale=scale, out=out)
    conjugate, *products = engine.together(
        problem.loss.conjugate_parts(scaled, problem.y, problem.weight, engine),
        *inner_parts(scaled, problem.offset, engine, problem.n_outputs),
    )
    bound = float(np.sum(products)) - float(conjugate) - parts
    return bound if math.isfinite(bound) else -math.inf
