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
from fastadmm.engine import Engine
from fastadmm.party import Party
from fastadmm.problem import Problem

__all__ = ["penalised_bound"]


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
