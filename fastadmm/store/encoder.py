"""How one party's table columns became features, stored in that party's own file."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from fastadmm.errors import FormatError
from fastadmm.files.atomic import shown
from fastadmm.files.digest import strings_digest
from fastadmm.privacy.origins import Constants, declared, together
from fastadmm.store.bins import Bins, read_bins, write_bins
from fastadmm.store.cell_reading import CellReading
from fastadmm.store.elements import (
    check_encoding,
    encode,
    read_array,
    read_attribute,
    read_strings,
    write_array,
    write_strings,
)

if TYPE_CHECKING:
    import h5py

_TYPE = "fastadmm-encoder"
#: 1.1: by a public description; 1.2: a column has a reading, words that mean missing, or a name of its own;
#: 1.3: a column has bins. Others are still written as 1.0.
_VERSIONS = ("1.0", "1.1", "1.2", "1.3")

#: What is done with missing values.
MISSING_POLICIES = ("refuse", "mean", "median", "most-frequent", "indicator")

#: In their place: what a public description says. Nothing of such an encoder was learned from rows.
DESCRIBED = "described"

#: Category of the cells that a description does not list.
OTHER = "other"


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
        texts = [_TYPE, self._version, self.missing, self.prefix]
        for column in self.columns:
            texts += [column.name, "number" if column.levels is None else str(len(column.levels))]
            texts += [*(column.levels or ()), str(column.fill_level), str(int(column.indicator))]
            texts.append(np.float64(column.fill).astype("<f8").tobytes().hex())
            if self._version != _VERSIONS[0]:
                bounds = np.array([column.low, column.high], dtype="<f8")
                texts += [bounds.tobytes().hex(), str(column.other)]
            if self._version in _VERSIONS[2:]:
                texts += [column.reading, column.shown, str(len(column.na)), *column.na]
            if self._version == _VERSIONS[3]:
                texts.append("no bins" if column.bins is None else _bins_text(column.bins))
        return "sha256:" + hashlib.sha256(strings_digest(texts).encode()).hexdigest()

    @property
    def _version(self) -> str:
        if any(column.bins is not None for column in self.columns):
            return _VERSIONS[3]
        if not all(column.plain for column in self.columns):
            return _VERSIONS[2]
        return _VERSIONS[self.missing == DESCRIBED]

    def to_group(self, h5group: h5py.Group) -> None:
        """Write the encoder into an empty HDF5 group."""
        encode(h5group, _TYPE, self._version)
        h5group.attrs["missing"] = self.missing
        h5group.attrs["prefix"] = self.prefix
        h5group.attrs["digest"] = self.digest()
        write_strings(h5group, "columns", [column.name for column in self.columns])
        # One list for all columns; -1 marks a column of numbers, which has none.
        self._put_lists(h5group, "levels", "level_counts", [column.levels for column in self.columns])
        self._put(h5group, np.float64, "fill")
        self._put(h5group, np.int64, "fill_level", "indicator")
        if self._version != _VERSIONS[0]:
            bounds = [[column.low, column.high] for column in self.columns]
            write_array(h5group, "bounds", np.array(bounds, dtype=np.float64))
            self._put(h5group, np.int64, "other")
        if self._version == _VERSIONS[3]:
            write_bins(h5group, [column.bins for column in self.columns])
        if self._version in _VERSIONS[2:]:
            write_strings(h5group, "reading", [column.reading for column in self.columns])
            write_strings(h5group, "shown", [column.shown for column in self.columns])
            self._put_lists(h5group, "na", "na_counts", [column.na for column in self.columns])

    def _put(self, h5group: h5py.Group, dtype: Any, *keys: str) -> None:
        """Write fields of all columns, each as an array."""
        for key in keys:
            write_array(h5group, key, np.array([getattr(c, key) for c in self.columns], dtype=dtype))

    @staticmethod
    def _put_lists(
        h5group: h5py.Group, key: str, counts: str, lists: Sequence[tuple[str, ...] | None]
    ) -> None:
        """Write texts of all columns, one column after another, and how many each has."""
        sizes = [-1 if own is None else len(own) for own in lists]
        write_array(h5group, counts, np.array(sizes, dtype=np.int64))
        write_strings(h5group, key, [text for own in lists for text in own or ()])

    @classmethod
    def from_group(cls, h5group: h5py.Group) -> Encoder:
        """Read an encoder that :meth:`to_group` wrote."""
        place = f"{shown(h5group.file.filename)}: key {h5group.name.strip('/')!r}"
        version = check_encoding(h5group, _TYPE, _VERSIONS)
        names = read_strings(h5group, "columns")
        n = len(names)

        def column(key: str, kind: str) -> Any:
            return read_array(h5group, key, ndim=1, length=n, kind=kind).tolist()

        levels = _lists(h5group, "levels", "level_counts", n, -1, place)
        widths = [-1 if own is None else len(own) for own in levels]
        fields = {"name": names, "levels": levels, "fill": column("fill", "f")}
        fields |= {"fill_level": column("fill_level", "i")}
        fields |= {"indicator": [bool(flag) for flag in column("indicator", "i")]}
        if version != _VERSIONS[0]:
            bounds = read_array(h5group, "bounds", ndim=2, length=n, kind="f")
            fields["other"] = column("other", "i")
            if bounds.shape[1] != 2 or not (bounds[:, 0] <= bounds[:, 1]).all():
                raise FormatError(
                    f"{place}: key 'bounds': not a lower and an upper one for each column; damaged"
                )
            fields["low"], fields["high"] = bounds.T.tolist()
            if not all(-1 <= other < max(width, 0) for other, width in zip(fields["other"], widths)):
                raise FormatError(f"{place}: key 'other': no such category; damaged or edited")
        if version in _VERSIONS[2:]:
            fields |= {key: read_strings(h5group, key) for key in ("reading", "shown")}
            fields["na"] = _lists(h5group, "na", "na_counts", n, 0, place)
        if version == _VERSIONS[3]:
            fields["bins"] = read_bins(h5group, widths, place)
        try:
            columns = tuple(
                ColumnEncoding(**dict(zip(fields, own))) for own in zip(*fields.values(), strict=True)
            )
            for own in columns:
                CellReading.parse(own.reading)
        except (TypeError, ValueError):
            raise FormatError(f"{place}: key 'reading': damaged or edited") from None
        encoder = cls(
            columns, read_attribute(h5group, "missing", str), read_attribute(h5group, "prefix", str)
        )
        if encoder.digest() != read_attribute(h5group, "digest", str):
            raise FormatError(f"{place}: does not agree with its digest; damaged or edited")
        return encoder

    def to_json(self) -> dict[str, Any]:
        """The encoder as plain values, with its digest."""
        document = asdict(self)
        # As readers of the version know it.
        later = [] if self._version == _VERSIONS[3] else ["bins"]
        later += [] if self._version in _VERSIONS[2:] else ["reading", "na", "shown"]
        later += ["low", "high", "other"] if self._version == _VERSIONS[0] else []
        for column in document["columns"]:
            for key in later:
                del column[key]
        return document | {"digest": self.digest()}

    @classmethod
    def from_json(cls, document: Any, place: str) -> Encoder:
        """Read what :meth:`to_json` gave."""
        try:
            columns = tuple(
                ColumnEncoding(
                    **{
                        **entry,
                        "levels": None if entry["levels"] is None else tuple(entry["levels"]),
                        "na": tuple(entry.get("na", ())),
                        "bins": _bins_of(entry.get("bins")),
                    }
                )
                for entry in document["columns"]
            )
            encoder = cls(columns, document["missing"], document["prefix"])
            agree = encoder.digest() == document["digest"]
            for column in columns:
                CellReading.parse(column.reading)
                if column.bins is not None and not column.bins.valid(
                    -1 if column.levels is None else len(column.levels)
                ):
                    agree = False
        except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
            raise FormatError(f"{place}: not an encoder of table columns; export it again") from None
        if not agree:
            raise FormatError(f"{place}: does not agree with its digest; damaged or edited")
        return encoder


def _lists(
    h5group: h5py.Group, key: str, counts_key: str, n: int, least: int, place: str
) -> list[tuple[str, ...] | None]:
    """The texts of each column, which are stored one column after another; None where the count is -1."""
    counts = read_array(h5group, counts_key, ndim=1, length=n, kind="i").tolist()
    texts = read_strings(h5group, key)
    ends = list(accumulate((max(count, 0) for count in counts), initial=0))
    if min(counts, default=0) < least or ends[-1] != len(texts):
        raise FormatError(f"{place}: keys {key!r} and {counts_key!r} do not agree; damaged or edited")
    spans = zip(counts, pairwise(ends))
    return [None if count < 0 else tuple(texts[start:stop]) for count, (start, stop) in spans]


def _bins_text(bins: Bins) -> str:
    """Everything about bins, as one text; floats to the last bit."""
    floats = (bins.edges, bins.woe, bins.events, bins.others, (bins.low, bins.high))
    return ";".join([",".join(map(str, bins.groups)), *(",".join(x.hex() for x in own) for own in floats)])


def _bins_of(document: Any) -> Bins | None:
    if document is None:
        return None
    return Bins(
        **{
            **document,
            "groups": tuple(document["groups"]),
            **{k: tuple(map(float, document[k])) for k in ("edges", "woe", "events", "others")},
        }
    )
