"""What belongs to the process, not to an engine: how many threads BLAS has, and what a fork leaves behind."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

import numpy as np

from fastadmm.engine.job import QUIET
from fastadmm.engine.rows import NUMBA_THREADS


class BlasLimit:
    """Knows who needs BLAS held to one thread; looks up the libraries only once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders: dict[object, int] = {}  # with their threads
        self._libraries: list[Any] | None = None
        self._before: list[tuple[Any, int]] | None = None  # whose threads come back

    def acquire(self, holder: object) -> None:
        """Set the limit, if this is the first to need it."""
        with self._lock:
            self._holders[holder] = threading.get_ident()
            if self._before is None:
                if self._libraries is None:
                    import scipy.linalg  # noqa: F401 (loads SciPy's own BLAS before the look-up)
                    from threadpoolctl import ThreadpoolController

                    self._libraries = ThreadpoolController().select(user_api="blas").lib_controllers
                # One by one: threadpoolctl's own limit looks up names and versions, every time.
                counts = [(library, library.num_threads) for library in self._libraries]
                self._before = [(library, number) for library, number in counts if number != 1]
                self._set([(library, 1) for library, _ in self._before])

    def is_held_here(self) -> bool:
        """Whether this thread holds the limit."""
        with self._lock:
            return threading.get_ident() in self._holders.values()

    def release(self, holder: object) -> None:
        """Restore what was before, if this is the last to need it; also in the middle of an interrupt."""
        try:
            self._release(holder)
        except BaseException:
            self._release(holder)
            raise

    def _release(self, holder: object) -> None:
        with self._lock:
            self._holders.pop(holder, None)
            if not self._holders and self._before is not None:
                self._set(self._before)
                self._before = None

    def _set(self, threads: list[tuple[Any, int]]) -> None:
        """Set each number: since threadpoolctl 3.8, OpenBLAS listens to one thread until that lets go."""
        for library, number in threads:
            let_go = getattr(library, "clear_controlling_thread", None)
            if let_go is not None:
                let_go(force=True)
            library.set_num_threads(number)
            if let_go is not None:
                let_go(force=True)

    def forget_threads(self) -> None:
        """In a forked process: other threads are gone, and their limits end with the next that ends here."""
        own = threading.get_ident()
        self._holders = {holder: thread for holder, thread in self._holders.items() if thread == own}

    @property
    def lock(self) -> Any:
        """Held while the limit changes."""
        return self._lock


BLAS = BlasLimit()


class OneBlasThread:
    """Holds BLAS to one thread, and NumPy's warnings back, in a ``with`` statement.

    A round has several: within another of the same thread there is nothing to do.
    """

    __slots__ = ("_errors",)

    def __enter__(self) -> None:
        self._errors = None
        if BLAS.is_held_here():
            return
        try:
            BLAS.acquire(self)
            self._errors = np.errstate(**QUIET)
            self._errors.__enter__()
        except BaseException:
            BLAS.release(self)
            raise

    def __exit__(self, *exc: Any) -> None:
        if self._errors is None:
            return
        try:
            self._errors.__exit__(*exc)
        finally:
            BLAS.release(self)


#: Locks that a fork in progress holds.
_HELD: list[Any] = []


def _before_fork() -> None:
    """Wait for locks that other threads hold: in the child they would never be free."""
    compiler = sys.modules.get("numba.core.compiler_lock")
    for lock in ([compiler.global_compiler_lock] if compiler is not None else []) + [BLAS.lock]:
        lock.acquire()
        _HELD.append(lock)


def _after_fork() -> None:
    while _HELD:
        _HELD.pop().release()


def _in_child() -> None:
    BLAS.forget_threads()
    NUMBA_THREADS.after_fork()
    _after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)
