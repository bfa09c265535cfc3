"""Equal work of several parties in one call: after every pass the interpreter's own memory is out of the caches.

Jobs that know nothing of each other are described one after another, while it is in them. Then all their
pieces are shared among threads at once. Pieces are those of the jobs alone, so bits are the same.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from fastadmm.engine.rows import address_of
from fastadmm.engine.tree import Ranges

if TYPE_CHECKING:
    from fastadmm.engine.engine import Engine

__all__ = ["Later", "do_together", "one_by_one"]

@lru_cache(maxsize=64)
def one_by_one(pieces: int) -> Ranges:
    """Every piece a range."""
    return tuple(itertools.pairwise(range(pieces + 1)))


def do_together(
    engine: Engine, jobs: Sequence[tuple[Any, np.ndarray, np.ndarray | None, tuple[Any, ...]]]
) -> None:
    """Have all pieces of several jobs done.

    Parameters
    ----------
    engine : Engine
        With several threads for them.
    jobs : sequence of tuple
        Kernel; borders of its pieces; room for the sums of each piece, as of
        :func:`fastadmm.kernels.rows.over_sums`, or None for a job without; and its arguments.
    """
    from fastadmm.kernels.pieces import KEPT
    from fastadmm.kernels.rows import keep_rows, keep_sums, pieces_of_jobs

    rooms, told = np.empty((len(jobs), KEPT), dtype=np.int64), np.empty((len(jobs), 3), dtype=np.int64)
    for own_told, room, (kernel, bounds, own, arguments) in zip(told, rooms, jobs):
        if own is None:
            code = keep_rows(room, address_of(kernel, (*arguments, 0, 0)), bounds, *arguments)
        else:
            code = keep_sums(room, address_of(kernel, (*arguments, own[0], 0, 0)), bounds, own, *arguments)
        own_told[:] = code, room.ctypes.data, len(bounds) - 1
    pieces = int(told[:, 2].sum())
    np.cumsum(told[:, 2], out=told[:, 2])
    engine.over_rows(pieces_of_jobs, one_by_one(pieces), told)


class Later:
    """An engine whose jobs over rows wait for :meth:`do`, or for any other work that it is asked for.

    Parameters
    ----------
    engine : Engine
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._jobs: list[tuple[Any, Ranges, tuple[Any, ...]]] = []
        self.leaves: Callable[..., Ranges] = engine.leaves
        self.all_rows = engine.all_rows

    def over_rows(self, kernel: Any, ranges: Ranges, *arguments: Any) -> None:
        """As of the engine, some time later: until then nobody may look at what it writes."""
        self._jobs.append((kernel, ranges, arguments))

    def do(self) -> None:
        """Do all that waits."""
        jobs, self._jobs = self._jobs, []
        self._engine.each_over_rows(jobs)

    def __getattr__(self, name: str) -> Any:
        self.do()
        return getattr(self._engine, name)
