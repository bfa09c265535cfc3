"""The figures of a run; how they are drawn is in :mod:`fastadmm.figures.figure`."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fastadmm.figures.figure import (
    DASHES,
    MUTED,
    SERIES_COLOURS,
    any_finite,
    draw_path,
    finite,
    label_axes,
    line,
    positive,
    render,
    wide_range,
)
from fastadmm.figures.numbers import format_number

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from fastadmm.reports.records import History


@dataclass(frozen=True)
class Plot:
    """One figure of the page; its texts are plain, not HTML."""

    key: str  # identifier, unique in the page
    title: str
    caption: str  # what to look for
    alt: str  # what the figure shows, in words, for readers who do not see it
    draw: Callable[[Figure], None]
    wide: bool = False  # whether it takes the whole width of the page
    height: float = 2.9

    @cached_property
    def svg(self) -> str:
        """An ``<svg>`` element, ready for an HTML page."""
        return render(self.key, self.draw, wide=self.wide, height=self.height)


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
        _gap(history, target, "round"),
        _gap(history, target, "seconds"),
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
    # An evaluation of an earlier release has no intervals.
    ends = np.array([[b.get("low", np.nan), b.get("high", np.nan)] for b in bins], dtype=np.float64)
    bars = np.maximum(np.abs(ends.T - observed), 0.0)

    def draw(figure: Figure) -> None:
        ax = figure.add_subplot()
        unit_square(ax, "mean predicted probability", "observed rate", "perfect")
        if np.isfinite(bars).all():
            ax.errorbar(predicted, observed, bars, fmt="none", ecolor=MUTED, elinewidth=1.0, capsize=2.0)
        ax.plot(predicted, observed, color=SERIES_COLOURS[0], marker="o", label="model")
        ax.legend(loc="upper left")

    error = calibration.get("expected_calibration_error")
    summary = "" if error is None else f" The expected calibration error is {error:.4f}."
    intervals = " Bars are 95 % intervals." if np.isfinite(bars).all() else ""
    caption = (
        "Each point is a group of rows with similar predictions; on the diagonal, predicted probabilities "
        f"are what is observed.{intervals}{summary}"
    )
    alt = (
        f"Observed rate against mean predicted probability in {len(bins)} groups: from "
        f"{observed[0]:.3f} at {predicted[0]:.3f} to {observed[-1]:.3f} at {predicted[-1]:.3f}.{summary}"
    )
    return Plot("calibration", "Calibration", caption, alt, draw)


# --- the figures -------------------------------------------------------------------------------


def _objective(history: History) -> Plot | None:
    objective = finite(history.series["objective"])
    if not any_finite(objective):
        return None
    bound = objective - finite(history.series["gap_absolute"])
    # Every round proves a lower bound; the best one so far holds.
    best = np.fmax.accumulate(bound)
    log = wide_range(objective)
    band = any_finite(best) and not log

    def draw(figure: Figure) -> None:
        ax = figure.add_subplot()
        line(ax, history.round, objective, SERIES_COLOURS[0], label="objective")
        if band:
            line(ax, history.round, best, SERIES_COLOURS[2], dash=DASHES[1], label="lower bound")
            # The first bounds can be far below anything of interest.
            low, high = np.nanmin(objective), np.nanmax(objective)
            top, bottom = high, min(low, np.nanmax(best))
            room = max(top - bottom, 1e-3 * abs(top)) or 1.0
            ax.set_ylim(bottom - 0.35 * room, top + 0.08 * room)
            ax.legend(loc="upper right")
        label_axes(ax, "round", log=log)

    caption = "Mean loss plus λ times the penalty, on the training data."
    caption += " The lower bound is that of the rounds." if band else ""
    alt = f"Objective against rounds: {_story(history.round, objective)}"
    return Plot("objective", "Objective", caption, alt, draw)


def _measure(
    texts: tuple[str, str, str], x: NDArray[Any], y: NDArray[np.float64], target: float | None, unit: str
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
        label_axes(ax, unit, log=True)

    goal = f" The target is {target:.3g}." if target else ""
    return Plot(*texts, f"{texts[1]}: {_story(x, y, unit)}{goal}", draw)


def _gap(history: History, target: float | None, unit: str) -> Plot | None:
    """The gap against rounds, or against time."""
    said = "A proved bound, not an estimate."
    x: NDArray[Any] = history.round
    if unit == "seconds":
        said, x = "Time counts from the start of the run, pauses left out.", history.series["seconds"]
    key, name = ("gap-time", "time") if unit == "seconds" else ("gap-rounds", "rounds")
    texts = key, f"Relative gap against {name}", f"Logarithmic scale. {said}"
    return _measure(texts, x, history.series["gap"], target, unit)


def _stationarity(history: History, target: float | None) -> Plot | None:
    caption = (
        "Size of the gradient as a share of that at zero weights. The problem is not convex: a small value "
        "means a stationary point, and no global optimum is claimed."
    )
    texts = "stationarity", "Stationarity against rounds", caption
    return _measure(texts, history.round, history.series["stationarity"], target, "round")


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

    said = " ".join(f"{name}: {_story(history.round, y)}" for name, y in lines)
    caption = "Measured on the test partition after every round; never used for training."
    return Plot("test", "Test metrics", caption, said, draw, wide=len(lines) > 1)


# --- words ---------------------------------------------------------------------------------------


def _story(x: NDArray[Any], y: NDArray[np.float64], unit: str = "round") -> str:
    index = np.flatnonzero(np.isfinite(y) & np.isfinite(x))
    if not index.size:
        return "no values."
    first, last = index[0], index[-1]

    def at(k: int) -> str:
        return f"{y[k]:.4g} " + (f"after {x[k]:.3g} seconds" if unit == "seconds" else f"at round {x[k]}")

    if first == last:
        return at(first) + "."
    return f"from {at(first)} to {at(last)}."


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


def path_plot(table: dict[str, Any]) -> Plot:
    """The picture for the page of a run."""
    rows, with_folds = table["values"], table.get("rule") is not None
    name = "held_out_loss" if with_folds else "objective"
    caption = (
        "Mean loss on the rows that a fit did not see, with its standard error over the folds, and the "
        "number of weights that are not zero. The line marks the chosen value."
        if with_folds
        else "Objective and number of weights that are not zero. Without folds nothing chooses: the model is "
        "that of the smallest value."
    )
    title = "Held-out loss over λ" if with_folds else "Objective over λ"
    alt = "; ".join(
        f"λ {format_number(row['lambda'], 4)}: {name.replace('_', ' ')} "
        f"{format_number(row[name], 5, zeros=True)}, {row['nonzero']} weights not zero"
        for row in rows
    )
    return Plot("path", title, caption, alt, partial(draw_path, table=table), wide=True, height=5.0)
