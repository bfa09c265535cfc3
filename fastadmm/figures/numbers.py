"""Numbers as text for the report."""

from __future__ import annotations

import math
import unicodedata
from typing import Any

#: Stands for a value that is not there.
NONE = "–"


def format_number(value: Any, digits: int = 4, *, zeros: bool = False) -> str:
    """Write a number for readers: thin spaces in thousands, powers of ten where it is small or large."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return NONE
    if isinstance(value, float) and math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == int(value) and abs(value) < 1e15 and not zeros:
        return f"{int(value):,}".replace(",", "\N{NARROW NO-BREAK SPACE}").replace("-", "−")
    value = float(value)
    if 1e-3 <= abs(value) < 1e6 or value == 0.0:
        if abs(value) >= 10**digits:
            return f"{value:.0f}".replace("-", "−")
        return (f"{value:#.{digits}g}" if zeros else f"{value:.{digits}g}").rstrip(".").replace("-", "−")
    mantissa, exponent = f"{value:.{min(digits, 4) - 1}e}".split("e")
    if not zeros and "." in mantissa:
        mantissa = mantissa.rstrip("0").rstrip(".")
    power = "10" + str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return power if mantissa == "1" else f"{mantissa.replace('-', '−')}×{power}"


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
    percent = round_up(100.0 * fraction)
    text = format_number(percent)
    if 1e-7 <= percent < 1e6:
        text = f"{percent:.9f}".rstrip("0").rstrip(".") if percent < 10 else f"{percent:.0f}"
    return f"{text}\N{NO-BREAK SPACE}%"


def format_duration(seconds: float | None) -> str:
    """Write a duration in the unit that suits it."""
    if seconds is None:
        return NONE
    for most, factor, unit in ((1e-3, 1e6, "µs"), (1.0, 1e3, "ms"), (60.0, 1.0, "s")):
        if seconds < most:
            return f"{factor * seconds:.3g} {unit}"
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
