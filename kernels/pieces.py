"""A kernel over pieces of its rows, described by two addresses: with them any thread can compute any piece.

A job is any kernel that takes a row range last. :func:`describe_rows` and :func:`describe_sums` make its
*piece function*, which takes the address of the packed arguments and the number of a piece. Who shares the
pieces, in turn or by ``prange`` on Numba's threads, needs no more of the kernel. Every piece writes to its
own place, so results do not depend on which thread computes it.
"""

from functools import partial
from typing import Any

from fastadmm.kernels.policy import COMPILED, intrinsic, kernel, spliced
from llvmlite import ir
from numba import prange, types
from numba.core import cgutils

_I64 = ir.IntType(64)
_POINTER = ir.IntType(8).as_pointer()
_PIECE = ir.FunctionType(ir.VoidType(), [_POINTER, _I64])

#: Place for what a kernel returns, nothing or a few numbers.
_ROOM = types.UniTuple(types.float64, 4)


@intrinsic
def call_piece(typing_context, code, what, piece):
    """Call the piece function at an address."""
    signature = types.void(types.int64, types.int64, types.int64)

    def generate(context, builder, signature, arguments):
        function = builder.inttoptr(arguments[0], _PIECE.as_pointer())
        builder.call(function, [builder.inttoptr(arguments[1], _POINTER), arguments[2]])
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _call_kernel(typing_context, address, arguments):
    """Call the kernel at an address with a tuple of exactly its arguments; two numbers that it may return."""
    signature = types.UniTuple(types.float64, 2)(types.int64, arguments)

    def generate(context, builder, signature, values):
        kinds = signature.args[1].types
        function_type = context.call_conv.get_function_type(_ROOM, kinds)
        function = builder.inttoptr(values[0], function_type.as_pointer())
        arguments = cgutils.unpack_tuple(builder, values[1])
        _, found = context.call_conv.call_function(builder, function, _ROOM, kinds, arguments)
        pair = [builder.extract_value(found, k) for k in range(2)]
        return context.make_tuple(builder, signature.return_type, pair)

    return signature, generate


def _interpreted(kernel, arguments):
    found = kernel(*arguments)
    return found if isinstance(found, tuple) else (found, 0.0)


#: Without the compiler the address is the kernel itself.
call_kernel: Any = _call_kernel if COMPILED else _interpreted


def _piece_function(context, builder, tuple_type, fill):
    """Piece function that calls a kernel at an address with arguments from a packed tuple.

    The tuple begins with the address and the borders of the pieces; ``fill`` makes the kernel's
    arguments, types and values, of the rest and the number of the piece.
    """
    name = f"piece.{len(builder.module.functions)}"
    entry = ir.Function(builder.module, _PIECE, name)
    entry.linkage = "internal"
    body = ir.IRBuilder(entry.append_basic_block())
    packed = body.load(body.bitcast(entry.args[0], context.get_value_type(tuple_type).as_pointer()))
    values = [body.extract_value(packed, k) for k in range(len(tuple_type.types))]
    piece = entry.args[1]
    bounds = context.make_array(tuple_type.types[1])(context, body, values[1])
    ends = [body.load(body.gep(bounds.data, [body.add(piece, _I64(k))])) for k in range(2)]
    argument_types, arguments = fill(body, values[2:], piece)
    argument_types, arguments = [*argument_types, types.int64, types.int64], [*arguments, *ends]
    # Whatever a kernel returns, nothing or a few numbers, has room here.
    function_type = context.call_conv.get_function_type(_ROOM, argument_types)
    kernel_function = body.inttoptr(values[0], function_type.as_pointer())
    context.call_conv.call_function(body, kernel_function, _ROOM, argument_types, arguments)
    body.ret_void()
    return entry


def _described(make_entry):
    @intrinsic
    def describe(typing_context, packed):
        """Addresses of the piece function and of the arguments, a tuple ``packed``, while its caller runs."""
        signature = types.UniTuple(types.int64, 2)(packed)

        def generate(context, builder, signature, values):
            entry = make_entry(context, builder, signature.args[0])
            place = cgutils.alloca_once_value(builder, values[0])
            pair = [builder.ptrtoint(entry, _I64), builder.ptrtoint(place, _I64)]
            return context.make_tuple(builder, signature.return_type, pair)

        return signature, generate

    return describe


def _rows_entry(context, builder, tuple_type):
    kinds = tuple_type.types[2:]
    return _piece_function(context, builder, tuple_type, lambda _, rest, __: (kinds, rest))


def _sums_entry(context, builder, tuple_type):
    own_type, *kinds = tuple_type.types[2:]
    row_type = own_type.copy(ndim=own_type.ndim - 1)

    def fill(body, rest, piece):
        row = context.compile_subroutine(body, _row, row_type(own_type, types.int64)).fndesc
        inner = row_type(own_type, types.int64)
        _, value = context.call_internal_no_propagate(body, row, inner, [rest[0], piece])
        # The caller keeps the whole array alive while its rows are in use.
        context.nrt.decref(body, row_type, value)
        place = context.make_array(row_type)(context, body, value)
        cgutils.memset(body, place.data, body.mul(place.nitems, place.itemsize), 0)
        return [*kinds, row_type], [*rest[1:], value]

    return _piece_function(context, builder, tuple_type, fill)


def _row(own, piece):
    """The place that a piece adds to."""
    return own[piece]


#: For ``(address, bounds, *arguments)``.
describe_rows = _described(_rows_entry)

#: For ``(address, bounds, own, *arguments)``: the kernel adds to a row of ``own``, from zero.
describe_sums = _described(_sums_entry)


@partial(kernel, parallel=True)
def share_pieces(code, what, pieces):
    """Have the pieces of a job done by as many threads as :func:`numba.set_num_threads` was told.

    ``code``, ``what``: addresses of the piece function and of its arguments.
    """
    for piece in prange(pieces):
        call_piece(code, what, piece)


@spliced
def _do(share, described, pieces):
    code, what = described
    if share != 0:
        call_kernel(share, (code, what, pieces))
    else:
        for piece in range(pieces):
            call_piece(code, what, piece)


@kernel
def over_rows(share, address, bounds, *arguments):
    """Call the kernel at an address with ``(*arguments, start, stop)`` for each range between bounds.

    Shapes: bounds (pieces + 1,) of int64.
    ``share``: address of :func:`share_pieces`; 0 where the caller does all pieces in turn. It is not called
    by its name, so that a caller on one thread neither compiles it nor launches threads. ``address``: of a
    kernel compiled for exactly these arguments. ``arguments``: what the kernel takes.
    """
    _do(share, describe_rows((address, bounds, *arguments)), len(bounds) - 1)


@kernel
def over_sums(share, address, bounds, own, *arguments):
    """Call the kernel at an address with ``(*arguments, own[k], start, stop)`` for the k-th range.

    Shapes: own (pieces, ...).
    ``own``: each piece adds to a row of its own, which is set to zero first. Others as in :func:`over_rows`.
    """
    _do(share, describe_sums((address, bounds, own, *arguments)), len(bounds) - 1)


@kernel
def add_returned(address, arguments, out, start, stop):
    """Add to ``out``, of shape (2,), what the kernel at an address returns of ``(*arguments, start, stop)``.

    ``address``: of a kernel compiled for exactly these arguments. ``arguments``: what it takes. Of a kernel
    that returns one number the second that is added is of no use.
    """
    first, second = call_kernel(address, (*arguments, start, stop))
    out[0] += first
    out[1] += second
