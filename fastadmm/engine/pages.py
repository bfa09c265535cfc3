"""A pool of large vectors: the system sets pages of new memory to zero while all threads wait."""

import numpy as np

#: Bytes of the largest pages that memory comes in: smaller vectors are not worth it.
_PAGE = 1 << 21

#: Vectors of a length that are kept while nobody has them.
_MOST_KEPT = 2


class _Memory(np.ndarray):
    """Memory as such: of a type of its own, or NumPy would make it the base of an array that is lent."""


class _Lent(np.ndarray):
    """Memory behind an array: when the last array over it goes, it is kept for the next."""

    kept: list[np.ndarray]

    def __del__(self) -> None:
        if len(self.kept) < _MOST_KEPT:
            self.kept.append(self.base)  # type: ignore[arg-type]


class Vectors:
    """Lends vectors."""

    def __init__(self) -> None:
        self.kept: dict[int, list[np.ndarray]] = {}

    def lend(self, size: int) -> np.ndarray:
        """Room for so many numbers, whatever stands there."""
        if 8 * size < _PAGE:
            return np.empty(size)
        kept = self.kept.setdefault(size, [])
        try:
            memory = kept.pop() if kept else _Memory(size)
        except IndexError:  # another thread asked at the same time
            memory = _Memory(size)
        own = memory.view(_Lent)
        own.kept = kept
        return own.view(np.ndarray)

    def forget(self) -> None:
        """Keep nothing of what there is, nor of what comes back later."""
        for kept in self.kept.values():
            kept[:] = [np.empty(0)] * _MOST_KEPT
        self.kept = {}
