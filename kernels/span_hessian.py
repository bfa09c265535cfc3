"""Products of messages with each other and with other vectors, over a range of rows."""

import numpy as np
from fastadmm.kernels.blas import add_products, add_rows
from fastadmm.kernels.policy import kernel

#: Samples per block: scaled messages stay in the second-level cache, two of them in the first.
_BLOCK = 1024

#: So few messages are multiplied with each other one by one, faster than by a matrix product.
_FEW_MESSAGES = 20


@kernel
def span_hessian(messages, root, lead, syrk, out, start, stop):
    """Add the upper triangle of the Hessian over the span of messages and, first, of vectors of ones.

    Shapes: messages (K, N); root (N,); out (lead + K, lead + K).
    ``root``: square root of the curvature. ``lead``: 1 with an intercept, else 0.
    """
    n = lead + len(messages)
    scaled, places = np.empty((n, _BLOCK)), np.empty(_BLOCK, dtype=np.int64)
    for begin in range(start, stop, _BLOCK):
        size, bent = min(begin + _BLOCK, stop) - begin, 0
        weight = root[begin : begin + size]
        for k in range(size):
            places[bent] = k
            bent += weight[k] != 0.0
        few = 2 * bent <= size  # a loss with flat pieces bends at few samples
        if few:
            size = bent
        for row in range(n):
            own = scaled[row, :size]
            if row < lead:
                for k in range(size):
                    own[k] = weight[places[k]] if few else weight[k]
                continue
            message = messages[row - lead, begin:stop]
            if few:
                for k in range(size):
                    own[k] = weight[places[k]] * message[places[k]]
            else:
                for k in range(size):
                    own[k] = weight[k] * message[k]
        if n > _FEW_MESSAGES:
            add_rows(syrk, scaled, size, out)
            continue
        for row in range(n):
            for column in range(row, n):
                out[row, column] += np.dot(scaled[row, :size], scaled[column, :size])


@kernel
def span_border(messages, known, curvature, gradient, gemm, out, start, stop):
    """Add the products of all messages with the new ones, times the curvature, and with the gradient.

    Shapes: messages (K, N); curvature, gradient (N,); out (K, K - known + 1).
    ``known``: messages before the new ones. ``out``: the gradient's last.
    """
    new = len(messages) - known
    right = np.empty((new + 1, _BLOCK))
    for begin in range(start, stop, _BLOCK):
        size = min(begin + _BLOCK, stop) - begin
        weight, slope = curvature[begin : begin + size], gradient[begin : begin + size]
        for row in range(new):
            own, message = right[row, :size], messages[known + row, begin : begin + size]
            for k in range(size):
                own[k] = weight[k] * message[k]
        for k in range(size):
            right[new, k] = slope[k]
        add_products(gemm, messages, begin, right, 0, size, out)


@kernel
def span_products(messages, vectors, gemm, out, start, stop):
    """Add the products of messages with other vectors, block by block.

    Shapes: messages, vectors (K, N), (w, N); out (K, w).
    """
    for begin in range(start, stop, _BLOCK):
        size = min(begin + _BLOCK, stop) - begin
        add_products(gemm, messages, begin, vectors, begin, size, out)
