r"""Hessian of the loss over the span of all messages, kept from round to round.

.. math:: H = \bar V \,\mathrm{diag}(h)\, \bar V^\top, \qquad
          \bar V = \begin{pmatrix} \mathbf 1^\top \\ V \end{pmatrix}

(the first row only with an intercept), at a *reference* curvature h. A new
message adds a row and a column, which costs one product with V; only moving
the reference costs all K² N. Steps with a slightly old reference are chord
steps of Newton's method: see :mod:`fastadmm.method.span`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fastadmm.engine.engine import Engine


class SpanHessian:
    """Hessian of the summed loss in intercept (first, if there is one) and coefficients.

    Shapes: matrix (K, K) or (K + 1, K + 1); reference (N,).
    """

    def __init__(self, intercept: bool) -> None:
        self.lead = int(intercept)
        self.reference: np.ndarray | None = None
        self.forget()

    @property
    def n_messages(self) -> int:
        """Number of messages that the matrix covers."""
        return len(self.matrix) - self.lead

    @property
    def saved(self) -> np.ndarray | None:
        """The matrix, as far as there is a reference."""
        return None if self.reference is None else self.matrix

    @saved.setter
    def saved(self, matrix: np.ndarray) -> None:
        self.matrix = matrix

    def forget(self) -> None:
        """Start again, without messages."""
        self.matrix, self.reference = np.zeros((self.lead, self.lead)), None

    def refresh(
        self,
        messages: np.ndarray,
        curvature: np.ndarray,
        engine: Engine,
        gradient: np.ndarray | None = None,
        root: np.ndarray | None = None,
    ) -> np.ndarray:
        """Compute the whole matrix at a new reference.

        Shapes: messages (K, N); curvature, gradient, root (N,); the result (K,) or (0,).
        """
        from fastadmm.kernels.blas import routine
        from fastadmm.kernels.span_hessian import span_hessian

        size, leaves = self.lead + len(messages), engine.leaves(len(curvature))
        self.reference = curvature
        root = engine.each(np.sqrt, curvature) if root is None else root
        given = messages, root, self.lead, routine("dsyrk")
        parts = [engine.kernel_parts(span_hessian, leaves, (size, size), *given)]
        if gradient is not None:
            parts.append(engine.dot_parts(messages, gradient))
        matrix, *products = engine.together(*parts)
        self.matrix = matrix + np.triu(matrix, 1).T
        return products[0] if products else np.empty(0)

    def extend(self, messages: np.ndarray, gradient: np.ndarray, engine: Engine) -> np.ndarray:
        """Extend the matrix by all messages after the first ``n_messages``; return V g, in the same pass.

        Shapes: messages (K, N); gradient (N,); the result (K,).
        """
        from fastadmm.kernels.blas import routine
        from fastadmm.kernels.span_hessian import span_border

        known, k, lead, h = self.n_messages, len(messages), self.lead, self.reference
        assert h is not None
        if known == k:
            return np.asarray(engine.dot(messages, gradient))
        if not known:
            return self.refresh(messages, h, engine, gradient)
        new = k - known

        # Two messages and two columns at least: BLAS takes a vector in an order that depends on addresses.
        given = messages, known, h, gradient, routine("dgemm")
        leaves, shape = engine.leaves(messages.shape[1]), (k, new + 1)
        parts = [engine.kernel_parts(span_border, leaves, shape, *given)]
        if lead:
            parts.append(engine.dot_parts(messages[known:], h))
        products, *border = engine.together(*parts)
        grown = np.zeros((lead + k, lead + k))
        grown[: lead + known, : lead + known] = self.matrix
        grown[lead:, lead + known :] = products[:, :new]
        grown[lead + known :, lead:] = products[:, :new].T
        corner = products[known:, :new]
        grown[lead + known :, lead + known :] = 0.5 * (corner + corner.T)
        if lead:
            grown[0, 1 + known :] = grown[1 + known :, 0] = border[0]
        self.matrix = grown
        slopes: np.ndarray = products[:, new]
        return slopes

    def reflect(self, unit: np.ndarray, mine: np.ndarray) -> None:
        """Reflect a party's directions as is done in V: see :mod:`fastadmm.parties.reflection`.

        Shapes: unit, mine (K_m,).
        """
        if self.reference is None:
            return
        own, matrix = self.lead + mine, self.matrix
        products = unit @ matrix[own]
        products[own] -= float(products[own] @ unit) * unit
        change = 2.0 * np.outer(unit, products)
        matrix[own] -= change
        matrix[:, own] -= change.T

    def drop(self, places: Sequence[int]) -> None:
        """Delete some rows of V."""
        if self.reference is not None:
            stay = np.delete(np.arange(len(self.matrix)), np.asarray(places) + self.lead)
            self.matrix = self.matrix[stay[:, np.newaxis], stay]

    def recombine(self, rotation: np.ndarray, rows: np.ndarray, stay: np.ndarray) -> None:
        """Follow messages that are replaced by combinations of them; start again if not all are covered.

        Shapes: rotation (r, n); rows (n,); stay (K,).
        """
        if self.reference is None or self.n_messages < len(stay):
            self.forget()
            return
        whole = np.eye(len(self.matrix))
        own = self.lead + rows
        whole[np.ix_(own[: len(rotation)], own)] = rotation
        whole = whole[np.append(np.full(self.lead, True), stay)]
        self.matrix = whole @ self.matrix @ whole.T
