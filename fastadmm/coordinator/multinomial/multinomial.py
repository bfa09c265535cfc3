r"""Subspace Newton sharing for C classes: messages of C numbers per sample.

As :mod:`fastadmm.coordinator.subspace.subspace`, but a party answers the loss gradient,
N x C, with one direction per class in one message of N x C numbers; each class
weighs its part of every message by a coefficient of its own, which takes far
fewer rounds than one coefficient per message, for the same traffic.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastadmm.conversation.exchange import Call, Exchange, Pace, Talk, ask_all
from fastadmm.coordinator.certificate import PrimalValue, dual_bound
from fastadmm.coordinator.class_certificate import (
    class_primal_value,
    make_class_feasible,
    multinomial_of,
    shifted,
)
from fastadmm.coordinator.method import Measured, Method
from fastadmm.coordinator.metric_limits import directions_per_party, drift_share
from fastadmm.coordinator.multinomial.span import ClassSpanPoint, minimise_over_class_span
from fastadmm.engine.engine import Engine
from fastadmm.parties.classes import ClassDirectionParty, choose_class_solver
from fastadmm.problem.problem import Problem

__all__ = ["MultinomialCoordinator", "MultinomialMethod", "class_directions_per_party"]

Array = np.ndarray

#: The span is minimised to this share of the gap that the round started with.
_SPAN_ACCURACY = 1e-3

#: Memory for all messages, in bytes; parties keep fewer directions where more would not fit.
_MESSAGE_BUDGET = 2**30


def class_directions_per_party(n_parties: int, n_samples: int, n_classes: int) -> int:
    """Most directions a party keeps; its oldest are merged beyond it.

    Parameters
    ----------
    n_parties, n_samples, n_classes : int
        M, N and C.

    Returns
    -------
    int
        At most 64, and so many that all messages fit 1 GB, but 8 at least
        where 4 GB hold them, and 3 always.
    """
    each = 8 * n_samples * n_classes * n_parties
    wanted = directions_per_party(n_parties)
    return max(3, min(wanted, _MESSAGE_BUDGET // each, 64), min(8, 4 * _MESSAGE_BUDGET // each))


class MultinomialCoordinator:
    """Messages of all parties, and the minimiser over their span.

    Parameters
    ----------
    problem : Problem
        With the multinomial loss.
    engine : Engine
    directions : int, optional
        Most directions a party keeps; :func:`class_directions_per_party` by default.

    Attributes
    ----------
    messages : ndarray of shape (C, K, N)
        V: for each class its rows of the messages of all parties, oldest first.
    owner : ndarray of int, shape (K,)
        Which party a message is from.
    point : ClassSpanPoint
        Current coefficients, intercepts and sum of messages.
    primal : PrimalValue or None
        Loss and gradient at the current point, intercepts minimised out.
    metric : ndarray of shape (N,) or None
        Mean curvature over the classes that the parties have factorised.
    """

    def __init__(self, problem: Problem, engine: Engine, directions: int | None = None) -> None:
        self.problem, self.engine = problem, engine
        self.most_directions = directions
        classes = problem.n_outputs
        self._store = np.empty((classes, 0, problem.n_samples))
        self.owner = np.empty(0, dtype=np.int64)
        self.point = ClassSpanPoint(np.empty((classes, 0)), np.zeros(classes), np.zeros(problem.message_size))
        self.metric: Array | None = None
        self.n_factorisations = 0
        self.n_rounds = 0
        self.primal: PrimalValue | None = None

    @property
    def messages(self) -> Array:
        """V of shape (C, K, N)."""
        return self._store[:, : len(self.owner)]

    def start(self) -> PrimalValue:
        """Evaluate the current point with its best intercepts."""
        self.primal = class_primal_value(self.problem, self.point.total, self.point.intercept, self.engine)
        self.point.intercept = self.primal.intercept
        return self.primal

    def restart(self) -> None:
        """Evaluate the current point at the intercepts it has, to the bit as when it was saved."""
        problem = self.problem
        gradient = np.empty(problem.message_size)
        z = shifted(problem.offset + self.point.total, self.point.intercept)
        value = problem.loss.evaluate(z, problem.y, problem.weight, gradient, self.engine)
        feasible = make_class_feasible(problem, z, gradient, self.engine)
        self.primal = PrimalValue(value, gradient, self.point.intercept, feasible)

    def adopt(self, messages: Array, owner: Array) -> None:
        """Replace all messages, of shape (C, K, N), and their owners, of shape (K,)."""
        self._store, self.owner = messages, owner

    def coefficients(self, m: int) -> Array:
        """Coefficients of party m, of shape (C, K_m), oldest direction first."""
        return self.point.coefficients[:, self.owner == m]

    def regulariser(self) -> float:
        """``lambda W / 2`` times the squared norm of all weights."""
        c = self.point.coefficients
        return 0.5 * self.problem.regularization * float(np.sum(c * c))

    def round(self) -> Talk[list[float]]:
        r"""One exchange with every party, then the minimisation over the span.

        Returns
        -------
        list of float
            :math:`\|\rho_m\|^2` of each party at the point where the round *started*.
        """
        primal, n_parties = self.primal if self.primal is not None else self.start(), self.problem.n_parties
        if self._metric_is_stale():
            yield from ask_all(n_parties, "set_metric", curvature=self.metric)
        newton = self.n_rounds % 2 == 0
        self.n_rounds += 1
        gradient = primal.gradient.reshape(self.problem.n_outputs, -1)
        common = {"gradient": gradient, "newton": newton}
        answers = yield Exchange(
            [
                Call(m, "respond_classes", {**common, "class_coefficients": self.coefficients(m)})
                for m in range(n_parties)
            ]
        )
        for m, answer in enumerate(answers):
            if "message" in answer:
                self._append(m, answer["message"])
        squared = [float(answer["squared_residual"]) for answer in answers]
        gap = sum(squared) / (2.0 * self.problem.regularization)
        self.point = minimise_over_class_span(
            self.problem, self.messages, self.point, _SPAN_ACCURACY * gap, self.engine
        )
        yield from self._compress()
        self.start()
        return squared

    def _metric_is_stale(self) -> bool:
        """Move the metric to the current mean curvature if it has drifted; True if it was moved."""
        problem = self.problem
        kinds = {choose_class_solver(block.whole_shape, problem.n_outputs)[0] for block in problem.blocks}
        if kinds == {"gradient"}:  # nobody factorises
            return False
        z = shifted(problem.offset + self.point.total, self.point.intercept)
        h = problem.loss.curvature(z, problem.y, problem.weight, np.empty_like(z), self.engine)
        h = h.reshape(problem.n_outputs, -1).mean(axis=0)
        mean = self.engine.mean(h)
        if not mean > 0.0:  # every sample is classified beyond doubt
            mean = 0.5
        if drift_share(h, mean, self.metric, self.engine) <= 1.0:
            return False
        self.metric = h
        self.n_factorisations += 1
        return True

    def _limit(self, n_parties: int) -> int:
        """Most directions per party."""
        problem = self.problem
        limit = class_directions_per_party(
            n_parties, self.engine.all_rows(problem.n_samples), problem.n_outputs
        )
        return limit if self.most_directions is None else min(limit, max(2, self.most_directions))

    def _append(self, m: int, message: Array) -> None:
        k = len(self.owner)
        if k == self._store.shape[1]:
            # For all that there can be, at once: memory is taken when it is written to, and nothing is moved.
            parties = self.problem.n_parties
            most = parties * (self._limit(parties) + 1)
            grown = np.empty((len(self.point.coefficients), max(k + 1, most), self.problem.n_samples))
            grown[:, :k] = self._store
            self._store = grown
        self._store[:, k] = message
        self.owner = np.append(self.owner, m)
        self.point.coefficients = np.pad(self.point.coefficients, ((0, 0), (0, 1)))

    def _compress(self) -> Talk[None]:
        """Merge the two oldest directions of every party that has too many, class by class."""
        problem = self.problem
        limit = self._limit(problem.n_parties)
        for m in range(problem.n_parties):
            columns = np.flatnonzero(self.owner == m)
            if len(columns) <= limit:
                continue
            first, second = int(columns[0]), int(columns[1])
            pair = self.point.coefficients[:, [first, second]]
            size = np.linalg.norm(pair, axis=1)
            # Where neither is in use: forget the younger.
            unit = np.where(size[:, None] > 0.0, pair / np.where(size > 0.0, size, 1.0)[:, None], [1.0, 0.0])
            yield Exchange([Call(m, "merge_oldest_classes", {"class_coefficients": unit})], Pace.SHORT)
            k = len(self.owner)
            for c in range(problem.n_outputs):
                rows = self._store[c]
                rows[first] = unit[c, 0] * rows[first] + unit[c, 1] * rows[second]
                rows[second : k - 1] = rows[second + 1 : k]
            self.point.coefficients[:, first] = size
            self.point.coefficients = np.delete(self.point.coefficients, second, axis=1)
            self.owner = np.delete(self.owner, second)


class MultinomialMethod(Method):
    """Subspace Newton sharing for the multinomial loss as a method.

    Parameters
    ----------
    problem : Problem
    engine : Engine
    directions : int, optional
        Most directions a party keeps; :func:`class_directions_per_party` by default.
    """

    name = "subspace"
    convergent = True
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
        # The weights become every party's first directions, one per class, their norms the coefficients.
        coordinator, n = self.coordinator, self.problem.n_samples
        norms = np.array([np.linalg.norm(x, axis=0) for x in weights])  # (M, C)
        owner = np.flatnonzero(norms.any(axis=1))
        messages = np.zeros((self.problem.n_outputs, len(owner), n))
        for k, m in enumerate(owner.tolist()):
            party, size = self.parties[m], np.where(norms[m] > 0.0, norms[m], 1.0)
            unit = np.ascontiguousarray((weights[m] / size).T)
            party.directions = unit[:, np.newaxis]
            messages[:, k] = party.block.matrix_product(unit, self.engine)
        coefficients = np.ascontiguousarray(norms[owner].T)
        total = np.concatenate([self.engine.combine(c, rows) for c, rows in zip(coefficients, messages)])
        coordinator.adopt(messages, owner)
        coordinator.point = ClassSpanPoint(coefficients, np.array(intercept), total)
        coordinator.start()

    def round(self) -> Talk[Measured]:
        coordinator, scale, problem = self.coordinator, self.problem.regularization, self.problem
        start = coordinator.primal if coordinator.primal is not None else coordinator.start()
        total, regulariser = coordinator.point.total, coordinator.regulariser()
        stationarity = sum((yield from coordinator.round()))
        after = (coordinator.primal or start).loss + coordinator.regulariser()
        gaps, n = stationarity / (2.0 * scale), self.engine.all_rows(problem.n_samples)
        if start.dual_feasible:
            bound = start.loss + regulariser - gaps
        else:
            bound = dual_bound(problem, start.gradient, total, regulariser, gaps, self.engine)
        return Measured(
            objective=after,
            lower_bound=bound,
            # As for SubspaceMethod: only the parties' terms are left.
            primal_residual=0.0,
            dual_residual=math.sqrt(stationarity / (problem.n_parties * n)),
            augmented_lagrangian=after,
            lyapunov=stationarity / (1.0 + scale) ** 2,
            penalty=None,
            accelerated=False,
        )

    @property
    def intercept(self) -> Array:
        return self.coordinator.point.intercept

    def final_arguments(self, m: int) -> dict[str, Any]:
        return {"class_coefficients": self.coordinator.coefficients(m)}

    def weight_norms(self) -> list[float]:
        # Directions of a class are orthonormal: the coordinator knows the norms without the weights.
        return [
            float(np.linalg.norm(self.coordinator.coefficients(m))) for m in range(self.problem.n_parties)
        ]

    def export(self) -> dict[str, Any]:
        coordinator = self.coordinator
        saved: dict[str, Any] = {
            # Checkpoints hold matrices: class by class, one row per message.
            "messages": coordinator.messages.reshape(-1, self.problem.n_samples),
            "owner": coordinator.owner,
            "coefficients": coordinator.point.coefficients,
            "total": coordinator.point.total,
            "intercept": coordinator.point.intercept,
            "n_rounds": coordinator.n_rounds,
            "n_factorisations": coordinator.n_factorisations,
        }
        if coordinator.metric is not None:
            saved["metric"] = coordinator.metric
        return saved

    def export_parties(self) -> list[dict[str, Array]]:
        return [
            {"weights": weights, "directions": party.directions.reshape(-1, party.block.shape[1])}
            for weights, party in zip(self.weights(), self.parties)
        ]

    def restore(self, saved: dict[str, Any]) -> None:
        coordinator, problem = self.coordinator, self.problem
        classes, n = problem.n_outputs, problem.n_samples
        owner = np.array(saved["owner"], dtype=np.int64)
        k = len(owner)
        messages = np.array(saved["messages"], dtype=np.float64).reshape(classes, k, n)
        point = ClassSpanPoint(
            np.array(saved["coefficients"]), np.array(saved["intercept"]), np.array(saved["total"])
        )
        shapes = (point.coefficients.shape, point.intercept.shape, point.total.shape)
        if shapes != ((classes, k), (classes,), (classes * n,)):
            raise ValueError("messages")
        coordinator.adopt(messages, owner)
        coordinator.point = point
        coordinator.n_rounds = int(saved["n_rounds"])
        coordinator.n_factorisations = int(saved["n_factorisations"])
        if "metric" in saved:
            coordinator.metric = np.array(saved["metric"])
        coordinator.restart()

    def restore_parties(self, parties: list[dict[str, Array]]) -> None:
        coordinator, classes = self.coordinator, self.problem.n_outputs
        for m, (party, state) in enumerate(zip(self.parties, parties, strict=True)):
            shape = (classes, int((coordinator.owner == m).sum()), party.block.shape[1])
            party.directions = np.array(state["directions"], dtype=np.float64).reshape(shape)
        if (metric := coordinator.metric) is not None:
            self.engine.map(lambda party: party.set_metric(metric), self.parties)
