r"""Passes over messages: moving along them, and their products with a gradient.

A step in the span, the kernel ``advance`` of a loss, takes
:math:`S \leftarrow S + V^\top c`, the loss and its gradient at
:math:`z = o + S + b` and the slopes :math:`V g` block by block.
Its arguments are those of :func:`span_move`, with targets, weights and
parameters of the loss as its ``evaluate`` takes them, and an array of shape (K + 3,)
to which it adds the slopes, the summed loss of the row range and the sums of the gradient
and of its absolute values. Without messages it is the loss where S is.

Both passes go over the samples in blocks that stay in the first-level cache, message
after message: every value of V is read once and nothing else leaves the cache.
"""

import numpy as np
from fastadmm.kernels.block_sum import BLOCK
from fastadmm.kernels.fused_multiply_add import fma
from fastadmm.kernels.policy import spliced
from fastadmm.kernels.vectors import LANES, dot

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
