"""The manifests: ``partition.toml`` of a partition, ``shards.toml`` of one that is cut by rows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastadmm.errors import FormatError, InputError, StorageError
from fastadmm.files.atomic import shown, storage_errors
from fastadmm.files.reading import read_toml
from fastadmm.files.seal import POSITIVE, check_seal, check_table, get_key, seal_of
from fastadmm.store.h5file import check_version
from fastadmm.store.label_file import TASKS
from fastadmm.store.party_file import check_party_name

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

    def same_whole(self, other: Shard) -> bool:
        """Whether both are shards of one whole, cut alike."""
        mine, others = ((s.of, s.all_rows, s.row_digest, s.content_digests) for s in (self, other))
        return mine == others


def shard_name(number: int, of: int) -> str:
    """Folder of a shard: ``shard-01`` to ``shard-16``."""
    return f"shard-{number:0{len(str(of))}d}"


def check_shards(shards: Sequence[tuple[str, Shard, int]]) -> None:
    """Refuse shards that are not one whole."""
    row, before, first = 0, "", shards[0]
    for name, shard, rows in shards:
        if not shard.same_whole(first[1]):
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


def write_manifest(
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

    manifest: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSIONS[0],
        "n_samples": n_samples,
        "row_digest": digest,
        "task": task,
    }
    tables: dict[str, Any] = {"labels": {"file": LABELS_FILE}} if has_labels else {}
    if source is not None:
        tables["source"] = {"name": source}
    manifest["digest"] = seal_of({**manifest, "party": entries, **tables})
    text = tomli_w.dumps(manifest)
    for entry in entries:
        text += "\n[[party]]\n" + tomli_w.dumps(entry)
    for name, table in tables.items():
        text += "\n" + tomli_w.dumps({name: table})
    (directory / MANIFEST).write_text(text, encoding="utf-8")


def _open(file: Path, format: str, versions: tuple[str, ...], more: dict[str, Any]) -> dict[str, Any]:
    """Read a manifest of some format."""
    document, place = read_toml(file), shown(file)
    found = get_key(document, "format", str, place)
    if found != format:
        raise FormatError(f"{place}: key 'format': {found!r} instead of {format!r}")
    check_version(place, get_key(document, "version", str, place), versions, "key 'version'")
    check_table(document, _HEAD | more, place)
    return document


def read_manifest(path: str | os.PathLike[str]) -> dict[str, Any]:
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
    check_seal(manifest, manifest.pop("digest", None), place, _RESTORE)
    return manifest


def read_shards(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read and check ``shards.toml``."""
    document = _open(Path(path) / SHARDS, SHARDS_FORMAT, SHARDS_VERSIONS, {"shards": POSITIVE})
    check_seal(document, document.pop("digest", None), shown(Path(path) / SHARDS), _RESTORE)
    return document


def _check_file_name(name: str, place: str, files: set[str]) -> None:
    # Only names inside the directory: a manifest from elsewhere must not reach other files.
    if name in {"", ".", ".."} or "/" in name or "\\" in name or "\0" in name:
        raise FormatError(f"{place}: key 'file': {name!r} is not a plain file name inside the partition")
    if name in files:
        raise FormatError(f"{place}: key 'file': {name!r} is listed twice; each party has its own file")
    files.add(name)
