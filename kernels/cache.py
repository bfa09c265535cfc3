"""Where compiled kernels are kept: one directory per module and version of its sources.

Numba looks at the file a kernel is written in, but not at the files whose
functions it inlines. So the name of the directory holds a digest of a module
and of all modules of ours that it imports: an edit anywhere among them makes a
new directory, and the kernels are compiled anew.

What lies there is run, so a place counts only if nobody else can change it, as ssh wants of its files: it and
all directories above it belong to this user or to root, and others cannot write to them. The first such
place that can be written to is taken:

1. ``NUMBA_CACHE_DIR``, where the environment names it;
2. ``__pycache__`` beside the kernels;
3. the user's cache directory (``XDG_CACHE_HOME`` or ``~/.cache``; ``~/Library/Caches``; ``LOCALAPPDATA``),
   for an installation that this user may not change.

Where none can, kernels are compiled in every process. From such a place that can only be read, as in an
image, compiled kernels are taken too, where there is also one to write to.
"""

import contextlib
import hashlib
import os
import re
import shutil
import stat
import sys
import tempfile
from functools import cache
from pathlib import Path

_HERE = Path(__file__).resolve().parent

#: Versions of a module's compiled kernels that are kept, newest first.
_KEPT = 8

_IMPORT = re.compile(r"^\s*(?:from|import)\s+fastadmm\.kernels\.(\w+)", re.MULTILINE)


def user_cache() -> Path:
    """The user's directory for what can be made again, whether it exists or not."""
    if sys.platform == "win32":
        named = os.environ.get("LOCALAPPDATA")
        return Path(named) if named else Path.home() / "AppData" / "Local"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    named = os.environ.get("XDG_CACHE_HOME")
    # Relative values are to be ignored (XDG base directory specification).
    return Path(named) if named and os.path.isabs(named) else Path.home() / ".cache"


def _places() -> list[Path]:
    named = os.environ.get("NUMBA_CACHE_DIR")
    places = [Path(named).absolute() / "fastadmm"] if named else []
    places.append(_HERE / "__pycache__" / "numba")
    with contextlib.suppress(RuntimeError):  # no home directory
        places.append(user_cache() / "fastadmm" / "numba")
    return places


@cache
def cache_base() -> Path | None:
    """Directory above those of the modules; None where no place can be written to, by this user alone."""
    places = _places()
    base = next((place for place in places if make_safe(place) and _can_be_written(place)), None)
    named = "NUMBA_CACHE_DIR" in os.environ and places[0] != base and not is_safe(places[0])
    if named or base is None:
        why = f"{places[0]}: no place for compiled kernels that you alone can write to"
        kept = "they are compiled in every process" if base is None else f"they are kept in {base}"
        print(f"fastadmm: {ascii(why)[1:-1]}; {kept}", file=sys.stderr)
    return base


@cache
def make_safe(place: Path) -> bool:
    """Make a directory, unless it is there; whether nobody else can change what is in it."""
    try:
        if not place.is_dir():
            if not make_safe(place.parent):
                return False
            with contextlib.suppress(FileExistsError):
                place.mkdir(mode=0o755)
        return is_safe(place)
    except OSError:
        return False


def is_safe(place: Path) -> bool:
    """Whether a directory is there, and nobody else can change what is in it."""
    try:
        real = place.resolve(strict=True)
        return real.is_dir() and all(map(_is_own, [real, *real.parents]))
    except (OSError, RuntimeError):
        return False


def _is_own(directory: Path) -> bool:
    status = directory.stat()
    # Of a directory with the sticky bit, as /tmp, nobody can move away what belongs to another.
    return belongs(status) or (status.st_uid == 0 and bool(status.st_mode & stat.S_ISVTX))


def belongs(status: os.stat_result) -> bool:
    """Whether a file or directory is this user's or root's, and nobody else can write to it."""
    if sys.platform == "win32":
        return True  # a user's folders are closed there
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & stat.S_IWOTH:
        return False
    return not status.st_mode & stat.S_IWGRP or _is_alone(status.st_gid)


def _is_alone(group: int) -> bool:
    """Whether a group is the user's own, with nobody else in it."""
    import grp
    import pwd

    with contextlib.suppress(KeyError):
        user, found = pwd.getpwuid(os.geteuid()), grp.getgrgid(group)
        return user.pw_gid == group and found.gr_name == user.pw_name and not {*found.gr_mem} - {user.pw_name}
    return False


def _can_be_written(place: Path) -> bool:
    try:
        with tempfile.TemporaryFile(dir=place):
            return True
    except OSError:
        return False


@cache
def readable_directories(module: str) -> list[Path]:
    """Directories with compiled kernels of a module, by its last name, in places that are only read."""
    name = f"{module}-{source_digest(module)}"
    others = [place for place in _places() if place != cache_base()]
    return [p / name for p in others if is_safe(p / name) and not _can_be_written(p)]


@cache
def source_digest(module: str) -> str:
    """Digest of a module of this package, by its last name, and of all that it imports from here."""
    files: dict[str, bytes] = {}
    left = [module]
    while left:
        name = left.pop()
        path = _HERE / f"{name}.py"
        if name not in files and path.is_file():
            files[name] = path.read_bytes()
            left += _IMPORT.findall(files[name].decode("utf-8"))
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(f"{name} {len(files[name])}\n".encode() + files[name])
    return digest.hexdigest()[:16]


@cache
def cache_directory(module: str) -> Path | None:
    """Directory for the compiled kernels of a module, by its last name; None where nothing can be kept."""
    base = cache_base()
    if base is None:
        return None
    directory = base / f"{module}-{source_digest(module)}"
    if not directory.exists():
        _forget_old(base, module)
    return directory


def _forget_old(base: Path, module: str) -> None:
    """Remove what long gone versions of a module left."""
    with contextlib.suppress(OSError):
        old = [path for path in base.glob(f"{module}-*") if re.fullmatch(r"\w+-[0-9a-f]{16}", path.name)]
        for path in sorted(old, key=lambda path: path.stat().st_mtime, reverse=True)[_KEPT - 1 :]:
            shutil.rmtree(path, ignore_errors=True)
