"""Items of one job of Python functions, shared by threads."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

import numpy as np

_T = TypeVar("_T")
_R = TypeVar("_R")

#: Overflow and its consequences are looked for where they matter, in objective and residuals.
QUIET: Any = {"over": "ignore", "invalid": "ignore"}

#: What an item that another thread took is found as.
_TAKEN = object()


class Job(Generic[_T, _R]):
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
            with np.errstate(**QUIET):
                self.work(worker)
        except BaseException as error:
            self._error = error
            self.stop()

    def stop(self) -> None:
        """No thread begins another item."""
        self._open.clear()

    def results(self) -> list[_R]:
        """In the order of the items; raises what a helper raised. Afterwards nothing is held any more."""
        if self._error is not None:
            raise self._error
        found = cast("list[_R]", self._found)
        del self._function, self._items, self._found  # a helper's thread may hold the job a moment longer
        return found
