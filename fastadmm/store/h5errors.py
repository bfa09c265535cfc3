"""What h5py raises, and what a version may be, as one line that names file and key."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager

from fastadmm.errors import FastadmmError, FormatError, StorageError
from fastadmm.files.atomic import shown, storage_error
from fastadmm.files.retry import TRANSIENT


@contextmanager
def h5_errors(path: str | os.PathLike[str], key: str = "/") -> Iterator[None]:
    """Turn what h5py raises while reading `key` into a :class:`FormatError` of one line."""
    try:
        yield
    except FastadmmError:
        raise
    except MemoryError as error:
        raise StorageError(f"{shown(path)}: key {key!r}: not enough memory to read it") from error
    except (OSError, KeyError, RuntimeError, ValueError, TypeError, AttributeError, OverflowError) as error:
        text = " ".join(str(error).split())
        # HDF5 hands on the system's error in its text only.
        told = re.search(r"errno = (\d+)", text)
        code = int(told[1]) if told else getattr(error, "errno", None)
        if code in TRANSIENT:
            raise storage_error(path, OSError(code, os.strerror(code)), "read") from error
        # "filter returned failure" is how HDF5 reports fletcher32 (and gzip) on reading.
        if any(word in text.lower() for word in ("fletcher32", "checksum", "filter returned failure")):
            reason = "checksum mismatch, the file is damaged; restore or convert it again"
        else:
            # HDF5's own words end with internals in brackets: keep what precedes them.
            reason = (
                f"damaged or truncated ({re.sub(r' ?[(].*', '', text)[:120]}); restore or convert it again"
            )
        raise FormatError(f"{shown(path)}: key {key!r}: {reason}") from error


def check_version(path: str | os.PathLike[str], found: str, known: tuple[str, ...], what: str) -> None:
    """Refuse an unknown format version."""
    if found in known:
        return
    try:
        number = tuple(int(part) for part in found.split("."))
        newest = max(tuple(int(part) for part in version.split(".")) for version in known)
    except ValueError:
        raise FormatError(f"{shown(path)}: {what}: {found!r} is not a version number") from None
    if number > newest:
        raise FormatError(
            f"{shown(path)}: {what}: version {found} is newer than this fastadmm reads ({', '.join(known)}); "
            "upgrade fastadmm"
        )
    raise FormatError(f"{shown(path)}: {what}: version {found} is unknown; known: {', '.join(known)}")
