"""Evaluate a trained model on a labelled partition."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from fastadmm.errors import InputError
from fastadmm.files.atomic import atomic_file, shown
from fastadmm.runs.predict import Predictions, predict_partition
from fastadmm.store.label_file import LabelData

__all__ = ["evaluate_partition", "evaluate_predictions"]


def evaluate_partition(model: Path, data: Path) -> dict[str, Any]:
    """Measure a model; a run directory keeps the result as ``evaluation.json``.

    Parameters
    ----------
    model : Path
        Run or model directory.
    data : Path
        Labelled partition.

    Returns
    -------
    dict
        ``data`` (directory name), ``n_samples`` and ``metrics``.

    Raises
    ------
    InputError
        If the partition's classes are not the model's.
    """
    predictions = predict_partition(model, data, require_labels=True)
    partition = predictions.partition
    labels = partition.labels if partition is not None else None
    if labels is None:
        raise InputError(f"{shown(data)}: no labels: evaluation needs them")
    return evaluate_predictions(model, predictions, labels, data)


def evaluate_predictions(
    model: Path, predictions: Predictions, labels: LabelData, data: Path
) -> dict[str, Any]:
    """Measure predictions of labelled rows; returns and raises as of :func:`evaluate_partition`.

    Parameters
    ----------
    model : Path
        Run or model directory.
    predictions : Predictions
    labels : LabelData
        Of the same rows, in the same order.
    data : Path
        Where these are from.
    """
    from fastadmm.problem.losses import get_loss
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
    metrics = evaluation_metrics(
        get_loss(trained.loss), labels.y, predictions.score, labels.sample_weight, trained.classes or ()
    )
    document = {"data": Path(data).resolve().name, "n_samples": labels.n_samples, "metrics": metrics}
    if (Path(model) / "run.toml").exists():
        with atomic_file(Path(model) / "evaluation.json") as temporary:
            temporary.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return document
