r"""Subspace Newton sharing in which the coordinator sees only sums over all parties.

A round is that of :mod:`fastadmm.coordinator.subspace.subspace` with one party whose block is
:math:`D = (D_1, \dots, D_M)`: all parties' directions are one direction, with one coefficient. What the
coordinator would have to know of each, it learns as a sum: the message :math:`v = \sum_m D_m d_m` on a grid
of fixed points, the gap :math:`\sum_m \|\rho_m\|^2` and the inner products of directions, exactly. With
these it makes directions orthonormal, and tells the parties how.

The certificate stays a proof. A message is off by half a step of the grid for each party, a combination of
messages by the same combination of their bounds; with :math:`\delta` the bound at the model and g the loss
gradient there,

.. math:: \ell(D x) \le \ell(S) + \delta \|g\|_1 + \ell(S + \delta) + \ell(S - \delta) - 2 \ell(S),

and the lower bound that a gradient g proves moves by :math:`\delta \|g\|_1` at most. Squared norms of the
weights are :math:`c^\top G c` with the directions' inner products G as the parties measured them. See
``docs/theory.md``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fastadmm.conversation.exchange import Pace, Talk, ask_all
from fastadmm.coordinator.metric_limits import directions_of_sums, first_of_sums
from fastadmm.coordinator.subspace.rounded_messages import Correction, RoundedMessages
from fastadmm.coordinator.subspace.smoothed import SAVED, SmoothedSubspaceMethod
from fastadmm.coordinator.subspace.subspace import SubspaceMethod
from fastadmm.coordinator.sums import Sums
from fastadmm.engine.engine import Engine
from fastadmm.method.span import SpanPoint
from fastadmm.parties.direction import public_rows
from fastadmm.parties.masked_direction import MaskedDirectionParty
from fastadmm.parties.reflection import reflection
from fastadmm.problem.problem import Problem
from fastadmm.secrecy.masks import grid_step

#: Length to which a new direction is scaled, by the last one of its kind; parties shorten it if above 1.
_LENGTH = 2.0**-8

#: A direction is discarded if less than this is orthogonal to the earlier ones.
_LEAST_NEW = 1e-3

#: It is discarded, too, if its message may be off by more than this share of the longest there is, and than
#: so many times what the grid rounds off.
_MOST_SPREAD, _MOST_GROWTH = 1e-7, 1e3

#: Rounding of an inner product that a party computes, as a share of the lengths.
_ROUNDING = 2.0**-50


class SummedSubspaceMethod(SubspaceMethod):
    """Subspace Newton sharing, sums only: summed messages, and the minimiser over their span.

    Shapes: spread (K,); gram (K, K); skew, lengths (2,).
    """

    family = "subspace_sums"
    party_type = MaskedDirectionParty
    SAVED = (*SubspaceMethod.SAVED, "exchange: sums.number", "reach", "spread", "gram", "lengths", "newest")

    def __init__(self, problem: Problem, engine: Engine, directions: int | None = None) -> None:
        super().__init__(problem, engine, directions)
        self.few_rows = None  # no block gradients are known of sums
        told = [block.shape[1] for block in problem.blocks], engine.all_rows(problem.n_samples)
        self.limit, self.most_first = directions_of_sums(*told), first_of_sums(*told)
        self.sums = Sums(problem.n_parties)
        self.reach = 0.0
        self.spread = np.empty(0)
        self.gram = np.empty((0, 0))
        self.skew = np.empty(0)
        self.lengths = np.zeros(2)
        #: How many of the last directions are to be measured: the coordinator has made them orthonormal.
        self.newest = 0
        self._products, self._fresh = np.empty((2, 2)), np.empty((2, 0))

    def make_parties(self) -> Sequence[Any]:
        parties = super().make_parties()
        self.sums.hand_out(parties)
        return parties

    def prepare(self) -> Talk[float]:
        yield from self.sums.introduce()
        self.reach = yield from self.sums.reach()
        return self.reopen()

    def begin_at(self, weights: Sequence[np.ndarray], intercept: Any) -> None:
        # The weights of all parties become the first direction, their norm its coefficient.
        norm = math.sqrt(sum(float(x @ x) for x in weights))
        images = [party.block.product(x, self.engine) for party, x in zip(self.parties, weights, strict=True)]
        if norm > 0.0:
            for party, x in zip(self.parties, weights):
                party.directions = (x / norm)[np.newaxis]
            self.store.adopt((sum(images) / norm)[np.newaxis])
            self.owner = np.zeros(1, dtype=np.int64)
            self.spread, self.gram = np.zeros(1), np.eye(1)
            self.point = SpanPoint(np.array([norm]), intercept, norm * self.messages[0])
        self._at_start(self.point)
        self.start(self.point.intercept)

    def coefficients(self, m: int) -> np.ndarray:
        return self.point.coefficients

    def each_coefficients(self) -> list[np.ndarray]:
        return [self.point.coefficients] * self.problem.n_parties

    def exchange(self) -> Talk[list[float]]:
        primal = self.primal if self.primal is not None else self.start()
        before = primal.loss + self.regulariser()
        if self._metric_is_stale():
            yield self._exchange("set_metric", [{"curvature": self.metric}] * self.problem.n_parties)
        squared = yield from self._extend(primal.gradient)
        bound = self._downwards(primal.gradient)
        yield from self._orthonormalise()
        yield from self._descend(self.proved_gap([squared], primal), before)
        yield from self._merge_oldest()
        self.start(self.point.intercept)
        self.correction = Correction(bound, self.upwards(self.solved, self.point))
        return [squared]

    def _extend(self, gradient: np.ndarray) -> Talk[float]:
        """New directions of all parties together; the sum of their squared residuals."""
        k, step, last = len(self.owner), self._step(), self.newest
        units = np.append(self._units(gradient), self._units_of_first())
        n, own = len(units), self.point.coefficients
        told = {"gradient": gradient, "coefficients": own, "units": units, "measured": last}
        rows, numbers = yield from self.sums.ask("respond_masked", step, **told)
        measured = np.array(numbers[1 : 1 + last * k]).reshape(last, k)
        self.gram[k - last :], self.gram[:, k - last :] = measured, measured.T
        self._products = np.array(numbers[1 + last * k :]).reshape(n, k + n)
        self._fresh = rows.reshape(n, -1)
        self.lengths = np.sqrt(np.maximum(0.0, np.diag(self._products[:2, k:]))) / units[:2]
        return max(0.0, numbers[0])

    def _units_of_first(self) -> np.ndarray:
        """Factors of further directions of the first answer, which span all columns with the usual two."""
        began, self.began = self.began, True
        count = 0 if began or self.most_first > self._most_per_party() else max(0, self.most_first - 2)
        n = self.engine.all_rows(self.problem.n_samples)
        longest = self.reach * math.sqrt(public_rows(count, n))  # no public number is above 1
        return np.full(count, 2.0 ** -math.ceil(math.log2(longest)) if longest > 0.0 else 1.0)

    def _orthonormalise(self) -> Talk[None]:
        """Make new directions orthonormal, here and at the parties; forget those of which little is new."""
        k, products = len(self.owner), self._products
        n = len(products)
        whole = np.zeros((k + n, k + n))  # inner products of all, the new ones as they came
        whole[:k, :k], whole[k:], whole[:, k:] = self.gram, products, products.T
        basis = np.eye(k + n)[:k]
        self.skew = np.empty(0)
        for new in range(k, k + n):
            given = np.eye(k + n)[new]
            shares = np.linalg.solve(basis @ whole @ basis.T, basis @ whole[new])
            square = float(whole[new, new])
            left = math.sqrt(max(0.0, square - float(shares @ (basis @ whole[new]))))
            if not left > _LEAST_NEW * math.sqrt(max(0.0, square)):
                continue
            basis = np.vstack([basis, (given - shares @ basis) / left])
            self.skew = np.append(self.skew, _ROUNDING * square / left**2)
        factors = basis[k:]
        # Half a step of each party, and the sum's own rounding to a double.
        own = 0.5 * self.problem.n_parties * self._step() + 2.0**-53 * self._largest(self._fresh)
        spread = np.abs(factors) @ np.append(self.spread, own) + self._rounded(factors)
        # Once directions span all columns, what seems new of another one is rounding.
        clear = spread <= _MOST_SPREAD * self.reach + _MOST_GROWTH * own.max(initial=0.0)
        factors, self.skew, self.newest = factors[clear], self.skew[clear], int(clear.sum())
        self.spread = np.append(self.spread, spread[clear])
        yield from ask_all(self.problem.n_parties, "orthonormalise", Pace.SHORT, factors=factors, kept=k)
        grown = np.eye(k + len(factors))
        grown[:k, :k] = self.gram
        self.gram = grown
        combine = self.engine.combine
        combined = [combine(row[:k], self.messages) + combine(row[k:], self._fresh) for row in factors]
        self._append(0, combined)

    def _rounded(self, factors: np.ndarray) -> np.ndarray:
        """Bound on what combining messages here, and directions at the parties, rounds off in any row.

        Shapes: factors (n, K).
        """
        k = len(self.messages)
        sizes = np.append(self._largest(self.messages), self._largest(self._fresh[: factors.shape[1] - k]))
        lengths = np.append(np.ones(k), np.sqrt(np.diag(self._products[:, k:])))[: factors.shape[1]]
        return (factors.shape[1] + 1) * 2.0**-53 * (np.abs(factors) @ (sizes + self.reach * lengths))

    def _largest(self, rows: np.ndarray) -> np.ndarray:
        """Largest size in each row, without a copy of all rows."""
        high, low = self.engine.each_largest(rows), self.engine.each_largest(rows, -1.0)
        return np.maximum(np.maximum(high, low), 0.0)

    def _step(self) -> float:
        return grid_step(self.reach, self.problem.n_parties)

    def _units(self, gradient: np.ndarray) -> np.ndarray:
        """Factors of the next directions, powers of two: lengths will be about what is wanted."""
        c, metric = self.point.coefficients, self.metric
        assert metric is not None
        falls = float(self.engine.dot(gradient, gradient / metric)) / self.problem.regularization
        # Before any is known: a gradient's length is bounded, and so is a quadratic model's fall.
        most = np.array([self.reach * self.engine.norm(gradient), math.sqrt(falls + float(c @ c))])
        known = np.where(self.lengths > 0.0, self.lengths / _LENGTH, most)
        return np.array([2.0 ** -math.ceil(math.log2(size)) if size > 0.0 else 1.0 for size in known])

    # --- what rounding can have done --------------------------------------------------------------------

    def _off(self) -> float:
        """Bound on what any row of the sum of messages is off by."""
        return float(np.abs(self.point.coefficients) @ self.spread)

    def _twist(self) -> float:
        """What the regulariser is more than its coefficients say."""
        c = self.point.coefficients
        return 0.5 * self.problem.regularization * float(c @ self.gram @ c - c @ c)

    def _downwards(self, gradient: np.ndarray) -> float:
        """By how much the bound that a gradient proves has to move."""
        return self._twist() - self._off() * float(self.engine.total(np.abs(gradient)))

    def upwards(self, problem: Problem, point: SpanPoint) -> float:
        """By how much the model's objective may be more than what is computed at the current point."""
        c = point.coefficients
        none, nothing = np.zeros(problem.n_samples), np.zeros(len(c))
        rounded = RoundedMessages(problem.n_samples).correction(
            problem, nothing, none, nothing, point, none + self._off(), self.engine
        )
        newest = float(self.skew @ np.abs(c[len(c) - len(self.skew) :])) * float(np.abs(c).sum())
        return rounded.objective + self._twist() + problem.regularization * newest

    def _merge_oldest(self) -> Talk[None]:
        """Merge the two oldest directions where there are too many."""
        # Not the moves: a bound on the error of every message would grow with each reflection.
        while len(self.owner) > self._most_per_party():
            first, second = self.point.coefficients[:2]
            # Neither in use: forget the younger.
            direction = np.array([-second, first]) if first or second else np.array([0.0, 1.0])
            direction = np.pad(direction, (0, len(self.owner) - 2))
            yield from ask_all(self.problem.n_parties, "forget", Pace.SHORT, direction=direction)
            unit, row = reflection(direction)
            merging = np.delete(np.eye(len(unit)) - 2.0 * np.outer(unit, unit), row, axis=0)
            self.gram = merging @ self.gram @ merging.T
            self.spread = np.abs(merging) @ self.spread + self._rounded(merging)
            self._forget([np.arange(len(unit))], [direction[np.newaxis]])
            self.newest = min(self.newest, len(self.owner))

    # --- for the solver ---------------------------------------------------------------------------------

    def weight_norms(self) -> list[float]:
        # Not known: the coordinator knows that of all weights together.
        return [math.inf] * self.problem.n_parties

    @property
    def longest(self) -> float:  # type: ignore[override]
        return self.reach * max(1.0, float(np.linalg.norm(self.point.coefficients)))

    @property
    def hidden(self) -> float:  # type: ignore[override]
        gradient = self.primal.gradient if self.primal else np.zeros(self.problem.n_samples)
        return self._rounding() - self._downwards(gradient)

    def _rounding(self) -> float:
        return self.upwards(self.problem, replace(self.point, intercept=self.intercept))

    def _go_on(self) -> None:
        k = len(self.owner)
        if self.spread.shape != (k,) or self.gram.shape != (k, k) or not 0 <= self.newest <= k:
            raise ValueError("spread")
        super()._go_on()

    not_saved = ("metric", "public_keys", "transcript", "answered")

    def restore_parties(self, parties: list[dict[str, np.ndarray]]) -> None:
        """New keys for the parties of this process: no sum depends on them."""
        super().restore_parties(parties)
        self.sums.introduce_again(self.parties)


class SummedSmoothedMethod(SummedSubspaceMethod, SmoothedSubspaceMethod):
    """Rounds by sums alone for a loss with kinks, which is smoothed ever less."""

    SAVED = (*SummedSubspaceMethod.SAVED, *SAVED)

    def _bound_rounding(self) -> float:
        return self.correction.bound
