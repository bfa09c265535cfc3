"""Compiled kernels on disk with a digest: what a crash or a bad disk spoiled is compiled again, never run."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from numba.core.caching import IndexDataCacheFile

__all__ = ["CheckedCacheFile", "check_digests"]

_SIZE = hashlib.sha256().digest_size


class CheckedCacheFile(IndexDataCacheFile):
    """Numba's files of one kernel, each behind its SHA-256; a damaged one counts as absent."""

    def save(self, key: Any, data: Any) -> None:
        """Keep a compiled kernel; without room for it, it is compiled in every process."""
        with suppress(OSError):
            super().save(key, data)

    def _load_index(self) -> dict[Any, str]:
        try:
            raw = io.BytesIO(_read(self._index_path))
        except OSError:
            return {}
        if pickle.load(raw) != self._version:
            return {}
        stamp, overloads = pickle.loads(raw.read())
        return overloads if stamp == self._source_stamp else {}

    def _load_data(self, name: str) -> Any:
        return pickle.loads(_read(self._data_path(name)))

    @contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[io.BytesIO]:
        content = io.BytesIO()
        yield content
        raw = content.getvalue()
        temporary = f"{filepath}.tmp.{uuid.uuid4().hex[:16]}"
        try:
            with open(temporary, "wb") as file:
                file.write(hashlib.sha256(raw).digest() + raw)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, filepath)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise


def _read(path: str) -> bytes:
    """Content of a file, verified; an absent, unreadable or damaged one raises OSError, as Numba expects."""
    with open(path, "rb") as file:
        digest, raw = file.read(_SIZE), file.read()
    if hashlib.sha256(raw).digest() != digest:
        raise OSError(f"{path}: its digest is another")
    return raw


def check_digests(compiled: Any) -> None:
    """Let a compiled function keep its machine code in checked files.

    Parameters
    ----------
    compiled : numba dispatcher
        Made with ``cache=True``; nothing has been compiled yet.
    """
    file = compiled._cache._cache_file
    file.__class__ = CheckedCacheFile
    if compiled.py_func.__module__.startswith("fastadmm.kernels."):
        # Numba's stamp is a file's time, which every installation changes; the directory has a digest.
        file._source_stamp = None
