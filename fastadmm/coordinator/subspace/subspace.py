r"""Subspace Newton sharing: a handful of rounds, for smooth losses with squared l2.

Each round the coordinator sends the loss gradient :math:`g = \nabla\ell(z)`
and every party's coefficients. A party answers with the message of one new
direction (in turn its block Newton direction in the current curvature metric
and its block gradient) and with one scalar, its share of the duality gap.
The coordinator then minimises the true objective over the span of **all**
messages it holds. The objective never increases; every step is at least as good
as block descent with exact line search, which converges for strongly convex problems. See ``docs/solver.md``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import accumulate, pairwise
from typing import Any, ClassVar

import numpy as np

from fastadmm.conversation.exchange import Answers, Call, Exchange, Pace, Talk
from fastadmm.coordinator.message_store import MessageStore
from fastadmm.coordinator.metric_limits import (
    directions_for_few_rows,
    directions_per_party,
    drift_share,
    raised,
)
from fastadmm.coordinator.subspace.few_rows import FewRows, has_few_rows
from fastadmm.coordinator.subspace.moves import Moves
from fastadmm.coordinator.subspace.rounded_messages import Correction, RoundedMessages
from fastadmm.engine.engine import Engine
from fastadmm.method.certificate import PrimalValue, dual_bound, penalty_unit, primal_value
from fastadmm.method.class_certificate import primal_at
from fastadmm.method.method import Measured, Method, check_pair
from fastadmm.method.span import Span, SpanPoint, minimise_over_span
from fastadmm.method.span_hessian import SpanHessian
from fastadmm.parties.direction import DirectionParty
from fastadmm.parties.reflection import reflect_rows, reflections
from fastadmm.problem.problem import Problem

#: The span's share of the gap is reduced to this share of the gap at the start of the round ...
_SPAN_ACCURACY = 3e-3

#: ... further while the gap is large relative to the objective: directions from inaccurate points cost rounds
#: ...
_EARLY_SPAN_ACCURACY, _EARLY = 1e-4, 0.1

#: ... and as far as possible once the directions span all weights: then there is no other part of the gap.
_COMPLETE_SPAN_ACCURACY = 1e-7

#: With two directions in a round, where an exchange costs more than arithmetic, to this share from the start.
_PAIRS_SPAN_ACCURACY = 1e-6

#: In that case also to this share of the gap that ends the run.
_SHARE_OF_WANTED = 0.1

#: Sum of a gradient relative to that of its absolute values which rounding leaves at the best intercept.
_NEARLY_BEST = 1e-9

#: A round that decreases the objective by no more than this share has gained nothing but rounding.
_NOTHING = 1e-13

#: Share of the gap that the span may still have when its minimiser makes no more progress.
_SPAN_KEEPS = 0.1

#: Messages are restated in double precision once the gap, or what two rounds gained, is this share of what
#: their rounding may hide.
_ROUNDING_IS_LEFT = 0.1

#: Most directions of a first answer where a party has too many columns for all of them.
SOME_FIRST = 32

#: Parties with less data together answer one after another: threads would spend more on taking turns.
_SMALL_BYTES = 1 << 24


def span_tolerance(
    gap: float, objective: float, complete: bool, wanted: float = 0.0, pairs: bool = False
) -> float:
    """Target for the span's own share of the gap in a round. Scaling: gap, the result summed scaling."""
    if complete:
        ending = _SHARE_OF_WANTED * wanted * abs(objective)
        return min(_COMPLETE_SPAN_ACCURACY * gap, ending) if ending > 0.0 else _COMPLETE_SPAN_ACCURACY * gap
    if pairs:
        return _PAIRS_SPAN_ACCURACY * gap
    return (_EARLY_SPAN_ACCURACY if gap > _EARLY * abs(objective) else _SPAN_ACCURACY) * gap


class SubspaceMethod(Method):
    """Subspace Newton sharing: messages of all parties, and the minimiser over their span.

    Shapes: messages (K, N); owner (K,); metric (N,).
    """

    name = "subspace"
    convergent = True
    family = "subspace"
    party_type: Any = DirectionParty
    #: Whether all that parties would answer follows from exact messages that span all weights.
    knows_penalty = True
    row_keys: tuple[str, ...] = (
        "witness",
        "messages",
        "total",
        "metric",
        "span_reference",
        "rounded_squares",
        "asked",
        "asked_images",
        "dual",
        "dual_total",
    )
    SAVED: ClassVar[tuple[str, ...]] = (
        *("owner", "coefficients: point.coefficients", "total: point.total", "intercept: point.intercept"),
        *("loss: point.loss", "spanned: n_columns", "moves: moves.rows", "metric", "usual", "n_rounds"),
        *("idle", "began", "witness: witness_rows"),
        *("span_hessian: hessian.saved", "span_reference: hessian.reference"),
        *("asked: few_rows.asked", "asked_images: few_rows.images", "dual: few_rows.dual"),
        *("dual_total: few_rows.total", "few_rows: few_rows.numbers", "aim_tolerance: few_rows.tolerance"),
        *("rounded_squares: rounded.squares", "restate: rounded.is_left"),
        # Added up on another way than a restored run would.
        *("gradient_sums: point.sums", "gradient_products: point.products"),
    )

    def __init__(
        self, problem: Problem, engine: Engine, directions: int | None = None, both: bool = False
    ) -> None:
        #: ``solved`` is what rounds minimise: the problem, or one with another loss in its place.
        self.problem = self.solved = problem
        self.engine = engine
        #: Most columns of a party whose first answer has all of its directions; whether all have answered.
        self.most_first, self.began, self.asked_first = 0, False, dict[int, int]()
        self.limit, self.most_directions = directions_per_party(problem.n_parties), directions
        self.correction = Correction()
        self.idle, self.in_vain = 0, 0.0
        n = problem.n_samples
        self.store = MessageStore(n, engine)
        self.owner = np.empty(0, dtype=np.int64)
        self.point = SpanPoint(np.empty(0), 0.0, np.zeros(n))
        self.metric: np.ndarray | None = None
        self.usual: Any = None  # mean of the metric
        self.hessian: Any = SpanHessian(problem.fit_intercept)
        self.n_rounds = 0
        #: Directions that span all weights.
        self.n_columns = sum(block.shape[1] for block in problem.blocks)
        self.moves = Moves()
        self.primal: PrimalValue | None = None
        few = problem.convex and problem.n_outputs == 1 and has_few_rows(n, self.n_columns)
        self.few_rows = FewRows(n) if few else None
        if self.few_rows is not None:
            self.limit = directions_for_few_rows(problem.n_parties, n)
        # Messages of few numbers are not worth rounding.
        self.rounded = RoundedMessages(n) if both and self.few_rows is None else None
        self.asks_twice = both and self.few_rows is not None
        self._parties_are_large = sum(getattr(block, "nbytes", 0) for block in problem.blocks) > _SMALL_BYTES

    def answer_at_once(self, most: int) -> None:
        """Let parties of so many columns at most answer first with all of their directions."""
        self.most_first = most
        if not self.solved.loss.smooth and all(block.shape[1] <= most for block in self.problem.blocks):
            self.few_rows = None  # the first answers span everything

    def take_many_rounds(self) -> None:
        self.most_first = 0

    @property
    def descends(self) -> bool:
        return self.problem.loss.smooth

    # --- the current point ------------------------------------------------------------------------------

    @property
    def messages(self) -> np.ndarray:
        """V of shape (K, N)."""
        return self.store.rows[: len(self.owner)]

    def reopen(self) -> float:
        problem, guess = self.problem, 0.0
        if problem.fit_intercept:  # one sum instead of some steps, each of a few passes
            mean = self.engine.dot(problem.y, problem.weight) / problem.total_weight
            guess = problem.loss.intercept_of_mean(mean)
            if guess and problem.loss.smooth:
                span = Span(self.solved, self.messages, self.engine)
                self.point = span.evaluated(replace(self.point, intercept=guess))
                excess, size = self.point.sums or (math.inf, 0.0)
                if not abs(excess) <= _NEARLY_BEST * size:
                    guess = 0.0  # an offset: a formula knows better, or Newton's method
        return self.start(guess).loss

    def start(self, intercept: float = 0.0) -> PrimalValue:
        """Evaluate the current point with its best intercept."""
        point = self.point
        known = point.known if intercept == point.intercept else None
        primal = primal_value(self.solved, point.total, intercept, self.engine, known)
        if primal.gradient is not point.gradient:
            point.products = None  # those of another intercept's gradient
        point.intercept, point.loss, point.gradient = primal.intercept, primal.loss, primal.gradient
        point.sums = primal.sums
        self.primal = primal
        # With few rows, send the gradient of the model of the whole problem next.
        if self.few_rows is not None and self.few_rows.aim(self.solved, self.messages, self.engine):
            self.aim_again()
        return self.primal

    def aim_again(self) -> None:
        """Ask about the gradient that was found last for this, if there was one."""
        if self.few_rows is not None and self.primal is not None and len(self.few_rows.asked):
            self.primal = replace(self.primal, gradient=self.few_rows.dual, dual_feasible=False)

    def dual_point(self) -> tuple[np.ndarray, float, np.ndarray] | None:
        """Sum of messages, intercept, and the gradient there that is sent next; None before the start."""
        known, point = self.few_rows, self.point
        if known is not None and len(known.asked) and known.dual.any():
            return known.total, known.intercept, known.dual
        return None if point.gradient is None else (point.total, point.intercept, point.gradient)

    def restart(self) -> None:
        """Evaluate the current point at its present intercept, to the same bits as when it was saved."""
        point = self.point
        self.primal = primal_at(self.solved, point.total, point.intercept, self.engine, point.loss)
        point.loss, point.gradient = self.primal.loss, self.primal.gradient

    def set_problem(self, problem: Problem) -> None:
        """Continue with another loss: the current point has to be evaluated anew."""
        self.solved = problem
        self.point.loss, self.point.gradient = math.nan, None

    def begin_at(self, weights: Sequence[np.ndarray], intercept: Any) -> None:
        # The weights become every party's first direction, their norm its coefficient.
        norms = np.array([float(np.linalg.norm(x)) for x in weights])
        owner = np.flatnonzero(norms > 0.0)
        messages = np.empty((len(owner), self.problem.n_samples))
        for k, m in enumerate(owner.tolist()):
            party = self.parties[m]
            party.directions = (weights[m] / norms[m])[np.newaxis]
            messages[k] = party.block.product(party.directions[0], self.engine)
        self._begin_with(messages, owner, norms[owner], intercept)

    def _begin_with(self, messages: np.ndarray, owner: np.ndarray, c: np.ndarray, intercept: Any) -> None:
        """Begin at a combination of messages, of shape (K, N), with coefficients of shape (K,)."""
        self.store.adopt(messages)
        self.owner, self.point = owner, SpanPoint(c, intercept, self.engine.combine(c, messages))
        self._at_start(self.point)
        self.start(self.point.intercept)

    def _at_start(self, point: SpanPoint) -> None:
        """Hook for subclasses: called with the point that :meth:`begin_at` found."""

    def coefficients(self, m: int) -> np.ndarray:
        """Coefficients of party m, in the order of its directions; of classes of shape (C, K_m)."""
        return self.point.coefficients[..., self.owner == m]

    def each_coefficients(self) -> list[np.ndarray]:
        """:meth:`coefficients` of every party."""
        by_party = self.point.coefficients[np.argsort(self.owner, kind="stable")]
        widths = np.bincount(self.owner, minlength=self.problem.n_parties).tolist()
        return [by_party[begin:end] for begin, end in pairwise(accumulate(widths, initial=0))]

    def regulariser(self) -> float:
        """``lambda W / 2`` times the squared norm of all weights."""
        c = self.point.coefficients
        return 0.5 * self.problem.regularization * float(c @ c)

    @property
    def complete(self) -> bool:
        """Whether the directions span all weights."""
        return len(self.owner) >= self.n_columns

    # --- a round ----------------------------------------------------------------------------------------

    def round(self) -> Talk[Measured]:
        scale = self.problem.regularization
        start = self.primal if self.primal is not None else self.start()
        total, regulariser = self.point.total, self.regulariser()
        stationarity = sum((yield from self.exchange()))
        after = (self.primal or start).loss + self.regulariser()
        bound = self._lower_bound(start, total, regulariser, stationarity / (2.0 * scale))
        corrected = after + self.correction.objective, bound + self.correction.bound
        others = self.rounded is not None or self.few_rows is not None
        if others or self.witness is not None or not start.dual_feasible:
            # The loss's gradient at the weights may prove less than this one.
            self.raise_bound(corrected[1], start.gradient)
        lyapunov = stationarity / (1.0 + scale) ** 2
        return self._measured(*corrected, stationarity, lyapunov, augmented_lagrangian=after)

    def _lower_bound(self, start: PrimalValue, total: np.ndarray, regulariser: float, gaps: float) -> float:
        """Lower bound that the parties' answers at the start of a round prove, summed scaling."""
        if start.dual_feasible:
            return start.loss + regulariser - gaps
        return dual_bound(self.problem, start.gradient, total, regulariser, gaps, self.engine)

    def exchange(self) -> Talk[list[float]]:
        r"""One exchange with every party, then the minimisation over the span; the squared residuals."""
        primal = self.primal if self.primal is not None else self.start()
        before = primal.loss + self.regulariser()
        yield from self._renew_metric()
        if self.rounded is not None:
            of_kind = self._restate(primal) if self.rounded.is_left else self._pairs(primal, self.rounded)
            return (yield from of_kind)
        self.correction = Correction()
        newton, known, also = self.asks_newton(), len(self.owner), self._second_question(primal)
        answers = yield from self._ask(primal.gradient, newton, also)
        squared = [float(answer["squared_residual"]) for answer in answers]
        if self.few_rows is not None:
            for asked in (also, primal.gradient):
                if asked is not None:
                    self.few_rows.learn(asked, self.messages, known, self.engine)
        old = self.point.coefficients
        gap = self.proved_gap(squared, primal)
        yield from self._descend(gap, before)
        yield from self._compress(old)
        after = self.start(self.point.intercept).loss + self.regulariser()
        self.n_rounds += 1
        self.idle = self.idle + 1 if before - after <= _NOTHING * abs(before) else 0
        if (few := self.few_rows) is not None and few.proves_no_more(gap, gains=self.idle == 0):
            # Send the usual gradients once those of the model of the whole problem prove no more.
            self.few_rows = None
            if len(few.asked):
                self.start(self.point.intercept)
        return squared

    def _renew_metric(self) -> Talk[None]:
        """Tell parties the loss's curvature, where any may be asked for Newton's direction."""
        first, widths = self._first(), [block.shape[1] for block in self.problem.blocks]
        settled = self.complete or all(width <= first.get(m, 0) for m, width in enumerate(widths))
        if not settled and self._metric_is_stale():
            yield self._exchange("set_metric", [{"curvature": self.metric}] * self.problem.n_parties)

    def asks_newton(self) -> bool:
        """Whether the next directions are Newton's; these and gradients take turns."""
        return self.few_rows is None and self.n_rounds % 2 == 0

    def _pairs(self, primal: PrimalValue, rounded: RoundedMessages) -> Talk[list[float]]:
        """A round of two directions in single precision."""
        gradient, old, slopes = primal.gradient.copy(), self.point.coefficients, self.point.products
        answers = yield self._at_once(self.at(gradient, "respond_pair"))
        known = len(old)
        for m, answer in enumerate(answers):
            self._take_first(m, answer)
            sent = [key for key in ("first", "second") if key in answer]
            self._append(m, [answer[key] for key in sent], [answer[f"{key}_scale"] for key in sent])
        fresh = self.messages[known:]
        rounded.learn(fresh, self.engine)
        if slopes is None:
            errors = -self._slopes(gradient)
        else:  # of the messages before, the step to this point has them
            errors = -np.append(slopes, self.engine.dot(fresh, gradient))
        squared = self._of_answers(answers, errors)
        start = np.pad(old, (0, len(self.owner) - len(old)))
        gap, before = self.proved_gap(squared, primal), primal.loss + self.regulariser()
        yield from self._descend(gap, before, errors)
        after = self.start(self.point.intercept).loss + self.regulariser()
        spread = rounded.spread(self.point.coefficients, self.engine)
        self.correction = rounded.correction(
            self.solved, start, gradient, errors, self.point, spread, self.engine
        )
        # With columns far larger than lambda the gap is far above what is left to gain: then rounds tell.
        hidden = _ROUNDING_IS_LEFT * abs(self.correction.objective)
        self.idle = self.idle + 1 if before - after <= max(hidden, _NOTHING * abs(before)) else 0
        rounded.is_left = gap <= hidden or self.idle > 1
        yield from self._compress(old)
        return squared

    def _of_answers(self, answers: Answers, errors: np.ndarray) -> list[float]:
        """Squared residuals; products that parties know exactly are added to ``errors``, of shape (K,)."""
        for m, answer in enumerate(answers):
            errors[self.owner == m] += answer["products"]
        return [float(answer["squared_residual"]) for answer in answers]

    def _at_once(self, exchange: Exchange) -> Exchange:
        """The same exchange; in the first round some parties are asked for more directions at once."""
        self.asked_first, self.began = self._first(), True
        calls = []
        for call in exchange.calls:
            if call.party in self.asked_first:
                given = call.made()
                known = {"gradient": given["gradient"][np.newaxis], "coefficients": given["coefficients"]}
                told = {"most": self.asked_first[call.party], "exact": self.rounded is None}
                call = Call(call.party, "respond_first", {**known, **told})
            calls.append(call)
        return replace(exchange, calls=calls)

    def _first(self) -> dict[int, int]:
        """Parties that are asked for many directions now, and how many: all, or some of too many."""
        if self.began or self.few_rows is not None or not self.most_first:
            return {}
        limit = self._most_per_party()
        some = min(SOME_FIRST, limit // 2) if self.rounded is not None else 0
        widths = [block.shape[1] for block in self.problem.blocks]
        first = {m: d if d <= min(self.most_first, limit) else some for m, d in enumerate(widths)}
        return {m: count for m, count in first.items() if count == widths[m] or count > 2}

    def _take_first(self, m: int, answer: dict[str, Any]) -> None:
        """Move the messages of a first answer here, if it is one: no other directions change anything."""
        rows = answer.pop("messages", answer.pop("short_messages", None))
        if rows is None:
            return
        self._append(m, rows, answer.get("scales"))
        if self.asked_first[m] == (d := self.problem.blocks[m].shape[1]):
            self.n_columns -= d - int((self.owner == m).sum())

    def _restate(self, primal: PrimalValue) -> Talk[list[float]]:
        """Start again at the same weights, with messages in double precision."""
        gradient, c, n = primal.gradient.copy(), self.point.coefficients, self.problem.n_samples
        answers = yield self.at(gradient, "restate")
        errors = -self._slopes(gradient)
        squared = self._of_answers(answers, errors)
        norms = np.array([np.linalg.norm(self.coefficients(m)) for m in range(len(answers))])
        kept = [m for m, answer in enumerate(answers) if "message" in answer]
        messages = np.array([answers[m]["message"] for m in kept]).reshape(len(kept), n)
        self.rounded, self.hessian = None, SpanHessian(self.problem.fit_intercept)
        self.moves, self.idle = Moves(), 0
        self.correction = Correction(bound=float(c @ errors))
        self._begin_with(messages, np.array(kept, dtype=np.int64), norms[kept], self.point.intercept)
        return squared

    def _slopes(self, gradient: np.ndarray) -> np.ndarray:
        """V g, of shape (K,)."""
        products: np.ndarray = self.engine.dot(self.messages, gradient)
        return products

    def proved_gap(self, squared: Sequence[float], primal: PrimalValue) -> float:
        """Gap that the parties' residuals prove at the start of a round, summed scaling."""
        gap = sum(squared) / (2.0 * self.problem.regularization)
        if self.few_rows is None or primal.dual_feasible:
            return gap
        regulariser = self.regulariser()
        bound = dual_bound(self.solved, primal.gradient, self.point.total, regulariser, gap, self.engine)
        return min(gap, max(primal.loss + regulariser - bound, 0.0))

    def _descend(self, gap: float, objective: float, tilt: np.ndarray | None = None) -> Talk[None]:
        """Minimise over the span after the parties' answers, which certified a gap."""
        pairs = self.rounded is not None or self.asks_twice
        tolerance = span_tolerance(gap, objective, self.complete, self.wanted, pairs)
        if self.most_first:  # more would be lost in what rounding of messages may hide
            tolerance = max(tolerance, _SPAN_KEEPS * abs(self.correction.objective))
        tolerance = max(tolerance, self.in_vain)
        if self.few_rows is not None:
            self.few_rows.tolerance = tolerance
        self.point = yield from self._best_of_span(tolerance, tilt)

    def _best_of_span(self, tolerance: float, tilt: np.ndarray | None) -> Talk[SpanPoint]:
        """:meth:`minimise`; here no party has to be asked for it."""
        yield from ()
        return self.minimise(tolerance, tilt)

    def minimise(self, tolerance: float, tilt: np.ndarray | None = None) -> SpanPoint:
        """The best point of the span, to a tolerance in the summed scaling."""
        given = self.solved, self.messages, self.point, tolerance, self.engine, self.hessian, tilt
        return minimise_over_span(*given)

    def _exchange(self, name: str, arguments: Sequence[dict[str, Any]]) -> Exchange:
        """Ask all parties: in parallel, or one after another if that keeps more threads busy."""
        n, threads = self.problem.n_parties, self.engine.n_threads
        pace = Pace.TOGETHER if self._parties_are_large else Pace.SHORT
        if self._parties_are_large and n < 4 * threads and n % threads:
            pace = Pace.IN_TURN  # their passes over rows are cut up instead
        return Exchange([Call(m, name, own) for m, own in enumerate(arguments)], pace)

    def at(self, gradient: np.ndarray, name: str, **more: Any) -> Exchange:
        """Ask all parties what they have to say of a loss gradient at the current weights.

        Shapes: gradient (N,).
        Scaling: gradient summed scaling.
        """
        question = {"gradient": gradient, **more}
        return self._exchange(name, [{**question, "coefficients": own} for own in self.each_coefficients()])

    def _curvature(self) -> np.ndarray:
        """Of the loss at the current point, of shape (N,)."""
        problem, h = self.solved, self.engine.vector(self.problem.n_samples)
        problem.loss.curvature_parts(problem, self.point.total, self.point.intercept, h, self.engine)
        return h

    def _metric_is_stale(self) -> bool:
        """Renew the metric if the curvature has drifted from it; True if it was renewed."""
        h = self._curvature()
        share, mean = drift_share(h, self.metric, self.usual, self.engine)
        if share <= 1.0:
            return False
        if not mean > 0.0:  # every sample on a flat piece of its loss
            mean = penalty_unit(self.solved, self.engine)
        self.metric, self.usual = raised(h, mean, self.engine), mean
        return True

    def _second_question(self, primal: PrimalValue) -> np.ndarray | None:
        """With few rows and two answers wanted, the second vector to send; None for none.

        The gradients at the model's minimiser and at the span's are both worth sending. In the end they are
        nearly equal, so the second vector is their difference. In the first round it is a vector of ones, for
        columns with a large mean.
        """
        few, own = self.few_rows, self.point.gradient
        if not self.asks_twice or few is None:
            return None
        return np.ones_like(primal.gradient) if own is None or not len(few.asked) else primal.gradient - own

    def _ask(self, gradient: np.ndarray, newton: bool, also: np.ndarray | None = None) -> Talk[Answers]:
        """Every party's answer, with its messages stored."""
        if self.complete and self.knows_penalty and self.few_rows is None:
            left = self._slopes(gradient) + self.problem.regularization * self.point.coefficients
            squares = np.bincount(self.owner, left * left, minlength=self.problem.n_parties)
            return [{"squared_residual": float(square)} for square in squares]
        more = {} if also is None else {"also": also}
        answers = yield self._at_once(self.at(gradient, "respond", newton=newton, **more))
        for m, answer in enumerate(answers):
            self._take_first(m, answer)
            self._append(m, [answer[key] for key in ("message", "other") if key in answer])
        return answers

    def _append(self, m: int, messages: Any, scales: Sequence[float] | None = None) -> None:
        known, c = len(self.owner), self.point.coefficients
        self.store.make_room(known, known + len(messages), self.most_messages)
        for k, message in enumerate(messages):
            row = self.store.rows[known + k]
            row[:] = message
            if scales is not None:
                row *= scales[k]
        self.owner = np.append(self.owner, np.full(len(messages), m))
        self.point.coefficients = np.append(c, np.zeros((*c.shape[:-1], len(messages))), axis=-1)

    @property
    def most_messages(self) -> int:
        """Most messages of all parties, during a round."""
        return (self._most_per_party() + 1) * self.problem.n_parties

    def _most_per_party(self) -> int:
        limit = self.limit
        return limit if self.most_directions is None else min(limit, max(2, self.most_directions))

    def _compress(self, before: np.ndarray) -> Talk[None]:
        """Record the move from coefficients ``before``; parties with too many directions discard some."""
        limit = self._most_per_party()
        self.moves.record(before, self.point.coefficients, limit - 1)
        while len(crowded := np.flatnonzero(np.bincount(self.owner) > limit)):
            places = [np.flatnonzero(self.owner == m) for m in crowded]
            gone = [self.moves.forgettable(self.point.coefficients, mine) for mine in places]
            calls = [Call(m, "forget", {"direction": own}) for m, (own,) in zip(crowded.tolist(), gone)]
            yield Exchange(calls, Pace.SHORT)
            self._forget(places, gone)

    def _forget(self, places: Sequence[np.ndarray], gone: Sequence[np.ndarray]) -> None:
        """Rotate each party's directions, in these places, and drop some, as the party does.

        Shapes: places (K_m,), gone (n, K_m) of each.
        """
        c, leaves, dropped = self.point.coefficients, self.engine.leaves(self.problem.n_samples), []
        turns = [(mine, *turn) for mine, own in zip(places, gone) for turn in reflections(own)]
        for mine, unit, row in turns:
            self.hessian.reflect(unit, mine)
            self.moves.reflect(unit, mine)
            turned = unit != 0.0  # of all parties' sums two
            self.engine.by_leaf(partial(reflect_rows, self.store.rows, mine[turned], unit[turned]), leaves)
            c[..., mine] -= np.multiply.outer(2.0 * (c[..., mine] @ unit), unit)
            dropped.append(int(mine[row]))
        self.hessian.drop(dropped)
        self.moves.drop(dropped)
        stay, point = np.delete(np.arange(len(self.owner)), dropped), self.point
        self.store.keep(stay.tolist())
        point.coefficients, point.products = point.coefficients[..., stay], None
        self.owner = self.owner[stay]

    # --- for the solver ---------------------------------------------------------------------------------

    @property
    def intercept(self) -> Any:
        return self.point.intercept

    def final_arguments(self, m: int) -> dict[str, Any]:
        return {"coefficients": self.coefficients(m)}

    @property
    def total(self) -> np.ndarray:
        return self.point.total

    def weight_norms(self) -> list[float]:
        # Directions are orthonormal: the coordinator knows the norms without the weights.
        c = self.point.coefficients
        return np.sqrt(np.bincount(self.owner, c * c, minlength=self.problem.n_parties)).tolist()

    def place(self, count: int) -> np.ndarray:
        return self.store.place(count, self.most_messages)

    def export(self) -> dict[str, Any]:
        return {"messages": self.messages, **super().export()}

    def restore(self, saved: Mapping[str, Any]) -> None:
        # A run continues as it began, whatever would be chosen today; or gave up on few rows.
        self.rounded = RoundedMessages(self.problem.n_samples) if "rounded_squares" in saved else None
        if "asked" not in saved or self.rounded is not None:
            self.few_rows = None
        self.point = replace(self.point, sums=None, products=None)
        check_pair(saved, "metric", "usual")
        super().restore(saved)
        self.usual = None if self.usual is None else float(self.usual)
        if self.point.sums is not None:
            self.point.sums = self.point.sums[0], self.point.sums[1]
        k, moves = len(self.owner), self.moves.rows
        self.store.take(saved["messages"], k, self.most_messages)
        if self.point.coefficients.shape[-1] != k or (len(moves) and moves.shape[-1] != k):
            raise ValueError("messages")
        few = self.few_rows
        if few and (few.asked.shape[1:] != few.dual.shape or few.images.shape != few.asked.shape):
            raise ValueError("asked")
        self._go_on()
        self.restart()
        self.aim_again()

    def _go_on(self) -> None:
        """Hook for subclasses: called with what was saved, before the current point is evaluated."""
