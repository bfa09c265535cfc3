"""What a model is proved again with: rows, parties, two kinds of numbers, and passes over columns."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from fastadmm.errors import ConfigError

Array = Any


class Numbers:
    """Arithmetic in float64, or of so many digits in arrays of objects."""

    def __init__(self, digits: int = 0) -> None:
        self.digits, self.eps = digits, 2.0**-52 if not digits else 10.0 ** (2 - digits)
        self.exp, self.expm1, self.log, self.log1p, self.sum = np.exp, np.expm1, np.log, np.log1p, math.fsum
        self.of: Callable[[Any], Array] = lambda values: np.asarray(values, dtype=np.float64)
        self.exact: Callable[[float], Any] = Fraction
        if digits:
            try:
                import mpmath as mp
            except ImportError:
                raise ConfigError("--digits: mpmath is not installed: pip install mpmath") from None

            mp.mp.dps = digits
            each = [np.frompyfunc(f, 1, 1) for f in (mp.exp, mp.expm1, mp.log, mp.log1p, mp.mpf)]
            self.exp, self.expm1, self.log, self.log1p, self.of = each
            self.sum, self.exact = mp.fsum, mp.mpf

    def xlogx(self, p: Array, rest: Array) -> Array:
        """``p log p`` for p and ``rest = 1 - p``, each exact where it is small."""
        near = rest < 0.5
        return p * np.where(near, self.log1p(-np.where(near, rest, 0)), self.log(np.where(p > 0, p, 1)))


@dataclass
class Rows:
    """The loss with its parameter; targets, weights of mean 1 and offsets, of shape (N,)."""

    loss: str
    parameter: float
    y: Array
    weight: Array
    offset: Array


@dataclass
class Columns:
    """A party: weights (d, C), a way to read its rows, and lambda times shares of the norm and the square."""

    weights: Array
    blocks: Callable[[], Iterable[tuple[int, Any]]]
    first: float
    second: float
    low: float = -math.inf
    high: float = math.inf
    radius: float = math.inf
    equations: tuple[Array, Array] | None = None  # A and a of A x = a, of weights on a simplex or affine set
    groups: list[list[int]] | None = None
    bent: tuple[float, float] = (0.0, 1.0)  # lambda and width of log_sum
    factor: float = 1.0  # what training has multiplied the columns by, for a lambda of the party's own
    centre: Array = 0.0
    deviation: Array = 1.0
    far: Array = False  # columns whose centre training has taken away: a thousand deviations from zero
    squares: Array = 1.0  # of the columns, summed; of far ones about their centre


def predictor(rows: Rows, parties: list[Columns], intercept: Array, fitted: bool, num: Numbers) -> Array:
    """The predictor z of shape (C, N); finds centres and deviations of the columns first.

    Shapes: intercept (C,).
    """
    z = np.zeros((len(intercept), len(rows.y))) + num.of(rows.offset)
    moved = [[num.exact(b)] for b in intercept.tolist()]
    for m in parties:
        _describe(m, len(rows.y), fitted)
        for start, block in m.blocks():
            z[:, start : start + block.shape[0]] += (_centred(block, m, num) @ num.of(m.weights)).T
        centre = np.broadcast_to(m.centre, len(m.weights)).tolist()
        for terms, x in zip(moved, m.weights.T.tolist()):
            terms += [num.exact(c) * num.exact(own) for c, own in zip(centre, x) if c]
    shift = [num.sum(terms) if num.digits else float(sum(terms)) for terms in moved]  # exact, then rounded
    return z + np.array(shift)[:, np.newaxis]


def product(m: Columns, u: Array, num: Numbers) -> Array:
    """``D.T u`` of shape (d, C), of centred columns: where u sums to zero that is the same.

    Shapes: u (C, N).
    """
    parts = ((_centred(block, m, num), u[:, at : at + block.shape[0]]) for at, block in m.blocks())
    return sum(block.T @ own.T for block, own in parts)


def _describe(m: Columns, n: int, fitted: bool) -> None:
    """Find the centre of dense columns, and the deviation of all: without intercept, that about zero."""
    if fitted and isinstance(next(iter(m.blocks()))[1], np.ndarray):
        found = [(b.min(axis=0), b.max(axis=0), b.mean(axis=0, dtype=np.float64)) for _, b in m.blocks()]
        low, high, mean = (np.array(part) for part in zip(*found))
        m.centre = np.clip(mean.mean(axis=0), low.min(axis=0), high.max(axis=0)).astype(np.float64)
    first, second = np.zeros(len(m.weights)), np.zeros(len(m.weights))
    for _, block in m.blocks():
        near, share = _centred(block, m, Numbers()), np.full(block.shape[0], 1.0 / n)
        first, second = first + near.T @ share, second + (near * near).T @ share
    m.deviation = np.sqrt(np.maximum(second - first * first * fitted, 0.0))
    m.far = abs(m.centre) > 1000.0 * m.deviation
    level = np.where(m.far, 0.0, m.centre)
    m.squares = n * (second + level * (2.0 * first + level))


def _centred(block: Any, m: Columns, num: Numbers) -> Any:
    if not isinstance(block, np.ndarray):
        return num.of(block.toarray()) if num.digits else block.astype(np.float64)
    return num.of(block) - m.centre if np.any(m.centre) else num.of(block)
