r"""Objective and duality gap of written weights, a second time: plain formulas, no kernel, no solver.

.. math:: F(x, b) - F^* \le \tfrac1W \sum_i \left[s_i \ell(z_i) + (s_i \ell)^*(u_i) - u_i z_i\right]
          + \sum_m \left[\varphi_m(x_m) + \varphi_m^*(-v_m) + \langle v_m, x_m\rangle\right],
          \quad v_m = D_m^\top u / W

for every u in the domain, with sum zero where an intercept is free. No bracket is negative, and each is
written so that nothing cancels where it is small.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fastadmm.runs.plain import Columns, Numbers, Rows, predictor, product

Array = Any
INF = math.inf

#: Losses with a clamped slope: softness, and ends of the slope, in the residual or in one minus the margin.
_CLAMPED: dict[str, Callable[[float], tuple[float, float, float]]] = {
    "squared": lambda p: (1.0, -INF, INF),
    "huber": lambda p: (1.0, -p, p),
    "quantile": lambda p: (0.0, -p, 1.0 - p),
    "hinge": lambda p: (0.0, 0.0, 1.0),
    "smoothed_hinge": lambda p: (p, 0.0, 1.0),
    "squared_hinge": lambda p: (0.5, 0.0, INF),
}


@dataclass(frozen=True)
class Recomputed:
    """Objective; absolute gaps to the best of all models and of those in reach; rounding; unit of reach."""

    objective: Any
    gap: Any
    within: Any
    rounding: Any
    unit: float


@np.errstate(all="ignore")
def recompute(
    rows: Rows,
    parties: list[Columns],
    intercept: Array,
    fitted: bool,
    dual: Array | None,
    reach: float | None,
    digits: int = 0,
) -> Recomputed:
    """Objective and absolute gap of weights and intercept. Shapes: intercept (C,); dual (C, N)."""
    num, total = Numbers(digits), math.fsum(rows.weight)
    of, weight = num.of, num.of(rows.weight)
    classes, z = range(len(intercept)), predictor(rows, parties, intercept, fitted, num)
    bracket, slope, least, low, high = _loss(rows, num)
    cost = num.sum([_cost(m, of(m.weights[:, k]), num) for m in parties for k in classes])
    objective = num.sum(((bracket(z, 0 * z) + least) * weight).flat) / total + cost
    most = objective - num.sum(((least + 0 * weight) * weight).flat) / total  # no loss is below its least
    u = np.asarray(slope(z) * rows.weight if dual is None else dual, dtype=np.float64)
    inside = INF
    for k in range(8):
        u = _feasible(u, rows, low, high, fitted)
        loss = num.sum((bracket(z, of(u) / np.where(rows.weight > 0, weight, 1)) * weight).flat) / total
        pulls = [-product(m, of(u), num) / total for m in parties]
        given = [(m, m.weights[:, k], q[:, k]) for m, q in zip(parties, pulls) for k in classes]

        def gap(within: float, loss: Any = loss, given: Any = given) -> Any:
            each = [_excess(m, x, q, within, num) for m, x, q in given]
            return most if INF in each else min(most, loss + num.sum(each))

        # Among models in reach, a vector that the norm does not pay for may prove more than a share of it.
        inside = inside if reach is None else min(inside, gap(reach))
        scale = min(_scale(m, q) for m, q in zip(parties, pulls))
        if scale == 1.0:
            break
        u = u * (scale * (1.0 - 10.0 ** (1.5 * k - 15)))
    level = rows.y - rows.offset
    apart = level - np.mean(level) * fitted
    largest = float(np.abs(apart).max()) or 1.0  # its square may overflow
    spread = largest * math.sqrt(float(np.mean(np.square(apart / largest))))
    sizes = float(np.sum(np.abs(u) * (abs(z) + abs(level)).astype(np.float64))) / total
    rounding = 16.0 * num.eps * (sizes + float(abs(objective)))
    unit = spread if rows.loss in ("squared", "huber", "quantile") else 1.0
    return Recomputed(objective, gap(INF), inside, rounding, unit)


def _loss(rows: Rows, num: Numbers) -> tuple[Any, Any, Any, Array, Array]:
    """Of a unit weight: the bracket at z and slope w, the slope at z, the least loss, ends of w's domain."""
    exp, expm1, log, y, p = num.exp, num.expm1, num.log, num.of(rows.y), num.of(rows.parameter)
    none, free, name = np.zeros(len(rows.y)), np.full(len(rows.y), INF), rows.loss

    def binary(z: Array, w: Array, y: Array) -> Array:
        one, other = y + w, (1 - y) - w
        ends = np.where(z > 0, other, one) * abs(z) + num.log1p(exp(-abs(z)))
        return ends + num.xlogx(one, other) + num.xlogx(other, one)

    def chance(z: Array) -> Array:
        return np.where(z > 0, 1, exp(-abs(z))) / (1 + exp(-abs(z)))

    if name in _CLAMPED:
        soft, low, high = _CLAMPED[name](rows.parameter)
        sign, at = (1 - 2 * rows.y, 1) if name.endswith("hinge") else (none + 1, -y)

        def best(e: Array) -> Array:
            return np.clip(e / soft, low, high) if soft else np.where(e > 0, high, low)

        def clamped(z: Array, w: Array) -> Array:
            e, a = at + sign * z, sign * w
            return (best(e) - a) * (e - soft * (a + best(e)) / 2)

        return clamped, lambda z: sign * best(at + sign * z), 0, *np.sort([sign * low, sign * high], axis=0)
    if name in ("logistic", "binomial"):
        entropy = -num.xlogx(y, 1 - y) - num.xlogx(1 - y, y)
        return lambda z, w: binary(z, w, y), lambda z: chance(z) - y, entropy, -rows.y, 1 - rows.y
    if name == "negative_binomial":
        k, a, end = y + 1 / p, log(p), none + 1 / rows.parameter
        return lambda z, w: k * binary(z + a, w / k, y / k), lambda z: k * chance(z + a) - y, 0, -rows.y, end
    if name in ("poisson", "gamma"):
        turn, unit = (1, 1) if name == "poisson" else (-1, y)  # gamma: y exp(-z) stands for exp(z)

        def exponential(z: Array, w: Array) -> Array:
            mean = y + w if turn > 0 else 1 - w
            off = turn * z + log(unit) - log(np.where(mean > 0, mean, 1))
            return np.where(mean > 0, mean * (expm1(off) - off), unit * exp(turn * z))

        ends: Any = (-rows.y, free) if turn > 0 else (-free, none + 1)
        return exponential, lambda z: turn * (unit * exp(turn * z) - (y if turn > 0 else 1)), 0, *ends
    if name in ("sigmoid", "tukey", "welsch"):
        return (*_bounded(rows, num), 0, none, none)
    if name == "tweedie":
        a, b, some = p - 1, 2 - p, rows.y > 0

        def tilted(z: Array) -> Array:
            return exp(b * z) - y * exp(-a * z)

        def tweedie(z: Array, w: Array) -> Array:
            low, high = np.full(z.shape, -750.0), np.full(z.shape, 750.0)
            for _ in range(64):  # where the slope is w
                middle = (low + high) / 2
                above = tilted(middle) > w
                low, high = np.where(above, low, middle), np.where(above, middle, high)
            root = num.of((low + high) / 2)
            for _ in range(3):
                root = root - (tilted(root) - w) / (b * exp(b * root) + a * y * exp(-a * root))
            root = np.where(some, root, log(np.where(w > 0, w, 1)) / b)
            far = z - root
            more, less = expm1(b * far) / b - far, expm1(-a * far) / a + far
            both = exp(b * root) * more + y * exp(-a * root) * less
            return np.where(some | (w > 0), both, exp(b * z) / b)

        return tweedie, tilted, 0, np.where(some, -INF, 0.0), free

    def classes(z: Array, w: Array) -> Array:  # multinomial
        number = np.arange(len(z))[:, np.newaxis]
        mine, top = number == rows.y, z.max(axis=0)
        base = np.where(mine, z, 0).sum(axis=0)
        level = (top - base) + num.log1p(np.where(number == z.argmax(axis=0), 0, exp(z - top)).sum(axis=0))
        others = np.where(mine, 0, w)
        mixed = others * (log(np.where(others > 0, others, 1)) - np.where(mine, 0, z - base))
        left = others.sum(axis=0)
        return level + mixed.sum(axis=0) + num.xlogx(1 - left, left)

    def shares(z: Array) -> Array:
        e = exp(z - z.max(axis=0))
        return e / e.sum(axis=0) - (np.arange(len(z))[:, np.newaxis] == rows.y)

    return classes, shares, 0, -free, free


def _bounded(rows: Rows, num: Numbers) -> tuple[Any, Any]:
    """The same of losses that are not convex, of which no slope but zero proves a bound."""
    y, c = num.of(rows.y), rows.parameter
    sign = 1 - 2 * y
    if rows.loss == "sigmoid":

        def sigmoid(z: Array, w: Array) -> Array:
            far = num.exp(-abs(z))
            return np.where(sign * z > 0, 1, far) / (1 + far)

        return sigmoid, lambda z: sign * num.exp(-abs(z)) / (1 + num.exp(-abs(z))) ** 2

    def square(z: Array) -> Array:
        return ((z - y) / c) ** 2

    def tukey(z: Array, w: Array) -> Array:
        near = np.minimum(square(z), 1)
        return c * c * near * (3 - 3 * near + near * near) / 6

    if rows.loss == "tukey":
        return tukey, lambda z: (z - y) * (1 - np.minimum(square(z), 1)) ** 2
    return lambda z, w: -c * c * num.expm1(-square(z) / 2), lambda z: (z - y) * num.exp(-square(z) / 2)


def _feasible(u: Array, rows: Rows, low: Array, high: Array, fitted: bool) -> Array:
    """The nearest thing to u in the domain, its sums exactly zero where an intercept is free."""
    used = rows.weight > 0
    if rows.loss == "multinomial":
        return _feasible_classes(u, rows.y, np.where(used, rows.weight, 0.0), fitted)
    low, high = (np.where(used, rows.weight * np.where(used, end, 0.0), 0.0) for end in (low, high))
    u = np.clip(u[0], low, high)
    for k in range(100 if fitted else 0):
        rest = math.fsum(u)
        if rest == 0.0:
            break
        side = u > 0 if rest > 0 else u < 0  # the heavier one
        room = (np.where(used, u - low if rest > 0 else high - u, -1.0) >= abs(rest)) & (u - rest != u)
        if k == 0:
            u = np.where(side, u * (1.0 - abs(rest) / math.fsum(abs(u[side]))), u)
        elif room.any():
            u[np.where(room, abs(u), INF).argmin()] -= rest
        else:  # nothing is so fine, or has room: on one grid, towards zero, which every domain holds
            unit = np.spacing(abs(u).max())
            u = np.trunc(u / unit) * unit
    return (u if not fitted or math.fsum(u) == 0.0 else 0.0 * u)[np.newaxis]


def _feasible_classes(u: Array, y: Array, weight: Array, fitted: bool) -> Array:
    """A feasible vector for several classes, in whole multiples of one unit: sums of integers are exact."""
    mine = np.arange(len(u))[:, np.newaxis] == y
    others = np.where(mine | (weight == 0), 0.0, np.maximum(u, 0.0))
    sums = others.sum(axis=0)
    if not sums.any():
        return np.zeros(u.shape)
    unit = 2.0 ** max(math.ceil(math.log2(sums.sum())) - 62, math.ceil(math.log2(sums.max())) - 52)
    k = np.floor(others * np.where(sums > weight, weight / np.where(sums > 0, sums, 1.0), 1.0) / unit)
    k = np.where(mine, 0, k).astype(np.int64)
    k -= np.where(mine, k.sum(axis=0), 0)
    while fitted and k.sum(axis=1).any():  # from the class with too much to one with too little
        sums = k.sum(axis=1)
        a, b = int(sums.argmax()), int(sums.argmin())
        amount, held = min(sums[a], -sums[b]), np.maximum(np.where(mine[a], 0, k[a]), 0)
        taken = np.minimum(held, np.maximum(amount - (np.cumsum(held) - held), 0))
        if taken.sum() < amount:
            return np.zeros(u.shape)
        k[a], k[b] = k[a] - taken, k[b] + taken
    return k * unit


# --- penalties ----------------------------------------------------------------------------------------------


def _norms(m: Columns, x: Array) -> tuple[Array, list[Any]]:
    """Norms of groups over their factors, and which columns and factor each has."""
    groups = [np.array(g) for g in m.groups or []]
    factors = [math.sqrt(len(g)) for g in groups]
    return np.array([(x[g] @ x[g]) ** 0.5 / f for g, f in zip(groups, factors)]), list(zip(groups, factors))


def _cost(m: Columns, x: Array, num: Numbers) -> Any:
    norm = num.sum(abs(x).flat)
    if m.groups is not None:
        sizes, groups = _norms(m, x)
        norm = num.sum([s * f * f for s, (_, f) in zip(sizes, groups)])
    inside = (x >= m.low).all() and (x <= m.high).all() and float(x @ x) <= m.radius**2 * (1.0 + 1e-12)
    if m.equations is not None:
        rows, values = m.equations
        off = abs(rows @ x - values).astype(float)
        inside = inside and (off <= 1e-12 * (abs(rows) @ abs(x) + abs(values)).astype(float)).all()
    return m.first * norm + m.second / 2 * num.sum((x * x).flat) if inside else INF


def _endless(m: Columns, q: Array) -> Array:
    """The part of a pull in directions without end."""
    q = np.maximum(q, 0.0) if m.low > -INF else q
    return np.minimum(q, 0.0) if m.high < INF else q


def _shrunk(m: Columns, q: Array) -> Array:
    """What the norm leaves of a pull."""
    if m.groups is None:
        return np.where(abs(q) > m.first, q - m.first * np.sign(q), 0.0)
    sizes, groups = _norms(m, q)
    left = q + 0.0
    for size, (columns, _) in zip(sizes, groups):
        left[columns] = left[columns] * (1 - m.first / size if size > m.first else 0.0)
    return left


def _multipliers(m: Columns, pull: Array) -> Array:
    """Those of the equations, at the weights that a pull gains most by."""
    assert m.equations is not None
    rows, values = m.equations
    if m.low == 0.0 and m.second == 0:
        return np.array([pull.max() - m.first * (1.0 - 1e-15) + 1e-15 * abs(pull).max()])
    if m.low == 0.0:
        ordered = np.sort(pull)[::-1]
        each = (np.cumsum(ordered) - m.second * values[0]) / np.arange(1, len(pull) + 1)
        return np.array([each[ordered > each][-1] - m.first])
    return np.linalg.lstsq(rows.T, pull - m.second * np.linalg.pinv(rows) @ values)[0]


def _scale(m: Columns, pulls: Array) -> float:
    """The largest share of the pulls that the norm pays for; 1 where it need not."""
    if m.second > 0 or m.radius < INF or m.first == 0 or m.equations is not None:
        return 1.0
    far = [_endless(m, q) for q in pulls.T]
    size = max(float((abs(q) if m.groups is None else _norms(m, q)[0]).max()) for q in far)
    return 1.0 if size <= m.first else m.first / size


def _excess(m: Columns, x: Array, q: Array, reach: float, num: Numbers) -> Any:
    """The bracket of one party's penalty, of weights whose column contributes at most the reach."""
    x = num.of(x)
    flat = m.deviation == 0.0  # q is zero there
    end = np.where(flat, INF, reach / np.where(flat, 1.0, m.deviation))
    q = np.where(flat, 0.0 * q, q)
    if m.equations is not None:  # any multipliers prove a bound: those that floats find
        rows, values = m.equations
        multipliers = num.of(_multipliers(m, q.astype(float)))
        paid = num.sum((multipliers * (num.of(values) - num.of(rows) @ x)).flat)
        left = q - num.of(rows.T) @ multipliers
        endless = np.where(flat, np.nextafter(0.0, 1.0), m.deviation)  # no column is flat to a multiplier
        return _excess(replace(m, equations=None, deviation=endless), x, left, reach, num) + paid
    if m.groups is None and m.radius == INF:
        low, high = np.maximum(m.low, -end), np.minimum(m.high, end)
        far = _shrunk(m, q)
        if m.second == 0:
            far = np.where(far == 0.0, 0.0, np.where(far > 0.0, INF, -INF))
        best = np.clip(far / (m.second or 1.0), low, high)
        if (abs(best) == INF).any():
            return INF
        return num.sum(((best - x) * (q - m.second * (best + x) / 2) - m.first * (abs(best) - abs(x))).flat)
    left = _shrunk(m, _endless(m, q))
    norm = (left @ left) ** 0.5
    at = min(m.radius, norm / m.second) if m.second else m.radius
    most = at * (norm - m.second * at / 2) if at < INF else INF if norm > 0 else 0.0
    if most == INF and reach < INF:
        most = num.sum((abs(left) * end).flat)
    return INF if most == INF else _cost(m, x, num) + most - num.sum((q * x).flat)


# --- where nothing is convex --------------------------------------------------------------------------------


@np.errstate(all="ignore")
def stationarity(
    rows: Rows, parties: list[Columns], b: Array, fitted: bool, lipschitz: float | None, digits: int = 0
) -> tuple[Any, float, float, float]:
    """Objective, prox-gradient norm as a share of that at zero weights, and the rounding of both.

    The step of a party is 1, or follows from the Lipschitz constant of the loss's slope. Shapes: b (1,).
    """
    num = Numbers(digits)
    start = [replace(m, weights=0.0 * m.weights) for m in parties]
    if lipschitz is not None:  # rounds begin in the set
        start = [replace(m, weights=_prox(m, m.weights[:, 0], 0.0)[:, np.newaxis]) for m in start]
    objective, found, size, off = _measured(rows, parties, b, fitted, lipschitz, num)
    first = _measured(rows, start, _first(rows, num, fitted), fitted, lipschitz, num)[1] if found else 1.0
    return objective, found / first, size / first, off


def _measured(
    rows: Rows, parties: list[Columns], b: Array, fitted: bool, lipschitz: float | None, num: Numbers
) -> tuple[Any, float, float, float]:
    """Objective, norm, and the rounding of norm and objective. Shapes: b (1,)."""
    (bracket, slope, least, *_), weight, total = _loss(rows, num), num.of(rows.weight), math.fsum(rows.weight)
    z = predictor(rows, parties, b, fitted, num)
    g = slope(z) * weight
    even, size = num.sum(g.flat), float(abs(g).sum())
    objective, squared = num.sum(((bracket(z, 0 * z) + least) * weight).flat) / total, even * even * fitted
    for m in parties:
        x, c, (lam, width) = num.of(m.weights[:, 0]), m.factor, m.bent
        bend = 1 + (x / width) ** 2
        q = product(m, g, num)[:, 0] + np.where(m.far, 0.0, m.centre) * even + total * lam * x / bend
        objective = objective + _cost(m, x, num) + lam * width**2 / 2 * num.sum(num.log(bend).flat)
        step = c * c if lipschitz is None else 1.0 / (lipschitz * m.squares.max() or 1.0)
        moved = (x - _prox(m, x - step * q, step * total)) * c / step
        squared = squared + moved @ moved
        long = float((g * g).sum() + 16.0 * (z * z).sum()) ** 0.5 * m.squares.sum() ** 0.5
        size += c * (float(x @ x) ** 0.5 / step + long)
    off = float(abs(objective) + (abs(g) * (abs(z) + abs(rows.y))).sum() / total)
    return objective, float(squared) ** 0.5, 64.0 * num.eps * size, 64.0 * num.eps * off


def _prox(m: Columns, v: Array, step: float) -> Array:
    """Proximal operator of so many penalties: what a pull gains most by that costs half its square."""
    m = replace(m, first=step * m.first, second=1.0 + step * m.second)
    if m.equations is not None:
        v = v - m.equations[0].T @ _multipliers(m, v.astype(float))
    elif m.groups is not None and m.low == 0.0:
        v = np.maximum(v, 0.0)
    x = np.clip(_shrunk(m, v) / m.second, m.low, m.high)
    return x * min(1.0, m.radius / ((x @ x) ** 0.5 or 1.0))


def _first(rows: Rows, num: Numbers, fitted: bool) -> Array:
    """The intercept that rounds begin with, of shape (1,)."""
    if not fitted or rows.loss == "sigmoid":
        return np.zeros(1)
    level = rows.y - rows.offset
    if rows.loss in ("tukey", "welsch"):  # a weighted median
        order = np.argsort(level, kind="stable")
        order = order[rows.weight[order] > 0.0]
        return level[order[[np.searchsorted(np.cumsum(rows.weight[order]), rows.weight.sum() / 2.0)]]]
    slope, high = _loss(rows, num)[1], 64.0 * (1.0 + abs(level).max())
    low = -high
    for _ in range(200):  # the best one
        middle = (low + high) / 2.0
        above = num.sum((slope(np.array([rows.offset + middle])) * rows.weight).flat) > 0.0
        low, high = (low, middle) if above else (middle, high)
    return np.array([(low + high) / 2.0])
