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
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastadmm.coordinator.subspace.span import SpanPoint
from fastadmm.engine.engine import Engine
from fastadmm.problem.problem import Problem

__all__ = ["Correction", "RoundedMessages"]

#: Error of a number in single precision, relative to itself (2^-24 = 5.97e-8) and to the largest (2^-149).
_RELATIVE, _ABSOLUTE = 6.0e-8, 1e-44


@dataclass(frozen=True)
class Correction:
    """What is to be added, summed scaling.

    Attributes
    ----------
    bound : float
        To the lower bound that the round's start proves.
    objective : float
        To the objective where the round ends, for an upper bound on that of the model.
    """

    bound: float = 0.0
    objective: float = 0.0


class RoundedMessages:
    r"""Bounds on the errors of the messages, sample by sample.

    Attributes
    ----------
    oldest : dict of int to ndarray of shape (N,)
        Of the parties whose oldest message is not as it arrived: a bound on its error.
    """

    def __init__(self) -> None:
        self.oldest: dict[int, np.ndarray] = {}

    @staticmethod
    def error(message: np.ndarray) -> np.ndarray:
        """Bound on the error of a message of shape (N,) that arrived in single precision."""
        size = np.abs(message)
        return _RELATIVE * size + _ABSOLUTE * size.max(initial=0.0)

    def exact(self, owner: np.ndarray, n_samples: int) -> None:
        """Messages, one per party at most, that have no error; of the parties ``owner``."""
        self.oldest = {int(m): np.zeros(n_samples) for m in owner}

    def merge(self, m: int, messages: np.ndarray, pair: np.ndarray) -> None:
        """Replace the two oldest messages of a party by a combination.

        Parameters
        ----------
        m : int
        messages : ndarray of shape (2, N)
        pair : ndarray of shape (2,)
            Factors.
        """
        first = self.oldest.get(m)
        first = self.error(messages[0]) if first is None else first
        self.oldest[m] = abs(float(pair[0])) * first + abs(float(pair[1])) * self.error(messages[1])

    def spread(self, messages: np.ndarray, owner: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
        r""":math:`\delta`, of shape (N,), for messages of shape (K, N) and their owners and coefficients."""
        total, met = np.zeros(messages.shape[1]), set()
        for message, m, c in zip(messages, owner.tolist(), coefficients.tolist()):
            known = self.oldest.get(m) if m not in met else None
            met.add(m)
            total += abs(c) * (self.error(message) if known is None else known)
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
        """Corrections of a round.

        Parameters
        ----------
        problem : Problem
            Convex.
        old : ndarray of shape (K,)
            Coefficients where the round began, zero for the new ones.
        gradient : ndarray of shape (N,)
            The dual vector of its start.
        errors : ndarray of shape (K,)
            e for that vector.
        point : SpanPoint
            Where it ended.
        spread : ndarray of shape (N,)
            As in :meth:`spread`, there.
        engine : Engine
        """
        z, there = problem.offset + point.total + point.intercept, np.empty_like(gradient)
        scratch = np.empty_like(gradient)
        values = [
            problem.loss.evaluate(at, problem.y, problem.weight, out, engine)
            for at, out in ((z, there), (z + spread, scratch), (z - spread, scratch))
        ]
        bend = max(0.0, values[1] + values[2] - 2.0 * values[0])
        slope = float(np.abs(there - gradient) @ spread)
        bound, objective = float(old @ errors), float(point.coefficients @ errors) + slope + bend
        return Correction(bound if math.isfinite(bound) else -math.inf, objective)

    def export(self) -> dict[str, Any]:
        """State for a checkpoint."""
        owners = sorted(self.oldest)
        rows = [self.oldest[m] for m in owners]
        return {
            "rounded_owner": np.array(owners, dtype=np.int64),
            "rounded_error": np.array(rows) if rows else np.zeros((0, 0)),
        }

    @classmethod
    def restored(cls, saved: dict[str, Any], n_samples: int) -> RoundedMessages | None:
        """Inverse of :meth:`export`; None where messages were not rounded.

        Parameters
        ----------
        saved : dict
        n_samples : int

        Raises
        ------
        ValueError
            If the arrays do not fit.
        """
        if "rounded_owner" not in saved:
            return None
        owners, rows = np.array(saved["rounded_owner"]), np.array(saved["rounded_error"], dtype=np.float64)
        if len(owners) != len(rows) or (len(rows) and rows.shape[1] != n_samples):
            raise ValueError("rounded_error")
        rounded = cls()
        rounded.oldest = {int(m): row for m, row in zip(owners, rows)}
        return rounded
