"""Private set intersection by exchanged files: Diffie-Hellman on an elliptic curve, by libsodium.

The guest blinds its ids with a secret key (request). The host blinds them once more with a key of its own,
and adds its own blinded ids (response). The guest removes its key and sees which ids agree. Neither learns an
id that only the other has; each learns how many ids the other has.

The group is that of ristretto255: the points of prime order of edwards25519. Libsodium refuses all others, so
that a chosen point reveals nothing of a key.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from fastadmm.data_tools.alignment import Alignment, TableIds, canonical_order
from fastadmm.errors import ConfigError, FormatError, InputError
from fastadmm.files.atomic import atomic_file, shown
from fastadmm.files.reading import parse_json, read_bytes

FORMAT, VERSION = "fastadmm-psi", "2.0"

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
    record = {"format": FORMAT, "version": VERSION, "step": step, **head}
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
    if not isinstance(head, dict) or head.get("format") != FORMAT:
        command = "psi-respond" if step == "response" else "psi-request"
        raise FormatError(f"{shown(path)}: not a file of 'fastadmm align {command}'")
    if head.get("version") != VERSION:
        raise FormatError(f"{shown(path)}: version {head.get('version')!r}, but {VERSION!r} is needed")
    if head.get("step") != step:
        raise FormatError(f"{shown(path)}: is a {head.get('step')}, but a {step} is needed")
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
