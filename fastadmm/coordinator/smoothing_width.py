r"""How wide a loss with kinks is smoothed: as wide as its own share of the gap allows.

With the smoothed loss :math:`\ell_\gamma` of :mod:`fastadmm.coordinator.subspace.smoothed`, its gradient u at
the predictor z as the dual point, and its conjugate :math:`\ell^* + \tfrac\gamma2 u^2`, the gap of the loss
itself is that of the smoothed problem plus

.. math:: B(\gamma) = \sum_i s_i \Bigl[\ell(z_i) - \ell_\gamma(z_i) - \tfrac\gamma2 (u_i / s_i)^2\Bigr]
          = \gamma \sum_i s_i\, p_i\, (c_i - p_i), \qquad p_i = |u_i| / s_i \le c_i,

with :math:`c_i` the steepness of the loss on that side of its kink: samples off their parabola cost
nothing. So the width need not follow the gap itself, which few samples at the kink would make needlessly
narrow: a wide parabola is what lets a round see further than the next kink.
"""

from __future__ import annotations

import math

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.problem.problem import Problem

__all__ = ["next_width", "smoothing_bias"]

#: Share of the gap that smoothing may cause: of one that is still the smoothed problem's, and of one that
#: is smoothing's own by at least the share after it.
_SHARE, _SHARE_WHEN_SOLVED, _SOLVED = 0.3, 0.03, 0.7

#: What the width is multiplied by until it fits, and the least it falls to in one round.
_STEP, _LEAST = 0.7, 0.1


def smoothing_bias(problem: Problem, z: np.ndarray, width: float, loss: float, engine: Engine) -> float:
    """What smoothing adds to the gap at a predictor.

    Parameters
    ----------
    problem : Problem
        With a loss that has a smoothed form.
    z : ndarray of shape (N,)
        Linear predictor, offset and intercept included.
    width : float
        Of the smoothing.
    loss : float
        Without it, summed.
    engine : Engine

    Returns
    -------
    float
        B, summed scaling: not negative up to rounding, and rising with the width.
    """
    smoothed = problem.loss.smoothed(width)
    if smoothed is None:
        raise TypeError(f"loss {problem.loss.name!r} has no smoothed form")
    u = np.empty(len(z))
    loss -= smoothed.evaluate(z, problem.y, problem.weight, u, engine)
    u *= u
    np.divide(u, problem.weight, out=u, where=problem.weight > 0.0)  # without a weight u is 0
    return loss - 0.5 * width * float(engine.total(u))


def next_width(problem: Problem, z: np.ndarray, width: float, gap: float, engine: Engine) -> float:
    """The width of the next round.

    Parameters
    ----------
    problem : Problem
        With a loss that has a smoothed form.
    z : ndarray of shape (N,)
        Linear predictor of the model.
    width : float
        So far.
    gap : float
        Certified gap, summed scaling; infinite where nothing is certified.
    engine : Engine

    Returns
    -------
    float
        At most the present one, and at least a tenth of it.
    """
    if math.isinf(gap):
        return _STEP * width
    loss = problem.loss.evaluate(z, problem.y, problem.weight, np.empty(len(z)), engine)
    least, bias = _LEAST * width, smoothing_bias(problem, z, width, loss, engine)
    allowed = (_SHARE_WHEN_SOLVED if bias > _SOLVED * gap else _SHARE) * gap
    while width > least and bias > allowed:
        width = max(_STEP * width, least)
        bias = smoothing_bias(problem, z, width, loss, engine)
    return width
