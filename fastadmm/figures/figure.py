"""Drawing as inline SVG, in the colours of the page: style, axes, and the same bytes for the same figure."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fastadmm.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

INSTALL_HINT = 'the report needs matplotlib and jinja2: pip install "fastadmm[report]"'

#: Points per line in a figure; more cannot be seen and make the page heavy.
MAX_POINTS = 2000

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
TEXT, MUTED = tuple(VARIABLES)[6:8]
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1.2, 1.4)))

#: What matplotlib draws with, in its own form.
_STYLE = Path(__file__).with_name("page.mplstyle")


def downsample(
    x: NDArray[Any], y: NDArray[np.float64], limit: int = MAX_POINTS
) -> tuple[NDArray[Any], NDArray[np.float64]]:
    """Thin a line to at most ``limit`` points without losing its ends or its extremes. Shapes: x, y (T,)."""
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


def line(
    ax: Axes,
    x: NDArray[Any],
    y: NDArray[np.float64],
    colour: str,
    *,
    dash: Any = "-",
    label: str | None = None,
) -> None:
    """Draw one line, thinned to :data:`MAX_POINTS`. Shapes: x, y (T,)."""
    # A line of few points shows them; a single point would be invisible otherwise.
    marker = "o" if np.count_nonzero(np.isfinite(y)) <= 40 else None
    x, y = downsample(x, y)
    ax.plot(x, y, color=colour, linestyle=dash, marker=marker, label=label)


def round_axes(ax: Axes, rounds: NDArray[Any], *, log: bool) -> None:
    """Label the axes of a figure against rounds. Shapes: rounds (T,)."""
    ax.set_xlabel("round")
    x_axis(ax, rounds)
    if log:
        log_axis(ax)
    else:
        from matplotlib.ticker import MaxNLocator, ScalarFormatter

        ax.yaxis.set_major_locator(MaxNLocator(nbins=6, steps=[1, 2, 2.5, 5, 10]))
        # No offset: "+0.3239" at the top of an axis is overlooked.
        formatter = ScalarFormatter(useOffset=False, useMathText=False)
        formatter.set_powerlimits((-4, 5))
        ax.yaxis.set_major_formatter(formatter)


def x_axis(ax: Axes, x: NDArray[Any], *, integer: bool = True) -> None:
    """Fit the horizontal axis to x, with readable ticks. Shapes: x (T,)."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    finite = x[np.isfinite(x)]
    low, high = float(finite.min()), float(finite.max())
    room = 0.02 * (high - low) or 0.5 * (1.0 if integer else abs(high) or 1.0)
    ax.set_xlim(low - room, high + room)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=integer, steps=[1, 2, 5, 10], min_n_ticks=1))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _thousands(value)))


def log_axis(ax: Axes) -> None:
    """Make the vertical axis logarithmic, with powers of ten as ticks (after all lines are drawn)."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    ax.set_yscale("log")
    low, high = ax.get_ylim()
    decades = math.log10(low), math.log10(high)
    if decades[1] - decades[0] < 1.3:  # within a decade or so: whole powers alone would leave the axis bare
        ax.set_ylim(10.0 ** math.floor(decades[0]), 10.0 ** min(math.ceil(decades[1]), 308))
    ax.yaxis.set_major_locator(LogLocator(numticks=8))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: power(value)))
    ax.yaxis.set_minor_locator(NullLocator())
    ax.yaxis.set_minor_formatter(NullFormatter())


def render(key: str, draw: Callable[[Figure], None], *, wide: bool = False, height: float = 2.9) -> str:
    """Draw a figure and return it as an ``<svg>`` element."""
    with _drawing():
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine

        # ``Figure`` without pyplot keeps no registry of open figures and needs no display.
        figure = Figure(
            figsize=(10.6 if wide else 5.2, height), layout=ConstrainedLayoutEngine(w_pad=0.06, wspace=0.06)
        )
        draw(figure)
        text = io.StringIO()
        figure.savefig(
            text,
            format="svg",
            metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")),
            transparent=True,
        )
    return _inline(text.getvalue(), key)


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


def _inline(svg: str, key: str) -> str:
    """Make matplotlib's SVG document an element of a page with several of them."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<style type=\"text/css\">.*?</style>", "", svg, flags=re.DOTALL)  # would style the page
    svg = re.sub(r'(<svg [^>]*?)width="[^"]*" height="[^"]*"', r"\1", svg, count=1)
    svg = svg.replace("<svg ", f'<svg role="img" aria-labelledby="{key}-alt" ', 1)

    def rewrite(match: re.Match[str]) -> str:
        tag = match[0]
        # Elements' names repeat from figure to figure; in a page they must be unique.
        tag = re.sub(r'^(<\w+ id=")', rf"\g<1>{key}-", tag)
        tag = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{key}-", tag)
        tag = tag.replace("'DejaVu Sans'", "system-ui, 'Segoe UI', 'DejaVu Sans', sans-serif")
        for colour, variable in VARIABLES.items():
            tag = tag.replace(f": {colour}", f": var({variable}, {colour})")
        return tag

    svg = re.sub(r"<[^>]*>", rewrite, svg)  # tags only: a name may look like any of the above
    return re.sub(r"\n\s*", "\n", svg).strip()


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


def power(value: float) -> str:
    """Write a number the way a logarithmic axis does: 10⁻⁶, 2.5×10⁻⁶."""
    if not 0.0 < value < math.inf:  # a tick beyond what floating point holds
        return ""
    exponent = math.floor(math.log10(value) + 1e-9)
    digits = value / 10.0**exponent
    text = "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return text if abs(digits - 1.0) < 1e-6 else f"{digits:.2g}×{text}"


def _thousands(value: float) -> str:
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}".replace(",", " ")
    return f"{value:.4g}"


# --- a regularisation path ------------------------------------------------------------------------------


def draw_path(figure: Figure, table: dict[str, Any]) -> None:
    """Draw the held-out loss (the objective of a path without folds) and the weights that are not zero."""
    rows = table["values"]
    lambdas = [row["lambda"] for row in rows]
    chosen = rows[table["chosen"]]
    loss, count = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    if table["rule"] is None:
        loss.plot(
            lambdas, [row["objective"] for row in rows], color=SERIES_COLOURS[0], marker="o", markersize=4
        )
        loss.set_ylabel("objective")
    else:
        loss.errorbar(
            lambdas,
            [row["held_out_loss"] for row in rows],
            yerr=[row["standard_error"] for row in rows],
            color=SERIES_COLOURS[0],
            marker="o",
            markersize=4,
            capsize=3,
            label="mean over folds, standard error",
        )
        loss.axvline(
            chosen["lambda"], color=TEXT, linestyle=DASHES[1], label=f"chosen: {chosen['lambda']:.3g}"
        )
        loss.set_ylabel("held-out loss")
        loss.legend()
        count.axvline(chosen["lambda"], color=TEXT, linestyle=DASHES[1])
    count.step(lambdas, [row["nonzero"] for row in rows], where="mid", color=SERIES_COLOURS[1])
    count.set_ylabel("weights not zero")
    count.set_ylim(bottom=0)
    count.set_xscale("log")
    count.set_xlabel("lambda (per mean loss)")
