"""Evaluate a trained model on a labelled partition."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastadmm.errors import ConfigError, InputError, StorageError
from fastadmm.files.atomic import shown, write_whole
from fastadmm.runs.looks import seen_in_training
from fastadmm.runs.predict import Predictions, notes_of, predict_partition, score_tables
from fastadmm.store.label_file import LabelData
from fastadmm.store.model import Model, open_model
from fastadmm.store.partition import Partition

if TYPE_CHECKING:
    from fastadmm.data_tools.per_table import TableRows
    from fastadmm.data_tools.predict_tables import TableFeatures
    from fastadmm.data_tools.tables import Table


def evaluate_partition(model: Path, data: Path, **how: Any) -> dict[str, Any]:
    """Measure a model on a partition; what may be told beside is that of :func:`evaluate_predictions`."""
    predictions = predict_partition(model, data, require_labels=True)
    partition = predictions.partition
    assert partition is not None
    if partition.labels is None:
        raise InputError(f"{shown(data)}: no labels: evaluation needs them")
    alike = partial(_same_scores, open_model(model), predictions)
    looks = seen_in_training(Path(model), partition.labels, alike)
    return evaluate_predictions(model, predictions, partition.labels, data, looks=looks, **how)


def _same_scores(model: Model, predictions: Predictions, trained: Partition) -> bool:
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
    trained = open_model(model)
    predictions, found = score_tables(trained, paths, options, labelled=True)
    labels = _labels(trained, found, options, label, weight)
    alike = partial(_same_scores, trained, predictions)
    looks = seen_in_training(Path(model), labels, alike, found.ids)
    how |= {"notes": found.notes, "looks": looks}
    return evaluate_predictions(model, predictions, labels, paths[0], **how)


def _labels(
    trained: Model, found: TableFeatures, options: TableRows, label: str | None, weight: str | None
) -> LabelData:
    """Labels and weights of the rows that were scored."""
    from fastadmm.data_tools.label_columns import labels_of
    from fastadmm.data_tools.per_table import TableOptions

    table, rows = found.first
    name = label or _label_column(trained, table, options, weight)
    table.require(name, "label column")
    notes: list[str] = []
    named = TableOptions(label=name, weight=weight)
    read = labels_of(table, rows, named, trained.task, trained.classes, report=notes)
    found.notes.extend(notes)
    return LabelData(
        Path(table.path), len(rows), read.task, read.y, read.classes, read.weight, found.offset, row_digest=""
    )


def _label_column(trained: Model, table: Table, options: TableRows, weight: str | None) -> str:
    """The only column that is neither a feature nor named by an option."""
    used = {column.name for party in trained.parties if party.encoder for column in party.encoder.columns}
    used |= {name for party in trained.parties if not party.encoder for name in party.feature_names}
    ids = [options.id] if isinstance(options.id, str) else list(options.id or ())
    used |= {
        *ids,
        *(id.rpartition(":")[2] for id in ids),
        options.offset or "",
        options.exposure or "",
        weight or "",
    }
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
    from fastadmm.judging.judgement import judgement
    from fastadmm.problem.losses import parse_loss
    from fastadmm.solver.metrics import evaluation_metrics

    trained = predictions.model
    if (labels.classes is None) != (trained.classes is None):
        asked = "regression" if trained.classes is None else "classification"
        raise InputError(f"{shown(data)}: a {labels.task} data set, but the model was trained for {asked}")
    if labels.classes != trained.classes:
        raise InputError(
            f"{shown(data)}: classes {labels.classes}, but the model knows {trained.classes}; "
            "convert with --like the training partition"
        )
    loss, weight, classes = parse_loss(trained.loss), labels.sample_weight, trained.classes or ()
    metrics = evaluation_metrics(loss, labels.y, predictions.score, weight, classes)
    document = {
        "data": Path(data).resolve().name,
        "n_samples": labels.n_samples,
        "metrics": metrics,
        **judgement(loss, labels.y, predictions.score, weight, threshold, classes),
    }
    if said := [*notes, *notes_of(trained)]:
        document["notes"] = [*document.get("notes", ()), *said]
    document["looks"] = [*looks, *document.get("looks", ())]
    if reference is not None:
        document["drift"] = _drift(model, reference, predictions, weight)
    if (Path(model) / "run.toml").exists():
        try:
            write_whole(Path(model) / "evaluation.json", json.dumps(document, indent=2) + "\n")
        except StorageError as error:
            aside = shown(Path(model) / "model")
            hint = f"to print the result without keeping it, evaluate {aside}"
            raise StorageError(f"{error}; {hint}") from error
    return document


def _drift(
    model: Path, reference: Path, predictions: Predictions, weight: np.ndarray | None
) -> dict[str, Any]:
    """How far scores have moved since a reference, such as the training rows. Shapes: weight (N,)."""
    from fastadmm.runs.columns import score_drift

    if predictions.score.ndim == 2:
        raise ConfigError("reference: a model of several classes has no single score to compare")
    before = predict_partition(model, reference)
    known = None if before.partition is None else before.partition.labels
    weights = None if known is None else known.sample_weight, weight
    return {"reference": reference.resolve().name, **score_drift(before.mean, predictions.mean, weights)}
