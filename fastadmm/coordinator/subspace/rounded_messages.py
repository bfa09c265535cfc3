r"""What messages in single precision can do to objective and bound.

A message arrives as :math:`v_j = D d_j + \epsilon_j`. The coordinator works with
:math:`S = \sum_j c_j v_j` where the model's sum of messages is :math:`S - \sum_j c_j \epsilon_j`.
Parties know :math:`\langle D^\top g, d_j\rangle` in full precision, so that
:math:`e_j = \langle D^\top g, d_j\rangle - \langle g, v_j\rangle = -\langle g, \epsilon_j\rangle`
is known too. With :math:`\delta = \sum_j |c_j|\,|\epsilon_j|`, bounded sample by sample, and any
convex loss with gradient g' at S,

.. math:: \ell\Bigl(S - \sum_j c_j \epsilon_j\Bigr) \le \ell(S) + \sum_j c_j e_j
          + \langle |g' - g|, \delta\rangle + \ell(S + \delta) + \ell(S - \delta) - 2 \ell(S),

and the bound that g proves moves by :math:`\sum_j c_j e_j` exactly. See ``docs/theory.md``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.method.span import SpanPoint
from fastadmm.problem.problem import Problem

#: Error of a number in single precision, relative to itself (2^-24 = 5.97e-8) and to the largest (2^-149).
_RELATIVE, _ABSOLUTE = 6.0e-8, 1e-44


@dataclass(frozen=True)
class Correction:
    """What is to be added, summed scaling."""

    bound: float = 0.0  # to the lower bound that the round's start proves
    objective: float = 0.0  # to the objective where the round ends, for an upper bound on that of the model


class RoundedMessages:
    r"""Bounds on the errors of the messages, sample by sample.

    Once a party has forgotten directions, its messages are combinations of those that arrived, whose factors
    are orthonormal. By Cauchy and Schwarz a combination of them with coefficients c is off by
    :math:`\|c\| E` at most, with :math:`E^2` the sum of the squared bounds of all that arrived.

    Shapes: each of mixed (N,).
    """

    def __init__(self) -> None:
        self.mixed: dict[int, tuple[int, np.ndarray]] = {}

    @staticmethod
    def errors(messages: Sequence[np.ndarray], engine: Engine) -> Iterator[np.ndarray]:
        """Bound on the error of each message of shape (N,) that arrived in single precision."""
        highest = engine.each_largest(messages)
        lowest = engine.each_largest(messages, -1.0)
        for message, high, low in zip(messages, highest, lowest):
            yield _RELATIVE * np.abs(message) + _ABSOLUTE * max(high, low, 0.0)

    def exact(self, owner: np.ndarray, n_samples: int) -> None:
        """Messages, one per party at most, that have no error; of the parties ``owner``."""
        self.mixed = {int(m): (1, np.zeros(n_samples)) for m in owner}

    def mix(self, m: int, messages: np.ndarray, mine: np.ndarray, engine: Engine) -> None:
        """A party is about to forget one of its directions. Shapes: messages (K, N); mine (K_m,)."""
        first, bound = self.mixed.get(m, (0, np.zeros(messages.shape[1])))
        square = bound * bound
        for error in self.errors([messages[k] for k in mine[first:]], engine):
            square += error**2
        self.mixed[m] = len(mine) - 1, np.sqrt(square)

    def spread(
        self, messages: np.ndarray, owner: np.ndarray, coefficients: np.ndarray, engine: Engine
    ) -> np.ndarray:
        r""":math:`\delta`, of shape (N,), for messages of shape (K, N) and their owners and coefficients."""
        from fastadmm.kernels.vectors import combine_sizes

        total, shares = np.empty(messages.shape[1]), _RELATIVE * np.abs(coefficients)
        for m, (first, _) in self.mixed.items():
            shares[np.flatnonzero(owner == m)[:first]] = 0.0
        engine.over_rows(combine_sizes, engine.leaves(len(total)), shares, messages, total)
        # No message's largest number is above that of their sum, divided by its share.
        total += _ABSOLUTE / _RELATIVE * len(shares) * engine.largest(total)
        for m, (first, bound) in self.mixed.items():
            total += float(np.linalg.norm(coefficients[owner == m][:first])) * bound
        return total

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

    def export(self) -> dict[str, Any]:
        """State for a checkpoint."""
        owners = sorted(self.mixed)
        rows = [self.mixed[m][1] for m in owners]
        return {
            "rounded_owner": np.array(owners, dtype=np.int64),
            "rounded_count": np.array([self.mixed[m][0] for m in owners], dtype=np.int64),
            "rounded_error": np.array(rows) if rows else np.zeros((0, 0)),
        }

    @classmethod
    def restored(cls, saved: dict[str, Any], n_samples: int) -> RoundedMessages | None:
        """Inverse of :meth:`export`; None where messages were not rounded."""
        if "rounded_owner" not in saved:
            return None
        owners, rows = np.array(saved["rounded_owner"]), np.array(saved["rounded_error"], dtype=np.float64)
        counts = np.array(saved.get("rounded_count", np.ones(len(owners))), dtype=np.int64)
        if not len(owners) == len(rows) == len(counts) or (len(rows) and rows.shape[1] != n_samples):
            raise ValueError("rounded_error")
        rounded = cls()
        rounded.mixed = {int(m): (int(k), row) for m, k, row in zip(owners, counts, rows)}
        return rounded
