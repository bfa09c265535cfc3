"""Digests of small files: a changed manifest or configuration is refused, not believed."""

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fastadmm.errors import FastadmmError, FormatError
from fastadmm.files.atomic import shown, storage_errors

#: Key of the table ``provenance`` of a configuration with its digest.
SEAL = "settings"

_BLOCK = 1 << 20


def seal_of(document: Mapping[str, Any]) -> str:
    """Digest of a document's content, whatever its spelling."""
    text = json.dumps(document, sort_keys=True, ensure_ascii=True)
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def check_seal(document: Mapping[str, Any], seal: Any, place: str, remedy: str) -> None:
    """Refuse a document that was changed after it was sealed."""
    if seal is not None and seal != seal_of(document):
        raise FormatError(f"{place}: damaged, or changed since it was written (its digest differs); {remedy}")


@contextmanager
def damaged(path: Path, remedy: str, said: str = "damaged") -> Iterator[None]:
    """Say in one line that a file does not hold what it should, and what to do."""
    try:
        yield
    except FastadmmError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise FormatError(f"{shown(path)}: {said} ({error!r}); {remedy}") from None


def refuse_unknown(table: Mapping[str, Any], known: Iterable[str], place: str) -> None:
    """Refuse keys that no version wrote: a damaged key would silently drop what it held."""
    names = tuple(known)
    for key in table:
        if key not in names:
            raise FormatError(f"{place}: unknown key {key!r}; known: {', '.join(names)}; restore the file")


def get_key(table: Mapping[str, Any], key: str, kind: type, place: str) -> Any:
    """A value of a manifest, of the right type."""
    value = table.get(key)
    if not isinstance(value, kind) or isinstance(value, bool):
        what = "is missing" if value is None else f"is {type(value).__name__}, not {kind.__name__}"
        raise FormatError(f"{place}: key {key!r}: {what}")
    return value


#: In a schema: a whole number of one at least.
POSITIVE = "positive"


def check_table(table: Mapping[str, Any], schema: Mapping[str, Any], place: str) -> None:
    """Refuse a table that is not as a schema says: by key a type, the texts allowed, or a schema again.

    A key with a question mark may be missing.
    """
    refuse_unknown(table, [key.removesuffix("?") for key in schema], place)
    for key, wanted in schema.items():
        name = key.removesuffix("?")
        if name != key and name not in table:
            continue
        if isinstance(wanted, Mapping):
            check_table(get_key(table, name, dict, place), wanted, f"{place}: [{name}]")
        elif isinstance(wanted, tuple):
            if get_key(table, name, str, place) not in wanted:
                choices = ", ".join(wanted)
                raise FormatError(f"{place}: key {name!r}: {table[name]!r} is not one of {choices}")
        else:
            value = get_key(table, name, int if wanted is POSITIVE else wanted, place)
            if wanted is POSITIVE and value < 1:
                raise FormatError(f"{place}: key {name!r}: {value} is not positive")


#: How a line of a chained log ends.
_END = re.compile(rb', "digest": "([0-9a-f]{32})"\}$')


def chained(body: bytes, previous: str) -> tuple[bytes, str]:
    """A line of JSON with a digest of itself and of the line before, and that digest."""
    digest = hashlib.sha256(previous.encode() + body).hexdigest()[:32]
    return body + b', "digest": "' + digest.encode() + b'"}\n', digest


def unchained(line: bytes, previous: str) -> tuple[bytes, str]:
    """Inverse of :func:`chained`, without the line's end; what was changed is a ValueError."""
    end = _END.search(line, max(0, len(line) - 64))
    if end is None:
        raise ValueError("it has no digest")
    body = line[: end.start()]
    whole, digest = chained(body, previous)
    if whole[:-1] != line:
        raise ValueError("its digest is another: the line or one before it was changed")
    return body, digest


def digest_of_files(directory: Path, pattern: str = "*") -> dict[str, str]:
    """Digest of every file of a directory but hidden ones, by name."""
    names = sorted(path.name for path in directory.glob(pattern) if not path.name.startswith("."))
    return {name: _digest(directory / name) for name in names}


def check_files(directory: Path, digests: Mapping[str, str]) -> None:
    """Refuse a directory whose files are not those that were written."""
    for name, digest in digests.items():
        path = directory / name
        with storage_errors(path, "read"):
            if not path.is_file():
                raise FormatError(f"{shown(path)}: no such file, but it was written")
            if _digest(path) != digest:
                raise FormatError(f"{shown(path)}: checksum mismatch, the file is damaged")


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()
