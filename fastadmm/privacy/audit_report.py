"""All checks of an audit in one list, for the command line."""

from __future__ import annotations

import json
import math
import tomllib
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.engine import Engine
from fastadmm.errors import ConfigError, FormatError, StorageError
from fastadmm.privacy.accounting import noise_multiplier
from fastadmm.privacy.audit import audit_messages, audit_one_run, distinguish, noise_rank, play
from fastadmm.privacy.noise import Calibration, NoiseSource, calibrate
from fastadmm.privacy.paper import lemma_counter_example, theorem_sigma
from fastadmm.privacy.sensitivity import message_sensitivity
from fastadmm.privacy.settings import Privacy
from fastadmm.store.atomic import shown, storage_errors

__all__ = ["Check", "audit_paper", "audit_run", "audit_settings"]

#: Rows of the static check.
_RANK_ROWS = 64


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
    settings: Privacy, mu: float, trials: int, level: Calibration | None = None
) -> list[Check]:
    """Static check and game for mode "message".

    Parameters
    ----------
    settings : Privacy
    mu : float
        Modulus of the x-update.
    trials : int
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
    return [_rank(level), _game(audit_messages(settings, mu, level, trials))]


def audit_paper(n_columns: int, epsilon: float, delta: float, trials: int) -> list[Check]:
    """The paper's calibration on the counter-example to its lemma; full-rank noise is granted to it.

    Parameters
    ----------
    n_columns : int
    epsilon, delta : float
        Its claim, for one round.
    trials : int

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
    game = distinguish(*play(first, second, level, 1, trials), epsilon, delta)
    lemma = Check(
        "Lemma 1 of the paper",
        f"messages are {case.distance:.4g} apart, {case.lemma:.4g} is claimed to bound it",
        case.distance > case.lemma,
    )
    return [lemma, _game(game)]


def audit_run(run: Path, trials: int, canaries: bool) -> list[Check]:
    """Audit the settings and the noise that a run used, and its data with canaries if asked.

    Parameters
    ----------
    run : Path
        Run directory.
    trials : int
    canaries : bool

    Returns
    -------
    list of Check

    Raises
    ------
    ConfigError
        If the run was not private.
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
            mechanism = json.loads(path.read_text(encoding="utf-8")).get("mechanism")
        except (ValueError, AttributeError, tomllib.TOMLDecodeError) as error:
            raise FormatError(f"{shown(path)}: not a privacy record: {error}") from None
    values = read_config(run / "run.toml")
    values.pop("provenance", None)
    config = make_config(values, shown(run / "run.toml"))
    if mechanism is None or config.privacy.mode != "message":
        raise ConfigError(f"{shown(run)}: nothing to audit: the run made no claim about messages")
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
