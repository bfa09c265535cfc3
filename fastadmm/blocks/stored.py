"""Which columns of several parties are read as dense ones: in their own order, without indices."""

from __future__ import annotations

from collections.abc import Sequence

#: Columns with a larger share of stored entries do not count as sparse.
MOSTLY = 0.5

#: Fewer dense columns beside sparse ones are copied with these, as sparse ones.
_FEWEST_DENSE = 6

#: Dense matrices with fewer columns on average are copied as one: a row of each matrix costs as much as some
#: columns. Without sparse columns, which are copied too, the copy takes at most so many bytes.
_NARROW, _FEW_BYTES = 8, 1 << 28

#: The same for dual ascent, which goes from row to row.
_NARROW_ROWS = 64


def dense_columns(widths: Sequence[int], densities: Sequence[float], apart: bool = True) -> int:
    """Number of columns that are read as dense ones."""
    found = sum(width for width, density in zip(widths, densities) if density == 1.0)
    return found if found == sum(widths) or (apart and found >= _FEWEST_DENSE) else 0


def are_narrow(n_samples: int, widths: Sequence[int], densities: Sequence[float]) -> bool:
    """Whether dense columns of several parties are copied as one matrix."""
    count, dense = sum(density == 1.0 for density in densities), dense_columns(widths, densities)
    fits = count < len(widths) or 8 * n_samples * dense <= _FEW_BYTES
    return count > 1 and fits and 0 < dense < _NARROW * count


def rows_are_narrow(widths: Sequence[int]) -> bool:
    """Whether dense matrices, without sparse ones, are copied as one for dual ascent."""
    return len(widths) > 1 and sum(widths) < _NARROW_ROWS * len(widths)
