"""x-updates of squared l2, without a set or with equations: by Gram or kernel matrix, or without a matrix.

The d x d Gram matrix, or the N x N one where columns are more than rows, is decomposed once: any penalty then
costs nothing more. Conjugate gradients start warm and are preconditioned.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import scipy.linalg

from fastadmm.engine.engine import Engine
from fastadmm.parties.xupdate.base import PenalisedUpdate, XUpdate


def eigen(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and eigenvectors of a positive semidefinite matrix, which may be overwritten."""
    values, vectors = scipy.linalg.eigh(matrix, overwrite_a=True, check_finite=False)
    # Rounding can make a zero eigenvalue slightly negative.
    return np.maximum(values, 0.0), vectors


class GramEigen(XUpdate):
    r"""Solve with :math:`D^\top D = V \Lambda V^\top`: :math:`x = V (\Lambda + \mu)^{-1} V^\top D^\top w`.

    Shapes: block (N, d).
    """

    name: ClassVar[str] = "gram"

    def prepare(self, engine: Engine) -> None:
        self._values, self._vectors = eigen(self.block.gram(engine))

    def solve(self, w: np.ndarray, mu: float, start: np.ndarray, engine: Engine) -> np.ndarray:
        right = self.block.transposed_product(w, engine)
        return self._vectors @ ((self._vectors.T @ right) / (self._values + mu))


class KernelEigen(XUpdate):
    r"""Solve with :math:`D D^\top = U \Sigma U^\top`: :math:`x = D^\top U (\Sigma + \mu)^{-1} U^\top w`.

    Shapes: block (N, d).
    """

    name: ClassVar[str] = "kernel"

    def prepare(self, engine: Engine) -> None:
        self._values, self._vectors = eigen(self.block.kernel_gram())

    def solve(self, w: np.ndarray, mu: float, start: np.ndarray, engine: Engine) -> np.ndarray:
        dual = self._vectors @ ((self._vectors.T @ w) / (self._values + mu))
        return self.block.transposed_product(dual, engine)


#: The residual left by the warm start is reduced by this factor each round, so
#: that the error of a round is a small share of the progress of that round.
_REDUCTION = 1e-4

#: Below this residual, relative to the right-hand side, rounding decides.
_FLOOR = 1e-13

_MAX_STEPS = 200


class ConjugateGradient(XUpdate):
    r"""Solve :math:`(D^\top D + \mu I) x = D^\top w` with the diagonal as preconditioner.

    Shapes: block (N, d).
    """

    name: ClassVar[str] = "cg"

    def prepare(self, engine: Engine) -> None:
        self._diagonal = self.block.column_squares(engine)

    def solve(self, w: np.ndarray, mu: float, start: np.ndarray, engine: Engine) -> np.ndarray:
        block = self.block
        x = start.copy()
        remainder = w - block.product(x, engine) if x.any() else w
        right = block.transposed_product(remainder, engine) - mu * x
        scale = 1.0 / (self._diagonal + mu)
        preconditioned = scale * right
        direction = preconditioned.copy()
        power = float(right @ preconditioned)
        total = block.transposed_product(w, engine) if x.any() else right
        target = max(_REDUCTION**2 * power, _FLOOR**2 * float(total @ (scale * total)))
        for _ in range(_MAX_STEPS):
            if power <= target:
                break
            image = block.product(direction, engine)
            curvature = float(engine.dot(image, image)) + mu * float(direction @ direction)
            step = power / curvature
            x += step * direction
            right -= step * (block.transposed_product(image, engine) + mu * direction)
            preconditioned = scale * right
            following = float(right @ preconditioned)
            direction *= following / power
            direction += preconditioned
            power = following
        return x


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
