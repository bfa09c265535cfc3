"""Convert a data file to a partition: a table column by column, LIBSVM and NPZ files as one matrix."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from fastadmm.data_tools.blocks import (
    Block,
    ColumnStatistics,
    Piece,
    Plan,
    Progress,
    Rows,
    Scan,
    Steps,
    fit_transform_of,
    stored,
    stored_kind,
    widened,
    write_planned,
)
from fastadmm.data_tools.convert_tables import plan_tables
from fastadmm.data_tools.matrices import LibsvmSource, NpzSource
from fastadmm.data_tools.opening import SourceFile, in_order, source_files
from fastadmm.data_tools.per_table import (
    PartyColumns,
    TableOptions,
    check_format_options,
    equal_widths,
    is_widths,
    parse_widths,
    party_columns,
    refuse_fixed,
)
from fastadmm.errors import ConfigError, InputError
from fastadmm.files.atomic import shown
from fastadmm.store.h5file import compression_options

if TYPE_CHECKING:
    from fastadmm.store.partition import Partition


def convert(source: str | Path, out: str | Path, **options: Any) -> Partition:
    """Convert LIBSVM, CSV, Parquet or NPZ files into a partition, the same on any number of threads.

    `options` are those of :class:`TableOptions`, and `force` and `progress`.
    """
    return write_planned(plan_source, out, source=source, **options)


def plan_source(options: TableOptions, scratch: Path | None = None, progress: Progress | None = None) -> Plan:
    """Read a source of any format without writing anything."""
    from fastadmm.store.partition import open_partition

    assert options.source is not None
    compression_options(options.compression)
    _check_split(options)
    files, kind = source_files(options.source, options.format)
    check_format_options(kind, options, f"{files[0].shown}: ")
    if kind in ("csv", "parquet"):
        # Of one plain CSV table nothing is to be replayed but the names of its columns.
        plain = kind == "csv" and len(files) == 1 and not options.by_column
        return plan_tables(options, scratch, progress, plain)
    if options.by_column:
        raise ConfigError(
            f"{files[0].shown}: {options.by_column[0]} is for CSV tables, not for {kind} (see --format)"
        )
    # All rows of a matrix are looked at to decide who gets which columns.
    like = open_partition(options.like) if options.like is not None else None
    declared = _declared(options, like, files[0]) if kind == "libsvm" else None
    reader = open_matrix(kind, files, options, declared, scratch)
    split = partial(party_columns, options, reader.path, like=like)
    if reader.n_features is not None:  # faults of the split are found before the data are read
        split(reader.n_features)
    statistics = ColumnStatistics() if options.standardize else None
    scan = Scan([reader], Steps(progress, "reading", sum(file.size for file in files)), statistics)
    task, classes = options.task or "auto", None
    if like is not None and like.labels is not None:
        task, classes = like.task, like.labels.classes
    labels = scan.labels.finish(task, classes, options.positive)
    columns = split(scan.n_features if reader.n_features is None else reader.n_features)
    total = sum(party.width for party in columns)

    def fitted(party: PartyColumns) -> dict[str, Any]:
        filled = int(scan.nonzeros[party.columns].sum())
        kind = stored_kind(options.storage, reader.kind, filled, scan.n_rows * party.width)
        normalize = options.normalize or "none"
        transform = fit_transform_of(party.columns, kind, statistics, normalize, reader.path)
        # Features keep their number in the source: party 2 of 66,57 begins with f67.
        names = [f"f{i + 1}" for i in np.arange(scan.width)[party.columns].tolist()]
        how = {"name": party.name, "kind": kind, "dtype": options.dtype or "float64"}
        return {**how, "feature_names": names, "transform": transform}

    if like is not None:
        keys = ("name", "kind", "dtype", "feature_names", "transform")
        parties = [{key: getattr(party, key) for key in keys} for party in like.parties]
    elif isinstance(reader, LibsvmSource) and options.features is None and scan.n_features < total:
        raise InputError(
            f"{reader.path}: the widths add up to {total}, but the largest index is "
            f"{scan.n_features - (1 if options.zero_based else 0)}: correct the widths, or pass --features "
            f"{total} if the last features just never occur"
        )
    else:
        parties = list(map(fitted, columns))
    blocks = partial(_blocks, reader, columns, parties, scan.n_rows)
    name = Path(reader.path).name
    return Plan(parties, blocks, labels, labels.task, name, scan.n_rows, compression=options.compression)


def open_matrix(
    kind: str, files: Sequence[SourceFile], options: Any, n_features: int | None, scratch: Path | None
) -> LibsvmSource | NpzSource:
    """The reader of a source without column names."""
    if kind == "npz":
        return NpzSource(files[0], x_key=options.x_key, y_key=options.y_key or "y")
    place = None if options.source is None else shown(options.source)
    return LibsvmSource(files, place, n_features=n_features, zero_based=options.zero_based, scratch=scratch)


def _check_split(options: TableOptions) -> None:
    """Refuse none or several ways to split columns, and what --like decides."""
    columns, parties = options.columns, options.parties
    ways = {"--columns": columns, "--parties": parties, "--like": options.like}
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
    if options.like is not None:
        refuse_fixed(options, "the partition", "features")


def _declared(options: TableOptions, like: Partition | None, file: SourceFile) -> int | None:
    """Number of features that the options state, for a format that does not."""
    columns, features = options.columns, options.features
    if features is not None and features < 1:
        raise ConfigError(f"--features {features}: must be at least 1")
    if like is not None:
        return sum(party.n_features for party in like.parties)
    if columns is None:
        return features
    if not is_widths(columns):
        raise ConfigError(f"--columns {columns!r}: LIBSVM columns have no names; give widths such as 66,57")
    total = sum(parse_widths(columns))
    if features is not None and total != features:
        raise InputError(f"{file.shown}: widths {columns} add up to {total}, not to --features {features}")
    return total


def _blocks(
    reader: LibsvmSource | NpzSource,
    columns: list[PartyColumns],
    parties: list[dict[str, Any]],
    n_samples: int,
    progress: Progress | None,
) -> Generator[list[Piece], None, None]:
    """Of each block the rows of every party, as they are stored; they are cut by threads."""

    def cut(block: Block) -> list[Rows]:
        X = widened(block.X, sum(own.width for own in columns))
        return [stored(own.take(X), p["kind"], p["transform"]) for own, p in zip(columns, parties)]

    rows, told = 0, Steps(progress, "writing", n_samples)
    with closing(in_order(cut, reader.blocks())) as cuts:
        for parts in cuts:
            yield [(number, rows, part) for number, part in enumerate(parts)]
            rows += parts[0].shape[0]
            told(parts[0].shape[0])
    if rows != n_samples:
        raise InputError(f"{reader.path}: {n_samples} rows at first, then {rows}: the file changed meanwhile")
