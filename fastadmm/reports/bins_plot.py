"""Bins of columns and their rates of class 1, as pictures for the page of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from fastadmm.figures.figure import MUTED, SERIES_COLOURS
from fastadmm.figures.numbers import format_number
from fastadmm.reports.plots import Plot, safe_label
from fastadmm.store.model import open_model, open_shared_part

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from fastadmm.store.bins import Bins
    from fastadmm.store.encoder import ColumnEncoding

#: Columns that are drawn: those whose weights of evidence move the score most.
_MOST = 12

#: Panels side by side.
_WIDE = 3


def bins_plot(path: Path) -> Plot | None:
    """The picture of a model's bins; None where it has none, or the parties' files are elsewhere."""
    if not (path / "model.toml").exists():
        return None
    shared, directory = open_shared_part(path)
    if any(not (directory / f"{name}.h5").exists() for name in shared.names):
        return None
    found: list[tuple[float, str, ColumnEncoding, Bins]] = []
    model = open_model(path)
    for party in model.parties:
        at = 0
        for column in () if party.encoder is None or party.weights.ndim != 1 else party.encoder.columns:
            if column.bins is not None:
                moved = abs(party.weights[at]) * np.ptp(column.bins.woe)
                found.append((float(moved), f"{party.name}: {column.name}", column, column.bins))
            at += (1 if column.one_hot is None else len(column.one_hot)) + column.indicator
    if not found:
        return None
    shown = sorted(found, key=lambda each: -each[0])[:_MOST]
    height = 2.7 * -(-len(shown) // _WIDE)

    def draw(figure: Figure) -> None:
        panels = figure.subplots(-(-len(shown) // _WIDE), _WIDE, squeeze=False).ravel()
        for ax in panels[len(shown) :]:
            ax.set_axis_off()
        for ax, (_, name, column, bins) in zip(panels, shown, strict=False):
            _draw(ax, name, column, bins)

    event = str((model.classes or ("0", "1"))[-1])
    texts = [
        f"{name}: {', '.join(f'{cells} {rate:.3g}' for cells, _, rate in _bars(column, bins))}"
        for _, name, column, bins in shown
    ]
    caption = f"Bars: share of the training rows. Points: rate of {event!r} in a bin."
    if len(found) > _MOST:
        caption += f" The {_MOST} columns of {len(found)} that move the score most."
    return Plot("bins", "Rates by bin", caption, "; ".join(texts), draw, wide=True, height=height)


def _bars(column: ColumnEncoding, bins: Bins) -> list[tuple[str, float, float]]:
    """Name, rows and rate of class 1 of each bin that has rows."""
    edges = [format_number(edge, 6) for edge in bins.edges]
    names = [f"≤ {edge}" for edge in edges] + ([f"> {edges[-1]}"] if edges else ["all"])
    if column.levels is not None:
        names = []
        for k in range(bins.count):
            own = [level for level, at in zip(column.levels, bins.groups, strict=True) if at == k]
            names.append(safe_label(own[0], 10) + (f" +{len(own) - 1}" if own[1:] else "") if own else "")
    sizes = np.add(bins.events, bins.others)
    cells = zip([*names, "missing"], sizes, bins.events, strict=True)
    return [(name, float(size), float(events / size)) for name, size, events in cells if size > 0.0]


def _draw(ax: Axes, name: str, column: ColumnEncoding, bins: Bins) -> None:
    names, sizes, rates = zip(*_bars(column, bins), strict=True)
    at = np.arange(len(names))
    ax.bar(at, np.array(sizes) / sum(sizes), color=MUTED, alpha=0.35, width=0.8)
    ax.set_xticks(at, names, rotation=30, ha="right", fontsize=7)
    ax.set_ylim(bottom=0.0)
    ax.grid(visible=False)
    other = ax.twinx()
    other.plot(at, rates, color=SERIES_COLOURS[0], marker="o")
    other.set_ylim(0.0, 1.15 * max(*rates, 1e-12))
    other.grid(visible=False)
    ax.set_title(safe_label(name, 32))
