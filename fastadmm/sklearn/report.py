"""The page of a fitted estimator, as the command line writes it of a run."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from fastadmm.reports.html import write_records
from fastadmm.reports.records import RunRecords, history_of

if TYPE_CHECKING:
    from fastadmm.sklearn.estimators import JointClassifier, JointRegressor


def report(model: JointClassifier | JointRegressor, out: str | os.PathLike[str] = "report.html") -> Path:
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
