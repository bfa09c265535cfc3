"""Numbers as people write them (marks, currencies, per cent, units, brackets), and dates and times."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from fastadmm.store.encoder import CellReading

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
    brackets = bool(match["open"])
    if len(signs) > 1 or brackets != bool(match["close"]) or (signs and brackets):
        return None
    before, after, body = match["before"] or "", match["after"] or "", match["body"]
    if (before and after) or not any(_shape(*marks).fullmatch(body) for marks in _all_marks(body)):
        return None
    return Written(signs == "-" or brackets, body, match["exponent"] or "", before or after)


def _shape(decimal: str, thousands: str) -> re.Pattern[str]:
    whole = r"\d+"
    if thousands:
        whole = rf"(?:[1-9]\d{{0,2}}(?:{re.escape(thousands)}\d{{3}})+|\d+)"
    point = re.escape(decimal)
    return re.compile(rf"{whole}(?:{point}\d*)?|{point}\d+" if decimal else whole)


def _all_marks(marks: Iterable[str]) -> list[tuple[str, str]]:
    """Decimal and thousands marks that numbers with these marks may have."""
    seen = set(marks) - set("0123456789")
    spaces = "".join(seen - {".", ","})
    if len(spaces) > 1:
        return []
    pairs = (pair for pair in ((".", ","), (",", ".")) if not (spaces and pair[1] in seen))
    return [(decimal, other if other in seen else spaces) for decimal, other in pairs]


def candidates(cells: Sequence[Written], decimal: str | None = None) -> list[CellReading]:
    """Readings that fit all cells of a column; two only where they give different numbers.

    Where no cell has a decimal mark, the reading has none.
    """
    fitting = [
        CellReading("number", *marks)
        for marks in _all_marks("".join({cell.body for cell in cells}))
        if decimal in (None, marks[0]) and all(map(_shape(*marks).fullmatch, (cell.body for cell in cells)))
    ]
    if len(fitting) == 2 and all(len({value_of(cell, own) for own in fitting}) == 1 for cell in cells):
        return [replace(fitting[0], decimal="")]
    return fitting


def value_of(cell: Written, reading: CellReading) -> float | None:
    """The number, or None where the cell's marks do not fit the reading; the unit is not compared."""
    if not _shape(reading.decimal, reading.thousands).fullmatch(cell.body):
        return None
    digits = cell.body.replace(reading.thousands, "") if reading.thousands else cell.body
    value = float(digits.replace(reading.decimal or ".", ".") + cell.exponent)
    return -value if cell.negative else value


# --- dates and times -------------------------------------------------------------------------------------

_DAYS = (
    "%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y",
    "%d %b %Y", "%d %B %Y", "%d-%b-%Y", "%d. %B %Y", "%b %d, %Y", "%B %d, %Y", "%b %d %Y",
    "%d.%m.%y", "%d/%m/%y", "%m/%d/%y", "%d-%m-%y", "%m-%d-%y", "%y-%m-%d", "%d-%b-%y",
)  # fmt: skip
_MONTHS = ("%Y-%m", "%Y/%m", "%m/%Y", "%b-%Y", "%b %Y", "%B %Y", "%b-%y")
_TIMES = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p")
_ISO = (
    "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S.%f", "%Y-%m-%dT%H:%M:%S%z",
    "%Y-%m-%dT%H:%M:%S.%f%z", "%Y-%m-%d %H:%M:%S%z", "%Y-%m-%d %H:%M:%S.%f%z",
)  # fmt: skip
_FORMATS = (*_ISO, *(day + time for day in _DAYS for time in _TIMES), *_MONTHS)

#: What a date looks like, before formats are tried.
_SHAPE = re.compile(
    r"\d{1,4}([-/.])\d{1,2}\1\d{1,4}([T ].*)?|\d{4}[-/]\d{1,2}|\d{1,2}/\d{4}"
    r"|(\d{1,2}[-. ]{1,2})?[A-Za-z]{3,9}[-. ]{1,2}(\d{1,2},? )?\d{2,4}( .*)?"
)
_TIME = re.compile(r"([01]?\d|2[0-4]):([0-5]\d)(?::([0-5]\d(?:\.\d+)?))?")
_EPOCH = datetime(1970, 1, 1)


def _parse(cell: str, style: str) -> datetime | None:
    try:
        return datetime.strptime(cell, style)
    except ValueError:
        return None


def date_formats(cells: Sequence[str]) -> list[str]:
    """Formats that all cells have: several where day and month cannot be told apart, none for other text."""
    found = list(_FORMATS) if _SHAPE.fullmatch(cells[0]) else []
    for cell in cells:
        found = [style for style in found if _parse(cell, style)]
    # %b and %B are one where they read every cell alike (May). Day and month are not: 01/01 decides nothing.
    alike = {style.replace("%B", "%b"): style for style in reversed(found)}
    return [style for style in found if style in alike.values()]


def is_date(cell: str) -> bool:
    """Whether a cell looks like a date in one of the usual formats."""
    return bool(date_formats([cell]))


def is_time(cell: str) -> bool:
    """Whether a cell is a time of day, such as 14:30."""
    return bool(_TIME.fullmatch(cell))


def to_number(cell: str, kind: str, style: str) -> float | None:
    """The number that a date or time becomes; None for a cell that has another format."""
    if kind == "hours":  # since midnight
        match = _TIME.fullmatch(cell)
        return int(match[1]) + int(match[2]) / 60 + float(match[3] or 0) / 3600 if match else None
    moment = _parse(cell, style)
    if moment is None:
        return None
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    if kind == "days":
        return (moment - _EPOCH).total_seconds() / 86400
    return float(moment.isoweekday() if kind == "weekday" else getattr(moment, kind))
