"""What a party answers to a loss gradient, and what its part of the next model is combined from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

Array = np.ndarray


#: Earlier answers that a party's part of the model may be combined from; with more parties than this one.
_OLDER, _FEW_PARTIES = 4, 64


class Candidates:
    """What every party's part of the next model is combined from; its earlier answers."""

    def __init__(self, n_parties: int) -> None:
        self._older: list[list[tuple[Array, float]]] = [[] for _ in range(n_parties)]
        self._most = _OLDER if n_parties <= _FEW_PARTIES else 1

    def of(
        self, m: int, model: Array, norm: float, proposal: Array, best: float, answer: dict[str, Any]
    ) -> list[tuple[Array, float]]:
        """Party m's points and their norms, where the line search ended first; the answer is remembered.

        Shapes: model, proposal (K,).
        """
        found = answer["coefficients"], float(answer["norms"][1])
        points = [(model, norm), found]
        if "proposal_positions" in answer:
            at, norms = answer["proposal_positions"], answer["proposal_norms"]
            after = int(np.searchsorted(at, best))
            for i in sorted({after - 1, min(after, len(at) - 1)} - {-1, 0}):
                points.append((model + at[i] * (proposal - model), float(norms[i])))
            reached = float(np.interp(best, at, norms))
            points.insert(1, (model + best * (proposal - model), reached))
        if "clipped" in answer:
            points.append((answer["clipped"], float(answer["clipped_norm"])))
        older = [(padded(c, len(model)), norm) for c, norm in self._older[m]]
        self._older[m] = [*older, found][-self._most :]
        return points + older

    def forget(self, m: int) -> None:
        """Party m's directions are others now: its earlier answers go."""
        self._older[m] = []

    def export(self, sizes: list[int]) -> dict[str, dict[str, Array]]:
        """Everything that a resumed run needs, with as many coefficients as parties have directions."""
        return {
            str(m): {
                "coefficients": np.array([padded(c, k) for c, _ in older]).reshape(len(older), k),
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


def padded(c: Array, n: int) -> Array:
    """Coefficients of shape (K,) with zeros for the directions that came later, of shape (n,)."""
    return np.append(c, np.zeros(n - len(c)))
