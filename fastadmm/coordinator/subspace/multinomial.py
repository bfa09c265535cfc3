r"""Subspace Newton sharing for C classes: messages of C numbers per sample.

As :mod:`fastadmm.coordinator.subspace.subspace`, but a party answers the loss gradient,
N x C, with up to C directions in one message. They are the span for **every** class,
not each for one: that takes half the rounds, and fewer, for the same traffic. With l2,
weights sum to zero over the classes, along which the loss is flat; they do so
in every span that all classes share, and otherwise only once it is everything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fastadmm.conversation.exchange import Answers, Call, Exchange, Pace, Talk, ask_all
from fastadmm.coordinator.metric_limits import directions_per_party
from fastadmm.coordinator.subspace.moves import Moves
from fastadmm.coordinator.subspace.subspace import SubspaceMethod, span_tolerance
from fastadmm.engine.engine import Engine
from fastadmm.method.certificate import PrimalValue
from fastadmm.method.class_certificate import class_primal_value, hessian_sums, multinomial_of, shifted
from fastadmm.method.class_span import (
    ClassSpan,
    ClassSpanHessian,
    minimise_over_class_span,
)
from fastadmm.method.span import SpanPoint
from fastadmm.parties.classes import ClassDirectionParty, choose_class_solver
from fastadmm.parties.reflection import Turn
from fastadmm.problem.multinomial import FEWEST_ROWS
from fastadmm.problem.problem import Problem

Array = np.ndarray

#: Messages are turned in blocks of about this many numbers, which stay in the second-level cache.
_NUMBERS_PER_BLOCK = 1 << 17

#: Memory for all messages, in bytes; parties keep fewer directions where more would not fit.
_MESSAGE_BUDGET = 2**30

#: Directions of all parties beyond which their products with each other would take longer than rounds do.
_MOST_DIRECTIONS = 1024

#: The span closes its own gap no further than to this share of one that ends the run.
_SHARE_OF_WANTED = 0.01


def class_directions_per_party(n_parties: int, n_samples: int, n_classes: int) -> int:
    """How many messages, of up to C directions each, a party keeps the directions of."""
    directions = n_parties * n_classes
    each = 8 * n_samples * directions
    wanted = min(directions_per_party(n_parties), max(8, _MOST_DIRECTIONS // directions))
    return max(3, min(wanted, _MESSAGE_BUDGET // each, 64), min(8, 4 * _MESSAGE_BUDGET // each))


class MultinomialMethod(SubspaceMethod):
    """Subspace Newton sharing for the multinomial loss."""

    family = "multinomial_subspace"
    party_type = ClassDirectionParty
    SAVED = (
        *("owner", "coefficients: point.coefficients", "total: point.total", "intercept: point.intercept"),
        *("loss: point.loss", "spanned: n_columns", "moves: moves.rows", "metric", "usual", "n_rounds"),
        *("span_hessian: hessian.span.saved", "class_hessian: hessian.classes"),
    )

    def __init__(self, problem: Problem, engine: Engine, directions: int | None = None) -> None:
        multinomial_of(problem)
        super().__init__(problem, engine, directions)
        classes = problem.n_outputs
        self.limit = class_directions_per_party(
            problem.n_parties, engine.all_rows(problem.n_samples), classes
        )
        self.point = SpanPoint(np.empty((classes, 0)), np.zeros(classes), np.zeros(problem.message_size))
        self.hessian = ClassSpanHessian(problem.fit_intercept)

    def reopen(self) -> float:
        return self.start().loss

    def start(self, intercept: float = 0.0) -> PrimalValue:
        """Evaluate the current point with its best intercepts."""
        problem, point = self.problem, self.point
        if not problem.fit_intercept and point.gradient is not None:
            self.primal = PrimalValue(point.loss, point.gradient, point.intercept, True)
            return self.primal
        self.primal = class_primal_value(problem, point.total, point.intercept, self.engine)
        point.loss, point.gradient = self.primal.loss, self.primal.gradient
        point.intercept = self.primal.intercept
        return self.primal

    def begin_at(self, weights: Sequence[Array], intercept: Any) -> None:
        # What the weights of all classes span becomes every party's first directions.
        owner, coefficients = [np.empty(0, dtype=np.int64)], [np.empty((self.problem.n_outputs, 0))]
        messages = [np.empty((0, self.problem.n_samples))]
        for m, (party, x) in enumerate(zip(self.parties, weights)):
            if x.any():
                turn, shares = np.linalg.qr(x)
                party.directions = np.ascontiguousarray(turn.T)
                messages.append(party.block.matrix_product(party.directions, self.engine))
                owner.append(np.full(len(party.directions), m))
                coefficients.append(shares.T)
        self.store.adopt(np.concatenate(messages))
        self.owner, self.moves = np.concatenate(owner), Moves()
        c = np.concatenate(coefficients, axis=1)
        total = np.concatenate([self.engine.combine(own, self.messages) for own in c])
        self.point = SpanPoint(c, np.array(intercept), total)
        self.start()

    def regulariser(self) -> float:
        c = self.point.coefficients
        return 0.5 * self.problem.regularization * float(np.sum(c * c))

    def _renew_metric(self) -> Talk[None]:
        if self._metric_is_stale() and self._somebody_factorises():
            yield from ask_all(self.problem.n_parties, "set_metric", curvature=self.metric)

    def _ask(self, gradient: Array, newton: bool, also: Array | None = None) -> Talk[Answers]:
        """Every party's answer, with its messages stored: at first all of few columns."""
        rows, n_parties = gradient.reshape(self.problem.n_outputs, -1), self.problem.n_parties
        if self.complete:  # all of what parties would answer follows from their messages
            slopes = ClassSpan(self.problem, self.messages, self.engine).products(rows).T
            left = slopes + self.problem.regularization * self.point.coefficients
            squares = np.bincount(self.owner, np.sum(left * left, axis=0), minlength=n_parties)
            return [{"squared_residual": float(square)} for square in squares]
        most = min(self.most_first, self._most_per_party()) if not self.n_rounds else 0
        calls, given = [], dict[str, Any]()
        for m, block in enumerate(self.problem.blocks):
            name, given = "respond_classes", {"newton": newton}
            if (d := block.shape[1]) <= most:
                name, given, self.asked_first[m] = "respond_first", {"most": d, "exact": True}, d
            calls.append(
                Call(m, name, {"gradient": rows, "class_coefficients": self.coefficients(m), **given})
            )
        answers = yield Exchange(calls)
        for m, answer in enumerate(answers):
            self._append(m, answer.get("message", ()))
            self._take_first(m, answer)
        return answers

    def _descend(self, gap: float, objective: float, tilt: Array | None = None) -> Talk[None]:
        yield from ()
        self.hessian.extend(self.messages, self.engine)
        tolerance = max(
            span_tolerance(gap, objective, self.complete), _SHARE_OF_WANTED * self.wanted * abs(objective)
        )
        given = self.problem, self.messages, self.point, tolerance, self.engine, self.hessian
        self.point = minimise_over_class_span(*given)

    def _somebody_factorises(self) -> bool:
        classes = self.problem.n_outputs
        return any(choose_class_solver(b.whole_shape, classes)[0] != "gradient" for b in self.problem.blocks)

    def _curvature(self) -> Array:
        assert self.point.gradient is not None
        loss = multinomial_of(self.problem)
        return loss.mean_curvature(self.point.gradient, self.problem.weight, self.engine)

    def _metric_is_stale(self) -> bool:
        if not super()._metric_is_stale():
            return False
        problem, engine = self.problem, self.engine
        z = shifted(problem.offset + self.point.total, self.point.intercept)
        likely = multinomial_of(problem).probabilities(z, problem.y, problem.weight, engine)
        self.hessian.refresh(self.messages, self.metric, hessian_sums(likely, problem.weight, engine), engine)
        return True

    def _most_per_party(self) -> int:
        return self.problem.n_outputs * super()._most_per_party()

    @property
    def most_messages(self) -> int:
        most = self._most_per_party() + self.problem.n_outputs
        return sum(min(most, block.shape[1]) for block in self.problem.blocks)

    def _compress(self, before: Array) -> Talk[None]:
        """As :mod:`fastadmm.coordinator.subspace.moves` says, with as many at a time as a message has."""
        limit, parties = self._most_per_party(), self.problem.n_parties
        if max(block.shape[1] for block in self.problem.blocks) <= limit:
            return  # nothing will ever be forgotten
        self.moves.record(before, self.point.coefficients, limit)
        crowded = np.flatnonzero(np.bincount(self.owner, minlength=parties) > limit).tolist()
        if not crowded:
            return
        places = [np.flatnonzero(self.owner == m) for m in crowded]
        c = self.point.coefficients
        gone = [self.moves.forgettable(c, mine, len(mine) - limit) for mine in places]
        calls = [Call(m, "forget_classes", {"directions": own}) for m, own in zip(crowded, gone)]
        yield Exchange(calls, Pace.SHORT)
        for m, own in zip(crowded, gone):
            self._turn(Turn(own), np.flatnonzero(self.owner == m))

    def _turn(self, turn: Turn, mine: Array) -> None:
        """Turn a party's directions, in these places, and drop the first ones, as the party does."""
        for unit in turn.units:
            self.hessian.span.reflect(unit, mine)
        store, stays, dropped = self.store.rows, mine[len(turn.units) :], mine[: len(turn.units)].tolist()
        step = max(FEWEST_ROWS, _NUMBERS_PER_BLOCK // len(mine))

        def piece(part: tuple[int, int]) -> None:
            for begin in range(*part, step):
                here = slice(begin, min(begin + step, part[1]))
                store[stays, here] = turn.applied(store[mine, here])

        self.engine.by_leaf(piece, self.engine.leaves(store.shape[1]))
        for rows in (self.point.coefficients, self.moves.rows):
            rows[:, stays] = rows[:, mine] @ turn.rest.T
        self.hessian.span.drop(dropped)
        self.moves.drop(dropped)
        self._drop(dropped)

    def final_arguments(self, m: int) -> dict[str, Any]:
        return {"class_coefficients": self.coefficients(m)}

    def weight_norms(self) -> list[float]:
        # Directions are orthonormal: the coordinator knows the norms without the weights.
        return [float(np.linalg.norm(self.coefficients(m))) for m in range(self.problem.n_parties)]

    def _go_on(self) -> None:
        self.hessian.span.reference = self.metric
