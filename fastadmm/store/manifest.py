"""The manifests: ``partition.toml`` of a partition, ``shards.toml`` of one that is cut by rows."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastadmm.errors import FormatError, InputError, StorageError
from fastadmm.files.atomic import shown, storage_errors
from fastadmm.files.reading import read_toml
from fastadmm.files.seal import check_seal, refuse_unknown, seal_of
from fastadmm.store.h5file import check_version
from fastadmm.store.label_file import TASKS
from fastadmm.store.party_file import check_party_name

MANIFEST, SHARDS = "partition.toml", "shards.toml"
FORMAT, SHARDS_FORMAT = "fastadmm-partition", "fastadmm-shards"
#: 1.1: with a table ``shard``, of older versions of this program; others are written as 1.0.
VERSIONS = ("1.0", "1.1")
SHARDS_VERSIONS = ("1.0",)
LABELS_FILE = "labels.h5"
_HEAD = ("format", "version", "n_samples", "row_digest", "digest")
_KEYS = (*_HEAD, "task", "party", "labels", "source", "shard")
_PARTY_KEYS = ("name", "file", "n_features", "kind")
_SHARD_KEYS = ("number", "of", "first_row", "all_rows", "row_digest", "content_digests")
_SHARDS_KEYS = (*_HEAD, "shards")
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
    entries: list[dict[str, Any]],
    has_labels: bool,
    source: str | None,
) -> None:
    """Write ``partition.toml``."""
    import tomli_w

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


def get_key(table: dict[str, Any], key: str, kind: type, place: str) -> Any:
    """A value of a manifest, of the right type."""
    value = table.get(key)
    if not isinstance(value, kind) or isinstance(value, bool):
        what = "is missing" if value is None else f"is {type(value).__name__}, not {kind.__name__}"
        raise FormatError(f"{place}: key {key!r}: {what}")
    return value


def _check_positive(table: dict[str, Any], key: str, place: str) -> None:
    if get_key(table, key, int, place) < 1:
        raise FormatError(f"{place}: key {key!r}: {table[key]} is not positive")


def _check_choice(table: dict[str, Any], key: str, choices: tuple[str, ...], place: str) -> None:
    if get_key(table, key, str, place) not in choices:
        raise FormatError(f"{place}: key {key!r}: {table[key]!r} is not one of {', '.join(choices)}")


def _open(
    file: Path, format: str, versions: tuple[str, ...], keys: tuple[str, ...]
) -> tuple[dict[str, Any], str]:
    """Read a manifest of some format; what it says, and the file as messages name it."""
    document, place = read_toml(file), shown(file)
    found = get_key(document, "format", str, place)
    if found != format:
        raise FormatError(f"{place}: key 'format': {found!r} instead of {format!r}")
    check_version(place, get_key(document, "version", str, place), versions, "key 'version'")
    refuse_unknown(document, keys, place)
    _check_positive(document, "n_samples", place)
    get_key(document, "row_digest", str, place)
    return document, place


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
    manifest, place = _open(directory / MANIFEST, FORMAT, VERSIONS, _KEYS)
    _check_choice(manifest, "task", TASKS, place)
    parties = get_key(manifest, "party", list, place)
    if not parties:
        raise FormatError(f"{place}: key 'party': empty; a partition needs at least one party")
    names: set[str] = set()
    files: set[str] = set()
    for i, party in enumerate(parties):
        where = f"{place}: [[party]] number {i + 1}"
        if not isinstance(party, dict):
            raise FormatError(f"{where}: key 'party': not a table")
        refuse_unknown(party, _PARTY_KEYS, where)
        name = check_party_name(party.get("name"), f"{where}: key 'name'", FormatError)
        if name.casefold() in names:
            raise FormatError(f"{where}: key 'name': {name!r} occurs twice; each party needs its own name")
        names.add(name.casefold())
        _file_name(party, where, files)
        _check_positive(party, "n_features", where)
        _check_choice(party, "kind", ("dense", "csr"), where)
    for key, known in (("labels", ("file",)), ("source", ("name",)), ("shard", _SHARD_KEYS)):
        if key in manifest:
            refuse_unknown(get_key(manifest, key, dict, place), known, f"{place}: [{key}]")
    if "labels" in manifest:
        _file_name(manifest["labels"], f"{place}: [labels]", files)
    if "shard" in manifest:
        _check_shard(manifest["shard"], manifest, f"{place}: [shard]")
    check_seal(manifest, manifest.pop("digest", None), place, _RESTORE)
    return manifest


def _check_shard(table: dict[str, Any], manifest: dict[str, Any], place: str) -> None:
    number, of, first, rows = (get_key(table, key, int, place) for key in _SHARD_KEYS[:4])
    get_key(table, "row_digest", str, place)
    digests = get_key(table, "content_digests", list, place)
    own = manifest["n_samples"]
    if not all(isinstance(d, str) for d in digests) or len(digests) != len(manifest["party"]):
        raise FormatError(f"{place}: key 'content_digests': not one digest for each party")
    if not 1 <= number <= of or not 0 <= first <= rows - own:
        raise FormatError(
            f"{place}: shard {number} of {of} with {own} rows after {first} of {rows}: impossible"
        )


def read_shards(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Read and check ``shards.toml``."""
    document, place = _open(Path(path) / SHARDS, SHARDS_FORMAT, SHARDS_VERSIONS, _SHARDS_KEYS)
    _check_positive(document, "shards", place)
    check_seal(document, document.pop("digest", None), place, _RESTORE)
    return document


def _file_name(table: dict[str, Any], place: str, files: set[str]) -> None:
    name = get_key(table, "file", str, place)
    # Only names inside the directory: a manifest from elsewhere must not reach other files.
    if name in {"", ".", ".."} or "/" in name or "\\" in name or "\0" in name:
        raise FormatError(f"{place}: key 'file': {name!r} is not a plain file name inside the partition")
    if name in files:
        raise FormatError(f"{place}: key 'file': {name!r} is listed twice; each party has its own file")
    files.add(name)
