"""Estimated cost of each method that finds the weights of all columns, in measured nanoseconds per row.

The rules of :mod:`fastadmm.coordinator.subspace.whole_span` compare these costs. They depend only on the
numbers of rows, columns, entries and parties, so that runs of the same size use the same method.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from fastadmm.blocks.stored import dense_columns
from fastadmm.coordinator.subspace.memory_of_ways import (
    ENTRY_BYTES,
    NUMBER_BYTES,
    entries_of_row,
    hessian_fits,
)
from fastadmm.coordinator.subspace.row_samples import least_stride

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
    "of_columns_on_gram",
    "of_copy",
    "of_dense_hessians",
    "of_dense_products",
    "of_dense_rows",
    "of_few_rows",
    "of_first_set",
    "of_hessians",
    "of_pair",
    "of_pass_entry",
    "of_passes",
    "of_product",
]


class Rounds(NamedTuple):
    """Measured cost of rounds in which parties send directions."""

    number: float  # expected number of rounds, with few columns
    growth: float  # relative increase of that number per column
    entry: float
    row: float
    each: float
    sweeps: float


#: Of `subspace` on dense and on sparse rows; and of `proximal`, whose penalties have kinks.
SPAN, SPARSE_SPAN = Rounds(8.0, 0.0, 2.0, 30.0, 5e5, 0.0), Rounds(9.0, 0.0, 3.75, 100.0, 5e5, 0.0)
FACES = Rounds(10.0, 0.002, 4.0, 150.0, 5e6, 100.0)

#: Of sparse rows so long that their entries are read in sequence; the cheaper of this and the former counts.
LONG_ROWS = SPARSE_SPAN._replace(entry=2.0, row=250.0)

#: Of `subspace` where the loss has kinks.
BENDS = Rounds(40.0, 0.0, 8.0, 300.0, 2e6, 0.0)

#: Sending all columns at once: a pair of them in the Hessian, and a column in the passes of Newton's method.
_PAIR, _COLUMN = 0.08, 3.75

#: Hessians that Newton's method forms; for the squared loss one.
_HESSIANS = 2.0

#: Newton's method on sparse rows. A pair of entries in a Hessian that fits the cache, the columns up to which
#: it does, and the exponent with which the cost grows beyond them; an entry and a row in a step; the numbers
#: of steps and of Hessians (more than on dense rows, as they are cheaper); an element of a Hessian, and the
#: same times the number of columns for its factorisation; and the fixed cost, however few the rows.
_SPARSE_PAIR, _CACHED_COLUMNS, _GROWTH = 0.7, 512.0, 1.4
_ENTRY, _ROW, _STEPS, _SPARSE_HESSIANS, _SQUARE, _FACTOR, _CALLS = 1.3, 10.0, 9.0, 3.0, 12.0, 0.008, 1.5e6

#: Truncated Newton. Hessian-vector products in all; an entry in each, as long as the first-level cache holds
#: a vector of so many columns, and beyond that; a row and a column; the number of steps, and an entry and a
#: row in each.
_PRODUCTS, _PRODUCT_ENTRY, _FIRST_COLUMNS, _FAR_ENTRY = 18.0, 1.3, 1 << 12, 2.4
_PRODUCT_ROW, _PRODUCT_COLUMN = 5.0, 10.0
_TRUNCATED_STEPS, _STEP_ENTRY, _STEP_ROW = 6.0, 3.5, 30.0

#: Additional cost of an entry if all entries take more bytes than a cache holds; and copying an entry.
_FROM_MEMORY, _CACHE_BYTES, _COPY = 0.6, 1 << 28, 3.0

#: Newton's method on dense columns read in place. Passes over the rows, in general and for a quadratic loss;
#: an entry and a row in each; Hessians formed from the largest sample or, without samples, from all rows; and
#: a pair of columns in the latter.
_FUSED_PASSES, _PASSES_OF_SQUARES, _FUSED_ENTRY, _FUSED_ROW = 6.5, 2.0, 0.9, 20.0
_SAMPLE_HESSIANS, _FULL_HESSIANS, _FUSED_PAIR = 3.0, 1.5, 0.035

#: A sparse entry times a dense column, in a Hessian.
_CROSS_PAIR = 0.2

#: An entry in a Hessian-vector product of dense columns, if a cache of so many bytes holds them, and
#: otherwise.
_CACHED_PRODUCT_ENTRY, _CACHED_BYTES, _DENSE_PRODUCT_ENTRY = 0.25, 1 << 23, 0.6

#: Coordinate descent: about so many passes over all columns; an entry in each, of sparse and dense columns.
_PASSES, _PASS_ENTRY, _DENSE_PASS_ENTRY = 60.0, 2.2, 0.6

#: Working sets. The least number of columns; an entry of all columns in the pass that chooses the next set,
#: of dense and of sparse columns, and what else that takes; an entry that is copied by columns for coordinate
#: descent; and the cube of a set's columns in minimising on their Gram matrix.
_FEWEST_OF_SET, _CHOOSING_DENSE_ENTRY, _CHOOSING_ENTRY, _CHOOSING = 10, 0.25, 1.3, 4e5
_BY_COLUMNS, _CUBE = 8.0, 0.05

#: Multinomial. Coordinate descent: an entry of a class in all passes, of sparse and of dense columns. All
#: columns at once: a weight per row, and a pair of weights over all rows.
_CLASS_ENTRY, _DENSE_CLASS_ENTRY, _CLASS_COLUMN, _CLASS_PAIR = 150.0, 85.0, 40.0, 500.0

#: A pass of dual coordinate ascent: an entry of sparse and of dense rows, and a row.
_ASCENT, _DENSE_ASCENT, _ASCENT_ROW = 2.5, 0.5, 100.0

#: Few rows. By the Gram matrix of the rows: an entry per pair of rows, and the factorisations. By truncated
#: Newton: the number of Hessian-vector products, and a column in all of them.
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
    """Newton's method with a Hessian matrix, and the alternative without one, on the rows of all parties.

    The alternative is truncated Newton, or coordinate descent where the penalty has kinks.

    Returns: the first is infinite if the matrix would take too much memory.
    """
    columns, dense = sum(widths), dense_columns(widths, densities, rounds is SPARSE_SPAN)
    entries = entries_of_row(widths, densities) - dense
    step = (_ENTRY + _far(n_samples, entries)) * entries + _FUSED_ENTRY * dense + _ROW
    least = least_stride(n_samples, columns, quadratic) if rounds is SPARSE_SPAN else 0
    by_gram = of_hessians(n_samples, columns, dense, entries, row_square, quadratic, least)
    by_gram += (_FUSED_PASSES if least else _STEPS) * step
    by_gram += rounds.sweeps * columns**2 / n_samples
    if not hessian_fits(n_samples, widths, most):
        by_gram = math.inf
    if rounds.sweeps > 0.0:
        return by_gram, _PASSES * of_pass_entry(dense == columns) * (entries + dense)
    each = of_product(n_samples, columns, dense, entries)
    steps = _TRUNCATED_STEPS * (_STEP_ENTRY * entries + _FUSED_ENTRY * dense + _STEP_ROW)
    return by_gram, _PRODUCTS * each + steps


def of_hessians(
    n_samples: int,
    columns: int,
    dense: int,
    entries: float,
    row_square: float,
    quadratic: bool,
    least: int = 0,
) -> float:
    """All Hessians of Newton's method on sparse rows, with their factors."""
    solved = _SQUARE * columns**2 + _FACTOR * columns**3
    number = 1.0 if quadratic and not least else _SPARSE_HESSIANS
    pairs = 0.5 * of_pair(columns - dense, dense=False) * row_square
    pairs += _CROSS_PAIR * dense * entries + _FUSED_PAIR * dense**2
    return number * (pairs / max(1, least) + solved / n_samples)


def of_product(n_samples: int, columns: int, dense: int, entries: float) -> float:
    """A Hessian-vector product."""
    cached = NUMBER_BYTES * n_samples * dense <= _CACHED_BYTES
    of_dense = (_CACHED_PRODUCT_ENTRY if cached else _DENSE_PRODUCT_ENTRY) * dense + _PRODUCT_ROW
    if dense == columns:
        return of_dense
    entry = _PRODUCT_ENTRY if columns - dense <= _FIRST_COLUMNS else _FAR_ENTRY
    entry += _far(n_samples, entries)
    return of_dense + entry * entries + _PRODUCT_COLUMN * columns / n_samples


def of_pair(columns: int, dense: bool) -> float:
    """The product of two entries of a row, in a Gram matrix of ``columns``; ``dense``: whether these are."""
    return _PAIR if dense else _SPARSE_PAIR * max(1.0, columns / _CACHED_COLUMNS) ** _GROWTH


def of_pass_entry(dense: bool) -> float:
    """An entry in a pass of coordinate descent; ``dense``: whether columns are."""
    return _DENSE_PASS_ENTRY if dense else _PASS_ENTRY


def _far(n_samples: int, entries: float) -> float:
    """Additional cost of each of a row's entries if no cache holds all rows."""
    return _FROM_MEMORY if ENTRY_BYTES * n_samples * entries > _CACHE_BYTES else 0.0


def by_directions(n_samples: int, widths: Sequence[int], densities: Sequence[float], rounds: Rounds) -> float:
    """All rounds of a run in which parties send directions."""
    entries = entries_of_row(widths, densities)
    number = rounds.number * (1.0 + rounds.growth * sum(widths))
    each = rounds.each * max(1.0, len(widths) / 3.0)
    return number * (rounds.entry * entries + rounds.row + each / n_samples)


def at_once(columns: int, quadratic: bool) -> float:
    """All ``columns`` sent as messages at once; ``quadratic``: whether the loss is quadratic."""
    return (1.0 if quadratic else _HESSIANS) * _PAIR * columns**2 + _COLUMN * columns


def of_dense_rows(n_samples: int, columns: int, quadratic: bool, least: int) -> float:
    """Newton's method on dense columns, read in place."""
    entry = _FUSED_ENTRY * columns + _FUSED_ROW
    passes = _PASSES_OF_SQUARES if quadratic and not least else _FUSED_PASSES
    return passes * entry + of_dense_hessians(n_samples, columns, quadratic, least)


def of_dense_hessians(n_samples: int, columns: int, quadratic: bool, least: int) -> float:
    """The Hessians of :func:`of_dense_rows` alone, with their factors."""
    factor = _FACTOR * columns**3 / n_samples
    if least:
        return _SAMPLE_HESSIANS * (_PAIR * columns**2 / least + factor)
    if quadratic:
        return _PAIR * columns**2 + factor
    return _FULL_HESSIANS * (_FUSED_PAIR * columns**2 + factor)


def of_copy(n_samples: int, widths: Sequence[int], densities: Sequence[float], apart: bool) -> float:
    """A copy of the parties' sparse rows as one matrix, and the calls.

    The rows of a single party need no copy.
    """
    dense, calls = dense_columns(widths, densities, apart), _CALLS / n_samples
    if sum(density < 1.0 for density in densities) > 1 or (not dense and len(widths) > 1):
        return calls + _COPY * (entries_of_row(widths, densities) - dense)
    return calls


def of_dense_products(n_samples: int, columns: int) -> float:
    """Truncated Newton on dense columns in place."""
    passes = _TRUNCATED_STEPS * (_FUSED_ENTRY * columns + _FUSED_ROW)
    return passes + _PRODUCTS * of_product(n_samples, columns, columns, 0.0)


def of_ascent_pass(dense: int, entries: float) -> float:
    """A pass of dual coordinate ascent; ``dense`` columns and other ``entries`` of a row."""
    return _DENSE_ASCENT * dense + _ASCENT * entries + _ASCENT_ROW


def of_classes(n_samples: int, weights: int, entries: float, dense: bool) -> tuple[float, float]:
    """A multinomial model by coordinate descent, and with all columns at once."""
    each = _DENSE_CLASS_ENTRY if dense else _CLASS_ENTRY
    return each * entries, _CLASS_COLUMN * weights + _CLASS_PAIR * weights**2 / n_samples


def of_few_rows(n_samples: int, columns: int, entries: float) -> tuple[float, float]:
    """With few rows: by the Gram matrix of the rows, and by truncated Newton."""
    by_kernel = (_ROW_PAIR * entries + _ROW_CUBE * n_samples) * n_samples
    by_products = _SOME_PRODUCTS * (entries + _PRODUCT_ROW) + _SOME_COLUMNS_PRODUCTS * columns / n_samples
    return by_kernel, by_products


def of_first_set(n_samples: int, widths: Sequence[int], densities: Sequence[float]) -> int:
    """Columns whose Gram matrix costs as much as the pass over all columns that chooses them."""
    dense, columns = dense_columns(widths, densities), sum(widths)
    entries = entries_of_row(widths, densities) - dense
    choosing = n_samples * (_CHOOSING_DENSE_ENTRY * dense + _CHOOSING_ENTRY * entries) + _CHOOSING
    if dense == columns:
        each = _PAIR * n_samples
    else:
        squares = sum(width * density**2 for width, density in zip(widths, densities)) / columns
        each = 0.5 * _SPARSE_PAIR * n_samples * squares
    return max(_FEWEST_OF_SET, int(math.sqrt(choosing / (each + _SQUARE))))


def of_columns_on_gram(n_samples: int, columns: float, dense: float, entries: float, squares: float) -> float:
    """A Gram matrix of some columns, and minimising on it; nanoseconds for all rows."""
    pairs = 0.5 * of_pair(int(columns - dense), dense=False) * squares
    pairs += _CROSS_PAIR * dense * entries + _FUSED_PAIR * n_samples * dense**2
    return pairs + _SQUARE * columns**2 + _CUBE * columns**3


def of_passes(entries: float, dense: float, everything: float) -> float:
    """Coordinate descent on some columns, and a copy of all by columns; nanoseconds for all rows."""
    return _PASSES * (_PASS_ENTRY * entries + _DENSE_PASS_ENTRY * dense) + _BY_COLUMNS * everything
