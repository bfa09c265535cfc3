"""What a user should know of a table's columns, though nothing is wrong: one line each."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from fastadmm.data_tools.csv_table import is_number, zeros_lost
from fastadmm.data_tools.tables import Column, Table
from fastadmm.store.encoder import ColumnEncoding, Encoder

__all__ = ["column_notes", "number_notes"]

#: Words that often mean "no value", but may be categories.
_DOUBTFUL = {
    "?", "-", "--", ".", "..", "*", "#n/a", "#na", "<na>", "none", "nil", "unknown", "missing", "n.a.",
    "n.d.", "k.a.", "#ref!", "#div/0!", "#value!", "#name?", "#num!", "undefined",
}  # fmt: skip

#: Numbers that often mean "no value", where all others are far smaller.
_SENTINELS = (999.0, 9999.0, 99999.0, 999999.0)


def column_notes(table: Table, encoder: Encoder, rows: np.ndarray) -> list[str]:
    """One line for each doubt about a column.

    Parameters
    ----------
    table : Table
    encoder : Encoder
        Fitted on it.
    rows : ndarray
        Rows that are used.
    """
    lines = []
    for encoding in encoder.columns:
        column = table.columns[encoding.name]
        doubts = (
            _of_levels(encoding, column, rows)
            if encoding.levels is not None
            else _of_numbers(encoding, column, rows)
        )
        lines += [f"{table.path}: column {encoding.name!r}: {doubt}" for doubt in doubts]
    return lines


def _of_levels(encoding: ColumnEncoding, column: Column, rows: np.ndarray) -> Sequence[str]:
    levels = encoding.levels or ()
    doubts = []
    alike: dict[str, str] = {}
    for level in levels:
        key = " ".join(level.split()).casefold()
        if key in alike:
            doubts.append(
                f"{alike[key]!r} and {level!r} differ only by case or spaces, and are two categories"
            )
        alike[key] = level
    cells = column.as_text()[rows]
    for level in levels:
        if level.lower() in _DOUBTFUL:
            count = int((cells == level).sum())
            doubts.append(
                f"{count} cells are {level!r}, kept as a category: if they mean missing, pass "
                f"--na-values {level!r}"
            )
    digits = [level for level in levels if level[0].isdigit() and not is_number(level)]
    if 2 * len(digits) >= len(levels) > 1:
        doubts.append(f"texts that begin with digits, such as {digits[0]!r}, are categories")
    return doubts


def number_notes(path: str, names: Sequence[str], blocks: Sequence[np.ndarray]) -> list[str]:
    """One line for each doubt about columns of plain numbers.

    Parameters
    ----------
    path : str
        The table.
    names : sequence of str
    blocks : sequence of ndarray of shape (k, d)
        Its rows; none is missing.
    """
    low = np.min([block.min(axis=0) for block in blocks], axis=0)
    high = np.max([block.max(axis=0) for block in blocks], axis=0)
    # Most columns need no look at their own: reading columns out of rows is slow.
    head = blocks[0][:20]
    ends = np.isin(np.abs([low, high]), _SENTINELS).any(axis=0)
    doubtful = (low == high) | ends | (head == np.round(head)).all(axis=0)
    lines = []
    for j in np.flatnonzero(doubtful).tolist():
        values = np.concatenate([block[:, j] for block in blocks])
        doubts = _of_numbers(ColumnEncoding(names[j]), Column("number", values), np.arange(len(values)))
        lines += [f"{path}: column {names[j]!r}: {doubt}" for doubt in doubts]
    return lines


def _of_numbers(encoding: ColumnEncoding, column: Column, rows: np.ndarray) -> Sequence[str]:
    if column.kind != "number":
        if not encoding.reading:
            return []
        from fastadmm.store.cell_reading import CellReading

        reading = CellReading.parse(encoding.reading)
        example = next((cell for cell in column.values[rows] if cell and not cell.isdigit()), "")
        such = f", such as {example!r}" if example else ""
        return [f"read as numbers{such}: {reading.words()}"]
    doubts = []
    if column.zeros:
        doubts.append(zeros_lost(encoding.name, column.zeros))
    values = column.values[rows]
    values = values[~np.isnan(values)]
    if len(values) < 2:
        return doubts
    low, high = float(values.min()), float(values.max())
    if low == high:
        doubts.append(f"the same number {low:g} in all rows")
    for end in (low, high):
        rest = values[values != end]
        if abs(end) in _SENTINELS and len(rest) and np.abs(rest).max() < abs(end) / 5:
            count = len(values) - len(rest)
            doubts.append(
                f"{count} cells are {end:g}, far from all others: if they mean missing, pass --na-values "
                f"{encoding.name}={end:g}"
            )
    whole = len(values) >= 20 and np.array_equal(values, np.round(values))
    if whole and high - low == len(values) - 1 and len(np.unique(values)) == len(values):
        doubts.append(f"numbers the rows: leave it out with --drop {encoding.name}, unless it is a feature")
    days = whole and low >= 19000101 and high <= 21001231
    if days and np.all((values // 100 % 100 <= 12) & (values % 100 <= 31) & (values % 100 >= 1)):
        doubts.append(f"numbers look like dates: pass --types {encoding.name}=days to count days")
    return doubts
