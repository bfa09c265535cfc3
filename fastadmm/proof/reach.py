"""How far weights can go that nothing bounds: fixed from the data, before there is an answer to judge."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from fastadmm.blocks.block import FeatureBlock
from fastadmm.problem.problem import Problem

__all__ = ["DEVIATIONS", "bounded_models", "column_deviations", "reach_of", "reach_where_endless"]

Array = np.ndarray

#: What a column contributes at most, in deviations of the predictor.
DEVIATIONS = 1000.0


def reach_of(problem: Problem, engine: Any) -> float:
    """R, in the unit of the predictor: 1000 for classes and log links, else 1000 of the target's deviations.

    Deviations are from the mean, or without an intercept from zero.

    Parameters
    ----------
    problem : Problem
    engine : Engine
    """
    loss = problem.loss
    if loss.task == "classification" or loss.link(1.0) is not None:
        return DEVIATIONS
    target = engine.plus(problem.y, problem.offset, factor=-1.0)
    rows = engine.all_rows(len(target))
    mean = engine.total(target) / rows if problem.fit_intercept else 0.0
    centred = engine.plus(target, target, -float(mean), factor=0.0)
    return DEVIATIONS * engine.norm(centred) / math.sqrt(rows)


def column_deviations(blocks: Sequence[FeatureBlock], about_mean: bool, engine: Any) -> list[Array]:
    """Standard deviations of each block's columns over all rows, of shape (d_m,).

    Parameters
    ----------
    blocks : sequence of FeatureBlock of shape (N, d_m)
    about_mean : bool
        Else about zero.
    engine : Engine
    """
    found = []
    for block in blocks:
        rows = block.whole_shape[0]
        square = block.column_squares(engine) / rows
        if about_mean:
            mean = block.transposed_product(np.ones(block.shape[0]), engine) / rows
            square = np.maximum(square - mean * mean, 0.0)
        found.append(np.sqrt(square))
    return found


def reach_where_endless(problem: Problem, engine: Any) -> float:
    """R, where no regulariser bounds the weights; else 0.

    Parameters
    ----------
    problem : Problem
    engine : Engine
    """
    bounded = any(any(regularizer.shares) for regularizer in problem.party_regularizers)
    return 0.0 if bounded else reach_of(problem, engine)


def bounded_models(problem: Problem, engine: Any) -> tuple[list[tuple[Array, float] | None], float]:
    """Deviations of each party's columns and R, where nothing bounds the weights; else None, and 0.

    Parameters
    ----------
    problem : Problem
    engine : Engine
    """
    reach = reach_where_endless(problem, engine)
    if reach == 0.0:
        return [None] * problem.n_parties, 0.0
    found = column_deviations(problem.blocks, problem.fit_intercept, engine)
    return [(deviations, reach) for deviations in found], reach
