"""Public descriptions of columns: bounds, categories and fill values written by a person, none learned.

A description is a TOML file with a table ``[columns.NAME]`` for each column. It encodes each cell without
looking at other rows, so that one record changes only its own row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from pathlib import Path
from shlex import quote
from typing import Any

from fastadmm.data_tools.encoding import checked
from fastadmm.data_tools.suggest import nearest
from fastadmm.data_tools.tables import Table, canonical_text
from fastadmm.errors import ConfigError, FormatError
from fastadmm.files.atomic import shown
from fastadmm.files.reading import read_toml
from fastadmm.store.encoder import DESCRIBED, OTHER, ColumnEncoding, Encoder

_KEYS = {"number": ("low", "high", "fill"), "category": ("levels", "fill")}


@dataclass(frozen=True)
class Description:
    """What a file says about columns."""

    path: str  # for messages
    columns: dict[str, ColumnEncoding]  # by the name in the file

    @property
    def categories(self) -> list[str]:
        """Columns whose cells are read as text."""
        return [column.name for column in self.columns.values() if column.levels is not None]

    def encoder(
        self,
        table: Table,
        columns: Sequence[str],
        shown_as: Mapping[str, str] | None = None,
    ) -> Encoder:
        """The encoder of one party's columns; nothing in it comes from their cells."""
        encodings = []
        for name in columns:
            own = (shown_as or {}).get(name, "")
            key = own if own in self.columns else name
            if key not in self.columns:
                raise ConfigError(
                    f"{self.path}: column {name!r} of {table.path} is not described: describe it, or "
                    f"leave it out with --drop {quote(name)}"
                )
            encodings.append(replace(self.columns[key], name=name, shown=own))
        return checked(Encoder(tuple(encodings), DESCRIBED), table)


def read_description(path: str | Path, drop: Sequence[str] = ()) -> Description:
    """Read a description."""
    try:
        values = read_toml(path)
    except FormatError as error:
        raise ConfigError(str(error)) from None
    tables = values.pop("columns", None)
    if values or not isinstance(tables, dict) or not all(isinstance(t, dict) for t in tables.values()):
        raise ConfigError(f"{shown(path)}: give one table [columns.NAME] for each column, and nothing else")
    kept = {n: t for n, t in tables.items() if not {n, n.partition(".")[2]} & set(drop)}
    place = shown(path)
    return Description(
        place, {name: _column(name, t, f"{place}: column {name!r}") for name, t in kept.items()}
    )


def _column(name: str, table: Mapping[str, Any], place: str) -> ColumnEncoding:
    kind = table.get("type")
    if not isinstance(kind, str) or kind not in _KEYS:
        raise ConfigError(f'{place}: key \'type\': give "number" or "category"')
    for key in table:
        if key not in ("type", *_KEYS[kind]):
            raise ConfigError(f"{place}: unknown key {key!r}; a {kind} has {', '.join(_KEYS[kind])}")
    return _number(name, table, place) if kind == "number" else _category(name, table, place)


def _number(name: str, table: Mapping[str, Any], place: str) -> ColumnEncoding:
    if "low" not in table or "high" not in table:
        raise ConfigError(
            f"{place}: no bounds: give low and high, from public knowledge and not from the rows, or leave "
            f"the column out with --drop {quote(name)}"
        )
    low, high = (_real(table[key], f"{place}: key {key!r}") for key in ("low", "high"))
    if not low < high or not isfinite(high - low):
        raise ConfigError(f"{place}: low = {low:g} must be below high = {high:g}")
    fill = _real(table["fill"], f"{place}: key 'fill'") if "fill" in table else low + (high - low) / 2.0
    if not low <= fill <= high:
        raise ConfigError(f"{place}: key 'fill': {fill:g} is not between low = {low:g} and high = {high:g}")
    return ColumnEncoding(name, fill=fill, low=low, high=high)


def _category(name: str, table: Mapping[str, Any], place: str) -> ColumnEncoding:
    given = table.get("levels")
    if not isinstance(given, list) or not given:
        raise ConfigError(
            f"{place}: no levels: give the list of categories, from public knowledge and not from the rows, "
            f"or leave the column out with --drop {quote(name)}"
        )
    levels = [_text(level, f"{place}: key 'levels'") for level in given]
    for level in levels:
        if levels.count(level) > 1:
            raise ConfigError(f"{place}: key 'levels': {level!r} is given twice")
    if OTHER not in levels:
        levels.append(OTHER)
    fill = _text(table.get("fill", OTHER), f"{place}: key 'fill'")
    if fill not in levels:
        raise ConfigError(f"{place}: key 'fill': {fill!r} is none of the levels{nearest(fill, levels)}")
    return ColumnEncoding(name, tuple(levels), fill_level=levels.index(fill), other=levels.index(OTHER))


def _real(value: Any, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= 1e300:
        raise ConfigError(f"{place}: {value!r} is not a finite number")
    return float(value)


def _text(value: Any, place: str) -> str:
    text = canonical_text(str(value).strip()) if isinstance(value, str | int | float) else ""
    if not text or isinstance(value, bool) or "\0" in text:
        raise ConfigError(f"{place}: {value!r} is not the text of a category")
    return text
