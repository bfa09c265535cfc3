"""Looks at the question: what a proved optimum may still get wrong, and the option that settles it.

Rows of two classes in the order of their scores give ROC, precision and recall, separation, gain and lift.
"""

from __future__ import annotations

from dataclasses import dataclass
from shlex import quote
from typing import Any

import numpy as np

Array = np.ndarray


@dataclass(frozen=True)
class Ranking:
    """What lies at or above each score, the highest score first; rows of one score stay together.

    Sample weights count like repeated rows. Results do not depend on the order of the rows.

    Shapes: scores, hits, false_alarms (K,).
    """

    scores: Array  # of shape (K,): different scores, falling
    hits: Array  # of shape (K,)
    false_alarms: Array  # of shape (K,)

    @property
    def total(self) -> Array:
        """Summed weight at or above each score. Shapes: the result (K,)."""
        return self.hits + self.false_alarms

    @property
    def rates(self) -> tuple[Array, Array]:
        """False and true positive rate at each score: the ROC curve without its first point, (0, 0).

        Shapes: both results (K,).
        """
        return self.false_alarms / self.false_alarms[-1], self.hits / self.hits[-1]

    def average_precision(self) -> float:
        """Sum of precisions, each times the recall that its score adds; nothing is interpolated."""
        return float((self.hits / self.total) @ np.diff(self.rates[1], prepend=0.0))

    def auc(self) -> float:
        """Area under the ROC curve: ties count half."""
        false, true = (np.r_[0.0, rate] for rate in self.rates)
        return float(np.diff(false) @ (true[1:] + true[:-1]) / 2.0)

    def kolmogorov_smirnov(self) -> tuple[float, float]:
        """Largest distance between the two classes' distributions of scores."""
        false, true = self.rates
        at = int(np.argmax(np.abs(true - false)))
        return float(np.abs(true - false)[at]), float(self.scores[at])

    def groups(self, count: int = 10) -> list[dict[str, float]]:
        """Gain and lift of groups of equal weight, the highest scores first.

        A group that ends within rows of one score takes its share of both classes among them.
        """
        total, positives = self.total, self.hits[-1]
        ends = total[-1] * np.arange(1, count + 1) / count
        found = np.interp(ends, np.r_[0.0, total], np.r_[0.0, self.hits])
        rate, base = np.diff(found, prepend=0.0) / (total[-1] / count), positives / total[-1]
        # Summing weights rounds: an end may be a little beyond the last total.
        at = np.minimum(np.searchsorted(total, ends * (1.0 - 1e-12)), len(total) - 1)
        columns = {
            "share": np.arange(1, count + 1) / count,
            "lowest_score": self.scores[at],
            "rate": rate,
            "lift": rate / base,
            "gain": found / positives,
            "cumulative_lift": found / ends / base,
        }
        rows = zip(*(values.tolist() for values in columns.values()), strict=True)
        return [dict(zip(columns, row, strict=True)) for row in rows]

    def thinned(self, most: int) -> Ranking:
        """Some of the scores, spread over the rows, with the first and the last."""
        if len(self.scores) <= most:
            return self
        total = self.total
        wanted = np.linspace(total[0], total[-1], most)
        kept = np.unique(np.r_[0, np.minimum(np.searchsorted(total, wanted), len(total) - 1)])
        return Ranking(self.scores[kept], self.hits[kept], self.false_alarms[kept])

    def to_columns(self) -> dict[str, Any]:
        """The curves by column: threshold, false and true positive rate, precision, share of the rows."""
        (false, true), total = self.rates, self.total
        names = ("threshold", "false_positive_rate", "true_positive_rate", "precision", "share")
        values = self.scores, false, true, self.hits / total, total / total[-1]
        return {name: own.tolist() for name, own in zip(names, values, strict=True)}


def rank_rows(y: Array, score: Array, weight: Array) -> Ranking:
    """Order rows by their scores. Shapes: y, score, weight (N,)."""
    counted = weight > 0.0
    y, score, weight = y[counted], score[counted], weight[counted]
    order = np.argsort(-score, kind="stable")
    y, score, weight = y[order], score[order], weight[order]
    ends = np.r_[np.flatnonzero(np.diff(score)), len(score) - 1]
    return Ranking(score[ends], np.cumsum(weight * y)[ends], np.cumsum(weight * (1.0 - y))[ends])


# --- looks ----------------------------------------------------------------------------------------------


#: What is said of each look, with {fields}, and the option that settles it; a look's name ends its line.
#: docs/judging.md says what each of them sees.
LOOKS = {
    "leak": (
        "{place}: {columns}: enough to tell the label; if known only after it, {settles}",
        "convert with --drop {column}",
    ),
    "id": ("{what}: unless it is a feature, {settles}", "convert with --drop {column}"),
    "label": (
        "{place}: column {column!r} is the label: if this table is a party's too, {settles}",
        "convert with --label {column}, or --drop {column}",
    ),
    "seen": (
        "{place}: {count} of {n} rows are rows of training, and say nothing about new ones: {settles}",
        "convert other rows with --like",
    ),
    "one-class": (
        "all labels are {label!r}: AUC, curves, lift and KS distance are undefined; for them {settles}",
        "convert more rows with --like",
    ),
    "rare": (
        "{label!r} is {share:.2g} % of the rows, and threshold 0.5 finds {found:.2g} % of them: {settles}",
        "evaluate with --threshold {rate:.2g}",
    ),
    "numbers": (
        "warning: loss {loss} fits the numbers 0 and 1 of two classes: for their probability {settles}",
        "train with --loss logistic",
    ),
}


def say(name: str, *, settles: str | None = None, **said: Any) -> str:
    """The line of a look; ``settles`` where its option does not go with the data."""
    line, usual = LOOKS[name]
    quoted = {key: quote(value) if isinstance(value, str) else value for key, value in said.items()}
    return f"{line.format(settles=settles or usual.format(**quoted), **said)} [{name}]"


#: Words that name an id.
_ID_WORDS = {"id", "ids", "uid", "uuid", "guid", "nr", "no", "num", "number", "nummer", "key", "index", "row"}


def called_id(name: str) -> bool:
    """Whether a column's name is that of an id, such as customer_id, KundenNr or row."""
    import re

    return not _ID_WORDS.isdisjoint(w.lower() for w in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name))


#: Columns of numbers with at most so many different ones are looked at as categories, too.
_FEW = 20

#: Rows of a class, or of numbers to predict, below which chance may separate them.
_LEAST = 10


def separation(values: Array, y: Array, n_classes: int, levels: bool) -> float:
    """How well a column alone tells labels.

    Returns: the AUC of the class that is told worst; of a regression (no classes) the rank correlation.
    Shapes: values, y (N,).
    """
    if values.min() == values.max():
        return 0.0
    if not n_classes:
        from scipy.stats import rankdata

        if levels or len(y) < 2 * _LEAST or y.min() == y.max():
            return 0.0
        return abs(float(np.corrcoef(rankdata(values), rankdata(y))[0, 1]))
    counts = np.bincount(y.astype(np.int64), minlength=n_classes)
    if counts.min() < _LEAST:
        return 0.0
    distinct, codes = np.unique(values, return_inverse=True)
    scores = []
    for c in range(n_classes - (n_classes == 2)):
        target, found = (y == c).astype(np.float64), 0.0
        if not levels:
            area = rank_rows(target, values, np.ones(len(y))).auc()
            found = max(area, 1.0 - area)
        if levels or 2 < len(distinct) <= _FEW:
            found = max(found, rank_rows(target, _rates(codes, target), np.ones(len(y))).auc())
        scores.append(found)
    return min(scores)


def _rates(codes: Array, target: Array) -> Array:
    """For each row the rate of its category in the other four fifths of the rows.

    Shapes: codes, target, the result (N,).
    """
    fold = np.random.default_rng(0).permutation(len(codes)) % 5
    cell, shape = codes + fold * (codes.max() + 1), (5, codes.max() + 1)
    total, events = (
        np.bincount(cell, weight, minlength=shape[0] * shape[1]).reshape(shape)
        for weight in (np.ones(len(codes)), target)
    )
    rest, mean = total.sum(axis=0) - total, target.mean()
    return np.asarray(((events.sum(axis=0) - events + mean) / (rest + 1.0))[fold, codes])
