"""A partition: one directory with a file per party, the label file and ``partition.toml``."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastadmm.errors import FormatError, InputError, StorageError
from fastadmm.files.atomic import atomic_directory, shown, storage_errors
from fastadmm.store.label_file import LabelData, LabelWriter, joined_labels, open_labels
from fastadmm.store.manifest import (
    LABELS_FILE,
    MANIFEST,
    SHARDS,
    Shard,
    check_shards,
    read_manifest,
    read_shards,
    shard_name,
    write_manifest,
)
from fastadmm.store.party_file import JoinedParty, PartyData, PartyWriter, check_party_name, open_party


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
        writer = PartyWriter(
            self._directory / f"{name}.h5",
            name=name,
            public_path=self._public / f"{name}.h5",
            **described,
        )
        self._parties.append(writer)
        return writer

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
        write_manifest(self._directory, *rows, self._task, self._parties, labelled, self._source)

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
        write_manifest(directory, *rows, first.task, parties, labels is not None, first.source)
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
    manifest = read_manifest(path)
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


def _open_shards(path: Path, require_labels: bool) -> Partition:
    """Open all shards of a directory as the partition that was cut."""
    whole = read_shards(path)
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
    first = places[0][1]
    parties: list[PartyData] = [
        JoinedParty(path, own, digest)
        for digest, *own in zip(first.content_digests, *(part.parties for part in parts))
    ]
    if parties[0].row_digest != whole["row_digest"] or whole["row_digest"] != first.row_digest:
        raise FormatError(
            f"{shown(path / SHARDS)}: key 'row_digest': other rows than those of the shards; restore them"
        )
    labels = [part.labels for part in parts if part.labels is not None]
    joined = joined_labels(path, labels, first.row_digest) if labels else None
    n_samples, task, source = whole["n_samples"], parts[0].task, parts[0].source
    rows = first.row_digest
    return Partition(path, n_samples, parties, joined, rows, task, source, shards=tuple(parts))
