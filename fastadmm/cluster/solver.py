"""A solver of rows that several workers hold: rank 0 leads, and the others do what it says."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from fastadmm.cluster.comm import Comm, RowEngine
from fastadmm.conversation.exchange import Talk
from fastadmm.engine.engine import Engine
from fastadmm.errors import FastadmmError
from fastadmm.method.method import rows_of_state, with_rows, without_rows
from fastadmm.problem.problem import Problem, TestSet
from fastadmm.proof.claim import Proof
from fastadmm.solver.early_stopping import predictor
from fastadmm.solver.history import RoundRecord
from fastadmm.solver.options import SolverOptions
from fastadmm.solver.solver import Solver
from fastadmm.solver.warm_start import StartingPoint


class SharedSolver(Solver):
    """A solver over several workers: rank 0 calls its methods and tells the others, which :func:`follow`."""

    def __init__(
        self,
        problem: Problem,
        options: SolverOptions,
        engine: RowEngine,
        least: float,
        start: StartingPoint | None = None,
    ) -> None:
        self.least = least
        super().__init__(problem, options, engine=engine, start=start)
        self.engine: RowEngine = engine
        self.comm = engine.comm
        self.alone = Engine(engine.n_threads)

    def _least(self) -> float:
        return self.least

    def _predictor(self, name: str, rows: TestSet) -> Talk[np.ndarray]:
        """The predictor of some rows in this process; no other worker is asked."""
        yield from ()
        return predictor(rows, self.method.weights(), self.method.intercept, self.problem.loss, self.alone)

    def close(self) -> None:
        super().close()
        self.alone.close()

    def _spend(self, seconds: float) -> None:
        super()._spend(seconds)
        if self.options.max_seconds is not None:  # rank 0 has the clock
            self.seconds = self.comm.first(self.seconds)

    @contextmanager
    def _led(self, name: str, *given: Any) -> Iterator[None]:
        if self.comm.rank == 0:
            self.comm.first((name, given))
        self.comm.apart = True
        yield
        self.comm.apart = False

    def prepare(self) -> None:
        with self._led("prepare"):
            self.comm.agreed(super().prepare)

    def round(self) -> RoundRecord:
        with self._led("round"):
            return super().round()

    def proof_of(self, weights: list[np.ndarray], intercept: Any, kept: bool) -> Proof | None:
        with self._led("proof_of", weights, intercept, kept):
            return super().proof_of(weights, intercept, kept)

    def export(self) -> dict[str, Any]:
        """Without what has a number for each row: see :meth:`write_rows`."""
        saved = super().export()
        return {**saved, "method": without_rows(saved["method"], self.method.row_keys)}

    def write_rows(self, write: Callable[..., dict[str, str]]) -> dict[str, str]:
        with self._led("write_rows", write):
            rows = rows_of_state(self.method.export(), self.method.row_keys)
            own = self.comm.agreed(lambda: write(self.comm.rank, self.engine.rows, rows))
            return {name: digest for told in self.comm.share(own) for name, digest in told.items()}

    def restore(self, saved: dict[str, Any], parties: list[dict[str, np.ndarray]]) -> None:
        with self._led("restore", saved, parties):
            here, place = (*self.engine.rows, self.engine.n_rows), self.method.place
            rows = self.comm.agreed(lambda: saved["rows"].read(*here, place))
            own = {**saved, "method": with_rows(saved["method"], rows), "rows": None}
            self.comm.agreed(lambda: super(SharedSolver, self).restore(own, parties))


def follow(comm: Comm, follower: Any) -> Any:
    """Do what rank 0 says until it ends."""
    try:
        while True:
            comm.apart = False
            name, given = comm.first()
            if name == "end":
                return given
            comm.apart = True
            try:
                getattr(follower if hasattr(follower, name) else follower.solver, name)(*given)
            except FastadmmError:
                if comm.apart:
                    raise  # else all have it, and rank 0 says what to do
    finally:
        if follower.solver is not None:
            follower.solver.close()
