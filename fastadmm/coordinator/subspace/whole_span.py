"""When parties of this process answer with all of their columns at once.

A direction is one message for every party and round. As many directions as a party has columns span all its
weights, whichever they are. Where columns are few it is less work to send a basis at once, the columns
themselves: what is left is Newton's method over all weights and the proof of its end. Where most of
their entries are zero it reads them as they are, side by side.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from fastadmm.coordinator.subspace.few_rows import has_few_rows
from fastadmm.coordinator.subspace.row_samples import strides

__all__ = [
    "BENDS",
    "FACES",
    "MOSTLY",
    "MOST_ON_GRAM",
    "SPAN",
    "SPARSE_SPAN",
    "Rounds",
    "bytes_of_columns",
    "bytes_of_few_rows",
    "bytes_side_by_side",
    "classes_pay_one_by_one",
    "dense_rows_pay",
    "hessian_fits",
    "kernel_pays",
    "limit_of_ascent",
    "stacked_rows_pay",
    "whole_span_pays",
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

#: What an entry costs more where no cache holds so many bytes; its copy; rows from which on rounds are fewer.
_FROM_MEMORY, _CACHE_BYTES, _COPY, _ROWS_KNOWN = 0.6, 1 << 28, 3.0, 2e5

#: Of dense columns where they are: passes after samples, or after a Hessian of all rows where the loss is
#: quadratic; an entry and a row in each; Hessians of the largest sample; and fewer rows are one leaf.
_FUSED_PASSES, _PASSES_OF_SQUARES, _FUSED_ENTRY, _FUSED_ROW, _SAMPLE_HESSIANS = 6.5, 2.0, 0.9, 20.0, 3.0
_FEWEST_ROWS, _FEWEST_COLUMNS = 1 << 13, 16

#: Where columns differ or depend on each other, rounds by directions grow more than products: these may cost
#: so many times as much.
_STEADIER = 2.0

#: Of coordinates: passes over all columns, about, and an entry in each, of sparse columns and of dense ones.
_PASSES, _PASS_ENTRY, _DENSE_PASS_ENTRY = 60.0, 2.2, 0.6

#: The same of several classes in all passes, where each has its entries; and of all columns at once: a weight
#: and, over all rows, a pair of weights.
_CLASS_ENTRY, _DENSE_CLASS_ENTRY, _CLASS_COLUMN, _CLASS_PAIR = 150.0, 85.0, 40.0, 500.0

#: Of a pass of coordinate ascent on rows: an entry of sparse rows and of dense ones, and a row. It is tried
#: with many columns to a row, or with some where two passes are little: beside what takes as long as so many.
_ASCENT, _DENSE_ASCENT, _ASCENT_ROW = 2.5, 0.5, 100.0
_MANY_COLUMNS, _SOME_COLUMNS, _PASSES_OF_TRIAL = 4.0, 0.5, 12.0

#: It is one thread's work: with so many entries in all, which others share, columns are as many as rows; with
#: so many it is not tried.
_SHARED_ENTRIES, _MOST_ENTRIES = 1 << 22, 1 << 26

#: Of rounds by directions, what all columns take where the loss has kinks.
_OF_KINKS = 0.4

#: Of few rows: an entry in the products of rows with each other, and the factors of these; products with a
#: Hessian, and a column in all of them. The former may be so many times as much: the latter are more where
#: columns depend on each other.
_ROW_PAIR, _ROW_CUBE, _SOME_PRODUCTS, _SOME_COLUMNS_PRODUCTS = 0.03, 0.2, 40.0, 180.0
_KERNEL_IS_STEADIER = 2.0

#: Share of entries from which on columns are not sparse.
MOSTLY = 0.5

#: Hessians with their factors and parts, at a time.
_HESSIANS_HELD = 6.0

#: Matrices of products of rows at a time: itself, its factor, and a system with its copy.
_KERNELS_HELD = 4.0

#: Of columns that are taken one by one: bytes of an entry of dense ones; weights of a Gram matrix, at most.
_DENSE_COLUMN_BYTES, MOST_ON_GRAM = 16.0, 4096

#: Bytes of an entry side by side, and in columns of their own; of a message's number; so many bytes are few,
#: and so many are planned for columns; so many numbers of a Hessian and what it is made of are few.
_ENTRY_BYTES, _COLUMN_BYTES, _NUMBER_BYTES, _FEW_BYTES, _MANY_BYTES = 10.0, 24.0, 8.0, 1 << 26, 1 << 31
_HESSIAN_NUMBERS, _FEW_NUMBERS = 12.0, 1 << 23


def whole_span_pays(
    n_samples: int,
    widths: Sequence[int],
    densities: Sequence[float],
    most: int,
    quadratic: bool,
    rounds: Rounds = SPAN,
) -> bool:
    """Whether all columns are less work than rounds by directions.

    Parameters
    ----------
    n_samples : int
        N, of all workers.
    widths : sequence of int
        Columns of each party.
    densities : sequence of float
        Share of each block's entries that are stored.
    most : int
        Messages that a party may keep.
    quadratic : bool
        Whether the loss is: its curvature is the same everywhere.
    rounds : Rounds
        What directions cost.
    """
    by_directions = _by_directions(n_samples, widths, densities, rounds)
    return max(widths) <= most and _at_once(sum(widths), quadratic) <= by_directions


def stacked_rows_pay(
    n_samples: int,
    widths: Sequence[int],
    densities: Sequence[float],
    row_square: float,
    most: int,
    quadratic: bool,
    rounds: Rounds = SPARSE_SPAN,
) -> str:
    """Whether sparse rows with all columns are the least work, and no more memory than messages.

    Parameters
    ----------
    n_samples, widths, densities, most, quadratic, rounds
        As of :func:`whole_span_pays`.
    row_square : float
        Mean of the squared number of entries of a row.

    Returns
    -------
    {"gram", "products", "coordinates", ""}
        How Newton's method has the Hessian then: as a matrix or, without kinks in the penalty, by products;
        with them coordinates descend on columns.
    """
    columns, entries = sum(widths), sum(width * density for width, density in zip(widths, densities))
    faces = rounds.sweeps > 0.0
    if not _fits_side_by_side(n_samples, widths, densities, most, faces):
        return ""
    by_gram, otherwise = _of_all_rows(n_samples, widths, densities, row_square, most, quadratic, rounds)
    least = min(by_gram, otherwise)
    at_once = _at_once(columns, quadratic) + rounds.sweeps * columns**2 / n_samples
    if max(widths) <= most and at_once < least:
        return ""
    # With many rows less is left to learn after a few rounds.
    steadier = (_STEADIER if otherwise < by_gram else 1.0) * min(1.0, _ROWS_KNOWN / n_samples) ** 0.25
    least += _CALLS / n_samples + (_COPY * entries if len(widths) > 1 else 0.0)
    if least > steadier * _by_directions(n_samples, widths, densities, rounds):
        return ""
    if by_gram <= otherwise:
        return "gram"
    return "coordinates" if faces else "products"


def _fits_side_by_side(
    n_samples: int, widths: Sequence[int], densities: Sequence[float], most: int, faces: bool = False
) -> bool:
    """Whether rows side by side take no more memory than messages, or little."""
    entries = sum(width * density for width, density in zip(widths, densities))
    messages = _NUMBER_BYTES * n_samples * sum(min(most, width) for width in widths)
    if faces:
        return bytes_of_columns(n_samples, widths, densities) <= max(messages, _MANY_BYTES)
    return _ENTRY_BYTES * n_samples * entries <= max(messages, _FEW_BYTES)


def _of_all_rows(
    n_samples: int,
    widths: Sequence[int],
    densities: Sequence[float],
    row_square: float,
    most: int,
    quadratic: bool,
    rounds: Rounds,
) -> tuple[float, float]:
    """Nanoseconds of a row in Newton's method with a Gram matrix, and by products or coordinates."""
    columns, entries = sum(widths), sum(width * density for width, density in zip(widths, densities))
    pair = _SPARSE_PAIR * max(1.0, columns / _CACHED_COLUMNS) ** _GROWTH
    hessians = 1.0 if quadratic else _SPARSE_HESSIANS
    solved = _SQUARE * columns**2 + _FACTOR * columns**3
    far = _FROM_MEMORY if _ENTRY_BYTES * n_samples * entries > _CACHE_BYTES else 0.0
    step = (_ENTRY + far) * entries + _ROW
    by_gram = hessians * (0.5 * pair * row_square + solved / n_samples) + _STEPS * step
    by_gram += rounds.sweeps * columns**2 / n_samples
    if not hessian_fits(n_samples, widths, most):
        by_gram = math.inf
    if rounds.sweeps > 0.0:
        entry = _DENSE_PASS_ENTRY if min(densities) == 1.0 else _PASS_ENTRY
        return by_gram, _PASSES * entry * entries
    entry = far + (_PRODUCT_ENTRY if columns <= _FIRST_COLUMNS else _FAR_ENTRY)
    each = entry * entries + _PRODUCT_ROW + _PRODUCT_COLUMN * columns / n_samples
    return by_gram, _PRODUCTS * each + _TRUNCATED_STEPS * (_STEP_ENTRY * entries + _STEP_ROW)


def dense_rows_pay(n_samples: int, widths: Sequence[int], most: int, quadratic: bool) -> bool:
    """Whether Newton's method over dense columns where they are is less work than messages.

    Parameters
    ----------
    n_samples, widths, most, quadratic
        As of :func:`whole_span_pays`.
    """
    columns = sum(widths)
    if n_samples < _FEWEST_ROWS or columns < _FEWEST_COLUMNS or not hessian_fits(n_samples, widths, most):
        return False
    samples = strides(n_samples, columns, quadratic)
    if not (samples or quadratic):
        return False
    entry, factor = _FUSED_ENTRY * columns + _FUSED_ROW, _FACTOR * columns**3 / n_samples
    if samples:
        at_once = _FUSED_PASSES * entry + _SAMPLE_HESSIANS * (_PAIR * columns**2 / samples[-1] + factor)
    else:
        at_once = _PASSES_OF_SQUARES * entry + _PAIR * columns**2 + factor
    known = min(1.0, _ROWS_KNOWN / n_samples) ** 0.25
    return at_once <= known * _by_directions(n_samples, widths, [1.0] * len(widths), SPAN)


def limit_of_ascent(
    n_samples: int,
    widths: Sequence[int],
    densities: Sequence[float],
    row_square: float,
    most: int,
    quadratic: bool,
    rounds: Rounds | None = None,
) -> float:
    """What coordinate ascent on rows may cost, in passes; 0 where it is not worth a try.

    Parameters
    ----------
    n_samples, widths, densities, row_square, most, quadratic
        As of :func:`stacked_rows_pay`.
    rounds : Rounds, optional
        What directions cost, where the loss has kinks.
    """
    columns, entries = sum(widths), sum(width * density for width, density in zip(widths, densities))
    dense = min(densities) == 1.0  # and not copied
    if n_samples * entries > _MOST_ENTRIES or not (
        dense or _fits_side_by_side(n_samples, widths, densities, most)
    ):
        return 0.0
    otherwise = _by_directions(n_samples, widths, densities, rounds or (SPAN if dense else SPARSE_SPAN))
    few = has_few_rows(n_samples, columns)
    if rounds is not None:
        otherwise *= 1.0 if few else _OF_KINKS
    elif few:
        otherwise = min(_of_few_rows(n_samples, columns, entries))
    elif not dense:
        shapes = n_samples, widths, densities, row_square, most, quadratic, SPARSE_SPAN
        otherwise = min(otherwise, *_of_all_rows(*shapes))
    if rounds is None and max(widths) <= most:
        otherwise = min(otherwise, _at_once(columns, quadratic))
    passes = otherwise / ((_DENSE_ASCENT if dense else _ASCENT) * entries + _ASCENT_ROW)
    some = 1.0 if n_samples * entries > _SHARED_ENTRIES else _SOME_COLUMNS
    if columns >= _MANY_COLUMNS * n_samples:
        return passes
    return passes if columns >= some * n_samples and passes >= _PASSES_OF_TRIAL else 0.0


def kernel_pays(n_samples: int, widths: Sequence[int], densities: Sequence[float]) -> bool:
    """Whether few rows are less work by their products with each other than by products with a Hessian.

    Parameters
    ----------
    n_samples, widths, densities
        As of :func:`whole_span_pays`.
    """
    entries = sum(width * density for width, density in zip(widths, densities))
    by_kernel, by_products = _of_few_rows(n_samples, sum(widths), entries)
    return by_kernel <= _KERNEL_IS_STEADIER * by_products


def _of_few_rows(n_samples: int, columns: int, entries: float) -> tuple[float, float]:
    """Nanoseconds of a row by the products of rows with each other, and with a Hessian."""
    by_kernel = (_ROW_PAIR * entries + _ROW_CUBE * n_samples) * n_samples
    by_products = _SOME_PRODUCTS * (entries + _PRODUCT_ROW) + _SOME_COLUMNS_PRODUCTS * columns / n_samples
    return by_kernel, by_products


def hessian_fits(n_samples: int, widths: Sequence[int], most: int) -> bool:
    """Whether a Hessian over all columns takes no more memory than messages, or little.

    Parameters
    ----------
    n_samples, widths, most
        As of :func:`stacked_rows_pay`, which asks for no ``row_square`` where it does not.
    """
    kept = sum(min(most, width) for width in widths)
    return _HESSIAN_NUMBERS * sum(widths) ** 2 <= max(n_samples * kept, _FEW_NUMBERS)


def bytes_side_by_side(
    n_samples: int,
    widths: Sequence[int],
    densities: Sequence[float],
    most: int,
    quadratic: bool,
    rounds: Rounds = SPARSE_SPAN,
) -> int | None:
    """What columns that are read where they are take besides, with a Hessian; None where they are not.

    Parameters
    ----------
    n_samples, widths, densities, most, quadratic, rounds
        As of :func:`stacked_rows_pay`, for rows whose numbers of entries differ by chance.
    """
    columns, entries = sum(widths), sum(width * density for width, density in zip(widths, densities))
    square = sum(w * d * (1.0 - d) for w, d in zip(widths, densities)) + entries**2
    ascends = rounds is SPARSE_SPAN and limit_of_ascent(n_samples, widths, densities, square, most, quadratic)
    if rounds is SPARSE_SPAN and min(densities) == 1.0:
        if not dense_rows_pay(n_samples, widths, most, quadratic):
            return 0 if ascends else None
        samples = strides(n_samples, columns, quadratic)
        rows = n_samples / samples[-1] if samples else 0.0
        return math.ceil(_NUMBER_BYTES * columns * (_HESSIANS_HELD * columns + 2.0 * rows))
    if rounds.sweeps == 0.0 and entries > MOSTLY * columns:
        return None
    way = stacked_rows_pay(n_samples, widths, densities, square, most, quadratic, rounds)
    if not (way or ascends):
        return None
    if way == "coordinates":
        return bytes_of_columns(n_samples, widths, densities)
    copy = _copy_bytes(n_samples, widths, densities)
    hessian = _HESSIANS_HELD * _NUMBER_BYTES * columns**2 if way == "gram" else 0.0
    return math.ceil(copy + hessian)


def bytes_of_columns(
    n_samples: int, widths: Sequence[int], densities: Sequence[float], n_classes: int = 1
) -> int:
    """What columns that are taken one by one take, in the data's unit and in the curvature's, with a Hessian.

    Parameters
    ----------
    n_samples, widths, densities
        As of :func:`whole_span_pays`.
    n_classes : int
    """
    columns, entries = sum(widths), sum(width * density for width, density in zip(widths, densities))
    held = _DENSE_COLUMN_BYTES if min(densities) == 1.0 else _COLUMN_BYTES
    weights = n_classes * min(columns, 2 * n_samples)  # with l1 about as many as rows are not zero
    hessian, blocks = _HESSIANS_HELD * min(weights, MOST_ON_GRAM) ** 2, 2.0 * columns * n_classes**2
    return math.ceil(held * n_samples * entries + _NUMBER_BYTES * (hessian + blocks))


def classes_pay_one_by_one(
    n_samples: int, widths: Sequence[int], densities: Sequence[float], n_classes: int, at_once: bool
) -> bool:
    """Whether columns of several classes are the least work one by one, and no more memory than is planned.

    Rounds by directions of each class are more work.

    Parameters
    ----------
    n_samples, widths, densities
        As of :func:`whole_span_pays`.
    n_classes : int
    at_once : bool
        Whether all columns may be sent at once.
    """
    weights = n_classes * sum(widths)
    entries = n_classes * sum(width * density for width, density in zip(widths, densities))
    each = _DENSE_CLASS_ENTRY if min(densities) == 1.0 else _CLASS_ENTRY
    together = _CLASS_COLUMN * weights + _CLASS_PAIR * weights**2 / n_samples
    fits = bytes_of_columns(n_samples, widths, densities, n_classes) <= _MANY_BYTES
    return fits and not (at_once and together <= each * entries)


def bytes_of_few_rows(n_samples: int, widths: Sequence[int], densities: Sequence[float]) -> int:
    """The same of few rows: with their products with each other, or side by side.

    Parameters
    ----------
    n_samples, widths, densities
        As of :func:`kernel_pays`.
    """
    kernel = (
        _KERNELS_HELD * _NUMBER_BYTES * n_samples**2 if kernel_pays(n_samples, widths, densities) else 0.0
    )
    copy = 0.0 if min(densities) == 1.0 else _copy_bytes(n_samples, widths, densities)
    return math.ceil(max(kernel, copy))


def _copy_bytes(n_samples: int, widths: Sequence[int], densities: Sequence[float]) -> float:
    """Of sparse rows side by side; a single party's are there."""
    columns, entries = sum(widths), sum(width * density for width, density in zip(widths, densities))
    index = 2.0 if columns <= 1 << 16 else 4.0
    apart = len(widths) > 1 or min(densities) == 1.0
    return ((_NUMBER_BYTES + index) * entries + 2 * _NUMBER_BYTES) * n_samples if apart else 0.0


def _by_directions(
    n_samples: int, widths: Sequence[int], densities: Sequence[float], rounds: Rounds
) -> float:
    """Nanoseconds of a row in all rounds."""
    entries = sum(width * density for width, density in zip(widths, densities))
    number = rounds.number * (1.0 + rounds.growth * sum(widths))
    each = rounds.each * max(1.0, len(widths) / 3.0)
    return number * (rounds.entry * entries + rounds.row + each / n_samples)


def _at_once(columns: int, quadratic: bool) -> float:
    """The same of messages with all columns."""
    return (1.0 if quadratic else _HESSIANS) * _PAIR * columns**2 + _COLUMN * columns
