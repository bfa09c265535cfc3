"""Convert a data file to a partition: a table column by column, LIBSVM and NPZ files as one matrix."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from fastadmm.data_tools.blocks import Block, OnRead, Progress, Source, Steps, stored_kind
from fastadmm.data_tools.convert_tables import TableOptions, plan_one_table, refuse_fixed, write_plan
from fastadmm.data_tools.destination import Piece, check_out, write_partition
from fastadmm.data_tools.libsvm import LibsvmSource
from fastadmm.data_tools.opening import SourceFile, source_files
from fastadmm.data_tools.per_table import given_options
from fastadmm.data_tools.scaling import ColumnStatistics, fit_transform_of
from fastadmm.data_tools.sources import Rows, Scan, open_matrix, stored, widened
from fastadmm.data_tools.split import (
    PartyColumns,
    by_widths,
    equal_widths,
    is_widths,
    parse_widths,
    party_columns,
)
from fastadmm.data_tools.threads import in_order
from fastadmm.errors import ConfigError, InputError
from fastadmm.files.atomic import shown
from fastadmm.store.h5file import compression_options

if TYPE_CHECKING:
    from fastadmm.store import Partition

__all__ = ["Progress", "Told", "check_format_options", "convert"]

#: ``told(notes, columns)`` with lines for the user and, by party, what each column of a table was taken for.
Told = Callable[[list[str], dict[str, list[dict[str, Any]]]], None]


@dataclass(frozen=True)
class _Asked(TableOptions):
    """How a source becomes a partition: as a table does, and what other formats and plain splits take."""

    id: str = ""
    columns: str | None = None  # widths or names of the parties' columns
    parties: int | None = None
    features: int | None = None  # number of features of LIBSVM files
    zero_based: bool = False
    x_key: str | None = None  # arrays of an NPZ file
    y_key: str | None = None  # arrays of an NPZ file
    format: str = "auto"

    @property
    def by_column(self) -> list[str]:
        """Options that need a table read column by column, as they are written."""
        return given_options(
            self, "public_columns", "missing", "categorical", "types", "na_values", "decimal",
            *self.beside, "split",
        )  # fmt: skip


def convert(
    source: str | Path,
    out: str | Path,
    *,
    force: bool = False,
    progress: Progress | None = None,
    told: Told | None = None,
    **options: Any,
) -> Partition:
    """Convert LIBSVM, CSV, Parquet or NPZ files into a partition, the same on any number of threads."""
    from fastadmm.store import open_partition

    asked = _Asked(**options)
    compression_options(asked.compression)
    _check_split(asked)
    check_out(out, force)
    files, kind = source_files(source, asked.format)
    check_format_options("csv" if kind == "parquet" else kind, asked, f"{files[0].shown}: ")
    beside = Path(out).absolute().parent
    how: dict[str, Any] = {"force": force, "compression": asked.compression}
    if kind in ("csv", "parquet"):
        # Of one plain CSV table nothing is to be replayed but the names of its columns.
        plain = kind == "csv" and len(files) == 1 and not asked.by_column
        plan = plan_one_table(
            source, asked, asked.columns, asked.parties, scratch=beside, plain=plain, progress=progress
        )
        if told is not None:
            told(plan.report, plan.columns)
        return write_plan(plan, out, progress=progress, **how)
    model = open_partition(asked.like) if asked.like is not None else None
    declared = _declared(asked, model, files[0]) if kind == "libsvm" else None
    reader = open_matrix(kind, files, shown(source), asked, declared, beside)
    if reader.n_features is not None:  # faults of the split are found before the data are read
        _split(reader.path, reader.n_features, asked, model)
    size = sum(file.size for file in files)
    statistics = ColumnStatistics() if asked.standardize else None
    scan = Scan([reader], Steps(progress, "reading", size), statistics)
    task, classes = asked.task or "auto", None
    if model is not None and model.labels is not None:
        task, classes = model.task, model.labels.classes
    labels = scan.labels.finish(task, classes, asked.positive)
    parties = _parties(reader, scan, statistics, asked, model)
    pieces = _cut_blocks(reader, parties, len(labels.y), Steps(progress, "writing", scan.n_rows))
    described = [described for _, described in parties]
    return write_partition(
        out, described, pieces, labels, task=labels.task, ids=None, source=Path(reader.path).name, **how,
    )  # fmt: skip


#: A party's columns, and how they are stored: what the writer of a party's file is told.
_Party: TypeAlias = tuple[PartyColumns, dict[str, Any]]


def _parties(
    reader: Source, scan: Scan, statistics: ColumnStatistics | None, asked: _Asked, model: Partition | None
) -> list[_Party]:
    """The parties, with what they take over or what the rows decide."""
    stated = reader.n_features
    split = _split(reader.path, scan.n_features if stated is None else stated, asked, model)
    if model is not None:
        keys = ("name", "kind", "dtype", "feature_names", "transform")
        return [(own, {key: getattr(old, key) for key in keys}) for own, old in zip(split, model.parties)]
    total = sum(party.width for party in split)
    if isinstance(reader, LibsvmSource) and asked.features is None and scan.n_features < total:
        raise InputError(
            f"{reader.path}: the widths add up to {total}, but the largest index is "
            f"{scan.n_features - (1 if asked.zero_based else 0)}: correct the widths, or pass --features "
            f"{total} if the last features just never occur"
        )
    return [(party, _fitted(party, reader, scan, statistics, asked)) for party in split]


def _fitted(
    party: PartyColumns, reader: Source, scan: Scan, statistics: ColumnStatistics | None, asked: _Asked
) -> dict[str, Any]:
    filled = int(scan.nonzeros[party.columns].sum())
    kind = stored_kind(asked.storage, reader.kind, filled, scan.n_rows * party.width)
    try:
        transform = fit_transform_of(party.columns, kind, statistics, asked.normalize or "none")
    except InputError as error:
        raise InputError(f"{reader.path}: values too large to standardise: {error}") from None
    # Features keep their number in the source: party 2 of 66,57 begins with f67.
    assert isinstance(party.columns, slice)
    names = [f"f{i + 1}" for i in range(party.columns.start, party.columns.stop)]
    how = {"name": party.name, "kind": kind, "dtype": asked.dtype or "float64"}
    return {**how, "feature_names": names, "transform": transform}


# --- options ---------------------------------------------------------------------------------------------


def _check_split(asked: _Asked) -> None:
    """Refuse none or several ways to split columns, and what --like decides."""
    columns, parties = asked.columns, asked.parties
    ways = {"--columns": columns, "--parties": parties, "--like": asked.like}
    given = [option for option, value in ways.items() if value is not None]
    if len(given) > 1:
        raise ConfigError(f"{given[0]} and {given[1]}: give only one of them")
    if not given:
        raise ConfigError("how are columns split between parties? give --columns, --parties or --like")
    if columns is not None and is_widths(columns):
        parse_widths(columns)
    if columns is not None and not columns.strip(" ,;"):
        raise ConfigError("--columns is empty")
    if parties is not None:
        equal_widths(parties, max(parties, 1))
    if asked.like is not None:
        refuse_fixed(asked, "the partition", "features")


def check_format_options(kind: str, asked: Any, place: str) -> None:
    """Refuse options that would have no effect."""
    csv = given_options(asked, "label", "drop", "separator") + ["--no-header"] * (not asked.header)
    libsvm = given_options(asked, "zero_based", "features")
    for owner, given in (("csv", csv), ("libsvm", libsvm), ("npz", given_options(asked, "x_key", "y_key"))):
        for option in given if owner != kind else ():
            raise ConfigError(
                f"{place}{option} is for {owner} sources, but this one is read as {kind}: pass --format "
                f"{owner} if it is {owner}"
            )
    if kind != "csv" and (by_column := getattr(asked, "by_column", None)):
        raise ConfigError(f"{place}{by_column[0]} is for CSV tables, not for {kind} (see --format)")


def _declared(asked: _Asked, model: Partition | None, file: SourceFile) -> int | None:
    """Number of features that the options state, for a format that does not."""
    columns, features = asked.columns, asked.features
    if features is not None and features < 1:
        raise ConfigError(f"--features {features}: must be at least 1")
    if model is not None:
        return sum(party.n_features for party in model.parties)
    if columns is None:
        return features
    if not is_widths(columns):
        raise ConfigError(f"--columns {columns!r}: LIBSVM columns have no names; give widths such as 66,57")
    total = sum(parse_widths(columns))
    if features is not None and total != features:
        raise InputError(f"{file.shown}: widths {columns} add up to {total}, not to --features {features}")
    return total


def _split(path: str, n_features: int, asked: _Asked, model: Partition | None) -> list[PartyColumns]:
    try:
        if model is None:
            return party_columns(asked.columns, asked.parties, asked.names, None, n_features)
        widths, names = zip(*((party.n_features, party.name) for party in model.parties))
        return by_widths(widths, names, n_features)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


# --- second pass -----------------------------------------------------------------------------------------


def _cut_blocks(
    reader: Source, parties: list[_Party], n_samples: int, told: OnRead
) -> Generator[list[Piece], None, None]:
    """Of each block the rows of every party, which are cut by threads."""
    rows = 0
    with closing(in_order(partial(_cut, parties), reader.blocks())) as cuts:
        for own in cuts:
            yield [(number, rows, part) for number, part in enumerate(own)]
            rows += own[0].shape[0]
            told(own[0].shape[0])
    if rows != n_samples:
        raise InputError(f"{reader.path}: {n_samples} rows at first, then {rows}: the file changed meanwhile")


def _cut(parties: list[_Party], block: Block) -> list[Rows]:
    """Each party's rows of a block, as they are stored."""
    X = widened(block.X, sum(columns.width for columns, _ in parties))
    return [stored(columns.take(X), own["kind"], own["transform"]) for columns, own in parties]
