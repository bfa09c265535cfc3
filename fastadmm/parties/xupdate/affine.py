"""x-update of squared l2, or of nothing, where equations hold between the weights."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy.linalg

from fastadmm.engine.engine import Engine
from fastadmm.parties.xupdate.base import PenalisedUpdate


class GramAffine(PenalisedUpdate):
    r"""Minimise :math:`\tfrac\mu2\|x\|^2 + \tfrac12\|D x - w\|^2` over A x = a, also for mu = 0.

    The weights are the nearest ones to zero that meet the equations, and a combination of vectors that no
    equation sees: over these it is least squares, solved by eigendecomposition.

    Shapes: block (N, d).
    """

    name: ClassVar[str] = "affine"

    def prepare(self, engine: Engine) -> None:
        gram = self.block.gram(engine)
        rows, values = self.constraint.equations(len(gram))
        unseen = scipy.linalg.qr(rows.T, check_finite=False)[0][:, len(rows) :]
        self._nearest = rows.T @ values
        eigenvalues, vectors = scipy.linalg.eigh(unseen.T @ gram @ unseen, check_finite=False)
        # Directions that the data do not see: their part of the target is rounding.
        seen = eigenvalues > len(gram) * np.finfo(np.float64).eps * eigenvalues.max(initial=0.0)
        self._values, self._seen = np.where(seen, eigenvalues, 0.0), seen
        self._vectors = unseen @ vectors
        self._pull = gram @ self._nearest

    def minimise(self, right: np.ndarray, mu: float, start: np.ndarray, engine: Engine) -> np.ndarray:
        bend = self._values + mu * self.regularizer.shares[1]
        pull = np.where(self._seen, self._vectors.T @ (right - self._pull), 0.0)
        x = self._nearest + self._vectors @ (pull / np.where(bend > 0.0, bend, 1.0))
        return self.constraint.project(x)  # the last digit
