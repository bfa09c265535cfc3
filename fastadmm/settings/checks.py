"""Checks of single settings beyond type and range, which raise ValueError, and readers of their texts."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

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


#: Beyond it squares of lambda N overflow.
LARGEST_FACTOR = 1e100


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _each(table: dict[str, Any], good: Callable[[Any], bool], rule: str, of: str = "") -> dict[str, Any]:
    """A table whose values are all good."""
    for name, value in table.items():
        if not good(value):
            raise ValueError(f"{value!r} of {of}{name!r} {rule}")
    if not table and not of:
        raise ValueError("the table is empty; name a party, or leave the key out")
    return table


def own_lambdas(table: dict[str, Any]) -> dict[str, Any]:
    """Positive numbers by party."""
    rule = f"must be a positive number, at most {LARGEST_FACTOR:g}"
    fits = {name: _is_number(value) and abs(value) <= LARGEST_FACTOR for name, value in table.items()}
    real = {name: float(value) if fits[name] else value for name, value in table.items()}
    return _each(real, lambda value: _is_number(value) and 0 < value <= LARGEST_FACTOR, rule)


def cluster(text: str) -> str:
    """Where workers are."""
    if text not in ("none", "mpi"):
        gone = "Dask is supported no more" if text.startswith("dask") else f"unknown cluster {text!r}"
        raise ValueError(f"{gone}; choose mpi or none")
    return text


def own_constraints(table: dict[str, Any]) -> dict[str, Any]:
    """Texts by party."""
    return _each(table, lambda text: isinstance(text, str), "is not text, such as 'box:0,1'")


def groups(parties: list[Any]) -> list[Any]:
    """Lists of lists of lists of column numbers; which ones there are, the data say."""

    def lists(values: Any) -> bool:
        return isinstance(values, list) and all(isinstance(value, list) for value in values)

    for k, party in enumerate(parties):
        numbers = [j for group in party for j in group] if lists(party) else [None]
        if not all(isinstance(j, int) and not isinstance(j, bool) and j >= 0 for j in numbers):
            raise ValueError(f"entry {k} is not a list of groups, each a list of column numbers from 0")
    return parties


def class_weights(weights: str | dict[str, Any]) -> str | dict[str, Any]:
    """``"balanced"`` or a factor for each class."""
    if isinstance(weights, str):
        if weights != "balanced":
            raise ValueError(f"{weights!r} is neither 'balanced' nor a table of numbers")
        return weights
    rule = "must be a finite number, at least 0"
    return _each(weights, lambda value: _is_number(value) and 0 <= value < math.inf, rule, "class ")


def amount_of_memory(text: str) -> str:
    """An amount such as ``2GB``."""
    parse_bytes(text)
    return text


def share_or_partition(value: float | str) -> float | str:
    """A share of the rows, strictly between 0 and 1, or the name of a partition."""
    if isinstance(value, float) and not 0 < value < 1:
        raise ValueError(f"the share {value!r} must be between 0 and 1")
    return value


def grid(values: list[Any]) -> list[Any]:
    """Distinct positive numbers."""
    if not values or not all(_is_number(v) and 0 < v < math.inf for v in values):
        raise ValueError(f"{values!r} must be positive, finite numbers")
    if len(set(values)) < len(values):
        raise ValueError(f"{values!r} has a value twice")
    return values


def folds(count: int) -> int:
    """None, or at least two."""
    if count == 1:
        raise ValueError("1 fold leaves no rows to train on; give 0 for none, or 2 at least")
    return count


def names_of_losses() -> tuple[str, ...]:
    """What a loss may be called."""
    from fastadmm.problem.losses import LOSSES

    return ("auto", *LOSSES)


def names_of_regularizers() -> tuple[str, ...]:
    """What a regulariser may be called."""
    from fastadmm.problem.regularizers import REGULARIZERS

    return tuple(REGULARIZERS)
