"""The two kinds of file that pass: a request of the coordinator, and a party's message in answer.

Names, kinds and sizes of everything in such a file are checked against
:data:`fastadmm.conversation.calls.CALLS` before its values are read.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.conversation.calls import (
    OTHER_VERSION,
    Asked,
    Field,
    answer_fields,
    argument_fields,
    check_answer,
    check_values,
)
from fastadmm.errors import FormatError
from fastadmm.files.atomic import shown, storage_errors
from fastadmm.files.reading import require_regular
from fastadmm.files.seal import seal_of
from fastadmm.runs.checkpoint import write_tree
from fastadmm.store.compression import refuse_packed
from fastadmm.store.elements import array_dataset, key_of, read_attribute, read_block, require_group
from fastadmm.store.h5errors import h5_errors
from fastadmm.store.h5file import create_h5, read_h5
from fastadmm.store.party_file import check_party_name

__all__ = [
    "Asked",
    "Message",
    "Request",
    "file_digest",
    "open_message",
    "open_request",
    "write_message",
    "write_request",
]

_REQUEST, _MESSAGE = "fastadmm-request", "fastadmm-message"

#: A file holds a few vectors of N numbers and small things.
_SMALL, _VECTORS = 16 << 20, 64

#: A request merges a few directions at most.
_MOST_CALLS = 1000


@dataclass(frozen=True)
class Request:
    """What the coordinator asks of one party."""

    run: str  # identifier of the training run
    party: str
    number: int  # of the exchange; 0 opens the run
    previous: int  # number of this party's exchange before; -1 before the first
    calls: list[Asked]  # in order; the last one is answered
    answered: str = ""
    digest: str = ""  # ``sha256:<hex>`` of the file; empty before it is written


@dataclass(frozen=True)
class Message:
    """A party's answer."""

    run: str  # as of the request
    party: str  # as of the request
    number: int  # as of the request
    request: str  # digest of the request that it answers
    answer: dict[str, Any]  # arrays and scalars
    digest: str = ""  # ``sha256:<hex>`` of the file; empty before it is written


def file_digest(path: str | os.PathLike[str]) -> str:
    """``sha256:<hex>`` of a regular file's bytes."""
    require_regular(path)
    with storage_errors(path, "read"), open(path, "rb") as file:
        return "sha256:" + hashlib.file_digest(file, "sha256").hexdigest()


def _check_size(path: Path, n_samples: int, n_classes: int) -> None:
    size, most = require_regular(path), _SMALL + _VECTORS * 8 * n_samples * n_classes
    if size > most:
        raise FormatError(f"{shown(path)}: {size} bytes, but about {n_samples} rows it has at most {most}")


def _read_fields(
    group: Any, fields: Mapping[str, Field], unknown: str = "is not what was asked for"
) -> dict[str, Any]:
    """Values of a group, read only where name, type and size are what they must be."""
    place = f"{shown(group.file.filename)}: key {group.name.strip('/')!r}"
    with h5_errors(group.file.filename, group.name):
        names = [name for name in group.attrs if not name.startswith("encoding-")]
        members = list(group)
    values: dict[str, Any] = {}
    for name in names:
        if name not in fields or fields[name].shape is not None:
            raise FormatError(f"{place}: {name[:80]!r} {unknown}")
        with h5_errors(group.file.filename, group.name):
            if group.attrs.get_id(name).shape != ():
                raise FormatError(f"{place}: {name!r} is not a single value")
            value = group.attrs[name]
        values[name] = value.item() if hasattr(value, "item") else value
    for name in members:
        shape = fields[name].shape if name in fields else None
        if shape is None:
            raise FormatError(f"{place}: {name[:80]!r} {unknown}")
        item = array_dataset(group, name, ndim=len(shape))
        refuse_packed(item)
        dtype = np.dtype(fields[name].dtype)
        if item.dtype != dtype or any(n not in (-1, m) for n, m in zip(shape, item.shape, strict=True)):
            wanted = "" if shape[-1] == -1 else f"{shape[-1]} "
            raise FormatError(
                f"{shown(group.file.filename)}: key {key_of(group, name)!r}: {item.shape} of {item.dtype} "
                f"instead of {wanted}numbers of {dtype.itemsize} bytes"
            )
        values[name] = read_block(item, 0, item.shape[0])
    return values


def write_request(path: Path, request: Request) -> None:
    """Write a request; equal requests are equal bytes."""
    with create_h5(path, _REQUEST) as file:
        file.attrs["run"], file.attrs["party"] = request.run, request.party
        file.attrs["number"], file.attrs["previous"] = request.number, request.previous
        if request.answered:
            file.attrs["answered"] = request.answered
        for k, (name, arguments) in enumerate(request.calls):
            group = file.create_group(f"calls/{k:04d}")
            group.attrs["call"] = name
            write_tree(group.create_group("arguments"), arguments)
        file.attrs["digest"] = _asked(request)


def _asked(request: Request) -> str:
    """Digest of what a request asks, which it carries: one that changed on its way is never answered."""
    calls = [[name, {key: _text_of(value) for key, value in given.items()}] for name, given in request.calls]
    head = [request.run, request.party, int(request.number), int(request.previous), request.answered]
    return seal_of({"head": head, "calls": calls})


def _text_of(value: Any) -> str:
    if isinstance(value, np.ndarray) and value.ndim:
        content = np.ascontiguousarray(value, dtype=value.dtype.newbyteorder("<"))
        return f"{content.dtype.str} {content.shape} {hashlib.sha256(content.tobytes()).hexdigest()}"
    return repr(value.item() if hasattr(value, "item") else value)


def open_request(path: Path, n_samples: int, n_classes: int = 1) -> Request:
    """Read a request."""
    _check_size(path, n_samples, n_classes)
    with read_h5(path, _REQUEST) as file:
        calls: list[Asked] = []
        group = require_group(file, "calls")
        if len(group) > _MOST_CALLS:
            raise FormatError(f"{shown(path)}: key 'calls': {len(group)} calls in one request")
        for key in sorted(group):
            item = require_group(group, key)
            name = read_attribute(item, "call", str)
            place = f"{shown(path)}: key 'calls/{key}', {name[:80]!r}"
            fields = argument_fields(name, n_samples, shown(path))
            unknown = f"is unknown here; {OTHER_VERSION}"
            arguments = _read_fields(require_group(item, "arguments"), fields, unknown)
            check_values(arguments, fields, place)
            calls.append((name, arguments))
        answered = read_attribute(file, "answered", str) if "answered" in file.attrs else ""
        request = Request(
            read_attribute(file, "run", str),
            _party_name(path, file),
            read_attribute(file, "number", int),
            read_attribute(file, "previous", int),
            calls,
            answered,
            file_digest(path),
        )
        digest = read_attribute(file, "digest", str) if "digest" in file.attrs else None
    if digest not in (None, _asked(request)):  # older coordinators wrote none
        raise FormatError(
            f"{shown(path)}: changed since it was written (its digest differs); ask for it again"
        )
    if not calls:
        raise FormatError(f"{shown(path)}: key 'calls': asks nothing")
    return request


def _party_name(path: Path, file: Any) -> str:
    return check_party_name(read_attribute(file, "party", str), f"{shown(path)}: 'party'", FormatError)


def write_message(path: Path, message: Message) -> None:
    """Write a message; equal messages are equal bytes."""
    with create_h5(path, _MESSAGE) as file:
        file.attrs["run"], file.attrs["party"] = message.run, message.party
        file.attrs["number"], file.attrs["request"] = message.number, message.request
        write_tree(file.create_group("answer"), message.answer)


def open_message(
    path: Path, n_samples: int, asked: Callable[[Message], Asked | None], n_classes: int = 1
) -> Message:
    """Read a message, and refuse what does not answer the call."""
    _check_size(path, n_samples, n_classes)
    with read_h5(path, _MESSAGE) as file:
        message = Message(
            read_attribute(file, "run", str),
            _party_name(path, file),
            read_attribute(file, "number", int),
            read_attribute(file, "request", str),
            {},
            file_digest(path),
        )
        call = asked(message)
        if call is None:
            return message
        answer = _read_fields(require_group(file, "answer"), answer_fields(call, n_samples))
    check_answer(call, answer, n_samples, f"{shown(path)}: message of {message.party}: key 'answer'")
    return replace(message, answer=answer)
