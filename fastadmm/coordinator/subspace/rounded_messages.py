r"""What messages in single precision can do to objective and bound.

A message arrives as :math:`v_j = D d_j + \epsilon_j`. The coordinator works with
:math:`S = \sum_j c_j v_j` where the model's sum of messages is :math:`S - \sum_j c_j \epsilon_j`.
Parties know :math:`\langle D^\top g, d_j\rangle` in full precision, so that
:math:`e_j = \langle D^\top g, d_j\rangle - \langle g, v_j\rangle = -\langle g, \epsilon_j\rangle`
is known too. With :math:`\delta \ge |\sum_j c_j \epsilon_j|`, bounded sample by sample, and any
convex loss with gradient g' at S,

.. math:: \ell\Bigl(S - \sum_j c_j \epsilon_j\Bigr) \le \ell(S) + \sum_j c_j e_j
          + \langle |g' - g|, \delta\rangle + \ell(S + \delta) + \ell(S - \delta) - 2 \ell(S),

and the bound that g proves moves by :math:`\sum_j c_j e_j` exactly. See ``docs/theory.md``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.method.span import SpanPoint
from fastadmm.problem.problem import Problem

#: Error of a number in single precision, relative to itself (2^-24 = 5.97e-8), and to the largest (2^-149) of
#: at most a million messages.
_RELATIVE, _ABSOLUTE = 6.0e-8, 1e-41


@dataclass(frozen=True)
class Correction:
    """What is to be added, summed scaling."""

    bound: float = 0.0  # to the lower bound that the round's start proves
    objective: float = 0.0  # to the objective where the round ends, for an upper bound on that of the model


class RoundedMessages:
    r"""A bound on the error of every combination of the messages, sample by sample.

    By Cauchy and Schwarz a combination with coefficients c is off by :math:`\|c\| E` at most, with
    :math:`E^2` the sum of the squared bounds of all that arrived: parties forget directions by rotations,
    which leave :math:`\|c\|` as it is.

    Shapes: squares (N,).
    """

    def __init__(self, n_samples: int) -> None:
        self.squares = np.zeros(n_samples)
        self.is_left = False  # whether rounding is most of what is left: messages are to be restated

    def learn(self, messages: np.ndarray, engine: Engine) -> None:
        """Messages have arrived in single precision. Shapes: messages (K, N)."""
        from fastadmm.kernels.vectors import add_squares

        self.squares = self.squares.copy()  # what was exported is not changed
        engine.over_rows(add_squares, engine.leaves(len(self.squares)), messages, self.squares)

    def spread(self, coefficients: np.ndarray, engine: Engine) -> np.ndarray:
        r""":math:`\delta`, of shape (N,), for coefficients of all messages."""
        size = float(np.linalg.norm(coefficients))
        # No message's largest number is above the largest root here.
        smallest = _ABSOLUTE * math.sqrt(engine.largest(self.squares)) + 1e-150  # squares of less may vanish
        return size * (_RELATIVE * np.sqrt(self.squares) + smallest)

    def correction(
        self,
        problem: Problem,
        old: np.ndarray,
        gradient: np.ndarray,
        errors: np.ndarray,
        point: SpanPoint,
        spread: np.ndarray,
        engine: Engine,
    ) -> Correction:
        """Corrections of a round. Shapes: old, errors (K,); gradient, spread (N,)."""
        z, there = problem.offset + point.total + point.intercept, np.empty_like(gradient)
        scratch = np.empty_like(gradient)
        values = [
            problem.loss.evaluate(at, problem.y, problem.weight, out, engine)
            for at, out in ((z, there), (z + spread, scratch), (z - spread, scratch))
        ]
        bend = max(0.0, values[1] + values[2] - 2.0 * values[0])
        slope = float(engine.dot(np.abs(there - gradient), spread))
        bound, objective = float(old @ errors), float(point.coefficients @ errors) + slope + bend
        return Correction(bound if math.isfinite(bound) else -math.inf, objective)
