r"""Hessian of the loss over the span of all messages, kept from round to round.

.. math:: H = \bar V \,\mathrm{diag}(h)\, \bar V^\top, \qquad
          \bar V = \begin{pmatrix} \mathbf 1^\top \\ V \end{pmatrix}

(the first row only with an intercept), at a *reference* curvature h. A new
message adds a row and a column, which costs one product with V; only moving
the reference costs all K² N. Steps with a slightly old reference are chord
steps of Newton's method: see :mod:`fastadmm.coordinator.subspace.span`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from fastadmm.engine.engine import Engine

__all__ = ["SpanHessian", "row_blocks", "span_products"]

#: Messages are read in blocks of about this many numbers, which stay in the second-level cache.
_NUMBERS_PER_BLOCK = 1 << 17

_FEWEST_ROWS = 1024

#: So few messages are multiplied with each other by a kernel, without a matrix product's overhead.
_FEW_MESSAGES = 32


def row_blocks(rows: tuple[int, int], n_messages: int) -> Iterator[tuple[int, int]]:
    """Cut a row range into blocks whose messages fit into the cache; the cut depends on sizes alone."""
    size = max(_FEWEST_ROWS, _NUMBERS_PER_BLOCK // max(1, n_messages))
    for begin in range(rows[0], rows[1], size):
        yield begin, min(begin + size, rows[1])


def span_products(
    messages: np.ndarray, right: Callable[[int, int], np.ndarray], width: int, engine: Engine
) -> np.ndarray:
    """Product of all messages with a few other vectors, in one pass.

    Parameters
    ----------
    messages : ndarray of shape (K, N)
        V.
    right : callable
        Rows ``begin ... end`` of the other vectors, of shape (width, end - begin).
    width : int
        How many there are.
    engine : Engine

    Returns
    -------
    ndarray of shape (K, width)
    """
    found: np.ndarray
    (found,) = engine.together(_product_parts(messages, right, width, engine))
    return found


def _product_parts(
    messages: np.ndarray, right: Callable[[int, int], np.ndarray], width: int, engine: Engine
) -> list[Any]:
    """What :func:`span_products` adds up."""

    def piece(rows: tuple[int, int]) -> np.ndarray:
        total = np.zeros((len(messages), width))
        for begin, end in row_blocks(rows, len(messages)):
            total += messages[:, begin:end] @ right(begin, end).T
        return total

    leaves = engine.leaves(messages.shape[1])
    return engine.parts(piece, leaves, light=True, size=len(messages) * width)


class SpanHessian:
    """Hessian of the summed loss in intercept (first, if there is one) and coefficients.

    Parameters
    ----------
    intercept : bool

    Attributes
    ----------
    matrix : ndarray of shape (K, K) or (K + 1, K + 1)
        Without the regulariser.
    reference : ndarray of shape (N,) or None
        The curvature it belongs to; None before the first :meth:`refresh`.
    """

    def __init__(self, intercept: bool) -> None:
        self.lead = int(intercept)
        self.reference: np.ndarray | None = None
        self.forget()

    @property
    def n_messages(self) -> int:
        """K of the messages taken in."""
        return len(self.matrix) - self.lead

    def forget(self) -> None:
        """Know no message."""
        self.matrix, self.reference = np.zeros((self.lead, self.lead)), None

    def refresh(
        self, messages: np.ndarray, curvature: np.ndarray, engine: Engine, gradient: np.ndarray | None = None
    ) -> np.ndarray:
        """Move the reference: computes the whole matrix.

        Parameters
        ----------
        messages : ndarray of shape (K, N)
        curvature : ndarray of shape (N,)
            h, kept by reference.
        engine : Engine
        gradient : ndarray of shape (N,), optional
            g.

        Returns
        -------
        ndarray of shape (K,), or (0,)
            V g.
        """
        from fastadmm.kernels.vectors import square_root

        k, root = len(messages), np.empty(len(curvature))
        engine.over_rows(square_root, engine.leaves(len(curvature)), curvature, root)
        parts, self.reference = [self._matrix_parts(messages, root, engine)], curvature
        if gradient is not None:
            parts.append(engine.dot_parts(messages, gradient))
        matrix, *products = engine.together(*parts)
        self.matrix = matrix + np.triu(matrix, 1).T if self.lead + k <= _FEW_MESSAGES else matrix
        return products[0] if products else np.empty(0)

    def _matrix_parts(self, messages: np.ndarray, root: np.ndarray, engine: Engine) -> list[Any]:
        """Sums of the matrix at a curvature whose root is known; of few messages its upper half."""
        size, leaves = self.lead + len(messages), engine.leaves(len(root))
        if size <= _FEW_MESSAGES:
            from fastadmm.kernels.span_hessian import span_hessian

            return engine.kernel_parts(span_hessian, leaves, (size, size), messages, root, self.lead)

        def piece(rows: tuple[int, int]) -> np.ndarray:
            total = np.zeros((size, size))
            for begin, end in row_blocks(rows, size):
                part, own = messages[:, begin:end], root[begin:end]
                bent = np.flatnonzero(own)
                if 2 * len(bent) <= len(own):  # a loss with flat pieces bends at few samples
                    part, own = part[:, bent], own[bent]
                scaled = np.empty((size, len(own)))
                scaled[: self.lead] = own
                np.multiply(part, own, out=scaled[self.lead :])
                total += scaled @ scaled.T
            return total

        return engine.parts(piece, leaves, light=True, size=size**2)

    def extend(self, messages: np.ndarray, gradient: np.ndarray, engine: Engine) -> np.ndarray:
        """Take in the messages behind the first ``n_messages``; return V g, which costs no extra pass.

        Parameters
        ----------
        messages : ndarray of shape (K, N)
        gradient : ndarray of shape (N,)
        engine : Engine

        Returns
        -------
        ndarray of shape (K,)
        """
        known, k, lead, h = self.n_messages, len(messages), self.lead, self.reference
        assert h is not None
        if known == k:
            return np.asarray(engine.dot(messages, gradient))
        if not known:
            return self.refresh(messages, h, engine, gradient)
        new = k - known

        def right(begin: int, end: int) -> np.ndarray:
            rows = np.empty((new + 1, end - begin))
            np.multiply(messages[known:, begin:end], h[begin:end], out=rows[:new])
            rows[new] = gradient[begin:end]
            return rows

        # Two messages and two columns at least: BLAS takes a vector in an order that depends on addresses.
        parts = [_product_parts(messages, right, new + 1, engine)]
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
        """Turn a party's directions as the coordinator does in V: see :mod:`fastadmm.parties.reflection`.

        Parameters
        ----------
        unit : ndarray of shape (K_m,)
        mine : ndarray of int, shape (K_m,)
            Rows of V that are reflected.
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
        """Forget some rows of V."""
        if self.reference is not None:
            stay = np.delete(np.arange(len(self.matrix)), np.asarray(places) + self.lead)
            self.matrix = self.matrix[stay[:, np.newaxis], stay]

    def recombine(self, rotation: np.ndarray, rows: np.ndarray, stay: np.ndarray) -> None:
        """Follow messages that are replaced by combinations of them; forgets all if it had not taken in all.

        Parameters
        ----------
        rotation : ndarray of shape (r, n)
        rows : ndarray of int, shape (n,)
            Of V, replaced by r combinations in the first r of their places.
        stay : ndarray of bool, shape (K,)
            Which places stay.
        """
        if self.reference is None or self.n_messages < len(stay):
            self.forget()
            return
        whole = np.eye(len(self.matrix))
        own = self.lead + rows
        whole[np.ix_(own[: len(rotation)], own)] = rotation
        whole = whole[np.append(np.full(self.lead, True), stay)]
        self.matrix = whole @ self.matrix @ whole.T
