"""From one table per party, with ids, to a partition."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from fastadmm.data_tools.alignment import Alignment, join
from fastadmm.data_tools.blocks import Progress, Steps
from fastadmm.data_tools.column_types import Typing, parse_types, recognise
from fastadmm.data_tools.columns import in_quotes, pieces
from fastadmm.data_tools.destination import Piece, check_out, write_partition
from fastadmm.data_tools.encoding import (
    EncodingReport,
    describe,
    encode_table,
    encoder_of,
    fit_encoder,
    refuse_grouped,
)
from fastadmm.data_tools.holdout import HoldOut
from fastadmm.data_tools.label_columns import labels_of, with_columns
from fastadmm.data_tools.labels import Labels
from fastadmm.data_tools.opening import part_files
from fastadmm.data_tools.per_table import (
    TableRows,
    check_columns,
    given_options,
    id_columns,
    missing_words,
    table_names,
)
from fastadmm.data_tools.public_columns import read_description
from fastadmm.data_tools.scaling import ColumnStatistics, fit_transform_of
from fastadmm.data_tools.sources import add_to, number_blocks, require_label, stored
from fastadmm.data_tools.split import parse_names, party_columns
from fastadmm.data_tools.table_notes import column_notes
from fastadmm.data_tools.tables import Cells, Table, read_table
from fastadmm.errors import ConfigError, FastadmmError, InputError
from fastadmm.files.atomic import atomic_directory, shown
from fastadmm.files.digest import row_digest
from fastadmm.store.cell_reading import CellReading
from fastadmm.store.encoder import ColumnEncoding
from fastadmm.store.h5file import compression_options
from fastadmm.store.transform import Transform

if TYPE_CHECKING:
    from fastadmm.store import Encoder, Partition


@dataclass(frozen=True)
class TableOptions(TableRows):
    """How tables become a partition; the defaults are those of the command line."""

    label: str | None = None  # label column of the guest's table; None: no labels (for prediction)
    weight: str | None = None  # column of sample weights
    split: str | None = None  # which rows become a test partition, as HoldOut reads it
    like: str | Path | None = None
    names: str | None = None  # names of the parties, guest first
    drop: Sequence[str] = ()  # columns left out
    categorical: Sequence[str] = ()  # columns whose numbers are codes of categories
    types: Sequence[str] = ()
    na_values: Sequence[str] = ()
    decimal: str | None = None  # mark of numbers
    public_columns: str | Path | None = None
    missing: str | None = None  # what is done with missing values (MISSING_POLICIES); default "refuse"
    standardize: bool = False
    normalize: str | None = None  # "l2": then scale each row of each party to norm 1
    dtype: str | None = None  # type of the stored features
    task: str | None = None  # what the labels are
    positive: str | None = None  # the label that is class 1
    storage: str | None = None  # how features are stored; "auto" is dense
    compression: str = "none"  # of the stored blocks

    @property
    def kinds(self) -> dict[str, str]:
        """Kinds of columns that the user states."""
        return parse_types([*self.types, *(f"{name}=category" for name in self.categorical)])

    @property
    def typing(self) -> Typing:
        """What the user says about columns."""
        if self.decimal not in (None, ".", ","):
            raise ConfigError(f"--decimal {self.decimal!r}: choose one of '.', ','")
        return Typing(self.kinds, self.decimal)

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
    plain: bool = False  # whether neither encoders nor ids are stored


@dataclass(frozen=True)
class Like:
    """What is taken over from a partition or from a model."""

    parties: Sequence[_Part]
    task: str
    classes: tuple[str, ...] | None
    path: str = field(default="")
    label_reading: CellReading = field(default_factory=CellReading)
    has_encoders: bool = True

    @property
    def names(self) -> list[str]:
        """Names of the parties."""
        return [party.name for party in self.parties]

    @property
    def encoders(self) -> list[Encoder]:
        """Their encoders."""
        return [party.encoder for party in self.parties]

    @classmethod
    def open(cls, path: str | Path) -> Like:
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
        has_encoders = all(party.encoder is not None for party in parties)
        return cls(parts_of(parties), task, classes, shown(path), reading, has_encoders)


def parts_of(parties: Sequence[Any]) -> list[_Part]:
    """How the columns of each party of a partition, a model or its points become features."""
    return [
        _Part(
            party.name, encoder_of(party), getattr(party, "transform", Transform()),
            getattr(party, "kind", "dense"), str(getattr(party, "dtype", "float64")),
        )
        for party in parties
    ]  # fmt: skip


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
    planner = Planner(guest, hosts, options, scratch, progress)
    planner.check_roles()
    alignment, rows, joined = join(planner.tables, planner.ids, options)
    return planner.plan(alignment, rows, joined, planner.fit_tables)


def plan_one_table(
    source: str | Path,
    options: TableOptions,
    columns: str | None,
    parties: int | None,
    *,
    scratch: str | Path | None = None,
    plain: bool = False,
    progress: Progress | None = None,
) -> TablePlan:
    """Read and encode one table that is split between parties, without writing anything.

    Where nothing but plain numbers is found in a `plain` table, neither encoders nor row numbers are stored.
    """
    _check_options(source, [], options)
    planner = Planner(source, [], options, scratch, progress, split=True, plain=plain)
    planner.find_label()
    planner.check_roles()
    every = np.arange(planner.tables[0].n_rows)
    plan = planner.plan(Alignment(every, ""), [every], [], partial(planner.fit_split, columns, parties))
    plain = planner.plain if planner.like is None else not planner.like.has_encoders
    return replace(plan, plain=plain and (plan.labels is None or not plan.labels.reading))


#: Makes the parties of some rows of each table.
Fit: TypeAlias = "Callable[[list[np.ndarray]], list[_Party]]"


class Planner:
    """Tables on their way to a plan: what is asked of them, what is taken over, and what was read."""

    def __init__(
        self,
        guest: str | Path | None,
        hosts: Sequence[str | Path],
        options: TableOptions,
        scratch: str | Path | None = None,
        progress: Progress | None = None,
        *,
        like: Like | None = None,
        split: bool = False,
        plain: bool = False,
    ) -> None:
        self.options, self.has_guest = options, guest is not None
        self.split = split  # whether one table is split between the parties
        self.plain = plain  # whether its features are all plain numbers, as far as is known
        self.like = like if options.like is None else Like.open(options.like)
        path = options.public_columns
        self.described = None if path is None else read_description(path, options.drop)
        self.report: list[str] = []
        self.paths = [*([guest] if guest is not None else []), *hosts]
        self.typing = options.typing
        self.ids: list[str | None] = []  # the id column of each table
        self.tables = self._read(scratch, progress)

    # --- reading -----------------------------------------------------------------------------------------

    def _read(self, scratch: str | Path | None, progress: Progress | None) -> list[Table]:
        paths, options, like = self.paths, self.options, self.like
        resolved = [Path(path).resolve() for path in paths]
        for i, path in enumerate(resolved):
            if path in resolved[:i]:
                raise InputError(f"{shown(paths[i])}: given twice; every party has its own table")
        parties = [name.strip() for name in options.names.split(",")] if options.names is not None else []
        if len(parties) != len(paths):
            parties = like.names if like is not None and len(like.names) == len(paths) else []
        names = table_names(paths, parties)
        if not self.split:
            names = [own | {role} for own, role in zip(names, self._roles())]
        self.ids = id_columns(options.id, names)
        for id in filter(None, self.ids):
            if id in options.drop:
                raise ConfigError("--drop: the id and the label column cannot be dropped")
            if id == options.label:
                raise ConfigError(f"--id and --label: both are {id!r}")
            if id in options.kinds:
                raise ConfigError(f"--types: {id!r} is no feature column")
        on_read = None
        if progress is not None:
            size = sum(part.stat().st_size for path in paths for part in part_files(path) if part.is_file())
            on_read = Steps(progress, "reading", size)
        how: dict[str, Any] = {"drop": options.drop, "scratch": scratch, "on_read": on_read}
        tables = [
            read_table(path, options.layout, self._cells(id), **how) for path, id in zip(paths, self.ids)
        ]
        files = ", ".join(table.path for table in tables)
        every = [name for table in tables for name in table.every]
        check_columns("--drop", dict.fromkeys(options.drop), every, files)
        everywhere = [name for table in tables for name in table.names]
        check_columns("--categorical", dict.fromkeys(options.categorical), everywhere, files)
        check_columns("--types", options.kinds, everywhere, files)
        check_columns("--na-values", missing_words(options.na_values), everywhere, files)
        return tables

    def _roles(self) -> list[str]:
        """What parties are called without names."""
        hosts = len(self.paths) - self.has_guest
        named = ["host"] if hosts == 1 else [f"host-{k + 1}" for k in range(hosts)]
        return ["guest"] * self.has_guest + named

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
        return Cells(text, raw, self.typing.stated, missing_words(options.na_values), id)

    def find_label(self) -> None:
        """Take the one column for the label that is no feature of what is replayed."""
        if self.options.label is None and self.like is not None:
            rest = self._unused(0)
            self.options = replace(self.options, label=rest[0] if len(rest) == 1 else None)
        table = self.tables[0]
        self.options = replace(self.options, label=require_label(table.path, table.names, self.options.label))

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

    def plan(self, alignment: Alignment, rows: list[np.ndarray], joined: list[str], fit: Fit) -> TablePlan:
        """The plan for some rows of each table, in the order of an alignment."""
        self.report += [note for table in self.tables for note in table.notes] + joined
        for k, table in enumerate(self.tables):
            if rest := self._unused(k):
                self.report.append(
                    f"{table.path}: columns that training did not have, left out: {', '.join(rest[:10])}"
                    + (f" and {len(rest) - 10} more" if len(rest) > 10 else "")
                )
        split = self.options.held_out
        if split is None:
            return self._of_rows(alignment, rows, fit)
        at = next((k for k, table in enumerate(self.tables) if split.column in table.names), 0)
        if split.column:
            self.tables[at].require(split.column, "split column")
        held = split.rows(alignment.ids, self.tables[at], rows[at], self.typing)
        plan = self._of_rows(_part(alignment, ~held), [own[~held] for own in rows], fit)
        classes = None if plan.labels is None else plan.labels.classes
        reading = CellReading.parse("" if plan.labels is None else plan.labels.reading)
        # Rows that are held out are encoded and scaled as those of training.
        self.like = Like(plan.parties, plan.task, classes, "--split", reading)
        self.options, self.report = replace(self.options, positive=None), []
        test = self._of_rows(_part(alignment, held), [own[held] for own in rows], fit)
        report = [*plan.report, *(f"test rows: {line}" for line in test.report)]
        return replace(plan, test=replace(test, columns={}), report=report)

    def _of_rows(self, alignment: Alignment, rows: list[np.ndarray], fit: Fit) -> TablePlan:
        like, options = self.like, self.options
        parties = fit(rows) if like is None else self._replay(like, rows)
        labels = None
        if options.label is not None:
            labels = self._labels(options.label, rows[0])
        elif like is None and self.has_guest:
            raise ConfigError("--label: which of the guest's columns is the label?")
        if like is None and self.described is None:
            self._refuse_grouped(parties, labels)
        task = labels.task if labels is not None else like.task if like is not None else options.task
        if task not in {"classification", "regression"}:
            raise ConfigError("--task: without labels, say --task classification or --task regression")
        columns = {p.name: describe(p.table, p.encoder, p.rows) for p in parties}
        return TablePlan(alignment, parties, labels, task, self.report, columns, Path(self.paths[0]).name)

    def fit_tables(self, rows: list[np.ndarray]) -> list[_Party]:
        """One party for each table; a guest that brings labels only is none."""
        columns = [self.features(k) for k in range(len(self.tables))]
        first = int(self.has_guest and not columns[0] and len(columns) > 1)
        names = self._roles()[first:]
        if self.options.names is not None:
            names = parse_names(self.options.names, len(names))
        count = Counter(name for own in columns[first:] for name in own)
        if both := sorted(name for name in count if count[name] > 1):
            listed = ", ".join(both[:5]) + (f" and {len(both) - 5} more" if len(both) > 5 else "")
            self.report.append(
                f"columns that several tables have: {listed}: their features begin with the party's name"
            )
        parties = []
        for k, party in enumerate(names, start=first):
            if not columns[k]:
                raise InputError(f"{self.tables[k].path}: no feature column besides the id and the label")
            shown_as = {name: f"{party}.{name}" for name in columns[k] if count[name] > 1}
            parties.append(self._fit(party, k, columns[k], rows[k], shown_as))
        return parties

    def fit_split(self, columns: str | None, parties: int | None, rows: list[np.ndarray]) -> list[_Party]:
        """The parties between which the columns of one table are split."""
        table, features = self.tables[0], self.features(0)
        if not features:
            raise InputError(f"{table.path}: no feature column besides the label {self.options.label!r}")
        try:
            split = party_columns(columns, parties, self.options.names, features, len(features))
        except InputError as error:
            raise InputError(f"{table.path}: {error}") from None
        own = [table.columns[name] for name in features]
        self.plain &= all(column.kind == "number" and column.full for column in own)
        common = ColumnStatistics() if self.plain and self.options.standardize else None
        if common is not None:
            for block in number_blocks(own):
                add_to(common, block)
        order = np.array(features, dtype=object)
        return [
            self._fit(p.name, 0, order[p.columns].tolist(), rows[0], {}, (p.columns, common)) for p in split
        ]

    def _fit(
        self,
        name: str,
        k: int,  # number of the table
        columns: list[str],
        rows: np.ndarray,
        shown_as: Mapping[str, str],  # what columns are called whose names other tables have, too
        common: tuple[slice | np.ndarray, ColumnStatistics | None] = (slice(None), None),
    ) -> _Party:
        """One party's columns as features; `common`: what they are scaled by, with others."""
        options, described, table = self.options, self.described, self.tables[k]
        na = missing_words(options.na_values)
        if described is not None:
            encoder = described.encoder(table, columns, shown_as)
            encoder = _stated_readings(encoder, table, self.typing, na)
        else:
            encoder = fit_encoder(
                table, columns, rows, missing=options.missing or "refuse", typing=self.typing,
                shown=shown_as, na=na,
            )  # fmt: skip
        statistics = ColumnStatistics() if options.standardize and common[1] is None else None
        # Where nothing is counted or added up, the first look at the rows is when they are written.
        full = all(table.columns[c].full for c in columns)
        looks = statistics is not None or described is not None or not full
        done = _encoded(table, encoder, rows if looks else rows[:0], statistics)
        lines = done.lines(table.path) + (column_notes(table, encoder, rows) if described is None else [])
        self.report += [line for line in lines if line not in self.report]
        kind = "csr" if options.storage == "csr" else "dense"
        own = common if statistics is None else (slice(None), statistics)
        try:
            transform = fit_transform_of(own[0], kind, own[1], options.normalize or "none")
        except InputError as error:
            raise InputError(f"{table.path}: values too large to standardise: {error}") from None
        return _Party(name, encoder, transform, kind, options.dtype or "float64", table, rows)

    def by_party(self, like: Like, rows: list[np.ndarray]) -> list[tuple[_Part, Table, np.ndarray]]:
        """The parties of a partition or model, and the table and rows of each."""
        tables = self.tables
        if self.split:
            tables, rows = tables * len(like.parties), rows * len(like.parties)
        # A guest without features at training brings labels only; it is no party, then or now.
        if self.has_guest and len(tables) == len(like.names) + 1:
            tables, rows = tables[1:], rows[1:]
        if len(tables) != len(like.names):
            raise InputError(
                f"{like.path}: has {len(like.names)} parties ({', '.join(like.names)}), but there are "
                f"{len(tables)} tables: give them in the same order, guest first"
            )
        return list(zip(like.parties, tables, rows))

    def _replay(self, like: Like, rows: list[np.ndarray]) -> list[_Party]:
        """The parties of a partition or model, with these rows."""
        parties = []
        for part, table, own in self.by_party(like, rows):
            done = _encoded(table, part.encoder, own)
            self.report += done.lines(table.path)
            parties.append(_Party(part.name, part.encoder, part.transform, part.kind, part.dtype, table, own))
        return parties

    def _labels(self, name: str, rows: np.ndarray) -> Labels:
        like, options, table = self.like, self.options, self.tables[0]
        task = like.task if like is not None else options.task or "auto"
        labels = labels_of(
            table, name, rows, task, like.classes if like is not None else None,
            positive=options.positive, typing=self.typing,
            reading=like.label_reading if like is not None else CellReading(), report=self.report,
        )  # fmt: skip
        return with_columns(labels, table, rows, **options.beside, typing=self.typing)

    def _refuse_grouped(self, parties: Sequence[_Party], labels: Labels | None) -> None:
        """Refuse doubtful points: what one column of a table shows holds for all, and for the label."""
        for table in self.tables:
            encodings = [column for p in parties if p.table is table for column in p.encoder.columns]
            target, name = labels is not None and labels.task == "regression", self.options.label
            if target and table is self.tables[0] and name is not None:
                reading = recognise(table, name, table.columns[name], self.typing)
                encodings.append(ColumnEncoding(name, reading=str(reading or CellReading())))
            refuse_grouped(table, encodings, self.typing)


def _part(alignment: Alignment, which: np.ndarray) -> Alignment:
    ids = alignment.ids[which]
    return Alignment(ids, row_digest(ids))


def write_plan(
    plan: TablePlan,
    out: str | Path,
    *,
    force: bool = False,
    compression: str = "none",
    progress: Progress | None = None,
) -> Partition:
    """Write a planned partition; with held-out rows a directory of two, and return that of training."""
    from fastadmm.store import open_partition

    how: dict[str, Any] = {"compression": compression, "progress": progress}
    if plan.test is not None:
        with atomic_directory(out, force=force, only=("train.parts", "test.parts")) as folder:
            try:
                write_plan(replace(plan, test=None), folder / "train.parts", **how)
                write_plan(plan.test, folder / "test.parts", **how)
            except FastadmmError as error:
                error.args = (str(error).replace(shown(folder), shown(out)),)
                raise
        return open_partition(Path(out) / "train.parts", require_labels=False)
    parties = [
        {key: getattr(party, key) for key in ("name", "kind", "dtype", "transform")}
        | {"feature_names": party.encoder.feature_names, "encoder": None if plan.plain else party.encoder}
        for party in plan.parties
    ]
    return write_partition(
        out, parties, _blocks(plan, progress), plan.labels, task=plan.task,
        ids=None if plan.plain else plan.alignment.ids,
        source=plan.source, force=force, compression=compression,
    )  # fmt: skip


def _blocks(plan: TablePlan, progress: Progress | None) -> Generator[list[Piece], None, None]:
    """Rows of one party after another, encoded a piece at a time."""
    widths = [len(party.encoder.feature_names) for party in plan.parties]
    cells = len(plan.alignment.ids) * sum(widths)
    step = Steps(progress, "writing", cells)
    for number, (party, width) in enumerate(zip(plan.parties, widths)):
        start = 0
        for part in pieces(party.rows, 2 * width):  # half as large: three are in memory at once
            X, _ = encode_table(party.table, party.encoder, part)
            yield [(number, start, stored(X, party.kind, party.transform))]
            start += len(part)
            step(len(part) * width)


def _check_options(guest: str | Path | None, hosts: Sequence[str | Path], options: TableOptions) -> None:
    compression_options(options.compression)
    if guest is None and not hosts:
        raise ConfigError("--guest and --host: give the table of at least one party")
    if guest is None and options.label is not None:
        raise ConfigError("--label: labels belong to the guest: give its table with --guest")
    if options.public_columns is not None:
        for option in given_options(options, "missing", "categorical", "standardize", "like"):
            raise ConfigError(
                f"{option} and --public-columns: the description says how columns are prepared; leave one out"
            )
    if options.split is not None:
        HoldOut.parse(options.split)
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


#: Options that ``--like`` decides.
_FIXED = (
    "names", "categorical", "types", "na_values", "decimal", "missing", "standardize",
    "normalize", "dtype", "task", "positive", "split", "storage",
)  # fmt: skip


def refuse_fixed(options: object, what: str, *more: str) -> None:
    """Refuse options that ``--like`` decides."""
    for option in given_options(options, *_FIXED, *more):
        raise ConfigError(f"{option} and --like: {what} given by --like decides; leave {option} out")


def kept_cells(encoders: Sequence[Encoder], id: str | None) -> Cells:
    """What cells of a new table are kept as, for encoders that were fitted before."""
    columns = [column for encoder in encoders for column in encoder.columns]
    text = {column.name for column in columns if column.levels is not None}
    raw = {column.name for column in columns if column.reading}
    quoted = {column.name for column in columns if any(map(in_quotes, column.levels or ()))}
    return Cells(text, raw, na={c.name: c.na for c in columns if c.na}, id=id, quoted=quoted)


def _encoded(
    table: Table,
    encoder: Encoder,
    rows: np.ndarray,
    statistics: ColumnStatistics | None = None,
) -> EncodingReport:
    """What is found when all rows are encoded; statistics add up fixed pieces in their order."""
    report = EncodingReport()
    for part in pieces(rows, len(encoder.feature_names)) if len(rows) else [rows]:
        X, found = encode_table(table, encoder, part)
        report.add(found)
        if statistics is not None:
            add_to(statistics, X)
    return report


def _stated_readings(
    encoder: Encoder, table: Table, typing: Typing, na: dict[str, tuple[str, ...]]
) -> Encoder:
    """A described encoder with the readings that options state; none is recognised from rows."""
    columns = []
    for encoding in encoder.columns:
        name = encoding.name
        words = tuple(dict.fromkeys([*na.get("", ()), *na.get(name, ())]))
        reading = CellReading()
        if encoding.levels is None and (typing.stated or name in typing.kinds):
            reading = recognise(table, name, table.columns[name], typing) or reading
        if reading.from_rows:
            raise ConfigError(
                f"{table.path}: column {name!r}: beside --public-columns, options state how numbers are "
                "written: give --decimal, or the format of a date, such as --types joined=days:%Y-%m-%d"
            )
        columns.append(replace(encoding, na=words, reading=str(reading)))
    return replace(encoder, columns=tuple(columns))
