r"""Newton's system of the multinomial loss in the coefficients of messages, each of one class.

The Hessian in the predictors is :math:`s\,(\mathrm{diag}(p) - p p^\top)` per sample: a pair of messages
of class c is weighed by :math:`s\,p_c (1 - p_c)`, one of classes c and k by :math:`-s\,p_c p_k`.

The Hessian over all directions is kept from round to round:

.. math:: H_{jk} = \sum_i s_i\, p_{ic} (\delta_{cd} - p_{id})\, v_{ij} v_{ik}

for directions j and k of classes c and d, with the probabilities p of an earlier point. As
:class:`fastadmm.method.span_hessian.SpanHessian`: what comes later adds rows and columns, and
only another point costs the whole.
"""

from __future__ import annotations

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.method.class_certificate import multinomial_of
from fastadmm.method.span_hessian import SpanHessian
from fastadmm.problem.problem import Problem

Array = np.ndarray

#: Rows whose products are formed at a time: of some hundred messages they stay in the second-level cache.
_BLOCK = 1024


def class_newton_system(
    problem: Problem,
    messages: Array,
    classes: Array,
    base: Array | None,
    gradient: Array,
    z: Array,
    engine: Engine,
) -> tuple[Array, Array]:
    """Gradient and Hessian of the loss in the coefficients and, last, the C intercepts if there are any.

    Shapes: messages (K, N); classes, base (K,); gradient, z (C N,); slope (K + C,) or (K,); hessian (K + C, K
        + C) or (K, K).
    """
    k, n_classes, weight = len(messages), problem.n_outputs, problem.weight
    likely = multinomial_of(problem).probabilities(z, problem.y, weight, engine)
    slopes = gradient.reshape(n_classes, -1)
    lifts = n_classes if problem.fit_intercept else 0
    of_class = np.append(classes, np.arange(lifts))
    blocks = [np.ix_(mine, mine) for mine in (np.flatnonzero(of_class == c) for c in range(n_classes))]

    def piece(rows: tuple[int, int]) -> tuple[Array, Array]:
        here = slice(*rows)
        part, p, s = _with_ones(messages[:, here], base, lifts), likely[:, here], weight[here]
        mixed = part * (np.sqrt(s) * p)[of_class]
        hessian = -(mixed @ mixed.T)
        # Within a class 1 - p without its rounding: what is summed up before it and behind it.
        others = np.zeros_like(p)
        np.cumsum(p[:-1], axis=0, out=others[1:])
        others[:-1] += np.cumsum(p[:0:-1], axis=0)[::-1]
        for c, block in enumerate(blocks):
            own = part[block[1][0]]
            hessian[block] = (own * (s * p[c] * others[c])) @ own.T
        return _slopes(part, slopes[:, here], of_class), hessian

    slope, hessian = engine.sums(piece, engine.leaves(messages.shape[1]), size=(k + lifts) ** 2)
    # The loss does not depend on the same number added to all intercepts: any positive value will do there.
    hessian[k:, k:] += problem.total_weight / n_classes**2
    return slope, 0.5 * (hessian + hessian.T)


def _with_ones(part: Array, base: Array | None, lifts: int) -> Array:
    """Messages less those they are taken from; an intercept is a message of ones."""
    part = part if base is None else part - part[base]
    return np.vstack([part, np.ones((lifts, part.shape[1]))]) if lifts else part


def _slopes(part: Array, slopes: Array, of_class: Array) -> Array:
    """Products with the gradient of the message's class: as in hull.loss_system, no BLAS."""
    products: Array = np.einsum("kn,kn->k", part, slopes[of_class])
    return products


def class_products(
    messages: Array, rows: Array, of_class: Array, known: int, likely: Array, weight: Array, engine: Engine
) -> Array:
    """Columns of the Hessian in intercepts, if there are any, and coefficients.

    Shapes: messages (R, N); rows (K,); of_class (lead + K,); likely (C, N); weight (N,); the result (lead +
        K, lead + K - known).
    """
    size, n_classes, lead = len(of_class), len(likely), len(of_class) - len(rows)
    old = [np.flatnonzero(of_class == c) for c in range(n_classes)]
    new = [own[own >= known] for own in old]

    def piece(leaf: tuple[int, int]) -> Array:
        found = np.zeros((size, size - known))
        for begin in range(*leaf, _BLOCK):
            here = slice(begin, min(begin + _BLOCK, leaf[1]))
            p, s = likely[:, here], weight[here]
            part = np.ones((size, p.shape[1]))
            part[lead:] = messages[:, here][rows]
            mixed = part * (np.sqrt(s) * p)[of_class]
            # Within a class 1 - p without its rounding: what is summed up before it and behind it.
            others = np.zeros_like(p)
            np.cumsum(p[:-1], axis=0, out=others[1:])
            others[:-1] += np.cumsum(p[:0:-1], axis=0)[::-1]
            products = -(mixed @ mixed[known:].T)
            for c, (every, late) in enumerate(zip(old, new)):
                if len(late):
                    own = (part[every] * (s * p[c] * others[c])) @ part[late].T
                    products[np.ix_(every, late - known)] = own
            found += products
        return found

    border: Array = engine.sums(piece, engine.leaves(len(weight)), size=size * (size - known))
    return border


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
