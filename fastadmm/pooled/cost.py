"""What operations on a table cost, by which minimisers are chosen."""

from fastadmm.blocks.side_by_side import mean_row_square
from fastadmm.pooled.goal import Goal

#: Nanoseconds of a stored entry in a pass over the rows, and of a pair of entries of a row in a Gram matrix:
#: of dense and of sparse columns.
ENTRY, PAIR = (0.5, 1.3), (0.04, 1.2)

#: Columns whose Gram matrix a cache holds; the power of their number by which a sparse pair takes longer.
CACHED, GROWTH = 512.0, 1.4

#: Nanoseconds of a stored entry in a pass of coordinate descent.
DESCENT = 0.6, 2.2

#: Products of an easy Newton step: a Gram matrix that costs no more is formed at once.
EASY = 14.0

#: Nanoseconds of the cube of the columns in a Cholesky factor; of a call, however small the table.
FACTOR, CALL = 0.017, 3e4

#: Bytes that a Gram matrix and its factor may take: so many, or as many as the table.
_MOST_BYTES = 1 << 28


def product(goal: Goal) -> float:
    """Nanoseconds of a Hessian-vector product."""
    return 2.0 * ENTRY[goal.is_sparse] * goal.n_samples * goal.entries + CALL


def pair(columns: float, sparse: bool) -> float:
    """Nanoseconds of a pair of entries of a row, in a Gram matrix of so many columns."""
    return PAIR[1] * max(1.0, columns / CACHED) ** GROWTH if sparse else PAIR[0]


def gram(goal: Goal) -> float:
    """Nanoseconds of a Gram matrix of all columns with its factor; they must be in memory."""
    columns, pairs = sum(goal.widths), float(sum(goal.widths)) ** 2
    if goal.is_sparse:
        pairs = 0.5 * mean_row_square(goal.problem.blocks, goal.engine)
    return pair(columns, goal.is_sparse) * pairs * goal.n_samples + FACTOR * float(columns) ** 3


def gram_is_allowed(columns: int, entries: float) -> bool:
    """Whether a Gram matrix, with its factor, is no larger than a table with so many entries, or small."""
    return 16.0 * float(columns) ** 2 <= max(8.0 * entries, _MOST_BYTES)


def gram_fits(goal: Goal) -> bool:
    """Whether a Gram matrix of all columns, with its factor, is no larger than the table, or small."""
    return gram_is_allowed(sum(goal.widths), goal.n_samples * goal.entries)
