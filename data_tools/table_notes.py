"""What a user should know of a table's columns, though nothing is wrong: one line each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from shlex import quote

import numpy as np
from fastadmm.data_tools.columns import pieces
from fastadmm.data_tools.csv_table import is_number, zeros_lost
from fastadmm.data_tools.tables import Column, Table
from fastadmm.judging.looks import called_id, say
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
    text = column.as_text()
    counts = dict(zip(text.words, text.counts(rows).tolist()))
    for level in levels:
        if level.lower() in _DOUBTFUL:
            count = counts.get(level, 0)
            doubts.append(
                f"{count} cells are {level!r}, kept as a category: if they mean missing, pass "
                f"--na-values {quote(level)}"
            )
    digits = [level for level in levels if level[0].isdigit() and not is_number(level)]
    if 2 * len(digits) >= len(levels) > 1:
        doubts.append(f"texts that begin with digits, such as {digits[0]!r}, are categories")
    if 10 * len(levels) >= 9 * sum(counts.values()) and len(levels) >= _LEAST:
        doubts.append(say("id", what="nearly every row has its own category", column=encoding.name))
    return doubts


def _ways(values: np.ndarray) -> np.ndarray:
    """1 where a number is above the one before, -1 where below; a difference may overflow.

    Shapes: values (n,) or (n, d); the result one row shorter.
    """
    before, after = values[:-1], values[1:]
    return (after > before).astype(np.float64) - (after < before)


def number_notes(
    path: str, names: Sequence[str], blocks: Sequence[np.ndarray], *, named: bool = True
) -> list[str]:
    """One line for each doubt about columns of plain numbers; without names of their own, only about ids.

    Shapes: each of blocks (k, d).
    """
    low = np.min([block.min(axis=0) for block in blocks], axis=0)
    high = np.max([block.max(axis=0) for block in blocks], axis=0)
    # Most columns need no look at their own: reading columns out of rows is slow.
    head = blocks[0][:20]
    ends = np.isin(np.abs([low, high]), _SENTINELS).any(axis=0)
    ways = _ways(head)
    doubtful = (low == high) | ends | (head == np.round(head)).all(axis=0) | (ways == ways[:1]).all(axis=0)
    lines = []
    for j in np.flatnonzero(doubtful).tolist():
        values = np.concatenate([block[:, j] for block in blocks])
        settles = None if named else "leave it out of the source"
        column, rows = Column("number", values), np.arange(len(values))
        doubts = _of_numbers(ColumnEncoding(names[j]), column, rows, settles)
        lines += [f"{path}: column {names[j]!r}: {one}" for one in doubts if named or one.endswith("[id]")]
    return lines


def _of_numbers(
    encoding: ColumnEncoding, column: Column, rows: np.ndarray, settles: str | None = None
) -> Sequence[str]:
    if column.kind != "number":
        if not encoding.reading:
            return []
        from fastadmm.store.cell_reading import CellReading

        reading = CellReading.parse(encoding.reading)
        telling = np.array([bool(cell) and not cell.isdigit() for cell in column.words])
        codes = (column.values[part] for part in pieces(rows))
        first = next((int(own[telling[own]][0]) for own in codes if telling[own].any()), -1)
        example = column.words[first] if first >= 0 else ""
        such = f", such as {example!r}" if example else ""
        return [f"read as numbers{such}: {reading.words()}"]
    doubts = []
    if column.zeros:
        doubts.append(zeros_lost(encoding.name, column.zeros))
    own = _Range(column, rows)
    if own.count < 2:
        return doubts
    low, high = own.low, own.high
    if low == high:
        doubts.append(f"the same number {low:g} in all rows")
    for end in (low, high):
        if abs(end) in _SENTINELS and (count := own.alone(end)):
            doubts.append(
                f"{count} cells are {end:g}, far from all others: if they mean missing, pass --na-values "
                f"{quote(encoding.name)}={end:g}"
            )
    whole = own.count >= _LEAST and own.all(lambda values: values == np.round(values))
    if what := _numbering(own, _Range(column, np.sort(rows)), encoding.name, whole):
        doubts.append(say("id", what=what, column=encoding.name, settles=settles))
    days = whole and low >= 19000101 and high <= 21001231
    if days and own.all(lambda v: (v // 100 % 100 <= 12) & (v % 100 <= 31) & (v % 100 >= 1)):
        doubts.append(f"numbers look like dates: pass --types {quote(encoding.name)}=days to count days")
    return doubts


def _numbering(joined: _Range, own: _Range, name: str, whole: bool) -> str:
    """What makes numbers look like an id, in the order of the joined rows or in their own."""
    if joined.count < _LEAST:
        return ""
    width = joined.high - joined.low + 1
    if whole and width == joined.count and joined.distinct():
        return "numbers the rows"
    if joined.rises() or own.rises():
        return "rises or falls from row to row, as row numbers and times do"
    # Numbers drawn by chance repeat where there are far fewer of them than pairs of rows.
    filled = joined.count**2 >= 10 * width
    if whole and (filled or called_id(name)) and joined.distinct():
        return "whole numbers, another in every row, as ids"
    return ""


class _Range:
    """Numbers of a column, a piece at a time."""

    def __init__(self, column: Column, rows: np.ndarray) -> None:
        self._column, self._rows = column, rows
        found = [(len(v), v.min(), v.max()) for v in self._pieces() if len(v)]
        self.count = sum(n for n, _, _ in found)
        self.low = float(min((low for _, low, _ in found), default=np.nan))
        self.high = float(max((high for _, _, high in found), default=np.nan))

    def _pieces(self) -> Iterator[np.ndarray]:
        for values in self._column.parts(self._rows):
            yield values if self._column.full else values[~np.isnan(values)]

    def all(self, test: Callable[[np.ndarray], np.ndarray]) -> bool:
        return all(bool(np.all(test(values))) for values in self._pieces())

    def alone(self, end: float) -> int:
        """How many numbers are `end`, if all others are far smaller."""
        rest = 0
        for values in self._pieces():
            others = values[values != end]
            rest += len(others)
            if len(others) and np.abs(others).max() >= abs(end) / 5:
                return 0
        return self.count - rest if rest else 0

    def distinct(self) -> bool:
        """Whether all numbers differ."""
        return len(np.unique(np.concatenate(list(self._pieces())))) == self.count

    def rises(self) -> bool:
        """Whether every number is above the one before, or every one below."""
        last, way = np.empty(0), 0.0
        for values in self._pieces():
            ways = _ways(np.r_[last, values])
            way = way or float(ways[:1].sum())
            if way == 0.0 or (ways != way).any():
                return False
            last = values[-1:]
        return True
