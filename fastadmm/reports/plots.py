"""The figures of a run; how they are drawn is in :mod:`fastadmm.figures.figure`."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from fastadmm.figures.figure import (
    DASHES,
    MUTED,
    SERIES_COLOURS,
    any_finite,
    finite,
    label_axes,
    line,
    positive,
    render,
    wide_range,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from fastadmm.reports.records import History


@dataclass(frozen=True)
class Plot:
    """One figure of the page; its texts are plain, not HTML."""

    title: str
    caption: str  # what to look for, also for readers who do not see it
    draw: Callable[[Figure], None]
    wide: bool = False  # whether it takes the whole width of the page
    height: float = 2.9

    @cached_property
    def image(self) -> str:
        """The figure as the address of an image."""
        return render(self.draw, wide=self.wide, height=self.height)


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
    texts: tuple[str, str], x: NDArray[Any], y: NDArray[np.float64], target: float | None
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
                linestyle=DASHES[1],
                linewidth=1.4,
                label=f"target {target:.3g}",
            )
            ax.legend(loc="best")
        label_axes(ax, "round", log=True)

    goal = f" The target is {target:.3g}." if target else ""
    title, caption = texts
    return Plot(title, caption + goal, draw)


def _gap(history: History, target: float | None) -> Plot | None:
    caption = "Logarithmic scale. A proved bound, not an estimate."
    texts = "Relative gap against rounds", caption
    return _measure(texts, history.round, history.series["gap"], target)


def _stationarity(history: History, target: float | None) -> Plot | None:
    caption = (
        "Size of the gradient as a share of that at zero weights. The problem is not convex: a small value "
        "means a stationary point, and no global optimum is claimed."
    )
    texts = "Stationarity against rounds", caption
    return _measure(texts, history.round, history.series["stationarity"], target)


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
