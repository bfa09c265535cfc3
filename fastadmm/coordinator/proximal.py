r"""Proximal Newton sharing: few rounds for regularisers with kinks and for sets.

Each round the coordinator proposes a model y, a combination of the points that
the parties have answered with so far, and sends the loss gradient there. Every
party solves its block's proximal Newton problem and answers with the message
of its solution, a new point, and with scalars. Two small problems follow at
the coordinator:

the model
    The best of all *convex* combinations of points: the regulariser of a
    combination is bounded by convexity, so the objective never increases.
the proposal
    The same where points that lie on the face of the model (same zeros, signs
    and bounds) may have weights of any sign: Newton's method over the face.
    Weights that leave their orthant or box on the way are the parties'
    to say: they report the regulariser at every kink between model and
    proposal, so that the next round begins with an exact line search.

See ``docs/solver.md`` and ``docs/theory.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fastadmm.coordinator.admm import AdmmMethod
from fastadmm.coordinator.certificate import PrimalValue, make_feasible, primal_value
from fastadmm.coordinator.hull import HullModel, HullPoint, minimise_over_hull
from fastadmm.coordinator.method import Measured, Method
from fastadmm.coordinator.penalised_bound import bound_from_shares
from fastadmm.coordinator.points import Points
from fastadmm.coordinator.way import Track, best_position
from fastadmm.engine import Engine
from fastadmm.hull_party import Answer, DualShare, HullParty, PointScalars
from fastadmm.problem import Problem

__all__ = ["ProximalCoordinator", "ProximalMethod", "points_per_party"]

Array = np.ndarray

#: Curvature below this share of its mean is raised to it: no metric may be singular.
_CURVATURE_FLOOR = 1e-6

#: Parties take in the curvature again when it has moved this far (root mean square of logarithms).
_METRIC_DRIFT = 0.5

#: The small problems are solved to this share of the gap, and at least of this share of the objective.
_ACCURACY = 1e-3
_LARGEST_GAP = 1e-3

#: Weights of points up to this count as zero when points are forgotten, and when faces are looked at.
_IDLE = 1e-9
_ON_FACE = 1e-6

#: A proposal that brought less than this share of what it promised is followed by a round from the model.
_KEPT_PROMISE = 0.1

_ROUNDING = 1e-12

#: Rounding in messages (:attr:`Points.growth`): parties send the model's own above the first, no proposal
#: goes beyond the second.
_RENEWED, _MOST_GROWTH = 1e2, 1e4

#: A proposal that was good up to here only is damped; from there on the damping is relaxed.
_SHORT, _FULL = 0.5, 0.9

#: Squared steps below this share of the squared weights are rounding.
_SHORTEST = 1e-8

#: After so many rounds in which the gap did not fall to this share, sharing goes on.
_PATIENCE, _PROGRESS = 20, 0.9

#: The width of the smoothing follows the gap (both in the loss's unit), as in ``subspace``.
_WIDTH_OF_GAP = 0.3

#: The same at given weights, as a share of the objective there.
_WIDTH_AT_START = 1e-3

#: Where there is no certificate the width falls by this factor a round.
_WIDTH_UNCERTIFIED = 0.7


def points_per_party(n_parties: int) -> int:
    """Most points a party keeps; those out of use are forgotten beyond it."""
    return max(8, min(32, 160 // n_parties))


class ProximalCoordinator:
    """Points, model and proposal, and the rounds between them.

    Parameters
    ----------
    problem : Problem
        With a smooth loss; may be replaced by one with another loss between rounds.
    engine : Engine

    Attributes
    ----------
    points : Points
    model : HullPoint
        The current model.
    proposal : HullPoint
        Where the next round's gradient is taken; the model itself in a plain round.
    primal : PrimalValue
        Loss and gradient at the proposal, intercept minimised out.
    gap : float
        Certified gap, summed scaling, as far as known.
    """

    def __init__(self, problem: Problem, engine: Engine) -> None:
        self.problem, self.engine = problem, engine
        self.points = Points(problem.n_samples)
        self._ways: dict[int, tuple[Array, int]] = {}
        self.model = self.proposal = HullPoint(np.empty(0), 0.0, np.zeros(problem.n_samples))
        self.multipliers = np.zeros(problem.n_parties)
        self.metric: Array | None = None
        self.primal: PrimalValue | None = None
        self.gap = math.inf
        self.promised = self.length = self.damping = 0.0
        self.n_rounds = self.n_factorisations = 0
        strength = problem.regularization
        self.bends = not all(r.separable for r in problem.party_regularizers)
        self.shares = strength * np.array([r.shares for r in problem.party_regularizers])

    def start(self, parties: Sequence[HullParty]) -> PrimalValue:
        """Take in the points that the parties start with, and evaluate there."""
        for m, (message, scalars) in enumerate(self.engine.map(lambda p: p.first(), parties)):
            self.points.add(m, message, scalars)
        total = self.points.messages.sum(axis=0)
        self.model = self.proposal = HullPoint(np.ones(len(parties)), 0.0, total)
        return self.evaluate()

    def add_start(self, parties: Sequence[HullParty], weights: Sequence[Array]) -> None:
        """Make given weights of every party a point, beside the one it starts with, and the model."""
        c = np.ones(len(parties))
        for m, (party, x) in enumerate(zip(parties, weights, strict=True)):
            known = party.keep(x)
            if known is not None:
                self.points.add(m, *known)
                c[m] = 0.0
                c = np.append(c, 1.0)
        self.model = self.proposal = HullPoint(c, self.model.intercept, c @ self.points.messages)
        self.evaluate()

    def restart(self) -> None:
        """Evaluate the proposal at the intercept it has, to the bit as when it was saved."""
        problem, point = self.problem, self.proposal
        gradient = np.empty(problem.n_samples)
        z = problem.offset + point.total + point.intercept
        value = problem.loss.evaluate(z, problem.y, problem.weight, gradient, self.engine)
        feasible = make_feasible(problem, z, gradient, self.engine)
        self.primal = PrimalValue(value, gradient, point.intercept, feasible)

    def evaluate(self) -> PrimalValue:
        """Loss and gradient at the proposal, with the best intercept."""
        point = self.proposal
        self.primal = primal_value(self.problem, point.total, point.intercept, self.engine)
        point.intercept = self.primal.intercept
        return self.primal

    def coefficients(self, m: int) -> Array:
        """Coefficients of party m's points in the model."""
        return self.model.coefficients[self.points.owner == m]

    def _hull(self, beyond: bool) -> HullModel:
        """What the small problems minimise besides the loss; ``beyond`` the hull for the proposal."""
        points, c = self.points, self.model.coefficients
        first, second = self.shares[points.owner].T
        linear, lower, curvature = first * points.norms, np.zeros(len(points)), second
        if beyond:
            # A sphere is as curved as its multiplier says.
            sphere = self.multipliers[points.owner]
            linear = linear - self.damping * (points.products @ c)
            curvature = curvature + sphere + self.damping
            lower[points.bent if self.bends else self._on_one_face(c)] = -math.inf
        square = curvature[:, None] * points.products
        if beyond and self.bends:
            bent = points.bent
            linear[bent] += first[bent] * (points.slopes - points.norms)[bent]
            square += first[:, None] * np.where(np.outer(bent, bent), points.curvatures, 0.0)
        return HullModel(points.messages, linear, square, lower, points.owner)

    def _on_one_face(self, c: Array) -> Array:
        """Points of each party on one common face, that of the model where its points have one.

        Between points of several faces the norm is below what is linear in the weights, and weights
        of any sign would promise what no party can keep: the points with the largest weights decide.
        """
        points = self.points
        found = np.zeros(len(points), dtype=bool)
        for m in range(self.problem.n_parties):
            mine = points.of(m)
            chosen: list[int] = []
            for k in mine[np.argsort(-c[mine], kind="stable")]:
                if c[k] > _ON_FACE and points.together[k, chosen].all():
                    chosen.append(int(k))
            found[points.faces[chosen].any(axis=0)] = True
        return found

    def _value(self, point: HullPoint, hull: HullModel) -> float:
        problem = self.problem
        z = problem.offset + point.intercept + point.total
        loss = problem.loss.evaluate(z, problem.y, problem.weight, np.empty_like(z), self.engine)
        return loss + hull.penalty(point.coefficients)

    def round(self, parties: Sequence[HullParty]) -> list[DualShare]:
        """One exchange with every party, then the new model and the next proposal.

        Parameters
        ----------
        parties : sequence of HullParty
            In the problem's order.

        Returns
        -------
        list of DualShare
            What the parties said of the gradient that the round *started* with.
        """
        primal = self.primal if self.primal is not None else self.evaluate()
        if self._metric_is_stale():
            metric = self.metric
            self.engine.map(lambda party: party.set_metric(metric), parties)  # type: ignore[arg-type]
        self.n_rounds += 1
        old, proposal = self.model, self.proposal
        ends = [
            (old.coefficients[mine], proposal.coefficients[mine])
            for mine in (self.points.of(m) for m in range(len(parties)))
        ]
        growth = [self._growth(old.coefficients, m) for m in range(len(parties))]
        answers = self.engine.map(
            lambda m: parties[m].respond(
                primal.gradient, *ends[m], proposal is not old, growth[m] > _RENEWED
            ),
            range(len(parties)),
        )
        before = self._value(old, self._hull(False))
        c = old.coefficients
        for m, answer in enumerate(answers):
            self.multipliers[m] = answer.multiplier
            if answer.settled is not None:
                mine = self.points.of(m)
                if answer.exact is not None:
                    self.points.add(m, answer.exact, answer.settled)
                else:
                    message = ends[m][0] @ self.points.messages[mine]
                    self.points.add(m, message, answer.settled, growth[m])
                c[mine] = 0.0
                c = np.append(c, 1.0)
        c, self._ways = self._padded(c), {}
        for m, answer in enumerate(answers):
            if answer.message is not None and answer.scalars is not None:
                self.points.add(m, answer.message, answer.scalars)
                if answer.turns:
                    self._ways[m] = (c[self.points.of(m)[:-1]], len(self.points) - 1)
            if answer.bend is not None:
                self.points.bend(m, answer.bend)
        c = self._padded(c)
        renewed = any(answer.exact is not None for answer in answers)
        self.model = HullPoint(c, old.intercept, c @ self.points.messages if renewed else old.total)
        tolerance = _ACCURACY * min(self.gap, _LARGEST_GAP * abs(before))
        if proposal is not old:
            self._add_best_on_the_way(parties, answers, ends, proposal, tolerance)
        self._add_turns(parties, answers)
        hull = self._hull(False)
        self.model = minimise_over_hull(self.problem, hull, self.model, tolerance, self.engine)
        gained = before - self._value(self.model, hull)
        self._compress(parties)
        # Promises lost in the value's rounding are kept as far as anyone can tell.
        counts = self.promised > _ROUNDING * abs(before)
        self.propose(plain=counts and gained < _KEPT_PROMISE * self.promised)
        return [answer.dual for answer in answers]

    def _growth(self, coefficients: Array, m: int) -> float:
        """Rounding in party m's message at coefficients of shape (K,), see :attr:`Points.growth`."""
        mine = self.points.of(m)
        mine = mine[mine < len(coefficients)]
        return float(np.abs(coefficients[mine]) @ self.points.growth[mine])

    def _within_growth(self, found: HullPoint) -> HullPoint:
        """As far on the way from the model as rounding in the messages allows."""
        c, step = self.model.coefficients, found.coefficients - self.model.coefficients
        length = 1.0
        for m in range(self.problem.n_parties):
            start, more = self._growth(c, m), self._growth(step, m)
            if start + more > _MOST_GROWTH:
                length = min(length, max(_MOST_GROWTH - start, 0.0) / more)
        if length == 1.0:
            return found
        rise = found.intercept - self.model.intercept
        total = self.model.total + length * (found.total - self.model.total)
        return HullPoint(c + length * step, self.model.intercept + length * rise, total)

    def _padded(self, coefficients: Array) -> Array:
        return np.append(coefficients, np.zeros(len(self.points) - len(coefficients)))

    def propose(self, plain: bool = False) -> None:
        """Choose where the next gradient is taken, and evaluate there; the model itself if ``plain``."""
        self.proposal, self.promised, self.length = self.model, 0.0, 0.0
        if not plain:
            hull = self._hull(True)
            start = self._value(self.model, hull)
            tolerance = _ACCURACY * min(
                self.gap, _LARGEST_GAP * abs(self._value(self.model, self._hull(False)))
            )
            found = minimise_over_hull(self.problem, hull, self.model, tolerance, self.engine)
            found = self._within_growth(found)
            step = found.coefficients - self.model.coefficients
            length = float(step @ self.points.products @ step)
            if length > 0.0:
                self.proposal = found
                self.promised, self.length = start - self._value(found, hull), length
        if self.proposal is self.model:
            self.damping *= 0.1
        self.evaluate()

    def _add_best_on_the_way(
        self,
        parties: Sequence[HullParty],
        answers: Sequence[Answer],
        ends: Sequence[tuple[Array, Array]],
        proposal: HullPoint,
        tolerance: float,
    ) -> None:
        """Line search towards the proposal; the kinks on both sides of the best place become points."""
        points, tracks = self.points, []
        for m, answer in enumerate(answers):
            x, y = ends[m]
            mine = points.of(m)
            known = mine[: len(x)]
            gram = points.products[np.ix_(known, known)]
            step = y - x
            norm = float(points.norms[mine] @ self.model.coefficients[mine])
            positions = np.array([0.0] + [p.at for p in answer.line])
            norms = np.array([norm] + [p.norm for p in answer.line])
            square = (float(x @ gram @ x), 2.0 * float(x @ gram @ step), float(step @ gram @ step))
            tracks.append(Track(positions, norms, square, *self.shares[m]))
        best = best_position(self.problem, self.model, proposal, tracks, self.engine)
        if best < _SHORT and self.promised > tolerance:
            # With this damping the way would have ended at about twice the best place.
            c = self._padded(proposal.coefficients)
            length = max(self.length, _SHORTEST * float(c @ self.points.products @ c))
            needed = self.promised / (2.0 * max(best, 1e-4) * length)
            self.damping = max(self.damping, needed)
        else:
            self.damping *= 0.1 if best > _FULL or best < _SHORT else 1.0
        for m, answer in enumerate(answers):
            x, y = ends[m]
            after = int(np.searchsorted(tracks[m].positions, best))
            for i in sorted({after - 1, min(after, len(answer.line))} - {-1, 0}):
                place = answer.line[i - 1]
                mine = points.of(m)
                c = np.zeros(len(mine))
                c[: len(x)] = x + place.at * (y - x)
                row = points.products[np.ix_(mine, mine)] @ c
                unknown = np.zeros(len(mine) - len(place.extends), dtype=bool)
                scalars = PointScalars(
                    place.norm,
                    np.append(row, c @ row),
                    np.append(place.extends, unknown),
                    np.append(place.extended, unknown),
                    np.append(place.together, unknown),
                )
                parties[m].keep_line(place.at)
                points.add(m, c @ points.messages[mine], scalars, float(np.abs(c) @ points.growth[mine]))
                points.bend_last(c)
        self.model.coefficients = self._padded(self.model.coefficients)

    def _add_turns(self, parties: Sequence[HullParty], answers: Sequence[Answer]) -> None:
        """Points on the ways from the old model to the answers, from scalars alone."""
        points = self.points
        for m, (start, end) in self._ways.items():
            for place in answers[m].turns:
                mine = points.of(m)
                c = np.zeros(len(mine))
                c[np.searchsorted(mine, end)] = place.at
                c[: len(start)] += (1.0 - place.at) * start
                row = points.products[np.ix_(mine, mine)] @ c
                unknown = np.zeros(len(mine) - len(place.extends), dtype=bool)
                scalars = PointScalars(
                    place.norm,
                    np.append(row, c @ row),
                    *(np.append(a, unknown) for a in (place.extends, place.extended, place.together)),
                )
                parties[m].keep_turn(place.at)
                points.add(m, c @ points.messages[mine], scalars, float(np.abs(c) @ points.growth[mine]))
                points.bend_last(c)
        self.model.coefficients = self._padded(self.model.coefficients)

    def _compress(self, parties: Sequence[HullParty]) -> None:
        """Forget idle points beyond the limit, those off the model's face and old ones first."""
        limit = points_per_party(len(parties))
        for m, party in enumerate(parties):
            mine = self.points.of(m)
            c = self.model.coefficients[mine]
            excess = len(mine) - limit
            if excess <= 0:
                continue
            on_face = self.points.faces[np.ix_(mine[c > _IDLE], mine)].any(axis=0)
            idle = np.flatnonzero(c <= _IDLE)
            leaving = idle[np.argsort(on_face[idle], kind="stable")][:excess]
            self.model.coefficients[mine[np.argmax(c)]] += c[leaving].sum()
            party.forget(leaving)
            self._forget(mine[leaving])
            while len(mine := self.points.of(m)) > limit:  # every point is in use
                pair = self.model.coefficients[mine[:2]]
                self.points.merge(int(mine[0]), int(mine[1]), pair / pair.sum())
                party.merge(pair / pair.sum())
                self.model.coefficients[mine[0]] = pair.sum()
                self._forget(mine[1:2])

    def _forget(self, numbers: Array) -> None:
        stay = self.points.forget(numbers)
        c = self.model.coefficients[stay]
        self.model = HullPoint(c, self.model.intercept, c @ self.points.messages)

    def _metric_is_stale(self) -> bool:
        """Move the metric to the current curvature if it has drifted; True if it was moved."""
        problem = self.problem
        z = problem.offset + self.proposal.intercept + self.proposal.total
        h = problem.loss.curvature(z, problem.y, problem.weight, np.empty(len(z)), self.engine)
        mean = float(h.mean())
        if not (0.0 < mean < math.inf):  # every sample on a flat piece of its loss
            mean = problem.loss.penalty_unit(problem.y, problem.weight, problem.offset, problem.lam)
            h = np.full_like(h, mean)
        h = np.maximum(h, _CURVATURE_FLOOR * mean)
        if self.metric is not None:
            importance = h + self.metric
            drift = np.log(h / self.metric)
            if float((drift * drift) @ importance) <= _METRIC_DRIFT**2 * float(importance.sum()):
                return False
        self.metric = h
        self.n_factorisations += 1
        return True

    def export(self) -> dict[str, Any]:
        """Everything a resumed run needs to go on bit for bit."""
        saved: dict[str, Any] = {
            "points": self.points.export(),
            "plain": int(self.proposal is self.model),
            "multipliers": self.multipliers,
            "gap": self.gap,
            "promised": self.promised,
            "length": self.length,
            "damping": self.damping,
            "n_rounds": self.n_rounds,
            "n_factorisations": self.n_factorisations,
        }
        for name, point in (("model", self.model), ("proposal", self.proposal)):
            saved[name] = {
                "coefficients": point.coefficients,
                "intercept": point.intercept,
                "total": point.total,
            }
        if self.metric is not None:
            saved["metric"] = self.metric
        return saved

    def restore(self, saved: dict[str, Any], parties: Sequence[HullParty]) -> None:
        """Inverse of :meth:`export`, for parties that have their points back."""
        self.points.restore(saved["points"])

        def point(name: str) -> HullPoint:
            part = saved[name]
            if part["total"].shape != (self.problem.n_samples,):
                raise ValueError(name)
            return HullPoint(
                np.array(part["coefficients"]), float(part["intercept"]), np.array(part["total"])
            )

        self.model = point("model")
        self.proposal = self.model if int(saved["plain"]) else point("proposal")
        self.multipliers = np.array(saved["multipliers"], dtype=np.float64)
        self.gap, self.promised = float(saved["gap"]), float(saved["promised"])
        self.length, self.damping = float(saved["length"]), float(saved["damping"])
        self.n_rounds, self.n_factorisations = int(saved["n_rounds"]), int(saved["n_factorisations"])
        if "metric" in saved:
            metric = self.metric = np.array(saved["metric"])
            self.engine.map(lambda party: party.set_metric(metric), parties)
        self.restart()


class ProximalMethod(Method):
    """Proximal Newton sharing as a method.

    Parameters
    ----------
    problem : Problem
        A loss with kinks is smoothed, ever less: see :mod:`fastadmm.coordinator.smoothed`.
    engine : Engine
    make_last : callable
        Makes the ``sharing`` method that goes on from the current model
        where rounding keeps this one from certifying it.
    """

    name = "proximal"
    convergent = True

    def __init__(self, problem: Problem, engine: Engine, make_last: Callable[[], AdmmMethod]) -> None:
        self.problem, self.engine, self._make_last = problem, engine, make_last
        self.parties: Any = [
            HullParty(name, block, problem.regularization, engine, regularizer, problem.constraint)
            for name, block, regularizer in zip(problem.names, problem.blocks, problem.party_regularizers)
        ]
        self.coordinator: Any = ProximalCoordinator(problem, engine)
        self.last: AdmmMethod | None = None
        self.bound = -math.inf
        self.best_gap, self.n_waiting = math.inf, 0
        self.width = 0.0
        self._intercept = 0.0

    def prepare(self) -> float:
        for party in self.parties:
            party.prepare()
        if self.problem.loss.smooth:
            start = self.coordinator.start(self.parties)
            self._intercept = start.intercept
            return start.loss
        total = sum(party.first()[0] for party in self.parties)
        start = primal_value(self.problem, np.asarray(total), 0.0, self.engine)
        self._intercept = start.intercept
        # At the start nothing is proved yet: the objective itself is the gap.
        # Constant targets may leave no loss at all; any width serves then.
        self._set_width(start.loss / self.problem.total_weight or 1.0)
        self.coordinator.start(self.parties)
        return start.loss

    def begin_at(self, weights: Sequence[Array], intercept: float) -> None:
        """Let the first round begin at the parties' weights, each of shape (d,) and in its set."""
        coordinator = self.coordinator
        coordinator.model.intercept = intercept
        coordinator.add_start(self.parties, weights)
        start = primal_value(self.problem, coordinator.model.total, intercept, self.engine)
        self._intercept = start.intercept
        if not self.problem.loss.smooth:
            value = start.loss + sum(
                party.penalty_value(coordinator.coefficients(m)) for m, party in enumerate(self.parties)
            )
            width = _WIDTH_AT_START * value / self.problem.total_weight
            if 0.0 < width < self.width:
                self._set_width(width)
                coordinator.evaluate()

    def _set_width(self, width: float) -> None:
        smoothed = self.problem.loss.smoothed(width)
        if smoothed is None:
            raise TypeError(f"loss {self.problem.loss.name!r} has no smoothed form")
        self.width = width
        self.coordinator.problem = replace(self.problem, loss=smoothed)

    def _go_on_with_sharing(self) -> AdmmMethod:
        """The sharing method, prepared, with this one's messages, gradient and weights."""
        coordinator, weights = self.coordinator, self.weights()
        last = self._make_last()
        last.prepare()
        parts = zip(last.parties, weights, last.coordinator.state.messages, strict=True)
        for party, x, message in parts:
            party.weights = x
            message[:] = party.block.product(x, self.engine)
        last.coordinator.state.z[:] = last.coordinator.state.total()
        last.coordinator.state.u[:] = coordinator.primal.gradient
        last.start_at(self._intercept)
        return last

    def round(self) -> Measured:
        if self.last is None and self.n_waiting >= _PATIENCE:
            self.last = self._go_on_with_sharing()
        if self.last is not None:
            return self.last.round()
        measured = self._round()
        gap = measured.objective - self.bound
        if gap < _PROGRESS * self.best_gap:
            self.best_gap, self.n_waiting = gap, 0
        elif math.isfinite(gap):  # where nothing can be certified sharing does not know better
            self.n_waiting += 1
        return measured

    def _round(self) -> Measured:
        coordinator, problem = self.coordinator, self.problem
        gradient = (coordinator.primal or coordinator.evaluate()).gradient
        shares = coordinator.round(self.parties)
        self.bound = max(self.bound, bound_from_shares(problem, gradient, shares, self.engine))
        primal = primal_value(problem, coordinator.model.total, self._intercept, self.engine)
        self._intercept = primal.intercept
        objective = primal.loss + sum(
            party.penalty_value(coordinator.coefficients(m)) for m, party in enumerate(self.parties)
        )
        coordinator.gap = max(objective - self.bound, 0.0)
        if not problem.loss.smooth:
            width = _WIDTH_OF_GAP * coordinator.gap / problem.total_weight
            if math.isinf(width):  # nothing is ever certified here
                width = _WIDTH_UNCERTIFIED * self.width
            if 0.0 < width < self.width:
                self._set_width(width)
                coordinator.propose()
        squared = sum(share.squared for share in shares)
        return Measured(
            objective=objective,
            lower_bound=self.bound,
            # z is the sum of the messages itself; u is the loss gradient: only the parties' terms are left.
            primal_residual=0.0,
            dual_residual=math.sqrt(squared / (len(self.parties) * problem.n_samples)),
            augmented_lagrangian=objective,
            lyapunov=squared,
            penalty=None,
            accelerated=False,
        )

    @property
    def intercept(self) -> float:
        return self._intercept if self.last is None else self.last.intercept

    def weights(self) -> list[Array]:
        if self.last is not None:
            return self.last.weights()
        return [party.weights(self.coordinator.coefficients(m)) for m, party in enumerate(self.parties)]

    def party_notes(self) -> list[tuple[str, str, str]]:
        return [(p.name, p.update.name, p.reason) for p in self.parties]

    def export(self) -> dict[str, Any]:
        own: dict[str, Any] = {
            "width": self.width,
            "bound": self.bound,
            "exact_intercept": self._intercept,
            "best_gap": self.best_gap,
            "n_waiting": self.n_waiting,
        }
        if self.last is not None:
            return {**own, "last": self.last.export()}
        return {**self.coordinator.export(), **own}

    def export_parties(self) -> list[dict[str, Array]]:
        if self.last is not None:
            return self.last.export_parties()
        return [
            {"weights": weights, "points": party.points}
            for weights, party in zip(self.weights(), self.parties)
        ]

    def restore(self, saved: dict[str, Any], parties: list[dict[str, Array]]) -> None:
        self.bound, self._intercept = float(saved["bound"]), float(saved["exact_intercept"])
        self.best_gap, self.n_waiting = float(saved["best_gap"]), int(saved["n_waiting"])
        if "last" in saved:
            self.last = self._make_last()
            self.last.prepare()
            self.last.restore(saved["last"], parties)
            return
        if not self.problem.loss.smooth:
            self._set_width(float(saved["width"]))
        owner = np.array(saved["points"]["owner"])
        for m, (party, state) in enumerate(zip(self.parties, parties, strict=True)):
            points = np.array(state["points"], dtype=np.float64)
            if points.shape != (int((owner == m).sum()), party.block.shape[1]):
                raise ValueError("points")
            party.points = points
        self.coordinator.restore(saved, self.parties)
