"""The local engine: a thread pool whose results cannot depend on its size.

Every job is cut into pieces whose number depends on the data alone, each piece
writes to its own place, and partial sums are added in the order of the pieces.
Threads only decide who computes a piece, never what it contains.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import numpy as np

__all__ = ["Engine", "row_ranges"]

_T = TypeVar("_T")
_R = TypeVar("_R")

#: Overflow and its consequences are looked for where they matter, in objective and residuals.
_QUIET: Any = {"over": "ignore", "invalid": "ignore"}

#: Rows per piece: large enough that handing it to a thread costs nothing in comparison.
ROWS_PER_PIECE = 8192

#: At most this many pieces per job; more would only cost memory for partial sums.
MAX_PIECES = 16


def row_ranges(n_rows: int, max_pieces: int = MAX_PIECES) -> list[tuple[int, int]]:
    """Cut ``n_rows`` into consecutive ranges, the same for any number of threads.

    Parameters
    ----------
    n_rows : int
        Number of rows.
    max_pieces : int
        Upper limit on the number of ranges.

    Returns
    -------
    list of (int, int)
        Half-open ranges that cover ``0 ... n_rows`` in order.
    """
    pieces = max(1, min(max_pieces, -(-n_rows // ROWS_PER_PIECE)))
    bounds = [n_rows * k // pieces for k in range(pieces + 1)]
    return list(itertools.pairwise(bounds))


class _BlasLimit:
    """Counts who needs BLAS held to one thread; looks up the libraries only once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._depth = 0
        self._controller: Any = None
        self._limit: Any = None

    def acquire(self) -> None:
        """Set the limit, if this is the first to need it."""
        with self._lock:
            self._depth += 1
            if self._depth == 1:
                if self._controller is None:
                    import scipy.linalg  # noqa: F401 (loads SciPy's own BLAS before the look-up)
                    from threadpoolctl import ThreadpoolController

                    self._controller = ThreadpoolController()
                self._limit = self._controller.limit(limits=1, user_api="blas")

    def release(self) -> None:
        """Restore what was before, if this is the last to need it."""
        with self._lock:
            self._depth -= 1
            if self._depth == 0:
                self._limit.restore_original_limits()


_BLAS = _BlasLimit()


class Engine:
    """A pool of threads for kernels that release the interpreter lock.

    Parameters
    ----------
    n_threads : int or None
        Number of threads; None takes every core this process may use.

    Notes
    -----
    Linear algebra libraries are held to one thread inside :meth:`limited`:
    their results depend on their own thread count, ours must not.
    """

    def __init__(self, n_threads: int | None = None) -> None:
        if n_threads is None:
            n_threads = (
                len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
            )
        self.n_threads = max(1, int(n_threads))
        self._pool: ThreadPoolExecutor | None = None
        self._inside = threading.local()

    def map(self, function: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
        """Apply ``function`` to every item, in parallel; results in the order of the items.

        A call from inside a worker runs its items in turn on that worker, so
        a party that already has a thread to itself cannot wait for the pool.
        """
        items = list(items)
        if self.n_threads == 1 or len(items) < 2 or getattr(self._inside, "active", False):
            return [function(item) for item in items]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.n_threads, thread_name_prefix="fastadmm")

        def work(item: _T) -> _R:
            self._inside.active = True
            try:
                # Each thread has its own floating-point error state.
                with np.errstate(**_QUIET):
                    return function(item)
            finally:
                self._inside.active = False

        return list(self._pool.map(work, items))

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Hold BLAS and LAPACK to one thread, so that pieces alone decide every sum.

        The limit is the process's: it holds until the last of all engines that
        asked for it is done.
        """
        _BLAS.acquire()
        try:
            with np.errstate(**_QUIET):
                yield
        finally:
            _BLAS.release()

    def close(self) -> None:
        """Stop the threads; a later :meth:`map` starts new ones."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()
