"""x-update for everything else: accelerated proximal gradient, on the Gram matrix or without one."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.parties.xupdate.base import PenalisedUpdate
from fastadmm.parties.xupdate.face_step import face_step, points_of_step
from fastadmm.problem.penalty import PartyPenalty

#: Steps of the power iteration for the largest eigenvalue.
_POWER_STEPS = 30

#: Below this prox-gradient step, relative to the gradient at zero, rounding decides.
_FLOOR = 1e-13

#: With a Gram matrix: steps of proximal gradient between tries of Newton's method, and its steps at a try.
_STEPS_BETWEEN, _MAX_NEWTON = 25, 30

#: Differences of values below this share of them are rounding.
_VALUE_ROUNDING = 1e-14


class ProximalGradient(PenalisedUpdate):
    r"""Nesterov's method with restart (O'Donoghue and Candès 2015); two products with the block a step.

    Shapes: block (N, d).
    """

    name: ClassVar[str] = "proximal"

    #: The violation left by the warm start is reduced by this factor each round.
    reduction: ClassVar[float] = 1e-4
    max_steps: ClassVar[int] = 200
    _lipschitz = 0.0

    def prepare(self, engine: Engine) -> None:
        # A fixed start that no structure of the columns is orthogonal to.
        x = np.cos(np.arange(1.0, self.block.shape[1] + 1.0)) + 1.5
        value = 0.0
        for _ in range(_POWER_STEPS):
            norm = float(np.linalg.norm(x))
            if norm == 0.0:
                break
            x = self.normal(x / norm, engine)
            value = float(np.linalg.norm(x))
        self._lipschitz = 1.02 * value

    def minimise(self, right: np.ndarray, mu: float, start: np.ndarray, engine: Engine) -> np.ndarray:
        penalty = PartyPenalty(self.regularizer, self.constraint, mu)
        if self._lipschitz == 0.0:
            return self.constraint.project(np.zeros_like(start))
        # Restarted with every round, so that a resumed run takes the same steps.
        return self._descend(penalty, right, self.constraint.project(start), -1.0, self.max_steps, engine)[0]

    def _descend(
        self,
        penalty: PartyPenalty,
        right: np.ndarray,
        x: np.ndarray,
        limit: float,
        max_steps: int,
        engine: Engine,
    ) -> tuple[np.ndarray, float, float]:
        """So many steps at most, or down to a violation; where that is negative, to a share of the first.

        Shapes: x (d,).
        """
        lipschitz, point = self._lipschitz, x
        image_x = image = self.normal(x, engine)
        momentum, violation = 1.0, math.inf
        floor = _FLOOR * float(np.linalg.norm(right))
        for _ in range(max_steps):
            new = penalty.prox(point - (image - right) / lipschitz, 1.0 / lipschitz)
            step = new - point
            image_new = self.normal(new, engine)
            square = float(step @ step)
            curvature = float(step @ (image_new - image))
            if curvature > lipschitz * square * (1.0 + 1e-9) and square > 0.0:
                lipschitz = 1.1 * curvature / square  # the power iteration stopped short of it
                continue
            violation = lipschitz * math.sqrt(square)
            if limit < 0.0:
                limit = max(self.reduction * violation, floor)
            move = new - x
            ahead = 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * momentum * momentum))
            factor = (momentum - 1.0) / ahead
            if float(step @ move) < 0.0:  # uphill: the momentum has done its work
                ahead, factor = 1.0, 0.0
            momentum = ahead
            point = new + factor * move
            image = image_new + factor * (image_new - image_x)
            x, image_x = new, image_new
            if violation <= limit:
                break
        return x, violation, limit


class GramProximalGradient(ProximalGradient):
    """Proximal gradient steps with the Gram matrix, each d x d whatever N is, and Newton's method between.

    Proximal gradient finds which weights are at kinks, at bounds and on the sphere; over the
    others Newton's method (:mod:`fastadmm.parties.xupdate.face_step`) goes on, as long as it helps.
    """

    name: ClassVar[str] = "gram-proximal"
    reduction: ClassVar[float] = 1e-9
    max_steps: ClassVar[int] = 1000

    def prepare(self, engine: Engine) -> None:
        self._gram = self.block.gram(engine)
        super().prepare(engine)

    def normal(self, x: np.ndarray, engine: Engine) -> np.ndarray:
        return self._gram @ x

    def minimise(self, right: np.ndarray, mu: float, start: np.ndarray, engine: Engine) -> np.ndarray:
        penalty = PartyPenalty(self.regularizer, self.constraint, mu)
        if self._lipschitz == 0.0:
            return penalty.prox(np.zeros_like(start), 1.0)
        x, limit, taken, steps = penalty.prox(start, 0.0), -1.0, 0, _STEPS_BETWEEN
        while taken < self.max_steps:
            x, violation, limit = self._descend(penalty, right, x, limit, steps, engine)
            taken += steps
            if violation <= limit:
                break
            before = x
            x, violation = self._newton(penalty, right, x, violation, limit)
            if violation <= limit:
                break
            if x is before:  # momentum is worth more than another try
                steps *= 2
        return x

    def _newton(
        self, penalty: PartyPenalty, right: np.ndarray, x: np.ndarray, violation: float, limit: float
    ) -> tuple[np.ndarray, float]:
        """Newton's method on the face of x, a proximal gradient step after each of its steps."""
        lipschitz, value = self._lipschitz, self._value(penalty, right, x)
        for _ in range(_MAX_NEWTON):
            step = face_step(self._gram, right, penalty, x)
            if step is None:
                break
            for point in points_of_step(penalty, x, step):
                new = penalty.prox(point - (self._gram @ point - right) / lipschitz, 1.0 / lipschitz)
                left = lipschitz * float(np.linalg.norm(new - point))
                following = self._value(penalty, right, new)
                rounding = _VALUE_ROUNDING * (abs(value) + abs(following))
                if following < value - rounding or (left < 0.5 * violation and following <= value + rounding):
                    break
            else:
                break
            x, value, violation = new, following, left
            if violation <= limit:
                break
        return x, violation

    def _value(self, penalty: PartyPenalty, right: np.ndarray, x: np.ndarray) -> float:
        return 0.5 * float(x @ (self._gram @ x)) - float(right @ x) + penalty.value(x)
