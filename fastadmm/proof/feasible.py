r"""Dual vectors that belong to a feasible one: sums over rows that vanish where an intercept is free.

No u of floats sums to exactly zero. Domains here are convex and nearly all contain zero, so entries of the
heavier sign are multiplied by one number below 1; what rounding leaves is taken from them likewise, as real
numbers. So a feasible vector has :math:`|\hat u_i - u_i| \le \varepsilon |u_i|`: the proof is about that one.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fastadmm.problem.problem import Problem
from fastadmm.proof.share import gamma, row_roundings

Array = np.ndarray

#: A sum of less than this share of the absolute sum is at first left to :math:`\varepsilon`: that is cheap.
_LEFT = 1e-10


class Balanced(NamedTuple):
    r"""A dual vector next to a feasible one."""

    u: Array
    eps: float
    cut: float = 0.0  # largest share of an entry that was taken away
    more: float = 0.0  # what else that costs of the gap at a gradient


def balanced(
    problem: Problem, u: Array, own_error: float, engine: Any, exact: bool, sums: tuple[float, float] | None
) -> Balanced:
    r"""A dual vector next to u whose sum is zero but for rounding."""
    if problem.n_outputs > 1:
        return _balanced_classes(problem, u, own_error, engine, exact)
    if not problem.fit_intercept:
        return Balanced(u, 0.0)
    k = row_roundings(engine.all_rows(len(u)), exact)
    excess, size = _sums(u, engine, exact) if exact or sums is None else sums
    if problem.unbounded_below:
        return _inside(problem, u, abs(excess) + gamma(k) * size + own_error, engine)
    heavy = 0.5 * (size + abs(excess))
    if not math.isfinite(size):
        return Balanced(u, math.inf)
    cut = 0.0
    if abs(excess) > (0.0 if exact else _LEFT) * size:
        sign, cut = math.copysign(1.0, excess), min(1.0, abs(excess) / heavy)
        u = engine.each(lambda own: np.where(sign * own > 0.0, (1.0 - cut) * own, own), u)
        excess, size = _sums(u, engine, exact)
        heavy = 0.5 * (size - abs(excess))
    error = abs(excess) + gamma(k) * size + own_error
    return Balanced(u, error / heavy if heavy > 0.0 else 0.0 if size == 0.0 else math.inf, cut)


def _inside(problem: Problem, u: Array, missing: float, engine: Any) -> Balanced:
    r"""A feasible vector where domains leave zero out, of targets beyond [0, 1]: p moves by t p (1 - p).

    What that costs is a Kullback-Leibler divergence, at most :math:`2 t^2 \sum_i s_i p_i (1 - p_i)`.
    """
    s = problem.weight
    share = np.divide(u, s, out=np.zeros_like(u), where=s > 0.0) + problem.y
    room = s * np.maximum(share * (1.0 - share), 0.0)
    total = float(engine.total(room))
    moved = missing / total if total > 0.0 else math.inf
    if not moved < 0.5:
        return Balanced(u, math.inf)
    return Balanced(u, moved * engine.norm(room) / engine.norm(u), 0.0, 2.0 * moved * moved * total)


def _sums(u: Array, engine: Any, exact: bool) -> tuple[float, float]:
    """Sums of u and of its absolute values."""
    if not exact:
        excess, size = engine.total_and_size(u)
        return float(excess), float(size)

    def leaf(rows: tuple[int, int]) -> Array:
        own = u[slice(*rows)]
        return np.array([math.fsum(own), math.fsum(np.abs(own))])

    excess, size = engine.sums(leaf, engine.leaves(len(u)))
    return float(excess), float(size)


def _balanced_classes(problem: Problem, u: Array, own_error: float, engine: Any, exact: bool) -> Balanced:
    r"""A dual vector of several classes, whose entries sum to zero in every row, next to a feasible one.

    The pool :math:`P_{kc}` is the sum of :math:`u_{ik}` over rows of class c: a share of it moves to labels,
    from classes that have too much to others. Where all entries, of W C, move by d in sum, entropies do by at
    most d log(W C / d): Fannes' inequality, then Jensen's.
    """
    n, classes = len(problem.y), problem.n_outputs
    label, rows = problem.y.astype(np.int64), engine.leaves(n)
    held, eps = u.reshape(classes, n).copy(), 2.0 * gamma(classes + 2)
    _leave_to_labels(held, label)
    if not problem.fit_intercept:
        return Balanced(held.ravel(), eps)
    add: Callable[[Array], float] = math.fsum if exact else np.sum

    def pools(values: Array) -> Array:
        def leaf(part: tuple[int, int]) -> Array:
            own = slice(*part)
            return np.array([[add(row[own][label[own] == c]) for c in range(classes)] for row in values])

        return np.array(engine.sums(leaf, rows, size=classes * classes))

    pool = pools(held)
    excess, size, cut = pool.sum(axis=1), float(np.abs(pool).sum()), 0.0
    if not math.isfinite(size):
        return Balanced(u, math.inf)
    if np.abs(excess).max() > (0.0 if exact else _LEFT) * size:
        more, less = np.maximum(excess, 0.0), np.maximum(-excess, 0.0)
        moved = np.outer(more, less / less.sum())
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(moved > 0.0, moved / pool, 0.0)
        # Of a pool that is too small for it nothing is taken: it costs less to count it as left.
        if ((share >= 0.0) & (share <= min(1.0, 1024.0 * np.abs(excess).max() / size))).all():
            cut = float(share.max())
            for c in range(classes):
                held[:, label == c] *= 1.0 - share[:, [c]]
            _leave_to_labels(held, label)
            pool = pools(held)
            excess = pool.sum(axis=1)
    k = row_roundings(engine.all_rows(n), exact)
    left = np.abs(excess).max() + gamma(k + classes) * size + own_error
    others = pool + np.diag(np.full(classes, np.inf))
    # What is left goes through a class with which all share rows; of tiny pools it costs less than its share.
    hub = float(np.minimum(others.min(axis=1), others.min(axis=0)).max())
    moved = 2.0 * classes * left + 1e-300  # half from others, half to labels
    if not left < 0.5 * hub:
        return Balanced(held.ravel(), math.inf)
    most = moved * (math.log(max(problem.total_weight * classes / moved, 1.0)) + 2.0)
    if left / hub * size < most:
        return Balanced(held.ravel(), eps + left / hub, cut)
    return Balanced(held.ravel(), eps + moved / engine.norm(held), cut, most)


def _leave_to_labels(held: Array, label: Array) -> None:
    """Make the label's entry of every row of a vector (C, N) what the others leave, within some roundings."""
    rows = np.arange(len(label))
    held[label, rows] = 0.0
    held[label, rows] = -held.sum(axis=0)
