"""Run configuration: the same keys on the command line, in TOML and in ``run.toml``."""

from __future__ import annotations

import difflib
import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from fastadmm.errors import ConfigError
from fastadmm.privacy.settings import Privacy
from fastadmm.store.atomic import shown, storage_errors

__all__ = ["KEYS", "RunConfig", "is_convex", "make_config", "read_config"]


@dataclass(frozen=True)
class RunConfig:
    """What to train and how; see ``docs/training.md`` for each key.

    Attributes
    ----------
    data : str
        Partition directory.
    test : str or None
        Partition whose metrics are logged per round.
    loss : str
        "auto" takes logistic for classification, squared for regression.
    lambda_ : float
        Regularisation per mean loss; the key is ``lambda``.
    regularizer : str
        A name of :data:`fastadmm.regularizers.REGULARIZERS`.
    l1_ratio : float or None
        Share of l1 in the elastic net; None takes 0.5.
    constraint : str
        As in :func:`fastadmm.constraints.get_constraint`.
    intercept : bool
        Fit an unpenalised intercept.
    scheme, penalty, acceleration, x_update, threads
        As in :class:`fastadmm.solver.SolverOptions`.
    gap : float
        Relative duality gap to certify; not for non-convex problems, which have none.
    stationarity : float
        Relative stationarity at which a non-convex problem stops, as in
        :class:`fastadmm.solver.SolverOptions`; not for convex ones.
    rounds : int
        Round limit.
    time : float or None
        Time limit in seconds.
    checkpoint_rounds : int or None
        Checkpoint every so many rounds.
    checkpoint_seconds : float
        Checkpoint at least this often, in seconds.
    privacy : Privacy
        The table ``[privacy]``.
    ledger : str or None
        Privacy ledger shared by several runs on the same data; None: one of the run's own.
    memory : str or None
        Most memory that the run may take, as :func:`fastadmm.runs.memory.parse_bytes` reads it.
    history : int or None
        As in :class:`fastadmm.solver.SolverOptions`; None takes what the scheme likes and memory allows.
    """

    data: str
    test: str | None = None
    loss: str = "auto"
    lambda_: float = 1e-4
    regularizer: str = "l2"
    l1_ratio: float | None = None
    constraint: str = "all"
    intercept: bool = True
    scheme: str = "auto"
    penalty: float | None = None
    acceleration: str = "auto"
    x_update: str = "auto"
    gap: float = 1e-6
    stationarity: float = 1e-5
    rounds: int = 10000
    time: float | None = None
    threads: int | None = None
    checkpoint_rounds: int | None = None
    checkpoint_seconds: float = 30.0
    privacy: Privacy = field(default_factory=Privacy)
    ledger: str | None = None
    memory: str | None = None
    history: int | None = None

    def to_toml(self) -> dict[str, Any]:
        """Plain dictionary with the documented keys; those unset or without a meaning are left out."""
        without = "stationarity" if is_convex(self) else "gap"
        skipped = (without, "privacy")
        values = {_public(k): v for k, v in asdict(self).items() if v is not None and k not in skipped}
        return values if self.privacy.mode == "none" else {**values, "privacy": self.privacy.to_dict()}


def is_convex(config: RunConfig) -> bool:
    """Whether loss and regulariser of a configuration are convex, so that there is a gap to certify."""
    from fastadmm.losses import parse_loss
    from fastadmm.regularizers import get_regularizer

    convex = config.loss == "auto" or parse_loss(config.loss).convex
    return convex and get_regularizer(config.regularizer).convex


def _public(name: str) -> str:
    return name.rstrip("_")


_KINDS: dict[str, tuple[type, ...]] = {
    "data": (str,),
    "test": (str,),
    "loss": (str,),
    "lambda": (int, float),
    "regularizer": (str,),
    "l1_ratio": (int, float),
    "constraint": (str,),
    "intercept": (bool,),
    "scheme": (str,),
    "penalty": (int, float),
    "acceleration": (str,),
    "x_update": (str,),
    "gap": (int, float),
    "stationarity": (int, float),
    "rounds": (int,),
    "time": (int, float),
    "threads": (int,),
    "checkpoint_rounds": (int,),
    "checkpoint_seconds": (int, float),
    "privacy": (dict,),
    "ledger": (str,),
    "memory": (str,),
    "history": (int,),
}

#: Every configuration key, in the order of the documentation.
KEYS: tuple[str, ...] = tuple(_public(f.name) for f in fields(RunConfig))

_LARGEST = 10**9
#: Beyond it squares of lambda N overflow.
_LARGEST_FACTOR = 1e100

_POSITIVE = (
    "lambda",
    "l1_ratio",
    "penalty",
    "rounds",
    "time",
    "threads",
    "checkpoint_rounds",
    "checkpoint_seconds",
)


def make_config(
    values: Mapping[str, Any], place: str = "configuration", options: Mapping[str, Any] | None = None
) -> RunConfig:
    """Check keys and types, and fill in the defaults.

    Parameters
    ----------
    values : mapping
        Keys of :data:`KEYS`; None means not set.
    place : str
        What error messages call the source.
    options : mapping, optional
        Values from the command line, which win.

    Returns
    -------
    RunConfig

    Raises
    ------
    ConfigError
        Unknown key (with the nearest known one), wrong type, value out of range, or no ``data``.
    """
    checked = _check_values(values, place)
    table = dict(checked.pop("privacy", {}))
    if options:
        checked |= _check_values(options, "command line")
        table |= checked.pop("privacy", {})
    checked["privacy"] = Privacy.from_dict(table, f"{place}: privacy")
    if "data" not in checked:
        raise ConfigError(f"{place}: key 'data' is missing: name the partition directory")
    config = RunConfig(**checked)
    _check_choices(config, place)
    _check_target(config, checked, "command line" if options else place)
    return config


def _check_target(config: RunConfig, given: Mapping[str, Any], place: str) -> None:
    """Refuse a stopping rule that the problem does not have."""
    what = f"loss {config.loss} with regularizer {config.regularizer}"
    if is_convex(config):
        if "stationarity" in given:
            raise ConfigError(
                f"{place}: key 'stationarity': {what} is convex, so a duality gap certifies it; use gap"
            )
    elif "gap" in given:
        raise ConfigError(
            f"{place}: key 'gap': {what} is not convex, so no duality gap certifies it; use stationarity"
        )


def _check_values(values: Mapping[str, Any], place: str) -> dict[str, Any]:
    # One source by itself, so that a message names the source of the mistake.
    checked: dict[str, Any] = {}
    for key, value in values.items():
        if key not in _KINDS:
            near = difflib.get_close_matches(key, _KINDS, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known keys: {', '.join(_KINDS)}"
            raise ConfigError(f"{place}: unknown key {key!r}; {hint}")
        if value is None:
            continue
        kinds = _KINDS[key]
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            wanted = {str: "text", dict: "a table", bool: "true or false", int: "a whole number"}.get(
                kinds[-1], "a number"
            )
            raise ConfigError(f"{place}: key {key!r}: {value!r} is not {wanted}")
        # TOML's whole numbers have no limit; HDF5, C and floating point do.
        if isinstance(value, int) and abs(value) > _LARGEST:
            raise ConfigError(f"{place}: key {key!r}: the number is too large")
        if float in kinds and isinstance(value, (int, float)):
            value = float(value)
        if key == "history" and value < 0:
            raise ConfigError(f"{place}: key {key!r}: {value!r} must not be negative")
        if key in _POSITIVE and not 0 < value < math.inf:
            raise ConfigError(f"{place}: key {key!r}: {value!r} must be positive and finite")
        if key in ("lambda", "penalty") and value > _LARGEST_FACTOR:
            raise ConfigError(f"{place}: key {key!r}: {value!r} is above {_LARGEST_FACTOR:g}")
        checked["lambda_" if key == "lambda" else key] = value
    # A ratio by itself waits for the source that says what it is of.
    alone = {"regularizer": "elastic_net"} if "l1_ratio" in checked else {}
    others = {key: value for key, value in checked.items() if key != "privacy"}
    _check_choices(RunConfig(**{"data": "", **alone, **others}), place)
    return checked


def _check_choices(config: RunConfig, place: str) -> None:
    from fastadmm.constraints import get_constraint
    from fastadmm.losses import LOSSES, parse_loss
    from fastadmm.penalty import check_compatible, is_ridge
    from fastadmm.runs.memory import parse_bytes

    if config.loss != "auto" and config.loss.partition(":")[0] not in LOSSES:
        raise ConfigError(
            f"{place}: key 'loss': unknown loss {config.loss!r}; choose auto, {', '.join(LOSSES)}"
        )
    try:
        if config.memory is not None:
            parse_bytes(config.memory)
        options = solver_options(config)
        penalty = penalty_arguments(config)
        regularizer, constraint = penalty["regularizer"], get_constraint(penalty["constraint"])
        loss = None if config.loss == "auto" else parse_loss(config.loss)
        check_compatible(regularizer, constraint, loss)
        convex = is_convex(config)
        suited = regularizer.separable or loss is None or loss.smooth
        separable = convex and suited and not (loss is not None and loss.vector)
        options.resolved_scheme(
            loss is None or loss.smooth, is_ridge(regularizer, constraint), convex, separable
        )
    except ConfigError as error:
        key, colon, reason = str(error).partition(":")
        raise ConfigError(f"{place}: key {key!r}{colon}{reason}") from None


def penalty_arguments(config: RunConfig) -> dict[str, Any]:
    """Regulariser and constraint of a configuration, for :func:`fastadmm.problem.make_problem`."""
    from fastadmm.regularizers import get_regularizer

    parameters = {} if config.l1_ratio is None else {"l1_ratio": config.l1_ratio}
    return {
        "regularizer": get_regularizer(config.regularizer, parameters),
        "constraint": config.constraint,
    }


def solver_options(config: RunConfig) -> Any:
    """Solver's part of a configuration, as :class:`fastadmm.solver.SolverOptions`."""
    from fastadmm.solver import SolverOptions
    from fastadmm.xupdate.choose import X_UPDATES

    if config.x_update != "auto" and config.x_update not in X_UPDATES:
        raise ConfigError(
            f"x_update: unknown choice {config.x_update!r}; choose auto, {', '.join(X_UPDATES)}"
        )
    return SolverOptions(
        scheme=config.scheme,
        gap=config.gap,
        stationarity=config.stationarity,
        max_rounds=config.rounds,
        max_seconds=config.time,
        penalty=config.penalty,
        acceleration=config.acceleration,
        x_update=config.x_update,
        n_threads=config.threads,
        history=config.history,
    )


def read_config(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a TOML configuration as a flat dictionary; :func:`make_config` checks it.

    Relative ``data`` and ``test`` paths count from the file's directory.

    Parameters
    ----------
    path : path
        The TOML file.

    Returns
    -------
    dict

    Raises
    ------
    StorageError
        If the file cannot be read.
    ConfigError
        If it is not TOML.
    """
    with storage_errors(path, "read"):
        raw = Path(path).read_bytes()
    try:
        values = tomllib.loads(raw.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{shown(path)}: not TOML: {error}") from None
    for key in ("data", "test", "ledger"):
        if isinstance(values.get(key), str):
            values[key] = str(Path(path).parent / values[key])
    return values
