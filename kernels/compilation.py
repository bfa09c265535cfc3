"""Observers that are told when a kernel is compiled; imports nothing, so that it is cheap to import."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

#: Called with a kernel's name: before it is compiled (seconds None), and after, with the seconds it took.
Observer = Callable[[str, float | None], None]

_observers: list[Observer] = []


@contextmanager
def watching(observer: Observer) -> Iterator[None]:
    """Tell an observer of every kernel that is compiled meanwhile, in whatever thread; not of those loaded.

    ``observer``: takes the kernel's name (``module.function``) and None before, the seconds after.
    """
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)


def tell(name: str, seconds: float | None) -> None:
    """Say that the compilation of a kernel begins, without seconds, or how many it took."""
    for observer in tuple(_observers):
        observer(name, seconds)
