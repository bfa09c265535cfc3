r"""ADMM sharing of which the coordinator sees sums over all parties only.

The iterates are those of :mod:`fastadmm.coordinator.admm.coordinator` with :math:`\tau = M`; what is known of
them differs. With relaxation :math:`\alpha`, every party's message stays of the form
:math:`a_m = D_m v_m - c`: the relaxed one is

.. math:: \alpha D_m x_m^+ + (1 - \alpha) \Bigl(a_m - \frac{S - z}{M}\Bigr) = D_m v_m^+ - c^+, \qquad
          v_m^+ = \alpha x_m^+ + (1 - \alpha) v_m,

with c the same for all parties. The party keeps :math:`v_m`; the coordinator knows
:math:`V = \sum_m D_m v_m` and :math:`S = V - M c`, which becomes :math:`S^+ = \alpha \sum_m D_m x_m^+ +
(1 - \alpha) z`. A party's target is :math:`D_m v_m` minus a vector that all are told,
:math:`(V - z + u / r) / M`.

Acceleration needs inner products of changes of the whole state. Those of messages are

.. math:: \sum_m \langle D_m p_m - q,\, D_m p_m' - q' \rangle = \sum_m \langle D_m p_m, D_m p_m' \rangle
          - \frac{\langle P, P' \rangle}{M} + \frac{\langle P - M q,\, P' - M q' \rangle}{M},

with :math:`P = \sum_m D_m p_m`, the change of V, and :math:`P - M q` that of S. Parties tell the first sum,
masked, and they extrapolate their weights as they are told.

The certificate stays a proof. The sum of the messages is off by half a step of the grid for each party, in
every row; what that does to objective and bound is as in :mod:`fastadmm.coordinator.subspace.summed`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastadmm.conversation.exchange import Talk
from fastadmm.coordinator.admm.admm import AdmmMethod
from fastadmm.coordinator.admm.anderson import Anderson
from fastadmm.coordinator.admm.coordinator import Coordinator, RoundOutcome
from fastadmm.coordinator.subspace.rounded_messages import RoundedMessages
from fastadmm.coordinator.sums import Sums
from fastadmm.method.certificate import PrimalValue, sums_to_zero
from fastadmm.method.span import SpanPoint
from fastadmm.parties.masked_proximal import MaskedProximalParty
from fastadmm.secrecy.grid import grid_step
from fastadmm.secrecy.least import least_share

__all__ = ["SummedAdmmMethod", "SummedCoordinator"]

Array = np.ndarray

#: A message is no longer than its target and the one before it, by far: most parties solve exactly, the
#: others take steps that shorten.
_LONGER = 4.0


class SummedState:
    """What the coordinator knows of where a round starts.

    Shapes: vector (4 N,); images, messages, z, u (N,).
    """

    def __init__(self, vector: Array) -> None:
        self.vector = vector
        self.images, self.messages, self.z, self.u = vector.reshape(4, -1)

    def like(self, vector: Array) -> SummedState:
        """One with given values."""
        return SummedState(vector)


@dataclass(frozen=True)
class Stepped:
    """Sums of what the x-updates of a round gave.

    Shapes: total, relaxed (N,).
    """

    total: Array  # of shape (N,): of the new messages
    regulariser: float  # R(x) at the new weights, summed scaling
    norms: list[float]  # not known of single parties
    square: float  # squared norms of :math:`D_m p_m`, in the metric and in its square
    pressed: float  # squared norms of :math:`D_m p_m`, in the metric and in its square
    relaxed: Array  # of shape (N,): of the new state's messages


class SummedAnderson(Anderson):
    """Acceleration that is told the parties' part of inner products.

    Shapes: each of told (count,).
    """

    told: tuple[float, Array, Array] = 0.0, np.empty(0), np.empty(0)  # of shape (count,)

    @property
    def following(self) -> tuple[int, int]:
        """Place of the next difference, and how many there will be; none right after a new beginning."""
        return (self.position, min(self.count + 1, self.memory)) if self.has_last else (0, 0)

    def squared_norm(self, residual: Array) -> float:
        return max(0.0, super().squared_norm(residual) + self.told[0])

    def _newest_products(self, k: int) -> Array:
        return super()._products(self.residuals[k]) + self.told[2]

    def _products(self, residual: Array) -> Array:
        return super()._products(residual) + self.told[1]


class SummedCoordinator(Coordinator):
    """Holds sums over all parties and runs rounds.

    Shapes: sizes (3,).
    """

    state: Any
    anderson: SummedAnderson | None

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.sums = Sums(self.problem.n_parties)
        self.reach, self.spread = 0.0, 0.0
        self.sizes = np.zeros(3)
        self._place = 0, 0

    def _zero_state(self) -> Any:
        return SummedState(np.zeros(4 * self.problem.message_size))

    def _accelerator(self, memory: int) -> SummedAnderson:
        return SummedAnderson(len(self.state.vector), self._sections(), memory, self.rows)

    def _sections(self) -> list[tuple[slice, Any]]:
        # tau r = M r times the two shares of 1 / M.
        n, r = self.problem.message_size, self.penalties
        weights = (-r, r, r, 1.0 / r)
        return [(slice(k * n, (k + 1) * n), weight) for k, weight in enumerate(weights)]

    def _step(self, new: Any) -> Talk[Any]:
        state, m = self.state, self.problem.n_parties
        shift = (state.images - state.z + state.u / self.penalties) / m
        self._place = (0, 0) if self.anderson is None else self.anderson.following
        slot, kept = self._place
        step = grid_step(self._longest(self.rows.norm(shift)), m)
        total, numbers = yield from self.sums.ask(
            "step_masked",
            step,
            shift=shift,
            scaled_penalty=float(m * self.penalty),
            relaxation=float(self.relaxation),
            slot=slot,
            kept=kept,
        )
        # Half a step of each party, and the sum's own rounding to a double.
        largest = max(float(self.engine.each_largest([total], sign)[0]) for sign in (1.0, -1.0))
        self.spread = 0.5 * m * step + 2.0**-53 * largest
        regulariser, self.sizes[1], self.sizes[2], square, pressed = (max(0.0, x) for x in numbers[:5])
        self.sizes[1:] = np.sqrt(self.sizes[1:])
        self.sums.check_range(float(self.sizes[1]), step)
        if self.anderson is not None:
            scale = m * self.penalty
            told = scale * np.array(numbers[5:]).reshape(2, kept)
            self.anderson.told = scale * square, told[0], told[1]
        alpha = self.relaxation
        new.images[:] = alpha * total + (1.0 - alpha) * state.images
        new.messages[:] = alpha * total + (1.0 - alpha) * state.z
        return Stepped(total, regulariser, [math.inf] * m, square, pressed, new.messages)

    def _longest(self, shift: float) -> float:
        """Bound on the norm of all parties' messages together, for a shift of this norm."""
        longer = max(_LONGER, math.sqrt(self.problem.n_parties))  # the shift is in every party's target
        # The x-update is nonexpansive in the norm of the metric, and keeps zero where it is.
        bent = 1.0
        if self.metric is not None:
            high, low = self.engine.each_largest([self.metric]), self.engine.each_largest([self.metric], -1.0)
            bent = math.sqrt(float(high[0] / -low[0]))
        return longer * bent * (shift + float(self.sizes[0] + self.sizes[1]))

    def _dual_residual(self, old: Any, new: Any, stepped: Any) -> float:
        # As for messages that are seen, with b_m - a_m = D_m p_m / alpha + c.
        m, r, n = self.problem.n_parties, self.penalties, self.problem.n_samples
        own = new.u - old.u - r * (old.messages - old.z) - r * (old.images - old.messages)
        cross = float(self.rows.dot(own, r * (stepped.total - old.images)))
        parts = (m * self.penalty / self.relaxation) ** 2 * stepped.pressed
        return math.sqrt(max(0.0, m * float(self.rows.dot(own, own)) - 2.0 * m * cross + parts) / (m * n))

    def decision(self) -> dict[str, Any]:
        """What parties are told of where the next round starts."""
        slot, _ = self._place
        weights = self.anderson.weights if self.extrapolated and self.anderson is not None else np.empty(0)
        kept = 0 if self.anderson is None else self.anderson.count
        return {
            "accepted": self.reached is self.last,
            "weights": np.array(weights),
            "slot": slot if kept else 0,
            "kept": kept,
        }

    def export(self) -> dict:
        own = {"exchange": self.sums.number, "reach": self.reach, "sizes": self.sizes}
        return {**super().export(), **own}

    def restore(self, saved: dict) -> None:
        self.sums.number, self.reach = int(saved["exchange"]), float(saved["reach"])
        self.sizes = np.array(saved["sizes"], dtype=np.float64)
        if self.sizes.shape != (3,):
            raise ValueError("sizes")
        super().restore(saved)


class SummedAdmmMethod(AdmmMethod):
    """ADMM sharing, sums only."""

    family = "admm_sums"
    watched = False
    holder = SummedCoordinator
    coordinator: SummedCoordinator
    #: Of the last dual vector, that all parties allow.
    _scale = 1.0

    def make_parties(self) -> Sequence[MaskedProximalParty]:
        problem = self.problem
        parties = [
            MaskedProximalParty(
                name, block, problem.regularization, self.engine, self.x_update, regularizer, constraint
            )
            for name, block, regularizer, constraint in zip(
                problem.names, problem.blocks, problem.party_regularizers, problem.party_constraints
            )
        ]
        self.coordinator.sums.hand_out(parties)
        return parties

    def prepare(self) -> Talk[float]:
        yield from self.coordinator.sums.introduce()
        self.coordinator.reach = yield from self.coordinator.sums.reach()
        return self.reopen()

    def begin_at(self, weights: Sequence[Array], intercept: Any) -> None:
        coordinator, state = self.coordinator, self.coordinator.state
        images = [party.begin_at(x) for party, x in zip(self.parties, weights, strict=True)]
        coordinator.sizes[:] = math.sqrt(sum(self.engine.dot(own, own) for own in images))
        state.images[:] = state.messages[:] = state.z[:] = sum(images)
        start = self._primal(state.z.copy(), intercept)
        state.u[:] = start.gradient
        self.start_at(start.intercept)

    def _certificate(
        self, dual: Array, outcome: RoundOutcome, primal: PrimalValue
    ) -> Talk[tuple[float, float]]:
        problem, coordinator = self.problem, self.coordinator
        sums, told = coordinator.sums, {"pull": outcome.pull, **coordinator.decision()}
        if problem.is_ridge:
            _, (gaps, stationarity, square) = yield from sums.ask("certify_masked", gradient=dual, **told)
            bound = self._ridge_bound(dual, outcome, primal, gaps)
            bound -= coordinator.spread * float(self.engine.total(np.abs(dual)))
        else:
            u = coordinator.last.u
            counts, (stationarity, square) = yield from sums.ask("certify_penalised_masked", u=u, **told)
            self._scale = least_share(counts, problem.n_parties)
            bound = yield from self._penalised_bound(u, self._scale)
        coordinator.sizes[0] = math.sqrt(max(0.0, square))
        return stationarity, bound

    def _penalised_bound(self, u: Array, scale: float) -> Talk[float]:
        """The bound of :mod:`fastadmm.method.penalised_bound` at a scale that all parties allow."""
        problem = self.problem
        if scale == 0.0 or (problem.fit_intercept and not sums_to_zero(u, self.engine)):
            return -math.inf
        _, (parts,) = yield from self.coordinator.sums.ask("dual_value_masked", scale=scale)
        conjugate = problem.loss.conjugate(scale * u, problem.y, problem.weight, self.engine)
        bound = float(self.engine.dot(scale * u, problem.offset)) - conjugate - parts
        return bound if math.isfinite(bound) else -math.inf

    def _rounding(self, total: Array) -> float:
        point = SpanPoint(np.empty(0), self._intercept, total)
        none, spread = np.zeros(len(total)), np.full(len(total), self.coordinator.spread)
        return (
            RoundedMessages()
            .correction(self.problem, np.empty(0), none, np.empty(0), point, spread, self.engine)
            .objective
        )

    def scores(self, rows: str) -> Talk[list[Array]]:
        return (yield from self.coordinator.sums.scores(rows, self.longest))

    @property
    def longest(self) -> float:  # type: ignore[override]
        return self.coordinator.reach * max(1.0, float(self.coordinator.sizes[2]))

    def raise_bound(self, bound: float, u: Array) -> None:
        # At the scale that all parties allow: the proof's is one for all, too.
        super().raise_bound(bound, self._scale * u)

    def export_parties(self) -> list[dict[str, Array]]:
        return [{**own, **p.memory()} for own, p in zip(super().export_parties(), self.parties)]

    def restore_parties(self, parties: list[dict[str, Array]]) -> None:
        super().restore_parties(parties)
        for party, state in zip(self.parties, parties, strict=True):
            party.recall(state)
        self.coordinator.sums.introduce_again(self.parties)
