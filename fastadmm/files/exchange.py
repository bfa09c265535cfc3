"""Exchange two names in one step, so that there is no moment in which neither old nor new is there."""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

#: ``renameat2`` of Linux and ``renamex_np`` of macOS: the flag that exchanges.
_RENAME_EXCHANGE = 2
_AT_FDCWD = -100

#: The kernel or the file system cannot do it.
_UNABLE = {errno.ENOSYS, errno.EINVAL, errno.ENOTSUP, errno.EOPNOTSUPP}


def exchange(first: Path, second: Path) -> bool:
    """Exchange what two names stand for. Returns: false where the system cannot; then nothing has changed."""
    call = _system_call()
    if call is None or call(os.fsencode(first), os.fsencode(second)) == 0:
        return call is not None
    code = ctypes.get_errno()
    if code in _UNABLE:
        return False
    raise OSError(code, os.strerror(code), os.fspath(first), None, os.fspath(second))


@cache
def _system_call() -> Callable[[bytes, bytes], int] | None:
    if sys.platform not in ("linux", "darwin"):
        return None
    library = ctypes.CDLL(None, use_errno=True)
    try:
        function = library.renameat2 if sys.platform == "linux" else library.renamex_np
    except AttributeError:  # an older C library
        return None
    if sys.platform == "linux":
        return lambda a, b: int(
            function(_AT_FDCWD, ctypes.c_char_p(a), _AT_FDCWD, ctypes.c_char_p(b), _RENAME_EXCHANGE)
        )
    return lambda a, b: int(function(ctypes.c_char_p(a), ctypes.c_char_p(b), _RENAME_EXCHANGE))
