"""Values of settings, checked one by one: key, type, range, choice, and what single settings add to that."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fastadmm.errors import ConfigError, FormatError
from fastadmm.files.reading import read_toml
from fastadmm.other_names import choose_instead, near_key
from fastadmm.settings.setting import Setting, settings_of

_BASES = (("", 1000), ("i", 1024))
_UNITS = {"": 1} | {f"{unit}{i}": base**k for k, unit in enumerate("kmgt", 1) for i, base in _BASES}
_DECIMAL = (("kB", 10**3), ("MB", 10**6), ("GB", 10**9), ("TB", 10**12))
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


_LARGEST = 10**9

#: Keys of earlier versions that decide nothing any more: directories of their runs have them.
_FORMER = ("gap_share",)

#: Values of each type, in words.
WANTED = {str: "text", dict: "a table", list: "a list", bool: "true or false", int: "a whole number"}


def check_values(family: type, values: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Values of one source, checked without regard to each other."""
    known = settings_of(family)
    checked: dict[str, Any] = {}
    for key, value in values.items():
        if key in _FORMER:
            continue
        if key not in known:
            near, note = near_key(key, known)
            hint = f"did you mean {near!r}? {note}".strip() if near else f"known keys: {', '.join(known)}"
            raise ConfigError(f"{place}: unknown key {key!r}; {hint}")
        if value is None:
            continue
        try:
            checked[known[key].name] = check_value(known[key], value)
        except ValueError as error:
            raise ConfigError(f"{place}: key {key!r}: {str(error).removeprefix(f'{key}: ')}") from None
    return checked


def read_values(family: type, path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read a TOML file as a flat dictionary; relative paths count from the file's directory."""
    try:
        values = read_toml(path)
    except FormatError as error:
        said = str(error)
        if "not TOML" in said and "UTF-8" not in said:
            said += "; a line is KEY = VALUE, with texts in quotes"
        raise ConfigError(said) from None
    for key, setting in settings_of(family).items():
        if setting.is_path and isinstance(values.get(key), str):
            values[key] = str(Path(path).parent / values[key])
    return values


def check_value(setting: Setting, value: Any) -> Any:
    """A value of one setting in the type it has inside, or ValueError."""
    kinds = setting.kinds
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise ValueError(f"{value!r} is not {setting.wanted or WANTED.get(kinds[-1], 'a number')}")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = _checked_number(setting, value)
    if setting.choices and value not in setting.allowed:
        raise ValueError(f"unknown choice {value!r}; {choose_instead(value, setting.allowed)}")
    return value if setting.check is None else setting.check(value)


def _checked_number(setting: Setting, value: float) -> float:
    # TOML's whole numbers have no limit; HDF5, C and floating point do.
    if isinstance(value, int) and abs(value) > _LARGEST:
        raise ValueError("the number is too large")
    if float in setting.kinds:
        value = float(value)
    if setting.sign == "positive" and not (0 < value < math.inf or (value == math.inf and setting.infinite)):
        raise ValueError(f"{value!r} must be positive and finite")
    if setting.sign == "not negative" and not 0 <= value < math.inf:
        wanted = "not be negative" if isinstance(value, int) else "be a finite number, not negative"
        raise ValueError(f"{value!r} must {wanted}")
    if not (math.isfinite(value) or setting.infinite):
        raise ValueError(f"{value!r} must be a finite number")
    if setting.most is not None and setting.most < abs(value) < math.inf:
        raise ValueError(f"{value!r} is above {setting.most:g}")
    if setting.below is not None and not value < setting.below:
        raise ValueError(f"{value!r} must be below {setting.below:g}")
    return value


def check_parameter(name: str, setting: Setting, value: Any) -> Any:
    """A value from Python as that of a setting, of which None may be the default."""
    try:
        value = value.item() if getattr(value, "shape", None) == () else value  # of NumPy
        return value if value is None is setting.default else check_value(setting, value)
    except ValueError as error:
        raise ConfigError(f"{name}: {error}") from None
