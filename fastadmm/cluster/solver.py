"""A solver of rows that several workers hold: rank 0 leads, and the others do what it says."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from fastadmm.cluster.engine import RowEngine
from fastadmm.problem.problem import Problem
from fastadmm.solver.history import RoundRecord
from fastadmm.solver.options import SolverOptions
from fastadmm.solver.solver import Solver
from fastadmm.solver.warm_start import StartingPoint

__all__ = ["RowSolver", "SharedSolver", "end", "follow"]


class RowSolver(Solver):
    """A solver of some rows, of which every worker calls the same methods.

    Parameters
    ----------
    problem : Problem
        Of this worker's rows.
    options : SolverOptions
    engine : RowEngine
    least : float
        The loss cannot be less, summed over all rows.
    start : StartingPoint, optional
    """

    def __init__(
        self,
        problem: Problem,
        options: SolverOptions,
        engine: RowEngine,
        least: float,
        start: StartingPoint | None = None,
    ) -> None:
        super().__init__(problem, options, engine=engine, start=start)
        self.comm = engine.comm
        self.bound.value = least / problem.total_weight

    def _spend(self, seconds: float) -> None:
        super()._spend(seconds)
        if self.options.max_seconds is not None:  # rank 0 has the clock
            self.seconds = self.comm.first(self.seconds)


class SharedSolver(RowSolver):
    """The same, of which rank 0 calls methods and the others :func:`follow`: it tells them."""

    @property
    def has_checkpoints(self) -> bool:
        return False

    @contextmanager
    def _led(self, name: str, *given: Any) -> Iterator[None]:
        if self.comm.rank == 0:
            self.comm.first((name, given))
        self.comm.apart = True
        yield
        self.comm.apart = False

    def round(self) -> RoundRecord:
        with self._led("round"):
            return super().round()

    def means(self, weights: list[np.ndarray]) -> np.ndarray:
        with self._led("means", weights):
            return super().means(weights)


def follow(solver: SharedSolver) -> Any:
    """Do what rank 0 says until it ends.

    Parameters
    ----------
    solver : SharedSolver
        Of another rank.

    Returns
    -------
    object
        What rank 0 gave to :func:`end`.
    """
    while True:
        solver.comm.apart = False
        name, given = solver.comm.first()
        if name == "end":
            return given
        getattr(solver, name)(*given)


def end(solver: SharedSolver, told: Any) -> None:
    """Let the other workers return from :func:`follow`.

    Parameters
    ----------
    solver : SharedSolver
        Of rank 0.
    told : object
    """
    solver.comm.first(("end", told))
