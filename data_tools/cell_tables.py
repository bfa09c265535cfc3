"""What each cell of a column becomes, as tables for programs that cannot read cells as ``predict`` does."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from datetime import date
from functools import cache
from typing import Any

from fastadmm.data_tools.cell_text import to_number
from fastadmm.data_tools.columns import MISSING, TRUTH, cased, truth_levels
from fastadmm.data_tools.encoding import encoder_of
from fastadmm.data_tools.tables import missing_numbers
from fastadmm.errors import ConfigError
from fastadmm.store.cell_reading import CellReading
from fastadmm.store.encoder import ColumnEncoding

#: Cells that ``predict`` would first write in another way: with spaces around them, or ``+1.00`` for ``1``.
OTHERWISE_WRITTEN = (
    r"(?s)[\s\pZ\x0b\x1c-\x1f\x{85}].*|.*[\s\pZ\x0b\x1c-\x1f\x{85}]|\+?-?\p{Nd}+\.0*|\+-?\p{Nd}+"
)

#: First year of the dates that are listed, and the first that is not.
_YEARS = (1900, 2101)

_WHOLE = re.compile(r"-?\d+")
_TIMES = re.compile(r"%[HIMSXZcfpsz]")


def input_names(parties: Sequence[Any]) -> list[list[str]]:
    """Names of each party's columns; behind the party's where several have one of that name."""
    own = [[column.name for column in encoder_of(party).columns] for party in parties]
    counts = Counter(name for names in own for name in names)
    return [
        [name if counts[name] == 1 else f"{party.name}:{name}" for name in names]
        for party, names in zip(parties, own, strict=True)
    ]


def is_text(column: ColumnEncoding) -> bool:
    """Whether cells are given as text: categories and dates."""
    return column.levels is not None or CellReading.parse(column.reading).kind != "number"


def na_numbers(column: ColumnEncoding) -> list[float]:
    """Numbers that mean "no value"."""
    return sorted(missing_numbers(column.na))


def check_readable(column: ColumnEncoding, place: str) -> None:
    """Refuse a column whose cells no table can list: those with a time of day."""
    reading = CellReading.parse(column.reading)
    if column.levels is None and (reading.kind == "hours" or _TIMES.search(reading.dates)):
        raise ConfigError(
            f"export: {place}, column {column.name!r}: times of day ({reading.words()}) can only be read by "
            "fastadmm: convert with the times as numbers, or choose .json"
        )


def _written(word: str) -> list[str]:
    """A category, and other ways to write it where it is a whole number."""
    if not _WHOLE.fullmatch(word):
        return [word]
    signs = ("",) if word.startswith("-") else ("", "+")
    return [sign + word + rest for sign in signs for rest in ("", ".", ".0")]


def codes_of(column: ColumnEncoding) -> dict[str, int]:
    """Number of the category of each cell of L categories, L for those without a value; others are unseen."""
    levels = column.levels or ()
    codes = {text: i for i, level in enumerate(levels) for text in _written(level)}
    truths = truth_levels(levels)
    for word, value in TRUTH.items() if truths else ():
        codes |= dict.fromkeys(cased([word]), truths.get(value, len(levels) + 1))
    absent = [*cased(MISSING), *(text for word in column.na for text in _written(word))]
    return codes | dict.fromkeys(absent, len(levels))


def evidence_of(column: ColumnEncoding, missing: str) -> list[float]:
    """Weight of evidence of each code, and last of unseen categories; NaN where a missing cell is refused."""
    bins = column.bins
    assert bins is not None
    of_level = [bins.woe[group] for group in bins.groups]
    absent = (
        math.nan if missing == "refuse" else of_level[column.fill_level] if column.fill_level >= 0 else 0.0
    )
    unseen = of_level[column.other] if column.other >= 0 else 0.0
    return [*of_level, bins.woe[bins.count] if bins.knows_missing else absent, unseen]


def dates_of(column: ColumnEncoding) -> dict[str, float]:
    """Number of each date of two centuries as it may be written, NaN for cells without a value."""
    reading = CellReading.parse(column.reading)
    absent = [*cased(MISSING), *column.na]
    return _dates(reading.kind, reading.dates) | dict.fromkeys(absent, math.nan)


@cache
def _dates(kind: str, style: str) -> dict[str, float]:
    first, last = (date(year, 1, 1).toordinal() for year in _YEARS)
    # Days and months may be written without their zeros.
    short = [style.replace("%d", d).replace("%m", m) for d in ("%d", "%-d") for m in ("%m", "%-m")]
    found: dict[str, float] = {}
    for day in map(date.fromordinal, range(first, last)):
        number = to_number(day.strftime(style), kind, style)
        if number is not None:
            found.update((day.strftime(own), number) for own in short)
    return found
