"""The figures of a run, as SVG: the same bytes for the same figure."""

from __future__ import annotations

import base64
import io
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastadmm.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from fastadmm.reports.records import History

INSTALL_HINT = 'the report needs matplotlib and jinja2: pip install "fastadmm[report]"'

#: Points per line in a figure; more cannot be seen and make the page heavy.
MAX_POINTS = 2000

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
        """The figure as an address that holds all of it."""
        with _drawing():
            from matplotlib.figure import Figure
            from matplotlib.layout_engine import ConstrainedLayoutEngine

            # ``Figure`` without pyplot keeps no registry of open figures and needs no display.
            layout = ConstrainedLayoutEngine(w_pad=0.06, wspace=0.06)
            figure = Figure(figsize=(10.6 if self.wide else 5.2, 2.9), layout=layout)
            self.draw(figure)
            text = io.StringIO()
            metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
            figure.savefig(text, format="svg", metadata=metadata)
        content = base64.b64encode(text.getvalue().encode("utf-8", "replace"))
        return f"data:image/svg+xml;base64,{content.decode()}"


def unit_square(ax: Any, xlabel: str, ylabel: str, diagonal: str = "") -> None:
    """Let both axes be shares, with a dashed diagonal by a name."""
    if diagonal:
        ax.plot([0, 1], [0, 1], color=MUTED, linestyle=(0, (4, 3)), linewidth=1.2, label=diagonal)
    ax.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02), xlabel=xlabel, ylabel=ylabel)


def history_plots(history: History, target: float | None) -> list[Plot]:
    """Draw the figures that the round log has data for."""
    if not len(history):
        return []
    plots: list[Plot | None] = [
        _objective(history),
        _gap(history, target),
        _stationarity(history, target),
        _test_metrics(history),
    ]
    return [plot for plot in plots if plot is not None]


def calibration_plot(calibration: dict[str, Any]) -> Plot | None:
    """Draw observed rates against predicted probabilities; None without bins."""
    bins = calibration["bins"]
    if not bins:
        return None
    predicted = np.array([float(b["mean_predicted"]) for b in bins])
    observed = np.array([float(b["observed_rate"]) for b in bins])

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


# --- the figures -------------------------------------------------------------------------------


def _objective(history: History) -> Plot | None:
    objective = finite(history.series["objective"])
    if not any_finite(objective):
        return None

    def draw(figure: Figure) -> None:
        ax = figure.add_subplot()
        line(ax, history.round, objective, SERIES_COLOURS[0])
        label_axes(ax, "round", log=wide_range(objective))

    caption = "Mean loss plus λ times the penalty, on the training data."
    return Plot("Objective", caption, draw)


def _measure(
    title: str, caption: str, x: NDArray[Any], y: NDArray[np.float64], target: float | None
) -> Plot | None:
    """A measure that falls over decades to its target."""
    x, y = finite(x.astype(np.float64)), positive(y)
    if not any_finite(y) or not any_finite(x):
        return None

    def draw(figure: Figure) -> None:
        ax = figure.add_subplot()
        line(ax, x, y, SERIES_COLOURS[0])
        if target is not None and 0 < target < 1e200:
            ax.axhline(
                target,
                color=SERIES_COLOURS[1],
                linestyle=DASHED,
                linewidth=1.4,
                label=f"target {target:.3g}",
            )
            ax.legend(loc="best")
        label_axes(ax, "round", log=True)

    goal = f" The target is {target:.3g}." if target else ""
    return Plot(title, caption + goal, draw)


def _gap(history: History, target: float | None) -> Plot | None:
    caption = "Logarithmic scale. A proved bound, not an estimate."
    title = "Relative gap against rounds"
    return _measure(title, caption, history.round, history.series["gap"], target)


def _stationarity(history: History, target: float | None) -> Plot | None:
    caption = (
        "Size of the gradient as a share of that at zero weights. The problem is not convex: a small value "
        "means a stationary point, and no global optimum is claimed."
    )
    title = "Stationarity against rounds"
    return _measure(title, caption, history.round, history.series["stationarity"], target)


def _test_metrics(history: History) -> Plot | None:
    """One panel per metric, three at most, side by side: their scales have nothing in common."""
    lines = [(metric_label(name), finite(y)) for name, y in history.test.items()]
    lines = [(name, y) for name, y in lines if any_finite(y)][:3]
    if not lines:
        return None

    def draw(figure: Figure) -> None:
        for k, (ax, (name, y)) in enumerate(zip(figure.subplots(1, len(lines), squeeze=False)[0], lines)):
            line(ax, history.round, y, SERIES_COLOURS[k])
            ax.set_title(name)
            label_axes(ax, "round", log=wide_range(y))

    caption = "Measured on the test partition after every round; never used for training."
    return Plot("Test metrics", caption, draw, wide=len(lines) > 1)


def metric_label(name: str) -> str:
    """Return the readable name of a metric, for example ``"log loss"`` for ``"log_loss"``."""
    known = {"auc": "AUC", "rmse": "RMSE", "mae": "MAE", "r2": "R²", "d2": "D²", "brier": "Brier score"}
    return known.get(name) or safe_label(name.replace("_", " "), 40)


def safe_label(name: str, limit: int = 22) -> str:
    """Return a name that is safe and short enough for a figure."""
    clean = "".join(
        c if unicodedata.category(c) not in ("Cc", "Cs") else "\N{REPLACEMENT CHARACTER}" for c in name
    )
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


# --- how they are drawn -----------------------------------------------------------------------------------


@contextmanager
def _drawing() -> Iterator[Any]:
    """Our style within, the settings of the program that called us afterwards."""
    try:
        import matplotlib
    except ImportError as error:
        raise ConfigError(INSTALL_HINT) from error
    with warnings.catch_warnings(), matplotlib.rc_context():
        # A browser has the glyphs that matplotlib's own font lacks; a file shows a box.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(matplotlib.rc_params_from_file(_STYLE, use_default_template=False))
        yield matplotlib


def line(ax: Axes, x: NDArray[Any], y: NDArray[np.float64], colour: str) -> None:
    """Draw one line, thinned to about :data:`MAX_POINTS` with its ends. Shapes: x, y (T,)."""
    # A line of few points shows them; a single point would be invisible otherwise.
    marker = "o" if np.count_nonzero(np.isfinite(y)) <= 40 else None
    kept = np.unique(np.linspace(0, y.size - 1, min(y.size, MAX_POINTS)).astype(np.intp))
    ax.plot(x[kept], y[kept], color=colour, marker=marker)


def label_axes(ax: Axes, xlabel: str, *, log: bool) -> None:
    """Name the horizontal axis, and make the vertical one logarithmic or not."""
    from matplotlib.ticker import MaxNLocator

    ax.set_xlabel(xlabel)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=xlabel == "round"))
    if log:
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_formatter("")


def finite(y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return y with NaN for what an axis cannot show."""
    return np.where(np.abs(y) < 1e200, y, np.nan)


def positive(y: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return y with NaN for what a logarithmic axis cannot show."""
    return np.where((y > 1e-200) & (y < 1e200), y, np.nan)


def any_finite(y: NDArray[np.float64]) -> bool:
    """Whether there is anything to draw."""
    return bool(np.isfinite(y).any())


def wide_range(y: NDArray[np.float64]) -> bool:
    """Whether a logarithmic axis suits the values."""
    values = y[np.isfinite(y)]
    return bool(values.min() > 0.0 and values.max() / 50.0 > values.min())
