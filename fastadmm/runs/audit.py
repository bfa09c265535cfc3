"""All checks of an audit in one list, for the command line."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.engine.engine import Engine
from fastadmm.errors import ConfigError, FastadmmError, FormatError, StorageError
from fastadmm.files.atomic import shown, storage_errors
from fastadmm.files.reading import read_json
from fastadmm.privacy import fusion, message
from fastadmm.privacy.accounts import LABELS
from fastadmm.privacy.books_audit import Cost, audit_books, too_little_stated
from fastadmm.privacy.fusion_audit import fusion_cases, recorded_cost, symbol_checks
from fastadmm.privacy.fusion_mechanisms import STEPS
from fastadmm.privacy.fusion_party import FusionBudget, fusion_budget
from fastadmm.privacy.game import Case, asked_in_a_run, problem_of, replay, replay_checks, run_releases
from fastadmm.privacy.ledger import Charge, Ledger
from fastadmm.privacy.message_audit import declared_cost, message_cases
from fastadmm.privacy.noise_audit import audit_noise
from fastadmm.privacy.noise_tests import MOST_TESTS, Check, exact_check
from fastadmm.privacy.releases import read_release
from fastadmm.privacy.response_audit import audit_labels
from fastadmm.privacy.sensitivity import message_sensitivity
from fastadmm.privacy.statement import PrivacyStatement
from fastadmm.privacy.transcript import UNLIMITED, epsilon_spent, made_run
from fastadmm.runs.config import recorded
from fastadmm.runs.folder import damaged
from fastadmm.runs.result import LEDGER, STATEMENT
from fastadmm.settings.privacy import DifferentialPrivacy, FusionPrivacy, MessagePrivacy

#: The modes, whose functions are looked up when they are called, as a run does.
_MODES: Any = {"message": message, "fusion": fusion}

#: What a fusion run writes down of its releases, in the order of :class:`FusionBudget`.
_BUDGET = ("symbol_epsilon", "norm_gdp", "model_gdp", "moments_gdp")

#: Numbers of noise that are tested.
_TRIALS = 200_000


def _quiet(text: str) -> None:
    """Tell nobody."""


def audit_settings(
    settings: DifferentialPrivacy,
    mu: float = 1.0,
    trials: int | None = None,
    recorded: Sequence[Check] = (),
    note: Callable[[str], None] = _quiet,
) -> list[Check]:
    """Audit a claim: what is on record, the code on worst neighbours, its noise, symbols, labels and books.

    ``mu`` is the modulus of the x-update in mode "message".
    """
    if settings.sampler == "insecure_test":
        raise ConfigError("audit: nothing to audit: sampler 'insecure_test' is for tests and claims nothing")
    trials, publish = trials or _TRIALS, _MODES[settings.mode].publish_labels
    # The ledger shall not stop what is to be measured.
    unlimited = settings.of_any_parties().with_(total_epsilon=UNLIMITED)
    checks = list(recorded)
    checks += or_its_end("runs", lambda: _played(unlimited, mu, trials, note))
    note("drawing labels")
    checks += or_its_end("labels", lambda: audit_labels(unlimited, trials, publish))
    note("comparing ledger and statement with releases")
    checks += or_its_end("ledger and statement", lambda: audit_books(settings.of_any_parties()))
    if len(checks) > MOST_TESTS:
        raise AssertionError(f"{len(checks)} checks, each at a level for {MOST_TESTS}")
    return checks


def _played(
    settings: DifferentialPrivacy, mu: float, trials: int, note: Callable[[str], None]
) -> list[Check]:
    """The game on a mode's worst neighbours, in this process, and the noise that the mode draws."""
    if isinstance(settings, MessagePrivacy):
        settings = settings.with_(label_epsilon=None)  # labels have a check of their own
    note("replaying messages on neighbours")
    ask, discrete = asked_in_a_run(settings, mu), settings.sampler == "discrete"
    with Engine(1).limited():
        found = [replay(settings, case, ask) for case in cases_of(settings, mu)]
        worst = max(found, key=lambda each: each.epsilon)

        def cost(share: float) -> float:
            gdp = worst.gdp / share if share > 0.0 else math.inf
            return epsilon_spent(gdp, settings.delta, worst.pure, discrete)

        note("drawing noise")
        alone = settings.with_(label_epsilon=None)
        with contextlib.closing(made_run(alone, problem_of([np.ones((2, 1))] * 2, mu))) as idle:
            source = idle.noise_source
        checks = replay_checks("all messages", settings, found)
        checks += audit_noise(source, [run_releases(alone, mu)], trials, cost, discrete)
        if isinstance(settings, FusionPrivacy):
            checks += symbol_checks(settings, ask, fusion_budget(settings).symbol, trials)
    return checks


def cases_of(settings: DifferentialPrivacy, mu: float) -> Iterator[Case]:
    """The worst neighbours of a mode."""
    if isinstance(settings, MessagePrivacy):
        return message_cases(settings, mu)
    assert isinstance(settings, FusionPrivacy)
    return fusion_cases(settings)


def or_its_end(what: str, checks: Callable[[], list[Check]]) -> list[Check]:
    """The checks; where the code refuses the audit's own data, that is what they find."""
    try:
        return checks()
    except ConfigError:
        raise
    except Exception as error:  # whatever it is: what cannot be audited must not pass
        kind = "" if isinstance(error, FastadmmError) else f"{type(error).__name__}: "
        found = f"the code ends with: {kind}{error}"
        return [Check(f"{what} on data that are allowed", found, True)]


def audit_run(run: Path, trials: int | None, note: Callable[[str], None]) -> list[Check]:
    """Audit what a run has on record and the code that made it."""
    config, document, mu, numbers = _on_record(run)
    claim, held = config.privacy, run / LEDGER if config.ledger is None else Path(config.ledger)
    if claim.mode == "fusion":
        known = recorded_cost(claim, FusionBudget(*numbers))
    else:
        known = declared_cost(claim, *numbers)
    checks = audit_settings(claim, mu, trials, [known], note)
    return checks + recorded_books(run, claim, document, held)


def claim_of(run: Path) -> tuple[DifferentialPrivacy, float]:
    """What a run claims, and the modulus of its x-update; 1 in mode "fusion", which has none."""
    config, _, mu, _ = _on_record(run)
    return config.privacy, mu


def _on_record(run: Path) -> tuple[Any, dict[str, Any], float, list[float]]:
    """Configuration and statement of a private run, modulus of its x-update and numbers of its noise."""
    path = run / STATEMENT
    with storage_errors(path, "read"):
        if not path.exists():
            raise StorageError(f"{shown(run)}: no {STATEMENT}: not a run of this version")
    with damaged(path, "train anew", "not a privacy record"):
        document = read_json(path)
        mechanism = document.get("mechanism")
    config = recorded(run).config
    if mechanism is None or config.privacy.mode == "none":
        raise ConfigError(f"{shown(run)}: nothing to audit: the run made no claim about messages")
    keys = _BUDGET if config.privacy.mode == "fusion" else ("mu", "sigma")
    with damaged(path, "train anew", "key 'mechanism' is damaged"):
        parts = {key: float(mechanism[key]) for key in keys}
    # The noise of norms may be zero.
    if not all(0.0 < part < math.inf or (key == "norm_gdp" and part == 0.0) for key, part in parts.items()):
        raise FormatError(f"{shown(path)}: key 'mechanism' is damaged: its parts must be positive numbers")
    return config, document, parts.get("mu", 1.0), list(parts.values())


#: A charge that is less by no more than this share is rounded.
_ROUNDING = 1e-6


def recorded_books(
    run: Path, settings: DifferentialPrivacy, document: Mapping[str, Any], ledger: Path
) -> list[Check]:
    """Compare charges, statement and total of a run with what its stored releases cost; nothing is run."""
    name = "releases, ledger and statement on record"
    stored = {path.stem: read_release(path) for path in sorted((run / "messages").glob("[!.]*.npz"))}
    if not stored:
        return []
    if not ledger.exists():
        return [Check(name, f"not compared: {shown(ledger)} is not there", False)]
    with damaged(run / STATEMENT, "train anew", "not a privacy record"):
        said = PrivacyStatement.from_json(document["statement"], shown(run / STATEMENT))
        run_id = str(document["run"])
    charges = [charge for charge in Ledger(ledger).charges if charge.run == run_id]
    costs, wrong = _costs(stored, settings, document["mechanism"], charges)
    by_name = [costs.get(p.name, Cost(0.0)) for p in said.parties]
    wrong = wrong or too_little_stated(said, settings, by_name)
    right = f"{len(stored)} stored releases are charged, added up and stated"
    return [exact_check(name, wrong, right)]


def _costs(
    stored: Mapping[str, dict[str, Any]],
    settings: DifferentialPrivacy,
    mechanism: Mapping[str, Any],
    charges: Sequence[Charge],
) -> tuple[dict[str, Cost], str]:
    """What the releases of each party cost together; and the first charge that is less than its release."""
    costs: dict[str, Cost] = {}
    for name, values in stored.items():
        draw = str(values.get("draw", ""))
        if not draw:
            continue  # of an older version, whose charges do not say what they are for
        own = [c for c in charges if c.draw == draw]
        if name == "labels":
            due, labels = settings.label_epsilon, math.fsum(c.pure for c in own if c.role == LABELS)
            if _less(labels, due or math.inf):
                return {}, f"the stored labels are charged {labels:.4g}, they cost {due}"
            continue
        party, gdp, pure, wrong = _cost(name, values, settings, mechanism)
        charged = math.hypot(0.0, *(c.gdp for c in own), *(math.sqrt(2.0 * c.rho) for c in own))
        symbols = math.fsum(c.pure for c in own)
        if _less(charged, gdp):
            wrong = wrong or f"{name} is charged mu = {charged:.4g}, by its noise it costs {gdp:.4g}"
        elif _less(symbols, pure):
            wrong = wrong or f"{name} is charged {symbols:.4g} for symbols of {pure:.4g}"
        if wrong:
            return {}, wrong
        known = costs.get(party, Cost(0.0))
        costs[party] = Cost(math.hypot(known.gdp, gdp), (*known.pure, *([pure] if pure else [])))
    return costs, ""


def _less(charged: float, due: float) -> bool:
    return charged < due * (1.0 - _ROUNDING)


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
