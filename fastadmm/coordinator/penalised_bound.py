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
from collections.abc import Sequence

import numpy as np

from fastadmm.coordinator.certificate import sums_to_zero
from fastadmm.engine.engine import Engine
from fastadmm.parties.face import DualShare
from fastadmm.parties.proximal import Party
from fastadmm.problem.problem import Problem

__all__ = ["bound_from_shares", "penalised_bound"]


def penalised_bound(problem: Problem, parties: Sequence[Party], u: np.ndarray, engine: Engine) -> float:
    r"""Evaluate :math:`\mathcal D(\alpha u)` at the largest :math:`\alpha \le 1` that all parties allow.

    Parameters
    ----------
    problem : Problem
    parties : sequence of Party
    u : ndarray of shape (N,)
        Dual vector, summed scaling.
    engine : Engine

    Returns
    -------
    float
        Summed scaling; minus infinity where the vector proves nothing.
    """
    if problem.fit_intercept and not sums_to_zero(u, problem.n_outputs):
        return -math.inf
    scale = min(engine.map(lambda party: party.dual_scale(u), parties))
    if not scale > 0.0:
        return -math.inf
    scaled = scale * u
    parts = sum(engine.map(lambda party: party.dual_value(scale), parties))
    conjugate = problem.loss.conjugate(scaled, problem.y, problem.weight, engine)
    bound = float(scaled @ problem.offset) - conjugate - parts
    return bound if math.isfinite(bound) else -math.inf


def bound_from_shares(problem: Problem, u: np.ndarray, shares: Sequence[DualShare], engine: Engine) -> float:
    r"""Bound the optimum below by :math:`\mathcal D(\alpha u)`, from one exchange.

    A party knows its own largest scale only. Its conjugate at the smallest of
    all is at most the linear interpolation between zero and its own, by convexity.

    Parameters
    ----------
    problem : Problem
    u : ndarray of shape (N,)
        Dual vector, summed scaling.
    shares : sequence of DualShare
        What the parties say of it.
    engine : Engine

    Returns
    -------
    float
        Summed scaling; minus infinity where the vector proves nothing.
    """
    if problem.fit_intercept and not sums_to_zero(u):
        return -math.inf
    scale = min(share.scale for share in shares)
    if not scale > 0.0:
        return -math.inf
    parts = sum(s.at_zero + (scale / s.scale) * (s.value - s.at_zero) for s in shares)
    scaled = scale * u
    conjugate = problem.loss.conjugate(scaled, problem.y, problem.weight, engine)
    bound = float(scaled @ problem.offset) - conjugate - parts
    return bound if math.isfinite(bound) else -math.inf
