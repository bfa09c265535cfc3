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


def resolve_parties(
    parties: Any, n_features: int, names: Sequence[str] | None = None, X: Any = None
) -> list[Array]:
    """Assign every column of a matrix to exactly one party."""
    if parties is None:
        return [np.arange(n_features)]
    if isinstance(parties, Integral) and not isinstance(parties, bool):
        count = int(parties)
        if not 1 <= count <= n_features:
            raise ConfigError(f"parties: {count} blocks cannot be cut from {n_features} columns")
        return list(np.array_split(np.arange(n_features), count))
    labels: Sequence[Any] | None = None
    if isinstance(parties, dict):
        labels = [repr(name) for name in parties]
        if not all(isinstance(name, str) and name for name in parties):
            raise ConfigError(f"parties: the keys {list(parties)!r} are not all names of parties")
        parties = [[entry] if isinstance(entry, (str, Integral)) else entry for entry in parties.values()]
    entries = _entries(parties, "parties")
    if entries is None:
        raise ConfigError(
            f"parties: {parties!r} is neither a number of blocks, nor widths such as [66, 57], "
            "nor lists of columns such as [[0, 2], [1]]"
        )
    if not entries:
        raise ConfigError("parties: the list is empty; give at least one party or None")
    if all(_is_number(entry) for entry in entries):
        return _from_widths([int(width) for width in entries], n_features)
    chosen = [_chosen(entry, n_features, names, X) for entry in entries]
    return _from_lists(chosen, n_features, names, labels or range(1, len(chosen) + 1))


def _chosen(entry: Any, n_features: int, names: Sequence[str] | None, X: Any) -> Any:
    """What a slice or a column selector chooses; anything else as it is."""
    if callable(entry):
        if not hasattr(X, "columns"):
            raise ConfigError("parties: a column selector needs X to be a DataFrame")
        return list(entry(X))
    if not isinstance(entry, slice):
        return entry
    if not any(isinstance(end, str) for end in (entry.start, entry.stop)):
        return list(range(n_features))[entry]
    known = [] if names is None else list(names)
    for end in (entry.start, entry.stop):
        if end is not None and end not in known:
            raise ConfigError(f"parties: {entry!r} names column {end!r}, which X does not have")
    start = 0 if entry.start is None else known.index(entry.start)
    stop = n_features if entry.stop is None else known.index(entry.stop) + 1
    return list(range(start, stop, entry.step or 1))


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


def in_feature_order(values: Any, names: Sequence[str] | None, what: str) -> Any:
    """Weights of features; a Series, or columns of a DataFrame, are brought into their order by name."""
    import pandas as pd

    if not isinstance(values, (pd.Series, pd.DataFrame)):
        return values
    own = values.index if isinstance(values, pd.Series) else values.columns
    if names is not None and len(own) == len(names) and set(own) == set(names):
        return values[list(names)]
    if own.equals(pd.RangeIndex(len(own))):
        return values
    raise InputError(
        f"{what}: its names {list(own)[:_SHOWN]} are not those of the features: pass an array in their order"
    )


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


def _is_number(entry: Any) -> bool:
    return isinstance(entry, Integral) and not isinstance(entry, (bool, np.bool_))


def _entries(value: Any, what: str) -> list[Any] | None:
    """Entries of a list-like value; None where it is something else."""
    if isinstance(value, (str, bytes, dict, set, frozenset)) or not isinstance(value, Iterable):
        return None
    if getattr(value, "ndim", 1) == 0:
        raise ConfigError(f"{what}: {value!r} is not a list")
    return list(value)


def _from_widths(widths: list[int], n_features: int) -> list[Array]:
    if min(widths) < 1:
        raise ConfigError(f"parties: width {min(widths)} in {widths}; every party needs at least one column")
    if sum(widths) != n_features:
        raise ConfigError(
            f"parties: the widths {widths} add up to {sum(widths)}, but X has {n_features} columns"
            " (columns by number are lists within the list, such as [[0, 2], [1]])"
        )
    return consecutive(widths)


def _from_lists(
    entries: list[Any], n_features: int, names: Sequence[str] | None, labels: Sequence[Any]
) -> list[Array]:
    numbers = _numbers_by_name(names)
    owner: dict[int, Any] = {}
    resolved = []
    for m, entry in zip(labels, entries):
        members = _entries(entry, f"parties, party {m}")
        if members is None:
            raise ConfigError(f"parties: party {m} is {entry!r}; expected a list of column names or numbers")
        if not members:
            raise ConfigError(f"parties: party {m} has no columns")
        columns = [_column(member, m, n_features, numbers) for member in members]
        for member, column in zip(members, columns):
            if column in owner:
                raise ConfigError(
                    f"parties: column {member!r} is given to party {owner[column]} and again to party {m}; "
                    "each column belongs to one party"
                )
            owner[column] = m
        resolved.append(np.array(columns, dtype=np.intp))
    missing = [names[j] if names is not None else j for j in range(n_features) if j not in owner]
    if missing:
        shown = ", ".join(repr(name) for name in missing[:_SHOWN]) + (
            ", ..." if len(missing) > _SHOWN else ""
        )
        raise ConfigError(
            f"parties: {len(missing)} of {n_features} columns belong to no party: {shown}; "
            "assign them or drop them from X"
        )
    return resolved


def _numbers_by_name(names: Sequence[str] | None) -> dict[str, int] | None:
    """Column number of each name; -1 marks a name that occurs more than once."""
    if names is None:
        return None
    numbers: dict[str, int] = {}
    for j, name in enumerate(names):
        numbers[str(name)] = -1 if name in numbers else j
    return numbers


def _column(member: Any, m: Any, n_features: int, numbers: dict[str, int] | None) -> int:
    if _is_number(member):
        if not 0 <= member < n_features:
            raise ConfigError(f"parties: column {int(member)} of party {m} is outside 0 ... {n_features - 1}")
        return int(member)
    if not isinstance(member, str):
        raise ConfigError(f"parties: {member!r} of party {m} is neither a column name nor a column number")
    if numbers is None:
        raise ConfigError(
            f"parties: party {m} names column {member!r}, but the columns of X have no names; "
            "pass a DataFrame or give column numbers"
        )
    if member not in numbers:
        raise ConfigError(f"parties: party {m} names column {member!r}, which X does not have")
    if numbers[member] < 0:
        raise ConfigError(f"parties: column name {member!r} occurs more than once in X; give column numbers")
    return numbers[member]
