"""Which rows are held out of training: at random, the latest ones, or whole groups."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from fastadmm.data_tools.cell_text import date_formats, to_number
from fastadmm.data_tools.column_types import Typing, as_numbers
from fastadmm.data_tools.columns import Column, is_number
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
    start: str  # that time

    @classmethod
    def parse(cls, text: str) -> HoldOut:
        """Read ``SHARE``, ``time:COLUMN=SHARE``, ``time:COLUMN=DATE`` or ``group:COLUMN=SHARE``."""
        rule, equals, value = text.rpartition("=")
        kind, _, column = rule.partition(":") if equals else ("random", "", "")
        share = float(value) if is_number(value) else None
        timed = kind == "time" and value != "" and not (share is not None and share < 1.0)
        known = not equals or (kind in ("time", "group") and column)
        if not known or not (timed or (share is not None and 0.0 < share < 1.0)):
            raise ConfigError(f"--split {text!r}: give {_WAYS}")
        return cls(text, kind, column, None if timed else share, value)

    def rows(self, ids: np.ndarray, table: Table, rows: np.ndarray, typing: Typing) -> np.ndarray:
        """Which of the rows are held out; those of one time or group stay together.

        Shapes: ids, rows, the result (N,).
        """
        if self.kind == "time":
            held = self._late(table, rows, typing)
        elif self.kind == "group":
            column = self._full(table, table.columns[self.column].as_text(), rows)
            held = self._first(_hashes(column.words)[column.values[rows]])
        else:
            held = self._first(_hashes(map(str, ids.tolist())))
        if held.all() or not held.any():
            left = "training" if held.all() else "the test"
            raise InputError(f"{table.path}: --split {self.text!r}: leaves no row for {left}")
        return held

    def _first(self, keys: np.ndarray) -> np.ndarray:
        """The rows of the smallest keys, as many as come next to the share; rows of one key stay together.

        Shapes: keys, the result (N,).
        """
        assert self.share is not None
        groups, counts = np.unique(keys, return_counts=True)
        aside = np.abs(np.cumsum(counts)[:-1] - self.share * len(keys))
        return keys <= groups[np.argmin(aside)] if len(aside) else np.ones(len(keys), dtype=bool)

    def _late(self, table: Table, rows: np.ndarray, typing: Typing) -> np.ndarray:
        """The rows from some time on, or the latest.

        Shapes: rows, the result (N,).
        """
        name, column = self.column, table.columns[self.column]
        dated = self.share is None and not is_number(self.start)
        kind = "days" if dated or not all(map(is_number, filter(None, column.words))) else "number"
        own = replace(typing, kinds={name: typing.kinds.get(name, kind)})
        column, reading = as_numbers(table, name, column, own)
        times = self._full(table, column, rows).values[rows]
        if self.share is not None:
            return self._first(-times)
        if not dated:
            return times >= float(self.start)
        # A date is written as in the column, or as 2024-01-31.
        styles = [reading.dates if reading is not None else "", *date_formats([self.start])[:1]]
        for start in (to_number(self.start, "days", style) for style in styles if style):
            if start is not None:
                return times >= start
        raise ConfigError(f"--split {self.text!r}: {self.start!r} is no date; write it as 2024-01-31")

    def _full(self, table: Table, column: Column, rows: np.ndarray) -> Column:
        """The column, which must have a value in all rows."""
        absent, at = column.first_missing(rows)
        if absent or (self.kind == "time" and column.kind != "number"):
            raise table.refused(self.column, f"no {self.kind}", max(at, 0))
        return column


def _hashes(texts: Iterable[str]) -> np.ndarray:
    """A number for each text that is the same everywhere and tells nothing of the text.

    Shapes: the result (N,).
    """
    digests = (hashlib.blake2b(t.encode(), digest_size=8, key=b"fastadmm split").digest() for t in texts)
    return np.frombuffer(b"".join(digests), dtype=">u8")
