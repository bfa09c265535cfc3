r"""Subspace sharing for smooth non-convex losses with squared l2: monotone descent to a stationary point.

Rounds are those of :mod:`fastadmm.coordinator.subspace.subspace`. Over the span the
coordinator takes Newton steps: with the Hessian itself where it is positive definite and the
step a direction of descent, else with the positive part of the loss's
curvature, and backtracks until the objective falls by Armijo's rule. So the
objective never increases, and since the block gradients are in the span every other round, the
gradients tend to zero (``docs/theory.md``).

The first rounds minimise a convex loss in its place (Huber, logistic), whose
minimiser, unlike zero weights, usually lies near a good local minimum: the
idea of MM-estimates (Yohai 1987). Every number that is reported is about the loss itself.

The regulariser ``log_sum`` is smooth, so rounds and steps are the same. But it is a sum over weights, which
the coordinator does not know. The parties answer what a step over the span needs (its value, slope and matrix
of curvatures), in one exchange for each trial point. If the Hessian is not positive definite, quadratic upper
bounds of log_sum take its place, as in iteratively reweighted ridge regression.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.linalg

from fastadmm.conversation.exchange import Call, Exchange, Pace, Talk
from fastadmm.coordinator.stationarity import Progress, intercept_part, start_point
from fastadmm.coordinator.subspace.subspace import SubspaceMethod
from fastadmm.engine.engine import Engine
from fastadmm.method.certificate import PrimalValue, primal_value
from fastadmm.method.method import Measured
from fastadmm.method.span import SpanPoint, span_solver
from fastadmm.method.span_hessian import SpanHessian
from fastadmm.parties.log_sum_direction import LogSumDirectionParty
from fastadmm.problem.problem import Problem
from fastadmm.problem.regularizers import SquaredL2

_MAX_STEPS = 30
_MAX_HALVINGS = 60

#: Share of the decrease that the slope promises (Armijo).
SUFFICIENT = 1e-4

#: If a step promises no more than the first share of the objective, rounding may raise it by the second.
_FLAT, _ROUNDING = 1e-13, 1e-15

#: Smallest cosine between a step with the Hessian itself and the negative gradient.
_MIN_COSINE = 1e-6

#: The convex start is over at this relative gap of its own, or after so many rounds.
_START_GAP = 1e-2
_START_ROUNDS = 15


@dataclass
class Bend:
    r"""The regulariser as a function of the coefficients, at some of them, in the summed scaling.

    Shapes: slope (K,); exact, above (K, K).
    """

    value: float
    slope: np.ndarray  # of shape (K,)
    exact: np.ndarray  # of shape (K, K)
    above: np.ndarray  # of shape (K, K)


def descend_over_span(
    problem: Problem,
    messages: np.ndarray,
    point: SpanPoint,
    tolerance: float,
    engine: Engine,
    bend: Callable[[np.ndarray], Talk[Bend]],
    most_steps: int = _MAX_STEPS,
) -> Talk[tuple[SpanPoint, Bend]]:
    """Newton's method with backtracking for a loss that need not be convex; never returns a worse point.

    Shapes: messages (K, N).
    Scaling: tolerance summed scaling.
    """
    loss, y, weight = problem.loss, problem.y, problem.weight
    gradient, curvature = np.empty(len(y)), np.empty(len(y))

    def loss_at(total: np.ndarray, b: float) -> float:
        return loss.evaluate(problem.offset + b + total, y, weight, gradient, engine)

    def system(curvature: np.ndarray, penalty: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        slope, hessian = _span_system(messages, gradient, curvature, problem.fit_intercept, engine)
        slope[: len(c)] += here.slope
        hessian[: len(c), : len(c)] += penalty
        return slope, hessian

    c, b, total = point.coefficients, point.intercept, point.total
    here = yield from bend(c)
    current = loss_at(total, b) + here.value
    for _ in range(most_steps):
        loss.curvature(problem.offset + b + total, y, weight, curvature, engine)
        slope, hessian = system(curvature, here.exact)
        step = _newton_step(hessian, slope)
        if step is None:
            slope, hessian = system(np.maximum(curvature, 0.0), here.above)
            if problem.fit_intercept:
                # Without any curvature left the intercept still needs a finite step.
                hessian[-1, -1] += 1e-6 * problem.total_weight * (loss.gradient_lipschitz or 1.0)
            step = -span_solver(hessian)(slope)
        decrease = -float(slope @ step)
        if not (math.isfinite(decrease) and decrease > 0.0):
            break
        change = step[: len(c)]
        move = engine.combine(change, messages)
        linear, square = change @ here.slope, change @ here.above @ change
        rise = float(step[-1]) if problem.fit_intercept else 0.0
        length, slack = 1.0, _ROUNDING * abs(current) if decrease <= _FLAT * abs(current) else 0.0
        for halving in range(_MAX_HALVINGS):
            trial = total + length * move, c + length * change, b + length * rise
            following = loss_at(trial[0], trial[2])
            if halving:  # nobody is asked: a bound is enough
                penalty = here.value + length * linear + 0.5 * length * length * square
            else:
                there = yield from bend(trial[1])
                penalty = there.value
            if following + penalty <= current + slack - SUFFICIENT * length * decrease:
                break
            length *= 0.5
        if halving:
            there = yield from bend(trial[1])
        following += there.value
        if not following < current + slack:
            break
        (total, c, b), current, here = trial, following, there
        if 0.5 * decrease <= tolerance:
            break
    return SpanPoint(c, b, total), here


def _newton_step(hessian: np.ndarray, slope: np.ndarray) -> np.ndarray | None:
    """Newton step, if the Hessian is positive definite and the step not nearly orthogonal to the gradient."""
    size = np.sqrt(np.maximum(np.diag(hessian), 0.0))
    if not (size > 0.0).all():
        return None
    try:
        factor = scipy.linalg.cho_factor(hessian / np.outer(size, size), check_finite=False)
    except scipy.linalg.LinAlgError:
        return None
    step = -scipy.linalg.cho_solve(factor, slope / size, check_finite=False) / size
    norms = float(np.linalg.norm(step)) * float(np.linalg.norm(slope))
    return step if -float(slope @ step) > _MIN_COSINE * norms else None


def _span_system(
    messages: np.ndarray, gradient: np.ndarray, curvature: np.ndarray, intercept: bool, engine: Engine
) -> tuple[np.ndarray, np.ndarray]:
    """Gradient and Hessian of the loss in the coefficients (and, last, the intercept)."""
    k = len(messages)
    size = k + 1 if intercept else k

    def piece(rows: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
        part = messages[:, rows[0] : rows[1]]
        g, h = gradient[rows[0] : rows[1]], curvature[rows[0] : rows[1]]
        slope, hessian = np.empty(size), np.empty((size, size))
        slope[:k] = part @ g
        weighted = part * h
        hessian[:k, :k] = weighted @ part.T
        if intercept:
            slope[k] = g.sum()
            hessian[k, :k] = hessian[:k, k] = weighted.sum(axis=1)
            hessian[k, k] = h.sum()
        return slope, hessian

    slope, hessian = engine.sums(piece, engine.leaves(messages.shape[1]), size=size * size)
    return slope, 0.5 * (hessian + hessian.T)


class DescentSubspaceMethod(SubspaceMethod):
    """Subspace sharing for a problem that is not convex; the convex start has a convex problem."""

    SAVED = (*SubspaceMethod.SAVED, "starting", "reference: progress.reference")
    #: Most steps over the span in a round, and the regulariser at the end of the last one.
    most_steps, penalty = _MAX_STEPS, 0.0

    def __init__(self, problem: Problem, engine: Engine, directions: int | None = None) -> None:
        super().__init__(problem, engine, directions)
        self.progress = Progress()
        self._set_starting(True)

    def _set_starting(self, starting: bool) -> None:
        convex = self.problem.loss.convex_start()
        self.starting = starting and convex is not None
        loss = convex if self.starting and convex is not None else self.problem.loss
        self.set_problem(replace(self.problem, loss=loss))
        # The Hessian that a convex span keeps is not positive definite here.
        self.hessian = SpanHessian(self.problem.fit_intercept)

    def _best_of_span(self, tolerance: float, tilt: np.ndarray | None) -> Talk[SpanPoint]:
        if self.solved.convex and self.knows_penalty:
            return (yield from super()._best_of_span(tolerance, tilt))
        given = self.solved, self.messages, self.point, tolerance, self.engine
        point, bend = yield from descend_over_span(*given, self._bend, self.most_steps)
        self.penalty = bend.value
        return point

    def _bend(self, coefficients: np.ndarray) -> Talk[Bend]:
        """The regulariser: here squared l2, for which no party has to be asked."""
        yield from ()
        scale = self.problem.regularization
        curvature = scale * np.eye(len(coefficients))
        value = 0.5 * scale * float(coefficients @ coefficients)
        return Bend(value, scale * coefficients, curvature, curvature)

    def begin_at(self, weights: Sequence[np.ndarray], intercept: Any) -> None:
        self._set_starting(False)  # the loss itself is minimised from the first round on
        super().begin_at(weights, intercept)

    def prepare(self) -> Talk[float]:
        super().reopen()
        start = start_point(self.problem, self.engine)
        self.progress.reference = self._measure(start, (yield from self._squared(start)))
        if not self.starting:
            self.start(start.intercept)
        return start.loss

    def reopen(self) -> float:
        return start_point(self.problem, self.engine).loss

    def round(self) -> Talk[Measured]:
        squared = yield from self.exchange()
        if self.starting:  # until the convex loss is solved well enough
            gap = sum(squared) / (2.0 * self.problem.regularization)
            loss = self.primal.loss if self.primal is not None else math.inf
            if gap <= _START_GAP * loss or self.n_rounds >= _START_ROUNDS:
                self._set_starting(False)
                self.start(self.point.intercept)
        here = self.primal
        if self.starting or here is None:
            here = primal_value(self.problem, self.point.total, self.point.intercept, self.engine)
        gradients = yield from self._squared(here)
        objective, measure = here.loss + self.regulariser(), self._measure(here, gradients)
        stationarity = self.progress.relative(measure)
        return self._measured(objective, -math.inf, gradients, measure, stationarity=stationarity)

    def _squared(self, primal: PrimalValue) -> Talk[float]:
        """Squared norm of all block gradients of the objective."""
        answers = yield self.at(primal.gradient, "squared_residual")
        return sum(float(answer["squared_residual"]) for answer in answers)

    def _measure(self, primal: PrimalValue, gradients: float) -> float:
        """V at a model: the prox-gradient of squared l2 is the gradient over ``1 + lambda W``.

        ``gradients``: from :meth:`_squared`.
        """
        scale = 1.0 + self.problem.regularization
        return gradients / scale**2 + intercept_part(self.problem, primal.gradient, self.engine)

    def restore(self, saved: Mapping[str, Any]) -> None:
        self._set_starting(bool(saved["starting"]))
        super().restore(saved)


class LogSumSubspaceMethod(DescentSubspaceMethod):
    """Subspace sharing with ``log_sum``."""

    family = LogSumDirectionParty.family
    party_type = LogSumDirectionParty
    knows_penalty = False
    SAVED = (*DescentSubspaceMethod.SAVED, "penalty")
    most_steps = 3  # each is an exchange, and more hardly save a round

    def set_problem(self, problem: Problem) -> None:
        # What is left of the problem when the parties answer for their regularisers.
        super().set_problem(replace(problem, regularizers=[SquaredL2()] * problem.n_parties))

    def regulariser(self) -> float:
        return self.penalty

    def _bend(self, coefficients: np.ndarray) -> Talk[Bend]:
        places = [np.flatnonzero(self.owner == m) for m in range(self.problem.n_parties)]
        calls = [Call(m, "bend", {"coefficients": coefficients[mine]}) for m, mine in enumerate(places)]
        answers = yield Exchange(calls, Pace.SHORT)
        k = len(coefficients)
        found = Bend(0.0, np.empty(k), np.zeros((k, k)), np.zeros((k, k)))
        for mine, answer in zip(places, answers):
            found.value += float(answer["value"])
            found.slope[mine] = answer["slope"]
            found.exact[np.ix_(mine, mine)] = answer["exact"]
            found.above[np.ix_(mine, mine)] = answer["above"]
        return found

    def _at_start(self, point: SpanPoint) -> None:
        own = [self.coefficients(m) for m in range(self.problem.n_parties)]
        self.penalty = sum(party.bend(c)["value"] for party, c in zip(self.parties, own))

    def _measure(self, primal: PrimalValue, gradients: float) -> float:
        """V at a model: a smooth regulariser is part of the gradient. ``gradients``: squared norm of all."""
        return gradients + intercept_part(self.problem, primal.gradient, self.engine)
