r"""The best weights for few rows: Newton's method on the Gram matrix of the rows.

The optimum is a combination of rows, :math:`x = D^\top a`, so the columns, however many, matter only through
:math:`K = D D^\top` (Schölkopf, Herbrich and Smola 2001). With :math:`K = U^\top U` and :math:`c = U a`
the problem is one over c, with the rows of U as messages. Its Hessian :math:`U H U^\top + \lambda W` is never
formed; only

.. math:: B = \lambda W + H^{1/2} K H^{1/2}

is factorised (Rasmussen and Williams 2006, section 3.4): with :math:`Q = U H^{1/2} B^{-1}` the inverse is
:math:`(1 - Q H^{1/2} U^\top) / (\lambda W)`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fastadmm.coordinator.subspace.span import Here, Span, SpanPoint, descend_to
from fastadmm.coordinator.subspace.span_hessian import SpanHessian
from fastadmm.engine.engine import Engine
from fastadmm.problem.problem import Problem

__all__ = ["minimise_over_rows"]

Array = np.ndarray

#: Rounding error of K per row, as a share of its largest diagonal entry.
_ROUNDING = 1e-15


class _RowSpan(Span):
    """The span of all rows, in coordinates c."""

    def __init__(self, problem: Problem, kernel: Array, factor: Array, engine: Engine) -> None:
        super().__init__(problem, factor, engine)
        self.kernel = kernel

    def start(self, point: SpanPoint, hessian: SpanHessian) -> Here:
        return self.refreshed(point, hessian)

    def refreshed(self, point: SpanPoint, hessian: SpanHessian) -> Here:
        self.renew(hessian, point)
        assert point.gradient is not None
        return self.here(point, self.messages @ point.gradient)

    def renew(self, hessian: SpanHessian, point: SpanPoint) -> None:
        hessian.reference = self.curvature(point)

    def solver(self, hessian: SpanHessian) -> Callable[[Array], Array]:
        from scipy.linalg.lapack import dpotrf, dpotrs

        assert hessian.reference is not None
        root, factor, lead, scale = np.sqrt(hessian.reference), self.messages, self.lead, self.scale
        system = self.kernel * root
        system *= root[:, np.newaxis]
        system.reshape(-1)[:: len(root) + 1] += scale
        lower, _ = dpotrf(system.T, lower=True, overwrite_a=True, clean=False)

        def inverse(v: Array) -> Array:
            image: Array = dpotrs(lower, root * v, lower=True)[0]
            return root * image

        ones = inverse(np.ones(len(root)))
        border = factor @ ones

        def solve(slope: Array) -> Array:
            own = slope[lead:]
            step = (own - factor @ inverse(own @ factor)) / scale
            if not lead:
                return step
            total = scale * float(ones.sum())
            rise = (float(slope[0]) - float(border @ own)) / total if total > 0.0 else 0.0
            return np.append(rise, step - rise * border)

        return solve


def minimise_over_rows(
    problem: Problem, kernel: Array, tolerance: float, wanted: float, engine: Engine
) -> tuple[Array, float] | None:
    """Coefficients of the rows, of shape (N,), and intercept; None if K has no Cholesky factor.

    Shapes: kernel (N, N).
    """
    from scipy.linalg.lapack import dpotrf, dtrtrs

    n = len(kernel)
    kernel[np.diag_indices(n)] += _ROUNDING * n * float(kernel.diagonal().max())
    factor, failed = dpotrf(kernel, lower=False, clean=True)
    if failed:
        return None
    span = _RowSpan(problem, kernel, np.ascontiguousarray(factor), engine)
    start = span.evaluated(SpanPoint(np.zeros(n), 0.0, np.zeros(n)))
    point = descend_to(span, start, tolerance, wanted, SpanHessian(problem.fit_intercept))
    return dtrtrs(factor, point.coefficients)[0], point.intercept
