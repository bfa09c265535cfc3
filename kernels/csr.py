"""Products with compressed sparse rows.

Column indices are unsigned, and so are the loops over entries: signed ones make
Numba emit wrap-around code for negative indices in the innermost loop, which
costs a third of the time.

A row's product with a vector is eight sums, each of every eighth entry, added in pairs at the end: not the
order of a plain loop, but one that nothing but the row decides, and sums that do not wait for each other.
``D.T v`` is in the order of a plain loop. Entries that are all one are not read: ``data`` is None then.

The processor predicts where a row's loop ends. If lengths vary, it is wrong once per row, which costs as much
as twenty entries. So a row's last group is computed whole, with zeros in place of what is not the row's.

Four sums side by side are increased by one instruction. Numba leaves neighbouring statements as they are
written, one number at a time; asked for by name, the vector operations are the same multiplications and sums,
each rounded alone, to the bit.

And dense matrices that are mostly zeros, found out and compressed in two passes.
"""

from typing import Any

import numpy as np
from fastadmm.kernels.policy import COMPILED, inline, intrinsic, kernel
from llvmlite import ir
from numba import types

#: Rows whose entries a cache keeps from one product to the next.
_KEPT_ROWS = 64

# Numbers of entries are unsigned, as their places are.
_ONE, _TWO, _THREE, _FOUR, _FIVE, _SIX, _SEVEN, _EIGHT = (np.uint64(k) for k in range(1, 9))


@inline
def _term(data, indices, x, k):
    """Product of an entry and what it meets."""
    return x[indices[k]] if data is None else data[k] * x[indices[k]]


@inline
def _own_term(data, indices, x, k, end):
    """As :func:`_term`; zero from the row's end on, without a branch."""
    term = _term(data, indices, x, min(k, end - _ONE))
    return term if k < end else 0.0


@inline
def _row_product(data, indices, x, begin, end):
    """Product of the entries of one row, from ``begin`` to ``end``, with a vector.

    Shapes: data (nnz,), or None; x (d,).
    """
    if begin == end:
        return 0.0
    k, a, b, c, d, e, f, g, h = begin, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    while k + _EIGHT < end:
        a += _term(data, indices, x, k)
        b += _term(data, indices, x, k + _ONE)
        c += _term(data, indices, x, k + _TWO)
        d += _term(data, indices, x, k + _THREE)
        e += _term(data, indices, x, k + _FOUR)
        f += _term(data, indices, x, k + _FIVE)
        g += _term(data, indices, x, k + _SIX)
        h += _term(data, indices, x, k + _SEVEN)
        k += _EIGHT
    a += _term(data, indices, x, k)
    b += _own_term(data, indices, x, k + _ONE, end)
    c += _own_term(data, indices, x, k + _TWO, end)
    d += _own_term(data, indices, x, k + _THREE, end)
    e += _own_term(data, indices, x, k + _FOUR, end)
    f += _own_term(data, indices, x, k + _FIVE, end)
    g += _own_term(data, indices, x, k + _SIX, end)
    h += _own_term(data, indices, x, k + _SEVEN, end)
    return ((a + e) + (c + g)) + ((b + f) + (d + h))


@kernel
def csr_products(indptr, indices, data, x, out, start, stop):
    """Write ``D x`` of one or several x for the rows of a range, each to the bit as alone.

    D is read from memory once.

    Shapes: data (nnz,), or None; x (C, d); out (C, N).
    ``data``: none for entries that are all one: then two bytes an entry are read instead of ten.
    """
    for begin in range(start, stop, _KEPT_ROWS):
        for k in range(len(x)):
            own, message = x[k], out[k]
            for i in range(begin, min(begin + _KEPT_ROWS, stop)):
                first, end = np.uint64(indptr[i]), np.uint64(indptr[i + 1])
                message[i] = _row_product(data, indices, own, first, end)


@kernel
def csr_accumulate_transposed(indptr, indices, data, v, out, start, stop):
    """Add ``sum_i v[i] D[i, :]`` over the rows of a range to ``out`` of shape (d,)."""
    readable = np.uint64(indptr[stop])
    for i in range(start, stop):
        k, end, scale = np.uint64(indptr[i]), np.uint64(indptr[i + 1]), v[i]
        while k + _FOUR < end:
            for lane in range(_FOUR):
                out[indices[k + lane]] += scale if data is None else data[k + lane] * scale
            k += _FOUR
        while k < end and k + _FOUR > readable:
            out[indices[k]] += scale if data is None else data[k] * scale
            k += _ONE
        if k < end:
            for lane in range(_FOUR):  # entries of the next row count as zero
                increase = scale if data is None else data[k + lane] * scale
                out[indices[k + lane]] += increase if k + lane < end else 0.0


@intrinsic
def _compiled_four(typing_context, sums, j, value, a, b, c, d):
    """``sums[j] += value * (a, b, c, d)`` for C-contiguous sums of shape (n, 4)."""
    signature = types.void(sums, types.uintp, *[types.float64] * 5)

    def generate(context, builder, signature, arguments):
        array = context.make_array(signature.args[0])(context, builder, arguments[0])
        row, value, factors = arguments[1], arguments[2], arguments[3:]
        vector = ir.VectorType(ir.DoubleType(), 4)

        def join(values):
            joined = ir.Constant(vector, ir.Undefined)
            for k, item in enumerate(values):
                joined = builder.insert_element(joined, item, ir.Constant(ir.IntType(32), k))
            return joined

        four = ir.Constant(row.type, 4)
        place = builder.gep(array.data, [builder.mul(row, four)])
        place = builder.bitcast(place, vector.as_pointer())
        increase = builder.fmul(join([value] * 4), join(factors))
        before = builder.load(place, align=8)
        builder.store(builder.fadd(before, increase), place, align=8)
        return context.get_dummy_value()

    return signature, generate


def _interpreted_four(sums, j, value, a, b, c, d):
    """``sums[j] += value * (a, b, c, d)``: for runs without the compiler."""
    for k, factor in enumerate((a, b, c, d)):
        sums[j, k] += value * factor


#: Without the compiler there are only the loops that say what is meant.
_add_four: Any = _compiled_four if COMPILED else _interpreted_four


@kernel
def csr_accumulate_images(indptr, indices, data, vectors, out, start, stop):
    """Add the images of four vectors under the transposed rows of a range, to the bit as one by one.

    Shapes: vectors (4, N); out (d, 4).
    ``vectors``: zero where fewer are wanted. ``out``: side by side, so that one instruction increases a
    column's four sums.
    """
    for i in range(start, stop):
        a, b, c, d = vectors[0, i], vectors[1, i], vectors[2, i], vectors[3, i]
        for k in range(np.uint64(indptr[i]), np.uint64(indptr[i + 1])):
            _add_four(out, indices[k], data[k], a, b, c, d)


@kernel
def csr_accumulate_gram(indptr, indices, data, weight, out, start, stop):
    """Add the upper triangle of ``D.T @ diag(weight) @ D`` over the rows of a range to ``out``.

    Shapes: weight (N,); out (d, d).
    Others as in :func:`csr_products`; column indices sorted within each row.
    """
    for i in range(start, stop):
        if weight[i] == 0.0:  # most rows of a loss with flat pieces
            continue
        end = np.uint64(indptr[i + 1])
        for a in range(np.uint64(indptr[i]), end):
            row = out[indices[a]]
            if data is None:
                for b in range(a, end):
                    row[indices[b]] += weight[i]
            else:
                scale = weight[i] * data[a]
                for b in range(a, end):
                    row[indices[b]] += scale * data[b]


@kernel
def csr_column_squares(indptr, indices, data, out, start, stop):
    """Add the squared entries of each column over a row range to ``out`` of shape (d,)."""
    for k in range(np.uint64(indptr[start]), np.uint64(indptr[stop])):
        out[indices[k]] += data[k] * data[k]


#: All bits of a number but its sign.
_NOT_SIGN = np.int64(0x7FFFFFFFFFFFFFFF)


@kernel
def dense_count(matrix, counts, start, stop):
    """Count the entries of each row that are not zero.

    Shapes: matrix (N, d); counts (N,) of int64.
    Returns: largest absolute value; infinite or NaN if one of them is.
    """
    # Of absolute values the bits are in the same order, NaN above infinity above all numbers, and the
    # largest of integers may be looked for in any order: that is what lets LLVM vectorise this.
    largest = np.int64(0)
    for i in range(start, stop):
        row = matrix[i].view(np.int64)
        filled = np.int64(0)
        for j in range(len(row)):
            size = row[j] & _NOT_SIGN
            filled += np.int64(size != 0)
            largest = max(largest, size)
        counts[i] = filled
    return np.int64(largest).view(np.float64)


@kernel
def dense_compress(matrix, indptr, indices, data, start, stop):
    """Write the entries of a row range that are not zero as compressed sparse rows.

    Shapes: matrix (N, d); indices, data (nnz,).
    ``indptr``: where each row's entries go.
    """
    for i in range(start, stop):
        row = matrix[i]
        k = np.uint64(indptr[i])
        end = np.uint64(indptr[i + 1])
        for j in range(len(row)):
            # Written whether it counts or not: a branch on the value would be guessed wrong half of the time.
            if k < end:
                indices[k] = j
                data[k] = row[j]
            k += np.uint64(row[j] != 0.0)
