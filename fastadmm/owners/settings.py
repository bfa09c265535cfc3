"""Settings of a run with owners of rows: the same keys on the command line and in the run's file."""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fastadmm.errors import ConfigError, FormatError
from fastadmm.files.reading import read_toml

__all__ = ["OwnerSettings", "make_settings", "parse_epsilons", "read_settings"]

WEIGHTS = ("size", "budget")


@dataclass(frozen=True)
class OwnerSettings:
    """What to train with owners of rows, and under which budgets; see ``docs/owners.md``.

    Attributes
    ----------
    data : str
        Directory made by ``fastadmm owners convert``.
    epsilon : str
        Budget of each owner, separated by commas, or one for all; ``inf`` answers exactly.
    delta : float or None
        Of each owner, for Gaussian answers.
    mechanism : str
        ``laplace`` or ``gaussian``.
    bound : str or None
        ``clip:XI``, ``features:R`` or ``assumed:XI``: :mod:`fastadmm.owners.bound`.
    target_bound : float or None
        Bound on the absolute target, for ``features:R`` with the squared loss.
    theta_max : float
        Half the side of the parameters' box.
    rounds : int
        T.
    loss : str
        ``auto``, ``squared``, ``hinge`` or ``logistic``.
    lambda_ : float
        Weight of the squared norm, per mean loss; the key is ``lambda``.
    intercept : bool
        A constant coordinate, penalised like the others.
    method : str
        ``auto`` or one of :data:`fastadmm.owners.learner.METHODS`.
    step : float or None
        eta, rho or c1; None where one follows from the bound.
    smoothness : float or None
        Lipschitz constant of the objective's gradient, where it is known from public data.
    weights : str
        ``size``: n_l / n. ``budget``: inverse noise variances, for Laplace answers
        proportional to (n_l epsilon_l)^2.
    learner : str or None
        An owner that trains for itself: its answers stay at home and are exact.
    batch : float
        Share of its records that an owner draws for each answer.
    ledger : str or None
        A privacy ledger that several runs share; None keeps one in the run's directory.
    budget : str or None
        Most that all runs of the ledger together may spend, as `epsilon`; None: this run's epsilon.
    threads : int or None
    """

    data: str
    epsilon: str = ""
    delta: float | None = None
    mechanism: str = "laplace"
    bound: str | None = None
    target_bound: float | None = None
    theta_max: float = 10.0
    rounds: int = 40
    loss: str = "auto"
    lambda_: float = 0.0
    intercept: bool = True
    method: str = "auto"
    step: float | None = None
    smoothness: float | None = None
    weights: str = "size"
    learner: str | None = None
    batch: float = 1.0
    ledger: str | None = None
    budget: str | None = None
    threads: int | None = None

    def to_toml(self) -> dict[str, Any]:
        """Plain dictionary with the documented keys; unset ones are left out."""
        return {key.rstrip("_"): value for key, value in asdict(self).items() if value is not None}


_KINDS: dict[str, tuple[type, ...]] = {
    "data": (str,),
    "epsilon": (str, int, float),
    "delta": (float,),
    "mechanism": (str,),
    "bound": (str,),
    "target_bound": (int, float),
    "theta_max": (int, float),
    "rounds": (int,),
    "loss": (str,),
    "lambda": (int, float),
    "intercept": (bool,),
    "method": (str,),
    "step": (int, float),
    "smoothness": (int, float),
    "weights": (str,),
    "learner": (str,),
    "batch": (int, float),
    "ledger": (str,),
    "budget": (str, int, float),
    "threads": (int,),
}

_POSITIVE = ("target_bound", "theta_max", "step", "smoothness", "batch", "threads")


def make_settings(
    values: Mapping[str, Any], place: str = "settings", options: Mapping[str, Any] | None = None
) -> OwnerSettings:
    """Check keys and types, and fill in defaults.

    Parameters
    ----------
    values : mapping
        Keys of :class:`OwnerSettings` (``lambda`` without underscore); None means not set.
    place : str
        What messages call the source.
    options : mapping, optional
        Settings that win.

    Returns
    -------
    OwnerSettings

    Raises
    ------
    ConfigError
        An unknown key, a wrong type, a value out of range.
    """
    checked: dict[str, Any] = {}
    for source, where in ((values, place), (options or {}, "command line")):
        for key, value in source.items():
            if key not in _KINDS:
                near = difflib.get_close_matches(key, _KINDS, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(_KINDS)}"
                raise ConfigError(f"{where}: unknown key {key!r}; {hint}")
            if value is None:
                continue
            kinds = _KINDS[key]
            if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
                raise ConfigError(f"{where}: key {key!r}: {value!r} is of the wrong type")
            if key in ("epsilon", "budget"):
                value = str(value)
            elif float in kinds and isinstance(value, (int, float)):
                value = float(value)
            if key in _POSITIVE and not value > 0:
                raise ConfigError(f"{where}: key {key!r}: {value:g} must be positive")
            if key == "rounds" and value < 1:
                raise ConfigError(f"{where}: key 'rounds': {value}; at least one is needed")
            if key == "lambda" and not 0 <= value < math.inf:
                raise ConfigError(f"{where}: key 'lambda': {value:g} must be zero or positive, and finite")
            checked["lambda_" if key == "lambda" else key] = value
    if "data" not in checked:
        raise ConfigError(f"{place}: key 'data' is missing: name the directory with the owners")
    settings = OwnerSettings(**checked)
    if settings.weights not in WEIGHTS:
        raise ConfigError(f"{place}: key 'weights': {settings.weights!r} is not one of {', '.join(WEIGHTS)}")
    return settings


def parse_epsilons(text: str, names: list[str]) -> list[float]:
    """Budgets of the owners.

    Parameters
    ----------
    text : str
        One number for all, or as many as owners, separated by commas.
    names : list of str
        The owners.

    Returns
    -------
    list of float

    Raises
    ------
    ConfigError
        Missing, not numbers, not positive, or of another number than owners.
    """
    if not text.strip():
        raise ConfigError(
            "epsilon: no budget given; pass --epsilon with one number for all owners or one each (inf: exact)"
        )
    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        raise ConfigError(f"epsilon: {text!r} is not a list of numbers such as 1,1,0.5") from None
    if len(values) == 1:
        values *= len(names)
    if len(values) != len(names):
        raise ConfigError(f"epsilon: {len(values)} budgets for {len(names)} owners ({', '.join(names)})")
    for name, value in zip(names, values, strict=True):
        if not value > 0:
            raise ConfigError(
                f"epsilon: {value:g} of owner {name!r} is not positive; inf means exact answers"
            )
    return values


def read_settings(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a TOML file as a flat dictionary; relative paths count from the file's directory.

    Parameters
    ----------
    path : path

    Returns
    -------
    dict

    Raises
    ------
    StorageError
        It cannot be read.
    ConfigError
        It is not TOML.
    """
    try:
        values = read_toml(path)
    except FormatError as error:
        raise ConfigError(str(error)) from None
    for key in ("data", "ledger"):
        if isinstance(values.get(key), str):
            values[key] = str(Path(path).parent / values[key])
    return values
