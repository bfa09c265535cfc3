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
    score : ndarray of shape (N,) or (N, C)
        Linear predictor z; of a multinomial model one per class.
    mean : ndarray of shape (N,) or (N, C)
        Probability of class 1, or the predicted value; the score itself for
        a hinge loss, which predicts no probability; the probability of every
        class of a multinomial model.
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
        if z.ndim == 2:
            labels = [trained.classes[c] for c in np.argmax(z, axis=1).tolist()]
        else:
            labels = [trained.classes[1] if positive else trained.classes[0] for positive in (z > 0).tolist()]
    mean = get_loss(trained.loss).predict_mean(z)
    return Predictions(partition.parties[0].ids(), z, mean, labels, trained, partition)


def write_predictions(file: TextIO, predictions: Predictions) -> None:
    """Write predictions as CSV: ``id,score,probability,label`` or ``id,prediction``.

    A hinge loss has no probabilities, and no column of them. A multinomial model
    has a column for each class: ``id,probability_A,probability_B,...,label``.

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
    if predictions.score.ndim == 2:
        names = predictions.model.classes or ()
        writer.writerow(["id", *(f"probability_{name}" for name in names), "label"])
        writer.writerows(
            [row, *map(repr, shares), label]
            for row, shares, label in zip(ids, predictions.mean.tolist(), predictions.label)
        )
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
