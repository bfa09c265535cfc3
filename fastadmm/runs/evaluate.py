"""Measure a finished model: on labelled rows, and by inference on those it was trained on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastadmm.errors import ConfigError, InputError, StorageError
from fastadmm.files.atomic import shown, write_json, write_whole
from fastadmm.inference.table import Inference, infer
from fastadmm.judging.judgement import judgement
from fastadmm.privacy.published import is_private
from fastadmm.problem.class_names import sign_of
from fastadmm.problem.losses import parse_loss
from fastadmm.runs.claim import check_provenance
from fastadmm.runs.config import recorded
from fastadmm.runs.folder import Display, RunFolder
from fastadmm.runs.load import check_run, load_run, seen_in_training
from fastadmm.runs.predict import Predictions, notes_of, predict_partition, score_tables
from fastadmm.runs.scorecard import score_drift
from fastadmm.solver.metrics import evaluation_metrics
from fastadmm.store.coefficients import units_of
from fastadmm.store.label_file import LabelData
from fastadmm.store.model import Model, PartyModel, open_model
from fastadmm.store.partition import Partition

if TYPE_CHECKING:
    from fastadmm.data_tools.per_table import TableRows
    from fastadmm.data_tools.tables import Table


def evaluate_partition(model: Path, data: Path, **how: Any) -> dict[str, Any]:
    """Measure a model on a partition; what may be told beside is that of :func:`evaluate_predictions`."""
    predictions = predict_partition(model, data, require_labels=True)
    partition = predictions.partition
    assert partition is not None
    if partition.labels is None:
        raise InputError(f"{shown(data)}: no labels: evaluation needs them")
    alike = partial(_same_scores, predictions.model, predictions)
    looks = seen_in_training(Path(model), partition.labels, alike)
    return evaluate_predictions(model, predictions, partition.labels, data, looks=looks, **how)


def _same_scores(model: Any, predictions: Predictions, trained: Partition) -> bool:
    """Whether the rows of training have these scores."""
    return np.allclose(model.linear_predictor(trained), predictions.score)


def evaluate_tables(
    model: Path,
    paths: Sequence[Path],
    options: TableRows,
    *,
    label: str | None = None,
    weight: str | None = None,
    **how: Any,
) -> dict[str, Any]:
    """Measure a model on the rows of tables; labels and weights are columns of the first."""
    from fastadmm.data_tools.label_columns import labels_of
    from fastadmm.data_tools.per_table import TableOptions

    trained = open_model(model)
    predictions, found = score_tables(trained, paths, options, labelled=True)
    table, rows = found.first
    name = label or _label_column(trained, table, options, weight)
    table.require(name, "label column")
    notes: list[str] = []
    named = TableOptions(label=name, weight=weight)
    read = labels_of(table, rows, named, trained.task, trained.classes, report=notes)
    labels = replace(read, offset=found.offset)
    alike = partial(_same_scores, trained, predictions)
    looks = seen_in_training(Path(model), labels, alike, found.ids)
    how |= {"notes": [*found.notes, *notes], "looks": looks}
    return evaluate_predictions(model, predictions, labels, paths[0], **how)


def _label_column(trained: Model, table: Table, options: TableRows, weight: str | None) -> str:
    """The only column that is neither a feature nor named by an option."""
    ids = [options.id] if isinstance(options.id, str) else list(options.id or ())
    used = {*ids, *(id.rpartition(":")[2] for id in ids), options.offset, options.exposure, weight}
    for party in trained.parties:
        used |= {c.name for c in party.encoder.columns} if party.encoder else set(party.feature_names)
    rest = [name for name in table.names if name not in used]
    if len(rest) != 1:
        raise ConfigError(f"--label: which column of {table.path} is the label?")
    return rest[0]


def evaluate_predictions(
    model: Path,
    predictions: Predictions,
    labels: LabelData,
    data: Path,
    *,
    threshold: float | None = None,
    reference: Path | None = None,
    looks: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> dict[str, Any]:
    """Measure predictions of labelled rows; a run directory keeps the result as ``evaluation.json``."""
    trained, path = predictions.model, Path(model)
    if (labels.classes is None) != (trained.classes is None):
        asked = "regression" if trained.classes is None else "classification"
        raise InputError(f"{shown(data)}: a {labels.task} data set, but the model was trained for {asked}")
    if labels.classes != trained.classes:
        known = f"classes {labels.classes}, but the model knows {trained.classes}"
        raise InputError(f"{shown(data)}: {known}; convert with --like the training partition")
    loss, weight, classes = parse_loss(trained.loss), labels.sample_weight, trained.classes or ()
    document = {
        "data": Path(data).resolve().name,
        "n_samples": labels.n_samples,
        "metrics": evaluation_metrics(loss, labels.y, predictions.score, weight, classes),
        **judgement(loss, labels.y, predictions.score, weight, threshold, classes),
    }
    if said := [*notes, *notes_of(trained)]:
        document["notes"] = [*document.get("notes", ()), *said]
    document["looks"] = [*looks, *document.get("looks", ())]
    if reference is not None:
        document["drift"] = _drift(model, reference, predictions, weight)
    if (path / "run.toml").exists():
        write_whole(path / "evaluation.json", json.dumps(document, indent=2) + "\n")
    return document


def _drift(
    model: Path, reference: Path, predictions: Predictions, weight: np.ndarray | None
) -> dict[str, Any]:
    """How far scores have moved since a reference, such as the training rows. Shapes: weight (N,)."""
    if predictions.score.ndim == 2:
        raise ConfigError("reference: a model of several classes has no single score to compare")
    before = predict_partition(model, reference)
    known = None if before.partition is None else before.partition.labels
    weights = None if known is None else known.sample_weight, weight
    return {"reference": reference.resolve().name, **score_drift(before.mean, predictions.mean, weights)}


# --- inference ----------------------------------------------------------------------------------------------


def infer_run(run: Path, *, covariance: str = "model", level: float = 0.95) -> Inference:
    """Standard errors, tests and fit statistics of a run's model."""
    RunFolder(run).require()
    found, model = recorded(run), open_model(run)
    if found.config.privacy.mode != "none" or is_private(model.privacy):
        said = "standard errors are exact functions of the private rows, and its budget does not cover them"
        raise ConfigError(f"{shown(run)}: a private run: {said}")
    config = replace(found.config, test=None, warm_start=None, threads=None)
    loaded = load_run(config, check_run(config, Display()))
    problem, partition = loaded.problem, loaded.partition
    check_provenance(run, found.provenance, loaded.provenance, partition, ("test", "warm_start"))
    features = [name for party in model.parties for name in party.feature_names]
    weights = [np.asarray(party.weights) for party in model.parties]
    units, notes = _raw_units(model, problem.fit_intercept)
    about = covariance, level, config.threads, units, (model.classes or ()) if problem.loss.vector else ()
    table = infer(problem, weights, model.intercept, features, *about)
    signs = [] if problem.loss.vector else sign_of(model.classes)
    table = replace(table, notes=[*signs, *table.notes, *notes, *chosen_bins(model.parties)])
    document = table.to_dict()
    with suppress(StorageError):  # the run's report can do without where nobody may write
        kept = {key: document[key] for key in ("weights", "level", "ratio", "notes")}
        write_json(run / "inference.json", kept)
    return table


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
