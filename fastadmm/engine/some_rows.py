"""An engine of some rows of another's, whose leaves are what its leaves have of them."""

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np

from fastadmm.engine.engine import Engine, borders
from fastadmm.engine.tree import SOME_LEAVES, Ranges

_T = TypeVar("_T")
_R = TypeVar("_R")


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

    def _shared(self, function: Callable[[_T], _R], items: Iterable[_T], parallel: bool = True) -> list[_R]:
        return self._whole._shared(function, items, parallel)

    def over_rows(self, kernel: Any, ranges: Sequence[tuple[int, int]], *arguments: Any) -> None:
        self._whole.over_rows(kernel, ranges, *arguments)

    def _into_leaves(self, kernel: Any, leaves: Ranges, own: np.ndarray, *arguments: Any) -> None:
        self._whole._into_leaves(kernel, leaves, own, *arguments)

    def _threads_for(self, ranges: Sequence[tuple[int, int]]) -> int:
        return self._whole._threads_for(ranges)

    def _nodes(self, leaves: Ranges) -> list[Ranges]:
        return self._whole._nodes(leaves)

    def _across(self, nodes: list[Any]) -> Any:
        return self._whole._across(nodes)

    def _maximum(self, numbers: np.ndarray) -> np.ndarray:
        return self._whole._maximum(numbers)

    def smallest(self, v: np.ndarray, k: int) -> float:
        return self._whole.smallest(v, k)

    def gather(self, *vectors: np.ndarray) -> list[np.ndarray]:
        return self._whole.gather(*vectors)
