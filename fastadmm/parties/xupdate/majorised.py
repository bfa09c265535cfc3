r"""x-updates for a smooth non-convex regulariser: majorise by squared l2, minimise exactly, repeat.

The log-sum R has a second derivative of at most 1, so for every point :math:`x^k`

.. math:: R(x) \le R(x^k) + \langle \nabla R(x^k), x - x^k\rangle + \tfrac12 \|x - x^k\|^2,

squared l2 with a linear term. Its minimiser over any set is an x-update that
is there already, with another right side; each decreases the party's own
problem, and a fixed point is a stationary point of it.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.parties.xupdate.base import PenalisedUpdate
from fastadmm.problem.regularizers import LogSum

#: A step this small relative to the weights is the last.
_LAST_STEP = 1e-12


class Majorised(PenalisedUpdate):
    """So many steps at most, each by an x-update of squared l2 over the set. Shapes: block (N, d)."""

    name: ClassVar[str] = "majorised"

    def __init__(self, ridge: PenalisedUpdate, regularizer: LogSum, most_steps: int) -> None:
        super().__init__(ridge.block, regularizer, ridge.constraint)
        self.ridge, self.slope, self.most_steps = ridge, regularizer.gradient, most_steps

    def prepare(self, engine: Engine) -> None:
        self.ridge.prepare(engine)

    def minimise(self, right: np.ndarray, mu: float, start: np.ndarray, engine: Engine) -> np.ndarray:
        x = self.constraint.project(start)
        for _ in range(self.most_steps):
            new = self.ridge.minimise(right + mu * (x - self.slope(x)), mu, x, engine)
            settled = float(np.abs(new - x).max()) <= _LAST_STEP * float(np.abs(new).max())
            x = new
            if settled:
                break
        return x
