"""What readers of large texts share: threads that keep the order, and tables of their kernels."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from typing import TypeVar

import numpy as np

__all__ = ["LARGE", "in_order", "line_ends", "powers"]

#: Bytes on disk from which compiled code is worth its loading.
LARGE = 4 << 20

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@cache
def powers() -> np.ndarray:
    """Powers of five for the reading of numbers."""
    from fastadmm.kernels.decimals import powers_of_five

    return powers_of_five()


def line_ends(text: bytes) -> int:
    """How often a line ends in a text; ``bytes.count`` takes as long as reading the numbers.

    Parameters
    ----------
    text : bytes
    """
    return int(np.count_nonzero(np.frombuffer(text, dtype=np.uint8) == ord("\n")))


def in_order(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> Iterator[_Result]:
    """Results in the order of the items, computed by threads a little ahead.

    Parameters
    ----------
    function : callable
    items : iterable
    """
    from fastadmm.engine.engine import default_threads

    threads = default_threads()
    if threads == 1:
        yield from map(function, items)
        return
    waiting: deque[Future[_Result]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for item in items:
                waiting.append(pool.submit(function, item))
                if len(waiting) > threads:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
