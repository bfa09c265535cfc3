"""A forecast from the settings of the command line."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastadmm.errors import ConfigError
from fastadmm.files.atomic import shown
from fastadmm.owners.bound import Bound, OwnerLoss, get_loss
from fastadmm.owners.forecast import Forecast, Member
from fastadmm.owners.pilot import Pilot, assumed_pilot, fit_pilot
from fastadmm.owners.setup import bound_of, default_step, refuse_others
from fastadmm.settings.owners import OwnerSettings, make_settings, parse_epsilons
from fastadmm.store.owner_file import Owners, open_owners, record_digests, shared_rows


def parse_members(text: str) -> tuple[Member, ...]:
    """Owners from ``name:records:epsilon``, separated by commas."""
    members: list[Member] = []
    for part in text.split(","):
        fields = part.strip().split(":")
        try:
            name, size, epsilon = fields[0], int(fields[1]), float(fields[2])
            if len(fields) != 3 or not name:
                raise ValueError
        except (ValueError, IndexError):
            raise ConfigError(
                f"owners: {part.strip()!r} is not name:records:epsilon, such as north:20000:1"
            ) from None
        if size < 1:
            raise ConfigError(f"owners: {name!r} has {size} rows; an owner needs at least one")
        if not epsilon > 0:
            raise ConfigError(
                f"owners: epsilon {epsilon:g} of {name!r} is not positive; inf means exact answers"
            )
        if name in [m.name for m in members]:
            raise ConfigError(f"owners: {name!r} occurs twice")
        members.append(Member(name, size, epsilon))
    return tuple(members)


def make_forecast(
    settings: Mapping[str, Any],
    *,
    data: Path | None = None,
    owners: str | None = None,
    pilot: Path | None = None,
    curvature: str | None = None,
    parameters: int = 10,
    distance: float = 1.0,
) -> Forecast:
    """Put a forecast together."""
    if (data is None) == (owners is None):
        raise ConfigError("forecast: give the owners' directory, or --owners name:records:epsilon,...")
    if (pilot is None) == (curvature is None):
        raise ConfigError(
            "forecast: where is the curvature from? pass --pilot DIR (public rows) or --curvature L,BETA "
            "(assumed)"
        )
    epsilon = settings.get("epsilon")
    opened: Owners | None = open_owners(data) if data is not None else None
    kappa = 1
    if opened is not None:
        budgets = parse_epsilons(str(epsilon or ""), opened.names)
        members = tuple(Member(o.name, o.n_samples, e) for o, e in zip(opened.owners, budgets, strict=True))
        kappa = opened.kappa
    else:
        if epsilon is not None:
            raise ConfigError("epsilon: --owners already says it; leave --epsilon out")
        members = parse_members(owners or "")
    chosen = make_settings({"data": str(data or ""), **settings})
    public = open_owners(pilot) if pilot is not None else None
    assumed = "regression" if chosen.loss in ("auto", "squared") else "classification"
    task = assumed if public is None else public.task
    loss = get_loss(chosen.loss, task, str(pilot or data))
    refuse_others(chosen, loss)
    n_features = public.owners[0].n_features if public is not None else max(1, parameters - chosen.intercept)
    bound = bound_of(chosen, loss, n_features)
    if opened is not None and public is not None:
        _, reason = shared_rows(_digests(public), _digests(opened))
        if reason:
            raise ConfigError(
                f"pilot: {shown(str(pilot))} holds rows of {shown(str(data))}: {reason}, and a pilot is read "
                "without noise; give public rows"
            )
        first, other = opened.owners[0].feature_names, public.owners[0].feature_names
        if first != other:
            raise ConfigError(f"pilot: {shown(str(pilot))} has other features than {shown(str(data))}")
    if public is not None:
        local = fit_pilot(public, loss, bound, chosen.lambda_, chosen.intercept)
    else:
        local = _assumed(str(curvature), parameters, distance)
    # The pilot knows the curvature better than the bound on the features does.
    method, step = _step(chosen, loss, bound, local)
    noise = chosen.mechanism, chosen.delta, bound.xi
    return Forecast(members, local, *noise, chosen.rounds, method, step, chosen.weights, kappa)


def _digests(owners: Owners) -> list[bytes]:
    """Of all records' features."""
    return [digest for owner in owners.owners for _, X in owner.iter_rows() for digest in record_digests(X)]


def _assumed(curvature: str, parameters: int, distance: float) -> Pilot:
    """The pilot of two curvatures, from ``L,BETA``."""
    try:
        low, high = (float(part) for part in curvature.split(","))
    except ValueError:
        raise ConfigError(f"curvature: {curvature!r} is not L,BETA, such as 0.1,1") from None
    return assumed_pilot(low, high, parameters, distance)


def _step(settings: OwnerSettings, loss: OwnerLoss, bound: Bound, pilot: Pilot) -> tuple[str, float]:
    plain = settings.method in ("auto", "constant", "adaptive") and loss.name != "hinge"
    known = settings.step is not None or settings.smoothness is not None or math.isfinite(bound.row_norm)
    if plain and not known:
        return ("constant" if settings.method == "auto" else settings.method), 1.0 / float(pilot.h.max())
    method, step, _ = default_step(settings, loss, bound)
    return method, step
