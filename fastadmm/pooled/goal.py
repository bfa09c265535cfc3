"""What is minimised over all columns, a model of them, and what a dual vector proves of it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Any, TypeVar

import numpy as np

from fastadmm.blocks.block import CSRBlock, FeatureBlock
from fastadmm.blocks.side_by_side import Rows, can_stand_side_by_side, side_by_side
from fastadmm.engine.engine import Engine
from fastadmm.method.certificate import primal_value
from fastadmm.method.class_certificate import class_primal_value
from fastadmm.method.penalised_bound import DualShare, bound_from_shares
from fastadmm.problem.bounded_models import deviations_of, reach_of
from fastadmm.problem.penalty import PartyPenalty
from fastadmm.problem.problem import Problem

Array = np.ndarray

_Proved = TypeVar("_Proved", bound="Proved")

#: Share of the wanted gap that a minimiser may leave.
SHARE_OF_WANTED = 0.3


class Table:
    """All columns of several blocks, each read where it is. Shapes: each of blocks (N, d_m)."""

    def __init__(self, blocks: Sequence[FeatureBlock]) -> None:
        self.blocks, self.widths = blocks, [block.shape[1] for block in blocks]
        self.shape = blocks[0].shape[0], sum(self.widths)
        self.entries = sum(block.shape[1] * block.density for block in blocks)  # stored in a row
        self.density = self.entries / max(1, self.shape[1])
        self._cuts = np.cumsum(self.widths)[:-1]

    def parted(self, x: Array) -> list[Array]:
        """Numbers of all columns by block: each (d_m,), or (C, d_m)."""
        return np.split(x, self._cuts, axis=-1)

    def product(self, x: Array, engine: Engine) -> Array:
        """``D x``. Shapes: x (d,) or (C, d); the result (N,) or (C, N)."""
        pairs = zip(self.blocks, self.parted(x))
        if x.ndim == 1:
            return reduce(np.add, [block.product(own, engine) for block, own in pairs])
        parts = (block.matrix_product(np.ascontiguousarray(own), engine) for block, own in pairs)
        return reduce(np.ndarray.__iadd__, parts)

    def transposed_product(self, v: Array, engine: Engine) -> Array:
        """``D.T v``. Shapes: v (N,) or (C, N); the result (d,) or (C, d)."""
        if v.ndim == 1:
            return np.concatenate([block.transposed_product(v, engine) for block in self.blocks])
        return np.concatenate([block.transposed_matrix_product(v, engine) for block in self.blocks], axis=1)

    def column_squares(self, engine: Engine) -> Array:
        """Diagonal of the Gram matrix, of shape (d,)."""
        return np.concatenate([block.column_squares(engine) for block in self.blocks])


class Goal:
    """The objective of a problem over the columns of all its blocks, in the order of the blocks."""

    def __init__(self, problem: Problem, engine: Engine) -> None:
        self.problem, self.engine, self.table = problem, engine, Table(problem.blocks)
        self.widths, self.entries, self.parted = self.table.widths, self.table.entries, self.table.parted
        self.n_samples = engine.all_rows(problem.n_samples)
        self.primal: Any = class_primal_value if problem.loss.vector else primal_value

    @property
    def penalty(self) -> PartyPenalty:
        """Of all columns, where all blocks have the same one and it is a sum over weights."""
        return self.problem.penalties[0]

    @property
    def in_memory(self) -> bool:
        """Whether all columns are matrices in memory."""
        return can_stand_side_by_side(self.problem.blocks)

    @property
    def is_sparse(self) -> bool:
        """Whether the table is read entry by entry."""
        return any(isinstance(block, CSRBlock) for block in self.problem.blocks)

    def rows(self) -> Rows:
        """All columns in memory as one table."""
        return side_by_side(self.problem.blocks, self.engine)

    def product(self, weights: Array) -> Array:
        """Predictor without offset and intercept.

        Shapes: weights (d,) or (C, d); the result (N,) or (C N,).
        """
        return self.table.product(weights, self.engine).ravel()

    def images(self, u: Array) -> Array:
        """Products of all columns with a vector over the rows.

        Shapes: u (N,) or (C N,); the result (d,) or (C, d).
        """
        v = u.reshape(self.problem.n_outputs, -1) if self.problem.loss.vector else u
        return self.table.transposed_product(v, self.engine)

    def _each(self, *vectors: Array) -> Iterator[tuple[Any, ...]]:
        """Penalty, sizes and numbers of all columns, block by block and class by class."""
        parted = zip(*(self.parted(np.atleast_2d(v)) for v in vectors))
        for penalty, size, parts in zip(self.problem.penalties, self._sizes, parted):
            for own in zip(*parts):
                yield penalty, size, *map(np.ascontiguousarray, own)

    def regulariser(self, weights: Array) -> float:
        """Penalty of weights in the set, summed scaling."""
        return sum(penalty.value(x) for penalty, _, x in self._each(weights))

    def lower(self, u: Array, images: Array) -> float:
        """What a dual vector proves of every model, summed scaling; minus infinity where that is nothing.

        Shapes: u (N,) or (C N,); images (d,) or (C, d).
        """
        shares = [DualShare.proved(penalty, -pull) for penalty, _, pull in self._each(images)]
        return bound_from_shares(self.problem, u, shares, self.engine)

    @cached_property
    def _sizes(self) -> list[Array | None]:
        """Deviations of the columns of each block, (d_m,), whose weights nothing bounds; None of others."""
        problem, given = self.problem, (self.problem.fit_intercept, self.engine)
        endless = [own.homogeneous and own.coefficients[0] == 0.0 for own in problem.penalties]
        return [deviations_of(b, *given) if free else None for b, free in zip(problem.blocks, endless)]

    @cached_property
    def _reach(self) -> float:
        return reach_of(self.problem, self.engine)

    def is_within_reach(self, weights: Array) -> bool:
        """Whether no column contributes more than the reach, of those whose weights nothing bounds.

        Shapes: weights (d,) or (C, d).
        """
        each = ((size, x) for _, size, x in self._each(weights) if size is not None)
        return all(bool((np.abs(x) * size <= self._reach).all()) for size, x in each)

    def within(self, u: Array, images: Array, weights: Array) -> float:
        """What a dual vector proves among models in which no column contributes more than the reach.

        Returns: summed scaling; minus infinity where all weights are bounded, or these are no such model.
        Shapes: u (N,) or (C N,); images and weights (d,) or (C, d).
        """
        if all(size is None for size in self._sizes) or not self.is_within_reach(weights):
            return -math.inf
        shares = []
        for penalty, size, image in self._each(images):
            if size is None:
                shares.append(DualShare.proved(penalty, -image))
                continue
            varies = size > 0.0  # what a constant column contributes is the intercept's
            most = penalty.excess(np.where(varies, -image, 0.0), np.where(varies, size, 1.0))
            shares.append(DualShare(1.0, self._reach * most, 0.0))
        return bound_from_shares(self.problem, u, shares, self.engine)

    def start(self) -> Point:
        """The model of zero weights, or of those of the set that are nearest; nothing is proved of it."""
        problem, vector = self.problem, self.problem.loss.vector
        d, classes = sum(self.widths), problem.n_outputs
        weights = np.zeros((classes, d)) if vector else np.zeros(d)
        for own, part in zip(problem.penalties, self.parted(weights)):
            part[...] = own.constraint.project(np.zeros(part.shape[-1]))
        intercept: Any = np.zeros(classes) if vector else 0.0
        total = self.product(weights) if weights.any() else np.zeros(problem.message_size)
        found = self.primal(problem, total, intercept, self.engine)
        model = weights, found.intercept, found.gradient, found.loss + self.regulariser(weights)
        return Point(*model, -math.inf, total=total, gradient=found.gradient)

    def at(self, weights: Array, intercept: Any, dual: Array | None = None) -> Point:
        """The model with these weights and its best intercept; a dual vector proves more than the gradient.

        Shapes: weights (d,) or (C, d); intercept () or (C,); dual (N,) or (C N,).
        """
        total = self.product(weights)
        found = self.primal(self.problem, total, intercept, self.engine)
        u = found.gradient if dual is None else dual
        images = self.images(u)
        model = weights, found.intercept, u, found.loss + self.regulariser(weights)
        proved = self.lower(u, images), self.within(u, images, weights)
        return Point(*model, *proved, total=total, gradient=found.gradient)


@dataclass(frozen=True)
class Proved:
    """Weights of some columns or all, and the dual vector that proves most of them.

    Shapes: weights (d,) or (C, d); intercept () or (C,); dual (N,) or (C N,).
    Scaling: value, lower and within summed scaling.
    """

    weights: np.ndarray
    intercept: Any
    dual: np.ndarray
    value: float  # the objective
    lower: float
    within: float = -math.inf  # what it proves among models of bounded size, where nothing bounds weights

    @property
    def bound(self) -> float:
        """The best that is proved."""
        return max(self.lower, self.within)


@dataclass(frozen=True, kw_only=True)
class Point(Proved):
    """Weights of all columns with the best intercept. Shapes: total, gradient (N,) or (C N,)."""

    total: np.ndarray
    gradient: np.ndarray

    @property
    def gap(self) -> float:
        """The objective above what the dual vector proves, as a share of that."""
        return (self.value - self.bound) / self.bound if 0.0 < self.bound < math.inf else math.inf


def better(one: _Proved | None, other: _Proved) -> _Proved:
    """The weights of less value of two, with the dual vector that proves more."""
    if one is None:
        return other
    low = other if other.value < one.value else one
    dual = other if other.bound > one.bound else one
    return replace(low, dual=dual.dual, lower=dual.lower, within=dual.within)
