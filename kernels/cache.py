"""Where compiled kernels are kept: one directory per module and version of its sources.

Numba looks at the file a kernel is written in, but not at the files whose
functions it inlines. So the name of the directory holds a digest of a module
and of all modules of ours that it imports: an edit anywhere among them makes a
new directory, and the kernels are compiled anew.

The first place that can be written to is taken:

1. ``NUMBA_CACHE_DIR``, where the environment names it;
2. ``__pycache__`` beside the kernels;
3. the user's cache directory (``XDG_CACHE_HOME`` or ``~/.cache``; ``~/Library/Caches``; ``LOCALAPPDATA``),
   for an installation that this user may not change.

Where none can, kernels are compiled in every process.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path

__all__ = ["cache_base", "cache_directory", "source_digest", "user_cache"]

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


@cache
def cache_base() -> Path | None:
    """Directory above those of the modules; None where no place can be written to."""
    named = os.environ.get("NUMBA_CACHE_DIR")
    places = [Path(named).absolute() / "fastadmm"] if named else []
    places.append(_HERE / "__pycache__" / "numba")
    with contextlib.suppress(RuntimeError):  # no home directory
        places.append(user_cache() / "fastadmm" / "numba")
    return next((place for place in places if _can_be_written(place)), None)


def _can_be_written(place: Path) -> bool:
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=place):
            return True
    except OSError:
        return False


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
