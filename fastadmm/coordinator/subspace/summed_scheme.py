"""The declaration of the scheme ``subspace`` where the coordinator sees sums only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastadmm.coordinator.subspace.scheme import Subspace
from fastadmm.method.scheme import Needs, Options, Shape, refuse_single
from fastadmm.problem.traits import Traits

if TYPE_CHECKING:
    from fastadmm.engine.engine import Engine
    from fastadmm.method.method import Method
    from fastadmm.problem.problem import Problem

__all__ = ["SummedSubspace"]

#: Vectors of a message's length beside the summed and the masked ones; bench/memory.py measures them.
_WORK = 18


class SummedSubspace(Subspace):
    """See :mod:`fastadmm.coordinator.subspace.summed`."""

    needs = Needs(ridge=True, convex=True, one_predictor=True)
    options: tuple[str, ...] = ()

    def method(self, traits: Traits) -> type[Method]:
        """One for smooth losses, one for kinks; refused for a single party."""
        from fastadmm.coordinator.subspace.summed import SummedSmoothedMethod, SummedSubspaceMethod

        refuse_single(traits)
        return SummedSubspaceMethod if traits.smooth else SummedSmoothedMethod

    def make(self, problem: Problem, options: Options, engine: Engine) -> Method:
        kind: type = self.method(problem.traits)
        return kind(problem, engine, options.history)

    def notes(self, traits: Traits, options: Options) -> list[str]:
        return ["answers of a round: both directions, of which the coordinator sees the sum over all parties"]

    def history(self, shape: Shape, options: Options) -> tuple[int, int]:
        """Directions of all parties together."""
        from fastadmm.coordinator.metric_limits import directions_per_party

        return directions_per_party(1), super().history(shape, options)[1]

    def state_bytes(self, shape: Shape, history: int) -> tuple[int, int]:
        """All summed messages, and the masked ones of a round."""
        kept = min(history, 2 * shape.rounds, shape.messages)
        return 8 * (kept + 2 + 3 * shape.n_parties + _WORK) * shape.message_size, 0

    def span_work(self, shape: Shape, history: int) -> float:
        """The Hessian over all summed messages."""
        return 2.0 * shape.n_samples * float(history) ** 2
