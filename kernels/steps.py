"""Several kernels tile after tile, without the interpreter in between.

Where a tile is to stay in a core's cache while one kernel after the other passes over
it, tiles are so small that the interpreter would take longer to call the kernels than
they take to run, and threads would wait for each other at its lock. So each step
is written down once (:func:`write_step`): the address of a piece function
(:func:`fastadmm.kernels.crew.piece_function`) and its arguments, packed in memory
that the caller owns. :func:`run_steps` then runs all steps for many tiles.

What a step returns is kept, bit by bit, for its caller.
"""

from __future__ import annotations

from typing import Any

from fastadmm.kernels.crew import call_piece, piece_function
from fastadmm.kernels.policy import kernel
from llvmlite import ir
from numba import types
from numba.extending import intrinsic as _intrinsic

__all__ = ["run_steps", "write_step"]

#: Its typing context is given by Numba, not by the caller.
intrinsic: Any = _intrinsic

_I64 = ir.IntType(64)


def _kinds(kind: Any) -> tuple[Any, ...]:
    """Types of a tuple's parts."""
    return tuple(kind)


def _borrowed(context, builder, kind, value):
    """A value without the counts of who holds its arrays: they end with the call that was given them."""
    if isinstance(kind, types.Array):
        array = context.make_array(kind)(context, builder, value)
        array.meminfo = ir.Constant(array.meminfo.type, None)
        array.parent = ir.Constant(array.parent.type, None)
        return array._getvalue()
    if isinstance(kind, types.BaseTuple):
        own = [builder.extract_value(value, k) for k in range(len(kind))]
        parts = [_borrowed(context, builder, part, value) for part, value in zip(_kinds(kind), own)]
        return context.make_tuple(builder, kind, parts)
    return value


@intrinsic
def _write(typing_context, place, room, packed):
    """Write ``(address, bounds, returned, *arguments)`` to a place with so much room."""
    signature = types.UniTuple(types.int64, 2)(types.int64, types.int64, packed)

    def generate(context, builder, signature, values):
        kind = signature.args[2]
        own = context.get_value_type(kind)

        def keep(body, rest, piece, result):
            found = context.make_array(kind.types[2])(context, body, rest[0])
            body.store(body.bitcast(result, _I64), body.gep(found.data, [piece]))

        def fill(body, rest, piece):
            return kind.types[3:], rest[1:]

        entry = piece_function(context, builder, kind, fill, keep)
        size = _I64(context.get_abi_sizeof(own))
        with builder.if_then(builder.icmp_signed("<=", size, values[1])):
            packed = _borrowed(context, builder, kind, values[2])
            builder.store(packed, builder.inttoptr(values[0], own.as_pointer()), align=8)
        return context.make_tuple(builder, signature.return_type, [builder.ptrtoint(entry, _I64), size])

    return signature, generate


@intrinsic
def _look(typing_context, address, k):
    """The k-th number from an address on."""
    signature = types.int64(types.int64, types.int64)

    def generate(context, builder, signature, arguments):
        place = builder.inttoptr(arguments[0], _I64.as_pointer())
        return builder.load(builder.gep(place, [arguments[1]]))

    return signature, generate


@kernel
def write_step(place, address, bounds, returned, *arguments):
    """Write down a step: the kernel at an address, for each range between bounds.

    Parameters
    ----------
    place : ndarray of int64
        Written. It and all arrays below must live as long as the step is run.
    address : int
        Of a kernel compiled for ``(*arguments, start, stop)``.
    bounds : ndarray of int64, shape (tiles + 1,)
    returned : ndarray of int64, shape (tiles,)
        Filled, when the step is run, with the first eight bytes of what the kernel returns.
    *arguments
        What the kernel takes.

    Returns
    -------
    code : int
        For :func:`run_steps`.
    size : int
        Bytes that are needed; nothing was written if the place has fewer.
    """
    return _write(place.ctypes.data, 8 * len(place), (address, bounds, returned, *arguments))


@kernel
def run_steps(codes, places, returned, awaited, checked, first, last):
    """Run all steps of tile after tile.

    Parameters
    ----------
    codes, places : ndarray of int64, shape (steps,)
        Of each step its code and the address of its place.
    returned : ndarray of int64, shape (steps,)
        Addresses of what the steps were given.
    awaited : ndarray of int64, shape (tiles,)
        What steps return that are done with a tile.
    checked : ndarray of bool, shape (steps,)
        Of which steps that is to be looked at.
    first, last : int
        Range of tiles.

    Returns
    -------
    int
        First tile that is not done: ``last``, or the one whose step returned something else.
    """
    for tile in range(first, last):
        for step in range(len(codes)):
            call_piece(codes[step], places[step], tile)
            if checked[step] and _look(returned[step], tile) != awaited[tile]:
                return tile
    return last
