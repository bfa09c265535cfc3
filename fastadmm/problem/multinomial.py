r"""Multinomial (softmax) loss: one linear predictor per class.

.. math:: \ell(z, y) = \log \sum_c e^{z_c} - z_y

Predictors, gradients and dual vectors hold C numbers per sample. Everywhere in
the solver they are **flat and class-major**: entry ``c * N + i`` belongs to
class c of sample i, so that sums, products and acceleration over all of them
are those of a vector, and the messages of one class are contiguous.
"""

from typing import ClassVar

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.errors import InputError
from fastadmm.problem.loss import Loss, Rows
from fastadmm.problem.targets import check_class_numbers

Array = np.ndarray

#: Messages are read in blocks of about this many numbers, which stay in the second-level cache.
_NUMBERS_PER_BLOCK = 1 << 16

FEWEST_ROWS = 1024


class Multinomial(Loss):
    r""":math:`\log \sum_c e^{z_c} - z_y`, with class numbers 0 to C - 1 as targets.

    Vectors of C numbers per sample, of shape (C N,), are class-major; see the
    module. The methods are those of :class:`fastadmm.problem.loss.Loss` otherwise.
    """

    compiled: ClassVar[str] = "multinomial.multinomial"
    name: ClassVar[str] = "multinomial"
    task: ClassVar[str] = "classification"
    probabilistic: ClassVar[bool] = True
    vector: ClassVar[bool] = True
    unit: ClassVar[float] = 0.5  # largest eigenvalue of diag(p) - p p'

    def check_targets(self, y: Array, weight: Array, fit_intercept: bool) -> None:
        check_class_numbers(y, weight, fit_intercept)

    def n_outputs(self, y: Array, n_classes: int | None = None) -> int:
        """Number of classes C. Shapes: y (N,)."""
        highest = int(y.max()) + 1
        if n_classes is None:
            return highest
        if highest > n_classes:
            i = int(np.argmax(y))
            raise InputError(f"y: target {y[i]:g} in row {i}, but there are {n_classes} classes, from 0")
        return int(n_classes)

    def least(self, y: Array, weight: Array) -> float:
        return 0.0

    def most_curvature(self, z: Array, rows: Rows, norm: float, off: float, engine: Engine) -> float:
        return self.unit * norm

    def predict_mean(self, z: Array) -> Array:
        """Probabilities of shape (N, C) for predictors z of shape (N, C)."""
        from scipy.special import softmax

        return softmax(z, axis=1)

    def advance_classes(
        self,
        messages: Array,
        step: Array,
        origin: Array,
        rows: Rows,
        intercept: Array,
        total: Array,
        gradient: Array,
        engine: Engine,
    ) -> tuple[float, Array, Array]:
        """A step in the span of messages that all classes share, and the loss where it ends.

        Shapes: messages (K, N); step, slopes (C, K); origin, total, gradient (C N,); intercept, sums (C,).
        """
        from fastadmm.kernels.multinomial import multinomial_advance

        y, weight, n = rows.y, rows.weight, len(rows.y)
        before, shift, after, slopes = (a.reshape(-1, n) for a in (origin, rows.offset, total, gradient))
        block = max(FEWEST_ROWS, _NUMBERS_PER_BLOCK // max(1, len(messages)))

        def piece(part: tuple[int, int]) -> tuple[float, Array, Array]:
            value, products = 0.0, np.zeros(step.shape)
            for begin in range(*part, block):
                end = min(begin + block, part[1])
                here = slice(begin, end)
                np.matmul(step, messages[:, here], out=after[:, here])
                value += multinomial_advance(before, shift, intercept, y, weight, after, slopes, begin, end)
                products += slopes[:, here] @ messages[:, here].T
            return value, products, slopes[:, slice(*part)].sum(axis=1)

        loss, products, sums = engine.sums(piece, engine.leaves(n), size=step.size)
        return float(loss), products, sums

    def mean_curvature(self, gradient: Array, weight: Array, engine: Engine) -> Array:
        """Mean over the classes of the Hessian's diagonal, of shape (N,), from a gradient of shape (C N,)."""
        from fastadmm.kernels.multinomial import multinomial_mean_curvature

        rows, out = gradient.reshape(-1, len(weight)), np.empty(len(weight))
        engine.over_rows(multinomial_mean_curvature, engine.leaves(len(weight)), rows, weight, out)
        return out

    def probabilities(self, z: Array, y: Array, weight: Array, engine: Engine) -> Array:
        """Probabilities p of shape (C, N) at z of shape (C N,); y and weight of shape (N,)."""
        from fastadmm.kernels.multinomial import multinomial_probabilities

        points = z.reshape(-1, len(y))
        out = np.empty_like(points)
        engine.by_leaf(lambda r: multinomial_probabilities(points, y, weight, out, *r), engine.leaves(len(y)))
        return out

    def action(self, likely: Array, weight: Array, direction: Array, engine: Engine) -> Array:
        r"""Hessian times a direction, :math:`s\,p \circ (v - \langle p, v\rangle)`.

        Shapes: likely, direction, the result (C, N); weight (N,).
        """
        from fastadmm.kernels.multinomial import multinomial_action

        out, leaves = np.empty_like(likely), engine.leaves(len(weight))
        engine.by_leaf(lambda rows: multinomial_action(likely, weight, direction, out, *rows), leaves)
        return out

    def prox_classes(
        self, v: Array, shift: Array, rows: Rows, penalty: float, z: Array, gradient: Array, engine: Engine
    ) -> tuple[Array, Array]:
        r"""Minimise ``s l(z + shift) + r/2 |z - v|^2`` for each sample, in place.

        Shapes: v, shift, z, gradient (C N,); sums (C,); slope (C, C).
        Scaling: penalty summed scaling.
        """
        n, kernel = len(rows.y), self.kernels().prox
        centre, moved, point, slopes = (a.reshape(-1, n) for a in (v, shift, z, gradient))
        classes = len(centre)

        def piece(part: tuple[int, int]) -> tuple[Array, Array]:
            slope = np.zeros((classes, classes))
            kernel(centre, moved, rows.y, rows.weight, penalty, point, slopes, slope, *part)
            return slopes[:, slice(*part)].sum(axis=1), slope

        sums, total = engine.sums(piece, engine.leaves(n))
        return sums, 0.5 * (total + total.T)
