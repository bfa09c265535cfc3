"""Proximal Newton sharing of few columns in one process: all of them at once instead of directions.

As many independent directions as a party has columns span all its weights
(:mod:`fastadmm.coordinator.subspace.whole_span`). If columns are few, sending them all at once is less work
than rounds by directions. The coordinator then knows the penalty, which is a sum over weights, and minimises
over all weights (:mod:`fastadmm.coordinator.proximal.narrow_newton`); the gradient there proves the gap. A
run that gains nothing more continues with the parties' best responses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastadmm.conversation.exchange import Talk
from fastadmm.coordinator.certificate import PrimalValue
from fastadmm.coordinator.method import Measured
from fastadmm.coordinator.metric_limits import MOST_TOGETHER, directions_for_faces, in_common
from fastadmm.coordinator.multinomial.narrow import all_columns_pay as class_columns_pay
from fastadmm.coordinator.penalised_bound import DualShare, bound_from_shares
from fastadmm.coordinator.proximal.hull import HullPoint
from fastadmm.coordinator.proximal.narrow_newton import loss_alone, minimise_over_all_columns
from fastadmm.coordinator.proximal.proximal import ProximalMethod
from fastadmm.coordinator.subspace.span import Span, SpanPoint
from fastadmm.coordinator.subspace.span_hessian import SpanHessian
from fastadmm.coordinator.subspace.whole_span import whole_span_pays
from fastadmm.coordinator.subspace.work_of_ways import FACES
from fastadmm.engine.engine import Engine
from fastadmm.problem.problem import Problem

__all__ = [
    "SHARE_OF_WANTED",
    "UNWANTED",
    "AllColumnsMethod",
    "NarrowProximalMethod",
    "all_columns_pay",
    "goes_by_all_columns",
    "most_columns",
    "penalty_is_a_sum",
    "same_sum_over_weights",
]

Array = np.ndarray

#: The first round ends with a step that promises less than this share of the wanted gap.
_ACCURACY = 1e-3

#: The share of a later round is that of the round before times the squared ratio of the gap to aim at (the
#: third of these numbers times the wanted one) to the current gap, a factor that is kept between the first
#: two.
_SHARPEST, _LEAST_SHARPER, SHARE_OF_WANTED = 1e-6, 0.25, 0.3

#: With no more numbers than this in all columns, a party may send more columns than it keeps directions.
_FEW_NUMBERS = 1 << 23

#: Relative gap to aim at in runs without a wanted one.
UNWANTED = 1e-12


def penalty_is_a_sum(problem: Problem) -> bool:
    """Whether the loss is smooth, and :func:`same_sum_over_weights`."""
    if not (problem.loss.smooth and problem.convex):
        return False
    return same_sum_over_weights(problem)


def same_sum_over_weights(problem: Problem) -> bool:
    """Whether regulariser and set are the same sum over weights at every party, and zero is in the set."""
    penalties = {(r.shares, c.bounds) for r, c in zip(problem.party_regularizers, problem.party_constraints)}
    sums = all(r.separable for r in problem.party_regularizers)
    sets = all(
        math.isinf(own.radius) and own.bounds[0] <= 0.0 <= own.bounds[1] for own in problem.party_constraints
    )
    return len(penalties) == 1 and sums and sets


def goes_by_all_columns(problem: Problem, engine: Engine) -> bool:
    """Whether to send all columns at once, where the parties are in this process."""
    n, shapes = engine.all_rows(problem.n_samples), [(b.shape[1], b.density) for b in problem.blocks]
    widths, densities = zip(*shapes)
    if not penalty_is_a_sum(problem):
        return False
    if problem.n_outputs > 1:
        return in_common(problem) and class_columns_pay(n, widths, problem.n_outputs)
    return all_columns_pay(n, widths, densities, problem.loss.name == "squared")


def all_columns_pay(
    n_samples: int, widths: Sequence[int], densities: Sequence[float], quadratic: bool = True
) -> bool:
    """Whether all columns are less work than directions, and no more memory or little."""
    return whole_span_pays(n_samples, widths, densities, most_columns(n_samples, widths), quadratic, FACES)


def most_columns(n_samples: int, widths: Sequence[int]) -> int:
    """How many columns of a party the coordinator may hold."""
    kept = directions_for_faces(len(widths), n_samples) + 2  # a party keeps these in any case
    return MOST_TOGETHER if n_samples * sum(widths) <= _FEW_NUMBERS else kept


class AllColumnsMethod(ProximalMethod):
    """Rounds with all columns, then by best responses."""

    #: How all columns are used, for the reasons that parties state.
    how: str

    def __init__(self, problem: Problem, engine: Engine, wanted: float) -> None:
        super().__init__(problem, engine)
        self.wanted, self.whole = wanted, True

    def make_parties(self) -> list[Any]:
        parties = super().make_parties()
        for party in parties if self.whole else ():
            party.reason += f"; in one process all columns are {self.how}"
        return parties

    def prove(self) -> list[dict[str, Any]]:
        """Take in the bound that the loss gradient at the model proves; the parties' answers."""
        coordinator, sent = self.coordinator, self.coordinator.primal.gradient
        answers = self._proofs(sent)
        coordinator.sent, coordinator.n_rounds = sent, coordinator.n_rounds + 1
        proved = bound_from_shares(self.problem, sent, [DualShare.read(a) for a in answers], self.engine)
        self.raise_bound(proved, sent)
        return answers

    def _proofs(self, gradient: Array) -> list[dict[str, Any]]:
        """What a loss gradient proves at the weights of every part."""
        return [party.bound_at(gradient, x) for party, x in zip(self.parties, self.weights())]

    def export(self) -> dict[str, Any]:
        return {**super().export(), "whole": self.whole}

    def restore(self, saved: dict[str, Any]) -> None:
        super().restore(saved)
        self.whole = bool(saved.get("whole", False))  # not in runs that began without it


class NarrowProximalMethod(AllColumnsMethod):
    """Rounds with all columns as directions: Newton's method over their weights."""

    how = "sent at once"

    def __init__(self, problem: Problem, engine: Engine, wanted: float) -> None:
        super().__init__(problem, engine, wanted)
        self._goal: float | None = None

    def begin_at(self, weights: Sequence[Array], intercept: Any) -> None:
        coordinator = self.coordinator
        if not self.whole:
            super().begin_at(weights, intercept)
            return
        self.send_columns()
        c = np.concatenate(self._parts(weights)[1])
        coordinator.model = coordinator.proposal = HullPoint(c, intercept, coordinator.shared.combined(c))
        self._intercept = coordinator.evaluate().intercept

    def go_on_from(self, weights: Sequence[Array], intercept: Any, gradient: Array) -> None:
        if self.whole:
            self.begin_at(weights, intercept)
        else:
            super().go_on_from(weights, intercept, gradient)

    def send_columns(self) -> None:
        """Make every column a direction, of weight zero, unless they are."""
        shared, widths = self.coordinator.shared, [block.shape[1] for block in self.problem.blocks]
        if not self.whole or len(shared):
            return
        for party, own in zip(self.parties, shared.of_units(widths)):
            party.send_columns(own)
        self.coordinator.model.coefficients = np.zeros(len(shared))

    def go_by_directions(self) -> None:
        """Ask for best responses from now on; columns that were sent become directions as others are."""
        if self.whole and len(self.coordinator.shared):
            self.measure_columns()
        self.whole = False

    def measure_columns(self) -> None:
        """Divide the columns by their sizes, in which parties measure their directions; the weights stay."""
        coordinator, (parts, _) = self.coordinator, self._parts(self.weights())
        for party in self.parties:
            party.measure_columns()
        sizes = np.concatenate([part.span.scale for part in parts])
        coordinator.shared.divide(sizes)
        coordinator.model.coefficients = coordinator.model.coefficients * sizes

    def round(self) -> Talk[Measured]:
        if not self.whole:
            return (yield from super().round())
        coordinator, bound, wanted = self.coordinator, self.bound, self.wanted
        self.send_columns()
        primal = coordinator.primal
        before = self.objective(primal)
        objective = self._minimise_from(primal, before)
        answers = self.prove()
        coordinator.gap = max(objective - self.bound, 0.0)
        ends = 0.0 < coordinator.gap <= wanted * self.bound
        # If nothing is gained, what remains is rounding, because columns differ much in size.
        idle = not ends and (
            self.watch.stalls(coordinator.gap) or not (self.bound > bound or objective < before)
        )
        if idle:
            self.go_by_directions()
        parts, weights = self._parts(self.weights())
        coordinator.penalties = np.array([part.penalty.value(x) for part, x in zip(parts, weights)])
        coordinator.lengths = np.array([float(np.linalg.norm(x)) for x in weights])
        squared = sum(float(answer["squared"]) for answer in answers)
        return self._measured(objective, self.bound, squared, squared)

    def _minimise_from(self, primal: PrimalValue, objective: float) -> float:
        """:meth:`minimise` from the model, where loss and gradient are these."""
        model = self.coordinator.model
        # The gradient's sums are computed afresh, as in a resumed run.
        known = model.coefficients, primal.intercept, model.total, primal.loss, primal.gradient
        return self.minimise(SpanPoint(*known), objective)

    def minimise(self, point: SpanPoint, objective: float) -> float:
        """Move the model to the best weights; the objective there."""
        coordinator, shared = self.coordinator, self.coordinator.shared
        span = Span(loss_alone(self.problem), shared.messages, self.engine)
        found = self.best(span, point, objective, shared.hessian)
        coordinator.model = coordinator.proposal = HullPoint(found.coefficients, found.intercept, found.total)
        primal = coordinator.evaluate()
        self._intercept = primal.intercept
        return self.objective(primal)

    def best(self, span: Span, point: SpanPoint, objective: float, hessian: SpanHessian) -> SpanPoint:
        """The best weights from a point with an objective on, over the span of all columns."""
        penalty = self.parties[0].penalty
        return minimise_over_all_columns(self.problem, penalty, span, point, self.goal(objective), hessian)

    def goal(self, objective: float) -> float:
        """A step that promises less than this ends the round; from the objective."""
        wanted = self.wanted or UNWANTED
        if self._goal is None:
            self._goal = _ACCURACY * wanted
        else:  # the gap is linear in the slopes that remain, the gain of a step is quadratic
            gap, enough = self.coordinator.gap, SHARE_OF_WANTED * wanted * abs(self.bound)
            missing = enough / gap if enough < gap < math.inf else 1.0
            self._goal *= min(max(missing**2, _SHARPEST), _LEAST_SHARPER)
        return self._goal * abs(objective)

    def objective(self, primal: PrimalValue) -> float:
        """The objective at the parties' weights, whose loss is given."""
        return primal.loss + sum(p.penalty.value(x) for p, x in zip(*self._parts(self.weights())))

    def export(self) -> dict[str, Any]:
        own = {} if self._goal is None else {"goal": self._goal}
        return {**super().export(), **own}

    def restore(self, saved: dict[str, Any]) -> None:
        super().restore(saved)
        self._goal = float(saved["goal"]) if "goal" in saved else None
