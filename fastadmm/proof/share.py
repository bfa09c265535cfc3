r"""One party's part of the proof: what its weights and its image of the dual vector add to the gap.

With :math:`q = -D_m^\top u` it is :math:`h_m(x_m) + h_m^*(q) - \langle q, x_m\rangle \ge 0`, bounded from
above for every q that rounding allows.

A sum of products that goes through at most k roundings, in whatever order, is off by at most
:math:`\gamma_k \sum_i |a_i b_i|` with :math:`\gamma_k = k u / (1 - k u)` and :math:`u = 2^{-53}`
(Higham, *Accuracy and Stability of Numerical Algorithms*, section 3.1).
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fastadmm.blocks.block import FeatureBlock
from fastadmm.blocks.tiles import leaf_terms
from fastadmm.problem.penalty import PartyPenalty

Array = np.ndarray

#: A scaled dual vector stays inside by this much: the product by the scale is rounded.
_INSIDE = 1.0 - 2.0**-40


class Share(NamedTuple):
    r"""Numbers of one party, summed scaling; its part of the gap is a convex function of the scale."""

    penalty: float  # h_m(x_m)
    inner: float  # <q, x_m>
    inner_error: float  # how far that can be from the exact one
    weighed: float  # sum of |x_j| |D_j|, at least
    scale: float  # largest one up to 1 for which the conjugate at scale times q is finite
    at_scale: float  # upper bound of the part there
    at_zero: float = math.inf  # and at zero
    free: float = 0.0  # largest scale at which the conjugate is zero; 0 where there is none
    at_free: float = math.inf
    within: float = math.inf  # of the part at scale 1 among bounded models; infinite if the model is none
    rounding: float = 0.0  # what of at_scale is rounding, or of within where that is finite

    def at(self, scale: float, free: bool = False) -> float:
        """Upper bound of the part of the gap at a scale of at most :attr:`scale`, or :attr:`free`."""
        largest, there = (self.free, self.at_free) if free else (self.scale, self.at_scale)
        if scale == largest:
            return there
        share = scale / largest
        return share * there + (1.0 - share) * self.at_zero


def party_share(
    block: FeatureBlock,
    penalty: PartyPenalty,
    x: Array,
    dual: tuple[Array, float, float],
    bounded: tuple[Array, float] | None,
    engine: Any,
    exact: bool = False,
    slack: float = 0.0,
    by_norms: bool = False,
) -> Share:
    r"""What a party says of its weights and a dual vector."""
    u, norm, eps = dual
    vectors = u.reshape(-1, block.shape[0])
    if exact:
        images = np.array([block.compensated(v, engine) for v in vectors])
    elif len(vectors) == 1:
        images = block.transposed_product(vectors[0], engine)[None]
    else:
        images = block.transposed_matrix_product(vectors, engine)
    lengths = block.column_lengths(exact, engine)
    error = (gamma(image_roundings(block, exact, len(vectors)) + slack) + eps) * norm * lengths
    each = [x] if len(vectors) == 1 else x.T
    if penalty.is_ridge:
        parts = [_of_ridge(penalty.strength, own, -image, error, lengths) for own, image in zip(each, images)]
        return parts[0] if len(parts) == 1 else _added(parts)
    if not all(map(penalty.constraint.contains, each)):
        return Share(math.inf, 0.0, math.inf, 0.0, 0.0, math.inf)
    if by_norms and penalty.radial:
        parts = [_by_norms(penalty, own, -image, error, lengths) for own, image in zip(each, images)]
    else:
        given = error, lengths, bounded, exact
        parts = [_of_class(penalty, own, -image, *given) for own, image in zip(each, images)]
    return parts[0] if len(parts) == 1 else _added(parts)


def _of_class(
    penalty: PartyPenalty,
    x: Array,
    q: Array,
    error: Any,
    lengths: Any,
    bounded: tuple[Array, float] | None,
    exact: bool,
) -> Share:
    """The share of one class's weights; all arrays of shape (d,)."""
    size, value, inner, small = np.abs(x), penalty.value(x), float(q @ x), gamma(len(x) + 20)
    inner_error = float((error * size).sum()) + small * float(np.abs(q) @ size)
    weighed = float((lengths * size).sum()) * (1.0 + small)
    scale = inside(penalty.largest_scale(penalty.pushed(q, error)))
    free = inside(penalty.free_scale(q, error))
    part = penalty.gap_at(x, scale * q, scale * error) if scale > 0.0 else math.inf
    rounding = part - penalty.gap_at(x, scale * q, 0.0) if exact and math.isfinite(part) else 0.0
    within = part if bounded is not None else math.inf
    if bounded is not None and scale < 1.0:
        within = penalty.gap_within(x, q, error, *bounded)
        exactly = penalty.gap_within(x, q, 0.0, *bounded) if exact else within
        rounding = within - exactly if math.isfinite(within) else 0.0
    zero, at_free = penalty.gap_at(x, 0.0 * q, 0.0), _at_free(value * (1.0 + small), inner, inner_error, free)
    return Share(value, inner, inner_error, weighed, scale, part, zero, free, at_free, within, rounding)


def _of_ridge(strength: float, x: Array, q: Array, error: Any, lengths: Any) -> Share:
    """The share of one class under squared l2, of norms alone: one square, in which nothing cancels."""
    off, length = (
        v * math.sqrt(len(x)) if isinstance(v, float) else math.sqrt(v @ v) for v in (error, lengths)
    )
    few, size, pull, inner = gamma(len(x) + 20), math.sqrt(x @ x), math.sqrt(q @ q), float(q @ x)
    apart = q - strength * x
    left = math.sqrt(apart @ apart) + few * (pull + strength * size)
    part, least = ((left + more) ** 2 / (2.0 * strength) * (1.0 + few) for more in (off, 0.0))
    inner_error, value = (off + few * pull) * size, 0.5 * strength * size * size
    return Share(value, inner, inner_error, length * size, 1.0, part, rounding=part - least)


def _by_norms(penalty: PartyPenalty, x: Array, q: Array, error: Array, lengths: Array) -> Share:
    """The share of one class under a radial penalty, by Cauchy-Schwarz; all arrays of shape (d,)."""
    size, pull, off = (float(np.linalg.norm(v)) for v in (x, q, error))
    few = gamma(len(x) + 20)
    value, inner = penalty.value(x) * (1.0 + few), float(q @ x)
    farthest = q * (1.0 + off / pull) if pull > 0.0 else np.full(len(x), off / math.sqrt(len(x)))
    scale, free = (inside(own) for own in (penalty.largest_scale(farthest), penalty.free_scale(farthest)))
    most = penalty.gap_by_norms(x, q, off, scale) if scale > 0.0 else math.inf
    rounding = most - penalty.gap_by_norms(x, q, 0.0, scale) if math.isfinite(most) else 0.0
    inner_error = off * size + few * pull * size
    weighed = float(np.linalg.norm(lengths)) * size * (1.0 + few)
    least, at_free = penalty.gap_by_norms(x, q, 0.0, 0.0), _at_free(value, inner, inner_error, free)
    told = value, inner, inner_error, weighed, scale, most, least, free, at_free
    return Share(*told, rounding=max(rounding, 0.0))


def inside(scale: float) -> float:
    """A scale with room for the rounding of the product by it."""
    return scale if scale == 1.0 else scale * _INSIDE


def _at_free(value: float, inner: float, inner_error: float, free: float) -> float:
    """The part of the gap at a scale at which the conjugate is zero."""
    return max(value - free * inner, 0.0) + free * inner_error


def _added(parts: Sequence[Share]) -> Share:
    """The share of all classes, at the smallest of their scales."""
    scale, free = min(part.scale for part in parts), min(part.free for part in parts)
    at_scale = sum(part.at(scale) for part in parts) if scale > 0.0 else math.inf
    at_free = sum(part.at(free, free=True) for part in parts) if free > 0.0 else math.inf
    of_all = Share(*map(sum, zip(*parts)))
    return of_all._replace(scale=scale, at_scale=at_scale, free=free, at_free=at_free)


#: Half the distance from 1 to the next double: the largest relative error of one operation.
UNIT = 2.0**-53


def gamma(k: float) -> float:
    r""":math:`\gamma_k`, for k roundings."""
    return k * UNIT / (1.0 - k * UNIT)


def row_roundings(n_rows: int, exact: bool = False) -> float:
    """Roundings of a term of a sum over all rows: in its leaf, unless that is exact, and in the tree."""
    rows, levels = leaf_terms(n_rows)
    return levels + (3.0 if exact else rows + 3.0)


def image_roundings(block: FeatureBlock, compensated: bool, together: int = 1) -> float:
    """Roundings of ``D.T u``, relative to the norms of column and vector, of so many vectors at once."""
    n, d = block.whole_shape
    rows, levels = leaf_terms(n, block.density * n * d, float(together * d))
    return levels + 3.0 + (rows * rows * UNIT if compensated else rows)
