"""Predict the rows of a partition with a trained model."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import numpy as np

from fastadmm.losses import get_loss
from fastadmm.store.model import Model, open_model
from fastadmm.store.partition import Partition, open_partition

__all__ = ["Predictions", "predict_partition", "write_predictions"]


@dataclass(frozen=True)
class Predictions:
    """Predictions for N rows.

    Attributes
    ----------
    ids : ndarray of shape (N,)
        Row ids of the partition.
    score : ndarray of shape (N,)
        Linear predictor z.
    mean : ndarray of shape (N,)
        Probability of class 1, or the predicted value; the score itself for
        a hinge loss, which predicts no probability.
    label : list of str or None
        Predicted class in the original labels.
    model : Model
    partition : Partition
    """

    ids: np.ndarray
    score: np.ndarray
    mean: np.ndarray
    label: list[str] | None
    model: Model
    partition: Partition


def predict_partition(model: Path, data: Path, *, require_labels: bool = False) -> Predictions:
    """Score every row of a partition.

    Parameters
    ----------
    model : Path
        Run or model directory.
    data : Path
        Partition with the model's parties and columns, raw or converted with ``--like``.
    require_labels : bool
        Whether a partition without labels is refused.

    Returns
    -------
    Predictions

    Raises
    ------
    FastadmmError
        If model or partition are damaged or do not fit each other.
    """
    trained = open_model(model)
    partition = open_partition(data, require_labels=require_labels)
    z = trained.linear_predictor(partition)
    labels = None
    if trained.task == "classification" and trained.classes is not None:
        labels = [trained.classes[1] if positive else trained.classes[0] for positive in (z > 0).tolist()]
    mean = get_loss(trained.loss).predict_mean(z)
    return Predictions(partition.parties[0].ids(), z, mean, labels, trained, partition)


def write_predictions(file: TextIO, predictions: Predictions) -> None:
    """Write predictions as CSV: ``id,score,probability,label`` or ``id,prediction``.

    A hinge loss has no probabilities, and no column of them.

    Parameters
    ----------
    file : text file
    predictions : Predictions
    """
    writer = csv.writer(file, lineterminator="\n")
    ids = predictions.ids.tolist()
    if predictions.label is None:
        writer.writerow(["id", "prediction"])
        writer.writerows(zip(ids, map(repr, predictions.mean.tolist())))
        return
    scores = map(repr, predictions.score.tolist())
    loss = get_loss(predictions.model.loss)
    if loss.task == "classification" and not loss.probabilistic:
        writer.writerow(["id", "score", "label"])
        writer.writerows(zip(ids, scores, predictions.label))
        return
    writer.writerow(["id", "score", "probability", "label"])
    probabilities = map(repr, predictions.mean.tolist())
    writer.writerows(zip(ids, scores, probabilities, predictions.label))
