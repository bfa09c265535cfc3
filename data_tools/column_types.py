"""What the columns of a table are: numbers however they are written, dates, or categories; never by a guess.

A column of text that could be numbers is read as numbers where all its cells have one meaning, and refused,
with the remedy, where they have several. Only other text becomes categories.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from shlex import quote

import numpy as np
from fastadmm.data_tools import cell_text
from fastadmm.data_tools.columns import (
    EXACT,
    NOT_FINITE,
    TOO_LARGE,
    TRUTH,
    Column,
    is_merging,
    is_number,
    nearest,
)
from fastadmm.data_tools.tables import Table
from fastadmm.errors import ConfigError, InputError
from fastadmm.judging.looks import called_id, say
from fastadmm.store.encoder import DATE_KINDS, KINDS, CellReading, ColumnEncoding, Encoder

_NO_DIGIT = re.compile(r"\D|[eE].*")
_KEEP = "keep the texts as categories with --categorical {name}"
_ALIKE = "write them alike, or pass --categorical {name}"
_RATIO = re.compile(r"\d+\s*/\s*\d+")
_COMPACT = re.compile(r"(19|20)\d\d(0[1-9]|1[0-2])([0-2]\d|3[01])")


@dataclass(frozen=True)
class Typing:
    """What the user says about the columns of a table."""

    kinds: Mapping[str, str] = field(default_factory=dict)
    decimal: str | None = None  # mark of the table's numbers; None: by the column

    @property
    def dates(self) -> list[str]:
        """Columns that are said to hold dates or times."""
        return [name for name, kind in self.kinds.items() if kind not in ("number", "category")]


def parse_types(entries: Sequence[str]) -> dict[str, str]:
    """Read ``name=kind`` entries; several may stand in one, with commas between."""
    kinds: dict[str, str] = {}
    for entry in (part for text in entries for part in re.split(r",(?=[^,=]+=)", text)):
        name, equals, kind = (part.strip() for part in entry.rpartition("="))
        main, _, style = kind.partition(":")
        if not equals or not name:
            raise ConfigError(f"--types {entry!r}: give NAME=KIND, such as joined=days")
        if main not in ("category", *KINDS) or (style and main not in DATE_KINDS):
            raise ConfigError(
                f"--types {entry!r}: unknown kind {kind!r}{nearest(main, ['category', *KINDS])}; formats "
                "belong to dates, such as days:%d.%m.%Y"
            )
        if kinds.setdefault(name, kind) != kind:
            raise ConfigError(f"--types: column {name!r} is given two kinds, {kinds[name]} and {kind}")
    return kinds


def recognise(table: Table, name: str, column: Column, typing: Typing) -> CellReading | None:
    """How a column's cells are read as numbers; None where they are categories."""
    kind, _, style = typing.kinds.get(name, "").partition(":")
    if kind == "category":
        return None
    cells = [cell for cell in column.words if cell]
    if column.kind == "number" or are_truths(column.words) or not cells:
        return CellReading()
    look = _Look(table, name, column, cells, typing)
    if kind in DATE_KINDS:
        others = [cell for cell in cells if style and cell_text.to_number(cell, kind, style) is None]
        look.refuse_others(others, f"a date in the format {style}")
        return CellReading(kind, dates=style or look.date_format(kind), from_rows=not style)
    if kind == "hours":
        look.refuse_others([cell for cell in cells if not cell_text.is_time(cell)], "a time such as 14:30")
        return CellReading(kind)
    reading = look.numbers(forced=kind == "number")
    if reading is None and kind == "number":
        look.refuse_others(cells, "a number")
    if reading is None:
        look.refuse_other_kinds()
    return reading


@dataclass(frozen=True)
class _Look:
    """One look at the different cells of a column."""

    table: Table
    name: str
    column: Column
    cells: list[str]
    typing: Typing

    def refused(self, cell: str, problem: str, other: str = "") -> InputError:
        """The error for a cell; `problem` may name another cell, and the column as a shell reads it."""
        there = f"{other[:40]!a} in {self.table.where(self.column.first_row(other))}" if other else ""
        problem = problem.replace("{other}", there).replace("{name}", quote(self.name))
        return self.table.refused(self.name, f"{cell[:40]!a} {problem}", self.column.first_row(cell))

    def numbers(self, forced: bool) -> CellReading | None:
        """The one reading of the cells as numbers; None where they are none."""
        found = {cell: parts for cell in self.cells if (parts := cell_text.written(cell)) is not None}
        known = {cell: parts for cell, parts in found.items() if parts.unit in cell_text.KNOWN_UNITS}
        if not known:
            known = found if self._one_unit(found, forced) else {}
        if not known:
            return None
        if others := [cell for cell in self.cells if cell not in known]:
            refuse_mixed(self.table, self.name, self.column, others)
        unit = self._unit({cell: parts.unit for cell, parts in known.items()})
        readings = cell_text.candidates(list(known.values()), self.typing.decimal)
        if not readings:
            self._refuse_marks(known)
        if len(readings) > 1:
            cell = next(c for c, p in known.items() if len({cell_text.value_of(p, r) for r in readings}) > 1)
            one, other = (f"{cell_text.value_of(known[cell], reading):.15g}" for reading in readings)
            problem = "and no cell of the column decides: pass --decimal '.' or ','"
            raise self.refused(cell, f"could be {one} or {other}, {problem}")
        if all(map(is_number, known)) and readings[0].plain:
            return CellReading()
        reading = replace(readings[0], unit=unit, from_rows=self.typing.decimal is None)
        return replace(reading, from_rows=True) if reading.plain else reading

    def _one_unit(self, found: Mapping[str, cell_text.Written], forced: bool) -> bool:
        """Whether all cells are numbers with one unknown unit, which the user wants to leave out."""
        units = {parts.unit for parts in found.values()}
        if len(found) < len(self.cells) or not (len(units) == 1 or units <= cell_text.MAGNITUDES | {""}):
            return False
        if len(self.cells) < 2 and not forced:
            return False
        cell = self.cells[0]
        unit = found[cell].unit
        if unit in cell_text.MAGNITUDES and self.typing.kinds.get(self.name) != "number":
            raise self.refused(cell, f"is short for a number ({unit!r}): write it out, or {_KEEP}")
        if not forced:
            problem = f"is a number with the unit {unit!r}: pass --types {{name}}=number, or {_KEEP}"
            raise self.refused(cell, problem)
        return True

    def _unit(self, units: dict[str, str]) -> str:
        first = {unit: cell for cell, unit in reversed(units.items())}
        bare = first.pop("", None)
        given = sorted(first)
        if len(given) > 1:
            one, other = (first[unit] for unit in given[:2])
            raise self.refused(one, f"and {{other}} have different units: {_ALIKE}", other)
        if not given:
            return ""
        if bare is not None and given[0] in ("%", "‰"):
            raise self.refused(bare, f"has no {given[0]}, as {{other}} has: {_ALIKE}", first[given[0]])
        return given[0]

    def _refuse_marks(self, known: Mapping[str, cell_text.Written]) -> None:
        cells, decimal = list(known), self.typing.decimal

        def fits(*some: str) -> bool:
            return bool(cell_text.candidates([known[cell] for cell in some], decimal))

        for cell in cells if decimal is not None else ():
            if not fits(cell):
                raise self.refused(cell, f"does not fit --decimal {decimal!r}: correct it, or {_KEEP}")
        k = next(k for k in range(1, len(cells)) if not fits(*cells[: k + 1]))
        first = next((cell for cell in cells[:k] if not fits(cell, cells[k])), cells[0])
        problem = f"has other marks for decimals or thousands than {{other}}: {_ALIKE}"
        raise self.refused(cells[k], problem, first)

    def date_format(self, kind: str) -> str:
        """The one format of all cells."""
        compact = all(map(_COMPACT.fullmatch, self.cells))
        styles = ["%Y%m%d"] if compact else cell_text.date_formats(self.cells)
        if len(styles) == 1 and "%y" not in styles[0]:
            return styles[0]
        first = self.cells[0]
        if styles:
            either = " or ".join(f"--types {{name}}={kind}:{style}" for style in styles[:2])
            raise self.refused(first, f"leaves day, month or century uncertain: pass {either}")
        self.refuse_others([cell for cell in self.cells if not cell_text.is_date(cell)], "a date")
        other = next(cell for cell in self.cells if not cell_text.date_formats([first, cell]))
        raise self.refused(other, "has another format than {other}: write dates alike, as 2024-01-31", first)

    def refuse_others(self, cells: Sequence[str], what: str) -> None:
        if cells:
            remedy = "correct it, or pass --na-values if it means missing"
            raise self.refused(cells[0], f"is not {what}, as --types says: {remedy}")

    def refuse_other_kinds(self) -> None:
        """Refuse dates, times and fractions, which are no categories unless somebody says so."""
        dates = dict.fromkeys(filter(cell_text.is_date, self.cells))
        also, first = f"{_KEEP}, or leave it out with --drop {{name}}", self.cells[0]
        if 2 * len(dates) > len(self.cells):
            date = next(iter(dates))
            if other := next((cell for cell in self.cells if cell not in dates), ""):
                remedy = f"correct it, pass --na-values if it means missing, or {also}"
                raise self.refused(other, f"is not a date, as {{other}} is: {remedy}", date)
            kinds = "days (since 1970), year, month or weekday"
            raise self.refused(date, f"is a date: pass --types {{name}}={kinds}, {also}")
        if all(map(cell_text.is_time, self.cells)):
            raise self.refused(first, f"is a time: pass --types {{name}}=hours, {also}")
        if all(map(_RATIO.fullmatch, self.cells)):
            what = "looks like a fraction or two numbers: write them as numbers"
            raise self.refused(first, f"{what}, {also}")


def refuse_mixed(table: Table, name: str, column: Column, others: Sequence[str] = ()) -> None:
    """Refuse a column of numbers and text."""
    if not others and column.kind not in ("mixed", "raw"):
        return
    wrong = others or [cell for cell in column.words if cell and not is_number(cell)]
    if not wrong:
        return
    at = column.first_row(*wrong)
    cell = column.words[column.values[at]]
    quoted = cell[:20] if re.fullmatch(r"[\w.-]+", cell) else ascii(cell[:20])
    problem = (
        f"{cell[:40]!a} is not a number, as other cells of the column are: correct it, pass --na-values "
        f"{quoted} if it means missing, or --categorical {quote(name)}"
    )
    raise table.refused(name, problem, at)


def read_column(table: Table, name: str, column: Column, reading: CellReading, why: str) -> Column:
    """A column's cells as numbers."""
    if column.kind == "number":
        return column
    if reading.plain and are_truths(column.words):
        return column.mapped([TRUTH.get(cell.lower(), float("nan")) for cell in column.words])
    if reading.plain:
        refuse_mixed(table, name, column)
    values: list[float] = []
    for cell in column.words:
        value = _value(cell, reading) if cell else float("nan")
        merging = value is not None and abs(value) >= EXACT and is_merging(_NO_DIGIT.sub("", cell))
        if value is None or np.isinf(value) or merging:
            fault = TOO_LARGE if merging else NOT_FINITE if value is not None else f"is not a number, {why}"
            raise table.refused(name, f"{cell[:40]!a} {fault}", column.first_row(cell))
        values.append(value)
    return column.mapped(values)


def as_numbers(table: Table, name: str, column: Column, typing: Typing) -> tuple[Column, CellReading | None]:
    """A column's cells as numbers, where they are, and how they are read."""
    reading = recognise(table, name, column, typing)
    if reading is not None:
        column = read_column(table, name, column, reading, "as other cells are")
    return column, reading


def are_truths(words: Sequence[str]) -> bool:
    """Whether all cells with a value are truth values, which are the numbers 1 and 0."""
    return any(words) and all(word.lower() in TRUTH for word in words if word)


def _value(cell: str, reading: CellReading) -> float | None:
    if reading.kind != "number":
        return cell_text.to_number(cell, reading.kind, reading.dates)
    if reading.plain:
        return float(cell) if is_number(cell) else None
    parts = cell_text.written(cell)
    # As in recognise(): a currency may be left out, a per cent sign or another unit may not.
    optional = reading.unit in cell_text.KNOWN_UNITS - {"%", "‰"}
    if parts is None or not (parts.unit == reading.unit or (optional and not parts.unit)):
        return None
    return cell_text.value_of(parts, reading)


# --- doubts about columns, of which the user is told -------------------------------------------------------

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
