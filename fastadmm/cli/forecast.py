"""``fastadmm forecast``: what joining is worth, before anybody trains."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastadmm.cli import options as opt
from fastadmm.cli.app import app
from fastadmm.cli.terminal import grid, tell
from fastadmm.errors import ConfigError
from fastadmm.settings.setting import Setting, declare

if TYPE_CHECKING:
    from rich.table import Table

#: Settings of a training that do not decide what it may reach.
_OTHERS = ("data", "smoothness", "learner", "ledger", "budget", "threads")


def _deciding(setting: Setting) -> Setting | None:
    if setting.key in _OTHERS:
        return None
    return replace(setting, help="") if setting.key == "step" else setting


#: Largest T to try when looking for the best.
_MOST_ROUNDS = 1000


@dataclass(frozen=True)
class _Assumed:
    """What is assumed beside a curvature."""

    parameters: int = declare("data", "with --curvature: number of parameters", sign="positive", default=10)
    distance: float = declare("data", "with --curvature: norm of the best", sign="positive", default=1.0)


@opt.with_options(app.command(), "owners", _deciding)
def forecast(
    data: Path | None = opt.argument(
        "Directory of owners, for names and sizes; or use --owners.", default=None
    ),
    owners: str | None = opt.option("Owners, such as a:900:1,b:500:1", metavar="NAME:N:EPS,..."),
    pilot: Path | None = opt.option("Directory of owners with public rows of the same kind."),
    curvature: str | None = opt.option(
        "Instead of --pilot: assumed smallest and largest curvature.", metavar="L,BETA"
    ),
    *,
    assumed: _Assumed,
    options: dict[str, Any],
    as_json: bool = opt.JSON,
) -> None:
    """Forecast a model's quality from owners' sizes and budgets: who should join, how long to train."""
    from fastadmm.owners.forecast import make_forecast

    if (wrong := opt.given_options(assumed)) and curvature is None:
        raise ConfigError(f"{wrong[0]}: goes with --curvature; remove it")
    how: dict[str, Any] = asdict(assumed)
    found = make_forecast(options, data=data, owners=owners, pilot=pilot, curvature=curvature, **how)
    document = found.to_json(_MOST_ROUNDS)
    tell(as_json, document, lambda: _parts(document), allow_nan=False)


def _number(value: float | None) -> str:
    return "–" if value is None else str(value) if isinstance(value, int) else f"{value:.3g}"


def _parts(document: dict[str, Any]) -> Iterator[Table | str]:
    gap, best = document["gap"], document["best_rounds"]
    rows = [("as asked", gap), ("best number of rounds", best)]
    coalition = document["best_coalition"]
    rows.append((f"best coalition: {', '.join(coalition['owners'])}", coalition["gap"]))
    parts = ("optimisation", "noise", "statistical", "total")
    title = f"expected gap to the best model; pilot: {document['pilot']}"
    cells = ([name, item["rounds"], *(_number(item[part]) for part in parts)] for name, item in rows)
    yield grid(title, ("", "rounds", *parts), cells)
    keys = ("n_samples", "epsilon", "marginal_value")
    owners = [{**owner, "epsilon": owner["epsilon"] or math.inf} for owner in document["owners"]]
    header = ("owner", "records", "epsilon", "value of joining")
    yield grid("owners", header, ([o["name"], *(_number(o[key]) for key in keys)] for o in owners))
    if document["leave_out"]:
        yield f"Leave out: {', '.join(document['leave_out'])}."
    yield f"Proved bound on optimisation and noise: {_number(document['bound'])}."
    yield from (f"warning: {warning}" for warning in document["warnings"])
