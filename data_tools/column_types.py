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
from fastadmm.data_tools.columns import EXACT, NOT_FINITE, TOO_LARGE, TRUTH, is_merging
from fastadmm.data_tools.csv_table import is_number
from fastadmm.data_tools.dates import date_formats, hours, is_date, is_time, to_number
from fastadmm.data_tools.number_text import KNOWN_UNITS, MAGNITUDES, candidates, value_of, written
from fastadmm.data_tools.suggest import nearest
from fastadmm.data_tools.tables import Column, Table
from fastadmm.errors import ConfigError, InputError
from fastadmm.store.cell_reading import DATE_KINDS, KINDS, CellReading

_NO_DIGIT = re.compile(r"\D|[eE].*")
_KEEP = "keep the texts as categories with --categorical {name}"
_ALIKE = "write them alike, or pass --categorical {name}"
_RATIO = re.compile(r"\d+\s*/\s*\d+")


@dataclass(frozen=True)
class Typing:
    """What the user says about the columns of a table."""

    kinds: Mapping[str, str] = field(default_factory=dict)
    decimal: str | None = None  # mark of the table's numbers; None: by the column

    @property
    def dates(self) -> list[str]:
        """Columns that are said to hold dates or times."""
        return [name for name, kind in self.kinds.items() if kind not in ("number", "category")]

    @property
    def stated(self) -> bool:
        """Whether the mark is stated."""
        return self.decimal is not None

    def category(self, name: str) -> bool:
        """Whether a column is said to hold categories."""
        return self.kinds.get(name) == "category"


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
                f"--types {entry!r}: unknown kind {kind!r}{nearest(main, ['category', *KINDS])}; "
                f"formats belong to "
                "dates, such as days:%d.%m.%Y"
            )
        if kinds.setdefault(name, kind) != kind:
            raise ConfigError(f"--types: column {name!r} is given two kinds, {kinds[name]} and {kind}")
    return kinds


def recognise(table: Table, name: str, column: Column, typing: Typing) -> CellReading | None:
    """How a column's cells are read as numbers; None where they are categories."""
    kind, _, style = typing.kinds.get(name, "").partition(":")
    if kind == "category":
        return None
    if column.kind == "number":
        return CellReading()
    cells = [cell for cell in column.words if cell]
    if are_truths(column.words) or not cells:
        return CellReading()
    look = _Look(table, name, column, cells, typing)
    if kind in DATE_KINDS:
        others = [cell for cell in cells if style and to_number(cell, kind, style) is None]
        look.refuse_others(others, f"a date in the format {style}")
        return CellReading(kind, dates=style or look.date_format(kind), from_rows=not style)
    if kind == "hours":
        look.refuse_others([cell for cell in cells if not is_time(cell)], "a time such as 14:30")
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

    def where(self, cell: str) -> str:
        return self.table.where(self.column.first_row(cell))

    def place(self, cell: str) -> str:
        return f"{self.table.path}: {self.where(cell)}, column {self.name!r}: {cell[:40]!a}"

    def refused(self, cell: str, problem: str, other: str = "") -> InputError:
        """The error for a cell; `problem` may name another cell, and the column as a shell reads it."""
        there = f"{other[:40]!a} in {self.where(other)}" if other else ""
        problem = problem.replace("{other}", there).replace("{name}", quote(self.name))
        return InputError(f"{self.place(cell)} {problem}")

    def numbers(self, forced: bool) -> CellReading | None:
        """The one reading of the cells as numbers; None where they are none."""
        found = {cell: parts for cell in self.cells if (parts := written(cell)) is not None}
        known = {cell: parts for cell, parts in found.items() if parts.unit in KNOWN_UNITS}
        if not known:
            known = found if self._one_unit(found, forced) else {}
        if not known:
            return None
        others = [cell for cell in self.cells if cell not in known]
        if others:
            refuse_mixed(self.table, self.name, self.column, others)
        unit = self._unit({cell: parts.unit for cell, parts in known.items()})
        readings = candidates(list(known.values()), self.typing.decimal)
        if not readings:
            self._refuse_marks(list(known))
        if len(readings) > 1:
            cell = next(c for c, p in known.items() if len({value_of(p, r) for r in readings}) > 1)
            one, other = (f"{value_of(known[cell], reading):.15g}" for reading in readings)
            problem = (
                f"could be {one} or {other}, and no cell of the column decides: pass --decimal '.' or ','"
            )
            raise self.refused(cell, problem)
        if all(map(is_number, known)) and readings[0].plain:
            return CellReading()
        reading = replace(readings[0], unit=unit, from_rows=not self.typing.stated)
        return replace(reading, from_rows=True) if reading.plain else reading

    def _one_unit(self, found: Mapping[str, object], forced: bool) -> bool:
        """Whether all cells are numbers with one unknown unit, which the user wants to leave out."""
        every = [parts.unit for cell in self.cells if (parts := written(cell)) is not None]
        units = set(every)
        if len(found) < len(self.cells) or not (len(units) == 1 or units <= MAGNITUDES | {""}):
            return False
        if len(self.cells) < 2 and not forced:
            return False
        cell, unit = self.cells[0], every[0]
        if unit in MAGNITUDES and self.typing.kinds.get(self.name) != "number":
            raise self.refused(cell, f"is short for a number ({unit!r}): write it out, or {_KEEP}")
        if not forced:
            problem = f"is a number with the unit {unit!r}: pass --types {{name}}=number, or {_KEEP}"
            raise self.refused(cell, problem)
        return True

    def _unit(self, units: dict[str, str]) -> str:
        given = sorted(set(units.values()) - {""})
        if len(given) > 1:
            one, other = (next(cell for cell, unit in units.items() if unit == u) for u in given[:2])
            raise self.refused(one, f"and {{other}} have different units: {_ALIKE}", other)
        if not given:
            return ""
        bare = next((cell for cell, unit in units.items() if not unit), None)
        if bare is not None and given[0] in ("%", "‰"):
            full = next(cell for cell, unit in units.items() if unit)
            raise self.refused(bare, f"has no {given[0]}, as {{other}} has: {_ALIKE}", full)
        return given[0]

    def _refuse_marks(self, cells: list[str]) -> None:
        first = cells[0]
        if self.typing.stated:
            for cell in cells:
                parts = written(cell)
                assert parts is not None
                if not candidates([parts], self.typing.decimal):
                    problem = f"does not fit --decimal {self.typing.decimal!r}: correct it, or {_KEEP}"
                    raise self.refused(cell, problem)
        for k, cell in enumerate(cells[1:], start=1):
            if not candidates([p for c in cells[: k + 1] if (p := written(c)) is not None]):
                pairs = [c for c in cells[:k] if not candidates([p for d in (c, cell) if (p := written(d))])]
                first = pairs[0] if pairs else first
                problem = f"has other marks for decimals or thousands than {{other}}: {_ALIKE}"
                raise self.refused(cell, problem, first)

    def date_format(self, kind: str) -> str:
        """The one format of all cells."""
        compact = all(re.fullmatch(r"(19|20)\d\d(0[1-9]|1[0-2])([0-2]\d|3[01])", cell) for cell in self.cells)
        styles = ["%Y%m%d"] if compact and self.cells else date_formats(self.cells) if self.cells else []
        if len(styles) == 1 and "%y" not in styles[0]:
            return styles[0]
        if styles:
            either = " or ".join(f"--types {{name}}={kind}:{style}" for style in styles[:2])
            raise self.refused(self.cells[0], f"leaves day, month or century uncertain: pass {either}")
        self.refuse_others([cell for cell in self.cells if not is_date(cell)], "a date")
        first = self.cells[0]
        other = next(cell for cell in self.cells if not date_formats([first, cell]))
        raise self.refused(other, "has another format than {other}: write dates alike, as 2024-01-31", first)

    def refuse_others(self, cells: Sequence[str], what: str) -> None:
        if cells:
            remedy = "correct it, or pass --na-values if it means missing"
            raise self.refused(cells[0], f"is not {what}, as --types says: {remedy}")

    def refuse_other_kinds(self) -> None:
        """Refuse dates, times and fractions, which are no categories unless somebody says so."""
        dates = [cell for cell in self.cells if is_date(cell)]
        also = f"{_KEEP}, or leave it out with --drop {{name}}"
        if 2 * len(dates) > len(self.cells):
            if others := [cell for cell in self.cells if cell not in set(dates)]:
                remedy = f"correct it, pass --na-values if it means missing, or {also}"
                raise self.refused(others[0], f"is not a date, as {{other}} is: {remedy}", dates[0])
            kinds = "days (since 1970), year, month or weekday"
            raise self.refused(dates[0], f"is a date: pass --types {{name}}={kinds}, {also}")
        if all(map(is_time, self.cells)):
            raise self.refused(self.cells[0], f"is a time: pass --types {{name}}=hours, {also}")
        if all(map(_RATIO.fullmatch, self.cells)):
            what = "looks like a fraction or two numbers: write them as numbers"
            raise self.refused(self.cells[0], f"{what}, {also}")


def refuse_mixed(table: Table, name: str, column: Column, others: Sequence[str] = ()) -> None:
    """Refuse a column of numbers and text."""
    if not others and column.kind not in ("mixed", "raw"):
        return
    wrong = others or [cell for cell in column.words if cell and not is_number(cell)]
    if not wrong:
        return
    at = column.first_row(*wrong)
    cell = column.words[column.values[at]]
    raise InputError(
        f"{table.path}: {table.where(at)}, column {name!r}: {cell[:40]!a} is not a number, "
        f"as other cells of the column are: correct it, pass --na-values {_quoted(cell)} if it means "
        f"missing, or "
        f"--categorical {quote(name)}"
    )


def _quoted(cell: str) -> str:
    return cell[:20] if re.fullmatch(r"[\w.-]+", cell) else ascii(cell[:20])


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
            at = column.first_row(cell)
            fault = TOO_LARGE if merging else NOT_FINITE if value is not None else f"is not a number, {why}"
            if value is None and _undecided(cell, reading):
                fault = (
                    "has a mark, and no cell of the training table says whether it is the decimal one: "
                    "convert that table with --decimal '.' or --decimal ','"
                )
            raise InputError(f"{table.path}: {table.where(at)}, column {name!r}: {cell[:40]!a} {fault}")
        values.append(value)
    return column.mapped(values)


def are_truths(words: Sequence[str]) -> bool:
    """Whether all cells with a value are truth values, which are the numbers 1 and 0."""
    return any(words) and all(word.lower() in TRUTH for word in words if word)


def _undecided(cell: str, reading: CellReading) -> bool:
    """Whether a cell has a mark that training did not decide."""
    if reading.kind != "number" or reading.decimal:
        return False
    return any(
        _value(cell, replace(reading, decimal=mark, thousands=other)) is not None
        for mark, other in ((".", reading.thousands or ","), (",", reading.thousands or "."))
    )


def _value(cell: str, reading: CellReading) -> float | None:
    if reading.kind == "hours":
        return hours(cell)
    if reading.kind in DATE_KINDS:
        return to_number(cell, reading.kind, reading.dates)
    if reading.plain:
        return float(cell) if is_number(cell) else None
    parts = written(cell)
    # As in recognise(): a currency may be left out, a per cent sign or another unit may not.
    optional = reading.unit in KNOWN_UNITS - {"%", "‰"}
    if parts is None or not (parts.unit == reading.unit or (optional and not parts.unit)):
        return None
    return value_of(parts, reading)
