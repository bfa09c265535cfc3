"""Compiled kernels on disk with a digest: what a crash or a bad disk spoiled is compiled again, never run.

A digest keeps no enemy away. A file that somebody else can write to is not looked at: it would be run.
"""

from __future__ import annotations

import hashlib
import inspect
import io
import os
import pickle
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fastadmm.kernels.cache import belongs
from numba.core.caching import IndexDataCacheFile, _CacheLocator

_SIZE = hashlib.sha256().digest_size


class CheckedCacheFile(IndexDataCacheFile):
    """Numba's files of one kernel, each behind its SHA-256; a damaged one counts as absent."""

    #: The same files in places that are only read.
    _elsewhere: Sequence[CheckedCacheFile] = ()

    def load(self, key: Any) -> Any:
        """A compiled kernel, or None."""
        own = super().load(key)
        return own if own is not None else next((x for f in self._elsewhere if (x := f.load(key))), None)

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
            with open(temporary, "wb", opener=_for_others_to_read) as file:
                file.write(_digest(filepath, raw) + raw)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, filepath)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise


def _for_others_to_read(path: str, flags: int) -> int:
    return os.open(path, flags, 0o644)  # whatever the umask


def _read(path: str) -> bytes:
    """Content of a file, verified; what is absent, damaged or another's raises OSError, as Numba expects."""
    with open(path, "rb") as file:
        if not belongs(os.fstat(file.fileno())):
            raise OSError(f"{path}: others can write to it")
        digest, raw = file.read(_SIZE), file.read()
    if _digest(path, raw) != digest:
        raise OSError(f"{path}: its digest is another")
    return raw


def _digest(path: str, raw: bytes) -> bytes:
    """Digest of a file's content and of its name, with the version of the sources that it was made from."""
    name = os.path.basename(os.path.dirname(os.path.dirname(path))) + "/" + os.path.basename(path)
    return hashlib.sha256(name.encode() + b"\0" + raw).digest()


def subdirectory(function: Any) -> str:
    """Name of the directory in which Numba keeps a function's files, below the one that it is given."""
    return str(_CacheLocator.get_suitable_cache_subpath(inspect.getfile(function)))


def check_digests(compiled: Any, elsewhere: Sequence[Path] = ()) -> None:
    """Let a compiled function keep its machine code in checked files; without a cache nothing is done.

    ``compiled``: nothing has been compiled yet. ``elsewhere``: directories of such files that are only read.
    """
    file = getattr(compiled._cache, "_cache_file", None)
    if file is None:
        return
    file.__class__ = CheckedCacheFile
    if compiled.py_func.__module__.startswith("fastadmm.kernels."):
        # Numba's stamp is a file's time, which every installation changes; the directory has a digest.
        file._source_stamp = None
    base = file._index_name.removesuffix(".nbi")
    file._elsewhere = [CheckedCacheFile(str(place), base, file._source_stamp) for place in elsewhere]
