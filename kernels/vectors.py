"""Sums of vectors row by row, and over rows."""

from __future__ import annotations

import numpy as np
from fastadmm.kernels.policy import kernel

__all__ = ["raise_to", "shifted_sum", "square_root", "total_and_size"]

#: Sums side by side, so that neighbouring rows are added in one instruction. A power of two.
_LANES = 64


@kernel
def shifted_sum(first, second, shift, out, start, stop):
    """Write ``first + second + shift``, added in this order.

    Parameters
    ----------
    first, second, out : ndarray of shape (N,)
    shift : float
    start, stop : int
        Row range.
    """
    one, other, own = first[start:stop], second[start:stop], out[start:stop]
    for k in range(stop - start):
        own[k] = one[k] + other[k] + shift


@kernel
def square_root(v, out, start, stop):
    """Write the square roots of v, of shape (N,)."""
    given, own = v[start:stop], out[start:stop]
    for k in range(stop - start):
        own[k] = np.sqrt(given[k])


@kernel
def raise_to(v, least, start, stop):
    """Raise the numbers of v, of shape (N,), that are less than ``least``."""
    own = v[start:stop]
    for k in range(stop - start):
        own[k] = max(own[k], least)


@kernel
def total_and_size(v, out, start, stop):
    """Add the sum of a vector's numbers, and that of their absolute values, to two sums.

    Parameters
    ----------
    v : ndarray of shape (N,)
    out : ndarray of shape (2,)
    start, stop : int
        Row range.
    """
    total, size = np.zeros(_LANES), np.zeros(_LANES)
    for begin in range(start, stop, _LANES):
        own = v[begin : min(begin + _LANES, stop)]
        for k in range(len(own)):
            total[k] += own[k]
            size[k] += abs(own[k])
    width = _LANES // 2
    while width > 0:
        for k in range(width):
            total[k] += total[k + width]
            size[k] += size[k + width]
        width //= 2
    out[0] += total[0]
    out[1] += size[0]
