"""Estimated cost of the methods for several classes in one process, in nanoseconds per row.

As :mod:`fastadmm.coordinator.subspace.work_of_ways` for one predictor: sizes alone decide.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastadmm.coordinator.subspace.memory_of_ways import entries_of_row

__all__ = ["products_pay"]

#: In one pass over the rows for one class: a sparse entry, a dense one, and a row.
_ENTRY, _DENSE_ENTRY, _ROW = 1.6, 0.4, 8.0

#: Truncated Newton: Hessian-vector products; and a class of a row in all evaluations of the loss.
_PRODUCTS, _EVALUATIONS = 50.0, 240.0

#: All columns at once: steps of a quasi-Newton method; a column in one, for one class; a pair of columns in
#: all Hessians.
_STEPS, _COLUMN, _PAIR = 28.0, 0.1, 0.04

#: Rounds by directions; in one, a pass of the parties is so many of those above; the coordinator's steps;
#: and the fixed cost of a round.
_ROUNDS, _PASSES, _SPAN_STEPS, _CALLS = 9.0, 2.0, 4.0, 5e5

#: On badly conditioned columns, rounds increase more than products do: products may cost this many times as
#: much.
_STEADIER = 1.5


def products_pay(
    n_samples: int, widths: Sequence[int], densities: Sequence[float], n_classes: int, at_once: bool
) -> bool:
    """Whether truncated Newton on the columns as they are stored is least work. Never if all are dense."""
    if min(densities) == 1.0:
        return False
    columns, dense = sum(widths), sum(w for w, d in zip(widths, densities) if d == 1.0)
    read = _ENTRY * (entries_of_row(widths, densities) - dense) + _DENSE_ENTRY * dense
    products = n_classes * (_PRODUCTS * (read + _ROW) + _EVALUATIONS)
    if at_once:
        steps = _STEPS * n_classes * (_COLUMN * columns + _ROW)
        return products <= steps + _PAIR * columns**2
    messages = 0.5 * _ROUNDS * n_classes * len(widths)
    span = _SPAN_STEPS * n_classes * (_COLUMN * messages + 1.5 * _ROW)
    rounds = _ROUNDS * (n_classes * (_PASSES * read + 2.5 * _ROW) + span + _CALLS / n_samples)
    return products <= _STEADIER * rounds
