"""Try again what a busy or flaky file system refused: such an error says nothing about the data."""

import errno
import time
from collections.abc import Callable
from typing import TypeVar

from fastadmm.errors import StorageError

T = TypeVar("T")

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


def retried(action: Callable[[], T]) -> T:
    """The result of an action that may meet a transient error."""
    for pause in _PAUSES:
        try:
            return action()
        except StorageError as error:
            if error.errno not in TRANSIENT:
                raise
            time.sleep(pause)
    return action()
