"""One sparse row, eight entries at a time, with few branches that depend on how many there are.

The processor predicts where a row's loop ends. If lengths vary, it is wrong
once per row, which costs as much as twenty entries. In groups of eight there
is little to predict: a row's last group is computed whole, and entries in it
that belong to the next row count as zero.

A row's product with a vector is eight sums, each of every eighth entry, added in
pairs at the end: not the order of a plain loop, but one that nothing but
the row decides. ``D.T v`` stays in the order of a plain loop, to the bit.

``data`` may be None everywhere: all entries are one.

Four sums side by side are increased by one instruction. Numba leaves neighbouring statements as they are
written, one number at a time; asked for by name, the vector operations are the same multiplications and sums,
each rounded alone, to the bit.
"""

from typing import Any

import numpy as np
from fastadmm.kernels.block_sum import sum_by_halves
from fastadmm.kernels.policy import COMPILED, inline, intrinsic
from llvmlite import ir
from numba import types
from numba.core import cgutils

#: Entries of a group, and the same for arithmetic with places.
_WIDTH, _GROUP = 8, np.uint64(8)

_BIT, _LANE, _INTEGER = ir.IntType(1), ir.IntType(32), ir.IntType(64)
_VALUES, _PLACES = ir.VectorType(ir.DoubleType(), _WIDTH), ir.VectorType(_INTEGER, _WIDTH)
_ZEROS, _LANES = ir.Constant(_VALUES, [0.0] * _WIDTH), ir.Constant(_PLACES, list(range(_WIDTH)))


def _repeat(builder, value, vector):
    """A vector of one value in all lanes."""
    undefined = ir.Constant(vector, ir.Undefined)
    first = builder.insert_element(undefined, value, _LANE(0))
    return builder.shuffle_vector(
        first, undefined, ir.Constant(ir.VectorType(_LANE, vector.count), [0] * vector.count)
    )


class _Array:
    """Address, type of an item and distance between items of an argument of one dimension."""

    def __init__(self, context, builder, kind, value):
        made = context.make_array(kind)(context, builder, value)
        self.pointer, self.item = made.data, context.get_data_type(kind.dtype)
        step = cgutils.unpack_tuple(builder, made.strides)[0]
        self.bytes = kind.dtype.bitwidth // 8
        self.step = _INTEGER(self.bytes) if kind.layout == "C" else step

    def load(self, builder, k):
        """One item of a contiguous array; an unsigned one in 64 bits."""
        return self._widen(builder, builder.load(builder.gep(self.pointer, [k])), _INTEGER)

    def group(self, builder, k):
        """Neighbouring items, from one on, of a contiguous array."""
        place = builder.bitcast(builder.gep(self.pointer, [k]), ir.VectorType(self.item, _WIDTH).as_pointer())
        return self._widen(builder, builder.load(place, align=self.bytes), _PLACES)

    def _widen(self, builder, found, wide):
        narrow = isinstance(self.item, ir.IntType) and self.item != _INTEGER
        return builder.zext(found, wide) if narrow else found


def _contiguous(*arrays):
    """Whether the code below may take neighbours in an array for neighbours in memory."""
    return all(a == types.none or (isinstance(a, types.Array) and a.layout == "C") for a in arrays)


@intrinsic
def _compiled_product(typing_context, data, indices, x, begin, end):
    """Product of the entries of a row with x."""
    if not _contiguous(data, indices):
        return None
    signature = types.float64(data, indices, x, types.uint64, types.uint64)

    def generate(context, builder, signature, arguments):
        kinds = signature.args
        columns = _Array(context, builder, kinds[1], arguments[1])
        weights = _Array(context, builder, kinds[2], arguments[2])
        values = None if data == types.none else _Array(context, builder, kinds[0], arguments[0])
        begin, end = arguments[3:]
        pointers = ir.VectorType(ir.DoubleType().as_pointer(), _WIDTH)
        lanes = ir.VectorType(_BIT, _WIDTH)
        gather = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(_VALUES, [pointers, _LANE, lanes, _VALUES]),
            f"llvm.masked.gather.v{_WIDTH}f64.v{_WIDTH}p0",
        )
        base = _repeat(builder, builder.ptrtoint(weights.pointer, _INTEGER), _PLACES)
        step = _repeat(builder, weights.step, _PLACES)

        def products(k):
            offsets = builder.mul(columns.group(builder, k), step)
            places = builder.inttoptr(builder.add(base, offsets), pointers)
            # A mask known to be full: where there is no instruction for it, LLVM makes eight plain loads.
            gathered = builder.call(gather, [places, _LANE(8), ir.Constant(lanes, [1] * _WIDTH), _ZEROS])
            if values is None:
                return gathered
            return builder.fmul(values.group(builder, k), gathered)

        sums = cgutils.alloca_once_value(builder, _ZEROS)
        at = cgutils.alloca_once_value(builder, begin)
        more, body, last = (builder.append_basic_block(name) for name in ("more", "group", "last"))
        builder.branch(more)
        builder.position_at_end(more)
        following = builder.add(builder.load(at), _INTEGER(_WIDTH))
        builder.cbranch(builder.icmp_unsigned("<", following, end), body, last)
        builder.position_at_end(body)
        builder.store(builder.fadd(builder.load(sums), products(builder.load(at))), sums)
        builder.store(following, at)
        builder.branch(more)
        builder.position_at_end(last)
        left = _repeat(builder, builder.sub(end, builder.load(at)), _PLACES)
        own = builder.select(builder.icmp_unsigned("<", _LANES, left), products(builder.load(at)), _ZEROS)
        return sum_by_halves(builder, builder.fadd(builder.load(sums), own))

    return signature, generate


@intrinsic
def _compiled_add(typing_context, data, indices, out, begin, end, scale):
    """``out[indices[k]] += data[k] * scale`` for a row's last group."""
    if not _contiguous(data, indices):
        return None
    signature = types.void(data, indices, out, types.uint64, types.uint64, types.float64)

    def generate(context, builder, signature, arguments):
        kinds = signature.args
        columns = _Array(context, builder, kinds[1], arguments[1])
        sums = _Array(context, builder, kinds[2], arguments[2])
        begin, end, scale = arguments[3:]
        increases = _repeat(builder, scale, _VALUES)
        if data != types.none:
            values = _Array(context, builder, kinds[0], arguments[0])
            increases = builder.fmul(values.group(builder, begin), increases)
        left = _repeat(builder, builder.sub(end, begin), _PLACES)
        increases = builder.select(builder.icmp_unsigned("<", _LANES, left), increases, _ZEROS)
        address = builder.ptrtoint(sums.pointer, _INTEGER)
        for lane in range(_WIDTH):
            # One after the other: entries that are not of this row may name one of its columns.
            column = columns.load(builder, builder.add(begin, _INTEGER(lane)))
            place = builder.inttoptr(
                builder.add(address, builder.mul(column, sums.step)), ir.DoubleType().as_pointer()
            )
            increase = builder.extract_element(increases, _LANE(lane))
            builder.store(builder.fadd(builder.load(place, align=8), increase), place, align=8)
        return context.get_dummy_value()

    return signature, generate


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

# The functions below are long rather than many: each that is inlined is compiled for itself before.


@inline
def row_product(data, indices, x, begin, end, readable):
    """Product of the entries of one row with a vector.

    Shapes: data (nnz,), or None; x (d,).
    ``begin``, ``end``: the row's entries. ``readable``: so many entries there are.
    """
    if COMPILED and end + _GROUP <= readable:
        return _compiled_product(data, indices, x, begin, end)
    first, last, total = np.int64(begin), np.int64(end), 0.0
    for h in range(first, first + 2):  # the eight sums in pairs, the pairs in pairs
        half = 0.0
        for j in range(h, h + 4, 2):
            pair = 0.0
            for i in range(j, j + 8, 4):
                lane = 0.0
                for k in range(i, last, _WIDTH):
                    if data is None:
                        lane += x[indices[k]]
                    else:
                        lane += data[k] * x[indices[k]]
                pair += lane
            half += pair
        total += half
    return total


@inline
def add_row(data, indices, out, begin, end, readable, scale):
    """Add ``scale`` times one row to ``out``; see :func:`row_product`."""
    if COMPILED and end + _GROUP <= readable:
        while begin + _GROUP < end:
            for k in range(begin, begin + _GROUP):
                if data is None:
                    out[indices[k]] += scale
                else:
                    out[indices[k]] += data[k] * scale
            begin += _GROUP
        _compiled_add(data, indices, out, begin, end, scale)
    else:
        for k in range(begin, end):
            if data is None:
                out[indices[k]] += scale
            else:
                out[indices[k]] += data[k] * scale


@inline
def add_row_of_four(data, indices, out, begin, end, a, b, c, d):
    """As :func:`add_row` for four scales, and ``out`` of shape (d, 4)."""
    for k in range(begin, end):
        _add_four(out, indices[k], data[k], a, b, c, d)
