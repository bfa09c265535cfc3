"""The local engine: a thread pool whose results cannot depend on its size.

Every job is cut into pieces whose number depends on the data alone, each piece
writes to its own place, and partial sums are added in the order of the pieces.
Threads only decide who computes a piece, never what it contains.
"""

from __future__ import annotations

import itertools
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, Generic, TypeVar, cast

import numpy as np

from fastadmm.engine.free_cores import FREE_CORES
from fastadmm.engine.rows import NUMBA_THREADS, over_rows, over_sums

__all__ = ["Engine", "default_threads", "even_ranges", "fine_ranges", "light_ranges", "row_ranges"]

_T = TypeVar("_T")
_R = TypeVar("_R")

#: Overflow and its consequences are looked for where they matter, in objective and residuals.
_QUIET: Any = {"over": "ignore", "invalid": "ignore"}

#: What an item that another thread took is found as.
_TAKEN = object()

#: Rows per piece: large enough that handing it to a thread costs nothing in comparison.
ROWS_PER_PIECE = 8192

#: The same where a row costs only a few nanoseconds.
LIGHT_ROWS_PER_PIECE = 32768

#: The same where the pieces of a job need no interpreter.
FINE_ROWS_PER_PIECE = 4096

#: Numbers in two cache lines, which processors fetch together.
_CACHE_LINES = 16

#: At most this many pieces per job; more would only cost memory for partial sums.
MAX_PIECES = 16


def row_ranges(n_rows: int, max_pieces: int = MAX_PIECES) -> tuple[tuple[int, int], ...]:
    """Cut ``n_rows`` into consecutive ranges, the same for any number of threads.

    Parameters
    ----------
    n_rows : int
        Number of rows.
    max_pieces : int
        Upper limit on the number of ranges.

    Returns
    -------
    tuple of (int, int)
        Half-open ranges that cover ``0 ... n_rows`` in order.
    """
    return even_ranges(n_rows, min(max_pieces, -(-n_rows // ROWS_PER_PIECE)))


@lru_cache(maxsize=256)
def even_ranges(n_rows: int, pieces: int) -> tuple[tuple[int, int], ...]:
    """Cut ``n_rows`` into ``pieces`` consecutive ranges, or into single rows if there are fewer.

    Returns
    -------
    tuple of (int, int)
        Half-open; at least one.
    """
    pieces = max(1, min(n_rows, pieces))
    bounds = [n_rows * k // pieces for k in range(pieces + 1)]
    return tuple(itertools.pairwise(bounds))


def light_ranges(n_rows: int) -> tuple[tuple[int, int], ...]:
    """As :func:`row_ranges` for a few nanoseconds of work per row: pieces worth waking a thread for.

    Parameters
    ----------
    n_rows : int
        Number of rows.
    """
    return even_ranges(n_rows, min(MAX_PIECES, n_rows // LIGHT_ROWS_PER_PIECE))


def fine_ranges(n_rows: int) -> tuple[tuple[int, int], ...]:
    """As :func:`row_ranges` for :meth:`Engine.over_rows`, which hands pieces over in a microsecond.

    Parameters
    ----------
    n_rows : int
        Number of rows.
    """
    return even_ranges(n_rows, min(MAX_PIECES, n_rows // FINE_ROWS_PER_PIECE))


@lru_cache(maxsize=256)
def _bounds(ranges: tuple[tuple[int, int], ...]) -> np.ndarray:
    return np.array([ranges[0][0], *(stop for _, stop in ranges)], dtype=np.int64)


def default_threads() -> int:
    """The cores that this process may use, by its affinity, cgroup and environment.

    ``OMP_NUM_THREADS`` and ``NUMBA_NUM_THREADS`` are limits too. With them joblib's processes
    share the cores, so that ``n_jobs=-1`` does not mean as many threads in each.
    """
    import joblib

    limits = [joblib.cpu_count()]
    for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
        number = os.environ.get(name, "").partition(",")[0].strip()  # OpenMP takes a list, by nesting
        if number.isdecimal() and int(number) > 0:
            limits.append(int(number))
    return min(limits)


class _BlasLimit:
    """Knows who needs BLAS held to one thread; looks up the libraries only once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders: dict[object, int] = {}  # with their threads
        self._controller: Any = None
        self._limit: Any = None

    def acquire(self, holder: object) -> None:
        """Set the limit, if this is the first to need it."""
        with self._lock:
            self._holders[holder] = threading.get_ident()
            if self._limit is None:
                if self._controller is None:
                    import scipy.linalg  # noqa: F401 (loads SciPy's own BLAS before the look-up)
                    from threadpoolctl import ThreadpoolController

                    self._controller = ThreadpoolController()
                self._limit = self._controller.limit(limits=1, user_api="blas")

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
            if not self._holders and self._limit is not None:
                self._limit.restore_original_limits()
                self._limit = None

    def forget_threads(self) -> None:
        """In a forked process: other threads are gone, and their limits end with the next that ends here."""
        own = threading.get_ident()
        self._holders = {holder: thread for holder, thread in self._holders.items() if thread == own}

    @property
    def lock(self) -> Any:
        """Held while the limit changes."""
        return self._lock


_BLAS = _BlasLimit()

#: Locks that a fork in progress holds.
_HELD: list[Any] = []


def _before_fork() -> None:
    """Wait for locks that other threads hold: in the child they would never be free."""
    compiler = sys.modules.get("numba.core.compiler_lock")
    for lock in ([compiler.global_compiler_lock] if compiler is not None else []) + [_BLAS.lock]:
        lock.acquire()
        _HELD.append(lock)


def _after_fork() -> None:
    while _HELD:
        _HELD.pop().release()


def _in_child() -> None:
    _BLAS.forget_threads()
    NUMBA_THREADS.after_fork()
    _after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_in_child)


class _Job(Generic[_T, _R]):
    """Items of one :meth:`Engine.map`, shared by the threads that work on it."""

    def __init__(
        self, function: Callable[[_T], _R], items: list[_T], workers: int, inside: threading.local
    ) -> None:
        self._function, self._items, self._workers, self._inside = function, items, workers, inside
        self._open = dict.fromkeys(range(len(items)))  # taking one out is one step of the interpreter
        self._found: list[_R | None] = [None] * len(items)
        self._error: BaseException | None = None

    def work(self, worker: int) -> None:
        """Take items until none is left: first those that this worker has in its cache from the last job."""
        self._inside.active = True
        first = len(self._items) * worker // self._workers
        try:
            for k in itertools.chain(range(first, len(self._items)), range(first - 1, -1, -1)):
                if self._open.pop(k, _TAKEN) is None:
                    self._found[k] = self._function(self._items[k])
        finally:
            self._inside.active = False

    def help(self, worker: int) -> None:
        """As :meth:`work`, on a thread of the pool."""
        try:
            # Each thread has its own floating-point error state.
            with np.errstate(**_QUIET):
                self.work(worker)
        except BaseException as error:
            self._error = error
            self.stop()

    def stop(self) -> None:
        """No thread begins another item."""
        self._open.clear()

    def results(self) -> list[_R]:
        """In the order of the items; raises what a helper raised."""
        if self._error is not None:
            raise self._error
        return cast("list[_R]", self._found)


class Engine:
    """A pool of threads for kernels that release the interpreter lock.

    Parameters
    ----------
    n_threads : int or None
        Number of threads; None takes :func:`default_threads`.

    Notes
    -----
    While others keep cores busy, fewer threads compute: one that does not run would be waited for.

    Linear algebra libraries are held to one thread inside :meth:`limited`:
    their results depend on their own thread count, ours must not.
    """

    def __init__(self, n_threads: int | None = None) -> None:
        self.n_threads = max(1, default_threads() if n_threads is None else int(n_threads))
        self._pool: ThreadPoolExecutor | None = None
        self._inside = threading.local()

    def map(self, function: Callable[[_T], _R], items: Iterable[_T], parallel: bool = True) -> list[_R]:
        """Apply ``function`` to every item, in parallel; results in the order of the items.

        The caller works too, and each thread takes the next item that nobody
        has taken: a job too short for a sleeping thread to wake up in time
        costs what it costs the caller alone.

        A call from inside a job runs its items in turn on its thread, so
        a party that already has a thread to itself cannot wait for the pool.
        ``parallel=False`` does the same with items too short to share: they and
        all they call run in turn on the caller's thread, but for what :meth:`over_rows` hands over.
        """
        items = list(items)
        if self.n_threads == 1 or len(items) < 2 or self.inside or getattr(self._inside, "short", False):
            return [function(item) for item in items]
        if not parallel:
            self._inside.short = True
            try:
                return [function(item) for item in items]
            finally:
                self._inside.short = False
        alone: list[_R] = []
        while (workers := min(FREE_CORES.among(self.n_threads), len(items) - len(alone))) < 2:
            if len(alone) == len(items):
                return alone
            alone.append(function(items[len(alone)]))
        items = items[len(alone) :]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.n_threads - 1, thread_name_prefix="fastadmm")
        job = _Job(function, items, workers, self._inside)
        helpers = [self._pool.submit(job.help, k) for k in range(1, workers)]
        try:
            job.work(0)
        finally:
            job.stop()
            for helper in helpers:
                if not helper.cancel():
                    helper.result()
        return alone + job.results()

    def over_rows(self, kernel: Any, ranges: Sequence[tuple[int, int]], *arguments: Any) -> None:
        """Call ``kernel(*arguments, start, stop)`` for each range of rows, in parallel.

        For pieces from some hundredth of a millisecond on, which :meth:`map` takes too long to hand over.

        Parameters
        ----------
        kernel : compiled kernel
        ranges : sequence of (int, int)
            Consecutive rows.
        *arguments
            C-contiguous arrays and numbers.
        """
        threads = self._threads_for(ranges)
        if threads:
            over_rows(threads, kernel, _bounds(tuple(ranges)), *arguments)
        else:
            self.map(lambda rows: kernel(*arguments, *rows), ranges)

    def sum_over_rows(
        self, kernel: Any, ranges: Sequence[tuple[int, int]], shape: tuple[int, ...], *arguments: Any
    ) -> np.ndarray:
        """Sum of what ``kernel(*arguments, out, start, stop)`` adds to ``out`` for each range, in order.

        Parameters
        ----------
        kernel, ranges, *arguments
            As in :meth:`over_rows`.
        shape : tuple of int
            Of ``out``, which is zero before. One that has one dimension may be longer for the kernel.

        Returns
        -------
        ndarray of the given shape
        """
        # So far apart that no two threads write to one cache line.
        room = (-(-shape[0] // _CACHE_LINES) * _CACHE_LINES,) if len(shape) == 1 else shape
        own = np.zeros((len(ranges), *room))
        threads = self._threads_for(ranges)
        if threads:
            over_sums(threads, kernel, _bounds(tuple(ranges)), own, *arguments)
        else:
            self.map(lambda k: kernel(*arguments, own[k], *ranges[k]), range(len(ranges)))
        total = own[0] if len(own) == 1 else own[0].copy()
        for more in own[1:]:
            total += more
        return total[: shape[0]]

    def _threads_for(self, ranges: Sequence[tuple[int, int]]) -> int:
        """How many threads share a kernel's pieces by its address; 0 where they go through :meth:`map`."""
        from fastadmm.kernels.pieces import COMPILED

        if not COMPILED:
            return 0
        if self.n_threads == 1 or len(ranges) < 2 or self.inside:
            return 1
        threads = FREE_CORES.among(self.n_threads)
        if threads == 1 or NUMBA_THREADS.share:
            return threads
        return 0 if ranges[-1][1] - ranges[0][0] >= 2 * LIGHT_ROWS_PER_PIECE else 1

    @property
    def inside(self) -> bool:
        """Whether this thread is inside a job of :meth:`map`, where nothing runs in parallel to it."""
        return bool(getattr(self._inside, "active", False))

    @contextmanager
    def limited(self) -> Iterator[None]:
        """Hold BLAS and LAPACK to one thread, so that pieces alone decide every sum.

        The limit is the process's: it holds until the last of all engines that
        asked for it is done.
        """
        holder = object()
        try:
            _BLAS.acquire(holder)
            with np.errstate(**_QUIET):
                yield
        finally:
            _BLAS.release(holder)

    def close(self) -> None:
        """Stop the threads; a later :meth:`map` starts new ones."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()
