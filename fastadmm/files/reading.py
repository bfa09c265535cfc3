"""Read whole small files, and JSON and TOML in them, whatever somebody has put there.

A pipe would be waited for without end, a number of thousands of digits and brackets
within brackets make Python's own readers raise what no caller expects: here each
is one line that names the file.
"""

from __future__ import annotations

import json
import os
import stat
import tomllib
from pathlib import Path
from typing import Any

from fastadmm.errors import FormatError, StorageError
from fastadmm.files.atomic import shown, storage_errors

__all__ = ["parse_json", "parse_toml", "read_bytes", "read_json", "read_toml", "require_regular"]

#: Files that are read as a whole are settings and records: far below this.
_MOST = 1 << 30


def require_regular(path: str | os.PathLike[str]) -> int:
    """Size of a regular file; pipes, sockets, devices and directories are refused, not waited for.

    Parameters
    ----------
    path : path

    Returns
    -------
    int
        Bytes.

    Raises
    ------
    StorageError
        Absent, not permitted, or not a regular file.
    """
    with storage_errors(path, "read"):
        status = os.stat(path)
    if stat.S_ISDIR(status.st_mode):
        raise StorageError(f"{shown(path)}: cannot read: is a directory, not a file")
    if not stat.S_ISREG(status.st_mode):
        raise StorageError(f"{shown(path)}: cannot read: not a regular file; save the data to a file first")
    return status.st_size


def read_bytes(path: str | os.PathLike[str], most: int = _MOST) -> bytes:
    """Content of a regular file of at most so many bytes.

    Parameters
    ----------
    path : path
    most : int
        A longer file is refused before it is read.

    Raises
    ------
    StorageError
        Absent, not permitted, or not a regular file.
    FormatError
        Longer than `most`.
    """
    size = require_regular(path)
    if size > most:
        raise FormatError(f"{shown(path)}: {size} bytes, but such a file has at most {most}")
    with storage_errors(path, "read"):
        return Path(path).read_bytes()


def parse_json(text: str | bytes, place: str) -> Any:
    """A JSON document.

    Parameters
    ----------
    text : str or bytes
        UTF-8.
    place : str
        What messages begin with: the file.

    Raises
    ------
    FormatError
        Not JSON, not UTF-8, nested too deeply, or with a number that is too long.
    """
    try:
        return json.loads(text if isinstance(text, str) else text.decode("utf-8"))
    except RecursionError:
        raise FormatError(f"{place}: not our JSON: brackets within brackets, too deep") from None
    except ValueError as error:  # also UnicodeDecodeError, and int() of too many digits
        raise FormatError(f"{place}: not JSON: {_reason(error)}") from None


def read_json(path: str | os.PathLike[str]) -> Any:
    """The JSON document in a file; see :func:`parse_json`.

    Parameters
    ----------
    path : path
    """
    return parse_json(read_bytes(path), shown(path))


def parse_toml(text: str | bytes, place: str) -> dict[str, Any]:
    """A TOML document; parameters and errors as in :func:`parse_json`."""
    try:
        return tomllib.loads(text if isinstance(text, str) else text.decode("utf-8-sig"))
    except RecursionError:
        raise FormatError(f"{place}: not our TOML: brackets within brackets, too deep") from None
    except UnicodeDecodeError:
        raise FormatError(f"{place}: not TOML: it is not UTF-8; save it as UTF-8 text") from None
    except ValueError as error:  # also TOMLDecodeError, and int() of too many digits
        raise FormatError(f"{place}: not TOML: {_reason(error)}") from None


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The TOML document in a file; see :func:`parse_json`.

    Parameters
    ----------
    path : path
    """
    return parse_toml(read_bytes(path), shown(path))


def _reason(error: ValueError) -> str:
    text = str(error)
    # Python's words on the matter name a function of the interpreter.
    return "a number of thousands of digits" if "integer string conversion" in text else text
