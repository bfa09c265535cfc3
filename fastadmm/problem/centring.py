r"""Columns far from zero, with a constant subtracted while a model is fitted.

Of a column whose mean is a thousand times its deviation, sums cancel: time stamps, account numbers. Where an
intercept is fitted, :math:`D x + b = (D - 1 c^\top) x + (b + c^\top x)` is the same model for every c, with
the same weights and the same penalty. Entries near c are subtracted without rounding (Sterbenz). What is
written is the intercept of the columns themselves.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastadmm.blocks.block import DenseBlock, FeatureBlock
from fastadmm.engine.engine import Engine
from fastadmm.problem.problem import Problem, TestSet

Array = np.ndarray

#: A column is far where its mean is so many of its deviations: its square then loses six digits.
_FAR = 1000.0

#: Rows at the beginning of each leaf that are looked at first, and what their distance from zero is at least,
#: in their range, for a column to be looked at as a whole.
_ROWS, _RANGES = 64, 100.0


@dataclass(frozen=True)
class Centring:
    """Constants of the columns of each party. Shapes: each of centres (d_m,)."""

    centres: list[Array | None]  # of shape (d_m,): none where no column of the party is far

    def problem(self, problem: Problem) -> Problem:
        """The problem of centred columns; test rows are centred, too."""
        test = None if problem.test is None else self.rows(problem.test)
        blocks = self._blocks(problem.blocks)
        return replace(problem, blocks=blocks, test=test, entry_roundings=problem.entry_roundings + 1.0)

    def rows(self, rows: TestSet) -> TestSet:
        """Other rows, with the same constants."""
        return replace(rows, blocks=self._blocks(rows.blocks))

    def _blocks(self, blocks: Sequence[FeatureBlock]) -> list[FeatureBlock]:
        pairs = zip(blocks, self.centres, strict=True)
        return [block if c is None else block.centred(c) for block, c in pairs]

    def shifted(self, weights: Sequence[Array], intercept: Any, sign: float) -> Any:
        """An intercept with what the constants contribute times a sign, rounded once.

        Shapes: each of weights (d_m,) or (d_m, C); intercept, the result (C,).
        """
        far = [(sign * c, x) for c, x in zip(self.centres, weights, strict=True) if c is not None]
        if np.ndim(intercept) == 0:
            return _exact_sum(far, float(intercept))
        return np.array([_exact_sum([(c, x[:, k]) for c, x in far], b) for k, b in enumerate(intercept)])


def _exact_sum(pairs: Sequence[tuple[Array, Array]], first: float) -> float:
    """Sum of a number and the products of pairs of arrays (d,), rounded once."""
    terms = [first]
    for a, b in pairs:
        high, low = exact_products(a, b)
        terms += high.tolist()
        terms += low[np.isfinite(low)].tolist()
    return math.fsum(terms)


def exact_products(a: Array, b: Array) -> tuple[Array, Array]:
    """Products of numbers, and what rounding takes of each. Shapes: a, b (d,)."""
    high = a * b
    # Products of halves of 26 bits are exact: Dekker's.
    a1, b1 = ((v * 134217729.0) - ((v * 134217729.0) - v) for v in (a, b))
    return high, ((a1 * b1 - high) + a1 * (b - b1) + (a - a1) * b1) + (a - a1) * (b - b1)


def centring_of(problem: Problem, engine: Engine) -> Centring | None:
    """Constants for the columns that are far from zero; None where there are none."""
    if not problem.fit_intercept:
        return None
    seem = [_seem_far(block, engine) if isinstance(block, DenseBlock) else None for block in problem.blocks]
    if all(found is None for found in seem):
        return None
    with engine.limited():
        pairs = zip(problem.blocks, seem, strict=True)
        centres = [None if near is None else _centre(block, *near, engine) for block, near in pairs]
    return None if all(c is None for c in centres) else Centring(centres)


def _seem_far(block: DenseBlock, engine: Engine) -> tuple[Array, Array] | None:
    """Which columns may be far, and a value of each, both of shape (d,), by the first rows of every leaf."""
    if block.in_memory and not engine.shares_rows and block.shape[0] > 1:
        first, second = block.matrix[:2]
        if not (np.abs(first) > _RANGES * np.abs(second - first)).any():
            return None  # more rows have no smaller range
    leaves = engine.leaves(block.shape[0])
    firsts = [(start, min(start + _ROWS, stop)) for start, stop in leaves]
    if block.in_memory and len(leaves) == 1:
        rows = block.matrix[: firsts[0][1]]
    else:
        rows = np.concatenate([part.copy() for first in firsts for _, part in block.tiles(first)])
    low, high = rows.min(axis=0), rows.max(axis=0)
    if engine.shares_rows:
        low, high = -engine.each_largest(list(-low[:, None])), engine.each_largest(list(high[:, None]))
    seems = np.maximum(low, -high) > _RANGES * (high - low)  # the end that is nearer to zero
    return (seems, low) if seems.any() else None


def _centre(block: FeatureBlock, seems: Array, value: Array, engine: Engine) -> Array | None:
    """A value of each far column, zero of the others; None where there is no far one."""
    n = block.shape[0]
    mean = block.transposed_product(np.ones(n), engine) / block.whole_shape[0]
    square = block.column_squares(engine) / block.whole_shape[0]
    far = seems & (mean * mean > _FAR**2 * (square - mean * mean))
    return np.where(far, value, 0.0) if far.any() else None
