"""Exclusive locks on open files, which the operating system releases when the process ends."""

import sys


def lock_file(descriptor: int, *, wait: bool) -> None:
    """Lock an open file for this process alone."""
    if sys.platform == "win32":
        import msvcrt

        try:
            msvcrt.locking(descriptor, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
        except PermissionError as error:
            raise BlockingIOError(*error.args) from None
    else:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
