"""What an interior point method over columns takes, and when that is less than directions.

What it will cost follows from the number of columns, before anything is done. Where it would be more than
rounds by directions, these are chosen, or follow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fastadmm.blocks.stored import MOSTLY
from fastadmm.coordinator.metric_limits import directions_for_faces
from fastadmm.coordinator.subspace.memory_of_ways import entries_of_row
from fastadmm.coordinator.subspace.work_of_ways import of_pair

__all__ = [
    "FIRST",
    "bytes_of_columns",
    "bytes_of_system",
    "columns_at_first",
    "columns_fit",
    "columns_pay",
    "work_of_saddle",
]

#: Columns to begin with, where a norm holds the others.
FIRST = 128

#: Steps, about; nanoseconds of each, however few the rows; of a row, of an entry and of a pair of dense
#: columns; and of a number of the system, and of one times columns for its factor.
_STEPS, _STEP, _ROW, _ENTRY, _PAIR, _SQUARE, _FACTOR = 17.0, 2.5e5, 150.0, 2.0, 0.0145, 3.0, 0.01

#: Rounds that directions take, and what a column in use adds to that, as a share; nanoseconds of an entry, of
#: a row and of a pair of directions in each, and of every round of three parties.
_ROUNDS, _ROUNDS_GROWTH, _ROUND_ENTRY, _ROUND_ROW, _ROUND_PAIR, _ROUND = 15.0, 0.02, 8.0, 300.0, 0.03, 5e6

#: Bytes of a system and of columns that are few; systems with their parts at a time, of sparse and of dense
#: columns, and vectors of rows beyond those of any run.
_FEW_BYTES, _SYSTEMS, _DENSE_SYSTEMS, _VECTORS = 1 << 28, 4, 7, 12


def columns_at_first(columns: int, held: bool) -> int:
    """How many of the columns a run begins with; ``held``: whether a norm holds the others at zero."""
    return min(columns, FIRST) if held else columns


def columns_pay(n_samples: int, widths: Sequence[int], densities: Sequence[float], columns: int) -> bool:
    """Whether columns at once are less work than directions, and no more memory than messages, or little."""
    if not columns_fit(n_samples, widths, densities, columns):
        return False
    entries = entries_of_row(widths, densities)
    rounds = _ROUNDS * (1.0 + _ROUNDS_GROWTH * columns)
    row = _ROUND_ENTRY * entries + _ROUND_ROW + _ROUND_PAIR * min(columns, _kept(n_samples, widths)) ** 2
    each = _ROUND * max(1.0, len(widths) / 3.0) + n_samples * row
    return work_of_saddle(n_samples, widths, densities, columns) <= rounds * each


def columns_fit(n_samples: int, widths: Sequence[int], densities: Sequence[float], columns: int) -> bool:
    """Whether columns at once take no more memory than messages, or little."""
    held = max(_bytes_of_copy(n_samples, widths, densities, columns), 8.0 * columns**2)
    return held <= _allowed(n_samples, widths)


def work_of_saddle(n_samples: int, widths: Sequence[int], densities: Sequence[float], columns: int) -> float:
    """Nanoseconds that :func:`fastadmm.coordinator.proximal.interior_point.find_saddle` takes, about."""
    share = entries_of_row(widths, densities) / sum(widths)
    entries = share * columns
    if share > MOSTLY:
        pairs = _PAIR * columns**2
    else:
        pairs = 0.5 * of_pair(columns, dense=False) * (entries**2 + entries)
    step = _STEP + n_samples * (_ROW + _ENTRY * entries + pairs) + _SQUARE * columns**2 + _FACTOR * columns**3
    return _STEPS * step


def bytes_of_columns(
    n_samples: int, widths: Sequence[int], densities: Sequence[float], held: bool
) -> int | None:
    """What the columns in use and their system take at most; None where none are taken."""
    columns = sum(widths)
    if not columns_pay(n_samples, widths, densities, columns_at_first(columns, held)):
        return None
    most = min(columns, math.isqrt(_allowed(n_samples, widths) // 8))
    some = min(most, columns - 1) if columns_at_first(columns, held) < columns else most
    copy = _bytes_of_copy(n_samples, widths, densities, some)
    dense = entries_of_row(widths, densities) > MOSTLY * columns
    system = bytes_of_system(n_samples, most, dense)
    return system + min(math.ceil(copy), _allowed(n_samples, widths))


def bytes_of_system(n_samples: int, columns: int, dense: bool = False) -> int:
    """What a saddle takes beside its columns."""
    return 8 * ((_DENSE_SYSTEMS if dense else _SYSTEMS) * columns**2 + _VECTORS * n_samples)


def _bytes_of_copy(n_samples: int, widths: Sequence[int], densities: Sequence[float], columns: int) -> float:
    """Of some columns side by side: of all, if these are dense, nothing."""
    share = entries_of_row(widths, densities) / sum(widths)
    if columns == sum(widths) and min(densities) == 1.0:
        return 0.0
    return (8.0 if share > MOSTLY else 12.0) * n_samples * share * columns


def _allowed(n_samples: int, widths: Sequence[int]) -> int:
    """Bytes of messages, or few."""
    return max(8 * n_samples * _kept(n_samples, widths), _FEW_BYTES)


def _kept(n_samples: int, widths: Sequence[int]) -> int:
    """Directions that all parties may keep."""
    most = directions_for_faces(len(widths), n_samples, False)
    return sum(min(most, width) for width in widths)
