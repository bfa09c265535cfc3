"""Rows of two classes in the order of their scores: ROC, precision and recall, separation, gain and lift."""

from __future__ import annotations

from dataclasses import dataclass
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
