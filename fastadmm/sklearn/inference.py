"""Inference from a fitted estimator and the data it was fitted on."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np

from fastadmm.errors import ConfigError, InputError
from fastadmm.inference.table import Inference, infer

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
    names = getattr(model, "feature_names_in_", [f"x{j}" for j in range(model.n_features_in_)])
    features = [str(names[j]) for held in columns for j in held]
    factors, threads = probe._factors, model.n_threads
    return infer(problem, weights, model.intercept_, factors, features, covariance, level, threads)
