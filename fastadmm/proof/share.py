r"""One party's part of the proof: what its weights and its image of the dual vector add to the gap.

With :math:`q = -D_m^\top u` it is :math:`h_m(x_m) + h_m^*(q) - \langle q, x_m\rangle \ge 0`, bounded from
above for every q that rounding allows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fastadmm.blocks.block import FeatureBlock
from fastadmm.problem.penalty import PartyPenalty
from fastadmm.proof.rounding import column_lengths, gamma, image_roundings

__all__ = ["Share", "party_share"]

Array = np.ndarray

#: A scaled dual vector stays inside by this much: the product by the scale is rounded.
_INSIDE = 1.0 - 2.0**-40


class Share(NamedTuple):
    r"""Numbers of one party, summed scaling.

    Attributes
    ----------
    penalty : float
        :math:`h_m(x_m)`.
    inner, inner_error : float
        :math:`\langle q, x_m\rangle`, and how far it can be from the exact one.
    weighed : float
        :math:`\sum_j |x_j| \|D_j\|`, at least.
    scale : float
        Largest :math:`\alpha \le 1` for which :math:`h_m^*(\alpha q)` is finite.
    at_scale, at_zero : float
        Upper bounds of the party's part of the gap at that scale, and at zero: it is convex in between.
    free, at_free : float
        Largest scale at which the conjugate is zero, and the part there; 0 where there is none.
    within : float
        Upper bound of the part at scale 1 among bounded models; infinite where the model is none of them.
    rounding : float
        What of ``at_scale`` is rounding, or of ``within`` where that is finite.
    """

    penalty: float
    inner: float
    inner_error: float
    weighed: float
    scale: float
    at_scale: float
    at_zero: float = math.inf
    free: float = 0.0
    at_free: float = math.inf
    within: float = math.inf
    rounding: float = 0.0

    def at(self, scale: float) -> float:
        """Upper bound of the part of the gap at a scale of at most :attr:`scale`."""
        if scale == self.scale:
            return self.at_scale
        share = scale / self.scale
        return share * self.at_scale + (1.0 - share) * self.at_zero

    def at_free_scale(self, scale: float) -> float:
        """The same at a scale of at most :attr:`free`."""
        share = scale / self.free
        return share * self.at_free + (1.0 - share) * self.at_zero


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
    r"""What a party says of its weights and a dual vector.

    Parameters
    ----------
    block : FeatureBlock of shape (N, d)
    penalty : PartyPenalty
        Summed scaling: of strength :math:`\lambda W`.
    x : ndarray of shape (d,) or (d, C)
        Weights.
    dual : (ndarray of shape (N,) or (C N,), float, float)
        Dual vector, class-major; its norm; how far it is from a feasible one, as a share of the norm.
    bounded : (ndarray of shape (d,), float) or None
        Deviations of the columns, and R, where nothing else bounds the weights.
    engine : Engine
    exact : bool
        Whether no pass is spared.
    slack : float
        Roundings that the entries of the block have gone through.
    by_norms : bool
        Whether a radial penalty's share is of norms alone, a function of :math:`D D^\top`: elsewhere it must
        not say more of columns than other answers do. ``bounded`` does not count then.
    """
    u, norm, eps = dual
    vectors = u.reshape(-1, block.shape[0])
    if exact:
        images = np.array([block.compensated(v, engine) for v in vectors])
    elif len(vectors) == 1:
        images = block.transposed_product(vectors[0], engine)[None]
    else:
        images = block.transposed_matrix_product(vectors, engine)
    lengths = column_lengths(block, exact, engine)
    error = (gamma(image_roundings(block, exact) + slack) + eps) * norm * lengths
    each = [x] if len(vectors) == 1 else x.T
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
    if not penalty.contains(x):
        return Share(math.inf, 0.0, 0.0, 0.0, 0.0, math.inf)
    size, value, inner, small = np.abs(x), penalty.value(x), float(q @ x), gamma(len(x) + 20)
    inner_error = float((error * size).sum()) + small * float(np.abs(q) @ size)
    weighed = float((lengths * size).sum()) * (1.0 + small)
    if penalty.is_ridge:
        part = penalty.gap_at(x, q, error)
        rounding = part - penalty.gap_at(x, q, 0.0) if exact else 0.0
        return Share(value, inner, inner_error, weighed, 1.0, part, rounding=rounding)
    pull = penalty.pushed(q, error)
    scale, free = penalty.largest_scale(pull), penalty.free_scale(pull)
    scale, free = (own if own == 1.0 else own * _INSIDE for own in (scale, free))
    part = penalty.gap_at(x, scale * q, scale * error) if scale > 0.0 else math.inf
    rounding = part - penalty.gap_at(x, scale * q, 0.0) if exact and math.isfinite(part) else 0.0
    within = math.inf
    if bounded is not None and scale < 1.0:
        within = _within(value, penalty, x, pull, inner, error, *bounded)
        exactly = _within(value, penalty, x, q, inner, 0.0, *bounded) if exact else within
        rounding = within - exactly if math.isfinite(within) else 0.0
    return Share(
        value,
        inner,
        inner_error,
        weighed,
        scale,
        part,
        penalty.gap_at(x, np.zeros_like(q), 0.0),
        free,
        max(value * (1.0 + small) - free * inner, 0.0) + free * inner_error,
        part if bounded is not None and scale == 1.0 else within,
        rounding,
    )


def _by_norms(penalty: PartyPenalty, x: Array, q: Array, error: Array, lengths: Array) -> Share:
    """The share of one class under a radial penalty, by Cauchy-Schwarz; all arrays of shape (d,)."""
    if not penalty.contains(x):
        return Share(math.inf, 0.0, 0.0, 0.0, 0.0, math.inf)
    size, pull, off = (float(np.linalg.norm(v)) for v in (x, q, error))
    value, inner, few = penalty.value(x), float(q @ x), gamma(len(x) + 20)
    farthest = q * (1.0 + off / pull) if pull > 0.0 else np.full(len(x), off / math.sqrt(len(x)))
    scale, free = penalty.largest_scale(farthest), penalty.free_scale(farthest)
    scale, free = (own if own == 1.0 else own * _INSIDE for own in (scale, free))

    def part(at: float, farthest: Array, off: float) -> float:
        if penalty.is_ridge:
            strength = penalty.strength
            left = float(np.linalg.norm(q - strength * x)) + off + few * (pull + strength * size)
            return left * left / (2.0 * strength) * (1.0 + few)
        conjugate = penalty.conjugate(at * farthest)
        total = value + conjugate - at * inner + at * off * size
        return max(total, 0.0) + 2.0 * few * (value + abs(conjugate) + at * pull * size)

    inner_error = off * size + few * pull * size
    least, most = part(0.0, farthest, 0.0), part(scale, farthest, off) if scale > 0.0 else math.inf
    at_free = max(value * (1.0 + few) - free * inner, 0.0) + free * inner_error
    rounding = most - part(scale, q, 0.0) if math.isfinite(most) else 0.0
    weighed = float(np.linalg.norm(lengths)) * size * (1.0 + few)
    told = value, inner, inner_error, weighed, scale, most, least, free, at_free
    return Share(*told, rounding=max(rounding, 0.0))


def _within(
    value: float,
    penalty: PartyPenalty,
    x: Array,
    pull: Array,
    inner: float,
    error: Any,
    deviations: Array,
    reach: float,
) -> float:
    """The part of the gap among models in which ``|x_j|`` is at most R over the column's deviation."""
    moves = deviations > 0.0  # a column of zeros has an image of exactly zero, whatever its weight
    if (np.abs(x) * deviations > reach).any() or (~moves & (np.abs(pull) > 0.0)).any():
        return math.inf
    most = penalty.excess(np.where(moves, pull, 0.0), np.where(moves, deviations, 1.0)) * reach
    more = 1.0 + gamma(len(x) + 20)
    return max((value + most) * more - inner, 0.0) + float((error * np.abs(x)).sum())


def _added(parts: Sequence[Share]) -> Share:
    """The share of all classes, at the smallest of their scales."""
    scale, free = min(part.scale for part in parts), min(part.free for part in parts)
    sums = {
        name: sum(getattr(part, name) for part in parts)
        for name in ("penalty", "inner", "inner_error", "weighed", "at_zero", "rounding", "within")
    }
    return Share(
        **sums,
        scale=scale,
        at_scale=sum(part.at(scale) for part in parts) if scale > 0.0 else math.inf,
        free=free,
        at_free=sum(part.at_free_scale(free) for part in parts) if free > 0.0 else math.inf,
    )
