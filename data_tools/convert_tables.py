"""From one table per party, with ids, to a partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from fastadmm.data_tools.alignment import Alignment, TableIds, align, read_alignment, rows_of, table_ids
from fastadmm.data_tools.blocks import Progress, Steps
from fastadmm.data_tools.column_types import Typing, are_truths, parse_types, read_column, recognise
from fastadmm.data_tools.columns import in_quotes, pieces
from fastadmm.data_tools.destination import check_choices, check_out
from fastadmm.data_tools.encoding import (
    AS_FOUND,
    EncodingReport,
    describe,
    encode_table,
    fit_encoder,
    refuse_grouped,
)
from fastadmm.data_tools.holdout import HoldOut
from fastadmm.data_tools.labels import LabelCollector, Labels
from fastadmm.data_tools.number_text import written
from fastadmm.data_tools.parts import part_files
from fastadmm.data_tools.per_table import (
    check_columns,
    layouts,
    missing_words,
    per_marks,
    per_table,
    table_names,
)
from fastadmm.data_tools.public_columns import Description, read_description, write_template
from fastadmm.data_tools.scaling import ColumnStatistics, fit_transform_of
from fastadmm.data_tools.split import PartyColumns, parse_names, party_columns
from fastadmm.data_tools.suggest import each
from fastadmm.data_tools.table_notes import column_notes
from fastadmm.data_tools.tables import Cells, Column, Table, read_table
from fastadmm.errors import ConfigError, FastadmmError, InputError
from fastadmm.files.atomic import atomic_directory, shown
from fastadmm.files.digest import row_digest
from fastadmm.store.cell_reading import CellReading
from fastadmm.store.compression import compression_options
from fastadmm.store.encoder import ColumnEncoding

if TYPE_CHECKING:
    from fastadmm.store import Encoder, Partition, Transform


@dataclass(frozen=True)
class TableOptions:
    """How tables become a partition; the defaults are those of the command line."""

    id: str | Sequence[str]
    label: str | None = None  # label column of the guest's table; None: no labels (for prediction)
    weight: str | None = None  # column of sample weights
    offset: str | None = None  # column of what is added to scores
    exposure: str | None = None  # column of exposures
    split: str | None = None  # which rows become a test partition, as HoldOut reads it
    alignment: str | Path | None = None
    like: str | Path | None = None
    names: str | None = None  # names of the parties, guest first
    drop: Sequence[str] = ()  # columns left out
    categorical: Sequence[str] = ()  # columns whose numbers are codes of categories
    types: Sequence[str] = ()
    na_values: Sequence[str] = ()
    decimal: str | Sequence[str] | None = None
    thousands: str | Sequence[str] | None = None
    public_columns: str | Path | None = None
    missing: str | None = None  # what is done with missing values (MISSING_POLICIES); default "refuse"
    unseen: str = "zeros"  # what is done with categories that ``like`` does not know
    duplicates: str = "refuse"  # what is done with ids that occur more than once in a table
    id_pattern: str | Sequence[str] | None = None  # regular expression of the part of ids that is compared
    prefix: bool = False
    standardize: bool = False
    normalize: str | None = None  # "l2": then scale each row of each party to norm 1
    dtype: str | None = None  # type of the stored features
    task: str | None = None  # what the labels are
    positive: str | None = None  # the label that is class 1
    storage: str | None = None  # how features are stored; "auto" is dense
    separator: str | Sequence[str] | None = None
    encoding: str | Sequence[str] | None = None
    header: bool = True  # whether CSV files begin with column names
    compression: str = "none"  # of the stored blocks

    @property
    def kinds(self) -> dict[str, str]:
        """Kinds of columns that the user states."""
        return parse_types([*self.types, *(f"{name}=category" for name in self.categorical)])

    @property
    def held_out(self) -> HoldOut | None:
        """Which rows become a test partition."""
        return None if self.split is None else HoldOut.parse(self.split)

    @property
    def beside(self) -> dict[str, str | None]:
        """Columns that are kept beside the labels, by what they are."""
        return {what: getattr(self, what) for what in ("weight", "offset", "exposure")}

    @property
    def of_guest(self) -> dict[str, str]:
        """Columns of the guest's table that are no features, by what they are."""
        return {what: name for what, name in {"label": self.label, **self.beside}.items() if name is not None}


@dataclass(frozen=True)
class _Given:
    """One table, and what the options say of it."""

    table: Table
    id: str | None
    pattern: str | None
    typing: Typing

    def features(self, options: TableOptions) -> list[str]:
        """Its columns besides the id, the label, what is kept beside it, and the column of a split."""
        others = {self.id, *options.of_guest.values()}
        if options.held_out is not None and options.held_out.column:
            others.add(options.held_out.column)
        return [name for name in self.table.names if name not in others]


@dataclass(frozen=True)
class _Part:
    """How a party's columns become features."""

    name: str
    encoder: Encoder
    transform: Transform
    kind: str
    dtype: str


@dataclass(frozen=True)
class _Party(_Part):
    table: Table
    rows: np.ndarray


@dataclass(frozen=True)
class TablePlan:
    """Everything a partition needs, nothing of it written."""

    alignment: Alignment  # ids of the rows, in order
    parties: list[_Party]  # encoded features of each party
    labels: Labels | None
    task: str
    report: list[str]  # what a user should know: joined rows, filled and unseen cells, unused columns
    columns: dict[str, list[dict[str, Any]]]  # what each party's columns were taken for
    source: str  # name of the first table
    test: TablePlan | None = None  # rows that are held out


@dataclass(frozen=True)
class _Like:
    """What is taken over from a partition or from a model."""

    parties: Sequence[_Part]
    task: str
    classes: tuple[str, ...] | None
    path: str = field(default="")
    label_reading: CellReading = field(default_factory=CellReading)

    @property
    def names(self) -> list[str]:
        """Names of the parties."""
        return [party.name for party in self.parties]

    @property
    def encoders(self) -> list[Encoder]:
        """Their encoders."""
        return [party.encoder for party in self.parties]

    @classmethod
    def open(cls, path: str | Path) -> _Like:
        from fastadmm.store import open_partition
        from fastadmm.store.model import MANIFEST, open_model

        parties: Sequence[Any]
        reading = CellReading()
        if (Path(path) / MANIFEST).exists() or (Path(path) / "model").is_dir():
            model = open_model(path)
            parties, task, classes = model.parties, model.task, model.classes
        else:
            partition = open_partition(path, require_labels=False)
            parties, task = partition.parties, partition.task
            classes = partition.labels.classes if partition.labels is not None else None
            reading = CellReading.parse(partition.labels.reading) if partition.labels is not None else reading
        for party in parties:
            if party.encoder is None:
                raise ConfigError(
                    f"{shown(path)}: party {party.name!r} was not converted from a table with ids, so "
                    "there is nothing to replay: convert its training table with --guest and --host"
                )
        made = [
            _Part(
                party.name, party.encoder, party.transform, getattr(party, "kind", "dense"),
                str(getattr(party, "dtype", "float64")),
            )
            for party in parties
        ]  # fmt: skip
        return cls(made, task, classes, shown(path), reading)


def convert_tables(
    guest: str | Path | None,
    hosts: Sequence[str | Path],
    out: str | Path,
    *,
    force: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Partition:
    """Convert one table per party into a partition."""
    chosen = TableOptions(**options)
    check_out(out, force)
    plan = plan_tables(guest, hosts, chosen, scratch=Path(out).absolute().parent, progress=progress)
    return write_plan(plan, out, force=force, compression=chosen.compression, progress=progress)


def plan_tables(
    guest: str | Path | None,
    hosts: Sequence[str | Path],
    options: TableOptions,
    *,
    scratch: str | Path | None = None,
    progress: Progress | None = None,
) -> TablePlan:
    """Read, align and encode tables without writing anything."""
    _check_options(guest, hosts, options)
    like = _Like.open(options.like) if options.like is not None else None
    known = read_alignment(options.alignment) if options.alignment is not None else None
    described = _described(options)
    given = _read(guest, hosts, options, like, described, scratch, progress)
    tables = [own.table for own in given]
    for what, name in options.of_guest.items():
        tables[0].require(name, f"{what} column")
        for table in tables[1:]:
            if name in table.names:
                raise InputError(
                    f"{table.path}: holds the {what} column {name!r}, but {what}s belong to the guest "
                    "alone: remove or rename it there"
                )
    ids = [table_ids(own.table, _id_of(own), options.duplicates, own.pattern) for own in given]
    alignment, report = _align(ids, known)
    rows = [rows_of(own, alignment) for own in ids]
    report = [note for table in tables for note in table.notes] + report + _unused(given, options, like)
    whole, every = alignment, rows
    held = _held_out(given, rows, whole.ids, options)
    if held is not None:
        alignment, rows = _part(whole, ~held), [own[~held] for own in rows]

    parties = _encode(given, rows, options, like, described, report, guest is not None)
    labels = None
    if options.label is not None:
        labels = _labels(given[0], options.label, rows[0], options, like, report)
    elif like is None and guest is not None:
        raise ConfigError("--label: which of the guest's columns is the label?")
    if like is None and described is None:
        _refuse_grouped(given, parties, labels, options)
    task = labels.task if labels is not None else like.task if like is not None else options.task
    if task not in {"classification", "regression"}:
        raise ConfigError("--task: without labels, say --task classification or --task regression")
    plan = TablePlan(
        alignment=alignment,
        parties=parties,
        labels=labels,
        task=task,
        report=report,
        columns={p.name: describe(p.table, p.encoder, p.rows) for p in parties},
        source=Path(guest if guest is not None else hosts[0]).name,
    )
    if held is None:
        return plan
    rows = [own[held] for own in every]
    return _with_test(plan, given[0], tables, rows, _part(whole, held), options, guest is not None)


def plan_one_table(
    source: str | Path,
    options: TableOptions,
    columns: str | None,
    parties: int | None,
    *,
    scratch: str | Path | None = None,
) -> TablePlan:
    """Read and encode one table that is split between parties, without writing anything."""
    _check_options(source, [], options)
    like = _Like.open(options.like) if options.like is not None else None
    described = _described(options)
    (given,) = _read(source, [], options, like, described, scratch)
    table = given.table
    if options.label is None and like is not None:
        used = {column.name for encoder in like.encoders for column in encoder.columns}
        rest = [name for name in given.features(options) if name not in used]
        options = replace(options, label=rest[0] if len(rest) == 1 else None)
    if options.label is None:
        raise ConfigError("--label: which column is the label?")
    table.require(options.label, "label column")
    every, report = np.arange(table.n_rows), table.notes + _unused([given], options, like)
    held = _held_out([given], [every], every, options)
    rows = every if held is None else every[~held]
    if like is not None:
        m = len(like.names)
        made = _replay([table] * m, [rows] * m, options, like, report, False)
    else:
        features = given.features(options)
        if not features:
            raise InputError(f"{table.path}: no feature column besides the label {options.label!r}")
        split = _split_columns(columns, parties, options.names, features, table.path)
        made = [
            _fit_party(name, given, rows, own, options, described, {}, report) for name, own in split.items()
        ]
    labels = _labels(given, options.label, rows, options, like, report)
    if like is None and described is None:
        _refuse_grouped([given], made, labels, options)
    plan = TablePlan(
        alignment=Alignment(rows, ""),
        parties=made,
        labels=labels,
        task=labels.task,
        report=report,
        columns={p.name: describe(p.table, p.encoder, p.rows) for p in made},
        source=Path(source).name,
    )
    if held is None:
        return plan
    m, rest = len(made), every[held]
    return _with_test(plan, given, [table] * m, [rest] * m, Alignment(rest, ""), options, False)


def _held_out(
    given: Sequence[_Given], rows: Sequence[np.ndarray], ids: np.ndarray, options: TableOptions
) -> np.ndarray | None:
    """Which rows become a test partition.

    Shapes: ids, the result (N,).
    """
    split = options.held_out
    if split is None:
        return None
    own = next((k for k, one in enumerate(given) if split.column in one.table.names), 0)
    if split.column:
        given[own].table.require(split.column, "split column")
    return split.rows(ids, given[own].table, rows[own], given[own].typing)


def _part(alignment: Alignment, which: np.ndarray) -> Alignment:
    ids = alignment.ids[which]
    return Alignment(ids, row_digest(ids))


def _with_test(
    plan: TablePlan,
    first: _Given,
    tables: list[Table],
    rows: list[np.ndarray],
    alignment: Alignment,
    options: TableOptions,
    has_guest: bool,
) -> TablePlan:
    """The plan with one of held-out rows, which are encoded and scaled as those of training."""
    report: list[str] = []
    classes = None if plan.labels is None else plan.labels.classes
    reading = CellReading.parse("" if plan.labels is None else plan.labels.reading)
    like = _Like(plan.parties, plan.task, classes, "--split", reading)
    parties = _replay(tables, rows, options, like, report, has_guest)
    labels = None
    if options.label is not None:
        labels = _labels(first, options.label, rows[0], replace(options, positive=None), like, report)
    test = replace(plan, alignment=alignment, parties=parties, labels=labels, report=report, columns={})
    return replace(plan, test=test, report=[*plan.report, *(f"test rows: {line}" for line in report)])


def describe_tables(
    guest: str | Path | None,
    hosts: Sequence[str | Path],
    out: str | Path,
    options: TableOptions,
    *,
    force: bool = False,
) -> int:
    """Write a public description of the tables' columns to fill in: names and types, no number of a cell."""
    given = _read(guest, hosts, options, None, None)
    tables, columns = [own.table for own in given], [own.features(options) for own in given]
    names = _roles(len(tables), guest is not None)
    if guest is not None and not columns[0]:
        tables, columns, names = tables[1:], columns[1:], names[1:]  # as in the conversion
    if options.names is not None:
        names = parse_names(options.names, len(tables))
    shown_as = _shared_names(names, columns, options)
    keys = [
        [(name, f"{party}.{name}" if options.prefix else own.get(name, name)) for name in features]
        for party, features, own in zip(names, columns, shown_as)
    ]
    return write_template(out, list(zip(tables, keys)), force=force)


def _split_columns(
    columns: str | None, parties: int | None, names: str | None, features: list[str], path: str
) -> dict[str, list[str]]:
    """Names of each party's columns of one table."""
    order = np.array(features, dtype=object)
    try:
        split = party_columns(columns, parties, names, features, len(features))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    return {party.name: order[party.columns].tolist() for party in split}


def write_plan(
    plan: TablePlan,
    out: str | Path,
    *,
    force: bool = False,
    compression: str = "none",
    progress: Progress | None = None,
    shards: int | None = None,
) -> Partition:
    """Write a planned partition; with held-out rows a directory of two, and return that of training."""
    from fastadmm.store import open_partition
    from fastadmm.store.cutting import new_partition
    from fastadmm.store.label_file import write_columns

    if plan.test is not None:
        how: dict[str, Any] = {"compression": compression, "progress": progress, "shards": shards}
        with atomic_directory(out, force=force, only=("train.parts", "test.parts")) as folder:
            try:
                write_plan(replace(plan, test=None), folder / "train.parts", **how)
                write_plan(plan.test, folder / "test.parts", **how)
            except FastadmmError as error:
                error.args = (str(error).replace(shown(folder), shown(out)),)
                raise
        return open_partition(Path(out) / "train.parts", require_labels=False)
    cells = sum(len(plan.alignment.ids) * len(party.encoder.feature_names) for party in plan.parties)
    step = Steps(progress, "writing", cells) if progress is not None else lambda _: None
    ids = plan.alignment.ids
    with new_partition(
        out, task=plan.task, n_samples=len(ids), shards=shards, source=plan.source, force=force
    ) as partition:
        for party in plan.parties:
            writer = partition.party(
                party.name,
                n_features=len(party.encoder.feature_names),
                kind=party.kind,
                dtype=party.dtype,
                feature_names=party.encoder.feature_names,
                transform=party.transform,
                compression=compression,
                encoder=party.encoder,
            )
            start = 0
            for part in pieces(party.rows, len(party.encoder.feature_names)):
                writer.append(_stored(party, part), ids[start : start + len(part)])
                start += len(part)
                step(len(part) * len(party.encoder.feature_names))
        if plan.labels is not None:
            target = partition.labels(
                classes=plan.labels.classes, reading=plan.labels.reading, exposure=plan.labels.exposure
            )
            write_columns(target, plan.labels.y, plan.labels.weight, plan.labels.offset, ids)
    return open_partition(out, require_labels=False)


def _stored(party: _Party, rows: np.ndarray) -> Any:
    from scipy.sparse import csr_array

    block, _ = encode_table(party.table, party.encoder, rows)
    with np.errstate(over="ignore", invalid="ignore"):  # the store names the cell that does not fit
        return party.transform.apply(csr_array(block) if party.kind == "csr" else block)


def _check_options(guest: str | Path | None, hosts: Sequence[str | Path], options: TableOptions) -> None:
    compression_options(options.compression)
    if guest is None and not hosts:
        raise ConfigError("--guest and --host: give the table of at least one party")
    if guest is None and options.label is not None:
        raise ConfigError("--label: labels belong to the guest: give its table with --guest")
    check_choices(
        task=options.task, storage=options.storage, dtype=options.dtype, normalize=options.normalize
    )
    _check_described(options)
    if options.split is not None:
        HoldOut.parse(options.split)
    if given := [f"--{what}" for what, name in options.beside.items() if name is not None]:
        if options.label is None and options.like is None:
            raise ConfigError(f"{given[0]}: is kept beside the labels: name them with --label")
        if len(set(options.of_guest.values())) < len(options.of_guest):
            raise ConfigError(f"{given[0]}: names a column that another option names, too")
    if options.label in options.drop:
        raise ConfigError("--drop: the id and the label column cannot be dropped")
    if both := [name for name in options.kinds if name in options.drop]:
        option = "--categorical" if both[0] in options.categorical else "--types"
        raise ConfigError(f"{option}: {both[0]!r} is no feature column")
    if options.like is None:
        return
    fixed = {
        "--names": options.names, "--categorical": tuple(options.categorical) or None,
        "--types": tuple(options.types) or None, "--na-values": tuple(options.na_values) or None,
        "--decimal": options.decimal or None, "--thousands": options.thousands or None,
        "--missing": options.missing,
        "--prefix": options.prefix or None, "--standardize": options.standardize or None,
        "--normalize": options.normalize, "--dtype": options.dtype, "--task": options.task,
        "--positive": options.positive, "--split": options.split,
        "--storage": options.storage,
    }  # fmt: skip
    if given := [option for option, value in fixed.items() if value is not None]:
        raise ConfigError(
            f"{given[0]} and --like: the partition or model given by --like decides; leave {given[0]} out"
        )


def _described(options: TableOptions) -> Description | None:
    path = options.public_columns
    return None if path is None else read_description(path, options.drop)


def _check_described(options: TableOptions) -> None:
    """Refuse options that would fit what the description states."""
    if options.public_columns is None:
        return
    fitted = {
        "--missing": options.missing, "--categorical": tuple(options.categorical) or None,
        "--standardize": options.standardize or None, "--like": options.like,
    }  # fmt: skip
    if given := [option for option, value in fitted.items() if value is not None]:
        raise ConfigError(
            f"{given[0]} and --public-columns: the description says how columns are prepared; leave one out"
        )


def _cells(
    options: TableOptions, like: _Like | None, described: Description | None, id: str | None, typing: Typing
) -> Cells:
    """What cells of a table are kept as."""
    if like is not None:
        kept = kept_cells(like.encoders, id)
        if like.label_reading.plain:
            return kept
        # Without --label, which column holds the labels is known once all are read.
        label = [] if options.label is None else [options.label]
        return replace(kept, raw={*kept.raw, *label}, all_raw=not label)
    text = {name for name, kind in typing.kinds.items() if kind == "category"}
    text |= set(described.categories) if described is not None else set()
    split = options.held_out
    raw = [*typing.dates, *([split.column] if split is not None and split.kind == "time" else [])]
    return Cells(text, raw, typing.stated, missing_words(options.na_values), id, text)


def kept_cells(encoders: Sequence[Encoder], id: str | None) -> Cells:
    """What cells of a new table are kept as, for encoders that were fitted before."""
    columns = [column for encoder in encoders for column in encoder.columns]
    text = {column.name for column in columns if column.levels is not None}
    raw = {column.name for column in columns if column.reading}
    quoted = {column.name for column in columns if any(map(in_quotes, column.levels or ()))}
    return Cells(text, raw, na={c.name: c.na for c in columns if c.na}, id=id, quoted=quoted)


def _id_of(given: _Given) -> str:
    if given.id is None:
        raise ConfigError(f"--id: which column of {given.table.path} holds the ids?")
    return given.id


def _read(
    guest: str | Path | None,
    hosts: Sequence[str | Path],
    options: TableOptions,
    like: _Like | None,
    described: Description | None,
    scratch: str | Path | None = None,
    progress: Progress | None = None,
) -> list[_Given]:
    paths = [*([guest] if guest is not None else []), *hosts]
    resolved = [Path(path).resolve() for path in paths]
    for i, path in enumerate(resolved):
        if path in resolved[:i]:
            raise InputError(f"{shown(paths[i])}: given twice; every party has its own table")
    parties = [name.strip() for name in (options.names or "").split(",")]
    if len(parties) != len(paths):
        parties = like.names if like is not None and len(like.names) == len(paths) else []
    roles = _roles(len(paths), guest is not None)
    names = [own | {role} for own, role in zip(table_names(paths, parties), roles)]
    laid_out = layouts(options.separator, options.encoding, options.header, names)
    ids = per_table("--id", options.id or None, names)
    patterns = per_table("--id-pattern", options.id_pattern, names)
    marks = zip(*(per_marks(option, getattr(options, option), names) for option in ("decimal", "thousands")))
    typings = [Typing(options.kinds, *own) for own in marks]
    for id in ids:
        if id is not None and id in options.drop:
            raise ConfigError("--drop: the id and the label column cannot be dropped")
        if id is not None and id == options.label:
            raise ConfigError(f"--id and --label: both are {id!r}")
        if id is not None and id in options.kinds:
            raise ConfigError(f"--types: {id!r} is no feature column")
    on_read = None
    if progress is not None:
        size = sum(part.stat().st_size for path in paths for part in part_files(path) if part.is_file())
        on_read = Steps(progress, "reading", size)
    given = [
        _Given(
            read_table(
                path,
                layout,
                _cells(options, like, described, id, typing),
                drop=options.drop,
                scratch=scratch,
                on_read=on_read,
            ),
            id,
            pattern,
            typing,
        )
        for path, layout, id, pattern, typing in zip(paths, laid_out, ids, patterns, typings)
    ]
    everywhere = [name for own in given for name in own.table.names]
    files = ", ".join(own.table.path for own in given)
    check_columns("--categorical", dict.fromkeys(options.categorical), everywhere, files)
    check_columns("--types", options.kinds, everywhere, files)
    check_columns("--na-values", missing_words(options.na_values), everywhere, files)
    return given


def _align(ids: list[TableIds], known: Alignment | None) -> tuple[Alignment, list[str]]:
    if known is None:
        return align(ids)
    unused = [f"{own.path}: {own.n_rows} rows, {len(known.ids)} in the alignment" for own in ids]
    return known, unused


def _unused(given: list[_Given], options: TableOptions, like: _Like | None) -> list[str]:
    if like is None:
        return []
    used = {column.name for encoder in like.encoders for column in encoder.columns}
    lines = []
    for own in given:
        if rest := [name for name in own.features(options) if name not in used]:
            lines.append(
                f"{own.table.path}: columns that training did not have, left out: {', '.join(rest[:10])}"
                + (f" and {len(rest) - 10} more" if len(rest) > 10 else "")
            )
    return lines


def _encode(
    tables: list[_Given],
    rows: list[np.ndarray],
    options: TableOptions,
    like: _Like | None,
    described: Description | None,
    report: list[str],
    has_guest: bool,
) -> list[_Party]:
    if like is not None:
        return _replay([own.table for own in tables], rows, options, like, report, has_guest)
    given = [(own, at, own.features(options)) for own, at in zip(tables, rows)]
    roles = _roles(len(tables), has_guest)
    if has_guest and not given[0][2] and len(given) > 1:
        given, roles = given[1:], roles[1:]  # a guest that brings labels only is no party
    for own, _, columns in given:
        if not columns:
            raise InputError(f"{own.table.path}: no feature column besides the id and the label")
    names = parse_names(options.names, len(given)) if options.names is not None else roles
    shown_as = _shared_names(names, [columns for _, _, columns in given], options)
    if both := sorted({name for own in shown_as for name in own}):
        listed = ", ".join(both[:5]) + (f" and {len(both) - 5} more" if len(both) > 5 else "")
        report.append(
            f"columns that several tables have: {listed}: their features begin with the party's name"
        )
    return each(
        partial(_fit_party, name, own, at, columns, options, described, alias, report)
        for name, (own, at, columns), alias in zip(names, given, shown_as)
    )


def _shared_names(
    parties: Sequence[str], columns: Sequence[Sequence[str]], options: TableOptions
) -> list[dict[str, str]]:
    """For each party, what its columns are called whose names other tables have, too."""
    if options.prefix:
        return [{} for _ in parties]
    count = Counter(name for own in columns for name in own)
    return [
        {name: f"{party}.{name}" for name in own if count[name] > 1} for party, own in zip(parties, columns)
    ]


def _fit_party(
    name: str,
    given: _Given,
    rows: np.ndarray,
    columns: list[str],
    options: TableOptions,
    described: Description | None,
    shown_as: dict[str, str],
    report: list[str],
) -> _Party:
    """One party's columns as features: by the description, or fitted."""
    table = given.table
    prefix = f"{name}." if options.prefix else ""
    na = missing_words(options.na_values)
    if described is not None:
        encoder = described.encoder(table, columns, prefix, shown_as)
        encoder = _stated_readings(encoder, given, na)
    else:
        encoder = fit_encoder(
            table, columns, rows, missing=options.missing or "refuse", typing=given.typing, prefix=prefix,
            shown=shown_as, na=na,
        )  # fmt: skip
    statistics = ColumnStatistics() if options.standardize else None
    # Where nothing is counted or added up, the first look at the rows is when they are written.
    looks = statistics is not None or described is not None or not all(table.columns[c].full for c in columns)
    done = _encoded(table, encoder, rows if looks else rows[:0], statistics)
    lines = done.lines(table.path) + (column_notes(table, encoder, rows) if described is None else [])
    report += [line for line in lines if line not in report]
    kind = "csr" if options.storage == "csr" else "dense"
    width = len(encoder.feature_names)
    whole = PartyColumns(name, slice(0, width), width)
    try:
        transform = fit_transform_of(whole, kind, statistics, options.normalize or "none")
    except InputError as error:
        raise InputError(f"{table.path}: values too large to standardise: {error}") from None
    return _Party(name, encoder, transform, kind, options.dtype or "float64", table, rows)


def _encoded(
    table: Table,
    encoder: Encoder,
    rows: np.ndarray,
    statistics: ColumnStatistics | None = None,
    unseen: str = "zeros",
) -> EncodingReport:
    """What is found when all rows are encoded; statistics add up fixed pieces in their order."""
    report = EncodingReport()
    for part in pieces(rows, len(encoder.feature_names)) if len(rows) else [rows]:
        X, found = encode_table(table, encoder, part, unseen=unseen)
        report.add(found)
        if statistics is not None:
            with np.errstate(over="ignore", invalid="ignore"):  # the transform refuses what is not finite
                statistics.update(X)
    return report


def _refuse_grouped(
    given: Sequence[_Given], parties: Sequence[_Party], labels: Labels | None, options: TableOptions
) -> None:
    """Refuse doubtful points of a table: what one column shows holds for all of them, and for the label."""
    for own in given:
        encodings = [column for p in parties if p.table is own.table for column in p.encoder.columns]
        target = labels is not None and labels.task == "regression" and own is given[0]
        if target and options.label is not None:
            reading = recognise(own.table, options.label, own.table.columns[options.label], own.typing)
            encodings.append(ColumnEncoding(options.label, reading=str(reading or CellReading())))
        refuse_grouped(own.table, encodings, own.typing)


def _stated_readings(encoder: Encoder, given: _Given, na: dict[str, tuple[str, ...]]) -> Encoder:
    """A described encoder with the readings that options state; none is recognised from rows."""
    columns = []
    for encoding in encoder.columns:
        name = encoding.name
        words = tuple(dict.fromkeys([*na.get("", ()), *na.get(name, ())]))
        reading = CellReading()
        if encoding.levels is None and (given.typing.stated or name in given.typing.kinds):
            reading = recognise(given.table, name, given.table.columns[name], given.typing) or reading
        if reading.from_rows:
            raise ConfigError(
                f"{given.table.path}: column {name!r}: beside --public-columns, options state how "
                f"numbers are "
                "written: give --decimal, or the format of a date, such as --types joined=days:%Y-%m-%d"
            )
        columns.append(replace(encoding, na=words, reading=str(reading)))
    return replace(encoder, columns=tuple(columns))


def _roles(n_tables: int, has_guest: bool) -> list[str]:
    """What parties are called without names."""
    hosts = n_tables - has_guest
    return ["guest"] * has_guest + (["host"] if hosts == 1 else [f"host-{k + 1}" for k in range(hosts)])


def _replay(
    tables: list[Table],
    rows: list[np.ndarray],
    options: TableOptions,
    like: _Like,
    report: list[str],
    has_guest: bool,
) -> list[_Party]:
    # A guest without features at training brings labels only; it is no party, then or now.
    if has_guest and len(tables) == len(like.names) + 1:
        tables, rows = tables[1:], rows[1:]
    if len(tables) != len(like.names):
        raise InputError(
            f"{like.path}: has {len(like.names)} parties ({', '.join(like.names)}), but there are "
            f"{len(tables)} tables: give them in the same order, guest first"
        )
    parties = []
    for part, table, own in zip(like.parties, tables, rows):
        done = _encoded(table, part.encoder, own, unseen=options.unseen)
        report += done.lines(table.path)
        parties.append(_Party(part.name, part.encoder, part.transform, part.kind, part.dtype, table, own))
    return parties


def _labels(
    given: _Given, name: str, rows: np.ndarray, options: TableOptions, like: _Like | None, report: list[str]
) -> Labels:
    task = like.task if like is not None else options.task or "auto"
    classes = like.classes if like is not None else None
    reading = like.label_reading if like is not None else CellReading()
    labels = labels_of(
        given.table, name, rows, task, classes, positive=options.positive, typing=given.typing,
        reading=reading, report=report,
    )  # fmt: skip
    return with_columns(labels, given.table, rows, **options.beside, typing=given.typing)


def _written_numbers(column: Column) -> bool:
    """Whether some cells are plain numbers, and the others numbers that are written in another way."""
    return column.kind == "mixed" and all(written(cell) for cell in column.words if cell)


def labels_of(
    table: Table,
    name: str,
    rows: np.ndarray,
    task: str,
    classes: tuple[str, ...] | None = None,
    *,
    positive: str | None = None,
    typing: Typing = AS_FOUND,
    reading: CellReading | None = None,
    report: list[str] | None = None,
) -> Labels:
    """Labels of some rows of a table."""
    column = table.columns[name]
    absent, at = column.first_missing(rows)
    if absent:
        raise InputError(
            f"{table.path}: {table.where(at)}, label column {name!r}: missing label ({absent} of "
            f"{len(rows)} rows): remove these rows"
        )
    known = classes is not None and column.kind != "number" and not set(column.words) - {*classes, ""}
    found: CellReading | None = None
    why = "as other labels are"
    if column.kind in ("text", "mixed", "raw") and not known and reading is not None and not reading.plain:
        found, why = reading, f"as the labels of training are read ({reading.words()})"
    elif (
        not known
        and not are_truths(column.words)
        and (column.kind in ("text", "raw") or _written_numbers(column))
    ):
        found = recognise(table, name, column, typing)
    if found is not None:
        if not found.plain and report is not None:
            report.append(f"{table.path}: label column {name!r}: read as numbers: {found.words()}")
        column = read_column(table, name, column, found, why)
    collector = LabelCollector(table.path)
    for part in pieces(rows):
        if column.kind == "number":
            collector.append(column.values[part])
        else:
            used, first, codes = np.unique(column.values[part], return_index=True, return_inverse=True)
            order = np.argsort(first)
            words = [column.words[k] for k in used[order].tolist()]
            collector.append_words(np.argsort(order)[codes], words)
    return replace(collector.finish(task, classes, positive), reading=str(found or ""))


def with_columns(
    labels: Labels,
    table: Table,
    rows: np.ndarray,
    *,
    weight: str | None = None,
    offset: str | None = None,
    exposure: str | None = None,
    typing: Typing = AS_FOUND,
) -> Labels:
    """The labels with weights and offsets from other columns of their table."""
    if exposure is not None and (labels.classes is not None or (labels.y < 0).any()):
        what = "classes" if labels.classes is not None else "negative numbers"
        raise ConfigError(
            f"--exposure: belongs to counts, but the labels are {what}; for these pass --offset"
        )
    return replace(
        labels,
        weight=weight_of(table, rows, weight, typing),
        offset=offset_of(table, rows, offset, exposure, typing),
        exposure=exposure is not None,
    )


def weight_of(
    table: Table, rows: np.ndarray, name: str | None, typing: Typing = AS_FOUND
) -> np.ndarray | None:
    """Sample weights of some rows.

    Shapes: rows, the result (k,).
    """
    return None if name is None else _numbers(table, name, rows, "weight", typing)


def offset_of(
    table: Table, rows: np.ndarray, offset: str | None, exposure: str | None, typing: Typing = AS_FOUND
) -> np.ndarray | None:
    """Offsets of some rows, or the logarithms of their exposures.

    Shapes: rows, the result (k,).
    """
    if offset is not None and exposure is not None:
        raise ConfigError("--offset and --exposure: the logarithm of an exposure is the offset; give one")
    if exposure is not None:
        return np.log(_numbers(table, exposure, rows, "exposure", typing))
    return None if offset is None else _numbers(table, offset, rows, "offset", typing)


#: What is wrong with a number of a column that is kept beside the labels.
_WRONG: dict[str, tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    "weight": ("is negative", lambda values: values < 0.0),
    "exposure": ("is not above 0", lambda values: values <= 0.0),
    "offset": ("is not finite", lambda values: ~np.isfinite(values)),
}


def _numbers(table: Table, name: str, rows: np.ndarray, what: str, typing: Typing) -> np.ndarray:
    """A number for each of some rows; none may be missing.

    Shapes: rows, the result (k,).
    """
    column = table.require(name, f"{what} column")
    if column.kind in ("text", "raw") or _written_numbers(column):
        found = recognise(table, name, column, typing)
        if found is not None:
            column = read_column(table, name, column, found, "as other cells are")
    if column.kind != "number":
        raise InputError(f"{table.path}: {what} column {name!r}: not all cells are numbers")
    absent, at = column.first_missing(rows)
    if absent:
        raise InputError(
            f"{table.path}: {table.where(at)}, {what} column {name!r}: missing value: fill it, or "
            "leave the row out"
        )
    values = column.values[rows]
    fault, wrong = _WRONG[what]
    if (bad := np.flatnonzero(wrong(values))).size:
        at = int(rows[bad[0]])
        raise InputError(
            f"{table.path}: {table.where(at)}, {what} column {name!r}: {values[bad[0]]:g} {fault}"
        )
    return values
