r"""Standard errors, tests and fit statistics of weights that minimise a penalised log-likelihood.

With the information H of the rows (the curvature of the summed loss, or its expectation), the penalty's P
(:math:`\lambda N` for every weight, 0 for the intercept) and the covariance G of the samples' gradients,

.. math:: \mathrm{cov}\,\hat x = \varphi\, (H + P)^{-1} G (H + P)^{-1},

where G = H under the model, and the sum of squared gradients otherwise ("sandwich": Huber 1967, White 1980).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import linalg, special

from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError, InputError
from fastadmm.inference.classes import rows_of_classes
from fastadmm.inference.likelihood import FAMILIES, Family, Rows, family_of, joint_gram, joint_products
from fastadmm.method.certificate import increasing_root
from fastadmm.problem.problem import Problem

Array = np.ndarray

#: How the covariance of the weights is computed.
COVARIANCES = ("model", "HC0", "HC1")

#: Beyond it a few p x p matrices do not fit most memories.
_MOST_COLUMNS = 10_000

#: Effective parameters that a penalty may take away before tests know of it.
SHRUNK = 1e-3

#: What messages call it.
INTERCEPT = "the intercept"

#: Weight of a fitted probability p(1 - p) below which a sample says nothing.
_SEPARATED = 1e-6


@dataclass(frozen=True)
class Test:
    """A test of weights being zero."""

    name: str
    statistic: float
    df: tuple[float, ...]  # degrees of freedom: one of a chi-square, two of an F distribution
    p_value: float


@dataclass(frozen=True)
class Fit:
    """How well the model fits."""

    n: int  # rows with a positive weight
    df: float  # effective number of parameters, tr H (H + P)^-1, with the intercept
    log_likelihood: float  # of the model, and of intercept and offset alone
    null_log_likelihood: float  # of the model, and of intercept and offset alone
    deviance: float
    null_deviance: float
    aic: float  # -2 log-likelihood + 2 df, and + df log n
    bic: float  # -2 log-likelihood + 2 df, and + df log n
    pseudo_r2: float
    adjusted_r2: float | None  # of the normal distribution
    dispersion: float


@dataclass(frozen=True)
class Estimate:
    """Weights of all parties, the intercept last, with their covariance.

    Shapes: weights, step (p,); covariance (p, p).
    """

    weights: Array  # of shape (p,)
    covariance: Array  # of shape (p, p)
    family: Family
    fit: Fit
    overall: Test | None
    shrunk: bool  # whether the penalty takes effective parameters away
    step: Array  # of shape (p,): the Newton step: how far the weights are above the optimum
    distance: float  # largest of these steps, in standard errors of the weights

    @property
    def standard_errors(self) -> Array:
        """Of shape (p,)."""
        return np.sqrt(np.diag(self.covariance))

    def p_values(self) -> Array:
        """Two-sided, of each weight being zero, of shape (p,); t where a dispersion is estimated, else z."""
        ratios = np.abs(self.statistics())
        if self.family.has_dispersion:
            return np.asarray(2.0 * special.stdtr(self.fit.n - self.fit.df, -ratios))
        return np.asarray(2.0 * special.ndtr(-ratios))

    def statistics(self) -> Array:
        """Weights over standard errors, of shape (p,)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return self.weights / self.standard_errors

    def half_widths(self, level: float) -> Array:
        """Half widths of confidence intervals, of shape (p,)."""
        tail = 0.5 + 0.5 * level
        if self.family.has_dispersion:
            return self.standard_errors * special.stdtrit(self.fit.n - self.fit.df, tail)
        return self.standard_errors * special.ndtri(tail)

    def wald(self, name: str, chosen: slice) -> Test:
        """Joint Wald test of some weights being zero."""
        x, k = self.weights[chosen], len(self.weights[chosen])
        statistic = float(x @ np.linalg.solve(self.covariance[chosen, chosen], x))
        return _tested(self.family, self.fit, name, statistic, k)

    def mapped(self, mapping: Array) -> Estimate:
        """This estimate for the same model in other units. Shapes: mapping (p, p)."""
        weights, covariance = mapping @ self.weights, mapping @ self.covariance @ mapping.T
        return replace(self, weights=weights, covariance=covariance, step=mapping @ self.step)

    def part(self, chosen: slice) -> Estimate:
        """Some of the weights."""
        covariance = self.covariance[chosen, chosen]
        return replace(self, weights=self.weights[chosen], covariance=covariance, step=self.step[chosen])


def estimate(
    problem: Problem,
    weights: Sequence[Array],
    intercept: Array | float,
    engine: Engine,
    covariance: str,
    names: Sequence[str],
    penalty: Array | None = None,
) -> Estimate:
    """Infer from a trained model and the data it was trained on.

    Shapes: each of weights (d_m,) or (d_m, C); intercept (C,); penalty (p, p).
    """
    family = check_inferable(problem, covariance)
    active, ones, vector = problem.weight > 0.0, problem.fit_intercept, problem.loss.vector
    n, total = int(active.sum()), _total(problem, family)
    weight = problem.weight * (total / problem.weight.sum())
    width = sum(len(x) for x in weights) + ones
    others = problem.n_outputs - 1 if vector else 1
    size = others * width
    if size > _MOST_COLUMNS:
        raise InputError(f"inference: {size} weights; at most {_MOST_COLUMNS} fit")
    if vector:
        rows = rows_of_classes(problem, weights, np.ravel(intercept), weight, engine)
    else:
        by_model = family.information if covariance == "model" else None
        rows = _rows_of_one(problem, by_model, weights, float(np.ravel(intercept)[0]), weight, engine)
    if rows.spread is not None and not rows.spread[active].max() > _SEPARATED:
        raise InputError(
            "inference: every fitted probability is 0 or 1: some columns tell the classes apart completely, "
            "and their weights have no finite standard error; drop those columns, or train with a larger "
            "lambda"
        )
    hessian = _information(problem, others, rows.curvature, engine)
    if penalty is None:
        shrinks = np.diag([ridge_of(problem)] * (width - ones) + [0.0] * ones)
        penalty = np.kron(np.eye(others) - (1.0 / problem.n_outputs if vector else 0.0), shrinks)
    solve = Factor(hessian + penalty, [*names, *[INTERCEPT] * ones] * others)
    df = float(np.trace(solve(hessian)))
    if n - df <= 0.0:
        raise InputError(f"inference: {size} weights from {n} rows: nothing is left to estimate errors from")
    fit = _fit(problem, family, rows, n, df, engine)
    middle = fit.dispersion * hessian
    if covariance != "model":
        slopes = rows.slopes
        middle = _information(problem, others, lambda a, b: slopes[a] * slopes[b], engine)
        middle = middle * (n / (n - df) if covariance == "HC1" else 1.0)
    covered = solve(solve(middle).T)
    covered = 0.5 * (covered + covered.T)
    gradient = np.concatenate([joint_products(problem.blocks, own, ones, engine) for own in rows.slopes])
    step = solve(gradient + penalty @ rows.estimates)
    distance = float(np.max(np.abs(step) / np.sqrt(np.diag(covered)), initial=0.0))
    shrunk, tested = size - df > SHRUNK, size - others * ones
    overall = None if shrunk or not tested else overall_test(family, fit, tested)
    return Estimate(rows.estimates, covered, family, fit, overall, shrunk, step, distance)


def _rows_of_one(
    problem: Problem, bends: Any, weights: Sequence[Array], intercept: float, weight: Array, engine: Engine
) -> Rows:
    """What the rows say of one predictor; ``bends`` gives other curvatures than its own."""
    z = problem.offset + intercept
    for block, x in zip(problem.blocks, weights, strict=True):
        z = z + block.product(np.ascontiguousarray(x), engine)
    slope, curvature = np.empty((2, len(z)))
    problem.loss.evaluate(z, problem.y, weight, slope, engine)
    problem.loss.curvature(z, problem.y, weight, curvature, engine)
    curvature = curvature if bends is None else weight * bends(z)
    shares = problem.loss.name in ("logistic", "binomial")
    return Rows(
        z=z,
        null=_null_predictor(problem, weight, engine),
        weight=weight,
        slopes=slope[np.newaxis],
        curvature=lambda a, b: curvature,
        estimates=np.concatenate([*weights, [intercept]] if problem.fit_intercept else list(weights)),
        spread=curvature / np.where(weight > 0.0, weight, 1.0) if shares else None,
    )


def _information(problem: Problem, others: int, weight: Callable[[int, int], Array], engine: Engine) -> Array:
    """Weighted Gram matrices of all columns for each pair of predictors, as one matrix."""
    own, ones = problem.blocks, problem.fit_intercept
    blocks: list[list[Array]] = [[np.zeros(0)] * others for _ in range(others)]
    for a in range(others):
        for b in range(a + 1):
            by = weight(a, b)
            found = joint_gram(own, np.maximum(by, 0.0), ones, engine)
            if by.min(initial=0.0) < 0.0:
                found = found - joint_gram(own, np.maximum(-by, 0.0), ones, engine)
            blocks[a][b], blocks[b][a] = found, found.T
    return np.block(blocks)


def ridge_of(problem: Problem) -> float:
    """What the penalty adds to the information of every weight, for the rows that are counted."""
    family = family_of(problem.loss)
    assert family is not None  # check_inferable
    return _total(problem, family) * problem.lam if problem.party_regularizers[0].name == "l2" else 0.0


def _total(problem: Problem, family: Family) -> float:
    """Sum of the weights: numbers of trials, or relative ones, with mean 1 over the rows that count."""
    if family.trials:
        return float(problem.mean_weight * problem.weight.sum())
    return float((problem.weight > 0.0).sum())


def check_inferable(problem: Problem, covariance: str) -> Family:
    """The loss's distribution."""
    if covariance not in COVARIANCES:
        raise ConfigError(f"covariance: unknown choice {covariance!r}; choose {', '.join(COVARIANCES)}")
    kind = problem.party_regularizers[0].name
    if kind not in ("l2", "none") or any(c.name != "all" for c in problem.party_constraints):
        raise ConfigError(
            f"inference: standard errors are not valid after regularizer {kind!r} or inside a set: they "
            "ignore that columns were chosen by the data; train with l2 and a small lambda"
        )
    family = family_of(problem.loss)
    if family is None:
        raise ConfigError(
            f"inference: the loss {problem.loss.name!r} is no log-likelihood with standard errors here; "
            f"train with {', '.join(FAMILIES)}"
        )
    return family


class Factor:
    """Solves with a positive definite matrix whose columns may have very different sizes.

    Shapes: matrix (p, p).
    """

    def __init__(self, matrix: Array, names: Sequence[str]) -> None:
        diagonal = np.diag(matrix)
        self.scale = 1.0 / np.sqrt(np.where(diagonal > 0.0, diagonal, 1.0))
        scaled = matrix * self.scale * self.scale[:, np.newaxis]
        # Sums of n products carry an error of some units of rounding.
        tolerance = len(matrix) * 1e-13
        lower, order, rank, _ = linalg.lapack.dpstrf(scaled, lower=1, tol=tolerance)
        if rank < len(matrix):
            name = names[_last_dependent(lower, order - 1, int(rank), names)]
            raise InputError(
                f"inference: {name} is a combination of other columns; drop it, or train with a larger lambda"
            )
        self.factor = linalg.cho_factor(scaled, lower=True)

    def __call__(self, right: Array) -> Array:
        by = self.scale if right.ndim == 1 else self.scale[:, np.newaxis]
        return np.asarray(by * linalg.cho_solve(self.factor, by * right))


def _last_dependent(lower: Array, order: Array, rank: int, names: Sequence[str]) -> int:
    """Of the columns that take part in a combination that is zero, the last one that a party has.

    Which columns a factorisation with pivots leaves over is a matter of rounding; which ones some combination
    needs is not.

    Shapes: lower (p, p); order (p,).
    """
    kept, left = order[:rank], order[rank:]
    shares = linalg.solve_triangular(lower[:rank, :rank], lower[rank:, :rank].T, lower=True, trans="T")
    # Columns have length one here, and what is below the tolerance is known to about its root, 1e-6.
    taking_part = [*left, *kept[np.abs(shares).max(axis=1) > 1e-3]]
    return int(max(j for j in taking_part if names[j] != INTERCEPT))


def _fit(problem: Problem, family: Family, rows: Rows, n: int, df: float, engine: Engine) -> Fit:
    y, weight, points = problem.y, rows.weight, (rows.z, rows.null)
    dispersion = 1.0
    if family.variance is not None:
        mean = problem.loss.predict_mean(rows.z)
        dispersion = float(weight @ ((y - mean) ** 2 / family.variance(mean))) / (n - df)
        if dispersion == 0.0:
            raise InputError(
                "inference: the model meets every target exactly: nothing is left to estimate errors from"
            )
    likelihood, at_null = (family.log_likelihood(at, y, weight, dispersion) for at in points)
    if problem.loss.vector:
        deviance, null_deviance = -2.0 * likelihood, -2.0 * at_null
    else:
        deviance, null_deviance = (_deviance(problem, at, weight, engine) for at in points)
    adjusted, r2 = None, 1.0 - likelihood / at_null if at_null else math.nan
    if family.has_dispersion:
        r2 = 1.0 - deviance / null_deviance if null_deviance else math.nan
    if family.name == "normal":
        k = 1.0 if problem.fit_intercept else 0.0
        adjusted = 1.0 - (1.0 - r2) * (n - k) / (n - df)
    aic, bic = (factor * df - 2.0 * likelihood for factor in (2.0, math.log(n)))
    deviances = deviance, null_deviance
    return Fit(n, df, likelihood, at_null, *deviances, aic, bic, r2, adjusted, dispersion)


def _deviance(problem: Problem, z: Array, weight: Array, engine: Engine) -> float:
    """Twice the loss above its least value; of the normal distribution the residual sum of squares."""
    loss = problem.loss.evaluate(z, problem.y, weight, np.empty_like(z), engine)
    return 2.0 * (loss - problem.loss.least(problem.y, weight))


def _null_predictor(problem: Problem, weight: Array, engine: Engine) -> Array:
    """Offset and the best intercept, if there is one."""
    if not problem.fit_intercept:
        return problem.offset
    slope, curvature = np.empty_like(problem.y), np.empty_like(problem.y)

    def derivative(b: float) -> tuple[float, float]:
        z = problem.offset + b
        problem.loss.evaluate(z, problem.y, weight, slope, engine)
        problem.loss.curvature(z, problem.y, weight, curvature, engine)
        return float(slope.sum()), float(curvature.sum())

    return problem.offset + increasing_root(derivative, 0.0)


def overall_test(family: Family, fit: Fit, k: int) -> Test:
    """Whether k weights together, which nothing shrinks, are zero."""
    if family.has_dispersion:
        statistic = (fit.null_deviance - fit.deviance) / fit.dispersion
        return _tested(family, fit, "F test of all weights", statistic, k)
    statistic = 2.0 * (fit.log_likelihood - fit.null_log_likelihood)
    return _tested(family, fit, "likelihood ratio of all weights", statistic, k)


def _tested(family: Family, fit: Fit, name: str, statistic: float, k: int) -> Test:
    """A test by what is a chi-square of k degrees of freedom: by an F where a dispersion is estimated."""
    if not family.has_dispersion:
        return Test(name, statistic, (k,), float(special.chdtrc(k, statistic)))
    rest = fit.n - fit.df
    return Test(name, statistic / k, (k, rest), float(special.fdtrc(k, rest, statistic / k)))
