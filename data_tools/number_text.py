"""Numbers as people write them: marks for decimals and thousands, currencies, per cent, units, brackets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from fastadmm.store.cell_reading import CellReading

_SYMBOLS = "$€£¥₹₽₩₺₴₫₦"
_CODES = [
    "AUD", "BRL", "CAD", "CHF", "CNY", "CZK", "DKK", "EUR", "GBP", "HKD", "HUF", "INR",
    "JPY", "KRW", "MXN", "NOK", "NZD", "PLN", "RON", "SEK", "SGD", "TRY", "USD", "ZAR",
]  # fmt: skip
_CURRENCIES = {*_SYMBOLS, *_CODES, "kr", "zł", "Kč", "Ft", "R$", "US$"}

#: Units that need no word of the user.
KNOWN_UNITS = {"", "%", "‰"} | _CURRENCIES

#: Units that multiply; the cells would have to be written out.
MAGNITUDES = {"k", "K", "m", "M", "mn", "mio", "Mio", "mln", "b", "B", "bn", "Mrd", "G", "T"}

_BEFORE = rf"US\$|R\$|[{_SYMBOLS}]|(?:{'|'.join(_CODES)})(?=[\s\d.,+−-])"
_BODY = r"[.,]?\d(?:[\d.,'’_\u00a0\u202f\u2009 ]*\d)?[.,]?"
_AFTER = rf"%|‰|[{_SYMBOLS}]|°?[^\W\d_]{{1,12}}[.²³]?|°"
_CELL = re.compile(
    rf"(?P<open>\(\s*)?(?P<sign>[-+−]?)\s*(?P<before>{_BEFORE})?\s*(?P<inner>[-+−]?)\s*"
    rf"(?P<body>{_BODY})(?P<exponent>[eE][-+]?\d+)?\s*(?P<after>{_AFTER})?(?P<trailing>\s*-)?(?P<close>\s*\))?"
)
_ALIKE = str.maketrans({"\u00a0": " ", "\u202f": " ", "\u2009": " ", "’": "'", "−": "-"})


@dataclass(frozen=True)
class Written:
    """Parts of a cell that holds a number."""

    negative: bool  # a minus sign before or behind it, or brackets
    body: str  # digits and marks
    exponent: str  # ``"e3"``, or ``""``
    unit: str  # ``"%"``, a currency, another word, or ``""``


def written(cell: str) -> Written | None:
    """The parts of a cell that holds a number; None for any other text."""
    match = _CELL.fullmatch(cell.translate(_ALIKE)) if cell else None
    if match is None:
        return None
    signs = match["sign"] + match["inner"] + (match["trailing"] or "").strip()
    brackets = bool(match["open"]), bool(match["close"])
    if len(signs) > 1 or brackets[0] != brackets[1] or (signs and brackets[0]):
        return None
    before, after = match["before"] or "", match["after"] or ""
    if before and after:
        return None
    if not any(_shape(*marks).fullmatch(match["body"]) for marks in _all_marks(match["body"])):
        return None
    negative = signs == "-" or brackets[0]
    return Written(negative, match["body"], match["exponent"] or "", before or after)


def _shape(decimal: str, thousands: str) -> re.Pattern[str]:
    whole = r"\d+"
    if thousands:
        whole = rf"(?:[1-9]\d{{0,2}}(?:{re.escape(thousands)}\d{{3}})+|\d+)"
    if not decimal:
        return re.compile(whole)
    point = re.escape(decimal)
    return re.compile(rf"{whole}(?:{point}\d*)?|{point}\d+")


def _all_marks(marks: Iterable[str]) -> list[tuple[str, str]]:
    """Decimal and thousands marks that numbers with these marks may have."""
    seen = set(marks) - set("0123456789")
    spaces = seen - {".", ","}
    if len(spaces) > 1:
        return []
    result = []
    for decimal, other in ((".", ","), (",", ".")):
        if spaces and other in seen:
            continue
        result.append((decimal, other if other in seen else "".join(spaces)))
    return result


def candidates(cells: Sequence[Written], decimal: str | None = None) -> list[CellReading]:
    """Readings that fit all cells of a column; two only where they give different numbers.

    Where no cell has a decimal mark, the reading has none.
    """
    possible = _all_marks("".join({cell.body for cell in cells}))
    if decimal is not None:
        possible = [marks for marks in possible if marks[0] == decimal]
    fitting = []
    for marks in possible:
        shape = _shape(*marks)
        if all(shape.fullmatch(cell.body) for cell in cells):
            fitting.append(CellReading("number", *marks))
    if len(fitting) == 2:
        first, second = fitting
        if all(value_of(cell, first) == value_of(cell, second) for cell in cells):
            return [replace(first, decimal="")]
    return fitting


def value_of(cell: Written, reading: CellReading) -> float | None:
    """The number, or None where the cell's marks do not fit the reading; the unit is not compared."""
    if not _shape(reading.decimal, reading.thousands).fullmatch(cell.body):
        return None
    digits = cell.body.replace(reading.thousands, "") if reading.thousands else cell.body
    value = float(digits.replace(reading.decimal or ".", ".") + cell.exponent)
    return -value if cell.negative else value
