"""When ridge and a loss with kinks on dense columns go first by an interior point method, in one process.

At the optimum about as many rows are at their kinks as there are weights. With all columns as messages, each
smoothed problem is solved on the rows near their kinks: a small share if rows are many, all of them if not.
Directions tell those rows apart only once they span all weights, and never if fewer are kept. The interior
point method takes all rows in each of its steps, but these are few, whatever the shape.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fastadmm.blocks.stored import MOSTLY
from fastadmm.coordinator.proximal.kinked_work import bytes_of_system, columns_fit, work_of_saddle
from fastadmm.coordinator.subspace.memory_of_ways import bytes_of_copy, entries_of_row, most_columns_of_kinks
from fastadmm.coordinator.subspace.near_rows import LEAST_SHARE, MOST_SHARE, TIMES_BENDING
from fastadmm.coordinator.subspace.whole_span import whole_span_pays
from fastadmm.coordinator.subspace.work_of_ways import BENDS, at_once, by_directions

__all__ = ["bytes_of_saddle", "saddle_pays"]

#: Rounds of a run that has all columns as messages, and nanoseconds of each however few the rows; and
#: directions that a party answers with in a round.
_ROUNDS_AT_ONCE, _EACH_AT_ONCE, _A_ROUND = 8.0, 6e5, 2.0


def saddle_pays(n_samples: int, widths: Sequence[int], densities: Sequence[float], most: int) -> bool:
    """Whether an interior point method over all columns is less work than messages, and no more memory."""
    columns = sum(widths)
    if not columns_fit(n_samples, widths, densities, columns):
        return False
    many = most_columns_of_kinks(n_samples, widths, most)
    if whole_span_pays(n_samples, widths, densities, many, False, BENDS):
        otherwise = _of_columns_at_once(n_samples, columns)
    else:
        growth = 1.0 / (_A_ROUND * len(widths) * BENDS.number)  # rounds until directions span all weights
        otherwise = by_directions(n_samples, widths, densities, BENDS._replace(growth=growth))
    return work_of_saddle(n_samples, widths, densities, columns) <= otherwise * n_samples


def _of_columns_at_once(n_samples: int, columns: int) -> float:
    """Nanoseconds per row with all columns as messages: Hessians are of the rows near their kinks."""
    share = max(LEAST_SHARE, TIMES_BENDING * columns / n_samples)
    if share > MOST_SHARE:
        share = 1.0
    rounds = _ROUNDS_AT_ONCE * (BENDS.row + _EACH_AT_ONCE / n_samples)
    return share / LEAST_SHARE * at_once(columns, False) + rounds


def bytes_of_saddle(
    n_samples: int, widths: Sequence[int], densities: Sequence[float], most: int
) -> int | None:
    """Bytes beyond the data if :func:`saddle_pays`, else None: a system, and a copy unless columns are
    dense.
    """
    columns = sum(widths)
    if entries_of_row(widths, densities) <= MOSTLY * columns:
        return None
    if not saddle_pays(n_samples, widths, densities, most):
        return None
    copy = 0.0 if min(densities) == 1.0 else bytes_of_copy(n_samples, widths, densities, apart=False)
    return math.ceil(copy) + bytes_of_system(n_samples, columns, dense=True)
