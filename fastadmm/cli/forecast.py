"""``fastadmm forecast``: what joining is worth, before anybody trains."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fastadmm.cli.app import app
from fastadmm.cli.options import with_options
from fastadmm.cli.tables import show
from fastadmm.cli.terminal import say

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
    data: Annotated[
        Path | None,
        typer.Argument(readable=False, help="Directory of owners, for names and sizes; or use --owners."),
    ] = None,
    owners: Annotated[
        str | None, typer.Option(metavar="NAME:N:EPS,...", help="Owners, such as a:900:1,b:500:1")
    ] = None,
    pilot: Annotated[
        Path | None,
        typer.Option(readable=False, help="Directory of owners with public rows of the same kind."),
    ] = None,
    private_pilot: Annotated[
        str | None,
        typer.Option(
            metavar="NAME:EPS", help="Instead of --pilot: this owner's moments, released with noise."
        ),
    ] = None,
    curvature: Annotated[
        str | None,
        typer.Option(metavar="L,BETA", help="Instead of --pilot: assumed smallest and largest curvature."),
    ] = None,
    parameters: Annotated[
        int | None, typer.Option(help="With --curvature: number of parameters. (default: 10)")
    ] = None,
    distance: Annotated[
        float | None, typer.Option(help="With --curvature: norm of the best parameters. (default: 1)")
    ] = None,
    *,
    options: dict[str, Any],
    max_rounds: Annotated[int, typer.Option(help="Largest T to try when looking for the best.")] = 1000,
    ledger: Annotated[
        Path | None, typer.Option(readable=False, help="Privacy ledger to which a private pilot is charged.")
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(readable=False, metavar="FILE", help="Draw the forecast (.svg, .png or .pdf)."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Forecast a model's quality from owners' sizes and budgets: who should join, how long to train."""
    from fastadmm.errors import ConfigError
    from fastadmm.owners.forecast_setup import make_forecast

    given = {"parameters": parameters, "distance": distance}
    assumed: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if assumed and curvature is None:
        raise ConfigError(f"--{next(iter(assumed))}: goes with --curvature; remove it")
    if ledger is not None and private_pilot is None:
        raise ConfigError("--ledger: only --private-pilot is charged; remove it")
    found = make_forecast(
        options,
        data=data,
        owners=owners,
        pilot=pilot,
        private=private_pilot,
        curvature=curvature,
        ledger=ledger,
        **assumed,
    )
    document = found.to_json(max_rounds)
    if plot is not None:
        from fastadmm.owners.forecast_plot import draw_forecast

        draw_forecast(found, document, plot)
    if as_json:
        import json

        print(json.dumps(document, indent=2, allow_nan=False))
        return
    _show(document)


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3g}"


def _show(document: dict[str, Any]) -> None:
    from rich.table import Table
    from rich.text import Text

    from fastadmm.files.escapes import printable

    gap, best = document["gap"], document["best_rounds"]
    table = Table(title=Text(printable(f"expected gap to the best model; pilot: {document['pilot']}")))
    for name in ("", "rounds", "optimisation", "noise", "statistical", "total"):
        table.add_column(name, justify="left" if not name else "right")
    rows = [("as asked", gap), ("best number of rounds", best)]
    rows += [(f"weights by {kind}", document["weighting"][kind]) for kind in ("size", "budget")]
    rows.append(
        (
            "best coalition: " + ", ".join(document["best_coalition"]["owners"]),
            document["best_coalition"]["gap"],
        )
    )
    for name, item in rows:
        cells = [_number(item[key]) for key in ("optimisation", "noise", "statistical", "total")]
        table.add_row(name, str(item["rounds"]), *cells)
    show(table)
    members = Table(title="owners")
    for name in (
        "owner", "records", "epsilon", "value of joining", "joins from epsilon", "joins from records",
        "trains alone", "best with help", "helpers"
    ):  # fmt: skip
        members.add_column(name, justify="left" if name in ("owner", "helpers") else "right")
    for owner in document["owners"]:
        learner = owner["as_learner"]
        members.add_row(
            owner["name"],
            str(owner["n_samples"]),
            _number(owner["epsilon"]) if owner["epsilon"] is not None else "inf",
            _number(owner["marginal_value"]),
            _number(owner["needed_epsilon"]),
            "–" if owner["needed_records"] is None else str(owner["needed_records"]),
            _number(learner["alone"]),
            _number(learner["best"]),
            ", ".join(learner["helpers"]) or "nobody",
        )
    show(members)
    if document["leave_out"]:
        say(f"Leave out: {', '.join(document['leave_out'])}.")
    bound = document["bound"]
    say(
        f"Proved bound on optimisation and noise: {_number(bound)}. The paper's law (1/n^2) sum 1/eps^2 = "
        f"{_number(document['paper']['psi'])}; its Theorem 2 {_number(document['paper']['theorem2'])}, "
        f"its Theorem 3 is proportional to {_number(document['paper']['theorem3'])}."
    )
    for warning in document["warnings"]:
        say(f"warning: {warning}")
