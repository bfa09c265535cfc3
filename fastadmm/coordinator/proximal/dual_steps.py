r"""Steps of sharing ADMM through the calls of `proximal`: for rounds after the gap has stopped falling.

Chambolle and Pock's form of it (2011): with messages :math:`a_m` of the parties' last answers and
:math:`S = \sum_m a_m`, party m answers u and its own last answer in the metric :math:`M r`, and

.. math:: u^+ = \mathrm{prox}_{r \ell^*}\bigl(u + r (2 S^+ - S)\bigr).

That is what a party is asked anyway (:meth:`fastadmm.parties.face.FaceParty.best_response`), with another
gradient, point and metric. u lies in the domain of the conjugate loss, kinks or not, so that every
step has its certificate, and plain steps converge for every convex problem and every fixed r. Anderson
acceleration, as in `sharing`, goes over messages, u and coefficients.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fastadmm.coordinator.admm.anderson import Anderson
from fastadmm.coordinator.admm.coordinator import acceleration_memory
from fastadmm.coordinator.admm.penalty_rule import PenaltyRule
from fastadmm.coordinator.admm.scheme import DEFAULT_PENALTY
from fastadmm.coordinator.admm.z_update import update_z_u
from fastadmm.coordinator.proximal.hull import HullPoint
from fastadmm.coordinator.proximal.parts import read_intercept
from fastadmm.coordinator.proximal.shared_directions import SharedDirections
from fastadmm.engine.engine import Engine
from fastadmm.engine.stacked import StackedRows
from fastadmm.method.certificate import penalty_unit
from fastadmm.problem.problem import Problem

Array = np.ndarray

#: Most steps between a proposal that did not keep its promise and the next search.
_LONGEST_WAIT = 16

#: What of the acceleration's state is a state each.
_STATES = ("residuals", "images", "last_residual", "last_image")

#: An extrapolated state whose residual exceeds the best one by this factor is taken back.
_MAX_GROWTH = 2.0


class DualSteps:
    """The iteration's state. Shapes: u, point, reached, reached_u (N,)."""

    #: What of :meth:`export` has numbers for each row.
    row_keys = (
        *("z", "start/total", "start/u", "reached/total", "reached/u"),
        *(f"anderson/{name}" for name in _STATES),
    )

    def __init__(
        self, problem: Problem, point: HullPoint, u: Array, engine: Engine, most_directions: int
    ) -> None:
        self.problem, self.engine = problem, engine
        self.rows = StackedRows(engine, problem.n_samples)
        m, n = problem.n_parties, problem.message_size
        self.point = self.reached = HullPoint(point.coefficients.copy(), point.intercept, point.total.copy())
        self.u = self.reached_u = u.copy()
        self.z = point.total.copy()
        unit = penalty_unit(problem, engine)
        self.penalty = DEFAULT_PENALTY * unit * problem.total_weight / engine.all_rows(problem.n_samples)
        self.rule = PenaltyRule()
        self.n_waiting, self.wait = 0, 1
        self.most_directions, self.best, self.extrapolated = most_directions, math.inf, False
        memory = acceleration_memory(m, engine.all_rows(problem.n_samples) * problem.n_outputs)
        self.anderson = (
            Anderson((m + 1) * n + most_directions, self._sections(), memory, self.rows) if memory else None
        )

    def _sections(self) -> list[tuple[slice, Any]]:
        """Messages, u and coefficients, which go along without a weight of their own."""
        m, n, r = self.problem.n_parties, self.problem.message_size, self.penalty
        return [(slice(0, m * n), m * r), (slice(m * n, (m + 1) * n), 1.0 / r)]

    def points(self) -> list[HullPoint]:
        """All points that are kept, each once."""
        return [self.point] if self.point is self.reached else [self.point, self.reached]

    def forget(self) -> None:
        """Begin the acceleration anew: directions or the penalty are others."""
        self.point, self.u = self.reached, self.reached_u
        self.best, self.extrapolated = math.inf, False
        if self.anderson is not None:
            self.anderson.sections = self._sections()
            self.anderson.reset()

    def judge(self, bad: bool) -> None:
        """Take in whether a proposal broke its promise: searches become rarer as long as they do."""
        self.n_waiting, self.wait = (self.wait, min(2 * self.wait, _LONGEST_WAIT)) if bad else (0, 1)

    def searches(self) -> bool:
        """Whether to search for a proposal after this step."""
        self.n_waiting = max(self.n_waiting - 1, 0)
        return self.n_waiting == 0

    def metric(self) -> Array:
        """For the parties: M r for every sample."""
        return np.full(self.problem.message_size, self.problem.n_parties * self.penalty)

    def take(self, answers: Sequence[Array], shared: SharedDirections) -> None:
        """Go on with the parties' answers to u, coefficients of shape (K_m,)."""
        problem, r, old = self.problem, self.penalty, self.point
        coefficients = np.zeros(len(shared))
        for m, own in enumerate(answers):
            coefficients[shared.of(m)] = own
        total, u = shared.combined(coefficients), np.empty_like(self.u)
        ahead = 2.0 * total - old.total
        intercept = update_z_u(problem, ahead, self.u, r, self.z, u, old.intercept, self.engine)
        step = coefficients - old.coefficients
        squares, n, classes = 0.0, problem.n_samples, problem.n_outputs
        for m in range(len(answers)):
            mine, here = shared.of(m), slice(m % classes * n, (m % classes + 1) * n)
            image = self.engine.combine(step[mine], shared.messages, shared.rows[mine])
            s = u[here] - self.u[here] - problem.n_parties * r * image
            squares += float(self.rows.dot(s, s))
        start = self._vector(old, self.u, shared)
        new = HullPoint(coefficients, read_intercept(intercept, classes), total)
        size, dual_size = self.rows.norm(total), self.rows.norm(u)
        factor = self.rule.factor(
            self.rows.norm(total - self.z) / size if size > 0.0 else math.nan,
            math.sqrt(squares / problem.n_parties) / dual_size if dual_size > 0.0 else math.nan,
        )
        self._advance(start, new, u, shared)
        if factor != 1.0:
            self.penalty *= factor
            self.forget()

    def _vector(self, point: HullPoint, u: Array, shared: SharedDirections) -> Array:
        """Messages of every part, u and coefficients, those of directions to come zero."""
        problem, k = self.problem, len(point.coefficients)
        m, size, n = problem.n_parties, problem.message_size, problem.n_samples
        vector = np.zeros((m + 1) * size + self.most_directions)
        for part in range(m * problem.n_outputs):
            mine = shared.of(part)
            vector[part * n : (part + 1) * n] = self.engine.combine(
                point.coefficients[mine], shared.messages, shared.rows[mine]
            )
        vector[m * size : (m + 1) * size] = u
        vector[(m + 1) * size :][:k] = point.coefficients
        return vector

    def _advance(self, start: Array, new: HullPoint, u: Array, shared: SharedDirections) -> None:
        """Choose where the next step starts: the new state, or one extrapolated from it."""
        if self.anderson is None:
            self.point, self.u = self.reached, self.reached_u = new, u
            return
        image = self._vector(new, u, shared)
        residual = image - start
        norm = math.sqrt(self.anderson.squared_norm(residual))
        if self.extrapolated and not norm <= _MAX_GROWTH * self.best:
            self.forget()
            return
        self.best = min(self.best, norm)
        self.point, self.u = self.reached, self.reached_u = new, u
        vector, m, n = self.anderson.extrapolate(image, residual), self.problem.n_parties, len(u)
        if vector is not None and self.extrapolated and not self._proves(vector[m * n : (m + 1) * n]):
            vector = None  # a bound in every other step at least
        self.extrapolated = vector is not None
        if vector is not None:
            c = vector[(m + 1) * n :][: len(shared)].copy()
            self.point = HullPoint(c, new.intercept, shared.combined(c))
            self.u = vector[m * n : (m + 1) * n].copy()

    def _proves(self, u: Array) -> bool:
        """Whether u lies in the domain of the conjugate loss."""
        problem = self.problem
        return math.isfinite(problem.loss.conjugate(u, problem.y, problem.weight, self.engine))

    def export(self) -> dict[str, Any]:
        """Everything a resumed run needs to go on bit for bit."""
        saved: dict[str, Any] = {
            "z": self.z,
            "penalty": self.penalty,
            "rule": self.rule.export(),
            "best": self.best,
            "extrapolated": self.extrapolated,
            "waiting": self.n_waiting,
            "wait": self.wait,
        }
        for name, point, u in (("start", self.point, self.u), ("reached", self.reached, self.reached_u)):
            saved[name] = {
                "coefficients": point.coefficients,
                "total": point.total,
                "intercept": point.intercept,
                "u": u,
            }
        if self.anderson is not None:
            own: dict[str, Any] = dict(self.anderson.export())
            rows = (self.problem.n_parties + 1) * self.problem.message_size
            saved["anderson"] = {**own, **{key: own[key][..., :rows] for key in _STATES}}
            saved["anderson_coefficients"] = {key: own[key][..., rows:] for key in _STATES}
        return saved

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Inverse of :meth:`export`; raises ValueError where shapes do not fit."""
        self.penalty, self.z = float(saved["penalty"]), np.array(saved["z"], dtype=np.float64)
        self.rule.restore(saved["rule"])
        self.n_waiting, self.wait = int(saved["waiting"]), int(saved["wait"])
        self.best, self.extrapolated = float(saved["best"]), bool(saved["extrapolated"])
        self.reached, self.reached_u = self._read(saved["reached"])
        self.point, self.u = self.reached, self.reached_u
        if self.extrapolated:
            self.point, self.u = self._read(saved["start"])
        if self.anderson is not None:
            self.anderson.sections = self._sections()
            own = dict(saved["anderson"])
            for key, rest in saved.get("anderson_coefficients", {}).items():
                shape = (*rest.shape[:-1], self.anderson.images.shape[1] - rest.shape[-1])
                own[key] = np.concatenate([own[key].reshape(shape), rest], axis=-1)
            self.anderson.restore(own)

    def _read(self, saved: Mapping[str, Any]) -> tuple[HullPoint, Array]:
        c, total, u = (np.array(saved[key], dtype=np.float64) for key in ("coefficients", "total", "u"))
        if not total.shape == u.shape == self.z.shape:
            raise ValueError("total")
        return HullPoint(c, read_intercept(saved["intercept"], self.problem.n_outputs), total), u
