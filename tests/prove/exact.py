"""The objective in many digits: data as whole numbers times a power of two, so that no product is rounded."""

import itertools
import math

import numpy as np
from fastadmm.problem.constraints import get_constraint
from mpmath import libmp, mp, mpf

from prove.formulas import formula, softmax_value

#: Bits of every number that is rounded: some 120 digits.
PRECISION = 400


class Point:
    """Weights x[c][j] of class c and column j, and intercepts b[c]; numbers of any length."""

    def __init__(self, x, b):
        self.x, self.b = x, b

    @classmethod
    def of_model(cls, weights, intercept):
        columns = np.concatenate([w.reshape(len(w), -1) for w in weights])
        b = np.atleast_1d(np.asarray(intercept, dtype=float))
        return cls([[mpf(float(v)) for v in own] for own in columns.T], [mpf(float(v)) for v in b])

    def copy(self):
        return type(self)([list(own) for own in self.x], list(self.b))


def whole(values):
    """Integers m and one exponent e with values = m 2^e exactly."""
    ratios = [float(v).as_integer_ratio() for v in np.asarray(values).ravel()]
    shift = max((den.bit_length() - 1 for _, den in ratios), default=0)
    ints = [num << (shift - den.bit_length() + 1) for num, den in ratios]
    low = math.gcd(*ints) if any(ints) else 1
    zeros = (low & -low).bit_length() - 1
    out = np.empty(len(ints), dtype=object)
    out[:] = [m >> zeros for m in ints]
    return out, zeros - shift


def _parts(value):
    """Integer and exponent of a number of mpmath."""
    sign, man, exponent, _ = value._mpf_
    return (-int(man) if sign else int(man)), int(exponent)


def number(man, exponent):
    """man 2^exponent, rounded to the working precision."""
    return mp.make_mpf(libmp.from_man_exp(int(man), exponent, mp.prec, "n"))


class Exact:
    """F of a generated problem, from the data as they were given."""

    def __init__(self, drawn):
        self.draw = drawn
        matrix = drawn.matrix()
        self.n, self.d = matrix.shape
        self.columns = [whole(column) for column in matrix.T]
        classes = int(drawn.y.max()) + 1 if drawn.loss == "multinomial" else 1
        offset = np.zeros((self.n, classes)) if drawn.offset is None else drawn.offset.reshape(self.n, -1)
        self.n_classes = offset.shape[1]
        self.offsets = [whole(own) for own in offset.T]
        given = np.ones(self.n) if drawn.weight is None else drawn.weight
        self.used = np.flatnonzero(given > 0.0)
        self.weight = [mpf(float(s)) for s in given]
        self.total = sum(self.weight, mpf(0))
        self.y = [mpf(float(v)) for v in drawn.y]
        self.formula = None
        if drawn.loss != "multinomial":
            self.formula = formula(drawn.loss, drawn.loss_parameters)
        self.lam = mpf(drawn.lam)
        ratio = drawn.regularizer_parameters.get("l1_ratio", 0.5)
        shares = {"l1": 1, "group_lasso": 1, "elastic_net": ratio, "l2": 0, "none": 0}
        self.first = mpf(shares[drawn.regularizer])
        self.second = mpf(0) if drawn.regularizer == "none" else 1 - self.first
        self._layout()

    def _layout(self):
        """Columns of each party, bounds of each column, radius of each party, groups."""
        edges = np.cumsum([0] + [b.shape[1] for b in self.draw.blocks])
        self.parties = [range(int(a), int(b)) for a, b in itertools.pairwise(edges)]
        given = self.draw.constraint
        sets = given if isinstance(given, list) else [given] * len(self.parties)
        self.bounds = [get_constraint(s).bounds for s, p in zip(sets, self.parties) for _ in p]
        self.radii = [get_constraint(s).radius for s in sets]
        self.groups = []
        if self.draw.regularizer == "group_lasso":
            own = self.draw.regularizer_parameters.get("groups") or [None] * len(self.parties)
            for columns, groups in zip(self.parties, own):
                self.groups += [[columns[j] for j in g] for g in groups] if groups else [list(columns)]

    def predictor(self, point):
        """z[c][i], rounded once."""
        return [self._of_class(c, point.x[c], point.b[c]) for c in range(self.n_classes)]

    def _of_class(self, c, x, b):
        terms = [self.offsets[c]]
        for (ints, exponent), value in zip([*self.columns, (1, 0)], [*x, b]):
            man, more = _parts(value)
            if man:
                terms.append((ints * man, exponent + more))
        least = min(exponent for _, exponent in terms)
        total = np.zeros(self.n, dtype=object)
        for ints, exponent in terms:
            total = total + ints * (1 << (exponent - least))
        return [number(man, least) for man in total]

    def loss(self, z):
        """Weighted mean of the losses."""
        total = mpf(0)
        for i in self.used:
            own, y = [of_class[i] for of_class in z], self.y[i]
            value = self.formula.value(own[0], y) if self.formula else softmax_value(own, int(y))
            total += self.weight[i] * value
        return total / self.total

    def penalty(self, point):
        """lambda times the sum of R; of every class of its own."""
        total = mpf(0)
        for x in point.x:
            if self.groups:
                for g in self.groups:
                    total += mp.sqrt(len(g)) * mp.sqrt(sum((x[j] ** 2 for j in g), mpf(0)))
            elif self.first:
                total += self.first * sum((abs(v) for v in x), mpf(0))
            if self.second:
                total += self.second * sum((v * v for v in x), mpf(0)) / 2
        return self.lam * total

    def objective(self, point):
        """F, without asking whether the point is in the set."""
        return self.loss(self.predictor(point)) + self.penalty(point)

    def outside(self, point):
        """Relative amount by which a point leaves its set; 0 inside."""
        most = mpf(0)
        for x in point.x:
            for v, (low, high) in zip(x, self.bounds):
                if v < low or v > high:
                    most = max(most, (low - v if v < low else v - high) / (abs(v) + 1))
            for columns, radius in zip(self.parties, self.radii):
                if math.isfinite(radius):
                    square = sum((x[j] ** 2 for j in columns), mpf(0))
                    most = max(most, square / mpf(radius) ** 2 - 1)
        return most

    def into_set(self, point, reach=None):
        """The point with weights clipped to bounds (and to a reach) and shortened to the ball."""
        new = point.copy()
        if not self.draw.fit_intercept:
            new.b = [mpf(0)] * self.n_classes
        for x in new.x:
            for j, (low, high) in enumerate(self.bounds):
                x[j] = min(max(x[j], mpf(low)), mpf(high))
                if reach is not None and abs(x[j]) > reach[j]:
                    x[j] = reach[j] if x[j] > 0 else -reach[j]
            for columns, radius in zip(self.parties, self.radii):
                if math.isfinite(radius):
                    norm = mp.sqrt(sum((x[j] ** 2 for j in columns), mpf(0)))
                    if norm > radius:
                        for j in columns:
                            x[j] *= mpf(radius) / norm * (1 - mpf(2) ** (10 - mp.prec))
        return new
