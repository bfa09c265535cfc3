"""Write completely or not at all: temporary name in the same directory, fsync, rename.

A reader never sees a half-written file or directory, also not after a crash or
on a full disk: until the rename there is only a hidden ``.NAME.WRITER.tmp``. The name tells
the process that writes it, so that whoever writes the same file next can remove what a killed one left.
Where the system can, two names are exchanged in one step: at no moment neither old nor new is there.
"""

import ctypes
import errno
import fnmatch
import hashlib
import json
import math
import os
import re
import secrets
import shutil
import socket
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TextIO

from fastadmm.errors import FastadmmError, StorageError
from fastadmm.files.escapes import csv_cell, printable
from fastadmm.files.modes import begin_file, finish_directory, set_mode

#: The flag that exchanges.
_EXCHANGE = 2

#: The kernel or the file system cannot do it.
_UNABLE = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}


def exchange(first: Path, second: Path) -> bool:
    """Exchange what two names stand for. Returns: false where the system cannot; then nothing has changed."""
    call = _system_call()
    if call is None:
        return False
    if call(os.fsencode(first), os.fsencode(second)) == 0:
        return True
    code = ctypes.get_errno()
    if code in _UNABLE:
        return False
    raise OSError(code, os.strerror(code), os.fspath(first), None, os.fspath(second))


@cache
def _system_call() -> Callable[[bytes, bytes], int] | None:
    """The system's function that exchanges two names, if it has one."""
    library: Any = ctypes.CDLL(None, use_errno=True) if sys.platform in ("linux", "darwin") else None
    if hasattr(library, "renameat2"):  # of Linux; -100: names that are relative count from here
        return lambda a, b: int(library.renameat2(-100, a, -100, b, _EXCHANGE))
    if hasattr(library, "renamex_np"):  # of macOS
        return lambda a, b: int(library.renamex_np(a, b, _EXCHANGE))
    return None


_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_DENIED = {errno.EACCES, errno.EPERM, errno.EROFS}


def shown(path: str | os.PathLike[str]) -> str:
    """Return the path as one printable line (a file name may hold a line break)."""
    return printable(os.fspath(path))


def storage_error(path: str | os.PathLike[str], error: OSError, action: str = "write") -> StorageError:
    """Translate an operating system error into one line with a remedy."""
    reason = os.strerror(error.errno) if error.errno else " ".join(str(error).split())
    if error.errno in _FULL:
        hint = "; the disk, quota or file size limit is exhausted: free some space or write elsewhere"
    elif error.errno in _DENIED:
        hint = f"; you may not {action} here: check the permissions"
    elif error.errno == errno.ENOTDIR:
        hint = "; a part of the path is a file"
    elif error.errno == errno.ENOENT:
        hint = "; check the path" if action == "read" else "; create the directory first"
    else:
        hint = ""
    result = StorageError(f"{shown(path)}: cannot {action}: {reason}{hint}")
    result.errno = error.errno
    return result


def refuse_parent(path: str | os.PathLike[str]) -> None:
    """Refuse a place whose directory is not there, or is a file."""
    parent = Path(os.path.realpath(path)).parent
    if not parent.is_dir():
        raise StorageError(f"{shown(path)}: cannot write: {shown(parent)} is no directory; create it first")


@contextmanager
def storage_errors(path: str | os.PathLike[str], action: str = "write") -> Iterator[None]:
    """Turn every :class:`OSError` of the block into a :class:`StorageError` naming `path`."""
    try:
        yield
    except FastadmmError:
        raise
    except OSError as error:
        raise storage_error(path, error, action) from error


def write_all(descriptor: int, raw: bytes) -> None:
    """Write bytes to an open file, all of them."""
    view = memoryview(raw)
    while view:
        view = view[os.write(descriptor, view) :]


def synchronise(path: Path) -> None:
    """Put a file's content, or the names in a directory, on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network and FUSE file systems cannot sync a directory; the rename is still atomic.
        if error.errno not in {errno.EINVAL, errno.ENOTSUP}:
            raise
    finally:
        os.close(descriptor)


def temporary_beside(target: Path) -> Path:
    """Hidden name beside a file, which tells whose it is: see :func:`remove_leftovers`."""
    # Bytes, not characters, count towards the 255 of a file name: keep only a readable beginning.
    return target.with_name(f".{target.name[:40]}.{_host()}-{os.getpid()}-{secrets.token_hex(4)}.tmp")


def _host() -> str:
    # Process numbers mean something on one machine only; several may share a file system.
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:6]


_WRITER = re.compile(r"\.(?P<host>[0-9a-f]{6})-(?P<pid>[0-9]+)-[0-9a-f]{8}\.tmp$")


def remove_leftovers(directory: Path, name: str | None = None) -> None:
    """Delete what killed processes of this machine left under temporary names."""
    with suppress(OSError):
        for entry in os.scandir(directory):
            found = _WRITER.search(entry.name)
            if found is None or not entry.name.startswith("." if name is None else f".{name[:40]}."):
                continue
            if found["host"] == _host() and not _alive(int(found["pid"])):
                _remove(Path(entry.path))


def _alive(pid: int) -> bool:
    if sys.platform == "win32":
        return True  # there a signal 0 ends the process
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True  # another user's process: not ours to judge
    return True


def _remove(path: Path) -> None:
    with suppress(OSError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


@contextmanager
def _replacing(
    path: str | os.PathLike[str],
    refuse: Callable[[Path], None],
    replace: Callable[[Path, Path], None],
) -> Iterator[tuple[Path, Path]]:
    """A temporary path to fill, and what it replaces when the block succeeds and nothing refuses."""
    # Through symbolic links: the rename replaces what the link points at, not the link.
    target = Path(os.path.realpath(path))
    with storage_errors(path):
        refuse(target)
        remove_leftovers(target.parent, target.name)
        temporary = temporary_beside(target)
        try:
            yield temporary, target
            refuse(target)
            replace(temporary, target)
        except BaseException:
            _remove(temporary)
            raise
        synchronise(target.parent)


@contextmanager
def atomic_file(path: str | os.PathLike[str], *, force: bool = True, shared: bool = False) -> Iterator[Path]:
    """Yield a temporary path to write; rename it to `path` when the block succeeds."""

    def refuse(target: Path) -> None:
        if target.is_dir():
            raise StorageError(f"{shown(path)}: cannot write: is a directory; give a file name")
        if not os.path.lexists(target):
            return
        if not force:
            raise StorageError(f"{shown(path)}: exists already; choose another name or pass --force")
        _refuse_elsewhere(path, target)
        if not target.is_file():  # a rename would put a file in the place of a device or a pipe
            raise StorageError(f"{shown(path)}: not replaced: it is no regular file; choose another name")

    with _replacing(path, refuse, os.replace) as (temporary, target):
        mode = begin_file(temporary, target, shared=shared)
        yield temporary
        set_mode(temporary, mode)
        synchronise(temporary)


def _refuse_elsewhere(path: str | os.PathLike[str], target: Path) -> None:
    """Refuse to replace what a symbolic link names in another directory; beside the link it may."""
    if os.path.islink(path) and target.parent != Path(os.path.realpath(Path(path).parent)):
        raise StorageError(f"{shown(path)}: not replaced: it is a link to {shown(target)}; give that name")


@contextmanager
def atomic_directory(
    path: str | os.PathLike[str],
    *,
    force: bool = False,
    marker: str | None = None,
    only: tuple[str, ...] | None = None,
    shared: bool = False,
) -> Iterator[Path]:
    """Yield a temporary sibling directory to fill; rename it to `path` when the block succeeds."""

    def refuse(target: Path) -> None:
        if not os.path.lexists(target):
            return
        if not target.is_dir():
            raise StorageError(f"{shown(path)}: exists already and is not a directory; choose another name")
        names = os.listdir(target)
        if names and not force:
            raise StorageError(f"{shown(path)}: exists already; choose another name or pass --force")
        # Even with force, never delete a directory that is not ours or holds somebody's other files.
        if names:
            _refuse_elsewhere(path, target)
        if names and marker is not None and marker not in names:
            raise StorageError(f"{shown(path)}: not replaced: it holds no {marker}; choose another name")
        for name in names:
            if only is not None and not any(fnmatch.fnmatchcase(name, pattern) for pattern in only):
                raise StorageError(
                    f"{shown(path)}: not replaced: it also holds {shown(name)}; move that away"
                )

    with _replacing(path, refuse, _replace_directory) as (temporary, target):
        temporary.mkdir(mode=0o777 if shared else 0o700)
        yield temporary
        finish_directory(temporary, target, shared=shared)
        for entry in sorted(temporary.rglob("*"), reverse=True):
            synchronise(entry)
        synchronise(temporary)


def _replace_directory(temporary: Path, target: Path) -> None:
    if not target.exists() or not os.listdir(target):
        os.rename(temporary, target)
        return
    # rename(2) does not replace a non-empty directory; where the system cannot exchange two names,
    # set the old one aside, and back if that fails.
    if exchange(temporary, target):
        _remove(temporary)
        return
    aside = temporary_beside(target)
    os.rename(target, aside)
    try:
        os.rename(temporary, target)
    except BaseException:
        os.rename(aside, target)
        raise
    _remove(aside)


def write_whole(path: str | os.PathLike[str], content: str | bytes, **how: bool) -> None:
    """Write a text in UTF-8, or bytes; `how` as of :func:`atomic_file`."""
    with atomic_file(path, **how) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def csv_file(path: str | os.PathLike[str], **how: bool) -> Iterator[TextIO]:
    """A file to write rows of CSV into; `how` as of :func:`atomic_file`."""
    with atomic_file(path, **how) as temporary, open(temporary, "w", encoding="utf-8", newline="") as file:
        yield file


def write_frame(path: str | os.PathLike[str], frame: Any, **how: bool) -> None:
    """Write a data frame as CSV, with :func:`~fastadmm.files.escapes.csv_cell` for every cell."""
    with csv_file(path, **how) as file:
        frame.map(csv_cell).to_csv(file, index=False)


def plain(value: Any, infinite: str | None = None) -> Any:
    """A value as JSON has it, without tuples; ``infinite`` stands for what is not finite."""
    if isinstance(value, dict):
        return {key: plain(item, infinite) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, infinite) for item in value]
    return infinite if isinstance(value, float) and not math.isfinite(value) else value


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write a JSON document, over an existing file too; it holds no infinity and no NaN."""
    write_whole(path, json.dumps(document, indent=2, allow_nan=False) + "\n")


def write_toml(path: Path, document: Mapping[str, Any]) -> None:
    """Write a TOML document."""
    import tomli_w

    write_whole(path, tomli_w.dumps(document))
