"""Splitting columns between parties."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from fastadmm.data_tools.blocks import Rows
from fastadmm.data_tools.columns import nearest
from fastadmm.errors import ConfigError, InputError

_WIDTHS = re.compile(r"\s*[+-]?\d+\s*(,\s*[+-]?\d+\s*)*,?\s*\Z")


@dataclass(frozen=True)
class PartyColumns:
    """Columns of one party."""

    name: str  # the party's name
    columns: slice | np.ndarray  # a range of columns, or their numbers in the party's order (int64)
    width: int  # number of columns

    def take(self, X: Rows) -> Rows:
        """The party's columns of a block."""
        part: Any = X[:, self.columns]
        if isinstance(X, np.ndarray):
            return np.asarray(part)
        if isinstance(self.columns, slice):  # sorted as X is
            part.has_sorted_indices = part.has_canonical_format = True
        else:
            part.sort_indices()
        return part


def is_widths(spec: str) -> bool:
    """Whether a column specification is a list of widths (``"66,57"``) and not of names."""
    return bool(_WIDTHS.match(spec))


def parse_widths(spec: str) -> list[int]:
    """Parse widths."""
    if not is_widths(spec):
        raise ConfigError(f"--columns {spec!r}: expected widths such as 66,57")
    widths = [int(part) for part in spec.split(",") if part.strip()]
    for number, width in enumerate(widths, start=1):
        if width < 1:
            problem = f"party {number} has width {width}; every party needs a column"
            raise ConfigError(f"--columns {spec!r}: {problem}")
    return widths


def equal_widths(n_parties: int, n_features: int) -> list[int]:
    """Split columns into nearly equal consecutive blocks."""
    if n_parties < 1:
        raise ConfigError(f"--parties {n_parties}: at least one party is needed")
    if n_parties > n_features:
        raise InputError(f"{n_parties} parties, but only {n_features} feature columns: every party needs one")
    base, extra = divmod(n_features, n_parties)
    return [base + 1] * extra + [base] * (n_parties - extra)


def parse_names(names: str | None, n_parties: int) -> list[str]:
    """Names of the parties."""
    if names is None:
        return [f"party-{i}" for i in range(1, n_parties + 1)]
    parts = [part.strip() for part in names.split(",")]
    if len(parts) != n_parties:
        raise ConfigError(f"--names {names!r}: {len(parts)} names for {n_parties} parties")
    lowered = [part.lower() for part in parts]
    for part in parts:
        # The name becomes a file name, next to labels.h5.
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", part) or part.lower() == "labels":
            raise ConfigError(
                f"--names: {part!r} cannot name a party: use letters, digits, '-', '_' and '.' (not 'labels')"
            )
        if lowered.count(part.lower()) > 1:
            raise ConfigError(f"--names: {part!r} is given twice")
    return parts


def by_widths(
    widths: Sequence[int], names: Sequence[str], n_features: int | None = None
) -> list[PartyColumns]:
    """Consecutive column ranges."""
    *ends, total = accumulate(widths, initial=0)
    if n_features is not None and total != n_features:
        added = f"{'+'.join(map(str, widths))} = {total}"
        raise InputError(f"widths {added} do not add up to the {n_features} feature columns")
    return [PartyColumns(n, slice(start, start + w), w) for n, w, start in zip(names, widths, ends)]


def by_names(
    lists: Sequence[Sequence[str]], names: Sequence[str], columns: Sequence[str]
) -> list[PartyColumns]:
    """Columns picked by name."""
    position = {column: i for i, column in enumerate(columns)}
    owner: dict[str, int] = {}
    result = []
    for number, (party, wanted) in enumerate(zip(names, lists), start=1):
        if not wanted:
            raise InputError(f"party {number} has no columns")
        for column in wanted:
            if column not in position:
                raise InputError(f"no feature column {column!r} for party {number}{nearest(column, columns)}")
            if (other := owner.setdefault(column, number)) != number or wanted.count(column) > 1:
                raise InputError(f"column {column!r} is given twice, to party {other} and to party {number}")
        result.append(PartyColumns(party, np.array([position[column] for column in wanted]), len(wanted)))
    if rest := [column for column in columns if column not in owner]:
        more = f" and {len(rest) - 20} more" if len(rest) > 20 else ""
        remedy = "give them to a party or leave them out with --drop"
        raise InputError(f"columns of no party: {','.join(rest[:20])}{more}: {remedy}")
    return result


def split_names(spec: str) -> list[list[str]]:
    """Parse lists of column names; empty ones are kept, so that ``"a,b;"`` is refused and not repaired."""
    return [[part.strip() for part in party.split(",") if part.strip()] for party in spec.split(";")]


def party_columns(
    columns: str | None,
    parties: int | None,
    names: str | None,
    features: Sequence[str] | None,
    n_features: int,
) -> list[PartyColumns]:
    """Who has which columns, by names, widths or the number of parties."""
    if columns is not None and not is_widths(columns):
        if features is None:
            problem = "this format has no column names; give widths such as 66,57"
            raise InputError(f"--columns {columns!r}: {problem}")
        lists = split_names(columns)
        return by_names(lists, parse_names(names, len(lists)), features)
    widths = parse_widths(columns) if columns is not None else equal_widths(parties or 0, n_features)
    return by_widths(widths, parse_names(names, len(widths)), n_features)
