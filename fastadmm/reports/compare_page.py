"""A comparison of runs as rows of text, and as page or document."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastadmm.errors import ConfigError
from fastadmm.figures.figure import (
    DASHES,
    SERIES_COLOURS,
    any_finite,
    finite,
    line,
    positive,
    round_axes,
    wide_range,
    x_axis,
)
from fastadmm.figures.numbers import NONE, format_duration, format_number, round_up
from fastadmm.files.atomic import shown, write_whole
from fastadmm.privacy.statement import rounded_up
from fastadmm.reports.html import told, write_page
from fastadmm.reports.plots import Plot, metric_label, safe_label

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from fastadmm.reports.comparison import ComparedRun, RunComparison
    from fastadmm.reports.records import History

#: Runs that colours and dashes tell apart.
MAX_RUNS = len(SERIES_COLOURS) * len(DASHES)

_STYLES = [(colour, dash) for dash in DASHES for colour in SERIES_COLOURS]


def curve_kinds(comparison: RunComparison) -> list[tuple[str, str]]:
    """Which curves there is data for."""
    kinds = [
        ("gap", "Relative gap"),
        ("stationarity", "Stationarity"),
        ("objective", _objective_title(comparison)),
    ]
    return [
        (name, title)
        for name, title in kinds
        if any(any_finite(_values(comparison, run, name)) for run in comparison.runs[:MAX_RUNS])
    ]


def picture_height(comparison: RunComparison) -> float:
    """Inches that :func:`draw_comparison` needs at a width of 10."""
    return 2.9 * max(1, len(curve_kinds(comparison))) + 0.25 * (
        (min(len(comparison.runs), MAX_RUNS) + 3) // 4
    )


def draw_comparison(figure: Figure, comparison: RunComparison) -> None:
    """Draw gap (or stationarity) and objective against rounds and against seconds."""
    kinds = curve_kinds(comparison)
    if not kinds:
        figure.text(0.5, 0.5, "No rounds have been logged yet.", ha="center", va="center")
        return
    runs = comparison.runs[:MAX_RUNS]
    panels = figure.subplots(len(kinds), 2, squeeze=False, sharey="row")
    handles: dict[int, Any] = {}
    for row, (name, title) in zip(panels, kinds):
        curves = [_values(comparison, run, name) for run in runs]
        log = name != "objective" or _log_objective(comparison, curves)
        for ax, unit in zip(row, ("round", "seconds")):
            histories = [run.history for run in runs]
            across = [finite(_across(h, unit)) for h in histories]
            for k, (x, y) in enumerate(zip(across, curves)):
                y = positive(y) if log else y
                if any_finite(y) and any_finite(x):
                    colour, dash = _STYLES[k]
                    line(ax, x, y, colour, dash=dash)
                    handles.setdefault(k, ax.lines[-1])
            shown_x = np.concatenate([x for x in across if x.size])
            round_axes(ax, shown_x if any_finite(shown_x) else np.zeros(1), log=log)
            if unit == "seconds" and any_finite(shown_x):
                ax.set_xlabel("seconds of training")
                x_axis(ax, shown_x, integer=False)
            ax.set_title(f"{title} against {'rounds' if unit == 'round' else 'seconds'}")
    if not handles:  # on a logarithmic axis a gap of zero has no place
        return
    names = [safe_label(runs[k].name, 32) for k in sorted(handles)]
    columns = max(1, min(len(names), 110 // (max(map(len, names)) + 7)))
    figure.legend([handles[k] for k in sorted(handles)], names, loc="outside lower center", ncols=columns)


def _across(history: History, unit: str) -> NDArray[np.float64]:
    return history.round.astype(np.float64) if unit == "round" else history.series["seconds"]


def _objective_title(comparison: RunComparison) -> str:
    return "Objective" if comparison.lower_bound is None else "Objective above the best proved bound"


def _values(comparison: RunComparison, run: ComparedRun, name: str) -> NDArray[np.float64]:
    values = finite(run.history.series[name])
    if name == "objective" and comparison.lower_bound is not None:
        # All curves of one problem end at its optimum: only the distance to it shows who is faster.
        return values - comparison.lower_bound
    return values if name == "objective" else positive(values)


def _log_objective(comparison: RunComparison, curves: list[NDArray[np.float64]]) -> bool:
    together = np.concatenate(curves)
    return comparison.lower_bound is not None or (any_finite(together) and wide_range(together))


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
    """Write a comparison; the ending of the name says as what."""
    path = Path(out)
    suffix = path.suffix.lower()
    if suffix in (".html", ".htm"):
        write_page(path, "compare.html.j2", _context(comparison))
    elif suffix == ".json":
        write_whole(path, json.dumps(comparison.to_json(), indent=2, allow_nan=False) + "\n", shared=True)
    else:
        raise ConfigError(f"{shown(path)}: a comparison ends in .html or .json")
    return path


def _context(comparison: RunComparison) -> dict[str, Any]:
    names = [run.name for run in comparison.runs]
    title = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
    caption = "Logarithmic scale where the values span decades."
    if comparison.lower_bound is not None:
        caption += (
            " All runs minimise the same function of the same data, so the objective is drawn as its "
            "distance from the best lower bound that their rounds found."
        )
    elif not comparison.same_problem:
        caption += " The objectives are not of one problem: see the notes above."
    caption += f" The first {MAX_RUNS} of {len(names)} runs are drawn." if len(names) > MAX_RUNS else ""
    alt = "; ".join(
        f"{run.name}: gap {format_number(run.gap, 3)} after {format_number(run.rounds)} rounds and "
        f"{format_duration(run.seconds)}, objective {format_number(run.objective, 7)}"
        for run in comparison.runs
    )
    height = picture_height(comparison) if curve_kinds(comparison) else 1.0
    draw = partial(draw_comparison, comparison=comparison)
    plot = Plot("comparison", "Gap and objective", caption, alt, draw, wide=True, height=height)
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
        "plot": plot,
    }


def _epsilon(run: ComparedRun) -> str:
    if run.epsilon is None:
        return NONE
    if run.epsilon == math.inf:
        return "∞"
    return f"{rounded_up(run.epsilon)} (δ {format_number(run.delta)})"


def _metric(value: float | None) -> str:
    return format_number(value, 5, zeros=True)
