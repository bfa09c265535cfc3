"""Who may read or write what is written: its owner alone, whatever the umask, unless it was made for others.

Labels, features, weights, checkpoints and ledgers lie in files of mode 0600 and directories of mode
0700. What is made to be handed on (reports, cards, exports, answers) follows the umask. What is
replaced keeps the mode that its owner gave it.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path

_FILE, _DIRECTORY = 0o600, 0o700


def owner_only(path: str, flags: int) -> int:
    """An opener for :func:`open`: a file that it creates is its owner's alone."""
    return os.open(path, flags, _FILE)


def make_private(path: Path) -> None:
    """Make a directory, and those above it, for its owner alone; what is there keeps its mode."""
    if path.is_dir():
        return
    if path.parent != path:
        make_private(path.parent)
    with suppress(FileExistsError):
        path.mkdir(mode=_DIRECTORY)


def begin_file(temporary: Path, target: Path, *, shared: bool) -> int:
    """Create an empty file that will replace another one."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
    descriptor = os.open(temporary, flags, 0o666 if shared else _FILE)
    try:
        made = stat.S_IMODE(os.fstat(descriptor).st_mode) if shared else _FILE
    finally:
        os.close(descriptor)
    return _mode_of(target, made)


def finish_directory(temporary: Path, target: Path, *, shared: bool) -> None:
    """Give all in a directory the mode that it is to have."""
    for entry in [temporary, *temporary.rglob("*")]:
        if not entry.is_symlink():
            status = entry.stat()
            own = _DIRECTORY if stat.S_ISDIR(status.st_mode) else _FILE
            made = stat.S_IMODE(status.st_mode) if shared else own
            set_mode(entry, _mode_of(target / entry.relative_to(temporary), made))


def set_mode(path: Path, mode: int) -> None:
    """Give a file or directory its mode, where the file system knows modes."""
    if stat.S_IMODE(path.stat().st_mode) != mode:
        with suppress(PermissionError, NotImplementedError):
            path.chmod(mode)


def _mode_of(target: Path, otherwise: int) -> int:
    with suppress(OSError):
        return stat.S_IMODE(target.stat().st_mode) & 0o777
    return otherwise


def lock_file(descriptor: int, *, wait: bool) -> None:
    """Lock an open file for this process alone."""
    import fcntl

    fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
