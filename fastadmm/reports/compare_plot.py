"""Convergence of several runs in one picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

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
from fastadmm.reports.plots import safe_label

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
