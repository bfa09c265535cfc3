"""``fastadmm forecast``: what joining is worth, before anybody trains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastadmm.cli.app import app
from fastadmm.cli.options import JSON, argument, option, with_options
from fastadmm.cli.tables import grid, show
from fastadmm.cli.terminal import print_json, say
from fastadmm.errors import ConfigError

#: Settings of a training that decide what it may reach.
_KEYS = ("epsilon", "delta", "mechanism", "bound", "target_bound", "theta_max", "rounds", "loss", "lambda",
         "intercept", "method", "step", "weights")  # fmt: skip


def _settings() -> Any:
    from fastadmm.settings.owners import OwnerSettings
    from fastadmm.settings.setting import settings_of

    declared = settings_of(OwnerSettings)
    return [declared[key] for key in _KEYS], ()


@app.command()
@with_options(_settings)
def forecast(
    data: Path | None = argument("Directory of owners, for names and sizes; or use --owners.", default=None),
    owners: str | None = option("Owners, such as a:900:1,b:500:1", metavar="NAME:N:EPS,..."),
    pilot: Path | None = option("Directory of owners with public rows of the same kind."),
    curvature: str | None = option(
        "Instead of --pilot: assumed smallest and largest curvature.", metavar="L,BETA"
    ),
    parameters: int | None = option("With --curvature: number of parameters. (default: 10)"),
    distance: float | None = option("With --curvature: norm of the best parameters. (default: 1)"),
    *,
    options: dict[str, Any],
    max_rounds: int = option("Largest T to try when looking for the best.", default=1000),
    as_json: bool = JSON,
) -> None:
    """Forecast a model's quality from owners' sizes and budgets: who should join, how long to train."""
    from fastadmm.owners.forecast_setup import make_forecast

    given = {"parameters": parameters, "distance": distance}
    assumed: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if assumed and curvature is None:
        raise ConfigError(f"--{next(iter(assumed))}: goes with --curvature; remove it")
    found = make_forecast(options, data=data, owners=owners, pilot=pilot, curvature=curvature, **assumed)
    document = found.to_json(max_rounds)
    if as_json:
        print_json(document, allow_nan=False)
        return
    _show(document)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _show(document: dict[str, Any]) -> None:
    gap, best = document["gap"], document["best_rounds"]
    rows = [("as asked", gap), ("best number of rounds", best)]
    coalition = document["best_coalition"]
    rows.append((f"best coalition: {', '.join(coalition['owners'])}", coalition["gap"]))
    parts = ("optimisation", "noise", "statistical", "total")
    title = f"expected gap to the best model; pilot: {document['pilot']}"
    cells = ([name, item["rounds"], *(_number(item[part]) for part in parts)] for name, item in rows)
    show(grid(title, ("", "rounds", *parts), cells))
    owners = (
        (
            owner["name"],
            owner["n_samples"],
            "inf" if owner["epsilon"] is None else _number(owner["epsilon"]),
            _number(owner["marginal_value"]),
        )
        for owner in document["owners"]
    )
    header = ("owner", "records", "epsilon", "value of joining")
    show(grid("owners", header, owners))
    if document["leave_out"]:
        say(f"Leave out: {', '.join(document['leave_out'])}.")
    say(f"Proved bound on optimisation and noise: {_number(document['bound'])}.")
    for warning in document["warnings"]:
        say(f"warning: {warning}")
