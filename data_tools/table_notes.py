"""What a user should know of a table's columns, though nothing is wrong: one line each."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote

import numpy as np
from fastadmm.data_tools.columns import Column, is_number
from fastadmm.data_tools.tables import Table
from fastadmm.judging.looks import called_id, say
from fastadmm.store.cell_reading import CellReading
from fastadmm.store.encoder import ColumnEncoding, Encoder

#: Words that often mean "no value", but may be categories.
_DOUBTFUL = {
    "?", "-", "--", ".", "..", "*", "#n/a", "#na", "<na>", "none", "nil", "unknown", "missing", "n.a.",
    "n.d.", "k.a.", "#ref!", "#div/0!", "#value!", "#name?", "#num!", "undefined",
}  # fmt: skip

#: Numbers that often mean "no value", where all others are far smaller.
_SENTINELS = (999.0, 9999.0, 99999.0, 999999.0)

#: Rows below which a column may look like an id by chance.
_LEAST = 20


def column_notes(table: Table, encoder: Encoder, rows: np.ndarray) -> list[str]:
    """One line for each doubt about a column."""
    lines = []
    for encoding in encoder.columns:
        column = table.columns[encoding.name]
        if encoding.levels is not None:
            doubts = _of_levels(encoding, column, rows)
        elif column.kind == "number":
            doubts = _of_numbers(encoding.name, column, rows)
        else:
            doubts = _of_readings(encoding, column, rows)
        lines += [f"{table.path}: column {encoding.name!r}: {doubt}" for doubt in doubts]
    return lines


def _of_levels(encoding: ColumnEncoding, column: Column, rows: np.ndarray) -> Sequence[str]:
    levels = encoding.levels or ()
    doubts = []
    alike: dict[str, str] = {}
    for level in levels:
        first = alike.setdefault(" ".join(level.split()).casefold(), level)
        if first != level:
            doubts.append(f"{first!r} and {level!r} differ only by case or spaces, and are two categories")
    text = column.as_text()
    counts = dict(zip(text.words, text.counts(rows).tolist()))
    for level in levels:
        if level.lower() in _DOUBTFUL:
            doubts.append(
                f"{counts.get(level, 0)} cells are {level!r}, kept as a category: if they mean missing, pass "
                f"--na-values {quote(level)}"
            )
    digits = [level for level in levels if level[0].isdigit() and not is_number(level)]
    if 2 * len(digits) >= len(levels) > 1:
        doubts.append(f"texts that begin with digits, such as {digits[0]!r}, are categories")
    if 10 * len(levels) >= 9 * sum(counts.values()) and len(levels) >= _LEAST:
        doubts.append(say("id", what="nearly every row has its own category", column=encoding.name))
    return doubts


def _of_readings(encoding: ColumnEncoding, column: Column, rows: np.ndarray) -> Sequence[str]:
    """How texts were read as numbers."""
    if not encoding.reading:
        return []
    used = np.flatnonzero(column.counts(rows)).tolist()
    example = next((w for w in map(column.words.__getitem__, used) if w and not w.isdigit()), "")
    such = f", such as {example!r}" if example else ""
    return [f"read as numbers{such}: {CellReading.parse(encoding.reading).words()}"]


def _of_numbers(name: str, column: Column, rows: np.ndarray) -> Sequence[str]:
    doubts = []
    if column.zeros:
        doubts.append(
            f"leading zeros, such as {column.zeros!r}, are lost: for codes pass --categorical {quote(name)}"
        )
    every = np.asarray(column.values)
    own = every if len(rows) == len(every) else every[np.sort(rows)]  # in the order of the file
    present = own if column.full else own[~np.isnan(own)]
    if len(present) < 2:
        return doubts
    low, high = float(present.min()), float(present.max())
    if low == high:
        doubts.append(f"the same number {low:g} in all rows")
    for end in (low, high):
        if abs(end) in _SENTINELS:
            rest = present[present != end]
            if len(rest) and np.abs(rest).max() < abs(end) / 5:
                doubts.append(
                    f"{len(present) - len(rest)} cells are {end:g}, far from all others: if they mean "
                    f"missing, pass --na-values {quote(name)}={end:g}"
                )
    whole = len(present) >= _LEAST and bool((present == np.round(present)).all())
    if what := _numbering(present, whole, high - low + 1, name):
        doubts.append(say("id", what=what, column=name, settles=None))
    if whole and low >= 19000101 and high <= 21001231:
        month, day = present // 100 % 100, present % 100
        if ((month <= 12) & (day <= 31) & (day >= 1)).all():
            doubts.append(f"numbers look like dates: pass --types {quote(name)}=days to count days")
    return doubts


def _numbering(values: np.ndarray, whole: bool, width: float, name: str) -> str:
    """What makes numbers look like an id, in the order of the file."""
    count = len(values)
    if count < _LEAST:
        return ""
    # Numbers drawn by chance repeat where there are far fewer of them than pairs of rows.
    filled = whole and (count**2 >= 10 * width or called_id(name))
    distinct = filled and len(np.unique(values)) == count
    if distinct and width == count:
        return "numbers the rows"
    before, after = values[:-1], values[1:]  # a difference may overflow
    if (after > before).all() or (after < before).all():
        return "rises or falls from row to row, as row numbers and times do"
    return "whole numbers, another in every row, as ids" if distinct else ""
