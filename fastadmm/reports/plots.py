"""Figures of a run as inline SVG: the same run gives the same bytes.

The figures carry no background of their own and every colour is a CSS variable of the page
(with the light colour as its fallback), so that they follow the reader's light or dark mode.
The palette is Okabe and Ito's, and no line is told apart by its colour alone.
"""

from __future__ import annotations

import io
import math
import re
import unicodedata
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from fastadmm.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from fastadmm.reports.records import History

__all__ = ["INSTALL_HINT", "Plot", "calibration_plot", "downsample", "history_plots"]

INSTALL_HINT = 'the report needs matplotlib and jinja2: pip install "fastadmm[report]"'

#: Points per line in a figure; more cannot be seen and make the page heavy.
MAX_POINTS = 2000

#: Parties with a line and a bar of their own; the ones with the largest weights are shown.
MAX_PARTIES = 12

#: Colours as drawn, each with the CSS variable that replaces it in the page.
VARIABLES = {
    "#0072b2": "--s1",
    "#d55e00": "--s2",
    "#009e73": "--s3",
    "#cc79a7": "--s4",
    "#e69f00": "--s5",
    "#56b4e9": "--s6",
    "#24292e": "--fg",
    "#57606b": "--muted",
    "#d8dee5": "--grid",
}
SERIES_COLOURS = tuple(VARIABLES)[:6]
TEXT, MUTED, GRID = tuple(VARIABLES)[6:]
DASHES = ("-", (0, (5, 2)), (0, (1.2, 1.4)))

STYLE: dict[str, Any] = {
    "axes.axisbelow": True,
    "axes.edgecolor": MUTED,
    "axes.facecolor": "none",
    "axes.grid": True,
    "axes.labelcolor": MUTED,
    "axes.labelsize": 9,
    "axes.linewidth": 0.8,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": TEXT,
    "axes.titlelocation": "left",
    "axes.titlesize": 9.5,
    "figure.facecolor": "none",
    "font.family": ["DejaVu Sans"],  # ships with matplotlib: the layout is the same everywhere
    "font.size": 9,
    "grid.color": GRID,
    "grid.linewidth": 0.7,
    "legend.fontsize": 9,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "lines.markersize": 4,
    "savefig.facecolor": "none",
    "svg.fonttype": "none",
    "svg.hashsalt": "fastadmm",
    "text.color": TEXT,
    "text.parse_math": False,  # a party may be called "$x$"
    "xtick.color": MUTED,
    "xtick.labelsize": 8.5,
    "xtick.major.size": 3,
    "ytick.color": MUTED,
    "ytick.labelsize": 8.5,
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
}


@dataclass(frozen=True)
class Plot:
    """One figure of the page.

    Attributes
    ----------
    key : str
        Identifier, unique in the page.
    title, caption : str
        Heading and the sentence that explains what to look for. Plain text, not HTML.
    alt : str
        What the figure shows, in words, for readers who do not see it. Plain text.
    svg : str
        An ``<svg>`` element, ready for an HTML page.
    wide : bool
        Whether it takes the whole width of the page.
    """

    key: str
    title: str
    caption: str
    alt: str
    svg: str
    wide: bool = False


def downsample(
    x: NDArray[Any], y: NDArray[np.float64], limit: int = MAX_POINTS
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Thin a line to at most ``limit`` points without losing its ends or its extremes.

    Parameters
    ----------
    x, y : ndarray, shape (T,)
        The line; y may hold NaN.
    limit : int
        Largest number of points to keep, at least 4.

    Returns
    -------
    tuple of ndarray
        x and y at the kept points, in order: the first, the last, and the smallest and the
        largest value of every one of ``limit / 2 - 1`` equal pieces.
    """
    if y.size <= limit:
        return x, y
    edges = np.linspace(1, y.size - 1, limit // 2, dtype=np.intp)
    keep = {0, y.size - 1}
    for start, stop in pairwise(edges):
        piece = y[start:stop]
        if np.isnan(piece).all():
            keep.add(int(start))  # a gap in the line stays a gap
        else:
            keep.update((int(start + np.nanargmin(piece)), int(start + np.nanargmax(piece))))
    index = np.array(sorted(keep))
    return x[index], y[index]


def history_plots(history: History, target: float | None, party_names: Sequence[str]) -> list[Plot]:
    """Draw the figures that the round log has data for.

    Parameters
    ----------
    history : History
        The round log.
    target : float or None
        Relative gap that the run was asked to reach, drawn as a line.
    party_names : sequence of str
        One name per column of ``history.weight_norms``.

    Returns
    -------
    list of Plot
        Figures without a single finite value are left out.

    Raises
    ------
    ConfigError
        Matplotlib is not installed.
    """
    if not len(history):
        return []
    s, rounds = history.series, history.round
    plots: list[Plot | None] = [
        _objective(history),
        _gap(rounds, "round", s["gap"], target),
        _gap(s["seconds"], "seconds", s["gap"], target),
        _residuals(history),
        _lagrangian(history),
        _test_metrics(history),
        _weights(history, party_names),
    ]
    return [plot for plot in plots if plot is not None]


def calibration_plot(calibration: dict[str, Any]) -> Plot | None:
    """Draw observed rates against predicted probabilities.

    Parameters
    ----------
    calibration : dict
        As :func:`fastadmm.metrics.classification_metrics` returns it.

    Returns
    -------
    Plot or None
        ``None`` without bins.

    Raises
    ------
    ConfigError
        Matplotlib is not installed.
    """
    bins = calibration["bins"]
    if not bins:
        return None
    predicted = np.array([float(b["mean_predicted"]) for b in bins])
    observed = np.array([float(b["observed_rate"]) for b in bins])

    def draw(figure: Figure) -> None:
        ax = figure.add_subplot()
        ax.plot([0, 1], [0, 1], color=MUTED, linestyle=(0, (4, 3)), linewidth=1.2, label="perfect")
        ax.plot(predicted, observed, color=SERIES_COLOURS[0], marker="o", label="model")
        ax.set(xlim=(0, 1), ylim=(0, 1), xlabel="mean predicted probability", ylabel="observed rate")
        ax.legend(loc="upper left")

    error = calibration.get("expected_calibration_error")
    summary = "" if error is None else f" The expected calibration error is {error:.4f}."
    return Plot(
        key="calibration",
        title="Calibration",
        caption="Each point is a group of rows with similar predictions; on the diagonal, "
        "predicted probabilities are what is observed." + summary,
        alt=f"Observed rate against mean predicted probability in {len(bins)} groups: from "
        f"{observed[0]:.3f} at {predicted[0]:.3f} to {observed[-1]:.3f} at {predicted[-1]:.3f}.{summary}",
        svg=_render("calibration", draw),
    )


# --- the figures -------------------------------------------------------------------------------


def _objective(history: History) -> Plot | None:
    objective = _finite(history.series["objective"])
    if not _any(objective):
        return None
    bound = objective - _finite(history.series["gap_absolute"])
    # Every round proves a lower bound; the best one so far holds.
    best = np.fmax.accumulate(bound)
    log = _wide_range(objective)
    band = _any(best) and not log

    def draw(figure: Figure) -> None:
        ax = figure.add_subplot()
        _line(ax, history.round, objective, SERIES_COLOURS[0], label="objective")
        if band:
            x, y = downsample(history.round, best)
            ax.plot(
                x,
                y,
                color=SERIES_COLOURS[2],
                linestyle=DASHES[1],
                linewidth=1.4,
                label="certified lower bound",
            )
            # The first bounds can be far below anything of interest.
            low, high = np.nanmin(objective), np.nanmax(objective)
            top, bottom = high, min(low, np.nanmax(best))
            room = (top - bottom) or abs(top) * 0.05 or 1.0
            ax.set_ylim(bottom - 0.35 * room, top + 0.08 * room)
            ax.legend(loc="upper right")
        _axes(ax, history, "round", log=log)

    return Plot(
        key="objective",
        title="Objective",
        caption="Mean loss plus λ times the penalty, on the training data."
        + (" No model can lie below the certified lower bound." if band else ""),
        alt="Objective against rounds: " + _story(history.round, objective),
        svg=_render("objective", draw),
    )


def _gap(x: NDArray[Any], unit: str, gap: NDArray[np.float64], target: float | None) -> Plot | None:
    gap = _positive(gap)
    if not _any(gap) or not np.isfinite(x).any():
        return None

    def draw(figure: Figure) -> None:
        ax = figure.add_subplot()
        _line(ax, x, gap, SERIES_COLOURS[0], label="relative gap")
        if target is not None and target > 0:
            ax.axhline(target, color=SERIES_COLOURS[1], linestyle=DASHES[1], linewidth=1.4)
            ax.annotate(
                f"target {_power(target)}",
                (0, target),  # on the left, where the line has not come down yet
                xycoords=("axes fraction", "data"),
                xytext=(5, 4),
                textcoords="offset points",
                color=SERIES_COLOURS[1],
                fontsize=8.5,
            )
        ax.set_xlabel("seconds" if unit == "seconds" else "round")
        _log_axis(ax)
        _x_axis(ax, x, integer=unit == "round")

    by_time = unit == "seconds"
    return Plot(
        key="gap-time" if by_time else "gap-rounds",
        title="Relative gap against time" if by_time else "Relative gap against rounds",
        caption="Logarithmic scale. "
        + (
            "Time counts from the start of the run, pauses left out."
            if by_time
            else "A proved bound, not an estimate."
        ),
        alt=f"Relative duality gap against {'seconds' if by_time else 'rounds'}: {_story(x, gap, unit)}"
        + (f" The target is {target:.3g}." if target else ""),
        svg=_render("gap-time" if by_time else "gap-rounds", draw),
    )


def _residuals(history: History) -> Plot | None:
    lines = [
        ("primal", _positive(history.series["primal_residual"])),
        ("dual", _positive(history.series["dual_residual"])),
    ]
    lines = [(name, y) for name, y in lines if _any(y)]
    if not lines:
        return None

    def draw(figure: Figure) -> None:
        ax = figure.add_subplot()
        for k, (name, y) in enumerate(lines):
            _line(ax, history.round, y, SERIES_COLOURS[k], dash=DASHES[k], label=name)
        ax.set_xlabel("round")
        _log_axis(ax)
        _x_axis(ax, history.round)
        ax.legend(loc="best")

    return Plot(
        key="residuals",
        title="Residuals",
        caption="Primal: how far the parties' messages are from the shared predictor. "
        "Dual: how far that predictor still moves. Logarithmic scale.",
        alt=" ".join(f"{name.capitalize()} residual: {_story(history.round, y)}" for name, y in lines),
        svg=_render("residuals", draw),
    )


def _lagrangian(history: History) -> Plot | None:
    lines = [
        ("augmented Lagrangian", _finite(history.series["augmented_lagrangian"])),
        ("Lyapunov Vᵗ", _finite(history.series["lyapunov"])),
    ]
    lines = [(name, y) for name, y in lines if _any(y)]
    if not lines:
        return None
    return Plot(
        key="lagrangian",
        title="Augmented Lagrangian and Lyapunov function"
        if len(lines) == 2
        else ("Augmented Lagrangian" if lines[0][0].startswith("aug") else "Lyapunov function"),
        caption="The quantities that the convergence theory of ADMM sharing follows: "
        "Vᵗ does not increase where the theory applies.",
        alt=" ".join(f"{name[0].upper()}{name[1:]}: {_story(history.round, y)}" for name, y in lines),
        svg=_render("lagrangian", _panels(history, lines), wide=len(lines) > 1),
        wide=len(lines) > 1,
    )


def _test_metrics(history: History) -> Plot | None:
    lines = [(metric_label(name), _finite(y)) for name, y in history.test.items()]
    lines = [(name, y) for name, y in lines if _any(y)][:3]
    if not lines:
        return None
    return Plot(
        key="test",
        title="Test metrics",
        caption="Measured on the test partition after every round; never used for training.",
        alt=" ".join(f"{name}: {_story(history.round, y)}" for name, y in lines),
        svg=_render("test", _panels(history, lines), wide=len(lines) > 1),
        wide=len(lines) > 1,
    )


def _weights(history: History, party_names: Sequence[str]) -> Plot | None:
    norms = np.where(np.abs(history.weight_norms) < 1e200, history.weight_norms, np.nan)
    n_parties = norms.shape[1]
    present = np.flatnonzero(np.isfinite(norms).any(axis=1)) if n_parties else np.empty(0)
    if not present.size:
        return None
    final = norms[present[-1]]
    largest = np.argsort(-np.nan_to_num(final, nan=-1.0), kind="stable")[:MAX_PARTIES]
    shown = np.sort(largest)  # parties stay in their own order
    names = [_label(party_names[m]) for m in shown]
    style = [
        {
            "color": SERIES_COLOURS[k % len(SERIES_COLOURS)],
            "dash": DASHES[k // len(SERIES_COLOURS) % len(DASHES)],
        }
        for k in range(shown.size)
    ]

    def draw(figure: Figure) -> None:
        left, right = figure.subplots(1, 2, width_ratios=(1, 1.5))
        position = np.arange(shown.size)
        height = 0.62 if shown.size > 2 else 0.4
        colours = [s["color"] for s in style]
        widths = np.nan_to_num(final[shown])
        for y, (width, colour) in enumerate(zip(widths, colours)):
            left.barh(y, width, height=height, color=colour)
            left.annotate(
                f"{width:.3g}",
                (width, y),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize=8.5,
            )
        left.set_yticks(position, names, color=TEXT)
        left.set_ylim(max(shown.size, 3) - 0.5, -0.5)
        left.set_xlim(0, 1.22 * (widths.max() or 1.0))
        left.grid(visible=False, axis="y")
        left.set(title="After the last round", xlabel="‖weights‖")
        for m, s in zip(shown, style):
            _line(right, history.round, norms[:, m], s["color"], dash=s["dash"])
        right.set_title("History")
        _axes(right, history, "round", log=False)
        right.set_ylim(bottom=0)

    hidden = n_parties - shown.size
    return Plot(
        key="weights",
        title="Weights of the parties",
        caption="Euclidean norm of each party's weights; lines have the colour of their bar."
        + (f" The {shown.size} largest of {n_parties} parties." if hidden else ""),
        alt="Weight norms after the last round: "
        + ", ".join(f"{name} {value:.3g}" for name, value in zip(names, final[shown]))
        + (f", and {hidden} parties more." if hidden else "."),
        svg=_render("weights", draw, wide=True, height=max(2.5, 1.2 + 0.21 * shown.size)),
        wide=True,
    )


def _panels(history: History, lines: list[tuple[str, NDArray[np.float64]]]) -> Callable[[Figure], None]:
    """One panel per line, side by side: their scales have nothing in common."""

    def draw(figure: Figure) -> None:
        for k, (ax, (name, y)) in enumerate(zip(figure.subplots(1, len(lines), squeeze=False)[0], lines)):
            _line(ax, history.round, y, SERIES_COLOURS[k])
            ax.set_title(name)
            _axes(ax, history, "round", log=_wide_range(y))

    return draw


# --- drawing -----------------------------------------------------------------------------------


def _line(
    ax: Axes,
    x: NDArray[Any],
    y: NDArray[np.float64],
    colour: str,
    *,
    dash: Any = "-",
    label: str | None = None,
) -> None:
    # A line of few points shows them; a single point would be invisible otherwise.
    marker = "o" if np.count_nonzero(np.isfinite(y)) <= 40 else None
    x, y = downsample(x, y)
    ax.plot(x, y, color=colour, linestyle=dash, marker=marker, label=label)


def _axes(ax: Axes, history: History, xlabel: str, *, log: bool) -> None:
    ax.set_xlabel(xlabel)
    _x_axis(ax, history.round)
    if log:
        _log_axis(ax)
    else:
        from matplotlib.ticker import MaxNLocator, ScalarFormatter

        ax.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))
        # No offset: "+0.3239" at the top of an axis is overlooked.
        formatter = ScalarFormatter(useOffset=False, useMathText=False)
        formatter.set_powerlimits((-4, 5))
        ax.yaxis.set_major_formatter(formatter)


def _x_axis(ax: Axes, x: NDArray[Any], *, integer: bool = True) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    finite = x[np.isfinite(x)]
    low, high = float(finite.min()), float(finite.max())
    room = 0.02 * (high - low) or 0.5 * (1.0 if integer else abs(high) or 1.0)
    ax.set_xlim(low - room, high + room)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=integer, steps=[1, 2, 5, 10]))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _thousands(value)))


def _log_axis(ax: Axes) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    ax.set_yscale("log")
    low, high = ax.get_ylim()
    if high / low < 20.0:  # within a decade or so: whole powers alone would leave the axis bare
        ax.set_ylim(10 ** math.floor(math.log10(low)), 10 ** math.ceil(math.log10(high)))
    ax.yaxis.set_major_locator(LogLocator(numticks=8))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: _power(value)))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_minor_formatter(NullFormatter())


def _render(key: str, draw: Callable[[Figure], None], *, wide: bool = False, height: float = 2.9) -> str:
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError(INSTALL_HINT) from error
    # rc_context restores the settings of the program that called us. ``Figure`` without pyplot
    # keeps no registry of open figures and needs no display.
    with warnings.catch_warnings(), matplotlib.rc_context(STYLE):
        # The browser has the glyphs that matplotlib's own font lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
        figure = Figure(figsize=(10.6 if wide else 5.2, height), layout="constrained")
        figure.get_layout_engine().set(w_pad=0.06, wspace=0.06)
        draw(figure)
        text = io.StringIO()
        figure.savefig(
            text,
            format="svg",
            metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")),
            transparent=True,
        )
    return _inline(text.getvalue(), key)


def _inline(svg: str, key: str) -> str:
    """Make matplotlib's SVG document an element of a page with several of them."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<style type=\"text/css\">.*?</style>", "", svg, flags=re.DOTALL)  # would style the page
    svg = re.sub(r'(<svg [^>]*?)width="[^"]*" height="[^"]*"', r"\1", svg, count=1)
    svg = svg.replace("<svg ", f'<svg role="img" aria-labelledby="{key}-alt" ', 1)
    # Elements' names repeat from figure to figure; in a page they must be unique.
    svg = re.sub(r'\bid="', f'id="{key}-', svg)
    svg = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{key}-", svg)
    svg = svg.replace("'DejaVu Sans'", "system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif")
    for colour, variable in VARIABLES.items():
        svg = svg.replace(f": {colour}", f": var({variable}, {colour})")
    return re.sub(r"\n\s*", "\n", svg).strip()


# --- numbers and words -------------------------------------------------------------------------


def _finite(y: NDArray[np.float64]) -> NDArray[np.float64]:
    # Matplotlib's ticks overflow near the end of the floating point range.
    return np.where(np.abs(y) < 1e200, y, np.nan)


def _positive(y: NDArray[np.float64]) -> NDArray[np.float64]:
    """What a logarithmic axis can show; an exact zero becomes a gap in the line."""
    with np.errstate(invalid="ignore"):
        return np.where((y > 1e-200) & (y < 1e200), y, np.nan)


def _any(y: NDArray[np.float64]) -> bool:
    return bool(np.isfinite(y).any())


def _wide_range(y: NDArray[np.float64]) -> bool:
    """Whether a logarithmic axis suits the values."""
    finite = y[np.isfinite(y)]
    return bool(finite.min() > 0.0 and finite.max() / finite.min() > 50.0)


def _power(value: float) -> str:
    """A number as the reader would write it on a logarithmic axis: 10⁻⁶, 2.5×10⁻⁶."""
    exponent = math.floor(math.log10(value) + 1e-9)
    digits = value / 10.0**exponent
    power = "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return power if abs(digits - 1.0) < 1e-6 else f"{digits:.2g}×{power}"


def _thousands(value: float) -> str:
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}".replace(",", " ")
    return f"{value:.4g}"


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
    """Readable name of a metric, for example ``"log loss"`` for ``"log_loss"``."""
    known = {"auc": "AUC", "rmse": "RMSE", "mae": "MAE", "r2": "R²", "brier": "Brier score"}
    return known.get(name) or _label(name.replace("_", " "), 40)


def _label(name: str, limit: int = 22) -> str:
    """A name that is safe and short enough for a figure."""
    clean = "".join(
        c if not unicodedata.category(c).startswith("C") else "\N{REPLACEMENT CHARACTER}" for c in name
    )
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"
