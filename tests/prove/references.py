"""Upper bounds of the optimum that owe nothing to the product: feasible points, and F there in many digits.

Points come from zero weights, from an exact normal equation (squares with ridge), from HiGHS (losses of one
kink with a polyhedral penalty and set), from CLARABEL (everything else), and from the models that the schemes
returned. The best of them is improved by Newton's method in many digits. It does not matter how good any of
them is: no claimed lower bound may lie above F at any.
"""

import math
import time
import warnings

import cvxpy as cp
import numpy as np
from mpmath import mp, mpf

from prove.draws import LOG_LINKS
from prove.exact import Point
from prove.formulas import KINKED
from prove.newton import improve

#: Weights of a solver that are this small beside the largest are tried as zero, too.
_ZEROS = (1e-7, 1e-5)


class Upper:
    """The least F found so far, among models of a reach (of each column's weight) if one is given."""

    def __init__(self, exact, reach=None):
        self.exact, self.reach = exact, reach
        self.value = mp.inf
        self.point = None
        self.source = "none"
        self.zero = mp.inf

    def offer(self, point, source):
        """F at a point moved into the set; kept if it is the least."""
        inside = self.exact.into_set(point, self.reach)
        if self.exact.outside(inside) > 0:  # a reach that leaves the box
            return mp.inf
        value = self.exact.objective(inside)
        if value < self.value:
            self.value, self.point, self.source = value, inside, source
        return value

    def solve(self, seconds):
        """Points of external solvers, then Newton's method from the best."""
        self.zero = self.offer(zero_point(self.exact), "zero")
        end = time.perf_counter() + seconds
        smooth = self.exact.draw.loss not in KINKED
        ridge = self.exact.draw.regularizer == "l2" and self.exact.draw.constraint == "all"
        if not (smooth and ridge):
            for point in _conic(self.exact, self.reach):
                self.offer(point, "solver")
        if self.point is not None:
            left = max(end - time.perf_counter(), 0.3 * seconds)
            self.offer(improve(self.exact, self.point, self.reach, left), f"newton from {self.source}")


def zero_point(exact):
    return Point([[mpf(0)] * exact.d for _ in range(exact.n_classes)], [mpf(0)] * exact.n_classes)


def reach_of_data(exact, reach=None):
    """Largest weight of each column among the models that a bound without a regulariser speaks of.

    |x_j| sd_j <= R, with R = 1000 (classes, log links) or 1000 times the deviation of y - offset; deviations
    about the mean with an intercept, about zero without. Of deviations with weights and without the one that
    leaves fewer models, and a hair less, for the rounding: what holds among many holds among these.
    """
    size = mpf(1000) if reach is None else mpf(reach)
    if reach is None and exact.draw.loss in ("squared", "huber", "quantile"):
        ints, exponent = exact.offsets[0]
        size *= min(_deviations(exact, [y - mp.ldexp(mpf(int(o)), exponent) for y, o in zip(exact.y, ints)]))
    found = []
    for ints, exponent in exact.columns:
        sd = max(_deviations(exact, [mp.ldexp(mpf(int(v)), exponent) for v in ints]))
        found.append(size / sd * (1 - mpf(10) ** -9) if sd else mp.inf)
    return found


def _deviations(exact, values):
    """Standard deviation with the sample weights, and without."""

    def one(weight):
        total = sum(weight, mpf(0))
        mean = mpf(0)
        if exact.draw.fit_intercept:
            mean = sum((w * v for w, v in zip(weight, values)), mpf(0)) / total
        return mp.sqrt(sum((w * (v - mean) ** 2 for w, v in zip(weight, values)), mpf(0)) / total)

    return one(exact.weight), one([mpf(1)] * exact.n)


def _standardised(exact):
    """Columns about their mean (with an intercept) over their size, in double precision; centres, sizes."""
    columns, centres, sizes = [], [], []
    for ints, exponent in exact.columns:
        centre = sum(int(v) for v in ints) // exact.n if exact.draw.fit_intercept else 0
        column = np.array([float(mp.ldexp(mpf(int(v) - centre), exponent)) for v in ints])
        size = float(np.sqrt(np.mean(column**2))) or 1.0
        columns.append(column / size)
        centres.append(mp.ldexp(mpf(centre), exponent))
        sizes.append(size)
    return np.stack(columns, axis=1), np.array(centres, dtype=object), np.array(sizes)


def _conic(exact, reach):
    """The point of a solver in standardised columns, and the same with tiny weights at zero."""
    X, centres, sizes = _standardised(exact)
    draw, C = exact.draw, exact.n_classes
    w, b = cp.Variable((exact.d, C)), cp.Variable((1, C))
    given = exact.draw.offset
    z = cp.Variable((exact.n, C))  # of expressions of matrices the library may take no number for a bound
    shift = np.zeros((exact.n, C)) if given is None else given.reshape(exact.n, -1)
    known = [z == X @ w + shift + (np.ones((exact.n, 1)) @ b if draw.fit_intercept else 0.0)]
    weight = np.array([float(s / exact.total) for s in exact.weight])
    used = weight > 0.0
    fit = _loss(draw, z[used], draw.y[used], weight[used])
    unit = cp.multiply(1.0 / sizes[:, None] @ np.ones((1, C)), w)
    limits, polyhedral = _set(exact, w, sizes, reach)
    smallest = float(exact.lam)
    problem = cp.Problem(cp.Minimize(fit + smallest * _penalty(exact, unit)), known + limits)
    linear = draw.loss in KINKED and polyhedral and draw.regularizer in ("l1", "none")
    value = None
    for solver in ["SCIPY", "CLARABEL"] if linear else ["CLARABEL"]:
        value = _attempt(problem, solver, w)
        if value is not None:
            break
    if value is None:
        return []
    shift = np.zeros(C) if b.value is None else np.asarray(b.value)[0]
    points = []
    for zero in (0.0, *(_ZEROS if exact.first else ())):
        kept = np.where(np.abs(value) <= zero * np.abs(value).max(), 0.0, value)
        x = [[mpf(float(v)) / mpf(float(s)) for v, s in zip(own, sizes)] for own in kept.T]
        moved = [mpf(float(shift[c])) - sum((v * m for v, m in zip(x[c], centres)), mpf(0)) for c in range(C)]
        points.append(Point(x, moved))
    return points


def _attempt(problem, solver, w):
    """Weights of a solver, or None; SCIPY stands for its HiGHS."""
    exact = {"tol_gap_abs": 1e-13, "tol_gap_rel": 1e-13, "tol_feas": 1e-12}
    tight = {**exact, "max_iter": 100, "time_limit": 1.0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            problem.solve(solver=solver, **(tight if solver == "CLARABEL" else {}))
        except Exception:
            return None
    value = None if w.value is None else np.asarray(w.value)
    return value if value is not None and np.isfinite(value).all() else None


def _set(exact, w, sizes, reach):
    """The sets in standardised weights, and whether they are polyhedral."""
    limits, polyhedral = [], True
    for j, (low, high) in enumerate(exact.bounds):
        if math.isfinite(low):
            limits.append(w[j] >= low * sizes[j])
        if math.isfinite(high):
            limits.append(w[j] <= high * sizes[j])
        if reach is not None and mp.isfinite(reach[j]):
            limits.append(cp.abs(w[j]) <= float(reach[j]) * sizes[j])
    for columns, radius in zip(exact.parties, exact.radii):
        if math.isfinite(radius):
            polyhedral = False
            own = list(columns)
            small = float(sizes[own].min())
            for c in range(exact.n_classes):
                limits.append(cp.norm(cp.multiply(small / sizes[own], w[own, c])) <= radius * small)
    return limits, polyhedral


def _penalty(exact, x):
    if exact.groups:
        classes = range(exact.n_classes)
        return sum(math.sqrt(len(g)) * cp.norm(x[list(g), c]) for g in exact.groups for c in classes)
    total = float(exact.first) * cp.sum(cp.abs(x)) if exact.first else 0.0
    return total + 0.5 * float(exact.second) * cp.sum_squares(x) if exact.second else total


def _loss(draw, z, y, s):
    """Weighted mean loss up to terms without z, as an expression in the predictor."""
    p = {"delta": 1.0, "tau": 0.5, "gamma": 1.0, "power": 1.5, "alpha": 1.0, **draw.loss_parameters}
    if draw.loss == "multinomial":
        chosen = np.eye(z.shape[1])[y.astype(int)]
        return s @ cp.log_sum_exp(z, axis=1) - cp.sum(cp.multiply(chosen * s[:, None], z))
    z = z[:, 0]
    if draw.loss in LOG_LINKS:
        return _log_link(draw.loss, z, y, s, p)
    if draw.loss in ("logistic", "binomial"):
        return s @ (cp.logistic(z) - cp.multiply(y, z))
    if draw.loss == "squared":
        return 0.5 * cp.sum_squares(cp.multiply(np.sqrt(s), z - y))
    if draw.loss == "huber":
        return _clamped(z - y, s, 1.0, -p["delta"], p["delta"])
    if draw.loss == "quantile":
        return _clamped(z - y, s, 0.0, -p["tau"], 1.0 - p["tau"])
    sign = 2.0 * y - 1.0
    e = cp.multiply(sign, z) - 1.0
    if draw.loss == "squared_hinge":
        return cp.sum_squares(cp.multiply(np.sqrt(s), cp.neg(e)))
    return _clamped(e, s, p["gamma"] if draw.loss == "smoothed_hinge" else 0.0, -1.0, 0.0)


def _clamped(e, s, width, low, high):
    """Least of q^2 / (2 width) + low's and high's line of the rest of e."""
    if width == 0.0:
        return s @ cp.maximum(high * e, low * e)
    q = cp.Variable(len(s))
    return cp.sum_squares(cp.multiply(np.sqrt(s), q)) / (2.0 * width) + s @ cp.maximum(
        high * (e - q), low * (e - q)
    )


def _log_link(loss, z, y, s, p):
    if loss == "poisson":
        return s @ (cp.exp(z) - cp.multiply(y, z))
    if loss == "gamma":
        return s @ (cp.multiply(y, cp.exp(-z)) + z)
    if loss == "tweedie":
        a = p["power"] - 1.0
        return s @ (cp.multiply(y / a, cp.exp(-a * z)) + cp.exp((1.0 - a) * z) / (1.0 - a))
    return s @ (cp.multiply(y + 1.0 / p["alpha"], cp.logistic(z + math.log(p["alpha"]))) - cp.multiply(y, z))
