"""A second way for runs in one process that take long: the best weights of all columns.

Rounds are many where what one sees leads only a little way: to the next of many kinks, in columns that differ
much in size, or towards an optimum of about nothing, infinitely far away. Where parties are in this process
and the whole table is small, an interior point method takes the rest of the way in a bounded number of steps
(:mod:`fastadmm.coordinator.proximal.central_path`), and what its gradient proves counts as ever.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastadmm.coordinator.metric_limits import directions_of_few_numbers
from fastadmm.coordinator.proximal.central_path import PathEnd, follow_central_path
from fastadmm.coordinator.stall_watch import PATIENCE
from fastadmm.engine.engine import Engine
from fastadmm.problem.penalty import PartyPenalty
from fastadmm.problem.problem import Problem

__all__ = ["best_of_all_columns", "is_small", "takes_long"]

Array = np.ndarray

#: Rows and weights at most, and operations of a Newton step, some ten milliseconds: of each so many parties
#: times classes again, whose rounds take long themselves.
_MOST_ROWS, _MOST_WEIGHTS, _MOST_WORK, _PARTS = 4096, 2048, 1 << 28, 16

#: Before the first try: rounds at least, and answers of all parties at most where that leaves so many.
_FEWEST, _MOST_ANSWERS = 5, 400


def is_small(problem: Problem, history: int | None) -> bool:
    """Whether all columns of a problem whose parties are in this process are few enough."""
    rows, classes = problem.n_samples, problem.n_outputs
    weights = classes * sum(block.shape[1] for block in problem.blocks)
    work = (classes * rows + weights) * weights**2 * _PARTS
    most = _MOST_WORK * max(_PARTS, problem.n_parties * classes)
    few = classes * rows <= _MOST_ROWS and weights <= _MOST_WEIGHTS and work <= most
    widest = max(block.shape[1] for block in problem.blocks)
    short = history is None or widest <= directions_of_few_numbers(problem.n_parties * classes, rows)
    return few and short and problem.convex


def takes_long(n_rounds: int, n_parties: int) -> bool:
    """Whether it is time to try: after some rounds, after twice as many, and so on."""
    # With many parties rounds take long themselves.
    first = max(_FEWEST, min(PATIENCE, _MOST_ANSWERS // n_parties))
    tries, left = divmod(n_rounds, first)
    return left == 0 and tries > 0 and tries & (tries - 1) == 0


def best_of_all_columns(
    problem: Problem, wanted: float, smallest: float, least: float, engine: Engine
) -> tuple[list[Array], PathEnd] | None:
    """Weights of every party, (d_m,) or (d_m, C), and what was found; None where a set has no inside.

    Scaling: smallest, least summed scaling.
    """
    blocks = problem.blocks
    values = np.hstack([block.columns(np.arange(block.shape[1]), engine) for block in blocks])
    penalties: Sequence[PartyPenalty] = [
        PartyPenalty(regularizer, constraint, problem.regularization)
        for regularizer, constraint in zip(problem.party_regularizers, problem.party_constraints)
    ]
    widths = [block.shape[1] for block in blocks]
    with np.errstate(all="ignore"):
        end = follow_central_path(problem, penalties, values, widths, wanted, smallest, least, engine)
    if end is None:
        return None
    parts = np.split(end.weights, np.cumsum(widths)[:-1], axis=-1)
    return [np.ascontiguousarray(x.T) for x in parts], end
