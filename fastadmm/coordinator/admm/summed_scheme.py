"""The declaration of the scheme ``sharing`` where the coordinator sees sums only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastadmm.coordinator.admm.order import SHARING
from fastadmm.coordinator.admm.scheme import AdmmScheme
from fastadmm.errors import ConfigError
from fastadmm.method.scheme import Needs, Options, Shape, refuse_single
from fastadmm.problem.traits import Traits

if TYPE_CHECKING:
    from fastadmm.engine.engine import Engine
    from fastadmm.method.method import Method
    from fastadmm.problem.problem import Problem

__all__ = ["SummedSharing"]


class SummedSharing(AdmmScheme):
    """See :mod:`fastadmm.coordinator.admm.summed`."""

    needs = Needs(convex=True, one_predictor=True)

    def __init__(self) -> None:
        super().__init__(SHARING, "", "")

    def why(self, traits: Traits, given: Sequence[str]) -> str:
        """An option of its own, or a problem that is not for ``subspace``."""
        return (
            super().why(traits, given)
            if given
            else "sums of messages, and no squared l2 without a constraint"
        )

    def method(self, traits: Traits) -> type[Method]:
        """Refused for a single party."""
        from fastadmm.coordinator.admm.summed import SummedAdmmMethod

        refuse_single(traits)
        return SummedAdmmMethod

    def make(self, problem: Problem, options: Options, engine: Engine) -> Method:
        for name, constraint in zip(problem.names, problem.party_constraints):
            low, high = constraint.bounds
            if not low <= 0.0 <= high:
                raise ConfigError(
                    f"secrecy: 'sums' needs a constraint that zero weights meet, not {constraint.text!r} of "
                    f"{name}: it is what bounds messages; leave one of the two out"
                )
        return super().make(problem, options, engine)

    def _memory(self, n_parties: int, message_size: int, options: Options, convex: bool) -> int:
        return super()._memory(2, message_size, options, convex)  # two sums in place of all messages

    def state_bytes(self, shape: Shape, history: int) -> tuple[int, int]:
        """Sums, z and u, and the masked messages; their differences, and the moves' images at each party."""
        n = 8 * shape.message_size
        state, more = super().state_bytes(_of_two(shape), history)
        return state + 2 * shape.n_parties * n, more + history * shape.n_parties * n

    def passes(self, update: str) -> int:
        """For the target, the newest move, the message and the certificate."""
        return super().passes(update) + 2


def _of_two(shape: Shape) -> Shape:
    from dataclasses import replace

    return replace(shape, widths=shape.widths[:2])
