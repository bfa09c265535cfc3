r"""What stands for the multinomial Hessian in the span: one matrix of the messages for all classes.

The Hessian, :math:`\sum_i (\mathrm{diag}(p_i) - p_i p_i^\top) \otimes v_i v_i^\top`, has C K rows. In its
place :math:`T \otimes \sum_i h_i v_i v_i^\top`, with the mean curvature h of the classes per sample and the
mean T of the other factor. In the eigenvectors of T the classes are apart: it is solved by C
factorisations of K rows, and a new message costs its products with the others once for all classes.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.method.span import span_solver
from fastadmm.method.span_hessian import SpanHessian

__all__ = ["ClassSpanHessian"]

Array = np.ndarray

#: Classes so rare that the Hessian is a smaller share of the mean along them get this share: their
#: curvature grows as they are learned.
_LEAST_SHARE = 0.1


class ClassSpanHessian:
    """Kronecker product in place of the summed loss's Hessian.

    Shapes: classes (C, C).
    """

    def __init__(self, intercept: bool) -> None:
        self.span = SpanHessian(intercept)
        self.classes = np.empty((0, 0))

    def refresh(self, messages: Array, curvature: Array, sums: Array, engine: Engine) -> None:
        """Move to another point.

        Shapes: messages (K, N); curvature (N,); sums (C, C).
        """
        n, trace = len(sums), float(np.trace(sums))
        scaled = sums * (n / trace) if trace > 0.0 else np.eye(n)
        self.classes = scaled + 1.0 / n
        self.span.refresh(messages, curvature, engine)

    def extend(self, messages: Array, engine: Engine) -> None:
        """Take in the messages, of shape (K, N), behind those that it knows."""
        reference = self.span.reference
        assert reference is not None
        if len(messages) > self.span.n_messages:
            self.span.extend(messages, reference, engine)

    def solver(self, ridge: float, total_weight: float) -> Callable[[Array], Array]:
        """Solver of the system with a regulariser."""
        shares, turn = np.linalg.eigh(self.classes)
        lead, rows = self.span.lead, len(self.span.matrix)
        diagonal = np.full(rows, ridge)
        diagonal[:lead] = 1e-14 * total_weight
        solvers = []
        for share in shares:
            system = max(float(share), _LEAST_SHARE) * self.span.matrix
            system[np.diag_indices(rows)] += diagonal
            solvers.append(span_solver(system))

        def solve(slope: Array) -> Array:
            turned = turn.T @ slope.reshape(len(shares), rows)
            solved = np.array([one(row) for one, row in zip(solvers, turned)])
            return (turn @ solved).ravel()

        return solve
