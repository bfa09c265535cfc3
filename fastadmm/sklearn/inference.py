"""Inference from a fitted estimator and the data it was fitted on."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError, InputError
from fastadmm.inference.estimate import estimate
from fastadmm.inference.table import Inference, inference_table

__all__ = ["infer_estimator"]


def infer_estimator(
    model: Any, X: Any, y: Any, sample_weight: Any, offset: Any, covariance: str, level: float
) -> Inference:
    """Standard errors, tests and fit statistics of a fitted estimator.

    Parameters
    ----------
    model : estimator
        Fitted.
    X, y, sample_weight, offset
        As given to ``fit``.
    covariance : {"model", "HC0", "HC1"}
    level : float
        Of the confidence intervals.

    Returns
    -------
    Inference

    Raises
    ------
    ValueError
        If the data are not those of ``fit``, or the model has no standard errors.
    """
    if model.privacy is not None:
        raise ConfigError(
            "inference: a private fit: standard errors are exact functions of the private rows, and its "
            "budget does not cover them"
        )
    probe = copy(model)  # reading the data records what was seen; the fitted estimator keeps its own
    problem, columns, _ = probe._problem(X, y, sample_weight, offset)
    weights = model.party_coefs_
    found, known = [len(held) for held in columns], [len(x) for x in weights]
    if found != known:
        raise InputError(f"X: blocks of {found} columns, but {type(model).__name__} was fitted on {known}")
    if not np.array_equal(getattr(probe, "classes_", ()), getattr(model, "classes_", ())):
        raise InputError("y: other classes than those of fit; infer from the data it was fitted on")
    if weights[0].ndim == 2:
        raise ConfigError(
            "inference: the loss 'multinomial' has no standard errors here; fit with two classes"
        )
    factors = [1.0] * len(weights) if probe._factors is None else probe._factors
    names = getattr(model, "feature_names_in_", [f"x{j}" for j in range(model.n_features_in_)])
    features = [str(names[j]) for held in columns for j in held]
    with Engine(model.n_threads) as engine, engine.limited():
        scaled = [x / factor for x, factor in zip(weights, factors)]
        intercept = float(np.ravel(model.intercept_)[0])
        errors = estimate(problem, scaled, intercept, engine, covariance, features)
    mapping = np.diag([f for f, x in zip(factors, weights) for _ in x] + [1.0] * problem.fit_intercept)
    return inference_table(errors.mapped(mapping), known, problem.names, features, level, covariance)
