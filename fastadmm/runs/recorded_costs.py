"""What a run has on record: its stored releases, the ledger's charges for them, and what it states.

Nothing is run. Each stored release says what it cost; the ledger has a charge of its draw that is no less,
and neither the statement nor the ledger's total is below what all of them cost together.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from fastadmm.errors import FormatError
from fastadmm.files.atomic import shown, storage_errors
from fastadmm.files.reading import read_json
from fastadmm.privacy.accounts import LABELS
from fastadmm.privacy.books_audit import too_little_stated
from fastadmm.privacy.fusion_mechanisms import STEPS
from fastadmm.privacy.ledger import Charge, Ledger
from fastadmm.privacy.noise_tests import Check
from fastadmm.privacy.sensitivity import message_sensitivity
from fastadmm.privacy.statement import PrivacyStatement
from fastadmm.privacy.transcript import epsilon_spent
from fastadmm.settings.privacy import DifferentialPrivacy, MessagePrivacy

#: A charge that is less by no more than this share is rounded.
_ROUNDING = 1e-6


def recorded_books(
    run: Path, settings: DifferentialPrivacy, mechanism: Mapping[str, Any], ledger: Path, statement: Path
) -> list[Check]:
    """Compare stored releases, ledger and statement of a run."""
    name = "releases, ledger and statement on record"
    stored = _stored(run / "messages")
    if not stored:
        return []
    if not ledger.exists():
        return [Check(name, f"not compared: {shown(ledger)} is not there", False)]
    with storage_errors(statement, "read"):
        document = read_json(statement)
    try:
        said, run_id = (
            PrivacyStatement.from_json(document["statement"], shown(statement)),
            str(document["run"]),
        )
    except (KeyError, TypeError) as error:
        raise FormatError(f"{shown(statement)}: not a privacy record: {error}") from None
    charges = Ledger(ledger).charges
    costs, wrong = _costs(stored, settings, mechanism, [c for c in charges if c.run == run_id])
    by_name = [costs.get(p.name, SimpleNamespace(gdp=0.0, pure=())) for p in said.parties]
    wrong = wrong or too_little_stated(said, settings, by_name) or _totals(Ledger(ledger), settings)
    right = f"{len(stored)} stored releases are charged, added up and stated"
    return [Check(name, wrong or right, bool(wrong), power="exact")]


def _stored(folder: Path) -> dict[str, dict[str, Any]]:
    found = {}
    for path in sorted(folder.glob("[!.]*.npz")) if folder.is_dir() else ():
        with storage_errors(path, "read"):
            try:
                with np.load(path, allow_pickle=False) as archive:
                    found[path.stem] = {key: archive[key] for key in archive.files}
            except (ValueError, OSError, EOFError) as error:
                raise FormatError(f"{shown(path)}: not a released message, or damaged: {error}") from None
    return found


def _costs(
    stored: Mapping[str, dict[str, Any]],
    settings: DifferentialPrivacy,
    mechanism: Mapping[str, Any],
    charges: Sequence[Charge],
) -> tuple[dict[str, Any], str]:
    """What the releases of each party cost together; and the first charge that is less than its release."""
    squares: dict[str, float] = {}
    pures: dict[str, list[float]] = {}
    for name, values in stored.items():
        draw = str(values.get("draw", ""))
        if not draw:
            continue  # of an older version, whose charges do not say what they are for
        own = [c for c in charges if c.draw == draw]
        charged = math.hypot(0.0, *(c.gdp for c in own), *(math.sqrt(2.0 * c.rho) for c in own))
        symbols = math.fsum(c.pure for c in own)
        if name == "labels":
            labels = math.fsum(c.pure for c in own if c.role == LABELS)
            if labels < (settings.label_epsilon or math.inf) * (1.0 - _ROUNDING):
                return {}, f"the stored labels are charged {labels:.4g}, they cost {settings.label_epsilon}"
            continue
        party, gdp, pure, grid = _cost(name, values, settings, mechanism)
        if grid:
            return {}, grid
        if charged < gdp * (1.0 - _ROUNDING):
            return {}, f"{name} is charged mu = {charged:.4g}, by its noise it costs {gdp:.4g}"
        if symbols < pure * (1.0 - _ROUNDING):
            return {}, f"{name} is charged {symbols:.4g} for symbols of {pure:.4g}"
        squares[party] = squares.get(party, 0.0) + gdp * gdp
        pures.setdefault(party, []).extend([pure] if pure else [])
    return {p: SimpleNamespace(gdp=math.sqrt(s), pure=tuple(pures[p])) for p, s in squares.items()}, ""


def _cost(
    name: str, values: Mapping[str, Any], settings: DifferentialPrivacy, mechanism: Mapping[str, Any]
) -> tuple[str, float, float, str]:
    """Party, mu, epsilon of symbols of one release; and what is wrong with its grid."""
    if not isinstance(settings, MessagePrivacy):
        (_, sigma, sensitivity), (_, moments) = values["model"], values["moments"]
        model = math.sqrt(STEPS) * float(sensitivity / sigma)
        gdp = math.hypot(model, 2.0 / float(moments), float(mechanism["norm_gdp"]))
        return name.removeprefix("fusion-"), gdp, float(values["channel"][0]), ""
    sigma = float(mechanism["sigma"])
    gdp = message_sensitivity(settings, float(mechanism["mu"]), 1).value / sigma
    due = 2.0 ** (math.floor(math.log2(sigma)) - 28)
    grid = "" if float(values["grid"]) == due else f"{name} lies on a grid of {values['grid']}, {due} is due"
    return name.split("-", 2)[2], gdp, 0.0, grid


def _totals(ledger: Ledger, settings: DifferentialPrivacy) -> str:
    """Whether the ledger adds up all of its accounts as the audit does."""
    for group in ledger.accounts():
        spent = ledger.spent(group[0].account)
        gdp = math.hypot(0.0, *(c.gdp for c in group), *(math.sqrt(2.0 * c.rho) for c in group))
        pure = [c.pure for c in group if c.pure > 0.0]
        discrete = any(c.rho > 0.0 for c in group)
        due, found = epsilon_spent(gdp, settings.delta, pure, discrete), spent.epsilon(settings.delta)
        if found < due * (1.0 - 1e-4):
            return f"the ledger adds up {found:.4g} for {group[0].party}, it is {due:.4g}"
    return ""
