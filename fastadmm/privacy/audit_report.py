"""All checks of an audit in one list, for the command line."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.engine import Engine
from fastadmm.errors import ConfigError, FormatError, StorageError
from fastadmm.privacy.accounting import epsilon_of, noise_multiplier
from fastadmm.privacy.audit import (
    ALARM,
    GameResult,
    audit_messages,
    audit_one_run,
    distinguish,
    noise_rank,
    play,
)
from fastadmm.privacy.budget import FusionBudget
from fastadmm.privacy.fusion_game import play_fusion, play_labels
from fastadmm.privacy.noise import Calibration, NoiseSource, calibrate
from fastadmm.privacy.paper import lemma_counter_example, theorem_sigma
from fastadmm.privacy.sensitivity import message_sensitivity
from fastadmm.privacy.settings import Privacy
from fastadmm.store.atomic import shown, storage_errors
from fastadmm.store.reading import read_json

__all__ = ["Check", "audit_fusion", "audit_paper", "audit_run", "audit_settings"]

#: Rows of the static check.
_RANK_ROWS = 64

#: Trials of a game whose outcomes are single numbers, and of one whose outcomes are whole fusion messages.
_TRIALS, _FUSION_TRIALS = 100_000, 2_000

#: A recorded budget may cost this share more than its claim: rounding of what was written.
_ROUNDING = 1e-6


@dataclass(frozen=True)
class Check:
    """One line of an audit.

    Attributes
    ----------
    name : str
    found : str
        In words.
    flagged : bool
        Whether the claim is refuted.
    epsilon : float or None
        The lower bound that was found, where there is one.
    """

    name: str
    found: str
    flagged: bool
    epsilon: float | None = None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


def audit_settings(
    settings: Privacy, mu: float, trials: int | None = None, level: Calibration | None = None
) -> list[Check]:
    """Static check and game for mode "message".

    Parameters
    ----------
    settings : Privacy
    mu : float
        Modulus of the x-update.
    trials : int, optional
        Default 100,000.
    level : Calibration, optional
        Noise to audit; what the settings ask for without one.

    Returns
    -------
    list of Check
    """
    if level is None:
        sensitivity = message_sensitivity(settings, mu, 1)
        multiplier = noise_multiplier(settings.epsilon, settings.delta, settings.rounds)
        level = calibrate(sensitivity.value, multiplier, _RANK_ROWS)
    return [_rank(level), _game(audit_messages(settings, mu, level, trials or _TRIALS))]


def audit_paper(n_columns: int, epsilon: float, delta: float, trials: int | None = None) -> list[Check]:
    """The paper's calibration on the counter-example to its lemma; full-rank noise is granted to it.

    Parameters
    ----------
    n_columns : int
    epsilon, delta : float
        Its claim, for one round.
    trials : int, optional
        Default 100,000.

    Returns
    -------
    list of Check
    """
    case = lemma_counter_example(n_columns)
    sigma = theorem_sigma(epsilon, delta, case.lemma)
    level = Calibration(sigma, 2.0 ** (math.floor(math.log2(sigma)) - 28), case.lemma)
    messages = np.column_stack(
        [D @ np.linalg.lstsq(D, case.target, rcond=None)[0] for D in (case.first, case.second)]
    )
    # Gaussian noise looks the same in every orthonormal basis: the plane of the two messages is enough.
    basis = np.linalg.qr(messages)[0]
    first, second = basis.T @ messages[:, 0], basis.T @ messages[:, 1]
    game = distinguish(*play(first, second, level, 1, trials or _TRIALS), epsilon, delta)
    lemma = Check(
        "Lemma 1 of the paper",
        f"messages are {case.distance:.4g} apart, {case.lemma:.4g} is claimed to bound it",
        case.distance > case.lemma,
    )
    return [lemma, _game(game)]


def audit_fusion(settings: Privacy, budget: FusionBudget, trials: int | None = None) -> list[Check]:
    """Exact cost of the releases, game on whole messages and game on labels for mode "fusion".

    Parameters
    ----------
    settings : Privacy
        The claim.
    budget : FusionBudget
        What each release was given.
    trials : int, optional
        Messages; default 2,000. Labels are at least 100,000.

    Returns
    -------
    list of Check
    """
    claim, delta = settings.epsilon, settings.delta
    cost = epsilon_of(budget.gdp, delta, (budget.symbol,))
    name = "cost of the releases together, exact"
    found = f"epsilon = {cost:.4g} at delta {delta:g}, claim {claim:.4g}"
    checks = [Check(name, found, cost > claim * (1.0 + _ROUNDING), cost)]
    game = play_fusion(budget, claim, delta, _FUSION_TRIALS if trials is None else trials)
    checks.append(_any_game("distinguishing game on whole messages of the worst neighbours", game))
    if settings.label_epsilon is not None:
        # Cheap, and tight, so that few trials would raise false alarms.
        labels = play_labels(settings.label_epsilon, settings.label_epsilon, max(trials or 0, _TRIALS))
        checks.append(_any_game("distinguishing game on randomised labels", labels))
    return checks


def _any_game(name: str, result: GameResult) -> Check:
    bound = result.epsilon_clopper_pearson
    found = f"epsilon >= {bound:.4g}, claim {result.claim:.4g} at delta {result.delta:g}"
    return Check(name, f"{found}, {result.trials} trials", bound > result.claim + ALARM, bound)


def audit_run(run: Path, trials: int | None, canaries: bool) -> list[Check]:
    """Audit the settings and the noise that a run used, and its data with canaries if asked.

    Parameters
    ----------
    run : Path
        Run directory.
    trials : int or None
        None takes the mode's default.
    canaries : bool
        Mode "message" only.

    Returns
    -------
    list of Check

    Raises
    ------
    ConfigError
        If the run was not private, or canaries are asked of mode "fusion".
    StorageError, FormatError
        If it is no run, or damaged.
    """
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
    config = make_config(values, shown(run / "run.toml"))
    if mechanism is None or config.privacy.mode == "none":
        raise ConfigError(f"{shown(run)}: nothing to audit: the run made no claim about messages")
    if config.privacy.mode == "fusion":
        if canaries:
            raise ConfigError("audit: --canaries is for mode 'message'; leave it out for a fusion run")
        return audit_fusion(config.privacy, _recorded_budget(mechanism, path), trials)
    try:
        level = Calibration(*(float(mechanism[key]) for key in ("sigma", "grid", "sensitivity")))
        mu = float(mechanism["mu"])
    except (KeyError, TypeError, ValueError) as error:
        raise FormatError(f"{shown(path)}: key 'mechanism' is damaged: {error}") from None
    checks = audit_settings(config.privacy, mu, trials, level)
    if canaries:
        from fastadmm.runs.config import solver_options
        from fastadmm.runs.train import Silent, load_problem

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


def _rank(level: Calibration) -> Check:
    engine, source = Engine(1), NoiseSource()
    found = noise_rank(lambda k: source.release(np.zeros(_RANK_ROWS), level, k, engine).values, _RANK_ROWS)
    return Check("static rank of the noise", f"{found.rank} of {found.n_values} directions", found.flagged)


def _game(result: Any) -> Check:
    return Check(
        "distinguishing game on the worst neighbours",
        f"epsilon >= {result.epsilon_gaussian:.4g} (Gaussian noise), >= {result.epsilon_clopper_pearson:.4g} "
        f"(any mechanism), claim {result.claim:.4g} at delta {result.delta:g}, {result.trials} trials",
        result.flagged,
        max(result.epsilon_gaussian, result.epsilon_clopper_pearson),
    )
