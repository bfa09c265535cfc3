"""Bins of a column that separate two classes: splits of a small tree, pooled until rates rise or fall."""

from __future__ import annotations

import numpy as np

from fastadmm.judging.columns import information_value

__all__ = ["MONOTONE", "evidence", "numeric_edges", "ordered_groups"]

Array = np.ndarray

#: How rates of class 1 may go from bin to bin; "auto": rising or falling, whichever separates better.
MONOTONE = ("auto", "rising", "falling", "none")

#: What an empty cell counts as, in rows, so that its logarithm exists.
_EMPTY = 0.5


def evidence(events: Array, others: Array) -> Array:
    """Weight of evidence of bins: ln(q / p) of their shares of class 0 and class 1.

    Returns: 0 of a bin without rows, and where labels say nothing.
    Shapes: events, others, the result (K,).
    """
    used = (events != 0.0) | (others != 0.0)
    p, q = (np.where(used, np.maximum(cells, _EMPTY), 0.0) for cells in (events, others))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(used, np.log((q / q.sum()) / (p / p.sum())), 0.0)


def numeric_edges(
    values: Array, target: Array, weight: Array, *, most: int, share: float, monotone: str
) -> Array:
    """Inner edges of bins of numbers.

    A regression tree on the column chooses them. Then neighbours that break the order of rates are pooled.

    Shapes: values, target, weight (N,); the result (K - 1,).
    """
    edges = _tree(values, target, weight, most, share)
    if monotone == "none" or not len(edges):
        return edges
    place = np.searchsorted(edges, values, "left")
    events = np.bincount(place, weight * target, minlength=len(edges) + 1)
    total = np.bincount(place, weight, minlength=len(edges) + 1)
    ways = {"rising": [1.0], "falling": [-1.0]}.get(monotone, [1.0, -1.0])
    pooled = [_pooled(events, total, way) for way in ways]
    values_of = [_separation(events, total, starts) for starts in pooled]
    starts = pooled[int(np.argmax(values_of))]
    return np.asarray(edges[np.array(starts[1:], dtype=int) - 1])


def ordered_groups(
    codes: Array, n_levels: int, target: Array, weight: Array, *, most: int, share: float
) -> Array:
    """Bins of categories: those with similar rates of class 1 together, the lowest rate first.

    Shapes: codes (N,); the result (n_levels,).
    """
    total = np.bincount(codes, weight, minlength=n_levels)
    events = np.bincount(codes, weight * target, minlength=n_levels)
    # Of rare categories the rate is drawn to that of all rows, as if there were one row more.
    mean = weight.mean()
    rate = (events + mean * np.average(target, weights=weight)) / (total + mean)
    rank = np.empty(n_levels)
    rank[np.argsort(rate, kind="stable")] = np.arange(n_levels)
    edges = _tree(rank[codes], target, weight, most, share)
    return np.unique(np.searchsorted(edges, rank, "left"), return_inverse=True)[1]


def _tree(values: Array, target: Array, weight: Array, most: int, share: float) -> Array:
    from sklearn.tree import DecisionTreeRegressor

    if most < 2 or values.min() == values.max():
        return np.empty(0)
    tree = DecisionTreeRegressor(max_leaf_nodes=most, min_weight_fraction_leaf=share, random_state=0)
    tree.fit(values[:, np.newaxis], target, sample_weight=weight)
    split = tree.tree_.feature >= 0
    edges = np.unique(tree.tree_.threshold[split])
    # The tree sees single precision: an edge without numbers on both sides separates nothing.
    place = np.searchsorted(edges, np.sort(values), "left")
    return np.asarray(edges[np.isin(np.arange(len(edges)), place) & (edges < values.max())])


def _pooled(events: Array, total: Array, way: float) -> list[int]:
    """First bin of each pool: neighbours are pooled until the rates go one way."""
    pools: list[tuple[int, float, float]] = []
    for k, (found, size) in enumerate(zip(way * events, total, strict=True)):
        start = k
        while pools and pools[-1][1] * size >= found * pools[-1][2]:
            start, more, rest = pools.pop()
            found, size = found + more, size + rest
        pools.append((start, found, size))
    return [start for start, _, _ in pools]


def _separation(events: Array, total: Array, starts: list[int]) -> float:
    own = np.add.reduceat(events, starts)
    return information_value(own, np.add.reduceat(total, starts) - own)
