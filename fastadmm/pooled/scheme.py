"""The declaration of the scheme ``pooled``: all columns are in this process, nothing is exchanged."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fastadmm.method.scheme import Needs, Options, Scheme, Shape
from fastadmm.problem.traits import Traits

if TYPE_CHECKING:
    from fastadmm.engine.engine import Engine
    from fastadmm.method.method import Method
    from fastadmm.problem.problem import Problem

#: Vectors of the rows, of one predictor and of each of several; bytes of an entry of copied sparse rows, of
#: dense and sparse columns taken one by one, and of those of several predictors; a Gram matrix with
#: its factor and parts. bench/memory.py measures them.
_WORK, _WORK_OF_CLASS, _ENTRY, _COLUMN_ENTRY, _CLASS_ENTRY, _GRAMS = 44, 16, 12.0, (8.0, 24.0), 28.0, 3.0

#: Up to so many columns, dense and sparse, a Gram matrix of all of them is formed at once.
_BY_GRAM = 350, 60


class Pooled(Scheme):
    """See :mod:`fastadmm.pooled.method`."""

    name = "pooled"
    rounds = "one, mostly"
    remarks = "all columns are in this process: Newton's method over all weights, nothing is exchanged"
    needs = Needs(convex=True, uncoupled=True)

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
        from fastadmm.pooled.method import ways_of

        return bool(ways_of(Goal(problem, engine)))

    def history(self, shape: Shape, options: Options) -> int:
        """Nothing is kept."""
        return 0

    def state_bytes(self, shape: Shape, history: int) -> tuple[int, int]:
        """Vectors of the rows, copies of several parties' columns, a Gram matrix where that is allowed."""
        from fastadmm.pooled.cost import gram_is_allowed

        n, d = shape.n_samples, sum(shape.widths)
        entries = n * sum(width * density for width, density in zip(shape.widths, shape.densities))
        sparse = sum(density < 1.0 for density in shape.densities)
        copied = (_ENTRY if sparse else 8.0) * entries if shape.n_parties > 1 else 0.0
        by_column = _COLUMN_ENTRY[sparse > 0] * (d > _BY_GRAM[sparse > 0])
        by_column = _CLASS_ENTRY if shape.n_outputs > 1 else by_column
        by_column *= 0.0 if shape.traits.ridge else entries
        grams = _GRAMS * 8.0 * float(d) ** 2 if gram_is_allowed(d, entries) else 0.0
        work = _WORK_OF_CLASS * shape.n_outputs if shape.n_outputs > 1 else _WORK
        rows = 8.0 * (work + shape.n_parties) * n
        return math.ceil(rows + copied + by_column + grams), 0

    def factor_bytes(self, shape: Shape, options: Options) -> int:
        """None of a party."""
        return 0

    def updates(self, shape: Shape, options: Options) -> list[str]:
        """None of a party."""
        return ["pooled"] * shape.n_parties
