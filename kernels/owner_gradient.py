r"""Sums of per-record gradients, each bounded before it is added, by an owner of rows.

For a record (x, y), parameters theta and an optional constant coordinate,

.. math:: u = [\min(1, R / \|x\|)\, x,\; 1], \qquad g = \ell'(u^\top\theta, y)\, u,
          \qquad \bar g = \min(1, \Xi / \|g\|)\, g,

with the l1 or the l2 norm. Each coordinate of the bounded gradient is rounded to
a multiple of ``unit`` before it is added. With a unit that is a power of two and
sums below ``2**53`` units, floating-point addition is *exact*: the sum does not
depend on the order of the rows, on the number of threads or on how the rows are
read, and replacing one record changes it by at most twice the bound, with no
allowance for accumulated rounding.

And exact samples of the discrete Laplace law, from random bits and integers alone:

.. math:: P(k) = \frac{e^{1/t} - 1}{e^{1/t} + 1}\, e^{-|k| / t}, \qquad k \in \mathbb Z.

Algorithms 1 and 2 of Canonne, Kamath and Steinke, *The Discrete Gaussian for
Differential Privacy* (2020), with 64-bit integers: no logarithm is rounded, no
tail is cut, and the low-order bits of an answer are those of the law.
"""

import math

import numpy as np
from fastadmm.kernels.exponential import exp_nonpositive
from fastadmm.kernels.policy import inline, kernel, spliced

#: Codes of the losses.
SQUARED, HINGE, LOGISTIC = 0, 1, 2

#: Adding and subtracting this many units rounds to the nearest unit.
_ROUNDER = 1.5 * 2.0**52


@inline
def owner_slope(code, z, y):
    """Derivative in z of the loss: squared ``(z - y)**2 / 2``, hinge, logistic (labels -1 and 1).

    At the hinge's kink it is 0, always: a subgradient must not be chosen at random or by the data.
    """
    if code == 0:
        return z - y
    margin = y * z
    if code == 1:
        return -y if margin < 1.0 else 0.0
    e = exp_nonpositive(-abs(margin))
    tail = e / (1.0 + e)
    return -y * (tail if margin >= 0.0 else 1.0 - tail)


@inline
def _bounded(slope, norm, limit):
    """The slope after scaling the record's gradient, of norm ``|slope| * norm``, to the limit."""
    size = abs(slope) * norm
    # An overflow must not become a NaN in the answer, which would tell that the record is there.
    if not size < math.inf:
        return 0.0
    return slope * (limit / size) if size > limit else slope


@inline
def _dense_sums(matrix, i, theta, euclidean):
    """Product of a row with theta, and its norm (l1) or the square of that (l2)."""
    z, part = 0.0, 0.0
    for j in range(matrix.shape[1]):
        z += matrix[i, j] * theta[j]
        part += matrix[i, j] * matrix[i, j] if euclidean else abs(matrix[i, j])
    return z, part


@inline
def _add_dense(matrix, i, factor, magic, out):
    for j in range(matrix.shape[1]):
        out[j] += (factor * matrix[i, j] + magic) - magic


@inline
def _csr_sums(rows, i, theta, euclidean):
    indptr, indices, data = rows
    z, part = 0.0, 0.0
    for k in range(indptr[i], indptr[i + 1]):
        z += data[k] * theta[indices[k]]
        part += data[k] * data[k] if euclidean else abs(data[k])
    return z, part


@inline
def _add_csr(rows, i, factor, magic, out):
    indptr, indices, data = rows
    for k in range(indptr[i], indptr[i + 1]):
        out[indices[k]] += (factor * data[k] + magic) - magic


@spliced
def _gradient(sums, add, rows, y, theta, asked, out, start, stop):
    code, intercept, euclidean, row_limit, target_limit, limit, unit = asked
    magic = _ROUNDER * unit
    for i in range(start, stop):
        z, part = sums(rows, i, theta, euclidean)
        length = math.sqrt(part) if euclidean else part
        scale = row_limit / length if length > row_limit else 1.0  # brings the row into the ball
        z *= scale
        if intercept:
            z += theta[-1]
        target = min(max(y[i], -target_limit), target_limit)
        norm = math.sqrt(part * scale * scale + intercept) if euclidean else part * scale + intercept
        slope = _bounded(owner_slope(code, z, target), norm, limit)
        if slope != 0.0:
            add(rows, i, slope * scale, magic, out)
            if intercept:
                out[-1] += (slope + magic) - magic


@kernel
def owner_dense_gradient(rows, y, theta, asked, out, start, stop):
    """Add the bounded gradients of a range of rows to ``out``.

    Shapes: rows (n, d); y (n,); theta (d,) or (d + 1,); out (d,) or (d + 1,).
    ``rows``: features. ``y``: targets; -1 and 1 for hinge and logistic. ``theta``: parameters; the last one
    is the constant's, where there is one. ``asked``: code of the loss; 1 for a constant coordinate, else 0;
    whether norms are l2 instead of l1; R, the bound on the absolute target and that on each record's
    gradient, infinite for none; and the power of two to whose multiples contributions are rounded, 0 for no
    rounding. ``out``: sums, added to.
    """
    _gradient(_dense_sums, _add_dense, rows, y, theta, asked, out, start, stop)


@kernel
def owner_csr_gradient(rows, y, theta, asked, out, start, stop):
    """As :func:`owner_dense_gradient`, where ``rows`` are ``indptr``, ``indices`` and ``data``."""
    _gradient(_csr_sums, _add_csr, rows, y, theta, asked, out, start, stop)


#: Words that must be left before a sample begins. A sample takes about ten; that it takes more than this
#: has a probability below ``2**-1000``.
RESERVE = 4096


@inline
def _below(words, at, bound):
    """A uniform integer in [0, bound) by rejection, and the position after the words it took."""
    mask = bound - np.uint64(1)
    for shift in (1, 2, 4, 8, 16, 32):
        mask |= mask >> np.uint64(shift)
    while True:
        value = words[at] & mask
        at += 1
        if value < bound:
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
