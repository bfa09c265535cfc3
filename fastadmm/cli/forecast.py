"""``fastadmm forecast``: what joining is worth, before anybody trains."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from fastadmm.cli.app import app


@app.command()
def forecast(
    data: Annotated[
        Path | None,
        typer.Argument(readable=False, help="Directory of owners, for names and sizes; or use --owners."),
    ] = None,
    owners: Annotated[
        str | None, typer.Option(metavar="NAME:N:EPS,...", help="Owners, such as north:20000:1,south:500:0.1")
    ] = None,
    epsilon: Annotated[
        str | None, typer.Option(help="Budgets of the owners in the directory: 1,1,0.5 or one for all.")
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
    parameters: Annotated[int, typer.Option(help="With --curvature: number of parameters.")] = 10,
    distance: Annotated[float, typer.Option(help="With --curvature: norm of the best parameters.")] = 1.0,
    mechanism: Annotated[str, typer.Option(help="laplace or gaussian.")] = "laplace",
    delta: Annotated[float | None, typer.Option(help="Delta of each owner, for gaussian answers.")] = None,
    bound: Annotated[str | None, typer.Option(help="clip:XI, features:R or assumed:XI.")] = None,
    target_bound: Annotated[float | None, typer.Option(help="Bound on the absolute target.")] = None,
    theta_max: Annotated[float, typer.Option(help="Bound on the absolute parameters.")] = 10.0,
    rounds: Annotated[int, typer.Option(help="T, the number of queries.")] = 40,
    loss: Annotated[str, typer.Option(help="auto, squared or logistic; hinge with --curvature.")] = "auto",
    lambda_: Annotated[float, typer.Option("--lambda", help="Regularisation per mean loss.")] = 0.0,
    intercept: Annotated[bool, typer.Option("--intercept/--no-intercept", help="Fit an intercept.")] = True,
    method: Annotated[str, typer.Option(help="Same as in 'fastadmm owners train'.")] = "auto",
    step: Annotated[float | None, typer.Option(help="Step size: eta, rho or c1 of the method.")] = None,
    weights: Annotated[
        str, typer.Option(help="Weights of owners: by size, or by budget (inverse noise).")
    ] = "size",
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
    from fastadmm.owners.forecast_setup import make_forecast

    settings: dict[str, Any] = {
        "mechanism": mechanism,
        "delta": delta,
        "bound": bound,
        "target_bound": target_bound,
        "theta_max": theta_max,
        "rounds": rounds,
        "loss": loss,
        "lambda": lambda_,
        "intercept": intercept,
        "method": method,
        "step": step,
        "weights": weights,
    }
    found = make_forecast(
        settings,
        data=data,
        owners=owners,
        epsilon=epsilon,
        pilot=pilot,
        private=private_pilot,
        curvature=curvature,
        parameters=parameters,
        distance=distance,
        ledger=ledger,
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
    from rich.console import Console
    from rich.table import Table

    console = Console()
    if not console.is_terminal:
        console = Console(width=150)
    gap, best = document["gap"], document["best_rounds"]
    table = Table(title=f"expected gap to the best model; pilot: {document['pilot']}")
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
    console.print(table)
    members = Table(title="owners")
    for name in (
        "owner", "records", "epsilon", "value of joining", "joins from epsilon", "joins from records",
        "trains alone", "best with help", "helpers",
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
    console.print(members)
    if document["leave_out"]:
        console.print(f"Leave out: {', '.join(document['leave_out'])}.", markup=False)
    bound = document["bound"]
    console.print(
        f"Proved bound on optimisation and noise: {_number(bound)}. The paper's law (1/n^2) sum 1/eps^2 = "
        f"{_number(document['paper']['psi'])}; its Theorem 2 {_number(document['paper']['theorem2'])}, "
        f"its Theorem 3 is proportional to {_number(document['paper']['theorem3'])}.",
        markup=False,
    )
    for warning in document["warnings"]:
        console.print(f"warning: {warning}", markup=False)
