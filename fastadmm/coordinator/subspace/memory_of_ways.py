"""What the ways to the weights of all columns hold in memory beside the data."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = [
    "ENTRY_BYTES",
    "MANY_BYTES",
    "MOST_ON_GRAM",
    "bytes_of_columns",
    "bytes_of_copy",
    "bytes_of_hessian",
    "bytes_of_kernel",
    "fits_side_by_side",
    "hessian_fits",
    "most_columns_of_kinks",
]

#: Hessians with their factors and parts, at a time.
_HESSIANS_HELD = 6.0

#: Matrices of products of rows at a time: itself, its factor, and a system with its copy.
_KERNELS_HELD = 4.0

#: Of columns that are taken one by one: bytes of an entry of dense ones; weights of a Gram matrix, at most.
_DENSE_COLUMN_BYTES, MOST_ON_GRAM = 16.0, 4096

#: Bytes of an entry side by side, and in columns of their own; of a message's number; so many bytes are few,
#: and so many are planned for columns; so many numbers of a Hessian and what it is made of are few.
ENTRY_BYTES, _COLUMN_BYTES, _NUMBER_BYTES, _FEW_BYTES, MANY_BYTES = 10.0, 24.0, 8.0, 1 << 26, 1 << 31
_HESSIAN_NUMBERS, _FEW_NUMBERS = 12.0, 1 << 24

#: Bytes of all columns as messages that are not many where rounds would hardly end without.
_COPY_OF_COLUMNS = 1 << 28


def hessian_fits(n_samples: int, widths: Sequence[int], most: int) -> bool:
    """Whether a Hessian over all columns takes no more memory than messages, or little.

    Parameters
    ----------
    n_samples : int
        N, of all workers.
    widths : sequence of int
        Columns of each party.
    most : int
        Messages that a party may keep.
    """
    kept = sum(min(most, width) for width in widths)
    return _HESSIAN_NUMBERS * sum(widths) ** 2 <= max(n_samples * kept, _FEW_NUMBERS)


def most_columns_of_kinks(n_samples: int, widths: Sequence[int], most: int) -> int:
    """Most columns of a party that may all be its messages, where the loss has kinks.

    With fewer directions than weights the samples at their kinks are not told apart: the gap hardly falls.

    Parameters
    ----------
    n_samples, widths, most
        As of :func:`hessian_fits`.
    """
    copy = _NUMBER_BYTES * n_samples * sum(widths)
    fit = copy <= _COPY_OF_COLUMNS and hessian_fits(n_samples, widths, most)
    return max(most, *widths) if fit else most


def fits_side_by_side(
    n_samples: int, widths: Sequence[int], densities: Sequence[float], most: int, faces: bool = False
) -> bool:
    """Whether rows side by side take no more memory than messages, or little.

    Parameters
    ----------
    n_samples, widths, most
        As of :func:`hessian_fits`.
    densities : sequence of float
        Share of each block's entries that are stored.
    faces : bool
        Whether columns are taken one by one.
    """
    entries = sum(width * density for width, density in zip(widths, densities))
    messages = _NUMBER_BYTES * n_samples * sum(min(most, width) for width in widths)
    if faces:
        return bytes_of_columns(n_samples, widths, densities) <= max(messages, MANY_BYTES)
    return ENTRY_BYTES * n_samples * entries <= max(messages, _FEW_BYTES)


def bytes_of_columns(
    n_samples: int, widths: Sequence[int], densities: Sequence[float], n_classes: int = 1
) -> int:
    """What columns that are taken one by one take, in the data's unit and in the curvature's, with a Hessian.

    Parameters
    ----------
    n_samples, widths, densities
        As of :func:`fits_side_by_side`.
    n_classes : int
    """
    columns, entries = sum(widths), sum(width * density for width, density in zip(widths, densities))
    held = _DENSE_COLUMN_BYTES if min(densities) == 1.0 else _COLUMN_BYTES
    weights = n_classes * min(columns, 2 * n_samples)  # with l1 about as many as rows are not zero
    hessian, blocks = _HESSIANS_HELD * min(weights, MOST_ON_GRAM) ** 2, 2.0 * columns * n_classes**2
    return math.ceil(held * n_samples * entries + _NUMBER_BYTES * (hessian + blocks))


def bytes_of_hessian(columns: int) -> float:
    """With its factor and what it is made of; ``columns``: of all parties."""
    return _HESSIANS_HELD * _NUMBER_BYTES * columns**2


def bytes_of_kernel(n_samples: int) -> float:
    """Of the products of rows with each other; ``n_samples``: of all workers."""
    return _KERNELS_HELD * _NUMBER_BYTES * n_samples**2


def bytes_of_copy(n_samples: int, widths: Sequence[int], densities: Sequence[float]) -> float:
    """Of sparse rows side by side; a single party's are there.

    Parameters
    ----------
    n_samples, widths, densities
        As of :func:`fits_side_by_side`.
    """
    columns, entries = sum(widths), sum(width * density for width, density in zip(widths, densities))
    index = 2.0 if columns <= 1 << 16 else 4.0
    apart = len(widths) > 1 or min(densities) == 1.0
    return ((_NUMBER_BYTES + index) * entries + 2 * _NUMBER_BYTES) * n_samples if apart else 0.0
