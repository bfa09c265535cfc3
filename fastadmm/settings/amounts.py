"""Amounts of memory, as people write them."""

from __future__ import annotations

import re
from collections.abc import Callable

from fastadmm.errors import ConfigError

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12} | {
    "ki": 2**10,
    "mi": 2**20,
    "gi": 2**30,
    "ti": 2**40,
}
_DECIMAL = (("kB", 10**3), ("MB", 10**6), ("GB", 10**9))
_AMOUNT = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([kmgt]i?|)b?\s*", re.IGNORECASE)


def parse_bytes(text: str) -> int:
    """Bytes of an amount such as ``"2GB"`` (2 * 10**9) or ``"512MiB"`` (512 * 2**20)."""
    match = _AMOUNT.fullmatch(text)
    if match is None:
        raise ConfigError(f"memory: {text!r} is not an amount of memory; write for example 2GB or 512MiB")
    amount = int(float(match[1]) * _UNITS[match[2].lower()])
    if amount < 1:
        raise ConfigError(f"memory: {text!r} must be positive; write for example 2GB or 512MiB")
    return amount


def format_bytes(count: int, rounding: Callable[[float], float] = round) -> str:
    """Bytes for people, in the units of :func:`parse_bytes`: ``format_bytes(1_300_000) == '1.3 MB'``."""
    if count < 1000:
        return f"{count} B"
    unit, size = next(((u, s) for u, s in _DECIMAL if count < 1000 * s), _DECIMAL[-1])
    return f"{rounding(count / size * 10) / 10:.1f} {unit}"
