r"""Type-II Anderson acceleration of the coordinator's state.

Extrapolates a fixed-point map T from its last few evaluations: with residuals
:math:`f_j = T(v_j) - v_j`, take :math:`v^+ = \sum_j \alpha_j T(v_j)` where the
weights sum to one and minimise :math:`\|\sum_j \alpha_j f_j\|` (Walker and Ni
2011; safeguard as in Zhang, O'Donoghue and Boyd 2020). It runs on messages the
coordinator already has, so parties do not know about it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fastadmm.engine.stacked import StackedRows
from fastadmm.method.method import Saved

#: Tikhonov regularisation of the small least-squares problem, relative to the trace.
_REGULARIZATION = 1e-10

#: Weights beyond this sum make the extrapolation a gamble.
_MAX_WEIGHT = 1e4

#: Differences that it keeps, and memory that these may take, in bytes.
_MOST_DIFFERENCES, _HISTORY_BUDGET = 10, 2 * 2**30


def acceleration_memory(n_parties: int, n_samples: int) -> int:
    """Number of differences that fit the memory budget; 0 where fewer than 3 do."""
    each = 16 * (n_parties + 2) * n_samples
    memory = min(_MOST_DIFFERENCES, _HISTORY_BUDGET // each)
    return int(memory) if memory >= 3 else 0


class Anderson(Saved):
    """Memory of differences, and the extrapolation from it. Shapes: weights (count,)."""

    SAVED = "gram", "last_residual", "last_image", "count", "position", "has_last"

    def __init__(
        self, size: int, sections: list[tuple[slice, float | np.ndarray]], memory: int, rows: StackedRows
    ) -> None:
        self.rows = rows
        self.sections = sections
        self.memory = memory
        self.residuals = np.zeros((memory, size))
        self.images = np.zeros((memory, size))
        self.gram = np.zeros((memory, memory))
        self.weights = np.empty(0)
        self.last_residual = np.zeros(size)
        self.last_image = np.zeros(size)
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.count = 0
        self.position = 0
        self.has_last = False

    def close(self) -> None:
        """Hold nothing, at the end of a run: its memory is given back."""
        self.residuals = self.images = self.residuals[:0].copy()

    def squared_norm(self, residual: np.ndarray) -> float:
        """Weighted squared norm of a state difference."""
        return float(self.rows.weighted_products(residual[np.newaxis], residual, self.sections)[0])

    def extrapolate(self, image: np.ndarray, residual: np.ndarray) -> np.ndarray | None:
        """Take in one evaluation of the map; return the extrapolated state.

        Shapes: image, residual, the result (size,).
        """
        from fastadmm.kernels.stacked import less_combination, replace_last
        from fastadmm.kernels.vectors import copy

        if self.has_last:
            k = self.position
            pair, last = (residual, image), (self.last_residual, self.last_image)
            self.rows.everywhere(replace_last, pair, last, (self.residuals[k], self.images[k]))
            self.position = (k + 1) % self.memory
            self.count = min(self.count + 1, self.memory)
            row = self._products(self.residuals[k])
            self.gram[k, : self.count] = row
            self.gram[: self.count, k] = row
        else:
            self.rows.everywhere(copy, residual, self.last_residual)
            self.rows.everywhere(copy, image, self.last_image)
            self.has_last = True
        if self.count < 2:
            return None
        n = self.count
        matrix = self.gram[:n, :n].copy()
        matrix[np.diag_indices(n)] += _REGULARIZATION * np.trace(matrix)
        try:
            weights = np.linalg.solve(matrix, self._products(residual))
        except np.linalg.LinAlgError:
            return None
        if not np.isfinite(weights).all() or np.abs(weights).sum() > _MAX_WEIGHT:
            return None
        self.weights = weights
        out = self.rows.engine.vector(len(image))
        self.rows.everywhere(less_combination, image, weights, self.images[:n], out)
        return out

    def _products(self, residual: np.ndarray) -> np.ndarray:
        return self.rows.weighted_products(self.residuals[: self.count], residual, self.sections)

    def export(self) -> dict[str, Any]:
        n = self.count
        return {"residuals": self.residuals[:n], "images": self.images[:n], **super().export()}

    def restore(self, saved: Mapping[str, Any]) -> None:
        super().restore(saved)
        self.residuals[: self.count], self.images[: self.count] = saved["residuals"], saved["images"]
