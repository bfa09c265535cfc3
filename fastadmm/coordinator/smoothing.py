r"""How a loss with kinks is smoothed: about a dual vector, which the last gradient was.

A loss with a kink is a maximum, :math:`\ell(z) = \max_{u \in [a, b]} u e(z)`. Taking
:math:`\tfrac\gamma2 (u - c)^2` away inside gives a smooth loss (Nesterov 2005; with a centre c the augmented
Lagrangian of Rockafellar 1976), whose slope is :math:`\operatorname{clamp}_{[a, b]}(c + e(z) / \gamma)`. With
:math:`c = 0` it is the loss's own smoothed form, and any other centre is that form at the predictor
:math:`z + \gamma c`: an offset.

With its gradient u as the dual point, the gap of the loss itself is that of the smoothed problem plus

.. math:: B = \sum_i s_i \bigl[\ell(z_i) + \ell^*(u_i / s_i)\bigr] - \langle u, z\rangle \ge 0,

which is zero where u is the centre: a sample on its parabola costs :math:`\gamma |u - c|` times the distance
of u to an end of its interval. So where the smoothed problem is solved well enough, a new centre takes most
of B away at the same width, time and again: these are the steps of the proximal point method on the dual
problem. By the width alone B falls only as fast as the width, and a narrow parabola makes the problem
stiff: the slope that is left then proves far less than the model deserves, and no round sees further than
the next kink.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.problem.problem import Problem

Array = np.ndarray

#: Share of the gap that smoothing may cause: of one that is still the smoothed problem's, and of one that
#: is smoothing's own by at least the share after it.
_SHARE, _SHARE_WHEN_SOLVED, _SOLVED = 0.3, 0.03, 0.7

#: Width of the smoothing at given weights, as a share of the objective there (in the loss's unit).
_WIDTH_AT_START = 1e-3


class Smoothing:
    """Width and centre of the smoothing of a problem's loss. Shapes: centre (N,)."""

    #: Of what a method saves: its numbers, and those for each row.
    SAVED = "width: smoothing.width", "centre: smoothing.centre"
    row_keys = ("centre",)

    def __init__(self, problem: Problem, engine: Engine) -> None:
        self.problem, self.engine = problem, engine
        self.width = 0.0
        self.centre: Array | None = None

    def begin(self, loss: float) -> None:
        """As wide as the loss at zero weights (summed): nothing is proved there, so that it is the gap."""
        # Constant targets may leave no loss at all; any width serves then.
        self.width, self.centre = loss / self.problem.total_weight or 1.0, None

    def begin_near(self, objective: float) -> bool:
        """For given weights with this objective (summed): narrower, if that is positive; whether it is."""
        width = _WIDTH_AT_START * objective / self.problem.total_weight
        if not 0.0 < width < self.width:
            return False
        self.width, self.centre = width, None
        return True

    def smoothed(self) -> Problem:
        """The problem with the smoothed loss: up to a constant, which the centre costs."""
        problem, loss = self.problem, self.problem.loss.smoothed(self.width)
        assert loss is not None  # of a loss with kinks
        if self.centre is None:
            return replace(problem, loss=loss)
        shift = np.divide(
            self.centre, problem.weight, out=np.zeros(len(self.centre)), where=problem.weight > 0.0
        )
        return replace(problem, loss=loss, offset=problem.offset + self.width * shift)

    def bias(self, z: Array, u: Array) -> float:
        """B, summed scaling: not negative up to rounding.

        Shapes: z, u (N,).
        Scaling: u summed scaling.
        """
        problem, engine = self.problem, self.engine
        loss, conjugate, (product,) = engine.together(
            problem.loss.value_parts(z, problem.y, problem.weight, np.empty(len(z)), engine),
            problem.loss.conjugate_parts(u, problem.y, problem.weight, engine),
            engine.dot_parts(u, z),
        )
        return float(loss) + float(conjugate) - float(product)

    def excess(self, z: Array, u: Array, gap: float) -> float:
        """What smoothing causes of a gap, over what it may; infinite where nothing is proved. Summed gap."""
        bias = self.bias(z, u)
        allowed = (_SHARE_WHEN_SOLVED if bias > _SOLVED * gap else _SHARE) * gap
        return bias / allowed if allowed > 0.0 else math.inf

    def gradient(self, z: Array) -> Array:
        """Of the smoothed loss, summed scaling, at a linear predictor of the problem itself."""
        smoothed, u = self.smoothed(), np.empty(len(z))
        there = z + (smoothed.offset - self.problem.offset)
        # Nobody asks for the loss.
        smoothed.loss.value_parts(there, smoothed.y, smoothed.weight, u, self.engine)
        return u

    def narrow(self, predictor: Array, gap: float, narrower: float) -> bool:
        """Move the centre to the gradient at a predictor where smoothing causes too much of a gap, of shape
        (N,) without the offset; whether it did.
        """
        z = self.problem.offset + predictor
        u = self.gradient(z)
        if too_much := self.excess(z, u, gap) > 1.0:
            self.move(u, narrower)
        return too_much

    def move(self, u: Array, narrower: float) -> None:
        """Make a gradient the centre, and the width smaller by a factor, so that its loss is another."""
        self.centre, self.width = u.copy(), narrower * self.width
