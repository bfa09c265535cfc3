"""What the forecast has to know about the data: curvature, distance, residuals.

From public rows as they are, or from a charged release of the second moments of one owner's bounded records
with discrete Laplace noise: one record moves their upper triangle by at most twice its squared l1 norm.
"""

import math
from dataclasses import dataclass

import numpy as np

from fastadmm.errors import ConfigError
from fastadmm.owners.bound import Bound, OwnerLoss
from fastadmm.owners.mechanism import laplace_answers, lattice_unit
from fastadmm.owners.owner import Owner, Rows
from fastadmm.store.collection import Owners


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
        raise ConfigError("pilot: no curvature is left; the pilot is too small for its noise, or all zeros")
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
    from fastadmm.owners.owner import scaled

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


def private_pilot(
    rows: Rows, bound: Bound, lam: float, intercept: bool, epsilon: float, loss: OwnerLoss
) -> Pilot:
    """Pilot of the squared loss from a private release of one owner's second moments."""
    if loss.name != "squared" or bound.kind != "features" or rows.kind != "dense":
        raise ConfigError(
            "pilot-epsilon: a private pilot is for the squared loss with --bound features:R and dense rows; "
            "use public rows"
        )
    if not 0 < epsilon < math.inf:
        raise ConfigError(f"pilot-epsilon: {epsilon:g} is not positive and finite")
    owner = Owner(
        "pilot", rows, loss=loss, bound=bound, intercept=intercept, mechanism="laplace", epsilon=math.inf,
        rounds=1,
    )  # fmt: skip
    gram, cross, square = owner.moments
    p = len(cross)
    size = p + 1
    moments = np.block([[gram, cross[:, None]], [cross[None], np.array([[square]])]])
    # |u|_1 <= sqrt(p) |u|_2 where the bound is in l2.
    row = bound.row_norm * (math.sqrt(p) if bound.euclidean else 1.0)
    upper = np.triu_indices(size)
    unit = lattice_unit(rows.n_samples, max(bound.row_norm, bound.target_limit) ** 2)
    sensitivity = 2 * (row + bound.target_limit) ** 2 + len(upper[0]) * unit
    answers = laplace_answers(unit, sensitivity, len(upper[0]), epsilon, 1)
    noisy = np.zeros((size, size))
    noisy[upper] = answers.answer(moments[upper])
    noisy += np.triu(noisy, 1).T
    # Nearest positive semidefinite matrix: what noise made negative is no curvature.
    values, vectors = np.linalg.eigh(noisy)
    noisy = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return _from_moments(
        noisy,
        rows.n_samples,
        lam,
        f"moments of {rows.n_samples} private rows, released at epsilon {epsilon:g}",
    )


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
