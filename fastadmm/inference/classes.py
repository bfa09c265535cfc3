r"""Standard errors of a multinomial model: of each class's weights less those of the first class.

A number that is added to the weights of all classes changes no probability, so a class's own weights have no
standard errors. Differences to the first class do. The ridge penalty of all weights is, for such differences
:math:`\delta_c`, the least that any weights with these differences have:

.. math:: \tfrac{\lambda N}{2} \Big( \sum_c |\delta_c|^2 - \tfrac1C \big|\sum_c \delta_c\big|^2 \Big).
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from scipy import special

from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError, InputError
from fastadmm.inference.estimate import (
    INTERCEPT,
    SHRUNK,
    Estimate,
    Factor,
    Fit,
    check_penalty,
    overall_test,
    refuse_separated,
)
from fastadmm.inference.likelihood import Family, joint_gram, joint_products
from fastadmm.problem.problem import Problem

Array = np.ndarray


def contrasts(weights: Array) -> Array:
    """Weights of the other classes less those of the first, of shape (C - 1, d), for weights of (d, C)."""
    return np.asarray(weights.T[1:] - weights.T[:1])


def order_of(widths: Sequence[int], n_others: int, intercept: bool) -> Array:
    """Places in the table of weights that stand class by class, each with the columns of all parties."""
    each = sum(widths) + intercept
    ends = np.cumsum([0, *widths, *[1] * intercept])
    places = [c * each + np.arange(a, b) for a, b in pairwise(ends) for c in range(n_others)]
    return np.concatenate(places)


def estimate_classes(
    problem: Problem,
    weights: Sequence[Array],
    intercept: Array,
    engine: Engine,
    covariance: str,
    names: Sequence[str],
) -> Estimate:
    """Infer from a trained multinomial model and the data it was trained on.

    Shapes: each of weights (d_m, C); intercept (C,).
    """
    check_penalty(problem, covariance)
    if problem.offset.any():
        raise ConfigError("inference: several classes with an offset have no standard errors here")
    active, ones, count = problem.weight > 0.0, problem.fit_intercept, problem.n_outputs
    n, others = int(active.sum()), problem.n_outputs - 1
    weight = problem.weight * (n / problem.weight.sum())
    z = np.zeros((count, problem.n_samples)) + np.reshape(intercept, (-1, 1))
    for block, x in zip(problem.blocks, weights, strict=True):
        z += block.matrix_product(np.ascontiguousarray(x.T), engine)
    likely = special.softmax(z, axis=0)
    refuse_separated((likely * (1.0 - likely)).max(axis=0), active)
    slope = weight * (likely - (np.arange(count)[:, np.newaxis] == problem.y))
    width = sum(len(x) for x in weights) + ones
    hessian, middle = (np.empty((others, width, others, width)) for _ in range(2))
    for a in range(1, count):
        for b in range(1, a + 1):
            own = weight * likely[a] * ((1.0 if a == b else 0.0) - likely[b])
            hessian[a - 1, :, b - 1] = _gram(problem, own, engine)
            hessian[b - 1, :, a - 1] = hessian[a - 1, :, b - 1].T
            if covariance != "model":
                middle[a - 1, :, b - 1] = _gram(problem, slope[a] * slope[b], engine)
                middle[b - 1, :, a - 1] = middle[a - 1, :, b - 1].T
    size = others * width
    flat = hessian.reshape(size, size)
    ridge = problem.lam * n if problem.party_regularizers[0].name == "l2" else 0.0
    shrinks = np.repeat([1.0, 0.0], [width - ones, ones])
    penalty = ridge * np.kron(np.eye(others) - 1.0 / count, np.diag(shrinks))
    table = [contrasts(x) for x in weights] + [contrasts(np.reshape(intercept, (1, -1)))] * ones
    deltas = np.concatenate(table, axis=1).ravel()
    called = [*names, *[INTERCEPT] * ones] * others
    solve = Factor(flat + penalty, called)
    df = float(np.trace(solve(flat)))
    if n - df <= 0.0:
        raise InputError(f"inference: {size} weights from {n} rows: nothing is left to estimate errors from")
    used = flat
    if covariance != "model":
        used = middle.reshape(size, size) * (n / (n - df) if covariance == "HC1" else 1.0)
    covered = solve(solve(used).T)
    covered = 0.5 * (covered + covered.T)
    gradient = np.concatenate([joint_products(problem.blocks, own, ones, engine) for own in slope[1:]])
    step = solve(gradient + penalty @ deltas)
    distance = float(np.max(np.abs(step) / np.sqrt(np.diag(covered)), initial=0.0))
    fit = _fit(problem, z, weight, n, df)
    shrunk = size - df > SHRUNK
    tested = size - others * ones
    overall = None if shrunk or not tested else overall_test(_FAMILY, fit, tested)
    return Estimate(deltas, covered, _FAMILY, fit, overall, shrunk, step, distance)


def _gram(problem: Problem, weight: Array, engine: Engine) -> Array:
    """Weighted Gram matrix for weights of any sign."""
    ones = problem.fit_intercept
    found = joint_gram(problem.blocks, np.maximum(weight, 0.0), ones, engine)
    if weight.min(initial=0.0) < 0.0:
        found = found - joint_gram(problem.blocks, np.maximum(-weight, 0.0), ones, engine)
    return found


def _fit(problem: Problem, z: Array, weight: Array, n: int, df: float) -> Fit:
    rows = np.arange(problem.n_samples)
    labels = problem.y.astype(int)
    likelihood = float(weight @ (z[labels, rows] - special.logsumexp(z, axis=0)))
    counts = np.bincount(labels, weights=weight, minlength=problem.n_outputs)
    null = float(special.xlogy(counts, counts / n).sum())
    if not problem.fit_intercept:
        null = -n * math.log(problem.n_outputs)
    return Fit(
        n=n,
        df=df,
        log_likelihood=likelihood,
        null_log_likelihood=null,
        deviance=-2.0 * likelihood,
        null_deviance=-2.0 * null,
        aic=2.0 * df - 2.0 * likelihood,
        bic=math.log(n) * df - 2.0 * likelihood,
        pseudo_r2=1.0 - likelihood / null if null else math.nan,
        adjusted_r2=None,
        dispersion=1.0,
    )


def _not_by_one_predictor(z: Array, y: Array, weight: Array, dispersion: float) -> float:
    raise AssertionError("the likelihood of several classes is of several predictors")


_FAMILY = Family("multinomial", _not_by_one_predictor, "odds ratio")
