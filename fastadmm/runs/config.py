"""Run configuration: keys checked together, and what they mean to problem and solver."""

from __future__ import annotations

import difflib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fastadmm.errors import ConfigError
from fastadmm.files.atomic import shown
from fastadmm.files.seal import SEAL, check_seal
from fastadmm.other_names import choose_instead
from fastadmm.problem.constraints import Constraint, get_constraint
from fastadmm.problem.losses import LOSSES, parse_loss
from fastadmm.problem.party_lambda import PartyLambda, party_lambda, scales_with_lambda
from fastadmm.problem.penalty import check_compatible, penalty_traits
from fastadmm.problem.regularizers import get_regularizer
from fastadmm.problem.traits import Traits
from fastadmm.schemes.registry import choose_scheme
from fastadmm.settings.checks import check_values, read_values
from fastadmm.settings.keys import PATHS, SETTINGS
from fastadmm.settings.privacy import Privacy, without_other_modes
from fastadmm.settings.run import RunConfig, is_convex
from fastadmm.settings.setting import Kind
from fastadmm.solver.options import SolverOptions

#: Tables that have an entry for a party by its name.
_OF_PARTIES = ("party_lambda", "party_constraint")


def make_config(
    values: Mapping[str, Any], place: str = "configuration", options: Mapping[str, Any] | None = None
) -> RunConfig:
    """Check keys and types, and fill in the defaults."""
    checked, chosen = (
        check_values(RunConfig, *source) for source in ((values, place), (options or {}, "command line"))
    )
    table, by_hand = dict(checked.pop("privacy", {})), chosen.get("privacy", {})
    for own in _OF_PARTIES:  # name by name, as every other option wins over its own key
        if own in chosen:
            chosen[own] = checked.get(own, {}) | chosen[own]
    checked |= chosen
    table |= checked.pop("privacy", {})
    try:
        checked["privacy"] = Privacy.from_dict(table)
    except ConfigError as error:
        key = str(error).removeprefix("privacy: ").partition(":")[0]
        raise ConfigError(f"{'command line' if key in by_hand else place}: {error}") from None
    if "data" not in checked:
        raise ConfigError(f"{place}: key 'data' is missing: name the partition directory")
    config = RunConfig(**checked)
    try:
        _check_choices(config)
        _check_together(config, checked)
    except _WrongKey as error:
        source = "command line" if SETTINGS[error.key].name in chosen else place
        raise ConfigError(f"{source}: {error}") from None
    return config


class _WrongKey(ConfigError):
    """What is wrong with the value of a key; who knows where the value came from adds the place."""

    def __init__(self, key: str, reason: str) -> None:
        super().__init__(f"key {key!r}: {reason}")
        self.key = key


def refuse(kind: Kind, given: Mapping[str, Any]) -> None:
    """Refuse settings that a kind of run does not have."""
    for key, setting in SETTINGS.items():
        if kind in setting.not_with and given.get(setting.name) not in (None, False, "auto", "none"):
            raise _WrongKey(key, f"does not go with a {kind}; leave it out")


def without(kind: Kind, config: RunConfig) -> RunConfig:
    """A configuration whose settings that a kind of run does not have are put aside."""
    return replace(config, **{s.name: s.default for s in SETTINGS.values() if kind in s.not_with})


def _check_together(config: RunConfig, given: Mapping[str, Any]) -> None:
    """Refuse keys that do not go together, and a stopping rule that the problem does not have."""
    what = f"loss {config.loss} with regularizer {config.regularizer}"
    if is_convex(config) and "stationarity" in given:
        raise _WrongKey("stationarity", f"{what} is convex, so a duality gap certifies it; use gap")
    if not is_convex(config) and "gap" in given:
        raise _WrongKey("gap", f"{what} is not convex, so no duality gap certifies it; use stationarity")
    if config.privacy.mode != "none":
        refuse("private run", given)
    if config.path:
        refuse("path", given)
        if config.path_values is not None and {"path_length", "path_ratio"} & given.keys():
            raise _WrongKey("path_values", "says the grid already; leave path_length and path_ratio")
        if not is_convex(config):
            raise _WrongKey("path", "needs a convex problem, whose fits a gap certifies")
    for key, setting in SETTINGS.items():
        group = setting.group
        if group is None or key == group.head or setting.name not in given:
            continue
        if getattr(config, group.head) in (None, False):
            raise _WrongKey(key, group.without)
    if config.party_lambda is not None:
        regularizer = penalty_arguments(config)["regularizer"]
        for constraint in (config.constraint, *(config.party_constraint or {}).values()):
            if not scales_with_lambda(regularizer, get_constraint(constraint)):
                goes = "goes with regularizer l2, l1 or group_lasso and no constraint but nonnegative"
                there = f"not with regularizer {config.regularizer} and constraint {constraint}"
                raise _WrongKey("party_lambda", f"{goes}, {there}")


def _check_choices(config: RunConfig) -> None:

    if config.loss != "auto" and config.loss.partition(":")[0] not in LOSSES:
        instead = choose_instead(config.loss, ("auto", *LOSSES))
        raise _WrongKey("loss", f"unknown loss {config.loss!r}; {instead}")
    try:
        options, penalty = solver_options(config), penalty_arguments(config)
        sets = [get_constraint(penalty["constraint"])]
        loss = None if config.loss == "auto" else parse_loss(config.loss)
        check_compatible(penalty["regularizer"], sets[0], loss)
        for name, text in (config.party_constraint or {}).items():
            try:
                sets.append(get_constraint(text))
            except ConfigError as error:
                reason = str(error).partition(": ")[2]
                raise ConfigError(f"party_constraint: of {name!r}: {reason}") from None
        for own in sets[1:]:
            check_compatible(penalty["regularizer"], own, loss)
        choose_scheme(options, traits_of(config, sets, vector=loss is not None and loss.vector))
    except ConfigError as error:
        key, _, reason = str(error).partition(": ")
        raise _WrongKey(key, reason) from None


def traits_of(config: RunConfig, sets: Sequence[Constraint], **known: Any) -> Traits:
    """What decides how a problem is solved: what a configuration says of it, and what else is known."""

    regularizer = penalty_arguments(config)["regularizer"]
    return Traits(
        smooth=config.loss == "auto" or parse_loss(config.loss).smooth,
        convex=is_convex(config),
        **penalty_traits([regularizer] * len(sets), sets),
        **known,
    )


def own_lambdas(config: RunConfig, names: Sequence[str]) -> PartyLambda | None:
    """The parties' own lambdas; None where they have one for all."""

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
    """The constraint of all parties, or of each where some have their own."""
    given = config.party_constraint
    if given is None:
        return config.constraint
    _check_names("party_constraint", given, names, config.data)
    return [given.get(name, config.constraint) for name in names]


def penalty_arguments(config: RunConfig, names: Sequence[str] | None = None) -> dict[str, Any]:
    """Regulariser and constraint of a configuration, for :func:`fastadmm.problem.problem.make_problem`."""

    parameters: dict[str, Any] = {} if config.l1_ratio is None else {"l1_ratio": config.l1_ratio}
    if config.groups is not None:
        parameters["groups"] = [party or None for party in config.groups]
    return {
        "regularizer": get_regularizer(config.regularizer, parameters),
        "constraint": config.constraint if names is None else party_constraints(config, names),
    }


def solver_options(config: RunConfig) -> SolverOptions:
    """Solver's part of a configuration."""

    return SolverOptions(**{s.solver: getattr(config, s.name) for s in SETTINGS.values() if s.solver})


def check_settings(
    document: Mapping[str, Any],
    path: str | os.PathLike[str],
    paths: Sequence[str] = PATHS,
    remedy: str = "restore it, or start a new run; 'fastadmm resume' takes new limits as options",
) -> None:
    """Refuse settings that were changed after they were written; a run by files has no digest."""
    provenance = document.get("provenance")
    if isinstance(provenance, dict):
        content = {key: value for key, value in provenance.items() if key != SEAL}
        sealed = {k: v for k, v in {**document, "provenance": content}.items() if k not in paths}
        check_seal(sealed, provenance.get(SEAL), shown(path), remedy)


@dataclass(frozen=True)
class Recorded:
    """What a run has on record of its settings."""

    config: RunConfig
    provenance: Any  # what it was computed from; None where that is not recorded
    by_files: bool  # whether its parties are elsewhere


def recorded(run: Path, options: Mapping[str, Any] | None = None) -> Recorded:
    """Read ``run.toml``, which nobody has changed, with options that win over it."""
    path = run / "run.toml"
    values = read_config(path, sealed=True)
    provenance, by_files = values.pop("provenance", None), values.pop("rounds_by_files", None) is not None
    return Recorded(make_config(values, shown(path), options), provenance, by_files)


def read_config(path: str | os.PathLike[str], *, sealed: bool = False) -> dict[str, Any]:
    """Read a TOML configuration as a flat dictionary; its paths count from the file's directory."""
    values = read_values(RunConfig, path)
    provenance, privacy = values.get("provenance"), values.get("privacy")
    if isinstance(provenance, dict):
        if sealed:
            check_settings(values, path)
            provenance.pop(SEAL, None)
        # A run of a version that had workers of Dask goes on in one process.
        values.pop("retry", None)
        if str(values.get("cluster")).startswith("dask:"):
            values["cluster"] = "none"
        if isinstance(privacy, dict):
            values["privacy"] = without_other_modes(privacy)
    return values
