"""The forecast as a picture: terms of every coalition, and the gap against the number of rounds."""

from pathlib import Path
from typing import Any

from fastadmm.errors import ConfigError
from fastadmm.files.atomic import atomic_file
from fastadmm.owners.forecast import Forecast

_COLOURS = {"optimisation": "#0072b2", "noise": "#d55e00", "statistical": "#009e73"}


def draw_forecast(forecast: Forecast, document: dict[str, Any], path: Path) -> None:
    """Draw a forecast."""
    if path.suffix not in (".svg", ".png", ".pdf"):
        raise ConfigError(f"plot: {path.name!r}: give a name that ends in .svg, .png or .pdf")
    try:
        import matplotlib as mpl
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError(
            "plot: drawing needs matplotlib; install it with: pip install 'fastadmm[report]'"
        ) from None
    members = forecast.members
    bars = [("all", forecast.gap())]
    if len(members) > 1:
        bars += [(f"without {m.name}", forecast.gap(forecast.without(m.name))) for m in members]
        best = document["best_coalition"]["owners"]
        bars.append(("best: " + ", ".join(best), forecast.gap([m for m in members if m.name in best])))
    with mpl.rc_context({"svg.hashsalt": "fastadmm", "svg.fonttype": "path", "font.size": 9}):
        figure = Figure(figsize=(9.6, 3.8), layout="constrained")
        left, right = figure.subplots(1, 2)
        names = [name for name, _ in bars]
        height = 0.26
        for shift, term in enumerate(_COLOURS):
            left.barh(
                [k + (shift - 1) * height for k in range(len(bars))],
                [max(getattr(gap, term), 1e-300) for _, gap in bars],
                height=height,
                color=_COLOURS[term],
                label=term,
            )
        left.set_yticks(range(len(names)), labels=names)
        left.invert_yaxis()
        values = [getattr(gap, term) for _, gap in bars for term in _COLOURS if getattr(gap, term) > 0]
        left.set_xscale("log")
        left.set_xlim(max(min(values) / 3, max(values) * 1e-9), max(values) * 3)
        left.set_xlabel("expected gap")
        left.legend(frameon=False, fontsize=8)
        grid = sorted({max(2, round(1.15**k)) for k in range(50)})
        gaps = [forecast.gap(rounds=rounds) for rounds in grid]
        for term, colour in _COLOURS.items():
            right.plot(grid, [max(getattr(gap, term), 1e-300) for gap in gaps], color=colour, label=term)
        right.plot(grid, [gap.total for gap in gaps], color="#24292e", linewidth=2, label="total")
        right.axvline(document["best_rounds"]["rounds"], color="#57606b", linestyle="--", linewidth=0.8)
        right.set_xscale("log")
        right.set_yscale("log")
        totals = [gap.total for gap in gaps]
        right.set_ylim(min(totals) * 1e-2, max(totals) * 3)
        right.set_xlabel("rounds T (dashed: best)")
        right.legend(frameon=False, fontsize=8)
        for axes in (left, right):
            axes.set_axisbelow(True)
            axes.grid(alpha=0.3)
            axes.spines[["top", "right"]].set_visible(False)
        with atomic_file(path) as temporary:
            metadata: dict[str, Any] = {"Date": None, "Creator": None} if path.suffix == ".svg" else {}
            figure.savefig(temporary, format=path.suffix[1:], metadata=metadata)
