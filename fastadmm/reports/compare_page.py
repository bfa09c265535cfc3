"""A comparison of runs as rows of text, and as page or document."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastadmm.errors import ConfigError
from fastadmm.figures.figure import (
    DASHES,
    SERIES_COLOURS,
    any_finite,
    finite,
    label_axes,
    line,
    positive,
)
from fastadmm.figures.numbers import NONE, format_duration, format_number, round_up
from fastadmm.files.atomic import shown
from fastadmm.privacy.statement import rounded_up
from fastadmm.reports.html import told, write_page
from fastadmm.reports.plots import Plot, metric_label, safe_label

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fastadmm.reports.comparison import ComparedRun, RunComparison

#: Runs that colours and dashes tell apart.
MAX_RUNS = len(SERIES_COLOURS) * len(DASHES)

_STYLES = [(colour, dash) for dash in DASHES for colour in SERIES_COLOURS]


#: What is drawn where a run has it.
_CURVES = {"gap": "Relative gap", "stationarity": "Stationarity"}


def draw_comparison(figure: Figure, comparison: RunComparison) -> None:
    """Draw gap, or stationarity, against rounds and against seconds."""
    runs = comparison.runs[:MAX_RUNS]
    kinds = _kinds(comparison)
    panels = figure.subplots(len(kinds), 2, squeeze=False, sharey="row")
    for row, name in zip(panels, kinds):
        for ax, unit in zip(row, ("round", "seconds")):
            for run, (colour, dash) in zip(runs, _STYLES):
                history = run.history
                x = finite(history.round.astype(float) if unit == "round" else history.series["seconds"])
                y = positive(history.series[name])
                if any_finite(y) and any_finite(x):
                    line(ax, x, y, colour, dash=dash, label=safe_label(run.name, 32))
            label_axes(ax, unit, log=True)
            ax.set_title(f"{_CURVES[name]} against {'rounds' if unit == 'round' else 'seconds'}")
    handles, names = panels[0, 0].get_legend_handles_labels()
    if names:
        figure.legend(handles, names, loc="outside lower center", ncols=4)


def _kinds(comparison: RunComparison) -> list[str]:
    return [n for n in _CURVES if any(any_finite(positive(r.history.series[n])) for r in comparison.runs)]


_STATUS = {
    "converged": "certified",
    "max_rounds": "round limit",
    "time_limit": "time limit",
    "early_stopped": "stopped early",
    "at_rounding": "at rounding",
}


def comparison_rows(comparison: RunComparison) -> list[tuple[str, list[tuple[str, list[str]]]]]:
    """Headed groups of rows: a label and one text per run."""
    runs = comparison.runs

    def row(label: str, texts: list[str]) -> tuple[str, list[str]]:
        return label, texts

    def status(run: ComparedRun) -> str:
        if run.said is not None and run.said.claim.startswith("certified"):
            return run.said.claim.replace("_", " ")
        # Among models of bounded size only, or of other weights: not certified.
        plain = run.gap_within is not None or (run.said is not None and (run.said.refused or run.said.claim))
        plain = plain and run.status == "converged"
        return run.status if plain else _STATUS.get(run.status, run.status)

    def gap(run: ComparedRun) -> str:
        return format_number(run.gap if run.gap is None else round_up(run.gap), 3)

    result = [
        row("status", [status(run) for run in runs]),
        row("data", [run.same["data"] or NONE for run in runs]),
        row("rounds", [format_number(run.rounds) for run in runs]),
        row("time", [format_duration(run.seconds) for run in runs]),
        row("objective", [format_number(run.objective, 7, zeros=True) for run in runs]),
        row("relative gap", [gap(run) for run in runs]),
        row("stationarity", [format_number(run.stationarity, 3) for run in runs]),
        row("ε spent", [_epsilon(run) for run in runs]),
    ]
    optional = ("stationarity", "relative gap", "ε spent")
    result = [r for r in result if r[0] not in optional or any(text != NONE for text in r[1])]
    tested, evaluated = comparison.metric_names()
    metrics = [
        row(f"test {metric_label(name)}", [_metric(run.test.get(name)) for run in runs]) for name in tested
    ]
    if evaluated:
        metrics.append(row("evaluated on", [run.evaluated_on or NONE for run in runs]))
    metrics += [
        row(f"evaluated {metric_label(name)}", [_metric(run.evaluation.get(name)) for run in runs])
        for name in evaluated
    ]
    settings = [row(name, [told(run.settings.get(name)) for run in runs]) for name in comparison.differing]
    groups = [("Result", result), ("Metrics", metrics), ("Settings that differ", settings)]
    return [(title, rows) for title, rows in groups if rows]


def write_comparison(comparison: RunComparison, out: str | Path) -> Path:
    """Write a comparison as an HTML page."""
    path = Path(out)
    if path.suffix.lower() not in (".html", ".htm"):
        raise ConfigError(f"{shown(path)}: a comparison is an HTML page; choose a name that ends in .html")
    write_page(path, "compare.html.j2", _context(comparison))
    return path


def _context(comparison: RunComparison) -> dict[str, Any]:
    names = [run.name for run in comparison.runs]
    title = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    caption = "Logarithmic scale."
    caption += f" The first {MAX_RUNS} of {len(names)} runs are drawn." if len(names) > MAX_RUNS else ""
    alt = "; ".join(
        f"{run.name}: gap {format_number(run.gap, 3)} after {format_number(run.rounds)} rounds and "
        f"{format_duration(run.seconds)}, objective {format_number(run.objective, 7)}"
        for run in comparison.runs
    )
    kinds = _kinds(comparison)
    draw = partial(draw_comparison, comparison=comparison)
    plot = Plot("comparison", "Convergence", caption, alt, draw, wide=True, height=0.5 + 2.9 * len(kinds))
    return {
        "title": title,
        "n_runs": len(names),
        "about": f"This page compares {len(names)} linear models that fastadmm trained, each on columns of "
        "several parties about the same rows: how training ended, how well the models do on other rows where "
        "that was measured, and which settings differ.",
        "notes": comparison.notes,
        "sections": [
            {"title": title, "header": ["", *names], "rows": [[label, *texts] for label, texts in rows]}
            for title, rows in comparison_rows(comparison)
        ],
        "plot": plot if kinds else None,
    }


def _epsilon(run: ComparedRun) -> str:
    if run.epsilon is None:
        return NONE
    if run.epsilon == math.inf:
        return "∞"
    return f"{rounded_up(run.epsilon)} (δ {format_number(run.delta)})"


def _metric(value: float | None) -> str:
    return format_number(value, 5, zeros=True)
