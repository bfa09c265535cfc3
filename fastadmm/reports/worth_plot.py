"""What each party's data add, as a picture."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from fastadmm.figures.figure import MUTED, SERIES_COLOURS, TEXT
from fastadmm.figures.numbers import format_number
from fastadmm.reports.plots import Plot, metric_label, safe_label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fastadmm.worth.coalitions import Worth

_BARS = {"adds_alone": "alone, against nobody", "shapley": "Shapley value", "adds_last": "joining all others"}


def _draw(figure: Figure, worth: Worth) -> None:
    """Draw what every party adds, and what it reaches alone and leaves behind."""
    left, right = figure.subplots(1, 2)
    _bars(left, worth)
    _levels(right, worth)


def worth_plot(worth: Worth) -> Plot:
    """The picture for the page of a run."""
    label = metric_label(worth.metric)
    caption = (
        "Positive is better, whatever the metric. The Shapley value is the mean of what a party adds over "
        "all orders in which the parties may come together; the values sum to what all reach beyond nobody. "
        "A party whose data others hold too adds much alone and little to all others."
    )
    alt = "; ".join(
        f"{row['name']}: alone {format_number(row['alone'], 4)}, adds {format_number(row['adds_last'], 3)} "
        f"to all others, Shapley value {format_number(row['shapley'], 3)}"
        for row in worth.table()
    )
    title, draw = f"What each party adds to the test {label}", partial(_draw, worth=worth)
    height = max(2.9, 1.3 + 0.5 * len(worth.parties))
    return Plot("worth", title, caption, alt, draw, wide=True, height=height)


def _bars(ax: Axes, worth: Worth) -> None:
    rows = worth.table()
    kinds = [kind for kind in _BARS if rows[0][kind] is not None]
    height = 0.8 / len(kinds)
    places = np.arange(len(rows))
    for k, kind in enumerate(kinds):
        at = places + (k - (len(kinds) - 1) / 2.0) * height
        colour = SERIES_COLOURS[list(_BARS).index(kind)]
        ax.barh(at, [row[kind] for row in rows], height=0.9 * height, color=colour, label=_BARS[kind])
    ax.axvline(0.0, color=MUTED, linewidth=0.8)
    _parties_axis(ax, worth)
    ax.set_title(f"Adds to the test {metric_label(worth.metric)}")
    ax.figure.legend(loc="outside lower left", ncols=3)


def _levels(ax: Axes, worth: Worth) -> None:
    rows = worth.table()
    places = np.arange(len(rows))
    ax.plot(
        [row["alone"] for row in rows],
        places,
        "o",
        color=SERIES_COLOURS[0],
        markersize=6,
        label="the party alone",
    )
    ax.plot(
        [row["without"] for row in rows],
        places,
        "s",
        color=SERIES_COLOURS[2],
        markersize=5.5,
        label="all but the party",
    )
    ax.axvline(worth.of(worth.everyone), color=TEXT, linewidth=1.2, label="all", zorder=0)
    _parties_axis(ax, worth)
    ax.set_title(f"Test {metric_label(worth.metric)}")
    ax.figure.legend(*ax.get_legend_handles_labels(), loc="outside lower right", ncols=4)


def _parties_axis(ax: Axes, worth: Worth) -> None:
    names = [
        safe_label(name) + (" (labels)" if m == worth.label_party else "")
        for m, name in enumerate(worth.parties)
    ]
    ax.set_yticks(range(len(names)), names, color=TEXT)
    ax.set_ylim(max(len(names), 2) - 0.4, -0.6)
    ax.grid(visible=False, axis="y")
