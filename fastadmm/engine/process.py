"""What belongs to the process, not to an engine: how many threads BLAS has, and what a fork leaves behind."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from fastadmm.engine.rows import NUMBA_THREADS

#: Overflow and its consequences are looked for where they matter, in objective and residuals.
QUIET: Any = {"over": "ignore", "invalid": "ignore"}


class BlasLimit:
    """Knows which threads need BLAS held to one thread; looks up the libraries only once."""

    def __init__(self) -> None:
        self.lock = threading.Lock()  # held while the limit changes
        self._holders: set[int] = set()
        self._libraries: list[Any] | None = None
        self._before: list[tuple[Any, int]] | None = None  # whose threads come back

    def acquire(self, holder: int) -> None:
        """Set the limit, if this is the first to need it."""
        with self.lock:
            self._holders.add(holder)
            if self._before is None:
                if self._libraries is None:
                    import scipy.linalg  # noqa: F401 (loads SciPy's own BLAS before the look-up)
                    from threadpoolctl import ThreadpoolController

                    self._libraries = ThreadpoolController().select(user_api="blas").lib_controllers
                # One by one: threadpoolctl's own limit looks up names and versions, every time.
                counts = [(library, library.num_threads) for library in self._libraries]
                self._before = [(library, number) for library, number in counts if number != 1]
                self._set([(library, 1) for library, _ in self._before])

    def is_held_by(self, holder: int) -> bool:
        """Whether a thread holds the limit."""
        with self.lock:
            return holder in self._holders

    def release(self, holder: int) -> None:
        """Restore what was before, if this is the last to need it; also in the middle of an interrupt."""
        try:
            self._release(holder)
        except BaseException:
            self._release(holder)
            raise

    def _release(self, holder: int) -> None:
        with self.lock:
            self._holders.discard(holder)
            if not self._holders and self._before is not None:
                self._set(self._before)
                self._before = None

    def _set(self, threads: list[tuple[Any, int]]) -> None:
        """Set each number: since threadpoolctl 3.8, OpenBLAS listens to one thread until that lets go."""
        for library, number in threads:
            let_go = getattr(library, "clear_controlling_thread", lambda force: None)
            let_go(force=True)
            library.set_num_threads(number)
            let_go(force=True)

    def forget_threads(self) -> None:
        """In a forked process: other threads are gone, and their limits end with the next that ends here."""
        self._holders &= {threading.get_ident()}


BLAS = BlasLimit()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Hold BLAS to one thread, and NumPy's warnings back; within another of this thread nothing is to do."""
    holder = threading.get_ident()
    if BLAS.is_held_by(holder):
        yield
        return
    try:
        BLAS.acquire(holder)
        with np.errstate(**QUIET):
            yield
    finally:
        BLAS.release(holder)


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
