"""Threads that help with kernels: awake while jobs follow each other closely, asleep otherwise."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np

__all__ = ["NOBODY", "Crew", "address_of"]

#: So often a helper looks for a job before it goes to sleep: a few milliseconds.
_LOOKS = 200_000

#: Board of a crew without helpers.
NOBODY = np.empty(0, dtype=np.int64)


#: Addresses that were asked for, by kernel and kinds of arguments.
_ADDRESSES: dict[Any, int] = {}


def _kind(argument: Any) -> Any:
    """What decides for which types a kernel is compiled, found faster than Numba's own types."""
    if isinstance(argument, np.ndarray):
        return argument.dtype, argument.ndim, argument.flags.num
    if isinstance(argument, tuple):
        return tuple(map(_kind, argument))
    return type(argument)


def address_of(kernel: Any, arguments: tuple[Any, ...]) -> int:
    """Address of a kernel's machine code for arguments of given types; compiles it where needed.

    Parameters
    ----------
    kernel : Numba dispatcher
    arguments : tuple
        Arrays and numbers.

    Returns
    -------
    int
    """
    key = (kernel, *map(_kind, arguments))
    address = _ADDRESSES.get(key)
    if address is None:
        from numba import typeof

        types = tuple(typeof(argument) for argument in arguments)
        kernel.compile(types)
        compiled = kernel.overloads[types]
        address = int(compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name))
        _ADDRESSES[key] = address
    return address


class Crew:
    """Helpers that look at one board; see :mod:`fastadmm.kernels.crew`.

    Parameters
    ----------
    n_helpers : int

    Attributes
    ----------
    board : ndarray of int64
    process : int
        Where the threads are: they do not survive a fork.
    """

    def __init__(self, n_helpers: int) -> None:
        from fastadmm.kernels.crew import COMPILED, board_size, serve

        n_helpers = n_helpers if COMPILED else 0
        self.board = np.zeros(board_size(n_helpers + 1), dtype=np.int64)
        self.process, self._closed = os.getpid(), False
        self._bell = threading.Condition()
        self._asleep = 0
        if n_helpers:
            serve(self.board, 1, 1)  # compiled here, not by all helpers
        self._threads = [
            threading.Thread(target=self._help, args=(k + 1,), name=f"fastadmm-crew-{k + 1}", daemon=True)
            for k in range(n_helpers)
        ]
        try:
            for thread in self._threads:
                thread.start()
        except BaseException:
            self.close()
            raise

    def wake(self) -> None:
        """Wake whoever sleeps; a job that comes before they are up is done without them."""
        if self._asleep:
            with self._bell:
                self._bell.notify_all()

    def close(self) -> None:
        """End the threads."""
        from fastadmm.kernels.crew import NO_MORE

        self.board[0] = NO_MORE
        with self._bell:
            self._closed = True
            self._bell.notify_all()
        if self.process == os.getpid():  # else they are another's
            for thread in self._threads:
                if thread.ident is not None:
                    thread.join()

    def _help(self, worker: int) -> None:
        from fastadmm.kernels.crew import serve

        while not self._closed:
            serve(self.board, worker, _LOOKS)
            with self._bell:
                if not self._closed:
                    self._asleep += 1
                    self._bell.wait()
                    self._asleep -= 1
