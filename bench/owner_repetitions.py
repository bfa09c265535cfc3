"""Repetitions of a training, all at once, with *insecure* seeded noise: for forecasts, tests and figures.

Repetition r is column r of every matrix, so one pass over the rows serves all of
them. For the squared loss with bounded features (or none bounded and none clipped)
the rows are not even touched: their moments hold every gradient.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from fastadmm.engine.engine import Engine
from fastadmm.kernels.owner_gradient import owner_slope
from fastadmm.kernels.policy import kernel
from fastadmm.owners.learner import PRINTED, average_weight, step_of
from fastadmm.owners.mechanism import OwnerLoss

#: Rows whose scores for all repetitions fit the second-level cache.
_BLOCK_ROWS = 512


@kernel
def owner_batch_slopes(Z, y, norms, code, limit):
    """Replace scores by the slopes of the bounded gradients."""
    for i in range(Z.shape[0]):
        target = y[i]
        most = limit / norms[i] if norms[i] > 0.0 else math.inf
        for r in range(Z.shape[1]):
            Z[i, r] = min(max(owner_slope(code, Z[i, r], target), -most), most)


def loss_values(name: str, z: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Loss of every record, the shape of ``z``; y is broadcast against z."""
    if name == "squared":
        return 0.5 * (z - y) ** 2
    if name == "hinge":
        return np.maximum(0.0, 1.0 - y * z)
    return np.logaddexp(0.0, -y * z)


@dataclass(frozen=True, eq=False)
class Population:
    """All owners' rows together; the constant, where wanted, is a column of X.

    Shapes: X (n, p); y (n,).
    """

    X: np.ndarray  # of shape (n, p)
    y: np.ndarray  # of shape (n,)
    loss: OwnerLoss
    lam: float = 0.0
    limit: float = math.inf  # bound that every record's gradient is clipped to; infinite clips nothing
    euclidean: bool = False  # norm of the clipping
    engine: Engine | None = None

    def __post_init__(self) -> None:
        norms = np.sqrt((self.X**2).sum(axis=1)) if self.euclidean else np.abs(self.X).sum(axis=1)
        object.__setattr__(self, "_norms", norms)
        moments = None
        if self.loss.name == "squared" and math.isinf(self.limit):
            X, n = self.X, len(self.y)
            moments = (X.T @ X / n, X.T @ self.y / n, float(self.y @ self.y) / n)
        object.__setattr__(self, "_moments", moments)

    def gradient(self, thetas: np.ndarray) -> np.ndarray:
        """Mean bounded gradient at every column of `thetas`, (p, R), without the regularisation."""
        moments = self._moments  # type: ignore[attr-defined]
        if moments is not None:
            return np.asarray(moments[0] @ thetas - moments[1][:, None])
        n, norms = len(self.y), self._norms  # type: ignore[attr-defined]
        engine = self.engine or Engine()
        thetas = np.ascontiguousarray(thetas)
        chunks = 4 * engine.n_threads
        bounds = [n * k // chunks for k in range(chunks + 1)]

        def work(k: int) -> np.ndarray:
            total = np.zeros_like(thetas)
            scores = np.empty((_BLOCK_ROWS, thetas.shape[1]))
            for start in range(bounds[k], bounds[k + 1], _BLOCK_ROWS):
                stop = min(start + _BLOCK_ROWS, bounds[k + 1])
                rows, block = self.X[start:stop], scores[: stop - start]
                np.matmul(rows, thetas, out=block)
                owner_batch_slopes(block, self.y[start:stop], norms[start:stop], self.loss.code, self.limit)
                total += rows.T @ block
            return total

        with engine.limited():
            return np.sum(engine.map(work, range(chunks)), axis=0) / n

    def objective(self, thetas: np.ndarray) -> np.ndarray:
        """f at every column of `thetas`, shape (R,)."""
        penalty = 0.5 * self.lam * (thetas**2).sum(axis=0)
        moments = self._moments  # type: ignore[attr-defined]
        if moments is not None:
            gram, cross, square = moments
            quadratic = 0.5 * ((gram @ thetas) * thetas).sum(axis=0)
            return np.asarray(quadratic - cross @ thetas + 0.5 * square + penalty)
        total = np.zeros(thetas.shape[1])
        for start in range(0, len(self.y), 4096):
            z = self.X[start : start + 4096] @ thetas
            total += loss_values(self.loss.name, z, self.y[start : start + 4096, None]).sum(axis=0)
        return total / len(self.y) + penalty


def repeat_insecurely(
    population: Population,
    *,
    method: str,
    step: float,
    rounds: int,
    theta_max: float,
    mechanism: str,
    scales: Sequence[float | np.ndarray],
    weights: Sequence[float],
    repetitions: int,
    seed: int,
    record: bool = False,
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Run a training many times with seeded NumPy noise: no privacy whatsoever.

    Shapes: each of scales (R,); models (p, R).
    """
    generator = np.random.default_rng(seed)
    p = population.X.shape[1]
    thetas, average = np.zeros((p, repetitions)), np.zeros((p, repetitions))
    averaged = method in ("algorithm2", "strongly_convex")
    limit = math.inf if method == "algorithm1" else theta_max
    history: list[np.ndarray] = []
    for k in range(1, rounds + (method not in PRINTED)):
        gradient = population.gradient(thetas) + population.lam * thetas
        for scale, weight in zip(scales, weights, strict=True):
            if np.any(scale):
                draw = generator.laplace if mechanism == "laplace" else generator.normal
                gradient += weight * draw(0.0, scale, size=(p, repetitions))
        share = average_weight(method, k, rounds)
        average = (1 - share) * average + share * thetas
        thetas = np.clip(thetas - step_of(method, step, k, rounds) * gradient, -limit, limit)
        if record:
            history.append((average if averaged else thetas).copy())
    return (average if averaged else thetas), history
