"""Work of several parties in one call: after every pass the interpreter's own memory is out of the caches.

Jobs that know nothing of each other are described one after another, while it is in them. Then all their
pieces are shared among threads at once. Pieces are those of the jobs alone, so bits are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from fastadmm.engine.rows import address_of, over_rows
from fastadmm.engine.tree import Ranges

__all__ = ["Later", "do_together"]

#: Room that an argument takes in machine code, in numbers of eight bytes: an array of three dimensions most.
_MOST_NUMBERS = 11


def do_together(n_threads: int, jobs: Sequence[tuple[Any, np.ndarray, tuple[Any, ...]]]) -> None:
    """Have all pieces of several jobs done: of each a kernel, the borders of its pieces and arguments."""
    from fastadmm.kernels.rows import keep_rows, pieces_of_jobs

    sizes = [_numbers((bounds, arguments)) for _, bounds, arguments in jobs]
    rooms, told, pieces, first = np.empty(sum(sizes), dtype=np.int64), [], 0, 0
    begin = rooms.__array_interface__["data"][0]
    for size, (kernel, bounds, arguments) in zip(sizes, jobs):
        room = rooms[first : first + size]
        code = keep_rows(room, address_of(kernel, (*arguments, 0, 0)), bounds, *arguments)
        assert code, "no room for the arguments of a job"
        pieces += len(bounds) - 1
        told.append((code, begin + 8 * first, pieces))
        first += size
    over_rows(n_threads, pieces_of_jobs, np.arange(pieces + 1), np.array(told))


def _numbers(argument: Any) -> int:
    """Room that an argument takes in machine code, or several: in numbers of eight bytes, rather too many."""
    if isinstance(argument, tuple):
        return 2 + sum([_numbers(part) if isinstance(part, tuple) else _MOST_NUMBERS for part in argument])
    return _MOST_NUMBERS


class Later:
    """An engine whose jobs over rows wait for :meth:`do`, or for any other work that it is asked for."""

    def __init__(self, engine: Any, among: Later | None = None) -> None:
        self._engine = engine
        self._jobs: list[tuple[Any, Ranges, tuple[Any, ...]]] = [] if among is None else among._jobs
        self.leaves: Callable[..., Ranges] = engine.leaves
        self.all_rows = engine.all_rows

    def over_rows(self, kernel: Any, ranges: Ranges, *arguments: Any) -> None:
        """Keep a job over rows for later: until then nobody may look at what it writes."""
        self._jobs.append((kernel, ranges, arguments))

    def do(self) -> None:
        """Do all that waits."""
        jobs, self._jobs[:] = self._jobs[:], []
        self._engine.each_over_rows(jobs)

    def __getattr__(self, name: str) -> Any:
        self.do()
        return getattr(self._engine, name)
