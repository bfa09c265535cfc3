"""Bins of a column that separate two classes, and how much of it is more than luck.

Bins are splits of a small tree, pooled until rates rise or fall. Each row also gets the weight of evidence
that the other folds give its cell: rows that chose neither bins nor weights say what a column is worth.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

Array = np.ndarray

#: How rates of class 1 may go from bin to bin; "auto": rising or falling, whichever separates better.
MONOTONE = ("auto", "rising", "falling", "none")

#: What an empty cell counts as, in rows, so that its logarithm exists.
_EMPTY = 0.5

#: Parts of the rows: four fifths choose bins and weights, the last fifth tells what they are worth.
_FOLDS = 5

#: A gain below this share of the rows is rounding.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Rules:
    """How a column is binned; the defaults are those of the command line."""

    most: int = 6  # largest number of bins of a column, without that of missing cells
    share: float = 0.05  # of the rows that each bin has at least
    least: float = 5.0  # rows of each class that a bin has at least
    monotone: str = "auto"  # how the rate of class 1 goes along a column of numbers
    edges: tuple[float, ...] | None = None  # of numbers, if the bins are given
    groups: tuple[int, ...] | None = None  # bin of each category, if the bins are given

    @property
    def given(self) -> bool:
        """Whether the bins are given."""
        return self.edges is not None or self.groups is not None


@dataclass(frozen=True)
class Cells:
    """The rows of a column as codes of its distinct cells; the last code is that of missing ones.

    Shapes: codes (N,), numbers (n_levels,).
    """

    codes: Array
    n_levels: int
    numbers: Array | None = None  # distinct ones, ascending; None of categories

    @classmethod
    def of_numbers(cls, values: Array, absent: Array) -> Cells:
        """Ranks of numbers, in double precision. Shapes: values, absent (N,)."""
        numbers, at = np.unique(values[~absent], return_inverse=True)
        codes = np.full(len(values), len(numbers))
        codes[~absent] = at
        return cls(codes, len(numbers), numbers)


@dataclass(frozen=True)
class Fitted:
    """Bins of a column, and its rows' weights of evidence by bins of the other folds.

    Shapes: edges (K - 1,), groups (n_levels,), events, others, woe (K + 1,), feature (N,).
    """

    edges: Array
    groups: Array  # bin of each level
    events: Array
    others: Array
    woe: Array
    iv: float  # of the rows that chose the bins
    feature: Array
    iv_cross: float  # of rows that did not
    luck: float  # what iv_cross reaches without any signal
    small: bool = False  # whether its bins have fewer rows than the rules ask for, as no others part classes

    def worth(self, least: float) -> bool:
        """Whether rows that did not choose the bins say that the column separates the classes."""
        return self.iv_cross >= least and self.iv_cross > self.luck


def fit_bins(cells: Cells, target: Array, weight: Array, rules: Rules) -> Fitted:
    """Bins of all rows; weights of evidence and information value of each fifth by bins of the others.

    Shapes: target, weight (N,).
    """
    found = _fit(cells, target, weight, rules)
    if len(found.woe) > 2 or rules.given:
        return found
    free = _fit(cells, target, weight, replace(rules, most=2, share=0.0, least=0.0))
    return replace(free, small=True) if len(free.woe) > 2 and free.worth(0.0) else found


def _fit(cells: Cells, target: Array, weight: Array, rules: Rules) -> Fitted:
    found, feature, fold = _weighed(cells, target, weight, rules), np.empty(len(target)), _folds(target)
    for k in range(_FOLDS):
        own = fold == k
        of_rest = _weighed(cells, target, np.where(own, 0.0, weight), rules)
        feature[own] = of_rest["woe"][of_rest["groups"][cells.codes[own]]]
    iv = information_value(found["events"], found["others"], found["woe"])
    iv_cross, luck = parting(feature, target, weight, cells.n_levels if cells.numbers is None else 0)
    groups = found.pop("groups")[:-1]
    return Fitted(**found, groups=groups, iv=iv, feature=feature, iv_cross=iv_cross, luck=luck)


def parting(feature: Array, target: Array, weight: Array, n_levels: int) -> tuple[float, float]:
    """Mean of weights of evidence in class 0 less that in class 1, and what of it may be luck.

    Of rows that chose the bins it is the information value. Luck is two standard errors; of more than seven
    categories as many as the largest of so many normal draws has deviations.

    Shapes: feature, target, weight (N,).
    """
    ones, zeros = weight * target, weight * (1.0 - target)
    n, m = ones.sum(), zeros.sum()
    if not (n > 0.0 and m > 0.0):
        return 0.0, 0.0
    above, below = (zeros * feature).sum() / m, (ones * feature).sum() / n
    own = zeros * (feature - above) / m - ones * (feature - below) / n
    deviations = max(2.0, np.sqrt(2.0 * np.log(max(n_levels, 1))))
    return float(above - below), float(deviations * np.sqrt((own * own).sum()))


def evidence(events: Array, others: Array) -> Array:
    """Weight of evidence of bins: ln(q / p) of their shares of class 0 and class 1.

    Returns: 0 of a bin without rows, and where labels say nothing.
    Shapes: events, others, the result (K,).
    """
    p, q = _shares(events, others)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(p > 0.0, np.log(q / p), 0.0)


def information_value(events: Array, others: Array, woe: Array | None = None) -> float:
    """Information value of a binned column: Σ (p - q) ln(p / q) of the classes' shares in its bins."""
    p, q = _shares(events, others)
    return float((q - p) @ (evidence(events, others) if woe is None else woe))


def _shares(events: Array, others: Array) -> Iterator[Array]:
    used = (events != 0.0) | (others != 0.0)
    held = (np.where(used, np.maximum(cells, _EMPTY), 0.0) for cells in (events, others))
    return (cells / max(cells.sum(), _EMPTY) for cells in held)


def _folds(target: Array) -> Array:
    """Fold of each row: each has the same share of both classes, whatever the order of the rows.

    Shapes: target, the result (N,).
    """
    # This generator's stream is frozen: the same folds with every release of numpy.
    order = np.random.RandomState(0).permutation(len(target))
    fold = np.empty(len(target), dtype=np.intp)
    for value in np.unique(target):
        own = order[target[order] == value]
        fold[own] = np.arange(len(own)) % _FOLDS
    return fold


def _weighed(cells: Cells, target: Array, weight: Array, rules: Rules) -> dict[str, Any]:
    """Bin of each level and of missing cells, edges, and events, others, weight of evidence of each bin."""
    n, numbers, edges = cells.n_levels, cells.numbers, np.empty(0)
    total = np.bincount(cells.codes, weight, minlength=n + 1)
    events = np.bincount(cells.codes, weight * target, minlength=n + 1)
    if numbers is not None:
        given = None if rules.edges is None else np.array(rules.edges)
        edges = numeric_edges(numbers, events[:-1], total[:-1], rules) if given is None else given
        groups = np.searchsorted(edges, numbers, "left")
    elif rules.groups is None:
        groups = ordered_groups(events[:-1], total[:-1], rules)
    else:
        groups = np.array(rules.groups)
    count = max(len(edges), int(groups.max(initial=0))) + 1
    groups = np.append(groups, count)
    ones, others = (np.bincount(groups, own, minlength=count + 1) for own in (events, total - events))
    woe = evidence(ones, others)
    if min(ones[-1], others[-1]) < rules.least:
        woe[-1] = 0.0  # too few to say anything
    return {"groups": groups, "edges": edges, "events": ones, "others": others, "woe": woe}


def numeric_edges(numbers: Array, events: Array, total: Array, rules: Rules) -> Array:
    """Inner edges of bins of numbers.

    A tree on the column chooses them. Then neighbours that break the order of rates are pooled.

    Shapes: numbers, events, total (n_levels,); the result (K - 1,).
    """
    used = total > 0.0
    numbers, events, total = numbers[used], events[used], total[used]
    cuts = _cuts(events, total, rules)
    if rules.monotone != "none" and len(cuts):
        starts = np.append(0, cuts)
        of_bins, size = np.add.reduceat(events, starts), np.add.reduceat(total, starts)
        ways = {"rising": [1.0], "falling": [-1.0]}.get(rules.monotone, [1.0, -1.0])
        pooled = [_pooled(of_bins, size, way) for way in ways]
        best = pooled[int(np.argmax([_separation(of_bins, size, first) for first in pooled]))]
        cuts = starts[best[1:]]
    low, high = numbers[cuts - 1], numbers[cuts]
    middle = low / 2.0 + high / 2.0
    return np.asarray(np.where((low < middle) & (middle < high), middle, low))


def ordered_groups(events: Array, total: Array, rules: Rules) -> Array:
    """Bins of categories: those with similar rates of class 1 together, the lowest rate first.

    Shapes: events, total, the result (n_levels,).
    """
    # Of rare categories the rate is drawn to that of all rows, as if there were one row more.
    rate = (events + events.sum() / max(total.sum(), _EMPTY)) / (total + 1.0)
    order = np.argsort(rate, kind="stable")
    groups = np.empty(len(order), dtype=np.intp)
    cuts = _cuts(events[order], total[order], rules)
    groups[order] = np.searchsorted(cuts, np.arange(len(order)), "right")
    return groups


def _cuts(events: Array, total: Array, rules: Rules) -> Array:
    """First level of each bin but the first: best splits of a regression tree on ordered levels.

    Shapes: events, total (n_levels,).
    """
    ones, rows = (np.append(0.0, np.cumsum(cells)) for cells in (events, total))
    slack = _ROUNDING * rows[-1]
    fewest = max(rules.share * rows[-1] - slack, slack)

    def split(first: int, end: int) -> tuple[float, int, int, int]:
        """Gain and place of the best split of a range of levels, and the range."""
        found, size = ones[end] - ones[first], rows[end] - rows[first]
        low = max(first + 1, int(np.searchsorted(rows, rows[first] + fewest)))
        high = min(end, int(np.searchsorted(rows, rows[end] - fewest, "right")))
        if low >= high:
            return 0.0, first, first, end
        e, n = ones[low:high] - ones[first], rows[low:high] - rows[first]
        enough = np.minimum.reduce([e, found - e, n - e, size - n - found + e]) >= rules.least - slack
        gain = np.where(enough, (e * size - n * found) ** 2 / (n * (size - n)), 0.0)
        at = int(np.argmax(gain))
        return float(gain[at]) / size, low + at, first, end

    cuts: list[int] = []
    leaves = [split(0, len(total))]
    while leaves and len(cuts) < rules.most - 1:
        gain, cut, first, end = leaves.pop(int(np.argmax([leaf[0] for leaf in leaves])))
        if not gain > slack:
            break
        cuts.append(cut)
        leaves += [split(first, cut), split(cut, end)]
    return np.array(sorted(cuts), dtype=np.intp)


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
