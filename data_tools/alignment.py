"""Which rows of several tables are the same samples: joined by id, in one canonical order, with a digest.

On one machine, or by private set intersection with exchanged files: Diffie-Hellman on an elliptic curve, by
libsodium. The guest blinds its ids with a secret key (request). The host blinds them once more with a key of
its own, and adds its own blinded ids (response). The guest removes its key and sees which ids agree. Neither
learns an id that only the other has; each learns how many ids the other has.

The group is that of ristretto255: the points of prime order of edwards25519. Libsodium refuses all others, so
that a chosen point reveals nothing of a key.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from fastadmm.data_tools.columns import keys_of, listed
from fastadmm.data_tools.csv_table import FOUND, Layout
from fastadmm.data_tools.per_table import TableRows
from fastadmm.data_tools.tables import Cells, Table, read_table
from fastadmm.errors import ConfigError, FormatError, InputError
from fastadmm.files.atomic import atomic_file, shown, write_whole
from fastadmm.files.digest import row_digest
from fastadmm.files.reading import parse_json, read_bytes

#: What is done with ids that occur more than once in a table.
DUPLICATES = ("refuse", "first", "last", "drop")

FORMAT, VERSION = "fastadmm-alignment", "1.0"


@dataclass(frozen=True)
class TableIds:
    """Ids of one table, each once."""

    path: str  # the table
    keys: np.ndarray
    rows: np.ndarray  # ``(k,)`` int64 numbers of their rows (from 0)
    n_rows: int  # rows of the table
    left_out: int  # rows left out because their id occurs more than once

    def __len__(self) -> int:
        return len(self.keys)

    def as_text(self) -> TableIds:
        """The same with all ids as text, and sorted as text."""
        if self.keys.dtype.kind != "i":
            return self
        keys = self.keys.astype("S")
        order = np.argsort(keys)
        return replace(self, keys=keys[order], rows=self.rows[order])

    def texts(self) -> list[str]:
        """All ids as text, sorted as text."""
        return sorted(_texts(self.keys))

    def first(self, which: np.ndarray, most: int = 3) -> list[str]:
        """Some ids in the order of the table."""
        return _texts(self.keys[which[np.argsort(self.rows[which])[:most]]])


def _texts(keys: np.ndarray) -> list[str]:
    return [key.decode() if isinstance(key, bytes) else str(key) for key in keys.tolist()]


@dataclass(frozen=True)
class Alignment:
    """Samples that all parties have, in canonical order."""

    ids: np.ndarray  # ``(N,)`` int64, if all are whole numbers, else object (str); sorted
    digest: str  # the row digest that every file of the partition will carry

    @property
    def texts(self) -> list[str]:
        """Ids as text, in order."""
        return [str(i) for i in self.ids.tolist()]


def table_ids(table: Table, name: str, duplicates: str = "refuse", pattern: str | None = None) -> TableIds:
    """Ids of a table; with a pattern the part of each that it finds."""
    if duplicates not in DUPLICATES:
        raise ConfigError(f"--duplicates {duplicates!r}: choose one of {', '.join(DUPLICATES)}")
    column = table.require(name, "id column")
    keys = column.values
    if column.kind != "ids":
        text = column.as_text()
        keys = np.array([word.encode() for word in text.words], dtype="S")[text.values]
    if keys.dtype.kind != "i" and (missing := np.flatnonzero(keys == b"")).size:
        problem = f"no id ({len(missing)} of {len(keys)} rows): write one, or leave the row out"
        raise table.refused(name, problem, int(missing[0]), "id")
    if pattern is not None:
        keys = _matched(table, name, keys, pattern)
    ascending = bool((keys[1:] > keys[:-1]).all())
    rows = np.arange(len(keys)) if ascending else np.argsort(keys, kind="stable")
    keys = keys[rows]
    same = np.concatenate([[False], keys[1:] == keys[:-1]])
    seconds = np.flatnonzero(same & ~np.append(False, same[:-1]))  # of each repeated id the second row
    left_out = int(np.count_nonzero(same))
    if left_out and duplicates == "refuse":
        at = int(seconds[np.argmin(rows[seconds])])
        first, places = _texts(keys[at : at + 1])[0], map(table.where, rows[at - 1 : at + 1].tolist())
        problem = f"repeated ids ({left_out} rows too many), first {first!r} in {' and '.join(places)}"
        raise table.refused(name, f"{problem}: correct them, or pass --duplicates", what="id")
    kept = ~np.append(same[1:], False) if duplicates == "last" else ~same
    if duplicates == "drop":
        left_out += len(seconds)
        kept[seconds - 1] = False
        if not kept.any():
            raise table.refused(name, "--duplicates drop leaves no row", what="id")
    return TableIds(table.path, keys[kept], rows[kept], len(keys), left_out)


def _matched(table: Table, name: str, keys: np.ndarray, pattern: str) -> np.ndarray:
    """What the group of a pattern finds in each id; a pattern without a group finds all of it."""
    try:
        known = re.compile(pattern)
    except re.error as error:
        raise ConfigError(f"id_pattern {pattern!r}: no regular expression: {error}") from None
    parts = []
    for row, text in enumerate(_texts(keys)):
        found = known.fullmatch(text)
        part = found[min(1, known.groups)] if found is not None else None
        if not part:
            raise table.refused(name, f"{text!r} does not fit id_pattern {pattern!r}", row, "id")
        parts.append(part)
    return keys_of(parts)


def canonical_order(ids: Sequence[str]) -> Alignment:
    """Put ids into an order that depends only on the ids, so that every party finds the same."""
    keys = keys_of(ids)
    ordered = np.sort(keys) if keys.dtype.kind == "i" else np.array(sorted(ids), dtype=object)
    return Alignment(ordered, row_digest(ordered))


def file_ids(
    path: str | Path,
    name: str,
    layout: Layout = FOUND,
    duplicates: str = "refuse",
    pattern: str | None = None,
) -> TableIds:
    """Ids of a file; its other columns are not looked at."""
    return table_ids(read_table(path, layout, Cells(id=name), only=name), name, duplicates, pattern)


def join(
    tables: Sequence[Table], names: Sequence[str | None], options: TableRows
) -> tuple[Alignment, list[np.ndarray], list[str]]:
    """Samples of tables by a stated alignment or by their ids, the rows of each, and what to say of them."""
    known = None if options.alignment is None else read_alignment(options.alignment)
    found = []
    for table, name in zip(tables, names, strict=True):
        if name is None:
            raise ConfigError(f"--id: which column of {table.path} holds the ids?")
        found.append(table_ids(table, name, options.duplicates, options.id_pattern))
    if known is None:
        known, report = align(found)
    else:
        report = [f"{own.path}: {own.n_rows} rows, {len(known.ids)} in the alignment" for own in found]
    return known, [rows_of(own, known) for own in found], report


def align(tables: Sequence[TableIds]) -> tuple[Alignment, list[str]]:
    """Join tables by id, on one machine."""
    if len({own.keys.dtype.kind for own in tables}) > 1:
        tables = [own.as_text() for own in tables]
    common = tables[0].keys
    for own in tables[1:]:
        common = np.intersect1d(common, own.keys, assume_unique=True)
    if not len(common):
        examples = "; ".join(f"{t.path} has {_some(t.first(np.arange(len(t))), len(t))}" for t in tables)
        raise InputError(
            f"no id is in all tables ({examples}): check --id, and how ids are written: --set "
            "'id_pattern=[^1-9]*(.*)' leaves out prefixes and zeros"
        )
    report = [_report(own, common) for own in tables]
    if common.dtype.kind == "i":
        return Alignment(common, row_digest(common)), report
    return canonical_order(_texts(common)), report


def _report(table: TableIds, common: np.ndarray) -> str:
    line = f"{table.path}: {table.n_rows} rows, {len(common)} joined"
    if table.left_out:
        line += f", {table.left_out} rows with ids of other rows left out"
    if len(common) < len(table):
        alone = np.flatnonzero(~np.isin(table.keys, common, assume_unique=True))
        some = _some(table.first(alone), count=len(alone))
        line += f", {len(alone)} ids are not in every table ({some})"
    return line


def _some(ids: Sequence[str], count: int | None = None) -> str:
    return listed([repr(i) for i in ids], 3, count)


def rows_of(ids: TableIds, alignment: Alignment) -> np.ndarray:
    """Rows of a table in the order of an alignment."""
    wanted = alignment.ids
    if wanted.dtype.kind != "i" or ids.keys.dtype.kind != "i":
        ids, wanted = ids.as_text(), np.array([text.encode() for text in alignment.texts], dtype="S")
    at = np.minimum(np.searchsorted(ids.keys, wanted), len(ids) - 1)
    if (absent := np.flatnonzero(ids.keys[at] != wanted)).size:
        some = _some([alignment.texts[i] for i in absent[:3].tolist()], len(absent))
        raise InputError(
            f"{ids.path}: {len(absent)} ids of the alignment are not in it ({some}): align again"
        )
    return ids.rows[at]


def write_alignment(path: str | Path, alignment: Alignment, *, force: bool = False) -> None:
    """Write an alignment file, completely or not at all."""
    record = {"format": FORMAT, "version": VERSION, "n_samples": len(alignment.ids)}
    record |= {"row_digest": alignment.digest, "ids": alignment.ids.tolist()}
    write_whole(path, json.dumps(record) + "\n", force=force)


def read_alignment(path: str | Path) -> Alignment:
    """Read an alignment file and check its digest."""
    place = shown(path)
    try:
        record: Any = parse_json(read_bytes(path), place)
    except FormatError:
        record = None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise FormatError(f"{place}: not an alignment file; make one with 'fastadmm align'")
    if record.get("version") != VERSION:
        raise FormatError(f"{place}: version {record.get('version')!r}, but {VERSION!r} is needed; upgrade")
    ids: Any = record.get("ids")
    try:
        found = canonical_order([str(i) for i in ids])
        agree = 0 < len(set(ids)) == len(ids) and found.ids.tolist() == ids
    except (TypeError, UnicodeError):
        agree = False
    if not agree or found.digest != record.get("row_digest"):
        raise FormatError(f"{place}: ids and their digest do not agree: damaged or edited; align again")
    return found


# --- private set intersection ---------------------------------------------------------------------------


PSI_FORMAT, PSI_VERSION = "fastadmm-psi", "2.0"

#: Bytes of a point, and of a key.
_SIZE = 32


def library() -> Any:
    """What computes on the curve; one line where it is not installed."""
    try:
        from nacl import bindings
    except ImportError:
        raise ConfigError("private set intersection needs pynacl: pip install 'fastadmm[psi]'") from None
    return bindings


def psi_request(ids: TableIds, out: str | Path, secret: str | Path, *, force: bool = False) -> int:
    """Blind the guest's ids."""
    order, key = ids.texts(), _new_key()
    request = _blinded(order, key)
    # The key first: a request without its key would be useless.
    head = {"request": _hash(request), "ids": _hash(json.dumps(order).encode())}
    _write(secret, "secret", head, [key], force, private=True)
    _write(out, "request", {}, [request], force)
    return len(order)


def psi_respond(ids: TableIds, request: str | Path, out: str | Path, *, force: bool = False) -> int:
    """Blind the guest's request once more, and the host's own ids."""
    key = _new_key()
    _, (asked,) = _read(request, "request", 1)
    twice = b"".join(_times(asked, key, request))
    # Sorted: a point's place says nothing of the id behind it.
    own = b"".join(sorted(_points(_blinded(ids.texts(), key))))
    _write(out, "response", {"request": _hash(asked)}, [own, twice], force)
    return len(asked) // _SIZE


def psi_finish(
    ids: TableIds, secret: str | Path, responses: Sequence[str | Path]
) -> tuple[Alignment, list[str]]:
    """Find the ids that the guest and every host have."""
    head, (key,) = _read(secret, "secret", 1)
    order = ids.texts()
    if head.get("ids") != _hash(json.dumps(order).encode()):
        raise InputError(f"{ids.path}: its ids are not those of the request: make a new request")
    try:
        inverse = library().crypto_core_ed25519_scalar_invert(key)
    except (RuntimeError, TypeError):
        raise _damaged(secret) from None
    common = set(order)
    report = []
    seen: set[str] = set()
    for path in responses:
        answer, (own, twice) = _read(path, "response", 2)
        if answer.get("request") != head.get("request"):
            raise InputError(f"{shown(path)}: answers another request than the one of {shown(secret)}")
        if (digest := _hash(own)) in seen:
            raise InputError(f"{shown(path)}: given twice; every host makes its own response")
        seen.add(digest)
        if len(own) % _SIZE or len(twice) != len(order) * _SIZE:
            raise _damaged(path)
        theirs = set(_points(own))
        both = {id for id, point in zip(order, _times(twice, inverse, path)) if point in theirs}
        report.append(
            f"{shown(path)}: {len(theirs)} ids, {len(both)} of them among the {len(order)} of {ids.path}"
        )
        common &= both
    if not common:
        raise InputError(f"{ids.path}: no id is in all tables: check the id columns, and how ids are written")
    return canonical_order(sorted(common)), report


def _new_key() -> bytes:
    """A random number below the group's order."""
    return bytes(library().crypto_core_ed25519_scalar_reduce(secrets.token_bytes(2 * _SIZE)))


def _blinded(order: list[str], key: bytes) -> bytes:
    """Hash every id to a point, and multiply it by the key; ids are sorted, not in the table's order."""
    sodium = library()
    blinded = []
    for id in order:
        digest = hashlib.sha512(b"fastadmm-psi 2.0\0" + id.encode()).digest()
        # The sum of two: one alone would reach only half of the points.
        halves = (sodium.crypto_core_ed25519_from_uniform(half) for half in (digest[:_SIZE], digest[_SIZE:]))
        point = sodium.crypto_core_ed25519_add(*halves)
        blinded.append(sodium.crypto_scalarmult_ed25519_noclamp(key, point))
    return b"".join(blinded)


def _points(joined: bytes) -> list[bytes]:
    return [joined[at : at + _SIZE] for at in range(0, len(joined), _SIZE)]


def _times(joined: bytes, key: bytes, path: str | Path) -> list[bytes]:
    """Multiply points that came from elsewhere by a key; what is no point of the group is refused."""
    times = library().crypto_scalarmult_ed25519_noclamp
    try:
        return [times(key, point) for point in _points(joined)]
    except (RuntimeError, TypeError):
        raise _damaged(path) from None


def _hash(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def _write(
    path: str | Path, step: str, head: dict[str, Any], parts: list[bytes], force: bool, private: bool = False
) -> None:
    record = {"format": PSI_FORMAT, "version": PSI_VERSION, "step": step, **head}
    record |= {"lengths": [len(part) for part in parts], "sha256": _hash(b"".join(parts))}
    with atomic_file(path, force=force, shared=not private) as temporary, temporary.open("wb") as file:
        file.write(json.dumps(record).encode() + b"\n")
        file.writelines(parts)


def _read(path: str | Path, step: str, n_parts: int) -> tuple[dict[str, Any], list[bytes]]:
    raw = read_bytes(path)
    line, _, rest = raw.partition(b"\n")
    try:
        head: Any = parse_json(line, shown(path), foreign=True)
    except FormatError:
        head = None
    wanted = {"format": PSI_FORMAT, "version": PSI_VERSION, "step": step}
    if not isinstance(head, dict) or {key: head.get(key) for key in wanted} != wanted:
        command = "psi-respond" if step == "response" else "psi-request"
        made = f"'fastadmm align {command}' of this version"
        raise FormatError(f"{shown(path)}: not a {step}, as {made} makes it")
    lengths = head.get("lengths")
    if (
        not isinstance(lengths, list)
        or not all(type(n) is int and n >= 0 for n in lengths)
        or len(lengths) != n_parts
        or sum(lengths) != len(rest)
        or head.get("sha256") != _hash(rest)
    ):
        raise _damaged(path)
    return head, [rest[a:b] for a, b in pairwise(accumulate(lengths, initial=0))]


def _damaged(path: str | Path) -> FormatError:
    return FormatError(f"{shown(path)}: damaged or cut short: copy it again")
