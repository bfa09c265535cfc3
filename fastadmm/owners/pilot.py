"""What the forecast has to know about the data: curvature, distance, residuals.

From public rows as they are, or assumed.
"""

import math
from dataclasses import dataclass

import numpy as np

from fastadmm.errors import ConfigError
from fastadmm.owners.bound import Bound, OwnerLoss
from fastadmm.owners.owner import scaled
from fastadmm.store.owner_file import Owners


@dataclass(frozen=True, eq=False)
class Pilot:
    """Local form of the objective. Shapes: h, e (p,)."""

    h: np.ndarray  # of shape (p,): eigenvalues of the Hessian at the minimum, regularisation included
    e: np.ndarray  # of shape (p,): start (zero) minus minimum, in the eigenvectors
    residual: float
    optimum: float  # objective at the minimum, for relative gaps
    quadratic: bool  # whether the objective is a quadratic everywhere
    source: str  # where it is from, for people


def _from_moments(moments: np.ndarray, n: int, lam: float, source: str) -> Pilot:
    """Pilot of least squares from ``sum [u, t][u, t]'``."""
    gram, cross, square = moments[:-1, :-1] / n, moments[:-1, -1] / n, float(moments[-1, -1]) / n
    p = len(cross)
    h, vectors = np.linalg.eigh(gram + lam * np.eye(p))
    positive = h > 1e-12 * max(h.max(), 1e-300)
    if not positive.any():
        raise ConfigError("pilot: no curvature is left; its rows are all zeros")
    rotated = vectors.T @ cross
    coordinates = np.where(positive, rotated / np.where(positive, h, 1.0), 0.0)
    theta = vectors @ coordinates
    residual = max(0.0, square - 2 * cross @ theta + theta @ gram @ theta)
    optimum = 0.5 * residual + 0.5 * lam * float(theta @ theta)
    return Pilot(np.maximum(h, 0.0), -coordinates, residual, optimum, True, source)


def fit_pilot(data: Owners, loss: OwnerLoss, bound: Bound, lam: float, intercept: bool) -> Pilot:
    """Pilot from public rows: everything in the directory is read without noise."""
    if loss.name == "hinge":
        raise ConfigError(
            "loss: the hinge has no curvature to forecast with; forecast with --loss logistic, or give "
            "--curvature"
        )
    blocks, targets = [], []
    for file in data.owners:
        y = file.targets()
        for start, block in file.iter_rows():
            rows = scaled(block, bound)
            dense = rows if isinstance(rows, np.ndarray) else rows.toarray()
            blocks.append(np.column_stack([dense, np.ones(len(dense))]) if intercept else dense)
            targets.append(y[start : start + len(dense)])
    X, y = np.concatenate(blocks).astype(float), np.concatenate(targets)
    source = f"{len(y)} public rows"
    if loss.name == "squared":
        y = np.clip(y, -bound.target_limit, bound.target_limit)
        everything = np.column_stack([X, y])
        return _from_moments(everything.T @ everything, len(y), lam, source)
    theta, hessian, value = _logistic_fit(X, y, max(lam, 1e-8))
    h, vectors = np.linalg.eigh(hessian)
    return Pilot(np.maximum(h, 0.0), -(vectors.T @ theta), 1.0, value, False, source)


def _logistic_fit(X: np.ndarray, y: np.ndarray, lam: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Newton's method with halving; minimiser, Hessian, objective."""
    from scipy.special import expit

    n, p = X.shape
    theta = np.zeros(p)

    def value(at: np.ndarray) -> float:
        return float(np.logaddexp(0.0, -y * (X @ at)).mean() + 0.5 * lam * at @ at)

    for _ in range(60):
        probability = expit(-y * (X @ theta))
        gradient = -X.T @ (y * probability) / n + lam * theta
        weight = probability * (1 - probability)
        hessian = (X.T * weight) @ X / n + lam * np.eye(p)
        move = np.linalg.solve(hessian, gradient)
        size = 1.0
        while size > 1e-8 and value(theta - size * move) > value(theta):
            size /= 2
        theta = theta - size * move
        if gradient @ move < 1e-20:
            break
    return theta, hessian, value(theta)


def assumed_pilot(low: float, high: float, n_parameters: int, distance: float) -> Pilot:
    """Pilot without data: eigenvalues spread evenly on a logarithmic scale, the distance evenly over them."""
    if not 0 < low <= high < math.inf or n_parameters < 1 or not distance >= 0:
        raise ConfigError(
            f"curvature: {low:g},{high:g} with {n_parameters} parameters at distance {distance:g}: give "
            "0 < L <= beta, at least one parameter, a distance that is not negative"
        )
    h = np.geomspace(low, high, n_parameters) if n_parameters > 1 else np.array([high])
    e = np.full(n_parameters, distance / math.sqrt(n_parameters))
    return Pilot(h, e, 1.0, 0.0, True, f"assumed curvature {low:g} to {high:g}")
