"""The two kinds of file that pass: a request of the coordinator, and a party's message in answer."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fastadmm.errors import FormatError
from fastadmm.runs.checkpoint import read_tree, write_tree
from fastadmm.store.atomic import shown, storage_errors
from fastadmm.store.elements import read_attribute, require_group
from fastadmm.store.h5file import create_h5, read_h5
from fastadmm.store.party_file import check_party_name

__all__ = ["Call", "Message", "Request", "open_message", "open_request", "write_message", "write_request"]

_REQUEST, _MESSAGE = "fastadmm-request", "fastadmm-message"

#: One call of a party: its name and its arguments.
Call = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Request:
    """What the coordinator asks of one party.

    Attributes
    ----------
    run : str
        Identifier of the training run.
    party : str
    number : int
        Of the exchange; 0 opens the run.
    previous : int
        Number of this party's exchange before; -1 before the first.
    calls : list of Call
        In order; the last one is answered.
    digest : str
        ``sha256:<hex>`` of the file; empty before it is written.
    """

    run: str
    party: str
    number: int
    previous: int
    calls: list[Call]
    digest: str = ""


@dataclass(frozen=True)
class Message:
    """A party's answer.

    Attributes
    ----------
    run, party, number
        As of the request.
    request : str
        Digest of the request that it answers.
    answer : dict
        Arrays and scalars.
    digest : str
        ``sha256:<hex>`` of the file; empty before it is written.
    """

    run: str
    party: str
    number: int
    request: str
    answer: dict[str, Any]
    digest: str = ""


def file_digest(path: str | os.PathLike[str]) -> str:
    """``sha256:<hex>`` of a file's bytes."""
    with storage_errors(path, "read"):
        return "sha256:" + hashlib.sha256(Path(path).read_bytes()).hexdigest()


def write_request(path: Path, request: Request) -> None:
    """Write a request; equal requests are equal bytes.

    Parameters
    ----------
    path : Path
    request : Request
    """
    with create_h5(path, _REQUEST) as file:
        file.attrs["run"], file.attrs["party"] = request.run, request.party
        file.attrs["number"], file.attrs["previous"] = request.number, request.previous
        for k, (name, arguments) in enumerate(request.calls):
            group = file.create_group(f"calls/{k:04d}")
            group.attrs["call"] = name
            write_tree(group.create_group("arguments"), arguments)


def open_request(path: Path) -> Request:
    """Read a request.

    Parameters
    ----------
    path : Path

    Returns
    -------
    Request

    Raises
    ------
    FormatError
        If it is no request, or damaged.
    """
    with read_h5(path, _REQUEST) as file:
        calls = []
        group = require_group(file, "calls")
        for key in sorted(group):
            item = require_group(group, key)
            calls.append((read_attribute(item, "call", str), read_tree(require_group(item, "arguments"))))
        request = Request(
            read_attribute(file, "run", str),
            check_party_name(read_attribute(file, "party", str), f"{shown(path)}: 'party'", FormatError),
            read_attribute(file, "number", int),
            read_attribute(file, "previous", int),
            calls,
            file_digest(path),
        )
    if not calls:
        raise FormatError(f"{shown(path)}: key 'calls': asks nothing")
    return request


def write_message(path: Path, message: Message) -> None:
    """Write a message; equal messages are equal bytes.

    Parameters
    ----------
    path : Path
    message : Message
    """
    with create_h5(path, _MESSAGE) as file:
        file.attrs["run"], file.attrs["party"] = message.run, message.party
        file.attrs["number"], file.attrs["request"] = message.number, message.request
        write_tree(file.create_group("answer"), message.answer)


def open_message(path: Path) -> Message:
    """Read a message.

    Parameters
    ----------
    path : Path

    Returns
    -------
    Message

    Raises
    ------
    FormatError
        If it is no message, or damaged.
    """
    with read_h5(path, _MESSAGE) as file:
        message = Message(
            read_attribute(file, "run", str),
            check_party_name(read_attribute(file, "party", str), f"{shown(path)}: 'party'", FormatError),
            read_attribute(file, "number", int),
            read_attribute(file, "request", str),
            read_tree(require_group(file, "answer")),
            file_digest(path),
        )
    for key, value in message.answer.items():
        if isinstance(value, np.ndarray) and value.dtype.kind == "f" and not np.isfinite(value).all():
            raise FormatError(f"{shown(path)}: key 'answer/{key}' holds NaN or infinity")
    return message
