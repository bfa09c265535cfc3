r"""Subspace Newton sharing for C classes: messages of C numbers per sample.

As :mod:`fastadmm.coordinator.subspace.subspace`, but a party answers the loss gradient,
N x C, with up to C directions in one message. They are the span for **every** class,
not each for one: that takes half the rounds, and fewer, for the same traffic. With l2,
weights sum to zero over the classes, along which the loss is flat; they do so
in every span that all classes share, and otherwise only once it is everything.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastadmm.conversation.exchange import Call, Exchange, Pace, Talk, ask_all
from fastadmm.coordinator.message_store import MessageStore
from fastadmm.coordinator.metric_limits import directions_per_party, drift_share, raised
from fastadmm.coordinator.subspace.moves import Moves
from fastadmm.coordinator.subspace.subspace import SubspaceMethod, span_tolerance
from fastadmm.engine.engine import Engine
from fastadmm.method.certificate import PrimalValue, penalty_unit
from fastadmm.method.class_certificate import (
    class_primal_value,
    hessian_sums,
    make_class_feasible,
    multinomial_of,
    shifted,
)
from fastadmm.method.class_span import (
    ClassSpan,
    ClassSpanHessian,
    minimise_over_class_span,
)
from fastadmm.method.method import Measured, Saved
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


class MultinomialCoordinator(Saved):
    """Messages of all parties, and the minimiser over their span.

    Shapes: messages (K, N); owner (K,); metric (N,).
    """

    SAVED = "n_rounds", "n_factorisations"

    def __init__(self, problem: Problem, engine: Engine, directions: int | None = None) -> None:
        self.problem, self.engine = problem, engine
        self.most_directions = directions
        classes = problem.n_outputs
        self.store = MessageStore(problem.n_samples, engine)
        self.owner = np.empty(0, dtype=np.int64)
        self.point = SpanPoint(np.empty((classes, 0)), np.zeros(classes), np.zeros(problem.message_size))
        self.metric: Array | None = None
        self.usual = math.nan  # mean of the metric
        self.hessian = ClassSpanHessian(problem.fit_intercept)
        self.n_factorisations = 0
        self.n_rounds = 0
        self.moves = Moves()
        self.primal: PrimalValue | None = None
        self.wanted = 0.0
        #: Most columns of a party whose first answer has all of its directions, and directions that span all.
        self.most_first, self.n_columns = 0, sum(block.shape[1] for block in problem.blocks)

    def answer_at_once(self, most: int) -> None:
        """Let parties of so many columns at most answer first with all of their directions."""
        self.most_first = most

    @property
    def messages(self) -> Array:
        """V of shape (K, N)."""
        return self.store.rows[: len(self.owner)]

    def start(self) -> PrimalValue:
        """Evaluate the current point with its best intercepts."""
        problem, point = self.problem, self.point
        if not problem.fit_intercept and point.gradient is not None:
            self.primal = PrimalValue(point.loss, point.gradient, point.intercept, True)
            return self.primal
        self.primal = class_primal_value(problem, point.total, point.intercept, self.engine)
        point.loss, point.gradient = self.primal.loss, self.primal.gradient
        point.intercept = self.primal.intercept
        return self.primal

    def restart(self, loss: float) -> None:
        """Evaluate the current point at the intercepts it has, to the bit as when its loss was saved."""
        problem, point = self.problem, self.point
        gradient = np.empty(problem.message_size)
        z = shifted(problem.offset + point.total, point.intercept)
        problem.loss.evaluate(z, problem.y, problem.weight, gradient, self.engine)
        feasible = make_class_feasible(problem, z, gradient, (loss, point.intercept), self.engine)
        point.loss, point.gradient = loss, gradient
        self.primal = PrimalValue(loss, gradient, point.intercept, feasible)

    def adopt(self, messages: Array, owner: Array) -> None:
        """Replace all messages, of shape (K, N), and their owners, of shape (K,)."""
        self.store.adopt(messages)
        self.owner = owner

    def coefficients(self, m: int) -> Array:
        """Coefficients of party m, of shape (C, K_m), oldest direction first."""
        return self.point.coefficients[:, self.owner == m]

    def regulariser(self) -> float:
        """``lambda W / 2`` times the squared norm of all weights."""
        c = self.point.coefficients
        return 0.5 * self.problem.regularization * float(np.sum(c * c))

    def round(self) -> Talk[list[float]]:
        r"""One exchange with every party, then the minimisation over the span."""
        primal, n_parties = self.primal if self.primal is not None else self.start(), self.problem.n_parties
        before = primal.loss + self.regulariser()
        if self.metric_is_stale() and self._somebody_factorises():
            self.n_factorisations += 1
            yield from ask_all(n_parties, "set_metric", curvature=self.metric)
        known, gradient = len(self.owner), primal.gradient.reshape(self.problem.n_outputs, -1)
        if self.complete:  # all of what parties would answer follows from their messages
            slopes = ClassSpan(self.problem, self.messages, self.engine).products(gradient).T
            left = slopes + self.problem.regularization * self.point.coefficients
            squared = np.bincount(self.owner, np.sum(left * left, axis=0), minlength=n_parties).tolist()
        else:
            squared = yield from self._ask(gradient)
        self.n_rounds += 1
        old = self.point.coefficients[:, :known]
        self.hessian.extend(self.messages, self.engine)
        tolerance = span_tolerance(sum(squared) / (2.0 * self.problem.regularization), before, self.complete)
        tolerance = max(tolerance, _SHARE_OF_WANTED * self.wanted * abs(before))
        self.point = minimise_over_class_span(
            self.problem, self.messages, self.point, tolerance, self.engine, self.hessian
        )
        yield from self._compress(old)
        self.start()
        return squared

    @property
    def complete(self) -> bool:
        """Whether the directions span all weights."""
        return len(self.owner) >= self.n_columns

    def _ask(self, gradient: Array) -> Talk[list[float]]:
        """Squares of all parties' residuals, with their messages stored: at first all of few columns."""
        most = min(self.most_first, self._limit()) if not self.n_rounds else 0
        calls, given = [], dict[str, Any]()
        for m, block in enumerate(self.problem.blocks):
            name, given = "respond_classes", {"newton": self.n_rounds % 2 == 0}
            if block.shape[1] <= most:
                name, given = "respond_first", {"most": block.shape[1], "exact": True}
            own = self.coefficients(m)
            calls.append(Call(m, name, {"gradient": gradient, "class_coefficients": own, **given}))
        answers = yield Exchange(calls)
        for m, answer in enumerate(answers):
            if "message" in answer:
                self._append(m, answer["message"])
            if "messages" in answer:
                self._append(m, answer.pop("messages"))
                self.n_columns -= self.problem.blocks[m].shape[1] - int((self.owner == m).sum())
        return [float(answer["squared_residual"]) for answer in answers]

    def _somebody_factorises(self) -> bool:
        classes = self.problem.n_outputs
        return any(choose_class_solver(b.whole_shape, classes)[0] != "gradient" for b in self.problem.blocks)

    def metric_is_stale(self) -> bool:
        """Move the metric to the current mean curvature if it has drifted; True if it was moved."""
        problem, engine, point, loss = self.problem, self.engine, self.point, multinomial_of(self.problem)
        assert point.gradient is not None
        h = loss.mean_curvature(point.gradient, problem.weight, engine)
        share, mean = drift_share(h, self.metric, self.usual, engine)
        if share <= 1.0:
            return False
        if not mean > 0.0:  # every sample is classified beyond doubt
            mean = penalty_unit(problem, engine)
        self.metric, self.usual = raised(h, mean, engine), mean
        z = shifted(problem.offset + point.total, point.intercept)
        likely = loss.probabilities(z, problem.y, problem.weight, engine)
        self.hessian.refresh(self.messages, h, hessian_sums(likely, problem.weight, engine), engine)
        return True

    def _limit(self) -> int:
        """Most directions per party."""
        n, classes = self.engine.all_rows(self.problem.n_samples), self.problem.n_outputs
        limit = class_directions_per_party(self.problem.n_parties, n, classes)
        return classes * (limit if self.most_directions is None else min(limit, max(2, self.most_directions)))

    @property
    def most_messages(self) -> int:
        """Of all parties, while a round is on its way."""
        most = self._limit() + self.problem.n_outputs
        return sum(min(most, block.shape[1]) for block in self.problem.blocks)

    def _append(self, m: int, message: Array) -> None:
        k, r = len(self.owner), len(message)
        self.store.make_room(k, k + r, self.most_messages)
        self.store.rows[k : k + r] = message
        self.owner = np.append(self.owner, np.full(r, m))
        self.point.coefficients = np.pad(self.point.coefficients, ((0, 0), (0, r)))

    def _compress(self, before: Array) -> Talk[None]:
        """Record the move from coefficients ``before``; parties that have too many directions forget some.

        As :mod:`fastadmm.coordinator.subspace.moves` says, with as many at a time as a message has.
        """
        limit, parties = self._limit(), self.problem.n_parties
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
            self._forget(Turn(own), np.flatnonzero(self.owner == m))

    def _forget(self, turn: Turn, mine: Array) -> None:
        """Turn a party's directions, in these places, and drop the first ones, as the party does."""
        for unit in turn.units:
            self.hessian.span.reflect(unit, mine)
        store, stays, dropped = self.store.rows, mine[len(turn.units) :], mine[: len(turn.units)].tolist()
        step = max(FEWEST_ROWS, _NUMBERS_PER_BLOCK // len(mine))

        def piece(part: tuple[int, int]) -> None:
            for begin in range(*part, step):
                here = slice(begin, min(begin + step, part[1]))
                store[stays, here] = turn.applied(store[mine, here])

        self.engine.by_leaf(piece, self.engine.leaves(store.shape[1]), light=True)
        for rows in (self.point.coefficients, self.moves.rows):
            rows[:, stays] = rows[:, mine] @ turn.rest.T
        self.hessian.span.drop(dropped)
        self.moves.drop(dropped)
        stay = np.delete(np.arange(len(self.owner)), dropped)
        self.store.keep(stay.tolist())
        self.point.coefficients, self.owner = self.point.coefficients[:, stay], self.owner[stay]


class MultinomialMethod(SubspaceMethod):
    """Subspace Newton sharing for the multinomial loss as a method."""

    family = "multinomial_subspace"
    row_keys = ("messages", "total", "metric")

    def __init__(self, problem: Problem, engine: Engine, directions: int | None = None) -> None:
        multinomial_of(problem)
        self.problem, self.engine = problem, engine
        self.coordinator = MultinomialCoordinator(problem, engine, directions)

    def make_parties(self) -> list[ClassDirectionParty]:
        problem = self.problem
        return [
            ClassDirectionParty(name, block, problem.regularization, self.engine, problem.n_outputs)
            for name, block in zip(problem.names, problem.blocks)
        ]

    def reopen(self) -> float:
        return self.coordinator.start().loss

    def begin_at(self, weights: Sequence[Array], intercept: Any) -> None:
        # What the weights of all classes span becomes every party's first directions.
        coordinator, n = self.coordinator, self.problem.n_samples
        owner, coefficients = [np.empty(0, dtype=np.int64)], [np.empty((self.problem.n_outputs, 0))]
        messages = [np.empty((0, n))]
        for m, (party, x) in enumerate(zip(self.parties, weights)):
            if x.any():
                turn, shares = np.linalg.qr(x)
                party.directions = np.ascontiguousarray(turn.T)
                messages.append(party.block.matrix_product(party.directions, self.engine))
                owner.append(np.full(len(party.directions), m))
                coefficients.append(shares.T)
        coordinator.adopt(np.concatenate(messages), np.concatenate(owner))
        coordinator.moves = Moves()
        c, rows = np.concatenate(coefficients, axis=1), coordinator.messages
        total = np.concatenate([self.engine.combine(own, rows) for own in c])
        coordinator.point = SpanPoint(c, np.array(intercept), total)
        coordinator.start()

    def round(self) -> Talk[Measured]:
        coordinator = self.coordinator
        start = coordinator.primal if coordinator.primal is not None else coordinator.start()
        total, regulariser = coordinator.point.total, coordinator.regulariser()
        squared = sum((yield from coordinator.round()))
        scale = self.problem.regularization
        bound = self._lower_bound(start, total, regulariser, squared / (2.0 * scale))
        after = coordinator.primal.loss + coordinator.regulariser()
        return self._measured(after, bound, squared, squared / (1.0 + scale) ** 2)

    def final_arguments(self, m: int) -> dict[str, Any]:
        return {"class_coefficients": self.coordinator.coefficients(m)}

    def weight_norms(self) -> list[float]:
        # Directions are orthonormal: the coordinator knows the norms without the weights.
        return [
            float(np.linalg.norm(self.coordinator.coefficients(m))) for m in range(self.problem.n_parties)
        ]

    def export(self) -> dict[str, Any]:
        coordinator, saved = self.coordinator, {**self._exported_span(), **self.coordinator.export()}
        if coordinator.metric is not None:
            saved["span_hessian"] = coordinator.hessian.span.matrix
            saved["class_hessian"] = coordinator.hessian.classes
        return saved

    def restore(self, saved: dict[str, Any]) -> None:
        coordinator, intercept = self.coordinator, np.array(saved["intercept"])
        self._restore_span(saved)
        if intercept.shape != coordinator.point.intercept.shape:
            raise ValueError("intercept")
        coordinator.point.intercept = intercept
        coordinator.restore(saved)
        if "metric" in saved:
            coordinator.hessian.span.matrix = np.array(saved["span_hessian"])
            coordinator.hessian.span.reference = coordinator.metric
            coordinator.hessian.classes = np.array(saved["class_hessian"])
        coordinator.restart(float(saved["loss"]))
