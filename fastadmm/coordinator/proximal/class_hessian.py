r"""The multinomial Hessian over all directions, kept from round to round.

.. math:: H_{jk} = \sum_i s_i\, p_{ic} (\delta_{cd} - p_{id})\, v_{ij} v_{ik}

for directions j and k of classes c and d, with the probabilities p of an earlier point. As
:class:`fastadmm.method.span_hessian.SpanHessian`: what comes later adds rows and columns, and
only another point costs the whole.
"""

from __future__ import annotations

import numpy as np

from fastadmm.coordinator.proximal.class_newton import class_products
from fastadmm.engine.engine import Engine
from fastadmm.method.span_hessian import SpanHessian

__all__ = ["ClassHessian"]

Array = np.ndarray


class ClassHessian(SpanHessian):
    """Hessian of the summed loss in C intercepts (first, if there are any) and coefficients.

    Shapes: reference (C N,).
    """

    def __init__(self, lifts: int) -> None:
        super().__init__(False)
        self.lead = lifts
        self.forget()

    def move(
        self, messages: Array, rows: Array, classes: Array, likely: Array, weight: Array, engine: Engine
    ) -> None:
        """To another point: computes the whole matrix.

        Shapes: messages (R, N); rows, classes (K,); likely (C, N); weight (N,).
        """
        self.reference, self.matrix = likely.ravel(), np.zeros((0, 0))
        self.grow(messages, rows, classes, weight, engine)

    def grow(self, messages: Array, rows: Array, classes: Array, weight: Array, engine: Engine) -> None:
        """Take in the coefficients behind the first ``n_messages``."""
        assert self.reference is not None
        likely, known = self.reference.reshape(-1, messages.shape[1]), len(self.matrix)
        of_class = np.append(np.arange(self.lead), classes)
        border = class_products(messages, rows, of_class, known, likely, weight, engine)
        grown = np.empty((len(of_class), len(of_class)))
        grown[:known, :known] = self.matrix
        grown[:, known:] = border
        grown[known:, :known] = border[:known].T
        corner = border[known:]
        grown[known:, known:] = 0.5 * (corner + corner.T)
        self.matrix = grown
