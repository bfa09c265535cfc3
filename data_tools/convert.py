"""Convert a data file to a partition: one pass to inspect it, one pass to write."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
from fastadmm.data_tools.blocks import OnRead, Progress, Source, Steps
from fastadmm.data_tools.convert_tables import (
    TableOptions,
    TablePlan,
    plan_one_table,
    refuse_fixed,
    write_plan,
)
from fastadmm.data_tools.csv_source import CsvSource, NotNumbers
from fastadmm.data_tools.csv_table import check_separator, is_number
from fastadmm.data_tools.dates import is_date
from fastadmm.data_tools.destination import Piece, check_choices, check_out, write_partition
from fastadmm.data_tools.labels import LabelCollector
from fastadmm.data_tools.libsvm import LibsvmSource
from fastadmm.data_tools.npz import NpzSource
from fastadmm.data_tools.number_text import written
from fastadmm.data_tools.opening import SourceFile
from fastadmm.data_tools.parts import empty_parts, source_files, told_of_empty
from fastadmm.data_tools.per_table import given_options, layouts, table_names
from fastadmm.data_tools.scaling import ColumnStatistics, fit_transform_of
from fastadmm.data_tools.split import (
    PartyColumns,
    by_names,
    by_widths,
    equal_widths,
    is_widths,
    parse_widths,
    party_columns,
)
from fastadmm.data_tools.spool import Held, Kept
from fastadmm.data_tools.table_notes import number_notes
from fastadmm.data_tools.tables import Layout
from fastadmm.data_tools.threads import in_order
from fastadmm.errors import ConfigError, InputError
from fastadmm.files.atomic import shown
from fastadmm.store.compression import compression_options
from fastadmm.store.elements import make_csr
from scipy import sparse

if TYPE_CHECKING:
    from fastadmm.store import Partition, Transform

__all__ = ["Progress", "Told", "check_format_options", "convert"]

#: ``told(notes, columns)`` with lines for the user and, by party, what each column of a table was taken for.
Told = Callable[[list[str], dict[str, list[dict[str, Any]]]], None]

#: A sparse party's block with more than this fraction of non-zeros is stored dense.
DENSE_ABOVE = 0.5

#: Parsed blocks kept in memory between the passes; more of them wait in a file beside the partition.
CACHE_BYTES = 32 << 20

#: Columns of numbers that are looked at for doubts.
MOST_NOTED = 200

#: float64 values made dense at a time: 1 << 18 is 2 MB.
DENSE_VALUES = 1 << 18


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
            self, "public_columns", "missing", "categorical", "types", "na_values", "decimal", "thousands",
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
    check_choices(
        normalize=asked.normalize, dtype=asked.dtype, task=asked.task, storage=asked.storage,
        format=asked.format,
    )  # fmt: skip
    _check_split(asked)
    check_out(out, force)
    model = open_partition(asked.like) if asked.like is not None else None
    files, kind = source_files(source, asked.format)
    file, size = files[0], sum(file.size for file in files)
    place = shown(source)
    layout = _check_reading(kind, file, asked)
    file.encoding = layout.encoding

    def write(plan: TablePlan) -> Partition:
        if told is not None:
            told(plan.report, plan.columns)
        how: dict[str, Any] = {"compression": asked.compression, "progress": progress}
        return write_plan(plan, out, force=force, **how)

    by_column = bool(asked.by_column)
    if model is not None:
        by_column = all(party.encoder is not None for party in model.parties)
    if kind == "parquet" or (kind == "csv" and (by_column or len(files) > 1)):
        return write(_plan(source, out, asked))
    empty = told_of_empty(source, empty_parts(source))
    beside = Path(out).absolute().parent
    try:
        reader = _open(kind, place, files, layout, asked, model, beside)
        # Faults of the split are found before the data are read, where the number of columns is known.
        width = reader.n_features
        split = _split(reader, width, asked, model) if width is not None else None
        scan = _scan(reader, asked.standardize, Steps(progress, "reading", size), beside)
        if kind == "csv" and model is None and any(map(_number_like, scan.labels.words)):
            raise NotNumbers("labels that are written as numbers")
    except NotNumbers:
        if model is not None:
            raise
        return write(_plan(source, out, asked))
    task, classes = asked.task or "auto", None
    if model is not None and model.labels is not None:
        task, classes = model.task, model.labels.classes
    labels = scan.labels.finish(task, classes, asked.positive)
    if split is None:
        split = _split(reader, scan.n_features, asked, model)
    elif kind == "libsvm" and model is None and asked.features is None:
        _check_widths(reader, scan, split, asked.zero_based)
    if isinstance(reader, CsvSource) and told is not None:
        told(
            reader.notes + _doubts(reader, scan),
            {party.name: _number_columns(party, reader) for party in split},
        )
    elif told is not None:
        told(empty + _doubts(reader, scan), {})
    if model is not None:
        kinds, transforms = [own.kind for own in model.parties], [own.transform for own in model.parties]
        dtype = model.parties[0].dtype.name
    else:
        dtype = asked.dtype or "float64"
        kinds = [_storage(party, reader.kind, asked.storage or "auto", scan) for party in split]
        try:
            transforms = [
                fit_transform_of(party, kind, scan.statistics, asked.normalize or "none")
                for party, kind in zip(split, kinds)
            ]
        except InputError as error:
            raise InputError(f"{reader.path}: values too large to standardise: {error}") from None
    blocks = scan.kept.blocks() or map(Held.of, reader.blocks())
    targets = list(zip(split, kinds, transforms))
    parties = [
        {
            "name": party.name,
            "kind": kind,
            "dtype": dtype,
            "feature_names": _feature_names(party, reader.feature_names)
            if model is None
            else model.parties[i].feature_names,
            "transform": transform,
        }
        for i, (party, kind, transform) in enumerate(targets)
    ]
    told_rows = Steps(progress, "writing", scan.n_rows)
    pieces = _cut_blocks(reader, blocks, targets, dtype, len(labels.y), told_rows)
    return write_partition(
        out, parties, pieces, labels, task=labels.task, ids=None, source=Path(reader.path).name,
        force=force, compression=asked.compression,
    )  # fmt: skip


def _check_widths(reader: Source, scan: _Scan, split: list[PartyColumns], zero_based: bool) -> None:
    """Refuse widths beyond the largest index of a LIBSVM file."""
    if scan.n_features >= cast(int, reader.n_features):
        return
    widths = [party.width for party in split]
    raise InputError(
        f"{reader.path}: widths {'+'.join(map(str, widths))} = {sum(widths)}, but the largest index is "
        f"{scan.n_features - (1 if zero_based else 0)}: correct the widths, or pass --features "
        f"{sum(widths)} if the last features just never occur"
    )


def _open(
    kind: str,
    place: str,
    files: list[SourceFile],
    layout: Layout,
    asked: _Asked,
    model: Partition | None,
    beside: Path,
) -> Source:
    """The reader of a source."""
    reader: Source
    file = files[0]
    if kind == "csv":
        reader = CsvSource(
            file, label=asked.label, drop=asked.drop, header=layout.header, separator=layout.separator,
            features=[name for own in model.parties for name in own.feature_names] if model else None,
            scratch=beside,
        )  # fmt: skip
    elif kind == "npz":
        reader = NpzSource(file, x_key=asked.x_key, y_key=asked.y_key or "y")
    else:
        declared = _declared(asked, model, file)
        reader = LibsvmSource(files, place, n_features=declared, zero_based=asked.zero_based)
    if asked.features is not None and reader.n_features != asked.features:
        raise InputError(
            f"{file.shown}: --features {asked.features}, but there are {reader.n_features} feature columns"
        )
    return reader


def _plan(source: str | Path, out: str | Path, asked: _Asked) -> TablePlan:
    if asked.features is not None:
        raise ConfigError("--features: what becomes a feature is decided column by column here; leave it out")
    return plan_one_table(source, asked, asked.columns, asked.parties, scratch=Path(out).absolute().parent)


def _number_columns(party: PartyColumns, reader: CsvSource) -> list[dict[str, Any]]:
    names = _feature_names(party, reader.feature_names)
    return [{"column": name, "type": "number", "features": 1, "missing": 0} for name in names]


def _doubts(reader: Source, scan: _Scan) -> list[str]:
    """What a small table's columns of numbers may be instead; without names, whether they are ids."""
    names, blocks, width = reader.feature_names, scan.kept.in_memory, len(scan.nonzeros)
    # An id is in every row: other columns of sparse rows are not looked at.
    is_csr = reader.kind == "csr"
    own = np.flatnonzero(scan.nonzeros >= scan.n_rows - 1) if is_csr else np.arange(width)
    if blocks is None or not 0 < len(own) <= MOST_NOTED:
        return []
    found: list[Any] = [block.X for block in blocks]
    if is_csr:
        found = [
            sparse.csr_array((X.data, X.indices, X.indptr), (X.shape[0], width))[:, own].toarray()
            for X in found
        ]
    if names is None:
        return number_notes(reader.path, [f"f{j + 1}" for j in own.tolist()], found, named=False)
    return number_notes(reader.path, names, found)


def _number_like(label: str) -> bool:
    """Whether a label that is text is written as a number or a date."""
    return not is_number(label) and (is_date(label) or written(label) is not None)


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
        fixed = "names", "normalize", "standardize", "dtype", "task", "positive", "storage", "features"
        refuse_fixed(asked, "the partition", *fixed)


def _check_reading(kind: str, file: SourceFile, asked: _Asked) -> Layout:
    """Refuse options of other formats; how a CSV table is laid out."""
    names = table_names([file.path], [])
    kind = "csv" if kind == "parquet" else kind
    (layout,) = layouts(asked.separator, asked.encoding, asked.header, names)
    check_format_options(kind, asked, layout.separator, f"{file.shown}: ")
    if kind != "csv" and (given := asked.by_column):
        raise ConfigError(f"{file.shown}: {given[0]} is for CSV tables, not for {kind} (see --format)")
    return layout


def check_format_options(kind: str, asked: Any, separator: str | None, place: str) -> None:
    """Refuse options that would have no effect."""
    owners = {
        "--label": ("csv", asked.label is not None),
        "--drop": ("csv", bool(asked.drop)),
        "--no-header": ("csv", not asked.header),
        "--separator": ("csv", separator not in (None, ",")),
        "--zero-based": ("libsvm", asked.zero_based),
        "--x-key": ("npz", asked.x_key is not None),
        "--y-key": ("npz", asked.y_key is not None),
    }
    for option, (owner, given) in owners.items():
        if given and owner != kind:
            raise ConfigError(
                f"{place}{option} is for {owner} sources, but this one is read as {kind}: pass --format "
                f"{owner} if it is {owner}"
            )
    check_separator(separator)


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
    widths = parse_widths(columns)
    if features is not None and sum(widths) != features:
        raise InputError(
            f"{file.shown}: widths {'+'.join(map(str, widths))} = {sum(widths)} do not add up to "
            f"--features {features}"
        )
    return sum(widths)


def _split(reader: Source, n_features: int, asked: _Asked, model: Partition | None) -> list[PartyColumns]:
    try:
        if model is None:
            return party_columns(asked.columns, asked.parties, asked.names, reader.feature_names, n_features)
        names, features = zip(*((party.name, party.feature_names) for party in model.parties))
        # Columns with names are found by them, wherever they stand; others by position.
        if reader.feature_names is not None and set().union(*features) & set(reader.feature_names):
            return by_names(features, names, reader.feature_names)
        return by_widths([party.n_features for party in model.parties], names, n_features)
    except InputError as error:
        raise InputError(f"{reader.path}: {error}") from None


# --- first pass ------------------------------------------------------------------------------------------


@dataclass
class _Scan:
    labels: LabelCollector
    n_rows: int
    n_features: int  # as far as seen
    nonzeros: np.ndarray  # per column; CSR sources only
    statistics: ColumnStatistics | None
    kept: Kept


def _scan(reader: Source, standardize: bool, on_read: OnRead, folder: Path) -> _Scan:
    """Read everything once."""
    labels, kept = LabelCollector(reader.path), Kept(None if reader.quick else folder, CACHE_BYTES)
    statistics = ColumnStatistics() if standardize else None
    nonzeros = np.zeros(0, dtype=np.int64)
    n_rows = n_features = 0
    for block in reader.blocks(on_read):
        X = block.X
        labels.append(block.labels)
        n_rows += X.shape[0]
        if isinstance(X, np.ndarray):
            n_features = X.shape[1]
        else:
            counts = np.bincount(X.indices, minlength=len(nonzeros))
            n_features = max(n_features, len(counts) if X.nnz else 0)
            counts[: len(nonzeros)] += nonzeros
            nonzeros = counts
        if statistics is not None:
            with np.errstate(over="ignore", invalid="ignore"):  # the transform refuses what is not finite
                statistics.update(X)
        kept.put(block)
    width = max(n_features, reader.n_features or 0)
    if n_features == 0:
        raise InputError(f"{reader.path}: no features in any row")
    if statistics is not None:
        statistics.widen(width)
    nonzeros = np.pad(nonzeros, (0, width - len(nonzeros)))
    return _Scan(labels, n_rows, n_features, nonzeros, statistics, kept)


def _storage(party: PartyColumns, kind: str, storage: str, scan: _Scan) -> str:
    if storage != "auto":
        return storage
    if kind == "dense":
        return "dense"
    filled = int(scan.nonzeros[party.columns].sum())
    return "dense" if filled > DENSE_ABOVE * scan.n_rows * party.width else "csr"


# --- second pass -----------------------------------------------------------------------------------------


def _cut_blocks(
    reader: Source,
    blocks: Iterable[Held],
    targets: list[_Target],
    dtype: str,
    n_samples: int,
    told: OnRead,
) -> Generator[list[Piece], None, None]:
    """Of each block the rows of every party, which are cut by threads."""
    width = sum(party.width for party, _, _ in targets)
    cut, rows = partial(_cut, reader, width, targets, dtype), 0
    with closing(in_order(cut, _numbered(blocks))) as cuts:
        for n_rows, parts in cuts:
            yield [(number, rows, own) for number, own in enumerate(parts)]
            rows += n_rows
            told(n_rows)
    if rows != n_samples:
        raise InputError(f"{reader.path}: {n_samples} rows at first, then {rows}: the file changed meanwhile")


#: Some rows of a party, as they are stored.
_Piece: TypeAlias = "np.ndarray | sparse.csr_array"

#: A party's columns, the kind in which they are stored, and their transform.
_Target: TypeAlias = "tuple[PartyColumns, str, Transform]"


def _numbered(blocks: Iterable[Held]) -> Iterator[tuple[int, Held]]:
    """Each block behind the number of its first row."""
    rows = 0
    for held in blocks:
        yield rows, held
        rows += held.n_rows


def _cut(
    reader: Source, width: int, targets: list[_Target], dtype: str, numbered: tuple[int, Held]
) -> tuple[int, list[Iterable[_Piece]]]:
    """How many rows a block has, and each party's pieces of it."""
    first_row, held = numbered
    X = held.get().X
    if not isinstance(X, np.ndarray) and X.shape[1] < width:
        X = make_csr(X.data, X.indices, X.indptr, (X.shape[0], width))
    parts: list[Iterable[_Piece]] = []
    for party, kind, transform in targets:
        pieces = _stored(reader, first_row, X, party, kind, transform, dtype)
        # What becomes dense only now may be much larger than the block: it is made a piece at a time.
        parts.append(pieces if kind == "dense" and not isinstance(X, np.ndarray) else list(pieces))
    return X.shape[0], parts


def _stored(
    reader: Source,
    first_row: int,
    X: _Piece,
    party: PartyColumns,
    kind: str,
    transform: Transform,
    dtype: str,
) -> Iterator[_Piece]:
    """A party's rows of a block as they are stored."""
    for start, part in _pieces(party.take(X), kind):
        with np.errstate(over="ignore", invalid="ignore"):
            piece = part if transform.is_identity else transform.apply(part)
            piece = piece.astype(dtype, copy=False)
        _check_finite(piece, reader, first_row + start, party, dtype)
        yield piece


def _feature_names(party: PartyColumns, names: list[str] | None) -> list[str]:
    numbers = (
        range(party.columns.start, party.columns.stop)
        if isinstance(party.columns, slice)
        else party.columns.tolist()
    )
    # Without names of their own, features keep their number in the source: party 2 of 66,57 begins with f67.
    return [f"f{i + 1}" if names is None else names[i] for i in numbers]


def _pieces(
    part: np.ndarray | sparse.csr_array, kind: str
) -> Iterator[tuple[int, np.ndarray | sparse.csr_array]]:
    """A party's rows in the kind they are stored in, a few MB at a time."""
    if isinstance(part, np.ndarray):
        yield 0, part if kind == "dense" else sparse.csr_array(part)
        return
    if kind == "csr":
        yield 0, part
        return
    count = max(1, DENSE_VALUES // max(1, part.shape[1]))
    for start in range(0, part.shape[0], count):
        yield start, part[start : start + count].toarray()


def _check_finite(
    part: np.ndarray | sparse.csr_array, reader: Source, first_row: int, party: PartyColumns, dtype: str
) -> None:
    values = part if isinstance(part, np.ndarray) else part.data
    if np.isfinite(values).all():
        return
    if isinstance(part, np.ndarray):
        i, j = (int(k) for k in np.argwhere(~np.isfinite(part))[0])
    else:
        position = int(np.flatnonzero(~np.isfinite(values))[0])
        i = int(np.searchsorted(part.indptr, position, side="right")) - 1
        j = int(part.indices[position])
    name = _feature_names(party, reader.feature_names)[j]
    raise InputError(
        f"{reader.path}: {reader.where(first_row + i)}, feature {name!r}: too large for {dtype} "
        "(as stored, after any scaling)"
    )
