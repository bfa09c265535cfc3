"""Numba's own threads, by ``prange``: the second way to share pieces, beside a crew."""

from __future__ import annotations

import os
import threading
from typing import Any, ClassVar

import numpy as np

from fastadmm.engine.row_threads import ALONE, RowThreads

__all__ = ["ParallelRows"]

#: Numba's threads are the process's. Its simplest layer ends the process where two callers meet.
_BUSY = threading.Lock()


class ParallelRows(RowThreads):
    """See :mod:`fastadmm.kernels.parallel_rows`.

    Parameters
    ----------
    n_threads : int
        At most as many as Numba may have (``NUMBA_NUM_THREADS``).

    Notes
    -----
    A second caller does its pieces alone while the first is busy, as does every caller in a child that was
    forked after the threads were launched.
    """

    #: The process that launched them, if one has: GNU OpenMP ends a forked child that would use them.
    _launched_in: ClassVar[int | None] = None

    def __init__(self, n_threads: int) -> None:
        import numba

        settings: Any = numba.config
        super().__init__(min(n_threads, settings.NUMBA_NUM_THREADS))

    def over_rows(self, address: int, bounds: np.ndarray, *arguments: Any) -> None:
        from fastadmm.kernels.parallel_rows import parallel_rows

        self._run(parallel_rows, ALONE.over_rows, address, bounds, *arguments)

    def over_sums(self, address: int, bounds: np.ndarray, own: np.ndarray, *arguments: Any) -> None:
        from fastadmm.kernels.parallel_rows import parallel_sums

        self._run(parallel_sums, ALONE.over_sums, address, bounds, own, *arguments)

    def _run(self, together: Any, alone: Any, *arguments: Any) -> None:
        from numba import get_num_threads, set_num_threads

        if self._launched_in not in (None, os.getpid()) or not _BUSY.acquire(blocking=False):
            alone(*arguments)
            return
        try:
            ParallelRows._launched_in = os.getpid()
            before = get_num_threads()
            set_num_threads(self.n_threads)
            try:
                together(*arguments)
            finally:
                set_num_threads(before)
        finally:
            _BUSY.release()
