"""Dates and times in cells: which format they have, and the numbers that they become."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

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
    found = [style for style in _FORMATS if _SHAPE.fullmatch(cells[0]) and _parse(cells[0], style)]
    for cell in cells[1:]:
        found = [style for style in found if _parse(cell, style)]
        if not found:
            return []
    # %b and %B are one where they read every cell alike (May). Day and month are not: 01/01 decides nothing.
    alike = {style.replace("%B", "%b"): style for style in reversed(found)}
    return [style for style in found if style in alike.values()]


def is_date(cell: str) -> bool:
    """Whether a cell looks like a date in one of the usual formats."""
    return bool(_SHAPE.fullmatch(cell)) and bool(date_formats([cell]))


def is_time(cell: str) -> bool:
    """Whether a cell is a time of day, such as 14:30."""
    return bool(_TIME.fullmatch(cell))


def hours(cell: str) -> float | None:
    """Hours since midnight; None for a cell that is no time of day."""
    match = _TIME.fullmatch(cell)
    return int(match[1]) + int(match[2]) / 60 + float(match[3] or 0) / 3600 if match else None


def to_number(cell: str, kind: str, style: str) -> float | None:
    """The number that a date becomes; None for a cell that has another format."""
    moment = _parse(cell, style)
    if moment is None:
        return None
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC).replace(tzinfo=None)
    if kind == "days":
        return (moment - _EPOCH).total_seconds() / 86400
    return float(moment.isoweekday() if kind == "weekday" else getattr(moment, kind))
