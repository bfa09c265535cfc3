"""Threads that keep the order of what they are given."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


def in_order(function: Callable[[_Item], _Result], items: Iterable[_Item]) -> Generator[_Result, None, None]:
    """Results in the order of the items, computed by threads a little ahead."""
    from fastadmm.engine.engine import default_threads

    threads, waiting = default_threads(), deque[Future[_Result]]()
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


@contextmanager
def on_threads(most: int) -> Iterator[Callable[[Callable[[_Item], None], Iterable[_Item]], None]]:
    """Lend a function that calls another one on every item, on other threads, and waits for all of them."""
    from fastadmm.engine.engine import default_threads

    with ThreadPoolExecutor(min(most, default_threads())) as pool:

        def every(function: Callable[[_Item], None], items: Iterable[_Item]) -> None:
            list(pool.map(function, items))

        yield every
