r"""Ridge regression with class means taken out, its penalty chosen by marginal likelihood.

The label holder regresses a party's noisy scores on its own columns. With weak symbols there is little to
be learned about many coefficients, and how much is said by the evidence: for residuals
:math:`N(0, s^2)` and coefficients :math:`N(0, s^2/\lambda)`, with :math:`s^2` profiled out,

.. math:: -2 \log p = (n - k) \log q(\lambda) + \sum_j \log(1 + e_j/\lambda), \qquad
          q(\lambda) = r^\top r - \sum_j \frac{b_j^2}{e_j + \lambda}

where :math:`e_j` are the eigenvalues of the within-class Gram matrix and b the correlations with r in its
eigenbasis. Small :math:`\lambda` is the full regression; large :math:`\lambda` leaves the class means alone,
which is naive Bayes.
"""

from __future__ import annotations

import numpy as np

from fastadmm.blocks.block import FeatureBlock
from fastadmm.engine.engine import Engine

__all__ = ["ClassDesign"]

Array = np.ndarray

#: Up to so many columns the Gram matrix is used whole, else its leading directions.
_MAX_COLUMNS = 1500
_DIRECTIONS, _PASSES = 256, 3


class ClassDesign:
    """The label holder's columns, prepared for regressions within classes.

    Shapes: block (N, d); y (N,); class_means (2, d).
    """

    def __init__(self, block: FeatureBlock, y: Array, engine: Engine) -> None:
        self.block, self.y, self.engine = block, y, engine
        n, d = block.shape
        self.count = np.array([n - y.sum(), y.sum()])
        sums = np.array([block.transposed_product(1.0 - y, engine), block.transposed_product(y, engine)])
        self.class_means = sums / self.count[:, None]
        self._basis: Array | None = None
        if d <= _MAX_COLUMNS:
            gram = block.gram(engine)
        else:
            self._basis = _leading_directions(block, engine)
            projected = np.column_stack([block.product(v, engine) for v in self._basis.T])
            gram = projected.T @ projected
            sums = sums @ self._basis
        self._within = gram - (sums / self.count[:, None]).T @ sums
        values, self._vectors = np.linalg.eigh(self._within)
        self._eigenvalues = np.maximum(values, 0.0)

    def regress(self, values: Array) -> tuple[Array, float, float]:
        r"""Regress numbers on the columns, class means taken out.

        Shapes: values (N,); coefficients (d,).
        """
        n = len(self.y)
        means = np.array([values @ (1.0 - self.y), values @ self.y]) / self.count
        residual = values - means[(self.y > 0.5).astype(np.int64)]
        moment = self.block.transposed_product(residual, self.engine)
        if self._basis is not None:
            moment = moment @ self._basis
        b, e = self._vectors.T @ moment, self._eigenvalues
        total = float(residual @ residual)
        scale = max(float(e.max()), 1e-300)
        penalties = scale * np.exp(np.linspace(np.log(1e-8), np.log(1e4), 121))
        best, penalty = np.inf, penalties[-1]
        for candidate in penalties:
            quadratic = total - float((b * b / (e + candidate)).sum())
            if quadratic <= 0.0:
                continue
            value = (n - 2) * np.log(quadratic) + float(np.log1p(e / candidate).sum())
            if value < best:
                best, penalty = value, candidate
        small = self._vectors @ (b / (e + penalty))
        explained = float(small @ self._within @ small) / n
        return (small if self._basis is None else self._basis @ small), float(penalty), explained


def _leading_directions(block: FeatureBlock, engine: Engine) -> Array:
    """An orthonormal basis, of shape (d, 256), near the largest right singular vectors."""
    # Which basis is found affects quality only; a fixed seed keeps runs comparable.
    basis = np.random.default_rng(0).standard_normal((block.shape[1], _DIRECTIONS))
    for _ in range(_PASSES):
        basis, _ = np.linalg.qr(basis)
        columns = (block.transposed_product(block.product(v, engine), engine) for v in basis.T)
        basis = np.column_stack(list(columns))
    return np.linalg.qr(basis)[0]
