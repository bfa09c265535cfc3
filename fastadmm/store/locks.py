"""Locks on open files, held until the descriptor is closed, by whatever way the process ends."""

from __future__ import annotations

import os
import sys

__all__ = ["lock"]


def lock(descriptor: int, *, wait: bool = True, shared: bool = False) -> bool:
    """Lock an open file for this descriptor.

    Parameters
    ----------
    descriptor : int
        Two descriptors that were opened apart exclude each other, also in one process.
    wait : bool
        Whether to wait for whoever holds it.
    shared : bool
        Whether others may hold a shared lock at the same time.

    Returns
    -------
    bool
        False if another holds it and `wait` is false.
    """
    # Imported here: neither module is there on every system, and most commands need no lock.
    if sys.platform == "win32":
        import msvcrt

        os.lseek(descriptor, 2**40, os.SEEK_SET)  # a byte that no file has, so that reading stays possible
        try:
            msvcrt.locking(descriptor, msvcrt.LK_LOCK if wait else msvcrt.LK_NBLCK, 1)
        except OSError:
            if wait:
                raise
            return False
        finally:
            os.lseek(descriptor, 0, os.SEEK_SET)
        return True
    import fcntl

    mode = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    try:
        fcntl.flock(descriptor, mode if wait else mode | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
