"""The coordinator of proximal Newton sharing: directions, model and proposal, and the rounds between them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from fastadmm.conversation.exchange import Answers, Call, Exchange, Pace, Talk
from fastadmm.coordinator.metric_limits import (
    all_at_once,
    directions_for_faces,
    directions_of_few_numbers,
    drift_share,
    in_common,
    raised,
)
from fastadmm.coordinator.proximal.best_response import Candidates, padded
from fastadmm.coordinator.proximal.chord_newton import Place, passes_over
from fastadmm.coordinator.proximal.face_search import FaceSearch, Found
from fastadmm.coordinator.proximal.parts import HullPoint, difference, loss_at, predictor
from fastadmm.coordinator.proximal.segment_search import SegmentPenalty, best_position
from fastadmm.coordinator.proximal.shared_directions import SharedDirections
from fastadmm.coordinator.proximal.shared_hull import minimise_over_shared_hull
from fastadmm.coordinator.smoothing import Smoothing
from fastadmm.engine.engine import Engine
from fastadmm.engine.singular import singular
from fastadmm.method.certificate import PrimalValue, inner, penalty_unit, primal_value
from fastadmm.method.class_certificate import best_primal, class_curvature_about, primal_at, shifted
from fastadmm.method.method import Method, check_pair
from fastadmm.parties.face import FaceParty
from fastadmm.problem.problem import Problem

Array = np.ndarray

#: The small problems are solved to this share of the gap, and at least of this share of the objective.
_ACCURACY = 1e-3
_LARGEST_GAP = 1e-3

#: A proposal that brought less than this share of what it promised is followed by a round from the model.
_KEPT_PROMISE = 0.1

#: Proposals for a smoothed loss are solved to this share: a slope that counts in the gap lowers a stiff loss
#: by next to nothing.
_SHARP_ACCURACY = 1e-12

_ROUNDING = 1e-12

#: A model that is off a face by this share of its coefficients is on it but for rounding.
_ON_FACE = 1e-11

#: What a sum over all samples loses, as a share of it.
_ROUNDING_OF_VALUE = 1e-15

#: Curvatures are not averaged over less than this share of the largest predictor: rounding.
_SHORT_REACH = 1e-8

#: Share of the parabolas' stiffness in a proposal: at least, where a proposal was too long, and at most.
_LEAST_STIFFNESS, _SOME_STIFFNESS, _MOST_STIFFNESS = 1e-4, 1e-2, 1.0

#: The most that a search is stiffened, until its promise can be true.
_STIFFEST = 100.0

#: A proposal that was good up to here only is stiffened; from there on that is relaxed.
_SHORT, _FULL = 0.5, 0.9

#: With the most directions, so many of the oldest make room at a time.
_LEAVING = 4

#: Centres of the smoothing that one search may have, its width each time smaller by a factor: until smoothing
#: causes this share of the gap, most of which the next round is to take away.
_MOST_CENTRES, _NARROWER, _AHEAD = 10, 0.5, 0.05

#: Fewer directions than this a party cannot do with: those of model, proposal and answer, and one to spare.
_LEAST_DIRECTIONS = 4


class ProximalCoordinator(Method):
    r"""Directions, model and proposal, and the rounds between them.

    Shapes: sent, repaired (N,); penalties, lengths (M,).
    """

    SAVED: ClassVar[tuple[str, ...]] = (
        *("directions: shared", "plain", "gap", "promised", "n_bad", "limit", "stiffness", "reach"),
        *("n_rounds", "model", "proposal", "metric", "usual", "repaired"),
    )

    def __init__(self, problem: Problem, engine: Engine, directions: int | None = None) -> None:
        #: ``solved`` is what rounds minimise: the problem, or one with a smoothed loss in its place.
        self.problem = self.solved = problem
        self.engine = engine
        self.n_parts = problem.n_parties * problem.n_outputs
        widths, rows = [block.shape[1] for block in problem.blocks], engine.all_rows(problem.n_samples)
        self.limit = directions_for_faces(self.n_parts, rows, problem.loss.smooth)
        self.accuracy = _ACCURACY if problem.loss.smooth else _SHARP_ACCURACY
        self.common = directions is None and in_common(problem)
        if self.common:  # never more than columns
            self.limit = max(self.limit, *widths)
        self.most = self.limit
        #: Whether directions span all columns, from the first answers on.
        self.whole = all_at_once(widths, rows, directions) and (problem.n_outputs == 1 or self.common)
        if self.whole:
            self.limit = self.most = max(self.limit, *widths)
        elif directions is not None:
            self.limit = min(self.limit, max(_LEAST_DIRECTIONS, directions))
            self.most = max(self.limit, min(self.most, directions_of_few_numbers(self.n_parts, rows)))
        # Of all parts: one has one more than its limit until its oldest make room.
        kind = problem.n_outputs, problem.fit_intercept, self.n_parts * (self.most + 2)
        self.shared = SharedDirections(problem.n_samples, engine, *kind)
        self.store = self.shared.store
        self.model = self.proposal = self._point(np.empty(0))
        self.candidates = Candidates(self.n_parts)
        self.metric: Array | None = None
        self.usual: Any = None  # mean of the metric
        self.primal: PrimalValue | None = None
        self.gap = math.inf
        self.promised, self.stiffness, self.reach = 0.0, _LEAST_STIFFNESS, 0.0
        self.n_rounds = 0
        strength = problem.regularization
        shares = np.array([r.shares for r in problem.party_regularizers])
        self.shares = strength * np.repeat(shares, problem.n_outputs, axis=0)
        self._norms = self.penalties = self.lengths = np.zeros(self.n_parts)
        self.heaviest = 0.0
        self._faces: Answers = []  # of the last answers
        self._ahead: FaceSearch | None = None
        self.n_bad = 0
        self.patient = self.asks_sizes = False
        self.smoothing: Smoothing | None = None
        self.sent = np.zeros(0)
        self.repaired: Array | None = None

    def start(self) -> Talk[None]:
        """Begin at the feasible point nearest to zero; only parties whose set leaves zero out are asked."""
        sets, each = self.solved.party_constraints, self.solved.n_outputs
        away = [m for m in range(self.n_parts) if float(sets[m // each].project(np.zeros(1))[0]) != 0.0]
        c = np.empty(0)
        if away:
            answers = yield Exchange([Call(m, "feasible_start") for m in away])
            for m, answer in zip(away, answers):
                if "message" in answer:
                    self.shared.add_to([m], answer["message"], answer["products"])
                    c = np.append(c, answer["coefficients"])
        self.model = self.proposal = self._point(c)

    def _point(self, c: Array) -> HullPoint:
        """A combination of directions, with intercepts of zero."""
        classes = self.solved.n_outputs
        return HullPoint(c, 0.0 if classes == 1 else np.zeros(classes), self.shared.combined(c))

    def add_start(self, parties: Sequence[FaceParty], weights: Sequence[Array]) -> PrimalValue:
        """Make given weights of every party of this process, each of shape (d,), the model."""
        c = self.model.coefficients
        for m, (party, x) in enumerate(zip(parties, weights, strict=True)):
            answer = party.describe(x)
            if "message" in answer:
                sharing = self._with(m)
                self.shared.add_to(sharing, answer["message"], answer["products"])
                c = np.append(c, np.zeros(len(sharing)))
                for k in sharing:
                    parties[k].directions = party.directions
            c[self.shared.of(m)] = answer["coefficients"]
        self.model = self.proposal = HullPoint(c, self.model.intercept, self.shared.combined(c))
        self.repaired = None
        return self.evaluate()

    def restart(self) -> None:
        """Evaluate the proposal at the intercept it has, to the bit as when it was saved."""
        point = self.proposal
        primal = primal_at(self.solved, point.total, point.intercept, self.engine)
        self.primal = primal if self.repaired is None else replace(primal, gradient=self.repaired)

    def evaluate(self, place: Place | None = None) -> PrimalValue:
        """Loss and gradient at the proposal, whose place may be known, with the best intercept."""
        point = self.proposal
        self.primal = self.primal_of(self.solved, point, place=place)
        point.intercept = self.primal.intercept
        return self.primal

    def primal_of(
        self, problem: Problem, point: HullPoint, intercept: Any = None, place: Place | None = None
    ) -> PrimalValue:
        """Loss and gradient at a point, with the best intercept, looked for from its own or another."""
        start = point.intercept if intercept is None else intercept
        if place is None:
            place = self.shared.place_of(point, problem.loss)
        if place is None or (problem.loss.vector and problem.fit_intercept):
            return best_primal(problem, point.total, start, self.engine)
        if problem.loss.vector:
            return PrimalValue(place.loss, place.gradient, np.zeros(problem.n_outputs), True)
        known = place.loss, place.gradient, place.sums
        return primal_value(problem, point.total, place.intercept, self.engine, known)

    def _of_part(self, m: int, v: Any) -> Array:
        """What a part sees of a vector of shape (N,) or (C N,)."""
        classes = self.solved.n_outputs
        return v if classes == 1 else v.reshape(classes, -1)[m % classes]

    def coefficients(self, m: int) -> Array:
        """Coefficients of party m's directions in the model."""
        return self.model.coefficients[self.shared.owner == m]

    def _square(self, c: Array, m: int, other: Array) -> float:
        """Inner product of party m's weights at coefficients of shape (K,)."""
        mine = self.shared.of(m)
        return float(c[mine] @ self.shared.products[np.ix_(mine, mine)] @ other[mine])

    def _squares(self, point: HullPoint) -> Array:
        """Squared norms of all parties' weights, of shape (M,)."""
        c = point.coefficients
        return np.array([self._square(c, m, c) for m in range(self.n_parts)])

    def _value(self, point: HullPoint) -> float:
        """The objective at the model, whose norms are known."""
        first, second = self.shares.T
        return self._loss(point) + float(first @ self._norms) + 0.5 * float(second @ self._squares(point))

    def _loss(self, point: HullPoint) -> float:
        problem = self.solved
        place = self.shared.place_of(point, problem.loss)
        if place is not None:
            return float(place.loss)
        return loss_at(problem, point, np.empty_like(point.total), self.engine)

    def exchange(self) -> Talk[Answers]:
        """Exchange vectors with every party, and choose the new model."""
        primal = self.primal if self.primal is not None else self.evaluate()
        if self._metric_is_stale():
            metrics = [self._of_part(m, self.metric) for m in range(self.n_parts)]
            yield Exchange([Call(m, "set_metric", {"curvature": own}) for m, own in enumerate(metrics)])
        self.sent = primal.gradient
        self.n_rounds += 1
        plain = self.proposal is self.model
        answers = yield self._gradient(self.sent, plain)
        for m, answer in enumerate(answers):
            for message, products in zip(answer.get("messages", ()), answer.get("products_of_all", ())):
                self.shared.add_to(self._with(m), message, products[: len(self.shared.of(m)) + 1])
            if "message" in answer:
                self.shared.add_to(self._with(m), answer["message"], answer["products"])
        for point in self._points():
            point.coefficients = padded(point.coefficients, len(self.shared))
        self._norms = np.array([float(answer["norms"][0]) for answer in answers])
        before = self._value(self.model)
        tolerance = _ACCURACY * min(self.gap, _LARGEST_GAP * abs(before))
        best = math.nan if plain else self._best_on_segment(answers, tolerance)
        old, unresolved = self.model, not plain and self.promised == 0.0
        norms = self._norms
        self.model, bound = self._best_of_hull(answers, best, tolerance, before)
        if best > 0.0 and not self.solved.loss.convex and self._value(self.model) > before:
            # The line search has found another valley, and a higher one.
            self.model, self._norms = old, norms
            self.model, bound = self._best_of_hull(answers, 0.0, tolerance, before)
        # Whether the whole segment to the proposal is in the set.
        if unresolved and all(float(answer["proposal_positions"][-1]) == 1.0 for answer in answers):
            self._less_steep(answers, before, bound)
        self._faces = answers
        self._ahead = self._advanced(bound)
        if self.asks_sizes and any("excess" in answer for answer in answers):
            yield from self._describe_model()  # only they know how large their weights are
        squares = self._squares(self.model)
        self.lengths = np.sqrt(np.maximum(squares, 0.0))
        self.penalties = self.shares[:, 0] * self._norms + 0.5 * self.shares[:, 1] * squares
        moved = difference(self.solved, self.model, old, self.engine)
        square = inner(moved, moved, self.engine, self.solved.n_outputs)
        rows = self.engine.all_rows(self.solved.n_samples)
        self.reach = math.sqrt(square / (rows * self.solved.n_outputs))
        gained = before - self._value(self.model)
        # A promise below the value's rounding cannot be checked, and does not count as broken.
        counts = self.promised > _ROUNDING * abs(before)
        bad = counts and gained < _KEPT_PROMISE * self.promised
        self.n_bad = self.n_bad + 1 if bad else 0
        return answers

    def _with(self, m: int) -> Sequence[int]:
        """The parts that have a direction of part m in common."""
        if not self.common:
            return [m]
        classes = self.solved.n_outputs
        return range(m - m % classes, m - m % classes + classes)

    def _gradient(self, gradient: Array, plain: bool) -> Exchange:
        calls, first = [], self.whole and self.n_rounds == 1
        for m in range(self.n_parts):
            mine = self.shared.of(m)
            arguments = {"gradient": self._of_part(m, gradient), "model": self.model.coefficients[mine]}
            if self.common:
                arguments["common"] = True
            missing = self.solved.blocks[m // self.solved.n_outputs].shape[1] - len(mine)
            if first and missing > 0:
                arguments["most"] = missing
            if not self.solved.loss.convex:
                arguments["curvature"] = self.solved.loss.gradient_lipschitz
            if not plain:
                arguments["proposal"] = self.proposal.coefficients[mine]
            calls.append(Call(m, "best_response", arguments))
        return Exchange(calls)

    def _describe_model(self) -> Talk[None]:
        """Ask for norms of the model."""
        each = range(self.n_parts)
        answers = yield Exchange([Call(m, "describe_model", {"model": self.coefficients(m)}) for m in each])
        self._norms = np.array([float(answer["norm"]) for answer in answers])
        self.heaviest = max(float(answer.get("heaviest", 0.0)) for answer in answers)

    def _less_steep(self, answers: Answers, before: float, bound: float) -> None:
        """Make a proposal in the set the model whose lower slope the objective cannot resolve.

        Not where the hull's model, at most ``bound``, is lower by more than rounding, or the proposal higher.
        """
        rounding = _ROUNDING_OF_VALUE * abs(before)
        if bound < before - rounding:
            return
        norms, self._norms = self._norms, np.array([answer["proposal_norms"][-1] for answer in answers])
        if self._value(self.proposal) <= before + rounding:
            self.model = self.proposal
        else:
            self._norms = norms

    def _best_on_segment(self, answers: Answers, tolerance: float) -> float:
        """Line search towards the proposal; how far was right says how stiff the next one is to be."""
        x, y = self.model.coefficients, self.proposal.coefficients
        step = y - x
        penalties = []
        for m, answer in enumerate(answers):
            square = (self._square(x, m, x), 2.0 * self._square(x, m, step), self._square(step, m, step))
            along = answer["proposal_positions"], answer["proposal_norms"]
            penalties.append(SegmentPenalty(*along, square, *self.shares[m]))
        place = self.shared.place_of(self.model, self.solved.loss)
        known = place and place.gradient, None if self.primal is None else self.primal.gradient
        best = best_position(self.solved, self.model, self.proposal, penalties, self.engine, known)
        if best < _SHORT and self.promised > tolerance:
            self.stiffness = min(max(_SOME_STIFFNESS, 10.0 * self.stiffness), _MOST_STIFFNESS)
        elif best > _FULL or best < _SHORT:
            self.stiffness = max(0.1 * self.stiffness, _LEAST_STIFFNESS)
        return best

    def _best_of_hull(
        self, answers: Answers, best: float, tolerance: float, before: float
    ) -> tuple[HullPoint, float]:
        """The best model between the old one, the answers, and points whose norms are known; its bound."""
        shared, x, y = self.shared, self.model.coefficients, self.proposal.coefficients
        found: list[tuple[int, Array, float]] = []
        for m, answer in enumerate(answers):
            mine = shared.of(m)
            points = self.candidates.of(m, x[mine], float(self._norms[m]), y[mine], best, answer)
            found += [(m, c, norm) for c, norm in points]
        owner = np.array([m for m, _, _ in found])
        square = np.zeros((len(found), len(found)))
        rows = np.zeros((len(found), len(shared)))
        for m in range(len(answers)):
            mine, these = shared.of(m), np.flatnonzero(owner == m)
            own = np.array([found[i][1] for i in these])
            rows[np.ix_(these, mine)] = own
            products = own @ shared.products[np.ix_(mine, mine)] @ own.T
            square[np.ix_(these, these)] = self.shares[m, 1] * products
        linear = self.shares[owner, 0] * np.array([norm for _, _, norm in found])
        # Start where the line search ended.
        first = np.append(True, owner[1:] != owner[:-1]) * 1.0
        intercept = self.model.intercept
        if best > 0.0:
            first = np.append(False, first[:-1])
            intercept = intercept + best * (self.proposal.intercept - intercept)
        passes = passes_over(self.solved, shared, self.engine)
        # Parabolas may lead away from what the search has gained.
        if best > _FULL and not self.solved.loss.convex:
            before -= 0.5 * self.promised
        given = (passes, rows, linear, square, owner, first, self.model, intercept, tolerance, before)
        model, bound, weights = minimise_over_shared_hull(*given)
        # Norms are convex: this is the most that they are, and what they are at points and where signs agree.
        shares: Array = weights * np.array([norm for _, _, norm in found])
        norms: Array = np.bincount(owner, shares, minlength=self.n_parts)
        self._norms = norms
        return model, bound

    def propose(self) -> Talk[None]:
        """Choose where the next gradient is taken, and evaluate there.

        Where a search from the answers' faces leads; at the model itself where that promises nothing, and
        after a proposal that was bad.
        """
        found = None
        if self.n_bad == 0 and self._ahead is not None:
            self._ahead.know(self.solved, self._value(self.model), self.tolerance)
            found = self._narrowed(self._ahead)
        self.proposal, self.promised, self.repaired = self.model, 0.0, None
        if found is not None:
            self.proposal, self.promised = found.point, found.promised
        else:
            if self.n_bad == 0:  # stiff parabolas may be all that is left between answers and model
                self.stiffness = 0.0
            self.n_bad = 0
        primal = self.evaluate(None if found is None else found.place)
        if found is None and self.solved.convex and (faces := self._faces_here()):
            search = FaceSearch(self, faces, self._value(self.model), 0.0)
            self.repaired = search.repaired(self.model, primal.gradient)
            if self.repaired is not None:
                self.primal = replace(primal, gradient=self.repaired)
        yield from self._compress()

    def _faces_here(self) -> Answers:
        """The answers' faces, if the model is on all of them."""
        for m, face in enumerate(self._faces):
            anchor, basis = face["coefficients"], face["basis"]
            away = self.coefficients(m) - anchor
            rest = np.abs(away - basis @ (basis.T @ away)).max(initial=0.0)
            if not float(rest) <= _ON_FACE * float(np.abs(anchor).max(initial=0.0)):
                return []
        return self._faces

    def _narrowed(self, search: FaceSearch) -> Found | None:
        """The end of a search, from which it goes on with a loss that is smoothed less, and less again."""
        found, smoothing = search.found(), self.smoothing
        columns = sum(block.shape[1] for block in self.solved.blocks)
        for _ in range(_MOST_CENTRES if len(self.shared) == columns else 0):
            if smoothing is None:
                break
            point = self.model if found is None else found.point
            if not smoothing.narrow(point.intercept + point.total, _AHEAD * self.gap, _NARROWER):
                break
            self.solved = smoothing.smoothed()
            search.know(self.solved, self._value(self.model), self.tolerance)
            if not search.advance():
                break
            found = search.found()
        return found

    def tolerance(self, value: float) -> float:
        """To which searches are solved, about an objective."""
        return self.accuracy * min(self.gap, _LARGEST_GAP * abs(value))

    def _points(self) -> list[HullPoint]:
        """All points that are kept, each once."""
        return [self.model] if self.proposal is self.model else [self.model, self.proposal]

    def _advanced(self, value: float) -> FaceSearch | None:
        """A search's first end, whose promise can be true; None without any freedom."""
        stiffness = self.stiffness
        while True:
            search = FaceSearch(self, self._faces, value, stiffness)
            if not search.advance():
                return None
            if stiffness >= _STIFFEST or not self.solved.convex:
                return search
            if (found := search.found()) is None or found.promised <= self.gap:  # no more can be kept
                return search
            stiffness = max(_SOME_STIFFNESS, 10.0 * stiffness)

    def _compress(self) -> Talk[None]:
        """Of every party with too many, turn the oldest into what model and proposal use of them.

        While the gap hardly falls nothing is forgotten for which there is room: faces are cut out of the
        span of what is kept, and too few directions leave nothing free on them.
        """
        if self.patient and int(np.bincount(self.shared.owner).max(initial=0)) > self.limit:
            self.limit = min(2 * self.limit, self.most)
        for m in range(self.n_parts):
            mine = self.shared.of(m)
            if len(mine) <= self.limit:
                continue
            oldest = mine[: min(_LEAVING, self.limit - 2) + 2]
            points = self._points()
            used = np.array([point.coefficients[oldest] for point in points])
            _, sizes, right = singular(used, whole=False)
            rank = int((sizes > 1e-15 * max(float(sizes[0]), 1e-300)).sum())
            rotation = right[: max(rank, 1)]
            yield Exchange([Call(m, "recombine", {"rotation": rotation})], Pace.SHORT)
            self.shared.recombine(m, rotation)
            self.candidates.forget(m)
            for point, new in zip(points, (rotation @ used.T).T):
                c = point.coefficients.copy()
                c[oldest[: len(rotation)]] = new
                point.coefficients = np.delete(c, oldest[len(rotation) :])

    def _metric_is_stale(self) -> bool:
        """Move the metric to the current curvature if it has drifted; True if it was moved."""
        problem = self.solved
        h = self._curvature(self.proposal)
        share, mean = drift_share(h, self.metric, self.usual, self.engine, problem.n_outputs)
        if not (0.0 < mean < math.inf):  # every sample on a flat piece of its loss
            mean = penalty_unit(problem, self.engine)
            h = np.full_like(h, mean)
            share, _ = drift_share(h, self.metric, self.usual, self.engine, problem.n_outputs)
        if share <= 1.0:
            return False
        self.metric, self.usual = raised(h, mean, self.engine), mean
        return True

    def _curvature(self, point: HullPoint) -> Array:
        """Curvature of the loss at a point, averaged over how far predictors have moved lately.

        A loss with flat pieces has none at most samples, and an answer that does not know what
        curvature it is about to meet goes too far.
        """
        problem, engine, reach = self.solved, self.engine, self.reach
        loss, y, weight = problem.loss, problem.y, problem.weight
        z = predictor(problem, point, engine)
        if loss.vector:  # the same, added up in another order
            z = shifted(problem.offset, point.intercept) + point.total
        h, each = np.empty(len(z)), z.reshape(problem.n_outputs, -1)
        farthest = max(float(engine.each_largest(each, sign).max()) for sign in (1.0, -1.0))
        if not reach > _SHORT_REACH * farthest:
            return self._upward(loss.curvature(z, y, weight, h, engine))
        if loss.vector:
            return class_curvature_about(problem, z, reach, h, engine)
        behind = np.empty(len(z))
        for shift, slopes in ((reach, h), (-reach, behind)):
            loss.measure(problem, point.total, point.intercept + shift, slopes, engine)
        return self._upward(engine.plus(h, behind, factor=-1.0, scale=0.5 / reach, out=h))

    def _upward(self, h: Array) -> Array:
        """A curvature of shape (N,), written over by its size where a loss that is not convex bends down.

        Where the loss is about to bend the other way, an answer that takes it to be flat goes too far.
        """
        return h if self.solved.loss.convex else self.engine.each(np.abs, h, out=h)

    @property
    def plain(self) -> int:
        """Whether the proposal is the model."""
        return int(self.proposal is self.model)

    @plain.setter
    def plain(self, plain: int) -> None:
        self.proposal = self.model if plain else replace(self.model)

    def export(self) -> dict[str, Any]:
        saved = super().export()
        saved["older"] = self.candidates.export([len(self.coefficients(m)) for m in range(self.n_parts)])
        place = self.shared.place_of(self.model, self.solved.loss)
        if place is not None:
            known = {"loss": place.loss, "products": place.products, "sums": np.array(place.sums)}
            saved["model"] = {**saved["model"], "known": known}
        return saved

    def restore(self, saved: Mapping[str, Any]) -> None:
        check_pair(saved, "metric", "usual")
        super().restore(saved)
        self.usual = None if self.usual is None else float(self.usual)
        if self.smoothing is not None:
            self.solved = self.smoothing.smoothed()
        self.candidates.restore(saved["older"])
        if (known := saved["model"].get("known")) is not None:
            # Where the model's loss is taken decides on last digits.
            products, sums = (np.array(known[key], dtype=np.float64) for key in ("products", "sums"))
            if len(products) > len(self.shared):
                raise ValueError("known")
            passes = passes_over(self.solved, self.shared, self.engine)
            place = passes.restored(self.model, float(known["loss"]), products, sums)
            self.shared.known = self.solved.loss, place
        self.restart()
