"""Which columns of several parties are read as dense ones: in their own order, without indices."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["MOSTLY", "are_narrow", "dense_columns"]

#: Columns with a larger share of stored entries do not count as sparse.
MOSTLY = 0.5

#: Fewer dense columns beside sparse ones are copied with these, as sparse ones.
_FEWEST_DENSE = 6

#: Dense matrices with fewer columns on average, beside sparse ones, are copied as one: a row of each matrix
#: costs as much as some columns.
_NARROW = 8


def dense_columns(widths: Sequence[int], densities: Sequence[float], apart: bool = True) -> int:
    """Number of columns that are read as dense ones.

    Parameters
    ----------
    widths : sequence of int
        Columns of each party.
    densities : sequence of float
        Share of each block's entries that are stored; 1 for dense blocks.
    apart : bool
        Whether dense columns beside sparse ones may be read apart from them.
    """
    found = sum(width for width, density in zip(widths, densities) if density == 1.0)
    return found if found == sum(widths) or (apart and found >= _FEWEST_DENSE) else 0


def are_narrow(widths: Sequence[int], densities: Sequence[float]) -> bool:
    """Whether dense columns beside sparse ones are copied as one matrix.

    Parameters
    ----------
    widths, densities
        As for :func:`dense_columns`.
    """
    count = sum(density == 1.0 for density in densities)
    return 1 < count < len(widths) and 0 < dense_columns(widths, densities) < _NARROW * count
