"""Run configuration: the same keys on the command line, in TOML and in ``run.toml``."""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastadmm.errors import ConfigError, FormatError
from fastadmm.files.atomic import shown
from fastadmm.files.reading import read_toml
from fastadmm.files.seal import check_seal
from fastadmm.privacy.settings import Privacy

if TYPE_CHECKING:
    from fastadmm.problem.constraints import Constraint
    from fastadmm.problem.party_lambda import PartyLambda

__all__ = ["KEYS", "PATHS", "SEAL", "RunConfig", "is_convex", "make_config", "read_config"]

#: Key of the table ``provenance`` of ``run.toml`` with the digest of :func:`sealed_part`.
SEAL = "settings"


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
    party_lambda : dict of str to float, or None
        Parties that have another one.
    regularizer : str
        A name of :data:`fastadmm.problem.regularizers.REGULARIZERS`.
    l1_ratio : float or None
        Share of l1 in the elastic net; None takes 0.5.
    groups : list or None
        Groups of ``group_lasso``: for each party a list of groups, each a list of column
        numbers from 0, or an empty list for one group. None makes every party a group.
    constraint : str
        As in :func:`fastadmm.problem.constraints.get_constraint`.
    party_constraint : dict of str to str, or None
        Parties that have another one.
    intercept : bool
        Fit an unpenalised intercept.
    scheme, penalty, acceleration, x_update, threads
        As in :class:`fastadmm.solver.solver.SolverOptions`.
    gap : float
        Relative duality gap to certify; not for non-convex problems, which have none.
    stationarity : float
        Relative stationarity at which a non-convex problem stops, as in
        :class:`fastadmm.solver.solver.SolverOptions`; not for convex ones.
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
        As in :class:`fastadmm.solver.solver.SolverOptions`; None takes what the scheme likes and
        memory allows.
    directions : str
        As in :class:`fastadmm.solver.solver.SolverOptions`.
    class_weight : str, dict of str to float, or None
        "balanced", or a factor for each class; None weighs all the same.
    warm_start : str or None
        Model or run directory to start at.
    validation : float, str or None
        Share of the rows, or partition, for early stopping; None for none.
    validation_metric : str
        A name of :data:`fastadmm.solver.early_stopping.METRICS`.
    patience : int
        Rounds without improvement after which early stopping stops.
    seed : int
        Chooses held-out rows, and folds.
    path : bool
        Train a regularisation path; the keys that follow are its own.
    path_values : list of float or None
        The values of lambda; None makes a grid.
    path_length : int
        Number of values of the grid.
    path_ratio : float or None
        Smallest over largest value of the grid; None takes the regulariser's.
    folds : int
        Folds of the cross-validation that chooses lambda; 0 for none.
    rule : str
        "best" or "1se".
    gap_share : float
        Gaps of the folds' fits, as a share of the differences that decide.
    """

    data: str
    test: str | None = None
    loss: str = "auto"
    lambda_: float = 1e-4
    party_lambda: dict[str, float] | None = None
    regularizer: str = "l2"
    l1_ratio: float | None = None
    groups: list[list[list[int]]] | None = None
    constraint: str = "all"
    party_constraint: dict[str, str] | None = None
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
    directions: str = "auto"
    class_weight: str | dict[str, float] | None = None
    warm_start: str | None = None
    validation: float | str | None = None
    validation_metric: str = "loss"
    patience: int = 5
    seed: int = 0
    path: bool = False
    path_values: list[float] | None = None
    path_length: int = 20
    path_ratio: float | None = None
    folds: int = 5
    rule: str = "best"
    gap_share: float = 0.01

    def to_toml(self) -> dict[str, Any]:
        """Plain dictionary with the documented keys; those unset or without a meaning are left out."""
        without = "stationarity" if is_convex(self) else "gap"
        skipped = {without, "privacy"}
        if self.validation is None:
            skipped |= {"validation_metric", "patience"}
        if not self.path:
            skipped |= set(PATH_KEYS)
        else:
            skipped.add("lambda")
            if self.path_values is not None:
                skipped |= {"path_length", "path_ratio"}
        if self.validation is None and not self.path:
            skipped.add("seed")
        values = {_public(k): v for k, v in asdict(self).items() if v is not None}
        values = {key: value for key, value in values.items() if key not in skipped}
        return values if self.privacy.mode == "none" else {**values, "privacy": self.privacy.to_dict()}


def is_convex(config: RunConfig) -> bool:
    """Whether loss and regulariser of a configuration are convex, so that there is a gap to certify."""
    from fastadmm.problem.losses import parse_loss
    from fastadmm.problem.regularizers import get_regularizer

    convex = config.loss == "auto" or parse_loss(config.loss).convex
    return convex and get_regularizer(config.regularizer).convex


def _public(name: str) -> str:
    return name.rstrip("_")


_KINDS: dict[str, tuple[type, ...]] = {
    "data": (str,),
    "test": (str,),
    "loss": (str,),
    "lambda": (int, float),
    "party_lambda": (dict,),
    "regularizer": (str,),
    "l1_ratio": (int, float),
    "groups": (list,),
    "constraint": (str,),
    "party_constraint": (dict,),
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
    "directions": (str,),
    "class_weight": (str, dict),
    "warm_start": (str,),
    "validation": (int, float, str),
    "validation_metric": (str,),
    "patience": (int,),
    "seed": (int,),
    "path": (bool,),
    "path_values": (list,),
    "path_length": (int,),
    "path_ratio": (int, float),
    "folds": (int,),
    "rule": (str,),
    "gap_share": (int, float),
}

#: Keys that only a path has.
PATH_KEYS = ("path", "path_values", "path_length", "path_ratio", "folds", "rule", "gap_share")

#: What messages call values of a type that several keys take.
_KIND_NAMES = {
    "party_lambda": "a table of numbers",
    "party_constraint": "a table of texts",
    "class_weight": "'balanced' or a table of numbers",
    "validation": "a share of the rows or a partition",
    "path_values": "a list of numbers",
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
    "patience",
    "path_length",
    "path_ratio",
    "gap_share",
)

#: Tables that have an entry for a party by its name.
_OF_PARTIES = ("party_lambda", "party_constraint")

_NOT_NEGATIVE = ("history", "seed", "folds")


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
        own = {key: checked.get(key, {}) for key in _OF_PARTIES}
        checked |= _check_values(options, "command line")
        for key in _OF_PARTIES:  # name by name, as every other option wins over its own key
            if key in checked:
                checked[key] = own[key] | checked[key]
        table |= checked.pop("privacy", {})
    checked["privacy"] = Privacy.from_dict(table, f"{place}: privacy")
    if "data" not in checked:
        raise ConfigError(f"{place}: key 'data' is missing: name the partition directory")
    config = RunConfig(**checked)
    _check_choices(config, place)
    _check_target(config, checked, "command line" if options else place)
    _check_extras(config, checked, place)
    return config


def _check_extras(config: RunConfig, given: Mapping[str, Any], place: str) -> None:
    """Refuse keys that do not go together."""
    if config.privacy.mode != "none":
        from fastadmm.privacy.public_inputs import NOT_PRIVATE

        for key, reason in NOT_PRIVATE.items():
            if given.get(key) not in (None, False, "auto"):
                raise ConfigError(f"{place}: key {key!r}: {reason}")
    if not config.path:
        alone = [key for key in PATH_KEYS if key != "path" and key in given]
        if alone:
            raise ConfigError(f"{place}: key {alone[0]!r}: belongs to a path; add path = true (--path)")
    elif config.validation is not None:
        raise ConfigError(f"{place}: key 'validation': a path chooses by its folds; leave one of the two out")
    elif "lambda_" in given:
        raise ConfigError(f"{place}: key 'lambda': a path has many; give path_values (--path-values)")
    elif config.path_values is not None and {"path_length", "path_ratio"} & given.keys():
        raise ConfigError(
            f"{place}: key 'path_values': says the grid already; leave path_length and path_ratio"
        )
    elif config.time is not None:
        raise ConfigError(f"{place}: key 'time': a path ends when its last fit is certified; leave it out")
    elif not is_convex(config):
        raise ConfigError(f"{place}: key 'path': needs a convex problem, whose fits a gap certifies")
    if config.party_lambda is not None:
        _check_own_lambdas(config, place)
    if config.validation is None:
        alone = [key for key in ("patience", "validation_metric") if key in given]
        if alone:
            raise ConfigError(f"{place}: key {alone[0]!r}: belongs to early stopping; add validation")


def _check_own_lambdas(config: RunConfig, place: str) -> None:
    """Refuse what does not go with a lambda for each party."""
    from fastadmm.problem.constraints import get_constraint
    from fastadmm.problem.party_lambda import scales_with_lambda

    if config.path:
        raise ConfigError(
            f"{place}: key 'party_lambda': a path has one lambda for all parties; leave one of the two out"
        )
    regularizer = penalty_arguments(config)["regularizer"]
    for constraint in (config.constraint, *(config.party_constraint or {}).values()):
        if not scales_with_lambda(regularizer, get_constraint(constraint)):
            raise ConfigError(
                f"{place}: key 'party_lambda': goes with regularizer l2, l1 or group_lasso and no constraint "
                f"but nonnegative, not with regularizer {config.regularizer} and constraint {constraint}"
            )


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
            wanted = {
                str: "text",
                dict: "a table",
                list: "a list",
                bool: "true or false",
                int: "a whole number",
            }.get(kinds[-1], "a number")
            raise ConfigError(f"{place}: key {key!r}: {value!r} is not {_KIND_NAMES.get(key, wanted)}")
        # TOML's whole numbers have no limit; HDF5, C and floating point do.
        if isinstance(value, int) and abs(value) > _LARGEST:
            raise ConfigError(f"{place}: key {key!r}: the number is too large")
        if float in kinds and isinstance(value, (int, float)):
            value = float(value)
        if key == "party_lambda" and isinstance(value, dict):
            value = {name: _real(own) for name, own in value.items()}
        if key in _NOT_NEGATIVE and value < 0:
            raise ConfigError(f"{place}: key {key!r}: {value!r} must not be negative")
        if key in _POSITIVE and not 0 < value < math.inf:
            raise ConfigError(f"{place}: key {key!r}: {value!r} must be positive and finite")
        if key in ("lambda", "penalty") and value > _LARGEST_FACTOR:
            raise ConfigError(f"{place}: key {key!r}: {value!r} is above {_LARGEST_FACTOR:g}")
        checked["lambda_" if key == "lambda" else key] = value
    # A ratio by itself waits for the source that says what it is of.
    alone = {"regularizer": "elastic_net"} if "l1_ratio" in checked else {}
    if "groups" in checked:
        _check_groups(checked["groups"], place)
        alone["regularizer"] = "group_lasso"
    others = {key: value for key, value in checked.items() if key != "privacy"}
    _check_choices(RunConfig(**{"data": "", **alone, **others}), place)
    return checked


def _real(value: Any) -> Any:
    """A number as float, where TOML has a whole one."""
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _LARGEST:
        return float(value)
    return value


def _check_groups(groups: list[Any], place: str) -> None:
    """Refuse what is not a list of lists of lists of column numbers; which ones, the data say."""

    def lists(values: Any) -> bool:
        return isinstance(values, list) and all(isinstance(value, list) for value in values)

    for k, party in enumerate(groups):
        numbers = [j for group in party for j in group] if lists(party) else [None]
        if not all(isinstance(j, int) and not isinstance(j, bool) and j >= 0 for j in numbers):
            raise ConfigError(
                f"{place}: key 'groups': entry {k} is not a list of groups, "
                "each a list of column numbers from 0"
            )


def _check_choices(config: RunConfig, place: str) -> None:
    from fastadmm.problem.constraints import get_constraint
    from fastadmm.problem.losses import LOSSES, parse_loss
    from fastadmm.problem.penalty import check_compatible, is_ridge
    from fastadmm.runs.memory import parse_bytes

    if config.loss != "auto" and config.loss.partition(":")[0] not in LOSSES:
        raise ConfigError(
            f"{place}: key 'loss': unknown loss {config.loss!r}; choose auto, {', '.join(LOSSES)}"
        )
    try:
        if config.memory is not None:
            parse_bytes(config.memory)
        _check_learning(config)
        options = solver_options(config)
        penalty = penalty_arguments(config)
        regularizer, constraint = penalty["regularizer"], get_constraint(penalty["constraint"])
        loss = None if config.loss == "auto" else parse_loss(config.loss)
        check_compatible(regularizer, constraint, loss)
        ridge = is_ridge(regularizer, constraint)
        for own in _own_constraints(config):
            check_compatible(regularizer, own, loss)
            ridge = ridge and is_ridge(regularizer, own)
        convex = is_convex(config)
        suited = convex and not (loss is not None and loss.vector)
        options.resolved_scheme(loss is None or loss.smooth, ridge, convex, suited)
    except ConfigError as error:
        key, colon, reason = str(error).partition(":")
        raise ConfigError(f"{place}: key {key!r}{colon}{reason}") from None


def _own_constraints(config: RunConfig) -> list[Constraint]:
    """Sets of the parties that have their own; raises ConfigError that begins with the key."""
    from fastadmm.problem.constraints import get_constraint

    if config.party_constraint == {}:
        raise ConfigError("party_constraint: the table is empty; name a party, or leave the key out")
    found = []
    for name, text in (config.party_constraint or {}).items():
        if not isinstance(text, str):
            raise ConfigError(f"party_constraint: {text!r} of {name!r} is not text, such as 'box:0,1'")
        try:
            found.append(get_constraint(text))
        except ConfigError as error:
            reason = str(error).partition(": ")[2]
            raise ConfigError(f"party_constraint: of {name!r}: {reason}") from None
    return found


def _check_learning(config: RunConfig) -> None:
    """Check class weights, early stopping and the path; raises ConfigError that begins with the key."""
    from fastadmm.problem.class_weights import BALANCED
    from fastadmm.solver.early_stopping import METRICS

    for name, value in (config.party_lambda or {}).items():
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= _LARGEST_FACTOR:
            raise ConfigError(
                f"party_lambda: {value!r} of {name!r} must be a positive number, at most {_LARGEST_FACTOR:g}"
            )
    if config.party_lambda == {}:
        raise ConfigError("party_lambda: the table is empty; name a party, or leave the key out")
    weights = config.class_weight
    if isinstance(weights, str) and weights != BALANCED:
        raise ConfigError(f"class_weight: {weights!r} is neither 'balanced' nor a table of numbers")
    if isinstance(weights, dict):
        for name, value in weights.items():
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
                raise ConfigError(
                    f"class_weight: {value!r} of class {name!r} must be a finite number, at least 0"
                )
    if isinstance(config.validation, float) and not 0 < config.validation < 1:
        raise ConfigError(f"validation: the share {config.validation!r} must be between 0 and 1")
    if config.validation_metric not in METRICS:
        raise ConfigError(
            f"validation_metric: unknown metric {config.validation_metric!r}; choose {', '.join(METRICS)}"
        )
    if config.path_values is not None:
        values = config.path_values
        number = [isinstance(v, (int, float)) and not isinstance(v, bool) for v in values]
        if not values or not all(number) or not all(0 < v < math.inf for v in values):
            raise ConfigError(f"path_values: {values!r} must be positive, finite numbers")
        if len(set(values)) < len(values):
            raise ConfigError(f"path_values: {values!r} has a value twice")
    if config.path_ratio is not None and not config.path_ratio < 1:
        raise ConfigError(f"path_ratio: {config.path_ratio!r} must be below 1")
    if config.folds == 1:
        raise ConfigError("folds: 1 fold leaves no rows to train on; give 0 for none, or 2 at least")
    if config.rule not in ("best", "1se"):
        raise ConfigError(f"rule: unknown rule {config.rule!r}; choose best, 1se")
    if not config.gap_share < 1:
        raise ConfigError(f"gap_share: {config.gap_share!r} must be below 1")


def own_lambdas(config: RunConfig, names: Sequence[str]) -> PartyLambda | None:
    """The parties' own lambdas; None where they have one for all.

    Parameters
    ----------
    config : RunConfig
    names : sequence of str
        The parties, in order.

    Returns
    -------
    PartyLambda or None

    Raises
    ------
    ConfigError
        If one is given for a party that does not exist.
    """
    from fastadmm.problem.party_lambda import party_lambda

    given = config.party_lambda
    if given is None:
        return None
    _check_names("party_lambda", given, names, config.data)
    values = [given.get(name, config.lambda_) for name in names]
    try:
        return party_lambda(values, penalty_arguments(config)["regularizer"], config.lambda_)
    except ConfigError as error:
        raise ConfigError(str(error).replace("party_lambda:", "key 'party_lambda':", 1)) from None


def _check_names(key: str, given: Mapping[str, Any], names: Sequence[str], data: str) -> None:
    """Refuse entries of parties that do not exist."""
    for name in given:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"the parties are {', '.join(names)}"
            raise ConfigError(f"key {key!r}: {shown(data)} has no party {name!r}; {hint}")


def party_constraints(config: RunConfig, names: Sequence[str]) -> str | list[str]:
    """The constraint of all parties, or of each where some have their own.

    Parameters
    ----------
    config : RunConfig
    names : sequence of str
        The parties, in order.

    Returns
    -------
    str or list of str

    Raises
    ------
    ConfigError
        If one is given for a party that does not exist.
    """
    given = config.party_constraint
    if given is None:
        return config.constraint
    _check_names("party_constraint", given, names, config.data)
    return [given.get(name, config.constraint) for name in names]


def penalty_arguments(config: RunConfig, names: Sequence[str] | None = None) -> dict[str, Any]:
    """Regulariser and constraint of a configuration, for :func:`fastadmm.problem.problem.make_problem`.

    Parameters
    ----------
    config : RunConfig
    names : sequence of str, optional
        The parties, in order; without them the constraint is that of parties without their own.

    Returns
    -------
    dict
    """
    from fastadmm.problem.regularizers import get_regularizer

    parameters: dict[str, Any] = {} if config.l1_ratio is None else {"l1_ratio": config.l1_ratio}
    if config.groups is not None:
        parameters["groups"] = [party or None for party in config.groups]
    return {
        "regularizer": get_regularizer(config.regularizer, parameters),
        "constraint": config.constraint if names is None else party_constraints(config, names),
    }


def solver_options(config: RunConfig) -> Any:
    """Solver's part of a configuration, as :class:`fastadmm.solver.solver.SolverOptions`."""
    from fastadmm.parties.xupdate.choose import X_UPDATES
    from fastadmm.solver.solver import SolverOptions

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
        directions=config.directions,
    )


#: Keys whose texts are paths.
PATHS = ("data", "test", "ledger", "warm_start", "validation")


def sealed_part(document: Mapping[str, Any]) -> dict[str, Any]:
    """What the digest of a ``run.toml`` covers: all but paths, whose content ``provenance`` tells.

    Parameters
    ----------
    document : mapping

    Returns
    -------
    dict
    """
    return {key: value for key, value in document.items() if key not in PATHS}


def read_config(path: str | os.PathLike[str], *, sealed: bool = False) -> dict[str, Any]:
    """Read a TOML configuration as a flat dictionary; :func:`make_config` checks it.

    Relative ``data`` and ``test`` paths count from the file's directory.

    Parameters
    ----------
    path : path
        The TOML file.
    sealed : bool
        Whether it is the record of a run, to be refused where it is not what the run wrote;
        a run of version 0.1 has no digest of it.

    Returns
    -------
    dict

    Raises
    ------
    StorageError
        If the file cannot be read.
    ConfigError
        If it is not TOML.
    FormatError
        If it is sealed and was changed.
    """
    try:
        values = read_toml(path)
    except FormatError as error:
        raise ConfigError(str(error)) from None
    provenance = values.get("provenance")
    if sealed and isinstance(provenance, dict):
        seal = provenance.pop(SEAL, None)
        remedy = "restore it, or start a new run; 'fastadmm resume' takes new limits as options"
        check_seal(sealed_part(values), seal, shown(path), remedy)
    for key in PATHS:
        if isinstance(values.get(key), str):
            values[key] = str(Path(path).parent / values[key])
    return values
