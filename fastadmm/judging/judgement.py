"""What a labelled data set says about a model beyond its metrics: one dictionary for pages and files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import expit, logit, ndtri

from fastadmm.errors import ConfigError
from fastadmm.judging.looks import rank_rows, say
from fastadmm.problem.loss import Loss

Array = np.ndarray


def auc_interval(
    y: Array, score: Array, weight: Array, level: float = 0.95
) -> tuple[float, float, float] | None:
    """Interval of an AUC: DeLong's variance, on the scale of log odds.

    Without weights the variance is that of DeLong, DeLong and Clarke-Pearson (1988). With weights each row's
    part of the AUC counts by its weight (linearisation); a factor of all weights changes nothing.

    Shapes: y, score, weight (N,).
    """
    counted = weight > 0.0
    y, score, weight = y[counted], score[counted], weight[counted]
    one = y == 1.0
    if min(one.sum(), (~one).sum()) < 2:
        return None
    # Each row's share of the other class that it beats; ties count half.
    below = _share_below(score[one], score[~one], weight[~one])
    above = 1.0 - _share_below(score[~one], score[one], weight[one])
    area = float(weight[one] @ below / weight[one].sum())
    variance = _variance_of_mean(below, weight[one]) + _variance_of_mean(above, weight[~one])
    if not (0.0 < area < 1.0) or variance <= 0.0:
        return None
    error = float(np.sqrt(variance))
    half = ndtri(0.5 + 0.5 * level) * error / (area * (1.0 - area))
    return float(expit(logit(area) - half)), float(expit(logit(area) + half)), error


def _share_below(at: Array, values: Array, weight: Array) -> Array:
    order = np.argsort(values, kind="stable")
    values, sums = values[order], np.r_[0.0, np.cumsum(weight[order])]
    left, right = np.searchsorted(values, at, "left"), np.searchsorted(values, at, "right")
    return np.asarray(0.5 * (sums[left] + sums[right]) / sums[-1])


def _variance_of_mean(values: Array, weight: Array) -> float:
    n, share = len(values), weight / weight.sum()
    return float(np.sum((share * (values - share @ values)) ** 2) * n / (n - 1))


#: Points of the curves that are kept.
MOST_POINTS = 200

#: A class of which fewer rows are is rare: threshold 0.5 may miss it.
_RARE = 0.1

#: Of all intervals.
LEVEL = 0.95


def judgement(
    loss: Loss,
    y: Array,
    z: Array,
    weight: Array | None,
    threshold: float | None = None,
    classes: Sequence[str] = (),
) -> dict[str, Any]:
    """Curves, separation, lift, intervals and the confusion matrix of a classification.

    Shapes: y, weight (N,); z (N,) or (N, C).
    """
    counted = np.ones(len(y)) if weight is None else weight
    if loss.task != "classification" or np.any(y != np.floor(y)):
        if threshold is not None:
            raise ConfigError("threshold: only a model of two classes has one")
        return {}
    if loss.vector:
        if threshold is not None:
            raise ConfigError("threshold: with several classes the most probable one is predicted")
        confusion = _confusion(y, np.argmax(z, axis=1), counted, classes, None)
        return {"confusion": confusion, "looks": _looks(confusion, None)}
    shown = loss.predict_mean(z) if loss.probabilistic else z
    limit = (0.5 if loss.probabilistic else 0.0) if threshold is None else float(threshold)
    if loss.probabilistic and not 0.0 <= limit <= 1.0:
        raise ConfigError(f"threshold: {limit:g} is no probability; choose between 0 and 1")
    confusion = _confusion(y, shown > limit, counted, classes, limit)
    document: dict[str, Any] = {"confusion": confusion, "looks": _looks(confusion, threshold)}
    if len(np.unique(y[counted > 0.0])) < 2:  # a look tells it
        return document
    ranking = rank_rows(y, shown, counted)
    if len(ranking.scores) == 1:
        document["notes"] = ["all rows have the same score: curves and KS say nothing"]
    distance, at = ranking.kolmogorov_smirnov()
    found = auc_interval(y, shown, counted, LEVEL)
    document["ranking"] = {
        "average_precision": ranking.average_precision(),
        "ks": distance,
        "ks_score": at,
        "auc_interval": None if found is None else list(found[:2]),
        "level": LEVEL,
        "groups": ranking.groups(),
        "curves": ranking.thinned(MOST_POINTS).to_columns(),
    }
    return document


def _looks(confusion: dict[str, Any], threshold: float | None) -> list[str]:
    """What is seen in labels, and in what the usual threshold makes of them."""
    matrix, classes = np.array(confusion["matrix"]), confusion["classes"]
    shares = matrix.sum(axis=1) / matrix.sum()
    c = int(np.argmin(shares))
    if shares.max() == 1.0:
        return [say("one-class", label=classes[int(np.argmax(shares))])]
    found = matrix[c, c] / matrix[c].sum() if shares[c] else 1.0
    if len(matrix) > 2 or threshold is not None or shares[c] >= _RARE or found >= 0.5:
        return []
    return [say("rare", label=classes[c], share=100 * shares[c], found=100 * found, rate=shares[1])]


def event_in(evaluation: dict[str, Any]) -> tuple[str, float]:
    """Class 1 of two, and its share of the evaluated rows; no name where there are none."""
    confusion = evaluation.get("confusion") or {}
    if len(confusion.get("classes", ())) != 2:
        return "", 0.0
    matrix = np.array(confusion["matrix"])
    return str(confusion["classes"][1]), float(matrix[1].sum() / matrix.sum()) if matrix.any() else 0.0


def _confusion(
    y: Array, said: Array, weight: Array, classes: Sequence[str], threshold: float | None
) -> dict[str, Any]:
    """Summed weights by true class (rows) and predicted class (columns)."""
    count = len(classes) or 2
    matrix = np.zeros((count, count))
    np.add.at(matrix, (y.astype(np.intp), said.astype(np.intp)), weight)
    document: dict[str, Any] = {"classes": list(classes) or ["0", "1"], "matrix": matrix.tolist()}
    if threshold is None:
        return document
    (tn, fp), (fn, tp) = matrix.tolist()
    rates = {
        "accuracy": (tp + tn, tp + tn + fp + fn),
        "precision": (tp, tp + fp),
        "recall": (tp, tp + fn),
        "specificity": (tn, tn + fp),
        "f1": (2.0 * tp, 2.0 * tp + fp + fn),
    }
    shares = {name: part / whole if whole > 0.0 else None for name, (part, whole) in rates.items()}
    return {**document, "threshold": threshold, **shares}
