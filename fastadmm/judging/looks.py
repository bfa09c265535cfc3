"""Looks at the question: what a proved optimum may still get wrong, and the option that settles it."""

from __future__ import annotations

from shlex import quote
from typing import Any

import numpy as np

from fastadmm.judging.ranking import rank_rows

Array = np.ndarray


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
