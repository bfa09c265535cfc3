"""Values of settings, checked one by one: key, type, range, choice."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastadmm.errors import ConfigError, FormatError
from fastadmm.files.reading import read_toml
from fastadmm.other_names import choose_instead, near_key
from fastadmm.settings.setting import Setting, settings_of

_LARGEST = 10**9

#: Keys of earlier versions that decide nothing any more: directories of their runs have them.
_FORMER = ("gap_share",)

_WANTED = {str: "text", dict: "a table", list: "a list", bool: "true or false", int: "a whole number"}


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
        how = (
            "; a line is KEY = VALUE, with texts in quotes"
            if "not TOML" in str(error) and "UTF-8" not in str(error)
            else ""
        )
        raise ConfigError(f"{error}{how}") from None
    for key, setting in settings_of(family).items():
        if setting.is_path and isinstance(values.get(key), str):
            values[key] = str(Path(path).parent / values[key])
    return values


def check_value(setting: Setting, value: Any) -> Any:
    """A value of one setting in the type it has inside, or ValueError."""
    kinds = setting.kinds
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        raise ValueError(f"{value!r} is not {setting.wanted or _WANTED.get(kinds[-1], 'a number')}")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = _checked_number(setting, value)
    if setting.choices and value not in setting.allowed:
        raise ValueError(f"unknown {setting.noun} {value!r}; {choose_instead(value, setting.allowed)}")
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
