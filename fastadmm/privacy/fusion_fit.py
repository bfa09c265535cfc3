"""The label holder's part of mode "fusion": joint weights from its own columns and noisy scores.

The clean scores given columns and label are taken as Gaussian, so that the log-odds of the label are linear
in them. Ridge regressions within classes, each with the penalty that its marginal likelihood chooses, and a
last logistic fit over the scores' posterior: ``docs/fusion.md#the-label-holders-fit``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fastadmm.blocks.block import FeatureBlock
from fastadmm.engine.engine import Engine
from fastadmm.privacy.fusion_mechanisms import SCORE_RANGE
from fastadmm.privacy.fusion_party import FusionMessage
from fastadmm.problem.problem import Problem

Array = np.ndarray

#: Precision with which alpha is held near T^-1 c1; scores are log-odds, so alpha is of order 1.
_ALPHA_PRECISION = 50.0

#: What alpha is before anything is known: between "adds nothing", 0, and "independent evidence", 1.
_ALPHA_MEAN, _ALPHA_DEVIATION = 0.5, 0.5

#: Correlation of two parties' scores given label and D_1, before anything is known.
_CORRELATION_MEAN, _CORRELATION_DEVIATION = 0.2, 0.2

#: Scores are log-odds: beyond this a scale is an accident of noise.
_LARGEST_ALPHA = 1.5

#: Smallest share of a score's variance within classes that is left unexplained.
_LEAST_RESIDUAL = 0.2


@dataclass(frozen=True)
class FusionFit:
    """The joint model, linear in columns and clean scores. Shapes: weights (d_1,); scales (M - 1,)."""

    weights: Array  # of shape (d_1,): for the label holder's columns
    intercept: float
    scales: Array  # of shape (M - 1,): alpha: the factor of each party's score
    loss: float  # mean logistic loss of the last fit on the training records, over the posterior


def fit_scores(
    problem: Problem,
    holder: int,
    public_class: Array,
    own: tuple[Array, float],
    messages: Sequence[FusionMessage],
    engine: Engine,
) -> FusionFit:
    r"""Fit the joint model. Shapes: public_class (N,); each of own (d_1,).

    The last fit, over the posterior, takes :math:`E\,\sigma(u) \approx \sigma(u/\sqrt{1 + \pi v/8})`.
    """
    from scipy.optimize import minimize
    from scipy.special import expit

    block, y, ridge = problem.blocks[holder], problem.y, problem.regularization
    model = _ScoreModel(ClassDesign(block, y, engine), y, public_class, messages)
    mean, covariance = model.posterior(expit(block.product(own[0], engine) + own[1]))
    alpha, centre, d = model.alpha(), model.c0 + 0.5 * model.c1, len(own[0])
    centred = mean - model.c0 - model.projected - 0.5 * model.c1

    def objective(theta: Array) -> tuple[float, Array]:
        w, b, a = theta[:d], theta[d], theta[d + 1 :]
        spread = covariance @ a
        u = block.product(w, engine) + b + centred @ a
        s = 1.0 / np.sqrt(1.0 + math.pi / 8.0 * (spread @ a))
        z = u * s
        r = expit(z) - y
        value = float(np.logaddexp(0.0, z).sum() - y @ z)
        value += 0.5 * ridge * float(w @ w) + 0.5 * _ALPHA_PRECISION * float((a - alpha) @ (a - alpha))
        scaled = r * s
        slope = centred.T @ scaled - math.pi / 8.0 * (spread.T @ (r * u * s**3))
        slopes = block.transposed_product(scaled, engine) + ridge * w, [scaled.sum()]
        return value / len(y), np.concatenate([*slopes, slope + _ALPHA_PRECISION * (a - alpha)]) / len(y)

    start = np.concatenate([own[0], [own[1]], alpha])
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options={"maxiter": 300, "gtol": 1e-7})
    w, b, scales = found.x[:d], float(found.x[d]), found.x[d + 1 :]
    intercepts = np.array([m.model.intercept for m in messages])
    intercept = float(b - float(scales @ centre) + scales @ intercepts)
    return FusionFit(w - model.coefficients @ scales, intercept, scales, float(found.fun))


class _ScoreModel:
    """c0, G, c1, T and the noise's variance, from the noisy scores O of all parties."""

    def __init__(
        self, design: ClassDesign, y: Array, public_class: Array, messages: Sequence[FusionMessage]
    ) -> None:
        from scipy.special import ndtr

        n, parties = len(y), len(messages)
        share = design.count / n
        self.noisy, self.projected = np.empty((2, n, parties))
        self.c0, self.c1, self.noise, self.relative_error = np.empty((4, parties))
        self.residual, columns = np.zeros((parties, parties)), []
        for j, message in enumerate(messages):
            center, variance = message.moments.overall
            # A Gaussian score cut at +-clip correlates with the uncut one as if scaled so (Bussgang 1952).
            gain = 2.0 * float(ndtr(message.channel.clip / math.sqrt(variance))) - 1.0
            self.noisy[:, j] = center + (message.values - message.channel.center) / gain
            self.noise[j] = max(float(self.noisy[:, j].var()) - variance, 1e-3 * variance)
            means, error = _class_means(message, self.noisy[:, j], y, public_class)
            slopes, _, explained = design.regress(self.noisy[:, j])
            columns.append(slopes)
            self.projected[:, j] = design.block.product(slopes, design.engine)
            self.c0[j] = means[0] - design.class_means[0] @ slopes
            self.c1[j] = means[1] - design.class_means[1] @ slopes - self.c0[j]
            within = max(variance - share[0] * share[1] * (means[1] - means[0]) ** 2, 0.1 * variance)
            self.residual[j, j] = max(within - explained, _LEAST_RESIDUAL * within)
            square_error = SCORE_RANGE**2 * message.moments.sigma * math.sqrt(2.0) / n
            errors = error / max(abs(self.c1[j]), 1e-12), square_error / self.residual[j, j]
            self.relative_error[j] = math.hypot(*errors)
        self.coefficients = np.column_stack(columns)
        rest = self.noisy - self.c0 - self.projected - np.outer(y, self.c1)
        rest -= rest.mean(axis=0)
        for j in range(parties):
            for k in range(j):
                product = float(rest[:, j] @ rest[:, k]) / n
                error = float(rest[:, j].var() * rest[:, k].var()) / n
                # Believed as far as it stands out of its noise; parties that predict one label tend to agree.
                scale = math.sqrt(self.residual[j, j] * self.residual[k, k])
                known = (_CORRELATION_DEVIATION * scale) ** 2
                product = (product * known + _CORRELATION_MEAN * scale * error) / (known + error)
                limit = 0.9 * scale / max(parties - 1, 1)
                self.residual[j, k] = self.residual[k, j] = min(max(product, -limit), limit)

    def alpha(self) -> Array:
        """T^-1 c1, drawn to what is known beforehand as far as c1 and T are uncertain."""
        found = np.linalg.solve(self.residual, self.c1)
        variance, known = (found * self.relative_error) ** 2, _ALPHA_DEVIATION**2
        mean = (found * known + _ALPHA_MEAN * variance) / (known + variance)
        return np.clip(mean, -_LARGEST_ALPHA, _LARGEST_ALPHA)

    def posterior(self, probability: Array) -> tuple[Array, Array]:
        """Mean (N, M-1) and covariance (N, M-1, M-1) of the clean scores given D_1 and the symbols."""
        p = probability[:, None, None]
        prior = self.residual[None] + p * (1.0 - p) * np.outer(self.c1, self.c1)[None]
        mean = self.c0 + self.projected + probability[:, None] * self.c1
        gain = prior @ np.linalg.inv(prior + np.diag(self.noise)[None])
        return mean + (gain @ (self.noisy - mean)[:, :, None])[:, :, 0], prior - gain @ prior


def _class_means(message: FusionMessage, noisy: Array, y: Array, public_class: Array) -> tuple[Array, float]:
    """Mean score of each true class by precision of its sources, and the error of their difference."""
    moments, found = message.moments, []
    for k in range(2):
        members = (public_class > 0.5) == bool(k)
        if members.any():
            share = float(y[members].mean())
            precision = (moments.count[k] / (SCORE_RANGE * moments.sigma)) ** 2
            found.append((1.0 - share, share, moments.mean[k], precision))
        members = (y > 0.5) == bool(k)
        precision = members.sum() / max(float(noisy[members].var()), 1e-12)
        found.append((1.0 - k, float(k), float(noisy[members].mean()), precision))
    values = np.array(found)
    A, t, w = values[:, :2].copy(), values[:, 2].copy(), values[:, 3].copy()
    covariance = np.linalg.inv((A * w[:, None]).T @ A)
    difference = np.array([-1.0, 1.0])
    return covariance @ ((A * w[:, None]).T @ t), float(np.sqrt(difference @ covariance @ difference))


#: Up to so many columns the Gram matrix is used whole, else its leading directions.
_MAX_COLUMNS = 1500
_DIRECTIONS, _PASSES = 256, 3


class ClassDesign:
    """Columns for regressions within classes. Shapes: block (N, d); y (N,); class_means (2, d)."""

    def __init__(self, block: FeatureBlock, y: Array, engine: Engine) -> None:
        self.block, self.y, self.engine = block, y, engine
        n, d = block.shape
        self.count = np.array([n - y.sum(), y.sum()])
        sums = np.array([block.transposed_product(1.0 - y, engine), block.transposed_product(y, engine)])
        self.class_means = sums / self.count[:, None]
        self._basis: Array | None = None
        if d <= _MAX_COLUMNS:
            gram = block.gram(engine)
        else:
            self._basis = _leading_directions(block, engine)
            projected = np.column_stack([block.product(v, engine) for v in self._basis.T])
            gram = projected.T @ projected
            sums = sums @ self._basis
        self._within = gram - (sums / self.count[:, None]).T @ sums
        values, self._vectors = np.linalg.eigh(self._within)
        self._eigenvalues = np.maximum(values, 0.0)

    def regress(self, values: Array) -> tuple[Array, float, float]:
        r"""Regress numbers on the columns, class means taken out. Shapes: values (N,); coefficients (d,)."""
        n = len(self.y)
        means = np.array([values @ (1.0 - self.y), values @ self.y]) / self.count
        residual = values - means[(self.y > 0.5).astype(np.int64)]
        moment = self.block.transposed_product(residual, self.engine)
        if self._basis is not None:
            moment = moment @ self._basis
        b, e = self._vectors.T @ moment, self._eigenvalues
        total, scale = float(residual @ residual), max(float(e.max()), 1e-300)
        penalties = scale * np.exp(np.linspace(np.log(1e-8), np.log(1e4), 121))
        best, penalty = np.inf, penalties[-1]
        for candidate in penalties:
            quadratic = total - float((b * b / (e + candidate)).sum())
            if quadratic > 0.0:
                value = (n - 2) * np.log(quadratic) + float(np.log1p(e / candidate).sum())
                best, penalty = min((best, penalty), (value, candidate))
        small = self._vectors @ (b / (e + penalty))
        explained = float(small @ self._within @ small) / n
        return (small if self._basis is None else self._basis @ small), float(penalty), explained


def _leading_directions(block: FeatureBlock, engine: Engine) -> Array:
    """An orthonormal basis, of shape (d, 256), near the largest right singular vectors."""
    # Which basis is found affects quality only; a fixed seed keeps runs comparable.
    basis = np.random.default_rng(0).standard_normal((block.shape[1], _DIRECTIONS))
    for _ in range(_PASSES):
        basis, _ = np.linalg.qr(basis)
        columns = (block.transposed_product(block.product(v, engine), engine) for v in basis.T)
        basis = np.column_stack(list(columns))
    return np.linalg.qr(basis)[0]
