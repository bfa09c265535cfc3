"""Inference from a finished run and the data it was trained on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.errors import ConfigError
from fastadmm.files.atomic import shown
from fastadmm.inference.table import Inference, infer
from fastadmm.privacy.published import is_private
from fastadmm.problem.class_names import sign_of
from fastadmm.runs.check import check_run
from fastadmm.runs.config import recorded
from fastadmm.runs.display import Silent
from fastadmm.runs.folder import RunFolder, keep
from fastadmm.runs.load import load_run
from fastadmm.runs.provenance import check_provenance
from fastadmm.store.coefficients import units_of
from fastadmm.store.model import Model, PartyModel, open_model


def infer_run(run: Path, *, covariance: str = "model", level: float = 0.95) -> Inference:
    """Standard errors, tests and fit statistics of a run's model."""
    RunFolder(run).require()
    found, model = recorded(run), open_model(run)
    if found.config.privacy.mode != "none" or is_private(model.privacy):
        raise ConfigError(
            f"{shown(run)}: a private run: standard errors are exact functions of the private rows, and its "
            "budget does not cover them"
        )
    config = replace(found.config, test=None, warm_start=None, threads=None)
    loaded = load_run(config, check_run(config, Silent()))
    problem, partition = loaded.problem, loaded.partition
    check_provenance(run, _training(found.provenance), _training(loaded.provenance), partition)
    features = [name for party in model.parties for name in party.feature_names]
    weights = [np.asarray(party.weights) for party in model.parties]
    units, notes = _raw_units(model, problem.fit_intercept)
    table = infer(
        problem,
        weights,
        model.intercept,
        features,
        covariance,
        level,
        config.threads,
        units,
        (model.classes or ()) if problem.loss.vector else (),
    )
    signs = [] if problem.loss.vector else sign_of(model.classes)
    table = replace(table, notes=[*signs, *table.notes, *notes, *chosen_bins(model.parties)])
    document = table.to_dict()
    keep(run, "inference.json", {key: document[key] for key in ("weights", "level", "ratio", "notes")})
    return table


def _training(provenance: Any) -> Any:
    """The part about the rows that the model was trained on."""
    others = ("test", "warm_start")
    return (
        {key: value for key, value in provenance.items() if key not in others}
        if isinstance(provenance, dict)
        else provenance
    )


def chosen_bins(parties: Sequence[PartyModel]) -> list[str]:
    """That labels chose the bins, where they did."""
    encoders = [party.encoder for party in parties if party.encoder is not None]
    binned = sum(column.bins is not None for encoder in encoders for column in encoder.columns)
    if not binned:
        return []
    return [f"labels chose these columns and the bins of {binned}: errors and p-values leave that choice out"]


def _raw_units(model: Model, intercept: bool) -> tuple[np.ndarray, list[str]]:
    """What turns weights for scaled columns into weights for raw ones, and what cannot be turned."""
    units = [units_of(party) for party in model.parties]
    factor = np.concatenate([own.factor for own in units])
    shift = np.concatenate([own.shift for own in units])
    notes = [own.note for own in units if own.note]
    if not intercept:
        if shift.any():
            notes.append("the columns' centres make up an intercept that the table does not show")
        return np.diag(factor), notes
    mapping = np.diag([*factor, 1.0])
    mapping[-1, :-1] = shift
    return mapping, notes
