"""When to give up directions for all columns at once, with the parties in this process.

A party sends one direction per round. As many independent directions as it has columns span all its weights.
If columns are few, it is less work to send a basis, the columns themselves, in one round: Newton's method
over all weights and the proof of its gap are all that is left. Sparse columns are not sent but read in
place, all parties' together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from fastadmm.blocks.stored import MOSTLY, dense_columns, rows_are_narrow
from fastadmm.coordinator.proximal.kinked_work import columns_fit, work_of_saddle
from fastadmm.coordinator.subspace.few_rows import has_few_rows
from fastadmm.coordinator.subspace.memory_of_ways import (
    MANY_BYTES,
    MOST_ON_GRAM,
    bytes_of_columns,
    bytes_of_copy,
    bytes_of_hessian,
    bytes_of_kernel,
    entries_of_row,
    fits_side_by_side,
    hessian_fits,
)
from fastadmm.coordinator.subspace.row_samples import least_stride
from fastadmm.coordinator.subspace.work_of_ways import (
    LONG_ROWS,
    SPAN,
    SPARSE_SPAN,
    Rounds,
    at_once,
    by_directions,
    of_all_rows,
    of_ascent_pass,
    of_classes,
    of_copy,
    of_dense_hessians,
    of_dense_products,
    of_dense_rows,
    of_few_rows,
    of_hessians,
    of_product,
)
from fastadmm.parties.direction import choose_metric_solver

__all__ = [
    "ascends_sometimes",
    "bytes_of_few_rows",
    "bytes_of_samples",
    "bytes_side_by_side",
    "classes_pay_one_by_one",
    "dense_rows_pay",
    "kernel_pays",
    "limit_of_ascent",
    "products_to_try",
    "stacked_rows_pay",
    "too_full",
    "whole_span_pays",
]

#: On columns of different scales or nearly dependent ones, rounds by directions increase more than
#: Hessian-vector products do: so truncated Newton may cost this many times as much. Likewise, the Gram matrix
#: of few rows may cost this many times as much as truncated Newton.
_STEADIER, _KERNEL_IS_STEADIER = 2.0, 2.0

#: With more rows than this, directions need fewer rounds.
_ROWS_KNOWN = 2e5

#: Dense columns are read in place from so many rows (fewer are a single leaf) and so many columns on; few
#: rows too where a Hessian has so many products that others are worth a try before.
_FEWEST_ROWS, _FEWEST_COLUMNS, _LARGE_HESSIAN = 1 << 13, 16, 1 << 26

#: Directions need more rounds, and Newton's method more Hessians, with more columns per row: by this share
#: times the ratio, up to a limit. And directions need more rounds on nearly dependent columns: Newton's
#: method may cost this many times as much.
_OF_COLUMNS_TO_A_ROW, _MOST_GROWTH, _HESSIAN_IS_STEADIER = 5.0, 1.5, 1.5

#: Dual coordinate ascent is tried with many columns per row; or with fewer, where the alternative costs at
#: least this many of its passes.
_MANY_COLUMNS, _SOME_COLUMNS, _PASSES_OF_TRIAL = 4.0, 0.5, 12.0

#: It runs on one thread. With more entries than the first, which the alternatives share among threads, at
#: least as many columns as rows are asked for; with more than the second it is not tried.
_SHARED_ENTRIES, _MOST_ENTRIES = 1 << 22, 1 << 26

#: Hessian-vector products are tried up to this share of the cost of Hessians, if these are at least so many.
_SHARE_TRIED, _FEWEST_TRIED = 0.7, 12

#: Cost of all columns at once as a share of rounds by directions, where the loss has kinks.
_OF_KINKS = 0.4


def whole_span_pays(
    n_samples: int,
    widths: Sequence[int],
    densities: Sequence[float],
    most: int,
    quadratic: bool,
    rounds: Rounds = SPAN,
) -> bool:
    """Whether sending all columns at once is less work than rounds by directions."""
    directions = by_directions(n_samples, widths, densities, rounds)
    return max(widths) <= most and at_once(sum(widths), quadratic) <= directions


def too_full(widths: Sequence[int], densities: Sequence[float], rounds: Rounds) -> bool:
    """Whether sparse columns store so many entries that as messages they take no more memory and time."""
    if rounds.sweeps > 0.0:
        return False
    apart = dense_columns(widths, densities) if rounds is SPARSE_SPAN else 0
    return entries_of_row(widths, densities) - apart > MOSTLY * (sum(widths) - apart)


def stacked_rows_pay(
    n_samples: int,
    widths: Sequence[int],
    densities: Sequence[float],
    row_square: float,
    most: int,
    quadratic: bool,
    rounds: Rounds = SPARSE_SPAN,
) -> str:
    """Which method on the sparse rows of all parties is least work, if any, in no more memory than
    messages.
    """
    columns, faces, apart = sum(widths), rounds.sweeps > 0.0, rounds is SPARSE_SPAN
    if not fits_side_by_side(n_samples, widths, densities, most, faces, apart):
        return ""
    by_gram, otherwise = of_all_rows(n_samples, widths, densities, row_square, most, quadratic, rounds)
    least = min(by_gram, otherwise)
    together = at_once(columns, quadratic) + rounds.sweeps * columns**2 / n_samples
    if max(widths) <= most and together < least:
        return ""
    # With many rows, directions need fewer rounds.
    steadier = (_STEADIER if otherwise < by_gram else 1.0) * min(1.0, _ROWS_KNOWN / n_samples) ** 0.25
    least += of_copy(n_samples, widths, densities, apart)
    directions = by_directions(n_samples, widths, densities, rounds)
    if rounds is SPARSE_SPAN:
        directions = min(directions, by_directions(n_samples, widths, densities, LONG_ROWS))
    if least > steadier * directions:
        return ""
    if by_gram <= otherwise:
        return "gram"
    return "coordinates" if faces else "products"


def _growth(n_samples: int, columns: int) -> float:
    """Factor by which rounds by directions, or Hessians, are more than with few columns per row."""
    return 1.0 + min(_MOST_GROWTH, _OF_COLUMNS_TO_A_ROW * columns / n_samples)


def products_to_try(
    n_samples: int, widths: Sequence[int], densities: Sequence[float], row_square: float, quadratic: bool
) -> int:
    """Hessian-vector products that are worth a try before a Hessian is formed; 0 for none.

    If systems are easy, a few products are less work than a Hessian; if they are hard, a few products are
    enough to show it.
    """
    columns, dense = sum(widths), dense_columns(widths, densities)
    entries = entries_of_row(widths, densities) - dense
    if quadratic or least_stride(n_samples, columns, quadratic):
        return 0  # a single matrix solves it, or matrices of samples are little work
    if dense == columns:
        matrices = of_dense_hessians(n_samples, columns, quadratic, 0)
    else:
        matrices = of_hessians(n_samples, columns, dense, entries, row_square, quadratic)
    each = of_product(n_samples, columns, dense, entries)
    tried = int(_SHARE_TRIED * _growth(n_samples, columns) * matrices / each)
    return tried if tried >= _FEWEST_TRIED else 0


def dense_rows_pay(n_samples: int, widths: Sequence[int], most: int, quadratic: bool) -> str:
    """Whether Newton's method on dense columns, read in place, is less work than messages."""
    columns, densities = sum(widths), [1.0] * len(widths)
    whole = whole_span_pays(n_samples, widths, densities, most, quadratic)
    hard = n_samples * columns**2 >= _LARGE_HESSIAN
    tried = products_to_try(n_samples, widths, densities, 0.0, quadratic) if hard else 0
    if whole and n_samples < _FEWEST_ROWS and not tried:
        return ""  # as messages, one compiled call does it all
    if columns < _FEWEST_COLUMNS:
        return ""
    least, fits = least_stride(n_samples, columns, quadratic), hessian_fits(n_samples, widths, most)
    rounds = min(1.0, _ROWS_KNOWN / n_samples) ** 0.25 * _growth(n_samples, columns)
    rounds *= 1.0 if least or quadratic else _HESSIAN_IS_STEADIER
    directions = rounds * by_directions(n_samples, widths, densities, SPAN)
    if whole:  # all columns would be sent, however few rounds directions take
        directions = max(directions, at_once(columns, quadratic))
    if fits and of_dense_rows(n_samples, columns, quadratic, least) <= directions:
        return "gram"
    # Where a Hessian fits, products are tried first. What is hard for them is harder for directions, unless
    # these are mere gradients: then rounds cost a fraction.
    factorised = all(choose_metric_solver((n_samples, width), 1.0)[0] == "gram" for width in widths)
    if quadratic or not factorised or of_dense_products(n_samples, columns) > directions:
        return ""
    return "gram" if fits else "products"


def ascends_sometimes(n_samples: int, columns: int) -> bool:
    """Whether there are enough columns per row to consider dual coordinate ascent."""
    return columns >= _SOME_COLUMNS * n_samples


def limit_of_ascent(
    n_samples: int,
    widths: Sequence[int],
    densities: Sequence[float],
    row_square: float,
    most: int,
    quadratic: bool,
    rounds: Rounds | None = None,
) -> float:
    """Passes that dual coordinate ascent may take before the alternative is cheaper; 0: do not try it."""
    columns, entries = sum(widths), entries_of_row(widths, densities)
    dense = min(densities) == 1.0  # then nothing is copied
    if (
        not ascends_sometimes(n_samples, columns)
        or n_samples * entries > _MOST_ENTRIES
        or not (dense or fits_side_by_side(n_samples, widths, densities, most, apart=rounds is None))
    ):
        return 0.0
    otherwise = by_directions(n_samples, widths, densities, rounds or (SPAN if dense else SPARSE_SPAN))
    few = has_few_rows(n_samples, columns)
    if rounds is not None:
        otherwise *= 1.0 if few else _OF_KINKS
        if not few and columns_fit(n_samples, widths, densities, columns):
            saddle = work_of_saddle(n_samples, widths, densities, columns)
            otherwise = min(otherwise, saddle / n_samples)
    elif few:
        otherwise = min(of_few_rows(n_samples, columns, entries))
    elif not dense:
        shapes = n_samples, widths, densities, row_square, most, quadratic, SPARSE_SPAN
        otherwise = min(otherwise, *of_all_rows(*shapes))
    if rounds is None and max(widths) <= most:
        otherwise = min(otherwise, at_once(columns, quadratic))
    own = dense_columns(widths, densities, rounds is None)
    passes = otherwise / of_ascent_pass(own, entries - own)
    shared = rounds is None and n_samples * entries > _SHARED_ENTRIES  # with kinks all else takes far longer
    some = 1.0 if shared else _SOME_COLUMNS
    if columns >= _MANY_COLUMNS * n_samples:
        return passes
    return passes if columns >= some * n_samples and passes >= _PASSES_OF_TRIAL else 0.0


def kernel_pays(n_samples: int, widths: Sequence[int], densities: Sequence[float]) -> bool:
    """Whether, with few rows, their Gram matrix is less work than truncated Newton."""
    entries = entries_of_row(widths, densities)
    by_kernel, by_products = of_few_rows(n_samples, sum(widths), entries)
    return by_kernel <= _KERNEL_IS_STEADIER * by_products


def classes_pay_one_by_one(
    n_samples: int, widths: Sequence[int], densities: Sequence[float], n_classes: int, at_once: bool
) -> bool:
    """Whether coordinate descent is least work for a multinomial model, and fits the memory that is planned.

    It is always less work than rounds by directions.
    """
    weights = n_classes * sum(widths)
    entries = n_classes * entries_of_row(widths, densities)
    one_by_one, together = of_classes(n_samples, weights, entries, min(densities) == 1.0)
    fits = bytes_of_columns(n_samples, widths, densities, n_classes) <= MANY_BYTES
    return fits and not (at_once and together <= one_by_one)


def bytes_side_by_side(
    n_samples: int,
    widths: Sequence[int],
    densities: Sequence[float],
    most: int,
    quadratic: bool,
    rounds: Rounds = SPARSE_SPAN,
    on_gram: int = MOST_ON_GRAM,
) -> int | None:
    """Bytes beyond the data if all columns are read in place: a copy, a Hessian; None if they are not."""
    columns, entries = sum(widths), entries_of_row(widths, densities)
    apart = rounds is SPARSE_SPAN
    own = dense_columns(widths, densities, apart)
    square = sum(w * d * (1.0 - d) for w, d in zip(widths, densities)) + (entries - own) ** 2
    ascends = rounds is SPARSE_SPAN and limit_of_ascent(n_samples, widths, densities, square, most, quadratic)
    if rounds is SPARSE_SPAN and min(densities) == 1.0:
        how = dense_rows_pay(n_samples, widths, most, quadratic)
        if not (how or ascends):
            return None
        joined = ascends and rows_are_narrow(widths)
        copied = 0.0 if quadratic else bytes_of_copy(n_samples, widths, densities)
        taken = 8.0 * own * n_samples if joined else copied
        if how == "gram":
            taken += bytes_of_hessian(columns) + bytes_of_samples(n_samples, columns, own, quadratic)
        return math.ceil(taken)
    if too_full(widths, densities, rounds):
        return None
    way = stacked_rows_pay(n_samples, widths, densities, square, most, quadratic, rounds)
    if not (way or ascends):
        return None
    if way == "coordinates":
        return bytes_of_columns(n_samples, widths, densities, on_gram=on_gram)
    taken = bytes_of_copy(n_samples, widths, densities, apart)
    if ascends and sum(density == 1.0 for density in densities) > 1:
        taken += 8.0 * own * n_samples  # joined, for ascent
    if way == "gram":
        taken += bytes_of_hessian(columns) + bytes_of_samples(n_samples, columns, own, quadratic)
    return math.ceil(taken)


def bytes_of_samples(n_samples: int, columns: int, dense: int, quadratic: bool) -> float:
    """Bytes of the dense columns of the rows in the samples that Newton's method begins with."""
    least = least_stride(n_samples, columns, quadratic)
    return 16.0 * dense * n_samples / least if least else 0.0


def bytes_of_few_rows(n_samples: int, widths: Sequence[int], densities: Sequence[float]) -> int:
    """Bytes that few rows need: their Gram matrix, or a copy of the rows."""
    kernel = bytes_of_kernel(n_samples) if kernel_pays(n_samples, widths, densities) else 0.0
    copy = 0.0 if min(densities) == 1.0 else bytes_of_copy(n_samples, widths, densities)
    return math.ceil(max(kernel, copy))
