"""Drawing as inline SVG, in the colours of the page: style, axes, and the same bytes for the same figure."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


def line(
    ax: Axes,
    x: NDArray[Any],
    y: NDArray[np.float64],
    colour: str,
    *,
    dash: Any = "-",
    label: str | None = None,
) -> None:
    """Draw one line, thinned to about :data:`MAX_POINTS` with its ends. Shapes: x, y (T,)."""
    # A line of few points shows them; a single point would be invisible otherwise.
    marker = "o" if np.count_nonzero(np.isfinite(y)) <= 40 else None
    kept = np.unique(np.linspace(0, y.size - 1, min(y.size, MAX_POINTS)).astype(np.intp))
    ax.plot(x[kept], y[kept], color=colour, linestyle=dash, marker=marker, label=label)


def label_axes(ax: Axes, xlabel: str, *, log: bool) -> None:
    """Name the horizontal axis, and make the vertical one logarithmic or not."""
    from matplotlib.ticker import MaxNLocator

    ax.set_xlabel(xlabel)
    ax.xaxis.set_major_locator(MaxNLocator(nbins=7, integer=xlabel == "round"))
    if log:
        ax.set_yscale("log")
        ax.yaxis.set_major_formatter("{x:g}")
        ax.yaxis.set_minor_formatter("")


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
