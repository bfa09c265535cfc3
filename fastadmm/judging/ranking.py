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
    def positives(self) -> float:
        """Summed weight of class 1."""
        return float(self.hits[-1])

    @property
    def negatives(self) -> float:
        """Summed weight of class 0."""
        return float(self.false_alarms[-1])

    def roc(self) -> tuple[Array, Array, Array]:
        """ROC curve.

        Returns: the first point is (0, 0), at an infinite threshold.
        Shapes: false_positive_rate, true_positive_rate, threshold (K + 1,).
        """
        return (
            np.r_[0.0, self.false_alarms / self.negatives],
            np.r_[0.0, self.hits / self.positives],
            np.r_[np.inf, self.scores],
        )

    def precision_recall(self) -> tuple[Array, Array, Array]:
        """Precision-recall curve. Shapes: precision, recall, threshold (K,)."""
        return self.hits / (self.hits + self.false_alarms), self.hits / self.positives, self.scores

    def average_precision(self) -> float:
        """Sum of precisions, each times the recall that its score adds; nothing is interpolated."""
        precision, recall, _ = self.precision_recall()
        return float(precision @ np.diff(recall, prepend=0.0))

    def auc(self) -> float:
        """Area under the ROC curve: ties count half."""
        false, true, _ = self.roc()
        return float(np.diff(false) @ (true[1:] + true[:-1]) / 2.0)

    def kolmogorov_smirnov(self) -> tuple[float, float]:
        """Largest distance between the two classes' distributions of scores."""
        distance = np.abs(self.hits / self.positives - self.false_alarms / self.negatives)
        at = int(np.argmax(distance))
        return float(distance[at]), float(self.scores[at])

    def groups(self, count: int = 10) -> list[dict[str, float]]:
        """Gain and lift of groups of equal weight, the highest scores first.

        A group that ends within rows of one score takes its share of both classes among them.
        """
        total = self.hits + self.false_alarms
        ends = total[-1] * np.arange(1, count + 1) / count
        found = np.interp(ends, np.r_[0.0, total], np.r_[0.0, self.hits])
        rate = np.diff(found, prepend=0.0) / (total[-1] / count)
        base = self.positives / total[-1]
        # Summing weights rounds: an end may be a little beyond the last total.
        at = np.minimum(np.searchsorted(total, ends * (1.0 - 1e-12)), len(total) - 1)
        return [
            {
                "share": (k + 1) / count,
                "lowest_score": float(self.scores[at[k]]),
                "rate": float(rate[k]),
                "lift": float(rate[k] / base),
                "gain": float(found[k] / self.positives),
                "cumulative_lift": float(found[k] / ends[k] / base),
            }
            for k in range(count)
        ]

    def thinned(self, most: int) -> Ranking:
        """Some of the scores, spread over the rows, with the first and the last."""
        if len(self.scores) <= most:
            return self
        total = self.hits + self.false_alarms
        wanted = np.linspace(total[0], total[-1], most)
        kept = np.unique(np.r_[0, np.minimum(np.searchsorted(total, wanted), len(total) - 1)])
        return Ranking(self.scores[kept], self.hits[kept], self.false_alarms[kept])

    def to_columns(self) -> dict[str, Any]:
        """The curves by column: threshold, false and true positive rate, precision, share of the rows."""
        total = self.hits + self.false_alarms
        return {
            "threshold": self.scores.tolist(),
            "false_positive_rate": (self.false_alarms / self.negatives).tolist(),
            "true_positive_rate": (self.hits / self.positives).tolist(),
            "precision": (self.hits / total).tolist(),
            "share": (total / total[-1]).tolist(),
        }


def rank_rows(y: Array, score: Array, weight: Array) -> Ranking:
    """Order rows by their scores. Shapes: y, score, weight (N,)."""
    counted = weight > 0.0
    y, score, weight = y[counted], score[counted], weight[counted]
    order = np.argsort(-score, kind="stable")
    y, score, weight = y[order], score[order], weight[order]
    ends = np.r_[np.flatnonzero(np.diff(score)), len(score) - 1]
    return Ranking(score[ends], np.cumsum(weight * y)[ends], np.cumsum(weight * (1.0 - y))[ends])
