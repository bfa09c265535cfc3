"""Every way to minimise over all columns, the cheapest of which is tried first."""

from __future__ import annotations

from typing import Protocol

from fastadmm.pooled.ascent import DualAscent
from fastadmm.pooled.central_path import CentralPath
from fastadmm.pooled.coordinates import Coordinates
from fastadmm.pooled.goal import Goal
from fastadmm.pooled.interior_point import InteriorPoint
from fastadmm.pooled.newton import Newton
from fastadmm.pooled.point import Point


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
MINIMISERS: tuple[Minimiser, ...] = (DualAscent(), Newton(), Coordinates(), InteriorPoint(), CentralPath())


def ways_of(goal: Goal) -> list[Minimiser]:
    """Those that take a problem, the cheapest first; where one gains nothing more, the next goes on."""
    return sorted((way for way in MINIMISERS if way.takes(goal)), key=lambda way: way.cost(goal))
