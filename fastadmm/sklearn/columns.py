"""Who holds which columns: from ``parties=`` to one array of column numbers per party."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from numbers import Integral, Number
from typing import Any

import numpy as np

from fastadmm.errors import ConfigError, InputError

Array = np.ndarray

#: What ``parties`` may be.
Parties = int | Sequence[Any] | Mapping[str, Any] | None

#: Error messages list at most this many columns, and characters of a cell.
_SHOWN, _CUT = 5, 40


def resolve_parties(parties: Any, n_features: int, names: Sequence[str] | None = None) -> list[Array]:
    """Assign every column of a matrix to exactly one party."""
    if parties is None:
        return [np.arange(n_features)]
    if _is_number(parties):
        if not 1 <= parties <= n_features:
            raise ConfigError(f"parties: {parties} blocks cannot be cut from {n_features} columns")
        return list(np.array_split(np.arange(n_features), int(parties)))
    if isinstance(parties, Mapping):
        if not all(isinstance(name, str) and name for name in parties):
            raise ConfigError(f"parties: the keys {list(parties)!r} are not all names of parties")
        single = {m for m, own in parties.items() if isinstance(own, str) or _is_number(own)}
        named = {repr(m): [own] if m in single else own for m, own in parties.items()}
    elif not isinstance(parties, list | tuple | np.ndarray) or getattr(parties, "ndim", 1) == 0:
        raise ConfigError(
            f"parties: {parties!r} is neither a number of blocks, nor widths such as [66, 57], "
            "nor lists of columns such as [[0, 2], [1]]"
        )
    elif len(parties) and all(map(_is_number, parties)):
        widths = [int(width) for width in parties]
        if (least := min(widths)) < 1:
            raise ConfigError(f"parties: width {least} in {widths}; every party needs at least one column")
        if sum(widths) != n_features:
            raise ConfigError(
                f"parties: the widths {widths} add up to {sum(widths)}, but X has {n_features} columns"
                " (columns by number are lists within the list, such as [[0, 2], [1]])"
            )
        return consecutive(widths)
    else:
        named = {str(m): own for m, own in enumerate(parties, 1)}
    if not named:
        raise ConfigError("parties: the list is empty; give at least one party or None")
    number_of = {} if names is None else {name: j for j, name in enumerate(names)}
    held = {m: _columns(own, m, n_features, number_of) for m, own in named.items()}
    _check_each_once(held, range(n_features) if names is None else names)
    return [np.array(own, dtype=np.intp) for own in held.values()]


def _columns(own: Any, m: str, n_features: int, number_of: Mapping[str, int]) -> list[int]:
    """Column numbers of one party: of names or numbers, or of a slice of either."""

    def number(member: Any) -> int:
        if isinstance(member, str):
            if member in number_of:
                return number_of[member]
            why = "which X does not have" if number_of else "but the columns of X have no names"
            raise ConfigError(f"parties: party {m} names column {member!r}, {why}")
        if not _is_number(member):
            raise ConfigError(f"parties: {member!r} of party {m} is neither a column name nor a number")
        if not 0 <= member < n_features:
            raise ConfigError(f"parties: column {member} of party {m} is outside 0 ... {n_features - 1}")
        return int(member)

    if isinstance(own, slice):
        first, last = (number(end) if isinstance(end, str) else end for end in (own.start, own.stop))
        last = last + 1 if isinstance(own.stop, str) else last
        own = range(n_features)[first : last : own.step]
    if isinstance(own, str | bytes | Mapping) or not isinstance(own, Iterable):
        raise ConfigError(f"parties: party {m} is {own!r}; expected a list of column names or numbers")
    if not (columns := [number(member) for member in own]):
        raise ConfigError(f"parties: party {m} has no columns")
    return columns


def _check_each_once(held: Mapping[str, list[int]], names: Sequence[Any]) -> None:
    """Refuse columns that belong to no party, or to two."""
    owner: dict[int, str] = {}
    for m, columns in held.items():
        for j in columns:
            if j in owner:
                raise ConfigError(
                    f"parties: column {names[j]!r} is given to party {owner[j]} and again to party {m}; "
                    "each column belongs to one party"
                )
            owner[j] = m
    if missing := [repr(name) for j, name in enumerate(names) if j not in owner]:
        shown = ", ".join(missing[:_SHOWN] + ["..."] * (len(missing) > _SHOWN))
        raise ConfigError(
            f"parties: {len(missing)} of {len(names)} columns belong to no party: {shown}; "
            "assign them or drop them from X"
        )


def _is_number(entry: Any) -> bool:
    return isinstance(entry, Integral) and not isinstance(entry, bool | np.bool_)


def party_names(named: Any, count: int) -> list[str]:
    """The keys of a dict; otherwise numbers count as names."""
    return list(named) if isinstance(named, Mapping) else [f"party-{m + 1}" for m in range(count)]


def consecutive(widths: Iterable[int]) -> list[Array]:
    """Column numbers of blocks of the given widths, side by side."""
    bounds = np.cumsum([0, *widths])
    return [np.arange(start, stop) for start, stop in pairwise(bounds)]


def take_columns(X: Any, columns: Array) -> Any:
    """Columns of an N x d ndarray or CSR matrix; a view where they are consecutive and X is dense."""
    start = int(columns[0])
    if np.array_equal(columns, np.arange(start, start + len(columns))):
        return X if len(columns) == X.shape[1] else X[:, start : start + len(columns)]
    return X[:, columns]


def check_index(tables: Mapping[Any, Any], y: Any = None, **beside: Any) -> None:
    """Refuse tables, and Series beside them, whose rows are not the same samples in the same order.

    A single table is that of the key None. An index that only counts rows says nothing, unless the other has
    the same numbers in another order.
    """
    import pandas as pd

    framed = [(m, table.index) for m, table in tables.items() if isinstance(table, pd.DataFrame)]
    if not framed:
        return
    first, index = framed[0]
    place = "X" if first is None else f"X[{first!r}]"
    others = [(f"X[{m!r}]", own) for m, own in framed[1:]]
    counts = pd.RangeIndex(len(index))
    for name, value in {"y": y, **beside}.items():
        if isinstance(value, (pd.Series, pd.DataFrame)):
            silent = value.index.equals(counts) or (first is None and index.equals(counts))
            if not silent or set(value.index) == set(index):
                others.append((name, value.index))
    for name, own in others:
        if len(own) == len(index) and not own.equals(index):
            pairs = list(zip(index.tolist(), own.tolist()))
            row = next((k for k, (one, other) in enumerate(pairs) if one != other), 0)
            raise InputError(
                f"X: row {row} has the index {pairs[row][0]!r} in {place}, but {pairs[row][1]!r} in {name}: "
                f"bring the rows into one order, for example with .loc[{place}.index], or drop the index "
                "with reset_index(drop=True) if they are in one order"
            )


def check_columns(tables: Mapping[Any, Any]) -> None:
    """Name the column of a DataFrame that holds no numbers, or has another's name."""
    import pandas as pd

    for m, table in tables.items():
        if not isinstance(table, pd.DataFrame):
            continue
        place = "X" if m is None else f"X[{m!r}]"
        if twice := [name for name, count in Counter(table.columns).items() if count > 1]:
            raise InputError(f"{place}: several columns are named {twice[0]!r}: rename all but one")
        for name, dtype in table.dtypes.items():
            try:
                if dtype.kind in "mM":
                    raise TypeError
                if dtype.kind not in "biufc":
                    table[name].astype(float)
            except (TypeError, ValueError):
                what = "dates or times" if dtype.kind in "mM" else "not numbers"
                cells = (str(cell)[:_CUT] for cell in table[name] if not isinstance(cell, Number))
                raise InputError(
                    f"{place}: column {name!r}: {what}, such as {next(cells, '')!r}: make numbers of them, "
                    "for example by OneHotEncoder, or drop the column"
                ) from None


def tables_of(X: Any, names: Sequence[str] | None = None) -> dict[Any, Any] | None:
    """Each party's table by its number in a list or its name in a dict, as ``names`` lists them, if given.

    Returns: None where X is one matrix, as a list of rows is.
    """
    if isinstance(X, (list, tuple)):
        return dict(enumerate(X)) if any(_is_table(block) for block in X) else None
    if not isinstance(X, Mapping) or _is_table(X):  # SciPy's matrix of keys is a dict, too
        return None
    for name, table in X.items():
        if not isinstance(name, str) or not name:
            raise InputError(f"X: the key {name!r} is not the name of a party")
        if not _is_table(table):
            raise InputError(f"X[{name!r}]: not an array, sparse matrix or DataFrame of two dimensions")
    names = list(X) if names is None else names
    if not X or set(names) != set(X):
        raise InputError(f"X: tables of parties {list(X)}, but expected one of each of {list(names)}")
    return {name: X[name] for name in names}


def _is_table(block: Any) -> bool:
    return len(getattr(block, "shape", ())) == 2


def block_names(blocks: Sequence[Any], parties: Sequence[str]) -> list[str] | None:
    """Column names of all blocks, after their party's where several share one; None unless all have names."""
    names = [list(getattr(block, "columns", ())) for block in blocks]
    if not all(own and all(isinstance(name, str) for name in own) for own in names):
        return None
    held = Counter(name for own in names for name in set(own))
    return [f"{m}.{name}" if held[name] > 1 else name for m, own in zip(parties, names) for name in own]
