"""What operations on a table cost, by which minimisers are chosen; bench/pooled_cost.py measures them."""

from __future__ import annotations

from fastadmm.blocks.side_by_side import mean_row_square
from fastadmm.pooled.goal import Goal

__all__ = ["dense_gram", "gram", "gram_fits", "kernel", "product"]

#: Nanoseconds of a stored entry in a pass over the rows, and of a pair of entries of a row in a Gram matrix:
#: of dense and of sparse columns.
ENTRY, PAIR = (0.5, 1.3), (0.04, 0.7)

#: Nanoseconds of the cube of the columns in a Cholesky factor; of a call, however small the table.
FACTOR, CALL = 0.017, 3e4

#: Bytes that a Gram matrix and its factor may take beside a table: so many, or as many as the table.
MOST_BYTES = 1 << 28


def product(goal: Goal) -> float:
    """Nanoseconds of a Hessian-vector product."""
    return 2.0 * ENTRY[goal.is_sparse] * goal.n_samples * goal.entries + CALL


def gram(goal: Goal) -> float:
    """Nanoseconds of a Gram matrix of all columns with its factor; they must be in memory."""
    d, dense = sum(goal.widths), sum(b.shape[1] for b in goal.problem.blocks if b.density == 1.0)
    sparse = mean_row_square(goal.problem.blocks, goal.engine, True) if goal.is_sparse else 0.0
    pairs = PAIR[0] * dense * dense + PAIR[1] * (sparse + 2.0 * dense * (goal.entries - dense))
    return pairs * goal.n_samples + FACTOR * float(d) ** 3


def dense_gram(rows: int, columns: int) -> float:
    """Nanoseconds of a Gram matrix of dense columns with its factor."""
    return PAIR[0] * rows * float(columns) ** 2 + FACTOR * float(columns) ** 3


def gram_fits(goal: Goal) -> bool:
    """Whether a Gram matrix of all columns, with its factor, is no larger than the table, or small."""
    return 16.0 * float(sum(goal.widths)) ** 2 <= max(8.0 * goal.n_samples * goal.entries, MOST_BYTES)


def kernel(goal: Goal) -> float:
    """Nanoseconds of a factor of the Gram matrix of the rows, once that is known."""
    return FACTOR * float(goal.n_samples) ** 3 + CALL
