r"""Exact samples of the discrete Laplace law, from random bits and integers alone.

.. math:: P(k) = \frac{e^{1/t} - 1}{e^{1/t} + 1}\, e^{-|k| / t}, \qquad k \in \mathbb Z.

Algorithms 1 and 2 of Canonne, Kamath and Steinke, *The Discrete Gaussian for
Differential Privacy* (2020), with 64-bit integers: no logarithm is rounded, no
tail is cut, and the low-order bits of an answer are those of the law.
"""

import numpy as np
from fastadmm.kernels.policy import inline, kernel

#: Words that must be left before a sample begins. A sample takes about ten; that it takes more than this
#: has a probability below ``2**-1000``.
RESERVE = 4096


@inline
def _below(words, at, bound):
    """A uniform integer in [0, bound) by rejection, and the position after the words it took."""
    mask = bound - np.uint64(1)
    mask |= mask >> np.uint64(1)
    mask |= mask >> np.uint64(2)
    mask |= mask >> np.uint64(4)
    mask |= mask >> np.uint64(8)
    mask |= mask >> np.uint64(16)
    mask |= mask >> np.uint64(32)
    value = words[at] & mask
    at += 1
    while value >= bound:
        value = words[at] & mask
        at += 1
    return value, at


@inline
def _exponential_coin(words, at, numerator, denominator):
    """True with probability ``exp(-numerator / denominator)``, numerator at most denominator."""
    k = np.uint64(1)
    while True:
        first, at = _below(words, at, denominator)
        if first >= numerator:
            break
        second, at = _below(words, at, k)
        if second != np.uint64(0):
            break
        k += np.uint64(1)
    return k & np.uint64(1) == np.uint64(1), at


@kernel
def discrete_laplace(words, scale, out, start):
    """Fill ``out[start:]`` as far as the random words last.

    Shapes: words (n_words,) of uint64; out (n,) of int64.
    ``words``: independent uniform words; a position is never used twice. ``scale``: t, from 1 to ``2**60``.
    ``out``: receives the samples. ``start``: first entry to fill.
    Returns: entry after the last one filled; call again with new words while it is below ``len(out)``.
    """
    t = np.uint64(scale)
    one = np.uint64(1)
    at = 0
    done = start
    while done < len(out) and at + RESERVE <= len(words):
        inside, at = _below(words, at, t)
        accepted, at = _exponential_coin(words, at, inside, t)
        if not accepted:
            continue
        turns = 0
        while True:
            success, at = _exponential_coin(words, at, one, one)
            if not success:
                break
            turns += 1
        size = np.int64(inside) + np.int64(scale) * turns
        negative = words[at] & one == one
        at += 1
        if negative and size == 0:
            continue
        out[done] = -size if negative else size
        done += 1
    return done
