"""Threads that help with kernels: awake while jobs follow each other closely, asleep otherwise."""

from __future__ import annotations

import os
import threading
from typing import Any

import numpy as np

from fastadmm.engine.row_threads import RowThreads

__all__ = ["Crew"]

#: So often a helper looks for a job before it goes to sleep: a few milliseconds.
_LOOKS = 200_000


class Crew(RowThreads):
    """Helpers that look at one board; see :mod:`fastadmm.kernels.crew`.

    Parameters
    ----------
    n_threads : int
        The caller and its helpers.

    Attributes
    ----------
    board : ndarray of int64
    """

    def __init__(self, n_threads: int) -> None:
        from fastadmm.kernels.crew import board_size, serve
        from fastadmm.kernels.pieces import COMPILED

        super().__init__(n_threads)
        n_helpers = n_threads - 1 if COMPILED else 0
        self.board = np.zeros(board_size(n_helpers + 1), dtype=np.int64)
        self._closed = False
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

    def over_rows(self, address: int, bounds: np.ndarray, *arguments: Any) -> None:
        from fastadmm.kernels.crew import over_rows

        self._wake()
        over_rows(self.board, address, bounds, *arguments)

    def over_sums(self, address: int, bounds: np.ndarray, own: np.ndarray, *arguments: Any) -> None:
        from fastadmm.kernels.crew import over_sums

        self._wake()
        over_sums(self.board, address, bounds, own, *arguments)

    def _wake(self) -> None:
        """Wake whoever sleeps; a job that comes before they are up is done without them."""
        if self._asleep:
            with self._bell:
                self._bell.notify_all()

    def close(self) -> None:
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
