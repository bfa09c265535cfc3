"""Convert data files to owners of rows: by sizes, by a column's value, or one file each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from fastadmm.data_tools.blocks import (
    Block,
    Progress,
    Scan,
    Steps,
    stored,
    stored_kind,
    widened,
)
from fastadmm.data_tools.columns import is_number, nearest
from fastadmm.data_tools.convert import open_matrix
from fastadmm.data_tools.label_columns import label_text, require_label
from fastadmm.data_tools.matrices import BLOCK_VALUES, LibsvmSource, NpzSource
from fastadmm.data_tools.opening import OnRead, SourceFile, format_of
from fastadmm.data_tools.per_table import TableOptions, check_columns, check_format_options, given_options
from fastadmm.data_tools.tables import read_table
from fastadmm.errors import ConfigError, InputError
from fastadmm.files.atomic import atomic_directory, shown
from fastadmm.store.block_file import first_not_finite, first_twice
from fastadmm.store.owner_file import DIGEST_BYTES, record_digests
from fastadmm.store.transform import Transform

if TYPE_CHECKING:
    from fastadmm.store.owner_file import Owners


class CsvSource:
    """A CSV or Parquet table with one label column; every other column is a numeric feature or left out."""

    kind = "dense"

    def __init__(
        self, path: str | Path, options: TableOptions, beside: str | None = None, **how: Any
    ) -> None:
        self.table = table = read_table(path, options.layout, drop=options.drop, **how)
        self.path, self.columns = table.path, table.names
        check_columns("--drop", options.drop, table.every, table.path)
        self.label = require_label(self.path, table.names, options.label)
        self.feature_names: list[str] | None = [n for n in table.names if n not in (self.label, beside)]
        if not self.feature_names:
            raise InputError(f"{self.path}: no feature column besides the label {self.label!r}")
        self.n_features: int | None = len(self.feature_names)
        every, known = np.arange(table.n_rows), {self.label: "label", beside: "owner"}
        for name, column in table.columns.items():
            if name in known:
                table.refuse_missing(name, every, known[name])
                continue
            if words := [word for word in column.words if word and not is_number(word)]:
                problem = f"{words[0][:40]!r} is not a number: correct it, or --drop the column"
                raise table.refused(name, problem, column.first_row(words[0]))
            table.refuse_missing(name, every, "value", "fill it in, or --drop the column")

    def texts(self, name: str, rows: slice = slice(None)) -> np.ndarray:
        """Labels, or names of owners, of some rows: numbers, or texts where not all are.

        Shapes: the result (k,).
        """
        column = self.table.columns[name]
        values = column.values[rows]
        return values if column.kind == "number" else np.array(column.words, dtype=object)[values]

    def blocks(self, on_read: OnRead | None = None) -> Iterator[Block]:
        """Stream the rows."""
        columns = [self.table.columns[name] for name in self.feature_names or ()]
        step = max(1, BLOCK_VALUES // len(columns))
        for start in range(0, self.table.n_rows, step):
            rows = slice(start, start + step)
            X = np.stack([column.values[rows] for column in columns], axis=1)
            yield Block(X, self.texts(self.label, rows))


_Reader = CsvSource | LibsvmSource | NpzSource


@dataclass(frozen=True)
class OwnerOptions(TableOptions):
    """How files are read, who gets which rows, and how these are stored; `names` are those of the owners."""

    sizes: Sequence[int] | None = None
    by: str | None = None  # column (CSV) or array (NPZ) that names owners
    overlap: str = "refuse"

    def open(self, path: str | Path, scratch: Path | None = None, on_read: OnRead | None = None) -> _Reader:
        """A reader of one file, without the column that names owners."""
        file = SourceFile(path)
        kind = format_of(file, self.format)
        check_format_options(kind, self, f"{file.shown}: ")
        if kind not in ("csv", "parquet"):
            return open_matrix(kind, [file], self, self.features, scratch)
        return CsvSource(path, self, self.by, scratch=scratch, on_read=on_read)


def convert_owners(
    sources: Sequence[str | Path],
    out: str | Path,
    *,
    force: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Owners:
    """Write one file per owner."""
    import tomli_w
    from fastadmm.files.seal import seal_of
    from fastadmm.store.owner_file import FORMAT, MANIFEST, VERSIONS, OwnerWriter, open_owners

    asked = OwnerOptions(**options)
    _check_options(sources, asked)
    size = sum(Path(path).stat().st_size for path in sources if Path(path).is_file())
    on_read = Steps(progress, "reading", size)
    readers = [asked.open(path, Path(out).absolute().parent, on_read) for path in sources]
    first = readers[0]
    values = None if asked.by is None else _owner_texts(first, asked.by)
    for reader in readers[1:]:
        _check_features(reader, first)
    records = list[bytes]()  # digests of rows with their labels

    def look(block: Block) -> None:
        records.extend(record_digests(block.X, [label_text(label) for label in block.labels]))

    scan = Scan(readers, on_read, look=look)
    owner_of, owners = _assign(scan, sources, asked, values)
    kappa = _overlap(records, owner_of, owners, asked.overlap, first.path)
    kind = stored_kind(asked.storage, first.kind, int(scan.nonzeros.sum()), scan.n_rows * scan.width)
    labels, dtype = scan.labels.finish(asked.task or "auto", ask=False), asked.dtype or "float64"
    y, classes = labels.y, labels.classes
    if classes is not None:
        if len(classes) != 2:
            raise InputError(
                f"{first.path}: {len(classes)} classes, but exactly two are supported for owners of "
                "rows: keep the rows of two classes, or merge classes into two"
            )
        y = np.where(y > 0.5, 1.0, -1.0)
    how: dict[str, Any] = {"kind": kind, "dtype": dtype, "task": labels.task, "classes": classes}
    names = first.feature_names or [f"f{i + 1}" for i in range(scan.width)]
    how |= {"feature_names": names}

    with atomic_directory(out, force=force, marker=MANIFEST, only=(MANIFEST, "*.h5")) as directory:
        with ExitStack() as stack:
            writers = [
                stack.enter_context(
                    OwnerWriter(directory / file, name=name, public_path=Path(out) / file, **how)
                )
                for name, file in ((name, f"{name}.h5") for name in owners)
            ]
            told, row = Steps(progress, "writing", size), 0
            for block in chain.from_iterable(reader.blocks(told) for reader in readers):
                X = stored(widened(block.X, scan.width), kind, Transform())
                with np.errstate(over="ignore"):
                    X = X.astype(dtype, copy=False)
                if bad := first_not_finite(X):
                    at = row + bad[0] + 1
                    raise InputError(f"{first.path}: row {at}: a value is too large for {dtype}")
                own = slice(row, row + X.shape[0])
                for k in np.unique(owner_of[own]):
                    mask = owner_of[own] == k
                    writers[k].append(X[mask], y[own][mask])
                row = own.stop
        manifest = {"format": FORMAT, "version": VERSIONS[0], "owners": owners, "kappa": kappa}
        manifest["digest"] = seal_of(manifest)
        (directory / MANIFEST).write_text(tomli_w.dumps(manifest), encoding="utf-8")
    return open_owners(out)


# --- checks ------------------------------------------------------------------------------------------------


def _check_options(sources: Sequence[str | Path], asked: OwnerOptions) -> None:
    sizes, by = asked.sizes, asked.by
    if not sources:
        raise ConfigError("no source file: give one to divide, or one per owner")
    names = ("id", "alignment", "guest", "hosts", "source", "columns", "parties", "like", "normalize")
    if others := [*asked.by_column, *given_options(asked, *names, "standardize", "positive")]:
        raise ConfigError(f"{others[0]}: is not for owners of rows")
    if len(sources) > 1 and (sizes is not None or by is not None):
        raise ConfigError(
            "--sizes and --by divide one file; several files are one owner each: leave them out"
        )
    if len(sources) == 1 and (sizes is None) == (by is None):
        raise ConfigError("how are rows given to owners? pass --sizes or --by, or one file per owner")
    if sizes is not None and (not sizes or min(sizes) < 1):
        raise InputError(f"--sizes {','.join(map(str, sizes))}: every owner needs at least one row")


def _owner_texts(reader: _Reader, by: str) -> list[str]:
    """Each row's owner, by a column (CSV) or an array (NPZ)."""
    if isinstance(reader, LibsvmSource):
        raise ConfigError(f"--by {by!r}: LIBSVM files have no column for it; use --sizes or one file each")
    noun = "column" if isinstance(reader, CsvSource) else "array"
    if by not in reader.columns:
        raise InputError(f"{reader.path}: --by: no {noun} {by!r}{nearest(by, reader.columns)}")
    if by == reader.label:
        raise InputError(f"{reader.path}: --by {by!r}: this {noun} holds the labels; owners need their own")
    return [label_text(value) for value in reader.texts(by)]


def _check_features(reader: _Reader, first: _Reader) -> None:
    own, others = reader.feature_names or (), first.feature_names or ()
    if own != others:
        missing = sorted(set(own) ^ set(others))
        what = f"{missing[0]!r} is in only one of them" if missing else "their order differs"
        raise InputError(f"{reader.path}: features differ from those of {first.path}: {what}")
    if None not in (first.n_features, reader.n_features) and first.n_features != reader.n_features:
        raise InputError(
            f"{reader.path}: {reader.n_features} features, but {first.n_features} in {first.path}"
        )


# --- who gets which row -------------------------------------------------------------------------------------


def _assign(
    scan: Scan, sources: Sequence[str | Path], asked: OwnerOptions, texts: list[str] | None
) -> tuple[np.ndarray, list[str]]:
    """The owner's number of every row, and the owners' names."""
    sizes = asked.sizes
    if sizes is not None:
        if scan.n_rows != sum(sizes):
            told = f"--sizes add up to {sum(sizes)}, but there are {scan.n_rows} rows"
            raise InputError(f"{shown(sources[0])}: {told}: cut the file, or add an owner for the rest")
        owner_of = np.repeat(np.arange(len(sizes)), sizes)
        default = [f"owner-{k + 1}" for k in range(len(sizes))]
    elif texts is not None:
        values = sorted(
            set(texts), key=lambda text: (not is_number(text), float(text) if is_number(text) else 0.0, text)
        )
        place = {value: k for k, value in enumerate(values)}
        owner_of = np.array([place[text] for text in texts], dtype=np.int64)
        default = [_file_name(value) for value in values]
    else:
        owner_of = np.repeat(np.arange(len(sources)), scan.rows)
        default = [_file_name(Path(path).name.split(".")[0]) for path in sources]
    chosen = default if asked.names is None else [name.strip() for name in asked.names.split(",")]
    if len(chosen) != len(default):
        raise ConfigError(f"--names: {len(chosen)} names for {len(default)} owners")
    if (twice := first_twice(chosen, str.casefold)) is not None:
        raise InputError(f"two owners are named {twice!r}; give different --names")
    return owner_of, chosen


def _file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:64] or "owner"


def _overlap(
    digests: list[bytes], owner_of: np.ndarray, names: Sequence[str], overlap: str, path: str
) -> int:
    """Most owners that share one record (kappa)."""
    records = np.frombuffer(b"".join(digests), dtype=f"V{DIGEST_BYTES}")
    _, inverse = np.unique(records, return_inverse=True)
    holders = np.bincount(np.unique(np.stack([inverse, owner_of]), axis=1)[0])
    kappa = int(holders.max())
    if kappa > 1 and overlap == "refuse":
        rows = np.flatnonzero(inverse == inverse[np.argmax(holders[inverse] > 1)])  # of the first such record
        first = rows[0]
        other = next(row for row in rows if owner_of[row] != owner_of[first])
        raise InputError(
            f"{path}: {int(np.count_nonzero(holders > 1))} records are with several owners; rows {first + 1} "
            f"({names[owner_of[first]]}) and {other + 1} ({names[owner_of[other]]}) are equal: remove them, "
            f"or pass --set overlap=count, which divides every epsilon by {kappa}"
        )
    return kappa
