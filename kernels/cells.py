"""Blocks of text taken apart: cells of a CSV table, tokens of LIBSVM lines.

Only what is plain is taken; everything else is left to the readers in Python, which also name what is wrong.

Functions that kernels call once per element take the elements of an array without the array (:data:`bare`).
Numba counts an array's references whenever a function takes it, also one that is inlined. In loops with
many branches LLVM cannot remove that, and each count is an atomic operation: together they took longer than
reading the numbers of a text. A pointer has no count.
"""

from typing import Any

import numpy as np
from fastadmm.kernels.decimals import read_number, read_token
from fastadmm.kernels.policy import COMPILED, inline, intrinsic, kernel
from numba import types

_ONE = np.uint64(1)


@kernel
def split_cells(text, separator, starts, stops, lines):
    """Find the cells of complete lines; blank lines are skipped.

    Parameters
    ----------
    text : ndarray of uint8, shape (n_bytes,)
    separator : int
        Code of the character between cells.
    starts, stops : ndarray of int32
        ``(k, width)``, written: where each cell begins and ends, without quotes around it.
    lines : ndarray of int32
        ``(k,)``, written: number of each row's line, from 0.

    Returns
    -------
    int
        Rows; -1 if the text is not plain: a row of another width, quotes in a cell, a lone carriage return.
    """
    width, n = starts.shape[1], len(text)
    row, line, at = 0, 0, 0
    while at < n:
        if text[at] == 10 or (text[at] == 13 and at + 1 < n and text[at + 1] == 10):
            at += 1 if text[at] == 10 else 2
            line += 1
            continue
        cell = 0
        while True:
            if cell == width or row == len(starts):
                return -1
            if at < n and text[at] == 34:
                at += 1
                starts[row, cell] = at
                while at < n and text[at] != 34 and text[at] != 10 and text[at] != 13:
                    at += 1
                if at == n or text[at] != 34:
                    return -1
                stops[row, cell] = at
                at += 1
                if at < n and text[at] != separator and text[at] != 10 and text[at] != 13:
                    return -1
            else:
                starts[row, cell] = at
                while at < n and text[at] != separator and text[at] != 10 and text[at] != 13:
                    if text[at] == 0:
                        return -1
                    at += 1
                stops[row, cell] = at
            cell += 1
            if at < n and text[at] == separator:
                at += 1
                continue
            break
        if cell < width:
            return -1
        if at < n and text[at] == 13:
            at += 1
            if at == n or text[at] != 10:
                return -1
        at += 1
        lines[row] = line
        row += 1
        line += 1
    return row


@inline
def _stripped(text, start, stop):
    while start < stop and (text[start] == 32 or text[start] == 9):
        start += 1
    while start < stop and (text[stop - 1] == 32 or text[stop - 1] == 9):
        stop -= 1
    return start, stop


@inline
def _absent(text, start, stop):
    """Whether a cell is empty, NA, N/A, NaN or null."""
    size = stop - start
    if size == 0:
        return True
    if size > 4 or (text[start] | 32) != 110:
        return False
    if size == 2:
        return (text[start + 1] | 32) == 97
    if size == 3:
        last = text[start + 2] | 32
        return (text[start + 1] == 47 and last == 97) or ((text[start + 1] | 32) == 97 and last == 110)
    return (
        size == 4
        and (text[start + 1] | 32) == 117
        and (text[start + 2] | 32) == 108
        and (text[start + 3] | 32) == 108
    )


@kernel
def parse_numbers(text, starts, stops, powers, bits, found):
    """Read cells as numbers.

    Parameters
    ----------
    text : ndarray of uint8, shape (n_bytes,)
    starts, stops : ndarray of int32
        ``(k,)`` cells.
    powers : ndarray of uint64, shape (651, 2)
        Of :func:`fastadmm.kernels.decimals.powers_of_five`.
    bits : ndarray of uint64
        ``(k,)``, written: bits of float64, NaN where a cell is missing.
    found : ndarray of int64
        ``(3,)``, written: all flags together; number of the first cell with a leading zero, or -1; how many
        cells are no number.

    Returns
    -------
    int
        Number of the first cell that is neither a number nor missing; -1: none. Those after it are not read.
    """
    flags, zero, absent = 0, -1, 0
    own, fives = bare(text), bare(powers)
    for i in range(len(starts)):
        start, stop = _stripped(own, starts[i], stops[i])
        kind, number = read_number(own, start, stop, fives)
        if kind == 0:
            if not _absent(own, start, stop):
                return i
            bits[i] = np.uint64(0x7FF8000000000000)
            absent += 1
            continue
        bits[i] = number
        flags |= kind
        if zero < 0 and kind & 4:
            zero = i
    found[0], found[1], found[2] = flags, zero, absent
    return -1


@kernel
def parse_table(text, separator, places, powers, bits, labels, starts, stops):
    """Read the lines of a table of numbers with a column of labels; blank lines are skipped.

    Parameters
    ----------
    text : ndarray of uint8, shape (n_bytes,)
        Complete lines, also the last.
    separator : int
        Code of the character between cells.
    places : ndarray of int64, shape (columns of the text,)
        By column of the text: which feature it is; -1: the label; -2: left out.
    powers : ndarray of uint64, shape (651, 2)
        Of :func:`fastadmm.kernels.decimals.powers_of_five`.
    bits : ndarray of uint64
        ``(k, d)``, written: bits of float64.
    labels : ndarray of uint64
        ``(k,)``, written, where all labels are numbers: bits of float64.
    starts, stops : ndarray of int32
        ``(k,)``, written: where each label begins and ends, without spaces around it.

    Returns
    -------
    int
        Rows; -1 if the text is not plain: a feature that is no number, a row of another width, a quote, a
        lone carriage return, anything but ASCII.
    bool
        Whether all labels are numbers.
    """
    at, n, width = np.uint64(0), np.uint64(len(text)), len(places)
    row, numbers = 0, True
    own, fives = bare(text), bare(powers)
    if n == 0 or text[n - _ONE] != 10:
        return -1, False
    while at < n:
        if text[at] == 10 or (text[at] == 13 and text[at + _ONE] == 10):
            at += _ONE if text[at] == 10 else np.uint64(2)
            continue
        if row == len(bits):
            return -1, False
        for column in range(width):
            place = places[column]
            if place >= 0:
                while text[at] == 32:
                    at += _ONE
                at, number, right = read_token(own, at, fives)
                if not right:
                    return -1, False
                bits[row, place] = number
                while text[at] == 32:
                    at += _ONE
            else:
                begin = at
                while text[at] != separator and text[at] != 10 and text[at] != 13:
                    if text[at] == 0 or text[at] == 34 or text[at] > 127:
                        return -1, False
                    at += _ONE
                if place == -1:
                    start, stop = _stripped(own, np.int64(begin), np.int64(at))
                    starts[row], stops[row] = start, stop
                    if numbers:
                        after, number, right = read_token(own, np.uint64(start), fives)
                        numbers = right and after == np.uint64(stop)
                        labels[row] = number
            if column < width - 1:
                if text[at] != separator:
                    return -1, False
                at += _ONE
        if text[at] == 13:
            at += _ONE
        if text[at] != 10:
            return -1, False
        at += _ONE
        row += 1
    return row, numbers


@kernel
def parse_whole_numbers(text, starts, stops, numbers):
    """Read cells as whole numbers of at most 18 digits, without sign + and leading zeros.

    Parameters
    ----------
    text : ndarray of uint8, shape (n_bytes,)
    starts, stops : ndarray of int32
        ``(k,)`` cells.
    numbers : ndarray of int64
        ``(k,)``, written.

    Returns
    -------
    bool
        Whether all cells are such numbers.
    """
    own = bare(text)
    for i in range(len(starts)):
        start, stop = _stripped(own, starts[i], stops[i])
        negative = start < stop and text[start] == 45
        first = start + 1 if negative else start
        size = stop - first
        if size < 1 or size > 18 or (text[first] == 48 and (size > 1 or negative)):
            return False
        number = np.int64(0)
        for at in range(first, stop):
            if not 48 <= text[at] <= 57:
                return False
            number = number * 10 + np.int64(text[at] - 48)
        numbers[i] = -number if negative else number
    return True


@kernel
def code_words(text, starts, stops, table, codes, first):
    """Number the different cells in the order of their first row.

    Parameters
    ----------
    text : ndarray of uint8, shape (n_bytes,)
    starts, stops : ndarray of int32
        ``(k,)`` cells.
    table : ndarray of int32, shape (size,)
        More than k entries, a power of two of them, all -1; used up.
    codes : ndarray of int32
        ``(k,)``, written: number of each cell's text.
    first : ndarray of int32
        ``(k,)``, written: first row of each text.

    Returns
    -------
    int
        Different texts.
    """
    mask = np.uint64(len(table) - 1)
    count = 0
    for i in range(len(starts)):
        start, stop = starts[i], stops[i]
        mixed = np.uint64(14695981039346656037)
        for at in range(start, stop):
            mixed = (mixed ^ np.uint64(text[at])) * np.uint64(1099511628211)
        place = (mixed ^ (mixed >> np.uint64(29))) & mask
        while True:
            known = table[place]
            if known < 0:
                table[place] = count
                first[count] = i
                codes[i] = count
                count += 1
                break
            begin = starts[first[known]]
            if stops[first[known]] - begin == stop - start:
                same = True
                for k in range(stop - start):
                    if text[begin + k] != text[start + k]:
                        same = False
                        break
                if same:
                    codes[i] = known
                    break
            place = (place + _ONE) & mask
    return count


@inline
def _behind_spaces(text, at):
    while text[at] == 32 or text[at] == 9 or text[at] == 13:
        at += _ONE
    return at


@kernel
def parse_libsvm(text, shift, limit, powers, labels, indptr, indices, bits):
    """Read LIBSVM lines.

    Parameters
    ----------
    text : ndarray of uint8, shape (n_bytes,)
        Complete lines, also the last.
    shift : int
        The first index: 0 or 1.
    limit : int
        Largest index that is allowed, counted from 0.
    powers : ndarray of uint64, shape (651, 2)
        Of :func:`fastadmm.kernels.decimals.powers_of_five`.
    labels : ndarray of uint64
        ``(k,)``, written: bits of float64.
    indptr : ndarray of int32
        ``(k + 1,)``, written.
    indices : ndarray of int32
        ``(n,)``, written; ascending in each row, from 0.
    bits : ndarray of uint64
        ``(n,)``, written: bits of float64.

    Returns
    -------
    int
        Rows; -1 if the text is not plain: other than numbers, spaces, comments; indices that do not ascend.
    int
        Lines.
    """
    row, lines, filled = 0, 0, 0
    at, n = np.uint64(0), np.uint64(len(text))
    own, fives = bare(text), bare(powers)
    indptr[0] = 0
    if len(text) == 0 or text[len(text) - 1] != 10:
        return -1, 0
    while at < n:
        at = _behind_spaces(own, at)
        if text[at] != 10 and text[at] != 35:
            at, number, right = read_token(own, at, fives)
            if not right or (text[at] > 32 and text[at] != 35):
                return -1, lines
            labels[row] = number
            last = np.int64(-1)
            while True:
                at = _behind_spaces(own, at)
                if text[at] == 10 or text[at] == 35:
                    break
                index, start = np.int64(0), at
                while 48 <= text[at] <= 57:
                    index = index * 10 + np.int64(text[at] - 48)
                    at += _ONE
                if at == start or at - start > np.uint64(10) or text[at] != 58:
                    return -1, lines
                index -= shift
                if index <= last or index > limit:
                    return -1, lines
                at, number, right = read_token(own, at + _ONE, fives)
                if not right or (text[at] > 32 and text[at] != 35):
                    return -1, lines
                indices[filled], bits[filled] = index, number
                filled += 1
                last = index
            row += 1
            indptr[row] = filled
        while text[at] != 10:
            at += _ONE
        at += _ONE
        lines += 1
    return row, lines


@intrinsic
def _compiled(typing_context, array):
    """Where the elements of a contiguous array are; whoever calls keeps the array."""
    signature = types.CPointer(array.dtype)(array)

    def generate(context, builder, signature, arguments):
        return context.make_array(signature.args[0])(context, builder, arguments[0]).data

    return signature, generate


def _interpreted(array):
    """The elements in a row: for runs without the compiler."""
    return array.reshape(-1)


bare: Any = _compiled if COMPILED else _interpreted
