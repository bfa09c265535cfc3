"""A second way for runs in one process that take long: the best weights of all columns.

Rounds are many where what one sees leads only a little way: to the next of many kinks, in columns that differ
much in size, or towards an optimum of about nothing, infinitely far away. Where parties are in this process
and the whole table is small, an interior point method takes the rest of the way in a bounded number of steps
(:mod:`fastadmm.coordinator.proximal.central_path`), and what its gradient proves counts as ever.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastadmm.coordinator.proximal.central_path import PathEnd, follow_central_path
from fastadmm.coordinator.stall_watch import PATIENCE
from fastadmm.engine.engine import Engine
from fastadmm.problem.penalty import PartyPenalty
from fastadmm.problem.problem import Problem

__all__ = ["best_of_all_columns", "is_small", "takes_long"]

Array = np.ndarray

#: Rows and columns at most, and operations of a Newton step: some ten milliseconds.
_MOST_ROWS, _MOST_COLUMNS, _MOST_WORK = 4096, 1024, 1 << 28

#: Before the first try: rounds at least, and answers of all parties at most where that leaves so many.
_FEWEST, _MOST_ANSWERS = 5, 400


def is_small(problem: Problem) -> bool:
    """Whether all columns of a problem whose parties are in this process are few enough."""
    rows, columns = problem.n_samples, sum(block.shape[1] for block in problem.blocks)
    few = rows <= _MOST_ROWS and columns <= _MOST_COLUMNS and (rows + columns) * columns**2 <= _MOST_WORK
    return few and problem.convex and problem.n_outputs == 1


def takes_long(n_rounds: int, n_parties: int) -> bool:
    """Whether it is time to try: after some rounds, after twice as many, and so on."""
    # With many parties rounds take long themselves.
    first = max(_FEWEST, min(PATIENCE, _MOST_ANSWERS // n_parties))
    tries, left = divmod(n_rounds, first)
    return left == 0 and tries > 0 and tries & (tries - 1) == 0


def best_of_all_columns(
    problem: Problem, wanted: float, smallest: float, least: float, engine: Engine
) -> tuple[list[Array], PathEnd] | None:
    """Weights of every party, and what was found; None where a set has no inside.

    Parameters
    ----------
    problem : Problem
        That :func:`is_small`.
    wanted : float
        Relative gap to end at.
    smallest, least : float
        Gap that is rounding, and a proved lower bound; summed scaling.
    engine : Engine
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
    return None if end is None else (np.split(end.weights, np.cumsum(widths)[:-1]), end)
