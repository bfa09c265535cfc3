"""The forecast as a picture: terms of every coalition, and the gap against the number of rounds."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastadmm.figures.figure import MUTED, SERIES_COLOURS, TEXT, write_figure
from fastadmm.owners.forecast import Forecast

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_COLOURS = dict(zip(("optimisation", "noise", "statistical"), SERIES_COLOURS))


def draw_forecast(forecast: Forecast, document: dict[str, Any], path: Path) -> None:
    """Draw a forecast."""

    def draw(figure: Any) -> None:
        left, right = figure.subplots(1, 2)
        _coalitions(left, forecast, document)
        _rounds(right, forecast, document)

    write_figure(path, draw, width=9.6, height=3.8)


def _coalitions(ax: Axes, forecast: Forecast, document: dict[str, Any]) -> None:
    members = forecast.members
    bars = [("all", forecast.gap())]
    if len(members) > 1:
        bars += [(f"without {m.name}", forecast.gap(forecast.without(m.name))) for m in members]
        best = document["best_coalition"]["owners"]
        bars.append(("best: " + ", ".join(best), forecast.gap([m for m in members if m.name in best])))
    for shift, (term, colour) in enumerate(_COLOURS.items()):
        places = [k + (shift - 1) * 0.26 for k in range(len(bars))]
        values = [max(getattr(gap, term), 1e-300) for _, gap in bars]
        ax.barh(places, values, height=0.26, color=colour, label=term)
    ax.set_yticks(range(len(bars)), labels=[name for name, _ in bars])
    ax.invert_yaxis()
    values = [getattr(gap, term) for _, gap in bars for term in _COLOURS if getattr(gap, term) > 0]
    ax.set_xscale("log")
    ax.set_xlim(max(min(values) / 3, max(values) * 1e-9), max(values) * 3)
    ax.set_xlabel("expected gap")
    ax.legend()


def _rounds(ax: Axes, forecast: Forecast, document: dict[str, Any]) -> None:
    grid = sorted({max(2, round(1.15**k)) for k in range(50)})
    gaps = [forecast.gap(rounds=rounds) for rounds in grid]
    totals = [gap.total for gap in gaps]
    for term, colour in _COLOURS.items():
        ax.plot(grid, [max(getattr(gap, term), 1e-300) for gap in gaps], color=colour, label=term)
    ax.plot(grid, totals, color=TEXT, label="total")
    ax.axvline(document["best_rounds"]["rounds"], color=MUTED, linestyle="--", linewidth=0.8)
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_ylim(min(totals) * 1e-2, max(totals) * 3)
    ax.set_xlabel("rounds T (dashed: best)")
    ax.legend()
