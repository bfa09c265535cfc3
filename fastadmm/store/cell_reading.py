"""How the cells of one column are read as numbers: marks, a unit, or a date's format, as one line of text."""

from __future__ import annotations

from dataclasses import dataclass

#: Numbers that a date can become.
DATE_KINDS = ("days", "year", "month", "weekday")

#: Kinds of reading; "hours" is a time of day.
KINDS = ("number", *DATE_KINDS, "hours")


@dataclass(frozen=True)
class CellReading:
    """How cells become numbers."""

    kind: str = "number"  # "days": since 1970-01-01, with a fraction for the time of day
    decimal: str = "."
    thousands: str = ""
    unit: str = ""  # ``"%"``, a currency or another unit that stands beside every number; ``""``: none
    dates: str = ""  # format of a date, in the codes of strptime
    from_rows: bool = False  # whether it was recognised from the rows, not stated by an option

    @property
    def plain(self) -> bool:
        """Whether cells are numbers as Python writes them."""
        return self == CellReading()

    def __str__(self) -> str:
        """One line, from which :meth:`parse` makes the same reading; ``""`` for plain numbers."""
        if self.plain:
            return ""
        fields = {"decimal": self.decimal, "thousands": self.thousands, "unit": self.unit}
        if self.kind != "number":
            fields = {"dates": self.dates}
        if self.from_rows:
            fields["by"] = "rows"
        return "\t".join([self.kind, *(f"{key}={value}" for key, value in fields.items() if value)])

    @classmethod
    def parse(cls, text: str) -> CellReading:
        """Read what ``str`` gave."""
        if not text:
            return cls()
        kind, *rest = text.split("\t")
        fields = dict(part.split("=", 1) for part in rest)
        by = fields.pop("by", "")
        if (
            kind not in KINDS
            or by not in ("", "rows")
            or fields.keys() - {"decimal", "thousands", "unit", "dates"}
        ):
            raise ValueError(text)
        if kind == "number":
            fields.setdefault("decimal", "")
        reading = cls(kind, **fields, from_rows=bool(by))
        if reading.decimal not in (".", ",", "") or len(reading.thousands) > 1 or str(reading) != text:
            raise ValueError(text)
        return reading

    def words(self) -> str:
        """What it says, for people: ``"decimal ',', thousands '.', unit '€'"``."""
        if self.kind != "number":
            return f"{self.kind} of dates {self.dates}" if self.dates else f"{self.kind} of times"
        named = [("decimal", self.decimal), ("thousands", self.thousands), ("unit", self.unit)]
        return ", ".join(f"{what} {mark!r}" for what, mark in named if mark) or "another minus"
