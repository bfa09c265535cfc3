"""How one party's table columns became features, stored in that party's own file.

How the cells of a column are read as numbers (marks, a unit, or a date's format) is one line of text.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

import h5py
import numpy as np

from fastadmm.errors import FormatError
from fastadmm.files.atomic import shown
from fastadmm.files.digest import strings_digest
from fastadmm.privacy.origins import Constants, declared, together
from fastadmm.store import elements as h5

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


# --- features -------------------------------------------------------------------------------------------


_TYPE = "fastadmm-encoder"
#: 1.1: by a public description; 1.2: a column has a reading, words that mean missing, or a name of its own;
#: 1.3: a column has bins. Others are still written as 1.0.
_VERSIONS = ("1.0", "1.1", "1.2", "1.3")

#: Fields of columns in a file: the number of the version that brought each, and what it holds of all columns:
#: numbers of a type, "texts", or lists of texts, one after another, beside an array of their lengths.
_STORED = {
    "levels": (0, "level_counts"), "fill": (0, "<f8"), "fill_level": (0, "<i8"), "indicator": (0, "<i8"),
    "other": (1, "<i8"), "reading": (2, "texts"), "shown": (2, "texts"), "na": (2, "na_counts"),
}  # fmt: skip

#: Number of the version that brought a field; the others are as old as encoders.
_SINCE = {"low": 1, "high": 1, "bins": 3} | {key: since for key, (since, _) in _STORED.items()}

#: What is done with missing values.
MISSING_POLICIES = ("refuse", "mean", "median", "most-frequent", "indicator")

#: In their place: what a public description says. Nothing of such an encoder was learned from rows.
DESCRIBED = "described"

#: Category of the cells that a description does not list.
OTHER = "other"


@dataclass(frozen=True)
class Bins:
    """Bins of one column, which becomes one feature: the weight of evidence of the cell's bin.

    The weight of evidence of a bin is ln(q / p), where p and q are its shares of all rows of class 1 and of
    class 0: it is high where class 1 is rare.
    """

    edges: tuple[float, ...]
    groups: tuple[int, ...]  # bin of each category, in the order of the column's levels
    woe: tuple[float, ...]  # weight of evidence of each of the K bins, and last that of missing cells
    events: tuple[float, ...]
    others: tuple[float, ...]
    low: float = 0.0  # range of the numbers of training; both 0 for categories
    high: float = 0.0  # range of the numbers of training; both 0 for categories

    @property
    def count(self) -> int:
        """Number of bins K, without that of missing cells."""
        return len(self.woe) - 1

    @property
    def knows_missing(self) -> bool:
        """Whether training had missing cells: they are a bin of their own."""
        return self.events[-1] != 0.0 or self.others[-1] != 0.0

    def of_numbers(self, values: np.ndarray) -> np.ndarray:
        """Bin of each number. Shapes: values (N,)."""
        return np.searchsorted(np.array(self.edges), values, "left")

    def valid(self, n_levels: int) -> bool:
        """Whether its parts agree; -1 levels for a column of numbers."""
        size, edges = len(self.woe), np.array(self.edges)
        numbers = np.array([*self.edges, *self.woe, *self.events, *self.others, self.low, self.high])
        if size < 2 or len(self.events) != size or len(self.others) != size or not np.isfinite(numbers).all():
            return False
        if n_levels < 0:
            return len(edges) == size - 2 and not self.groups and bool((np.diff(edges) > 0.0).all())
        inside = all(0 <= group < size - 1 for group in self.groups)
        return not len(edges) and len(self.groups) == n_levels and inside


@dataclass(frozen=True)
class ColumnEncoding:
    """One column of a table and the features that are made of it."""

    name: str  # column of the table
    levels: tuple[str, ...] | None = None
    fill: float = 0.0  # replaces a missing number
    fill_level: int = -1
    indicator: bool = False  # whether one more feature is 1 where the cell is missing
    low: float = 0.0
    high: float = 0.0
    other: int = -1  # number of the category for words that are none of the levels; -1: none
    reading: str = ""  # how cells are read as numbers, a CellReading as text; ``""``: plainly
    na: tuple[str, ...] = ()  # words that mean "no value", besides the usual ones
    shown: str = ""
    bins: Bins | None = None  # bins with weights of evidence: the column is one feature

    @property
    def one_hot(self) -> tuple[str, ...] | None:
        """Categories with a feature each; None where the column is one feature."""
        return self.levels if self.bins is None else None

    @property
    def plain(self) -> bool:
        """Whether it is like those of version 1.0 and 1.1."""
        return not (self.reading or self.na or self.shown)

    def constants(self, missing: str) -> tuple[Constants, ...]:
        """Where each field comes from; see :mod:`fastadmm.privacy.origins`."""
        learned = "public" if missing == DESCRIBED else "private"
        levels = learned if self.levels is not None else "public"
        bounds = learned if self.low != self.high else "public"
        reading = "private" if CellReading.parse(self.reading).from_rows else "public"
        bins = "private" if self.bins is not None else "public"
        fills = "private" if missing not in ("refuse", DESCRIBED) or self.indicator else "public"
        filled, name = f"what stands for missing cells (--missing {missing})", self.name
        return (
            Constants(("name", "na", "shown"), "options", "public"),
            Constants(("levels", "other"), f"categories of {name!r}", levels),
            Constants(("low", "high"), f"bounds of {name!r}", bounds),
            Constants(("reading",), f"how numbers of {name!r} are written", reading),
            Constants(("bins",), f"bins of {name!r} and what labels say of them", bins, labels=True),
            Constants(("fill", "fill_level", "indicator"), filled, fills),
        )

    def scaled(self, values: np.ndarray) -> np.ndarray:
        """Numbers as a feature: clipped to the bounds, if there are any, and scaled to [-1, 1].

        Shapes: values, the result (N,).
        """
        if self.low == self.high:
            return values
        return 2.0 * ((np.clip(values, self.low, self.high) - self.low) / (self.high - self.low)) - 1.0

    @property
    def feature_names(self) -> list[str]:
        """``name``, or ``name=level`` for every category; then ``name:missing``."""
        own = self.shown or self.name
        names = [own] if self.one_hot is None else [f"{own}={level}" for level in self.one_hot]
        return names + ([f"{own}:missing"] if self.indicator else [])


@dataclass(frozen=True)
class Encoder:
    """Turns a table of one party into features; fitted once on the training table, or described in public."""

    columns: tuple[ColumnEncoding, ...]  # in the order of the features
    missing: str = "refuse"
    prefix: str = ""  # put before every feature name

    @property
    def feature_names(self) -> list[str]:
        """Names of all features, in order."""
        return [self.prefix + name for column in self.columns for name in column.feature_names]

    def constants(self) -> tuple[Constants, ...]:
        """Where categories, bounds, fills and bins come from; see :mod:`fastadmm.privacy.origins`."""
        columns = [declared(column, self.missing) for column in self.columns]
        return (
            Constants(("missing", "prefix"), "options", "public"),
            together("columns", (part for parts in zip(*columns, strict=True) for part in parts)),
        )

    def digest(self) -> str:
        """Return ``sha256:<hex>``; equal exactly if the encoders are equal."""
        version = self._version
        texts = [_TYPE, _VERSIONS[version], self.missing, self.prefix]
        for column in self.columns:
            texts += [column.name, "number" if column.levels is None else str(len(column.levels))]
            texts += [*(column.levels or ()), str(column.fill_level), str(int(column.indicator))]
            texts.append(struct.pack("<d", column.fill).hex())
            if version >= 1:
                texts += [struct.pack("<2d", column.low, column.high).hex(), str(column.other)]
            if version >= 2:
                texts += [column.reading, column.shown, str(len(column.na)), *column.na]
            if version >= 3:
                texts.append("no bins" if column.bins is None else _bins_text(column.bins))
        return "sha256:" + hashlib.sha256(strings_digest(texts).encode()).hexdigest()

    def checked(self) -> Encoder:
        """The encoder, if its columns can be applied: anybody can write a digest.

        Raises
        ------
        ValueError
            A column's reading, category, bounds or bins are none.
        """
        for column in self.columns:
            CellReading.parse(column.reading)
            n_levels = -1 if column.levels is None else len(column.levels)
            if not (column.low <= column.high and -1 <= column.other < max(n_levels, 0)):
                raise ValueError(column.name)
            if column.bins is not None and not column.bins.valid(n_levels):
                raise ValueError(column.name)
        return self

    @property
    def _version(self) -> int:
        """Number of the first version that has all of it."""
        if any(column.bins is not None for column in self.columns):
            return 3
        return 2 if not all(column.plain for column in self.columns) else int(self.missing == DESCRIBED)

    def to_group(self, h5group: h5py.Group) -> None:
        """Write the encoder into an empty HDF5 group."""
        version, columns = self._version, self.columns
        h5.encode(h5group, _TYPE, _VERSIONS[version])
        for key in ("missing", "prefix"):
            h5group.attrs[key] = getattr(self, key)
        h5group.attrs["digest"] = self.digest()

        h5.write_strings(h5group, "columns", [column.name for column in columns])
        for key, (since, what) in _STORED.items():
            found: list[Any] = [getattr(column, key) for column in columns]
            if since > version:
                continue
            if what.startswith("<"):
                h5.write_array(h5group, key, np.array(found, dtype=what))
                continue
            if what != "texts":
                sizes = [-1 if own is None else len(own) for own in found]
                h5.write_array(h5group, what, np.array(sizes, dtype=np.int64))
                found = [text for own in found for text in own or ()]
            h5.write_strings(h5group, key, found)
        if version >= 1:
            h5.write_array(h5group, "bounds", np.array([[c.low, c.high] for c in columns], dtype=np.float64))
        if version >= 3:
            _write_bins(h5group, [column.bins for column in columns])

    @classmethod
    def of_file(cls, file: h5py.File) -> Encoder | None:
        """The encoder of a file that may have one."""
        return cls.from_group(h5.require_group(file, "encoder")) if "encoder" in file else None

    @classmethod
    def from_group(cls, h5group: h5py.Group) -> Encoder:
        """Read an encoder that :meth:`to_group` wrote."""
        place = f"{shown(h5group.file.filename)}: key {h5group.name.strip('/')!r}"
        version = _VERSIONS.index(h5.check_encoding(h5group, _TYPE, _VERSIONS))

        def numbers(key: str) -> Any:
            return h5.read_array(h5group, key).tolist()

        def of_columns(key: str, what: str) -> Any:
            if what.startswith("<"):
                return numbers(key)
            found = h5.read_strings(h5group, key)
            if what == "texts":
                return found
            texts = iter(found)
            lists = [None if count < 0 else tuple(islice(texts, count)) for count in numbers(what)]
            if list(texts):
                raise ValueError(key)
            return lists

        # What does not fit together does not agree with the digest either.
        with suppress(AttributeError, IndexError, TypeError, ValueError, struct.error):
            fields: dict[str, Any] = {"name": h5.read_strings(h5group, "columns")}
            fields |= {k: of_columns(k, what) for k, (since, what) in _STORED.items() if since <= version}
            fields["indicator"] = map(bool, fields["indicator"])
            if version >= 1:
                fields |= dict(zip(("low", "high"), zip(*numbers("bounds"))))
            if version >= 3:
                fields["bins"] = _read_bins(h5group, fields["levels"])
            rows = zip(*fields.values(), strict=True)
            columns = tuple(ColumnEncoding(**dict(zip(fields, own))) for own in rows)
            missing, prefix, digest = (
                h5.read_attribute(h5group, key, str) for key in ("missing", "prefix", "digest")
            )
            encoder = cls(columns, missing, prefix)
            if encoder.checked().digest() == digest:
                return encoder
        raise FormatError(f"{place}: does not agree with its digest; damaged or edited")

    def to_json(self) -> dict[str, Any]:
        """The encoder as plain values, with its digest."""
        document, version = asdict(self), self._version
        # As readers of the version know it.
        document["columns"] = tuple(
            {key: value for key, value in column.items() if _SINCE.get(key, 0) <= version}
            for column in document["columns"]
        )
        return document | {"digest": self.digest()}

    @classmethod
    def from_json(cls, document: Any, place: str) -> Encoder:
        """Read what :meth:`to_json` gave."""
        try:
            columns = []
            for entry in document["columns"]:
                own: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in entry.items()}
                columns.append(ColumnEncoding(**own | {"bins": _bins_of(entry.get("bins"))}))
            encoder = cls(tuple(columns), document["missing"], document["prefix"])
            agree = encoder.checked().digest() == document["digest"]
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError, struct.error):
            raise FormatError(f"{place}: not an encoder of table columns; export it again") from None
        if not agree:
            raise FormatError(f"{place}: does not agree with its digest; damaged or edited")
        return encoder


def _bins_text(bins: Bins) -> str:
    """Everything about bins, as one text; floats to the last bit."""
    floats = (bins.edges, bins.woe, bins.events, bins.others, (bins.low, bins.high))
    return ";".join([",".join(map(str, bins.groups)), *(",".join(x.hex() for x in own) for own in floats)])


def _bins_of(document: Any) -> Bins | None:
    if document is None:
        return None
    floats = {k: tuple(map(float, document[k])) for k in ("edges", "woe", "events", "others")}
    return Bins(**{**document, **floats, "groups": tuple(document["groups"])})


#: Parts of bins, with key and type in a file: each one array for all columns together.
_BINS: dict[str, tuple[str, type]] = {
    "groups": ("bin_of_level", np.int64),
    "edges": ("bin_edges", np.float64),
    **{part: (part, np.float64) for part in ("woe", "events", "others")},
}


def _write_bins(h5group: h5py.Group, bins: Sequence[Bins | None]) -> None:
    """Write the bins of all columns into an encoder's group."""
    found = [own for own in bins if own is not None]
    counts = [own.count if own else 0 for own in bins]
    ranges = [(own.low, own.high) if own else (0.0, 0.0) for own in bins]
    h5.write_array(h5group, "bin_counts", np.array(counts, dtype=np.int64))
    h5.write_array(h5group, "bin_range", np.array(ranges, dtype=np.float64))
    for part, (key, dtype) in _BINS.items():
        values = [value for own in found for value in getattr(own, part)]
        h5.write_array(h5group, key, np.array(values, dtype=dtype))


def _read_bins(h5group: h5py.Group, levels: Sequence[tuple[str, ...] | None]) -> list[Bins | None]:
    """Read what :func:`_write_bins` wrote."""
    counts, ranges = (h5.read_array(h5group, key).tolist() for key in ("bin_counts", "bin_range"))
    held = {part: iter(h5.read_array(h5group, key).tolist()) for part, (key, _) in _BINS.items()}
    found: list[Bins | None] = []
    for count, own, (low, high) in zip(counts, levels, ranges, strict=True):
        widths = {"groups": len(own or ()), "edges": count - 1 if own is None else 0}
        if count:
            parts = {part: tuple(islice(held[part], widths.get(part, count + 1))) for part in _BINS}
            found.append(Bins(**parts, low=low, high=high))
        else:
            found.append(None)
    return found
