r"""Numbers as whole numbers, so that masks can be added to them and cancel exactly.

A message has one number per row. It lies on a grid of step :math:`2^e`, modulo :math:`2^{64}`: the step is
the finest for which the sum of M numbers within the range cannot wrap, so that every party's rounding is at
most half a step. A scalar is kept whole, modulo :math:`2^{512}`, as a multiple of :math:`2^{-256}`: sums of
scalars are exact, whatever their sizes. Parties saturate what is out of range before it comes here, since a
party that refused would tell about its own number.
"""

import math
from collections.abc import Sequence

import numpy as np

#: A sum on the grid stays below 2^62 in size: far from where it would change its sign.
_BITS = 62

#: Bytes of one scalar, and the exponent of its unit.
WHOLE_BYTES, _FINEST = 64, 256

#: Stands for infinity in a sum of parts of a gap: from here on it says that nothing is proved.
UNPROVED = 1e60

#: Modulus of scalars.
_MODULUS = 1 << (8 * WHOLE_BYTES)

#: Scalars reach so far on either side of zero.
LARGEST_WHOLE = 2.0**240


def grid_step(reach: float, n_parties: int) -> float:
    """Step of the grid for messages of M parties."""
    return math.ldexp(1.0, max(-1000, math.ceil(math.log2(max(reach * n_parties, 2.0**-900))) - _BITS))


def grid_limit(step: float, n_parties: int) -> float:
    """Largest size of a number on the grid for which a sum of M of them cannot wrap."""
    return min(2.0**_BITS / n_parties * step, 1e300)


def to_grid(values: np.ndarray, step: float) -> np.ndarray:
    """Numbers as multiples of the step, modulo 2^64. Shapes: values, the result (n,)."""
    return np.rint(values / step).astype(np.int64).view(np.uint64)


def from_grid(words: np.ndarray, step: float) -> np.ndarray:
    """The numbers of a sum on the grid, of shape (n,); rounded as doubles are, nothing else."""
    return step * words.view(np.int64).astype(np.float64)


def to_whole(values: Sequence[float]) -> list[int]:
    """Scalars as whole numbers modulo 2^512."""
    found = []
    for value in values:
        numerator, denominator = float(value).as_integer_ratio()
        found.append(((numerator << _FINEST) // denominator) % _MODULUS)
    return found


def from_whole(sums: Sequence[int]) -> list[float]:
    """Sums of scalars as doubles, each rounded once."""
    signed = [(value + _MODULUS // 2) % _MODULUS - _MODULUS // 2 for value in sums]
    return [value / (1 << _FINEST) for value in signed]
