"""Which rows are held out of training: at random, the latest ones, or whole groups."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from fastadmm.data_tools.column_types import Typing, read_column, recognise
from fastadmm.data_tools.csv_table import is_number
from fastadmm.data_tools.dates import date_formats, to_number
from fastadmm.data_tools.tables import Table
from fastadmm.errors import ConfigError, InputError

_WAYS = "0.3, time:COLUMN=0.3, time:COLUMN=2024-01-31 or group:COLUMN=0.3"


@dataclass(frozen=True)
class HoldOut:
    """Which rows are held out, as ``--split`` says it."""

    text: str
    kind: str  # "random", "time" or "group"
    column: str  # of times or groups
    share: float | None  # of the rows; None: all from some time on
    start: str = ""  # that time

    @classmethod
    def parse(cls, text: str) -> HoldOut:
        """Read ``SHARE``, ``time:COLUMN=SHARE``, ``time:COLUMN=DATE`` or ``group:COLUMN=SHARE``."""
        kind, colon, rest = text.partition(":")
        column, equals, value = rest.rpartition("=") if colon else ("", "=", text)
        kind = kind if colon else "random"
        share = float(value) if is_number(value) else None
        timed = kind == "time" and (share is None or share >= 1.0) and value != ""
        known = kind == "random" or (kind in ("time", "group") and column != "")
        if not (known and equals and (timed or (share is not None and 0.0 < share < 1.0))):
            raise ConfigError(f"--split {text!r}: give {_WAYS}")
        return cls(text, kind, column, None if timed else share, value)

    def rows(self, ids: np.ndarray, table: Table, rows: np.ndarray, typing: Typing) -> np.ndarray:
        """Which of the rows are held out.

        Shapes: ids, rows, the result (N,).
        """
        if self.kind == "time":
            held = self._late(table, rows, typing)
        elif self.kind == "group":
            column = table.columns[self.column].as_text()
            absent, at = column.first_missing(rows)
            if absent:
                raise InputError(f"{table.path}: {table.where(at)}, column {self.column!r}: no group")
            held = self._some(_hashes(column.words)[column.values[rows]])
        else:
            held = self._some(_hashes(map(str, ids.tolist())))
        if held.all() or not held.any():
            left = "training" if held.all() else "the test"
            raise InputError(f"{table.path}: --split {self.text!r}: leaves no row for {left}")
        return held

    def _some(self, hashes: np.ndarray) -> np.ndarray:
        """Whole groups of equal hashes whose rows come next to the share, the smallest hashes first.

        Shapes: hashes, the result (N,).
        """
        groups, counts = np.unique(hashes, return_counts=True)
        assert self.share is not None
        aside = np.abs(np.cumsum(counts)[:-1] - self.share * len(hashes))
        return hashes <= groups[np.argmin(aside)] if len(aside) else np.ones(len(hashes), dtype=bool)

    def _late(self, table: Table, rows: np.ndarray, typing: Typing) -> np.ndarray:
        """The rows from some time on, or the latest; rows of one time stay together.

        Shapes: rows, the result (N,).
        """
        column = table.columns[self.column]
        dated = self.share is None and not is_number(self.start)
        words = [] if column.kind == "number" else [word for word in column.words if word]
        kind = "days" if dated or not all(map(is_number, words)) else "number"
        own = replace(typing, kinds={self.column: typing.kinds.get(self.column, kind)})
        reading = recognise(table, self.column, column, own)
        if reading is not None:
            column = read_column(table, self.column, column, reading, "as other cells are")
        absent, at = column.first_missing(rows)
        if absent or column.kind != "number":
            raise InputError(f"{table.path}: {table.where(at)}, column {self.column!r}: no time")
        times = column.values[rows]
        if self.share is not None:
            ordered = np.sort(times)
            start = ordered[min(len(rows) - 1, round((1.0 - self.share) * len(rows)))]
            return times >= start if start > ordered[0] else times > start
        return times >= self._start(reading.dates if reading is not None else "")

    def _start(self, style: str) -> float:
        """The stated time as a number; a date is written as in the column, or as 2024-01-31."""
        if is_number(self.start):
            return float(self.start)
        for known in (style, *date_formats([self.start])[:1]):
            moment = to_number(self.start, "days", known) if known else None
            if moment is not None:
                return moment
        raise ConfigError(f"--split {self.text!r}: {self.start!r} is no date; write it as 2024-01-31")


def _hashes(texts: Iterable[str]) -> np.ndarray:
    """A number for each text that is the same everywhere and tells nothing of the text.

    Shapes: the result (N,).
    """
    digests = (hashlib.blake2b(t.encode(), digest_size=8, key=b"fastadmm split").digest() for t in texts)
    return np.frombuffer(b"".join(digests), dtype=">u8")
