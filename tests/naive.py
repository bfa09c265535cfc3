"""Slow and obvious twins of what the product computes fast; no import of the product.

Scaling as in docs/solver.md: losses are summed over samples with weights s,
``r`` is the penalty of the summed scaling, ``lam`` is per mean loss.
"""

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext
from itertools import pairwise

import numpy as np
from scipy.optimize import brentq

Array = np.ndarray

_DIGITS = 50


def exact_sigmoid(z):
    """``1 / (1 + exp(-z))``."""
    e = (-abs(z)).exp()
    return 1 / (1 + e) if z >= 0 else e / (1 + e)


def exact_residual(z, q):
    """``sigmoid(z) - q``, from the side on which 50 digits suffice for the tail."""
    return exact_sigmoid(z) - q if z < 0 else (1 - q) - exact_sigmoid(-z)


def exact_logistic(z, q):
    """Value, derivative and second derivative of ``log(1 + exp(z)) - q z``."""
    with localcontext() as context:
        context.prec = _DIGITS
        t, target = Decimal(z), Decimal(q)
        e = (-abs(t)).exp()
        # 50 digits do not resolve 1 + e for the smallest e
        log1p = (1 + e).ln() if e > Decimal(10) ** -20 else e - e * e / 2
        value = max(t, Decimal(0)) - target * t + log1p
        return float(value), float(exact_residual(t, target)), float(exact_sigmoid(t) * exact_sigmoid(-t))


def exact_logistic_prox(v, shift, q, s, r):
    """Minimiser of ``s l(z + shift) + r/2 (z - v)^2`` and ``s l'`` there, by bisection."""
    with localcontext() as context:
        context.prec = _DIGITS
        centre, target, weight, penalty = Decimal(v) + Decimal(shift), Decimal(q), Decimal(s), Decimal(r)
        low, high = centre - weight / penalty * (1 - target), centre + weight / penalty * target
        while high - low > Decimal(10) ** -25 * max(1, abs(low)):
            middle = (low + high) / 2
            if weight * exact_residual(middle, target) + penalty * (middle - centre) > 0:
                high = middle
            else:
                low = middle
        point = (low + high) / 2
        return point - Decimal(shift), float(weight * exact_residual(point, target))


def value(loss, z, y):
    """One sample's loss, elementwise, from the formula of a loss with this name and these parameters."""
    m = (2 * y - 1) * z
    p = loss.parameters
    match loss.name:
        case "logistic" | "binomial":
            return y * np.logaddexp(0, -z) + (1 - y) * np.logaddexp(0, z)
        case "squared":
            return (z - y) ** 2 / 2
        case "huber":
            e, d = np.abs(z - y), p["delta"]
            return np.where(e <= d, e * e / 2, d * e - d * d / 2)
        case "quantile":
            return np.maximum(p["tau"] * (y - z), (p["tau"] - 1) * (y - z))
        case "hinge":
            return np.maximum(0, 1 - m)
        case "squared_hinge":
            return np.maximum(0, 1 - m) ** 2
        case "smoothed_hinge":
            g = p["gamma"]
            return np.where(m >= 1, 0, np.where(m >= 1 - g, (1 - m) ** 2 / (2 * g), 1 - m - g / 2))
        case "poisson":
            return np.exp(z) - y * z - y + np.where(y > 0, y * np.log(np.maximum(y, 1e-300)), 0)
        case "gamma":
            return y * np.exp(-z) + z - np.log(y) - 1
        case "tweedie":
            a, b = p["power"] - 1, 2 - p["power"]
            return y * np.exp(-a * z) / a + np.exp(b * z) / b - y**b / (a * b)
        case "negative_binomial":
            k = 1 / p["alpha"]
            growth = np.log1p(np.exp(z) / k) - np.log1p(y / k)
            return (y + k) * growth - np.where(y > 0, y * (z - np.log(np.maximum(y, 1e-300))), 0)
        case "sigmoid":
            return 1 / (1 + np.exp(np.clip(m, -700, 700)))
        case "tukey":
            c = p["c"]
            return c * c / 6 * (1 - np.maximum(1 - ((z - y) / c) ** 2, 0) ** 3)
        case "welsch":
            c = p["c"]
            return -c * c * np.expm1(-(((z - y) / c) ** 2) / 2)
    raise AssertionError(loss.name)


def loss_value(name, z, y, s):
    """``sum_i s_i l(z_i, y_i)``, added up without rounding error."""
    if name == "squared":
        return math.fsum(s * (z - y) ** 2 / 2)
    return math.fsum(s * (np.log1p(np.exp(-np.abs(z))) + np.where(z >= 0, (1 - y) * z, -y * z)))


def loss_gradient(name, z, y, s):
    """Derivative of the weighted loss, per sample."""
    if name == "squared":
        return s * (z - y)
    e = np.exp(-np.abs(z))
    return s * (np.where(z >= 0, 1.0, e) / (1 + e) - y)


def loss_curvature(name, z, s):
    """Second derivative of the weighted loss, per sample."""
    if name == "squared":
        return s * np.ones_like(z)
    e = np.exp(-np.abs(z))
    return s * e / (1 + e) ** 2


def dense(matrix):
    return np.asarray(matrix.toarray() if hasattr(matrix, "toarray") else matrix, dtype=float)


@dataclass
class Optimum:
    """Best model: weights of all columns, intercept, objective per mean loss."""

    weights: Array
    intercept: float
    objective: float


def objective(name, x, b, matrix, y, lam, s, offset):
    """``F(x, b)`` per mean loss."""
    return loss_value(name, offset + b + matrix @ x, y, s) / math.fsum(s) + lam / 2 * math.fsum(x * x)


def optimum(name, matrix, y, lam, s, offset, fit_intercept):
    """Minimise F to rounding error, with backtracking Newton steps."""
    n, d = matrix.shape
    total = s.sum()
    design = np.hstack([matrix, np.ones((n, 1))]) if fit_intercept else matrix
    ridge = np.full(design.shape[1], lam)
    if fit_intercept:
        ridge[-1] = 0.0
    theta = np.zeros(design.shape[1])

    def value(t):
        return loss_value(name, offset + design @ t, y, s) / total + math.fsum(ridge * t * t) / 2

    best = value(theta)
    for _ in range(200):
        z = offset + design @ theta
        gradient = design.T @ loss_gradient(name, z, y, s) / total + ridge * theta
        hessian = (design.T * loss_curvature(name, z, s)) @ design / total + np.diag(ridge)
        step = np.linalg.solve(hessian, gradient)
        length = 1.0
        while value(theta - length * step) > best + 1e-15 * abs(best) and length > 1e-10:
            length /= 2
        theta = theta - length * step
        new = value(theta)
        if gradient @ step < 1e-28 * max(1.0, abs(new)):
            break
        best = new
    b = float(theta[-1]) if fit_intercept else 0.0
    return Optimum(theta[:d], b, value(theta))


def best_intercept(name, z, y, s):
    """The b that minimises the loss at ``z + b``."""
    return _root(lambda b: float(loss_gradient(name, z + b, y, s).sum()))


def _root(function, start=0.0):
    low, high = start - 1.0, start + 1.0
    while function(low) > 0:
        low -= high - low
    while function(high) < 0:
        high += high - low
    return float(brentq(function, low, high, xtol=1e-15, rtol=8.9e-16))


@dataclass
class State:
    """Weights and messages of every party, z, u and the intercept b."""

    x: list[Array]
    messages: list[Array]
    z: Array
    u: Array
    b: float = 0.0


class NaiveADMM:
    """The equations of docs/solver.md, dense, with normal equations and scalar root finding."""

    def __init__(
        self,
        scheme,
        blocks,
        y,
        *,
        loss,
        lam,
        r,
        s=None,
        offset=None,
        fit_intercept=False,
    ):
        self.scheme, self.loss, self.fit_intercept = scheme, loss, fit_intercept
        self.blocks = [dense(block) for block in blocks]
        self.y = np.asarray(y, dtype=float)
        n = len(self.y)
        #: one penalty per sample
        self.r = np.broadcast_to(np.asarray(r, dtype=float), (n,))
        # the product scales weights to mean 1, which leaves F as it is
        self.s = np.ones(n) if s is None else s / s.mean()
        self.offset = np.zeros(n) if offset is None else offset
        self.ridge = lam * self.s.sum()
        self.state = State(
            [np.zeros(D.shape[1]) for D in self.blocks],
            [np.zeros(n) for _ in self.blocks],
            np.zeros(n),
            np.zeros(n),
        )

    def round(self):
        old = self.state
        x = self._boyd(old) if self.scheme == "sharing" else self._in_turn(old)
        messages = [D @ w for D, w in zip(self.blocks, x)]
        total = np.sum(messages, axis=0)
        b = self._intercept(total, old.u) if self.fit_intercept else 0.0
        z = self._z(total, old.u, b)
        u = old.u + self.r * (total - z)
        self.state = State(x, messages, z, u, b)
        return self.state

    def _x(self, m, others, z, u):
        # argmin ridge |x|^2 / 2 + <u, D x> + r/2 |others + D x - z|^2
        D = self.blocks[m]
        matrix = self.ridge * np.eye(D.shape[1]) + D.T @ (self.r[:, None] * D)
        return np.linalg.solve(matrix, D.T @ (self.r * (z - others) - u))

    def _in_turn(self, old):
        # with jacobi everybody sees the messages of the round before, else those of this one
        messages, x = list(old.messages), []
        for m, D in enumerate(self.blocks):
            others = np.sum([a for k, a in enumerate(messages) if k != m] or [0 * old.z], axis=0)
            x.append(self._x(m, others, old.z, old.u))
            if self.scheme == "gauss-seidel":
                messages[m] = D @ x[m]
        return x

    def _boyd(self, old):
        # Boyd et al. (2011), section 7.3, with averages and the scaled dual variable:
        # x_m = argmin f_m(x) + rho/2 |D_m x - D_m x_m^k + mean - z_mean + dual|^2, rho = M r
        count = len(self.blocks)
        rho = count * self.r
        mean, z_mean, dual = np.sum(old.messages, axis=0) / count, old.z / count, old.u / rho
        x = []
        for D, a in zip(self.blocks, old.messages):
            target = a - mean + z_mean - dual
            matrix = self.ridge * np.eye(D.shape[1]) + D.T @ (rho[:, None] * D)
            x.append(np.linalg.solve(matrix, D.T @ (rho * target)))
        return x

    def _z(self, total, u, b):
        def solve(i):
            one = slice(i, i + 1)

            def slope(z):
                at = np.array([self.offset[i] + b + z])
                g = loss_gradient(self.loss, at, self.y[one], self.s[one])[0]
                return float(g - u[i] - self.r[i] * (total[i] - z))

            return _root(slope, float(total[i]))

        return np.array([solve(i) for i in range(len(total))])

    def _intercept(self, total, u):
        # b is minimised together with z: the loss gradient at the new z sums to zero
        def slope(b):
            at = self.offset + b + self._z(total, u, b)
            return float(loss_gradient(self.loss, at, self.y, self.s).sum())

        return _root(slope)

    def lagrangian(self, at):
        """Loss at z, regularisers, ``<u, S - z>`` and ``r/2 |S - z|^2``: equation 5, summed scaling."""
        mismatch = np.sum(at.messages, axis=0) - at.z
        loss = loss_value(self.loss, self.offset + at.b + at.z, self.y, self.s)
        penalty = self.ridge / 2 * sum(float(w @ w) for w in at.x)
        return loss + penalty + float(at.u @ mismatch) + float(self.r * mismatch @ mismatch) / 2

    def lyapunov(self, at):
        """``V^t``, equation 13: prox-gradient maps of the parties, gradient in z, and the mismatch."""
        mismatch = np.sum(at.messages, axis=0) - at.z
        pull = at.u + self.r * mismatch
        in_z = loss_gradient(self.loss, self.offset + at.b + at.z, self.y, self.s) - pull
        # prox of ridge |x|^2 / 2 shrinks by 1 / (1 + ridge)
        maps = [w - (w - D.T @ pull) / (1 + self.ridge) for D, w in zip(self.blocks, at.x)]
        return sum(float(v @ v) for v in (*maps, in_z, mismatch))

    def certificate(self, x, b):
        """Objective and duality gap at weights x and their best intercept b, per mean loss."""
        total = self.s.sum()
        z = self.offset + b + sum(D @ w for D, w in zip(self.blocks, x))
        g = loss_gradient(self.loss, z, self.y, self.s)
        value = loss_value(self.loss, z, self.y, self.s) + self.ridge / 2 * sum(float(w @ w) for w in x)
        gap = sum(float(np.sum((D.T @ g + self.ridge * w) ** 2)) for D, w in zip(self.blocks, x))
        return value / total, gap / (2 * self.ridge) / total


def anderson_step(points, images, memory, metric):
    """Extrapolate from points v_j and images T(v_j), weights summing to one, least residual in the metric."""
    points, images = list(points)[-memory - 1 :], list(images)[-memory - 1 :]
    residuals = [t - v for v, t in zip(points, images)]
    differences = np.array([b - a for a, b in pairwise(residuals)]).T
    steps = np.array([b - a for a, b in pairwise(images)]).T
    root = np.sqrt(metric)
    gamma, *_ = np.linalg.lstsq(root[:, None] * differences, root * residuals[-1], rcond=None)
    return images[-1] - steps @ gamma


def chacha20_block(key, nonce, counter):
    """The sixteen 32-bit words of one keystream block."""

    def quarter(s, a, b, c, d):
        for x, y, z, left in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
            s[x] = (s[x] + s[y]) % 2**32
            s[z] ^= s[x]
            s[z] = (s[z] << left | s[z] >> (32 - left)) % 2**32

    constants = [0x61707865, 0x3320646E, 0x79622D32, 0x6B206574]
    start = [*constants, *(int(k) for k in key), counter % 2**32, *(int(n) for n in nonce)]
    s = list(start)
    for _ in range(10):
        for k in range(4):
            quarter(s, k, 4 + k, 8 + k, 12 + k)
        for k in range(4):
            quarter(s, k, 4 + (k + 1) % 4, 8 + (k + 2) % 4, 12 + (k + 3) % 4)
    return [(a + b) % 2**32 for a, b in zip(s, start)]


def noise_word(key, nonce, i):
    """The 64-bit word of element i: groups of sixteen blocks, 128 elements, lane fastest."""
    group, rest = divmod(i, 128)
    k, lane = divmod(rest, 16)
    words = chacha20_block(key, nonce, 16 * group + lane)
    return words[2 * k] | words[2 * k + 1] << 32


def noise_normal(key, nonce, i):
    """Element i of the Gaussian stream: Box and Muller's transformation of a pair of words."""
    second = (i // 16) % 2
    radius_word = noise_word(key, nonce, i - 16 * second)
    angle_word = noise_word(key, nonce, i + 16 * (1 - second))
    with localcontext() as context:
        context.prec = _DIGITS
        radius = float((-2 * ((Decimal(radius_word) + Decimal("0.5")) / 2**64).ln()).sqrt())
    turn = (angle_word - 2**64 if angle_word >= 2**63 else angle_word) // 2**11  # in units of 2**-53
    quadrant, rest = divmod(turn + 2**50, 2**51)  # nearest quarter turn, remainder within 1/8 turn
    angle = 2 * math.pi * (rest - 2**50) / 2**53
    cosine, sine = math.cos(angle), math.sin(angle)
    for _ in range(quadrant % 4):
        cosine, sine = -sine, cosine
    return radius * (sine if second else cosine)


def gram(rows, weight):
    """``rows.T @ diag(weight) @ rows``, each number as an exactly rounded sum."""
    d = rows.shape[1]
    sums = [math.fsum(weight * rows[:, j] * rows[:, k]) for j in range(d) for k in range(d)]
    return np.array(sums).reshape(d, d)


def products(left, right):
    """``left @ right.T``, each number as an exactly rounded sum."""
    return np.array([[math.fsum(one * other) for other in right] for one in left])


def sparse_row_product(values, x):
    """A sparse row's product, its entries dealt out to eight sums that are added in pairs."""
    sums = [0.0] * 8
    for k, (value, factor) in enumerate(zip(values, x)):
        sums[k % 8] += float(value) * float(factor)
    while len(sums) > 1:
        half = len(sums) // 2
        sums = [a + b for a, b in zip(sums[:half], sums[half:])]
    return sums[0]


def shuffled_groups(count, size, seed):
    """Numbers in groups of neighbours, which a linear congruential generator shuffles (Fisher and Yates)."""
    groups, state = list(range(-(-count // size))), seed
    for place in range(len(groups) - 1, 0, -1):
        state = (state * 6364136223846793005 + 1442695040888963407) % 2**64
        other = (state >> 33) % (place + 1)
        groups[place], groups[other] = groups[other], groups[place]
    return [i for group in groups for i in range(group * size, min((group + 1) * size, count))]
