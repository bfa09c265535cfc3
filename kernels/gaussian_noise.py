r"""Uniform and Gaussian noise from a ChaCha20 keystream, addressed by element.

Element i depends on key, nonce and i alone, so that any cut of the rows into
ranges, on any number of threads, gives the same numbers. No element is drawn
from a library function and nothing is reassociated, so they are also the same
on every machine.

Layout: sixteen keystream blocks (a group, 1 KiB) make 128 elements. With
``i = 128 g + 16 k + lane``, the 64-bit word of element i consists of words 2k
(low half) and 2k + 1 (high half) of block ``16 g + lane``. Gaussian elements
come in pairs, i with even k and i + 16, by Box and Muller's transformation:
the first word is the radius, the second the angle.

A pair (key, nonce) must be used for one function and one purpose only.
"""

import numpy as np
from fastadmm.kernels.chacha import LANES, chacha_group
from fastadmm.kernels.exponential import ROUNDER, ROUNDER_BITS, log_positive
from fastadmm.kernels.policy import inline, kernel

#: A 32-bit block counter times eight elements per block.
MAX_ELEMENTS = 1 << 35

#: Up to here ``scale * normal`` stays below 2**51, where rounding to integers is exact.
MAX_SCALE = float(1 << 47)

_GROUP = 8 * LANES


@inline
def _word(words, k, lane):
    return (np.uint64(words[2 * k + 1, lane]) << np.uint64(32)) | np.uint64(words[2 * k, lane])


@inline
def _radius(word):
    r"""Box-Muller radius :math:`\sqrt{-2 \log u}` for :math:`u = (word + 1/2) / 2^{64}`, at most 9.49."""
    # The power of two is exact, and u is 1 at most.
    u = (np.float64(word) + 0.5) * 5.421010862427522e-20
    return np.sqrt(-2.0 * log_positive(u))


@inline
def _cosine_sine(word):
    r"""Cosine and sine of :math:`2 \pi t` for the 53-bit angle t in [-1/2, 1/2) of a word."""
    t = np.float64(np.int64(word) >> np.int64(11)) * 1.1102230246251565e-16
    shifted = 4.0 * t + ROUNDER
    quadrant = np.float64(shifted).view(np.int64) - ROUNDER_BITS
    x = (t - 0.25 * (shifted - ROUNDER)) * 6.283185307179586
    y = x * x
    # fdlibm's polynomials on [-pi/4, pi/4]
    p = 1.58969099521155010221e-10
    p = p * y - 2.50507602534068634195e-08
    p = p * y + 2.75573137070700676789e-06
    p = p * y - 1.98412698298579493134e-04
    p = p * y + 8.33333333332248946124e-03
    p = p * y - 1.66666666666666324348e-01
    sine = x + x * (y * p)
    p = -1.13596475577881948265e-11
    p = p * y + 2.08757232129817482790e-09
    p = p * y - 2.75573143513906633035e-07
    p = p * y + 2.48015872894767294178e-05
    p = p * y - 1.38888888888741095749e-03
    p = p * y + 4.16666666666666019037e-02
    cosine = 1.0 - (0.5 * y - y * (y * p))
    odd = (quadrant & np.int64(1)) != 0
    a = sine if odd else cosine
    b = cosine if odd else sine
    # quadrants -2, -1, 0, 1, 2: cos is c, s, c, -s, -c with signs -, +, +, -, -; sin has -, -, +, +, -
    a = -a if ((quadrant + np.int64(1)) & np.int64(2)) != 0 else a
    b = -b if (quadrant & np.int64(2)) != 0 else b
    return a, b


@inline
def _normals(key, nonce, group, words, values):
    """The 128 normals of a group."""
    chacha_group(key, nonce, group * LANES, words)
    for k in range(0, 8, 2):
        for lane in range(LANES):
            radius = _radius(_word(words, k, lane))
            cosine, sine = _cosine_sine(_word(words, k + 1, lane))
            values[LANES * k + lane] = radius * cosine
            values[LANES * (k + 1) + lane] = radius * sine


@inline
def _check(end):
    # A wrapped counter would repeat the keystream: noise would cancel.
    if end > MAX_ELEMENTS:
        raise ValueError("more elements than one key and nonce can give (2**35)")


@kernel
def uniform(key, nonce, out, begin, end):
    """Write 53-bit uniforms in [0, 1).

    Shapes: key (8,) of uint32; nonce (3,) of uint32; out (N,).
    ``out``: output; only the rows of the range are written. ``begin``, ``end``: row range; element i depends
    on key, nonce and i alone.
    Raises: ValueError, if ``end`` exceeds 2**35.
    """
    _check(end)
    words = np.empty((16, LANES), np.uint32)
    for group in range(begin // _GROUP, (end + _GROUP - 1) // _GROUP):
        chacha_group(key, nonce, group * LANES, words)
        first = group * _GROUP
        for k in range(8):
            offset = first + LANES * k
            for i in range(max(offset, begin), min(offset + LANES, end)):
                out[i] = np.float64(_word(words, k, i - offset) >> np.uint64(11)) * 1.1102230246251565e-16


@kernel
def grid_normal(key, nonce, scale, out, begin, end):
    r"""Write ``rint(scale * normal)`` for standard normals.

    Their radius has 64 bits, cut at 9.49 standard deviations, and their angle 53. On a
    grid of width g, with ``scale = sigma / g``, no low-order bits of the noise exist that
    could betray what it was added to.

    Shapes: out (N,) of int64.
    ``scale``: standard deviation in grid units, from 0 to 2**47. ``out``: output; only the rows of the range
    are written. Others as in :func:`uniform`.
    Raises: ValueError, if scale is outside its range or NaN, or ``end`` exceeds 2**35.
    """
    _check(end)
    if not 0.0 <= scale <= MAX_SCALE:
        raise ValueError("scale must lie between 0 and 2**47")
    words = np.empty((16, LANES), np.uint32)
    values = np.empty(_GROUP)
    for group in range(begin // _GROUP, (end + _GROUP - 1) // _GROUP):
        _normals(key, nonce, group, words, values)
        first = group * _GROUP
        for i in range(max(first, begin), min(first + _GROUP, end)):
            out[i] = np.float64(scale * values[i - first] + ROUNDER).view(np.int64) - ROUNDER_BITS
