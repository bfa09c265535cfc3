r"""The gradient to send with few rows and many columns: at the minimiser of a model of the whole problem.

The optimum is :math:`x_m = -D_m^\top u / (\lambda W)` with one vector u of N numbers, and the features matter
only through :math:`K = \sum_m D_m D_m^\top`. Once there are about as many directions as rows, the minimiser
over their span fits the data with whatever directions happen to be there; its gradient is far from u and
proves almost nothing. The messages V give a lower bound of K,

.. math:: K = V^\top V + E, \qquad E \succeq 0,

and for every q that was sent and answered with block gradients, they give Kq itself. So the coordinator
approximates E by

.. math:: \hat E = R\,(Q^\top R)^+ R^\top + \sigma\,(I - Q Q^\top), \qquad R = K Q - V^\top V Q

with orthonormal Q and a share of the last quotient :math:`q^\top E q` as :math:`\sigma`, and sends
next the loss gradient at the minimiser of
:math:`\ell(z) + \tfrac{\lambda W}2 z^\top \hat K^{-1} z`. R is zero until directions are discarded. After as
many rounds as there are rows, :math:`\hat K = K`. That gradient is a dual point like any other, so the
certificate does not depend on the approximation. See ``docs/solver.md``.

For a loss with clamped lines as derivatives the dual of the model is a convex quadratic over a box, with or
without a sum of zero, which Mehrotra's interior point method minimises.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.method.bent_rows import Lines
from fastadmm.method.certificate import primal_value
from fastadmm.method.method import StallWatch
from fastadmm.method.span import Span, SpanPoint, minimise_over_span
from fastadmm.problem.problem import Problem

Array = np.ndarray

_MAX_STEPS = 60

#: Share of the value that rounding hides.
_ENOUGH = 1e-12

#: A step goes this share of the way to the next bound.
_INSIDE = 0.995


def minimise_over_box(
    hessian: Array, linear: Array, low: Array, high: Array, balanced: bool, tolerance: float
) -> tuple[Array, float]:
    r"""Minimise :math:`\tfrac12 u^\top H u + c^\top u` for :math:`l \le u \le h`.

    Shapes: hessian (n, n); linear, low, high, u (n,).
    """
    u, multiplier = 0.5 * (low + high), 0.0
    size = float(np.abs(hessian @ u + linear).mean()) or 1.0
    below, above = np.full(len(u), size), np.full(len(u), size)
    for _ in range(_MAX_STEPS):
        down, up, slopes = u - low, high - u, hessian @ u + linear
        residual, product = slopes + multiplier - below + above, float(below @ down + above @ up)
        enough = max(tolerance, 0.5 * _ENOUGH * abs(float((slopes + linear) @ u)))
        if product <= enough and float(np.abs(residual) @ (high - low)) <= enough:
            break
        newton = _newton(hessian, (down, up), (below, above), residual, float(u.sum()), balanced)
        if newton is None:
            break
        step, _, low_step, high_step = newton(-below * down, -above * up)
        length = _longest((down, step), (up, -step), (below, low_step), (above, high_step))
        left = (below + length * low_step) @ (down + length * step)
        left += (above + length * high_step) @ (up - length * step)
        centre = float(left / product) ** 3 * product / (2 * len(u))
        corrected = centre - below * down - step * low_step, centre - above * up + step * high_step
        step, rise, low_step, high_step = newton(*corrected)
        length = _INSIDE * _longest((down, step), (up, -step), (below, low_step), (above, high_step))
        if not length > 0.0:
            break
        u, multiplier = u + length * step, multiplier + length * rise
        below, above = below + length * low_step, above + length * high_step
    return u, multiplier


def _newton(
    hessian: Array,
    distances: tuple[Array, Array],
    multipliers: tuple[Array, Array],
    residual: Array,
    total: float,
    balanced: bool,
) -> Callable[[Array, Array], tuple[Array, float, Array, Array]] | None:
    """Newton steps for any targets of the products of multipliers and distances; None without a factor.

    They are changes of u, of the sum's multiplier, and of the multipliers of the bounds.
    """
    from scipy.linalg.lapack import dpotrf, dpotrs

    matrix = hessian.copy()
    (down, up), (below, above) = distances, multipliers
    matrix[np.diag_indices(len(matrix))] += below / down + above / up
    factor, failed = dpotrf(matrix.T, lower=True, overwrite_a=True, clean=False)
    if failed:
        return None
    along = dpotrs(factor, np.ones(len(matrix)), lower=True)[0] if balanced else residual

    def newton(to_low: Array, to_high: Array) -> tuple[Array, float, Array, Array]:
        step, rise = dpotrs(factor, to_low / down - to_high / up - residual, lower=True)[0], 0.0
        if balanced:
            rise = (float(step.sum()) + total) / float(along.sum())
            step = step - rise * along
        return step, rise, (to_low - below * step) / down, (to_high + above * step) / up

    return newton


def _longest(*pairs: tuple[Array, Array]) -> float:
    """Longest step, up to one, that keeps positive vectors positive."""
    length = 1.0
    for place, step in pairs:
        falling = step < 0.0
        if falling.any():
            length = min(length, float((place[falling] / -step[falling]).min()))
    return length


#: After so many rounds in which neither gap (by a tenth) nor objective falls, the usual gradient is sent.
_MOST_STILL = 5

#: Most rows: a model costs about their cube.
MOST_ROWS = 1024

#: sigma as a share of the quotient along the last gradient: gradients are biased towards large quotients.
#: Values up to a half make no difference; a fifth takes some 5 % more rounds, a tenth 15 %.
_SHARE = 0.35

#: A gradient counts as new if more than this share of it is orthogonal to the earlier ones.
_NEW = 1e-8

#: R counts from this share of K's trace along Q on; and the rounding error of K per row.
_LEAST, _ROUNDING = 1e-10, 1e-13


def has_few_rows(n_samples: int, n_columns: int) -> bool:
    """Whether there are more columns than rows, and few enough rows for a model of the whole problem."""
    return n_samples < n_columns and n_samples <= MOST_ROWS


class FewRows:
    """What is known of K, and the dual point that follows from it, to a tolerance in the summed scaling.

    Shapes: asked, images (k, N); dual, total, intercept (N,).
    """

    def __init__(self, n_samples: int) -> None:
        self.asked = self.images = np.empty((0, n_samples))
        self.size = self.tolerance = 0.0
        self.dual, self.total = np.zeros(n_samples), np.zeros(n_samples)
        self.intercept = 0.0
        self.watch = StallWatch()

    def proves_no_more(self, gap: float, gains: bool) -> bool:
        """Record a round's gap and whether the objective fell; whether neither has improved for long."""
        if gains:
            self.watch = StallWatch()
        self.watch.stalls(gap)
        return self.watch.n_still >= _MOST_STILL

    def learn(self, gradient: Array, messages: Array, known: int, engine: Engine) -> None:
        """Update the approximation of K by the answers to a gradient.

        Shapes: gradient (N,); messages (K, N).
        """
        norm = float(np.sqrt(engine.dot(gradient[np.newaxis], gradient)[0]))
        products = engine.dot(messages, gradient)
        image = engine.combine(products, messages)
        new = gradient
        for _ in range(2):
            shares = engine.dot(self.asked, new) if len(self.asked) else np.empty(0)
            new = new - engine.combine(shares, self.asked)
            image = image - engine.combine(shares, self.images)
        left = float(np.sqrt(engine.dot(new[np.newaxis], new)[0]))
        if not left > _NEW * norm:
            return
        gained = products[known:]
        if len(gained):
            self.size = float(gained @ gained) / (left * left)
        self.asked = np.vstack([self.asked, new / left])
        self.images = np.vstack([self.images, image / left])

    def aim(self, problem: Problem, messages: Array, engine: Engine) -> bool:
        """Minimise the model of the problem; whether that gave a gradient. Shapes: messages (K, N)."""
        if not len(self.asked):
            return False
        kernel = self._kernel(messages, engine)
        return self._aim_in_box(problem, kernel, engine) or self._aim_in_span(problem, kernel, engine)

    def _aim_in_box(self, problem: Problem, kernel: Array, engine: Engine) -> bool:
        """By the dual program of a loss whose derivative is a clamped line; False for other losses."""
        if problem.loss.bends(problem.y) is None:
            return False
        lines = Lines.of(problem, engine)
        open_ended = ~(np.isfinite(lines.least) & np.isfinite(lines.most))
        rows = np.flatnonzero((lines.least < lines.most) & (lines.rise > 0.0))
        if open_ended.any() or not len(rows):
            return False
        u, (low, high), rise = np.zeros(len(kernel)), (lines.least[rows], lines.most[rows]), lines.rise[rows]
        hessian = kernel[np.ix_(rows, rows)] / problem.regularization
        hessian[np.diag_indices(len(rows))] += 1.0 / rise
        linear = lines.origin[rows] - lines.slope[rows] / rise - problem.offset[rows]
        given = hessian, linear, low, high, problem.fit_intercept, self.tolerance
        u[rows], multiplier = minimise_over_box(*given)
        if not np.isfinite(u).all():
            return False
        self.dual, self.total, self.intercept = u, kernel @ u / -problem.regularization, -multiplier
        return True

    def _aim_in_span(self, problem: Problem, kernel: Array, engine: Engine) -> bool:
        """By Newton's method in the predictor."""
        from scipy.linalg.lapack import dpotrf

        scale = float(kernel.diagonal().max())
        kernel[np.diag_indices(len(kernel))] += _ROUNDING * len(kernel) * scale
        factor, failed = dpotrf(kernel, lower=False, clean=True)
        if failed:
            return False
        factor = np.ascontiguousarray(factor)
        span = Span(problem, factor, engine)
        here = engine.dot(factor, self.dual / -problem.regularization)
        starts = [
            span.evaluated(SpanPoint(c, self.intercept, engine.combine(c, factor)))
            for c in (here, np.zeros(len(here)))  # with another K the old minimiser may be far off
        ]
        start = min(starts, key=lambda point: span.value_at(point) if np.isfinite(point.loss) else np.inf)
        point = minimise_over_span(problem, factor, start, self.tolerance, engine)
        found = primal_value(problem, point.total, point.intercept, engine, point.known)
        if not (np.isfinite(found.loss) and np.isfinite(found.gradient).all()):
            return False
        self.dual, self.total, self.intercept = found.gradient, point.total, float(found.intercept)
        return True

    def _kernel(self, messages: Array, engine: Engine) -> Array:
        kernel = messages.T @ messages
        rest = self.images - np.array([engine.combine(engine.dot(messages, q), messages) for q in self.asked])
        cross = np.array([engine.dot(rest, q) for q in self.asked])
        values, vectors = np.linalg.eigh(0.5 * (cross + cross.T))
        whole = float(np.abs(np.einsum("ij,ij->i", self.images, self.asked)).sum())
        kept = values > _LEAST * whole
        if kept.any():
            lost = (vectors[:, kept] / np.sqrt(values[kept])).T @ rest
            kernel += lost.T @ lost
        off = -self.asked.T @ self.asked
        off[np.diag_indices(len(off))] += 1.0
        kernel += _SHARE * self.size * off
        return kernel

    @property
    def numbers(self) -> Array:
        """Its numbers, as they are saved."""
        return np.array([self.size, self.intercept, self.watch.reference, self.watch.n_still])

    @numbers.setter
    def numbers(self, saved: Array) -> None:
        self.size, self.intercept, reference, still = map(float, saved)
        self.watch = StallWatch(reference, int(still))
