"""Convert data files to owners of rows: by sizes, by a column's value, or one file each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from fastadmm.data_tools.blocks import (
    Block,
    OnRead,
    Progress,
    Source,
    Steps,
    stored_kind,
)
from fastadmm.data_tools.convert import check_format_options
from fastadmm.data_tools.labels import label_text
from fastadmm.data_tools.npz import NpzSource
from fastadmm.data_tools.opening import SourceFile, format_of
from fastadmm.data_tools.scaling import ColumnStatistics
from fastadmm.data_tools.sources import CsvSource, Scan, add_to, open_matrix, stored, widened
from fastadmm.data_tools.suggest import nearest
from fastadmm.data_tools.tables import Layout
from fastadmm.errors import ConfigError, InputError
from fastadmm.files.atomic import atomic_directory, shown
from fastadmm.store.block_file import first_not_finite
from fastadmm.store.owner_file import DIGEST_BYTES, record_digests, shared_rows
from fastadmm.store.transform import Transform

if TYPE_CHECKING:
    from fastadmm.store.owner_file import Owners


@dataclass(frozen=True)
class Reading:
    """How source files are read; the same for all owners and for a public file."""

    format: str = "auto"
    label: str | None = None  # label column (CSV)
    drop: Sequence[str] = ()  # CSV columns to leave out
    header: bool = True
    separator: str | None = None
    features: int | None = None  # number of features of LIBSVM files
    zero_based: bool = False
    x_key: str | None = None  # arrays of an NPZ file
    y_key: str | None = None  # arrays of an NPZ file

    def open(
        self,
        path: str | Path,
        *,
        by: str | None = None,
        scratch: Path | None = None,
        on_read: OnRead | None = None,
    ) -> Source:
        """A reader of one file; `by` is the column that names owners, which is no feature."""
        file = SourceFile(path)
        kind = format_of(file, self.format)
        kind = "csv" if kind == "parquet" else kind
        check_format_options(kind, self, f"{file.shown}: ")
        if kind != "csv":
            return open_matrix(kind, [file], file.shown, self, self.features, scratch)
        return CsvSource(
            path, Layout(self.separator, header=self.header), label=self.label, drop=self.drop, beside=by,
            scratch=scratch, on_read=on_read,
        )  # fmt: skip

    def check_by(self, reader: Source, by: str) -> None:
        """Refuse a column (CSV) or array (NPZ) of owners that is not there, or holds the labels."""
        if isinstance(reader, CsvSource):
            noun, label, names = "column", self.label, reader.columns
        elif isinstance(reader, NpzSource):
            noun, label, names = "array", reader.y_key, reader.keys
        else:
            raise ConfigError(
                f"--by {by!r}: LIBSVM files have no column for it; use --sizes or one file each"
            )
        if by not in names:
            raise InputError(f"{reader.path}: --by: no {noun} {by!r}{nearest(by, names)}")
        if by == label:
            raise InputError(
                f"{reader.path}: --by {by!r}: this {noun} holds the labels; owners need their own"
            )

    def owners_of(self, reader: Source, column: str) -> Iterator[Any]:
        """What a column (CSV) or array (NPZ) of a source says of each row."""
        if isinstance(reader, CsvSource):
            return iter(reader.texts(column, np.arange(reader.table.n_rows)))
        file = SourceFile(reader.path)
        return chain.from_iterable(b.labels for b in NpzSource(file, x_key=self.x_key, y_key=column).blocks())


@dataclass(frozen=True)
class _Asked:
    """Who gets which rows, and how these are stored."""

    sizes: Sequence[int] | None = None
    drop_rest: bool = False
    by: str | None = None
    names: Sequence[str] | None = None
    reading: Reading = field(default_factory=Reading)
    task: str = "auto"
    overlap: str = "refuse"
    public: str | Path | None = None
    standardize: bool = False
    storage: str = "auto"
    dtype: str = "float64"


@dataclass
class _Digests:
    """Digests of all records, with their labels; and of their features alone, where these are compared."""

    compare: bool
    records: list[bytes] = field(default_factory=list)
    features: list[bytes] = field(default_factory=list)

    def look(self, block: Block) -> None:
        """Add the records of a block."""
        self.records += record_digests(block.X, [label_text(label) for label in block.labels])
        if self.compare:
            self.features += record_digests(block.X)


def convert_owners(
    sources: Sequence[str | Path],
    out: str | Path,
    *,
    force: bool = False,
    progress: Progress | None = None,
    **options: Any,
) -> Owners:
    """Write one file per owner."""
    from fastadmm.store.owner_file import MANIFEST, OwnerWriter, open_owners

    asked = _Asked(**options)
    reading, dtype = asked.reading, asked.dtype
    _check_options(sources, asked)
    beside = Path(out).absolute().parent
    size = sum(Path(path).stat().st_size for path in sources if Path(path).is_file())
    on_read = Steps(progress, "reading", size)
    readers = [reading.open(path, by=asked.by, scratch=beside, on_read=on_read) for path in sources]
    if asked.by is not None:
        reading.check_by(readers[0], asked.by)
    _check_features(readers)
    digests = _Digests(asked.public is not None)
    scan = Scan(readers, on_read, look=digests.look)
    owner_of, owner_names = _assign(scan, readers[0], sources, asked)
    kappa, repeated = _overlap(digests.records, owner_of, owner_names, asked.overlap, readers[0].path)
    owned = [digest for digest, own in zip(digests.features, (owner_of >= 0).tolist()) if own]
    recipe, shared = _recipe(asked, readers[0], scan.width, owned)
    kind = "dense"
    if "center" not in recipe:
        filled = int(scan.nonzeros.sum())
        kind = stored_kind(asked.storage, readers[0].kind, filled, scan.n_rows * scan.width)
    transform = Transform(center=recipe.get("center"), scale=recipe.get("scale"))
    task, classes, y = _targets(scan, asked.task, readers[0].path)
    names = readers[0].feature_names or [f"f{i + 1}" for i in range(scan.width)]

    with atomic_directory(out, force=force, marker=MANIFEST, only=(MANIFEST, "*.h5")) as directory:
        with ExitStack() as stack:
            how: dict[str, Any] = {"feature_names": names, "kind": kind, "dtype": dtype}
            how |= {"task": task, "classes": classes, "recipe": recipe}
            writers = [
                stack.enter_context(
                    OwnerWriter(directory / file, name=name, public_path=Path(out) / file, **how)
                )
                for name, file in ((name, f"{name}.h5") for name in owner_names)
            ]
            told = Steps(progress, "writing", size)
            row = 0
            for block in chain.from_iterable(reader.blocks(told) for reader in readers):
                X = stored(widened(block.X, scan.width), kind, transform)
                with np.errstate(over="ignore"):
                    X = X.astype(dtype, copy=False)
                if bad := first_not_finite(X):
                    raise InputError(
                        f"{readers[0].path}: row {row + bad[0] + 1}: a value is too large for {dtype}"
                    )
                code = owner_of[row : row + X.shape[0]]
                for k in np.unique(code[code >= 0]):
                    mask = code == k
                    writers[k].append(X[mask], y[row : row + X.shape[0]][mask])
                row += X.shape[0]
        files = [Path(path).name for path in sources]
        _write_manifest(
            directory, {} if shared is None else {"public_share": shared},
            owners=owner_names, kappa=kappa, repeated_records=repeated, sources=files,
        )  # fmt: skip
    return open_owners(out)


def _targets(scan: Scan, task: str, path: str) -> tuple[str, tuple[str, str] | None, np.ndarray]:
    """The task, the two classes, and each row's target, which is -1 or 1 for a class.

    Shapes: the targets (N,).
    """
    labels = scan.labels.finish(task, ask=False)
    if labels.classes is None:
        return labels.task, None, labels.y
    if len(labels.classes) != 2:
        raise InputError(
            f"{path}: {len(labels.classes)} classes, but exactly two are supported for owners of "
            "rows: keep the rows of two classes, or merge classes into two"
        )
    return labels.task, (labels.classes[0], labels.classes[1]), np.where(labels.y > 0.5, 1.0, -1.0)


def _write_manifest(directory: Path, later: dict[str, float], **values: Any) -> None:
    """Write what is said of all owners together; `later` is what version 1.1 says besides."""
    import tomli_w
    from fastadmm.files.seal import seal_of
    from fastadmm.store.owner_file import FORMAT, MANIFEST, VERSIONS

    manifest = {"format": FORMAT, "version": VERSIONS[bool(later)], **values, **later}
    manifest["digest"] = seal_of(manifest)
    (directory / MANIFEST).write_text(tomli_w.dumps(manifest), encoding="utf-8")


# --- options -----------------------------------------------------------------------------------------------


def _check_options(sources: Sequence[str | Path], asked: _Asked) -> None:
    sizes, by = asked.sizes, asked.by
    if not sources:
        raise ConfigError("no source file: give one to divide, or one per owner")
    if len(sources) > 1 and (sizes is not None or by is not None):
        raise ConfigError(
            "--sizes and --by divide one file; several files are one owner each: leave them out"
        )
    if len(sources) == 1 and (sizes is None) == (by is None):
        raise ConfigError("how are rows given to owners? pass --sizes or --by, or one file per owner")
    if sizes is not None and (not sizes or min(sizes) < 1):
        raise InputError(f"--sizes {','.join(map(str, sizes))}: every owner needs at least one row")
    if asked.standardize and asked.public is None:
        raise ConfigError(
            "--standardize must come from public data, since statistics of the owners' own rows would give "
            "them away: pass --public FILE"
        )
    if asked.public is not None and not asked.standardize:
        raise ConfigError("--public: is for --standardize, which is not given")


def _check_features(readers: Sequence[Source]) -> None:
    first = readers[0]
    for reader in readers[1:]:
        if reader.feature_names != first.feature_names:
            missing = sorted(set(first.feature_names or ()) ^ set(reader.feature_names or ()))
            what = f"{missing[0]!r} is in only one of them" if missing else "their order differs"
            raise InputError(f"{reader.path}: features differ from those of {first.path}: {what}")
        if None not in (first.n_features, reader.n_features) and first.n_features != reader.n_features:
            raise InputError(
                f"{reader.path}: {reader.n_features} features, but {first.n_features} in {first.path}"
            )


# --- who gets which row -------------------------------------------------------------------------------------


def _assign(
    scan: Scan, reader: Source, sources: Sequence[str | Path], asked: _Asked
) -> tuple[np.ndarray, list[str]]:
    """The owner's number of every row (-1: nobody's) and the owners' names."""
    n_rows, sizes, by = scan.n_rows, asked.sizes, asked.by
    if sizes is not None:
        rest = n_rows - sum(sizes)
        if rest < 0 or (rest > 0 and not asked.drop_rest):
            remedy = ": add an owner for the rest, or pass --set drop_rest=true" if rest > 0 else ""
            told = f"--sizes add up to {sum(sizes)}, but there are {n_rows} rows"
            raise InputError(f"{shown(sources[0])}: {told}{remedy}")
        owner_of = np.concatenate([np.repeat(np.arange(len(sizes)), sizes), np.full(rest, -1)])
        default = [f"owner-{k + 1}" for k in range(len(sizes))]
    elif by is not None:
        texts = [label_text(value) for value in asked.reading.owners_of(reader, by)]
        values = sorted(set(texts), key=_by_number)
        place = {value: k for k, value in enumerate(values)}
        owner_of = np.array([place[text] for text in texts], dtype=np.int64)
        default = [_file_name(value) for value in values]
    else:
        owner_of = np.repeat(np.arange(len(sources)), scan.rows)
        default = [_file_name(Path(path).name.split(".")[0]) for path in sources]
    chosen = list(asked.names) if asked.names is not None else default
    if len(chosen) != len(default):
        raise ConfigError(f"--names: {len(chosen)} names for {len(default)} owners")
    folded = [name.casefold() for name in chosen]
    if twice := [name for name in chosen if folded.count(name.casefold()) > 1]:
        raise InputError(f"two owners are named {twice[-1]!r}; give different --names")
    return owner_of, chosen


def _by_number(text: str) -> tuple[int, float, str]:
    try:
        return 0, float(text), text
    except ValueError:
        return 1, 0.0, text


def _file_name(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._")[:64] or "owner"


def _overlap(
    digests: list[bytes], owner_of: np.ndarray, names: Sequence[str], overlap: str, path: str
) -> tuple[int, int]:
    """Most owners that share one record (kappa), and the number of records that occur more than once."""
    kept = np.flatnonzero(owner_of >= 0)
    records = np.frombuffer(b"".join(digests), dtype=f"V{DIGEST_BYTES}")
    _, inverse, counts = np.unique(records[kept], return_inverse=True, return_counts=True)
    repeated = int(np.count_nonzero(counts > 1))
    pairs = np.unique(np.stack([inverse, owner_of[kept]]), axis=1)
    holders = np.bincount(pairs[0])
    kappa = int(holders.max())
    if kappa > 1 and overlap == "refuse":
        shared = inverse[np.argmax(holders[inverse] > 1)]  # of the first such row
        rows = kept[inverse == shared]
        first = rows[0]
        other = next(row for row in rows if owner_of[row] != owner_of[first])
        raise InputError(
            f"{path}: {int(np.count_nonzero(holders > 1))} records are with several owners; rows {first + 1} "
            f"({names[owner_of[first]]}) and {other + 1} ({names[owner_of[other]]}) are equal: remove them, "
            f"or pass --set overlap=count, which divides every epsilon by {kappa}"
        )
    return kappa, repeated


# --- scaling, from public data -----------------------------------------------------------------------------


def _recipe(
    asked: _Asked, like: Source, n_features: int, owned: list[bytes]
) -> tuple[dict[str, np.ndarray], float | None]:
    """What is taken from a public file, and the share of rows that it and the owners have in common."""
    public, by, reading = asked.public, asked.by, asked.reading
    if public is None:
        return {}, None
    reader = reading.open(public, by=by)  # a public file need not name owners
    if reader.feature_names != like.feature_names:
        unknown = sorted(set(like.feature_names or ()) - set(reader.feature_names or ()))
        hint = nearest(unknown[0], reader.feature_names or []) if unknown else ""
        raise InputError(f"{reader.path}: features differ from those of {like.path}{hint}")
    statistics = ColumnStatistics()
    rows: list[bytes] = []
    for block in reader.blocks():
        rows += record_digests(block.X)
        add_to(statistics, block.X)
    shared, reason = shared_rows(rows, owned)
    if reason:
        raise InputError(
            f"{reader.path}: {reason}, so it is not public: its statistics would give the owners' rows away; "
            "pass --public with rows of other people"
        )
    if statistics.n_features > n_features:
        raise InputError(f"{reader.path}: {statistics.n_features} features instead of {n_features}")
    statistics.widen(n_features)
    deviation = statistics.scale()
    if not np.isfinite(deviation).all():
        worst = int(np.flatnonzero(~np.isfinite(deviation))[0])
        raise InputError(f"{reader.path}: feature {worst + 1}: values too large to standardise")
    # A centre would fill sparse rows.
    center = {} if like.kind == "csr" else {"center": statistics.center()}
    return center | {"scale": deviation}, shared
