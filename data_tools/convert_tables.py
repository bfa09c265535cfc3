"""From one table per party, with ids, or one table that is split between them, to a partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from fastadmm.data_tools import encoding
from fastadmm.data_tools.alignment import Alignment, join
from fastadmm.data_tools.blocks import (
    ColumnStatistics,
    Piece,
    Plan,
    Progress,
    Steps,
    fit_transform_of,
    stored,
    write_planned,
)
from fastadmm.data_tools.column_types import column_notes, recognise
from fastadmm.data_tools.columns import listed, pieces
from fastadmm.data_tools.label_columns import labels_of, require_label
from fastadmm.data_tools.opening import part_files
from fastadmm.data_tools.per_table import (
    TableOptions,
    check_columns,
    given_options,
    id_columns,
    missing_words,
    parse_names,
    party_columns,
    refuse_fixed,
    table_names,
)
from fastadmm.data_tools.tables import Cells, Table, read_table
from fastadmm.errors import ConfigError, InputError
from fastadmm.files.atomic import shown
from fastadmm.files.digest import row_digest
from fastadmm.store.encoder import CellReading, ColumnEncoding
from fastadmm.store.h5file import compression_options
from fastadmm.store.label_file import LabelData
from fastadmm.store.transform import Transform

if TYPE_CHECKING:
    from fastadmm.store.encoder import Encoder
    from fastadmm.store.partition import Partition


@dataclass(frozen=True)
class Part:
    """How a party's columns become features, and those of which rows of which table."""

    name: str
    encoder: Encoder
    transform: Transform
    kind: str
    dtype: str
    table: Any = None
    rows: Any = None


@dataclass(frozen=True)
class Like:
    """What is taken over from a partition, a model or the rows of training."""

    parties: Sequence[Part]
    task: str = ""
    classes: tuple[str, ...] | None = None
    path: str = ""
    label_reading: CellReading = field(default_factory=CellReading)
    has_encoders: bool = True

    @property
    def encoders(self) -> list[Encoder]:
        """The parties' encoders."""
        return [party.encoder for party in self.parties]

    @classmethod
    def open(cls, path: str | Path) -> Like:
        from fastadmm.store.model import MANIFEST, open_model
        from fastadmm.store.partition import open_partition

        is_model = (Path(path) / MANIFEST).exists() or (Path(path) / "model").is_dir()
        opened: Any = open_model(path) if is_model else open_partition(path, require_labels=False)
        labels = opened if is_model else opened.labels
        reading = CellReading.parse(getattr(labels, "reading", ""))
        has_encoders = all(party.encoder is not None for party in opened.parties)
        classes = getattr(labels, "classes", None)
        return cls(parts_of(opened.parties), opened.task, classes, shown(path), reading, has_encoders)


def parts_of(parties: Sequence[Any]) -> list[Part]:
    """How the columns of each party of a partition, a model or its points become features."""
    return [
        Part(
            party.name, encoding.encoder_of(party), getattr(party, "transform", Transform()),
            getattr(party, "kind", "dense"), str(getattr(party, "dtype", "float64")),
        )
        for party in parties
    ]  # fmt: skip


def convert_tables(
    guest: str | Path | None, hosts: Sequence[str | Path], out: str | Path, **options: Any
) -> Partition:
    """Convert one table per party into a partition; `options` are also `force` and `progress`."""
    return write_planned(plan_tables, out, guest=guest, hosts=hosts, **options)


def plan_tables(
    options: TableOptions, scratch: Path | None = None, progress: Progress | None = None, plain: bool = False
) -> Plan:
    """Read, align and encode tables without writing anything, or one table that is split between parties.

    Of one `plain` table neither encoders nor row numbers are stored, where it holds plain numbers alone.
    """
    split = options.source is not None
    options = replace(options, guest=options.source) if split else options
    _check_options(options)
    planner = Planner(options, scratch, progress, split=split, plain=plain)
    if split:
        planner.find_label()
    planner.check_roles()
    if not split:
        return planner.plan(*join(planner.tables, planner.ids, options))
    every = np.arange(planner.tables[0].n_rows)
    return planner.plan(Alignment(every, ""), [every], [])


class Planner:
    """Tables on their way to a plan: what is asked of them, what is taken over, and what was read."""

    def __init__(
        self,
        options: TableOptions,
        scratch: Path | None = None,
        progress: Progress | None = None,
        *,
        like: Like | None = None,
        split: bool = False,
        plain: bool = False,
    ) -> None:
        self.options, self.has_guest = options, options.guest is not None
        self.split = split  # whether one table is split between the parties
        self.plain = plain  # whether its features are all plain numbers, as far as is known
        self.like = like
        if options.like is not None:
            self.like = Like.open(options.like)
            self.plain = not self.like.has_encoders
        path, hosts = options.public_columns, options.hosts
        self.described = None if path is None else encoding.read_description(path, options.drop)
        self.report: list[str] = []
        self.typing = options.typing
        #: What parties are called without names.
        self.roles = ["guest"] * self.has_guest
        self.roles += ["host"] if len(hosts) == 1 else [f"host-{k + 1}" for k in range(len(hosts))]
        self.paths = [*([] if options.guest is None else [options.guest]), *hosts]
        self.ids = self._id_columns()  # of each table
        self.tables = self._read(scratch, progress)

    # --- reading -----------------------------------------------------------------------------------------

    def _id_columns(self) -> list[str | None]:
        paths, options, like = self.paths, self.options, self.like
        resolved = [Path(path).resolve() for path in paths]
        for i, path in enumerate(resolved):
            if path in resolved[:i]:
                raise InputError(f"{shown(paths[i])}: given twice; every party has its own table")
        parties = [name.strip() for name in options.names.split(",")] if options.names is not None else []
        if len(parties) != len(paths):
            parties = [] if like is None else [party.name for party in like.parties]
        names = table_names(paths, parties if len(parties) == len(paths) else [])
        if not self.split:
            names = [own | {role} for own, role in zip(names, self.roles)]
        ids = id_columns(options.id, names)
        for id in filter(None, ids):
            if id in options.drop:
                raise ConfigError("--drop: the id and the label column cannot be dropped")
            if id == options.label:
                raise ConfigError(f"--id and --label: both are {id!r}")
            if id in options.kinds:
                raise ConfigError(f"--types: {id!r} is no feature column")
        return ids

    def _read(self, scratch: Path | None, progress: Progress | None) -> list[Table]:
        options, on_read = self.options, None
        if progress is not None:
            parts = (part for path in self.paths for part in part_files(path))
            on_read = Steps(progress, "reading", sum(part.stat().st_size for part in parts if part.is_file()))
        how: dict[str, Any] = {"drop": options.drop, "scratch": scratch, "on_read": on_read}
        tables = [
            read_table(path, options.layout, self._cells(id), **how) for path, id in zip(self.paths, self.ids)
        ]
        files = ", ".join(table.path for table in tables)
        check_columns("--drop", options.drop, [name for table in tables for name in table.every], files)
        everywhere = [name for table in tables for name in table.names]
        check_columns("--categorical", options.categorical, everywhere, files)
        check_columns("--types", options.kinds, everywhere, files)
        check_columns("--na-values", missing_words(options.na_values), everywhere, files)
        return tables

    def _cells(self, id: str | None) -> Cells:
        """What cells of a table are kept as."""
        options, like = self.options, self.like
        if like is not None:
            kept = kept_cells(like.encoders, id)
            if like.label_reading.plain:
                return kept
            # Without --label, which column holds the labels is known once all are read.
            label = [] if options.label is None else [options.label]
            return replace(kept, raw={*kept.raw, *label}, all_raw=not label)
        text = {name for name, kind in self.typing.kinds.items() if kind == "category"}
        text |= set(self.described.categories) if self.described is not None else set()
        split = options.held_out
        raw = [*self.typing.dates, *([split.column] if split is not None and split.kind == "time" else [])]
        return Cells(text, raw, self.typing.decimal is not None, missing_words(options.na_values), id)

    def find_label(self) -> None:
        """Take the one column for the label that is no feature of what is replayed."""
        label, table = self.options.label, self.tables[0]
        if label is None and self.like is not None and len(rest := self._unused(0)) == 1:
            label = rest[0]
        self.options = replace(self.options, label=require_label(table.path, table.names, label))

    def check_roles(self) -> None:
        """Refuse tables where the guest lacks the label or what is kept beside it, or a host has it."""
        first, *others = self.tables
        for what, name in self.options.of_guest.items():
            first.require(name, f"{what} column")
            for table in others:
                if name in table.names:
                    raise InputError(
                        f"{table.path}: holds the {what} column {name!r}, but {what}s belong to the guest "
                        "alone: remove or rename it there"
                    )

    def features(self, k: int) -> list[str]:
        """A table's columns besides the id, the label, what is kept beside it, and the column of a split."""
        split = self.options.held_out
        others = {self.ids[k], *self.options.of_guest.values(), "" if split is None else split.column}
        return [name for name in self.tables[k].names if name not in others]

    def _unused(self, k: int) -> list[str]:
        """A table's columns that are no features of what is replayed."""
        if self.like is None:
            return []
        used = {column.name for encoder in self.like.encoders for column in encoder.columns}
        return [name for name in self.features(k) if name not in used]

    # --- planning ----------------------------------------------------------------------------------------

    def plan(self, alignment: Alignment, rows: list[np.ndarray], joined: list[str]) -> Plan:
        """The plan for some rows of each table, in the order of an alignment."""
        self.report += [note for table in self.tables for note in table.notes] + joined
        for k, table in enumerate(self.tables):
            if rest := self._unused(k):
                what = "columns that training did not have, left out"
                self.report.append(f"{table.path}: {what}: {listed(rest, 10)}")
        split = self.options.held_out
        if split is None:
            return self._of_rows(alignment.ids, alignment.digest, rows)
        at = next((k for k, table in enumerate(self.tables) if split.column in table.names), 0)
        if split.column:
            self.tables[at].require(split.column, "split column")
        held = split.rows(alignment.ids, self.tables[at], rows[at], self.typing)

        def some(which: np.ndarray) -> Plan:
            ids = alignment.ids[which]
            return self._of_rows(ids, row_digest(ids), [own[which] for own in rows])

        plan = some(~held)
        # Rows that are held out are encoded and scaled as those of training.
        self.options, self.report = replace(self.options, positive=None), []
        test = some(held)
        report = [*plan.report, *(f"test rows: {line}" for line in test.report)]
        return replace(plan, test=replace(test, columns={}), report=report)

    def _of_rows(self, ids: np.ndarray, digest: str, rows: list[np.ndarray]) -> Plan:
        """The plan for rows; further ones are then encoded as these are."""
        like, options = self.like, self.options
        if like is not None:
            parties = self.by_party(like, rows)
            for party in parties:
                self._look(party.table, party.encoder, party.rows)
        else:
            parties = self._fit_split(rows[0]) if self.split else self._fit_tables(rows)
        labels = None
        if options.label is not None:
            known = like or Like([], options.task or "auto")
            how = (known.task, known.classes, known.label_reading, self.report)
            labels = labels_of(self.tables[0], rows[0], options, *how)
        elif like is None and self.has_guest:
            raise ConfigError("--label: which of the guest's columns is the label?")
        if like is None and self.described is None:
            self._refuse_grouped(parties, labels)
        task = labels.task if labels is not None else like.task if like is not None else options.task
        if task not in {"classification", "regression"}:
            raise ConfigError("--task: without labels, say --task classification or --task regression")
        reading = "" if labels is None else labels.reading
        if like is None:
            classes = None if labels is None else labels.classes
            self.like = Like(parties, task, classes, "--split", CellReading.parse(reading))
        plain = self.split and self.plain and not reading
        told = [
            {"name": party.name, "kind": party.kind, "dtype": party.dtype, "transform": party.transform}
            | {"feature_names": party.encoder.feature_names, "encoder": None if plain else party.encoder}
            for party in parties
        ]
        return Plan(
            told, partial(_blocks, parties), labels, task, Path(self.paths[0]).name, len(ids),
            None if plain else ids, digest, options.compression, self.report,
            {p.name: encoding.describe(p.table, p.encoder, p.rows) for p in parties},
        )  # fmt: skip

    def _fit_tables(self, rows: list[np.ndarray]) -> list[Part]:
        """One party for each table; a guest that brings labels only is none."""
        columns = [self.features(k) for k in range(len(self.tables))]
        first = int(self.has_guest and not columns[0] and len(columns) > 1)
        names = self.roles[first:]
        if self.options.names is not None:
            names = parse_names(self.options.names, len(names))
        count = Counter(name for own in columns[first:] for name in own)
        if both := sorted(name for name in count if count[name] > 1):
            what = f"columns that several tables have: {listed(both, 5)}"
            self.report.append(f"{what}: their features begin with the party's name")
        parties = []
        for k, party in enumerate(names, start=first):
            if not columns[k]:
                raise InputError(f"{self.tables[k].path}: no feature column besides the id and the label")
            shown_as = {name: f"{party}.{name}" for name in columns[k] if count[name] > 1}
            parties.append(self._fit(party, self.tables[k], columns[k], rows[k], shown_as))
        return parties

    def _fit_split(self, rows: np.ndarray) -> list[Part]:
        """The parties between which the columns of one table are split."""
        options, table, features = self.options, self.tables[0], self.features(0)
        if not features:
            raise InputError(f"{table.path}: no feature column besides the label {options.label!r}")
        split = party_columns(options, table.path, len(features), features)
        own = [table.columns[name] for name in features]
        self.plain &= all(column.kind == "number" and column.full for column in own)
        order = np.array(features, dtype=object)
        return [self._fit(p.name, table, order[p.columns].tolist(), rows, {}) for p in split]

    def _fit(
        self, name: str, table: Table, columns: list[str], rows: np.ndarray, shown_as: Mapping[str, str]
    ) -> Part:
        """One party's columns as features; `shown_as`: what those are called that other tables have, too."""
        options, described = self.options, self.described
        encoder = encoding.fit_encoder(table, columns, rows, shown_as, options, described)
        statistics = ColumnStatistics() if options.standardize else None
        # Where nothing is counted or added up, the first look at the rows is when they are written.
        full = all(table.columns[c].full for c in columns)
        looks = statistics is not None or described is not None or not full
        self._look(table, encoder, rows if looks else rows[:0], statistics)
        if described is None:
            self.report += [line for line in column_notes(table, encoder, rows) if line not in self.report]
        kind = "csr" if options.storage == "csr" else "dense"
        transform = fit_transform_of(slice(None), kind, statistics, options.normalize or "none", table.path)
        return Part(name, encoder, transform, kind, options.dtype or "float64", table, rows)

    def _look(
        self, table: Table, encoder: Encoder, rows: np.ndarray, statistics: ColumnStatistics | None = None
    ) -> None:
        """Report what is found when all rows are encoded; statistics add up fixed pieces in their order."""
        report = encoding.EncodingReport()
        for part in pieces(rows, len(encoder.feature_names)) if len(rows) else [rows]:
            X, found = encoding.encode_table(table, encoder, part)
            report.add(found)
            if statistics is not None:
                statistics.update(X)
        self.report += [line for line in report.lines(table.path) if line not in self.report]

    def by_party(self, like: Like, rows: list[np.ndarray]) -> list[Part]:
        """The parties of a partition or model, with the table and rows of each."""
        tables = self.tables
        if self.split:
            tables, rows = tables * len(like.parties), rows * len(like.parties)
        # A guest without features at training brings labels only; it is no party, then or now.
        if self.has_guest and len(tables) == len(like.parties) + 1:
            tables, rows = tables[1:], rows[1:]
        if len(tables) != len(like.parties):
            names = ", ".join(party.name for party in like.parties)
            raise InputError(
                f"{like.path}: has {len(like.parties)} parties ({names}), but there are "
                f"{len(tables)} tables: give them in the same order, guest first"
            )
        return [replace(p, table=table, rows=own) for p, table, own in zip(like.parties, tables, rows)]

    def _refuse_grouped(self, parties: Sequence[Part], labels: LabelData | None) -> None:
        """Refuse doubtful points: what one column of a table shows holds for all, and for the label."""
        for table in self.tables:
            encodings = [column for p in parties if p.table is table for column in p.encoder.columns]
            target, name = labels is not None and labels.task == "regression", self.options.label
            if target and table is self.tables[0] and name is not None:
                reading = recognise(table, name, table.columns[name], self.typing)
                encodings.append(ColumnEncoding(name, reading=str(reading or CellReading())))
            encoding.refuse_grouped(table, encodings, self.typing)


def _blocks(parties: Sequence[Part], progress: Progress | None) -> Generator[list[Piece], None, None]:
    """Rows of one party after another, encoded a piece at a time."""
    widths = [len(party.encoder.feature_names) for party in parties]
    step = Steps(progress, "writing", len(parties[0].rows) * sum(widths))
    for number, (party, width) in enumerate(zip(parties, widths)):
        start = 0
        for part in pieces(party.rows, 2 * width):  # half as large: three are in memory at once
            X, _ = encoding.encode_table(party.table, party.encoder, part)
            yield [(number, start, stored(X, party.kind, party.transform))]
            start += len(part)
            step(len(part) * width)


def _check_options(options: TableOptions) -> None:
    compression_options(options.compression)
    if options.source is None:
        alone = given_options(options, "columns", "parties", "features", "zero_based", "x_key", "y_key")
        if alone:
            raise ConfigError(f"{alone[0]}: is for one source, not for tables that are joined by ids")
    if options.guest is None and not options.hosts:
        raise ConfigError("--guest and --host: give the table of at least one party")
    if options.guest is None and options.label is not None:
        raise ConfigError("--label: labels belong to the guest: give its table with --guest")
    if options.public_columns is not None:
        for option in given_options(options, "missing", "categorical", "standardize", "like"):
            raise ConfigError(
                f"{option} and --public-columns: the description says how columns are prepared; leave one out"
            )
    _ = options.held_out
    if beside := given_options(options, *options.beside):
        if options.label is None and options.like is None:
            raise ConfigError(f"{beside[0]}: is kept beside the labels: name them with --label")
        if len(set(options.of_guest.values())) < len(options.of_guest):
            raise ConfigError(f"{beside[0]}: names a column that another option names, too")
    if options.label in options.drop:
        raise ConfigError("--drop: the id and the label column cannot be dropped")
    if both := [name for name in options.kinds if name in options.drop]:
        option = "--categorical" if both[0] in options.categorical else "--types"
        raise ConfigError(f"{option}: {both[0]!r} is no feature column")
    if options.like is not None:
        refuse_fixed(options, "the partition or model")


def kept_cells(encoders: Sequence[Encoder], id: str | None) -> Cells:
    """What cells of a new table are kept as, for encoders that were fitted before."""
    columns = [column for encoder in encoders for column in encoder.columns]
    text = {column.name for column in columns if column.levels is not None}
    raw = {column.name for column in columns if column.reading}
    return Cells(text, raw, na={c.name: c.na for c in columns if c.na}, id=id)
