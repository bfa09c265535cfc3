"""Numbers as text for the report."""

from __future__ import annotations

import math
import unicodedata
from typing import Any

#: Stands for a value that is not there.
NONE = "–"


def format_number(value: Any, digits: int = 4, *, zeros: bool = False) -> str:
    """Write a number for readers: thin spaces in thousands, an exponent where it is small or large."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return NONE
    sign = "−" if value < 0 else ""
    if isinstance(value, float) and math.isinf(value):
        return f"{sign}∞"
    if value == int(value) and abs(value) < 1e15 and not zeros:
        return sign + f"{abs(int(value)):,}".replace(",", "\N{NARROW NO-BREAK SPACE}")
    form = ".0f" if 10**digits <= abs(value) < 1e6 else f"{'#' if zeros else ''}.{digits}g"
    return sign + f"{abs(float(value)):{form}}".rstrip(".")


def round_up(value: float, digits: int = 2) -> float:
    """Round away from zero: a bound must stay one after rounding."""
    if value <= 0.0 or not math.isfinite(value):
        return value
    rounded = float(f"{value:.{digits - 1}e}")
    if rounded < value:
        rounded += 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return float(f"{rounded:.{digits - 1}e}")


def format_percent(fraction: float) -> str:
    """Write a bound in percent, rounded up to two digits."""
    return f"{format_number(round_up(100.0 * fraction))}\N{NO-BREAK SPACE}%"


def format_duration(seconds: float | None) -> str:
    """Write a duration in the unit that suits it."""
    if seconds is None:
        return NONE
    if seconds < 60.0:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def told(value: Any) -> str:
    """A setting as the reader would write it."""
    if value is None or isinstance(value, bool):
        return {None: NONE, True: "yes", False: "no"}[value]
    if isinstance(value, list | tuple):
        return ", ".join(map(told, value)) or NONE
    if isinstance(value, dict):
        return ", ".join(f"{key} = {told(item)}" for key, item in value.items()) or NONE
    return str(value)


def plain_value(value: Any) -> bool:
    """Whether a metric is one number, or none."""
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def metric_label(name: str) -> str:
    """Return the readable name of a metric, for example ``"log loss"`` for ``"log_loss"``."""
    known = {"auc": "AUC", "rmse": "RMSE", "mae": "MAE", "r2": "R²", "d2": "D²", "brier": "Brier score"}
    return known.get(name) or safe_label(name.replace("_", " "), 40)


def safe_label(name: str, limit: int = 22) -> str:
    """Return a name that is safe and short enough for a figure."""
    bad = "\N{REPLACEMENT CHARACTER}"
    clean = "".join(bad if unicodedata.category(c) in ("Cc", "Cs") else c for c in name)
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"
