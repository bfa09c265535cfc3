"""Drawing as SVG: style, axes, and the same bytes for the same figure."""

from __future__ import annotations

import base64
import io
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

#: Colours of lines, and of what helps to read them.
SERIES_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
MUTED = "#57606b"
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


def render(draw: Callable[[Figure], None], *, wide: bool = False, height: float = 2.9) -> str:
    """Draw a figure and return it as an address that holds all of it, as SVG."""
    with _drawing():
        from matplotlib.figure import Figure
        from matplotlib.layout_engine import ConstrainedLayoutEngine

        # ``Figure`` without pyplot keeps no registry of open figures and needs no display.
        figure = Figure(
            figsize=(10.6 if wide else 5.2, height), layout=ConstrainedLayoutEngine(w_pad=0.06, wspace=0.06)
        )
        draw(figure)
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    content = base64.b64encode(text.getvalue().encode("utf-8", "replace"))
    return f"data:image/svg+xml;base64,{content.decode()}"


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
