"""Which rows of several tables are the same samples: joined by id, in one canonical order, with a digest."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from fastadmm.data_tools.tables import Table
from fastadmm.errors import ConfigError, FormatError, InputError
from fastadmm.files.atomic import atomic_file, shown
from fastadmm.files.digest import row_digest
from fastadmm.files.reading import parse_json, read_bytes

__all__ = [
    "DUPLICATES",
    "Alignment",
    "TableIds",
    "align",
    "canonical_order",
    "read_alignment",
    "rows_of",
    "table_ids",
    "write_alignment",
]

#: What is done with ids that occur more than once in a table.
DUPLICATES = ("refuse", "first", "drop")

FORMAT, VERSION = "fastadmm-alignment", "1.0"

_INTEGER = re.compile(r"(?:0|-?[1-9]\d{0,17})\Z")


@dataclass(frozen=True)
class TableIds:
    """Ids of one table, each once.

    Attributes
    ----------
    path : str
        The table.
    row : dict of str to int
        Id to number of its row (from 0).
    n_rows : int
        Rows of the table.
    repeated : int
        Ids that occurred more than once.
    left_out : int
        Rows left out because of that.
    """

    path: str
    row: dict[str, int]
    n_rows: int
    repeated: int
    left_out: int


@dataclass(frozen=True)
class Alignment:
    """Samples that all parties have, in canonical order.

    Attributes
    ----------
    ids : ndarray
        ``(N,)`` int64, if all are whole numbers, else object (str); sorted.
    digest : str
        The row digest that every file of the partition will carry.
    """

    ids: np.ndarray
    digest: str

    @property
    def texts(self) -> list[str]:
        """Ids as text, in order."""
        return [str(i) for i in self.ids.tolist()]


def table_ids(table: Table, name: str, duplicates: str = "refuse") -> TableIds:
    """Ids of a table.

    Parameters
    ----------
    table : Table
        Read with its id column as text.
    name : str
        The id column.
    duplicates : {"refuse", "first", "drop"}
        Refuse ids that occur more than once, keep the first row of each, or leave all its rows out.

    Raises
    ------
    InputError
        No such column, a missing id, or ids that occur more than once.
    """
    if duplicates not in DUPLICATES:
        raise ConfigError(f"--duplicates {duplicates!r}: choose one of {', '.join(DUPLICATES)}")
    cells = table.require(name, "id column").values.tolist()
    row: dict[str, int] = {}
    again: dict[str, list[int]] = {}
    for i, cell in enumerate(cells):
        if not cell:
            count = cells.count("")
            more = f" ({count} ids are missing)" if count > 1 else ""
            raise InputError(f"{table.path}: {table.where(i)}, id column {name!r}: no id{more}")
        if cell in row:
            again.setdefault(cell, [row[cell]]).append(i)
        else:
            row[cell] = i
    left_out = len(cells) - len(row)
    if again and duplicates == "refuse":
        cell, rows = next(iter(again.items()))
        places = ", ".join(table.where(i) for i in rows[:3]) + (", ..." if len(rows) > 3 else "")
        raise InputError(
            f"{table.path}: id column {name!r}: {len(again)} ids occur more than once ({left_out} rows too "
            f"many), first {cell!r} in {places}: correct them, or pass --duplicates first or drop"
        )
    if again and duplicates == "drop":
        left_out += len(again)
        for cell in again:
            del row[cell]
        if not row:
            raise InputError(
                f"{table.path}: id column {name!r}: every id occurs more than once, and --duplicates drop "
                "leaves no row"
            )
    return TableIds(table.path, row, len(cells), len(again), left_out)


def canonical_order(ids: Sequence[str]) -> Alignment:
    """Put ids into an order that depends only on the ids, so that every party finds the same.

    Parameters
    ----------
    ids : sequence of str
        Distinct.

    Returns
    -------
    Alignment
        By number if all ids are whole numbers, else by code point.
    """
    ordered: np.ndarray
    if all(_INTEGER.match(i) for i in ids):
        ordered = np.sort(np.array([int(i) for i in ids], dtype=np.int64))
    else:
        ordered = np.array(sorted(ids), dtype=object)
    return Alignment(ordered, row_digest(ordered))


def align(tables: Sequence[TableIds]) -> tuple[Alignment, list[str]]:
    """Join tables by id, on one machine.

    Parameters
    ----------
    tables : sequence of TableIds
        Of all parties.

    Returns
    -------
    alignment : Alignment
        Ids that all tables have.
    report : list of str
        One line per table: rows, repeated ids, and ids that another table lacks.

    Raises
    ------
    InputError
        No id is in all tables.
    """
    common = set(tables[0].row)
    for table in tables[1:]:
        common &= table.row.keys()
    if not common:
        examples = "; ".join(f"{t.path} has {_some(list(t.row)[:3])}" for t in tables)
        raise InputError(f"no id is in all tables ({examples}): check --id, and how ids are written")
    report = [_report(table, common) for table in tables]
    return canonical_order(list(common)), report


def _report(table: TableIds, common: set[str]) -> str:
    line = f"{table.path}: {table.n_rows} rows, {len(common)} joined"
    if table.repeated:
        line += f", {table.repeated} ids occur more than once ({table.left_out} rows left out)"
    alone = [i for i in table.row if i not in common]
    if alone:
        line += f", {len(alone)} ids are not in every table ({_some(alone)})"
    return line


def _some(ids: Sequence[str], most: int = 3) -> str:
    return ", ".join(repr(i) for i in ids[:most]) + (", ..." if len(ids) > most else "")


def rows_of(ids: TableIds, alignment: Alignment) -> np.ndarray:
    """Rows of a table in the order of an alignment.

    Parameters
    ----------
    ids : TableIds
        Of the table.
    alignment : Alignment
        All its ids must be in the table.

    Returns
    -------
    ndarray
        ``(N,)`` int64 numbers of rows, from 0.

    Raises
    ------
    InputError
        Ids that the table does not have.
    """
    absent = [i for i in alignment.texts if i not in ids.row]
    if absent:
        raise InputError(
            f"{ids.path}: {len(absent)} ids of the alignment are not in it ({_some(absent)}): align again"
        )
    return np.array([ids.row[i] for i in alignment.texts], dtype=np.int64)


def write_alignment(path: str | Path, alignment: Alignment, *, force: bool = False) -> None:
    """Write an alignment file, completely or not at all.

    Parameters
    ----------
    path : path
        JSON file to make.
    alignment : Alignment
    force : bool
        Whether an existing file may be replaced.
    """
    record = {
        "format": FORMAT,
        "version": VERSION,
        "n_samples": len(alignment.ids),
        "row_digest": alignment.digest,
        "ids": alignment.ids.tolist(),
    }
    with atomic_file(path, force=force) as temporary:
        temporary.write_text(json.dumps(record) + "\n", encoding="utf-8")


def read_alignment(path: str | Path) -> Alignment:
    """Read an alignment file and check its digest.

    Parameters
    ----------
    path : path
        Written by :func:`write_alignment`.

    Raises
    ------
    FormatError
        Not such a file, damaged or edited, of a newer version.
    StorageError
        Absent or unreadable.
    """
    place, raw = shown(path), read_bytes(path)
    try:
        record: Any = parse_json(raw, place)
    except FormatError:
        record = None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise FormatError(f"{place}: not an alignment file; make one with 'fastadmm align'")
    if record.get("version") != VERSION:
        raise FormatError(f"{place}: version {record.get('version')!r}, but {VERSION!r} is needed; upgrade")
    ids = record.get("ids")
    if (
        not isinstance(ids, list)
        or not ids
        or not (
            all(type(i) is int and -(2**63) <= i < 2**63 for i in ids) or all(type(i) is str for i in ids)
        )
        or len(set(ids)) != len(ids)
    ):
        raise FormatError(f"{place}: key 'ids': not different whole numbers or texts; align again")
    try:
        found = canonical_order([str(i) for i in ids])
    except UnicodeError:
        raise FormatError(f"{place}: key 'ids': not text; align again") from None
    if found.digest != record.get("row_digest") or found.ids.tolist() != ids:
        raise FormatError(f"{place}: ids and their digest do not agree: damaged or edited; align again")
    return found
