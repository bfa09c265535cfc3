"""Coefficients from the files of a model: a run's, a model's, or one party's own file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from fastadmm.errors import ConfigError, FormatError, InputError
from fastadmm.files.atomic import shown
from fastadmm.files.reading import is_directory
from fastadmm.privacy.published import exact_note, exact_parties
from fastadmm.privacy.statement import PrivacyStatement
from fastadmm.store.coefficients import Coefficients, coefficients
from fastadmm.store.model import open_model, open_party_model, open_shared_part


def read_coefficients(
    path: Path, party: str | None = None, references: Mapping[str, str] | None = None
) -> Coefficients:
    """The table of a model's coefficients."""
    if not is_directory(path):
        own, _ = open_party_model(path)
        if party not in (None, own.name):
            raise InputError(f"{shown(path)}: holds the weights of {own.name}, not of {party}")
        return _with_note(coefficients(own, references), {own.name: own.privacy}, None)
    if party is None:
        model = open_model(path)
        lines = {party.name: party.privacy for party in model.parties}
        return _with_note(coefficients(model, references), lines, model.privacy)
    shared, directory = open_shared_part(path)
    if party not in shared.names:
        raise ConfigError(f"--party {party}: the model has {', '.join(shared.names)}")
    own, model_id = open_party_model(directory / f"{party}.h5")
    if model_id not in (None, shared.model_id):
        raise FormatError(f"{shown(directory / party)}.h5: attribute 'model-id': belongs to another model")
    own = replace(own, scale=shared.scales[shared.names.index(party)])
    found = coefficients(own, references, shared.loss)
    return _with_note(found, {own.name: own.privacy}, shared.privacy)


def _with_note(
    found: Coefficients, lines: Mapping[str, str | None], statement: PrivacyStatement | None
) -> Coefficients:
    names = exact_parties(lines, statement)
    return replace(found, notes=[*found.notes, exact_note(names, "them")]) if names else found
