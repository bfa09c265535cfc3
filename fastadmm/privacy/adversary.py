"""Search for the two neighbouring data sets that a message distinguishes best.

The other records enter the x-update only through their Gram matrix G and a vector q, and any (G, q) can be
made of rows of norm at most 1 and targets in [-W, W]. So the worst case over all data sets in two columns is
a search over nine numbers: G, q, the record before and after, and its target.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

Pair = tuple[float, float]


@dataclass(frozen=True)
class WorstPair:
    """Neighbours found by the search. Shapes: gram (2, 2); image, before, after (2,)."""

    distance: float  # l2 distance of the two messages (of the two weights, for ``kind="weights"``)
    gram: np.ndarray  # of shape (2, 2): g of the other records
    image: np.ndarray  # of shape (2,): q, the sum of the other records times their targets
    before: np.ndarray  # of shape (2,): the record in the one and in the other data set
    after: np.ndarray  # of shape (2,): the record in the one and in the other data set
    target: float  # its public target


@lru_cache(maxsize=32)
def find_worst_pair(
    ball: float,
    target: float,
    mu: float,
    clip: float | None = None,
    *,
    adjacency: str = "replace_one",
    kind: str = "message",
    starts: int = 24,
    seed: int = 0,
    center: float = 0.0,
    rows: float = math.inf,
    longest: float = 1.0,
) -> WorstPair:
    """Maximise the distance between neighbours' messages, by Nelder-Mead from many starts."""
    from scipy.optimize import minimize

    rng = np.random.default_rng(seed)
    interval = None if clip is None else (center - clip, center + clip)
    measure = _measure(ball, target, mu, interval, adjacency == "zero_out", kind == "weights")

    def cost(parameters: Any) -> float:
        return -measure(*_decode(parameters, target, rows, longest))[0]

    options = {"maxiter": 1500, "maxfev": 3000, "xatol": 1e-9, "fatol": 1e-12, "adaptive": True}
    found: list[tuple[float, np.ndarray]] = []
    for k in range(starts):
        # First: the others hold x at the ball's edge, and the record changes its sign.
        strong = 0.5 * math.log(mu + 2.0), math.log(2.0 * target * (mu + 2.0))
        start = np.array([strong[0], strong[0], 0.0, 1.0, 0.1, 1.0, 0.1, -1.0, 0.1, strong[1]])
        if k:
            start = rng.normal(size=10) * rng.choice([0.5, 2.0, 5.0])
        run = minimize(cost, start, method="Nelder-Mead", options=options)
        found.append((float(run.fun), run.x))
    found.sort(key=lambda item: item[0])
    for k in range(max(1, starts // 3)):
        value, x = found[k]
        for _ in range(4):  # a fresh simplex where the last one collapsed
            run = minimize(cost, x, method="Nelder-Mead", options=options)
            done = value - run.fun <= 1e-9 * abs(value)
            value, x = float(run.fun), run.x
            if done:
                break
        found[k] = value, x
    value, x = min(found, key=lambda item: item[0])
    gram, image, before, after, goal = _decode(x, target, rows, longest)
    goal = measure(gram, image, before, after, goal)[1]
    after = (0.0, 0.0) if adjacency == "zero_out" else after
    matrix = np.array([[gram[0], gram[1]], [gram[1], gram[2]]])
    return WorstPair(-value, matrix, np.array(image), np.array(before), np.array(after), goal)


def _decode(
    p: Any, target: float, rows: float, longest: float
) -> tuple[tuple[float, float, float], Pair, Pair, Pair, float]:
    """Ten free numbers as an admissible pair; sizes on a logarithmic scale."""
    p = [float(v) for v in p]
    l11, l22 = math.exp(min(max(p[0], -12.0), 12.0)), math.exp(min(max(p[1], -12.0), 12.0))
    l21 = p[2]
    gram = (l11 * l11, l11 * l21, l21 * l21 + l22 * l22)
    size = math.exp(min(max(p[9], -12.0), 16.0))
    image = (p[3] * size, p[4] * size)
    if math.isfinite(rows):
        gram, image = _of_few_rows(gram, image, target, 0.5 * rows, longest)
    return gram, image, _inside(p[5], p[6]), _inside(p[7], p[8]), target * math.sin(p[3] + p[5] + p[2])


def _of_few_rows(
    gram: tuple[float, float, float], image: Pair, target: float, most: float, longest: float
) -> tuple[tuple[float, float, float], Pair]:
    """The nearest G and q that ``most`` rows along each eigenvector make (see :func:`concrete_rows`)."""
    high, low, c, s = _eigen(*gram)
    largest = most * longest * longest
    high, low = min(high, largest), min(max(low, 1e-9), largest)
    q1, q2 = c * image[0] + s * image[1], -s * image[0] + c * image[1]
    limit1, limit2 = target * math.sqrt(high * most), target * math.sqrt(low * most)
    q1, q2 = min(max(q1, -limit1), limit1), min(max(q2, -limit2), limit2)
    gram = (c * c * high + s * s * low, c * s * (high - low), s * s * high + c * c * low)
    return gram, (c * q1 - s * q2, s * q1 + c * q2)


def _inside(x: float, y: float) -> Pair:
    size = math.hypot(x, y)
    return (x, y) if size <= 1.0 else (x / size, y / size)


def _measure(
    ball: float, target: float, mu: float, interval: Pair | None, zeroed: bool, weights: bool
) -> Callable[..., Pair]:
    """Distance of the messages, and the record's target that it is reached at."""

    def entry(value: float) -> float:
        return value if interval is None else min(max(value, interval[0]), interval[1])

    def measure(
        gram: tuple[float, float, float], image: Pair, before: Pair, after: Pair, goal: float
    ) -> Pair:
        if zeroed:
            after = (0.0, 0.0)
        best = 0.0, goal
        for w in (goal, target, -target):
            x, y = (
                _solve(
                    gram[0] + a[0] * a[0] + mu,
                    gram[1] + a[0] * a[1],
                    gram[2] + a[1] * a[1] + mu,
                    image[0] + w * a[0],
                    image[1] + w * a[1],
                    ball,
                )
                for a in (before, after)
            )
            v = (x[0] - y[0], x[1] - y[1])
            if weights:
                best = max(best, (math.hypot(*v), w))
                continue
            own = entry(before[0] * x[0] + before[1] * x[1]) - entry(after[0] * y[0] + after[1] * y[1])
            others = gram[0] * v[0] * v[0] + 2.0 * gram[1] * v[0] * v[1] + gram[2] * v[1] * v[1]
            best = max(best, (math.sqrt(own * own + max(others, 0.0)), w))
        return best

    return measure


def _eigen(k11: float, k12: float, k22: float) -> tuple[float, float, float, float]:
    """Larger and smaller eigenvalue, and cosine and sine of the larger one's direction."""
    high = 0.5 * (k11 + k22) + math.hypot(0.5 * (k11 - k22), k12)
    angle = 0.5 * math.atan2(2.0 * k12, k11 - k22)
    low = (k11 * k22 - k12 * k12) / high if high > 0.0 else 0.0
    return high, low, math.cos(angle), math.sin(angle)


def _solve(k11: float, k12: float, k22: float, q1: float, q2: float, ball: float) -> Pair:
    """Minimise 1/2 x'Kx - q'x over |x| <= B, in the eigenbasis of K."""
    high, low, c, s = _eigen(k11, k12, k22)
    p1, p2 = c * q1 + s * q2, -s * q1 + c * q2
    low = max(low, 1e-300)
    x1, x2 = p1 / high, p2 / low
    if math.hypot(x1, x2) > ball:
        nu = 0.0
        for _ in range(60):  # Newton's method for 1/|x|, which is concave in nu: it comes from below
            slope = x1 * x1 / (high + nu) + x2 * x2 / (low + nu)
            square = x1 * x1 + x2 * x2
            move = (math.sqrt(square) / ball - 1.0) * square / slope
            nu += move
            x1, x2 = p1 / (high + nu), p2 / (low + nu)
            if move <= 1e-15 * nu:
                break
        norm = max(math.hypot(x1, x2), ball)
        x1, x2 = x1 * ball / norm, x2 * ball / norm
    return c * x1 - s * x2, s * x1 + c * x2


def concrete_rows(
    pair: WorstPair, target: float, longest: float = 1.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Two data sets with these G and q, within the theorems. Shapes: first, second (N, 2); w (N,)."""
    values, vectors = np.linalg.eigh(pair.gram)
    rows, goals = [], []
    for value, vector in zip(values, vectors.T):
        q = float(vector @ pair.image)
        # n rows of length s and target t: n s^2 = value, n s t = q, s <= longest, |t| <= W
        n = max(1, math.ceil(value / longest**2), math.ceil(q * q / (max(value, 1e-300) * target * target)))
        s = math.sqrt(max(value, 0.0) / n)
        rows.append(np.tile(s * vector, (n, 1)))
        goals.append(np.full(n, q / (n * s) if s > 0.0 else 0.0))
    others = np.vstack(rows)
    w = np.concatenate([[pair.target], *goals])
    return np.vstack([pair.before, others]), np.vstack([pair.after, others]), np.clip(w, -target, target)
