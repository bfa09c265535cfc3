"""What the ways to the weights of all columns cost: nanoseconds of a row, as measured.

Rules compare them (:mod:`fastadmm.coordinator.subspace.whole_span`), from rows, columns, entries and parties
alone: every run of the same size takes the same way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from fastadmm.coordinator.subspace.memory_of_ways import ENTRY_BYTES, entries_of_row, hessian_fits

__all__ = [
    "BENDS",
    "FACES",
    "LONG_ROWS",
    "SPAN",
    "SPARSE_SPAN",
    "Rounds",
    "at_once",
    "by_directions",
    "of_all_rows",
    "of_ascent_pass",
    "of_classes",
    "of_copy",
    "of_dense_rows",
    "of_few_rows",
    "of_pair",
    "of_pass_entry",
]


class Rounds(NamedTuple):
    """What directions cost, as measured.

    Attributes
    ----------
    number : float
        Rounds that they are expected to take, with few columns.
    growth : float
        What a column adds to that, as a share.
    entry, row, each : float
        Nanoseconds of a round: an entry in its passes, a row in what the coordinator does, and what every
        round of three parties costs however few its rows.
    sweeps : float
        Nanoseconds for every pair of columns to minimise on a Hessian, beside its factor, if all columns are
        at hand.
    """

    number: float
    growth: float
    entry: float
    row: float
    each: float
    sweeps: float


#: Of `subspace` on dense rows and on sparse ones; and with faces, of `proximal`.
SPAN, SPARSE_SPAN = Rounds(8.0, 0.0, 2.0, 30.0, 5e5, 0.0), Rounds(9.0, 0.0, 3.75, 100.0, 5e5, 0.0)
FACES = Rounds(10.0, 0.002, 4.0, 150.0, 5e6, 100.0)

#: Of sparse rows with so many entries that these are read one after another: where that is less.
LONG_ROWS = SPARSE_SPAN._replace(entry=2.0, row=250.0)

#: Of `subspace` where the loss has kinks.
BENDS = Rounds(40.0, 0.0, 8.0, 300.0, 2e6, 0.0)

#: The same of all columns: a pair of them in a Hessian over all weights, a column in the passes of Newton's
#: method.
_PAIR, _COLUMN = 0.08, 3.75

#: Hessians that Newton's method takes; of the squared loss one.
_HESSIANS = 2.0

#: And of sparse rows: a pair of entries in a Hessian that caches hold, and how that grows with columns beyond
#: them; an entry and a row in a step of Newton's method; such steps and Hessians, of which there are more as
#: they are cheaper; a number of a Hessian, and one times columns for its factor; and what steps cost however
#: few rows.
_SPARSE_PAIR, _CACHED_COLUMNS, _GROWTH = 0.7, 512.0, 1.4
_ENTRY, _ROW, _STEPS, _SPARSE_HESSIANS, _SQUARE, _FACTOR, _CALLS = 1.3, 10.0, 9.0, 3.0, 12.0, 0.008, 1.5e6

#: Of products with a Hessian: so many in all; an entry in each, where a first-level cache holds so many
#: columns' numbers and beyond; a row and a column; and such steps, each with an entry and a row.
_PRODUCTS, _PRODUCT_ENTRY, _FIRST_COLUMNS, _FAR_ENTRY = 18.0, 1.3, 1 << 12, 2.4
_PRODUCT_ROW, _PRODUCT_COLUMN = 5.0, 10.0
_TRUNCATED_STEPS, _STEP_ENTRY, _STEP_ROW = 6.0, 3.5, 30.0

#: What an entry costs more where no cache holds so many bytes; and its copy.
_FROM_MEMORY, _CACHE_BYTES, _COPY = 0.6, 1 << 28, 3.0

#: Of dense columns where they are: passes, where the loss is quadratic after a Hessian; an entry and a row in
#: each; Hessians of the largest sample, or without one of all rows; and a pair of columns in the latter.
_FUSED_PASSES, _PASSES_OF_SQUARES, _FUSED_ENTRY, _FUSED_ROW = 6.5, 2.0, 0.9, 20.0
_SAMPLE_HESSIANS, _FULL_HESSIANS, _FUSED_PAIR = 3.0, 1.5, 0.035

#: Of coordinates: passes over all columns, about, and an entry in each, of sparse columns and of dense ones.
_PASSES, _PASS_ENTRY, _DENSE_PASS_ENTRY = 60.0, 2.2, 0.6

#: The same of several classes in all passes, where each has its entries; and of all columns at once: a weight
#: and, over all rows, a pair of weights.
_CLASS_ENTRY, _DENSE_CLASS_ENTRY, _CLASS_COLUMN, _CLASS_PAIR = 150.0, 85.0, 40.0, 500.0

#: Of a pass of coordinate ascent on rows: an entry of sparse rows and of dense ones, and a row.
_ASCENT, _DENSE_ASCENT, _ASCENT_ROW = 2.5, 0.5, 100.0

#: Of few rows: an entry in the products of rows with each other, and the factors of these; products with a
#: Hessian, and a column in all of them.
_ROW_PAIR, _ROW_CUBE, _SOME_PRODUCTS, _SOME_COLUMNS_PRODUCTS = 0.03, 0.2, 40.0, 180.0


def of_all_rows(
    n_samples: int,
    widths: Sequence[int],
    densities: Sequence[float],
    row_square: float,
    most: int,
    quadratic: bool,
    rounds: Rounds,
) -> tuple[float, float]:
    """Newton's method with a Gram matrix, and by products or coordinates.

    Parameters
    ----------
    n_samples : int
        N, of all workers.
    widths : sequence of int
        Columns of each party.
    densities : sequence of float
        Share of each block's entries that are stored.
    row_square : float
        Mean of the squared number of entries of a row.
    most : int
        Messages that a party may keep.
    quadratic : bool
        Whether the loss is: its curvature is the same everywhere.
    rounds : Rounds
        What directions cost.
    """
    columns, entries = sum(widths), entries_of_row(widths, densities)
    pair = of_pair(columns, dense=False)
    hessians = 1.0 if quadratic else _SPARSE_HESSIANS
    solved = _SQUARE * columns**2 + _FACTOR * columns**3
    far = _FROM_MEMORY if ENTRY_BYTES * n_samples * entries > _CACHE_BYTES else 0.0
    step = (_ENTRY + far) * entries + _ROW
    by_gram = hessians * (0.5 * pair * row_square + solved / n_samples) + _STEPS * step
    by_gram += rounds.sweeps * columns**2 / n_samples
    if not hessian_fits(n_samples, widths, most):
        by_gram = math.inf
    if rounds.sweeps > 0.0:
        return by_gram, _PASSES * of_pass_entry(min(densities) == 1.0) * entries
    entry = far + (_PRODUCT_ENTRY if columns <= _FIRST_COLUMNS else _FAR_ENTRY)
    each = entry * entries + _PRODUCT_ROW + _PRODUCT_COLUMN * columns / n_samples
    return by_gram, _PRODUCTS * each + _TRUNCATED_STEPS * (_STEP_ENTRY * entries + _STEP_ROW)


def of_pair(columns: int, dense: bool) -> float:
    """The product of two entries of a row, in a Gram matrix of ``columns``; ``dense``: whether these are."""
    return _PAIR if dense else _SPARSE_PAIR * max(1.0, columns / _CACHED_COLUMNS) ** _GROWTH


def of_pass_entry(dense: bool) -> float:
    """An entry in a pass of coordinate descent; ``dense``: whether columns are."""
    return _DENSE_PASS_ENTRY if dense else _PASS_ENTRY


def by_directions(n_samples: int, widths: Sequence[int], densities: Sequence[float], rounds: Rounds) -> float:
    """All rounds by directions.

    Parameters
    ----------
    n_samples, widths, densities, rounds
        As of :func:`of_all_rows`.
    """
    entries = entries_of_row(widths, densities)
    number = rounds.number * (1.0 + rounds.growth * sum(widths))
    each = rounds.each * max(1.0, len(widths) / 3.0)
    return number * (rounds.entry * entries + rounds.row + each / n_samples)


def at_once(columns: int, quadratic: bool) -> float:
    """Messages with all ``columns``; ``quadratic``: whether the loss is."""
    return (1.0 if quadratic else _HESSIANS) * _PAIR * columns**2 + _COLUMN * columns


def of_dense_rows(n_samples: int, columns: int, quadratic: bool, least: int) -> float:
    """Newton's method over dense columns where they are.

    Parameters
    ----------
    n_samples, columns : int
    quadratic : bool
        Whether the loss is.
    least : int
        Of so many rows one is in the largest sample; 0 for no samples.
    """
    entry, factor = _FUSED_ENTRY * columns + _FUSED_ROW, _FACTOR * columns**3 / n_samples
    if least:
        return _FUSED_PASSES * entry + _SAMPLE_HESSIANS * (_PAIR * columns**2 / least + factor)
    if quadratic:
        return _PASSES_OF_SQUARES * entry + _PAIR * columns**2 + factor
    return _FUSED_PASSES * entry + _FULL_HESSIANS * (_FUSED_PAIR * columns**2 + factor)


def of_copy(n_samples: int, entries: float, n_parties: int) -> float:
    """Rows side by side, a single party's excepted, and the calls; ``entries``: of a row."""
    return _CALLS / n_samples + (_COPY * entries if n_parties > 1 else 0.0)


def of_ascent_pass(entries: float, dense: bool) -> float:
    """A pass of coordinate ascent over rows with so many ``entries``; ``dense``: where they are."""
    return (_DENSE_ASCENT if dense else _ASCENT) * entries + _ASCENT_ROW


def of_classes(n_samples: int, weights: int, entries: float, dense: bool) -> tuple[float, float]:
    """Columns of several classes one by one, and all at once.

    Parameters
    ----------
    n_samples : int
    weights : int
        Of all classes.
    entries : float
        Of a row, for each class.
    dense : bool
        Whether all are.
    """
    each = _DENSE_CLASS_ENTRY if dense else _CLASS_ENTRY
    return each * entries, _CLASS_COLUMN * weights + _CLASS_PAIR * weights**2 / n_samples


def of_few_rows(n_samples: int, columns: int, entries: float) -> tuple[float, float]:
    """By the products of rows with each other, and with a Hessian.

    Parameters
    ----------
    n_samples, columns : int
    entries : float
        Of a row.
    """
    by_kernel = (_ROW_PAIR * entries + _ROW_CUBE * n_samples) * n_samples
    by_products = _SOME_PRODUCTS * (entries + _PRODUCT_ROW) + _SOME_COLUMNS_PRODUCTS * columns / n_samples
    return by_kernel, by_products
