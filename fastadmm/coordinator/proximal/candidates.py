"""What a party's part of the next model may be combined from: points whose regulariser is known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fastadmm.coordinator.proximal.best_response import BestResponse

__all__ = ["Candidates"]

Array = np.ndarray

#: Earlier answers that a party's part of the model may be combined from, and points between the model and an
#: answer.
_OLDER, _POINTS_BETWEEN = 4, 4

#: With more parties than this there are as many points without them, and one of each has to do.
_FEW_PARTIES = 64


class Candidates:
    """Points of every party, and its earlier answers."""

    def __init__(self, n_parties: int) -> None:
        self._older: list[list[tuple[Array, float]]] = [[] for _ in range(n_parties)]
        self._most_older, self._most_between = _OLDER, _POINTS_BETWEEN
        if n_parties > _FEW_PARTIES:
            self._most_older = self._most_between = 1

    def of(
        self, m: int, model: Array, norm: float, proposal: Array, best: float, answer: BestResponse
    ) -> list[tuple[Array, float]]:
        """Party m's points and their norms, where the line search ended first; the answer is remembered.

        Shapes: model, proposal (K,).
        """
        goal = answer.coefficients
        points = [(model, norm), (goal, answer.norms[1])]
        positions = answer.to_answer.positions
        between = np.linspace(0, len(positions) - 1, self._most_between + 2).round().astype(int)[1:-1]
        for i in sorted(set(between)):
            if 0.0 < positions[i] < 1.0:
                points.append((model + positions[i] * (goal - model), float(answer.to_answer.norms[i])))
        if answer.to_proposal is not None:
            at, norms = answer.to_proposal.positions, answer.to_proposal.norms
            after = int(np.searchsorted(at, best))
            for i in sorted({after - 1, min(after, len(at) - 1)} - {-1, 0}):
                points.append((model + at[i] * (proposal - model), float(norms[i])))
            reached = float(np.interp(best, at, norms))
            points.insert(1, (model + best * (proposal - model), reached))
        older = [(_padded(c, len(model)), norm) for c, norm in self._older[m]]
        self._older[m] = [*older, (goal, answer.norms[1])][-self._most_older :]
        return points + older

    def forget(self, m: int) -> None:
        """Party m's directions are others now: its earlier answers go."""
        self._older[m] = []

    def export(self, sizes: list[int]) -> dict[str, dict[str, Array]]:
        """Everything that a resumed run needs, with as many coefficients as parties have directions."""
        return {
            str(m): {
                "coefficients": np.array([_padded(c, k) for c, _ in older]).reshape(len(older), k),
                "norms": np.array([norm for _, norm in older]),
            }
            for m, (k, older) in enumerate(zip(sizes, self._older, strict=True))
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Inverse of :meth:`export`."""
        self._older = [
            [(np.array(c), float(norm)) for c, norm in zip(part["coefficients"], part["norms"])]
            for part in (saved[str(m)] for m in range(len(self._older)))
        ]


def _padded(c: Array, n: int) -> Array:
    return np.append(c, np.zeros(n - len(c)))
