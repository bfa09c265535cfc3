r"""Passes over messages: moving along them, and their products with a gradient.

A step in the span, the kernel ``advance`` of a loss, takes
:math:`S \leftarrow S + V^\top c`, the loss and its gradient at
:math:`z = o + S + b` and the slopes :math:`V g` block by block.
Its arguments are those of :func:`span_move`, with targets, weights and
parameters of the loss as its ``evaluate`` takes them, and an array of shape (K + 3,)
to which it adds the slopes, the summed loss of the row range and the sums of the gradient
and of its absolute values. Without messages it is the loss where S is. Where messages are columns of
dense matrices, a tuple of these may take the place of V: see :mod:`fastadmm.kernels.beside`.

Both passes go over the samples in blocks that stay in the first-level cache, message
after message: every value of V is read once and nothing else leaves the cache.
"""

from typing import Any

import numpy as np
from fastadmm.kernels.beside import beside_blocks, beside_move, beside_slopes
from fastadmm.kernels.block_sum import BLOCK
from fastadmm.kernels.fused_multiply_add import fma
from fastadmm.kernels.policy import spliced
from fastadmm.kernels.vectors import LANES, dot, total_and_size
from numba import types
from numba.extending import overload as _overload

#: Its type does not tell all of its options.
overload: Any = _overload

#: Messages are read in blocks of about this many numbers, which stay in the second-level cache.
_NUMBERS_PER_BLOCK = 1 << 17

_FEWEST_ROWS = 1024


@spliced
def span_blocks(n_messages, start, stop):
    """Cut a row range into blocks whose messages fit into the cache.

    A step is three passes over a block: moving, the loss, the slopes. The cut depends on sizes alone.

    ``n_messages``: K. Returns: first row and end of each block.
    """
    size = max(_FEWEST_ROWS, _NUMBERS_PER_BLOCK // max(1, n_messages))
    return [(begin, min(begin + size, stop)) for begin in range(start, stop, size)]


@spliced
def span_move(messages, step, origin, base, intercept, total, z, start, stop):
    """Write ``origin + step @ V`` to ``total`` and ``base + intercept`` more to ``z``, over a row range.

    Shapes: messages (K, N); step (K,); origin, base (N,); total, z (N,).
    ``origin``, ``base``: sum of messages before the step; offset.
    """
    n_messages = len(messages)
    work = np.empty(BLOCK)
    for begin in range(start, stop, BLOCK):
        size = min(begin + BLOCK, stop) - begin
        for k in range(size):
            work[k] = origin[begin + k]
        whole = n_messages - n_messages % 4
        for j in range(0, whole, 4):  # four at once: the running sum stays in a register meanwhile
            a, b, c, d = step[j], step[j + 1], step[j + 2], step[j + 3]
            first, second = messages[j, begin : begin + size], messages[j + 1, begin : begin + size]
            third, fourth = messages[j + 2, begin : begin + size], messages[j + 3, begin : begin + size]
            for k in range(size):
                work[k] = fma(d, fourth[k], fma(c, third[k], fma(b, second[k], fma(a, first[k], work[k]))))
        for j in range(whole, n_messages):
            a = step[j]
            first = messages[j, begin : begin + size]
            for k in range(size):
                work[k] = fma(a, first[k], work[k])
        own_total, own_z = total[begin : begin + size], z[begin : begin + size]
        own_base = base[begin : begin + size]
        for k in range(size):
            own_total[k] = work[k]
        for k in range(size):
            own_z[k] = (own_base[k] + work[k]) + intercept


@spliced
def span_slopes(messages, vector, out, start, stop):
    """Add ``V @ vector`` over a row range to ``out``. Shapes: messages (K, N); vector (N,); out (K,)."""
    sums = np.empty(LANES)
    for begin in range(start, stop, 2 * BLOCK):
        end = min(begin + 2 * BLOCK, stop)
        own = vector[begin:end]
        for j in range(len(messages)):
            out[j] += dot(messages[j, begin:end], own, sums)


def _blocks(messages, n_messages, start, stop):
    """:func:`span_blocks` or, for the columns of matrices, :func:`beside_blocks`."""
    blocks = beside_blocks if isinstance(messages, tuple) else span_blocks
    return blocks(n_messages, start, stop)


def _move(messages, step, origin, base, intercept, total, z, start, stop):
    """:func:`span_move` or, along the columns of matrices, :func:`beside_move`."""
    move = beside_move if isinstance(messages, tuple) else span_move
    move(messages, step, origin, base, intercept, total, z, start, stop)


def _slopes(messages, vector, out, start, stop):
    """:func:`span_slopes` or, of the columns of matrices, :func:`beside_slopes`."""
    slopes = beside_slopes if isinstance(messages, tuple) else span_slopes
    slopes(messages, vector, out, start, stop)


@overload(_blocks, inline="always")
def _compiled_blocks(messages, n_messages, start, stop):
    if isinstance(messages, types.BaseTuple):
        return lambda messages, n_messages, start, stop: beside_blocks(n_messages, start, stop)
    return lambda messages, n_messages, start, stop: span_blocks(n_messages, start, stop)


@overload(_move, inline="always")
def _compiled_move(messages, step, origin, base, intercept, total, z, start, stop):
    if isinstance(messages, types.BaseTuple):
        return lambda messages, step, origin, base, intercept, total, z, start, stop: beside_move(  # noqa: PLW0108
            messages, step, origin, base, intercept, total, z, start, stop
        )
    return lambda messages, step, origin, base, intercept, total, z, start, stop: span_move(  # noqa: PLW0108
        messages, step, origin, base, intercept, total, z, start, stop
    )


@overload(_slopes, inline="always")
def _compiled_slopes(messages, vector, out, start, stop):
    if isinstance(messages, types.BaseTuple):
        return lambda messages, vector, out, start, stop: beside_slopes(  # noqa: PLW0108
            messages, vector, out, start, stop
        )
    return lambda messages, vector, out, start, stop: span_slopes(  # noqa: PLW0108
        messages, vector, out, start, stop
    )


@spliced
def span_advance(evaluate, move, given, slopes, start, stop):
    """A step in the span over a row range, with the loss and its slopes there.

    Shapes: slopes (at least K + 3,).
    ``evaluate``: of the loss. ``move``: ``messages`` to ``z`` of :func:`span_move`. ``given``: what
    ``evaluate`` takes between z and the rows, the gradient last. ``slopes``: slopes, loss, and sums of the
    gradient and of its absolute values are added.
    """
    messages, step, origin, base, intercept, total, z = move
    gradient, value = given[-1], 0.0
    for begin, end in _blocks(messages, len(step), start, stop):
        _move(messages, step, origin, base, intercept, total, z, begin, end)
        value += evaluate(z, *given, begin, end)
        _slopes(messages, gradient, slopes, begin, end)
        total_and_size(gradient, slopes[len(step) + 1 :], begin, end)
    slopes[len(step)] += value
