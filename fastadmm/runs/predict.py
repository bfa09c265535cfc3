"""Predict the rows of a partition with a trained model."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from fastadmm.errors import ConfigError, InputError
from fastadmm.files.escapes import csv_rows
from fastadmm.privacy.published import exact_note, exact_parties
from fastadmm.problem.losses import parse_loss
from fastadmm.runs.check import refuse_exposures
from fastadmm.store.model import Model, SharedPart, open_model
from fastadmm.store.partition import Partition, open_partition

if TYPE_CHECKING:
    from fastadmm.data_tools.per_table import TableRows
    from fastadmm.data_tools.predict_tables import TableFeatures


@dataclass(frozen=True)
class Predictions:
    """Predictions for N rows. Shapes: ids (N,); score, mean (N,) or (N, C)."""

    ids: np.ndarray  # of shape (N,): row ids of the partition
    score: np.ndarray  # of shape (N,) or (N, C): linear predictor z; of a multinomial model one per class
    mean: np.ndarray  # of shape (N,) or (N, C)
    label: list[str] | None  # predicted class in the original labels
    model: Model | SharedPart
    partition: Partition | None  # none for predictions that were combined from the parties' contributions


def predict_partition(model: Path, data: Path, *, require_labels: bool = False) -> Predictions:
    """Score every row of a partition."""
    trained = open_model(model)
    partition = open_partition(data, require_labels=require_labels)
    refuse_exposures(partition.labels, parse_loss(trained.loss))
    z = trained.linear_predictor(partition)
    mean, labels = _interpret(trained, z)
    return Predictions(partition.parties[0].ids(), z, mean, labels, trained, partition)


def predict_tables(model: Path, paths: Sequence[Path], options: TableRows) -> tuple[Predictions, list[str]]:
    """Score the rows of tables."""
    predictions, found = score_tables(open_model(model), paths, options)
    return predictions, found.notes


def score_tables(
    trained: Model, paths: Sequence[Path], options: TableRows, *, labelled: bool = False
) -> tuple[Predictions, TableFeatures]:
    """Score the rows of tables, and keep what was read."""
    from fastadmm.data_tools.predict_tables import read_features

    if options.exposure is not None and not parse_loss(trained.loss).log_link:
        raise ConfigError(
            f"--exposure: the model's loss {trained.loss} has no logarithmic link: pass --offset, or train "
            "with --loss poisson"
        )
    found = read_features(trained.parties, paths, options, labelled=labelled)
    contributions = [party.contribution_of(X) for party, X in zip(trained.parties, found.blocks)]
    if found.offset is not None and contributions[0].ndim == 2:
        raise ConfigError(
            "--offset: a model of several classes takes none: one number per row changes nothing"
        )
    z = trained.shared.combine(contributions, found.offset)
    return make_predictions(trained.shared, found.ids, z), found


def make_predictions(shared: SharedPart, ids: np.ndarray, z: np.ndarray) -> Predictions:
    """Predictions from scores that were added up elsewhere. Shapes: ids (N,); z (N,) or (N, C)."""
    mean, labels = _interpret(shared, z)
    return Predictions(ids, z, mean, labels, shared, None)


def notes_of(model: Model | SharedPart) -> list[str]:
    """What whoever passes predictions on should know; nothing where they tell no exact weights."""
    parties = model.parties if isinstance(model, Model) else []
    names = exact_parties({party.name: party.privacy for party in parties}, model.privacy)
    return [exact_note(names, "such scores")] if names else []


def first_not_finite(values: np.ndarray) -> int | None:
    """The first row that holds something else than finite numbers. Shapes: values (N,) or (N, C)."""
    bad = np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))
    return int(bad[0]) if len(bad) else None


def _interpret(trained: Model | SharedPart, z: np.ndarray) -> tuple[np.ndarray, list[str] | None]:
    """Means and class labels of scores."""
    if (row := first_not_finite(z)) is not None:
        raise InputError(
            f"row {row}: its score overflows; weights of the model or values of the row are too large"
        )
    labels = None
    if trained.task == "classification" and trained.classes is not None:
        if z.ndim == 2:
            labels = [trained.classes[c] for c in np.argmax(z, axis=1).tolist()]
        else:
            labels = [trained.classes[1] if positive else trained.classes[0] for positive in (z > 0).tolist()]
    return parse_loss(trained.loss).predict_mean(z), labels


def write_predictions(file: TextIO, predictions: Predictions) -> None:
    """Write predictions as CSV."""
    columns: dict[str, Iterable[Any]] = {
        name: values if name in ("id", "label") else map(repr, values)
        for name, values in columns_of(predictions).items()
    }
    csv_rows(file, [columns])
    csv_rows(file, zip(*columns.values()))


def columns_of(predictions: Predictions) -> dict[str, list[Any]]:
    """What is told of each row, by column."""
    columns = {"id": predictions.ids.tolist()}
    if predictions.label is None:
        return columns | {"prediction": predictions.mean.tolist()}
    if predictions.score.ndim == 2:
        shares = zip(predictions.model.classes or (), predictions.mean.T.tolist(), strict=True)
        columns |= {f"probability_{name}": values for name, values in shares}
    else:
        columns["score"] = predictions.score.tolist()
        if parse_loss(predictions.model.loss).probabilistic:
            columns["probability"] = predictions.mean.tolist()
    return columns | {"label": predictions.label}
