"""The local engine: a thread pool whose results cannot depend on its size.

Every job is cut into leaves whose number depends on the data alone, and their
sums are added by halves: see :mod:`fastadmm.engine.tree`. Threads only decide who
computes a leaf, never what it contains. All sums over rows go through an engine;
one whose rows are on several machines (:mod:`fastadmm.cluster`) adds theirs by the same tree.
"""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from fastadmm.engine.free_cores import FREE_CORES
from fastadmm.engine.process import QUIET, one_blas_thread
from fastadmm.engine.rows import NUMBA_THREADS, address_of, compiled, over_rows, over_sums
from fastadmm.engine.spilled import SpilledRows
from fastadmm.engine.tree import (
    SOME_LEAVES,
    Ranges,
    add_by_halves,
    even_ranges,
    halved,
    leaves_of,
    sum_leaves,
)
from fastadmm.engine.vectors import CACHE_LINES, VectorWork

_T = TypeVar("_T")
_R = TypeVar("_R")

#: Rows per piece: large enough that handing it to a thread costs nothing in comparison.
ROWS_PER_PIECE = 8192

#: Memory that the leaves' sums of a Gram matrix would take together, in bytes: it limits their number.
SUMS_BUDGET = 256 * 2**20

#: Memory for partial sums of a job that wait for each other, in bytes; each thread holds one in any case.
_WAITING_SUMS = 16 * 2**20

#: Pieces of a job that Python hands over, where there are leaves for more but not threads.
_FEW_PIECES = 32

#: At most this many pieces of jobs that write to every row and sum nothing over rows.
MAX_PIECES = 16


def row_ranges(n_rows: int, max_pieces: int = MAX_PIECES) -> tuple[tuple[int, int], ...]:
    """Cut ``n_rows`` into consecutive ranges, the same for any number of threads."""
    return even_ranges(n_rows, min(max_pieces, -(-n_rows // ROWS_PER_PIECE)))


def borders(ranges: Ranges) -> np.ndarray:
    """Where consecutive ranges begin, and the end of the last: kernels that have pieces take them so."""
    return np.array([ranges[0][0], *(stop for _, stop in ranges)], dtype=np.int64)


@lru_cache(maxsize=1024)
def _cut(n_rows: int, entries: float, work: float, fewest: int) -> Ranges:
    return halved(n_rows, leaves_of(n_rows, entries, work, fewest))


def _power_of_two(number: int) -> int:
    """The largest that is at most a number; at least 1."""
    return 1 << max(0, int(number).bit_length() - 1)


@lru_cache(maxsize=16)
def _cores(affinity: frozenset[int] | None, most: str | None) -> int:
    """Cores of the process, by affinity and quota; to count them takes as long as a small fit."""
    import joblib

    return int(joblib.cpu_count())  # joblib knows the arguments


def default_threads(processes: int = 1) -> int:
    """The cores that this process may use, by its affinity, cgroup and environment."""
    affinity = frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
    limits = [max(1, _cores(affinity, os.environ.get("LOKY_MAX_CPU_COUNT")) // processes)]
    for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):
        number = os.environ.get(name, "").partition(",")[0].strip()  # OpenMP takes a list, by nesting
        if number.isdecimal() and int(number) > 0:
            limits.append(int(number))
    return min(limits)


class Stopped(Exception):
    """Whoever waits for long work wants no more of it: see :meth:`Engine.check`."""


class Engine(VectorWork):
    """A pool of threads for kernels that release the interpreter lock."""

    first_row = 0
    few_leaves = 4
    spilled: SpilledRows | None = None
    shares_rows = False
    should_stop: Callable[[], bool] | None = None

    def __init__(self, n_threads: int | None = None) -> None:
        self.n_threads = max(1, default_threads() if n_threads is None else int(n_threads))
        self._pool: ThreadPoolExecutor | None = None
        self._inside = threading.local()

    def check(self) -> None:
        """Raise :exc:`Stopped` where the run is to end; for long work that leaves nothing half done."""
        if self.should_stop is not None and self.should_stop():
            raise Stopped

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
        return self._shared(function, items, parallel)

    def in_turn(self, function: Callable[[_T], _R], items: Iterable[_T]) -> list[_R]:
        """Apply ``function`` to every item, one after another, each with all threads."""
        return [function(item) for item in items]

    def _shared(self, function: Callable[[_T], _R], items: Iterable[_T], parallel: bool = True) -> list[_R]:
        """:meth:`map` of what asks nobody for a sum over rows."""
        items = list(items)
        if self.n_threads == 1 or len(items) < 2 or self.inside or getattr(self._inside, "short", False):
            return [function(item) for item in items]
        if not parallel:
            self._inside.short = True
            try:
                return [function(item) for item in items]
            finally:
                self._inside.short = False
        workers = min(FREE_CORES.among(self.n_threads), len(items))
        if workers < 2:
            return [function(item) for item in items]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.n_threads - 1, thread_name_prefix="fastadmm")
        # Taking the next number is one step of the interpreter.
        left, found = iter(range(len(items))), dict[int, _R]()

        def work() -> None:
            self._inside.active = True
            try:
                with np.errstate(**QUIET):  # each thread has its own floating-point error state
                    for k in left:
                        found[k] = function(items[k])
            finally:
                self._inside.active = False
                for _ in left:  # after an error no thread begins another
                    pass

        helpers = [self._pool.submit(work) for _ in range(workers - 1)]
        try:
            work()
        finally:
            helpers = [helper for helper in helpers if not helper.cancel()]
            wait(helpers)
        for helper in helpers:
            helper.result()
        return [found[k] for k in range(len(items))]

    def over_rows(self, kernel: Any, ranges: Sequence[tuple[int, int]], *arguments: Any) -> None:
        """Call ``kernel(*arguments, start, stop)`` for each range of rows, in parallel.

        For pieces from some hundredth of a millisecond on, which :meth:`map` takes too long to hand over.
        """
        self._by_portions(lambda part: self._over_rows(kernel, part, arguments), ranges, *arguments)

    def _by_portions(self, work: Callable[[Any], object], ranges: Any, *things: Any) -> None:
        """Give ranges to a function: all, or with spilled rows as many at a time as may be in memory."""
        spilled = self._spilled_among(*things)
        if spilled is None:
            work(ranges)
        else:
            spilled.by_portions(work, ranges, self.n_threads)

    def _spilled_among(self, *things: Any) -> SpilledRows | None:
        """The vectors in a scratch file, if a job's arguments or functions know one of them."""
        return self.spilled if self.spilled is not None and self.spilled.among(things) else None

    def _over_rows(self, kernel: Any, ranges: Sequence[tuple[int, int]], arguments: tuple[Any, ...]) -> None:
        self._share_out(
            ranges,
            lambda k: kernel(*arguments, *ranges[k]),
            lambda threads: over_rows(threads, kernel, borders(tuple(ranges)), *arguments),
        )

    def _share_out(
        self,
        ranges: Sequence[tuple[int, int]],
        one: Callable[[int], None],
        among: Callable[[int], None],
    ) -> None:
        """Have one range after the other computed, or all of them among so many of Numba's threads."""
        threads = self._threads_for(ranges)
        if threads == 1 and len(ranges) <= self.few_leaves:
            for k in range(len(ranges)):
                one(k)
        elif threads:
            among(threads)
        else:
            self._shared(one, range(len(ranges)))

    def sum_over_rows(
        self, kernel: Any, ranges: Ranges, shape: tuple[int, ...], *arguments: Any
    ) -> np.ndarray:
        """Sum of what ``kernel(*arguments, out, start, stop)`` adds to ``out`` for each leaf."""
        return self._across(self.kernel_parts(kernel, ranges, shape, *arguments))

    def kernel_parts(self, kernel: Any, ranges: Ranges, shape: tuple[int, ...], *arguments: Any) -> list[Any]:
        """What :meth:`sum_over_rows` adds up, for :meth:`together`."""
        return [self._leaf_sums(kernel, leaves, shape, arguments) for leaves in self._nodes(ranges)]

    def returned_parts(self, kernel: Any, ranges: Ranges, size: int, *arguments: Any) -> list[Any]:
        """What ``kernel(*arguments, start, stop)`` returns, added up over leaves, for :meth:`together`."""
        if self._spilled_among(*arguments) is not None or self._threads_for(ranges) < 2:
            return self.parts(lambda rows: kernel(*arguments, *rows), ranges)
        from fastadmm.kernels.pieces import add_returned

        given = address_of(kernel, (*arguments, 0, 0)), arguments
        sums = self.kernel_parts(add_returned, ranges, (2,), *given)
        return [float(own[0]) if size == 1 else tuple(own.tolist()) for own in sums]

    def together(self, *parts: list[Any]) -> tuple[Any, ...]:
        """Several sums that travel together, from :meth:`kernel_parts` and :meth:`parts`."""
        return tuple(self._across(list(zip(*parts))))

    def _leaf_sums(
        self, kernel: Any, leaves: Ranges, shape: tuple[int, ...], arguments: tuple[Any, ...]
    ) -> np.ndarray:
        """Sum over the leaves of a node, so many at a time as there is memory for."""
        if len(leaves) == 1 <= self.few_leaves:
            own = np.zeros(shape)
            kernel(*arguments, own, *leaves[0])
            return own
        # So far apart that no two threads write to one cache line.
        room = (-(-shape[0] // CACHE_LINES) * CACHE_LINES,) if len(shape) == 1 else shape
        numbers = max(1, math.prod(room))
        group = min(len(leaves), self._at_once(numbers))
        spilled = self._spilled_among(*arguments)
        if spilled is not None:
            group = min(group, spilled.portion(leaves, self.n_threads))

        def sums(k: tuple[int, int]) -> np.ndarray:
            part = leaves[k[0] : k[1]]
            own = np.empty((len(part), *room))
            with nullcontext() if spilled is None else spilled.held(part):
                self._into_leaves(kernel, part, own, *arguments)
            while len(own) > 1:
                own = own[::2] + own[1::2]
            return own[0]

        if group == len(leaves):
            return sums((0, group))[: shape[0]]
        return sum_leaves(sums, halved(len(leaves), len(leaves) // group))[: shape[0]]

    def _into_leaves(self, kernel: Any, leaves: Ranges, own: np.ndarray, *arguments: Any) -> None:
        """Call ``kernel(*arguments, own[k], start, stop)``, own[k] zero whatever was there, for each leaf."""

        def one(j: int) -> None:
            own[j] = 0.0
            kernel(*arguments, own[j], *leaves[j])

        among = lambda threads: over_sums(threads, kernel, borders(leaves), own, *arguments)  # noqa: E731
        self._share_out(leaves, one, among)

    def _at_once(self, numbers: int) -> int:
        """How many partial sums of so many numbers wait for each other; the result does not depend on it."""
        return max(_power_of_two(_WAITING_SUMS // (8 * numbers)), _power_of_two(2 * self.n_threads - 1))

    def leaves(
        self, n_rows: int, entries: float = 0.0, work: float = math.inf, fewest: int = SOME_LEAVES
    ) -> Ranges:
        """Cut the rows that are here into leaves."""
        return _cut(n_rows, entries, work, fewest)

    def all_rows(self, n_rows: int) -> int:
        """How many rows there are in all where so many are here."""
        return n_rows

    def _nodes(self, leaves: Ranges) -> list[Ranges]:
        """Leaves by the nodes of the tree that are here."""
        return [leaves]

    def _across(self, nodes: list[Any]) -> Any:
        """Sum over all rows from the sums of the nodes that are here."""
        (total,) = nodes
        return total

    def sums(self, function: Callable[[tuple[int, int]], Any], ranges: Ranges, size: int = 1) -> Any:
        """Sum of what a function gives for each leaf: a number, an array, or a tuple of them."""
        return self._across(self.parts(function, ranges, size))

    def parts(self, function: Callable[[tuple[int, int]], Any], ranges: Ranges, size: int = 1) -> list[Any]:
        """What :meth:`sums` adds up, for :meth:`together`."""
        if len(ranges) == 1:
            return [function(ranges[0])]
        return [self._node_sum(function, leaves, size) for leaves in self._nodes(ranges)]

    def _node_sum(self, function: Callable[[tuple[int, int]], Any], leaves: Ranges, size: int) -> Any:
        spilled = self._spilled_among(function)
        if spilled is None:
            return self._part_sum(function, leaves, size)
        most = spilled.portion(leaves, self.n_threads)

        def group(part: tuple[int, int]) -> Any:
            with spilled.held(leaves[slice(*part)]) as own:
                return self._part_sum(function, own, size)

        return sum_leaves(group, halved(len(leaves), max(1, len(leaves) // most)))

    def _part_sum(self, function: Callable[[tuple[int, int]], Any], leaves: Ranges, size: int) -> Any:
        if len(leaves) == 1:
            return function(leaves[0])
        # Handing over takes the interpreter, which one thread has at a time: so many that all are busy.
        most = max(_FEW_PIECES, _power_of_two(2 * self.n_threads - 1))
        pieces = min(len(leaves), self._at_once(size), most)
        cut = halved(len(leaves), pieces)
        return add_by_halves(self._shared(lambda part: sum_leaves(function, leaves[slice(*part)]), cut))

    def by_leaf(self, function: Callable[[tuple[int, int]], None], ranges: Ranges) -> None:
        """Call a function for every leaf: last digits of products by BLAS depend on where rows begin."""
        self._by_portions(lambda part: self._shared(function, part), ranges, function)

    def _threads_for(self, ranges: Sequence[tuple[int, int]]) -> int:
        """How many threads share a kernel's pieces by its address; 0 where they go through :meth:`map`."""
        if not compiled():
            return 0
        if self.n_threads == 1 or len(ranges) < 2 or self.inside:
            return 1
        threads = FREE_CORES.among(self.n_threads)
        if threads == 1 or NUMBA_THREADS.share:
            return threads
        return 0 if ranges[-1][1] - ranges[0][0] >= 8 * ROWS_PER_PIECE else 1

    @property
    def inside(self) -> bool:
        """Whether this thread is inside a job of :meth:`map`, where nothing runs in parallel to it."""
        return bool(getattr(self._inside, "active", False))

    def limited(self) -> AbstractContextManager[None]:
        """Hold BLAS and LAPACK to one thread, so that pieces alone decide every sum.

        The limit is the process's: it holds until the last of all engines that
        asked for it is done.
        """
        return one_blas_thread()

    def close(self) -> None:
        """Stop the threads; a later :meth:`map` starts new ones."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown()

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()


#: What the whole engine does for both: its threads, and sums over the rows of all workers.
_WHOLE = (
    *("_shared", "over_rows", "_into_leaves", "_threads_for"),
    *("_nodes", "_across", "_maximum", "gather"),
)


class SomeRowsEngine(Engine):
    """An engine for vectors that hold some rows only: a sum over these does not depend on where rows are.

    Shapes: rows (n,).
    """

    def __init__(self, whole: Engine, rows: np.ndarray, n_rows: int) -> None:
        super().__init__(whole.n_threads)
        self._whole, self._inside, self._n = whole, whole._inside, len(rows)
        self.shares_rows, self.spilled = whole.shares_rows, whole.spilled
        leaves = whole.leaves(n_rows)
        bounds = np.append(0, np.searchsorted(rows, borders(leaves)[1:]))
        self._leaves = tuple(pairwise(bounds.tolist()))
        self._all: int | None = None
        for name in _WHOLE:
            setattr(self, name, getattr(whole, name))

    def leaves(
        self, n_rows: int, entries: float = 0.0, work: float = math.inf, fewest: int = SOME_LEAVES
    ) -> Ranges:
        """Leaves of these rows: as many as the whole engine has, some of them perhaps empty."""
        if n_rows != self._n:
            raise ValueError(f"{n_rows} rows are not the {self._n} chosen ones")
        return self._leaves

    def all_rows(self, n_rows: int) -> int:
        if self._all is None:  # no cached property: that locks out workers which are threads
            self._all = int(self._across([float(b[-1][1] - b[0][0]) for b in self._nodes(self._leaves)]))
        return self._all
