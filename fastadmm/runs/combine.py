"""Predictions without everybody at once: each party's contribution to a file, the sum later."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fastadmm.errors import ConfigError, FormatError, InputError
from fastadmm.files.atomic import shown
from fastadmm.files.digest import row_digest
from fastadmm.files.reading import is_directory
from fastadmm.privacy.published import require_covered
from fastadmm.runs.predict import Predictions, first_not_finite, make_predictions
from fastadmm.store.elements import (
    array_dataset,
    read_array,
    read_attribute,
    read_ids,
    read_positive,
    verified_digest,
    write_array,
)
from fastadmm.store.h5file import create_h5, read_h5, refuse_packed
from fastadmm.store.label_file import open_labels
from fastadmm.store.model import PartyModel, SharedPart, open_party_model, open_shared_part
from fastadmm.store.party_file import PartyData, check_party_name, open_party
from fastadmm.store.writer import IdWriter

if TYPE_CHECKING:
    from fastadmm.data_tools.per_table import TableRows

CONTRIBUTION = "fastadmm-contribution"


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
        file.attrs["name"] = found.name
        file.attrs["model-id"] = found.model_id
        file.attrs["n_samples"] = np.int64(len(found.values))
        write_array(file, "contribution", np.asarray(found.values, dtype=np.float64))
        writer = IdWriter(file, path)
        writer.append(writer.prepare(found.ids, len(found.values)))
        file.attrs["row-digest"] = writer.close()


def open_contribution(path: str | os.PathLike[str]) -> Contribution:
    """Read a contribution file and check it."""
    place = shown(path)
    with read_h5(path, CONTRIBUTION) as file:
        name = check_party_name(read_attribute(file, "name", str), f"{place}: attribute 'name'", FormatError)
        model_id = read_attribute(file, "model-id", str)
        n = read_positive(file, "n_samples")
        refuse_packed(array_dataset(file, "contribution"))  # it comes from others
        values = np.asarray(read_array(file, "contribution", length=n, kind="f"), dtype=np.float64)
        verified_digest(file, n)
        ids = read_ids(file, n)
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
    allow_infinite_epsilon: bool = False,
) -> Contribution:
    """Write one party's contribution to the scores of its rows, from its file or, with options, a table."""
    agreed = allow_infinite_epsilon
    if options is None:
        found = summand_of_file(model, open_party(source), allow_infinite_epsilon=agreed)
    else:
        found = summand_of_table(model, name, source, options, allow_infinite_epsilon=agreed)
    write_contribution(out, found, force=force)
    return found


def summand_of_file(model: Path, party: PartyData, *, allow_infinite_epsilon: bool = False) -> Contribution:
    """One party's contribution to the scores of its rows."""
    weights, model_id = weights_of_party(
        model, party.name, party.path, allow_infinite_epsilon=allow_infinite_epsilon
    )
    values = weights.contribution(party)
    if (row := first_not_finite(values)) is not None:
        raise InputError(f"{shown(party.path)}: row {row + 1}: the contribution is not finite")
    return Contribution(party.name, model_id, values, party.ids())


def summand_of_table(
    model: Path, name: str | None, table: Path, options: TableRows, *, allow_infinite_epsilon: bool = False
) -> Contribution:
    """One party's contribution to the scores of rows of a table."""
    from fastadmm.data_tools.predict_tables import read_features

    weights, model_id = weights_of_party(model, name, table, allow_infinite_epsilon=allow_infinite_epsilon)
    if options.offset is not None or options.exposure is not None:
        raise ConfigError("--offset: belongs to the sum, not to one party: give it to 'combine --labels'")
    found = read_features([weights], [table], options)
    values = weights.contribution_of(found.blocks[0])
    if (row := first_not_finite(values)) is not None:
        raise InputError(f"{shown(table)}: id {found.ids[row]}: the contribution is not finite")
    return Contribution(weights.name, model_id, values, found.ids, found.notes)


def weights_of_party(
    model: Path, name: str | None, place: Path, *, allow_infinite_epsilon: bool
) -> tuple[PartyModel, str]:
    """A party's weights, for contributions that leave, and the id of their model; errors name its data."""
    statement = None
    if is_directory(model):
        if name is None:
            raise ConfigError("--party: whose table is it? Name the party, or give its own model file")
        # The other parties' files need not be here, and are not read.
        shared, directory = open_shared_part(model)
        if name not in shared.names:
            raise InputError(
                f"{shown(place)}: the party is {name}, but the model has {', '.join(shared.names)}"
            )
        path, wanted, statement = directory / f"{name}.h5", shared.model_id, shared.privacy
    else:
        path, wanted = model, None
    weights, model_id = open_party_model(path)
    if name is not None and weights.name != name:
        raise InputError(
            f"{shown(place)}: the party is {name}, but {shown(path)} holds the weights of {weights.name}"
        )
    if wanted is not None and model_id not in (None, wanted):
        raise FormatError(f"{shown(path)}: attribute 'model-id': the file belongs to another model")
    identity = model_id or wanted
    if identity is None:
        raise FormatError(
            f"{shown(path)}: attribute 'model-id' is missing: an old file; predict from the model directory"
        )
    require_covered(
        {weights.name: weights.privacy},
        statement,
        shown(path),
        "scores of chosen rows",
        allow_infinite_epsilon=allow_infinite_epsilon,
    )
    return weights, identity


def combine_contributions(model: Path, paths: Sequence[Path], labels: Path | None = None) -> Predictions:
    """Add all parties' contributions up to predictions."""
    shared, _ = open_shared_part(model)
    given = [open_contribution(path) for path in paths]
    if not given:
        raise InputError("combine: no contribution; write them with 'fastadmm predict --partial'")
    by_name = checked_contributions(shared, given)
    if missing := [name for name in shared.names if name not in by_name]:
        raise InputError(
            f"combine: no contribution of {', '.join(missing)}; the sum would be another model's"
        )
    z = shared.combine([by_name[name].values for name in shared.names], _offset(labels, given[0]))
    return make_predictions(shared, given[0].ids, z)


def checked_contributions(shared: SharedPart, given: Sequence[Contribution]) -> dict[str, Contribution]:
    """Contributions to one sum by party; refused where they are of another model, of other rows or twice."""
    found: dict[str, Contribution] = {}
    first, shape = given[0], np.shape(shared.intercept)
    for own in given:
        if own.name not in shared.names:
            raise InputError(f"{own.place}: party {own.name!r}: the model has {', '.join(shared.names)}")
        if own.model_id != shared.model_id:
            raise InputError(f"{own.place}: made with another model (model ids differ)")
        if own.name in found:
            raise InputError(f"{own.place}: a second contribution of {own.name}")
        if own.values.ndim != 1 + len(shape) or own.values.shape[1:] != shape:
            raise FormatError(
                f"{own.place}: not one number, or one for each class of the model, for each row"
            )
        if len(own.values) != len(first.values):
            raise InputError(
                f"{own.place}: {len(own.values)} rows, but {first.place} has {len(first.values)}; "
                "align the rows first"
            )
        if not np.array_equal(own.ids, first.ids):
            raise InputError(
                f"{own.place}: other rows, or another order, than {first.place}; align the rows first"
            )
        found[own.name] = own
    return found


def _offset(path: Path | None, first: Contribution) -> np.ndarray | None:
    if path is None:
        return None
    labels = open_labels(path)
    if labels.offset is None:
        raise InputError(f"{shown(path)}: key 'offset': there is none; leave --labels out")
    if labels.row_digest != row_digest(first.ids):
        raise InputError(
            f"{shown(path)}: other rows, or another order, than {first.place} (row digests differ)"
        )
    return labels.offset
