"""A projected Newton method in many digits: from any feasible point to a better one, never to a worse.

Weights at a kink or a bound stay there unless the gradient pulls them away; the others take a Newton step,
which is shortened until F, in many digits, falls. It need not converge: what it returns is a feasible point,
and F there is an upper bound of the optimum.
"""

import math
import time

import numpy as np
from mpmath import mp, mpf

from prove.exact import number
from prove.formulas import KINKED, softmax_bend, softmax_slope

#: Bits of slopes and curvatures in sums over rows, relative to the largest.
_BITS = 350

_STEPS, _HALVINGS = 30, 14

#: A step that promises less than this share of F ends.
_ENOUGH = mpf(10) ** -32


def improve(exact, start, reach=None, seconds=1.0):
    """A point of the set, of a reach if one is given, with an objective at most that of the start."""
    if exact.draw.loss in KINKED:
        return start
    point, value, end = start, exact.objective(start), time.perf_counter() + seconds
    for _ in range(_STEPS):
        step = _Step(exact, point, reach)
        found = step.shorter(value) if step.free else None
        if found is None:
            break
        point, fallen = found[0], value - found[1]
        value = found[1]
        if fallen <= _ENOUGH * abs(value) or time.perf_counter() > end:
            break
    return point


def _integers(values):
    """Numbers as integers times one power of two, rounded relative to the largest."""
    top = max((mp.mag(v) for v in values if v), default=0)
    shift = _BITS - int(top)
    out = np.empty(len(values), dtype=object)
    out[:] = [int(mp.floor(mp.ldexp(v, shift))) for v in values]
    return out, -shift


class _Step:
    """The Newton step at a point, on the weights that are free."""

    def __init__(self, exact, point, reach):
        self.exact, self.point, self.reach = exact, point, reach
        self.z = exact.predictor(point)
        self._differentiate()
        self._choose_free()
        if self.free:
            self._solve()

    def _differentiate(self):
        """Slopes of the loss in every weight and intercept, and curvatures per row."""
        e = self.exact
        scale = [w / e.total for w in e.weight]
        slopes = [[mpf(0)] * e.n for _ in range(e.n_classes)]
        bends = {(c, k): [mpf(0)] * e.n for c in range(e.n_classes) for k in range(c + 1)}
        for i in e.used:
            own, y = [z[i] for z in self.z], e.y[i]
            if e.formula is None:
                slope, bend = softmax_slope(own, int(y)), softmax_bend(own)
            else:
                slope, bend = [e.formula.slope(own[0], y)], [[e.formula.bend(own[0], y)]]
            for (c, k), rows in bends.items():
                slopes[c][i] = scale[i] * slope[c]
                rows[i] = scale[i] * bend[c][k]
        self.slopes = [_integers(s) for s in slopes]
        self.bends = {key: _integers(v) for key, v in bends.items()}
        ones = np.empty(e.n, dtype=object)
        ones[:] = 1
        self.design = [*e.columns, (ones, 0)]  # the intercept is the last
        self.gradient = [
            [number(int(ints @ s), ex + se) for ints, ex in self.design] for s, se in self.slopes
        ]

    def _choose_free(self):
        e, self.free, self.sign = self.exact, [], {}
        self.pull = {}
        for c, x in enumerate(self.point.x):
            # Columns of groups that are zero: a Newton method cannot leave the kink.
            dead = {j for g in e.groups if all(x[j] == 0 for j in g) for j in g}
            for j, v in enumerate(x):
                low, high = e.bounds[j]
                if self.reach is not None:
                    low, high = max(mpf(low), -self.reach[j]), min(mpf(high), self.reach[j])
                g = self.gradient[c][j] + e.lam * e.second * v
                kink = e.lam * e.first if not e.groups else mpf(0)
                sign = int(mp.sign(v)) or (1 if g < -kink else -1 if g > kink else 0)
                if j in dead or (kink and sign == 0):
                    continue
                g += kink * sign
                if low == high or (v <= low and g > 0) or (v >= high and g < 0):
                    continue
                self.sign[c, j] = sign
                self.pull[c, j] = g
                self.free.append((c, j))
        if e.draw.fit_intercept:
            # The last class's intercept may stay: only differences count.
            last = e.n_classes - (e.n_classes > 1)
            self.free += [(c, e.d) for c in range(last)]
            self.pull.update({(c, e.d): self.gradient[c][e.d] for c in range(last)})

    def _solve(self):
        e, m = self.exact, len(self.free)
        hessian = [[mpf(0)] * m for _ in range(m)]
        weighted = {}
        for a, (c, j) in enumerate(self.free):
            for b, (k, i) in enumerate(self.free[: a + 1]):
                key = (c, k, j) if c >= k else (k, c, j)
                if key not in weighted:
                    bend, exponent = self.bends[key[0], key[1]]
                    weighted[key] = self.design[j][0] * bend, self.design[j][1] + exponent
                ints, exponent = weighted[key]
                hessian[a][b] = number(int(ints @ self.design[i][0]), exponent + self.design[i][1])
        for a, (_, j) in enumerate(self.free):
            if j < e.d:
                hessian[a][a] += e.lam * e.second
        self._bend_penalty(hessian)
        self.move = _solved(hessian, [-self.pull[key] for key in self.free])

    def _bend_penalty(self, hessian):
        """Slope and curvature of norms of groups, and of balls whose surface holds the weights."""
        e, place = self.exact, {key: a for a, key in enumerate(self.free)}
        for c, x in enumerate(self.point.x):
            for g in e.groups:
                own = [j for j in g if (c, j) in place]
                norm = mp.sqrt(sum((x[j] ** 2 for j in g), mpf(0)))
                if not own or not norm:
                    continue
                factor = e.lam * mp.sqrt(len(g)) / norm
                for j in own:
                    self.pull[c, j] += factor * x[j]
                    for i in own:
                        a, b = place[c, j], place[c, i]
                        if b <= a:
                            hessian[a][b] += factor * ((i == j) - x[i] * x[j] / norm**2)
            for columns, radius in zip(e.parties, e.radii):
                own = [j for j in columns if (c, j) in place]
                if not own or not math.isfinite(radius):
                    continue
                square = sum((x[j] ** 2 for j in own), mpf(0))
                inwards = sum((self.pull[c, j] * x[j] for j in own), mpf(0))
                if square < mpf(radius) ** 2 * (1 - mpf(10) ** -20) or inwards >= 0:
                    continue
                factor = -inwards / square  # the ball's multiplier: the rest of the gradient is tangential
                stiff = mpf(10) ** 40 * (1 + sum(hessian[place[c, j]][place[c, j]] for j in own)) / square
                for j in own:
                    self.pull[c, j] += factor * x[j]
                    for i in own:
                        a, b = place[c, j], place[c, i]
                        if b <= a:
                            hessian[a][b] += factor * (i == j) + stiff * x[i] * x[j]

    def shorter(self, value):
        """The first of ever shorter steps that falls, kept in the set and on its side of kinks."""
        share = mpf(1)
        for _ in range(_HALVINGS):
            new = self.point.copy()
            for (c, j), step in zip(self.free, self.move):
                if j == self.exact.d:
                    new.b[c] += share * step
                    continue
                moved = new.x[c][j] + share * step
                sided = self.exact.first and not self.exact.groups
                new.x[c][j] = mpf(0) if sided and moved * self.sign[c, j] < 0 else moved
            new = self.exact.into_set(new, self.reach)
            found = self.exact.objective(new)
            if found < value:
                return new, found
            share /= 4
        return None


def _solved(lower, right):
    """Solution of a matrix whose lower triangle is given, by a hair off where that is singular."""
    m, tiny = len(right), mpf(2) ** -(_BITS - 60)
    full = mp.matrix(m, m)
    for a, row in enumerate(lower):
        for b in range(a + 1):
            full[a, b] = full[b, a] = row[b]
        full[a, a] += tiny * (row[a] or 1)
    return list(mp.lu_solve(full, mp.matrix(right)))
