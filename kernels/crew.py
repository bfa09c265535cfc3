"""Pieces of one kernel on several threads, without the interpreter.

A job of a tenth of a millisecond is over before a sleeping thread has woken up and
taken the interpreter lock. So helpers wait *awake*, in compiled code that needs no
lock (:func:`serve`), for as long as jobs follow each other closely. A job is the pieces of
a kernel (:mod:`fastadmm.kernels.pieces`), which are handed over in about a microsecond.

The board of a crew, of int64, one entry per cache line or two:

===========  ==================================================================
``JOB``      number of the job that is open; 0 while none is; first of all entries
``CODE``     address of its piece function
``WHAT``     address of its arguments
``PIECES``   how many pieces it has
``INSIDE``   helpers that may be at a piece
``LAST``     number of the last job
``BUSY``     callers that have a job or wish for one
``TAKEN``    of each worker's share of the pieces, how many are taken
===========  ==================================================================

A worker first takes the pieces of its own share, whose data its cache may still hold from the last job,
then what is left of the others'. An empty board has no helpers: the caller does all
pieces in turn, as does a second caller while the first is busy.

A helper counts itself in before it looks whether the job it saw is still open; the
caller closes the job before it waits for the helpers inside. So arguments
live as long as anybody uses them. Who computes a piece is left to chance, what it
contains is not.
"""

from __future__ import annotations

from typing import Any

from fastadmm.kernels.pieces import call_piece, describe_rows, describe_sums, in_turn
from fastadmm.kernels.policy import inline, kernel
from llvmlite import ir
from numba import types
from numba.extending import intrinsic as _intrinsic

__all__ = ["NO_MORE", "board_size", "over_rows", "over_sums", "post", "serve"]

#: Its typing context is given by Numba, not by the caller.
intrinsic: Any = _intrinsic

_LINE = 8
_JOB, _CODE, _WHAT, _PIECES = 0, _LINE, _LINE + 1, _LINE + 2
_INSIDE, _LAST, _BUSY, _TAKEN = 2 * _LINE, 3 * _LINE, 4 * _LINE, 5 * _LINE

#: Instead of the number of a job, in the first entry: helpers may go.
NO_MORE = -1


def _place(context, builder, array_type, array, index):
    view = context.make_array(array_type)(context, builder, array)
    return builder.gep(view.data, [index])


@intrinsic
def _load(typing_context, array, index):
    """An entry as it is in memory now."""
    signature = types.int64(array, types.intp)

    def generate(context, builder, signature, arguments):
        place = _place(context, builder, signature.args[0], *arguments)
        return builder.load_atomic(place, "seq_cst", 8)

    return signature, generate


@intrinsic
def _store(typing_context, array, index, value):
    """Set an entry for everybody to see."""
    signature = types.void(array, types.intp, types.int64)

    def generate(context, builder, signature, arguments):
        place = _place(context, builder, signature.args[0], *arguments[:2])
        builder.store_atomic(arguments[2], place, "seq_cst", 8)
        return context.get_dummy_value()

    return signature, generate


@intrinsic
def _add(typing_context, array, index, value):
    """Add to an entry in one step; what it was before."""
    signature = types.int64(array, types.intp, types.int64)

    def generate(context, builder, signature, arguments):
        place = _place(context, builder, signature.args[0], *arguments[:2])
        return builder.atomic_rmw("add", place, arguments[2], "seq_cst")

    return signature, generate


@intrinsic
def _pause(typing_context):
    """Leave the core's other thread some cycles, where the processor can."""
    signature = types.void()

    def generate(context, builder, signature, arguments):
        if builder.module.triple.startswith(("x86_64", "i686")):
            pause = ir.FunctionType(ir.VoidType(), [])
            builder.call(builder.module.declare_intrinsic("llvm.x86.sse2.pause", (), pause), [])
        return context.get_dummy_value()

    return signature, generate


def board_size(n_workers):
    """Entries of a board for so many workers, the caller among them.

    Parameters
    ----------
    n_workers : int

    Returns
    -------
    int
    """
    return _TAKEN + n_workers * _LINE


@inline
def _work(board, worker, code, what, pieces):
    """Do pieces until none is left."""
    n_workers = (len(board) - _TAKEN) // _LINE
    for turn in range(n_workers):
        share = (worker + turn) % n_workers
        first, end = pieces * share // n_workers, pieces * (share + 1) // n_workers
        while True:
            piece = first + _add(board, _TAKEN + share * _LINE, 1)
            if piece >= end:
                break
            call_piece(code, what, piece)


@kernel
def post(board, code, what, pieces):
    """Have the pieces of a job done by the caller and by whoever is awake.

    Parameters
    ----------
    board : ndarray of int64
        Empty where nobody helps.
    code, what : int
        Addresses of the piece function and of its arguments.
    pieces : int
    """
    if len(board) == 0:
        in_turn(code, what, pieces)
    elif _add(board, _BUSY, 1) == 0:
        for place in range(_TAKEN, len(board), _LINE):
            _store(board, place, 0)
        _store(board, _CODE, code)
        _store(board, _WHAT, what)
        _store(board, _PIECES, pieces)
        number = _add(board, _LAST, 1) + 1
        _store(board, _JOB, number)
        _work(board, 0, code, what, pieces)
        _store(board, _JOB, 0)
        while _load(board, _INSIDE) > 0:
            _pause()
        _add(board, _BUSY, -1)
    else:
        in_turn(code, what, pieces)
        _add(board, _BUSY, -1)


@kernel
def over_rows(board, address, bounds, *arguments):
    """Call the kernel at an address with ``(*arguments, start, stop)`` for each range between bounds.

    Parameters
    ----------
    board : ndarray of int64
    address : int
        Of a kernel compiled for exactly these arguments.
    bounds : ndarray of int64, shape (pieces + 1,)
    *arguments
        What the kernel takes.
    """
    code, what = describe_rows((address, bounds, *arguments))
    post(board, code, what, len(bounds) - 1)


@kernel
def over_sums(board, address, bounds, own, *arguments):
    """Call the kernel at an address with ``(*arguments, own[k], start, stop)`` for the k-th range.

    Parameters
    ----------
    board, address, bounds, *arguments
        As in :func:`over_rows`.
    own : ndarray of shape (pieces, ...)
        Each piece adds to a row that nobody else touches.
    """
    code, what = describe_sums((address, bounds, own, *arguments))
    post(board, code, what, len(bounds) - 1)


@kernel
def serve(board, worker, looks):
    """Help with jobs until none has come for a while.

    Parameters
    ----------
    board : ndarray of int64, shape (board_size(n_workers),)
    worker : int
        From 1 on; 0 is the caller.
    looks : int
        So often the board is looked at, some tens of nanoseconds each, before it returns.
    """
    seen, left = 0, looks
    while left > 0:
        job = _load(board, _JOB)
        if job == NO_MORE:
            break
        if job in (0, seen):
            left -= 1
            _pause()
            continue
        seen, left = job, looks
        _add(board, _INSIDE, 1)
        if _load(board, _JOB) == job:
            _work(board, worker, _load(board, _CODE), _load(board, _WHAT), _load(board, _PIECES))
        _add(board, _INSIDE, -1)
