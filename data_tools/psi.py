"""Private set intersection by exchanged files: Diffie-Hellman on an elliptic curve, by ``openmined.psi``.

The guest blinds its ids with a secret key (request). The host blinds them once more with a key of its own,
and adds its own blinded ids (response). The guest removes its key and sees which ids agree. Neither learns an
id that only the other has; each learns how many ids the other has.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from fastadmm.data_tools.alignment import Alignment, TableIds, canonical_order
from fastadmm.errors import ConfigError, FormatError, InputError
from fastadmm.files.atomic import atomic_file, shown
from fastadmm.files.reading import parse_json, read_bytes

FORMAT, VERSION = "fastadmm-psi", "1.0"


def library() -> Any:
    """What computes private intersections; one line where it is not installed."""
    try:
        import private_set_intersection.python as psi
    except ImportError:
        raise ConfigError(
            "private set intersection needs openmined.psi: pip install 'fastadmm[psi]'"
        ) from None
    return psi


def psi_request(ids: TableIds, out: str | Path, secret: str | Path, *, force: bool = False) -> int:
    """Blind the guest's ids."""
    client = library().client.CreateWithNewKey(True)
    order = _order(ids)
    request = client.CreateRequest(order).SerializeToString()
    # The key first: a request without its key would be useless.
    key = {"request": _hash(request), "ids": _ids_hash(order)}
    _write(secret, "secret", key, [client.GetPrivateKeyBytes()], force, private=True)
    _write(out, "request", {"count": len(order)}, [request], force)
    return len(order)


def psi_respond(ids: TableIds, request: str | Path, out: str | Path, *, force: bool = False) -> int:
    """Blind the guest's request once more, and the host's own ids."""
    psi = library()
    _, (raw,) = _read(request, "request", 1)
    server = psi.server.CreateWithNewKey(True)
    message = _parse(request, psi.Request, raw)
    count = len(message.encrypted_elements)
    try:
        response = server.ProcessRequest(message).SerializeToString()
    except RuntimeError:
        raise _damaged(request) from None
    # RAW: exact, where the library's filters would let wrong ids pass with a small probability.
    setup = server.CreateSetupMessage(1e-9, max(count, 1), _order(ids), psi.DataStructure.RAW)
    _write(
        out, "response", {"request": _hash(raw), "count": len(ids)},
        [setup.SerializeToString(), response], force,
    )  # fmt: skip
    return count


def psi_finish(
    ids: TableIds, secret: str | Path, responses: Sequence[str | Path]
) -> tuple[Alignment, list[str]]:
    """Find the ids that the guest and every host have."""
    psi = library()
    head, (key,) = _read(secret, "secret", 1)
    order = _order(ids)
    if head.get("ids") != _ids_hash(order):
        raise InputError(f"{ids.path}: its ids are not those of the request: make a new request")
    try:
        client = psi.client.CreateFromKey(key, True)
    except (RuntimeError, ValueError):
        raise _damaged(secret) from None
    common = set(order)
    report = []
    seen: set[str] = set()
    for path in responses:
        answer, (setup, response) = _read(path, "response", 2)
        if answer.get("request") != head.get("request"):
            raise InputError(f"{shown(path)}: answers another request than the one of {shown(secret)}")
        if (digest := _hash(setup)) in seen:
            raise InputError(f"{shown(path)}: given twice; every host makes its own response")
        seen.add(digest)
        try:
            found = client.GetIntersection(
                _parse(path, psi.ServerSetup, setup), _parse(path, psi.Response, response)
            )
            both = {order[i] for i in found}
        except (RuntimeError, IndexError, ValueError):
            raise _damaged(path) from None
        report.append(
            f"{shown(path)}: {answer.get('count')} ids, {len(both)} of them among the {len(order)} "
            f"of {ids.path}"
        )
        common &= both
    if not common:
        raise InputError(f"{ids.path}: no id is in all tables: check the id columns, and how ids are written")
    return canonical_order(sorted(common)), report


def _order(ids: TableIds) -> list[str]:
    # Sorted: the order of the table's rows is nobody's business.
    return ids.texts()


def _hash(raw: bytes) -> str:
    return hashlib.sha256(raw).hexdigest()


def _ids_hash(order: list[str]) -> str:
    return _hash(json.dumps(order).encode())


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
        raise FormatError(f"{shown(path)}: not a file of 'fastadmm align psi-{_COMMANDS[step]}'")
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
    parts, at = [], 0
    for n in lengths:
        parts.append(rest[at : at + n])
        at += n
    return head, parts


_COMMANDS = {"request": "request", "secret": "request", "response": "respond"}


def _parse(path: str | Path, kind: Any, raw: bytes) -> Any:
    from google.protobuf.message import DecodeError

    message = kind()
    try:
        message.ParseFromString(raw)
    except DecodeError:
        raise _damaged(path) from None
    return message


def _damaged(path: str | Path) -> FormatError:
    return FormatError(f"{shown(path)}: damaged or cut short: copy it again")
