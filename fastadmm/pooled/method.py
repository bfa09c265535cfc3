"""The scheme ``pooled``: a round is a call of a minimiser over all columns, the cheapest way first."""

import math
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np

from fastadmm.blocks.block import check_scale
from fastadmm.conversation.exchange import Talk
from fastadmm.engine.engine import Engine
from fastadmm.method.method import Measured, Method
from fastadmm.pooled.ascent import DualAscent
from fastadmm.pooled.coordinates import Coordinates
from fastadmm.pooled.goal import Goal, Point, Table, better
from fastadmm.pooled.interior_point import InteriorPoint
from fastadmm.pooled.newton import Newton
from fastadmm.problem.problem import Problem

Array = np.ndarray

#: Relative gap to aim at in runs without a wanted one.
_UNWANTED = 1e-12

#: A round that gains less than this share of the gap leaves the next to another minimiser.
_GAINS = 0.01


class PooledMethod(Method):
    """Rounds of the minimisers that take a problem, the first of them first."""

    name = "pooled"
    convergent = True
    family = "pooled"

    def __init__(self, problem: Problem, engine: Engine, wanted: float) -> None:
        self.problem, self.engine, self.wanted = problem, engine, wanted or _UNWANTED
        self.goal = Goal(problem, engine)
        self.ways = ways_of(self.goal)
        self.coordinator = SimpleNamespace()  # there is none
        self.n_rounds = self.number = 0
        self.point: Point | None = None

    @property
    def way(self) -> Any:
        """The minimiser whose turn it is; after all have been tried, the first again."""
        return self.ways[self.number % len(self.ways)]

    @property
    def _otherwise(self) -> float:
        """Nanoseconds that the next way takes."""
        following = self.ways[(self.number + 1) % len(self.ways)]
        return following.cost(self.goal) if len(self.ways) > 1 else math.inf

    def make_parties(self) -> Sequence[Any]:
        """The columns by party, which answer nothing: what the run names, and scores held-out rows with."""
        parties = []
        for name, block in zip(self.problem.names, self.problem.blocks):
            told = {"kind": "pooled", "reason": f"{block.shape[1]} columns, {self.way.name}"}
            parties.append(SimpleNamespace(name=name, block=block, other_rows={}, **told))
        return parties

    def prepare_parties(self) -> None:
        """Look at the columns; a minimiser reads the table as it needs it."""
        for name, block in zip(self.problem.names, self.problem.blocks):
            check_scale(block, name, self.engine)

    def reopen(self) -> float:
        """Begin at zero, or where the set is nearest to it; the summed loss there."""
        self.point = self.goal.start()
        return self.point.value - self.goal.regulariser(self.point.weights)

    def begin_at(self, weights: Sequence[Array], intercept: Any) -> None:
        self.point = self.goal.at(_joined(weights), intercept)

    def round(self) -> Talk[Measured]:
        yield from ()  # nobody is asked
        point = self._point
        self.n_rounds += 1
        if not point.gap <= self.wanted:
            found = self.way.minimise(self.goal, point, self.wanted, self._otherwise)
            if found is None or not self.goal.is_within_reach(found.weights):
                found = point  # of such weights nothing is proved, and their predictors are rounding
            if found.gap <= self.wanted:
                self.point = found
            else:
                self.point = better(point, found)
                closer = self._point.gap < (1.0 - _GAINS) * point.gap
                lower = self._point.value < point.value - _GAINS**2 * abs(point.value)
                if not (closer or lower):
                    self.number += 1
        point = self._point
        self.bound, self.witness = max(self.bound, point.lower), np.ravel(point.dual)
        return self._measured(point.value, self.bound, 0.0, 0.0, bound_within=point.within)

    @property
    def _point(self) -> Point:
        assert self.point is not None
        return self.point

    @property
    def intercept(self) -> Any:
        return self._point.intercept

    @property
    def descends(self) -> bool:
        return True

    @property
    def total(self) -> Array | None:
        return self._point.total

    def weights(self) -> list[Array]:
        parts = self.goal.parted(self._point.weights)
        return [np.ascontiguousarray(part.T) for part in parts]

    def scores(self, rows: str) -> Talk[list[Array]]:
        yield from ()
        blocks = [own.block if rows == "train" else own.other_rows[rows] for own in self.parties]
        parts = self.goal.parted(self._point.weights)
        return [Table([block]).product(x, self.engine).ravel() for block, x in zip(blocks, parts)]

    def export(self) -> dict[str, Any]:
        more = {"number": self.number, "rounds": self.n_rounds, "lower": self.bound}
        return {"intercept": np.atleast_1d(self.intercept), **more, **self.kept_witness()}

    def export_parties(self) -> list[dict[str, Array]]:
        return [{"weights": x} for x in self.weights()]

    def restore(self, saved: dict[str, Any]) -> None:
        self.number, self.n_rounds = int(saved["number"]), int(saved["rounds"])
        self.take_witness(saved)
        self.bound = float(saved["lower"])
        own = np.array(saved["intercept"], dtype=np.float64)
        self._saved_intercept = own if self.problem.loss.vector else float(own[0])

    def restore_parties(self, parties: list[dict[str, Array]]) -> None:
        given = _joined([np.array(state["weights"], dtype=np.float64) for state in parties])
        point = self.goal.at(given, self._saved_intercept, self.witness)
        self.point = replace(point, intercept=self._saved_intercept)  # not moved once more


def _joined(weights: Sequence[Array]) -> Array:
    """Weights of all columns, of shape (d,) or (C, d), from the parties', of shape (d_m,) or (d_m, C)."""
    return np.ascontiguousarray(np.concatenate(weights).T)


class Minimiser(Protocol):
    """One way to minimise over all columns."""

    name: str

    def takes(self, goal: Goal) -> bool:
        """Whether it is for this problem, on this table."""

    def cost(self, goal: Goal) -> float:
        """Nanoseconds that it takes, about, where it takes the problem."""

    def minimise(self, goal: Goal, point: Point, wanted: float, otherwise: float) -> Point | None:
        """From a point to one whose relative gap is as wanted, or as far as a round goes.

        None if that fails, or would take more than ``otherwise`` nanoseconds, which another way takes.
        """


#: All of them.
MINIMISERS: tuple[Minimiser, ...] = (DualAscent(), Newton(), Coordinates(), InteriorPoint())


def ways_of(goal: Goal) -> list[Minimiser]:
    """Those that take a problem, the cheapest first; where one gains nothing more, the next goes on."""
    return sorted((way for way in MINIMISERS if way.takes(goal)), key=lambda way: way.cost(goal))
