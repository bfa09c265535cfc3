r"""Type-II Anderson acceleration of the coordinator's state.

Extrapolates a fixed-point map T from its last few evaluations: with residuals
:math:`f_j = T(v_j) - v_j`, take :math:`v^+ = \sum_j \alpha_j T(v_j)` where the
weights sum to one and minimise :math:`\|\sum_j \alpha_j f_j\|` (Walker and Ni
2011; safeguard as in Zhang, O'Donoghue and Boyd 2020). It runs on messages the
coordinator already has, so parties do not know about it.
"""

from __future__ import annotations

import numpy as np

from fastadmm.engine.stacked import StackedRows

__all__ = ["Anderson"]

#: Tikhonov regularisation of the small least-squares problem, relative to the trace.
_REGULARIZATION = 1e-10

#: Weights beyond this sum make the extrapolation a gamble.
_MAX_WEIGHT = 1e4


class Anderson:
    """Memory of differences, and the extrapolation from it.

    Parameters
    ----------
    size : int
        Length of the state.
    sections : list of (slice, float or ndarray)
        Parts of the state with the weight of each in the squared norm; an array weighs each entry.
    memory : int
        Number of differences kept.
    rows : StackedRows
        Adds up over the rows of the state.

    Attributes
    ----------
    weights : ndarray of shape (count,)
        Of the images' differences in the last extrapolation.
    """

    def __init__(
        self,
        size: int,
        sections: list[tuple[slice, float | np.ndarray]],
        memory: int,
        rows: StackedRows,
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

    def squared_norm(self, residual: np.ndarray) -> float:
        """Weighted squared norm of a state difference."""
        total = 0.0
        for part, weight in self.sections:
            own = residual[part]
            if isinstance(weight, np.ndarray):
                total += float(self.rows.dot(self.rows.engine.each(np.multiply, weight, own), own))
            else:
                total += weight * float(self.rows.dot(own, own))
        return total

    def extrapolate(self, image: np.ndarray, residual: np.ndarray) -> np.ndarray | None:
        """Take in one evaluation of the map; return the extrapolated state.

        Parameters
        ----------
        image : ndarray of shape (size,)
            T(v).
        residual : ndarray of shape (size,)
            T(v) - v.

        Returns
        -------
        ndarray of shape (size,) or None
            None while there are fewer than two differences, or where the
            small problem is too ill-conditioned to be trusted.
        """
        engine = self.rows.engine
        if self.has_last:
            k = self.position
            engine.each(np.subtract, residual, self.last_residual, out=self.residuals[k])
            engine.each(np.subtract, image, self.last_image, out=self.images[k])
            self.position = (k + 1) % self.memory
            self.count = min(self.count + 1, self.memory)
            row = self._newest_products(k)
            self.gram[k, : self.count] = row
            self.gram[: self.count, k] = row
        engine.each(np.positive, residual, out=self.last_residual)
        engine.each(np.positive, image, out=self.last_image)
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
        return engine.each(np.subtract, image, self.rows.combine(weights, self.images[:n]))

    def _newest_products(self, k: int) -> np.ndarray:
        return self._products(self.residuals[k])

    def _products(self, residual: np.ndarray) -> np.ndarray:
        n = self.count
        total = np.zeros(n)
        for part, weight in self.sections:
            if isinstance(weight, np.ndarray):
                scaled = self.rows.engine.each(np.multiply, weight, residual[part])
                total += self.rows.dot(self.residuals[:n, part], scaled)
            else:
                total += weight * self.rows.dot(self.residuals[:n, part], residual[part])
        return total

    def export(self) -> dict[str, np.ndarray | int | bool]:
        """Everything a resumed run needs to go on bit for bit."""
        n = self.count
        return {
            "residuals": self.residuals[:n],
            "images": self.images[:n],
            "gram": self.gram,
            "last_residual": self.last_residual,
            "last_image": self.last_image,
            "count": n,
            "position": self.position,
            "has_last": self.has_last,
        }

    def restore(self, saved: dict) -> None:
        """Inverse of :meth:`export`."""
        n = int(saved["count"])
        self.count, self.position, self.has_last = n, int(saved["position"]), bool(saved["has_last"])
        self.residuals[:n] = saved["residuals"]
        self.images[:n] = saved["images"]
        self.gram[:] = saved["gram"]
        self.last_residual[:] = saved["last_residual"]
        self.last_image[:] = saved["last_image"]
