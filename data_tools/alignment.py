"""Which rows of several tables are the same samples: joined by id, in one canonical order, with a digest."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from fastadmm.data_tools.columns import keys_of
from fastadmm.data_tools.csv_table import FOUND
from fastadmm.data_tools.per_table import TableRows
from fastadmm.data_tools.tables import Cells, Layout, Table, read_table
from fastadmm.errors import ConfigError, FormatError, InputError
from fastadmm.files.atomic import shown, write_whole
from fastadmm.files.digest import row_digest
from fastadmm.files.reading import parse_json, read_bytes

#: What is done with ids that occur more than once in a table.
DUPLICATES = ("refuse", "first", "last", "drop")

FORMAT, VERSION = "fastadmm-alignment", "1.0"


@dataclass(frozen=True)
class TableIds:
    """Ids of one table, each once."""

    path: str  # the table
    keys: np.ndarray
    rows: np.ndarray  # ``(k,)`` int64 numbers of their rows (from 0)
    n_rows: int  # rows of the table
    repeated: int  # ids that occurred more than once
    left_out: int  # rows left out because of that

    def __len__(self) -> int:
        return len(self.keys)

    def as_text(self) -> TableIds:
        """The same with all ids as text, and sorted as text."""
        if self.keys.dtype.kind != "i":
            return self
        keys = self.keys.astype("S")
        order = np.argsort(keys)
        return replace(self, keys=keys[order], rows=self.rows[order])

    def texts(self) -> list[str]:
        """All ids as text, sorted as text."""
        return sorted(_texts(self.keys))

    def first(self, which: np.ndarray, most: int = 3) -> list[str]:
        """Some ids in the order of the table."""
        return _texts(self.keys[which[np.argsort(self.rows[which])[:most]]])


def _texts(keys: np.ndarray) -> list[str]:
    return [key.decode() if isinstance(key, bytes) else str(key) for key in keys.tolist()]


@dataclass(frozen=True)
class Alignment:
    """Samples that all parties have, in canonical order."""

    ids: np.ndarray  # ``(N,)`` int64, if all are whole numbers, else object (str); sorted
    digest: str  # the row digest that every file of the partition will carry

    @property
    def texts(self) -> list[str]:
        """Ids as text, in order."""
        return [str(i) for i in self.ids.tolist()]


def table_ids(table: Table, name: str, duplicates: str = "refuse", pattern: str | None = None) -> TableIds:
    """Ids of a table; with a pattern the part of each that it finds."""
    if duplicates not in DUPLICATES:
        raise ConfigError(f"--duplicates {duplicates!r}: choose one of {', '.join(DUPLICATES)}")
    column = table.require(name, "id column")
    keys = column.values
    if column.kind != "ids":
        text = column.as_text()
        keys = np.array([word.encode() for word in text.words], dtype="S")[text.values]
    if keys.dtype.kind != "i" and (missing := np.flatnonzero(keys == b"")).size:
        problem = f"no id ({len(missing)} of {len(keys)} rows): write one, or leave the row out"
        raise table.refused(name, problem, int(missing[0]), "id")
    if pattern is not None:
        keys = _matched(table, name, keys, pattern)
    ascending = bool((keys[1:] > keys[:-1]).all())
    rows = np.arange(len(keys)) if ascending else np.argsort(keys, kind="stable")
    keys = keys[rows]
    same = np.concatenate([[False], keys[1:] == keys[:-1]])
    seconds = np.flatnonzero(same & ~np.append(False, same[:-1]))  # of each repeated id the second row
    left_out = int(np.count_nonzero(same))
    if left_out and duplicates == "refuse":
        at = int(seconds[np.argmin(rows[seconds])])
        first, places = _texts(keys[at : at + 1])[0], map(table.where, rows[at - 1 : at + 1].tolist())
        problem = f"repeated ids ({left_out} rows too many), first {first!r} in {' and '.join(places)}"
        raise table.refused(name, f"{problem}: correct them, or pass --duplicates", what="id")
    kept = ~np.append(same[1:], False) if duplicates == "last" else ~same
    if duplicates == "drop":
        left_out += len(seconds)
        kept[seconds - 1] = False
        if not kept.any():
            raise table.refused(name, "--duplicates drop leaves no row", what="id")
    return TableIds(table.path, keys[kept], rows[kept], len(keys), len(seconds), left_out)


def _matched(table: Table, name: str, keys: np.ndarray, pattern: str) -> np.ndarray:
    """What the group of a pattern finds in each id; a pattern without a group finds all of it."""
    try:
        known = re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"id_pattern {pattern!r}: no regular expression: {error}") from None
    parts = []
    for row, text in enumerate(_texts(keys)):
        found = known.fullmatch(text)
        part = found[min(1, known.groups)] if found is not None else None
        if not part:
            raise table.refused(name, f"{text!r} does not fit id_pattern {pattern!r}", row, "id")
        parts.append(part)
    return keys_of(parts)


def canonical_order(ids: Sequence[str]) -> Alignment:
    """Put ids into an order that depends only on the ids, so that every party finds the same."""
    keys = keys_of(ids)
    ordered = np.sort(keys) if keys.dtype.kind == "i" else np.array(sorted(ids), dtype=object)
    return Alignment(ordered, row_digest(ordered))


def file_ids(
    path: str | Path,
    name: str,
    layout: Layout = FOUND,
    duplicates: str = "refuse",
    pattern: str | None = None,
) -> TableIds:
    """Ids of a file; its other columns are not looked at."""
    return table_ids(read_table(path, layout, Cells(id=name), only=name), name, duplicates, pattern)


def join(
    tables: Sequence[Table], names: Sequence[str | None], options: TableRows
) -> tuple[Alignment, list[np.ndarray], list[str]]:
    """Samples of tables by a stated alignment or by their ids, the rows of each, and what to say of them."""
    known = None if options.alignment is None else read_alignment(options.alignment)
    found = []
    for table, name in zip(tables, names, strict=True):
        if name is None:
            raise ConfigError(f"--id: which column of {table.path} holds the ids?")
        found.append(table_ids(table, name, options.duplicates, options.id_pattern))
    if known is None:
        known, report = align(found)
    else:
        report = [f"{own.path}: {own.n_rows} rows, {len(known.ids)} in the alignment" for own in found]
    return known, [rows_of(own, known) for own in found], report


def align(tables: Sequence[TableIds]) -> tuple[Alignment, list[str]]:
    """Join tables by id, on one machine."""
    if len({own.keys.dtype.kind for own in tables}) > 1:
        tables = [own.as_text() for own in tables]
    common = tables[0].keys
    for own in tables[1:]:
        common = np.intersect1d(common, own.keys, assume_unique=True)
    if not len(common):
        examples = "; ".join(f"{t.path} has {_some(t.first(np.arange(len(t))))}" for t in tables)
        raise InputError(
            f"no id is in all tables ({examples}): check --id, and how ids are written: --set "
            "'id_pattern=[^1-9]*(.*)' leaves out prefixes and zeros"
        )
    report = [_report(own, common) for own in tables]
    if common.dtype.kind == "i":
        return Alignment(common, row_digest(common)), report
    return canonical_order(_texts(common)), report


def _report(table: TableIds, common: np.ndarray) -> str:
    line = f"{table.path}: {table.n_rows} rows, {len(common)} joined"
    if table.repeated:
        line += f", {table.repeated} ids occur more than once ({table.left_out} rows left out)"
    if len(common) < len(table):
        alone = np.flatnonzero(~np.isin(table.keys, common, assume_unique=True))
        some = _some(table.first(alone), count=len(alone))
        line += f", {len(alone)} ids are not in every table ({some})"
    return line


def _some(ids: Sequence[str], count: int | None = None) -> str:
    count = len(ids) if count is None else count
    return ", ".join(repr(i) for i in ids[:3]) + (", ..." if count > 3 else "")


def rows_of(ids: TableIds, alignment: Alignment) -> np.ndarray:
    """Rows of a table in the order of an alignment."""
    wanted = alignment.ids
    if wanted.dtype.kind != "i" or ids.keys.dtype.kind != "i":
        ids, wanted = ids.as_text(), np.array([text.encode() for text in alignment.texts], dtype="S")
    at = np.minimum(np.searchsorted(ids.keys, wanted), len(ids) - 1)
    if (absent := np.flatnonzero(ids.keys[at] != wanted)).size:
        some = _some([alignment.texts[i] for i in absent[:4].tolist()])
        raise InputError(
            f"{ids.path}: {len(absent)} ids of the alignment are not in it ({some}): align again"
        )
    return ids.rows[at]


def write_alignment(path: str | Path, alignment: Alignment, *, force: bool = False) -> None:
    """Write an alignment file, completely or not at all."""
    record = {"format": FORMAT, "version": VERSION, "n_samples": len(alignment.ids)}
    record |= {"row_digest": alignment.digest, "ids": alignment.ids.tolist()}
    write_whole(path, json.dumps(record) + "\n", force=force)


def read_alignment(path: str | Path) -> Alignment:
    """Read an alignment file and check its digest."""
    place = shown(path)
    try:
        record: Any = parse_json(read_bytes(path), place)
    except FormatError:
        record = None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise FormatError(f"{place}: not an alignment file; make one with 'fastadmm align'")
    if record.get("version") != VERSION:
        raise FormatError(f"{place}: version {record.get('version')!r}, but {VERSION!r} is needed; upgrade")
    ids: Any = record.get("ids")
    kinds: set[Any] = {type(i) for i in ids} if isinstance(ids, list) else set()
    if kinds not in ({int}, {str}) or len(set(ids)) != len(ids):
        raise FormatError(f"{place}: key 'ids': not different whole numbers or texts; align again")
    try:
        found = canonical_order([str(i) for i in ids])
    except UnicodeError:
        raise FormatError(f"{place}: key 'ids': not text; align again") from None
    if found.digest != record.get("row_digest") or found.ids.tolist() != ids:
        raise FormatError(f"{place}: ids and their digest do not agree: damaged or edited; align again")
    return found
