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
from fastadmm.method.span_hessian import SpanHessian

Array = np.ndarray

#: Rows whose products are formed at a time: of some hundred messages they stay in the second-level cache.
_BLOCK = 1024


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
