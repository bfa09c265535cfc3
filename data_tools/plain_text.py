"""Blocks of text that are plain, read by pandas; everything else is left to readers that name what is wrong.

pandas forgives too much: it drops surplus cells, fills in missing ones and reads on behind a closing quote.
So the cells of every line are found first.
"""

from __future__ import annotations

import io
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from fastadmm.data_tools.columns import EXACT, MISSING, cased

#: How cells without a value may be written.
_SPELLINGS = list(cased(MISSING))

#: A whole number has as many digits more than one as there are powers up to it.
_POWERS = 10 ** np.arange(1, 19)


def read_frame(text: bytes, separator: str, names: Sequence[str], dtype: Mapping[str, Any],
               missing: Collection[str] = ()) -> Any:  # fmt: skip
    """The columns that `dtype` names, as a DataFrame; None where a cell has another type.

    Only in the columns `missing`, cells may be missing.
    """
    import pandas as pd

    exact = {}
    if tuple(int(part) for part in pd.__version__.split(".")[:2]) < (3, 1):
        exact = {"float_precision": "round_trip"}  # later versions always round correctly
    every = dtype.keys() <= set(missing)  # one list for all columns: pandas takes long for one each
    try:
        return pd.read_csv(
            io.BytesIO(text),
            sep=separator,
            header=None,
            names=names,
            usecols=list(dtype),
            index_col=False,
            dtype=dict(dtype),
            keep_default_na=False,
            na_filter=bool(missing),  # an empty or "NA" cell must fail elsewhere, not become NaN
            na_values=_SPELLINGS if every else dict.fromkeys(missing, _SPELLINGS) or None,
            encoding="utf-8",
            low_memory=False,  # otherwise it looks at some rows at a time
            **exact,
        )
    except (ValueError, OverflowError):  # ParserError and UnicodeDecodeError are ValueErrors
        return None


@dataclass(frozen=True)
class PlainText:
    """Where the cells of complete lines are."""

    codes: np.ndarray  # ``(n,)`` uint8, with two line ends behind the text
    lines: np.ndarray  # ``(k,)`` number of each row's line, from 0
    bounds: np.ndarray  # ``(k, width + 1)``: one before the first cell, between cells, and behind the last

    @classmethod
    def of(cls, text: bytes, separator: str, width: int) -> PlainText | None:
        """None if a row has another width, or quotes are not around one cell of one line."""
        if b"\0" in text or text.startswith(b"\xef\xbb\xbf"):  # which pandas would take away
            return None
        codes = np.frombuffer(text + b"\n\n", dtype=np.uint8)
        ends = np.flatnonzero(codes == 10)[:-1]
        ends = ends if not text.endswith(b"\n") else ends[:-1]
        starts = np.concatenate([[0], ends[:-1] + 1])
        stops = ends - ((ends > starts) & (codes[ends - 1] == 13))
        lines = np.flatnonzero(stops > starts)
        cuts = np.flatnonzero(codes == ord(separator))
        if b'"' in text:
            quotes = np.flatnonzero(codes == 34)
            if len(quotes) % 2:
                return None
            opened, closed = quotes[::2], quotes[1::2]
            around = np.isin(codes[opened - 1], (10, ord(separator)))  # the text is followed by a line end
            around &= np.isin(codes[closed + 1], (10, 13, ord(separator)))
            if not (around & (np.searchsorted(ends, opened) == np.searchsorted(ends, closed))).all():
                return None
            cuts = cuts[np.searchsorted(quotes, cuts) % 2 == 0]
        if len(cuts) != len(lines) * (width - 1):
            return None
        bounds = np.empty((len(lines), width + 1), dtype=np.int64)
        bounds[:, 0], bounds[:, -1] = starts[lines] - 1, stops[lines]
        bounds[:, 1:-1] = cuts.reshape(len(lines), width - 1)
        return cls(codes, lines, bounds) if (np.diff(bounds) > 0).all() else None

    def cell(self, row: int, column: int) -> str:
        """The text of a cell without spaces and quotes around it."""
        start, stop = self.bounds[row, column : column + 2].tolist()
        return self.codes[start + 1 : stop].tobytes().decode("utf-8", "replace").strip().strip('"').strip()

    def surplus(self, values: np.ndarray, columns: Sequence[int]) -> np.ndarray:
        """How many characters cells of some columns have besides a minus and the digits of their whole part.

        Shapes: values, the result (k, q).
        """
        sizes = self.bounds[:, [c + 1 for c in columns]] - self.bounds[:, columns] - 1
        return sizes - (values < 0) - np.searchsorted(_POWERS, np.abs(values), side="right") - 1

    def are_sure(self, values: np.ndarray, columns: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
        """Columns of numbers whose text needs no closer look: of plain whole numbers, or of other numbers.

        Points of the others are decimal points: behind one of them, there are not three digits, as there are
        in groups of thousands. None begins with a zero before a digit.
        Values are NaN where a cell is missing.

        Shapes: values (k, q), both results (q,).
        """
        missing, size, surplus = np.isnan(values), np.abs(values), self.surplus(values, columns)
        at, stops = self.bounds[:, columns] + 1, self.bounds[:, [c + 1 for c in columns]]
        digits = stops - at - (values < 0) - surplus
        at += np.isin(self.codes[at], (43, 45))
        first, second, last = self.codes[at], self.codes[at + 1], self.codes[stops - 1]
        pointed = (first == 46) | (self.codes[np.minimum(at + digits, len(self.codes) - 1)] == 46)
        whole = values == np.trunc(values)
        ungrouped = ~whole & pointed & ((size < 1.0) | (size >= 1000.0) | ~np.isin(surplus, (4, 5)))
        usual = _in_number(first) & ~((first == 48) & _in_number(second) & (second != 46)) & _in_number(last)
        small = (missing | (size < EXACT)).all(axis=0)
        plain = (missing | (whole & (surplus == 0))).all(axis=0)
        decimal = (ungrouped & ~missing).any(axis=0) & (missing | usual).all(axis=0)
        return small & plain, small & decimal


def _in_number(codes: np.ndarray) -> np.ndarray:
    """Which are digits or points."""
    return ((codes >= 48) & (codes <= 57)) | (codes == 46)
