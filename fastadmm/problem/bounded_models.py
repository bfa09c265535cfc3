"""How far weights can go that nothing bounds: fixed from the data, before there is an answer to judge."""

import math
from typing import Any

import numpy as np

from fastadmm.blocks.block import CSRBlock, DenseBlock, FeatureBlock
from fastadmm.engine.engine import Engine
from fastadmm.problem.problem import Problem

#: What a column contributes at most, in deviations of the predictor.
DEVIATIONS = 1000.0

Bound = tuple[np.ndarray, float]


def reach_of(problem: Problem, engine: Any) -> float:
    """R: largest standard deviation of what a column contributes, in models that are compared.

    1000 where predictors have a scale of their own, of classes and logarithms; else 1000 of the target's
    deviations. Deviations are from the mean or, without an intercept, from zero.
    """
    loss = problem.loss
    if loss.task == "classification" or loss.link(1.0) is not None:
        return DEVIATIONS
    target = engine.plus(problem.y, problem.offset, factor=-1.0)
    rows = engine.all_rows(len(target))
    mean = engine.total(target) / rows if problem.fit_intercept else 0.0
    apart = target - mean
    largest = engine.largest(np.abs(apart)) or 1.0  # whose square may overflow
    return DEVIATIONS * largest * engine.norm(apart / largest) / math.sqrt(rows)


def bounded_models(problem: Problem, engine: Any, norms: bool) -> tuple[list[Bound | None], float]:
    """Deviations (d_m,) of each party's columns and R, as :func:`reach_where_endless`; else None, and 0."""
    reach = reach_where_endless(problem, engine, norms)
    if reach == 0.0:
        return [None] * problem.n_parties, 0.0
    return [(deviations_of(block, problem.fit_intercept, engine), reach) for block in problem.blocks], reach


def reach_where_endless(problem: Problem, engine: Any, norms: bool = True) -> float:
    """R, where no regulariser bounds the weights, or none but ``norms``; else 0.

    Norms do, but of columns that are large for their lambda rounding of the gradient outweighs them.
    """
    shares = [regularizer.shares for regularizer in problem.party_regularizers]
    bounded = any(squared > 0.0 or (norm > 0.0 and not norms) for norm, squared in shares)
    return 0.0 if bounded else reach_of(problem, engine)


def deviations_of(block: FeatureBlock, about_mean: bool, engine: Any) -> np.ndarray:
    """Deviations of a block's columns (d,), from their means or zero; down: bounded models are no fewer."""
    rows = block.whole_shape[0]
    sizes = column_deviations(block, engine) if about_mean else np.sqrt(block.column_squares(engine) / rows)
    return sizes * (1.0 - (rows + 8.0) * 2.0**-52)


Array = np.ndarray
Rows = tuple[int, int]

#: A column that varies by less than this share of its mean is constant: no two of its doubles differ.
_CONSTANT = 1e-18


def column_deviations(block: FeatureBlock, engine: Engine) -> Array:
    """Root mean square distance of every column from its mean, of shape (d,); zero of a constant column.

    Exact to some digits however far from zero the columns are.

    Shapes: block (N, d).
    """
    rows, d = block.whole_shape
    mean = block.transposed_product(np.ones(block.shape[0]), engine) / rows

    def sums(rows: Rows) -> Array:
        """Of the entries less the columns' means, and of their squares."""
        out = np.zeros((2, d))
        if isinstance(block, DenseBlock):
            for _, part in block.tiles(rows):
                apart = part - mean
                out += apart.sum(axis=0), (apart * apart).sum(axis=0)
            return out
        assert isinstance(block, CSRBlock)
        left = np.full(d, float(rows[1] - rows[0]))
        for _, (indptr, indices, data) in block.tiles(rows):
            own = slice(int(indptr[0]), int(indptr[-1]))
            at = indices[own]
            apart = data[own] - mean[at]
            np.add.at(out[0], at, apart)
            np.add.at(out[1], at, apart * apart)
            np.subtract.at(left, at, 1.0)
        return out + left * np.array([-mean, mean * mean])

    first, second = engine.sums(sums, engine.leaves(block.shape[0]), size=2 * d) / rows
    found = np.sqrt(np.maximum(second - first * first, 0.0))
    found[found <= _CONSTANT * np.abs(mean)] = 0.0
    return found
