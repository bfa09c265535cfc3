"""Columns of a table: numbers, or numbers of words; long ones lie in a scratch file instead of memory."""

from __future__ import annotations

import difflib
import re
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
from fastadmm.files.atomic import storage_errors

_LONG = re.compile(r"[-+]?(\d{16,})(?:\.0*)?")
_QUOTES = {"''", "``", "`'", "‘’", "‚‘", "“”", "„“", "„”", "«»", "»«"}
_INTEGER = re.compile(r"(?:0|-?[1-9]\d{0,17})\Z")
_WHOLE = re.compile(r"\+?(-?\d+)(?:\.0*)?\Z")

#: Whole numbers up to here are different numbers in double precision.
EXACT = 1 << 53

#: Remedy for what is no finite number.
NOT_FINITE = "is not finite: correct it, or leave the row out"

#: Remedy for a larger whole number.
TOO_LARGE = (
    "is a whole number above 2**53 = 9007199254740992, where neighbours become one: pass --categorical "
    "if it is a code, leave it out with --drop, or write it in larger units"
)

#: Remedy for quotes.
QUOTED = "is in quotes that are part of the text: write it without quotes, or in double ones"

#: Cells that mean "no value", in small letters.
MISSING = {"", "nan", "na", "n/a", "null"}

#: Truth values, as they are written in small letters.
TRUTH = {"true": 1.0, "t": 1.0, "false": 0.0, "f": 0.0}

#: Bytes of a table's columns that are kept in memory, where the others have a folder.
IN_MEMORY = 64 << 20

#: Values looked at together: 1 << 20 are 8 MB.
PIECE = 1 << 20


def pieces(rows: np.ndarray, width: int = 1) -> Iterator[np.ndarray]:
    """Rows, some MB of values at a time; the same pieces whatever the machine."""
    step = max(1, PIECE // max(1, width))
    for start in range(0, len(rows), step):
        yield rows[start : start + step]


def nearest(name: str, known: Sequence[str]) -> str:
    """End of a message about an unknown name: ``"; did you mean 'age'?"``, or the list of known names."""
    alike = name.strip().casefold()
    if same := [other for other in known if other.strip().casefold() == alike]:
        return f"; did you mean {same[0]!r}?"
    if match := difflib.get_close_matches(name, known, n=1, cutoff=0.6):
        return f"; did you mean {match[0]!r}?"
    return f"; there are: {listed(known, 30)}"


def listed(names: Sequence[Any], most: int, count: int | None = None) -> str:
    """The first of so many names, and how many more there are."""
    more = (len(names) if count is None else count) - most
    return ", ".join(map(str, names[:most])) + (f" and {more} more" if more > 0 else "")


def is_number(cell: str) -> bool:
    """Whether a cell reads as a number, also an infinite one or NaN."""
    if "_" in cell:  # float("1_000") is Python, not CSV
        return False
    try:
        float(cell)
    except ValueError:
        return False
    return True


def canonical_text(cell: str) -> str:
    """Text of a category or id: ``"1"`` for ``1``, ``+1`` and ``1.0``; all other text is kept."""
    match = _WHOLE.match(cell)
    return match[1] if match else cell


def keys_of(ids: Sequence[str]) -> np.ndarray:
    """Ids that can be compared: numbers, if all are plain whole ones."""
    if all(map(_INTEGER.match, ids)):
        return np.array([int(text) for text in ids], dtype=np.int64)
    return np.array([text.encode() for text in ids], dtype="S")


def in_quotes(cell: str) -> bool:
    """Whether a cell is in quotes that no reader of CSV takes away."""
    return len(cell) > 1 and cell[0] + cell[-1] in _QUOTES


def is_merging(cell: str) -> bool:
    """Whether a cell is a whole number so large that its neighbours would be read as the same number."""
    match = _LONG.fullmatch(cell)
    return match is not None and int(match[1]) > EXACT


def cased(words: Iterable[str]) -> Iterator[str]:
    """Words in every mixture of small and capital letters."""
    for word in words:
        yield from map("".join, product(*({c, c.upper()} for c in word)))


def truth_levels(levels: Sequence[str]) -> dict[float, int]:
    """Which category is each truth value, where all are truth values, each spelled in one way."""
    found = {TRUTH.get(level.lower(), -1.0): i for i, level in enumerate(levels)}
    return found if len(found) == len(levels) and -1.0 not in found else {}


# --- cells of some consecutive rows ----------------------------------------------------------------------


@dataclass(frozen=True)
class Numbers:
    """Cells that are all numbers or missing."""

    values: np.ndarray  # ``(k,)`` float64, NaN where missing
    zeros: str = ""  # one that begins with a zero, or ``""``
    points: int = 0  # 1: some cells have points; 2: one that cannot group thousands


@dataclass(frozen=True)
class Words:
    """Cells as they are written."""

    codes: np.ndarray  # ``(k,)`` numbers of `words`
    words: Sequence[str]  # different texts, in the order of their first rows


@dataclass(frozen=True)
class Whole:
    """Ids that are all whole numbers: ``(k,)`` int64."""

    values: np.ndarray


#: Cells, by column.
ByColumn = Mapping[str, Numbers | Words | Whole]


@dataclass(frozen=True)
class Chunk:
    """Consecutive rows of a file: where each stands, such as ``"line "`` and its numbers, and their cells."""

    what: str
    numbers: np.ndarray
    cells: ByColumn


def words_of(cells: Iterable[str]) -> Words:
    """Cells with their different texts numbered."""
    number: dict[str, int] = {}
    codes = [number.setdefault(cell, len(number)) for cell in cells]
    return Words(np.array(codes, dtype=np.int32), list(number))


# --- whole columns ---------------------------------------------------------------------------------------


class Growing:
    """An array that is given in pieces: with a folder, more bytes than so many lie there without a name."""

    def __init__(self, folder: str | Path | None, most: int, dtype: Any) -> None:
        self._folder, self._dtype = None if folder is None else str(folder), np.dtype(dtype)
        self._most = 0 if folder is None else max(1, most)  # 0: all
        self._file = tempfile.SpooledTemporaryFile(self._most, dir=self._folder, prefix=".fastadmm-")  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        self.size = 0

    def append(self, values: np.ndarray) -> None:
        """Add values, shape ``(k,)``."""
        self.size += len(values)
        with storage_errors(str(self._folder), "write"):
            self._file.write(np.ascontiguousarray(values, dtype=self._dtype).data)

    def array(self) -> np.ndarray:
        """All values; read from the file as they are needed."""
        with storage_errors(str(self._folder), "read"):
            if self.size and 0 < self._most < self.size * self._dtype.itemsize:
                self._file.flush()
                return np.memmap(self._file, self._dtype, "r", shape=(self.size,))
            self._file.seek(0)
            return np.frombuffer(self._file.read(), dtype=self._dtype)


@dataclass(frozen=True)
class Column:
    """Cells of one column."""

    kind: str  # "number"; "ids"; or of words "text", "raw" (letter by letter), "mixed" (some are numbers)
    values: np.ndarray
    words: tuple[str, ...] = ()
    zeros: str = ""  # a number with leading zeros, as codes have them; ``""``: none
    grouped: bool = False  # whether all points may group thousands

    @cached_property
    def _absent(self) -> int:
        return self.words.index("") if "" in self.words else -1

    @cached_property
    def full(self) -> bool:
        """Whether no cell is missing."""
        if self.kind != "number":
            return self._absent < 0
        return not any(np.isnan(self.values[part]).any() for part in self._spans())

    def _spans(self) -> Iterator[slice]:
        return (slice(start, start + PIECE) for start in range(0, len(self.values), PIECE))

    def missing(self, rows: np.ndarray) -> np.ndarray:
        """``(k,)`` mask of the missing cells among some rows."""
        if self.full:
            return np.zeros(len(rows), dtype=bool)
        values = self.values[rows]
        return np.isnan(values) if self.kind == "number" else values == self._absent

    def first_missing(self, rows: np.ndarray) -> tuple[int, int]:
        """How many cells of some rows are missing, and the first such row, or -1."""
        count, first = 0, -1
        for part in pieces(rows) if not self.full else ():
            absent = part[self.missing(part)]
            first = int(absent[0]) if first < 0 and len(absent) else first
            count += len(absent)
        return count, first

    def first_row(self, *words: str) -> int:
        """The first row with one of these texts."""
        wanted = np.array([self.words.index(word) for word in words])
        for part in self._spans():
            if (found := np.isin(self.values[part], wanted)).any():
                return part.start + int(np.flatnonzero(found)[0])
        raise KeyError(words)

    def counts(self, rows: np.ndarray) -> np.ndarray:
        """How often each word occurs in some rows, which are distinct."""
        total = np.zeros(len(self.words), dtype=np.int64)
        every = len(rows) == len(self.values)  # in the order of the file, which is quicker
        for part in self._spans() if every else pieces(rows):
            total += np.bincount(self.values[part], minlength=len(self.words))
        return total

    def mapped(self, numbers: Sequence[float]) -> Column:
        """The column with a number for each word."""
        return Column("number", np.array(numbers, dtype=np.float64)[self.values])

    def as_text(self) -> Column:
        """The column with its cells as text, whole numbers without a fraction."""
        if self.kind == "number":
            values, codes = np.unique(self.values, return_inverse=True)
            words, codes = ["" if isnan(v) else repr(v) for v in values.tolist()], codes.astype(np.int32)
        elif self.kind == "raw":
            words, codes = list(self.words), self.values
        else:
            return self
        found = words_of(map(canonical_text, words))
        alike = len(found.words) < len(words)
        return Column("text", found.codes[codes] if alike else codes, tuple(found.words))
