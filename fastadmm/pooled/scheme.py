"""The declaration of the scheme ``pooled``: all columns are in this process, nothing is exchanged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastadmm.method.scheme import Needs, Options, Scheme, Shape
from fastadmm.problem.traits import Traits

if TYPE_CHECKING:
    from fastadmm.engine.engine import Engine
    from fastadmm.method.method import Method
    from fastadmm.problem.problem import Problem

__all__ = ["Pooled"]

#: Vectors of the rows that a minimiser works with, beside a copy of sparse columns.
_WORK = 24


class Pooled(Scheme):
    """See :mod:`fastadmm.pooled.method`."""

    name = "pooled"
    rounds = "one, mostly"
    remarks = "all columns are in this process: Newton's method over all weights, nothing is exchanged"
    needs = Needs(convex=True, a_sum=True)

    def why(self, traits: Traits, given: Sequence[str]) -> str:
        """Because there is nobody to exchange anything with."""
        return "all columns are in this process"

    def method(self, traits: Traits) -> type[Method]:
        """One for all."""
        from fastadmm.pooled.method import PooledMethod

        return PooledMethod

    def make(self, problem: Problem, options: Options, engine: Engine) -> Method:
        from fastadmm.pooled.method import PooledMethod

        return PooledMethod(problem, engine, options.gap)

    def takes(self, problem: Problem, engine: Engine) -> bool:
        from fastadmm.pooled.goal import Goal
        from fastadmm.pooled.minimisers import ways_of

        return bool(ways_of(Goal(problem, engine)))

    def history(self, shape: Shape, options: Options) -> tuple[int, int]:
        """Nothing is kept."""
        return 0, 0

    def state_bytes(self, shape: Shape, history: int) -> tuple[int, int]:
        """Vectors of the rows."""
        return 8 * _WORK * shape.n_outputs * shape.n_samples, 0

    def factor_bytes(self, shape: Shape, options: Options) -> int:
        """None of a party."""
        return 0

    def updates(self, shape: Shape, options: Options) -> list[str]:
        """None of a party."""
        return ["pooled"] * shape.n_parties

    def passes(self, update: str) -> int:
        """Of a round, about."""
        return 20
