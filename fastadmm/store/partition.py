"""A partition: one directory with a file per party, the label file and ``partition.toml``.

One that older versions cut by rows is a directory of such directories, with ``shards.toml``.
"""

from __future__ import annotations

import atexit
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory, gettempdir
from threading import Lock
from typing import Any

from fastadmm.errors import FormatError, InputError, StorageError
from fastadmm.files.atomic import atomic_directory, shown, storage_errors
from fastadmm.files.reading import read_toml
from fastadmm.files.seal import POSITIVE, check_seal, check_table, get_key, seal_of
from fastadmm.store.h5file import check_version
from fastadmm.store.label_file import TASKS, LabelData, LabelWriter, open_labels, write_columns
from fastadmm.store.party_file import PartyData, PartyWriter, check_party_name, open_party

MANIFEST, SHARDS = "partition.toml", "shards.toml"
FORMAT, SHARDS_FORMAT = "fastadmm-partition", "fastadmm-shards"
#: 1.1: with a table ``shard``, of older versions of this program; others are written as 1.0.
VERSIONS = ("1.0", "1.1")
SHARDS_VERSIONS = ("1.0",)
LABELS_FILE = "labels.h5"
_HEAD = {"format": str, "version": str, "n_samples": POSITIVE, "row_digest": str, "digest?": str}
_SHARD: dict[str, Any] = dict.fromkeys(("number", "of", "first_row", "all_rows"), int)
_SHARD |= {"row_digest": str, "content_digests": list}
_TABLES = {"party": list, "labels?": {"file": str}, "source?": {"name": str}, "shard?": _SHARD}
_PARTY = {"name": str, "file": str, "n_features": POSITIVE, "kind": ("dense", "csr")}
_MAKE = "make one with 'fastadmm convert'"
_RESTORE = "restore it; after an edit of your own, take out the line 'digest'"


@dataclass(frozen=True)
class Shard:
    """Which rows of which whole a partition has."""

    number: int  # number of the shard, from 1, and how many there are
    of: int  # number of the shard, from 1, and how many there are
    first_row: int  # of the whole, from 0
    all_rows: int  # rows of the whole
    row_digest: str  # of the whole's row ids
    content_digests: list[str]  # of the whole's blocks, in the order of the parties

    @property
    def whole(self) -> tuple[Any, ...]:
        """What all shards of one whole, cut alike, say of it."""
        return self.of, self.all_rows, self.row_digest, self.content_digests


def shard_name(number: int, of: int) -> str:
    """Folder of a shard: ``shard-01`` to ``shard-16``."""
    return f"shard-{number:0{len(str(of))}d}"


def check_shards(shards: Sequence[tuple[str, Shard, int]]) -> None:
    """Refuse shards that are not one whole."""
    row, before, first = 0, "", shards[0]
    for name, shard, rows in shards:
        if shard.whole != first[1].whole:
            raise InputError(f"{name}: a shard of other data than {first[0]}, or cut otherwise; restore it")
        if shard.first_row != row:
            what = "overlap" if shard.first_row < row else "leave rows out"
            raise InputError(
                f"{name}: begins with row {shard.first_row + 1}, but row {row + 1} comes next{before}: the "
                f"shards {what}; give each of the {shard.of} shards once, in their order"
            )
        row, before = row + rows, f" after {name}"
    if row != first[1].all_rows:
        raise InputError(
            f"{shards[-1][0]}: the last of {len(shards)} shards, but the whole has {first[1].all_rows} rows, "
            f"not {row}: the shards leave rows out; give all {first[1].of}"
        )


def _write_manifest(
    directory: Path,
    n_samples: int,
    digest: str,
    task: str,
    parties: Iterable[Any],
    has_labels: bool,
    source: str | None,
) -> None:
    """Write ``partition.toml``; parties have a name, a number of columns and a kind."""
    import tomli_w

    entries = [
        {"name": p.name, "file": f"{p.name}.h5", "n_features": p.n_features, "kind": p.kind} for p in parties
    ]
    head = {"format": FORMAT, "version": VERSIONS[0], "n_samples": n_samples, "row_digest": digest}
    head["task"] = task
    tables: dict[str, Any] = {"labels": {"file": LABELS_FILE}} if has_labels else {}
    if source is not None:
        tables["source"] = {"name": source}
    head["digest"] = seal_of({**head, "party": entries, **tables})
    texts = [tomli_w.dumps(head), *("[[party]]\n" + tomli_w.dumps(entry) for entry in entries)]
    texts += [tomli_w.dumps({name: table}) for name, table in tables.items()]
    (directory / MANIFEST).write_text("\n".join(texts), encoding="utf-8")


def _open(file: Path, format: str, versions: tuple[str, ...], more: dict[str, Any]) -> dict[str, Any]:
    """Read a manifest of some format."""
    document, place = read_toml(file), shown(file)
    found = get_key(document, "format", str, place)
    if found != format:
        raise FormatError(f"{place}: key 'format': {found!r} instead of {format!r}")
    check_version(place, get_key(document, "version", str, place), versions, "key 'version'")
    check_table(document, _HEAD | more, place)
    return document


def _read_manifest(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read and check ``partition.toml`` without opening the files it names."""
    directory = Path(path)
    with storage_errors(path, "read"):
        if not directory.exists():
            share = str(path).removesuffix("%").replace(".", "", 1).isdecimal()
            how = "a share of rows is held out by --set validation=0.2" if share else _MAKE
            raise StorageError(f"{shown(path)}: no such directory; {how}")
        if not directory.is_dir() or not (directory / MANIFEST).exists():
            what = f"no {MANIFEST} in it" if directory.is_dir() else "a file"
            raise FormatError(f"{shown(path)}: {what}, so not a partition, which is a directory; {_MAKE}")
    manifest = _open(directory / MANIFEST, FORMAT, VERSIONS, {"task": TASKS, **_TABLES})
    place = shown(directory / MANIFEST)
    if not manifest["party"]:
        raise FormatError(f"{place}: key 'party': empty; a partition needs at least one party")
    names: set[str] = set()
    files: set[str] = set()
    for i, party in enumerate(manifest["party"], start=1):
        where = f"{place}: [[party]] number {i}"
        if not isinstance(party, dict):
            raise FormatError(f"{where}: key 'party': not a table")
        check_table(party, _PARTY, where)
        name = check_party_name(party["name"], f"{where}: key 'name'", FormatError)
        if name.casefold() in names:
            raise FormatError(f"{where}: key 'name': {name!r} occurs twice; each party needs its own name")
        names.add(name.casefold())
        _check_file_name(party["file"], where, files)
    if "labels" in manifest:
        _check_file_name(manifest["labels"]["file"], f"{place}: [labels]", files)
    if "shard" in manifest:
        digests = manifest["shard"]["content_digests"]
        if [str] * len(manifest["party"]) != list(map(type, digests)):
            raise FormatError(f"{place}: [shard]: key 'content_digests': not one digest for each party")
    check_seal(manifest, manifest.pop("digest", None), place, _RESTORE)
    return manifest


def _check_file_name(name: str, place: str, files: set[str]) -> None:
    # Only names inside the directory: a manifest from elsewhere must not reach other files.
    if name in {"", ".", ".."} or "/" in name or "\\" in name or "\0" in name:
        raise FormatError(f"{place}: key 'file': {name!r} is not a plain file name inside the partition")
    if name in files:
        raise FormatError(f"{place}: key 'file': {name!r} is listed twice; each party has its own file")
    files.add(name)


@dataclass(frozen=True, eq=False)
class Partition:
    """A checked partition. Made by :func:`open_partition`."""

    path: Path  # the directory
    n_samples: int  # N, equal in all files
    parties: list[PartyData]  # in the order of ``partition.toml``
    labels: LabelData | None  # none where the partition has none
    row_digest: str  # equal in all files
    task: str  # what the labels are (or would be)
    source: str | None  # name of the file that it was converted from
    shard: Shard | None = None  # which rows of a whole these are
    shards: tuple[Partition, ...] = ()


# --- writing ---------------------------------------------------------------------------------------------


@dataclass
class PartitionWriter:
    """Fills a new partition directory. Made by :func:`create_partition`."""

    _directory: Path
    _public: Path
    _task: str
    _source: str | None
    _parties: list[PartyWriter] = field(default_factory=list)
    _labels: LabelWriter | None = None

    def party(self, name: str | None = None, **described: Any) -> PartyWriter:
        """Begin the next party's file ``<name>.h5``; see :class:`PartyWriter` for the parameters."""
        name = f"party-{len(self._parties) + 1}" if name is None else name
        check_party_name(name, shown(self._public))
        if name.casefold() in {party.name.casefold() for party in self._parties}:
            raise InputError(f"{shown(self._public)}: two parties are named {name!r}; rename one")
        file = f"{name}.h5"
        public = self._public / file
        self._parties.append(PartyWriter(self._directory / file, name=name, public_path=public, **described))
        return self._parties[-1]

    def labels(self, **described: Any) -> LabelWriter:
        """Begin the label file; see :class:`LabelWriter`."""
        if self._labels is not None:
            raise InputError(f"{shown(self._public)}: a partition has one label file only")
        self._labels = LabelWriter(
            self._directory / LABELS_FILE,
            task=self._task,
            public_path=self._public / LABELS_FILE,
            **described,
        )
        return self._labels

    def _writers(self) -> list[PartyWriter | LabelWriter]:
        return [*self._parties, *([self._labels] if self._labels is not None else [])]

    def finish(self) -> None:
        """Complete all files and write the manifest."""
        if not self._parties:
            raise InputError(f"{shown(self._public)}: a partition needs at least one party")
        for writer in self._writers():
            if writer.state == "open":
                writer.close()
            elif writer.state == "aborted":
                raise InputError(f"{shown(self._public / writer.path.name)}: was given up; start again")
        first = self._parties[0]
        rows = first.n_samples, first.row_digest
        for writer in self._writers()[1:]:
            own = writer.n_samples, writer.row_digest
            _same_rows(self._public / writer.path.name, own, rows, first.path.name)
        _refuse_copies([(self._public / p.path.name, p.content_digest) for p in self._parties])
        labelled = self._labels is not None
        _write_manifest(self._directory, *rows, self._task, self._parties, labelled, self._source)

    def abort(self) -> None:
        """Discard all files."""
        for writer in self._writers():
            writer.abort()


@contextmanager
def create_partition(
    path: str | os.PathLike[str],
    *,
    task: str,
    source: str | os.PathLike[str] | None = None,
    force: bool = False,
) -> Iterator[PartitionWriter]:
    """Build a partition directory; it appears under its name only when the block succeeds."""
    name = None if source is None else Path(source).name
    with atomic_directory(path, force=force, marker=MANIFEST, only=(MANIFEST, "*.h5")) as directory:
        writer = PartitionWriter(directory, Path(path), task, name)
        try:
            yield writer
            writer.finish()
        except BaseException:
            writer.abort()
            raise


def merge_partitions(sources: Sequence[str | os.PathLike[str]], path: str | os.PathLike[str]) -> Partition:
    """Put the parties of several partitions of the same rows into one."""
    parts = [open_partition(source, require_labels=False) for source in sources]
    first = parts[0]
    rows = first.n_samples, first.row_digest
    names: dict[str, Path] = {}
    labels: LabelData | None = None
    for part in parts:
        _same_rows(part.path / MANIFEST, (part.n_samples, part.row_digest), rows, shown(first.path))
        if part.task != first.task:
            raise InputError(f"{shown(part.path)}: is a {part.task}, but {shown(first.path)} a {first.task}")
        if part.labels is not None:
            if labels is not None:
                raise InputError(f"{shown(part.path)}: has labels, and so has {shown(labels.path)}; one may")
            labels = part.labels
        for party in part.parties:
            if (other := names.get(party.name.casefold())) is not None:
                raise InputError(
                    f"{shown(party.path)}: party {party.name!r} is also in {shown(other)}; convert one again "
                    "with --names"
                )
            names[party.name.casefold()] = part.path
    parties = [party for part in parts for party in part.parties]
    _refuse_copies([(party.path, party.content_digest) for party in parties])
    with atomic_directory(path) as directory:
        for party in parties:
            shutil.copyfile(party.path, directory / f"{party.name}.h5")
        if labels is not None:
            shutil.copyfile(labels.path, directory / LABELS_FILE)
        _write_manifest(directory, *rows, first.task, parties, labels is not None, first.source)
    return open_partition(path, require_labels=False)


# --- checks shared by writing and reading ------------------------------------------------------------------


def _same_rows(path: Path, found: tuple[int, str], expected: tuple[int, str], reference: str) -> None:
    """Refuse another number of rows, or another digest of them."""
    fault = ""
    if found[0] != expected[0]:
        fault = f"key 'X' or 'y': has {found[0]} rows, but {reference} has {expected[0]}"
    elif found[1] != expected[1]:
        fault = f"key 'obs/ids': other samples or another order of rows than {reference}"
    if fault:
        raise InputError(f"{shown(path)}: {fault}; align the files by id and convert again")


def _refuse_copies(contents: list[tuple[Path, str]]) -> None:
    seen: dict[str, Path] = {}
    for path, digest in contents:
        if digest in seen:
            raise InputError(
                f"{shown(path)}: key 'X': same columns and names as {seen[digest].name}; "
                "each party's features may occur only once"
            )
        seen[digest] = path


# --- reading ---------------------------------------------------------------------------------------------


def _listed(directory: Path, name: str) -> Path:
    path = directory / name
    with storage_errors(path, "read"):
        if not path.exists():
            raise StorageError(
                f"{shown(path)}: no such file, but {MANIFEST} lists it (key 'file'); restore it"
            )
    return path


def _check_said(file: Path, key: str, found: Any, said: Any) -> None:
    """Refuse a file that is not as the manifest says."""
    if found != said:
        what = f"is {found!r}, but {MANIFEST} says {said!r}"
        raise FormatError(f"{shown(file)}: key {key!r}: {what}; not the file that belongs here")


def open_partition(path: str | os.PathLike[str], require_labels: bool = True) -> Partition:
    """Open a partition and check that its files belong together, without loading the blocks.

    Parameters
    ----------
    path : path
        The partition directory.
    require_labels : bool
        Whether a partition without labels is an error (training, evaluation) or not (prediction).

    Raises
    ------
    StorageError
        The directory or one of its files is absent or unreadable.
    FormatError
        A file is damaged, of another kind, of a newer version, or not the one that the manifest describes.
    InputError
        The files do not describe the same samples in the same order; a party occurs twice;
        labels are missing or wrong; shards overlap, leave rows out or belong to different wholes.
    """
    with storage_errors(path, "read"):
        sharded = (Path(path) / SHARDS).exists()
    if sharded:
        return _open_shards(Path(path), require_labels)
    manifest = _read_manifest(path)
    directory = Path(path)
    rows = n_samples, digest = manifest["n_samples"], manifest["row_digest"]
    parties: list[PartyData] = []
    for entry in manifest["party"]:
        file = _listed(directory, entry["file"])
        party = open_party(file)
        for key, found in (("name", party.name), ("n_features", party.n_features), ("kind", party.kind)):
            _check_said(file, key, found, entry[key])
        _same_rows(file, (party.n_samples, party.row_digest), rows, MANIFEST)
        parties.append(party)
    _refuse_copies([(party.path, party.content_digest) for party in parties])

    labels = None
    if "labels" in manifest:
        file = _listed(directory, manifest["labels"]["file"])
        labels = open_labels(file)
        _check_said(file, "task", labels.task, manifest["task"])
        _same_rows(file, (labels.n_samples, labels.row_digest), rows, MANIFEST)
    elif require_labels:
        raise InputError(
            f"{shown(directory / MANIFEST)}: key 'labels': the partition has no labels, but "
            "they are needed here; convert with --label"
        )
    source = manifest.get("source", {}).get("name")
    shard = Shard(**manifest["shard"]) if "shard" in manifest else None
    return Partition(directory, n_samples, parties, labels, digest, manifest["task"], source, shard)


def _columns_of(part: Partition) -> Any:
    """What shards have in common: all but rows."""
    labels, steps = part.labels, [[step.digest() for step in party.steps] for party in part.parties]
    return (
        part.task,
        [(p.name, p.feature_names, p.kind, p.dtype, own) for p, own in zip(part.parties, steps)],
        labels and (labels.classes, labels.sample_weight is None, labels.offset is None, labels.reading),
    )


def _open_shards(path: Path, require_labels: bool) -> Partition:
    """Open all shards of a directory as the partition that was cut."""
    whole = _open(path / SHARDS, SHARDS_FORMAT, SHARDS_VERSIONS, {"shards": POSITIVE})
    check_seal(whole, whole.pop("digest", None), shown(path / SHARDS), _RESTORE)
    parts, places = [], []
    for number in range(1, whole["shards"] + 1):
        folder = path / shard_name(number, whole["shards"])
        with storage_errors(folder, "read"):
            if not folder.exists():
                raise StorageError(
                    f"{shown(folder)}: no such directory, but {SHARDS} says {whole['shards']} shards; "
                    "restore it"
                )
        part = open_partition(folder, require_labels)
        place = shown(folder / MANIFEST)
        if part.shard is None:
            raise FormatError(f"{place}: key 'shard': is missing; not a shard but a whole partition")
        places.append((place, part.shard, part.n_samples))
        parts.append(part)
    check_shards(places)
    for part in parts[1:]:
        if _columns_of(part) != _columns_of(parts[0]):
            raise InputError(
                f"{shown(part.path)}: other parties, columns or classes than {shown(parts[0].path)}; restore "
                "them"
            )
    with _JOINING, storage_errors(gettempdir()):
        joined = _joined(path, parts, places[0][1].content_digests)
    opened = open_partition(joined, require_labels)
    if not opened.row_digest == whole["row_digest"] == places[0][1].row_digest:
        raise FormatError(
            f"{shown(path / SHARDS)}: key 'row_digest': other rows than those of the shards; restore them"
        )
    return replace(opened, path=path, shards=tuple(parts))


#: Where shards were put together, by their files as these were: gone with this process.
_JOINED: dict[tuple[Any, ...], TemporaryDirectory[str]] = {}
_JOINING = Lock()  # workers may be threads


def _joined(path: Path, parts: Sequence[Partition], digests: list[str]) -> Path:
    """A temporary directory with the rows of all shards as one partition."""
    states = [(place, place.stat()) for place in sorted(path.absolute().rglob("*"))]
    key = tuple((place, state.st_ino, state.st_size, state.st_mtime_ns) for place, state in states)
    if key in _JOINED:
        return Path(_JOINED[key].name)
    temporary, first = TemporaryDirectory(prefix="fastadmm-"), parts[0]
    writer = PartitionWriter(Path(temporary.name), Path(temporary.name), first.task, first.source)
    try:
        for digest, *own in zip(digests, *(part.parties for part in parts), strict=True):
            names = ("name", "n_features", "kind", "dtype", "feature_names", "transform", "encoder")
            target = writer.party(**{name: getattr(own[0], name) for name in names})
            for piece in own:
                ids = piece.ids()
                for start, rows in piece.iter_rows():
                    target.append(rows, ids[start : start + rows.shape[0]])
            target.close()
            if target.content_digest != digest:
                what = "the shards' rows together are not what was cut; restore them"
                raise FormatError(f"{shown(path)}: party {target.name}: {what}")
        if (of_first := first.labels) is not None:
            labels = writer.labels(
                classes=of_first.classes, reading=of_first.reading, label_epsilon=of_first.label_epsilon,
                exposure=of_first.exposure,
            )  # fmt: skip
            for each in (part.labels for part in parts if part.labels is not None):
                write_columns(labels, each, each.ids())
        writer.finish()
    except BaseException:
        writer.abort()
        temporary.cleanup()
        raise
    atexit.register(temporary.cleanup)
    _JOINED[key] = temporary
    return Path(temporary.name)
