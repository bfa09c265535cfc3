"""Predictions: of a partition or of tables, or, without everybody at once, of the parties' contributions."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from fastadmm.errors import ConfigError, FastadmmError, FormatError, InputError
from fastadmm.files.atomic import shown
from fastadmm.files.digest import row_digest
from fastadmm.files.escapes import csv_rows
from fastadmm.files.reading import is_directory
from fastadmm.privacy.published import exact_note, exact_parties
from fastadmm.problem.losses import parse_loss
from fastadmm.runs.export import open_covered
from fastadmm.runs.load import refuse_exposures
from fastadmm.store import elements as h5
from fastadmm.store.block_file import IdWriter
from fastadmm.store.h5file import create_h5, read_h5, refuse_packed
from fastadmm.store.label_file import open_labels
from fastadmm.store.model import Model, PartyModel, SharedPart, open_model, open_shared_part
from fastadmm.store.partition import Partition, open_partition
from fastadmm.store.party_file import PartyData, check_party_name, open_party

if TYPE_CHECKING:
    from fastadmm.data_tools.per_table import TableRows
    from fastadmm.data_tools.predict_tables import TableFeatures

CONTRIBUTION = "fastadmm-contribution"


@dataclass(frozen=True)
class Predictions:
    """Predictions for N rows. Shapes: ids (N,); score, mean (N,) or (N, C)."""

    ids: np.ndarray  # of shape (N,): row ids of the partition
    score: np.ndarray  # of shape (N,) or (N, C): linear predictor z; of a multinomial model one per class
    mean: np.ndarray  # of shape (N,) or (N, C)
    label: list[str] | None  # predicted class in the original labels
    model: Model | SharedPart
    partition: Partition | None  # none for predictions that were combined from the parties' contributions


# --- by whoever has all columns -----------------------------------------------------------------------------


def predict_partition(model: Path, data: Path, *, require_labels: bool = False) -> Predictions:
    """Score every row of a partition."""
    trained = open_model(model)
    partition = open_partition(data, require_labels=require_labels)
    refuse_exposures(partition.labels, parse_loss(trained.loss))
    z = trained.linear_predictor(partition)
    return make_predictions(trained, partition.parties[0].ids(), z, partition)


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
        said = "has no logarithmic link: pass --offset, or train with --loss poisson"
        raise ConfigError(f"--exposure: the model's loss {trained.loss} {said}")
    found = read_features(trained.parties, paths, options, labelled=labelled)
    contributions = [party.contribution_of(X) for party, X in zip(trained.parties, found.blocks)]
    if found.offset is not None and contributions[0].ndim == 2:
        said = "a model of several classes takes none: one number per row changes nothing"
        raise ConfigError(f"--offset: {said}")
    z = trained.shared.combine(contributions, found.offset)
    return make_predictions(trained.shared, found.ids, z), found


def make_predictions(
    trained: Model | SharedPart, ids: np.ndarray, z: np.ndarray, partition: Partition | None = None
) -> Predictions:
    """Means and class labels of scores. Shapes: ids (N,); z (N,) or (N, C)."""
    if (row := first_not_finite(z)) is not None:
        said = "its score overflows; weights of the model or values of the row are too large"
        raise InputError(f"row {row}: {said}")
    labels, mean = None, parse_loss(trained.loss).predict_mean(z)
    if trained.task == "classification" and trained.classes is not None:
        chosen = np.argmax(z, axis=1) if z.ndim == 2 else (z > 0).astype(np.intp)
        labels = [trained.classes[c] for c in chosen.tolist()]
    return Predictions(ids, z, mean, labels, trained, partition)


def notes_of(model: Model | SharedPart) -> list[str]:
    """What whoever passes predictions on should know; nothing where they tell no exact weights."""
    parties = model.parties if isinstance(model, Model) else []
    names = exact_parties({party.name: party.privacy for party in parties}, model.privacy)
    return [exact_note(names, "such scores")] if names else []


def first_not_finite(values: np.ndarray) -> int | None:
    """The first row that holds something else than finite numbers. Shapes: values (N,) or (N, C)."""
    bad = np.flatnonzero(~np.isfinite(values.reshape(len(values), -1)).all(axis=1))
    return int(bad[0]) if len(bad) else None


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


# --- by parties, each of its own columns --------------------------------------------------------------------


@dataclass(frozen=True)
class Contribution:
    """What one party adds to the scores of some rows. Shapes: values (N,) or (N, C); ids (N,)."""

    name: str  # the party
    model_id: str  # of the model whose weights these are
    values: np.ndarray  # ``D_m x_m``; a fusion model's scale is not in it
    ids: np.ndarray  # row ids: int64, or object holding str
    notes: Sequence[str] = ()  # what a user should know of a table
    place: str = ""  # where it was read


def write_contribution(path: str | os.PathLike[str], found: Contribution, *, force: bool = False) -> None:
    """Write a contribution file."""
    with create_h5(path, CONTRIBUTION, force=force) as file:
        file.attrs["name"], file.attrs["model-id"] = found.name, found.model_id
        file.attrs["n_samples"] = np.int64(len(found.values))
        h5.write_array(file, "contribution", np.asarray(found.values, dtype=np.float64))
        writer = IdWriter(file, path)
        writer.append(writer.prepare(found.ids, len(found.values)))
        file.attrs["row-digest"] = writer.close()


def open_contribution(path: str | os.PathLike[str]) -> Contribution:
    """Read a contribution file and check it."""
    place = shown(path)
    with read_h5(path, CONTRIBUTION) as file:
        name = h5.read_attribute(file, "name", str)
        check_party_name(name, f"{place}: attribute 'name'", FormatError)
        model_id = h5.read_attribute(file, "model-id", str)
        n = h5.read_positive(file, "n_samples")
        refuse_packed(h5.array_dataset(file, "contribution"))  # it comes from others
        values = np.asarray(h5.read_array(file, "contribution", length=n, kind="f"), dtype=np.float64)
        h5.verified_digest(file, n)
        ids = h5.read_ids(file, n)
    if (row := first_not_finite(values)) is not None:
        raise FormatError(f"{place}: key 'contribution': row {row + 1} is not finite")
    return Contribution(name, model_id, values, ids, place=place)


def partial_predict(
    model: Path,
    source: Path,
    out: Path,
    name: str | None = None,
    options: TableRows | None = None,
    *,
    force: bool = False,
    **how: bool,
) -> Contribution:
    """Write one party's contribution to the scores of its rows, from its file or, with options, a table."""
    if options is None:
        found = summand_of_file(model, open_party(source), **how)
    else:
        found = summand_of_table(model, name, source, options, **how)
    write_contribution(out, found, force=force)
    return found


def summand_of_file(model: Path, party: PartyData, **how: bool) -> Contribution:
    """One party's contribution to the scores of its rows."""
    weights, model_id = weights_of_party(model, party.name, party.path, **how)
    values = weights.contribution(party)
    if (row := first_not_finite(values)) is not None:
        raise InputError(f"{shown(party.path)}: row {row + 1}: the contribution is not finite")
    return Contribution(party.name, model_id, values, party.ids())


def summand_of_table(
    model: Path, name: str | None, table: Path, options: TableRows, **how: bool
) -> Contribution:
    """One party's contribution to the scores of rows of a table."""
    from fastadmm.data_tools.predict_tables import read_features

    weights, model_id = weights_of_party(model, name, table, **how)
    if options.offset is not None or options.exposure is not None:
        raise ConfigError("--offset: belongs to the sum, not to one party: give it to 'combine --labels'")
    found = read_features([weights], [table], options)
    values = weights.contribution_of(found.blocks[0])
    if (row := first_not_finite(values)) is not None:
        raise InputError(f"{shown(table)}: id {found.ids[row]}: the contribution is not finite")
    return Contribution(weights.name, model_id, values, found.ids, found.notes)


def weights_of_party(model: Path, name: str | None, place: Path, **how: bool) -> tuple[PartyModel, str]:
    """A party's weights, for contributions that leave, and the id of their model; errors name its data."""
    if name is None and is_directory(model):
        raise ConfigError("--party: whose table is it? Name the party, or give its own model file")
    named = f"{shown(place)}: the party is {name}"
    found = open_covered(model, "scores of chosen rows", name, named, **how)
    identity = found.shared.model_id if found.shared is not None else found.model_id
    if identity is None:
        said = "attribute 'model-id' is missing: an old file; predict from the model directory"
        raise FormatError(f"{shown(found.path)}: {said}")
    return found.parties[0], identity


def combine_contributions(model: Path, paths: Sequence[Path], labels: Path | None = None) -> Predictions:
    """Add all parties' contributions up to predictions."""
    shared, _ = open_shared_part(model)
    given = [open_contribution(path) for path in paths]
    if not given:
        raise InputError("combine: no contribution; write them with 'fastadmm predict --partial'")
    values = checked_contributions(shared, given, "combine", "; the sum would be another model's")
    return make_predictions(shared, given[0].ids, shared.combine(values, _offset(labels, given[0])))


def checked_contributions(
    shared: SharedPart, given: Sequence[Contribution], place: str, why: str = ""
) -> list[np.ndarray]:
    """Values in the model's order; refused where one is of another model, of other rows or twice."""
    found: dict[str, np.ndarray] = {}
    first, shape = given[0], np.shape(shared.intercept)
    for own in given:
        wrong = ""
        kind: type[FastadmmError] = InputError
        if own.name not in shared.names:
            wrong = f"party {own.name!r}: the model has {', '.join(shared.names)}"
        elif own.model_id != shared.model_id:
            wrong = "made with another model (model ids differ)"
        elif own.name in found:
            wrong = f"a second contribution of {own.name}"
        elif own.values.ndim != 1 + len(shape) or own.values.shape[1:] != shape:
            wrong = "not one number, or one for each class of the model, for each row"
            kind = FormatError
        elif len(own.values) != len(first.values):
            wrong = f"{len(own.values)} rows, but {first.place} has {len(first.values)}; align the rows first"
        elif not np.array_equal(own.ids, first.ids):
            wrong = f"other rows, or another order, than {first.place}; align the rows first"
        if wrong:
            raise kind(f"{own.place}: {wrong}")
        found[own.name] = own.values
    if missing := [name for name in shared.names if name not in found]:
        raise InputError(f"{place}: no contribution of {', '.join(missing)}{why}")
    return [found[name] for name in shared.names]


def _offset(path: Path | None, first: Contribution) -> np.ndarray | None:
    labels = None if path is None else open_labels(path)
    if labels is None:
        return None
    if labels.offset is None:
        raise InputError(f"{shown(labels.path)}: key 'offset': there is none; leave --labels out")
    if labels.row_digest != row_digest(first.ids):
        said = f"other rows, or another order, than {first.place} (row digests differ)"
        raise InputError(f"{shown(labels.path)}: {said}")
    return labels.offset
