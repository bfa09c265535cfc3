"""The figures of a run, as SVG: the same bytes for the same figure."""

from __future__ import annotations

import base64
import io
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastadmm.errors import ConfigError
from fastadmm.figures.numbers import metric_label

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from fastadmm.reports.records import History

INSTALL_HINT = 'the report needs matplotlib and jinja2: pip install "fastadmm[report]"'

#: Colours of lines, and of what helps to read them.
SERIES_COLOURS = ("#0072b2", "#d55e00", "#009e73")
MUTED = "#57606b"
DASHED = (0, (5, 2))

#: What matplotlib draws with, in its own form.
_STYLE = Path(__file__).with_name("page.mplstyle")


@dataclass(frozen=True)
class Plot:
    """One figure of the page; its texts are plain, not HTML."""

    title: str
    caption: str  # what to look for, also for readers who do not see it
    draw: Callable[[Figure], None]
    wide: bool = False  # whether it takes the whole width of the page

    @cached_property
    def image(self) -> str:
        """The figure as an address that holds all of it, in our style: the program's own is left alone."""
        try:
            import matplotlib
            from matplotlib.figure import Figure
            from matplotlib.layout_engine import ConstrainedLayoutEngine
        except ImportError as error:
            raise ConfigError(INSTALL_HINT) from error
        text = io.StringIO()
        with warnings.catch_warnings(), matplotlib.rc_context():
            # A browser has the glyphs that matplotlib's own font lacks; a file shows a box.
            warnings.filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
            matplotlib.rcdefaults()
            matplotlib.rcParams.update(matplotlib.rc_params_from_file(_STYLE, use_default_template=False))
            # ``Figure`` without pyplot keeps no registry of open figures and needs no display.
            layout = ConstrainedLayoutEngine(w_pad=0.06, wspace=0.06)
            figure = Figure(figsize=(10.6 if self.wide else 5.2, 2.9), layout=layout)
            self.draw(figure)
            metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
            figure.savefig(text, format="svg", metadata=metadata)
        content = base64.b64encode(text.getvalue().encode("utf-8", "replace"))
        return f"data:image/svg+xml;base64,{content.decode()}"


def unit_square(ax: Any, xlabel: str, ylabel: str, diagonal: str) -> None:
    """Let both axes be shares, with a dashed diagonal by a name."""
    ax.plot([0, 1], [0, 1], color=MUTED, linestyle=(0, (4, 3)), linewidth=1.2, label=diagonal)
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xlabel=xlabel, ylabel=ylabel)


def calibration_plot(calibration: dict[str, Any]) -> Plot | None:
    """Draw observed rates against predicted probabilities; None without bins."""
    bins = calibration["bins"]
    if not bins:
        return None
    predicted, observed = ([float(b[key]) for b in bins] for key in ("mean_predicted", "observed_rate"))

    def draw(figure: Figure) -> None:
        ax = figure.add_subplot()
        unit_square(ax, "mean predicted probability", "observed rate", "perfect")
        ax.plot(predicted, observed, color=SERIES_COLOURS[0], marker="o", label="model")
        ax.legend(loc="upper left")

    error = calibration.get("expected_calibration_error")
    summary = "" if error is None else f" The expected calibration error is {error:.4f}."
    caption = (
        "Each point is a group of rows with similar predictions; on the diagonal, predicted probabilities "
        f"are what is observed.{summary}"
    )
    return Plot("Calibration", caption, draw)


def history_plots(history: History, target: float | None) -> list[Plot]:
    """Draw the figures that the round log has data for."""
    goal = f" The target is {target:.3g}." if target else ""
    about = "Mean loss plus λ times the penalty, on the training data."
    proved = f"Logarithmic scale. A proved bound, not an estimate.{goal}"
    stationary = (
        "Size of the gradient as a share of that at zero weights. The problem is not convex: a small value "
        f"means a stationary point, and no global optimum is claimed.{goal}"
    )
    unseen = "Measured on the test partition after every round; never used for training."
    series = {name: {"": values} for name, values in history.series.items()}
    tests = {metric_label(name): values for name, values in history.test.items()}
    plots = [
        _against_rounds("Objective", about, history, series["objective"]),
        _against_rounds("Relative gap against rounds", proved, history, series["gap"], target=target or 0.0),
        _against_rounds(
            "Stationarity against rounds", stationary, history, series["stationarity"], target=target or 0.0
        ),
        _against_rounds("Test metrics", unseen, history, tests),
    ]
    return [plot for plot in plots if plot is not None]


def _against_rounds(
    title: str, caption: str, history: History, series: dict[str, Any], target: float | None = None
) -> Plot | None:
    """A panel for each series, three at most, side by side: their scales have nothing in common.

    Where there may be a target, zero for none, the scale is logarithmic.
    """
    least = -1e200 if target is None else 1e-200
    shown = [(name, np.where((y > least) & (y < 1e200), y, np.nan)) for name, y in series.items()]
    shown = [(name, y) for name, y in shown if np.isfinite(y).any()][:3]  # what the axis can show

    def draw(figure: Figure) -> None:
        axes = figure.subplots(1, len(shown), squeeze=False)[0]
        for ax, colour, (name, y) in zip(axes, SERIES_COLOURS, shown, strict=False):
            _line(ax, history.round, y, colour)
            if name:
                ax.set_title(name)
            if target is not None and 0 < target < 1e200:
                look: Any = {"color": SERIES_COLOURS[1], "linestyle": DASHED, "linewidth": 1.4}
                ax.axhline(target, label=f"target {target:.3g}", **look)
                ax.legend(loc="best")
            known = y[np.isfinite(y)]
            _label_axes(ax, log=target is not None or 0.0 < known.min() < known.max() / 50.0)

    return Plot(title, caption, draw, wide=len(shown) > 1) if shown else None


def _line(ax: Any, x: Any, y: Any, colour: str) -> None:
    """Draw one line. Shapes: x, y (T,)."""
    # A line of few points shows them; a single point would be invisible otherwise.
    marker = "o" if np.count_nonzero(np.isfinite(y)) <= 40 else None
    ax.plot(x, y, color=colour, marker=marker)


def _label_axes(ax: Any, *, log: bool) -> None:
    """Rounds on the horizontal axis, and a vertical one that is logarithmic or not."""
    from matplotlib.ticker import MaxNLocator

    ax.set_xlabel("round")
    ax.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=True))
    if log:
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_formatter("")
