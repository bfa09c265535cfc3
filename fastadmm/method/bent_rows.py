r"""Minimise over the span for a few rows whose losses have clamped lines as derivatives.

Such a sum is piecewise quadratic, so Newton's method with an exact line search ends after finitely many
steps. From step to step few rows enter or leave their quadratic piece, and only these change the Hessian.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.engine.some_rows import SomeRowsEngine
from fastadmm.method.span import SomeRows, Span, SpanPoint, span_solver
from fastadmm.problem.problem import Problem

Array = np.ndarray

_MAX_STEPS = 100

#: If more than this share of the rows on quadratic pieces has changed, the Hessian is computed anew.
_FEW = 0.5

#: Most Newton steps of a line search, and the share of the derivative at 0 at which they end.
_MOST_LENGTHS, _ENOUGH = 60, 1e-10

#: Each of them goes at most so many times as far as the last one.
_GROWTH = 4.0


class Lines(NamedTuple):
    """The slopes ``clamp(slope + rise (z - origin), least, most)`` of rows, each field of shape (n,)."""

    origin: Array
    slope: Array
    rise: Array
    least: Array
    most: Array

    @classmethod
    def of(cls, rows: SomeRows | Problem, engine: Engine) -> Lines:
        """The lines of a loss that is quadratic between two bends and linear beyond them."""
        loss, y, weight = rows.loss, rows.y, rows.weight
        ends = loss.bends(y)
        assert ends is not None
        low, high = ends

        def slope(z: Array) -> Array:
            out = np.empty(len(z))
            loss.value_parts(z, y, weight, out, engine)  # nobody asks for its sum
            return out

        below, above = np.isfinite(low), np.isfinite(high)
        origin = np.where(below, low, high)
        beyond = 1.0 + np.abs(origin)  # where the loss is straight, whatever rounding did to its ends
        inside = np.where(below & above, 0.5 * (low + high), np.where(below, low + 1.0, high - 1.0))
        rise = loss.curvature(inside, y, weight, np.empty(len(y)), engine)
        least = np.where(below, slope(np.where(below, low, 0.0) - beyond), -np.inf)
        most = np.where(above, slope(np.where(above, high, 0.0) + beyond), np.inf)
        return cls(origin, np.where(below, least, most), rise, least, most)

    def at(self, z: Array) -> Array:
        """Slopes at predictors of shape (n,)."""
        raw = self.slope + self.rise * (z - self.origin)
        return np.minimum(np.maximum(raw, self.least), self.most)


def minimise_over_bends(
    rows: SomeRows,
    messages: Array,
    point: SpanPoint,
    tolerance: float,
    engine: Engine,
    tilt: Array,
    most: int = _MAX_STEPS,
) -> SpanPoint:
    """Newton's method from a point. Shapes: messages (K, n); tilt (K,) or (K + 1,)."""
    span, lines = Span(rows, messages, engine, tilt), Lines.of(rows, engine)
    lead, scale = span.lead, span.scale
    z = rows.offset + point.total + point.intercept
    system = _System(messages, lines.rise, lead, engine)
    unknowns = np.append(np.full(lead, point.intercept), point.coefficients)
    own = np.append(np.zeros(lead), np.full(len(messages), scale))
    for _ in range(most):
        g = lines.at(z)
        slope = tilt + own * unknowns
        if lead:
            products, (rise, _) = engine.together(engine.dot_parts(messages, g), engine.size_parts(g))
            slope[0] += rise
        else:
            products = engine.dot(messages, g)
        slope[lead:] += products
        if float(slope[lead:] @ slope[lead:]) <= 2.0 * scale * tolerance:
            break
        system.move_to((g > lines.least) & (g < lines.most))
        step = -span_solver(span.regularised(system.matrix))(slope)
        move = engine.combine(step[lead:], messages)
        if lead:
            move += step[0]
        linear, square = float((tilt + own * unknowns) @ step), float((own * step) @ step)
        length = best_length_of_lines(lines, z, move, linear, square, engine)
        if not length > 0.0:
            break
        z, unknowns = z + length * move, unknowns + length * step
    c, intercept = unknowns[lead:], float(unknowns[0]) if lead else point.intercept
    total = point.total + engine.combine(c - point.coefficients, messages)
    return span.evaluated(SpanPoint(c, intercept, total))


def best_length_of_lines(
    lines: Lines, z: Array, along: Array, linear: float, square: float, engine: Engine, most: float = math.inf
) -> float:
    r"""Step length that minimises along a descent direction; may exceed 1.

    The derivative is piecewise linear: Newton's method inside a bracket ends once it has reached the piece
    that crosses zero.

    Returns: 0 where the derivative at 0 is not negative.
    Shapes: z, along (n,).
    """
    from fastadmm.kernels.piecewise import clamped_slopes

    leaves = engine.leaves(len(z))

    def derivatives(*lengths: float) -> list[tuple[float, float]]:
        given = z, along, *lines
        sums = engine.together(
            *(engine.kernel_parts(clamped_slopes, leaves, (2,), *given, t) for t in lengths)
        )
        return [
            (float(first) + linear + square * t, float(second) + square)
            for (first, second), t in zip(sums, lengths)
        ]

    start, whole = derivatives(0.0, 1.0)
    enough = -_ENOUGH * start[0]
    if not enough > 0.0:
        return 0.0
    t, low, high = 1.0, 0.0, math.inf
    for _ in range(_MOST_LENGTHS):
        first, second = whole if t == 1.0 else derivatives(t)[0]
        if abs(first) <= enough or (first < 0.0 and t >= most):
            return t
        if first < 0.0:
            low = t
        else:
            high = t
        following = t - first / second if second > 0.0 else math.inf
        if not following < high:
            following = 0.5 * (low + high) if high < math.inf else _GROWTH * t
        elif following <= low:
            following = 0.5 * (low + high)
        following = min(following, _GROWTH * t, most)
        if following == t:  # what is left of the derivative is rounding
            return t
        t = following
    return low


class _System:
    """The Hessian of the loss in intercept (first, if there is one) and coefficients.

    Shapes: matrix (lead + K, lead + K).
    """

    def __init__(self, messages: Array, rise: Array, lead: int, engine: Engine) -> None:
        self.messages, self.rise, self.lead, self.engine = messages, rise, lead, engine
        self._bent = np.zeros(messages.shape[1], dtype=bool)
        self.matrix = np.zeros((lead + len(messages), lead + len(messages)))

    def move_to(self, bent: Array) -> None:
        """Update by which rows, a mask of shape (n,), are on their quadratic piece."""
        changed = np.flatnonzero(bent != self._bent)
        n_changed, n_bent = self.engine.total(np.array([bent != self._bent, bent], dtype=float))
        if n_changed > _FEW * n_bent:
            self.matrix = self._products(np.flatnonzero(bent), 1.0)
        elif n_changed:
            sign = np.where(bent[changed], 1.0, -1.0)
            self.matrix = self.matrix + self._products(changed, sign)
        self._bent = bent

    def _products(self, rows: Array, sign: Array | float) -> Array:
        weight, lead = sign * self.rise[rows], self.lead

        def piece(part: tuple[int, int]) -> Array:
            few = np.empty((lead + len(self.messages), part[1] - part[0]))
            few[:lead] = 1.0
            few[lead:] = self.messages[:, rows[part[0] : part[1]]]
            return (few * weight[part[0] : part[1]]) @ few.T

        size = (lead + len(self.messages)) ** 2
        engine = SomeRowsEngine(self.engine, rows, self.messages.shape[1])
        found = engine.sums(piece, engine.leaves(len(rows)), light=True, size=size)
        return 0.5 * (found + found.T)
