"""Memory, beyond the data, of each method that finds the weights of all columns."""

from __future__ import annotations

import math
from collections.abc import Sequence

from fastadmm.blocks.stored import are_narrow, dense_columns

__all__ = [
    "ENTRY_BYTES",
    "MANY_BYTES",
    "MOST_ON_GRAM",
    "NUMBER_BYTES",
    "bytes_of_columns",
    "bytes_of_copy",
    "bytes_of_hessian",
    "bytes_of_kernel",
    "entries_of_row",
    "fits_side_by_side",
    "hessian_fits",
    "most_columns_of_kinks",
]

#: Arrays of a Hessian's size held at a time: the Hessian, its factor, and partial sums.
_HESSIANS_HELD = 6.0

#: Arrays of the size of the rows' Gram matrix held at a time: itself, its factor, a system and its copy.
_KERNELS_HELD = 4.0

#: Coordinate descent: bytes per entry of dense columns; and the most weights of a Gram matrix.
_DENSE_COLUMN_BYTES, MOST_ON_GRAM = 16.0, 4096

#: Bytes per entry of sparse rows copied into one matrix, and of sparse columns; per number of a message; a
#: size that is always allowed, and one that columns may always take. Numbers held per element of a Hessian,
#: and how many of these are always allowed.
ENTRY_BYTES, _COLUMN_BYTES, NUMBER_BYTES, _FEW_BYTES, MANY_BYTES = 10.0, 24.0, 8.0, 1 << 28, 1 << 31
_HESSIAN_NUMBERS, _FEW_NUMBERS = 12.0, 1 << 24

#: Bytes of all columns as messages that are not many where rounds would hardly end without.
_COPY_OF_COLUMNS = 1 << 28


def entries_of_row(widths: Sequence[int], densities: Sequence[float]) -> float:
    """Mean number of stored entries of a row, over all parties."""
    return sum(width * density for width, density in zip(widths, densities))


def hessian_fits(n_samples: int, widths: Sequence[int], most: int) -> bool:
    """Whether a Hessian of all columns takes no more memory than the messages would, or little."""
    kept = sum(min(most, width) for width in widths)
    return _HESSIAN_NUMBERS * sum(widths) ** 2 <= max(n_samples * kept, _FEW_NUMBERS)


def most_columns_of_kinks(n_samples: int, widths: Sequence[int], most: int) -> int:
    """Most columns of a party that may all be its messages, where the loss has kinks.

    With fewer directions than weights the samples at their kinks are not told apart: the gap hardly falls.
    """
    copy = NUMBER_BYTES * n_samples * sum(widths)
    fit = copy <= _COPY_OF_COLUMNS and hessian_fits(n_samples, widths, most)
    return max(most, *widths) if fit else most


def fits_side_by_side(
    n_samples: int,
    widths: Sequence[int],
    densities: Sequence[float],
    most: int,
    faces: bool = False,
    apart: bool = True,
) -> bool:
    """Whether the sparse rows of all parties in one matrix take no more memory than messages, or little."""
    entries = entries_of_row(widths, densities)
    messages = NUMBER_BYTES * n_samples * sum(min(most, width) for width in widths)
    if faces:
        return bytes_of_columns(n_samples, widths, densities) <= max(messages, MANY_BYTES)
    copied = entries - dense_columns(widths, densities, apart)
    return ENTRY_BYTES * n_samples * copied <= max(messages, _FEW_BYTES)


def bytes_of_columns(
    n_samples: int,
    widths: Sequence[int],
    densities: Sequence[float],
    n_classes: int = 1,
    on_gram: int = MOST_ON_GRAM,
) -> int:
    """Bytes of coordinate descent: the columns as they are and scaled by the curvature, and a Gram matrix."""
    columns, entries = sum(widths), entries_of_row(widths, densities)
    held = _DENSE_COLUMN_BYTES if min(densities) == 1.0 else _COLUMN_BYTES
    weights = n_classes * min(columns, 2 * n_samples)  # with l1 about as many as there are rows are nonzero
    hessian, blocks = _HESSIANS_HELD * min(weights, on_gram) ** 2, 2.0 * columns * n_classes**2
    return math.ceil(held * n_samples * entries + NUMBER_BYTES * (hessian + blocks))


def bytes_of_hessian(columns: int) -> float:
    """Bytes of a Hessian of so many ``columns``, with its factor and partial sums."""
    return _HESSIANS_HELD * NUMBER_BYTES * columns**2


def bytes_of_kernel(n_samples: int) -> float:
    """Bytes of the Gram matrix of ``n_samples`` rows (of all workers), with its factor."""
    return _KERNELS_HELD * NUMBER_BYTES * n_samples**2


def bytes_of_copy(
    n_samples: int, widths: Sequence[int], densities: Sequence[float], apart: bool = True
) -> float:
    """Bytes of rows copied into one matrix: sparse ones of several parties, and narrow dense ones."""
    dense, copied = dense_columns(widths, densities, apart), 0.0
    if sum(density < 1.0 for density in densities) > 1 or (not dense and len(widths) > 1):
        columns, entries = sum(widths) - dense, entries_of_row(widths, densities) - dense
        copied = (NUMBER_BYTES + (2.0 if columns <= 1 << 16 else 4.0)) * entries + 2 * NUMBER_BYTES
    if apart and are_narrow(n_samples, widths, densities):
        copied += NUMBER_BYTES * dense
    return copied * n_samples
