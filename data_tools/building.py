"""Chunks of cells, as readers give them, become columns of a table."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from fastadmm.data_tools.columns import (
    EXACT,
    MISSING,
    NOT_FINITE,
    QUOTED,
    TOO_LARGE,
    Column,
    Growing,
    Scratch,
    canonical_text,
    in_quotes,
    is_merging,
)
from fastadmm.data_tools.csv_table import is_number, is_text
from fastadmm.data_tools.number_text import KNOWN_UNITS, candidates, value_of, written
from fastadmm.data_tools.opening import NotUtf8
from fastadmm.errors import InputError

_LEADING_ZERO = re.compile(r"\n[-+]?(0\d+)(?=\n)")
_NO_GROUPS = re.compile(r"\.(?!\d{3}\n)|\n[-+]?0?\.|\d{4}\.")
_INTEGER = re.compile(r"(?:0|-?[1-9]\d{0,17})\Z")


@dataclass(frozen=True)
class Cells:
    """What cells of a table are kept as."""

    text: Collection[str] = ()  # columns kept as text even if all their cells are numbers (categories)
    raw: Collection[str] = ()  # columns kept letter by letter, because their numbers are not written plainly
    all_raw: bool = False  # all columns are, besides those of `text`
    na: Mapping[str, Collection[str]] = field(default_factory=dict)
    id: str | None = None  # the column of ids
    quoted: Collection[str] = ()  # columns of texts that may be in quotes

    def words(self, name: str) -> frozenset[str]:
        """Words that mean "no value" in a column."""
        return frozenset(self.na.get("", ())) | frozenset(self.na.get(name, ()))


class Places:
    """Where the rows of a table stand: in which part, in which line."""

    def __init__(self) -> None:
        self._rows: list[int] = []  # first row of each chunk
        self._chunks: list[
            tuple[str, np.ndarray | int]
        ] = []  # what stands before numbers; these, or the first
        self.n_rows = 0

    def add(self, before: str, numbers: np.ndarray | int, count: int) -> None:
        """Add rows."""
        if isinstance(numbers, np.ndarray) and numbers[-1] - numbers[0] == count - 1:
            numbers = int(numbers[0])  # one after the other, as nearly always
        self._rows.append(self.n_rows)
        self._chunks.append((before, numbers))
        self.n_rows += count

    def of(self, row: int) -> str:
        """Place of a row, such as ``"line 12"``."""
        at = bisect_right(self._rows, row) - 1
        before, numbers = self._chunks[at]
        row -= self._rows[at]
        return f"{before}{numbers + row if isinstance(numbers, int) else numbers[row]}"


@dataclass(frozen=True)
class Numbers:
    """Cells that are all numbers or missing."""

    values: np.ndarray  # ``(k,)`` float64, NaN where missing
    zeros: str = ""  # one that begins with a zero, or ``""``
    pointed: bool = False  # whether some have a point; one that cannot group thousands
    ungrouped: bool = False  # whether some have a point; one that cannot group thousands


@dataclass(frozen=True)
class Words:
    """Cells as they are written."""

    codes: np.ndarray  # ``(k,)`` numbers of `words`
    words: Sequence[str]  # different texts, in the order of their first rows


@dataclass(frozen=True)
class Whole:
    """Ids that are all whole numbers: ``(k,)`` int64."""

    values: np.ndarray


#: Cells of some consecutive rows, by column.
Chunk = Mapping[str, Numbers | Words | Whole]


def words_of(cells: Sequence[str]) -> Words:
    """Cells with their different texts numbered."""
    number: dict[str, int] = {}
    codes = [number.setdefault(cell, len(number)) for cell in cells]
    return Words(np.array(codes, dtype=np.int32), list(number))


def _only_number(cell: str) -> float | None:
    """The number that a cell can be, whatever the marks of its column; None where it may be two, or none."""
    if is_number(cell):
        return float(cell)
    parts = written(cell)
    if parts is None or parts.unit not in KNOWN_UNITS:
        return None
    readings = candidates([parts])
    return value_of(parts, readings[0]) if len(readings) == 1 else None


def missing_numbers(words: Iterable[str]) -> set[float]:
    """Numbers among words for "no value", however they are written; those with leading zeros are codes."""
    plain = (word for word in words if not _LEADING_ZERO.search(f"\n{word}\n"))
    return {number for word in plain if (number := _only_number(word)) is not None}


class _Refusing:
    """What both kinds of builders know of their column."""

    def __init__(self, path: str, name: str, cells: Cells) -> None:
        self.path, self.name = path, name
        self.text = name in cells.text or name == cells.id
        self.quoted = name in cells.quoted
        self.na = cells.words(name)
        self.na_numbers = set() if self.text else missing_numbers(self.na)

    def stripped(self, words: Sequence[str]) -> list[str]:
        """Texts without spaces around; ``""`` for those that mean "no value"."""
        cells = [word.strip() for word in words]
        if not self.text:
            cells = ["" if cell.lower() in MISSING else cell for cell in cells]
        if self.na:
            cells = ["" if self._means_missing(cell) else cell for cell in cells]
        return cells

    def _means_missing(self, cell: str) -> bool:
        """Whether a cell is one of the words for "no value", or a number that is."""
        if cell in self.na or canonical_text(cell) in self.na:
            return True
        return bool(self.na_numbers) and _only_number(cell) in self.na_numbers

    def refuse(self, cell: str, place: str, why: str, kind: type[InputError] = InputError) -> None:
        raise kind(f"{self.path}: {place}, column {self.name!r}: {cell[:40]!a} {why}")

    def refuse_spoiled(self, cells: Sequence[str], codes: np.ndarray, place: Callable[[int], str]) -> None:
        """Refuse what cannot be stored as text, and quotes that other readers would have taken away."""
        for k, cell in enumerate(cells):
            quotes = not self.quoted and in_quotes(cell)
            if is_text(cell) and "\0" not in cell and not quotes:
                continue
            at = place(int(np.flatnonzero(codes == k)[0]))
            if quotes:
                self.refuse(cell, at, QUOTED)
            if is_text(cell):
                self.refuse(cell, at, "holds a NUL character; remove it")
            self.refuse(cell, at, "is not UTF-8 text: convert the file to UTF-8", NotUtf8)


class Builder(_Refusing):
    """Collects one column, as numbers for as long as all its cells are numbers or missing."""

    def __init__(self, path: str, name: str, cells: Cells, scratch: Scratch) -> None:
        super().__init__(path, name, cells)
        self.raw = not self.text and (cells.all_raw or name in cells.raw)
        self.seen = {"number": False, "text": False}
        self.numbers: Growing | None = Growing(scratch, np.float64)
        self.codes = Growing(scratch, np.int32)
        self.words: dict[str, int] = {}
        self.zeros, self.points, self.ungrouped = "", False, False
        self._has_numbers = False
        #: Numbers have come before text, or after it: the column is read once more, as text.
        self.turned = False

    @property
    def plain(self) -> bool:
        """Whether cells are wanted as numbers."""
        return not (self.text or self.raw or self.na or self.numbers is None)

    def add(self, cells: Numbers | Words | Whole, place: Callable[[int], str]) -> None:
        """Add cells; `place` names that of one of them."""
        assert not isinstance(cells, Whole)
        if isinstance(cells, Numbers):
            self._add_numbers(cells, place)
            return
        words = self.stripped(cells.words)
        if not self.text and not self.raw:
            found = _as_numbers(words)
            if found is not None and self.numbers is not None:
                for k in np.flatnonzero(np.isinf(found.values)):
                    at = int(np.flatnonzero(cells.codes == k)[0])
                    self.refuse(words[k], place(at), NOT_FINITE)
                for k in np.flatnonzero(np.abs(found.values) >= EXACT):
                    if is_merging(words[k]):
                        self.refuse(words[k], place(int(np.flatnonzero(cells.codes == k)[0])), TOO_LARGE)
                self._add_numbers(_of_rows(found, cells.codes), place)
                return
        self.refuse_spoiled(words, cells.codes, place)
        if not self.text:
            for word in set(words) - {""}:
                self.seen["number" if is_number(word) else "text"] = True
        else:
            words = [canonical_text(word) if word.lower() not in MISSING else "" for word in words]
        self._become_text()
        table = np.array([self.words.setdefault(word, len(self.words)) for word in words], dtype=np.int32)
        self.codes.append(table[cells.codes])

    def _become_text(self) -> None:
        if self.numbers is None:
            return
        self.turned |= self._has_numbers
        if self.numbers.size:
            self.codes.append(np.full(self.numbers.size, self.words.setdefault("", 0), dtype=np.int32))
        self.numbers = None

    def _add_numbers(self, cells: Numbers, place: Callable[[int], str]) -> None:
        values = cells.values
        if np.isinf(values).any():
            at = int(np.flatnonzero(np.isinf(values))[0])
            self.refuse(repr(float(values[at])), place(at), NOT_FINITE)
        any_number = not bool(np.isnan(values).all())
        self.seen["number"] |= any_number
        self.zeros = self.zeros or cells.zeros
        self.points |= cells.pointed
        self.ungrouped |= cells.ungrouped
        if self.numbers is None:
            self.turned |= any_number
            self.codes.append(
                np.full(len(values), self.words.setdefault("", len(self.words)), dtype=np.int32)
            )
            return
        self._has_numbers |= any_number
        self.numbers.append(values)

    def finish(self) -> Column:
        """The column."""
        if self.numbers is not None and not self.text:
            grouped = self.points and not self.ungrouped
            return Column("number", self.numbers.array(), zeros=self.zeros, grouped=grouped)
        kind = "raw" if self.raw else "mixed" if all(self.seen.values()) and not self.text else "text"
        return Column(kind, self.codes.array(), tuple(self.words))


def _as_numbers(words: Sequence[str]) -> Numbers | None:
    """Texts as numbers; None if one of them is none."""
    joined = "\n".join(words)
    if "_" in joined:
        return None
    try:
        values = np.array([word or "nan" for word in words], dtype=object).astype(np.float64)
    except ValueError:
        return None
    joined = f"\n{joined}\n"
    match = _LEADING_ZERO.search(joined) if "\n0" in joined or "\n-0" in joined or "\n+0" in joined else None
    pointed = "." in joined
    return Numbers(values, match[1] if match else "", pointed, pointed and bool(_NO_GROUPS.search(joined)))


def _of_rows(found: Numbers, codes: np.ndarray) -> Numbers:
    return Numbers(found.values[codes], found.zeros, found.pointed, found.ungrouped)


class IdBuilder(_Refusing):
    """Collects the column of ids: whole numbers, or the text of each row."""

    turned = False
    plain = False

    def __init__(self, path: str, name: str, cells: Cells) -> None:
        super().__init__(path, name, cells)
        self._chunks: list[np.ndarray] = []  # int64 or bytes

    def add(self, cells: Numbers | Words | Whole, place: Callable[[int], str]) -> None:
        """Add cells; `place` names that of one of them."""
        if isinstance(cells, Whole):
            self._chunks.append(cells.values)
            return
        assert isinstance(cells, Words)
        words = self.stripped(cells.words)
        self.refuse_spoiled(words, cells.codes, place)
        words = [canonical_text(word) if word.lower() not in MISSING else "" for word in words]
        if all(map(_INTEGER.match, words)):
            self._chunks.append(np.array([int(word) for word in words], dtype=np.int64)[cells.codes])
        else:
            self._chunks.append(np.array([word.encode() for word in words], dtype="S")[cells.codes])

    def finish(self) -> Column:
        """The column."""
        if all(chunk.dtype.kind == "i" for chunk in self._chunks):
            return Column("ids", np.concatenate(self._chunks))
        return Column("ids", np.concatenate([chunk.astype("S") for chunk in self._chunks]))
