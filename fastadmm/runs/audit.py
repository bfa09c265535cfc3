"""All checks of an audit in one list, for the command line."""

from __future__ import annotations

import contextlib
import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError, FastadmmError, FormatError, StorageError
from fastadmm.files.atomic import shown
from fastadmm.privacy import fusion, game, message
from fastadmm.privacy.accounts import LABELS
from fastadmm.privacy.adversary import fusion_cases, message_cases
from fastadmm.privacy.books_audit import Cost, audit_books, too_little_stated
from fastadmm.privacy.fusion_mechanisms import STEPS
from fastadmm.privacy.game import Check
from fastadmm.privacy.ledger import Charge, Ledger
from fastadmm.privacy.noise_tests import MOST_TESTS, audit_noise
from fastadmm.privacy.releases import read_release
from fastadmm.privacy.response_audit import audit_labels, symbol_checks
from fastadmm.privacy.sensitivity import message_sensitivity
from fastadmm.privacy.statement import PrivacyStatement
from fastadmm.runs.config import recorded
from fastadmm.runs.folder import document_in
from fastadmm.runs.result import STATEMENT, ledger_of
from fastadmm.settings.privacy import DifferentialPrivacy, FusionPrivacy, MessagePrivacy

#: The modes, whose functions are looked up when they are called, as a run does.
_MODES: Any = {"message": message, "fusion": fusion}

#: Numbers of noise that are tested.
_TRIALS = 200_000

#: A charge that is less by no more than this share is rounded.
_ROUNDING = 1e-6

Note = Callable[[str], None]


def audit_settings(
    settings: DifferentialPrivacy,
    mu: float = 1.0,
    trials: int | None = None,
    recorded: Sequence[Check] = (),
    note: Note = lambda text: None,
) -> list[Check]:
    """Audit a claim: what is on record, the code on worst neighbours, its noise, symbols, labels and books.

    ``mu`` is the modulus of the x-update in mode "message".
    """
    if settings.sampler == "insecure_test":
        raise ConfigError("audit: nothing to audit: sampler 'insecure_test' is for tests and claims nothing")
    trials, publish = trials or _TRIALS, _MODES[settings.mode].publish_labels
    if isinstance(settings, FusionPrivacy):
        settings = settings.with_(label_party=None)  # the audit's parties have other names
    # The ledger shall not stop what is to be measured.
    unlimited = settings.with_(total_epsilon=game.UNLIMITED)
    checks = [*recorded, *or_its_end("runs", lambda: _played(unlimited, mu, trials, note))]
    note("drawing labels")
    checks += or_its_end("labels", lambda: audit_labels(unlimited, trials, publish))
    note("comparing ledger and statement with releases")
    checks += or_its_end("ledger and statement", lambda: audit_books(settings))
    if len(checks) > MOST_TESTS:
        raise AssertionError(f"{len(checks)} checks, each at a level for {MOST_TESTS}")
    return checks


def _played(settings: DifferentialPrivacy, mu: float, trials: int, note: Note) -> list[Check]:
    """The game on a mode's worst neighbours, in this process, and the noise that the mode draws."""
    alone = settings.with_(label_epsilon=None)
    if isinstance(settings, MessagePrivacy):
        settings = alone  # labels have a check of their own
    note("replaying messages on neighbours")
    ask, discrete = game.asked_in_a_run(settings, mu), settings.sampler == "discrete"
    with Engine(1).limited():
        found = [game.replay(settings, case, ask) for case in cases_of(settings, mu)]
        worst = max(found, key=lambda each: each.epsilon)

        def cost(share: float) -> float:
            return Cost(worst.gdp / share if share > 0.0 else math.inf, worst.pure).epsilon(settings)

        note("drawing noise")
        with contextlib.closing(game.made_run(alone, game.problem_of([np.ones((2, 1))] * 2, mu))) as idle:
            source = idle.noise_source
        checks = game.replay_checks("all messages", settings, found)
        checks += audit_noise(source, [game.run_releases(alone, mu)], trials, cost, discrete)
        if isinstance(settings, FusionPrivacy):
            checks += symbol_checks(settings, ask, trials)
    return checks


def cases_of(settings: DifferentialPrivacy, mu: float) -> Iterator[game.Case]:
    """The worst neighbours of a mode."""
    if isinstance(settings, MessagePrivacy):
        return message_cases(settings, mu)
    assert isinstance(settings, FusionPrivacy)
    return fusion_cases(settings)


def or_its_end(what: str, checks: Callable[[], list[Check]]) -> list[Check]:
    """The checks; where the code refuses the audit's own data, that is what they find.

    What a machine refuses, for want of memory, processes or room, says nothing about the code.
    """
    try:
        return checks()
    except (ConfigError, MemoryError):
        raise
    except Exception as error:  # whatever it is: what cannot be audited must not pass
        if isinstance(error, OSError) or "can't start new thread" in str(error):
            raise StorageError(f"audit: {what} could not be judged on this machine: {error}") from error
        kind = "" if isinstance(error, FastadmmError) else f"{type(error).__name__}: "
        return [Check(f"{what} on data that are allowed", f"the code ends with: {kind}{error}", True)]


# --- what a run has on record
def audit_run(run: Path, trials: int | None, note: Note) -> tuple[list[Check], DifferentialPrivacy, float]:
    """Audit what a run has on record and the code that made it; the claim, and its modulus mu."""
    path = run / STATEMENT
    document = document_in(path)
    if document is None:
        raise StorageError(f"{shown(run)}: no {STATEMENT}: not a run of this version")
    config, mechanism = recorded(run).config, document.get("mechanism")
    claim = config.privacy
    if mechanism is None or not isinstance(claim, DifferentialPrivacy):
        raise ConfigError(f"{shown(run)}: nothing to audit: the run made no claim about messages")
    keys: tuple[str, ...] = ("mu", "sigma")
    if claim.mode == "fusion":
        keys = ("symbol_epsilon", "norm_gdp", "model_gdp", "moments_gdp")
    try:
        parts = {key: float(mechanism[key]) for key in keys}
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{shown(path)}: key 'mechanism' is damaged: {error}") from None
    if not all(0.0 < part < math.inf or (key == "norm_gdp" and part == 0.0) for key, part in parts.items()):
        raise FormatError(f"{shown(path)}: key 'mechanism' is damaged: its parts must be positive numbers")
    mu = parts.get("mu", 1.0)  # mode "fusion" has none
    checks = audit_settings(claim, mu, trials, [_recorded_cost(claim, parts)], note)
    books = recorded_books(run, claim, parts, ledger_of(config, run), document)
    return checks + books, claim, mu


def _recorded_cost(settings: DifferentialPrivacy, parts: Mapping[str, float]) -> Check:
    """Is the noise on record enough for the claim, according to the theorems?"""
    if not isinstance(settings, MessagePrivacy):
        symbol, *gdps = parts.values()
        cost = Cost(math.hypot(*gdps), (symbol,)).epsilon(settings)
        return game.cost_check("cost of the releases on record, exact", cost, settings, "by the record")
    sigma, bound = parts["sigma"], message_sensitivity(settings, parts["mu"], 1)
    cost = Cost(math.sqrt(settings.rounds) * bound.value / sigma).epsilon(settings)
    where = f"for {settings.rounds} message(s) with sigma {sigma:.4g} and sensitivity {bound.value:.4g}"
    return game.cost_check("cost of the noise on record", cost, settings, f"{where} ({bound.theorem})")


def recorded_books(
    run: Path,
    settings: DifferentialPrivacy,
    parts: Mapping[str, float],
    ledger: Path,
    document: Mapping[str, Any],
) -> list[Check]:
    """Compare charges, statement and total of a run with what its stored releases cost; nothing is run."""
    name, place = "releases, ledger and statement on record", shown(run / STATEMENT)
    stored = {path.stem: read_release(path) for path in sorted((run / "messages").glob("[!.]*.npz"))}
    if not stored:
        return []
    if not ledger.exists():
        return [Check(name, f"not compared: {shown(ledger)} is not there", False)]
    try:
        said, identifier = PrivacyStatement.from_json(document["statement"], place), str(document["run"])
    except KeyError as error:
        raise FormatError(f"{place}: not a privacy record: {error}") from None
    own = [charge for charge in Ledger(ledger).charges if charge.run == identifier]
    costs, wrong = _costs(stored, settings, parts, own)
    wrong = wrong or too_little_stated(said, settings, [costs.get(p.name, Cost()) for p in said.parties])
    return [game.exact_check(name, wrong, f"{len(stored)} stored releases are charged, added up and stated")]


def _costs(
    stored: Mapping[str, Mapping[str, Any]],
    settings: DifferentialPrivacy,
    parts: Mapping[str, float],
    charges: Sequence[Charge],
) -> tuple[dict[str, Cost], str]:
    """What the releases of each party cost together; and the first charge that is less than its release."""
    costs: dict[str, Cost] = defaultdict(Cost)
    for name, values in stored.items():
        draw = str(values.get("draw", ""))
        if not draw:
            continue  # of an older version, whose charges do not say what they are for
        own = [c for c in charges if c.draw == draw]
        if name == "labels":
            labels = math.fsum(c.pure for c in own if c.role == LABELS)
            if labels < (settings.label_epsilon or math.inf) * (1.0 - _ROUNDING):
                return {}, f"the stored labels are charged {labels:.4g}, they cost {settings.label_epsilon}"
            continue
        if isinstance(settings, MessagePrivacy):
            party, sigma = name.split("-", 2)[2], parts["sigma"]
            cost = Cost(message_sensitivity(settings, parts["mu"], 1).value / sigma)
            due = 2.0 ** (math.floor(math.log2(sigma)) - 28)
            if values["grid"] != due:
                return {}, f"{name} lies on a grid of {values['grid']}, {due} is due"
        else:
            (_, sigma, sensitivity), (_, moments) = values["model"], values["moments"]
            model = math.sqrt(STEPS) * float(sensitivity / sigma)
            gdp = math.hypot(model, 2.0 / float(moments), parts["norm_gdp"])
            party, cost = name.removeprefix("fusion-"), Cost(gdp, (float(values["channel"][0]),))
        charged = math.hypot(0.0, *(c.gdp for c in own), *(math.sqrt(2.0 * c.rho) for c in own))
        symbols, pure = math.fsum(c.pure for c in own), math.fsum(cost.pure)
        if charged < cost.gdp * (1.0 - _ROUNDING):
            return {}, f"{name} is charged mu = {charged:.4g}, by its noise it costs {cost.gdp:.4g}"
        if symbols < pure * (1.0 - _ROUNDING):
            return {}, f"{name} is charged {symbols:.4g} for symbols of {pure:.4g}"
        before = costs[party]
        costs[party] = Cost(math.hypot(before.gdp, cost.gdp), before.pure + cost.pure)
    return costs, ""
