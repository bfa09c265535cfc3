"""What is told of a fitted estimator: coefficients, inference from the data it was fitted on, a page."""

from __future__ import annotations

import os
from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils.sparsefuncs import mean_variance_axis
from sklearn.utils.validation import check_is_fitted

from fastadmm.errors import ConfigError, InputError
from fastadmm.inference.table import Inference, infer
from fastadmm.problem.class_names import sign_of
from fastadmm.sklearn.columns import tables_of
from fastadmm.store.coefficients import Coefficients, coefficients
from fastadmm.store.model import Model, PartyModel
from fastadmm.store.transform import Transform


def infer_estimator(
    model: Any, X: Any, y: Any, sample_weight: Any, offset: Any, covariance: str, level: float
) -> Inference:
    """Standard errors, tests and fit statistics of a fitted estimator."""
    if model.privacy is not None:
        raise ConfigError(
            "inference: a private fit: standard errors are exact functions of the private rows, and its "
            "budget does not cover them"
        )
    model._blocks_of(X, model.party_columns_)  # refuses other columns
    probe = copy(model)  # reading the data records what was seen; the fitted estimator keeps its own
    names, held = model.party_names_, [list(own) for own in model.party_columns_]
    tables = tables_of(X, names)
    probe.parties = dict(zip(names, held)) if tables is None else None
    X = X if tables is None else dict(zip(names, tables.values()))
    problem, columns, _ = probe._problem(X, y, sample_weight, offset)
    weights, intercept = model.party_coefs_, model.intercept_
    if not np.array_equal(getattr(probe, "classes_", ()), getattr(model, "classes_", ())):
        raise InputError("y: other classes than those of fit; infer from the data it was fitted on")
    if _counts_first(model):
        problem = replace(problem, y=1.0 - problem.y, offset=-problem.offset)
        weights, intercept = [-own for own in weights], -intercept
    features = [name for held in columns for name in _names(model, held)]
    classes = _classes(model) if problem.loss.vector else ()
    how = (features, covariance, level, model.n_threads)
    table = infer(problem, weights, intercept, *how, classes=classes)
    signs = [] if classes else sign_of(_classes(model))
    return replace(table, notes=[*signs, *table.notes, *_other_sign(model)])


def coefficients_of_estimator(model: Any, X: Any) -> Coefficients:
    """The table of coefficients of a fitted estimator."""
    table = coefficients(model_of(model, X))
    return replace(table, notes=[*table.notes, *_other_sign(model)])


def model_of(model: Any, X: Any = None) -> Model:
    """A fitted estimator as the command line has it: a weight speaks for the class that is counted.

    With rows, columns are scaled by their deviations there.
    """
    clipped = getattr(model, "clips_rows_", False)
    names, coefs, columns = model.party_names_, model.party_coefs_, model.party_columns_
    blocks = [None] * len(coefs) if X is None else model._blocks_of(X, columns)
    parties, intercept = [], np.array(model.intercept_, dtype=np.float64)
    for name, block, weights, held in zip(names, blocks, coefs, columns):
        transform = Transform() if block is None or clipped else _standardised(block)
        if transform.scale is not None and transform.center is not None:
            intercept = intercept + transform.center @ weights
            weights = (transform.scale * weights.T).T
        parties.append(PartyModel(name, weights, _names(model, held), transform, clipped))
    by_class, loss = coefs[0].ndim == 2, model._checked_loss()
    if _counts_first(model):
        intercept, parties = -intercept, [replace(party, weights=-party.weights) for party in parties]
    called, first = "multinomial" if by_class else loss.name, float(np.ravel(intercept)[0])
    b = intercept if by_class else first
    return Model(called, loss.task, 0.0, b, _classes(model) or None, parties, {})


def _counts_first(model: Any) -> bool:
    """Whether the class that is counted is not the one that ``coef_`` speaks for."""
    if model.party_coefs_[0].ndim == 2 or getattr(model, "positive_", None) is None:
        return False
    return bool(model.positive_ == model.classes_[0])


def _classes(model: Any) -> tuple[str, ...]:
    """Names of classes, the one that is counted last; none of a regression."""
    names = tuple(map(str, getattr(model, "classes_", ())))
    return names[::-1] if _counts_first(model) else names


def _other_sign(model: Any) -> list[str]:
    other = str(model.classes_[-1]) if _counts_first(model) else ""
    return [f"coef_ and decision_function speak for {other!r}"] if other else []


def _names(model: Any, held: np.ndarray) -> list[str]:
    """Names of some columns."""
    names = getattr(model, "feature_names_in_", [f"x{j}" for j in range(model.n_features_in_)])
    return [str(names[j]) for j in held]


def _standardised(block: Any) -> Transform:
    """Means and standard deviations of columns; a constant column's deviation counts as 1."""
    mean, variance = mean_variance_axis(block, 0) if issparse(block) else (block.mean(0), block.var(0))
    return Transform(center=mean, scale=np.where(variance > 0.0, np.sqrt(variance), 1.0))


# --- the page, as the command line writes it of a run ---------------------------------------------------


def report(model: Any, out: str | os.PathLike[str] = "report.html") -> Path:
    """Write a page about a fitted estimator: what is proved, its rounds, and who holds what.

    Parameters
    ----------
    model : JointClassifier or JointRegressor
        Fitted; with ``eval_set`` the page shows metrics of other rows.
    out : path
        The page, which ends in .html.

    Returns
    -------
    Path
        Where it is.
    """
    from fastadmm.reports.html import write_records
    from fastadmm.reports.records import RunRecords, history_of

    check_is_fitted(model, "coef_")
    last = model.history_[-1]
    alpha: Any = getattr(model, "alpha_", model.alpha)
    each = list(alpha) if isinstance(alpha, Sequence | np.ndarray) else [None] * len(model.party_names_)
    class_rows: dict[str, int] = {}  # the one that is counted last; none of a private or a regression's fit
    if hasattr(model, "class_count_"):
        rows = zip(model.classes_.tolist(), model.class_count_.tolist())
        ordered = sorted(rows, key=lambda own: own[0] == model.positive_)
        class_rows = {str(label): count for label, count in ordered}
    result = {
        "status": str(model.status_),
        "rounds": model.n_rounds_,
        "objective": last.objective,
        "gap": model.duality_gap_,
        "gap_absolute": last.gap_absolute,
        "gap_within": last.gap_within,
        "n_samples": model.n_samples_fit_,
        "class_rows": class_rows,
        "lambda": None if each[0] is not None else float(alpha),
        "parties": [
            {"name": name, "n_features": len(held), "lambda": own}
            for name, held, own in zip(model.party_names_, model.party_columns_, each)
        ],
    }
    history = history_of([record.to_json() for record in model.history_])
    privacy = None if model.privacy is None else model.privacy_
    records = RunRecords(Path(type(model).__name__), history, result, {}, {}, None, privacy)
    return write_records(records, Path(out))
