"""All checks of an audit in one list, for the command line."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.errors import ConfigError, FastadmmError, FormatError, StorageError
from fastadmm.files.atomic import shown, storage_errors
from fastadmm.files.reading import read_json
from fastadmm.privacy import fusion, message
from fastadmm.privacy.audit import audit_one_run, distinguish, play
from fastadmm.privacy.books_audit import audit_books
from fastadmm.privacy.fusion_audit import audit_fusion_code, recorded_cost
from fastadmm.privacy.fusion_party import FusionBudget
from fastadmm.privacy.message_audit import audit_message_code, declared_cost
from fastadmm.privacy.noise import Calibration
from fastadmm.privacy.noise_tests import MOST_TESTS, Check
from fastadmm.privacy.plan import lemma_counter_example, theorem_sigma
from fastadmm.privacy.response_audit import audit_labels
from fastadmm.runs.recorded_costs import recorded_books
from fastadmm.settings.privacy import DifferentialPrivacy, FusionPrivacy, MessagePrivacy

__all__ = ["Check", "audit_fusion", "audit_paper", "audit_run", "audit_settings", "claim_of", "or_its_end"]

#: The two modes, whose functions are looked up when they are called, as a run does.
_MESSAGE: Any = message
_FUSION: Any = fusion

#: Numbers of noise that are tested, and runs of each world of the game on the paper's calibration.
_TRIALS, _GAMES = 200_000, 100_000


def _quiet(text: str) -> None:
    """Tell nobody."""


def audit_settings(
    settings: MessagePrivacy,
    mu: float,
    trials: int | None = None,
    sigma: float | None = None,
    note: Callable[[str], None] = _quiet,
) -> list[Check]:
    """Audit mode "message": the noise on record, the code on worst neighbours, the noise it draws."""
    _check_sampler(settings)
    checks = [] if sigma is None else [declared_cost(settings, mu, sigma)]
    checks += or_its_end("runs", lambda: audit_message_code(settings, mu, trials or _TRIALS, note))
    return _few(checks + _rest(settings, trials or _TRIALS, _MESSAGE.publish_labels, note))


def audit_fusion(
    settings: FusionPrivacy,
    budget: FusionBudget | None = None,
    trials: int | None = None,
    note: Callable[[str], None] = _quiet,
) -> list[Check]:
    """Audit mode "fusion": the budget on record, the code on worst neighbours, its noise, symbols, labels."""
    _check_sampler(settings)
    checks = [] if budget is None else [recorded_cost(settings, budget)]
    checks += or_its_end("runs", lambda: audit_fusion_code(settings, trials or _TRIALS, note))
    return _few(checks + _rest(settings, trials or _TRIALS, _FUSION.publish_labels, note))


def _rest(
    settings: DifferentialPrivacy, trials: int, publish: Any, note: Callable[[str], None]
) -> list[Check]:
    """Labels and books, which both modes have."""
    note("drawing labels")
    labels = or_its_end("labels", lambda: audit_labels(settings, trials, publish))
    note("comparing ledger and statement with releases")
    return labels + or_its_end("ledger and statement", lambda: audit_books(settings))


def or_its_end(what: str, checks: Callable[[], list[Check]]) -> list[Check]:
    """The checks; where the code refuses the audit's own data, that is what they find.

    Whether a run ends may depend on its settings, which :exc:`ConfigError` says, but not on rows or labels.
    """
    try:
        return checks()
    except ConfigError:
        raise
    except Exception as error:  # whatever it is: what cannot be audited must not pass
        kind = "" if isinstance(error, FastadmmError) else f"{type(error).__name__}: "
        found = f"the code ends with: {kind}{error}"
        return [Check(f"{what} on data that are allowed", found, True)]


def _check_sampler(settings: DifferentialPrivacy) -> None:
    if settings.sampler == "insecure_test":
        raise ConfigError("audit: nothing to audit: sampler 'insecure_test' is for tests and claims nothing")


def _few(checks: list[Check]) -> list[Check]:
    """The checks, of which there are no more than the level of each allows."""
    if len(checks) > MOST_TESTS:
        raise AssertionError(f"{len(checks)} checks, each at a level for {MOST_TESTS}")
    return checks


def audit_paper(n_columns: int, epsilon: float, delta: float, trials: int | None = None) -> list[Check]:
    """The paper's calibration on the counter-example to its lemma; full-rank noise is granted to it."""
    case = lemma_counter_example(n_columns)
    sigma = theorem_sigma(epsilon, delta, case.lemma)
    level = Calibration(sigma, 2.0 ** (math.floor(math.log2(sigma)) - 28), case.lemma)
    messages = np.column_stack(
        [D @ np.linalg.lstsq(D, case.target, rcond=None)[0] for D in (case.first, case.second)]
    )
    # Gaussian noise looks the same in every orthonormal basis: the plane of the two messages is enough.
    basis = np.linalg.qr(messages)[0]
    first, second = basis.T @ messages[:, 0], basis.T @ messages[:, 1]
    game = distinguish(*play(first, second, level, 1, trials or _GAMES), epsilon, delta)
    lemma = Check(
        "Lemma 1 of the paper",
        f"messages are {case.distance:.4g} apart, {case.lemma:.4g} is claimed to bound it",
        case.distance > case.lemma,
    )
    return [lemma, _game(game)]


def audit_run(
    run: Path, trials: int | None, canaries: bool, note: Callable[[str], None] = _quiet
) -> list[Check]:
    """Audit what a run has on record and the code that made it, and its data with canaries if asked."""
    from fastadmm.runs.private import LEDGER, STATEMENT

    config, mechanism = _on_record(run, canaries)
    path = run / STATEMENT
    held = run / LEDGER if config.ledger is None else Path(config.ledger)
    if config.privacy.mode == "fusion":
        if canaries:
            raise ConfigError("audit: --canaries is for mode 'message'; leave it out for a fusion run")
        checks = audit_fusion(config.privacy, _recorded_budget(mechanism, path), trials, note)
        return checks + recorded_books(run, config.privacy, mechanism, held, path)
    mu, sigma = _of_messages(mechanism, path)
    checks = audit_settings(config.privacy, mu, trials, sigma, note)
    checks += recorded_books(run, config.privacy, mechanism, held, path)
    if canaries:
        note("training with canaries")
        from fastadmm.runs.config import solver_options
        from fastadmm.runs.display import Silent
        from fastadmm.runs.load import load_problem

        problem = load_problem(config, Silent())
        claim = config.privacy.epsilon
        bounds = audit_one_run(problem, solver_options(config), config.privacy)
        checks += [
            Check(
                f"one run with canaries, {name}",
                f"epsilon >= {bound:.3g}, claim {claim:.4g}",
                bound > claim,
                bound,
            )
            for name, bound in zip(problem.names, bounds)
        ]
    return checks


def claim_of(run: Path) -> tuple[DifferentialPrivacy, float]:
    """What a run claims, and the modulus of its x-update; 1 in mode "fusion", which has none."""
    from fastadmm.runs.private import STATEMENT

    config, mechanism = _on_record(run)
    if config.privacy.mode == "fusion":
        return config.privacy, 1.0
    return config.privacy, _of_messages(mechanism, run / STATEMENT)[0]


def _on_record(run: Path, canaries: bool = False) -> tuple[Any, Any]:
    """Configuration of a private run, and the numbers behind its statement."""
    from fastadmm.runs.config import make_config, read_config
    from fastadmm.runs.private import STATEMENT

    path = run / STATEMENT
    with storage_errors(path, "read"):
        if not path.exists():
            raise StorageError(f"{shown(run)}: no {STATEMENT}: not a run of this version")
        try:
            mechanism = read_json(path).get("mechanism")
        except AttributeError as error:
            raise FormatError(f"{shown(path)}: not a privacy record: {error}") from None
    values = read_config(run / "run.toml", sealed=True)
    values.pop("provenance", None)
    if values.pop("rounds_by_files", None) is not None and canaries:
        raise ConfigError("audit: --canaries trains with all parties' features, which a run by files has not")
    config = make_config(values, shown(run / "run.toml"))
    if mechanism is None or config.privacy.mode == "none":
        raise ConfigError(f"{shown(run)}: nothing to audit: the run made no claim about messages")
    return config, mechanism


def _of_messages(mechanism: Any, path: Path) -> tuple[float, float]:
    """mu and sigma of a run of mode "message"."""
    try:
        mu, sigma = (float(mechanism[key]) for key in ("mu", "sigma"))
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{shown(path)}: key 'mechanism' is damaged: {error}") from None
    if not (0.0 < mu < math.inf and 0.0 < sigma < math.inf):
        raise FormatError(f"{shown(path)}: key 'mechanism' is damaged: its parts must be positive numbers")
    return mu, sigma


def _recorded_budget(mechanism: Any, path: Path) -> FusionBudget:
    """What a fusion run wrote down of its releases."""
    keys = ("symbol_epsilon", "norm_gdp", "model_gdp", "moments_gdp")
    try:
        parts = [float(mechanism[key]) for key in keys]
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{shown(path)}: key 'mechanism' is damaged: {error}") from None
    if not all(math.isfinite(part) and part >= 0.0 for part in parts) or not min(parts[0], *parts[2:]) > 0.0:
        raise FormatError(f"{shown(path)}: key 'mechanism' is damaged: its parts must be positive numbers")
    return FusionBudget(*parts)


def _game(result: Any) -> Check:
    return Check(
        "distinguishing game on the worst neighbours",
        f"epsilon >= {result.epsilon_gaussian:.4g} (Gaussian noise), >= {result.epsilon_clopper_pearson:.4g} "
        f"(any mechanism), claim {result.claim:.4g} at delta {result.delta:g}, {result.trials} trials",
        result.flagged,
        max(result.epsilon_gaussian, result.epsilon_clopper_pearson),
    )
