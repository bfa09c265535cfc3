"""Read whole small files, and JSON and TOML in them, whatever somebody has put there.

A pipe would be waited for without end, a number of thousands of digits and brackets
within brackets make Python's own readers raise what no caller expects: here each
is one line that names the file.
"""

import errno
import json
import math
import os
import stat
import time
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from fastadmm.errors import FormatError, StorageError
from fastadmm.files.atomic import shown, storage_errors

#: Files that are read as a whole are settings and records: far below this.
_MOST = 1 << 30

#: JSON takes some thirty times its size in memory.
_MOST_FOREIGN = 1 << 26


def require_regular(path: str | os.PathLike[str]) -> int:
    """Size of a regular file; pipes, sockets, devices and directories are refused, not waited for."""
    with storage_errors(path, "read"):
        status = os.stat(path)
    if stat.S_ISDIR(status.st_mode):
        raise StorageError(f"{shown(path)}: cannot read: is a directory, not a file: name a file in it")
    if not stat.S_ISREG(status.st_mode):
        raise StorageError(f"{shown(path)}: cannot read: not a regular file; save the data to a file first")
    return status.st_size


def is_directory(path: Path) -> bool:
    """Whether a path is a directory; a place that cannot be looked at is an error."""
    with storage_errors(path, "read"):
        return path.is_dir()


def read_bytes(path: str | os.PathLike[str], most: int = _MOST) -> bytes:
    """Content of a regular file of at most so many bytes."""
    size = require_regular(path)
    if size > most:
        raise FormatError(f"{shown(path)}: {size} bytes, but such a file has at most {most}")
    with storage_errors(path, "read"):
        return Path(path).read_bytes()


def json_of(text: str | bytes, *, foreign: bool = False) -> Any:
    """A JSON document; the one place that decodes any."""
    hooks: dict[str, Any] = {"object_pairs_hook": _table}
    if foreign:
        hooks |= {"parse_int": _whole, "parse_float": _finite, "parse_constant": _no_constant}
    try:
        document = json.loads(text if isinstance(text, str) else text.decode("utf-8"), **hooks)
        if foreign and _depth(document) > _DEEPEST:
            raise RecursionError
    except RecursionError:
        raise ValueError("brackets within brackets, too deep") from None
    if foreign:
        json.dumps(document, ensure_ascii=False).encode()  # refuses halves of characters, in any text
    return document


_DEEPEST = 64


def _table(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"key {next(name for name in table if names.count(name) > 1)!a} occurs twice")
    return table


def _whole(digits: str) -> int:
    if len(digits) > 308:
        raise ValueError(f"a whole number of {len(digits)} digits is no finite number")
    return int(digits)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:20]} is no finite number")
    return number


def _no_constant(word: str) -> float:
    raise ValueError(f"{word} is no JSON number: send null for a missing value")


def _depth(value: Any) -> int:
    """How many brackets are within each other."""
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(map(_depth, inner), default=0) if isinstance(value, (dict, list)) else 0


def parse_json(text: str | bytes, place: str, *, foreign: bool = False) -> Any:
    """A JSON document, or one line that says why there is none."""
    try:
        return json_of(text, foreign=foreign)
    except ValueError as error:  # also UnicodeError, and int() of too many digits
        raise FormatError(f"{place}: not JSON: {_reason(error)}") from None


def read_json(path: str | os.PathLike[str], *, foreign: bool = False) -> Any:
    """The JSON document in a file; see :func:`json_of`."""
    return parse_json(read_bytes(path, _MOST_FOREIGN if foreign else _MOST), shown(path), foreign=foreign)


def parse_toml(text: str | bytes, place: str) -> dict[str, Any]:
    """A TOML document."""
    try:
        return tomllib.loads(text if isinstance(text, str) else text.decode("utf-8-sig"))
    except RecursionError:
        raise FormatError(f"{place}: not our TOML: brackets within brackets, too deep") from None
    except UnicodeDecodeError:
        raise FormatError(f"{place}: not TOML: it is not UTF-8; save it as UTF-8 text") from None
    except ValueError as error:  # also TOMLDecodeError, and int() of too many digits
        raise FormatError(f"{place}: not TOML: {_reason(error)}") from None


def read_toml(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The TOML document in a file; see :func:`parse_json`."""
    return parse_toml(read_bytes(path), shown(path))


def _reason(error: ValueError) -> str:
    text = str(error)
    if isinstance(error, UnicodeDecodeError):
        return "it is not UTF-8 text"
    # Python's words on the matter name a function of the interpreter.
    return "a number of thousands of digits" if "integer string conversion" in text else text


_T = TypeVar("_T")

#: Errors that may be gone a moment later.
TRANSIENT = frozenset(
    {
        errno.EIO,
        errno.ESTALE,
        errno.EACCES,
        errno.EPERM,
        errno.EMFILE,
        errno.ENFILE,
        errno.EAGAIN,
        errno.EINTR,
    }
)

#: Seconds before each further attempt.
_PAUSES = (0.05, 0.5)


def retried(action: Callable[[], _T]) -> _T:
    """The result of an action that may meet a transient error."""
    for pause in _PAUSES:
        try:
            return action()
        except StorageError as error:
            if error.errno not in TRANSIENT:
                raise
            time.sleep(pause)
    return action()
